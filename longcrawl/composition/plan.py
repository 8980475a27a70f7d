"""A composition plan: which tokens of which document go to which training sample. No token is moved to make one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.keyed_hash import keyed_hash

__all__ = [
    "PIECE_SCHEMA",
    "SAMPLE_SCHEMA",
    "PackingPlan",
    "Plan",
    "join_plans",
    "plan_of_pieces",
]

Longs = npt.NDArray[np.int64]

SAMPLE_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("bucket", "sample", "first_piece", "pieces", "tokens", "padding")]
)
"""``bucket`` is the capacity in tokens, ``sample`` counts within it, ``first_piece`` is a row of the pieces."""

PIECE_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("bucket", "sample", "document", "start", "length")]
    + [(name, pa.bool_()) for name in ("head", "tail")]
)
"""``document`` counts the lengths that were planned; ``head`` has its first token and ``tail`` its last."""


class PackingPlan(Protocol):
    """Samples as pieces of documents; all arrays are int64, and a piece has a token at least."""

    @property
    def bounds(self) -> Longs:
        """[samples + 1]: pieces ``bounds[s]`` to ``bounds[s + 1]`` are those of sample s, in this order."""

    @property
    def documents(self) -> Longs:
        """[pieces], the number of each piece's document among the lengths."""

    @property
    def starts(self) -> Longs:
        """[pieces], the first token of each within its document."""

    @property
    def sizes(self) -> Longs:
        """[pieces], tokens of each."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Samples, the pieces of documents in each, and the lengths that were planned; all arrays are int64.

    Samples stand bucket by bucket, the smallest capacity first. A sample is its pieces end to end and then padding.

    >>> import longcrawl as lc
    >>> plan = lc.tokens.Buckets([4, 8], order="planned").plan([7, 3, 1, 1])
    >>> plan.samples.to_pylist()[1]
    {'bucket': 8, 'sample': 0, 'first_piece': 2, 'pieces': 2, 'tokens': 8, 'padding': 0}
    >>> plan.pieces.to_pylist()[2]
    {'bucket': 8, 'sample': 0, 'document': 0, 'start': 0, 'length': 7, 'head': True, 'tail': True}
    """

    lengths: Longs
    """[documents], tokens of each; 0 is an empty document, which is in no sample."""
    capacities: Longs
    """[samples], tokens of each with its padding."""
    bounds: Longs
    """[samples + 1]: pieces ``bounds[s]`` to ``bounds[s + 1]`` are those of sample s."""
    documents: Longs
    """[pieces]"""
    starts: Longs
    """[pieces], the first token of each within its document."""
    sizes: Longs
    """[pieces], tokens of each."""

    def __len__(self) -> int:
        return len(self.capacities)

    @property
    def tokens(self) -> Longs:
        """How many tokens of documents each sample has: int64 [samples]."""
        sums = np.concatenate([[0], np.cumsum(self.sizes)])
        return np.asarray(np.diff(sums[self.bounds]), np.int64)

    @property
    def samples(self) -> pa.Table:
        """A row of ``SAMPLE_SCHEMA`` per sample."""
        tokens = self.tokens
        columns = [self.capacities, self._numbers(), self.bounds[:-1], np.diff(self.bounds), tokens]
        return pa.table([*columns, self.capacities - tokens], schema=SAMPLE_SCHEMA)

    @property
    def pieces(self) -> pa.Table:
        """A row of ``PIECE_SCHEMA`` per piece, in the order of the samples."""
        counts = np.diff(self.bounds)
        of_samples = [np.repeat(each, counts) for each in (self.capacities, self._numbers())]
        tail = self.starts + self.sizes == self.lengths[self.documents]
        columns = [*of_samples, self.documents, self.starts, self.sizes, self.starts == 0, tail]
        return pa.table(columns, schema=PIECE_SCHEMA)

    def in_buckets(self, shuffled_by: int | None = None) -> "Plan":
        """Return the plan with its samples bucket by bucket, in each as they stand or shuffled by a seed.

        A sample's place comes from a keyed hash of its first piece, document and start, which no other sample has; two
        that share a hash stay as they stand.
        """
        if shuffled_by is None:
            return self._taken(np.argsort(self.capacities, kind="stable"))
        first = self.bounds[:-1]
        names = zip(self.documents[first].tolist(), self.starts[first].tolist(), strict=True)
        keys = keyed_hash((f"{document}:{start}" for document, start in names), "samples", shuffled_by)
        return self._taken(np.lexsort((keys, self.capacities)))

    def _numbers(self) -> Longs:
        """Count each sample within its bucket; the samples of a bucket stand together."""
        starts = np.flatnonzero(np.diff(self.capacities, prepend=-1))
        counts = np.diff(np.append(starts, len(self)))
        return np.arange(len(self), dtype=np.int64) - np.repeat(starts, counts)

    def _taken(self, order: npt.NDArray[np.intp]) -> "Plan":
        """Return the plan with its samples in this order."""
        counts = np.diff(self.bounds)[order]
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        pieces = np.arange(bounds[-1]) + np.repeat(self.bounds[:-1][order] - bounds[:-1], counts)
        moved = {name: getattr(self, name)[pieces] for name in ("documents", "starts", "sizes")}
        return replace(self, capacities=self.capacities[order], bounds=bounds, **moved)


def plan_of_pieces(lengths: Longs, numbers: Longs, capacities: Longs, pieces: tuple[Longs, Longs, Longs]) -> Plan:
    """Make a plan out of pieces in any order: document, start and size of each, and the number of its sample."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(capacities) + 1)).astype(np.int64)
    return Plan(lengths, capacities, bounds, *(each[order] for each in pieces))


def join_plans(plans: Iterable[Plan]) -> Plan:
    """Put plans of consecutive documents together: those of the second are counted on from those of the first.

    Args:
        plans: at least one.

    """
    parts = list(plans)
    documents = np.cumsum([0] + [len(plan.lengths) for plan in parts])
    pieces = np.cumsum([0] + [len(plan.sizes) for plan in parts])
    shifted = [plan.documents + first for plan, first in zip(parts, documents[:-1], strict=True)]
    bounds = [plan.bounds[:-1] + first for plan, first in zip(parts, pieces[:-1], strict=True)]
    return Plan(
        np.concatenate([plan.lengths for plan in parts]),
        np.concatenate([plan.capacities for plan in parts]),
        np.concatenate([*bounds, pieces[-1:]]),
        np.concatenate(shifted),
        np.concatenate([plan.starts for plan in parts]),
        np.concatenate([plan.sizes for plan in parts]),
    )
