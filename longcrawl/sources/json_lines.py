r"""Lines of one JSON object each as Arrow columns.

The lines go through the kernels beside this file; what those do not take goes through Python's ``json``, which decides.
Both give the same values: a lone surrogate escape (``\ud800``), which no UTF-8 can hold, becomes U+FFFD, and of a
key that comes twice the last one counts.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.dotted import MISSING, find_value, names_in
from longcrawl.printable import listed, listed_with_near
from longcrawl.sources.blocks import BLOCK_BYTES, STEP_BYTES
from longcrawl.sources.files import DamagedFileError
from longcrawl.sources.gathered import LARGE_BYTES

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = " \t\n\r"
"""What may stand between the tokens of JSON."""
_LIKELY_LINE = 500
"""Bytes; of shorter lines only some of a piece are read at a time."""


@dataclass(frozen=True)
class Lines:
    """What the lines of one block hold."""

    table: pa.Table
    """One row per line that was read."""
    numbers: npt.NDArray[np.int64]
    """The line of each row, counted from 0 within the block; blank and unreadable lines are counted too."""
    lost: list[tuple[int, str]]
    """Number of each line that was not read, and why; blank lines are none."""
    count: int
    """How many lines the block has."""
    starts: npt.NDArray[np.int64] | None = None
    """The first byte of each row's line in the block; None where rows are not lines."""


@dataclass(frozen=True)
class Found:
    """Where the wanted fields of every line of a block are."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    """[lines, names, 2]: first byte of the value and one past its last, quotes left out."""
    kinds: npt.NDArray[np.uint8]
    """[lines, names]: what is there, in the words of the kernels."""
    status: npt.NDArray[np.uint8]
    """[lines]: 0 where the line was understood, in the words of the kernels where it was not."""

    def line(self, number: int) -> bytes:
        """Return the bytes of one line."""
        return self.data[self.starts[number] : self.ends[number]].tobytes()


class Spelled(str):
    """A number of a JSON text as it is spelled there."""

    __slots__ = ()


@dataclass(frozen=True)
class _Nested:
    """A field with a dotted name: its place in the schema, and how to reach it inside of objects."""

    place: int
    root: str
    root_place: int
    """Place of the first step among the names that are looked for in lines."""
    steps: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
    """The steps behind the first one, packed."""


def _nested_fields(schema: pa.Schema) -> list[_Nested]:
    """Return the fields with dotted names; none whose first step is a field itself, as that one is no object then."""
    found, roots = list[_Nested](), list[str]()
    for place, name in enumerate(schema.names):
        root, *steps = name.split(".")
        if steps and root not in schema.names:
            if root not in roots:
                roots.append(root)
            found.append(_Nested(place, root, len(schema) + roots.index(root), pack(steps)))
    return found


def read_lines(block: bytes | memoryview, schema: pa.Schema) -> Lines:
    """Read the fields of a schema from every line of a block; see :class:`LineReader`."""
    reader = LineReader(schema)
    reader.add(block)
    return reader.take()


def _kernels() -> Any:
    from longcrawl.sources import _kernels as kernels

    return kernels


class LineReader:
    """Reads the fields of a schema from lines, piece by piece, into one table.

    ``string`` and ``large_string`` columns take texts, and numbers, true and false as they are spelled; ``int64`` and
    ``float64`` columns take numbers. A line is lost when it is not a JSON object, when a field holds something else, or
    when a field that is not nullable is null or absent. A name with a dot reaches into objects, see
    :mod:`longcrawl.core.dotted`.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._nested = _nested_fields(schema)
        self._names = pack([*schema.names, *dict.fromkeys(field.root for field in self._nested)])
        self._texts = [None if _is_number(field.type) else Texts() for field in schema]
        self._of_numbers = [index for index, text in enumerate(self._texts) if text is None]
        # What dotted names find is written behind the first pass.
        late, roots = {field.place for field in self._nested}, len(self._names[1]) - 1 - len(schema)
        self._first = [None if place in late else text for place, text in enumerate(self._texts)] + [None] * roots
        is_first = [not field.nullable and place not in late for place, field in enumerate(schema)]
        self._required = np.array(is_first + [False] * roots)
        self.lines = 0
        """How many lines have been added."""
        self.present = set[str]()
        """The fields that a line has, with a value or null, of all lines that have been taken."""
        self._begin()

    def add(self, piece: bytes | memoryview) -> None:
        """Read whole lines; only the last one of a file may lack the line end."""
        data = np.frombuffer(piece, dtype=np.uint8)
        for found in find_fields(data, self._names, self._first, self._required):
            if self._nested:
                self._find_nested(found)
            values = [_numbers(found, index, self._schema[index].type) for index in self._of_numbers]
            numbers = np.arange(self.lines, self.lines + len(found.starts))
            every: list[npt.NDArray[Any]] = [
                numbers,
                found.starts + self._bytes,
                found.status,
                found.spans,
                found.kinds,
                *values,
            ]
            self.lines += len(found.starts)
            if not found.status.any():
                self._found.append(every)
            else:
                # Millions of blank lines fit a block, and a member of some kB.
                kept = np.flatnonzero(found.status != _kernels().BLANK)
                self._found.append([each[kept] for each in every])
                self._add_the_rest(found)
        self._bytes += len(data)

    def _find_nested(self, found: Found) -> None:
        """Find the values of dotted names, and write those that are texts."""
        kernels = _kernels()
        for field in self._nested:
            spans = np.ascontiguousarray(found.spans[:, field.place])
            kinds = np.ascontiguousarray(found.kinds[:, field.place])
            roots = (np.ascontiguousarray(each[:, field.root_place]) for each in (found.spans, found.kinds))
            kernels.find_nested(found.data, *field.steps, found.status, *roots, spans, kinds)
            required, understood = not self._schema[field.place].nullable, found.status == 0
            if (text := self._texts[field.place]) is not None:
                address = text.room(int((spans[:, 1] - spans[:, 0])[understood].sum()) + 64)
                text.size = kernels.write_values(found.data, required, address, text.size, found.status, spans, kinds)
            elif required:
                found.status[understood & (kinds <= kernels.NULL)] = kernels.INEXACT
            found.spans[:, field.place], found.kinds[:, field.place] = spans, kinds

    def take(self) -> Lines:
        """Return what was added since the last time."""
        if self._found or not self._closed:
            self._close()
        tables, numbers, starts = zip(*self._closed, strict=True)
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
        count = self.lines - self._begun
        lines = Lines(table, np.concatenate(numbers) - self._begun, self._lost, count, np.concatenate(starts))
        self._begin()
        return lines

    def _begin(self) -> None:
        self._begun, self._bytes = self.lines, 0
        self._lost: list[tuple[int, str]] = []
        self._closed: list[tuple[pa.Table, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        """Tables, the line of each row, and its first byte."""
        self._open()

    def _open(self) -> None:
        """Begin a table."""
        self._found: list[list[npt.NDArray[Any]]] = []
        """Of lines that are not blank: numbers, first bytes, status, spans, kinds, and values of columns of numbers."""

    def _close(self) -> None:
        """Make a table of all lines that the kernels understood."""
        if not self._found:
            self._closed.append((self._schema.empty_table(), np.empty(0, np.int64), np.empty(0, np.int64)))
            return
        kernels, every = _kernels(), [np.concatenate(each) for each in zip(*self._found, strict=True)]
        rows = np.flatnonzero((every[2] == 0) | (every[2] == kernels.INEXACT))
        if len(rows) < len(every[2]):
            every = [each[rows] for each in every]
        numbers, starts, status, spans, kinds, *values = every
        has = (kinds[:, : len(self._schema)] != kernels.ABSENT).any(axis=0)
        self.present.update(name for name, here in zip(self._schema.names, has.tolist(), strict=True) if here)
        arrays, of_numbers = list[pa.Array](), iter(values)
        for index, (field, text) in enumerate(zip(self._schema, self._texts, strict=True)):
            absent = kinds[:, index] <= kernels.NULL
            if text is None:
                arrays.append(pa.array(next(of_numbers), mask=absent).cast(field.type))
            else:
                arrays.append(text.take(spans[:, index, 1], absent).cast(field.type))
        table, exact = pa.table(arrays, schema=self._schema), status == 0
        if not exact.all():
            table, numbers, starts = table.filter(pa.array(exact)), numbers[exact], starts[exact]
        self._closed.append((table, numbers, starts))
        self._open()

    def _add_the_rest(self, found: Found) -> None:
        """Read those of the last lines that only Python's ``json`` can read."""
        late, places, first = list[dict[str, Any]](), list[int](), self.lines - len(found.starts)
        rest = np.flatnonzero((found.status != 0) & (found.status != _kernels().BLANK)).tolist()
        if not rest:
            return
        for number in rest:
            try:
                record = parse_object(found.line(number))
                self.present.update(name for name in self._schema.names if find_value(record, name) is not MISSING)
                late.append({field.name: _value(record, field) for field in self._schema})
                places.append(number)
            except ValueError as error:
                self._lost.append((number + first - self._begun, str(error)))
        self._close()
        table, numbers, starts = self._closed.pop()
        before = int(np.searchsorted(numbers, first))
        both = pa.concat_tables([table.slice(before), pa.Table.from_pylist(late, schema=self._schema)])
        lines = np.concatenate([numbers[before:], np.array(places, np.int64) + first])
        begins = np.concatenate([starts[before:], found.starts[places] + self._bytes])
        order = np.argsort(lines)
        self._closed.append((table.slice(0, before), numbers[:before], starts[:before]))
        self._closed.append((both.take(order), lines[order], begins[order]))


class Texts:
    """The texts of one field, one after the other, in an array that kernels write to."""

    def __init__(self) -> None:
        self._array, self.size = np.empty(0, np.uint8), 0

    def room(self, count: int) -> int:
        """Return the address of the first byte, behind whose last one there is room for so many."""
        if len(self._array) < self.size + count:
            is_large = self.size > count // 8
            size = max(LARGE_BYTES if is_large else 0, (self.size + count) * 5 // 4)
            longer = np.frombuffer(pa.allocate_buffer(size), np.uint8)
            longer[: self.size] = self._array[: self.size]
            self._array = longer
        return int(self._array.ctypes.data)

    def take(self, ends: npt.NDArray[np.int64], absent: npt.NDArray[np.bool_]) -> pa.LargeStringArray:
        """Return the texts that end there, and begin anew; a few of them do not keep a long array."""
        written, self.size = self._array[: self.size], 0
        if len(written) < len(self._array) // 4:
            written = written.copy()
        else:
            self._array = np.empty(0, np.uint8)
        offsets = pa.py_buffer(np.concatenate([np.zeros(1, np.int64), ends]))
        bitmap = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
        return pa.LargeStringArray.from_buffers(len(ends), offsets, pa.py_buffer(written), bitmap)


def find_fields(
    data: npt.NDArray[np.uint8],
    names: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]],
    texts: "Sequence[Texts | None]",
    required: npt.NDArray[np.bool_],
    unchecked: int = -1,
) -> Iterator[Found]:
    """Find the values of fields in lines, some hundred at a time, and write those that are texts.

    Args:
        data: whole lines; only the last one of a file may lack the line end.
        names: the fields, see :func:`pack`.
        texts: where the texts of each field are written; None for a field whose places are wanted.
        required: fields without which a line is not understood.
        unchecked: index of the field whose list or object the caller checks itself; -1 for none.
    """
    from longcrawl.sources import _kernels as kernels

    at, count = 0, -1
    while at < len(data) or count < 0:
        room = len(data) - at
        lines = room // _LIKELY_LINE + 16
        spans, kinds = np.empty((lines, len(texts), 2), np.int64), np.empty((lines, len(texts)), np.uint8)
        starts, ends, status = np.empty(lines, np.int64), np.empty(lines, np.int64), np.empty(lines, np.uint8)
        addresses = np.array([0 if text is None else text.room(room + 64) for text in texts], np.int64)
        filled = np.array([0 if text is None else text.size for text in texts], np.int64)
        count = kernels.find_fields(
            data, at, *names, unchecked, addresses, required, filled, starts, ends, spans, kinds, status
        )
        for text, size in zip(texts, filled.tolist(), strict=True):
            if text is not None:
                text.size = size
        yield Found(data, starts[:count], ends[:count], spans[:count], kinds[:count], status[:count])
        at = int(ends[count - 1]) + 1 if count else at


def parse_object(line: bytes) -> dict[str, Any]:
    """Read one line with Python's ``json``, numbers as :class:`Spelled`.

    Raises:
        ValueError: it is not UTF-8, not JSON or not an object; the message says which.
    """
    try:
        record = json.loads(line.decode(), parse_int=Spelled, parse_float=Spelled, parse_constant=Spelled)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start} of the line)") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at character {error.pos} of the line)") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(record, dict):
        raise ValueError(f"holds {_spell(record)}, not an object")  # noqa: TRY004  # the line is wrong, not a caller
    return record


def begins_array(block: bytes | memoryview) -> bool:
    """Return whether a file that begins so is one array of objects, over however many lines, not JSON lines."""
    begin = bytes(block[:STEP_BYTES]).lstrip(_SPACE.encode())
    behind = begin[1:].strip(_SPACE.encode())
    return begin[:1] == b"[" and (behind[:1] == b"{" or behind == b"]")


def array_blocks(content: bytes) -> Iterator[bytes]:
    """Return the values of an array as JSON lines, in blocks of some ``BLOCK_BYTES``, spelled as they are there.

    Raises:
        DamagedFileError: it is not UTF-8, not JSON, or goes on after its end; what is before has been returned.
    """
    values, lines, size, wrong = _values(content), list[bytes](), 0, ""
    while True:
        try:
            value = next(values, None)
        except UnicodeDecodeError as error:
            value, wrong = None, f"is not UTF-8 ({error.reason} at byte {error.start})"
        except json.JSONDecodeError as error:
            value, wrong = None, f"is not JSON ({error.msg} at character {error.pos} of the file)"
        except RecursionError:
            value, wrong = None, "is nested too deeply"
        if value is not None:
            # A line feed within a string is escaped, so these are all outside of strings.
            lines.append(value.replace("\n", " ").encode())
            size += len(lines[-1])
        if lines and (value is None or size >= BLOCK_BYTES):
            yield b"\n".join(lines)
            lines, size = [], 0
        if value is None:
            break
    if wrong:
        raise DamagedFileError(wrong)


def _values(content: bytes) -> Iterator[str]:
    """Yield the values of an array as they are spelled."""
    decoder = json.JSONDecoder(parse_int=Spelled, parse_float=Spelled, parse_constant=Spelled)
    text = content.decode("utf-8-sig")
    at, mark = _after_space(text, 0), "["
    if text[_after_space(text, at + 1) :].startswith("]"):
        at, mark = _after_space(text, at + 1), "]"
    while mark != "]":
        start = _after_space(text, at + 1)
        _, end = decoder.raw_decode(text, start)
        yield text[start:end]
        at = _after_space(text, end)
        mark = text[at : at + 1]
        if mark not in (",", "]"):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    if (end := _after_space(text, at + 1)) < len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def pack(names: Iterable[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return names as the kernels take them: their bytes one after the other, and where each starts."""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *(len(name) for name in encoded)]).astype(np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(found: Found, index: int, kind: pa.DataType) -> npt.NDArray[np.float64]:
    """Read a column of numbers; lines whose number is not exact in a float64 are left to Python."""
    from longcrawl.sources import _kernels as kernels

    values = np.empty(len(found.starts), dtype=np.float64)
    exact = np.empty(len(found.starts), dtype=np.bool_)
    spans, kinds = np.ascontiguousarray(found.spans[:, index]), np.ascontiguousarray(found.kinds[:, index])
    kernels.parse_numbers(found.data, spans, kinds, values, exact)
    present = kinds > kernels.NULL
    if pa.types.is_integer(kind):
        exact &= ~present | ((values == np.floor(values)) & (np.abs(values) < 2**63))
        values[~(present & exact)] = 0
    found.status[~exact & (found.status == 0)] = kernels.INEXACT
    return values


def _value(record: dict[str, Any], field: pa.Field) -> Any:
    value = find_value(record, field.name)
    if value is None or value is MISSING:
        if not field.nullable:
            fields = names_in(record)
            if value is MISSING:
                raise ValueError(f"has no field {field.name!r}; its fields: {listed_with_near(fields, field.name)}")
            raise ValueError(f"has null in its field {field.name!r}; its fields: {listed(fields)}")
        return None
    if _is_number(field.type):
        return _number(value, field)
    if isinstance(value, list | dict):
        raise ValueError(f"holds {_spell(value)} in its field {field.name!r}, not text")  # noqa: TRY004  # the line is wrong, not a caller
    if isinstance(value, bool):
        return "true" if value else "false"
    return without_surrogates(value)


def without_surrogates(text: str) -> str:
    """Return a text with U+FFFD for each lone surrogate, which no UTF-8 can hold."""
    return _SURROGATE.sub("\ufffd", text)


def _number(value: Any, field: pa.Field) -> float | int:
    if not isinstance(value, Spelled):
        raise ValueError(f"holds {_spell(value)} in its field {field.name!r}, not a number")  # noqa: TRY004  # the line is wrong, not a caller
    if pa.types.is_floating(field.type):
        return float(value)
    whole = int(value) if value.lstrip("-").isdigit() else float(value)
    if not math.isfinite(whole) or int(whole) != whole or abs(whole) >= 2**63:
        raise ValueError(f"holds {value} in its field {field.name!r}, not a whole number of 64 bits")
    return int(whole)


def _spell(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "a number" if isinstance(value, Spelled) else "true or false" if isinstance(value, bool) else "text"


def is_utf8(block: bytes | memoryview) -> bool:
    """Return whether bytes are UTF-8, without building their text."""
    offsets = np.array([0, len(block)], dtype=np.int64)
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(block))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
