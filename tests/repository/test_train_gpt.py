"""The examples that train GPTs: their loss falls, one goes on exactly, and stages take the other."""

import random
import shutil
from pathlib import Path
from statistics import fmean

import pytest

import longcrawl as lc

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gpt.py"
STEPS = 40


@pytest.fixture(scope="module")
def example(load_trainer):
    return load_trainer(EXAMPLE)


@pytest.fixture
def small_gpt(load_trainer):
    return load_trainer(EXAMPLE.with_name("train_small_gpt.py"))


@pytest.fixture(scope="module")
def shards(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt") / "shards"
    example.make_shards(folder, packages=["python"], vocabulary_size=1024)
    return folder


@pytest.fixture
def run(example, shards, monkeypatch):
    """Return what trains in a folder, from a checkpoint or from the start: losses, and the tokens of each step."""

    def go(out, checkpoint=None, num_workers=0):
        shutil.copytree(shards, out / "shards", dirs_exist_ok=True)
        trainer = example.make_trainer(out, STEPS, batch_size=4, context_length=64, num_workers=num_workers)
        seen = []
        step = trainer.training_step
        monkeypatch.setattr(
            trainer,
            "training_step",
            lambda model, inputs, *rest: (seen.append(inputs["input_ids"].tolist()), step(model, inputs, *rest))[1],
        )
        return example.train(trainer, checkpoint), seen, trainer

    return go


@pytest.mark.slow
def test_its_loss_falls_and_a_checkpoint_goes_on_with_the_very_batches(run, tmp_path):
    losses, seen, trainer = run(tmp_path / "whole")
    assert 0.7e6 < trainer.model.num_parameters() < 1.3e6
    assert len(losses) == STEPS
    assert fmean(losses[-10:]) < fmean(losses[:10]) - 0.3
    checkpoint = tmp_path / "whole" / f"checkpoint-{STEPS // 2}"
    again, seen_again, _ = run(tmp_path / "resumed", checkpoint, num_workers=1)
    assert seen_again == seen[STEPS // 2 :]
    assert again == pytest.approx(losses, abs=1e-4)


@pytest.mark.slow
def test_a_small_gpt_is_a_folder_that_stages_take(small_gpt, tmp_path):
    chance = random.Random(0)
    texts = [" ".join(chance.choices(["tide", "boat", "mud", "harbour"], k=300)) for _ in range(9)]
    settings = {"tokens": 128, "context_length": 256, "vocabulary_size": 300}
    losses = small_gpt.train(texts, tmp_path / "small", 30, **settings)
    assert len(losses) == 30
    assert fmean(losses[-5:]) < losses[0] - 1
    assert small_gpt.train(texts, tmp_path / "again", 30, **settings) == losses
    stage = lc.long.InformationGain(str(tmp_path / "small"), long_context=64, short_context=8, device="cpu")
    assert [row["tokens"] > 200 for row in stage.measures(texts).to_pylist()] == [True] * 9
    assert small_gpt.is_left_out({"id": "a"}) == small_gpt.is_left_out({"id": "b", "family": "a"})


@pytest.mark.slow
def test_the_first_weights_of_a_small_gpt_copy_from_far(small_gpt):
    """At any distance, as the head that looks back has no positions; random weights copy nothing."""
    import torch

    chunk = torch.randperm(499)[:64] + 1
    gains = {}
    for start in ("induction", "random"):
        model = small_gpt.make_model(500, start)
        for between in (1, 100, 1_500):
            row = torch.cat([chunk, torch.randint(1, 500, (between,)), chunk])[None]
            with torch.inference_mode():
                losses = torch.nn.functional.cross_entropy(model(row).logits[0, :-1], row[0, 1:], reduction="none")
            gains[start, between] = (losses[:63].mean() - losses[-63:].mean()).item()
    assert min(gains["induction", between] for between in (1, 100, 1_500)) > 0.5
    assert max(abs(gains["random", between]) for between in (1, 100, 1_500)) < 0.2
