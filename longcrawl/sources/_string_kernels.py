"""JSON strings for the kernels beside this file: where they end, and their characters as UTF-8."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import copy_block, find_backslashes, find_string_stops, lowest_bit

QUOTE, BACKSLASH = 34, 92

_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)

_SPECIAL = np.zeros(256, dtype=np.bool_)
_SPECIAL[:32] = True
_SPECIAL[[QUOTE, BACKSLASH]] = True

_HEX = np.full(256, 255, dtype=np.uint8)
for _digit, _byte in enumerate(b"0123456789abcdef"):
    _HEX[_byte] = _digit
for _digit, _byte in enumerate(b"ABCDEF"):
    _HEX[_byte] = 10 + _digit

ESCAPES = np.zeros(256, dtype=np.uint8)
for _byte, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    ESCAPES[_byte] = _meaning


@compiled
def hex4(data: Any, at: int, end: int) -> int:
    """Return the value of four hexadecimal digits, or -1."""
    if at + 4 > end:
        return -1
    value = 0
    for offset in range(4):
        digit = _HEX[data[at + offset]]
        if digit == 255:
            return -1
        value = value * 16 + np.int64(digit)
    return value


@compiled
def _end_of_escape(data: Any, at: int, end: int) -> int:
    """Return where an escape ends that begins with this backslash, or -1."""
    if at + 1 >= end:
        return -1
    if data[at + 1] == 117:
        return at + 6 if hex4(data, at + 2, end) >= 0 else -1
    return at + 2 if ESCAPES[data[at + 1]] else -1


@compiled
def end_of_string(data: Any, at: int, end: int) -> tuple[int, bool]:
    """Return where the closing quote is, after the opening one (-1: nowhere), and whether there are escapes."""
    first, escaped = np.int64(data.ctypes.data), False
    while at + 64 <= end:
        stops, block = find_string_stops(first + at), at
        at += 64
        while stops != np.uint64(0):
            place = block + lowest_bit(stops)
            if data[place] != BACKSLASH:
                return (place if data[place] == QUOTE else -1), escaped
            escaped = True
            after = _end_of_escape(data, place, end)
            if after < 0:
                return -1, escaped
            if after >= block + 64:
                at = after
                break
            stops &= _EVERY << np.uint64(after - block)
    while at < end:
        if not _SPECIAL[data[at]]:
            at += 1
            continue
        if data[at] != BACKSLASH:
            return (at if data[at] == QUOTE else -1), escaped
        escaped = True
        at = _end_of_escape(data, at, end)
        if at < 0:
            return -1, escaped
    return -1, escaped


@compiled
def copy_plain(data: Any, at: int, end: int, out: Any, to: int) -> int:
    """Copy bytes up to the first backslash, 64 at a time, and return how many; 63 more may be written."""
    source, target = np.int64(data.ctypes.data), np.int64(out.ctypes.data)
    start = at
    while at + 64 <= end:
        copy_block(target + to + at - start, source + at)
        found = find_backslashes(source + at)
        if found != np.uint64(0):
            return at + lowest_bit(found) - start
        at += 64
    while at < end and data[at] != BACKSLASH:
        out[to + at - start] = data[at]
        at += 1
    return at - start


@compiled
def put(out: Any, to: int, code: int) -> int:
    """Write one code point as UTF-8, a lone surrogate as U+FFFD, and return where the next one goes."""
    if 0xD800 <= code <= 0xDFFF:
        code = 0xFFFD
    if code < 0x80:
        out[to] = code
        return to + 1
    if code < 0x800:
        out[to], out[to + 1] = 0xC0 | code >> 6, 0x80 | code & 63
        return to + 2
    if code < 0x10000:
        out[to], out[to + 1], out[to + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63, 0x80 | code & 63
        return to + 3
    out[to], out[to + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
    out[to + 2], out[to + 3] = 0x80 | code >> 6 & 63, 0x80 | code & 63
    return to + 4
