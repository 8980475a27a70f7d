"""The words of texts as fastText cuts them, and what is remembered of those that were met before.

Words are found 64 bytes at a time, and what is remembered of those of a stretch is loaded while the next are looked up.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import TESTED, WRITTEN, eight_at, find_byte, find_white, prefetch, put_eight, write_places
from longcrawl.text._fasttext_model import Words

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.uint64]
Memory = npt.NDArray[np.uint64]
"""uint64 [slots, 8], a cache line each: the bytes of a word that was met before, how many these are, how many rows it
has, its hash, and these rows. A later word of the same slot replaces it.
"""

LONGEST = 16
"""Bytes of a word that is remembered, at most."""

REMEMBERED = 10
"""Rows of such a word at most."""

STRETCH = 512
"""Bytes whose words are cut at a time."""

_CUT_WORDS = STRETCH // 2 + 1 + WRITTEN
"""Room for as many words as these may have, the one that began before them, and places that are written too far."""

LANES = 16
"""How many n-grams are hashed side by side."""

_U = np.uint64
_BEGIN, _LISTED = 60, 4096
_SLOTS, _LINE_BYTES = 1 << 17, 64
_SPREAD = _U(0x9E3779B97F4A7C15)
_LOW, _HIGH = (
    np.array([(1 << 8 * min(max(size - before, 0), 8)) - 1 for size in range(LONGEST + 1)], np.uint64)
    for before in (0, 8)
)
"""What is left of 16 bytes of which so many are a word's."""


class Scratch(NamedTuple):
    """Room for what is known of one text at a time."""

    bracketed: Bytes
    """A word between < and >."""
    listed: Numbers
    """Rows that are still to be added."""
    hashes: Numbers
    """Of all words, where there are n-grams of words."""
    edges: Integers
    """Where words of a stretch begin, and where they end."""
    keys: Hashes
    """Of each of these words its bytes, and its address in the memory."""
    buckets: Numbers
    """int32 [characters of an n-gram + 1, 17]: 16 hashes, then their buckets by length; and in the last column, of each
    length, a bit for each bucket that has a row.
    """


def make_memory() -> Memory:
    """Return a memory of nothing."""
    numbers = _LINE_BYTES // 8
    room = np.zeros((_SLOTS + 1) * numbers, np.uint64)
    first = -room.ctypes.data % _LINE_BYTES // 8
    return room[first : first + _SLOTS * numbers].reshape(_SLOTS, numbers)


@allocating
def make_scratch(words: Words, offsets: Integers) -> Scratch:
    """Return room for the longest of some texts."""
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    hashes, ngrams = longest // 2 + 2 if words.word_ngrams > 1 else 0, max(words.longest, 0)
    return Scratch(
        np.full(longest + 2 + 2 * LANES + ngrams, _BEGIN, np.uint8),
        np.zeros(_LISTED, np.int32),
        np.zeros(hashes, np.int32),
        np.zeros((2, _CUT_WORDS), np.int64),
        np.zeros((3, _CUT_WORDS), np.uint64),
        np.zeros((ngrams + 1, LANES + 1), np.int32),
    )


@compiled
def cut_words(text: Bytes, at: int, edges: Integers, begun: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Find where the words of a stretch begin and end, the first one perhaps before it.

    Args:
        text: uint8.
        at: where the stretch begins.
        edges: int64 [2, _CUT_WORDS], written: where words begin, and where they end.
        begun: 1 where a word began before the stretch and has not ended; where it began is in ``edges``.

    Returns:
        How many words have begun, and how many of them ended: one may go on behind the stretch.
    """
    first, ended, within = np.int64(text.ctypes.data), _U(0), begun
    stop = min(at + STRETCH, len(text))
    while at < stop:
        letters = _U(0)
        if at + TESTED <= len(text):
            letters = ~(find_white(first + at) | find_byte(first + at, 0))
        else:
            for place in range(len(text) - at):
                letters |= _U(not _ends_word(text[at + place])) << _U(place)
        before = letters << _U(1) | within
        begun = write_places(letters & ~before, at, edges[0], begun)
        ended = write_places(before & ~letters, at, edges[1], ended)
        within = letters >> _U(63)
        at += TESTED
    if at >= len(text) and begun > ended:
        edges[1, ended] = len(text)
        ended += _U(1)
    return begun, ended


@forced_inline
def _ends_word(byte: np.uint8) -> bool:
    return byte == 32 or 9 <= byte <= 13 or byte == 0


@compiled
def find_places(text: Bytes, edges: Integers, count: int, memory: Memory, keys: Hashes) -> None:
    """Write the bytes of some words, and where in the memory each would be, and begin to load that.

    Args:
        text: uint8.
        edges: int64 [2, words or more], where they begin and end.
        count: of the words.
        memory: uint64 [slots, 8].
        keys: uint64 [3, words or more], written: the first eight bytes of a word, the next eight, both zeros for one of
            more than 16; and an address in the memory.
    """
    first, lines = np.int64(text.ctypes.data), np.int64(memory.ctypes.data)
    for word in range(count):
        start, size = edges[0, word], edges[1, word] - edges[0, word]
        low = high = _U(0)
        if size <= LONGEST and start + LONGEST <= len(text):
            low, high = eight_at(first + start) & _LOW[size], eight_at(first + start + 8) & _HIGH[size]
        elif size <= LONGEST:
            for place in range(size):
                byte = _U(text[start + place])
                low |= byte << _U(8 * place) if place < 8 else _U(0)
                high |= byte << _U(8 * (place - 8)) if place >= 8 else _U(0)
        slot = mixed((low + _U(size)) * _SPREAD ^ high) & (_SLOTS - 1)
        keys[0, word], keys[1, word], keys[2, word] = low, high, _U(lines + slot * _LINE_BYTES)
        prefetch(lines + slot * _LINE_BYTES)


@compiled
def remember(line: int, low: np.uint64, high: np.uint64, size: int, hashed: np.uint64, listed: Numbers) -> None:
    """Write a word at an address of the memory, with its rows."""
    put_eight(line, low)
    put_eight(line + 8, high)
    put_eight(line + 16, _U(size) | _U(len(listed)) << _U(8) | hashed << _U(32))
    for pair in range(REMEMBERED // 2):
        rows = _U(0)
        for each in range(2 * pair, min(2 * pair + 2, len(listed))):
            rows |= _U(listed[each]) << _U(32 * (each - 2 * pair))
        put_eight(line + 24 + 8 * pair, rows)
