"""Where a number goes in a keyed order of all numbers below a count, as a numba kernel."""

# Inside the kernel ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled

__all__ = ["permute"]

Ints = npt.NDArray[Any]


@compiled
def permute(numbers: Ints, count: int, rows: int, columns: int, keys: Ints, out: Ints) -> None:
    """Return where each number below ``count`` goes in a keyed order of them: a Feistel network over rows x columns.

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
