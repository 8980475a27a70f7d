"""Which bytes of which files a part was read from: size and SHA-256, the entity tag of remote files.

Local files are hashed in one pass after the part has been read, while they are in the page cache; their size, times of
change and inode before and after show that nobody has replaced them in between. Remote files are hashed as they are
fetched.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longcrawl.errors import NotYetError
from longcrawl.storage.file_systems import REQUESTS, file_system_of
from longcrawl.storage.files import checksum
from longcrawl.urls import is_url, without_secrets

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
