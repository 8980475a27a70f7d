"""Documents of any kind, converted to a `datasets` object with the columns ``id`` and ``text``."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import (
    CONTENT,
    FILE_BYTES,
    FILE_PATH,
    has_content,
    in_one_chunk,
    plain_strings,
    plain_type,
    with_column,
)
from longcrawl.core.fields import as_text, column_at, is_respelled, names_in, names_of, path_of
from longcrawl.errors import LongCrawlError, listed_with_near, one_line, reason_of, warn_user

BATCH = 1_000
"""Rows per table made from a generator or a stream."""
FILES = 16
"""Rows per table with files in ``content``: few PDFs have more than 6 MB, so a table has about 100 MB at most."""

OF_CRAWL = "Documents of a crawl: "
"""Prefix of the line in a dataset's description that names its crawl and the stages applied to it."""

Documents: TypeAlias = "datasets.Dataset | datasets.IterableDataset"


def as_documents(data: Any, text: str, id: str | None, content: str | None, source: str) -> Documents:  # noqa: A002  # the column's name
    """Convert data to a dataset with the columns ``text`` and ``id``, which may be fields of structs (``doc.text``).

    ``content`` names a column or field with the bytes of files, which becomes the column ``content``. It may also have
    `datasets`' feature ``Pdf``, or hold structs with a field ``bytes``; files given only by their path are read.

    Data may be a ``Dataset`` or ``IterableDataset``; a table of pandas, polars, pyarrow or any library with Arrow's
    stream interface; a mapping of columns; a list or generator of rows, which are mappings or texts; or a function that
    returns such rows. All but the first two are held in memory. Missing ids become ``SOURCE:ROW``, with a warning.

    Raises:
        LongCrawlError: ``data`` is of an unknown type, or lacks these columns, or ``content`` has no bytes.
    """
    try:
        documents = _as_dataset(data)
    except (pa.ArrowException, UnicodeEncodeError) as wrong:
        raise LongCrawlError(
            f"documents of {type(data).__name__} cannot be converted to a table ({one_line(wrong)}): give "
            "columns, each of one type"
        ) from wrong
    documents = _undecoded(documents, content or CONTENT.name)
    has_files = content is not None or (documents.features is not None and has_content(documents.features.arrow_schema))
    rows = FILES if has_files else BATCH
    for name, wanted in ((text, "text"), (id or "id", "id"), (content or CONTENT.name, CONTENT.name)):
        documents = _renamed(documents, name, wanted, rows)
    if content is not None:
        documents = _with_bytes(documents)
    if content is not None and documents.features is not None and not has_content(documents.features.arrow_schema):
        kind = documents.features.arrow_schema.field(CONTENT.name).type
        raise LongCrawlError(f"column {content!r} holds {kind}, not bytes: set content= to a binary column")
    kinds = {} if documents.features is None else {each.name: each.type for each in documents.features.arrow_schema}
    if is_respelled(kinds.get("id", pa.null())):
        documents = _changed(documents, _with_text_ids, rows)
    if isinstance(documents, datasets.IterableDataset):
        # A stream may not know its columns, and must not be read before documents are requested.
        is_there = "id" in (documents.column_names or ())
        return documents if is_there else _changed(documents, partial(_with_ids, source), rows, with_indices=True)
    if "id" in documents.column_names:
        return documents
    _warn_of_ids(source)
    return documents.add_column("id", _ids(source, range(len(documents))))


def with_crawl(documents: Documents, passed: Iterable[str]) -> Documents:
    """Add a line to the description of documents that names their crawl and the stages applied to them.

    `datasets` copies the description to every derived dataset. A stream is returned unchanged: it has no ledger.
    """
    if isinstance(documents, datasets.IterableDataset):
        return documents
    named = deepcopy(documents)  # does not copy the Arrow tables
    lines = [line for line in named.info.description.splitlines() if not line.startswith(OF_CRAWL)]
    named.info.description = "\n".join([*lines, OF_CRAWL + one_line(" | ".join(passed))])
    return named


def warn_of_crawl(data: Any) -> None:
    """Warn if documents are taken from another crawl: its ledger is not copied with them."""
    description = data.info.description if isinstance(data, datasets.Dataset) else ""
    if found := [line for line in description.splitlines() if line.startswith(OF_CRAWL)]:
        warn_user(
            f"these are documents of another crawl ({found[0].removeprefix(OF_CRAWL)}), which has its own ledger: "
            "to remove some with a reason, write crawl.filter(function), not lc.Crawl(crawl.data.filter(function))"
        )


def _as_dataset(data: Any) -> Documents:
    if isinstance(data, datasets.Dataset | datasets.IterableDataset):
        return _without_views(data)
    if isinstance(data, datasets.DatasetDict | datasets.IterableDatasetDict):
        raise LongCrawlError(f"a crawl is one split; choose one: data[{next(iter(data), 'train')!r}]")
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return _of_table(pa.Table.from_pandas(data, preserve_index=False))
    if hasattr(data, "collect") and not hasattr(data, "__arrow_c_stream__"):  # a polars LazyFrame
        data = data.collect()
    if isinstance(data, pa.RecordBatch):
        data = pa.table(data)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_table(pa.table(data))
    if isinstance(data, Mapping):
        return _of_table(pa.table(dict(data)))
    rows = data() if callable(data) else data
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return _of_table(_of_rows(iter(rows)))
    raise LongCrawlError(
        f"a crawl is made from a datasets.Dataset, a table of pandas, polars or pyarrow, or rows; got "
        f"{type(data).__name__}: to open a file or a dataset by name, write lc.open(NAME)"
    )


def _of_rows(rows: Iterator[Any]) -> pa.Table:
    tables = []
    while batch := list(islice(rows, BATCH)):
        named = [{"text": row} if isinstance(row, str) else row for row in batch]
        if (wrong := next((row for row in named if not isinstance(row, Mapping)), None)) is not None:
            raise LongCrawlError(f"a row of documents is a mapping or a text, got {type(wrong).__name__}")
        # pyarrow would take only the columns of the first row.
        columns = dict.fromkeys(name for row in named for name in row)
        tables.append(pa.table({name: pa.array([row.get(name) for row in named]) for name in columns}))
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({"text": pa.array([], "str")})


def _of_table(table: pa.Table) -> datasets.Dataset:
    return datasets.Dataset(plain_strings(table))


def _without_views(documents: Documents) -> Documents:
    """Cast string views and dictionaries to plain strings; return a stream of unknown columns unchanged."""
    features = documents.features
    if features is None or not (schema := features.arrow_schema):
        return documents
    plain = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
    changed = [name for name in features if plain.field(name).type != schema.field(name).type]
    if not changed:
        return documents
    made = datasets.Features.from_arrow_schema(plain.remove_metadata())
    return documents.cast(datasets.Features({**features, **{name: made[name] for name in changed}}))


def _columns(documents: Documents) -> list[str]:
    """Return the names of the columns; for a stream that does not know them, those of its first row."""
    named = documents.column_names
    return list(next(iter(documents.with_format(None).take(1)), {})) if named is None else list(named)


def _renamed(documents: Documents, name: str, wanted: str, rows: int) -> Documents:
    if name == wanted:
        return documents
    columns = _columns(documents)
    is_nested = name not in columns
    if is_nested and name not in _fields(documents):
        known = listed_with_near(_fields(documents), name)
        raise LongCrawlError(f"the documents have no column {name!r}; they have: {known}. Set {wanted}= to one of them")
    if wanted in columns and not name.startswith(f"{wanted}."):
        raise LongCrawlError(
            f"the documents have both a column {wanted!r} and {name!r}: remove the first, "
            f"data.remove_columns({wanted!r})"
        )
    if is_nested:
        return _changed(documents, partial(_with_field, name, wanted), rows)
    if isinstance(documents, datasets.Dataset):
        return documents.rename_column(name, wanted)
    # ``rename_column`` works by rows and would lose the type of a column that begins with nulls.
    features = documents.features
    renamed = features and datasets.Features({wanted if each == name else each: features[each] for each in features})
    return _changed(documents, partial(_with_name, name, wanted), rows, features=renamed)


def _with_name(name: str, wanted: str, table: pa.Table) -> pa.Table:
    renamed = table.rename_columns([wanted if each == name else each for each in table.column_names])
    return in_one_chunk(renamed)


def _fields(documents: Documents) -> list[str]:
    """Return the names of columns and struct fields; for a stream that does not know them, those of its first row."""
    if documents.features is None:
        return list(names_in(next(iter(documents.take(1)), {})))
    return list(names_of(documents.features.arrow_schema))


def _undecoded(documents: Documents, name: str) -> Documents:
    """Turn off the decoding of a column, which `datasets` does for rows of a stream, even for one in Arrow's format."""
    feature: Any = (documents.features or {}).get(name)
    is_decoded = isinstance(documents, datasets.IterableDataset) and getattr(feature, "decode", False)
    return documents.cast_column(name, replace(feature, decode=False)) if is_decoded else documents


def _with_bytes(documents: Documents) -> Documents:
    """Replace structs in ``content`` by the bytes of the files, if its type is known."""
    features = documents.features or {}
    kind = documents.features.arrow_schema.field(CONTENT.name).type if CONTENT.name in features else pa.null()
    if not pa.types.is_struct(kind) or kind.get_field_index(FILE_BYTES) < 0:
        return documents
    made = datasets.Features({**features, CONTENT.name: datasets.Value("large_binary")})
    return _changed(documents, _with_file_bytes, FILES, features=made)


def _with_file_bytes(table: pa.Table) -> pa.Table:
    files = table[CONTENT.name]
    contents = pc.cast(pc.struct_field(files, FILE_BYTES), CONTENT.type)
    if files.type.get_field_index(FILE_PATH) >= 0:
        paths = pc.struct_field(files, FILE_PATH)
        named = pc.and_(contents.is_null(), paths.is_valid()).combine_chunks()
        read = [_read_named(table, row, paths[row].as_py()) for row in np.flatnonzero(named).tolist()]
        if read:
            contents = pc.replace_with_mask(contents.combine_chunks(), named, pa.array(read, CONTENT.type))
    return with_column(table, CONTENT.name, contents)


def _read_named(table: pa.Table, row: int, path: str) -> bytes:
    """Read a file that a row only names; `datasets` also finds those in archives and behind URLs."""
    pdf = datasets.Pdf()
    try:
        read = pdf.embed_storage(pa.array([{FILE_BYTES: None, FILE_PATH: path}], pdf.pa_type))
    except Exception as error:
        whose = f"document {str(table['id'][row])!r} names" if "id" in table.column_names else "the documents name"
        raise LongCrawlError(
            f"{whose} the file {path!r}, which cannot be read ({reason_of(error)}): correct the path, or remove the row"
        ) from error
    return bytes(read[0][FILE_BYTES].as_py())


def _changed(documents: Documents, change: Callable[..., pa.Table], rows: int, **options: Any) -> Documents:
    if isinstance(documents, datasets.Dataset) and not len(documents):  # `datasets` would not call the function
        return datasets.Dataset(change(documents.with_format("arrow")[:]))
    with_arrow: Any = documents.with_format("arrow")
    return with_arrow.map(change, batched=True, batch_size=rows, **options).with_format(None)


def _with_field(name: str, wanted: str, table: pa.Table) -> pa.Table:
    """Add a struct field as a column; null if this table of a stream lacks the field."""
    path = path_of(table.schema, name)
    return with_column(table, wanted, pa.nulls(table.num_rows) if path is None else column_at(table, path))


def _with_text_ids(table: pa.Table) -> pa.Table:
    """Format ids as sources do: Arrow would cast 1.0 to "1"."""
    if "id" not in table.column_names or not is_respelled(table.schema.field("id").type):
        return table
    return with_column(table, "id", as_text(table["id"]))


def _with_ids(source: str, table: pa.Table, rows: Sequence[int]) -> pa.Table:
    if "id" in table.column_names:
        return _with_text_ids(table)
    _warn_of_ids(source)
    return in_one_chunk(with_column(table, "id", _ids(source, rows)))


def _warn_of_ids(source: str) -> None:
    warn_user(
        f"the documents have no column 'id': their ids are {source}:ROW, counted from 0; set id= if another "
        "column has ids"
    )


def _ids(source: str, rows: Iterable[int]) -> pa.Array:
    return pa.array([f"{source}:{row}" for row in rows], pa.string())
