"""Files that are read a range of bytes at a time: local ones, and those that fsspec reads by URL."""

import os
from typing import Protocol

from longcrawl.errors import FormatError, SourceError
from longcrawl.file_systems import file_system_of

__all__ = ["ByteRanges", "is_remote", "open_ranges"]


class ByteRanges(Protocol):
    """A file of known size. It holds no lock and no connection, so it survives a fork."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Give so many bytes from an offset on; fewer where the file ends."""


def is_remote(path: str) -> bool:
    """Say whether fsspec must read a path: it is a URL, or a chain of them."""
    return ("://" in path and not path.startswith("file://")) or "::" in path


def open_ranges(path: str) -> ByteRanges:
    """Open a local file, or one behind a URL.

    Raises:
        FileNotFoundError: there is none.
        SourceError: it cannot be reached.

    """
    return _RemoteRanges(path) if is_remote(path) else _LocalRanges(path)


class _LocalRanges:
    def __init__(self, path: str) -> None:
        self._file = -1
        self._file = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._file).st_size

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self._file, length, start)


class _RemoteRanges:
    def __init__(self, url: str) -> None:
        self._url = url
        filesystem, path = file_system_of(url)
        try:
            size = filesystem.info(path)["size"]
        except FileNotFoundError:
            raise
        except Exception as wrong:
            raise _unreachable(url, wrong) from wrong
        if size is None:
            raise FormatError(f"{url}: its server does not say how many bytes it has; fetch it, or use engine='zarr'")
        self.size = int(size)

    def read(self, start: int, length: int) -> bytes:
        # A file system that was made before a fork waits for a thread that the child does not have.
        filesystem, path = file_system_of(self._url)
        # The Hub's would read five megabytes ahead of every chunk.
        settings = {"cache_type": "none"} if filesystem.protocol == "hf" else {}
        try:
            content: bytes = filesystem.cat_file(path, start, start + length, **settings)
        except FileNotFoundError:
            raise
        except Exception as wrong:
            raise _unreachable(self._url, wrong) from wrong
        # A server that knows no ranges sends everything.
        return content if len(content) <= length else content[start : start + length]


def _unreachable(url: str, wrong: Exception) -> SourceError:
    said = next(iter(str(wrong).splitlines()), "") or type(wrong).__name__
    return SourceError(f"{url} cannot be read now ({said}): check the connection and go on from the last state")
