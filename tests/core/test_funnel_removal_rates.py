"""The removal-rate table: percent of the start and of the stage before, beside published figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.funnel import Funnel, FunnelRow, Reference, RemovalRates, total
from longcrawl.errors import RecipeError

FUNNEL = Funnel(
    "warc",
    200,
    (
        FunnelRow("url_filter", 200, 180),
        FunnelRow("extract_text", 180, 160, {}, 8_000),
        FunnelRow("language", 160, 100, {}, 6_000),
        FunnelRow("tokenize", 100, 100),
    ),
)


def test_documents_count_from_the_input_and_characters_from_where_there_are_any():
    rows = list(RemovalRates(FUNNEL))
    assert rows[0] == ["warc", 200, 1.0, None, None, None, None]
    assert rows[1] == ["url_filter", 180, 0.9, 0.9, None, None, None]
    assert rows[2] == ["extract_text", 160, 0.8, 160 / 180, 8000, 1.0, None]
    assert rows[3] == ["language", 100, 0.5, 0.625, 6000, 0.75, 0.75]
    assert rows[4] == ["tokenize", 100, 0.5, 1.0, None, None, None]


def test_without_characters_there_are_no_columns_for_them():
    funnel = Funnel("text", 4, (FunnelRow("min_chars", 4, 1),))
    assert [column.title for column in RemovalRates(funnel).columns] == ["stage", "kept", "of all", "of before"]
    assert [len(row) for row in RemovalRates(funnel)] == [4, 4]


def test_published_figures_stand_beside_their_stages():
    rates = RemovalRates(FUNNEL, Reference("RefinedWeb", {"language": 0.48}))
    assert rates.columns[-1].title == "RefinedWeb"
    assert [row[-1] for row in rates] == [None, None, None, 0.48, None]


def test_nothing_divides_by_zero():
    assert [row[2:4] for row in RemovalRates(Funnel("text", 0, (FunnelRow("a", 0, 0),)))] == [
        [None, None],
        [None, None],
    ]


def test_the_table_is_text_markdown_and_html():
    rates = RemovalRates(Funnel("<b>", 2, (FunnelRow("a", 2, 1),)), Reference("R & D", {"a": 0.5}))
    lines = repr(rates).splitlines()
    assert len({len(line) for line in lines if line.endswith("%")} - {len(lines[1])}) == 1
    assert {line.count("|") for line in rates.markdown().splitlines()} == {6}
    assert "<td style='text-align:left'>&lt;b&gt;</td><td>2</td>" in rates._repr_html_()
    assert "<th>R &amp; D</th>" in rates._repr_html_()
    assert rates._repr_html_().count("<tr>") == 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "R", "documents": {"a": 48}}, "documents.a must be a share from 0 to 1, got 48"),
        ({"name": "R", "documents": {"a": True}}, "documents.a must be a share from 0 to 1, got True"),
        ({"documents": {"a": 0.5}}, "documents need a name: set name to the source of the figures"),
    ],
)
def test_a_wrong_reference_is_one_sentence(values, said):
    with pytest.raises(RecipeError, match=said):
        Reference(**values)


@given(st.lists(st.none() | st.integers(0, 9)))
def test_a_total_with_something_unknown_is_unknown(counts):
    assert total(counts) == (None if None in counts else sum(counts))
