"""Samples as rows of a batch: tokens, what is trained on, positions and documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from longcrawl.formats.buckets.spec import StoredSamples
from longcrawl.loading._shard_buckets import EpochOrder, ShardBucket, kernels
from longcrawl.loading.composed_phases import BucketStock
from longcrawl.loading.packing_plan import Longs

Batch = dict[str, Any]
"""See :class:`longcrawl.loading.Packed`."""

Positions = Literal["reset", "continuous"]

LastBatch = Literal["drop", "fill"]
"""What becomes of the samples at the end that do not fill a step: left out, or delivered with rows of padding."""

IGNORED = -100
"""The label of a token that is no target."""


def assemble(
    rows: Mapping[ShardBucket, tuple[Longs, Longs]],
    batch_size: int,
    max_length: int,
    pad_token: int,
    positions: Positions,
) -> Batch:
    """Make a batch of samples; rows that are left have padding only.

    Args:
        rows: for each bucket the rows that are its, and the samples that go there.
        batch_size: how many rows there are.
        max_length: of a row.
        pad_token: the id that fills it up.
        positions: see :class:`longcrawl.loading.Packed`.

    """
    out = np.empty((4, batch_size, max_length), np.int64)
    counts, filled = np.zeros((2, batch_size), np.int64)
    lengths = [np.array([max_length], np.int64)] * batch_size
    reset = int(positions == "reset")
    for bucket, (places, samples) in rows.items():
        sizes, first = bucket.fill(samples, places, reset, out, counts, filled), 0
        pieces, padded = counts.tolist(), (max_length - filled).tolist()
        for row in places.tolist():
            stop, padding = first + pieces[row], padded[row]
            lengths[row] = np.array([*sizes[first:stop].tolist(), padding]) if padding else sizes[first:stop]
            first = stop
    kernels().fill_padding(filled, counts, pad_token, reset, out)
    named = dict(zip(("input_ids", "labels", "position_ids", "doc_ids"), out, strict=True))
    return {**named, "n_tokens": filled, "seq_lengths": lengths}


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
