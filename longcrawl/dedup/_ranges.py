"""Sorted ranges [start, stop) on disk, in pieces that were made one after the other, and all of them in one order.

A file of ranges is 16 bytes per range, two little-endian int64, or 24 where a third number goes with each. Beside it a
JSON file, written last, says how many ranges each piece has: a file without it is not finished.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from longcrawl.storage.files import whole_file
from longcrawl.storage.sealed import Marker

Longs = npt.NDArray[np.int64]

_BYTES = 8
_LEAST_BLOCK = 512


class RangeFile:
    """Pieces of ranges, each sorted by start; made by :func:`range_writer`."""

    def __init__(self, path: Path, columns: int = 2) -> None:
        self.path = path
        self.columns = columns
        """Start, stop and, with 3, the number that goes with a range."""

    @property
    def finished(self) -> bool:
        """Whether all pieces are there."""
        return Marker.whole(self._index) is not None

    @property
    def pieces(self) -> list[int]:
        """How many ranges each piece has."""
        counts: list[int] = Marker.open(self._index).content["pieces"]
        return counts

    def read(self, first: int, count: int) -> Longs:
        """Read ranges ``first`` … ``first + count - 1``, shape (count, columns)."""
        stored = np.fromfile(self.path, "<i8", self.columns * count, offset=first * self.columns * _BYTES)
        return stored.reshape(-1, self.columns)

    def blocks(self, memory: int) -> Iterator[Longs]:
        """Return all ranges as they were written, ``memory`` bytes of them at once."""
        count, rows = sum(self.pieces), max(memory // (self.columns * _BYTES), 1)
        return (self.read(first, min(rows, count - first)) for first in range(0, count, rows))

    @property
    def _index(self) -> Path:
        return self.path.with_suffix(".json")


class RangeWriter:
    """Appends pieces to a file of ranges."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.counts: list[int] = []

    def add(self, ranges: Longs) -> None:
        """Append a piece: ranges sorted by start."""
        if len(ranges):
            self._file.write(np.ascontiguousarray(ranges, "<i8").data)
            self.counts.append(len(ranges))

    def extend(self, ranges: Longs) -> None:
        """Go on with the last piece: ranges that start after it."""
        if self.counts and len(ranges):
            self._file.write(np.ascontiguousarray(ranges, "<i8").data)
            self.counts[-1] += len(ranges)
        else:
            self.add(ranges)


@contextmanager
def range_writer(target: RangeFile) -> Iterator[RangeWriter]:
    """Write a file of ranges, which is finished when the block ends without an error."""
    with whole_file(target.path) as beside, beside.open("wb") as file:
        writer = RangeWriter(file)
        yield writer
    marker = target.path.with_suffix(".json")
    Marker(marker, {"pieces": writer.counts}, Marker.entries(marker, [target.path])).write()


def join_sorted(ranges: Longs) -> Longs:
    """Sort ranges by start and join those that overlap or touch, as :func:`merge_ranges` does."""
    from longcrawl.dedup._substring_kernels import join

    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return ranges[: join(ranges)]


def merge_ranges(files: Sequence[RangeFile], memory: int) -> Iterator[Longs]:
    """Return the ranges of all pieces of all files in increasing order, joined where they overlap or touch.

    Files have as many columns each; a joined range keeps the least third number of those that start where it starts.

    What is read at once stays near ``memory`` bytes, however many pieces there are, down to 8 KiB for each.
    """
    pieces = [piece for file in files for piece in _pieces(file)]
    columns = max((file.columns for file in files), default=2)
    rows = max(memory // (6 * columns * _BYTES * max(len(pieces), 1)), _LEAST_BLOCK)
    last = np.empty((0, columns), np.int64)
    while pieces:
        for piece in pieces:
            piece.fill(rows)
        # A piece that is not read to its end may go on with any range that starts after its last one read.
        safe = min((piece.held[-1, 0] for piece in pieces if piece.unread), default=None)
        ready = join_sorted(np.concatenate([last, *(piece.take(safe) for piece in pieces)]))
        pieces = [piece for piece in pieces if piece.unread or len(piece.held)]
        last = ready[-1:]
        yield ready[:-1]
    yield last


class _Piece:
    def __init__(self, file: RangeFile, first: int, count: int) -> None:
        self._file = file
        self._first = first
        self.unread = count
        self.held = np.empty((0, file.columns), np.int64)

    def fill(self, rows: int) -> None:
        """Hold ``rows`` ranges, or all that are left."""
        wanted = min(rows - len(self.held), self.unread)
        if wanted > 0:
            self.held = np.concatenate([self.held, self._file.read(self._first, wanted)])
            self._first += wanted
            self.unread -= wanted

    def take(self, safe: np.int64 | None) -> Longs:
        """Release the ranges that start at ``safe`` or before; all of them where it is None."""
        count = len(self.held) if safe is None else int(np.searchsorted(self.held[:, 0], safe, "right"))
        taken, self.held = self.held[:count], self.held[count:]
        return taken


def _pieces(file: RangeFile) -> Iterator[_Piece]:
    first = 0
    for count in file.pieces:
        yield _Piece(file, first, count)
        first += count
