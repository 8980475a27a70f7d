"""Plain records, compiled by numba.

Of a record, it is found where the fields of its headers are, and what bytes its page has.
"""

# Tests of bytes are long chains:
# ruff: noqa: C901, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled, outlined
from longcrawl.kernels.memory import TESTED, find_byte
from longcrawl.kernels.utf8 import begins_with
from longcrawl.sources._scalar_kernels import is_utf8
from longcrawl.sources.warc.fields import HEADER_BYTES, NAMES
from longcrawl.sources.warc.plain import MOST_BLANK

_TAB, _LF, _CR, _SPACE, _DOT, _SLASH, _ZERO, _NINE, _COLON, _DELETE = b"\t\n\r ./09:\x7f"
_TO_LOWER = 0x20
"""The bit that makes a letter lower case, and leaves a hyphen as it is; control characters never come here."""

_LENGTHS = np.array([len(name) for name in NAMES])
_SPELLED = np.zeros((len(NAMES), _LENGTHS.max()), np.uint8)
for _row, _name in zip(_SPELLED, NAMES, strict=True):
    _row[: len(_name)] = np.frombuffer(_name.encode(), np.uint8)
_CONTENT_LENGTH = NAMES.index("content-length")
_DIGITS = 18
"""How many digits a length has at most."""

_HTTP = np.frombuffer(b"HTTP/", np.uint8)

_BLOCK, _PAGE, _STOP, _OWN, _OTHERS, _STATUS, _IS_UTF8, _HAS_ZERO = range(8)
"""What is found of a record, see ``read_record``."""


@compiled
def read_record(data: Any, most_bytes: int, places: Any, found: Any) -> bool:
    """Read data that is one plain record and line ends; return whether it is.

    Args:
        data: uint8.
        most_bytes: how long a block is at most whose page is looked at.
        places: int64 [2, names, 3], written: the fields of the record and of its message, see ``find_fields``.
        found: int64 [8], written: where the block begins; where its page does, which is the body of a plain message or
            a block that is no message, -1 of others; where the block ends, also where that is behind the data; how many
            fields the record has, and how many the message; the status of the message; and of the page, whether it is
            UTF-8, and whether it has a zero.
    """
    found[:] = 0
    begin, found[_OWN] = find_fields(data, 0, min(len(data), HEADER_BYTES), places[0])
    if begin < 0:
        return False
    length = -1
    for field in range(found[_OWN]):
        if places[0, field, 0] == _CONTENT_LENGTH:
            length = _number(data, places[0, field, 1], places[0, field, 2])
    stop = begin + length
    found[_STOP] = stop if length >= 0 else -1
    if length < 0 or stop > len(data) or len(data) - stop > MOST_BLANK:
        return False
    for at in range(stop, len(data)):
        if data[at] != _LF and data[at] != _CR:
            return False
    found[_BLOCK], found[_PAGE] = begin, begin
    if begins_with(data, begin, stop, _HTTP):
        found[_PAGE], found[_STATUS] = -1, _status(data, begin + len(_HTTP), stop)
        if found[_STATUS] >= 200:
            found[_PAGE], found[_OTHERS] = find_fields(data, begin, min(stop, begin + HEADER_BYTES), places[1])
    if found[_PAGE] >= 0 and length <= most_bytes:
        found[_IS_UTF8], found[_HAS_ZERO] = scan_bytes(data, found[_PAGE], stop)
    return True


@compiled
def scan_bytes(data: Any, start: int, stop: int) -> tuple[bool, bool]:
    """Return whether bytes are UTF-8, and whether a zero is among them."""
    first, at, zeros = np.int64(data.ctypes.data), start, np.uint64(0)
    while at + TESTED <= stop:
        zeros |= find_byte(first + at, 0)
        at += TESTED
    has_zero = zeros != np.uint64(0)
    while at < stop:
        has_zero |= data[at] == 0
        at += 1
    return is_utf8(data, start, stop), has_zero


@outlined
def find_fields(data: Any, start: int, stop: int, places: Any) -> tuple[int, int]:
    """Find the values of the fields that ``NAMES`` has, in a header whose first line is passed over.

    Args:
        data: uint8.
        start: where the header begins.
        stop: where it ends at the latest.
        places: int64 [names, 3], written: of each field that is there its place in ``NAMES``, and where its value
            begins and ends, without white space around it.

    Returns:
        Where the header ends, with its empty line, -1 where it is not plain; and how many fields are there.
    """
    count, seen, at = 0, 0, start
    while at < stop and data[at] != _LF:
        at += 1
    at += 1
    while at < stop:
        if data[at] == _LF or data[at] == _CR:
            while at < stop and data[at] == _CR:
                at += 1
            return (at + 1 if at < stop and data[at] == _LF else -1), count
        line = at
        while at < stop and data[at] != _COLON:
            # A name with a slash may be the version that begins another record.
            if data[at] <= _SPACE or data[at] >= _DELETE or data[at] == _SLASH:
                return -1, 0
            at += 1
        length = at - line
        at += 1
        while at < stop and (data[at] == _SPACE or data[at] == _TAB):
            at += 1
        value, end = at, at
        while at < stop and (data[at] >= _SPACE or data[at] == _TAB):
            at += 1
            if data[at - 1] > _SPACE:
                end = at
        while at < stop and data[at] == _CR:
            at += 1
        if at >= stop or data[at] != _LF or length == 0:
            return -1, 0
        at += 1
        known = _number_of_name(data, line, length)
        if known >= 0:
            if seen >> known & 1:
                return -1, 0
            seen |= 1 << known
            places[count, 0], places[count, 1], places[count, 2] = known, value, end
            count += 1
    return -1, 0


@compiled
def _number_of_name(data: Any, start: int, length: int) -> int:
    """Return the place in ``NAMES`` of a name that is spelled in any case, -1 where it has none."""
    for name in range(len(_LENGTHS)):
        if _LENGTHS[name] == length:
            at = 0
            while at < length and data[start + at] | _TO_LOWER == _SPELLED[name, at]:
                at += 1
            if at == length:
                return name
    return -1


@compiled
def _number(data: Any, start: int, stop: int) -> int:
    """Return the number that some digits are, -1 where they are none or too many."""
    if start == stop or stop - start > _DIGITS:
        return -1
    value = 0
    for at in range(start, stop):
        if data[at] < _ZERO or data[at] > _NINE:
            return -1
        value = value * 10 + np.int64(data[at] - _ZERO)
    return value


@compiled
def _status(data: Any, start: int, stop: int) -> int:
    """Return the status that follows ``HTTP/``, -1 where none does."""
    at = _skip_digits(data, start, stop)
    if at == start:
        return -1
    if at < stop and data[at] == _DOT:
        point = at + 1
        at = _skip_digits(data, point, stop)
        if at == point:
            return -1
    blank = at
    while at < stop and (data[at] == _SPACE or data[at] == _TAB):
        at += 1
    end = _skip_digits(data, at, stop)
    return _number(data, at, end) if at > blank and end - at == 3 else -1


@compiled
def _skip_digits(data: Any, at: int, stop: int) -> int:
    while at < stop and _ZERO <= data[at] <= _NINE:
        at += 1
    return at
