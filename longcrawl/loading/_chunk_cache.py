"""Decoded chunks in bounded memory, kept by when the walk needs them next, and a thread that decodes ahead."""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import nlargest
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import LongCrawlError
from longcrawl.loading._rectangle_walk import ChunkKey, Walk

__all__ = ["LOOKAHEAD", "Chunk", "ChunkCache"]

Chunk = tuple[npt.NDArray[np.unsignedinteger[Any]], npt.NDArray[Any] | None]
"""Tokens, and their loss mask where there is one."""

LOOKAHEAD = 8
"""How many changes of chunk the thread stays ahead, at most; less where that would take over a quarter of the cache."""


class ChunkCache:
    """At most ``capacity`` decoded chunks, those being decoded included.

    The walk is known in advance, so what goes is what is needed last: the best any cache can do. On a walk that
    returns to the same chunks for every context window, and does not fit, a part of them stays and is not decoded
    again, where forgetting the least recently used chunk would decode all of them again.
    """

    def __init__(self, read: Callable[[int, int], Chunk], walk: Walk, capacity: int) -> None:
        self.process = os.getpid()
        self.assembling = threading.Lock()
        """Held by the caller for one batch: all chunks of a batch are kept until it is whole."""
        self._read, self._walk, self._capacity = read, walk, capacity
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

    def _load(self, key: ChunkKey, batch: int) -> Chunk:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._decoding)
            if key in self._chunks:
                return self._chunks[key]
            self._changed.wait_for(lambda: self._make_room(batch, batch))
            self._decoding.add(key)
        return self._decode(key)

    def _decode(self, key: ChunkKey) -> Chunk:
        chunk = None
        try:
            chunk = self._read(*key)
        finally:
            with self._changed:
                self._decoding.discard(key)
                if chunk is not None:
                    self._chunks[key] = chunk
                self._changed.notify_all()
        return chunk

    def _make_room(self, now: int, needed_at: int) -> bool:
        """Free a place for a chunk of batch ``needed_at``, never at the cost of one needed from ``now`` to then."""
        if len(self._chunks) + len(self._decoding) < self._capacity:
            return True
        uses = ((self._walk.next_use(key, now), key) for key in self._chunks)
        # A sixteenth at once: looking through all of them for one place each time would take as long as decoding.
        for use, key in nlargest(max(1, self._capacity // 16), uses):
            if use > needed_at:
                del self._chunks[key]
        return len(self._chunks) + len(self._decoding) < self._capacity

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
        lookahead = max(1, min(LOOKAHEAD, self._capacity // 4 // self._walk.most_chunks()))
        ahead: deque[int] = deque()
        batch = batches.start
        while batch < batches.stop and not stopped.is_set():
            if len(ahead) >= lookahead:
                self._wait_for_batch(ahead[len(ahead) // 2], stopped)
            while ahead and ahead[0] <= self._batch:
                ahead.popleft()
            try:
                for key in self._walk.keys(batch):
                    if self._claim(key, batch, stopped):
                        self._decode(key)
            except LongCrawlError:
                # The trainer meets the same error when it comes to this chunk, and there it can be caught.
                return
            ahead.append(batch)
            # Where the trainer has overtaken this thread, it has decoded what it needed by itself.
            change = self._walk.next_change(max(batch, self._batch))
            batch += -(-(change - batch) // batches.step) * batches.step

    def _claim(self, key: ChunkKey, batch: int, stopped: threading.Event) -> bool:
        """Wait for a place for a chunk and take it; False where that is no longer of use."""
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
                self._changed.wait()
                self._wake_at = math.inf
        return False

    def _wait_for_batch(self, batch: int, stopped: threading.Event) -> None:
        with self._changed:
            self._wake_at = batch
            self._changed.wait_for(lambda: stopped.is_set() or self._batch >= batch)
            self._wake_at = math.inf


def _nothing() -> None:
    """Stop no thread."""
