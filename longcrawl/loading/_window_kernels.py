"""Windows of tokens and the positions in them, as numba kernels; no Python object per token or document."""

# Numba takes arguments by position and compiles plain loops best:
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, inlined

Ints = npt.NDArray[Any]

BLOCK = 64
"""Tokens that are searched at a time."""


@compiled
def copy_windows(tokens: Ints, starts: Ints, pad: int, out: Ints) -> None:
    """Copy the tokens from each start on into a row of ``out``; what lies behind the last token is ``pad``."""
    for row in range(len(starts)):
        stored, window = tokens[starts[row] : starts[row] + out.shape[1]], out[row]
        # Indexes that begin at 0 need no test for being negative, and such loops become vector instructions.
        for column in range(len(stored)):
            window[column] = stored[column]
        window[len(stored) :] = pad


@compiled
def locate(numbers: Ints, firsts: Ints, length: int, slots: Ints, starts: Ints, borders: Ints) -> int:
    """Find the file of each window, and its first token in that file.

    Args:
        numbers: of windows, counted over all files.
        firsts: number of each file's first window, then how many there are.
        length: tokens of a window.
        slots: is given the place of each window's file in ``firsts``.
        starts: is given each window's first token in its file.
        borders: is given where windows of the same file, one after the other, begin, and the end.

    Returns:
        how many borders there are.

    """
    found = 0
    for row in range(len(numbers)):
        number = numbers[row]
        if row == 0 or not firsts[slots[row - 1]] <= number < firsts[slots[row - 1] + 1]:
            slots[row] = np.searchsorted(firsts, number, "right") - 1
            borders[found] = row
            found += 1
        else:
            slots[row] = slots[row - 1]
        starts[row] = (number - firsts[slots[row]]) * length
    borders[found] = len(numbers)
    return found + 1


@inlined
def count_up(out: Ints) -> None:
    """Write 0, 1, 2, … ."""
    for position in range(len(out)):
        out[position] = position


@compiled
def positions_from_ends(ends: Ints, starts: Ints, out: Ints) -> None:
    """Number the tokens of each window from 0, and from 0 again after every end of a document inside of it.

    Equal ends, which are documents without tokens, are one end.
    """
    length = out.shape[1]
    for row in range(len(starts)):
        start, first = starts[row], 0
        end = np.searchsorted(ends, start, "right")
        while first < length:
            stop = length
            if end < len(ends) and ends[end] - start < length:
                stop = ends[end] - start
            count_up(out[row, first:stop])
            first = stop
            end += 1


@compiled
def positions_from_end_of_text(windows: Ints, end_of_text: int, starts: Ints, tokens: int, out: Ints) -> None:
    """Likewise, from 0 after every token ``end_of_text``; behind the last of ``tokens`` is padding, from 0, too."""
    for row in range(len(windows)):
        first, length = 0, min(tokens - starts[row], windows.shape[1])
        for start in range(0, length, BLOCK):
            block = windows[row, start : min(start + BLOCK, length)]
            # Counting has no branch, so that most of a window is seen many tokens at a time.
            found = 0
            for place in range(len(block)):
                found += block[place] == end_of_text
            for place in range(len(block) if found else 0):
                if block[place] == end_of_text:
                    stop = start + place + 1
                    count_up(out[row, first:stop])
                    first = stop
        count_up(out[row, first:length])
        count_up(out[row, length:])
