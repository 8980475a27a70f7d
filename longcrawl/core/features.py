"""What `datasets` calls the types of columns, without importing it for the usual ones: that takes half a second."""

import pyarrow as pa

_NAMES = {pa.float32(): "float32", pa.float64(): "float64"}
_PLAIN = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
)


def plain_dtypes(schema: pa.Schema) -> dict[str, str] | None:
    """Return the ``dtype`` that `datasets` gives each column; None where it makes something else of one.

    >>> plain_dtypes(pa.schema([("id", pa.string()), ("value", pa.float64())]))
    {'id': 'string', 'value': 'float64'}
    """
    described = b"huggingface" in (schema.metadata or {})
    if described or any(field.type not in _PLAIN for field in schema):
        return None
    return {field.name: _NAMES.get(field.type, str(field.type)) for field in schema}
