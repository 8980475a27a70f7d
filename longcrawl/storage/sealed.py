"""JSON that holds the SHA-256 of files and, last, its own: descriptions of outputs, manifests, and markers.

A marker is a sealed JSON file that is written after the files it stands for: ``content`` is what was counted,
``files`` has bytes and SHA-256 by path relative to the marker. What lies on disk for days is compared with it when it
is first read: a marker that is not as it was written counts as missing, and so does one whose files are not, so that
what it stands for is made again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from longcrawl.errors import RunError
from longcrawl.storage.data_files import content_digest
from longcrawl.storage.files import checksum, file_entries, write_text
from longcrawl.user_warnings import warn_user

__all__ = ["SEAL", "DamagedWorkError", "Marker", "is_sealed", "seal", "verify_files"]

SEAL = "sha256"
"""The entry of a description that is the SHA-256 of all others."""


def seal(content: Mapping[str, Any]) -> str:
    """Return JSON whose last entry is the SHA-256 of the JSON without it: the file of all checksums has its own.

    >>> seal(json.loads(seal({"rows": 1}))) == seal({"rows": 1})
    True
    """
    unsealed = {name: value for name, value in content.items() if name != SEAL}
    digest = hashlib.sha256(_json(unsealed).encode()).hexdigest()
    return _json({**unsealed, SEAL: digest}) + "\n"


def _json(content: Mapping[str, Any]) -> str:
    # Names of files may hold lone surrogates, which UTF-8 cannot: these alone are written as JSON's escapes.
    return json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def is_sealed(file: Path, content: Mapping[str, Any]) -> bool:
    """Return whether a JSON file that holds its own SHA-256 is, to the byte, as it was written."""
    return file.read_bytes() == seal(content).encode()


def verify_files(
    folder: Path, files: Mapping[str, Mapping[str, Any]], digest: Callable[[Path], str | None] = checksum
) -> Iterator[str]:
    """Compare files with the bytes and SHA-256 that a manifest gives; yields one sentence per problem.

    Args:
        folder: what their names are relative to.
        files: bytes and SHA-256 by name.
        digest: returns the SHA-256 of a file.

    """
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            yield f"{name} is missing"
        elif file.stat().st_size != expected["bytes"]:
            yield f"{name} has {file.stat().st_size:,} bytes, expected {expected['bytes']:,}"
        elif digest(file) != expected["sha256"]:
            yield f"{name} has been changed: its SHA-256 differs"


class DamagedWorkError(RunError):
    """A file that a marker stands for is not as it was written."""

    def __init__(self, problem: str, *stale: Path) -> None:
        super().__init__(problem, *stale)
        self.problem = problem
        self.stale = stale
        """Markers, or folders of them, to be removed, so that what they stand for is made again."""

    def __str__(self) -> str:
        return f"{self.problem} though it was made again: check disk and memory, then type the same command again"


@dataclass(frozen=True)
class Marker:
    """What stands for finished files, see this module's docstring."""

    path: Path
    content: dict[str, Any]
    files: Mapping[str, Mapping[str, Any]]

    @staticmethod
    def entries(path: Path, files: Iterable[Path]) -> dict[str, dict[str, int | str]]:
        """Return bytes and SHA-256 of finished files, by their paths relative to the marker."""
        # The marker's folder, from which the names start, need not be there yet.
        entries = file_entries(Path(), [str(file) for file in files])
        return {os.path.relpath(file, path.parent): entry for file, entry in entries.items()}

    def write(self) -> None:
        """Write the marker, after its files."""
        write_text(self.path, seal({"content": self.content, "files": self.files}))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return a marker; None where there is none, or it is not as it was written."""
        try:
            found = json.loads(path.read_bytes())
            if is_sealed(path, found):
                return cls(path, found["content"], found["files"])
        except (FileNotFoundError, ValueError, AttributeError, KeyError, RecursionError):
            # Flipped bits make anything of JSON, and an earlier version wrote other entries.
            return None
        return None

    @classmethod
    def whole(cls, path: Path) -> Self | None:
        """Return a marker all of whose files are as they were written; None, with a warning, where one is not."""
        marker = cls.read(path)
        if marker is None and not path.exists():
            return None
        problem = f"{path} is damaged"
        if marker is not None:
            problem = next(marker.problems(path.parent / name for name in marker.files), "")
        if not problem:
            return marker
        warn_user(f"{problem}: what it was made for is made again")
        return None

    @classmethod
    def open(cls, path: Path, *files: Path) -> Self:
        """Return a marker, after comparing the files named with it; a process reads each of them once for that.

        Raises:
            DamagedWorkError: one of them, or the marker, is not as it was written.

        """
        marker = cls.read(path)
        if marker is None:
            raise DamagedWorkError(f"{path} is missing or damaged", path)
        for problem in marker.problems(files):
            raise DamagedWorkError(problem, path)
        return marker

    def problems(self, files: Iterable[Path]) -> Iterator[str]:
        """Compare files with what was written; yields one sentence per problem."""
        known = self.resolved_files()
        for file in files:
            name = str(file.resolve())
            if name not in known:
                yield f"{file} is not among the files of {self.path}"
            else:
                yield from verify_files(Path(), {name: known[name]}, lambda each: content_digest(str(each)))

    def resolved_files(self) -> dict[str, Mapping[str, Any]]:
        """Return the entries of the files by their absolute paths."""
        return {str((self.path.parent / name).resolve()): entry for name, entry in self.files.items()}
