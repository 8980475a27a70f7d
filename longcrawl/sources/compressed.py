"""Compressed files (gzip, zstd), read member by member and yielding only data with a correct checksum.

A member of up to ``HELD_BYTES`` is held in memory until its checksum has been compared; a longer one is decompressed
twice, the first time only to check it. A caller that can discard everything made of a file may compare checksums "last"
and get data immediately; with ``short_whole``, short members are still checked first.

In a zstd frame without a checksum, as python-zstandard writes them, damage is noticed only if decompression fails, if
the length differs from that in the frame's header, or if the next bytes are not a frame.
"""

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np
import zstandard
from isal import isal_zlib

from longcrawl.core.sources import Checksums, UncheckedDataError
from longcrawl.errors import SourceError, reason_of
from longcrawl.sources.encodings import marked_encoding

GZIP = b"\x1f\x8b\x08"
MOST_HEADER_BYTES = 1 << 20
"""Maximum bytes of a gzip header, including its file name and comment, which have no limit in the format."""
_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
"""Flags of the optional parts of a gzip header after its first ten bytes."""
ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_DICTIONARY = 0x184D2A5D
"""Magic number of the skippable frame with a file's dictionary, by the convention for WARC files."""
DICTIONARY_BYTES = 100 << 20
"""Maximum bytes of a dictionary frame; dictionaries have about 100 kB."""
ZSTD_BLOCK_BYTES = 128 << 10
"""Maximum bytes of a block of a zstd frame, compressed or not (RFC 8878, 3.1.1.2.4)."""
ZSTD_HAS_CHECKSUM = 0x04
"""Bit in a frame's descriptor for a checksum at the end of the frame."""
ZSTD_WINDOW_BYTES = 128 << 20
"""Largest window of a zstd frame in bytes, which bounds the memory for decompression; that of ``zstd --long=27``."""


class BrokenMemberError(SourceError):
    """Error for a damaged member at ``offset``, or for other bytes there; ``is_cut`` if the file ends within it."""

    def __init__(self, offset: int, reason: str, *, is_member: bool = True, is_cut: bool = False) -> None:
        super().__init__(reason)
        self.offset, self.is_member, self.is_cut = offset, is_member, is_cut


def rest_of_header(read: Callable[[int], bytes], begin: int, begun: bytes, read_bytes: int) -> bytes:
    """Read the rest of a gzip header that has been read in part, because ISA-L rejects some headers in pieces.

    Nothing is read if the header is complete or has no optional part; BrokenMemberError is raised if it is too long.
    """
    if begun[3:4] == b"\0":  # the common case of a ten-byte header, which ISA-L accepts in pieces
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
    """Count the bytes of the gzip header that begins some content (RFC 1952, 2.3): 0 if none, None if it is cut."""
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
    """Return whether a zstd frame with this magic number is one that decoders skip."""
    return len(magic) == 4 and int.from_bytes(magic, "little") in _SKIPPABLE


def zstd_pieces(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Split a frame into its header, header and content of each block, and checksum, none empty (RFC 8878, 3.1.1)."""
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
        return
    # If no frame, padding or end of the file follows, a flag for a checksum was lost.
    place, magic = file.tell(), file.read(4)
    file.seek(place)
    if not (magic == ZSTD or is_skippable(magic) or not magic.strip(b"\0")):
        raise BrokenMemberError(offset, "damaged zstd data (a frame without a checksum, and no frame after it)")


def zstd_dictionary(file: BinaryIO) -> zstandard.ZstdCompressionDict | None:
    """Return the dictionary at the beginning of a file, or None; the file position is kept."""
    place = file.tell()
    file.seek(0)
    head, dictionary = file.read(8), None
    if int.from_bytes(head[:4], "little") == _DICTIONARY and len(head) == 8:
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
    """Read ``size`` bytes of the member at ``offset``, or raise BrokenMemberError if the file ends first."""
    content = file.read(size)
    if len(content) < size:
        raise BrokenMemberError(offset, "the file ends within a compressed member", is_cut=True)
    return content


def file_bytes(file: BinaryIO) -> int:
    """Return the length of a file in bytes, and keep its position."""
    place = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(place)
    return size


LARGE_BYTES = 36 << 20
"""Bytes of a large array, enough for a block of lines and the piece that exceeds it."""


class Window:
    """Byte buffer in one reused array: the system would map ``bytes`` of some hundred kB page by page each time."""

    def __init__(self) -> None:
        self._allocate(0)
        self._begin = self._end = 0

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._end - self._begin

    def view(self) -> memoryview:
        """Return the bytes, valid until more are added."""
        return self._readable[self._begin : self._end]

    def room(self, size: int) -> memoryview:
        """Return writable memory after the bytes; :meth:`add` then appends what was written at its beginning."""
        if self._end + size > len(self._memory):
            rest = self.view()
            wanted, has = len(rest) + size, len(self._memory)
            # Bytes move only once about as many have been added, and memory for one long record is released later.
            if 4 * wanted > 3 * has or (has > LARGE_BYTES and 8 * wanted < has):
                self._allocate(wanted + wanted // 2)
            self._memory[: len(rest)] = rest  # memoryviews of one buffer may overlap
            self._begin, self._end = 0, len(rest)
        return self._memory[self._end : self._end + size]

    def add(self, piece: bytes | memoryview) -> None:
        """Append bytes; those written to :meth:`room` are already in place."""
        if not isinstance(piece, memoryview) or piece.obj is not self._memory.obj:
            self.room(len(piece))[:] = piece
        self._end += len(piece)

    def drop(self, count: int) -> None:
        """Drop bytes from the end."""
        self._end -= count

    def take(self, count: int) -> memoryview:
        """Take ``count`` bytes from the beginning, valid until more are added."""
        self._begin += count
        return self._readable[self._begin - count : self._begin]

    def _allocate(self, size: int) -> None:
        self._memory = np.empty(size, np.uint8).data
        self._readable = self._memory.toreadonly()


Compression = Literal["none", "gzip", "zstd"]

Room = Callable[[int], memoryview]
"""Returns memory for decompressed zstd data whose checksums are compared last, given a number of bytes."""
READ_BYTES = 65_536
"""Bytes read at a time from an uncompressed file, and when searching for a member."""
GZIP_READ_BYTES = 1 << 17
"""Bytes of gzip data read at a time; each piece costs a dozen calls, whose code has left the caches by then."""
PIECE_BYTES = 1 << 20
"""Maximum bytes that a piece of gzip data decompresses to at a time."""
WHOLE_BYTES = 4 << 20
"""Maximum bytes of data of a member that is one event, see ``Members.events``."""
HELD_BYTES = 32 << 20
"""Maximum bytes of a member's data held in memory until its checksum has been compared."""
ZSTD_PIECE_BYTES = 1 << 19
"""Bytes decompressed from a zstd frame at a time."""
CAREFUL_BYTES = 4_096
"""Bytes of a broken member read at a time; a power of two."""
RECOVERIES = 8
"""Limit on the search for sound members after broken ones, in lengths of the file."""
PROBE_BYTES = 512
"""Bytes read to detect whether a member begins at a position."""
_OTHERS = re.compile(rb"(?P<xz>\xfd7zXZ\0)|(?P<bzip2>BZh[1-9]1AY&SY)|(?P<lz4>\x04\x22\x4d\x18)|(?P<zip>PK\x03\x04)")
"""Magic numbers of other compressed formats."""
_NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that do not occur in text."""
_GZIP_ERROR: Any = isal_zlib.error


class Event(NamedTuple):
    """Decompressed data, the begin or end of a member, or a whole short member.

    ``offset`` is the file position of the begin or end; a whole member extends from ``offset`` to ``end``.
    """

    kind: Literal["begin", "data", "end", "member"]
    offset: int = 0
    data: bytes | memoryview = b""
    end: int = 0

    def parts(self) -> "tuple[Event, ...]":
        """Return the begin, data and end events of a whole member, or the event itself."""
        if self.kind != "member":
            return (self,)
        data = (Event("data", data=self.data),) if self.data else ()
        return Event("begin", self.offset), *data, Event("end", self.end)


def compression_of(file: BinaryIO) -> Compression:
    """Detect the compression of a file from its first bytes; its name is not used."""
    file.seek(0)
    magic = file.read(4)
    if magic.startswith(GZIP[:2]):
        return "gzip"
    return "zstd" if magic == ZSTD or is_skippable(magic) else "none"


def stored_compression(file: BinaryIO, name: str) -> Compression:
    """Detect the compression of a text file from its first bytes; SourceError if it is not supported.

    The name decides only if the bytes are neither text nor the start of compressed data, and so are damaged.
    """
    found = compression_of(file)
    file.seek(0)
    begin = file.read(PROBE_BYTES)
    if (other := _OTHERS.match(begin)) is not None:
        raise SourceError(
            f"is compressed with {other.lastgroup}, which is not supported: decompress it, or use gzip or zstd"
        )
    name = name.lower()
    is_text = bool(begin) and (marked_encoding(begin) is not None or not _NOT_IN_TEXT.search(begin))
    if found == "none" and name.endswith((".gz", ".zst")) and not is_text:
        return "gzip" if name.endswith(".gz") else "zstd"
    return found


class Members:
    """The members of a file; an uncompressed file has only data."""

    def __init__(
        self,
        file: BinaryIO,
        compression: Compression,
        checksums: Checksums = "first",
        room: Room | None = None,
        *,
        short_whole: bool = False,
    ) -> None:
        """Set how members are read; ``short_whole`` holds back short ones until their checksums are compared."""
        self.file, self.compression, self.checksums = file, compression, checksums
        self._room = room if checksums == "last" else None
        self._unchecked: Callable[..., Iterator[Event]] = self._gzip if compression == "gzip" else self._zstd
        self._short_whole = short_whole

    def events(self, offset: int = 0) -> Iterator[Event]:
        """Decompress the file from the beginning of a member on, yielding all or nothing of each member.

        A member of up to ``WHOLE_BYTES`` is one event if checksums are compared first or ``short_whole`` is set. A gzip
        member in one piece always is. If checksums are compared last, all other data is yielded immediately. A damaged
        member raises BrokenMemberError, or UncheckedDataError if some of its data has been yielded.
        """
        if self.compression == "none":
            self.file.seek(offset)
            while piece := self.file.read(READ_BYTES):
                yield Event("data", data=piece)
        else:
            yield from self._at_once(offset) if self.checksums == "last" else self._checked(offset)

    def _checked(self, offset: int) -> Iterator[Event]:
        begin, held, size = Event("begin"), list[Event](), 0
        for event in self._unchecked(offset, whole_bytes=WHOLE_BYTES):
            if event.kind == "member":
                yield event
            elif event.kind == "begin":
                begin, held, size = event, [], 0
            elif event.kind == "data":
                size += len(event.data)
                held.append(event)
                if size > HELD_BYTES:
                    held.clear()
            else:
                yield begin
                yield from held if size <= HELD_BYTES else self._again(begin.offset)
                yield event

    def _at_once(self, offset: int) -> Iterator[Event]:
        kind = ""
        try:
            for event in self._unchecked(offset, whole_bytes=WHOLE_BYTES if self._short_whole else 0):
                kind = event.kind
                yield event
        except BrokenMemberError as broken:
            if kind == "data":
                raise UncheckedDataError(str(broken)) from broken
            raise

    def recover(self, broken: BrokenMemberError, take: Callable[[bytes], None]) -> tuple[int | None, int | None]:
        """Decompress a broken member up to the byte that breaks it, and find the next member.

        Returns the end of the member if its length matches, so that only its checksum is wrong, else None; and the next
        position at which a member begins and its first bytes can be decompressed, or None. The search is bounded by
        ``RECOVERIES``, since in a malicious file each byte could begin a member that breaks at its end.
        """
        if self.compression == "none":
            return None, None
        place = end = None
        if broken.is_member:
            read = self._read_gzip if self.compression == "gzip" else self._read_zstd
            place, end = read(broken.offset, take)
        self._to_spend -= (place or broken.offset) - broken.offset
        return end, self._next(broken.offset + 1)

    def _next(self, after: int) -> int | None:
        is_gzip = self.compression == "gzip"
        for offset in occurrences(self.file, GZIP if is_gzip else ZSTD, after):
            place = self.file.tell()
            if self._to_spend < 0:
                return None
            try:
                events = self._gzip(offset, PROBE_BYTES, PROBE_BYTES) if is_gzip else self._zstd(offset, 1)
                if next((event.data for event in events if event.kind != "begin"), b""):
                    return offset
            except BrokenMemberError:
                pass
            self._to_spend -= max(self.file.tell() - offset, 0)
            self.file.seek(place)
        return None

    def _read_gzip(self, offset: int, take: Callable[[bytes], None]) -> tuple[int, int | None]:
        """Read a broken gzip member in shrinking steps, undoing each failed step."""
        stream, step, size = zlib.decompressobj(31), CAREFUL_BYTES, 0
        while not stream.eof:
            self.file.seek(offset)
            if not (piece := self.file.read(step)):
                break
            tried = stream.copy()
            try:
                data = tried.decompress(piece)
            except zlib.error as error:
                if step == 1:
                    # The length follows the checksum, and is not compared if the checksum is wrong.
                    length = self.file.read(4) if "data check" in str(error) else b""
                    is_whole = length == (size % (1 << 32)).to_bytes(4, "little")
                    return offset + 1, offset + 5 if is_whole else None
                step //= 2
                continue
            take(data)
            stream, offset, size = tried, offset + len(piece), size + len(data)
        return offset, None

    def _read_zstd(self, offset: int, take: Callable[[bytes], None]) -> tuple[int, int | None]:
        try:
            stream = self._zstd_decompressor.decompressobj()
            for piece in zstd_pieces(self.file, offset):
                take(stream.decompress(piece))
        except BrokenMemberError:
            return self.file.tell(), None
        except zstandard.ZstdError as error:
            return self.file.tell(), self.file.tell() if "checksum" in str(error) else None
        return self.file.tell(), None

    @cached_property
    def _to_spend(self) -> int:
        return RECOVERIES * (file_bytes(self.file) + READ_BYTES)

    def _again(self, offset: int) -> Iterator[Event]:
        """Decompress a member that has passed its check, and restore the file position."""
        place = self.file.tell()
        for event in self._unchecked(offset):
            if event.kind == "end":
                break
            if event.kind == "data":
                yield event
        self.file.seek(place)

    def _gzip(
        self, offset: int, read_bytes: int = GZIP_READ_BYTES, piece_bytes: int = PIECE_BYTES, *, whole_bytes: int = 0
    ) -> Iterator[Event]:
        # ISA-L inflates 2.1 times as fast as zlib, and inflating limits the speed of reading.
        self.file.seek(offset)
        member, stream, pending = _Member(offset, 0), None, False
        while rest := self.file.read(read_bytes):
            offset += len(rest)
            while rest or (stream is not None and pending):
                if stream is None:
                    if not (rest := rest.lstrip(b"\0")):  # tapes and block devices pad the end of a file
                        break
                    member = _Member(offset - len(rest), whole_bytes)
                    if not rest.startswith(GZIP[:2]) and rest != GZIP[:1]:
                        raise BrokenMemberError(member.begin, "no gzip data", is_member=False)
                    stream = isal_zlib.decompressobj(31)
                    more = rest_of_header(self.file.read, member.begin, rest, read_bytes)
                    rest, offset = rest + more, offset + len(more)
                try:
                    data = stream.decompress(rest, piece_bytes)
                except _GZIP_ERROR as error:
                    raise BrokenMemberError(member.begin, f"damaged gzip data ({reason_of(error)})") from error
                rest, pending = stream.unconsumed_tail, len(data) == piece_bytes
                if stream.eof:
                    rest, stream = stream.unused_data, None
                yield from member.events(data, offset - len(rest) if stream is None else None)
        if stream is not None:
            raise BrokenMemberError(member.begin, "the file ends within a compressed member", is_cut=True)

    def _zstd(self, offset: int, piece_bytes: int = ZSTD_PIECE_BYTES, *, whole_bytes: int = 0) -> Iterator[Event]:
        self.file.seek(offset)
        while magic := self.file.read(4):
            if is_skippable(magic):
                begin, offset = offset, offset + 8 + int.from_bytes(read_exactly(self.file, 4, offset), "little")
                if self.file.seek(0, 2) < offset:
                    reason = "the file ends within a frame that is skipped"
                    raise BrokenMemberError(begin, reason, is_cut=True, is_member=False)
                self.file.seek(offset)
                continue
            if not magic.strip(b"\0"):
                offset += len(magic)
                continue
            if magic != ZSTD:
                raise BrokenMemberError(offset, "no zstd data", is_member=False)
            pieces = zstd_pieces(self.file, offset)
            stream = self._zstd_decompressor.stream_reader(cast("Any", _Pieces(pieces)))
            frame = _Member(offset, whole_bytes)
            try:
                while data := self._decompressed(stream, piece_bytes):
                    yield from frame.events(data, None)
            except zstandard.ZstdError as error:
                raise BrokenMemberError(offset, f"damaged zstd data ({reason_of(error)})") from error
            # This also checks the bytes after the last block, in case zstandard did not read them.
            if next(pieces, None) is not None:
                raise BrokenMemberError(offset, "damaged zstd data (a frame that ends before its last block)")
            offset = self.file.tell()
            yield from frame.events(b"", offset)

    def _decompressed(self, stream: zstandard.ZstdDecompressionReader, size: int) -> bytes | memoryview:
        if self._room is None:
            return stream.read(size)
        room = self._room(size)
        return room[: stream.readinto(room)]

    @cached_property
    def _zstd_decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=zstd_dictionary(self.file), max_window_size=ZSTD_WINDOW_BYTES)


def decompress_beginning(content: bytes, most_bytes: int) -> bytes:
    """Decompress the beginning of a gzip member to at most ``most_bytes``; nothing if it is not gzip."""
    try:
        return isal_zlib.decompressobj(31).decompress(content, most_bytes)
    except _GZIP_ERROR:
        return b""


class _Member:
    """A member being decompressed, which becomes one event if it is short or a single piece."""

    def __init__(self, begin: int, whole_bytes: int) -> None:
        self.begin, self._whole_bytes = begin, whole_bytes
        self._held, self._size, self._begun = list[bytes | memoryview](), 0, False

    def events(self, data: bytes | memoryview, end: int | None) -> Iterable[Event]:
        """Return the events that the next data completes; ``end`` is where the member ends, or None if it continues."""
        if data:
            self._held.append(data)
            self._size += len(data)
        is_short = self._size <= self._whole_bytes
        if not self._begun and end is not None and (is_short or len(self._held) <= 1):
            return (Event("member", self.begin, b"".join(self._held), end),)
        if not self._begun and end is None and is_short:
            return ()
        events = [] if self._begun else [Event("begin", self.begin)]
        events += [Event("data", data=piece) for piece in self._held]
        self._held, self._begun = [], True
        return events if end is None else [*events, Event("end", end)]


class _Pieces:
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _: int = -1) -> bytes:
        return next(self._pieces, b"")


def occurrences(file: BinaryIO, magic: bytes, after: int) -> Iterator[int]:
    """Yield the positions of some bytes in a file; the caller must restore the file position between two of them."""
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
