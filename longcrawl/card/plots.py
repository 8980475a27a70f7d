"""Pictures for the card of a run, drawn by matplotlib as SVG."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longcrawl.card.sections import PICTURES, ranked_rules
from longcrawl.errors import StageError
from longcrawl.ledger.analysis import Analysis, Lengths, bin_name
from longcrawl.ledger.funnel import Funnel

TEXT = "#7a7a7a"
FIRST, SECOND = "#2b83c4", "#e69f00"
"""Blue and orange, which differ to every kind of eye."""
MOST_BARS = 15
MOST_LETTERS = 44
MOST_TICKS = 9
WIDTH, BAR_HEIGHT = 8.0, 0.3
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "longcrawl",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_pictures(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Draw what a manifest has to show, as SVG by name; pictures of nothing are left out.

    Raises:
        StageError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise StageError("pictures need matplotlib: pip install 'longcrawl[plots]'") from missing
    funnel = Funnel.from_dict(manifest["funnel"])
    analysis = Analysis.from_dict(manifest["analysis"])
    source = manifest.get("source_lengths")
    lengths = [("kept", each) for each in analysis.lengths]
    if source is not None:
        lengths.insert(0, ("at the source", Lengths.from_dict(source)))
    languages = {name or "none": count for name, count in analysis.languages.items()}
    panels: dict[str, tuple[bool, Callable[[Any], None]]] = {
        "funnel": (bool(funnel.rows), lambda figure: _funnel(figure, funnel)),
        "reasons": (bool(ranked_rules(funnel)), lambda figure: _reasons(figure, funnel)),
        "lengths": (any(each.documents for _, each in lengths), lambda figure: _lengths(figure, lengths)),
        "domains": (len(analysis.domains) > 1, lambda figure: _ranked(figure, analysis.domains)),
        "languages": (len(analysis.languages) > 1, lambda figure: _ranked(figure, languages)),
    }
    pictures = {}
    with rc_context(STYLE):
        for name, (is_there, draw) in panels.items():
            if is_there:
                figure = Figure(figsize=(WIDTH, 3), layout="constrained")
                draw(figure)
                figure.axes[0].set_title(PICTURES[name], loc="left", fontsize=12, fontweight="bold", pad=12)
                pictures[name] = _svg(figure)
    return pictures


def _svg(figure: Any) -> str:
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def _funnel(figure: Any, funnel: Funnel) -> None:
    names = [funnel.source, *(row.stage for row in funnel)]
    left = [funnel.documents, *(row.documents_out for row in funnel)]
    shares = [f"{count:,}  ({100 * count / max(funnel.documents, 1):.1f} %)" for count in left]
    _bars(figure, names, left, shares, FIRST)


def _reasons(figure: Any, funnel: Funnel) -> None:
    ranked = ranked_rules(funnel)[:MOST_BARS]
    removed = sum(count for _, _, count in ranked_rules(funnel))
    names = [rule if rule == stage else f"{stage}: {rule}" for stage, rule, _ in ranked]
    counts = [count for _, _, count in ranked]
    _bars(figure, names, counts, [f"{count:,}  ({100 * count / removed:.1f} %)" for count in counts], SECOND)


def _ranked(figure: Any, counts: Mapping[str, int]) -> None:
    first = list(counts.items())[:MOST_BARS]
    _bars(figure, [name for name, _ in first], [count for _, count in first], [f"{n:,}" for _, n in first], FIRST)


def _bars(figure: Any, names: Sequence[str], values: Sequence[int], labels: Sequence[str], colour: str) -> None:
    """Draw a bar to each name, the first on top, with its number at its end; no axis says it twice."""
    figure.set_size_inches(WIDTH, 0.75 + BAR_HEIGHT * len(names))
    axes = figure.add_subplot()
    bars = axes.barh(range(len(names)), values, color=colour, height=0.72)
    axes.bar_label(bars, labels, padding=5, color=TEXT)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * max(*values, 1))
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["bottom", "left"]].set_visible(False)


def _lengths(figure: Any, lengths: Sequence[tuple[str, Lengths]]) -> None:
    """Draw a panel for each unit: shares of documents by length, at the source beside kept."""
    units = list(dict.fromkeys(each.unit for _, each in lengths))
    figure.set_size_inches(WIDTH, 2.9 * len(units))
    for place, unit in enumerate(units):
        axes = figure.add_subplot(len(units), 1, place + 1)
        _histograms(axes, [(what, each) for what, each in lengths if each.unit == unit])
        axes.set_xlabel(f"{unit} of a document")
        axes.set_ylabel("% of documents")


def _histograms(axes: Any, here: Sequence[tuple[str, Lengths]]) -> None:
    first = min(each.bins.start for _, each in here)
    last = max(each.bins.stop for _, each in here)
    width = 0.84 / len(here)
    for number, (what, each) in enumerate(here):
        documents = max(sum(each.documents.values()), 1)
        shares = [100 * each.documents.get(place, 0) / documents for place in range(first, last)]
        places = [place + (number - (len(here) - 1) / 2) * width for place in range(first, last)]
        colour = SECOND if what == "at the source" else FIRST
        axes.bar(places, shares, width, color=colour, label=what)
    every = math.ceil((last - first) / MOST_TICKS)
    shown = range(first, last, every)
    axes.set_xticks(list(shown), [_least(place) for place in shown])
    axes.legend(frameon=False, labelcolor=TEXT, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)


def _least(number: int) -> str:
    """Name a bin by its least length: ``4Ki`` and up."""
    least = 1 << number - 1 if number else 0
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if least >= size:
            return f"{least // size}{unit}+"
    return bin_name(number) if number < 2 else f"{least}+"


def _short(name: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= MOST_LETTERS else f"{shown[: MOST_LETTERS - 1]}…"
