"""Samples of a composed dataset as rows of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from longcrawl.loading._epoch_order import EpochOrder
from longcrawl.loading._packed_rows import Batch, Positions
from longcrawl.loading._shard_buckets import kernels
from longcrawl.loading.composed_phases import BucketStock
from longcrawl.loading.packing_plan import Longs

__all__ = ["ComposedDataset", "DeliveredBucket", "SampleBucket", "assemble_step"]


class Samples(Protocol):
    """Some samples of one bucket."""

    @property
    def tokens(self) -> npt.NDArray[Any]:
        """Unsigned [samples, capacity]; after its pieces a sample has padding."""

    @property
    def loss_mask(self) -> npt.NDArray[np.bool_]:
        """[samples, capacity]: False on padding, overlaps and what is masked."""

    @property
    def piece_sizes(self) -> Sequence[Longs]:
        """For each sample the tokens of its pieces, int64, in their order, without padding."""


class SampleBucket(Protocol):
    """The samples of one split, domain and capacity."""

    @property
    def split(self) -> str:
        """The name of the split."""

    @property
    def domain(self) -> str:
        """The name of the domain, "" where there are none."""

    @property
    def capacity(self) -> int:
        """Tokens of each sample, padding included."""

    @property
    def identity(self) -> str:
        """A digest of the data."""

    @property
    def padding(self) -> int:
        """The token id of padding."""

    def __len__(self) -> int:
        """Count the samples."""

    def read(self, samples: Longs, /) -> Samples:
        """Read samples by their numbers, in any order."""


@runtime_checkable
class ComposedDataset(Protocol):
    """What :func:`longcrawl.formats.composed.open_composed` gives, or anything with buckets like those."""

    @property
    def buckets(self) -> Sequence[SampleBucket]:
        """All buckets, of all splits."""


@dataclass(frozen=True, eq=False)
class DeliveredBucket:
    """A bucket, and how its samples are delivered.

    Attributes:
        bucket: the samples.
        epochs: how often each is delivered.
        seed: of their order, which is another in each epoch; None for that of the bucket.

    """

    bucket: SampleBucket
    epochs: int
    seed: int | None

    @property
    def stock(self) -> BucketStock:
        """What it has to give."""
        return BucketStock(self.bucket.domain, self.bucket.capacity, self.epochs * len(self.bucket))

    def read(self, places: Longs) -> Samples:
        """Read what is delivered at these places."""
        return self.bucket.read(self._order(places))

    @cached_property
    def _order(self) -> EpochOrder:
        return EpochOrder(len(self.bucket), self.seed, self.stock.name)


def assemble_step(
    buckets: Mapping[int, DeliveredBucket],
    picks: npt.NDArray[np.uint8],
    places: Longs,
    capacity: int,
    padding: int,
    positions: Positions,
) -> Batch:
    """Make a batch of samples of one capacity.

    Args:
        buckets: by the numbers that are picked; a number that is not there is a row of padding.
        picks: uint8 [rows], the bucket of each row.
        places: int64 [rows], where each is in its bucket's order.
        capacity: of all of them.
        padding: token id.
        positions: "reset" in each piece, or "continuous".

    """
    out = np.empty((4, len(picks), capacity), np.int64)
    counts, filled = np.zeros((2, len(picks)), np.int64)
    lengths = [np.array([capacity], np.int64)] * len(picks)
    reset = int(positions == "reset")
    for pick in set(picks.tolist()) & buckets.keys():
        rows = np.flatnonzero(picks == pick)
        read = buckets[pick].read(places[rows])
        for row, sizes in zip(rows.tolist(), read.piece_sizes, strict=True):
            lengths[row], counts[row] = sizes, len(sizes)
        pieces = _pieces(rows, counts[rows], np.concatenate(read.piece_sizes), capacity)
        filled[rows] = np.bincount(pieces[6], pieces[1], len(rows))
        flags = np.ascontiguousarray(read.loss_mask).reshape(-1)
        kernels().fill_pieces(np.ascontiguousarray(read.tokens).reshape(-1), flags, 0, pieces[:6], reset, -1, out)
    kernels().fill_padding(filled, counts, padding, reset, out)
    for row in np.flatnonzero((filled < capacity) & (counts > 0)).tolist():
        lengths[row] = np.append(lengths[row], capacity - filled[row])
    named = dict(zip(("input_ids", "labels", "position_ids", "doc_ids"), out, strict=True))
    return {**named, "n_tokens": filled, "seq_lengths": lengths}


def _pieces(rows: Longs, counts: Longs, sizes: Longs, capacity: int) -> npt.NDArray[np.int64]:
    """Say where the pieces of samples that were read go, as the kernel ``fill_pieces`` takes it.

    Args:
        rows: int64 [samples], the row of each.
        counts: int64 [samples], the pieces of each.
        sizes: int64 [pieces], the tokens of each.
        capacity: how far it is from one sample to the next.

    Returns:
        int64 [7, pieces]; the last is the sample of each.

    """
    samples = np.repeat(np.arange(len(rows)), counts)
    firsts = (np.cumsum(counts) - counts)[samples]
    before = np.cumsum(sizes) - sizes
    place = before - before[firsts]
    untrained = np.ones(len(sizes), np.int64)
    return np.stack(
        [samples * capacity + place, sizes, untrained, rows[samples], place, np.arange(len(sizes)) - firsts, samples]
    )
