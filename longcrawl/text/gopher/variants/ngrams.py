"""Repeated n-grams as readings of Gopher's rules count them, as numba kernels over numbered words."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.ngrams import clear, covered, keep_repeated, lengthen, repeated_words, same_letters
from longcrawl.kernels.utf8 import copy
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_kernels import Page, Texts, number_page_words
from longcrawl.text.gopher.variants import definitions as defined
from longcrawl.text.gopher.variants.definitions import Reading

_U = np.uint64
_BASE = _U(0x9E3779B97F4A7C15)
_INVERSE = _U(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
"""Of the base, modulo 2**64."""
_SPACE = 0x20


class Spelling(NamedTuple):
    """Memory for the words of one document in a row, for what compares n-grams by their letters."""

    joined: npt.NDArray[np.uint8]
    """The bytes of all words without spaces, or of one n-gram with spaces."""
    begins: npt.NDArray[np.int64]
    """Where each word begins in it, and where the last ends."""
    sums: npt.NDArray[np.uint64]
    """Sum of all bytes before, each times a power of the base."""
    inverses: npt.NDArray[np.uint64]
    """The inverse of the power that the word's first byte was multiplied with."""


def make_spelling(texts: Texts) -> Spelling:
    """Allocate memory for the longest document."""
    longest = int(np.diff(texts.offsets).max(initial=0))
    words = longest // 2 + longest // 3 + 5
    joined, begins = np.empty(longest + 16, np.uint8), np.empty(words, np.int64)
    return Spelling(joined, begins, np.empty(words, np.uint64), np.empty(words, np.uint64))


@compiled
def _join(data: Any, page: Page, words: int, spelling: Spelling) -> None:
    """Write the words in a row, and what hashes any stretch of them wherever it is cut into words."""
    at, power, inverse, total = 0, _U(1), _U(1), _U(0)
    for word in range(words):
        spelling.begins[word], spelling.sums[word], spelling.inverses[word] = at, total, inverse
        for place in range(page.word_begins[word], page.word_ends[word]):
            spelling.joined[at] = data[place]
            total += _U(data[place]) * power
            power *= _BASE
            inverse *= _INVERSE
            at += 1
    spelling.begins[words], spelling.sums[words] = at, total


@compiled
def _skipped(page: Page, words: int, n: int, spelling: Spelling) -> int:
    """Count the characters of n-grams that stood before, going on after each; equal ones are spelled equally."""
    begins, starts, joined, table = spelling.begins, page.starts, spelling.joined, page.repeats.table
    sums, inverses, firsts, keys = spelling.sums, spelling.inverses, page.repeats.gram_firsts, page.repeats.keys
    mask = clear(table, words)
    place, unique, characters = 0, 0, 0
    while place + n <= words:
        begin, length = begins[place], begins[place + n] - begins[place]
        key = (sums[place + n] - sums[place]) * inverses[place]
        at = mixed(key ^ _U(length)) & mask
        while table[at] != 0:
            other = firsts[table[at] - 1]
            same = keys[table[at] - 1] == key and begins[other + n] - begins[other] == length
            if same and same_letters(joined, begins[other], begin, length):
                break
            at = (at + 1) & mask
        if table[at] != 0:
            characters += starts[place + n] - starts[place]
            place += n
            continue
        firsts[unique], keys[unique] = place, key
        unique += 1
        table[at] = unique
        place += 1
    return characters


@compiled
def _count_in_text(text: Any, data: Any, page: Page, first: int, n: int, joined: Any) -> int:
    """Count where the n words from ``first`` on, with a space between, stand in the text, inside words too."""
    size = 0
    for word in range(first, first + n):
        if word > first:
            joined[size] = _SPACE
            size += 1
        size = copy(data, page.word_begins[word], page.word_ends[word], joined, size)
    found, at = 0, 0
    while at + size <= len(text):
        same = 0
        while same < size and text[at + same] == joined[same]:
            same += 1
        found += same == size
        at += size if same == size else 1
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
    texts: Texts, document: int, page: Page, size: int, found: int, n: int, reading: Reading, joined: Any
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
        text = texts.data[texts.offsets[document] : texts.offsets[document + 1]]
        count = _count_in_text(text, texts.data, page, first, n, joined)
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
def _repeated_characters(page: Page, words: int, size: int, n: int, reading: Reading, spelling: Spelling) -> int:
    if reading.repeated == defined.SKIP:
        return _skipped(page, words, n, spelling)
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
    if reading.repeated == defined.SKIP:
        _join(texts.data, page, words, spelling)
    number_page_words(texts, page, words)
    size, found = repeated_words(page.repeats, words), 0
    for n in range(2, min(words, 10) + 1):
        if size and not (reading.repeated == defined.SKIP and n > 4):
            size, found = lengthen(page.repeats, size)
            size = keep_repeated(page.repeats, size)
        if n <= 4:
            characters = _top_characters(texts, document, page, size, found, n, reading, spelling.joined)
        else:
            characters = _repeated_characters(page, words, size, n, reading, spelling)
        row[columns.TOP_2_GRAM + n - 2] = characters
        if n > 4 and reading.repeated == defined.SUM:
            row[columns.GRAM_CHARACTERS + n - 5] = (page.starts[n : words + 1] - page.starts[: words + 1 - n]).sum()
