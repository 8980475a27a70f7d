"""GPT-2's pre-tokenisation with a memory: each distinct word is encoded once, all others are looked up.

Texts are split, and words looked up in a table of those seen, by numba kernels over bytes. Only ASCII is classified
here, where no Unicode version matters. A stretch with any other character is taken as one "word" up to a place where
GPT-2's pattern always cuts: an ASCII whitespace character after a character that is none. Splitting such a stretch by
itself gives the pieces that it has in the text, so whoever encodes words can be asked.
"""

# Numba takes arguments by position and compiles plain loops and comparisons best:
# ruff: noqa: PLR1714, SIM110
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.kernels.compiling import compiled
from longcrawl.tokens._engines import SEPARATOR, Tiktoken

Bytes = npt.NDArray[np.uint8]
Wide = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Ids = npt.NDArray[Any]
Spans = tuple[Ids, Longs, Longs]
"""Ids of many words, and where those of each start and stop."""

LONGEST_WORD = 96
"""In bytes; longer pieces are too rare to remember."""

_SEPARATOR = np.frombuffer(SEPARATOR.encode(), np.uint8)

_OTHER, _LETTER, _DIGIT, _SPACE, _BEYOND_ASCII = range(5)

_CLASS = np.full(256, _OTHER, np.uint8)
_CLASS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")] = _LETTER
_CLASS[list(b"0123456789")] = _DIGIT
_CLASS[list(b"\t\n\v\f\r ")] = _SPACE
_CLASS[128:] = _BEYOND_ASCII

_U = np.uint64
_ONES = _U(0x0101010101010101)
_HIGH = _U(0x8080808080808080)
_FROM_A = _U(0x80 - ord("a")) * _ONES
_AFTER_Z = _U(0x7F - ord("z")) * _ONES
_BYTE_NUMBER = _U(0x0001020304050607)
_MIX = _U(0x9E3779B97F4A7C15)
_MIX_HIGH = _U(0xD6E8FEB86659FD93)
_FROM_16_BYTES = _U(16 << 56)


class Words(NamedTuple):
    """An open-addressing table of words; word w and ``SEPARATOR`` are ``arena[bounds[w]:bounds[w + 1]]``."""

    table: npt.NDArray[np.uint64]
    """Shape (a power of two, 4): the two halves of a word's key and its number; a place with zeros is empty."""
    bounds: npt.NDArray[np.int64]
    arena: npt.NDArray[np.uint8]


@compiled
def _eight_bytes(wide: Wide, at: int) -> np.uint64:
    """Load the eight bytes from ``at`` on as one little-endian number."""
    shift = _U(8 * (at & 7))
    low = wide[at >> 3] >> shift
    return low | ((wide[(at >> 3) + 1] << _U(1)) << (_U(63) - shift))


@compiled
def _letters_end(wide: Wide, at: int) -> int:
    """Find the first byte from ``at`` on that is no ASCII letter, eight bytes at a time."""
    while True:
        eight = _eight_bytes(wide, at)
        folded = (eight | (_U(0x20) * _ONES)) & ~_HIGH
        letters = (folded + _FROM_A) & ~(folded + _AFTER_Z) & ~eight
        others = ~letters & _HIGH
        if others != _U(0):
            lowest = (others & (~others + _U(1))) >> _U(7)
            return at + np.int64((lowest * _BYTE_NUMBER) >> _U(56))
        at += 8


@compiled
def _may_be_space(text: Bytes, at: int) -> bool:
    """Whether the character at ``at``, beyond ASCII, is whitespace or close to it."""
    first, second, third = text[at], text[at + 1], text[at + 2]
    if first == 0xC2:
        return second == 0x85 or second == 0xA0
    if first == 0xE1:
        return second == 0x9A or second == 0xA0
    if first == 0xE2:
        return (second == 0x80 and (third <= 0x8F or third >= 0xA8)) or second == 0x81
    return first == 0xE3 and second == 0x80 and third == 0x80


@compiled
def _stretch_end(text: Bytes, at: int, end: int) -> int:
    """Find the first ASCII whitespace after a character that is certainly none."""
    certain = False
    while at < end:
        first = text[at]
        if first < 0x80:
            if _CLASS[first] != _SPACE:
                certain = True
            elif certain:
                return at
            at += 1
        else:
            certain = not _may_be_space(text, at)
            at += 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    return end


@compiled
def _contraction(text: Bytes, at: int, end: int) -> int:
    """Return the length of 's 'd 'm 't 'll 've 're at ``at``, or 0."""
    if text[at] != ord("'") or at + 1 >= end:
        return 0
    first = text[at + 1]
    if first == ord("s") or first == ord("d") or first == ord("m") or first == ord("t"):
        return 2
    if at + 2 >= end:
        return 0
    second = text[at + 2]
    if (first == ord("l") and second == ord("l")) or (second == ord("e") and (first == ord("v") or first == ord("r"))):
        return 3
    return 0


@compiled
def _piece_end(text: Bytes, wide: Wide, at: int, end: int) -> int:
    """Find where the piece, or the stretch beyond ASCII, that starts at ``at`` ends."""
    start = at
    if text[at] == 32 and at + 1 < end and _CLASS[text[at + 1]] != _SPACE:
        start = at + 1
    kind = _CLASS[text[start]]
    if kind == _LETTER:
        stop = min(_letters_end(wide, start), end)
    elif kind == _BEYOND_ASCII:
        return _stretch_end(text, at, end)
    else:
        length = _contraction(text, at, end)
        if length > 0:
            return at + length
        stop = start + 1
        while stop < end and _CLASS[text[stop]] == kind:
            stop += 1
    if stop == end:
        return end
    beyond = _CLASS[text[stop]] == _BEYOND_ASCII
    if kind == _SPACE:
        if beyond and _may_be_space(text, stop):
            return _stretch_end(text, at, end)
        return stop if stop - at == 1 else stop - 1
    return _stretch_end(text, at, end) if beyond else stop


@compiled
def _write_key(wide: Wide, at: int, end: int, key: Wide) -> None:
    """Return the word itself and its length for up to 15 bytes, a hash up to LONGEST_WORD, zeros beyond."""
    length = end - at
    if length < 8:
        key[0] = _eight_bytes(wide, at) & ((_U(1) << _U(8 * length)) - _U(1))
        key[1] = _U(length) << _U(56)
    elif length < 16:
        key[0] = _eight_bytes(wide, at)
        key[1] = _eight_bytes(wide, at + 8) & ((_U(1) << _U(8 * length - 64)) - _U(1)) | (_U(length) << _U(56))
    elif length <= LONGEST_WORD:
        hashed = _U(0)
        for start in range(at, end - 7, 8):
            hashed = (hashed ^ _eight_bytes(wide, start)) * _MIX
            hashed ^= hashed >> _U(29)
        key[0] = (hashed ^ _eight_bytes(wide, end - 8)) * _MIX
        key[1] = _U(length) << _U(56)
    else:
        key[0] = key[1] = _U(0)


@compiled
def split(text: Bytes, wide: Wide, offsets: Longs, state: Longs, starts: Longs, keys: Wide, ends: Longs) -> int:
    """Split texts from where ``state``, [text, position], stands until they end or ``keys`` is full.

    Piece i is ``text[starts[i]:starts[i + 1]]`` with ``keys[i]``; ``ends[t]`` gets how many pieces there were when
    text t ended. Returns how many there are.
    """
    number, at = state
    found = 0
    while number < len(offsets) - 1:
        end = offsets[number + 1]
        while at < end and found < len(keys):
            starts[found] = at
            stop = _piece_end(text, wide, at, end)
            _write_key(wide, at, stop, keys[found])
            found += 1
            at = stop
        if at < end:
            break
        ends[number] = found
        number += 1
    starts[found] = at
    state[0], state[1] = number, at
    return found


@compiled
def look_up(
    text: Bytes, starts: Longs, keys: Wide, words: Words, count: int, numbers: Longs, loose: Longs
) -> tuple[int, int]:
    """Return each piece its word's number; new words get ``count`` and on, and their bytes are kept.

    Pieces too long for a word get -1 - i, and row i of ``loose`` their start and end. Returns how many words there
    are now and how many are loose. Apart from :func:`split` because the misses of the cache then overlap.
    """
    table, bounds, arena = words
    mask = _U(table.shape[0] - 1)
    apart = 0
    for i in range(len(keys)):
        low, high = keys[i, 0], keys[i, 1]
        if high == _U(0):
            loose[apart, 0], loose[apart, 1] = starts[i], starts[i + 1]
            apart += 1
            numbers[i] = -apart
            continue
        mixed = (low ^ (high * _MIX_HIGH)) * _MIX
        place = ((mixed ^ (mixed >> _U(32))) * _MIX >> _U(32)) & mask
        while table[place, 1] != _U(0):
            if table[place, 0] == low and table[place, 1] == high:
                number = np.int64(table[place, 2])
                if high < _FROM_16_BYTES or _same(text, starts[i], starts[i + 1], arena, bounds[number]):
                    break
            place = (place + _U(1)) & mask
        else:
            number = count
            table[place, 0], table[place, 1], table[place, 2] = low, high, _U(number)
            bounds[count + 1] = _keep(text, starts[i], starts[i + 1], arena, bounds[count])
            count += 1
        numbers[i] = number
    return count, apart


@compiled
def _same(text: Bytes, at: int, end: int, arena: Bytes, start: int) -> bool:
    for i in range(end - at):
        if text[at + i] != arena[start + i]:
            return False
    return True


@compiled
def _keep(text: Bytes, at: int, end: int, arena: Bytes, start: int) -> int:
    length = end - at
    for i in range(length):
        arena[start + i] = text[at + i]
    for i in range(len(_SEPARATOR)):
        arena[start + length + i] = _SEPARATOR[i]
    return start + length + len(_SEPARATOR)


@compiled
def emit(
    pieces: Longs,
    ends: Longs,
    first: int,
    last: int,
    known: Spans,
    loose: Spans,
    ids: Ids,
    written: int,
    offsets: Longs,
) -> int:
    """Write the ids of ``pieces`` from ``ids[written]`` on, and the end of each text in [first, last)."""
    text = first
    for i in range(len(pieces)):
        while text < last and ends[text] == i:
            offsets[text + 1] = written
            text += 1
        word = pieces[i]
        source, starts, stops = known if word >= 0 else loose
        word = word if word >= 0 else -1 - word
        for j in range(starts[word], stops[word]):
            ids[written] = source[j]
            written += 1
    for rest in range(text, last):
        offsets[rest + 1] = written
    return written


class WordCache:
    """Encodes as ``engine`` does, which has GPT-2's pattern; the engine sees each distinct word once.

    At most ``words`` words are kept, in about 120 bytes each. When they are full, all are forgotten.
    Texts are split in blocks of ``block`` pieces, which must be fewer than ``words``.
    """

    def __init__(self, engine: Tiktoken, dtype: npt.DTypeLike, words: int = 1 << 19, block: int = 1 << 14) -> None:
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

    def encode(self, texts: "pa.Array | pa.ChunkedArray") -> tuple[Ids, Longs]:
        """Return the ids of all texts and their offsets, see :class:`longcrawl.tokens.encoders.EncodedTexts`."""
        with self._lock:
            try:
                return self._encode(*_padded(texts))
            except BaseException:  # words that the engine has not encoded must not stay in the table
                self._forget()
                raise

    def _encode(self, text: Bytes, bounds: Longs) -> tuple[Ids, Longs]:
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

    def _encode_loose(self, text: Bytes, places: list[tuple[int, int]]) -> tuple[Ids, Ids, Ids]:
        parts = [self._engine.encode(bytes(text[start:stop]).decode()) for start, stop in places]
        bounds = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=bounds[1:])
        return np.concatenate([np.zeros(0, np.uint32), *parts]), bounds[:-1], bounds[1:]


def _padded(texts: "pa.Array | pa.ChunkedArray") -> tuple[Bytes, Longs]:
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
