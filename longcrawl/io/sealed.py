"""JSON that holds the SHA-256 of files and, last, its own: descriptions of outputs, manifests, and markers.

A marker is a sealed JSON file that is written after the files it stands for: ``content`` is what was counted,
``files`` has bytes and SHA-256 by path relative to the marker. What lies on disk for days is compared with it when it
is first read: a marker that is not as it was written counts as missing, and so does one whose files are not, so that
what it stands for is made again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from longcrawl.errors import CorruptionError, FormatError, RunError, quoted, unreadable, warn_user
from longcrawl.io.files import checksum, content_digest, file_entries, write_text
from longcrawl.io.place import bring, bring_again
from longcrawl.io.structured import Kinds, is_count, load_json, may_be_count, misfits

SEAL = "sha256"
"""The entry of a description that is the SHA-256 of all others."""


def seal(content: Mapping[str, Any]) -> str:
    """Return JSON whose last entry is the SHA-256 of the JSON without it: the file of all checksums has its own.

    >>> seal(json.loads(seal({"rows": 1}))) == seal({"rows": 1})
    True
    """
    unsealed = {name: value for name, value in content.items() if name != SEAL}
    # Names of files may hold lone surrogates, which UTF-8 cannot: these alone are written as JSON's escapes.
    text = json.dumps(unsealed, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
    entry = f' "{SEAL}": "{hashlib.sha256(text).hexdigest()}"\n}}\n'
    # What json.dumps makes of one more entry, which would spell all others again: it took a tenth of a small run.
    return f"{text.decode().removesuffix('}').rstrip()}{',' if unsealed else ''}\n{entry}"


def is_sealed(file: Path, content: Mapping[str, Any]) -> bool:
    """Return whether a JSON file that holds its own SHA-256 is, to the byte, as it was written."""
    # The bytes are hashed as they are: to spell the JSON again takes ten times as long, for each marker of each step.
    body, _, end = file.read_bytes().rpartition(f'\n "{SEAL}": "'.encode())
    unsealed = b"{}" if body == b"{" else body.removesuffix(b",") + b"\n}"
    digest = hashlib.sha256(unsealed).hexdigest()
    return body.endswith((b",", b"{")) and end == f'{digest}"\n}}\n'.encode() and content.get(SEAL) == digest


def verify_files(
    folder: Path, files: Mapping[str, Mapping[str, Any]], digest: Callable[[Path], str | None] = checksum
) -> Iterator[str]:
    """Compare files, named relative to a folder, with their bytes and SHA-256; yields one sentence per problem."""
    bring(*(folder / name for name in files))
    for name, expected in files.items():
        problem = _problem(folder, name, expected, digest)
        if problem and bring_again(folder / name):
            problem = _problem(folder, name, expected, digest)
        if problem:
            yield problem


def _problem(folder: Path, name: str, expected: Mapping[str, Any], digest: Callable[[Path], str | None]) -> str:
    file = folder / name
    if not file.is_file():
        return f"{name} is missing"
    if file.stat().st_size != expected["bytes"]:
        return f"{name} has {file.stat().st_size:,} bytes, expected {expected['bytes']:,}"
    return f"{name} has been changed: its SHA-256 differs" if digest(file) != expected["sha256"] else ""


class DamagedWorkError(RunError):
    """A file that a marker stands for is not as it was written."""

    def __init__(self, problem: str, *stale: Path) -> None:
        super().__init__(problem, *stale)
        self.problem = problem
        self.stale = stale
        """Markers, or folders of them, to be removed, so that what they stand for is made again."""

    def __str__(self) -> str:
        return f"{self.args[0]} though it was made again: check disk and memory, then type the same command again"


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
        return cls.read_all([path])[0]

    @classmethod
    def read_all(cls, paths: Iterable[Path]) -> list[Self | None]:
        """Return several markers as :meth:`read` does; a store is asked for all of them together."""
        named = list(paths)
        bring(*named)
        return [cls._read(path) for path in named]

    @classmethod
    def _read(cls, path: Path) -> Self | None:
        try:
            found = json.loads(path.read_bytes())
            if is_sealed(path, found):
                return cls(path, found["content"], found["files"])
        except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError, KeyError, RecursionError):
            # Flipped bits make anything of JSON.
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
        marker.check(*files)
        return marker

    def check(self, *files: Path) -> None:
        """Compare files with what was written.

        Raises:
            DamagedWorkError: one of them is not as it was written.
        """
        for problem in self.problems(files):
            raise DamagedWorkError(problem, self.path)

    def names(self, file: Path) -> bool:
        """Return whether a file is among those that the marker stands for."""
        return str(file.resolve()) in self.resolved_files()

    def problems(self, files: Iterable[Path]) -> Iterator[str]:
        """Compare files with what was written; yields one sentence per problem."""
        compared = list(files)
        known = self.resolved_files() if compared else {}
        for file in compared:
            name = str(file.resolve())
            if name not in known:
                yield f"{file} is not among the files of {self.path}"
            else:
                yield from verify_files(Path(), {name: known[name]}, lambda each: content_digest(str(each)))

    def resolved_files(self) -> dict[str, Mapping[str, Any]]:
        """Return the entries of the files by their absolute paths."""
        return {os.path.realpath(f"{self.path.parent}/{name}"): entry for name, entry in self.files.items()}


def sealed_files(text: bytes, file: str) -> dict[str, str]:
    """Return the SHA-256 of the files that a description names, by name; ``file`` is where the description lies.

    Raises:
        CorruptionError: the description was changed after it was written, or is not one.
    """
    fix = f"copy {file} back, or build the dataset again"
    described = unsealed(text, file, fix)
    with unreadable(file, CorruptionError, fix):
        return {name: entry["sha256"] for name, entry in described["files"].items()}


def unsealed(text: bytes, file: str, fix: str) -> dict[str, Any]:
    """Return the content of JSON that holds its own SHA-256, after comparing it.

    Raises:
        CorruptionError: it was changed after it was written, or is not such JSON.
    """
    with unreadable(file, CorruptionError, fix):
        described: dict[str, Any] = load_json(text)
        whole = text == seal(described).encode()
    if not whole:
        raise CorruptionError(f"{file} has been changed: the SHA-256 that it gives of itself differs; {fix}")
    return described


def check_unchanged(file: Path) -> None:
    """Compare a description with the SHA-256 that it gives of itself, where it gives one.

    Raises:
        CorruptionError: it was changed after it was written, or is not JSON.
    """
    fix = "longcrawl verify says what else is wrong; copy it back, or build it again"
    with unreadable(file, CorruptionError, fix):
        described = load_json(file.read_bytes())
    if isinstance(described, dict) and SEAL in described:
        unsealed(file.read_bytes(), str(file), fix)


def verify_described(folder: Path, name: str, described: Mapping[str, Any], files: str = "*") -> Iterator[str]:
    """Compare all that lies in a folder, or all of a pattern, with its description ``name``; yields sentences."""
    if not is_sealed(folder / name, described):
        yield f"{name} has been changed: the SHA-256 that it gives of itself differs"
        return
    yield from verify_files(folder, described["files"])
    there = {path.relative_to(folder).as_posix() for path in folder.rglob(files) if path.is_file()}
    yield from (f"{extra} is not part of this output" for extra in sorted(there - described["files"].keys() - {name}))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and is_count(value.get("bytes")) and isinstance(value.get("sha256"), str)


def _is_bucket(value: Any) -> bool:
    """Return whether this names a bucket of a composed dataset, or of token shards."""
    return isinstance(value, dict) and any(names <= set(value) for names in ({"path", "split"}, {"folder", "splits"}))


COUNTED = ("documents", "bytes", "files", "entries", "tokens", "shards", "samples")
BUCKETS_COUNT = ("capacity", "samples", "pieces", "file_samples")
DESCRIBED: Kinds = (
    (dict, "an object", "files", "splits", "splits.*", "columns", "shapes"),
    (list, "a list", "buckets"),
    (str, "a text", "columns.*", "dtype", "stored_as", "buckets.*.path", "buckets.*.split"),
    (bool, "true or false", "json_escaped", "loss_mask"),
    (is_count, "a whole number", *(f"splits.*.{name}" for name in COUNTED)),
    (is_count, "a whole number", *(f"buckets.*.{name}" for name in BUCKETS_COUNT)),
    (may_be_count, "a whole number or null", "end_of_text"),
    (_is_file, "an object with bytes and sha256", "files.*"),
    (_is_shape, "rows and tokens", "shapes.*"),
    (_is_bucket, "an object with path and split, or folder and splits", "buckets.*"),
)
"""What is read of descriptions, where it is there."""


def read_description(
    file: Path, kind: str, version: int, needed: Sequence[str], of_splits: Sequence[str] = ()
) -> dict[str, Any]:
    """Read the description of an output, such as ``rectangle.json`` of the kind "rectangle".

    Its entry ``longcrawl_KIND`` must hold ``version``; it must have the entries ``needed``, and each split those
    ``of_splits``.

    Raises:
        FormatError: there is none, it is not of that form, or it is of a version that this longcrawl does not know.
    """
    if not file.is_file():
        raise FormatError(f"{file.parent} has no {file.name}: it is not a finished {kind} of longcrawl")
    with unreadable(file, FormatError, f"copy it back, or build the {kind} again"):
        described: dict[str, Any] = load_json(file.read_text("utf-8"))
    if not isinstance(described, dict):
        raise FormatError(f"{file} holds no JSON object; build the {kind} again")
    if (found := described.get(f"longcrawl_{kind}")) != version:
        raise FormatError(
            f"{file.parent} is a {kind} of version {found!r}, this longcrawl reads version {version}: upgrade longcrawl"
        )
    for name in needed:
        if name not in described:
            raise FormatError(f"{file} lacks {name!r}; build the {kind} again")
    for path, value, right in misfits(described, DESCRIBED):
        raise FormatError(f"{file}: {path} is {quoted(value)} and should be {right}; build the {kind} again")
    for split, recorded in described.get("splits", {}).items() if of_splits else ():
        if lacking := [name for name in of_splits if name not in recorded]:
            raise FormatError(f"{file}: splits.{split} lacks {', '.join(lacking)}; build the {kind} again")
    return described
