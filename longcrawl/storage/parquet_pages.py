"""Sizes of the pages of a parquet column, from their headers: Arrow allocates by these, not by what the footer says.

A header is a struct of Thrift's compact protocol: its type, bytes when decompressed and as stored, and in a struct for
each type how many values it has and how they are encoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

__all__ = ["Page", "column_pages"]

HEADER_BYTES = 1 << 16
"""A header may hold a minimum and a maximum of the values; Arrow reads 16 kB of it first, and 16 MB at most."""
MOST_HEADER_BYTES = 16 << 20
DEEPEST = 8
DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7
DICTIONARY_ENCODINGS = (2, 8)
_DETAILS = {5: "values", 7: "dictionary", 8: "values"}
"""Fields of a header that describe pages of each type: data, dictionary, data of version 2."""


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


def column_pages(file: BinaryIO, chunk: Any) -> Iterator[Page]:
    """Yield the pages of a column chunk, whose metadata are pyarrow's.

    Raises:
        ValueError: a header is not one.

    """
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < place:
        place = chunk.dictionary_page_offset
    left = chunk.num_values
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
    """Reads Thrift's compact protocol; whole numbers and structs are kept, all else is skipped."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._number()
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # a boolean, in its kind
            return None
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind == 7:
            return self._skip(8)
        if kind == 8:
            return self._skip(self._unsigned())
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("the header of a page is not one")

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _skip(self, many: int) -> None:
        self.place += many
        if self.place > len(self._content):
            raise IndexError

    def _unsigned(self) -> int:
        number, shift = 0, 0
        while shift < 70:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
        raise ValueError("a number in the header of a page is too long")

    def _number(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)
