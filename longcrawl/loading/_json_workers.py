"""Blocks of JSON lines tokenised by torch's worker processes, in order; the trainer's own puts batches together."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from longcrawl.errors import LoaderError
from longcrawl.loading._rectangle_workers import OWN_OPTIONS

if TYPE_CHECKING:
    from longcrawl.loading._json_encoding import EncodedBlock
    from longcrawl.loading.jsonl import Jsonl

__all__ = ["JsonWorkers", "encoded_blocks"]

KEPT_OPTIONS = (*OWN_OPTIONS, "collate_fn", "persistent_workers", "pin_memory")
"""What a loader of blocks, which are no batches, cannot do for its user."""


class JsonWorkers:
    """Torch tensors in the order of ``feed``; of n workers the w-th tokenises every n-th block from the w-th on."""

    def __init__(self, feed: "Jsonl", num_workers: int, options: dict[str, Any]) -> None:
        try:
            import torch.utils.data
        except ImportError as missing:
            raise LoaderError('dataloader() needs torch: pip install "longcrawl[torch]"') from missing
        taken = [name for name in options if name in KEPT_OPTIONS]
        if taken:
            raise LoaderError(f"{', '.join(taken)} cannot be set, as workers give blocks, not batches; leave it out")
        self._feed, self._num_workers, self._options = feed, num_workers, options
        self._torch = torch.utils.data

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches that are left."""
        loader = self._torch.DataLoader(
            encoded_blocks(self._feed),
            batch_size=None,
            num_workers=self._num_workers,
            collate_fn=_as_it_is,
            **self._options,
        )
        for batch in self._feed.batches_of(iter(loader)):
            yield self._torch.default_convert(batch)


def encoded_blocks(feed: "Jsonl") -> Any:
    """Give an ``IterableDataset`` of the blocks that are left; the class is made here, as it derives from torch's."""
    from torch.utils.data import IterableDataset, get_worker_info

    class EncodedBlocks(IterableDataset):  # type: ignore[misc]  # torch has no types here
        def __iter__(self) -> "Iterator[tuple[int, EncodedBlock]]":
            worker = get_worker_info()
            number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
            for epoch, block in islice(feed.blocks_left(), number, None, workers):
                yield epoch, feed.encode(block)

        def __reduce__(self) -> tuple[Any, ...]:
            return encoded_blocks, (feed,)

    return EncodedBlocks()


def _as_it_is(blocks: Any) -> Any:
    return blocks
