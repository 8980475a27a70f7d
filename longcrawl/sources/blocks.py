"""Lines of a file, decompressed, decoded, and cut into reproducible blocks.

Compressed data is yielded after its checksum has been compared, see :mod:`longcrawl.sources.compressed`. A lost line
becomes an empty line in its block, so that all other lines keep their numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import zstandard

from longcrawl.core.progress import note_read
from longcrawl.core.sources import Checksums, Loss, Section
from longcrawl.errors import SourceError
from longcrawl.sources import encodings
from longcrawl.sources.compressed import (
    BrokenMemberError,
    Compression,
    Members,
    Room,
    Window,
    file_bytes,
    stored_compression,
)
from longcrawl.sources.encodings import Decoding, codec_name, detect_encoding, is_wide, lossy_decoder, marked_encoding
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.urls import path_of

BLOCK_BYTES = 32_000_000
"""Maximum bytes of uncompressed text in a table, unless one line is longer."""
RECORD_BYTES = 256 << 20
"""Default maximum bytes of a line, or of a text file that is one document; long texts in crawls have about 20 MB."""
READ_BYTES = 1 << 18
"""Bytes read at a time from an uncompressed file."""
STEP_BYTES = 1 << 19
"""Bytes scanned at a time, few enough to stay in a core's own cache for a second look."""
FIRST_BYTES, WINDOW_BYTES = 1 << 13, 1 << 16
"""Bytes searched for a line end the first time, and each further time."""
LONG_STEP_BYTES = 2 * STEP_BYTES
"""Maximum bytes of whole lines that are yielded as one step."""
_CUT = "is cut: it ends before its compressed data does"


@dataclass(frozen=True)
class _Damage:
    reason: str
    line_feeds: int
    """Number of line feeds that seem to be in it."""
    ends_in_line: bool
    """Whether text seems to follow the last line feed."""
    is_counted: bool
    """Whether ``line_feeds`` is exact."""
    is_last: bool


def stop_at(loss: Loss) -> None:
    """Raise a DamagedFileError for the first loss."""
    if loss.kind == "line":
        raise DamagedFileError(f"has a line {loss.line:,} that {loss.reason}")
    raise DamagedFileError(loss.reason, loss.lines)


def stop_at_damage(lose_line: Callable[[Loss], None]) -> Callable[[Loss], None]:
    """Return a callback that passes on lost lines and stops at damage, after which line numbers are unknown."""

    def note(loss: Loss) -> None:
        if loss.kind == "damage":
            stop_at(loss)
        lose_line(loss)

    return note


def too_long(most_bytes: int, where: str = "") -> str:
    """Return the error reason for a record that is longer than the limit."""
    return f"has more than {most_bytes:,} bytes{where}; to read it, raise max_record_bytes"


def read_bytes(
    path: str, most_bytes: int = RECORD_BYTES, records: int | None = 1, decoding: Decoding | None = None
) -> bytes:
    """Read a whole file, decompressed and decoded.

    A DamagedFileError of so many ``records``, None for unknown, is raised if it is damaged or exceeds ``most_bytes``.
    """
    pieces, size = list[bytes | memoryview](), 0
    for piece in _pieces(path, decoding=decoding):
        if isinstance(piece, _Damage):
            raise DamagedFileError(piece.reason, records)
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise DamagedFileError(too_long(most_bytes), records)
    return b"".join(pieces)


def read_blocks(
    path: str,
    block_bytes: int = BLOCK_BYTES,
    *,
    most_bytes: int = RECORD_BYTES,
    on_loss: Callable[[Loss], None] = stop_at,
    decoding: Decoding | None = None,
) -> Iterator[memoryview]:
    """Read whole lines of a file, one block at a time; see :func:`read_steps`."""
    block = bytearray()
    for step in read_steps(path, block_bytes, most_bytes=most_bytes, on_loss=on_loss, decoding=decoding):
        if step is not None:
            block += step
        else:
            yield memoryview(block).toreadonly()
            block = bytearray()


def read_steps(
    path: str,
    block_bytes: int = BLOCK_BYTES,
    *,
    most_bytes: int = RECORD_BYTES,
    on_loss: Callable[[Loss], None] = stop_at,
    after_damage: Literal["keep", "drop"] = "keep",
    checksums: Checksums = "first",
    lines_read: Callable[[], int] | None = None,
    decoding: Decoding | None = None,
    section: Section | None = None,
) -> Iterator[memoryview | None]:
    """Read whole lines of a file, decompressed, in blocks of several steps, with None after each block.

    A block ends at the last line end within ``block_bytes``, or at the first one after it if a line is longer, and at
    lost lines. Only the last block may lack its line end. A step is valid until the next one.

    Args:
        path: local file or URL.
        block_bytes: maximum bytes of a block.
        most_bytes: maximum bytes of a line; no more than this is ever held of a longer one.
        on_loss: called with each loss after the lines before it have been yielded; it may raise.
        after_damage: "drop" discards the first line after damage, which may lack its beginning.
        checksums: when the checksums of compressed data are compared.
        lines_read: returns the number of lines in all steps so far if the caller counts them.
        decoding: the encoding to convert to UTF-8 from, or None for unchanged bytes.
        section: the section to read of a file of UTF-8, or None for all of it.

    Raises:
        DamagedFileError: the file is damaged; it is raised after the last whole line before the damage.
        UncheckedDataError: the checksum of lines that have already been yielded is wrong.
    """
    lines = _Lines(block_bytes, most_bytes, on_loss, after_damage, lines_read)
    try:
        for piece in _pieces(path, checksums, lines.room, decoding, section):
            yield from lines.damage(piece) if isinstance(piece, _Damage) else lines.add(piece)
    except DamagedFileError:
        lines.drop_open_line()
        yield from lines.flush()
        raise
    yield from lines.end()


@dataclass
class _Lines:
    """Splitter of text into blocks of whole lines, yielded in steps with None after each block."""

    block_bytes: int
    most_bytes: int
    on_loss: Callable[[Loss], None]
    after_damage: Literal["keep", "drop"]
    lines_read: Callable[[], int] | None
    """Returns the number of lines yielded, including lost ones; None to count them here."""
    _pending: Window = field(default_factory=Window)
    _block: int = 0
    """Bytes of the block yielded so far."""
    _open: int = 0
    """Pending bytes after the last line end."""
    _lost: str = ""
    """Reason why the open line is lost, or ""."""
    _counted: int = 0

    def room(self, size: int) -> memoryview:
        return self._pending.room(size)

    def add(self, piece: bytes | memoryview) -> Iterator[memoryview | None]:
        if self._lost or self._open + len(piece) > self.most_bytes:
            # Dropping text moves the end back, so text already in the memory of ``room`` has to be copied.
            for text in _cut(bytes(piece), min(self.most_bytes, READ_BYTES)):
                yield from self._add_carefully(text)
        else:
            for step in [piece] if len(piece) <= LONG_STEP_BYTES else _cut(piece, STEP_BYTES):
                self._add(step)
                yield from self._steps()

    def _steps(self) -> Iterator[memoryview | None]:
        if len(self._pending) - self._open >= min(STEP_BYTES, self.block_bytes):
            yield from self._whole()

    def _whole(self) -> Iterator[memoryview | None]:
        while whole := len(self._pending) - self._open:
            room = max(self.block_bytes - self._block, 0)
            most = min(whole if whole < LONG_STEP_BYTES else STEP_BYTES, room)
            end = line_end(self._pending.view(), most) if most < whole else whole
            if self._block and end > room:
                yield from self._end_block()
            else:
                yield self._take(end)

    def _take(self, size: int) -> memoryview:
        step = self._pending.take(size)
        self._block += size
        if self.lines_read is None:
            self._counted += int(np.count_nonzero(np.frombuffer(step, np.uint8) == ord("\n")))
        return step

    def _end_block(self) -> Iterator[None]:
        if self._block:
            self._block = 0
            yield None

    def _add_carefully(self, text: memoryview) -> Iterator[memoryview | None]:
        """Add text of at most one line's maximum length, when the open line may become too long."""
        if self._lost or self._open + len(text) > self.most_bytes:
            end = bytes(text).find(b"\n")
            first = len(text) if end < 0 else end
            if not self._lost and self._open + first > self.most_bytes:
                self._lost = too_long(self.most_bytes)
            if self._lost:
                self.drop_open_line()
                if end < 0:
                    return
                yield from self._lose_line()
                text = text[end:]
        self._add(text)
        yield from self._steps()

    def _add(self, text: bytes | memoryview) -> None:
        self._pending.add(text)
        end = last_line_end(text)
        self._open = len(text) - end if end else self._open + len(text)

    def damage(self, damage: _Damage) -> Iterator[memoryview | None]:
        """Yield the whole lines before damage, report the damage, and yield an empty line for each of its lines."""
        torn = self._open > 0 or bool(self._lost)
        self.drop_open_line()
        yield from self.flush()
        lines, first = damage.line_feeds, self._next_line()
        if damage.is_last:
            lines += damage.ends_in_line or (torn and not lines)
        reason = damage.reason + (f"; {lines:,} lines seem to be lost, from line {first:,} on" if lines else "")
        self.on_loss(Loss("damage", first, (lines or None) if damage.is_counted else None, reason))
        self._counted += damage.line_feeds
        for start in range(0, damage.line_feeds, self.block_bytes):
            yield from _cut(b"\n" * min(damage.line_feeds - start, self.block_bytes), STEP_BYTES)
            yield None
        self._lost = "may lack its beginning, which is damaged" if self.after_damage == "drop" else ""

    def end(self) -> Iterator[memoryview | None]:
        yield from self._lose_line() if self._lost else self.flush()

    def flush(self) -> Iterator[memoryview | None]:
        yield from self._whole()
        if self._block and self._block + self._open > self.block_bytes:
            yield from self._end_block()
        if self._open:
            size, self._open = self._open, 0
            yield self._take(size)
        yield from self._end_block()

    def drop_open_line(self) -> None:
        self._pending.drop(self._open)
        self._open = 0

    def _next_line(self) -> int:
        return 1 + (self._counted if self.lines_read is None else self.lines_read())

    def _lose_line(self) -> Iterator[memoryview | None]:
        yield from self.flush()
        self.on_loss(Loss("line", self._next_line(), 1, self._lost))
        self._lost = ""


def _cut(piece: bytes | memoryview, size: int) -> Iterator[memoryview]:
    text = memoryview(piece)
    return (text[start : start + size] for start in range(0, len(text), size))


def last_line_end(text: bytes | memoryview) -> int:
    """Return the end of the last line that ends in a text, or 0 if none does."""
    if isinstance(text, bytes):
        return text.rfind(b"\n") + 1
    stop, window = len(text), FIRST_BYTES
    while stop:
        start = max(stop - window, 0)
        if (found := bytes(text[start:stop]).rfind(b"\n")) >= 0:
            return start + found + 1
        stop, window = start, WINDOW_BYTES
    return 0


def line_end(text: memoryview, near: int) -> int:
    """Return the end of the last line before a position, or else of the first line after it; 0 if no line ends."""
    if end := last_line_end(text[:near]):
        return end
    for start in range(near, len(text), WINDOW_BYTES):
        if (found := bytes(text[start : start + WINDOW_BYTES]).find(b"\n")) >= 0:
            return start + found + 1
    return 0


def seeming_encoding(path: str, section: Section | None = None) -> str | None:
    """Return the encoding that a text file or a section seems to be in, or None if it is binary or cannot be read."""
    try:
        pieces = _pieces(path, section=section)
        return detect_encoding(piece for piece in pieces if not isinstance(piece, _Damage))
    except SourceError:
        return None


def sound_pieces(path: str) -> Iterator[bytes | memoryview]:
    """Yield the decompressed data of a file, before its checksums are compared.

    Raises:
        DamagedFileError: the file is damaged.
        UncheckedDataError: the data yielded so far does not have its checksum.
    """
    for piece in _pieces(path, "last"):
        if isinstance(piece, _Damage):
            raise DamagedFileError(piece.reason)
        yield piece


_Pieces = Iterator[bytes | memoryview | _Damage]


def _pieces(
    path: str,
    checksums: Checksums = "first",
    room: Room | None = None,
    decoding: Decoding | None = None,
    section: Section | None = None,
) -> _Pieces:
    if section is not None:
        yield from _section_pieces(path, section)
        return
    with local_copy(path) as copy, Path(copy).open("rb") as file:
        try:
            compression = stored_compression(file, path_of(path))
        except SourceError as unknown:
            raise DamagedFileError(str(unknown)) from unknown
        stored = partial(_stored, file, compression, checksums, file_bytes(file))
        yield from stored(room) if decoding is None else _decoded(stored, room, decoding)


def _section_pieces(path: str, section: Section) -> Iterator[bytes]:
    if section.unpacked:
        with local_copy(section.unpacked) as copy, Path(copy).open("rb") as packed:
            size = file_bytes(packed)
            for piece in zstandard.ZstdDecompressor().read_to_iter(packed, write_size=READ_BYTES):
                note_read(packed.tell(), size)
                yield piece
        return
    with local_copy(path) as copy, Path(copy).open("rb") as file:
        file.seek(section.start)
        left = section.stop - section.start
        while piece := file.read(min(left, READ_BYTES)):
            left -= len(piece)
            note_read(file.tell() - section.start, section.stop - section.start)
            yield piece


def _stored(file: BinaryIO, compression: Compression, checksums: Checksums, size: int, room: Room | None) -> _Pieces:
    file.seek(0)
    plain = compression == "none"
    pieces = iter(lambda: file.read(READ_BYTES), b"") if plain else _sound(file, compression, checksums, room)
    for piece in pieces:
        note_read(file.tell(), size)
        yield piece


def _decoded(stored: Callable[[Room | None], _Pieces], room: Room | None, decoding: Decoding) -> _Pieces:
    """Yield the data of a file in UTF-8; a file whose encoding is detected is read twice."""
    name, guessed = decoding.encoding, ""
    if name == encodings.DETECT:
        sound = (piece for piece in stored(None) if not isinstance(piece, _Damage))
        if (found := detect_encoding(sound)) is None:
            raise DamagedFileError("seems to be binary, not text in a known encoding; set encoding if it is text", 1)
        name, guessed = found, "" if found == "utf-8" else encodings.GUESSED
    begin, pieces = _begin_of(stored(room))
    if (marked := marked_encoding(begin)) is not None:
        name, guessed, begin = marked[0], "", begin if marked[0] == "utf-8" else begin[marked[1] :]
    name = codec_name(name)
    decoding.note(name + guessed)
    pieces = chain([begin] if begin else [], pieces)
    yield from pieces if name == "utf-8" else _in_utf8(pieces, name)


def _begin_of(pieces: _Pieces) -> tuple[bytes, _Pieces]:
    begin = b""
    for piece in pieces:
        if isinstance(piece, _Damage):
            return begin, chain([piece], pieces)
        begin += piece
        if len(begin) >= encodings.MARK_BYTES:
            break
    return begin, pieces


def _in_utf8(pieces: _Pieces, name: str) -> _Pieces:
    decoder = lossy_decoder(name)
    for piece in pieces:
        if not isinstance(piece, _Damage):
            yield decoder.decode(bytes(piece)).encode("utf-8", "surrogatepass")
        elif is_wide(name):  # the start of the next character is unknown
            raise DamagedFileError(piece.reason)
        else:
            decoder.reset()
            yield piece
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")


def _sound(file: BinaryIO, compression: Compression, checksums: Checksums, room: Room | None) -> _Pieces:
    """Decompress the sound members of a file, and describe the damage between them."""
    members, size = Members(file, compression, checksums, room), Path(file.name).stat().st_size
    if not size:
        raise DamagedFileError(_CUT)
    offset: int | None = 0
    holds_any = False
    while offset is not None:
        try:
            for event in members.events(offset):
                holds_any = True
                if event.data:
                    yield event.data
            offset = None
        except BrokenMemberError as broken:
            holds_any = True
            texts = _LineFeeds()
            end, offset = members.recover(broken, texts.add)
            where = f" at byte {broken.offset:,}" if broken.offset else ""
            reason = _CUT if broken.is_cut and offset is None else f"is corrupt{where}: {broken}"
            is_counted = end is not None and end == (size if offset is None else offset)
            yield _Damage(reason, texts.count, texts.ends_in_line, is_counted, offset is None)
    if not holds_any:
        raise DamagedFileError("contains only zeros, no compressed data")


class _LineFeeds:
    count, ends_in_line = 0, False

    def add(self, text: bytes) -> None:
        self.count += text.count(b"\n")
        if text:
            self.ends_in_line = not text.endswith(b"\n")
