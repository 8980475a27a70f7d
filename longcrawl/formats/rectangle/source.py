"""Rectangles as a source of whole rows, or of windows of any context length."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.core.sources import BadFiles, OnBadFiles, Part, Source, StorageOptions, source
from longcrawl.errors import CorruptionError, FormatError, SourceError, unreadable
from longcrawl.formats.rectangle.spec import DESCRIPTION, SplitArray, has_split, open_loss_mask, open_split
from longcrawl.io.file_systems import exists, fetch
from longcrawl.io.stored_tables import check_undamaged
from longcrawl.sources.files import absolute, opened
from longcrawl.tokens.loss_mask import LOSS_MASK
from longcrawl.urls import is_url, join

TABLE_BYTES = 1 << 16
"""Bytes of a remote table of rows fetched at a time."""


def read_rows(root: str, split: str, start: int, stop: int, columns: Sequence[str]) -> pa.Table | None:
    """Return those of ``columns`` that are recorded for rows ``start:stop`` of a split, or None without a table."""
    rows = join(absolute(root), f"rows/{split}.parquet")
    if not exists(rows):
        return None
    if not is_url(rows):
        check_undamaged([Path(rows)])
    fix = "restore it, or build the rectangle again"
    with opened(rows, TABLE_BYTES) as file, unreadable(rows, SourceError, fix):
        table = pq.ParquetFile(file, page_checksum_verification=True)
        ends = np.cumsum([table.metadata.row_group(each).num_rows for each in range(table.num_row_groups)])
        # Each row group has the rows of one part, unless somebody has rewritten the table.
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        names = [name for name in columns if name in table.schema_arrow.names]
        groups = table.read_row_groups(range(first, last + 1), columns=names)
        groups.validate(full=True)
        before = int(ends[first - 1]) if first else 0
        return groups.slice(start - before, stop - start).combine_chunks()


SPLITS = ("train", "heldout")
PART_ROWS = 2048
REQUESTS = 8
"""Chunks of a remote rectangle fetched at once."""


@source("rectangle")
class Rectangle(Source):
    """Rows of a rectangle, or windows of ``context_length`` tokens, row after row, windows from left to right.

    Columns: ``row`` and ``start`` (the window's first column), int64; ``id``, null if the rectangle has no rows table;
    ``tokens``, a list of exactly ``context_length`` uint16 or uint32; ``loss_mask``, as many booleans, if the rectangle
    has one. With the "arrow" format tokens are not copied; "numpy" and "torch" turn them into int64.

    Args:
        data_dir: folder or URL that holds ``train`` and ``heldout`` (or ``train.zarr`` and ``heldout.zarr``).
        context_length: tokens per window; None for whole rows. The remainder at the end of a row is dropped.
        on_bad_files: treatment of a missing or broken chunk; "skip" loses the 64 (or 2,048) rows that share it.
        storage_options: fsspec options to open the stores that URLs name, such as ``{endpoint_url: …, anon: true}``.
            Not for credentials, which belong in the environment or a profile.
    """

    homepage: ClassVar[str] = "https://zarr.dev"

    data_dir: str | None = None
    context_length: int | None = None
    on_bad_files: OnBadFiles = "error"
    storage_options: StorageOptions = None

    def schema(self) -> pa.Schema:
        """Return ``row``, ``start``, ``id``, ``tokens`` of a fixed length and, if there is one, ``loss_mask``."""
        array = self._open(self._split_names()[0])
        tokens = pa.list_(pa.from_numpy_dtype(array.dtype), self._window(array))
        columns = [("row", pa.int64()), ("start", pa.int64()), ("id", pa.string()), ("tokens", tokens)]
        if array.masked:
            columns.append((LOSS_MASK, pa.list_(pa.bool_(), self._window(array))))
        return pa.schema(columns)

    def splits(self) -> dict[str, list[Part]]:
        """Return the parts of "train" and "heldout", if present, with 2,048 rows each."""
        found: dict[str, list[Part]] = {}
        for split in self._split_names():
            rows = self._open(split).shape[0]
            found[split] = [Part(f"{split}/{first:09d}") for first in range(0, rows, PART_ROWS)]
        return found

    def content(self) -> str:
        """Return the layouts and a hash of the description."""
        layouts = [self._open(split).layout for split in self._split_names()]
        described = join(absolute(self._root()), DESCRIPTION)
        # The description has a checksum of every chunk; a store in the original layout has no equivalent.
        contents = fetch(described) if exists(described) else b""
        return f"{layouts} {hashlib.sha256(contents).hexdigest()}"

    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read the rows of a part, a table for each row of chunks."""
        split, first = part.name.split("/")
        array = open_split(self._root(), split)
        arrays = [array, open_loss_mask(array)] if array.masked else [array]
        schema = self.schema()
        chunk_rows = array.layout.chunks[0]
        start, stop = int(first), min(int(first) + PART_ROWS, array.shape[0])
        table = read_rows(self._root(), split, start, stop, ["id"])
        ids = pa.nulls(stop - start, pa.string()) if table is None else table["id"].combine_chunks()
        # A remote chunk is a request to wait for; a local one keeps this process busy.
        with ThreadPoolExecutor(REQUESTS) if is_url(self._root()) else nullcontext() as pool:
            for block in range(start // chunk_rows, -(-stop // chunk_rows)):
                try:
                    read = [each.read_band(block, pool.map if pool else map) for each in arrays]
                except CorruptionError as broken:
                    if bad_files.policy == "error":
                        raise
                    bad_files.report(f"{self._root()}/{split}", str(broken), min(chunk_rows, stop - block * chunk_rows))
                    continue
                low = max(start - block * chunk_rows, 0)
                high = min(stop - block * chunk_rows, len(read[0]))
                rows = [values[low:high] for values in read]
                yield _table(rows, block * chunk_rows + low, ids.slice(block * chunk_rows + low - start), schema)

    def _root(self) -> str:
        if self.data_dir is None:
            raise SourceError("source 'rectangle' needs data_dir: the folder that holds train and heldout")
        root: str = self.located(self.data_dir)
        return root

    def _split_names(self) -> list[str]:
        # Without any split, opening the first raises the error.
        return [split for split in SPLITS if has_split(self._root(), split)] or [SPLITS[0]]

    def _open(self, split: str) -> SplitArray:
        try:
            return open_split(self._root(), split)
        except CorruptionError:
            raise
        except FormatError as wrong:
            raise SourceError(str(wrong)) from wrong

    def _window(self, array: SplitArray) -> int:
        length = array.shape[1]
        window = self.context_length or length
        if not 0 < window <= length:
            raise SourceError(f"context_length must be 1 to {length:,}, the length of a row, got {window:,}")
        return window


def _table(rows: "list[np.ndarray[Any, Any]]", first: int, ids: pa.Array, schema: pa.Schema) -> pa.Table:
    window = schema.field("tokens").type.list_size
    count = rows[0].shape[1] // window
    numbers = np.repeat(np.arange(first, first + len(rows[0])), count)
    starts = np.tile(np.arange(count) * window, len(rows[0]))
    lists = []
    for values, field in zip(rows, list(schema)[3:], strict=True):
        flat = np.ascontiguousarray(values[:, : count * window]).reshape(-1)
        lists.append(pa.FixedSizeListArray.from_arrays(pa.array(flat, field.type.value_type), window))
    names = ids.take(pa.array(numbers - first))
    return pa.table([pa.array(numbers, pa.int64()), pa.array(starts, pa.int64()), names, *lists], schema=schema)
