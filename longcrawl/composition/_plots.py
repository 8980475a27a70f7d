"""A picture of a comparison: the lengths of documents, and what each strategy makes of them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from longcrawl.errors import StageError

if TYPE_CHECKING:
    from longcrawl.composition.measures import Comparison

_DOCUMENTS, _TOKENS, _BOUND = "#4c78a8", "#f58518", "#222222"
_BINS = 60
_PANELS = (
    ("r_pad", "padding: r_pad, %", 100),
    ("r_tru", "documents cut: r_tru, %", 100),
    ("r_cat", "documents per sample: r_cat", 1),
    ("context_share", "context within documents, %", 100),
)


def plot_comparison(comparison: "Comparison") -> Any:
    """Draw documents and tokens by length, and a bar of each measure per strategy; lines are capacities and floors."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise StageError(
            "pictures need matplotlib: pip install 'longcrawl[plots]', or print the comparison"
        ) from missing
    if not comparison.lengths.any():
        raise StageError("no document has a token, so there is nothing to draw; give lengths above 0")
    figure = Figure(figsize=(13, 2.6 + 0.24 * len(comparison.rows)), layout="constrained")
    panels = figure.subplots(1, 1 + len(_PANELS), width_ratios=[1.6] + [1.0] * len(_PANELS))
    _draw_lengths(panels[0], comparison)
    for axes, (name, title, scale) in zip(panels[1:], _PANELS, strict=True):
        _draw_measure(axes, comparison, name, title, scale)
        axes.tick_params(labelleft=axes is panels[1])
    return figure


def _draw_lengths(axes: Any, comparison: "Comparison") -> None:
    lengths = comparison.lengths[comparison.lengths > 0]
    edges = np.geomspace(1, max(int(lengths.max()), 2) + 1, _BINS + 1)
    for weights, color, label in ((None, _DOCUMENTS, "documents"), (lengths, _TOKENS, "tokens")):
        counts, _ = np.histogram(lengths, edges, weights=weights)
        axes.stairs(100 * counts / counts.sum(), edges, color=color, label=label)
    for capacity in sorted({bucket.capacity for row in comparison for bucket in row.buckets}):
        axes.axvline(capacity, color=_BOUND, linewidth=0.7, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("tokens of a document; dotted: capacities", fontsize=8)
    axes.set_title("share by length, %", fontsize=9)
    axes.legend(fontsize=7)
    axes.tick_params(labelsize=7)


def _draw_measure(axes: Any, comparison: "Comparison", name: str, title: str, scale: float) -> None:
    rows = comparison.rows
    values = [scale * getattr(row, name) for row in rows]
    bars = axes.barh([row.label for row in rows], values, color=_DOCUMENTS, height=0.6)
    axes.bar_label(bars, [f"{value:.2g}" if value < 10 else f"{value:.1f}" for value in values], padding=3, fontsize=7)
    for place, row in enumerate(rows):
        if name in ("r_tru", "r_cat"):
            floor = scale * getattr(row, f"{name}_floor")
            axes.plot([floor, floor], [place - 0.4, place + 0.4], color=_BOUND, linewidth=1)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * max(values) or 1)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
