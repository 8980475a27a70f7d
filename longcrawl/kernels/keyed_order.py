"""Orders and random numbers under a seed, as functions of place: nothing is shuffled, drawn in turn or stored.

Only integers of BLAKE2b and Philox's raw output are used, which no release of NumPy changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.kernels.compiling import compiled

Ints = npt.NDArray[Any]

ROUNDS = 8

_WORDS = 4
"""64-bit numbers of one step of Philox's counter."""


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
        _compiled_permute()(places, self.count, rows, columns, keys, things)
        return things

    @cached_property
    def _network(self) -> tuple[int, int, npt.NDArray[Any]]:
        columns = max(isqrt(self.count - 1) + 1, 1)
        rows = max(-(-self.count // columns), 1)
        return rows, columns, keyed_hash(map(str, range(ROUNDS)), self.purpose, self.seed)


keyed_order = lru_cache(maxsize=256)(KeyedOrder)
"""A :class:`KeyedOrder` that is kept, for those who ask for the same one with every batch."""


@cache
def _compiled_permute() -> Any:
    """Return the kernel; importing numba for every call would cost more than what it does."""
    return compiled(_permute)


def _permute(numbers: Ints, count: int, rows: int, columns: int, keys: Ints, out: Ints) -> None:
    """Write where each number below ``count`` goes in a keyed order of them: a Feistel network over rows x columns.

    What falls on a place from ``count`` on is put through again, until it does not.
    """
    for number in range(len(numbers)):
        place = np.uint64(numbers[number])
        while True:
            left, right = np.uint64(rows), np.uint64(columns)
            high, low = place // right, place % right
            for key in keys:
                mixed = (low ^ key) * np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                mixed ^= mixed >> np.uint64(31)
                high, low = low, (high + mixed % left) % left
                left, right = right, left
            place = high * right + low
            if place < np.uint64(count):
                break
        out[number] = place


def file_order(names: Sequence[str], seed: int, number: int) -> list[int]:
    """Return the order of files under a seed, in a pass: they are sorted by a keyed hash of their names."""
    keys = keyed_hash(names, f"files of pass {number}", seed).tolist()
    return sorted(range(len(names)), key=lambda file: (keys[file], names[file]))


def uniform_numbers(seed: int, purpose: str, first: int, count: int) -> npt.NDArray[np.float64]:
    """Return numbers ``first`` to ``first + count`` of a sequence in [0, 1): float64, the same however it is cut.

    >>> bool((uniform_numbers(0, "mix", 5, 3) == uniform_numbers(0, "mix", 0, 8)[5:]).all())
    True
    """
    digest = blake2b(f"{purpose}:{seed}".encode(), digest_size=48).digest()
    key = np.frombuffer(digest, "<u8")[:2].astype(np.uint64)
    philox = np.random.Philox(key=key)
    philox.advance(first // _WORDS)
    skipped = first % _WORDS
    raw = philox.random_raw(skipped + count)[skipped:]
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)
