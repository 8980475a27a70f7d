"""The sites that documents come from, counted within a bound of memory."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DomainCounts", "url_hosts"]

MOST_DOMAINS = 1_000_000
LARGEST = 100

_HOST = r"^\s*(?:(?:[A-Za-z][A-Za-z0-9+.\-]*:)?//)?(?:[^/?#]*@)?(?P<host>\[[^\]/?#]*\]|[^/?#:]*)"


def url_hosts(urls: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give the host of each URL in lower case, without user, port, ``www.`` or a dot at the end; null where none is.

    >>> url_hosts(pa.chunked_array([["https://me@WWW.Example.org.:80/a?b", "example.org/a", "/a", None]])).to_pylist()
    ['example.org', 'example.org', None, None]
    """
    hosts = pc.struct_field(pc.extract_regex(pc.cast(urls, pa.large_string()), _HOST), "host")
    bare = pc.utf8_rtrim(pc.replace_substring_regex(pc.utf8_lower(pc.utf8_trim_whitespace(hosts)), r"^www\.", ""), ".")
    return pc.if_else(pc.equal(bare, ""), pa.scalar(None, pa.large_string()), bare)


class DomainCounts:
    """Documents by domain. Of more than two million domains the million with most documents are kept, again and again.

    ``error`` is how many documents a domain may have beyond its count; it is 0 as long as nothing was forgotten, and
    ``distinct`` is then the number of all domains, else a lower bound of it.
    """

    def __init__(self, most: int = MOST_DOMAINS) -> None:
        self.counts: dict[str, int] = {}
        self.error = 0
        self.distinct = 0
        self._most = most

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of one file."""
        for domain, count in counts.items():
            self.counts[domain] = self.counts.get(domain, 0) + count
        self.distinct = max(self.distinct, len(self.counts))
        if len(self.counts) > 2 * self._most:
            ranked = self._ranked()
            self.counts = dict(ranked[: self._most])
            self.error += ranked[self._most][1]

    def largest(self, most: int = LARGEST) -> list[tuple[str, int]]:
        """Give the domains with most documents, those with as many by name."""
        return self._ranked()[:most]

    def _ranked(self) -> list[tuple[str, int]]:
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
