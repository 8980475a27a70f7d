"""Records of web archives that a kernel reads, against the parsers of all others."""

import gzip
import io
import re
from unittest import mock

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longcrawl.core.sources import BadFiles
from longcrawl.sources import members
from longcrawl.sources.warc import records
from longcrawl.sources.warc.fields import HEADER_BYTES, NAMES, length_of, parse_fields
from longcrawl.sources.warc.lost import Lost
from longcrawl.sources.warc.pages import parse_message
from longcrawl.sources.warc.plain import MOST_BLANK, PlainReader, encoding_of, scan

MOST = 1 << 20
HEAD = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n"

names = st.sampled_from([*NAMES, *map(str.title, NAMES), "Server", "Set-Cookie", "X", "", "Content-Typ", "a b", "a/b"])
in_utf8 = [each.encode().decode("latin-1") for each in ("é", "\xa0a\u3000", "\u2028")]
values = st.sampled_from([
    "text/html", "", "7", " a \t", "a\tb", "a: b", "é", "a\rb", "\x0b", "\x1c", "a\x7f", "<urn:x>", "\xa0a\x85",
    *in_utf8,
])  # fmt: skip
fields = st.builds("{}{}{}".format, names, st.sampled_from([":", ": ", ":\t", " :", ""]), values)
plain = st.builds("{}: {}".format, st.sampled_from(["Server", "Set-Cookie", "X-A"]), st.sampled_from(["", "a", "a: b"]))
lines = st.one_of(
    plain,
    plain,
    plain,
    plain,
    plain,
    fields,
    st.sampled_from([" folded", "\tfolded", "WARC/1.0", "no colon", "\r", "\x85a: b"]),
)
ends = st.sampled_from(["\r\n", "\r\n", "\n", "\r\r\n"])
pages = st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode))


@st.composite
def headers(draw, first):
    return "".join(line + draw(ends) for line in [draw(first), *draw(st.lists(lines, max_size=5))]).encode("latin-1")


statuses = st.sampled_from([
    "HTTP/1.1 200 OK", "HTTP/1.1 200", "HTTP/1.1\t200", "HTTP/2 404", "HTTP/1.1 é: x 200", "HTTP/1.1 100 Continue",
    "HTTP/1. 200", "HTTP/1.1 2000", "HTTP/1.1 20", "HTTP/1.1200", "HTTP/ 200", "HTTP", "http/1.1 200", "GET / HTTP/1.1",
])  # fmt: skip
versions = st.sampled_from(["WARC/1.0", "WARC/1.1", "WARC/0.18 "])


@given(
    headers(versions), headers(statuses), pages, st.integers(-3, 3), st.sampled_from([b"\r\n\r\n", b"", b"\n", b"x"])
)
@example(b"WARC/1.0\r\nContent-Length: 1\r\n", b"", b"", 0, b"\r\n" * MOST_BLANK)
@example(b"WARC/1.0\r\n", b"HTTP/1.1 200\r\nA: b\r\n", b"a\0", 0, b"")
@settings(max_examples=20 * settings.default.max_examples)
def test_what_the_kernel_takes_is_what_the_parsers_give(head, of_message, page, more, behind):
    block = of_message + b"\r\n" + page
    data = head + b"Content-Length: %d\r\n\r\n" % (len(block) + more) + block + behind
    if (found := PlainReader().read(data, MOST)) is None:
        return
    given_fields, given_block, message, scanned = found
    begin = re.search(rb"\n\r*\n", data).end()
    assert given_fields == parse_fields(data[:begin], encoding_of(data[:begin]))
    assert given_block == data[begin : begin + length_of(given_fields)]
    assert data[begin + len(given_block) :].strip(b"\r\n") == b""
    if message is not None:
        expected = parse_message(given_block)
        assert (message.status, message.fields, bytes(message.body)) == (*expected[:2], bytes(expected.body))
    if scanned is not None:
        assert scanned.page is (given_block if message is None else message.body)
        assert scanned[1:] == naive(scanned.page)
    assert (scanned is None) == (given_block[:5] == b"HTTP/" and message is None)


def naive(page):
    try:
        bytes(page).decode()
    except UnicodeDecodeError:
        return False, b"\0" in bytes(page)
    return True, b"\0" in bytes(page)


def members_of(pieces):
    return b"".join(map(gzip.compress, pieces))


def read_all(archive, most, piece_bytes, checksums="last"):
    """Return the records of an archive, and what is reported of it."""
    found, bad_files = [], BadFiles("skip", checksums=checksums)
    lost = Lost(bad_files, "x.warc")
    defaults = mock.patch.object(members.Members._gzip, "__defaults__", (piece_bytes, piece_bytes))
    with mock.patch.multiple(members, WHOLE_BYTES=100, READ_BYTES=piece_bytes), defaults:
        for record in records.read_records(io.BytesIO(archive), most, lost):
            block, message = record.block and bytes(record.block), record.message
            found.append((*record[:4], block, message and (*message[:2], bytes(message.body)), record.scanned is None))
    lost.report()
    return found, bad_files.found


def in_one_frame(pieces):
    return zstandard.ZstdCompressor(write_checksum=True).compress(b"".join(pieces))


def damaged(archive, how, where):
    """Return an archive with one bit flipped, or without what stands behind a place."""
    place = int(where * (len(archive) - 1)) if archive else 0
    if how == "cut":
        return archive[:place]
    if how == "flipped" and archive:
        return archive[:place] + bytes([archive[place] ^ 4]) + archive[place + 1 :]
    return archive


between = st.sampled_from(
    [b"\r\n\r\n", b"\r\n\r\n", b"\r\n\r\n", b"", b"\n", b"\r\n\r\n\r\n", b"\r\n\r\nWARC/1.0\r\n\r\n"]
)


@given(
    st.lists(st.tuples(headers(versions), pages, st.sampled_from([0, 0, 0, 0, 1, -1]), between), max_size=6),
    st.sampled_from([b"".join, lambda pieces: gzip.compress(b"".join(pieces)), members_of, in_one_frame]),
    st.tuples(st.sampled_from(["", "", "flipped", "cut"]), st.floats(0, 1)),
    st.sampled_from([150, MOST]),
    st.sampled_from([16, 1 << 16]),
    st.sampled_from(["first", "last"]),
)
@settings(max_examples=3 * settings.default.max_examples)
def test_plain_records_of_a_long_member_are_those_that_are_read_with_all_care(
    parts, pack, damage, most, piece_bytes, checksums
):
    made = [head + b"Content-Length: %d\r\n\r\n" % (len(page) + more) + page + end for head, page, more, end in parts]
    archive = damaged(pack(made), *damage)
    with mock.patch.object(records._Reader, "_next_plain", return_value=None):
        expected = read_all(archive, most, piece_bytes, checksums)
    assert read_all(archive, most, piece_bytes, checksums) == expected


def test_a_length_that_leads_behind_the_next_member_is_wrong():
    following = HEAD % 5 + b"<p>ab"
    first = b"WARC/1.0\r\nContent-Length: 2\r\nA: b\r\n c\r\n\r\nab\r\n\r\n"  # what follows is read with it
    wrong = HEAD % (9 + len(following)) + b"<p>ab\r\n\r\n"
    archive = members_of([first, wrong, following + b"\r\n\r\n", HEAD % 5 + b"<p>cd"])
    for piece_bytes in (16, 64, 1 << 16):
        found, reported = read_all(archive, MOST, piece_bytes)
        assert [block for *_, block, _, _ in found] == [b"ab", b"<p>ab", b"<p>cd"]
        assert "a record is shorter than its Content-Length" in reported[0].reason


@pytest.mark.parametrize("pack", [b"".join, lambda pieces: gzip.compress(b"".join(pieces))])
def test_plain_records_of_a_long_member_are_taken_at_once(pack):
    archive = pack([HEAD % 5 + b"<p>ab\r\n\r\n"] * 20)
    with mock.patch.object(records._Reader, "_record", side_effect=records._Reader._record, autospec=True) as careful:
        found, reported = read_all(archive, MOST, 64)
    assert len(found) == 20
    assert reported == []
    assert careful.call_count <= 4  # those near the beginning and the end of the member


@given(pages, st.integers(0, 130))
def test_bytes_are_scanned_as_python_decodes_them(page, before):
    for data in (page, b"a" * before + page, b"a" * before + page + b"a" * 70):
        assert scan(data)[1:] == naive(data)


def with_headers(own, of_message):
    """Return a record whose two headers have so many bytes."""
    block = b"HTTP/1.1 200 OK\r\nA: " + b"b" * (of_message - 24) + b"\r\n\r\n<p>"
    length = b"Content-Length: %d\r\n" % len(block)
    return b"WARC/1.0\r\n" + length + b"A: " + b"b" * (own - 17 - len(length)) + b"\r\n\r\n" + block


@pytest.mark.parametrize("more", [0, 1])
def test_headers_are_read_up_to_their_limit(more):
    found = PlainReader().read(with_headers(100, HEADER_BYTES + more), 1 << 22)
    assert (found[2] is None) == (found[3] is None) == bool(more)
    found = PlainReader().read(with_headers(HEADER_BYTES + more, 100), 1 << 22)
    assert (found is None) == bool(more)
    assert more or found[2].body == b"<p>"


@pytest.mark.parametrize("status", ["100 Continue", "2000", "20", "x200", "199", "", "-200"])
def test_answers_of_another_status_are_for_the_parsers(status):
    block = f"HTTP/1.1 {status}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n<p>".encode()
    _, found, message, scanned = PlainReader().read(HEAD % len(block) + block, MOST)
    assert (bytes(found), message, scanned) == (block, None, None)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_usual_records_are_plain(end):
    headers = b"Server: a\r\nSet-Cookie: a\r\nSet-Cookie: b\r\ncontent-TYPE:text/html \r\n"
    block = b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n<p>\xc3\xa9\0"
    data = (HEAD % len(block)).replace(b"\r\n", end) + block + b"\r\n\r\n"
    found_fields, found_block, message, scanned = PlainReader().read(data, MOST)
    assert found_fields == {"warc-type": "response", "content-length": str(len(block))}
    assert found_block == block
    assert (message.status, message.fields, message.body) == (200, {"content-type": "text/html"}, b"<p>\xc3\xa9\0")
    assert scanned == (message.body, True, True)
    text = "naïve".encode()
    found_fields, found_block, message, scanned = PlainReader().read(HEAD % len(text) + text, MOST)
    assert (found_block, message, scanned) == (text, None, (text, True, False))


@pytest.mark.parametrize(
    "data",
    [
        HEAD % 5 + b"1234",
        HEAD % 3 + b"1234",
        HEAD % 4 + b"1234" + b"\n" * (MOST_BLANK + 1),
        HEAD % 4 + b"1234\r\n\r\nWARC/1.0\r\n",
        b"WARC/1.0\r\nWARC-Type: response\r\n\r\n",
        b"WARC/1.0\r\nWARC-Type: a\r\nWARC/1.0: b\r\nContent-Length: 1\r\n\r\n1",
        b"WARC/1.0\r\nContent-Length: 1, 1\r\n\r\n1",
        b"WARC/1.0\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n1",
        b"WARC/1.0\r\nContent-Length: 1234567890123456789\r\n\r\n1",
        b"WARC/1.0\r\nContent-Length: -1\r\n\r\n1",
        b"WARC/1.0\r\nContent-Length: 1\r\n",
        b"WARC/1.0\r\nContent-Length: 1",
        b"WARC/1.0",
        b"",
    ],
)
def test_other_members_are_for_the_parsers(data):
    assert PlainReader().read(data, MOST) is None


@pytest.mark.parametrize("header", [HEAD % 9, HEAD % 0])
def test_a_header_says_where_its_block_ends(header):
    reader = PlainReader()
    assert reader.end_of(header) == len(header) + (9 if b"9" in header else 0)
    assert reader.end_of(header.replace(b"WARC-", b" ")) is None
    assert reader.end_of(header.replace(b"Length: ", b"Length: -")) is None
    assert reader.end_of(header[:-2]) is None


def test_a_block_that_is_too_long_is_not_looked_at():
    fields, *others = PlainReader().read(HEAD % 4 + b"\xff\0\0\0", 3)
    assert fields["content-length"] == "4"
    assert others == [None, None, None]
    _, block, _, scanned = PlainReader().read(HEAD % 4 + b"\xff\0\0\0", 4)
    assert (bytes(block), scanned[1:]) == (b"\xff\0\0\0", (False, True))


def test_values_in_utf8_are_plain():
    data = "WARC/1.0\r\nWARC-Target-URI: https://a/é \r\nX: ü\r\nContent-Length: 2\r\n\r\nab".encode()
    assert PlainReader().read(data, MOST)[0] == {"warc-target-uri": "https://a/é", "content-length": "2"}
    assert PlainReader().read(data.decode().encode("latin-1"), MOST)[0]["warc-target-uri"] == "https://a/é"
