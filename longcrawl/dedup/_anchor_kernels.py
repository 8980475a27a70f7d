"""Which windows of tokens may repeat, as numba kernels.

An *anchor* of a window is the least hash of its grams, ``gram`` tokens in a row. Equal windows have equal anchors, and
several windows in a row share one, so far fewer counts than there are windows tell which windows' anchors occur once:
those windows cannot repeat.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc, index"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.dedup._substring_kernels import CHUNK, Windows, hash_windows
from longcrawl.kernels.lookup import compiled

Tokens = npt.NDArray[Any]
Wide = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

_U = np.uint64
_MIX = _U(0xA0761D6478BD642F)
_LOW = _U(0xFFFFFFFF)
_HALF = _U(32)


@compiled
def _lower(first: Wide, second: Wide, lower: Wide) -> None:
    """Write the lower of each two; by itself this loop becomes vector instructions."""
    for at in range(first.size):
        lower[at] = min(first[at], second[at])


@compiled
def _least_of_each(hashes: Wide, count: int, width: int, here: Wide, there: Wide) -> Wide:
    """Return the least of ``width`` hashes from each of ``count`` on, by doubling; ``here``, ``there``: scratch."""
    size = count + width - 1
    least, span = hashes, 1
    while 2 * span <= width:
        size -= span
        _lower(least[:size], least[span : span + size], here[:size])
        least, here, there = here, there, here
        span *= 2
    if width > span:
        _lower(least[:count], least[width - span : width - span + count], here[:count])
        least = here
    return least


@compiled
def _changes(
    ends: Tokens, entering: Wide, least: Wide, separator: Any, length: int, start: int, carried: Longs, changes: Longs
) -> int:
    """List the windows from which another anchor holds, and those where documents end; give how many there are.

    An anchor that enters where an equal one holds is listed too, so that anchors which occur twice are listed twice;
    if still more of them follow at once, those are not.
    """
    found = 0
    last_separator, was_inside, before, again = carried[0], carried[1] != 0, _U(carried[2]), carried[3] != 0
    for at in range(ends.size):
        last_separator = at + length - 1 if ends[at] == separator else last_separator
        inside = last_separator < at
        anchor = least[at]
        new = (anchor != before) | (not was_inside)
        enters = entering[at] == anchor
        changes[found, 0] = 2 * (start + at) + inside
        changes[found, 1] = np.int64(anchor)
        found += (inside & (new | (enters & (not again)))) | (inside != was_inside)
        again = (enters | again) & (not new)
        was_inside = inside
        before = anchor
    carried[0], carried[1], carried[2], carried[3] = last_separator - ends.size, was_inside, np.int64(before), again
    return found


@compiled
def list_anchors(windows: Windows, start: int, stop: int, changes: Longs) -> tuple[int, int]:
    """List where anchors change among the windows from ``start`` to ``stop``.

    Args:
        windows: the last ``windows.length - 1`` tokens start no window and must not be in reach of ``stop``.
        start: the first window, as the place of its first token.
        stop: the one after the last.
        changes: int64 (n, 2), n at least CHUNK + 1: gets twice a window's place, plus 1 if it lies inside a document,
            and the bits of its anchor's hash. An anchor that holds when another call begins is listed once more.

    Returns:
        The first window not looked at, which is ``stop`` unless ``changes`` is full, and the number of rows written.

    """
    at, length, width = start, windows.length, windows.length - windows.gram + 1
    sums, hashes = np.empty(CHUNK + 2 * length, np.uint64), np.empty(CHUNK + 2 * length, np.uint64)
    here, there = np.empty(CHUNK + 2 * length, np.uint64), np.empty(CHUNK + 2 * length, np.uint64)
    carried, written = np.array([-1, 0, 0, 0]), 0
    for ahead in range(length - 1):
        if windows.tokens[at + ahead] == windows.separator:
            carried[0] = ahead
    while at < stop and written + CHUNK + 1 <= len(changes):
        count = min(CHUNK, stop - at)
        hash_windows(windows, at, count + width - 1, windows.gram, sums, hashes)
        least = _least_of_each(hashes, count, width, here, there)
        ends, entering = (
            windows.tokens[at + length - 1 : at + length - 1 + count],
            hashes[width - 1 : width - 1 + count],
        )
        written += _changes(ends, entering, least, windows.separator, length, at, carried, changes[written:])
        at += count
    return at, written


@compiled
def _to_cells(changes: Longs, share: tuple[int, int, int], cells: Wide, counts_here: Wide) -> None:
    """Write the cell of each anchor, and 1 where it falls into the part and its window lies inside a document."""
    for row in range(len(changes)):
        mixed = _U(changes[row, 1])
        mixed = (mixed ^ (mixed >> _U(29))) * _MIX
        mixed ^= mixed >> _HALF
        scaled = (mixed >> _HALF) * _U(share[1])
        counts_here[row] = _U((scaled >> _HALF == _U(share[0])) & (changes[row, 0] & 1 != 0))
        # What is left of the upper half within the part, and the lower half, choose the cell.
        cells[row] = ((scaled & _LOW) ^ (mixed & _LOW)) * _U(share[2]) >> _HALF


@compiled
def count_anchors(changes: Longs, share: tuple[int, int, int], counts: Wide) -> None:
    """Count how often each anchor is listed, up to two.

    Args:
        changes: rows of :func:`list_anchors`.
        share: (part, parts, cells): anchors whose hash falls into that part of ``parts`` are counted in ``cells``.
        counts: two bits per cell, seen once and seen twice; counting goes on from what is there.

    """
    cells, counts_here = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    for first in range(0, len(changes), CHUNK):
        chunk = changes[first : first + CHUNK]
        _to_cells(chunk, share, cells, counts_here)
        # By itself this loop does not wait for one count before it fetches the next.
        for row in range(len(chunk)):
            word, shift = counts[cells[row] >> _U(5)], (cells[row] & _U(31)) * _U(2)
            seen = _U(1) | ((word >> shift & _U(1)) << _U(1))
            counts[cells[row] >> _U(5)] = word | (seen << shift) * counts_here[row]


@compiled
def find_runs(changes: Longs, share: tuple[int, int, int], counts: Wide, opened: int, runs: Longs) -> tuple[int, int]:
    """List runs of windows whose anchors were counted twice.

    Args:
        changes: rows of :func:`list_anchors`, in order over all calls.
        share: as in :func:`count_anchors`.
        counts: what that left.
        opened: the first window of a run that an earlier call has not seen the end of, or -1.
        runs: shape (n, 2), n at least half of the changes and 1: gets [first, stop).

    Returns:
        What is ``opened`` for the next call, and the number of rows written.

    """
    written = 0
    cells, counts_here = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    for first in range(0, len(changes), CHUNK):
        chunk = changes[first : first + CHUNK]
        _to_cells(chunk, share, cells, counts_here)
        for row in range(len(chunk)):
            cells[row] = counts[cells[row] >> _U(5)] >> ((cells[row] & _U(31)) * _U(2) + _U(1)) & counts_here[row]
        for row in range(len(chunk)):
            repeats = cells[row] != _U(0)
            if repeats and opened < 0:
                opened = chunk[row, 0] >> 1
            elif opened >= 0 and not repeats:
                runs[written, 0], runs[written, 1] = opened, chunk[row, 0] >> 1
                written += 1
                opened = -1
    return opened, written
