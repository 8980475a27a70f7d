"""Reader of parquet files from any writer, with bounded memory and page checks.

Arrow allocates memory according to the headers of pages, not the footer, so the headers are read first. Headers and
footer are structs in Thrift's compact protocol. A header has the page type, the decompressed and stored sizes in bytes,
and a struct per type with the number of values and their encoding. The footer is also read in this module, because
pyarrow ends the process if the statistics of a column in a damaged footer contradict each other.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.fields import column_at
from longcrawl.core.progress import note_read
from longcrawl.core.sources import Section, is_utf8
from longcrawl.errors import listed, reason_of
from longcrawl.io.stored_tables import footer_fault
from longcrawl.sources.files import DamagedFileError, local_copy

HEADER_BYTES = 1 << 16
"""Bytes read first for a page header, which may hold a minimum and a maximum; Arrow reads at most 16 MB."""
MOST_HEADER_BYTES = 16 << 20
DEEPEST = 8
DICTIONARY_PAGE = 2
ROW_GROUPS = 4
BINARY_TYPES = (6, 7)
"""Physical types of byte strings, of any length and of a fixed length."""
DELTA_BYTE_ARRAY = 7
DICTIONARY_ENCODINGS = (2, 8)
KEPT_ENCODINGS = (0, *DICTIONARY_ENCODINGS)
"""Encodings that Arrow can turn into dictionary indices: plain values and dictionary indices."""
_DETAILS = {5: "values", 7: "dictionary", 8: "values"}
"""Header fields that describe pages of each type: data, dictionary, and data of version 2."""


@dataclass(frozen=True)
class Chunk:
    """Location and type of the values of one column in one row group."""

    kind: int
    codec: int
    """Compression codec of the pages, or -1 if the footer does not name one."""
    values: int
    data_page: int
    dictionary_page: int


@dataclass(frozen=True)
class Page:
    """One page: its type, decompressed size in bytes, and number of values."""

    kind: Literal["dictionary", "values"]
    bytes: int
    values: int
    encoding: int
    start: int
    """Position in the file of the data after the page header."""
    stored: int

    @property
    def uses_dictionary(self) -> bool:
        """Whether values are stored as dictionary indices."""
        return self.kind == "values" and self.encoding in DICTIONARY_ENCODINGS


_READING: dict[str, Any] = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": 1 << 20}
"""Options of pyarrow. With a buffer, in bytes, it reads a column page by page instead of all of a row group."""


@contextmanager
def open_parquet(path: str) -> Iterator[tuple[pq.ParquetFile, str]]:
    """Open a local or remote parquet file, check the columns in its footer, and return it with its local path.

    A DamagedFileError is raised if it is missing or corrupt, also while it is read within the block.
    """
    with local_copy(path) as copy:
        try:
            with pq.ParquetFile(copy, **_READING) as file:
                if fault := footer_fault(file.metadata):
                    raise DamagedFileError(f"is corrupt: {fault}")
                yield file, copy
        except FileNotFoundError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DamagedFileError(f"is corrupt: {reason_of(error)}") from error


def divide_rows(path: str, size: int) -> list[Section]:
    """Divide a local parquet file between row groups, into sections of at least ``size`` bytes of decompressed columns.

    The last section may be smaller. There is none if the file is read whole, because it is damaged.
    """
    try:
        with open_parquet(path) as (file, _):
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            rows = [group.num_rows for group in groups]
            sizes = [max(group.total_byte_size, 0) for group in groups]
    except DamagedFileError:  # the part that reads the file whole reports it
        return []
    bounds, filled = [0], 0
    for number, more in enumerate(sizes):
        filled += more
        if filled >= size or number == len(sizes) - 1:
            bounds.append(number + 1)
            filled = 0
    stored, before = os.stat(path).st_size, np.cumsum([0, *sizes])  # noqa: PTH116
    ends = [int(before[bound]) * stored // max(int(before[-1]), 1) for bound in bounds]
    return [
        Section(start, stop, sum(rows[:start]), sum(rows[start:stop]), end - begin)
        for (start, begin), (stop, end) in pairwise(zip(bounds, ends, strict=True))
    ]


def read_columns(path: str, schema: pa.Schema) -> pa.Table:
    """Read some columns of a small file whole, or raise a DamagedFileError."""
    with open_parquet(path) as (file, _):
        names = file.schema_arrow.names
        if missing := [name for name in schema.names if name not in names]:
            raise DamagedFileError(f"has no column {missing[0]!r}; its columns: {listed(names)}")
        table = file.read(schema.names, use_threads=False)
        if table.schema != schema:  # a cast would rename the items of lists
            table = table.select(schema.names).cast(schema)
        table = table.combine_chunks()
        table.validate(full=True)
        return table


def column_chunks(file: BinaryIO) -> Iterator[dict[tuple[str, ...], Chunk]]:
    """Yield the column chunks of each row group by the path of the column; ValueError if the footer is damaged."""
    end = file.seek(-8, os.SEEK_END)
    size, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic != b"PAR1" or size > end:
        raise ValueError("its footer is missing or encrypted")
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
    """Return the chunks of a row group: ``columns`` is its field 1, and ``meta_data`` is field 3 of each."""
    chunks: dict[tuple[str, ...], Chunk] = {}
    try:
        for column in row_group[1]:
            metadata = column[3]
            codec = found if isinstance(found := metadata.get(4), int) else -1
            kind, *places = metadata[1], metadata[5], metadata[9], metadata.get(11, 0)
            if not all(isinstance(each, int) and each >= 0 for each in (kind, *places)):
                raise ValueError("a column chunk in its footer has no offset or size")
            chunks.setdefault(tuple(step.decode() for step in metadata[3]), Chunk(kind, codec, *places))
    except (LookupError, TypeError, AttributeError) as missing:
        raise ValueError("a column chunk in its footer is incomplete") from missing
    return chunks


def column_pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column chunk; ValueError if a page header is invalid."""
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
    """Return the fields and length of the page header at a position; None and 0 at the end of the file."""
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
    """Reader of Thrift's compact protocol without floats and booleans; IndexError if the content ends too early."""

    def __init__(self, content: bytes) -> None:
        self._content, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        return {number: self.value(kind, depth) for number, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; its value has to be read before the next field."""
        number = 0
        while (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._number()
            yield number, head & 15

    def elements(self, depth: int = 0) -> Iterator[Any]:
        head = self._byte()
        many = self._unsigned() if head >> 4 == 15 else head >> 4
        for _ in range(many):
            # A boolean is part of the type in a field, but takes a byte in a list.
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
        raise ValueError("a value has an unknown Thrift type")

    def _byte(self) -> int:
        self.place += 1
        return self._content[self.place - 1]

    def _bytes(self, many: int) -> bytes:
        self.place += many
        if self.place > len(self._content):
            raise IndexError
        return self._content[self.place - many : self.place]

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number is too long")

    def _number(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)


ROWS = 1_024
"""Rows of a parquet file per table."""
BATCH_BYTES = 256 << 20
"""Memory limit in bytes for the values in one table, not counting a text of ``max_record_bytes`` and a page."""
PAGES_BYTES = 1 << 30
"""Limit in bytes for the largest pages of a row group together, unless ``max_record_bytes`` requires more."""
PLAIN_ENCODINGS = (0, 2)
"""Encodings of a dictionary in which each value follows its length."""
STRINGS = 6
"""Physical type of byte strings of any length."""
CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
MOST_LENGTHS = 1 << 16
"""Maximum number of values in a dictionary for reading their lengths one by one."""
_LENGTH = struct.Struct("<I")


def read_rows(
    file: pq.ParquetFile,
    path: str,
    columns: Mapping[str, Sequence[str]],
    most: int,
    section: Section | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield tables of rows with the number of their first row, sized by the page headers to fit the memory limit.

    ``columns`` maps names to paths, which have several steps for fields in structs. Values longer than ``most`` bytes
    may stay in a dictionary. ``file`` and ``path`` are from :func:`open_parquet`. A DamagedFileError is raised if the
    file is corrupt or has pages that are too large.
    """
    groups = range(file.num_row_groups) if section is None else range(section.start, section.stop)
    first = begin = 0 if section is None else section.first
    last = file.metadata.num_rows if section is None else first + section.count
    try:
        paths = {name: tuple(steps) for name, steps in columns.items()}
        for batch in _batches(file, path, list(paths.values()), most, groups):
            table = pa.table({name: _any_length(column_at(batch, steps)) for name, steps in paths.items()})
            first += table.num_rows
            note_read(first - begin, last - begin)
            yield first - table.num_rows, table
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedFileError(f"is corrupt after row {first}: {reason_of(error)}") from error
    if first != last:
        raise DamagedFileError(f"is corrupt: its rows end at {first:,}, but its footer lists {last:,}")


def _any_length(column: pa.Array) -> pa.Array:
    """Convert views and fixed-length bytes to bytes of any length, which Arrow can filter."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind, types = column.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    return column


def _batches(
    file: pq.ParquetFile, path: str, columns: Sequence[tuple[str, ...]], most: int, groups: range
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups in batches sized by the page headers to fit the memory limit.

    Dictionaries with long texts are kept: a page of some kB can hold one of 64 MB, for every row of a batch.
    """
    with Path(path).open("rb") as headers, ExitStack() as opened:

        @cache
        def again(*names: str) -> pq.ParquetFile:
            kept = pq.ParquetFile(path, metadata=file.metadata, read_dictionary=names, **_READING)
            return opened.enter_context(kept)

        for group, chunks in zip(groups, islice(column_chunks(headers), groups.start, groups.stop), strict=True):
            read = [_column(headers, chunks, *steps) for steps in columns]
            if (largest := sum(each.largest for each in read)) > (most_pages := max(PAGES_BYTES, 4 * most)):
                raise DamagedFileError(
                    f"has pages of {largest:,} bytes in row group {group}, but at most {most_pages:,} can be read "
                    "at once; write it again with smaller pages"
                )
            kept = partial(again, *(each.name for each in read if each.may_be_kept))
            if (batch := _at_once(kept, group, read, most)) is not None:
                yield batch
                continue
            longest = [_longest(kept, headers, group, each) for each in read]
            source, rows, names = file, _rows_at_once(read, longest, most), [each.name for each in read]
            if long := [each for each, size in zip(read, longest, strict=True) if size * ROWS > BATCH_BYTES]:
                source = kept()
                if not _keeps(source, long) or _begins_repeated(source, group, read):
                    source, rows = file, _rows_at_once(read, [each.bound for each in read], PAGES_BYTES)
            yield from source.iter_batches(rows, row_groups=[group], columns=names, use_threads=False)


@dataclass(frozen=True)
class _Column:
    """Location and memory use of one column in one row group."""

    path: tuple[str, ...]
    """Path of the column, with several steps for a field in a struct, which Arrow does not read as a dictionary."""
    chunk: Chunk
    pages: Sequence[Page]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def _of_bytes(self) -> Sequence[Page]:
        return self.pages if self.chunk.kind in BINARY_TYPES else ()

    @cached_property
    def dictionary(self) -> Page | None:
        """Page of its dictionary if the values are byte strings, else None."""
        return next((page for page in self._of_bytes if page.kind == "dictionary"), None)

    @property
    def bound(self) -> int:
        """Upper bound in bytes for a value of its dictionary, given the size of the dictionary page."""
        if (page := self.dictionary) is None:
            return 0
        return page.bytes if self.chunk.kind == STRINGS else -(-page.bytes // max(page.values, 1))

    @property
    def is_dictionary(self) -> bool:
        return all(page is self.dictionary or page.uses_dictionary for page in self.pages)

    @property
    def may_be_kept(self) -> bool:
        """Whether Arrow can read it as a dictionary."""
        kept = (page.kind == "dictionary" or page.encoding in KEPT_ENCODINGS for page in self.pages)
        return len(self.path) == 1 and all(kept)

    @cached_property
    def hides_long(self) -> bool:
        """Whether its dictionary might hold a value long enough to fill a batch, and can be read to check."""
        uses_it = [page.uses_dictionary for page in self.pages if page.values][:2] == [False, True]
        could = self.chunk.kind == STRINGS and BATCH_BYTES < self.bound * ROWS <= PAGES_BYTES * ROWS
        return could and uses_it and self.pages[0] is self.dictionary and len(self.path) == 1

    @property
    def rebuilt(self) -> int:
        """Upper bound in bytes for a value of a column that stores shared prefixes, else 0."""
        return max((page.bytes for page in self._of_bytes if page.encoding == DELTA_BYTE_ARRAY), default=0)

    @property
    def largest(self) -> int:
        return max((page.bytes for page in self.pages), default=0)

    def most_of(self, rows: int) -> int:
        """Return the most bytes of pages that this many consecutive rows can touch."""
        values = np.array([page.values if page.kind == "values" else 0 for page in self.pages], np.int64)
        ends, total = np.cumsum(values), np.cumsum([0, *(page.bytes for page in self.pages)])
        last = np.searchsorted(ends - values, ends - 1 + rows)
        return int((total[last] - total[:-1]).max(initial=0))


def _column(headers: BinaryIO, chunks: Mapping[tuple[str, ...], Chunk], *path: str) -> _Column:
    if (chunk := chunks.get(path)) is None:
        raise DamagedFileError(f"is corrupt: a row group in its footer lacks the field {'.'.join(path)!r}")
    return _Column(path, chunk, list(column_pages(headers, chunk)))


def _rows_at_once(read: Sequence[_Column], longest: Sequence[int], most: int) -> int:
    """Return the number of rows in a batch, given the longest dictionary value of each column."""
    row_bytes = sum(max(min(long, most), each.rebuilt) for each, long in zip(read, longest, strict=True))
    rows = max(1, min(ROWS, BATCH_BYTES // max(row_bytes, 1)))
    largest = sum(each.largest for each in read)
    while rows > 1 and sum(each.most_of(rows) for each in read) > max(BATCH_BYTES, 2 * largest):
        rows //= 2
    return rows


def _at_once(
    kept: Callable[[], pq.ParquetFile], group: int, read: Sequence[_Column], most: int
) -> pa.RecordBatch | None:
    """Return a row group as one batch with its dictionaries kept, or None if it might not fit or is damaged.

    Writers that check the size of a dictionary every 1,024 texts put all texts of such a group into it; this way it is
    decompressed once.
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
    """Return whether columns of a file are read as dictionaries; otherwise each value is written out, however long."""
    return all(len(each.path) == 1 and _is_dictionary(kept.schema_arrow.field(each.name)) for each in columns)


def _repeats(batch: pa.RecordBatch, read: Sequence[_Column]) -> bool:
    """Return whether a dictionary repeats a value; Arrow drops the repetition, which makes later indices wrong."""
    stored = ((column_at(batch, each.path), each.dictionary) for each in read if each.dictionary)
    return any(_is_dictionary(values) and len(values.dictionary) < page.values for values, page in stored)


def _begins_repeated(source: pq.ParquetFile, group: int, read: Sequence[_Column]) -> bool:
    """Return :func:`_repeats` for the first row of a row group.

    A function of its own, so that the reader, which holds the whole dictionary, is freed before the next one.
    """
    names = [each.name for each in read]
    batches = source.iter_batches(1, row_groups=[group], columns=names, use_threads=False)
    return any(_repeats(batch, read) for batch in islice(batches, 1))


def _is_dictionary(column: pa.Array | pa.Field) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _has_its_values(column: pa.DictionaryArray) -> bool:
    places = pc.min_max(column.indices)
    least, most = places["min"].as_py(), places["max"].as_py()
    return most is None or 0 <= least <= most < len(column.dictionary)


def _longest(kept: Callable[[], pq.ParquetFile], headers: BinaryIO, group: int, column: _Column) -> int:
    """Return an upper bound in bytes for the values of a column's dictionary."""
    if not column.hides_long:
        return column.bound
    try:
        return _longest_stored(headers, column)
    except (OSError, ValueError, LookupError, pa.ArrowException, struct.error):
        batches = kept().iter_batches(1, row_groups=[group], columns=[column.name], use_threads=False)
        return max((_longest_in(batch.column(0), column) for batch in islice(batches, 1)), default=column.bound)


def _longest_stored(headers: BinaryIO, column: _Column) -> int:
    """Return the bytes of the longest value in a dictionary page, or raise some error if it cannot be read."""
    page, chunk = column.dictionary, column.chunk
    if page is None or page.encoding not in PLAIN_ENCODINGS or page.values > MOST_LENGTHS:
        raise ValueError("it has too many values, or not each after its length")
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
    """Return the bytes of the longest value of a decoded dictionary, or the page's bound if it is incomplete."""
    page = column.dictionary
    if page is None or not column.hides_long or not pa.types.is_dictionary(values.type):
        return column.bound
    if len(values.dictionary) != page.values:
        return column.bound
    return int(pc.max(pc.binary_length(values.dictionary)).as_py() or 0)


def utf8_rows(column: pa.ChunkedArray) -> "np.ndarray[Any, np.dtype[np.bool_]] | None":
    """Return a mask of the values that are UTF-8 or null, or None if all are or the column is not text."""
    if (kind := _kind_of_text(column)) is None:
        return None
    try:
        values = column.cast(pa.large_string())  # for bytes, this checks all of them
        if kind in (pa.string(), pa.large_string()):
            values.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([is_utf8(value or b"") for value in column.cast(pa.large_binary()).to_pylist()])
    return None


def written_out(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with dictionary values written out, without a copy if its rows are the dictionary in order."""
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
    """Return a mask of values of at most ``most`` bytes, or None if all are; dictionary values are not written out."""
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
    """Return the text type of a column's values or of its dictionary's values, or None if they are not text."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return kind if kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()) else None
