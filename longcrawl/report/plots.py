"""Pictures of what rules measure, drawn by matplotlib (``pip install 'longcrawl[plots]'``)."""

import math
from typing import Any

import numpy as np
import pyarrow as pa

from longcrawl.errors import StageError
from longcrawl.stages import Check, Stage
from longcrawl.text.values import measured_checks, rule_values, tables

__all__ = ["plot_rules"]

_COLUMNS = 3
_KEPT, _REMOVED, _BOUND = "#4c78a8", "#e45756", "#222222"


def plot_rules(documents: Any, stage: Stage, bins: int = 40) -> Any:
    """Draw the distribution of every rule's value, what its threshold keeps and what it removes.

    The outermost bins hold what lies beyond the 1st and the 99th percentile. Where thresholds differ by language the
    picture has none.

    Args:
        documents: as ``rule_values`` takes them.
        stage: a judge or an edit.
        bins: how many bars.

    Returns:
        A matplotlib ``Figure``, which a notebook shows and ``.savefig`` writes.

    Raises:
        StageError: matplotlib is not installed, or there are no documents.

    """
    figure_of = _matplotlib()
    values = rule_values(documents, stage)
    if not values.num_rows:
        raise StageError("there are no documents to draw; give some")
    first = next(iter(tables(documents, 1))).slice(0, 1)
    checks = [check for check in measured_checks(first, stage) if not _is_null(values[check.rule])]
    rows = math.ceil(len(checks) / _COLUMNS)
    figure = figure_of(figsize=(4 * _COLUMNS, 2.3 * rows), layout="constrained")
    for number, check in enumerate(checks, 1):
        axes = figure.add_subplot(rows, _COLUMNS, number)
        _draw(axes, values[check.rule].to_numpy(), check, bins)
    return figure


def _matplotlib() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise StageError("pictures need matplotlib: pip install 'longcrawl[plots]'") from missing
    return Figure


def _is_null(values: pa.ChunkedArray) -> bool:
    return bool(values.null_count == len(values))


def _draw(axes: Any, values: Any, check: Check, bins: int) -> None:
    known = values[~np.isnan(values)]
    low, high = np.percentile(known, [1, 99])
    bound = check.threshold if isinstance(check.threshold, float | int) else None
    if bound is not None:
        # What a threshold removes is seen beside it, however little it is.
        beyond = (max(high, bound) - min(low, bound)) / 10
        low = min(low, bound - beyond if known.min() < bound else bound)
        high = max(high, bound + beyond if known.max() > bound else bound)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    counts, _ = np.histogram(np.clip(known, edges[0], edges[-1]), edges)
    middles = (edges[:-1] + edges[1:]) / 2
    failed = np.zeros(bins, bool)
    if bound is not None:
        failed = middles < bound if check.comparison == "at_least" else middles > bound
        axes.axvline(bound, color=_BOUND, linewidth=1, linestyle="--")
    axes.bar(middles, counts, np.diff(edges), color=np.where(failed, _REMOVED, _KEPT))
    axes.set_yscale("symlog")
    removed = 0 if bound is None else np.sum(known < bound if check.comparison == "at_least" else known > bound)
    axes.set_title(f"{check.rule}: {removed:,} of {len(known):,}", fontsize=9)
    axes.tick_params(labelsize=7)
