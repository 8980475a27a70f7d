"""Headers of gzip members, which ISA-L does not take in pieces: read whole wherever they lie in a file."""

import gzip
import io
import struct
import zlib
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longcrawl.core.sources import BadFiles, UncheckedDataError
from longcrawl.sources import compressed
from longcrawl.sources.compressed import MOST_HEADER_BYTES, BrokenMemberError, header_bytes
from longcrawl.sources.text import Text

DATA = b"Tide tables " * 5 + bytes(range(100))
CUT = "the file ends within a compressed member"


def header(flags: int, extra: bytes = b"xtra\0", name: bytes = b"name", comment: bytes = b"one two") -> bytes:
    content = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\3"
    if flags & 4:
        content += struct.pack("<H", len(extra)) + extra
    content += name + b"\0" if flags & 8 else b""
    content += comment + b"\0" if flags & 16 else b""
    return content + struct.pack("<H", zlib.crc32(content) & 0xFFFF) if flags & 2 else content


def packed(begin: bytes, data: bytes = DATA) -> bytes:
    """Return a member with a header of one's own."""
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    ended = stream.compress(data) + stream.flush() + struct.pack("<II", zlib.crc32(data), len(data))
    assert gzip.decompress(begin + ended) == data
    return begin + ended


@pytest.fixture
def read(list_members):
    """Return a function that lists the members of a file, read so many bytes at a time."""

    def listed(content: bytes, *defaults: int) -> tuple[list[tuple[int, bytes, int]], BrokenMemberError | None]:
        with mock.patch.object(compressed.Members._gzip, "__defaults__", defaults):
            return list_members(compressed.Members(io.BytesIO(content), "gzip"))

    return listed


@pytest.mark.parametrize(
    "flags", [pytest.param(flags, marks=() if flags.bit_count() in (1, 5) else pytest.mark.slow) for flags in range(32)]
)
def test_headers_may_begin_at_any_place_of_what_is_read_at_a_time(read, flags):
    begin = header(flags)
    member = packed(begin)
    size = len(member)
    expected = [(first, DATA, first + size) for first in (0, size, 2 * size)]
    for read_bytes in [*range(1, len(begin) + 3), *range(size - len(begin), size + 2)]:
        for piece_bytes in (7, 1_000):
            assert read(member * 3, read_bytes, piece_bytes) == (expected, None)


@pytest.mark.variants
@pytest.mark.parametrize(
    "flags", [pytest.param(flags, marks=() if flags.bit_count() in (1, 5) else pytest.mark.slow) for flags in range(32)]
)
def test_a_file_that_is_cut_within_a_header_is_cut(read, flags):
    begin = header(flags)
    member = packed(begin)
    for cut in range(1, len(begin) + 1):
        assert header_bytes(begin[:cut]) == (len(begin) if cut == len(begin) else None)
        for read_bytes in (1, 3, len(member) + 1, 1_000):
            found, broken = read(member + begin[:cut], read_bytes, 1_000)
            assert found == [(0, DATA, len(member))]
            assert (broken.offset, str(broken), broken.is_cut, broken.is_member) == (len(member), CUT, True, True)


@pytest.mark.parametrize("flags", [2, 12, 31])
def test_headers_of_many_bytes(read, flags):
    begin = header(flags, b"e" * 65_535, b"n" * 200_000, b"c" * 300_000)
    member = packed(begin)
    for read_bytes in (compressed.PROBE_BYTES, compressed.GZIP_READ_BYTES):
        found, broken = read(member * 2, read_bytes, compressed.PIECE_BYTES)
        assert (found, broken) == ([(0, DATA, len(member)), (len(member), DATA, 2 * len(member))], None)


@pytest.mark.variants
@pytest.mark.parametrize("read_bytes", [compressed.PROBE_BYTES, compressed.GZIP_READ_BYTES, 1 << 22])
@pytest.mark.parametrize("has_end", [True, False])
def test_a_header_that_is_too_long(read, read_bytes, has_end):
    member, longest = packed(header(8, name=b"n" * MOST_HEADER_BYTES)), header(8, name=b"n" * (MOST_HEADER_BYTES - 11))
    found, broken = read(packed(longest) + (member if has_end else member[: MOST_HEADER_BYTES + 9]), read_bytes, 1_000)
    assert [data for _, data, _ in found] == [DATA]
    assert (broken.offset, broken.is_cut) == (len(packed(longest)), False)
    assert str(broken) == "damaged gzip data (a header of more than 1 MiB)"


def test_what_is_not_a_header_fails_when_it_is_decompressed(read):
    for content in (b"\x1f\x8b\x07", b"\x1fx", b"x"):
        assert header_bytes(content) == 0
    found, broken = read(packed(header(0)) + b"\x1f\x8b\x07" + bytes(range(1, 20)), 64, 1_000)
    assert len(found) == 1
    assert str(broken).startswith("damaged gzip data (IsalError")


@pytest.mark.variants
@pytest.mark.parametrize("checksums", ["first", "last"])
@pytest.mark.parametrize("flags", [2, 12, 31])
def test_lines_behind_a_header_between_two_reads(tmp_path, checksums, flags):
    first, second = packed(header(0), b'{"text": "one"}\n'), packed(header(flags), b'{"text": "two"}\n')
    for before in range(len(header(flags)) + 1):
        (tmp_path / "a.jsonl.gz").write_bytes(first.ljust(compressed.GZIP_READ_BYTES - before, b"\0") + second)
        source, bad_files = Text(data_files=str(tmp_path / "a.jsonl.gz")), BadFiles("skip", checksums=checksums)
        tables = list(source.read(source.splits()["train"][0], bad_files))
        assert [text for table in tables for text in table["text"].to_pylist()] == ["one", "two"]
        assert bad_files.found == []


def test_a_member_with_a_long_header_is_found_behind_damage():
    broken_member = bytearray(packed(header(0)))
    broken_member[-8] ^= 1
    for size in (10, compressed.PROBE_BYTES, compressed.GZIP_READ_BYTES):
        after = packed(header(12, name=b"n" * size))
        found = compressed.Members(io.BytesIO(bytes(broken_member) + after), "gzip")
        with pytest.raises(BrokenMemberError) as raised:
            list(found.events())
        taken: list[bytes] = []
        assert found.recover(raised.value, taken.append) == (len(broken_member), len(broken_member))
        assert b"".join(taken) == DATA


def test_pieces_without_data_are_not_held():
    member = compressed._Member(7, 0)
    assert [list(member.events(b"", None)) for _ in range(100)] == [[]] * 100
    assert member._held == []
    assert list(member.events(b"a", 9)) == [compressed.Event("member", 7, b"a", 9)]


@pytest.mark.parametrize("whole_bytes", [0, 3, 4, 9])
def test_a_member_is_one_event_up_to_its_limit_or_in_one_piece(whole_bytes):
    pieces = ([b"abcd"], [b"ab", b"", b"cd"], [b"", b"abcd"], [b""], [b"a", b"b", b"c", b"d", b"e"])
    for each in pieces:
        member = compressed._Member(7, whole_bytes)
        found = [event for piece in each[:-1] for event in member.events(piece, None)]
        found += member.events(each[-1], 9)
        data = [piece for piece in each if piece]
        is_one = len(b"".join(data)) <= whole_bytes or len(data) <= 1
        assert len(found) == (1 if is_one else 2 + len(data))
        assert b"".join(event.data for event in found) == b"".join(data)
        parts = [part for event in found for part in event.parts()]
        assert [part.kind for part in parts] == ["begin", *["data"] * (len(parts) - 2), "end"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 2_000), max_size=6), st.sampled_from(["", "flipped", "cut"]), st.floats(0, 1))
@pytest.mark.parametrize("checksums", ["first", "last"])
def test_short_members_that_are_whole_have_the_same_events(list_members, checksums, sizes, damage, where):
    content = bytearray(b"".join(gzip.compress((DATA * 13)[:size], size % 10, mtime=0) for size in sizes))
    place = int(where * (len(content) - 1)) if content else 0
    if damage == "flipped" and content:
        content[place] ^= 4
    elif damage == "cut":
        del content[place:]

    def outcome(**settings):
        try:
            found, broken = list_members(compressed.Members(io.BytesIO(content), "gzip", checksums, **settings))
        except UncheckedDataError as wrong:  # part of a longer member was passed on before it was found broken
            return None, str(wrong)
        return found, str(broken)

    with mock.patch.object(compressed, "WHOLE_BYTES", 900):
        (whole, broken), (pieces, expected) = outcome(short_whole=True), outcome()
    assert broken == expected
    assert whole == pieces or None in (whole, pieces)
