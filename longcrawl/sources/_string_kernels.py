"""JSON strings for the kernels beside this file: where they end, and their characters as UTF-8."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import eight_at, lowest_bit, put_eight

QUOTE, BACKSLASH = 34, 92

_U = np.uint64
_ONES, _HIGH = _U(0x0101010101010101), _U(0x8080808080808080)

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
def _plain_end(data: Any, at: int, end: int) -> int:
    """Return where the first quote, backslash or control character is, eight bytes at a time."""
    first = np.int64(data.ctypes.data)
    while at + 8 <= end:
        eight = eight_at(first + at)
        quotes, backslashes = eight ^ (_U(QUOTE) * _ONES), eight ^ (_U(BACKSLASH) * _ONES)
        # Subtracting borrows from bytes above a small one only: the lowest bit that is found is right.
        small = ((eight - _U(32) * _ONES) & ~eight) | ((quotes - _ONES) & ~quotes)
        found = (small | ((backslashes - _ONES) & ~backslashes)) & _HIGH
        if found != _U(0):
            return at + (lowest_bit(found) >> 3)
        at += 8
    while at < end and not _SPECIAL[data[at]]:
        at += 1
    return at


@compiled
def end_of_string(data: Any, at: int, end: int) -> tuple[int, bool]:
    """Return where the closing quote is, after the opening one (-1: nowhere), and whether there are escapes."""
    escaped = False
    while at < end:
        at = _plain_end(data, at, end)
        if at >= end or data[at] < 32:
            return -1, escaped
        if data[at] == QUOTE:
            return at, escaped
        escaped = True
        if at + 1 >= end:
            return -1, escaped
        if data[at + 1] == 117:
            if hex4(data, at + 2, end) < 0:
                return -1, escaped
            at += 6
        elif ESCAPES[data[at + 1]]:
            at += 2
        else:
            return -1, escaped
    return -1, escaped


@compiled
def copy_plain(data: Any, at: int, end: int, out: Any, to: int) -> int:
    """Copy bytes up to the first backslash, eight at a time, and return how many; seven more may be written."""
    source, target = np.int64(data.ctypes.data), np.int64(out.ctypes.data)
    start = at
    while at + 8 <= end:
        eight = eight_at(source + at)
        put_eight(target + to + at - start, eight)
        backslashes = eight ^ (_U(BACKSLASH) * _ONES)
        found = (backslashes - _ONES) & ~backslashes & _HIGH
        if found != _U(0):
            return at + (lowest_bit(found) >> 3) - start
        at += 8
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
