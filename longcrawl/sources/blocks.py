"""Lines of a file, gzip and zstd decompressed, in blocks that always have the same ends.

Compressed data is yielded once its checksum has been compared, see :mod:`longcrawl.sources.members`. A line that is
lost stands as an empty line in its block, so that the numbers of all others stay.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from longcrawl.core.sources import Loss
from longcrawl.sources.files import DamagedFileError, local_copy
from longcrawl.sources.gathered import Gathered, last_line_end
from longcrawl.sources.members import BrokenMemberError, Compression, Members
from longcrawl.urls import path_of

BLOCK_BYTES = 32_000_000
"""How much uncompressed text a table holds at most, unless one line is longer."""

RECORD_BYTES = 256 << 20
"""How long a line, or a text file that is one document, is at most, unless a source says otherwise.

The longest texts of crawls and of collections of books have some 20 MB. Reading a line takes several times its length
of memory.
"""

READ_BYTES = 1 << 20
"""How much of a file that is not compressed is read at a time."""

STEP_BYTES = 1 << 18
"""How much is looked through at a time: a core's own cache has it when it is looked at again."""

LINE_FEED = 10


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


def too_long(most_bytes: int, where: str = "") -> str:
    """Return why a record is lost that has more bytes."""
    return f"has more than {most_bytes:,} bytes{where}; to read it, set max_record_bytes to more"


def read_bytes(path: str, most_bytes: int = RECORD_BYTES) -> bytes:
    """Read a file whole, decompressed by its ending.

    Raises:
        DamagedFileError: it is missing, cut, corrupt, or longer than ``most_bytes``.
    """
    pieces, size = list[bytes | memoryview](), 0
    for piece in _pieces(path):
        if isinstance(piece, _Damage):
            raise DamagedFileError(piece.reason, 1)
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise DamagedFileError(too_long(most_bytes), 1)
    return b"".join(pieces)


def read_blocks(
    path: str,
    block_bytes: int = BLOCK_BYTES,
    *,
    most_bytes: int = RECORD_BYTES,
    on_loss: Callable[[Loss], None] = stop_at,
    after_damage: Literal["keep", "drop"] = "keep",
) -> Iterator[memoryview]:
    """Read whole lines of a file, decompressed by its ending (``.gz``, ``.zst``), in blocks.

    A block ends at the last line end within ``block_bytes``, or at the first one after it where a line is longer, so
    blocks depend on the text only. Only the last block may lack the line end. A block also ends where lines are lost.

    Args:
        path: local file or URL.
        block_bytes: how long a block is at most.
        most_bytes: how long a line is at most; of a longer one no more than this is ever held.
        on_loss: called with each loss when the lines before it have been yielded; it may raise.
        after_damage: whether to "drop" the first line after damage, which may lack its beginning. JSON that lacks its
            beginning is not an object, so that its readers can "keep" it and see.

    Raises:
        DamagedFileError: after the last whole line before the damage.
    """
    lines = _Lines(block_bytes, most_bytes, on_loss, after_damage)
    try:
        for piece in _pieces(path):
            yield from lines.damage(piece) if isinstance(piece, _Damage) else lines.add(piece)
    except DamagedFileError:
        lines.drop_open_line()
        yield from lines.flush()
        raise
    yield from lines.end()


class _Lines:
    """Cuts pieces of text into blocks of whole lines."""

    def __init__(
        self, block_bytes: int, most_bytes: int, on_loss: Callable[[Loss], None], after_damage: Literal["keep", "drop"]
    ) -> None:
        self._block_bytes, self._most_bytes = block_bytes, most_bytes
        self._on_loss, self._after_damage = on_loss, after_damage
        self._pending = Gathered()
        self._open = 0
        """Bytes pending after the last line end."""
        self._lost = ""
        """Why the line that is open is lost, if it is."""
        self._line_feeds = 0
        """How many have been added, those of lost lines too."""

    def add(self, piece: bytes | memoryview) -> Iterator[memoryview]:
        """Add text that follows, and yield what blocks are whole by it."""
        text = memoryview(piece)
        may_be_too_long = self._lost or self._open + len(text) > self._most_bytes
        step = min(self._most_bytes, READ_BYTES) if may_be_too_long else len(text)
        for start in range(0, len(text), step or 1):
            yield from self._add(text[start : start + step])
            while len(self._pending) > self._block_bytes and self._open < len(self._pending):
                yield self._pending.take(self._pending.line_end(self._block_bytes))

    def _add(self, text: memoryview) -> Iterator[memoryview]:
        """Add text that is no longer than a line may be."""
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
        self._pending.add(text)
        if feeds := _count_line_feeds(text):
            self._line_feeds += feeds
            self._open = len(text) - last_line_end(text)
        else:
            self._open += len(text)

    def damage(self, damage: _Damage) -> Iterator[memoryview]:
        """Yield the whole lines before damage, report it, and yield an empty line for each one in it."""
        torn = self._open > 0 or bool(self._lost)
        self.drop_open_line()
        yield from self.flush()
        lines, first = damage.line_feeds, self._line_feeds + 1
        if damage.is_last:
            lines += damage.ends_in_line or (torn and not lines)
        reason = damage.reason + (f"; {lines:,} lines seem to be lost, from line {first:,} on" if lines else "")
        self._on_loss(Loss("damage", first, (lines or None) if damage.is_counted else None, reason))
        self._line_feeds += damage.line_feeds
        for start in range(0, damage.line_feeds, self._block_bytes):
            yield memoryview(b"\n" * min(damage.line_feeds - start, self._block_bytes))
        self._lost = "may lack its beginning, which is damaged" if self._after_damage == "drop" else ""

    def end(self) -> Iterator[memoryview]:
        """Yield what is left at the end of the file."""
        yield from self._lose_line() if self._lost else self.flush()

    def flush(self) -> Iterator[memoryview]:
        """Yield what is pending."""
        if self._pending:
            yield self._pending.take()

    def drop_open_line(self) -> None:
        """Drop what is pending after the last line end."""
        self._pending.drop(self._open)
        self._open = 0

    def _lose_line(self) -> Iterator[memoryview]:
        yield from self.flush()
        self._on_loss(Loss("line", self._line_feeds + 1, 1, self._lost))
        self._lost = ""


def _count_line_feeds(text: memoryview) -> int:
    data = np.frombuffer(text, np.uint8)
    return sum(int(np.count_nonzero(data[at : at + STEP_BYTES] == LINE_FEED)) for at in range(0, len(data), STEP_BYTES))


def _pieces(path: str) -> Iterator[bytes | memoryview | _Damage]:
    name = path_of(path)
    compression: Compression = "gzip" if name.endswith(".gz") else "zstd" if name.endswith(".zst") else "none"
    with local_copy(path) as copy, Path(copy).open("rb") as file:
        if compression == "none":
            yield from iter(lambda: file.read(READ_BYTES), b"")
        else:
            yield from _sound(file, compression)


def _sound(file: BinaryIO, compression: Compression) -> Iterator[bytes | memoryview | _Damage]:
    """Decompress the sound members of a file, and describe what is between them."""
    members = Members(file, compression)
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
