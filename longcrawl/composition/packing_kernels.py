"""Which sample each document of a bin packing goes to, and moving its tokens there, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np
import numpy.typing as npt

from longcrawl.composition._bucket_kernels import Lengths, greatest, insert, remove
from longcrawl.kernels.lookup import compiled, inlined

__all__ = ["IGNORED", "best_fit", "binned_greedy", "fill_padding", "fill_pieces", "first_fit", "lay_out"]

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
    """Return the highest bin up to this one that holds something, or -1."""
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
def lay_out(
    bounds: Longs, sizes: Longs, samples: Longs, rows: Longs, counts: Longs, filled: Longs
) -> tuple[Longs, npt.NDArray[np.int64]]:
    """Describe where the pieces of some samples go, sample by sample.

    Args:
        bounds: int64 [samples of the plan + 1], the pieces of each.
        sizes: int64 [pieces of the plan], tokens of each.
        samples: int64 [samples], those that are wanted.
        rows: int64 [samples], the row of a batch that each goes to.
        counts: int64 [rows], written: how many pieces there are in a row.
        filled: int64 [rows], written: how many tokens.

    Returns:
        the number of each piece in the plan, and int64 [6, pieces] for :func:`fill_pieces`, in which first tokens are
        left to the caller, and none are without loss.

    """
    total = 0
    for sample in samples:
        total += bounds[sample + 1] - bounds[sample]
    numbers, pieces, at = np.empty(total, np.int64), np.empty((6, total), np.int64), 0
    for wanted in range(len(samples)):
        first, row, place = bounds[samples[wanted]], rows[wanted], 0
        counts[row] = bounds[samples[wanted] + 1] - first
        for within in range(counts[row]):
            numbers[at] = first + within
            pieces[1, at], pieces[2, at], pieces[3, at] = sizes[first + within], 0, row
            pieces[4, at], pieces[5, at] = place, within
            place += sizes[first + within]
            at += 1
        filled[row] = place
    return numbers, pieces


@inlined
def mask_labels(flags: npt.NDArray[np.bool_], labels: npt.NDArray[np.int64]) -> None:
    """Ignore what has no flag."""
    for at in range(len(labels)):
        if not flags[at]:
            labels[at] = IGNORED


@inlined
def mask_after(end: int, ids: npt.NDArray[np.int64], after: bool, labels: npt.NDArray[np.int64]) -> None:  # noqa: FBT001  # kernels take arguments by position
    """Ignore each token after an ``end``; ``after`` says whether the first is one."""
    for at in range(len(labels)):
        if after:
            labels[at] = IGNORED
        after = ids[at] == end


@compiled
def fill_pieces(
    tokens: npt.NDArray[np.uint32],
    flags: npt.NDArray[np.bool_],
    base: int,
    pieces: npt.NDArray[np.int64],
    reset: int,
    end: int,
    out: npt.NDArray[np.int64],
) -> None:
    """Move the tokens of pieces into samples, and write labels, positions and document numbers beside them.

    Args:
        tokens: uint16 or uint32, of one shard; a piece that begins in another one is left alone.
        flags: as long, False where no loss is due, or empty for True throughout.
        base: what the first of ``tokens`` is counted as.
        pieces: int64 [6, pieces], those of a sample in their order: the first token of each, how many it has, how many
            of these are without loss, its sample, its place in there, and its number in there.
        reset: 1 if positions begin anew with each piece, 0 if they go on.
        end: the id after which a label is masked, or -1.
        out: int64 [4, samples, capacity], written: ids, labels, positions, documents.

    """
    for piece in range(pieces.shape[1]):
        start, size, sample, place = pieces[0, piece] - base, pieces[1, piece], pieces[3, piece], pieces[4, piece]
        if start < 0 or start >= len(tokens):
            continue
        stop, number, shift = place + size, pieces[5, piece], 0 if reset else place
        stored, ids, labels = tokens[start : start + size], out[0, sample, place:stop], out[1, sample, place:stop]
        positions, numbers = out[2, sample, place:stop], out[3, sample, place:stop]
        # One array after the other, element by element from index 0 on: such loops become vector instructions, which
        # assignments to slices do not, nor one loop over all arrays.
        for at in range(len(stored)):
            ids[at] = stored[at]
        for at in range(len(stored)):
            labels[at] = stored[at]
        for at in range(len(positions)):
            positions[at] = at + shift
        for at in range(len(numbers)):
            numbers[at] = number
        for at in range(pieces[2, piece]):
            labels[at] = IGNORED
        if len(flags):
            mask_labels(flags[start : start + size], labels)
        if end >= 0:
            mask_after(end, ids, place > 0 and out[0, sample, place - 1] == end, labels)


@compiled
def fill_padding(filled: Longs, counts: Longs, padding: int, reset: int, out: npt.NDArray[np.int64]) -> None:
    """Fill samples up behind their pieces.

    Args:
        filled: int64 [samples], tokens of each.
        counts: int64 [samples], pieces of each, which is the document number of its padding.
        padding: its id.
        reset: 1 if positions count the padding, too, from 0, and 0 if they are 0 there.
        out: see :func:`fill_pieces`.

    """
    for sample in range(len(filled)):
        row = out[:, sample, filled[sample] :]
        row[0], row[1], row[3] = padding, IGNORED, counts[sample]
        positions = row[2]
        for place in range(len(positions)):
            positions[place] = place if reset else 0
