"""Web archives: every form of file, every odd record, damage of every kind, and real archives."""

import base64
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import itertools
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path

import brotli
import fsspec
import pytest
import zstandard
from datasets import load_dataset
from fastwarc.warc import ArchiveIterator
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.sources import BadFiles, UncheckedDataError
from longcrawl.errors import NotYetError, SourceError
from longcrawl.io import file_systems
from longcrawl.sources import compressed, files
from longcrawl.sources.compressed import Window
from longcrawl.sources.warc import source as tables
from longcrawl.sources.warc.pages import LeftOutError, Message, body_of, decode_page
from longcrawl.sources.warc.records import Lost, read_records
from longcrawl.sources.warc.source import Warc

ROOT = Path(__file__).parents[3]
PAGE = "<html><head><title>Größe</title></head><body><p>naïve — 你好</p></body></html>".encode()
NUMBERS = itertools.count()


def record(block, kind="response", name=None, **fields):
    number = next(NUMBERS)
    given = {
        "WARC-Type": kind,
        "WARC-Record-ID": name or f"<urn:uuid:00000000-0000-0000-0000-{number:012}>",
        "WARC-Date": "2024-01-02T03:04:05Z",
        "WARC-Target-URI": f"https://example.org/{number}",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(block)),
        **{key.replace("_", "-"): value for key, value in fields.items()},
    }
    head = "".join(f"{key}: {value}\r\n" for key, value in given.items() if value is not None)
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def answer(body=PAGE, status="200 OK", **headers):
    headers = {"Content-Type": "text/html; charset=utf-8"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    head = "".join(f"{key}: {value}\r\n" for key, value in headers.items() if value is not None)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


def response(body=PAGE, **headers):
    return record(answer(body, **headers))


def chunked(body, size=20):
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def write(path, records):
    """Write records in the form that the name asks for: a member or frame for each, or nothing around them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        records = [gzip.compress(one) for one in records]
    elif path.suffix == ".zst":
        records = [zstandard.ZstdCompressor(write_checksum=True).compress(one) for one in records]
    path.write_bytes(b"".join(records))
    return path


def read(path, policy="error", checksums="first", **settings):
    source, bad_files = Warc(data_files=str(path), **settings), BadFiles(policy, checksums=checksums)
    tables = [table for parts in source.splits().values() for part in parts for table in source.read(part, bad_files)]
    for table in tables:
        assert table.schema == source.schema()
        table.validate(full=True)
    return [row for table in tables for row in table.to_pylist()], bad_files


def only(path, one, **settings):
    """Return the one row of a record, the same where it is a member of its own, but for where it lies."""
    (row,), _ = read(write(path, [one]), **settings)
    (packed,), _ = read(write(path.with_name("packed.warc.gz"), [one]), **settings)
    where = dict.fromkeys(("id", "source", "file", "offset", "length"))
    assert packed | where == row | where
    return row


def left_out(path, one, **settings):
    rows, bad_files = read(write(path, [one]), **settings)
    assert rows == []
    packed, packed_files = read(write(path.with_name("packed.warc.gz"), [one]), **settings)
    assert (packed, packed_files.left_out) == (rows, bad_files.left_out)
    ((rule, count),) = bad_files.left_out.items()
    assert count == 1
    return rule


def digest(payload):
    return "sha1:" + base64.b32encode(hashlib.sha1(payload).digest()).decode()  # noqa: S324  # the digest of the standard


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
def test_a_row_and_where_its_record_lies(tmp_path, name):
    records = [
        record(b"software: test\r\n", "warcinfo", Content_Type="application/warc-fields"),
        record(answer(Content_Language="de, en"), name="<urn:uuid:1>", WARC_Target_URI="https://example.org/a"),
        record(b"GET / HTTP/1.1\r\n\r\n", "request"),
    ]
    path = write(tmp_path / name, records)
    (row,), bad_files = read(path)
    content = path.read_bytes()
    found = content[row["offset"] : row["offset"] + row["length"]]
    if name.endswith("zst"):
        found = zstandard.ZstdDecompressor().decompressobj().decompress(found)
    assert (gzip.decompress(found) if name.endswith("gz") else found) == records[1]
    assert {key: value for key, value in row.items() if key not in ("offset", "length")} == {
        "id": "<urn:uuid:1>",
        "text": None,
        "url": "https://example.org/a",
        "date": "2024-01-02T03:04:05Z",
        "source": name,
        "language": None,
        "html": PAGE.decode(),
        "status": 200,
        "mime": "text/html",
        "charset": "utf-8",
        "language_hint": "de, en",
        "truncated": None,
        "file": name,
        "digest": digest(PAGE),
    }
    assert bad_files.left_out == {"warcinfo": 1, "request": 1}


def without_place(rows):
    return [{key: value for key, value in row.items() if key not in ("offset", "length")} for row in rows]


def test_one_member_or_frame_around_all_records(tmp_path):
    records = [response(PAGE + b" " * number * 50_000) for number in range(9)]
    expected, _ = read(write(tmp_path / "x/a.warc", records))
    whole = b"".join(records)
    cut = [whole[place : place + 30_000] for place in range(0, len(whole), 30_000)]
    for packed in (
        gzip.compress(whole),
        zstandard.compress(whole),
        b"".join(map(gzip.compress, cut)),
        b"".join(map(zstandard.compress, cut)),
        gzip.compress(whole) + bytes(1000),
    ):
        (tmp_path / "a.warc").write_bytes(packed)
        rows, _ = read(tmp_path / "a.warc")
        assert without_place(rows) == without_place(expected)
        assert sum(row["offset"] is None for row in rows) >= 8
    head, body = records[1].split(b"\r\n\r\n", 1)
    two = gzip.compress(head + b"\r\n\r\n") + gzip.compress(body)
    (tmp_path / "a.warc").write_bytes(two)
    (row,), _ = read(tmp_path / "a.warc")
    assert (row["offset"], row["length"]) == (0, len(two))


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_empty_members_hold_nothing_and_cost_nothing(tmp_path, compress):
    empty, one = compress(b"") * 3, compress(response())
    (tmp_path / "a.warc").write_bytes(empty + one + empty + one + empty)
    rows, bad_files = read(tmp_path / "a.warc")
    assert [(row["offset"], row["length"]) for row in rows] == [
        (len(empty), len(one)),
        (2 * len(empty) + len(one), len(one)),
    ]
    assert bad_files.found == []


@pytest.mark.parametrize("packed", ["no", "yes"])
def test_a_zstd_dictionary_in_front(tmp_path, packed):
    records = [response(PAGE * 9 + str(number).encode()) for number in range(200)]
    dictionary = zstandard.train_dictionary(4_000, records)
    compressor = zstandard.ZstdCompressor(dict_data=dictionary, write_content_size=False)
    content = zstandard.compress(dictionary.as_bytes()) if packed == "yes" else dictionary.as_bytes()
    head = (0x184D2A5D).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content
    skippable = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"xyz"
    (tmp_path / "a.warc.zst").write_bytes(head + skippable.join(map(compressor.compress, records)))
    rows, _ = read(tmp_path / "a.warc.zst")
    expected, _ = read(write(tmp_path / "x/a.warc.zst", records))
    assert [(row["id"], row["html"]) for row in rows] == [(row["id"], row["html"]) for row in expected]
    assert rows[0]["offset"] == len(head)
    broken = tmp_path / "b.warc.zst"
    for content in (head[:-1], head[:4] + b"\xff\xff\xff\xff", head[:9] + b"\0" + head[10:]):
        broken.write_bytes(content)
        assert read(broken, "skip")[0] == []


def test_a_damaged_zstd_dictionary_in_front_is_reported(tmp_path):
    records = [response(PAGE * 9 + str(number).encode()) for number in range(200)]
    dictionary = zstandard.train_dictionary(4_000, records)
    compress = zstandard.ZstdCompressor(dict_data=dictionary).compress
    content = bytearray(dictionary.as_bytes())
    content[20] ^= 255  # in its tables, which are read with the first frame
    head = (0x184D2A5D).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content
    (tmp_path / "a.warc.zst").write_bytes(head + b"".join(map(compress, records)))
    rows, bad_files = read(tmp_path / "a.warc.zst", "skip")
    assert rows == []
    assert "a damaged zstd dictionary" in bad_files.found[0].reason


def test_texts_made_of_pages(tmp_path):
    text = "Zeile\nzwei… 你好\n".encode()
    conversion = record(
        text, "conversion", Content_Type="text/plain", WARC_Identified_Content_Language="deu", WARC_Refers_To="<urn:x>"
    )
    row = only(tmp_path / "a.warc.wet.gz", conversion)
    expected = {"text": text.decode(), "html": None, "status": None, "mime": "text/plain", "charset": "utf-8"}
    assert expected.items() <= row.items()
    assert (row["language_hint"], row["digest"]) == ("deu", digest(text))
    assert left_out(tmp_path / "a.wet", conversion, record_types=("response",)) == "conversion"
    plain = only(
        tmp_path / "a.warc", response("<p>&é".encode("latin-1"), Content_Type="Text/Plain; charset=ISO-8859-1")
    )
    assert (plain["text"], plain["html"], plain["mime"]) == ("<p>&é", None, "text/plain")


def test_resources(tmp_path):
    row = only(tmp_path / "a.warc", record(PAGE, "resource", Content_Type="text/html; charset=utf-8"))
    assert (row["html"], row["status"], row["charset"]) == (PAGE.decode(), None, "utf-8")
    assert only(tmp_path / "a.warc", record(PAGE, "resource", Content_Type=None))["mime"] == "text/html"
    log = record(b"log", "resource", WARC_Target_URI="metadata://gnu.org/wget/log", Content_Type="text/plain")
    assert left_out(tmp_path / "a.warc", log) == "crawl_log"
    assert left_out(tmp_path / "a.warc", record(b"\x89PNG", "resource", Content_Type="image/png")) == "mime_image"
    dns = record(b"20240101\n", "response", Content_Type="text/dns", WARC_Target_URI="dns:example.org")
    assert left_out(tmp_path / "a.warc", dns) == "mime_text"


def test_records_that_are_no_pages_are_counted_by_rule(tmp_path):
    kinds = ["warcinfo", "request", "metadata", "revisit", "continuation", "invented"]
    records = [record(answer(), kind) for kind in kinds]
    statuses = [
        "301 Moved",
        "302 Found",
        "304 Not Modified",
        "307 X",
        "308 X",
        "403 X",
        "404 X",
        "410 X",
        "500 X",
        "503",
    ]
    records += [record(answer(status=status)) for status in statuses]
    records += [record(answer(Content_Type=mime)) for mime in ("image/png", "application/zip", "x-odd/one", "text/css")]
    records += [record(answer(b"")), record(b"no HTTP at all"), record(answer(status="abc")), record(b"")]
    rows, bad_files = read(write(tmp_path / "a.warc.gz", records))
    assert rows == []
    assert bad_files.found == []
    assert bad_files.left_out == Counter(
        ["warcinfo", "request", "metadata", "revisit", "continuation", "other_type"]
        + [f"status_{status[:3]}" for status in statuses]
        + ["mime_image", "mime_application", "mime_other", "mime_text", "empty_body"]
        + ["no_status"] * 3
    )


def test_which_statuses_and_types_are_pages_can_be_set(tmp_path):
    not_found = record(answer(status="404 Not Found"))
    assert only(tmp_path / "a.warc", not_found, statuses=(200, 404))["status"] == 404
    assert only(tmp_path / "a.warc", not_found, statuses=())["status"] == 404
    feed = response(b"<rss>x</rss>", Content_Type="application/rss+xml")
    row = only(tmp_path / "a.warc", feed, mimes=("application/rss+xml",))
    assert (row["html"], row["text"]) == ("<rss>x</rss>", None)
    row = only(tmp_path / "a.warc", response(b"{}", Content_Type="application/json"), mimes=("application/json",))
    assert (row["html"], row["text"]) == (None, "{}")
    with pytest.raises(SourceError, match="at least one of record_types and of mimes"):
        Warc(data_files="x", mimes=())
    with pytest.raises(SourceError, match="record_types has 'revisit'; known: response, resource, conversion"):
        Warc(data_files="x", record_types=("revisit",))
    with pytest.raises(SourceError, match="max_record_bytes is 0: set it to 1"):
        Warc(data_files="x", max_record_bytes=0)
    with pytest.raises(SourceError, match=r"Warc.truncated takes one of 'keep', 'skip', got 'drop'"):
        Warc(data_files="x", truncated="drop")


def test_pages_without_a_type(tmp_path):
    path = tmp_path / "a.warc"
    for body in (PAGE, b"\xef\xbb\xbf \n<!DOCTYPE HTML>x", b"<!-- x --><p>", b"<H1 class=x>"):
        assert only(path, response(body, Content_Type=None))["mime"] == "text/html"
    for body in (b"plain text", b"<unheard of>", b"%PDF-1.7", b"<preposterous"):
        assert left_out(path, response(body, Content_Type=None)) == "no_mime"
    found_out = record(answer(b"plain", Content_Type=None), WARC_Identified_Payload_Type="text/plain")
    assert only(path, found_out)["text"] == "plain"
    found_out = record(answer(b"%PDF", Content_Type=None), WARC_Identified_Payload_Type="application/pdf")
    assert left_out(path, found_out) == "mime_application"
    wrong = record(answer(Content_Type=None), WARC_Identified_Payload_Type="application/octet-stream")
    assert only(path, wrong)["mime"] == "text/html"
    assert only(path, response(Content_Type=";;"))["mime"] == "text/html"


@pytest.mark.parametrize(
    ("declared", "mime"),
    [
        ('application/xhtml+xml; profile="http://www.wapforum.org/xhtml"', "application/xhtml+xml"),
        ("text/html;profile=http://www.w3.org/1999/xhtml", "text/html"),
        ("text/html; charset=utf-8; boundary=a/b", "text/html"),
        ('text/html; x="a,image/png"', "text/html"),
        ('text/html; x="image/png', "text/html"),
        ('image/png; x="unclosed, text/html', "text/html"),
        ("TEXT/HTML charset=a/b", "text/html"),
        ("image/png;a=b/c, text/html;a=b/c, ; charset=x/y", "text/html"),
    ],
)
def test_parameters_are_no_types(tmp_path, declared, mime):
    path = tmp_path / "a.warc"
    assert only(path, response(Content_Type=declared))["mime"] == mime
    assert left_out(path, response(Content_Type=f"{declared}, image/png")) == "mime_image"
    found_out = record(answer(b"plain", Content_Type=None), WARC_Identified_Payload_Type='text/plain; x="a/b, c/d"')
    assert only(path, found_out)["text"] == "plain"


def test_cut_pages_say_why(tmp_path):
    path = tmp_path / "a.warc"
    packed = gzip.compress(PAGE * 100, mtime=0)
    cut = {
        "length": record(answer(), WARC_Truncated="length"),
        "body": response(PAGE, Content_Length="1000"),
        "chunks": response(chunked(PAGE)[:-20], Transfer_Encoding="chunked"),
        "content_encoding": response(packed[:-20], Content_Encoding="gzip"),
    }
    for why, one in cut.items():
        row = only(path, one)
        assert row["truncated"] == why
        assert row["html"].startswith("<html><head><title>Gr")
        assert left_out(path, one, truncated="skip") == "truncated"
    assert only(path, response(chunked(PAGE)[:-2] + b"zz\r\nabc", Transfer_Encoding="chunked"))["html"] == PAGE.decode()
    broken = chunked(PAGE).replace(b"\r\n14\r\n", b"\r\n!!\r\n")
    assert only(path, response(broken, Transfer_Encoding="chunked"))["truncated"] == "chunks"
    assert only(path, response(PAGE, Content_Length=str(len(PAGE))))["truncated"] is None
    assert only(path, response(PAGE, Content_Length="3"))["truncated"] is None


ENCODED = {
    "gzip": gzip.compress(PAGE),
    "x-gzip": gzip.compress(PAGE[:9]) + gzip.compress(PAGE[9:]),
    "deflate": zlib.compress(PAGE),
    "Deflate": zlib.compress(PAGE)[2:-4],
    "br": brotli.compress(PAGE),
    "zstd": zstandard.compress(PAGE),
    "gzip, br": brotli.compress(gzip.compress(PAGE)),
    "identity": PAGE,
    "utf-8": PAGE,
    "": PAGE,
}


@pytest.mark.variants
@pytest.mark.parametrize("coding", ENCODED)
@pytest.mark.parametrize("transfer", ["plain", "chunked"])
def test_encodings_are_undone(tmp_path, coding, transfer):
    body = ENCODED[coding]
    headers = {"Content_Encoding": coding, "Content_Length": str(len(body))}
    if transfer == "chunked":
        body, headers = chunked(body), {"Content_Encoding": coding, "Transfer_Encoding": "chunked"}
    row = only(tmp_path / "a.warc", response(body, **headers))
    assert (row["html"], row["digest"], row["truncated"]) == (PAGE.decode(), digest(PAGE), None)


LONG = b"<html>" + b"".join(b"<p>%d words %d</p>" % (n, n * 7919 % 1_000_003) for n in range(1_500)) + b"</html>"
CHECKED = zstandard.ZstdCompressor(write_checksum=True)
PACKED = {
    "gzip": gzip.compress(LONG, mtime=0),
    "deflate": zlib.compress(LONG),
    "Deflate": zlib.compress(LONG)[2:-4],
    "br": brotli.compress(LONG),
    "zstd": CHECKED.compress(LONG),
}


def byte_by_byte(coding, body):
    """Decode with each library, a byte at a time; return the data, and whether the stream has ended."""
    if coding == "br":
        stream = brotli.Decompressor()
        decode, ended = stream.process, stream.is_finished
    elif coding == "zstd":
        stream = zstandard.ZstdDecompressor().decompressobj()
        decode, ended = stream.decompress, lambda: stream.eof
    else:
        stream = zlib.decompressobj({"gzip": 31, "deflate": 15, "Deflate": -15}[coding])
        decode, ended = stream.decompress, lambda: stream.eof
    data = b""
    with contextlib.suppress(zlib.error, brotli.error, zstandard.ZstdError):
        for place in range(len(body)):
            data += decode(body[place : place + 1])
            if ended():
                return data, True
    return data, False


@given(st.sampled_from(sorted(PACKED)), st.floats(0.01, 1), st.integers(0, 8))
def test_a_damaged_body_is_kept_up_to_its_damage(coding, share, bit):
    """Cut there, or one bit flipped there; what is kept without an end is said to be cut."""
    body = bytearray(PACKED[coding])
    place = max(8, min(int(share * len(body)), len(body) - 1))
    if bit == 8:
        del body[place:]
    else:
        body[place] ^= 1 << bit
    data, whole = byte_by_byte(coding, bytes(body))
    try:
        found, why = body_of(Message(200, {"content-encoding": coding}, bytes(body)), 1 << 24)
    except LeftOutError:
        found, why = b"", None
    if (
        bit != 8
        and coding in ("br", "Deflate")
        and not whole
        and (len(data) < 64 or re.search(rb"[\0-\x08]", data[:1024]))
    ):
        assert found == b""
    else:
        # Of a body that is cut ISA-L keeps the last byte back, if nothing has come behind it.
        assert data.startswith(found)
        assert len(data) - len(found) <= (bit == 8)
        assert why == (None if whole or not data else "content_encoding")


@pytest.mark.parametrize("coding", PACKED)
def test_what_follows_an_encoded_body_is_passed_over(tmp_path, coding):
    for after in (b"\0\0", b"and more", b"\r\n", b"x^ and more", b"(S", b"\x1f\x8b"):
        row = only(tmp_path / "a.warc", response(PACKED[coding] + after, Content_Encoding=coding))
        assert (row["html"].encode(), row["truncated"]) == (LONG, None)
    if coding != "br":
        cut = only(tmp_path / "a.warc", response(PACKED[coding][:-1], Content_Encoding=coding))
        assert (cut["html"].encode(), cut["truncated"]) == (LONG[: len(cut["html"])], "content_encoding")


def test_a_header_in_pieces_is_one(tmp_path):
    """A file's name and an extra field, longer than what is decoded at a time."""
    extra, name = (65_535).to_bytes(2, "little") + b"e" * 65_535, b"page.html\0"
    body = gzip.compress(PAGE, mtime=0)
    body = body[:3] + b"\x0c" + body[4:10] + extra + name + body[10:]
    row = only(tmp_path / "a.warc", response(body, Content_Encoding="gzip"))
    assert (row["html"], row["truncated"]) == (PAGE.decode(), None)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "unheard-of"])
def test_a_body_that_is_not_encoded_as_it_says(tmp_path, coding):
    """Crawlers undo encodings and leave the headers."""
    for transfer in (None, "chunked"):
        row = only(tmp_path / "a.warc", response(Content_Encoding=coding, Transfer_Encoding=transfer))
        assert (row["html"], row["truncated"]) == (PAGE.decode(), None)
    binary = bytes(range(256)) * 4
    assert left_out(tmp_path / "a.warc", response(binary, Content_Encoding=coding)) == "content_encoding"
    assert left_out(tmp_path / "a.warc", response(b"\x1f\x8b\x08", Content_Encoding="gzip")) == "content_encoding"
    assert left_out(tmp_path / "a.warc", response(Content_Encoding="gzip, gzip, gzip, gzip")) == "content_encoding"


GERMAN = "<p>Größe, Übung, naïve… “quotes” €</p>"
RUSSIAN = "<p>Съешь же ещё этих мягких французских булок</p>"
JAPANESE = "<p>いろはにほへと ちりぬるを わかよたれそ</p>"
CHINESE = "<p>天地玄黄 宇宙洪荒 日月盈昃 辰宿列张</p>"
META = '<meta http-equiv="Content-Type" content="text/html; charset={}">'

CHARSETS = {
    "declared": (GERMAN, "cp1252", "ISO-8859-1", "", "windows-1252"),
    "declared, quoted": (RUSSIAN, "koi8-r", '"KOI8-R"', "", "koi8-r"),
    "own": (RUSSIAN, "cp1251", None, META.format("windows-1251"), "windows-1251"),
    "own, short": (JAPANESE, "cp932", None, "<META CHARSET=x-sjis>", "shift_jis"),
    "own, after a comment": (CHINESE, "gbk", None, "<!-- <meta charset=utf-8> --><meta charset='gb2312'>", "gb18030"),
    "xml": (RUSSIAN, "iso8859-5", None, '<?xml version="1.0" encoding="ISO-8859-5"?>', "iso-8859-5"),
    "declared before own": (JAPANESE, "euc_jp", "euc-jp", META.format("shift_jis"), "euc-jp"),
    "seven bits": (JAPANESE, "iso2022_jp", "iso-2022-jp", "", "iso-2022-jp"),
    "nothing said": (GERMAN, "utf-8", None, "", "utf-8"),
    "nothing said, not UTF-8": (GERMAN, "cp1252", None, "", "windows-1252"),
    "wrong header": (GERMAN, "cp1252", "utf-8", META.format("utf-8"), "windows-1252"),
    "wrong header, own right": (RUSSIAN, "cp1251", "utf-8", META.format("cp1251"), "windows-1251"),
    "one byte per character says nothing": (CHINESE, "utf-8", "ISO-8859-1", META.format("iso-8859-2"), "utf-8"),
    "unknown name": (GERMAN, "utf-8", "x-unknown-9", "", "utf-8"),
    "unknown name, own right": (RUSSIAN, "koi8-r", "none", META.format("koi8-r"), "koi8-r"),
    "a codec that is no charset": (GERMAN, "utf-8", "hex", META.format("rot13"), "utf-8"),
    "own UTF-16 cannot be": (GERMAN, "utf-8", None, META.format("utf-16"), "utf-8"),
    "UTF-16 in the header": (GERMAN, "utf-16-be", "utf-16be", "", "utf-16be"),
    "UTF-16 in the header only": (GERMAN, "utf-8", "utf-16", "", "utf-8"),
    "byte order mark of UTF-16": ("\ufeff" + RUSSIAN, "utf-16-le", "utf-8", "", "utf-16le"),
    "byte order mark of UTF-16, big": ("\ufeff" + RUSSIAN, "utf-16-be", None, "", "utf-16be"),
    "byte order mark of UTF-8": ("\ufeff" + CHINESE, "utf-8", "gbk", "", "utf-8"),
    "zero bytes": (GERMAN.replace("ß", "ß\0"), "utf-8", "utf-8", "", "utf-8"),
}


@pytest.mark.parametrize("name", ["a.warc", pytest.param("a.warc.gz", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CHARSETS)
def test_charsets(tmp_path, case, name):
    text, codec, declared, head, charset = CHARSETS[case]
    mark = "\ufeff" * text.startswith("\ufeff")
    page = (mark + head + text.removeprefix(mark)).encode(codec)
    kind = "text/html" + (f"; charset={declared}" if declared else "")
    row = only(tmp_path / name, response(page, Content_Type=kind))
    assert (row["html"], row["charset"]) == (head + text.removeprefix(mark).replace("\0", ""), charset)
    assert row["digest"] == digest(page)


def test_pages_with_a_few_malformed_characters(tmp_path):
    path = tmp_path / "a.warc"
    cut = RUSSIAN.encode()[:-5]
    assert only(path, response(cut))["html"] == cut.decode("utf-8", "replace")
    assert "\ufffd" in only(path, response(cut))["html"]
    pasted = CHINESE.encode("gbk") + b"\xff"
    row = only(path, response(pasted, Content_Type="text/html; charset=gb2312"))
    assert (row["html"], row["charset"]) == (CHINESE + "\ufffd", "gb18030")
    row = only(path, response(b"<p>it\x92s \x81 fine\xe9</p>"))
    assert (row["html"], row["charset"]) == ("<p>it’s \x81 fineé</p>", "windows-1252")  # noqa: RUF001  # what it says


GUESSED = {
    "Пароход пришёл в порт, и весь город вышел на пристань.": ("windows-1251", "koi8-r"),
    "El señor Núñez llegó ayer; ¿quién lo esperaba todavía?": ("windows-1252",),
    "Późną jesienią źdźbła trawy są mokre, a łódź śpi.": ("windows-1250", "iso-8859-2"),
    "Gemi sabah limana girdi, çocuklar şaşkın şaşkın ona baktı.": ("windows-1254",),  # noqa: RUF001  # what it says
    "汽船が港に着いたので、町の人はみな波止場へ出かけた。": ("euc-jp", "shift_jis"),
    "轮船到了港口，全城的人都到码头上去看它。": ("gb18030",),  # noqa: RUF001  # what it says
    "輪船到了港口，全城的人都到碼頭上去看它。": ("big5",),  # noqa: RUF001  # what it says
    "기선이 항구에 들어오자 온 마을 사람들이 부두로 나갔다.": ("euc-kr",),
    "وصلت الباخرة إلى الميناء فخرج أهل المدينة كلهم لرؤيتها.": ("windows-1256",),
    "Το πλοίο έφτασε στο λιμάνι και όλη η πόλη βγήκε να το δει.": ("windows-1253",),  # noqa: RUF001  # what it says
}


@pytest.mark.variants
@pytest.mark.parametrize(
    "around", ["{}", "<title>{}</title>" + "<p>Home and more</p>\n" * 300 + "<p>{}</p>", "{} " * 50]
)
@pytest.mark.parametrize(("text", "charset"), [(text, name) for text, names in GUESSED.items() for name in names])
def test_a_charset_that_nobody_names_is_guessed_and_counted(tmp_path, text, charset, around):
    page = around.format(*[text] * around.count("{}"))
    rows, bad_files = read(write(tmp_path / "a.warc.gz", [response(page.encode(charset), Content_Type="text/html")]))
    assert [(row["html"], row["charset"]) for row in rows] == [(page, charset)]
    assert bad_files.encodings == {f"{charset}, guessed": 1}


def test_a_malformed_byte_and_few_bytes_are_guessed_like_others():
    for text, names in GUESSED.items():
        for name in names:
            page = (text * 9).encode(name) + b"\n\xff\n" + (text * 9).encode(name)
            assert text in bytes(decode_page(page, None, markup=True).utf8).decode()
    assert decode_page("caffè".encode("latin-1"), None, markup=True) == ("caffè".encode(), "windows-1252", True)
    assert not decode_page("caffè".encode("latin-1"), "latin-1", markup=True).is_guessed
    assert not decode_page("caffè".encode(), None, markup=True).is_guessed


@given(st.binary(max_size=60), st.sampled_from([None, *(case[2] for case in CHARSETS.values())]))
def test_any_bytes_are_some_text(page, declared):
    text, charset, _ = decode_page(page, declared, markup=True)
    assert "\0" not in text.decode()
    if charset == "utf-8" and not page.startswith(b"\xef\xbb\xbf"):
        assert text.decode() == page.decode("utf-8", "replace").replace("\0", "")


@pytest.mark.parametrize("shift", range(4))
def test_long_pages_are_checked_whole(tmp_path, shift):
    text = "x" * shift + "😀" * 20_000
    assert only(tmp_path / "a.warc", response(text.encode()))["charset"] == "utf-8"
    cut = only(tmp_path / "a.warc", response(text.encode()[:-1]))
    assert (cut["charset"], cut["html"]) == ("utf-8", text[:-1] + "\ufffd")
    late = only(tmp_path / "a.warc", response(b"x" * 40_000 + b"\xe9" + b"y" * shift))
    assert late["charset"] == "windows-1252"


@pytest.mark.variants
@pytest.mark.parametrize("kind", ["application/http; msgtype=response", None])
@pytest.mark.parametrize(
    "line",
    ["HTTP 200 OK", "HTTP/1.1200 OK", "HTTP/2 200", "ICY 200 OK", "http/1.1 200 OK", "HTTP1.0 200", "HTTP/200 OK"],
)
def test_a_status_line_without_a_version_or_with_an_odd_one_has_its_status(tmp_path, line, kind):
    block = answer().replace(b"HTTP/1.1 200 OK", line.encode())
    row = only(tmp_path / "a.warc", record(block, Content_Type=kind))
    assert (row["status"], row["html"], row["mime"]) == (200, PAGE.decode(), "text/html")
    moved = record(block.replace(b"200", b"301"), Content_Type=kind)
    assert left_out(tmp_path / "a.warc", moved) == "status_301"


def test_odd_headers(tmp_path):
    path = tmp_path / "a.warc"
    row = only(path, record(answer(), WARC_Target_URI="<http://example.com/>"))
    assert row["url"] == "http://example.com/"
    assert only(path, record(answer(), WARC_Target_URI=None))["url"] is None
    rows, _ = read(write(path, [response(), record(answer(), WARC_Record_ID=None)]))
    assert rows[1]["id"] == "a.warc:1"
    bare = response().replace(b"\r\n", b"\n")
    length = len(answer().replace(b"\r\n", b"\n"))
    assert only(path, bare.replace(b"Length: %d" % len(answer()), b"Length: %d" % length))["html"] == PAGE.decode()
    folded = record(answer().replace(b"charset", b"\r\n charset"), warc_tYPE=None)
    assert only(path, folded)["charset"] == "utf-8"
    assert only(path, record(answer().replace(b"HTTP/1.1 200 OK", b"HTTP/2 200")))["status"] == 200
    assert only(path, record(answer().replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200")))["status"] == 200
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    assert only(path, record(early + answer()))["html"] == PAGE.decode()
    assert left_out(path, record(early[:25])) == "status_100"
    twice = answer().replace(b"Content-Type", b"Content-Type: application/json\r\nContent-Type", 1)
    assert only(path, record(twice))["mime"] == "text/html"
    assert only(path, record(answer(), WARC_Target_URI="https://example.org/ä"))["url"] == "https://example.org/ä"
    latin = record(answer(), WARC_Target_URI="https://example.org/ä").replace("ä".encode(), b"\xe4")
    assert only(path, latin)["url"] == "https://example.org/ä"


def test_twins_stay_two_rows(tmp_path):
    one = response()
    write(tmp_path / "a.warc.gz", [one, one])
    write(tmp_path / "b.warc.gz", [one])
    rows, _ = read(tmp_path / "*.warc.gz")
    assert [row["source"] for row in rows] == ["a.warc.gz", "a.warc.gz", "b.warc.gz"]
    assert len({row["id"] for row in rows}) == 1


def test_without_digests_all_else_is_the_same(tmp_path, monkeypatch):
    path = write(tmp_path / "a.warc.gz", [response(PAGE * (1 + number % 7)) for number in range(60)])
    monkeypatch.setattr(tables, "BLOCK_BYTES", 2_000)
    source = Warc(data_files=str(path))
    without = source.for_tokens([])
    assert without == Warc(data_files=str(path), digests=False)
    assert without.settings() == source.settings() | {"digests": False}
    (part,) = source.splits()["train"]
    expected = [table.drop("digest") for table in source.read(part, BadFiles())]
    found = list(without.read(part, BadFiles()))
    assert found == expected
    assert {table.schema for table in found} == {without.schema()}


@pytest.mark.parametrize("more", [0, -1])
def test_tables_are_cut_by_the_text_they_hold(tmp_path, monkeypatch, more):
    path = write(tmp_path / "a.warc.gz", [response(PAGE * (1 + number % 7)) for number in range(60)])
    source = Warc(data_files=str(path))
    (part,) = source.splits()["train"]
    (whole,) = source.read(part, BadFiles())
    sizes = [sum(len(value.encode()) for value in row.values() if isinstance(value, str)) for row in whole.to_pylist()]
    limit = sum(sizes[:3]) + more
    monkeypatch.setattr(tables, "BLOCK_BYTES", limit)
    cut = list(source.read(part, BadFiles()))
    expected = [[]]
    for size in sizes:
        if expected[-1] and sum(expected[-1]) + size > limit:
            expected.append([])
        expected[-1].append(size)
    assert [table.num_rows for table in cut] == list(map(len, expected))
    assert len(expected[0]) == 3 + more
    assert [row for table in cut for row in table.to_pylist()] == whole.to_pylist()
    assert [table.num_rows for table in source.read(part, BadFiles())] == [table.num_rows for table in cut]
    monkeypatch.setattr(tables, "ROWS", 1)
    assert [table.num_rows for table in source.read(part, BadFiles())] == [1] * 60


def test_a_member_that_begins_with_no_version_is_no_record(tmp_path):
    one = response()
    path = write(
        tmp_path / "a.warc.gz", [one, one.replace(b"WARC/1.0", b"WAR/1.0 ", 1), one.replace(b"1.0", b"one", 1)]
    )
    rows, bad_files = read(path, "skip")
    assert len(rows) == 1
    assert "does not begin with a version" in bad_files.found[0].reason


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
def test_what_is_too_large_is_left_out(tmp_path, name):
    small, large = response(b"<p>small</p>"), response(b"<p>" + bytes(range(32, 127)) * 4_000)
    path = write(tmp_path / name, [small, large, small, large])
    rows, bad_files = read(path, max_record_bytes=10_000)
    assert [row["html"] for row in rows] == ["<p>small</p>"] * 2
    assert bad_files.left_out == {"max_record_bytes": 2}
    assert bad_files.found == []
    one = tmp_path / "one.warc.gz"
    one.write_bytes(gzip.compress(small + large + small + large))
    assert len(read(one, max_record_bytes=10_000)[0]) == 2


MEASURE = """
import resource, sys
from longcrawl.core.sources import BadFiles
from longcrawl.sources.warc.source import Warc
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
for path in sys.argv[1:]:
    before, bad_files, source = peak(), BadFiles(), Warc(data_files=path, max_record_bytes=8 << 20)
    rows = sum(table.num_rows for part in source.splits()["train"] for table in source.read(part, bad_files))
    print(path.rpartition("/")[2], rows, dict(bad_files.left_out), peak() - before)
"""


def test_bombs_take_no_memory(tmp_path, python):
    """80 MB of zeros in a page, and a record of 80 MB, in a process that has not held so much before."""
    zeros = bytes(80 << 20)
    packed = gzip.compress(zeros, 1)
    bombs = {
        "gzip": packed,
        "deflate": zlib.compress(zeros, 1),
        "br": brotli.compress(zeros, quality=1),
        "zstd": zstandard.compress(zeros),
        "gzip, gzip": gzip.compress(packed),
    }
    paths = [tmp_path / "first.warc"]
    write(paths[0], [response(), response(), response(b"x" * (9 << 20))])
    for coding, body in bombs.items():
        paths.append(tmp_path / f"{coding.replace(', ', '-')}.warc")
        write(paths[-1], [response(), response(body, Content_Encoding=coding), response()])
    huge = record(answer(zeros))
    fastest = functools.partial(gzip.compress, compresslevel=1)
    for compress, name in ((fastest, "record.warc.gz"), (zstandard.compress, "record.warc.zst")):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(compress(response()) + compress(huge) + compress(response()))
    done = python(MEASURE, *paths)
    assert done.returncode == 0, done.stderr
    for line, path in zip(done.stdout.splitlines(), paths, strict=True):
        name, rows, *rule, grown = line.split()
        assert (name, rows, " ".join(rule)) == (path.name, "2", "{'max_record_bytes': 1}")
        assert int(grown) < 64 or path == paths[0], line  # MB; kernels may be compiled for the first one


def test_headers_longer_than_their_pages_are_not_kept(tmp_path):
    path = write(tmp_path / "a.warc.gz", [record(answer(), X="x" * 200_000) for _ in range(40)])
    tracemalloc.start()
    try:
        assert len(read(path)[0]) == 40
        assert tracemalloc.get_traced_memory()[1] < 4_000_000 + compressed.WHOLE_BYTES  # which short members share
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_members_of_one_byte_take_linear_time():
    """Each wrong header was compared with every member of the file: 80,000 of them took minutes."""

    def seconds(members: int) -> float:
        heads = (b"WARC/1.0\r\nContent-Length: %d\r\n\r\n" % (2 * members - 11) for _ in range(members // 20))
        content = gzip.compress(b"".join(heads)) + gzip.compress(b"yy") * members
        begun = time.process_time()
        assert len(list(read_records(io.BytesIO(content), 1 << 30, Lost(BadFiles("skip"), "a")))) <= 1
        return time.process_time() - begun

    seconds(1_000)
    small, large = seconds(4_000), seconds(16_000)
    assert large < 8 * small + 0.1, f"{small:.3f} s, four times as many {large:.3f} s"


def test_bytes_of_a_window_move_once_for_as_many_that_are_added():
    """Records that name more bytes than there are were moved by each few bytes that were added behind them."""

    def seconds(size: int) -> float:
        window = Window()
        window.add(bytes(size))
        begun = time.process_time()
        for _ in range(2_000):
            window.take(40)
            window.add(bytes(40))
        assert bytes(window.view()) == bytes(size)
        return time.process_time() - begun

    small, large = seconds(100_000), seconds(30_000_000)
    assert large < 20 * small + 0.1, f"{small:.3f} s, of 300 times as many bytes {large:.3f} s"


def test_a_window_does_not_keep_the_memory_of_one_long_record():
    window = Window()
    window.add(bytes(100 << 20))
    window.take(100 << 20)
    for _ in range(100):
        window.add(bytes(1 << 20))
        window.take(1 << 20)
    assert len(window._memory) < 10 << 20


def test_hostile_headers_take_no_time(tmp_path):
    """None may take time that grows with the square of its length; a test that hangs is what would show it."""
    path = tmp_path / "a.warc"
    for content in (
        b"WARC/1.0\r\nWARC-Type: response\r\nX: a\r\n" + b" b\r\n" * 30_000 + b"\r\n",
        b"WARC/1.0\r\n" + b"a:b\r\n" * 30_000 + b"Content-Length: 0\r\n\r\n",
        b"WARC/1.0\r\n" * 30_000,
        b"WARC/1.0\r\nContent-Length: 50000000\r\n\r\n" * 10_000,
        b"WARC/1.0\r\nContent-Length: 999999999999\r\n\r\n" * 10_000,
        b"\r\n" * 150_000,
        b"\x1f\x8b\x08\x00" * 15_000,
        b"\x28\xb5\x2f\xfd" * 15_000,
        response(b"1\r\nx\r\n" * 100_000, Transfer_Encoding="chunked"),
        response(b"<!-" * 2_000 + b"<meta " * 2_000),
    ):
        path.write_bytes(content)
        rows, _ = read(path, "skip")
        assert len(rows) <= 1


@pytest.mark.parametrize("name", ["a.warc.gz", "a.warc.zst"])
def test_a_damaged_member_costs_its_own_record_only(tmp_path, name):
    records = [response(PAGE + os.urandom(300).hex().encode()) for _ in range(6)]
    path = write(tmp_path / name, records)
    content, (rows, _) = path.read_bytes(), read(path)
    for number, row in enumerate(rows):
        middle = row["offset"] + row["length"] // 2
        damaged = content[:middle] + bytes(255 - byte for byte in content[middle : middle + 9]) + content[middle + 9 :]
        path.write_bytes(damaged)
        left, bad_files = read(path, "skip")
        assert left == rows[:number] + rows[number + 1 :]
        (bad,) = bad_files.found
        assert f"from byte {row['offset']:,} to " in bad.reason
        assert bad.records_lost == 1 or (number == 5 and bad.records_lost is None)
        with pytest.raises(SourceError, match=rf"{name}: at byte {row['offset']:,}: .*; to continue without it"):
            read(path)
        with pytest.warns(UserWarning, match=f"from byte {row['offset']:,}"):
            assert read(path, "warn")[0] == left


@pytest.mark.parametrize(("name", "magic_bytes"), [("a.warc.gz", 2), ("a.warc.zst", 4)])
def test_nobody_knows_how_many_records_bytes_hold_that_are_not_a_member(tmp_path, name, magic_bytes):
    path = write(tmp_path / name, [response() for _ in range(4)])
    content, (rows, _) = path.read_bytes(), read(path)
    place = rows[2]["offset"]
    for flipped in range(place, place + magic_bytes):
        path.write_bytes(content[:flipped] + bytes([content[flipped] ^ 4]) + content[flipped + 1 :])
        left, bad_files = read(path, "skip")
        assert left == rows[:2] + rows[3:]
        assert [bad.records_lost for bad in bad_files.found] == [None]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
def test_long_members_leave_at_once_where_their_checksums_come_last(tmp_path, monkeypatch, pack):
    """Who throws away what was made of data that is wrong waits for no checksum, and nothing is decompressed twice."""
    path = tmp_path / ("a.warc.gz" if pack is gzip.compress else "a.warc.zst")
    short = [pack(response()) for _ in range(4)]
    first = b"".join([*short[:2], pack(b"".join(response(1_000 * PAGE + b"%d" % number) for number in range(40)))])
    content = first + short[2] + short[3]
    path.write_bytes(content)
    monkeypatch.setattr(compressed, "WHOLE_BYTES", 1_000)
    monkeypatch.setattr(compressed, "HELD_BYTES", 2_000)
    expected = read(path)[0]
    damaged = content[: len(first) - 3] + bytes([content[len(first) - 3] ^ 1]) + content[len(first) - 2 :]
    with monkeypatch.context() as patched:
        patched.setattr(compressed.Members, "_again", None)
        assert read(path, checksums="last")[0] == expected
        path.write_bytes(damaged)
        with pytest.raises(UncheckedDataError):
            read(path, "skip", checksums="last")
    rows, bad_files = read(path, "skip")
    assert rows == expected[:2] + expected[-2:]
    assert [bad.records_lost for bad in bad_files.found] == [40]


def test_a_record_after_damage_keeps_its_page_while_the_file_is_read_on(tmp_path):
    """If a member holds several records, those behind the damage are read before the loss is noted."""
    pages = [b"<p>%d</p>" % number * length for number, length in enumerate((1_000, 300, 300))]
    first, *others = map(response, pages)
    path = tmp_path / "a.warc.gz"
    member = gzip.compress(response()[:-9] + b"\r\n" + first)
    path.write_bytes(member + gzip.compress(b"".join(others)))
    rows, bad_files = read(path, "skip")
    assert [row["html"].encode() for row in rows] == pages
    (bad,) = bad_files.found
    assert bad.reason.startswith(
        f"cannot be read from byte 0 to {len(member)}: a record's Content-Length does not lead"
    )


@pytest.mark.variants
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
def test_a_file_cut_anywhere_keeps_the_whole_records_before(tmp_path, name):
    path = write(tmp_path / name, [response() for _ in range(4)])
    content, (rows, _) = path.read_bytes(), read(path)
    ends = [row["offset"] + row["length"] for row in rows]
    for cut in [*range(1, len(content), 23), *ends]:
        path.write_bytes(content[:cut])
        left, bad_files = read(path, "skip")
        slack = 4 if name == "a.warc" else 0  # the line ends after the last block are no part of it
        assert left == [row | {"length": left[number]["length"]} for number, row in enumerate(rows[: len(left)])]
        assert len(left) == sum(end - slack <= cut for end in ends)
        assert bool(bad_files.found) == (cut not in ends and not any(end - slack <= cut <= end for end in ends))
        if bad_files.found:
            assert bad_files.found[0].records_lost is None


@pytest.mark.variants
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
@pytest.mark.parametrize(
    "garbage", [b"garbage", b"\1\2\0" * 70_000, b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"WARC/1.0\r\n"]
)
def test_garbage_between_records_costs_none(tmp_path, name, garbage):
    path = write(tmp_path / name, [response() for _ in range(3)])
    content, (rows, _) = path.read_bytes(), read(path)
    place = rows[1]["offset"]
    path.write_bytes(content[:place] + garbage + b"\r\n" + content[place:])
    left, bad_files = read(path, "skip")
    assert [row["id"] for row in left] == [row["id"] for row in rows]
    assert left[1]["offset"] == place + len(garbage) + 2
    (bad,) = bad_files.found
    assert bad.reason.startswith(f"cannot be read from byte {place:,} to {place + len(garbage) + 2:,}: ")


@pytest.mark.variants
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", pytest.param("a.warc.zst", marks=pytest.mark.slow)])
@pytest.mark.parametrize("wrong", [-20, -1, 6, 100, 400, 5_000, 10**8, 10**15])
def test_a_wrong_content_length_costs_one_record(tmp_path, name, wrong):
    block = answer(PAGE * 2)
    records = [response(), record(block, Content_Length=str(len(block) + wrong)), response(), response()]
    rows, bad_files = read(write(tmp_path / name, records), "skip")
    ids = [row["id"] for row in rows]
    assert len(ids) == 3
    assert len(bad_files.found) == 1
    assert rows[0]["offset"] == 0
    rows, _ = read(write(tmp_path / name, [records[0], *records[2:]]))
    assert [row["id"] for row in rows] == ids


@pytest.mark.variants
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("each", [8, 40])
def test_records_dropped_with_a_wrong_length_are_counted(tmp_path, pack, each):
    """A member cannot be read again, so a length that is too long takes the records behind it."""
    path, block = tmp_path / "a.warc", answer()
    for wrong in range(1_000, 1_000 + len(response()), 23):
        records = [response() for _ in range(40)]
        records[3] = record(block, Content_Length=str(len(block) + wrong))
        path.write_bytes(b"".join(pack(b"".join(records[first : first + each])) for first in range(0, 40, each)))
        rows, bad_files = read(path, "skip", max_record_bytes=1_000)
        if not bad_files.left_out:  # else it leads to an empty line, as a right one does
            assert [bad.records_lost for bad in bad_files.found] == [40 - len(rows)], wrong


def test_records_without_length_or_end(tmp_path):
    path = tmp_path / "a.warc"
    for odd in (
        record(answer(), Content_Length=None),
        record(answer(), Content_Length="many"),
        b"WARC/1.0\r\nContent-Length: 3\r\n",
        b"WARC/one\r\nContent-Length: 0\r\n\r\n",
    ):
        path.write_bytes(response() + odd + response())
        rows, bad_files = read(path, "skip")
        assert len(rows) == 2
        assert bad_files.found[0].records_lost == 1


def test_the_report_names_the_first_stretches_and_counts_all(tmp_path):
    path = write(tmp_path / "a.warc", [one for _ in range(15) for one in (response(), b"garbage\r\n")] + [response()])
    rows, bad_files = read(path, "skip")
    assert len(rows) == 16
    (bad,) = bad_files.found
    assert bad.reason.count("from byte") == 10
    assert bad.reason.endswith("; and 5 more stretches")
    assert bad.records_lost == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "contains no web archive records"),
        (b"\0" * 100, "contains no web archive records"),
        (b"<html>", "no record begins here, then contains no web archive records"),
        (b"filedesc://a.arc 127.0.0.1 20140301 text/plain 5\n1 0 X\n", "`warcio recompress FILE.arc FILE.warc.gz`"),
        (gzip.compress(b"filedesc://a.arc", mtime=0), "this is an ARC file"),
        (gzip.compress(b"", mtime=0), "contains no web archive records"),
        (b"BZh91AY&SY", "no record begins here"),
        (b"PK\3\4", "no record begins here"),
    ],
)
def test_what_is_no_web_archive(tmp_path, content, reason):
    (tmp_path / "a.warc.gz").write_bytes(content)
    rows, bad_files = read(tmp_path / "a.warc.gz", "skip")
    assert rows == []
    assert reason in bad_files.found[0].reason
    with pytest.raises(SourceError, match="a.warc.gz: at byte 0: "):
        read(tmp_path / "a.warc.gz")


def test_an_arc_file_is_one_reason_that_ends_in_what_to_type(tmp_path):
    content = [b"filedesc://a.arc 127.0.0.1 20140301 text/plain 5\n1 0 X\n", b"http://a/ 1.1.1.1 2014 text/html 1\nx\n"]
    for path in (tmp_path / "a.arc", tmp_path / "a.arc.gz"):
        _, bad_files = read(write(path, content), "skip")
        (bad,) = bad_files.found
        assert bad.reason.endswith(" with `warcio recompress FILE.arc FILE.warc.gz`"), bad.reason


def test_files_that_cannot_be_opened(tmp_path):
    rows, bad_files = read(tmp_path / "missing.warc", "skip")
    assert (rows, bad_files.found[0].reason) == ([], "is missing")
    (tmp_path / "folder.warc").mkdir()
    rows, bad_files = read(tmp_path / "folder.warc", "skip")
    assert bad_files.found[0].reason == "cannot be read: Is a directory"
    with pytest.raises(
        SourceError, match="has nothing to read; set data_dir='FOLDER' or data_files='FOLDER/\\*.warc.gz"
    ):
        Warc().splits()
    with pytest.raises(
        SourceError, match=r"holds no file that can be read; known endings: \.warc, \.wet, \.arc, and these with"
    ):
        Warc(data_dir=str(tmp_path / "folder.warc")).splits()


@pytest.fixture
def crawl(tmp_path):
    for number in range(3):
        write(tmp_path / f"crawl/{number}/a.warc.gz", [record(answer()), *(response(PAGE * 9) for _ in range(number))])
    write(tmp_path / "crawl/0.warc.wet.gz", [record(b"Text", "conversion", Content_Type="text/plain")])
    (tmp_path / "crawl/readme.txt").write_text("not read")
    return tmp_path / "crawl"


@pytest.mark.slow
def test_load_dataset_streaming_processes_and_urls_agree(crawl, tmp_path, web_server):
    whole = load_dataset("longcrawl", "warc", data_dir=str(crawl), split="train")
    assert whole["source"] == ["0.warc.wet.gz"] + ["0/a.warc.gz"] + ["1/a.warc.gz"] * 2 + ["2/a.warc.gz"] * 3
    assert (
        list(load_dataset("longcrawl", "warc", data_dir=str(crawl), split="train", streaming=True)) == whole.to_list()
    )
    parallel = load_dataset(
        "longcrawl", "warc", data_dir=str(crawl), split="train", num_proc=2, cache_dir=str(tmp_path / "cache")
    )
    assert parallel.to_list() == whole.to_list()
    assert lc.load("warc", data_dir=str(crawl)).to_list() == whole.to_list()
    named = load_dataset("longcrawl", "warc", data_files=str(crawl / "*/*.warc.gz"), split="train")
    assert named["id"] == whole["id"][1:]
    url = web_server(crawl)
    urls = [f"{url}/{number}/a.warc.gz" for number in range(3)]
    for streaming in (False, True):
        remote = load_dataset("longcrawl", "warc", data_files=urls, split="train", streaming=streaming)
        assert list(remote) == named.to_list()


class Unreliable(http.server.BaseHTTPRequestHandler):
    """Sends ranges of a content, and an error to every third request; of one file, none of the second half."""

    requests = itertools.count(1)

    def __init__(self, content, *args):
        self._content = content
        super().__init__(*args)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self._content)))
        self.end_headers()

    def do_GET(self):
        first, last = (int(place) for place in self.headers["Range"].removeprefix("bytes=").split("-"))
        probe = first == len(self._content) - 1
        if next(self.requests) % 3 == 0 or ("dies" in self.path and not probe and last > len(self._content) // 2):
            self.send_error(503)
            return
        found = self._content[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(found) - 1}/{len(self._content)}")
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *args):
        pass


class NoRanges(http.server.SimpleHTTPRequestHandler):
    """Sends files whole, whatever part of them was asked for."""

    def log_message(self, *args):
        pass


def test_remote_files_are_read_in_ranges_where_the_server_can(tmp_path, web_server, monkeypatch):
    path = write(tmp_path / "a.warc.gz", [response(os.urandom(20_000).hex().encode()) for _ in range(40)])
    expected, _ = read(path)
    monkeypatch.setattr(files, "RANGE_BYTES", 25_000)
    monkeypatch.setattr(file_systems, "PAUSE", 0.01)
    assert read(f"{web_server(tmp_path)}/a.warc.gz")[0] == expected
    assert read(f"{web_server(tmp_path, failures=2)}/a.warc.gz")[0] == expected
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Unreliable, path.read_bytes())) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert read(f"{url}/a.warc.gz")[0] == expected
        monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.1)
        with pytest.raises(NotYetError, match=r"dies.warc.gz: cannot be fetched now \(ClientResponseError: 503"):
            read(f"{url}/dies.warc.gz", "skip")
        server.shutdown()
    rows, bad_files = read(f"{web_server(tmp_path)}/b.warc.gz", "skip")
    assert (rows, bad_files.found[0].reason) == ([], "is missing")
    path.write_bytes(path.read_bytes()[:-9])
    rows, bad_files = read(f"{web_server(tmp_path)}/a.warc.gz", "skip")
    assert rows == expected[:-1]
    assert len(bad_files.found) == 1
    fsspec.filesystem("memory").put(str(path), "/archives/a.warc.gz")
    assert read("memory://archives/a.warc.gz", "skip")[0] == rows


def test_a_server_that_knows_no_ranges(tmp_path):
    path = write(tmp_path / "a.warc.gz", [response() for _ in range(9)])
    handler = functools.partial(NoRanges, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        rows, _ = read(f"http://127.0.0.1:{server.server_port}/a.warc.gz")
        server.shutdown()
    assert rows == read(path)[0]


def test_a_dataset_counts_broken_files(tmp_path, caplog):
    path = write(tmp_path / "a.warc.gz", [response(), response(), record(b"", "request")])
    path.write_bytes(path.read_bytes() + b"garbage")
    with caplog.at_level("INFO", logger="longcrawl"):
        data = load_dataset("longcrawl", "warc", data_files=str(path), split="train", on_bad_files="skip")
    assert len(data) == 2
    assert "1 records are not documents, by rule: request 1" in caplog.text
    assert "1 input files could not be read completely" in caplog.text


def test_a_crawl_of_texts(tmp_path):
    texts = [record(b"Text " * number, "conversion", Content_Type="text/plain") for number in (5, 100)]
    crawl = lc.open("warc", data_files=str(write(tmp_path / "a.warc.wet.gz", texts)))
    long = crawl | lc.text.MinChars(100)
    assert long.data["text"] == ["Text " * 100]


def test_fastwarc_reads_the_same_pages(tmp_path):
    records = [response(PAGE * number, WARC_X="y") for number in range(1, 50)] + [record(b"x", "metadata")]
    for name in ("a.warc", "a.warc.gz", "a.warc.zst"):
        path = write(tmp_path / name, records)
        rows, _ = read(path)
        expected = [
            (found.record_id, found.reader.read().decode(), found.stream_pos)
            for found in ArchiveIterator(str(path))
            if found.is_http and found.headers["WARC-Type"] == "response"
        ]
        assert [(row["id"], row["html"], row["offset"]) for row in rows] == expected


@pytest.mark.slow
def test_fuzzed_archives_are_survived():
    script = ROOT / "benchmarks" / "fuzz_warc.py"
    done = subprocess.run(
        [sys.executable, str(script), "--inputs", "150"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.splitlines()[-1:] == ["fuzz_warc ratio=1.000"], done.stdout + done.stderr


def manifest_of(real_data):
    with gzip.open(real_data / "warc/manifest.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["pages-00000", "pages-00001", "pages-00002", "special-00000"])
def test_real_archives_equal_their_manifest(real_data, name):
    path = real_data / f"warc/{name}.warc.gz"
    listed = [entry for entry in manifest_of(real_data) if entry["file"] == f"warc/{name}.warc.gz"]
    rows, bad_files = read(path, statuses=())
    assert bad_files.found == []
    assert len(rows) + bad_files.left_out.total() == len(listed)
    pages = {entry["record_id"]: entry for entry in listed if entry["type"] in ("response", "resource", "conversion")}
    for row in rows:
        entry = pages.pop(row["id"])
        assert (row["offset"], row["length"]) == (entry["offset"], entry["length"])
        assert row["url"] == entry["uri"]
        payload = base64.b32decode(row["digest"].removeprefix("sha1:")).hex()
        if entry["type"] == "response" and entry["status"] is None:
            # The manifest was made by a reader that takes these for no HTTP, since their URIs begin with "hard::".
            assert "::" in entry["uri"]
        else:
            assert payload == entry["sha1"]
            assert entry["status"] in (None, str(row["status"]))
    for entry in pages.values():
        assert entry["payload_length"] == 0 or not (entry["content_type"] or "").startswith(("text/", "application/xh"))


def test_real_odd_cases(real_data):
    rows, bad_files = read(real_data / "warc/special-00000.warc.gz")
    cases = {entry["record_id"]: entry["case"] or entry["type"] for entry in manifest_of(real_data)}
    found = {}
    for row in rows:
        found.setdefault(cases[row["id"]], []).append(row)
    assert {case: len(of_case) for case, of_case in found.items()} == {
        "charset-header-wrong (latin-1 body, utf-8 header)": 3,
        "content-encoding-gzip": 6,
        "conversion": 1,
        "invalid-utf8": 1,
        "no-content-type": 2,
        "non-html": 4,
        "nul-bytes": 1,
        "page": 1,
        "resource": 1,
        "transfer-encoding-chunked": 4,
        "truncated-body": 4,
        "unknown-charset-name": 1,
        "utf16-bom": 3,
        "xhtml": 2,
    }
    statuses = {f"status_{status}": 1 for status in (302, 304, 307, 308, 403, 404, 410, 500, 503)}
    others = {"warcinfo": 1, "metadata": 1, "revisit": 1, "empty_body": 1, "mime_image": 8, "mime_application": 4}
    assert bad_files.left_out == statuses | others
    for row in rows:
        text = row["html"] or row["text"]
        assert "\ufffd" not in text
        assert "\0" not in text
        assert (row["html"] is None) == (row["mime"] == "text/plain")
    assert {row["truncated"] for row in found["truncated-body"]} == {"length"}
    assert {row["charset"] for row in found["utf16-bom"]} == {"utf-16le"}
    assert all("ö" in row["html"] or "ü" in row["html"] for row in found["utf16-bom"] if 'lang="de"' in row["html"])
    assert {row["mime"] for row in found["no-content-type"]} == {"text/html"}
    assert {row["mime"] for row in found["xhtml"]} == {"application/xhtml+xml"}
    assert {row["mime"] for row in found["non-html"]} == {"text/plain"}
    assert found["resource"][0]["status"] is None
    assert found["conversion"][0]["text"].startswith("Zoll\n")


def test_real_broken_archives(real_data):
    whole, _ = read(real_data / "warc/special-00000.warc.gz")
    path = real_data / "warc/broken-truncated-member.warc.gz"
    rows, bad_files = read(path, "skip")
    assert without_place(rows) == [row | {"source": path.name, "file": path.name} for row in without_place(whole[:17])]
    assert bad_files.found[0].reason == (
        "cannot be read from byte 225,603 to its end: the file ends within a compressed member"
    )
    path = real_data / "warc/broken-garbage-between.warc.gz"
    rows, bad_files = read(path, "skip")
    assert [row["id"] for row in rows] == [row["id"] for row in whole[: len(rows)]]
    assert bad_files.found[0].reason == "cannot be read from byte 51,668 to 51,737: no gzip data"
    assert bad_files.found[0].records_lost is None


def test_archives_of_others(real_data):
    """Every file that readers of others are tested with: rows, what was left out, or why it cannot be read."""
    told = {}
    for path in sorted((real_data / "warc/real").iterdir()):
        rows, bad_files = read(path, "skip")
        told[path.name] = (len(rows), bad_files.left_out.total(), [bad.reason for bad in bad_files.found])
    arcs = {name for name, (_, _, reasons) in told.items() if any("this is an ARC file" in why for why in reasons)}
    assert arcs == {name for name in told if ".arc" in name}
    cut = told.pop("warcio--example-trunc.warc")
    assert cut[:2] == (0, 3)
    assert "from byte 1,197 to 2,566" in cut[2][0]
    good = {name: counts[:2] for name, counts in told.items() if name not in arcs}
    assert all(told[name][2] == [] for name in good)
    assert good == {
        "jwarc--cc.warc.gz": (1, 0),
        "jwarc--gzip_extra_sl.warc.gz": (0, 1),
        "pywb--dupes.warc.gz": (1, 24),
        "pywb--example-url-agnostic-orig.warc.gz": (1, 1),
        "pywb--example-url-agnostic-revisit.warc.gz": (0, 2),
        "pywb--example-wget-1-14.warc.gz": (1, 5),
        "pywb--example-wpull.warc.gz": (1, 3),
        "pywb--httpbin-resource.warc.gz": (0, 1),
        "pywb--iana.warc.gz": (16, 327),
        "pywb--missing-status-text.warc": (0, 1),
        "warcio--example-bad-non-chunked.warc.gz": (1, 5),
        "warcio--example-bad.warc.gz.bad": (1, 5),
        "warcio--example-digest.warc": (0, 4),
        "warcio--example-iana.org-chunked.warc": (1, 2),
        "warcio--example-resource.warc.gz": (1, 2),
        "warcio--example-space-in-target-uri.warc.gz": (0, 2),
        "warcio--example-wget-bad-target-uri.warc.gz": (1, 5),
        "warcio--example-wrong-chunks.warc.gz": (1, 1),
        "warcio--example.warc": (1, 5),
        "warcio--example.warc.gz": (1, 5),
        "warcio--post-test.warc.gz": (0, 6),
    }


@pytest.mark.parametrize("held", [compressed.HELD_BYTES, 1_000])
def test_no_record_of_a_member_with_a_wrong_checksum_is_a_page(tmp_path, monkeypatch, held):
    """A whole file in one member: its records are right one by one, and nobody knows which is not."""
    monkeypatch.setattr(compressed, "HELD_BYTES", held)
    whole = b"".join(response(PAGE + b"%d" % number) for number in range(5))
    path = tmp_path / "a.warc.gz"
    packed = bytearray(gzip.compress(whole) + gzip.compress(response()))
    path.write_bytes(bytes(packed))
    assert len(read(path)[0]) == 6
    packed[len(gzip.compress(whole)) - 5] ^= 1
    path.write_bytes(bytes(packed))
    rows, bad_files = read(path, "skip")
    assert [row["offset"] for row in rows] == [len(gzip.compress(whole))]
    assert [found.records_lost for found in bad_files.found] == [5]
    assert "checksum" in bad_files.found[0].reason
    with pytest.raises(SourceError, match="at byte 0: damaged gzip data"):
        read(path)
    chance = random.Random(0)
    texts = {row["html"] for row in rows} | {(PAGE + b"%d" % number).decode() for number in range(5)}
    for _ in range(30):
        damaged = bytearray(gzip.compress(whole) + gzip.compress(response()))
        bit = chance.randrange(8 * len(damaged))
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        rows, bad_files = read(path, "skip")
        assert {row["html"] for row in rows} <= texts
        assert len(rows) in (0, 1, 5, 6)
        assert bool(bad_files.found) == (len(rows) < 6)


@pytest.mark.parametrize("read_bytes", [16, 64, 1 << 16])
def test_a_length_that_leads_behind_the_next_member_is_wrong(monkeypatch, read_bytes):
    head = b"WARC/1.0\r\nContent-Length: %d\r\n\r\n"
    following = head % 5 + b"<p>ab"
    first = b"WARC/1.0\r\nContent-Length: 2\r\nA: b\r\n c\r\n\r\nab\r\n\r\n"
    wrong = head % (9 + len(following)) + b"<p>ab\r\n\r\n"
    archive = b"".join(map(gzip.compress, [first, wrong, following + b"\r\n\r\n", head % 5 + b"<p>cd"]))
    bad_files = BadFiles("skip", checksums="last")
    monkeypatch.setattr(compressed.Members._gzip, "__defaults__", (read_bytes, read_bytes))
    lost = Lost(bad_files, "x.warc")
    found = [bytes(record.block) for record in read_records(io.BytesIO(archive), 1 << 20, lost)]
    lost.report()
    assert found == [b"ab", b"<p>ab", b"<p>cd"]
    assert "a record is shorter than its Content-Length" in bad_files.found[0].reason


def test_values_of_a_record_are_utf8_where_its_header_is():
    data = "WARC/1.0\r\nWARC-Target-URI: https://a/é \r\nX: ü\r\nContent-Length: 2\r\n\r\nab".encode()
    for content in (data, data.decode().encode("latin-1")):
        (record,) = read_records(io.BytesIO(content), 9, Lost(BadFiles(), "x.warc"))
        assert record.fields["warc-target-uri"] == "https://a/é"


def test_sections_of_a_file_have_its_pages_ids_and_counts(tmp_path):
    source = Warc(data_dir=str(lc.samples.write_archive(tmp_path)))
    whole = source.splits()["train"][0]
    found = [dataclasses.replace(whole, section=each) for each in source.divide(whole, 50_000, tmp_path)]
    assert len(found) > 3

    def read_all(parts):
        bad_files = BadFiles()
        rows = [row for part in parts for table in source.read(part, bad_files) for row in table.to_pylist()]
        return rows, bad_files.left_out, bad_files.encodings

    assert read_all(found) == read_all([whole])
    listed = [[str(each) for ids in source.list_ids(part) for each in ids] for part in (whole, *found)]
    assert listed[0] == list(itertools.chain(*listed[1:]))


def test_an_archive_is_only_opened_when_its_ids_are_asked_for(tmp_path, monkeypatch):
    source, opened = Warc(data_dir=str(lc.samples.write_archive(tmp_path))), list[str]()
    open_file = tables.opened
    monkeypatch.setattr(tables, "opened", lambda path: opened.append(path) or open_file(path))
    listed = source.list_ids(source.splits()["train"][0])
    assert listed is not None
    assert opened == []
    assert sum(map(len, listed)) > 0
    assert len(opened) == 1


def test_a_missing_file_has_no_sections(tmp_path):
    source = Warc(data_files=str(tmp_path / "a.warc.gz"))
    ((whole,),) = source.splits().values()
    assert source.divides(whole)
    assert source.divide(whole, 1, tmp_path) == []
