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

from longcrawl.printable import listed
from longcrawl.sources.blocks import BLOCK_BYTES, STEP_BYTES
from longcrawl.sources.files import DamagedFileError

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = " \t\n\r"
"""What may stand between the tokens of JSON."""
_LIKELY_LINE = 500
"""Bytes; of shorter lines the ends are looked for twice."""


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
    """[lines]: 0 where the line was understood."""

    @classmethod
    def joined(cls, pieces: "Sequence[Found]") -> "Found":
        """Return what was found in pieces of the same data, one after the other."""
        of_lines = ([getattr(each, name) for each in pieces] for name in ("starts", "ends", "spans", "kinds", "status"))
        return pieces[0] if len(pieces) == 1 else cls(pieces[0].data, *map(np.concatenate, of_lines))

    def line(self, number: int) -> bytes:
        """Return the bytes of one line."""
        return self.data[self.starts[number] : self.ends[number]].tobytes()


class Spelled(str):
    """A number of a JSON text as it is spelled there."""

    __slots__ = ()


def read_lines(block: bytes | memoryview, schema: pa.Schema) -> Lines:
    """Read the fields of a schema from every line.

    ``string`` and ``large_string`` columns take texts, and numbers, true and false as they are spelled; ``int64`` and
    ``float64`` columns take numbers. A line is lost when it is not a JSON object, when a field holds something else, or
    when a field that is not nullable is null or absent.
    """
    from longcrawl.sources import _kernels as kernels

    found = find_fields(block, schema.names)
    columns: dict[str, Any] = {}
    for index, field in enumerate(schema):
        kinds = found.kinds[:, index]
        if not field.nullable:
            found.status[kinds == kernels.ABSENT] = 1
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            columns[field.name] = _numbers(found, index, whole=pa.types.is_integer(field.type))
        else:
            found.status[kinds == kernels.NESTED] = 1
    understood = np.flatnonzero(found.status == 0)
    arrays = []
    for index, field in enumerate(schema):
        if field.name in columns:
            absent = found.kinds[understood, index] == kernels.ABSENT
            arrays.append(pa.array(columns[field.name][understood], mask=absent).cast(field.type))
        else:
            arrays.append(texts_of(found, index, understood).cast(field.type))
    return _with_the_rest(found, understood, pa.table(arrays, schema=schema))


def find_fields(block: bytes | memoryview, names: Sequence[str], unchecked: int = -1) -> Found:
    """Find the values of fields in every line; the list or object of the field ``unchecked`` is not looked into."""
    from longcrawl.sources import _kernels as kernels

    data = np.frombuffer(block, dtype=np.uint8)
    packed, pieces, at = pack(names), list[Found](), 0
    while at < len(data) or not pieces:
        ends = _line_ends(data, at)
        starts = np.concatenate([np.array([at]), ends[:-1] + 1])[: len(ends)]
        spans = np.zeros((len(ends), len(names), 2), dtype=np.int64)
        kinds = np.zeros((len(ends), len(names)), dtype=np.uint8)
        status = np.ones(len(ends), dtype=np.uint8)
        stop = int(ends[-1]) if len(ends) else at
        if is_utf8(block[at:stop]):
            kernels.find_fields(data, starts, ends, *packed, unchecked, spans, kinds, status)
        pieces.append(Found(data, starts, ends, spans, kinds, status))
        at = stop + 1
    return Found.joined(pieces)


def _line_ends(data: npt.NDArray[np.uint8], at: int) -> npt.NDArray[np.int64]:
    """Return where lines end, the first of which begins here: those of some ``STEP_BYTES``, or one longer line."""
    from longcrawl.sources import _kernels as kernels

    begin, feeds, count = at, np.empty(STEP_BYTES // _LIKELY_LINE, np.int64), 0
    while at < len(data) and not count:
        start, at = at, min(at + STEP_BYTES, len(data))
        if (count := kernels.find_line_ends(data[start:at], feeds)) > len(feeds):
            feeds = np.empty(count, np.int64)
            kernels.find_line_ends(data[start:at], feeds)
    ends = feeds[:count] + start if count else feeds[:0]
    open_line = at == len(data) and (ends[-1] + 1 if count else begin) < at
    return np.append(ends, at) if open_line else ends


def texts_of(found: Found, index: int, rows: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """Return the texts of one field for some lines, null where absent."""
    from longcrawl.sources import _kernels as kernels

    spans = np.ascontiguousarray(found.spans[rows, index])
    kinds = np.ascontiguousarray(found.kinds[rows, index])
    absent = kinds == kernels.ABSENT
    out = np.empty(int((spans[:, 1] - spans[:, 0])[~absent].sum()) + 63, dtype=np.uint8)
    offsets = np.empty(len(rows) + 1, dtype=np.int64)
    kernels.unescape(found.data, spans, kinds, out, offsets)
    bitmap = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    text = pa.py_buffer(out[: offsets[-1]])
    return pa.LargeStringArray.from_buffers(len(rows), pa.py_buffer(offsets), text, bitmap)


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


def _numbers(found: Found, index: int, *, whole: bool) -> npt.NDArray[np.float64]:
    """Read a column of numbers; lines whose number is not exact in a float64 are left to Python."""
    from longcrawl.sources import _kernels as kernels

    values = np.empty(len(found.starts), dtype=np.float64)
    exact = np.empty(len(found.starts), dtype=np.bool_)
    spans, kinds = np.ascontiguousarray(found.spans[:, index]), np.ascontiguousarray(found.kinds[:, index])
    kernels.parse_numbers(found.data, spans, kinds, values, exact)
    present = kinds != kernels.ABSENT
    if whole:
        exact &= ~present | (values == np.floor(values))
        values[~present] = 0
    found.status[~exact] = 1
    return values


def _with_the_rest(found: Found, understood: npt.NDArray[np.int64], table: pa.Table) -> Lines:
    """Add the lines that only Python's ``json`` can read, in their places."""
    rest = np.flatnonzero(found.status)
    rows, numbers, lost = [], [], []
    for number in rest.tolist():
        line = found.line(number)
        if not line.strip(b" \t\r"):
            continue
        try:
            record = parse_object(line)
            rows.append({field.name: _value(record, field) for field in table.schema})
            numbers.append(number)
        except ValueError as error:
            lost.append((number, str(error)))
    if rows:
        late = pa.Table.from_pylist(rows, schema=table.schema)
        places = np.concatenate([understood, np.array(numbers, dtype=np.int64)])
        order = np.argsort(places)
        return Lines(
            pa.concat_tables([table, late]).take(order),
            places[order],
            lost,
            len(found.starts),
            found.starts[places[order]],
        )
    return Lines(table, understood, lost, len(found.starts), found.starts[understood])


def _value(record: dict[str, Any], field: pa.Field) -> Any:
    value = record.get(field.name)
    if value is None:
        if not field.nullable:
            lack = "has null in its field" if field.name in record else "has no field"
            raise ValueError(f"{lack} {field.name!r}; its fields: {listed(record)}")
        return None
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
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
