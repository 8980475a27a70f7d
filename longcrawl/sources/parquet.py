"""Reads parquet files from other writers in bounded memory and checks their pages.

Arrow allocates by what the headers of pages say, not by what the footer does, so these are read first.

Headers and footer are structs of Thrift's compact protocol. A header has its type, bytes when decompressed and as
stored, and in a struct for each type how many values it has and how they are encoded. The footer is read here as well,
because pyarrow ends the process where a damaged footer's statistics of a column contradict themselves.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.documents import column_at
from longcrawl.core.sources import is_utf8
from longcrawl.errors import listed, reason_of
from longcrawl.io.stored_tables import footer_fault
from longcrawl.sources.files import DamagedFileError, local_copy

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


ROWS = 1_024
"""Rows of a parquet file in one table."""
BATCH_BYTES = 256 << 20
"""What the values of a parquet file in one table may take, a text of ``max_record_bytes`` and a page aside."""
PAGES_BYTES = 1 << 30
"""What the largest pages of a row group may take together, where ``max_record_bytes`` does not ask for more."""

PLAIN_ENCODINGS = (0, 2)
"""How the values of a dictionary are stored that lie each behind its length."""
STRINGS = 6
"""The physical type of strings of any length."""
CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
MOST_LENGTHS = 1 << 16
"""Of so many values of a dictionary the lengths are read one after the other."""
_LENGTH = struct.Struct("<I")


def read_rows(
    file: pq.ParquetFile, path: str, columns: Mapping[str, Sequence[str]], most: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows and the number of the first, as many at a time as the memory allows by the headers of the pages.

    ``columns`` has the steps to each column, more than one of a field in a struct. Values of more than ``most`` bytes
    may be kept in a dictionary. Views and bytes of one length become bytes of any length. File and path are those of
    :func:`open_parquet`.

    Raises:
        DamagedFileError: it is corrupt, or has pages that are too large.
    """
    first = 0
    try:
        paths = {name: tuple(steps) for name, steps in columns.items()}
        for batch in _batches(file, path, list(paths.values()), most):
            table = pa.table({name: _any_length(column_at(batch, steps)) for name, steps in paths.items()})
            yield first, table
            first += table.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedFileError(f"is corrupt after row {first}: {reason_of(error)}") from error
    if first != file.metadata.num_rows:
        raise DamagedFileError(f"is corrupt: it has {first} rows, its footer counts another number")


def _any_length(column: pa.Array) -> pa.Array:
    """Return views and bytes of one length as bytes of any, which Arrow can filter and the checks of rows know."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind, types = column.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    return column


def _batches(
    file: pq.ParquetFile, path: str, columns: Sequence[tuple[str, ...]], most: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a parquet file, as many at a time as the memory allows by the headers of its pages.

    A dictionary page of some kB can hold one text of 64 MB, and the rows of a batch all of them: a dictionary whose
    texts could fill the memory stays one.
    """
    with Path(path).open("rb") as headers, ExitStack() as opened:

        @cache
        def again(*names: str) -> pq.ParquetFile:
            kept = pq.ParquetFile(
                path, metadata=file.metadata, read_dictionary=names, page_checksum_verification=True, pre_buffer=False
            )
            return opened.enter_context(kept)

        for group, chunks in zip(range(file.num_row_groups), column_chunks(headers), strict=True):
            read = [_column(headers, chunks, *steps) for steps in columns]
            if sum(each.largest for each in read) > (most_pages := max(PAGES_BYTES, 4 * most)):
                raise DamagedFileError(
                    f"has pages of {sum(each.largest for each in read):,} bytes in its row group {group}, "
                    f"{most_pages:,} can be read at once; write it again with smaller pages"
                )
            kept = partial(again, *(each.name for each in read if each.may_be_kept))
            if (batch := _at_once(kept, group, read, most)) is not None:
                yield batch
                continue
            longest = [_longest(kept, headers, group, each) for each in read]
            source, rows = file, _rows_at_once(read, longest, most)
            if long := [each for each, size in zip(read, longest, strict=True) if size * ROWS > BATCH_BYTES]:
                source = kept()
                if not _keeps(source, long) or _repeats_values(source, group, read):
                    source, rows = file, _rows_at_once(read, [each.bound for each in read], PAGES_BYTES)
            names = [each.name for each in read]
            yield from source.iter_batches(rows, row_groups=[group], columns=names, use_threads=False)


@dataclass(frozen=True)
class _Column:
    """One column of a row group: where its pages are, and what they take."""

    path: tuple[str, ...]
    """The steps to it, more than one of a field in a struct."""
    chunk: Chunk
    pages: Sequence[Page]

    @property
    def name(self) -> str:
        """The name by which pyarrow reads it."""
        return ".".join(self.path)

    @property
    def is_nested(self) -> bool:
        """Whether it is a field of a struct, which Arrow does not read as a dictionary."""
        return len(self.path) > 1

    @cached_property
    def dictionary(self) -> Page | None:
        """The page of its dictionary, where values are strings."""
        pages = self.pages if self.chunk.is_binary else ()
        return next((page for page in pages if page.kind == "dictionary"), None)

    @property
    def bound(self) -> int:
        """How long a value of its dictionary is at most, by what its page takes."""
        if (page := self.dictionary) is None:
            return 0
        return page.bytes if self.chunk.kind == STRINGS else -(-page.bytes // max(page.values, 1))

    @property
    def is_dictionary(self) -> bool:
        """Whether all values are places in the dictionary."""
        return all(page is self.dictionary or page.uses_dictionary for page in self.pages)

    @property
    def may_be_kept(self) -> bool:
        """Whether Arrow can read it as a dictionary."""
        return not self.is_nested and all(page.may_be_kept for page in self.pages)

    @cached_property
    def hides_long(self) -> bool:
        """Whether its dictionary might hold a value that fills a batch in some rows, and can be read to find out."""
        uses_it = [page.uses_dictionary for page in self.pages if page.values][:2] == [False, True]
        could = self.chunk.kind == STRINGS and BATCH_BYTES < self.bound * ROWS <= PAGES_BYTES * ROWS
        return could and uses_it and self.pages[0] is self.dictionary and not self.is_nested

    @property
    def rebuilt(self) -> int:
        """The bytes of a value at most, where each is stored as its difference to the one before."""
        pages = self.pages if self.chunk.is_binary else ()
        return max((page.bytes for page in pages if page.shares_prefixes), default=0)

    @property
    def largest(self) -> int:
        """The bytes of its largest page, decompressed."""
        return max((page.bytes for page in self.pages), default=0)

    def most_of(self, rows: int) -> int:
        """Return the bytes of all pages that so many rows one after the other can touch."""
        values = np.array([page.values if page.kind == "values" else 0 for page in self.pages], np.int64)
        ends, total = np.cumsum(values), np.cumsum([0, *(page.bytes for page in self.pages)])
        last = np.searchsorted(ends - values, ends - 1 + rows)
        return int((total[last] - total[:-1]).max(initial=0))


def _column(headers: BinaryIO, chunks: Mapping[tuple[str, ...], Chunk], *path: str) -> _Column:
    if (chunk := chunks.get(path)) is None:
        raise DamagedFileError(f"is corrupt: a row group of its footer has no field {'.'.join(path)!r}")
    return _Column(path, chunk, list(column_pages(headers, chunk)))


def _rows_at_once(read: Sequence[_Column], longest: Sequence[int], most: int) -> int:
    """Return how many rows a batch may have, by the longest value of each column's dictionary."""
    row_bytes = sum(max(min(long, most), each.rebuilt) for each, long in zip(read, longest, strict=True))
    rows = max(1, min(ROWS, BATCH_BYTES // max(row_bytes, 1)))
    largest = sum(each.largest for each in read)
    while rows > 1 and sum(each.most_of(rows) for each in read) > max(BATCH_BYTES, 2 * largest):
        rows //= 2
    return rows


def _at_once(
    kept: Callable[[], pq.ParquetFile], group: int, read: Sequence[_Column], most: int
) -> pa.RecordBatch | None:
    """Return the rows of a group that are one batch in any case, dictionaries kept; None where they are not.

    A writer that looks at the size of a dictionary after each 1,024 texts leaves all texts of such a group in it: here
    it is decompressed once. What is unsound is left to those who read it as texts, and describe it.
    """
    rows, hidden = read[0].chunk.values, [each for each in read if each.hides_long]
    if not hidden or not all(each.is_dictionary for each in hidden):
        return None
    if _rows_at_once(read, [0 if each.hides_long else each.bound for each in read], most) < rows:
        return None
    source, names = kept(), [each.name for each in read]
    if not _keeps(source, hidden):
        return None
    try:
        batch = next(source.iter_batches(ROWS, row_groups=[group], columns=names, use_threads=False))
    except (OSError, ValueError, pa.ArrowException, StopIteration):
        return None
    dictionaries = filter(_is_dictionary, batch.columns)
    if batch.num_rows != rows or _repeats(batch, read) or not all(map(_has_its_values, dictionaries)):
        return None
    longest = [_longest_in(batch.column(each.name), each) for each in read]
    return batch if rows <= _rows_at_once(read, longest, most) else None


def _keeps(kept: pq.ParquetFile, columns: Sequence[_Column]) -> bool:
    """Return whether a file's columns are read as dictionaries: others write out each value, however long it is."""
    return all(not each.is_nested and _is_dictionary(kept.schema_arrow.field(each.name)) for each in columns)


def _repeats_values(kept: pq.ParquetFile, group: int, read: Sequence[_Column]) -> bool:
    names = [each.name for each in read]
    batches = kept.iter_batches(1, row_groups=[group], columns=names, use_threads=False)
    return any(_repeats(batch, read) for batch in islice(batches, 1))


def _repeats(batch: pa.RecordBatch, read: Sequence[_Column]) -> bool:
    """Return whether a dictionary repeats a value: Arrow drops it, and the places of those behind it are wrong."""
    stored = ((column_at(batch, each.path), each.dictionary) for each in read if each.dictionary)
    return any(_is_dictionary(values) and len(values.dictionary) < page.values for values, page in stored)


def _is_dictionary(column: pa.Array | pa.Field) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _has_its_values(column: pa.DictionaryArray) -> bool:
    """Return whether each place in a dictionary is one."""
    places = pc.min_max(column.indices)
    least, most = places["min"].as_py(), places["max"].as_py()
    return most is None or 0 <= least <= most < len(column.dictionary)


def _longest(kept: Callable[[], pq.ParquetFile], headers: BinaryIO, group: int, column: _Column) -> int:
    """Return how long the values of a column's dictionary are at most."""
    if not column.hides_long:
        return column.bound
    try:
        return _longest_stored(headers, column)
    except (OSError, ValueError, LookupError, pa.ArrowException, struct.error):
        batches = kept().iter_batches(1, row_groups=[group], columns=[column.name], use_threads=False)
        return max((_longest_in(batch.column(0), column) for batch in islice(batches, 1)), default=column.bound)


def _longest_stored(headers: BinaryIO, column: _Column) -> int:
    """Return the bytes of the longest value in the page of a dictionary; what is not plain raises."""
    page, chunk = column.dictionary, column.chunk
    if page is None or page.encoding not in PLAIN_ENCODINGS or page.values > MOST_LENGTHS:
        raise ValueError("its values are not a few, each behind its length")
    headers.seek(page.start)
    content: bytes | memoryview = headers.read(page.stored)
    if chunk.codec:
        content = memoryview(pa.decompress(content, page.bytes, CODECS[chunk.codec]))
    at = longest = 0
    for _ in range(page.values):
        (size,) = _LENGTH.unpack_from(content, at)
        longest, at = max(longest, size), at + 4 + size
    if at > len(content):
        raise ValueError("its last value is cut")
    return longest


def _longest_in(values: pa.Array, column: _Column) -> int:
    """Return the bytes of the longest value of a dictionary that was read; of its page where it is not all there."""
    page = column.dictionary
    if page is None or not column.hides_long or not pa.types.is_dictionary(values.type):
        return column.bound
    if len(values.dictionary) != page.values:
        return column.bound
    return int(pc.max(pc.binary_length(values.dictionary)).as_py() or 0)


def utf8_rows(column: pa.ChunkedArray) -> "np.ndarray[Any, np.dtype[np.bool_]] | None":
    """Return which values of a column of text are UTF-8, null included; None where all are, or it is not of text."""
    if (kind := _kind_of_text(column)) is None:
        return None
    try:
        values = column.cast(pa.large_string())  # of bytes, this looks at all of them
        if kind in (pa.string(), pa.large_string()):
            values.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([is_utf8(value or b"") for value in column.cast(pa.large_binary()).to_pylist()])
    return None


def written_out(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with the values of its dictionary in its rows; not copied where the rows are these in order."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = pa.large_binary() if column.type.value_type in (pa.binary(), pa.large_binary()) else pa.large_string()
    return pa.chunked_array([_in_order(each).cast(kind) for each in column.chunks], kind)


def _in_order(column: pa.DictionaryArray) -> pa.Array:
    if column.indices.null_count or not len(column) or not _has_its_values(column):
        return column
    places = column.indices.to_numpy()
    return column if np.any(np.diff(places) != 1) else column.dictionary.slice(places[0], len(places))


def up_to(column: pa.ChunkedArray, most: int) -> "np.ndarray[Any, np.dtype[np.bool_]] | None":
    """Return which values have so many bytes at most, without writing out those of a dictionary; None where all do."""
    if column.nbytes <= most or _kind_of_text(column) is None:
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
