"""Why documents were removed: reasons, counts, the funnel as text, Markdown and HTML."""

import html
import html.parser
import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.funnel import Funnel, FunnelRow, add_values, count_values
from longcrawl.core.stages import label_stages
from longcrawl.errors import one_line

FUNNEL = Funnel(
    "text",
    12_000,
    (
        FunnelRow("min_chars", 12_000, 6_000, {"min_chars": 6_000}),
        FunnelRow("rules", 6_000, 1_500, {f"rule_{number}": number for number in range(1, 10)} | {"most": 4_455}),
        FunnelRow("tokenize", 1_500, 1_500),
        FunnelRow("min_tokens", 1_500, 1, {"min_tokens": 1_499}),
    ),
)

names = st.text(min_size=1, max_size=8)


@st.composite
def funnels(draw) -> Funnel:
    """Draw a funnel that only gets narrower."""
    left = documents = draw(st.integers(0, 10**12))
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        came, left = left, draw(st.integers(0, left))
        rules = draw(st.dictionaries(names, st.integers(0, 10**9), max_size=9))
        rows.append(FunnelRow(draw(names), came, left, rules))
    return Funnel(draw(names), documents, tuple(rows))


@given(st.lists(st.sampled_from(["min_words", "roll", "tokenize"])))
def test_labels_are_unique_and_the_first_of_a_kind_keeps_its_name(stages):
    labels = label_stages(stages)
    assert len(set(labels)) == len(stages)
    for place, (label, name) in enumerate(zip(labels, stages, strict=True)):
        number = stages[: place + 1].count(name)
        assert label == (name if number == 1 else f"{name}_{number}")


# -------------------- all documents


def test_a_funnel_knows_what_is_kept_and_what_left():
    assert FUNNEL.kept == 1
    assert [row.removed for row in FUNNEL] == [6_000, 4_500, 0, 1_499]
    assert Funnel("text", 5).kept == 5


def test_the_stage_that_removed_the_last_documents_is_named():
    assert FUNNEL.emptied_by() is None
    assert Funnel("text", 0, (FunnelRow("a", 0, 0),)).emptied_by() is None
    emptied = Funnel("text", 3, (FunnelRow("a", 3, 2), FunnelRow("b", 2, 0), FunnelRow("c", 0, 0)))
    assert emptied.emptied_by() == "b"


def test_a_funnel_grows_by_a_row_and_stays_as_it_was():
    row = FunnelRow("roll", 1, 1)
    assert FUNNEL.then(row).rows == (*FUNNEL.rows, row)
    assert len(FUNNEL.rows) == 4


@given(funnels())
def test_a_funnel_goes_through_json(funnel):
    assert Funnel.from_dict(json.loads(json.dumps(funnel.as_dict()))) == funnel


def test_a_funnel_is_a_table_in_a_terminal():
    lines = repr(FUNNEL).splitlines()
    assert lines[0].split() == ["stage", "kept", "removed", "rules"]
    assert lines[1].split() == ["text", "12,000", "█" * 24]
    assert lines[2].split() == ["min_chars", "6,000", "6,000", "█" * 12, "min_chars", "6,000"]
    assert lines[3].split()[:4] == ["rules", "1,500", "4,500", "███"]
    assert lines[3].endswith("most 4,455, rule_9 9, rule_8 8, rule_7 7, rule_6 6, rule_5 5, others 10")
    assert lines[5].split() == ["min_tokens", "1", "1,499", "▏", "min_tokens", "1,499"]
    assert len({line.index("kept") if number == 0 else 0 for number, line in enumerate(lines)}) <= 2
    assert all(line == line.rstrip() for line in lines)


@given(funnels())
def test_every_row_of_the_terminal_table_is_there(funnel):
    simple = Funnel("s", funnel.documents, tuple(FunnelRow("n", r.documents_in, r.documents_out) for r in funnel.rows))
    lines = repr(simple).splitlines()
    assert len(lines) == 2 + len(simple.rows)
    for line, row in zip(lines[2:], simple.rows, strict=True):
        assert f"{row.documents_out:,}" in line
        assert f"{row.removed:,}" in line


def test_a_funnel_is_a_markdown_table():
    lines = FUNNEL.markdown().splitlines()
    assert {line.count("|") for line in lines} == {5}
    assert lines[2] == "| text | 12,000 |  |  |"
    assert lines[3] == "| min_chars | 6,000 | 6,000 | `min_chars` 6,000 |"
    assert lines[5] == "| tokenize | 1,500 | 0 |  |"


class Cells(html.parser.HTMLParser):
    """Collects the text of table cells and complains about tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.widths: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        style = dict(attrs).get("style", "")
        if "%" in style:
            self.widths.append(style.rpartition("width:")[2])
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.rows[-1][-1] += data


def cells(funnel: Funnel) -> Cells:
    parser = Cells()
    parser.feed(funnel._repr_html_())
    parser.close()
    assert parser.open == []
    return parser


def test_a_funnel_is_bars_in_a_notebook():
    told = cells(FUNNEL)
    assert told.rows[1] == ["text", "12,000", "", "", ""]
    assert told.rows[2] == ["min_chars", "6,000", "", "6,000", "min_chars 6,000"]
    assert told.widths == ["100.00%", "50.00%", "12.50%", "12.50%", "0.01%"]


@given(funnels())
def test_names_in_a_notebook_are_text_and_never_markup(funnel):
    told = cells(funnel)
    assert told.tags <= {"table", "thead", "tbody", "tr", "th", "td", "div"}
    assert len(told.rows) == 2 + len(funnel.rows)
    for row, cells_of_row in zip(funnel.rows, told.rows[2:], strict=True):
        assert cells_of_row[0] == one_line(row.stage)


def test_a_script_in_a_name_is_shown_and_not_run():
    evil = "<script>alert(1)</script>"
    funnel = Funnel(evil, 3, (FunnelRow(evil, 3, 2, {evil: 1}),))
    assert "<script" not in funnel._repr_html_()
    told = cells(funnel)
    assert told.rows[1][0] == evil
    assert told.rows[2][4] == f"{evil} 1"


def test_values_of_a_column_are_counted_added_and_read_back():
    tables = [pa.table({"language": ["en", None, "de"]}), pa.table({"language": ["de", "de", None]})]
    counts = add_values([count_values(table, "language") for table in tables])
    assert list(counts["language"].items()) == [("de", 3), ("", 2), ("en", 1)]
    assert count_values(tables[0], None) == {}
    funnel = Funnel("warc", 6, (FunnelRow("identify_language", 6, 6, values=counts), FunnelRow("roll", 6, 6)))
    assert Funnel.from_dict(funnel.as_dict()) == funnel
