"""What the second pass of a composed dataset writes: bands or shards of samples, tables of pieces and of documents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.formats.buckets.build import gather, read_documents, read_pieces
from longcrawl.formats.rectangle.build import BAND, Layout, write_band
from longcrawl.formats.rectangle.chunks import LOSS_MASK_SUFFIX
from longcrawl.formats.shards.shard import TOKENS, Documents
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.storage.files import whole_file
from longcrawl.storage.stored_tables import table_writer
from longcrawl.tokens.loss_mask import LOSS_MASK

__all__ = ["PieceTable", "SampleFile", "write_array_band", "write_documents", "write_shard"]

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


class PieceTable:
    """The table of pieces of one file of samples, written as they are gathered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: pq.ParquetWriter | None = None
        self.pieces = 0

    def add(self, table: pa.Table) -> None:
        """Append the pieces of some samples."""
        if self._file is None:
            self._file = table_writer(self._path, table.schema, compression="zstd", compression_level=3)
        self._file.write_table(table, row_group_size=table.num_rows)
        self.pieces += table.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._file is not None:
            self._file.close()


def write_array_band(
    spill: Path, target: Path, band: SampleFile, layouts: Mapping[str, Layout], table: PieceTable
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
    spill: Path, target: Path, shard: SampleFile, name: str, settings: Mapping[str, Any], table: PieceTable
) -> list[str]:
    """Write one token shard whose entries are samples without their padding, and give its files."""
    shard_format = FORMATS[name]
    file = target / shard.path / f"{shard.number:05d}{shard_format.suffix}"
    written = shard_format.write(_entries(spill, shard, table), file, **settings)
    return [Path(each).relative_to(target).as_posix() for each in written.files]


def _entries(spill: Path, shard: SampleFile, table: PieceTable) -> Iterator[Documents]:
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
    with whole_file(target / name) as beside:
        file: pq.ParquetWriter | None = None
        for table in read_documents(spill, start, stop, GROUP_DOCUMENTS):
            if file is None:
                file = table_writer(beside, table.schema, compression="zstd", compression_level=3)
            file.write_table(table, row_group_size=table.num_rows)
        if file is not None:
            file.close()
    return name
