"""Fields of documents: found by dotted names, and converted to text.

A dotted name first matches a field with exactly that name. Otherwise each part of the name is a field of the object
named before it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MISSING: Any = object()
"""Marker for a field that a record does not have."""


def find_value(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field of a record, or ``MISSING``.

    >>> find_value({"a": {"b": 1}}, "a.b"), find_value({"a": {"b": 1}, "a.b": 2}, "a.b")
    (1, 2)
    """
    if name in record:
        return record[name]
    found: Any = record
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return MISSING
        found = found[step]
    return found


def names_in(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the fields of a record; an object yields its fields.

    >>> list(names_in({"id": 1, "metadata": {"url": "u", "tags": []}}))
    ['id', 'metadata.url', 'metadata.tags']
    """
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{inner}" for inner in names_in(value))
        else:
            yield name


def names_of(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the dotted names of the fields of an Arrow schema; a struct yields its fields."""
    for field in fields:
        if pa.types.is_struct(field.type) and field.type.num_fields:
            yield from (f"{field.name}.{inner}" for inner in names_of(field.type))
        else:
            yield str(field.name)


def path_of(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    """Return the path to a field of an Arrow schema: a column, or steps into structs; None if there is none."""
    if name in schema.names:
        return (name,)
    steps = tuple(name.split("."))
    return steps if len(steps) > 1 and _field_at(schema, steps) is not None else None


def type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of a field by its path, see :func:`path_of`."""
    field = _field_at(schema, path)
    assert field is not None  # the path is one of this schema
    return field.type


def column_at(table: pa.Table | pa.RecordBatch, path: tuple[str, ...]) -> pa.ChunkedArray | pa.Array:
    """Return the values of a field by its path; null if an enclosing struct is null."""
    first, *steps = path
    column = table.column(first)
    return pc.struct_field(column, steps) if steps else column


def _field_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.Field | None:
    fields: Any = schema
    field = None
    for step in path:
        places = fields.get_all_field_indices(step)
        if not places:
            return None
        field = fields.field(places[0])
        fields = field.type if pa.types.is_struct(field.type) else pa.struct([])
    return field


TEXT = pa.string()


_NO_FRACTION, _ZEROS = r"\.0+($|[^0-9])", r"(\.[0-9]*[1-9])0+"
"""Patterns of trailing zeros in fractions of a second: the whole fraction, and zeros after another digit."""


def as_text(column: Any, to: pa.DataType = TEXT) -> Any:
    """Convert an array or chunked array to strings of the type ``to``.

    Floats are formatted like ``repr``, or as "NaN", "Infinity" and "-Infinity"; decimals without exponent; times
    without trailing zeros. Arrow casts everything else.
    """
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        column = _by_chunk(column, _floats)
    elif types.is_decimal(kind):
        column = _by_chunk(column, _decimals)
    elif is_respelled(kind):
        whole = pc.replace_substring_regex(column.cast(TEXT), _NO_FRACTION, r"\1")
        column = pc.replace_substring_regex(whole, _ZEROS, r"\1")
    return column if column.type == to else column.cast(to)


def is_respelled(kind: pa.DataType) -> bool:
    """Return whether :func:`as_text` formats values of a type differently from Arrow's cast."""
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
