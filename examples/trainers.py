"""Train a tiny GPT on token shards with grain, torchtitan's checkpoints, Lightning, accelerate or TRL, and resume it.

    longcrawl tokenize texts.jsonl --tokenizer trained --max-length 128 --output-dir tokenized
    python examples/trainers.py lightning tokenized/gpt-simple out

Stop it at any time, even with ``kill -9``: the same command resumes after the last checkpoint with the same batches.
Copy the function of your trainer. A line for each step has the step, the loss and a digest of each row, so that you can
compare two runs.
"""

import argparse
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import longcrawl as lc
from longcrawl.loading import collators

ROWS, LENGTH = 4, 128
"""Rows of a step on all ranks together, and tokens of a row."""
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def open_feed(shards: Path) -> lc.loading.Packed:
    """Return the feed of this rank, which torchrun names in the environment."""
    return lc.loading.Packed(shards, max_length=LENGTH, batch_size=ROWS // RANKS, rank=RANK, world_size=RANKS)


def vocabulary_size(shards: Path) -> int:
    """Return the recorded size of the vocabulary, or one that the largest id needs."""
    feed = open_feed(shards)
    opened = (shard for bucket in feed.buckets.values() for shard in bucket.shards)
    return feed.recorded.vocabulary_size or 1 + max(int(shard.tokens.max()) for shard in opened)


def make_model(shards: Path) -> GPT2LMHeadModel:
    """Return a tiny GPT-2 without dropout, so that losses can be compared."""
    torch.manual_seed(0)
    drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    ids = {"vocab_size": vocabulary_size(shards), "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, **ids, **drops))


def report(step: int, loss: Any, rows: Iterable[torch.Tensor]) -> None:
    """Print a line for a step."""
    digests = (hashlib.sha256(row.to(torch.int64).numpy().tobytes()).hexdigest()[:12] for row in rows)
    print("step", step, float(loss.detach()), *digests, flush=True)


def plain_model(shards: Path) -> tuple[Any, Any]:
    """Return a model and its optimizer for a loop of one's own, on one rank or several."""
    model: Any = make_model(shards)
    if RANKS > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), 1e-2)


def train_step(model: Any, optimizer: Any, inputs: Mapping[str, Any]) -> Any:
    """Train on a batch, and return its loss."""
    loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def with_grain(shards: Path, out: Path, steps: int, every: int, workers: int) -> None:
    """Train with a feed as a data source of grain; the state is grain's, a number of steps."""
    import grain

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)  # grain's default reads 500 batches ahead
    dataset = grain.MapDataset.source(open_feed(shards)).to_iter_dataset(options)
    if workers:
        dataset = dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=workers))
    batches = iter(dataset)
    model, optimizer = plain_model(shards)
    bare = getattr(model, "module", model)  # without the wrapper of several ranks, whose number may change
    first, file = 0, out / "checkpoint.pt"
    if file.exists():
        saved = torch.load(file)
        bare.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.set_state(saved["batches"])
        first = saved["step"]
    for step in range(first + 1, steps + 1):
        inputs = collators.for_transformers(next(batches))
        report(step, train_step(model, optimizer, inputs), inputs["input_ids"])
        if step % every == 0 and RANK == 0:
            states = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "batches": batches.get_state()}
            torch.save({"step": step, **states}, file.with_suffix(".part"))
            file.with_suffix(".part").rename(file)


def with_torchtitan(shards: Path, out: Path, steps: int, every: int, workers: int) -> None:
    """Train with a loader of torchtitan's interface, whose state torch.distributed.checkpoint writes."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torchtitan.components.dataloader import BaseDataLoader

    class FeedDataLoader(BaseDataLoader):  # type: ignore[misc]  # torchtitan is not installed where types are checked
        """A feed, whose state is the same on all ranks and valid for any number of them."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):  # type: ignore[misc]  # nor is this
            """Settings that torchtitan's Trainer takes as ``dataloader``; ``dataset_path`` is the folder of shards."""

            num_workers: int = 0

        def __init__(
            self, config: Config, *, dp_rank: int, dp_world_size: int, local_batch_size: int, seq_len: int, **_: Any
        ) -> None:
            ranks = {"rank": dp_rank, "world_size": dp_world_size}
            self.feed = lc.loading.Packed(config.dataset_path, max_length=seq_len, batch_size=local_batch_size, **ranks)
            self.workers = config.num_workers

        def __iter__(self) -> Iterator[Any]:
            yield from self.feed.dataloader(self.workers, collate_fn=collators.for_torchtitan)

        def state_dict(self) -> dict[str, Any]:
            # One value: a checkpoint is read by the keys of the state there is, and those of a feed depend on its step.
            return {"feed": json.dumps(self.feed.state_dict())}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.feed.load_state_dict(json.loads(state["feed"]))

    settings = FeedDataLoader.Config(dataset_path=str(shards), num_workers=workers)
    # Its Trainer builds the loader with these.
    given = {"dp_rank": RANK, "dp_world_size": RANKS, "local_batch_size": ROWS // RANKS, "seq_len": LENGTH}
    loader = settings.build(**given)
    model, optimizer = plain_model(shards)
    number = lambda path: int(path.name.removeprefix("step-"))  # noqa: E731
    # The file .metadata is the last one that is written.
    last = max((file.parent for file in out.glob("step-*/.metadata")), key=number, default=None)
    first = 0
    if last:
        first = number(last)
        models, optimizers = get_state_dict(model, optimizer)
        states: dict[str, Any] = {"model": models, "optimizer": optimizers, "dataloader": loader}
        checkpoint.load(states, checkpoint_id=str(last))
        set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    for step, (inputs, labels) in zip(range(first + 1, steps + 1), loader, strict=False):
        # A model of transformers shifts labels itself.
        following = torch.nn.functional.pad(labels, (1, 0), value=-100)[:, :-1]
        named = {"input_ids": inputs["input"], "position_ids": inputs["positions"], "labels": following}
        report(step, train_step(model, optimizer, named | {"use_cache": False}), inputs["input"])
        if step % every == 0:
            models, optimizers = get_state_dict(model, optimizer)
            states = {"model": models, "optimizer": optimizers, "dataloader": loader}
            checkpoint.save(states, checkpoint_id=str(out / f"step-{step}"))


def with_lightning(shards: Path, out: Path, steps: int, every: int, workers: int) -> None:
    """Train with Lightning, whose checkpoints have the state of the feed's loader."""
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]  # Lightning is not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model(shards)

        def training_step(self, batch: Any, number: int) -> Any:  # noqa: ARG002  # Lightning's
            loss = self.model(**batch).loss
            report(self.global_step + 1, loss, batch["input_ids"])
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    saved = lightning.pytorch.callbacks.ModelCheckpoint(out, every_n_train_steps=every, save_last=True)
    settings = {"accelerator": "cpu", "devices": RANKS, "callbacks": [saved], "max_steps": steps}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    loader = open_feed(shards).dataloader(workers, collate_fn=collators.for_transformers)
    last = str(out / "last.ckpt") if (out / "last.ckpt").exists() else None
    lightning.Trainer(**settings, **quiet).fit(Module(), loader, ckpt_path=last)


def with_accelerate(shards: Path, out: Path, steps: int, every: int, workers: int) -> None:
    """Train with accelerate, whose checkpoints have the state of the feed."""
    from accelerate import Accelerator
    from accelerate.utils import send_to_device

    accelerator = Accelerator(cpu=True)
    feed, model = open_feed(shards), make_model(shards)
    made = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-2))
    accelerator.register_for_checkpointing(feed)
    number = lambda path: int(path.name.removeprefix("step-"))  # noqa: E731
    last = max((path for path in out.glob("step-*") if path.suffix != ".part"), key=number, default=None)
    first = 0
    if last:
        accelerator.load_state(str(last))
        first = number(last)
    loader = feed.dataloader(workers, collate_fn=collators.for_transformers)  # not prepared: the feed has ranks
    for step, inputs in zip(range(first + 1, steps + 1), loader, strict=False):
        report(step, train_step(*made, send_to_device(inputs, accelerator.device)), inputs["input_ids"])
        if step % every == 0:
            accelerator.save_state(str(out / f"step-{step}.part"))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                (out / f"step-{step}.part").rename(out / f"step-{step}")


def with_trl(shards: Path, out: Path, steps: int, every: int, workers: int) -> None:
    """Train with TRL's SFTTrainer, which resumes by reading all earlier samples again."""
    import datasets
    import trl
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from transformers.trainer_utils import get_last_checkpoint

    class Reporting(trl.SFTTrainer):  # type: ignore[misc]  # TRL is not installed where types are checked
        def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
            loss = super().training_step(model, inputs, *rest)
            starts = (inputs["position_ids"][0] == 0).nonzero().flatten().tolist()
            report(self.state.global_step + 1, loss, inputs["input_ids"][0].tensor_split(starts[1:]))
            return loss

    def examples(feed: lc.loading.Packed) -> Iterator[dict[str, Any]]:
        for number in range(len(feed)):
            yield from collators.for_trl(feed[number])

    feed = lc.loading.Packed(shards, max_length=LENGTH)  # ranks and batches are the trainer's
    dataset = datasets.IterableDataset.from_generator(examples, gen_kwargs={"feed": feed})
    words = Tokenizer(models.WordLevel({"w": 0}, unk_token="w"))  # noqa: S106
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w", pad_token="w")  # noqa: S106
    settings: dict[str, Any] = {"padding_free": True, "max_length": None}
    settings |= {"dataset_kwargs": {"skip_prepare_dataset": True}}
    settings |= {"max_steps": steps, "save_steps": every, "per_device_train_batch_size": ROWS // RANKS}
    settings |= {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    arguments = trl.SFTConfig(str(out), dataloader_num_workers=min(workers, 1), **settings)
    trainer = Reporting(make_model(shards), args=arguments, train_dataset=dataset, processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(out)))


TRAINERS: dict[str, Callable[[Path, Path, int, int, int], None]] = {
    "grain": with_grain,
    "torchtitan": with_torchtitan,
    "lightning": with_lightning,
    "accelerate": with_accelerate,
    "trl": with_trl,
}


def main() -> None:
    """Train with one of the trainers, from the last checkpoint on if there is one."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("shards", type=Path, help="a folder of token shards")
    parser.add_argument("out", type=Path, help="the folder of checkpoints")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="processes that read")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    TRAINERS[given.trainer](given.shards, given.out, given.steps, given.save_every, given.workers)


if __name__ == "__main__":
    main()
