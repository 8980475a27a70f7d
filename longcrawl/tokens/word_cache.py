"""GPT-2's pre-tokenisation with a memory: each distinct word is encoded once, all others are looked up."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["WordCache"]

_PLAIN_WORD = re.compile(r" ?\S+")
"""A word that keeps its pieces between two line feeds."""


class WordCache:
    """Encodes with another encoder of GPT-2's pattern, which sees each distinct word once; the ids are the same.

    At most ``words`` words are kept, about 60 bytes each; when they are full, all are forgotten.
    """

    def __init__(
        self, encode: Callable[[str], npt.NDArray[Any]], dtype: npt.DTypeLike, words: int = 1 << 19, block: int = 1 << 16
    ) -> None:
        from longcrawl.tokens._kernels import LONGEST_WORD, Words

        self._encode = encode
        (self._line_feed,) = encode("\n").tolist()
        self._dtype = np.dtype(dtype)
        self._words = Words(
            table=np.zeros((2 * words, 2), np.uint64),
            bounds=np.zeros(words + 1, np.int64),
            arena=np.empty(12 * words + LONGEST_WORD, np.uint8),
        )
        self._known = np.empty(4 * words, self._dtype)
        self._known_bounds = np.zeros(words + 1, np.int64)
        self._count = 0
        self._pieces = np.empty(block, np.int64)
        self._loose = np.empty((1024, 2), np.int64)

    def encode(self, texts: "pa.Array | pa.ChunkedArray") -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Give the ids of all texts and their offsets, see :class:`longcrawl.tokens.encoders.EncodedTexts`."""
        from longcrawl.tokens._kernels import emit, split

        text, ends_of_texts = _padded(texts)
        ids = np.empty(ends_of_texts[-1], self._dtype)  # a token is a byte or more
        offsets = np.zeros(len(ends_of_texts), np.int64)
        ends = np.empty(len(offsets) - 1, np.int64)
        state = np.array([0, 0, self._count])
        written = 0
        while (first := state[0]) < len(ends):
            arrays = (self._words, self._pieces, ends, self._loose)
            found, apart = split(text, text.view(np.uint64), ends_of_texts, state, *arrays)
            self._learn(state[2])
            loose, loose_bounds = _joined([self._encode(bytes(text[a:b]).decode()) for a, b in self._loose[:apart].tolist()])
            known = (self._known, self._known_bounds, loose.astype(self._dtype), loose_bounds)
            written = emit(self._pieces[:found], ends, first, state[0], *known, ids, written, offsets)
            if found < len(self._pieces) and apart < len(self._loose) and state[0] < len(ends):
                self._forget()
                state[2] = 0
        return ids[:written].copy(), offsets

    def _learn(self, count: int) -> None:
        """Encode the words that came since the last time."""
        if count == self._count:
            return
        bounds = self._words.bounds[self._count : count + 1].tolist()
        spelled = bytes(self._words.arena[bounds[0] : bounds[-1]])
        words = [spelled[a - bounds[0] : b - bounds[0]].decode() for a, b in zip(bounds, bounds[1:], strict=False)]
        ids, new_bounds = _joined(self._encode_words(words))
        start = self._known_bounds[self._count]
        self._known_bounds[self._count : count + 1] = start + new_bounds
        if (needed := start + len(ids)) > len(self._known):
            self._known = np.concatenate([self._known, np.empty(needed, self._dtype)])
        self._known[start:needed] = ids
        self._count = count

    def _encode_words(self, words: list[str]) -> list[npt.NDArray[Any]]:
        """Encode words, the plain ones as lines of one text, which is twice as fast."""
        plain = [word for word in words if _PLAIN_WORD.fullmatch(word)]
        ids = self._encode("".join([word + "\n" for word in plain]))
        feeds = np.flatnonzero(ids == self._line_feed)
        lines = iter(np.split(np.delete(ids, feeds), feeds[:-1] - np.arange(len(feeds) - 1))) if plain else iter(())
        return [next(lines) if _PLAIN_WORD.fullmatch(word) else self._encode(word) for word in words]

    def _forget(self) -> None:
        self._words.table[:] = 0
        self._count = 0


def _joined(parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    bounds = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=bounds[1:])
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32), bounds


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
