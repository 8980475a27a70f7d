"""Lines of a text that hold more than white space, and the ids of numbered records, as the buffers of columns."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, arg-type, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import copy_block, eight_at, find_line_feeds, lowest_bit, put_eight, put_four
from longcrawl.kernels.utf8 import decode

LAST_SPACE = 0x3000
"""The greatest code point that ``str.isspace`` takes for white space."""
_IS_SPACE = np.array([chr(point).isspace() for point in range(LAST_SPACE + 1)])

_DIGITS = np.array([int.from_bytes(b"%03d" % number, "little") for number in range(1000)], np.int64)
"""The digits of each number of three, the first one in the lowest byte."""

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


@compiled
def write_ids(name: Any, size: int, numbers: Any, out: Any, offsets: Any) -> None:
    """Write a name and each number behind it.

    Args:
        name: uint8, with room for 26 bytes behind it, which are written.
        size: bytes of the name.
        numbers: int64 [rows], none of them negative.
        out: uint8, written; for each row the bytes of the name and 19, and 8 more, are enough.
        offsets: int64 [rows + 1], written: where each id starts in ``out``.
    """
    source, target = np.int64(name.ctypes.data), np.int64(out.ctypes.data)
    to, before, stem = 0, 0, size
    for row in range(len(numbers)):
        offsets[row] = to
        thousands = numbers[row] // 1000
        if thousands != before:
            before, stem, rest = thousands, size, thousands
            while rest:
                rest //= 10
                stem += 1
            for place in range(stem - 1, size - 1, -1):
                name[place] = 48 + thousands % 10
                thousands //= 10
        for place in range(0, stem, 8):
            put_eight(target + to + place, eight_at(source + place))
        digits = numbers[row] - before * 1000
        zeros = (digits < 10) + (digits < 100) if before == 0 else 0
        put_four(target + to + stem, _DIGITS[digits] >> 8 * zeros)
        to += stem + 3 - zeros
    offsets[len(numbers)] = to
