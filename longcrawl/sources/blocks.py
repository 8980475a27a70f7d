"""Lines of a file, decompressed and decoded, in blocks that always have the same ends.

Compressed data is yielded once its checksum has been compared, see :mod:`longcrawl.sources.compressed`. A line that is
lost stands as an empty line in its block, so that the numbers of all others stay.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from longcrawl.core.sources import Checksums, Loss, LostRecords
from longcrawl.errors import SourceError
from longcrawl.sources.compressed import (
    BrokenMemberError,
    Compression,
    Gathered,
    Members,
    Room,
    Window,
    stored_compression,
)
from longcrawl.sources.encodings import (
    DETECT,
    GUESSED,
    MARK_BYTES,
    Decoding,
    ToUtf8,
    codec_name,
    detect_encoding,
    is_wide,
    marked_encoding,
)
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.urls import path_of

BLOCK_BYTES = 32_000_000
"""How much uncompressed text a table holds at most, unless one line is longer."""

RECORD_BYTES = 256 << 20
"""How long a line, or a text file that is one document, is at most, unless a source says otherwise.

The longest texts of crawls and of collections of books have some 20 MB. Reading a line takes several times its length
of memory.
"""

READ_BYTES = 1 << 18
"""How much of a file that is not compressed is read at a time."""

STEP_BYTES = 1 << 19
"""How much is looked through at a time: a core's own cache has it when it is looked at again."""

FIRST_BYTES, WINDOW_BYTES = 1 << 13, 1 << 16
"""How much is searched for the end of a line, first and then at a time."""

LONG_STEP_BYTES = 2 * STEP_BYTES
"""Whole lines up to this length are not cut."""


@dataclass(frozen=True)
class _Damage:
    """A stretch of a file that is not sound."""

    reason: str
    line_feeds: int
    """How many seem to be in it."""
    ends_in_line: bool
    """Whether something seems to follow the last of them."""
    is_counted: bool
    """Whether this is all that is lost."""
    is_last: bool
    """Whether nothing sound follows."""


def stop_at(loss: Loss) -> None:
    """Stop reading at the first loss.

    Raises:
        DamagedFileError: always.
    """
    if loss.kind == "line":
        raise DamagedFileError(f"has a line {loss.line:,} that {loss.reason}")
    raise DamagedFileError(loss.reason, loss.lines)


def stop_at_damage(lost: LostRecords) -> Callable[[Loss], None]:
    """Note single lines that are lost, and stop at damage: nobody knows the numbers, and so the ids, of later lines."""

    def note(loss: Loss) -> None:
        if loss.kind == "damage":
            stop_at(loss)
        lost.add_loss(loss)

    return note


def too_long(most_bytes: int, where: str = "") -> str:
    """Return why a record is lost that has more bytes."""
    return f"has more than {most_bytes:,} bytes{where}; to read it, set max_record_bytes to more"


def read_bytes(
    path: str, most_bytes: int = RECORD_BYTES, records: int | None = 1, decoding: Decoding | None = None
) -> bytes:
    """Read a file whole, decompressed and decoded; it has so many records, None if nobody can know.

    Raises:
        DamagedFileError: it is missing, cut, corrupt, or longer than ``most_bytes``.
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
    after_damage: Literal["keep", "drop"] = "keep",
    decoding: Decoding | None = None,
) -> Iterator[memoryview]:
    """Read whole lines of a file in blocks; see :func:`read_steps`."""
    block = Gathered()
    steps = read_steps(
        path, block_bytes, most_bytes=most_bytes, on_loss=on_loss, after_damage=after_damage, decoding=decoding
    )
    for step in steps:
        if step is not None:
            block.add_lent(step)
        else:
            yield block.take()


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
) -> Iterator[memoryview | None]:
    """Read whole lines of a file, gzip and zstd decompressed, in blocks of several steps.

    A block ends at the last line end within ``block_bytes``, or at the first one after it where a line is longer, so
    blocks depend on the text only. Only the last block may lack the line end. A block also ends where lines are lost.
    Steps are of any length from ``STEP_BYTES`` on, if a block does not end with them, and there until the next one.

    Args:
        path: local file or URL.
        block_bytes: how long a block is at most.
        most_bytes: how long a line is at most; of a longer one no more than this is ever held.
        on_loss: called with each loss when the lines before it have been yielded; it may raise.
        after_damage: whether to "drop" the first line after damage, which may lack its beginning. JSON that lacks its
            beginning is not an object, so that its readers can "keep" it and see.
        checksums: when those of compressed data are compared.
        lines_read: returns how many lines of all steps so far the caller has counted, who spares counting here.
        decoding: the encoding, from which lines are turned into UTF-8; None for bytes as they are.

    Yields:
        A step, or None where a block ends.

    Raises:
        DamagedFileError: after the last whole line before the damage.
        UncheckedDataError: lines have been yielded whose checksum is wrong.
    """
    lines = _Lines(block_bytes, most_bytes, on_loss, after_damage, lines_read)
    try:
        for piece in _pieces(path, checksums, lines.room, decoding):
            yield from lines.damage(piece) if isinstance(piece, _Damage) else lines.add(piece)
    except DamagedFileError:
        lines.drop_open_line()
        yield from lines.flush()
        raise
    yield from lines.end()


class _Lines:
    """Cuts pieces of text into blocks of whole lines, in steps; None is yielded where a block ends."""

    def __init__(
        self,
        block_bytes: int,
        most_bytes: int,
        on_loss: Callable[[Loss], None],
        after_damage: Literal["keep", "drop"],
        lines_read: Callable[[], int] | None,
    ) -> None:
        self._block_bytes, self._most_bytes = block_bytes, most_bytes
        self._on_loss, self._after_damage = on_loss, after_damage
        self._pending = Window()
        self._block = 0
        """Bytes of the block that have been yielded."""
        self._open = 0
        """Bytes pending after the last line end."""
        self._lost = ""
        """Why the line that is open is lost, if it is."""
        self._counts, self._counted = lines_read is None, 0
        self._lines_read = lines_read or (lambda: self._counted)
        """Returns how many lines have been yielded, lost ones too."""

    def room(self, size: int) -> memoryview:
        """Return memory for text that is added next, without a copy; steps that were yielded may be overwritten."""
        return self._pending.room(size)

    def add(self, piece: bytes | memoryview) -> Iterator[memoryview | None]:
        """Add text that follows, and yield steps of whole lines."""
        if self._lost or self._open + len(piece) > self._most_bytes:
            # The end moves back where text is dropped, so what follows in the memory of room has to be copied.
            for text in _cut(bytes(piece), min(self._most_bytes, READ_BYTES)):
                yield from self._add_carefully(text)
        else:
            for step in [piece] if len(piece) <= LONG_STEP_BYTES else _cut(piece, STEP_BYTES):
                self._add(step)
                yield from self._steps()

    def _steps(self) -> Iterator[memoryview | None]:
        """Yield all whole lines that are pending, where they are enough."""
        if len(self._pending) - self._open < min(STEP_BYTES, self._block_bytes):
            return
        yield from self._whole()

    def _whole(self) -> Iterator[memoryview | None]:
        while whole := len(self._pending) - self._open:
            room = max(self._block_bytes - self._block, 0)
            most = min(whole if whole < LONG_STEP_BYTES else STEP_BYTES, room)
            end = line_end(self._pending.view(), most) if most < whole else whole
            if self._block and end > room:
                yield from self._end_block()
            else:
                yield self._take(end)

    def _take(self, size: int) -> memoryview:
        step = self._pending.take(size)
        self._block += size
        if self._counts:
            self._counted += count_line_feeds(step)
        return step

    def _end_block(self) -> Iterator[None]:
        if self._block:
            self._block = 0
            yield None

    def _add_carefully(self, text: memoryview) -> Iterator[memoryview | None]:
        """Add text that is no longer than a line may be, where the line that is open may become longer."""
        if self._lost or self._open + len(text) > self._most_bytes:
            end = bytes(text).find(b"\n")
            first = len(text) if end < 0 else end
            if not self._lost and self._open + first > self._most_bytes:
                self._lost = too_long(self._most_bytes)
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
        """Yield the whole lines before damage, report it, and yield an empty line for each one in it."""
        torn = self._open > 0 or bool(self._lost)
        self.drop_open_line()
        yield from self.flush()
        lines, first = damage.line_feeds, self._lines_read() + 1
        if damage.is_last:
            lines += damage.ends_in_line or (torn and not lines)
        reason = damage.reason + (f"; {lines:,} lines seem to be lost, from line {first:,} on" if lines else "")
        self._on_loss(Loss("damage", first, (lines or None) if damage.is_counted else None, reason))
        self._counted += damage.line_feeds
        for start in range(0, damage.line_feeds, self._block_bytes):
            yield from _cut(b"\n" * min(damage.line_feeds - start, self._block_bytes), STEP_BYTES)
            yield None
        self._lost = "may lack its beginning, which is damaged" if self._after_damage == "drop" else ""

    def end(self) -> Iterator[memoryview | None]:
        """Yield what is left at the end of the file."""
        yield from self._lose_line() if self._lost else self.flush()

    def flush(self) -> Iterator[memoryview | None]:
        """Yield what is pending, and end the block."""
        yield from self._whole()
        if self._block and self._block + self._open > self._block_bytes:
            yield from self._end_block()
        if self._open:
            size, self._open = self._open, 0
            yield self._take(size)
        yield from self._end_block()

    def drop_open_line(self) -> None:
        """Drop what is pending after the last line end."""
        self._pending.drop(self._open)
        self._open = 0

    def _lose_line(self) -> Iterator[memoryview | None]:
        yield from self.flush()
        self._on_loss(Loss("line", self._lines_read() + 1, 1, self._lost))
        self._lost = ""


def _cut(piece: bytes | memoryview, size: int) -> Iterator[memoryview]:
    text = memoryview(piece)
    return (text[start : start + size] for start in range(0, len(text), size))


def last_line_end(text: bytes | memoryview) -> int:
    """Return where the last line ends that does end; 0 where none does."""
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
    """Return where the last line before a place ends, or else the first one after it; 0 where no line ends."""
    if end := last_line_end(text[:near]):
        return end
    for start in range(near, len(text), WINDOW_BYTES):
        if (found := bytes(text[start : start + WINDOW_BYTES]).find(b"\n")) >= 0:
            return start + found + 1
    return 0


def count_line_feeds(text: memoryview) -> int:
    """Count the line feeds of a text."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def seeming_encoding(path: str) -> str | None:
    """Return the encoding that a file of text seems to be in; None if it is binary, or cannot be read whole."""
    try:
        return detect_encoding(piece for piece in _pieces(path) if not isinstance(piece, _Damage))
    except SourceError:
        return None


_Pieces = Iterator[bytes | memoryview | _Damage]


def _pieces(
    path: str, checksums: Checksums = "first", room: Room | None = None, decoding: Decoding | None = None
) -> _Pieces:
    with local_copy(path) as copy, Path(copy).open("rb") as file:
        try:
            compression = stored_compression(file, path_of(path))
        except SourceError as unknown:
            raise DamagedFileError(str(unknown)) from unknown
        stored = partial(_stored, file, compression, checksums)
        yield from stored(room) if decoding is None else _decoded(stored, room, decoding)


def _stored(file: BinaryIO, compression: Compression, checksums: Checksums, room: Room | None) -> _Pieces:
    """Yield the decompressed data of a file from its beginning on."""
    file.seek(0)
    if compression == "none":
        yield from iter(lambda: file.read(READ_BYTES), b"")
    else:
        yield from _sound(file, compression, checksums, room)


def _decoded(stored: Callable[[Room | None], _Pieces], room: Room | None, decoding: Decoding) -> _Pieces:
    """Yield the data of a file in UTF-8; one whose encoding is detected is read twice."""
    name, guessed = decoding.encoding, ""
    if name == DETECT:
        sound = (piece for piece in stored(None) if not isinstance(piece, _Damage))
        if (found := detect_encoding(sound)) is None:
            raise DamagedFileError("seems to be binary, in no encoding of text; set encoding if it is text", 1)
        name, guessed = found, "" if found == "utf-8" else GUESSED
    begin, pieces = _begin_of(stored(room))
    if (marked := marked_encoding(begin)) is not None:
        name, guessed, begin = marked[0], "", begin if marked[0] == "utf-8" else begin[marked[1] :]
    name = codec_name(name)
    decoding.note(name + guessed)
    pieces = chain([begin] if begin else [], pieces)
    yield from pieces if name == "utf-8" else _in_utf8(pieces, name)


def _begin_of(pieces: _Pieces) -> tuple[bytes, _Pieces]:
    """Return as much of a text as tells whether a byte order mark begins it, and what follows."""
    begin = b""
    for piece in pieces:
        if isinstance(piece, _Damage):
            return begin, chain([piece], pieces)
        begin += piece
        if len(begin) >= MARK_BYTES:
            break
    return begin, pieces


def _in_utf8(pieces: _Pieces, name: str) -> _Pieces:
    """Decode pieces; behind damage, nobody knows where a character of several bytes per line feed begins."""
    decoder = ToUtf8(name)
    for piece in pieces:
        if not isinstance(piece, _Damage):
            yield decoder.add(piece)
        elif is_wide(name):
            raise DamagedFileError(piece.reason)
        else:
            decoder.restart()
            yield piece
    yield decoder.add(b"", final=True)


def _sound(
    file: BinaryIO, compression: Compression, checksums: Checksums, room: Room | None
) -> Iterator[bytes | memoryview | _Damage]:
    """Decompress the sound members of a file, and describe what is between them."""
    members = Members(file, compression, checksums, room)
    size = Path(file.name).stat().st_size
    if not size:
        raise DamagedFileError("is cut: it ends before its compressed data does")
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
            counted = _LineFeeds()
            end, offset = members.recover(broken, counted.add)
            where = f" at byte {broken.offset:,}" if broken.offset else ""
            reason = f"is corrupt{where}: {broken}"
            if broken.is_cut and offset is None:
                reason = "is cut: it ends before its compressed data does"
            is_counted = end is not None and end == (size if offset is None else offset)
            yield _Damage(reason, counted.count, counted.ends_in_line, is_counted, offset is None)
    if not holds_any:
        raise DamagedFileError("holds zeros and no compressed data")


class _LineFeeds:
    """Counts the line feeds of a text."""

    def __init__(self) -> None:
        self.count = 0
        self.ends_in_line = False

    def add(self, text: bytes) -> None:
        self.count += text.count(b"\n")
        if text:
            self.ends_in_line = not text.endswith(b"\n")
