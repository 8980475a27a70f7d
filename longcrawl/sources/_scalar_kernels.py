"""What JSON is made of, for the kernels beside this file: strings and their characters, numbers and words."""

# A test of bytes is one long chain of cases:
# ruff: noqa: C901, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    copy_block,
    find_continuations,
    find_high,
    find_leads_of_three,
    find_least_leads,
    find_low_continuations,
    find_rare_leads,
    find_string_stops,
    find_surrogate_leads,
    lowest_bit,
    put_byte,
    put_four,
)

QUOTE, BACKSLASH, MINUS, DOT = 34, 92, 45, 46

_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)

_HEX = np.full(256, 255, dtype=np.uint8)
for _digit, _byte in enumerate(b"0123456789abcdef"):
    _HEX[_byte] = _digit
for _digit, _byte in enumerate(b"ABCDEF"):
    _HEX[_byte] = 10 + _digit

ESCAPES = np.zeros(256, dtype=np.uint8)
for _byte, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    ESCAPES[_byte] = _meaning


_POWERS = np.array([10.0**_exponent for _exponent in range(23)])


@compiled
def _hex4(data: Any, at: int, end: int) -> int:
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
def _read_code(data: Any, at: int, end: int, out: int) -> tuple[int, int]:
    r"""Read ``\uXXXX``, or two that are one character: where it ends (-1: it is none), and where its UTF-8 does.

    A lone surrogate is written as U+FFFD. Four bytes may be written; nothing is where ``out`` is 0.
    """
    code = _hex4(data, at + 2, end) if at + 1 < end and data[at + 1] == 117 else -1
    if code < 0:
        return -1, out
    at += 6
    if 0xD800 <= code < 0xDC00 and at + 1 < end and data[at] == BACKSLASH and data[at + 1] == 117:
        low = _hex4(data, at + 2, end)
        if 0xDC00 <= low < 0xE000:
            code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00))
            at += 6
    if 0xD800 <= code <= 0xDFFF:
        code = 0xFFFD
    if code < 0x80:
        spelled, size = code, 1
    elif code < 0x800:
        spelled, size = 0x80C0 | code >> 6 | (code & 63) << 8, 2
    elif code < 0x10000:
        spelled, size = 0x8080E0 | code >> 12 | (code >> 6 & 63) << 8 | (code & 63) << 16, 3
    else:
        spelled = 0x808080F0 | code >> 18 | (code >> 12 & 63) << 8 | (code >> 6 & 63) << 16 | (code & 63) << 24
        size = 4
    if out == 0:
        return at, out
    put_four(out, spelled)
    return at, out + size


@compiled
def _character_bytes(data: Any, at: int, end: int) -> int:
    """Return how many bytes the character beyond ASCII has that begins here; 0: it is not UTF-8 (RFC 3629, 4)."""
    lead = data[at]
    size = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0
    if at + size > end:
        return 0
    least = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    most = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    for place in range(at + 1, at + size):
        if data[place] < least or data[place] > most:
            return 0
        least, most = 0x80, 0xBF
    return size


@compiled
def is_utf8(data: Any, start: int, end: int) -> bool:
    """Return whether bytes are UTF-8, looking at 64 at a time.

    Continuation bytes have to stand where the bytes that begin characters ask for them, and nowhere else. What bits
    cannot say of a character of four bytes, and of bytes that begin none, is looked at one by one.
    """
    first, at = np.int64(data.ctypes.data), start
    second = third = fourth = least = surrogate = np.uint64(0)
    while at < end and at + 64 <= len(data):
        kept = _EVERY if at + 64 <= end else (np.uint64(1) << np.uint64(end - at)) - np.uint64(1)
        high = find_high(first + at) & kept
        if high | second | third | fourth != np.uint64(0):
            following = find_continuations(first + at) & kept
            leads, long_leads = high & ~following, find_leads_of_three(first + at) & kept
            rare = find_rare_leads(first + at) & kept
            wanted = leads << np.uint64(1) | second | long_leads << np.uint64(2) | third
            wanted |= (rare & long_leads) << np.uint64(3) | fourth
            if wanted != following:
                return False
            second, third = leads >> np.uint64(63), long_leads >> np.uint64(62)
            fourth = (rare & long_leads) >> np.uint64(61)
            if long_leads | least | surrogate != np.uint64(0):
                low = find_low_continuations(first + at)
                all_least, all_surrogate = find_least_leads(first + at) & kept, find_surrogate_leads(first + at) & kept
                below, above = all_least << np.uint64(1) | least, all_surrogate << np.uint64(1) | surrogate
                if (below & low) | (above & ~low) != np.uint64(0):
                    return False
                least, surrogate = all_least >> np.uint64(63), all_surrogate >> np.uint64(63)
            while rare != np.uint64(0):
                if _character_bytes(data, at + lowest_bit(rare), end) == 0:
                    return False
                rare &= rare - np.uint64(1)
        at += 64
    if second | third | fourth != np.uint64(0):  # the blocks end within a character
        if at >= end:
            return False
        at -= 1
        while data[at] < 0xC0:
            at -= 1
    while at < end:
        size = 1 if data[at] < 128 else _character_bytes(data, at, end)
        if size == 0:
            return False
        at += size
    return True


@compiled
def read_string(data: Any, at: int, end: int, out: int) -> tuple[int, int, bool]:
    r"""Read a string behind its opening quote, and write its characters, ``\n`` and its like resolved.

    Args:
        data: uint8 [bytes].
        at: the first byte of the string.
        end: where the data ends, at the latest.
        out: an address to write to, 0 for none. A string is no longer than it is spelled; up to 64 bytes behind it may
            be written.

    Returns:
        Where the closing quote is (-1: nowhere, or the string is not JSON), one past the last byte that was written,
        and whether there are escapes. Whether bytes are UTF-8 is not looked at.
    """
    first, escaped, writes = np.int64(data.ctypes.data), False, out != 0
    while at + 128 <= end:  # what follows an escape in a block is read 64 bytes at a time, too
        stops, block, begin = find_string_stops(first + at), at, at
        at += 64
        while stops != np.uint64(0):
            place = block + lowest_bit(stops)
            if writes:
                copy_block(out, first + begin)
                out += place - begin
            if data[place] != BACKSLASH:
                return (place if data[place] == QUOTE else -1), out, escaped
            escaped = True
            begin = place + 2
            meaning = ESCAPES[data[place + 1]] if begin <= end else np.uint8(0)
            if meaning == 0:
                begin, out = _read_code(data, place, end, out)
                if begin < 0:
                    return -1, out, escaped
            elif writes:
                put_byte(out, np.int64(meaning))
                out += 1
            if begin >= block + 64:
                at = begin
                break
            stops &= _EVERY << np.uint64(begin - block)
        if writes and begin < at:
            copy_block(out, first + begin)
            out += at - begin
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            return at, out, escaped
        after = at + 1
        if byte == BACKSLASH:
            escaped = True
            byte = ESCAPES[data[after]] if after < end else np.uint8(0)
            after += 1
            if byte == 0:
                after, out = _read_code(data, at, end, out)
                if after < 0:
                    return -1, out, escaped
        elif byte < 32:
            return -1, out, escaped
        if writes and byte != 0:
            put_byte(out, np.int64(byte))
            out += 1
        at = after
    return -1, out, escaped


@compiled
def read_number(data: Any, at: int, end: int) -> tuple[float, int, bool]:
    """Read a JSON number: its value, where it ends (-1: it is none), and whether the value is exact.

    Exact means correctly rounded: at most 2**53 over or times at most 10**22 takes one rounding (Clinger, 1990).
    """
    start = at
    negative = at < end and data[at] == MINUS
    at += negative
    first = at
    mantissa, digits, exponent = np.uint64(0), 0, 0
    while at < end and 48 <= data[at] <= 57:
        mantissa = mantissa * np.uint64(10) + np.uint64(data[at] - 48)
        digits += mantissa > np.uint64(0)
        at += 1
    if at == first or (data[first] == 48 and at > first + 1):
        return 0.0, -1, False
    if at < end and data[at] == DOT:
        at += 1
        first = at
        while at < end and 48 <= data[at] <= 57:
            mantissa = mantissa * np.uint64(10) + np.uint64(data[at] - 48)
            digits += mantissa > np.uint64(0)
            exponent -= 1
            at += 1
        if at == first:
            return 0.0, -1, False
    if at < end and (data[at] == 101 or data[at] == 69):
        at += 1
        sign = 1
        if at < end and (data[at] == 43 or data[at] == MINUS):
            sign = -1 if data[at] == MINUS else 1
            at += 1
        first, power = at, 0
        while at < end and 48 <= data[at] <= 57:
            power = min(power * 10 + np.int64(data[at] - 48), 1 << 20)
            at += 1
        if at == first:
            return 0.0, -1, False
        exponent += sign * power
    if digits > 18 or mantissa > np.uint64(1 << 53) or exponent > 22 or exponent < -22 or at == start:
        return np.nan, at, False
    value = np.float64(mantissa)
    value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    return (-value if negative else value), at, True


@compiled
def end_of_word(data: Any, at: int, end: int) -> int:
    """Return where ``true``, ``false`` or ``null`` ends, or -1."""
    if at + 4 <= end and data[at] == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4
    if at + 4 <= end and data[at] == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4
    if (
        at + 5 <= end
        and data[at] == 102
        and data[at + 1] == 97
        and data[at + 2] == 108
        and data[at + 3] == 115
        and data[at + 4] == 101
    ):
        return at + 5
    return -1
