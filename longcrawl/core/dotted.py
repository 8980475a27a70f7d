"""Dotted names of fields, such as ``metadata.url``, which reach into nested objects.

A field whose own name has the dots comes first. If there is none, each step between the dots is a field of the object
before it. A path that leads through something else than an object, such as a list or null, finds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MISSING: Any = object()
"""The value of a field that a record does not have."""


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
    """Yield the names of the fields of a record; objects are named by the fields in them.

    >>> list(names_in({"id": 1, "metadata": {"url": "u", "tags": []}}))
    ['id', 'metadata.url', 'metadata.tags']
    """
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{inner}" for inner in names_in(value))
        else:
            yield name


def names_of(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the names of the fields of an Arrow schema; structs are named by the fields in them."""
    for field in fields:
        if pa.types.is_struct(field.type) and field.type.num_fields:
            yield from (f"{field.name}.{inner}" for inner in names_of(field.type))
        else:
            yield str(field.name)


def path_of(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    """Return the steps to a field of an Arrow schema: one for a column, several for a field of a struct, or None."""
    if name in schema.names:
        return (name,)
    steps = tuple(name.split("."))
    return steps if len(steps) > 1 and _field_at(schema, steps) is not None else None


def type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of the field that :func:`path_of` has found."""
    field = _field_at(schema, path)
    assert field is not None  # the path is one of this schema
    return field.type


def column_at(table: pa.Table | pa.RecordBatch, path: tuple[str, ...]) -> pa.ChunkedArray | pa.Array:
    """Return the values of a field; null where a struct around it is null."""
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
