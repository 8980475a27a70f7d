"""Strategies of composition: the buckets of "Bucket Pre-training is All You Need", and what they are compared with.

These are concatenation, bin packing, and the decomposition of documents.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from longcrawl.composition.plan import Longs, Plan, Strategy, checked_lengths, join_plans, plan_of_pieces
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.errors import StageError

BINS, EXPONENT, LOOK_AT = 64, 1.5, 512

Planner = Literal["algorithm-1", "exact-fill", "in-order", "interleaved"]
"""How :class:`Buckets` chooses documents."""
KEEP_ORDER = ("in-order", "interleaved")
"""The planners whose samples are of documents that follow each other."""


@dataclass(frozen=True)
class Buckets(Strategy):
    """Algorithm 1 of H. Liu et al., "Bucket Pre-training is All You Need" (2024).

    The text leaves things open. We read it so:

    * line 3, "select bucket from B to fit d1": the smallest capacity that holds the longest document left; the largest
      where none does.
    * lines 4 to 6, "for each document, if it fits, add it": the longest that fits goes next, until none does.
    * lines 7 to 9, "else if bucket is empty": only the first document can come there, one that is longer than the
      largest bucket. It fills the bucket, and what is left of it is put back, in front of documents of its length. The
      text forgets to set b to 0, and to sort again.
    * line 12, "r = capacity - b": b has been lowered to the space left, so this would be the space used, and the chunk
      of line 14 would not fit. We take the comment, "remaining space": r = b.
    * line 13, "r / capacity > P": a gap of more than the share P of its bucket is filled, a smaller one is padded. 0
      pads only when no document is left, 1 never cuts a document to fill a gap.
    * line 14, "chunk from shortest document": the shortest that is left. It is longer than the gap, or it would have
      been placed, so its first r tokens fill it and the rest is put back. With no document left, the gap is padded.

    Among documents of one length what was cut last comes first, then the order given.

    ``planner="exact-fill"`` differs in the last documents of a sample: where two or three are left that fill it to the
    last token, they are taken instead of the longest that fits. On lengths like those of a web crawl, with P = 1, that
    leaves less padding at the same truncation. Less padding is fewer samples, so r_cat rises a little; and on few, long
    documents it may pad and cut more. Both are measured by ``lc.compose``; docs/composition.md has figures.

    ``planner="in-order"`` keeps documents that follow each other together: a sample begins with the first document
    left and goes on with those that fit, until it has passed over 32. It has the smallest capacity that leaves no
    larger gap than P, or else that with the smallest share of a gap, which a chunk of the first document left fills;
    the next sample goes on with it. It is for documents that :class:`longcrawl.long.Related` has put in order.

    ``planner="interleaved"`` makes the same samples, and puts the documents of one between the chunks of its longest,
    after C. Gao et al., "NExtLong" (2025): what a chunk continues is behind texts that are related and do not help. The
    chunks are as few as have ``chunk_tokens`` at most, of equal length; the other documents stay in order and whole,
    spread by tokens. Such a sample is one text, see :attr:`Plan.joined`, and no document of it is
    cut. One without a longer document than ``chunk_tokens`` is as "in-order" makes it. The paper differs: its negatives
    are chunks, retrieved for each chunk of a document at random, also behind the last; a chunk may be in many samples.
    Here each token is in one.

    Args:
        capacities: of the buckets, in tokens, ascending.
        padding_threshold: P, the share of a sample that may be padding.
        planner: ``"algorithm-1"``, ``"exact-fill"``, ``"in-order"`` or ``"interleaved"``.
        order: of samples within a bucket: ``"shuffled"`` by ``seed``, or ``"planned"``, which goes from samples of few
            long documents to those of many short ones.
        seed: of the shuffle.
        pool_size: how many consecutive documents are planned together; the last pool takes up to twice as many. Pools
            can be planned at the same time, and ``plan_pool`` holds one. ``plan`` and ``join`` hold the plan of all
            documents, whatever the size of pools.
        chunk_tokens: most tokens of a chunk, for "interleaved".

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
                f"Buckets.padding_threshold is a share of a bucket, from 0 to 1, got {self.padding_threshold}"
            )
        if self.planner == "interleaved" and not 0 < self.chunk_tokens < self.capacities[-1]:
            raise StageError(
                f"chunk_tokens of the planner 'interleaved' is {self.chunk_tokens:,}: set it to less than the largest "
                f"capacity, {self.capacities[-1]:,}, as no document of a sample has two chunks else"
            )

    @property
    def label(self) -> str:
        """What tables call it."""
        return "Buckets" if self.planner == "algorithm-1" else f"Buckets, {self.planner}"

    def plan_pool(self, lengths: Any) -> Plan:
        """Plan these documents together, whatever their number; samples stand in the order in which they were made."""
        from longcrawl.composition._order_kernels import fill_in_order, interleave
        from longcrawl.composition._plan_kernels import Stock, fill_buckets, make_lengths, make_placed

        checked = checked_lengths(lengths)
        largest = self.capacities[-1]
        # A sample begins with a document's last piece or is a chunk of a long one; each may end with one more chunk.
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
        """Put the plans of consecutive pools together, with the samples of each bucket in their final order."""
        return join_plans(plans).in_buckets(self.seed if self.order == "shuffled" else None)


class OneCapacity(Strategy):
    """A strategy whose samples are all of one length."""

    context_length: int

    @property
    def capacities(self) -> tuple[int, ...]:  # type: ignore[override]  # it is one field
        """The one capacity."""
        return (self.context_length,)

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together."""
        return join_plans(plans)


@dataclass(frozen=True)
class FixedLength(OneCapacity):
    """Concatenate all documents and cut every ``context_length`` tokens; only the last sample is padded.

    ``order`` is that of the documents: ``"shuffled"`` by ``seed``, as the paper's "randomly concatenated", or
    ``"given"``.
    """

    title = "Fixed-{context_length}"

    context_length: int = 2048
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0

    def plan_pool(self, lengths: Any) -> Plan:
        """Cut the documents, one after the other."""
        checked = checked_lengths(lengths)
        return _chopped(checked, _in_order(len(checked), self.order, self.seed), self.context_length)


@dataclass(frozen=True)
class MultiBucket(Strategy):
    """The paper's simple multi-bucket baseline: documents go to a bucket by length, and each bucket is concatenated.

    Documents of up to 2,048 tokens are concatenated and cut every 2,048, those of more and up to 4,096 every 4,096, and
    so on; the largest bucket takes all longer ones too. The last sample of each bucket is padded. ``order`` is as for
    :class:`FixedLength`.
    """

    title = "Multi-Bucket"

    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0

    def plan_pool(self, lengths: Any) -> Plan:
        """Cut the documents of each bucket, one after the other."""
        checked = checked_lengths(lengths)
        buckets = np.minimum(np.searchsorted(self.capacities, checked), len(self.capacities) - 1)
        order = _in_order(len(checked), self.order, self.seed)
        made = (
            _chopped(checked, order[buckets[order] == bucket], capacity)
            for bucket, capacity in enumerate(self.capacities)
        )
        return join_plans(made, of_same_documents=True)


class BinPacking(OneCapacity):
    """A strategy that cuts only documents longer than a sample, into pieces of it, and pads what is left of samples."""

    order: Literal["longest-first", "given"] = "longest-first"

    @abstractmethod
    def _assign(self, sizes: Longs, samples: Longs) -> int:
        """Write the sample of each piece, and return how many samples there are."""

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

    Documents longer than ``context_length`` are cut into pieces of it; then each piece, the longest first, goes to the
    fullest sample that has room for it. Nothing else is cut, what is left of a sample is padded.
    """

    title = "Best-fit-{context_length}"

    context_length: int = 2048

    def _assign(self, sizes: Longs, samples: Longs) -> int:
        from longcrawl.composition._plan_kernels import best_fit, make_lengths

        return best_fit(sizes, self.context_length, make_lengths(self.context_length), samples)


@dataclass(frozen=True)
class FirstFit(BinPacking):
    """Each document into the first sample that has room for it; longer ones are cut as in :class:`BestFit`.

    ``order="longest-first"`` is first-fit decreasing, ``"given"`` packs documents as they come. ``pool_size`` is the
    buffer of packers that look at some documents at a time; None packs all together.
    """

    context_length: int = 2048
    order: Literal["longest-first", "given"] = "longest-first"
    pool_size: int | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        pools = "" if self.pool_size is None else f", pools of {self.pool_size}"
        return f"First-fit-{self.context_length}{pools}"

    def _assign(self, sizes: Longs, samples: Longs) -> int:
        from longcrawl.composition._plan_kernels import first_fit

        return first_fit(sizes, self.context_length, samples)


@dataclass(frozen=True)
class BinnedGreedy(BinPacking):
    """Length-binned greedy packing: samples are filled one after the other, from 64 bins of like lengths.

    Bin k holds entries of ``context_length`` * (k / 64) ** 1.5 tokens and more, so short ones are separated better.
    A sample begins with an entry of the highest bin that has one. Its room is then filled with the first entry that
    fits of the bin that the room is in, 512 being looked at, or else of the highest bin below. Entries longer than
    ``context_length`` are cut into pieces of it. In a bin, entries keep their order.

    ``pool_size`` entries are packed at a time; None packs all together.
    """

    title = "Binned-greedy-{context_length}"
    order = "given"

    context_length: int = 2048
    pool_size: int | None = None

    def _assign(self, sizes: Longs, samples: Longs) -> int:
        from longcrawl.composition._plan_kernels import binned_greedy

        edges = self.context_length * (np.arange(1, BINS) / BINS) ** EXPONENT
        bin_of = np.searchsorted(edges, np.arange(self.context_length + 1), side="right").astype(np.int64)
        return binned_greedy(sizes, self.context_length, bin_of, LOOK_AT, samples)


@dataclass(frozen=True)
class DatasetDecomposition(Strategy):
    """Each sample a piece of one document, after H. Pouransari et al., "Dataset Decomposition" (2024).

    From its start on, a document is cut into as many pieces of the largest capacity as it has, then of the next, and so
    on; the rest, shorter than the smallest, is dropped. This is our reading of the paper, not its code.
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


@lru_cache(maxsize=1)
def _shuffled(documents: int, seed: int) -> Longs:
    """Return the numbers of documents in random order; remembered, since comparisons ask for the same one each time."""
    order = np.argsort(keyed_hash(map(str, range(documents)), "concatenate", seed), kind="stable")
    order.flags.writeable = False
    return order


def _chopped(lengths: Longs, order: Longs, capacity: int) -> Plan:
    """Concatenate some documents in this order and cut every ``capacity`` tokens."""
    order = order[lengths[order] > 0]
    ends = np.cumsum(lengths[order])
    total = int(ends[-1]) if len(ends) else 0
    # Both are sorted, so a stable sort only merges them; union1d would hash them.
    stops = np.sort(np.concatenate([ends, np.arange(capacity, total, capacity)]), kind="stable")
    stops = stops[np.diff(stops, prepend=0) > 0]
    begins = np.concatenate([[0], stops[:-1]])[: len(stops)]
    places = np.searchsorted(ends, begins, side="right")
    documents = order[places]
    starts = begins - (ends - lengths[order])[places]
    samples = -(-total // capacity)
    bounds = np.searchsorted(begins, capacity * np.arange(samples + 1))
    return Plan(lengths, np.full(samples, capacity), bounds, documents, starts, stops - begins)


def cut_long(lengths: Longs, most: int) -> tuple[Longs, Longs, Longs]:
    """Cut documents into pieces of ``most`` tokens and a rest; return document, start and size of each."""
    counts = -(-lengths // most)
    documents = np.repeat(np.arange(len(lengths)), counts)
    starts = most * (np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts))
    return documents, starts, np.minimum(lengths[documents] - starts, most)
