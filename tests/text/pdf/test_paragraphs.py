"""Paragraphs over lines and pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.pdf import paragraphs
from longcrawl.text.pdf.lines import Line
from longcrawl.text.pdf.paragraphs import _WORD, Paragraphs, _words


def lines_of(*texts: str, width: float = 300, top: float = 700, size: float = 10, left: float = 50) -> list[Line]:
    """Return lines one below the other; a text that ends with | is not as long as the others."""
    return [
        Line(text.rstrip("|"), left, top - 12 * number, left + (width if text[-1:] != "|" else width / 2),
             top - 12 * number + size)
        for number, text in enumerate(texts)
    ]  # fmt: skip


def pages_of(*pages: list[Line], hyphens: str = "join", page_break: str = "\n\n") -> list[str]:
    joined = Paragraphs(hyphens, page_break)
    texts = []
    for page in pages:
        joined.count_words(page)
        texts += joined.add(page)
    return [*texts, *joined.end()]


def text_of(*texts: str, **settings) -> str:
    return "".join(pages_of(lines_of(*texts), **settings))


def test_full_lines_continue_and_short_ones_end_a_paragraph():
    assert text_of("the first line", "goes on|", "the next one") == "the first line goes on\nthe next one"


def test_a_gap_separates_paragraphs():
    first, second = lines_of("one line"), lines_of("another", top=650)
    assert pages_of(first + second) == ["one line\n\nanother"]


def test_another_size_begins_a_line():
    assert pages_of(lines_of("A heading") + lines_of("small", top=688, size=7)) == ["A heading\nsmall"]


@pytest.mark.parametrize("marker", ["• item", "1. item", "(12) item", "b) item", "\u2013 item"])
def test_list_items_begin_a_line(marker):
    assert text_of("a full line", marker) == f"a full line\n{marker}"


def test_cjk_lines_join_without_a_space():
    assert text_of("日本語の文章", "が続く") == "日本語の文章が続く"
    assert text_of("日本語の文章", "and Latin") == "日本語の文章 and Latin"


@pytest.mark.parametrize("hyphens", ["join", "keep"])
def test_a_korean_line_may_end_within_a_word(hyphens):
    seen = "우리는 나무를 심고 나무는 자라고|", "나무를 보고 우리는 쉬고|"
    assert text_of(*seen, "심고 나", "무는 자라고 우리는", "나무를 보고|", hyphens=hyphens).splitlines()[2:] == [
        "심고 나무는 자라고 우리는 나무를 보고"
    ]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["an exam-", "ple of it|"], "an example of it"),
        (["an exam\u00ad", "ple of it|"], "an example of it"),
        (["an exam\u2010", "ple of it|"], "an example of it"),
        (["the Franco-", "German border|"], "the Franco-German border"),
        (["a well-known well-", "known case|"], "a well-known well-known case"),
        (["pages 10-", "20 of it|"], "pages 10- 20 of it"),
        (["a dash -", "here it is|"], "a dash - here it is"),
    ],
)
def test_hyphens_at_line_ends(texts, expected):
    assert text_of(*texts) == expected


def test_hyphens_are_kept_on_demand():
    assert text_of("an exam-", "ple", hyphens="keep") == "an exam- ple"


def test_a_word_continues_on_the_next_page():
    assert pages_of(lines_of("an exam-"), [], lines_of("ple|")) == ["an exam", "", "ple"]


def test_a_paragraph_continues_on_the_next_page_or_a_break_is_put_behind_the_page():
    assert pages_of(lines_of("goes"), lines_of("on|")) == ["goes ", "on"]
    assert pages_of(lines_of("it", "ends|"), [], lines_of("new")) == ["it ends\n\n", "", "new"]
    assert pages_of(lines_of("it", "ends|"), lines_of("new"), page_break="\f") == ["it ends\f", "new"]


def test_the_next_column_continues_a_paragraph():
    left = lines_of("one", "two", "three", "four", "five")
    right = lines_of("six|", left=400)
    assert pages_of(left + right) == ["one two three four five six"]


def test_pieces_of_a_row_are_one_line():
    row = [Line("name", 50, 700, 80, 710), Line("value", 300, 700, 330, 710)]
    assert pages_of(row) == ["name value"]


@given(st.lists(st.lists(st.sampled_from(["word", "exam-", "ple", "short|", "• item", "字"]), max_size=4), max_size=6))
def test_each_page_has_a_text_and_no_letter_is_lost(pages):
    made = [lines_of(*page) for page in pages]
    found = pages_of(*made)
    assert len(found) == len(pages)
    letters = [each for page in pages for text in page for each in text if each.isalpha()]
    assert [each for each in "".join(found) if each.isalpha()] == letters


@given(st.text("ab- -1_.\n\x1c\t\u00e9", max_size=20))
def test_words_are_those_of_the_expression(text):
    assert sorted(_words(text)) == sorted(_WORD.findall(text))


@given(
    st.lists(st.lists(st.sampled_from(["a co-op", "coop", "co-", "op|", "coop co-op", "Co-"]), max_size=4), max_size=6)
)
def test_words_counted_at_once_decide_as_those_counted_on_demand(pages):
    made = [lines_of(*page) for page in pages]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paragraphs, "_MOST_ON_DEMAND", 0)
        at_once = pages_of(*made)
    assert pages_of(*made) == at_once


def test_words_of_lines_with_other_letters_are_counted_as_well():
    texts = ["na\u00efve well-known", "a well-known caf\u00e9 is well-", "known|"]
    assert text_of(*texts) == "na\u00efve well-known a well-known caf\u00e9 is well-known"
