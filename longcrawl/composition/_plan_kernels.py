"""Which sample each document goes to, as numba kernels: Algorithm 1, exact-fill and bin packing.

For the first two, the documents left are one list per length, with a set of the lengths that have any: a bit for each,
a bit for each 64 of these and for each 64 of those. The longest document that fits is then a look at three words,
whatever the number of documents, so a plan takes time for its pieces and not for its documents times its samples.
"""

# Numba compiles plain comparisons best:
# ruff: noqa: PLR1714
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import count_up_to

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

LOOK_BACK = 256
"""How many lengths exact-fill tries for a pair that closes a sample, and for each of the triples."""

TRIPLES = 8
"""How many first lengths of a triple it tries."""

_U = np.uint64
_ONE, _ALL = _U(1), ~_U(0)


class NumberSet(NamedTuple):
    """A set of whole numbers, for the greatest that is not above a bound."""

    low: Wide
    """A bit for each number."""
    middle: Wide
    """A bit for each word of ``low`` that is not 0."""
    high: Wide
    """A bit for each word of ``middle`` that is not 0."""


class Stock(NamedTuple):
    """What is left to place, by the number of tokens that is left of each document."""

    first: Longs
    """int64 [most tokens + 1]: the document to take next of each length; -1 is none."""
    following: Longs
    """int64 [documents]: the one after it; -1 is none."""
    taken: Longs
    """int64 [documents]: how many tokens of each have been placed."""
    lengths: NumberSet


class Placed(NamedTuple):
    """The plan so far."""

    documents: Longs
    """int64 [pieces]"""
    starts: Longs
    sizes: Longs
    ends: Longs
    """int64 [samples]: how many pieces there are up to each sample's end."""
    capacities: Longs
    """int64 [samples]"""
    counts: Longs
    """int64 [2]: pieces and samples."""


def make_lengths(most: int) -> NumberSet:
    """Return the empty set of numbers up to ``most``."""
    low, middle, high = ((most >> shift) + 1 for shift in (6, 12, 18))
    return NumberSet(np.zeros(low, np.uint64), np.zeros(middle, np.uint64), np.zeros(high, np.uint64))


def make_placed(pieces: int, samples: int) -> Placed:
    """Allocate room for a plan of at most so many pieces and samples."""
    documents, starts, sizes = (np.empty(pieces, np.int64) for _ in range(3))
    return Placed(
        documents, starts, sizes, np.empty(samples, np.int64), np.empty(samples, np.int64), np.zeros(2, np.int64)
    )


@compiled
def _highest_bit(word: np.uint64) -> int:
    at = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> _U(step):
            at += step
            word >>= _U(step)
    return at


@forced_inline
def _lowest_bit(word: np.uint64) -> int:
    return _highest_bit(word & (~word + _ONE))


@forced_inline
def insert(lengths: NumberSet, value: int) -> None:
    """Put a number into the set."""
    lengths.low[value >> 6] |= _ONE << _U(value & 63)
    lengths.middle[value >> 12] |= _ONE << _U((value >> 6) & 63)
    lengths.high[value >> 18] |= _ONE << _U((value >> 12) & 63)


@forced_inline
def remove(lengths: NumberSet, value: int) -> None:
    """Take a number out of the set."""
    lengths.low[value >> 6] &= ~(_ONE << _U(value & 63))
    if lengths.low[value >> 6] == 0:
        lengths.middle[value >> 12] &= ~(_ONE << _U((value >> 6) & 63))
        if lengths.middle[value >> 12] == 0:
            lengths.high[value >> 18] &= ~(_ONE << _U((value >> 12) & 63))


@compiled
def greatest(lengths: NumberSet, bound: int) -> int:
    """Return the greatest number that is at most ``bound``, -1 where there is none."""
    if bound < 0:
        return -1
    at = bound >> 6
    word = lengths.low[at] & (_ALL >> _U(63 - (bound & 63)))
    if word:
        return (at << 6) + _highest_bit(word)
    above = at >> 6
    word = lengths.middle[above] & ((_ONE << _U(at & 63)) - _ONE)
    if not word:
        top = above >> 6
        word = lengths.high[top] & ((_ONE << _U(above & 63)) - _ONE)
        while not word:
            top -= 1
            if top < 0:
                return -1
            word = lengths.high[top]
        above = (top << 6) + _highest_bit(word)
        word = lengths.middle[above]
    at = (above << 6) + _highest_bit(word)
    return (at << 6) + _highest_bit(lengths.low[at])


@compiled
def least(lengths: NumberSet) -> int:
    """Return the least number, -1 where there is none."""
    for top in range(len(lengths.high)):
        if lengths.high[top]:
            above = (top << 6) + _lowest_bit(lengths.high[top])
            at = (above << 6) + _lowest_bit(lengths.middle[above])
            return (at << 6) + _lowest_bit(lengths.low[at])
    return -1


@forced_inline
def _has(lengths: NumberSet, value: int) -> bool:
    return (lengths.low[value >> 6] >> _U(value & 63)) & _ONE != 0


@forced_inline
def _add(stock: Stock, document: int, length: int) -> None:
    """Put what is left of a document in front of those of its length."""
    stock.following[document] = stock.first[length]
    stock.first[length] = document
    insert(stock.lengths, length)


@forced_inline
def _take(stock: Stock, length: int) -> int:
    document = stock.first[length]
    stock.first[length] = stock.following[document]
    if stock.first[length] < 0:
        remove(stock.lengths, length)
    return document


@forced_inline
def put(placed: Placed, taken: Longs, document: int, size: int) -> None:
    """Put the next tokens of a document into the sample."""
    at = placed.counts[0]
    placed.documents[at], placed.starts[at], placed.sizes[at] = document, taken[document], size
    taken[document] += size
    placed.counts[0] = at + 1


@forced_inline
def close(placed: Placed, capacity: int) -> None:
    """End the sample."""
    at = placed.counts[1]
    placed.ends[at], placed.capacities[at] = placed.counts[0], capacity
    placed.counts[1] = at + 1


@allocating
def _lay_in(lengths: Longs, stock: Stock, placed: Placed, largest: int) -> None:
    """Fill samples of the largest capacity from longer documents, longest first, and put the rest into stock."""
    longer = [(-lengths[0], np.int64(0), np.int64(0)) for _ in range(0)]
    for document in range(len(lengths) - 1, -1, -1):
        length = lengths[document]
        if length > largest:
            longer.append((-length, np.int64(document), np.int64(document)))
        elif length > 0:
            _add(stock, document, length)
    heapq.heapify(longer)
    turn = np.int64(-1)
    while len(longer) > 0:
        length, _, document = longer[0]
        put(placed, stock.taken, document, largest)
        close(placed, largest)
        rest = -length - largest
        if rest > largest:
            heapq.heapreplace(longer, (-rest, turn, document))
            turn -= 1
        else:
            heapq.heappop(longer)
            _add(stock, document, rest)


@forced_inline
def _fill_or_pad(space: int, capacity: int, threshold: float, stock: Stock, placed: Placed) -> None:
    """Fill what is left of a sample with a chunk of the shortest document where it is more than the threshold."""
    if space > 0 and space / capacity > threshold:
        length = least(stock.lengths)
        if length > 0:
            document = _take(stock, length)
            put(placed, stock.taken, document, space)
            _add(stock, document, length - space)
    close(placed, capacity)


@compiled
def _closing(stock: Stock, space: int, longest: int) -> tuple[int, int]:
    """Return the next length and the one after it of a pair or triple that fills ``space``; (longest, 0) is neither."""
    lengths = stock.lengths
    one = longest
    for _ in range(LOOK_BACK):
        if 2 * one < space:
            break
        two = space - one
        if _has(lengths, two) and (two != one or stock.following[stock.first[one]] >= 0):
            return one, two
        one = greatest(lengths, one - 1)
    one = longest
    for _ in range(TRIPLES):
        if one <= 0:
            break
        rest = space - one
        two = greatest(lengths, rest)
        for _ in range(LOOK_BACK):
            three = rest - two
            if two < three or two <= 0:
                break
            if two != one and three != two and three != one and _has(lengths, three):
                return one, two
            two = greatest(lengths, two - 1)
        one = greatest(lengths, one - 1)
    return longest, 0


@compiled
def fill_buckets(
    lengths: Longs,
    capacities: Longs,
    threshold: float,
    exact: bool,  # noqa: FBT001  # kernels take arguments by position
    stock: Stock,
    placed: Placed,
) -> None:
    """Plan all documents by Algorithm 1 of "Bucket Pre-training is All You Need".

    Args:
        lengths: int64 [documents].
        capacities: int64, ascending.
        threshold: the share of a sample that may be padding.
        exact: whether to choose the last documents of a sample so that they fill it, where some do.
        stock: empty, for lengths up to the largest capacity.
        placed: room for the plan.
    """
    largest = capacities[-1]
    _lay_in(lengths, stock, placed, largest)
    while True:
        length = greatest(stock.lengths, largest)
        if length < 0:
            break
        capacity = capacities[count_up_to(capacities, length - 1)]
        space, then = capacity, 0
        while length > 0:
            put(placed, stock.taken, _take(stock, length), length)
            space -= length
            if then > 0:
                length, then = then, 0
                continue
            length = greatest(stock.lengths, space) if space > 0 else -1
            if exact and 0 < length < space and space - length < 2 * least(stock.lengths):
                length, then = _closing(stock, space, length)
        _fill_or_pad(space, capacity, threshold, stock, placed)


@allocating
def best_fit(sizes: Longs, capacity: int, used: NumberSet, samples: Longs) -> int:
    """Put each item into the fullest sample that has room for it, and return how many samples there are.

    Args:
        sizes: int64 [items], each from 1 to ``capacity``.
        capacity: of every sample.
        used: the empty set of numbers up to ``capacity``.
        samples: int64 [items], written; of samples that are equally full, the last that came to be so.
    """
    first, following = np.full(capacity + 1, -1, np.int64), np.empty(len(sizes), np.int64)
    count = 0
    for item in range(len(sizes)):
        full = greatest(used, capacity - sizes[item])
        if full < 0:
            full, sample = 0, count
            count += 1
        else:
            sample = first[full]
            first[full] = following[sample]
            if first[full] < 0:
                remove(used, full)
        samples[item] = sample
        full += sizes[item]
        if full < capacity:
            following[sample] = first[full]
            first[full] = sample
            insert(used, full)
    return count


@allocating
def first_fit(sizes: Longs, capacity: int, samples: Longs) -> int:
    """Put each item into the first sample that has room for it, and return how many samples there are.

    The room of the samples is the bottom of a tree in which each node has that of the roomier child, so the first with
    enough is found from the top down.
    """
    leaves = 1
    while leaves < len(sizes):
        leaves *= 2
    room = np.full(2 * leaves, capacity, np.int64)
    count = 0
    for item in range(len(sizes)):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < sizes[item]:
                node += 1
        samples[item] = node - leaves
        count = max(count, node - leaves + 1)
        room[node] -= sizes[item]
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return count


@allocating
def binned_greedy(sizes: Longs, capacity: int, bin_of: Longs, look_at: int, samples: Longs) -> int:
    """Fill one sample after the other from bins of like sizes, and return how many samples there are.

    A sample begins with the first item of the highest bin. Then, of the bin that its room is in, the first of
    ``look_at`` items that fits, else the first item of the highest bin below; until there is none.

    Args:
        sizes: int64 [items], each from 1 to ``capacity``.
        capacity: of every sample.
        bin_of: int64 [capacity + 1], the bin of each size, never falling.
        look_at: items of a bin that are compared with the room.
        samples: int64 [items], written.
    """
    first = np.full(bin_of[capacity] + 1, -1, np.int64)
    following = np.empty(len(sizes), np.int64)
    for item in range(len(sizes) - 1, -1, -1):
        following[item] = first[bin_of[sizes[item]]]
        first[bin_of[sizes[item]]] = item
    count, highest = 0, len(first) - 1
    while True:
        highest = _filled_bin(first, highest)
        if highest < 0:
            return count
        room, at = capacity, highest
        while at >= 0 and room > 0:
            item = _take_fitting(first, following, at, sizes, room, look_at)
            if item >= 0:
                samples[item] = count
                room -= sizes[item]
                at = min(bin_of[room], highest)
            else:
                at -= 1
            at = _filled_bin(first, at)
        count += 1


@compiled
def _filled_bin(first: Longs, at: int) -> int:
    """Return the highest bin up to this one that holds something, or -1."""
    while at >= 0 and first[at] < 0:
        at -= 1
    return at


@compiled
def _take_fitting(first: Longs, following: Longs, at: int, sizes: Longs, room: int, look_at: int) -> int:
    """Take the first item out of a bin that fits, of so many that are looked at, or return -1."""
    before, item = -1, first[at]
    for _ in range(look_at):
        if item < 0:
            return -1
        if sizes[item] <= room:
            if before < 0:
                first[at] = following[item]
            else:
                following[before] = following[item]
            return item
        before, item = item, following[item]
    return -1
