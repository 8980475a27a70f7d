"""Header fields of web archives by the first bytes of their members, against reading them whole."""

import gzip
import io
import random
import zlib
from unittest import mock

import pytest
import zstandard

from longcrawl.core.sources import BadFiles
from longcrawl.sources import compressed
from longcrawl.sources.warc.records import FALSE_BEGINNINGS, Lost, list_ids, read_records

CHANCE = random.Random(0)


def record(number, body, **more):
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    given = {"WARC-Type": "response", "WARC-Record-ID": f"<{number}>", "Content-Length": str(len(block))}
    given |= {name.replace("_", "-"): value for name, value in more.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"WARC/1.0\r\n{head}\r\n".encode() + block + b"\r\n\r\n"


def archive():
    sizes = [0, 1, 100, 5_000, 70_000, 300_000]
    return [record(number, CHANCE.randbytes(CHANCE.choice(sizes))) for number in range(40)]


def stored(data):
    """Return a gzip member that holds data as it is, so that what looks like members within stands in the file."""
    stream = zlib.compressobj(0, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def read_whole(content):
    lost = Lost(BadFiles("error"), "a")
    return [each.fields["warc-record-id"] for each in read_records(io.BytesIO(content), 0, lost)]


def listed(content, record_types=("response",)):
    return list_ids(io.BytesIO(content), record_types)


@pytest.mark.parametrize("pack", [gzip.compress, stored])
@pytest.mark.parametrize("read_bytes", [20_000, 1 << 20])
def test_ids_are_those_of_reading(pack, read_bytes):
    made = [*archive(), record("long", b"<p>", WARC_Target_URI="https://example.org/" + CHANCE.randbytes(2_000).hex())]
    made.append(record("inner", (b"\x1f\x8b\x08" + bytes(20)) * FALSE_BEGINNINGS))
    content = b"".join(map(pack, made))
    with mock.patch.object(compressed, "READ_BYTES", read_bytes):
        found = listed(content)
    assert found == read_whole(content)
    assert found[-3:] == ["<39>", "<long>", "<inner>"]


def test_only_records_of_the_types_that_are_wanted_are_listed():
    made = [record(1, b"<p>"), record(2, b"<p>", WARC_Type="Request"), record(3, b"<p>", WARC_Type="RESPONSE")]
    content = b"".join(map(gzip.compress, made))
    assert listed(content) == ["<1>", "<3>"]
    assert listed(content, ("request",)) == ["<2>"]


@pytest.mark.parametrize("case", range(17))
def test_of_other_files_nothing_is_said(case):
    one, two = record(1, b"<p>" * 10), record(2, b"<p>")
    packed = gzip.compress(one) + gzip.compress(two)
    long = record(2, b"<p>", WARC_Target_URI=CHANCE.randbytes(20_000).hex())
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
        gzip.compress(one) + gzip.compress(b"\r\n" + two + bytes(len(one) - len(two) - 2)) + gzip.compress(two),
        gzip.compress(record(1, bytes(len(long) - len(record(1, b""))))) + gzip.compress(long) + gzip.compress(two),
        gzip.compress(one + b"\r\n" * 3),
        gzip.compress(one + b"\r\n" * 40) + gzip.compress(two),
        stored(record(1, (b"\x1f\x8b\x08" + bytes(20)) * (FALSE_BEGINNINGS + 2))),
        gzip.compress(b"WARC/1.0\r\nWARC-Type: response\r\n\r\n"),
    ][case]
    assert listed(content) is None


def test_an_archive_within_an_archive_is_not_taken_for_its_records():
    inner = gzip.compress(record("inner", b"<p>"))
    assert listed(stored(record(1, inner)) + gzip.compress(record(2, b"<p>"))) is None
