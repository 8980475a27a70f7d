"""Which pieces of which documents are one sample: planned once, from lengths alone.

A packing makes a :class:`PackingPlan`, four arrays, of lengths. What :class:`longcrawl.loading.Packed` offers by name
is here; a packer with a method ``plan``, or a function of lengths and ``max_length``, is used the same way.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from longcrawl.composition import packing as tokens_packing
from longcrawl.composition.baselines import cut_long
from longcrawl.composition.plan import Longs, PackingPlan, Plan
from longcrawl.errors import LoaderError

__all__ = ["Packer", "Packing", "PackingPlan", "check_packing", "plan_packing"]


@runtime_checkable
class Packer(Protocol):
    """Whatever plans samples of ``max_length`` tokens."""

    def plan(self, lengths: Longs, /) -> PackingPlan:
        """Plan documents with these lengths."""


Name = Literal["length-binned", "best-fit", "first-fit", "in-order", "separate"]

Packing = Name | Packer | Callable[[Longs, int], PackingPlan]
"""A packing by name, a packer, or a function from lengths (int64 [documents]) and max_length to a plan."""


def check_packing(packing: Any, max_length: int, positions: str, pad_token: int | None) -> None:
    """Check that this is a packing, and not a packer that was made for other rows than those of the feed.

    Raises:
        LoaderError: it is not, or says something else than the feed of length, positions, masked tokens or padding.

    """
    if (
        packing not in get_args(Name)
        if isinstance(packing, str)
        else not (isinstance(packing, Packer) or callable(packing))
    ):
        known = ", ".join(repr(name) for name in get_args(Name))
        raise LoaderError(
            f"Packed.packing takes one of {known}, an object with plan(lengths), or a function of lengths and "
            f"max_length; got {packing!r}"
        )
    wanted: dict[str, Any] = {"max_length": max_length, "context_length": max_length}
    if isinstance(packing, tokens_packing.Packing):
        wanted |= {"positions": positions, "mask_first": "every-piece"}
        wanted |= {"padding": pad_token} if packing.padding is not None else {}
    differ = [
        f"{name} {getattr(packing, name)!r} where the feed has {value!r}"
        for name, value in wanted.items()
        if getattr(packing, name, value) != value
    ]
    if differ:
        raise LoaderError(
            f"the packing has {', '.join(differ)}: give both the same, or name a strategy, as packing='best-fit' does"
        )


def plan_packing(lengths: Longs, max_length: int, packing: Packing) -> PackingPlan:
    """Plan the samples of documents with these lengths.

    Documents longer than ``max_length`` are cut into pieces of ``max_length`` and a rest. "length-binned", "best-fit"
    and "first-fit" look at all of them and pad least; they are the strategies of :class:`longcrawl.tokens.Packing`.
    "in-order" keeps the order of the shards: each piece goes into the sample before it if it fits there, and else into
    a new one, which pads a fifth of samples of short documents. "separate" makes a sample of each piece.

    >>> plan = plan_packing(np.array([3, 2, 4, 9]), 6, "in-order")
    >>> plan.bounds.tolist(), plan.documents.tolist(), plan.starts.tolist(), plan.sizes.tolist()
    ([0, 2, 3, 4, 5], [0, 1, 2, 3, 3], [0, 0, 0, 0, 6], [3, 2, 4, 6, 3])

    Args:
        lengths: int64 [documents], tokens of each; 0 for a document that is in no sample.
        max_length: most tokens of a sample.
        packing: what decides.

    Raises:
        LoaderError: a packing has made samples that are too long or empty, or pieces that no document has.

    """
    if not isinstance(packing, str):
        plan = packing.plan(lengths) if isinstance(packing, Packer) else packing(lengths, max_length)
        _check(plan, lengths, max_length)
        return plan
    if packing != "separate" and packing != "in-order":  # noqa: PLR1714  # mypy tells the names apart so
        return tokens_packing.Packing(max_length, packing).plan(lengths)
    pieces = cut_long(lengths, max_length)
    bounds = np.arange(len(pieces[2]) + 1) if packing == "separate" else _bounds_in_order(pieces[2], max_length)
    return Plan(lengths, np.full(len(bounds) - 1, max_length), bounds, *pieces)


def _bounds_in_order(sizes: Longs, max_length: int) -> Longs:
    ends = np.cumsum(sizes)
    following = np.searchsorted(ends, ends - sizes + max_length, "right").tolist()
    bounds, piece = [0], 0
    while piece < len(following):
        piece = following[piece]
        bounds.append(piece)
    return np.array(bounds, np.int64)


def _check(plan: PackingPlan, lengths: Longs, max_length: int) -> None:
    """Check that a plan can be delivered."""
    pieces = len(plan.sizes)
    wrong = ""
    if not len(plan.bounds) or plan.bounds[0] != 0 or plan.bounds[-1] != pieces or (np.diff(plan.bounds) < 1).any():
        wrong = f"bounds that do not rise from 0 to its {pieces:,} pieces"
    elif len(plan.documents) != pieces or len(plan.starts) != pieces:
        wrong = f"{len(plan.documents):,} documents and {len(plan.starts):,} starts for {pieces:,} pieces"
    elif pieces and not 0 <= plan.documents.min() <= plan.documents.max() < len(lengths):
        wrong = f"a piece of a document that is none of {len(lengths):,}"
    elif (plan.sizes < 1).any() or (plan.starts < 0).any():
        wrong = "a piece without tokens, or before its document"
    elif (plan.starts + plan.sizes > lengths[plan.documents]).any():
        wrong = "a piece that ends after its document"
    elif pieces and np.add.reduceat(plan.sizes, plan.bounds[:-1]).max() > max_length:
        wrong = f"a sample of more than {max_length:,} tokens"
    if wrong:
        raise LoaderError(f"the packing has made {wrong}: correct it, or take packing='length-binned'")
