"""Windows of tokens that repeat, as numba kernels over one long row of tokens with a separator after each document.

An *anchor* of a window is the least hash of its grams, ``gram`` tokens in a row. Equal windows have equal anchors, and
several windows in a row share one, so far fewer counts than there are windows tell which windows' anchors occur once:
those windows cannot repeat. The others are hashed and looked up in a table of those met before, and where a hash is
found tokens are compared one by one.
"""

# Numba takes arguments by position. Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc, index"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline

Tokens = npt.NDArray[Any]
Wide = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

_U = np.uint64
_BASE = 0x9E3779B97F4A7C15
_MIX = _U(0xD6E8FEB86659FD93)
_ANCHOR_MIX = _U(0xA0761D6478BD642F)
_LOW = _U(0xFFFFFFFF)
_HALF = _U(32)

_GRAM_SHARE = 0.6
"""Of a window, see :class:`Windows`: shorter grams repeat more often without their windows, longer ones are more."""

CHUNK = 4096
"""Windows that are hashed together, so that what is computed of them stays in the first-level cache."""
SMALL_CHUNK = 256
"""The same where windows are looked up: runs are short, and a match makes the rest of a chunk useless."""

_PLACE_BITS = _U(40)
_PLACE = _U((1 << 40) - 1)
_TAG = _U(0xFFFFFF)

PAGE = 1 << 21
"""Bytes that the system maps at most when one byte of a file is touched (Linux 6.18 maps whole large folios)."""

STATE = 8
"""How many numbers ``match_windows`` keeps between calls; they start as zeros, ``UNSEEN`` as -1."""
RUN, START, SKIP, USED, UNSEEN, MAPPED, NEAR, FOUND = range(STATE)
"""The run and the window to resume with, the first window not known to repeat an earlier one, the windows in the table,
the first that found it full, the bytes of tokens touched, a place whose surroundings are among them, and the rows
written."""


class HashedWindows(NamedTuple):
    """All windows of ``length`` tokens that lie inside a document."""

    tokens: Tokens
    """Unsigned integers, with ``separator`` after each document."""
    separator: Any
    """Of the type of the tokens."""
    length: int
    gram: int
    """Tokens in the stretches of which the one with the least hash is a window's anchor."""
    powers: Wide
    """Powers of the base of the polynomial hash, modulo 2**64."""
    inverse_powers: Wide


def make_windows(tokens: Tokens, separator: Any, length: int) -> HashedWindows:
    """Prepare to look at windows of ``length`` tokens, 1 or more."""
    powers = np.empty((2, CHUNK + 2 * length), np.uint64)
    inverse = pow(_BASE, -1, 1 << 64)
    up = down = 1
    for at in range(powers.shape[1]):
        powers[:, at] = up, down
        up, down = up * _BASE % (1 << 64), down * inverse % (1 << 64)
    gram = max(1, round(_GRAM_SHARE * length))
    return HashedWindows(tokens, separator, length, gram, powers[0], powers[1])


@compiled
def hash_windows(windows: HashedWindows, start: int, count: int, length: int, sums: Wide, hashes: Wide) -> None:
    """Hash ``count`` stretches of ``length`` tokens, one from each token from ``start`` on.

    Differences of a running sum of token x power, brought to one power again: unlike in a rolling hash, no step waits
    for the multiplication of the step before.
    """
    tokens, powers, inverse_powers = windows.tokens[start:], windows.powers, windows.inverse_powers
    total = _U(0)
    sums[0] = total
    for at in range(count + length - 1):
        total += _U(tokens[at] + 1) * powers[at]
        sums[at + 1] = total
    for at in range(count):
        mixed = (sums[at + length] - sums[at]) * inverse_powers[at]
        hashes[at] = (mixed ^ (mixed >> _HALF)) * _MIX


@compiled
def _lower(first: Wide, second: Wide, lower: Wide) -> None:
    """Write the lower of each two; by itself this loop becomes vector instructions."""
    for at in range(first.size):
        lower[at] = min(first[at], second[at])


@allocating
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
    """List the windows from which another anchor holds, and those where documents end; return how many there are.

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


@allocating
def list_anchors(windows: HashedWindows, start: int, stop: int, changes: Longs) -> tuple[int, int]:
    """List where anchors change among the windows from ``start`` to ``stop``, the places of their first tokens.

    ``changes``, int64 (n, 2), n at least CHUNK + 1, gets twice a window's place, plus 1 if it lies inside a document,
    and the bits of its anchor's hash. An anchor that holds when another call begins is listed once more. The last
    ``windows.length - 1`` tokens start no window and must not be in reach of ``stop``.

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
        mixed = (mixed ^ (mixed >> _U(29))) * _ANCHOR_MIX
        mixed ^= mixed >> _HALF
        scaled = (mixed >> _HALF) * _U(share[1])
        counts_here[row] = _U((scaled >> _HALF == _U(share[0])) & (changes[row, 0] & 1 != 0))
        # What is left of the upper half within the part, and the lower half, choose the cell.
        cells[row] = ((scaled & _LOW) ^ (mixed & _LOW)) * _U(share[2]) >> _HALF


@allocating
def count_anchors(changes: Longs, share: tuple[int, int, int], counts: Wide) -> None:
    """Count how often each anchor is listed in ``changes``, rows of :func:`list_anchors`, up to two.

    Anchors whose hash falls into the part of ``share``, (part, parts, cells), are added to ``counts``, which has two
    bits per cell: seen once and seen twice.
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


@allocating
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


@forced_inline
def _common(tokens: Tokens, separator: Any, earlier: int, later: int, longest: int) -> int:
    """Count the tokens that two places have in common, up to the end of either's document."""
    same = 0
    while same < longest and tokens[later + same] == tokens[earlier + same] and tokens[later + same] != separator:
        same += 1
    return same


@forced_inline
def _meet(
    windows: HashedWindows, place: int, mixed: np.uint64, table: Wide, room: tuple[int, int, int], state: Longs
) -> tuple[int, int]:
    """Find an earlier window with the tokens of this one: its place and how many tokens the two places have in common.

    A window that is the first of its kind is written to the table, while there is room, and has 0 tokens in common.
    """
    tag = mixed >> _HALF & _TAG
    slot, size = (mixed & _LOW) * _U(table.size) >> _HALF, _U(table.size)
    while table[slot] != _U(0):
        entry = table[slot]
        if entry >> _PLACE_BITS == tag:
            earlier = np.int64(entry & _PLACE) - 1
            same = _common(windows.tokens, windows.separator, earlier, place, room[1])
            state[MAPPED] += 2 * same * windows.tokens.itemsize
            if abs(earlier - state[NEAR]) * windows.tokens.itemsize >= PAGE:
                state[MAPPED] += 3 * PAGE
                state[NEAR] = earlier
            if same >= windows.length:
                return earlier, same
        slot += _U(1)
        if slot == size:
            slot = _U(0)
    if state[USED] < room[0]:
        table[slot] = tag << _PLACE_BITS | _U(place + 1)
        state[USED] += 1
    elif state[UNSEEN] < 0:
        state[UNSEEN] = place
    return 0, 0


@allocating
def match_windows(
    windows: HashedWindows,
    runs: Longs,
    share: tuple[int, int],
    hash_mask: np.uint64,
    table: Wide,
    room: tuple[int, int, int],
    state: Longs,
    spans: Longs,
) -> None:
    """Look up the windows of ``runs`` that fall into a part, and write every stretch of tokens that two have in common.

    The table maps the hash of a window to the first place where its tokens stand: an entry is 24 bits of the hash and
    40 of the place plus 1, 0 is empty. Where hashes agree tokens are compared, and on from the window's end: windows
    inside the common stretch are known to repeat earlier ones and are passed over.

    Args:
        windows: the last token is a separator.
        runs: windows [first, stop) in increasing order, shape (runs, 2).
        share: (part, parts): windows whose hash falls into that part are looked up.
        hash_mask: the bits of hashes that are used; with fewer only time is lost.
        table: zeros, or what the last call left; it must have more rows than it may hold windows.
        room: windows the table may hold, tokens compared at once, bytes of tokens to touch before coming back.
        state: see ``STATE``; it is done when ``RUN`` is the number of runs.
        spans: shape (n, 3), n at least 2: [start, stop) in tokens, and the start of the other stretch; ``FOUND`` says
            how many rows are written.
    """
    length = windows.length
    sums, hashes = np.empty(SMALL_CHUNK + 2 * length, np.uint64), np.empty(SMALL_CHUNK + 2 * length, np.uint64)
    part, parts = _U(share[0]), _U(share[1])
    state[FOUND] = state[MAPPED] = 0
    state[NEAR] = -PAGE
    reached = np.int64(-1)
    while state[RUN] < len(runs):
        at, stop = max(runs[state[RUN], 0], state[START], state[SKIP]), runs[state[RUN], 1]
        while at < stop:
            count, step = min(SMALL_CHUNK, stop - at), 0
            hash_windows(windows, at, count, length, sums, hashes)
            # Runs that are not far apart have one page of the file or more between them.
            state[MAPPED] += (at + count - (reached if reached >= 0 else at)) * windows.tokens.itemsize
            reached = at + count
            while step < count:
                if state[FOUND] + 2 > len(spans) or state[MAPPED] >= room[2]:
                    state[START] = at + step
                    return
                mixed = (hashes[step] ^ (hashes[step] >> _HALF)) & hash_mask
                step += 1
                if (mixed >> _HALF) * parts >> _HALF != part:
                    continue
                place = at + step - 1
                earlier, same = _meet(windows, place, mixed, table, room, state)
                if same > 0:
                    found = state[FOUND]
                    spans[found, 0], spans[found, 1], spans[found, 2] = earlier, earlier + same, place
                    spans[found + 1, 0], spans[found + 1, 1], spans[found + 1, 2] = place, place + same, earlier
                    state[FOUND] = found + 2
                    state[SKIP] = place + same - length + 1
                    step += same - length
            at = max(at + count, state[SKIP])
        state[RUN] += 1


@allocating
def sample_hashes(
    windows: HashedWindows,
    runs: Longs,
    hash_mask: np.uint64,
    sampled: np.uint64,
    mappable: int,
    state: Longs,
    hashes: Wide,
) -> None:
    """Write the hashes of windows of ``runs`` that have none of the bits ``sampled``.

    ``runs``, ``hash_mask``, ``mappable`` and ``state`` are those of :func:`match_windows`; ``FOUND`` counts the hashes
    written, over all calls. It is done when ``RUN`` is the number of runs, or when ``hashes`` are full.
    """
    sums, chunk = np.empty(CHUNK + 2 * windows.length, np.uint64), np.empty(CHUNK + 2 * windows.length, np.uint64)
    mapped = 0
    while state[RUN] < len(runs):
        at, stop = max(runs[state[RUN], 0], state[START]), runs[state[RUN], 1]
        mapped += (at - state[START]) * windows.tokens.itemsize if mapped > 0 else 0
        while at < stop:
            if mapped >= mappable or state[FOUND] + SMALL_CHUNK > len(hashes):
                state[START] = at
                return
            count = min(SMALL_CHUNK, stop - at)
            hash_windows(windows, at, count, windows.length, sums, chunk)
            for place in range(count):
                mixed = (chunk[place] ^ (chunk[place] >> _HALF)) & hash_mask
                hashes[state[FOUND]] = mixed
                state[FOUND] += mixed & sampled == _U(0)
            at += count
            mapped += count * windows.tokens.itemsize
        state[START] = at
        state[RUN] += 1


@compiled
def join(spans: Longs) -> int:
    """Join, in place, stretches that overlap or touch; they are sorted by start. Returns how many are left.

    Where rows have a third number, a joined stretch keeps the least of those that start where it starts.
    """
    kept, linked = 0, spans.shape[1] > 2
    for row in range(len(spans)):
        if kept > 0 and spans[row, 0] <= spans[kept - 1, 1]:
            spans[kept - 1, 1] = max(spans[kept - 1, 1], spans[row, 1])
            if linked and spans[row, 0] == spans[kept - 1, 0]:
                spans[kept - 1, 2] = min(spans[kept - 1, 2], spans[row, 2])
        else:
            spans[kept, 0], spans[kept, 1] = spans[row, 0], spans[row, 1]
            if linked:
                spans[kept, 2] = spans[row, 2]
            kept += 1
    return kept
