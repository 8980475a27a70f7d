"""HTML report of a run on one page.

Text of crawled pages is escaped. A Content-Security-Policy allows the one script and the one style sheet by their
SHA-256 and forbids all requests. It forbids the inline styles of :class:`longcrawl.core.display.Table`, so tables are
made here.
"""

import base64
import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, cast

import pyarrow as pa
import yaml

from longcrawl.core.addresses import url_hosts
from longcrawl.core.counts import EDITS, LEDGER, PURPOSE, QUEUES, EditCounts, known_pages
from longcrawl.core.display import Table, percent
from longcrawl.core.funnel import Funnel, FunnelRow, RemovalRates, largest_rules, value_tables
from longcrawl.core.ledger import Clusters
from longcrawl.core.outputs import RESULTS, read_template
from longcrawl.errors import RunError, shortened, unreadable
from longcrawl.io.files import bring, check_target, check_writable, url_of, write_text, writing
from longcrawl.publish.report.removed_documents import (
    RemovedDocument,
    RemovedDocuments,
    brief,
    cluster_list,
    escape,
    facts_list,
    removed_documents,
    text_block,
)
from longcrawl.publish.reread import SamplePage, clusters, sample_pages
from longcrawl.run.analysis import Analysis, Lengths, length_table
from longcrawl.run.card.sections import Limit, compared_lengths, known_limits
from longcrawl.run.card.write import PICTURE_FOLDER
from longcrawl.run.manifest import CARD, MANIFEST, PLAN, TOKEN_TABLES, WORK, open_run, read_manifest

LONGEST_NAME = 200
_BREAKS = re.compile(r"([_.])")


class Column(NamedTuple):
    """A column after the names of the rows."""

    head: str
    label: str = ""
    """Label after a figure on narrow screens, which hide the heads."""
    group: str = ""
    """Head above the heads of several columns."""
    kind: str = ""
    """CSS classes: ``bar`` for bars; on narrow screens, ``main`` beside the name and ``second`` in a second line."""


Cells = Sequence[str]
"""A row as HTML: its name, then a cell for each column."""


def table(kind: str, first: str, columns: Sequence[Column], rows: Iterable[Cells], caption: str = "") -> str:
    """Return an HTML table of a class, with ``first`` as head of the row names."""
    body = "".join(_row(cells, columns) for cells in rows)
    return _whole(kind, [first], columns, f"<tbody>{body}</tbody>", caption)


def grouped_table(columns: Sequence[Column], groups: Iterable[tuple[str, Sequence[Cells]]]) -> str:
    """Return an HTML table of rules, with the rows of a stage beside its name."""
    bodies = []
    for name, rows in groups:
        heading = f'<th scope="rowgroup" class="name heading" rowspan="{len(rows)}">{name}</th>'
        said = [_row(cells, columns, "" if number else heading) for number, cells in enumerate(rows)]
        bodies.append(f"<tbody>{''.join(said)}</tbody>")
    return _whole("reasons", ("stage", "rule"), columns, "".join(bodies))


def _whole(kind: str, names: Sequence[str], columns: Sequence[Column], bodies: str, caption: str = "") -> str:
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    heads = "".join(f'<th scope="col" class="name">{escape(name)}</th>' for name in names)
    for column in columns:
        heads += f'<th scope="col"{_class(column)}>{escape(column.head)}</th>' if column.head else _cell(column)
    above = _groups(len(names), columns) if any(column.group for column in columns) else ""
    return f'<table class="{kind}">{said}<thead>{above}<tr>{heads}</tr></thead>{bodies}</table>'


def _groups(names: int, columns: Sequence[Column]) -> str:
    cells = [f'<td colspan="{names}"></td>']
    for name, same in groupby(columns, key=lambda column: column.group):
        span = f'colspan="{len(list(same))}"'
        cells.append(f'<th scope="colgroup" {span}><span>{escape(name)}</span></th>' if name else f"<td {span}></td>")
    return f'<tr class="groups">{"".join(cells)}</tr>'


def _row(cells: Cells, columns: Sequence[Column], heading: str = "") -> str:
    name, *rest = cells
    shown = "".join(_cell(column, cell) for column, cell in zip(columns, rest, strict=True))
    return f'<tr>{heading}<th scope="row" class="name">{name}</th>{shown}</tr>'


def _cell(column: Column, cell: str = "") -> str:
    label = f' data-label="{escape(column.label)}"' if column.label else ""
    return f"<td{_class(column)}{label}>{cell}</td>"


def _class(column: Column) -> str:
    return f' class="{column.kind}"' if column.kind else ""


def bar(*shares: tuple[float, str]) -> str:
    """Draw shares of a whole side by side, each with its kind; shares above 0 are always visible."""
    at, drawn = 0.0, []
    for share, kind in shares:
        width = max(100 * share, 0.4) if share else 0
        drawn.append(f'<rect class="{kind}" x="{at:.2f}" width="{width:.2f}" height="10"/>')
        at += width
    return (
        f'<svg class="drawn" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg>'
    )


def key(*kinds: tuple[str, str]) -> str:
    """Return a legend of the kinds of bars."""
    said = "".join(f'<li><span class="swatch {kind}"></span>{escape(what)}</li>' for kind, what in kinds)
    return f'<ul class="key">{said}</ul>'


def named(name: Any) -> str:
    """Return a name as HTML that can break after underscores and dots, and keeps the labels of a host in order."""
    broken = _BREAKS.sub(r"\1<wbr>", escape(shortened(str(name), LONGEST_NAME)))
    return f'<bdi dir="ltr">{broken}</bdi>'


MOST_RULES, MOST_NOTES, MOST_DOMAINS = 60, 50, 15
"""Most rules shown of one stage, notes, and domains of kept and of removed documents."""
LONGEST_NOTE = 1_000
_CODE = re.compile(r"`([^`]+)`")

EDIT_COLUMNS = [
    Column("", kind="bar"),
    Column("places", "places", kind="main"),
    Column("changed", "changed"),
    Column("net removed", "net removed"),
]
REASON_COLUMNS = [
    Column("", kind="bar"),
    Column("documents", kind="main"),
    Column("of its input", "of its input"),
    Column("of all removed", "of all removed"),
]


def funnel_table(rates: RemovalRates) -> str:
    """Draw the funnel: for each stage, the documents it kept as a share of all, then those it removed."""
    funnel = rates.funnel
    whole = max(funnel.documents, 1)
    stages: list[tuple[int, int]] = [(funnel.documents, 0), *((row.documents_out, row.removed) for row in funnel)]
    columns, lines = [Column("", kind="bar"), *_funnel_columns(rates)], []
    kinds = [column.kind for column in rates.columns[1:]]
    for (left, gone), (name, *cells) in zip(stages, rates, strict=True):
        drawn = bar((left / whole, "kept"), (gone / whole, "gone"))
        figures = zip(cast("list[float | None]", cells), kinds, strict=True)
        count, *others = (percent(each) if kind == "share" or each is None else f"{each:,}" for each, kind in figures)
        lines.append([named(name), drawn, count, f"{gone:,}" if gone else "", *others])
    shown = key(("kept", "kept by the stage"), ("gone", "removed"))
    return shown + table("funnel", "stage", columns, lines)


def _funnel_columns(rates: RemovalRates) -> list[Column]:
    columns = [Column("kept", "kept", "documents", "main"), Column("removed", "removed", "documents")]
    columns += [Column(name, name, "documents") for name in ("of all", "of before")]
    if rates.has_characters:
        columns.append(Column("kept", "characters", "characters", "second"))
        columns += [Column(name, name, "characters", "second") for name in ("of all", "of before")]
    name = rates.reference.name
    return columns + ([Column(name, name, "published", "second")] if rates.reference.documents else [])


def reason_table(funnel: Funnel, places: Mapping[tuple[str, str], int]) -> str:
    """Return the number of documents that each rule of each stage removed, with links to the sample from ``places``."""
    left = [row for row in funnel if row.removed]
    if not left:
        return '<p class="empty">No document was removed.</p>'
    most = max([count for row in left for count in row.rules.values()], default=0) or 1
    removed = sum(row.removed for row in left)
    groups = [(_heading(row, row.removed, "removed"), list(_reasons(row, places, most, removed))) for row in left]
    return grouped_table(REASON_COLUMNS, [each for each in groups if each[1]])


def edit_table(funnel: Funnel) -> str:
    """Return the changes that the rules of each stage made in documents, or "" if there are none."""
    changed = [(row, row.edits) for row in funnel if row.edits is not None]
    groups = [
        (_heading(row, edits.documents, f"changed, in {edits.unit}"), list(_rule_edits(edits)))
        for row, edits in changed
    ]
    shown = grouped_table(EDIT_COLUMNS, groups)
    said = "<code>edits/</code> lists every place; <code>longcrawl why RUN ID</code> shows those in one document."
    return f'{shown}<p class="note">{said}</p>' if groups else ""


def queue_table(funnel: Funnel) -> str:
    """Return the documents that stages put into queues, or "" if there are none."""
    groups = [
        (
            f'{named(row.stage)} <span class="value">{escape(PURPOSE[name])}</span>',
            [
                [
                    named(reason),
                    f"{count['documents']:,}",
                    "" if (pages := known_pages(name, count)) is None else f"{pages:,}",
                ]
                for reason, count in reasons.items()
            ],
        )
        for row in funnel
        for name, reasons in row.queued.items()
    ]
    said = "<code>longcrawl queue RUN</code> lists the documents for OCR and to fetch again, kept and removed ones."
    note = f'<p class="note">{said}</p>' if any(name in row.queued for row in funnel for name in QUEUES) else ""
    shown = grouped_table([Column("documents", kind="main"), Column("pages", "pages")], groups)
    return f"{shown}{note}" if groups else ""


def _heading(row: FunnelRow, count: int, done: str) -> str:
    return f'{named(row.stage)} <span class="value">{count:,} of {row.documents_in:,} {done}</span>'


def _rule_edits(edits: EditCounts) -> Iterator[Cells]:
    most = max(counts.touched for counts in edits.rules.values()) or 1
    ranked = sorted(edits.rules.items(), key=lambda rule: (-rule[1].touched, rule[0]))
    for rule, counts in ranked[:MOST_RULES]:
        figures = [f"{counts.places:,}", f"{counts.touched:,}", f"{counts.removed:,}"]
        yield [named(rule), bar((counts.touched / most, "gone")), *figures]


def _reasons(row: FunnelRow, places: Mapping[tuple[str, str], int], most: int, removed: int) -> Iterator[Cells]:
    for rule, count in largest_rules(row.rules, MOST_RULES):
        place = places.get((row.stage, rule))
        link = named(rule) if place is None else f'<a href="#removed-{place}">{named(rule)}</a>'
        shares = [percent(count / max(row.documents_in, 1)), percent(count / max(removed, 1))]
        yield [link, bar((count / most, "gone")), f"{count:,}", *shares]


def notes(limits: Sequence[Limit]) -> str:
    """Return statements as a list, with code between backticks, except in their cited parts."""
    shown = []
    for said, cited in limits[:MOST_NOTES]:
        quoted = f"<bdi>{escape(shortened(cited, LONGEST_NOTE))}</bdi>." if cited else ""
        shown.append(_CODE.sub(r"<code>\1</code>", escape(said)) + quoted)
    more = [f"and {len(limits) - MOST_NOTES:,} more, in manifest.json"] if len(limits) > MOST_NOTES else []
    return f"<ul>{''.join(f'<li>{each}</li>' for each in [*shown, *more])}</ul>"


NOT_COUNTED = "Lengths at the source were not counted: it has no texts, or pages before extraction."


def length_tables(before: Lengths | None, analysis: Analysis) -> str:
    """Return lengths at the source beside those of kept documents, or in separate tables if units differ."""
    after = list(analysis.lengths)
    same = next((each for each in after if before is not None and each.unit == before.unit), None)
    parts = [] if before is not None else [f'<p class="note">{NOT_COUNTED}</p>'] * bool(after)
    if before is not None and same is not None:
        after.remove(same)
        parts.append(_before_and_after(before, same))
    elif before is not None:
        parts.append(_lengths(before, f"At the source, in {before.unit}", "came"))
    parts += [_lengths(each, f"Kept, in {each.unit}", "kept") for each in after]
    return "".join(parts)


def _before_and_after(before: Lengths, after: Lengths) -> str:
    bins = compared_lengths(before, after)
    most = max((share for _, _, came, _, kept in bins for share in (came, kept)), default=0) or 1
    rows = []
    for name, one, came, other, kept in bins:
        drawn = bar((came / most, "came")) + bar((kept / most, "kept"))
        rows.append([named(name), drawn, f"{one:,}", percent(came), f"{other:,}", percent(kept)])
    columns = [Column("", kind="bar")]
    for group, line in (("at the source", ""), ("kept", "second")):
        columns += [Column("documents", group, group, line), Column("share", group=group, kind=line)]
    shown = key(("came", "share of the documents at the source"), ("kept", "share of the kept documents"))
    said = "; ".join(
        f"{name} {sum(each.total.values()):,} {each.unit} in all and {each.mean:,.0f} on average"
        for name, each in (("at the source", before), ("kept", after))
    )
    return f"<h3>In {before.unit}</h3>{shown}{table('pairs', before.unit, columns, rows, _sentence(said))}"


def _lengths(lengths: Lengths, title: str, kind: str) -> str:
    shown = key((kind, "share of documents"), ("other", f"share of {lengths.unit}"))
    return f"<section><h3>{escape(title)}</h3>{shown}{drawn(length_table(lengths), kind)}</section>"


def domain_table(analysis: Analysis, hosts: Sequence[str], *, whole: bool) -> str:
    """Return an HTML table of the domains of kept and of removed documents, or "" if no domain is known.

    ``hosts`` are those of all removed documents if ``whole``, else of a sample.
    """
    left = Counter(hosts)
    if not analysis.domains and not left:
        return ""
    ranked = sorted(left, key=lambda host: (-left[host], host))
    names = dict.fromkeys([*list(analysis.domains)[:MOST_DOMAINS], *ranked[:MOST_DOMAINS]])
    kept_most, left_most = (max(counts.values(), default=1) for counts in (analysis.domains, left))
    head = "removed" if whole else "removed, in the sample"
    columns = [*_site_columns("kept", "kept"), *(_site_columns(head, "removed", " second") if left else [])]
    rows = []
    for name in names:
        count, gone = analysis.domains.get(name), left[name]
        kept = _beyond(analysis) if count is None else [f"{count:,}", percent(count / analysis.documents)]
        cells = [named(name), bar((count / kept_most, "kept")) if count else "", *kept]
        if left:
            shares = [f"{gone:,}", percent(gone / len(hosts))] if gone or whole else ["", ""]
            cells += [bar((gone / left_most, "gone")) if gone else "", *shares]
        rows.append(cells)
    return table("sites", "domain", columns, rows, _domain_caption(analysis, len(hosts), whole=whole))


def _site_columns(group: str, label: str, line: str = "") -> list[Column]:
    bars, figures = f"bar{line}", line.strip()
    return [
        Column("", group=group, kind=bars),
        Column("documents", label, group, figures),
        Column("share", group=group, kind=figures),
    ]


def _beyond(analysis: Analysis) -> list[str]:
    """Return the cells of a domain that is not among the largest: the most documents that it may have."""
    if len(analysis.domains) == analysis.distinct_domains and not analysis.domains_error:
        return ["0", percent(0)]
    return [f"≤ {min(analysis.domains.values(), default=0) + analysis.domains_error:,}", ""]


def _domain_caption(analysis: Analysis, known: int, *, whole: bool) -> str:
    kept = f"The kept documents have {analysis.distinct_domains:,} domains"
    if analysis.without_url:
        kept += f", and {analysis.without_url:,} of them have no URL"
    if analysis.domains_error:
        kept += f"; rare domains were dropped while counting, so a count may be {analysis.domains_error:,} too low"
    if not known:
        return f"{kept}."
    if whole:
        return f"{kept}. The table counts all {known:,} removed documents with a known URL."
    return (
        f"{kept}. The table counts every kept document, and the {known:,} removed documents in the sample above that "
        "have a known URL. Rules weigh the same in the sample, so these are not shares of all removed documents."
    )


def drawn(shares: Table, kind: str = "kept") -> str:
    """Draw a table of shares with a bar in each row, and a second bar for shares in another unit, such as tokens."""
    title, *_, last = shares.columns
    columns = [Column("", kind="bar"), Column("documents", kind="main"), Column("share", "of documents")]
    columns += [Column(last.title, last.title)] if last.kind == "share" else []
    rows = [(cast("tuple[str, int, float, float]", row[:4]), cast("Sequence[float]", row[4:])) for row in shares.rows]
    most = max([other for _, others in rows for other in others], default=0) or 1
    lines = []
    for (name, documents, share, length), others in rows:
        bars = bar((length, kind)) + "".join(bar((other / most, "other")) for other in others)
        lines.append([named(name), bars, f"{documents:,}", percent(share), *map(percent, others)])
    return table("bars", title.title, columns, lines, _sentence(" ".join(shares.notes)))


def _sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:]}."


LONGEST_RECIPE = 20_000
TITLE = b": longcrawl report</title>"
"""Part of the head of every page, which identifies it as a report."""
LONGEST_HEAD = 1 << 20
SCRIPT_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


@dataclass(frozen=True)
class ReportPage:
    """Content of a report; :meth:`html` returns the page."""

    manifest: Mapping[str, Any]
    removed: RemovedDocuments
    clusters: Clusters
    pages: Sequence[SamplePage] = ()
    no_pages: str | None = None
    """Reason why there are no pages."""

    def html(self) -> str:
        """Return the page; the same run gives the same bytes."""
        style, script = read_template("report.css"), read_template("report.js")
        filled = [(name, title, body) for name, title, body in self._sections() if body]
        links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in filled)
        parts = "".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in filled)
        return Template(read_template("report.html")).substitute(
            policy=_policy(style, script),
            title=escape(self.manifest["recipe"]["name"]),
            style=style,
            header=self._header(),
            links=links,
            sections=parts,
            data=self._data(),
            script=script,
        )

    def _sections(self) -> Iterator[tuple[str, str, str]]:
        warnings = self.manifest.get("warnings", {})
        found = [Limit(f"`{label}`: ", each) for label, several in warnings.items() for each in several]
        yield "warnings", "Warnings", notes(found) if found else ""
        yield "funnel", "Funnel", funnel_table(RemovalRates.from_manifest(self.manifest))
        yield "reasons", "Why documents were removed", self._reasons()
        yield "removed", "Removed documents", self._removed()
        yield "pages", "Blocks of pages", self._pages()
        yield "edits", "Changes in documents", edit_table(self._funnel)
        yield "queues", "For OCR, and to fetch again", queue_table(self._funnel)
        yield "clusters", "Duplicates", cluster_list(self.clusters) if self.clusters.count else ""
        before = self.manifest.get("source_lengths")
        yield "lengths", "Lengths", length_tables(before and Lengths.from_dict(before), self._analysis)
        yield "places", "Domains and languages", self._places()
        limits, inputs = notes(known_limits(self.manifest)), notes(_input_notes(self.manifest))
        yield "notes", "Known limits", f"{limits}<h3>Input</h3>{inputs}"
        yield "recipe", "Recipe", self._recipe()

    @property
    def _funnel(self) -> Funnel:
        return Funnel.from_dict(self.manifest["funnel"])

    @property
    def _analysis(self) -> Analysis:
        return Analysis.from_dict(self.manifest["analysis"])

    def _header(self) -> str:
        recipe, funnel, output = self.manifest["recipe"], self._funnel, self.manifest["output"]
        figures = [("documents read", f"{funnel.documents:,}")]
        for name, count in (("removed", funnel.documents - funnel.kept), ("kept", funnel.kept)):
            figures.append((f"{name}, {percent(count / max(funnel.documents, 1))}", f"{count:,}"))
        facts = [("recipe", recipe["name"]), ("digest", self.manifest["digest"])]
        facts.append((output["format"], RESULTS[output["format"]].summary(output)))
        about = f'<p class="about">{escape(recipe["about"])}</p>' if recipe["about"] else ""
        name = recipe["card"]["pretty_name"] or recipe["name"]
        tiles_shown, facts_shown = facts_list(figures, "tiles"), facts_list(facts, "facts")
        return f"<h1><bdi>{escape(name)}</bdi></h1>{about}{tiles_shown}{facts_shown}"

    def _reasons(self) -> str:
        places: dict[tuple[str, str], int] = {}
        for number, document in enumerate(self.removed):
            places.setdefault((document.reason.stage or "", document.reason.rule or ""), number)
        return reason_table(self._funnel, places)

    def _removed(self) -> str:
        if not len(self.removed):
            left = self.removed.removed or self._funnel.documents - self._funnel.kept
            said = "The ledger of the run is missing." if left else "No document was removed."
            return f'<p class="empty">{said}</p>'
        note = f'<p class="note">{escape(self.removed.note)}</p>' if self.removed.note else ""
        said = self.removed.summary()
        items = "".join(_document(number, document) for number, document in enumerate(self.removed))
        return (
            f"<p>{escape(said[:1].upper() + said[1:])}. Marks show the matched text.</p>{note}"
            f'{read_template("report_filter.html")}<div id="removed-list">{items}</div>'
        )

    def _pages(self) -> str:
        said = "" if self.no_pages is None else f'<p class="note">No pages: {escape(self.no_pages)}.</p>'
        if self.pages:
            said = (
                "<p>The first kept and removed pages at the beginning of the source. Marked blocks are those that "
                "<code>extract_text</code> keeps; the number is the probability that a block is content.</p>"
            )
        return said + "".join(_page(each, is_open=not number) for number, each in enumerate(self.pages))

    def _places(self) -> str:
        analysis = self._analysis
        hosts = [host for host in _hosts(self.removed) if host]
        domains = domain_table(analysis, hosts, whole=len(self.removed) == self.removed.removed)
        others = [each for each in analysis.place_tables() if each.columns[0].title != "domain"]
        counted = [("of kept documents", each) for each in others]
        counted += [("counted by stages", each) for each in value_tables(self._funnel)]
        tables = "".join(
            f"<section><h3>{escape(each.columns[0].title.capitalize())} {where}</h3>{drawn(each)}</section>"
            for where, each in counted
        )
        parts = [domains, f'<div class="columns">{tables}</div>' if tables else ""]
        return "".join(parts) or '<p class="empty">The documents have neither URLs nor languages.</p>'

    def _recipe(self) -> str:
        recipe = yaml.safe_dump(self.manifest["recipe"], sort_keys=False, allow_unicode=True, width=100)
        versions = facts_list(self.manifest["versions"].items())
        shown = escape(shortened(recipe, LONGEST_RECIPE))
        return (
            "<p>The same recipe over the same input gives the same bytes:</p>"
            '<pre class="command">longcrawl run recipe.yaml --out FOLDER</pre>'
            f"<details><summary>recipe.yaml</summary><pre>{shown}</pre></details>"
            f"<details><summary>Versions</summary>{versions}</details>"
        )

    def _data(self) -> str:
        """Return the filter values for the script, as JSON that cannot begin or end a tag or comment."""
        removed = [
            {"stage": one.reason.stage, "rule": one.reason.rule, "domain": host or "", "language": one.language or ""}
            for one, host in zip(self.removed, _hosts(self.removed), strict=True)
        ]
        return json.dumps({"removed": removed}, separators=(",", ":")).translate(SCRIPT_ESCAPES)


def _document(number: int, document: RemovedDocument) -> str:
    reason = document.reason
    heading = (
        f"<b>{named(reason.rule)}</b> "
        f'<span class="value">{escape(shortened(brief(reason), 60))}</span> '
        f'<span class="opening" dir="auto">{escape(document.opening or reason.id)}</span>'
    )
    note = f'<p class="note">{escape(shortened(document.note, 1_000))}</p>' if document.note else ""
    text = text_block(document.passages, "Text") if document.passages else ""
    return (
        f'<details class="document" id="removed-{number}"><summary>{heading}</summary>'
        f"{facts_list(document.facts())}{note}{text}</details>"
    )


MOST_BLOCKS, LONGEST_BLOCK = 200, 300
"""Most blocks shown of a page, and most characters of one."""


def _page(sample: SamplePage, *, is_open: bool) -> str:
    reason, blocks = sample.reason, sample.blocks.blocks
    lines = "".join(
        f'<span class="block{" in" if block.kept else ""}" title="{"kept" if block.kept else "removed"}, '
        f'{block.chance:.2f}">{escape(line)}</span>'
        for block, line in list(zip(blocks, sample.blocks.lines(LONGEST_BLOCK), strict=True))[:MOST_BLOCKS]
    )
    more = f"<em>… {len(blocks) - MOST_BLOCKS:,} more blocks</em>" if len(blocks) > MOST_BLOCKS else ""
    shown = f'<pre dir="auto" tabindex="0" role="group" aria-label="Blocks">{lines}{more}</pre>' if blocks else ""
    fate, rule = ("removed", named(reason.rule)) if reason.stage is not None else ("kept", "")
    heading = (
        f'<b>{fate}</b> <span class="value">{rule}</span> '
        f'<span class="opening">{escape(shortened(sample.blocks.summary(), 90))}</span>'
    )
    facts = facts_list(RemovedDocument(reason, sample.url).facts())
    opened = " open" if is_open else ""
    return f'<details class="cluster"{opened}><summary>{heading}</summary>{facts}{shown}</details>'


def _hosts(removed: RemovedDocuments) -> list[str | None]:
    urls = pa.chunked_array([pa.array([document.url for document in removed], pa.string())])
    hosts: list[str | None] = url_hosts(urls).to_pylist()
    return hosts


def _input_notes(manifest: Mapping[str, Any]) -> list[Limit]:
    rules = ", ".join(f"{rule} {count:,}" for rule, count in manifest["left_out"].items())
    left_out = [Limit("Records that the source excluded, by rule: ", rules)] * bool(rules)
    encodings = ", ".join(f"{name} {count:,}" for name, count in manifest.get("encodings", {}).items())
    left_out += [Limit("Decoded files or pages, by encoding: ", encodings)] * bool(encodings)
    broken = [Limit("Not read completely: ", f"{bad['file']}: {bad['reason']}") for bad in manifest["bad_files"]]
    return [*left_out, *(broken or [Limit("All input files were read completely.")])]


def _policy(style: str, script: str) -> str:
    scripts, styles = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (script, style))
    return (
        f"default-src 'none'; script-src 'sha256-{scripts}'; style-src 'sha256-{styles}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


REPORT = "report.html"
ELSEWHERE = "choose another file with --out"
CLUSTERS = 20
OWN_FILES = frozenset({MANIFEST, PLAN, CARD, "recipe.yaml"})
OWN_FOLDERS = frozenset({WORK, LEDGER, EDITS, *QUEUES, TOKEN_TABLES, "index", PICTURE_FOLDER})
"""Folders of a run beside those that its manifest names."""


def write_report(
    run: str | Path, out: str | Path | None = None, per_rule: int = 5, most: int = 200, most_clusters: int = CLUSTERS
) -> Path | str:
    """Write a report of a run as one HTML file, which needs no network and runs no script but its own.

    Texts of removed documents are read again from the run's source; if that is missing, the page has a note. An
    existing report or an empty file is replaced, but no other file.

    Args:
        run: the folder of a finished run, or its URL.
        out: path of the report, or None for ``report.html`` in the run's folder or store. Missing folders are created.
        per_rule: removed documents to show per rule.
        most: most removed documents to show in total.
        most_clusters: most clusters to show.

    Returns:
        Path of the file, or its URL.

    Raises:
        RunError: the run is not finished, its manifest is incomplete, or ``out`` belongs to something else.
        LedgerError: a number is less than 1, or the ledger is damaged.
    """
    with open_run(run, LEDGER) as folder:
        bring(folder / REPORT)
        target = folder / REPORT if out is None else Path(out)
        manifest = read_manifest(folder)
        place = _place(target, folder, manifest)
        # A page from the manifest alone finds an invalid manifest before the ledger is read.
        with unreadable(folder / MANIFEST, RunError, "run the recipe again in another folder"):
            ReportPage(manifest, RemovedDocuments((), 0), Clusters((), 0, 0)).html()
        removed, found = removed_documents(folder, per_rule, most), clusters(folder, most=most_clusters)
        page = ReportPage(manifest, removed, found, *sample_pages(folder)).html()
        with writing(target, RunError, ELSEWHERE):
            write_text(place, page)
        return url_of(target) or target


def _place(target: Path, run: Path, manifest: Mapping[str, Any]) -> Path:
    """Return the resolved path of the report after checking that it can be written and may be replaced."""
    check_writable(target, ", or choose another file with --out")
    with writing(target, RunError, ELSEWHERE):
        with suppress(FileNotFoundError):
            target.stat()  # fails where links lead in a circle
        place = target.resolve()
        _check_not_of_run(target, place, run.resolve(), manifest)
        fix = f"it is not a report, {ELSEWHERE}, or remove it"
        check_target(target, RunError, fix, example=REPORT, replaces=_is_report_or_empty)
        above = next(each for each in place.parents if each.exists())
        with tempfile.TemporaryFile(dir=above):
            return place


def _check_not_of_run(target: Path, place: Path, run: Path, manifest: Mapping[str, Any]) -> None:
    """Reject a path that is a file of the run or is inside one of its folders."""
    if not place.is_relative_to(run):
        return
    inside = place.relative_to(run)
    folders = {name.partition("/")[0] for name in manifest["files"] if "/" in name} | OWN_FOLDERS
    if inside.as_posix() in {*manifest["files"], *OWN_FILES} or (inside.parts[:1] and inside.parts[0] in folders):
        raise RunError(f"{target} belongs to the run: choose another file, such as {run / REPORT}")


def _is_report_or_empty(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        begin = opened.read(LONGEST_HEAD)
    head = begin.lstrip().partition(b"<style>")[0]
    return not begin or (head.startswith(b"<!DOCTYPE html>") and TITLE in head)
