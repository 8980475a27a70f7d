"""URLs of inputs: splitting and joining them, and removing their secrets before they are written or shown.

A URL may have a password before its host (``https://user:password@host``), or signatures and tokens in its query if it
is presigned (``?X-Amz-Signature=…``). Options of a store, such as its endpoint, are encoded in the place of the
password, so that every process and thread can open the URL without further settings.

"""

import base64
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

DATASETS, BUCKETS = "hf://datasets/", "hf://buckets/"
"""URL prefixes of datasets and buckets on the Hub."""
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""Pattern of the name of a Hub repository or bucket: ``owner/name``."""
PUBLIC = frozenset({"versionid", "generation", "revision"})
"""Query parameters that name the version of a file; they are not removed."""
_CACHED = ("blockcache::", "filecache::", "simplecache::", "cached::")
_RUN = re.compile(r"://[^\s\"'<>]*")
_HOST = re.compile(r"://([^/?#\s\"'<>]*@)?")
_QUERY = re.compile(r"\?[\w.~-]{1,100}=")
_SECRET = re.compile(
    r"(?:^|[-_.])(?:sig|signature|token|secret|key|password|passwd|pwd|credentials?|auth|policy|jwt)$"
    r"|accesskeyid|apikey|accesskey|accesstoken|key-pair-id",
    re.IGNORECASE,
)
_OPTIONS = re.compile(r"://options:([\w-]*)@")
_CLOSING = ").,;:]}"
"""Punctuation that belongs to the text around a URL and not to the URL."""


def is_url(path: str) -> bool:
    """Return whether a path must be read through fsspec: a URL other than ``file://``, or a chained cache.

    >>> is_url("s3://bucket/a.jsonl"), is_url("file:///a.jsonl"), is_url("a.jsonl"), is_url("simplecache::/a.zarr")
    (True, False, False, True)
    """
    return ("://" in path and not path.startswith("file://")) or path.startswith(_CACHED)


def without_secrets(url: str) -> str:
    """Remove the password, fragment and query of a URL, except parameters that name a version; keep a path as it is.

    >>> without_secrets("https://me:secret@host/a.jsonl.gz?X-Amz-Signature=abc&versionId=7")
    'https://host/a.jsonl.gz?versionId=7'
    >>> without_secrets("raw/what?.jsonl"), without_secrets("abfs://container@account/a.jsonl")
    ('raw/what?.jsonl', 'abfs://container@account/a.jsonl')
    """
    if not is_url(url):
        return url
    path, query = _split(url)
    values = [value for value in query.partition("#")[0].removeprefix("?").split("&") if value]
    kept = [value for value in values if value.partition("=")[0].lower() in PUBLIC]
    return _anonymous(path) + ("?" + "&".join(kept) if kept else "")


def with_options(url: str, options: Mapping[str, Any]) -> str:
    """Return a URL with options of its file system encoded in it, see :func:`split_options`.

    >>> without_secrets(with_options("s3://bucket/a.jsonl", {"anon": True}))
    's3://bucket/a.jsonl'
    """
    text = base64.urlsafe_b64encode(json.dumps(options, sort_keys=True).encode()).decode().rstrip("=")
    return url.replace("://", f"://options:{text}@", 1)


def split_options(url: str) -> tuple[str, dict[str, Any]]:
    """Split a URL with encoded options, see :func:`with_options`, into the plain URL and the options.

    >>> split_options(with_options("s3://bucket/a.jsonl", {"anon": True}))
    ('s3://bucket/a.jsonl', {'anon': True})
    """
    if (found := _OPTIONS.search(url)) is None:
        return url, {}
    text = found[1] + "=" * (-len(found[1]) % 4)
    return url.replace(found[0], "://", 1), json.loads(base64.urlsafe_b64decode(text))


def plain_urls(settings: Any) -> Any:
    """Remove the secrets from every URL in nested YAML settings, see :func:`without_secrets`."""
    if isinstance(settings, Mapping):
        return {key: plain_urls(value) for key, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain_urls(value) for value in settings]
    return without_secrets(settings) if isinstance(settings, str) else settings


def hide_secrets(text: str) -> str:
    """Remove passwords from the URLs in a text, and each query that contains a secret.

    >>> hide_secrets("403 at 'https://me:secret@host/a?sig=abc', https://host/page?id=7 is fine")
    "403 at 'https://host/a', https://host/page?id=7 is fine"
    """
    return _RUN.sub(lambda run: _hidden(run[0]), text) if "://" in text else text


def path_of(url: str) -> str:
    """Return a URL without its query and fragment, which are not part of a file's name, or a local path as it is.

    >>> path_of("https://host/a.jsonl.gz?token=x#top"), path_of("what?.jsonl")
    ('https://host/a.jsonl.gz', 'what?.jsonl')
    """
    return _split(url)[0] if is_url(url) else url


def join(folder: str, name: str) -> str:
    """Join a directory and a file name; the query of the directory's URL is moved behind the name.

    >>> join("https://host/folder?sig=abc", "a.jsonl")
    'https://host/folder/a.jsonl?sig=abc'
    """
    path, query = _split(folder) if is_url(folder) else (folder, "")
    return posixpath.join(path, name) + query


def has_pattern(path: str) -> bool:
    """Return whether a path is a glob; in a web address, ``?`` begins the query and the host may have brackets.

    >>> has_pattern("raw/?.jsonl"), has_pattern("https://host/a.jsonl?sig=*"), has_pattern("http://[::1]/*.jsonl")
    (True, False, True)
    """
    if not _is_web(path):
        return any(sign in path for sign in "*?[")
    _, _, below = _split(path)[0].partition("://")
    return any(sign in below.partition("/")[2] for sign in "*[")


def _is_web(url: str) -> bool:
    return "http://" in url or "https://" in url


def _split(url: str) -> tuple[str, str]:
    """Split a URL before its query or fragment."""
    if _is_web(url):
        cut = min((place for sign in "?#" if (place := url.find(sign)) >= 0), default=len(url))
    else:
        query = _QUERY.search(url)
        cut = len(url) if query is None else query.start()
    return url[:cut], url[cut:]


def _anonymous(path: str) -> str:
    """Drop user and password. A user without a password is kept outside of the web: it may be a container's name."""
    web = _is_web(path)
    return _HOST.sub(lambda host: "://" if web or ":" in (host[1] or "") else host[0], _OPTIONS.sub("://", path))


def _hidden(run: str) -> str:
    """Hide the secrets in the part of a URL after its scheme."""
    path, query = _split("http" + run)
    names = [value.partition("=")[0] for value in re.split("[?&#]", query)]
    if any(_SECRET.search(name) for name in names):
        query = query[len(query.rstrip(_CLOSING)) :]
    return (_anonymous(path) + query).removeprefix("http")
