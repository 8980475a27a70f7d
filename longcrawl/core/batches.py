"""Batches of documents: their columns, what rules measure on them, and the forms in which `datasets` brings them.

A stage sees its arguments only, and `datasets` takes whatever ``.filter`` gets back as a mask: a table of three columns
keeps three documents. So a stage looks at its calling frame, once per batch.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError

VERDICT_SCHEMA = pa.schema([("rule", pa.string()), ("value", pa.float64()), ("threshold", pa.float64())])
"""One row per document judged: all null where it is kept."""

Method = Literal["map", "filter"]

_ROWS = "row of the text"
_FORMS = {"map": "dataset.map(stage, batched=True)", "filter": "dataset.filter(stage, batched=True)"}
_DOES = {"map": "changes documents, and .filter takes a mask", "filter": "chooses documents, and .map takes documents"}


@dataclass(frozen=True)
class Check:
    """One rule measured on a batch: float64 ``value`` per document (null where unknown) and whether it passes.

    ``threshold`` is one number, or one per document where it depends on the document's language.
    """

    rule: str
    value: pa.Array
    passes: pa.Array
    threshold: float | pa.Array | None = None
    comparison: Literal["at_least", "at_most"] | None = None


class Edited(NamedTuple):
    """What an edit or a rewrite made of a batch."""

    documents: pa.Table
    """As many as came."""
    checks: Sequence[Check]
    """Every rule measured on them."""
    places: pa.Table
    """What changed: :data:`longcrawl.core.places.PLACE_SCHEMA`."""


class Outcome(NamedTuple):
    """What a stage made of a batch."""

    documents: pa.Table
    """Those that stay, changed or not."""
    removed: pa.Table
    """``REMOVED_SCHEMA``: the others, each with the first rule that it fails."""
    places: pa.Table
    """What changed in the documents that came: :data:`longcrawl.core.places.PLACE_SCHEMA`."""


def text_lengths(documents: pa.Table) -> pa.ChunkedArray | None:
    """Return the code points of each text; None where there is no text, or where it is still to be extracted."""
    if "text" not in documents.column_names or "html" in documents.column_names:
        return None
    return pc.utf8_length(documents["text"])


def hold_texts(table: pa.Table) -> pa.Table:
    """Return documents with their row in place of the text, which stages that have measured it need not copy."""
    return table.set_column(table.column_names.index("text"), _ROWS, pa.array(np.arange(table.num_rows)))


def release_texts(table: pa.Table, held: pa.Table) -> pa.Table:
    """Return those documents that are left of ``held`` with their texts."""
    texts, rows = held["text"], table[_ROWS].to_numpy()
    if len(rows) < held.num_rows:
        chosen = np.zeros(held.num_rows, np.bool_)
        chosen[rows] = True
        texts = texts.filter(pa.array(chosen))
    return table.set_column(table.column_names.index(_ROWS), held.field("text"), texts)


def first_failure(rows: int, checks: Sequence[Check]) -> pa.Table:
    """Return verdicts in which the first failed check of each document speaks; a null in ``passes`` fails.

    Raises:
        StageError: ``checks`` is no list of checks, or one has not a value and a verdict for each document.
    """
    _check_lengths(rows, checks)
    failed_by = np.full(rows, -1, dtype=np.int64)
    for number, check in enumerate(checks):
        passes = pc.fill_null(check.passes, False).to_numpy(zero_copy_only=False)
        failed_by[(failed_by < 0) & ~passes] = number
    rules = pa.array([check.rule for check in checks], pa.string())
    values, thresholds = pa.nulls(rows, pa.float64()), pa.nulls(rows, pa.float64())
    for number, check in enumerate(checks):
        failed = failed_by == number
        if failed.any():
            values = pc.if_else(pa.array(failed), pc.cast(check.value, pa.float64()), values)
            bound = (
                check.threshold if isinstance(check.threshold, pa.Array) else pa.scalar(check.threshold, pa.float64())
            )
            thresholds = pc.if_else(pa.array(failed), bound, thresholds)
    verdicts = [rules.take(pa.array(failed_by, mask=failed_by < 0)), values, thresholds]
    return pa.table(verdicts, schema=VERDICT_SCHEMA)


def _check_lengths(rows: int, checks: Sequence[Check]) -> None:
    if not isinstance(checks, Sequence):
        raise StageError(f"a stage returns {type(checks).__name__} for its checks: return a list of Check")
    for check in checks:
        if not isinstance(check, Check):
            raise StageError(f"a stage returns {type(check).__name__} among its checks: return a Check for each rule")
        for field in ("value", "passes"):
            found = getattr(check, field)
            if not isinstance(found, pa.Array | pa.ChunkedArray):
                raise StageError(f"{field} of rule {check.rule!r} is {type(found).__name__}: return an Arrow array")
            if len(found) != rows:
                raise StageError(
                    f"{field} of rule {check.rule!r} has {len(found)} entries for {rows} documents: "
                    "return one for each, null where it is unknown"
                )


_WHERE_FROM = {
    "text": ". Name the one that has the texts: lc.Crawl(data, text=COLUMN)",
    "tokens": ". Add the stage tokenize before it",
    "html": ". The source warc has it; texts need no extraction",
    "language": ". Add the stage identify_language before it, or name its field: language_field of the source",
    "url": ". Name the field that has it: url_field of the source",
}
"""How documents get a column that a stage misses."""


def column(table: pa.Table, name: str, needed_by: str) -> pa.Array:
    """Return one column as a single array; a column that is not there is one sentence that names those that are.

    Raises:
        StageError: the table has no such column.
    """
    if name not in table.column_names:
        have, hint = ", ".join(table.column_names), _WHERE_FROM.get(name, "")
        if name == "text" and "tokens" in table.column_names:
            hint = ". Put the stage before tokenize, which replaces texts"
        raise StageError(f"{needed_by} needs a column {name!r}; the documents have: {have}{hint}")
    held = table[name]
    if held.num_chunks == 1 and held.chunk(0).offset == 0:
        return held.chunk(0)  # to combine a single chunk copies it, too
    chunks = held.combine_chunks()
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


def reject_duplicate_ids(ids: pa.Array | pa.ChunkedArray, needed_by: str, *, names_rows: bool = False) -> None:
    """Refuse ids that occur twice: what is decided about one of the documents would hit the other.

    Args:
        ids: of all documents.
        needed_by: what needs them to be unique.
        names_rows: whether the error says in which rows the id is, counted from 0.

    Raises:
        StageError: naming one or two such ids.
    """
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    where = ""
    if len(twice) and names_rows:
        one, other = np.flatnonzero(pc.equal(ids, twice[0]).to_numpy(zero_copy_only=False))[:2].tolist()
        where = f", in rows {one:,} and {other:,}"
    if len(twice) == 1:
        raise StageError(f"{needed_by} needs unique ids, {twice[0].as_py()!r} occurs twice{where}: drop one of the two")
    if len(twice):
        names = " and ".join(repr(name) for name in twice[:2].to_pylist())
        names = f"{twice[0].as_py()!r}{where}" if where else names
        raise StageError(
            f"{needed_by} needs unique ids, {len(twice):,} occur twice or more, such as {names}: keep one of each "
            "(of a recipe: --set source.on_duplicate_ids=keep_first)"
        )


@dataclass(frozen=True)
class Caller:
    """The function of `datasets` that runs a stage."""

    method: Method
    batched: bool = True
    takes_tables: bool = False
    """Whether a table may answer a plain mapping: in ``Dataset.map``, where it replaces all columns."""
    removes: frozenset[str] | None = None
    """Columns that an ``IterableDataset`` removes; None elsewhere. It keeps all others that the answer lacks."""


def check_call(stage: str, method: Method, others: tuple[Any, ...], named: Mapping[str, Any]) -> Caller | None:
    """Return the function of `datasets` that calls the caller of this one; None where none does so directly.

    Raises:
        StageError: it is called in another way: what came back would be taken for something else.
    """
    if others or named:
        raise StageError(
            f"{stage} takes batches of documents alone: leave out with_indices, with_rank, input_columns and fn_kwargs"
        )
    caller = _find_caller()
    if caller is not None and caller.method != method:
        raise StageError(f"{stage} {_DOES[method]}: write {_FORMS[method]}, or lc.Crawl(dataset) | stage")
    if caller is not None and not caller.batched:
        raise StageError(f"{stage} works on batches: write {_FORMS[method]}, or lc.Crawl(dataset) | stage")
    return caller


def as_table(batch: Any) -> pa.Table:
    """Return a batch of `datasets` as an Arrow table: a table, a lazy batch (no copy), a data frame or a mapping.

    Raises:
        StageError: for a single example or a column; stages work on batches of whole documents.
    """
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(lazy := getattr(batch, "pa_table", None), pa.Table):
        return lazy
    if hasattr(batch, "to_arrow") and hasattr(batch, "columns"):  # polars
        return batch.to_arrow()
    if hasattr(batch, "to_dict") and hasattr(batch, "columns"):  # pandas
        return pa.Table.from_pandas(batch, preserve_index=False)
    if isinstance(batch, Mapping) and all(
        hasattr(values, "__len__") and not isinstance(values, str) for values in batch.values()
    ):
        return pa.table({name: _as_array(values) for name, values in batch.items()})
    raise StageError(
        f"a stage takes batches of whole documents: write {_FORMS['map']} or {_FORMS['filter']}, without input_columns"
    )


def like_batch(stage: str, batch: Any, table: pa.Table, caller: Caller | None) -> Any:
    """Return a table in the form in which its batch came, so that `datasets` has these columns and no others.

    Raises:
        StageError: the batch is a mapping of an ``IterableDataset``, which would keep a column that the stage removed.
    """
    lazy = isinstance(getattr(batch, "pa_table", None), pa.Table)
    if not isinstance(batch, Mapping) or lazy or (caller is not None and caller.takes_tables):
        return table
    if caller is not None and caller.removes is not None:
        kept = [name for name in batch if name not in table.column_names and name not in caller.removes]
        if kept:
            raise StageError(
                f'{stage} removes {", ".join(kept)}, which a stream would keep: write dataset.with_format("arrow")'
                f".map(stage, batched=True), or add remove_columns={kept}"
            )
    return _plain_columns(table)


def _find_caller() -> Caller | None:
    """Look at the frames of `datasets` from the one that called the stage outwards."""
    frames = list(_frames_of_datasets(inspect.currentframe()))
    if not frames:
        return None
    module, function = frames[0].f_globals["__name__"], frames[0].f_code.co_name
    settings: Mapping[str, Any] = next(filter(None, map(_settings, frames)), {})
    removed = settings.get("remove_columns") or ()
    return Caller(
        method="filter" if "mask" in function else "map",
        batched=settings.get("batched", True),
        takes_tables=module == "datasets.arrow_dataset",
        removes=frozenset([removed] if isinstance(removed, str) else removed)
        if module == "datasets.iterable_dataset"
        else None,
    )


def _frames_of_datasets(here: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of `datasets` that stand in a row around a stage; none where other code called the stage."""
    frame = here
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "longcrawl.core.stages"):
        frame = frame.f_back
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "datasets":
        yield frame
        frame = frame.f_back


def _settings(frame: FrameType) -> Mapping[str, Any]:
    """Return the settings of a call of ``.map`` or ``.filter``; an ``IterableDataset`` has them as attributes."""
    for settings in (frame.f_locals, getattr(frame.f_locals.get("self"), "__dict__", {})):
        if "batched" in settings:
            return settings
    return {}


def _as_array(values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    # Tensors of torch and others say what they are by __array__.
    plain = np.asarray(values) if hasattr(values, "__array__") else values
    if isinstance(plain, np.ndarray) and plain.ndim == 1 and plain.dtype.kind in "biuf":
        return pa.array(plain)
    return pa.array([_plain(one) for one in plain])


def _plain(one: Any) -> Any:
    # Spans and signals: the formats "numpy" and "torch" make an array of every number inside.
    if isinstance(one, Mapping):
        return {name: _plain(value) for name, value in one.items()}
    items: Any = one if isinstance(one, list) or (isinstance(one, np.ndarray) and one.ndim) else ()
    if len(items) and isinstance(items[0], Mapping):
        return [_plain(each) for each in items]
    if not hasattr(one, "__array__"):
        return one
    return np.asarray(one) if np.ndim(one) else one.item()


def _plain_columns(table: pa.Table) -> dict[str, list[Any]]:
    """Return columns as lists; lists of numbers become NumPy arrays: `datasets` would make them int64."""
    columns = {}
    for name in table.column_names:
        kind = table[name].type
        numbers = hasattr(kind, "value_type") and pa.types.is_primitive(kind.value_type)
        rows = table[name] if numbers else []
        arrays = [row.values.to_numpy(zero_copy_only=False) if row.is_valid else None for row in rows]
        columns[name] = arrays if numbers else table[name].to_pylist()
    return columns
