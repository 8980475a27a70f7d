"""Multi-bucket data composition: every document as whole as can be, in the smallest bucket that holds it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from longcrawl.composition.plan import Plan, Strategy, checked_lengths, join_plans
from longcrawl.errors import StageError


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

    Args:
        capacities: of the buckets, in tokens, ascending.
        padding_threshold: P, the share of a sample that may be padding.
        planner: ``"algorithm-1"`` or ``"exact-fill"``.
        order: of samples within a bucket: ``"shuffled"`` by ``seed``, or ``"planned"``, which goes from samples of few
            long documents to those of many short ones.
        seed: of the shuffle.
        pool_size: how many consecutive documents are planned together; the last pool takes up to twice as many. Pools
            can be planned at the same time, and ``plan_pool`` holds one. ``plan`` and ``join`` hold the plan of all
            documents, whatever the size of pools.

    >>> plan = Buckets([8, 16], padding_threshold=0.5).plan([20, 9, 5, 5, 2])
    >>> plan.capacities.tolist(), plan.tokens.tolist()
    ([8, 8, 16, 16], [5, 4, 16, 16])
    """

    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    padding_threshold: float = 0.05
    planner: Literal["algorithm-1", "exact-fill"] = "algorithm-1"
    order: Literal["shuffled", "planned"] = "shuffled"
    seed: int = 0
    pool_size: int = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.padding_threshold <= 1:
            raise StageError(
                f"Buckets.padding_threshold is a share of a bucket, from 0 to 1, got {self.padding_threshold}"
            )

    @property
    def label(self) -> str:
        """What tables call it."""
        return "Buckets" if self.planner == "algorithm-1" else "Buckets, exact-fill"

    def plan_pool(self, lengths: Any) -> Plan:
        """Plan these documents together, whatever their number; samples stand in the order in which they were made."""
        from longcrawl.composition._plan_kernels import Stock, fill_buckets, make_lengths, make_placed

        checked = checked_lengths(lengths)
        largest = self.capacities[-1]
        # A sample begins with a document's last piece or is a chunk of a long one; each may end with one more chunk.
        samples = int(np.count_nonzero(checked)) + int((checked // largest).sum())
        placed = make_placed(samples + len(checked), samples)
        first, following = np.full(largest + 1, -1, np.int64), np.empty(len(checked), np.int64)
        stock = Stock(first, following, np.zeros(len(checked), np.int64), make_lengths(largest))
        capacities, exact = np.array(self.capacities, np.int64), self.planner == "exact-fill"
        fill_buckets(checked, capacities, float(self.padding_threshold), exact, stock, placed)
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
