"""What a crawl maps over batches: its stages, with verdicts and sketches instead of documents.

Verdicts and edits of a stage that changes documents stand beside them, in columns that go once they are in the ledgers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import EDIT_SCHEMA, PLACE_SCHEMA, edit_rows
from longcrawl.core.stages import VERDICT_SCHEMA, Stage, Survey, document_ids, first_failure
from longcrawl.ledger.edits import EditCounts, count_edits

__all__ = ["NO_EDITS", "Edits", "Kept", "Sketched", "Traced", "TracedBatch", "Verdicts", "split_traced"]

_VERDICT = "verdict of this edit: "
_PLACES = "places of this edit"
"""What the columns are called while they stand beside the documents."""

_FIELDS = list(PLACE_SCHEMA)[1:]


@dataclass(frozen=True)
class Verdicts:
    """Judge a batch and keep nothing of it but ids and verdicts, so that no text is copied."""

    stage: Stage

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the ids and verdicts of a batch."""
        verdicts = self.stage.judge(table)
        return verdicts.add_column(0, "id", document_ids(table, self.stage.name))


@dataclass(frozen=True)
class Kept:
    """Return the documents of a batch that a stage keeps."""

    stage: Stage

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the documents that stay."""
        return self.stage.apply(table).documents


@dataclass(frozen=True)
class Sketched:
    """Return what a survey needs to know of a batch."""

    survey: Survey

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return one row per document."""
        return self.survey.sketch(table)


class Edits(NamedTuple):
    """What one stage changed in all documents."""

    table: pa.Table
    """``EDIT_SCHEMA``."""
    counts: EditCounts | None


NO_EDITS = Edits(EDIT_SCHEMA.empty_table(), None)


class Traced(NamedTuple):
    """What one stage made of all documents."""

    documents: datasets.Dataset
    """As many as came."""
    verdicts: pa.Table | None
    """``VERDICT_SCHEMA``; None for a rewrite, which removes nothing."""
    edits: Edits


@dataclass(frozen=True)
class TracedBatch:
    """Change the documents of a batch, and put what was decided and changed beside them."""

    stage: Stage

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the documents, as many as came, with columns for verdicts and places."""
        documents, checks, places = self.stage.trace(table)
        if self.stage.judges:
            document_ids(documents, self.stage.name)
            verdicts = first_failure(documents.num_rows, checks)
            for name in VERDICT_SCHEMA.names:
                documents = documents.append_column(_VERDICT + name, verdicts[name])
        return documents.append_column(_PLACES, _beside(places, table.num_rows))


def split_traced(data: datasets.Dataset, label: str) -> Traced:
    """Part the documents from what :class:`TracedBatch` put beside them."""
    if _PLACES not in data.column_names:  # a dataset without any column
        return Traced(data, None, NO_EDITS)
    beside = [_VERDICT + name for name in VERDICT_SCHEMA.names if _VERDICT + name in data.column_names]
    verdicts = _rows(data, beside).rename_columns(VERDICT_SCHEMA.names) if beside else None
    lists = _rows(data, [_PLACES])[_PLACES].combine_chunks()
    edits = NO_EDITS
    if len(found := lists.flatten()):
        columns = [pc.list_parent_indices(lists), *(found.field(field.name) for field in _FIELDS)]
        places = pa.table(
            [pc.cast(column, field.type) for column, field in zip(columns, PLACE_SCHEMA, strict=True)],
            schema=PLACE_SCHEMA,
        )
        named = _rows(data, [name for name in ("id",) if name in data.column_names])
        edits = Edits(edit_rows(named, places, label), count_edits(places))
    return Traced(data.remove_columns([*beside, _PLACES]), verdicts, edits)


def _beside(places: pa.Table, documents: int) -> pa.Array:
    """Return places as one list per document."""
    offsets = np.zeros(documents + 1, np.int64)
    np.cumsum(np.bincount(places["document"].to_numpy(), minlength=documents), out=offsets[1:])
    columns = [pa.concat_arrays([pa.array([], field.type), *places[field.name].chunks]) for field in _FIELDS]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=_FIELDS))


def _rows(data: datasets.Dataset, columns: list[str]) -> pa.Table:
    return data.select_columns(columns).with_format("arrow")[:]
