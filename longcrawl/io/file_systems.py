"""Remote files: sizes and byte ranges behind URLs of any fsspec file system, with retries.

Every request starts from the full URL and looks up its file system, because file systems do not survive a fork; fsspec
caches one per process and thread.

===================================== ===========================================================
response                              meaning
===================================== ===========================================================
404, 410                              the file is missing; ``on_bad_files`` applies
404 of a bucket                       ``SourceError`` at once
412 while a file is read              the file was replaced: ``NotYetError`` at once
408, 425, 429, 5xx, timeouts,         retried for five minutes, then ``NotYetError``
truncated responses, no connection,
no DNS
401, 403, missing credentials         ``NotYetError`` at once, with advice
anything else                         ``NotYetError`` after three attempts
===================================== ===========================================================

So a temporary failure never counts as damage. Every function here that sends a request can raise ``NotYetError``.
"""

import email.utils
import logging
import os
import ssl
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from longcrawl.errors import DISK_FULL, FormatError, LongCrawlError, NotYetError, SourceError, reason_of
from longcrawl.urls import BUCKETS, hide_secrets, is_url, split_options, without_secrets

logger = logging.getLogger("longcrawl")
T = TypeVar("T")
Kind = Literal["missing", "no_bucket", "later", "forbidden", "replaced", "unknown"]
RETRY_SECONDS = float(os.environ.get("LONGCRAWL_RETRY_SECONDS", "300"))
"""Seconds for which requests for one file are retried, set by the variable ``LONGCRAWL_RETRY_SECONDS``."""
PAUSE = 0.5
"""Seconds before the first retry. They double before each further one, unless ``Retry-After`` asks for more."""
LONGEST_PAUSE = 60.0
"""Maximum number of seconds before a retry, unless ``Retry-After`` asks for more."""
ATTEMPTS = 3
"""Maximum number of attempts for a failure of unknown kind."""
_STATUSES: Mapping[Kind, tuple[int, ...]] = {
    "missing": (404, 410),
    "forbidden": (401, 403, 407),
    "replaced": (412,),
    "later": (408, 425, 429),
}
NO_BUCKET = {"NoSuchBucket", "BucketNotFoundError"}
"""Error code of S3 and error class of the Hub for a missing bucket."""
_CONNECTIONS = {"ClientError", "RequestException", "HTTPError", "TransportError", "HTTPClientError", "ProxyError"}
"""Names of base classes of connection errors in aiohttp, requests, httpx and botocore, which may not be installed."""
_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError"}
_SIGN_IN = {
    "s3": " (AWS_PROFILE or AWS_ACCESS_KEY_ID; for public data, storage_options: {anon: true})",
    "gs": " (GOOGLE_APPLICATION_CREDENTIALS; for public data, storage_options: {token: anon})",
    "hf": " (hf auth login, or HF_TOKEN)",
}
_FINAL = {"OfflineModeIsEnabled", "InvalidURL", "InvalidUrlClientError", "SSLCertVerificationError"}
_silent: set[str] = set()
"""Hosts for which all retries of one file failed. Requests for other files are not retried until one succeeds."""


class CutAnswerError(ConnectionError):
    """A server sent fewer bytes than it announced."""


@dataclass(frozen=True)
class Verdict:
    """The classified failure of a request."""

    kind: Kind
    retry_after: float = 0.0
    """Seconds that the server asks to wait before a retry."""


def ask(url: str, request: Callable[[], T], doing: str = "fetched", patience: float | None = None) -> T:
    """Send a request about a URL and return its result, retrying temporary failures.

    ``doing`` is the action in error messages, as in "cannot be fetched". Failures are retried for ``patience`` seconds,
    or ``RETRY_SECONDS``.

    Raises:
        FileNotFoundError: the server has no such file.
        NotYetError: the server does not answer in time, rejects the credentials, or has replaced the file meanwhile.
        SourceError: the server has no such bucket.
    """
    host = without_secrets(url).partition("://")[2].partition("/")[0]
    started, attempt = time.monotonic(), 0
    while True:
        try:
            answer = request()
        except LongCrawlError:  # caused by the file, not by its server
            raise
        except Exception as error:  # every fsspec file system has its own errors
            if isinstance(error, OSError) and error.errno in DISK_FULL:  # a full disk of this machine
                raise
            failed: Exception = error
        else:
            _silent.discard(host)
            return answer
        attempt += 1
        verdict, shown = verdict_of(failed), without_secrets(url)
        if verdict.kind == "missing":
            raise FileNotFoundError(shown) from _shown(failed)
        if verdict.kind == "no_bucket":
            bucket = "/".join(shown.removeprefix(BUCKETS).split("/")[:2]) if shown.startswith(BUCKETS) else host
            raise SourceError(
                f"{shown}: the server has no bucket {bucket!r}. Check its name, or the endpoint"
            ) from _shown(failed)
        pause = max(min(PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE), verdict.retry_after)
        waited = time.monotonic() - started
        patient = waited + pause <= (RETRY_SECONDS if patience is None else patience)
        if not _may_ask_again(verdict, host, attempt, patient=patient):
            raise NotYetError(_sentence(url, failed, verdict, attempt, waited, doing)) from _shown(failed)
        logger.warning("%s: %s; asking again in %.3g s", shown, hide_secrets(reason_of(_cause_of(failed))), pause)
        time.sleep(pause)


def _may_ask_again(verdict: Verdict, host: str, attempt: int, *, patient: bool) -> bool:
    if verdict.kind != "later":
        return verdict.kind == "unknown" and attempt < ATTEMPTS
    if patient and host not in _silent:
        return True
    _silent.add(host)
    return False


def verdict_of(failed: BaseException) -> Verdict:
    """Classify a failure by the HTTP status of the error or one of its causes, or else by its class."""
    chain = list(_causes(failed))
    for error in chain:
        if (status := _status(error)) is not None:
            kind = "no_bucket" if {_code(error), type(error).__name__} & NO_BUCKET else _of_status(status)
            return Verdict(kind, _retry_after(error) if kind == "later" else 0.0)
    names = {kind.__name__ for error in chain for kind in type(error).__mro__}
    if names & _FINAL:
        return Verdict("unknown")
    if names & _CREDENTIALS:
        return Verdict("forbidden")
    connections = (TimeoutError, ConnectionError, ssl.SSLError)
    if names & _CONNECTIONS or any(isinstance(error, connections) for error in chain):
        return Verdict("later")
    known: tuple[tuple[type[OSError], Kind], ...] = (
        (FileNotFoundError, "missing"),
        (NotADirectoryError, "missing"),
        (IsADirectoryError, "missing"),
        (PermissionError, "forbidden"),
        (OSError, "later"),
    )
    kinds = (kind for error in reversed(chain) for cls, kind in known if isinstance(error, cls))
    return Verdict(next(kinds, "unknown"))


def _of_status(status: int) -> Kind:
    other: Kind = "later" if status >= 500 else "unknown"
    return next((kind for kind, statuses in _STATUSES.items() if status in statuses), other)


def _sentence(url: str, failed: Exception, verdict: Verdict, attempt: int, waited: float, doing: str) -> str:
    reason = hide_secrets(reason_of(_cause_of(failed)))
    if verdict.kind == "forbidden":
        sign_in = _SIGN_IN.get(url.partition("://")[0], ", or sign the URL again")
        return (
            f"{without_secrets(url)}: the server does not allow it ({reason}). Check your credentials{sign_in}, and "
            "run the same command again"
        )
    if verdict.kind == "replaced":
        return f"{without_secrets(url)} was replaced while it was read. Run the same command again"
    asked = "once" if attempt == 1 else f"{attempt} times in {waited:.0f} s"
    again = f"{'Check the endpoint, or run' if 'EndpointConnection' in reason else 'Run'} the same command again later"
    return f"{without_secrets(url)}: cannot be {doing} now ({reason}), asked {asked}. {again}"


def _cause_of(failed: BaseException) -> BaseException:
    """Return the error in a chain that has an HTTP status, or else the root cause."""
    chain = list(_causes(failed))
    return next((error for error in chain if _status(error) is not None), chain[-1])


def _causes(failed: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes: fsspec reports every failure of ``info`` as a missing file."""
    seen: set[int] = set()
    error: BaseException | None = failed
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error of aiohttp, requests, httpx, huggingface_hub, botocore or gcsfs."""
    if any(kind.__name__ == "HttpProcessingError" for kind in type(error).__mro__):
        return None  # aiohttp raises it for a response that it cannot parse
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        stored = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return stored if isinstance(stored, int) else None
    for holder, name in ((error, "status"), (answer, "status_code"), (error, "code")):
        if isinstance(status := getattr(holder, name, None), int) and 100 <= status < 600:
            return status
    return None


def _code(error: BaseException) -> str | None:
    answer = getattr(error, "response", None)
    return answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None


def _retry_after(error: BaseException) -> float:
    """Return the seconds that the header ``Retry-After`` asks for, given as a number or a date."""
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None) or {}
    asked = str(headers.get("Retry-After", "")).strip()
    if asked.isdecimal() and len(asked) < 10:
        return float(asked)
    try:
        return max(email.utils.parsedate_to_datetime(asked).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _shown(failed: Exception) -> Exception | None:
    """Return an error to show as a cause, or None if its message contains a secret."""
    return failed if all(hide_secrets(str(error)) == str(error) for error in _causes(failed)) else None


PACKAGES = {
    "s3": "'longcrawl[s3]'",
    "s3a": "'longcrawl[s3]'",
    "gs": "'longcrawl[gcs]'",
    "gcs": "'longcrawl[gcs]'",
    "abfs": "adlfs",
    "az": "adlfs",
}
"""Package to install for the protocol of an object store."""
REQUESTS = 16
"""Number of concurrent requests to a server."""
_opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_inherited: list[Any] = []
Span = tuple[str, int, int]
"""A byte range of a remote file: URL, first byte and the byte after the last."""


def file_system_of(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it; raise SourceError if it cannot be reached.

    >>> file_system_of("file:///data/a.jsonl")[1]
    '/data/a.jsonl'
    """
    import fsspec

    plain, options = split_options(url)
    protocol = plain.partition("://")[0].rpartition("::")[2]
    # In a chained URL with a cache, the store's options are passed under its protocol.
    given = {protocol: options} if options and "::" in plain else options
    try:
        filesystem, inner = fsspec.core.url_to_fs(plain, **given)
    except (ImportError, ValueError) as unknown:
        package = PACKAGES.get(protocol)
        fix = f"Run pip install {package}" if package else "Install the package of its protocol, or check the URL"
        raise SourceError(f"{without_secrets(url)} cannot be reached ({reason_of(unknown)}). {fix}") from unknown
    _opened[id(filesystem)] = filesystem
    return filesystem, str(inner)


if hasattr(os, "register_at_fork"):
    # fsspec drops the parent's file systems after a fork; their finalizers would close objects of its event loop.
    os.register_at_fork(after_in_child=lambda: _inherited.extend(_opened.values()))


def look_again(filesystem: Any, inner: str) -> None:
    """Clear the cached listing of a file; the Hub's is kept, as files do not change within a commit."""
    if filesystem.protocol != "hf":
        filesystem.invalidate_cache(inner)


def information_of(url: str) -> Mapping[str, Any] | None:
    """Return fsspec's information on a file or directory, such as ``size`` and ``type``, or None if there is none."""
    filesystem, inner = file_system_of(url)
    return _information(filesystem, url, inner)


def exists(url: str) -> bool:
    """Return whether a file or directory exists; a failed request does not count as missing."""
    return information_of(url) is not None


def size_of(url: str) -> int | None:
    """Return the size of a file, or None if there is none; raise FormatError if its server does not report it."""
    return _size(url, information_of(url))


def sizes_of(urls: Sequence[str]) -> list[int | None]:
    """Return the sizes of files in one file system, requested concurrently, like :func:`size_of`."""
    if not urls:
        return []
    filesystem, _ = file_system_of(urls[0])
    inner = [file_system_of(url)[1] for url in urls]
    with ThreadPoolExecutor(REQUESTS) as pool:
        found = pool.map(partial(_information, filesystem), urls, inner)
        return [_size(url, information) for url, information in zip(urls, found, strict=True)]


def fetch(url: str, start: int = 0, stop: int | None = None) -> bytes:
    """Return the bytes ``start:stop`` of a file, fewer if it ends earlier; raise FileNotFoundError if there is none."""
    return ask(url, partial(_fetch, url, start, stop))


def fetch_spans(spans: Sequence[Span]) -> Iterator[bytes]:
    """Yield byte ranges of files in one file system, in order, requested together; errors are like :func:`fetch`'s."""
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
            f"{without_secrets(url)}: its server does not report the size. Download the file and read the local copy"
        )
    return int(information["size"])


def _fetch(url: str, start: int, stop: int | None) -> bytes:
    filesystem, inner = file_system_of(url)
    if not start and stop is None:
        whole: bytes = filesystem.cat_file(inner)
        return whole
    # The Hub's file system would read five megabytes ahead of every range.
    settings = {"cache_type": "none"} if filesystem.protocol == "hf" else {}
    content: bytes = filesystem.cat_file(inner, start=start, end=stop, **settings)
    # A server without range requests sends the whole file.
    return content if stop is None or len(content) <= stop - start else content[start:stop]


def _fetch_spans(spans: Sequence[Span], answers: dict[Span, bytes]) -> None:
    """Fetch spans together and store them in ``answers``; raise the first error after storing the others."""
    filesystem, _ = file_system_of(spans[0][0])
    inner = [file_system_of(url)[1] for url, _, _ in spans]
    starts, stops = [start for _, start, _ in spans], [stop for _, _, stop in spans]
    found = filesystem.cat_ranges(inner, starts, stops, on_error="return")
    answers |= {span: answer for span, answer in zip(spans, found, strict=True) if isinstance(answer, bytes)}
    for answer in found:
        if isinstance(answer, Exception):
            raise answer


@dataclass(frozen=True)
class ByteRanges:
    """A file of known size for random reads; it has no lock or connection, so it survives a fork."""

    size: int
    read: Callable[[int, int], bytes]
    """Function that returns ``length`` bytes from the offset ``start``, or fewer at the end of the file."""


def open_ranges(path: str) -> ByteRanges:
    """Open a local or remote file for random reads; raise FileNotFoundError if there is none."""
    if is_url(path):
        size = size_of(path)
        if size is None:
            raise FileNotFoundError(path)
        return ByteRanges(size, lambda start, length: fetch(path, start, start + length))
    file = os.open(path, os.O_RDONLY)
    opened = ByteRanges(os.fstat(file).st_size, lambda start, length: os.pread(file, length, start))
    weakref.finalize(opened, os.close, file)  # at exit, __del__ would run after os is unloaded
    return opened
