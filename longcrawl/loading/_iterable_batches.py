"""A feed's batches as torch's iterable dataset, whose worker processes have states of their own."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from longcrawl.errors import LoaderError
from longcrawl.loading._data_identity import changed_values
from longcrawl.loading._rectangle_workers import Feed

__all__ = ["ResumableFeed", "iterable_batches"]


class ResumableFeed(Feed, Protocol):
    """A feed for one rank, with a state."""

    def topology(self) -> dict[str, int]:
        """Give what this feed's part of a step depends on, beside its number."""

    def state_dict(self) -> dict[str, Any]:
        """Give what a resume needs."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


def _steps_of_pass(feed: ResumableFeed, start: Mapping[str, Any], epoch: int) -> range:
    """Give the steps that are left of the pass of a state, or all of the pass that is so many after it."""
    feed.load_state_dict(start)
    for _ in range(epoch):
        for last in feed.remaining_steps()[-1:]:
            feed.hand_out(last)
    return feed.remaining_steps()


def _topology(feed: ResumableFeed) -> dict[str, int]:
    """Tell who reads: which of how many worker processes, and for which rank."""
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    return {
        "num_workers": 0 if worker is None else worker.num_workers,
        "worker": 0 if worker is None else worker.id,
        **feed.topology(),
    }


def iterable_batches(feed: ResumableFeed) -> Any:
    """Give an ``IterableDataset`` of a feed's batches; the class is made here, as it derives from one of torch.

    Raises:
        LoaderError: torch is not installed.

    """
    try:
        from torch.utils.data import IterableDataset
    except ImportError as missing:
        raise LoaderError('iterable() needs torch: pip install "longcrawl[torch]"') from missing

    class FeedBatches(IterableDataset):  # type: ignore[misc]  # torch has no types here
        """Worker w of n takes every n-th step from the w-th on, so that a loader that asks them in turn has all."""

        def __init__(self) -> None:
            super().__init__()
            self._resumed = self._taken = self._epoch = 0
            self._start = feed.state_dict()

        def set_epoch(self, epoch: int) -> None:
            """Have the next iteration give the pass that is so many after the first one; accelerate calls this."""
            self._epoch = epoch

        def __iter__(self) -> Iterator[dict[str, Any]]:
            worker = _topology(feed)
            steps = _steps_of_pass(feed, self._start, self._epoch)[worker["worker"] :: max(worker["num_workers"], 1)]
            self._taken, self._resumed = self._resumed, 0
            for first in steps[self._taken :]:
                self._taken += 1
                yield feed.global_batch(first)

        def state_dict(self) -> dict[str, Any]:
            return {**_topology(feed), "epoch": self._epoch, "taken": self._taken, "start": self._start}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            changed = changed_values(state, _topology(feed))
            if changed:
                raise LoaderError(
                    f"this state is of one worker, and {', '.join(changed)}: keep a feed's own state_dict(), which "
                    "any of them can load"
                )
            self._start, self._resumed, self._taken = state["start"], state["taken"], state["taken"]
            self._epoch = state["epoch"]

        def __reduce__(self) -> tuple[Any, ...]:
            kept = {"_start": self._start, "_resumed": self._resumed, "_epoch": self._epoch}
            return iterable_batches, (feed,), kept

    return FeedBatches()
