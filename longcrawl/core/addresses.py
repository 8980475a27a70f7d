"""Normalization of web addresses: hosts as browsers compare them, and paths without dot segments.

Hosts follow the URL standard, like browsers: percent escapes are decoded, UTS 46 is applied without its transitional
mappings, and numeric hosts are parsed as IPv4 addresses. ``faß.de`` becomes ``xn--fa-hia.de``, not ``fass.de``.
"""

import ipaddress
import re
import socket
import string
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

MOST_HOST = 255
"""Maximum number of characters of a host in the DNS. Encoding a longer one would take quadratic time."""

_PLAIN = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z_-][a-z0-9_-]*")
"""Pattern of hosts that are already normalized: plain labels, of which the last is not a number."""
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f#%/:<>?@\[\\\]^|]")
"""Characters that are not allowed in a host after its escapes are decoded."""
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")
_DOT = re.compile(r"(?i:%2e)|\.")
_BEFORE = "".join(map(chr, range(33))) + "<"
_BEHIND = "".join(map(chr, range(33))) + ">"
# Without //, a scheme looks like a host. A host has a dot, and a port after any colon.
_AUTHORITY = (
    r"(?s)^(?:(?:[A-Za-z][A-Za-z0-9+.\-]*:)?[/\\]{2}(?P<marked>[^/?#\\]*)"
    r"|(?P<bare>[^/?#:@]+\.[^/?#:@]*(?:[/?#]|:[0-9][^/?#]*|$)))"
)
_HOST = r"(?s)^(?:[^\\]*@)?(?P<host>\[[^\]\\/?#]+\]?|[^\[:\\/?#][^:\\/?#]*)?"


@lru_cache(1 << 16)
def spell_host(host: str) -> str:
    """Normalize a host, without the brackets of an IPv6 address; an invalid one is only lowercased.

    >>> spell_host("www.Bücher.example."), spell_host("FAß.de"), spell_host("0x7f.1"), spell_host("[2001:DB8:0::1]")
    ('www.xn--bcher-kva.example', 'xn--fa-hia.de', '127.0.0.1', '2001:db8::1')
    """
    lowered = host.lower() if host.isascii() else "".join(each.lower() if each < "\x80" else each for each in host)
    if _PLAIN.fullmatch(lowered) or len(host) > MOST_HOST:
        return lowered.rstrip(".")
    inner = lowered[1:-1] if lowered.startswith("[") and lowered.endswith("]") else lowered
    if ":" in inner:
        return _spell_ipv6(inner)
    spelled = _to_ascii(lowered)
    if spelled is None or _FORBIDDEN.search(spelled):
        return lowered.rstrip(".")
    spelled = spelled.rstrip(".")
    return _spell_ipv4(spelled) or spelled


def plain_escapes(text: str) -> str:
    """Decode the percent escapes of unreserved characters and uppercase the others (RFC 3986, section 6.2.2).

    >>> plain_escapes("/%7Ea%2fb")
    '/~a%2Fb'
    """
    return _ESCAPE.sub(_unescaped, text) if "%" in text else text


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def without_dot_segments(path: str) -> str:
    """Resolve the segments ``.`` and ``..`` of a path, escaped or not (RFC 3986, section 5.2.4).

    >>> without_dot_segments("/a/./b/%2E%2e/c/.."), without_dot_segments("/../a")
    ('/a/', '/a')
    """
    if "/." not in path and "%2" not in path:
        return path
    kept = list[str]()
    segments = path.split("/")
    for place, segment in enumerate(segments):
        plain = _DOT.sub(".", segment) if len(segment) <= len("%2e%2e") else segment
        if plain not in (".", ".."):
            kept.append(segment)
            continue
        # A path cannot go above its root.
        if plain == ".." and len(kept) > 1:
            kept.pop()
        if place == len(segments) - 1:
            kept.append("")
    return "/".join(kept)


def _to_ascii(host: str) -> str | None:
    """Decode escapes, map by UTS 46, and encode labels beyond ASCII in Punycode; None if that fails."""
    import idna

    if "%" in host:
        try:
            host = unquote_to_bytes(host).decode("utf-8")
        except UnicodeDecodeError:
            return None
    if host.isascii():
        return host.lower()
    try:
        # Validity under IDNA 2008 is not checked: browsers accept ☃.example.
        mapped = idna.uts46_remap(host, std3_rules=False)
        return ".".join(map(_ascii_label, mapped.split(".")))
    except (idna.IDNAError, UnicodeError):
        return None


def _ascii_label(label: str) -> str:
    if label.isascii():
        return label
    if label.startswith("xn--"):
        raise UnicodeError("a Punycode label must be ASCII")
    return f"xn--{label.encode('punycode').decode()}"


def _spell_ipv4(host: str) -> str | None:
    """Return a numeric host as a dotted decimal IPv4 address, or None if it is not one."""
    parts = host.split(".")
    if len(host) > MOST_HOST or not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        return socket.inet_ntoa(socket.inet_aton(".".join("0" if part in ("0x", "0X") else part for part in parts)))
    except OSError:
        return None


def _spell_ipv6(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.scope_id is not None:
        return host
    if address.ipv4_mapped is not None:  # in hexadecimal, unlike Python's spelling
        return f"::ffff:{int.from_bytes(address.packed[12:14], 'big'):x}:{int.from_bytes(address.packed[14:], 'big'):x}"
    return address.compressed


def url_hosts(urls: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the host of each URL, lowercased, without user, port, ``www.`` and trailing dot, or null if it has none.

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
