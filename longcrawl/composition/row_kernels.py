"""Moving tokens of shards into rows of a batch, as numba kernels: pieces of packed samples, and windows.

No Python object is made per token or document.
"""

# Numba takes arguments by position and compiles plain loops best:
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import count_up_to
from longcrawl.kernels.texts import read_only

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[Any]

IGNORED = -100
"""The label of a token that no loss is computed on."""

BLOCK = 64
"""Tokens of a window that are searched at a time."""


@allocating
def lay_out(
    bounds: Longs,
    sizes: Longs,
    joined: npt.NDArray[np.bool_],
    samples: Longs,
    rows: Longs,
    counts: Longs,
    filled: Longs,
) -> tuple[Longs, npt.NDArray[np.int64]]:
    """Describe where the pieces of some samples go, sample by sample.

    Args:
        bounds: int64 [samples of the plan + 1], the pieces of each.
        sizes: int64 [pieces of the plan], tokens of each.
        joined: bool [pieces of the plan], those that continue the text of the piece before; empty for none.
        samples: int64 [samples], those that are wanted.
        rows: int64 [samples], the row of a batch that each goes to.
        counts: int64 [rows], written: how many texts there are in a row.
        filled: int64 [rows], written: how many tokens.

    Returns:
        the number of each piece in the plan, and int64 [7, pieces] for :func:`fill_pieces`, in which first tokens are
        left to the caller; the first of each text is without loss.
    """
    total = 0
    for sample in samples:
        total += bounds[sample + 1] - bounds[sample]
    numbers, pieces, at = np.empty(total, np.int64), np.empty((7, total), np.int64), 0
    for wanted in range(len(samples)):
        row, place, begin, text = rows[wanted], 0, 0, -1
        for piece in range(bounds[samples[wanted]], bounds[samples[wanted] + 1]):
            begins = len(joined) == 0 or not joined[piece]
            if begins:
                begin, text = place, text + 1
            numbers[at] = piece
            pieces[1, at], pieces[2, at], pieces[3, at] = sizes[piece], begins, row
            pieces[4, at], pieces[5, at], pieces[6, at] = place, text, place - begin
            place += sizes[piece]
            at += 1
        counts[row], filled[row] = text + 1, place
    return numbers, pieces


@forced_inline
def mask_labels(flags: npt.NDArray[np.bool_], labels: npt.NDArray[np.int64]) -> None:
    """Ignore what has no flag."""
    for at in range(len(labels)):
        if not flags[at]:
            labels[at] = IGNORED


@forced_inline
def mask_after(end: int, ids: npt.NDArray[np.int64], after: bool, labels: npt.NDArray[np.int64]) -> None:  # noqa: FBT001  # kernels take arguments by position
    """Ignore each token after an ``end``; ``after`` says whether the first is one."""
    for at in range(len(labels)):
        if after:
            labels[at] = IGNORED
        after = ids[at] == end


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
        pieces: int64 [7, pieces], those of a sample in their order: the first token of each, how many it has, how many
            of these are without loss, its sample, its place in there, the number of its text in there, and its place in
            that text.
        reset: 1 if positions begin again with each text, 0 if they continue.
        end: the id after which a label is masked, or -1.
        out: int64 [4, samples, capacity], written: ids, labels, positions, documents.
    """
    _fill_pieces(read_only(tokens), read_only(flags), base, pieces, reset, end, out)


@compiled
def _fill_pieces(
    tokens: Any, flags: npt.NDArray[np.bool_], base: int, pieces: Longs, reset: int, end: int, out: Longs
) -> None:
    """Move the tokens of pieces into samples."""
    for piece in range(pieces.shape[1]):
        start, size, sample, place = pieces[0, piece] - base, pieces[1, piece], pieces[3, piece], pieces[4, piece]
        if start < 0 or start >= len(tokens):
            continue
        stop, number, shift = place + size, pieces[5, piece], pieces[6, piece] if reset else place
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


@allocating
def fill_padding(filled: Longs, counts: Longs, padding: int, reset: int, out: Longs) -> tuple[Longs, Longs]:
    """Fill samples up behind their pieces.

    Args:
        filled: int64 [samples], tokens of each.
        counts: int64 [samples], texts of each, which is the document number of its padding.
        padding: its id.
        reset: 1 if positions count the padding, too, from 0, and 0 if they are 0 there.
        out: see :func:`fill_pieces`.

    Returns:
        int64 [samples + 1], where the lengths of the texts of each sample and of its padding begin and end, and these
        lengths, of which those of padding are written, the others 0.
    """
    borders = np.zeros(len(filled) + 1, np.int64)
    for sample in range(len(filled)):
        row = out[:, sample, filled[sample] :]
        row[0], row[1], row[3] = padding, IGNORED, counts[sample]
        positions = row[2]
        for place in range(len(positions)):
            positions[place] = place if reset else 0
        borders[sample + 1] = borders[sample] + counts[sample] + (len(positions) > 0)
    lengths = np.zeros(borders[-1], np.int64)
    for sample in range(len(filled)):
        if filled[sample] < out.shape[2]:
            lengths[borders[sample + 1] - 1] = out.shape[2] - filled[sample]
    return borders, lengths


@compiled
def write_lengths(pieces: Longs, borders: Longs, lengths: Longs) -> None:
    """Add the lengths of pieces, as :func:`fill_pieces` took them, up to those of texts, between those of padding."""
    for piece in range(pieces.shape[1]):
        lengths[borders[pieces[3, piece]] + pieces[5, piece]] += pieces[1, piece]


@compiled
def copy_windows(tokens: Ints, starts: Ints, pad: int, out: Ints) -> None:
    """Copy the tokens from each start on into a row of ``out``; what lies behind the last token is ``pad``."""
    for row in range(len(starts)):
        stored, window = tokens[starts[row] : starts[row] + out.shape[1]], out[row]
        # Indexes that begin at 0 need no test for being negative, and such loops become vector instructions.
        for column in range(len(stored)):
            window[column] = stored[column]
        window[len(stored) :] = pad


@compiled
def locate(numbers: Ints, firsts: Ints, length: int, slots: Ints, starts: Ints, borders: Ints) -> int:
    """Find the file of each window, and its first token in that file.

    Args:
        numbers: of windows, counted over all files.
        firsts: number of each file's first window, then how many there are.
        length: tokens of a window.
        slots: is given the place of each window's file in ``firsts``.
        starts: is given each window's first token in its file.
        borders: is given where windows of the same file, one after the other, begin, and the end.

    Returns:
        how many borders there are.
    """
    found = 0
    for row in range(len(numbers)):
        number = numbers[row]
        if row == 0 or not firsts[slots[row - 1]] <= number < firsts[slots[row - 1] + 1]:
            slots[row] = count_up_to(firsts, number) - 1
            borders[found] = row
            found += 1
        else:
            slots[row] = slots[row - 1]
        starts[row] = (number - firsts[slots[row]]) * length
    borders[found] = len(numbers)
    return found + 1


@forced_inline
def count_up(out: Ints) -> None:
    """Write 0, 1, 2, … ."""
    for position in range(len(out)):
        out[position] = position


@compiled
def positions_from_ends(ends: Ints, starts: Ints, out: Ints) -> None:
    """Number the tokens of each window from 0, and from 0 again after every end of a document inside of it.

    Equal ends, which are documents without tokens, are one end.
    """
    length = out.shape[1]
    for row in range(len(starts)):
        start, first = starts[row], 0
        end = count_up_to(ends, start)
        while first < length:
            stop = length
            if end < len(ends) and ends[end] - start < length:
                stop = ends[end] - start
            count_up(out[row, first:stop])
            first = stop
            end += 1


@compiled
def positions_from_end_of_text(windows: Ints, end_of_text: int, starts: Ints, tokens: int, out: Ints) -> None:
    """Number them from 0 after every token ``end_of_text``, and padding, behind the last of ``tokens``, from 0, too."""
    for row in range(len(windows)):
        first, length = 0, min(tokens - starts[row], windows.shape[1])
        for start in range(0, length, BLOCK):
            block = windows[row, start : min(start + BLOCK, length)]
            # Counting has no branch, so that most of a window is seen many tokens at a time.
            found = 0
            for place in range(len(block)):
                found += block[place] == end_of_text
            for place in range(len(block) if found else 0):
                if block[place] == end_of_text:
                    stop = start + place + 1
                    count_up(out[row, first:stop])
                    first = stop
        count_up(out[row, first:length])
        count_up(out[row, length:])
