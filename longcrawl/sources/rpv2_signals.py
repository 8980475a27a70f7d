"""The reader of RedPajama-V2's ``*.signals.json.gz`` files (v1.0.0).

A record is ``{"id": …, "id_int": …, "metadata": {…}, "quality_signals": {NAME: [[start, end, value], …], …}}``, offsets
in code points of the document. A document-level signal has one span, a line-level one has a span per line.
``longcrawl.sources._kernels`` says what a status means.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from longcrawl.core.sources import LostRecords
from longcrawl.printable import listed
from longcrawl.sources import _signal_kernels as kernels
from longcrawl.sources.blocks import RECORD_BYTES, read_blocks
from longcrawl.sources.json_lines import Found, Spelled, is_utf8, pack, parse_object, texts_of, without_surrogates
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
_LIKELY_LINE = 2_000
"""Bytes; of a block of shorter lines some are read at a time."""


def read_signals(
    path: str, names: Sequence[str], line_signals: Sequence[str], lost: LostRecords, most_bytes: int = RECORD_BYTES
) -> Iterator[pa.Table]:
    """Read a signals file in tables of ``id``, ``signals`` and, where asked for, ``line_signals``.

    ``signals`` is null where a signal is null or absent. A sum adds the values of all lines in their order and leaves
    nulls out: 0.0 for a document without lines, null where the signal is null or absent.

    ``names`` are the fields of ``signals``, ``line_signals`` those that are wanted as lists; where not all fields are
    wanted, the others are not looked into. ``lost`` notes the lines that cannot be read, and those of more than
    ``most_bytes``.

    Raises:
        DamagedFileError: the file is missing or cannot be read.
    """
    wanted, first = _wanted(tuple(names), tuple(line_signals)), 0
    for block in read_blocks(path, most_bytes=most_bytes, on_loss=lost.add_loss):
        for found in wanted.find(block):
            yield wanted.table(found, first, lost)
            first += len(found.records.starts)


@dataclass(frozen=True)
class _FoundSignals:
    """What some lines hold."""

    records: Found
    """Where ``id`` and ``quality_signals`` are."""
    values: npt.NDArray[np.float64]
    """[signals, lines]: NaN where null or absent."""
    places: npt.NDArray[np.int64]
    """[line signals, lines, 2]: where the list of spans is."""


class _Wanted:
    """The signals that are read, as the kernel takes them, and the columns that they become."""

    def __init__(self, names: Sequence[str], line_signals: Sequence[str]) -> None:
        self._kind, self._line_signals = signals_type(names), line_signals
        rows = {field.name: row for row, field in enumerate(self._kind)}
        lists = {name: row for row, name in enumerate(line_signals)}
        columns = [[rows.get(name, -1), rows.get(f"{name}.sum", -1), lists.get(name, -1)] for name in _NAMES]
        self._signals = (*pack(f'"{name}"' for name in _NAMES), np.array(columns))
        self._is_all = len(self._kind) == len(SIGNALS_TYPE)
        fields = [pa.field("id", pa.string()), pa.field("signals", self._kind)]
        if line_signals:
            fields.append(pa.field("line_signals", line_signals_type(line_signals)))
        self._schema = pa.schema(fields)

    def find(self, block: bytes | memoryview) -> Iterator[_FoundSignals]:
        """Yield what lines hold, some lines at a time."""
        data, at = np.frombuffer(block, dtype=np.uint8), 0
        followers = np.append(np.arange(len(_NAMES)), 0)
        room = len(data) // _LIKELY_LINE + 16
        while at < len(data):
            starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
            spans, kinds = np.empty((room, 2, 2), np.int64), np.empty((room, 2), np.uint8)
            status = np.empty(room, np.uint8)
            values = np.empty((len(self._kind), room))
            places = np.empty((len(self._line_signals), room, 2), np.int64)
            count, at = kernels.read_records(
                data,
                at,
                *_FIELDS,
                *self._signals,
                followers,
                self._is_all,
                starts,
                ends,
                spans,
                kinds,
                status,
                values,
                places,
            )
            for line in np.flatnonzero(status[:count] == kernels.NOT_ASCII).tolist():
                is_text = is_utf8(block[starts[line] : ends[line]])
                status[line] = kernels.UNDERSTOOD if is_text else kernels.NOT_UNDERSTOOD
            records = Found(data, starts[:count], ends[:count], spans[:count], kinds[:count], status[:count])
            yield _FoundSignals(records, values[:, :count], places[:, :count])

    def table(self, found: _FoundSignals, first: int, lost: LostRecords) -> pa.Table:
        """Return the rows of lines, the first of which has this number."""
        records, values, places = found.records, found.values, found.places
        understood = np.flatnonzero(records.status == kernels.UNDERSTOOD)
        if len(understood) < len(records.status):
            values, places = values.take(understood, axis=1), places.take(understood, axis=1)
        columns = [texts_of(records, 0, understood).cast(pa.string()), _struct(self._kind, values)]
        if self._line_signals:
            columns.append(_lists(records, places, self._line_signals))
        table = pa.table(columns, schema=self._schema)
        if rest := _the_rest(records, self._line_signals, first, lost):
            table = pa.concat_tables([table, pa.Table.from_pylist(rest, schema=self._schema)])
        return table


@lru_cache(16)
def _wanted(names: tuple[str, ...], line_signals: tuple[str, ...]) -> _Wanted:
    """Return the same object for the many files of a release."""
    return _Wanted(names, line_signals)


def _struct(kind: pa.StructType, values: npt.NDArray[np.float64]) -> pa.StructArray:
    rows = values.shape[1]
    if not len(kind):
        return pa.array([{}] * rows, kind)
    absent = np.isnan(values)
    bitmaps = np.packbits(~absent, axis=1, bitorder="little")
    arrays = [
        pa.Array.from_buffers(pa.float64(), rows, [pa.py_buffer(bitmap), pa.py_buffer(column)])
        for bitmap, column in zip(bitmaps, values, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _lists(found: Found, places: npt.NDArray[np.int64], line_signals: Sequence[str]) -> pa.StructArray:
    schema = pa.schema([pa.field("v", SPANS)])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    arrays = []
    for row in range(len(line_signals)):
        texts = (found.data[start:end].tobytes() or b"null" for start, end in places[row].tolist())
        lines = b"".join(b'{"v":' + text.replace(b"\n", b" ") + b"}\n" for text in texts)
        if not lines:
            arrays.append(pa.array([], SPANS))
            continue
        blocks = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        lists = pyarrow.json.read_json(pa.BufferReader(lines), read_options=blocks, parse_options=options)
        arrays.append(pa.concat_arrays(lists["v"].chunks))
    return pa.StructArray.from_arrays(arrays, fields=list(line_signals_type(line_signals)))


def _the_rest(found: Found, line_signals: Sequence[str], first: int, lost: LostRecords) -> list[dict[str, Any]]:
    """Read the lines that only Python's ``json`` takes; rows are joined by id, so their place does not matter."""
    rows = []
    for number in np.flatnonzero(found.status).tolist():
        line = found.line(number)
        if not line.strip(b" \t\r"):
            continue
        try:
            rows.append(_row(parse_object(line), line_signals))
        except (ValueError, TypeError, IndexError) as error:
            reason = (
                str(error) if type(error) is ValueError else "holds signals that are not lists of [start, end, value]"
            )
            lost.add(f"line {first + number + 1}", reason)
    return rows


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
