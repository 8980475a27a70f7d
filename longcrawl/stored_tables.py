"""Parquet tables of a run or an output: pages are written with checksums, and a damaged table is one sentence."""

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from longcrawl.errors import CorruptionError
from longcrawl.unreadable import unreadable

__all__ = [
    "DAMAGED",
    "count_rows",
    "footer_fault",
    "read_footer",
    "read_rows",
    "read_table",
    "scan_tables",
    "table_writer",
    "write_table",
]

DAMAGED = "longcrawl verify says what is wrong with it; copy it back, or build it again"


def table_writer(file: Path, schema: pa.Schema, **settings: Any) -> pq.ParquetWriter:
    """Return what writes a file table by table, with a crc32 of each page, which any reader of parquet may compare."""
    return pq.ParquetWriter(file, schema, write_page_checksum=True, **settings)


def write_table(table: pa.Table, file: Path, **settings: Any) -> None:
    """Write a file of one table, as :func:`table_writer` does."""
    pq.write_table(table, file, write_page_checksum=True, **settings)


def read_footer(file: Path) -> pq.FileMetaData:
    """Return what the end of a file says: its schema, and rows and bytes of each row group.

    Raises:
        CorruptionError: it cannot be read.

    """
    with unreadable(file, CorruptionError, DAMAGED):
        footer = pq.read_metadata(file)
        footer.schema.to_arrow_schema()  # which it may not have
    return footer


def footer_fault(footer: pq.FileMetaData) -> str | None:
    """Return in what a footer contradicts itself; no checksum covers it, but Arrow writes the names of columns twice.

    Row groups have them, too, but pyarrow ends the process where it cannot read one of a damaged footer.
    """
    second = (footer.metadata or {}).get(b"ARROW:schema")
    if second is None:
        return None
    names = footer.schema.to_arrow_schema().names
    stored = pa.ipc.read_schema(pa.py_buffer(b64decode(second))).names
    different = [pair for pair in zip(names, stored, strict=False) if pair[0] != pair[1]]
    if not different or len(names) != len(stored):
        return None
    return "a column is named {!r} and, in the schema of Arrow, {!r}".format(*different[0])


def count_rows(file: Path) -> int:
    """Return the rows of a file, as its footer counts them."""
    return int(read_footer(file).num_rows)


def read_table(file: Path, columns: Sequence[str] | None = None, condition: Any = None) -> pa.Table:
    """Return the rows of a file that fulfil a condition.

    Raises:
        CorruptionError: it cannot be read, a page differs from its checksum, or a string is not UTF-8.

    """
    with unreadable(file, CorruptionError, DAMAGED):
        table = pq.read_table(
            file, columns=columns, filters=condition, partitioning=None, page_checksum_verification=True
        )
        table.validate(full=True)
    return table


def read_rows(file: Path, start: int, stop: int) -> list[dict[str, Any]]:
    """Return the values of rows ``start:stop`` of a file, of which only their row groups are read."""
    found: list[dict[str, Any]] = []
    with unreadable(file, CorruptionError, DAMAGED), pq.ParquetFile(file, page_checksum_verification=True) as opened:
        first = 0
        for number in range(opened.num_row_groups):
            rows = opened.metadata.row_group(number).num_rows
            if first < stop and start < first + rows:
                low, high = max(start - first, 0), min(stop - first, rows)
                found += opened.read_row_group(number).slice(low, high - low).to_pylist()
            first += rows
    return found


def scan_tables(files: Sequence[Path], schema: pa.Schema | None = None) -> pads.Dataset:
    """Return files as one dataset, whose pages are compared with their checksums; reading it may raise anything."""
    options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = pads.ParquetFileFormat(default_fragment_scan_options=options)
    return pads.dataset([str(file) for file in files], schema=schema, format=form)
