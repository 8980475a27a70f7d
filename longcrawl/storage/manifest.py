"""Descriptions of files in JSON that hold the SHA-256 of every file and, last, their own.

Such a description is written after all that it names: without it what lies there is not finished.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.storage.kinds import Kinds, is_count, is_list, is_object, is_text, may_be_count, misfits
from longcrawl.storage.sealed import SEAL, is_sealed, seal, verify_files
from longcrawl.storage.structured import load_json
from longcrawl.storage.unreadable import unreadable

__all__ = [
    "is_sealed",
    "read_description",
    "refuse_changed",
    "seal",
    "sealed_files",
    "unsealed",
    "verify_described",
    "verify_files",
]


def sealed_files(text: bytes, file: str) -> dict[str, str]:
    """Return the SHA-256 of every file that a description names, by name, after comparing the description with its own.

    Args:
        text: the content of the description.
        file: where it lies, for messages.

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


def refuse_changed(file: Path) -> None:
    """Compare a description with the SHA-256 that it gives of itself, where it gives one.

    Raises:
        CorruptionError: it was changed after it was written, or is not JSON.

    """
    fix = "longcrawl verify says what else is wrong; copy it back, or build it again"
    with unreadable(file, CorruptionError, fix):
        described = load_json(file.read_bytes())
        changed = isinstance(described, dict) and SEAL in described and not is_sealed(file, described)
    if changed:
        raise CorruptionError(f"{file} has been changed: the SHA-256 that it gives of itself differs; {fix}")


def verify_described(folder: Path, name: str, described: Mapping[str, Any]) -> Iterator[str]:
    """Compare all that lies in a folder with its description ``name``; yields one sentence per problem."""
    if not is_sealed(folder / name, described):
        yield f"{name} has been changed: the SHA-256 that it gives of itself differs"
        return
    yield from verify_files(folder, described["files"])
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    yield from (f"{extra} is not part of this output" for extra in sorted(there - described["files"].keys() - {name}))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_bucket(value: Any) -> bool:
    """Return whether this names a bucket of a composed dataset, or of token shards."""
    return is_object(value) and any(names <= set(value) for names in ({"path", "split"}, {"folder", "splits"}))


COUNTED = ("documents", "bytes", "files", "entries", "tokens", "shards", "samples")
DESCRIBED: Kinds = (
    ("splits", is_object, "an object"),
    ("splits.*", is_object, "an object"),
    *((f"splits.*.{name}", is_count, "a whole number") for name in COUNTED),
    ("columns", is_object, "an object"),
    ("columns.*", is_text, "a text"),
    ("dtype", is_text, "a text"),
    ("stored_as", is_text, "a text"),
    ("end_of_text", may_be_count, "a whole number or null"),
    ("json_escaped", _is_flag, "true or false"),
    ("loss_mask", _is_flag, "true or false"),
    ("shapes", is_object, "an object"),
    ("shapes.*", _is_shape, "rows and tokens"),
    ("buckets", is_list, "a list"),
    ("buckets.*", _is_bucket, "an object with path and split, or folder and splits"),
    ("buckets.*.path", is_text, "a text"),
    ("buckets.*.split", is_text, "a text"),
    *((f"buckets.*.{name}", is_count, "a whole number") for name in ("capacity", "samples", "pieces", "file_samples")),
)
"""What is read of descriptions, where it is there."""


def read_description(
    file: Path, kind: str, version: int, needed: Sequence[str], of_splits: Sequence[str] = ()
) -> dict[str, Any]:
    """Read the description of an output, such as ``rectangle.json``.

    Args:
        file: the description.
        kind: what it describes, such as "rectangle"; its entry ``longcrawl_KIND`` holds the version.
        version: the one that can be read.
        needed: entries that must be there.
        of_splits: entries that each split must have.

    Raises:
        FormatError: there is none, it is not of that form, or it is of a version that this longcrawl does not know.

    """
    if not file.is_file():
        raise FormatError(f"{file.parent} has no {file.name}: it is not a finished {kind} of longcrawl")
    with unreadable(file, FormatError, f"copy it back, or build the {kind} again"):
        described: dict[str, Any] = load_json(file.read_text("utf-8"))
    if not isinstance(described, dict):
        raise FormatError(f"{file} holds no JSON object; build the {kind} again")
    if described.get(f"longcrawl_{kind}") != version:
        found = described.get(f"longcrawl_{kind}")
        raise FormatError(
            f"{file.parent} is a {kind} of version {found!r}, this longcrawl reads version {version}: upgrade longcrawl"
        )
    for name in needed:
        if name not in described:
            raise FormatError(f"{file} lacks {name!r}; build the {kind} again")
    if not _lists_files(described.get("files", {})):
        raise FormatError(f"{file} does not list files with bytes and SHA-256; build the {kind} again")
    for path, value, right in misfits(described, DESCRIBED):
        shown = shorten(repr(value), 60, placeholder="…")
        raise FormatError(f"{file}: {path} is {shown} and should be {right}; build the {kind} again")
    for split, recorded in described.get("splits", {}).items() if of_splits else ():
        if lacking := [name for name in of_splits if name not in recorded]:
            raise FormatError(f"{file}: splits.{split} lacks {', '.join(lacking)}; build the {kind} again")
    return described


def _lists_files(files: Any) -> bool:
    return isinstance(files, dict) and all(
        isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)
        for entry in files.values()
    )
