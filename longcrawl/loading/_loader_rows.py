"""Rows for a DataLoader that makes batches itself, and what it may ask of a feed, in which order."""

import itertools
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from longcrawl.errors import LoaderError, warn_user

if TYPE_CHECKING:
    from longcrawl.loading.feed import Feed


def rows_of(batch: dict[str, Any]) -> list[dict[str, npt.NDArray[Any]]]:
    """Return the rows of a batch of any feed as ``collators.for_transformers`` has them, one dictionary for each.

    Any collator that stacks arrays makes a batch of them again, such as those of torch and of transformers.
    """
    from longcrawl.loading.collators import for_transformers

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
