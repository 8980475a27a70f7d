"""What the state of a feed says of its data, and in which words data are refused that are not the same.

Data are identified by sizes and edges of files, in order. That costs two reads of 4,096 bytes for each file and nothing
for a document, and what a preparation that is run again changes shows there. Bytes that are changed in the middle of a
file without its size do not; for a packed feed, ends of documents that move show in the plan of its samples.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import fsspec

from longcrawl.errors import LoaderError
from longcrawl.loading._window_files import TokenFile
from longcrawl.loading._window_shards import is_remote

__all__ = ["STATE_VERSION", "check_state", "data_changes", "data_identity"]

STATE_VERSION = 2
"""Of the states of windows and packed samples; those of version 1 describe data and orders in another way."""

EDGE = 4096
"""Bytes at the beginning and at the end of each file that are looked at."""

GROUPS = 256
"""Digests in a state at most; of more files than that, several share one."""


def data_identity(files: Sequence[TokenFile]) -> dict[str, Any]:
    """Describe files by sizes, first and last bytes, in order, wherever they lie: ``files``, ``bytes`` and ``data``."""
    digests = []
    for file, edges in zip(files, _edges(files), strict=True):
        digest = blake2b(f"{file.size}\0{file.tokens}\0".encode(), digest_size=8)
        digest.update(edges)
        digests.append(digest.digest())
    groups = [
        blake2b(b"".join(digests[first:last]), digest_size=8).hexdigest() for first, last in _groups(len(digests))
    ]
    return {"files": len(files), "bytes": sum(file.size for file in files), "data": groups}


def data_changes(was: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[TokenFile]) -> list[str]:
    """Say in which way data are not those that an identity describes; nothing where they are."""
    changed = [
        f"{name} was {was.get(name)!r} and is {now[name]!r}"
        for name in ("files", "bytes")
        if was.get(name) != now[name]
    ]
    if was.get("files") == now["files"] and was.get("data") != now["data"]:
        changed.append(f"size, first or last bytes changed of {_changed_files(was, now, files)}")
    return changed


def check_state(state: Mapping[str, Any], names: Sequence[str], kind: str) -> None:
    """Tell a state from what is none, or is of another release.

    Args:
        state: what was passed.
        names: what it has to have.
        kind: of feed, in words.

    Raises:
        LoaderError: with what to do.

    """
    # States of windows said no version in version 1.
    version = state.get("version", 1 if "files" in state else STATE_VERSION)
    if version != STATE_VERSION:
        raise LoaderError(
            f"this is a state of {kind} of version {version!r}, and this release reads version {STATE_VERSION}: go on "
            "with the release that wrote it, or begin anew"
        )
    missing = [name for name in names if name not in state]
    if missing:
        raise LoaderError(f"this is no state of {kind}: it lacks {', '.join(missing)}; pass what state_dict() gave")


def _changed_files(was: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[TokenFile]) -> str:
    pairs = zip(was["data"], now["data"], _groups(len(files)), strict=True)
    first, last = next(group for one, other, group in pairs if one != other)
    if last - first == 1:
        return files[first].path
    return f"a file from {files[first].path} to {files[last - 1].path}"


def _groups(count: int) -> list[tuple[int, int]]:
    size = max(-(-count // GROUPS), 1)
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def _edges(files: Sequence[TokenFile]) -> list[bytes]:
    if not is_remote(files[0].path):
        return [_read_edges(file) for file in files]
    system, _ = fsspec.core.url_to_fs(files[0].path)
    paths = [fsspec.core.url_to_fs(file.path)[1] for file in files]
    ends = [min(EDGE, file.size) for file in files]
    heads = system.cat_ranges(paths, [0] * len(files), ends, on_error="raise")
    tails = system.cat_ranges(
        paths,
        [file.size - end for file, end in zip(files, ends, strict=True)],
        [file.size for file in files],
        on_error="raise",
    )
    return [head + tail for head, tail in zip(heads, tails, strict=True)]


def _read_edges(file: TokenFile) -> bytes:
    with Path(file.path).open("rb") as opened:
        head = opened.read(EDGE)
        opened.seek(max(file.size - EDGE, 0))
        return head + opened.read(EDGE)
