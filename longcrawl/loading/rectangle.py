"""Batches of any context length from a rectangle, with exact resume.

The order is that of the LongCrawl64 article: global batch ``g`` is row batch ``g % row_batches`` of context window
``g // row_batches``. Rows and columns that do not fill a batch or a window are dropped. Targets are the stored tokens;
text is the targets shifted right by one, behind a pad token.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import nlargest
from queue import SimpleQueue
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.registry import check_fields
from longcrawl.errors import LoaderError, LongCrawlError, listed
from longcrawl.formats.rectangle import spec
from longcrawl.formats.rectangle.source import read_rows
from longcrawl.formats.shards.shard import FOUND
from longcrawl.formats.shards.spec import named_split
from longcrawl.loading import feed
from longcrawl.run.engines.local import usable_cpus
from longcrawl.urls import is_url

ChunkKey = tuple[int, int]
"""Row chunk and column chunk."""


@dataclass(frozen=True)
class Walk:
    """Tokens and chunks of every global batch, of an array with this shape: documents, tokens per document."""

    shape: tuple[int, int]
    chunks: tuple[int, int]
    batch_size: int
    context_length: int

    @property
    def row_batches(self) -> int:
        """Batches per context window; rows that do not fill a batch are dropped."""
        return self.shape[0] // self.batch_size

    @property
    def windows(self) -> int:
        """Context windows per document; columns that do not fill a window are dropped."""
        return self.shape[1] // self.context_length

    @property
    def global_batches(self) -> int:
        """Batches of a full pass over all ranks."""
        return self.row_batches * self.windows

    def first_row(self, batch: int) -> int:
        """Return the first row of a global batch."""
        return batch % self.row_batches * self.batch_size

    def columns(self, batch: int) -> range:
        """Return the columns of a global batch."""
        start = batch // self.row_batches * self.context_length
        return range(start, start + self.context_length)

    def row_pieces(self, batch: int) -> list[tuple[int, slice, slice]]:
        """Cut the rows of a global batch at chunk borders: (row chunk, rows in the chunk, rows in the batch)."""
        return _cut(self.first_row(batch), self.batch_size, self.chunks[0])

    def column_pieces(self, batch: int) -> list[tuple[int, slice, slice]]:
        """Cut the columns of a global batch at chunk borders: (column chunk, columns in the chunk, in the batch)."""
        return _cut(self.columns(batch).start, self.context_length, self.chunks[1])

    def keys(self, batch: int) -> list[ChunkKey]:
        """List the chunks with tokens of a global batch."""
        columns = self.column_pieces(batch)
        return [(row, column) for row, _, _ in self.row_pieces(batch) for column, _, _ in columns]

    def most_chunks(self) -> int:
        """Return the largest number of chunks in a batch."""
        return _widest(self.batch_size, self.chunks[0], self.row_batches) * self._most_columns()

    def worth_keeping(self) -> int:
        """Return the number of chunks worth caching: only those of a batch if windows do not share chunks."""
        if self.context_length % self.chunks[1] == 0:
            return self.most_chunks()
        return -(-self.row_batches * self.batch_size // self.chunks[0]) * self._most_columns()

    def _most_columns(self) -> int:
        return _widest(self.context_length, self.chunks[1], self.windows)

    def next_use(self, key: ChunkKey, batch: int) -> int:
        """Return the first global batch, from ``batch`` on, that uses a chunk; the next pass follows the last batch."""
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
        """Return the first global batch after ``batch`` that may need a chunk which ``batch`` does not need."""
        window, number = divmod(batch, self.row_batches)
        last_row = (number + 1) * self.batch_size - 1
        next_chunk_row = (last_row // self.chunks[0] + 1) * self.chunks[0]
        return window * self.row_batches + min(next_chunk_row // self.batch_size, self.row_batches)


@lru_cache(maxsize=64)
def _cut(first: int, length: int, size: int) -> list[tuple[int, slice, slice]]:
    pieces = []
    for chunk in range(first // size, (first + length - 1) // size + 1):
        start, stop = max(first, chunk * size), min(first + length, (chunk + 1) * size)
        pieces.append((chunk, slice(start - chunk * size, stop - chunk * size), slice(start - first, stop - first)))
    return pieces


def _widest(length: int, size: int, pieces: int) -> int:
    """Return the largest number of chunks that one of consecutive pieces touches.

    The pattern repeats where pieces and chunks align.
    """
    firsts = range(0, min(pieces, size // math.gcd(size, length)) * length, length)
    return max((first + length - 1) // size - first // size + 1 for first in firsts)


Chunk = tuple[npt.NDArray[np.unsignedinteger[Any]], npt.NDArray[Any] | None]
"""Tokens, and their loss mask or None."""
Waiting = SimpleQueue[list[ChunkKey] | None]
"""Queue of claimed chunks, one file at a time; None ends a reader."""
LOOKAHEAD = 8
"""Maximum number of chunk changes decoded ahead by the thread; fewer if they would fill over a quarter of the cache."""
REQUESTS = 16
"""Concurrent requests to a remote store."""


def stays_ahead(requests: int, capacity: int, most_chunks: int) -> int:
    """Return the number of chunk changes to decode ahead; for a remote store, enough to keep all requests busy."""
    if requests > 1:
        return max(1, min(4 * requests, capacity // 2 // most_chunks))
    return max(1, min(LOOKAHEAD, capacity // 4 // most_chunks))


class ChunkCache:
    """Cache of at most ``capacity`` decoded chunks, including those being decoded.

    The walk is known in advance, so the cache evicts the chunk that is needed last, which is optimal. ``requests``
    files are read concurrently.
    """

    def __init__(
        self, array: spec.SplitArray, mask: spec.SplitArray | None, requests: int, walk: Walk, capacity: int
    ) -> None:
        self.process = os.getpid()
        self.assembling = threading.Lock()
        """Lock that the caller holds for one batch, so that its chunks stay in the cache until it is complete."""
        self._array, self._mask, self._requests = array, mask, requests
        self._walk, self._capacity = walk, capacity
        self._chunks: dict[ChunkKey, Chunk] = {}
        self._decoding: set[ChunkKey] = set()
        self._changed = threading.Condition()
        self._batch = 0
        self._wake_at: float = math.inf
        self._stop_thread: Callable[[], None] | None = None

    def advance(self, batch: int) -> None:
        """Notify the decoding thread of the next global batch."""
        self._batch = batch
        if batch >= self._wake_at:
            with self._changed:
                self._changed.notify_all()

    def chunk(self, key: ChunkKey, batch: int) -> Chunk:
        """Return one chunk for a global batch that needs it."""
        chunk = self._chunks.get(key)
        if chunk is not None:
            return chunk
        with self._changed:
            self._changed.wait_for(lambda: key not in self._decoding)
            if key in self._chunks:
                return self._chunks[key]
            self._changed.wait_for(lambda: self._make_room(batch, batch))
            self._decoding.add(key)
        return self._decode([key])[0]

    def load(self, batch: int) -> None:
        """Read all chunks of a global batch that no other thread reads yet, with concurrent reads of a remote store."""
        if self._requests == 1:
            return
        with self._changed:
            missing = self._missing(batch)
            if len(missing) < 2:
                return
            self._changed.wait_for(lambda: self._make_room(batch, batch, len(self._missing(batch))))
            missing = self._missing(batch)
            self._decoding.update(missing)
        with ThreadPoolExecutor(self._requests) as threads:
            for read in [threads.submit(self._decode, keys) for keys in self._by_file(missing)]:
                read.result()

    def _by_file(self, keys: Iterable[ChunkKey]) -> list[list[ChunkKey]]:
        groups: dict[str, list[ChunkKey]] = {}
        for key in keys:
            groups.setdefault(self._array.file_of(*key), []).append(key)
        return list(groups.values())

    def _missing(self, batch: int) -> list[ChunkKey]:
        return [key for key in self._walk.keys(batch) if key not in self._chunks and key not in self._decoding]

    def _decode(self, keys: Sequence[ChunkKey]) -> list[Chunk]:
        chunks: list[Chunk] = []
        array, mask, flags = self._array, self._mask, list[Any]([None] * len(keys))
        try:
            tokens = [array.read_chunk(*keys[0])] if len(keys) == 1 else array.read_chunks(keys)
            if mask is not None:
                alike = len(keys) > 1 and mask.layout.chunks_per_file == array.layout.chunks_per_file
                flags = mask.read_chunks(keys) if alike else [mask.read_chunk(*key) for key in keys]
            chunks = list(zip(tokens, flags, strict=True))
        finally:
            self._release(keys, chunks)
        return chunks

    def _release(self, keys: Sequence[ChunkKey], chunks: Sequence[Chunk] = ()) -> None:
        """Release claimed chunks to other threads, with their content if they were read."""
        with self._changed:
            self._decoding.difference_update(keys)
            self._chunks.update(zip(keys, chunks, strict=False))
            self._changed.notify_all()

    def _make_room(self, now: int, needed_at: int, places: int = 1) -> bool:
        """Free places for chunks of batch ``needed_at`` without evicting a chunk needed from ``now`` until then."""
        if len(self._chunks) + len(self._decoding) + places <= self._capacity:
            return True
        uses = ((self._walk.next_use(key, now), key) for key in self._chunks)
        # Free a sixteenth at once: a search through all chunks for each single place would take as long as decoding.
        for use, key in nlargest(max(places, self._capacity // 16), uses):
            if use > needed_at:
                del self._chunks[key]
        return len(self._chunks) + len(self._decoding) + places <= self._capacity

    @contextmanager
    def decoding_ahead(self, batches: range) -> Iterator[None]:
        """Decode the chunks of global batches ``batches`` in a thread while the block runs."""
        if self._stop_thread is not None:
            self._stop_thread()
        stopped = threading.Event()
        thread = _start_thread(self._decode_ahead, batches, stopped, name="longcrawl-decode")

        def stop() -> None:
            if os.getpid() == self.process:
                stopped.set()
                with self._changed:
                    self._changed.notify_all()
                thread.join()
                # This function refers to the cache. Deleting it breaks the cycle, so that all chunks are freed after
                # the last loop.
                self._stop_thread = None

        self._stop_thread = stop
        try:
            yield
        finally:
            stop()

    def _decode_ahead(self, batches: range, stopped: threading.Event) -> None:
        readers = range(self._requests if self._requests > 1 else 0)
        waiting = Waiting()
        for _ in readers:
            _start_thread(self._read_waiting, waiting, stopped, name="longcrawl-fetch")
        try:
            # The trainer gets the same error when it needs this chunk, and can catch it there.
            with suppress(LongCrawlError):
                self._walk_ahead(batches, stopped, waiting)
        finally:
            for _ in readers:
                waiting.put(None)

    def _read_waiting(self, waiting: Waiting, stopped: threading.Event) -> None:
        while (keys := waiting.get()) is not None:
            if stopped.is_set():
                self._release(keys)
                continue
            with suppress(LongCrawlError):
                self._decode(keys)

    def _walk_ahead(self, batches: range, stopped: threading.Event, waiting: Waiting) -> None:
        """Decode chunks in the order of batches; for a remote store, hand them to other threads file by file."""
        lookahead = stays_ahead(self._requests, self._capacity, self._walk.most_chunks())
        ahead: deque[int] = deque()
        batch = batches.start
        while batch < batches.stop and not stopped.is_set():
            if len(ahead) >= lookahead:
                self._wait_for_batch(ahead[len(ahead) // 2], stopped)
            while ahead and ahead[0] <= self._batch:
                ahead.popleft()
            for keys in self._claimed(batch, stopped):
                if self._requests == 1:
                    self._decode(keys)
                else:
                    for group in self._by_file(keys):
                        waiting.put(group)
            ahead.append(batch)
            # A trainer that is ahead of this thread has decoded its chunks itself.
            change = self._walk.next_change(max(batch, self._batch))
            batch += -(-(change - batch) // batches.step) * batches.step

    def _claimed(self, batch: int, stopped: threading.Event) -> Iterator[list[ChunkKey]]:
        """Yield claimed chunks of a batch in groups, each before a wait for room, so that they are read meanwhile."""
        held: list[ChunkKey] = []
        for key in self._walk.keys(batch):
            taken = self._requests > 1 and self._claim(key, batch, stopped, wait=False)
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
        """Wait for a place for a chunk and take it; return False if the chunk is not needed or would need a wait."""
        with self._changed:
            while (
                not stopped.is_set() and batch >= self._batch and key not in self._chunks and key not in self._decoding
            ):
                now = self._batch
                self._wake_at = self._walk.next_change(now)
                room = self._make_room(now, batch)
                if wait and not room:
                    self._changed.wait()
                self._wake_at = math.inf
                if room:
                    self._decoding.add(key)
                if room or not wait:
                    return room
        return False

    def _wait_for_batch(self, batch: int, stopped: threading.Event) -> None:
        with self._changed:
            self._wake_at = batch
            self._changed.wait_for(lambda: stopped.is_set() or self._batch >= batch)
            self._wake_at = math.inf


def _start_thread(target: Callable[..., None], *args: Any, name: str) -> threading.Thread:
    """Start a thread for which the process does not wait at exit."""
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


Seam = Literal["keep", "mask"]
"""Handling of the target after the end of a rolled row's document, which is the document's first token."""


@dataclass(frozen=True, eq=False, repr=False)
class Rectangle(feed.Feed):
    """Batches for one rank of a trainer, from the rectangle at ``path``, a folder or a URL that fsspec reads.

    >>> batches = Rectangle("mini64.zarr", batch_size=8, context_length=4096)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["text"], batch["targets"])  # each (8, 4096) int64
    ...     checkpoint["data"] = batches.state_dict()

    Rank ``r`` takes global batch ``step * world_size + r``; the last ``global_batches % world_size`` are dropped. Every
    pass omits the last ``rows % batch_size`` rows and the columns that do not fill a window. ``batches[i]`` is a pure
    function of ``i``.

    Iterating resumes after the last delivered batch and ends with the pass. The next ``for`` loop starts a new pass, in
    the same order. Unlike in other feeds, a state of a complete pass, or of a pass without a step left for all ranks,
    also starts a new pass. Run only one loop at a time. A state can be loaded with another ``batch_size`` if a batch of
    that size begins at the same row.

    If the rectangle has a loss mask, each batch also has ``loss_mask``, bool: False at targets without loss. In a
    rolled row, the beginning of the document follows its end. ``seam="mask"`` masks the target there and adds
    ``position_ids``, int64: positions in ``text`` that restart at 0 at the beginning of the document.

    Attributes:
        path: folder or URL of the rectangle, ours or the original LongCrawl64, or of the array of a split,
            ``train.zarr``.
        split: "train", or "heldout" or another usual name of the held-out split.
        batch_size: documents per batch.
        context_length: tokens per document of a batch; None for whole rows.
        rank, world_size: index of this process, and number of processes that share the global batches.
        pad_token: first token of every row of ``text``; None for the rectangle's end of text.
        dtype: "int64", "int32", or "store" for the stored type, uint16 or uint32.
        cache_bytes: limit on decoded chunks in memory, per reading process, including those decoded ahead.
        prefetch: whether iterating decodes ahead in a thread; "auto" does if the process may use two CPUs or more, or
            if the rectangle is remote.
        on_missing_chunks: handling of a missing chunk file: "error"; "skip" delivers only the rows with all their
            files, see :meth:`rows`; "fill" reads it as the fill value.
        engine: "direct", "zarr" or "auto", see :mod:`longcrawl.formats.rectangle.spec`.
        seam: "keep" predicts a document's first token from its last one, as the original does; "mask" does not.

    Raises:
        LoaderError: a field does not fit the rectangle; the message names values that do.
        FormatError: the rectangle or the split does not exist.
        CorruptionError: while reading, a chunk is missing or does not decode.
    """

    kind: ClassVar[str] = "rectangle"
    unit: ClassVar[str] = "batches"

    path: str | os.PathLike[str]
    split: str = "train"
    batch_size: int = 1
    context_length: int | None = None
    rank: int = 0
    world_size: int = 1
    pad_token: int | None = None
    dtype: Literal["int64", "int32", "store"] = "int64"
    cache_bytes: int = 512 * 2**20
    prefetch: Literal["auto", "on", "off"] = "auto"
    on_missing_chunks: spec.OnMissingChunks = "error"
    engine: spec.Engine = "auto"
    seam: Seam = "keep"

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        array = self.array
        if self.split == "train" != self._own_split:
            # The path names a split's array.
            object.__setattr__(self, "split", self._own_split)
        if self.context_length is None:
            object.__setattr__(self, "context_length", array.shape[1])
        if self.pad_token is None:
            object.__setattr__(self, "pad_token", array.end_of_text)
        self._check_shape()
        facts = feed.TokenFacts(array.root, array.end_of_text, array.vocabulary_size)
        facts.check_padding(self.pad_token, None, [array.dtype], self._batch_dtype)
        self._check_memory()

    @property
    def _own_split(self) -> str:
        return self.array.name.removesuffix(".zarr")

    @cached_property
    def array(self) -> spec.SplitArray:
        """Array of the split."""
        split = named_split(self.split, lambda name: spec.has_split(self.path, name))
        return spec.open_split(self.path, split, self.engine, self.on_missing_chunks)

    @cached_property
    def mask(self) -> spec.SplitArray | None:
        """Loss mask of the split, or None if the rectangle has none."""
        return spec.open_loss_mask(self.array) if self.array.masked else None

    @cached_property
    def walk(self) -> Walk:
        """Order of the global batches."""
        context_length = self.array.shape[1] if self.context_length is None else self.context_length
        return Walk(self.array.shape, self.array.layout.chunks, self.batch_size, context_length)

    def _check_shape(self) -> None:
        rows, row_length = self.array.shape
        if not 1 <= self.batch_size <= rows:
            raise LoaderError(
                f"batch_size {self.batch_size} must be from 1 to the {rows} documents of split {self.split!r}"
            )
        if not 1 <= self.walk.context_length <= row_length:
            raise LoaderError(
                f"context_length {self.walk.context_length} must be from 1 to the {row_length} tokens of a document"
            )
        self.check_ranks()
        if self.world_size > self.walk.global_batches:
            raise LoaderError(
                f"split {self.split!r} gives {self.walk.global_batches} batches, not one for each of {self.world_size} "
                "ranks; lower batch_size or context_length"
            )

    def _check_memory(self) -> None:
        chunks, size = self.walk.most_chunks(), self._chunk_bytes
        needed = (chunks + (self.prefetch == "on")) * size
        if self.cache_bytes < needed:
            raise LoaderError(
                f"cache_bytes {self.cache_bytes} is too small: a batch needs {chunks} chunks of {size} bytes at once"
                f"{', and prefetch one more' if self.prefetch == 'on' else ''}; set cache_bytes to {needed} or more"
            )

    @cached_property
    def _batch_dtype(self) -> "np.dtype[Any]":
        return self.array.dtype if self.dtype == "store" else np.dtype(self.dtype)

    @property
    def step_size(self) -> int:
        """Global batches per step: one for each rank."""
        return self.world_size

    @property
    def most(self) -> int:
        """Global batches per pass."""
        return self.walk.global_batches

    def stop(self, position: int) -> int:
        """Return the position at which full steps from ``position`` on end."""
        return position + (self.walk.global_batches - position) // self.world_size * self.world_size

    def remaining_steps(self) -> range:
        """Return the steps up to the end of the pass, or those of a new pass if no full step is left."""
        if self.stop(self.position) == self.position:
            self.move_to(0)
        return super().remaining_steps()

    def read(self, step: int) -> feed.Batch:
        """Return this rank's batch of the step that begins at global batch ``step``."""
        return self.global_batch(step + self.rank)

    def __iter__(self) -> Iterator[feed.Batch]:
        """Yield the rest of the pass, or a new pass if the last one is complete."""
        steps = self.remaining_steps()
        following = range(steps.start + self.rank, steps.stop + self.rank, steps.step)[1:]
        with self._cache().decoding_ahead(following) if self._decodes_ahead() and following else nullcontext():
            yield from super().__iter__()

    def upcoming(self, first: int, every: int) -> Iterator[feed.Batch]:
        """Yield every ``every``-th remaining batch, and keep the decoding thread informed of the position."""
        cache = self._cache()
        for step in self.remaining_steps()[first::every]:
            cache.advance(step + self.rank)
            yield self.read(step)

    def global_batch(self, batch: int) -> feed.Batch:
        """Return one global batch, of any rank."""
        shape = (self.batch_size, self.walk.context_length)
        text, targets = np.empty(shape, self._batch_dtype), np.empty(shape, self._batch_dtype)
        text[:, 0] = self.pad_token
        shifted = text[:, 1:]
        made = {"text": text, "targets": targets}
        if self.mask is not None or self.seam == "mask":
            made["loss_mask"] = np.ones(shape, np.bool_)
        columns = self.walk.column_pieces(batch)
        cache = self._cache()
        with cache.assembling:
            cache.load(batch)
            for row_chunk, rows, to_rows in self.walk.row_pieces(batch):
                for column_chunk, taken, to_columns in columns:
                    chunk, flags = cache.chunk((row_chunk, column_chunk), batch)
                    tokens = chunk[rows, taken]
                    targets[to_rows, to_columns] = tokens
                    # The last token of a window is only a target.
                    seen = shifted[to_rows, to_columns]
                    seen[...] = tokens[:, : seen.shape[1]]
                    if flags is not None:
                        made["loss_mask"][to_rows, to_columns] = flags[rows, taken]
        if self.seam == "mask":
            made["position_ids"] = self._mask_seams(batch, made["loss_mask"])
        if self.dtype == "int32" and self.array.dtype.itemsize == 4 and targets.min() < 0:
            raise LoaderError(f"{self.path} has a token id that int32 cannot hold: set dtype='int64'")
        return made

    def position_of(self, step: int) -> int:
        """Return the position at which a step of a pass begins; all passes have the same order."""
        if step >= len(self):
            raise LoaderError(
                f"a pass has steps 0 to {len(self) - 1:,}, not {step}: check the feed's settings, or use step "
                f"{step % len(self):,}, which is the same step in a later pass"
            )
        return super().position_of(step)

    def origins_at(self, position: int) -> list[feed.Origin]:
        """Return the documents in this rank's batch of a step; columns are those of ``targets``.

        The original LongCrawl64 does not record its documents; an origin then has only the row.
        """
        batch, array = position + self.rank, self.array
        columns, first = self.walk.columns(batch), self.walk.first_row(batch)
        rows = list[tuple[int, dict[str, Any] | None]]()
        for stored in array.stored_rows(first, first + self.batch_size):
            table = self._table(stored, ("id", "url", "roll", *FOUND))
            rows += zip(stored, [None] * len(stored) if table is None else table.to_pylist(), strict=True)
        where = f"{array.root}/{array.name}"
        return [
            origin
            for row, (number, document) in enumerate(rows)
            for origin in feed.rolled_origins(row, columns, array.shape[1], (where, number), document)
        ]

    def rows(self) -> tuple[spec.Band, ...]:
        """Return the delivered bands of rows, with their rows in the array; "skip" omits those with a missing file."""
        return self.array.bands

    def _table(self, stored: range, columns: Sequence[str]) -> pa.Table | None:
        return read_rows(self.array.root, self._own_split, stored.start, stored.stop, columns)

    @cached_property
    def _rolls(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Roll offset of each row: int64 [rows]."""
        if self.array.rolled is False:
            return np.zeros(self.array.shape[0], np.int64)
        tables = [self._table(stored, ("roll",)) for stored in self.array.stored_rows(0, self.array.shape[0])]
        rolls = [table["roll"] for table in tables if table is not None and "roll" in table.column_names]
        if len(rolls) < len(tables) or any(each.null_count for each in rolls):
            raise LoaderError(f"{self.path} does not record by how much rows are rolled: set seam='keep'")
        return np.concatenate([np.asarray(each, np.int64) for each in rolls])

    def _mask_seams(self, batch: int, loss_mask: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        """Mask the first token of each document that follows its last one; return the positions in ``text``."""
        columns, first = self.walk.columns(batch), self.walk.first_row(batch)
        positions = np.tile(np.arange(len(columns)), (self.batch_size, 1))
        for row, roll in enumerate(self._rolls[first : first + self.batch_size].tolist()):
            seam = roll - columns.start
            if 0 < seam < len(columns):
                loss_mask[row, seam] = False
                # Text is one place behind its targets.
                positions[row, seam + 1 :] -= seam + 1
        return positions

    @cached_property
    def _chunk_bytes(self) -> int:
        return self.array.layout.chunk_bytes + (0 if self.mask is None else self.mask.layout.chunk_bytes)

    def identity(self, position: int) -> dict[str, Any]:  # noqa: ARG002  # the same at every position
        """Return the settings, and digests of samples from rows, which do not depend on the storage of tokens."""
        rows, row_length = self.array.shape
        return {
            **self.values_of("batch_size", "context_length", "split", "pad_token", "seam"),
            "rows": rows,
            "row_length": row_length,
            "loss_mask": self.mask is not None,
            "bands": self._bands,
            "data": self._samples,
        }

    @cached_property
    def _samples(self) -> list[str | None]:
        return feed.sample_digests(self.array, self.mask)

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed, except in damaged chunks."""
        now = self.identity(state["position"])
        changed = feed.changed_values(state, now, apart=("data",))
        return changed + feed.sample_changes(state["data"], now["data"], self.array.shape)

    def recounted(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with its position converted to batches of this feed's size."""
        rows, was = self.array.shape[0], state["batch_size"]
        if was == self.batch_size or state["rows"] != rows:
            return state
        if not isinstance(was, int) or isinstance(was, bool) or not 1 <= was <= rows:
            raise LoaderError(
                f"batch_size {was!r} of the state is not a number of rows: pass what state_dict() returned"
            )
        window, batch = divmod(state["position"], rows // was)
        row = batch * was
        if row % self.batch_size:
            sizes = [size for size in range(1, row + 1) if row % size == 0]
            raise LoaderError(
                f"the state is at row {row:,} of a context window, where no batch of {self.batch_size} begins: set "
                f"batch_size to {listed(map(str, sizes))}"
            )
        position = window * self.walk.row_batches + row // self.batch_size
        return {**state, "position": position, "batch_size": self.batch_size}

    @cached_property
    def _bands(self) -> str:
        """Delivered bands, such as "0-2,5", or "all"."""
        if self.array.stored is None:
            return "all"
        numbers = np.array(self.array.kept)
        stretches = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
        return ",".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in stretches)

    def _decodes_ahead(self) -> bool:
        if self.prefetch != "auto":
            return self.prefetch == "on"
        # A thread that waits for a server does not need a CPU of its own.
        useful = usable_cpus() > 1 or self._requests > 1
        return useful and self.cache_bytes // self._chunk_bytes > self.walk.most_chunks()

    @property
    def _requests(self) -> int:
        return REQUESTS if is_url(self.array.root) else 1

    def _cache(self) -> ChunkCache:
        # Locks and threads do not survive a fork, so each worker process has its own cache.
        cache: ChunkCache | None = self.__dict__.get("_own_cache")
        if cache is None or cache.process != os.getpid():
            cache = ChunkCache(self.array, self.mask, self._requests, self.walk, self._capacity())
            object.__setattr__(self, "_own_cache", cache)
        return cache

    def _capacity(self) -> int:
        """Return the number of chunks to cache: all if they fit, otherwise at most those that this pass can use."""
        layout = self.array.layout
        capacity = self.cache_bytes // self._chunk_bytes
        if capacity >= layout.chunk_grid[0] * layout.chunk_grid[1]:
            return capacity
        most = self.walk.most_chunks()
        ahead = stays_ahead(self._requests, capacity, most) * most if self._decodes_ahead() else 0
        return min(capacity, self.walk.worth_keeping() + ahead)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_own_cache"}
