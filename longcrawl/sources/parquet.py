"""Columns of parquet files of others, read in bounded memory.

Arrow allocates by what the headers of pages say, not by what the footer does, so these are read first. Headers and
footer are structs of Thrift's compact protocol. A header has its type, bytes when decompressed and as stored, and in a
struct for each type how many values it has and how they are encoded. The footer is read here as well, because pyarrow
ends the process where a damaged footer's statistics of a column contradict themselves.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.errors import reason_of
from longcrawl.printable import listed
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.sources.json_lines import is_utf8
from longcrawl.storage.stored_tables import footer_fault

ROWS = 1_024
"""Rows of a parquet file in one table."""
BATCH_BYTES = 256 << 20
"""What the values of a parquet file in one table may take, a text of ``max_record_bytes`` and a page aside."""
PAGES_BYTES = 1 << 30
"""What the largest pages of a row group may take together, where ``max_record_bytes`` does not ask for more."""

HEADER_BYTES = 1 << 16
"""A header may hold a minimum and a maximum of the values; Arrow reads 16 kB of it first, and 16 MB at most."""
MOST_HEADER_BYTES = 16 << 20
DEEPEST = 8
DICTIONARY_PAGE = 2
ROW_GROUPS = 4
BINARY_TYPES = (6, 7)
"""Physical types of strings of bytes, of any and of one length."""
DELTA_BYTE_ARRAY = 7
DICTIONARY_ENCODINGS = (2, 8)
_DETAILS = {5: "values", 7: "dictionary", 8: "values"}
"""Fields of a header that describe pages of each type: data, dictionary, data of version 2."""


@dataclass(frozen=True)
class Chunk:
    """The values of one column in one row group: where its pages are."""

    is_binary: bool
    """Whether values are strings of bytes."""
    values: int
    data_page: int
    dictionary_page: int


@dataclass(frozen=True)
class Page:
    """One page: what it holds, bytes when decompressed, and how many values."""

    kind: Literal["dictionary", "values"]
    bytes: int
    values: int
    shares_prefixes: bool
    """Whether values are stored as what they share with the one before, and the rest."""

    uses_dictionary: bool
    """Whether values are stored as places in the dictionary."""


@contextmanager
def open_parquet(path: str) -> Iterator[tuple[pq.ParquetFile, str]]:
    """Open a local or remote parquet file, compare what its footer says of its columns, and return its local path too.

    Raises:
        DamagedFileError: it is missing or corrupt, as reading it within the block may find.
    """
    with local_copy(path) as copy:
        try:
            with pq.ParquetFile(copy, page_checksum_verification=True, pre_buffer=False) as file:
                if fault := footer_fault(file.metadata):
                    raise DamagedFileError(f"is corrupt: {fault}")
                yield file, copy
        except FileNotFoundError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DamagedFileError(f"is corrupt: {reason_of(error)}") from error


def read_columns(path: str, schema: pa.Schema) -> pa.Table:
    """Read some columns of a small file whole.

    Raises:
        DamagedFileError: it is missing or corrupt, or lacks a column.
    """
    with open_parquet(path) as (file, _):
        names = file.schema_arrow.names
        if missing := [name for name in schema.names if name not in names]:
            raise DamagedFileError(f"has no column {missing[0]!r}; its columns: {listed(names)}")
        table = file.read(schema.names, use_threads=False)
        if table.schema != schema:
            table = table.select(schema.names).cast(schema)
        table = table.combine_chunks()
        table.validate(full=True)
        return table


def read_rows(file: pq.ParquetFile, path: str, columns: list[str], most: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows and the number of the first, as many at a time as the memory allows by the headers of the pages.

    Values of more than ``most`` bytes may stay in a dictionary. File and path are those of :func:`open_parquet`.

    Raises:
        DamagedFileError: it is corrupt, or has pages that are too large.
    """
    first = 0
    try:
        for batch in _batches(file, path, columns, most):
            yield first, pa.Table.from_batches([batch])
            first += batch.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedFileError(f"is corrupt after row {first}: {reason_of(error)}") from error
    if first != file.metadata.num_rows:
        raise DamagedFileError(f"is corrupt: it has {first} rows, its footer counts another number")


def _batches(file: pq.ParquetFile, path: str, columns: list[str], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a parquet file, as many at a time as the memory allows by the headers of its pages.

    A dictionary page of some kB can hold one text of 64 MB, and the rows of a batch all of them: a dictionary whose
    texts could fill the memory stays one.
    """
    with (
        Path(path).open("rb") as headers,
        pq.ParquetFile(path, read_dictionary=columns, page_checksum_verification=True) as kept,
    ):
        for group, chunks in zip(range(file.num_row_groups), column_chunks(headers), strict=True):
            read = [_column_bytes(kept, headers, group, chunks, field) for field in columns]
            largest = sum(int(each.pages.max(initial=0)) for each in read)
            if largest > (most_pages := max(PAGES_BYTES, 4 * most)):
                raise DamagedFileError(
                    f"has pages of {largest:,} bytes in its row group {group}, {most_pages:,} can be read at "
                    "once; write it again with smaller pages"
                )
            source = kept if any(each.longest * ROWS > BATCH_BYTES for each in read) else file
            row_bytes = sum(max(min(each.longest, most), each.rebuilt) for each in read)
            rows = max(1, min(ROWS, BATCH_BYTES // max(row_bytes, 1)))
            while rows > 1 and sum(each.most_of(rows) for each in read) > max(BATCH_BYTES, 2 * largest):
                rows //= 2
            yield from source.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)


@dataclass(frozen=True)
class _ColumnBytes:
    """What the pages of one column of a row group take."""

    longest: int
    """Of a value in the dictionary."""
    rebuilt: int
    """Of a value at most, where each is stored as its difference to the one before."""
    pages: "np.ndarray[Any, np.dtype[np.int64]]"
    """Bytes of each page, decompressed."""
    values: "np.ndarray[Any, np.dtype[np.int64]]"
    """Values of each page, 0 of the dictionary."""

    def most_of(self, rows: int) -> int:
        """Return the bytes of all pages that so many rows one after the other can touch."""
        ends, total = np.cumsum(self.values), np.concatenate([[0], np.cumsum(self.pages)])
        last = np.searchsorted(ends - self.values, ends - 1 + rows)
        return int((total[last] - total[:-1]).max(initial=0))


def _column_bytes(
    kept: pq.ParquetFile, headers: BinaryIO, group: int, chunks: Mapping[str, Chunk], field: str
) -> _ColumnBytes:
    if (chunk := chunks.get(field)) is None:
        raise DamagedFileError(f"is corrupt: a row group of its footer has no field {field!r}")
    pages = list(column_pages(headers, chunk))
    longest = rebuilt = 0
    if chunk.is_binary:
        rebuilt = max((page.bytes for page in pages if page.shares_prefixes), default=0)
        dictionary = next((page for page in pages if page.kind == "dictionary"), None)
        if dictionary is not None:
            longest = dictionary.bytes
            uses_it = [page.uses_dictionary for page in pages if page.values][:2] == [False, True]
            if longest * ROWS > BATCH_BYTES and longest <= PAGES_BYTES and pages[0] is dictionary and uses_it:
                longest = _longest(kept, group, field, dictionary)
    sizes = np.array([page.bytes for page in pages], np.int64)
    values = np.array([page.values if page.kind == "values" else 0 for page in pages], np.int64)
    return _ColumnBytes(longest, rebuilt, sizes, values)


def _longest(kept: pq.ParquetFile, group: int, field: str, page: Page) -> int:
    """Return the bytes of the longest value of a dictionary; of its page where no first row shows it whole."""
    for batch in kept.iter_batches(1, row_groups=[group], columns=[field], use_threads=False):
        column = batch.column(0)
        if pa.types.is_dictionary(column.type) and len(column.dictionary) == page.values:
            return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
        break
    return page.bytes


def utf8_rows(column: pa.ChunkedArray) -> "np.ndarray[Any, np.dtype[np.bool_]] | None":
    """Return which values of a column of text are UTF-8, null included; None where all are, or it is not of text."""
    if (kind := _kind_of_text(column)) is None:
        return None
    values = column.cast(kind)
    try:
        values.cast(pa.large_string()).validate(full=True)
    except pa.ArrowInvalid:
        return np.array([is_utf8(value or b"") for value in values.cast(pa.large_binary()).to_pylist()])
    return None


def up_to(column: pa.ChunkedArray, most: int) -> "np.ndarray[Any, np.dtype[np.bool_]] | None":
    """Return which values have so many bytes at most, without writing out those of a dictionary; None where all do."""
    if _kind_of_text(column) is None:
        return None
    if not pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column)
    else:
        lengths = pa.chunked_array(
            [pc.binary_length(each.dictionary).cast(pa.int64()).take(each.indices) for each in column.chunks],
            pa.int64(),
        )
    short = pc.fill_null(pc.less_equal(lengths, most), fill_value=True)
    return None if pc.all(short).as_py() else short.to_numpy(zero_copy_only=False)


def _kind_of_text(column: pa.ChunkedArray) -> pa.DataType | None:
    """Return the type of a column's values, of a dictionary those in it; None of what is not text."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return kind if kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()) else None


def column_chunks(file: BinaryIO) -> Iterator[dict[str, Chunk]]:
    """Yield the column chunks of each row group, by column; of a nested column the first.

    Raises:
        ValueError: the footer is none, or encrypted.
    """
    end = file.seek(-8, os.SEEK_END)
    size, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic != b"PAR1" or size > end:
        raise ValueError("it has no footer that is not encrypted")
    file.seek(end - size)
    reader = _Compact(file.read(size))
    try:
        for number, kind in reader.fields():
            if number == ROW_GROUPS:
                yield from map(_chunks, reader.elements())
            else:
                reader.value(kind)
    except IndexError as cut:
        raise ValueError("its footer is cut") from cut


def _chunks(row_group: Any) -> dict[str, Chunk]:
    """Return the chunks of a row group: ``columns`` is its field 1, ``meta_data`` field 3 of each."""
    chunks: dict[str, Chunk] = {}
    try:
        for column in row_group[1]:
            metadata = column[3]
            path, numbers = metadata[3], [metadata[1], metadata[5], metadata[9], metadata.get(11, 0)]
            if not all(isinstance(each, int) and each >= 0 for each in numbers):
                raise ValueError("a column chunk of its footer has no place")
            kind, values, data_page, dictionary_page = numbers
            chunks.setdefault(path[0].decode(), Chunk(kind in BINARY_TYPES, values, data_page, dictionary_page))
    except (LookupError, TypeError, AttributeError) as missing:
        raise ValueError("a column chunk of its footer is incomplete") from missing
    return chunks


def column_pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column chunk.

    Raises:
        ValueError: a header is not one.
    """
    place, left = chunk.data_page, chunk.values
    if 0 < chunk.dictionary_page < place:
        place = chunk.dictionary_page
    while left > 0:
        fields, used = _header(file, place)
        if fields is None:
            return
        kind, decompressed, stored = (fields.get(number, -1) for number in (1, 2, 3))
        details: dict[int, Any] = next(
            (fields[number] for number in _DETAILS if isinstance(fields.get(number), dict)), {}
        )
        values, encoding = details.get(1, 0), details.get(4 if 8 in fields else 2, 0)
        if not all(isinstance(each, int) and each >= 0 for each in (kind, decompressed, stored, values)):
            raise ValueError("a page has no size")
        is_dictionary = kind == DICTIONARY_PAGE
        yield Page(
            "dictionary" if is_dictionary else "values",
            decompressed,
            values,
            encoding == DELTA_BYTE_ARRAY,
            not is_dictionary and encoding in DICTIONARY_ENCODINGS,
        )
        left -= 0 if is_dictionary else values
        place += used + stored


def _header(file: BinaryIO, place: int) -> tuple[dict[int, Any] | None, int]:
    """Return the fields of the header at a place, None at the file's end, and its bytes."""
    many = HEADER_BYTES
    while True:
        file.seek(place)
        content = file.read(many)
        if not content:
            return None, 0
        reader = _Compact(content)
        try:
            return reader.struct(), reader.place
        except IndexError as cut:
            if len(content) < many or many >= MOST_HEADER_BYTES:
                raise ValueError("the header of a page is cut") from cut
            many *= 16


class _Compact:
    """Reads Thrift's compact protocol; floating-point numbers and booleans are skipped.

    Raises IndexError where the content ends too early.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        return {number: self.value(kind, depth) for number, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct, whose value has to be read before the next."""
        number = 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._number()
            yield number, head & 15

    def elements(self, depth: int = 0) -> Iterator[Any]:
        """Yield the elements of a list."""
        head = self._byte()
        many = self._unsigned() if head >> 4 == 15 else head >> 4
        for _ in range(many):
            # A boolean is in the type of a field, but a byte in a list.
            yield self.value(3 if head & 15 in (1, 2) else head & 15, depth)

    def value(self, kind: int, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise ValueError("a value is nested too deeply")
        if kind in (1, 2):
            return None
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind in (7, 8):
            return self._bytes(8 if kind == 7 else self._unsigned())
        if kind in (9, 10):
            return list(self.elements(depth + 1))
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("a value has no type of Thrift")

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _bytes(self, many: int) -> bytes:
        self.place += many
        if self.place > len(self._content):
            raise IndexError
        return self._content[self.place - many : self.place]

    def _unsigned(self) -> int:
        number, shift = 0, 0
        while shift < 70:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
        raise ValueError("a number is too long")

    def _number(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)
