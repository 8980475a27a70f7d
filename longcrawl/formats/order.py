"""Spills the documents of an output in its first pass, and orders and splits them for the second.

Pass one keeps the documents of each part in uncompressed Arrow tables, with an index of about 40 bytes per document.
One sort gives the order, which is cut into files of about equal size. Pass two gathers the documents of one file, a row
group or a band at a time.

The order is a file with the ``PLACE`` of each document: by group if asked for (language, bucket or domain), then by
sort key and hash of the id if shuffled, otherwise by part and row. One process needs about 60 bytes per document to
sort. Beyond ``HELD`` documents, tasks sort ranges of keys, or compare ranges of hashes of ids, and one process joins
them at 20 bytes per document. Ids must be unique, except those that are null.
"""

import json
import math
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import is_bytes
from longcrawl.core.exchange import Engine, Exchange, key_ranges
from longcrawl.core.exchange import cut as cut_rows
from longcrawl.core.stages import SORT_KEY, document_ids
from longcrawl.errors import FormatError, StageError
from longcrawl.io.files import bring, url_of, whole_file, write_text, write_values
from longcrawl.io.structured import DamagedWorkError, Marker
from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.memory import byte_at, copy_block, eight_at, four_at, put_eight

# Inside kernels ints and numpy ints are one type, which mypy cannot know, so these codes are off for the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value"


@forced_inline
def _offset(address: int, width: int) -> int:
    return np.int64(eight_at(address)) if width == 8 else four_at(address)


@compiled
def find_values(
    buffers: Any, batches: Any, rows: Any, width: int, size: int, sources: Any, ends: Any, valid: Any
) -> int:
    """Find the address and size of each value of a column, and return the number of nulls.

    ``buffers`` are int64 [batches, 3], the addresses of each batch, see :func:`_addresses`; ``batches`` and ``rows``
    int64 [documents], the place of each document. ``width`` is the bytes of an offset, 4 or 8, and ``size`` those of a
    value or of each number in a list. Filled are ``sources``, int64 [documents], with the address of each value,
    ``ends``, int64 [documents + 1], 0 first, with their cumulative bytes, and ``valid``, bool [documents], False for
    nulls.
    """
    end, nulls = np.int64(0), np.int64(0)
    for document in range(len(batches)):
        batch, row = batches[document], rows[document]
        flags, offsets, values = buffers[batch, 0], buffers[batch, 1], buffers[batch, 2]
        valid[document] = flags == 0 or byte_at(flags + (row >> 3)) >> (row & 7) & 1 == 1
        first, count = row, np.int64(1)
        if offsets != 0:
            first = _offset(offsets + row * width, width)
            count = _offset(offsets + (row + 1) * width, width) - first
        if not valid[document]:
            nulls += 1
            count = np.int64(0) if offsets != 0 else count
        sources[document] = values + first * size
        end += count * size
        ends[document + 1] = end
    return nulls


@compiled
def copy_values(sources: Any, sizes: Any, places: Any, out: Any) -> None:
    """Copy ``sizes`` bytes from the addresses ``sources`` to the offsets ``places`` of the uint8 array ``out``.

    All are int64 [ranges]. No byte beyond a range is read or written.
    """
    target = np.int64(out.ctypes.data)
    for number in range(len(sources)):
        at, size, to = sources[number], sizes[number], target + places[number]
        if size >= 64:
            last = size - 64
            for done in range(0, last, 64):
                copy_block(to + done, at + done)
            copy_block(to + last, at + last)
        elif size >= 8:
            last = size - 8
            for done in range(0, last, 8):
                put_eight(to + done, eight_at(at + done))
            put_eight(to + last, eight_at(at + last))
        else:
            for done in range(size):
                out[to - target + done] = byte_at(at + done)


PLANNED = "sealed.json"
"""File name of the marker for the files that an output's plan wrote."""
ORDER = "order"
LANGUAGE = "language"
COLUMNS = "columns"
"""Entry of ``NNNNN.json`` with the schema of the documents in base64, or "" for a part without tables."""
NO_LANGUAGE = 0xFFFFFFFF
INDEX = np.dtype(
    {
        "names": ["batch", "row", "bytes", "sort_key", "id_hash", "language"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u4"],
    }
)
PLACE = np.dtype([("part", "<u4"), ("batch", "<u4"), ("row", "<u4"), ("bytes", "<u8")])
ROW_GROUP = 32 << 20
"""Approximate bytes of documents in a row group, which a reader holds in memory at once."""
MAPPED = 1 << 12
"""Largest number of spilled batches that stay mapped: each takes some 20 kB and one of the process's memory maps."""
UNKNOWN = -1
"""Placeholder for an address in columns that cannot be copied by address."""
Longs = npt.NDArray[np.int64]
T = TypeVar("T")
R = TypeVar("R")


def spill_documents(
    tables: Iterable[pa.Table],
    spill: Path,
    part: int,
    *,
    shuffled: bool,
    group: str = LANGUAGE,
    sizes: Callable[[pa.RecordBatch], Longs] | None = None,
) -> None:
    """Write the documents of one part as ``NNNNN.arrow``, ``NNNNN.index`` (:data:`INDEX`) and ``NNNNN.json``.

    If ``shuffled``, the column ``sort_key`` gives their order. ``group`` is the text column that groups documents, if
    they have it. ``sizes`` returns the bytes of each document, by default of all values, which decide how files are
    cut.

    Raises:
        StageError: columns change from table to table, have equal names, or have a type whose size is unknown.
    """
    schema: pa.Schema | None = None
    index, languages, number = [np.empty(0, INDEX)], dict[str, int](), 0
    with whole_file(spill / f"{part:05d}.arrow") as beside, beside.open("wb") as file:
        writer: Any = None
        for table in tables:
            names = table.column_names
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise StageError(f"the documents have two columns called {repeated[0]!r}: rename or drop one of them")
            documents = _plain(table.drop_columns(SORT_KEY) if shuffled else table)
            if schema is None:
                schema = documents.schema
                writer = pa.ipc.new_file(file, schema)
            elif documents.schema != schema:
                raise StageError(f"documents have different columns: {difference(schema, documents.schema)}")
            first = 0
            for batch in documents.combine_chunks().to_batches():
                writer.write_batch(batch)
                found = _index(batch, languages, group)
                rows = table.slice(first, batch.num_rows)
                if shuffled:
                    found["sort_key"] = rows[SORT_KEY].to_numpy()
                if shuffled or "id" in rows.column_names:
                    found["id_hash"] = _hash_ids(rows, f"{part} {number}", shuffled=shuffled)
                found["bytes"] = (sizes or row_sizes)(batch)
                found["batch"] = number
                index.append(found)
                first, number = first + batch.num_rows, number + 1
        if writer is not None:
            writer.close()
    joined = np.concatenate(index)
    write_values(spill / f"{part:05d}.index", joined)
    recorded = {
        "rows": len(joined),
        "languages": list(languages),
        "has_language": _has_text(schema, group),
        COLUMNS: "" if schema is None else b64encode(schema.serialize()).decode(),
    }
    write_text(spill / f"{part:05d}.json", json.dumps(recorded))


_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier that spreads the rows of a batch over all hashes."""


def _hash_ids(documents: pa.Table, batch: str, *, shuffled: bool) -> npt.NDArray[np.uint64]:
    """Return a hash of each id; a document without an id gets a hash of its batch and row."""
    if shuffled or not documents["id"].null_count:
        return keyed_hash(document_ids(documents, "a shuffled output").to_pylist(), "output", 0)
    rows, there = np.arange(documents.num_rows, dtype=np.uint64), documents["id"].is_valid().to_numpy()
    hashes: npt.NDArray[np.uint64] = (rows * _ODD + keyed_hash([batch], "no id", 0)).astype(np.uint64)
    hashes[there] = keyed_hash(document_ids(documents.filter(pa.array(there)), "an output").to_pylist(), "output", 0)
    return hashes


def sealed(part: int) -> str:
    """Return the file name of the marker for a part's spilled files, with which fetched files are compared."""
    return f"{part:05d}.{PLANNED}"


def checked(file: Path, marker: str) -> Path:
    """Fetch a spilled file from a store if it is not here yet, compare it with its marker, and return its path.

    Files that are already on this file system are not compared: the run compared them before.
    """
    if url_of(file) is not None and not file.exists():
        bring(file)
        try:
            Marker.open(file.with_name(marker), file)
        except DamagedWorkError:
            file.unlink(missing_ok=True)
            raise
    return file


def read_order(spill: Path, start: int, stop: int) -> npt.NDArray[Any]:
    """Return the places (:data:`PLACE`) of documents ``start`` to ``stop`` in the order."""
    order = checked(spill / ORDER, PLANNED)
    return np.fromfile(order, PLACE, count=stop - start, offset=start * PLACE.itemsize)


def row_groups(spill: Path, start: int, stop: int, group_bytes: int | None = None) -> Iterator[npt.NDArray[Any]]:
    """Yield the places of documents ``start`` to ``stop`` in the order, one row group at a time."""
    places = read_order(spill, start, stop)
    sizes = places["bytes"].astype(np.int64)
    for first, last in changes((np.cumsum(sizes) - sizes) // (group_bytes or ROW_GROUP)):
        yield places[first:last]


def read_batches(
    spill: Path, places: npt.NDArray[Any]
) -> Iterator[tuple[npt.NDArray[np.intp], pa.RecordBatch, npt.NDArray[np.uint32]]]:
    """Yield the documents at ``places`` by memory-mapped batch: indices in ``places``, the batch, and rows in it."""
    for part in np.unique(places["part"]).tolist():
        of_part = np.flatnonzero(places["part"] == part)
        file = checked(spill / f"{part:05d}.arrow", sealed(part))
        try:
            with pa.memory_map(str(file)) as mapped:
                stored = pa.ipc.open_file(mapped)
                for batch in np.unique(places["batch"][of_part]).tolist():
                    chosen = of_part[places["batch"][of_part] == batch]
                    yield chosen, stored.get_batch(batch), places["row"][chosen]
        except (OSError, pa.ArrowException) as damaged:
            raise FormatError(f"{file} is cut: remove the run's folder 'work' and run again") from damaged


class SpillReader:
    """Reader of spilled documents, or of those of ``columns`` that they have; batches stay mapped between reads."""

    def __init__(self, spill: Path, columns: Sequence[str] | None = None) -> None:
        self._spill, self._columns = spill, columns
        self._batches = dict[int, tuple[pa.RecordBatch, Longs]]()

    def read(self, places: npt.NDArray[Any]) -> pa.Table:
        """Read documents in the order of ``places``, each column in one chunk because parquet pages end with chunks."""
        keys = places["part"].astype(np.int64) << 32 | places["batch"]
        wanted, batches = np.unique(keys, return_inverse=True)
        if len(wanted) > MAPPED:
            halves = np.array_split(np.argsort(keys, kind="stable"), 2)
            joined = pa.concat_tables([self.read(places[half]) for half in halves]).combine_chunks()
            return joined.take(pa.array(np.argsort(np.concatenate(halves)))).combine_chunks()
        if len(self._batches) > MAPPED:
            self._batches.clear()
        self._map(wanted)
        stored = [self._batches[key] for key in wanted.tolist()]
        rows = places["row"].astype(np.int64)
        buffers = np.stack([addresses for _, addresses in stored])
        order = np.argsort(batches, kind="stable")
        columns = []
        for number, field in enumerate(stored[0][0].schema):
            if (buffers[:, number, 2] == UNKNOWN).any():
                # Arrow supports more types, but to take from a chunked array it would join all batches first.
                pieces = [
                    stored[batches[order[first]]][0].column(number).take(pa.array(rows[order[first:last]]))
                    for first, last in changes(batches[order])
                ]
                columns.append(pa.concat_arrays(pieces).take(pa.array(np.argsort(order, kind="stable"))))
            else:
                columns.append(_gathered(field.type, np.ascontiguousarray(buffers[:, number]), batches, rows))
        return pa.Table.from_arrays(columns, schema=stored[0][0].schema)

    def _map(self, wanted: Longs) -> None:
        missing = np.array([key for key in wanted.tolist() if key not in self._batches], np.int64)
        lacking = np.zeros(len(missing), PLACE)
        lacking["part"], lacking["batch"] = missing >> 32, missing
        for chosen, batch, _ in read_batches(self._spill, lacking):
            names = batch.schema.names if self._columns is None else self._columns
            some = batch.select([name for name in names if name in batch.schema.names])
            addresses = np.array([_addresses(each) for each in some.columns], np.int64)
            self._batches[int(missing[chosen[0]])] = some, addresses


def read_places(spill: Path, places: npt.NDArray[Any], columns: Sequence[str] | None = None) -> pa.Table:
    """Read documents once; :class:`SpillReader` is faster for repeated reads."""
    return SpillReader(spill, columns).read(places)


def ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the function's result for each item in order, while a thread computes the next one."""
    with ThreadPoolExecutor(1) as thread:
        waiting = deque[Future[R]]()
        for item in items:
            waiting.append(thread.submit(function, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield from (each.result() for each in waiting)


def _addresses(values: pa.Array) -> tuple[int, int, int]:
    """Return addresses of validity bits, offsets and values, 0 for none; ``UNKNOWN`` if only Arrow can take rows."""
    kind, (valid, *buffers) = values.type, values.buffers()[:3]
    inside = values.values if _is_list(kind) else values
    if values.offset or not _item_bytes(kind) or (inside is not values and inside.null_count):
        return 0, 0, UNKNOWN
    offsets = buffers[0] if inside is not values or len(buffers) == 2 else None
    data = inside.buffers()[-1]
    first = inside.offset * _item_bytes(kind) if inside is not values else 0
    flags = valid.address if valid is not None and values.null_count else 0
    return flags, offsets.address if offsets is not None else 0, first + (data.address if data is not None else 0)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _item_bytes(kind: pa.DataType) -> int:
    """Return the bytes of a value, or of the unit of its offsets; 0 if values are not byte ranges."""
    if _is_list(kind):
        return 0 if _is_list(kind.value_type) or is_bytes(kind.value_type) else _item_bytes(kind.value_type)
    if is_bytes(kind):
        return 1
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    return int(kind.bit_width // 8) if plain else 0


def _gathered(kind: pa.DataType, buffers: Longs, batches: Longs, rows: Longs) -> pa.Array:
    """Copy values from batches by the addresses in ``buffers``."""
    count, size = len(rows), _item_bytes(kind)
    wide = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    sources, ends, valid = np.empty(count, np.int64), np.zeros(count + 1, np.int64), np.empty(count, np.bool_)
    nulls = find_values(buffers, batches, rows, 8 if wide else 4, size, sources, ends, valid)
    data = np.empty(int(ends[-1]), np.uint8)
    copy_values(sources, np.diff(ends), ends[:-1], data)
    flags = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    if not _is_list(kind) and not is_bytes(kind):
        return pa.Array.from_buffers(kind, count, [flags, pa.py_buffer(data)], nulls)
    offsets = pa.py_buffer((ends // size).astype(np.int64 if wide else np.int32))
    if is_bytes(kind):
        return pa.Array.from_buffers(kind, count, [flags, offsets, pa.py_buffer(data)], nulls)
    inside = pa.Array.from_buffers(kind.value_type, int(ends[-1]) // size, [None, pa.py_buffer(data)])
    return pa.Array.from_buffers(kind, count, [flags, offsets], nulls, children=[inside])


def row_bytes(values: pa.Array, of: str = "a column") -> Longs:
    """Return the bytes of each value, without offsets and null flags; raise StageError for maps, unions and the like.

    >>> row_bytes(pa.array([["a", "bcd"], None, []])).tolist(), row_bytes(pa.array([{"a": 1, "b": "é"}])).tolist()
    ([4, 0, 0], [10])
    """
    kind = values.type
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.int64)
    if pa.types.is_struct(kind):
        fields = [row_bytes(child, of) for child in values.flatten()]
        total: Longs = np.sum([np.zeros(len(values), np.int64), *fields], axis=0, dtype=np.int64)
        return total
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        ends = np.cumsum(_known(pc.list_value_length(values)))
        before = np.concatenate([[0], np.cumsum(row_bytes(values.flatten(), of))])
        inside: Longs = np.diff(before[np.concatenate([[0], ends])])
        return inside
    if is_bytes(kind):
        return _known(pc.binary_length(values))
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return np.full(len(values), max(kind.bit_width // 8, 1), np.int64)
    raise StageError(
        f"a parquet file cannot hold column {of!r} of type {kind}: drop it, or cast it to text, numbers or lists"
    )


def row_sizes(batch: pa.RecordBatch) -> Longs:
    """Return the bytes of each document over all columns, without offsets and null flags."""
    total = np.zeros(batch.num_rows, np.int64)
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        total += row_bytes(values, name)
    return total


def _index(batch: pa.RecordBatch, languages: dict[str, int], group: str) -> npt.NDArray[Any]:
    index = np.zeros(batch.num_rows, INDEX)
    index["row"] = np.arange(batch.num_rows)
    index["language"] = NO_LANGUAGE
    if _has_text(batch.schema, group):
        encoded = batch.column(group).dictionary_encode()
        numbers = [languages.setdefault(name, len(languages)) for name in encoded.dictionary.to_pylist()]
        known = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
        chosen = pc.fill_null(encoded.indices, 0).to_numpy()[known]
        index["language"][known] = np.array(numbers, np.uint32)[chosen]
    return index


def _plain(table: pa.Table) -> pa.Table:
    """Decode dictionaries, which differ from batch to batch, and drop the metadata of the schema."""
    fields = []
    for column in table.schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        fields.append(pa.field(column.name, kind, column.nullable))
    return table.cast(pa.schema(fields))


def _has_text(schema: pa.Schema | None, column: str) -> bool:
    if schema is None or column not in schema.names:
        return False
    kind = schema.field(column).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def changes(values: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return the bounds (first, last + 1) of each run of equal values."""
    bounds = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else [0]
    return list(pairwise(bounds))


def _known(values: pa.Array) -> Longs:
    known: Longs = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return known


def difference(one: pa.Schema, other: pa.Schema) -> str:
    """Describe the columns that differ between two schemas."""
    recorded = [sorted(f"{column.name} {column.type}" for column in schema) for schema in (one, other)]
    ours, theirs = ([name for name in recorded[side] if name not in recorded[1 - side]] for side in (0, 1))
    here, there = ", ".join(ours) or "the same in another order", ", ".join(theirs) or "nothing else"
    return f"here {here}, there {there}; make them alike"


SPLITS = ("train", "heldout", "val", "validation")


def check_heldout(heldout: float, output: str) -> None:
    """Raise StageError, naming ``output``, unless ``heldout`` is a fraction below 1 or a whole number."""
    if not 0 <= heldout < math.inf or (heldout >= 1 and heldout != int(heldout)):
        raise StageError(f"{output}.heldout must be a fraction below 1 or a whole number of rows, got {heldout!r}")


def heldout_rows(heldout: float, rows: int, of: str = "") -> int:
    """Return the number of rows to hold out; a fraction is rounded, but not below one if there are two rows or more.

    >>> heldout_rows(0.008, 1000), heldout_rows(0.008, 2), heldout_rows(0.008, 1), heldout_rows(5, 1000)
    (8, 1, 0, 5)
    """
    at_least = int(heldout > 0 and rows > 1)
    count = int(heldout) if heldout >= 1 else max(round(rows * heldout), at_least)
    if count >= rows:
        raise FormatError(
            f"heldout {heldout:g} takes {count:,} of {rows:,} rows{of} and leaves none to train on: lower it"
        )
    return count


def split_rows(heldout: float, rows: int, name: str = "heldout", of: str = "") -> dict[str, tuple[int, int]]:
    """Return the bounds of each split: ``name`` has the first rows, if any are held out, and ``train`` the rest."""
    held = heldout_rows(heldout, rows, of)
    return {name: (0, held), "train": (held, rows)} if held else {"train": (0, rows)}


def split_totals(
    written: Sequence[Mapping[str, Any]], sums: Mapping[str, str], files: str
) -> dict[str, dict[str, int]]:
    """Add up the descriptions of files by split: for each name in ``sums`` its entry, and as ``files`` their number."""
    totals = {}
    for split in SPLITS:
        if here := [each for each in written if each["split"] == split]:
            totals[split] = {name: sum(each[entry] for each in here) for name, entry in sums.items()}
            totals[split][files] = len(here)
    return totals


def counts_of_split(folder: Path, described: Mapping[str, Any], split: str, row: int) -> Mapping[str, int]:
    """Return the recorded counts of a split; raise FormatError if there is none, or it has no such row."""
    if split not in described["splits"]:
        raise FormatError(f"{folder} has no split {split!r}; known: {', '.join(described['splits'])}")
    counts: Mapping[str, int] = described["splits"][split]
    if not 0 <= row < counts["documents"]:
        raise FormatError(f"{folder} split {split!r} has documents 0 to {counts['documents'] - 1:,}, not {row}")
    return counts


HELD = 1 << 25
"""Most documents that one process sorts; they take 2 GB."""
PIECE = 1 << 22
"""Approximate documents in a partition of the exchange, at 40 bytes each."""
BLOCK = 1 << 20
"""Documents whose sizes are summed at a time."""
COUNTS = "order.json"
"""File name of the number of documents in each group of an order that an exchange made."""
KEYS = pa.schema(
    {"key": pa.uint64(), "id": pa.uint64()}
    | dict.fromkeys(("part", "batch", "row"), pa.uint32())
    | {"bytes": pa.uint64()}
)


@dataclass(frozen=True)
class Stretch:
    """Consecutive documents of the order: those of one group, or all if there are no groups."""

    group: str | None
    start: int
    sizes: npt.NDArray[np.uint64]
    """Bytes of each document, in order."""


class Spilled(NamedTuple):
    """Description of the documents that pass one spilled."""

    parts: tuple[int, ...]
    """Parts that have documents."""
    rows: int
    schema: pa.Schema
    groups: Mapping[int, Sequence[str]]
    """Names of each part's groups, in the part's own numbering."""
    names: tuple[str, ...]
    """Names of all groups, sorted; empty if the order is not by group."""


def exchange_order(spill: Path, parts: int, engine: Engine, *, shuffled: bool, grouped: bool = False) -> None:
    """Sort documents, or compare their ids, in an exchange if one process cannot hold them all."""
    spilled = _describe(spill, parts, grouped)
    if spilled.rows <= HELD:
        return
    if not shuffled:
        if "id" in spilled.schema.names:
            pieces = np.array([-(-spilled.rows // PIECE)])
            one_group = spilled._replace(names=())
            make, take = partial(_make_keys, spill, one_group, pieces, "id_hash"), partial(_take_keys, spill, False)
            engine.exchange(Exchange(make, take, int(pieces[0]), spill.parent / f"{ORDER}-ids"), spilled.parts)
        return
    counts = np.sum([*engine.tasks(partial(_count_groups, spill, spilled), spilled.parts)], axis=0)
    pieces = -(-counts // PIECE)
    make, take = partial(_make_keys, spill, spilled, pieces, "sort_key"), partial(_take_keys, spill, True)
    # A run may be resumed with other groups, whose order must not be taken for this one: the folder's name differs.
    name = f"{ORDER}-{'language' if grouped else 'all'}"
    step = Exchange(make, take, int(pieces.sum()), spill.parent / name)
    engine.exchange(step, spilled.parts)
    with whole_file(spill / ORDER) as beside, beside.open("wb") as file:
        for partition in range(step.partitions):
            rows = step.read(partition)
            file.write(_places(rows, rows["part"]).tobytes())
    write_text(spill / COUNTS, json.dumps(counts.tolist()))


def order_documents(
    spill: Path, parts: int, *, shuffled: bool, grouped: bool = False
) -> tuple[list[Stretch], pa.Schema]:
    """Put documents in their final order, and return those of each group, or all as one, and their columns.

    Raises:
        FormatError: there are none, parts have different columns, there is no column for the group, or two
            documents have one id.
    """
    spilled = _describe(spill, parts, grouped)
    if shuffled and (spill / COUNTS).exists():
        counts = np.array(json.loads((spill / COUNTS).read_text("utf-8")))
    elif shuffled or spilled.rows <= HELD:
        counts = _sort(spill, spilled, shuffled=shuffled)
    else:
        counts = _append(spill, spilled)
    sizes, starts = np.memmap(spill / ORDER, PLACE, "r")["bytes"], np.cumsum(counts) - counts
    stretches = zip([*spilled.names, None], starts.tolist(), counts.tolist(), strict=True)
    return [Stretch(name, start, sizes[start:][:count]) for name, start, count in stretches if count], spilled.schema


def describe_order(described: Mapping[str, Any]) -> str:
    """Describe the order of documents in an output, for its card."""
    if described.get("related"):
        return "Related documents follow each other"
    return "The order is random" if described["shuffled"] else "The order is that of the source"


def cut(stretch: Stretch, start: int, stop: int, file_bytes: int) -> list[tuple[int, int]]:
    """Return the bounds, in the order of all documents, of the fewest similar files of ``file_bytes`` on average."""
    sizes, bounds, before, last = stretch.sizes[start:stop], list[int](), 0, -1
    blocks = [sizes[first : first + BLOCK] for first in range(0, len(sizes), BLOCK)]
    whole = sum(int(block.sum(dtype=np.int64)) for block in blocks)
    share = max(-(-whole // max(-(-whole // file_bytes), 1)), 1)
    for number, block in enumerate(blocks):
        ends = before + np.cumsum(block.astype(np.int64))
        files = (ends - block.astype(np.int64)) // share
        bounds += (np.flatnonzero(np.diff(files, prepend=last)) + number * BLOCK).tolist()
        before, last = int(ends[-1]), int(files[-1])
    first = stretch.start + start
    return [(first + one, first + other) for one, other in pairwise([*bounds, len(sizes)])]


def spilled_json(spill: Path, parts: int, suffix: str) -> list[Any]:
    """Read the JSON file of this suffix of each part."""
    files = [spill / f"{part:05d}{suffix}" for part in range(parts)]
    bring(*files)
    return [json.loads(file.read_text("utf-8")) for file in files]


def _describe(spill: Path, parts: int, grouped: bool) -> Spilled:  # noqa: FBT001  # callers pass a variable of this name
    found = spilled_json(spill, parts, ".json")
    rows = sum(each["rows"] for each in found)
    if not rows:
        raise FormatError("no documents to write: all were removed before the output")
    filled = [part for part in range(parts) if found[part]["rows"]]
    columns = dict.fromkeys(found[part][COLUMNS] for part in filled)
    schema, *others = (pa.ipc.read_schema(pa.py_buffer(b64decode(each))) for each in columns)
    for other in others:
        if other != schema:
            raise FormatError(f"parts hold documents with different columns: {difference(schema, other)}")
    if grouped and not all(found[part]["has_language"] for part in filled):
        raise FormatError(
            f"parquet.by is 'language', but the documents have no column {LANGUAGE!r} of text; they have: "
            f"{', '.join(schema.names)}; add the stage identify_language, or set parquet.by to none"
        )
    names = sorted({name for each in found for name in each["languages"]}) if grouped else []
    return Spilled(tuple(filled), rows, schema, {part: found[part]["languages"] for part in filled}, tuple(names))


def _read_index(spill: Path, spilled: Spilled, part: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32]]:
    """Return the index of a part, and the rank of each document's group among all groups."""
    index = np.fromfile(checked(spill / f"{part:05d}.index", sealed(part)), INDEX)
    if not spilled.names:
        return index, np.zeros(len(index), np.uint32)
    # Documents without a group rank last.
    places = {name: place for place, name in enumerate(spilled.names)}
    names = spilled.groups[part]
    ranks = np.array([*(places[name] for name in names), len(places)], np.uint32)
    return index, ranks[np.minimum(index["language"], len(names))]


def _sort(spill: Path, spilled: Spilled, *, shuffled: bool) -> Longs:
    """Write the order with all documents in memory, and return the number of documents in each group."""
    places, keys, ids = (np.empty(spilled.rows, kind) for kind in (PLACE, np.uint64, np.uint64))
    group, start = np.zeros(spilled.rows, np.uint32), 0
    for part in spilled.parts:
        index, ranks = _read_index(spill, spilled, part)
        here = slice(start, start + len(index))
        places[here] = _places(index, part)
        keys[here], ids[here], group[here] = index["sort_key"], index["id_hash"], ranks
        start += len(index)
    if "id" in spilled.schema.names:
        _check_unique(spill, ids, places)
    order = np.lexsort((ids, keys, group)) if shuffled else np.argsort(group, kind="stable")
    write_values(spill / ORDER, places[order])
    return np.bincount(group, minlength=len(spilled.names) + 1)


def _append(spill: Path, spilled: Spilled) -> Longs:
    """Write the order of unshuffled documents, by group, with one part in memory; return the counts of groups."""
    none = np.zeros(len(spilled.names) + 1, np.int64)
    counts = sum((_count_groups(spill, spilled, part) for part in spilled.parts), none)
    ends = np.cumsum(counts) - counts
    with whole_file(spill / ORDER) as beside, beside.open("wb") as file:
        for part in spilled.parts:
            index, ranks = _read_index(spill, spilled, part)
            order = np.argsort(ranks, kind="stable")
            places, ranks = _places(index[order], part), ranks[order]
            for first, last in changes(ranks):
                file.seek(int(ends[ranks[first]]) * PLACE.itemsize)
                file.write(places[first:last].tobytes())
                ends[ranks[first]] += last - first
    return counts


def _places(rows: Any, part: Any) -> npt.NDArray[Any]:
    places = np.empty(len(rows), PLACE)
    places["part"] = part
    for name in ("batch", "row", "bytes"):
        places[name] = rows[name]
    return places


def _count_groups(spill: Path, spilled: Spilled, part: int) -> Longs:
    return np.bincount(_read_index(spill, spilled, part)[1], minlength=len(spilled.names) + 1)


def _make_keys(
    spill: Path, spilled: Spilled, pieces: Longs, key: Literal["sort_key", "id_hash"], part: int
) -> Iterator[tuple[int, pa.Table]]:
    """Assign the documents of a part to ranges of a key, group by group."""
    index, ranks = _read_index(spill, spilled, part)
    ranges = key_ranges(index[key], pieces[ranks])
    columns = [index[key], index["id_hash"], np.full(len(index), part, np.uint32)]
    columns += [index[name].copy() for name in ("batch", "row", "bytes")]
    rows = pa.table([np.ascontiguousarray(column) for column in columns], schema=KEYS)
    yield from cut_rows(rows, (np.cumsum(pieces) - pieces)[ranks] + ranges)


def _take_keys(spill: Path, keeps: bool, _: int, tables: Iterator[pa.Table]) -> pa.Table:  # noqa: FBT001  # in a partial
    """Sort rows of a range of keys and compare their ids; return them, or no rows unless the task ``keeps`` them."""
    found = [KEYS.empty_table(), *tables]
    rows = pa.concat_tables(found).sort_by([(name, "ascending") for name in KEYS.names[:-1]]).combine_chunks()
    same = (rows["key"].to_numpy()[1:] == rows["key"].to_numpy()[:-1]).nonzero()[0]
    near = rows.take(pa.array(np.unique([same, same + 1])))
    _check_unique(spill, near["id"].to_numpy(), _places(near, near["part"]))
    return rows.slice(0, rows.num_rows if keeps else 0).select(["part", "batch", "row", "bytes"])


def _check_unique(spill: Path, ids: npt.NDArray[np.uint64], places: npt.NDArray[Any]) -> None:
    by_id = np.argsort(ids, kind="stable")
    for first in np.flatnonzero(ids[by_id][1:] == ids[by_id][:-1]).tolist():
        one, other = read_places(spill, places[by_id[first : first + 2]], ["id"])["id"].to_pylist()
        if one == other and one is not None:
            raise FormatError(f"two rows have the id {one!r}; ids must be unique: drop one of the documents")
