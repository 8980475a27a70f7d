"""Scores of models on a GPU: near those of a CPU, and the same whatever other rows and processes there are."""

import json
import subprocess
import sys

import numpy as np
import pytest
import yaml

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.models import load_model

pytestmark = pytest.mark.usefixtures("gpu")

STAGES = {
    "information_gain": {"long_context": 256, "short_context": 64},
    "dependency_score": {"segment": 32, "window": 256, "pairs": 12},
    "attention_dependency": {"span": 16, "first": 5, "near": 2, "stride": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_models):
    """Return a model that is large enough for its products to be computed in other ways by batch."""
    path = tmp_path_factory.mktemp("models") / "gpt2"
    for each in tiny_models.tiny(positions=512, n_embd=256, n_head=4):
        each.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def texts():
    drawn = np.random.default_rng(0)
    return ["".join(drawn.choice(list("ab cde\n"), size)) for size in (400, 90, 400, 512, 257, 400, 130)]


def stage_of(name, folder, **settings):
    kinds = {
        each.name: each for each in (lc.long.InformationGain, lc.long.DependencyScore, lc.long.AttentionDependency)
    }
    return kinds[name](str(folder), **STAGES[name] | settings)


@pytest.mark.parametrize("name", STAGES)
def test_scores_are_near_those_of_a_cpu_and_do_not_depend_on_other_documents(name, folder, texts):
    stage = stage_of(name, folder)
    together = stage.measures(texts).to_pylist()
    assert str(stage.pretrained().device) == "cuda"
    assert [stage.measures([text]).to_pylist()[0] for text in texts] == together
    assert stage.measures(texts[::-1]).to_pylist() == together[::-1]
    on_cpu = stage_of(name, folder, device="cpu").measures(texts).to_pylist()
    for row, expected in zip(together, on_cpu, strict=True):
        assert row == (expected and pytest.approx(expected, rel=1e-4, abs=1e-4))


@pytest.mark.parametrize("decimals", [None, 4])
def test_answers_do_not_depend_on_the_batch(folder, decimals):
    loaded = load_model(str(folder), "causal", "cuda")
    drawn = np.random.default_rng(1)
    rows = [drawn.integers(0, 257, length) for length in [64] * 40 + [7] * 300 + [512] * 5]

    def last(model, ids):
        return model(ids).logits[:, -1]

    together = loaded.each(rows, last, decimals)
    alone = [loaded.each([row], last, decimals)[0] for row in rows]
    assert [each.tolist() for each in together] == [each.tolist() for each in alone]


@pytest.fixture
def recipe(tmp_path, texts):
    """Return a function that writes a recipe with one stage for two files."""
    (tmp_path / "data").mkdir()
    for part in range(2):
        rows = ({"id": f"{part}{number}", "text": text} for number, text in enumerate(texts))
        (tmp_path / f"data/{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(name, **settings):
        spec = {"longcrawl": 1, "name": "it", "outputs": {"parquet": {}}, "stages": [{name: settings}]}
        spec["source"] = {"builder": "text", "id_field": "id", "data_dir": str(tmp_path / "data")}
        (tmp_path / "it.yaml").write_text(yaml.safe_dump(spec))
        return tmp_path / "it.yaml"

    return write


@pytest.mark.parametrize(
    ("name", "device"),
    [*((name, "auto") for name in STAGES), ("sequence_classifier", "auto"), ("information_gain", "cpu")],
)
def test_a_run_of_two_processes_has_the_files_of_one(name, device, folder, recipe, tmp_path, tiny_models):
    settings = {"model": str(folder), "top_fraction": 0.5, "device": device, **STAGES.get(name, {})}
    if name == "sequence_classifier":
        for each in tiny_models.tiny("classifier", positions=512, num_labels=1):
            each.save_pretrained(tmp_path / "classifier")
        settings["model"] = str(tmp_path / "classifier")
    written, found = recipe(name, **settings), []
    for workers in ("1", "2"):
        out = tmp_path / f"out{workers}"
        command = [sys.executable, "-m", "longcrawl", "run", str(written), "--out", str(out), "--num-proc", workers]
        subprocess.run(command, check=True)
        found.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*.parquet")})
    assert found[0]
    assert found[0] == found[1]


def test_workers_of_a_process_that_has_used_the_gpu_say_so(folder, recipe, tmp_path, torch):
    torch.cuda.init()
    load_model(str(folder), "causal").each([np.arange(9)], lambda model, ids: model(ids).logits[:, -1])
    with pytest.raises(StageError, match=r"cannot use cuda \(Cannot re-initialize CUDA in forked.*num_proc to 1"):
        lc.run(
            recipe("information_gain", model=str(folder), at_least=0.0, **STAGES["information_gain"]),
            tmp_path / "out",
            2,
        )


def test_rows_that_do_not_fit_into_the_gpu_are_one_sentence(folder, torch):
    loaded = load_model(str(folder), "causal", "cuda")
    rows = [np.arange(257).repeat(2)[:512]] * 64
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total)
    try:
        with pytest.raises(StageError, match="64 x 512 tokens do not fit into the GPU's memory beside"):
            loaded.each(rows, lambda model, ids: model(ids).logits[:, -1], 4)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
