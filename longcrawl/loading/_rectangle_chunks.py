"""Which chunks a walk through a rectangle takes, and a bounded cache of them that decodes ahead.

Rows come first, then columns, and edges are left out: global batch ``g`` is row batch ``g % row_batches`` of context
window ``g // row_batches``. Decoded chunks are kept by when the walk needs them next.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from math import gcd
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import LongCrawlError

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
        """Cut the columns of a context window at chunk borders, in the same way."""
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


Chunk = tuple[npt.NDArray[np.unsignedinteger[Any]], npt.NDArray[Any] | None]
"""Tokens, and their loss mask where there is one."""

LOOKAHEAD = 8
"""How many changes of chunk the thread stays ahead, at most; less where that would take over a quarter of the cache."""

REQUESTS = 16
"""Requests for chunks that a store behind a URL has to answer at a time."""


def stays_ahead(requests: int, capacity: int, most_chunks: int) -> int:
    """Return how many changes of chunk are decoded ahead; of a remote store as many as keep all requests busy."""
    if requests > 1:
        return max(1, min(4 * requests, capacity // 2 // most_chunks))
    return max(1, min(LOOKAHEAD, capacity // 4 // most_chunks))


@dataclass(frozen=True)
class ChunkFiles:
    """Where a cache has its chunks from.

    Attributes:
        read: returns chunks that lie in one file.
        file_of: names the file that holds a chunk.
        requests: files that are read at a time.
    """

    read: Callable[[Sequence[ChunkKey]], list[Chunk]]
    file_of: Callable[[int, int], str]
    requests: int = 1

    def by_file(self, keys: Iterable[ChunkKey]) -> list[list[ChunkKey]]:
        """Return chunks by the files that hold them."""
        groups: dict[str, list[ChunkKey]] = {}
        for key in keys:
            groups.setdefault(self.file_of(*key), []).append(key)
        return list(groups.values())


class ChunkCache:
    """At most ``capacity`` decoded chunks, those being decoded included.

    The walk is known in advance, so what goes is what is needed last: the best any cache can do. On a walk that
    returns to the same chunks for every context window, and does not fit, a part of them stays and is not decoded
    again, where forgetting the least recently used chunk would decode all of them again.
    """

    def __init__(self, files: ChunkFiles, walk: Walk, capacity: int) -> None:
        self.process = os.getpid()
        self.assembling = threading.Lock()
        """Held by the caller for one batch: all chunks of a batch are kept until it is whole."""
        self._files, self._walk, self._capacity = files, walk, capacity
        self._chunks: dict[ChunkKey, Chunk] = {}
        self._decoding: set[ChunkKey] = set()
        self._changed = threading.Condition()
        self._batch = 0
        self._wake_at: float = math.inf
        self._stop_thread: Callable[[], None] = _nothing

    def advance(self, batch: int) -> None:
        """Notify the thread that decodes ahead which global batch is next."""
        self._batch = batch
        if batch >= self._wake_at:
            with self._changed:
                self._changed.notify_all()

    def chunk(self, key: ChunkKey, batch: int) -> Chunk:
        """Return one chunk, for a global batch that needs it."""
        chunk = self._chunks.get(key)
        return self._load(key, batch) if chunk is None else chunk

    def load(self, batch: int) -> None:
        """Read all chunks of a global batch that nobody reads yet, several files of a remote store at a time."""
        if self._files.requests == 1:
            return
        with self._changed:
            missing = self._missing(batch)
            if len(missing) < 2:
                return
            self._changed.wait_for(lambda: self._make_room(batch, batch, len(self._missing(batch))))
            missing = self._missing(batch)
            self._decoding.update(missing)
        with ThreadPoolExecutor(self._files.requests) as threads:
            for read in [threads.submit(self._decode, keys) for keys in self._files.by_file(missing)]:
                read.result()

    def _missing(self, batch: int) -> list[ChunkKey]:
        return [key for key in self._walk.keys(batch) if key not in self._chunks and key not in self._decoding]

    def _load(self, key: ChunkKey, batch: int) -> Chunk:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._decoding)
            if key in self._chunks:
                return self._chunks[key]
            self._changed.wait_for(lambda: self._make_room(batch, batch))
            self._decoding.add(key)
        return self._decode([key])[0]

    def _decode(self, keys: Sequence[ChunkKey]) -> list[Chunk]:
        chunks: list[Chunk] = []
        try:
            chunks = self._files.read(keys)
        finally:
            with self._changed:
                self._decoding.difference_update(keys)
                self._chunks.update(zip(keys, chunks, strict=False))
                self._changed.notify_all()
        return chunks

    def _give_up(self, keys: Sequence[ChunkKey]) -> None:
        """Leave claimed chunks to whoever needs them."""
        with self._changed:
            self._decoding.difference_update(keys)
            self._changed.notify_all()

    def _make_room(self, now: int, needed_at: int, places: int = 1) -> bool:
        """Free places for chunks of batch ``needed_at``, never at the cost of one needed from ``now`` to then."""
        if len(self._chunks) + len(self._decoding) + places <= self._capacity:
            return True
        uses = ((self._walk.next_use(key, now), key) for key in self._chunks)
        # A sixteenth at once: looking through all of them for one place each time would take as long as decoding.
        for use, key in nlargest(max(places, self._capacity // 16), uses):
            if use > needed_at:
                del self._chunks[key]
        return len(self._chunks) + len(self._decoding) + places <= self._capacity

    @contextmanager
    def decoding_ahead(self, batches: range) -> Iterator[None]:
        """Decode in a thread, while the block runs, what the global batches of ``batches`` will need."""
        self._stop_thread()
        stopped = threading.Event()
        thread = threading.Thread(
            target=self._decode_ahead, args=(batches, stopped), name="longcrawl-decode", daemon=True
        )

        def stop() -> None:
            if os.getpid() == self.process:
                stopped.set()
                with self._changed:
                    self._changed.notify_all()
                thread.join()
                # This function holds the cache: without a cycle, its chunks go with the last loop over it.
                self._stop_thread = _nothing

        self._stop_thread = stop
        thread.start()
        try:
            yield
        finally:
            stop()

    def _decode_ahead(self, batches: range, stopped: threading.Event) -> None:
        reading = None
        if self._files.requests > 1:
            reading = _Reading(self._decode, self._give_up, self._files.requests, stopped)
        try:
            self._walk_ahead(batches, stopped, reading)
        except LongCrawlError:
            # The trainer meets the same error when it comes to this chunk, and there it can be caught.
            return
        finally:
            if reading is not None:
                reading.end()

    def _walk_ahead(self, batches: range, stopped: threading.Event, reading: "_Reading | None") -> None:
        lookahead = stays_ahead(self._files.requests, self._capacity, self._walk.most_chunks())
        ahead: deque[int] = deque()
        batch = batches.start
        while batch < batches.stop and not stopped.is_set():
            if len(ahead) >= lookahead:
                self._wait_for_batch(ahead[len(ahead) // 2], stopped)
            while ahead and ahead[0] <= self._batch:
                ahead.popleft()
            for keys in self._claimed(batch, stopped, one_by_one=reading is None):
                if reading is None:
                    self._decode(keys)
                else:
                    reading.add(self._files.by_file(keys))
            ahead.append(batch)
            # Where the trainer has overtaken this thread, it has decoded what it needed by itself.
            change = self._walk.next_change(max(batch, self._batch))
            batch += -(-(change - batch) // batches.step) * batches.step

    def _claimed(self, batch: int, stopped: threading.Event, *, one_by_one: bool) -> Iterator[list[ChunkKey]]:
        """Yield chunks of a batch for which there is a place; whoever waits for one holds none that nobody reads."""
        held: list[ChunkKey] = []
        for key in self._walk.keys(batch):
            taken = not one_by_one and self._claim(key, batch, stopped, wait=False)
            if not taken:
                if held:
                    yield held
                    held = []
                taken = self._claim(key, batch, stopped)
            if taken:
                held.append(key)
        if held:
            yield held

    def _claim(self, key: ChunkKey, batch: int, stopped: threading.Event, *, wait: bool = True) -> bool:
        """Wait for a place for a chunk and take it; False where that is no longer of use, or would take a wait."""
        with self._changed:
            while (
                not stopped.is_set() and batch >= self._batch and key not in self._chunks and key not in self._decoding
            ):
                now = self._batch
                self._wake_at = self._walk.next_change(now)
                if self._make_room(now, batch):
                    self._wake_at = math.inf
                    self._decoding.add(key)
                    return True
                if not wait:
                    self._wake_at = math.inf
                    return False
                self._changed.wait()
                self._wake_at = math.inf
        return False

    def _wait_for_batch(self, batch: int, stopped: threading.Event) -> None:
        with self._changed:
            self._wake_at = batch
            self._changed.wait_for(lambda: stopped.is_set() or self._batch >= batch)
            self._wake_at = math.inf


class _Reading:
    """Threads that read files of chunks while a loop runs; the process does not wait for them when it ends."""

    def __init__(
        self,
        decode: Callable[[Sequence[ChunkKey]], object],
        give_up: Callable[[Sequence[ChunkKey]], None],
        requests: int,
        stopped: threading.Event,
    ) -> None:
        self._decode, self._give_up, self._requests, self._stopped = decode, give_up, requests, stopped
        self._waiting = SimpleQueue[list[ChunkKey] | None]()
        for _ in range(requests):
            threading.Thread(target=self._read, name="longcrawl-fetch", daemon=True).start()

    def add(self, groups: Iterable[list[ChunkKey]]) -> None:
        """Have groups of claimed chunks read, each of one file."""
        for keys in groups:
            self._waiting.put(keys)

    def end(self) -> None:
        """End all threads after what waits."""
        for _ in range(self._requests):
            self._waiting.put(None)

    def _read(self) -> None:
        while (keys := self._waiting.get()) is not None:
            if self._stopped.is_set():
                self._give_up(keys)
                continue
            # The trainer meets the same error when it comes to these chunks.
            with suppress(LongCrawlError):
                self._decode(keys)


def _nothing() -> None:
    """Stop no thread."""
