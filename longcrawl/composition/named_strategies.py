"""Composition strategies by the word that recipes use and by which a comparison calls them."""

from collections.abc import Sequence
from typing import Literal

from longcrawl.composition.baselines import BestFit, DatasetDecomposition, FirstFit, FixedLength, MultiBucket
from longcrawl.composition.buckets import Buckets
from longcrawl.composition.strategies import Strategy, check_capacities, whole_capacities
from longcrawl.errors import StageError

__all__ = ["StrategyName", "default_strategies", "named_strategy"]

StrategyName = Literal["buckets", "fixed", "multi-bucket", "best-fit", "first-fit", "decomposition"]
"""The labels of a comparison in small letters, without what follows from the other settings."""

FIRST_FIT_POOL = 256


def named_strategy(
    name: StrategyName,
    capacities: Sequence[int] = (2048, 4096, 8192, 16384),
    padding_threshold: float = 0.05,
    planner: Literal["algorithm-1", "exact-fill"] = "algorithm-1",
    seed: int = 0,
    pool_size: int | None = None,
) -> Strategy:
    """Return a strategy by name, such that :func:`default_strategies` measures the same one under its label.

    >>> named_strategy("best-fit", [4096]).label, named_strategy("decomposition", [1024]).capacities
    ('Best-fit-4096', (256, 512, 1024))

    Args:
        name: "fixed", "best-fit" and "first-fit" make samples of one length.
        capacities: in tokens, ascending; "decomposition" adds the half, the quarter … of the first down to 256, since
            it drops what is shorter.
        padding_threshold: of "buckets", see :class:`longcrawl.tokens.Buckets`.
        planner: of "buckets".
        seed: of the order of documents that "fixed" and "multi-bucket" concatenate, and of samples of "buckets".
        pool_size: documents that "buckets" (100,000, if left out) and "first-fit" (256) plan together.

    Raises:
        StageError: capacities are no list of whole numbers or do not ascend, there are several where one is needed, or
            a field is out of its bounds.

    """
    sizes = whole_capacities(name, capacities)
    check_capacities(name, sizes)
    if name in ("fixed", "best-fit", "first-fit") and len(sizes) > 1:
        raise StageError(
            f"the strategy {name!r} makes samples of one length, got the capacities {list(sizes)}: "
            f"write [{sizes[-1]}], or take buckets, multi-bucket or decomposition"
        )
    if pool_size is not None and name not in ("buckets", "first-fit"):
        raise StageError(f"the strategy {name!r} plans all documents together: leave pool_size out")
    if name == "fixed":
        return FixedLength(sizes[0], seed=seed)
    if name == "multi-bucket":
        return MultiBucket(sizes, seed=seed)
    if name == "best-fit":
        return BestFit(sizes[0])
    if name == "first-fit":
        return FirstFit(sizes[0], pool_size=FIRST_FIT_POOL if pool_size is None else pool_size)
    if name == "decomposition":
        return DatasetDecomposition((*_halves(sizes[0]), *sizes))
    pool = Buckets.pool_size if pool_size is None else pool_size
    return Buckets(sizes, padding_threshold, planner, seed=seed, pool_size=pool)


def default_strategies(
    capacities: Sequence[int] = (2048, 4096, 8192, 16384), padding_threshold: float = 0.05
) -> tuple[Strategy, ...]:
    """Return what ``lc.compose`` compares: concatenation, bin packing, decomposition, and buckets of both planners.

    Raises:
        StageError: the capacities do not ascend, or the threshold is no share.

    """
    sizes = whole_capacities("compose", capacities)
    check_capacities("compose", sizes)
    return (
        *(named_strategy("fixed", [size]) for size in sizes),
        named_strategy("multi-bucket", sizes),
        named_strategy("best-fit", sizes[-1:]),
        named_strategy("first-fit", sizes[-1:]),
        named_strategy("decomposition", sizes),
        named_strategy("buckets", sizes, padding_threshold),
        named_strategy("buckets", sizes, padding_threshold, planner="exact-fill"),
    )


def _halves(capacity: int, least: int = 256) -> list[int]:
    """Return the half, the quarter and so on down to ``least``, ascending: a decomposition drops what is shorter."""
    found: list[int] = []
    while capacity % 2 == 0 and capacity // 2 >= least:
        capacity //= 2
        found.insert(0, capacity)
    return found
