"""Files of a source: local paths and fsspec URLs, listed, opened and fetched."""

import io
import logging
import os
import posixpath
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from longcrawl.errors import SourceError

__all__ = [
    "DamagedFileError",
    "absolute",
    "fetch_texts",
    "is_url",
    "join",
    "list_tree",
    "local_copy",
    "opened",
]

logger = logging.getLogger("longcrawl")

RANGE_BYTES = 8 << 20
"""How much of a remote file is fetched at a time."""

ATTEMPTS = 3
"""How often a remote file is tried before it counts as unreadable."""

PAUSE = 0.5
"""Seconds before the second attempt; twice as many before each further one."""


class DamagedFileError(SourceError):
    """A file is missing, cut or corrupt; what came before the damage has been yielded.

    ``records_lost`` is how many records are lost by it, None where nobody can know.
    """

    def __init__(self, reason: str, records_lost: int | None = None) -> None:
        super().__init__(reason)
        self.records_lost = records_lost


def is_url(path: str) -> bool:
    """Say whether a path names a remote file system; ``file://`` is local."""
    return "://" in path and not path.startswith("file://")


def absolute(path: str) -> str:
    """Give a local path from the root, ``~`` and ``file://`` resolved; a URL stays, but for a slash at its end."""
    if is_url(path):
        return path.rstrip("/")
    return Path(os.path.abspath(os.path.expanduser(path.removeprefix("file://")))).as_posix()  # noqa: PTH100, PTH111  # Path.resolve would follow links


def join(folder: str, name: str) -> str:
    """Give the path of a file in a folder."""
    return posixpath.join(folder, name)


def list_tree(folder: str) -> list[str]:
    """List all files below a folder, relative to it, sorted, without hidden ones; a missing folder has none."""
    if is_url(folder):
        filesystem, root = fsspec.core.url_to_fs(folder)
        try:
            found = [str(name)[len(root) :].strip("/") for name in filesystem.find(root)]
        except FileNotFoundError:
            found = []
    else:
        found = [file.relative_to(folder).as_posix() for file in Path(folder).rglob("*") if file.is_file()]
    return sorted(name for name in found if name and not any(step.startswith(".") for step in name.split("/")))


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Give a local path for a file: its own, or that of a temporary copy of a remote one, fetched whole.

    Raises:
        DamagedFileError: the remote file is missing, or cannot be fetched in three attempts.

    """
    if not is_url(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="longcrawl-") as folder:
        copy = os.path.join(folder, posixpath.basename(path))  # noqa: PTH118  # one name in a folder just made
        _retry(path, copy)
        yield copy


@contextmanager
def opened(path: str, range_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading and seeking; of a remote one, only what is read is fetched, if its server can do that.

    ``range_bytes`` is how much of a remote one is fetched at a time; ``RANGE_BYTES`` if left out.

    Raises:
        DamagedFileError: the remote file is missing, or cannot be fetched in three attempts.

    """
    if (remote := _open_remote(path) if is_url(path) else None) is not None:
        with io.BufferedReader(remote, range_bytes or RANGE_BYTES) as file:
            yield file
        return
    with local_copy(path) as copy, Path(copy).open("rb") as file:
        yield file


def fetch_texts(paths: Iterable[str]) -> dict[str, str | None]:
    """Read small text files, remote ones together; None stands for a missing one.

    Raises:
        SourceError: a file is there but cannot be read.

    """
    texts: dict[str, str | None] = {}
    remote = [path for path in paths if is_url(path)]
    for path in paths:
        if path not in remote:
            texts[path] = Path(path).read_text(encoding="utf-8") if Path(path).exists() else None
    for attempt in range(ATTEMPTS if remote else 0):
        left = [path for path in remote if path not in texts]
        answers = _cat(left) if left else {}
        for path, answer in answers.items():
            if isinstance(answer, bytes):
                texts[path] = answer.decode()
            elif isinstance(answer, FileNotFoundError):
                texts[path] = None
            elif attempt == ATTEMPTS - 1:
                raise SourceError(f"{path}: cannot be fetched ({answer!r}); check the URL and the connection")
        if len(texts) < len(remote):
            time.sleep(PAUSE * 2**attempt)
    return texts


def _retry(path: str, copy: str) -> None:
    for attempt in range(ATTEMPTS):
        try:
            filesystem, inner = fsspec.core.url_to_fs(path)
            filesystem.get_file(inner, copy)
        except FileNotFoundError as error:
            raise DamagedFileError("is missing") from error
        except Exception as error:  # every fsspec file system has errors of its own
            if attempt == ATTEMPTS - 1:
                raise DamagedFileError(f"cannot be fetched in {ATTEMPTS} attempts: {error!r}") from error
            time.sleep(PAUSE * 2**attempt)
        else:
            return


class _Ranges(io.RawIOBase):
    """A remote file, a range of bytes at a time, each tried three times."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._size, self._place = file, size, 0

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
        for attempt in range(ATTEMPTS if wanted else 0):
            try:
                self._file.seek(self._place)
                content = self._file.read(wanted)
            except Exception as error:  # every fsspec file system has errors of its own
                if attempt == ATTEMPTS - 1:
                    raise DamagedFileError(f"cannot be fetched in {ATTEMPTS} attempts: {error!r}") from error
                time.sleep(PAUSE * 2**attempt)
            else:
                buffer[: len(content)] = content
                self._place += len(content)
                return len(content)
        return 0


def _open_remote(path: str) -> _Ranges | None:
    """Open a remote file if it can be read in ranges; why it cannot is for ``local_copy`` to find out."""
    try:
        filesystem, inner = fsspec.core.url_to_fs(path)
        file = filesystem.open(inner, "rb", cache_type="none")
        size = filesystem.size(inner)
        if not size:
            return None
        file.seek(size - 1)
        if len(file.read(1)) == 1:
            return _Ranges(file, size)
    except Exception as error:  # noqa: BLE001  # every fsspec file system has errors of its own
        logger.debug("%s cannot be read in ranges: %r", path, error)
    return None


def _cat(paths: list[str]) -> dict[str, bytes | Exception]:
    filesystem, _ = fsspec.core.url_to_fs(paths[0])
    inner = {fsspec.core.url_to_fs(path)[1]: path for path in paths}
    answers = filesystem.cat(list(inner), on_error="return")
    return {inner[name]: answer for name, answer in answers.items()}
