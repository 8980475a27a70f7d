"""Byte pair encoding by rank, as kernels.

Short pieces are searched for their lowest rank again and again, those of a few bytes several at a time. Long ones keep
a list of pairs for every rank, so that their time grows with their length alone. Very long ones are encoded in parts
that overlap.

Why parts give the same tokens: let each two neighbours of a list of tokens be what their joined bytes are encoded to.
A first join across the end of a token of the list would be the first such join of those two tokens' bytes alone, too,
as nothing has crossed their ends before; so there is none, and all bytes are encoded to the list. Neighbours within
one part are such two. Where a part begins with a token of the part before, so are those where the two meet.

Two tokens that stand side by side while bytes are encoded are what the bytes of both alone come to when they are two
tokens: nothing has crossed their ends before. So of all pairs whose bytes make a token one alone can come up, the one
that byte pair encoding of the token's bytes leads to, and the table needs no other: half of the pairs of GPT-2.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import stable_order
from longcrawl.kernels.memory import byte_at, eight_at, four_at, highest_bit, least_of_many, lowest_bit, put_four

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"


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


# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"


Longs = npt.NDArray[np.int64]

SHORT = 64
"""Bytes of the longest piece that is searched from its start for each merge."""
_OVERLAP = 32
"""Tokens of a part that the next one encodes again."""
TOGETHER = 32
"""Words of fewer bytes are joined together."""
TOKENS_STEP, _KEYS_STEP = 144, 128
"""Bytes that the tokens and the keys of a word take."""
_KEY_BITS = 5

_NO_TOKEN = np.int64((1 << RANK_BITS) - 1)
"""Ranks are below it."""
_NO_KEY = np.int64(0xFFFFFFE0)


class Together(NamedTuple):
    """Words of fewer than ``TOGETHER`` bytes while their tokens are joined, a step of each word in turn.

    A token stands one place after its first byte, between two that join with nothing. The key of a place is the rank
    of the join of its token with the next, and the place. A step waits for memory several times: those of other words
    are done meanwhile.
    """

    starts: Longs
    """The address of each word."""
    lengths: Longs
    """Bytes of each; once all are joined, its tokens."""
    begins: Wide
    """A bit for every place of a word where a token begins."""
    waiting: Longs
    """The words that are not done."""
    tokens: Ranks
    keys: Ranks


def make_together(count: int) -> Together:
    """Return room for so many words."""
    longs = np.empty(count, np.int64), np.empty(count, np.int64)
    tokens, keys = np.empty(count * TOKENS_STEP // 4, np.uint32), np.empty(count * _KEYS_STEP // 4, np.uint32)
    return Together(*longs, np.empty(count, np.uint64), np.empty(count, np.int64), tokens, keys)


@forced_inline
def _set_out(merges: Located, at: int, length: int, tokens: int, keys: int) -> None:
    """Take every byte of a word as a token."""
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
    """Join the pair with the lowest key and return where tokens begin then."""
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
    """Encode words of fewer than ``TOGETHER`` bytes; the tokens of each stand at its place in ``tokens``."""
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
    """Encode bytes by ranks ``below`` one, down to the ``fewest`` tokens; return how many stand at ``tokens``."""
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


class Queue(NamedTuple):
    """Pairs of one long piece by rank, each list linked from its last pair to its first; empty between pieces."""

    last: Ranks
    """The number of the last pair of each rank, ``NONE`` where there is none."""
    filled: Wide
    """A bit for every rank that has pairs."""


@compiled
def _append(last: Ranks, filled: Wide, rank: int, pair: int, earlier: Ranks) -> None:
    """Put a pair at the end of the list of its rank."""
    number = _U(rank)
    earlier[_U(pair)] = last[number]
    last[number] = pair
    filled[number >> _U(6)] |= _U(1) << (number & _U(63))


@allocating
def _take(last: Ranks, filled: Wide, rank: int, places: Ranks, earlier: Ranks, free: int) -> tuple[Ranks, int]:
    """Empty the list of a rank: return the places of its pairs in ascending order, and the head of the free pairs."""
    head = last[rank]
    last[rank] = NONE
    filled[rank >> 6] &= ~(_U(1) << _U(rank & 63))
    count = np.int64(0)
    pair = head
    while pair != NONE:
        count += 1
        first, pair = pair, earlier[pair]
    found = np.empty(count, np.uint32)
    pair = head
    ascending = True
    for number in range(count - 1, -1, -1):
        found[number] = places[pair]
        ascending = ascending and (number + 1 == count or found[number] < found[number + 1])
        pair = earlier[pair]
    earlier[first] = free
    if not ascending:
        keys = found.astype(np.int64)
        order = stable_order(keys)
        for number in range(count):
            found[number] = keys[order[number]]
    return found, head


@compiled
def _next_rank(filled: Wide, first: int) -> int:
    """Return the lowest rank from ``first`` on that has pairs, -1 where none has."""
    word = first >> 6
    if word >= len(filled):
        return -1
    bits = filled[word] >> _U(first & 63) << _U(first & 63)
    while bits == _U(0):
        word += 1
        if word == len(filled):
            return -1
        bits = filled[word]
    return word * 64 + lowest_bit(bits)


class Piece(NamedTuple):
    """A long piece while its tokens are joined; a token stands where its first byte does."""

    tokens: Ranks
    ranks: Ranks
    """The rank of each token's join with the next, ``NONE`` where they do not join."""
    after: Ranks
    before: Ranks
    """The token before; beyond the piece for the first."""
    places: Ranks
    """Where each pair that waits in the queue begins; there are at most three for every byte."""
    earlier: Ranks
    """The pair before it in the list of its rank, or in the list of numbers that are free again."""


@compiled
def _bytes_of(merges: Merges, last: Ranks, filled: Wide, at: int, piece: Piece) -> int:
    """Take every byte as a token, enter all pairs that join, and return how many there are."""
    tokens, ranks, after, before, places, earlier = piece
    pairs = np.int64(0)
    for place in range(len(tokens)):
        tokens[place] = merges.bytes[byte_at(at + place)]
        after[place], before[place], ranks[place] = place + 1, place - 1, NONE
        if place + 1 < len(tokens):
            ranks[place] = merges.of_bytes[byte_at(at + place) << 8 | byte_at(at + place + 1)]
        if ranks[place] != NONE:
            places[pairs] = place
            _append(last, filled, ranks[place], pairs, earlier)
            pairs += 1
    return pairs


@compiled
def _join(merges: Located, piece: Piece, left: int, rank: int) -> int:
    """Join the token at ``left`` and the next, and those that this brings to ``rank`` or below; return where it ends.

    Only pairs with the new token can be due before the pairs that wait: these have no lower rank, and those of the
    same rank begin further on.
    """
    tokens, ranks, after, before, _, _ = piece
    while ranks[left] <= rank:
        right = np.int64(after[left])
        follower = np.int64(after[right])
        tokens[left], after[left] = ranks[left], follower
        ranks[left] = ranks[right] = NONE
        if follower < len(tokens):
            before[follower] = left
            ranks[left] = rank_of(merges, tokens[left], tokens[follower])
        if left > 0:
            previous = np.int64(before[left])
            ranks[previous] = rank_of(merges, tokens[previous], tokens[left])
            if ranks[previous] <= ranks[left] and ranks[previous] <= rank:
                left = previous
    return left


@allocating
def merge_long(merges: Merges, queue: Queue, at: int, length: int, out: Ranks, written: int) -> int:
    """Encode bytes at an address into ``out`` from ``written`` on and return where they end.

    The bytes of the pair at a place only grow, so a pair that waits and is no more is known by its rank.
    """
    last, filled = queue
    located = locate(merges)
    piece = Piece(
        np.empty(length, np.uint32),
        np.empty(length, np.uint32),
        np.empty(length, np.uint32),
        np.empty(length, np.uint32),
        np.empty(3 * length, np.uint32),
        np.empty(3 * length, np.uint32),
    )
    _, ranks, after, before, places, earlier = piece
    pairs, free = _bytes_of(merges, last, filled, at, piece), np.int64(NONE)
    rank = _next_rank(filled, 0)
    while rank >= 0:
        turn, free = _take(last, filled, rank, places, earlier, free)
        for waiting in turn:
            if ranks[waiting] != rank:
                continue
            left = _join(located, piece, np.int64(waiting), rank)
            for place in (np.int64(before[left]), left):
                if place < length and ranks[place] != NONE:
                    pair = free if free != NONE else pairs
                    pairs, free = (pairs, np.int64(earlier[pair])) if free != NONE else (pairs + 1, free)
                    places[pair] = place
                    _append(last, filled, ranks[place], pair, earlier)
        rank = _next_rank(filled, rank)
    place = np.int64(0)
    while place < length:
        out[written] = piece.tokens[place]
        written += 1
        place = np.int64(after[place])
    return written


@compiled
def merge_parts(
    merges: Merges, queue: Queue, bounds: Longs, at: int, length: int, out: Ranks, written: int, part: int
) -> int:
    """As :func:`merge_long`, in parts of so many bytes; ``bounds`` are those of the tokens by rank.

    A part begins with one of the last tokens of the part before. Where it is encoded to another token first, it begins
    earlier and is longer.
    """
    beginning, start, size, back = written, np.int64(0), part, _OVERLAP
    while True:
        stop = min(length, start + size)
        wanted = out[written]
        end = merge_long(merges, queue, at + start, stop - start, out, written)
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
