"""Scores of long documents by models: each against plain formulas, thresholds that are learnt, runs and crawls."""

import json
import os
import random
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import RunError, StageError
from longcrawl.run import job
from longcrawl.text import models

pytestmark = pytest.mark.usefixtures("torch")

GAIN = {"long_context": 16, "short_context": 6}
WIDE = {"long_context": 64, "short_context": 32}
"""Fewer windows of the same documents."""


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


def dependency(model, **settings):
    return lc.long.DependencyScore(str(model), device="cpu", **{"segment": 8, "window": 64, "pairs": 12} | settings)


def attention(model, **settings):
    near = {"span": 3, "first": 5, "near": 2, "stride": 2}
    return lc.long.AttentionDependency(str(model), device="cpu", **near | settings)


STAGES = {"information_gain": gain, "dependency_score": dependency, "attention_dependency": attention}


NAMES = {"information_gain": "InformationGain", "dependency_score": "DependencyScore"}
NAMES |= {"attention_dependency": "AttentionDependency"}


def texts(*sizes):
    chance = random.Random(0)
    return ["".join(chance.choice("ab cde\n") for _ in range(size)) for size in sizes]


def plain_losses(model, ids, size):
    """Return the loss of each token but the first, each with a pass of its own over what its window has before it."""
    import torch

    losses = []
    for at in range(1, len(ids)):
        start = 0
        while at >= start + size:
            start += size // 2
        with torch.inference_mode():
            logits = model(torch.tensor(ids[start:at])[None]).logits[0, -1].double()
        losses.append(float(logits.logsumexp(-1) - logits[ids[at]]))
    return np.array(losses)


@pytest.mark.variants
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
    monkeypatch.setattr(models, "CHUNK", 5)
    monkeypatch.setattr(models, "CUDA_CHUNK", 5)
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


def perplexity(model, ids, behind=()):
    """Return the perplexity of all but the first of some ids behind others."""
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([*behind, *ids])[None]).logits[0, len(behind) : -1].double()
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).exp())


def plain_dependency(model, segments, last, pairs=None, least=0.1):
    score, strengths = 0.0, []
    alone = [perplexity(model, segment) for segment in segments]
    for i in range(len(segments)):
        behind = {j: perplexity(model, segments[i], segments[j]) for j in range(i) if pairs is None or (i, j) in pairs}
        gained = np.array([alone[i] - each for each in behind.values()])
        shares = np.exp(gained - gained.max(initial=-np.inf))
        shares = shares / shares.sum()
        entropy = -sum(share * np.log(share) for share in shares if share)
        specific = (
            1 if len(shares) == 1 else (np.log(len(shares)) - entropy) / np.log(len(shares)) if len(shares) else 0
        )
        for j, each in behind.items():
            strengths.append((alone[i] - each) / alone[i])
            if strengths[-1] > least:
                score += (strengths[-1] + (i - j) / last) * specific
    return {"score": score, "strength": np.mean(strengths), "pairs": len(strengths)}


@pytest.mark.variants
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_dependency_score_equals_the_formula(folder, pairs, name):
    model, tokenizer = pairs[name]
    documents = texts(15, 16, 30, 45)
    stage = dependency(folder / name, window=48)
    for text, row in zip(documents, stage.measures(documents).to_pylist(), strict=True):
        ids = tokenizer(text)["input_ids"]
        segments = [ids[start : start + 8] for start in range(0, len(ids) - 7, 8)]
        expected = plain_dependency(model, segments, 5) if len(segments) > 1 else None
        assert row == (expected and pytest.approx(expected, abs=1e-4))
    assert row["score"] > 0.1


def test_dependency_score_draws_segments_and_pairs_by_seed_and_document(folder, pairs):
    model, _ = pairs["gpt2"]
    one, other = texts(160, 161)
    stage = dependency(folder / "gpt2", pairs=7)
    ids = stage.pretrained().token_ids([one])[0]
    segments, drawn = stage._draw(ids)
    assert (len(segments), len(drawn), len(set(drawn))) == (8, 7, 7)
    order = [(ids.reshape(20, 8) == segment).all(1).argmax() for segment in segments]
    assert order == sorted(order)
    assert stage.measures([one])[0].as_py() == pytest.approx(
        plain_dependency(model, segments.tolist(), 7, set(drawn)), abs=1e-4
    )
    assert dependency(folder / "gpt2", pairs=7, seed=12)._draw(ids)[1] != drawn
    assert stage._draw(stage.pretrained().token_ids([other])[0])[1] != drawn


def plain_attention(model, ids, span, initial, near, stride, first):
    import torch

    with torch.inference_mode():
        weights = model(torch.tensor(ids)[None], output_attentions=True).attentions
    count, scores = len(ids) // span, []
    for layer in weights:
        paid, score = layer[0].double().mean(0).numpy(), 0.0
        for j in range(count - 1, first - 1, -stride):
            focus = {
                i: paid[j * span : (j + 1) * span, i * span : (i + 1) * span].sum()
                for i in range(j - near - 1, initial - 1, -stride)
            }
            spread = np.std(list(focus.values()), ddof=1) if len(focus) > 1 else 0
            score += j / count * spread * sum((j - i) / count * each for i, each in focus.items())
        scores.append(score)
    return np.mean(scores)


@pytest.mark.variants
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_attention_dependency_equals_the_formula(folder, pairs, name):
    model, tokenizer = pairs[name]
    model.set_attn_implementation("eager")
    documents = texts(17, 18, 40, 63, 64, 150)
    found = attention(folder / name).measures(documents).to_pylist()
    for text, row in zip(documents, found, strict=True):
        ids = tokenizer(text)["input_ids"]
        whole = [ids[start : start + 63] for start in range(0, len(ids) - 62, 63)]
        cut = whole or [ids[: len(ids) // 3 * 3]]
        if len(cut[0]) < 18:
            assert row is None
            continue
        expected = np.mean([plain_attention(model, each, 3, 1, 2, 2, 5) for each in cut])
        assert row == pytest.approx({"score": expected, "windows": len(cut)}, abs=1e-5)
    assert found[-1]["windows"] == 2
    assert found[-1]["score"] > 1e-3


def test_attention_of_a_sliding_window_is_the_models(tmp_path, tiny_models):
    model, tokenizer = tiny_models.tiny_mistral(sliding_window=9)
    for each in (model, tokenizer):
        each.save_pretrained(tmp_path)
    model.set_attn_implementation("eager")
    (document,) = texts(63)
    expected = plain_attention(model, tokenizer(document)["input_ids"], 3, 1, 0, 1, 5)
    stage = attention(tmp_path, near=0, stride=1)
    assert stage.measures([document])[0].as_py()["score"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_scores_do_not_depend_on_other_documents_order_or_threads(folder, name, torch):
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
    measured = lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", **WIDE)
    scores = {row["id"]: row["information_gain"] and row["information_gain"]["score"] for row in measured.data}
    assert (len(scores), scores["d1"]) == (10, None)
    middle = sorted(score for score in scores.values() if score is not None)[4]
    kept = lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", at_least=middle, **WIDE)
    enough = {name for name, score in scores.items() if score is None or score >= middle}
    assert set(kept.data["id"]) == enough
    lost = next(name for name in scores if name not in enough)
    assert f"{scores[lost]:.4g}"[:5] in str(kept.why(lost))
    drop = lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", at_least=middle, short="drop", **WIDE)
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


@pytest.mark.slow
@pytest.mark.parametrize(("num_proc", "sample"), [(2, None), pytest.param(1, 5, marks=pytest.mark.slow)])
def test_a_run_learns_the_threshold_that_a_crawl_learns(folder, tmp_path, num_proc, sample):
    settings = {"model": str(folder / "gpt2"), "top_fraction": 0.5, "train_documents": sample, "short": "drop"}
    settings["device"] = "cpu"
    recipe = write_recipe(tmp_path, {"information_gain": settings | WIDE})
    lc.run(recipe, tmp_path / "run", num_proc)
    kept = pq.read_table(sorted((tmp_path / "run/parquet").glob("*.parquet"))).to_pylist()
    stage = lc.long.InformationGain(**settings, **WIDE)
    crawl = lc.Crawl(Dataset.from_list(rows())) | stage
    assert {row["id"]: row["information_gain"] for row in kept} == {
        row["id"]: row["information_gain"] for row in crawl.data
    }
    if sample is None:
        assert len(kept) == 5


def test_no_process_that_forks_workers_takes_a_gpu_into_use(folder, tmp_path, monkeypatch, torch):
    """A process that has used one forks none that can; here it is a file with the processes that asked for it."""
    (tmp_path / "gpu").mkdir()

    def take(model):
        if model.wanted != "cpu":
            (tmp_path / f"gpu/{os.getpid()}").touch()
        return torch.device("cpu")

    monkeypatch.setattr(models.Pretrained, "_move", take)
    monkeypatch.setattr(models, "has_gpu", lambda: True)
    pair = {"segment": 8, "window": 64, "pairs": 12}
    near = {"span": 3, "first": 5, "near": 2, "stride": 2}
    stages = {"information_gain": WIDE, "dependency_score": pair, "attention_dependency": near}
    asked = [{name: each | {"model": str(folder / "gpt2"), "top_fraction": 0.9}} for name, each in stages.items()]
    recipe = write_recipe(tmp_path, asked[0])
    spec = yaml.safe_load(recipe.read_text())
    spec |= {
        "stages": asked,
        "source": spec["source"] | {"data_dir": None, "data_files": str(tmp_path / "data/0.jsonl")},
    }
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "run", 2)
    found = {int(each.name) for each in (tmp_path / "gpu").iterdir()}
    assert found
    assert os.getpid() not in found


@pytest.mark.slow
def test_a_run_with_another_model_is_refused(tiny_models, tmp_path, monkeypatch):
    model = tmp_path / "model"
    for each in tiny_models.tiny():
        each.save_pretrained(model)
    recipe = write_recipe(tmp_path, {"information_gain": {"model": str(model)} | WIDE})

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
        ({"short_context": 1}, "short_context is 1: set it to 2 or more, and below long_context, 16"),
        ({"short_context": 16}, "short_context is 16: set it to 2 or more, and below long_context, 16"),
        ({"top_fraction": 0}, "top_fraction is 0: set it above 0 and up to 1"),
        (
            {"top_fraction": 0.5, "at_least": 0.1},
            "information_gain has both at_least and top_fraction: set only one of them",
        ),
        ({"train_documents": 0}, "train_documents is 0: set it to 1 or more"),
        ({"segment": 1}, "dependency_score needs at least segments of 2 tokens, a window of two segments and one pair"),
        ({"pairs": 0}, "dependency_score needs at least segments of 2 tokens, a window of two segments and one pair"),
        ({"span": 0}, "attention_dependency.span is 0: set it to 1 or more"),
        ({"near": 9}, "attention_dependency.first is 5: set it above initial and near together, 10"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(folder, settings, message):
    make = next(each for name, each in STAGES.items() if hasattr(getattr(lc.long, NAMES[name]), next(iter(settings))))
    with pytest.raises(StageError, match=re.escape(message)):
        make(folder / "gpt2", **settings)


def test_a_sliding_window_is_exact_or_one_sentence(tiny_models, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    far, near = (tiny_models.tiny_mistral(sliding_window=size) for size in (60, 20))
    found = [dependency_of(pair).measures(texts(64)).to_pylist() for pair in (far, near)]
    assert found[0] == found[1]
    with pytest.raises(StageError, match=r"^MistralForCausalLM has a sliding window that two segments of 16 tokens"):
        dependency_of(near, segment=16).measures(texts(64))


def test_attention_that_is_not_measured_is_one_sentence(tiny_models, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pair = tiny_models.tiny_gemma()
    stage = lc.long.AttentionDependency(pair, device="cpu", span=3, first=5, near=2)
    with pytest.raises(StageError, match=r"^Gemma2Attention changes its attention by softcap, which is not supported"):
        stage.measures(texts(60))


def dependency_of(pair, **settings):
    return lc.long.DependencyScore(pair, device="cpu", **{"segment": 8, "window": 64, "pairs": 12} | settings)


def test_what_the_model_cannot_do_is_one_sentence(folder):
    with pytest.raises(StageError, match=r"short_context is 100, .* takes at most 64 tokens: set it below that$"):
        lc.Crawl(Dataset.from_list(rows())) | gain(folder / "gpt2", short_context=100, long_context=200)
    with pytest.raises(
        StageError,
        match=r"^dependency_score\.segment is 33, .* takes at most 64 tokens: set it to at most half of that$",
    ):
        dependency(folder / "gpt2", segment=33, window=99).prepare()
    with pytest.raises(StageError, match=r"^attention_dependency measures from span 5 on, .* only 4 spans of 16"):
        attention(folder / "gpt2", span=16).prepare()
    with pytest.raises(StageError, match=r"^information_gain has no document that is long enough to learn from"):
        lc.Crawl(Dataset.from_list(rows((3, 4)))) | gain(folder / "gpt2", top_fraction=0.5)
    with pytest.raises(StageError, match=r"^information_gain has no threshold yet: call stage\.fit"):
        gain(folder / "gpt2", top_fraction=0.5).edit(lc.Crawl(Dataset.from_list(rows())).data.data.table)
