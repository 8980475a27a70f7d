"""Strategies by the word that recipes use, and side by side on the same documents, as a table and as a picture."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.composition.measures import Composition, legend_of, measure, table_of
from longcrawl.composition.plan import Longs, Strategy, checked_lengths, whole_capacities
from longcrawl.composition.relatedness import neighbours, relate, weigh
from longcrawl.composition.strategies import (
    BestFit,
    Buckets,
    DatasetDecomposition,
    FirstFit,
    FixedLength,
    MultiBucket,
    Planner,
)
from longcrawl.errors import StageError

StrategyName = Literal["buckets", "fixed", "multi-bucket", "best-fit", "first-fit", "decomposition"]
"""The labels of a comparison in small letters, without what follows from the other settings."""

FIRST_FIT_POOL = 256

_DOCUMENTS, _TOKENS, _BOUND = "#4c78a8", "#f58518", "#222222"
_BINS = 60
_PANELS = (
    ("r_pad", "padding: r_pad, %", 100),
    ("r_tru", "documents cut: r_tru, %", 100),
    ("r_cat", "documents per sample: r_cat", 1),
    ("context_share", "context within documents, %", 100),
)


def named_strategy(
    name: StrategyName,
    capacities: Sequence[int] = (2048, 4096, 8192, 16384),
    padding_threshold: float = 0.05,
    planner: Planner = "algorithm-1",
    seed: int = 0,
    pool_size: int | None = None,
    chunk_tokens: int = Buckets.chunk_tokens,
) -> Strategy:
    """Return a strategy by name, such that :func:`default_strategies` measures the same one under its label.

    >>> named_strategy("best-fit", [4096]).label, named_strategy("decomposition", [1024]).capacities
    ('Best-fit-4096', (256, 512, 1024))

    Args:
        name: "fixed", "best-fit" and "first-fit" make samples of one length.
        capacities: in tokens, ascending; "decomposition" adds the half, the quarter … of the first down to 256, since
            it drops what is shorter.
        padding_threshold: of "buckets", see :class:`longcrawl.tokens.Buckets`.
        planner: of "buckets"; "in-order" has "fixed", "multi-bucket" and "first-fit" keep the order of documents, too.
        seed: of the order of documents that "fixed" and "multi-bucket" concatenate, and of samples of "buckets".
        pool_size: documents that "buckets" (100,000, if left out) and "first-fit" (256) plan together.
        chunk_tokens: of the planner "interleaved".

    Raises:
        StageError: capacities are not a list of whole numbers or do not ascend, there are several where one is
            needed, or a field is out of its bounds.
    """
    sizes = whole_capacities(name, capacities)
    if name in ("fixed", "best-fit", "first-fit") and len(sizes) > 1:
        raise StageError(
            f"the strategy {name!r} makes samples of one length, got the capacities {list(sizes)}: "
            f"write [{sizes[-1]}], or take buckets, multi-bucket or decomposition"
        )
    if pool_size is not None and name not in ("buckets", "first-fit"):
        raise StageError(f"the strategy {name!r} plans all documents together: leave pool_size out")
    _check_planner(name, planner, chunk_tokens)
    order: Literal["shuffled", "given"] = "given" if planner == "in-order" else "shuffled"
    if name == "fixed":
        return FixedLength(sizes[0], order, seed)
    if name == "multi-bucket":
        return MultiBucket(sizes, order, seed)
    if name == "best-fit":
        return BestFit(sizes[0])
    if name == "first-fit":
        fitted: Literal["longest-first", "given"] = "given" if planner == "in-order" else "longest-first"
        return FirstFit(sizes[0], fitted, FIRST_FIT_POOL if pool_size is None else pool_size)
    if name == "decomposition":
        return DatasetDecomposition((*_halves(sizes[0]), *sizes))
    pool = Buckets.pool_size if pool_size is None else pool_size
    return Buckets(sizes, padding_threshold, planner, seed=seed, pool_size=pool, chunk_tokens=chunk_tokens)


def _check_planner(name: str, planner: Planner, chunk_tokens: int) -> None:
    if planner == "interleaved" and name != "buckets":
        raise StageError(f"the planner 'interleaved' is one of buckets, got the strategy {name!r}: take buckets")
    if planner == "in-order" and name in ("best-fit", "decomposition"):
        raise StageError(
            f"the strategy {name!r} goes by length and keeps no order: take buckets, or leave planner 'in-order' out"
        )
    if planner != "interleaved" and chunk_tokens != Buckets.chunk_tokens:
        raise StageError(f"the planner {planner!r} makes no chunks: leave chunk_tokens out, or take 'interleaved'")


def default_strategies(
    capacities: Sequence[int] = (2048, 4096, 8192, 16384), padding_threshold: float = 0.05
) -> tuple[Strategy, ...]:
    """Return what ``lc.compose`` compares: concatenation, bin packing, decomposition, and buckets of each planner.

    Raises:
        StageError: the capacities do not ascend, or the threshold is not a share.
    """
    sizes = whole_capacities("compose", capacities)
    return (
        *(named_strategy("fixed", [size]) for size in sizes),
        named_strategy("multi-bucket", sizes),
        named_strategy("best-fit", sizes[-1:]),
        named_strategy("first-fit", sizes[-1:]),
        named_strategy("decomposition", sizes),
        named_strategy("buckets", sizes, padding_threshold),
        named_strategy("buckets", sizes, padding_threshold, planner="exact-fill"),
        named_strategy("buckets", sizes, padding_threshold, planner="in-order"),
    )


def _halves(capacity: int) -> list[int]:
    """Return the half, the quarter and so on down to 256, ascending: a decomposition drops what is shorter."""
    found: list[int] = []
    while capacity % 2 == 0 and capacity // 2 >= 256:
        capacity //= 2
        found.insert(0, capacity)
    return found


@dataclass(frozen=True, eq=False)
class Comparison:
    """Strategies side by side on the same documents; prints as a table, ``plot()`` draws it.

    >>> print(compare_strategies([900, 300, 5000, 40, 2100]).rows[0].r_tru)
    0.4
    """

    lengths: Longs
    """int64 [documents]"""
    rows: tuple[Composition, ...]
    terminated: int = 0
    """Documents whose lengths were given an end-of-text token; in those of the others it is counted, or left out."""

    def __iter__(self) -> Iterator[Composition]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Composition:
        """Return the row of this label.

        Raises:
            KeyError: there is none; the message lists those that there are.
        """
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no strategy {label!r}; known: {', '.join(row.label for row in self.rows)}")

    @property
    def about(self) -> str:
        """One sentence about the lengths."""
        filled = self.lengths[self.lengths > 0]
        if not len(filled):
            return f"{len(self.lengths):,} documents, none with a token"
        low, middle, high = np.percentile(filled, [10, 50, 90])
        empty = len(self.lengths) - len(filled)
        return (
            f"{len(filled):,} documents of {int(filled.sum()):,} tokens: mean {filled.mean():,.1f}, "
            f"median {middle:,.0f}, the middle 80 % from {low:,.0f} to {high:,.0f}, the longest {filled.max():,}"
            + (f"; {empty:,} more are empty" if empty else "")
            + f"; {self._ends(len(filled))}"
        )

    def _ends(self, filled: int) -> str:
        if not self.terminated:
            return "lengths as they are, no end-of-text token added"
        to = "each" if self.terminated == filled else f"{self.terminated:,} of them"
        return f"an end-of-text token was added to {to}"

    def __repr__(self) -> str:
        about = textwrap.fill(self.about, 160, break_on_hyphens=False)
        return f"{about}\n\n{table_of(self.rows)}\n\n{textwrap.fill(legend_of(self.rows), 110)}"

    def markdown(self) -> str:
        """Return the table as Markdown."""
        return table_of(self.rows).markdown()

    def _repr_html_(self) -> str:
        return replace(table_of(self.rows), title=self.about, notes=[legend_of(self.rows)])._repr_html_()

    def plot(self) -> Any:
        """Draw the lengths of documents, and a bar of each measure per strategy, and return matplotlib's ``Figure``.

        Lines are capacities and floors.

        Raises:
            StageError: matplotlib is not installed, or no document has a token.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as missing:
            raise StageError(
                "pictures need matplotlib: pip install 'longcrawl[plots]', or print the comparison"
            ) from missing
        if not self.lengths.any():
            raise StageError("no document has a token, so there is nothing to draw: pass lengths above 0")
        figure = Figure(figsize=(13, 2.6 + 0.24 * len(self.rows)), layout="constrained")
        panels = figure.subplots(1, 1 + len(_PANELS), width_ratios=[1.6] + [1.0] * len(_PANELS))
        _draw_lengths(panels[0], self)
        for axes, (name, title, scale) in zip(panels[1:], _PANELS, strict=True):
            _draw_measure(axes, self, name, title, scale)
            axes.tick_params(labelleft=axes is panels[1])
        return figure


def compare_strategies(
    lengths: Any,
    strategies: Sequence[Strategy] | None = None,
    beginnings: Sequence[npt.NDArray[np.integer[Any]]] = (),
) -> Comparison:
    """Plan the same documents by each strategy and measure the plans.

    Args:
        lengths: whole numbers [documents], tokens of each.
        strategies: those of :func:`default_strategies`, if left out.
        beginnings: the first tokens of the first documents, to measure how related neighbours in samples are.

    Raises:
        StageError: a length is not a whole number of 0 or more.
    """
    checked = checked_lengths(lengths)
    chosen = default_strategies() if strategies is None else strategies
    vectors, rows = weigh(beginnings) if len(beginnings) else None, []
    for each in chosen:
        plan = each.plan(checked)
        rows.append(measure(plan, each.label, each.capacities))
        if vectors is not None:
            pairs = neighbours(plan)
            found = relate(pairs[(pairs < len(beginnings)).all(axis=1)], vectors)
            rows[-1] = replace(rows[-1], **found._asdict())
    return Comparison(checked, tuple(rows))


def _draw_lengths(axes: Any, comparison: Comparison) -> None:
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


def _draw_measure(axes: Any, comparison: Comparison, name: str, title: str, scale: float) -> None:
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
