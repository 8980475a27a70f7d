"""The reader of RedPajama-V2's ``*.signals.json.gz`` files (v1.0.0).

A record is ``{"id": …, "id_int": …, "metadata": {…}, "quality_signals": {NAME: [[start, end, value], …], …}}``, offsets
in code points of the document. A document-level signal has one span, a line-level one has a span per line.
``longcrawl.sources._kernels`` says what a status means.
"""

# A byte automaton is one long chain of cases, and numba takes arguments by position:
# ruff: noqa: C901, PLR0911, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from longcrawl.core.sources import LostRecords
from longcrawl.kernels.compiling import compiled
from longcrawl.printable import listed
from longcrawl.sources._kernels import (
    ABSENT,
    CLOSE_LIST,
    CLOSE_OBJECT,
    COMMA,
    NESTED,
    OPEN_LIST,
    OPEN_OBJECT,
    end_of_lists,
    end_of_value,
    end_of_word,
    find_name,
    read_key,
    read_number,
    skip_space,
)
from longcrawl.sources.blocks import RECORD_BYTES, read_blocks
from longcrawl.sources.json_lines import Found, Spelled, find_fields, pack, parse_object, texts_of, without_surrogates
from longcrawl.text.rpv2.schema import (
    DOCUMENT_SIGNALS,
    LINE_SIGNALS,
    SIGNALS_TYPE,
    SPANS,
    line_signals_type,
    signals_type,
)

_NAMES = DOCUMENT_SIGNALS + LINE_SIGNALS


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
    first = 0
    for block in read_blocks(path, most_bytes=most_bytes, on_loss=lost.add_loss):
        found = find_fields(block, ["id", "quality_signals"], unchecked=1)
        yield _table(found, names, line_signals, first, lost)
        first += len(found.starts)


def _table(found: Found, names: Sequence[str], line_signals: Sequence[str], first: int, lost: LostRecords) -> pa.Table:
    kind = signals_type(names)
    read = [name for name in _NAMES if name in names or f"{name}.sum" in names or name in line_signals]
    shape = (len(found.starts), len(read))
    values, sums = np.empty(shape), np.empty(shape)
    places = np.empty((*shape, 2), dtype=np.int64)
    found.status[(found.kinds == ABSENT).any(axis=1)] = 1
    spans, kinds = np.ascontiguousarray(found.spans[:, 1]), np.ascontiguousarray(found.kinds[:, 1])
    checked = len(kind) == len(SIGNALS_TYPE)
    read_objects(found.data, spans, kinds, *pack(read), checked, values, sums, places, found.status)
    understood = np.flatnonzero(found.status == 0)
    columns = [texts_of(found, 0, understood).cast(pa.string())]
    columns.append(_struct(kind, read, values[understood], sums[understood]))
    schema = [pa.field("id", pa.string()), pa.field("signals", kind)]
    if line_signals:
        columns.append(_lists(found, read, places, understood, line_signals))
        schema.append(pa.field("line_signals", line_signals_type(line_signals)))
    table = pa.table(columns, schema=pa.schema(schema))
    return pa.concat_tables([table, _the_rest(found, line_signals, table.schema, first, lost)])


def _struct(
    kind: pa.StructType, read: Sequence[str], values: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]
) -> pa.StructArray:
    if not len(kind):
        return pa.array([{}] * len(values), kind)
    arrays = []
    for field in kind:
        name = field.name.removesuffix(".sum")
        column = np.ascontiguousarray((values if name == field.name else sums)[:, read.index(name)])
        arrays.append(pa.array(column, mask=np.isnan(column)))
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _lists(
    found: Found,
    read: Sequence[str],
    places: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    line_signals: Sequence[str],
) -> pa.StructArray:
    schema = pa.schema([pa.field("v", SPANS)])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    arrays = []
    for name in line_signals:
        chosen = places[rows, read.index(name)].tolist()
        texts = (found.data[start:end].tobytes() or b"null" for start, end in chosen)
        lines = b"".join(b'{"v":' + text.replace(b"\n", b" ") + b"}\n" for text in texts)
        if not lines:
            arrays.append(pa.array([], SPANS))
            continue
        blocks = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        lists = pyarrow.json.read_json(pa.BufferReader(lines), read_options=blocks, parse_options=options)
        arrays.append(pa.concat_arrays(lists["v"].chunks))
    return pa.StructArray.from_arrays(arrays, fields=list(line_signals_type(line_signals)))


def _the_rest(found: Found, line_signals: Sequence[str], schema: pa.Schema, first: int, lost: LostRecords) -> pa.Table:
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
    return pa.Table.from_pylist(rows, schema=schema)


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


@compiled
def _triples(data: Any, at: int, end: int) -> tuple[int, float, float, bool]:
    """Read ``[[start, end, value], …]``: its end (-1: not understood), the first value, the sum, whether it is null."""
    first, total, count = np.nan, 0.0, 0
    after = end_of_word(data, at, end)
    if after >= 0 and data[at] == 110:
        return after, first, np.nan, True
    if at >= end or data[at] != OPEN_LIST:
        return -1, first, total, False
    at = skip_space(data, at + 1, end)
    if at < end and data[at] == CLOSE_LIST:
        return at + 1, first, total, False
    while True:
        at = skip_space(data, at, end)
        if at >= end or data[at] != OPEN_LIST:
            return -1, first, total, False
        at += 1
        for place in range(3):
            at = skip_space(data, at, end)
            value, exact = np.nan, True
            digits = at
            while place < 2 and digits < end and 48 <= data[digits] <= 57:
                digits += 1
            if digits > at and digits < end and data[digits] == COMMA and (data[at] != 48 or digits == at + 1):
                at = digits
            elif place == 2 and at < end and data[at] == 110:
                at = end_of_word(data, at, end)
            else:
                value, at, exact = read_number(data, at, end)
            if at < 0 or not exact:
                return -1, first, total, False
            at = skip_space(data, at, end)
            if at >= end or data[at] != (COMMA if place < 2 else CLOSE_LIST):
                return -1, first, total, False
            at += 1
            if place == 2:
                if count == 0:
                    first = value
                if not np.isnan(value):
                    total += value
        count += 1
        at = skip_space(data, at, end)
        if at < end and data[at] == CLOSE_LIST:
            return at + 1, first, total, False
        if at >= end or data[at] != COMMA:
            return -1, first, total, False
        at += 1


@compiled
def read_objects(
    data: Any,
    spans: Any,
    kinds: Any,
    names: Any,
    offsets: Any,
    checked: Any,
    values: Any,
    sums: Any,
    places: Any,
    status: Any,
) -> None:
    """Read the object ``quality_signals`` of every line.

    Args:
        data: uint8 [bytes], the text of all lines.
        spans: int64 [lines, 2], where the object of each line is, as ``find_fields`` gives it.
        kinds: uint8 [lines], what is there.
        names: uint8, the names of the signals one after the other.
        offsets: int64 [names + 1], where each name starts.
        checked: whether to look into the signals that have no name here.
        values: float64 [lines, names], written: the value of the first span, NaN where null or absent.
        sums: float64 [lines, names], written: the values of all spans added in order, nulls left out, NaN where absent.
        places: int64 [lines, names, 2], written: where the list of spans is.
        status: uint8 [lines], read and written: 1 where the line was not understood.
    """
    for line in range(len(spans)):
        values[line, :] = np.nan
        sums[line, :] = np.nan
        places[line, :, :] = 0
        if status[line] or kinds[line] == ABSENT:
            continue
        at, end = spans[line, 0], spans[line, 1]
        status[line] = kinds[line] != NESTED or data[at] != OPEN_OBJECT
        at = skip_space(data, at + 1, end)
        more = status[line] == 0 and data[at] != CLOSE_OBJECT
        at += not more
        guess = 0
        while more:
            key_start, key_end, at = read_key(data, at, end)
            if at < 0:
                break
            index = find_name(data, key_start, key_end, names, offsets, guess)
            start = at
            if index >= 0:
                guess = index + 1
                at, values[line, index], sums[line, index], _ = _triples(data, at, end)
            elif checked:
                at = end_of_value(data, at, end)[0]
            else:
                at = end_of_lists(data, at, end)
            if at < 0:
                break
            if index >= 0:
                places[line, index, 0], places[line, index, 1] = start, at
            at = skip_space(data, at, end)
            if at >= end or (data[at] != COMMA and data[at] != CLOSE_OBJECT):
                at = -1
                break
            more = data[at] == COMMA
            at += 1
        if at != end:
            status[line] = 1
