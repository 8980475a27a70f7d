"""Queues of a run: documents and pages that another program must read (OCR) or fetch again.

Like the ledger, a queue is a folder of Parquet files, one per part, in the folder of the run. Documents in it may be
kept, without these pages, or removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from longcrawl.core.counts import OCR, PURPOSE, REFETCH, Counts, add_counts, known_pages
from longcrawl.core.display import Cell, Column, Table, Tabular, counted
from longcrawl.core.ledger import open_ledger

SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("id", "url", "source", "file")),
        *(pa.field(name, pa.int64()) for name in ("offset", "length")),
        *(pa.field(name, pa.string()) for name in ("digest", "reason")),
        pa.field("page_numbers", pa.list_(pa.int32())),
        *(pa.field(name, pa.int32()) for name in ("pages", "pages_read")),
        *(pa.field(name, pa.int64()) for name in ("bytes", "bytes_announced")),
        pa.field("truncated", pa.string()),
    ]
)
"""Columns of a queue; null if the documents lack them.

* ``source``, ``file``, ``offset``, ``length``: the place of the document in its source.
* ``reason``: the rule that removed the document, or why pages of a kept one are missing.
* ``page_numbers``: the missing pages, counted from 1; null for a document to fetch again.
* ``pages``, ``pages_read``: pages in the available part of the file, and those that could be read, blank ones included.
* ``bytes``, ``bytes_announced``: the available size of the file, and the size that the server announced, if comparable.
"""
ORIGIN = ("id", "url", "source", "file", "offset", "length", "digest", "bytes_announced", "truncated")
"""Columns that are copied from the documents."""

Queued = Mapping[str, pa.Table]
"""Rows for each queue, ``SCHEMA``."""


def queue_rows(documents: pa.Table, wanted: pa.Array, columns: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a queue for the documents that a mask chooses, ``SCHEMA``.

    Args:
        documents: a batch with the origins of its documents.
        wanted: bool [documents], the mask.
        columns: arrays of all documents, for the other columns.
    """
    given = {name: documents[name] for name in ORIGIN if name in documents.column_names} | dict(columns)
    arrays = [given.get(field.name, pa.nulls(documents.num_rows, field.type)) for field in SCHEMA]
    return pa.table(arrays, SCHEMA.names).cast(SCHEMA).filter(wanted)


def count_queued(queued: Queued) -> Counts:
    """Count documents and pages by queue and reason."""
    return add_counts(
        {name: {row["reason"]: {"documents": 1, "pages": _missing_pages(row)}}}
        for name, rows in queued.items()
        for row in rows.select(["reason", "page_numbers", "pages", "pages_read"]).to_pylist()
    )


def _missing_pages(row: Mapping[str, Any]) -> int:
    """Return the number of pages that are known to be missing."""
    if row["page_numbers"] is not None:
        return len(row["page_numbers"])
    return max(0, (row["pages"] or 0) - (row["pages_read"] or 0))


_SHOWN = 20
"""Documents of a queue that are printed."""


@dataclass(frozen=True, repr=False)
class Queues(Tabular):
    """Queues of a run: print as counts by reason, and the first documents of each."""

    run: str
    ocr: pa.Table
    """Documents with pages for OCR, ``SCHEMA``, in the order of the source."""
    refetch: pa.Table
    """Documents to fetch again, in the same form."""

    def tables(self) -> list[Table]:
        """Return two tables for each queue: the counts by reason, and the first documents."""
        return [table for name, rows in ((OCR, self.ocr), (REFETCH, self.refetch)) for table in _tables(name, rows)]


def read_queues(folder: Path, run: str) -> Queues:
    """Read the queues of a run in a folder; LedgerError if one is damaged."""
    return Queues(run, *(_read(folder / name) for name in (OCR, REFETCH)))


def _read(folder: Path) -> pa.Table:
    with open_ledger(folder, SCHEMA) as rows:
        return rows.to_table()


def _tables(name: str, rows: pa.Table) -> Iterator[Table]:
    counts = count_queued({name: rows}).get(name, {})
    reasons: list[list[Cell]] = [
        [reason, count["documents"], known_pages(name, count)] for reason, count in counts.items()
    ]
    columns = [Column("reason", "name"), Column("documents", "count"), Column("pages", "count")]
    title = f"{name}: {counted(rows.num_rows, 'document')} {PURPOSE[name]}"
    if not reasons:
        yield Table([Column(title)], [])
        return
    yield Table(columns, reasons, title)
    first = rows.slice(0, _SHOWN).to_pylist()
    places: list[list[Cell]] = [[row["id"], row["url"] or row["source"], _missing(row)] for row in first]
    more = rows.num_rows - len(first)
    yield Table(
        [Column("id", "name"), Column("from", "name"), Column("missing")],
        places,
        notes=[f"and {more:,} more in {name}/ of the run", ""] if more else [""],
    )


def _missing(row: Mapping[str, Any]) -> str:
    if row["page_numbers"] is not None:
        return f"{len(row['page_numbers'])} of {row['pages']} pages"
    here, announced = row["bytes"], row["bytes_announced"] or 0
    lost = f"{announced - here:,} of {announced:,} bytes" if announced > here else f"bytes after {here:,}"
    pages = _missing_pages(row)
    return lost + (f", {pages:,} of {row['pages']:,} pages" if pages else "")
