"""What the state of a feed says of its data, and in which words data are refused that are not the same."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import fsspec

from longcrawl.errors import LoaderError
from longcrawl.loading._window_files import WindowFile, content_names
from longcrawl.loading._window_shards import is_remote

__all__ = ["check_same_data", "data_identity"]

EDGE = 4096
"""Bytes at the beginning and at the end of each file that are looked at."""

GROUPS = 256
"""Digests in a state at most; of more files than that, several share one."""


def data_identity(files: Sequence[WindowFile]) -> dict[str, Any]:
    """Describe files by their names, sizes, first and last bytes, in order: ``files``, ``bytes`` and ``data``."""
    names = content_names([file.path for file in files])
    digests = []
    for name, file, edges in zip(names, files, _edges(files), strict=True):
        digest = blake2b(f"{name}\0{file.size}\0{file.tokens}\0".encode(), digest_size=8)
        digest.update(edges)
        digests.append(digest.digest())
    groups = [
        blake2b(b"".join(digests[first:last]), digest_size=8).hexdigest() for first, last in _groups(len(digests))
    ]
    return {"files": len(files), "bytes": sum(file.size for file in files), "data": groups}


def check_same_data(state: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[WindowFile], kind: str) -> None:
    """Compare a state with what there is now.

    Raises:
        LoaderError: it is no such state, or of other data or settings; the message names what changed.

    """
    missing = [name for name in ("next_window", *now) if name not in state]
    if missing:
        raise LoaderError(f"this is no state of {kind}: it lacks {', '.join(missing)}; pass what state_dict() gave")
    changed = [
        f"{name} was {state[name]!r} and is {value!r}"
        for name, value in now.items()
        if name != "data" and state[name] != value
    ]
    if state["files"] == now["files"] and state["data"] != now["data"]:
        changed.append(f"name, size, first or last bytes changed of {_changed_files(state, now, files)}")
    if changed:
        raise LoaderError(f"this state is not of the data as opened here: {', '.join(changed)}; open them as then")


def _changed_files(state: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[WindowFile]) -> str:
    pairs = zip(state["data"], now["data"], _groups(len(files)), strict=True)
    first, last = next(group for was, value, group in pairs if was != value)
    if last - first == 1:
        return files[first].path
    return f"a file from {files[first].path} to {files[last - 1].path}"


def _groups(count: int) -> list[tuple[int, int]]:
    size = max(-(-count // GROUPS), 1)
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def _edges(files: Sequence[WindowFile]) -> list[bytes]:
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


def _read_edges(file: WindowFile) -> bytes:
    with Path(file.path).open("rb") as opened:
        head = opened.read(EDGE)
        opened.seek(max(file.size - EDGE, 0))
        return head + opened.read(EDGE)
