"""Hosts and paths of addresses: numbers as browsers read them, dots as in RFC 3986, hosts as Python finds them."""

import ipaddress
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longcrawl.core.addresses import plain_escapes, spell_host, url_hosts, without_dot_segments
from longcrawl.text.refinedweb.url_filter import url_hosts as hosts_of_filter


def naive_path(path: str) -> str:
    """Remove dot segments as RFC 3986, section 5.2.4, writes it down."""
    left, kept = path, ""
    while left:
        if left.startswith("/./") or left == "/.":
            left = "/" + left[3:]
        elif left.startswith("/../") or left == "/..":
            left, kept = "/" + left[4:], kept.rpartition("/")[0]
        else:
            end = left.find("/", 1) if "/" in left[1:] else len(left)
            left, kept = left[end:], kept + left[:end]
    return kept


@given(st.lists(st.sampled_from([".", "..", "a", "", "...", "%2e", "%2E.", ".%2e", "%2f", ".a"]), max_size=7))
def test_dot_segments_are_removed_as_in_the_rfc(segments):
    path = "".join(f"/{segment}" for segment in segments)
    assert plain_escapes(without_dot_segments(path)) == naive_path(plain_escapes(path))


NUMBERS = {
    "0": 0,
    "1": 1,
    "255": 255,
    "256": 256,
    "0x7f": 127,
    "0X": 0,
    "010": 8,
    "65535": 65535,
    "08": None,
    "a": None,
}


@given(st.lists(st.sampled_from([*NUMBERS]), min_size=1, max_size=5))
def test_numeric_hosts_are_addresses_of_four_bytes(parts):
    host, numbers = ".".join(parts), [NUMBERS[part] for part in parts]
    *most, last = numbers
    if None in numbers or len(numbers) > 4 or max([0, *most]) > 255 or last >= 256 ** (4 - len(most)):
        assert spell_host(host) == host.lower()
        return
    whole = sum(number << 8 * (3 - place) for place, number in enumerate(most)) + last
    assert spell_host(host) == str(ipaddress.IPv4Address(whole))


@given(st.lists(st.sampled_from([0, 0, 1, 0xAB, 0xFFFF]), min_size=8, max_size=8))
def test_ipv6_hosts_are_compressed(groups):
    spelled = spell_host("[" + ":".join(f"{group:04X}" for group in groups) + "]")
    assert [int(each, 16) for each in ipaddress.IPv6Address(spelled).exploded.split(":")] == groups
    assert spelled == spell_host(spelled) == str(ipaddress.IPv6Address(spelled))


# -------------------- hosts


HOSTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,8}[A-Za-z0-9]", fullmatch=True)


@given(
    st.sampled_from(["http://", "HTTPS://", "//", "a+b.c://"]),
    st.sampled_from(["", "me@", "me:secret@"]),
    st.sampled_from(["", "www.", "WWW."]),
    HOSTS,
    st.sampled_from(["", ":80", ":"]),
    st.from_regex(r"([/?#][!-~]{0,6})?", fullmatch=True),
)
def test_hosts_are_those_that_python_finds(scheme, user, www, host, port, rest):
    url = scheme + user + www + host + port + rest
    naive = (urlsplit(url).hostname or "").removeprefix("www.")
    assert url_hosts(pa.chunked_array([[url]])).to_pylist() == [naive]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[2001:DB8::1]:80/a", "[2001:db8::1]"),
        ("http://example.org./", "example.org"),
        ("  http://example.org/", "example.org"),
        ("example.org/a", "example.org"),
        ("https://www.com/", "com"),
        ("http://münchen.de/ß", "münchen.de"),
        ("http:///a", None),
        ("", None),
        ("urn:uuid:1", None),
        ("https:/x.org", None),
        ("hard::a b", None),
        ("mailto:a@example.org", None),
        ("no url at all", None),
        ("localhost:80", None),
        ("example.org:80/a", "example.org"),
        ("example.org:port/a", None),
        ("<http://example.org>", "example.org"),
        ("http:\\\\example.org\\a.b", "example.org"),
        ("www.example.org", "example.org"),
    ],
)
def test_odd_hosts(url, host):
    assert url_hosts(pa.chunked_array([pa.array([url], pa.string())])).to_pylist() == [host]


def as_in_filter(host: str | None, filtered: str) -> str:
    bracketed = host is not None and host.startswith("[")
    found = host[1:].removesuffix("]").rstrip(".").removeprefix("www.") if bracketed else host or ""
    # The filter reads a number as an address of IPv4, but not one behind "www.".
    return spell_host(found) if found.isdigit() and not filtered.startswith("www.") else found


PIECES = [*"/\\.a:8@?# <>", "//[B.c]", "//[a:8", "http:", "urn:", "1x:", "//", "www.", "B.c"]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), max_size=5))
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@example(
    [
        "8a.",
        "www.8",
        "a.b\\c",
        "a\\b.c",
        "//[B.c]:8",
        "//www.",
        "\n//a\nb/",
        "[\\.",
        "8.",
        "//x@[",
        "a.b:8@c",
        "a.b\\c:8@d",
    ]
)
def test_a_host_is_what_the_url_filter_takes_for_one(urls):
    filtered = hosts_of_filter(pa.array(urls, pa.large_string())).to_pylist()
    found = url_hosts(pa.chunked_array([pa.array(urls, pa.string())])).to_pylist()
    assert list(map(as_in_filter, found, filtered)) == [host.removeprefix("www.") for host in filtered]
