"""Parquet files of others: their columns, and where the pages of these are.

Headers and footer are structs of Thrift's compact protocol. A header has its type, bytes when decompressed and as
stored, and in a struct for each type how many values it has and how they are encoded. The footer is read here as well,
because pyarrow ends the process where a damaged footer's statistics of a column contradict themselves.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.errors import reason_of
from longcrawl.printable import listed
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.storage.stored_tables import footer_fault

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
KEPT_ENCODINGS = (0, *DICTIONARY_ENCODINGS)
"""Plain values and places in a dictionary: of no other page can Arrow make places in one."""
_DETAILS = {5: "values", 7: "dictionary", 8: "values"}
"""Fields of a header that describe pages of each type: data, dictionary, data of version 2."""


@dataclass(frozen=True)
class Chunk:
    """The values of one column in one row group: where its pages are."""

    kind: int
    """Physical type of the values."""
    codec: int
    """How pages are compressed, -1 where the footer does not say."""
    values: int
    data_page: int
    dictionary_page: int

    @property
    def is_binary(self) -> bool:
        """Whether values are strings of bytes."""
        return self.kind in BINARY_TYPES


@dataclass(frozen=True)
class Page:
    """One page: what it holds, bytes when decompressed, and how many values."""

    kind: Literal["dictionary", "values"]
    bytes: int
    values: int
    encoding: int
    start: int
    """Where it begins in the file, behind its header."""
    stored: int
    """Bytes in the file."""

    @property
    def shares_prefixes(self) -> bool:
        """Whether values are stored as what they share with the one before, and the rest."""
        return self.encoding == DELTA_BYTE_ARRAY

    @property
    def uses_dictionary(self) -> bool:
        """Whether values are stored as places in the dictionary."""
        return self.kind == "values" and self.encoding in DICTIONARY_ENCODINGS

    @property
    def may_be_kept(self) -> bool:
        """Whether Arrow can read it as part of a dictionary, or of places in one."""
        return self.kind == "dictionary" or self.encoding in KEPT_ENCODINGS


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


def column_chunks(file: BinaryIO) -> Iterator[dict[tuple[str, ...], Chunk]]:
    """Yield the column chunks of each row group, by the steps to the column; more than one if it is nested.

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


def _chunks(row_group: Any) -> dict[tuple[str, ...], Chunk]:
    """Return the chunks of a row group: ``columns`` is its field 1, ``meta_data`` field 3 of each."""
    chunks: dict[tuple[str, ...], Chunk] = {}
    try:
        for column in row_group[1]:
            metadata = column[3]
            path, codec = metadata[3], metadata.get(4)
            numbers = [metadata[1], metadata[5], metadata[9], metadata.get(11, 0)]
            if not all(isinstance(each, int) and each >= 0 for each in numbers):
                raise ValueError("a column chunk of its footer has no place")
            kind, values, data_page, dictionary_page = numbers
            codec = codec if isinstance(codec, int) else -1
            chunks.setdefault(
                tuple(step.decode() for step in path), Chunk(kind, codec, values, data_page, dictionary_page)
            )
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
        is_dictionary, place = kind == DICTIONARY_PAGE, place + used
        yield Page("dictionary" if is_dictionary else "values", decompressed, values, encoding, place, stored)
        left -= 0 if is_dictionary else values
        place += stored


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
