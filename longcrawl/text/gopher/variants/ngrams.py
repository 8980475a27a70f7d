"""Repeated n-grams as readings of Gopher's rules count them, as numba kernels over numbered words."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import eight_at, put_eight
from longcrawl.kernels.ngrams import clear, covered, forget, keep_repeated, lengthen, most_frequent, note, same_letters
from longcrawl.kernels.utf8 import copy
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_kernels import Found, Page, Texts
from longcrawl.text.gopher.variants import definitions as defined
from longcrawl.text.gopher.variants.definitions import Readings

_U = np.uint64
_BASE = _U(0x9E3779B97F4A7C15)
_OTHER_BASE = _U(0xFF51AFD7ED558CCD)
_SPACE = 0x20
_LEAST = 5
"""Words of the shortest n-grams that are found by their letters."""
_MOST = 10
"""Words of the longest."""
_FIRST_LETTERS = 16
"""Bytes by which these are compared first."""


class Spelling(NamedTuple):
    """Memory for the words of one document in a row, for what compares n-grams by their letters."""

    kept: npt.NDArray[np.int32]
    """The words that a reading counts in n-grams."""
    kept_starts: npt.NDArray[np.int64]
    """Where each of these starts among their characters, and where the last ends."""
    joined: npt.NDArray[np.uint8]
    """The bytes of all words without spaces."""
    begins: npt.NDArray[np.int64]
    """Where each word begins in it, and where the last ends."""
    firsts: npt.NDArray[np.uint64]
    """A hash of as many letters from each word on as have been looked at."""
    candidates: npt.NDArray[np.int32]
    """The words at which n-grams may start that stand elsewhere, too."""
    limits: npt.NDArray[np.int32]
    """Of each word of these, how many letters are surely too many for such an n-gram."""
    undecided: npt.NDArray[np.int32]
    """Those of which as many letters stand elsewhere as have been looked at."""
    hashed: npt.NDArray[np.int32]
    """How many bytes from each word on are hashed, whole blocks of eight."""
    hashes: npt.NDArray[np.uint64]
    """And to what."""


def make_spelling(texts: Texts) -> Spelling:
    """Allocate memory for the longest document."""
    longest = int(np.diff(texts.offsets).max(initial=0))
    words = longest // 2 + longest // 3 + 5
    kept, candidates, limits, undecided, hashed = np.empty((5, words), np.int32)
    kept_starts, begins = np.empty((2, words), np.int64)
    joined = np.empty(longest + 2 * _FIRST_LETTERS, np.uint8)
    firsts, hashes = np.empty((2, words), np.uint64)
    return Spelling(kept, kept_starts, joined, begins, firsts, candidates, limits, undecided, hashed, hashes)


@compiled
def _join(data: Any, page: Page, words: int, spelling: Spelling) -> None:
    """Write the words in a row."""
    at, begins, ends, places = 0, page.word_begins, page.word_ends, spelling.begins
    source, target, whole = np.int64(data.ctypes.data), np.int64(spelling.joined.ctypes.data), len(data) - 16
    for word in range(words):
        begin, end = begins[word], ends[word]
        places[word] = at
        if begin > whole or end > begin + 16:
            copy(data, begin, end, spelling.joined, at)
        else:
            put_eight(target + at, eight_at(source + begin))
            put_eight(target + at + 8, eight_at(source + begin + 8))
        at += end - begin
    places[words] = at


@compiled
def _find_candidates(words: int, seen: Any, spelling: Spelling) -> int:
    """Write at which words an n-gram may start that stands elsewhere, too, and give how many there are.

    Such n-grams have the same first letters, or fewer of them; some others have them by chance.
    """
    begins, firsts = spelling.begins, spelling.firsts
    address, last = np.int64(spelling.joined.ctypes.data), begins[words] - _FIRST_LETTERS
    mask = forget(seen, words)
    for word in range(words):
        at = address + begins[word]
        key = (eight_at(at) * _BASE ^ eight_at(at + 8)) * _OTHER_BASE
        firsts[word] = key
        note(seen, key >> _U(32) & _U(mask), begins[word] <= last)
    found, left = 0, 0
    for word in range(words - _LEAST + 1):
        again = seen[firsts[word] >> _U(32) & _U(mask)] > 1
        spelling.candidates[found], spelling.undecided[left], spelling.limits[word] = word, word, _FIRST_LETTERS
        found += (begins[word + _LEAST] - begins[word] < _FIRST_LETTERS) | again
        left += again
    for at in range(found):
        spelling.hashed[spelling.candidates[at]], spelling.hashes[spelling.candidates[at]] = 0, _U(0)
    letters = _FIRST_LETTERS
    while left:
        letters += 8
        left = _decide(words, letters, left, seen, spelling)
    return found


@compiled
def _decide(words: int, letters: int, left: int, seen: Any, spelling: Spelling) -> int:
    """Write the limits of those undecided whose first letters, so many, stand nowhere else; give how many are left."""
    begins, firsts, undecided = spelling.begins, spelling.firsts, spelling.undecided
    mask, last = forget(seen, left), begins[words] - letters
    address = np.int64(spelling.joined.ctypes.data) + letters - 8
    for at in range(left):
        word = undecided[at]
        key = (firsts[word] ^ eight_at(address + begins[word])) * _BASE
        firsts[word] = key ^ key >> _U(32)
        note(seen, firsts[word] >> _U(24) & _U(mask), begins[word] <= last)
    still = 0
    for at in range(left):
        word = undecided[at]
        undecided[still] = word
        spelling.limits[word] = letters
        still += (seen[firsts[word] >> _U(24) & _U(mask)] > 1) & (
            begins[min(word + _MOST, words)] - begins[word] >= letters
        )
    return still


@compiled
def _hash_blocks(spelling: Spelling, word: int, letters: int) -> np.uint64:
    """Hash the letters from a word on in whole blocks of eight, after those that were hashed before."""
    at = np.int64(spelling.joined.ctypes.data) + spelling.begins[word]
    done, found = spelling.hashed[word], spelling.hashes[word]
    while done + 8 <= letters:
        found = (found ^ eight_at(at + done)) * _BASE
        found ^= found >> _U(32)
        done += 8
    spelling.hashed[word], spelling.hashes[word] = done, found
    return found


@compiled
def _drop_long(words: int, n: int, candidates: int, spelling: Spelling) -> int:
    """Keep the candidates of which n words may stand elsewhere, too; give how many there are."""
    begins, kept = spelling.begins, 0
    for candidate in range(candidates):
        word = spelling.candidates[candidate]
        spelling.candidates[kept] = word
        kept += (word + n <= words) & (begins[min(word + n, words)] - begins[word] < spelling.limits[word])
    return kept


@compiled
def _skipped(page: Page, n: int, candidates: int, spelling: Spelling) -> int:
    """Count the characters of n-grams that stood before, going on after each; equal ones are spelled equally."""
    begins, starts, joined, table = spelling.begins, page.starts, spelling.joined, page.repeats.table
    firsts, keys, letters = page.repeats.gram_firsts, page.repeats.keys, np.int64(joined.ctypes.data)
    mask = clear(table, candidates)
    reached, unique, characters = 0, 0, 0
    for candidate in range(candidates):
        place = spelling.candidates[candidate]
        if place < reached:
            continue
        begin, length = begins[place], begins[place + n] - begins[place]
        key = _hash_blocks(spelling, place, length)
        rest = begin + length // 8 * 8
        key = (key ^ eight_at(letters + rest) & (_U(1) << _U(8 * (length % 8))) - _U(1)) * _BASE
        at = mixed(key ^ _U(length)) & mask
        while table[at] != 0:
            other = firsts[table[at] - 1]
            same = keys[table[at] - 1] == key and begins[other + n] - begins[other] == length
            if same and same_letters(joined, begins[other], begin, length):
                break
            at = (at + 1) & mask
        if table[at] != 0:
            characters += starts[place + n] - starts[place]
            reached = place + n
            continue
        firsts[unique], keys[unique] = place, key
        unique += 1
        table[at] = unique
    return characters


@compiled
def count_skipped(texts: Texts, page: Page, words: int, spelling: Spelling, row: Any) -> None:
    """Write the characters of 5- to 10-grams that stood before, compared by their letters."""
    if words < _LEAST:
        return
    _join(texts.data, page, words, spelling)
    candidates = _find_candidates(words, page.repeats.seen, spelling)
    for n in range(_LEAST, _MOST + 1):
        candidates = _drop_long(words, n, candidates, spelling)
        row[columns.TOP_2_GRAM + n - 2] = _skipped(page, n, candidates, spelling)


@compiled
def _stands_at(data: Any, at: int, begin: int, size: int) -> bool:
    """Whether the bytes from ``begin`` on stand at another place, too."""
    same = 0
    while same < size and data[at + same] == data[begin + same]:
        same += 1
    return same == size


@compiled
def _count_in_text(data: Any, page: Page, document: Found, first: int, n: int) -> int:
    """Count where the n words from ``first`` on, with a space between, stand in the text, inside words too."""
    begins, ends = page.word_begins, page.word_ends
    found, reached, head = 0, document.begin, ends[first] - begins[first]
    size = head + n - 1
    for word in range(first + 1, first + n):
        size += ends[word] - begins[word]
    before, after = data[ends[first] - 1], data[begins[first + 1]]
    for word in range(document.words - 1):
        # Before the n-gram's first space a word of the text ends.
        space = ends[word]
        if data[space - 1] != before or data[space + 1] != after or data[space] != _SPACE:
            continue
        begin = space - head
        fits = begin >= reached and begin + size <= document.end
        if not (fits and _stands_at(data, begin, begins[first], head)):
            continue
        at, same = space, True
        for other in range(first + 1, first + n):
            length = ends[other] - begins[other]
            same = same and data[at] == _SPACE and _stands_at(data, at + 1, begins[other], length)
            at += 1 + length
        if same:
            found += 1
            reached = at
    return found


@compiled
def _longest_of_most_frequent(page: Page, starts: Any, found: int, n: int) -> int:
    """Return the most frequent n-gram, of several the first of the longest."""
    counts, firsts = page.repeats.gram_counts, page.repeats.gram_firsts
    best = 0
    for gram in range(1, found):
        longer = starts[firsts[gram] + n] - starts[firsts[gram]] > starts[firsts[best] + n] - starts[firsts[best]]
        if counts[gram] > counts[best] or (longer and counts[gram] == counts[best]):
            best = gram
    return best


@compiled
def _top_characters(
    texts: Texts, page: Page, document: Found, starts: Any, size: int, found: int, n: int, choices: Any
) -> int:
    """Count the characters that a reading gives to the most frequent n-gram."""
    first, count = 0, 0
    if size:
        longest = choices[defined.TOP] == defined.LONGEST
        gram = _longest_of_most_frequent(page, starts, found, n) if longest else most_frequent(page.repeats, found)
        first, count = page.repeats.gram_firsts[gram], page.repeats.gram_counts[gram]
    elif choices[defined.TOP_ONCE] == defined.ONCE_TOO:
        count = 1
    length = starts[first + n] - starts[first]
    if choices[defined.TOP_SIZE] == defined.IN_WORDS:
        return length * count
    if choices[defined.TOP_SIZE] == defined.FOUND_IN_TEXT:
        count = _count_in_text(texts.data, page, document, first, n)
    return (length + n - 1) * count


@compiled
def _later(page: Page, starts: Any, size: int, n: int) -> int:
    """Count words and spaces that an n-gram covers which stood before, each once."""
    places, grams, firsts = page.repeats.places, page.repeats.grams, page.repeats.gram_firsts
    total, reached = 0, 0
    for at in range(size):
        place = places[at]
        if firsts[grams[at]] == place:
            continue
        new = max(place, reached)
        reached = place + n
        total += starts[reached] - starts[new] + min(reached - new, n - 1)
    return total


@compiled
def _summed(page: Page, starts: Any, size: int, n: int) -> int:
    """Count the characters of all repeated n-grams, as often as they come."""
    places, total = page.repeats.places, 0
    for at in range(size):
        total += starts[places[at] + n] - starts[places[at]]
    return total


@compiled
def _repeated_characters(page: Page, starts: Any, size: int, n: int, repeated: int) -> int:
    if repeated == defined.SUM:
        return _summed(page, starts, size, n)
    if repeated == defined.LATER:
        return _later(page, starts, size, n)
    return covered(page.repeats, starts, size, n)


@compiled
def _start_grams(page: Page, spelling: Spelling, words: int, counted: int) -> tuple[int, int]:
    """Write the words that count and, as n-grams of one, those that come more than once: how many of either."""
    ids, counts, flags = page.repeats.ids, page.repeats.counts, page.type_flags
    kept, size, characters = 0, 0, 0
    spelling.kept_starts[0] = 0
    for word in range(words):
        number = ids[word]
        page.repeats.places[size], page.repeats.grams[size] = kept, number
        counts_here = counted == defined.ALL_WORDS or flags[number] & counted != 0
        size += counts_here and counts[number] > 1
        kept += counts_here
        characters += (page.starts[word + 1] - page.starts[word]) * counts_here
        spelling.kept_starts[kept] = characters
    return kept, size


@compiled
def count_grams(
    texts: Texts, page: Page, document: Found, readings: Readings, counted: int, spelling: Spelling, rows: Any
) -> None:
    """Count the characters of the most frequent 2- to 4-gram and of repeated 5- to 10-grams, as readings do.

    Args:
        texts: the documents.
        page: has the words by their numbers.
        document: how much there is in it.
        readings: those are followed that count n-grams of ``counted``.
        counted: a flag, or ALL_WORDS.
        spelling: memory for the longest document.
        rows: float64 [readings, COLUMNS], written.
    """
    words, size = _start_grams(page, spelling, document.words, counted)
    starts, found, longest, choices = spelling.kept_starts, 0, 4, readings.choices
    for reading in range(len(choices)):
        here = choices[reading, defined.WHAT] & columns.REPETITION and choices[reading, defined.GRAM_WORDS] == counted
        if here and choices[reading, defined.REPEATED] != defined.SKIP:
            longest = 10
    for n in range(2, min(words, longest) + 1):
        if size:
            size, found = lengthen(page.repeats, size)
            size = keep_repeated(page.repeats, size)
        for reading in range(len(choices)):
            row, repeated = rows[reading], choices[reading, defined.REPEATED]
            here = choices[reading, defined.WHAT] & columns.REPETITION
            if not here or choices[reading, defined.GRAM_WORDS] != counted or (n > 4 and repeated == defined.SKIP):
                continue
            if n <= 4:
                top = _top_characters(texts, page, document, starts, size, found, n, choices[reading])
                row[columns.TOP_2_GRAM + n - 2] = top
            else:
                row[columns.TOP_2_GRAM + n - 2] = _repeated_characters(page, starts, size, n, repeated)
            if n > 4 and repeated == defined.SUM:
                for word in range(n):
                    row[columns.GRAM_CHARACTERS + n - 5] += starts[words - word] - starts[word]
