"""Division of large text files at line ends, into sections that a run reads as parts.

A section begins after a line feed, so it is read like a small file, and its lines have the numbers and offsets that
they have in the whole file. A compressed file is decompressed once, by its division, which writes a file for each
section; they are compressed by zstd at its fastest level, and take about as much space as the file. A thread writes
them; those that a stopped division has written are compared instead, which takes less time.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import zstandard
from isal import igzip

from longcrawl.core.progress import tell_progress
from longcrawl.core.sources import Section
from longcrawl.errors import SourceError
from longcrawl.io.files import remove, whole_file
from longcrawl.sources.blocks import RECORD_BYTES, STEP_BYTES, sound_pieces
from longcrawl.sources.compressed import ZSTD_WINDOW_BYTES, compression_of, zstd_dictionary
from longcrawl.sources.encodings import marked_encoding
from longcrawl.sources.files import opened

LEVEL = 1
"""Compression level of zstd for the lines of a section."""


def divide_lines(
    path: str, size: int, folder: Path, is_other: Callable[[bytes], bool], most_bytes: int | None = None
) -> list[Section]:
    """Divide a local file of lines into sections of at least ``size`` bytes of text, except for the last one.

    Args:
        path: local file, plain or compressed.
        size: bytes after which a section ends with the line.
        folder: folder for the lines of a compressed file, by section.
        is_other: whether a text that begins like this, without a byte order mark, has no lines.
        most_bytes: maximum bytes of a line, or None for any.

    Returns:
        The sections; none if the file is read whole, because it is damaged, has no lines, is marked as of another
        encoding than UTF-8, or has a line that is too long.
    """
    try:
        with opened(path) as file:
            is_packed = compression_of(file) != "none"
            stored = file.seek(0, 2)
        pieces, begin = sound_pieces(path), b""
        for piece in pieces:
            begin += piece
            if len(begin) >= STEP_BYTES:
                break
        name, mark = marked_encoding(begin) or ("utf-8", 0)
        if name == "utf-8" and not is_other(begin[mark : mark + STEP_BYTES]):
            with ThreadPoolExecutor(1) as thread:
                division = _Division(size, most_bytes, folder if is_packed else None, thread)
                for piece in chain([begin], pieces):
                    division.add(bytes(piece))
                    tell_progress()
                    if division.is_too_long:
                        break
                if sections := division.finish(stored):
                    return sections
    except SourceError:  # the part that reads the file whole reports it
        pass
    remove(folder)
    return []


def write_beginning(path: str, stored: int, folder: Path) -> tuple[Path, float]:
    """Write the whole lines in the first ``stored`` bytes of a compressed file to a file in ``folder``.

    Returns:
        The new file, of the same name and compression, and the bytes of the old one that hold these lines.
    """
    target = folder / Path(path).name
    with Path(path).open("rb") as file:
        compression, dictionary = compression_of(file), zstd_dictionary(file)
        file.seek(0)
        target.write_bytes(file.read(stored))
    unpacked = list[bytes]()
    with target.open("rb") as file, suppress(SourceError, zstandard.ZstdError):  # it ends in the middle of a member
        if compression == "zstd":  # in small pieces, since the last one is lost
            reader = zstandard.ZstdDecompressor(dictionary, ZSTD_WINDOW_BYTES).stream_reader(
                file, read_across_frames=True
            )
            unpacked.extend(iter(partial(reader.read, STEP_BYTES), b""))
        else:
            unpacked.extend(map(bytes, sound_pieces(str(target))))
    text = b"".join(unpacked)
    lines = text[: text.rfind(b"\n") + 1]
    compress = zstandard.ZstdCompressor(LEVEL).compress if compression == "zstd" else igzip.compress
    target.write_bytes(compress(lines))
    return target, stored * len(lines) / max(len(text), 1)


@dataclass
class _Division:
    size: int
    most_bytes: int | None
    folder: Path | None
    """Folder for the lines of each section, or None to write none."""
    thread: ThreadPoolExecutor
    is_too_long: bool = False
    """Whether a line is longer than ``most_bytes``, or than a section that is held in memory may be."""
    sections: list[Section] = field(default_factory=list)
    _start: int = 0
    _stop: int = 0
    _first: int = 0
    _lines: int = 0
    """Lines of the open section that have ended."""
    _open: int = 0
    """Bytes of the line that has not ended."""
    _held: list[bytes] = field(default_factory=list)
    _written: Future[None] | None = None
    """The file of the last section."""

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

    def finish(self, stored: int) -> list[Section]:
        """Return the sections of a file of so many bytes, or none if a line is too long."""
        self._lines += self._open > 0
        self._check(self._open)
        if self._stop > self._start and not self.is_too_long:
            self._end()
        self._wait()
        ends = [0, *(section.stop * stored // self._stop for section in self.sections)]
        shares = [stop - start for start, stop in pairwise(ends)]
        found = [replace(section, bytes=share) for section, share in zip(self.sections, shares, strict=True)]
        return [] if self.is_too_long else found

    def _take(self, text: bytes) -> None:
        self._stop += len(text)
        self._lines += text.count(b"\n")
        last = text.rfind(b"\n") + 1
        self._check(self._open + (text.find(b"\n") if last else len(text)))
        if self.most_bytes is not None and self.most_bytes < last:
            self._check(max(map(len, text[:last].split(b"\n"))))
        self._open = len(text) - last + (0 if last else self._open)
        if self.folder is not None:
            self._held.append(text)
            self.is_too_long |= self._stop - self._start > self.size + RECORD_BYTES

    def _check(self, line: int) -> None:
        self.is_too_long |= self.most_bytes is not None and line > self.most_bytes

    def _end(self) -> None:
        unpacked = ""
        if self.folder is not None:
            file = self.folder / f"{len(self.sections):05d}.zst"
            self._wait()
            self._written = self.thread.submit(_write_lines, file, self._held)
            self._held, unpacked = [], str(file)
        self.sections.append(Section(self._start, self._stop, self._first, self._lines, 0, unpacked))
        self._start, self._first, self._lines = self._stop, self._first + self._lines, 0

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()


def _write_lines(file: Path, pieces: Sequence[bytes]) -> None:
    """Write the lines of a section, unless a stopped division has."""
    lines = b"".join(pieces)
    with suppress(FileNotFoundError, zstandard.ZstdError), file.open("rb") as written:
        if zstandard.ZstdDecompressor().stream_reader(written).read(len(lines) + 1) == lines:
            return
    with whole_file(file) as beside:
        beside.write_bytes(zstandard.ZstdCompressor(LEVEL).compress(lines))
