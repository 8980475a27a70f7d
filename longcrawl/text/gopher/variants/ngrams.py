"""Repeated n-grams as readings of Gopher's rules count them, as numba kernels over numbered words."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled, inlined
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import eight_at, put_eight
from longcrawl.kernels.ngrams import clear, covered, keep_repeated, lengthen, repeated_words, same_letters
from longcrawl.kernels.utf8 import copy
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_kernels import Page, Texts, number_page_words
from longcrawl.text.gopher.variants import definitions as defined
from longcrawl.text.gopher.variants.definitions import Reading

_U = np.uint64
_BASE = _U(0x9E3779B97F4A7C15)
_OTHER_BASE = _U(0xFF51AFD7ED558CCD)
_SPACE = 0x20
_LEAST = 5
"""Words of the shortest n-grams that are found by their letters."""
_FIRST_LETTERS = 16
"""Bytes by which these are compared first."""


class Spelling(NamedTuple):
    """Memory for the words of one document in a row, for what compares n-grams by their letters."""

    joined: npt.NDArray[np.uint8]
    """The bytes of all words without spaces."""
    begins: npt.NDArray[np.int64]
    """Where each word begins in it, and where the last ends."""
    slots: npt.NDArray[np.int32]
    """Where in the table the first letters of an n-gram at each word are."""
    candidates: npt.NDArray[np.int32]
    """The words at which n-grams may start that stand elsewhere, too."""
    hashed: npt.NDArray[np.int32]
    """How many bytes from each of these on are hashed, whole blocks of eight."""
    hashes: npt.NDArray[np.uint64]
    """And to what."""


def make_spelling(texts: Texts) -> Spelling:
    """Allocate memory for the longest document."""
    longest = int(np.diff(texts.offsets).max(initial=0))
    words = longest // 2 + longest // 3 + 5
    joined, begins = np.empty(longest + 2 * _FIRST_LETTERS, np.uint8), np.empty(words, np.int64)
    slots, candidates, hashed = np.empty((3, words), np.int32)
    return Spelling(joined, begins, slots, candidates, hashed, np.empty(words, np.uint64))


@compiled
def _join(data: Any, page: Page, words: int, spelling: Spelling) -> None:
    """Write the words in a row."""
    at, begins, ends = 0, page.word_begins, page.word_ends
    source, target = np.int64(data.ctypes.data), np.int64(spelling.joined.ctypes.data)
    for word in range(words):
        begin, end = begins[word], ends[word]
        spelling.begins[word] = at
        if begin + (end - begin + 7) // 8 * 8 <= len(data):
            for place in range(0, end - begin, 8):
                put_eight(target + at + place, eight_at(source + begin + place))
        else:
            copy(data, begin, end, spelling.joined, at)
        at += end - begin
    spelling.begins[words] = at


@compiled
def _find_candidates(page: Page, words: int, spelling: Spelling) -> int:
    """Write at which words an n-gram may start that stands elsewhere, too, and give how many there are.

    Such n-grams have the same first letters, or fewer of them; some others have them by chance.
    """
    table, begins, slots = page.repeats.table, spelling.begins, spelling.slots
    address, last = np.int64(spelling.joined.ctypes.data), begins[words] - _FIRST_LETTERS
    mask = clear(table, words)
    for word in range(words):
        if begins[word] > last:
            break
        at = address + begins[word]
        key = (eight_at(at) * _BASE ^ eight_at(at + 8)) * _OTHER_BASE
        key ^= key >> _U(32)
        mark, slot = np.int32(key >> _U(33)) | 3, np.int64(key * _BASE >> _U(32)) & mask
        while table[slot] != 0 and table[slot] | 1 != mark:
            slot = (slot + 1) & mask
        table[slot] = mark if table[slot] else mark - 1
        slots[word] = slot
    found = 0
    for word in range(words - _LEAST + 1):
        spelling.candidates[found], spelling.hashed[found], spelling.hashes[found] = word, 0, _U(0)
        few = begins[word + _LEAST] - begins[word] < _FIRST_LETTERS
        found += few or table[slots[word]] & 1
    return found


@inlined
def _hash(spelling: Spelling, candidate: int, begin: int, length: int) -> np.uint64:
    """Hash the letters from a candidate on, after those that were hashed for shorter n-grams."""
    at = np.int64(spelling.joined.ctypes.data) + begin
    done, found = spelling.hashed[candidate], spelling.hashes[candidate]
    while done + 8 <= length:
        found = (found ^ eight_at(at + done)) * _BASE
        found ^= found >> _U(32)
        done += 8
    spelling.hashed[candidate], spelling.hashes[candidate] = done, found
    rest = eight_at(at + done) & (_U(1) << _U(8 * (length - done))) - _U(1)
    return (found ^ rest) * _BASE


@compiled
def _skipped(page: Page, words: int, n: int, candidates: int, spelling: Spelling) -> int:
    """Count the characters of n-grams that stood before, going on after each; equal ones are spelled equally."""
    begins, starts, joined, table = spelling.begins, page.starts, spelling.joined, page.repeats.table
    firsts, keys = page.repeats.gram_firsts, page.repeats.keys
    mask = clear(table, candidates)
    reached, unique, characters = 0, 0, 0
    for candidate in range(candidates):
        place = spelling.candidates[candidate]
        if place < reached:
            continue
        if place + n > words:
            break
        begin, length = begins[place], begins[place + n] - begins[place]
        key = _hash(spelling, candidate, begin, length)
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


@inlined
def _stands_at(data: Any, at: int, begin: int, size: int) -> bool:
    """Whether the bytes from ``begin`` on stand at another place, too."""
    same = 0
    while same < size and data[at + same] == data[begin + same]:
        same += 1
    return same == size


@compiled
def _count_in_text(data: Any, start: int, end: int, page: Page, words: int, first: int, n: int) -> int:
    """Count where the n words from ``first`` on, with a space between, stand in the text, inside words too."""
    begins, ends = page.word_begins, page.word_ends
    found, reached, head = 0, start, ends[first] - begins[first]
    size = head + n - 1
    for word in range(first + 1, first + n):
        size += ends[word] - begins[word]
    for word in range(words - 1):
        # Before the n-gram's first space a word of the text ends.
        space = ends[word]
        begin = space - head
        fits = begin >= reached and begin + size <= end and data[space] == _SPACE
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
def _choose_top(page: Page, found: int, n: int, top: int) -> int:
    """Return the most frequent n-gram, of several the first or the first of the longest."""
    counts, firsts, starts = page.repeats.gram_counts, page.repeats.gram_firsts, page.starts
    best = 0
    for gram in range(1, found):
        longer = starts[firsts[gram] + n] - starts[firsts[gram]] > starts[firsts[best] + n] - starts[firsts[best]]
        if counts[gram] > counts[best] or (top == defined.LONGEST and longer and counts[gram] == counts[best]):
            best = gram
    return best


@compiled
def _top_characters(
    texts: Texts, document: int, page: Page, words: int, size: int, found: int, n: int, reading: Reading
) -> int:
    """Count the characters that a reading gives to the most frequent n-gram."""
    first, count = 0, 0
    if size:
        gram = _choose_top(page, found, n, reading.top)
        first, count = page.repeats.gram_firsts[gram], page.repeats.gram_counts[gram]
    elif reading.top_once == defined.ONCE_TOO:
        count = 1
    length = page.starts[first + n] - page.starts[first]
    if reading.top_size == defined.IN_WORDS:
        return length * count
    if reading.top_size == defined.FOUND_IN_TEXT:
        start, end = texts.offsets[document], texts.offsets[document + 1]
        count = _count_in_text(texts.data, start, end, page, words, first, n)
    return (length + n - 1) * count


@compiled
def _later(page: Page, size: int, n: int) -> int:
    """Count words and spaces that an n-gram covers which stood before, each once."""
    starts, places, grams, firsts = page.starts, page.repeats.places, page.repeats.grams, page.repeats.gram_firsts
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
def _summed(page: Page, size: int, n: int) -> int:
    """Count the characters of all repeated n-grams, as often as they come."""
    starts, places, total = page.starts, page.repeats.places, 0
    for at in range(size):
        total += starts[places[at] + n] - starts[places[at]]
    return total


@compiled
def _repeated_characters(page: Page, size: int, n: int, reading: Reading) -> int:
    if reading.repeated == defined.SUM:
        return _summed(page, size, n)
    if reading.repeated == defined.LATER:
        return _later(page, size, n)
    return covered(page.repeats, page.starts, size, n)


@compiled
def count_grams(
    texts: Texts, document: int, page: Page, words: int, reading: Reading, spelling: Spelling, row: Any
) -> None:
    """Count the characters of the most frequent 2- to 4-gram and of repeated 5- to 10-grams, as a reading does.

    ``page`` has the words, ``row`` (float64) is written.
    """
    if reading.few_words == defined.EVERYTHING and words:
        for n in range(words + 1, 11):
            row[columns.TOP_2_GRAM + n - 2] = row[columns.CHARACTERS]
    skips = reading.repeated == defined.SKIP
    number_page_words(texts, page, words)
    size, found = repeated_words(page.repeats, words), 0
    for n in range(2, min(words, 4 if skips else 10) + 1):
        if size:
            size, found = lengthen(page.repeats, size)
            size = keep_repeated(page.repeats, size)
        if n <= 4:
            characters = _top_characters(texts, document, page, words, size, found, n, reading)
        else:
            characters = _repeated_characters(page, size, n, reading)
        row[columns.TOP_2_GRAM + n - 2] = characters
        if n > 4 and reading.repeated == defined.SUM:
            for word in range(words + 1 - n):
                row[columns.GRAM_CHARACTERS + n - 5] += page.starts[word + n] - page.starts[word]
    if skips and words >= _LEAST:
        _join(texts.data, page, words, spelling)
        candidates = _find_candidates(page, words, spelling)
        for n in range(_LEAST, 11):
            row[columns.TOP_2_GRAM + n - 2] = _skipped(page, words, n, candidates, spelling)
