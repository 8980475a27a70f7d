"""Composition strategies: bucket pre-training (Algorithm 1), and those it is compared with.

The remaining documents are one list per length, with a three-level bit set of the lengths in use, so the time for a
plan grows with its pieces, and not with its documents times its samples.
"""

# ruff: noqa: PLR1714

import heapq
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.lookup import count_up_to
from longcrawl.kernels.memory import highest_bit, lowest_bit
from longcrawl.tokens.plan import Longs, Plan, Strategy, checked_lengths, join_plans, plan_of_pieces

Wide = npt.NDArray[np.uint64]
LOOK_BACK = 256  # lengths that exact-fill tries for a pair that closes a sample, and for the rest of each triple
TRIPLES = 8
_U = np.uint64
_ONE, _ALL = _U(1), ~_U(0)


class NumberSet(NamedTuple):
    """Set of whole numbers: a bit for each number, for each word of such bits that is not 0, and for each of those."""

    low: Wide
    middle: Wide
    high: Wide


class Stock(NamedTuple):
    """Documents still to place: the first and following ones of each number of remaining tokens, and tokens taken."""

    first: Longs
    following: Longs
    taken: Longs
    lengths: NumberSet


class Placed(NamedTuple):
    """The plan so far: document, start and size of each piece, int64 [pieces]."""

    documents: Longs
    starts: Longs
    sizes: Longs
    ends: Longs  # int64 [samples], number of pieces up to the end of each sample, and its capacity
    capacities: Longs
    counts: Longs  # int64 [2]: number of pieces and of samples


def make_lengths(most: int) -> NumberSet:
    """Return the empty set of numbers up to ``most``."""
    low, middle, high = ((most >> shift) + 1 for shift in (6, 12, 18))
    return NumberSet(np.zeros(low, np.uint64), np.zeros(middle, np.uint64), np.zeros(high, np.uint64))


def make_placed(pieces: int, samples: int) -> Placed:
    """Allocate a plan of at most ``pieces`` pieces and ``samples`` samples."""
    documents, starts, sizes = np.empty((3, pieces), np.int64)
    ends, capacities = np.empty((2, samples), np.int64)
    return Placed(documents, starts, sizes, ends, capacities, np.zeros(2, np.int64))


@forced_inline
def insert(lengths: NumberSet, value: int) -> None:
    """Add a number to the set."""
    lengths.low[value >> 6] |= _ONE << _U(value & 63)
    lengths.middle[value >> 12] |= _ONE << _U((value >> 6) & 63)
    lengths.high[value >> 18] |= _ONE << _U((value >> 12) & 63)


@forced_inline
def remove(lengths: NumberSet, value: int) -> None:
    """Remove a number from the set."""
    lengths.low[value >> 6] &= ~(_ONE << _U(value & 63))
    if lengths.low[value >> 6] == 0:
        lengths.middle[value >> 12] &= ~(_ONE << _U((value >> 6) & 63))
        if lengths.middle[value >> 12] == 0:
            lengths.high[value >> 18] &= ~(_ONE << _U((value >> 12) & 63))


@compiled
def greatest(lengths: NumberSet, bound: int) -> int:
    """Return the greatest number that is at most ``bound``, or -1 if there is none."""
    if bound < 0:
        return -1
    at = bound >> 6
    word = lengths.low[at] & (_ALL >> _U(63 - (bound & 63)))
    if word:
        return (at << 6) + highest_bit(word)
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
        above = (top << 6) + highest_bit(word)
        word = lengths.middle[above]
    at = (above << 6) + highest_bit(word)
    return (at << 6) + highest_bit(lengths.low[at])


@compiled
def least(lengths: NumberSet) -> int:
    """Return the least number, or -1 if there is none."""
    for top in range(len(lengths.high)):
        if lengths.high[top]:
            above = (top << 6) + lowest_bit(lengths.high[top])
            at = (above << 6) + lowest_bit(lengths.middle[above])
            return (at << 6) + lowest_bit(lengths.low[at])
    return -1


@forced_inline
def _has(lengths: NumberSet, value: int) -> bool:
    return (lengths.low[value >> 6] >> _U(value & 63)) & _ONE != 0


@forced_inline
def _add(stock: Stock, document: int, length: int) -> None:
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
    """Place the next tokens of a document in the current sample."""
    _place(placed, document, taken[document], size)
    taken[document] += size


@forced_inline
def _place(placed: Placed, document: int, start: int, size: int) -> None:
    at = placed.counts[0]
    placed.documents[at], placed.starts[at], placed.sizes[at] = document, start, size
    placed.counts[0] = at + 1


@forced_inline
def close(placed: Placed, capacity: int) -> None:
    """End the current sample."""
    at = placed.counts[1]
    placed.ends[at], placed.capacities[at] = placed.counts[0], capacity
    placed.counts[1] = at + 1


@allocating
def _lay_in(lengths: Longs, stock: Stock, placed: Placed, largest: int) -> None:
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
    if space > 0 and space / capacity > threshold:
        length = least(stock.lengths)
        if length > 0:
            document = _take(stock, length)
            put(placed, stock.taken, document, space)
            _add(stock, document, length - space)
    close(placed, capacity)


@compiled
def _closing(stock: Stock, space: int, longest: int) -> tuple[int, int]:
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
    """Plan all documents by Algorithm 1 with ``threshold`` padding; ``exact`` fills samples exactly if it can."""
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
    """Put each item into the fullest sample with room for it, the last filled of several; return how many there are."""
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
    """Put each item into the first sample with room for it, found in a tree of room; return their number."""
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
    """Fill one sample after another from bins of similar sizes, see :class:`BinnedGreedy`; return their number."""
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
    while at >= 0 and first[at] < 0:
        at -= 1
    return at


@compiled
def _take_fitting(first: Longs, following: Longs, at: int, sizes: Longs, room: int, look_at: int) -> int:
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


LOOK_AHEAD = 32  # documents that may be passed over because they do not fit, before a sample is closed


@compiled
def _gap(lengths: Longs, following: Longs, taken: Longs, capacity: int) -> int:
    document, space, passed_over = following[len(lengths)], capacity, 0
    while document != len(lengths) and space > 0 and passed_over < LOOK_AHEAD:
        size = lengths[document] - taken[document]
        if size <= space:
            space -= size
        else:
            passed_over += 1
        document = following[document]
    return space


@compiled
def _choose(lengths: Longs, following: Longs, taken: Longs, capacities: Longs, threshold: float) -> int:
    """Return the smallest capacity with a gap up to the threshold, or else the one with the smallest share of a gap."""
    first = following[len(lengths)]
    size = min(lengths[first] - taken[first], capacities[-1])
    chosen, least = capacities[-1], 2.0
    for number in range(count_up_to(capacities, size - 1), len(capacities)):
        share = _gap(lengths, following, taken, capacities[number]) / capacities[number]
        if share < least:
            chosen, least = capacities[number], share
        if share <= threshold:
            break
    return chosen


@compiled
def fill_in_order(
    lengths: Longs, capacities: Longs, threshold: float, following: Longs, taken: Longs, placed: Placed
) -> None:
    """Plan all documents in order, with little padding and few cuts; arguments as in :func:`fill_buckets`."""
    # The remaining documents are a linked list that begins at the entry after the last, which also marks its end.
    none = len(lengths)
    at = none
    for document in range(none):
        if lengths[document] > 0:
            following[at] = document
            at = document
    following[at] = none
    while following[none] != none:
        capacity = _choose(lengths, following, taken, capacities, threshold)
        space, before, passed_over = capacity, none, 0
        document = following[none]
        if lengths[document] - taken[document] > capacity:
            put(placed, taken, document, capacity)
            space = 0
        while space > 0 and following[before] != none and passed_over < LOOK_AHEAD:
            document = following[before]
            size = lengths[document] - taken[document]
            if size > space:
                before = document
                passed_over += 1
                continue
            put(placed, taken, document, size)
            space -= size
            following[before] = following[document]
        if following[none] != none and space > 0 and space / capacity > threshold:
            put(placed, taken, following[none], space)
        close(placed, capacity)


@compiled
def interleave(plan: Placed, chunk: int, placed: Placed) -> None:
    """Cut the longest piece of each sample into chunks, if it is longer, and put the other pieces between in order."""
    first = 0
    for sample in range(plan.counts[1]):
        stop = plan.ends[sample]
        longest = first + np.argmax(plan.sizes[first:stop])
        if plan.sizes[longest] > chunk:
            _spread(plan, first, stop, longest, chunk, placed)
        else:
            for piece in range(first, stop):
                _place(placed, plan.documents[piece], plan.starts[piece], plan.sizes[piece])
        close(placed, plan.capacities[sample])
        first = stop


@compiled
def _spread(plan: Placed, first: int, stop: int, longest: int, chunk: int, placed: Placed) -> None:
    """Put the pieces of a sample by their middle between chunks of the longest, as few as ``chunk`` tokens allow."""
    size, others = plan.sizes[longest], -plan.sizes[longest]
    for piece in range(first, stop):
        others += plan.sizes[piece]
    chunks = (size + chunk - 1) // chunk
    taken, before = np.int64(0), np.int64(0)
    for piece in range(first, stop):
        if piece == longest:
            continue
        gap = (2 * before + plan.sizes[piece]) * (chunks - 1) // (2 * others)
        before += plan.sizes[piece]
        end = (gap + 1) * size // chunks
        if end > taken:
            _place(placed, plan.documents[longest], plan.starts[longest] + taken, end - taken)
            taken = end
        _place(placed, plan.documents[piece], plan.starts[piece], plan.sizes[piece])
    _place(placed, plan.documents[longest], plan.starts[longest] + taken, size - taken)


BINS, EXPONENT, LOOK_AT = 64, 1.5, 512
Planner = Literal["algorithm-1", "exact-fill", "in-order", "interleaved"]
KEEP_ORDER = ("in-order", "interleaved")


@dataclass(frozen=True)
class Buckets(Strategy):
    """Algorithm 1 of H. Liu et al., "Bucket Pre-training is All You Need" (2024).

    The paper leaves some points open. This implementation reads them as follows:

    * line 3, "select bucket from B to fit d1": the smallest capacity that holds the longest remaining document, or the
      largest if none does.
    * lines 4 to 6, "for each document, if it fits, add it": the longest that fits is next, until none does.
    * lines 7 to 9, "else if bucket is empty": only a first document that is longer than the largest bucket fills it,
      and its rest is put back in front of documents of the same length.
    * line 12, "r = capacity - b": as its comment says, r is the space left.
    * line 13, "r / capacity > P": a gap of more than the share P of its bucket is filled, a smaller one is padded. 0
      pads only if no document is left, 1 never cuts a document to fill a gap.
    * line 14, "chunk from shortest document": the first r tokens of the shortest remaining one fill the gap and the
      rest is put back. If no document is left, the gap is padded.

    Among documents of one length, the one cut last is first, then the given order.

    ``planner="exact-fill"`` fills a sample to the last token with two or three remaining documents, if there are such,
    instead of the longest that fits. On lengths like those of a web crawl, with P = 1, this gives less padding at the
    same truncation. On few, long documents it may pad and cut more, see docs/composition.md.

    ``planner="in-order"`` keeps consecutive documents together. A sample begins with the first remaining document, and
    continues with those that fit, until it has passed over 32. It has the smallest capacity with a gap of at most P, or
    else the one with the smallest share of a gap, which is filled with a chunk of the first remaining document. It is
    meant for documents ordered by :class:`longcrawl.long.Related`.

    ``planner="interleaved"`` makes the same samples, and puts the other documents of a sample, whole and in order,
    between equal chunks of its longest, after C. Gao et al., "NExtLong" (2025). Such a sample is one text, see
    :attr:`Plan.joined`. In the paper, the others are chunks, retrieved for each chunk of a random document, and may be
    in many samples; here each token is in one.

    Args:
        capacities: capacities of the buckets in tokens, ascending.
        padding_threshold: P, the maximum share of padding in a sample.
        planner: ``"algorithm-1"``, ``"exact-fill"``, ``"in-order"`` or ``"interleaved"``.
        order: order of samples within a bucket: ``"shuffled"`` by ``seed``, or ``"planned"``, from samples of few long
            documents to those of many short ones.
        seed: seed of the shuffle.
        pool_size: consecutive documents planned together, up to twice as many in the last pool. Pools can be planned in
            parallel, and ``plan_pool`` holds one in memory.
        chunk_tokens: maximum tokens of a chunk, for "interleaved".

    >>> plan = Buckets([8, 16], padding_threshold=0.5).plan([20, 9, 5, 5, 2])
    >>> plan.capacities.tolist(), plan.tokens.tolist()
    ([8, 8, 16, 16], [5, 4, 16, 16])
    >>> plan = Buckets([16], planner="interleaved", chunk_tokens=3).plan([9, 4, 3])
    >>> list(zip(plan.documents.tolist(), plan.starts.tolist(), plan.sizes.tolist()))
    [(0, 0, 3), (1, 0, 4), (0, 3, 3), (2, 0, 3), (0, 6, 3)]
    """

    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    padding_threshold: float = 0.05
    planner: Planner = "algorithm-1"
    order: Literal["shuffled", "planned"] = "shuffled"
    seed: int = 0
    pool_size: int = 100_000
    chunk_tokens: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.padding_threshold <= 1:
            raise StageError(
                f"Buckets.padding_threshold must be a share of a bucket, from 0 to 1, got {self.padding_threshold}"
            )
        if self.planner == "interleaved" and not 0 < self.chunk_tokens < self.capacities[-1]:
            raise StageError(
                f"chunk_tokens of the planner 'interleaved' is {self.chunk_tokens:,}: set it to less than the largest "
                f"capacity, {self.capacities[-1]:,}, since no document of a sample has two chunks otherwise"
            )

    @property
    def label(self) -> str:
        """Name in tables."""
        return "Buckets" if self.planner == "algorithm-1" else f"Buckets, {self.planner}"

    def plan_pool(self, lengths: Any) -> Plan:
        """Plan any number of documents as one pool; samples are in the order in which they were made."""
        checked = checked_lengths(lengths)
        largest = self.capacities[-1]
        # A sample begins with a document's last piece or is a chunk of a long one, and may end with one more chunk.
        samples = int(np.count_nonzero(checked)) + int((checked // largest).sum())
        placed = make_placed(samples + len(checked), samples)
        first, following = np.full(largest + 1, -1, np.int64), np.empty(len(checked) + 1, np.int64)
        taken = np.zeros(len(checked), np.int64)
        bounds = np.array(self.capacities, np.int64), float(self.padding_threshold)
        if self.planner in KEEP_ORDER:
            fill_in_order(checked, *bounds, following, taken, placed)
        else:
            stock = Stock(first, following, taken, make_lengths(largest))
            fill_buckets(checked, *bounds, self.planner == "exact-fill", stock, placed)
        if self.planner == "interleaved":
            in_order, placed = placed, make_placed(2 * int(placed.counts[0]), int(placed.counts[1]))
            interleave(in_order, self.chunk_tokens, placed)
        pieces, made = placed.counts
        return Plan(
            checked,
            placed.capacities[:made].copy(),
            np.concatenate([[0], placed.ends[:made]]),
            *(each[:pieces].copy() for each in (placed.documents, placed.starts, placed.sizes)),
        )

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Join the plans of consecutive pools, with the samples of each bucket in their final order."""
        return join_plans(plans).in_buckets(self.seed if self.order == "shuffled" else None)


class OneCapacity(Strategy):
    """Base class of strategies with samples of one length."""

    context_length: int

    @property
    def capacities(self) -> tuple[int, ...]:  # type: ignore[override]  # it is one field
        """The one capacity."""
        return (self.context_length,)

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Join plans."""
        return join_plans(plans)


@dataclass(frozen=True)
class FixedLength(OneCapacity):
    """Concatenation of all documents, cut every ``context_length`` tokens; only the last sample is padded.

    ``order`` is the order of the documents: ``"shuffled"`` by ``seed``, as the paper's "randomly concatenated", or
    ``"given"``.
    """

    title = "Fixed-{context_length}"

    context_length: int = 2048
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0

    def plan_pool(self, lengths: Any) -> Plan:
        """Concatenate and cut the documents."""
        checked = checked_lengths(lengths)
        return _chopped(checked, _in_order(len(checked), self.order, self.seed), self.context_length)


@dataclass(frozen=True)
class MultiBucket(Strategy):
    """The paper's simple multi-bucket baseline: documents are bucketed by length, and each bucket is concatenated.

    Documents of up to 2,048 tokens are concatenated and cut every 2,048, those of up to 4,096 every 4,096, and so on.
    The largest bucket also takes all longer documents. The last sample of each bucket is padded. ``order`` is the same
    as in :class:`FixedLength`.
    """

    title = "Multi-Bucket"

    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0

    def plan_pool(self, lengths: Any) -> Plan:
        """Concatenate and cut the documents of each bucket."""
        checked = checked_lengths(lengths)
        buckets = np.minimum(np.searchsorted(self.capacities, checked), len(self.capacities) - 1)
        order = _in_order(len(checked), self.order, self.seed)
        chosen = ((order[buckets[order] == bucket], capacity) for bucket, capacity in enumerate(self.capacities))
        return join_plans((_chopped(checked, *each) for each in chosen), of_same_documents=True)


class BinPacking(OneCapacity):
    """Base class of strategies that cut only documents longer than a sample, and pad the rest of samples."""

    order: Literal["longest-first", "given"] = "longest-first"

    @abstractmethod
    def _assign(self, sizes: Longs, samples: Longs) -> int:
        """Write the sample of each piece, and return the number of samples."""

    def plan_pool(self, lengths: Any) -> Plan:
        """Pack these documents."""
        checked = checked_lengths(lengths)
        pieces = cut_long(checked, self.context_length)
        if self.order == "longest-first":
            order = np.argsort(-pieces[2], kind="stable")
            pieces = (pieces[0][order], pieces[1][order], pieces[2][order])
        samples = np.empty(len(pieces[2]), np.int64)
        count = self._assign(pieces[2], samples)
        return plan_of_pieces(checked, samples, np.full(count, self.context_length), pieces)


@dataclass(frozen=True)
class BestFit(BinPacking):
    """Best-fit packing of H. Ding et al., "Fewer Truncations Improve Language Modeling" (2024).

    Documents longer than ``context_length`` are cut into pieces of that length and a rest. Then each piece, longest
    first, goes to the fullest sample with room for it. Nothing else is cut, and the rest of a sample is padded.
    """

    title = "Best-fit-{context_length}"

    context_length: int = 2048

    def _assign(self, sizes: Longs, samples: Longs) -> int:
        return best_fit(sizes, self.context_length, make_lengths(self.context_length), samples)


@dataclass(frozen=True)
class FirstFit(BinPacking):
    """First-fit packing: each document is put into the first sample with room; long ones are cut as in BestFit.

    ``order="longest-first"`` is first-fit decreasing, ``"given"`` packs documents in the given order. ``pool_size`` is
    the buffer of packers that consider some documents at a time; None packs all together.
    """

    context_length: int = 2048
    order: Literal["longest-first", "given"] = "longest-first"
    pool_size: int | None = None

    @property
    def label(self) -> str:
        """Name in tables."""
        pools = "" if self.pool_size is None else f", pools of {self.pool_size}"
        return f"First-fit-{self.context_length}{pools}"

    def _assign(self, sizes: Longs, samples: Longs) -> int:
        return first_fit(sizes, self.context_length, samples)


@dataclass(frozen=True)
class BinnedGreedy(BinPacking):
    """Length-binned greedy packing: samples are filled one after another, from 64 bins of similar lengths.

    Bin k holds entries of ``context_length`` * (k / 64) ** 1.5 tokens and more, in their order. A sample begins with an
    entry of the highest non-empty bin. The next entry comes from the bin for the remaining room, the first that fits
    among 512, or else from the highest bin below. Longer entries are cut into pieces of ``context_length`` and a rest.

    ``pool_size`` entries are packed at a time; None packs all together.
    """

    title = "Binned-greedy-{context_length}"
    order = "given"

    context_length: int = 2048
    pool_size: int | None = None

    def _assign(self, sizes: Longs, samples: Longs) -> int:
        edges = self.context_length * (np.arange(1, BINS) / BINS) ** EXPONENT
        bin_of = np.searchsorted(edges, np.arange(self.context_length + 1), side="right").astype(np.int64)
        return binned_greedy(sizes, self.context_length, bin_of, LOOK_AT, samples)


LongDocuments = Literal["truncate", "fragment"]
"""Policies for a document that is too long: drop its rest, or make further documents of it."""


@dataclass(frozen=True)
class Padded(OneCapacity):
    """One document in each sample, padded, like OLMo-core's padded dataset of fixed sequence length.

    Args:
        context_length: tokens of a sample.
        long_documents: ``"truncate"`` drops what is beyond ``context_length`` tokens, as OLMo-core does;
            ``"fragment"`` cuts the document into samples.

    >>> plan = Padded(4).plan([3, 9])
    >>> plan.documents.tolist(), plan.sizes.tolist()
    ([0, 1], [3, 4])
    """

    title = "Padded-{context_length}"

    context_length: int = 2048
    long_documents: LongDocuments = "truncate"

    def plan_pool(self, lengths: Any) -> Plan:
        """Make a sample of each document, or of each of its pieces."""
        checked = checked_lengths(lengths)
        pieces = _heads_or_pieces(checked, self.context_length, self.long_documents)
        samples = len(pieces[0])
        return Plan(checked, np.full(samples, self.context_length), np.arange(samples + 1), *pieces)


@dataclass(frozen=True)
class Interleaved(OneCapacity):
    """Chunks of several documents in turn, which make one text: OLMo-core's interleaved documents.

    Each document has an equal share of a sample. It is cut into chunks, whose lengths differ by one token at most. A
    sample has the first chunks of its documents, then the second ones, and so on. The end of text of its documents is
    omitted, and follows once, after the last chunk. If no document of a sample ends in it, it has none.

    The last sample has fewer documents if their number does not divide; OLMo-core drops these. A document's last token
    is assumed to be its end of text, as in the output ``composed``.

    Args:
        context_length: tokens of a sample.
        documents_per_sample: documents in a sample, each with ``context_length // documents_per_sample`` tokens.
        chunks_per_document: chunks of a document, 2 or more, and at most its share of tokens.
        long_documents: ``"truncate"`` drops what is beyond a document's share, as OLMo-core does; ``"fragment"`` makes
            documents of their own from it.
        order: order of the documents: ``"shuffled"`` by ``seed``, or ``"given"``, for related documents.
        seed: seed of the order.
        pool_size: consecutive documents planned together, as in :class:`Buckets`.

    >>> plan = Interleaved(8, 2, 2, order="given").plan([4, 3])
    >>> list(zip(plan.documents.tolist(), plan.starts.tolist(), plan.sizes.tolist()))
    [(0, 0, 2), (1, 0, 1), (0, 2, 1), (1, 1, 1), (0, 3, 1)]
    """

    title = "Interleaved-{context_length}"

    context_length: int = 2048
    documents_per_sample: int = 2
    chunks_per_document: int = 4
    long_documents: LongDocuments = "truncate"
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0
    pool_size: int | None = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.documents_per_sample < 2 or self.chunks_per_document < 2:
            raise StageError(
                f"Interleaved has {self.documents_per_sample} documents in a sample and {self.chunks_per_document} "
                "chunks of each: set documents_per_sample and chunks_per_document to 2 or more, or choose 'padded'"
            )
        if self.documents_per_sample * self.chunks_per_document > self.context_length:
            raise StageError(
                f"{self.documents_per_sample} documents with {self.chunks_per_document} chunks each do not fit into a "
                f"sample of {self.context_length:,} tokens: lower documents_per_sample or chunks_per_document"
            )

    def plan_pool(self, lengths: Any) -> Plan:
        """Interleave the chunks of each group of documents."""
        checked = checked_lengths(lengths)
        share = self.context_length // self.documents_per_sample
        entries = _heads_or_pieces(checked, share, self.long_documents)
        order = _in_order(len(entries[0]), self.order, self.seed)
        documents, starts, sizes = _rows(self.documents_per_sample, *(each[order] for each in entries))
        ends = (sizes > 0) & (starts + sizes == checked[documents])
        # [samples, chunks, documents]: the chunks in their order in a sample, and its end of text.
        numbers = np.arange(self.chunks_per_document)[:, None]
        least, more = np.divmod(sizes - ends, self.chunks_per_document)
        chunks = least[:, None] + (numbers < more[:, None])
        begins = starts[:, None] + np.cumsum(chunks, axis=1) - chunks
        # The longest document that ends here gives the end of text, so it has a chunk as well if any does.
        last = np.argmax(np.where(ends, sizes, 0), axis=1)[:, None] == np.arange(self.documents_per_sample)
        chunks = np.concatenate([chunks, (last & ends)[:, None]], axis=1, dtype=np.int64)
        begins = np.concatenate([begins, (starts + sizes - 1)[:, None]], axis=1)
        owners = np.broadcast_to(documents[:, None], chunks.shape)
        filled = chunks > 0
        bounds = np.concatenate([[0], np.cumsum(filled.sum(axis=(1, 2)))]).astype(np.int64)
        pieces = (each[filled] for each in (owners, begins, chunks))
        return Plan(checked, np.full(len(chunks), self.context_length), bounds, *pieces, omitted=1)


@dataclass(frozen=True)
class DatasetDecomposition(Strategy):
    """Decomposition into samples of one piece each, after H. Pouransari et al., "Dataset Decomposition" (2024).

    Each document is cut from its start into as many pieces as possible of the largest capacity, then of the next, and
    so on. The rest, shorter than the smallest capacity, is dropped. With powers of two, these are the buckets of
    OLMo-core's datasets of variable sequence length.
    """

    title = "Decomposition"

    capacities: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)

    def plan_pool(self, lengths: Any) -> Plan:
        """Cut each document by itself."""
        checked = checked_lengths(lengths)
        left, found = checked.copy(), []
        for capacity in self.capacities[::-1]:
            counts, rest = np.divmod(left, capacity)
            documents = np.repeat(np.arange(len(checked)), counts)
            within = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)
            starts = (checked - left)[documents] + within * capacity
            found.append((documents, starts, np.full(len(documents), capacity)))
            left = rest
        documents, starts, sizes = (np.concatenate(each) for each in zip(*found[::-1], strict=True))
        return Plan(checked, sizes, np.arange(len(sizes) + 1), documents, starts, sizes)


def _in_order(documents: int, order: str, seed: int) -> Longs:
    return np.arange(documents) if order == "given" else _shuffled(documents, seed)


@lru_cache(maxsize=1)  # comparisons request the same order repeatedly
def _shuffled(documents: int, seed: int) -> Longs:
    order = np.argsort(keyed_hash(map(str, range(documents)), "concatenate", seed), kind="stable")
    order.flags.writeable = False
    return order


def _chopped(lengths: Longs, order: Longs, capacity: int) -> Plan:
    order = order[lengths[order] > 0]
    ends = np.cumsum(lengths[order])
    total = int(ends[-1]) if len(ends) else 0
    # Both arrays are sorted, so a stable sort only merges them; union1d would hash them.
    stops = np.sort(np.concatenate([ends, np.arange(capacity, total, capacity)]), kind="stable")
    stops = stops[np.diff(stops, prepend=0) > 0]
    begins = np.concatenate([[0], stops[:-1]])[: len(stops)]
    places = np.searchsorted(ends, begins, side="right")
    documents = order[places]
    starts = begins - (ends - lengths[order])[places]
    samples = -(-total // capacity)
    bounds = np.searchsorted(begins, capacity * np.arange(samples + 1))
    return Plan(lengths, np.full(samples, capacity), bounds, documents, starts, stops - begins)


def _heads_or_pieces(lengths: Longs, most: int, long_documents: LongDocuments) -> tuple[Longs, Longs, Longs]:
    """Return document, start and size of the first ``most`` tokens of each document, or of all its pieces."""
    if long_documents == "fragment":
        return cut_long(lengths, most)
    documents = np.flatnonzero(lengths)
    return documents, np.zeros(len(documents), np.int64), np.minimum(lengths[documents], most)


def _rows(width: int, *arrays: Longs) -> list[Longs]:
    """Return arrays as rows of ``width`` values, filled up with zeros: int64 [rows, width]."""
    rows = -(-len(arrays[0]) // width)
    return [np.pad(each, (0, rows * width - len(each))).reshape(rows, width) for each in arrays]


def cut_long(lengths: Longs, most: int) -> tuple[Longs, Longs, Longs]:
    """Cut documents into pieces of ``most`` tokens and a rest, and return document, start and size of each."""
    counts = -(-lengths // most)
    documents = np.repeat(np.arange(len(lengths)), counts)
    starts = most * (np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts))
    return documents, starts, np.minimum(lengths[documents] - starts, most)
