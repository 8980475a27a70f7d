"""Where the tokens of a batch came from: the documents of its rows, with URLs, dates, files and places in them.

A feed's ``origins(step)`` names what batch ``feed[step]`` has, without reading tokens. Outputs of longcrawl record
their documents in tables beside the tokens; of other files an origin has the file and the entry alone.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.errors import CorruptionError, LoaderError, as_lines, unreadable
from longcrawl.formats.buckets.spec import FILE_DOCUMENTS, ComposedBucket
from longcrawl.formats.shards.spec import STARTS
from longcrawl.formats.token_rows import FOUND, ORIGINS
from longcrawl.io.file_systems import fetch
from longcrawl.io.files import reread_when_changed
from longcrawl.io.stored_tables import DAMAGED, read_row, read_table
from longcrawl.loading.identity import output_of
from longcrawl.urls import is_url

Longs = npt.NDArray[np.int64]

REMEMBERED = 16
"""Tables of documents, each of a shard, that are kept in memory."""


@dataclass(frozen=True)
class Origin:
    """A stretch of a row of a batch that is of one document; what nobody recorded is None.

    Attributes:
        row: of the batch.
        start: first column of the stretch, of ``input_ids`` or, of a rectangle, of ``targets``.
        stop: column after its last one.
        token: which token of its document the first one is, counted from 0; documents are counted as they were
            tokenised, with an end of text that stands before them.
        stored_in: file of tokens, array, or JSON lines that are tokenised as they are read.
        entry: row, entry or sample in there; of JSON lines the line, from 0.
        document: its id in the source.
        url: of the document.
        date: when it was crawled, as its source spells it.
        source: what the source calls where it is from.
        file: of the source; of a web archive the archive.
        offset: first byte of its record in ``file``.
        roll: by how much the row is rolled.
        seam: column at which the beginning of the document follows its end, where the row has that; else None.
    """

    row: int
    start: int
    stop: int
    token: int
    stored_in: str
    entry: int
    document: str | None = None
    url: str | None = None
    date: str | None = None
    source: str | None = None
    file: str | None = None
    offset: int | None = None
    roll: int | None = None
    seam: int | None = None

    def __str__(self) -> str:
        tokens = f"tokens {self.token:,} to {self.token + self.stop - self.start - 1:,}"
        lines = [f"{self.start:,}-{self.stop - 1:,}  {self.document or 'a document without an id'}, {tokens}"]
        lines += [f"  {name}  {value}" for name in ("url", "date", "source") if (value := getattr(self, name))]
        if self.file is not None:
            lines.append(f"  file  {self.file}" + ("" if self.offset is None else f", byte {self.offset:,}"))
        if self.roll is not None:
            seam = "" if self.seam is None else f"; its first token follows its last at column {self.seam:,}"
            lines.append(f"  rolled by {self.roll:,}{seam}")
        return as_lines([*lines, f"  stored in {self.stored_in}, entry {self.entry:,}"])


def recorded_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an origin that a row of a table of documents has, as texts and a whole number."""
    named = {"document": document.get("id")} | {name: document.get(name) for name in ("url", *FOUND[:-1])}
    offset = document.get("offset")
    texts = {name: None if value is None else str(value) for name, value in named.items()}
    return texts | {"offset": offset if isinstance(offset, int) else None}


@dataclass(frozen=True, eq=False)
class ShardDocuments:
    """The documents of one shard, as the output that it belongs to has recorded them.

    Attributes:
        table: a row for each document; without rows where nobody recorded any.
        max_length: tokens of a window.
        overlap_size: tokens that a window shares with the one before it.
    """

    table: pa.Table
    max_length: int = 0
    overlap_size: int = 0

    @cached_property
    def _firsts(self) -> Longs:
        """The first entry of each document: int64 [documents]."""
        if "entry" not in self.table.column_names:
            return np.arange(self.table.num_rows)
        return np.asarray(self.table["entry"].to_numpy(), np.int64)

    def find(self, entry: int) -> tuple[dict[str, Any], int]:
        """Return what is known of the document of an entry, and which of its tokens the entry begins with."""
        if not self.table.num_rows:
            return {}, 0
        row = int(np.searchsorted(self._firsts, entry, "right")) - 1
        document = self.table.slice(row, 1).to_pylist()[0]
        window = entry - int(self._firsts[row])
        if not window:
            return recorded_fields(document), 0
        starts = document.get(STARTS)
        return recorded_fields(document), starts[window] if starts else window * (self.max_length - self.overlap_size)


@reread_when_changed(size=REMEMBERED)
def shard_documents(path: str) -> ShardDocuments:
    """Return what is recorded of the documents of a shard, by the output around it or in its own columns.

    Raises:
        CorruptionError: the table is missing, or not as it was written.
    """
    output = output_of(path)
    if output is None:
        return ShardDocuments(_own_columns(path))
    folder, described = output
    inside = (path if is_url(path) else str(Path(path).absolute())).removeprefix(f"{folder}/")
    name = f"documents/{inside.rpartition('.')[0]}.parquet"
    if name not in described["files"]:
        return ShardDocuments(pa.table({}))
    table = _remote_table(folder, name, described) if is_url(folder) else read_table(Path(folder, name))
    return ShardDocuments(table, described.get("max_length") or 0, described.get("overlap_size") or 0)


def _own_columns(path: str) -> pa.Table:
    """Read what tokens in parquet have beside them; nothing of other shards."""
    if not path.endswith(".parquet") or is_url(path):
        return pa.table({})
    with unreadable(path, CorruptionError, DAMAGED):
        names = [name for name in (*ORIGINS, *FOUND) if name in pq.read_schema(path).names]
    return read_table(Path(path), names) if names else pa.table({})


def _remote_table(folder: str, name: str, described: Mapping[str, Any]) -> pa.Table:
    url = f"{folder}/{name}"
    try:
        content = fetch(url)
    except FileNotFoundError as missing:
        raise CorruptionError(f"{url} is missing, which says where tokens are from; copy it back") from missing
    if hashlib.sha256(content).hexdigest() != described["files"][name]["sha256"]:
        raise CorruptionError(f"{url} has been changed: its SHA-256 differs from the one recorded; copy it again")
    with unreadable(url, CorruptionError, DAMAGED):
        return pq.read_table(pa.BufferReader(content))


def entry_origins(path: str, ends: Longs | None, row: int, column: int, first: int, stop: int) -> Iterator[Origin]:
    """Yield the origins of tokens ``first:stop`` of a shard, entry by entry.

    Args:
        path: of the shard.
        ends: int64 [entries], where each ends; None where nobody knows.
        row: of the batch.
        column: of the first token.
        first: token of the shard.
        stop: token after the last.
    """
    if ends is None:
        if stop > first:
            yield Origin(row, column, column + stop - first, first, path, 0)
        return
    documents = shard_documents(path)
    entry, shift = int(np.searchsorted(ends, first, "right")), column - first
    while first < stop:
        end = min(int(ends[entry]), stop)
        if end > first:
            recorded, token = documents.find(entry)
            token += first - (int(ends[entry - 1]) if entry else 0)
            yield Origin(row, first + shift, end + shift, token, path, entry, **recorded)
        first, entry = max(end, first), entry + 1


def sample_origins(bucket: object, sample: int, row: int) -> Iterator[Origin]:
    """Yield the origins of a sample of a composed dataset, piece by piece.

    Args:
        bucket: a :class:`longcrawl.formats.buckets.spec.ComposedBucket`.
        sample: of it.
        row: of the batch.

    Raises:
        LoaderError: the dataset is in memory, and has no tables.
    """
    if not isinstance(bucket, ComposedBucket):
        raise LoaderError("a composed dataset in memory records no origins: write it with to_composed, and open that")
    file = Path(bucket.root) / "pieces" / bucket.path / f"{sample // bucket.file_samples:05d}.parquet"
    column, split = 0, bucket.path.rpartition("/")[0]
    for piece in read_table(file, condition=pc.field("sample") == sample).to_pylist():
        number, place = divmod(piece["document"], FILE_DOCUMENTS)
        documents = Path(bucket.root) / "documents" / split / f"{number:05d}.parquet"
        recorded = recorded_fields(read_row([documents], place) or piece)
        stop = column + piece["length"]
        yield Origin(row, column, stop, piece["start"], f"{bucket.root}/{bucket.path}", sample, **recorded)
        column = stop


def rolled_origins(
    row: int, columns: range, length: int, stored: tuple[str, int], document: Mapping[str, Any] | None
) -> Iterator[Origin]:
    """Yield the origins of a window of a row of a rectangle: one, or two where the row's seam is within.

    Args:
        row: of the batch.
        columns: of the rectangle.
        length: of a row.
        stored: the array, and the row in it.
        document: what the table of rows has of it; None without such a table.
    """
    recorded = {} if document is None else recorded_fields(document)
    roll = None if document is None else document.get("roll")
    shift = roll or 0
    within = columns.start < shift < columns.stop
    seam = shift - columns.start if within else None
    for start, stop in [(columns.start, shift), (shift, columns.stop)] if within else [(columns.start, columns.stop)]:
        token = (start - shift) % length
        places = (start - columns.start, stop - columns.start)
        yield Origin(row, *places, token, *stored, **recorded, roll=roll, seam=seam)
