"""Every rule's value of every document, and the picture of them."""

import sys

import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict

import longcrawl as lc
from longcrawl.errors import StageError

TABLE = pa.table({"id": ["a", "b", "c"], "text": ["one two three", "a b", None]})


@pytest.mark.variants
@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: Dataset(TABLE),
        lambda: lc.Crawl(Dataset(TABLE)),
        # It imports torch, which each process would hold that only collects tests.
        lambda: Dataset(TABLE).to_iterable_dataset(),
    ],
    ids=["table", "dataset", "crawl", "stream"],
)
def test_values_have_a_column_per_rule(make):
    values = lc.text.rule_values(make(), lc.text.GopherQuality(max_words=None))
    assert values["id"].to_pylist() == ["a", "b", "c"]
    assert values["min_words"].to_pylist() == [3.0, 2.0, 0.0]
    assert "max_words" not in values.column_names
    assert values.schema.field("min_mean_word_length").type == pa.float64()


def test_no_documents_give_the_columns():
    values = lc.text.rule_values(Dataset(TABLE.slice(0, 0)), lc.text.MinChars(3))
    assert values.num_rows == 0
    assert values.column_names == ["id", "min_chars"]


def test_a_stage_that_does_not_judge_is_one_sentence():
    with pytest.raises(StageError, match=r"Truncate\(n=4\) does not judge documents"):
        lc.text.rule_values(TABLE, lc.tokens.Truncate(4))


@pytest.mark.slow
def test_a_picture_has_a_panel_per_rule_and_says_what_it_removes(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    stage = lc.text.GopherQuality(min_words=3)
    figure = lc.report.plot_rules(lc.Crawl(Dataset(TABLE)), stage)
    titles = {axes.get_title() for axes in figure.axes}
    assert len(titles) == len(stage.checks(TABLE))
    assert {"min_words: 2 of 3", "max_words: 0 of 3", "min_mean_word_length: 2 of 3"} <= titles
    figure.savefig(tmp_path / "rules.png")
    assert (tmp_path / "rules.png").stat().st_size > 10_000
    with pytest.raises(StageError, match="no document has a value to draw"):
        lc.report.plot_rules(TABLE.slice(0, 0), stage)


def test_a_missing_matplotlib_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(StageError, match=r"pip install 'longcrawl\[plots\]'"):
        lc.report.plot_rules(TABLE, lc.text.MinChars(3))


def test_what_is_no_documents_is_one_sentence():
    stage = lc.text.MinChars(3)
    with pytest.raises(StageError, match="documents must be a datasets.Dataset, a crawl or an Arrow table, got list"):
        lc.text.rule_values(["a"], stage)
    with pytest.raises(StageError, match=r"these are several splits; choose one: documents\['train'\]"):
        lc.text.rule_values(DatasetDict(train=Dataset(TABLE)), stage)


@pytest.mark.slow
def test_a_picture_of_thresholds_by_language_counts_what_they_remove():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    table = TABLE.append_column("language", pa.array(["en", "de", None]))
    stage = lc.text.GopherQuality(min_words=3, languages="gopher")
    titles = {axes.get_title() for axes in lc.report.plot_rules(table, stage).axes}
    assert "min_words: 2 of 3" in titles
