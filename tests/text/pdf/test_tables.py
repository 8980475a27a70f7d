"""Rows of tables, from lines that are made here."""

import pytest

from longcrawl.text.pdf.lines import Line
from longcrawl.text.pdf.paragraphs import Paragraphs
from longcrawl.text.pdf.tables import separate_cells


def row(number: int, *cells: tuple[float, str]) -> list[Line]:
    bottom = 700.0 - 12 * number
    return [Line(text, left, bottom, left + 5 * len(text), bottom + 10) for left, text in cells]


def read(*rows: list[Line]) -> str:
    lines = [line for each in rows for line in each]
    separate_cells(lines)
    paragraphs = Paragraphs("join", "\n\n")
    return "".join([*paragraphs.add(lines), *paragraphs.end()])


def test_cells_are_separated_by_tabs_and_rows_by_line_breaks():
    rows = [row(number, (50, f"name{number}"), (150, "a description of some length"), (400, f"{number}"))
            for number in range(4)]  # fmt: skip
    assert read(*rows).splitlines()[:2] == [
        "name0\ta description of some length\t0",
        "name1\ta description of some length\t1",
    ]


def test_numbers_may_be_aligned_at_the_right():
    rows = [row(number, (50, "total"), (200 - 5 * len(text), text)) for number, text in enumerate(("1", "20", "300"))]
    assert read(*rows) == "total\t1\ntotal\t20\ntotal\t300"


def test_a_line_that_continues_a_cell_does_not_end_a_table():
    rows = [row(2 * number, (50, f"name{number}"), (150, "a long description that does not fit on")) +
            row(2 * number + 1, (150, "one line")) for number in range(3)]  # fmt: skip
    assert read(*rows) == "\n".join(f"name{n}\ta long description that does not fit on one line" for n in range(3))


@pytest.mark.parametrize("marker", ["•", "1.", "(a)", "2.3.1", "*", "A.1."])
def test_markers_of_items_and_numbers_of_headings_are_no_cells(marker):
    rows = [row(number, (50, marker), (80, "An entry")) for number in range(4)]
    assert "\t" not in read(*rows)


@pytest.mark.parametrize(
    "rows",
    [
        [row(0, (50, "left"), (150, "right")), row(1, (50, "left"), (150, "right"))],
        [row(number, (50, "left"), (150 + 10 * number, "right")) for number in range(5)],
        [row(5 * number, (50, "left"), (150, "right")) for number in range(5)],
        [row(number, *((50 + 20 * place, "x") for place in range(60))) for number in range(5)],
        [row(number, (50, "a line of text")) for number in range(5)],
        [],
    ],
)
def test_lines_that_are_not_aligned_or_too_few_are_no_table(rows):
    assert "\t" not in read(*rows)
