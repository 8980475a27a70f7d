"""Sections of the report that a manifest alone fills."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from longcrawl.card.limits import Limit
from longcrawl.display.numbers import percent
from longcrawl.ledger.edits import EditCounts
from longcrawl.ledger.funnel import Funnel, FunnelRow, RemovalRates
from longcrawl.printable import shortened
from longcrawl.report.passages import escape
from longcrawl.report.tables import Cells, Column, bar, grouped_table, key, named, table

__all__ = ["edit_table", "facts_list", "funnel_table", "notes", "reason_table"]

MOST_RULES = 60
"""Rules of one stage."""
MOST_NOTES = 50
LONGEST_NOTE = 1_000
_CODE, _CODE_SPAN = re.compile(r"`([^`]+)`"), r"<code>\1</code>"

EDIT_COLUMNS = [
    Column("", kind="bar"),
    Column("places", "places", kind="main"),
    Column("changed", "changed"),
    Column("fewer now", "fewer now"),
]
REASON_COLUMNS = [
    Column("", kind="bar"),
    Column("documents", kind="main"),
    Column("of its input", "of its input"),
    Column("of all removed", "of all removed"),
]


def funnel_table(rates: RemovalRates) -> str:
    """Draw what each stage leaves: the documents it kept as a share of all, then those it removed."""
    funnel = rates.funnel
    whole = max(funnel.documents, 1)
    rows: list[tuple[int, int]] = [(funnel.documents, 0), *((row.documents_out, row.removed) for row in funnel)]
    lines = []
    for (left, gone), (name, count, *cells) in zip(rows, rates, strict=True):
        drawn = bar((left / whole, "kept"), (gone / whole, "gone"))
        lines.append([named(name), drawn, count, f"{gone:,}" if gone else "", *map(escape, cells)])
    shown = key(("kept", "kept by the stage"), ("gone", "removed"))
    return shown + table("funnel", "stage", _funnel_columns(rates), lines)


def _funnel_columns(rates: RemovalRates) -> list[Column]:
    """Put the columns of removal rates under what they are of."""
    columns = [Column("", kind="bar")]
    for group, label, kind in [("documents", "", ""), ("characters", "characters", "second")]:
        if group == "documents" or rates.has_characters:
            columns.append(Column("kept", label or "kept", group, kind or "main"))
            columns += [Column("removed", "removed", group)] if group == "documents" else []
            columns += [Column(name, name, group, kind) for name in ("of all", "of before")]
    name = rates.reference.name
    return columns + ([Column(name, name, "published", "second")] if rates.reference.documents else [])


def reason_table(funnel: Funnel, places: Mapping[tuple[str, str], int]) -> str:
    """Return for each stage how many documents each rule removed; ``places`` says where the sample of a rule begins."""
    left = [row for row in funnel if row.removed]
    if not left:
        return '<p class="empty">No document was removed.</p>'
    most = max([count for row in left for count in row.rules.values()], default=0) or 1
    removed = sum(row.removed for row in left)
    groups = [(_stage(row), list(_reasons(row, places, most, removed))) for row in left]
    return grouped_table("reasons", ("stage", "rule"), REASON_COLUMNS, [each for each in groups if each[1]])


def edit_table(funnel: Funnel) -> str:
    """Return for each stage what its rules changed in documents; "" where nothing was changed."""
    changed = [(row, row.edits) for row in funnel if row.edits is not None]
    groups = [(_changed(row, edits), list(_rule_edits(edits))) for row, edits in changed]
    shown = grouped_table("reasons", ("stage", "rule"), EDIT_COLUMNS, groups)
    said = "<code>edits/</code> lists every place; <code>longcrawl why RUN ID</code> shows those of one document."
    return f'{shown}<p class="note">{said}</p>' if groups else ""


def _changed(row: FunnelRow, edits: EditCounts) -> str:
    said = f"{edits.documents:,} of {row.documents_in:,} changed, in {edits.unit}"
    return f'{named(row.stage)} <span class="value">{said}</span>'


def _rule_edits(edits: EditCounts) -> Iterator[Cells]:
    most = max(counts.touched for counts in edits.rules.values()) or 1
    ranked = sorted(edits.rules.items(), key=lambda rule: (-rule[1].touched, rule[0]))
    for rule, counts in ranked[:MOST_RULES]:
        figures = [f"{counts.places:,}", f"{counts.touched:,}", f"{counts.removed:,}"]
        yield [named(rule), bar((counts.touched / most, "gone")), *figures]


def _stage(row: FunnelRow) -> str:
    return f'{named(row.stage)} <span class="value">{row.removed:,} of {row.documents_in:,} removed</span>'


def _reasons(row: FunnelRow, places: Mapping[tuple[str, str], int], most: int, removed: int) -> Iterator[Cells]:
    ranked = sorted(row.rules.items(), key=lambda rule: (-rule[1], rule[0]))
    rest = sum(count for _, count in ranked[MOST_RULES:])
    for rule, count in [*ranked[:MOST_RULES], *([("others", rest)] if rest else [])]:
        place = places.get((row.stage, rule))
        link = named(rule) if place is None else f'<a href="#removed-{place}">{named(rule)}</a>'
        shares = [percent(count / max(row.documents_in, 1)), percent(count / max(removed, 1))]
        yield [link, bar((count / most, "gone")), f"{count:,}", *shares]


def facts_list(facts: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """Return names and values, as ``facts`` in lines or as ``tiles``."""
    said = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="{kind}">{said}</dl>'


def notes(limits: Sequence[Limit]) -> str:
    """Return sentences as a list; what stands between backticks is code, but never in what is cited."""
    shown = [f"{_CODE.sub(_CODE_SPAN, escape(said))}{_cited(cited)}" for said, cited in limits[:MOST_NOTES]]
    more = [f"and {len(limits) - MOST_NOTES:,} more, in manifest.json"] if len(limits) > MOST_NOTES else []
    return f"<ul>{''.join(f'<li>{each}</li>' for each in [*shown, *more])}</ul>"


def _cited(cited: str) -> str:
    return f"<bdi>{escape(shortened(cited, LONGEST_NOTE))}</bdi>." if cited else ""
