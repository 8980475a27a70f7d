"""Division of large text files at line ends, into sections that a run reads as parts.

A section begins after a line feed, so it is read like a small file, and its lines have the numbers and offsets that
they have in the whole file.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from longcrawl.core.sources import Section
from longcrawl.errors import SourceError
from longcrawl.sources.blocks import STEP_BYTES, sound_pieces
from longcrawl.sources.compressed import compression_of
from longcrawl.sources.encodings import marked_encoding


def divide_lines(
    path: str, size: int, is_other: Callable[[bytes], bool], most_bytes: int | None = None
) -> list[Section]:
    """Divide a local file of lines into sections of at least ``size`` bytes, except for the last one.

    Args:
        path: local file.
        size: bytes after which a section ends with the line.
        is_other: whether a file that begins like this, without a byte order mark, has no lines.
        most_bytes: maximum bytes of a line, or None for any.

    Returns:
        The sections; none if the file is read whole, because it cannot be read, has no lines, is marked as of another
        encoding than UTF-8, or has a line that is too long.
    """
    division = _Division(size, most_bytes)
    try:
        with Path(path).open("rb") as file:
            if compression_of(file) != "none":
                return []
        pieces, begin = sound_pieces(path), b""
        for piece in pieces:
            begin += piece
            if len(begin) >= STEP_BYTES:
                break
        name, mark = marked_encoding(begin) or ("utf-8", 0)
        if name != "utf-8" or is_other(begin[mark : mark + STEP_BYTES]):
            return []
        for piece in chain([begin], pieces):
            division.add(bytes(piece))
    except (SourceError, OSError):  # the part that reads the file whole reports it
        return []
    return division.finish()


@dataclass
class _Division:
    size: int
    most_bytes: int | None
    sections: list[Section] = field(default_factory=list)
    _start: int = 0
    _stop: int = 0
    _first: int = 0
    _lines: int = 0
    """Lines of the open section that have ended."""
    _open: int = 0
    """Bytes of the line that has not ended."""
    _is_too_long: bool = False

    def add(self, piece: bytes) -> None:
        """Add text, ending each section with the line that completes its size."""
        at = 0
        while at < len(piece):
            full = max(self._start + self.size - self._stop, 1)
            end = piece.find(b"\n", at + full - 1) + 1 or len(piece)
            self._take(piece[at:end] if at or end < len(piece) else piece)
            if self._stop - self._start >= self.size and not self._open:
                self._end()
            at = end

    def finish(self) -> list[Section]:
        """Return the sections, or none if a line is too long."""
        self._lines += self._open > 0
        self._check(self._open)
        if self._stop > self._start:
            self._end()
        return [] if self._is_too_long else self.sections

    def _take(self, text: bytes) -> None:
        self._stop += len(text)
        self._lines += text.count(b"\n")
        last = text.rfind(b"\n") + 1
        self._check(self._open + (text.find(b"\n") if last else len(text)))
        if self.most_bytes is not None and self.most_bytes < last:
            self._check(max(map(len, text[:last].split(b"\n"))))
        self._open = len(text) - last + (0 if last else self._open)

    def _check(self, line: int) -> None:
        self._is_too_long |= self.most_bytes is not None and line > self.most_bytes

    def _end(self) -> None:
        size = self._stop - self._start
        self.sections.append(Section(self._start, self._stop, self._first, self._lines, size))
        self._start, self._first, self._lines = self._stop, self._first + self._lines, 0
