"""Arrays that take long to make: shipped with the package, or kept in the cache folder for later processes.

The cache folder is ``$XDG_CACHE_HOME/longcrawl``, by default ``~/.cache/longcrawl``.
"""

import hashlib
import io
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.io.files import whole_file

Arrays = dict[str, npt.NDArray[Any]]


def kept_arrays(name: str, stamp: str, build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that ``build`` makes, from the cache folder where they are kept under the same stamp.

    The file begins with a SHA-256 of stamp and arrays: one that is damaged, or of another stamp, is made again. Where
    the folder cannot be written, every process builds its own. What was built is read back, too: kernels are compiled
    once for arrays that may be written to, and once more for others.
    """
    path = cache_folder() / f"{name}.arrays"
    with suppress(OSError):
        kept = path.read_bytes()
        if kept[:32] == _digest(stamp, kept[32:]):
            return _unpack(kept[32:])
    packed = io.BytesIO()
    np.savez(packed, **build())  # type: ignore[arg-type]  # its stubs take the arrays for allow_pickle
    with suppress(OSError), whole_file(path) as beside:
        beside.write_bytes(_digest(stamp, packed.getvalue()) + packed.getvalue())
    return _unpack(packed.getvalue())


def shipped_arrays(file: Path, name: str) -> Arrays:
    """Return the arrays that ``ship_arrays`` wrote to a file under this name; an empty dict if there are none."""
    with suppress(FileNotFoundError), np.load(file) as shipped:
        found = [each for each in shipped.files if each.startswith(f"{name}/")]
        return {each.removeprefix(f"{name}/"): _expand(shipped[each]) for each in found}
    return {}


def ship_arrays(file: Path, tables: Mapping[str, Arrays]) -> None:
    """Write one-dimensional arrays of integers by the names of their tables, in runs where that is smaller."""
    packed = {f"{name}/{key}": _in_runs(array) for name, table in tables.items() for key, array in table.items()}
    with whole_file(file) as beside, beside.open("wb") as opened:
        np.savez_compressed(opened, **packed)  # type: ignore[arg-type]  # as above


def _in_runs(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return runs of equal steps from one element to the next; the array itself if that takes too many.

    Steps wrap around as integers do. A run is a step and how often it is taken.
    """
    steps = np.diff(array, prepend=array.dtype.type(0))
    starts = np.flatnonzero(np.diff(steps, prepend=~steps[:1]))
    if 4 * starts.size >= array.size:
        return array
    runs = np.empty(starts.size, [("step", array.dtype), ("count", np.uint32)])
    runs["step"], runs["count"] = steps[starts], np.diff(starts, append=array.size)
    return runs


def _expand(runs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if runs.dtype.names is None:
        return runs
    steps = np.repeat(runs["step"], runs["count"])
    return np.cumsum(steps, dtype=steps.dtype, out=steps)


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/longcrawl``, or ``~/.cache/longcrawl``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "longcrawl"


def _unpack(content: bytes) -> Arrays:
    return dict(np.load(io.BytesIO(content)))


def _digest(stamp: str, content: bytes) -> bytes:
    return hashlib.sha256(stamp.encode() + b"\0" + content).digest()
