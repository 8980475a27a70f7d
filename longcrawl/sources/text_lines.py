"""Lines of text files as columns, and the ids of numbered records.

Lines are written to memory of Arrow's pool, whose pages the system has cleared for others before.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sources import LostRecords
from longcrawl.kernels.texts import read_only
from longcrawl.sources.gathered import LARGE_BYTES


class TextLines:
    """Copies the lines that have text, step by step, into one column."""

    def __init__(self, lost: LostRecords) -> None:
        self._lost, self.count = lost, 0
        """Where to report lines that are not UTF-8, and how many lines have been added."""
        self._begin()

    def _begin(self) -> None:
        self._texts, self._size, self._bytes = np.empty(0, np.uint8), 0, 0
        self._places, self._rows = np.zeros((3, 1), np.int64), 0
        """Of each line that was copied: where the copy ends, its number, and its first byte in the block."""

    def add(self, step: memoryview) -> None:
        """Copy the lines of a step; only the last one of a file may lack the line end."""
        from longcrawl.sources._scalar_kernels import is_utf8
        from longcrawl.sources._text_kernels import copy_lines

        data = np.frombuffer(step, np.uint8)
        if not is_utf8(data, 0, len(data)):
            data = np.frombuffer(_without_damage(step, self.count, self._lost), np.uint8)
        self._make_room(len(step))
        ends, numbers, starts = self._places
        left = ends[self._rows + 1 :], numbers[self._rows :], starts[self._rows :]
        rows, self._size, self.count = copy_lines(
            read_only(data), self.count, self._bytes, self._texts, self._size, *left
        )
        self._rows, self._bytes = self._rows + rows, self._bytes + len(step)

    def _make_room(self, count: int) -> None:
        """Make room for the texts of so many bytes, and for the places of as many lines as these may be."""
        if len(self._texts) < (size := self._size + count):
            longer = pa.allocate_buffer(max(LARGE_BYTES if self._size else 0, size * 5 // 4))
            self._texts, before = np.frombuffer(longer, np.uint8), self._texts[: self._size]
            self._texts[: self._size] = before
        if self._places.shape[1] < (lines := self._rows + count // 2 + 2):
            more = np.frombuffer(pa.allocate_buffer(48 * lines), np.int64).reshape(3, -1)
            more[:, : self._rows + 1] = self._places[:, : self._rows + 1]
            self._places = more

    def take(self) -> tuple[pa.LargeStringArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the lines since the last time, their numbers in the file, and their first bytes in what was added."""
        ends, numbers, starts = self._places
        buffers = pa.py_buffer(ends[: self._rows + 1]), pa.py_buffer(self._texts[: self._size])
        taken = pa.LargeStringArray.from_buffers(self._rows, *buffers), numbers[: self._rows], starts[: self._rows]
        self._begin()
        return taken


def _without_damage(lines: memoryview, first: int, lost: LostRecords) -> bytes:
    """Return lines with spaces in place of those that are not UTF-8, which are lost."""
    kept = bytes(lines).split(b"\n")
    for number, line in enumerate(kept):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            lost.add(f"line {first + number + 1}", f"is not UTF-8 ({error.reason} at byte {error.start})")
            kept[number] = b" " * len(line)
    return b"\n".join(kept)


def numbered_ids(name: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return the ids of the records of a file: its name, a colon and the number."""
    return pc.binary_join_element_wise(name, pa.array(numbers, pa.int64()).cast(pa.string()), ":")
