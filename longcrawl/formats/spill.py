"""What every output keeps of documents between its two passes: Arrow tables and an index.

Pass one keeps the documents of every part, uncompressed, so that any of them can be read by its place, and beside them
some 40 bytes about each: its size, its language and where a shuffle puts it. Then one sort gives the order, which is
cut into files of about equal size. Pass two gathers the documents of one file, a row group or a band at a time.
"""

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

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import SORT_KEY, document_ids
from longcrawl.errors import FormatError, StageError
from longcrawl.storage.files import whole_file, write_text
from longcrawl.storage.place import bring, url_of
from longcrawl.storage.sealed import DamagedWorkError, Marker

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
    unique: str | None = None,
) -> None:
    """Write the documents of one part: ``NNNNN.arrow``, then ``NNNNN.index`` (:data:`INDEX`), then ``NNNNN.json``.

    Args:
        tables: the documents.
        spill: the folder to write to.
        part: its number.
        shuffled: whether there is a column ``sort_key`` to order documents by.
        group: the column of text that groups documents, if they have it.
        sizes: returns the bytes of each document by which files are cut; None for those of all its values.
        unique: what ids are hashed under, if :func:`order_documents` is to find equal ones; the hash decides between
            equal sort keys, too.

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
                if shuffled or unique is not None:
                    ids = document_ids(rows, "a shuffled output" if unique is None else unique).to_pylist()
                    found["id_hash"] = keyed_hash(ids, unique or "parquet", 0)
                found["bytes"] = (sizes or row_sizes)(batch)
                found["batch"] = number
                index.append(found)
                first, number = first + batch.num_rows, number + 1
        if writer is not None:
            writer.close()
    joined = np.concatenate(index)
    with whole_file(spill / f"{part:05d}.index") as beside:
        joined.tofile(beside)
    recorded = {
        "rows": len(joined),
        "languages": list(languages),
        "has_language": _has_text(schema, group),
        COLUMNS: "" if schema is None else b64encode(schema.serialize()).decode(),
    }
    write_text(spill / f"{part:05d}.json", json.dumps(recorded))


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


def read_places(spill: Path, places: npt.NDArray[Any], columns: Sequence[str] | None = None) -> pa.Table:
    """Read documents in the order of ``places`` from where they were spilled: all columns, or those named."""
    taken, positions = list[list[pa.Array]](), []
    for chosen, batch, rows in read_batches(spill, places):
        wanted = batch if columns is None else batch.select([name for name in columns if name in batch.schema.names])
        taken.append([_bytes_of(each).take(pa.array(rows)) for each in wanted.columns])
        positions.append(chosen)
    found, joined = np.concatenate(positions), []
    order = pa.array(np.argsort(found, kind="stable")) if (found[1:] < found[:-1]).any() else None
    for field, pieces in zip(wanted.schema, zip(*taken, strict=True), strict=True):
        alike = len({each.type for each in pieces}) == 1
        # One chunk a column: where pages of a parquet file end depends on where chunks do.
        values = pa.concat_arrays(pieces if alike else [_as_type(each, field.type) for each in pieces])
        joined.append(_as_type(values if order is None else values.take(order), field.type))
    return pa.Table.from_arrays(joined, schema=wanted.schema)


def ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what a function returns of each item, in their order; a thread computes the next one meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        waiting = deque[Future[R]]()
        for item in items:
            waiting.append(thread.submit(function, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield from (each.result() for each in waiting)


def _bytes_of(values: pa.Array) -> pa.Array:
    """Return lists of numbers as bytes, of which Arrow takes rows without a look at each number; others as they are."""
    kind = values.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
        return values
    numbers = values.values
    if numbers.null_count:
        return values
    offsets = (values.offsets.to_numpy().astype(np.int64) + numbers.offset) * (kind.value_type.bit_width // 8)
    valid = values.is_valid().buffers()[1] if values.null_count else None
    buffers = [valid, pa.py_buffer(offsets), numbers.buffers()[1] or pa.py_buffer(b"")]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Undo :func:`_bytes_of`."""
    if values.type == kind:
        return values
    valid, starts, numbers = values.buffers()
    wide = np.int64 if pa.types.is_large_list(kind) else np.int32
    ends = np.frombuffer(starts, np.int64, len(values) + 1) // (kind.value_type.bit_width // 8)
    inside = pa.Array.from_buffers(kind.value_type, int(ends[-1]), [None, numbers])
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(ends.astype(wide))], children=[inside])


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
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
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
