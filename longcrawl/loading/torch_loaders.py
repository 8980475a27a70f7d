"""Feeds in torch's loaders: a feed's own, datasets for others, and rows for those that make batches themselves."""

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from longcrawl.errors import LoaderError, warn_user
from longcrawl.loading._data_identity import changed_values
from longcrawl.loading.collators import for_transformers

if TYPE_CHECKING:
    from longcrawl.loading.feed import Feed

Items = Literal["batches", "rows"]
"""What :meth:`Feed.iterable` yields."""


def rows_of(batch: dict[str, Any]) -> list[dict[str, npt.NDArray[Any]]]:
    """Return the rows of a batch of any feed as ``collators.for_transformers`` has them, one dictionary for each.

    Any collator that stacks arrays makes a batch of them again, such as those of torch and of transformers.
    """
    made = for_transformers(batch, tensors="numpy")
    del made["use_cache"]
    return [{name: values[row] for name, values in made.items()} for row in range(len(made["input_ids"]))]


class AskedOrder:
    """The order in which one process of a loader asks for groups of numbers.

    In order they rise, and fall only to where a pass begins: below all numbers before, or where an earlier fall went.
    In a shuffled order a number falls elsewhere soon.

    >>> order = AskedOrder()
    >>> [order.follows(group) for group in ([4, 5], [8, 9], [0, 1], [4, 5], [2, 3])]
    [True, True, True, True, False]
    """

    def __init__(self) -> None:
        self._last = -1
        self._starts: set[int] = set()

    def follows(self, group: list[int]) -> bool:
        """Note a group, and return whether it is in order."""
        first = group[0]
        # A loader of several ranks fills its last group up with the first numbers.
        inside = all(after in (before + 1, 0) for before, after in itertools.pairwise(group))
        if first < min(self._starts, default=first + 1):
            self._starts.add(first)
        rises = first >= self._last or first in self._starts
        self._last = first
        return inside and rises


def check_alone(feed: "Feed", workers: int = 0) -> None:
    """Check that ranks are the DataLoader's alone, and that its workers keep the order of rows.

    Raises:
        LoaderError: the feed has ranks, or there are several workers.
    """
    if feed.world_size > 1:
        raise LoaderError(
            f"the DataLoader divides batches among ranks, and this feed has world_size={feed.world_size}: open it "
            "without rank and world_size, or use feed.dataloader()"
        )
    if workers > 1:
        raise LoaderError(
            f"the order of iterable('rows') would depend on the {workers} workers: set num_workers "
            "(dataloader_num_workers) to 0 or 1"
        )


def check_asked(feed: "Feed", indices: list[int]) -> None:
    """Check that a DataLoader leaves ranks, batches and order to one side, itself or the feed.

    Raises:
        LoaderError: both have ranks or batches, or the DataLoader shuffles a curriculum.
    """
    check_alone(feed)
    if len(indices) > 1 and feed.most_rows > 1:
        raise LoaderError(
            f"the DataLoader asks for {len(indices)} batches of up to {feed.most_rows} rows at once: set "
            f"batch_size (per_device_train_batch_size) of the DataLoader{feed.or_its_own} to 1"
        )
    order: AskedOrder = vars(feed).setdefault("_asked", AskedOrder())
    if order.follows(indices):
        return
    shuffled = (
        f"the DataLoader asks for batches of {feed.source_name} in another order than theirs: set shuffle=False, or "
        "train_sampling_strategy='sequential' in TrainingArguments"
    )
    if feed.ordered:
        raise LoaderError(f"{shuffled}, as a curriculum or schedule is such an order")
    warn_user(f"{shuffled}, unless you want that")


class FeedLoader:
    """Torch tensors in the order of a feed, read by ``num_workers`` processes, each with caches of its own."""

    def __init__(self, feed: "Feed", num_workers: int, options: dict[str, Any]) -> None:
        self._data = _torch_data("dataloader")
        taken = [name for name in options if name in feed.fixed_options]
        if taken:
            raise LoaderError(f"{', '.join(taken)} cannot be set, as {feed.fixed_because}: leave it out")
        import torch

        # A loader draws a seed for its workers; from torch's own generator, that would change dropout after a resume.
        self._options = {"num_workers": num_workers, "generator": torch.Generator(), **options}
        self._feed = feed

    def __len__(self) -> int:
        """Return the batches of a full pass on this rank; the first pass after a resume has only the rest."""
        return len(self._feed)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rest of the pass, or a new pass where the last one is over."""
        pieces = self._data.DataLoader(_iterable_pieces(self._feed), batch_size=None, **self._options)
        for batch in self._feed.deliver(pieces):
            yield batch if "collate_fn" in self._options else self._data.default_convert(batch)


def _torch_data(method: str) -> Any:
    try:
        import torch.utils.data
    except ImportError as missing:
        raise LoaderError(f'{method}() needs torch: pip install "longcrawl[torch]"') from missing
    return torch.utils.data


def _worker() -> tuple[int, int]:
    """Return which worker process this is, and how many there are; without workers, 0 of 0."""
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    return (0, 0) if worker is None else (worker.id, worker.num_workers)


def _reader(feed: "Feed") -> dict[str, int]:
    worker, workers = _worker()
    return {"num_workers": workers, "worker": worker, **feed.topology()}


def _iterable_pieces(feed: "Feed") -> Any:
    """Return a torch dataset of what worker processes make; the class is made here, as it derives from torch's."""

    class Pieces(_torch_data("dataloader").IterableDataset):  # type: ignore[misc]  # torch has no types here
        def __iter__(self) -> Iterator[Any]:
            worker, workers = _worker()
            return feed.pieces(worker, max(workers, 1))

        def __reduce__(self) -> tuple[Any, ...]:
            return _iterable_pieces, (feed,)

    return Pieces()


def _upcoming_items(
    feed: "Feed", items: Items, taken: int, row: int
) -> Iterator[tuple[dict[str, Any], tuple[int, int]]]:
    """Yield this worker's items after so many batches and rows of the next one, and how many are taken with each."""
    worker, workers = _worker()
    if items == "rows":
        check_alone(feed, workers)
    for batch in feed.upcoming(worker + taken * max(workers, 1), max(workers, 1)):
        parts = [batch] if items == "batches" else rows_of(batch)
        for number in range(row, len(parts) - 1):
            yield parts[number], (taken, number + 1)
        taken, row = taken + 1, 0
        yield parts[-1], (taken, row)


def iterable_items(feed: "Feed", items: Items) -> Any:
    """Return a torch dataset of a feed's batches or rows; the class is made here, as it derives from torch's."""

    class FeedItems(_torch_data("iterable").IterableDataset):  # type: ignore[misc]  # torch has no types here
        """Worker w of n takes every n-th step from the w-th on, so that a loader that asks them in turn has all."""

        def __init__(self) -> None:
            super().__init__()
            self._resumed = self._taken = (0, 0)
            self._epoch = 0
            self._start = feed.state_dict()

        def set_epoch(self, epoch: int) -> None:
            """Let the next iteration return the pass that is so many after the first one; accelerate calls this."""
            self._epoch = epoch

        def __iter__(self) -> Iterator[dict[str, Any]]:
            feed.load_state_dict(self._start)
            for _ in range(self._epoch):
                feed.skip_pass()
            self._taken, self._resumed = self._resumed, (0, 0)
            for item, taken in _upcoming_items(feed, items, *self._taken):
                self._taken = taken
                yield item

        def state_dict(self) -> dict[str, Any]:
            taken, row = self._taken
            place = {"epoch": self._epoch, "taken": taken, "row": row}
            return {**_reader(feed), "items": items, **place, "start": self._start}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            changed = changed_values({"items": "batches", **state}, {**_reader(feed), "items": items})
            if changed:
                raise LoaderError(
                    f"this state is of one worker, and {', '.join(changed)}: keep a feed's own state_dict(), which "
                    "any of them can load"
                )
            self._start, self._epoch = state["start"], state["epoch"]
            self._taken = self._resumed = (state["taken"], state.get("row", 0))

        def __reduce__(self) -> tuple[Any, ...]:
            kept = {"_start": self._start, "_resumed": self._resumed, "_epoch": self._epoch}
            return iterable_items, (feed, items), kept

    return FeedItems()
