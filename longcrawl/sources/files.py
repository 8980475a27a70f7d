"""Input files: finding, opening and fetching them, and recording which bytes were read.

A local file is hashed after its part has been read, while it is in the page cache; its size, times and inode, compared
before and after, show that it was not replaced in between. A remote file is hashed while it is fetched.
"""

import hashlib
import io
import itertools
import logging
import os
import posixpath
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO

from longcrawl.core.display import counted
from longcrawl.core.sources import Part
from longcrawl.errors import NotYetError, SourceError, listed, reason_of, unreadable, warn_user
from longcrawl.io.file_systems import REQUESTS, CutAnswerError, ask, fetch, file_system_of, look_again, verdict_of
from longcrawl.io.files import checksum, is_listed, list_files, match_files, unreachable, why_no_file
from longcrawl.urls import has_pattern, is_url, join, path_of, without_secrets

logger = logging.getLogger("longcrawl")

State = tuple[int, int, int, int]
"""Size, content and status change times in ns, and inode of a local file; tools can set back the content time only."""


@dataclass(frozen=True)
class InputFile:
    """The bytes read from a file; fields are None if it was missing or could not be read whole."""

    file: str
    """Path or URL, without secrets."""
    bytes: int | None = None
    sha256: str | None = None
    etag: str | None = None
    """The server's version tag of a remote file, if it has one."""
    state: State | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of a manifest, which is equal for two copies of a file."""
        named = {"file": self.file, "bytes": self.bytes, "sha256": self.sha256, "etag": self.etag}
        return {name: value for name, value in named.items() if value is not None}

    def marked(self) -> dict[str, Any]:
        """Return the entry in the marker of a part, to be read by :meth:`from_mark`."""
        return self.as_dict() | ({} if self.state is None else {"state": list(self.state)})

    @classmethod
    def from_mark(cls, values: Mapping[str, Any]) -> "InputFile":
        """Read an entry made by :meth:`marked`."""
        state = values.get("state")
        return cls(**{**values, "state": None if state is None else tuple(state)})


_fetched: ContextVar[dict[str, InputFile] | None] = ContextVar("fetched", default=None)
"""Records of the remote files of a part by URL, or None if nothing records them."""


@contextmanager
def reading(files: Sequence[str], known: Sequence[InputFile] = ()) -> Iterator[list[InputFile]]:
    """Record the files of a part while they are read; NotYetError if a local one is replaced meanwhile.

    The yielded list is filled, in the order of ``files``, when the block ends without an error. Those that are
    ``known`` from an earlier reading are hashed again only if they have been touched since.
    """
    before = {file: _state(file) for file in files if not is_url(file)}
    fetched, found = dict[str, InputFile](), list[InputFile]()
    token = _fetched.set(fetched)
    try:
        yield found
    finally:
        _fetched.reset(token)
    for file in files:
        if is_url(file):
            found.append(fetched.get(file, InputFile(without_secrets(file))))
        else:
            earlier = next((each for each in known if each.file == file), None)
            if earlier is not None and earlier.state != _state(file):
                earlier = _hashed_once(file, before[file])
            found.append(_hashed(file) if earlier is None else earlier)
            if found[-1].state != before[file]:
                again = "Run the same command again to read it again"
                raise NotYetError(f"{file} was replaced while it was read. {again}")


def entity_tag(information: Mapping[str, Any]) -> str | None:
    """Return the version tag of a file in the information of a file system, or None."""
    for name in ("ETag", "etag", "content_md5", "md5Hash", "blob_id", "oid"):
        if isinstance(value := information.get(name), str) and value:
            return value.strip('"')
    return None


def changed_files(read: Sequence[tuple[str, InputFile]]) -> Iterator[tuple[str, str]]:
    """Yield path and difference of every file that differs from what was read, in order.

    A local file is hashed again if its state differs. Remote files are compared by tag and size, if reported.
    """
    remote = [url for url, known in read if is_url(url) and known.sha256 is not None]
    with ThreadPoolExecutor(REQUESTS) as pool:
        now = dict(zip(remote, pool.map(_current, remote), strict=True))
    for path, known in read:
        if is_url(path):
            difference = _remote_difference(known, *now.get(path, (None, None)))
        else:
            difference = _difference(path, known)
        if difference is not None:
            yield known.file, difference


def _remote_difference(known: InputFile, tag: str | None, size: int | None) -> str | None:
    if known.etag is not None and tag not in (None, known.etag):
        return f"its entity tag was {known.etag} and is now {tag}"
    return None if size in (None, known.bytes) else f"it had {known.bytes:,} bytes and now has {size:,}"


def _current(url: str) -> tuple[str | None, int | None]:
    """Return entity tag and size of a remote file, without retries because its content is already known."""
    filesystem, inner = file_system_of(url)
    try:
        filesystem.invalidate_cache()
        information = filesystem.info(inner)
    except Exception as error:  # noqa: BLE001  # every fsspec file system has errors of its own
        logger.warning("%s cannot be compared with what was read: %s", without_secrets(url), type(error).__name__)
        return None, None
    return entity_tag(information), information.get("size")


def _difference(path: str, known: InputFile) -> str | None:
    state = _state(path)
    if state == known.state:
        return None
    if state is None:
        return "it no longer exists"
    if known.state is None:
        return "it was missing and now exists"
    now = _hashed(path)
    if now.sha256 == known.sha256:
        return None
    return f"its SHA-256 was {(known.sha256 or 'unknown')[:12]} and is now {(now.sha256 or 'unknown')[:12]}"


def _hashed(path: str) -> InputFile:
    """Return a record of a local file as it is now; without a hash if it cannot be read."""
    if (state := _state(path)) is None:
        return InputFile(path)
    try:
        return InputFile(path, state[0], checksum(Path(path)), state=_state(path))
    except OSError:  # the source has already applied its policy for broken files
        return InputFile(path, state[0], state=state)


@lru_cache(maxsize=8)
def _hashed_once(path: str, _: State | None) -> InputFile:
    """Return a record of a file in this state, hashed once for all its sections that a process reads."""
    return _hashed(path)


def _state(path: str) -> State | None:
    try:
        status = os.stat(path)  # noqa: PTH116  # called for every file of a run, twice as fast as Path.stat
    except OSError:
        return None
    is_file = stat.S_ISREG(status.st_mode)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino) if is_file else None


RANGE_BYTES = 8 << 20
"""Bytes of a remote file fetched at a time."""


class DamagedFileError(SourceError):
    """Error for a missing, cut or corrupt file, with the number of records lost with it, or None if unknown."""

    def __init__(self, reason: str, records_lost: int | None = None) -> None:
        super().__init__(reason)
        self.records_lost = records_lost


def absolute(path: str) -> str:
    """Return a local path as absolute, with ``~`` and ``file://`` resolved, or a URL without a slash at its end."""
    if is_url(path):
        return path.rstrip("/")
    return Path(os.path.abspath(os.path.expanduser(path.removeprefix("file://")))).as_posix()  # noqa: PTH100, PTH111  # Path.resolve would follow links


def list_tree(folder: str) -> list[str]:
    """List all files below a folder, relative to it, sorted; a missing folder has none.

    Names rejected by :func:`longcrawl.io.files.is_listed` are left out. Unreadable local files are listed. NotYetError
    is raised if a server cannot list a folder now.
    """
    if not is_url(folder):
        return list_files(folder)
    filesystem, root = file_system_of(folder)
    root = path_of(root)
    found = [path_of(name)[len(root) :].strip("/") for name in _listed(folder, filesystem, root)]
    return sorted(name for name in found if name and all(map(is_listed, name.split("/"))))


def match_remote(pattern: str) -> list[str]:
    """List the URLs that match a glob; NotYetError if the server cannot list a folder now."""
    filesystem, inner = file_system_of(pattern)
    protocol = pattern.removesuffix(inner.lstrip("/"))
    host = 3 if "://" in inner else 0
    steps = inner.split("/")
    fixed = itertools.takewhile(lambda step: not any(sign in step for sign in "*?["), steps[host:])
    before = "/".join([*steps[:host], *fixed, ""])
    try:
        from fsspec.utils import glob_translate  # for remote files alone, as fsspec takes a tenth of a second

        matches = re.compile(glob_translate(inner)).match
    except ValueError as wrong:
        raise SourceError(f"{without_secrets(pattern)} is not a valid pattern ({wrong}): change data_files") from wrong
    found = (name for name in _listed(pattern, filesystem, before) if matches(name))
    names = [name for name in found if all(map(is_listed, name.removeprefix(before).split("/")))]
    return [protocol + name.lstrip("/") for name in names]


def _listed(url: str, filesystem: Any, root: str) -> list[str]:
    """List the files below a remote folder, with retries; a missing folder has none, a missing bucket is an error."""
    try:
        return ask(url, partial(_find, filesystem, root))
    except FileNotFoundError:
        return []


def _find(filesystem: Any, root: str) -> list[str]:
    """List the files below a folder like fsspec's own walk, which ignores errors of folders; a missing one has none."""
    filesystem.invalidate_cache()  # a process may list a folder again after hours
    walks = _walks(type(filesystem))
    found, waiting, seen = set[str](), [root], {root.rstrip("/")}
    while waiting:
        folder = waiting.pop()
        try:
            if not walks:
                return [str(name) for name in filesystem.find(folder)]
            entries = filesystem.ls(folder, detail=True)
        except FileNotFoundError as missing:
            if verdict_of(missing).kind != "missing":
                raise
            continue
        for entry in entries:
            name = str(entry["name"])
            if entry["type"] != "directory":
                found.add(name)
            elif name.rstrip("/") not in seen:
                seen.add(name.rstrip("/"))
                waiting.append(name)
    return sorted(found)


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Return a local path for a file: its own, or that of a temporary copy of a remote file, fetched whole.

    DamagedFileError is raised if it is missing, no regular file, or cannot be read in the block; NotYetError if the
    server cannot deliver it now.
    """
    if not is_url(path):
        if (reason := why_no_file(path)) is not None:
            raise DamagedFileError(reason)
        with _as_damage():
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="longcrawl-") as folder:
        copy = Path(folder, posixpath.basename(path_of(path)))
        with _as_damage():
            _fetch(path, copy)
            yield str(copy)


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError("is missing") from error
    except OSError as error:
        raise DamagedFileError(f"cannot be read: {error.strerror or error}") from error


@contextmanager
def opened(path: str, range_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading and seeking; of a remote file, only the bytes read are fetched if the server allows it.

    They are fetched ``range_bytes`` at a time, by default ``RANGE_BYTES``. Errors are those of :func:`local_copy`.
    """
    with _as_damage():
        if (remote := _open_remote(path) if is_url(path) else None) is not None:
            with io.BufferedReader(remote, range_bytes or RANGE_BYTES) as file:
                yield file
                remote.record()
            return
    with local_copy(path) as copy, Path(copy).open("rb") as file:
        yield file


def fetch_texts(paths: Sequence[str]) -> dict[str, str | None]:
    """Read small UTF-8 files, several remote ones at a time; a missing file is None."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        return dict(zip(paths, pool.map(_text, paths), strict=True))


def _text(path: str) -> str | None:
    with unreadable(without_secrets(path), SourceError, "replace it with a complete copy"):
        try:
            return (fetch(path) if is_url(path) else Path(path).read_bytes()).decode()
        except FileNotFoundError:
            return None


def _walks(kind: type) -> bool:
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    own = kind._find if issubclass(kind, AsyncFileSystem) else kind.find  # type: ignore[attr-defined]  # noqa: SLF001  # fsspec is untyped
    return own in (AbstractFileSystem.find, AsyncFileSystem._find)  # noqa: SLF001  # fsspec has no public way to ask


def _fetch(path: str, copy: Path) -> None:
    filesystem, inner = file_system_of(path)
    records = _fetched.get()
    tag: str | None = None

    def request() -> None:
        nonlocal tag
        if records is not None:
            look_again(filesystem, inner)
            tag = entity_tag(filesystem.info(inner))
        filesystem.get_file(inner, str(copy))

    ask(path, request)
    if records is not None:
        records[path] = InputFile(without_secrets(path), copy.stat().st_size, checksum(copy), tag)


class _Ranges(io.RawIOBase):
    """Raw stream of a remote file, fetched in ranges of bytes and hashed as far as they continue each other."""

    def __init__(self, path: str, file: Any, size: int, tag: str | None) -> None:
        self._path, self._file, self._size, self._tag = path, file, size, tag
        self._place = self._hashed = 0
        self._records, self._digest = _fetched.get(), hashlib.sha256()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        content = self._range(self._place, min(len(buffer), self._size - self._place))
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)

    def record(self) -> None:
        """Record the bytes read, after fetching the parts that were skipped."""
        if self._records is None:
            return
        while self._hashed < self._size:
            self._range(self._hashed, min(RANGE_BYTES, self._size - self._hashed))
        named = without_secrets(self._path)
        self._records[self._path] = InputFile(named, self._size, self._digest.hexdigest(), self._tag)

    def _range(self, place: int, size: int) -> bytes:
        if size <= 0:
            return b""
        content = ask(self._path, partial(self._read, place, size))
        if self._records is not None and place <= self._hashed < place + size:
            self._digest.update(content[self._hashed - place :])
            self._hashed = place + size
        return content

    def _read(self, place: int, size: int) -> bytes:
        self._file.seek(place)
        content = bytes(self._file.read(size))
        if len(content) < size:
            raise CutAnswerError(f"only {len(content):,} of {size:,} bytes were received")
        return content


def _open_remote(path: str) -> _Ranges | None:
    """Open a remote file, or return None if its server does not serve ranges, so that it has to be fetched whole."""
    filesystem, inner = file_system_of(path)

    def request() -> _Ranges | None:
        look_again(filesystem, inner)
        try:
            file = filesystem.open(inner, "rb", cache_type="none")
            information = filesystem.info(inner)
            if not (size := information.get("size")):
                return None
            file.seek(size - 1)
            whole = len(file.read(1)) == 1
        except (ValueError, NotImplementedError) as error:  # raised by fsspec if ranges are not supported
            logger.debug("%s cannot be read in ranges: %s", without_secrets(path), reason_of(error))
            return None
        return _Ranges(path, file, size, entity_tag(information)) if whole else None

    return ask(path, request)


_ABOUT = ("README", "LICENSE", "LICENCE")
_READ_PACKED = (".gz", ".zst")
_PACKED = (*_READ_PACKED, ".xz", ".bz2", ".lz4")
DataFiles = str | tuple[str, ...] | Mapping[str, Any] | None
"""A path, URL or glob, several, or a mapping from splits to them."""


def named_parts(
    source: str,
    data_dir: str | None,
    data_files: DataFiles,
    endings: tuple[str, ...],
    example: str,
    splits: Callable[[list[str]], Mapping[str, list[str]]] | None = None,
    *,
    whole: tuple[str, ...] = (),
    hint: str = "",
) -> dict[str, list[Part]]:
    """Return a part per file of every split, named relative to ``data_dir`` or the deepest folder that all files share.

    Args:
        source: name of the source, for messages.
        data_dir: a folder, read with all its subfolders, or the folder that ``data_files`` are relative to.
        data_files: the files to read, or None for all files of ``data_dir`` with one of the endings.
        endings: endings of the files that the source reads, in lower case.
        example: a pattern of such files, for messages.
        splits: function from the names of all files below ``data_dir`` to the files of each split. None makes all files
            with one of the endings the split "train", and warns about the others.
        whole: endings of files that are one document each, see :func:`readable`.
        hint: advice for a folder without such files, as the end of a message.
    """
    if data_files:
        files = chosen_files(data_dir, data_files)
    elif not data_dir:
        raise SourceError(
            f"source {source!r} has nothing to read; set data_dir='FOLDER' or data_files='FOLDER/{example}'"
        )
    else:
        folder = absolute(data_dir)
        if not is_url(folder) and not Path(folder).is_dir():
            raise SourceError(f"{folder} is not a folder: set data_dir to a folder, or data_files to the file")
        tree = list_tree(folder)
        others = [] if is_url(folder) else unreachable(folder, [name for name in tree if not has_ending(name, endings)])
        names = readable(tree, endings, whole)
        if not names and not others:
            raise SourceError(
                f"{without_secrets(folder)} holds no file that can be read; known endings: {spell_endings(endings)}; "
                f"found: {count_endings(tree)}{hint}"
            )
        found = {"train": names} if splits is None else dict(splits(tree))
        if splits is None:
            _warn_of_others(source, [name for name in tree if name not in others], endings)
        if others:
            found["train"] = [*found.get("train", []), *others]
        files = {split: [join(folder, name) for name in names] for split, names in found.items()}
        if not is_url(folder):
            files = {split: _once(names) for split, names in files.items()}
    base = _base_of([path_of(without_secrets(file)) for chosen in files.values() for file in chosen], data_dir)
    return {split: _parts(chosen, base) for split, chosen in files.items()}


def _parts(files: list[str], base: str) -> list[Part]:
    """Name files by their paths; SourceError for two URLs that differ only in their queries or users."""
    parts: dict[str, Part] = {}
    for file in sorted(set(files)):
        # Ids are UTF-8, but file names need not be.
        name = path_of(without_secrets(file)).removeprefix(base).lstrip("/")
        name = name.encode("utf-8", "backslashreplace").decode()
        if name in parts:
            raise SourceError(
                f"{without_secrets(file)} is listed twice, with two queries or users: list each path once"
            )
        parts[name] = Part(name, (file,))
    return [parts[name] for name in sorted(parts)]


PDFS = (".pdf", ".pdf.gz", ".pdf.zst")
"""Endings of PDFs, which are read only with ``format: pdf``, as they have no text yet."""
PDF_HINT = ". To read PDFs, and only those, use the source text with format: pdf"


def _warn_of_others(source: str, names: Sequence[str], endings: tuple[str, ...]) -> None:
    left = [name for name in names if not has_ending(name, endings) and not is_about(name)]
    if left:
        files = f"{counted(len(left), 'file')} of data_dir {'is' if len(left) == 1 else 'are'}"
        warn_user(
            f"source {source!r}: {files} not read, by ending: {count_endings(left)}. Convert or rename them, or move "
            f"them away{PDF_HINT if any(has_ending(name, PDFS) for name in left) else ''}"
        )


def has_ending(name: str, endings: tuple[str, ...]) -> bool:
    """Return whether a file name has one of some endings, in any case."""
    return name.lower().endswith(endings)


def readable(names: Iterable[str], endings: tuple[str, ...], whole: tuple[str, ...]) -> list[str]:
    """Return the names with one of some endings, without a README or LICENSE that is beside files of records."""
    found = [name for name in names if has_ending(name, endings)]
    if all(has_ending(name, whole) for name in found):
        return found
    return [name for name in found if not (has_ending(name, whole) and is_about(name))]


def spell_endings(endings: Iterable[str]) -> str:
    """Return endings for a message, those of compressed files once.

    >>> spell_endings([".csv", ".csv.gz", ".csv.zst", ".parquet"])
    '.csv, .parquet, and these with .gz or .zst'
    """
    plain = [ending for ending in endings if not ending.endswith(_READ_PACKED)]
    packed = ", and these with .gz or .zst" if len(plain) < len(list(endings)) else ""
    return ", ".join(plain) + packed


def is_about(name: str) -> bool:
    """Return whether a file describes others, by its name: a README or a LICENSE."""
    return name.rpartition("/")[2].upper().startswith(_ABOUT)


def count_endings(names: Iterable[str]) -> str:
    """Return the endings of files with the number of each, for a message.

    >>> count_endings(["a.pdf", "b.pdf", "c.xml.gz"])
    '.pdf 2, .xml.gz 1'
    """
    counts = Counter(_ending(name.rpartition("/")[2]) for name in names)
    return listed(f"{ending} {count:,}" for ending, count in sorted(counts.items())) if counts else "no files"


def _ending(name: str) -> str:
    """Return the ending of a name; for a packed file, with the ending before it."""
    stem, ending = posixpath.splitext(name)
    return posixpath.splitext(stem)[1] + ending if ending in _PACKED else ending or "none"


def _once(files: list[str]) -> list[str]:
    """Leave out duplicate names of the same file, preferring to drop those with links in them, then the later ones."""
    real = {file: os.path.realpath(file) for file in files}
    ordered = sorted(real, key=lambda file: (Path(file).is_symlink(), real[file] != file, file))
    first = {real[file]: file for file in reversed(ordered)}
    return [file for file in files if first[real[file]] == file]


def chosen_files(data_dir: str | None, data_files: DataFiles) -> dict[str, list[str]]:
    """Return the paths and URLs that ``data_files`` names, by split; SourceError if a pattern matches nothing."""
    chosen = data_files if isinstance(data_files, Mapping) else {"train": data_files}
    base = absolute(data_dir or "")
    files: dict[str, list[str]] = {}
    for split, patterns in chosen.items():
        listed = [patterns] if isinstance(patterns, str) else list(patterns or [])
        files[split] = [file for pattern in listed for file in _expand(str(pattern), base)]
    return files


def _expand(pattern: str, base: str) -> list[str]:
    """Return the files that a path, URL or glob refers to; relative ones are below ``base``."""
    rooted = is_url(pattern) or pattern.startswith(("/", "~", "file://")) or Path(pattern).is_absolute()
    path = absolute(pattern if rooted else join(base, pattern))
    if not has_pattern(path) or (not is_url(path) and Path(path).is_file()):
        return [path]
    try:
        files = None if is_url(path) else _once(match_files(path))
    except ValueError as wrong:
        raise SourceError(f"{pattern} is not a valid pattern ({wrong}): change data_files") from wrong
    if not (files := match_remote(path) if files is None else files):
        raise SourceError(f"no file matches {without_secrets(pattern)!r}; check data_files")
    return files


def _base_of(files: list[str], data_dir: str | None) -> str:
    """Return the folder that names are relative to: ``data_dir``, or else the deepest folder that all files share."""
    base = path_of(without_secrets(absolute(data_dir or ""))).rstrip("/")
    if data_dir and all(file.startswith(f"{base}/") for file in files):
        return base
    folders = [posixpath.dirname(file).split("/") for file in files]
    return "/".join(steps[0] for steps in itertools.takewhile(lambda steps: len(set(steps)) == 1, zip(*folders)))  # noqa: B905  # stops at the shortest
