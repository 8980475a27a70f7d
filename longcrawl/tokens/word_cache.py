"""GPT-2's pre-tokenisation with a memory: each distinct word is encoded once, all others are looked up."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.tokens._engines import SEPARATOR, Tiktoken

__all__ = ["WordCache"]

Ids = npt.NDArray[Any]


class WordCache:
    """Encodes as ``engine`` does, which has GPT-2's pattern; the engine sees each distinct word once.

    At most ``words`` words are kept, in about 120 bytes each. When they are full, all are forgotten.
    Texts are split in blocks of ``block`` pieces, which must be fewer than ``words``.
    """

    def __init__(self, engine: Tiktoken, dtype: npt.DTypeLike, words: int = 1 << 19, block: int = 1 << 14) -> None:
        from longcrawl.tokens._kernels import LONGEST_WORD, Words

        self._engine = engine
        self._lock = threading.Lock()
        self._dtype = np.dtype(dtype)
        self._words = Words(
            table=np.zeros((2 * words, 4), np.uint64),
            bounds=np.zeros(words + 1, np.int64),
            arena=np.empty(14 * words + block * (LONGEST_WORD + len(SEPARATOR)), np.uint8),
        )
        self._full = 14 * words
        self._known = (np.empty(5 * words, np.uint32), np.empty(words, np.int64), np.empty(words, np.int64))
        self._count = 0
        self._starts = np.empty(block + 1, np.int64)
        self._keys = np.empty((block, 2), np.uint64)
        self._numbers = np.empty(block, np.int64)
        self._loose = np.empty((block, 2), np.int64)

    def encode(self, texts: "pa.Array | pa.ChunkedArray") -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return the ids of all texts and their offsets, see :class:`longcrawl.tokens.encoders.EncodedTexts`."""
        with self._lock:
            try:
                return self._encode(*_padded(texts))
            except BaseException:  # words that the engine has not encoded must not stay in the table
                self._forget()
                raise

    def _encode(self, text: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        from longcrawl.tokens._kernels import emit, look_up, split

        ids = np.empty(bounds[-1], self._dtype)  # a token is one byte or more
        offsets = np.zeros(len(bounds), np.int64)
        ends = np.empty(len(bounds) - 1, np.int64)
        state = np.zeros(2, np.int64)
        written = 0
        while (first := state[0]) < len(ends):
            self._make_room()
            found = split(text, text.view(np.uint64), bounds, state, self._starts, self._keys, ends)
            numbers = self._numbers[:found]
            count, apart = look_up(
                text, self._starts, self._keys[:found], self._words, self._count, numbers, self._loose
            )
            self._learn(count)
            loose = self._encode_loose(text, self._loose[:apart].tolist())
            written = emit(numbers, ends, first, state[0], self._known, loose, ids, written, offsets)
        return ids[:written].copy(), offsets

    def _make_room(self) -> None:
        """Forget all words if a block of new ones may not fit."""
        words = self._words
        if self._count + len(self._keys) >= len(words.bounds) or words.bounds[self._count] > self._full:
            self._forget()

    def _forget(self) -> None:
        self._words.table[:] = 0
        self._count = 0

    def _learn(self, count: int) -> None:
        """Encode the words that came since the last time."""
        if count == self._count:
            return
        first, last = self._words.bounds[[self._count, count]]
        ids, stops = self._engine.encode_words(bytes(self._words.arena[first:last]).decode())
        known, known_starts, known_stops = self._known
        start = known_stops[self._count - 1] + 1 if self._count else 0
        if (needed := start + len(ids)) > len(known):
            known = np.concatenate([known, np.empty(needed, np.uint32)])
            self._known = (known, known_starts, known_stops)
        known[start:needed] = ids
        known_stops[self._count : count] = start + stops
        known_starts[self._count] = start
        known_starts[self._count + 1 : count] = known_stops[self._count : count - 1] + 1
        self._count = count

    def _encode_loose(self, text: npt.NDArray[np.uint8], places: list[tuple[int, int]]) -> tuple[Ids, Ids, Ids]:
        parts = [self._engine.encode(bytes(text[start:stop]).decode()) for start, stop in places]
        bounds = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=bounds[1:])
        return np.concatenate([np.zeros(0, np.uint32), *parts]), bounds[:-1], bounds[1:]


def _padded(texts: "pa.Array | pa.ChunkedArray") -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of all texts, so that eight can be loaded from any, and where each text starts and ends."""
    array = pc.fill_null(pc.cast(texts, pa.large_string()), "")
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    _, offsets, data = array.buffers()
    if len(array) == 0 or data is None:
        return np.zeros(24, np.uint8), np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    size = bounds[-1] - bounds[0]
    padded = np.zeros(size // 8 * 8 + 24, np.uint8)
    padded[:size] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return padded, bounds - bounds[0]
