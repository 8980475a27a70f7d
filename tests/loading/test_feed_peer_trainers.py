"""Other projects' trainers on packed samples, killed or stopped and resumed; skipped without their packages."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import longcrawl as lc

EXAMPLE = Path(__file__).parents[2] / "examples" / "trainers.py"
PACKAGES = {
    "accelerate": ["torch", "transformers", "accelerate"],
    "grain": ["torch", "transformers", "grain"],
    "torchtitan": ["torch", "transformers", "torchtitan.components.dataloader"],
    "lightning": ["torch", "transformers", "lightning"],
    "trl": ["torch", "transformers", "trl"],
}
STEPS, ROWS, LENGTH = 12, 4, 128


def word_tokenizer(end, count):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(count)}, unk_token="w0"))  # noqa: S106
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"w{end}", pad_token=f"w{end}")


def train(name, shards, out, kill_after=None, workers=0, ranks=1):
    """Train on some ranks, up to a SIGKILL of all processes after a step; return losses, and rows of each step."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        torchrun = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "localhost"}
        torchrun |= {"MASTER_PORT": free.getsockname()[1], "TORCHELASTIC_RUN_ID": "test"}
    command = [sys.executable, EXAMPLE, name, shards, out, f"--steps={STEPS}", "--save-every=4", f"--workers={workers}"]
    processes, errors = [], [Path(f"{out}.{rank}.errors") for rank in range(ranks)]
    for rank in range(ranks):
        named = torchrun | {"RANK": rank, "LOCAL_RANK": rank} if ranks > 1 else {}
        environment = os.environ | {each: str(value) for each, value in named.items()}
        with errors[rank].open("w") as file:
            output = {"stdout": subprocess.PIPE, "stderr": file, "text": True, "start_new_session": True}
            processes.append(subprocess.Popen(command, env=environment, **output))
    losses, rows = {}, defaultdict(list)
    for rank, process in enumerate(processes):
        for line in process.stdout:
            if line.startswith("step "):
                _, step, loss, *digests = line.split()
                losses[int(step), rank] = loss
                rows[int(step)] += digests
                if (int(step), rank) == (kill_after, 0):
                    for each in processes:
                        os.killpg(each.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
        assert process.returncode == (-signal.SIGKILL if kill_after else 0), errors[rank].read_text()[-3000:]
    return losses, {step: sorted(found) for step, found in rows.items()}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Return a folder with a shard of 150 documents."""
    folder = tmp_path_factory.mktemp("shards")
    chance = np.random.default_rng(0)
    tokens = [chance.integers(1, 3000, length).tolist() for length in chance.integers(3, 200, 150)]
    lc.formats.gpt_simple.write([pa.table({"tokens": tokens})], folder / "0.bin")
    return folder


def wanted_rows(name, shards):
    """Return the digests that the example prints for each step: of rows, or of the pieces that TRL's collator gets."""
    found = {}
    feed = lc.loading.Packed(shards, max_length=LENGTH, batch_size=ROWS)
    for step, batch in enumerate(feed[:STEPS], 1):
        rows = batch["input_ids"]
        if name == "trl":
            examples = lc.loading.collators.for_trl(batch)
            ends = [np.cumsum(each["seq_lengths"])[:-1] for each in examples]
            pairs = zip(examples, ends, strict=True)
            rows = [piece for each, borders in pairs for piece in np.split(np.array(each["input_ids"]), borders)]
        found[step] = sorted(hashlib.sha256(row.astype(np.int64).tobytes()).hexdigest()[:12] for row in rows)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "resumed_on"), [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("name", PACKAGES)
def test_a_killed_training_goes_on_with_the_same_batches_and_losses(name, ranks, resumed_on, shards, tmp_path):
    for package in PACKAGES[name]:
        pytest.importorskip(package, reason=f"the example of {name} needs {package}")
    killed, before = train(name, shards, tmp_path / "out", kill_after=11, ranks=ranks)
    resumed, after = train(name, shards, tmp_path / "out", ranks=resumed_on)
    assert {step: before[step] for step in range(1, 9)} | after == wanted_rows(name, shards)
    twice = {place: loss for place, loss in killed.items() if place[0] > 8}
    assert {place[0] for place in twice} >= {9, 10}
    if ranks == resumed_on:
        assert twice == {place: resumed[place] for place in twice}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_torchtitans_own_loader_resumes_each_rank(workers, shards):
    titan = pytest.importorskip("torchtitan.components.dataloader", reason="the loader is torchtitan's")

    def load(rank):
        feed = lc.loading.Packed(shards, max_length=LENGTH, batch_size=ROWS // 2, rank=rank, world_size=2)
        options = {"batch_size": None, "num_workers": workers, "collate_fn": lc.loading.collators.for_torchtitan}
        return titan.ParallelAwareDataloader(feed.iterable(), rank, 2, **options)

    def plain(batches):
        return [([inputs[name].tolist() for name in sorted(inputs)], labels.tolist()) for inputs, labels in batches]

    whole, stopped = ([load(rank) for rank in range(2)] for _ in range(2))
    for loader in stopped:
        for _, _ in zip(range(5), loader, strict=False):
            pass
    states = stopped[0].state_dict() | stopped[1].state_dict()  # as a distributed checkpoint joins them
    assert states.keys() == {"dp_rank_0", "dp_rank_1", "world_size"}
    for rank, loader in enumerate(whole):
        again = load(rank)
        again.load_state_dict(states)
        assert plain(again) == plain(loader)[5:]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["causal", "sdpa_mask"])
def test_gpt_simple_trains_on_a_feed_and_goes_on(attention, tmp_path, monkeypatch, load_trainer, write_shards):
    train = pytest.importorskip("gpt_simple.train", reason="pip install --no-deps gpt-simple-lm")
    from gpt_simple import _train_loop, _train_setup
    from gpt_simple.config import Config, CurriculumPhase

    monkeypatch.setattr(_train_setup, "StreamingDataModule", _train_setup.StreamingDataModule)
    load_trainer(Path(__file__).parents[2] / "examples" / "train_gpt_simple.py").use_feeds()
    for name in ("train/web", "train/code", "val/web", "val/code"):
        write_shards(tmp_path / "data" / name, [3 + 5 * number % 20 for number in range(80)], 1 + len(name))
    word_tokenizer(0, 2000).save_pretrained(tmp_path / "tokenizer")
    seen, losses, computed = [], [], _train_loop._compute_loss

    def noted(model, batch):
        loss = computed(model, batch)
        if model.training:
            seen.append(batch["input_ids"].tolist())
            losses.append(float(loss.detach()))
        return loss

    monkeypatch.setattr(_train_loop, "_compute_loss", noted)

    def go(out, steps=8):
        seen.clear(), losses.clear()
        made = Config()
        made.model.n_embd, made.model.n_layer, made.model.n_head, made.model.n_positions = 16, 1, 2, 48
        made.model.attention_mode = attention
        made.data.path, made.data.tokenizer, made.data.max_length = (
            str(tmp_path / "data"),
            str(tmp_path / "tokenizer"),
            48,
        )
        made.data.curriculum = [CurriculumPhase(200, {"web": 1.0}), CurriculumPhase(800, {"web": 0.5, "code": 0.5})]
        made.data.allow_budget_mismatch = made.data.allow_bucket_exhaustion = True
        settings = {"per_device_batch_size": 2, "gradient_accumulation_steps": 1, "max_steps": steps, "save_steps": 4}
        settings |= {"logging_steps": 1, "eval_steps": 4, "compile": False, "gradient_checkpointing": False}
        vars(made.training).update(settings, output_dir=str(out), mixed_precision="no")
        vars(made.optimizer).update(warmup_steps=1, decay_steps=8)
        train.train(config=made, skip_runtime_probe=True)
        return list(seen), list(losses)

    whole = go(tmp_path / "whole")
    go(tmp_path / "stopped", steps=4)
    again = go(tmp_path / "stopped")
    assert len(whole[0]) == 8
    assert again == (whole[0][4:], whole[1][4:])
