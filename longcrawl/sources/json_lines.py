"""JSON lines as Arrow columns, read by compiled kernels with Python's ``json`` as the fallback.

The kernels handle the common form of a line exactly and pass every other line to Python's ``json``, which accepts every
line that the kernels accept and returns the same values, as the tests check. A lone surrogate escape (``U+D800``)
becomes U+FFFD, and the last value of a repeated key counts.

Kernels share these arrays: ``data`` (uint8 [bytes], the text of all lines); of one field, ``spans`` (int64 [lines, 2],
the first byte of each value and one past its last, without quotes) and ``kinds`` (uint8 [lines], ``ABSENT`` to
``NESTED``); and ``status`` (uint8 [lines], 0 if the line was understood, else ``OTHER``, ``BLANK`` or ``INEXACT``).
"""

# Inside kernels ints and numpy ints are one type, which mypy cannot know, so these codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return"
# ruff: noqa: C901, FBT001, PLR0911, PLR0912

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.fields import MISSING, find_value, names_in
from longcrawl.errors import listed, listed_with_near
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    copy_block,
    find_continuations,
    find_high,
    find_leads_of_three,
    find_least_leads,
    find_line_feeds,
    find_low_continuations,
    find_rare_leads,
    find_string_stops,
    find_surrogate_leads,
    four_at,
    lowest_bit,
    put_byte,
    put_four,
)
from longcrawl.sources.blocks import BLOCK_BYTES, STEP_BYTES
from longcrawl.sources.compressed import LARGE_BYTES
from longcrawl.sources.files import DamagedFileError

QUOTE, BACKSLASH, MINUS, DOT = 34, 92, 45, 46
_NULL, _TRUE, _FALS = (int.from_bytes(word, "little") for word in (b"null", b"true", b"fals"))

_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)

_HEX = np.full(256, 255, dtype=np.uint8)
_HEX[list(b"0123456789abcdef")] = range(16)
_HEX[list(b"ABCDEF")] = range(10, 16)

ESCAPES = np.zeros(256, dtype=np.uint8)
ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')

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
    r"""Decode ``\uXXXX`` or a surrogate pair, and write the character as UTF-8, U+FFFD for a lone surrogate.

    Four bytes may be written; nothing is written if ``out`` is 0. Returns the position after the escape, or -1 if it is
    invalid, and the address after the written character.
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
    """Return the length of the character beyond ASCII at a position, or 0 if it is not UTF-8 (RFC 3629, section 4)."""
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
def _is_utf8_span(data: Any, start: int, end: int) -> bool:
    """Return whether bytes are UTF-8, checking 64 at a time.

    Continuation bytes must occur exactly where the leading bytes require them. The bit masks are not enough for
    characters of four bytes and bytes that begin no character, which are checked one by one.
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
    if second | third | fourth != np.uint64(0):  # the 64-byte blocks end within a character
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
    """Read a JSON string after its opening quote at ``at``, and write it with its escapes resolved.

    ``out`` is an address to write to, or 0 for none; a string is never longer than its source, but up to 64 bytes after
    it may be overwritten. Returned are the position of the closing quote (-1 if there is none or the string is not
    valid JSON), the address after the last byte written, and whether the string has escapes. UTF-8 is not checked.
    """
    first, escaped, writes = np.int64(data.ctypes.data), False, out != 0
    while at + 128 <= end:  # the rest of a block after an escape is also read 64 bytes at a time
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
    """Read a JSON number, and return its value, its end (-1 if it is not a number) and whether the value is exact.

    Exact means correctly rounded: digits up to 2**53 times or over a power of ten up to 10**22 (Clinger, 1990).
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
    """Return the position after ``true``, ``false`` or ``null``, or -1."""
    if at + 4 > end:
        return -1
    word = four_at(np.int64(data.ctypes.data) + at)
    if word in (_NULL, _TRUE):
        return at + 4
    return at + 5 if word == _FALS and at + 5 <= end and data[at + 4] == 101 else -1


ABSENT, NULL, PLAIN, ESCAPED, NUMBER, LITERAL, NESTED = range(7)
"""Kinds of field values: absent, null, text without or with escapes, number, true or false, and list or object."""
OTHER, BLANK, INEXACT = 1, 2, 3
"""Line statuses: not understood, white space only, and understood except for a value that Python has to read."""
COMMA, COLON = 44, 58
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125


@compiled
def skip_space(data: Any, at: int, end: int) -> int:
    """Return the position of the next token of a line; a line feed is not skipped."""
    while at < end and (data[at] == 32 or data[at] == 9 or data[at] == 13):
        at += 1
    return at


@compiled
def _scalar(data: Any, at: int, end: int) -> tuple[int, int]:
    """Return the end (-1 if not understood) and kind of the value at a position; no lists or objects."""
    if at >= end:
        return -1, ABSENT
    if data[at] == QUOTE:
        close, _, escaped = read_string(data, at + 1, end, 0)
        return (close + 1 if close >= 0 else -1), (ESCAPED if escaped else PLAIN)
    if data[at] == MINUS or 48 <= data[at] <= 57:
        return read_number(data, at, end)[1], NUMBER
    after = end_of_word(data, at, end)
    return after, (NULL if data[at] == 110 else LITERAL)


@compiled
def read_key(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """Read ``"key" :``, and return the start and end of the key and the start of its value (-1 if not understood)."""
    at = skip_space(data, at, end)
    if at >= end or data[at] != QUOTE:
        return 0, 0, -1
    close, _, escaped = read_string(data, at + 1, end, 0)
    if close < 0 or escaped:
        return 0, 0, -1
    after = skip_space(data, close + 1, end)
    if after >= end or data[after] != COLON:
        return 0, 0, -1
    return at + 1, close, skip_space(data, after + 1, end)


@compiled
def end_of_value(data: Any, at: int, end: int) -> tuple[int, int]:
    """Return the end (-1 if not understood) and kind of the value at a position, checking nested values."""
    if at < end and data[at] != OPEN_LIST and data[at] != OPEN_OBJECT:
        return _scalar(data, at, end)
    depth, kinds = 0, np.uint64(0)
    while True:
        at = skip_space(data, at, end)
        if at >= end or depth > 60:
            return -1, NESTED
        opened = data[at] == OPEN_LIST or data[at] == OPEN_OBJECT
        if opened:
            is_object = data[at] == OPEN_OBJECT
            depth += 1
            kinds = kinds * np.uint64(2) + np.uint64(is_object)
            at = skip_space(data, at + 1, end)
            if at >= end:
                return -1, NESTED
            empty = data[at] == (CLOSE_OBJECT if is_object else CLOSE_LIST)
            if not empty:
                if is_object:
                    at = read_key(data, at, end)[2]
                    if at < 0:
                        return -1, NESTED
                continue
        else:
            at = _scalar(data, at, end)[0]
            if at < 0:
                return -1, NESTED
        while True:
            at = skip_space(data, at, end)
            if at >= end:
                return -1, NESTED
            in_object = kinds % np.uint64(2) == np.uint64(1)
            if data[at] == COMMA:
                at += 1
                if in_object:
                    at = read_key(data, at, end)[2]
                    if at < 0:
                        return -1, NESTED
                break
            if data[at] != (CLOSE_OBJECT if in_object else CLOSE_LIST):
                return -1, NESTED
            at += 1
            depth -= 1
            kinds //= np.uint64(2)
            if depth == 0:
                return at, NESTED


@compiled
def _likely_end(data: Any, at: int, end: int) -> int:
    """Return the end of the list or object at a position, or -1.

    If the line ends in ``}}``, the end is guessed to be before the last brace, and the caller has to check that.
    """
    last = end
    while last > at and (data[last - 1] == 32 or data[last - 1] == 9 or data[last - 1] == 13):
        last -= 1
    if last - at >= 3 and data[last - 1] == CLOSE_OBJECT and data[last - 2] == CLOSE_OBJECT:
        return last - 1
    return end_of_value(data, at, end)[0]


@compiled
def find_name(data: Any, start: int, end: int, names: Any, offsets: Any, guess: int) -> int:
    """Return the index of the name that equals ``data[start:end]``, trying ``guess`` first, or -1."""
    count = len(offsets) - 1
    for turn in range(count):
        index = (guess + turn) % count
        length = offsets[index + 1] - offsets[index]
        if length != end - start:
            continue
        same = True
        for offset in range(length):
            if data[start + offset] != names[offsets[index] + offset]:
                same = False
                break
        if same:
            return index
    return -1


@compiled
def find_line_feed(data: Any, at: int) -> int:
    """Return the position of the next line feed, or the end of the data."""
    first = np.int64(data.ctypes.data)
    while at + 64 <= len(data):
        found = find_line_feeds(first + at)
        if found != np.uint64(0):
            return at + lowest_bit(found)
        at += 64
    while at < len(data) and data[at] != 10:
        at += 1
    return at


@compiled
def _copy(data: Any, at: int, end: int, out: int) -> None:
    """Copy bytes to an address; up to 63 bytes after them may be overwritten."""
    first = np.int64(data.ctypes.data)
    while at + 64 <= len(data) and at < end:
        copy_block(out, first + at)
        at, out = at + 64, out + 64
    for place in range(at, end):
        put_byte(out + place - at, np.int64(data[place]))


@compiled
def _read_value(data: Any, at: int, out: int) -> tuple[int, int, int]:
    """Read a value as text, and return its end (-1 if not understood), its kind and the number of bytes written."""
    if at < len(data) and data[at] == QUOTE:
        close, written, _ = read_string(data, at + 1, len(data), out)
        return (close + 1 if close >= 0 else -1), PLAIN, written - out
    after, kind = end_of_value(data, at, len(data))
    if after < 0 or kind == NESTED:
        return -1, kind, 0
    if kind == NULL:
        return after, kind, 0
    _copy(data, at, after, out)
    return after, kind, after - at


@compiled
def read_line(
    data: Any, at: int, names: Any, offsets: Any, unchecked: int, addresses: Any, filled: Any, spans: Any, kinds: Any
) -> int:
    """Find the wanted fields of one line; see :func:`_find_fields`, of whose rows ``spans`` and ``kinds`` are one.

    Returns the end of the line, -1 if it was not understood, or -2 if it is blank.
    """
    end = len(data)
    at = skip_space(data, at, end)
    if at >= end or data[at] != OPEN_OBJECT:
        return -2 if at >= end or data[at] == 10 else -1
    at = skip_space(data, at + 1, end)
    more = not (at < end and data[at] == CLOSE_OBJECT)
    guess = 0
    while more:
        key_start, key_end, at = read_key(data, at, end)
        if at < 0:
            return -1
        value_start, kind = at, NESTED
        index = find_name(data, key_start, key_end, names, offsets, guess)
        if index >= 0 and addresses[index] != 0:
            at, kinds[index], size = _read_value(data, at, addresses[index] + filled[index])
            spans[index, 1] = filled[index] + size
        elif index >= 0:
            if index == unchecked and at < end and (data[at] == OPEN_LIST or data[at] == OPEN_OBJECT):
                at = _likely_end(data, at, find_line_feed(data, at)) if kinds[index] == ABSENT else -1
            else:
                at, kind = end_of_value(data, at, end)
            quote = kind in (PLAIN, ESCAPED)
            spans[index, 0], spans[index, 1] = value_start + quote, at - quote
            kinds[index] = kind
        else:
            at, _ = end_of_value(data, at, end)
        if at < 0:
            return -1
        guess = index + 1 if index >= 0 else guess
        at = skip_space(data, at, end)
        if at >= end or (data[at] != COMMA and data[at] != CLOSE_OBJECT):
            return -1
        more = data[at] == COMMA
        at += more
    at = skip_space(data, at + 1, end)
    return at if at >= end or data[at] == 10 else -1


@compiled
def _find_fields(
    data: Any,
    at: int,
    names: Any,
    offsets: Any,
    unchecked: int,
    addresses: Any,
    required: Any,
    filled: Any,
    starts: Any,
    ends: Any,
    spans: Any,
    kinds: Any,
    status: Any,
) -> int:
    """Find the wanted top-level fields of some lines, write the text fields, and return the number of lines read.

    ``names`` and ``offsets`` are of :func:`pack`; ``required`` and ``unchecked`` of :func:`find_fields`. ``addresses``,
    int64 [names], are where to write the texts of each field, with room for all bytes of the data from ``at`` on and 64
    more, or 0 for other fields; ``filled``, int64 [names], the bytes already written there, is updated. Written are
    ``starts`` and ``ends``, int64 [lines], the bounds of each line, ``spans`` (among the written texts for a field with
    written texts), ``kinds`` (a written text is ``PLAIN``) and ``status``.
    """
    line = 0
    while line < len(starts) and at < len(data):
        for index in range(len(required)):
            kinds[line, index] = ABSENT
            spans[line, index, 0] = spans[line, index, 1] = filled[index]
        after = read_line(data, at, names, offsets, unchecked, addresses, filled, spans[line], kinds[line])
        status[line] = BLANK if after == -2 else OTHER if after < 0 else 0
        starts[line], ends[line] = at, (after if after >= 0 else find_line_feed(data, at))
        for index in range(len(required)):
            if required[index] and kinds[line, index] <= NULL and status[line] == 0:
                status[line] = OTHER
        if status[line] == 0 and not _is_utf8_span(data, at, ends[line]):
            status[line] = OTHER
        if status[line] == 0:
            for index in range(len(required)):
                filled[index] = spans[line, index, 1] if addresses[index] != 0 else 0
        at = ends[line] + 1
        line += 1
    return line


@compiled
def parse_numbers(data: Any, spans: Any, kinds: Any, values: Any, exact: Any) -> None:
    """Read the numbers of one field, and write ``values`` and ``exact``.

    They are float64 [lines], NaN if absent, and bool [lines], whether the number is correctly rounded.
    """
    for line in range(len(spans)):
        values[line], exact[line] = np.nan, True
        if kinds[line] == NUMBER:
            values[line], _, exact[line] = read_number(data, spans[line, 0], spans[line, 1])
        elif kinds[line] > NULL:
            exact[line] = False


@compiled
def _find_in_object(data: Any, at: int, step: Any) -> tuple[int, int, int]:
    """Return start, end and kind of a field in a checked object, of a repeated key the last."""
    end, start, stop, found = len(data), 0, 0, ABSENT
    at = skip_space(data, at + 1, end)
    while data[at] != CLOSE_OBJECT:
        key_start, key_end, at = read_key(data, at, end)
        same = key_end - key_start == len(step)
        place = 0
        while same and place < len(step):
            same = data[key_start + place] == step[place]
            place += 1
        after, kind = end_of_value(data, at, end)
        if same:
            start, stop, found = at, after, kind
        at = skip_space(data, after, end)
        if data[at] == COMMA:
            at = skip_space(data, at + 1, end)
    return start, stop, found


@compiled
def find_nested(
    data: Any, steps: Any, offsets: Any, status: Any, root_spans: Any, root_kinds: Any, spans: Any, kinds: Any
) -> None:
    """Find a field inside objects, in the lines that have no field of its full dotted name.

    ``steps`` (uint8) and ``offsets`` are its names after the first step, see :func:`pack`; ``root_spans`` and
    ``root_kinds`` are those of the first step. ``spans`` and ``kinds`` are written for lines in which it is found.
    """
    for line in range(len(status)):
        if status[line] != 0 or kinds[line] != ABSENT:
            continue
        start, stop, kind = root_spans[line, 0], root_spans[line, 1], np.int64(root_kinds[line])
        for step in range(len(offsets) - 1):
            if kind != NESTED or data[start] != OPEN_OBJECT:
                kind = ABSENT
                break
            start, stop, kind = _find_in_object(data, start, steps[offsets[step] : offsets[step + 1]])
        if kind != ABSENT:
            quote = kind in (PLAIN, ESCAPED)
            spans[line, 0], spans[line, 1], kinds[line] = start + quote, stop - quote, kind


@compiled
def write_values(data: Any, required: bool, address: int, filled: int, status: Any, spans: Any, kinds: Any) -> int:
    """Write the values of one field as text, and return the total number of bytes written.

    Lines without a value are left to Python if ``required``: their status becomes ``INEXACT``. Of ``spans``, the second
    is overwritten with the end of the written text, and the ``kinds`` of written texts become ``PLAIN``. ``address`` is
    where ``filled`` bytes have already been written, with room for the values and 64 more bytes.
    """
    for line in range(len(status)):
        kind, size = kinds[line], 0
        if status[line] == 0:
            start, stop = spans[line, 0], spans[line, 1]
            if kind == NESTED or (required and kind <= NULL):
                status[line] = INEXACT
            elif kind in (PLAIN, ESCAPED):
                size = read_string(data, start, len(data), address + filled)[1] - (address + filled)
                kinds[line] = PLAIN
            elif kind > NULL:
                _copy(data, start, stop, address + filled)
                size = stop - start
                kinds[line] = PLAIN
        filled += size
        spans[line, 1] = filled
    return filled


_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = " \t\n\r"
_LIKELY_LINE = 500
"""Bytes of a likely line; a piece is read in steps of as many lines as it has at this length."""


@dataclass(frozen=True)
class Lines:
    """Rows read from the lines of one block."""

    table: pa.Table
    numbers: npt.NDArray[np.int64]
    """Line number of each row, counted from 0 within the block, including blank and unreadable lines."""
    lost: list[tuple[int, str]]
    """Number of each line that could not be read, and the reason; blank lines are not listed."""
    count: int
    starts: npt.NDArray[np.int64] | None = None
    """Byte offset of each row's line in the block, or None if rows are not lines."""


@dataclass(frozen=True)
class Found:
    """Positions of the wanted fields in every line of a block."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    """[lines, names, 2], see the docstring of this module."""
    kinds: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]

    def line(self, number: int) -> bytes:
        """Return the bytes of one line."""
        return self.data[self.starts[number] : self.ends[number]].tobytes()


class Spelled(str):
    """A number of a JSON text, in its original spelling."""

    __slots__ = ()


class _Nested(NamedTuple):
    place: int
    root_place: int
    """Index of the first step among the names searched for in lines."""
    steps: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]


def read_lines(block: bytes | memoryview, schema: pa.Schema) -> Lines:
    """Read the fields of a schema from every line of a block; see :class:`LineReader`."""
    reader = LineReader(schema)
    reader.add(block)
    return reader.take()


class LineReader:
    """Reader of the fields of a schema from lines, added piece by piece, into one table.

    ``string`` and ``large_string`` columns accept texts, and also numbers, true and false in their original spelling;
    ``int64`` and ``float64`` columns accept numbers. A line is lost if it is not a JSON object, if a field holds
    anything else, or if a field that is not nullable is null or absent. A name with a dot reaches into objects, see
    :mod:`longcrawl.core.documents`.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._nested, places = list[_Nested](), dict[str, int]()
        for place, name in enumerate(schema.names):
            root, *steps = name.split(".")
            if steps and root not in schema.names:  # a field itself is no object
                root_place = places.setdefault(root, len(schema) + len(places))
                self._nested.append(_Nested(place, root_place, *pack(steps)))
        self._names = pack([*schema.names, *places])
        self._texts = [None if _is_number(field.type) else Texts() for field in schema]
        self._of_numbers = [index for index, text in enumerate(self._texts) if text is None]
        # Values of dotted names are written after the first pass.
        late, roots = {field.place for field in self._nested}, len(places)
        self._first = [None if place in late else text for place, text in enumerate(self._texts)] + [None] * roots
        is_first = [not field.nullable and place not in late for place, field in enumerate(schema)]
        self._required = np.array(is_first + [False] * roots)
        self.lines = 0
        """Number of lines added."""
        self.present = set[str]()
        """Fields that occur, with a value or null, in any line taken so far."""
        self._begin()

    def add(self, piece: bytes | memoryview) -> None:
        """Read whole lines; only the last line of a file may lack its line end."""
        data = np.frombuffer(piece, dtype=np.uint8)
        for found in find_fields(data, self._names, self._first, self._required):
            if self._nested:
                self._find_nested(found)
            values = [_numbers(found, index, self._schema[index].type) for index in self._of_numbers]
            numbers, starts = np.arange(self.lines, self.lines + len(found.starts)), found.starts + self._bytes
            every: list[npt.NDArray[Any]] = [numbers, starts, found.status, found.spans, found.kinds, *values]
            if found.status.any():
                self._add_late(found)
                # A block, or a compressed member of a few kB, can hold millions of blank lines.
                kept = np.flatnonzero((found.status == 0) | (found.status == INEXACT))
                every = [each[kept] for each in every]
            self._found.append(every)
            self.lines += len(found.starts)
        self._bytes += len(data)

    def _find_nested(self, found: Found) -> None:
        for field in self._nested:
            spans = np.ascontiguousarray(found.spans[:, field.place])
            kinds = np.ascontiguousarray(found.kinds[:, field.place])
            root_spans = np.ascontiguousarray(found.spans[:, field.root_place])
            root_kinds = np.ascontiguousarray(found.kinds[:, field.root_place])
            find_nested(found.data, field.steps, field.offsets, found.status, root_spans, root_kinds, spans, kinds)
            required, understood = not self._schema[field.place].nullable, found.status == 0
            if (text := self._texts[field.place]) is not None:
                address = text.room(int((spans[:, 1] - spans[:, 0])[understood].sum()) + 64)
                text.size = write_values(found.data, required, address, text.size, found.status, spans, kinds)
            elif required:
                found.status[understood & (kinds <= NULL)] = INEXACT
            found.spans[:, field.place], found.kinds[:, field.place] = spans, kinds

    def take(self) -> Lines:
        """Return the lines added since the last call."""
        if not self._found:
            self.add(b"")
        tables, every_number, every_start = zip(self._understood(), *self._late, strict=True)
        table, numbers, starts = tables[0], np.concatenate(every_number), np.concatenate(every_start)
        if self._late:
            order = np.argsort(numbers)
            table = pa.concat_tables(tables).take(order).combine_chunks()
            numbers, starts = numbers[order], starts[order]
        lines = Lines(table, numbers - self._begun, self._lost, self.lines - self._begun, starts)
        self._begin()
        return lines

    def _begin(self) -> None:
        self._begun, self._bytes = self.lines, 0
        self._lost: list[tuple[int, str]] = []
        self._found: list[list[npt.NDArray[Any]]] = []
        """Numbers, byte offsets, status, spans, kinds and values of number columns of the lines read by kernels."""
        self._late: list[tuple[pa.Table, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        """Rows read by Python, with the line number and byte offset of each."""

    def _understood(self) -> tuple[pa.Table, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the lines that the kernels understood, with the line number and byte offset of each."""
        numbers, starts, status, spans, kinds, *values = (
            np.concatenate(each) for each in zip(*self._found, strict=True)
        )
        has = (kinds[:, : len(self._schema)] != ABSENT).any(axis=0)
        self.present.update(name for name, here in zip(self._schema.names, has.tolist(), strict=True) if here)
        arrays, of_numbers = list[pa.Array](), iter(values)
        for index, (field, text) in enumerate(zip(self._schema, self._texts, strict=True)):
            absent = kinds[:, index] <= NULL
            if text is None:
                arrays.append(pa.array(next(of_numbers), mask=absent).cast(field.type))
            else:
                arrays.append(text.take(spans[:, index, 1], absent).cast(field.type))
        table, exact = pa.table(arrays, schema=self._schema), status == 0
        if not exact.all():
            table, numbers, starts = table.filter(pa.array(exact)), numbers[exact], starts[exact]
        return table, numbers, starts

    def _add_late(self, found: Found) -> None:
        """Read the lines that only Python's ``json`` can read."""
        rows, places = list[dict[str, Any]](), list[int]()
        for place in np.flatnonzero((found.status != 0) & (found.status != BLANK)).tolist():
            try:
                record = parse_object(found.line(place))
                self.present.update(name for name in self._schema.names if find_value(record, name) is not MISSING)
                rows.append({field.name: _value(record, field) for field in self._schema})
                places.append(place)
            except ValueError as error:
                self._lost.append((place + self.lines - self._begun, str(error)))
        if rows:
            table, numbers = pa.Table.from_pylist(rows, schema=self._schema), np.array(places) + self.lines
            self._late.append((table, numbers, found.starts[places] + self._bytes))


class Texts:
    """Concatenated texts of one field, in an array that kernels write to."""

    def __init__(self) -> None:
        self._array, self.size = np.empty(0, np.uint8), 0

    def room(self, count: int) -> int:
        """Return the address of the array after making room for ``count`` more bytes."""
        if len(self._array) < self.size + count:
            is_large = self.size > count // 8
            size = max(LARGE_BYTES if is_large else 0, (self.size + count) * 5 // 4)
            longer = np.frombuffer(pa.allocate_buffer(size), np.uint8)
            longer[: self.size] = self._array[: self.size]
            self._array = longer
        return int(self._array.ctypes.data)

    def take(self, ends: npt.NDArray[np.int64], absent: npt.NDArray[np.bool_]) -> pa.LargeStringArray:
        """Return the texts with these ends, and start again; a few short texts do not keep a long array alive."""
        written, self.size = self._array[: self.size], 0
        if len(written) < len(self._array) // 4:
            written = written.copy()
        else:
            self._array = np.empty(0, np.uint8)
        offsets = pa.py_buffer(np.concatenate([np.zeros(1, np.int64), ends]))
        bitmap = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
        return pa.LargeStringArray.from_buffers(len(ends), offsets, pa.py_buffer(written), bitmap)


def find_fields(
    data: npt.NDArray[np.uint8],
    names: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]],
    texts: "Sequence[Texts | None]",
    required: npt.NDArray[np.bool_],
    unchecked: int = -1,
) -> Iterator[Found]:
    """Find the values of fields in lines, some hundred lines at a time, and write the texts among them.

    Args:
        data: whole lines; only the last line of a file may lack its line end.
        names: the fields, see :func:`pack`.
        texts: buffer for the texts of each field, or None to get their positions instead.
        required: fields without which a line is not understood.
        unchecked: index of the field whose list or object, with its end, the caller checks itself; -1 for none.
    """
    at, count = 0, -1
    while at < len(data) or count < 0:
        room = len(data) - at
        lines = room // _LIKELY_LINE + 16
        spans, kinds = np.empty((lines, len(texts), 2), np.int64), np.empty((lines, len(texts)), np.uint8)
        starts, ends, status = np.empty(lines, np.int64), np.empty(lines, np.int64), np.empty(lines, np.uint8)
        addresses = np.array([0 if text is None else text.room(room + 64) for text in texts], np.int64)
        filled = np.array([0 if text is None else text.size for text in texts], np.int64)
        count = _find_fields(
            data, at, *names, unchecked, addresses, required, filled, starts, ends, spans, kinds, status
        )
        for text, size in zip(texts, filled.tolist(), strict=True):
            if text is not None:
                text.size = size
        yield Found(data, starts[:count], ends[:count], spans[:count], kinds[:count], status[:count])
        at = int(ends[count - 1]) + 1 if count else at


def parse_object(line: bytes) -> dict[str, Any]:
    """Read one line with Python's ``json``, with numbers as :class:`Spelled`; a ValueError gives the reason."""
    try:
        record = json.loads(line.decode(), parse_int=Spelled, parse_float=Spelled, parse_constant=Spelled)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start} of the line)") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at character {error.pos} of the line)") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError(f"holds {_spell(record)}, not an object")  # noqa: TRY004  # the line is wrong, not a caller
    return record


def begins_array(block: bytes | memoryview) -> bool:
    """Return whether a file with this beginning is one array of objects, on any number of lines, not JSON lines."""
    begin = bytes(block[:STEP_BYTES]).lstrip(_SPACE.encode())
    behind = begin[1:].strip(_SPACE.encode())
    return begin[:1] == b"[" and (behind[:1] == b"{" or behind == b"]")


def array_blocks(content: bytes) -> Iterator[bytes]:
    """Yield the values of an array as JSON lines in their original spelling, in blocks of about ``BLOCK_BYTES``.

    DamagedFileError is raised, after the values before it, for content that is not UTF-8 or not one JSON array.
    """
    lines, size, wrong = list[bytes](), 0, ""
    try:
        for value in _values(content):
            # A line feed within a string is escaped, so every line feed here is between tokens.
            lines.append(value.replace("\n", " ").encode())
            size += len(lines[-1])
            if size >= BLOCK_BYTES:
                yield b"\n".join(lines)
                lines, size = [], 0
    except UnicodeDecodeError as error:
        wrong = f"is not UTF-8 ({error.reason} at byte {error.start})"
    except json.JSONDecodeError as error:
        wrong = f"is not JSON ({error.msg} at character {error.pos} of the file)"
    except RecursionError:
        wrong = "is nested too deeply"
    if lines:
        yield b"\n".join(lines)
    if wrong:
        raise DamagedFileError(wrong)


def _values(content: bytes) -> Iterator[str]:
    decoder = json.JSONDecoder(parse_int=Spelled, parse_float=Spelled, parse_constant=Spelled)
    text = content.decode("utf-8-sig")
    at, mark = _after_space(text, 0), "["
    if text[_after_space(text, at + 1) :].startswith("]"):
        at, mark = _after_space(text, at + 1), "]"
    while mark != "]":
        start = _after_space(text, at + 1)
        _, end = decoder.raw_decode(text, start)
        yield text[start:end]
        at = _after_space(text, end)
        mark = text[at : at + 1]
        if mark not in (",", "]"):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    if (end := _after_space(text, at + 1)) < len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def pack(names: Iterable[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return names in the form for kernels: their concatenated bytes, and the start of each."""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *(len(name) for name in encoded)]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(found: Found, index: int, kind: pa.DataType) -> npt.NDArray[np.float64]:
    """Read a column of numbers; a line with a number that is not exact in float64 is left to Python."""
    values = np.empty(len(found.starts), dtype=np.float64)
    exact = np.empty(len(found.starts), dtype=np.bool_)
    spans, kinds = np.ascontiguousarray(found.spans[:, index]), np.ascontiguousarray(found.kinds[:, index])
    parse_numbers(found.data, spans, kinds, values, exact)
    present = kinds > NULL
    if pa.types.is_integer(kind):
        exact &= ~present | ((values == np.floor(values)) & (np.abs(values) < 2**63))
        values[~(present & exact)] = 0
    found.status[~exact & (found.status == 0)] = INEXACT
    return values


def _value(record: dict[str, Any], field: pa.Field) -> Any:
    value = find_value(record, field.name)
    if value is None or value is MISSING:
        if not field.nullable:
            fields = names_in(record)
            if value is MISSING:
                raise ValueError(f"has no field {field.name!r}; its fields: {listed_with_near(fields, field.name)}")
            raise ValueError(f"has null in its field {field.name!r}; its fields: {listed(fields)}")
        return None
    if _is_number(field.type):
        return _number(value, field)
    if isinstance(value, list | dict):
        raise ValueError(f"holds {_spell(value)} in its field {field.name!r}, not text")  # noqa: TRY004  # the line is wrong, not a caller
    if isinstance(value, bool):
        return "true" if value else "false"
    return without_surrogates(value)


def without_surrogates(text: str) -> str:
    """Replace each lone surrogate, which is not valid in UTF-8, with U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def _number(value: Any, field: pa.Field) -> float | int:
    if not isinstance(value, Spelled):
        raise ValueError(f"holds {_spell(value)} in its field {field.name!r}, not a number")  # noqa: TRY004  # the line is wrong, not a caller
    if pa.types.is_floating(field.type):
        return float(value)
    whole = int(value) if value.lstrip("-").isdigit() else float(value)
    if not math.isfinite(whole) or int(whole) != whole or abs(whole) >= 2**63:
        raise ValueError(f"holds {value} in its field {field.name!r}, not a whole number of 64 bits")
    return int(whole)


def _spell(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "a number" if isinstance(value, Spelled) else "true or false" if isinstance(value, bool) else "text"
