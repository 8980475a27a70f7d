"""What buckets are compared with: concatenation, bin packing, and the decomposition of documents."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from longcrawl.composition.plan import Longs, Plan, Strategy, checked_lengths, join_plans, plan_of_pieces
from longcrawl.core.keyed_hash import keyed_hash

BINS, EXPONENT, LOOK_AT = 64, 1.5, 512


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
