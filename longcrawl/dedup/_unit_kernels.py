"""From bytes of UTF-8 to characters and back, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment"

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled

Longs = npt.NDArray[np.int64]


@compiled
def whole_characters(data: npt.NDArray[np.uint8], offsets: Longs, rows: Longs, spans: Longs) -> None:
    """Replace spans of bytes by the characters that lie in them whole.

    Args:
        data: valid UTF-8.
        offsets: where each text starts and the last one ends.
        rows: int64 [spans], the text of each span.
        spans: int64 [spans, 2], start and stop in bytes of the text; those of one text follow one another and do not
            overlap. They become characters; a span without a whole one becomes empty or negative.

    """
    row, at, characters = -1, 0, 0
    for span in range(len(spans)):
        if rows[span] != row:
            row, characters = rows[span], 0
            at = offsets[row]
        for side in range(2):
            stop = offsets[row] + spans[span, side]
            while at < stop:
                characters += data[at] & 0xC0 != 0x80
                at += 1
            inside = stop < offsets[row + 1] and data[stop] & 0xC0 == 0x80
            # A character that the span begins within has been counted, as it must; one that it ends within must not.
            spans[span, side] = characters - 1 if inside and side == 1 else characters


@compiled
def bytes_of_characters(data: npt.NDArray[np.uint8], offsets: Longs, rows: Longs, spans: Longs) -> None:
    """Replace spans of characters by their bytes; arguments as in :func:`whole_characters`."""
    row, at, characters = -1, 0, 0
    for span in range(len(spans)):
        if rows[span] != row:
            row, characters = rows[span], 0
            at = offsets[row]
        for side in range(2):
            while characters < spans[span, side] or (at < offsets[row + 1] and data[at] & 0xC0 == 0x80):
                characters += data[at] & 0xC0 != 0x80
                at += 1
            spans[span, side] = at - offsets[row]
