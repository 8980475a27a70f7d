"""The URL filter against plain Python, the files that it reads, and the report of what it drops."""

import bz2
import gzip
import ipaddress
import lzma
import random
import re
import unicodedata
import warnings
from pathlib import Path
from urllib.parse import unquote_to_bytes

import datasets
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.refinedweb import url_lists
from longcrawl.text.refinedweb.url_filter import match_lists, match_words, read_url_words, url_hosts
from longcrawl.text.refinedweb.url_lists import (
    BlockLists,
    Lists,
    find_categories,
    make_set,
    read_domains,
)

NONE = make_set([])


def urls_of(*urls: str | None) -> pa.Array:
    return pa.array(urls, pa.large_string())


def rule_of(stage: lc.text.UrlFilter | lc.text.OptOut, url: str | None) -> str | None:
    return stage.judge(pa.table({"url": urls_of(url)}))["rule"][0].as_py()


def write_lists(folder: Path, **categories: str) -> str:
    """Write ``domains`` of some categories."""
    for category, lines in categories.items():
        (folder / category).mkdir(parents=True, exist_ok=True)
        (folder / category / "domains").write_text(lines, "utf-8")
    return str(folder)


def blocking(folder: Path, domains: str, **fields) -> lc.text.UrlFilter:
    """Return a filter of one list and nothing else."""
    lists = write_lists(folder, adult=domains)
    nothing_else = {"words": None, "curated_sources": None}
    return lc.text.UrlFilter(lists=lists, categories=("adult",), **(nothing_else | fields))


# Hosts


def naive_split(url: str) -> tuple[str, str]:
    """Return the host as it is spelled, and all behind the scheme."""
    url = re.sub(r"[\x00-\x20>]+$", "", re.sub(r"^[\x00-\x20<]+", "", url))
    if found := re.match(r"(?:[a-z][a-z0-9+.-]*:)?[/\\]{2}", url, re.IGNORECASE):
        rest = url[found.end() :]
    elif re.match(r"[^/?#:@]+\.[^/?#:@]*(?:[/?#]|:\d|$)", url):
        rest = url
    else:
        return "", url
    authority = re.match(r"[^/?#\\]*", rest)[0].rpartition("@")[2]
    return re.split(r"\]", authority[1:])[0] if authority.startswith("[") else authority.split(":")[0], rest


def naive_host(url: str) -> str:
    escaped = unquote_to_bytes(naive_split(url)[0]).decode("utf-8", "replace")
    return naive_address(re.sub("[A-Z]", lambda letter: letter[0].lower(), escaped).rstrip("."))


def naive_address(host: str) -> str:
    """Return the IPv4 or IPv6 address that a host is, in one spelling; other hosts as they are."""
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            return host
    parts = host.split(".")
    if len(parts) > 4 or not all(re.fullmatch("0x[0-9a-f]*|0[0-7]*|[1-9][0-9]*", part) for part in parts):
        return host
    *most, last = (
        int(part[2:] or "0", 16) if part[:2] == "0x" else int(part, 8 if part[0] == "0" else 10) for part in parts
    )
    if max([0, *most]) > 255 or last >= 256 ** (4 - len(most)):
        return host
    return ".".join(map(str, [*most, *last.to_bytes(4 - len(most), "big")]))


LABELS = st.sampled_from(
    ["a", "B", "ab", "www", "10", "1", "com", "xXx", "%61", "%4", "", "a_b", "0X1f", "017", "256", "%31", "0x", "08"]
)
HOSTS = st.lists(LABELS, max_size=4).map(".".join)
URLS = st.builds(
    "{}{}{}{}{}{}{}".format,
    st.sampled_from(["", " ", "<", "\t <"]),
    st.sampled_from(["http://", "HTTPS://", "//", "", "urn:", "a+b.c-1:\\\\", "1x://", "file:///", ":", "http:/"]),
    st.sampled_from(["", "", "user@", "u:p@x@", "["]),
    HOSTS,
    st.sampled_from(["", "", ":80", ":", ":x", "]:8"]),
    st.sampled_from(["", "/", "/a/B?c=d#e", "?q=//x.y/@z", "#@a.b", "\\x", "/a%2fb;c&d"]),
    st.sampled_from(["", " ", "> ", "\n"]),
)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.lists(URLS | st.text("ab.:/@#?[]%41 <>\\", max_size=14), max_size=6))
def test_hosts_equal_those_of_plain_python(urls):
    assert url_hosts(urls_of(*urls)).to_pylist() == [naive_host(url) for url in urls]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://example.org", "example.org"),
        ("HTTPS://User:pw@WWW.Example.ORG.:443/a@b", "www.example.org"),
        ("example.org/page", "example.org"),
        ("example.org:8080/page", "example.org"),
        ("//example.org", "example.org"),
        ("<http://example.org/>", "example.org"),
        ("http://[2001:DB8::1]:80/", "2001:db8::1"),
        ("http://ex%61mple.org/", "example.org"),
        ("http://bücher.example/ü", "xn--bcher-kva.example"),
        ("http://b%C3%BCcher.example/", "xn--bcher-kva.example"),
        ("http://BÜCHER。example/", "xn--bcher-kva.example"),
        ("http://XN--bcher-KVA.example/", "xn--bcher-kva.example"),
        ("http://xn--\u4e2d.example/", "xn--\u4e2d.example"),
        ("http://FAß.example/", "xn--fa-hia.example"),
        ("http://ΟΔΟΣ.example/", "xn--pxavbq.example"),
        ("http://οδος.example/", "xn--pxavbm.example"),
        ("http://a\u200cb.example/", "xn--ab-j1t.example"),
        ("http://so\u00adft.example/", "soft.example"),
        ("http://\u2603.example/", "xn--n3h.example"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7F.1:80/", "127.0.0.1"),
        ("http://017700000001./", "127.0.0.1"),
        ("http://\uff11\uff12\uff17\u30021/", "127.0.0.1"),
        ("http://1.2.3.400/", "1.2.3.400"),
        ("http://[2001:db8:0:0:1:0:0:1]/", "2001:db8::1:0:0:1"),
        ("http://[::FFFF:1.2.3.4]/", "::ffff:102:304"),
        ("mailto:a@example.org", ""),
        ("urn:uuid:1", ""),
        ("filedesc:x.arc", ""),
        ("file:///etc/passwd", ""),
        ("no url at all", ""),
        ("http://", ""),
        ("http://...", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_hosts(url, host):
    assert url_hosts(urls_of(url)).to_pylist() == [host]


# Lists of domains


def naive_match(host: str, entries: set[str]) -> str:
    """Return the longest listed end of a host."""
    labels = host.split(".")
    numeric = labels[-1].isdigit() or ":" in host
    for first in range(1 if numeric else len(labels)):
        parent = ".".join(labels[first:])
        name = parent if "." in parent or parent == host else f".{parent}"
        if name in entries:
            return parent
    return ""


ENTRIES = st.sets(st.sampled_from([f"{a}.{b}" for a in ("a", "b", "c", "1") for b in ("a", "b", "b.c", "a.1")]) |
                  st.sampled_from(["a", "b", ".a", ".b", ".1", "1.1.1.1", "1.1"]), max_size=6)  # fmt: skip


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(st.lists(st.sampled_from("abc1"), min_size=1, max_size=4).map(".".join), ENTRIES, ENTRIES, ENTRIES)
def test_domains_match_as_in_plain_python(host, blocked, allowed, curated):
    lists = Lists(*(read_domains(None, *entries) for entries in (blocked, allowed, curated)), NONE)
    found = match_lists(urls_of(f"http://{host}/x", None), lists)
    spelled = naive_address(host)
    naive = [len(naive_match(spelled, set(map(naive_address, entries)))) for entries in (blocked, allowed, curated)]
    assert found[:, :-1].tolist() == [[len(spelled), *naive, 0], [0] * 5]


def test_thousands_of_hosts_match_as_in_plain_python():
    chance = random.Random(0)
    hosts = [".".join(chance.choices("abcd", k=chance.randint(1, 9))) for _ in range(3000)]
    entries = {".".join(chance.choices("abcd", k=chance.randint(2, 5))) for _ in range(60)}
    found = match_lists(
        urls_of(*(f"//{host}" for host in hosts)), Lists(read_domains(None, *entries), NONE, NONE, NONE)
    )
    assert found[:, 1].tolist() == [len(naive_match(host, entries)) for host in hosts]


def test_a_host_of_more_labels_than_there_can_be_is_matched_by_its_end(tmp_path):
    stage = blocking(tmp_path, "bad.example\n")
    assert rule_of(stage, f"http://{'a.' * 5000}bad.example/") == "blocked_domain"
    assert rule_of(stage, f"http://{'.' * 5000}bad.example/") == "blocked_domain"
    assert rule_of(stage, f"http://bad.example{'.a' * 5000}/") is None


def test_parent_domains_match_and_siblings_do_not(tmp_path):
    stage = blocking(tmp_path, "bad.example\n")
    hit = ["http://bad.example/", "http://a.b.bad.example", "HTTP://BAD.EXAMPLE:80/", "http://bad.example./"]
    missed = ["http://verybad.example/", "http://example/bad.example", "http://bad.example.org", "http://x/bad.example"]
    assert [rule_of(stage, url) for url in hit] == ["blocked_domain"] * 4
    assert [rule_of(stage, url) for url in missed] == [None] * 4


def test_a_file_of_domains_is_read_with_all_its_oddities(tmp_path):
    lines = "# a comment\n\nUPPER.example  # why\n*.star.example\r\n.dot.example\n end.example. \nbücher.example\n.\n"
    stage = blocking(tmp_path, lines + "localhost\n.xxx\n10.0.0.1\n*\nlast.example")
    for host in ("upper", "a.star", "star", "dot", "a.dot", "end", "xn--bcher-kva", "BÜCHER", "last"):
        assert rule_of(stage, f"http://{host}.example/") == "blocked_domain", host
    assert [rule_of(stage, f"http://{host}/") for host in ("localhost", "any.xxx", "10.0.0.1")] == [
        "blocked_domain"
    ] * 3
    assert [rule_of(stage, f"http://{host}/") for host in ("a.localhost", "xxx", "9.10.0.0.1", "a.comment")] == [
        None
    ] * 4


HOSTS_FILE = """# made up
127.0.0.1 localhost
::1 ip6-localhost ip6-loopback
0.0.0.0 0.0.0.0
0.0.0.0 ads.example
127.0.0.1\ttrack.example  shop.faß.example # two
:: v6.example
"""
ADBLOCK = """[Adblock Plus 2.0]
! Title: made up, with a comma
||ads.example^
||track.example^$third-party,script
||*.v6.example^$important
|https://shop.faß.example|
@@||good.ads.example^$document
||other.example/banner
||gone.example^
||gone.example^$badfilter
other.example##.banner, .advert
/banner[0-9]+/
"""
ZONE = """$TTL 300
@ IN SOA localhost. root.localhost. (1 2 3 4 5)
; a comment
ads.example CNAME .
*.ads.example 60 IN CNAME .
track.example IN A 0.0.0.0
good.ads.example CNAME rpz-passthru.
v6.example.  CNAME .
shop.xn--fa-hia.example CNAME *.
"""
FORMS = {
    "hosts": HOSTS_FILE,
    "windows": "\ufeff" + HOSTS_FILE.replace("\n", "\r\n"),
    "adblock": ADBLOCK,
    "zone": ZONE,
    "dnsmasq": "address=/ads.example/track.example/0.0.0.0\nserver=/v6.example/\nlocal=/shop.faß.example/\n",
    "unbound": "".join(
        f'local-zone: "{name}" always_nxdomain\n'
        for name in ("ads.example", "track.example", "v6.example", "shop.xn--fa-hia.example")
    ),
    "wildcards": "*.ads.example\n.track.example\nv6.example.\n*.shop.FAß.example\n",
    "urls": "http://ads.example/\nhttps://track.example\nHTTP://u@v6.example:80/\n//shop.faß.example\n",
    "csv": 'rank;domain;seen\n1;ads.example;"a; b"\n2;track.example;x\n3;v6.example;\n4;"shop.faß.example";y\n',
    "bare csv": "ads.example,1.5\ntrack.example,2.5\nv6.example,3\nshop.faß.example,4\n",
    "tabs": "1\tads.example\n2\ttrack.example\n3\tv6.example\n4\tshop.faß.example\n",
    "json lines": '[\n"ads.example",\n"track.example",\n"v6.example",\n"shop.faß.example"\n]\n',
}


PACKED = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.compress,
    "utf-16": lambda data: data.decode().encode("utf-16"),
}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("form", "packed"), [*((form, "plain") for form in FORMS), *(("csv", packed) for packed in [*PACKED][1:])]
)
def test_a_list_in_another_form_blocks_what_it_names(tmp_path, form, packed):
    stage = blocking(tmp_path, "")
    (tmp_path / "adult" / "domains").write_bytes(PACKED[packed](FORMS[form].encode()))
    if form != "json lines":  # its brackets are no hosts
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stage.prepare()
    hit = ["ads.example", "a.track.example", "v6.example", "SHOP.faß.example"]
    missed = ["example", "shop.fass.example", "other.example", "gone.example", "localhost", "0.0.0.1"]
    assert [rule_of(stage, f"http://{host}/") for host in [*hit, *missed]] == ["blocked_domain"] * 4 + [None] * 6
    allowed = form in ("adblock", "zone")
    assert rule_of(stage, "http://good.ads.example/") == (None if allowed else "blocked_domain")
    assert rule_of(stage, "http://other.example/banner/1") == ("blocked_url" if form == "adblock" else None)
    assert stage.explain("http://x.ads.example")[0] == ("blocked_domain", "ads.example", "ads.example", ("adult",))
    if form != "adblock":  # which has an address
        lists = {"curated_sources": str(tmp_path / "adult" / "domains"), "words": None}
        assert rule_of(lc.text.UrlFilter(**lists), "http://x.ads.example/") == "curated_source"
        opted = lc.text.OptOut((str(tmp_path / "adult" / "domains"),))
        if form in ("zone", "json lines"):
            with pytest.raises(StageError, match="is not a domain or address"):
                opted.prepare()
        else:
            assert rule_of(opted, "http://x.ads.example/") == "opted_out_domain"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# words\nslots\ncasino\npoker\n", "line 2: 'slots' is not a host; 3 of 3 lines are not"),
        (
            "a.example\nIt is a page.\nIt has words.\nMany of them\n",
            "line 2: 'It is a page.' is not a host; 3 of 4 lines are not",
        ),
        ("<html>\n<body>Not found</body>\n", "line 1: '<html>' is not a host"),
        ("other.example##.banner\n", "line 1: 'other.example##.banner' has no host, nor has any other line"),
        ("a.example,b.example\nc.example,d.example\n", "hosts in the columns 1, 2: keep one of them"),
        ("1\n2\n3\n", "line 1: '1' is not a host"),
    ],
)
def test_a_list_of_other_things_is_an_error_that_shows_a_line(tmp_path, content, message):
    with pytest.raises(StageError, match=message):
        blocking(tmp_path, content).prepare()


def test_a_few_lines_that_name_no_host_are_warned_about(tmp_path):
    stage = blocking(tmp_path, "a.example\nb.example\nnot a host\n")
    with pytest.warns(UserWarning, match="domains, line 3: 'not a host' is not a host; lines skipped: 1"):
        assert rule_of(stage, "http://b.example/") == "blocked_domain"


def test_lines_are_counted_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(url_lists, "BLOCK", 10)
    with pytest.raises(StageError, match="line 4: '<p>' is not a host; 3 of 5 lines are not"):
        blocking(tmp_path, "a.example\nb.example\n\n<p>\n<p>\n<p>\n").prepare()


def test_no_line_of_a_label_removes_a_top_level_domain(tmp_path):
    assert rule_of(blocking(tmp_path, "com\n"), "http://example.com/") is None


def test_plain_and_packed_lists_of_several_categories_and_links(tmp_path):
    folder = write_lists(tmp_path / "ut1", adult="a.example\n", gambling="g.example\n")
    (tmp_path / "ut1" / "dating").mkdir()
    (tmp_path / "ut1" / "dating" / "domains.gz").write_bytes(gzip.compress(b"d.example\na.example\n"))
    (tmp_path / "ut1" / "porn").symlink_to("adult")
    stage = lc.text.UrlFilter(lists=folder, categories=("adult", "porn", "dating"), words=None)
    assert stage.files() == (f"{folder}/adult/domains", f"{folder}/dating/domains.gz")
    assert [rule_of(stage, f"http://{name}.example") for name in "agd"] == ["blocked_domain", None, "blocked_domain"]
    assert stage.explain("http://www.a.example")[0].categories == ("adult", "dating")


def test_other_names_of_ut1_may_be_missing(tmp_path):
    names = [
        "adult",
        "agressif",
        "arjel",
        "chat",
        "dating",
        "ddos",
        "filehosting",
        "gambling",
        "mixed_adult",
        "phishing",
    ]
    folder = write_lists(tmp_path, **{name: f"{name}.example\n" for name in names})
    stage = lc.text.UrlFilter(lists=folder)
    assert len(stage.files()) == len(names)
    assert all(rule_of(stage, f"http://{name}.example/") == "blocked_domain" for name in names)


def test_what_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(StageError, match="is not a folder of block lists; fetch UT1's with `longcrawl lists fetch ut1"):
        lc.text.UrlFilter(lists=str(tmp_path / "gone")).prepare()
    with pytest.raises(StageError, match="has no block lists, that is, files such as .*/adult/domains"):
        lc.text.UrlFilter(lists=str(tmp_path)).prepare()
    folder = write_lists(tmp_path, adult="a.example\n")
    with pytest.raises(StageError, match="has no list 'agressif', only adult: set categories to"):
        lc.text.UrlFilter(lists=folder).prepare()
    with pytest.raises(StageError, match="categories is empty"):
        lc.text.UrlFilter(lists=folder, categories=())
    (tmp_path / "adult" / "domains").unlink()
    (tmp_path / "adult" / "domains.gz").write_bytes(gzip.compress(b"a.example\n" * 99)[:-9])
    with pytest.raises(StageError, match=r"domains.gz cannot be read as a list of domains .* again"):
        lc.text.UrlFilter(lists=folder, categories=("adult",)).prepare()
    with pytest.raises(StageError, match="does not exist; give the path of a list of domains"):
        lc.text.UrlFilter(allow_list=str(tmp_path / "allowed")).prepare()
    with pytest.raises(StageError, match="does not exist"):
        lc.text.UrlFilter(curated_sources="refinedwep").prepare()
    with pytest.raises(StageError, match="allowed_domains has 'http://a.example/'; give domains such as example.org"):
        lc.text.UrlFilter(allowed_domains=("http://a.example/",))


def test_the_longer_of_listed_and_allowed_domains_decides(tmp_path):
    stage = blocking(tmp_path, "blogs.example\nbad.blogs.example\n", allowed_domains=("blogs.example",))
    urls = ["http://blogs.example", "http://good.blogs.example", "http://x.bad.blogs.example"]
    assert [rule_of(stage, url) for url in urls] == [None, None, "blocked_domain"]
    (tmp_path / "allowed").write_text("bad.blogs.example\n")
    stage = blocking(tmp_path, "blogs.example\nbad.blogs.example\n", allow_list=str(tmp_path / "allowed"))
    assert [rule_of(stage, url) for url in urls] == ["blocked_domain", "blocked_domain", None]


def test_allowed_domains_are_scored_by_their_words_unless_told_otherwise():
    url = "http://a.porn-help.example/"
    assert rule_of(lc.text.UrlFilter(allowed_domains=("porn-help.example",)), url) == "hard_word"
    stage = lc.text.UrlFilter(allowed_domains=("porn-help.example",), allowed_from="lists-and-words")
    assert rule_of(stage, url) is None
    assert rule_of(stage, "http://other.example/porn") == "hard_word"


@pytest.mark.parametrize(
    ("url", "matched"),
    [
        ("http://site.example/Bad", "site.example/bad"),
        ("https://www.site.example/bad/x?y#z", "site.example/bad"),
        ("http://site.example:8080/bad?x", "site.example/bad"),
        ("http://site.example/bad/worse/1", "site.example/bad/worse"),
        ("http://whole.example/", "whole.example"),
        ("http://xn--bcher-kva.example/q?id=1&p=2", "xn--bcher-kva.example/q?id=1"),
        ("http://site.example/badly", None),
        ("http://other.site.example/bad", None),
        ("http://site.example/", None),
        ("http://tmp.example/tmp/list", None),
        ("http://site.example/x/../b%61d/y", "site.example/bad"),
        ("http://site.example/%2e/BAD", "site.example/bad"),
        ("http://site.example/bad/../x", None),
        ("http://127.1/~a/b", "127.0.0.1/~a"),
        ("http://[1:0::0]:80/x/y", "1::/x"),
    ],
)
def test_addresses_match_with_everything_below_them(tmp_path, url, matched):
    stage = blocking(tmp_path, "unused.example\n")
    lines = "http://WWW.site.example/bad/\nsite.example/bad/worse\nwhole.example\n/tmp/list\nbücher.example/q?id=1\n"
    lines += "http://0x7f.1/./%7ea\nhttp://[1::0]:8080/x\n"
    (tmp_path / "adult" / "urls").write_text(lines, "utf-8")
    found = stage.explain(url)
    assert [each.matched for each in found] == ([] if matched is None else [matched])
    assert all(each.rule == "blocked_url" and each.categories == ("adult",) for each in found)


def test_a_hash_shared_by_chance_has_no_category(tmp_path, monkeypatch):
    stage = blocking(tmp_path, "listed.example\n")
    collided = BlockLists(read_domains(None, "listed.example", "innocent.example"), NONE)
    monkeypatch.setattr("longcrawl.text.refinedweb.url_lists.read_block_lists", lambda *_: collided)
    assert rule_of(stage, "http://innocent.example") == "blocked_domain"
    assert stage.explain("http://innocent.example")[0].categories == ()
    assert stage.explain("http://listed.example")[0].categories == ("adult",)


def test_an_edited_list_is_read_again(tmp_path):
    stage = blocking(tmp_path, "a.example\n")
    data = Dataset.from_dict({"id": ["a", "b"], "url": ["http://a.example", "http://b.example"]})
    assert data.filter(stage, batched=True)["id"][:] == ["b"]
    write_lists(tmp_path, adult="b.example\n# and more")
    assert data.filter(stage, batched=True)["id"][:] == ["a"]
    assert (lc.Crawl(data) | stage).data["id"][:] == ["a"]


# Words


def naive_words(url: str) -> list[str]:
    text = unquote_to_bytes(naive_split(url)[1].encode()).decode("utf-8", "replace")
    of_word = [each.isalnum() or unicodedata.category(each)[0] == "M" for each in text]
    spelled = "".join(each.lower()[0] if inside else " " for each, inside in zip(text, of_word, strict=True))
    return spelled.split()


def naive_parts(url: str) -> list[str]:
    """Return what strict words are looked for in: the a-z and 0-9 of each part."""
    text = unquote_to_bytes(naive_split(url)[1].encode()).decode("utf-8", "replace")
    folded = "".join(each.lower()[0] for each in text)
    return [re.sub("[^a-z0-9]", "", part) for part in re.split(r"[/\\?&=#+\s]", folded)]


def naive_counts(url: str, lists: dict[str, list[str]], strict_in: str = "parts") -> list[int]:
    words = naive_words(url)
    joined = naive_parts(url) if strict_in == "parts" else [re.sub("[^a-z0-9]", "", "".join(words))]
    strict = sum(any(word in part for part in joined) for word in lists["strict"])
    return [strict, *(len(set(words) & set(lists[kind])) for kind in ("hard", "soft"))]


LISTS = {
    "strict": ["aba", "abab", "bab", "baab", "a1a", "b2b2"],
    "hard": ["ab", "aba", "порно", "é"],
    "soft": ["a", "b", "ba", "a1"],
}
PIECES = st.sampled_from(
    [
        *"abA12-_./?=&+#%É",
        "%2F",
        "%20",
        "%5c",
        "\u3000",
        "e\u0301",
        "орно",
        "ПОРНО",
        "%61",
        "%42",
        "%2",
        "%C3%A9",
        "%C3",
        "%D0%9F",
    ]
)
BROKEN = st.sampled_from(["%C1%A1", "%F0%9F%98%80", "%ED%A0%80", "%FF"])


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(urls=st.lists(st.lists(PIECES | BROKEN, max_size=12).map("".join), max_size=4))
def test_words_equal_those_of_plain_python(urls, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "words.yaml"
    if not file.exists():
        file.write_text(str(LISTS), "utf-8")
    urls = [f"http://example.org/{url}" for url in urls]
    for strict_in in ("parts", "url"):
        words = read_url_words(str(file))
        counts = match_words(urls_of(*urls), words, np.zeros(len(urls), np.bool_), 1, strict_in)[0]
        assert counts.tolist() == [naive_counts(url, LISTS, strict_in) for url in urls]


@pytest.mark.parametrize(
    ("url", "rule", "matched"),
    [
        ("http://XVIDEOS.example/", "strict_word", "xvideos"),
        ("http://x-vi.deos.example/", "strict_word", "xvideos"),
        ("http://a.example/x_v%69-de~os", "strict_word", "xvideos"),
        ("http://a.example/?q=group-sex&x", "strict_word", "groupsex"),
        ("http://a.example/groups/experts", None, None),
        ("http://a.example/max/videos", None, None),
        ("http://a.example/?x&videos=group+sex#xvid%2Feos", None, None),
        ("http://a.max/videos", None, None),
        ("http://groups.example/", "strict_word", "groupsex"),
        ("http://www.foo.porn-bar.com", "hard_word", "porn"),
        ("http://a.example/PORN_1/", "hard_word", "porn"),
        ("http://a.example/p%4Frn", "hard_word", "porn"),
        ("http://a.example/porn/xxx", "hard_word", "porn, xxx"),
        ("http://any.xxx/", "hard_word", "xxx"),
        ("http://a.sex-b-webcam.example", "max_soft_words", "sex, webcam"),
        ("urn:sex:webcam", "max_soft_words", "sex, webcam"),
        ("http://a.example/porn123", None, None),
        ("http://a.example/sex/sex/SEX", None, None),
        ("http://essex.example/webcams", None, None),
        ("http://xn--porn-qqa.example/", None, None),
        ("http://a.example/%2570orn", None, None),
    ],
)
def test_words_of_the_paper(url, rule, matched):
    found = lc.text.UrlFilter().explain(url)
    assert [(each.rule, each.matched) for each in found] == ([(rule, matched)] if rule else [])
    assert rule_of(lc.text.UrlFilter(), url) == rule


def test_strict_words_may_be_looked_for_across_parts():
    stage = lc.text.UrlFilter(strict_in="url")
    urls = ["http://a.example/X_VI/DEOS", "http://a.example/?x=groups&experts", "http://a.example/group%20sex"]
    assert [rule_of(stage, url) for url in urls] == ["strict_word"] * 3
    assert [rule_of(lc.text.UrlFilter(), url) for url in urls] == [None] * 3
    assert stage.explain(urls[0])[0].matched == "xvideos"
    with pytest.raises(StageError, match="strict_in takes one of 'parts', 'url', got 'host'"):
        lc.text.UrlFilter(strict_in="host")


@pytest.mark.parametrize(
    ("sources", "dropped"),
    [("refinedweb", ["en", "en.m"]), ("refinedweb-multilingual", ["en", "en.m", "de", "de.m", "www"])],
)
def test_wikipedia_is_a_curated_source_on_telephones_and_in_other_languages(sources, dropped):
    stage = lc.text.UrlFilter(curated_sources=sources)
    hosts = ["en", "en.m", "de", "de.m", "www"]
    rules = [rule_of(stage, f"https://{host}.wikipedia.org/wiki/Boat") for host in hosts]
    assert [host for host, rule in zip(hosts, rules, strict=True) if rule == "curated_source"] == dropped
    assert rule_of(stage, "https://arxiv.org/abs/1") == "curated_source"


def test_the_recipe_of_several_languages_drops_every_wikipedia():
    stage = dict(lc.load_recipe("refinedweb-multilingual").stages)["url_filter"]
    assert rule_of(stage, "https://de.wikipedia.org/wiki/Boot") == "curated_source"


def test_the_scheme_is_no_part_of_a_word(tmp_path):
    (tmp_path / "words.yaml").write_text("strict: [psexa]\nhard: [https]\n")
    stage = lc.text.UrlFilter(words=str(tmp_path / "words.yaml"))
    assert rule_of(stage, "https://exa.example/") is None
    assert rule_of(stage, "https://a.example/https") == "hard_word"


def test_words_of_any_script_are_found_escaped_and_in_punycode(tmp_path):
    (tmp_path / "words.yaml").write_text("hard: [ПОРНО, हिन्दी]\nsoft: [ночь, день]\n", "utf-8")
    stage = lc.text.UrlFilter(words=str(tmp_path / "words.yaml"))
    hard = [
        "http://порно.рф/",
        f"http://{'порно.рф'.encode('idna').decode()}/",
        "http://a.example/%D0%9F%D0%BE%D1%80%D0%BD%D0%BE",
        "//a/हिन्दी",
    ]
    assert [rule_of(stage, url) for url in hard] == ["hard_word"] * 4
    assert rule_of(stage, "http://a.example/ночь-ДЕНЬ") == "max_soft_words"
    assert rule_of(stage, "http://a.example/порномир") is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("strict: [порно]", "has the strict word 'порно': .*; move it to the hard words"),
        ("strict: [ab]", "has the strict word 'ab'"),
        ("hard: ['two words']", "which is not a single word of letters and digits"),
        ("hard: [sex]\nsoft: [SEX]", "has 'sex' among the hard and the soft words; keep it in one list"),
        ("hard: [1]", "has 1 among the hard words"),
        ("hard: porn", "has 'porn' among the hard words"),
        ("harder: [porn]", "has the list 'harder'; known: strict, hard, soft"),
        ("[porn]", "holds no words; it should be YAML like"),
        ("{", "is not valid YAML"),
    ],
)
def test_a_broken_file_of_words_is_one_sentence(tmp_path, content, sentence):
    (tmp_path / "words.yaml").write_text(content, "utf-8")
    with pytest.raises(StageError, match=sentence):
        lc.text.UrlFilter(words=str(tmp_path / "words.yaml")).prepare()


def test_unknown_words_name_the_known():
    with pytest.raises(StageError, match="unknown words for URLs 'mine'; known: refinedweb, or give the path"):
        lc.text.UrlFilter(words="mine").prepare()
    with pytest.raises(StageError, match="does not exist"):
        lc.text.UrlFilter(words="gone.yaml").prepare()


# The stage


def test_a_url_without_a_host_is_scored_and_kept_or_dropped_as_told():
    keep, drop = lc.text.UrlFilter(), lc.text.UrlFilter(on_no_host="drop")
    odd = [None, "", "urn:uuid:1", "no url", "http:///x", "data:text/plain,porn"]
    assert [rule_of(keep, url) for url in odd] == [None, None, None, None, None, "hard_word"]
    assert [rule_of(drop, url) for url in odd] == ["no_host"] * 6
    assert rule_of(drop, "http://a.example") is None


def test_values_and_thresholds_go_to_the_ledger():
    urls = ["http://a.example/porn/xxx", "http://a.example/sex-webcam-escort", "http://reddit.com", "http://b.example"]
    crawl = lc.Crawl(Dataset.from_dict({"id": list("abcd"), "url": urls})) | lc.text.UrlFilter()
    assert [str(crawl.why(each)) for each in "abcd"] == [
        "a: removed at url_filter, rule hard_word: 2 against 0",
        "b: removed at url_filter, rule max_soft_words: 3 against 1",
        "c: removed at url_filter, rule curated_source",
        "d: kept",
    ]
    two = lc.text.UrlFilter(max_soft_words=None, curated_sources=None)
    assert [rule_of(two, url) for url in urls] == ["hard_word", None, None, None]


def test_a_column_of_another_kind_is_one_sentence():
    with pytest.raises(StageError, match="url_filter needs a column 'url' of strings, but it is int64"):
        lc.text.UrlFilter().judge(pa.table({"url": [1]}))
    with pytest.raises(StageError, match="url_filter needs a column 'url'; the documents have: text"):
        lc.text.UrlFilter().judge(pa.table({"text": ["a"]}))


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(st.lists(st.none() | st.text(max_size=20) | URLS, max_size=6), st.integers(0, 3))
def test_any_text_is_judged_alike_alone_and_in_a_sliced_batch(urls, start):
    stage = lc.text.UrlFilter(allowed_domains=("a.com",), on_no_host="drop")
    together = stage.judge(pa.table({"url": pa.array(urls, pa.string())}).slice(start))["rule"].to_pylist()
    assert together == [rule_of(stage, url) for url in urls[start:]]
    assert [each[0].rule if each else None for each in stage.matches(pa.table({"url": urls_of(*urls)}))][
        start:
    ] == together


# The report


PAGES = ["http://a.bad.example/1", "http://bad.example/2", "http://x.example/porn", "http://www.x.example/PORN/2",
         "http://fine.example/", None]  # fmt: skip


def test_hits_are_counted_by_what_drops_most(tmp_path):
    stage = blocking(tmp_path, "bad.example\nnever.example\n", words="refinedweb")
    hits = lc.text.url_hits(pa.table({"url": [*PAGES, "http://bad.example/3", "http://y.example/porn"]}), stage)
    columns = ("rule", "matched", "domain", "categories", "documents")
    assert hits.table.select(columns).to_pylist() == [
        dict(zip(columns, ("blocked_domain", "bad.example", "bad.example", ["adult"], 3), strict=True)),
        dict(zip(columns, ("hard_word", "porn", "x.example", [], 2), strict=True)),
        dict(zip(columns, ("hard_word", "porn", "y.example", [], 1), strict=True)),
    ]  # fmt: skip
    assert hits.table["example"].to_pylist() == [PAGES[0], PAGES[2], "http://y.example/porn"]
    assert (hits.documents, hits.dropped) == (8, 6)
    assert str(hits).splitlines()[0] == "6 of 8 documents removed"
    assert lc.text.url_hits(pa.table({"url": PAGES * 3}), stage, min_documents=6).table.num_rows == 2
    assert lc.text.url_hits(pa.table({"url": PAGES * 3}), stage, min_documents=7).table.num_rows == 0


def test_hits_of_a_crawl_are_those_of_its_filter(tmp_path):
    stage = blocking(tmp_path, "bad.example\n", words="refinedweb")
    data = Dataset.from_dict({"id": list("abcdef"), "url": PAGES, "text": ["long enough"] * 5 + [""]})
    crawl = lc.Crawl(data) | lc.text.MinChars(5) | stage | lc.text.MinChars(6)
    hits = lc.text.url_hits(crawl)
    assert hits.table["documents"].to_pylist() == [2, 2]
    assert (hits.documents, hits.dropped) == (5, 4)
    assert hits.table.equals(lc.text.url_hits(data, stage).table)
    assert lc.text.url_hits(crawl, stage).dropped == 0
    with pytest.raises(StageError, match="this crawl has no stage url_filter"):
        lc.text.url_hits(lc.Crawl(data))
    with pytest.raises(StageError, match="needs a filter for documents that are not a crawl"):
        lc.text.url_hits(data)


def test_a_long_report_is_cut_and_html_is_escaped():
    urls = [f"http://{number}.example/porn?<b>" for number in range(30)]
    hits = lc.text.url_hits(pa.table({"url": urls}), lc.text.UrlFilter())
    assert str(hits).splitlines()[-1] == "and 10 more, in .table"
    assert "&lt;b&gt;" in hits._repr_html_()
    assert "<b>" not in hits._repr_html_()


def test_categories_are_found_letter_by_letter(tmp_path):
    folder = Path(write_lists(tmp_path, adult="a.example\nBÜCHER.example\n", dating="A.example.\n"))
    files = {str(folder / name / "domains"): name for name in ("adult", "dating")}
    found = find_categories(files, ["a.example", "xn--bcher-kva.example", "b.example"], "domains")
    assert found == {"a.example": ("adult", "dating"), "xn--bcher-kva.example": ("adult",), "b.example": ()}


@pytest.mark.slow
def test_real_urls_are_judged_as_plain_python_does(real_data):
    urls = [
        line["url"]
        for line in datasets.load_dataset("json", data_files=str(real_data / "short.jsonl.zst"), split="train")
    ]
    urls = [url for url in urls if url][:3000]
    assert url_hosts(urls_of(*urls)).to_pylist() == [naive_host(url) for url in urls]
    lists = {
        "strict": ["xvideos", "groupsex"],
        "hard": ["porn", "xxx", "orgy"],
        "soft": ["sex", "webcam", "escort", "dick"],
    }
    assert match_words(urls_of(*urls), read_url_words("refinedweb"), np.zeros(len(urls), np.bool_), 1)[0].tolist() == [
        naive_counts(url, lists) for url in urls
    ]
