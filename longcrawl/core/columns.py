"""Columns of tables of documents: one that is needed and not there is one sentence."""

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError

__all__ = ["column", "document_ids", "reject_duplicate_ids", "with_column"]


def column(table: pa.Table, name: str, needed_by: str) -> pa.Array:
    """Return one column as a single array; a column that is not there is one sentence that names those that are.

    Raises:
        StageError: the table has no such column.

    """
    if name not in table.column_names:
        raise StageError(f"{needed_by} needs a column {name!r}; the documents have: {', '.join(table.column_names)}")
    chunks = table[name].combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with a column set: in its place where it is there already, else as the last one."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, values)
    return table.append_column(name, values)


def document_ids(table: pa.Table, needed_by: str) -> pa.Array:
    """Return the column ``id`` as text.

    Raises:
        StageError: there is no such column, or a document has no id.

    """
    ids = pc.cast(column(table, "id", needed_by), pa.string())
    if ids.null_count:
        place = pc.index(ids.is_null(), True).as_py()
        raise StageError(f"{needed_by} needs an id for every document, that of row {place:,} is null: give it one")
    return ids


def reject_duplicate_ids(ids: pa.Array | pa.ChunkedArray, needed_by: str) -> None:
    """Refuse ids that occur twice: what is decided about one of the documents would hit the other.

    Raises:
        StageError: naming one or two such ids.

    """
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(twice) == 1:
        raise StageError(f"{needed_by} needs unique ids, {twice[0].as_py()!r} occurs twice: drop one of the two")
    if len(twice):
        names = " and ".join(repr(name) for name in twice[:2].to_pylist())
        raise StageError(
            f"{needed_by} needs unique ids, {len(twice):,} occur twice or more, such as {names}: keep one of each"
        )
