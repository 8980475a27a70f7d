"""Running headers, footers and page numbers, found among neighbouring pages, and dotted leaders."""

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from longcrawl.text.pdf.lines import Line

_AROUND = 4
"""Pages before and after a page that are compared with it."""
_LEAST = 3
"""Number of the nine pages that must have a line. Over a whole document, an index would lose its entries."""
_STEPS = (1, 2)
"""Distances between pages that must have a line: a header is on every page, or on every left or right page."""
_BAND = 0.14
"""Share of the height of the text in which running lines are, at the top and at the bottom."""
_OUTERMOST = 3
"""Rows from the top and from the bottom that may be running lines."""
_NEAR = 3
"""Points by which the height of a running line may differ."""
_LEAST_CELLS = 4
"""Minimum number of lines in a row, such as the cells of a table, for a row to be removed as a whole or not at all."""
_LONGEST = 120
_MOST_RISE = 3
"""Maximum rise of the number beside a running line from page to page, as in spreads and extracts."""
_MOST_NUMBERS = 6
"""Numbers of a line that are compared with the numbers of the pages."""
_COUNTED = re.compile(r"(?=[\divxlc])(?:(?<!\d)\d{1,4}(?!\d)|\b[ivxlc]{1,7}\b)")
"""Matches a decimal or a Roman number; looking ahead for its first character halves the time of a search."""
_NUMBER = re.compile(r"\W*(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of|von|de|sur|из)\s*\d{1,4})?\W*", re.IGNORECASE)
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}

_LEAST_LEADERS = 4
_LEADERS = ".·…"
_ENDS_ENTRY = frozenset("0123456789ivxlc.·…")
_LEAST_ENTRIES = 3
"""Entries with leaders on a page whose other page numbers also belong to a table of contents."""


class _Edge(NamedTuple):
    """A line near the top or the bottom of a page."""

    number: int
    """Place among the lines of the page."""
    bottom: float
    text: str
    """Text without case and spaces; empty for a number alone."""
    counted: list[str]
    """The text with one of its numbers replaced by the distance to the number of the page, for each number."""
    value: int | None = None
    """The value of a number alone."""


class _Seen(NamedTuple):
    """A page with the lines near its edges."""

    lines: list[Line]
    sides: list[list[list[_Edge]]]
    """Rows from the top inwards, and rows from the bottom inwards."""
    heights: dict[str, list[float]]
    """Bottoms of the lines with a text, or with a text of ``counted``."""
    numbers: list[tuple[int, float]]
    """Value and bottom of each number alone."""


class Cleared(NamedTuple):
    """A page without its running lines or leaders."""

    lines: list[Line]
    removed: list[tuple[str, str]]
    """Rule and text of each line, or end of a line, that was removed."""


class RunningLines:
    """Window of nine pages: a page is returned without its running lines when the four pages after it were added.

    A line near an edge is a running line if equal lines are at the same height on three of the nine pages, one after
    the other or on every second page. Numbers in it must be equal, or one of them must count with the pages; then any
    three of the nine are enough, and a number alone may be at any height. Rows are removed from the edge inwards, up to
    the first line that is not repeated.
    """

    def __init__(self, pages: int) -> None:
        self._least = _LEAST if pages > 2 else 2
        self._window: deque[_Seen] = deque()
        self._added = 0
        self._next = 0
        """Place in the window of the page to return next."""

    def add(self, lines: list[Line]) -> Iterator[Cleared]:
        """Add a page; yield the pages that are finished."""
        self._window.append(_outermost(lines, self._added))
        self._added += 1
        if len(self._window) - self._next > _AROUND:
            yield self._finish()

    def end(self) -> Iterator[Cleared]:
        """Yield the remaining pages."""
        while self._next < len(self._window):
            yield self._finish()

    def _finish(self) -> Cleared:
        page = self._window[self._next]
        drop = {edge.number: edge for rows in page.sides for edge in self._repeated(rows)}
        if len(drop) == len(page.lines) >= max([len(seen.lines) for seen in self._window]):
            # Pages with only running lines are content, such as forms; a page with fewer lines than others is blank.
            drop = {number: edge for number, edge in drop.items() if not edge.text}
        if self._next < _AROUND:
            self._next += 1
        else:
            self._window.popleft()
        cleared = without_leaders([line for number, line in enumerate(page.lines) if number not in drop])
        removed = [
            ("running_line" if edge.text else "page_number", page.lines[number].text) for number, edge in drop.items()
        ]
        return cleared._replace(removed=removed + cleared.removed)

    def _repeated(self, rows: list[list[_Edge]]) -> Iterator[_Edge]:
        """Yield the running lines of rows that are given from the edge inwards."""
        for row in rows:
            found = [edge for edge in row if self._is_counted(edge) or self._is_repeated(edge)]
            if any(edge.text for edge in found):
                numbers = {edge.number for edge in found}
                found = [edge for edge in row if edge.number in numbers or self._has_neighbour(edge)]
            if len(found) == len(row) or len(row) < _LEAST_CELLS:
                yield from found
            if len(found) < len(row):
                return

    def _is_counted(self, edge: _Edge) -> bool:
        """Return whether a number of the line counts with the pages."""
        return any(self._pages_with(key, edge).count(True) >= self._least for key in edge.counted)

    def _has_neighbour(self, edge: _Edge) -> bool:
        """Return whether a page nearby has the same lone number, such as a year, or one a few per page apart."""
        if edge.value is None:
            return False
        for place in range(max(self._next - _STEPS[-1], 0), min(self._next + _STEPS[-1] + 1, len(self._window))):
            pages = place - self._next
            for value, bottom in self._window[place].numbers if pages else ():
                rise = (value - edge.value) * (1 if pages > 0 else -1)
                if 0 <= rise <= _MOST_RISE * abs(pages) and abs(bottom - edge.bottom) <= _NEAR:
                    return True
        return False

    def _is_repeated(self, edge: _Edge) -> bool:
        """Return whether neighbouring pages have the line."""
        if not edge.text:
            return False
        has = self._pages_with(edge.text, edge)
        for step in _STEPS:
            run = [*takewhile(bool, has[self._next :: step]), *takewhile(bool, has[self._next :: -step])]
            if len(run) > self._least:  # this page counts twice
                return True
        return False

    def _pages_with(self, key: str, edge: _Edge) -> list[bool]:
        """Return whether each page of the window has a text, at the height of the line unless it is a number alone.

        The list is empty if fewer pages than needed have the text, as for most lines.
        """
        found: list[Sequence[float]] = [page.heights.get(key, ()) for page in self._window]
        if len(found) - found.count(()) < self._least:
            return []
        if not edge.text:
            return [bool(bottoms) for bottoms in found]
        return [any(abs(bottom - edge.bottom) <= _NEAR for bottom in bottoms) for bottoms in found]


def without_leaders(lines: list[Line]) -> Cleared:
    """Remove dotted leaders, and the page numbers that they lead to, from the entries of a table of contents."""
    entries = [_before_leaders(line.text) for line in lines]
    count = len(entries) - entries.count(None)
    if not count:
        return Cleared(lines, [])
    kept: list[Line] = []
    removed = []
    for line, entry in zip(lines, entries, strict=True):
        if entry is not None:
            # Shorten the entry, so that it does not count as a full line of a paragraph.
            kept.append(Line(entry, line.left, line.bottom, line.left, line.top))
            removed.append(("leaders", line.text[len(entry) :]))
        elif count < _LEAST_ENTRIES or not _NUMBER.fullmatch(line.text):
            kept.append(line)
        else:
            removed.append(("leaders", line.text))
    return Cleared(kept, removed)


def _before_leaders(text: str) -> str | None:
    """Return the title of an entry in a table of contents, in front of dots and perhaps a page number."""
    if text[-1:] not in _ENDS_ENTRY or sum(map(text.count, _LEADERS)) < _LEAST_LEADERS:
        return None
    rest = text.rstrip("0123456789")
    most = 4
    if len(rest) == len(text):
        rest, most = text.rstrip("ivxlc"), 7
    dots = rest.rstrip()
    title = dots.rstrip(f"{_LEADERS} ")
    is_entry = len(text) - len(rest) <= most and dots[-1:] in _LEADERS
    return title if is_entry and sum(map(dots[len(title) :].count, _LEADERS)) >= _LEAST_LEADERS else None


def _outermost(lines: list[Line], page: int) -> _Seen:
    if not lines:
        return _Seen(lines, [], {}, [])
    top, bottom = max([line.top for line in lines]), min([line.bottom for line in lines])
    band = _BAND * max(1.0, top - bottom)
    upwards = sorted(range(len(lines)), key=[line.bottom for line in lines].__getitem__)
    upper = takewhile(lambda number: lines[number].top > top - band, reversed(upwards))
    lower = takewhile(lambda number: lines[number].bottom < bottom + band, upwards)
    sides = [_rows(lines, upper, page), _rows(lines, lower, page)]
    heights: dict[str, list[float]] = defaultdict(list)
    numbers = list[tuple[int, float]]()
    for edge in chain.from_iterable(chain.from_iterable(sides)):
        for key in [edge.text, *edge.counted]:
            heights[key].append(edge.bottom)
        if edge.value is not None:
            numbers.append((edge.value, edge.bottom))
    return _Seen(lines, sides, dict(heights), numbers)


def _rows(lines: list[Line], numbers: Iterable[int], page: int) -> list[list[_Edge]]:
    """Return the first rows of lines that are given by height."""
    rows: list[list[_Edge]] = []
    last = math.inf
    for number in numbers:
        line = lines[number]
        if abs(line.bottom - last) > _NEAR:
            if len(rows) == _OUTERMOST:
                break
            rows.append([])
        last = line.bottom
        rows[-1].append(_edge(number, line, page))
    return rows


def _edge(number: int, line: Line, page: int) -> _Edge:
    text = line.text.lower()
    numbers = list(_COUNTED.finditer(text))
    if numbers and _NUMBER.fullmatch(text):
        value = _value(numbers[0][0])
        return _Edge(number, line.bottom, "", [f"\0{value - page}"], value)
    counted = [
        f"{text[: found.start()]}\0{_value(found[0]) - page}\0{text[found.end() :]}"
        for found in numbers[:_MOST_NUMBERS]
    ]
    return _Edge(number, line.bottom, _folded(text), list(map(_folded, counted)))


def _folded(text: str) -> str:
    return text.replace(" ", "")[:_LONGEST]


def _value(number: str) -> int:
    """Return the value of a decimal or a Roman number."""
    if number.isdecimal():
        return int(number)
    values = [_ROMAN[letter] for letter in number]
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))
