"""One table: the same cells in a terminal, in Markdown and in HTML, whatever text stands in them."""

import html.parser
import re
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.display import Code, Column, Table, display_width, facts_of, share_table
from longcrawl.errors import one_line

HOSTILE = st.text(st.sampled_from([*"ab |`*<&>'\\[]~", "\n", "\x1b", "\u202e", "語", "é", "\u0301"]), max_size=12)
COLUMNS = [Column("site"), Column("documents", "count", 12), Column("share", "share"), Column("", "bar"), Column("why")]
ROWS = st.lists(st.tuples(HOSTILE, st.integers(0, 10**7), st.floats(0, 1), st.floats(0, 1), HOSTILE), max_size=5)


class Cells(html.parser.HTMLParser):
    """Collects the text of table cells, and the tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):  # noqa: ARG002  # as html.parser calls it
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        self.rows[-1][-1] += data


def naive_width(text: str) -> int:
    width = 0
    for letter in text:
        if not unicodedata.combining(letter):
            width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
    return width


def naive_cells(row) -> list[str]:
    site, documents, share, length, why = row
    bar = "█" * round(24 * length) or ("▏" if length > 0 else "")
    return [one_line(site), format(documents, ","), f"{share * 100:.1f} %", bar, one_line(why)]


@given(ROWS)
def test_every_cell_of_a_terminal_begins_or_ends_with_its_column(rows):
    lines = str(Table(COLUMNS, rows)).splitlines()
    cells = [["site", "documents", "share", "", "why"], *map(naive_cells, rows)]
    assert len(lines) == len(cells)
    widths = [max(map(naive_width, column)) for column in zip(*cells, strict=True)]
    widths[1] = max(widths[1], 12)
    for line, row in zip(lines, cells, strict=True):
        spaces = [" " * (width - naive_width(cell)) for cell, width in zip(row, widths, strict=True)]
        sides = [0, 1, 1, 0, 0]
        drawn = [space + cell if side else cell + space for cell, space, side in zip(row, spaces, sides, strict=True)]
        assert line == "  ".join(drawn).rstrip()
        assert line.isprintable()


@given(ROWS)
def test_cells_of_markdown_are_text(rows):
    lines = Table(COLUMNS, rows).markdown().split("\n")
    assert lines[:2] == ["| site | documents | share | why |", "| --- | ---: | ---: | --- |"]
    assert len(lines) == 2 + len(rows)
    for line, (site, documents, share, _, why) in zip(lines[2:], rows, strict=True):
        found = re.split(r" \| ", line.removeprefix("| ").removesuffix(" |"))
        shown = [re.sub(r"\\(.)", r"\1", html.unescape(cell)) for cell in found]
        words = (" ".join(text.split()) for text in (site, why))
        plain = ["".join(letter if letter.isprintable() else "?" for letter in text) for text in words]
        assert shown == [plain[0], f"{documents:,}", f"{100 * share:.1f} %", plain[1]]
        assert not re.search(r"(?<!\\)[`*\[\]~]|[<>]", line)


@given(ROWS)
def test_cells_of_html_are_text(rows):
    page = Cells(Table(COLUMNS, rows)._repr_html_())
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "div"}
    assert page.rows[0] == ["site", "documents", "", "share", "why"]
    drawn = [[*cells[:2], "", cells[2], cells[4]] for cells in map(naive_cells, rows)]
    assert page.rows[1:] == drawn


def test_bars_of_html_are_as_long_as_their_share():
    page = Table([Column("", "bar")], [[1.0], [0.25], [0.0]])._repr_html_()
    assert re.findall(r"[;'](?:min-width:1px;)?width:([\d.]+)%", page) == ["100.00", "25.00", "0.00"]
    assert page.count("min-width:1px") == 2


@pytest.mark.parametrize("columns", [COLUMNS, [Column("one", "name")]])
def test_an_empty_table_is_its_head(columns):
    table = Table(columns, [])
    titles = [column.title for column in columns if column.title]
    assert str(table).split() == " ".join(titles).split()
    assert len(table.markdown().splitlines()) == 2
    assert list(filter(None, Cells(table._repr_html_()).rows[0])) == titles


def test_a_long_name_is_shortened_and_a_long_text_is_not():
    table = Table([Column("name", "name"), Column("text")], [[Code("n" * 61), "t" * 61]])
    for shown in (str(table), table.markdown(), table._repr_html_()):
        assert "n" * 59 + "…" in shown
        assert "n" * 60 not in shown
        assert "t" * 61 in shown


def test_code_is_code_in_markdown_alone():
    table = Table([Column("rules")], [[(Code("a|b"), "1,", Code("c`"), "2")]])
    assert table.markdown().splitlines()[-1] == r"| `a\|b` 1, `` c` `` 2 |"
    assert str(table).splitlines()[-1] == "a|b 1, c` 2"
    assert Cells(table._repr_html_()).rows[-1] == ["a|b 1, c` 2"]


def test_titles_and_notes_are_lines_paragraphs_and_text():
    table = Table([Column("n", "count")], [[1], [None]], "<above>", ["first\x1b", "", "last."])
    assert str(table).splitlines() == ["<above>", "n", "1", "", "first\\x1b", "", "last."]
    assert table.markdown() == "&lt;above&gt;\n\n| n |\n| ---: |\n| 1 |\n|  |\n\nfirst?.\n\nlast."
    assert table._repr_html_().startswith("<p>&lt;above&gt;</p><table ")
    assert table._repr_html_().endswith("</table><p>first\\x1b</p><p>last.</p>")


def test_a_row_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="zip"):
        str(Table(COLUMNS, [["a", 1]]))


def test_the_longest_bar_is_that_of_the_largest_share():
    table = share_table("site", [("a", 1), ("b", 4)], 10, "two")
    assert [line.count("█") for line in str(table).splitlines()] == [0, 6, 24, 0]
    assert str(share_table("site", [("a", 0)], 1, "none")).count("█") == 0


@given(st.text())
def test_widths_of_letters(text):
    shown = "".join(letter for letter in text if unicodedata.category(letter) not in ("Cf", "Mn", "Me", "Mc"))
    assert display_width(shown) == naive_width(shown)
    assert display_width("語e\u0301\u200b") == 3


def test_progress_in_a_file_is_lines(python):
    code = """
from longcrawl.core.display import progress_bar
for _ in progress_bar(range(3), desc="a > b", unit=" parts"):
    pass
with progress_bar(total=0, desc="nothing"):
    pass
"""
    assert re.sub(r"\d\d:\d\d|\?", "T", python(code).stderr).splitlines() == [
        "a > b: 0 of 3 parts, T elapsed",
        "a > b: 3 of 3 parts, T elapsed, T left",
    ]


def test_facts_are_plain_json_values():
    table = Table(
        [Column("site"), Column("", "bar"), Column("share", "share")], [[Code("a.example"), 1.0, float("nan")]]
    )
    assert facts_of((table, {1: Path("a")})) == [
        {"title": "", "rows": [{"site": "a.example", "share": None}], "notes": []},
        {"1": "a"},
    ]
    assert facts_of({"arrays": [np.arange(2), np.float32(0.5)], "column": pa.array([1, None])}) == {
        "arrays": [[0, 1], 0.5],
        "column": [1, None],
    }
