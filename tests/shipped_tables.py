"""Writes the tables of code points that the package ships; ``shipped_arrays`` of ``code_points`` reads them."""

import numpy as np

from longcrawl.io.files import whole_file


def ship_arrays(file, tables):
    """Write tables of one-dimensional integer arrays to a file, run-length encoded if that is smaller."""
    packed = {f"{name}/{key}": _in_runs(array) for name, table in tables.items() for key, array in table.items()}
    with whole_file(file) as beside, beside.open("wb") as opened:
        np.savez_compressed(opened, **packed)


def _in_runs(array):
    """Encode an array as runs of equal steps between elements, or return it as it is if that takes too many runs.

    A run has a step and its number of repetitions. Steps wrap around like integers.
    """
    steps = np.diff(array, prepend=array.dtype.type(0))
    starts = np.flatnonzero(np.diff(steps, prepend=~steps[:1]))
    if 4 * starts.size >= array.size:
        return array
    runs = np.empty(starts.size, [("step", array.dtype), ("count", np.uint32)])
    runs["step"], runs["count"] = steps[starts], np.diff(starts, append=array.size)
    return runs
