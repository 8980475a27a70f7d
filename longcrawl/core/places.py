"""Places in documents: spans found by surveys, and edits made by stages.

Offsets count code points of the text before the stage, or tokens for stages that cut tokens. Text is stored only for
files that were not text before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.counts import MASK, TAG
from longcrawl.errors import LedgerError

Longs = npt.NDArray[np.int64]

_PLACE = [("start", pa.int64()), ("end", pa.int64())]
_ALSO = [("also_id", pa.string()), ("also_span", pa.int64())]

SPAN_SCHEMA = pa.schema([("document", pa.int64()), ("id", pa.string()), *_PLACE, *_ALSO])
"""Schema of spans: one row per place that a survey finds in a document, the row ``document`` of its sketches.

The optional ``also_id`` and ``also_span`` refer to another span with the same text: its document, and its number there.
"""

UNLISTED_SPACE = (
    "terminal_punctuation",
    "min_words_per_line",
    "max_word_length",
    "javascript",
    "policy_phrases",
    "citations",
)
"""Rules of ``C4Quality``, which also changes white space around and between lines without listing it as places."""

_NUMBERS = [("replaced_by", pa.int64()), ("span", pa.int64())]
_WHAT = [("rule", pa.string()), ("unit", pa.string()), *_PLACE, *_NUMBERS, *_ALSO]

PLACE_SCHEMA = pa.schema([("document", pa.int64()), *_WHAT])
"""Schema of places: one row per place that a stage changed in a batch, sorted by ``document``, the row of the batch."""

EDIT_SCHEMA = pa.schema([("id", pa.string()), ("stage", pa.string()), *_WHAT])
"""Schema of the edit ledger: one row per place that a stage changed in a document.

``start`` and ``end`` (exclusive) are offsets in the document before the stage, in ``unit``: "characters" (code points)
or "tokens". ``replaced_by`` is the length of the replacement, 0 for a cut. ``span`` is the number of the place among
the spans that a survey found in the document, from 0.
"""

_IN_PAGE = [("page", pa.int32()), ("text", pa.string())]

PAGE_PLACE_SCHEMA = pa.schema([*PLACE_SCHEMA, *_IN_PAGE])
"""Schema of the texts that a stage removed from pages of a file while converting it to text.

``page`` is counted from 1. ``text`` is the removed text, or null for a whole page; ``start`` is 0 and ``end`` its
length.
"""

PAGE_EDIT_SCHEMA = pa.schema([*EDIT_SCHEMA, *_IN_PAGE])
"""Schema of the edit ledger of a run that reads files; ``page`` and ``text`` are null for edits of a text."""


class LineChange(NamedTuple):
    """The change that an edit made to one line of a text."""

    line: int
    """Line number from 1, counting blank lines."""
    before: str
    """The line before the edit, without surrounding white space."""
    after: str | None
    """The line after the edit, or None if it was removed."""
    rule: str
    """Rule that changed the line; ``prefix``, ``suffix`` and ``anywhere`` are joined by + if several apply."""


@dataclass(frozen=True)
class Spans:
    """Spans found by a survey in all documents, see :mod:`longcrawl.core.stages`."""

    table: pa.Table
    """``SPAN_SCHEMA``, sorted by document and start; spans of one document do not overlap."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the table, so that fingerprints do not depend on cached properties."""
        return Spans, (self.table,)

    def units(self, rows: Longs) -> Longs:
        """Return the start and end of rows of ``table``, int64 [n, 2]."""
        return self._places[rows]

    def rows_of(self, ids: pa.Array) -> tuple[Longs, Longs]:
        """Return the spans of documents: int64 [n], indices into ``ids``, and int64 [n], rows of ``table``."""
        numbers = np.array([self._numbers.get(name, -1) for name in ids.to_pylist()], np.int64)
        rows = np.flatnonzero(numbers >= 0)
        firsts, counts = self._firsts[numbers[rows]], np.diff(self._firsts)[numbers[rows]]
        before = np.cumsum(counts) - counts
        return np.repeat(rows, counts), np.repeat(firsts - before, counts) + np.arange(counts.sum())

    def origins(self, rows: Longs) -> dict[str, pa.Array]:
        """Return ``span``, ``also_id`` and ``also_span`` of rows of ``table``, as columns of ``PLACE_SCHEMA``."""
        documents = np.searchsorted(self._firsts, rows, "right") - 1
        named = {"span": pa.array(rows - self._firsts[documents], pa.int64())}
        for name in ("also_id", "also_span"):
            if name in self.table.column_names:
                named[name] = self.table[name].take(pa.array(rows)).combine_chunks()
        return named

    @cached_property
    def _places(self) -> Longs:
        return np.stack([self.table["start"].to_numpy(), self.table["end"].to_numpy()], axis=1)

    @cached_property
    def _firsts(self) -> Longs:
        """Return the first row of each document that has spans, and the number of all rows."""
        documents = self.table["document"].to_numpy()
        changes = np.flatnonzero(np.diff(documents)) + 1
        return np.concatenate([[0], changes, [len(documents)]]) if len(documents) else np.zeros(1, np.int64)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Number the documents that have spans, by id."""
        names = self.table["id"].take(pa.array(self._firsts[:-1])).to_pylist()
        return {name: number for number, name in enumerate(names)}


def list_by_document(documents: Longs, values: Mapping[str, pa.Array], count: int) -> pa.ListArray:
    """Group values into a list of structs for each of ``count`` documents; ``documents`` are ascending, one per value.

    >>> list_by_document(np.array([0, 0, 2]), {"start": pa.array([1, 5, 2])}, 3).to_pylist()
    [[{'start': 1}, {'start': 5}], [], [{'start': 2}]]
    """
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(documents, minlength=count), out=offsets[1:])
    structs = pa.StructArray.from_arrays(list(values.values()), list(values))
    return pa.ListArray.from_arrays(pa.array(offsets), structs)


def make_places(
    documents: Longs,
    rules: pa.Array | str,
    places: Longs,
    replaced_by: Longs | int = 0,
    unit: str = "characters",
    **origins: pa.Array,
) -> pa.Table:
    """Make a table of places, ``PLACE_SCHEMA``.

    ``documents`` is int64 [n], ascending; ``places`` int64 [n, 2], start and end. ``origins`` are ``span``, ``also_id``
    and ``also_span`` if they are known, or ``page`` and ``text`` for ``PAGE_PLACE_SCHEMA``.
    """
    count = len(documents)
    columns = {
        "document": pa.array(documents, pa.int64()),
        "rule": pa.repeat(rules, count) if isinstance(rules, str) else rules,
        "unit": pa.repeat(unit, count),
        "start": pa.array(places[:, 0]),
        "end": pa.array(places[:, 1]),
        "replaced_by": pa.array(np.broadcast_to(replaced_by, count), pa.int64()),
    }
    unknown = {name: pa.nulls(count, PLACE_SCHEMA.field(name).type) for name in ("span", "also_id", "also_span")}
    columns |= unknown | origins
    schema = PAGE_PLACE_SCHEMA if "page" in origins else PLACE_SCHEMA
    return pa.table([columns[name] for name in schema.names], schema=schema)


def leaves_text(rule: str) -> bool:
    """Return whether a rule leaves the text unchanged, because it only masks or tags."""
    return rule == MASK or rule.startswith(TAG)


def no_places() -> pa.Table:
    """Return an empty table of places, for a batch without changes."""
    return PLACE_SCHEMA.empty_table()


def changed_places(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return one place per changed ``text``, from its first to its last changed character, with the rule "changed".

    A new text is not an edit, nor is a text that the stage extracts from a page in ``html``.
    """
    has_texts = "text" in before.column_names and "text" in after.column_names
    if not has_texts or memory_of(before["text"]) == memory_of(after["text"]):
        return no_places()
    old, new = (pc.cast(table["text"], pa.large_string()) for table in (before, after))
    changed = pc.fill_null(pc.not_equal(old, pc.fill_null(new, "")), False)
    if "html" in before.column_names:
        changed = pc.and_(changed, pc.is_null(before["html"]))
    rows = np.flatnonzero(changed)
    found = [_changed(old[row].as_py(), new[row].as_py() or "") for row in rows.tolist()]
    measured = np.array(found, np.int64).reshape(-1, 3)
    return make_places(rows, "changed", measured[:, :2], measured[:, 2])


def edit_rows(documents: pa.Table, places: pa.Table, stage: str) -> pa.Table:
    """Convert the places of one batch to edit ledger rows of a stage label; ids are null if documents have none."""
    rows, schema = places.num_rows, PAGE_EDIT_SCHEMA if "page" in places.column_names else EDIT_SCHEMA
    if not rows:
        return schema.empty_table()
    ids = pa.nulls(rows, pa.string())
    if "id" in documents.column_names:
        ids = pc.cast(documents["id"].take(places["document"]), pa.string())
    columns = [ids, pa.repeat(stage, rows), *(places[name] for name in places.column_names[1:])]
    return pa.table(columns, schema=schema)


def replay(text: str, edits: pa.Table | Iterable[dict[str, Any]]) -> str:
    """Apply the cuts in the edit ledger to the text of a document, such as the text of the source.

    ``edits`` are the rows of this document in the order of the ledger; rows in tokens, and in pages of a file, are
    ignored.

    Raises:
        LedgerError: a row is outside the text or of another document, replaces characters, which the ledger does not
            store, or is from a stage that also changes unlisted white space (``UNLISTED_SPACE``).

    >>> replay("See also. The story.", [dict(stage="a", rule="cut", unit="characters", start=0, end=10, replaced_by=0)])
    'The story.'
    """
    rows = edits.to_pylist() if isinstance(edits, pa.Table) else list(edits)
    if len(ids := {row.get("id") for row in rows}) > 1:
        raise LedgerError(f"the rows belong to {len(ids):,} documents: keep only those of the document of this text")
    rows = [row for row in rows if row["unit"] == "characters" and row.get("page") is None]
    for stage in dict.fromkeys(row["stage"] for row in rows):
        text = _without(text, [row for row in rows if row["stage"] == stage])
    return text


def _without(text: str, rows: Sequence[dict[str, Any]]) -> str:
    kept, at = [], 0
    for row in rows:
        start, end = row["start"], row["end"]
        if not at <= start <= end <= len(text):
            raise LedgerError(
                f"{row['stage']} changed characters {start:,}-{end:,}, which this text does not have after the stages "
                "before: pass the text of the source and all rows of its document"
            )
        if leaves_text(row["rule"]):
            continue
        if row["rule"] in UNLISTED_SPACE:
            raise LedgerError(
                f"{row['stage']} removed lines by {row['rule']}, and white space that the ledger does not list: "
                "run the stage on the text instead"
            )
        if row["replaced_by"]:
            raise LedgerError(
                f"{row['stage']} replaced characters {start:,}-{end:,} with {row['replaced_by']:,} others, which "
                "the ledger does not hold: run the stage on the text instead"
            )
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]])


def _changed(before: str, after: str) -> tuple[int, int, int]:
    """Return the start and end of the change, and the length of the replacement."""
    old, new = (np.frombuffer(text.encode("utf-32-le"), "<u4") for text in (before, after))
    shorter = min(len(old), len(new))
    start = _equal(old[:shorter], new[:shorter])
    most = shorter - start
    same = _equal(old[::-1][:most], new[::-1][:most])
    return start, len(old) - same, len(new) - same - start


def _equal(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> int:
    differs = one != other
    return int(differs.argmax()) if differs.any() else len(differs)


def memory_of(column: pa.ChunkedArray) -> list[tuple[Any, ...]]:
    """Return offsets and addresses of the chunks of a column; two columns that share memory have equal ones."""
    return [
        (chunk.offset, len(chunk), *(None if buffer is None else buffer.address for buffer in chunk.buffers()))
        for chunk in column.chunks
    ]
