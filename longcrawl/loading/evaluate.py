"""Held-out loss by position, which shows what a model gains from a longer context; LongCrawl64 was made for this."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import LoaderError, as_lines
from longcrawl.loading.rectangle import Rectangle
from longcrawl.long.positions import BINS, bin_positions, mean_of, plot_positions

SHOWN = 8
TOKENS = 1 << 14
"""Targets per chunk of loss computation, which limits memory: each target has a log-probability for every id."""


@dataclass(frozen=True, eq=False)
class PositionLoss:
    """The mean loss at each position of a context.

    >>> loss = PositionLoss(np.array([4.0, 3.0, 2.0]), np.array([2, 2, 4]))
    >>> loss.mean, loss.binned(2)[1].tolist()
    (2.75, [4.0, 2.3333333333333335])

    Attributes:
        loss: float64 [context_length], nats per target; NaN at positions without a target.
        targets: int64 [context_length], number of targets.
    """

    loss: npt.NDArray[np.float64]
    targets: npt.NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Mean loss over all targets."""
        return mean_of(self.loss, self.targets)

    def binned(self, bins: int = BINS) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return bounds of groups of positions, and the mean loss of each: int64 [groups + 1], float64 [groups]."""
        return bin_positions(self.loss, self.targets, bins)

    def __str__(self) -> str:
        borders, losses = self.binned(SHOWN)
        named = [
            f"positions {first:>9,} to {stop - 1:>9,}  {loss:.4f}"
            for (first, stop), loss in zip(pairwise(borders.tolist()), losses.tolist(), strict=True)
        ]
        return as_lines([f"loss {self.mean:.4f} of {int(self.targets.sum()):,} targets", *named])

    __repr__ = __str__

    def plot(self, axes: Any = None, bins: int = BINS, **line: Any) -> Any:
        """Draw the loss against the position with matplotlib, into ``axes`` or a new figure, and return the axes.

        Args:
            axes: matplotlib axes to draw into, to compare several models.
            bins: most groups of positions.
            line: options of matplotlib's ``plot``, such as ``label="16k context"``.
        """
        return plot_positions(axes, *self.binned(bins), "loss, nats per token", **line)


def per_position_loss(
    model: Callable[[Any], Any], rectangle: Rectangle, batches: int | None = None, device: Any = None
) -> PositionLoss:
    """Return the loss of a model at each position of a context, over the batches of a rectangle on its rank.

    >>> heldout = lc.loading.Rectangle("mini64.zarr", "heldout", 8, 16_384, seam="mask")  # doctest: +SKIP
    >>> loss = lc.evaluate.per_position_loss(model, heldout)  # doctest: +SKIP
    >>> loss.plot().figure.savefig("loss.png")  # doctest: +SKIP

    Args:
        model: takes ``text``, int64 [rows, context_length], and returns logits [rows, context_length, vocabulary], an
            object with a field ``logits``, as models of transformers do, or a tuple that begins with the logits. A
            torch module is put in evaluation mode meanwhile.
        rectangle: source of the batches; its position does not change. Targets excluded by its loss mask do not count.
        batches: number of batches from the first on, or None for a full pass.
        device: device of the model, or None for that of its first parameter.

    Raises:
        LoaderError: torch is not installed, the feed is not a rectangle, or the logits have a wrong shape.
    """
    try:
        import torch
    except ImportError as missing:
        raise LoaderError('per_position_loss() needs torch: pip install "longcrawl[torch]"') from missing
    if not isinstance(rectangle, Rectangle):
        raise LoaderError(f"per_position_loss() needs an lc.loading.Rectangle, not a {type(rectangle).__name__}")
    count = len(rectangle) if batches is None else batches
    if not 1 <= count <= len(rectangle):
        raise LoaderError(f"batches is {batches}: give 1 to the {len(rectangle):,} batches of a pass, or None")
    length = rectangle.walk.context_length
    total, targets = np.zeros(length), np.zeros(length, np.int64)
    # An identity has no mode, and no parameters.
    module = model if isinstance(model, torch.nn.Module) else torch.nn.Identity()
    training = module.training
    if device is None:
        device = next((each.device for each in module.parameters()), None)
    module.eval()
    try:
        with torch.no_grad():
            for number in range(count):
                batch = rectangle[number]
                losses = _losses(model, batch, device)
                kept = batch.get("loss_mask", np.ones(losses.shape, np.bool_))
                total += np.where(kept, losses, 0.0).sum(0)
                targets += kept.sum(0)
    finally:
        module.train(training)
    with np.errstate(invalid="ignore"):
        return PositionLoss(total / targets, targets)


def _losses(model: Callable[[Any], Any], batch: dict[str, Any], device: Any) -> npt.NDArray[np.float64]:
    import torch

    answer = model(torch.from_numpy(batch["text"].astype(np.int64)).to(device))
    logits: Any = getattr(answer, "logits", answer[0] if isinstance(answer, tuple) and answer else answer)
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if len(shape) != 3 or shape[:2] != batch["targets"].shape:
        raise LoaderError(
            f"the model returned {shape} for text of {batch['targets'].shape}: return logits of [rows, "
            "context_length, vocabulary]"
        )
    targets = torch.from_numpy(batch["targets"].astype(np.int64)).to(logits.device)
    flat, ids = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    parts = [
        torch.nn.functional.cross_entropy(some.float(), wanted, reduction="none")
        for some, wanted in zip(flat.split(TOKENS), ids.split(TOKENS), strict=True)
    ]
    return np.asarray(torch.cat(parts).reshape(targets.shape).cpu().numpy(), np.float64)
