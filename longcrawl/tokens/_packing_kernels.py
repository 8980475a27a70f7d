"""Which sample each document of a bin packing goes to, and moving its tokens there, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np
import numpy.typing as npt

from longcrawl.text._lookup_kernels import compiled
from longcrawl.tokens._bucket_kernels import Lengths, greatest, insert, remove

__all__ = ["IGNORED", "best_fit", "binned_greedy", "fill_samples", "first_fit"]

Longs = npt.NDArray[np.int64]

IGNORED = -100
"""The label of a token that no loss is computed on."""


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


@compiled
def binned_greedy(sizes: Longs, capacity: int, bin_of: Longs, look_at: int, samples: Longs) -> int:
    """Fill one sample after the other from bins of like sizes, and give how many samples there are.

    A sample begins with the first item of the highest bin. Then, of the bin that its room is in, the first of
    ``look_at`` items that fits, else the first item of the highest bin below; until there is none.

    Args:
        sizes: int64 [items], each from 1 to ``capacity``.
        capacity: of every sample.
        bin_of: int64 [capacity + 1], the bin of each size, never falling.
        look_at: items of a bin that are compared with the room.
        samples: int64 [items], written.

    """
    first = np.full(bin_of[capacity] + 1, -1, np.int64)
    following = np.empty(len(sizes), np.int64)
    for item in range(len(sizes) - 1, -1, -1):
        following[item] = first[bin_of[sizes[item]]]
        first[bin_of[sizes[item]]] = item
    count, highest = 0, len(first) - 1
    while True:
        highest = _filled_bin(first, highest)
        if highest < 0:
            return count
        room, at = capacity, highest
        while at >= 0 and room > 0:
            item = _take_fitting(first, following, at, sizes, room, look_at)
            if item >= 0:
                samples[item] = count
                room -= sizes[item]
                at = min(bin_of[room], highest)
            else:
                at -= 1
            at = _filled_bin(first, at)
        count += 1


@compiled
def _filled_bin(first: Longs, at: int) -> int:
    """Give the highest bin up to this one that holds something, or -1."""
    while at >= 0 and first[at] < 0:
        at -= 1
    return at


@compiled
def _take_fitting(first: Longs, following: Longs, at: int, sizes: Longs, room: int, look_at: int) -> int:
    """Take the first item out of a bin that fits, of so many that are looked at, or give -1."""
    before, item = -1, first[at]
    for _ in range(look_at):
        if item < 0:
            return -1
        if sizes[item] <= room:
            if before < 0:
                first[at] = following[item]
            else:
                following[before] = following[item]
            return item
        before, item = item, following[item]
    return -1


@compiled
def fill_samples(
    tokens: npt.NDArray[np.uint32],
    flags: npt.NDArray[np.bool_],
    pieces: npt.NDArray[np.int64],
    bounds: Longs,
    rules: tuple[int, int, int, int],
    out: npt.NDArray[np.int64],
) -> None:
    """Move the tokens of pieces into samples, and write labels, positions and document numbers beside them.

    Args:
        tokens: uint16 or uint32, of all entries.
        flags: as long, False where no loss is due, or empty for True throughout.
        pieces: int64 [pieces, 3]: the first token of each, how many it has, and how many of them are without loss.
        bounds: int64 [samples + 1]: the pieces of each sample.
        rules: the padding id, whether positions begin anew with each piece, whether the first label of each piece is
            masked, and the id after which a label is masked, or -1.
        out: int64 [4, samples, capacity], written: ids, labels, positions, documents.

    """
    padding, reset, mask_first, end = rules
    capacity = out.shape[2]
    for sample in range(len(bounds) - 1):
        at = 0
        for piece in range(bounds[sample], bounds[sample + 1]):
            first, size, masked = pieces[piece]
            for place in range(size):
                token = np.int64(tokens[first + place])
                counts = place >= masked and not (place == 0 and mask_first)
                counts &= len(flags) == 0 or flags[first + place]
                counts &= end < 0 or at == 0 or out[0, sample, at - 1] != end
                out[0, sample, at] = token
                out[1, sample, at] = token if counts else IGNORED
                out[2, sample, at] = place if reset else at
                out[3, sample, at] = piece - bounds[sample]
                at += 1
        for place in range(capacity - at):
            out[0, sample, at + place] = padding
            out[1, sample, at + place] = IGNORED
            out[2, sample, at + place] = place if reset else 0
            out[3, sample, at + place] = bounds[sample + 1] - bounds[sample]
