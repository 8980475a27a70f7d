"""Samples of removed documents and duplicates, with marks where rules matched; their HTML is inert for any text."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.core.counts import LEDGER
from longcrawl.core.display import counted
from longcrawl.core.funnel import Funnel
from longcrawl.core.ledger import DUPLICATE_IDS, LEDGER_SCHEMA, Cluster, Clusters, Reason, follow, open_ledger
from longcrawl.core.stages import Stage, label_stages
from longcrawl.core.word_diff import DiffPiece, diff_words
from longcrawl.errors import LedgerError, LongCrawlError, as_lines, one_line, shortened
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.publish.reread import source_documents
from longcrawl.run.manifest import open_run, read_manifest
from longcrawl.run.recipe import load_recipe
from longcrawl.text import UrlFilter, explain
from longcrawl.text.explain import Explanation, SeenText

SHOWN, OPENING, AROUND, LONGEST = 2_400, 300, 160, 800
"""Characters shown of a text, of its beginning if it has marks, on either side of a place, and of a place, at most."""
MOST_PLACES = 300

_MARKUP = {
    "same": "{}",
    "marked": "<mark>{}</mark>",
    "removed": "<del>{}</del>",
    "added": "<ins>{}</ins>",
    "left out": "<em> [… {} …] </em>",
}
_HARMLESS = {
    **dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF], 0xFFFD),
    **{control: 0x2400 + control for control in range(32) if control not in b"\t\n"},
    0x7F: 0x2421,
}


class Place(NamedTuple):
    """A span that a rule matched, or that an edit removed, with its replacement."""

    begin: int
    end: int
    kind: Literal["marked", "removed"] = "marked"
    added: str | None = None


def passages(text: str, places: Iterable[Place] = ()) -> Iterator[DiffPiece]:
    """Yield a short text as a whole, or the beginning of a long one and the text around its first places.

    >>> [passage.text for passage in passages("Buy now! Buy now!", [Place(0, 8), Place(9, 17)])]
    ['Buy now!', ' ', 'Buy now!']
    """
    chosen = sorted(place for place in places if place.begin < place.end)[:MOST_PLACES]
    reached = 0
    for begin, end in _windows(len(text), chosen):
        if begin > reached:
            yield DiffPiece("left out", f"{begin - reached:,} characters")
        yield from _inside(text, begin, end, chosen)
        reached = end
    if reached < len(text):
        yield DiffPiece("left out", f"{len(text) - reached:,} characters")


def _windows(length: int, places: Sequence[Place]) -> list[tuple[int, int]]:
    if length <= SHOWN:
        return [(0, length)]
    windows = [(0, OPENING if places else SHOWN)]
    left = SHOWN - windows[0][1]
    for place in places:
        begin, end = max(0, place.begin - AROUND), min(length, place.end + AROUND, place.begin + LONGEST)
        first, last = windows[-1]
        begin = max(begin, last)
        if left <= 0 or begin >= end:
            continue
        end = min(end, begin + left)
        left -= end - begin
        windows[-1:] = [(first, end)] if begin == last else [(first, last), (begin, end)]
    return windows


def _inside(text: str, begin: int, end: int, places: Sequence[Place]) -> Iterator[DiffPiece]:
    at = begin
    for place in places:
        first, last = max(place.begin, at), min(place.end, end)
        if first >= last:
            continue
        if first > at:
            yield DiffPiece("same", text[at:first])
        yield DiffPiece(place.kind, text[first:last])
        if place.added is not None and last == place.end:
            yield DiffPiece("added", shortened(place.added, LONGEST))
        at = last
    if at < end:
        yield DiffPiece("same", text[at:end])


def as_html(pieces: Iterable[DiffPiece]) -> str:
    """Mark passages with ``mark``, ``del`` and ``ins``, without attributes."""
    return "".join(_MARKUP[piece.kind].format(escape(piece.text)) for piece in pieces)


def clean(text: str) -> str:
    r"""Replace characters that HTML or UTF-8 cannot represent, and invisible control characters.

    >>> clean("a\x00b\ud800")
    'a␀b\ufffd'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_HARMLESS)


def escape(text: object) -> str:
    """Escape text for use between two tags, or in an attribute between double quotes."""
    return html.escape(clean(str(text)))


def facts_list(facts: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """Return names and values as an HTML list, styled as lines (``facts``) or as ``tiles``."""
    said = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="{kind}">{said}</dl>'


def opening(text: str) -> str:
    """Return the first words on one line, up to 90 characters."""
    return shortened(" ".join(clean(text[:900]).split()), 90)


LONGEST_NAME = 300

_WORDS = "overflow-wrap:anywhere"
_PAGE = f"white-space:pre-wrap;{_WORDS};max-height:20em;overflow:auto;border:1px solid #999;padding:.6em"


@dataclass(frozen=True)
class RemovedDocument:
    """A removed document, with its reason and text."""

    reason: Reason
    url: str | None = None
    language: str | None = None
    opening: str = ""
    """First words, on one line."""
    passages: tuple[DiffPiece, ...] = ()
    """Text as the stage saw it, long ones in part; for a duplicate, the difference from the kept document."""
    note: str | None = None
    """Meaning of the marks, or the reason why there are none."""

    def facts(self) -> list[tuple[str, str]]:
        """Return the known facts as pairs of name and value."""
        known = [
            ("id", self.reason.id),
            ("stage", self.reason.stage),
            ("rule", self.reason.rule),
            ("value", measured(self.reason)),
            ("URL", self.url),
            ("language", self.language),
        ]
        return [(name, shortened(value, LONGEST_NAME)) for name, value in known if value]

    def __str__(self) -> str:
        return as_lines([self.reason, f"  {self.opening}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "<br>".join(f"{name}: {escape(value)}" for name, value in self.facts())
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        text = f"<pre dir='auto' style='{_PAGE}'>{as_html(self.passages)}</pre>" if self.passages else ""
        return f"<details><summary>{escape(self.reason)}</summary><p style='{_WORDS}'>{facts}</p>{note}{text}</details>"


@dataclass(frozen=True)
class RemovedDocuments:
    """A sample of the removed documents, some of each rule.

    It prints as a list in a terminal, and as texts with marks in a notebook.
    """

    documents: tuple[RemovedDocument, ...]
    """Documents in the order of stages, then by rule."""
    removed: int
    """Total number of removed documents."""
    note: str | None = None
    """Reason why texts are missing."""

    def __iter__(self) -> Iterator[RemovedDocument]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> RemovedDocument:
        return self.documents[number]

    def summary(self) -> str:
        """Describe the size and the choice of the sample."""
        if not self.removed:
            return "no document was removed"
        if len(self) == self.removed:
            return "1 document removed" if self.removed == 1 else f"all {self.removed:,} removed documents"
        return f"{len(self):,} of the {self.removed:,} removed documents, some of each rule, chosen by a hash of the id"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *map(str, self), *([one_line(self.note)] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{escape(self.summary())}</b></p>{note}" + "".join(each._repr_html_() for each in self)


def measured(reason: Reason) -> str:
    """Return the value and threshold, or the kept document of a duplicate; "" if nothing was measured.

    >>> measured(Reason("a", "min_words", "min_words", 12.0, 50.0))
    '12 against 50'
    """
    if reason.stage is None:
        return ""
    said = str(reason).removeprefix(one_line(f"{reason.id}: removed at {reason.stage}, rule {reason.rule}"))
    return said.removeprefix(": ")


def brief(reason: Reason) -> str:
    """Return the value and threshold, or the similarity of a duplicate, in a short form.

    >>> brief(Reason("a", "min_hash", "near_duplicate", 0.91234, None, "b"))
    'similarity 0.91'
    >>> brief(Reason("a", "gopher_quality", "max_bullet_lines", 0.912345, 0.9))
    '0.9123 against 0.9'
    """
    if reason.kept_id is not None:
        return "duplicate" if reason.value is None else f"similarity {reason.value:.2f}"
    if reason.threshold is None:
        return ""
    value = "unknown" if reason.value is None else _short(reason.value)
    return f"{value} against {_short(reason.threshold)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:.4g}"


MOST_CHARACTERS, LONGEST_STRETCH = 6_000, 1_000
"""Most characters shown of one difference, counted over both texts, and of one stretch of it."""
LONGEST_FACT = 600
LONGEST_CLUSTER_NAME = 200


def cluster_list(clusters: Clusters) -> str:
    """Return the largest clusters as HTML, each with its facts and the difference of two of its documents."""
    first = next((number for number, cluster in enumerate(clusters) if cluster.diff and cluster.diff.pieces), None)
    items = "".join(_cluster(cluster, is_open=number == first) for number, cluster in enumerate(clusters))
    note = f'<p class="note">{escape(clusters.note)}.</p>' if clusters.note else ""
    return f'<p>{escape(clusters.summary())}.</p>{note}<div id="clusters-list">{items}</div>'


def _cluster(cluster: Cluster, *, is_open: bool) -> str:
    size, by, left = cluster.facts()
    facts = [("kept", size.partition(", kept ")[2]), ("removed", left.removeprefix("removed: ")), ("by", by[3:])]
    said = facts_list((name, shortened(fact, LONGEST_FACT)) for name, fact in facts)
    heading = (
        f'<b>{cluster.size:,} documents</b> <span class="value">{escape(_how_alike(cluster))}</span> '
        f'<span class="opening">kept <bdi>{escape(shortened(cluster.kept.id, LONGEST_CLUSTER_NAME))}</bdi></span>'
    )
    opened = " open" if is_open else ""
    return f'<details class="cluster"{opened}><summary>{heading}</summary>{said}{_difference(cluster)}</details>'


def _how_alike(cluster: Cluster) -> str:
    if cluster.diff is not None and not cluster.diff.pieces:
        return cluster.diff.summary()
    if cluster.diff is not None:
        return counted(cluster.diff.differences, "difference")
    return "" if cluster.similarity is None else f"similarity {cluster.similarity[0]:.2f}"


def _difference(cluster: Cluster) -> str:
    if cluster.diff is None or cluster.pair is None:
        return '<p class="note">No texts to compare.</p>'
    pieces = list(_pieces(cluster))
    if not pieces:
        return f'<p class="note">{escape(shortened(cluster.diff_heading(), LONGEST_FACT))}.</p>'
    names = ["removed" if cluster.earlier else "kept", "removed"]
    sides = zip(names, cluster.pair, ("added", "removed"), strict=True)
    columns = "".join(
        f"<div><h4>{name} <bdi>{escape(shortened(document, LONGEST_CLUSTER_NAME))}</bdi></h4>"
        f"{text_block([each for each in pieces if each.kind != other], name)}</div>"
        for name, document, other in sides
    )
    said = f'<p class="note">Compared word by word: {escape(cluster.diff.summary())}.</p>'
    return f'{said}<div class="inline">{text_block(pieces, "both")}</div><div class="sides">{columns}</div>'


def text_block(pieces: Sequence[DiffPiece], name: str) -> str:
    """Return passages as an HTML block with keyboard focus and a name for screen readers."""
    return f'<pre dir="auto" tabindex="0" role="group" aria-label="{name}">{as_html(pieces)}</pre>'


def _pieces(cluster: Cluster) -> Iterator[DiffPiece]:
    left = MOST_CHARACTERS
    for piece in cluster.diff.pieces if cluster.diff is not None else ():
        if left <= 0:
            yield DiffPiece("left out", "more")
            return
        yield DiffPiece(piece.kind, shortened(piece.text, min(LONGEST_STRETCH, max(left, 2))))
        left -= min(len(piece.text), LONGEST_STRETCH)


Stages = Sequence[tuple[str, Stage]]
COLUMNS = ("url", "language", "signals", "duplicate")
"""Columns that rules use besides the text, if the source has them."""


def removed_documents(run: str | Path, per_rule: int = 5, most: int = 200) -> RemovedDocuments:
    """Choose up to ``per_rule`` documents removed by each rule of each stage, ``most`` in all, and mark what matched.

    The choice depends only on document ids. Texts are read again from the run's source.

    Raises:
        RunError: the run is not finished.
        LedgerError: a number is less than 1, or the ledger is damaged or from another run.
    """
    if min(per_rule, most) < 1:
        raise LedgerError(f"cannot show {per_rule} per rule and {most} in all: ask for 1 or more of each")
    with open_run(run, LEDGER) as folder:
        manifest = read_manifest(folder)
        funnel = Funnel.from_dict(manifest["funnel"])
        left = funnel.documents - funnel.kept
        with open_ledger(folder / LEDGER) as ledger:
            labels = [row.stage for row in funnel]
            reasons = follow(ledger, labels, _choose(ledger, folder, labels, per_rule, most))
            rows = ledger.count_rows()
        wanted = {document for reason in reasons for document in (reason.id, reason.kept_id) if document is not None}
        found, missing = source_documents(manifest, wanted, COLUMNS) if wanted else ({}, None)
        stages, broken = _stages(folder)
        documents = [_document(reason, found, stages) for reason in reasons]
        notes = []
        if rows != left:
            notes.append(
                f"The ledger has {rows:,} rows, but the funnel counts {left:,} removed documents, so documents and "
                "duplicates shown are from these rows only: longcrawl verify RUN lists missing and changed files."
            )
        notes += [f"Texts are missing: {missing}."] * bool(missing) + [f"No marks: {broken}."] * bool(broken)
        return RemovedDocuments(tuple(documents), max(rows, left), " ".join(notes) or None)


def _choose(ledger: pads.Dataset, run: Path, labels: Sequence[str], per_rule: int, most: int) -> list[Reason]:
    """Choose the rows of each stage and rule whose ids have the smallest hashes."""
    kept = LEDGER_SCHEMA.append(pa.field("hash", pa.uint64())).append(pa.field("rank", pa.int64())).empty_table()
    for batch in ledger.to_batches():
        rows = pa.table(batch)
        _check_rows(rows, run, labels)
        rows = rows.append_column("hash", pa.array(keyed_hash(rows["id"].to_pylist(), "report", 0)))
        kept = _ranked(pa.concat_tables([kept.drop_columns("rank"), rows]))
        kept = kept.filter(pc.less(kept["rank"], per_rule))
    chosen = kept.sort_by([("rank", "ascending"), ("hash", "ascending"), ("id", "ascending")])[:most]
    rows = sorted(chosen.to_pylist(), key=lambda row: (labels.index(row["stage"]), row["rule"], row["rank"]))
    return [Reason(**{name: row[name] for name in LEDGER_SCHEMA.names}) for row in rows]


def _check_rows(rows: pa.Table, run: Path, labels: Sequence[str]) -> None:
    if empty := [name for name in ("id", "stage", "rule") if rows[name].null_count]:
        raise LedgerError(f"the ledger of {run} has rows without {empty[0]}; longcrawl verify lists the problems")
    unknown = sorted(set(pc.unique(rows["stage"]).to_pylist()) - set(labels))
    if unknown:
        raise LedgerError(
            f"the ledger of {run} has documents removed at {unknown[0]!r}, a stage that the funnel of its manifest "
            "does not have; longcrawl verify lists the problems"
        )


def _ranked(rows: pa.Table) -> pa.Table:
    order = [(name, "ascending") for name in ("stage", "rule", "hash", "id")]
    ordered = rows.sort_by(order)
    groups = [ordered[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in ("stage", "rule")]
    begins = np.ones(len(ordered), bool)
    if len(ordered):
        begins[1:] = (np.diff(groups[0]) != 0) | (np.diff(groups[1]) != 0)
    places = np.arange(len(ordered))
    ranks = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ordered.append_column("rank", pa.array(ranks))


def _stages(folder: Path) -> tuple[Stages, str | None]:
    try:
        return load_recipe(folder / "recipe.yaml").stages, None
    except (LongCrawlError, OSError) as gone:
        return (), str(gone)


def _document(reason: Reason, found: dict[str, dict[str, Any]], stages: Stages) -> RemovedDocument:
    source = found.get(reason.id)
    if reason.stage == DUPLICATE_IDS:
        return RemovedDocument(reason, note="An earlier document has the same id.")
    if source is None:
        return RemovedDocument(reason)
    text, language = source["text"], source.get("language")
    if text is None:
        return RemovedDocument(reason, source.get("url"), language, note="The source has no text for it.")
    shown: tuple[DiffPiece, ...]
    note: str | None
    if reason.kept_id is not None and not reason.leads_on:
        shown, note = tuple(passages(text)), f"Duplicate of {reason.kept_id} in an earlier dataset."
    elif reason.kept_id is not None:
        kept = found.get(reason.kept_id)
        shown, note = _difference_of_texts(text, None if kept is None else kept["text"], reason)
    else:
        shown, note = _marked(source, reason, stages)
    return RemovedDocument(reason, source.get("url"), language, opening(text), shown, note)


def _difference_of_texts(text: str, kept: str | None, reason: Reason) -> tuple[tuple[DiffPiece, ...], str]:
    if kept is None:
        return tuple(passages(text)), "The text of the document that it duplicates is not available."
    difference = diff_words(kept, text)
    fate = "was kept" if reason.kept is None else f"was {reason.kept.fate}"
    note = f"Compared with {reason.kept_id}, which {fate}: {difference.summary()}."
    return difference.pieces or tuple(passages(text)), note


def _marked(source: Mapping[str, Any], reason: Reason, stages: Stages) -> tuple[tuple[DiffPiece, ...], str | None]:
    text: str = source["text"]
    labels = [label for label, _ in stages]
    if reason.stage not in labels:
        return tuple(passages(text)), None
    place = labels.index(reason.stage)
    stage = stages[place][1]
    # Earlier stages without edits did not change the text.
    seen = [each for _, each in stages[:place] if each.edits] + [stage]
    others = {name: source[name] for name in COLUMNS if name in source and name != "language"}
    try:
        if isinstance(stage, UrlFilter):
            return tuple(passages(text)), _of_url(stage, source.get("url"), reason.rule)
        explanation = explain(text, seen, source.get("language"), **others)
    except LongCrawlError as wrong:
        return tuple(passages(text)), f"Not marked: {wrong}"
    label = label_stages([each.name for each in seen])[-1]
    return _explained(explanation, label, reason.rule, text)


def _of_url(stage: UrlFilter, url: str | None, rule: str | None) -> str:
    matches = stage.matches(pa.table({"url": pa.array([url], pa.large_string())}))[0]
    found = next((each.matched for each in matches if each.rule == rule), None)
    return "The rule checks the URL." if not found else f"The rule checks the URL, and matched: {found}."


def _explained(
    explanation: Explanation, label: str, rule: str | None, text: str
) -> tuple[tuple[DiffPiece, ...], str | None]:
    seen = next((each for each in reversed(explanation.texts) if label in each.stages), None)
    if seen is None:
        why = next((each.reason for each in explanation.unexplained if each.stage == label), None)
        return tuple(passages(text)), None if why is None else f"Nothing is marked: {label} {why}."
    now = next((each for each in explanation.rules if (each.stage, each.rule) == (label, rule)), None)
    if now is None or now.verdict != "fails":
        return tuple(
            passages(seen.text)
        ), "Nothing is marked: with the source's current text, the document would be kept."
    places = _places(seen, label, rule)
    notes = ["The text is shown as edited by earlier stages."] if seen.text != text else []
    notes += [] if places else ["The rule applies to the text as a whole."]
    return tuple(passages(seen.text, places)), " ".join(notes) or None


def _places(seen: SeenText, label: str, rule: str | None) -> list[Place]:
    marks = [Place(*span) for each, spans in seen.marks if each.rule == rule and each.stage == label for span in spans]
    if marks or seen.edited_by != label:
        return marks
    return [Place(*span, "removed", change.after) for span, change in seen.changed_places()]
