"""How gzip members and zstd frames are laid out in a file: what begins them, and of frames every piece."""

from collections.abc import Callable, Iterator
from typing import BinaryIO

import zstandard

from longcrawl.errors import SourceError, reason_of

GZIP = b"\x1f\x8b\x08"
MOST_HEADER_BYTES = 1 << 20
"""What a header may take with the file name and the comment in it, whose length nothing bounds."""

_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
"""Flags that say what a header holds behind its first ten bytes."""

ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_DICTIONARY = 0x184D2A5D
"""The magic number of the skippable frame that holds a file's dictionary, by the convention for WARC files."""

DICTIONARY_BYTES = 100 << 20
"""What such a frame holds at most; dictionaries are of some 100 kB."""

ZSTD_BLOCK_BYTES = 128 << 10
"""What a block of a zstd frame is at most, compressed or not (RFC 8878, 3.1.1.2.4)."""

ZSTD_HAS_CHECKSUM = 0x04
"""The bit of a frame's descriptor that says whether a checksum ends it."""

ZSTD_WINDOW_BYTES = 128 << 20
"""The largest window of a zstd frame: what decompressing one takes of memory. ``zstd --long=27`` makes this one."""


class BrokenMemberError(SourceError):
    """A member that is not sound, or bytes that are not a member, begin at ``offset``.

    Attributes:
        offset: where it begins.
        is_member: whether a member begins there.
        is_cut: whether the file ends before the member does.
    """

    def __init__(self, offset: int, reason: str, *, is_member: bool = True, is_cut: bool = False) -> None:
        super().__init__(reason)
        self.offset, self.is_member, self.is_cut = offset, is_member, is_cut


def rest_of_header(read: Callable[[int], bytes], begin: int, begun: bytes, read_bytes: int) -> bytes:
    """Read on until the header that was begun is whole, or the file ends; return what was read.

    ISA-L takes some headers that come in pieces for damaged.

    Returns:
        No bytes where the header is whole, has no field, or is not one.

    Raises:
        BrokenMemberError: it is too long.
    """
    if begun[3:4] == b"\0":  # nearly all: ISA-L takes ten bytes that no field follows as they come
        return b""
    content = begun
    while (size := header_bytes(content)) is None and len(content) <= MOST_HEADER_BYTES:
        if not (piece := read(max(read_bytes, len(content)))):
            break
        content += piece
    if (len(content) if size is None else size) > MOST_HEADER_BYTES:
        raise BrokenMemberError(begin, "damaged gzip data (a header of more than 1 MiB)")
    return content[len(begun) :]


def header_bytes(content: bytes) -> int | None:
    """Count the bytes of the header that begins some content (RFC 1952, 2.3): 0 if none does, None if it is cut."""
    if not GZIP.startswith(content[: len(GZIP)]):
        return 0
    end = 10
    if len(content) < end:
        return None
    flags = content[3]
    if flags & _EXTRA:
        end += 2 + int.from_bytes(content[end : end + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag and not (end := content.find(0, end) + 1):
            return None
    if flags & _CHECKSUM:
        end += 2
    return end if end <= len(content) else None


def is_skippable(magic: bytes) -> bool:
    """Return whether a zstd frame begins so that decoders pass over."""
    return len(magic) == 4 and int.from_bytes(magic, "little") in _SKIPPABLE


def zstd_pieces(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Cut a frame into its header, blocks with a header each, and checksum (RFC 8878, 3.1.1); no piece is empty."""
    file.seek(offset)
    magic = read_exactly(file, 4, offset)
    descriptor = read_exactly(file, 1, offset)[0]
    single_segment, checksum = bool(descriptor & 0x20), bool(descriptor & ZSTD_HAS_CHECKSUM)
    size = (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size += (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    yield magic + bytes([descriptor]) + read_exactly(file, size, offset)
    last = False
    while not last:
        header = read_exactly(file, 3, offset)
        number = int.from_bytes(header, "little")
        last, kind, size = bool(number & 1), (number >> 1) & 3, number >> 3
        if size > ZSTD_BLOCK_BYTES:
            raise BrokenMemberError(offset, "damaged zstd data (a block that is too long)")
        yield header
        if block := read_exactly(file, 1 if kind == 1 else size, offset):
            yield block
    if checksum:
        yield read_exactly(file, 4, offset)
    elif not _frame_follows(file):
        raise BrokenMemberError(offset, "damaged zstd data (a frame without a checksum, and no frame after it)")


def _frame_follows(file: BinaryIO) -> bool:
    """Return whether a frame, padding or nothing follows; one flipped bit of a header leaves a checksum there."""
    place = file.tell()
    magic = file.read(4)
    file.seek(place)
    return magic == ZSTD or is_skippable(magic) or not magic.strip(b"\0")


def zstd_dictionary(file: BinaryIO) -> zstandard.ZstdCompressionDict | None:
    """Return the dictionary that a file begins with, if it does; the file is read on from where it was."""
    place = file.tell()
    file.seek(0)
    head, dictionary = file.read(8), None
    if len(head) == 8 and int.from_bytes(head[:4], "little") == _DICTIONARY:
        dictionary = _dictionary(file, int.from_bytes(head[4:], "little"))
    file.seek(place)
    return dictionary


def _dictionary(file: BinaryIO, size: int) -> zstandard.ZstdCompressionDict:
    if size > DICTIONARY_BYTES:
        raise BrokenMemberError(0, f"a zstd dictionary of {size:,} bytes")
    content = read_exactly(file, size, 0)
    try:
        if content.startswith(ZSTD):
            with zstandard.ZstdDecompressor().stream_reader(content) as reader:
                content = reader.read(DICTIONARY_BYTES)
        dictionary = zstandard.ZstdCompressionDict(content)
        zstandard.ZstdDecompressor(dict_data=dictionary)  # reads its tables
    except zstandard.ZstdError as error:
        raise BrokenMemberError(0, f"a damaged zstd dictionary ({reason_of(error)})") from error
    return dictionary


def read_exactly(file: BinaryIO, size: int, offset: int) -> bytes:
    """Read so many bytes of the member that begins at an offset; raise BrokenMemberError where the file ends before."""
    content = file.read(size)
    if len(content) < size:
        raise BrokenMemberError(offset, "the file ends within a compressed member", is_cut=True)
    return content
