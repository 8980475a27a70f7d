"""Where lines that kernels logged stand in their texts, in characters."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.places import make_places, no_places

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

LOGGED = 6
"""Columns of a log of lines: number, start and stop in the texts, start and stop in what was written, what was done."""


def most_lines(data: Bytes, offsets: Longs) -> int:
    """Return how many lines, however they end, all documents together have at most."""
    from longcrawl.text.lines._place_kernels import count_line_ends

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
    from longcrawl.text.lines._place_kernels import place_lines

    places = np.empty((len(log), 4), np.int64)
    place_lines(data, offsets, out, log, removed == "line", places)
    codes, numbers = np.unique(log[:, 5], return_inverse=True)
    rules = pa.array([name_of(code) for code in codes.tolist()], pa.string()).take(pa.array(numbers))
    return make_places(places[:, 0].copy(), rules, places[:, 1:3].copy(), places[:, 3].copy())
