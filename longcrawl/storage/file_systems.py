"""Files behind URLs: their file system, sizes and ranges of bytes, each asked for again where a server does not answer.

Every question names the whole URL and finds its file system again, which does not survive a fork; fsspec keeps one for
each process and thread.
"""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from longcrawl.errors import FormatError, SourceError, reason_of
from longcrawl.storage.network import ask
from longcrawl.urls import is_url, split_options, without_secrets

PACKAGES = {
    "s3": "'longcrawl[s3]'",
    "s3a": "'longcrawl[s3]'",
    "gs": "'longcrawl[gcs]'",
    "gcs": "'longcrawl[gcs]'",
    "abfs": "adlfs",
    "az": "adlfs",
}
"""What to install for the protocols of object stores."""

REQUESTS = 16
"""Files that a server is asked about at once."""

_opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_inherited: list[Any] = []

Span = tuple[str, int, int]
"""URL, first byte and the byte after the last."""


def file_system_of(url: str) -> tuple[Any, str]:
    """Return the file system of fsspec that a URL names, and the path in it.

    >>> file_system_of("file:///data/a.jsonl")[1]
    '/data/a.jsonl'

    Raises:
        SourceError: the protocol is unknown, or needs a package that is not installed.
    """
    import fsspec

    plain, options = split_options(url)
    protocol = plain.partition("://")[0].rpartition("::")[2]
    # Behind a cache, options of the store have its name.
    given = {protocol: options} if options and "::" in plain else options
    try:
        filesystem, inner = fsspec.core.url_to_fs(plain, **given)
    except (ImportError, ValueError) as unknown:
        package = PACKAGES.get(protocol)
        fix = f"Type: pip install {package}" if package else "Install the package of its protocol, or check the URL"
        raise SourceError(f"{without_secrets(url)} cannot be reached ({reason_of(unknown)}). {fix}") from unknown
    _opened[id(filesystem)] = filesystem
    return filesystem, str(inner)


def _keep_inherited() -> None:
    """Keep the file systems of the parent in a forked process.

    fsspec drops them there, and what their finalizers close belongs to the event loop of the parent: s3fs prints a
    traceback for each client that has an open connection.
    """
    _inherited.extend(_opened.values())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_inherited)


def look_again(filesystem: Any, inner: str) -> None:
    """Have a file system ask for a file again instead of taking what a listing of before says of it.

    The Hub's would ask for the whole repository again, and its files do not change under a commit.
    """
    if filesystem.protocol != "hf":
        filesystem.invalidate_cache(inner)


def information_of(url: str) -> Mapping[str, Any] | None:
    """Return what fsspec knows of a file or folder, ``size`` and ``type`` among it; None where there is none.

    Raises:
        NotYetError: the server does not answer in time.
    """
    filesystem, inner = file_system_of(url)
    return _information(filesystem, url, inner)


def exists(url: str) -> bool:
    """Return whether there is a file or folder; no answer is not taken for none.

    Raises:
        NotYetError: the server does not answer in time.
    """
    return information_of(url) is not None


def size_of(url: str) -> int | None:
    """Return the bytes of a file; None where there is none.

    Raises:
        FormatError: the server does not say how many it has.
        NotYetError: it does not answer in time.
    """
    return _size(url, information_of(url))


def sizes_of(urls: Sequence[str]) -> list[int | None]:
    """Return the bytes of files of one file system, which are asked for at once, as :func:`size_of` does."""
    if not urls:
        return []
    filesystem, _ = file_system_of(urls[0])
    inner = [file_system_of(url)[1] for url in urls]
    with ThreadPoolExecutor(REQUESTS) as pool:
        found = pool.map(partial(_information, filesystem), urls, inner)
        return [_size(url, information) for url, information in zip(urls, found, strict=True)]


def fetch(url: str, start: int = 0, stop: int | None = None) -> bytes:
    """Return the bytes of a file from ``start`` to before ``stop``, or to its end; fewer where it ends before.

    Raises:
        FileNotFoundError: there is no such file.
        NotYetError: the server does not answer in time.
    """
    return ask(url, partial(_fetch, url, start, stop))


def fetch_spans(spans: Sequence[Span]) -> Iterator[bytes]:
    """Yield bytes of files of one file system, in order, which are asked for together.

    Raises:
        FileNotFoundError: there is no such file.
        NotYetError: the server does not answer in time.
    """
    answers: dict[Span, bytes] = {}
    while waiting := [span for span in dict.fromkeys(spans) if span not in answers]:
        ask(waiting[0][0], partial(_fetch_spans, waiting, answers))
    return (answers[span] for span in spans)


def _information(filesystem: Any, url: str, inner: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = ask(url, partial(filesystem.info, inner))
    except FileNotFoundError:
        return None
    return found


def _size(url: str, information: Mapping[str, Any] | None) -> int | None:
    if information is None:
        return None
    if information.get("size") is None:
        raise FormatError(
            f"{without_secrets(url)}: its server does not say how many bytes it has. Fetch the file, and read it here"
        )
    return int(information["size"])


def _fetch(url: str, start: int, stop: int | None) -> bytes:
    filesystem, inner = file_system_of(url)
    if not start and stop is None:
        whole: bytes = filesystem.cat_file(inner)
        return whole
    # The Hub's would read five megabytes ahead of every range.
    settings = {"cache_type": "none"} if filesystem.protocol == "hf" else {}
    content: bytes = filesystem.cat_file(inner, start=start, end=stop, **settings)
    # A server that knows no ranges sends everything.
    return content if stop is None or len(content) <= stop - start else content[start:stop]


def _fetch_spans(spans: Sequence[Span], answers: dict[Span, bytes]) -> None:
    """Fetch spans together; raise what the server says of the first that it does not give."""
    filesystem, _ = file_system_of(spans[0][0])
    inner = [file_system_of(url)[1] for url, _, _ in spans]
    starts, stops = [start for _, start, _ in spans], [stop for _, _, stop in spans]
    found = filesystem.cat_ranges(inner, starts, stops, on_error="return")
    answers |= {span: answer for span, answer in zip(spans, found, strict=True) if isinstance(answer, bytes)}
    for answer in found:
        if isinstance(answer, Exception):
            raise answer


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
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)  # __del__ would run after os is gone, at exit
        self.size = os.fstat(self._file).st_size

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
