"""The table of a rectangle that says which document each row is, local or remote."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.errors import SourceError, unreadable
from longcrawl.sources.files import absolute, opened
from longcrawl.storage.file_systems import exists
from longcrawl.storage.stored_tables import check_undamaged
from longcrawl.urls import is_url, join

TABLE_BYTES = 1 << 16
"""How much of a remote table of rows is fetched at a time."""


def read_rows(root: str, split: str, start: int, stop: int, columns: Sequence[str]) -> pa.Table | None:
    """Return what is recorded of rows ``start:stop`` of a split; None of a rectangle that has no such table.

    Args:
        root: folder or URL of the rectangle.
        split: such as ``train``.
        start: first row.
        stop: row after the last.
        columns: to read, where they are there.

    Raises:
        SourceError: the table cannot be read.
        CorruptionError: it is not as it was written.
    """
    rows = join(absolute(root), f"rows/{split}.parquet")
    if not exists(rows):
        return None
    if not is_url(rows):
        check_undamaged([Path(rows)])
    fix = "copy it back, or build the rectangle again"
    with opened(rows, TABLE_BYTES) as file, unreadable(rows, SourceError, fix):
        table = pq.ParquetFile(file, page_checksum_verification=True)
        ends = np.cumsum([table.metadata.row_group(each).num_rows for each in range(table.num_row_groups)])
        # One row group holds the rows of one part, unless somebody has written the table again.
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        names = [name for name in columns if name in table.schema_arrow.names]
        groups = table.read_row_groups(range(first, last + 1), columns=names)
        groups.validate(full=True)
        before = int(ends[first - 1]) if first else 0
        return groups.slice(start - before, stop - start).combine_chunks()
