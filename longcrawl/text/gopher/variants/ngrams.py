"""Repeated n-grams as readings of Gopher's rules count them, as numba kernels over numbered words."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, mixed
from longcrawl.kernels.ngrams import clear, covered, keep_repeated, lengthen, repeated_words
from longcrawl.text.gopher._page_kernels import Page, number_words, same_bytes
from longcrawl.text.gopher.page_columns import CHARACTERS, DUPLICATE_5_GRAMS, GRAM_CHARACTERS, TOP_2_GRAM
from longcrawl.text.gopher.variants.definitions import (
    EVERYTHING,
    FOUND_IN_TEXT,
    IN_WORDS,
    LATER,
    LONGEST,
    ONCE_TOO,
    SKIP,
    SUM,
    Reading,
)

__all__ = ["Spelling", "count_grams", "make_spelling"]

_U = np.uint64
_BASE = _U(0x9E3779B97F4A7C15)
_INVERSE = _U(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
"""Of the base, modulo 2**64."""
_SPACE = 0x20


class Spelling(NamedTuple):
    """Memory for the words of one document in a row, for what compares n-grams by their letters."""

    joined: npt.NDArray[np.uint8]
    """The bytes of all words without spaces, of one n-gram with spaces, or of one word in lower case."""
    begins: npt.NDArray[np.int64]
    """Where each word begins in it, and where the last ends."""
    sums: npt.NDArray[np.uint64]
    """Sum of all bytes before, each times a power of the base."""
    inverses: npt.NDArray[np.uint64]
    """The inverse of the power that the word's first byte was multiplied with."""
    lengths: npt.NDArray[np.int32]
    """Zeros, one per possible length of a word."""


def make_spelling(longest: int) -> Spelling:
    """Allocate memory for documents of up to ``longest`` bytes."""
    words = longest // 2 + longest // 3 + 5
    return Spelling(
        np.empty(2 * longest + 16, np.uint8),
        np.empty(words, np.int64),
        np.empty(words, np.uint64),
        np.empty(words, np.uint64),
        np.zeros(longest + 1, np.int32),
    )


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
    begins, joined, table = spelling.begins, spelling.joined, page.table
    mask = clear(table, words)
    place, unique, characters = 0, 0, 0
    while place + n <= words:
        begin, length = begins[place], begins[place + n] - begins[place]
        key = (spelling.sums[place + n] - spelling.sums[place]) * spelling.inverses[place]
        at = mixed(key ^ _U(length)) & mask
        while table[at] != 0:
            other = page.gram_firsts[table[at] - 1]
            same = page.keys[table[at] - 1] == key and begins[other + n] - begins[other] == length
            if same and same_bytes(joined, begins[other], begin, length):
                break
            at = (at + 1) & mask
        if table[at] != 0:
            characters += page.starts[place + n] - page.starts[place]
            place += n
            continue
        page.gram_firsts[unique], page.keys[unique] = place, key
        unique += 1
        table[at] = unique
        place += 1
    return characters


@compiled
def _count_in_text(data: Any, begin: int, end: int, page: Page, first: int, n: int, joined: Any) -> int:
    """Count where the n words from ``first`` on, with a space between, stand in the text, inside words too."""
    size = 0
    for word in range(first, first + n):
        if word > first:
            joined[size] = _SPACE
            size += 1
        for place in range(page.word_begins[word], page.word_ends[word]):
            joined[size] = data[place]
            size += 1
    found, at = 0, begin
    while at + size <= end:
        same = 0
        while same < size and data[at + same] == joined[same]:
            same += 1
        found += same == size
        at += size if same == size else 1
    return found


@compiled
def _choose_top(page: Page, found: int, n: int, top: int) -> int:
    """Return the most frequent n-gram, of several the first or the first of the longest."""
    counts, firsts, starts = page.gram_counts, page.gram_firsts, page.starts
    best = 0
    for gram in range(1, found):
        longer = starts[firsts[gram] + n] - starts[firsts[gram]] > starts[firsts[best] + n] - starts[firsts[best]]
        if counts[gram] > counts[best] or (top == LONGEST and longer and counts[gram] == counts[best]):
            best = gram
    return best


@compiled
def _top_characters(
    data: Any, begin: int, end: int, page: Page, size: int, found: int, n: int, reading: Reading, joined: Any
) -> int:
    """Count the characters that a reading gives to the most frequent n-gram."""
    first, count = 0, 0
    if size:
        gram = _choose_top(page, found, n, reading.top)
        first, count = page.gram_firsts[gram], page.gram_counts[gram]
    elif reading.top_once == ONCE_TOO:
        count = 1
    length = page.starts[first + n] - page.starts[first]
    if reading.top_size == IN_WORDS:
        return length * count
    if reading.top_size == FOUND_IN_TEXT:
        count = _count_in_text(data, begin, end, page, first, n, joined)
    return (length + n - 1) * count


@compiled
def _later(page: Page, size: int, n: int) -> int:
    """Count words and spaces that an n-gram covers which stood before, each once."""
    starts, places, total, reached = page.starts, page.places, 0, 0
    for at in range(size):
        place = places[at]
        if page.gram_firsts[page.grams[at]] == place:
            continue
        new = max(place, reached)
        reached = place + n
        total += starts[reached] - starts[new] + min(reached - new, n - 1)
    return total


@compiled
def _summed(page: Page, size: int, n: int) -> int:
    """Count the characters of all repeated n-grams, as often as they come."""
    total = 0
    for at in range(size):
        total += page.starts[page.places[at] + n] - page.starts[page.places[at]]
    return total


@compiled
def _count_all(page: Page, words: int, row: Any) -> None:
    """Count the characters of all n-grams of n = 5 to 10."""
    total = 0
    for word in range(words + 1):
        total += page.starts[word]
    ends, begins = total, total
    for n in range(1, min(words, 10) + 1):
        ends -= page.starts[n - 1]
        begins -= page.starts[words - n + 1]
        if n >= 5:
            row[GRAM_CHARACTERS + n - 5] = ends - begins


@compiled
def _repeated_characters(page: Page, words: int, size: int, n: int, reading: Reading, spelling: Spelling) -> int:
    if reading.repeated == SKIP:
        return _skipped(page, words, n, spelling)
    if reading.repeated == SUM:
        return _summed(page, size, n)
    if reading.repeated == LATER:
        return _later(page, size, n)
    return covered(page, size, n)


@compiled
def count_grams(
    data: Any, begin: int, end: int, page: Page, words: int, reading: Reading, spelling: Spelling, row: Any
) -> None:
    """Count the characters of the most frequent 2- to 4-gram and of repeated 5- to 10-grams, as a reading does.

    Args:
        data: uint8, the text.
        begin: where the document begins.
        end: where it ends.
        page: has its words.
        words: how many there are.
        reading: whose rules are followed.
        spelling: memory for the longest document.
        row: float64, written.

    """
    if reading.few_words == EVERYTHING and words:
        for n in range(words + 1, 11):
            row[TOP_2_GRAM + n - 2 if n <= 4 else DUPLICATE_5_GRAMS + n - 5] = row[CHARACTERS]
    if reading.repeated == SKIP:
        _join(data, page, words, spelling)
    if reading.repeated == SUM:
        _count_all(page, words, row)
    number_words(data, page, words)
    size, found = repeated_words(page, words), 0
    for n in range(2, min(words, 10) + 1):
        if size and not (reading.repeated == SKIP and n > 4):
            size, found = lengthen(page, size)
            size = keep_repeated(page, size)
        if n <= 4:
            row[TOP_2_GRAM + n - 2] = _top_characters(data, begin, end, page, size, found, n, reading, spelling.joined)
        else:
            row[DUPLICATE_5_GRAMS + n - 5] = _repeated_characters(page, words, size, n, reading, spelling)
