"""What a composition strategy is: a frozen dataclass that plans training samples out of the lengths of documents."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.composition.lengths import checked_lengths
from longcrawl.composition.plan import Plan
from longcrawl.core.fields import check_fields
from longcrawl.errors import StageError

__all__ = ["LARGEST", "Strategy", "check_capacities", "whole_capacities"]

Longs = npt.NDArray[np.int64]

LARGEST = 1 << 24
"""The greatest capacity in tokens: what a plan keeps is one number for each length up to it."""


class Strategy(ABC):
    """Plans documents pool by pool; what a pool holds is all that decides its plan."""

    capacities: tuple[int, ...]

    def __post_init__(self) -> None:
        check_fields(self, StageError)
        check_capacities(type(self).__name__, self.capacities)

    @property
    @abstractmethod
    def label(self) -> str:
        """What tables call it."""

    @abstractmethod
    def plan_pool(self, lengths: Any) -> Plan:
        """Plan these documents together, whatever their number; samples stand in the order in which they were made."""

    @abstractmethod
    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put the plans of consecutive pools together and give their samples their final order."""

    def pools(self, lengths: Longs) -> list[Longs]:
        """Cut the documents into pools; one pool unless the strategy says otherwise."""
        return [lengths]

    def plan(self, lengths: Any, num_threads: int = 1) -> Plan:
        """Plan all documents.

        Args:
            lengths: whole numbers [documents] of any kind, or an Arrow array: tokens of each document.
            num_threads: pools planned at a time; the plan does not depend on it.

        Raises:
            StageError: a length is no whole number of 0 or more.

        """
        pools = self.pools(checked_lengths(lengths))
        if num_threads <= 1 or len(pools) == 1:
            return self.join([self.plan_pool(pool) for pool in pools])
        with ThreadPoolExecutor(num_threads) as threads:
            return self.join(list(threads.map(self.plan_pool, pools)))


def whole_capacities(name: str, capacities: Any) -> tuple[int, ...]:
    """Return capacities as a tuple of Python's whole numbers.

    Raises:
        StageError: they are no list of whole numbers.

    """
    listed = capacities.tolist() if isinstance(capacities, np.ndarray) else capacities
    if isinstance(listed, Iterable) and not isinstance(listed, str | bytes | Mapping):
        sizes = tuple(listed)
        if all(isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes):
            return tuple(map(int, sizes))
    write = f"[{listed}]" if isinstance(listed, int) else "[2048, 4096, 8192, 16384]"
    raise StageError(f"capacities of {name} are a list of whole numbers of tokens, got {capacities!r}: write {write}")


def check_capacities(name: str, capacities: tuple[int, ...]) -> None:
    """Refuse capacities that are not ascending whole numbers of tokens, each once.

    Raises:
        StageError: with the ones to write instead.

    """
    if not capacities:
        raise StageError(f"{name} needs a capacity: write [2048, 4096, 8192, 16384]")
    valid = sorted({capacity for capacity in capacities if 0 < capacity <= LARGEST})
    if list(capacities) != valid:
        raise StageError(
            f"capacities of {name} ascend from 1 to {LARGEST:,} tokens, each once, got {list(capacities)}: "
            f"write {valid or [2048, 4096, 8192, 16384]}"
        )


def cut_pools(lengths: Longs, size: int) -> list[Longs]:
    """Cut documents into pools of ``size`` and a last one of up to twice as many."""
    pools = max(len(lengths) // size, 1)
    return np.split(lengths, size * np.arange(1, pools))
