"""Train with GPT-Simple's own trainer, on a feed of longcrawl: its configuration, model, checkpoints and curriculum.

    pip install longcrawl && pip install --no-deps gpt-simple-lm==0.1.2 && pip install accelerate
    python examples/train_gpt_simple.py config.yaml
    torchrun --nproc-per-node 2 examples/train_gpt_simple.py config.yaml

``config.yaml`` is GPT-Simple's, with ``data.format: pretokenized``. The same command resumes a stopped training at the
batch after its last checkpoint, on any number of ranks. GPT-Simple 0.1.2 asks for NumPy 1, and works with NumPy 2.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from gpt_simple import _train_setup
from gpt_simple._logging import setup_logging
from gpt_simple.config import Config
from gpt_simple.data import StreamingDataModule
from gpt_simple.train import train

import longcrawl as lc
from longcrawl.loading.curriculum import ConfiguredPhases


@dataclass
class Place:
    """Place that GPT-Simple stores with each batch: the feed's state after it. Our curriculum ends by itself."""

    feed: dict[str, Any]
    exhausted_buckets: list[str] = field(default_factory=list)


class FeedModule(StreamingDataModule):
    """GPT-Simple's data module over ``lc.loading.Packed``, which also draws the phases of the curriculum."""

    def prepare_data(self) -> None:
        """Open the feeds of this rank."""
        rank = torch.distributed.get_rank() if self.world_size > 1 else 0
        phases = [lc.loading.Phase(each.duration_tokens, each.mix) for each in self.config.curriculum or ()]
        curriculum = ConfiguredPhases(phases, packed=self.config.packing, uniform=not phases)
        batches = {"max_length": self.config.max_length, "batch_size": self.per_device_batch_size}
        batches |= {"pad_token": self.tokenizer.pad_token_id, "positions": "continuous"}
        self.train_feed = lc.loading.Packed(
            self.config.path,
            curriculum,
            on_exhausted="renormalize" if self.config.allow_bucket_exhaustion else "error",
            rank=rank,
            world_size=self.world_size,
            **batches,
        )
        self.val_feed = lc.loading.Packed(self.config.path, split="val", last_batch="fill", **batches)

    def set_phase(self, phase_idx: int) -> None:
        """Do nothing: the feed knows in which phase a batch is."""

    def train_dataloader(self) -> Iterator[dict[str, Any]]:
        """Yield the batches that are left."""
        for batch in self.train_feed:
            yield self.inputs(batch) | {"_cursor": (0, Place(self.train_feed.state_dict()))}

    def val_dataloader(self) -> list[dict[str, Any]]:
        """Return the batches of the validation split, the same on every rank."""
        return [self.inputs(self.val_feed[number]) for number in range(len(self.val_feed))]

    def inputs(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return what GPT-Simple's model takes; it shifts labels itself."""
        names = ("input_ids", "labels") + (() if self.attention_mode == "causal" else ("doc_ids",))
        made = {name: torch.from_numpy(batch[name]) for name in names}
        lengths = torch.from_numpy(batch["n_tokens"])
        made["attention_mask"] = (torch.arange(self.config.max_length) < lengths[:, None]).long()
        return made

    def make_dataloader_state(self, worker_states: dict[int, Place], rank: int) -> dict[str, Any]:
        """Return what a checkpoint keeps; the same on every rank."""
        return {"rank": rank, "feed": worker_states[0].feed if worker_states else self.train_feed.state_dict()}

    def apply_dataloader_state(self, states: list[dict[str, Any]] | None) -> None:
        """Resume from a checkpoint; other data or another plan are an error."""
        if states:
            self.train_feed.load_state_dict(states[0]["feed"])


def use_feeds() -> None:
    """Let GPT-Simple's trainer take its batches from feeds."""
    _train_setup.StreamingDataModule = FeedModule


if __name__ == "__main__":
    setup_logging()
    use_feeds()
    train(config=Config.from_file(sys.argv[1]))
