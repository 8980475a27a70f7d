"""Rows of an input that are removed before it is read again, by number: a file and a marker for each input.

Every input would otherwise read the ids of all removed documents, and look its own up among them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.storage.sealed import Marker
from longcrawl.storage.stored_tables import read_table


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
