"""Feeds: position, batches by step, resumable state, and loaders for PyTorch.

A step is named by the position at which it begins, the same on every rank, as a resume under another world size begins
its steps elsewhere. ``batch = feed.read(step)`` is this rank's part of it, a pure function; iterating, ``[i]``, worker
processes and both loaders all go through it.
"""

import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args, overload

import numpy as np
import numpy.typing as npt

from longcrawl.errors import LoaderError, quoted, warn_user
from longcrawl.loading.collators import for_transformers
from longcrawl.loading.identity import changed_values
from longcrawl.loading.origins import Origin

Item = TypeVar("Item")
Index = int | slice | Iterable[int]


class IndexTypeError(LoaderError, TypeError):
    """An index that is neither a whole number nor several of them."""


@overload
def items(index: int, count: int | None, one: Callable[[int], Item], what: str = "batch") -> Item: ...


@overload
def items(
    index: slice | Iterable[int], count: int | None, one: Callable[[int], Item], what: str = "batch"
) -> list[Item]: ...


def items(index: Index, count: int | None, one: Callable[[int], Item], what: str = "batch") -> Item | list[Item]:
    """Return the item of a number, or the list of those of a slice or of several numbers.

    Args:
        index: as of a list in Python, or several whole numbers.
        count: how many items there are; None if that is not known, so that nothing counts from the end.
        one: returns the item of a number from 0 on, or raises IndexError.
        what: the word for an item in messages.

    Raises:
        IndexTypeError: there is a number that is not whole, or a bool.
        IndexError: there is no such item.
    """
    if isinstance(index, slice):
        return [one(number) for number in range(count)[index]] if count is not None else _open_slice(index, one, what)
    if getattr(index, "ndim", 0) == 0 and not isinstance(index, list | tuple | range):
        return one(_from_start(whole_number(index), count, what))
    return [one(_from_start(whole_number(number), count, what)) for number in index]  # type: ignore[union-attr]  # no number


def whole_number(index: Any) -> int:
    """Return a whole number of any library as that of Python; raise IndexTypeError for anything else."""
    try:
        if not (isinstance(index, bool) or "bool" in str(getattr(index, "dtype", ""))):
            return operator.index(index)
    except TypeError:
        pass
    raise IndexTypeError(
        f"the index {quoted(index)} is not a whole number ({type(index).__name__}): give a number, a slice or a list "
        "of numbers"
    )


def whole_numbers(places: Any) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return several whole numbers as int64; raise IndexTypeError for anything else."""
    array = np.asarray(places)
    if array.dtype.kind not in "iu" and array.size:
        raise IndexTypeError(f"places are {array.dtype}: give whole numbers")
    return array.astype(np.int64, copy=False)


def _from_start(number: int, count: int | None, what: str) -> int:
    """Count a negative number from the end, and reject one that is outside."""
    if count is None:
        if number < 0:
            raise IndexError(f"{what} {number:,}: they are counted from 0, as their number is not known")
        return number
    if not -count <= number < count:
        raise IndexError(f"{what} {number:,} of {count:,}: they are counted from 0 to {count - 1:,}")
    return number % count


def _open_slice(index: slice, one: Callable[[int], Item], what: str) -> list[Item]:
    """Return the items of a slice up to the last that there is."""
    parts = [None if part is None else whole_number(part) for part in (index.start, index.stop, index.step)]
    start, stop, step = parts
    if stop is None or min(start or 0, stop, step or 1) < 0 or step == 0:
        raise IndexError(f"{what} {index}: they are counted from 0, as their number is not known; give [0:10] or so")
    found = []
    for number in range(start or 0, stop, step or 1):
        try:
            found.append(one(number))
        except IndexError:
            break
    return found


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


Batch = dict[str, Any]
"""Arrays by name; see the feeds."""

STATE_VERSION = 1
"""Schema version of states."""

ORDER_OPTIONS = ("batch_sampler", "batch_size", "dataset", "drop_last", "in_order", "sampler", "shuffle")
"""Options of torch's DataLoader that would change the order."""


@dataclass(frozen=True)
class Status:
    """Whether a feed has more batches: "running", "finished" or "halted", and why it is halted."""

    state: Literal["running", "finished", "halted"]
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


class Feed(ABC):
    """Batches for one rank of a trainer, with a position that all ranks share."""

    kind: ClassVar[str]
    """The word for this kind of feed in a state."""
    unit: ClassVar[str]
    """What a position counts, of all ranks together."""
    fixed_options: ClassVar[tuple[str, ...]] = ORDER_OPTIONS
    """Options of torch's DataLoader that are the feed's own."""
    fixed_because: ClassVar[str] = "order and batches are the loader's"
    or_its_own: ClassVar[str] = " or of the feed"
    """Whose ``batch_size`` makes a DataLoader's batches possible, beside its own."""

    rank: int
    world_size: int

    @abstractmethod
    def read(self, step: int) -> Batch:
        """Return this rank's part of the step that begins at position ``step``."""

    @abstractmethod
    def origins_at(self, position: int) -> list[Origin]:
        """Return the documents of :meth:`read` at a position, row by row from left to right; padding has none."""

    def origins(self, step: int) -> list[Origin]:
        """Return the documents of this rank's batch ``step``, counted from 0 as those of ``feed[step]`` are.

        Raises:
            LoaderError: there is no such batch.
        """
        return self.origins_at(self.position_of(step))

    def position_of(self, step: int) -> int:
        """Return the position at which a step begins, counted from 0 since the beginning.

        Raises:
            LoaderError: there is no such step.
        """
        step = whole_number(step)
        if step < 0 or not (self.endless or step < len(self)):
            raise LoaderError(
                f"there are steps 0 to {len(self) - 1:,}, not {step}: check the number and the feed's settings"
            )
        return step * self.step_size

    @property
    def endless(self) -> bool:
        """Whether nobody knows how many steps there are before they are read."""
        return False

    @property
    @abstractmethod
    def step_size(self) -> int:
        """How far a step moves the position."""

    @abstractmethod
    def stop(self, position: int) -> int:
        """Return where the steps from a position on end, with the plan or the pass."""

    @abstractmethod
    def identity(self, position: int) -> Mapping[str, Any]:
        """Return what a position is counted in: settings, order and a description of the data."""

    @property
    def source_name(self) -> str:
        """What messages call the data."""
        return str(getattr(self, "path", "the data"))

    @property
    def position(self) -> int:
        """How much all ranks together were given, counted in ``unit``."""
        return int(vars(self).get("_position", 0))

    @property
    def most(self) -> int | None:
        """The last position that there is; None where passes follow each other, or the end is not known."""
        return None

    def move_to(self, position: int) -> None:
        """Set the position; nothing is checked."""
        vars(self)["_position"] = position

    def check_ranks(self, **least: int) -> None:
        """Check numbers against the least that each may be, and the rank against the world size.

        Raises:
            LoaderError: one does not fit.
        """
        for name, number in {**least, "world_size": 1}.items():
            if getattr(self, name) < number:
                raise LoaderError(f"{name} is {getattr(self, name)}: set it to {number} or more")
        if not 0 <= self.rank < self.world_size:
            raise LoaderError(f"rank {self.rank} must be from 0 to world_size - 1 = {self.world_size - 1}")

    def values_of(self, *names: str) -> dict[str, Any]:
        """Return fields by their names."""
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        """Return the steps of the whole plan, or of a pass."""
        return len(range(0, self.stop(0), self.step_size))

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice | Iterable[int]) -> list[Batch]: ...

    def __getitem__(self, index: Index) -> Batch | list[Batch]:
        """Return this rank's batch ``index`` of the plan or first pass, negative from the end, or a list of batches.

        It moves nothing.
        """
        return items(index, self.batches_known, lambda step: self.read(step * self.step_size))

    def __getitems__(self, indices: list[int]) -> list[Batch]:
        """Return the rows of batches, for a DataLoader that makes batches itself, as the Trainer of transformers does.

        Each row has ``input_ids``, ``labels`` and, where documents have them, ``position_ids``, int64 [length], as
        :func:`longcrawl.loading.collators.for_transformers` makes them. With ``batch_size=1`` a row is an item. Nothing
        is moved: the DataLoader has ranks, workers and its own state.

        Raises:
            LoaderError: the feed has ranks or batches of its own, or a curriculum that the DataLoader shuffles.
        """
        check_asked(self, indices)
        return [row for index in indices for row in rows_of(self[index])]

    @property
    def batches_known(self) -> int | None:
        """Number of batches that can be indexed; None if unknown."""
        return len(self)

    @property
    def most_rows(self) -> int:
        """The most rows that a batch has."""
        return int(getattr(self, "batch_size", 1))

    @property
    def ordered(self) -> bool:
        """Whether another order of batches would be other data, as of a curriculum."""
        return False

    def remaining_steps(self) -> range:
        """Return the steps that are left of the plan or pass; those of a new pass where one is over."""
        return range(self.position, self.stop(self.position), self.step_size)

    def hand_out(self, step: int) -> None:
        """Note that the trainer is given a step; all ranks do at the same time."""
        self.move_to(step + self.step_size)

    def skip_pass(self) -> None:
        """Note all that is left of the plan or pass as handed out."""
        for last in self.remaining_steps()[-1:]:
            self.hand_out(last)

    def upcoming(self, first: int, every: int) -> Iterator[Batch]:
        """Yield every ``every``-th batch that is left, from the ``first``-th on, without moving the position."""
        for step in self.remaining_steps()[first::every]:
            yield self.read(step)

    def pieces(self, worker: int, workers: int) -> Iterator[Any]:
        """Yield what one of several worker processes makes for :meth:`deliver`; here, its batches."""
        return self.upcoming(worker, workers)

    def deliver(self, pieces: Iterable[Any]) -> Iterator[Batch]:
        """Yield the batches that the pieces of all workers make, in order, each noted as handed out."""
        for step, batch in zip(self.remaining_steps(), pieces, strict=True):
            self.hand_out(step)
            yield batch

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of the plan or pass, or the next pass where one is over."""
        return self.deliver(self.pieces(0, 1))

    @property
    def status(self) -> Status:
        """Whether there is another step, the same on all ranks."""
        return Status("running" if len(self.remaining_steps()) else "finished")

    def topology(self) -> dict[str, int]:
        """Return what this rank's part of a step depends on, beside where it begins."""
        names = ("rank", "world_size", "batch_size")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs, the same on every rank: the position, and what it is counted in."""
        head = {"longcrawl_feed": STATE_VERSION, "kind": self.kind, "position": self.position}
        return {**head, **self.identity(self.position)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state taken under any world size, number of workers and, where it has one, batch size.

        What comes after the state may have changed, such as later phases of a curriculum.

        Raises:
            LoaderError: the state is of other data, another order or another kind of feed; the message names what.
        """
        self.resume(self.compare(state))

    def compare(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state as a dict, in batches of this feed's size, if it is one of this feed; nothing is moved.

        Raises:
            LoaderError: as of :meth:`load_state_dict`.
        """
        known = self._checked(state)
        changed = self.changes(known)
        if changed:
            raise LoaderError(
                f"this state is not of {self.source_name} as opened here: {', '.join(changed)}; open it as it was then"
            )
        return known

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state, which has all names, and this feed; empty where they match."""
        return changed_values(state, self.identity(state["position"]))

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take the position of a state that was found to match."""
        self.move_to(state["position"])

    def _checked(self, state: Any) -> dict[str, Any]:
        """Return a copy of a state of this schema version and kind, which has all names of this feed's states."""
        what, hint = f"a state of a {self.kind} feed", "pass what state_dict() returned"
        if not isinstance(state, Mapping):
            raise LoaderError(f"this is not {what}: it is {state!r}; {hint}")
        known = dict(state)
        if "longcrawl_feed" not in known:
            raise LoaderError(f"this is not {what}: it lacks longcrawl_feed; {hint}")
        if known["longcrawl_feed"] != STATE_VERSION:
            raise LoaderError(
                f"this is {what} of version {known['longcrawl_feed']!r}, this longcrawl reads {STATE_VERSION}: resume "
                "with the longcrawl that wrote it, or start again"
            )
        if known.get("kind") != self.kind:
            raise LoaderError(f"this is not {what}: its kind is {known.get('kind')!r}; {hint}")
        missing = [name for name in ("position", *self.identity(0)) if name not in known]
        if missing:
            raise LoaderError(f"this is not {what}: it lacks {', '.join(missing)}; {hint}")
        position = known["position"]
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise LoaderError(f"position {position!r} of the state is not a number of {self.unit}: {hint}")
        known = self.recounted(known)
        position = known["position"]
        if self.most is not None and position > self.most:
            raise LoaderError(
                f"the state is at position {position:,} and there are {self.most:,} {self.unit} here: open the data "
                "and the curriculum as they were then"
            )
        return known

    def recounted(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with its position in the unit of this feed.

        Raises:
            LoaderError: no position of this feed is that of the state.
        """
        return state

    def dataloader(self, num_workers: int = 0, **options: Any) -> FeedLoader:
        """Return an iterable of torch tensors in the global order, read by ``num_workers`` processes.

        It takes part in this feed's state: ``state_dict()`` counts what the trainer was given, not what workers have
        read. ``options`` go to ``torch.utils.data.DataLoader``, except those that would change the order.

        Raises:
            LoaderError: torch is not installed, or an option would change the order.
        """
        return FeedLoader(self, num_workers, options)

    def iterable(self, items: Items = "batches") -> Any:
        """Return a ``torch.utils.data.IterableDataset`` of the batches or rows left of the plan or pass, with a state.

        In torchdata's ``StatefulDataLoader``, with ``batch_size=None`` and any number of workers, its batches come in
        the global order. Iterating again gives the same pass again, and after ``set_epoch(n)`` the n-th after it. Such
        a state is of one rank and as many workers; :meth:`state_dict` is of any.

        ``items="rows"`` is for loaders that make batches themselves, as that of transformers' Trainer does: it yields
        each row of a batch, as :meth:`__getitems__` returns them, to at most one worker.

        Raises:
            LoaderError: torch is not installed, or items are neither.
        """
        if items not in get_args(Items):
            raise LoaderError(f"iterable({items!r}) is neither 'batches' nor 'rows': say one of them")
        return iterable_items(self, items)
