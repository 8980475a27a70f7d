"""A feed's batches as torch's iterable dataset, whose worker processes have states of their own."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from longcrawl.errors import LoaderError

if TYPE_CHECKING:
    from longcrawl.loading._packed_rows import Batch
    from longcrawl.loading.packed import Packed

__all__ = ["iterable_batches"]


def iterable_batches(batches: "Packed") -> Any:
    """Give an ``IterableDataset``; the class is made here, as it derives from one of torch.

    Raises:
        LoaderError: torch is not installed.

    """
    try:
        from torch.utils.data import IterableDataset, get_worker_info
    except ImportError as missing:
        raise LoaderError('iterable() needs torch: pip install "longcrawl[torch]"') from missing

    class PackedBatches(IterableDataset):  # type: ignore[misc]  # torch has no types here
        """Worker w of n takes every n-th step from the w-th on, so that a loader that asks them in turn has all."""

        def __init__(self) -> None:
            super().__init__()
            self._resumed = self._taken = 0
            self._start = batches.state_dict()

        def __iter__(self) -> "Iterator[Batch]":
            worker = get_worker_info()
            number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
            batches.load_state_dict(self._start)
            steps = batches.remaining_steps()[number::workers]
            self._taken, self._resumed = self._resumed, 0
            for first in steps[self._taken :]:
                self._taken += 1
                yield batches.global_batch(first)

        def state_dict(self) -> dict[str, Any]:
            return {**self._topology(), "taken": self._taken, "start": self._start}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            changed = [
                f"{name} was {state[name]} and is {now}" for name, now in self._topology().items() if state[name] != now
            ]
            if changed:
                raise LoaderError(
                    f"this state is of one worker, and {', '.join(changed)}: keep a feed's own state_dict(), which "
                    "any of them can load"
                )
            self._start, self._resumed, self._taken = state["start"], state["taken"], state["taken"]

        def _topology(self) -> dict[str, int]:
            worker = get_worker_info()
            return {
                "num_workers": 0 if worker is None else worker.num_workers,
                "worker": 0 if worker is None else worker.id,
                "rank": batches.rank,
                "world_size": batches.world_size,
                "batch_size": batches.batch_size,
            }

        def __reduce__(self) -> tuple[Any, ...]:
            return iterable_batches, (batches,), {"_start": self._start, "_resumed": self._resumed}

    return PackedBatches()
