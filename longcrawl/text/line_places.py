"""Edits that list the places they change, and the character positions of lines that kernels edited or removed."""

# Inside kernels, ints and numpy ints are one type, which mypy does not know; the codes are off for the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value"
# ruff: noqa: FBT001

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.places import LineChange, make_places, no_places
from longcrawl.core.stages import Check, Edit, Edited
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.texts import SHORT, count_characters, text_buffers

Bytes = npt.NDArray[np.uint8]

NEWLINE = 0x0A


@compiled
def count_line_ends(data: Any, start: int, stop: int) -> int:
    """Return an upper bound on the line ends, by any definition: the count of bytes that can be the last of one."""
    found = 0
    for at in range(start, stop, SHORT):
        few = np.uint8(0)
        for byte in data[at : min(at + SHORT, stop)]:
            few = np.uint8(few + np.uint8((byte < 0x20) | (byte == 0x85) | (byte == 0xA8) | (byte == 0xA9)))
        found += few
    return found


@compiled
def _whole_line(data: Bytes, first: int, stop: int, start: int, end: int) -> tuple[int, int]:
    """Return where the line that contains a part starts, and where the next line starts, within a document."""
    while first > start and data[first - 1] != NEWLINE:
        first -= 1
    while stop < end and data[stop] != NEWLINE:
        stop += 1
    return first, min(stop + 1, end)


@compiled
def _changed_part(data: Bytes, first: int, stop: int, out: Bytes, begin: int, end: int) -> tuple[int, int, int, int]:
    """Narrow the old and new part of a line to the bytes that differ, in whole characters."""
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
    """Write document, start, end and number of replacement characters to ``places``, see :func:`locate_lines`."""
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
    """Update the positions in ``out`` of a log after bytes ``first`` to ``last`` of ``out`` have moved to ``begin``."""
    for row in range(len(log)):
        if log[row, 4] > log[row, 3]:
            log[row, 3] = begin + max(log[row, 3], first) - first
            log[row, 4] = begin + max(min(log[row, 4], last), first) - first


@compiled
def log_line(log: Any, row: int, number: int, begin: int, stop: int, first: int, last: int, rule: int) -> None:
    """Write a row of a log: line number, start and stop in ``data``, start and stop in ``out``, rule."""
    if row < len(log):
        # An unsigned index saves the check for a negative one.
        log[np.uint64(row), 0], log[np.uint64(row), 1], log[np.uint64(row), 2] = number, begin, stop
        log[np.uint64(row), 3], log[np.uint64(row), 4], log[np.uint64(row), 5] = first, last, rule


Longs = npt.NDArray[np.int64]

LOGGED = 6  # number of columns of a log: line number, start and stop in the texts, start and stop in the output, rule
Record = Literal["places", "nothing"]  # what an edit records: the places that it changes, or nothing


class RecordedEdit(Edit):
    """Base class of edits that list the places they change only if asked to."""

    @abstractmethod
    def edit_and_record(self, table: pa.Table, record: Record) -> Edited:
        """Edit a batch and measure every rule on it; the places are empty if ``record`` is "nothing"."""

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Edit a batch of documents, and measure every rule on it."""
        return self.edit_and_record(table, "nothing")[:2]

    def trace(self, table: pa.Table) -> Edited:
        """Do what ``edit`` does, and list the changed places."""
        return self.edit_and_record(table, "places")


class Buffers(NamedTuple):
    """The texts of a batch, and room for what a kernel makes of them."""

    data: Bytes  # UTF-8 of all texts
    offsets: Longs  # int64 [texts + 1], in bytes
    out: Bytes
    ends: Longs  # int64 [texts + 1], like ``offsets``, in ``out``
    counts: Longs  # int64 [texts, 3], zeros
    log: Longs  # int64 [lines, LOGGED], no rows if nothing is recorded


def make_buffers(texts: pa.Array, record: Record) -> Buffers:
    """Allocate the buffers for valid texts; the output may be as long as the texts."""
    data, offsets = text_buffers(texts)
    lines = int(count_line_ends(data, offsets[0], offsets[-1])) + len(texts) if record == "places" else 0
    out, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.empty(len(offsets), np.int64)
    return Buffers(data, offsets, out, ends, np.zeros((len(texts), 3), np.int64), np.empty((lines, LOGGED), np.int64))


def line_change(made: Buffers, row: list[int], rule: str, *, edited: bool) -> LineChange:
    """Return a row of a log as a line that was edited or removed by a rule."""
    number, start, stop, begin, end, _ = row
    after = made.out[begin:end].tobytes().decode() if edited else None
    return LineChange(number, made.data[start:stop].tobytes().decode(), after, rule)


def locate_lines(
    made: Buffers, rows: int, name_of: Callable[[int], str], removed: Literal["line", "content"]
) -> pa.Table:
    """Return the lines in the first ``rows`` of a log, in increasing order, as changed places of ``core.places``.

    An edited line is listed from the first to the last character that changed. A row without bytes in ``out`` is a
    removed line: "line" includes its line end, "content" is the bytes in the log alone. ``name_of`` returns the name
    of the rule in the last column.
    """
    log = made.log[:rows]
    if not len(log):
        return no_places()
    places = np.empty((len(log), 4), np.int64)
    place_lines(made.data, made.offsets, made.out, log, removed == "line", places)
    codes, numbers = np.unique(log[:, 5], return_inverse=True)
    rules = pa.array([name_of(code) for code in codes.tolist()], pa.string()).take(pa.array(numbers))
    return make_places(places[:, 0].copy(), rules, places[:, 1:3].copy(), places[:, 3].copy())
