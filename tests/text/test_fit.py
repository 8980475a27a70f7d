"""Thresholds fitted to a sample: the bounds, what is reported, and the table that is read back."""

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError

QUALITY = lc.text.GopherQuality()
LENGTHS = ["min_mean_word_length", "max_mean_word_length"]


def sample(count: int = 60, languages: tuple = ("de", "en")) -> pa.Table:
    chance = random.Random(5)
    rows = []
    for number in range(count):
        words = ["".join(chance.choices("abcdefghä", k=chance.randint(1, 12))) for _ in range(chance.randint(3, 40))]
        text = " ".join([*words, *chance.sample(["und", "the", "of", "der", "3"], 3)])
        rows.append({"id": f"d{number}", "text": text, "language": languages[number % len(languages)]})
    return pa.Table.from_pylist(rows)


def mean_lengths(table: pa.Table, language: str) -> list[float]:
    texts = [row["text"] for row in table.to_pylist() if row["language"] == language]
    return [sum(map(len, text.split())) / len(text.split()) for text in texts]


@pytest.mark.parametrize("keep", [0.5, 0.7, 0.9, 0.99, 1.0])
def test_a_bound_is_the_tightest_that_keeps_the_share(keep):
    table = sample()
    fitted = lc.text.fit_thresholds(table, QUALITY, keep, rules=LENGTHS, min_documents=10)
    for language, fields in fitted.languages.items():
        ordered = sorted(mean_lengths(table, language))
        needed = math.ceil(Fraction(str(keep)) * len(ordered))
        assert fields["max_mean_word_length"] == pytest.approx(ordered[needed - 1], abs=0.001)
        assert fields["min_mean_word_length"] == pytest.approx(ordered[-needed], abs=0.001)
        assert sum(length <= fields["max_mean_word_length"] for length in ordered) >= needed
        assert sum(length >= fields["min_mean_word_length"] for length in ordered) >= needed
        inside = [fields["min_mean_word_length"] <= each <= fields["max_mean_word_length"] for each in ordered]
        assert fitted.kept[language] == pytest.approx(np.mean(inside))


@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=8), min_size=1, max_size=30), st.floats(0.01, 1))
def test_every_rule_keeps_at_least_the_share_by_itself(documents, keep):
    texts = [" ".join("a" * length for length in lengths) for lengths in documents]
    table = pa.table({"text": texts, "language": ["de"] * len(texts)})
    fields = lc.text.fit_thresholds(table, QUALITY, keep, min_documents=1).languages["de"]
    own = {check.rule: check for check in QUALITY.checks(table)}
    for rule, bound in fields.items():
        values = own[rule].value.to_numpy()
        passes = values <= bound if rule.startswith("max_") else values >= bound
        assert passes.sum() >= keep * len(texts) - 1e-6


def test_what_is_fitted_is_read_back_and_keeps_as_it_says(tmp_path):
    table = sample(languages=("deu_Latn", "en"))
    fitted = lc.text.fit_thresholds(table, QUALITY, 0.9, stop_words=4, min_documents=10)
    path = tmp_path / "made" / "fitted.yaml"
    fitted.save(path)
    assert path.read_text("utf-8").startswith(
        "# Fitted for gopher_quality by longcrawl.text.fit_thresholds, keep 0.9; documents: deu_Latn 30, en 30.\n"
    )
    assert lc.text.read_languages(str(path)) == fitted.languages
    loose = lc.text.GopherQuality(
        languages=str(path), on_unknown_language="error", max_unspaced_letters=None, min_stop_words=None
    )
    for language, short in (("deu_Latn", "de"), ("en", "eng")):
        texts = [row["text"] for row in table.to_pylist() if row["language"] == language]
        kept = loose(pa.table({"text": texts, "language": [short] * len(texts)}))
        assert np.mean(kept) == pytest.approx(fitted.kept[language])


def test_stop_words_that_yaml_takes_for_truth_are_read_back(tmp_path):
    table = pa.table({"text": ["no on yes y null ~ 1 'quoted' a: #"] * 3, "language": ["no"] * 3})
    fitted = lc.text.fit_thresholds(table, QUALITY, stop_words=9, min_documents=1)
    fitted.save(tmp_path / "fitted.yaml")
    assert lc.text.read_languages(str(tmp_path / "fitted.yaml")) == fitted.languages
    assert set(fitted.languages["no"]["stop_words"]) == {"no", "on", "yes", "y", "null", "'quoted'", "a:"}


def test_stop_words_are_the_words_with_a_letter_in_most_documents():
    texts = ["Der 1 - der der und", "und DER zu zu zu zu", "und 1 1 - an", "und an der"]
    table = pa.table({"text": texts, "language": ["de"] * 4})
    fitted = lc.text.fit_thresholds(table, QUALITY, stop_words=4, min_documents=1)
    # und: 4 documents; der: 3; an: 2; zu: 1. Neither 1 nor - has a letter.
    assert fitted.languages["de"]["stop_words"] == ("und", "der", "an", "zu")
    assert "min_stop_words" not in fitted.languages["de"]
    one_each = pa.table({"text": ["b a c a c"], "language": ["de"]})
    fitted = lc.text.fit_thresholds(one_each, QUALITY, stop_words=3, min_documents=1)
    assert fitted.languages["de"]["stop_words"] == ("a", "c", "b")


def test_stop_words_are_split_as_the_stage_splits():
    table = pa.table({"text": ["我的書 我的 abc"], "language": ["zh"]})
    stage = lc.text.GopherQuality(words="characters")
    fitted = lc.text.fit_thresholds(table, stage, stop_words=2, min_documents=1)
    assert fitted.languages["zh"]["stop_words"] == ("我", "的")


@pytest.mark.slow
def test_it_does_not_matter_how_the_documents_come():
    table = sample()
    backwards = table.take(list(range(table.num_rows))[::-1])
    data = Dataset(table)
    forms = [table, backwards, data, data.select(range(59, -1, -1)), lc.Crawl(data), data.to_iterable_dataset()]
    fits = [
        lc.text.fit_thresholds(form, QUALITY, 0.8, stop_words=5, min_documents=10, batch_size=size)
        for form in forms
        for size in (1, 7, 200)
    ]
    assert all(each == fits[0] and repr(each) == repr(fits[0]) for each in fits)


@pytest.mark.parametrize("stage", [lc.text.GopherRepetition(), lc.text.FineWebQuality()])
def test_every_rule_set_can_be_fitted(stage):
    fields = lc.text.fit_thresholds(sample(), stage, min_documents=10).languages["de"]
    assert set(fields) == {check.rule for check in stage.checks(sample())} - {"max_unspaced_letters"}


def test_rules_that_are_off_are_not_fitted_and_others_only_if_asked_for():
    fields = lc.text.fit_thresholds(sample(), lc.text.GopherQuality(max_words=None), min_documents=10).languages["de"]
    assert "max_words" not in fields
    assert "min_stop_words" in fields
    asked = lc.text.fit_thresholds(sample(), QUALITY, rules=["max_unspaced_letters"], min_documents=10)
    assert asked.languages["en"] == {"max_unspaced_letters": 0}


def test_stop_words_can_be_found_alone():
    fitted = lc.text.fit_thresholds(sample(), QUALITY, rules=[], stop_words=1, min_documents=10)
    assert list(fitted.languages["de"]) == ["stop_words"]
    assert fitted.kept["de"] == 1


def test_languages_with_too_few_documents_are_reported():
    table = sample(61, ("de", "en", None, "it", "de"))
    fitted = lc.text.fit_thresholds(table, QUALITY, rules=LENGTHS, min_documents=13)
    assert list(fitted.languages) == ["de"]
    assert fitted.documents == {"de": 25}
    assert (fitted.too_few, fitted.without_language) == ({"en": 12, "it": 12}, 12)
    assert repr(fitted).splitlines()[-1] == (
        "not fitted: fewer than 13 documents (en 12, it 12) and 12 without a language"
    )
    asked = lc.text.fit_thresholds(table, QUALITY, languages=["eng", "fr"], rules=LENGTHS, min_documents=12)
    assert (asked.documents, asked.too_few) == ({"eng": 12}, {"fr": 0})


def test_names_of_one_language_are_taken_together():
    table = sample(60, ("deu", "de-AT", "de", "sr-Latn", "sr-Cyrl", "?"))
    fitted = lc.text.fit_thresholds(table, QUALITY, rules=LENGTHS, min_documents=1)
    assert fitted.documents == {"?": 10, "de": 30, "sr-Cyrl": 10, "sr-Latn": 10}


def test_the_language_of_the_stage_is_that_of_all_documents():
    table = sample().drop_columns(["language"])
    stage = lc.text.GopherQuality(language="de", languages="gopher")
    assert lc.text.fit_thresholds(table, stage, min_documents=1).documents == {"de": 60}


def test_it_prints_as_a_table():
    table = pa.table({"text": ["ein Wort und", "zwei"] * 600, "language": ["de", "de", "it", "it"] * 300})
    fitted = lc.text.fit_thresholds(table, QUALITY, 1, rules=["min_words", *LENGTHS], stop_words=2)
    assert repr(fitted).splitlines() == [
        "gopher_quality, keep 1",
        "                         de     it",
        "documents               600    600",
        "pass all              1.000  1.000",
        "min_words                 1      1",
        "min_mean_word_length  3.333  3.333",
        "max_mean_word_length      4      4",
        "stop words of de: ein, und",
        "stop words of it: ein, und",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stage": lc.text.MinChars(3)}, "takes a rule set such as lc.text.GopherQuality()"),
        ({"documents": ["a"]}, "documents must be a datasets.Dataset, a crawl or an Arrow table, got list"),
        ({"keep": 0}, "keep must be a share above 0 and up to 1, such as 0.99, got 0"),
        ({"keep": 99}, "keep must be a share above 0"),
        ({"min_documents": 0}, "min_documents and batch_size must be at least 1, got 0"),
        ({"batch_size": -1}, "min_documents and batch_size must be at least 1, got -1"),
        ({"rules": ["max_length"]}, "measures no rule 'max_length'; it measures: max_unspaced_letters, min_words"),
        ({"rules": ["min_stop_words"], "stop_words": 3}, "cannot be fitted together with the words that it counts"),
        ({"stage": lc.text.FineWebQuality(), "stop_words": 3}, "fine_web_quality has no stop words"),
        ({"documents": sample().drop_columns(["language"])}, "needs a column 'language'"),
        ({"documents": sample().drop_columns(["text"])}, "needs a column 'text'"),
    ],
)
def test_a_wrong_setting_is_refused_with_one_sentence(settings, said):
    with pytest.raises(StageError) as error:
        lc.text.fit_thresholds(**{"documents": sample(), "stage": QUALITY} | settings)
    assert said in str(error.value)


def test_nothing_fitted_is_not_saved(tmp_path):
    fitted = lc.text.fit_thresholds(sample(), QUALITY)
    assert repr(fitted) == "gopher_quality, keep 0.99\nnot fitted: fewer than 100 documents (de 30, en 30)"
    with pytest.raises(StageError, match=r"no language was fitted, fewer than 100 documents \(de 30, en 30\): add"):
        fitted.save(tmp_path / "fitted.yaml")
    with pytest.raises(StageError, match="no language was fitted, there are no documents"):
        lc.text.fit_thresholds(sample().slice(0, 0), QUALITY).save(tmp_path / "fitted.yaml")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_shipped_table_keeps_what_its_comment_says(real_data):
    """At least nine in ten documents of 50 words; English fields drop most that are not English."""
    release = str(real_data / "rpv2")
    for language in ("de", "es", "fr", "it"):
        crawl = lc.open("redpajama-v2", data_dir=release, languages=[language])
        long = crawl.data.filter(lambda text: len(text.split()) >= 50, input_columns="text")
        kept = [np.mean(lc.text.GopherQuality(languages=each)(long[:])) for each in ("gopher", None)]
        assert kept[0] > 0.9
        assert kept[1] < 0.3
