"""Publishers who have opted out: domains and addresses of lists with dates."""

import gzip
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.refinedweb.opt_out import matches_path

LIST = """
# what publishers have asked for
Example.ORG 2024-05-01
*.bücher.example   # a comment
shop.example/private/ 2023-11-30
shop.example/*.pdf$
late.example 2025-01-01
"""
PAGES = {
    "https://example.org/": "opted_out_domain",
    "https://www.Example.org:8080/a": "opted_out_domain",
    "https://notexample.org/": None,
    "https://example.org.evil/": None,
    "https://a.xn--bcher-kva.example/x": "opted_out_domain",
    "https://shop.example/private/a": "opted_out_path",
    "https://www.shop.example/private/": "opted_out_path",
    "https://shop.example/privat": None,
    "https://shop.example/a/b.pdf": "opted_out_path",
    "https://shop.example/a/b.pdf?c": None,
    "https://late.example/": "opted_out_domain",
    "urn:example.org": None,
    "": None,
    None: None,
}


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "list.txt").write_text(LIST, "utf-8")
    return str(tmp_path / "list.txt")


PATHS = [
    ("/größe/", "/gr%C3%B6%C3%9Fe/a", "/gr%c3%b6%c3%9fe/", "/größe/a"),
    ("/gr%c3%b6%C3%9fe/", "/größe/a"),
    ("/private/", "/%70rivate/x"),
    ("/%70rivate*.pdf$", "/private/ö.%70df"),
    ("/a%2A$", "/a*", "/a%2a"),
    ("/a$b", "/a$b", "/a%24b"),
]


@pytest.mark.parametrize("paths", PATHS)
def test_spellings_of_a_path_are_one(tmp_path, paths):
    (tmp_path / "list.txt").write_text(f"example.net{paths[0]}", "utf-8")
    urls = [f"https://example.net{path}" for path in (*paths[1:], "/a%2Fb", "/100%")]
    rules = ["opted_out_path"] * (len(paths) - 1) + [None, None]
    assert judged(lc.text.OptOut((str(tmp_path / "list.txt"),)), urls) == rules


def judged(stage: lc.text.OptOut, urls, dates=None) -> list[str | None]:
    columns = {"id": [str(row) for row in range(len(urls))], "url": pa.array(urls, pa.large_string())}
    columns |= {} if dates is None else {"date": pa.array(dates, pa.string())}
    return stage.judge(pa.table(columns))["rule"].to_pylist()


def test_domains_and_addresses_are_matched(listed):
    assert dict(zip(PAGES, judged(lc.text.OptOut((listed,)), list(PAGES)), strict=True)) == PAGES


def test_dates_are_compared(listed):
    before = ["2024-04-30T23:59:59Z", "20240430", "20240430235959", "2024-04-30 23:59"]
    unreadable = ["Mon, 03 Jun 2024 12:00:00 GMT", "1717400000", "1711012345", "2023-13-45", "2023", "soon", ""]
    dates = dict.fromkeys(before) | dict.fromkeys(["2024-05-01", "20240601", *unreadable], "opted_out_domain")
    since = lc.text.OptOut((listed,), pages="since")
    assert judged(since, ["https://example.org/"] * len(dates), list(dates)) == list(dates.values())
    assert judged(since, ["https://example.org/"], [None]) == ["opted_out_domain"]
    assert judged(since, ["https://shop.example/a.pdf"], ["2001-01-01"]) == ["opted_out_path"]
    early = lc.text.OptOut((listed,), as_of="2024-12-31")
    assert judged(early, ["https://late.example/", "https://example.org/"]) == [None, "opted_out_domain"]


@pytest.mark.parametrize(
    ("content", "urls"),
    [
        ("0.0.0.0 a.example b.example # both\n", ["http://a.example/", "http://x.b.example/", "http://example/"]),
        ("! rules\n||a.example^\n||b.example^$all\n", ["http://a.example/", "http://b.example/", "http://c.example/"]),
        ("domain,asked\na.example,2024-05-01\nb.example,\n", ["http://a.example/", "http://b.example/", "http://x/"]),
        ("\ufeffhttps://a.example\r\n//b.example/ 2024-05-01\r\n", ["http://a.example", "http://b.example/x", "//c/"]),
        ("FAß.example\n0x7f.1\n", ["http://xn--fa-hia.example/", "http://2130706433/", "http://fass.example/"]),
    ],
)
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())], ids=["plain", "gzip"])
def test_other_forms_of_lists_are_read(tmp_path, content, urls, pack):
    (tmp_path / "list").write_bytes(pack(content))
    assert judged(lc.text.OptOut((str(tmp_path / "list"),)), urls) == ["opted_out_domain", "opted_out_domain", None]


@pytest.mark.parametrize("line", ["https://a.example/private/", "a.example/private/", "a.example/x/.././private/"])
def test_paths_are_compared_without_dot_segments(tmp_path, line):
    (tmp_path / "list").write_text(f"{line}\n")
    urls = ["http://a.example/x/../private/1", "http://a.example/%2e/private/", "http://a.example/private/../x"]
    assert judged(lc.text.OptOut((str(tmp_path / "list"),)), urls) == ["opted_out_path", "opted_out_path", None]


def test_a_run_pins_its_lists(listed, tmp_path):
    crawl = lc.Crawl([{"id": "a", "text": "x", "url": "https://example.org/"}, {"id": "b", "text": "y", "url": None}])
    kept = crawl | lc.text.OptOut((listed,))
    assert kept.data["id"] == ["b"]
    assert str(kept.why("a")) == "a: removed at opt_out, rule opted_out_domain"
    assert lc.text.OptOut((listed,)).files() == (listed,)


@pytest.mark.parametrize(
    "line", ["example.org yesterday", "example.org 2020-13-45", "a b c", "@@||example.org^", "/path 2024-01-01"]
)
def test_a_line_that_is_no_entry_is_named(tmp_path, line):
    (tmp_path / "list.txt").write_text(f"good.example\n{line}\n")
    with pytest.raises(StageError, match=r"list\.txt, line 2: .* is not a domain or address"):
        lc.text.OptOut((str(tmp_path / "list.txt"),)).prepare()


def test_settings_are_checked():
    with pytest.raises(StageError, match="give a date such as 2024-12-31"):
        lc.text.OptOut(("a",), as_of="2024-12-32")
    with pytest.raises(StageError, match="lists is empty"):
        lc.text.OptOut().prepare()
    with pytest.raises(StageError, match=r"nowhere\.txt does not exist"):
        lc.text.OptOut(("nowhere.txt",)).prepare()


@given(st.text("ab*", max_size=8), st.booleans(), st.text("ab", max_size=12))
def test_patterns_are_those_of_robots(pattern, ends, path):
    expression = "".join(".*" if letter == "*" else letter for letter in pattern) + ("$" if ends else "")
    assert matches_path(pattern + "$" * ends, path) == (re.match(expression, path) is not None)
