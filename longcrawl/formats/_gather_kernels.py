"""Values of documents in the order in which an output has them, taken from where they were spilled, by addresses."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.memory import byte_at, copy_block, eight_at, four_at, put_eight


@forced_inline
def _offset(address: int, width: int) -> int:
    return np.int64(eight_at(address)) if width == 8 else four_at(address)


@compiled
def find_values(
    buffers: Any, batches: Any, rows: Any, width: int, size: int, sources: Any, ends: Any, valid: Any
) -> int:
    """Find where the values of one column are; return how many are null.

    Args:
        buffers: int64 [batches, 3], addresses of validity (0 for none), of offsets (0 for values of one size) and of
            values in each batch.
        batches: int64 [documents], the batch of each.
        rows: int64 [documents], its row there.
        width: bytes of an offset, 4 or 8.
        size: bytes of a value, or of each number of a list.
        sources: int64 [documents], filled with the address of each value.
        ends: int64 [documents + 1], the first is 0; filled with where each value ends among the ones found here.
        valid: bool [documents], filled.
    """
    end, nulls = np.int64(0), np.int64(0)
    for document in range(len(batches)):
        batch, row = batches[document], rows[document]
        flags, offsets, values = buffers[batch, 0], buffers[batch, 1], buffers[batch, 2]
        valid[document] = flags == 0 or byte_at(flags + (row >> 3)) >> (row & 7) & 1 == 1
        first, count = row, np.int64(1)
        if offsets != 0:
            first = _offset(offsets + row * width, width)
            count = _offset(offsets + (row + 1) * width, width) - first
        if not valid[document]:
            nulls += 1
            count = np.int64(0) if offsets != 0 else count
        sources[document] = values + first * size
        end += count * size
        ends[document + 1] = end
    return nulls


@compiled
def copy_values(sources: Any, sizes: Any, places: Any, out: Any) -> None:
    """Copy stretches of bytes from addresses to places in ``out``; nothing beyond a stretch is read or written."""
    target = np.int64(out.ctypes.data)
    for number in range(len(sources)):
        at, size, to = sources[number], sizes[number], target + places[number]
        if size >= 64:
            last = size - 64
            for done in range(0, last, 64):
                copy_block(to + done, at + done)
            copy_block(to + last, at + last)
        elif size >= 8:
            last = size - 8
            for done in range(0, last, 8):
                put_eight(to + done, eight_at(at + done))
            put_eight(to + last, eight_at(at + last))
        else:
            for done in range(size):
                out[to - target + done] = byte_at(at + done)
