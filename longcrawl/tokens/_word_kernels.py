"""Encode texts by kernels: split by a scanner, look known words up, merge new ones and remember them."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import eight_at, prefetch, put_eight, put_four
from longcrawl.tokens._join_table import NONE, Merges, Ranks, Wide, locate
from longcrawl.tokens._merge_kernels import (
    SHORT,
    TOGETHER,
    TOKENS_STEP,
    Queue,
    Together,
    make_together,
    merge_long,
    merge_parts,
    merge_short,
    merge_together,
)
from longcrawl.tokens._patterns import character_classes
from longcrawl.tokens._split_kernels import AHEAD, split
from longcrawl.tokens._word_table import (
    AT_ONCE,
    KEPT,
    LONGEST_WORD,
    Bytes,
    Longs,
    Vocabulary,
    Words,
    enter,
    find,
    find_short,
    first_place,
    is_full,
    make_words,
    preload,
    remember,
    word_key,
)

PART = 1 << 14
"""Bytes of a piece that are encoded at once: what that takes then stays in the nearest caches."""

_U = np.uint64


class Block(NamedTuple):
    """Pieces while they are looked up."""

    starts: Longs
    """The address of each, and of what follows the last."""
    lows: Wide
    highs: Wide
    places: Wide
    """The key of each, and the first place of the table where it may stand."""
    entries: Longs
    """The address of its word in the table."""
    missed: Longs
    """The pieces that were not found at once."""
    fresh: Longs
    """The addresses of words that are new."""


class Tables(NamedTuple):
    """All that encoding needs besides the texts."""

    pattern: int
    classes: Bytes
    words: Words
    vocabulary: Vocabulary
    merges: Merges
    queue: Queue
    together: Together
    block: Block
    tokens: Ranks
    """Room for the tokens and ranks of one word."""


def make_tables(pattern: int, tokens: Sequence[bytes], room: int) -> Tables:
    """Return all tables for a pattern and tokens in the order of their ranks."""
    words, vocabulary, merges = make_words(tokens, room)
    queue = Queue(np.full(len(tokens), NONE, np.uint32), np.zeros(len(tokens) // 64 + 1, np.uint64))
    block, together = Block(*(np.empty(AT_ONCE + 1, kind) for kind in "qQQQqqq")), make_together(AT_ONCE)
    of_one = np.empty(2 * LONGEST_WORD, np.uint32)
    return Tables(pattern, character_classes(), words, vocabulary, merges, queue, together, block, of_one)


@compiled
def _merge_apart(tables: Tables, entry: int, at: int, length: int) -> None:
    """Encode and remember a word of ``TOGETHER`` bytes or more."""
    merges, tokens = tables.merges, tables.tokens
    first = np.int64(tokens.ctypes.data)
    if length > SHORT:
        made = merge_long(merges, tables.queue, at, length, tokens, 0)
    else:
        made = merge_short(locate(merges), at, length, first, first + 4 * LONGEST_WORD, np.int64(NONE), 1)
    remember(tables.words, entry, first, made)


@compiled
def _merge_new(words: Words, merges: Merges, together: Together, entries: Longs, count: int) -> None:
    """Encode and remember words that were entered."""
    merge_together(merges, together, count)
    first = np.int64(together.tokens.ctypes.data)
    for word in range(count):
        remember(words, entries[word], first + TOKENS_STEP * word, together.lengths[word])


@compiled
def _make_keys(words: Words, block: Block, count: np.uint64) -> None:
    """Write the keys of pieces, and begin to load their places in the table."""
    first, size = np.int64(words.table.ctypes.data), len(words.table) // 4
    starts, lows, highs, places, _, _, _ = block
    for piece in range(_U(0), count):
        start = starts[piece]
        low, high = word_key(start, starts[piece + _U(1)] - start)
        place = first_place(size, low, high)
        prefetch(first + np.int64(place << _U(5)))
        lows[piece], highs[piece], places[piece] = low, high, place


@compiled
def _find_short(words: Words, block: Block, count: np.uint64) -> np.uint64:
    """Enter where the words of pieces stand, list the pieces of which that is not known, and return their number."""
    table, listed = np.int64(words.table.ctypes.data), _U(0)
    _, lows, highs, places, entries, missed, _ = block
    for piece in range(_U(0), count):
        entries[piece], found = find_short(table, lows[piece], highs[piece], places[piece])
        missed[listed] = piece
        listed += _U(not found)
    return listed


@compiled
def _look_up(tables: Tables, block: Block, count: np.uint64) -> int:
    """Find the words of pieces, encode new ones, and enter where each stands, 0 for a piece that is not remembered.

    Returns the length of the longest piece that is not remembered.
    """
    words, merges, together = tables.words, tables.merges, tables.together
    table, size, arena = np.int64(words.table.ctypes.data), len(words.table) // 4, np.int64(words.arena.ctypes.data)
    starts, lows, highs, places, entries, missed, fresh = block
    new, most = _U(0), np.int64(0)
    for number in range(_U(0), _find_short(words, block, count)):
        piece = _U(missed[number])
        start, low, high = starts[piece], lows[piece], highs[piece]
        entry = find(table, size, arena, start, low, high, places[piece])
        entries[piece] = entry
        if eight_at(entry + 8) == _U(0):
            length = starts[piece + _U(1)] - start
            if length > LONGEST_WORD:
                entries[piece] = 0
                most = max(most, length)
                continue
            enter(words, entry, start, low, high)
            if length < TOGETHER:
                together.starts[new], together.lengths[new], fresh[new] = start, length, entry
                new += _U(1)
            else:
                _merge_apart(tables, entry, start, length)
    if new > _U(0):
        _merge_new(words, merges, together, fresh, np.int64(new))
    return most


@compiled
def _write(
    tables: Tables, block: Block, first: np.uint64, count: np.uint64, out: Ranks, written: np.uint64
) -> np.uint64:
    """Write the ranks of the pieces of a block from one to before another."""
    starts, entries, ranks, to = block.starts, block.entries, tables.words.ranks, np.int64(out.ctypes.data)
    for piece in range(first, count):
        entry = entries[piece]
        if entry == 0:
            start = starts[piece]
            length, so_far = starts[piece + _U(1)] - start, np.int64(written)
            bounds = tables.vocabulary.bounds
            written = _U(merge_parts(tables.merges, tables.queue, bounds, start, length, out, so_far, PART))
            continue
        third, fourth = eight_at(entry + 16), eight_at(entry + 24)
        if fourth < KEPT:
            place = to + np.int64(written << _U(2))
            put_eight(place, third)
            put_four(place + 8, np.int64(fourth))
            written += fourth >> _U(32)
            continue
        source = third & _U(NONE)
        for _ in range((fourth & ~KEPT) >> _U(32)):
            out[written] = ranks[source]
            written += _U(1)
            source += _U(1)
    return written


@compiled
def encode_texts(text: Bytes, bounds: Longs, tables: Tables, longest: int, out: Ranks, offsets: Longs) -> int:
    """Write the ranks of all texts, ``text[bounds[i]:bounds[i + 1]]``, and where those of each end.

    Returns how many there are, or -1 where a piece has more than ``longest`` bytes. Many pieces are split before they
    are looked up, whatever texts they are of, so that the misses of the cache overlap. Meanwhile ``offsets`` has the
    piece that each text ends before.
    """
    words, block, texts = tables.words, tables.block, len(bounds) - 1
    classes, first = np.int64(tables.classes.ctypes.data), np.int64(text.ctypes.data)
    at, written, split_texts, written_texts = first + bounds[0], _U(0), np.int64(0), np.int64(0)
    while split_texts < texts:
        count = _U(0)
        while split_texts < texts and count < _U(AT_ONCE - AHEAD):
            end = first + bounds[split_texts + 1]
            at, count = split(tables.pattern, classes, at, end, block.starts, count, AT_ONCE - AHEAD)
            if at == end:
                split_texts += 1
                offsets[split_texts] = count
        block.starts[count] = at
        if is_full(words):
            preload(words, tables.vocabulary)
        _make_keys(words, block, count)
        if _look_up(tables, block, count) > longest:
            return -1
        piece = _U(0)
        while written_texts < split_texts:
            written_texts += 1
            last = _U(offsets[written_texts])
            written = _write(tables, block, piece, last, out, written)
            offsets[written_texts], piece = written, last
        written = _write(tables, block, piece, count, out, written)
    return np.int64(written)
