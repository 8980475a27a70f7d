"""Input files: listing, opening, fetching, and which bytes of them were read.

Local files are hashed in one pass after the part has been read, while they are in the page cache; their size, times of
change and inode before and after show that nobody has replaced them in between. Remote files are hashed as they are
fetched.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from fsspec.utils import glob_translate

from longcrawl.errors import NotYetError, SourceError, reason_of, unreadable
from longcrawl.io.file_systems import REQUESTS, CutAnswerError, ask, fetch, file_system_of, look_again, verdict_of
from longcrawl.io.files import checksum, is_listed, list_files, why_no_file
from longcrawl.urls import is_url, path_of, without_secrets

logger = logging.getLogger("longcrawl")

State = tuple[int, int, int, int]
"""Size, times of the last change of content and of status in ns, and inode of a local file.

The first time can be set back, by `cp --preserve` as by `touch`; the second cannot.
"""


@dataclass(frozen=True)
class InputFile:
    """Which bytes of a file were read; None where it was missing or could not be read whole."""

    file: str
    """Path or URL, without secrets."""
    bytes: int | None = None
    sha256: str | None = None
    etag: str | None = None
    """What the server of a remote file calls this version of it, where it does."""
    state: State | None = None
    """Of a local file when it was read."""

    def as_dict(self) -> dict[str, Any]:
        """Return what a manifest holds: nothing that differs between two copies of a file."""
        named = {"file": self.file, "bytes": self.bytes, "sha256": self.sha256, "etag": self.etag}
        return {name: value for name, value in named.items() if value is not None}

    def marked(self) -> dict[str, Any]:
        """Return what the marker of a part holds; :meth:`from_mark` is the way back."""
        return self.as_dict() | ({} if self.state is None else {"state": list(self.state)})

    @classmethod
    def from_mark(cls, values: Mapping[str, Any]) -> "InputFile":
        """Read what :meth:`marked` returned."""
        state = values.get("state")
        return cls(**{**values, "state": None if state is None else tuple(state)})


class Fetched(dict[str, InputFile]):
    """What has been fetched of the remote files of a part, by URL."""

    def __init__(self, files: Iterable[str]) -> None:
        super().__init__()
        self.wanted = frozenset(file for file in files if is_url(file))


_fetched: ContextVar[Fetched | None] = ContextVar("fetched", default=None)


class PrefixHash:
    """SHA-256 of a file that is read in pieces, most of them one after the other."""

    def __init__(self) -> None:
        self._digest, self.size = hashlib.sha256(), 0

    def add(self, place: int, content: bytes) -> None:
        """Add what was read at a place; what has been added before is not added again."""
        if place <= self.size < place + len(content):
            self._digest.update(content[self.size - place :])
            self.size = place + len(content)

    def hexdigest(self) -> str:
        """Return the SHA-256 of the first ``size`` bytes."""
        return self._digest.hexdigest()


@contextmanager
def reading(files: Sequence[str]) -> Iterator[list[InputFile]]:
    """Record the files of a part: the list is filled, in their order, when the block ends without an error.

    Raises:
        NotYetError: a local file was replaced while it was read.
    """
    before = {file: _state(file) for file in files if not is_url(file)}
    fetched, found = Fetched(files), list[InputFile]()
    token = _fetched.set(fetched)
    try:
        yield found
    finally:
        _fetched.reset(token)
    for file in files:
        if is_url(file):
            found.append(fetched.get(file, InputFile(without_secrets(file))))
        else:
            found.append(_hashed(file))
            if found[-1].state != before[file]:
                raise NotYetError(
                    f"{file} was replaced while it was read. Type the same command again to read it again"
                )


def fetching(url: str) -> Fetched | None:
    """Return where to record a remote file, None where nobody asks for it."""
    fetched = _fetched.get()
    return fetched if fetched is not None and url in fetched.wanted else None


def entity_tag(information: Mapping[str, Any]) -> str | None:
    """Return what a file system says of the version of a file."""
    for name in ("ETag", "etag", "content_md5", "md5Hash", "blob_id", "oid"):
        if isinstance(value := information.get(name), str) and value:
            return value.strip('"')
    return None


def changed_files(read: Sequence[tuple[str, InputFile]]) -> Iterator[tuple[str, str]]:
    """Yield path and difference of every file that is not any more what was read, in order.

    A local file is hashed again where its size, times or inode differ. Remote ones are compared by tag and size, where
    the server answers with them.
    """
    remote = [url for url, known in read if is_url(url) and known.sha256 is not None]
    with ThreadPoolExecutor(REQUESTS) as pool:
        now = dict(zip(remote, pool.map(_current, remote), strict=True))
    for path, known in read:
        if not is_url(path):
            difference = _difference(path, known)
        else:
            difference = _remote_difference(known, *now.get(path, (None, None)))
        if difference is not None:
            yield known.file, difference


def _remote_difference(known: InputFile, tag: str | None, size: int | None) -> str | None:
    if known.etag is not None and tag not in (None, known.etag):
        return f"its entity tag was {known.etag} and is {tag}"
    if size not in (None, known.bytes):
        return f"it had {known.bytes:,} bytes and has {size:,}"
    return None


def _current(url: str) -> tuple[str | None, int | None]:
    """Return entity tag and size of a remote file, asking once, since what was read is known already."""
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
        return "it is gone"
    if known.state is None:
        return "it was missing and is there"
    now = _hashed(path)
    if now.sha256 == known.sha256:
        return None
    return f"its SHA-256 was {(known.sha256 or 'unknown')[:12]} and is {(now.sha256 or 'unknown')[:12]}"


def _hashed(path: str) -> InputFile:
    """Return the bytes that a local file has now; of one that cannot be read, its size."""
    state = _state(path)
    if state is None:
        return InputFile(path)
    try:
        digest = checksum(Path(path))
    except OSError:  # the source has applied the policy for broken files to it
        return InputFile(path, state[0], state=state)
    return InputFile(path, state[0], digest, state=_state(path))


def _state(path: str) -> State | None:
    try:
        status = os.stat(path)  # noqa: PTH116  # called for every file of a run, twice as fast as Path.stat
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


RANGE_BYTES = 8 << 20
"""How much of a remote file is fetched at a time."""


class DamagedFileError(SourceError):
    """A file is missing, cut or corrupt; what came before the damage has been yielded.

    ``records_lost`` is how many records are lost by it, None where nobody can know.
    """

    def __init__(self, reason: str, records_lost: int | None = None) -> None:
        super().__init__(reason)
        self.records_lost = records_lost


def absolute(path: str) -> str:
    """Return a local path from the root, ``~`` and ``file://`` resolved; a URL stays, but for a slash at its end."""
    if is_url(path):
        return path.rstrip("/")
    return Path(os.path.abspath(os.path.expanduser(path.removeprefix("file://")))).as_posix()  # noqa: PTH100, PTH111  # Path.resolve would follow links


def list_tree(folder: str) -> list[str]:
    """List all files below a folder, relative to it, sorted; a missing folder has none.

    Hidden files and those that jobs write beside data are left out, see :func:`longcrawl.io.files.is_listed`.

    Of a local folder, links are followed, and what cannot be read is listed too, see :mod:`longcrawl.io.files`.

    Raises:
        NotYetError: a server does not list a folder now.
    """
    if not is_url(folder):
        return list_files(folder)
    filesystem, root = file_system_of(folder)
    root = path_of(root)
    found = [path_of(name)[len(root) :].strip("/") for name in _listed(folder, filesystem, root)]
    return sorted(name for name in found if name and all(map(is_listed, name.split("/"))))


def match_remote(pattern: str) -> list[str]:
    """List the URLs that match a glob.

    Raises:
        NotYetError: a server does not list a folder now.
    """
    filesystem, inner = file_system_of(pattern)
    protocol = pattern.removesuffix(inner.lstrip("/"))
    host = 3 if "://" in inner else 0
    steps = inner.split("/")
    fixed = itertools.takewhile(lambda step: not any(sign in step for sign in "*?["), steps[host:])
    before = "/".join([*steps[:host], *fixed, ""])
    try:
        matches = re.compile(glob_translate(inner)).match
    except ValueError as wrong:
        raise SourceError(f"{without_secrets(pattern)} is not a pattern ({wrong}). Change data_files") from wrong
    found = (name for name in _listed(pattern, filesystem, before) if matches(name))
    names = [name for name in found if all(map(is_listed, name.removeprefix(before).split("/")))]
    return [protocol + name.lstrip("/") for name in names]


def _listed(url: str, filesystem: Any, root: str) -> list[str]:
    """List the files below a remote folder, asking again for a while; one that the server lacks has none.

    Raises:
        NotYetError: the server does not list it now.
        SourceError: it has no such bucket.
    """
    try:
        return ask(url, partial(_find, filesystem, root))
    except FileNotFoundError:
        return []


def _find(filesystem: Any, root: str) -> list[str]:
    """List the files below a folder; a folder that cannot be listed is an error, and a missing one has none.

    fsspec's own walk drops the errors of folders, so it is done here; object stores list all in one request.
    """
    filesystem.invalidate_cache()  # a process may list a folder again after hours
    if not _walks(type(filesystem)):
        try:
            return [str(name) for name in filesystem.find(root)]
        except FileNotFoundError as missing:
            _pass_missing(missing)
            return []
    found, waiting, seen = set[str](), [root], {root.rstrip("/")}
    while waiting:
        folder = waiting.pop()
        try:
            entries = filesystem.ls(folder, detail=True)
        except FileNotFoundError as missing:
            _pass_missing(missing)
            continue
        for entry in entries:
            name = str(entry["name"])
            if entry["type"] != "directory":
                found.add(name)
            elif name.rstrip("/") not in seen:
                seen.add(name.rstrip("/"))
                waiting.append(name)
    return sorted(found)


def _pass_missing(failed: Exception) -> None:
    """Raise an error that says something else than that a folder is not there."""
    if verdict_of(failed).kind != "missing":
        raise failed


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Return a local path for a file: its own, or that of a temporary copy of a remote one, fetched whole.

    Raises:
        DamagedFileError: it is missing, a link to nothing, a named pipe or a device, or cannot be read in the block.
        NotYetError: its server does not give it now.
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
    """Raise what the system says of a file as damage of it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError("is missing") from error
    except OSError as error:
        raise DamagedFileError(f"cannot be read: {error.strerror or error}") from error


@contextmanager
def opened(path: str, range_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading and seeking; of a remote one, only what is read is fetched, if its server can do that.

    ``range_bytes`` is how much of a remote one is fetched at a time; ``RANGE_BYTES`` if left out.

    Raises:
        DamagedFileError: the file is missing, or is none that can be read.
        NotYetError: its server does not give it now.
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
    """Read small text files, several remote ones at a time; None stands for a missing one.

    Raises:
        NotYetError: a server does not give one now.
        SourceError: one is not UTF-8.
    """
    with ThreadPoolExecutor(REQUESTS) as pool:
        return dict(zip(paths, pool.map(_text, paths), strict=True))


def _text(path: str) -> str | None:
    with unreadable(without_secrets(path), SourceError, "replace it with a whole copy"):
        try:
            return (fetch(path) if is_url(path) else Path(path).read_bytes()).decode()
        except FileNotFoundError:
            return None


def _walks(kind: type) -> bool:
    """Return whether a class of file systems finds files with fsspec's own walk."""
    own = kind._find if issubclass(kind, AsyncFileSystem) else kind.find  # type: ignore[attr-defined]  # noqa: SLF001  # fsspec has no types
    return own in (AbstractFileSystem.find, AsyncFileSystem._find)  # noqa: SLF001  # as above


def _fetch(path: str, copy: Path) -> None:
    filesystem, inner = file_system_of(path)
    record = fetching(path)
    tag: str | None = None

    def request() -> None:
        nonlocal tag
        if record is not None:
            look_again(filesystem, inner)
            tag = entity_tag(filesystem.info(inner))
        filesystem.get_file(inner, str(copy))

    ask(path, request)
    if record is not None:
        record[path] = InputFile(without_secrets(path), copy.stat().st_size, checksum(copy), tag)


class _Ranges(io.RawIOBase):
    """A remote file, a range of bytes at a time."""

    def __init__(self, path: str, file: Any, size: int, tag: str | None) -> None:
        self._path, self._file, self._size, self._tag = path, file, size, tag
        self._place = 0
        self._record = fetching(path)
        self._hash = PrefixHash()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        wanted = max(min(len(buffer), self._size - self._place), 0)
        if not wanted:
            return 0
        content = ask(self._path, partial(self._read, self._place, wanted))
        buffer[: len(content)] = content
        if self._record is not None:
            self._hash.add(self._place, content)
        self._place += len(content)
        return len(content)

    def record(self) -> None:
        """Record which bytes were read; what was jumped over is fetched for that."""
        if self._record is None:
            return
        while self._hash.size < self._size:
            place = self._hash.size
            self._hash.add(place, ask(self._path, partial(self._read, place, min(RANGE_BYTES, self._size - place))))
        named = without_secrets(self._path)
        self._record[self._path] = InputFile(named, self._size, self._hash.hexdigest(), self._tag)

    def _read(self, place: int, size: int) -> bytes:
        self._file.seek(place)
        content = bytes(self._file.read(size))
        if len(content) < size:
            raise CutAnswerError(f"{len(content):,} of {size:,} bytes came")
        return content


def _open_remote(path: str) -> _Ranges | None:
    """Open a remote file; None if its server gives no ranges, and it is to be fetched whole."""
    filesystem, inner = file_system_of(path)

    def request() -> _Ranges | None:
        look_again(filesystem, inner)
        try:
            file = filesystem.open(inner, "rb", cache_type="none")
            information = filesystem.info(inner)
            size = information.get("size")
            if not size:
                return None
            file.seek(size - 1)
            whole = len(file.read(1)) == 1
        except (ValueError, NotImplementedError) as error:  # what fsspec raises where there are no ranges
            logger.debug("%s cannot be read in ranges: %s", without_secrets(path), reason_of(error))
            return None
        return _Ranges(path, file, size, entity_tag(information)) if whole else None

    return ask(path, request)
