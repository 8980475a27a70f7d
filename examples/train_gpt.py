"""Train a small GPT with a stock Trainer of transformers on the quickstart's documents, and go on with it exactly.

    pip install "longcrawl[torch]" accelerate
    python examples/train_gpt.py gpt                               # shards, then 100 steps, a checkpoint every 50
    python examples/train_gpt.py gpt --resume gpt/checkpoint-50    # steps 51 to 100 again: the same batches and losses
    torchrun --nproc-per-node 2 examples/train_gpt.py gpt          # once there are shards: the same, on two ranks

The model has GPT-2's architecture, a million parameters and random weights. The documents are those of
``longcrawl run quickstart``, written as token shards instead of a rectangle. Nothing is downloaded.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import longcrawl as lc


def make_shards(folder: Path, packages: Sequence[str] = (), vocabulary_size: int = 2048) -> None:
    """Write the documents of the quickstart as token shards: the stages of its recipe up to ``tokenize``."""
    crawl = lc.open("installed", packages=packages) | lc.text.MinChars(500) | lc.dedup.ExactDocuments()
    crawl = crawl | lc.tokens.Tokenize("trained", vocabulary_size=vocabulary_size)
    crawl.to_gpt_simple(folder, heldout=0.1)


def make_model(vocabulary_size: int, context_length: int) -> GPT2LMHeadModel:
    """Return a GPT-2 of about a million parameters, with random weights."""
    set_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary_size,
        n_positions=context_length,
        n_embd=128,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def make_trainer(
    out: Path, steps: int = 100, batch_size: int = 8, context_length: int = 128, num_workers: int = 0
) -> Trainer:
    """Return the trainer of the shards in ``out``; its checkpoints are written there, too."""
    settings = TrainingArguments(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=steps // 10,
        logging_steps=1,
        save_steps=steps // 2,
        dataloader_num_workers=num_workers,
        train_sampling_strategy="sequential",  # the feed has an order of its own
        use_cpu=not torch.cuda.is_available(),  # has torchrun make ranks of processes on a CPU, too
        disable_tqdm=True,
        report_to="none",
        seed=0,
    )
    feed = lc.loading.Packed(out / "shards", max_length=context_length)  # the Trainer has batches and ranks
    vocabulary_size = json.loads((out / "shards/gpt-simple.json").read_text())["vocabulary_size"]
    return Trainer(make_model(vocabulary_size, context_length), settings, train_dataset=feed)


def train(trainer: Trainer, checkpoint: Path | None = None) -> list[float]:
    """Train, from the start or from a checkpoint on; gives the loss of every step, those before it too."""
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def main() -> None:
    """Read what was typed, train, and say how the loss fell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--num-workers", type=int, default=0)
    options = parser.parse_args()
    if not (options.out / "shards/gpt-simple.json").exists():
        make_shards(options.out / "shards")
    trainer = make_trainer(options.out, options.steps, num_workers=options.num_workers)
    losses = train(trainer, options.resume)
    print(f"{trainer.model.num_parameters():,} parameters, {len(losses)} steps")
    print(f"loss: {fmean(losses[:10]):.4f} in the first ten steps, {fmean(losses[-10:]):.4f} in the last ten")


if __name__ == "__main__":
    main()
