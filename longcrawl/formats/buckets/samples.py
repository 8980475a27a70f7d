"""What the second pass of a composed dataset writes: bands or shards of samples, tables of pieces and of documents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longcrawl.formats.buckets.build import gather, read_documents, read_pieces
from longcrawl.formats.rectangle.build import BAND, Layout, write_band
from longcrawl.formats.rectangle.chunks import LOSS_MASK_SUFFIX
from longcrawl.formats.shards.shard import TOKENS, Documents
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.storage.files import whole_file
from longcrawl.storage.stored_tables import GroupedTable
from longcrawl.tokens.loss_mask import LOSS_MASK

__all__ = ["SampleFile", "write_array_band", "write_documents", "write_shard"]

GROUP_TOKENS = 1 << 22
"""Tokens of samples that are gathered at a time for a shard, unless one sample has more."""
GROUP_DOCUMENTS = 50_000


@dataclass(frozen=True)
class SampleFile:
    """Which samples a file or shard has, and where they were planned."""

    path: str
    """Of the bucket: ``train/web/2048``."""
    capacity: int
    number: int
    first: int
    """Number of the first sample in its bucket."""
    samples: int
    plan: int
    plan_first: int
    """Number of the first sample in its plan."""
    first_document: int
    """Place, in the order of all documents, of the first one that was planned."""
    dtype: str
    masked: bool


def write_array_band(
    spill: Path, target: Path, band: SampleFile, layouts: Mapping[str, Layout], table: GroupedTable
) -> list[str]:
    """Write one band of samples into the arrays of its bucket, and give the files.

    Args:
        spill: the folder of the first pass.
        target: the Zarr group.
        band: which samples.
        layouts: of the bucket's arrays, by what follows the bucket in their names.
        table: of their pieces.

    """
    pieces = read_pieces(spill, band.plan, band.plan_first, band.plan_first + band.samples, band.first_document)
    table.add(pieces.table(band.capacity, band.first))
    places = pieces.places(band.capacity)
    layout = layouts[""]
    tokens = np.full((BAND, band.capacity), layout.fill_value, np.dtype(layout.dtype).newbyteorder("<"))
    gather(spill, pieces, TOKENS, places, tokens)
    names = write_band(target, band.path, band.number, tokens, layout)
    del tokens
    if LOSS_MASK_SUFFIX in layouts:
        mask = np.arange(BAND)[:, None] >= np.full((1, band.capacity), band.samples)
        gather(spill, pieces, LOSS_MASK, places, mask)
        names += write_band(target, band.path + LOSS_MASK_SUFFIX, band.number, mask, layouts[LOSS_MASK_SUFFIX])
    return names


def write_shard(
    spill: Path, target: Path, shard: SampleFile, name: str, settings: Mapping[str, Any], table: GroupedTable
) -> list[str]:
    """Write one token shard whose entries are samples without their padding, and give its files."""
    shard_format = FORMATS[name]
    file = target / shard.path / f"{shard.number:05d}{shard_format.suffix}"
    written = shard_format.write(_entries(spill, shard, table), file, **settings)
    return [Path(each).relative_to(target).as_posix() for each in written.files]


def _entries(spill: Path, shard: SampleFile, table: GroupedTable) -> Iterator[Documents]:
    rows = max(GROUP_TOKENS // shard.capacity, 1)
    for first in range(0, shard.samples, rows):
        stop = min(first + rows, shard.samples)
        bounds = (shard.plan_first + first, shard.plan_first + stop)
        pieces = read_pieces(spill, shard.plan, *bounds, shard.first_document)
        table.add(pieces.table(shard.capacity, shard.first + first))
        places, lengths = pieces.places(), pieces.lengths
        tokens = np.empty(int(lengths.sum()), shard.dtype)
        gather(spill, pieces, TOKENS, places, tokens)
        mask = np.empty(len(tokens) if shard.masked else 0, np.bool_)
        if shard.masked:
            gather(spill, pieces, LOSS_MASK, places, mask)
        yield Documents(tokens, lengths, None, mask if shard.masked else None)


def write_documents(spill: Path, target: Path, name: str, start: int, stop: int) -> str:
    """Write the table of documents ``start`` to ``stop`` of the order, and give its name."""
    with whole_file(target / name) as beside, GroupedTable(beside) as file:
        for table in read_documents(spill, start, stop, GROUP_DOCUMENTS):
            file.add(table)
    return name
