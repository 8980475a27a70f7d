"""The values that rules measure, as a table and as histograms (``pip install 'longcrawl[plots]'``)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Stage, document_ids
from longcrawl.errors import StageError

_BATCH = 500
_COLUMNS = 3  # histograms side by side
_KEPT, _REMOVED, _BOUND = "#4c78a8", "#e45756", "#222222"


def rule_values(documents: Any, stage: Stage) -> pa.Table:
    """Return a table with the column ``id`` and, for each active rule of a stage, a float64 column of its values.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table, with the columns that the
            stage needs.
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
    """Yield the batches of a dataset, a crawl or an Arrow table (or StageError); one empty batch without documents."""
    if isinstance(documents, pa.Table):
        yield documents
        return
    data: Any = documents if hasattr(documents, "with_format") else getattr(documents, "data", None)
    if isinstance(data, Mapping):
        raise StageError(f"these are several splits; choose one: documents[{next(iter(data), 'train')!r}]")
    if not hasattr(data, "with_format"):
        kind = type(documents).__name__
        raise StageError(f"documents must be a datasets.Dataset, a crawl or an Arrow table, got {kind}")
    found = False
    for table in data.with_format("arrow").iter(batch_size):
        found = True
        yield table
    if not found:
        yield pa.schema([] if data.features is None else data.features.arrow_schema).empty_table()


def plot_rules(documents: Any, stage: Stage, bins: int = 40) -> Any:
    """Draw a histogram of each rule's values, with kept and removed documents in different colours.

    The outermost bins also count the values beyond the 1st and the 99th percentile. A dashed line marks the threshold,
    unless it differs by language. The result is a matplotlib ``Figure``; StageError without matplotlib, or any value.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise StageError("plots need matplotlib: pip install 'longcrawl[plots]'") from missing
    batches = [stage.checks(table) for table in tables(documents)]
    panels = [_panel(checks) for checks in zip(*batches, strict=True)]
    panels = [panel for panel in panels if not np.isnan(panel.values).all()]
    if not panels:
        raise StageError("no document has a value to draw: pass documents with values")
    rows = math.ceil(len(panels) / _COLUMNS)
    figure = Figure(figsize=(4 * _COLUMNS, 2.3 * rows), layout="constrained")
    for number, panel in enumerate(panels, 1):
        _draw(figure.add_subplot(rows, _COLUMNS, number), panel, bins)
    return figure


class _Panel(NamedTuple):
    rule: str
    values: npt.NDArray[np.float64]  # value of each document, NaN if unknown
    passes: npt.NDArray[np.bool_]
    bound: float | None  # threshold, or None if it is not the same for all documents


def _panel(batches: Sequence[Check]) -> _Panel:
    values = [check.value.cast(pa.float64()).to_numpy(zero_copy_only=False) for check in batches]
    passes = [pc.fill_null(check.passes, False).to_numpy(zero_copy_only=False) for check in batches]
    bounds = [None if isinstance(check.threshold, pa.Array) else check.threshold for check in batches]
    bound = bounds[0] if len(set(bounds)) == 1 else None
    return _Panel(batches[0].rule, np.concatenate(values), np.concatenate(passes), bound)


def _draw(axes: Any, panel: _Panel, bins: int) -> None:
    known = ~np.isnan(panel.values)
    values, kept, bound = panel.values[known], panel.passes[known], panel.bound
    low, high = np.percentile(values, [1, 99])
    if bound is not None:
        # The range reaches beyond the threshold, so that removed documents are visible even if they are few.
        beyond = (max(high, bound) - min(low, bound)) / 10
        low = min(low, bound - beyond if values.min() < bound else bound)
        high = max(high, bound + beyond if values.max() > bound else bound)
        axes.axvline(bound, color=_BOUND, linewidth=1, linestyle="--")
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    inside = np.clip(values, edges[0], edges[-1])
    axes.hist([inside[kept], inside[~kept]], edges, stacked=True, color=[_KEPT, _REMOVED])
    axes.set_yscale("symlog")
    axes.set_title(f"{panel.rule}: {(~panel.passes).sum():,} of {len(panel.passes):,}", fontsize=9)
    axes.tick_params(labelsize=7)
