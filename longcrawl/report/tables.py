"""Tables of the report: HTML without styles, scripts or links of its own, in which all text is escaped."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from longcrawl.printable import shortened
from longcrawl.report.passages import escape

__all__ = ["Column", "bar", "grouped_table", "key", "named", "table"]

LONGEST_NAME = 200
_BREAKS = re.compile(r"([_.])")


class Column(NamedTuple):
    """A column behind the names of the rows."""

    head: str
    label: str = ""
    """What stands behind a figure on narrow screens, where heads are not shown."""
    group: str = ""
    """A head above the heads of several columns."""
    kind: str = ""
    """``bar``; and on narrow screens ``main`` for what stands beside the name, ``second`` for a second line."""


Cells = Sequence[str]
"""A row, as HTML: its name, then a cell for each column."""


def table(kind: str, first: str, columns: Sequence[Column], rows: Iterable[Cells], caption: str = "") -> str:
    """Return a table.

    Args:
        kind: its class.
        first: the head of the names.
        columns: those behind the names.
        rows: names and cells.
        caption: what the figures are, in a sentence.

    """
    body = "".join(_row(cells, columns) for cells in rows)
    return _whole(kind, [first], columns, f"<tbody>{body}</tbody>", caption)


def grouped_table(
    kind: str, first: tuple[str, str], columns: Sequence[Column], groups: Iterable[tuple[str, Sequence[Cells]]]
) -> str:
    """Return a table whose rows belong to named groups; ``first`` heads the names of groups and rows."""
    bodies = []
    for name, rows in groups:
        heading = f'<th scope="rowgroup" class="name heading" rowspan="{len(rows)}">{name}</th>'
        said = [_row(cells, columns, "" if number else heading) for number, cells in enumerate(rows)]
        bodies.append(f"<tbody>{''.join(said)}</tbody>")
    return _whole(kind, first, columns, "".join(bodies))


def _whole(kind: str, names: Sequence[str], columns: Sequence[Column], bodies: str, caption: str = "") -> str:
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    heads = "".join(f'<th scope="col" class="name">{escape(name)}</th>' for name in names)
    heads += "".join(map(_column_head, columns))
    above = _groups(len(names), columns) if any(column.group for column in columns) else ""
    return f'<table class="{kind}">{said}<thead>{above}<tr>{heads}</tr></thead>{bodies}</table>'


def _groups(names: int, columns: Sequence[Column]) -> str:
    cells = [f'<td colspan="{names}"></td>']
    for name, same in groupby(columns, key=lambda column: column.group):
        span = f'colspan="{len(list(same))}"'
        cells.append(f'<th scope="colgroup" {span}><span>{escape(name)}</span></th>' if name else f"<td {span}></td>")
    return f'<tr class="groups">{"".join(cells)}</tr>'


def _column_head(column: Column) -> str:
    kind = f' class="{column.kind}"' if column.kind else ""
    return f'<th scope="col"{kind}>{escape(column.head)}</th>' if column.head else f"<td{kind}></td>"


def _row(cells: Cells, columns: Sequence[Column], heading: str = "") -> str:
    name, *rest = cells
    shown = "".join(_cell(column, cell) for column, cell in zip(columns, rest, strict=True))
    return f'<tr>{heading}<th scope="row" class="name">{name}</th>{shown}</tr>'


def _cell(column: Column, cell: str) -> str:
    kind = f' class="{column.kind}"' if column.kind else ""
    label = f' data-label="{escape(column.label)}"' if column.label else ""
    return f"<td{kind}{label}>{cell}</td>"


def bar(*shares: tuple[float, str]) -> str:
    """Draw shares of a whole side by side, each of a kind; what is there at all is seen."""
    at, drawn = 0.0, []
    for share, kind in shares:
        width = max(100 * share, 0.4) if share else 0
        drawn.append(f'<rect class="{kind}" x="{at:.2f}" width="{width:.2f}" height="10"/>')
        at += width
    return (
        f'<svg class="drawn" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg>'
    )


def key(*kinds: tuple[str, str]) -> str:
    """Describe which kind of bar is what."""
    said = "".join(f'<li><span class="swatch {kind}"></span>{escape(what)}</li>' for kind, what in kinds)
    return f'<ul class="key">{said}</ul>'


def named(name: Any) -> str:
    """Return a name, which may be broken behind an underscore or a dot; labels of a host stay in their order."""
    broken = _BREAKS.sub(r"\1<wbr>", escape(shortened(str(name), LONGEST_NAME)))
    return f'<bdi dir="ltr">{broken}</bdi>'
