"""Lines of a text that hold more than white space, as the buffers of a column."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, arg-type, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import copy_block, find_line_feeds, lowest_bit
from longcrawl.kernels.utf8 import decode

LAST_SPACE = 0x3000
"""The greatest code point that ``str.isspace`` takes for white space."""
_IS_SPACE = np.array([chr(point).isspace() for point in range(LAST_SPACE + 1)])

LINE_FEED, CARRIAGE_RETURN = 10, 13


@compiled
def _has_text(data: Any, at: int, stop: int) -> bool:
    """Return whether a character between two bytes is not white space."""
    while at < stop:
        point, at = decode(data, at)
        if point > LAST_SPACE or not _IS_SPACE[point]:
            return True
    return False


@compiled
def copy_lines(
    data: Any, first: int, begin: int, out: Any, to: int, ends: Any, numbers: Any, starts: Any
) -> tuple[int, int, int]:
    """Copy each line that has text, without carriage returns at its end.

    Args:
        data: uint8 [bytes], lines of UTF-8; the last one may lack its line feed.
        first: number of the first line.
        begin: place of its first byte.
        out: uint8, written; as many bytes as ``data`` has are enough.
        to: where the first copy starts in ``out``.
        ends: int64, written: where each line that is copied ends in ``out``; like the next two, half of the bytes and
            one are enough.
        numbers: int64, written: its number.
        starts: int64, written: the place of its first byte.

    Returns:
        How many lines were copied, where they end in ``out``, and the number of the next line.
    """
    source, target = np.int64(data.ctypes.data), np.int64(out.ctypes.data)
    at, rows, line = 0, 0, first
    while at < len(data):
        start, shift, ended = at, to - at, False
        while at + 64 <= len(data) and not ended:
            copy_block(target + at + shift, source + at)
            found = find_line_feeds(source + at)
            ended = found != np.uint64(0)
            at += lowest_bit(found) if ended else 64
        while at < len(data) and data[at] != LINE_FEED:
            out[at + shift] = data[at]
            at += 1
        stop = at
        while stop > start and data[stop - 1] == CARRIAGE_RETURN:
            stop -= 1
        if _has_text(data, start, stop):
            to = stop + shift
            ends[rows], numbers[rows], starts[rows] = to, line, begin + start
            rows += 1
        at += 1
        line += 1
    return rows, to, line
