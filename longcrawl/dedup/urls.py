"""Documents of the same URL: the same page, crawled twice, or under parameters that change nothing."""

import hashlib
import re
from typing import Any, ClassVar, Literal
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.dedup.equal import EqualHashes
from longcrawl.stages import column, stage

__all__ = ["TRACKING_PARAMETERS", "Urls", "normalise_url"]

Query = Literal["all", "drop-tracking", "none"]

TRACKING_PARAMETERS = re.compile(
    r"utm_.*|mc_[ce]id|_ga|_gl|_hs(?:enc|mi)|hsctatracking|fbclid|gclid|gclsrc|gbraid|wbraid|dclid|msclkid|yclid|twclid"
    r"|igshid|ttclid|li_fat_id|oly_(?:anon|enc)_id|vero_id|mkt_tok|ref|ref_src|ref_url|referrer|source|feed|cmpid|campaign"
    r"|(?:php|j|asp)?sess(?:ion)?_?id|sid|s_?id|aspsessionid.*|cfid|cftoken|jsessionid|phpsessid|zenid|oscsid|replytocom"
    r"|share|print|amp|sort|order|dir",
    re.IGNORECASE,
)
"""Names of parameters that follow a visitor or a session, or show the same page in another way."""

_SESSION_IN_PATH = re.compile(r";(?:jsessionid|phpsessid|sid)=[^/;]*", re.IGNORECASE)
_UNRESERVED = "-._~!$&'()*+,;=:@/%"
_PORTS = {"http": 80, "https": 443}


def normalise_url(url: str, query: Query = "drop-tracking") -> str:
    """Give the form in which URLs are compared.

    The scheme, ``www.``, a default port, user names, the fragment, session ids in the path and slashes at the end go;
    the host is lowered, characters that need no escape are unescaped. Of the query, parameters whose name is one of
    ``TRACKING_PARAMETERS`` go ("drop-tracking"), all of them ("none") or none ("all"); the rest are sorted.

    >>> normalise_url("HTTPS://www.Example.org:443/a%2Db/;jsessionid=1F?b=2&utm_source=x&a=1#top")
    'example.org/a-b?a=1&b=2'

    """
    stripped = url.strip()
    try:
        split = urlsplit(stripped if "//" in stripped else f"//{stripped}")
        host, port = (split.hostname or "").removeprefix("www."), split.port
    except ValueError:
        return stripped
    if port is not None and port != _PORTS.get(split.scheme, 80):
        host = f"{host}:{port}"
    path = quote(
        unquote(_SESSION_IN_PATH.sub("", split.path), errors="surrogateescape"), _UNRESERVED, errors="surrogateescape"
    )
    kept = sorted(part for part in re.split("[&;]", split.query) if _stays(part, query))
    return host + path.rstrip("/") + ("?" + "&".join(kept) if kept else "")


def _stays(parameter: str, query: Query) -> bool:
    if not parameter or query == "none":
        return False
    return query == "all" or TRACKING_PARAMETERS.fullmatch(parameter.partition("=")[0]) is None


@stage
class Urls(EqualHashes):
    """Keep one of all documents whose URL is the same by :func:`normalise_url`.

    RefinedWeb works on its parts one after the other, and the URLs that earlier parts have kept remove documents from
    later ones: ``index="save"`` in each run, ``against=[the runs before]`` in the next. A document without a URL stays.

    Source: RefinedWeb, section 3.3; its Table 16 shows URLs that differ in parameters only.
    """

    query: Query = "drop-tracking"

    same: ClassVar[str] = "same_url"

    def hashes(self, table: pa.Table) -> pa.Array:
        """Hash the normal form of ``url``."""
        urls = pc.cast(column(table, "url", self.name), pa.string())
        return pa.array([None if not url else self._hash(url) for url in urls.to_pylist()], pa.binary(16))

    def hashed(self) -> dict[str, Any]:
        """Give the settings on which the hashes depend."""
        return {"query": self.query, "code_version": self.code_version}

    def _hash(self, url: str) -> bytes:
        normal = normalise_url(url, self.query).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(normal, digest_size=16).digest()
