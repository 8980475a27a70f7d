"""The second pass of a composed dataset: bands or shards of samples, tables of their pieces and of documents.

The plan of the first pass is in files: where each piece of each sample comes from. The pieces of some samples are
gathered by their places, and written with the table that says what they are.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.formats.buckets.plan import PIECE, PlannedBucket
from longcrawl.formats.rectangle.build import BAND, Layout, write_band
from longcrawl.formats.rectangle.spec import LOSS_MASK_SUFFIX
from longcrawl.formats.shards.shard import N_TOKENS, TOKENS, Documents
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.formats.spill import ORDER, PLACE, read_batches, read_order, read_places
from longcrawl.storage.files import whole_file
from longcrawl.storage.stored_tables import GroupedTable
from longcrawl.tokens.loss_mask import LOSS_MASK

Longs = npt.NDArray[np.int64]

DOMAIN = "domain"
ORIGINS = ("id", "url", "language")
KEPT = (*ORIGINS, DOMAIN, N_TOKENS)
GROUP_TOKENS = 1 << 22
"""Tokens of samples that are gathered at a time for a shard, unless one sample has more."""
GROUP_DOCUMENTS = 50_000


@dataclass(frozen=True)
class TokenFacts:
    """What all spilled tokens have in common."""

    dtype: str
    masked: bool
    """Whether there is a token that no loss is due on."""


@dataclass(frozen=True)
class SampleFile:
    """Which samples of a bucket a file or shard has."""

    bucket: PlannedBucket
    number: int
    first: int
    """Number of its first sample in the bucket."""
    samples: int
    tokens: TokenFacts

    @property
    def name(self) -> str:
        """Where the file is, without its ending: ``train/web/2048/00000``."""
        return f"{self.bucket.path}/{self.number:05d}"


@dataclass(frozen=True, eq=False)
class PieceStretch:
    """The pieces of consecutive samples of a plan; arrays are int64 [pieces]."""

    samples: Longs
    """Counted from the first sample of the stretch."""
    documents: Longs
    """Counted within the split and domain."""
    starts: Longs
    sizes: Longs
    recorded: pa.Table
    """What is known of the document of each: its id and the like, and ``n_tokens``."""
    spilled: npt.NDArray[Any]
    """Where the document of each was spilled, see :data:`PLACE`."""

    @property
    def lengths(self) -> Longs:
        """How many tokens each sample has: int64 [samples]."""
        return np.asarray(np.add.reduceat(self.sizes, self._firsts()), np.int64)

    def places(self, capacity: int | None = None) -> Longs:
        """Return where each piece begins, of samples of ``capacity`` tokens or, without one, end to end."""
        before = np.cumsum(self.sizes) - self.sizes
        if capacity is None:
            return before
        firsts = self._firsts()
        counts = np.diff(np.append(firsts, len(self.samples)))
        return np.asarray(before - np.repeat(before[firsts], counts) + self.samples * capacity, np.int64)

    def table(self, capacity: int, first: int) -> pa.Table:
        """Return a row for each piece, ``first`` being the number of the first sample in its bucket."""
        tail = self.starts + self.sizes == self.recorded[N_TOKENS].to_numpy()
        return pa.table(
            {
                "bucket": pa.repeat(pa.scalar(capacity, pa.int64()), len(self.sizes)),
                "sample": pa.array(self.samples + first),
                "document": pa.array(self.documents),
                **{name: self.recorded[name] for name in (*ORIGINS, DOMAIN) if name in self.recorded.column_names},
                "start": pa.array(self.starts),
                "length": pa.array(self.sizes),
                "head": pa.array(self.starts == 0),
                "tail": pa.array(tail),
            }
        )

    def _firsts(self) -> npt.NDArray[np.intp]:
        """Return the first piece of each sample."""
        return np.flatnonzero(np.diff(self.samples, prepend=-1))


def _read_pieces(spill: Path, bucket: PlannedBucket, first: int, stop: int) -> PieceStretch:
    """Read the pieces of samples ``first`` to ``stop`` of a bucket."""
    path, first, stop = spill / f"plan-{bucket.plan:05d}", bucket.first + first, bucket.first + stop
    bounds = np.fromfile(f"{path}.bounds", np.int64, count=stop - first + 1, offset=first * 8)
    count = int(bounds[-1] - bounds[0])
    pieces = np.fromfile(f"{path}.pieces", PIECE, count=count, offset=int(bounds[0]) * PIECE.itemsize)
    documents = pieces["document"].astype(np.int64)
    wanted, back = np.unique(documents, return_inverse=True)
    places = np.memmap(spill / ORDER, PLACE, "r")[wanted + bucket.first_document]
    recorded = read_places(spill, places, KEPT).take(pa.array(back))
    samples = np.repeat(np.arange(stop - first), np.diff(bounds))
    return PieceStretch(samples, documents, pieces["start"], pieces["size"], recorded, places[back])


def _gather(spill: Path, pieces: PieceStretch, name: str, places: Longs, out: npt.NDArray[Any]) -> None:
    """Copy pieces of the spilled column ``name`` to ``places`` of ``out``, which is filled elsewhere."""
    flat = out.reshape(-1).view(np.uint8) if out.dtype == np.bool_ else out.reshape(-1)
    for chosen, batch, rows in read_batches(spill, pieces.spilled):
        lists = batch.column(name)
        values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
        firsts = offsets[rows] + pieces.starts[chosen]
        for first, size, place in zip(
            firsts.tolist(), pieces.sizes[chosen].tolist(), places[chosen].tolist(), strict=True
        ):
            flat[place : place + size] = values[first : first + size]


def write_array_band(
    spill: Path, target: Path, band: SampleFile, layouts: Mapping[str, Layout], table: GroupedTable
) -> list[str]:
    """Write one band of samples into the arrays of its bucket; return the names of the files.

    Args:
        spill: the folder of the first pass.
        target: the Zarr group.
        band: which samples.
        layouts: of the bucket's arrays, by what follows the bucket in their names.
        table: of their pieces.

    """
    path, capacity = band.bucket.path, band.bucket.capacity
    pieces = _read_pieces(spill, band.bucket, band.first, band.first + band.samples)
    table.add(pieces.table(capacity, band.first))
    places = pieces.places(capacity)
    layout = layouts[""]
    tokens = np.full((BAND, capacity), layout.fill_value, np.dtype(layout.dtype).newbyteorder("<"))
    _gather(spill, pieces, TOKENS, places, tokens)
    names = write_band(target, path, band.number, tokens, layout)
    del tokens
    if LOSS_MASK_SUFFIX in layouts:
        mask = np.arange(BAND)[:, None] >= np.full((1, capacity), band.samples)
        _gather(spill, pieces, LOSS_MASK, places, mask)
        names += write_band(target, path + LOSS_MASK_SUFFIX, band.number, mask, layouts[LOSS_MASK_SUFFIX])
    return names


def write_shard(
    spill: Path, target: Path, shard: SampleFile, name: str, settings: Mapping[str, Any], table: GroupedTable
) -> list[str]:
    """Write one token shard whose entries are samples without their padding; return the names of its files."""
    shard_format = FORMATS[name]
    file = target / f"{shard.name}{shard_format.suffix}"
    written = shard_format.write(_entries(spill, shard, table), file, **settings)
    return [Path(each).relative_to(target).as_posix() for each in written.files]


def _entries(spill: Path, shard: SampleFile, table: GroupedTable) -> Iterator[Documents]:
    capacity, masked = shard.bucket.capacity, shard.tokens.masked
    rows = max(GROUP_TOKENS // capacity, 1)
    for first in range(shard.first, shard.first + shard.samples, rows):
        pieces = _read_pieces(spill, shard.bucket, first, min(first + rows, shard.first + shard.samples))
        table.add(pieces.table(capacity, first))
        places, lengths = pieces.places(), pieces.lengths
        tokens = np.empty(int(lengths.sum()), shard.tokens.dtype)
        _gather(spill, pieces, TOKENS, places, tokens)
        mask = np.empty(len(tokens) if masked else 0, np.bool_)
        if masked:
            _gather(spill, pieces, LOSS_MASK, places, mask)
        yield Documents(tokens, lengths, None, mask if masked else None)


def write_documents(spill: Path, target: Path, name: str, start: int, stop: int) -> str:
    """Write the table of documents ``start`` to ``stop`` of the order; return its name."""
    with whole_file(target / name) as beside, GroupedTable(beside) as file:
        for first in range(start, stop, GROUP_DOCUMENTS):
            file.add(read_places(spill, read_order(spill, first, min(first + GROUP_DOCUMENTS, stop)), KEPT))
    return name
