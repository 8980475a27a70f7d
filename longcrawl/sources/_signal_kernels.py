"""The signals of RedPajama-V2 out of JSON text, compiled by numba; see ``_kernels`` for what a status means."""

# A byte automaton is one long chain of cases, and numba takes arguments by position:
# ruff: noqa: C901, PLR0911, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.lookup import compiled
from longcrawl.sources._kernels import (
    ABSENT,
    CLOSE_LIST,
    CLOSE_OBJECT,
    COMMA,
    NESTED,
    OPEN_LIST,
    OPEN_OBJECT,
    end_of_value,
    end_of_word,
    find_name,
    read_key,
    read_number,
    skip_space,
)


@compiled
def _triples(data: Any, at: int, end: int) -> tuple[int, float, float, bool]:
    """Read ``[[start, end, value], …]``: its end (-1: not understood), the first value, the sum, whether it is null."""
    first, total, count = np.nan, 0.0, 0
    after = end_of_word(data, at, end)
    if after >= 0 and data[at] == 110:
        return after, first, np.nan, True
    if at >= end or data[at] != OPEN_LIST:
        return -1, first, total, False
    at = skip_space(data, at + 1, end)
    if at < end and data[at] == CLOSE_LIST:
        return at + 1, first, total, False
    while True:
        at = skip_space(data, at, end)
        if at >= end or data[at] != OPEN_LIST:
            return -1, first, total, False
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
                return -1, first, total, False
            at = skip_space(data, at, end)
            if at >= end or data[at] != (COMMA if place < 2 else CLOSE_LIST):
                return -1, first, total, False
            at += 1
            if place == 2:
                if count == 0:
                    first = value
                if not np.isnan(value):
                    total += value
        count += 1
        at = skip_space(data, at, end)
        if at < end and data[at] == CLOSE_LIST:
            return at + 1, first, total, False
        if at >= end or data[at] != COMMA:
            return -1, first, total, False
        at += 1


@compiled
def read_signals(
    data: Any, spans: Any, kinds: Any, names: Any, offsets: Any, values: Any, sums: Any, places: Any, status: Any
) -> None:
    """Read the object ``quality_signals`` of every line.

    Args:
        data: uint8 [bytes], the text of all lines.
        spans: int64 [lines, 2], where the object of each line is, as ``find_fields`` gives it.
        kinds: uint8 [lines], what is there.
        names: uint8, the names of the signals one after the other.
        offsets: int64 [names + 1], where each name starts.
        values: float64 [lines, names], written: the value of the first span, NaN where null or absent.
        sums: float64 [lines, names], written: the values of all spans added in order, nulls left out, NaN where absent.
        places: int64 [lines, names, 2], written: where the list of spans is.
        status: uint8 [lines], read and written: 1 where the line was not understood.

    """
    for line in range(len(spans)):
        values[line, :] = np.nan
        sums[line, :] = np.nan
        places[line, :, :] = 0
        if status[line] or kinds[line] == ABSENT:
            continue
        at, end = spans[line, 0], spans[line, 1]
        status[line] = kinds[line] != NESTED or data[at] != OPEN_OBJECT
        at = skip_space(data, at + 1, end)
        more = status[line] == 0 and data[at] != CLOSE_OBJECT
        at += not more
        guess = 0
        while more:
            key_start, key_end, at = read_key(data, at, end)
            if at < 0:
                break
            index = find_name(data, key_start, key_end, names, offsets, guess)
            start = at
            if index >= 0:
                guess = index + 1
                at, values[line, index], sums[line, index], _ = _triples(data, at, end)
            else:
                at = end_of_value(data, at, end)[0]
            if at < 0:
                break
            if index >= 0:
                places[line, index, 0], places[line, index, 1] = start, at
            at = skip_space(data, at, end)
            if at >= end or (data[at] != COMMA and data[at] != CLOSE_OBJECT):
                at = -1
                break
            more = data[at] == COMMA
            at += 1
        if at != end:
            status[line] = 1
