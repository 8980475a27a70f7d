"""Sizes of the pages of a parquet column, from their headers: Arrow allocates by these, not by what the footer says.

Headers and footer are structs of Thrift's compact protocol. A header has its type, bytes when decompressed and as
stored, and in a struct for each type how many values it has and how they are encoded. The footer is read here as well,
because pyarrow ends the process where a damaged footer's statistics of a column contradict themselves.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

__all__ = ["Chunk", "Page", "column_chunks", "column_pages"]

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

    @property
    def rows(self) -> int:
        """Rows of a page of values of a column that is not nested."""
        return self.values if self.kind == "values" else 0


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
        if depth > DEEPEST:
            raise ValueError("a struct is nested too deeply")
        return {number: self.value(kind, depth) for number, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct, whose value has to be read before the next."""
        number = 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._number()
            yield number, head & 15

    def elements(self, depth: int = 0) -> Iterator[Any]:
        """Yield the elements of a list."""
        if depth > DEEPEST:
            raise ValueError("a list is nested too deeply")
        head = self._byte()
        many = self._unsigned() if head >> 4 == 15 else head >> 4
        for _ in range(many):
            # A boolean is in the type of a field, but a byte in a list.
            yield self.value(3 if head & 15 in (1, 2) else head & 15, depth)

    def value(self, kind: int, depth: int = 0) -> Any:
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
