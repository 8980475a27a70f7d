"""Header fields of web archives by the first bytes of their members, against reading them whole."""

import gzip
import io
import random
import zlib
from unittest import mock

import pytest
import zstandard

from longcrawl.core.sources import BadFiles
from longcrawl.sources.warc import records
from longcrawl.sources.warc.records import Lost, list_fields, read_records

CHANCE = random.Random(0)


def record(number, body, **more):
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    given = {"WARC-Type": "response", "WARC-Record-ID": f"<{number}>", "Content-Length": str(len(block)), **more}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def archive():
    sizes = [0, 1, 100, 5_000, 70_000, 300_000]
    return [record(number, CHANCE.randbytes(CHANCE.choice(sizes))) for number in range(40)]


def stored(data):
    """Return a gzip member that holds data as it is, so that what looks like members within stands in the file."""
    stream = zlib.compressobj(0, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def read_whole(content):
    records_ = read_records(io.BytesIO(content), 0, Lost(BadFiles("error"), "a"))
    return [each.fields for each in records_]


@pytest.mark.parametrize("pack", [gzip.compress, stored])
@pytest.mark.parametrize("piece_bytes", [20_000, 1 << 20])
def test_fields_are_those_of_reading(pack, piece_bytes):
    made = [*archive(), record("long", b"<p>", WARC_Target_URI="https://example.org/" + CHANCE.randbytes(2_000).hex())]
    made.append(record("inner", b"\x1f\x8b\x08" * 100))
    content = b"".join(map(pack, made))
    with mock.patch.object(records, "PIECE_BYTES", piece_bytes):
        found = list_fields(io.BytesIO(content))
    assert found == read_whole(content)
    assert [fields["warc-record-id"] for fields in found][-3:] == ["<39>", "<long>", "<inner>"]


@pytest.mark.parametrize("case", range(11))
def test_of_other_files_nothing_is_said(case):
    one, two = record(1, b"<p>"), record(2, b"<p>")
    packed = gzip.compress(one) + gzip.compress(two)
    content = [
        b"",
        one + two,
        zstandard.compress(one) + zstandard.compress(two),
        gzip.compress(one + two),
        gzip.compress(one) + gzip.compress(two + one),
        packed + b"\0" * 512,
        packed[:-1],
        b"x" + packed,
        gzip.compress(one) + b"garbage" + gzip.compress(two),
        gzip.compress(one) + gzip.compress(b"\r\n" * 9) + gzip.compress(two),
        stored(record(1, packed)) + gzip.compress(one + two),
    ][case]
    assert list_fields(io.BytesIO(content)) is None


def test_an_archive_within_an_archive_is_not_taken_for_its_records():
    inner = gzip.compress(record("inner", b"<p>"))
    content = stored(record(1, inner)) + gzip.compress(record(2, b"<p>"))
    assert list_fields(io.BytesIO(content)) in (None, read_whole(content))
