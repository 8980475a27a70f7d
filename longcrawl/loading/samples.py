"""Assembly of batch rows from samples of buckets: their pieces, their order and the location of their tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from longcrawl.formats.buckets.spec import ComposedBucket
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.kernels.keyed_hash import KeyedOrder, keyed_order
from longcrawl.loading.curriculum import BucketStock
from longcrawl.loading.feed import Batch, Origin, data_changes, data_identity, entry_origins, sample_origins
from longcrawl.loading.window_files import TokenFile
from longcrawl.tokens.packing import fill_pieces, lay_out, padded_rows
from longcrawl.tokens.plan import Longs, PackingPlan, joined_pieces

Positions = Literal["reset", "continuous"]

LastBatch = Literal["drop", "fill"]
"""Handling of the samples at the end that do not fill a step: dropped, or delivered with rows of padding."""
NO_FLAGS = np.zeros(0, np.bool_)
"""Empty flags, for shards without a loss mask and for pieces that are not joined."""


class Rows:
    """Buffers of a batch under construction."""

    def __init__(self, rows: int, length: int, positions: Positions) -> None:
        self.out = np.empty((4, rows, length), np.int64)
        """Ids, labels, positions and documents."""
        self.counts, self.filled = np.zeros((2, rows), np.int64)
        """Number of texts and of tokens in each row."""
        self.reset = int(positions == "reset")


@dataclass(frozen=True)
class EpochOrder:
    """Mapping of places, counted through all epochs, to the samples delivered there; each epoch has its own order.

    >>> import numpy as np
    >>> EpochOrder(3, None, "web")(np.array([0, 2, 3, 5])).tolist()
    [0, 2, 0, 2]

    An epoch has ``count`` samples. If the seed is None, all epochs have the stored order.
    """

    count: int
    seed: int | None
    name: str

    def __call__(self, places: Longs) -> Longs:
        """Return the samples at these places, int64."""
        if self.seed is None or not len(places):
            return places % max(self.count, 1)
        first, last = int(places.min()) // self.count, int(places.max()) // self.count
        if first == last:
            return self._order(first)(places - first * self.count)
        samples, epochs = places % self.count, places // self.count
        for epoch in range(first, last + 1):
            samples[epochs == epoch] = self._order(epoch)(samples[epochs == epoch])
        return samples

    def _order(self, epoch: int) -> KeyedOrder:
        return keyed_order(self.count, self.seed or 0, f"samples of {self.name}, epoch {epoch}")


@runtime_checkable
class ComposedDataset(Protocol):
    """Protocol of composed datasets, such as :func:`longcrawl.formats.buckets.spec.open_composed` returns."""

    @property
    def buckets(self) -> Sequence[Any]:
        """Buckets of all splits, each with the members of :class:`ComposedBucket` that delivery uses."""


@dataclass(frozen=True, eq=False)
class DeliveredBucket:
    """A bucket of a composed dataset, delivered ``epochs`` times; if the seed is None, in its own order."""

    bucket: ComposedBucket
    epochs: int
    seed: int | None

    @property
    def stock(self) -> BucketStock:
        """Samples available over all epochs."""
        return BucketStock(self.bucket.domain, self.bucket.capacity, self.epochs * len(self.bucket))

    def fill(self, places: Longs, rows: Longs, into: Rows) -> Iterator[Longs]:
        """Copy samples, given by places in the order of delivery, into rows; yield the piece tables of the kernel."""
        for stored in self.bucket.stored(self._order(places)):
            mine = rows[stored.asked]
            asked = stored.samples, mine, into.counts, into.filled
            _, pieces = lay_out(stored.bounds, stored.sizes, NO_FLAGS, *asked)
            pieces[0] = np.repeat(stored.starts, into.counts[mine]) + pieces[4]
            fill_pieces(stored.tokens, stored.flags, 0, pieces, into.reset, -1, into.out)
            yield pieces

    def origins(self, places: Longs, rows: Longs) -> Iterator[Origin]:
        """Yield the documents of samples, given by places in the order of delivery, with their rows of a batch."""
        for sample, row in zip(self._order(places).tolist(), rows.tolist(), strict=True):
            yield from sample_origins(self.bucket, sample, row)

    @cached_property
    def _order(self) -> EpochOrder:
        return EpochOrder(len(self.bucket), self.seed, self.stock.name)


@dataclass(frozen=True, eq=False)
class ShardBucket:
    """Token shards of one bucket, packed into samples by a plan that counts documents through all shards.

    The name is "" for all shards of a folder. If the seed is None, samples keep the order of the plan.
    """

    name: str
    shards: tuple[TokenShard, ...]
    plan: PackingPlan
    epochs: int
    seed: int | None

    def __len__(self) -> int:
        """Count the samples of one epoch."""
        return len(self.plan.bounds) - 1

    @cached_property
    def sample_tokens(self) -> Longs:
        """Tokens of each sample, in the order of the plan: int64 [samples]."""
        sums = np.concatenate([[0], np.cumsum(self.plan.sizes)])
        return np.asarray(np.diff(sums[self.plan.bounds]), np.int64)

    def tokens_by_place(self) -> Longs:
        """Return the tokens of each sample in the order of delivery, over all epochs: int64 [epochs * samples]."""
        return self.sample_tokens[self._order(np.arange(self.epochs * len(self)))]

    @cached_property
    def _order(self) -> EpochOrder:
        return EpochOrder(len(self), self.seed, self.name)

    def fill(self, places: Longs, rows: Longs, into: Rows) -> list[Longs]:
        """Copy samples, given by places in the order of delivery, into rows; return the piece tables of the kernel."""
        numbers, pieces = lay_out(
            self.plan.bounds, self.plan.sizes, self._joined, self._order(places), rows, into.counts, into.filled
        )
        pieces[0] = self._places[numbers]
        if self._overlaps is not None:
            left = self._overlaps[self.plan.documents[numbers]] - self.plan.starts[numbers]
            pieces[2] = np.clip(left, pieces[2], pieces[1])
        for number in set((self._token_bases.searchsorted(pieces[0], "right") - 1).tolist()):
            shard, base = self.shards[number], int(self._token_bases[number])
            if shard.unread:
                inside = (pieces[0] >= base) & (pieces[0] < base + len(shard.tokens))
                for first, length in zip((pieces[0][inside] - base).tolist(), pieces[1][inside].tolist(), strict=True):
                    shard.compare(first, first + length)
            flags = NO_FLAGS if shard.loss_mask is None else shard.loss_mask
            fill_pieces(shard.tokens, flags, base, pieces, into.reset, -1, into.out)
        return [pieces]

    def origins(self, places: Longs, rows: Longs) -> Iterator[Origin]:
        """Yield the documents of samples, given by places in the order of delivery, with their rows of a batch."""
        for sample, row in zip(self._order(places).tolist(), rows.tolist(), strict=True):
            pieces, column = slice(*self.plan.bounds[sample : sample + 2].tolist()), 0
            for place, size in zip(self._places[pieces].tolist(), self.plan.sizes[pieces].tolist(), strict=True):
                number = int(self._token_bases.searchsorted(place, "right")) - 1
                shard, first = self.shards[number], place - int(self._token_bases[number])
                yield from entry_origins(shard.path, shard.ends, row, column, first, first + size)
                column += size

    @cached_property
    def _token_bases(self) -> Longs:
        return np.cumsum([0] + [len(shard.tokens) for shard in self.shards], dtype=np.int64)[:-1]

    @cached_property
    def _places(self) -> Longs:
        """First token of each piece, counted through all shards: int64 [pieces]."""
        documents = [
            np.concatenate([[0], shard.ends[:-1]]) + base
            for shard, base in zip(self.shards, self._token_bases, strict=True)
            if len(shard)
        ]
        return np.asarray(np.concatenate([np.empty(0, np.int64), *documents])[self.plan.documents] + self.plan.starts)

    @cached_property
    def _joined(self) -> npt.NDArray[np.bool_]:
        return joined_pieces(self.plan.bounds, self.plan.documents)

    @cached_property
    def _overlaps(self) -> Longs | None:
        found = [np.zeros(len(each), np.int64) if each.overlaps is None else each.overlaps for each in self.shards]
        overlaps = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
        return overlaps if overlaps.any() else None

    @cached_property
    def files(self) -> list[TokenFile]:
        """Token files of the shards."""
        return [TokenFile(each.path, Path(each.path).stat().st_size, len(each.tokens)) for each in self.shards]

    @cached_property
    def data(self) -> dict[str, Any]:
        """Identity of the files in a state; the fingerprint of the packing also covers the document boundaries."""
        return data_identity(self.files)

    @cached_property
    def packing_fingerprint(self) -> str:
        """Digest of the pieces of all samples, and of the overlap of each document with the one before it."""
        digest = blake2b(digest_size=8)
        for each in (self.plan.bounds, self.plan.documents, self.plan.starts, self.plan.sizes, self._overlaps):
            if each is not None:
                # Four bytes per number if they suffice, which halves the time of the digest.
                narrow = "<u4" if int(each.max(initial=0)) < 1 << 32 else "<u8"
                digest.update(np.ascontiguousarray(each, narrow).data)
        return digest.hexdigest()

    def changes(self, data: Mapping[str, Any], packing: str | None) -> list[str]:
        """List the differences of files and packing from those of a state; the list is empty if they match."""
        of = f" of bucket {self.name!r}" if self.name else ""
        changed = [f"{change}{of}" for change in data_changes(data, self.data, self.files)]
        if packing != self.packing_fingerprint:
            changed.append(f"packing{of} was {packing!r} and is {self.packing_fingerprint!r}")
        return changed


def origins_of(
    buckets: Mapping[int, DeliveredBucket | ShardBucket], picks: npt.NDArray[np.integer[Any]], places: Longs
) -> list[Origin]:
    """Return the documents in the rows that :func:`assemble` makes from the same picks and places."""
    found = list[Origin]()
    for pick in set(picks.tolist()) & buckets.keys():
        mine = np.flatnonzero(picks == pick)
        found += buckets[pick].origins(places[mine], mine)
    return sorted(found, key=lambda each: (each.row, each.start))


def assemble(
    buckets: Mapping[int, DeliveredBucket | ShardBucket],
    picks: npt.NDArray[np.integer[Any]],
    places: Longs,
    padding: int,
    rows: Rows,
) -> Batch:
    """Assemble a batch from samples of buckets, in the buffers ``rows``.

    Each row has the number of its bucket in ``picks``, and the place in the bucket's order of delivery in ``places``.
    Rows of unknown buckets, and after the last pick, are padding.
    """
    pieces: list[Longs] = []
    for pick in set(picks.tolist()):
        if pick in buckets:
            mine = np.flatnonzero(picks == pick)
            pieces += buckets[pick].fill(places[mine], mine, rows)
    return padded_rows(rows.out, pieces, rows.counts, rows.filled, padding, rows.reset)
