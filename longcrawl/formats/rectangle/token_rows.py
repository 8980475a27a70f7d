"""Rows of a rectangle, for tables that plain `datasets` loads."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.results import TokenRows
from longcrawl.formats.rectangle import spec
from longcrawl.formats.token_rows import token_table
from longcrawl.storage.stored_tables import read_table


@dataclass(frozen=True)
class RectangleRows(TokenRows):
    """The rows of one split; memory holds those that share chunks, 64 rows of Zarr v3 or 2,048 of v2."""

    folder: Path
    split: str
    rows: int
    tokens: int
    rolled: bool

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield the rows that share chunks: ``id``, ``url``, where rows are rolled ``roll``, and tokens."""
        array = spec.open_split(self.folder, self.split)
        mask = spec.open_loss_mask(array) if array.masked else None
        names = ["id", "url", *["roll"] * self.rolled]
        origins = read_table(self.folder / "rows" / f"{self.split}.parquet", names)
        height, length = array.layout.chunks[0], array.shape[1]
        for band in range(start // height, -(-stop // height)):
            first, last = max(start, band * height), min(stop, (band + 1) * height)
            here = slice(first - band * height, last - band * height)
            flags = None if mask is None else _read_band(mask, band)[here].reshape(-1)
            lengths = np.full(last - first, length, np.int64)
            yield token_table(
                origins.slice(first, last - first), _read_band(array, band)[here].reshape(-1), lengths, flags
            )


def _read_band(array: spec.SplitArray, band: int) -> npt.NDArray[Any]:
    return np.concatenate([array.read_chunk(band, column) for column in range(array.layout.chunk_grid[1])], axis=1)
