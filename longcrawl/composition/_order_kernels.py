"""Which sample each document goes to where documents that follow each other stay together, as a numba kernel."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np

from longcrawl.composition._plan_kernels import Longs, Placed, close, put
from longcrawl.kernels.compiling import compiled

LOOK_AHEAD = 32
"""How many documents in order are passed over, as they do not fit, before a sample is closed."""


@compiled
def _gap(lengths: Longs, following: Longs, taken: Longs, capacity: int) -> int:
    """Return how much of a sample is left where documents are put into it in order."""
    document, space, passed_over = following[len(lengths)], capacity, 0
    while document != len(lengths) and space > 0 and passed_over < LOOK_AHEAD:
        size = lengths[document] - taken[document]
        if size <= space:
            space -= size
        else:
            passed_over += 1
        document = following[document]
    return space


@compiled
def _choose(lengths: Longs, following: Longs, taken: Longs, capacities: Longs, threshold: float) -> int:
    """Return the smallest capacity whose gap need not be filled, or else that with the smallest share of a gap."""
    first = following[len(lengths)]
    size = min(lengths[first] - taken[first], capacities[-1])
    chosen, least = capacities[-1], 2.0
    for number in range(np.searchsorted(capacities, size), len(capacities)):
        share = _gap(lengths, following, taken, capacities[number]) / capacities[number]
        if share < least:
            chosen, least = capacities[number], share
        if share <= threshold:
            break
    return chosen


@compiled
def fill_in_order(
    lengths: Longs, capacities: Longs, threshold: float, following: Longs, taken: Longs, placed: Placed
) -> None:
    """Plan all documents with little padding and few cuts, from those that come next, not the longest.

    Args:
        lengths: int64 [documents].
        capacities: int64, ascending.
        threshold: the share of a sample that may be padding.
        following: int64 [documents + 1], memory.
        taken: int64 [documents], zeros.
        placed: room for the plan.
    """
    # Documents left are a list that begins behind the last place, which stands for none.
    none = len(lengths)
    at = none
    for document in range(none):
        if lengths[document] > 0:
            following[at] = document
            at = document
    following[at] = none
    while following[none] != none:
        capacity = _choose(lengths, following, taken, capacities, threshold)
        space, before, passed_over = capacity, none, 0
        document = following[none]
        if lengths[document] - taken[document] > capacity:
            put(placed, taken, document, capacity)
            space = 0
        while space > 0 and following[before] != none and passed_over < LOOK_AHEAD:
            document = following[before]
            size = lengths[document] - taken[document]
            if size > space:
                before = document
                passed_over += 1
                continue
            put(placed, taken, document, size)
            space -= size
            following[before] = following[document]
        if following[none] != none and space > 0 and space / capacity > threshold:
            put(placed, taken, following[none], space)
        close(placed, capacity)
