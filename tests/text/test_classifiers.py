"""Classifiers: scores equal to fastText's and transformers' own, columns, thresholds, fits, and what is damaged."""

# The alphabets are the point here:

import json
import pickle
import random
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.io.files import content_digest
from longcrawl.run.recipe import load_recipe
from longcrawl.text.classifiers import score_texts
from longcrawl.text.fasttext import read_model

WORDS = ["the", "boat", "Boot", "船", "harbour", "é", "e\u0301", "</s", "label", "x" * 40, "船" * 9, "-", "\u3000", "8"]


def table(*contents, **more):
    return pa.table({"id": [f"d{number}" for number in range(len(contents))], "text": list(contents), **more})


def probabilities(path, contents, labels=None):
    model = read_model(str(path))
    return score_texts(model, pa.array(contents, pa.large_string()), labels or range(len(model.labels)))


# -------------------- columns, thresholds, line ends


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_model):
    return str(write_model(tmp_path_factory.mktemp("m") / "model.bin", 3, "softmax", word_ngrams=2))


def test_several_labels_have_columns_and_rules_of_their_own(model):
    contents = [f"{one} {other}" for one in WORDS for other in WORDS]
    stage = lc.text.FastTextClassifier(model, ("en", "de"), at_least={"de": 0.2, "en": 0.1}, column="q")
    edited, checks = stage.edit(table(*contents))
    assert edited.column_names == ["id", "text", "q_en", "q_de"]
    assert [check.rule for check in checks] == ["at_least_en", "at_least_de"]
    both = probabilities(model, contents, [0, 1]).astype(float)
    assert np.array_equal(np.stack([edited["q_en"], edited["q_de"]], axis=1), both)
    crawl = lc.Crawl(Dataset(table(*contents))) | stage
    kept = (both >= [0.1, 0.2]).all(axis=1)
    assert 0 < kept.sum() < len(kept)
    assert crawl.data["id"] == [f"d{number}" for number in np.flatnonzero(kept)]
    for number in np.flatnonzero(~kept)[:5]:
        reason = crawl.why(f"d{number}")
        place = 0 if both[number, 0] < 0.1 else 1
        assert (reason.rule, reason.value, reason.threshold) == (
            ("at_least_en", both[number, 0], 0.1),
            ("at_least_de", both[number, 1], 0.2),
        )[place]
    assert lc.text.FastTextClassifier(model, "en").edit(table("the"))[1] == []


def test_a_fraction_of_the_documents_stays_whatever_their_order(model, tmp_path):
    contents = [" ".join(random.Random(seed).choices(WORDS, k=9)) + f" w{seed}" for seed in range(200)]
    scores = probabilities(model, contents, [0])[:, 0].astype(float)
    stage = lc.text.FastTextClassifier(model, "en", top_fraction=0.1, train_documents=None)
    rows = table(*contents)
    fitted = stage.fit([rows.slice(100), rows.slice(0, 100)], str(tmp_path))
    assert fitted == replace(stage, at_least=float(np.sort(scores)[-20]), top_fraction=None)
    crawl = lc.Crawl(Dataset(rows)) | stage
    assert crawl.data["id"] == [f"d{number}" for number in np.flatnonzero(scores >= np.sort(scores)[-20])]
    lost = int(np.argmin(scores))
    assert crawl.why(f"d{lost}").value == scores[lost]
    assert crawl.why(f"d{lost}").threshold == fitted.at_least
    both = lc.text.FastTextClassifier(model, ("en", "de"), {"en": 0.3}, {"de": 0.5}).fit([rows], str(tmp_path))
    assert both.at_least == {"en": 0.3, "de": float(np.sort(probabilities(model, contents, [1])[:, 0])[-100])}
    with pytest.raises(StageError, match="has no threshold yet: call stage.fit"):
        stage.edit(rows)
    with pytest.raises(StageError, match="has no score to fit top_fraction to"):
        stage.fit([rows.slice(0, 0)], str(tmp_path))


def test_a_run_decides_as_a_crawl_does(model, run_stages):
    contents = {f"d{seed}": " ".join(random.Random(seed).choices(WORDS, k=400)) for seed in range(8)}
    spec = {"model": model, "label": ["en", "de"], "top_fraction": {"en": 0.5}, "column": "q"}
    out = run_stages(contents, {"fast_text_classifier": spec})
    crawl = lc.Crawl(Dataset.from_dict({"id": list(contents), "text": list(contents.values())}))
    crawl = crawl | load_recipe(str(out / "recipe.yaml")).stages[0][1]
    assert {lc.why(out, name).rule for name in contents} == {None, "at_least_en"}
    for name in contents:
        assert replace(lc.why(out, name), edits=()) == crawl.why(name)
    materials = json.loads((out / "manifest.json").read_text())["materials"]
    assert materials["fast_text_classifier"][model]["sha256"] == content_digest(model)


EVERY = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x3100)]))


def test_lines_end_as_fasttext_or_dclm_have_it(tmp_path, write_model):
    plain = write_model(tmp_path / "m.bin", 1, "softmax", ngrams=(1, 2), word_ngrams=2)
    contents = [f"{mark}the boat{mark}\n{mark} Boot" for mark in EVERY if mark.isspace() or mark in "\x1c\x1e\0a"]
    joined = [" ".join(text.strip().splitlines()) for text in contents]
    for policy, meant in (("newline", contents), ("splitlines", joined)):
        stage = lc.text.FastTextClassifier(str(plain), "en", line_ends=policy)
        found = stage.measure(pa.array(contents, pa.large_string())).scores
        assert found["en"].to_pylist() == probabilities(plain, meant, [0])[:, 0].astype(float).tolist()
    assert joined != contents


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"label": "fr"}, "has no label 'fr'"),
        ({"label": ()}, "must be a label or several different ones, got ()"),
        ({"label": ("en", "en")}, "must be a label or several different ones"),
        ({"at_least": 0.1, "top_fraction": 0.1}, "has at_least and top_fraction for 'en': set one of them"),
        ({"top_fraction": 10}, "top_fraction must be a share above 0 and up to 1, such as 0.1, got 10.0"),
        ({"at_least": {"de": 1}}, "at_least names 'de'; label has: en"),
        (
            {"label": ("en", "de"), "at_least": 0.5},
            "at_least is one number for 2 labels: set one for each, such as {en: 0.5}",
        ),
        ({"column": "text"}, "column is 'text': choose a separate column for the scores"),
        ({"model": ""}, "model is empty: set it to a fastText model"),
        ({"model": "nowhere.bin"}, "nowhere.bin does not exist; give the path of a fastText model"),
        ({"model": "."}, ". is a folder; give the path of the fastText model in it (.bin or .ftz)"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_sentence(model, fields, sentence):
    with pytest.raises(StageError, match=re.escape(sentence)) as raised:
        lc.text.FastTextClassifier(**{"model": model, "label": "en", **fields}).prepare()
    assert "\n" not in str(raised.value)


def test_a_changed_model_is_another_stage(tmp_path, write_model):
    path = write_model(tmp_path / "m.bin")
    stage = lc.text.FastTextClassifier(str(path), "en", at_least={"en": 0.5})
    assert stage == pickle.loads(pickle.dumps(stage))
    assert hash(stage) == hash(pickle.loads(pickle.dumps(stage)))
    before = pickle.dumps(stage)
    write_model(path, 1)
    assert pickle.dumps(stage) != before
