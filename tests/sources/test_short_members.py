"""Short gzip members, by libdeflate: what they give, and the same events and errors as ISA-L where it takes none."""

import gzip
import io
import random
import zlib
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longcrawl.sources import libdeflate, members
from longcrawl.sources.libdeflate import ShortMembers

TEXT = b"Tide tables and other lists of ports. "


def member(size: int, level: int = 6, seed: int = 0) -> bytes:
    """Return a member of words, or of bytes that do not become shorter."""
    words = random.Random(seed).choices(TEXT.split(), k=size // 4 + 1)
    data = random.Random(seed).randbytes(size) if seed % 4 == 3 else b" ".join(words)[:size]
    return gzip.compress(data, level, mtime=0)


@pytest.fixture
def events(list_members):
    """Return a function that lists the members of a file, and says what ends it."""

    def listed(content: bytes, short: str, offset: int = 0) -> tuple[list[tuple[int, bytes, int]], object]:
        found, broken = list_members(members.Members(io.BytesIO(content), "gzip", short=short), offset)
        return found, broken and (str(broken), broken.offset, broken.is_cut, broken.is_member)

    return listed


@pytest.fixture(params=[(1 << 18, 1 << 17, 4 << 20), (512, 64, 4 << 20), (64, 1, 900), (1, 1, 0)])
def sizes(request):
    """How much is read, how much is there at least, and how long a short member is."""
    read, least, whole = request.param
    with (
        mock.patch.object(libdeflate, "READ_BYTES", read),
        mock.patch.object(libdeflate, "LEAST_BYTES", least),
        mock.patch.object(members, "WHOLE_BYTES", whole),
    ):
        yield


def test_most_members_are_short(sizes):
    content = b"".join(member(size, size % 10, size) for size in range(0, 3_000, 7))
    file = ShortMembers(io.BytesIO(content), 3_000)
    place = 0
    for _ in range(0, 3_000, 7):
        if (found := file.read_member()) is None:
            assert libdeflate.READ_BYTES < 3_000  # it is longer than what is read at a time
            return
        data, size = found
        assert data.readonly
        assert data == gzip.decompress(content[place : place + size])
        place += size
    assert file.read_member() is None
    assert (place, file.read(9)) == (len(content), b"")


def test_the_next_member_is_written_to_the_same_memory():
    file = ShortMembers(io.BytesIO(member(50, seed=1) + member(50, seed=2)), 100)
    first, _ = file.read_member()
    before = bytes(first)
    file.read_member()
    assert bytes(first) != before


def with_header(flags: int, fields: bytes) -> bytes:
    return b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\3" + fields + gzip.compress(TEXT, mtime=0)[10:]


EXTRA, NAME, COMMENT = with_header(4, b"\4\0sl\0\0"), with_header(8, b"name\0"), with_header(16, b"words\0")
CHECKED, RESERVED = with_header(2, b"\0\0"), with_header(0x20, b"")


@pytest.mark.parametrize("taken", [EXTRA, NAME, COMMENT, with_header(28, b"\0\0name\0words\0")])
def test_members_with_fields_are_short_too(taken):
    data, size = ShortMembers(io.BytesIO(taken + b"x"), 600).read_member()
    assert (bytes(data), size) == (TEXT, len(taken))


@pytest.mark.parametrize("left", ["", "zeros", "cut", "flipped", "checked", "reserved", "long", "magic", "zlib"])
def test_members_that_are_not_taken_are_read_as_bytes(left):
    whole = member(600)
    flipped = whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]
    zeros, long, packed = b"\0" * 9, gzip.compress(TEXT * 20), zlib.compress(TEXT)
    content = {
        "": b"", "zeros": zeros, "cut": whole[:-1], "flipped": flipped, "checked": CHECKED, "reserved": RESERVED,
        "long": long, "magic": whole[:3], "zlib": packed,
    }[left]  # fmt: skip
    file = ShortMembers(io.BytesIO(whole + content), 600)
    assert file.read_member() is not None
    assert file.read_member() is None
    assert file.read(1) + file.read(1 << 20) == content
    assert file.go_back(content)
    assert file.read(1 << 20) == content
    assert file.read(1) == b""
    assert not file.go_back(bytes(1 << 20))
    assert file.go_back(whole)
    assert file.read_member() is not None
    file.seek(0)
    assert file.read_member() is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_events_and_errors_are_those_of_isa_l(events, sizes, data):
    parts = data.draw(
        st.lists(
            st.one_of(
                st.builds(member, st.integers(0, 2_000), st.integers(0, 9), st.integers(0, 9)),
                st.just(gzip.compress(b"", mtime=0)),
                st.just(b"\0" * 7),
                st.sampled_from([EXTRA, NAME, COMMENT, CHECKED, RESERVED]),
            ),
            max_size=8,
        )
    )
    content = bytearray(b"".join(parts))
    if content and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    content = bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 1]))])
    assert events(content, "lent") == events(content, "kept")


def test_from_a_place_in_the_file_and_without_the_library(events, sizes):
    content = b"".join(member(size, seed=size) for size in (40, 1_000, 70, 5_000, 20))
    expected = events(content, "kept")
    assert events(content, "lent") == expected
    assert events(content, "lent", expected[0][0][2]) == events(content, "kept", expected[0][0][2])
    with mock.patch.object(members, "find_library", return_value=None):
        assert events(content, "lent") == expected
