"""The order in which a rectangle is walked, as arithmetic: rows first, then columns, edges left out.

Global batch ``g`` is row batch ``g % row_batches`` of context window ``g // row_batches``.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

__all__ = ["ChunkKey", "Walk"]

ChunkKey = tuple[int, int]
"""Row chunk and column chunk."""


@dataclass(frozen=True)
class Walk:
    """Which tokens and which chunks every global batch takes.

    Attributes:
        shape: documents, tokens per document.
        chunks: rows, columns of one chunk.
        batch_size: documents per batch.
        context_length: tokens per document of a batch.

    """

    shape: tuple[int, int]
    chunks: tuple[int, int]
    batch_size: int
    context_length: int

    @property
    def row_batches(self) -> int:
        """Batches that one context window gives; rows that do not fill a batch are left out."""
        return self.shape[0] // self.batch_size

    @property
    def windows(self) -> int:
        """Context windows along a document; columns that do not fill a window are left out."""
        return self.shape[1] // self.context_length

    @property
    def global_batches(self) -> int:
        """Batches of a full pass over all ranks."""
        return self.row_batches * self.windows

    def row_pieces(self, batch: int) -> list[tuple[int, slice, slice]]:
        """Cut the rows of a global batch at chunk borders: (row chunk, rows in the chunk, rows in the batch)."""
        first = batch % self.row_batches * self.batch_size
        return _cut(first, self.batch_size, self.chunks[0])

    def column_pieces(self, window: int) -> list[tuple[int, slice, slice]]:
        """Cut the columns of a context window at chunk borders, likewise."""
        return _column_pieces(window, self.context_length, self.chunks[1])

    def keys(self, batch: int) -> list[ChunkKey]:
        """List the chunks that a global batch takes tokens from."""
        columns = self.column_pieces(batch // self.row_batches)
        return [(row, column) for row, _, _ in self.row_pieces(batch) for column, _, _ in columns]

    def most_chunks(self) -> int:
        """Return the most chunks that any batch needs at once."""
        return _widest(self.batch_size, self.chunks[0], self.row_batches) * self._most_columns()

    def worth_keeping(self) -> int:
        """Return how many chunks a pass can use again: none but a batch's own where windows do not share chunks."""
        if self.context_length % self.chunks[1] == 0:
            return self.most_chunks()
        return -(-self.row_batches * self.batch_size // self.chunks[0]) * self._most_columns()

    def _most_columns(self) -> int:
        return _widest(self.context_length, self.chunks[1], self.windows)

    def next_use(self, key: ChunkKey, batch: int) -> int:
        """Return the first global batch, from ``batch`` on, that takes tokens from a chunk; passes follow each other.

        A rank that skips the batches of others uses it then or a little later.
        """
        window, number = divmod(batch, self.row_batches)
        first_number = key[0] * self.chunks[0] // self.batch_size
        last_number = (key[0] * self.chunks[0] + self.chunks[0] - 1) // self.batch_size
        first_window = key[1] * self.chunks[1] // self.context_length
        last_window = (key[1] * self.chunks[1] + self.chunks[1] - 1) // self.context_length
        if window < first_window:
            return first_window * self.row_batches + first_number
        if window <= last_window and number <= last_number:
            return max(batch, window * self.row_batches + first_number)
        if window < last_window:
            return (window + 1) * self.row_batches + first_number
        return self.global_batches + first_window * self.row_batches + first_number

    def next_change(self, batch: int) -> int:
        """Return the first global batch after ``batch`` that may need a chunk which ``batch`` does not."""
        window, number = divmod(batch, self.row_batches)
        last_row = (number + 1) * self.batch_size - 1
        next_chunk_row = (last_row // self.chunks[0] + 1) * self.chunks[0]
        return window * self.row_batches + min(next_chunk_row // self.batch_size, self.row_batches)


@lru_cache(maxsize=64)
def _column_pieces(window: int, context_length: int, width: int) -> list[tuple[int, slice, slice]]:
    return _cut(window * context_length, context_length, width)


def _cut(first: int, length: int, size: int) -> list[tuple[int, slice, slice]]:
    pieces = []
    start = first
    while start < first + length:
        chunk = start // size
        stop = min(first + length, (chunk + 1) * size)
        pieces.append((chunk, slice(start - chunk * size, stop - chunk * size), slice(start - first, stop - first)))
        start = stop
    return pieces


def _widest(length: int, size: int, pieces: int) -> int:
    """Return the most chunks that any of consecutive pieces touches; where pieces and chunks meet, it starts over."""
    firsts = range(0, min(pieces, size // gcd(size, length)) * length, length)
    return max((first + length - 1) // size - first // size + 1 for first in firsts)
