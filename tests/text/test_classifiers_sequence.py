"""Classifiers of transformers: scores of a pipeline, whatever the batch; labels, regressions, and what they remove."""

import json
import random
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import RecipeError, StageError
from longcrawl.run.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("torch")

TEXTS = ["one", "two words", "the boat came back", "", "é船", "x" * 90, "a " * 700, "two words", "the boat came bacK"]
NAMES = {"id2label": {0: "Low", 1: "Middle", 2: "High"}, "label2id": {"Low": 0, "Middle": 1, "High": 2}}


def table(*contents):
    return pa.table({"id": [f"d{number}" for number in range(len(contents))], "text": list(contents)})


@pytest.fixture(scope="module")
def saved(tiny_models, tmp_path_factory):
    """Return folders of models: of three labels, of one output, and of three labels at once with no padding."""
    found = {}
    for name, settings in {
        "labels": {"pad_token_id": 0, **NAMES},
        "regression": {"pad_token_id": 0, "num_labels": 1, "problem_type": "regression"},
        "several": {"problem_type": "multi_label_classification", **NAMES},
    }.items():
        found[name] = str(tmp_path_factory.mktemp("models") / name)
        for each in tiny_models.tiny("classifier", **settings):
            each.save_pretrained(found[name])
    return found


def stage_of(model, **settings):
    return lc.text.SequenceClassifier(model, **{"device": "cpu", "max_length": 40, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["labels", "regression", "several"])
def test_scores_equal_those_of_a_pipeline(saved, name):
    from transformers import pipeline

    peer = pipeline("text-classification", saved[name], device="cpu", top_k=None)
    asked = [text for text in TEXTS if text]
    wanted = [{each["label"]: each["score"] for each in found} for found in peer(asked, truncation=True, max_length=40)]
    labels = tuple(sorted(wanted[0]))
    for decimals, tolerance in ((None, 1e-5), (4, 6e-5)):
        if name == "regression":
            edited, _ = stage_of(saved[name], decimals=decimals).edit(table(*asked))
            columns = [edited["quality"].to_pylist()]
        else:
            edited, _ = stage_of(saved[name], label=labels, decimals=decimals).edit(table(*asked))
            columns = [edited[f"quality_{label}"].to_pylist() for label in labels]
            assert edited["quality_label"].to_pylist() == [max(each, key=each.get) for each in wanted]
        found = np.array(columns).T
        assert found == pytest.approx(np.array([[each[label] for label in labels] for each in wanted]), abs=tolerance)


@pytest.fixture(scope="module")
def deberta(torch):
    """Return a random DeBERTa of two layers, which knows no attention but its own."""
    from transformers import DebertaV2Config, DebertaV2Model

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
    config = DebertaV2Config(vocab_size=257, pad_token_id=0, max_position_embeddings=64, **shape, **relative)
    return DebertaV2Model(config).eval()


def test_classifiers_as_nemo_curator_saves_them_have_their_scores(deberta, tiny_models, tmp_path, torch):
    from safetensors.torch import save_file

    head = torch.nn.Linear(16, 3)
    weights = {f"model.{name}": tensor for name, tensor in deberta.state_dict().items()}
    weights |= {f"fc.{name}": tensor for name, tensor in head.state_dict().items()}
    tokens = tiny_models.byte_tokenizer()
    tokens.save_pretrained(tmp_path)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, tmp_path / "model.safetensors")
    marks = {
        "base_model": "nowhere/base",
        "fc_dropout": 0.2,
        "id2label": {str(n): NAMES["id2label"][n] for n in range(3)},
    }
    (tmp_path / "config.json").write_text(json.dumps(deberta.config.to_diff_dict() | marks))
    stage = stage_of(str(tmp_path), label=("Low", "High"))
    edited = stage.edit(table("one", "the boat"))[0]
    for number, text in enumerate(("one", "the boat")):
        with torch.inference_mode():
            found = head(deberta(**tokens(text, return_tensors="pt")).last_hidden_state)[0, 0].softmax(-1).tolist()
        assert edited["quality_Low"][number].as_py() == pytest.approx(found[0], abs=6e-5)
        assert edited["quality_label"][number].as_py() == NAMES["id2label"][int(np.argmax(found))]
    save_file({name: tensor for name, tensor in weights.items() if name != "fc.bias"}, tmp_path / "model.safetensors")
    with pytest.raises(
        StageError, match=r"is not a classifier model, it has no weights for fc.bias: choose one that has"
    ):
        stage.prepare()


def test_a_regression_has_whole_numbers_and_texts_without_tokens_have_none(saved):
    edited, (check,) = stage_of(saved["regression"], at_least=0.0, column="edu").edit(table(*TEXTS))
    scores = edited["edu"].to_pylist()
    whole = [None if score is None else round(max(0, min(score, 5))) for score in scores]
    assert edited["edu_int"].to_pylist() == whole
    assert edited.column_names == ["id", "text", "edu", "edu_int"]
    assert scores[3] is None
    assert len({score for score in scores if score is not None and score > 0}) > 1
    assert [check.passes[number].as_py() for number in range(9)] == [None if s is None else s >= 0 for s in scores]
    sigmoids = stage_of(saved["regression"], activation="sigmoid").edit(table("one"))[0]["quality"]
    assert sigmoids[0].as_py() == pytest.approx(1 / (1 + np.exp(-scores[0])), abs=1e-4)


@pytest.mark.variants
@pytest.mark.parametrize("decimals", [None, 4])
def test_neither_order_nor_batches_matter(saved, decimals):
    stage = stage_of(saved["labels"], label=("Low", "High"), decimals=decimals)
    contents = [text[:number] for number in (1, 5, 9) for text in TEXTS] + TEXTS
    whole = stage.edit(table(*contents))[0]
    order = random.Random(0).sample(range(len(contents)), len(contents))
    shuffled = whole.take(order).select(["id", "text"])
    parts = [stage.edit(shuffled.slice(start, 4))[0] for start in range(0, len(order), 4)]
    assert pa.concat_tables(parts).combine_chunks().equals(whole.take(order).combine_chunks())


def test_only_what_can_be_read_of_a_long_text_is_tokenised(saved):
    stage = stage_of(saved["labels"], label=("Low",))
    # The last one has too few tokens up to where it is cut, at a space.
    contents = ["word " * 9_000, "x" * 9_000, "a " + "x" * 9_000]
    short = [text[:500] for text in contents]
    found, cut = (stage.edit(table(*each))[0]["quality_Low"] for each in (contents, short))
    assert found.equals(cut)


def test_the_best_label_must_be_one_to_keep(saved):
    edited, (check,) = stage_of(saved["labels"], keep=("Low", "High")).edit(table(*TEXTS))
    labels = edited["quality_label"].to_pylist()
    assert labels[3] is None
    assert {"Middle"} < set(labels) - {None}
    assert [value.as_py() for value in check.passes] == [label in ("Low", "High") for label in labels]
    crawl = lc.Crawl(Dataset(table(*TEXTS))) | stage_of(saved["labels"], keep=("Low", "High"))
    gone = labels.index("Middle")
    assert (crawl.why(f"d{gone}").rule, crawl.why(f"d{gone}").value) == ("keep", edited["quality"][gone].as_py())
    assert crawl.data["id"] == [f"d{number}" for number in range(9) if labels[number] in ("Low", "High")]


@pytest.mark.slow
def test_a_run_decides_as_a_crawl_does(saved, run_stages):
    contents = {f"d{seed}": "".join(random.Random(seed).choices("abc de", k=300)) for seed in range(8)}
    settings = {"model": saved["labels"], "label": ["High", "Low"], "top_fraction": {"High": 0.5}, "device": "cpu"}
    out = run_stages(contents, {"sequence_classifier": settings})
    crawl = lc.Crawl(Dataset.from_dict({"id": list(contents), "text": list(contents.values())}))
    crawl = crawl | load_recipe(str(out / "recipe.yaml")).stages[0][1]
    assert {lc.why(out, name).rule for name in contents} == {None, "at_least_High"}
    for name in contents:
        assert replace(lc.why(out, name), edits=()) == crawl.why(name)


def test_an_object_is_saved_and_named(tiny_models, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stage = stage_of(tiny_models.tiny("classifier", num_labels=2))
    assert stage.model.startswith(str(tmp_path))
    assert stage.edit(table("one"))[0]["quality_label"].to_pylist()[0] in ("LABEL_0", "LABEL_1")


def test_labels_that_are_not_counted_from_0_are_one_sentence(saved, tmp_path):
    shutil.copytree(saved["labels"], tmp_path / "odd")
    config = json.loads((tmp_path / "odd/config.json").read_text())
    config |= {"id2label": {"1": "Low", "2": "Middle", "3": "High"}}
    (tmp_path / "odd/config.json").write_text(json.dumps(config))
    with pytest.raises(StageError, match=r"which does not count from 0: correct config\.json"):
        stage_of(str(tmp_path / "odd")).prepare()


def test_a_column_of_another_classifier_is_not_replaced(saved, tmp_path):
    one, other = (stage_of(saved[name], column=name) for name in ("labels", "regression"))
    assert (lc.Crawl(table("one")) | one | other).data.column_names[-4:] == [
        "labels", "labels_label", "regression", "regression_int",
    ]  # fmt: skip
    with pytest.raises(StageError, match=r"would replace the column 'labels' that sequence_classifier sets: set seq"):
        _ = lc.Crawl(table("one")) | one | stage_of(saved["regression"], column="labels")
    stages = [{"sequence_classifier": {"model": saved["labels"]}}, {"fast_text_classifier": {"model": "m.bin"}}]
    source = {"builder": "text", "data_dir": "."}
    recipe = {"longcrawl": 1, "name": "it", "source": source, "stages": stages, "outputs": {"parquet": {}}}
    (tmp_path / "it.yaml").write_text(json.dumps(recipe))
    with pytest.raises(RecipeError, match=r"'quality' that sequence_classifier sets: set fast_text_classifier\.column"):
        lc.run(tmp_path / "it.yaml", tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("labels", {"label": "low"}, "has no label 'low'; known: Low, Middle, High"),
        ("labels", {"keep": ("High", "Best")}, "has no label 'Best'; known: Low, Middle, High"),
        ("labels", {"label": ("Low", "label")}, "has the column quality_label already: set label to 'label' alone"),
        ("labels", {"max_length": 0}, "takes max_length from 1 and decimals from 0 to 9, got 0 and 4"),
        ("labels", {"decimals": 12}, "takes max_length from 1 and decimals from 0 to 9, got 40 and 12"),
        ("regression", {"keep": ("LABEL_0",)}, "has one output, so keep has no labels to choose from: set at_least"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_sentence(saved, name, fields, sentence):
    with pytest.raises(StageError, match=re.escape(sentence)) as raised:
        stage_of(saved[name], **fields).prepare()
    assert "\n" not in str(raised.value)
