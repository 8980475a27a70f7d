"""Arrow values as text, spelled the same way whatever file they come from.

JSON lines and CSV hold text, which is taken as it is. Arrow and parquet hold binary values, which are spelled as
Python's ``json`` would write them.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TEXT = pa.string()


_NO_FRACTION, _ZEROS = r"\.0+($|[^0-9])", r"(\.[0-9]*[1-9])0+"
"""Zeros at the end of the fraction of a second: all of it, and those behind another digit."""


def as_text(column: Any, to: pa.DataType = TEXT) -> Any:
    """Return an array, or a chunked one, as strings of the type ``to``.

    A float is spelled as by ``repr``, or "NaN", "Infinity", "-Infinity"; a decimal without exponent; a time without
    zeros at the end of its fraction, whose number depends on the unit of the column. Arrow casts all else.
    """
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        column = _by_chunk(column, _floats)
    elif types.is_decimal(kind):
        column = _by_chunk(column, _decimals)
    elif types.is_timestamp(kind) or types.is_time(kind):
        whole = pc.replace_substring_regex(column.cast(TEXT), _NO_FRACTION, r"\1")
        column = pc.replace_substring_regex(whole, _ZEROS, r"\1")
    return column if column.type == to else column.cast(to)


def is_respelled(kind: pa.DataType) -> bool:
    """Return whether :func:`as_text` spells values of a type otherwise than Arrow's cast."""
    types = pa.types
    return bool(types.is_floating(kind) or types.is_decimal(kind) or types.is_timestamp(kind) or types.is_time(kind))


def _by_chunk(column: Any, spell: Callable[[pa.Array], pa.Array]) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([spell(chunk) for chunk in column.chunks], TEXT)
    return spell(column)


def _floats(values: pa.Array) -> pa.Array:
    absent = values.is_null().to_numpy(zero_copy_only=False)
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype != np.float64:  # the shortest digits of the type itself: 0.1, not 0.10000000149011612
        numbers = numbers.astype(np.str_).astype(np.float64)
    spelled = numbers.astype(np.str_).astype(object)
    for number, word in ((np.inf, "Infinity"), (-np.inf, "-Infinity")):
        spelled[numbers == number] = word
    spelled[np.isnan(numbers)] = "NaN"
    return pa.array(spelled, TEXT, mask=absent)


def _decimals(values: pa.Array) -> pa.Array:
    spelled = values.cast(TEXT)
    has_exponent = pc.fill_null(pc.match_substring(spelled, "E"), False)
    if not pc.any(has_exponent).as_py():
        return spelled
    digits = [f"{Decimal(text):f}" for text in spelled.filter(has_exponent).to_pylist()]
    return pc.replace_with_mask(spelled, has_exponent, pa.array(digits, TEXT))
