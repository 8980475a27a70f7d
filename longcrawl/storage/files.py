"""Files that are either whole or not there: written beside their place, synced, renamed."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "PARTIAL",
    "checksum",
    "file_entries",
    "folder_bytes",
    "publish",
    "remove",
    "remove_partial",
    "whole_file",
    "write_text",
]

PARTIAL = ".partial"
"""What a file or folder that is not finished has in its name."""

BLOCK = 1 << 20


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
    beside = path.with_name(f"{path.name}{PARTIAL}-{os.getpid()}")
    try:
        yield beside
        publish(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def publish(beside: Path, path: Path) -> None:
    """Sync a finished file and give it its name, replacing what had that name."""
    with beside.open("rb+") as written:
        os.fsync(written.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write a small UTF-8 file, whole or not at all."""
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def remove_partial(folder: Path) -> None:
    """Remove what a killed run left unfinished anywhere below ``folder``."""
    for unfinished in sorted(folder.rglob(f"*{PARTIAL}-*")):
        remove(unfinished)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; what is missing stays missing."""
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
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def file_entries(folder: Path, names: Iterator[str] | list[str]) -> dict[str, dict[str, int | str]]:
    """Describe files for a manifest: bytes and SHA-256 by path relative to ``folder``."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": checksum(folder / name)} for name in sorted(names)
    }
