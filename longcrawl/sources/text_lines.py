"""Lines of text files as columns, and the ids of numbered records."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sources import LostRecords
from longcrawl.sources.json_lines import is_utf8

LAST_SPACE = 0x3000
"""The greatest code point that ``str.isspace`` takes for white space."""
_SPACES = "".join(filter(str.isspace, map(chr, range(LAST_SPACE + 1))))


class TextLines:
    """Copies the lines that have text, step by step, into one column."""

    def __init__(self, lost: LostRecords) -> None:
        self._lost, self.count = lost, 0
        """Where to report lines that are not UTF-8, and how many lines have been added."""
        self._begin()

    def _begin(self) -> None:
        self._texts, self._bytes = [pa.array([], pa.large_string())], 0
        self._places = [np.empty((2, 0), np.int64)]
        """Of each line that was copied: its number, and its first byte in the block."""

    def add(self, step: memoryview) -> None:
        """Copy the lines of a step; only the last one of a file may lack the line end."""
        text = step if is_utf8(step) else _without_damage(step, self.count, self._lost)
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        last = [len(text)] if len(text) > (ends[-1] if len(ends) else 0) else []
        offsets = np.concatenate([[0], ends, last]).astype(np.int64)
        lines = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
        lines = pc.utf8_rtrim(lines, "\r\n")
        has_text = pc.not_equal(pc.binary_length(pc.utf8_ltrim(lines, _SPACES)), 0)
        kept = np.flatnonzero(has_text.to_numpy(zero_copy_only=False))
        self._texts.append(lines.filter(has_text))
        self._places.append(np.array([kept + self.count, offsets[kept] + self._bytes]))
        self.count, self._bytes = self.count + len(lines), self._bytes + len(step)

    def take(self) -> tuple[pa.LargeStringArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the lines since the last time, their numbers in the file, and their first bytes in what was added."""
        numbers, starts = np.concatenate(self._places, axis=1)
        texts = pa.concat_arrays(self._texts)
        self._begin()
        return texts, numbers, starts


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
