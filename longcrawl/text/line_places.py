"""Character positions of lines that kernels changed."""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value"
# ruff: noqa: FBT001

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.places import make_places, no_places
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.texts import SHORT, count_characters

Bytes = npt.NDArray[np.uint8]

NEWLINE = 0x0A


@compiled
def count_line_ends(data: Any, start: int, stop: int) -> int:
    """Count the bytes that are the last one of whatever ends a line, by any definition, and some more."""
    found = 0
    for at in range(start, stop, SHORT):
        few = np.uint8(0)
        for byte in data[at : min(at + SHORT, stop)]:
            few = np.uint8(few + np.uint8((byte < 0x20) | (byte == 0x85) | (byte == 0xA8) | (byte == 0xA9)))
        found += few
    return found


@compiled
def _whole_line(data: Bytes, first: int, stop: int, start: int, end: int) -> tuple[int, int]:
    """Return where the line of a content starts, and where the next one does, within a document."""
    while first > start and data[first - 1] != NEWLINE:
        first -= 1
    while stop < end and data[stop] != NEWLINE:
        stop += 1
    return first, min(stop + 1, end)


@compiled
def _changed_part(data: Bytes, first: int, stop: int, out: Bytes, begin: int, end: int) -> tuple[int, int, int, int]:
    """Leave out what is equal at the beginning and at the end of a line, in whole characters."""
    while first < stop and begin < end and data[first] == out[begin]:
        first += 1
        begin += 1
    while first < stop and data[first] & 0xC0 == 0x80:
        first -= 1
        begin -= 1
    while stop > first and end > begin and data[stop - 1] == out[end - 1]:
        stop -= 1
        end -= 1
    while stop < len(data) and end < len(out) and data[stop] & 0xC0 == 0x80:
        stop += 1
        end += 1
    return first, stop, begin, end


@compiled
def place_lines(data: Bytes, offsets: Any, out: Bytes, log: Any, whole: bool, places: Any) -> None:
    """Write document, start, end and the number of characters that replace it for each line of ``log``.

    See :func:`longcrawl.text.line_places.locate_lines`.
    """
    document, at, characters = -1, 0, 0
    for row in range(len(log)):
        first, stop, begin, end = log[row, 1], log[row, 2], log[row, 3], log[row, 4]
        while first >= offsets[document + 1]:
            document += 1
            at, characters = offsets[document], 0
        if end == begin and whole:
            first, stop = _whole_line(data, first, stop, offsets[document], offsets[document + 1])
        elif end > begin:
            first, stop, begin, end = _changed_part(data, first, stop, out, begin, end)
        characters += count_characters(data, at, first)
        places[row, 0], places[row, 1] = document, characters
        characters += count_characters(data, first, stop)
        places[row, 2], places[row, 3] = characters, count_characters(out, begin, end)
        at = stop


@compiled
def shift_lines(log: Any, first: int, last: int, begin: int) -> None:
    """Let a log say where lines stand in ``out`` once bytes ``first`` to ``last`` of it have moved to ``begin``."""
    for row in range(len(log)):
        if log[row, 4] > log[row, 3]:
            log[row, 3] = begin + max(log[row, 3], first) - first
            log[row, 4] = begin + max(min(log[row, 4], last), first) - first


@compiled
def log_line(log: Any, row: int, number: int, begin: int, stop: int, first: int, last: int, rule: int) -> None:
    """Write a row of a log: number of the line, start and stop in ``data``, first and last in ``out``, rule."""
    if row < len(log):
        # An index without a sign is not asked whether it counts from the end.
        log[np.uint64(row), 0], log[np.uint64(row), 1], log[np.uint64(row), 2] = number, begin, stop
        log[np.uint64(row), 3], log[np.uint64(row), 4], log[np.uint64(row), 5] = first, last, rule


Longs = npt.NDArray[np.int64]

LOGGED = 6
"""Columns of a log of lines: number, start and stop in the texts, start and stop in what was written, what was done."""


def most_lines(data: Bytes, offsets: Longs) -> int:
    """Return how many lines, however they end, all documents together have at most."""
    return int(count_line_ends(data, offsets[0], offsets[-1])) + len(offsets) - 1


def locate_lines(
    data: Bytes,
    offsets: Longs,
    out: Bytes,
    log: Longs,
    name_of: Callable[[int], str],
    removed: Literal["line", "content"],
) -> pa.Table:
    """Return what changed in lines that were edited or removed, as places of ``core.places``.

    Args:
        data: UTF-8 of all documents.
        offsets: where each document starts and the last one ends.
        out: what a kernel wrote.
        log: int64 [lines, LOGGED], in increasing order. A line that has nothing in ``out`` is removed.
        name_of: the rule by the last column of the log.
        removed: what goes of such a line: all of it with its line end, or what ``log`` says alone. An edited line is
            listed from the first to the last character that changed.
    """
    if not len(log):
        return no_places()

    places = np.empty((len(log), 4), np.int64)
    place_lines(data, offsets, out, log, removed == "line", places)
    codes, numbers = np.unique(log[:, 5], return_inverse=True)
    rules = pa.array([name_of(code) for code in codes.tolist()], pa.string()).take(pa.array(numbers))
    return make_places(places[:, 0].copy(), rules, places[:, 1:3].copy(), places[:, 3].copy())
