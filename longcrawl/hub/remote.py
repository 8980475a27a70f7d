"""A description on the Hub, or behind another URL: data of others, none of which is believed before it is checked."""

import re
from collections.abc import Mapping
from typing import Any

from longcrawl.errors import FormatError
from longcrawl.storage.sealed import seal
from longcrawl.storage.structured import load_json

__all__ = ["DESCRIPTION_BYTES", "is_intact", "read_object", "read_remote"]

DESCRIPTION_BYTES = 256_000_000
"""What a description may have: far more than one of as many files as the Hub advises at most."""

SHA256 = re.compile(r"[0-9a-f]{64}")


def read_remote(text: bytes, where: str) -> dict[str, Any]:
    """Read a description of files, and refuse one that leads out of its folder.

    Its entry ``files`` gives ``bytes`` and ``sha256`` by path: relative, of plain names, inside the folder it lies in.

    Args:
        text: the file.
        where: its place, for messages.

    Raises:
        FormatError: it is no such description; what is wrong with it, and that it has to be pushed again.

    """
    described = read_object(text, where)
    if not isinstance(described.get("files"), dict):
        raise _wrong(where, "describes no files")
    for name, entry in described["files"].items():
        if not _is_inside(name):
            raise _wrong(where, f"names {name!r}, which is no path inside its folder")
        if not _is_entry(entry):
            raise _wrong(where, f"does not say which bytes and SHA-256 {name} has")
    return described


def read_object(text: bytes, where: str) -> dict[str, Any]:
    """Read JSON that is a reasonably large object.

    Raises:
        FormatError: it is none.

    """
    if len(text) > DESCRIPTION_BYTES:
        raise _wrong(where, f"has {len(text):,} bytes and is no description, which has up to {DESCRIPTION_BYTES:,}")
    try:
        read = load_json(text)
    except (ValueError, RecursionError) as broken:
        raise _wrong(where, f"is not JSON ({next(iter(str(broken).splitlines()), type(broken).__name__)})") from broken
    if not isinstance(read, dict):
        raise _wrong(where, "holds no JSON object")
    return read


def is_intact(described: Mapping[str, Any], text: bytes) -> bool:
    """Return whether a description is, to the byte, as longcrawl wrote and sealed it."""
    try:
        return seal(described).encode() == text
    except (UnicodeEncodeError, RecursionError):
        # JSON can hold half a surrogate pair, and lists a thousand deep; longcrawl writes neither.
        return False


def _wrong(where: str, problem: str) -> FormatError:
    return FormatError(f"{where} {problem}: push it again, or look for another copy")


def _is_inside(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(name.split("/"))


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    size, digest = entry.get("bytes"), entry.get("sha256")
    counted = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return counted and isinstance(digest, str) and SHA256.fullmatch(digest) is not None
