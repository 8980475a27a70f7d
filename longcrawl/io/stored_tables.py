"""Parquet tables of runs and outputs, with checksums that are verified on reading.

Page checksums do not cover the footer, where a flipped bit can rename a column or move rows. So every reader here first
compares its tables with the SHA-256 in the description of their output or run, once per process. For more than
``MOST_COMPARED`` bytes at a time this would take seconds, so then only the column names in the footers are checked.
"""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.errors import CorruptionError, quoted, unreadable
from longcrawl.io.files import bring, content_digest, reread_when_changed, whole_file
from longcrawl.io.structured import verify_files

if TYPE_CHECKING:
    import pyarrow.dataset as pads

DAMAGED = "longcrawl verify shows what is wrong with it; restore it, or build it again"
_SHARDS = ("datatrove", "gpt-simple", "levanter", "litdata", "mds", "megatron", "nanogpt", "olmo-core")
_WRITTEN = ("manifest", "composed", *_SHARDS, "parquet", "rectangle")
DESCRIPTIONS = {f"{name}.json" for name in _WRITTEN}
"""Names of files that record the SHA-256 of tables below them; every output adds its own."""
FOLDERS_ABOVE = 4
"""Number of directories above a table that are searched for a description."""
MOST_COMPARED = 256_000_000
"""Maximum number of bytes of tables compared with their SHA-256 at a time, about 0.3 s."""


def table_writer(file: Path, schema: pa.Schema, **settings: Any) -> pq.ParquetWriter:
    """Return a parquet writer that adds a CRC-32 to each page, which any parquet reader can verify."""
    return pq.ParquetWriter(file, schema, write_page_checksum=True, **settings)


class GroupedTable:
    """A writer of a zstd-compressed parquet file, one row group at a time; without row groups there is no file."""

    def __init__(self, file: Path) -> None:
        self.schema = pa.schema([])
        """Schema of the first row group, which all others must have."""
        self._path = file
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Append a row group."""
        if self._writer is None:
            self.schema = table.schema
            self._writer = table_writer(self._path, self.schema, compression="zstd", compression_level=3)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._writer is not None:
            self._writer.close()


def write_table(table: pa.Table, file: Path, **settings: Any) -> None:
    """Write a table to a parquet file atomically, with page checksums like :func:`table_writer`."""
    with whole_file(file) as beside:
        pq.write_table(table, beside, write_page_checksum=True, **settings)


def check_undamaged(files: Sequence[Path]) -> None:
    """Compare tables with the SHA-256 in a description above them; tables without a description are not compared.

    Raises:
        CorruptionError: a table is missing or has changed since it was written. All readers here raise it.
    """
    bring(*files)
    if sum(file.stat().st_size for file in files if file.is_file()) > MOST_COMPARED:
        for file in files:
            _read_footer(file)
        return
    described: dict[Path, list[str]] = {}
    recorded = {str(file): entry for file in files if (entry := _recorded(file, described))}
    for problem in verify_files(Path(), recorded, lambda path: content_digest(str(path))):
        raise CorruptionError(f"{problem}; {DAMAGED}")


def _recorded(file: Path, described: dict[Path, list[str]]) -> Mapping[str, Any] | None:
    """Return the entry of a table in the nearest description that lists it; ``described`` caches those of folders."""
    path = file.absolute()
    for folder in path.parents[:FOLDERS_ABOVE]:
        if folder not in described:
            there = (folder / name for name in sorted(DESCRIPTIONS))
            described[folder] = [str(description) for description in there if description.is_file()]
        for description in described[folder]:
            if entry := _entries(description).get(path.relative_to(folder).as_posix()):
                return entry
    return None


@reread_when_changed(size=16)
def _entries(description: str) -> dict[str, dict[str, Any]]:
    """Return the files that a description lists; empty if it is damaged, which its readers report, or not ours."""
    try:
        files = json.loads(Path(description).read_bytes())["files"].items()
        return {name: {"bytes": entry["bytes"], "sha256": entry["sha256"]} for name, entry in files}
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return {}


def read_footers(files: Sequence[Path]) -> list[pq.FileMetaData]:
    """Read the footers of files: their schemas, and rows and bytes of each row group."""
    check_undamaged(files)
    return [_read_footer(file) for file in files]


def _read_footer(file: Path) -> pq.FileMetaData:
    with unreadable(file, CorruptionError, DAMAGED):
        footer = pq.read_metadata(file)
        footer.schema.to_arrow_schema()  # raises an error if the schema is invalid
        fault = footer_fault(footer)
    if fault:
        raise CorruptionError(f"{file} is corrupt: {fault}; {DAMAGED}")
    return footer


def footer_fault(footer: pq.FileMetaData) -> str | None:
    """Return a contradiction between the two lists of column names in a footer, or None if there is none.

    No checksum covers the footer. Row groups also have the names, but pyarrow aborts if it cannot read a damaged one.
    """
    written = written_schema(footer)
    if written is None:
        return None
    names, stored = footer.schema.to_arrow_schema().names, written.names
    if len(names) == len(stored):
        for name, second in zip(names, stored, strict=True):
            if name != second:
                return f"a column is named {quoted(name)} and, in the schema of Arrow, {quoted(second)}"
    return None


def written_schema(footer: pq.FileMetaData) -> pa.Schema | None:
    """Return the Arrow schema stored in a footer, or None if it has none."""
    stored = (footer.metadata or {}).get(b"ARROW:schema")
    return None if stored is None else pa.ipc.read_schema(pa.py_buffer(b64decode(stored)))


def as_written(table: pa.Table, footer: pq.FileMetaData) -> pa.Table:
    """Restore the types with which a table, or some columns of it, was written.

    pyarrow names the items of a list "element" when it reads them, and "item" when it creates them.
    """
    written = written_schema(footer)
    if written is None or any(name not in written.names for name in table.column_names):
        return table
    schema = pa.schema([written.field(name) for name in table.column_names], table.schema.metadata)
    # Types that differ only in item names are equal, so a cast would keep the names.
    return pa.Table.from_arrays(
        table.columns if table.schema.equals(schema) else table.cast(schema).columns, schema=schema
    )


def read_table(file: Path, columns: Sequence[str] | None = None, condition: Any = None) -> pa.Table:
    """Read the rows of a file, or those that fulfil a condition; a string that is not UTF-8 is a CorruptionError."""
    check_undamaged([file])
    with unreadable(file, CorruptionError, DAMAGED):
        table = pq.read_table(
            file, columns=columns, filters=condition, partitioning=None, page_checksum_verification=True
        )
        table.validate(full=True)
        return as_written(table, pq.read_metadata(file))


def read_row(files: Sequence[Path], row: int) -> dict[str, Any] | None:
    """Return one row of concatenated files, reading only its row group, or None if there are fewer rows."""
    for file, footer in zip(files, read_footers(files), strict=True):
        if row >= footer.num_rows:
            row -= footer.num_rows
            continue
        group = 0
        while row >= footer.row_group(group).num_rows:
            row, group = row - footer.row_group(group).num_rows, group + 1
        check_undamaged([file])
        with unreadable(file, CorruptionError, DAMAGED):
            table = pq.ParquetFile(file, page_checksum_verification=True).read_row_group(group)
            table.validate(full=True)
            return dict(table.slice(row, 1).to_pylist()[0])
    return None


def scan_tables(files: Sequence[Path], schema: pa.Schema | None = None) -> "pads.FileSystemDataset":
    """Open files as one dataset that verifies page checksums; reading it may raise any error of Arrow."""
    import pyarrow.dataset as pads  # it imports pandas

    check_undamaged(files)
    options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = pads.ParquetFileFormat(default_fragment_scan_options=options)
    with unreadable(files[0] if files else "", CorruptionError, DAMAGED):  # the first file's schema is that of all
        return pads.dataset([str(file) for file in files], schema=schema, format=form)


def chosen_rows(data: "pads.Dataset", condition: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the rows that fulfil a condition, from the row groups that can have some: a scan reads all for a few."""
    import pyarrow.dataset as pads

    if isinstance(data, pads.FileSystemDataset):
        groups = [part for each in data.get_fragments(condition) if (part := each.subset(condition)).row_groups]
        data = pads.FileSystemDataset(groups, data.schema, data.format)
    return data.to_table(columns=columns, filter=condition)
