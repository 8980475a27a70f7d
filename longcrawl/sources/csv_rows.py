"""CSV files as Arrow columns, with field names from the first row and the quoting rules of Python's ``csv``.

A quoted field may contain line ends, so after lost bytes it is unknown whether a quote is open, and the rest of a
damaged file is not read. The same holds after a row that is not valid CSV, with two exceptions in which only that row
is lost: it is the last line, or it is one line with as many fields as the first row (at least two) and an even number
of quotes.
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
"""Field separator by file ending."""


def read_csv(
    path: str,
    needed: Sequence[str],
    optional: Sequence[str],
    separator: str,
    most_bytes: int,
    decoding: Decoding | None = None,
) -> Iterator[Lines]:
    """Yield batches of rows with the wanted fields that the file has, each a column of strings.

    Rows are numbered from 0, starting after the header row; blank lines are not counted. Of two fields with one name,
    the first is read. Empty values of ``optional`` fields, which may be missing, become null. A DamagedFileError is
    raised, after the rows before it, if the file is damaged, lacks a required field, or has a row that is longer than
    ``most_bytes`` or may have an open quote.
    """
    csv.field_size_limit(2**31 - 1)  # the largest on every platform; here the length of rows is limited
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
    """Return the field names in the first row of a file; see :func:`read_csv`."""
    lines = _Text(path, separator, most_bytes, decoding).lines()
    return _first_row(csv.reader(lines, delimiter=separator, strict=True))


def _first_row(rows: Iterator[list[str]]) -> list[str]:
    try:
        return next(rows, [])
    except csv.Error as error:
        raise DamagedFileError(f"has a first row that is not CSV ({error})") from error


def _numbered(rows: Iterator[list[str]], text: "_Text", fields: int) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the number of each row that is not blank, with the row or the reason why it is not CSV."""
    number = 0
    while True:
        text.begin_row()
        try:
            row: list[str] | str = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            row = f"is not CSV ({error})"
            if text.row_lines != 1 or not (text.seems_whole(fields) or _have_ended(rows)):
                raise DamagedFileError(
                    f"has a row {number} that {row}, and may have an open quote; double the quotes inside fields"
                ) from error
        if row:
            yield number, row
            number += 1


class _Text:
    """Lines of a file for ``csv``, with a limit on the bytes of a row."""

    def __init__(self, path: str, separator: str, most_bytes: int, decoding: Decoding | None) -> None:
        self._path, self._separator, self._most_bytes, self._decoding = path, separator, most_bytes, decoding
        self._line = ""
        self.begin_row()

    def begin_row(self) -> None:
        self.row_lines = self._row_bytes = 0

    def seems_whole(self, fields: int) -> bool:
        """Return whether the last line has this many fields, more than one, and no quote that seems open."""
        if fields == 1 or self._line.count('"') % 2:
            return False
        return len(next(csv.reader([self._line], delimiter=self._separator))) == fields

    def lines(self) -> Iterator[str]:
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
    try:
        return not any(rows)
    except csv.Error:
        return False


def _stop(loss: Loss) -> None:
    """Stop at the first loss; the number of lost rows is unknown, unlike that of lines in ``blocks.stop_at``."""
    raise DamagedFileError(f"has a line {loss.line:,} that {loss.reason}" if loss.kind == "line" else loss.reason)


class _Batch:
    def __init__(self, names: Sequence[str], needed: Sequence[str], optional: Sequence[str]) -> None:
        for name in needed:
            if name not in names:
                raise DamagedFileError(f"has no field {name!r}; its fields: {listed_with_near(names, name)}")
        self._fields, self._optional = len(names), frozenset(optional) - frozenset(needed)
        self._places = {name: names.index(name) for name in dict.fromkeys([*needed, *optional]) if name in names}
        self._start()

    def _start(self) -> None:
        self._values: dict[str, list[str | None]] = {name: [] for name in self._places}
        self.numbers, self.lost = list[int](), list[tuple[int, str]]()
        self.characters = 0

    def add(self, number: int, row: list[str] | str) -> None:
        if reason := self._fault(row):
            self.lost.append((number, reason))
            return
        self.numbers.append(number)
        for name, place in self._places.items():
            self._values[name].append(None if name in self._optional and not row[place] else row[place])
            self.characters += len(row[place])

    def take(self) -> Lines:
        columns = {name: pa.array(values, pa.large_string()) for name, values in self._values.items()}
        taken = Lines(pa.table(columns), np.array(self.numbers, np.int64), self.lost, len(self.numbers))
        self._start()
        return taken

    def _fault(self, row: list[str] | str) -> str:
        if isinstance(row, str):
            return row
        if len(row) != self._fields:
            return f"has {counted(len(row), 'field')}, but the first row has {self._fields}"
        for name, place in self._places.items():
            try:
                row[place].encode()  # fails at a surrogate for a byte that was not UTF-8, and is faster than a search
            except UnicodeEncodeError:
                return f"is not UTF-8 in its field {name!r}"
        return ""
