"""Files that a part keeps for the next segment: survivors, sketches, spans and removed rows.

Whatever is read is compared with the marker first; see :mod:`longcrawl.run.part`. A segment between two surveys, in
which no stage is, keeps no documents of its own: they are those of the segment before without what its survey removes.

Removed rows have a file for each input, which would otherwise read the ids of all removed documents and look its own up
among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.io.files import whole_file
from longcrawl.io.place import is_there
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Marker


def removed_rows(file: Path, marker: Path) -> npt.NDArray[np.int64]:
    """Return the rows of a part that leave it, in order; where its marker names no such file, none do.

    Raises:
        DamagedWorkError: they are not as they were written.
    """
    found = Marker.open(marker)
    if not found.names(file):
        return np.empty(0, np.int64)
    found.check(file)
    rows: npt.NDArray[np.int64] = read_table(file, ["row"])["row"].to_numpy()
    return rows


def mark_rows(tables: Iterable[pa.Table], rows: npt.NDArray[np.int64]) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Return the tables of a part, and which of their rows stay: those that are not among ``rows``, in order."""
    start = 0
    for table in tables:
        first, last = np.searchsorted(rows, [start, start + table.num_rows])
        kept = np.ones(table.num_rows, bool)
        kept[rows[first:last] - start] = False
        start += table.num_rows
        yield table, pa.array(kept)


def removed_file(work: Path, segment: int, number: int) -> Path:
    """Name the file of the rows of an input that the survey at the end of a segment removes."""
    return work / f"removed-{segment}" / f"{number:05d}.parquet"


def input_marker(work: Path, segment: int, number: int) -> Path:
    """Name the marker of this file, if any row leaves, and of the ledger of these rows."""
    return removed_file(work, segment, number).with_suffix(".json")


def removed_marker(work: Path, segment: int, part: int = 0) -> Path:
    """Name the marker of a survey that has decided about a part or all of them, with counts of what it removes."""
    return work / (f"removed-{segment}-{part}.json" if part else f"removed-{segment}.json")


SPANS_MARKER = "spans.json"


def part_marker(work: Path, segment: int, number: int) -> Path:
    """Name the marker of one part of one segment."""
    return part_file(work, segment, number, "json")


def survivors(work: Path, segment: int, numbers: Iterable[int]) -> Iterator[pa.Table]:
    """Return the tables that a segment kept of these inputs, one after the other."""
    for number in numbers:
        yield from _kept(work, segment, number)


def left_of(work: Path, segment: int, number: int) -> Iterator[pa.Table]:
    """Return the tables of an input that a segment kept, without rows that its survey removes."""
    tables = _kept(work, segment, number)
    if is_there(removed_marker(work, segment)):
        rows = removed_rows(removed_file(work, segment, number), input_marker(work, segment, number))
        tables = (table.filter(stays) for table, stays in mark_rows(tables, rows))
    return tables


def _kept(work: Path, segment: int, number: int) -> Iterator[pa.Table]:
    file, marker = part_file(work, segment, number, "arrow"), Marker.open(part_marker(work, segment, number))
    if not marker.names(file):
        return left_of(work, segment - 1, number)
    marker.check(file)
    return tables_of(file)


def sketches(
    work: Path, segment: int, numbers: Iterable[int], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Return what a survey sketched of these inputs, or some columns of it, one after the other."""
    for number in numbers:
        yield from tables_of(stored(work, segment, number, "sketches"), columns)


def spans_kept(work: Path, segment: int, numbers: Sequence[int]) -> bool:
    """Return whether the spans of these inputs are written."""
    return all(Marker.read_all(part_file(work, segment, number, SPANS_MARKER) for number in numbers))


def keep_spans(work: Path, segment: int, numbers: Sequence[int], spans: pa.Table, start: int = 0) -> None:
    """Write spans that were found in these inputs, of each in a file of its own with a marker.

    ``start`` is the number of their first document among those in which spans were found.
    """
    documents = spans["document"].to_numpy()
    for number in numbers:
        stop = start + stored_rows(work, segment, number)
        first, last = (int(place) for place in documents.searchsorted([start, stop]))
        file, marker = part_file(work, segment, number, "spans"), part_file(work, segment, number, SPANS_MARKER)
        write_table(spans.slice(first, last - first), file)
        Marker(marker, {}, Marker.entries(marker, [file])).write()
        start = stop


def sketch_bytes(work: Path, segment: int, number: int) -> int:
    """Return the bytes that a survey's sketches of one input take on disk, as its marker has them."""
    marker = part_marker(work, segment, number)
    return int(
        Marker.open(marker).resolved_files()[str(part_file(work, segment, number, "sketches").resolve())]["bytes"]
    )


def stored_rows(work: Path, segment: int, number: int) -> int:
    """Return how many documents a segment kept of one input, as its marker has it."""
    return int(Marker.open(part_marker(work, segment, number)).content["kept"])


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Open a file of tables, which is there whole or not at all."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with whole_file(path) as beside, pa.ipc.new_file(beside, schema, options=options) as writer:
        yield writer


def tables_of(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Return the tables of a file, or some columns of them: no other one is decompressed."""
    with pa.memory_map(str(file)) as mapped:
        batches = pa.ipc.open_file(mapped)
        if columns is not None:
            places = sorted(map(batches.schema.get_field_index, columns))
            batches = pa.ipc.open_file(mapped, options=pa.ipc.IpcReadOptions(included_fields=places))
        if not batches.num_record_batches:
            yield batches.schema.empty_table()
        for number in range(batches.num_record_batches):
            yield pa.Table.from_batches([batches.get_batch(number)])


def stored(work: Path, segment: int, number: int, kind: str) -> Path:
    """Name a file that a part has written, which is as it was written.

    Raises:
        DamagedWorkError: it is not.
    """
    file = part_file(work, segment, number, kind)
    Marker.open(part_marker(work, segment, number), file)
    return file


def part_file(work: Path, segment: int, number: int, kind: str) -> Path:
    """Name a file of one part of one segment."""
    return work / f"segment-{segment}" / f"{number:05d}.{kind}"
