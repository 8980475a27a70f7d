"""Local files: written whole (beside their place, synced, renamed), read again if changed, and listed.

Those of a run in an object store are also sent there, see :mod:`longcrawl.io.place`.

A folder that is reached in several ways is listed once, under its own name where it lies below. Links that lead
nowhere, folders that may not be listed, named pipes and devices are listed like files; :func:`why_no_file` says what
they are, so that whoever reads them reports them instead of passing them over.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar, TypeVarTuple
from uuid import uuid4

import numpy.typing as npt
from fsspec.utils import glob_translate

from longcrawl.errors import LongCrawlError
from longcrawl.io.place import bring, drop, list_store, send, url_of

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


PARTIAL = ".partial"
"""What a file or folder that is not finished has in its name."""

BLOCK = 1 << 20

Paths = TypeVarTuple("Paths")
T = TypeVar("T")

_given = dict[tuple[str, int, int], str]()
"""SHA-256 that other processes have computed, by path, time of the last change in ns, and bytes."""
_State = tuple[tuple[str, int, int], ...]
"""Path, time of the last change in ns, and bytes of every file; a missing file has no entry."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Return a path to write to; when the block ends without an error, the file is synced and renamed to ``path``.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with whole_file(target) as beside:
    ...     _ = beside.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = partial_path(path)
    try:
        yield beside
        publish(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Return a path beside ``path``, drawn anew for each attempt: hosts repeat each other's process ids."""
    return path.with_name(f"{path.name}{PARTIAL}-{uuid4().hex}")


def publish(beside: Path, path: Path) -> None:
    """Sync a finished file and give it its name, replacing what had that name; in a store it has it first."""
    with beside.open("rb+") as written:
        os.fsync(written.fileno())
    send(beside, path)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_values(path: Path, values: npt.NDArray[Any]) -> None:
    """Write the raw values of an array, whole or not at all.

    ``ndarray.tofile`` ignores errors when it flushes, so on a full disk it cuts the file without a word.
    """
    with whole_file(path) as beside, beside.open("wb") as file:
        file.write(values.data)


def write_text(path: Path, text: str) -> None:
    """Write a small UTF-8 file, whole or not at all."""
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def check_target(
    target: Path,
    error: type[LongCrawlError],
    fix: str,
    *,
    example: str = "",
    replaces: Callable[[Path], bool] = lambda target: False,  # noqa: ARG005  # nothing is replaced
) -> None:
    """Raise ``error`` where something lies in the place of what is to be written that ``replaces`` does not let go.

    The sentence ends with ``fix``. Where ``target`` has to be a file, ``example`` is a name for one.
    """
    if example and target.is_dir():
        raise error(f"{target} is a folder: name a file, such as {target / example}")
    if target.exists() and not replaces(target):
        raise error(f"{target} exists already: {fix}")


@contextmanager
def writing(target: Path, error: type[LongCrawlError], fix: str) -> Iterator[None]:
    """Raise ``error`` where the system does not let ``target`` be written, with its reason and how to fix it."""
    try:
        yield
    except OSError as failed:
        raise error(f"{target} cannot be written ({failed.strerror or failed}): {fix}") from failed


def make_folder(folder: Path, error: type[LongCrawlError], fix: str) -> None:
    """Make a folder, and raise ``error`` where the system lets no file be written to it."""
    with writing(folder, error, fix):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def whole_files(folder: Path) -> list[Path]:
    """List the files below a folder, sorted, without those that an attempt is still writing; here or in its store."""
    if url_of(folder) is not None:
        return list(file_sizes(folder))
    found = list[Path]()
    for within, folders, names in os.walk(folder):
        # A folder that is being written may go while it is listed.
        folders[:] = [name for name in folders if f"{PARTIAL}-" not in name]
        found += [Path(within, name) for name in names if f"{PARTIAL}-" not in name]
    return sorted(found)


def file_sizes(folder: Path) -> dict[Path, int]:
    """Return the bytes of each file that :func:`whole_files` lists, in its order."""
    if url_of(folder) is not None:
        return dict(sorted(list_store(folder).items()))
    return {file: file.stat().st_size for file in whole_files(folder)}


def remove_partial(folder: Path, idle: float = 0.0) -> None:
    """Remove what killed runs left unfinished anywhere below ``folder``, and nobody has changed for so many seconds."""
    latest = time.time() - idle
    for within, folders, names in os.walk(folder):
        for path in [Path(within, name) for name in (*names, *folders) if f"{PARTIAL}-" in name]:
            with suppress(FileNotFoundError):  # what goes while it is listed has been removed already
                if path.stat().st_mtime <= latest:
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()
        folders[:] = [name for name in folders if f"{PARTIAL}-" not in name]


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; what is missing stays missing."""
    drop(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, as ``sha256sum`` prints it."""
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def folder_bytes(path: Path) -> int:
    """Return the bytes of all files below a folder, or of one file; 0 of what is not there."""
    if url_of(path) is not None:
        return sum(list_store(path).values())
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def file_entries(
    folder: Path, names: Iterator[str] | list[str], known: Mapping[str, str] | None = None
) -> dict[str, dict[str, int | str]]:
    """Describe files for a manifest: bytes and SHA-256 by path relative to ``folder``.

    ``known`` is the SHA-256 of those that were digested while they were written, by path.
    """
    files = {name: folder / name for name in sorted(names)}
    bring(*files.values())
    digests = {str(file): (known or {}).get(str(file)) or checksum(file) for file in files.values()}
    return {name: {"bytes": file.stat().st_size, "sha256": digests[str(file)]} for name, file in files.items()}


def content_digest(path: str) -> str | None:
    """Return a SHA-256 of a file's content, or of a folder's files and their names; None where nothing can be read.

    The files of a folder are those in it, not those of folders below. A file is read once in a process until its time
    or its size changes.
    """
    try:
        state = _state(path)
        if not Path(path).is_dir():
            return _given.get(state[0]) or _digest(*state[0]) if state else None
        digest = hashlib.sha256()
        for file, changed, size in state:
            name = Path(file).name.encode("utf-8", "surrogateescape")
            digest.update(name + f"\0{_digest(file, changed, size)}\n".encode())
        return digest.hexdigest()
    except OSError:
        # Who reads the file to work with it says so in a sentence.
        return None


def described_content(path: str) -> tuple[str, int, int, str | None]:
    """Return path, time of the last change, bytes and SHA-256 of a file, for :func:`remember_content`."""
    ((_, changed, size),) = _state(path) or ((path, 0, 0),)
    return path, changed, size, content_digest(path)


def remember_content(described: Iterable[tuple[str, int, int, str | None]]) -> None:
    """Take the SHA-256 of files from another process: this one reads those alone that have changed since."""
    _given.update({(path, changed, size): digest for path, changed, size, digest in described if digest is not None})


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
