"""A rectangle's batches through torch's worker processes, in order, with the trainer's position kept."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from longcrawl.errors import LoaderError

if TYPE_CHECKING:
    from longcrawl.loading.rectangle import Batch, Rectangle

__all__ = ["WorkerBatches"]

OWN_OPTIONS = ("batch_sampler", "batch_size", "dataset", "drop_last", "in_order", "sampler", "shuffle")


class WorkerBatches:
    """Torch tensors in the order of ``batches``, read by ``num_workers`` processes; each has a cache of its own."""

    def __init__(self, batches: "Rectangle", num_workers: int, options: dict[str, Any]) -> None:
        try:
            import torch.utils.data
        except ImportError as missing:
            raise LoaderError('dataloader() needs torch: pip install "longcrawl[torch]"') from missing
        taken = [name for name in options if name in OWN_OPTIONS]
        if taken:
            raise LoaderError(
                f"{', '.join(taken)} cannot be set, as order and batches are the rectangle's; leave it out"
            )
        self._batches, self._num_workers, self._options = batches, num_workers, options
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

    def __init__(self, batches: "Rectangle") -> None:
        self._batches = batches

    def __getitem__(self, batch: int) -> "Batch":
        return self._batches.global_batch(batch)
