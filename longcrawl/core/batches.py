"""Batches of documents: columns, the checks of rules, and calls by `datasets`.

`datasets` uses any return value of a ``.filter`` function as a mask, so a table of three columns would keep three
documents. To reject such calls, a stage inspects the calling frames once per batch.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import memory_of
from longcrawl.errors import StageError, one_line

_NAMES = {pa.float32(): "float32", pa.float64(): "float64"}
_PLAIN = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
)


def plain_dtypes(schema: pa.Schema) -> dict[str, str] | None:
    """Return the ``dtype`` that `datasets` gives each column, or None if a column is not a plain value.

    >>> plain_dtypes(pa.schema([("id", pa.string()), ("value", pa.float64())]))
    {'id': 'string', 'value': 'float64'}
    """
    described = b"huggingface" in (schema.metadata or {})
    if described or any(field.type not in _PLAIN for field in schema):
        return None
    return {field.name: _NAMES.get(field.type, str(field.type)) for field in schema}


CONTENT = pa.field("content", pa.large_binary())
"""Column of files such as PDFs, which a stage converts to texts; no output writes it."""
PAGE_OFFSETS = "page_offsets"
"""Column with the first character of each page of ``text``, lists of int64; null if the pages are not known."""
FILE_BYTES, FILE_PATH = "bytes", "path"
"""Fields with the bytes of a file, or else its path or URL, in structs of `datasets`' features, such as ``Pdf``."""

VERDICT_SCHEMA = pa.schema([("rule", pa.string()), ("value", pa.float64()), ("threshold", pa.float64())])
"""Schema of verdicts: one row per judged document, all null if the document is kept."""

Method = Literal["map", "filter"]

_ROWS = "row of the text"
_FORMS = {"map": "dataset.map(stage, batched=True)", "filter": "dataset.filter(stage, batched=True)"}
_DOES = {"map": "changes documents, and .filter needs a mask", "filter": "chooses documents, and .map needs documents"}


@dataclass(frozen=True)
class Check:
    """A rule measured on a batch: a float64 ``value`` per document (null if unknown) and whether it passes.

    ``threshold`` is one number, or one per document if it depends on the document's language.
    """

    rule: str
    value: pa.Array
    passes: pa.Array
    threshold: float | pa.Array | None = None
    comparison: Literal["at_least", "at_most"] | None = None


class Edited(NamedTuple):
    """The result of an edit or a rewrite on a batch."""

    documents: pa.Table
    """All documents of the batch, in order."""
    checks: Sequence[Check]
    places: pa.Table
    """Changed places, :data:`longcrawl.core.places.PLACE_SCHEMA`."""


class Outcome(NamedTuple):
    """The result of a stage on a batch."""

    documents: pa.Table
    removed: pa.Table
    """Removed documents, each with the first rule that it fails, ``REMOVED_SCHEMA``."""
    places: pa.Table
    """Changed places in kept and removed documents, :data:`longcrawl.core.places.PLACE_SCHEMA`."""
    queued: Mapping[str, pa.Table] = MappingProxyType({})
    """Rows for queues about kept and removed documents, :data:`longcrawl.core.queues.SCHEMA`."""


HAVE_FILES = f"have PDFs or other files in the column {CONTENT.name!r}"
NEED_TEXTS = "add the stage extract_pdf, which replaces it with texts, or another stage for such files"


def has_content(schema: pa.Schema) -> bool:
    """Return whether documents have the binary column ``CONTENT``; a text column of this name does not count."""
    kinds = [field.type for field in schema if field.name == CONTENT.name]
    return any(kind in (pa.binary(), pa.large_binary(), pa.binary_view()) for kind in kinds)


def has_values(documents: pa.Table, name: str) -> list[bool]:
    """Return for each document whether it has a value in a column, which may be missing."""
    if name not in documents.column_names:
        return [False] * documents.num_rows
    found: list[bool] = pc.is_valid(documents[name]).to_pylist()
    return found


def forget_pages(before: pa.Table, after: pa.Table) -> pa.Table:
    """Set ``page_offsets`` to null for texts that a stage has changed, unless it has set the column itself."""
    if any(name not in table.column_names for table in (before, after) for name in ("text", PAGE_OFFSETS)):
        return after
    offsets = after[PAGE_OFFSETS]
    if memory_of(before["text"]) == memory_of(after["text"]) or memory_of(before[PAGE_OFFSETS]) != memory_of(offsets):
        return after
    old, new = (pc.cast(table["text"], pa.large_string()) for table in (before, after))
    is_same = pc.fill_null(pc.equal(old, new), False)
    return with_column(after, PAGE_OFFSETS, pc.if_else(is_same, offsets, pa.scalar(None, offsets.type)))


def text_lengths(documents: pa.Table) -> pa.ChunkedArray | None:
    """Count the code points of each text; return None if texts are missing or not extracted yet."""
    if "text" not in documents.column_names or "html" in documents.column_names or has_content(documents.schema):
        return None
    return pc.utf8_length(documents["text"])


def hold_texts(table: pa.Table) -> pa.Table:
    """Replace texts by row numbers, so that stages which have already measured the texts do not copy them."""
    return table.set_column(table.column_names.index("text"), _ROWS, pa.array(np.arange(table.num_rows)))


def release_texts(table: pa.Table, held: pa.Table) -> pa.Table:
    """Put the texts of ``held`` back into the documents that remain after :func:`hold_texts`."""
    texts, rows = held["text"], table[_ROWS].to_numpy()
    if len(rows) < held.num_rows:
        chosen = np.zeros(held.num_rows, np.bool_)
        chosen[rows] = True
        texts = texts.filter(pa.array(chosen))
    return table.set_column(table.column_names.index(_ROWS), held.field("text"), texts)


def first_failure(rows: int, checks: Sequence[Check]) -> pa.Table:
    """Return the verdict of each document: its first failed check. A null in ``passes`` fails."""
    _check_lengths(rows, checks)
    failed_by = np.full(rows, -1, dtype=np.int64)
    for number, check in enumerate(checks):
        passes = pc.fill_null(check.passes, False).to_numpy(zero_copy_only=False)
        failed_by[(failed_by < 0) & ~passes] = number
    rules = pa.array([check.rule for check in checks], pa.string())
    values, thresholds = pa.nulls(rows, pa.float64()), pa.nulls(rows, pa.float64())
    for number, check in enumerate(checks):
        failed, bound = failed_by == number, check.threshold
        if failed.any():
            values = pc.if_else(pa.array(failed), pc.cast(check.value, pa.float64()), values)
            bound = bound if isinstance(bound, pa.Array) else pa.scalar(bound, pa.float64())
            thresholds = pc.if_else(pa.array(failed), bound, thresholds)
    verdicts = [rules.take(pa.array(failed_by, mask=failed_by < 0)), values, thresholds]
    return pa.table(verdicts, schema=VERDICT_SCHEMA)


def _check_lengths(rows: int, checks: Sequence[Check]) -> None:
    if not isinstance(checks, Sequence):
        raise StageError(f"a stage returned {type(checks).__name__} for its checks: return a list of Check")
    for check in checks:
        if not isinstance(check, Check):
            raise StageError(f"a stage returned {type(check).__name__} among its checks: return a Check for each rule")
        for field in ("value", "passes"):
            found = getattr(check, field)
            if not isinstance(found, pa.Array | pa.ChunkedArray):
                raise StageError(f"{field} of rule {check.rule!r} is {type(found).__name__}: return an Arrow array")
            if len(found) != rows:
                raise StageError(
                    f"{field} of rule {check.rule!r} has {len(found)} entries for {rows} documents: "
                    "return one for each, null if unknown"
                )


_WHERE_FROM = {
    "text": ". Choose the one that holds the text: lc.Crawl(data, text=COLUMN)",
    "tokens": ". Add the stage tokenize before it",
    "html": ". The source warc sets it; plain texts need no extraction",
    "content": ". Set binary: [pdf] of the source warc, or format: pdf or file_field of the source text",
    "language": ". Add the stage identify_language before it, or set language_field of the source",
    "url": ". Set url_field of the source",
}


def column(table: pa.Table, name: str, needed_by: str) -> pa.Array:
    """Return a column as a single array.

    Raises:
        StageError: the column is missing, or it is ``text`` or ``html`` and a document has only a file.
    """
    if name in ("text", "html") and has_content(table.schema):
        has_file = table[CONTENT.name].is_valid().to_numpy()
        if (has_file & ~np.array(has_values(table, "text")) & ~np.array(has_values(table, name))).any():
            raise StageError(f"{needed_by} needs texts, but the documents {HAVE_FILES}: before it, {NEED_TEXTS}")
    if name not in table.column_names:
        have, hint = ", ".join(table.column_names), _WHERE_FROM.get(name, "")
        if name == "text" and "tokens" in table.column_names:
            hint = ". Put the stage before tokenize, which replaces texts"
        raise StageError(f"{needed_by} needs a column {name!r}; the documents have: {have}{hint}")
    held = plain_column(table[name])
    if held.num_chunks == 1 and held.chunk(0).offset == 0:
        return held.chunk(0)  # combine_chunks copies even a single chunk
    chunks = held.combine_chunks()
    return pa.concat_arrays(chunks.chunks) if isinstance(chunks, pa.ChunkedArray) else chunks


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with a column replaced in its place, or appended if it does not exist."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, values)
    return table.append_column(name, values)


def document_ids(table: pa.Table, needed_by: str) -> pa.Array:
    """Return the column ``id`` as text, or raise StageError if a document has none."""
    ids = pc.cast(column(table, "id", needed_by), pa.string())
    if ids.null_count:
        place = pc.index(ids.is_null(), True).as_py()
        raise StageError(f"{needed_by} needs an id for every document, but the id of row {place:,} is null: set it")
    return ids


def reject_duplicate_ids(ids: pa.Array | pa.ChunkedArray, needed_by: str, *, names_rows: bool = False) -> None:
    """Raise StageError if ids occur twice: a decision about one of the documents would also hit the other.

    With ``names_rows``, the message names the rows of the id, counted from 0.
    """
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    where = ""
    if len(twice) and names_rows:
        one, other = np.flatnonzero(pc.equal(ids, twice[0]).to_numpy(zero_copy_only=False))[:2].tolist()
        where = f", in rows {one:,} and {other:,}"
    if len(twice) == 1:
        raise StageError(
            f"{needed_by} needs unique ids, but {twice[0].as_py()!r} occurs twice{where}: drop one of the two"
        )
    if len(twice):
        names = " and ".join(repr(name) for name in twice[:2].to_pylist())
        names = f"{twice[0].as_py()!r}{where}" if where else names
        raise StageError(
            f"{needed_by} needs unique ids, but {len(twice):,} occur more than once, such as {names}: keep one of "
            "each (in a recipe: --set source.on_duplicate_ids=keep_first)"
        )


@dataclass(frozen=True)
class Caller:
    """The function of `datasets` that runs a stage."""

    method: Method
    batched: bool = True
    takes_tables: bool = False
    """Whether a table may be returned for a plain mapping: in ``Dataset.map``, where it replaces all columns."""
    streams: bool = False
    """Whether it is a method of an ``IterableDataset``, which keeps columns that a returned mapping lacks."""
    removes: frozenset[str] = frozenset()
    """The columns in ``remove_columns``, which ``Dataset.map`` ignores if a table is returned."""
    table: pa.Table | None = None
    """The Arrow table behind the formatted batch, or None in a stream of rows."""


class Batch:
    """A batch in any format of `datasets`, as an Arrow table, which also converts the stage's result back.

    Formats may change values: "numpy" turns float64 into float32. The table is therefore the unformatted one if it is
    known, and columns that a stage does not change are returned as they were passed in.
    """

    def __init__(
        self, stage: str, method: Method, batch: Any, others: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        self._stage, self._batch = stage, batch
        self._caller = _check_call(stage, method, others, named)
        self._came = as_table(batch, self._caller.table)
        self.table = plain_strings(self._came)

    def answer(self, made: pa.Table, rewritten: str | None, kept: pa.Array | None = None) -> Any:
        """Convert the stage's result ``made``, or its rows for which ``kept`` is true, to the format of the batch.

        Columns in ``remove_columns`` are removed, except the column ``rewritten`` by the stage.

        Raises:
            StageError: a stream would keep a removed column or remove the rewritten one, or no column would remain.
        """
        caller, batch = self._caller, self._batch
        if rewritten in caller.removes and caller.streams and isinstance(batch, pa.Table):
            raise StageError(
                f"remove_columns names {rewritten!r}, which {self._stage} rewrites and a stream in the format 'arrow' "
                "would remove: do not name it"
            )
        removes = caller.removes - {rewritten}
        chosen = made.drop_columns([name for name in made.column_names if name in removes])
        if made.column_names and not chosen.column_names:
            raise StageError(
                f"remove_columns names every column that documents have after {self._stage}: keep one, such as "
                f"{made.column_names[-1]!r}"
            )
        if not isinstance(batch, Mapping) or caller.takes_tables or _is_lazy(batch):
            return self._with_views(chosen if kept is None else chosen.filter(kept))
        removed = [name for name in batch if name not in made.column_names and name not in caller.removes]
        if caller.streams and removed:
            raise StageError(
                f"{self._stage} removes {', '.join(removed)}, which a stream would keep: write "
                f'dataset.with_format("arrow").map(stage, batched=True), or add remove_columns={removed}'
            )
        rows = None if kept is None or pc.all(kept, min_count=0).as_py() else np.flatnonzero(kept)
        same = {
            name: _rows_of(batch[name], rows)
            for name in chosen.column_names
            if name in batch and _is_same(chosen[name], self.table[name])
        }
        others = chosen.drop_columns(list(same))
        columns = {**same, **_plain_columns(others if rows is None else others.take(rows))}
        return {name: columns[name] for name in chosen.column_names}

    def _with_views(self, table: pa.Table) -> pa.Table:
        """Cast strings back to string views in the columns that had them in the batch."""
        for place, field in enumerate(table.schema):
            came = self._came.schema.field(field.name).type if field.name in self._came.column_names else field.type
            if came != field.type and field.type == plain_type(came) and not _has_dictionary(came):
                table = table.set_column(place, field.name, table[field.name].cast(came))
        return table


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Replace string views and dictionaries in a type by plain strings: Arrow lacks kernels for them, like ``filter``.

    >>> plain_type(pa.list_(pa.string_view())), plain_type(pa.dictionary(pa.int8(), pa.string()))
    (ListType(list<item: large_string>), DataType(string))
    """
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_dictionary(kind):
        plain = plain_type(kind.value_type)
        return plain if is_bytes(plain) else kind
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(plain_type(kind.value_type))
        return pa.large_list(item) if types.is_large_list(kind) else pa.list_(item, getattr(kind, "list_size", -1))
    return kind


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is strings or bytes with offsets of 32 or 64 bits."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def plain_strings(table: pa.Table) -> pa.Table:
    """Convert the string views and dictionaries of a table to strings; return the same table if it has none."""
    for place, field in enumerate(table.schema):
        if plain_type(field.type) != field.type:
            table = table.set_column(place, field.name, plain_column(table[field.name]))
    return table


def plain_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert string views and dictionaries of strings to plain strings; return other columns as they are."""
    kind = plain_type(values.type)
    if kind == values.type:
        return values
    if pa.types.is_dictionary(values.type):
        # Arrow cannot cast a dictionary of views.
        chunks = [pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind)) for chunk in values.chunks]
        values = pa.chunked_array(chunks, pa.dictionary(values.type.index_type, kind))
    return values.cast(kind)


def in_one_chunk(table: pa.Table) -> pa.Table:
    """Combine the chunks of a streamed table: `datasets` makes one per row, and joins the keys of all chunks."""
    return table.combine_chunks() if any(column.num_chunks > 1 for column in table.columns) else table


def as_table(batch: Any, behind: pa.Table | None = None) -> pa.Table:
    """Convert a batch of `datasets` (a table, a lazy batch, a data frame or a mapping of columns) to an Arrow table.

    The unformatted table ``behind`` the batch is returned if it is known and has the same columns.
    """
    if isinstance(batch, pa.Table):
        return batch
    if hasattr(batch, "columns") and (hasattr(batch, "to_arrow") or hasattr(batch, "to_dict")):  # polars, pandas
        names = list(batch.columns)
    elif isinstance(batch, Mapping) and (
        _is_lazy(batch) or all(hasattr(each, "__len__") and not isinstance(each, str) for each in batch.values())
    ):
        names = list(batch)
    else:
        raise StageError(
            f"a stage takes batches of whole documents: write {_FORMS['map']} or {_FORMS['filter']}, "
            "without input_columns"
        )
    if behind is not None and set(names) == set(behind.column_names):
        return behind
    if not isinstance(batch, Mapping):
        return batch.to_arrow() if hasattr(batch, "to_arrow") else pa.Table.from_pandas(batch, preserve_index=False)
    if not _is_lazy(batch):
        return pa.table({name: _as_array(name, values) for name, values in batch.items()})
    lazy: Any = batch  # a user's function may have read, set or deleted columns
    columns = {
        name: lazy.pa_table[name]
        if name in lazy.keys_to_format
        else _as_array(
            name, lazy[name], lazy.pa_table.schema.field(name).type if name in lazy.pa_table.schema.names else None
        )
        for name in names
    }
    return pa.table(columns)


def _is_lazy(batch: Any) -> bool:
    return isinstance(getattr(batch, "pa_table", None), pa.Table)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(place).type) for place in range(kind.num_fields))


def _is_same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Return whether two columns are equal; columns that share memory are, even with NaN."""
    return one.type == other.type and (memory_of(one) == memory_of(other) or bool(one.equals(other)))


def _rows_of(values: Any, rows: "np.ndarray[Any, np.dtype[np.int64]] | None") -> Any:
    if rows is None:
        return values
    return [values[row] for row in rows] if isinstance(values, list) else values[rows]


def _check_call(stage: str, method: Method, others: tuple[Any, ...], named: Mapping[str, Any]) -> Caller:
    if others or named:
        raise StageError(
            f"{stage} takes only batches of documents: remove with_indices, with_rank, input_columns and fn_kwargs"
        )
    caller = _find_caller() or Caller(method)
    if caller.method != method or not caller.batched:
        does = _DOES[method] if caller.method != method else "works on batches"
        raise StageError(f"{stage} {does}: write {_FORMS[method]}, or lc.Crawl(dataset) | stage")
    return caller


def _find_caller() -> Caller | None:
    frames = list(_frames_of_datasets(inspect.currentframe()))
    if not frames:
        return None
    module, function = frames[0].f_globals["__name__"], frames[0].f_code.co_name
    called = next((place for place, frame in enumerate(frames) if _settings(frame)), 0)
    settings = _settings(frames[called])
    removed = settings.get("remove_columns") or ()
    # Frames further out may hold the batch of an earlier stage.
    tables = (frame.f_locals.get(name) for frame in frames[: called + 1] for name in ("pa_inputs", "pa_table"))
    return Caller(
        method="filter" if "mask" in function else "map",
        batched=settings.get("batched", True),
        takes_tables=module == "datasets.arrow_dataset",
        streams=module == "datasets.iterable_dataset",
        removes=frozenset([removed] if isinstance(removed, str) else removed),
        table=next((each for each in tables if isinstance(each, pa.Table)), None),
    )


def _frames_of_datasets(here: FrameType | None) -> Iterator[FrameType]:
    """Yield the consecutive frames of `datasets` that called the stage; none if other code called it."""
    frame = here
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "longcrawl.core.stages"):
        frame = frame.f_back
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "datasets":
        yield frame
        frame = frame.f_back


def _settings(frame: FrameType) -> Mapping[str, Any]:
    """Return the settings of a ``.map`` or ``.filter`` call; an ``IterableDataset`` keeps them as attributes."""
    for settings in (frame.f_locals, getattr(frame.f_locals.get("self"), "__dict__", {})):
        if "batched" in settings:
            return settings
    return {}


def _as_array(name: str, values: Any, kind: pa.DataType | None = None) -> Any:
    """Convert a column of a mapping to Arrow, with type ``kind`` if its values fit."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    # Tensors of torch and other libraries convert through __array__.
    plain = np.asarray(values) if hasattr(values, "__array__") else values
    if isinstance(plain, np.ndarray) and plain.ndim == 1 and plain.dtype.kind in "biuf":
        return pa.array(plain)
    rows = [_plain(one) for one in plain]
    wrong: Exception | None = None
    for each in (kind, None, pa.uint64()) if kind is not None else (None, pa.uint64()):  # uint64 is never inferred
        try:
            return pa.array(rows, each)
        except (pa.ArrowException, OverflowError) as error:
            wrong = wrong or error
    raise StageError(
        f"column {name!r} cannot be converted to Arrow ({one_line(wrong)}): "
        'write dataset.with_format("arrow"), or remove it'
    ) from wrong


def _plain(one: Any) -> Any:
    # In spans and signals, the formats "numpy" and "torch" turn every inner number into an array.
    if isinstance(one, Mapping):
        return {name: _plain(value) for name, value in one.items()}
    items: Any = one if isinstance(one, list) or (isinstance(one, np.ndarray) and one.ndim) else ()
    if len(items) and isinstance(items[0], Mapping):
        return [_plain(each) for each in items]
    if not hasattr(one, "__array__"):
        return one
    return np.asarray(one) if np.ndim(one) else one.item()


def _plain_columns(table: pa.Table) -> dict[str, list[Any]]:
    """Return columns as lists; lists of numbers become NumPy arrays, because `datasets` would cast them to int64."""
    columns = {}
    for name in table.column_names:
        kind = table[name].type
        numbers = hasattr(kind, "value_type") and pa.types.is_primitive(kind.value_type)
        rows = table[name] if numbers else []
        arrays = [row.values.to_numpy(zero_copy_only=False) if row.is_valid else None for row in rows]
        columns[name] = arrays if numbers else table[name].to_pylist()
    return columns
