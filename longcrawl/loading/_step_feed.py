"""What feeds have in common whose steps are a function of a number: iteration, loaders, status."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from longcrawl.loading._packed_rows import Batch
    from longcrawl.loading._rectangle_workers import WorkerBatches
    from longcrawl.loading.curriculum import CurriculumPlan

__all__ = ["Status", "StepFeed", "status_of"]


@dataclass(frozen=True)
class Status:
    """Whether a feed has more to give: "running", "finished" or "halted", and why it is halted."""

    state: Literal["running", "finished", "halted"]
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


class StepFeed(ABC):
    """Steps that are handed out one after the other: those of a plan, once, or those of one pass after the other."""

    @abstractmethod
    def __len__(self) -> int:
        """Give the steps of the whole plan, or of a pass."""

    @abstractmethod
    def remaining_steps(self) -> range:
        """Give the number of each step that is left; those of a new pass where one is over."""

    @abstractmethod
    def global_batch(self, step: int, /) -> "Batch":
        """Assemble this rank's part of a step."""

    @abstractmethod
    def hand_out(self, step: int, /) -> None:
        """Note that the trainer is given a step; all ranks do at the same time."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Give what a resume needs, the same on every rank."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""

    @abstractmethod
    def topology(self) -> dict[str, int]:
        """Give what this feed's part of a step depends on, beside its number."""

    def __iter__(self) -> "Iterator[Batch]":
        """Yield the rest of the plan or pass, or the next pass where one is over."""
        for step in self.remaining_steps():
            batch = self.global_batch(step)
            self.hand_out(step)
            yield batch

    def dataloader(self, num_workers: int = 0, **options: Any) -> "WorkerBatches":
        """Give an iterable of torch tensors in the global order, read by ``num_workers`` processes.

        It takes part in this feed's state: ``batches.state_dict()`` counts what the trainer was given, not what workers
        have read. ``options`` go to ``torch.utils.data.DataLoader``, except those that would change the order.

        Raises:
            LoaderError: torch is not installed, or an option would change the order.

        """
        from longcrawl.loading._rectangle_workers import WorkerBatches

        return WorkerBatches(self, num_workers, options)

    def iterable(self) -> Any:
        """Give a ``torch.utils.data.IterableDataset`` of the batches left of the plan or pass, with a state.

        In torchdata's ``StatefulDataLoader``, with ``batch_size=None`` and any number of workers, its batches come in
        the global order. Iterating anew gives the same pass anew, and after ``set_epoch(n)`` the n-th after it. Such a
        state is of one rank and as many workers; :meth:`state_dict` is of any.

        Raises:
            LoaderError: torch is not installed.

        """
        from longcrawl.loading._iterable_batches import iterable_batches

        return iterable_batches(self)


def status_of(plan: "CurriculumPlan", counted: str, *, running: bool) -> Status:
    """Tell whether there is another step.

    Args:
        plan: what is handed out.
        counted: what the plan counts, "sample" or "step".
        running: whether a step is left.

    """
    if running:
        return Status("running")
    if not plan.halted:
        return Status("finished")
    last = plan.drained[-1]
    what = "every bucket of the mix" if last.bucket is None else f"bucket {last.bucket!r}"
    return Status("halted", f"{what} is exhausted at {counted} {last.sample:,}, in phase {last.phase + 1}")
