"""URLs: the normal form, one of each, and part after part."""

import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.urls import normalise_url


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
        ("http://example.org/a%2Fb?q=%26", "http://example.org/a%2Fb?q=1"),
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
    assert normalise_url(normal) == normalise_url(normalise_url(normal))
    lc.dedup.Urls().sketch(pa.table({"id": ["a"], "url": [text]}))


URLS = ["http://a.org/1", "https://www.a.org/1/", None, "", "http://a.org/2", "http://a.org/1?utm_source=x"]


def test_one_of_each_url_is_kept_and_those_without_stay():
    data = Dataset.from_dict({"id": list("fedcba"), "url": URLS})
    crawl = lc.Crawl(data) | lc.dedup.Urls()
    assert crawl.data["id"][:] == ["d", "c", "b", "a"]
    assert str(crawl.why("f")) == "f: left at urls, rule same_url: a duplicate of a"
    again = lc.Crawl(data.select([5, 4, 3, 2, 1, 0])) | lc.dedup.Urls()
    assert sorted(again.data["id"][:]) == sorted(crawl.data["id"][:])
