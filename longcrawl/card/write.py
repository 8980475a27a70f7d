"""The card of a finished run, written again: with pictures, by a newer longcrawl, or after a person has edited it."""

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longcrawl.card.counts import ranked_rules
from longcrawl.card.edits import Merged, is_marked
from longcrawl.card.source import PICTURES
from longcrawl.card.text import CARD, card_problems, merged_card, new_card
from longcrawl.errors import LongCrawlError, RunError, StageError
from longcrawl.ledger.analysis import Analysis, Lengths, bin_name
from longcrawl.ledger.edits import EDITS
from longcrawl.ledger.funnel import Funnel
from longcrawl.manifest import MANIFEST, read_manifest
from longcrawl.printable import as_lines
from longcrawl.storage.files import checksum, file_entries, write_text, writing
from longcrawl.storage.sealed import is_sealed, seal

__all__ = ["Card", "card", "draw_pictures"]

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
    analysis = Analysis.from_dict(manifest["analysis"]) if "analysis" in manifest else Analysis(0)
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


FOLDER = "card"
"""Where pictures lie in a run."""
SHOWN = ("analysis", "bad_files", "digest", "inputs")
"""Blocks of a manifest that a card shows, and that are not needed for one."""


@dataclass(frozen=True)
class Card:
    """A card that was written again."""

    path: str
    kept: tuple[str, ...]
    """What a person has changed in it and is still there."""
    pictures: tuple[str, ...]
    """Paths in the run."""
    missing: tuple[str, ...] = ()
    """Blocks of the manifest that an earlier longcrawl has not written, and whose part of the card says so."""
    problems: tuple[str, ...] = ()
    """What the Hub would refuse in its head, a sentence each; the card is written all the same."""

    def __str__(self) -> str:
        pictures = f" with {len(self.pictures)} pictures" if self.pictures else ""
        kept = f"; kept your edits in: {', '.join(self.kept)}" if self.kept else ""
        missing = f"; its manifest has no {', '.join(self.missing)}, as the card says" if self.missing else ""
        lines = [f"the Hub will not take its head: {each}" for each in self.problems]
        return as_lines([f"{self.path} is written{pictures}{kept}{missing}", *lines])


def card(run: str | Path, *, plots: bool = False) -> Card:
    """Write the card of a finished run again, from its manifest and ledger, and keep what a person has changed in it.

    The manifest then names the card as it is now, and the run is whole to ``verify``. Pictures that were drawn before
    stay. Without edits and pictures, the card is the one that the run wrote. Of a run of an earlier longcrawl, whose
    manifest tells less, the card says what is missing. An edited head that the Hub would not take is kept like every
    edit, and ``problems`` says what is wrong with it.

    Args:
        run: the folder of a finished run.
        plots: draw pictures into ``card/``, too; matplotlib does it.

    Raises:
        RunError: the run is not finished, its manifest has been changed, its ledger is gone, or its card has
            no marks that tell it from a person's, or a file is where pictures would go.
        FormatError: the head of the card is not YAML.
        StageError: matplotlib is not installed.

    """
    folder = Path(run)
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        raise RunError(f"{folder / MANIFEST} has been changed; longcrawl verify {folder} says it all")
    ledgers = [name for name in manifest["files"] if name.startswith(("ledger/", f"{EDITS}/"))]
    if gone := [name for name in ledgers if not (folder / name).is_file()]:
        raise RunError(f"{folder} has lost {gone[0]}, which lists removed documents: copy it back, then write the card")
    if plots and (folder / FOLDER).exists() and not (folder / FOLDER).is_dir():
        raise RunError(f"{folder / FOLDER} is a file, and pictures go to a folder of this name: move it away")
    # Nothing is written before it is known that the card can be.
    try:
        drawn = draw_pictures(manifest) if plots else {}
        there = [name for name in PICTURES if name in drawn or (folder / FOLDER / f"{name}.svg").is_file()]
        written = _merged(folder, manifest, there)
    except LongCrawlError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as odd:
        raise RunError(
            f"{folder / MANIFEST} is not as runs write it ({type(odd).__name__}: {odd}): run the recipe again, into "
            f"another folder than {folder}"
        ) from odd
    pictures = tuple(f"{FOLDER}/{name}.svg" for name in there)
    with writing(folder / CARD, RunError, f"make {folder} writable, or copy the run"):
        for name, picture in drawn.items():
            write_text(folder / FOLDER / f"{name}.svg", picture)
        write_text(folder / CARD, written.text)
        _name_in_manifest(folder, manifest, pictures)
    missing = tuple(name for name in SHOWN if name not in manifest)
    return Card(str(folder / CARD), written.kept, pictures, missing, tuple(card_problems(written.text)))


def _merged(folder: Path, manifest: dict[str, Any], pictures: list[str]) -> Merged:
    """Return the card; one without marks is left out of it only if it is the one that an earlier longcrawl wrote."""
    file = folder / CARD
    text = _read(file) if file.exists() else ""
    if text and not is_marked(text):
        if checksum(file) != manifest["files"].get(CARD, {}).get("sha256"):
            raise RunError(
                f"{file} has none of the comments that tell your edits from what longcrawl wrote: "
                "move it away and type the same command again"
            )
        text = ""
    return merged_card(text, folder, manifest, pictures) if text else Merged(new_card(folder, manifest, pictures), ())


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except ValueError as broken:
        raise RunError(f"{file} is not UTF-8 ({broken}): fix it, or move it away") from broken


def _name_in_manifest(folder: Path, manifest: dict[str, Any], pictures: Sequence[str]) -> None:
    """Return the manifest the bytes of the card and its pictures as they are now."""
    files = {
        name: entry for name, entry in manifest["files"].items() if name != CARD and not name.startswith(f"{FOLDER}/")
    }
    changed = {**manifest, "files": dict(sorted((files | file_entries(folder, [CARD, *pictures])).items()))}
    if json.dumps(changed) != json.dumps(manifest):
        write_text(folder / MANIFEST, seal(changed))
