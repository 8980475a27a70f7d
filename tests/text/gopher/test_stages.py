"""Gopher's and FineWeb's rules: against plain Python over all of Unicode, rule by rule, and on broken input."""

# The alphabets are the point here:
# ruff: noqa: RUF001

import math
import sys

import filters as plain
import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.gopher import words as _page_characters
from longcrawl.text.gopher.pages import Asked, count_pages
from longcrawl.text.gopher.words import CHARACTERS, COLUMNS, NEWLINES, WORD_CHARACTERS, WORDS

RULES = [lc.text.GopherQuality(), lc.text.GopherRepetition(), lc.text.FineWebQuality()]
AWKWARD = (
    "abcABC xyz  \n\n\n.!?…#-*+•‣–'\"1²½٣\u00a0\u2003\u2028\x85\x1c\x0b\t\r\0"
    "é\u0301ÅΣσﬁ가각。！？؟।😀中文字ไทย\u200d\ufeff\U0010ffff"
)
texts = st.text(st.sampled_from(AWKWARD), max_size=80) | st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(AWKWARD), max_size=80
)
PIECES = "the The be to a b longer-word longer-wore wait... … # -"
pieces = st.sampled_from([*PIECES.split(), "\n", "\n\n", "\n \n"])
repetitive = st.lists(pieces, max_size=70).map(" ".join)


TERMINAL = plain.terminal_marks()


def values_of(stage, documents):
    table = pa.table({"text": pa.array(documents, pa.large_string())})
    return {check.rule: check.value.to_pylist() for check in stage.checks(table)}


def assert_equals_plain(documents):
    found = {}
    for stage in RULES:
        found |= values_of(stage, documents)
    for at, text in enumerate(documents):
        expected = plain.quality(text) | plain.repetition(text) | plain.line_rules(text, TERMINAL)
        assert {rule: found[rule][at] for rule in expected} == expected, text
        assert all(math.isfinite(found[rule][at]) for rule in expected)


@given(st.lists(texts, max_size=4))
@example(["", " ", "\n", "\n\n", "\0", "...", "…", ".", "\u2028", "a\n", "\na", "a\r\nb\r\n"])
@example(["•a\n- b\n-c\n– d\n* e\n*f\n+ g\n • h", "a...\nb…\nc ...  \n. . .\n....."])
@example(["x" * 7 + " " + "x" * 8 + " " + "x" * 7 + "y " + "x" * 8, "\0a a", "é" * 3 + " " + "é" * 4])
@settings(max_examples=settings.default.max_examples, deadline=None)  # the first call compiles the kernels
def test_every_rule_equals_plain_python(documents):
    assert_equals_plain(documents)


@given(repetitive)
@example("a b c d e f g h i j " * 2)
@example("same line\n\nsame line\nother\n same line ")
@example("one\ntwo\n\none\ntwo\n \t\n three\n\none\n two")
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_repetitions_equal_plain_python(document):
    assert_equals_plain([document])


@pytest.mark.slow
def test_long_documents_equal_plain_python():
    lines = [f"Line {number} of {number % 7} ab É\u0301 the end." for number in range(3000)]
    assert_equals_plain(["\n".join(lines), " ".join(lines), "é" * 50_000, "a b " * 5000, "\n" * 9999])


@pytest.mark.parametrize("times", [2, 8, 9, 255, 256, 257, 512])
def test_an_ngram_may_come_as_often_as_a_byte_counts(times):
    assert_equals_plain([" ".join(f"aa bb u{number}" for number in range(times))])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slices_and_chunks_are_read_where_they_start(kind):
    texts = ["zero zero", "The one and the other", None, "three\nthree", "four"]
    whole = pa.table({"id": list("abcde"), "text": pa.array(texts, kind)})
    chunked = pa.concat_tables([whole.slice(0, 2), whole.slice(2)])
    for stage in RULES:
        expected = stage.judge(whole)
        assert stage.judge(chunked) == expected
        assert stage.judge(whole.slice(1, 3)) == expected.slice(1, 3)
        assert stage.judge(whole.slice(5)).num_rows == 0


def test_null_and_empty_texts_have_defined_values():
    table = pa.table({"text": pa.array([None, "", " \n\t"], pa.string())})
    for stage in RULES:
        for check in stage.checks(table):
            expected = [0.0, 0.0, 2.0] if check.rule == "nothing" else [0.0, 0.0, 0.0]
            assert check.value.to_pylist() == expected, check.rule
    assert lc.text.GopherQuality().judge(table)["rule"].to_pylist() == ["min_words"] * 3
    assert lc.text.GopherRepetition()(table) == [True] * 3


def test_a_long_line_goes_through():
    text = "word " * 400_000 + "é" * 2_000_000
    found = count_pages(pa.array([text, "after it"], pa.large_string()), Asked(7))
    assert found[WORDS].tolist() == [400_001, 2]
    assert found[WORD_CHARACTERS].tolist() == [3_600_000, 7]
    assert found[CHARACTERS].tolist() == [4_000_000, 8]


def test_damaged_texts_are_one_sentence():
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))
    outside = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 2, 1, 2], np.int32)), pa.py_buffer(b"ab"))
    for texts in (broken, outside):
        for stage in RULES:
            with pytest.raises(StageError, match="column 'text' is damaged"):
                stage.judge(pa.table({"text": texts}))
    with pytest.raises(StageError, match="gopher_quality needs a column 'text' of strings, but it is int64"):
        lc.text.GopherQuality().judge(pa.table({"text": [1]}))
    with pytest.raises(StageError, match="needs a column 'text'"):
        lc.text.GopherQuality().judge(pa.table({"id": ["a"]}))


FINE = "The end of a story is what you have to be patient with. "


@pytest.mark.variants
@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ("min_words", FINE * 2, 26.0),
        ("max_words", FINE * 8000, 104_000.0),
        ("min_mean_word_length", "of to a b " * 20, 1.5),
        ("max_mean_word_length", "the of internationalisation " * 30, 25 / 3),
        ("max_hash_ratio", "the and #tag other " * 20, 0.25),
        ("max_ellipsis_ratio", "the and so... other " * 20, 0.25),
        ("max_bullet_lines", "- the whole point of being here\n" * 20, 1.0),
        ("max_ellipsis_lines", "the point of it goes on and on for some time...\nand that is that for now\n" * 8, 0.5),
        ("min_alphabetic_words", "the of 1234 5678 " * 20, 0.5),
        ("min_stop_words", "la vie est belle " * 20, 0.0),
    ],
)  # fmt: skip
def test_each_rule_of_quality_is_in_the_ledger_by_its_name(rule, text, value):
    verdict = lc.text.GopherQuality().judge(pa.table({"text": [text]})).to_pylist()[0]
    if rule == "max_mean_word_length":
        verdict = lc.text.GopherQuality(max_mean_word_length=8.0).judge(pa.table({"text": [text]})).to_pylist()[0]
    assert verdict["rule"] == rule
    assert verdict["value"] == pytest.approx(value)
    off = lc.text.GopherQuality(**{rule: None}).judge(pa.table({"text": [text]})).to_pylist()[0]
    assert off["rule"] != rule


def test_stop_words_are_counted_once_each_and_in_any_case():
    found = values_of(lc.text.GopherQuality(), ["the the the", "The AND tHe", "the, of"])
    assert found["min_stop_words"] == [1.0, 2.0, 1.0]
    own = lc.text.GopherQuality(stop_words=("und", "über"), min_stop_words=2)
    assert values_of(own, ["Und ÜBER und", "und"])["min_stop_words"] == [2.0, 1.0]


def distinct(count, start=0):
    """Return words of five characters, all different."""
    return " ".join(f"w{number:04d}" for number in range(start, start + count))


@pytest.mark.variants
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("max_duplicate_lines", "\n".join(["a", "a", "b", distinct(9), distinct(9, 50)])),
        ("max_duplicate_paragraphs", f"a\nb\n\na\nb\n\n{distinct(9)}\nc"),
        ("max_duplicate_line_characters", "\n".join([distinct(9)] * 2 + [distinct(9, 20 * n) for n in range(1, 6)])),
        (
            "max_duplicate_paragraph_characters",
            "\n\n".join(["\n".join([distinct(9), distinct(9, 9)])] * 2 + [distinct(9, 20 * n) for n in range(2, 10)]),
        ),
        *[(f"max_top_{n}gram", " ".join(f"{distinct(n)} {9999 - at}" for at in range(9))) for n in (2, 3, 4)],
        *[(f"max_duplicate_{n}grams", f"{distinct(n)} {distinct(40, 100)} {distinct(n)}") for n in range(5, 11)],
    ],
)
def test_each_rule_of_repetition_is_in_the_ledger_by_its_name(rule, text):
    names = [check.rule for check in lc.text.GopherRepetition().checks(pa.table({"text": ["a"]}))]
    others = dict.fromkeys(set(names) - {rule, "max_unspaced_letters"})
    table = pa.table({"text": [text, distinct(99)]})
    verdicts = lc.text.GopherRepetition(**others).judge(table)
    assert verdicts["rule"].to_pylist() == [rule, None]
    assert lc.text.GopherRepetition(**others, **{rule: None})(table) == [True, True]
    assert lc.text.GopherRepetition(**others, **{rule: verdicts["value"][0].as_py()})(table) == [True, True]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("min_terminal_lines", f"{distinct(9)}\n" * 9),
        ("max_short_lines", "Short.\n" * 9),
        ("max_later_line_characters", f"{distinct(30)}.\n" * 2),
        ("max_newline_ratio", "A-word-of-more-than-thirty-characters-1.\nA-word-of-more-than-thirty-characters-2.\n"),
    ],
)
def test_each_rule_of_fineweb_is_in_the_ledger_by_its_name(rule, text):
    verdict = lc.text.FineWebQuality().judge(pa.table({"text": [text]})).to_pylist()[0]
    assert verdict["rule"] == rule


def test_rows_have_a_column_for_every_name():
    counted = count_pages(pa.array(["a\nb"], pa.large_string()), Asked(7))
    assert counted.shape == (COLUMNS, 1)
    assert counted[NEWLINES].tolist() == [1]


UNSPACED = ["今日は良い天気ですね。東京都に行きます", "ฉันรักภาษาไทย ประเทศไทย", "我爱北京天安门", "plain words here"]


def test_a_text_without_spaces_is_not_one_giant_word():
    verdicts = lc.text.GopherRepetition().judge(pa.table({"text": UNSPACED})).to_pylist()
    assert [verdict["rule"] for verdict in verdicts] == ["max_unspaced_letters"] * 3 + [None]
    assert verdicts[2]["value"] == 1.0
    kept = lc.text.GopherRepetition(max_unspaced_letters=None)
    assert kept(pa.table({"text": UNSPACED})) == [True] * 4


def icu_words(text):
    """Count words as ICU cuts them, where a letter of a script without spaces is on either side of the cut."""
    from icu4py.breakers import WordBreaker

    unspaced = _page_characters.load_page_characters() & _page_characters.UNSPACED
    words = 0
    for chunk in text.split():
        before, at = "", 0
        for piece in WordBreaker(chunk, "und"):
            begins = unspaced[ord(piece[0])] or (before and unspaced[ord(before[-1])] and piece[0].isalnum())
            words += at == 0 or bool(begins)
            before, at = piece, at + len(piece)
    return words


def test_icu_segments_words():
    pytest.importorskip("icu4py", reason="icu4py is not installed")
    some = [*UNSPACED, "😀𠀀漢字 a", "mixed 东京tower 2020年", "ຂ້ອຍຮັກເຈົ້າ"]
    texts = pa.array(["x", *some, None], pa.large_string())
    expected = [*map(icu_words, some), 0]
    assert count_pages(texts.slice(1), Asked(0), words="icu")[WORDS].tolist() == expected
    assert expected[0] > 8
    assert expected[3] == 3


@given(st.lists(texts, max_size=3))
@example(["1", "\u200dท"])
@settings(deadline=None)
def test_icu_segments_any_text(documents):
    pytest.importorskip("icu4py", reason="icu4py is not installed")
    found = count_pages(pa.array(documents, pa.large_string()), Asked(0), words="icu")[WORDS].tolist()
    assert found == list(map(icu_words, documents))


def test_icu_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)
    with pytest.raises(StageError, match=r"pip install 'longcrawl\[segmentation\]'"):
        lc.text.GopherQuality(words="icu").prepare()


def test_rules_work_in_a_crawl():
    data = Dataset.from_dict({"id": ["a", "b"], "text": [FINE * 5, "of to a b " * 20]})
    crawl = lc.Crawl(data) | lc.text.GopherQuality()
    assert crawl.data["id"][:] == ["a"]
    assert str(crawl.why("b")) == "b: removed at gopher_quality, rule min_mean_word_length: 1.5 against 3"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"min_words": -1}, "gopher_quality.min_words must be 0 or more, or null to switch it off, got -1"),
        ({"max_bullet_lines": math.nan}, "GopherQuality.max_bullet_lines takes .*, got nan"),
        ({"max_words": 20}, "keeps nothing: min_words 50 is above max_words 20"),
        ({"min_stop_words": 9}, "keeps nothing: min_stop_words is 9 of 8 stop words"),
        ({"stop_words": ["of the"]}, "stop_words takes single words, got 'of the'"),
        (
            {"language": "xx", "languages": "gopher", "on_unknown_language": "error"},
            "no thresholds for the language 'xx'",
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_before_any_document(fields, sentence):
    with pytest.raises(StageError, match=sentence):
        lc.text.GopherQuality(**fields).prepare()


def test_rules_are_the_same_in_every_batch(tmp_path):
    (tmp_path / "table.yaml").write_text("version: 1\nlanguages: {it: {max_words: 9}, de: {stop_words: [und]}}")
    stage = lc.text.GopherQuality(max_words=None, languages=str(tmp_path / "table.yaml"))
    data = Dataset.from_dict({"id": list("abc"), "text": [FINE] * 3, "language": ["de", "de", "it"]})
    values = [lc.text.rule_values(data.select([at]), stage) for at in range(3)]
    assert pa.concat_tables(values) == lc.text.rule_values(data, stage)
    assert stage.judge(data.with_format("arrow")[:])["rule"].to_pylist() == ["min_words"] * 3


def test_a_language_column_of_lists_is_one_sentence():
    table = pa.table({"text": ["a"], "language": [["en"]]})
    with pytest.raises(StageError, match="needs a column 'language' of strings, but it is list"):
        lc.text.GopherQuality(languages="gopher").judge(table)
