"""The reader of RedPajama-V2's ``*.signals.json.gz`` files (v1.0.0), and what they decide before documents are read.

A record is ``{"id": …, "id_int": …, "metadata": {…}, "quality_signals": {NAME: [[start, end, value], …], …}}``, offsets
in code points of the document. A document-level signal has one span, a line-level one has a span per line.
``longcrawl.sources._kernels`` says what a status means.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from longcrawl.core.sources import BadFiles, LostRecords, UncheckedDataError
from longcrawl.core.stages import Stage
from longcrawl.printable import listed, quoted
from longcrawl.sources import _signal_kernels as kernels
from longcrawl.sources._kernels import BLANK
from longcrawl.sources.blocks import RECORD_BYTES, read_steps, stop_at
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.sources.json_lines import Spelled, Texts, find_fields, pack, parse_object, without_surrogates
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
    rows = _Rows(_wanted(tuple(names), tuple(line_signals)))
    source = partial(read_steps, most_bytes=most_bytes, lines_read=lambda: rows.lines)
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


def is_of_shard(table: pa.Table, part: str, path: str, bad_files: BadFiles) -> bool:
    """Check that every id of a file begins with its shard's path; report the file if one does not."""
    own = pc.starts_with(table[0].combine_chunks(), f"{part}.json.gz/")
    if (misplaced := table.num_rows - own.true_count) == 0:
        return True
    own = pc.fill_null(own, fill_value=False)
    first = quoted(table[0][pc.index(own, value=False).as_py()].as_py())
    bad_files.report(
        path,
        f"is of another shard: {misplaced} of its {table.num_rows} ids do not begin with {part}.json.gz/, the first is "
        f"{first}; the documents keep null in its place",
    )
    return False


def count_unread(known: Mapping[str, pa.Table], stages: Sequence[Stage]) -> int:
    """Count the documents of a shard, by its signals, if the first stages keep none of them and no others; else 0.

    ``known`` has the tables of a shard that are joined to its documents, by "signals" and "duplicates". Stages are
    asked of documents without signals as well, listed and not. 0 where an id comes twice, or is listed and unknown.
    """
    if "signals" not in known:
        return 0
    rows = known["signals"].select(["id", "signals"])
    is_listed, others = pa.nulls(rows.num_rows, pa.bool_()), list[dict[str, Any]]([{}])
    if "duplicates" in known:
        listed_ids = known["duplicates"][0]
        if not pc.all(pc.is_in(listed_ids, rows["id"]), min_count=0).as_py():
            return 0
        is_listed, others = pc.is_in(rows["id"], listed_ids), [{"duplicate": False}, {"duplicate": True}]
    if pc.count_distinct(rows["id"]).as_py() < rows.num_rows:
        return 0
    left = rows.append_column("duplicate", is_listed)
    left = pa.concat_tables([left, pa.Table.from_pylist(others, left.schema)])
    for stage in stages:
        if (kept := stage.keeps_unread(left)) is None:
            return 0
        if not (left := left.filter(kept)).num_rows:
            return int(rows.num_rows)
    return 0


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


class _Rows:
    """The rows of a file, gathered line by line."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self.clear()

    def clear(self) -> None:
        """Forget all lines."""
        self._followers = np.append(np.arange(len(_NAMES)), 0)
        self._ids = Texts()
        self._pieces: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.float64]]] = []
        """Of lines whose id was written: where it ends, whether their signals were understood, and these."""
        self._lists: list[pa.StructArray] = []
        """The lists of lines whose signals were understood."""
        self._late: list[dict[str, Any]] = []
        """The rows that only Python's ``json`` takes; rows are joined by id, so their place does not matter."""
        self._lost: list[tuple[int, str]] = []
        """Number of each line that cannot be read, and why, until it is reported."""
        self.lines = 0

    def add_all(self, steps: Iterable[memoryview | None], lost: LostRecords | None = None) -> None:
        """Add whole lines step by step, and note in between those that cannot be read."""
        for step in steps:
            if step is not None:
                self.add(step)
            elif lost is not None:
                self.report(lost)

    def add(self, lines: memoryview) -> None:
        """Add whole lines."""
        wanted, data = self._wanted, np.frombuffer(lines, np.uint8)
        for found in find_fields(data, _FIELDS, [self._ids, None], np.ones(2, np.bool_), unchecked=1):
            count = len(found.starts)
            values = np.empty((count, len(wanted.kind)))
            places = np.empty((count, len(wanted.line_signals), 2), np.int64)
            has_id = found.status == 0
            arrays = found.spans, found.kinds, *wanted.signals, self._followers, found.status, values, places
            kernels.read_records(data, *arrays)
            for number in np.flatnonzero((found.status != 0) & (found.status != BLANK)).tolist():
                self._add_late(found.line(number), self.lines + number + 1)
            understood = found.status == 0
            ends = found.spans[has_id, 0, 1]
            self._pieces.append((ends, understood[has_id], values[understood]))
            if wanted.line_signals:
                self._lists.append(_lists(data, places[understood], wanted))
            self.lines += count

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
        if not self._pieces:
            return self._wanted.schema.empty_table()
        ends, understood, values = (np.concatenate(each) for each in zip(*self._pieces, strict=True))
        ids = self._ids.take(ends, np.zeros(len(ends), np.bool_)).cast(pa.string())
        columns = [
            ids if understood.all() else ids.filter(pa.array(understood)),
            _struct(self._wanted.kind, values),
        ]
        if self._wanted.line_signals:
            columns.append(pa.concat_arrays(self._lists))
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
