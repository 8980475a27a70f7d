"""Callback for transformers' Trainer that checks settings of the training that a feed cannot see."""

from typing import Any

from longcrawl.errors import LoaderError, warn_user
from longcrawl.loading.collators import for_flash_attention
from longcrawl.loading.feed import Feed, FeedLoader
from longcrawl.loading.windows import Windows

NAME = "FeedCheck"
"""Key of the callback's state in `trainer_state.json`."""
SAMPLES = "samples_per_step"


def check_feed(feed: Feed | Windows) -> Any:
    """Return a ``TrainerCallback`` that compares the data with those of a checkpoint and checks the collator.

    A Trainer resumes by counting batches, without comparing their data and sizes. This callback writes the feed's state
    and the samples per step into `trainer_state.json`, and compares both when training resumes from a checkpoint.

    >>> trainer = Trainer(model, args, train_dataset=feed, callbacks=[check_feed(feed)])  # doctest: +SKIP

    Raises:
        LoaderError: at the start of training: the data, or the plan up to the checkpoint, differ; documents of a row
            would attend to each other; or training would not continue at the sample after the checkpoint.
    """
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
    from transformers.trainer_utils import has_length

    read = feed.batches() if isinstance(feed, Windows) else feed
    # For JSON lines, only data and settings are compared: their plan is unknown until they are tokenised.
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

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002  # Trainer's
            if "position_ids" in feed.__getitems__([0])[0]:
                check_documents(args, more.get("model"), more.get("train_dataloader"))
                check_context(args, feed)
            if state.global_step:
                check_resume(args, more.get("train_dataloader"))
            # Trainer has updated the entry if the checkpoint has one.
            kept = state.stateful_callbacks.setdefault(NAME, None)
            if kept is None:
                state.stateful_callbacks[NAME] = self.state()
                warn_user("the checkpoint has no feed state: its data cannot be compared with those here")
                return
            saved = kept[-1] if isinstance(kept, list) else kept
            read.compare(saved["attributes"]["feed"])
            if state.global_step and not isinstance(more.get("train_dataloader"), FeedLoader):
                check_position(args, state.global_step, saved["attributes"].get(SAMPLES))

    return FeedCheck()


def samples_per_step(args: Any) -> int:
    """Return the number of samples per step of a Trainer; ranks that share their samples count once."""
    parallelism = getattr(args, "parallelism_config", None)
    sharing = 1 if parallelism is None else parallelism.non_data_parallel_size
    return int(args.train_batch_size * args.gradient_accumulation_steps * (args.world_size // sharing))


def check_position(args: Any, steps: int, before: int | None) -> None:
    """Check that a Trainer continues after the samples of a checkpoint: steps of ``before`` samples, if known."""
    now = samples_per_step(args)
    if args.ignore_data_skip:
        raise LoaderError(
            f"with ignore_data_skip the epoch starts over after {steps:,} steps: remove it, or override "
            "get_train_dataloader with the feed's own loader and state"
        )
    if before not in (None, now):
        raise LoaderError(
            f"the checkpoint had {before} samples a step, {steps * before:,} in all, and this training goes on at "
            f"{steps * now:,}: keep per_device_train_batch_size x gradient_accumulation_steps x ranks"
        )


def check_documents(args: Any, model: Any, loader: Any) -> None:
    """Check that documents of a row cannot attend to each other: by a mask, or in several rows by FlashAttention."""
    from transformers import DataCollatorWithPadding

    collate = getattr(loader, "collate_fn", None)
    collate = getattr(collate, "data_collator", collate)
    attention = str(getattr(getattr(model, "config", None), "_attn_implementation", None))
    if isinstance(collate, DataCollatorWithPadding):
        raise LoaderError(
            "the Trainer's collator for a tokenizer adds a mask that lets documents in a row attend to each "
            "other: pass data_collator=longcrawl.loading.collators.for_transformers"
        )
    if "flash" in attention and args.train_batch_size > 1 and collate is not for_flash_attention:
        raise LoaderError(
            f"{attention} separates documents only in one row: pass "
            "data_collator=longcrawl.loading.collators.for_flash_attention, or per_device_train_batch_size=1"
        )


def check_context(args: Any, feed: Any) -> None:
    """Check that rows of several documents are not divided among ranks, because accelerate would drop their mask."""
    parallelism = getattr(args, "parallelism_config", None)
    if parallelism is not None and parallelism.cp_size > 1 and getattr(feed, "packing", None) != "separate":
        raise LoaderError(
            f"with cp_size={parallelism.cp_size} accelerate lets documents in a row attend to each other: set "
            "packing='separate' or, if that is intended, remove this callback"
        )


def check_resume(args: Any, loader: Any) -> None:
    """Check that a resume skips exactly the batches that were trained on, even if one rank reads for all."""
    from torch.utils.data import IterableDataset

    # Compared as a name, because longcrawl does not depend on accelerate.
    dispatches = any(kind.__name__ == "DataLoaderDispatcher" for kind in type(loader).__mro__)
    if dispatches and not (loader.split_batches or args.world_size == 1 or isinstance(loader.dataset, IterableDataset)):
        raise LoaderError(
            f"with dispatch_batches accelerate skips too few batches for {args.world_size} ranks: resume with "
            "accelerator_config={'dispatch_batches': False}, whose batches are the same"
        )
