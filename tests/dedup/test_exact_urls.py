"""URLs: the normal form, one of each, and part after part."""

import gzip
import json

import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.exact import normalise_url
from longcrawl.errors import StageError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org/a", "https://www.example.org/a/"),
        ("http://example.org", "http://EXAMPLE.org/#top"),
        ("http://example.org:80/", "https://example.org:443"),
        ("http://example.org/a?b=1&a=2", "http://example.org/a?a=2&b=1"),
        ("http://example.org/a?id=7&utm_source=x&utm_medium=y", "http://example.org/a?id=7"),
        ("http://example.org/a?PHPSESSID=abc", "http://example.org/a"),
        ("http://example.org/a;jsessionid=0A1B?x=1", "http://example.org/a?x=1"),
        ("http://example.org/%7Ename/%C3%A9", "http://example.org/~name/é"),
        ("example.org/a", "http://example.org/a"),
        ("  http://example.org/a\n", "http://example.org/a"),
        ("www.Example.org/a//b", "http://example.org/a//b"),
        ("http://example.org/a%3ab", "http://example.org/a%3Ab"),
        ("http://exämple.org/", "http://xn--exmple-cua.org/"),
        ("http://example.org/a?sid=0123456789abcdef0123456789abcdef", "http://example.org/a"),
        ("http://example.org/a?print=1&sessionid=16617817", "http://example.org/a?ref=home"),
        ("hard::example.org-attacks.html?ref=home#top", "hard::example.org-attacks.html"),
        ("http://faß.example/", "http://xn--fa-hia.example/"),
        ("http://ΟΔΟΣ.example/", "http://οδοσ.example/"),
        ("http://\u2603.example/", "http://xn--n3h.example/"),
        ("http://BÜ\u00adCHER\u3002example./", "http://b%C3%BCcher.example/"),
        ("http://%65xample.org./a", "http://example.org/a"),
        ("http://example.org/a/../b/./c", "http://example.org/b/c"),
        ("http://example.org/a/%2E%2e/b/%2e", "http://example.org/b"),
        ("http://example.org/../../a?b=/../c", "http://example.org/a?b=/../c"),
        ("http:\\\\example.org\\a?q=1", "http://example.org/a?q=1"),
        ("http://0x7F.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1./"),
        ("http://017700000001:80/a", "http://127.0.1/a"),
        ("https://user@[2001:DB8:0:0::1]:443/", "http://[2001:db8::1]/"),
        ("http://[::ffff:7f00:1]/", "http://[::FFFF:127.0.0.1]/"),
        ("ftp://example.org:21/a", "ftp://example.org/a"),
    ],
)
def test_urls_of_one_page_are_the_same(one, other):
    assert normalise_url(one) == normalise_url(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org/a", "http://example.org/b"),
        ("http://example.org/a", "http://example.org/A"),
        ("http://example.org/a?id=1", "http://example.org/a?id=2"),
        ("http://example.org:8080/", "http://example.org/"),
        ("http://blog.example.org/", "http://example.org/"),
        ("http://example.org/a%2Fb", "http://example.org/a/b"),
        ("http://example.org/?q=a%26b=1", "http://example.org/?q=a&b=1"),
        ("http://example.org/a%2541", "http://example.org/a%41"),
        ("http://example.org/article.pl?sid=01/02/03/1234", "http://example.org/article.pl?sid=01/02/03/1235"),
        ("http://example.org/?sid=17", "http://example.org/?sid=18"),
        ("http://example.org/?dir=photos/2009", "http://example.org/?dir=music"),
        ("http://example.org/?order=1", "http://example.org/?order=2"),
        ("http://example.org/?source=a", "http://example.org/?source=b"),
        ("http://faß.example/", "http://fass.example/"),
        ("http://οδος.example/", "http://οδοσ.example/"),
        ("http://a\u200db.example/", "http://ab.example/"),
        ("http://example.org/a/.../b", "http://example.org/b"),
        ("http://example.org/?a/../b", "http://example.org/?b"),
        ("http://[::1]:8080/", "http://[::1:8080]/"),
        ("http://1.2.3.4.5/", "http://1.2.3.1029/"),
        ("http://127.0.0.1.example/", "http://127.0.0.1/"),
    ],
)
def test_urls_of_two_pages_are_not(one, other):
    assert normalise_url(one) != normalise_url(other)


def test_the_query_is_a_choice():
    url = "http://example.org/?utm_source=x&id=7"
    assert normalise_url(url, "all") == "example.org?id=7&utm_source=x"
    assert normalise_url(url, "none") == "example.org"


@given(st.text(max_size=40) | st.text("htp:/w.é?&;=#%[]@ \n0", max_size=40))
def test_any_text_has_a_normal_form_that_stays(text):
    normal = normalise_url(text)
    assert normalise_url(normalise_url(normal)) == normalise_url(normal)
    lc.dedup.Urls().sketch(pa.table({"id": ["a"], "url": [text]}))


URLS = ["http://a.org/1", "https://www.a.org/1/", None, "", "http://a.org/2", "http://a.org/1?utm_source=x"]


def test_one_of_each_url_is_kept_and_those_without_stay():
    data = Dataset.from_dict({"id": list("fedcba"), "url": URLS})
    crawl = lc.Crawl(data) | lc.dedup.Urls()
    assert crawl.data["id"][:] == ["f", "d", "c", "b"]
    assert str(crawl.why("a")) == "a: removed at urls, rule same_url: a duplicate of f"
    again = lc.Crawl(data.select([5, 4, 3, 2, 1, 0])) | lc.dedup.Urls()
    assert again.data["id"][:] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("url", [None, "", " ", "http://", "#x", "https://www.", "/a/b", "?q=1", "http:///a"])
def test_what_names_no_host_is_no_twin_of_anything(url):
    assert lc.dedup.Urls().sketch(pa.table({"id": ["a"], "url": pa.array([url], pa.string())}))["hash"].null_count == 1


def test_a_column_of_something_else_is_one_sentence():
    with pytest.raises(StageError, match=r"urls needs strings in column 'url', but it holds list<item: int64>"):
        lc.dedup.Urls().sketch(pa.table({"id": ["a"], "url": [[1]]}))


def test_copies_of_a_page_under_other_parameters_are_found_in_the_shared_crawl(real_data):
    """Every record that the manifest calls a copy by its parameters has the form of an original, or of another copy."""
    with gzip.open(real_data / "warc" / "manifest.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    copies = [record["uri"] for record in records if record.get("case") == "dup-get-param"]
    assert len(copies) == 30
    assert {normalise_url(uri) for uri in copies} <= {normalise_url(uri.partition("?")[0]) for uri in copies}
