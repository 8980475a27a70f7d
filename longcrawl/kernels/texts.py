"""Text columns as buffers for kernels, and kernels that decode, scan and copy UTF-8."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import column
from longcrawl.errors import StageError
from longcrawl.kernels.code_points import SPACE
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import eight_at

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]

_BEYOND_ASCII = np.uint64(0x8080808080808080)
_FIRST_COMBINING = 0xCC
"""First byte of U+0300, the first combining character."""
SHORT = 128
"""Bytes counted at a time, so that the count fits into a byte: vector instructions are then 12 times as fast."""


@compiled
def decode(data: Bytes, at: int) -> tuple[np.uint32, int]:
    """Return the code point at a byte offset, and the offset of the next one."""
    point = np.uint32(data[at])
    if point < 0x80:
        return point, at + 1
    if point < 0xE0:
        return np.uint32((point & 0x1F) << 6 | data[at + 1] & 0x3F), at + 2
    if point < 0xF0:
        return np.uint32((point & 0xF) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F), at + 3
    high = (point & 7) << 18 | (data[at + 1] & 0x3F) << 12
    return np.uint32(high | (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F), at + 4


@compiled
def last_start(data: Bytes, stop: int) -> int:
    """Return the start of the last character before an offset."""
    at = stop - 1
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@compiled
def skip_space(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return the offset of the first character from ``at`` that is not white space, or ``stop`` if there is none."""
    while at < stop:
        point, after = decode(data, at)
        if not flag_of[point] & SPACE:
            break
        at = after
    return at


@compiled
def drop_space(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return the end of the text between two offsets without trailing white space."""
    while stop > at:
        last = last_start(data, stop)
        if not flag_of[decode(data, last)[0]] & SPACE:
            break
        stop = last
    return stop


@compiled
def copy(data: Bytes, start: int, stop: int, out: Bytes, place: int) -> int:
    """Copy bytes to ``place`` in ``out`` and return the end; an overlapping target must be before the source."""
    source, target = data[start:stop], out[place : place + stop - start]
    # The counter from 0 is unsigned, so that the loop compiles to a block copy.
    for at in range(len(source)):
        target[at] = source[at]
    return place + stop - start


@compiled
def count_characters(data: Bytes, start: int, stop: int) -> int:
    """Count the characters that start between two offsets."""
    found = 0
    for at in range(start, stop, SHORT):
        few = np.uint8(0)
        for byte in data[at : min(at + SHORT, stop)]:
            few = np.uint8(few + np.uint8((byte & 0xC0) != 0x80))
        found += few
    return found


@compiled
def begins_with(data: Bytes, at: int, stop: int, wanted: Bytes) -> bool:
    """Return whether the bytes ``wanted`` are at offset ``at`` and end by ``stop``."""
    same = 0
    while same < len(wanted) and at + same < stop and data[at + same] == wanted[same]:
        same += 1
    return same == len(wanted)


@compiled
def find_unordered(data: Bytes, bounds: npt.NDArray[np.int64], classes: Bytes, found: npt.NDArray[np.bool_]) -> None:
    """Write to ``found`` whether each text has combining classes out of order, or a class of 255."""
    base = data.ctypes.data
    for text in range(len(bounds) - 1):
        at, stop, before = bounds[text], bounds[text + 1], 0
        while at < stop:
            while at + 8 <= stop and not eight_at(base + at) & _BEYOND_ASCII:
                at, before = at + 8, 0
            if at == stop:
                break
            if data[at] < _FIRST_COMBINING:
                at, before = at + 1 + (data[at] >= 0xC0), 0
                continue
            point, at = decode(data, at)
            kind = classes[point]
            if kind == 255 or 0 < kind < before:
                found[text] = True
                break
            before = kind


def valid_texts(texts: pa.Array, needed_by: str, name: str = "text") -> pa.Array:
    """Check the offsets and UTF-8 of texts, and return them as large strings."""
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type) or pa.types.is_null(texts.type)):
        raise StageError(f"{needed_by} needs a column {name!r} of strings, but it is {texts.type}; cast it first")
    try:
        # The cast would read any memory that damaged offsets point to.
        texts.validate(full=True)
        return pc.cast(texts, pa.large_string())
    except pa.ArrowInvalid as error:
        raise StageError(f"the column {name!r} is damaged ({error}); decode the bytes as UTF-8 again") from error


def given_texts(table: pa.Table, needed_by: str) -> tuple[list[str | None], pa.DataType]:
    """Return the texts of documents before an extraction, and the type of the column ``text`` that it makes."""
    if "text" not in table.column_names:
        return [None] * table.num_rows, pa.large_string()
    texts = column(table.select(["text"]), "text", needed_by)  # files without a text are for this stage or a later one
    kind = pa.large_string() if pa.types.is_null(texts.type) else texts.type
    return valid_texts(texts, needed_by).to_pylist(), kind


def text_buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of valid texts, uint8, and their offsets, int64 [texts + 1]; a null is an empty text."""
    filled: Any = pc.fill_null(texts, "") if texts.null_count else texts
    _, offset_buffer, data_buffer = filled.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(8), np.int64)[filled.offset : filled.offset + len(filled) + 1]
    data = np.frombuffer(data_buffer or b"\0", np.uint8)
    return read_only(data), read_only(offsets)


def read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view, because kernels are compiled separately for writable and read-only arrays."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view


def text_column(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], texts: pa.Array, kind: pa.DataType
) -> pa.Array:
    """Convert bytes and offsets that a kernel made of ``texts`` to an array of type ``kind``, with the same nulls."""
    if pa.types.is_null(kind):
        return pa.nulls(len(texts), kind)
    valid = pa.array(pc.is_valid(texts).to_numpy(zero_copy_only=False)).buffers()[1] if texts.null_count else None
    parts = [valid, pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
    return pc.cast(pa.Array.from_buffers(pa.large_string(), len(texts), parts), kind)


def fixed_binary(rows: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Convert rows of bytes, uint8 [rows, width], to fixed-width binary values; rows that are not valid become null."""
    kind = pa.binary(rows.shape[1])
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(rows), [mask, pa.py_buffer(np.ascontiguousarray(rows))])


def fixed_rows(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return fixed-width binary values as rows of bytes, uint8 [rows, width], without a copy."""
    width = values.type.byte_width
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    return data[width * values.offset :][: width * len(values)].reshape(len(values), width)


def check_not_masked(table: pa.Table, edited_by: str) -> None:
    """Raise StageError if texts have loss masks, because editing a text would shift the masked places."""
    if "masked" in table.column_names:
        raise StageError(f"{edited_by} would shift what 'masked' points to; put it before the stage that masks")
