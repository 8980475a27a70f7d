"""Filters by size and language."""

import json
import string

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError


def naive_words(text: str) -> int:
    """RedPajama-V2's normalisation, step by step, then split."""
    kept = "".join(character for character in text if character not in string.punctuation)
    return len(kept.lower().strip().split())


def counted_words(texts: list[str | None]) -> list[float]:
    checks = lc.text.MinWords(1).checks(pa.table({"text": pa.array(texts, pa.string())}))
    return checks[0].value.to_pylist()


CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\x1c\x85\u3000-_aä漢😀")


@given(st.lists(st.none() | st.text(CHARACTERS)))
def test_words_are_counted_as_redpajama_v2_does(texts):
    assert counted_words(texts) == [naive_words(text or "") for text in texts]


@pytest.mark.slow
def test_words_equal_the_release_signal_on_real_documents(real_data):
    from longcrawl.core.sources import BadFiles, make_source

    source = make_source("redpajama-v2", {"data_dir": str(real_data / "rpv2"), "languages": ["en", "de", "fr"]})
    compared = 0
    for part in source.splits()["train"]:
        for table in source.read(part, BadFiles()):
            signals = table["signals"].combine_chunks()
            for words, row in zip(counted_words(table["text"].to_pylist()), signals.to_pylist(), strict=True):
                assert row is None or words == row["rps_doc_word_count"]
                compared += row is not None
    assert compared > 2000


def test_min_words_takes_the_signal_where_there_is_one_and_counts_where_there_is_none():
    signals = pa.array([{"rps_doc_word_count": 3.0}, {"rps_doc_word_count": None}, None])
    table = pa.table({"id": ["a", "b", "c"], "text": ["irrelevant", "one two three", "one"], "signals": signals})
    verdicts = lc.text.MinWords(3).judge(table).to_pylist()
    assert [verdict["rule"] for verdict in verdicts] == [None, None, "min_words"]
    assert verdicts[2] == {"rule": "min_words", "value": 1.0, "threshold": 3.0}


def test_min_chars_counts_code_points_and_null_is_empty():
    table = pa.table({"id": ["a", "b", "c"], "text": ["日本語", "ab", None]})
    assert [v["value"] for v in lc.text.MinChars(3).judge(table).to_pylist()] == [None, 2.0, 0.0]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans(), st.integers(0, 40))
def test_min_bytes_measures_what_the_tokenizer_would_see(text, ascii_only, least):
    stage = lc.text.MinBytes(least, json_escaped=True, ensure_ascii=ascii_only)
    seen = len(json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode())
    verdict = stage.judge(pa.table({"id": ["a"], "text": [text]})).to_pylist()[0]
    assert (verdict["rule"] is None) == (seen >= least)
    if verdict["rule"]:
        assert verdict["value"] == seen


def test_language_keeps_what_is_named_and_drops_the_unknown():
    table = pa.table({"id": ["a", "b", "c"], "language": ["en", "de", None]})
    assert lc.text.Language(("en", "de"))(table) == [True, True, False]
    with pytest.raises(StageError, match=r"list languages"):
        lc.text.Language(())


@pytest.mark.parametrize(
    ("keep", "language", "kept"),
    [
        ("en", "eng_Latn", True),
        ("en", "en-GB", True),
        ("eng", "EN", True),
        ("fra_Latn", "fr", True),
        ("zh", "cmn_Hans", True),
        ("srp_Cyrl", "sr-Latn", False),
        ("no", "nn", False),
        ("en", "english", False),
        ("english", "english", True),
        ("en", "", False),
    ],
)
def test_a_language_has_several_names(keep, language, kept):
    table = pa.table({"language": [language, None, "de"]})
    assert lc.text.Language((keep,))(table) == [kept, False, False]
    assert lc.text.Language((keep, "deu"))(table) == [kept, False, True]


@pytest.mark.parametrize("stage", [lc.text.MinWords(1), lc.text.MinChars(1), lc.text.MinBytes(1), lc.text.Language()])
def test_filters_take_an_empty_table(stage):
    empty = pa.schema([("id", pa.string()), ("text", pa.large_string()), ("language", pa.string())]).empty_table()
    assert stage.judge(empty).num_rows == 0
