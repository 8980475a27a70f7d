"""Kernels that find equal words and repeated n-grams in a document.

Words are numbered by full comparison, and an n-gram is identified by its two (n-1)-grams. A repeated n-gram can only
start where both its (n-1)-grams repeat, so long n-grams cost little.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import eight_at

_U = np.uint64
GOLDEN = _U(0x9E3779B97F4A7C15)
HASHED = _U(1 << 63)
"""Bit set in a word's key if the key is a hash; otherwise the key is the word itself."""
_FEW = 8192
"""Number of entries below which a table filled by a quarter still fits into the processor's first caches."""


class Repeats(NamedTuple):
    """Working memory for one document, allocated for the longest of a batch; untouched memory costs nothing."""

    ids: npt.NDArray[np.int32]
    """Number of each word, in order of first occurrence; ``firsts`` and ``counts`` have its first place and count."""
    firsts: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]
    grams: npt.NDArray[np.int32]
    """Number of the n-gram at each of ``places``; ``gram_firsts`` and ``gram_counts`` have its first word and count."""
    gram_firsts: npt.NDArray[np.int32]
    gram_counts: npt.NDArray[np.int32]
    pairs: npt.NDArray[np.uint64]
    waiting: npt.NDArray[np.int32]
    """Words with hashed keys that must be compared letter by letter."""
    keys: npt.NDArray[np.uint64]
    table: npt.NDArray[np.int32]
    seen: npt.NDArray[np.uint8]
    """Number of occurrences of the keys in each slot, one bit each, at most eight."""


def make_repeats(words: int) -> Repeats:
    """Allocate working memory for documents of up to ``words`` words."""
    ids, firsts, counts, places, grams, gram_firsts, gram_counts, waiting = np.empty((8, words + 1), np.int32)
    pairs, keys = np.empty((2, words + 1), np.uint64)
    table = np.empty(max(16, 1 << (4 * words).bit_length()), np.int32)
    seen = np.empty(max(64, 1 << (8 * words).bit_length()), np.uint8)
    return Repeats(ids, firsts, counts, places, grams, gram_firsts, gram_counts, pairs, waiting, keys, table, seen)


@compiled
def clear(table: npt.NDArray[np.int32], entries: int) -> int:
    """Clear as much of the table as ``entries`` need, a quarter filled, or half beyond ``_FEW``; return the mask."""
    size = 16
    while size < (4 if entries < _FEW else 2) * entries:
        size *= 2
    table[:size] = 0
    return size - 1


@compiled
def forget(seen: npt.NDArray[np.uint8], entries: int) -> int:
    """Clear as much of ``seen`` as ``entries`` need, and return the mask of its slots."""
    size = 64
    while size < 8 * entries:
        size *= 2
    seen[:size] = 0
    return size - 1


@forced_inline
def note(seen: npt.NDArray[np.uint8], slot: np.uint64, comes: int) -> None:
    """Count one occurrence in a slot of ``seen`` if ``comes`` is 1, without a branch, which would be mispredicted."""
    seen[slot] = seen[slot] << comes | comes


@compiled
def same_letters(letters: Any, first: int, second: int, length: int) -> bool:
    """Return whether two stretches of a text are equal."""
    address, item = np.int64(letters.ctypes.data), letters.itemsize
    one, other = address + first * item, address + second * item
    last, place = length * item - 8, 0
    if last < 0:
        while place < length and letters[first + place] == letters[second + place]:
            place += 1
        return place == length
    # The last eight bytes may overlap those before; for most words they and the first eight bytes cover everything.
    same, place = (eight_at(one) == eight_at(other)) & (eight_at(one + last) == eight_at(other + last)), 8
    while same and place < last:
        same = eight_at(one + place) == eight_at(other + place)
        place += 8
    return same


@compiled
def _number(keys: Any, size: int, ids: Any, firsts: Any, counts: Any, repeats: Repeats) -> tuple[int, int]:
    """Number equal keys; return how many keys differ, and how many hashes equal to earlier ones are in ``waiting``."""
    table, known, waiting = repeats.table, repeats.keys, repeats.waiting
    mask = clear(table, size)
    unique, left = 0, 0
    for at in range(size):
        key = keys[at]
        slot = _U(mixed(key) & mask)
        entry = _U(table[slot])
        while entry != _U(0) and known[entry] != key:
            slot = (slot + _U(1)) & _U(mask)
            entry = _U(table[slot])
        waiting[left] = at
        left += np.int64(key >> _U(63)) & (entry != _U(0))
        if entry == _U(0):
            firsts[unique], counts[unique] = at, 0
            unique += 1
            entry = _U(unique)
            table[slot], known[entry] = unique, key
        ids[at] = entry - _U(1)
        counts[entry - _U(1)] += 1
    return unique, left


@forced_inline
def _same_words(letters: Any, begins: Any, ends: Any, first: int, second: int) -> bool:
    length = ends[second] - begins[second]
    return ends[first] - begins[first] == length and same_letters(letters, begins[first], begins[second], length)


@compiled
def number_words(letters: Any, begins: Any, ends: Any, keys: Any, words: int, repeats: Repeats) -> int:
    """Number the words, or any other stretches, of a text; return how many are different.

    ``keys`` are equal for equal words. Only hashes, marked by ``HASHED``, may be equal for different words.
    """
    unique, left = _number(keys, words, repeats.ids, repeats.firsts, repeats.counts, repeats)
    for at in range(left):
        word = repeats.waiting[at]
        if not _same_words(letters, begins, ends, repeats.firsts[repeats.ids[word]], word):
            return _number_by_letters(letters, begins, ends, keys, words, repeats)
    return unique


@compiled
def _number_by_letters(letters: Any, begins: Any, ends: Any, keys: Any, words: int, repeats: Repeats) -> int:
    table, ids, firsts, counts = repeats.table, repeats.ids, repeats.firsts, repeats.counts
    mask = clear(table, words)
    unique = 0
    for word in range(words):
        slot = mixed(keys[word]) & mask
        while table[slot] != 0:
            other = firsts[table[slot] - 1]
            if keys[other] == keys[word] and _same_words(letters, begins, ends, other, word):
                break
            slot = (slot + 1) & mask
        if table[slot] == 0:
            firsts[unique], counts[unique] = word, 0
            unique += 1
            table[slot] = unique
        ids[word] = table[slot] - 1
        counts[ids[word]] += 1
    return unique


@compiled
def lengthen(repeats: Repeats, size: int) -> tuple[int, int]:
    """Join adjacent (n-1)-grams to n-grams, most of which repeat; return the number of places and of n-grams."""
    places, grams, pairs, firsts, seen = repeats.places, repeats.grams, repeats.pairs, repeats.gram_firsts, repeats.seen
    joined, mask = 0, forget(seen, size)
    for at in range(size - 1):
        place, pair = places[at], _U(grams[at]) << _U(32) | _U(grams[at + 1])
        follows = places[at + 1] == place + 1
        places[joined], pairs[joined] = place, pair
        slot = _U(mixed(pair * GOLDEN) & mask)
        note(seen, slot, follows)
        joined += follows
    left = 0
    for at in range(joined):
        pair = pairs[at]
        places[left], pairs[left] = places[at], pair
        left += seen[_U(mixed(pair * GOLDEN) & mask)] > 1
    found, _ = _number(pairs, left, grams, firsts, repeats.gram_counts, repeats)
    for gram in range(found):
        firsts[gram] = places[firsts[gram]]
    return left, found


@compiled
def keep_repeated(repeats: Repeats, size: int) -> int:
    """Keep the places of n-grams that occur more than once; return their number."""
    places, grams, counts = repeats.places, repeats.grams, repeats.gram_counts
    left = 0
    for place in range(size):
        places[left] = places[place]
        grams[left] = grams[place]
        left += counts[grams[place]] > 1
    return left


@compiled
def most_frequent(repeats: Repeats, found: int) -> int:
    """Return the most frequent of ``found`` n-grams, or the first of several."""
    top = 0
    for gram in range(found):
        if repeats.gram_counts[gram] > repeats.gram_counts[top]:
            top = gram
    return top


@compiled
def covered(repeats: Repeats, starts: Any, size: int, n: int) -> int:
    """Count the characters of all words in repeated n-grams, each word once."""
    places, total, reached = repeats.places, 0, 0
    for at in range(size):
        place = places[at]
        total += starts[place + n] - starts[max(place, reached)]
        reached = place + n
    return total


@compiled
def repeated_words(repeats: Repeats, words: int) -> int:
    """Write the places of all words that occur more than once; return their number."""
    size = 0
    for word in range(words):
        repeats.places[size] = word
        repeats.grams[size] = repeats.ids[word]
        size += repeats.counts[repeats.ids[word]] > 1
    return size


@compiled
def repetitions(repeats: Repeats, starts: Any, words: int, characters: Any) -> None:
    """Count the characters in the most frequent 2- to 4-grams and in all repeated 5- to 10-grams, float64 [NGRAMS].

    ``starts``, int64 [words + 1], is the start of each numbered word among the characters of all words.
    """
    size = repeated_words(repeats, words)
    for n in range(2, 11):
        size, found = lengthen(repeats, size)
        size = keep_repeated(repeats, size)
        if size == 0:
            return
        if n <= 4:
            top = most_frequent(repeats, found)
            first = repeats.gram_firsts[top]
            characters[n - 2] = (starts[first + n] - starts[first]) * repeats.gram_counts[top]
        else:
            characters[n - 2] = covered(repeats, starts, size, n)
