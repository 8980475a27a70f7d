"""Documents between the two passes of an output: Arrow tables and an index.

Pass one keeps the documents of every part, uncompressed, so that any of them can be read by its place, and beside them
some 40 bytes about each: its size, its language and where a shuffle puts it. Then one sort gives the order, which is
cut into files of about equal size. Pass two gathers the documents of one file, a row group or a band at a time.
"""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value"

import itertools
import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import is_bytes
from longcrawl.core.stages import SORT_KEY, document_ids
from longcrawl.errors import FormatError, StageError
from longcrawl.io.files import bring, url_of, whole_file, write_text, write_values
from longcrawl.io.structured import DamagedWorkError, Marker
from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.memory import byte_at, copy_block, eight_at, four_at, put_eight


@forced_inline
def _offset(address: int, width: int) -> int:
    return np.int64(eight_at(address)) if width == 8 else four_at(address)


@compiled
def find_values(
    buffers: Any, batches: Any, rows: Any, width: int, size: int, sources: Any, ends: Any, valid: Any
) -> int:
    """Find where the values of one column are; return how many are null.

    Args:
        buffers: int64 [batches, 3], addresses of validity (0 for none), of offsets (0 for values of one size) and of
            values in each batch.
        batches: int64 [documents], the batch of each.
        rows: int64 [documents], its row there.
        width: bytes of an offset, 4 or 8.
        size: bytes of a value, or of each number of a list.
        sources: int64 [documents], filled with the address of each value.
        ends: int64 [documents + 1], the first is 0; filled with where each value ends among the ones found here.
        valid: bool [documents], filled.
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
    """Copy stretches of bytes from addresses to places in ``out``; nothing beyond a stretch is read or written."""
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
"""The marker of what the plan of an output wrote."""
ORDER = "order"
LANGUAGE = "language"
COLUMNS = "columns"
"""The entry of ``NNNNN.json`` that is the schema of the documents, as base64; \"\" of a part without tables."""
NO_LANGUAGE = 0xFFFFFFFF
INDEX = np.dtype(
    [
        ("batch", "<u4"),
        ("row", "<u4"),
        ("bytes", "<u8"),
        ("sort_key", "<u8"),
        ("id_hash", "<u8"),
        ("language", "<u4"),
    ]
)
PLACE = np.dtype([("part", "<u4"), ("batch", "<u4"), ("row", "<u4"), ("bytes", "<u8")])
ROW_GROUP = 32 << 20
"""Bytes of documents in a row group, more or less: what a reader holds at once."""

MAPPED = 1 << 12
"""Batches of spilled documents that stay mapped: some 20 kB of each, and a place among those that a process may map."""
UNKNOWN = -1
"""No address."""

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
    """Write the documents of one part: ``NNNNN.arrow``, then ``NNNNN.index`` (:data:`INDEX`), then ``NNNNN.json``.

    Args:
        tables: the documents.
        spill: the folder to write to.
        part: its number.
        shuffled: whether there is a column ``sort_key`` to order documents by.
        group: the column of text that groups documents, if they have it.
        sizes: returns the bytes of each document by which files are cut; None for those of all its values.

    Raises:
        StageError: two columns have one name, or a column is of a type that no size is known of.
    """
    spill.mkdir(parents=True, exist_ok=True)
    schema: pa.Schema | None = None
    index, languages, number = [np.empty(0, INDEX)], dict[str, int](), 0
    with whole_file(spill / f"{part:05d}.arrow") as beside, beside.open("wb") as file:
        writer: Any = None
        for table in tables:
            _reject_duplicate_columns(table)
            documents = _plain(table.drop_columns(SORT_KEY) if shuffled else table)
            if schema is None:
                schema = documents.schema
                writer = pa.ipc.new_file(file, schema)
            elif documents.schema != schema:
                raise StageError(f"documents change their columns on the way: {difference(schema, documents.schema)}")
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
"""Spreads the rows of a batch over all hashes."""


def _hash_ids(documents: pa.Table, batch: str, *, shuffled: bool) -> npt.NDArray[np.uint64]:
    """Return a hash of each id; without an id, one of the row in its batch, which is that of no other document."""
    if shuffled or not documents["id"].null_count:
        return keyed_hash(document_ids(documents, "a shuffled output").to_pylist(), "output", 0)
    rows, there = np.arange(documents.num_rows, dtype=np.uint64), documents["id"].is_valid().to_numpy()
    hashes: npt.NDArray[np.uint64] = (rows * _ODD + keyed_hash([batch], "no id", 0)).astype(np.uint64)
    hashes[there] = keyed_hash(document_ids(documents.filter(pa.array(there)), "an output").to_pylist(), "output", 0)
    return hashes


def sealed(part: int) -> str:
    """Name the marker of what was spilled of a part, for machines that fetch it from a store."""
    return f"{part:05d}.{PLANNED}"


def checked(file: Path, marker: str) -> Path:
    """Return a file of a spill; one that is fetched from a store now is compared with a marker beside it.

    On one file system all of them were compared before, where they are.

    Raises:
        DamagedWorkError: it is not as it was written.
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
    """Return the places (:data:`PLACE`) of documents ``start`` to ``stop`` of the order."""
    order = checked(spill / ORDER, PLANNED)
    return np.fromfile(order, PLACE, count=stop - start, offset=start * PLACE.itemsize)


def row_groups(spill: Path, start: int, stop: int, group_bytes: int | None = None) -> Iterator[npt.NDArray[Any]]:
    """Yield the places of documents ``start`` to ``stop`` of the order, row group by row group."""
    places = read_order(spill, start, stop)
    sizes = places["bytes"].astype(np.int64)
    for first, last in changes((np.cumsum(sizes) - sizes) // (group_bytes or ROW_GROUP)):
        yield places[first:last]


def read_batches(
    spill: Path, places: npt.NDArray[Any]
) -> Iterator[tuple[npt.NDArray[np.intp], pa.RecordBatch, npt.NDArray[np.uint32]]]:
    """Yield the batches that hold documents, on mapped files: which of ``places`` are in it, it, and its rows."""
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
    """Documents where they were spilled, some of which are read at a time: batches stay mapped between two reads.

    Args:
        spill: the folder of the first pass.
        columns: those to read, where documents have them; None for all.
    """

    def __init__(self, spill: Path, columns: Sequence[str] | None = None) -> None:
        self._spill, self._columns = spill, columns
        self._batches = dict[int, tuple[pa.RecordBatch, Longs]]()

    def read(self, places: npt.NDArray[Any]) -> pa.Table:
        """Read documents in the order of ``places``; a column is one chunk: pages of a parquet file end where it does.

        Raises:
            FormatError: a file is cut.
        """
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
        columns = []
        for number, field in enumerate(stored[0][0].schema):
            if (buffers[:, number, 2] == UNKNOWN).any():
                columns.append(_taken([batch.column(number) for batch, _ in stored], batches, rows))
            else:
                columns.append(_gathered(field.type, np.ascontiguousarray(buffers[:, number]), batches, rows))
        return pa.Table.from_arrays(columns, schema=stored[0][0].schema)

    def _map(self, wanted: Longs) -> None:
        missing = np.array([key for key in wanted.tolist() if key not in self._batches], np.int64)
        lacking = np.zeros(len(missing), PLACE)
        lacking["part"], lacking["batch"] = missing >> 32, missing
        for chosen, batch, _ in read_batches(self._spill, lacking):
            some = batch
            if self._columns is not None:
                some = batch.select([name for name in self._columns if name in batch.schema.names])
            self._batches[int(missing[chosen[0]])] = (
                some,
                np.array([_addresses(each) for each in some.columns], np.int64),
            )


def read_places(spill: Path, places: npt.NDArray[Any], columns: Sequence[str] | None = None) -> pa.Table:
    """Read documents once, see :class:`SpillReader`."""
    return SpillReader(spill, columns).read(places)


def ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what a function returns of each item, in their order; a thread computes the next one meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        waiting = deque[Future[R]]()
        for item in items:
            waiting.append(thread.submit(function, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield from (each.result() for each in waiting)


def _addresses(values: pa.Array) -> tuple[int, int, int]:
    """Return where validity, offsets and values of an array are, 0 for none; ``UNKNOWN`` of what Arrow has to take."""
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
    """Return the bytes of a value, or of what an offset counts; 0 of types whose values are no stretches of bytes."""
    if _is_list(kind):
        return 0 if _is_list(kind.value_type) or is_bytes(kind.value_type) else _item_bytes(kind.value_type)
    if is_bytes(kind):
        return 1
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    return int(kind.bit_width // 8) if plain else 0


def _gathered(kind: pa.DataType, buffers: Longs, batches: Longs, rows: Longs) -> pa.Array:
    """Return values of batches, of which ``buffers`` has the addresses."""
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


def _taken(values: Sequence[pa.Array], batches: Longs, rows: Longs) -> pa.Array:
    """Return values of batches, of any type that Arrow takes rows of."""
    order = np.argsort(batches, kind="stable")
    pieces = [
        values[batches[order[first]]].take(pa.array(rows[order[first:last]])) for first, last in changes(batches[order])
    ]
    return pa.concat_arrays(pieces).take(pa.array(np.argsort(order, kind="stable")))


def row_bytes(values: pa.Array, of: str = "a column") -> Longs:
    """Return the bytes that each value takes, without offsets and null flags.

    >>> row_bytes(pa.array([["a", "bcd"], None, []])).tolist(), row_bytes(pa.array([{"a": 1, "b": "é"}])).tolist()
    ([4, 0, 0], [10])

    Raises:
        StageError: for a type that has none, such as a map or a union.
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
        f"parquet files take no column {of!r} of type {kind}: drop it, or cast it to text, numbers or lists"
    )


def row_sizes(batch: pa.RecordBatch) -> Longs:
    """Return the bytes that each document takes."""
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
    """Decode dictionaries, which differ from batch to batch, and drop what a schema says beside its columns."""
    fields = []
    for column in table.schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        fields.append(pa.field(column.name, kind, column.nullable))
    return table.cast(pa.schema(fields))


def _reject_duplicate_columns(table: pa.Table) -> None:
    names = table.column_names
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise StageError(f"the documents have two columns called {repeated[0]!r}: rename or drop one of them")


def _has_text(schema: pa.Schema | None, column: str) -> bool:
    if schema is None or column not in schema.names:
        return False
    kind = schema.field(column).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def changes(values: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return first and last of each stretch of equal values."""
    bounds = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else [0]
    return list(itertools.pairwise(bounds))


def _known(values: pa.Array) -> Longs:
    known: Longs = pc.fill_null(pc.cast(values, pa.int64()), 0).to_numpy(zero_copy_only=False)
    return known


def difference(one: pa.Schema, other: pa.Schema) -> str:
    """Describe in which columns two schemas differ."""
    recorded = [sorted(f"{column.name} {column.type}" for column in schema) for schema in (one, other)]
    ours, theirs = ([name for name in recorded[side] if name not in recorded[1 - side]] for side in (0, 1))
    here, there = ", ".join(ours) or "the same in another order", ", ".join(theirs) or "nothing else"
    return f"here {here}, there {there}; make them alike"
