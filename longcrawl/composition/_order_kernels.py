"""Samples of documents that follow each other, also of some between the chunks of another, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np

from longcrawl.composition._plan_kernels import Longs, Placed, close, put
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import count_up_to

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
    for number in range(count_up_to(capacities, size - 1), len(capacities)):
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


@compiled
def _longest(sizes: Longs, first: int, stop: int) -> int:
    """Return the first of the longest pieces."""
    longest = first
    for piece in range(first + 1, stop):
        if sizes[piece] > sizes[longest]:
            longest = piece
    return longest


@compiled
def interleave(plan: Placed, chunk: int, placed: Placed) -> None:
    """Cut the longest piece of each sample into chunks and put the other pieces, in their order, between them.

    Args:
        plan: of samples.
        chunk: most tokens of a chunk; a sample without a longer piece stays as it is.
        placed: room for the same samples, and twice as many pieces.
    """
    first = 0
    for sample in range(plan.counts[1]):
        stop = plan.ends[sample]
        longest = _longest(plan.sizes, first, stop)
        if plan.sizes[longest] > chunk:
            _spread(plan, first, stop, longest, chunk, placed)
        else:
            for piece in range(first, stop):
                _copy(plan, piece, 0, plan.sizes[piece], placed)
        close(placed, plan.capacities[sample])
        first = stop


@compiled
def _spread(plan: Placed, first: int, stop: int, longest: int, chunk: int, placed: Placed) -> None:
    """Put the pieces of a sample between the chunks of the longest.

    The chunks are as few as have ``chunk`` tokens at most, of equal length within a token. Each other piece goes into
    the gap in which its middle would be if the tokens of all others were spread over the gaps evenly. Chunks without
    another piece between them stay one piece.
    """
    size, others = plan.sizes[longest], -plan.sizes[longest]
    for piece in range(first, stop):
        others += plan.sizes[piece]
    chunks = (size + chunk - 1) // chunk
    taken, before = np.int64(0), np.int64(0)
    for piece in range(first, stop):
        if piece == longest:
            continue
        gap = (2 * before + plan.sizes[piece]) * (chunks - 1) // (2 * others)
        before += plan.sizes[piece]
        end = (gap + 1) * size // chunks
        if end > taken:
            _copy(plan, longest, taken, end - taken, placed)
            taken = end
        _copy(plan, piece, 0, plan.sizes[piece], placed)
    _copy(plan, longest, taken, size - taken, placed)


@compiled
def _copy(plan: Placed, piece: int, skipped: int, size: int, placed: Placed) -> None:
    """Put tokens of a piece into the sample, from the ``skipped``-th on."""
    at = placed.counts[0]
    placed.documents[at], placed.starts[at] = plan.documents[piece], plan.starts[piece] + skipped
    placed.sizes[at] = size
    placed.counts[0] = at + 1
