"""The token shards of one bucket as samples: which pieces each has, and how many tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import FormatError, LoaderError
from longcrawl.formats.shard_formats import find_format, shards_in
from longcrawl.formats.token_shard import TokenShard
from longcrawl.loading._sample_order import shuffled_places
from longcrawl.loading.packing_plan import Longs, Packing, PackingPlan, plan_packing

__all__ = ["ShardBucket", "Stretch", "bucket_folders", "open_bucket"]

SAMPLED_TOKENS = 1024

Stretch = tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]
"""Tokens that lie one after the other in a shard, views, and their loss mask where there is one."""


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
        """Give tokens of each sample in the order of delivery, all epochs: int64 [epochs * samples]."""
        return self.sample_tokens[self.samples_at(np.arange(self.epochs * len(self)))]

    def samples_at(self, places: Longs) -> Longs:
        """Give the samples that are delivered at these places; each epoch has an order of its own."""
        samples = places % max(len(self), 1)
        if self.seed is None:
            return samples
        epochs = places // max(len(self), 1)
        for epoch in np.unique(epochs):
            of_epoch = epochs == epoch
            samples[of_epoch] = shuffled_places(samples[of_epoch], len(self), self.seed, f"{self.name}/{epoch}")
        return samples

    def pieces(self, sample: int) -> slice:
        """Give the pieces of a sample."""
        return slice(int(self.plan.bounds[sample]), int(self.plan.bounds[sample + 1]))

    def stretches(self, pieces: slice) -> Iterator[Stretch]:
        """Give the tokens of consecutive pieces; those that lie one after the other come together."""
        starts, sizes = self._places[pieces], self.plan.sizes[pieces]
        ends = starts + sizes
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        firsts, lasts = starts[np.append(0, breaks)], ends[np.append(breaks - 1, len(ends) - 1)]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            yield from self._stretch(first, last)

    def _stretch(self, first: int, last: int) -> Iterator[Stretch]:
        while first < last:
            number = int(np.searchsorted(self._token_bases, first, "right")) - 1
            shard, base = self.shards[number], int(self._token_bases[number])
            stop = min(last, base + len(shard.tokens))
            inside = slice(first - base, stop - base)
            yield shard.tokens[inside], None if shard.loss_mask is None else shard.loss_mask[inside]
            first = stop

    def untrained(self, pieces: slice) -> Longs:
        """Give how many tokens each piece begins with that are no targets: its first, and an overlap."""
        if self._overlaps is None:
            return np.ones(pieces.stop - pieces.start, np.int64)
        left = self._overlaps[self.plan.documents[pieces]] - self.plan.starts[pieces]
        return np.asarray(np.clip(left, 1, self.plan.sizes[pieces]), np.int64)

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
    def data_fingerprint(self) -> str:
        """Digest where documents end, and the first and last tokens of each shard; names of files do not count."""
        digest = blake2b(digest_size=8)
        for shard in self.shards:
            digest.update(f"{len(shard)} {len(shard.tokens)} ".encode())
            digest.update(np.ascontiguousarray(shard.ends, "<i8").data)
            for tokens in (shard.tokens[:SAMPLED_TOKENS], shard.tokens[-SAMPLED_TOKENS:]):
                digest.update(tokens.astype("<u4").tobytes())
        return digest.hexdigest()

    @cached_property
    def packing_fingerprint(self) -> str:
        """Digest the pieces of all samples."""
        digest = blake2b(digest_size=8)
        for each in (self.plan.bounds, self.plan.documents, self.plan.starts, self.plan.sizes):
            digest.update(np.ascontiguousarray(each, "<i8").data)
        return digest.hexdigest()


def bucket_folders(folder: Path) -> dict[str, Path]:
    """Give the folders in a folder by their names.

    Raises:
        LoaderError: there is no such folder.

    """
    if not folder.is_dir():
        raise LoaderError(f"there is no folder {folder}: check path and split")
    return {each.name: each for each in sorted(folder.iterdir()) if each.is_dir()}


def open_bucket(
    name: str,
    folder: Path,
    format_name: str | None,
    settings: Mapping[str, Any],
    max_length: int,
    packing: Packing,
    epochs: int,
    seed: int | None,
) -> ShardBucket:
    """Open the shards below a folder, and plan their samples.

    Args:
        name: of the bucket.
        folder: of its shards.
        format_name: of the shards; None to tell by the files.
        settings: of opening; those that a format does not have are left out.
        max_length: most tokens of a sample.
        packing: see :func:`longcrawl.loading.packing_plan.plan_packing`.
        epochs: how often its samples may be delivered.
        seed: of the order; None for the order of the plan.

    Raises:
        LoaderError: there is no shard, or none has a token.
        CorruptionError: files contradict each other.

    """
    what = f"bucket {name!r}" if name else "the data"
    try:
        paths = shards_in(folder, format_name)
    except FormatError as missing:
        raise LoaderError(f"{what} is empty: {missing}") from missing
    shards = []
    for path in paths:
        found = find_format(path, format_name)
        shards.append(found.open(path, **found.settings("open", settings)))
    lengths = np.concatenate([np.diff(shard.ends, prepend=0) for shard in shards]).astype(np.int64)
    if not lengths.any():
        raise LoaderError(f"{what} is empty: the shards in {folder} have no token; put others there, or leave it out")
    return ShardBucket(name, tuple(shards), plan_packing(lengths, max_length, packing), epochs, seed)
