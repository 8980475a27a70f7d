"""Kernels that read and copy UTF-8; a text must be valid."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import SPACE
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import eight_at

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]

_BEYOND_ASCII = np.uint64(0x8080808080808080)
_FIRST_COMBINING = 0xCC
"""The first byte of U+0300."""
SHORT = 128
"""Bytes whose count fits into a byte: so vector instructions count 12 times as fast as in 64 bits."""


@compiled
def decode(data: Bytes, at: int) -> tuple[np.uint32, int]:
    """Return the code point that starts at a byte, and where the next one starts."""
    point = np.uint32(data[at])
    if point < 0x80:
        return point, at + 1
    if point < 0xE0:
        return np.uint32((point & 0x1F) << 6 | data[at + 1] & 0x3F), at + 2
    if point < 0xF0:
        return np.uint32((point & 0xF) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F), at + 3
    high = (point & 7) << 18 | (data[at + 1] & 0x3F) << 12
    return np.uint32(high | (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F), at + 4


@compiled
def last_start(data: Bytes, stop: int) -> int:
    """Return where the character that ends before a byte starts."""
    at = stop - 1
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@compiled
def skip_space(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return the first byte from ``at`` on other than white space, ``stop`` where there is none."""
    while at < stop:
        point, after = decode(data, at)
        if not flag_of[point] & SPACE:
            break
        at = after
    return at


@compiled
def drop_space(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return where the text between two bytes ends without the white space at its end."""
    while stop > at:
        last = last_start(data, stop)
        if not flag_of[decode(data, last)[0]] & SPACE:
            break
        stop = last
    return stop


@compiled
def copy(data: Bytes, start: int, stop: int, out: Bytes, place: int) -> int:
    """Copy bytes to ``place``, which may be in front of them in one array; gives where they end."""
    source, target = data[start:stop], out[place : place + stop - start]
    # A count from 0 is an index without a sign, and the loop a copy of blocks.
    for at in range(len(source)):
        target[at] = source[at]
    return place + stop - start


@compiled
def count_characters(data: Bytes, start: int, stop: int) -> int:
    """Count the characters that start between two bytes."""
    found = 0
    for at in range(start, stop, SHORT):
        few = np.uint8(0)
        for byte in data[at : min(at + SHORT, stop)]:
            few = np.uint8(few + np.uint8((byte & 0xC0) != 0x80))
        found += few
    return found


@compiled
def begins_with(data: Bytes, at: int, stop: int, wanted: Bytes) -> bool:
    """Return whether some bytes stand between two places, from the first one on."""
    same = 0
    while same < len(wanted) and at + same < stop and data[at + same] == wanted[same]:
        same += 1
    return same == len(wanted)


@compiled
def find_unordered(data: Bytes, bounds: npt.NDArray[np.int64], classes: Bytes, found: npt.NDArray[np.bool_]) -> None:
    """Say of each text whether it has combining classes out of order, or one of 255.

    Code points below U+0300 have none, and are not looked up.
    """
    base = data.ctypes.data
    for text in range(len(bounds) - 1):
        at, stop, before = bounds[text], bounds[text + 1], 0
        while at < stop:
            while at + 8 <= stop and not eight_at(base + at) & _BEYOND_ASCII:
                at, before = at + 8, 0
            if at == stop:
                break
            if data[at] < _FIRST_COMBINING:
                at, before = at + 1 + (data[at] >= 0xC0), 0
                continue
            point, at = decode(data, at)
            kind = classes[point]
            if kind == 255 or 0 < kind < before:
                found[text] = True
                break
            before = kind
