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
from longcrawl.sources.framing import BrokenMemberError
from longcrawl.sources.libdeflate import ShortMembers

TEXT = b"Tide tables and other lists of ports. "


def member(size: int, level: int = 6, seed: int = 0) -> bytes:
    """Return a member of words, or of bytes that do not become shorter."""
    words = random.Random(seed).choices(TEXT.split(), k=size // 4 + 1)
    data = random.Random(seed).randbytes(size) if seed % 4 == 3 else b" ".join(words)[:size]
    return gzip.compress(data, level, mtime=0)


def events(content: bytes, short: str, offset: int = 0) -> tuple[list[tuple[str, int, bytes, int]], object]:
    """Return all events of a file, and what ends it."""
    found = []
    try:
        for kind, begin, data, end in members.Members(io.BytesIO(content), "gzip", short=short).events(offset):
            found.append((kind, begin, bytes(data), end))
    except BrokenMemberError as broken:
        return found, (str(broken), broken.offset, broken.is_cut, broken.is_member)
    return found, None


@pytest.fixture(params=[(1 << 19, 1 << 17, 4 << 20), (512, 64, 4 << 20), (64, 1, 900), (1, 1, 0)])
def sizes(request):
    """How much is read, how much is there at least, and how long a short member is."""
    read, least, whole = request.param
    with (
        mock.patch.object(libdeflate, "READ_BYTES", read),
        mock.patch.object(libdeflate, "LEAST_BYTES", least),
        mock.patch.object(members, "WHOLE_BYTES", whole),
    ):
        yield


def test_most_members_are_short():
    content = b"".join(member(size, size % 10, size) for size in range(0, 3_000, 7))
    file = ShortMembers(io.BytesIO(content), 3_000)
    place = 0
    while (found := file.read()) is not None:
        data, size = found
        assert data.readonly
        assert data == gzip.decompress(content[place : place + size])
        place += size
    assert place == len(content)
    assert file.take() == b""


def test_the_next_member_is_written_to_the_same_memory():
    file = ShortMembers(io.BytesIO(member(50, seed=1) + member(50, seed=2)), 100)
    first, _ = file.read()
    before = bytes(first)
    file.read()
    assert bytes(first) != before


def test_members_that_are_not_taken_are_given_back():
    whole = member(600)
    named = gzip.GzipFile("name", "wb", fileobj=(buffer := io.BytesIO()), mtime=0)
    named.write(TEXT)
    named.close()
    flipped = bytearray(whole)
    flipped[-6] ^= 1
    for content in (
        b"\0" * 9,
        whole[:-1],
        bytes(flipped),
        buffer.getvalue(),
        member(601),
        whole[:3],
        zlib.compress(TEXT),
    ):
        file = ShortMembers(io.BytesIO(whole + content), 600)
        assert file.read() is not None
        assert file.read() is None
        assert file.take() == content
        file.put(content + whole)
        assert file.read() is None
        file.put(whole + content)
        assert file.read() is not None
        assert file.take() == content
    file.put(whole * 5_000)
    assert sum(1 for _ in iter(file.read, None)) == 5_000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_events_and_errors_are_those_of_isa_l(sizes, data):
    parts = data.draw(
        st.lists(
            st.one_of(
                st.builds(member, st.integers(0, 2_000), st.integers(0, 9), st.integers(0, 9)),
                st.just(gzip.compress(b"", mtime=0)),
                st.just(b"\0" * 7),
                st.just(b"\x1f\x8b\x08\x08\0\0\0\0\0\3name\0" + gzip.compress(TEXT, mtime=0)[10:]),
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


def test_from_a_place_in_the_file_and_without_the_library(sizes):
    content = b"".join(member(size, seed=size) for size in (40, 1_000, 70, 5_000, 20))
    expected = events(content, "kept")
    assert events(content, "lent") == expected
    assert events(content, "lent", expected[0][0][3]) == events(content, "kept", expected[0][0][3])
    with mock.patch.object(members, "find_library", return_value=None):
        assert events(content, "lent") == expected
