"""Token files that windows are cut from, local or remote."""

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import filelock
import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, LoaderError
from longcrawl.formats.shards import datatrove
from longcrawl.formats.shards.shard import TokenShard, end_problems, token_width
from longcrawl.formats.shards.spec import (
    beside_shards,
    find_format,
    named_split,
    open_shard,
    shard_suffixes,
    shards_in,
    sort_into_splits,
)
from longcrawl.io.block_checksums import SUFFIX, BlockChecksums, parse_checksums
from longcrawl.io.file_systems import exists, fetch, information_of, size_of, sizes_of
from longcrawl.io.files import match_files, write_text, writing
from longcrawl.io.structured import load_json
from longcrawl.sources.files import absolute, list_tree, match_remote
from longcrawl.tokens.packing import copy_windows
from longcrawl.urls import has_pattern, is_url, join, path_of

OnStalePaths = Literal["refresh", "error", "trust"]
"""Handling of a paths file that does not match the files: list them again, raise an error, or trust its sizes."""
Split = Literal["train", "val", "valid", "validation", "dev", "eval", "test", "heldout", "all"]
"""Split to read from a folder; "val" and its synonyms are interchangeable if only one of them exists."""

LOCK_SECONDS = 600


@dataclass(frozen=True)
class TokenFile:
    """A file of tokens: its path, bytes and tokens, known before it is opened."""

    path: str
    size: int
    tokens: int


def find_files(
    paths: str | Sequence[str],
    format: str | None,  # noqa: A002  # the public argument's name
    *,
    recursive: bool = True,
    split: Split = "train",
) -> list[str]:
    """List token files, sorted by path; a list of files keeps its order."""
    if not isinstance(paths, str):
        listed = list(paths)
        twice = sorted({path for path in listed if listed.count(path) > 1}) if len(set(listed)) < len(listed) else []
        if twice or not listed:
            raise LoaderError(f"paths lists {twice[0]} twice: list every file once" if twice else "paths is empty")
        return listed
    try:
        found = _below(paths, format, recursive=recursive, split=split)
    except FormatError as wrong:
        raise LoaderError(str(wrong)) from wrong
    if not found:
        suffixes = " or ".join(sorted(_suffixes(paths, format)))
        of = "" if split == "train" else f" of the split {split!r}"
        raise LoaderError(f"{paths} has no token files{of} that end in {suffixes}: check the path or the pattern")
    return found


def is_file(paths: str) -> bool:
    """Distinguish a file from a folder and a pattern."""
    if has_pattern(paths):
        return False
    where = absolute(paths)
    return (information_of(where) or {}).get("type") == "file" if is_url(where) else Path(where).is_file()


def _below(paths: str, format: str | None, *, recursive: bool, split: Split) -> list[str]:  # noqa: A002  # the public argument's name
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
    """Return the files of a split, by their folders below a root; tables beside splits are not shards."""
    below = {_below_root(file, root): file for file in files}
    folders = {str(step) for name in below for step in PurePosixPath(name).parents}
    shards = [name for name in below if not beside_shards(name, folders)]
    if split == "all":
        return [below[name] for name in shards]
    splits = sort_into_splits(shards)
    return [below[name] for name in splits.get(named_split(split, splits.__contains__), [])]


def folder_of(paths: str) -> str:
    """Return the folder that is searched for files, as a prefix of their paths."""
    parts = paths.rstrip("/").split("/")
    # The parts before a pattern are always a folder.
    fixed = list(takewhile(lambda part: not has_pattern(part), parts))
    folder = absolute("/".join(fixed) or ("/" if paths.startswith("/") else "."))
    return posixpath.dirname(folder) if fixed == parts and is_file(folder) else folder


def _suffixes(paths: str, format: str | None) -> set[str]:  # noqa: A002  # the public argument's name
    return {datatrove.SUFFIX} if is_url(paths) else shard_suffixes(format)


def file_sizes(paths: Sequence[str]) -> list[int | None]:
    """Return the size of each file in bytes, or None if it is missing; queries remote sizes concurrently."""
    if not is_url(paths[0]):
        return [Path(path).stat().st_size if Path(path).is_file() else None for path in paths]
    return sizes_of(paths)


def content_names(paths: Sequence[str]) -> list[str]:
    """Name files by their paths below their common folder, so that a copy elsewhere has the same names."""
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
    """Read the list of files, or write it under a lock, so that all processes use the same list.

    The file is JSON, ``[{"path", "size", "tokens"}, …]``, with paths relative to the folder of ``paths`` if possible.
    datatrove's own lists lack ``tokens``, which is then added. ``find`` measures the given files, or searches for files
    if given None.
    """
    root = folder_of(paths) if isinstance(paths, str) else ""
    known, whole = _look(paths_file, paths, root, split, on_stale)
    if known and whole:
        return known
    lock = Path(f"{paths_file}.lock")
    # With a wrong path, the lock would fail only after the timeout.
    with writing(lock, LoaderError, "name a paths_file in a folder that can be written to"):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.open("ab").close()
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


def _look(
    paths_file: Path, paths: str | Sequence[str], root: str, split: Split, on_stale: OnStalePaths
) -> tuple[list[TokenFile], bool]:
    """Return the list in the file, empty if it is missing or invalid, and whether it has the tokens of every file."""
    if not paths_file.is_file():
        return [], False
    try:
        entries = load_json(paths_file.read_text("utf-8"))
        known = [_entry(entry, root) for entry in entries]
        splits = {entry.get("split", "train") for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise LoaderError(
            f"{paths_file} is not a list of files with path and size: remove it to have it written again"
        ) from wrong
    other = _otherness(known, paths, root) or ("" if splits <= {split} else f"it is of the split {splits.pop()!r}")
    stale = "it names no file" if not known else other or ("" if on_stale == "trust" else _staleness(known))
    # Sizes may be trusted, but a different list of files is different data.
    if stale and (on_stale == "error" or (other and on_stale == "trust")):
        raise LoaderError(f"{paths_file} is stale, {stale}: remove it, or set on_stale_paths='refresh'")
    return ([] if stale else known), all(file.tokens >= 0 for file in known)


def _otherness(known: Sequence[TokenFile], paths: str | Sequence[str], root: str) -> str:
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


READ_AHEAD = 1 << 22
"""Bytes fetched at a time when a shard is read from front to back."""


@dataclass(frozen=True, eq=False)
class _MappedShard:
    path: str
    tokens: npt.NDArray[Any]
    document_ends: npt.NDArray[np.int64] | None
    mask: npt.NDArray[np.bool_] | None
    overlaps: npt.NDArray[Any] | None
    shard: TokenShard

    @property
    def dtype(self) -> "np.dtype[Any]":
        return self.tokens.dtype

    @property
    def count(self) -> int:
        return len(self.tokens)

    def copy(self, starts: npt.NDArray[np.int64], pad: int, out: npt.NDArray[Any]) -> None:
        """Copy the tokens from each start on into a row of ``out``, with ``pad`` after the last token."""
        if self.shard.unread:
            for start in starts.tolist():
                self.shard.compare(start, min(start + out.shape[1], len(self.tokens)))
        copy_windows(self.tokens, starts, pad, out)

    def ends(self) -> npt.NDArray[np.int64]:
        if self.document_ends is None:
            raise FormatError(
                f"{self.path} does not record where its documents end: write its index, or set "
                "positions='eos' and end_of_text to the id that documents end with"
            )
        self.shard.compare_index()
        return self.document_ends

    @property
    def masked(self) -> bool:
        return self.mask is not None or self.overlaps is not None

    def loss_mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return True for each token that has a loss."""
        self.shard.compare(start, stop)
        counts = np.ones(stop - start, np.bool_) if self.mask is None else self.mask[start:stop].copy()
        if self.overlaps is not None:
            ends = self.ends()
            document = int(np.searchsorted(ends, start, "right"))
            first = int(ends[document - 1]) if document else 0
            while first < stop and document < len(ends):
                counts[max(first - start, 0) : max(first + int(self.overlaps[document]) - start, 0)] = False
                first, document = int(ends[document]), document + 1
        return counts


@dataclass(eq=False)
class _RemoteShard:
    """A shard behind a URL, with the methods of :class:`_MappedShard`."""

    path: str
    size: int
    width: int
    _ends: npt.NDArray[np.int64] | None = field(default=None, init=False)
    _ahead: tuple[int, bytes] = field(default=(0, b""), init=False)
    _next: int = field(default=0, init=False)

    @property
    def dtype(self) -> "np.dtype[Any]":
        return np.dtype(f"<u{self.width}")

    @property
    def count(self) -> int:
        return self.size // self.width

    def copy(self, starts: npt.NDArray[np.int64], pad: int, out: npt.NDArray[Any]) -> None:
        for row, start in enumerate(starts.tolist()):
            tokens = self._fetch(start, start + out.shape[1])
            out[row, : len(tokens)] = tokens
            out[row, len(tokens) :] = pad

    def _fetch(self, start: int, stop: int) -> npt.NDArray[Any]:
        first, last = start * self.width, min(stop * self.width, self.size)
        held, block = self._ahead
        if not held <= first <= last <= held + len(block):
            # Shuffled windows are fetched one at a time, consecutive ones many at a time.
            until = max(last, min(first + READ_AHEAD, self.size)) if first == self._next else last
            checksums = self._checksums
            # Keep the whole blocks that were fetched for checksums.
            begin, until = (first, until) if checksums is None else checksums.files[datatrove.SUFFIX].span(first, until)
            held, block = self._ahead = begin, self._read("", begin, until)
            if len(block) != until - begin:
                raise CorruptionError(
                    f"{self.path} ends at byte {begin + len(block):,}, since it changed: open it again"
                )
        self._next = last
        return np.frombuffer(block, self.dtype, (last - first) // self.width, first - held)

    def ends(self) -> npt.NDArray[np.int64]:
        if self._ends is None:
            size = size_of(f"{self.path}{datatrove.INDEX}")
            if size is None:
                raise FormatError(f"{self.path} has no .index: set positions='eos' and end_of_text, or write its index")
            entries = self._read(datatrove.INDEX, 0, size)
            if len(entries) % 8:
                raise CorruptionError(f"{self.path}.index is cut at byte {len(entries):,}: fetch it again")
            self._ends = np.frombuffer(entries, "<i8")
        return self._ends

    @cached_property
    def masked(self) -> bool:
        return exists(f"{self.path}{datatrove.LOSS}")

    def loss_mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        stop = min(stop, self.count)
        if not self.masked:
            return np.ones(stop - start, np.bool_)
        return np.frombuffer(self._read(datatrove.LOSS, start, stop), np.bool_)

    def _read(self, suffix: str, first: int, stop: int) -> bytes:
        """Read bytes of the tokens or of a file beside them, in whole verified blocks if there are checksums."""
        read = partial(fetch, f"{self.path}{suffix}")
        checksums = self._checksums
        if checksums is None or datatrove.SUFFIX + suffix not in checksums.files:
            return read(first, stop)
        return checksums.files[datatrove.SUFFIX + suffix].read(read, first, stop)

    @cached_property
    def _checksums(self) -> BlockChecksums | None:
        beside = f"{self.path}{SUFFIX}"
        try:
            text = fetch(beside)
        except FileNotFoundError:
            return None
        stem = self.path.removesuffix(datatrove.SUFFIX)
        checksums = parse_checksums(text, beside, stem)
        suffixes = ("", datatrove.INDEX, datatrove.LOSS, datatrove.METADATA)
        sizes = zip(suffixes, sizes_of([f"{self.path}{suffix}" for suffix in suffixes]), strict=True)
        checksums.check_sizes({datatrove.SUFFIX + suffix: size for suffix, size in sizes if size is not None}, stem)
        return checksums


ShardTokens = _MappedShard | _RemoteShard


def _open_remote(path: str, token_size: int | None) -> _RemoteShard:
    index = f"{path}{datatrove.INDEX}"
    size, entries = sizes_of([path, index])
    if size is None:
        raise FormatError(f"no file {path}: check the path")
    last = None
    if entries is not None:
        last = int.from_bytes(fetch(index, max(entries - 8, 0), entries), "little") if entries else 0
    return _RemoteShard(path, size, token_width(path, size, token_size, last, posixpath.basename(index)))


def open_tokens(path: str, format: str | None, settings: Mapping[str, Any], check: str) -> ShardTokens:  # noqa: A002  # the public argument's name
    """Open a shard for reading windows."""
    if is_url(path):
        if format not in (None, datatrove.Datatrove.name) or not path.endswith(datatrove.SUFFIX):
            raise FormatError(
                f"{path} is remote, but only .ds files can be read from a URL: copy it to this machine first"
            )
        if check == "everything":
            raise FormatError(
                f"{path} would have to be downloaded completely for check='everything': copy it to this machine "
                "first, or set check='ends' to check ids as windows are read"
            )
        remote = _open_remote(path, settings.get("token_size"))
        if check == "ends":
            for problem in end_problems(remote.ends(), remote.count, f"{path}{datatrove.INDEX}", lambda at: 8 * at):
                raise CorruptionError(problem)
        return remote
    found = find_format(path, format)
    shard = open_shard(path, found.name, check=check, **settings)
    # Plain arrays on the same pages: slicing a memmap takes five times as long.
    ends = None if shard.document_ends is None else np.asarray(shard.document_ends)
    mask = None if shard.loss_mask is None else np.asarray(shard.loss_mask)
    if shard.overlaps is not None:
        shard.compare_index()
    overlaps = None if shard.overlaps is None or not shard.overlaps.any() else np.asarray(shard.overlaps)
    return _MappedShard(path, np.asarray(shard.tokens), ends, mask, overlaps, shard)


def open_ends(
    path: str,
    format: str | None,  # noqa: A002  # the public argument's name
    settings: Mapping[str, Any],
    end_of_text: int | None,
) -> npt.NDArray[np.int64] | None:
    """Return the ends of a shard's entries, from its index or end of text, or None if it has neither."""
    given = dict(settings) | ({} if end_of_text is None or is_url(path) else {"end_of_text": end_of_text})
    try:
        return open_tokens(path, format, given, "sizes").ends()
    except FormatError:
        return None
