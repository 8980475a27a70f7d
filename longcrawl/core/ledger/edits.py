"""Edit ledger: counts and places of changes inside kept documents, and of evaluation items found in them.

The edit ledger is a side table, one row per place (:data:`longcrawl.core.places.EDIT_SCHEMA`). Runs keep it under
``edits/``, one file per part, beside the ledger of removed documents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from longcrawl.core.display import Column, Table, Tabular, counted
from longcrawl.core.places import EDIT_SCHEMA, MASK, PLACE_SCHEMA, TAG, edit_rows, leaves_text
from longcrawl.core.stages import VERDICT_SCHEMA, Stage, document_ids, first_failure
from longcrawl.io.files import remove, whole_file
from longcrawl.io.stored_tables import table_writer

if TYPE_CHECKING:
    from datasets import Dataset


EDITS = "edits"
"""The folder of a run that holds its edit ledger."""

ROWS = 1 << 16
"""Rows that wait in memory for a row group: some 10 MB."""

ENCODING: dict[str, Any] = {
    "use_dictionary": [field.name for field in EDIT_SCHEMA if field.type == pa.string()],
    "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in EDIT_SCHEMA if field.type == pa.int64()},
    "write_statistics": ["id", "also_id"],
}
"""Offsets rise within a document, so their differences are small; ids alone are searched for."""

MOST_COUNTED = 20_000_000
"""Rows of a ledger in which repeated spans are counted: their ids are held in memory."""

LISTED = 10
"""So many places of one stage are printed."""

_VERDICT = "verdict of this edit: "
_PLACES = "places of this edit"
"""Columns beside the documents of a crawl, until what they hold is in the ledgers."""
_FIELDS = list(PLACE_SCHEMA)[1:]


class RuleEdits(NamedTuple):
    """What one rule of a stage changed."""

    places: int
    touched: int
    """Characters or tokens that were cut, replaced or masked."""
    removed: int
    """How many fewer there are now."""


@dataclass(frozen=True)
class EditCounts:
    """What one stage changed in documents, including documents removed at it or later."""

    documents: int
    """How many were changed."""
    unit: str
    """What is counted: "characters" or "tokens"."""
    rules: Mapping[str, RuleEdits]

    @property
    def removed(self) -> int:
        """How many characters or tokens fewer there are now."""
        return sum(rule.removed for rule in self.rules.values())

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; :meth:`from_dict` is the way back."""
        rules = {rule: counts._asdict() for rule, counts in self.rules.items()}
        return {"documents": self.documents, "unit": self.unit, "rules": rules}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EditCounts":
        """Read what :meth:`as_dict` returned."""
        rules = {
            rule: RuleEdits(counts["places"], counts["touched"], counts["removed"])
            for rule, counts in values["rules"].items()
        }
        return cls(values["documents"], values["unit"], rules)

    @property
    def masked(self) -> int:
        """How many characters stay, but no loss is to be computed on them."""
        return self.rules[MASK].touched if MASK in self.rules else 0

    @property
    def tagged(self) -> int:
        """How many characters stay, and are named."""
        return sum(counts.touched for rule, counts in self.rules.items() if rule.startswith(TAG))

    def __str__(self) -> str:
        if all(rule.startswith(TAG) for rule in self.rules):
            return f"{self.documents:,} tagged, {self.tagged:,} {self.unit}"
        cut = [f"{self.removed:,} {self.unit} cut"] if self.removed or not self.masked else []
        masked = [f"{self.masked:,} {self.unit} masked"] if self.masked else []
        return ", ".join([f"{self.documents:,} edited", *cut, *masked])


@dataclass(frozen=True)
class TextEdit:
    """One place that a stage changed in one document, see :data:`longcrawl.core.places.EDIT_SCHEMA`."""

    stage: str
    rule: str
    unit: str
    start: int
    end: int
    replaced_by: int = 0
    also_id: str | None = None
    """A document in which the same stands, too; it may be this one."""
    also_place: tuple[int, int] | None = None
    """Start and end of the place that the stage changed there, which holds it; None where no whole character is in."""

    @property
    def removed(self) -> int:
        """How many characters or tokens fewer there are now."""
        return self.end - self.start - self.replaced_by

    def __str__(self) -> str:
        replaced = f", replaced by {self.replaced_by:,}" if self.replaced_by and not leaves_text(self.rule) else ""
        also = "" if self.also_id is None else f", also in {self.also_id}"
        at = "" if self.also_place is None else " at {:,}-{:,}".format(*self.also_place)
        return f"{self.rule} {self.start:,}-{self.end:,}{replaced}{also}{at}"


class RepeatedSpan(NamedTuple):
    """A span of a document whose beginning other spans have, too."""

    stage: str
    id: str
    place: tuple[int, int] | None
    """None where no whole character is in the span."""
    others: int


def count_edits(places: pa.Table) -> EditCounts | None:
    """Count the places of one batch, ``PLACE_SCHEMA``; None where nothing changed."""
    if not places.num_rows:
        return None
    touched = pc.subtract(places["end"], places["start"])
    columns = {"rule": places["rule"], "touched": touched, "removed": pc.subtract(touched, places["replaced_by"])}
    sums = pa.table(columns).group_by("rule").aggregate([("rule", "count"), ("touched", "sum"), ("removed", "sum")])
    rules = {
        row["rule"]: RuleEdits(row["rule_count"], row["touched_sum"], row["removed_sum"]) for row in sums.to_pylist()
    }
    documents = pc.count_distinct(places["document"]).as_py()
    return EditCounts(documents, places["unit"][0].as_py(), dict(sorted(rules.items())))


def add_edits(counts: Iterable[EditCounts | None]) -> EditCounts | None:
    """Add what one stage changed in several batches or parts."""
    known = [each for each in counts if each is not None]
    if not known:
        return None
    rules: dict[str, RuleEdits] = {}
    for each in known:
        for rule, more in each.rules.items():
            before = rules.get(rule, RuleEdits(0, 0, 0))
            rules[rule] = RuleEdits(*(one + other for one, other in zip(before, more, strict=True)))
    return EditCounts(sum(each.documents for each in known), known[0].unit, dict(sorted(rules.items())))


def find_edits(edits: pads.Dataset, document: str) -> tuple[TextEdit, ...]:
    """Return what was changed in one document, in the order of the stages, each with where else the same stands."""
    rows = edits.to_table(filter=pc.field("id") == document).to_pylist()
    found = _places_of(edits, {row["also_id"] for row in rows if row["also_id"] is not None})
    return tuple(
        TextEdit(
            row["stage"],
            row["rule"],
            row["unit"],
            row["start"],
            row["end"],
            row["replaced_by"],
            row["also_id"],
            found.get((row["stage"], row["also_id"], row["also_span"])),
        )
        for row in rows
    )


def repeated_spans(edits: pads.Dataset, most: int) -> list[RepeatedSpan]:
    """Return the spans whose text most others begin with, in the order of their number; none of a very large ledger."""
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


def _places_of(edits: pads.Dataset, documents: set[str]) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Return where the spans of some documents stand, by stage, document and number."""
    if not documents:
        return {}
    chosen = pc.field("id").isin(sorted(documents)) & pc.field("span").is_valid()
    rows = edits.to_table(["stage", "id", "span", "start", "end"], filter=chosen).to_pylist()
    return {(row["stage"], row["id"], row["span"]): (row["start"], row["end"]) for row in rows}


def describe_edits(edits: Sequence[TextEdit]) -> list[str]:
    """Return one line per stage: how much it changed in a document, and where."""
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


class EditWriter:
    """Collects the edits of batches, and writes them in row groups of about ``ROWS``."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        self._path, self._files = path, files
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, edits: pa.Table) -> None:
        """Add the edits of one batch."""
        self._waiting.append(edits)
        if sum(table.num_rows for table in self._waiting) >= ROWS:
            self.flush()

    @property
    def empty(self) -> bool:
        """Whether nothing has been written so far."""
        return self._writer is None

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        if self._writer is None:
            beside = self._files.enter_context(whole_file(self._path))
            self._writer = self._files.enter_context(table_writer(beside, EDIT_SCHEMA, **ENCODING))
        self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting = []


@contextmanager
def edit_writer(path: Path) -> Iterator[EditWriter]:
    """Write a file of the edit ledger, whole or not at all; without edits there is none."""
    with ExitStack() as files:
        writer = EditWriter(path, files)
        yield writer
        writer.flush()
    if writer.empty:  # what a stopped attempt left, perhaps
        remove(path)


class Edits(NamedTuple):
    """What one stage changed in all documents."""

    table: pa.Table
    """``EDIT_SCHEMA``."""
    counts: EditCounts | None


NO_EDITS = Edits(EDIT_SCHEMA.empty_table(), None)


class Traced(NamedTuple):
    """What one stage made of all documents."""

    documents: "Dataset"
    """As many as came."""
    verdicts: pa.Table | None
    """``VERDICT_SCHEMA``; None for a rewrite, which removes nothing."""
    edits: Edits


def trace_batch(stage: Stage, table: pa.Table) -> pa.Table:
    """Change the documents of a batch; return as many as came, with columns for verdicts and places beside them."""
    documents, checks, places = stage.trace(table)
    if stage.judges:
        document_ids(documents, stage.name)
        verdicts = first_failure(documents.num_rows, checks)
        for name in VERDICT_SCHEMA.names:
            documents = documents.append_column(_VERDICT + name, verdicts[name])
    return documents.append_column(_PLACES, _beside(places, table.num_rows))


def split_traced(data: "Dataset", label: str) -> Traced:
    """Separate the documents from what :func:`trace_batch` put beside them."""
    if _PLACES not in data.column_names:  # a dataset without any column
        return Traced(data, None, NO_EDITS)
    beside = [_VERDICT + name for name in VERDICT_SCHEMA.names if _VERDICT + name in data.column_names]
    verdicts = _rows(data, beside).rename_columns(VERDICT_SCHEMA.names) if beside else None
    lists = _rows(data, [_PLACES])[_PLACES].combine_chunks()
    edits = NO_EDITS
    if len(found := lists.flatten()):
        columns = [pc.list_parent_indices(lists), *(found.field(field.name) for field in _FIELDS)]
        places = pa.table(
            [pc.cast(column, field.type) for column, field in zip(columns, PLACE_SCHEMA, strict=True)],
            schema=PLACE_SCHEMA,
        )
        named = _rows(data, [name for name in ("id",) if name in data.column_names])
        edits = Edits(edit_rows(named, places, label), count_edits(places))
    return Traced(data.remove_columns([*beside, _PLACES]), verdicts, edits)


def _beside(places: pa.Table, documents: int) -> pa.Array:
    """Return places as one list per document."""
    offsets = np.zeros(documents + 1, np.int64)
    np.cumsum(np.bincount(places["document"].to_numpy(), minlength=documents), out=offsets[1:])
    columns = [pa.concat_arrays([pa.array([], field.type), *places[field.name].chunks]) for field in _FIELDS]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=_FIELDS))


def _rows(data: "Dataset", columns: list[str]) -> pa.Table:
    return data.select_columns(columns).with_format("arrow")[:]


CONTAMINATION_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("evaluation_set", pa.string()),
        ("item", pa.int64()),
        ("documents", pa.int64()),
        ("passages", pa.int64()),
        ("characters", pa.int64()),
    ]
)
"""One row per item that was found: the row of its evaluation set, from 0, and how much of documents was of it."""

_SHOWN = 10


@dataclass(frozen=True, repr=False)
class Contamination(Tabular):
    """What documents had of evaluation sets; prints as a table with a row for each of them."""

    table: pa.Table
    """``CONTAMINATION_SCHEMA``, sorted by stage, evaluation set and item."""
    documents: pa.Table
    """``stage``, ``evaluation_set`` and how many ``documents`` had one of its items or several."""
    looked_for: tuple[str, ...] = ()
    """A sentence for each evaluation set, also for those of which nothing was found: how many items it has."""

    def tables(self) -> tuple[Table, ...]:
        """Return the evaluation sets as a table, and the items that most documents have as another one."""
        if not self.table.num_rows:
            return (Table([Column("no document had an item of an evaluation set")], [], notes=self.looked_for),)
        keys = ["stage", "evaluation_set"]
        sums = self.table.group_by(keys, use_threads=False).aggregate(
            [("item", "count"), ("passages", "sum"), ("characters", "sum")]
        )
        joined = sums.join(self.documents, keys).sort_by([(key, "ascending") for key in keys])
        names = [*keys, "item_count", "documents", "passages_sum", "characters_sum"]
        titles = [Column("stage"), Column("evaluation set", "name")]
        titles += [Column(name, "count") for name in ("items found", "documents", "passages", "characters")]
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


def count_contamination(edits: pads.Dataset, looked_for: Sequence[str] = ()) -> Contamination:
    """Count the passages of an edit ledger that are of items; sentences say what was looked for."""
    of_items = pc.field("also_id").is_valid() & pc.field("also_span").is_null()
    rows = edits.to_table(["stage", "id", "start", "end", "also_id"], filter=of_items)
    named = rows["also_id"].combine_chunks().dictionary_encode()
    parts = [name.rpartition("#") for name in named.dictionary.to_pylist()]
    sets, items = (
        pa.array([each[0] for each in parts], pa.string()),
        pa.array([int(each[2]) for each in parts], pa.int64()),
    )
    found = pa.table(
        {
            "stage": rows["stage"],
            "evaluation_set": sets.take(named.indices),
            "item": items.take(named.indices),
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


def contaminated_tables(edits: pads.Dataset) -> Iterator[Table]:
    """Return the evaluation sets that documents had items of, as a table; nothing where there is none."""
    found = count_contamination(edits)
    if found.table.num_rows:
        yield found.tables()[0]
