"""A table of words and their tokens, which encodes texts.

A word is compared in full, never by its hash alone, so what a text is encoded to does not depend on the texts before
it. When the table is full, all words but the vocabulary are forgotten.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.memory import byte_at, eight_at, four_at, prefetch, put_eight, put_four
from longcrawl.tokens.bpe import (
    NONE,
    RANK_BITS,
    SHORT,
    TOGETHER,
    TOKENS_STEP,
    Merges,
    Queue,
    Ranks,
    Together,
    Wide,
    locate,
    make_merges,
    make_together,
    merge_long,
    merge_parts,
    merge_short,
    merge_together,
    possible_joins,
)
from longcrawl.tokens.splitting import AHEAD, character_classes, split

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"


Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

LONGEST_WORD = 128
"""In bytes; longer pieces that are no token are too rare to remember."""
PAST_END = AHEAD
"""Bytes that may be read after the last of a text."""
AT_ONCE = 1024 + AHEAD
"""Words for which there is room in a table that is not full."""
KEPT = np.uint64(1 << 63)
"""Marks words that do not fit in the table with their ranks."""

_U = np.uint64
_WORD_MIX = _U(0x9E3779B97F4A7C15)
_MIX_HIGH = _U(0xD6E8FEB86659FD93)
_HASHED = _U(1 << 63)
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
def word_key(at: int, length: int) -> tuple[np.uint64, np.uint64]:
    """Return both halves of the key of the word at an address."""
    if length < 16:
        low, high = eight_at(at) & _LOW_BITS[length], eight_at(at + 8) & _HIGH_BITS[length]
        return low, high | _U(length) << _U(56)
    hashed = _U(length) * _WORD_MIX
    for place in range(at, at + length - 7, 8):
        hashed = (hashed ^ eight_at(place)) * _WORD_MIX
        hashed ^= hashed >> _U(29)
    hashed = (hashed ^ eight_at(at + length - 8)) * _MIX_HIGH
    return hashed ^ (hashed >> _U(31)), _U(length) | _HASHED


@compiled
def _same(at: int, other: int, length: int) -> bool:
    """Compare 16 bytes or more."""
    for place in range(0, length - 7, 8):
        if eight_at(at + place) != eight_at(other + place):
            return False
    return eight_at(at + length - 8) == eight_at(other + length - 8)


@forced_inline
def first_place(words: int, low: np.uint64, high: np.uint64) -> np.uint64:
    """Return the first of the two places of a line of the cache where a word with a key may stand."""
    mixed = (low ^ (high * _MIX_HIGH)) * _WORD_MIX
    return (mixed ^ (mixed >> _U(32))) & _U(words - 2)


@forced_inline
def find_short(table: int, low: np.uint64, high: np.uint64, place: np.uint64) -> tuple[int, bool]:
    """Return the address of the word with a key, and whether it is there: as a rule, if it has fewer than 16 bytes.

    ``place`` is its first. Both places of a line are compared without a branch.
    """
    entry = table + np.int64(place << _U(5))
    entry += np.int64((eight_at(entry + 32) == low) & (eight_at(entry + 40) == high)) << 5
    return entry, (eight_at(entry) == low) & (eight_at(entry + 8) == high) & (high < _HASHED)


@compiled
def find(table: int, words: int, arena: int, at: int, low: np.uint64, high: np.uint64, place: np.uint64) -> int:
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
        place = (place + _U(1)) & _U(words - 1)


@forced_inline
def enter(words: Words, entry: int, at: int, low: np.uint64, high: np.uint64) -> None:
    """Enter the key of a word at an empty place; what it is encoded to follows by :func:`remember`."""
    used, arena = words.used, np.int64(words.arena.ctypes.data)
    put_eight(entry, low)
    put_eight(entry + 8, high)
    used[0] += 1
    if high >= _HASHED:
        place, length = used[2], np.int64(high & ~_HASHED)
        put_eight(entry + 16, _U(place) << _U(32))
        for number in range(0, length, 8):
            put_eight(arena + place + number, eight_at(at + number))
        used[2] = place + length


@forced_inline
def remember(words: Words, entry: int, tokens: int, count: int) -> None:
    """Write what a word that was entered is encoded to, ``count`` ranks at an address."""
    if count <= 3 and eight_at(entry + 8) < _HASHED:
        put_eight(entry + 16, eight_at(tokens))
        put_eight(entry + 24, _U(count) << _U(32) | _U(four_at(tokens + 8)))
        return
    ranks, place = words.ranks, _U(words.used[1])
    put_eight(entry + 16, eight_at(entry + 16) & ~_U(NONE) | place)
    put_eight(entry + 24, _U(count) << _U(32) | KEPT)
    for number in range(_U(0), _U(count)):
        ranks[place + number] = four_at(tokens + 4 * np.int64(number))
    words.used[1] += count


@compiled
def is_full(words: Words) -> bool:
    """Return whether words must be forgotten before ``AT_ONCE`` others are entered."""
    used, longest = words.used, AT_ONCE * LONGEST_WORD
    too_many = used[0] > len(words.table) // 4 * 5 // 8 - AT_ONCE
    return too_many or used[1] > len(words.ranks) - longest or used[2] > len(words.arena) - longest


@allocating
def preload(words: Words, vocabulary: Vocabulary) -> None:
    """Forget all words and enter the vocabulary."""
    table, bounds = words.table, vocabulary.bounds
    start, arena, size = np.int64(table.ctypes.data), np.int64(words.arena.ctypes.data), len(table) // 4
    first = np.int64(vocabulary.tokens.ctypes.data)
    table[:] = _U(0)
    words.used[:] = 0
    token = np.zeros(3, np.uint32)
    for rank in range(len(bounds) - 1):
        at = first + bounds[rank]
        low, high = word_key(at, bounds[rank + 1] - bounds[rank])
        token[0] = rank
        entry = find(start, size, arena, at, low, high, first_place(size, low, high))
        enter(words, entry, at, low, high)
        remember(words, entry, np.int64(token.ctypes.data), 1)


@allocating
def list_joins(words: Words, vocabulary: Vocabulary, single: Ranks, of_bytes: Ranks) -> Wide:
    """Forget all words, enter the vocabulary, and return all joins of two tokens to one, packed as in ``Merges``."""
    preload(words, vocabulary)
    table, arena = np.int64(words.table.ctypes.data), np.int64(words.arena.ctypes.data)
    size = len(words.table) // 4
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
                low, high = word_key(at, end - at)
                entry = find(table, size, arena, at, low, high, first_place(size, low, high))
                if eight_at(entry + 8) == _U(0):
                    break
                kept = eight_at(entry + 24) & KEPT != _U(0)
                found = eight_at(entry + 16) & _U(NONE)
                join = join << _U(RANK_BITS) | (_U(ranks[found]) if kept else found)
            else:
                joins[count] = join << _U(RANK_BITS) | _U(rank)
                count += 1
    return joins[:count]


@compiled
def _write_halves(vocabulary: Vocabulary, merges: Merges, parts: Ranks, ranks: Ranks, halves: Ranks) -> None:
    bounds, first = vocabulary.bounds, np.int64(vocabulary.tokens.ctypes.data)
    parts_at, ranks_at, located = np.int64(parts.ctypes.data), np.int64(ranks.ctypes.data), locate(merges)
    halves[:] = NONE
    for rank in range(len(bounds) - 1):
        length = bounds[rank + 1] - bounds[rank]
        if length > 1 and merge_short(located, first + bounds[rank], length, parts_at, ranks_at, rank, 2) == 2:
            halves[2 * rank], halves[2 * rank + 1] = parts[0], parts[1]


def list_halves(vocabulary: Vocabulary, merges: Merges) -> Ranks:
    """Return for each token the two that lower ranks join its bytes to; ``NONE`` where these are not two."""
    # Made here: a kernel frees an array of its own after the last line that names it, though its address is in use.
    parts, ranks = (np.empty(np.diff(vocabulary.bounds).max(initial=0), np.uint32) for _ in range(2))
    halves = np.empty(2 * (len(vocabulary.bounds) - 1), np.uint32)
    _write_halves(vocabulary, merges, parts, ranks, halves)
    return halves


def _in_lines(count: int) -> Wide:
    """Return room for so many numbers that begins with a line of the cache: two words each, and none in two."""
    room = np.empty(count + 7, np.uint64)
    return room[-room.ctypes.data % 64 // 8 :][:count]


def make_words(tokens: Sequence[bytes], room: int) -> tuple[Words, Vocabulary, Merges]:
    """Return tables for tokens in the order of their ranks, with room for at least so many words besides."""
    bounds = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum([len(token) for token in tokens], out=bounds[1:])
    vocabulary = Vocabulary(np.frombuffer(b"".join(tokens) + bytes(PAST_END), np.uint8), bounds)
    words = Words(
        table=_in_lines(4 << (8 * (len(tokens) + room + AT_ONCE) // 5).bit_length()),
        ranks=np.empty(len(tokens) + 2 * room + 2 * AT_ONCE * LONGEST_WORD, np.uint32),
        arena=np.empty(int(bounds[-1]) + 4 * room + 2 * AT_ONCE * LONGEST_WORD, np.uint8),
        used=np.zeros(3, np.int64),
    )
    single, of_bytes = np.empty(256, np.uint32), np.empty(1 << 16, np.uint32)
    joins = list_joins(words, vocabulary, single, of_bytes)
    halves = list_halves(vocabulary, make_merges(single, of_bytes, joins))
    return words, vocabulary, make_merges(single, of_bytes, possible_joins(joins, halves))


def find_halves(tokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return for each token the ranks of the two that join to it; -1 where lower ranks do not join it to two."""
    _, vocabulary, merges = make_words(tokens, 0)
    halves = list_halves(vocabulary, merges)
    return np.where(halves == NONE, -1, halves.astype(np.int64)).reshape(-1, 2)


# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"


PART = 1 << 14
"""Bytes of a piece that are encoded at once: what that takes then stays in the nearest caches."""


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
