"""A callback for transformers' Trainer: it checks what a feed cannot see of the training that reads it."""

from collections.abc import Mapping
from typing import Any

from longcrawl.errors import LoaderError, warn_user
from longcrawl.loading.collators import for_flash_attention
from longcrawl.loading.feed import Feed, FeedLoader
from longcrawl.loading.windows import Windows

NAME = "FeedCheck"
"""The entry of its state in `trainer_state.json`."""
SAMPLES = "samples_per_step"


def check_feed(feed: Feed | Windows) -> Any:
    """Return a ``TrainerCallback`` that compares the data with those of a checkpoint, and checks the collator.

    A Trainer resumes by counting batches, of whatever data and sizes it finds. This callback writes the feed's state
    into `trainer_state.json`, with the samples of a step, and compares both when a training begins from a checkpoint.

    >>> trainer = Trainer(model, args, train_dataset=feed, callbacks=[check_feed(feed)])  # doctest: +SKIP

    Raises:
        LoaderError: when the training begins: the data, or the plan up to the checkpoint, are others; or the Trainer's
            collator or attention would let documents of a row see each other; or the training would go on at another
            sample than the one after the checkpoint's.
    """
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
    from transformers.trainer_utils import has_length

    read = feed.batches() if isinstance(feed, Windows) else feed
    # Of JSON lines the data and settings are compared: their plan is known only once they are tokenised.
    steps = len(read) if has_length(read) else 0

    class FeedCheck(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers has no types here
        def __init__(self) -> None:
            self._items = self._of_step = 0

        def state(self) -> dict[str, Any]:
            position = min(self._items, steps) * read.step_size
            head = read.state_dict() | {"position": position}
            attributes = {"feed": head | dict(read.identity(position)), SAMPLES: self._of_step}
            return {"args": {}, "attributes": attributes}

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002  # Trainer's
            self._of_step = samples_per_step(args)
            self._items = state.global_step * self._of_step

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002  # as above
            if "position_ids" in feed.__getitems__([0])[0]:
                check_documents(args, more.get("model"), more.get("train_dataloader"))
            if state.global_step:
                check_resume(args, more.get("train_dataloader"))
            # Trainer updates the entry where a checkpoint has one.
            kept = state.stateful_callbacks.setdefault(NAME, None)
            if kept is None:
                state.stateful_callbacks[NAME] = self.state()
                warn_user("the checkpoint has no state of a feed: its data are not compared with those here")
                return
            saved = kept[-1] if isinstance(kept, list) else kept
            read.compare(saved["attributes"]["feed"])
            if state.global_step and not isinstance(more.get("train_dataloader"), FeedLoader):
                check_position(args, state.global_step, saved["attributes"].get(SAMPLES))

    return FeedCheck()


def samples_per_step(args: Any) -> int:
    """Return how many samples a step of a Trainer takes, on all ranks."""
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


def check_position(args: Any, steps: int, before: int | None) -> None:
    """Check that a Trainer goes on at the sample after those of a checkpoint.

    Args:
        args: of the Trainer.
        steps: of the checkpoint.
        before: samples of each of them; None where the checkpoint does not have it.

    Raises:
        LoaderError: it begins the epoch again, or counts other steps.
    """
    now = samples_per_step(args)
    if args.ignore_data_skip:
        raise LoaderError(
            f"with ignore_data_skip the epoch begins again after {steps:,} steps: leave it out, or override "
            "get_train_dataloader with the feed's own loader and state"
        )
    if before not in (None, now):
        raise LoaderError(
            f"the checkpoint had {before} samples a step, {steps * before:,} in all, and this training goes on at "
            f"{steps * now:,}: keep per_device_train_batch_size x gradient_accumulation_steps x ranks"
        )


def check_documents(args: Any, model: Any, loader: Any) -> None:
    """Check that documents of a row stay apart.

    Raises:
        LoaderError: the collator adds a mask, or FlashAttention gets several rows, whose positions it does not look at.
    """
    from transformers import DataCollatorWithPadding

    collate = getattr(loader, "collate_fn", None)
    collate = getattr(collate, "data_collator", collate)
    configuration: Mapping[str, Any] | Any = getattr(model, "config", None)
    attention = str(getattr(configuration, "_attn_implementation", None))
    if isinstance(collate, DataCollatorWithPadding):
        raise LoaderError(
            "the Trainer's collator for a tokenizer adds a mask with which documents of a row see each other: pass "
            "data_collator=longcrawl.loading.collators.for_transformers"
        )
    if "flash" in attention and args.train_batch_size > 1 and collate is not for_flash_attention:
        raise LoaderError(
            f"{attention} separates documents only in one row: pass "
            "data_collator=longcrawl.loading.collators.for_flash_attention, or per_device_train_batch_size=1"
        )


def check_resume(args: Any, loader: Any) -> None:
    """Check that what is skipped on resume is what was trained on.

    Raises:
        LoaderError: one rank reads for all, and accelerate would skip only the batches of one.
    """
    from torch.utils.data import IterableDataset

    # By name: whoever trains has accelerate, which longcrawl does not ask for.
    dispatches = "DataLoaderDispatcher" in {kind.__name__ for kind in type(loader).__mro__}
    dispatched = dispatches and not loader.split_batches
    if dispatched and args.world_size > 1 and not isinstance(loader.dataset, IterableDataset):
        raise LoaderError(
            f"with dispatch_batches accelerate skips too few batches for {args.world_size} ranks: resume with "
            "accelerator_config={'dispatch_batches': False}, whose batches are the same"
        )
