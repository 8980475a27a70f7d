"""Rows of tables: consecutive lines of cells that share edges with those above."""

import re
from collections.abc import Sequence
from itertools import pairwise

from longcrawl.text.pdf.lines import Line

_LEAST_ROWS = 3
_MOST_CELLS = 50
"""Maximum number of cells in a row; longer rows are not rows of a table."""
_EDGE = 3.0
"""Maximum difference of the edges of cells in a column, in points."""
_SAME_ROW = 0.3
"""Maximum difference of the bottoms of cells in a row, in line heights."""
_ROW_GAP = 3.0
"""Maximum space between rows, in line heights."""
_MARKER = re.compile(r"[^\w<]{1,3}|\(?(?:\d{1,3}|[a-zA-Z])[.)]|(?:\d{1,3}\.)+\d{0,3}\.?|[A-Z]\.(?:\d{1,3}\.?)+")
"""Matches the marker of a list item and the number of a heading, which are beside text but are not cells."""


def separate_cells(lines: list[Line]) -> None:
    """Set the separators of the lines of a page that are cells: a tab between cells, a line break between rows.

    A table has three rows or more. A line that continues a cell of the row above it belongs to the table.
    """
    if not any(map(_are_beside, lines, lines[1:])):
        return
    table: list[list[Line]] = []
    for row in _rows(lines):
        if table and _continues(table[-1], row):
            continue
        is_row = 1 < len(row) <= _MOST_CELLS and not (len(row) == 2 and _MARKER.fullmatch(row[0].text))
        if not (is_row and table and _is_below(table[-1], row)):
            _separate(table)
            table = []
        if is_row:
            table.append(row)
    _separate(table)


def _separate(table: list[list[Line]]) -> None:
    if len(table) < _LEAST_ROWS:
        return
    for row in table:
        for line in row:
            line.separator = "\t"
        row[0].separator = "\n"


def _rows(lines: list[Line]) -> list[list[Line]]:
    rows = [lines[:1]]
    for last, line in pairwise(lines):
        if _are_beside(last, line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def _are_beside(last: Line, line: Line) -> bool:
    # An entry of a table of contents has no width.
    is_beside = last.left < last.right <= line.left + 1 < line.right + 1
    return is_beside and abs(last.bottom - line.bottom) < _SAME_ROW * last.height


def _is_below(above: Sequence[Line], row: Sequence[Line]) -> bool:
    """Return whether at least two cells share an edge with cells of the row above."""
    gap = above[0].bottom - row[0].top
    if not -row[0].height < gap < _ROW_GAP * row[0].height:
        return False
    shared = (
        any(abs(cell.left - other.left) < _EDGE or abs(cell.right - other.right) < _EDGE for other in above)
        for cell in row
    )
    return sum(shared) > 1


def _continues(above: Sequence[Line], row: Sequence[Line]) -> bool:
    """Return whether a line continues a cell other than the first of the row above."""
    if len(row) > 1:
        return False
    (line,) = row
    is_near = -line.height < above[-1].bottom - line.top < 0.75 * line.height
    return is_near and any(abs(line.left - cell.left) < _EDGE for cell in above[1:])
