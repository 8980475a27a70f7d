"""Ledgers of removals and edits, and queries on them: reasons, edits, contamination and clusters of duplicates.

The ledger has one row per removed document, the edit ledger one per changed place.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.batches import forget_pages
from longcrawl.core.counts import TAG, EditCounts, RuleEdits
from longcrawl.core.display import Column, Table, Tabular, counted, figure
from longcrawl.core.places import (
    EDIT_SCHEMA,
    PAGE_EDIT_SCHEMA,
    PAGE_PLACE_SCHEMA,
    edit_rows,
    leaves_text,
    list_by_document,
)
from longcrawl.core.stages import REMOVAL_SCHEMA, VERDICT_SCHEMA, Stage, document_ids, first_failure
from longcrawl.core.word_diff import WordDiff, diff_words
from longcrawl.errors import LedgerError, as_lines, one_line, quoted, unreadable
from longcrawl.io.files import remove, whole_file
from longcrawl.io.stored_tables import DAMAGED, chosen_rows, scan_tables, table_writer

if TYPE_CHECKING:
    import pyarrow.dataset as pads
    from datasets import Dataset


ROWS = 1 << 16
"""Rows collected in memory for one row group, about 10 MB."""

ENCODING: dict[str, Any] = {
    "use_dictionary": [field.name for field in EDIT_SCHEMA if field.type == pa.string()],
    "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in EDIT_SCHEMA if field.type == pa.int64()},
    "write_statistics": ["id", "also_id"],
}
"""Parquet options of the edit ledger: offsets rise within a document, and only id columns are searched."""

MOST_COUNTED = 20_000_000
"""Maximum number of rows of a ledger in which repeated spans are counted, as their ids are held in memory."""

_VERDICT = "verdict of this edit: "
_PLACES = "places of this edit"
"""Temporary columns of a crawl's documents, until their contents are moved to the ledgers."""


@dataclass(frozen=True)
class TextEdit:
    """A place that a stage changed in a document, see :data:`longcrawl.core.places.PAGE_EDIT_SCHEMA`."""

    stage: str
    rule: str
    unit: str
    start: int
    end: int
    replaced_by: int = 0
    also_id: str | None = None
    """A document with the same text, perhaps this one."""
    also_place: tuple[int, int] | None = None
    """Start and end of the changed place in that document, or None if it contains no whole character."""
    page: int | None = None
    """Page of the file, from 1, if the place is in none of the texts."""
    text: str | None = None
    """Text removed from this page, or None for a whole page."""

    @property
    def removed(self) -> int:
        """Decrease in characters or tokens."""
        return self.end - self.start - self.replaced_by

    def __str__(self) -> str:
        if self.page is not None:
            return f"{self.rule} on page {self.page:,}{'' if self.text is None else f' {quoted(self.text)}'}"
        replaced = f", replaced by {self.replaced_by:,}" if self.replaced_by and not leaves_text(self.rule) else ""
        also = "" if self.also_id is None else f", also in {self.also_id}"
        at = "" if self.also_place is None else " at {:,}-{:,}".format(*self.also_place)
        return f"{self.rule} {self.start:,}-{self.end:,}{replaced}{also}{at}"


class RepeatedSpan(NamedTuple):
    """A span of a document that shares its beginning with other spans."""

    stage: str
    id: str
    place: tuple[int, int] | None
    """Start and end, or None if the span contains no whole character."""
    others: int


def count_edits(places: pa.Table) -> EditCounts | None:
    """Count the edits in the places of one batch, ``PLACE_SCHEMA``; return None if there are none."""
    if not places.num_rows:
        return None
    touched = pc.subtract(places["end"], places["start"])
    columns = {"rule": places["rule"], "touched": touched, "removed": pc.subtract(touched, places["replaced_by"])}
    sums = pa.table(columns).group_by("rule").aggregate([("rule", "count"), ("touched", "sum"), ("removed", "sum")])
    names = ("rule_count", "touched_sum", "removed_sum")
    rules = {row["rule"]: RuleEdits(*(row[name] for name in names)) for row in sums.to_pylist()}
    documents = pc.count_distinct(places["document"]).as_py()
    return EditCounts(documents, places["unit"][0].as_py(), dict(sorted(rules.items())))


def find_edits(edits: "pads.Dataset", document: str) -> tuple[TextEdit, ...]:
    """Return the edits of one document, stage by stage, each with another place of the same text if known."""
    rows = chosen_rows(edits, pc.field("id") == document).to_pylist()
    found = _places_of(edits, {row["also_id"] for row in rows if row["also_id"] is not None})
    names = ("stage", "rule", "unit", "start", "end", "replaced_by", "also_id")
    return tuple(
        TextEdit(
            **{name: row[name] for name in names},
            page=row.get("page"),
            text=row.get("text"),
            also_place=found.get((row["stage"], row["also_id"], row["also_span"])),
        )
        for row in rows
    )


def repeated_spans(edits: "pads.Dataset", most: int) -> list[RepeatedSpan]:
    """Return the ``most`` spans with the most repeats, most first; none if the ledger exceeds ``MOST_COUNTED`` rows."""
    if edits.count_rows() > MOST_COUNTED:
        return []
    rows = edits.to_table(["stage", "id", "span", "also_id", "also_span"], filter=pc.field("also_id").is_valid())
    itself = pc.and_(pc.equal(rows["id"], rows["also_id"]), pc.equal(rows["span"], rows["also_span"]))
    names = ["stage", "also_id", "also_span"]
    counts = rows.filter(pc.invert(itself)).group_by(names).aggregate([([], "count_all")])
    order = [("count_all", "descending"), *((name, "ascending") for name in names)]
    chosen = counts.sort_by(order)[:most].to_pylist()
    places = _places_of(edits, {row["also_id"] for row in chosen})
    keys = [(row["stage"], row["also_id"], row["also_span"]) for row in chosen]
    return [
        RepeatedSpan(key[0], key[1], places.get(key), row["count_all"]) for key, row in zip(keys, chosen, strict=True)
    ]


def _places_of(edits: "pads.Dataset", documents: set[str]) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Return start and end of the spans of some documents, by stage, document and number."""
    if not documents:
        return {}
    chosen = pc.field("id").isin(sorted(documents)) & pc.field("span").is_valid()
    rows = chosen_rows(edits, chosen, ["stage", "id", "span", "start", "end"]).to_pylist()
    return {(row["stage"], row["id"], row["span"]): (row["start"], row["end"]) for row in rows}


def describe_edits(edits: Sequence[TextEdit]) -> list[str]:
    """Describe the edits of a document with one line per stage: how much it changed, and where."""
    lines = []
    for stage, group in groupby(edits, key=lambda edit: edit.stage):
        places = list(group)
        removed, unit = sum(place.removed for place in places), places[0].unit
        shown = "; ".join(map(str, places[:LISTED]))
        more = f"; and {len(places) - LISTED:,} more" if len(places) > LISTED else ""
        count = counted(len(places), "place")
        tagged = all(place.rule.startswith(TAG) for place in places)
        done = f"tagged {count}" if tagged else f"changed {count}, {removed:,} {unit} cut"
        lines.append(f"{stage} {done}: {shown}{more}")
    return lines


@contextmanager
def edit_writer(path: Path, schema: pa.Schema = EDIT_SCHEMA) -> Iterator[Callable[[pa.Table], None]]:
    """Provide a function that adds the edits of a batch to a file, published whole or, without edits, not at all.

    They are written in row groups of about ``ROWS`` rows. Columns of the schema that a batch lacks are null.
    """
    waiting, written = list[pa.Table](), list[pq.ParquetWriter]()
    with ExitStack() as files:

        def flush() -> None:
            if not written:
                beside = files.enter_context(whole_file(path))
                written.append(files.enter_context(table_writer(beside, schema, **ENCODING)))
            rows = pa.concat_tables([schema.empty_table(), *waiting], promote_options="default")
            written[0].write_table(rows.combine_chunks())
            waiting.clear()

        def add(edits: pa.Table) -> None:
            waiting.append(edits)
            if sum(table.num_rows for table in waiting) >= ROWS:
                flush()

        yield add
        if waiting:
            flush()
    if not written:  # a stopped attempt may have left a file
        remove(path)


class Edits(NamedTuple):
    """The edits that one stage made in all documents, ``EDIT_SCHEMA`` or ``PAGE_EDIT_SCHEMA``."""

    table: pa.Table
    counts: EditCounts | None


NO_EDITS = Edits(EDIT_SCHEMA.empty_table(), None)


def trace_batch(stage: Stage, table: pa.Table) -> pa.Table:
    """Apply a stage to a batch; return all documents with temporary columns for their verdicts and changed places."""
    documents, checks, places = stage.trace(table)
    documents = forget_pages(table, documents)
    if stage.judges:
        document_ids(documents, stage.name)
        verdicts = first_failure(documents.num_rows, checks)
        for name in VERDICT_SCHEMA.names:
            documents = documents.append_column(_VERDICT + name, verdicts[name])
    columns = {name: places[name].combine_chunks() for name in places.column_names[1:]}
    return documents.append_column(_PLACES, list_by_document(places["document"].to_numpy(), columns, table.num_rows))


def split_traced(data: "Dataset", label: str) -> tuple["Dataset", pa.Table | None, Edits]:
    """Separate all documents from the temporary columns of :func:`trace_batch`.

    Return them, their verdicts (``VERDICT_SCHEMA``; None for a rewrite, which removes nothing), and the edits.
    """
    if _PLACES not in data.column_names:  # a dataset without any column
        return data, None, NO_EDITS
    beside = [_VERDICT + name for name in VERDICT_SCHEMA.names if _VERDICT + name in data.column_names]
    verdicts = _rows(data, beside).rename_columns(VERDICT_SCHEMA.names) if beside else None
    lists = _rows(data, [_PLACES])[_PLACES].combine_chunks()
    edits = NO_EDITS
    if len(found := lists.flatten()):
        fields = [PAGE_PLACE_SCHEMA.field(field.name) for field in found.type]
        schema = pa.schema([PAGE_PLACE_SCHEMA.field("document"), *fields])
        columns = [pc.list_parent_indices(lists), *(found.field(field.name) for field in fields)]
        places = pa.table(
            [pc.cast(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )
        named = _rows(data, [name for name in ("id",) if name in data.column_names])
        edits = Edits(edit_rows(named, places, label), count_edits(places))
    return data.remove_columns([*beside, _PLACES]), verdicts, edits


def _rows(data: "Dataset", columns: list[str]) -> pa.Table:
    return data.select_columns(columns).with_format("arrow")[:]


_COUNTS = ("documents", "passages", "characters")
CONTAMINATION_SCHEMA = pa.schema(
    [("stage", pa.string()), ("evaluation_set", pa.string()), *((name, pa.int64()) for name in ("item", *_COUNTS))]
)
"""Schema of contamination: one row per found item, which is a row of the evaluation set, from 0."""

_SHOWN = 10
_ITEM = r"(?s)^(?P<set>.*)#(?P<row>\d+)$"


@dataclass(frozen=True, repr=False)
class Contamination(Tabular):
    """Evaluation items found in documents; prints as a table with a row for each evaluation set."""

    table: pa.Table
    """``CONTAMINATION_SCHEMA``, sorted by stage, evaluation set and item."""
    documents: pa.Table
    """``stage``, ``evaluation_set`` and the number of ``documents`` with at least one of its items."""
    looked_for: tuple[str, ...] = ()
    """A note on the number of items of each evaluation set, including those without any match."""

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the evaluation sets and one of the items found in the most documents."""
        if not self.table.num_rows:
            return (Table([Column("no document contains an item of an evaluation set")], [], notes=self.looked_for),)
        keys = ["stage", "evaluation_set"]
        sums = self.table.group_by(keys, use_threads=False).aggregate(
            [("item", "count"), ("passages", "sum"), ("characters", "sum")]
        )
        joined = sums.join(self.documents, keys).sort_by([(key, "ascending") for key in keys])
        names = [*keys, "item_count", "documents", "passages_sum", "characters_sum"]
        titles = [Column("stage"), Column("evaluation set", "name")]
        titles += [Column(name, "count") for name in ("items found", *_COUNTS)]
        rows = [[row[name] for name in names] for row in joined.to_pylist()]
        return (Table(titles, rows, notes=self.looked_for), self._most())

    def _most(self) -> Table:
        order = [("documents", "descending"), ("evaluation_set", "ascending"), ("item", "ascending")]
        rows = [
            [f"{row['evaluation_set']}#{row['item']}", row["documents"], row["characters"]]
            for row in self.table.sort_by(order).slice(0, _SHOWN).to_pylist()
        ]
        more = self.table.num_rows - _SHOWN
        notes = [f"and {more:,} more, in .table"] if more > 0 else []
        return Table(
            [Column("item", "name"), Column("documents", "count"), Column("characters", "count")], rows, "", notes
        )


def count_contamination(edits: "pads.Dataset", looked_for: Sequence[str] = ()) -> Contamination:
    """Count the passages of evaluation items in an edit ledger; ``looked_for`` are notes on the evaluation sets."""
    of_items = pc.field("also_id").is_valid() & pc.field("also_span").is_null()
    rows = edits.to_table(["stage", "id", "start", "end", "also_id"], filter=of_items)
    named = pc.extract_regex(rows["also_id"], _ITEM)
    found = pa.table(
        {
            "stage": rows["stage"],
            "evaluation_set": pc.struct_field(named, "set"),
            "item": pc.cast(pc.struct_field(named, "row"), pa.int64()),
            "id": rows["id"],
            "characters": pc.subtract(rows["end"], rows["start"]),
        }
    )
    keys = ["stage", "evaluation_set", "item"]
    counts = found.group_by(keys, use_threads=False).aggregate(
        [("id", "count_distinct"), ([], "count_all"), ("characters", "sum")]
    )
    table = counts.select([*keys, "id_count_distinct", "count_all", "characters_sum"]).rename_columns(
        CONTAMINATION_SCHEMA.names
    )
    by_set = found.group_by(keys[:2], use_threads=False).aggregate([("id", "count_distinct")])
    return Contamination(
        table.cast(CONTAMINATION_SCHEMA).sort_by([(key, "ascending") for key in keys]),
        by_set.rename_columns([*keys[:2], "documents"]),
        tuple(looked_for),
    )


LEDGER_SCHEMA = REMOVAL_SCHEMA.insert(1, pa.field("stage", pa.string()))
"""Schema of the ledger: one row per removed document.

``rule`` compared ``value`` with ``threshold``; ``kept_id`` is the document that a duplicate duplicates."""

DUPLICATE_IDS = "duplicate_ids"
"""Stage label of documents removed for a repeated id, see :mod:`longcrawl.run.part`."""

EARLIER = r"^(seen_before|near_duplicate_of_earlier)(_\d+)?$"
"""Pattern of rules whose ``kept_id`` is in an earlier dataset; a document of this dataset may have the same id."""


@dataclass(frozen=True)
class Reason:
    """The reason why a document was removed; ``stage`` is None if it was kept."""

    id: str
    stage: str | None = None
    rule: str | None = None
    value: float | None = None
    threshold: float | None = None
    kept_id: str | None = None
    edits: tuple[TextEdit, ...] = ()
    """Edits of the document, also those before it was removed."""
    kept: "Reason | None" = None
    """Why the document ``kept_id`` was removed later, see :func:`follow`; None if it was kept or not looked up."""
    copies: int = 0
    """Number of later documents with this id that the run left out."""

    @property
    def leads_on(self) -> bool:
        """Whether it is a duplicate of a document in the same dataset, which a later stage may have removed."""
        return self.kept_id is not None and re.match(EARLIER, self.rule or "") is None

    @property
    def fate(self) -> str:
        """Description of the decision without the document's id and edits. Other ids in it are not escaped."""
        return self._decision().removeprefix(f"{self.id}: ")

    def __str__(self) -> str:
        others = f"{counted(self.copies, 'further document')} of this id left out at {DUPLICATE_IDS}"
        return as_lines([self._decision(), *[others] * bool(self.copies), *describe_edits(self.edits)], "\n  ")

    __repr__ = __str__

    def _decision(self) -> str:
        if self.stage is None:
            return f"{self.id}: kept"
        decision = f"{self.id}: removed at {self.stage}, rule {self.rule}"
        if self.kept_id is not None:
            similarity = "" if self.value is None else f", similarity {self.value:.2f}"
            later = "" if self.kept is None else f", which was {self.kept.fate}"
            return f"{decision}: a duplicate of {self.kept_id}{similarity}{later}"
        if self.threshold is None:
            return decision
        return f"{decision}: {figure(self.value)} against {figure(self.threshold)}"


def entries(ids: pa.Array, verdicts: pa.Table, stage: str) -> pa.Table:
    """Return the ledger rows of a judged batch: one per document whose verdict has a rule."""
    removed = pc.is_valid(verdicts["rule"])
    gone = verdicts.filter(removed)
    rows = gone.num_rows
    kept_ids = gone["kept_id"] if "kept_id" in gone.column_names else pa.nulls(rows, pa.string())
    arrays = [pc.cast(ids, pa.string()).filter(removed), pa.array([stage] * rows, pa.string())]
    arrays += [gone["rule"], gone["value"], gone["threshold"], kept_ids]
    return pa.table(arrays, schema=LEDGER_SCHEMA)


def count_rules(ledger: pa.Table) -> dict[str, int]:
    """Count ledger rows by rule, sorted by name."""
    return dict(sorted(Counter(ledger["rule"].to_pylist()).items()))


def find_reason(ledger: "pads.Dataset", stages: Sequence[str], document: str) -> Reason | None:
    """Return why a document was removed, with the chain of documents it duplicates, or None if it was never removed."""
    rows = chosen_rows(ledger, pc.field("id") == document).to_pylist()
    found = [row for row in rows if row["stage"] != DUPLICATE_IDS]
    copies = len(rows) - len(found)
    if len(found) > 1:
        raise LedgerError(f"{len(found)} documents have the id {document!r}: ids must be unique to be explained")
    if not found:
        return Reason(document, copies=copies) if copies else None
    return follow(ledger, stages, [Reason(**found[0], copies=copies)])[0]


def follow(ledger: "pads.Dataset", stages: Sequence[str], reasons: Sequence[Reason]) -> list[Reason]:
    """Add to each reason the later removal of the document it names, and so on; ``stages`` are all labels in order."""
    named = sorted({reason.kept_id for reason in reasons if reason.kept_id is not None and reason.leads_on})
    if not named:
        return list(reasons)
    places = {stage: place for place, stage in enumerate(stages)}
    left_at = [places.get(reason.stage or "", -1) for reason in reasons]
    first = min(place for place, reason in zip(left_at, reasons, strict=True) if reason.leads_on)
    later = pc.field("id").isin(named) & pc.field("stage").isin(pa.array(stages[first + 1 :], pa.string()))
    found = follow(ledger, stages, [Reason(**row) for row in chosen_rows(ledger, later).to_pylist()])
    found.sort(key=lambda row: places[row.stage or ""])
    ends = []
    for place, reason in zip(left_at, reasons, strict=True):
        rows = [row for row in found if row.id == reason.kept_id and places[row.stage or ""] > place]
        ends.append(replace(reason, kept=rows[0]) if rows and reason.leads_on else reason)
    return ends


@contextmanager
def open_ledger(folder: Path, schema: pa.Schema = LEDGER_SCHEMA) -> Iterator["pads.Dataset"]:
    """Open the directory of a ledger as one dataset, without tables if nothing was removed; LedgerError if damaged."""
    with unreadable(f"the ledger {folder}", LedgerError, DAMAGED):
        yield scan_tables(sorted(folder.glob("*.parquet")), schema)


def edit_schema(stages: Iterable[Stage]) -> pa.Schema:
    """Return the schema of the edit ledger of a run with these stages."""
    return PAGE_EDIT_SCHEMA if any(stage.looks_at == "content" for stage in stages) else EDIT_SCHEMA


def number_rule(rule: str, number: int, of: int) -> str:
    """Return the name of a rule for the earlier dataset of this number, with a suffix if there are several."""
    return rule if of == 1 else f"{rule}_{number}"


LISTED, NAMED = 10, 5
"""Maximum number of places of a stage, and of removed documents of a cluster, that are printed."""
_PAGE = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:20em;overflow:auto;border:1px solid #999;padding:.6em"


@dataclass(frozen=True)
class Cluster:
    """A kept document and the documents removed as its duplicates, by one deduplication stage or several."""

    kept: Reason
    """The kept document, and why it was removed later, if it was."""
    removed: pa.Table
    """Ledger rows of the removed documents. The document ``kept_id`` that each duplicates may be removed itself."""
    earlier: bool = False
    """Whether the kept document is in an earlier dataset."""
    diff: WordDiff | None = None
    """Diff of the two documents of ``pair``, or None if their texts are not available."""

    @property
    def size(self) -> int:
        """Number of documents, including the kept one."""
        return len(self.removed) + 1

    @property
    def rules(self) -> dict[str, int]:
        """Number of removed documents by stage and rule, as ``"STAGE RULE"``."""
        counts = self.removed.group_by(["stage", "rule"], use_threads=False).aggregate([([], "count_all")])
        return {f"{row['stage']} {row['rule']}": row["count_all"] for row in counts.to_pylist()}

    @property
    def direct(self) -> pa.Table:
        """Rows of ``removed`` that duplicate the kept document itself, not a document that was removed later."""
        elsewhere = pc.match_substring_regex(self.removed["rule"], EARLIER)
        return self.removed.filter(
            pc.and_(pc.equal(self.removed["kept_id"], self.kept.id), pc.equal(elsewhere, self.earlier))
        )

    @property
    def similarity(self) -> tuple[float, float] | None:
        """Smallest and largest similarity to the kept document, or None if none was measured."""
        bounds = pc.min_max(self.direct["value"]).as_py()
        return None if bounds["min"] is None else (bounds["min"], bounds["max"])

    @property
    def pair(self) -> tuple[str, str] | None:
        """Ids to compare: the kept and the least similar removed document, or two removed ones, or None if too few."""
        direct = self.direct
        order = pc.sort_indices(direct, [("value", "ascending"), ("id", "ascending")])
        ids = direct["id"].take(order[:2]).to_pylist()
        if not self.earlier:
            return self.kept.id, ids[0]
        return (ids[0], ids[1]) if len(ids) > 1 else None

    def facts(self) -> list[str]:
        """Describe the cluster line by line: its size, rules and documents."""
        place = " of an earlier dataset" if self.earlier else ""
        fate = "" if self.kept.stage is None else f", which was later {self.kept.fate}"
        rules = ", ".join(f"{rule} {count:,}" for rule, count in self.rules.items())
        if self.similarity is not None:
            least, greatest = (f"{bound:.2f}" for bound in self.similarity)
            rules += f"; similarity {least}" + (f" to {greatest}" if greatest != least else "")
            by_way = self.removed.num_rows - self.direct.num_rows
            rules += f" ({by_way:,} others were duplicates of documents removed later)" if by_way else ""
        names = ", ".join(self._named(row) for row in self.removed[:NAMED].to_pylist())
        more = f" and {self.removed.num_rows - NAMED:,} more" if self.removed.num_rows > NAMED else ""
        facts = [f"{self.size:,} documents, kept {self.kept.id}{place}{fate}", f"by {rules}", f"removed: {names}{more}"]
        return [one_line(fact) for fact in facts]

    def _named(self, row: Mapping[str, Any]) -> str:
        """Name a removed document, with the document it duplicates and the similarity if that is not the kept one."""
        if row["kept_id"] == self.kept.id and Reason(**row).leads_on != self.earlier:
            return str(row["id"])
        similarity = "" if row["value"] is None else f", similarity {row['value']:.2f}"
        return f"{row['id']} (a duplicate of {row['kept_id']}{similarity})"

    def diff_heading(self) -> str:
        """Describe the compared texts and how much they differ; "" without a diff."""
        if self.diff is None or self.pair is None:
            return ""
        return one_line(f"{self.pair[0]} and {self.pair[1]}: {self.diff.summary()}")

    def _repr_html_(self) -> str:
        facts = "<br>".join(html.escape(fact) for fact in self.facts())
        if self.diff is None:
            return f"<p>{facts}</p>"
        difference = f"<div style='{_PAGE}'>{self.diff._repr_html_()}</div>" if self.diff.pieces else ""
        return f"<p>{facts}<br>{html.escape(self.diff_heading())}</p>{difference}"

    def __str__(self) -> str:
        lines = self.facts()
        if self.diff is not None:
            lines += [self.diff_heading(), f"  {self.diff}"] if self.diff.pieces else [self.diff_heading()]
        return "\n  ".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Clusters:
    """The largest clusters of duplicates, largest first: prints as text, and with coloured diffs in a notebook."""

    largest: tuple[Cluster, ...]
    count: int
    removed: int
    note: str | None = None
    """Reason why diffs are missing."""

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.largest)

    def __len__(self) -> int:
        return len(self.largest)

    def __getitem__(self, number: int) -> Cluster:
        return self.largest[number]

    def compared(self) -> list[str]:
        """Return the ids of the documents whose texts :meth:`with_texts` compares."""
        return sorted({document for cluster in self.largest for document in cluster.pair or ()})

    def with_texts(self, texts: Mapping[str, str], note: str | None = None) -> "Clusters":
        """Add diffs to the clusters for which ``texts`` has both texts; ``note`` is the reason why others lack one."""
        compared = []
        for cluster in self.largest:
            found = [texts[each] for each in cluster.pair or () if each in texts]
            compared.append(replace(cluster, diff=diff_words(found[0], found[1]) if len(found) > 1 else None))
        return replace(self, largest=tuple(compared), note=note)

    def summary(self) -> str:
        """Describe the number of clusters and of removed documents."""
        if not self.count:
            return "no clusters: no document was removed as a duplicate"
        clusters = counted(self.count, "cluster")
        shown = "" if len(self) == self.count else f"; the largest {len(self):,} of them"
        removed = f"{counted(self.removed, 'document')} {'was' if self.removed == 1 else 'were'} removed"
        return f"{clusters} of duplicates; {removed}{shown}"

    def __str__(self) -> str:
        parts = [self.summary(), *(f"{number}. {cluster}" for number, cluster in enumerate(self.largest, 1))]
        return "\n\n".join([*parts, *([one_line(self.note)] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{cluster._repr_html_()}</li>" for cluster in self.largest)
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{html.escape(self.summary())}</b></p><ol>{items}</ol>{note}"


def find_clusters(ledger: "pads.Dataset", stages: Sequence[str], stage: str | None = None, most: int = 10) -> Clusters:
    """Find the largest clusters of duplicates, of one ``stage`` or of all ``stages``, their labels in order.

    A document kept by one of these stages and removed as a duplicate by a later one joins the cluster of the later one.

    Raises:
        LedgerError: there is no such stage, or ``most`` is less than 1.
    """
    if stage is not None and stage not in stages:
        raise LedgerError(f"no stage {stage!r}; known: {', '.join(stages) or 'none'}")
    if most < 1:
        raise LedgerError(f"cannot show {most} clusters: ask for 1 or more")
    condition = pc.field("kept_id").is_valid()
    duplicates = ledger.to_table(filter=condition if stage is None else condition & (pc.field("stage") == stage))
    found = _follow(duplicates, stages)
    counts = found.group_by(["end", "earlier"], use_threads=False).aggregate([([], "count_all")])
    largest = counts.sort_by([("count_all", "descending"), ("end", "ascending"), ("earlier", "ascending")])[:most]
    later = ledger.to_table(filter=pc.field("id").isin(largest["end"].combine_chunks()))
    kept, members = [], []
    for one in largest.to_pylist():
        chosen = pc.and_(pc.equal(found["end"], one["end"]), pc.equal(found["earlier"], one["earlier"]))
        removed = found.filter(chosen).select(LEDGER_SCHEMA.names)
        kept.append(Reason(one["end"]) if one["earlier"] else _fate(one["end"], later, removed, stages))
        members.append((removed, one["earlier"]))
    ends = follow(ledger, stages, kept)
    clusters = tuple(Cluster(end, *rows) for end, rows in zip(ends, members, strict=True))
    return Clusters(clusters, counts.num_rows, duplicates.num_rows)


def _follow(duplicates: pa.Table, stages: Sequence[str]) -> pa.Table:
    """Add the ``end`` of each chain of duplicates, and whether it is ``earlier``; the last stage is first."""
    known = LEDGER_SCHEMA.append(pa.field("end", pa.string())).append(pa.field("earlier", pa.bool_())).empty_table()
    for stage in reversed(stages):
        rows = duplicates.filter(pc.equal(duplicates["stage"], stage)).sort_by("id")
        if not rows.num_rows:
            continue
        elsewhere = pc.match_substring_regex(rows["rule"], EARLIER)
        place = pc.if_else(elsewhere, None, pc.index_in(rows["kept_id"], value_set=known["id"]))
        rows = rows.append_column("end", pc.coalesce(known["end"].take(place), rows["kept_id"]))
        rows = rows.append_column("earlier", pc.coalesce(known["earlier"].take(place), elsewhere))
        known = pa.concat_tables([rows, known])
    return known


def _fate(document: str, ledger: pa.Table, removed: pa.Table, stages: Sequence[str]) -> Reason:
    """Return why a kept document was removed after the last of its duplicates, or that it was kept."""
    last = max(stages.index(stage) for stage in pc.unique(removed["stage"]).to_pylist())
    rows = ledger.filter(pc.equal(ledger["id"], document)).to_pylist()
    left = [row for row in rows if stages.index(row["stage"]) > last]
    return Reason(**left[0]) if left else Reason(document)
