"""A feed's batches through torch's worker processes, in order, with the trainer's position kept."""

from collections.abc import Iterator
from typing import Any, Protocol

from longcrawl.errors import LoaderError

__all__ = ["Feed", "WorkerBatches"]

OWN_OPTIONS = ("batch_sampler", "batch_size", "dataset", "drop_last", "in_order", "sampler", "shuffle")


class Feed(Protocol):
    """Batches of which each is a function of a number, with a position that the trainer moves."""

    def __len__(self) -> int:
        """Give the batches of a full pass on this rank."""

    def remaining_steps(self) -> range:
        """Give the numbers of this rank's batches up to the end of the pass."""

    def global_batch(self, batch: int, /) -> dict[str, Any]:
        """Assemble one batch."""

    def hand_out(self, batch: int, /) -> None:
        """Note that the trainer is given a batch."""


class WorkerBatches:
    """Torch tensors in the order of ``batches``, read by ``num_workers`` processes; each has a cache of its own."""

    def __init__(self, batches: Feed, num_workers: int, options: dict[str, Any]) -> None:
        try:
            import torch.utils.data
        except ImportError as missing:
            raise LoaderError('dataloader() needs torch: pip install "longcrawl[torch]"') from missing
        taken = [name for name in options if name in OWN_OPTIONS]
        if taken:
            raise LoaderError(f"{', '.join(taken)} cannot be set, as order and batches are the loader's; leave it out")
        # A loader draws a seed for its workers; from torch's own generator, that would change dropout after a resume.
        self._options = {"generator": torch.Generator(), **options}
        self._batches, self._num_workers = batches, num_workers
        self._torch_loader = torch.utils.data.DataLoader

    def __len__(self) -> int:
        """Give the batches of a full pass on this rank; the first pass after a resume has only the rest."""
        return len(self._batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rest of the pass, or a new pass where the last one is over."""
        steps = self._batches.remaining_steps()
        loader = self._torch_loader(
            _GlobalBatches(self._batches),
            batch_size=None,
            sampler=steps,
            num_workers=self._num_workers,
            **self._options,
        )
        for batch, tensors in zip(steps, loader, strict=True):
            self._batches.hand_out(batch)
            yield tensors


class _GlobalBatches:
    """A map-style dataset from global batch to tokens."""

    def __init__(self, batches: Feed) -> None:
        self._batches = batches

    def __getitem__(self, batch: int) -> dict[str, Any]:
        return self._batches.global_batch(batch)
