"""The objects ``quality_signals`` of RedPajama-V2, read byte by byte and 64 bytes at a time, compiled by numba.

As in ``longcrawl.sources._kernels``, a line whose status is 1 was not understood here, and Python's ``json`` decides.
"""

# A byte automaton is one long chain of cases, and numba takes arguments by position:
# ruff: noqa: C901, PLR0911, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    count_bits,
    eight_at,
    find_closing_brackets,
    find_commas,
    find_digits,
    find_dots,
    find_ones,
    find_opening_brackets,
    find_quotes,
    find_zeros,
    highest_bit,
    lowest_bit,
)
from longcrawl.sources._kernels import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    INEXACT,
    NESTED,
    OPEN_LIST,
    OPEN_OBJECT,
    end_of_value,
    find_name,
    read_key,
    skip_space,
)
from longcrawl.sources._scalar_kernels import QUOTE, end_of_word, read_number

_EVERY, _ONE, _NO_BITS = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(1), np.uint64(0)
_ZEROS = np.uint64(0x3030303030303030)
_LAST = np.array(
    [0] + [0xFFFFFFFFFFFFFFFF << (64 - 8 * _count) & 0xFFFFFFFFFFFFFFFF for _count in range(1, 9)], np.uint64
)
"""Masks of the last so many bytes of eight."""
_TENS = np.array([10**_count for _count in range(9)], np.uint64)
_POWERS = np.array([10.0**_count for _count in range(9)])


@compiled
def _digits(ends_at: int, count: int) -> np.uint64:
    """Return the number that up to eight digits before an address spell."""
    number = (eight_at(ends_at - 8) ^ _ZEROS) & _LAST[count]
    number = number * np.uint64(10) + (number >> np.uint64(8))
    low = (number & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    high = ((number >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return (low + high) >> np.uint64(32)


@compiled
def _after(starts: np.uint64, digits: np.uint64) -> np.uint64:
    """Return the bits behind the digits that begin at some bits: in a sum a run of ones carries to its end."""
    return (starts + digits) & ~digits


@compiled
def _plain_triples(data: Any, at: int, end: int) -> tuple[int, float, float]:
    """Read ``[[start,end,value],…]`` as the release spells it: its end (-1: not understood), the first value, the sum.

    Numbers have no sign, exponent or space; a value has 7 digits before its dot and 8 behind it at most. Bits of a
    mask stand for 64 bytes, of which those up to the last closing bracket are looked at.
    """
    first, total, is_first = np.nan, 0.0, True
    if at < 8 or at >= end or data[at] != OPEN_LIST:
        return -1, first, total
    at += 1
    while at + 64 <= len(data):
        begin = np.int64(data.ctypes.data) + at
        closes = find_closing_brackets(begin)
        if closes == _NO_BITS:
            return -1, first, total
        pairs = closes & (closes >> _ONE)
        last = lowest_bit(pairs) if pairs != _NO_BITS else highest_bit(closes)
        if at + last + 2 > end:
            return -1, first, total
        inside = _EVERY >> np.uint64(63 - last)
        closes &= inside
        opens, commas = find_opening_brackets(begin) & inside, find_commas(begin) & inside
        digits, dots, zeros = find_digits(begin) & inside, find_dots(begin) & inside, find_zeros(begin)
        between, other = commas & (closes << _ONE), inside & ~digits
        one = _after(opens << _ONE, digits)
        two = _after(one << _ONE, digits)
        whole_ends = _after(two << _ONE, digits)
        decimal_ends = _after((whole_ends & dots) << _ONE, digits)
        if (
            opens != (between << _ONE | _ONE)
            or (closes << _ONE) & inside != between
            or one | two | between != commas
            or whole_ends & dots != dots
            or whole_ends ^ dots | decimal_ends != closes
            or opens | commas | dots | closes != other
            or other & (other << _ONE) != between | (between << _ONE)
            or ((opens | one | two) << _ONE) & zeros & (digits >> _ONE) != _NO_BITS
        ):
            return -1, first, total
        values, tenths = two << _ONE, two << np.uint64(3)
        if (
            closes == tenths << _ONE
            and dots == values << _ONE
            and tenths & ~zeros == _NO_BITS
            and values & ~(zeros | find_ones(begin)) == _NO_BITS
        ):
            if is_first:
                first, is_first = np.float64((values & ~zeros & (_NO_BITS - values)) != _NO_BITS), False
            for _ in range(count_bits(values & ~zeros)):
                total += 1.0
            closes = _NO_BITS
        while closes != _NO_BITS:
            close, start = lowest_bit(closes), lowest_bit(two) + 1
            closes &= closes - _ONE
            two &= two - _ONE
            whole, decimals = lowest_bit(whole_ends), 0
            whole_ends &= whole_ends - _ONE
            if whole - start > 7 or close - whole > 9:
                return -1, first, total
            number = _digits(begin + whole, whole - start)
            if whole < close:
                decimals = close - whole - 1
                number = number * _TENS[decimals] + _digits(begin + close, decimals)
            value = np.float64(number) / _POWERS[decimals]
            if is_first:
                first, is_first = value, False
            total += value
        at += last + 1
        if data[at] == CLOSE_LIST:
            return at + 1, first, total
        if data[at] != COMMA:
            return -1, first, total
        at += 1
    return -1, first, total


@compiled
def _triples(data: Any, at: int, end: int) -> tuple[int, float, float]:
    """Read ``[[start, end, value], …]`` however it is spelled: its end (-1: not understood), the first value, the sum.

    Of null, first value and sum are NaN.
    """
    first, total, count = np.nan, 0.0, 0
    after = end_of_word(data, at, end)
    if after >= 0 and data[at] == 110:
        return after, first, np.nan
    if at >= end or data[at] != OPEN_LIST:
        return -1, first, total
    at = skip_space(data, at + 1, end)
    if at < end and data[at] == CLOSE_LIST:
        return at + 1, first, total
    while True:
        at = skip_space(data, at, end)
        if at >= end or data[at] != OPEN_LIST:
            return -1, first, total
        at += 1
        for place in range(3):
            at = skip_space(data, at, end)
            value, exact = np.nan, True
            digits = at
            while place < 2 and digits < end and 48 <= data[digits] <= 57:
                digits += 1
            if digits > at and digits < end and data[digits] == COMMA and (data[at] != 48 or digits == at + 1):
                at = digits
            elif place == 2 and at < end and data[at] == 110:
                at = end_of_word(data, at, end)
            else:
                value, at, exact = read_number(data, at, end)
            if at < 0 or not exact:
                return -1, first, total
            at = skip_space(data, at, end)
            if at >= end or data[at] != (COMMA if place < 2 else CLOSE_LIST):
                return -1, first, total
            at += 1
            if place == 2:
                if count == 0:
                    first = value
                if not np.isnan(value):
                    total += value
        count += 1
        at = skip_space(data, at, end)
        if at < end and data[at] == CLOSE_LIST:
            return at + 1, first, total
        if at >= end or data[at] != COMMA:
            return -1, first, total
        at += 1


@compiled
def _end_of_lists(data: Any, at: int, end: int) -> int:
    """Return where lists of numbers in a list end (-1: not understood), without a look at the numbers.

    They end at the first ``]]``; what has a quote before it is checked as any value.
    """
    first, start = np.int64(data.ctypes.data), at
    while at + 65 <= len(data) and at < end:
        closed = find_closing_brackets(first + at) & find_closing_brackets(first + at + 1)
        quotes = find_quotes(first + at)
        if closed != _NO_BITS and (quotes == _NO_BITS or lowest_bit(closed) < lowest_bit(quotes)):
            at += lowest_bit(closed) + 2
            return at if at <= end else -1
        if quotes != _NO_BITS:
            return end_of_value(data, start, end)[0]
        at += 64
    while at + 2 <= end and data[at] != QUOTE:
        if data[at] == CLOSE_LIST and data[at + 1] == CLOSE_LIST:
            return at + 2
        at += 1
    return end_of_value(data, start, end)[0]


@compiled
def _is_at(data: Any, at: int, end: int, keys: Any, start: int, stop: int) -> bool:
    """Return whether a key of eight bytes or more, its quotes with it, and a colon are at a place."""
    length = stop - start
    if at + length >= end or data[at + length] != COLON:
        return False
    here, key = np.int64(data.ctypes.data) + at, np.int64(keys.ctypes.data) + start
    different, place = eight_at(here + length - 8) ^ eight_at(key + length - 8), 8
    while place < length:
        different |= eight_at(here + place - 8) ^ eight_at(key + place - 8)
        place += 8
    return different == _NO_BITS


@compiled
def _read_object(
    data: Any,
    at: int,
    end: int,
    keys: Any,
    offsets: Any,
    columns: Any,
    followers: Any,
    checked: Any,
    line: int,
    values: Any,
    places: Any,
) -> bool:
    """Read the object ``quality_signals`` of one line, see :func:`read_records`; return whether it was understood."""
    if data[at] != OPEN_OBJECT:
        return False
    at = skip_space(data, at + 1, end)
    more = data[at] != CLOSE_OBJECT
    at += not more
    before = 0
    while more:
        at = skip_space(data, at, end)
        index = followers[before]
        if _is_at(data, at, end, keys, offsets[index], offsets[index + 1]):
            at = skip_space(data, at + offsets[index + 1] - offsets[index] + 1, end)
        else:
            key_start, key_end, at = read_key(data, at, end)
            if at < 0:
                return False
            index = find_name(data, key_start - 1, key_end + 1, keys, offsets, index)
            if index >= 0:
                followers[before] = index
        of_first = of_total = of_place = -1
        if index >= 0:
            before = index + 1
            of_first, of_total, of_place = columns[index, 0], columns[index, 1], columns[index, 2]
        if of_first >= 0 or of_total >= 0 or of_place >= 0:
            start = at
            at, first, total = _plain_triples(data, start, end)
            if at < 0:
                at, first, total = _triples(data, start, end)
            if of_first >= 0:
                values[line, of_first] = first
            if of_total >= 0:
                values[line, of_total] = total
            if of_place >= 0:
                places[line, of_place, 0], places[line, of_place, 1] = start, at
        elif checked and index < 0:
            at = end_of_value(data, at, end)[0]
        else:
            at = _end_of_lists(data, at, end)
        if at < 0:
            return False
        at = skip_space(data, at, end)
        if at >= end or (data[at] != COMMA and data[at] != CLOSE_OBJECT):
            return False
        more = data[at] == COMMA
        at += 1
    return at == end


@compiled
def read_records(
    data: Any,
    spans: Any,
    kinds: Any,
    keys: Any,
    offsets: Any,
    columns: Any,
    checked: Any,
    followers: Any,
    status: Any,
    values: Any,
    places: Any,
) -> None:
    """Read the signals of lines.

    Args:
        data: uint8 [bytes], the text of all lines.
        spans: int64 [lines, fields, 2], where the object of each line is, the last field that ``find_fields`` found.
        kinds: uint8 [lines, fields], what is there.
        keys: uint8, the names of the signals in their quotes, of eight bytes or more, one after the other.
        offsets: int64 [keys + 1], where each starts.
        columns: int64 [keys, 3], the columns of ``values`` for the first value and the sum of a signal, and the column
            of ``places``; -1 where it is not wanted.
        checked: whether to look into the signals that have no key here.
        followers: int64 [keys + 1], read and written: the key that comes first, and those that come after each one.
        status: uint8 [lines], read and written: ``INEXACT`` where a line is understood but for its signals.
        values: float64 [lines, columns], written: NaN where null or absent. A sum leaves nulls out.
        places: int64 [lines, columns, 2], written: where the list of spans is.
    """
    for line in range(len(spans)):
        values[line, :] = np.nan
        places[line, :, :] = 0
        if status[line] != 0:
            continue
        start, end = spans[line, -1, 0], spans[line, -1, 1]
        if kinds[line, -1] != NESTED or not _read_object(
            data, start, end, keys, offsets, columns, followers, checked, line, values, places
        ):
            status[line] = INEXACT
