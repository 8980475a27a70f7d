"""Rows of parquet files of others, read in bounded memory, and which of their texts are sound.

Arrow allocates by what the headers of pages say, not by what the footer does, so these are read first.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.dotted import column_at
from longcrawl.errors import reason_of
from longcrawl.sources.files import DamagedFileError
from longcrawl.sources.json_lines import is_utf8
from longcrawl.sources.parquet import Chunk, Page, column_chunks, column_pages

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
