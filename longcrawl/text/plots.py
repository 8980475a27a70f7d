"""Pictures of what rules measure, drawn by matplotlib (``pip install 'longcrawl[plots]'``)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Stage
from longcrawl.errors import StageError
from longcrawl.text.values import tables

__all__ = ["plot_rules"]

Doubles = npt.NDArray[np.float64]

_COLUMNS = 3
_KEPT, _REMOVED, _BOUND = "#4c78a8", "#e45756", "#222222"


def plot_rules(documents: Any, stage: Stage, bins: int = 40) -> Any:
    """Draw the distribution of every rule's value, what its threshold keeps and what it removes.

    The outermost bins hold what lies beyond the 1st and the 99th percentile. Where thresholds
    differ by language there is no line for them.

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
    panels = [panel for panel in _panels(documents, stage) if not np.isnan(panel.values).all()]
    if not panels:
        raise StageError("there are no documents with a value to draw; give some")
    rows = math.ceil(len(panels) / _COLUMNS)
    figure = figure_of(figsize=(4 * _COLUMNS, 2.3 * rows), layout="constrained")
    for number, panel in enumerate(panels, 1):
        _draw(figure.add_subplot(rows, _COLUMNS, number), panel, bins)
    return figure


class _Panel(NamedTuple):
    rule: str
    values: Doubles
    """Of each document, NaN where unknown."""
    passes: npt.NDArray[np.bool_]
    bound: float | None
    """None where it is not the same for all documents."""


def _panels(documents: Any, stage: Stage) -> list[_Panel]:
    batches = [stage.checks(table) for table in tables(documents)]
    return [
        _Panel(
            same[0].rule,
            np.concatenate([check.value.cast(pa.float64()).to_numpy(zero_copy_only=False) for check in same]),
            np.concatenate([_passed(check) for check in same]),
            _one_bound([check.threshold for check in same]),
        )
        for same in zip(*batches, strict=True)
    ]


def _passed(check: Check) -> npt.NDArray[np.bool_]:
    passed: npt.NDArray[np.bool_] = pc.fill_null(check.passes, False).to_numpy(zero_copy_only=False)
    return passed


def _one_bound(thresholds: Sequence[float | pa.Array | None]) -> float | None:
    first = thresholds[0]
    if not isinstance(first, float | int):
        return None
    return first if all(not isinstance(each, pa.Array) and each == first for each in thresholds) else None


def _matplotlib() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise StageError("pictures need matplotlib: pip install 'longcrawl[plots]'") from missing
    return Figure


def _draw(axes: Any, panel: _Panel, bins: int) -> None:
    known = ~np.isnan(panel.values)
    values, kept, bound = panel.values[known], panel.passes[known], panel.bound
    low, high = np.percentile(values, [1, 99])
    if bound is not None:
        # What a threshold removes is seen beside it, however little it is.
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
