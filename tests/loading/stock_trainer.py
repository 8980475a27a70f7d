"""Train a tiny model with a stock Trainer on each kind of feed; as a script, on the ranks that torchrun starts."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zarr
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import longcrawl as lc
from longcrawl.errors import LoaderError

WORDS = 97
LENGTH = 24
END = 7
KINDS = ("rectangle", "packed", "windows", "buckets", "mixture")


def write(folder: Path, seed: int = 0) -> None:
    """Write 150 documents as shards, as a bucketed dataset with a loss mask, and as a rectangle with one."""
    chance = np.random.default_rng(seed)
    documents = [chance.integers(8, WORDS, length).tolist() for length in chance.integers(3, 40, 150)]
    masks = [(chance.random(len(each)) < 0.9).tolist() for each in documents]
    table = pa.table({"tokens": pa.array(documents, pa.list_(pa.uint16())), "loss_mask": masks})
    (folder / "shards").mkdir(parents=True)
    lc.formats.datatrove.write([table], folder / "shards" / "0.ds", end_of_text=END)
    named = table.append_column("id", pa.array([str(row) for row in range(150)]))
    lc.Crawl(Dataset(named)).to_composed(folder / "composed", capacities=[16, 48], end_of_text=END)
    tokens = chance.integers(8, WORDS, (40, 2 * LENGTH)).astype(np.uint16)
    made = zarr.create_array(folder / "train.zarr", shape=tokens.shape, dtype=np.uint16, chunks=(8, 16), zarr_format=2)
    made[:] = tokens


def open_feed(kind: str, folder: Path, **fields: Any) -> Any:
    """Open a feed as a Trainer takes it: without ranks, and with batches of one row but for buckets."""
    if kind == "windows":
        return lc.loading.Windows(
            folder / "shards", **{"seq_len": LENGTH - 1, "positions": "index", "shuffle": "windows"} | fields
        )
    if kind == "mixture":
        parts = {name: lc.loading.Windows(folder / "shards", LENGTH - 1, seed=seed) for seed, name in enumerate("ab")}
        return lc.loading.WindowMixture(parts, **{"curriculum": {"a": 0.7, "b": 0.3}, "epochs": 2} | fields)
    if kind == "packed":
        return lc.loading.Packed(folder / "shards", **{"max_length": 48} | fields)
    if kind == "buckets":
        return lc.loading.ComposedBatches(folder / "composed", **{"tokens_per_step": 96} | fields)
    return lc.loading.Rectangle(folder, **{"context_length": LENGTH, "pad_token": END} | fields)


class SeeingTrainer(Trainer):
    """Keeps the ids of each step; nothing of how it trains is changed."""

    def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
        """Train on a batch, and keep its ids."""
        vars(self).setdefault("seen", []).append(inputs["input_ids"].tolist())
        return super().training_step(model, inputs, *rest)


def train(
    feed: Any,
    out: Path,
    checkpoint: Path | None = None,
    dropout: float = 0.1,
    objects: Mapping[str, Any] | None = None,
    **settings: Any,
) -> SeeingTrainer:
    """Train 8 steps, with a checkpoint after 5, or the rest of them from a checkpoint on."""
    set_seed(1)
    ids = {"vocab_size": WORDS, "bos_token_id": END, "eos_token_id": END, "attn_implementation": "sdpa"}
    drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), dropout)
    model = GPT2LMHeadModel(GPT2Config(n_positions=64, n_embd=16, n_layer=2, n_head=2, **ids, **drops))
    # Two rows on each rank; of buckets a batch of the feed.
    rows = 1 if isinstance(feed, lc.loading.ComposedBatches) else 2
    defaults = {
        "per_device_train_batch_size": rows,
        "max_steps": 8,
        "save_steps": 5,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    arguments = TrainingArguments(str(out), **defaults | settings)
    trainer = SeeingTrainer(model, arguments, train_dataset=feed, **(objects or {}))
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    return trainer


def losses(trainer: Trainer) -> list[float]:
    """Return the loss of every step, those before a checkpoint too."""
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def resume_dispatched(folder: Path, out: Path) -> dict[str, Any]:
    """Train with batches that the first rank reads for all, and resume with and without that."""

    def go(*, dispatch: bool, checkpoint: Path | None = None) -> SeeingTrainer:
        feed = open_feed("packed", folder)
        check = {"callbacks": [lc.integrations.transformers.check_feed(feed)]}
        return train(feed, out, checkpoint, 0.0, check, accelerator_config={"dispatch_batches": dispatch})

    first = go(dispatch=True)
    try:
        refused = str(go(dispatch=True, checkpoint=out / "checkpoint-5").seen)
    except LoaderError as error:
        refused = str(error)
    again = go(dispatch=False, checkpoint=out / "checkpoint-5")
    return {"losses": losses(first), "seen": first.seen, "refused": refused, "again": losses(again)}


def main(folder: Path, out: Path) -> None:
    """Train on every feed without dropout, which ranks draw for themselves; write losses and ids of this rank."""
    made = {kind: train(open_feed(kind, folder), out / kind, dropout=0.0) for kind in KINDS}
    found = {kind: {"losses": losses(trainer), "seen": trainer.seen} for kind, trainer in made.items()}
    found["dispatched"] = resume_dispatched(folder, out / "dispatched")
    (out / f"{made['packed'].args.process_index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
