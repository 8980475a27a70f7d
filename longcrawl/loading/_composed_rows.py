"""Samples of a composed dataset as rows of a batch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from longcrawl.formats.buckets.spec import StoredSamples
from longcrawl.loading._epoch_order import EpochOrder
from longcrawl.loading._packed_rows import Batch, Positions
from longcrawl.loading._shard_buckets import kernels
from longcrawl.loading.composed_phases import BucketStock
from longcrawl.loading.packing_plan import Longs

__all__ = ["ComposedDataset", "DeliveredBucket", "SampleBucket", "assemble_step"]


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

    def stored(self, samples: Longs, /) -> Iterable[StoredSamples]:
        """Return samples by their numbers, in any order, as they are stored."""


@runtime_checkable
class ComposedDataset(Protocol):
    """What :func:`longcrawl.formats.buckets.spec.open_composed` gives, or anything with buckets like those."""

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

    def stored(self, places: Longs) -> Iterable[StoredSamples]:
        """Return what is delivered at these places, as it is stored."""
        return self.bucket.stored(self._order(places))

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
    reset, moved = int(positions == "reset"), list[Longs]()
    for pick in set(picks.tolist()) & buckets.keys():
        rows = np.flatnonzero(picks == pick)
        found = buckets[pick].stored(places[rows])
        moved += [_move(each, rows[each.asked], reset, out, counts, filled) for each in found]
    kernels().fill_padding(filled, counts, padding, reset, out)
    named = dict(zip(("input_ids", "labels", "position_ids", "doc_ids"), out, strict=True))
    return {**named, "n_tokens": filled, "seq_lengths": _lengths(moved, counts, capacity - filled)}


def _move(stored: StoredSamples, rows: Longs, reset: int, out: Longs, counts: Longs, filled: Longs) -> Longs:
    """Move samples into rows of a batch, padding left out; give their pieces as the kernel ``fill_pieces`` has them."""
    _, pieces = kernels().lay_out(stored.bounds, stored.sizes, stored.samples, rows, counts, filled)
    pieces[0], pieces[2] = np.repeat(stored.starts, counts[rows]) + pieces[4], 1
    kernels().fill_pieces(stored.tokens, stored.flags, 0, pieces, reset, -1, out)
    return np.asarray(pieces)


def _lengths(moved: Sequence[Longs], counts: Longs, padded: Longs) -> list[Longs]:
    """Return the lengths of the pieces of each row, the padding's as the last where there is some."""
    stops = np.cumsum(counts + (padded > 0))
    starts, flat = np.concatenate([[0], stops[:-1]]), np.empty(int(stops[-1]), np.int64)
    flat[(stops - 1)[padded > 0]] = padded[padded > 0]
    for pieces in moved:
        flat[starts[pieces[3]] + pieces[5]] = pieces[1]
    return [flat[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
