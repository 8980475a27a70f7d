"""The reader of RedPajama-V2's ``*.signals.json.gz`` files (v1.0.0).

A record is ``{"id": …, "id_int": …, "metadata": {…}, "quality_signals": {NAME: [[start, end, value], …], …}}``, offsets
in code points of the document. A document-level signal has one span, a line-level one has a span per line.
``longcrawl.sources._kernels`` says what a status means.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from longcrawl.core.sources import LostRecords, UncheckedDataError
from longcrawl.printable import listed
from longcrawl.sources import _signal_kernels as kernels
from longcrawl.sources.blocks import RECORD_BYTES, read_steps, stop_at
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.sources.json_lines import Spelled, pack, parse_object, without_surrogates
from longcrawl.text.rpv2.schema import (
    DOCUMENT_SIGNALS,
    LINE_SIGNALS,
    SIGNALS_TYPE,
    SPANS,
    line_signals_type,
    signals_type,
)

_NAMES = DOCUMENT_SIGNALS + LINE_SIGNALS
_FIELDS = pack(["id", "quality_signals"])
_ID_BYTES = 64
"""Lines of longer ids are read by Python; the release's have some 35 bytes."""
_FEW_ROWS, _MANY_ROWS = 64, 4_096
"""How many rows are made room for at first, and at most."""


def read_signals(
    path: str, names: Sequence[str], line_signals: Sequence[str], lost: LostRecords, most_bytes: int = RECORD_BYTES
) -> pa.Table:
    """Read a signals file: ``id``, ``signals`` and, where asked for, ``line_signals``.

    ``signals`` is null where a signal is null or absent. A sum adds the values of all lines in their order and leaves
    nulls out: 0.0 for a document without lines, null where the signal is null or absent.

    ``names`` are the fields of ``signals``, ``line_signals`` those that are wanted as lists; where not all fields are
    wanted, the others are not looked into. ``lost`` notes and reports the lines that cannot be read, those of more than
    ``most_bytes``, and damage of the file, of which the lines before it are returned.
    """
    rows, source = _Rows(_wanted(tuple(names), tuple(line_signals))), partial(read_steps, most_bytes=most_bytes)
    try:
        with local_copy(path) as copy:
            try:
                rows.add_all(source(copy, on_loss=stop_at, checksums="last"))
            except (DamagedFileError, UncheckedDataError):
                rows.clear()
                rows.add_all(source(copy, on_loss=lost.add_loss), lost)
        rows.report(lost)
        lost.report()
    except DamagedFileError as damage:
        lost.report(str(damage))
    return rows.table()


class _Wanted:
    """The signals that are read, as the kernel takes them, and the columns that they become."""

    def __init__(self, names: Sequence[str], line_signals: Sequence[str]) -> None:
        self.kind, self.line_signals = signals_type(names), line_signals
        values = {field.name: column for column, field in enumerate(self.kind)}
        lists = {name: column for column, name in enumerate(line_signals)}
        columns = [[values.get(name, -1), values.get(f"{name}.sum", -1), lists.get(name, -1)] for name in _NAMES]
        is_all = len(self.kind) == len(SIGNALS_TYPE)
        self.signals = (*pack(f'"{name}"' for name in _NAMES), np.array(columns), is_all)
        fields = [pa.field("id", pa.string()), pa.field("signals", self.kind)]
        if line_signals:
            fields.append(pa.field("line_signals", line_signals_type(line_signals)))
        self.schema = pa.schema(fields)


@lru_cache(16)
def _wanted(names: tuple[str, ...], line_signals: tuple[str, ...]) -> _Wanted:
    """Return the same object for the many files of a release."""
    return _Wanted(names, line_signals)


class _Room:
    """Arrays for some rows, as :func:`~longcrawl.sources._signal_kernels.read_records` writes them."""

    def __init__(self, wanted: _Wanted, rows: int) -> None:
        self.starts, self.ends = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.status = np.empty(rows, np.uint8)
        self.ids, self.lengths = np.empty((rows, _ID_BYTES), np.uint8), np.empty(rows, np.int64)
        self.values = np.empty((rows, len(wanted.kind)))
        self.places = np.empty((rows, len(wanted.line_signals), 2), np.int64)
        self.filled = 0

    def rest(self) -> list[npt.NDArray[Any]]:
        """Return the arrays from the first row on that is not filled."""
        every = (self.starts, self.ends, self.status, self.ids, self.lengths, self.values, self.places)
        return [each[self.filled :] for each in every]

    def understood(self, first: int = 0) -> list[npt.NDArray[Any]]:
        """Return ids, their lengths, values and places of the rows from one on that the kernel understood."""
        rows = np.flatnonzero(self.status[first : self.filled] == 0) + first
        every = (self.ids, self.lengths, self.values, self.places)
        return [each[first : self.filled] if len(rows) == self.filled - first else each[rows] for each in every]


class _Rows:
    """The rows of a file, gathered line by line."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self.clear()

    def clear(self) -> None:
        """Forget all lines."""
        self._followers = np.append(np.arange(len(_NAMES)), 0)
        self._rooms = [_Room(self._wanted, _FEW_ROWS)]
        self._lists: list[pa.StructArray] = []
        """The lists of the rows that the kernel understood."""
        self._late: list[dict[str, Any]] = []
        """The rows that only Python's ``json`` takes; rows are joined by id, so their place does not matter."""
        self._lost: list[tuple[int, str]] = []
        """Number of each line that cannot be read, and why, until it is reported."""
        self._lines = 0

    def add_all(self, steps: Iterable[memoryview | None], lost: LostRecords | None = None) -> None:
        """Add whole lines step by step, and note in between those that cannot be read."""
        for step in steps:
            if step is not None:
                self.add(step)
            elif lost is not None:
                self.report(lost)

    def add(self, lines: memoryview) -> None:
        """Add whole lines."""
        data, at = np.frombuffer(lines, np.uint8), 0
        while at < len(data):
            room = self._rooms[-1]
            if room.filled == len(room.starts):
                room = _Room(self._wanted, min(4 * room.filled, _MANY_ROWS))
                self._rooms.append(room)
            first = room.filled
            count, at = kernels.read_records(data, at, *_FIELDS, *self._wanted.signals, self._followers, *room.rest())
            room.filled += count
            for row in (np.flatnonzero(room.status[first : room.filled] == 1) + first).tolist():
                line = lines[room.starts[row] : room.ends[row]]
                self._add_late(line.tobytes(), self._lines + row - first + 1)
            if self._wanted.line_signals:
                self._lists.append(_lists(data, room.understood(first)[3], self._wanted))
            self._lines += count

    def _add_late(self, line: bytes, number: int) -> None:
        try:
            self._late.append(_row(parse_object(line), self._wanted.line_signals))
        except (ValueError, TypeError, IndexError) as error:
            reason = (
                str(error) if type(error) is ValueError else "holds signals that are not lists of [start, end, value]"
            )
            self._lost.append((number, reason))

    def report(self, lost: LostRecords) -> None:
        """Note the lines that could not be read since the last report."""
        for number, reason in self._lost:
            lost.add(f"line {number}", reason)
        self._lost = []

    def table(self) -> pa.Table:
        """Return all rows."""
        every = [room.understood() for room in self._rooms]
        ids, lengths, values, _ = (np.concatenate(each) for each in zip(*every, strict=True))
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        text = pa.py_buffer(ids[np.arange(_ID_BYTES) < lengths[:, None]])
        columns = [
            pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), text),
            _struct(self._wanted.kind, values),
        ]
        if self._wanted.line_signals:
            kind = line_signals_type(self._wanted.line_signals)
            columns.append(pa.concat_arrays(self._lists) if self._lists else pa.array([], kind))
        table = pa.table(columns, schema=self._wanted.schema)
        if self._late:
            table = pa.concat_tables([table, pa.Table.from_pylist(self._late, schema=table.schema)]).combine_chunks()
        return table


def _struct(kind: pa.StructType, values: npt.NDArray[np.float64]) -> pa.StructArray:
    """Return structs of values [rows, fields], null where NaN."""
    if not len(kind):
        return pa.array([{}] * len(values), kind)
    columns = values.T.ravel()
    bits = np.packbits(~np.isnan(columns), bitorder="little")
    every = pa.Array.from_buffers(pa.float64(), len(columns), [pa.py_buffer(bits), pa.py_buffer(columns)])
    arrays = [every.slice(field * len(values), len(values)) for field in range(len(kind))]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _lists(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], wanted: _Wanted) -> pa.StructArray:
    """Return structs of the lists at places [rows, line signals, 2]."""
    schema = pa.schema([pa.field("v", SPANS)])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    arrays = []
    for column in range(len(wanted.line_signals)):
        texts = (data[start:end].tobytes() or b"null" for start, end in places[:, column].tolist())
        lines = b"".join(b'{"v":' + text.replace(b"\n", b" ") + b"}\n" for text in texts)
        if not lines:
            arrays.append(pa.array([], SPANS))
            continue
        blocks = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        lists = pyarrow.json.read_json(pa.BufferReader(lines), read_options=blocks, parse_options=options)
        arrays.append(pa.concat_arrays(lists["v"].chunks))
    return pa.StructArray.from_arrays(arrays, fields=list(line_signals_type(wanted.line_signals)))


def _row(record: dict[str, Any], line_signals: Sequence[str]) -> dict[str, Any]:
    for name, kind in (("id", str), ("quality_signals", dict)):
        if not isinstance(record.get(name), kind):
            raise ValueError(f"has no field {name!r} of the right kind; its fields: {listed(record)}")  # noqa: TRY004  # the line is wrong, not a caller
    spans = {
        name: None if (found := record["quality_signals"].get(name)) is None else [_span(item) for item in found]
        for name in _NAMES
    }
    signals = {name: found[0][2] if (found := spans[name]) else None for name in DOCUMENT_SIGNALS}
    for name in LINE_SIGNALS:
        total = 0.0
        for _, _, value in spans[name] or []:
            total += value or 0.0
        signals[f"{name}.sum"] = None if spans[name] is None else total
    lists = {name: spans[name] for name in line_signals}
    return {"id": without_surrogates(record["id"]), "signals": signals, "line_signals": lists}


def _span(item: Any) -> tuple[float, float, float | None]:
    start, end, value = item
    if not all(isinstance(number, Spelled) for number in ((start, end) if value is None else item)):
        raise TypeError("a span is [start, end, value]")
    measured = None if value is None else float(value)
    return float(start), float(end), None if measured is None or math.isnan(measured) else measured
