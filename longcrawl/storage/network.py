"""Questions to servers: what an answer means, and how long to ask again.

===================================== ===========================================================
answer                                what it means
===================================== ===========================================================
404, 410                              the file is missing; ``on_bad_files`` applies
404 of a bucket                       ``SourceError`` at once
412 while a file is read              it was replaced: ``NotYetError`` at once
408, 425, 429, 5xx, timeouts,         not yet: asked again for five minutes, then ``NotYetError``
cut answers, no connection, no DNS
401, 403, missing credentials         ``NotYetError`` at once, with what to do
anything else                         ``NotYetError`` after three attempts
===================================== ===========================================================

So what a server says for a while never counts as damage of a file.
"""

import email.utils
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from longcrawl.errors import DISK_FULL, LongCrawlError, NotYetError, SourceError, reason_of
from longcrawl.urls import BUCKETS, hide_secrets, without_secrets

logger = logging.getLogger("longcrawl")

T = TypeVar("T")
Kind = Literal["missing", "no_bucket", "later", "forbidden", "replaced", "unknown"]

RETRY_SECONDS = float(os.environ.get("LONGCRAWL_RETRY_SECONDS", "300"))
"""How long a server is asked again for one file; the environment variable of that name replaces it."""

PAUSE = 0.5
"""Seconds before the second attempt; twice as many before each further one, or what ``Retry-After`` asks for."""

LONGEST_PAUSE = 60.0

ATTEMPTS = 3
"""How often a server is asked whose answer is of no known kind."""

MISSING = (404, 410)
LATER = (408, 425, 429)
FORBIDDEN = (401, 403, 407)
REPLACED = 412
NO_BUCKET = {"NoSuchBucket", "BucketNotFoundError"}
"""The code of S3's answer, and the class of the Hub's error."""

_CONNECTIONS = {"ClientError", "RequestException", "HTTPError", "TransportError", "HTTPClientError", "ProxyError"}
"""Root classes of the connection errors of aiohttp, requests, httpx and botocore, which need not be installed."""

_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError"}
_SIGN_IN = {
    "s3": " (AWS_PROFILE or AWS_ACCESS_KEY_ID; for public data, storage_options: {anon: true})",
    "gs": " (GOOGLE_APPLICATION_CREDENTIALS; for public data, storage_options: {token: anon})",
    "hf": " (hf auth login, or HF_TOKEN)",
}
_FINAL = {"OfflineModeIsEnabled", "InvalidURL", "InvalidUrlClientError", "SSLCertVerificationError"}

_silent: set[str] = set()
"""Hosts that did not answer until the patience of one file was over: other files ask them once, until one answers."""


class CutAnswerError(ConnectionError):
    """A server sent fewer bytes than it announced."""


@dataclass(frozen=True)
class Verdict:
    """What the failure of a request means."""

    kind: Kind
    retry_after: float = 0.0
    """Seconds that the server asks to wait."""


def ask(url: str, request: Callable[[], T], doing: str = "fetched", patience: float | None = None) -> T:
    """Return what a server answers to a request for a URL, asking again where it does not answer now.

    Args:
        url: what the request is about.
        request: asks the server.
        doing: what cannot be done with the URL where it fails.
        patience: seconds for which it is asked again; ``RETRY_SECONDS`` where it is None.

    Raises:
        FileNotFoundError: the server says that there is no such file.
        NotYetError: it gives no answer in time, or not to these credentials; or the file is another one meanwhile.
        SourceError: it has no such bucket.
    """
    host = without_secrets(url).partition("://")[2].partition("/")[0]
    started, attempt = time.monotonic(), 0
    while True:
        try:
            answer = request()
        except LongCrawlError:  # of the file, not of its server
            raise
        except Exception as error:  # every fsspec file system has errors of its own
            if isinstance(error, OSError) and error.errno in DISK_FULL:  # of this machine
                raise
            failed: Exception = error
        else:
            _silent.discard(host)
            return answer
        attempt += 1
        verdict = verdict_of(failed)
        if verdict.kind == "missing":
            raise FileNotFoundError(without_secrets(url)) from _shown(failed)
        if verdict.kind == "no_bucket":
            raise SourceError(
                f"{without_secrets(url)}: the server has no bucket {_bucket_of(url)!r}. Check its name, or the endpoint"
            ) from _shown(failed)
        pause = max(min(PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE), verdict.retry_after)
        waited = time.monotonic() - started
        if verdict.kind in ("forbidden", "replaced") or not _may_ask_again(
            verdict, host, attempt, waited + pause, RETRY_SECONDS if patience is None else patience
        ):
            if verdict.kind == "later":
                _silent.add(host)
            raise NotYetError(_sentence(url, failed, verdict, attempt, waited, doing)) from _shown(failed)
        logger.warning(
            "%s: %s; asking again in %.3g s", without_secrets(url), hide_secrets(reason_of(_cause_of(failed))), pause
        )
        time.sleep(pause)


def _bucket_of(url: str) -> str:
    """Return the name of a bucket; on the Hub it has its owner's before it."""
    plain = without_secrets(url)
    if plain.startswith(BUCKETS):
        return "/".join(plain.removeprefix(BUCKETS).split("/")[:2])
    return plain.partition("://")[2].partition("/")[0]


def verdict_of(failed: BaseException) -> Verdict:
    """Return what a failure means, by the status that it or its cause carries, else by its class."""
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
    return Verdict(_of_class(chain))


def _of_status(status: int) -> Kind:
    if status in MISSING:
        return "missing"
    if status == REPLACED:
        return "replaced"
    if status in FORBIDDEN:
        return "forbidden"
    return "later" if status in LATER or status >= 500 else "unknown"


def _of_class(chain: list[BaseException]) -> Kind:
    known: tuple[tuple[type[OSError], Kind], ...] = (
        (FileNotFoundError, "missing"),
        (NotADirectoryError, "missing"),
        (IsADirectoryError, "missing"),
        (PermissionError, "forbidden"),
        (OSError, "later"),
    )
    return next((kind for error in reversed(chain) for cls, kind in known if isinstance(error, cls)), "unknown")


def _may_ask_again(verdict: Verdict, host: str, attempt: int, seconds: float, patience: float) -> bool:
    if verdict.kind == "unknown":
        return attempt < ATTEMPTS
    return host not in _silent and seconds <= patience


def _sentence(url: str, failed: Exception, verdict: Verdict, attempt: int, waited: float, doing: str) -> str:
    reason = hide_secrets(reason_of(_cause_of(failed)))
    if verdict.kind == "forbidden":
        sign_in = _SIGN_IN.get(url.partition("://")[0], ", or sign the URL again")
        return (
            f"{without_secrets(url)}: the server does not allow it ({reason}). Check your credentials{sign_in}, and "
            "type the same command again"
        )
    if verdict.kind == "replaced":
        return f"{without_secrets(url)} was replaced while it was read. Type the same command again to read it again"
    asked = "once" if attempt == 1 else f"{attempt} times in {waited:.0f} s"
    again = (
        f"{'Check the endpoint, or type' if 'EndpointConnection' in reason else 'Type'} the same command again later"
    )
    return f"{without_secrets(url)}: cannot be {doing} now ({reason}), asked {asked}. {again}"


def _cause_of(failed: BaseException) -> BaseException:
    """Return the error of a chain that has the server's status, else the first cause of all."""
    chain = list(_causes(failed))
    return next((error for error in chain if _status(error) is not None), chain[-1])


def _causes(failed: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from; fsspec reports every failure of ``info`` as a missing file."""
    seen: set[int] = set()
    error: BaseException | None = failed
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error of aiohttp, requests, httpx, huggingface_hub, botocore or gcsfs."""
    if any(kind.__name__ == "HttpProcessingError" for kind in type(error).__mro__):
        return None  # aiohttp's own, of an answer that it could not read
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        stored = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return stored if isinstance(stored, int) else None
    for holder, name in ((error, "status"), (answer, "status_code"), (error, "code")):
        if isinstance(status := getattr(holder, name, None), int) and 100 <= status < 600:
            return status
    return None


def _code(error: BaseException) -> str | None:
    """Return the code of an error of an S3 server, such as NoSuchKey."""
    answer = getattr(error, "response", None)
    return answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None


def _retry_after(error: BaseException) -> float:
    """Return the seconds that ``Retry-After`` asks for, as a number or a date."""
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None) or {}
    asked = str(headers.get("Retry-After", "")).strip()
    if asked.isdecimal() and len(asked) < 10:
        return float(asked)
    try:
        return max(email.utils.parsedate_to_datetime(asked).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _shown(failed: Exception) -> Exception | None:
    """Return an error that may be shown as a cause, None where its message has a secret."""
    messages = [str(error) for error in _causes(failed)]
    return failed if all(hide_secrets(message) == message for message in messages) else None
