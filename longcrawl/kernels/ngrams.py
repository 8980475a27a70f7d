"""Repeated n-grams of numbered words, as numba kernels.

An n-gram is the pair of its two (n-1)-grams, so no two different n-grams can be taken for one. A place can start a
repeated n-gram only where both its (n-1)-grams repeat: long ones cost little.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, mixed

__all__ = ["clear", "covered", "keep_repeated", "lengthen", "repeated_words", "repetitions"]

_U = np.uint64
_GOLDEN = _U(0x9E3779B97F4A7C15)


@compiled
def clear(table: npt.NDArray[np.int32], entries: int) -> int:
    """Empty as much of the table as ``entries`` need at half load, and give the mask of its places."""
    size = 16
    while size < 2 * entries:
        size *= 2
    table[:size] = 0
    return size - 1


@compiled
def lengthen(scratch: Any, size: int) -> tuple[int, int]:
    """Join neighbours among the first ``size`` places to n-grams: how many places are left, how many n-grams."""
    places, grams, table, keys = scratch.places, scratch.grams, scratch.table, scratch.keys
    left = 0
    for place in range(size - 1):
        left += places[place + 1] == places[place] + 1
    mask = clear(table, left)
    left, found = 0, 0
    for place in range(size - 1):
        if places[place + 1] != places[place] + 1:
            continue
        key = _U(grams[place]) << _U(32) | _U(grams[place + 1])
        at = mixed(key * _GOLDEN) & mask
        while table[at] != 0 and keys[table[at] - 1] != key:
            at = (at + 1) & mask
        if table[at] == 0:
            keys[found] = key
            scratch.gram_counts[found] = 0
            scratch.gram_firsts[found] = places[place]
            found += 1
            table[at] = found
        places[left] = places[place]
        grams[left] = table[at] - 1
        scratch.gram_counts[grams[left]] += 1
        left += 1
    return left, found


@compiled
def keep_repeated(scratch: Any, size: int) -> int:
    """Keep the places whose n-gram comes more than once; give how many there are."""
    places, grams, counts = scratch.places, scratch.grams, scratch.gram_counts
    left = 0
    for place in range(size):
        places[left] = places[place]
        grams[left] = grams[place]
        left += counts[grams[place]] > 1
    return left


@compiled
def _top(scratch: Any, found: int, n: int) -> int:
    """Count the characters in all occurrences of the most frequent n-gram, the first of those as frequent."""
    top = 0
    for gram in range(found):
        if scratch.gram_counts[gram] > scratch.gram_counts[top]:
            top = gram
    first = scratch.gram_firsts[top]
    return (scratch.starts[first + n] - scratch.starts[first]) * scratch.gram_counts[top]


@compiled
def covered(scratch: Any, size: int, n: int) -> int:
    """Count the characters of all words that a repeated n-gram covers, each word once."""
    starts, places, total, reached = scratch.starts, scratch.places, 0, 0
    for at in range(size):
        place = places[at]
        total += starts[place + n] - starts[max(place, reached)]
        reached = place + n
    return total


@compiled
def repeated_words(scratch: Any, words: int) -> int:
    """Write the places of all words that come more than once; give how many there are."""
    size = 0
    for word in range(words):
        scratch.places[size] = word
        scratch.grams[size] = scratch.ids[word]
        size += scratch.counts[scratch.ids[word]] > 1
    return size


@compiled
def repetitions(scratch: Any, words: int, characters: Any) -> None:
    """Write how many characters are in the most frequent 2- to 4-gram, and in all repeated 5- to 10-grams.

    Args:
        scratch: has the number of each word (``ids``), how often each number comes (``counts``), where each word starts
            among the characters of all words (``starts``), and room for n-grams.
        words: how many words there are.
        characters: float64 [NGRAMS], zeros, written.

    """
    size = repeated_words(scratch, words)
    for n in range(2, 11):
        size, found = lengthen(scratch, size)
        size = keep_repeated(scratch, size)
        if size == 0:
            return
        characters[n - 2] = _top(scratch, found, n) if n <= 4 else covered(scratch, size, n)
