"""Arrays that take long to make, kept in ``$XDG_CACHE_HOME/longcrawl`` (``~/.cache/longcrawl``) for later processes."""

import hashlib
import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.storage.files import whole_file

Arrays = dict[str, npt.NDArray[Any]]


def kept_arrays(name: str, stamp: str, build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that ``build`` makes, from the cache folder where they are kept under the same stamp.

    The file begins with a SHA-256 of stamp and arrays: one that is damaged, or of another stamp, is made again. Where
    the folder cannot be written, every process builds its own.
    """
    path = cache_folder() / f"{name}.arrays"
    with suppress(OSError):
        kept = path.read_bytes()
        if kept[:32] == _digest(stamp, kept[32:]):
            return dict(np.load(io.BytesIO(kept[32:])))
    made = build()
    packed = io.BytesIO()
    np.savez(packed, **made)  # type: ignore[arg-type]  # its stubs take the arrays for allow_pickle
    with suppress(OSError), whole_file(path) as beside:
        beside.write_bytes(_digest(stamp, packed.getvalue()) + packed.getvalue())
    return made


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/longcrawl``, or ``~/.cache/longcrawl``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "longcrawl"


def _digest(stamp: str, content: bytes) -> bytes:
    return hashlib.sha256(stamp.encode() + b"\0" + content).digest()
