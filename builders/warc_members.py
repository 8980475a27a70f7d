"""The bytes inside an archive file, and where its gzip members and zstd frames begin and end.

A WARC file that is compressed as the standard asks for has one member or frame per record, so that a record can be read
alone, and the records around a damaged one are unharmed. Whole files in one member are read as well.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Literal, NamedTuple

from longcrawl.errors import SourceError

__all__ = ["BrokenMemberError", "Compression", "Event", "compression_of", "events", "next_member"]

Compression = Literal["none", "gzip", "zstd"]

READ_BYTES = 65_536
"""How much is read from the file at a time."""

PIECE_BYTES = 1 << 20
"""How much a piece of gzip data becomes at most, however well it is compressed."""

PROBE_BYTES = 512
"""How much is read to see whether a member begins at a place."""

GZIP = b"\x1f\x8b\x08"
ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_DICTIONARY = 0x184D2A5D
"""The magic number of the skippable frame that holds a file's dictionary, by the convention for WARC files."""

DICTIONARY_BYTES = 100 << 20
"""What such a frame holds at most; dictionaries are of some 100 kB."""


class BrokenMemberError(SourceError):
    """A member that cannot be decompressed, or bytes that are no member, begin at ``offset``."""

    def __init__(self, offset: int, reason: str, *, is_member: bool = True) -> None:
        super().__init__(reason)
        self.offset, self.is_member = offset, is_member


class Event(NamedTuple):
    """Decompressed data, or an edge: a member begins or ends at this offset of the file."""

    kind: Literal["begin", "data", "end"]
    offset: int = 0
    data: bytes = b""


def compression_of(file: BinaryIO) -> Compression:
    """Tell by its first bytes how a file is compressed; its name says nothing of what it holds."""
    file.seek(0)
    magic = file.read(4)
    if magic.startswith(GZIP[:2]):
        return "gzip"
    return "zstd" if magic == ZSTD or _skippable(magic) else "none"


def events(file: BinaryIO, compression: Compression, offset: int = 0) -> Iterator[Event]:
    """Decompress a file from a member's beginning on.

    Raises:
        BrokenMemberError: where it is damaged; all before that has been given.

    """
    if compression == "none":
        return _plain(file, offset)
    return _gzip(file, offset) if compression == "gzip" else _zstd(file, offset)


def next_member(file: BinaryIO, compression: Compression, after: int) -> int | None:
    """Find the next place from ``after`` on where a member begins whose first bytes can be decompressed."""
    if compression == "none":
        return None
    magic = GZIP if compression == "gzip" else ZSTD
    for offset in _occurrences(file, magic, after):
        place = file.tell()
        try:
            if any(event.kind == "data" for event in _start(file, compression, offset)):
                return offset
        except BrokenMemberError:
            pass
        file.seek(place)
    return None


def _start(file: BinaryIO, compression: Compression, offset: int) -> Iterator[Event]:
    """Give the events of a member up to its first data."""
    found = _gzip(file, offset, PROBE_BYTES, PROBE_BYTES) if compression == "gzip" else _zstd(file, offset)
    for event in found:
        yield event
        if event.kind != "begin":
            return


def _occurrences(file: BinaryIO, magic: bytes, after: int) -> Iterator[int]:
    file.seek(after)
    tail, offset = b"", after
    while piece := file.read(READ_BYTES):
        text = tail + piece
        base = offset - len(tail)
        offset += len(piece)
        found = text.find(magic)
        while found >= 0:
            yield base + found
            found = text.find(magic, found + 1)
        tail = text[1 - len(magic) :]


def _plain(file: BinaryIO, offset: int) -> Iterator[Event]:
    file.seek(offset)
    while piece := file.read(READ_BYTES):
        yield Event("data", data=piece)


def _gzip(file: BinaryIO, offset: int, read_bytes: int = READ_BYTES, piece_bytes: int = PIECE_BYTES) -> Iterator[Event]:
    from isal import isal_zlib

    errors: Any = isal_zlib.error
    file.seek(offset)
    begin, stream, pending = offset, None, False
    while rest := file.read(read_bytes):
        offset += len(rest)
        while rest or (stream is not None and pending):
            if stream is None:
                rest = rest.lstrip(b"\0")  # tapes and block devices pad the end of a file
                if not rest:
                    break
                begin = offset - len(rest)
                if not rest.startswith(GZIP[:2]) and rest != GZIP[:1]:
                    raise BrokenMemberError(begin, "no gzip data", is_member=False)
                stream = isal_zlib.decompressobj(31)
                yield Event("begin", begin)
            try:
                data = stream.decompress(rest, piece_bytes)
            except errors as error:
                raise BrokenMemberError(begin, f"damaged gzip data ({_said(error)})") from error
            if data:
                yield Event("data", data=data)
            rest, pending = stream.unconsumed_tail, len(data) == piece_bytes
            if stream.eof:
                rest, stream = stream.unused_data, None
                yield Event("end", offset - len(rest))
    if stream is not None:
        raise BrokenMemberError(begin, "the file ends within a compressed member")


def _zstd(file: BinaryIO, offset: int) -> Iterator[Event]:
    """Decompress frame after frame, block after block: a block is 128 KiB at most, however well it is compressed."""
    import zstandard

    new_stream = _with_dictionary(file)
    file.seek(offset)
    while magic := file.read(4):
        if _skippable(magic):
            offset += 8 + _exactly(file, 4, offset, "<I")
            file.seek(offset)
            continue
        if not magic.strip(b"\0"):
            offset += len(magic)
            continue
        if magic != ZSTD:
            raise BrokenMemberError(offset, "no zstd data", is_member=False)
        yield Event("begin", offset)
        stream = new_stream()
        try:
            for compressed in _blocks(file, magic, offset):
                if data := stream.decompress(compressed):
                    yield Event("data", data=data)
        except zstandard.ZstdError as error:
            raise BrokenMemberError(offset, f"damaged zstd data ({_said(error)})") from error
        if not stream.eof:
            raise BrokenMemberError(offset, "damaged zstd data (a frame without an end)")
        offset = file.tell()
        yield Event("end", offset)


def _blocks(file: BinaryIO, magic: bytes, offset: int) -> Iterator[bytes]:
    """Cut a frame into its header, its blocks and its checksum (RFC 8878, 3.1.1)."""
    descriptor = _exactly(file, 1, offset, "B")
    single_segment, checksum = bool(descriptor & 0x20), bool(descriptor & 0x04)
    size = (not single_segment) + (0, 1, 2, 4)[descriptor & 3] + (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    yield magic + bytes([descriptor]) + _bytes(file, size, offset)
    last = False
    while not last:
        header = _bytes(file, 3, offset)
        number = int.from_bytes(header, "little")
        last, kind = bool(number & 1), (number >> 1) & 3
        yield header + _bytes(file, 1 if kind == 1 else number >> 3, offset)
    if checksum:
        yield _bytes(file, 4, offset)


def _with_dictionary(file: BinaryIO) -> Callable[[], Any]:
    """Make a source of decompressors, with the dictionary that the file begins with, if it does."""
    import zstandard

    file.seek(0)
    head = file.read(8)
    if len(head) < 8 or struct.unpack("<I", head[:4])[0] != _DICTIONARY:
        return zstandard.ZstdDecompressor().decompressobj
    size = struct.unpack("<I", head[4:])[0]
    if size > DICTIONARY_BYTES:
        raise BrokenMemberError(0, f"a zstd dictionary of {size:,} bytes")
    content = _bytes(file, size, 0)
    try:
        if content.startswith(ZSTD):
            with zstandard.ZstdDecompressor().stream_reader(content) as reader:
                content = reader.read(DICTIONARY_BYTES)
        dictionary = zstandard.ZstdCompressionDict(content)
        return zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj
    except zstandard.ZstdError as error:
        raise BrokenMemberError(0, f"a damaged zstd dictionary ({_said(error)})") from error


def _skippable(magic: bytes) -> bool:
    return len(magic) == 4 and struct.unpack("<I", magic)[0] in _SKIPPABLE


def _exactly(file: BinaryIO, size: int, offset: int, form: str) -> int:
    return int(struct.unpack(form, _bytes(file, size, offset))[0])


def _bytes(file: BinaryIO, size: int, offset: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise BrokenMemberError(offset, "the file ends within a compressed member")
    return content


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
