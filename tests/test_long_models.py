"""Scores of long documents by models: each against plain formulas, thresholds that are learnt, runs and crawls."""

import json
import random
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import RunError, StageError
from longcrawl.models import pretrained
from longcrawl.run import job

torch = pytest.importorskip("torch")

GAIN = {"long_context": 16, "short_context": 6}


@pytest.fixture(scope="module")
def pairs(tiny_models):
    return {"gpt2": tiny_models.tiny(), "llama": tiny_models.tiny_llama()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("models")
    for name, pair in pairs.items():
        for each in pair:
            each.save_pretrained(path / name)
    return path


def gain(model, **settings):
    return lc.long.InformationGain(str(model), device="cpu", **GAIN | settings)


STAGES = {"information_gain": gain}


def texts(*sizes):
    chance = random.Random(0)
    return ["".join(chance.choice("ab cde\n") for _ in range(size)) for size in sizes]


def plain_losses(model, ids, size):
    """Return the loss of each token but the first, each with a pass of its own over what its window has before it."""
    losses = []
    for at in range(1, len(ids)):
        start = 0
        while at >= start + size:
            start += size // 2
        with torch.inference_mode():
            logits = model(torch.tensor(ids[start:at])[None]).logits[0, -1].double()
        losses.append(float(logits.logsumexp(-1) - logits[ids[at]]))
    return np.array(losses)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_information_gain_equals_the_formula(folder, pairs, name):
    model, tokenizer = pairs[name]
    documents = texts(3, 6, 7, 16, 17, 45)
    for text, row in zip(documents, gain(folder / name).measures(documents).to_pylist(), strict=True):
        ids = tokenizer(text)["input_ids"]
        if len(ids) <= 6:
            assert row is None
            continue
        long, short = (plain_losses(model, ids, size)[5:] for size in (16, 6))
        score = np.mean(np.exp(-long) * (short - long))
        assert row == pytest.approx({"score": score, "nats": np.mean(short - long), "tokens": len(ids) - 6}, abs=1e-5)


def test_a_window_is_no_longer_than_the_model_takes(folder):
    (document,) = texts(150)
    assert gain(folder / "gpt2", long_context=4_096).measures([document]) == gain(
        folder / "gpt2", long_context=64
    ).measures([document])


def test_parts_of_a_long_row_predict_as_the_whole(folder, monkeypatch):
    documents = texts(64, 33)
    whole = gain(folder / "llama", long_context=64).gains(documents)
    monkeypatch.setattr(pretrained, "CHUNK", 5)
    for one, other in zip(whole, gain(folder / "llama", long_context=64).gains(documents), strict=True):
        np.testing.assert_allclose(one.long, other.long, atol=1e-4)


def test_gain_by_position_is_the_mean_over_documents(folder):
    documents = texts(3, 20, 30)
    stage = gain(folder / "gpt2")
    one, other = (each.gain for each in stage.gains(documents)[1:])
    found = stage.by_position(documents)
    expected = np.concatenate([(one + other[:14]) / 2, other[14:]])
    np.testing.assert_allclose(found.gain[6:], expected)
    assert np.isnan(found.gain[:6]).all()
    assert found.tokens.tolist() == [0] * 6 + [2] * 14 + [1] * 10
    borders, means = found.binned(4)
    assert (borders[0], borders[-1], len(means)) == (0, 30, 4)


@pytest.mark.parametrize("name", STAGES)
def test_scores_do_not_depend_on_other_documents_order_or_threads(folder, name):
    stage = STAGES[name](folder / "gpt2")
    documents = texts(40, 64, 200, 33, 64, 90, 2)
    together = stage.measures(documents).to_pylist()
    assert sum(row is not None for row in together) >= 5
    assert [stage.measures([each]).to_pylist()[0] for each in documents] == together
    torch.set_num_threads(3)
    assert stage.measures(documents[::-1]).to_pylist() == together[::-1]


def rows(sizes=(200, 3, 120, 64, 90, 300, 40, 77, 150, 210)):
    return [{"id": f"d{number}", "text": text} for number, text in enumerate(texts(*sizes))]


def test_at_least_keeps_what_scores_enough_and_the_ledger_has_the_others(folder):
    measured = lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2")
    scores = {row["id"]: row["information_gain"] and row["information_gain"]["score"] for row in measured.data}
    assert (len(scores), scores["d1"]) == (10, None)
    middle = sorted(score for score in scores.values() if score is not None)[4]
    kept = lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", at_least=middle)
    enough = {name for name, score in scores.items() if score is None or score >= middle}
    assert set(kept.data["id"]) == enough
    lost = next(name for name in scores if name not in enough)
    assert f"{scores[lost]:.4g}"[:5] in str(kept.why(lost))
    drop = lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", at_least=middle, short="drop")
    assert set(drop.data["id"]) == enough - {"d1"}


def write_recipe(folder, stage):
    (folder / "data").mkdir()
    for part in range(3):
        lines = [json.dumps(row) + "\n" for row in rows()[part::3]]
        (folder / f"data/{part}.jsonl").write_text("".join(lines))
    spec = {"longcrawl": 1, "name": "it", "stages": [stage], "outputs": {"parquet": {}}}
    spec["source"] = {"builder": "text", "id_field": "id", "data_dir": str(folder / "data")}
    (folder / "it.yaml").write_text(yaml.safe_dump(spec))
    return folder / "it.yaml"


@pytest.mark.parametrize(("num_proc", "sample"), [(2, None), (1, 5)])
def test_a_run_learns_the_threshold_that_a_crawl_learns(folder, tmp_path, num_proc, sample):
    settings = {"model": str(folder / "gpt2"), "top_fraction": 0.5, "train_documents": sample, "short": "drop"}
    recipe = write_recipe(tmp_path, {"information_gain": settings | GAIN})
    lc.run(recipe, tmp_path / "run", num_proc)
    kept = pq.read_table(sorted((tmp_path / "run/parquet").glob("*.parquet"))).to_pylist()
    stage = lc.long.InformationGain(**settings, **GAIN)
    crawl = lc.Crawl(Dataset.from_list(rows())) | stage
    assert {row["id"]: row["information_gain"] for row in kept} == {
        row["id"]: row["information_gain"] for row in crawl.data
    }
    if sample is None:
        assert len(kept) == 5


def test_a_run_with_another_model_is_refused(tiny_models, tmp_path, monkeypatch):
    model = tmp_path / "model"
    for each in tiny_models.tiny():
        each.save_pretrained(model)
    recipe = write_recipe(tmp_path, {"information_gain": {"model": str(model)} | GAIN})

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job._Job, "_write_output", stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, tmp_path / "run")
    tiny_models.tiny(seed=1)[0].save_pretrained(model)
    with pytest.raises(RunError, match=r"the input of .* has changed since the run began"):
        lc.run(recipe, tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"short_context": 1}, "short_context is 1: take 2 or more, and fewer than long_context, 16"),
        ({"short_context": 16}, "short_context is 16: take 2 or more, and fewer than long_context, 16"),
        ({"top_fraction": 0}, "top_fraction is 0: take a share above 0, 1 at most"),
        (
            {"top_fraction": 0.5, "at_least": 0.1},
            "information_gain has both at_least and top_fraction: take one of them",
        ),
        ({"train_documents": 0}, "train_documents is 0: take 1 or more"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(folder, settings, message):
    with pytest.raises(StageError, match=re.escape(message)):
        gain(folder / "gpt2", **settings)


def test_what_the_model_cannot_do_is_one_sentence(folder):
    with pytest.raises(StageError, match=r"short_context is 100, .* takes 64 tokens: take fewer$"):
        lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", short_context=100, long_context=200)
    with pytest.raises(StageError, match=r"^information_gain has no document that is long enough to learn from"):
        lc.Crawl(Dataset.from_list(rows((3, 4)))) | gain(folder / "gpt2", top_fraction=0.5)
    with pytest.raises(StageError, match=r"^information_gain has no threshold yet: call stage\.fit"):
        gain(folder / "gpt2", top_fraction=0.5).edit(lc.Crawl(Dataset.from_list(rows())).data.data.table)
