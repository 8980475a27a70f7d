"""Equal words and repeated n-grams of one document, as numba kernels.

Words get numbers by full comparison, so no two different ones can be taken for one. An n-gram is the pair of its two
(n-1)-grams, so neither can two n-grams. A place can start a repeated n-gram only where both its (n-1)-grams repeat:
long ones cost little.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import eight_at

_U = np.uint64
GOLDEN = _U(0x9E3779B97F4A7C15)
HASHED = _U(1 << 63)
"""Set in the key of a word that is a hash; other keys are the word itself."""


class Repeats(NamedTuple):
    """Memory for one document at a time, made for the longest of a batch; what is not touched costs nothing."""

    ids: npt.NDArray[np.int32]
    """Number of each word, equal for equal words, counted in the order in which they first come."""
    firsts: npt.NDArray[np.int32]
    """The first word of each number."""
    counts: npt.NDArray[np.int32]
    """How often each number comes."""
    places: npt.NDArray[np.int32]
    """The words at which a repeated n-gram starts, ascending."""
    grams: npt.NDArray[np.int32]
    """The number of the n-gram at each of ``places``."""
    gram_firsts: npt.NDArray[np.int32]
    gram_counts: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    table: npt.NDArray[np.int32]
    """Open addressing, a number + 1, 0 where empty."""


def make_repeats(words: int) -> Repeats:
    """Allocate memory for documents of up to so many words."""
    per_word = [np.empty(words, np.int32) for _ in range(7)]
    return Repeats(
        *per_word,
        keys=np.empty(words, np.uint64),
        table=np.empty(max(16, 1 << (2 * words).bit_length()), np.int32),
    )


@compiled
def clear(table: npt.NDArray[np.int32], entries: int) -> int:
    """Empty as much of the table as ``entries`` need at half load, and give the mask of its places."""
    size = 16
    while size < 2 * entries:
        size *= 2
    table[:size] = 0
    return size - 1


@compiled
def same_letters(letters: Any, first: int, second: int, length: int) -> bool:
    """Whether two stretches of a text are equal."""
    address, item = np.int64(letters.ctypes.data), letters.itemsize
    one, other = address + first * item, address + second * item
    last, place = length * item - 8, 0
    if last < 0:
        while place < length and letters[first + place] == letters[second + place]:
            place += 1
        return place == length
    # The last eight bytes may overlap those before.
    same = eight_at(one + last) == eight_at(other + last)
    while same and place < last:
        same = eight_at(one + place) == eight_at(other + place)
        place += 8
    return same


@compiled
def number_words(letters: Any, begins: Any, ends: Any, keys: Any, words: int, repeats: Repeats) -> int:
    """Write ``ids``, ``firsts`` and ``counts`` of words, or of any other stretches of a text; give how many differ.

    Args:
        letters: the text.
        begins: int64 [words], where each word begins in it.
        ends: int64 [words], where each word ends.
        keys: uint64 [words], equal for equal words; other than hashes, marked by ``HASHED``, for no others.
        words: how many words there are.
        repeats: written.
    """
    table, ids, firsts, counts, known = repeats.table, repeats.ids, repeats.firsts, repeats.counts, repeats.keys
    mask = clear(table, words)
    unique = 0
    for word in range(words):
        key, begin = keys[word], begins[word]
        length = ends[word] - begin
        at = mixed(key ^ _U(length)) & mask
        number = table[at] - 1
        while number >= 0:
            if known[number] == key:
                other = firsts[number]
                same = ends[other] - begins[other] == length
                if same and (key & HASHED == _U(0) or same_letters(letters, begins[other], begin, length)):
                    break
            at = (at + 1) & mask
            number = table[at] - 1
        if number < 0:
            number = unique
            firsts[number], counts[number], known[number] = word, 0, key
            unique += 1
            table[at] = unique
        ids[word] = number
        counts[number] += 1
    return unique


@compiled
def lengthen(repeats: Repeats, size: int) -> tuple[int, int]:
    """Join neighbours among the first ``size`` places to n-grams: how many places are left, how many n-grams."""
    places, grams, table, keys = repeats.places, repeats.grams, repeats.table, repeats.keys
    left = 0
    for place in range(size - 1):
        left += places[place + 1] == places[place] + 1
    mask = clear(table, left)
    left, found = 0, 0
    for place in range(size - 1):
        if places[place + 1] != places[place] + 1:
            continue
        key = _U(grams[place]) << _U(32) | _U(grams[place + 1])
        at = mixed(key * GOLDEN) & mask
        while table[at] != 0 and keys[table[at] - 1] != key:
            at = (at + 1) & mask
        if table[at] == 0:
            keys[found] = key
            repeats.gram_counts[found] = 0
            repeats.gram_firsts[found] = places[place]
            found += 1
            table[at] = found
        places[left] = places[place]
        grams[left] = table[at] - 1
        repeats.gram_counts[grams[left]] += 1
        left += 1
    return left, found


@compiled
def keep_repeated(repeats: Repeats, size: int) -> int:
    """Keep the places whose n-gram comes more than once; give how many there are."""
    places, grams, counts = repeats.places, repeats.grams, repeats.gram_counts
    left = 0
    for place in range(size):
        places[left] = places[place]
        grams[left] = grams[place]
        left += counts[grams[place]] > 1
    return left


@compiled
def _top(repeats: Repeats, starts: Any, found: int, n: int) -> int:
    """Count the characters in all occurrences of the most frequent n-gram, the first of those as frequent."""
    top = 0
    for gram in range(found):
        if repeats.gram_counts[gram] > repeats.gram_counts[top]:
            top = gram
    first = repeats.gram_firsts[top]
    return (starts[first + n] - starts[first]) * repeats.gram_counts[top]


@compiled
def covered(repeats: Repeats, starts: Any, size: int, n: int) -> int:
    """Count the characters of all words that a repeated n-gram covers, each word once."""
    places, total, reached = repeats.places, 0, 0
    for at in range(size):
        place = places[at]
        total += starts[place + n] - starts[max(place, reached)]
        reached = place + n
    return total


@compiled
def repeated_words(repeats: Repeats, words: int) -> int:
    """Write the places of all words that come more than once; give how many there are."""
    size = 0
    for word in range(words):
        repeats.places[size] = word
        repeats.grams[size] = repeats.ids[word]
        size += repeats.counts[repeats.ids[word]] > 1
    return size


@compiled
def repetitions(repeats: Repeats, starts: Any, words: int, characters: Any) -> None:
    """Write how many characters are in the most frequent 2- to 4-gram, and in all repeated 5- to 10-grams.

    Args:
        repeats: has the words by their numbers.
        starts: int64 [words + 1], where each word starts among the characters of all words.
        words: how many words there are.
        characters: float64 [NGRAMS], zeros, written.
    """
    size = repeated_words(repeats, words)
    for n in range(2, 11):
        size, found = lengthen(repeats, size)
        size = keep_repeated(repeats, size)
        if size == 0:
            return
        characters[n - 2] = _top(repeats, starts, found, n) if n <= 4 else covered(repeats, starts, size, n)
