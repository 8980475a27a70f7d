"""What buckets are compared with: concatenation, bin packing, and the decomposition of documents."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from longcrawl.composition.lengths import checked_lengths
from longcrawl.composition.plan import Plan, join_plans, plan_of_pieces
from longcrawl.composition.strategies import Longs, Strategy, cut_pools
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.errors import StageError

__all__ = ["BestFit", "DatasetDecomposition", "FirstFit", "FixedLength", "MultiBucket", "OneCapacity", "cut_long"]


class OneCapacity(Strategy):
    """A strategy whose samples are all of one length."""

    context_length: int

    @property
    def capacities(self) -> tuple[int, ...]:  # type: ignore[override]  # it is one field
        """The one capacity."""
        return (self.context_length,)


@dataclass(frozen=True)
class FixedLength(OneCapacity):
    """Concatenate all documents and cut every ``context_length`` tokens; only the last sample is padded.

    ``order`` is that of the documents: ``"shuffled"`` by ``seed``, as the paper's "randomly concatenated", or
    ``"given"``.
    """

    context_length: int = 2048
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"Fixed-{self.context_length}"

    def plan_pool(self, lengths: Any) -> Plan:
        """Cut the documents, one after the other."""
        checked = checked_lengths(lengths)
        return _chopped(checked, _in_order(len(checked), self.order, self.seed), self.context_length)

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together; each pool's last sample is padded."""
        return join_plans(plans)


@dataclass(frozen=True)
class MultiBucket(Strategy):
    """The paper's simple multi-bucket baseline: documents go to a bucket by length, and each bucket is concatenated.

    Documents of up to 2,048 tokens are concatenated and cut every 2,048, those of more and up to 4,096 every 4,096, and
    so on; the largest bucket takes all longer ones too. ``order`` is as for :class:`FixedLength`.
    """

    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    order: Literal["shuffled", "given"] = "shuffled"
    seed: int = 0

    @property
    def label(self) -> str:
        """What tables call it."""
        return "Multi-Bucket"

    def plan_pool(self, lengths: Any) -> Plan:
        """Cut the documents of each bucket, one after the other."""
        checked = checked_lengths(lengths)
        buckets = np.minimum(np.searchsorted(self.capacities, checked), len(self.capacities) - 1)
        order = _in_order(len(checked), self.order, self.seed)
        made = [
            _chopped(checked, order[buckets[order] == bucket], capacity)
            for bucket, capacity in enumerate(self.capacities)
        ]
        pieces = np.cumsum([0] + [len(plan.sizes) for plan in made])
        bounds = [plan.bounds[:-1] + first for plan, first in zip(made, pieces[:-1], strict=True)]
        names = ("documents", "starts", "sizes")
        return Plan(
            checked,
            np.concatenate([plan.capacities for plan in made]),
            np.concatenate([*bounds, pieces[-1:]]),
            *(np.concatenate([getattr(plan, name) for plan in made]) for name in names),
        )

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together; the last sample of each bucket of a pool is padded."""
        return join_plans(plans).in_buckets()


@dataclass(frozen=True)
class BestFit(OneCapacity):
    """Best-fit packing of H. Ding et al., "Fewer Truncations Improve Language Modeling" (2024).

    Documents longer than ``context_length`` are cut into pieces of it; then each piece, the longest first, goes to the
    fullest sample that has room for it. Nothing else is cut, what is left of a sample is padded.
    """

    context_length: int = 2048

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"Best-fit-{self.context_length}"

    def plan_pool(self, lengths: Any) -> Plan:
        """Pack these documents."""
        from longcrawl.composition._bucket_kernels import make_lengths
        from longcrawl.composition.packing_kernels import best_fit

        checked = checked_lengths(lengths)
        documents, starts, sizes = _longest_first(*cut_long(checked, self.context_length))
        numbers = np.empty(len(sizes), np.int64)
        count = best_fit(sizes, self.context_length, make_lengths(self.context_length), numbers)
        return plan_of_pieces(checked, numbers, np.full(count, self.context_length), (documents, starts, sizes))

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together."""
        return join_plans(plans)


@dataclass(frozen=True)
class FirstFit(OneCapacity):
    """Each document into the first sample that has room for it; longer ones are cut as in :class:`BestFit`.

    ``order="longest-first"`` is first-fit decreasing, ``"given"`` packs documents as they come. ``pool_size`` is the
    buffer of packers that look at some documents at a time; None packs all together.
    """

    context_length: int = 2048
    order: Literal["longest-first", "given"] = "longest-first"
    pool_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool_size is not None and self.pool_size < 1:
            raise StageError(f"FirstFit.pool_size is a number of documents, 1 or more, or None, got {self.pool_size}")

    @property
    def label(self) -> str:
        """What tables call it."""
        pools = "" if self.pool_size is None else f", pools of {self.pool_size}"
        return f"First-fit-{self.context_length}{pools}"

    def pools(self, lengths: Longs) -> list[Longs]:
        """Cut the documents into pools of ``pool_size``."""
        return [lengths] if self.pool_size is None else cut_pools(lengths, self.pool_size)

    def plan_pool(self, lengths: Any) -> Plan:
        """Pack these documents."""
        from longcrawl.composition.packing_kernels import first_fit

        checked = checked_lengths(lengths)
        pieces = cut_long(checked, self.context_length)
        documents, starts, sizes = pieces if self.order == "given" else _longest_first(*pieces)
        numbers = np.empty(len(sizes), np.int64)
        count = first_fit(sizes, self.context_length, numbers)
        return plan_of_pieces(checked, numbers, np.full(count, self.context_length), (documents, starts, sizes))

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together."""
        return join_plans(plans)


@dataclass(frozen=True)
class DatasetDecomposition(Strategy):
    """Each sample a piece of one document, after H. Pouransari et al., "Dataset Decomposition" (2024).

    From its start on, a document is cut into as many pieces of the largest capacity as it has, then of the next, and so
    on; the rest, shorter than the smallest, is dropped. This is our reading of the paper, not its code.
    """

    capacities: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)

    @property
    def label(self) -> str:
        """What tables call it."""
        return "Decomposition"

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

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together."""
        return join_plans(plans).in_buckets()


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
    """Cut documents into pieces of ``most`` tokens and a rest; give document, start and size of each."""
    counts = -(-lengths // most)
    documents = np.repeat(np.arange(len(lengths)), counts)
    starts = most * (np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts))
    return documents, starts, np.minimum(lengths[documents] - starts, most)


def _longest_first(documents: Longs, starts: Longs, sizes: Longs) -> tuple[Longs, Longs, Longs]:
    order = np.argsort(-sizes, kind="stable")
    return documents[order], starts[order], sizes[order]
