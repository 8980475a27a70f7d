"""The sites that documents come from, counted within a bound of memory."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DomainCounts", "url_hosts"]

MOST_DOMAINS = 1_000_000
LARGEST = 100

_BEFORE = "".join(map(chr, range(33))) + "<"
_BEHIND = "".join(map(chr, range(33))) + ">"
# Without // a name of a scheme and a host look alike: a host has a dot, and a port behind its colon if it has one.
_AUTHORITY = (
    r"(?s)^(?:(?:[A-Za-z][A-Za-z0-9+.\-]*:)?[/\\]{2}(?P<marked>[^/?#\\]*)"
    r"|(?P<bare>[^/?#:@]+\.[^/?#:@]*(?:[/?#]|:[0-9][^/?#]*|$)))"
)
_HOST = r"(?s)^(?:[^\\]*@)?(?P<host>\[[^\]\\/?#]+\]?|[^\[:\\/?#][^:\\/?#]*)?"


def url_hosts(urls: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the host of each URL in lower case, without user, port, ``www.`` or a dot at the end; null where none is.

    What a host is, ``UrlFilter`` says; here it stays as it is spelled, without Punycode.

    >>> urls = ["https://me@WWW.Example.org.:80/a?b", "example.org/a", "urn:uuid:1", "/a", None]
    >>> url_hosts(pa.chunked_array([urls])).to_pylist()
    ['example.org', 'example.org', None, None, None]
    """
    trimmed = pc.utf8_rtrim(pc.utf8_ltrim(pc.cast(urls, pa.large_string()), _BEFORE), _BEHIND)
    found = pc.extract_regex(trimmed, _AUTHORITY)
    authorities = pc.binary_join_element_wise(
        pc.struct_field(found, "marked"), pc.struct_field(found, "bare"), pa.scalar("", pa.large_string())
    )
    hosts = pc.struct_field(pc.extract_regex(authorities, _HOST), "host")
    bare = pc.replace_substring_regex(pc.utf8_rtrim(pc.utf8_lower(hosts), "."), r"^www\.", "")
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
        self._forget_rare()

    def merge(self, other: "DomainCounts") -> None:
        """Add what was counted elsewhere: a domain may have been forgotten here and there."""
        self.error += other.error
        self.distinct = max(self.distinct, other.distinct)
        self.add(other.counts)

    def _forget_rare(self) -> None:
        self.distinct = max(self.distinct, len(self.counts))
        if len(self.counts) > 2 * self._most:
            ranked = self._ranked()
            self.counts = dict(ranked[: self._most])
            self.error += ranked[self._most][1]

    def largest(self, most: int = LARGEST) -> list[tuple[str, int]]:
        """Return the domains with most documents, those with as many by name."""
        return self._ranked()[:most]

    def _ranked(self) -> list[tuple[str, int]]:
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
