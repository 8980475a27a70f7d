"""Files that are read a range of bytes at a time: local ones, and those that fsspec reads by URL."""

import os
from typing import Protocol

from longcrawl.storage.file_systems import fetch, size_of
from longcrawl.urls import is_url

__all__ = ["ByteRanges", "open_ranges"]


class ByteRanges(Protocol):
    """A file of known size. It holds no lock and no connection, so it survives a fork."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Return so many bytes from an offset on; fewer where the file ends."""


def open_ranges(path: str) -> ByteRanges:
    """Open a local file, or one behind a URL.

    Raises:
        FileNotFoundError: there is none.
        NotYetError: its server does not answer in time.

    """
    return _RemoteRanges(path) if is_url(path) else _LocalRanges(path)


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
        size = size_of(url)
        if size is None:
            raise FileNotFoundError(url)
        self.size = size

    def read(self, start: int, length: int) -> bytes:
        return fetch(self._url, start, start + length)
