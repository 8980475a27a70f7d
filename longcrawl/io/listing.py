"""Local files below a folder, or that match a glob: links are followed, and what cannot be read is listed too.

A folder that is reached in several ways is listed once, under its own name where it lies below. Links that lead
nowhere, folders that may not be listed, named pipes and devices are listed like files; :func:`why_no_file` says what
they are, so that whoever reads them reports them instead of passing them over.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Literal

from fsspec.utils import glob_translate

_OF_JOBS = re.compile(
    r"_(SUCCESS|FAILURE|temporary\w*|metadata|common_metadata|spark_metadata|delta_log|logs|(committed|started)_\w+)"
)
"""Files and folders that Spark, Hadoop and Delta write beside data; a parquet ``_metadata`` repeats its files."""
_UNFINISHED = (".crc", "._COPYING_")
"""Endings of the checksums of Hadoop's local files, and of files that it is still copying."""

_Identity = tuple[int, int]
"""Device and inode of a folder."""


def is_listed(name: str) -> bool:
    """Return whether a file or folder may hold data by its name: it is not hidden, and not what a job left there."""
    return not (name.startswith(".") or _OF_JOBS.fullmatch(name) or name.endswith(_UNFINISHED))


def list_files(folder: str | Path) -> list[str]:
    """List what is below a folder and is not a folder, relative to it, sorted, without names that are not listed.

    A missing folder has no files.
    """
    root = Path(folder)
    found: list[str] = []
    seen: set[_Identity] = set()
    folders = [""] if root.is_dir() else []
    while folders:
        linked: list[str] = []
        while folders:
            name = folders.pop()
            if (identity := _identity(root / name)) in seen:
                continue
            seen.add(identity)
            for kind, below in _entries(root, name):
                {"file": found, "folder": folders, "link": linked}[kind].append(below)
        # Links come after all folders, so that what they lead to has its own name if it lies below.
        folders = sorted(linked, reverse=True)
    return sorted(found)


def match_files(pattern: str) -> list[str]:
    """List the paths that match a glob, sorted; ``**`` stands for any number of folders.

    A file that has several such paths is listed with each. Circles of links end where a folder would hold itself.

    Raises:
        ValueError: the pattern cannot be read.
    """
    steps = ["*" if step != "**" and set(step) == {"*"} else step for step in pattern.split("/")]
    fixed = list(takewhile(lambda step: not any(sign in step for sign in "*?["), steps))
    folder, below = "/".join(fixed) or ("/" if pattern.startswith("/") else "."), steps[len(fixed) :]
    matches = re.compile(glob_translate("/".join(below))).match
    names = _every_name(Path(folder), None if "**" in below else len(below))
    return sorted(os.path.join(folder, name) if fixed else name for name in names if matches(name))  # noqa: PTH118  # spelled as the pattern is


def _every_name(root: Path, most_steps: int | None) -> Iterator[str]:
    """Yield what is below a folder and is not a folder, with at most so many steps, under every name that it has."""
    waiting: list[tuple[str, frozenset[_Identity]]] = [("", frozenset())] if root.is_dir() else []
    while waiting:
        folder, above = waiting.pop()
        if (identity := _identity(root / folder)) in above:
            continue
        for kind, name in _entries(root, folder):
            if kind == "file":
                yield name
            elif most_steps is None or name.count("/") + 1 < most_steps:
                waiting.append((name, above | {identity}))


def why_no_file(path: str) -> str | None:
    """Return why a listed path cannot be read; None for files and folders that can, and for what is not there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116  # called for every file of a run, twice as fast as Path.stat
    except OSError:
        if not os.path.islink(path):  # noqa: PTH114  # as above
            return None
        return f"is a link to {os.readlink(path)}, which cannot be reached"  # noqa: PTH115  # as above
    if stat.S_ISDIR(mode):
        return None if os.access(path, os.R_OK | os.X_OK) else "is a folder that cannot be listed"
    return None if stat.S_ISREG(mode) else "is a named pipe or a device, not a file"


def unreachable(folder: str | Path, names: Iterable[str]) -> list[str]:
    """Return the listed names of links to nothing and of folders that cannot be listed: files may be behind them."""
    paths = {name: Path(folder, name) for name in names}
    suspects = [name for name, path in paths.items() if path.is_symlink() or path.is_dir()]
    return [name for name in suspects if why_no_file(str(paths[name])) is not None]


def _identity(folder: Path) -> _Identity:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(root: Path, folder: str) -> Iterator[tuple[Literal["file", "folder", "link"], str]]:
    """Yield what is in a folder; one that cannot be listed stands for itself."""
    try:
        with os.scandir(root / folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        yield "file", folder
        return
    for entry in entries:
        if is_listed(entry.name):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir():
                yield "file", name
            else:
                yield ("link" if entry.is_symlink() else "folder"), name
