"""Classifiers that are trained here: what they tell apart, and what cannot be learnt."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import StageError
from longcrawl.text.classifiers import score_texts
from longcrawl.text.fasttext import read_model


def probabilities(path, contents, labels=None):
    model = read_model(str(path))
    return score_texts(model, pa.array(contents, pa.large_string()), labels or range(len(model.labels)))


# -------------------- training one's own

SEA, LUCK = ["whale", "ship", "sea", "captain", "harpoon", "sail"], ["casino", "win", "bonus", "spin", "card", "luck"]


BOTH = ["the", "a", "of", "and", "to", "in", "that", "it", "was"]


def topic(words, count, seed=0):
    """Return texts with common words, and some of a topic."""
    chance = random.Random(seed)
    return [" ".join(chance.choices([*words, *BOTH], k=25)) + f" {number}" for number in range(count)]


def columns(contents):
    return pa.table({"text": contents})


def test_a_trained_classifier_tells_two_topics_apart_whatever_the_order(tmp_path):
    good, bad = topic(SEA, 60), topic(LUCK, 50)
    found = lc.text.train_classifier(columns(good), columns(bad), tmp_path / "a.bin", dimensions=4, epochs=40)
    assert (found.trained, found.held_out, found.labels) == ((54, 45), (6, 5), ("good", "bad"))
    assert (found.auc, found.at(0.5)) == (1.0, (0.5, 1.0, 1.0, 0.0))
    assert "held out, AUC 1.0000, score of good" in str(found)
    random.Random(1).shuffle(good)
    parts = Dataset.from_dict({"text": bad[::-1]}).to_iterable_dataset()
    again = lc.text.train_classifier(columns(good), parts, tmp_path / "b.bin", dimensions=4, epochs=40)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()
    assert replace(again, path=found.path) == found
    other = lc.text.train_classifier(columns(good), columns(bad), tmp_path / "c.bin", dimensions=4, epochs=40, seed=1)
    assert (tmp_path / "c.bin").read_bytes() != (tmp_path / "b.bin").read_bytes()
    assert other.auc == 1.0
    new = topic(SEA, 30, seed=5) + topic(LUCK, 30, seed=6)
    kept = lc.text.FastTextClassifier(str(tmp_path / "a.bin"), "good", at_least=0.5)(columns(new))
    assert kept["text"].to_pylist() == new[:30]


@pytest.mark.variants
@pytest.mark.parametrize("more", [{}, {"word_ngrams": 1}, {"characters": (2, 3), "word_ngrams": 3}])
def test_fasttext_reads_a_trained_model(tmp_path, more):
    fasttext = pytest.importorskip("fasttext")
    path, contents = tmp_path / "m.bin", topic(SEA, 20) + topic(LUCK, 30) + ["unknown"]
    lc.text.train_classifier(columns(contents[:20]), columns(contents[20:]), path, dimensions=3, epochs=5, **more)
    peer = fasttext.load_model(str(path))
    for text, (good,) in zip(
        contents, probabilities(path, contents, [read_model(str(path)).labels.index("good")]), strict=True
    ):
        assert {name: score for score, name in peer.f.predict(text + "\n", -1, 0.0, "strict")}["__label__good"] == good


def test_texts_of_both_sets_are_left_out_and_counted(tmp_path):
    good, bad = topic(SEA, 12), topic(LUCK, 12)
    more = [good[0], *bad[:2], "", None, "__label__x"]
    settings = {"dimensions": 2, "epochs": 1}
    found = lc.text.train_classifier(columns(good + more), columns(bad), tmp_path / "a.bin", **settings)
    assert (found.in_both, found.repeated, found.without_text) == (2, 1, 3)
    assert (sum(found.trained), sum(found.held_out)) == (19, 3)
    assert "in both, left out: 2\nrepeated: 1\nwithout text: 3" in str(found)
    lc.text.train_classifier(columns(good), columns(bad[2:]), tmp_path / "b.bin", **settings)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


@pytest.mark.parametrize(
    ("good", "more", "sentence"),
    [
        ([], {}, "'good' has 0 documents with text of its own: at least two are needed"),
        (["x", "x", " "], {}, "'good' has 1 documents with text of its own: at least two are needed"),
        (topic(LUCK, 9), {}, "'good' has 0 documents with text of its own, besides 9 that are in both sets: at"),
        (["a", "b"], {"held_out": 1.0}, "held_out must be a share such as 0.1"),
        (["a", "b"], {"labels": ("x", "x")}, "labels must be two different words"),
        (["a", "b"], {"word_ngrams": 0}, "word_ngrams must be 1 to 64"),
        (["a", "b"], {"labels": ("x", " y")}, "labels must be two different words"),
        (["a", "b"], {"labels": ("x", "y\0z")}, "labels must be two different words"),
        (["a", "b"], {"labels": (1, 2)}, "labels must be two different words"),
        (["a", "b"], {"buckets": 0}, "dimensions and min_count must be 1 or more, and buckets 1 to 100,000,000"),
        (["a", "b"], {"epochs": 0}, "epochs must be 1 or more, got 0"),
    ],
)
def test_sets_that_teach_nothing_are_one_sentence(tmp_path, good, more, sentence):
    bad = columns(topic(LUCK, 9))
    with pytest.raises(StageError, match=re.escape(sentence)):
        lc.text.train_classifier(pa.table({"text": pa.array(good, pa.string())}), bad, tmp_path / "m.bin", **more)
    assert not (tmp_path / "m.bin").exists()


def test_a_model_is_not_written_over_another(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"mine")
    with pytest.raises(StageError, match=r"m.bin exists already: choose another file"):
        lc.text.train_classifier(columns(["a", "b"]), columns(["c", "d"]), tmp_path / "m.bin")
    with pytest.raises(StageError, match="is a folder: choose a file"):
        lc.text.train_classifier(columns(["a", "b"]), columns(["c", "d"]), Path(tmp_path))


def test_the_command_trains_of_folders_and_prints_what_the_model_is_worth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, words in (("good", SEA), ("bad", LUCK), ("empty", ())):
        Path(name).mkdir()
        for number, text in enumerate(topic(words, 12) if words else ()):
            Path(name, f"{number}.txt").write_text(text)
    asked = CliRunner().invoke(app, ["train-classifier", "good", "bad", "--out", "m.bin", "--epochs", "3"])
    assert asked.exit_code == 0, asked.output
    assert re.search(r"learnt from +10 +10\nheld out +2 +2\n", asked.output)
    assert re.search(r"\n0.5 +\S+ % +\S+ % +\S+ %\n", asked.output)
    kept = (lc.open("good") | lc.text.FastTextClassifier("m.bin", "good")).data
    assert len(kept["quality"]) == 12
    asked = CliRunner().invoke(app, ["train-classifier", "good", "empty", "--out", "n.bin"])
    assert re.match(r"'empty' has no documents, judging by its file names: ", str(asked.exception))
    assert not Path("n.bin").exists()
