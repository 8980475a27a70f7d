"""Tables, numbers, Markdown and progress bars for people.

Text of a crawl may stand in any cell, title or note: what would command a terminal, or mean something in Markdown or
HTML, is escaped here, for all tables.
"""

import html
import os
import re
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError, as_lines, one_line, shortened


def percent(share: float | None, unit: str = " %") -> str:
    """Return a share of one in percent; "" where it is not known.

    >>> percent(0.4812)
    '48.1 %'
    """
    return "" if share is None else f"{100 * share:.1f}{unit}"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun.

    >>> counted(1, "file"), counted(1200, "file"), counted(2, "entry", "entries")
    ('1 file', '1,200 files', '2 entries')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def figure(value: float | None) -> str:
    """Return a measured value; whole ones without digits behind the point.

    >>> figure(1200.0), figure(0.25), figure(None)
    ('1,200', '0.25', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


MOST_LETTERS = 200

_MEANS_SOMETHING = re.compile(r"([\\`*\[\]|~])")


def code(text: str, most: int = MOST_LETTERS) -> str:
    r"""Return a code span, also for a cell of a table; what cannot be printed becomes "?".

    >>> print(code("a|b"), code("a`b"))
    `a\|b` ``a`b``
    """
    shown = _printable(text, most)
    ticks = "`" * (_longest_run(shown) + 1)
    space = " " if shown[:1] in ("`", " ", "") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{space}{shown}{space}{ticks}".replace("|", r"\|")


def plain(text: str) -> str:
    r"""Return a sentence as it stands: no emphasis, links, cells or HTML in it.

    >>> print(plain("<b> | [x](y)"))
    &lt;b&gt; \| \[x\](y)
    """
    shown = _printable(" ".join(text.split()), 2_000)
    escaped = _MEANS_SOMETHING.sub(r"\\\1", shown.replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def fenced(text: str, language: str = "") -> str:
    """Return a block of code, whose fence is longer than any in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Return a table; the last ``numbers`` columns are aligned to the right. Cells are Markdown already."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])


def _printable(text: str, most: int) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


OFF = "HF_DATASETS_DISABLE_PROGRESS_BARS"
_TRUE = ("1", "ON", "YES", "TRUE")


def progress_bar(*shown: Any, **options: Any) -> Any:
    """Return a bar of tqdm, as `datasets` makes it where that is imported; importing it takes half a second of CPU.

    >>> with progress_bar(total=2, disable=True) as bar:
    ...     bar.update()
    """
    if "datasets" in sys.modules:
        from datasets.utils import tqdm
    else:
        from tqdm.auto import tqdm

        if os.environ.get(OFF, "").upper() in _TRUE:
            options["disable"] = True
    return tqdm(*shown, **options)


BAR = 24
"""Letters of the longest bar in a terminal."""
LONGEST_NAME = 60
"""Letters of a name; longer ones are shortened."""
COLOUR = "#4c78a8"

_LEFT = {"name", "text", "bar"}


class Code(str):
    """Text that is code in Markdown: an id, a rule, a domain."""

    __slots__ = ()


Cell = str | float | tuple[str, ...] | None
"""Text, or words of which some may be code; a number, which its column formats; None for nothing."""


class Column(NamedTuple):
    """A column; its kind is how cells are aligned, and how numbers in it are written.

    A ``count`` has commas, a ``share`` of 0 to 1 is a percentage, a ``bar`` is as long as a share and left out of
    Markdown. A ``name`` is shortened to ``LONGEST_NAME`` letters.
    """

    title: str
    kind: Literal["name", "count", "share", "bar", "text"] = "text"
    width: int = 0
    """At least so many letters in a terminal."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns, with a sentence above and others below; an empty one is a blank line in a terminal.

    >>> print(Table([Column("rule", "name"), Column("documents", "count")], [["min_words", 1200], ["c4", 7]]))
    rule       documents
    min_words      1,200
    c4                 7
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [[one_line(column.title) for column in self.columns], *self._cells(_TERMINAL)]
        widths = [max(map(display_width, cells)) for cells in zip(*lines, strict=True)]
        drawn = [self._line(cells, widths) for cells in lines]
        return as_lines([*([self.title] if self.title else []), *drawn, *self.notes])

    def markdown(self, unit: str = " %") -> str:
        """Return the table in Markdown, without bars; the title and the notes are paragraphs.

        Args:
            unit: what follows the figure of a share.
        """
        places = [place for place, column in enumerate(self.columns) if column.kind != "bar"]
        head = [plain(self.columns[place].title) for place in places]
        rule = ["---" if self.columns[place].kind in _LEFT else "---:" for place in places]
        rows = ([cells[place] for place in places] for cells in self._cells(_MARKDOWN._replace(unit=unit)))
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])
        notes = (f"{plain(note).removesuffix('.')}." for note in self.notes if note)
        return "\n\n".join([*([plain(self.title)] if self.title else []), table, *notes])

    def _repr_html_(self) -> str:
        head = self._html_row("th", [_in_html(column.title) for column in self.columns])
        rows = "".join(self._html_row("td", cells) for cells in self._cells(_HTML))
        title = f"<p>{_in_html(self.title)}</p>" if self.title else ""
        notes = "".join(f"<p>{_in_html(note)}</p>" for note in self.notes if note)
        look = "text-align:right;font-variant-numeric:tabular-nums"
        return f"{title}<table style='{look}'><thead>{head}</thead><tbody>{rows}</tbody></table>{notes}"

    def _cells(self, medium: "_Medium") -> Iterator[list[str]]:
        for row in self.rows:
            yield [_written(cell, column, medium) for column, cell in zip(self.columns, row, strict=True)]

    def _line(self, cells: Iterable[str], widths: Iterable[int]) -> str:
        padded = []
        for column, cell, width in zip(self.columns, cells, widths, strict=True):
            space = " " * (max(width, column.width) - display_width(cell))
            padded.append(f"{cell}{space}" if column.kind in _LEFT else f"{space}{cell}")
        return "  ".join(padded).rstrip()

    def _html_row(self, tag: str, cells: Sequence[str]) -> str:
        """Return a row; a bar stands behind the first figure, which is what it draws."""
        places = sorted(range(len(cells)), key=lambda place: place > 1 and self.columns[place].kind != "bar")
        sides = [" style='text-align:left'" if column.kind in _LEFT else "" for column in self.columns]
        return f"<tr>{''.join(f'<{tag}{sides[place]}>{cells[place]}</{tag}>' for place in places)}</tr>"


class Tabular(ABC):
    """What prints as tables: in a terminal, in Markdown and in a notebook."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return the tables in their order."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def __repr__(self) -> str:
        return str(self)

    def markdown(self) -> str:
        """Return the tables in Markdown, as dataset cards hold them."""
        return "\n\n".join(table.markdown() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())


class ShareRow(NamedTuple):
    """A name, how many documents that is, and their share of all."""

    name: str
    documents: int
    share: float
    other: float | None = None
    """Their share of something else, such as of all characters."""


def share_table(title: str, rows: Sequence[ShareRow], note: str, of: str = "") -> Table:
    """Return a table with a bar to each row; the longest is that of the largest share.

    ``of`` says what ``other`` is a share of, such as "of all characters"; names are figures then.
    """
    columns = [Column(title, "count" if of else "name"), Column("documents", "count", 12), Column("share", "share", 7)]
    columns += [Column("", "bar", BAR), *([Column(of, "share")] if of else [])]
    most = max((row.share for row in rows), default=0) or 1
    shown: list[list[Cell]] = [[Code(row.name), row.documents, row.share, row.share / most] for row in rows]
    if of:
        shown = [[*cells, row.other] for cells, row in zip(shown, rows, strict=True)]
    return Table(columns, shown, notes=[note])


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a wide letter, none for a combining one.

    >>> display_width("word"), display_width("語"), display_width("e\u0301")
    (4, 2, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


class _Medium(NamedTuple):
    """How text, bars and shares are written somewhere."""

    text: Callable[[str], str]
    bar: Callable[[float], str]
    unit: str = " %"
    """What stands behind the figure of a share."""


def _written(cell: Cell, column: Column, medium: _Medium) -> str:
    if cell is None:
        return ""
    if isinstance(cell, tuple):
        return " ".join(map(medium.text, cell))
    if isinstance(cell, str):
        return medium.text(type(cell)(shortened(cell, LONGEST_NAME)) if column.kind == "name" else cell)
    if column.kind == "bar":
        return medium.bar(cell)
    return percent(cell, medium.unit) if column.kind == "share" else f"{cell:,}"


def _in_markdown(text: str) -> str:
    return code(text) if isinstance(text, Code) else plain(text)


def _in_html(text: str) -> str:
    return html.escape(one_line(text))


def _blocks(length: float) -> str:
    """Return a bar of blocks; what is there at all is seen."""
    return "█" * round(BAR * length) or ("▏" if length else "")


def _html_bar(length: float) -> str:
    least = "min-width:1px;" if length else ""
    bar = f"<div style='background:{COLOUR};height:1em;{least}width:{100 * length:.2f}%'></div>"
    return f"<div style='width:14em'>{bar}</div>"


_TERMINAL = _Medium(one_line, _blocks)
_MARKDOWN = _Medium(_in_markdown, _blocks)
_HTML = _Medium(_in_html, _html_bar)


BINS = 32
"""Groups of positions in a picture."""


def bin_positions(
    means: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], bins: int = BINS
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return borders of at most ``bins`` groups of positions, and the mean of each; NaN where nothing was counted.

    >>> borders, grouped = bin_positions(np.array([4.0, 3.0, 2.0]), np.array([2, 2, 4]), 2)
    >>> borders.tolist(), grouped.tolist()
    ([0, 1, 3], [4.0, 2.3333333333333335])

    Args:
        means: float64 [positions].
        counts: int64 [positions], how many values each mean is of.
        bins: groups.

    Returns:
        int64 [groups + 1] and float64 [groups].
    """
    length = len(means)
    borders = np.unique(np.rint(np.geomspace(1, length + 1, min(bins, length) + 1)).astype(np.int64)) - 1
    return borders, np.array(
        [mean_of(means[slice(*pair)], counts[slice(*pair)]) for pair in pairwise(borders.tolist())]
    )


def mean_of(means: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> float:
    """Return the mean of all values that means are of; NaN where one of them is, or there are none."""
    counted = counts > 0
    total = float((means[counted] * counts[counted]).sum())
    return total / int(counts.sum()) if counted.any() else float("nan")


def plot_positions(
    axes: Any, borders: npt.NDArray[np.int64], means: npt.NDArray[np.float64], measured: str, /, **line: Any
) -> Any:
    """Draw means of groups against the position with matplotlib, into ``axes`` or a new figure, and return the axes.

    Raises:
        StageError: matplotlib is not installed.
    """
    if axes is None:
        try:
            from matplotlib.figure import Figure
        except ImportError as missing:
            raise StageError("pictures need matplotlib: pip install 'longcrawl[plots]', or print it") from missing
        axes = Figure().add_subplot()
    # Positions from 1 on, as 0 has no place on a logarithmic axis.
    axes.plot(np.sqrt((borders[:-1] + 1.0) * borders[1:]), means, **line)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("position in the context")
    axes.set_ylabel(measured)
    return axes
