"""Encode texts by kernels: split by a scanner, look known words up, merge new ones and remember them.

The table of words begins with the vocabulary. A word is compared in full, never by its hash alone, so what a text is
encoded to does not depend on the texts before it. When the table is full, all words but the vocabulary are forgotten.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.memory import byte_at, eight_at, four_at, prefetch, put_eight
from longcrawl.tokens._join_table import (
    NONE,
    RANK_BITS,
    Merges,
    Ranks,
    Wide,
    locate,
    make_merges,
    possible_joins,
)
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
from longcrawl.tokens._split_kernels import piece_end

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

LONGEST_WORD = 128
"""In bytes; longer pieces that are no token are too rare to remember."""
PART = 1 << 14
"""Bytes of a piece that are encoded at once: what that takes then stays in the nearest caches."""
PAST_END = 16
"""Bytes that may be read after the last of a text."""
_BLOCK = 128
"""Pieces whose words are loaded while the next are split."""

_U = np.uint64
_MIX = _U(0x9E3779B97F4A7C15)
_MIX_HIGH = _U(0xD6E8FEB86659FD93)
_HASHED = _U(1 << 63)
_KEPT = _U(1 << 63)
_LOW_BITS = np.array([(1 << 8 * min(length, 8)) - 1 for length in range(16)], np.uint64)
_HIGH_BITS = np.array([(1 << 8 * max(length - 8, 0)) - 1 for length in range(16)], np.uint64)


class Words(NamedTuple):
    """Open-addressing table of words, four numbers each: two of the key, two of the ranks.

    Up to 15 bytes the key is the word itself and its length; beyond, a hash and the length, and the bytes are
    compared. Three ranks fit beside a short word. Of others the two numbers are places in ``ranks`` and ``arena``.
    """

    table: Wide
    """Its size is 4 times a power of two; the second number of an empty place is 0."""
    ranks: Ranks
    arena: Bytes
    used: Longs
    """How many words there are, and how much of ``ranks`` and of ``arena`` is used."""


class Vocabulary(NamedTuple):
    """The tokens by rank, end to end, and bounds of each."""

    tokens: Bytes
    bounds: Longs


@compiled
def _word_key(at: int, length: int) -> tuple[np.uint64, np.uint64]:
    """Return both halves of the key of the word at an address."""
    if length < 16:
        low, high = eight_at(at) & _LOW_BITS[length], eight_at(at + 8) & _HIGH_BITS[length]
        return low, high | _U(length) << _U(56)
    hashed = _U(length) * _MIX
    for place in range(at, at + length - 7, 8):
        hashed = (hashed ^ eight_at(place)) * _MIX
        hashed ^= hashed >> _U(29)
    hashed = (hashed ^ eight_at(at + length - 8)) * _MIX_HIGH
    return hashed ^ (hashed >> _U(31)), _U(length) | _HASHED


@compiled
def _spread(low: np.uint64, high: np.uint64) -> np.uint64:
    mixed = (low ^ (high * _MIX_HIGH)) * _MIX
    return mixed ^ (mixed >> _U(32))


@compiled
def _same(at: int, other: int, length: int) -> bool:
    """Compare 16 bytes or more."""
    for place in range(0, length - 7, 8):
        if eight_at(at + place) != eight_at(other + place):
            return False
    return eight_at(at + length - 8) == eight_at(other + length - 8)


@forced_inline
def _find(table: int, mask: np.uint64, arena: int, at: int, low: np.uint64, high: np.uint64, place: np.uint64) -> int:
    """Return the address of the word with a key, or of the empty place where it belongs; ``place`` is its first."""
    while True:
        entry = table + np.int64(place << _U(5))
        second = eight_at(entry + 8)
        if second == _U(0):
            return entry
        if second == high and eight_at(entry) == low:
            if high < _HASHED:
                return entry
            if _same(at, arena + np.int64(eight_at(entry + 16) >> _U(32)), np.int64(high & ~_HASHED)):
                return entry
        place = (place + _U(1)) & mask


@forced_inline
def _remember(words: Words, entry: int, at: int, low: np.uint64, high: np.uint64, tokens: int, count: int) -> None:
    """Enter a word, whose ranks stand at ``tokens``, that does not fit in the table with them."""
    _, ranks, arena, used = words
    put_eight(entry, low)
    put_eight(entry + 8, high)
    put_eight(entry + 16, _U(used[1]) | _U(used[2]) << _U(32))
    put_eight(entry + 24, _U(count) << _U(32) | _KEPT)
    used[0] += 1
    for number in range(count):
        ranks[used[1] + number] = four_at(tokens + 4 * number)
    used[1] += count
    if high >= _HASHED:
        length = np.int64(high & ~_HASHED)
        for number in range(length):
            arena[used[2] + number] = byte_at(at + number)
        used[2] += length


@compiled
def _remember_short(entry: int, low: np.uint64, high: np.uint64, tokens: int, count: int) -> None:
    """Enter a word of at most 15 bytes and three ranks."""
    put_eight(entry, low)
    put_eight(entry + 8, high)
    put_eight(entry + 16, eight_at(tokens))
    put_eight(entry + 24, _U(count) << _U(32) | _U(four_at(tokens + 8)))


@allocating
def preload(words: Words, vocabulary: Vocabulary) -> None:
    """Forget all words and enter the vocabulary."""
    table, bounds = words.table, vocabulary.bounds
    start, arena = np.int64(table.ctypes.data), np.int64(words.arena.ctypes.data)
    first, mask = np.int64(vocabulary.tokens.ctypes.data), _U(len(table) // 4 - 1)
    table[:] = _U(0)
    words.used[:] = 0
    tokens = np.zeros(3, np.uint32)
    tokens_at = np.int64(tokens.ctypes.data)
    for rank in range(len(bounds) - 1):
        at = first + bounds[rank]
        low, high = _word_key(at, bounds[rank + 1] - bounds[rank])
        tokens[0] = rank
        entry = _find(start, mask, arena, at, low, high, _spread(low, high) & mask)
        if high < _HASHED:
            _remember_short(entry, low, high, tokens_at, 1)
            words.used[0] += 1
        else:
            _remember(words, entry, at, low, high, tokens_at, 1)


@allocating
def list_joins(words: Words, vocabulary: Vocabulary, single: Ranks, of_bytes: Ranks) -> Wide:
    """Return all joins of two tokens to one, packed as in ``Merges``, when words are the vocabulary alone."""
    table, arena = np.int64(words.table.ctypes.data), np.int64(words.arena.ctypes.data)
    mask = _U(len(words.table) // 4 - 1)
    tokens, bounds, ranks = np.int64(vocabulary.tokens.ctypes.data), vocabulary.bounds, words.ranks
    joins = np.empty(bounds[-1] - len(bounds) + 1, np.uint64)
    count = 0
    of_bytes[:] = NONE
    for rank in range(len(bounds) - 1):
        start, stop = tokens + bounds[rank], tokens + bounds[rank + 1]
        if stop - start == 1:
            single[byte_at(start)] = rank
        if stop - start == 2:
            of_bytes[byte_at(start) << 8 | byte_at(start + 1)] = rank
        for cut in range(start + 1, stop):
            join = _U(0)
            for at, end in ((start, cut), (cut, stop)):
                low, high = _word_key(at, end - at)
                entry = _find(table, mask, arena, at, low, high, _spread(low, high) & mask)
                if eight_at(entry + 8) == _U(0):
                    break
                kept = eight_at(entry + 24) & _KEPT != _U(0)
                found = eight_at(entry + 16) & _U(NONE)
                join = join << _U(RANK_BITS) | (_U(ranks[found]) if kept else found)
            else:
                joins[count] = join << _U(RANK_BITS) | _U(rank)
                count += 1
    return joins[:count]


@allocating
def list_halves(vocabulary: Vocabulary, merges: Merges, halves: Ranks) -> None:
    """Write for each token the two that lower ranks join its bytes to; ``NONE`` where these are not two."""
    bounds, first = vocabulary.bounds, np.int64(vocabulary.tokens.ctypes.data)
    parts, ranks = np.empty(bounds[-1], np.uint32), np.empty(bounds[-1], np.uint32)
    parts_at, ranks_at, located = np.int64(parts.ctypes.data), np.int64(ranks.ctypes.data), locate(merges)
    halves[:] = NONE
    for rank in range(len(bounds) - 1):
        length = bounds[rank + 1] - bounds[rank]
        if length > 1 and merge_short(located, first + bounds[rank], length, parts_at, ranks_at, rank, 2) == 2:
            halves[2 * rank], halves[2 * rank + 1] = parts[0], parts[1]


def make_words(tokens: Sequence[bytes], room: int) -> tuple[Words, Vocabulary, Merges]:
    """Return tables for tokens in the order of their ranks, with room for at least so many words besides."""
    bounds = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum([len(token) for token in tokens], out=bounds[1:])
    vocabulary = Vocabulary(np.frombuffer(b"".join(tokens) + bytes(PAST_END), np.uint8), bounds)
    words = Words(
        table=np.empty(4 << (8 * (len(tokens) + room + _BLOCK) // 5).bit_length(), np.uint64),
        ranks=np.empty(len(tokens) + 2 * room + 2 * _BLOCK * LONGEST_WORD, np.uint32),
        arena=np.empty(int(bounds[-1]) + 4 * room + 2 * _BLOCK * LONGEST_WORD, np.uint8),
        used=np.zeros(3, np.int64),
    )
    preload(words, vocabulary)
    single, of_bytes = np.empty(256, np.uint32), np.empty(1 << 16, np.uint32)
    joins = list_joins(words, vocabulary, single, of_bytes)
    halves = np.empty(2 * len(tokens), np.uint32)
    list_halves(vocabulary, make_merges(single, of_bytes, joins), halves)
    return words, vocabulary, make_merges(single, of_bytes, possible_joins(joins, halves))


def find_halves(tokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return for each token the ranks of the two that join to it; -1 where lower ranks do not join it to two."""
    _, vocabulary, merges = make_words(tokens, 0)
    halves = np.empty(2 * len(tokens), np.uint32)
    list_halves(vocabulary, merges, halves)
    return np.where(halves == NONE, -1, halves.astype(np.int64)).reshape(-1, 2)


class Tables(NamedTuple):
    """All that encoding needs besides the texts."""

    pattern: int
    classes: Bytes
    words: Words
    vocabulary: Vocabulary
    merges: Merges
    queue: Queue
    together: Together


def make_tables(pattern: int, tokens: Sequence[bytes], room: int) -> Tables:
    """Return all tables for a pattern and tokens in the order of their ranks."""
    words, vocabulary, merges = make_words(tokens, room)
    queue = Queue(np.full(len(tokens), NONE, np.uint32), np.zeros(len(tokens) // 64 + 1, np.uint64))
    return Tables(pattern, character_classes(), words, vocabulary, merges, queue, make_together(_BLOCK))


@compiled
def _merge_apart(tables: Tables, entry: int, at: int, length: int, low: Any, high: Any, tokens: Ranks) -> None:
    """Encode and remember a word of more than ``SHORT`` bytes."""
    made = merge_long(tables.merges, tables.queue, at, length, tokens, 0)
    _remember(tables.words, entry, at, low, high, np.int64(tokens.ctypes.data), made)


@compiled
def _merge_new(words: Words, merges: Merges, together: Together, entries: Longs, count: int) -> None:
    """Encode and remember words whose keys are in the table already."""
    merge_together(merges, together, count)
    first = np.int64(together.tokens.ctypes.data)
    for word in range(count):
        entry, made, tokens = entries[word], together.lengths[word], first + TOKENS_STEP * word
        low, high = eight_at(entry), eight_at(entry + 8)
        if made <= 3:
            _remember_short(entry, low, high, tokens, made)
            words.used[0] += 1
        else:
            _remember(words, entry, together.starts[word], low, high, tokens, made)


@allocating
def encode_texts(  # noqa: C901, PLR0912, PLR0915  # arrays are counted for every word where they are handed on
    text: Bytes, bounds: Longs, tables: Tables, longest: int, out: Ranks, offsets: Longs
) -> int:
    """Write the ranks of all texts, ``text[bounds[i]:bounds[i + 1]]``, and where those of each end.

    Returns how many there are, or -1 where a piece has more than ``longest`` bytes. Pieces are split some ahead of
    looking them up, so that the misses of the cache overlap.
    """
    pattern, classes, words, vocabulary, merges, queue, together = tables
    first_word, arena, kept_ranks = (
        np.int64(words.table.ctypes.data),
        np.int64(words.arena.ctypes.data),
        words.ranks,
    )
    kinds, start_of_text = np.int64(classes.ctypes.data), np.int64(text.ctypes.data)
    mask = _U(len(words.table) // 4 - 1)
    starts = np.empty(_BLOCK + 1, np.int64)
    lows, highs, places = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    tokens, ranks = np.empty(LONGEST_WORD, np.uint32), np.empty(SHORT, np.uint32)
    tokens_at, ranks_at, located = np.int64(tokens.ctypes.data), np.int64(ranks.ctypes.data), locate(merges)
    used, most_words = words.used, len(words.table) // 4 * 5 // 8 - _BLOCK
    most_ranks, most_bytes = len(words.ranks) - _BLOCK * LONGEST_WORD, len(words.arena) - _BLOCK * LONGEST_WORD
    entries, fresh = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    written = _U(0)
    for number in range(len(bounds) - 1):
        at, end = start_of_text + bounds[number], start_of_text + bounds[number + 1]
        while at < end:
            count = _U(0)
            while at < end and count < _U(_BLOCK):
                stop = piece_end(pattern, kinds, at, end)
                low, high = _word_key(at, stop - at)
                place = _spread(low, high) & mask
                prefetch(first_word + np.int64(place << _U(5)))
                starts[count], lows[count], highs[count], places[count] = at, low, high, place
                count += _U(1)
                at = stop
            starts[count] = at
            if used[0] > most_words or used[1] > most_ranks or used[2] > most_bytes:
                preload(words, vocabulary)
            new = _U(0)
            for piece in range(_U(0), count):
                start, low, high = starts[piece], lows[piece], highs[piece]
                entry = _find(first_word, mask, arena, start, low, high, places[piece])
                entries[piece] = entry
                if eight_at(entry + 8) == _U(0):
                    length = starts[piece + _U(1)] - start
                    if length > longest:
                        return -1
                    if length < TOGETHER:
                        put_eight(entry, low)
                        put_eight(entry + 8, high)
                        together.starts[new], together.lengths[new], fresh[new] = start, length, entry
                        new += _U(1)
                    elif length > LONGEST_WORD:
                        entries[piece] = 0
                    elif length > SHORT:
                        _merge_apart(tables, entry, start, length, low, high, tokens)
                    else:
                        made = merge_short(located, start, length, tokens_at, ranks_at, np.int64(NONE), 1)
                        _remember(words, entry, start, low, high, tokens_at, made)
            if new > _U(0):
                _merge_new(words, merges, together, fresh, np.int64(new))
            for piece in range(_U(0), count):
                entry = entries[piece]
                if entry == 0:
                    start, so_far = starts[piece], np.int64(written)
                    length = starts[piece + _U(1)] - start
                    written = _U(merge_parts(merges, queue, vocabulary.bounds, start, length, out, so_far, PART))
                    continue
                third, fourth = eight_at(entry + 16), eight_at(entry + 24)
                if fourth < _KEPT:
                    out[written] = np.uint32(third)
                    out[written + _U(1)] = np.uint32(third >> _U(32))
                    out[written + _U(2)] = np.uint32(fourth)
                    written += fourth >> _U(32)
                    continue
                source = third & _U(NONE)
                for _ in range((fourth & ~_KEPT) >> _U(32)):
                    out[written] = kept_ranks[source]
                    written += _U(1)
                    source += _U(1)
        offsets[number + 1] = written
    return np.int64(written)
