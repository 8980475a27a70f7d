"""Columns as the buffers that kernels read, and what kernels wrote as columns again."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError


def valid_texts(texts: pa.Array, needed_by: str, name: str = "text") -> pa.Array:
    """Return texts as large strings whose offsets and UTF-8 have been checked.

    Raises:
        StageError: the column is not one of strings, or its bytes are damaged.
    """
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type) or pa.types.is_null(texts.type)):
        raise StageError(f"{needed_by} needs a column {name!r} of strings, this one is {texts.type}; cast it first")
    try:
        # Before the cast, which would read wherever damaged offsets point.
        texts.validate(full=True)
        return pc.cast(texts, pa.large_string())
    except pa.ArrowInvalid as error:
        raise StageError(f"the column {name!r} is damaged ({error}); decode the bytes as UTF-8 again") from error


def text_buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of valid texts, and where each document starts and the last ends; a null is an empty text."""
    filled: Any = pc.fill_null(texts, "") if texts.null_count else texts
    _, offset_buffer, data_buffer = filled.buffers()
    offsets = np.frombuffer(offset_buffer or bytes(8), np.int64)[filled.offset : filled.offset + len(filled) + 1]
    data = np.frombuffer(data_buffer or b"\0", np.uint8)
    return read_only(data), read_only(offsets)


def read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that cannot be written to: of arrays of both kinds, kernels would compile twice."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view


def text_column(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], texts: pa.Array, kind: pa.DataType
) -> pa.Array:
    """Return what a kernel made of ``texts`` as an array of type ``kind``, null where ``texts`` is."""
    if pa.types.is_null(kind):
        return pa.nulls(len(texts), kind)
    valid = pa.array(pc.is_valid(texts).to_numpy(zero_copy_only=False)).buffers()[1] if texts.null_count else None
    parts = [valid, pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
    return pc.cast(pa.Array.from_buffers(pa.large_string(), len(texts), parts), kind)


def fixed_binary(rows: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return rows of bytes, uint8 [rows, width], as binary values of that width; rows that are not valid are null."""
    kind = pa.binary(rows.shape[1])
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(rows), [mask, pa.py_buffer(np.ascontiguousarray(rows))])


def fixed_rows(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return binary values of a fixed width as rows of bytes, uint8 [rows, width], without a copy."""
    width = values.type.byte_width
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    return data[width * values.offset :][: width * len(values)].reshape(len(values), width)


def check_not_masked(table: pa.Table, edited_by: str) -> None:
    """Check that no masks say where in the texts no loss is computed: a change would move these places.

    Raises:
        StageError: there is a column ``masked``.
    """
    if "masked" in table.column_names:
        raise StageError(f"{edited_by} would shift what 'masked' points to; put it before the stage that masks")
