"""Sections of the report: HTML without styles, scripts or links of its own, in which all text is escaped."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longcrawl.ledger import Funnel, FunnelRow
from longcrawl.removal_rates import RemovalRates
from longcrawl.report.bars import BarTable
from longcrawl.report.limits import Limit
from longcrawl.report.passages import escape, shortened

__all__ = ["bar_table", "facts_list", "funnel_table", "notes", "reason_tables"]

LONGEST_NAME = 200
MOST_RULES = 60
MOST_NOTES = 50
LONGEST_NOTE = 1_000
_KEY = '<span class="key kept"></span> documents after the stage <span class="key gone"></span> left here'
_CODE, _CODE_SPAN = re.compile(r"`([^`]+)`"), r"<code>\1</code>"
_BREAKS = re.compile(r"([_.])")


def funnel_table(rates: RemovalRates) -> str:
    """Draw what each stage leaves: of all documents those that are left, and behind them those that left here."""
    funnel = rates.funnel
    _, documents, *others = rates.head
    head = ["stage", "", documents, "left here", *others]
    rows: list[tuple[int, int]] = [(funnel.documents, 0), *((row.documents_out, row.removed) for row in funnel)]
    lines = []
    for (left, gone), (name, count, *cells) in zip(rows, rates, strict=True):
        whole = max(funnel.documents, 1)
        bar = _bar((left / whole, "kept"), (gone / whole, "gone"))
        lines.append([_name(name), bar, count, f"{gone:,}" if gone else "", *map(escape, cells)])
    return f"<p>{_KEY}</p>{_table('funnel', head, lines)}"


def reason_tables(funnel: Funnel, places: Mapping[tuple[str, str], int]) -> str:
    """Give for each stage how many left by each rule; ``places`` says where the sample of a rule begins."""
    parts = [_reasons(row, places) for row in funnel if row.removed]
    return f'<div class="columns">{"".join(parts)}</div>' if parts else "<p>No document left.</p>"


def _reasons(row: FunnelRow, places: Mapping[tuple[str, str], int]) -> str:
    ranked = sorted(row.rules.items(), key=lambda rule: (-rule[1], rule[0]))
    shown, rest = ranked[:MOST_RULES], sum(count for _, count in ranked[MOST_RULES:])
    most = max([count for _, count in shown], default=1)
    lines = []
    for rule, count in [*shown, *([("others", rest)] if rest else [])]:
        place = places.get((row.stage, rule))
        link = _name(rule) if place is None else f'<a href="#removed-{place}">{_name(rule)}</a>'
        share = _percent(count / max(row.documents_in, 1))
        lines.append([link, _bar((count / most, "gone")), f"{count:,}", share])
    heading = f"<h3>{_name(row.stage)}</h3><p>{row.removed:,} of {row.documents_in:,} documents left.</p>"
    return f"<section>{heading}{_table('reasons', ['rule', '', 'documents', 'of its input'], lines)}</section>"


def bar_table(table: BarTable, kind: str = "kept") -> str:
    """Draw a table with a bar to each row, and a second bar for shares of something else, such as of tokens."""
    most = max([row.share for row in table.rows], default=0) or 1
    most_total = max([row.total_share or 0 for row in table.rows], default=0) or 1
    head = [table.title, "", "documents", "share", *([table.total] if table.total else [])]
    lines = []
    for row in table.rows:
        bar = _bar((row.share / most, kind))
        if row.total_share is not None:
            bar += _bar((row.total_share / most_total, "other"))
        cells = [_name(row.name), bar, f"{row.documents:,}", _percent(row.share)]
        lines.append(cells + ([] if row.total_share is None else [_percent(row.total_share)]))
    title = f"Length in {table.title}" if table.total else table.title.capitalize()
    return f"<h3>{escape(title)}</h3>{_table('bars', head, lines)}<p>{escape(table.rest)}.</p>"


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Give names and values."""
    said = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{said}</dl>"


def notes(limits: Sequence[Limit]) -> str:
    """Give sentences as a list; what stands between backticks is code, but never in what is cited."""
    shown = [f"{_CODE.sub(_CODE_SPAN, escape(said))}{_cited(cited)}" for said, cited in limits[:MOST_NOTES]]
    more = [f"and {len(limits) - MOST_NOTES:,} more, in manifest.json"] if len(limits) > MOST_NOTES else []
    return f"<ul>{''.join(f'<li>{each}</li>' for each in [*shown, *more])}</ul>"


def _cited(cited: str) -> str:
    return f"<bdi>{escape(shortened(cited, LONGEST_NOTE))}</bdi>." if cited else ""


def _table(kind: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Give a table; cells are HTML, and name their column for narrow screens, where the head is not shown."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    rows = []
    for name, *cells in lines:
        named = [f'<td data-label="{escape(label)}">{cell}</td>' for label, cell in zip(head[1:], cells, strict=True)]
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(named)}</tr>')
    return f'<table class="{kind}"><thead><tr>{columns}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _bar(*shares: tuple[float, str]) -> str:
    """Draw shares of a whole side by side; what is there at all is seen."""
    at, drawn = 0.0, []
    for share, kind in shares:
        width = max(100 * share, 0.4) if share else 0
        drawn.append(f'<rect class="{kind}" x="{at:.2f}" width="{width:.2f}" height="10"/>')
        at += width
    return f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg>'


def _name(name: Any) -> str:
    """Give a name that may be broken behind an underscore or a dot."""
    broken = _BREAKS.sub(r"\1<wbr>", escape(shortened(str(name), LONGEST_NAME)))
    return f"<bdi>{broken}</bdi>"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
