"""The order of windows and files under a seed, as a function of place: nothing is shuffled, nothing is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.keyed_hash import keyed_hash
from longcrawl.loading._window_shards import kernels

__all__ = ["KeyedOrder", "file_order"]

ROUNDS = 8


@dataclass(frozen=True)
class KeyedOrder:
    """One order of ``count`` things for each seed and pass: ``order[place]`` is the thing at a place.

    It is a Feistel network whose rounds are keyed by BLAKE2b of seed and pass, so that any place costs the same and no
    order is kept in memory.
    """

    count: int
    seed: int
    number: int

    def __call__(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Give the things at these places, int64."""
        rows, columns, keys = self._network
        things = np.empty(len(places), np.int64)
        kernels().permute(places, self.count, rows, columns, keys, things)
        return things

    @cached_property
    def _network(self) -> tuple[int, int, npt.NDArray[Any]]:
        columns = max(isqrt(self.count - 1) + 1, 1)
        rows = max(-(-self.count // columns), 1)
        return rows, columns, keyed_hash(map(str, range(ROUNDS)), f"windows of pass {self.number}", self.seed)


def file_order(names: Sequence[str], seed: int, number: int) -> list[int]:
    """Give the order of files under a seed, in a pass: they are sorted by a keyed hash of their names."""
    keys = keyed_hash(names, f"files of pass {number}", seed).tolist()
    return sorted(range(len(names)), key=lambda file: (keys[file], names[file]))
