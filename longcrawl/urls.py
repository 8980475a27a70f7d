"""URLs of inputs: local or remote, the path in them, and what of them may be written and shown.

Passwords stand before the host (``https://user:password@host``), signatures and tokens in the query of presigned URLs
(``?X-Amz-Signature=…``). They serve reading only: nothing that is written or shown has them. Options of a store, such
as its endpoint, stand where a password does, so that a URL alone says how it is reached, in every process and thread.
"""

import base64
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

DATASETS, BUCKETS = "hf://datasets/", "hf://buckets/"
"""What URLs of datasets and buckets on the Hub begin with."""
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""The name of one."""

PUBLIC = frozenset({"versionid", "generation", "revision"})
"""Parameters of a query that name the version of a file; they stay."""

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
"""What ends a sentence or a bracket around a URL rather than the URL."""


def is_url(path: str) -> bool:
    """Return whether fsspec must read a path: a URL, or one behind a cache; ``file://`` is local.

    >>> is_url("s3://bucket/a.jsonl"), is_url("file:///a.jsonl"), is_url("a.jsonl"), is_url("simplecache::/a.zarr")
    (True, False, False, True)
    """
    return ("://" in path and not path.startswith("file://")) or path.startswith(_CACHED)


def without_secrets(url: str) -> str:
    """Return a URL without password, query and fragment; of the query, what names a version stays. A path stays.

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
    """Return a URL that carries options of its file system; :func:`split_options` takes them out again.

    >>> without_secrets(with_options("s3://bucket/a.jsonl", {"anon": True}))
    's3://bucket/a.jsonl'
    """
    text = base64.urlsafe_b64encode(json.dumps(options, sort_keys=True).encode()).decode().rstrip("=")
    return url.replace("://", f"://options:{text}@", 1)


def split_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return a URL without the options that it carries, and these.

    >>> split_options(with_options("s3://bucket/a.jsonl", {"anon": True}))
    ('s3://bucket/a.jsonl', {'anon': True})
    """
    found = _OPTIONS.search(url)
    if found is None:
        return url, {}
    text = found[1] + "=" * (-len(found[1]) % 4)
    return url.replace(found[0], "://", 1), json.loads(base64.urlsafe_b64decode(text))


def plain_urls(settings: Any) -> Any:
    """Return settings, nested as YAML has them, with every URL as :func:`without_secrets` returns it."""
    if isinstance(settings, str):
        return without_secrets(settings)
    if isinstance(settings, Mapping):
        return {key: plain_urls(value) for key, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain_urls(value) for value in settings]
    return settings


def hide_secrets(text: str) -> str:
    """Return a text without the passwords in its URLs, and without those of their queries that hold a secret.

    >>> hide_secrets("403 at 'https://me:secret@host/a?sig=abc', https://host/page?id=7 is fine")
    "403 at 'https://host/a', https://host/page?id=7 is fine"
    """
    return _RUN.sub(lambda run: _hidden(run[0]), text) if "://" in text else text


def path_of(url: str) -> str:
    """Return a URL without its query and fragment, which are not part of a file's name; a path stays.

    >>> path_of("https://host/a.jsonl.gz?token=x#top"), path_of("what?.jsonl")
    ('https://host/a.jsonl.gz', 'what?.jsonl')
    """
    return _split(url)[0] if is_url(url) else url


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder; the query of a folder's URL is that of its files.

    >>> join("https://host/folder?sig=abc", "a.jsonl")
    'https://host/folder/a.jsonl?sig=abc'
    """
    path, query = _split(folder) if is_url(folder) else (folder, "")
    return posixpath.join(path, name) + query


def has_pattern(path: str) -> bool:
    """Return whether a path is a glob; ``?`` begins the query of a web address, and brackets may stand in its host.

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
    """Return what stands before the query or the fragment, and these."""
    if _is_web(url):
        cut = min((place for sign in "?#" if (place := url.find(sign)) >= 0), default=len(url))
    else:
        query = _QUERY.search(url)
        cut = len(url) if query is None else query.start()
    return url[:cut], url[cut:]


def _anonymous(path: str) -> str:
    """Drop what stands before a host; a name without a password may be a container, but not in a web address."""
    web = _is_web(path)
    return _HOST.sub(lambda host: "://" if web or ":" in (host[1] or "") else host[0], _OPTIONS.sub("://", path))


def _hidden(run: str) -> str:
    """Hide the secrets of what follows the scheme of a URL in a text."""
    path, query = _split("http" + run)
    names = [value.partition("=")[0] for value in re.split("[?&#]", query)]
    if any(_SECRET.search(name) for name in names):
        query = query[len(query.rstrip(_CLOSING)) :]
    return (_anonymous(path) + query).removeprefix("http")
