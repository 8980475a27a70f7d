"""Which files windows are cut from: found below a folder or by a pattern, kept in a JSON file that workers share."""

import json
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import filelock

from longcrawl.errors import FormatError, LoaderError
from longcrawl.formats.shards import datatrove
from longcrawl.formats.shards.spec import beside_shards, named_split, shard_suffixes, shards_in, sort_into_splits
from longcrawl.sources.files import absolute, list_tree, match_remote
from longcrawl.storage.file_systems import information_of, sizes_of
from longcrawl.storage.files import write_text
from longcrawl.storage.listing import match_files
from longcrawl.storage.structured import load_json
from longcrawl.urls import has_pattern, is_url, join, path_of

OnStalePaths = Literal["refresh", "error", "trust"]
"""What is done about a paths file that is not one of the files as they are: list again, refuse, or trust its sizes."""

Split = Literal["train", "val", "valid", "validation", "dev", "eval", "test", "heldout", "all"]
"""Which files of a folder that has splits; "val" and its synonyms stand for each other where only one is there."""

LOCK_SECONDS = 600


@dataclass(frozen=True)
class TokenFile:
    """A file of tokens, and what is known of it before it is opened."""

    path: str
    size: int
    tokens: int


def find_files(
    paths: str | Sequence[str],
    format: str | None,  # noqa: A002  # the word that says what is meant
    *,
    recursive: bool = True,
    split: Split = "train",
) -> list[str]:
    """List files of tokens, sorted by path; files that are named one by one keep their order."""
    if not isinstance(paths, str):
        listed = list(paths)
        twice = sorted({path for path in listed if listed.count(path) > 1}) if len(set(listed)) < len(listed) else []
        if twice or not listed:
            raise LoaderError(f"paths names {twice[0]} twice: name every file once" if twice else "paths is empty")
        return listed
    try:
        found = _below(paths, format, recursive=recursive, split=split)
    except FormatError as wrong:
        raise LoaderError(str(wrong)) from wrong
    if not found:
        suffixes = " or ".join(sorted(_suffixes(paths, format)))
        of = "" if split == "train" else f" of the split {split!r}"
        raise LoaderError(
            f"{paths} has no file of tokens{of}, none that ends in {suffixes}: check the path or the pattern"
        )
    return found


def is_file(paths: str) -> bool:
    """Distinguish a file from a folder and a pattern."""
    if has_pattern(paths):
        return False
    where = absolute(paths)
    return (information_of(where) or {}).get("type") == "file" if is_url(where) else Path(where).is_file()


def _below(paths: str, format: str | None, *, recursive: bool, split: Split) -> list[str]:  # noqa: A002  # as above
    where = absolute(paths)
    if is_file(where):
        return [where]
    if has_pattern(paths):
        found = match_remote(where) if is_url(where) else match_files(where)
    elif is_url(where) or not recursive:
        found = [join(where, name) for name in list_tree(where) if recursive or "/" not in name]
        found = [file for file in found if posixpath.splitext(path_of(file))[1] in _suffixes(paths, format)]
    elif Path(where).exists():
        return [str(file) for file in shards_in(Path(where), format, None if split == "all" else split)]
    else:
        found = []
    return _of_split(sorted(found), folder_of(paths), split)


def _of_split(files: Sequence[str], root: str, split: Split) -> list[str]:
    """Keep the files of a split, by their folders below a root; tables beside splits are not shards."""
    below = {_below_root(file, root): file for file in files}
    folders = {str(step) for name in below for step in PurePosixPath(name).parents}
    shards = [name for name in below if not beside_shards(name, folders)]
    if split == "all":
        return [below[name] for name in shards]
    splits = sort_into_splits(shards)
    return [below[name] for name in splits.get(named_split(split, splits.__contains__), [])]


def folder_of(paths: str) -> str:
    """Return the folder that files are looked for below, as their paths begin."""
    parts = paths.rstrip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if has_pattern(part)), len(parts))
    folder = "/".join(parts[:fixed]) or ("/" if paths.startswith("/") else ".")
    folder = absolute(folder)
    # What stands before a pattern is a folder.
    return posixpath.dirname(folder) if fixed == len(parts) and is_file(folder) else folder


def _suffixes(paths: str, format: str | None) -> set[str]:  # noqa: A002  # as above
    if is_url(paths):
        return {datatrove.SUFFIX}
    return shard_suffixes(format)


def file_sizes(paths: Sequence[str]) -> list[int | None]:
    """Return the bytes of files, None where there is none; remote ones are asked for at once."""
    if not is_url(paths[0]):
        return [Path(path).stat().st_size if Path(path).is_file() else None for path in paths]
    return sizes_of(paths)


def content_names(paths: Sequence[str]) -> list[str]:
    """Name files by what is below the folder that they have in common, so that a copy elsewhere has the same names."""
    parts = [path.replace("\\", "/").split("/") for path in paths]
    shortest = min(len(each) for each in parts) - 1
    shared = next((at for at in range(shortest) if len({each[at] for each in parts}) > 1), shortest)
    return ["/".join(each[shared:]) for each in parts]


def read_paths(
    paths_file: Path,
    paths: str | Sequence[str],
    split: Split,
    on_stale: OnStalePaths,
    find: Callable[[list[str] | None], list[TokenFile]],
) -> list[TokenFile]:
    """Read the list of files, or make it while others wait: one process lists, all get the same list.

    The file is JSON, ``[{"path", "size", "tokens"}, …]``, paths below the folder of ``paths`` where they are.
    datatrove's dataset reads it; in its own lists ``tokens`` is missing, and is added. ``find`` looks at files given,
    or for files.

    Raises:
        LoaderError: it is stale and ``on_stale`` is "error", it lists other files and that is "trust", it is not such
            a list or cannot be written, or nobody lets go of the lock.
    """
    root = folder_of(paths) if isinstance(paths, str) else ""
    known, whole = _look(paths_file, paths, root, split, on_stale)
    if known and whole:
        return known
    lock = _lockable(Path(f"{paths_file}.lock"))
    try:
        with filelock.FileLock(lock, timeout=LOCK_SECONDS):
            known, whole = _look(paths_file, paths, root, split, on_stale)
            if known and whole:
                return known
            found = find([file.path for file in known] or None)
            own = {} if split == "train" else {"split": split}
            entries = [
                {"path": _below_root(file.path, root), "size": file.size, "tokens": file.tokens, **own}
                for file in found
            ]
            write_text(paths_file, json.dumps(entries, indent=0))
            return found
    except filelock.Timeout as waited:
        raise LoaderError(
            f"{lock} was held for {LOCK_SECONDS} s by another process: end that process, or remove the file"
        ) from waited


def _lockable(lock: Path) -> Path:
    """Make the file of a lock; to wait for one that cannot be made would be to wait in vain."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.open("ab").close()
    except OSError as denied:
        raise LoaderError(
            f"{lock} cannot be written ({denied.strerror}): name a paths_file in a folder that can be written to"
        ) from denied
    return lock


def _look(
    paths_file: Path, paths: str | Sequence[str], root: str, split: Split, on_stale: OnStalePaths
) -> tuple[list[TokenFile], bool]:
    """Return the list in the file, nothing where there is none that holds, and whether it says all of each file."""
    if not paths_file.is_file():
        return [], False
    try:
        entries = load_json(paths_file.read_text("utf-8"))
        known = [_entry(entry, root) for entry in entries]
        splits = {entry.get("split", "train") for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise LoaderError(
            f"{paths_file} is not a list of files with path and size: remove it, so that it is written again"
        ) from wrong
    other = _otherness(known, paths, root) or ("" if splits <= {split} else f"it is of the split {splits.pop()!r}")
    stale = "it names no file" if not known else other or ("" if on_stale == "trust" else _staleness(known))
    # Sizes may be trusted; files that were not named would be other data.
    if stale and (on_stale == "error" or (other and on_stale == "trust")):
        raise LoaderError(f"{paths_file} is stale, {stale}: remove it, or set on_stale_paths='refresh'")
    return ([] if stale else known), all(file.tokens >= 0 for file in known)


def _otherness(known: Sequence[TokenFile], paths: str | Sequence[str], root: str) -> str:
    """Describe in which way a list is not one of what was named; "" where it is."""
    if not isinstance(paths, str):
        same = [file.path for file in known] == list(paths)
        return "" if same else f"it is not a list of the {len(paths):,} files that paths names, in their order"
    for file in known:
        inside = file.path if is_url(file.path) else posixpath.normpath(file.path)
        if not inside.startswith(root.rstrip("/") + "/"):
            return f"{file.path} is not below {root}"
    return ""


def _entry(entry: Any, root: str) -> TokenFile:
    path, size, tokens = entry["path"], entry["size"], entry.get("tokens", -1)
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(tokens, int)):
        raise TypeError(path)
    whole = path if is_url(path) or Path(path).is_absolute() or not root else f"{root.rstrip('/')}/{path}"
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
