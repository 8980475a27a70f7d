"""Which files windows are cut from: found below a folder or by a pattern, kept in a JSON file that workers share."""

import json
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import filelock
import fsspec

from longcrawl.errors import LoaderError
from longcrawl.files import write_text
from longcrawl.formats.datatrove import SUFFIX
from longcrawl.formats.shard_formats import FORMATS
from longcrawl.loading._window_shards import is_remote

__all__ = ["OnStalePaths", "TokenFile", "content_names", "file_sizes", "find_files", "folder_of", "read_paths"]

OnStalePaths = Literal["refresh", "error", "trust"]
"""What is done about a paths file whose sizes are not those of the files: list anew, refuse, or not look."""

LOCK_SECONDS = 600


@dataclass(frozen=True)
class TokenFile:
    """A file of tokens, and what is known of it before it is opened."""

    path: str
    size: int
    tokens: int


def find_files(paths: str | Sequence[str], format: str | None, *, recursive: bool = True) -> list[str]:  # noqa: A002  # the word that says what is meant
    """List files of tokens, sorted by path; files that are named one by one keep their order.

    Raises:
        LoaderError: there are none.

    """
    if not isinstance(paths, str):
        listed = list(paths)
        twice = sorted({path for path in listed if listed.count(path) > 1}) if len(set(listed)) < len(listed) else []
        if twice or not listed:
            raise LoaderError(f"paths names {twice[0]} twice: name every file once" if twice else "paths is empty")
        return listed
    found = _below(paths, format, recursive=recursive)
    if not found:
        suffixes = " or ".join(sorted(_suffixes(paths, format)))
        raise LoaderError(f"{paths} has no file of tokens, none that ends in {suffixes}: check the path or the pattern")
    return found


def _below(paths: str, format: str | None, *, recursive: bool) -> list[str]:  # noqa: A002  # as above
    files, inside = fsspec.core.url_to_fs(paths)
    if not any(sign in paths for sign in "*?["):
        if files.isfile(inside):
            return [paths]
        found = files.find(inside, maxdepth=None if recursive else 1) if files.exists(inside) else []
        found = [file for file in found if posixpath.splitext(file)[1] in _suffixes(paths, format)]
    else:
        found = [file for file in files.glob(inside) if files.isfile(file)]
    return sorted(str(files.unstrip_protocol(file)) if is_remote(paths) else str(file) for file in found)


def folder_of(paths: str) -> str:
    """Give the folder that files are looked for below, as their paths begin."""
    parts = paths.rstrip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
    folder = "/".join(parts[:fixed]) or ("/" if paths.startswith("/") else ".")
    files, inside = fsspec.core.url_to_fs(folder)
    inside = posixpath.dirname(inside) if files.isfile(inside) else inside
    return str(files.unstrip_protocol(inside)) if is_remote(paths) else str(inside)


def _suffixes(paths: str, format: str | None) -> set[str]:  # noqa: A002  # as above
    if is_remote(paths):
        return {SUFFIX}
    return {FORMATS[format].suffix} if format in FORMATS else {each.suffix for each in FORMATS.values()}


def file_sizes(paths: Sequence[str]) -> list[int | None]:
    """Give the bytes of files, None where there is none; remote ones are asked for at once."""
    if not is_remote(paths[0]):
        return [Path(path).stat().st_size if Path(path).is_file() else None for path in paths]
    files, _ = fsspec.core.url_to_fs(paths[0])
    try:
        return [int(size) for size in files.sizes([files._strip_protocol(path) for path in paths])]  # noqa: SLF001  # fsspec's own name for what url_to_fs does, one by one
    except FileNotFoundError:
        return [int(files.size(path)) if files.exists(path) else None for path in paths]


def content_names(paths: Sequence[str]) -> list[str]:
    """Name files by what is below the folder that they have in common, so that a copy elsewhere has the same names."""
    parts = [path.replace("\\", "/").split("/") for path in paths]
    shortest = min(len(each) for each in parts) - 1
    shared = next((at for at in range(shortest) if len({each[at] for each in parts}) > 1), shortest)
    return ["/".join(each[shared:]) for each in parts]


def read_paths(
    paths_file: Path, root: str, on_stale: OnStalePaths, find: Callable[[list[str] | None], list[TokenFile]]
) -> list[TokenFile]:
    """Read the list of files, or make it while others wait: one process lists, all get the same list.

    The file is JSON, ``[{"path", "size", "tokens"}, …]``, paths below ``root`` where they are. datatrove's dataset
    reads it; in its own lists ``tokens`` is missing, and is added. ``find`` looks at files given, or for files.

    Raises:
        LoaderError: it is stale and ``on_stale`` is "error", it is no such list, or nobody lets go of the lock.

    """
    known, whole = _look(paths_file, root, on_stale)
    if known and whole:
        return known
    paths_file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(f"{paths_file}.lock", timeout=LOCK_SECONDS):
            known, whole = _look(paths_file, root, on_stale)
            if known and whole:
                return known
            found = find([file.path for file in known] or None)
            entries = [
                {"path": _below_root(file.path, root), "size": file.size, "tokens": file.tokens} for file in found
            ]
            write_text(paths_file, json.dumps(entries, indent=0))
            return found
    except filelock.Timeout as waited:
        raise LoaderError(
            f"{paths_file}.lock was held for {LOCK_SECONDS} s by another process: end that process, or remove the file"
        ) from waited


def _look(paths_file: Path, root: str, on_stale: OnStalePaths) -> tuple[list[TokenFile], bool]:
    """Give the list in the file, nothing where there is none that holds, and whether it says all of each file."""
    if not paths_file.is_file():
        return [], False
    try:
        known = [_entry(entry, root) for entry in json.loads(paths_file.read_text("utf-8"))]
    except (ValueError, TypeError, KeyError) as wrong:
        raise LoaderError(
            f"{paths_file} is no list of files with path and size: remove it, so that it is made anew"
        ) from wrong
    stale = "it names no file" if not known else "" if on_stale == "trust" else _staleness(known)
    if stale and on_stale == "error":
        raise LoaderError(f"{paths_file} is stale, {stale}: remove it, or set on_stale_paths='refresh'")
    return ([] if stale else known), all(file.tokens >= 0 for file in known)


def _entry(entry: Any, root: str) -> TokenFile:
    path, size, tokens = entry["path"], entry["size"], entry.get("tokens", -1)
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(tokens, int)):
        raise TypeError(path)
    whole = path if is_remote(path) or Path(path).is_absolute() or not root else f"{root.rstrip('/')}/{path}"
    return TokenFile(whole, size, tokens)


def _below_root(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/") if root else path


def _staleness(known: list[TokenFile]) -> str:
    for file, size in zip(known, file_sizes([file.path for file in known]), strict=True):
        if size is None:
            return f"{file.path} is not there any more"
        if size != file.size:
            return f"{file.path} had {file.size:,} bytes and has {size:,}"
    return ""
