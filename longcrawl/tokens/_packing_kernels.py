"""Which sample each document of a bin packing goes to, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np
import numpy.typing as npt

from longcrawl.text._lookup_kernels import compiled
from longcrawl.tokens._bucket_kernels import Lengths, greatest, insert, remove

__all__ = ["best_fit", "first_fit"]

Longs = npt.NDArray[np.int64]


@compiled
def best_fit(sizes: Longs, capacity: int, used: Lengths, samples: Longs) -> int:
    """Put each item into the fullest sample that has room for it, and give how many samples there are.

    Args:
        sizes: int64 [items], each from 1 to ``capacity``.
        capacity: of every sample.
        used: the empty set of numbers up to ``capacity``.
        samples: int64 [items], written; of samples that are equally full, the last that came to be so.

    """
    first, following = np.full(capacity + 1, -1, np.int64), np.empty(len(sizes), np.int64)
    count = 0
    for item in range(len(sizes)):
        full = greatest(used, capacity - sizes[item])
        if full < 0:
            full, sample = 0, count
            count += 1
        else:
            sample = first[full]
            first[full] = following[sample]
            if first[full] < 0:
                remove(used, full)
        samples[item] = sample
        full += sizes[item]
        if full < capacity:
            following[sample] = first[full]
            first[full] = sample
            insert(used, full)
    return count


@compiled
def first_fit(sizes: Longs, capacity: int, samples: Longs) -> int:
    """Put each item into the first sample that has room for it, and give how many samples there are.

    The room of the samples is the bottom of a tree in which each node has that of the roomier child, so the first with
    enough is found from the top down.
    """
    leaves = 1
    while leaves < len(sizes):
        leaves *= 2
    room = np.full(2 * leaves, capacity, np.int64)
    count = 0
    for item in range(len(sizes)):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < sizes[item]:
                node += 1
        samples[item] = node - leaves
        count = max(count, node - leaves + 1)
        room[node] -= sizes[item]
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return count
