"""Bytes that come piece by piece, gathered in one array."""

import numpy as np
import numpy.typing as npt

SMALL_BYTES = 1 << 22
"""How much is kept as the pieces that came."""

SHORT_BYTES = 1 << 18
"""How much of what is left is copied."""

LARGE_BYTES = 36 << 20
"""How long the first array is: a block of lines, and the piece that goes beyond it."""

FIRST_BYTES, WINDOW_BYTES = 1 << 13, 1 << 16
"""How much is looked at for a line feed at first, and then at a time."""


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
