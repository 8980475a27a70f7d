"""Train a small GPT with transformers' Trainer on the quickstart's documents, and go on with it exactly.

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
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import longcrawl as lc

STATE = "feed.json"


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


class FeedTrainer(Trainer):
    """A trainer that reads a feed.

    The feed has the ranks, the order and the workers. So its loader is not given to ``accelerate``, whose own loader
    would deal batches out to ranks once more, and read one ahead, which a state would then count as trained on.
    """

    def __init__(self, feed: lc.loading.Packed, **settings: Any) -> None:
        super().__init__(callbacks=[KeepFeedState(feed)], **settings)
        self.feed = feed

    def get_train_dataloader(self) -> Any:
        """Return the batches that are left, as a model of transformers takes them."""
        return self.feed.dataloader(self.args.dataloader_num_workers, collate_fn=lc.loading.collators.for_transformers)


class KeepFeedState(TrainerCallback):
    """Writes the feed's state into each checkpoint. It is the same on every rank."""

    def __init__(self, feed: lc.loading.Packed) -> None:
        self.feed = feed

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002  # Trainer's
        """Follow the model into its folder."""
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (checkpoint / STATE).write_text(json.dumps(self.feed.state_dict()))


def make_trainer(
    out: Path, steps: int = 100, batch_size: int = 8, context_length: int = 128, num_workers: int = 0
) -> FeedTrainer:
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
        ignore_data_skip=True,  # the feed stands where it stood; Trainer would read and throw away what came before
        use_cpu=not torch.cuda.is_available(),  # has torchrun make ranks of processes on a CPU, too
        disable_tqdm=True,
        report_to="none",
        seed=0,
    )
    feed = lc.loading.Packed(
        out / "shards",
        max_length=context_length,
        batch_size=batch_size,
        rank=settings.process_index,
        world_size=settings.world_size,
    )
    vocabulary_size = json.loads((out / "shards/gpt-simple.json").read_text())["vocabulary_size"]
    return FeedTrainer(feed, model=make_model(vocabulary_size, context_length), args=settings)


def train(trainer: FeedTrainer, checkpoint: Path | None = None) -> list[float]:
    """Train, from the start or from a checkpoint on; gives the loss of every step, those before it too."""
    if checkpoint is not None:
        trainer.feed.load_state_dict(json.loads((checkpoint / STATE).read_text()))
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
