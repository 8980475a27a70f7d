"""Rows of CSV files as Arrow columns: the first row names the fields, quotes as Python's ``csv`` reads them.

A field in quotes may hold line ends. So nobody knows, after bytes that are lost, whether a quote is open: what follows
them is not read, whereas of other files the lines after them are. The same holds after a row that is not CSV, unless it
is the last line, or one line of several fields, as many as the first row has, with an even number of quotes: such a row
is lost alone. Rarely that is the first line of a row that goes on, whose other lines then look like rows.
"""

import csv
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from longcrawl.core.display import counted
from longcrawl.core.sources import Loss
from longcrawl.errors import listed_with_near
from longcrawl.sources.blocks import BLOCK_BYTES, read_blocks, too_long
from longcrawl.sources.encodings import Decoding
from longcrawl.sources.files import DamagedFileError
from longcrawl.sources.json_lines import Lines
from longcrawl.sources.parquet import ROWS

ENDINGS = {".csv": ",", ".tsv": "\t"}
"""What parts fields, by the ending of a file."""

_LARGEST_FIELD = 2**31 - 1
"""What the limit of ``csv`` can be everywhere; records are bounded here."""


def read_csv(
    path: str,
    needed: Sequence[str],
    optional: Sequence[str],
    separator: str,
    most_bytes: int,
    decoding: Decoding | None = None,
) -> Iterator[Lines]:
    """Yield batches of rows with those of the fields that the file has, each a column of strings.

    Rows are counted from 0, without the first one, which names the fields; blank lines are none.

    Args:
        path: local file or URL; gzip and zstd are decompressed.
        needed: names of fields without which it is an error; of two fields of one name it is the first.
        optional: names of other fields. A row that has nothing there has null.
        separator: what parts fields.
        most_bytes: how long a row is at most.
        decoding: the encoding; None for UTF-8.

    Raises:
        DamagedFileError: it is missing, cut or corrupt, has no such field, a row is too long, or one is not CSV and may
            have an open quote; rows before that have been yielded.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_FIELD))
    text = _Text(path, separator, most_bytes, decoding)
    rows = csv.reader(text.lines(), delimiter=separator, strict=True)
    names = _first_row(rows)
    batch = _Batch(names, needed, optional)
    try:
        for number, row in _numbered(rows, text, len(names)):
            batch.add(number, row)
            if len(batch.numbers) + len(batch.lost) >= ROWS or batch.characters >= BLOCK_BYTES:
                yield batch.take()
    except DamagedFileError:
        yield batch.take()
        raise
    yield batch.take()


def read_names(path: str, separator: str, most_bytes: int, decoding: Decoding | None = None) -> list[str]:
    """Return the fields that the first row of a file names; see :func:`read_csv`."""
    lines = _Text(path, separator, most_bytes, decoding).lines()
    return _first_row(csv.reader(lines, delimiter=separator, strict=True))


def _first_row(rows: Iterator[list[str]]) -> list[str]:
    try:
        return next(rows, [])
    except csv.Error as error:
        raise DamagedFileError(f"has a first row that is not CSV ({error})") from error


def _numbered(rows: Iterator[list[str]], text: "_Text", fields: int) -> Iterator[tuple[int, list[str] | str]]:
    """Yield each row that is not blank with its number, or why it is not CSV."""
    number = 0
    while True:
        text.begin_row()
        try:
            row: list[str] | str = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            row = f"is not CSV ({error})"
            is_alone = text.row_lines == 1 and (text.seems_whole(fields) or _have_ended(rows))
            if not is_alone:
                raise DamagedFileError(
                    f"has a row {number} that {row}, and one of its quotes may be open; write a quote in a field as two"
                ) from error
        if row:
            yield number, row
            number += 1


class _Text:
    """Lines of a file as ``csv`` takes them, as many as a row may have."""

    def __init__(self, path: str, separator: str, most_bytes: int, decoding: Decoding | None) -> None:
        self._path, self._separator, self._most_bytes, self._decoding = path, separator, most_bytes, decoding
        self._line = ""
        self.begin_row()

    def begin_row(self) -> None:
        """Count the lines of another row."""
        self.row_lines = self._row_bytes = 0

    def seems_whole(self, fields: int) -> bool:
        """Return whether the last line has so many fields, which are several, and no quote that seems open."""
        if fields == 1 or self._line.count('"') % 2:
            return False
        return len(next(csv.reader([self._line], delimiter=self._separator))) == fields

    def lines(self) -> Iterator[str]:
        """Yield lines with their ends; a byte that is not UTF-8 is a surrogate."""
        encoding = "utf-8-sig"
        for block in read_blocks(self._path, most_bytes=self._most_bytes, on_loss=_stop, decoding=self._decoding):
            for line in bytes(block).splitlines(keepends=True):
                self._row_bytes += len(line)
                if self._row_bytes > self._most_bytes:
                    reason = too_long(self._most_bytes, "; or one before it has a quote that is not closed")
                    raise DamagedFileError(f"has a row that {reason}")
                self.row_lines += 1
                self._line = line.decode(encoding, "surrogateescape")
                yield self._line
                encoding = "utf-8"


def _have_ended(rows: Iterator[list[str]]) -> bool:
    """Return whether only blank rows follow."""
    try:
        return not any(rows)
    except csv.Error:
        return False


def _stop(loss: Loss) -> None:
    """Stop at the first loss, as ``blocks.stop_at`` does; nobody knows how many rows the lines behind it are."""
    reason = f"has a line {loss.line:,} that {loss.reason}" if loss.kind == "line" else loss.reason
    raise DamagedFileError(reason)


class _Batch:
    """Rows on their way to a table."""

    def __init__(self, names: Sequence[str], needed: Sequence[str], optional: Sequence[str]) -> None:
        for name in needed:
            if name not in names:
                raise DamagedFileError(f"has no field {name!r}; its fields: {listed_with_near(names, name)}")
        self._fields, self._optional = len(names), frozenset(optional) - frozenset(needed)
        self._places = {name: names.index(name) for name in dict.fromkeys([*needed, *optional]) if name in names}
        self._start()

    def _start(self) -> None:
        self._values: dict[str, list[str | None]] = {name: [] for name in self._places}
        self.numbers: list[int] = []
        self.lost: list[tuple[int, str]] = []
        self.characters = 0

    def add(self, number: int, row: list[str] | str) -> None:
        """Add a row, or why it is lost."""
        if reason := self._fault(row):
            self.lost.append((number, reason))
            return
        self.numbers.append(number)
        for name, place in self._places.items():
            self._values[name].append(None if name in self._optional and not row[place] else row[place])
            self.characters += len(row[place])

    def take(self) -> Lines:
        """Return the rows so far, and forget them."""
        columns = {name: pa.array(values, pa.large_string()) for name, values in self._values.items()}
        taken = Lines(pa.table(columns), np.array(self.numbers, np.int64), self.lost, len(self.numbers))
        self._start()
        return taken

    def _fault(self, row: list[str] | str) -> str:
        if isinstance(row, str):
            return row
        if len(row) != self._fields:
            return f"has {counted(len(row), 'field')}, the first row has {self._fields}"
        damaged = [name for name, place in self._places.items() if not _is_utf8(row[place])]
        return f"is not UTF-8 in its field {damaged[0]!r}" if damaged else ""


def _is_utf8(text: str) -> bool:
    """Return whether a text has no byte that was not UTF-8; a search for surrogates takes a third longer."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
