"""Every rule's value of every document: what distributions and thresholds are made from."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from longcrawl.core.stages import Stage, document_ids
from longcrawl.errors import StageError

__all__ = ["rule_values", "tables"]

_BATCH = 500


def rule_values(documents: Any, stage: Stage) -> pa.Table:
    """Return the column ``id`` and one column of float64 per rule of a stage that is switched on.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table, with what the stage needs.
        stage: a judge or an edit: ``GopherQuality``, ``SignalRules``, ``LineCorrections`` …

    Raises:
        StageError: the stage does not judge documents.

    >>> from longcrawl.text import GopherQuality
    >>> table = pa.table({"id": ["a", "b"], "text": ["one two three", "a b"]})
    >>> rule_values(table, GopherQuality())["min_mean_word_length"].to_pylist()
    [3.6666666666666665, 1.0]

    """
    measured = []
    for table in tables(documents):
        checks = stage.checks(table)
        columns = [document_ids(table, stage.name), *(check.value.cast(pa.float64()) for check in checks)]
        measured.append(pa.table(columns, names=["id", *(check.rule for check in checks)]))
    return pa.concat_tables(measured)


def tables(documents: Any, batch_size: int = _BATCH) -> Iterator[pa.Table]:
    """Return the batches of a dataset, a crawl or an Arrow table; of none, one empty batch that has the columns known.

    Raises:
        StageError: these are no documents, or they are several splits.

    """
    if isinstance(documents, pa.Table):
        yield documents
        return
    data: Any = documents if hasattr(documents, "with_format") else getattr(documents, "data", None)
    if isinstance(data, Mapping):
        raise StageError(f"these are several splits; choose one: documents[{next(iter(data), 'train')!r}]")
    if not hasattr(data, "with_format"):
        kind = type(documents).__name__
        raise StageError(f"documents are a datasets.Dataset, a crawl or an Arrow table, got {kind}")
    found = False
    for table in data.with_format("arrow").iter(batch_size):
        found = True
        yield table
    if not found:
        yield pa.schema([] if data.features is None else data.features.arrow_schema).empty_table()
