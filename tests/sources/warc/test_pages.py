"""Bodies of responses: what is undone of their encodings, and what is text."""

import gzip
import itertools
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.sources.warc.pages import Message, body_of, decode_page


def chunked(body, size=20):
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_no_text_is_taken_for_a_short_stream(coding):
    """A byte may be a whole stream of Brotli, and two be the header of zlib."""
    for first, second in itertools.product(map(chr, range(32, 127)), " ^S\n"):
        text = f"{first}{second} trees grow here, and what a crawler decoded stands as it is. ".encode() * 3
        assert body_of(Message(200, {"content-encoding": coding}, text), 1 << 20) == (text, None)


@pytest.mark.parametrize(
    ("body", "joined", "why"),
    [
        (b"2024\nHappy new year", b"2024\nHappy new year", None),
        (b"A\nfirst letter of many", b"A\nfirst letter of many", None),
        (b"0\nzero is a number", b"0\nzero is a number", None),
        (b"0\r\nzero is a number", b"0\r\nzero is a number", None),
        (b"4\nHapp\n1\ny\n0\n\n", b"Happy", None),
        (b"5\nhello\n0\nX-Trailer: a\n\n", b"hello", None),
        (b"4\nHapp\n5\ny", b"Happy", "chunks"),
        (b"5\r\nHap", b"Hap", "chunks"),
        (b"0\r\nX-Trailer: a\r\n\r\n", b"", None),
    ],
)
def test_a_text_that_begins_with_a_number_has_no_chunks(body, joined, why):
    assert body_of(Message(200, {"transfer-encoding": "chunked"}, body), 1 << 20) == (joined, why)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_valid_utf8_that_says_nothing_else_is_utf8(text):
    page = "<p>" + text
    assert decode_page(page.encode(), None, markup=True) == (page.replace("\0", "").encode(), "utf-8", False)
    assert decode_page(page.encode("utf-8-sig"), "gbk", markup=True)[0] == page.replace("\0", "").encode()


@given(
    st.binary(max_size=300),
    st.integers(1, 50),
    st.lists(st.sampled_from(["gzip", "deflate", "br", "zstd"]), max_size=3),
)
def test_any_body_comes_out_of_its_encodings(body, size, codings):
    undone = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}
    sent = body
    for coding in codings:
        sent = undone[coding](sent)
    fields = {"transfer-encoding": "chunked", "content-encoding": ", ".join(codings)}
    assert body_of(Message(200, fields, chunked(sent, size)), 1 << 20) == (body, None)
