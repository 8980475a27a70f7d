"""The token shards of one bucket as samples: which pieces each has, how many tokens, and in which order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from longcrawl.errors import FormatError, LoaderError
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.formats.shards.spec import find_format, shards_in
from longcrawl.kernels.keyed_order import KeyedOrder
from longcrawl.loading._data_identity import data_changes, data_identity
from longcrawl.loading._window_files import TokenFile
from longcrawl.loading.packing_plan import Longs, Packing, PackingPlan, plan_packing


@dataclass(frozen=True)
class EpochOrder:
    """Which of ``count`` samples is delivered at a place, counted through all epochs; each has an order of its own.

    >>> import numpy as np
    >>> EpochOrder(3, None, "web")(np.array([0, 2, 3, 5])).tolist()
    [0, 2, 0, 2]

    Attributes:
        count: samples of an epoch.
        seed: of the orders; None for that of the samples, in every epoch.
        name: of the bucket.

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
        if epoch not in self._orders:
            self._orders[epoch] = KeyedOrder(self.count, self.seed or 0, f"samples of {self.name}, epoch {epoch}")
        return self._orders[epoch]

    @cached_property
    def _orders(self) -> dict[int, KeyedOrder]:
        return {}


NO_FLAGS = np.zeros(0, np.bool_)
"""For shards without a loss mask."""


@cache
def kernels() -> Any:
    """Return the module of compiled functions; importing it for every batch would cost more than what they do."""
    import longcrawl.composition.packing_kernels as compiled_functions

    return compiled_functions


@dataclass(frozen=True, eq=False)
class ShardBucket:
    """Samples of one bucket.

    Attributes:
        name: of the bucket; "" for all of a folder.
        shards: opened, in the order of their paths.
        plan: of its samples; documents are counted through all shards.
        epochs: how often its samples may be delivered.
        seed: of the order; None for the order of the plan.

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
        """Tokens of each sample: int64 [samples], in the order of the plan."""
        sums = np.concatenate([[0], np.cumsum(self.plan.sizes)])
        return np.asarray(np.diff(sums[self.plan.bounds]), np.int64)

    def tokens_by_place(self) -> Longs:
        """Return tokens of each sample in the order of delivery, all epochs: int64 [epochs * samples]."""
        return self.sample_tokens[self.samples_at(np.arange(self.epochs * len(self)))]

    def samples_at(self, places: Longs) -> Longs:
        """Return the samples that are delivered at these places; each epoch has an order of its own."""
        return self._order(places)

    @cached_property
    def _order(self) -> EpochOrder:
        return EpochOrder(len(self), self.seed, self.name)

    def fill(self, samples: Longs, rows: Longs, reset: int, out: Longs, counts: Longs, filled: Longs) -> Longs:
        """Move samples into rows of a batch, padding left out, and give the tokens of each piece.

        Args:
            samples: int64 [samples].
            rows: int64 [samples], where each goes.
            reset: whether positions begin again with each piece.
            out: int64 [4, batch_size, max_length]: ids, labels, positions and documents, written.
            counts: int64 [batch_size], written: how many pieces there are in a row.
            filled: int64 [batch_size], written: how many tokens.

        """
        numbers, pieces = kernels().lay_out(self.plan.bounds, self.plan.sizes, samples, rows, counts, filled)
        pieces[0], pieces[2] = self._places[numbers], 1
        if self._overlaps is not None:
            left = self._overlaps[self.plan.documents[numbers]] - self.plan.starts[numbers]
            pieces[2] = np.clip(left, 1, pieces[1])
        for shard in set((self._token_bases.searchsorted(pieces[0], "right") - 1).tolist()):
            self._compare(shard, pieces)
            tokens, mask = self.shards[shard].tokens, self.shards[shard].loss_mask
            flags = NO_FLAGS if mask is None else np.asarray(mask)
            kernels().fill_pieces(np.asarray(tokens), flags, int(self._token_bases[shard]), pieces, reset, -1, out)
        return np.asarray(pieces[1])

    def _compare(self, number: int, pieces: Longs) -> None:
        """Compare what pieces take of a shard with its checksums."""
        shard, base = self.shards[number], int(self._token_bases[number])
        if not shard.unread:
            return
        inside = (pieces[0] >= base) & (pieces[0] < base + len(shard.tokens))
        for first, length in zip((pieces[0][inside] - base).tolist(), pieces[1][inside].tolist(), strict=True):
            shard.compare(first, first + length)

    @cached_property
    def _token_bases(self) -> Longs:
        return np.cumsum([0] + [len(shard.tokens) for shard in self.shards], dtype=np.int64)[:-1]

    @cached_property
    def _places(self) -> Longs:
        """Where each piece starts, tokens counted through all shards: int64 [pieces]."""
        documents = [
            np.concatenate([[0], shard.ends[:-1]]) + base
            for shard, base in zip(self.shards, self._token_bases, strict=True)
            if len(shard)
        ]
        return np.asarray(np.concatenate([np.empty(0, np.int64), *documents])[self.plan.documents] + self.plan.starts)

    @cached_property
    def _overlaps(self) -> Longs | None:
        found = [np.zeros(len(each), np.int64) if each.overlaps is None else each.overlaps for each in self.shards]
        overlaps = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
        return overlaps if overlaps.any() else None

    @cached_property
    def files(self) -> list[TokenFile]:
        """The files of tokens of its shards."""
        return [TokenFile(each.path, Path(each.path).stat().st_size, len(each.tokens)) for each in self.shards]

    @cached_property
    def data(self) -> dict[str, Any]:
        """What a state says of its files; what it does not see of documents is in the packing."""
        return data_identity(self.files)

    @cached_property
    def packing_fingerprint(self) -> str:
        """Digest the pieces of all samples, and what each document repeats of the one before it."""
        digest = blake2b(digest_size=8)
        for each in (self.plan.bounds, self.plan.documents, self.plan.starts, self.plan.sizes):
            digest.update(_narrow(each))
        if self._overlaps is not None:
            digest.update(_narrow(self._overlaps))
        return digest.hexdigest()

    def changes(self, data: Mapping[str, Any], packing: str | None) -> list[str]:
        """Describe in which way files and samples are not those of a state; nothing where they are."""
        of = f" of bucket {self.name!r}" if self.name else ""
        changed = [f"{change}{of}" for change in data_changes(data, self.data, self.files)]
        if packing != self.packing_fingerprint:
            changed.append(f"packing{of} was {packing!r} and is {self.packing_fingerprint!r}")
        return changed


def _narrow(numbers: Longs) -> memoryview:
    """Return the bytes of numbers from 0 on, four of each where that suffices: a digest takes half as long."""
    return np.ascontiguousarray(numbers, "<u4" if int(numbers.max(initial=0)) < 1 << 32 else "<u8").data


def bucket_folders(folder: Path) -> dict[str, Path]:
    """Return the folders in a folder by their names.

    Raises:
        LoaderError: there is no such folder.

    """
    if not folder.is_dir():
        raise LoaderError(f"there is no folder {folder}: check path and split")
    return {each.name: each for each in sorted(folder.iterdir()) if each.is_dir()}


def bucket_shards(name: str, folder: Path, format_name: str | None, split: str) -> list[Path]:
    """List the shards of a split below the folder of a bucket.

    Raises:
        LoaderError: there is none.

    """
    try:
        return shards_in(folder, format_name, split)
    except FormatError as missing:
        raise LoaderError(f"{_called(name)} is empty: {missing}") from missing


def _called(name: str) -> str:
    return f"bucket {name!r}" if name else "the data"


def open_bucket(
    name: str,
    paths: Sequence[Path],
    format_name: str | None,
    settings: Mapping[str, Any],
    max_length: int,
    packing: Packing,
    epochs: int,
    seed: int | None,
) -> ShardBucket:
    """Open the shards of a bucket, and plan their samples.

    Args:
        name: of the bucket.
        paths: of its shards.
        format_name: of the shards; None to tell by the files.
        settings: of opening; those that a format does not have are left out.
        max_length: most tokens of a sample.
        packing: see :func:`longcrawl.loading.packing_plan.plan_packing`.
        epochs: how often its samples may be delivered.
        seed: of the order; None for the order of the plan.

    Raises:
        LoaderError: no shard has a token.
        CorruptionError: files contradict each other.

    """
    shards = []
    for path in paths:
        found = find_format(path, format_name)
        shards.append(found.open(path, **found.settings("open", settings)))
    lengths = np.concatenate([np.diff(shard.ends, prepend=0) for shard in shards]).astype(np.int64)
    if not lengths.any():
        raise LoaderError(
            f"{_called(name)} is empty: the shards in {paths[0].parent} have no token; put others there, or leave it "
            "out"
        )
    return ShardBucket(name, tuple(shards), plan_packing(lengths, max_length, packing), epochs, seed)
