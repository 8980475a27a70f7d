"""Columns of ids, which may have more than 2 GiB of characters together: the type ``string`` ends there."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PIECE = 1 << 16
"""Ids in a chunk of an answer: below 2 GiB up to 32 KiB each."""


def take_ids(ids: pa.ChunkedArray, places: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return the ids at some places, in this order; -1 is null.

    ``ChunkedArray.take`` joins all chunks first, which fails beyond 2 GiB, and reads a mapped file whole.
    """
    ends = np.cumsum([len(chunk) for chunk in ids.chunks] or [0])
    order = np.argsort(places, kind="stable")
    inside = order[np.searchsorted(places[order], 0) :]
    taken = [pa.array([], pa.large_string())]
    stops = np.searchsorted(places[inside], ends)
    for chunk, end, first, stop in zip(ids.chunks, ends, [0, *stops[:-1]], stops, strict=False):
        if stop > first:
            here = places[inside[first:stop]] - (end - len(chunk))
            taken.append(pc.cast(chunk, pa.large_string()).take(pa.array(here)))
    found = np.full(len(places), -1, np.int64)
    found[inside] = np.arange(len(inside))
    whole = pa.concat_arrays(taken).take(pa.array(found, mask=found < 0))
    pieces = [pc.cast(whole[first : first + PIECE], pa.string()) for first in range(0, len(whole), PIECE)]
    return pa.chunked_array(pieces, pa.string())
