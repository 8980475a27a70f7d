"""URLs of inputs: what is one, what of it is written, and what it carries for reading alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl import urls

HIDDEN = "s3cr3t"
WITH_HIDDENS = {
    f"https://me:{HIDDEN}@host/a.jsonl": "https://host/a.jsonl",
    f"https://host/a.jsonl?X-Amz-Signature={HIDDEN}&versionId=7": "https://host/a.jsonl?versionId=7",
    f"s3://key:{HIDDEN}@bucket/a.jsonl": "s3://bucket/a.jsonl",
    f"simplecache::https://host/a?sig={HIDDEN}#top": "simplecache::https://host/a",
}


@pytest.mark.parametrize("url", WITH_HIDDENS)
def test_no_secret_of_a_url_is_written_or_shown(url):
    assert urls.without_secrets(url) == WITH_HIDDENS[url]
    assert urls.plain_urls({"paths": [url, 7], "name": "a?b"}) == {"paths": [WITH_HIDDENS[url], 7], "name": "a?b"}
    assert HIDDEN not in urls.hide_secrets(f"there is no file {url}, and so on")
    assert urls.hide_secrets(f"no file {url}.").startswith("no file ")


@pytest.mark.parametrize("path", ["a.jsonl", "raw/what?.jsonl", "file:///a#b.jsonl", "/a/me:you@host/b"])
def test_paths_of_this_machine_stay_as_they_are(path):
    assert not urls.is_url(path)
    assert (urls.without_secrets(path), urls.path_of(path), urls.hide_secrets(path)) == (path, path, path)


@given(st.dictionaries(st.text(), st.booleans() | st.integers() | st.text(), max_size=3))
def test_options_are_carried_and_taken_out_again(options):
    url = "s3://bucket/a.jsonl"
    carrying = urls.with_options(url, options)
    assert urls.split_options(carrying) == (url, options)
    assert urls.without_secrets(carrying) == url
    assert urls.split_options(url) == (url, {})


def test_a_query_is_that_of_all_files_of_a_folder_and_no_part_of_their_names():
    joined = urls.join("https://host/folder?sig=abc", "a.jsonl.gz")
    assert joined == "https://host/folder/a.jsonl.gz?sig=abc"
    assert urls.path_of(joined) == "https://host/folder/a.jsonl.gz"
    assert urls.join("folder", "a.jsonl") == "folder/a.jsonl"


@pytest.mark.parametrize(
    ("path", "is_pattern"),
    [
        ("raw/*.jsonl", True),
        ("raw/a[12].jsonl", True),
        ("s3://bucket/?.jsonl", True),
        ("https://host/*.jsonl?sig=abc", True),
        ("https://host/a.jsonl?sig=*", False),
        ("http://[::1]/a.jsonl", False),
        ("raw/a.jsonl", False),
    ],
)
def test_patterns_are_known_wherever_a_sign_may_stand_otherwise(path, is_pattern):
    assert urls.has_pattern(path) is is_pattern
