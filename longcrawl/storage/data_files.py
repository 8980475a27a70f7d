"""Files of data that stages read: word lists, thresholds, models."""

import hashlib
import os
import stat
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from longcrawl.storage.files import checksum

__all__ = ["content_digest", "reread_when_changed"]

Paths = TypeVarTuple("Paths")
T = TypeVar("T")

_State = tuple[tuple[str, int, int], ...]
"""Path, time of the last change in ns, and bytes of every file; no file is no entry."""


def content_digest(path: str) -> str | None:
    """Return a SHA-256 of a file's content, or of a folder's files and their names; None where nothing can be read.

    The files of a folder are those in it, not those of folders below. A file is read once in a process until its time
    or its size changes.
    """
    try:
        state = _state(path)
        if not Path(path).is_dir():
            return _digest(*state[0]) if state else None
        digest = hashlib.sha256()
        for file, changed, size in state:
            name = Path(file).name.encode("utf-8", "surrogateescape")
            digest.update(name + f"\0{_digest(file, changed, size)}\n".encode())
        return digest.hexdigest()
    except OSError:
        # Who reads the file to work with it says so in a sentence.
        return None


def reread_when_changed(size: int) -> Callable[[Callable[[*Paths], T]], Callable[[*Paths], T]]:
    """Remember the last ``size`` answers of a function of paths for as long as the files there stay the same.

    Arguments that are None, or the path of nothing, have no files.
    """

    def decorate(read: Callable[[*Paths], T]) -> Callable[[*Paths], T]:
        @lru_cache(maxsize=size)
        def remembered(_states: tuple[_State, ...], *paths: *Paths) -> T:
            return read(*paths)

        @wraps(read)
        def reading(*paths: *Paths) -> T:
            return remembered(tuple(_state(path) for path in paths if isinstance(path, str)), *paths)

        return reading

    return decorate


def _state(path: str) -> _State:
    # Asked before every batch: a folder may have thousands of files, which `scandir` walks fastest.
    try:
        status = Path(path).stat()
        if not stat.S_ISDIR(status.st_mode):
            return ((path, status.st_mtime_ns, status.st_size),)
        with os.scandir(path) as entries:
            found = [(entry.path, entry.stat()) for entry in entries if entry.is_file()]
    except OSError:
        return ()
    return tuple(sorted((file, status.st_mtime_ns, status.st_size) for file, status in found))


@lru_cache(maxsize=8192)
def _digest(path: str, _changed: int, _size: int) -> str:
    return checksum(Path(path))
