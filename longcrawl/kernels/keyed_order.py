"""The order of windows, samples and files under a seed, as a function of place: nothing is shuffled or stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.core.keyed_hash import keyed_hash

__all__ = ["KeyedOrder", "file_order", "keyed_order"]

ROUNDS = 8


@dataclass(frozen=True)
class KeyedOrder:
    """One order of ``count`` things for each seed and purpose: a call gives the things at some places.

    It is a Feistel network whose rounds are keyed by BLAKE2b of both, so that any place costs the same and no order is
    kept in memory. A purpose names what is ordered and, where every pass has an order of its own, the pass.

    >>> sorted(KeyedOrder(5, 0, "windows of pass 0")(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    count: int
    seed: int
    purpose: str

    def __call__(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the things at these places, int64."""
        rows, columns, keys = self._network
        things = np.empty(len(places), np.int64)
        _permute()(places, self.count, rows, columns, keys, things)
        return things

    @cached_property
    def _network(self) -> tuple[int, int, npt.NDArray[Any]]:
        columns = max(isqrt(self.count - 1) + 1, 1)
        rows = max(-(-self.count // columns), 1)
        return rows, columns, keyed_hash(map(str, range(ROUNDS)), self.purpose, self.seed)


keyed_order = lru_cache(maxsize=256)(KeyedOrder)
"""A :class:`KeyedOrder` that is kept, for those who ask for the same one with every batch."""


@cache
def _permute() -> Any:
    """Return the kernel; importing it for every call would cost more than what it does."""
    from longcrawl.kernels.permutation import permute

    return permute


def file_order(names: Sequence[str], seed: int, number: int) -> list[int]:
    """Return the order of files under a seed, in a pass: they are sorted by a keyed hash of their names."""
    keys = keyed_hash(names, f"files of pass {number}", seed).tolist()
    return sorted(range(len(names)), key=lambda file: (keys[file], names[file]))
