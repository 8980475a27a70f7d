"""Where lines that kernels logged stand in their texts, in characters."""

from typing import Literal

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


def most_lines(data: Bytes, offsets: Longs) -> int:
    """Return how many lines, however they end, all documents together have at most."""
    from longcrawl.text.lines._place_kernels import count_breaks

    return int(count_breaks(data[offsets[0] : offsets[-1]])) + len(offsets) - 1


def locate_lines(
    data: Bytes, offsets: Longs, out: Bytes, log: Longs, discarded: Literal["line", "content"] = "line"
) -> tuple[Longs, Longs, Longs]:
    """Find what changed in lines that were edited or discarded.

    Args:
        data: UTF-8 of all documents.
        offsets: where each document starts and the last one ends.
        out: what a kernel wrote.
        log: int64 [lines, 5 or more], of each line, in increasing order: its number, start and stop in ``data``, and
            in ``out``. A line that has nothing there is discarded.
        discarded: what goes of such a line: all of it with its line end, or what ``log`` says alone.

    Returns:
        int64 [lines], the row of each line's document; int64 [lines, 2], start and end in characters, of an edited line
        from the first to the last one that changed; and int64 [lines], how many characters stand there now.

    """
    from longcrawl.text.lines._place_kernels import place_lines

    places = np.empty((len(log), 4), np.int64)
    place_lines(data, offsets, out, log, discarded == "line", places)
    return places[:, 0].copy(), places[:, 1:3].copy(), places[:, 3].copy()
