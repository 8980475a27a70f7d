"""What two tokens join to, in a table that every look-up reads at one place.

Two tokens that stand side by side while bytes are encoded are what the bytes of both alone come to when they are two
tokens: nothing has crossed their ends before. So of all pairs whose bytes make a token one alone can come up, the one
that byte pair encoding of the token's bytes leads to, and the table needs no other: half of the pairs of GPT-2.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.memory import eight_at, four_at, lowest_bit

Wide = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.uint32]

RANK_BITS = 21
"""Two parts and their rank fit in one number; the largest vocabularies have 2**18 tokens."""
NONE = np.uint32(0xFFFFFFFF)

_U = np.uint64
_RANK = _U((1 << RANK_BITS) - 1)
_EMPTY = _U(0xFFFFFFFFFFFFFFFF)
_MIX = 0x9E3779B97F4A7C15
_SLOT = _U(20)


class Merges(NamedTuple):
    """What joins with what: the rank of two bytes by index, that of two tokens in a table without collisions.

    A pair is at one place only, so looking it up needs no branch: the middle bits of its hash, moved by what
    ``moves`` has at the highest ones (hash and displace).
    """

    bytes: Ranks
    """The rank of each of the 256 bytes."""
    of_bytes: Ranks
    """The rank of two bytes at 256 * first + second; ``NONE`` where they do not join."""
    table: Wide
    """Left rank, right rank and rank of the join in 21 bits each; the size is a power of two."""
    moves: Ranks
    multiplier: np.uint64
    """What hashes are made with: one for which there are no collisions."""


TRIED = 32
"""Multipliers for one size of a table; of 500,000 vocabularies one has none among so many."""


@compiled
def _place_bucket(joins: Wide, multiplier: np.uint64, table: Wide) -> int:
    """Enter joins at the first move that has a free place for each and return it, -1 where there is none."""
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
    """Enter joins into a table, those of the fullest buckets first; return whether there is a place for all."""
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
    """Return the tables for joins, packed as in the table; of three multipliers about one has no collisions.

    A few joins may have no place in a small table under any multiplier, so it grows.
    """
    size, multiplier, tried = 1 << (5 * len(joins) // 4).bit_length(), _MIX, 0
    while True:
        table, moves = np.empty(size, np.uint64), np.zeros(max(2, size // 4), np.uint32)
        if _place_joins(joins, np.uint64(multiplier), table, moves):
            return Merges(single, of_bytes, table, moves, np.uint64(multiplier))
        multiplier, tried = 3 * multiplier % (1 << 64), tried + 1
        size *= 1 if tried % TRIED else 2


class Located(NamedTuple):
    """The addresses of ``Merges``: integers are not counted where they are handed on."""

    bytes: int
    of_bytes: int
    table: int
    mask: np.uint64
    moves: int
    shift: np.uint64
    multiplier: np.uint64


@compiled
def locate(merges: Merges) -> Located:
    """Return where merges are; the arrays must outlive it."""
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
    """Return the rank of the join of two tokens, ``NONE`` where they do not join."""
    parts = _U(left) << _U(RANK_BITS) | _U(right)
    mixed = parts * merges.multiplier
    move = _U(four_at(merges.moves + np.int64(mixed >> merges.shift << _U(2))))
    found = eight_at(merges.table + np.int64(((mixed >> _SLOT) + move & merges.mask) << _U(3)))
    # A choice would be a branch, which is guessed wrong too often: what comes after it waits for memory.
    return np.int64(found & _RANK | (_U(0) - _U(found >> _U(RANK_BITS) != parts)) & _U(NONE))


def possible_joins(joins: Wide, halves: Ranks) -> Wide:
    """Return the joins that can come up; of a token whose halves are not known, all."""
    left, right = (halves[side::2][joins & _RANK].astype(np.uint64) for side in (0, 1))
    wanted: Wide = joins[(left == NONE) | (joins >> _U(RANK_BITS) == (left << _U(RANK_BITS) | right))]
    return wanted
