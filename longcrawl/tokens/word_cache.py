"""GPT-2's pre-tokenisation with a memory: each distinct word is encoded once, all others are looked up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["WordCache"]

Ids = npt.NDArray[Any]


class WordCache:
    """Encodes as another encoder of GPT-2's pattern does, which sees each distinct word once.

    ``encode_lines`` takes words with a separator after each and gives their ids with the id ``separator`` between;
    ``encode`` takes one text. At most ``words`` words are kept, about 60 bytes each; when they are full, all are forgotten.
    """

    def __init__(
        self,
        encode: Callable[[str], Ids],
        encode_lines: Callable[[str], tuple[Ids, Ids]],
        dtype: npt.DTypeLike,
        words: int = 1 << 19,
        block: int = 1 << 16,
    ) -> None:
        from longcrawl.tokens._kernels import LONGEST_WORD, Words

        self._encode = encode
        self._encode_lines = encode_lines
        self._dtype = np.dtype(dtype)
        self._words = Words(
            table=np.zeros((2 * words, 2), np.uint64),
            bounds=np.zeros(words + 1, np.int64),
            arena=np.empty(14 * words + 2 * LONGEST_WORD, np.uint8),
        )
        self._known = (np.empty(5 * words, np.uint32), np.empty(words, np.int64), np.empty(words, np.int64))
        self._count = 0
        self._pieces = np.empty(block, np.int64)
        self._loose = np.empty((1024, 2), np.int64)

    def encode(self, texts: "pa.Array | pa.ChunkedArray") -> tuple[Ids, npt.NDArray[np.int64]]:
        """Give the ids of all texts and their offsets, see :class:`longcrawl.tokens.encoders.EncodedTexts`."""
        from longcrawl.tokens._kernels import emit, split

        text, bounds = _padded(texts)
        ids = np.empty(bounds[-1], self._dtype)  # a token is one byte or more
        offsets = np.zeros(len(bounds), np.int64)
        ends = np.empty(len(bounds) - 1, np.int64)
        state = np.array([0, 0, self._count])
        written = 0
        while (first := state[0]) < len(ends):
            arrays = (self._words, self._pieces, ends, self._loose)
            found, apart = split(text, text.view(np.uint64), bounds, state, *arrays)
            self._learn(state[2])
            loose = self._encode_loose(text, self._loose[:apart].tolist())
            pieces = self._pieces[:found]
            written = emit(pieces, ends, first, state[0], self._known, loose, ids, written, offsets)
            if state[0] < len(ends) and found < len(self._pieces) and apart < len(self._loose):
                self._forget()
                state[2] = 0
        return ids[:written].copy(), offsets

    def _learn(self, count: int) -> None:
        """Encode the words that came since the last time."""
        if count == self._count:
            return
        first, last = self._words.bounds[[self._count, count]]
        ids, stops = self._encode_lines(bytes(self._words.arena[first:last]).decode())
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
        parts = [self._encode(bytes(text[start:stop]).decode()) for start, stop in places]
        bounds = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=bounds[1:])
        return np.concatenate([np.zeros(0, np.uint32), *parts]), bounds[:-1], bounds[1:]

    def _forget(self) -> None:
        self._words.table[:] = 0
        self._count = 0


def _padded(texts: "pa.Array | pa.ChunkedArray") -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Give the bytes of all texts with room to load eight from anywhere, and where each text starts and ends."""
    array = pc.fill_null(pc.cast(texts, pa.large_string()), "")
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1] if len(array) else np.zeros(1, np.int64)
    size = bounds[-1] - bounds[0]
    padded = np.zeros(size // 8 * 8 + 24, np.uint8)
    if size:
        padded[:size] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return padded, bounds - bounds[0]
