"""Tables, numbers, Markdown, progress bars and plots for people.

Cells, titles and notes may contain text from a crawl, so tables escape terminal control characters, Markdown and HTML.
"""

import html
import math
import os
import re
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

from longcrawl.errors import as_lines, has_terminal, one_line, shortened, show


def percent(share: float | None, unit: str = " %") -> str:
    """Format a share of 0 to 1 as a percentage, or "" if it is None.

    >>> percent(0.4812)
    '48.1 %'
    """
    return "" if share is None else f"{100 * share:.1f}{unit}"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Format a count with its noun in the singular or plural.

    >>> counted(1, "file"), counted(1200, "file"), counted(2, "entry", "entries")
    ('1 file', '1,200 files', '2 entries')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def figure(value: float | None) -> str:
    """Format a measured value; whole numbers have no decimals.

    >>> figure(1200.0), figure(0.25), figure(None)
    ('1,200', '0.25', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


MOST_LETTERS = 200
"""Maximum number of characters of a code span."""

_MEANS_SOMETHING = re.compile(r"([\\`*\[\]|~])")


def code(text: str, most: int = MOST_LETTERS) -> str:
    r"""Return a Markdown code span, safe in a table cell; unprintable characters become "?".

    >>> print(code("a|b"), code("a`b"))
    `a\|b` ``a`b``
    """
    shown = printable(text, most)
    ticks = "`" * (_longest_run(shown) + 1)
    space = " " if shown[:1] in ("`", " ", "") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{space}{shown}{space}{ticks}".replace("|", r"\|")


def plain(text: str) -> str:
    r"""Escape a text so that Markdown shows it literally, without emphasis, links, cells or HTML.

    >>> print(plain("<b> | [x](y)"))
    &lt;b&gt; \| \[x\](y)
    """
    shown = printable(" ".join(text.split()), 2_000)
    escaped = _MEANS_SOMETHING.sub(r"\\\1", shown.replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def fenced(text: str, language: str = "") -> str:
    """Return a fenced code block with a fence longer than any in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Return a Markdown table of cells in Markdown; the last ``numbers`` columns are right-aligned."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])


def printable(text: str, most: int) -> str:
    """Replace unprintable characters by "?" and shorten a text to ``most`` characters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


OFF = "HF_DATASETS_DISABLE_PROGRESS_BARS"
_TRUE = ("1", "ON", "YES", "TRUE")
LINE_SECONDS = 10
"""Seconds between two lines of progress in a file or pipe."""


class _Lines:
    """Standard error for a bar of tqdm that no terminal shows: a line for each state."""

    _last = ""

    def write(self, text: str) -> None:
        line = " ".join(text.replace("\x1b[A", "").replace(", ? left", "").split())
        if line not in ("", self._last):
            show(line, error=True)
            self._last = line

    def flush(self) -> None:
        """Do nothing: each line is flushed."""


def progress_bar(*shown: Any, **options: Any) -> Any:
    """Return a tqdm progress bar, that of `datasets` if it is already imported; importing it takes 0.5 s of CPU.

    In a file or pipe, it prints a line every ``LINE_SECONDS``.

    >>> with progress_bar(total=2, disable=True) as bar:
    ...     bar.update()
    """
    if os.environ.get(OFF, "").upper() in _TRUE:
        options["disable"] = True
    elif not has_terminal() and "ipykernel" not in sys.modules:
        line = "{desc}: {n_fmt} of {total_fmt} {unit}, {elapsed} elapsed, {remaining} left{postfix}"
        options |= {"file": _Lines(), "bar_format": line, "mininterval": LINE_SECONDS, "maxinterval": LINE_SECONDS}
        options["disable"] = options.get("disable") or options.get("total") == 0
    if "datasets" in sys.modules:
        from datasets.utils import tqdm
    else:
        from tqdm.auto import tqdm
    return tqdm(*shown, **options)


BAR = 24
"""Characters of the longest bar in a terminal."""
LONGEST_NAME = 60
"""Maximum number of characters of a name; longer ones are shortened."""
COLOUR = "#4c78a8"

_LEFT = {"name", "text", "bar"}


class Code(str):
    """Text shown as code in Markdown, such as an id, a rule or a domain."""

    __slots__ = ()


Cell = str | float | tuple[str, ...] | None
"""Content of a table cell: text, words of which some may be code, a number that its column formats, or None."""


class Column(NamedTuple):
    """A table column; ``kind`` decides its alignment and the format of its numbers.

    A ``share`` of 0 to 1 is a percentage. A ``bar`` has the length of a share and is left out of Markdown. A ``name``
    is shortened to ``LONGEST_NAME`` characters.
    """

    title: str
    kind: Literal["name", "count", "share", "bar", "text"] = "text"
    width: int = 0
    """Minimum width in a terminal, in characters."""


@dataclass(frozen=True)
class Table:
    """A table with a title above it and notes below; an empty note is a blank line in a terminal.

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
        """Return the table in Markdown, without bars; title and notes are paragraphs.

        Args:
            unit: the suffix of percentages.
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
        """Return a row with the bar moved behind the first number, which it draws."""
        places = sorted(range(len(cells)), key=lambda place: place > 1 and self.columns[place].kind != "bar")
        sides = [" style='text-align:left'" if column.kind in _LEFT else "" for column in self.columns]
        return f"<tr>{''.join(f'<{tag}{sides[place]}>{cells[place]}</{tag}>' for place in places)}</tr>"


class Tabular(ABC):
    """Base of results that print as tables in a terminal, in Markdown and in a notebook."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return the tables in the order in which they are printed."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def __repr__(self) -> str:
        return str(self)

    def markdown(self) -> str:
        """Return the tables in Markdown, for dataset cards."""
        return "\n\n".join(table.markdown() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())


def share_table(
    title: str, groups: Sequence[tuple[str, int, *tuple[float, ...]]], documents: int, note: str, of: str = ""
) -> Table:
    """Return a table of groups of all ``documents``, each with its count, its share and a bar scaled to the largest.

    A group is a name and a count of documents. If ``of`` is set, such as to "of all characters", it is the title of a
    last column, groups also have a share for this column, and names are aligned like numbers.
    """
    columns = [Column(title, "count" if of else "name"), Column("documents", "count", 12), Column("share", "share", 7)]
    columns += [Column("", "bar", BAR), *([Column(of, "share")] if of else [])]
    shown, most = list[list[Cell]](), max((count / documents for _, count, *_ in groups), default=0) or 1
    for name, count, *others in groups:
        share = count / documents
        shown.append([Code(name or "none"), count, share, share / most, *others])
    return Table(columns, shown, notes=[note])


def display_width(text: str) -> int:
    """Return the number of terminal columns of a text: two for a wide character, none for a combining one.

    >>> display_width("word"), display_width("語"), display_width("e\u0301")
    (4, 2, 1)
    """
    return len(text) if text.isascii() else sum(map(_letter_width, text))


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


class _Medium(NamedTuple):
    """Formats of text, bars and shares for a terminal, Markdown or HTML."""

    text: Callable[[str], str]
    bar: Callable[[float], str]
    unit: str = " %"
    """Suffix of percentages."""


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


def _in_html(text: str) -> str:
    return html.escape(one_line(text))


def _blocks(length: float) -> str:
    """Return a bar of block characters; any length above zero is visible."""
    return "█" * round(BAR * length) or ("▏" if length else "")


def _html_bar(length: float) -> str:
    least = "min-width:1px;" if length else ""
    bar = f"<div style='background:{COLOUR};height:1em;{least}width:{100 * length:.2f}%'></div>"
    return f"<div style='width:14em'>{bar}</div>"


_TERMINAL = _Medium(one_line, _blocks)
_MARKDOWN = _Medium(lambda text: code(text) if isinstance(text, Code) else plain(text), _blocks)
_HTML = _Medium(_in_html, _html_bar)


def facts_of(value: Any) -> Any:
    """Convert an answer to JSON-ready values: from ``as_dict``, from its public fields, or from the rows of its tables.

    >>> facts_of(Table([Column("rule"), Column("", "bar"), Column("documents", "count")], [["min_words", 0.5, 7]]))
    {'title': '', 'rows': [{'rule': 'min_words', 'documents': 7}], 'notes': []}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple | list | set | frozenset) and not hasattr(value, "_asdict"):
        return [facts_of(each) for each in value]
    for convert in ("as_dict", "_asdict", "tolist", "to_pylist", "as_py"):  # ours, named tuples, numpy, Arrow
        if hasattr(value, convert):
            return facts_of(getattr(value, convert)())
    named = _named_facts(value)
    return str(value) if named is None else {str(name): facts_of(each) for name, each in named.items()}


def _named_facts(value: Any) -> Mapping[Any, Any] | None:
    """Return the values of an answer by their names; None if it has none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Table):
        kept = [(place, column.title) for place, column in enumerate(value.columns) if column.kind != "bar"]
        rows = [{title: row[place] for place, title in kept} for row in value.rows]
        return {"title": value.title, "rows": rows, "notes": list(value.notes)}
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value) if not each.name.startswith("_")}
    return {"tables": value.tables()} if isinstance(value, Tabular) else None
