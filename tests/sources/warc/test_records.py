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
from longcrawl.sources.warc.records import FALSE_BEGINNINGS, Lost, divide_records, list_ids, read_records

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


def records_of(content, section=None):
    lost = Lost(BadFiles("skip"), "a")
    found = read_records(io.BytesIO(content), 400_000, lost, section)
    return [each._replace(block=each.block and bytes(each.block)) for each in found]


def divided(content, size):
    return divide_records(io.BytesIO(content), 400_000, "a", size)


@pytest.mark.variants
@pytest.mark.parametrize("pack", [gzip.compress, stored, zstandard.compress, bytes])
@pytest.mark.parametrize("size", [1, 100_000, 1 << 30])
def test_records_of_sections_are_those_of_the_file(pack, size):
    made = [record("first", b""), *archive(), record("long", bytes(500_000)), record("last", b"\x1f\x8b\x08" * 9)]
    content = b"".join(map(pack, made))
    found = divided(content, size)
    assert [each for section in found for each in records_of(content, section)] == records_of(content)
    assert len(found) == (1 if size == 1 << 30 else len(found)) > 0
    assert len(found) > 20 or size > 1
    assert sum(each.bytes for each in found) == len(content)
    assert [each.stop for each in found[:-1]] == [each.start for each in found[1:]]


def test_a_section_begins_only_where_a_member_holds_one_record():
    one, two, three, four = (record(number, b"<p>" * 99) for number in range(4))
    content = gzip.compress(one + two) + gzip.compress(b"") + gzip.compress(three) + b"\0" * 9 + gzip.compress(four)
    found = divided(content, 1)
    assert [(each.first, each.count) for each in found] == [(0, 2), (2, 1), (3, 1)]
    assert [each for section in found for each in records_of(content, section)] == records_of(content)


@pytest.mark.parametrize("content", [b"", b"no record", gzip.compress(record(1, b"<p>")) * 9 + b"damage"])
def test_a_damaged_file_has_no_sections(content):
    assert divided(content, 1) == []
