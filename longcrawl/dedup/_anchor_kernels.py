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

from longcrawl.dedup._substring_kernels import CHUNK, Windows, compiled, hash_windows

__all__ = ["scan_anchors"]

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
    """Give the least of ``width`` hashes from each of ``count`` on, by doubling; ``here`` and ``there`` are scratch."""
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
    ends: Tokens, entering: Wide, least: Wide, separator: Any, length: int, carried: Longs, where: Longs, anchors: Wide
) -> int:
    """List the windows from which another anchor holds, and those where documents end; give how many there are.

    ``where`` gets twice the window's place, plus 1 if the window lies inside a document. An anchor that enters counts
    even if it equals the one before it, so every place that is the last anchor of some window is listed exactly once.
    """
    found = 0
    last_separator, was_inside, before = carried[0], carried[1] != 0, _U(carried[2])
    for at in range(ends.size):
        last_separator = at + length - 1 if ends[at] == separator else last_separator
        inside = last_separator < at
        anchor = least[at]
        new = (anchor != before) | (entering[at] == anchor) | (not was_inside)
        where[found] = 2 * at + inside
        anchors[found] = anchor
        found += (inside & new) | (inside != was_inside)
        was_inside = inside
        before = anchor
    carried[0], carried[1], carried[2] = last_separator - ends.size, was_inside, np.int64(before)
    return found


@compiled
def _to_cells(anchors: Wide, where: Longs, found: int, part: int, parts: int, cells: int) -> None:
    """Turn each anchor into the number of its cell; one of another part becomes a change out of all documents."""
    for at in range(found):
        mixed = (anchors[at] ^ (anchors[at] >> _U(29))) * _MIX
        mixed ^= mixed >> _HALF
        scaled = (mixed >> _HALF) * _U(parts)
        if scaled >> _HALF != _U(part):
            where[at] &= -2
        # What is left of the upper half within the part, and the lower half, choose the cell.
        anchors[at] = ((scaled & _LOW) ^ (mixed & _LOW)) * _U(cells) >> _HALF


@compiled
def _count(anchors: Wide, where: Longs, found: int, counts: Wide) -> None:
    """Count cells, two bits each: seen once, seen twice."""
    for at in range(found):
        cell = anchors[at]
        word, shift = counts[cell >> _U(5)], (cell & _U(31)) * _U(2)
        seen = _U(1) | ((word >> shift & _U(1)) << _U(1))
        counts[cell >> _U(5)] = word | (seen << shift) * _U(where[at] & 1)


@compiled
def _look_up(anchors: Wide, where: Longs, found: int, counts: Wide) -> None:
    """Replace each cell by 1 if it was seen twice and the window lies inside a document, else by 0."""
    for at in range(found):
        cell = anchors[at]
        twice = counts[cell >> _U(5)] >> ((cell & _U(31)) * _U(2) + _U(1)) & _U(1)
        anchors[at] = twice & _U(where[at])


@compiled
def scan_anchors(
    windows: Windows, start: int, stop: int, share: tuple[int, int, int], counts: Wide, runs: Longs
) -> tuple[int, int]:
    """Count the anchors of the windows from ``start`` to ``stop``; if ``runs`` has rows, list runs of windows instead.

    Args:
        windows: the last ``windows.length - 1`` tokens start no window and must not be in reach of ``stop``.
        start: the first window, as the place of its first token.
        stop: the one after the last.
        share: (part, parts, cells): anchors whose hash falls into that part of ``parts`` are counted in ``cells``.
        counts: two bits per cell, seen once and seen twice; counting goes on from what is there.
        runs: shape (0, 2), or (CHUNK, 2) and more: gets [first, stop) of windows whose anchors were counted twice.

    Returns:
        The first window not looked at, which is ``stop`` unless ``runs`` is full, and the number of rows written.

    """
    at, length, width = start, windows.length, windows.length - windows.gram + 1
    sums, hashes = np.empty(CHUNK + 2 * length, np.uint64), np.empty(CHUNK + 2 * length, np.uint64)
    here, there = np.empty(CHUNK + 2 * length, np.uint64), np.empty(CHUNK + 2 * length, np.uint64)
    anchors, where = np.empty(CHUNK + 1, np.uint64), np.empty(CHUNK + 1, np.int64)
    carried = np.array([-1, 0, 0])
    for ahead in range(length - 1):
        if windows.tokens[at + ahead] == windows.separator:
            carried[0] = ahead
    written, inside, first = 0, False, 0
    while at < stop and (len(runs) == 0 or written + CHUNK // 2 + 2 <= len(runs)):
        count = min(CHUNK, stop - at)
        hash_windows(windows, at, count + width - 1, windows.gram, sums, hashes)
        least = _least_of_each(hashes, count, width, here, there)
        ends, entering = (
            windows.tokens[at + length - 1 : at + length - 1 + count],
            hashes[width - 1 : width - 1 + count],
        )
        found = _changes(ends, entering, least, windows.separator, length, carried, where, anchors)
        _to_cells(anchors, where, found, share[0], share[1], share[2])
        if len(runs) == 0:
            _count(anchors, where, found, counts)
        else:
            _look_up(anchors, where, found, counts)
            for change in range(found):
                repeats = anchors[change] != _U(0)
                if repeats and not inside:
                    first = at + (where[change] >> 1)
                elif inside and not repeats:
                    runs[written, 0], runs[written, 1] = first, at + (where[change] >> 1)
                    written += 1
                inside = repeats
        at += count
    if inside:
        runs[written, 0], runs[written, 1] = first, at
        written += 1
    return at, written
