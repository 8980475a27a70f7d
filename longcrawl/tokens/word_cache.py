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

    At most ``words`` words are kept, in about 130 bytes each. When they are full, all are forgotten.
    """

    def __init__(self, engine: Tiktoken, dtype: npt.DTypeLike, words: int = 1 << 19, block: int = 1 << 14) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._dtype = np.dtype(dtype)
        self._tokens, self._token_ids = _table_of_tokens(engine)
        self._words = _empty(words, 14 * words, block)
        self._full = 14 * words
        room = len(self._words.arena)  # an id is one byte or more
        self._known = (np.empty(room, np.uint32), np.empty(words, np.int64), np.empty(words, np.int64))
        self._count = self._written = 0
        self._starts = np.empty(block + 1, np.int64)
        self._keys = np.empty((block, 2), np.uint64)
        self._numbers = np.empty(block, np.int64)
        self._loose = np.empty((block, 2), np.int64)

    def encode(self, texts: "pa.Array | pa.ChunkedArray") -> tuple[Ids, npt.NDArray[np.int64]]:
        """Give the ids of all texts and their offsets, see :class:`longcrawl.tokens.encoders.EncodedTexts`."""
        with self._lock:
            return self._encode(*_bytes_of(texts))

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
            words.table[:] = 0
            self._count = self._written = 0

    def _learn(self, count: int) -> None:
        """Encode the words that came since the last time: those beyond ASCII by the engine, in one call."""
        from longcrawl.tokens._kernels import learn

        words, numbers = self._words, np.empty(count - self._count, np.int64)
        tokens = (self._tokens, self._token_ids, self._known)
        self._written, others = learn(words, self._count, count, *tokens, self._written, numbers)
        self._count = count
        if not others:
            return
        numbers = numbers[:others]
        spelled = [bytes(words.arena[words.bounds[number] : words.bounds[number + 1]]) for number in numbers.tolist()]
        ids, stops = self._engine.encode_words(b"".join(spelled).decode())
        known, known_starts, known_stops = self._known
        known[self._written : self._written + len(ids)] = ids
        known_stops[numbers] = self._written + stops
        known_starts[numbers] = self._written + np.append(0, stops[:-1] + 1)
        self._written += len(ids)

    def _encode_loose(self, text: npt.NDArray[np.uint8], places: list[tuple[int, int]]) -> tuple[Ids, Ids, Ids]:
        parts = [self._engine.encode(bytes(text[start:stop]).decode()) for start, stop in places]
        bounds = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=bounds[1:])
        return np.concatenate([np.zeros(0, np.uint32), *parts]), bounds[:-1], bounds[1:]


def _empty(words: int, characters: int, block: int) -> "Words":
    """Give a table of words with room for a block of the longest words beyond ``characters``."""
    from longcrawl.tokens._kernels import LONGEST_WORD, Words

    arena = np.empty((characters + block * (LONGEST_WORD + len(SEPARATOR))) // 8 * 8 + 24, np.uint8)
    return Words(np.zeros((2 * words, 4), np.uint64), np.zeros(words + 1, np.int64), arena)


def _table_of_tokens(engine: Tiktoken) -> "tuple[Words, Ids]":
    """Give the tokens short enough for words, in the order of their ranks, and the id of each."""
    from longcrawl.tokens._kernels import look_up, write_keys

    count = len(engine.tokens)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum([len(token) for token in engine.tokens], out=bounds[1:])
    text = _padded(np.frombuffer(b"".join(engine.tokens), np.uint8))
    keys, numbers, long = np.empty((count, 2), np.uint64), np.empty(count, np.int64), np.empty((count, 2), np.int64)
    write_keys(text.view(np.uint64), bounds, keys)
    words = _empty(1 << count.bit_length(), len(text) + count * len(SEPARATOR), 0)
    look_up(text, bounds, keys, words, 0, numbers, long)
    return words, engine.ids[numbers >= 0]


def _bytes_of(texts: "pa.Array | pa.ChunkedArray") -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Give the bytes of all texts, and where each text starts and ends."""
    array = pc.fill_null(pc.cast(texts, pa.large_string()), "")
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if len(array) == 0:
        return _padded(np.zeros(0, np.uint8)), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    text = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]] if data is not None else np.zeros(0, np.uint8)
    return _padded(text), bounds - bounds[0]


def _padded(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Copy bytes to where eight can be loaded from any of them."""
    padded = np.zeros(len(text) // 8 * 8 + 24, np.uint8)
    padded[: len(text)] = text
    return padded
