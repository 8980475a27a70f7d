"""Tables with a bar to each row: in a terminal, in a notebook, in Markdown."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from longcrawl.printable import as_lines

__all__ = ["BarRow", "BarTable"]

BAR = 24
MOST_LETTERS = 60
COLOUR = "#4c78a8"
FIGURES = "font-variant-numeric:tabular-nums"


@dataclass(frozen=True)
class BarRow:
    """One row: a name, how many documents that is, and their share of all."""

    name: str
    documents: int
    share: float
    """Of all documents, from 0 to 1."""
    total_share: float | None = None
    """Of what the table counts besides documents, from 0 to 1."""


@dataclass(frozen=True)
class BarTable:
    """A title, rows, and what else there is to say."""

    title: str
    rows: Sequence[BarRow]
    rest: str
    total: str = ""
    """What ``total_share`` is a share of, such as "of all characters"."""

    def text(self) -> str:
        """Draw bars of blocks; the longest is that of the largest share."""
        width = max(len(name) for name in (self.title, *(_shown(row.name) for row in self.rows)))
        lines = [f"{self.title:<{width}}  {'documents':>12}  {'share':>7}  {'':<{BAR}}  {self.total}"]
        for row in self.rows:
            share = "" if row.total_share is None else f"{_percent(row.total_share):>7}"
            bar = f"{self._bar(row):<{BAR}}"
            name = f"{_shown(row.name):{'>' if self.total else '<'}{width}}"
            lines.append(f"{name}  {row.documents:>12,}  {_percent(row.share):>7}  {bar}  {share}")
        return as_lines(line.rstrip() for line in [*lines, self.rest])

    def markdown(self) -> str:
        """Return a Markdown table and the rest as a paragraph."""
        head, rule = [self.title, "documents", "share"], ["---:" if self.total else "---", "---:", "---:"]
        if self.total:
            head.append(self.total)
            rule.append("---:")
        rows = [[f"`{_shown(row.name)}`", f"{row.documents:,}", *_shares(row)] for row in self.rows]
        return "\n".join([*(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows]), "", f"{self.rest}."])

    def html(self) -> str:
        """Return a table with coloured bars."""
        names = [self.title, "documents", "", "share", *([self.total] if self.total else [])]
        head = "".join(f"<th style='text-align:{_side(at)}'>{html.escape(name)}</th>" for at, name in enumerate(names))
        rows = "".join(self._html_row(row) for row in self.rows)
        table = f"<table style='{FIGURES}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f"{table}<p>{html.escape(self.rest)}</p>"

    def _bar(self, row: BarRow) -> str:
        return "█" * round(BAR * self._length(row)) or ("▏" if row.documents else "")

    def _length(self, row: BarRow) -> float:
        return row.share / max(*(each.share for each in self.rows), 1e-12)

    def _html_row(self, row: BarRow) -> str:
        bar = f"<div style='background:{COLOUR};height:1em;width:{100 * self._length(row):.2f}%'></div>"
        cells = [
            html.escape(_shown(row.name)),
            f"{row.documents:,}",
            f"<div style='width:14em'>{bar}</div>",
            *_shares(row),
        ]
        made = [f"<td style='text-align:{_side(at)}'>{cell}</td>" for at, cell in enumerate(cells)]
        return f"<tr>{''.join(made)}</tr>"


def _side(column: int) -> str:
    """Names and bars begin at the left, figures end at the right."""
    return "left" if column in (0, 2) else "right"


def _shares(row: BarRow) -> list[str]:
    return [_percent(row.share), *([] if row.total_share is None else [_percent(row.total_share)])]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _shown(name: str) -> str:
    """Keep what stands in a document's URL or language from being Markdown, or a command to a terminal."""
    shown = "".join(letter if letter.isprintable() and letter not in "`|" else "?" for letter in name)
    return shown if len(shown) <= MOST_LETTERS else f"{shown[: MOST_LETTERS - 1]}…"
