"""Reads compressed files member by member (gzip, zstd) and yields only data whose checksum is right.

A gzip member ends with the CRC and the length of its data, a zstd frame with a checksum if its header says so. Nothing
is known to be right before they are compared, so data is yielded only then: a member of up to ``HELD_BYTES`` waits in
memory, a longer one is decompressed twice, the first time to nothing. Who can throw away all that was made of a file
asks for its checksums "last", and gets data at once, of short members only if it does not ask for them whole. A member
without an end is broken as a whole. Of a zstd frame without a checksum (the command ``zstd`` writes one,
python-zstandard does not), only damage is noticed that decompressing stumbles over, that gives another length than the
frame's header says, or that leaves bytes behind it that are not a frame: the checksum of one whose header has lost its
flag.

A WARC file that is compressed as the standard asks for has one member or frame per record, so that a record can be read
alone, and the records around a damaged one are unharmed. Whole files in one member are read as well.
"""

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import zstandard
from isal import isal_zlib

from longcrawl.core.sources import Checksums, UncheckedDataError
from longcrawl.errors import SourceError, reason_of
from longcrawl.sources.encodings import marked_encoding

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


SMALL_BYTES = 1 << 22
"""How much is kept as the pieces that came."""

SHORT_BYTES = 1 << 18
"""How much of what is left is copied."""

LARGE_BYTES = 36 << 20
"""How long the first array is: a block of lines, and the piece that goes beyond it."""


class Gathered:
    """Bytes that are added at the end and taken from the beginning.

    Python's bytes of many megabytes lie in pages of 4 KiB, each cleared by the system when it is first written to.
    NumPy's arrays lie in pages of 2 MiB.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._array: npt.NDArray[np.uint8] | None = None
        self._size = 0

    def __len__(self) -> int:
        """Return how many bytes there are."""
        return self._size

    def add(self, piece: bytes | memoryview) -> None:
        """Add bytes at the end."""
        end = self._size + len(piece)
        if not self._size or (self._array is None and end <= SMALL_BYTES):
            self._pieces.append(piece)
        else:
            self._grow(end)
            self._view()[self._size : end] = piece
        self._size = end

    def add_lent(self, piece: memoryview) -> None:
        """Add bytes at the end that may change afterwards."""
        self.add(piece if self._array is not None else bytes(piece))

    def drop(self, count: int) -> None:
        """Drop bytes from the end."""
        self._size -= count
        if self._array is None:
            self._pieces = [b"".join(self._pieces)[: self._size]]

    def take(self, count: int | None = None) -> memoryview:
        """Take so many bytes from the beginning, or all of them."""
        size = self._size if count is None else count
        taken, rest = self._view()[:size], self._view()[size : self._size]
        self._pieces, self._array, self._size = [], None, 0
        if rest:
            self.add(rest if len(rest) > SHORT_BYTES else bytes(rest))  # a short rest keeps no long array
        return taken.toreadonly()

    def pieces(self) -> list[bytes | memoryview]:
        """Return all bytes, in pieces where they are few."""
        return self._pieces if self._array is None else [self._array.data[: self._size].toreadonly()]

    def _view(self) -> memoryview:
        if self._array is not None:
            return self._array.data
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return memoryview(self._pieces[0])

    def _grow(self, size: int) -> None:
        """Make room for so many bytes."""
        if self._array is not None and len(self._array) >= size:
            return
        before = self._view()[: self._size] if self._pieces or self._array is not None else memoryview(b"")
        self._array = np.empty(max(LARGE_BYTES, size + size // 4), np.uint8)
        self._array.data[: len(before)] = before
        self._pieces = []


class Window:
    """Bytes that are added at the end and taken from the beginning, in an array that is written to again and again.

    Python's bytes of some hundred kB come from the system each time, page by page.
    """

    def __init__(self) -> None:
        self._allocate(0)
        self._begin = self._end = 0

    def __len__(self) -> int:
        """Return how many bytes there are."""
        return self._end - self._begin

    def view(self) -> memoryview:
        """Return the bytes, which are there until more are added."""
        return self._readable[self._begin : self._end]

    def room(self, size: int) -> memoryview:
        """Return writable memory behind the bytes; :meth:`add` takes what was written to its beginning."""
        if self._end + size > len(self._memory):
            rest = self.view()
            wanted, has = len(rest) + size, len(self._memory)
            # Bytes move once for as many as are added, and what one long record needed is not kept.
            if 4 * wanted > 3 * has or (has > LARGE_BYTES and 8 * wanted < has):
                self._allocate(wanted + wanted // 2)
            self._memory[: len(rest)] = rest  # they may overlap
            self._begin, self._end = 0, len(rest)
        return self._memory[self._end : self._end + size]

    def add(self, piece: bytes | memoryview) -> None:
        """Add bytes at the end; what was written to :meth:`room` is there already."""
        if not isinstance(piece, memoryview) or piece.obj is not self._memory.obj:
            self.room(len(piece))[:] = piece
        self._end += len(piece)

    def clear(self) -> None:
        """Drop all bytes."""
        self._begin = self._end = 0

    def drop(self, count: int) -> None:
        """Drop bytes from the end."""
        self._end -= count

    def take(self, count: int) -> memoryview:
        """Take so many bytes from the beginning, which are there until more are added."""
        self._begin += count
        return self._readable[self._begin - count : self._begin]

    def _allocate(self, size: int) -> None:
        self._memory = np.empty(size, np.uint8).data
        self._readable = self._memory.toreadonly()


Compression = Literal["none", "gzip", "zstd"]

Room = Callable[[int], memoryview]
"""Returns memory for so many bytes, to which zstd frames are decompressed whose checksums are compared last."""

READ_BYTES = 65_536
"""How much is read at a time of a file that is not compressed, and where a member is looked for."""

GZIP_READ_BYTES = 1 << 17
"""How much of gzip data is read at a time: each piece costs a dozen calls, whose code no cache holds any more."""

PIECE_BYTES = 1 << 20
"""How much a piece of gzip data becomes at most, however well it is compressed."""

WHOLE_BYTES = 4 << 20
"""How long the data of a member is at most that is one event, see ``Members.events``."""

HELD_BYTES = 32 << 20
"""How much of a member's data waits in memory until its checksum has been compared."""

ZSTD_PIECE_BYTES = 1 << 19
"""How much of a zstd frame is decompressed at a time, however well it is compressed."""

CAREFUL_BYTES = 4_096
"""How much of a broken member is read at a time, a power of two."""

RECOVERIES = 8
"""How many times the length of a file is read at most in looking for sound members behind broken ones."""

PROBE_BYTES = 512
"""How much is read to see whether a member begins at a place."""

_OTHERS = re.compile(rb"(?P<xz>\xfd7zXZ\0)|(?P<bzip2>BZh[1-9]1AY&SY)|(?P<lz4>\x04\x22\x4d\x18)|(?P<zip>PK\x03\x04)")
"""The beginnings of other compressed files."""
_NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that text does not have."""

_GZIP_ERROR: Any = isal_zlib.error


class Event(NamedTuple):
    """Decompressed data, an edge of a member at this offset of the file, or a short member: from it to ``end``."""

    kind: Literal["begin", "data", "end", "member"]
    offset: int = 0
    data: bytes | memoryview = b""
    end: int = 0

    def parts(self) -> "tuple[Event, ...]":
        """Return the edges of a member and the data between them, as longer ones have them."""
        if self.kind != "member":
            return (self,)
        data = (Event("data", data=self.data),) if self.data else ()
        return Event("begin", self.offset), *data, Event("end", self.end)


def compression_of(file: BinaryIO) -> Compression:
    """Detect by its first bytes how a file is compressed; its name says nothing of what it holds."""
    file.seek(0)
    magic = file.read(4)
    if magic.startswith(GZIP[:2]):
        return "gzip"
    return "zstd" if magic == ZSTD or is_skippable(magic) else "none"


def stored_compression(file: BinaryIO, name: str) -> Compression:
    """Detect by its first bytes how a file of text is compressed.

    Its name decides only for bytes that are neither text nor the beginning of compressed data: they are damaged.

    Raises:
        SourceError: it is compressed in a way that is not read.
    """
    found = compression_of(file)
    file.seek(0)
    begin = file.read(PROBE_BYTES)
    if (other := _OTHERS.match(begin)) is not None:
        raise SourceError(
            f"is compressed with {other.lastgroup}, which is not read: decompress it, or compress it with gzip or zstd"
        )
    name = name.lower()
    is_text = bool(begin) and (marked_encoding(begin) is not None or not _NOT_IN_TEXT.search(begin))
    if found == "none" and name.endswith((".gz", ".zst")) and not is_text:
        return "gzip" if name.endswith(".gz") else "zstd"
    return found


class Members:
    """The members of a file; an uncompressed one has none, only data."""

    def __init__(
        self,
        file: BinaryIO,
        compression: Compression,
        checksums: Checksums = "first",
        room: Room | None = None,
        *,
        short_whole: bool = False,
    ) -> None:
        """Set how members are read.

        With ``short_whole`` short members are one event, after their checksum, also where others are compared last.
        """
        self.file, self.compression, self.checksums = file, compression, checksums
        self._room = room if checksums == "last" else None
        self._short_whole = short_whole

    def events(self, offset: int = 0) -> Iterator[Event]:
        """Decompress the file from a member's beginning on; of each member, all or nothing.

        A member of up to ``WHOLE_BYTES`` is one event where checksums are compared first or ``short_whole`` is set, and
        a gzip member in one piece always. Where checksums are compared last, all other data is yielded as it comes.

        Raises:
            BrokenMemberError: at the first member that is not sound.
            UncheckedDataError: as that, where data of it has been yielded.
        """
        if self.compression == "none":
            yield from self._plain(offset)
            return
        if self.checksums == "last":
            yield from self._at_once(offset)
            return
        yield from self._checked(offset)

    def _checked(self, offset: int) -> Iterator[Event]:
        begin, held, size = Event("begin"), Gathered(), 0
        for event in self._unchecked(offset, WHOLE_BYTES):
            if event.kind == "member":
                yield event
            elif event.kind == "begin":
                begin, held, size = event, Gathered(), 0
            elif event.kind == "data":
                size += len(event.data)
                if size <= HELD_BYTES:
                    held.add(event.data)
                elif held:
                    held = Gathered()
            else:
                yield begin
                if size > HELD_BYTES:
                    yield from self._again(begin.offset)
                else:
                    yield from (Event("data", data=piece) for piece in held.pieces())
                yield event

    def _at_once(self, offset: int) -> Iterator[Event]:
        kind = ""
        try:
            for event in self._unchecked(offset, WHOLE_BYTES if self._short_whole else 0):
                kind = event.kind
                yield event
        except BrokenMemberError as broken:
            if kind == "data":
                raise UncheckedDataError(str(broken)) from broken
            raise

    def recover(self, broken: BrokenMemberError, take: Callable[[bytes], None]) -> tuple[int | None, int | None]:
        """Decompress what can be of a broken member, up to the very byte that breaks it, and find the next member.

        Looking ends, and the rest of the file is lost, where it would take more than ``RECOVERIES`` readings of the
        file: one can be made such that each of its bytes begins a member that breaks at the file's end.

        Returns:
            Where the member ends, if it has an end and as much data as it says: then only its checksum is wrong. And
            the next place where one begins whose first bytes can be decompressed, if there is one.
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
        for offset in occurrences(self.file, GZIP if self.compression == "gzip" else ZSTD, after):
            place = self.file.tell()
            if self._to_spend < 0:
                return None
            try:
                if any(event.data for event in self._start(offset)):
                    return offset
            except BrokenMemberError:
                pass
            self._to_spend -= max(self.file.tell() - offset, 0)
            self.file.seek(place)
        return None

    def _read_gzip(self, offset: int, take: Callable[[bytes], None]) -> tuple[int, int | None]:
        """Read a broken gzip member in steps that become shorter: a failed one gives nothing, but can be undone."""
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
                    # The length stands behind the checksum, and is not compared if that is wrong.
                    length = self.file.read(4) if "data check" in str(error) else b""
                    is_whole = length == (size % (1 << 32)).to_bytes(4, "little")
                    return offset + 1, offset + 5 if is_whole else None
                step //= 2
                continue
            take(data)
            stream, offset, size = tried, offset + len(piece), size + len(data)
        return offset, None

    def _read_zstd(self, offset: int, take: Callable[[bytes], None]) -> tuple[int, int | None]:
        """Read a broken zstd frame piece by piece."""
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
        place = self.file.tell()
        size = self.file.seek(0, os.SEEK_END)
        self.file.seek(place)
        return RECOVERIES * (size + READ_BYTES)

    def _unchecked(self, offset: int, whole_bytes: int = 0) -> Iterator[Event]:
        read = self._gzip if self.compression == "gzip" else self._zstd
        return read(offset, whole_bytes=whole_bytes)

    def _again(self, offset: int) -> Iterator[Event]:
        """Decompress a member that has been found sound, and go back to where the file was read."""
        place = self.file.tell()
        for event in self._unchecked(offset):
            if event.kind == "end":
                break
            if event.kind == "data":
                yield event
        self.file.seek(place)

    def _start(self, offset: int) -> Iterator[Event]:
        """Return the events of a member up to its first data."""
        found = self._gzip(offset, PROBE_BYTES, PROBE_BYTES) if self.compression == "gzip" else self._zstd(offset, 1)
        for event in found:
            yield event
            if event.kind != "begin":
                return

    def _plain(self, offset: int) -> Iterator[Event]:
        self.file.seek(offset)
        while piece := self.file.read(READ_BYTES):
            yield Event("data", data=piece)

    def _gzip(
        self, offset: int, read_bytes: int = GZIP_READ_BYTES, piece_bytes: int = PIECE_BYTES, *, whole_bytes: int = 0
    ) -> Iterator[Event]:
        """Decompress member after member; one of up to ``whole_bytes``, or in one piece, is one event."""
        # ISA-L inflates 2.1 times as fast as zlib, which bounds the reading of documents.
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
        """Decompress frame after frame, so many bytes at a time; one of up to ``whole_bytes`` is one event."""
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
            # Also checks what follows the last block, should zstandard not have asked for more.
            if next(pieces, None) is not None:
                raise BrokenMemberError(offset, "damaged zstd data (a frame that ends before its last block)")
            offset = self.file.tell()
            yield from frame.events(b"", offset)

    def _decompressed(self, stream: zstandard.ZstdDecompressionReader, size: int) -> bytes | memoryview:
        """Return what follows in a frame, so many bytes but for its last ones."""
        if self._room is None:
            return stream.read(size)
        room = self._room(size)
        return room[: stream.readinto(room)]

    @cached_property
    def _zstd_decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=zstd_dictionary(self.file), max_window_size=ZSTD_WINDOW_BYTES)


def decompress_beginning(content: bytes, most_bytes: int) -> bytes:
    """Return what the beginning of a gzip member decompresses to, so many bytes at most; nothing of other bytes."""
    try:
        return isal_zlib.decompressobj(31).decompress(content, most_bytes)
    except _GZIP_ERROR:
        return b""


class _Member:
    """A member as it is decompressed: one event if it has so many bytes at most, or a single piece."""

    def __init__(self, begin: int, whole_bytes: int) -> None:
        self.begin, self._whole_bytes = begin, whole_bytes
        self._held, self._size, self._begun = list[bytes | memoryview](), 0, False

    def events(self, data: bytes | memoryview, end: int | None) -> Iterable[Event]:
        """Return what is known of it with its next data, and where it ends, if it does."""
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
    """Pieces of a file as what zstandard reads from; the frame that they are has ended when there are no more."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _: int = -1) -> bytes:
        """Return the next piece, however long it is."""
        return next(self._pieces, b"")


def occurrences(file: BinaryIO, magic: bytes, after: int) -> Iterator[int]:
    """Find where in a file some bytes are, from a place on; between two, the file is to be where it was."""
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
