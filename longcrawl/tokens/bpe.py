"""Byte pair encoding: patterns that split texts, ranks and merges, and the kernels that join bytes.

Ranks and merges are equivalent. Ranks follow from merges by counting. Merges follow from ranks because a token is the
join of exactly two parts: those that byte pair encoding of its own bytes ends in if it uses only better ranks. If this
holds for every token, joining by rank and joining by merge give the same tokens for every text.

Most pieces are found 64 bytes at a time, with bit masks of ASCII letters, digits and white space; other text is scanned
by character. The kernels take addresses, which are plain integers. Texts must be valid UTF-8, with 64 readable bytes
after their end.

Short pieces are searched for their lowest rank repeatedly, those of a few bytes several at a time. Long pieces keep
their pairs in a heap. Very long pieces are encoded in overlapping parts, which give the same tokens: if any two
neighbours in a list of tokens are the encoding of their joined bytes, the list is the encoding of all bytes, because
the first join across the end of a token would also happen when the bytes of its two tokens are encoded alone. For the
same reason, of all pairs whose bytes make a token, only the one that encoding of its bytes ends in can occur.

A word is compared in full, never by its hash alone, so the encoding of a text does not depend on earlier texts.
"""

import base64
import binascii
import hashlib
import heapq
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import TokenizerError
from longcrawl.kernels.code_points import shipped_arrays
from longcrawl.kernels.compiling import allocating, compile_early, compiled, forced_inline
from longcrawl.kernels.memory import (
    byte_at,
    eight_at,
    find_apostrophes,
    find_blanks,
    find_breaks,
    find_capitals,
    find_digits,
    find_high,
    find_others,
    find_slashes,
    find_white,
    four_at,
    highest_bit,
    least_of_many,
    lowest_bit,
    prefetch,
    put_eight,
    put_four,
    write_places,
)
from longcrawl.kernels.texts import read_only

# ruff: noqa: PLR1714, SIM109


GPT2, CL100K, LLAMA3, QWEN2, O200K = range(5)
UPPER, LOWER, EITHER_CASE, MARK, NUMBER, SPACE, OTHER = (1 << bit for bit in range(7))
"""Character classes: upper or title case, lower case, other letters (without case or modifiers), and non-letters."""
SHIPPED = Path(__file__).with_name("classes.npz")
_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CAPITAL_CLASS, _SMALL_CLASS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
"""GPT-2's pre-tokenization pattern, in the possessive form that does not backtrack over long words."""
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""tiktoken's pattern of cl100k, with `{1,3}` for `{1,3}+`, which would keep all digits together in `tokenizers`."""
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL_CLASS}*{_SMALL_CLASS}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL_CLASS}+{_SMALL_CLASS}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _TAIL
)

PATTERNS: Mapping[str, int] = {
    GPT2_PATTERN: GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    CL100K_PATTERN: CL100K,
    CL100K_PATTERN.replace("{1,3}", "{1,3}+"): CL100K,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: LLAMA3,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: QWEN2,
    O200K_PATTERN: O200K,
}
"""Patterns that the scanner implements, in the spellings of known tokenizers; others are left to their library."""


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """Return the class of every code point by tiktoken's regular expressions; a test writes them to the file."""
    return shipped_arrays(SHIPPED, "tiktoken")["classes"]


Longs = npt.NDArray[np.int64]
AHEAD = 64  # bytes searched at once for ends of pieces; as many must be readable after the end of a text
_LETTER = UPPER | LOWER | EITHER_CASE
_NO_WORD = OTHER | MARK
_CAPITALS = UPPER | EITHER_CASE | MARK
_SMALL = LOWER | EITHER_CASE | MARK
_WORD = _LETTER | MARK
_A, _D, _E, _L, _M, _R, _S, _T, _V, _Z = b"adelmrstvz"
_U = np.uint64
_ONES = _U(0x0101010101010101)
_HIGH = _U(0x8080808080808080)
_CASE = _U(0x20) * _ONES
_FROM_A = _U(0x80 - _A) * _ONES
_AFTER_Z = _U(0x7F - _Z) * _ONES


@compiled
def _character(classes: int, at: int) -> tuple[int, int]:
    first = byte_at(at)
    if first < 0x80:
        return byte_at(classes + first), at + 1
    point, second = first & 0x1F, byte_at(at + 1) & 0x3F
    if first < 0xE0:
        return byte_at(classes + (point << 6 | second)), at + 2
    third = byte_at(at + 2) & 0x3F
    if first < 0xF0:
        return byte_at(classes + ((first & 0xF) << 12 | second << 6 | third)), at + 3
    point = (first & 7) << 18 | second << 12 | third << 6 | byte_at(at + 3) & 0x3F
    return byte_at(classes + point), at + 4


@compiled
def _run_end(classes: int, at: int, end: int, kinds: int) -> int:
    while at < end:
        kind, after = _character(classes, at)
        if kind & kinds == 0:
            return at
        at = after
    return end


@forced_inline
def _letters_end(classes: int, at: int, end: int, case: np.uint64, kinds: int) -> int:
    """Find the same end as ``_run_end``, taking ASCII letters eight at a time; ``case`` lower-cases them, or is 0."""
    while at < end:
        eight = eight_at(at)
        folded = (eight | case) & ~_HIGH
        others = (~(folded + _FROM_A) | (folded + _AFTER_Z) | eight) & _HIGH
        if others == _U(0):
            at += 8
            continue
        at += lowest_bit(others) >> 3
        if at >= end:
            return end
        if byte_at(at) < 0x80:
            return at
        while at < end and byte_at(at) >= 0x80:
            kind, after = _character(classes, at)
            if kind & kinds == 0:
                return at
            at = after
    return end


@compiled
def _contraction_end(at: int, end: int, folded: int) -> int:
    """Return the end of 's 'd 'm 't 'll 've 're at ``at``, or ``at``; ``folded`` 0x20 takes capitals and U+017F."""
    if at + 1 >= end or byte_at(at) != 0x27:
        return at
    first = byte_at(at + 1)
    if folded and first == 0xC5 and byte_at(at + 2) == 0xBF:
        return at + 3
    first |= folded
    if first == _S or first == _D or first == _M or first == _T:
        return at + 2
    if at + 2 >= end:
        return at
    second = byte_at(at + 2) | folded
    if first == _L:
        return at + 3 if second == _L else at
    return at + 3 if second == _E and (first == _V or first == _R) else at


@compiled
def _breaks_line(at: int) -> bool:
    return byte_at(at) == 0x0A or byte_at(at) == 0x0D


@compiled
def _space_end(classes: int, at: int, end: int, lines: int, whole_tail: int) -> int:
    r"""Return the end of ``\s*[\r\n]+`` if ``lines``, ``\s++$`` if ``whole_tail``, else of ``\s+(?!\S)`` or ``\s``."""
    stop, last, after_line = at, at, at
    while stop < end:
        kind, after = _character(classes, stop)
        if kind != SPACE:
            break
        if lines and _breaks_line(stop):
            after_line = after
        last, stop = stop, after
    if whole_tail and stop == end:
        return stop
    if after_line > at:
        return after_line
    return stop if stop == end or last == at else last


@forced_inline
def _gpt2_end(classes: int, at: int, end: int) -> int:
    start = at + 1 if byte_at(at) == 0x20 and at + 1 < end else at
    kind, after = _character(classes, start)
    if kind & _LETTER:
        return _letters_end(classes, after, end, _CASE, _LETTER)
    if kind == SPACE:
        return _space_end(classes, at, end, 0, 1)
    stop = _contraction_end(at, end, 0)
    if stop > at:
        return stop
    return _run_end(classes, after, end, NUMBER if kind == NUMBER else _NO_WORD)


@compiled
def _numbers_end(classes: int, at: int, end: int, most: int) -> int:
    for _ in range(most):
        if at < end:
            kind, after = _character(classes, at)
            if kind != NUMBER:
                return at
            at = after
    return at


@forced_inline
def _cl100k_end(pattern: int, classes: int, at: int, end: int) -> int:
    """Return the end of a piece by cl100k's pattern, or by Llama 3's or Qwen2's, which differ in tails and numbers."""
    kind, after = _character(classes, at)
    if kind & _LETTER:
        return _letters_end(classes, after, end, _CASE, _LETTER)
    if kind == NUMBER:
        return after if pattern == QWEN2 else _numbers_end(classes, after, end, 2)
    stop = _contraction_end(at, end, 0x20)
    if stop > at:
        return stop
    following, second = 0, after
    if after < end:
        following, second = _character(classes, after)
    if following & _LETTER and not _breaks_line(at):
        return _letters_end(classes, second, end, _CASE, _LETTER)
    if kind & _NO_WORD or (byte_at(at) == 0x20 and following & _NO_WORD):
        stop = _run_end(classes, after, end, _NO_WORD)
        while stop < end and _breaks_line(stop):
            stop += 1
        return stop
    return _space_end(classes, at, end, 1, 1 if pattern == CL100K else 0)


@compiled
def _cased_word_end(classes: int, at: int, end: int) -> int:
    """Return the end of capitals followed by small letters, both with marks and letters without case, or ``at``."""
    both = stop = at
    while stop < end:
        kind, after = _character(classes, stop)
        if kind & _CAPITALS == 0:
            if kind == LOWER:
                return _letters_end(classes, after, end, _U(0), _SMALL) if after < end else end
            break
        if kind & _SMALL:
            both = after
        stop = after
    return both if both > at else stop


@forced_inline
def _o200k_end(classes: int, at: int, end: int) -> int:
    kind, after = _character(classes, at)
    start = at
    if kind & _WORD == 0 and kind != NUMBER and not _breaks_line(at):
        start = after
    if start > at or kind & _WORD:
        stop = _cased_word_end(classes, start, end)
        if stop > start:
            return _contraction_end(stop, end, 0x20)
    if kind == NUMBER:
        return _numbers_end(classes, after, end, 2)
    following = 0
    if after < end:
        following, _ = _character(classes, after)
    if kind & _NO_WORD or (byte_at(at) == 0x20 and following & _NO_WORD):
        stop = _run_end(classes, after, end, _NO_WORD)
        while stop < end and (_breaks_line(stop) or byte_at(stop) == 0x2F):
            stop += 1
        return stop
    return _space_end(classes, at, end, 1, 0)


@forced_inline
def _piece_end(pattern: int, classes: int, at: int, end: int) -> int:
    if pattern == GPT2:
        return _gpt2_end(classes, at, end)
    if pattern == O200K:
        return _o200k_end(classes, at, end)
    return _cl100k_end(pattern, classes, at, end)


@forced_inline
def _up_to(bits: np.uint64) -> np.uint64:
    return bits ^ (bits - _U(1))


@compiled
def _ends_ahead(pattern: int, at: int, end: int) -> np.uint64:
    """Return a mask of the ``AHEAD`` bytes from ``at`` on at which a piece ends; ``_piece_end`` finds those beyond."""
    one = _U(1)
    beyond = find_high(at)
    if end - at < AHEAD:
        beyond |= one << _U(end - at)
    # Whether a piece ends depends on the two bytes after it.
    known = ((beyond - one) & ~beyond) >> one
    letters, digits, white, blanks = ~find_others(at), find_digits(at), find_white(at), find_blanks(at)
    others, quotes = ~(letters | digits | white), find_apostrophes(at)
    first_letters, first_digits = letters & ~(letters << one), digits & ~(digits << one)
    first_others = others & ~(others << one)
    if pattern == GPT2:
        ends = (first_letters | first_digits | first_others) & ~(blanks << one)
        ends |= white & ~(white << one & white >> one)
        contracted = quotes & letters >> one & (ends | one)
        return ends & known & _up_to(contracted) & ~one
    breaks = find_breaks(at)
    within = white & ~breaks
    before_letters = within | first_others & ~(others >> one) & ~(blanks << one)
    ends = first_letters & ~(before_letters << one) | first_others & ~(blanks << one) | first_digits
    if pattern == QWEN2:
        ends |= digits
    else:
        threes = digits & digits << one & digits << _U(2)
        fourth = first_digits << _U(3) & threes
        while fourth != _U(0):
            ends |= fourth
            fourth = fourth << _U(3) & threes
    # The carry of a sum passes through a run of ones: here, line breaks that follow other characters.
    taken = breaks & ~(breaks + (breaks & others << one))
    indents = breaks << one & within
    ends |= white & ~(white << one) & ~taken | within & ~(white >> one) | indents
    # White space after a line break is not a piece if another line break ends it.
    inside = within & known
    after_indents = inside + (indents & known) & ~inside
    if after_indents & (breaks | ~known) != _U(0):
        known &= _up_to(breaks)
    if pattern == O200K:
        capitals = find_capitals(at)
        ends |= capitals & (letters & ~capitals) << one
        known &= _up_to(quotes & letters << one & letters >> one) >> one
        known &= _up_to(taken & find_slashes(at) >> one)
    else:
        known &= _up_to(quotes & letters >> one & (ends | one))
    return ends & known & ~one


@compiled
def split(
    pattern: int, classes: int, at: int, end: int, starts: Longs, count: np.uint64, most: int
) -> tuple[int, np.uint64]:
    """Write the starts of pieces after the first ``count`` entries, until there are ``most``, or up to 63 more."""
    while at < end and count < _U(most):
        starts[count] = at
        count += _U(1)
        ends = _ends_ahead(pattern, at, end) if eight_at(at) & _HIGH == _U(0) else _U(0)
        if ends == _U(0):
            at = _piece_end(pattern, classes, at, end)
            continue
        count = write_places(ends, at, starts, count) - _U(1)
        at += highest_bit(ends)
    return at, count


Wide = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.uint32]
RANK_BITS = 21
"""Bits of a rank, so that two parts and their rank fit in one number; the largest vocabularies have 2**18 tokens."""
NONE = np.uint32(0xFFFFFFFF)
_RANK = _U((1 << RANK_BITS) - 1)
_EMPTY = _U(0xFFFFFFFFFFFFFFFF)
_MIX = 0x9E3779B97F4A7C15
_SLOT = _U(20)


class Merges(NamedTuple):
    """Lookup tables of joins: ranks of two bytes by index, and of two tokens in a table without collisions.

    A pair's slot is the middle bits of its hash, shifted by the entry of ``moves`` at its highest bits.
    """

    bytes: Ranks
    of_bytes: Ranks  # rank of two bytes at 256 * first + second, or ``NONE`` if they do not join
    table: Wide  # left rank, right rank and rank of the join in 21 bits each; the size is a power of two
    moves: Ranks
    multiplier: np.uint64


TRIED = 32  # multipliers tried per table size; one in 500,000 vocabularies finds none among this many


@compiled
def _place_bucket(joins: Wide, multiplier: np.uint64, table: Wide) -> int:
    mask = _U(len(table) - 1)
    for move in range(len(table)):
        placed = 0
        for join in joins:
            place = ((join >> _U(RANK_BITS)) * multiplier >> _SLOT) + _U(move) & mask
            if table[place] != _EMPTY:
                break
            table[place] = join
            placed += 1
        else:
            return move
        for join in joins[:placed]:
            table[((join >> _U(RANK_BITS)) * multiplier >> _SLOT) + _U(move) & mask] = _EMPTY
    return -1


@allocating
def _place_joins(joins: Wide, multiplier: np.uint64, table: Wide, moves: Ranks) -> bool:
    table[:] = _EMPTY
    shift = _U(64 - lowest_bit(_U(len(moves))))
    firsts = np.zeros(len(moves) + 1, np.int64)
    for join in joins:
        firsts[((join >> _U(RANK_BITS)) * multiplier >> shift) + _U(1)] += 1
    fullest, filled, ordered = np.int64(0), np.empty(len(moves), np.int64), np.empty(len(joins), np.uint64)
    for bucket in range(len(moves)):
        fullest = max(fullest, firsts[bucket + 1])
        firsts[bucket + 1] += firsts[bucket]
        filled[bucket] = firsts[bucket]
    for join in joins:
        bucket = (join >> _U(RANK_BITS)) * multiplier >> shift
        ordered[filled[bucket]] = join
        filled[bucket] += 1
    for size in range(fullest, 0, -1):
        for bucket in range(len(moves)):
            if firsts[bucket + 1] - firsts[bucket] == size:
                move = _place_bucket(ordered[firsts[bucket] : firsts[bucket + 1]], multiplier, table)
                if move < 0:
                    return False
                moves[bucket] = move
    return True


def make_merges(single: Ranks, of_bytes: Ranks, joins: Wide) -> Merges:
    """Return the tables for joins, packed as in the table; about one in three multipliers has no collisions."""
    size, multiplier, tried = 1 << (5 * len(joins) // 4).bit_length(), _MIX, 0
    while True:
        table, moves = np.empty(size, np.uint64), np.zeros(max(2, size // 4), np.uint32)
        if _place_joins(joins, np.uint64(multiplier), table, moves):
            return Merges(single, of_bytes, table, moves, np.uint64(multiplier))
        multiplier, tried = 3 * multiplier % (1 << 64), tried + 1
        size *= 1 if tried % TRIED else 2


class Located(NamedTuple):
    """Addresses of a :class:`Merges`; passing integers avoids reference counting."""

    bytes: int
    of_bytes: int
    table: int
    mask: np.uint64
    moves: int
    shift: np.uint64
    multiplier: np.uint64


@compiled
def locate(merges: Merges) -> Located:
    """Return the addresses of merges; the arrays must outlive them."""
    return Located(
        np.int64(merges.bytes.ctypes.data),
        np.int64(merges.of_bytes.ctypes.data),
        np.int64(merges.table.ctypes.data),
        _U(len(merges.table) - 1),
        np.int64(merges.moves.ctypes.data),
        _U(64 - lowest_bit(_U(len(merges.moves)))),
        merges.multiplier,
    )


@forced_inline
def rank_of(merges: Located, left: int, right: int) -> int:
    """Return the rank of the join of two tokens, or ``NONE`` if they do not join."""
    parts = _U(left) << _U(RANK_BITS) | _U(right)
    mixed = parts * merges.multiplier
    move = _U(four_at(merges.moves + np.int64(mixed >> merges.shift << _U(2))))
    found = eight_at(merges.table + np.int64(((mixed >> _SLOT) + move & merges.mask) << _U(3)))
    # A condition would be a branch that is often mispredicted, and the code after it waits for memory.
    return np.int64(found & _RANK | (_U(0) - _U(found >> _U(RANK_BITS) != parts)) & _U(NONE))


def possible_joins(joins: Wide, halves: Ranks) -> Wide:
    """Return the joins that can occur, about half of GPT-2's; all of a token with unknown halves."""
    left, right = (halves[side::2][joins & _RANK].astype(np.uint64) for side in (0, 1))
    wanted: Wide = joins[(left == NONE) | (joins >> _U(RANK_BITS) == (left << _U(RANK_BITS) | right))]
    return wanted


_OVERLAP = 32  # tokens at the end of a part that the next part encodes again
TOGETHER = 32  # length in bytes below which words are encoded several at a time
TOKENS_STEP, _KEYS_STEP = 144, 128  # bytes per word for its tokens and for its keys
_KEY_BITS = 5
_NO_TOKEN = np.int64((1 << RANK_BITS) - 1)
_NO_KEY = np.int64(0xFFFFFFE0)


class Together(NamedTuple):
    """Words of fewer than ``TOGETHER`` bytes that are encoded in turns, so that each one's waits for memory are filled.

    A token is stored one position after its first byte, between two placeholders that join with nothing. The key of a
    position combines the rank of the join of its token and the next with the position.
    """

    starts: Longs
    lengths: Longs  # length of each word in bytes; after encoding, its number of tokens
    begins: Wide  # a bit for every position of a word at which a token begins
    waiting: Longs
    tokens: Ranks
    keys: Ranks


def make_together(count: int) -> Together:
    """Return room for ``count`` words."""
    longs = np.empty(count, np.int64), np.empty(count, np.int64)
    tokens, keys = np.empty(count * TOKENS_STEP // 4, np.uint32), np.empty(count * _KEYS_STEP // 4, np.uint32)
    return Together(*longs, np.empty(count, np.uint64), np.empty(count, np.int64), tokens, keys)


@forced_inline
def _set_out(merges: Located, at: int, length: int, tokens: int, keys: int) -> None:
    for place in range(TOGETHER):
        put_four(keys + 4 * place, _NO_KEY)
    previous = byte_at(at)
    put_four(tokens, _NO_TOKEN)
    put_four(tokens + 4, four_at(merges.bytes + 4 * previous))
    for place in range(1, length):
        byte = byte_at(at + place)
        put_four(tokens + 4 * place + 4, four_at(merges.bytes + 4 * byte))
        put_four(keys + 4 * place, four_at(merges.of_bytes + 4 * (previous << 8 | byte)) << _KEY_BITS | place)
        previous = byte
    put_four(tokens + 4 * length + 4, _NO_TOKEN)


@forced_inline
def _step(merges: Located, begins: np.uint64, lowest: int, tokens: int, keys: int) -> np.uint64:
    place, rank = lowest & (TOGETHER - 1), lowest >> _KEY_BITS
    after = begins >> _U(place) >> _U(1)
    second = place + 1 + lowest_bit(after)
    third = place + 1 + lowest_bit(after & (after - _U(1)))
    before = highest_bit(begins & ((_U(1) << _U(place)) - _U(1)))
    put_four(tokens + 4 * place, rank)
    put_four(keys + 4 * second, _NO_KEY)
    joined = rank_of(merges, rank, four_at(tokens + 4 * third))
    put_four(keys + 4 * place, joined << _KEY_BITS | place)
    joined = rank_of(merges, four_at(tokens + 4 * before), rank)
    put_four(keys + 4 * before, joined << _KEY_BITS | before)
    return begins ^ _U(1) << _U(second)


@compiled
def merge_together(merges: Merges, words: Together, count: int) -> None:
    """Encode words of fewer than ``TOGETHER`` bytes; the tokens of each word are written to its part of ``tokens``."""
    starts, lengths, begins, waiting, _, _ = words
    first_token, first_key = np.int64(words.tokens.ctypes.data), np.int64(words.keys.ctypes.data)
    located = locate(merges)
    for word in range(count):
        tokens, keys = first_token + TOKENS_STEP * word, first_key + _KEYS_STEP * word
        _set_out(located, starts[word], lengths[word], tokens, keys)
        begins[word] = (_U(4) << _U(lengths[word])) - _U(1)
        waiting[word] = word
    left = count
    while left > 0:
        turn = 0
        while turn < left:
            word = waiting[turn]
            tokens, keys = first_token + TOKENS_STEP * word, first_key + _KEYS_STEP * word
            lowest = least_of_many(keys)
            if lowest >= _NO_KEY:
                left -= 1
                waiting[turn] = waiting[left]
                continue
            begins[word] = _step(located, begins[word], lowest, tokens, keys)
            turn += 1
    for word in range(count):
        tokens, written = first_token + TOKENS_STEP * word, 0
        bits = begins[word] & ((_U(2) << _U(lengths[word])) - _U(2))
        while bits != _U(0):
            put_four(tokens + written, four_at(tokens + 4 * lowest_bit(bits)))
            written += 4
            bits &= bits - _U(1)
        lengths[word] = written >> 2


@forced_inline
def merge_short(merges: Located, at: int, length: int, tokens: int, ranks: int, below: int, fewest: int) -> int:
    """Encode bytes with ranks less than ``below`` to at least ``fewest`` tokens, and return the number written."""
    previous = byte_at(at)
    put_four(tokens, four_at(merges.bytes + 4 * previous))
    for place in range(1, length):
        byte = byte_at(at + place)
        put_four(tokens + 4 * place, four_at(merges.bytes + 4 * byte))
        put_four(ranks + 4 * place - 4, four_at(merges.of_bytes + 4 * (previous << 8 | byte)))
        previous = byte
    count = length
    while count > fewest:
        lowest, chosen = four_at(ranks), 0
        for place in range(1, count - 1):
            rank = four_at(ranks + 4 * place)
            chosen = place if rank < lowest else chosen
            lowest = min(rank, lowest)
        if lowest >= below:
            break
        count -= 1
        put_four(tokens + 4 * chosen, lowest)
        for place in range(chosen + 1, count):
            put_four(tokens + 4 * place, four_at(tokens + 4 * place + 4))
            put_four(ranks + 4 * place - 4, four_at(ranks + 4 * place))
        if chosen + 1 < count:
            put_four(ranks + 4 * chosen, rank_of(merges, lowest, four_at(tokens + 4 * chosen + 4)))
        if chosen > 0:
            put_four(ranks + 4 * chosen - 4, rank_of(merges, four_at(tokens + 4 * chosen - 4), lowest))
    return count


@allocating
def merge_long(merges: Merges, at: int, length: int, out: Ranks, written: int) -> int:
    """Encode bytes at an address into ``out`` from ``written`` on, and return the end."""
    located = locate(merges)
    tokens, ranks = np.empty(length, np.uint32), np.full(length, NONE)
    after, before = np.arange(1, length + 1), np.arange(-1, length - 1)
    for place in range(length):
        tokens[place] = merges.bytes[byte_at(at + place)]
        if place > 0:
            ranks[place - 1] = merges.of_bytes[byte_at(at + place - 1) << 8 | byte_at(at + place)]
    waiting = [np.int64(ranks[place]) << 32 | place for place in range(length) if ranks[place] != NONE]
    heapq.heapify(waiting)
    while len(waiting) > 0:
        pair = heapq.heappop(waiting)
        rank, left = pair >> 32, pair & 0xFFFFFFFF
        if ranks[left] != rank:  # the pair no longer exists
            continue
        right, previous = after[left], before[left]
        follower = after[right]
        tokens[left], after[left], ranks[left], ranks[right] = rank, follower, NONE, NONE
        if follower < length:
            before[follower] = left
            ranks[left] = rank_of(located, rank, tokens[follower])
        if ranks[left] != NONE:
            heapq.heappush(waiting, np.int64(ranks[left]) << 32 | left)
        if previous >= 0:
            ranks[previous] = rank_of(located, tokens[previous], rank)
            if ranks[previous] != NONE:
                heapq.heappush(waiting, np.int64(ranks[previous]) << 32 | previous)
    place = np.int64(0)
    while place < length:
        out[written] = tokens[place]
        written += 1
        place = after[place]
    return written


@compiled
def merge_parts(merges: Merges, bounds: Longs, at: int, length: int, out: Ranks, written: int, part: int) -> int:
    """Encode like :func:`merge_long`, in overlapping parts of ``part`` bytes; ``bounds`` are the vocabulary's."""
    beginning, start, size, back = written, np.int64(0), part, _OVERLAP
    while True:
        stop = min(length, start + size)
        wanted = out[written]
        end = merge_long(merges, at + start, stop - start, out, written)
        # A part that does not begin with the token that the part before has there is repeated from an earlier start.
        agrees = start == 0 or out[written] == wanted
        if agrees and stop == length:
            return end
        if agrees and end - _OVERLAP > written:
            start, last, following = stop, end, end - _OVERLAP
            size, back = part, _OVERLAP
        else:
            size, back = 2 * size, 2 * back
            last, following = written, written if agrees else max(beginning, written - back)
        for number in range(following, last):
            start -= bounds[out[number] + 1] - bounds[out[number]]
        written = following


Bytes = npt.NDArray[np.uint8]
LONGEST_WORD = 128  # longest word in bytes that is cached; longer pieces that are not tokens are too rare
PAST_END = AHEAD
AT_ONCE = 1024 + AHEAD
KEPT = np.uint64(1 << 63)
_WORD_MIX = _U(0x9E3779B97F4A7C15)
_MIX_HIGH = _U(0xD6E8FEB86659FD93)
_HASHED = _U(1 << 63)
_LOW_BITS = np.array([(1 << 8 * min(length, 8)) - 1 for length in range(16)], np.uint64)
_HIGH_BITS = np.array([(1 << 8 * max(length - 8, 0)) - 1 for length in range(16)], np.uint64)


class Words(NamedTuple):
    """Open-addressing table of words with four numbers each: two for the key, two for the ranks.

    The key is the word and its length, up to 15 bytes, or a hash and the length; the bytes are then also compared, in
    ``arena``. Three ranks fit beside a short word; for others the two numbers are positions in ``ranks`` and ``arena``.
    When the table is full, all words but the vocabulary are dropped.
    """

    table: Wide  # slots of the table, with a size of 4 times a power of two; the second number of an empty slot is 0
    ranks: Ranks
    arena: Bytes
    used: Longs  # number of words, and used length of ``ranks`` and of ``arena``


class Vocabulary(NamedTuple):
    """Concatenated tokens in the order of their ranks, and their bounds."""

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
    for place in range(0, length - 7, 8):
        if eight_at(at + place) != eight_at(other + place):
            return False
    return eight_at(at + length - 8) == eight_at(other + length - 8)


@forced_inline
def first_place(words: int, low: np.uint64, high: np.uint64) -> np.uint64:
    """Return the first of the two slots in the cache line of a word with this key."""
    mixed = (low ^ (high * _MIX_HIGH)) * _WORD_MIX
    return (mixed ^ (mixed >> _U(32))) & _U(words - 2)


@forced_inline
def find_short(table: int, low: np.uint64, high: np.uint64, place: np.uint64) -> tuple[int, bool]:
    """Return the address of a word's slot, and whether it is found there; ``place`` is its first of two slots."""
    entry = table + np.int64(place << _U(5))
    entry += np.int64((eight_at(entry + 32) == low) & (eight_at(entry + 40) == high)) << 5
    return entry, (eight_at(entry) == low) & (eight_at(entry + 8) == high) & (high < _HASHED)


@compiled
def find(table: int, words: int, arena: int, at: int, low: np.uint64, high: np.uint64, place: np.uint64) -> int:
    """Return the address of the word with a key, or of the empty slot where it belongs; ``place`` is its first slot."""
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
    """Write the key of a word into an empty slot; :func:`remember` then writes its tokens."""
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
    """Write the tokens of an entered word, given as ``count`` ranks at an address."""
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
    """Return whether words must be dropped before ``AT_ONCE`` others are entered."""
    used, longest = words.used, AT_ONCE * LONGEST_WORD
    too_many = used[0] > len(words.table) // 4 * 5 // 8 - AT_ONCE
    return too_many or used[1] > len(words.ranks) - longest or used[2] > len(words.arena) - longest


@allocating
def preload(words: Words, vocabulary: Vocabulary) -> None:
    """Drop all words and enter the vocabulary."""
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
    """Drop all words, enter the vocabulary, and return all joins of two tokens to one, packed as in ``Merges``."""
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
    """Return the two tokens that lower ranks join each token's bytes to; ``NONE`` if the result is not two tokens."""
    # A kernel would free an array of its own after the last line that names it, while its address is still in use.
    parts, ranks = (np.empty(np.diff(vocabulary.bounds).max(initial=0), np.uint32) for _ in range(2))
    halves = np.empty(2 * (len(vocabulary.bounds) - 1), np.uint32)
    _write_halves(vocabulary, merges, parts, ranks, halves)
    return halves


def _in_lines(count: int) -> Wide:
    """Return room for ``count`` numbers, aligned so that each cache line holds two words and none is split."""
    room = np.empty(count + 7, np.uint64)
    return room[-room.ctypes.data % 64 // 8 :][:count]


def _make_words(tokens: Sequence[bytes], room: int) -> tuple[Words, Vocabulary]:
    """Return unfilled tables for tokens in the order of their ranks, with room for at least ``room`` other words."""
    bounds = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum([len(token) for token in tokens], out=bounds[1:])
    vocabulary = Vocabulary(np.frombuffer(b"".join(tokens) + bytes(PAST_END), np.uint8), bounds)
    words = Words(
        table=_in_lines(4 << (8 * (len(tokens) + room + AT_ONCE) // 5).bit_length()),
        ranks=np.empty(len(tokens) + 2 * room + 2 * AT_ONCE * LONGEST_WORD, np.uint32),
        arena=np.empty(int(bounds[-1]) + 4 * room + 2 * AT_ONCE * LONGEST_WORD, np.uint8),
        used=np.zeros(3, np.int64),
    )
    return words, vocabulary


PART = 1 << 14  # bytes of a piece encoded at once, few enough for the working memory to stay in the nearest caches


class Block(NamedTuple):
    """Pieces while they are looked up."""

    starts: Longs  # address of each piece, and of the end of the last
    lows: Wide
    highs: Wide
    places: Wide  # key of each piece (``lows`` and ``highs``), and the first slot of the table for it
    entries: Longs
    missed: Longs
    fresh: Longs


class Tables(NamedTuple):
    """Everything that encoding needs besides the texts."""

    pattern: int
    classes: Bytes
    words: Words
    vocabulary: Vocabulary
    merges: Merges
    together: Together
    block: Block
    tokens: Ranks  # room for the tokens and ranks of one word


def make_tables(pattern: int, tokens: Sequence[bytes], room: int) -> Tables:
    """Return all tables for a pattern and for tokens in the order of their ranks."""
    words, vocabulary = _make_words(tokens, room)
    block, together = Block(*(np.empty(AT_ONCE + 1, kind) for kind in "qQQQqqq")), make_together(AT_ONCE)
    of_one = np.empty(2 * LONGEST_WORD, np.uint32)
    no_merges = Merges(of_one, of_one, words.table, of_one, np.uint64(_MIX))
    tables = Tables(pattern, character_classes(), words, vocabulary, no_merges, together, block, of_one)
    # Another process may compile the kernels that fill the tables while this one compiles the largest.
    bounds = vocabulary.bounds
    compile_early(encode_texts, vocabulary.tokens, read_only(bounds), tables, 0, of_one, bounds)
    single, of_bytes = np.empty(256, np.uint32), np.empty(1 << 16, np.uint32)
    joins = list_joins(words, vocabulary, single, of_bytes)
    halves = list_halves(vocabulary, make_merges(single, of_bytes, joins))
    return tables._replace(merges=make_merges(single, of_bytes, possible_joins(joins, halves)))


def find_halves(tokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return the ranks of the two tokens that join to each token, or -1 if lower ranks do not join it to two."""
    tables = make_tables(0, tokens, 0)
    halves = list_halves(tables.vocabulary, tables.merges)
    return np.where(halves == NONE, -1, halves.astype(np.int64)).reshape(-1, 2)


@compiled
def _merge_apart(tables: Tables, entry: int, at: int, length: int) -> None:
    merges, tokens = tables.merges, tables.tokens
    first = np.int64(tokens.ctypes.data)
    made = merge_short(locate(merges), at, length, first, first + 4 * LONGEST_WORD, np.int64(NONE), 1)
    remember(tables.words, entry, first, made)


@compiled
def _make_keys(words: Words, block: Block, count: np.uint64) -> None:
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
    table, listed = np.int64(words.table.ctypes.data), _U(0)
    _, lows, highs, places, entries, missed, _ = block
    for piece in range(_U(0), count):
        entries[piece], found = find_short(table, lows[piece], highs[piece], places[piece])
        missed[listed] = piece
        listed += _U(not found)
    return listed


@compiled
def _look_up(tables: Tables, block: Block, count: np.uint64) -> int:
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
        merge_together(merges, together, np.int64(new))
        first = np.int64(together.tokens.ctypes.data)
        for word in range(np.int64(new)):
            remember(words, fresh[word], first + TOKENS_STEP * word, together.lengths[word])
    return most


@compiled
def _write(
    tables: Tables, block: Block, first: np.uint64, count: np.uint64, out: Ranks, written: np.uint64
) -> np.uint64:
    starts, entries, ranks, to = block.starts, block.entries, tables.words.ranks, np.int64(out.ctypes.data)
    for piece in range(first, count):
        entry = entries[piece]
        if entry == 0:
            start = starts[piece]
            length, so_far = starts[piece + _U(1)] - start, np.int64(written)
            bounds = tables.vocabulary.bounds
            written = _U(merge_parts(tables.merges, bounds, start, length, out, so_far, PART))
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
    """Write the ranks of all texts and the end of each; return their number, or -1 for a piece beyond ``longest``."""
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


END_OF_TEXT = "<|endoftext|>"
_MOST_ADDED = 128
"""Most added tokens that texts are searched for; with thousands, as in files for speech, `tokenizers` is faster."""
_MOST_SQUARES = 1 << 28
"""Limit of the sum of squared token lengths; finding merges takes proportional time, 1.5 s at the limit."""
_FILL_IN_THE_MIDDLE = {"<|fim_prefix|>": 100_258, "<|fim_middle|>": 100_259, "<|fim_suffix|>": 100_260}
_PUBLISHED: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (
        CL100K_PATTERN,
        {END_OF_TEXT: 100_257, **_FILL_IN_THE_MIDDLE, "<|endofprompt|>": 100_276},
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (
        O200K_PATTERN,
        {END_OF_TEXT: 199_999, "<|endofprompt|>": 200_018},
    ),
}
"""Patterns and special tokens of `cl100k_base.tiktoken` and `o200k_base.tiktoken`, by the SHA-256 of the file."""


@dataclass(frozen=True)
class ByteLevelBPE:
    """A byte-level BPE: its pattern, ranks, ids by rank, and preprocessing of texts."""

    pattern: str
    ranks: Mapping[bytes, int]  # rank of every token's bytes, 0 to n - 1; lower ranks are joined first
    ids: npt.NDArray[np.uint32] | None
    normalizer: Literal["", "NFC"] = ""
    added: tuple[str, ...] = ()  # tokens that a text is cut at before anything else

    @property
    def changes(self) -> str:
        """Reason why the tokens of a text may not be its bytes cut into pieces, or "" if they are."""
        if self.normalizer:
            return f"it has a normalizer ({self.normalizer})"
        if self.added:
            return _matches_first(self.added)
        return ""

    def id_of(self, spelled: str) -> int | None:
        """Return the id of a token by its spelling in a `tokenizer.json`, or None if there is none."""
        spell = _bytes_by_spelling()
        if not all(character in spell for character in spelled):
            return None
        rank = self.ranks.get(bytes(map(spell.__getitem__, spelled)))
        return rank if rank is None or self.ids is None else int(self.ids[rank])


def parse_ranks(content: bytes, where: str) -> dict[bytes, int]:
    """Return the ranks of a `*.tiktoken` file, with one base64 token and its rank per line, of 0 to n - 1."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as wrong:
            raise TokenizerError(f"{where}, line {number}: {line[:80]!r} is not a base64 token and its rank") from wrong
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise TokenizerError(f"{where}: its ranks are not 0 to {len(ranks) - 1}, each once; is the file incomplete?")
    _require_all_bytes(ranks, where)
    return ranks


class RankFile(NamedTuple):
    """Content of a `*.tiktoken` file, with its pattern and the ids of special tokens, including the end of text."""

    ranks: Mapping[bytes, int]
    pattern: str
    special: Mapping[str, int]


def rank_file(content: bytes, where: str) -> RankFile:
    """Return the ranks, pattern and special tokens of a `*.tiktoken` file, GPT-2's unless its digest is known."""
    ranks = parse_ranks(content, where)
    of_gpt2 = GPT2_PATTERN, {END_OF_TEXT: len(ranks)}
    return RankFile(ranks, *_PUBLISHED.get(hashlib.sha256(content).hexdigest(), of_gpt2))


def has_long_tokens(tokens: Iterable[bytes | str]) -> bool:
    """Return whether tokens are so long that finding their merges takes seconds to hours."""
    return sum(len(token) ** 2 for token in tokens) > _MOST_SQUARES


def recover_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return the merge that makes each token of more than one byte, best rank first; TokenizerError if none does."""
    _require_short_tokens(ranks)
    tokens = sorted(ranks, key=ranks.__getitem__)
    halves = find_halves(tokens).tolist()
    for token, (left, _) in zip(tokens, halves, strict=True):
        if left < 0 and len(token) > 1:
            raise TokenizerError(f"token {token!r} of rank {ranks[token]} cannot be made by merges of two others")
    return [(tokens[left], tokens[right]) for left, right in halves if left >= 0]


def tokenizer_document(
    ranks: Mapping[bytes, int], pattern: str = GPT2_PATTERN, special: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the content of a `tokenizer.json` with ``ranks`` as ids; ``special`` None adds an end of text."""
    special = {END_OF_TEXT: len(ranks)} if special is None else dict(special)
    merges = [[_spelled(left), _spelled(right)] for left, right in recover_merges(ranks)]
    vocabulary = {_spelled(token): rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": name, **flags} for name, token in special.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level if pattern == GPT2_PATTERN else steps,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary | special,
            "merges": merges,
        },
    }


def byte_level_bpe(document: Mapping[str, Any]) -> ByteLevelBPE:
    """Return the ranks of a `tokenizer.json`; TokenizerError names what ranks cannot describe."""
    model = document["model"]
    normalizer = document.get("normalizer") and _object(document["normalizer"]).get("type")
    if document.get("normalizer") is not None and normalizer != "NFC":
        raise TokenizerError(f"it has a normalizer ({normalizer})")
    added, pattern = _plain_added(document), _pattern(document)
    _require_plain_model(model)
    _require_short_tokens(model["vocab"])
    spell = _bytes_by_spelling()
    try:
        pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        merges = [(bytes(map(spell.__getitem__, left)), bytes(map(spell.__getitem__, right))) for left, right in pairs]
    except KeyError as unknown:
        raise TokenizerError(f"a merge has the character {unknown}, which is not the spelling of any byte") from unknown
    ranks = _ranks(merges, model["vocab"])
    listed = set(merges)
    if wrong := next((merge for merge in recover_merges(ranks) if merge not in listed), None):
        raise TokenizerError(f"joining by rank would merge {wrong}, which is not among its merges")
    ids = np.array([model["vocab"][_spelled(token)] for token in ranks], np.uint32)
    if model.get("ignore_merges") and len(ranks) != len(model["vocab"]):
        raise TokenizerError("it ignores merges for whole words, and some words of its vocabulary have no merge")
    by_rank = np.array_equal(ids, np.arange(len(ids)))
    return ByteLevelBPE(pattern, ranks, None if by_rank else ids, "NFC" if normalizer else "", added)


def _matches_first(added: Sequence[str]) -> str:
    return f"it matches {len(added):,} added tokens before anything else, {added[0]!r} among them"


def _plain_added(document: Mapping[str, Any]) -> tuple[str, ...]:
    added_tokens = [*map(_object, document.get("added_tokens") or [])]
    plain = tuple(added["content"] for added in added_tokens if added["content"] and not added["special"])
    if len(plain) > _MOST_ADDED:
        raise TokenizerError(_matches_first(plain))
    spelled = [unicodedata.normalize("NFC", added["content"]) for added in added_tokens if added["content"]]
    if plain and len(set(spelled)) < len(spelled):
        raise TokenizerError("two of its added tokens are the same in NFC")
    return plain


def _pattern(document: Mapping[str, Any]) -> str:
    step = _object(document.get("pre_tokenizer") or {"type": "none"})
    steps = [*map(_object, step["pretokenizers"])] if step.get("type") == "Sequence" else [step]
    last = steps[-1] if steps else {"type": "none"}
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space", True):
        raise TokenizerError("its pre-tokenizer is not byte level without a prefix space")
    if len(steps) == 1 and last.get("use_regex", True):
        return GPT2_PATTERN
    if len(steps) == 2 and steps[0].get("type") == "Split" and not last.get("use_regex", True):
        split = steps[0]
        if "Regex" in split["pattern"] and split["behavior"] == "Isolated" and not split.get("invert"):
            return str(split["pattern"]["Regex"])
    raise TokenizerError(
        f"its pre-tokenizer is not one pattern ({' then '.join(str(step.get('type')) for step in steps)})"
    )


def _object(value: Any) -> Mapping[str, Any]:
    """Return an object in a `tokenizer.json`; lists of its fields, which `tokenizers` also reads, are rejected."""
    if not isinstance(value, Mapping):
        raise TokenizerError("it has fields without their names")
    return value


def _require_short_tokens(tokens: Iterable[bytes | str]) -> None:
    if has_long_tokens(tokens):
        longest = max(map(len, tokens))
        raise TokenizerError(
            f"its tokens, of up to {longest:,} bytes, are too long to find their merges: pass its tokenizer.json"
        )


def _require_plain_model(model: Mapping[str, Any]) -> None:
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise TokenizerError(f"its model is {model.get('type')}, not BPE")
    if len(set(model["vocab"].values())) < len(model["vocab"]):
        raise TokenizerError("its vocabulary has one id for two tokens")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            raise TokenizerError(f"its model sets {name} to {model[name]!r}")


def _ranks(merges: Iterable[tuple[bytes, bytes]], vocabulary: Mapping[str, int]) -> dict[bytes, int]:
    singles = [(vocabulary[each], bytes([byte])) for byte, each in enumerate(_alphabet()) if each in vocabulary]
    ranks = {token: rank for rank, (_, token) in enumerate(sorted(singles))}
    _require_all_bytes(ranks, "its vocabulary")
    token = b""
    for left, right in merges:
        if left + right == token:
            continue
        token = left + right
        if token in ranks:
            raise TokenizerError(f"the merges that make {token!r} do not follow one another")
        ranks[token] = len(ranks)
    return ranks


def _require_all_bytes(ranks: Mapping[bytes, int], where: str) -> None:
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(f"{where}: {len(missing)} of the 256 bytes are not tokens, 0x{missing[0]:02x} among them")


@cache
def _alphabet() -> Sequence[str]:
    """Return the character that spells each byte in a `tokenizer.json`: itself if printable, else from U+0100 on."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printing else chr(next(others)) for byte in range(256)]


@cache
def _bytes_by_spelling() -> Mapping[str, int]:
    return {character: byte for byte, character in enumerate(_alphabet())}


def _spelled(token: bytes) -> str:
    return "".join(map(_alphabet().__getitem__, token))
