"""Small kernels that the others share: rounding as Python does, hashing, and looking words up in a vocabulary."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline, inlined
from longcrawl.kernels.word_lists import Vocabulary

Letters = npt.NDArray[Any]

_U = np.uint64
_MIX = _U(0xFF51AFD7ED558CCD)


@compiled
def round_to_8_digits(value: float) -> float:
    """Return ``round(value, 8)`` of a number that is not negative, equal to Python's in every bit.

    Python rounds the exact binary value, half to even. The product with 1e8 is exact as ``high + low``, so a number
    near a half is decided exactly; from 2**26 on neighbouring numbers are further apart than the digits.
    """
    if not value < 67108864.0:
        return value
    high = value * 1e8
    whole = np.floor(high)
    off = high - whole - 0.5
    if abs(off) < 1e-3:
        split = 134217729.0 * value
        upper = split - (split - value)
        off += (upper * 1e8 - high) + (value - upper) * 1e8
    up = off > 0.0 or (off == 0.0 and whole % 2.0 == 1.0)
    return (whole + 1.0 if up else whole) / 1e8


@compiled
def round_all(values: Any) -> None:
    """Round every number of a one-dimensional array in place, as ``round(value, 8)`` does; NaN stays."""
    for at in range(len(values)):
        values[at] = round_to_8_digits(values[at])


@compiled
def count_up_to(values: npt.NDArray[np.int64], most: int) -> int:
    """Return how many ascending int64 numbers are no more than ``most``, by binary search.

    ``np.searchsorted`` in a kernel has every process that loads it import scipy, 0.2 s.

    >>> count_up_to(np.array([2, 4, 4, 7]), 4)
    3
    """
    below, end = 0, len(values)
    while below < end:
        middle = (below + end) // 2
        if values[middle] <= most:
            below = middle + 1
        else:
            end = middle
    return below


_RUN = 16
"""Keys that :func:`stable_order` sorts by insertion before it merges."""


@allocating
def stable_order(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of int64 keys in ascending order, equal ones as they stand: a merge sort.

    That of numba takes 1 to 2 s of compiling for each type of key, this one 0.4 s once.
    """
    count = len(keys)
    order, merged = np.empty(count, np.int64), np.empty(count, np.int64)
    for at in range(count):
        key, place = keys[at], at
        while place % _RUN and keys[order[place - 1]] > key:
            order[place] = order[place - 1]
            place -= 1
        order[place] = at
    width = _RUN
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for place in range(start, stop):
                if left < middle and (right == stop or keys[order[left]] <= keys[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@inlined
def order_by(values: npt.NDArray[Any], members: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of ``members`` by their values, integers, as :func:`stable_order` does.

    Of unsigned numbers beyond int64 only equal ones are sure to stand together.
    """
    keys = np.empty(len(members), np.int64)
    for place in range(len(members)):
        keys[place] = np.int64(values[members[place]])
    return stable_order(keys)


@compiled
def mixed(number: np.uint64) -> np.int64:
    """Spread a hash or a key over all bits, as an index to be masked."""
    number ^= number >> _U(33)
    number *= _MIX
    number ^= number >> _U(29)
    return np.int64(number)


@forced_inline
def _sampled(language: int, letters: Letters, start: int, stop: int) -> np.int64:
    """Hash a listed word by its length and its first and last two letters, which tell most of a list apart."""
    second, before_last = min(start + 1, stop - 1), max(stop - 2, start)
    head = _U(letters[start]) | _U(letters[second]) << _U(21) | _U(stop - start) << _U(42)
    tail = _U(letters[stop - 1]) | _U(letters[before_last]) << _U(21) | _U(language) << _U(42)
    return mixed(head ^ (tail << _U(11) | tail >> _U(53)))


@forced_inline
def find_word(vocabulary: Vocabulary, language: int, letters: Letters, start: int, stop: int) -> int:
    """Return the number of the word ``letters[start:stop]`` in a language's list, -1 where it is not there."""
    length = stop - start
    if language < 0 or length > vocabulary.longest:
        return -1
    mask = len(vocabulary.table) - 1
    at = _sampled(language, letters, start, stop) & mask
    while vocabulary.table[at] != 0:
        word = vocabulary.table[at] - 1
        first = vocabulary.bounds[word]
        if vocabulary.languages[word] == language and vocabulary.bounds[word + 1] - first == length:
            same = 0
            while same < length and vocabulary.letters[first + same] == letters[start + same]:
                same += 1
            if same == length:
                return word
        at = (at + 1) & mask
    return -1


@compiled
def fill_table(vocabulary: Vocabulary) -> None:
    """Enter all words of a vocabulary into its table of zeros."""
    mask = len(vocabulary.table) - 1
    for word in range(len(vocabulary.languages)):
        start, stop = vocabulary.bounds[word], vocabulary.bounds[word + 1]
        at = _sampled(vocabulary.languages[word], vocabulary.letters, start, stop) & mask
        while vocabulary.table[at] != 0:
            at = (at + 1) & mask
        vocabulary.table[at] = word + 1
