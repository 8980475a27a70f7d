"""fastText models: reading and writing model files, hashing words and n-grams, scoring and training.

The rows of short words are cached, and the cache lines for the next words of a text are prefetched. Rows are summed in
fastText's order and precision, so scores are equal bit for bit.
"""

# ruff: noqa: FBT001

import math
import mmap
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError, quoted
from longcrawl.io.files import reread_when_changed, whole_file
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import (
    TESTED,
    WRITTEN,
    count_bits,
    eight_at,
    find_byte,
    find_white,
    lowest_bit,
    prefetch,
    put_eight,
    write_places,
)
from longcrawl.kernels.texts import read_only

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

_MAGIC, _VERSION = 793712314, 12
_SUPERVISED = 3
_TREE, _SAMPLED, _SOFTMAX, _SEPARATE = 1, 2, 3, 4  # losses: a tree of labels (hs), sigmoids (ns and ova), and softmax
_LABEL_PREFIX = b"__label__"
_CENTROIDS = 256
_ENTRY = 10  # bytes of an entry without its word: a terminator, a count and a kind
_LONGEST = 64
_MOST_BUCKETS = 10**8  # limits that no real model exceeds: characters or words of an n-gram, and buckets


class Words(NamedTuple):
    """The dictionary of a model: words with their own rows, and the mapping of n-grams to rows."""

    data: Bytes  # all words, one after the other, in UTF-8
    bounds: npt.NDArray[np.int64]  # int64 [words + 1]: start of each word in ``data``
    table: npt.NDArray[np.uint64]
    """Open-addressing hash table: the word's hash in the upper 32 bits, its number + 1 in the others, 0 for none."""
    kept: npt.NDArray[np.uint64]  # bitmap of the buckets with a row, lowest bit first; empty if all have one
    before: Int32s  # number of buckets with a row before those of each element of ``kept``
    buckets: int
    shortest: int  # characters of the shortest n-grams inside words
    longest: int  # characters of the longest n-grams inside words
    word_ngrams: int  # words of the longest word n-grams; 1 for none


class Vectors(NamedTuple):
    """The weights of a model: rows that are averaged over a text, and output vectors of the labels."""

    rows: Floats  # float32 [words + kept buckets, dimensions]: words by number, then kept buckets by number
    output: Floats  # float32 [labels, dimensions]: a vector for each label, or for each inner node of the tree
    scales: Floats  # float32 [labels]: factor of products with each row of ``output``; 1 if it is not quantised
    children: Int32s
    """int32 [2 * labels - 1, 2]: the children of each node of the tree, -1 for a label. Empty without a tree."""
    parents: Int32s  # int32 [2 * labels - 1]: the parent of each node. Empty without a tree
    separate: bool  # whether each label has an independent probability, a sigmoid; otherwise they sum to 1


class Model(NamedTuple):
    """A fastText classifier."""

    labels: tuple[str, ...]  # labels without their prefix
    words: Words
    vectors: Vectors
    memories: threading.local  # the word cache of each thread

    def memory(self) -> Any:
        """Return the word cache of this thread; it changes speed, not results."""
        if not hasattr(self.memories, "words"):
            self.memories.words = make_memory()
        return self.memories.words


@reread_when_changed(4)
def read_model(path: str) -> Model:
    """Read a fastText ``.bin`` or ``.ftz`` file; StageError if it is missing, damaged or not a classifier."""
    if Path(path).is_dir():
        raise StageError(f"{path} is a folder; give the path of the fastText model in it (.bin or .ftz)")
    if not Path(path).is_file():
        raise StageError(f"{path} does not exist; give the path of a fastText model (.bin or .ftz)")
    try:
        with Path(path).open("rb") as file:
            reader = _Reader(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), path)
            return _read_model(reader)
    except (OSError, ValueError, IndexError) as error:
        raise StageError(f"{path} cannot be read as a fastText model: {error}; download it again") from error


class _Reader:
    """Sequential reader of numbers and words in a model file, which is little endian."""

    def __init__(self, data: mmap.mmap, path: str) -> None:
        self.path = path
        self._data = data
        self._at = 0

    def array(self, kind: str, count: int) -> Any:
        """Return the next numbers as a copy, since they are not aligned in the file."""
        size = np.dtype(kind).itemsize * count
        if count < 0 or size > self.left:
            raise ValueError("it ends too early")
        self._at += size
        return np.frombuffer(self._data, kind, count, self._at - size).copy() if count else np.zeros(0, kind)

    def number(self, kind: str) -> int:
        return int(self.array(kind, 1)[0])

    @property
    def left(self) -> int:
        """Number of bytes that have not been read."""
        return len(self._data) - self._at

    def entries(self) -> tuple[Bytes, Integers, Integers, int, Int32s | None]:
        """Return the whole file, begin, end and count of its words and labels, the number of words, and kept buckets.

        Kept buckets are int32 [kept, 2], buckets and their rows, or None if no bucket was pruned.
        """
        count, words, labels = self.array("<i4", 3).tolist()
        _, kept = self.array("<i8", 2).tolist()  # the first number is the count of training tokens
        if words < 0 or labels < 1 or words + labels != count:
            raise ValueError("its words and labels do not add up")
        if _ENTRY * count > self.left:
            raise ValueError("it ends too early")
        data = read_only(np.frombuffer(self._data, np.uint8))
        places, counts, kinds = np.empty((count, 2), np.int64), np.empty(count, np.int64), np.empty(count, np.uint8)
        self._at = read_entries(data, self._at, places, counts, kinds)
        if self._at < 0:
            raise ValueError("it ends too early")
        if kinds[:words].any() or not kinds[words:].all():
            raise ValueError("its words and labels are mixed")
        return data, places, counts, words, self.array("<i4", 2 * kept).reshape(-1, 2) if kept >= 0 else None


def _read_model(reader: _Reader) -> Model:
    if reader.number("<i4") != _MAGIC:
        raise ValueError("it does not begin like one")
    if (version := reader.number("<i4")) != _VERSION:
        raise ValueError(f"its format has version {version}, but this longcrawl reads {_VERSION}")
    word_ngrams, loss, kind, buckets, shortest, longest = reader.array("<i4", 12).tolist()[5:11]
    reader.array("<f8", 1)  # the sampling threshold, which only training needs
    if longest > _LONGEST or not (longest > 0) <= buckets <= _MOST_BUCKETS:
        raise ValueError(f"it has n-grams of {longest} characters in {buckets} buckets")
    if word_ngrams > _LONGEST or (word_ngrams > 1 and not buckets):
        raise ValueError(f"it has n-grams of {word_ngrams} words in {buckets} buckets")
    if kind != _SUPERVISED or loss not in (_TREE, _SAMPLED, _SOFTMAX, _SEPARATE):
        raise StageError(f"{reader.path} has word vectors, but no labels: choose a supervised fastText model")
    data, places, counts, word_count, kept = reader.entries()
    quantised = bool(reader.number("u1"))
    rows, norms = _read_vectors(reader, quantised=quantised)
    rows = rows * norms[:, None] if quantised else rows
    output, scales = _read_vectors(reader, quantised=bool(reader.number("u1")) and quantised)
    if reader.left:
        raise ValueError(f"{reader.left:,} bytes follow its last vector")
    if kept is not None:
        rows = _sort_rows(rows, kept, word_count, buckets)
    if len(rows) < word_count + (buckets if kept is None else len(kept)):
        raise ValueError("some of its words have no vectors")
    if len(output) != len(counts) - word_count or rows.shape[1] != output.shape[1]:
        raise ValueError("its vectors are not those of its labels")
    listed = _joined(data, places[:word_count])
    words = make_words(*listed, kept, buckets, (shortest, longest), max(word_ngrams, 1))
    labels = _read_labels(data, places[word_count:])
    children, parents = _make_tree(counts[word_count:].tolist()) if loss == _TREE else _NO_TREE
    vectors = Vectors(rows, output, scales, children, parents, loss in (_SAMPLED, _SEPARATE))
    return Model(labels, words, vectors, threading.local())


def _read_labels(data: Bytes, places: npt.NDArray[np.int64]) -> tuple[str, ...]:
    try:
        labels = tuple(bytes(data[slice(*place)]).removeprefix(_LABEL_PREFIX).decode() for place in places.tolist())
    except UnicodeDecodeError as odd:
        raise ValueError("one of its labels is not UTF-8") from odd
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise ValueError(f"it has the label {quoted(twice[0])} more than once")
    return labels


def _joined(data: Bytes, places: npt.NDArray[np.int64]) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Return the concatenated words and a zero, and int64 [words + 1], the start of each and the end of the last."""
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(places[:, 1] - places[:, 0])])
    shifts = np.repeat(places[:, 0] - bounds[:-1], np.diff(bounds))
    return np.append(data[shifts + np.arange(bounds[-1])], np.uint8(0)), bounds


def write_model(path: Path, model: Model, word_counts: Sequence[int], label_counts: Sequence[int], epochs: int) -> None:
    """Write a softmax model, neither pruned nor quantised, as a ``.bin``; words and labels have descending counts."""
    words, rows, output = model.words, model.vectors.rows, model.vectors.output
    listed = [bytes(words.data[slice(*pair)]) for pair in pairwise(words.bounds.tolist())]
    entries = [*zip(listed, word_counts, strict=True)]
    entries += [(_LABEL_PREFIX + name.encode(), count) for name, count in zip(model.labels, label_counts, strict=True)]
    # Window, minimum count, negatives and the update interval of the rate are fastText's defaults.
    settings = [rows.shape[1], 5, epochs, 1, 5, words.word_ngrams, _SOFTMAX, _SUPERVISED, words.buckets]
    settings += [words.shortest, words.longest, 100]
    with whole_file(path) as beside, beside.open("wb") as file:
        file.write(np.array([_MAGIC, _VERSION, *settings], "<i4").tobytes() + np.array([1e-4], "<f8").tobytes())
        file.write(np.array([len(entries), len(listed), len(model.labels)], "<i4").tobytes())
        file.write(np.array([sum(word_counts), -1], "<i8").tobytes())
        for number, (word, count) in enumerate(entries):
            file.write(word + b"\0" + count.to_bytes(8, "little") + bytes([number >= len(listed)]))
        for vectors in (rows, output):
            file.write(b"\0" + np.array(vectors.shape, "<i8").tobytes())
            file.write(vectors.astype("<f4", copy=False).data)


def _read_vectors(reader: _Reader, *, quantised: bool) -> tuple[Floats, Floats]:
    has_norms = quantised and bool(reader.number("u1"))
    rows, dimensions = reader.array("<i8", 2).tolist()
    if not quantised:
        plain: Floats = reader.array("<f4", rows * dimensions).reshape(rows, dimensions)
        return plain, np.ones(rows, np.float32)
    codes = reader.array("u1", reader.number("<i4"))
    parts = _read_centroids(reader, dimensions)
    codes = codes.reshape(rows, len(parts))
    vectors = np.concatenate([part[codes[:, at]] for at, part in enumerate(parts)], axis=1)
    if not has_norms:
        return vectors, np.ones(rows, np.float32)
    norm_codes = reader.array("u1", rows)
    return vectors, _read_centroids(reader, 1)[0][norm_codes, 0]


def _read_centroids(reader: _Reader, dimensions: int) -> list[Floats]:
    """Return the centroids of a product quantiser, float32 [256, width] for each part of the dimensions."""
    known, parts, width, last = reader.array("<i4", 4).tolist()
    if known != dimensions or parts < 1 or width < 1 or last < 1 or (parts - 1) * width + last != dimensions:
        raise ValueError("the parts of its vectors do not add up")
    ends = [_CENTROIDS * width * part for part in range(1, parts)]
    split = np.split(reader.array("<f4", dimensions * _CENTROIDS), ends)
    return [each.reshape(_CENTROIDS, -1) for each in split]


def make_words(
    data: Bytes,
    bounds: npt.NDArray[np.int64],
    kept: Int32s | None,
    buckets: int,
    characters: tuple[int, int],
    word_ngrams: int,
) -> Words:
    """Build the dictionary of a model; ``kept``, int32 [kept, 2], are the buckets with a row, or None for all."""
    table = np.zeros(1 << (2 * len(bounds)).bit_length(), np.uint64)
    enter_words(data, bounds, table)
    bits = np.zeros(0 if kept is None else -(-buckets // 64) * 64, np.uint8)
    if kept is not None:
        bits[kept[:, 0]] = 1
    numbers = np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)
    before = (np.cumsum(bits) - bits)[::64].astype(np.int32)
    return Words(data, bounds, table, numbers, before, buckets, *characters, word_ngrams)


def _sort_rows(rows: Floats, kept: Int32s, word_count: int, buckets: int) -> Floats:
    numbers, places = kept[np.argsort(kept[:, 0])].T
    if len(kept) and (numbers[0] < 0 or numbers[-1] >= buckets or (np.diff(numbers) == 0).any()):
        raise ValueError("its buckets are not distinct")
    if len(kept) and (places.min() < 0 or places.max() >= len(rows) - word_count):
        raise ValueError("some of its words have no vectors")
    return np.concatenate([rows[:word_count], rows[word_count:][places]])


_NO_TREE = np.zeros((0, 2), np.int32), np.zeros(0, np.int32)


def _make_tree(counts: Sequence[int]) -> tuple[Int32s, Int32s]:
    """Return the children and the parent of each node of fastText's Huffman tree: labels first, the root last."""
    labels = len(counts)
    weights = [*counts, *[10**15] * (labels - 1)]
    children = np.full((2 * labels - 1, 2), -1, np.int32)
    label, node = labels - 1, labels
    for parent in range(labels, 2 * labels - 1):
        for side in range(2):
            if label >= 0 and weights[label] < weights[node]:
                children[parent, side], label = label, label - 1
            else:
                children[parent, side], node = node, node + 1
        if children[parent].max() >= parent:
            raise ValueError("the counts of its labels make no tree")
        weights[parent] = sum(weights[child] for child in children[parent])
    parents = np.full(2 * labels - 1, -1, np.int32)
    parents[children[labels:]] = np.arange(labels, 2 * labels - 1)[:, None]
    return children, parents


Hashes = npt.NDArray[np.uint64]
Memory = npt.NDArray[np.uint64]
"""A cache of words, uint64 [slots, 8]: a word's bytes (two), its size, number of rows and hash (one), its rows."""

LONGEST = 16  # bytes of the longest cached word
REMEMBERED = 10  # largest number of rows of a cached word
STRETCH = 512  # bytes of text that are split into words at a time
LANES = 16  # number of n-grams that are hashed side by side
_CUT_WORDS = STRETCH // 2 + 1 + WRITTEN  # words of a stretch, one from before it, and surplus ``write_places``

_U = np.uint64
_BEGIN, _LISTED = 60, 4096
_SLOTS, _LINE_BYTES = 1 << 17, 64
_SPREAD = _U(0x9E3779B97F4A7C15)
_LOW, _HIGH = (
    np.array([(1 << 8 * min(max(size - before, 0), 8)) - 1 for size in range(LONGEST + 1)], np.uint64)
    for before in (0, 8)
)  # masks by word size for the first and the last 8 of 16 bytes, which clear the bytes after the word


class Scratch(NamedTuple):
    """Buffers for one text at a time."""

    bracketed: Bytes  # a word between < and >
    listed: Int32s  # rows that have not been added yet
    hashes: Int32s  # hashes of all words of the text, if the model has word n-grams
    edges: Integers  # begin and end of the words of a stretch, int64 [2, words]
    keys: Hashes  # bytes and cache address of each of these words, uint64 [3, words]
    buckets: Int32s
    """Hashes (row 0) and buckets (by length) of 16 n-grams, int32 [characters of an n-gram + 1, 17]; a bit for each in
    the last column says whether its bucket has a row."""


def make_memory() -> Memory:
    """Return an empty word cache, aligned to cache lines."""
    numbers = _LINE_BYTES // 8
    room = np.zeros((_SLOTS + 1) * numbers, np.uint64)
    first = -room.ctypes.data % _LINE_BYTES // 8
    return room[first : first + _SLOTS * numbers].reshape(_SLOTS, numbers)


@allocating
def make_scratch(words: Words, offsets: Integers) -> Scratch:
    """Allocate buffers for the longest of the texts."""
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    hashes, ngrams = longest // 2 + 2 if words.word_ngrams > 1 else 0, max(words.longest, 0)
    return Scratch(
        np.full(longest + 2 + 2 * LANES + ngrams, _BEGIN, np.uint8),
        np.zeros(_LISTED, np.int32),
        np.zeros(hashes, np.int32),
        np.zeros((2, _CUT_WORDS), np.int64),
        np.zeros((3, _CUT_WORDS), np.uint64),
        np.zeros((ngrams + 1, LANES + 1), np.int32),
    )


@compiled
def cut_words(text: Bytes, at: int, edges: Integers, begun: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Write begin and end of the words of the stretch at ``at`` to ``edges``, int64 [2, _CUT_WORDS].

    ``begun`` is 1 if a word that began earlier, at the begin in ``edges``, continues. Return how many began and ended.
    """
    first, ended, within = np.int64(text.ctypes.data), _U(0), begun
    stop = min(at + STRETCH, len(text))
    while at < stop:
        letters = _U(0)
        if at + TESTED <= len(text):
            letters = ~(find_white(first + at) | find_byte(first + at, 0))
        else:
            for place in range(len(text) - at):
                letters |= _U(not _ends_word(text[at + place])) << _U(place)
        before = letters << _U(1) | within
        begun = write_places(letters & ~before, at, edges[0], begun)
        ended = write_places(before & ~letters, at, edges[1], ended)
        within = letters >> _U(63)
        at += TESTED
    if at >= len(text) and begun > ended:
        edges[1, ended] = len(text)
        ended += _U(1)
    return begun, ended


@forced_inline
def _ends_word(byte: np.uint8) -> bool:
    return byte == 32 or 9 <= byte <= 13 or byte == 0


@compiled
def find_places(text: Bytes, edges: Integers, count: int, memory: Memory, keys: Hashes) -> None:
    """Write the bytes (two numbers, 0 for more than 16) and the cache address of each word to ``keys``; prefetch it."""
    first, lines = np.int64(text.ctypes.data), np.int64(memory.ctypes.data)
    for word in range(count):
        start, size = edges[0, word], edges[1, word] - edges[0, word]
        low = high = _U(0)
        if size <= LONGEST and start + LONGEST <= len(text):
            low, high = eight_at(first + start) & _LOW[size], eight_at(first + start + 8) & _HIGH[size]
        elif size <= LONGEST:
            for place in range(size):
                byte = _U(text[start + place])
                low |= byte << _U(8 * place) if place < 8 else _U(0)
                high |= byte << _U(8 * (place - 8)) if place >= 8 else _U(0)
        slot = mixed((low + _U(size)) * _SPREAD ^ high) & (_SLOTS - 1)
        keys[0, word], keys[1, word], keys[2, word] = low, high, _U(lines + slot * _LINE_BYTES)
        prefetch(lines + slot * _LINE_BYTES)


@compiled
def remember(line: int, low: np.uint64, high: np.uint64, size: int, hashed: np.uint64, listed: Int32s) -> None:
    """Write a word and its rows to an address in the cache."""
    put_eight(line, low)
    put_eight(line + 8, high)
    put_eight(line + 16, _U(size) | _U(len(listed)) << _U(8) | hashed << _U(32))
    for pair in range(REMEMBERED // 2):
        rows = _U(0)
        for each in range(2 * pair, min(2 * pair + 2, len(listed))):
            rows |= _U(listed[each]) << _U(32 * (each - 2 * pair))
        put_eight(line + 24 + 8 * pair, rows)


_OFFSET, _PRIME, _32_BITS = _U(2166136261), _U(16777619), _U(0xFFFFFFFF)
_SIGN = _U(0xFFFFFF00)
_STOP = 62
_LABEL = np.frombuffer(b"__label__", np.uint8)
_END = np.frombuffer(b"</s>", np.uint8)
_PAIR = _U(116049371)
_FEW = 1 << 16
_OFFSET_32, _PRIME_32 = np.int32(2166136261 - (1 << 32)), np.uint32(16777619)


@forced_inline
def _hashed(value: np.uint64, byte: np.uint8) -> np.uint64:
    """Return fastText's hash (32-bit FNV-1a of signed bytes) after one more byte."""
    taken = _U(byte) | (_SIGN if byte >= 128 else _U(0))
    return ((value ^ taken) * _PRIME) & _32_BITS


@compiled
def _hash(data: Bytes, start: int, stop: int) -> np.uint64:
    value = _OFFSET
    for at in range(start, stop):
        value = _hashed(value, data[at])
    return value


@compiled
def _equal(data: Bytes, start: int, wanted: Bytes, first: int, size: int) -> bool:
    for at in range(size):  # noqa: SIM110  # numba has no generators
        if data[start + at] != wanted[first + at]:
            return False
    return True


@compiled
def read_entries(data: Bytes, at: int, places: Integers, counts: Integers, kinds: Bytes) -> int:
    """Read the entries of a model file from a byte on; return where they end, or -1 if the file ends before that."""
    for entry in range(len(kinds)):
        places[entry, 0] = at
        while at < len(data) and data[at] != 0:
            at += 1
        places[entry, 1] = at
        if at + 10 > len(data):
            return -1
        count = _U(0)
        for byte in range(8):
            count |= _U(data[at + 1 + byte]) << _U(8 * byte)
        counts[entry], kinds[entry] = np.int64(count), data[at + 9]
        at += 10
    return at


@compiled
def enter_words(data: Bytes, bounds: Integers, table: Hashes) -> None:
    """Insert words into an empty hash table."""
    mask = len(table) - 1
    for word in range(len(bounds) - 1):
        hashed = _hash(data, bounds[word], bounds[word + 1])
        place = np.int64(hashed) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = hashed << _U(32) | _U(word + 1)


@compiled
def _find(words: Words, data: Bytes, start: int, stop: int, hashed: np.uint64) -> int:
    mask = len(words.table) - 1
    place = np.int64(hashed) & mask
    while words.table[place] != 0:
        if words.table[place] >> _U(32) == hashed:
            word = np.int64(words.table[place] & _32_BITS) - 1
            first, size = words.bounds[word], words.bounds[word + 1] - words.bounds[word]
            if size == stop - start and _equal(data, start, words.data, first, size):
                return word
        place = (place + 1) & mask
    return -1


@compiled
def _spend(rows: Floats, listed: Int32s, count: int, vector: Floats, trains: bool) -> None:
    """Add the listed rows to a vector in their order, or, if ``trains``, add the vector to each of them."""
    if trains:
        for at in range(count):
            for place in range(len(vector)):
                rows[listed[at], place] += vector[place]
        return
    # Four rows at a time, which reads and writes the vector less often and gives the same sums.
    whole = count // 4 * 4
    for at in range(0, whole, 4):
        one, two, three, four = listed[at], listed[at + 1], listed[at + 2], listed[at + 3]
        for place in range(len(vector)):
            vector[place] = vector[place] + rows[one, place] + rows[two, place] + rows[three, place] + rows[four, place]
    for at in range(whole, count):
        for place in range(len(vector)):
            vector[place] += rows[listed[at], place]


@forced_inline
def _remainder(value: np.uint64, count: int, inverse: float) -> int:
    """Return ``value % count`` by a multiplication, since a division would take most of the time."""
    number = np.int64(value)
    left = number - np.int64(number * inverse) * count
    if left < 0:
        left += count
    elif left >= count:
        left -= count
    return left


@forced_inline
def _wide_remainder(value: np.uint64, count: int, inverse: float) -> int:
    """Return ``value % count`` for a 64-bit value; a small ``count`` takes a division, as rounding could exceed it."""
    if count < _FEW:
        return np.int64(value % _U(count))
    left = np.int64(value - _U(np.float64(value) * inverse) * _U(count))
    while left < 0:
        left += count
    while left >= count:
        left -= count
    return left


@forced_inline
def _row_of(words: Words, bucket: int) -> int:
    if len(words.kept):
        bits, place = words.kept[bucket >> 6], _U(bucket & 63)
        if bits >> place & _U(1) == 0:
            return -1
        bucket = words.before[bucket >> 6] + count_bits(bits & ((_U(1) << place) - _U(1)))
    return len(words.bounds) - 1 + bucket


@forced_inline
def _list_ngrams(words: Words, bracketed: Bytes, size: int, start: int, listed: Int32s, found: int) -> int:
    inverse = 1.0 / words.buckets
    value, at = _OFFSET, start
    for length in range(1, words.longest + 1):
        if at >= size:
            break
        value = _hashed(value, bracketed[at])
        at += 1
        while at < size and bracketed[at] & 0xC0 == 0x80:
            value = _hashed(value, bracketed[at])
            at += 1
        if length < words.shortest or (length == 1 and (start == 0 or at == size)):
            continue
        row = _row_of(words, _remainder(value, words.buckets, inverse))
        if row >= 0:
            listed[found] = row
            found += 1
    return found


@forced_inline
def _is_ascii(data: Bytes, size: int) -> bool:
    every = np.uint8(0)
    for at in range(size):
        every |= data[at]
    return every < 128


@compiled
def _list_ascii(words: Words, bracketed: Bytes, size: int, buckets: Int32s, listed: Int32s, found: int) -> int:
    """Append the rows of all n-grams of an ASCII word to ``listed``, 16 begins at a time; return their new number."""
    shortest = max(words.shortest, 1)
    for first in range(0, size, LANES):
        starts = _U(0)
        buckets[0, :] = _OFFSET_32
        for length in range(1, words.longest + 1):
            _hash_side_by_side(words, bracketed, first + length - 1, buckets[0], buckets[length])
            having = _U(0)
            if length >= shortest:
                having = _having_rows(words, buckets[length], size - length + 1 - first)
                if length == 1:  # a bracket alone is not an n-gram
                    having &= ~(_U(first == 0) | _U(1) << _U(min(size - 1 - first, LANES)))
            buckets[length, LANES] = np.int32(having)
            starts |= having
        while starts != _U(0):
            lane = lowest_bit(starts)
            starts &= starts - _U(1)
            for length in range(shortest, words.longest + 1):
                if buckets[length, LANES] >> lane & 1:
                    listed[found] = _row_of(words, np.int64(buckets[length, lane]))
                    found += 1
    return found


@compiled
def _hash_side_by_side(words: Words, bracketed: Bytes, at: int, hashes: Int32s, buckets: Int32s) -> None:
    count, inverse = np.int64(words.buckets), 1.0 / words.buckets
    behind = bracketed[at : at + LANES]
    for lane in range(LANES):
        value = np.uint32((np.uint32(hashes[lane]) ^ np.uint32(behind[lane])) * _PRIME_32)
        hashes[lane] = np.int32(value)
        left = np.int64(value) - np.int64(np.float64(value) * inverse) * count
        left += count if left < 0 else 0  # it is never negative, but LLVM's code is 1.1 times as fast with this
        buckets[lane] = np.int32(left - (count if left >= count else 0))


@compiled
def _having_rows(words: Words, buckets: Int32s, places: int) -> np.uint64:
    having = (_U(1) << _U(min(max(places, 0), LANES))) - _U(1)
    if len(words.kept) == 0 or having == _U(0):
        return having
    kept = _U(0)
    for lane in range(LANES):
        bucket = np.int64(buckets[lane])
        kept |= (words.kept[bucket >> 6] >> _U(bucket & 63) & _U(1)) << _U(lane)
    return having & kept


@compiled
def _list_word(
    words: Words, rows: Floats, scratch: Scratch, size: int, hashed: np.uint64, found: int, vector: Floats, trains: bool
) -> tuple[int, int]:
    """Append the rows of a word in brackets to ``listed``; return their number, and how many were spent for room."""
    bracketed, listed = scratch.bracketed, scratch.listed
    added = 0
    word = _find(words, bracketed, 1, size - 1, hashed)
    if word >= 0:
        listed[found] = word
        found += 1
    if found + size * words.longest <= len(listed) and _is_ascii(bracketed, size):
        return _list_ascii(words, bracketed, size, scratch.buckets, listed, found), 0
    for start in range(size):
        if bracketed[start] & 0xC0 == 0x80:
            continue
        if found + words.longest > len(listed):
            _spend(rows, listed, found, vector, trains)
            added += found
            found = 0
        found = _list_ngrams(words, bracketed, size, start, listed, found)
    return found, added


@compiled
def _add_word_ngrams(
    words: Words, rows: Floats, scratch: Scratch, count: int, found: int, vector: Floats, trains: bool
) -> int:
    """Add the listed rows and the rows of word n-grams, in order of their first word; return how many were added."""
    listed, hashes = scratch.listed, scratch.hashes
    added, inverse = 0, 1.0 / max(words.buckets, 1)
    for first in range(count):
        # fastText keeps signed 32-bit hashes, which are sign-extended to 64 bits.
        value = _U(np.int64(hashes[first]))
        for other in range(first + 1, min(first + words.word_ngrams, count)):
            value = value * _PAIR + _U(np.int64(hashes[other]))
            row = _row_of(words, _wide_remainder(value, words.buckets, inverse))
            if row < 0:
                continue
            if found == len(listed):
                _spend(rows, listed, found, vector, trains)
                added += found
                found = 0
            listed[found] = row
            found += 1
    _spend(rows, listed, found, vector, trains)
    return added + found


@compiled
def visit(  # noqa: C901, PLR0912, PLR0915  # inline, as a call with so many arrays costs more than reading a word
    words: Words, rows: Floats, text: Bytes, scratch: Scratch, memory: Memory, vector: Floats, stops: bool, trains: bool
) -> int:
    """Add the rows of a text to a vector, or, if ``trains``, add the vector to each of its rows; return their number.

    If ``stops``, a word ``</s>`` ends the text; otherwise it is skipped.
    """
    bracketed, listed, hashes, edges, keys, _ = scratch
    has_pairs, has_ngrams = words.word_ngrams > 1, words.longest > 0
    room = np.int64(listed.ctypes.data)
    found, added, tokens, at, begun = 0, 0, 0, 0, _U(0)
    while at < len(text):
        begun, ended = cut_words(text, at, edges, begun)
        at += STRETCH
        if has_ngrams:  # without n-grams a word has one row, and finding it costs no more than using the cache
            find_places(text, edges, np.int64(ended), memory, keys)
        for word in range(np.int64(ended)):
            if found + REMEMBERED > len(listed):
                _spend(rows, listed, found, vector, trains)
                added += found
                found = 0
            start, size = edges[0, word], edges[1, word] - edges[0, word]
            if has_ngrams:
                low, high, line = keys[0, word], keys[1, word], np.int64(keys[2, word])
                known = eight_at(line + 16)
                if eight_at(line) == low and eight_at(line + 8) == high and known & _U(0xFF) == _U(size):
                    for pair in range(REMEMBERED // 2):
                        put_eight(room + 4 * found + 8 * pair, eight_at(line + 24 + 8 * pair))
                    found += np.int64(known >> _U(8) & _U(0xFF))
                    if has_pairs:
                        hashes[tokens] = np.int32(known >> _U(32))
                        tokens += 1
                    continue
            if size >= len(_LABEL) and _equal(text, start, _LABEL, 0, len(_LABEL)):
                continue
            if size == len(_END) and _equal(text, start, _END, 0, len(_END)):
                if stops:
                    at = len(text)
                    break
                continue
            hashed, before, more = _hash(text, start, start + size), found, 0
            if has_ngrams:
                for place in range(size):
                    bracketed[1 + place] = text[start + place]
                bracketed[1 + size] = _STOP
                found, more = _list_word(words, rows, scratch, size + 2, hashed, found, vector, trains)
                added += more
                if size <= LONGEST and more == 0 and found - before <= REMEMBERED:
                    remember(line, low, high, size, hashed, listed[before:found])
            else:
                own = _find(words, text, start, start + size, hashed)
                if own >= 0:
                    listed[found] = own
                    found += 1
            if has_pairs:
                hashes[tokens] = np.int32(hashed)
                tokens += 1
        if begun > ended:
            edges[0, 0] = edges[0, ended]
        begun -= ended
    hashed = _hash(_END, 0, len(_END))
    end = _find(words, _END, 0, len(_END), hashed)
    if end >= 0:
        if found == len(listed):
            _spend(rows, listed, found, vector, trains)
            added += found
            found = 0
        listed[found] = end
        found += 1
    if has_pairs:
        hashes[tokens] = np.int32(hashed)
        tokens += 1
    return added + _add_word_ngrams(words, rows, scratch, tokens, found, vector, trains)


@compiled
def read_text(
    words: Words, rows: Floats, text: Bytes, scratch: Scratch, memory: Memory, hidden: Floats, stops: bool
) -> int:
    """Set ``hidden`` to the mean of the rows of a text and return the number of rows, see :func:`visit`."""
    hidden[:] = 0
    found = visit(words, rows, text, scratch, memory, hidden, stops, False)
    if found:
        hidden *= np.float32(1.0 / found)
    return found


_LOWEST = np.float32(math.log(1e-5))
_LARGEST, _STEPS = np.float32(8), np.float32(512)  # largest input and number of steps of fastText's table of sigmoids


@forced_inline
def _product(vectors: Vectors, row: int, hidden: Floats) -> np.float32:
    total = np.float32(0)
    for at in range(len(hidden)):
        total += vectors.output[row, at] * hidden[at]
    return total * vectors.scales[row]


@forced_inline
def _log(value: np.float32) -> np.float32:
    return np.float32(math.log(value + 1e-5))


@forced_inline
def _right(vectors: Vectors, node: int, labels: int, hidden: Floats) -> np.float32:
    product = _product(vectors, node - labels, hidden)
    return np.float32(1.0 / (np.float32(1) + np.float32(math.exp(-product))))


@compiled
def _best_of_tree(vectors: Vectors, hidden: Floats, nodes: Int32s, scores: Floats) -> tuple[int, np.float32]:
    """Return the best label and its probability, by a depth-first search that prunes branches with lower scores."""
    labels = (len(vectors.children) + 1) // 2
    best, best_score = -1, _LOWEST
    nodes[0], scores[0], waiting = 2 * labels - 2, 0, 1
    while waiting:
        waiting -= 1
        node, score = nodes[waiting], scores[waiting]
        if score < best_score:
            continue
        if vectors.children[node, 0] < 0:
            best, best_score = node, score
            continue
        right = _right(vectors, node, labels, hidden)
        nodes[waiting], scores[waiting] = vectors.children[node, 1], score + _log(right)
        nodes[waiting + 1] = vectors.children[node, 0]
        scores[waiting + 1] = score + _log(np.float32(1.0 - right))
        waiting += 2
    return best, np.float32(math.exp(best_score))


@compiled
def _one_of_tree(vectors: Vectors, hidden: Floats, label: int, nodes: Int32s) -> np.float32:
    """Return the probability of a label, or 0 if it is below 0.00001, since fastText does not list it then."""
    labels = (len(vectors.children) + 1) // 2
    nodes[0], depth = label, 1
    while nodes[depth - 1] != 2 * labels - 2:
        nodes[depth] = vectors.parents[nodes[depth - 1]]
        depth += 1
    score = np.float32(0)
    for place in range(depth - 1, 0, -1):
        node = nodes[place]
        if score < _LOWEST:
            return np.float32(0)
        right = _right(vectors, node, labels, hidden)
        is_right = vectors.children[node, 1] == nodes[place - 1]
        score += _log(right) if is_right else _log(np.float32(1.0 - right))
    return np.float32(0) if score < _LOWEST else np.float32(math.exp(score))


@forced_inline
def _sigmoid(value: np.float32) -> np.float32:
    if value < -_LARGEST:
        return np.float32(0)
    if value > _LARGEST:
        return np.float32(1)
    step = np.float32(np.int64((value + _LARGEST) * _STEPS / _LARGEST / np.float32(2)))
    rounded = step * np.float32(2) * _LARGEST / _STEPS - _LARGEST
    return np.float32(1.0 / (1.0 + np.float32(math.exp(-rounded))))


@compiled
def set_outputs(vectors: Vectors, hidden: Floats, scores: Floats) -> None:
    """Write the probability of each label to ``scores``: a softmax, or a sigmoid each."""
    labels, highest, total = len(vectors.output), np.float32(-np.inf), np.float32(0)
    for label in range(labels):
        scores[label] = _product(vectors, label, hidden)
        highest = max(highest, scores[label])
    if vectors.separate:
        for label in range(labels):
            scores[label] = _sigmoid(scores[label])
        return
    for label in range(labels):
        # In double precision, as fastText does here and nowhere else.
        scores[label] = np.float32(math.exp(np.float64(scores[label] - highest)))
        total += scores[label]
    for label in range(labels):
        scores[label] /= total


@forced_inline
def _shown(score: np.float32) -> np.float32:
    """Return a probability as fastText's ``predict`` does, which adds 0.00001 before it takes the logarithm."""
    return np.float32(math.exp(_log(score)))


@compiled
def _best_of_all(vectors: Vectors, hidden: Floats, scores: Floats) -> tuple[int, np.float32]:
    set_outputs(vectors, hidden, scores)
    best, highest = -1, np.float32(-np.inf)
    for label in range(len(vectors.output)):
        logarithm = _log(scores[label])
        if logarithm >= highest:
            best, highest = label, logarithm
    return best, np.float32(math.exp(highest))


@allocating
def classify(
    words: Words, vectors: Vectors, data: Bytes, offsets: Integers, memory: Memory, labels: Int32s, scores: Floats
) -> None:
    """Write the best label of each text to ``labels``, int32, -1 for none, and its probability to ``scores``, float32.

    Line ends count as spaces, and a word ``</s>`` is skipped.
    """
    hidden, scratch = np.zeros(vectors.rows.shape[1], np.float32), make_scratch(words, offsets)
    nodes = np.zeros(len(vectors.output) + 2, np.int32)
    waiting = np.zeros(len(vectors.output) + 2, np.float32)
    for text in range(len(offsets) - 1):
        read_text(words, vectors.rows, data[offsets[text] : offsets[text + 1]], scratch, memory, hidden, False)
        if len(vectors.children):
            labels[text], scores[text] = _best_of_tree(vectors, hidden, nodes, waiting)
        else:
            labels[text], scores[text] = _best_of_all(vectors, hidden, waiting)


@allocating
def score_labels(
    words: Words, vectors: Vectors, data: Bytes, offsets: Integers, memory: Memory, wanted: Int32s, scores: Floats
) -> None:
    """Write the probabilities of the wanted labels to ``scores``, float32 [texts, wanted]; NaN for texts without rows.

    The other arguments are those of :func:`classify`. A word ``</s>`` ends a text, as in fastText.
    """
    hidden, scratch = np.zeros(vectors.rows.shape[1], np.float32), make_scratch(words, offsets)
    nodes = np.zeros(len(vectors.output) + 2, np.int32)
    every = np.zeros(len(vectors.output) + 2, np.float32)
    for text in range(len(offsets) - 1):
        taken = data[offsets[text] : offsets[text + 1]]
        if not read_text(words, vectors.rows, taken, scratch, memory, hidden, True):
            scores[text, :] = np.nan
        elif len(vectors.children):
            for place in range(len(wanted)):
                scores[text, place] = _one_of_tree(vectors, hidden, wanted[place], nodes)
        else:
            set_outputs(vectors, hidden, every)
            for place in range(len(wanted)):
                scores[text, place] = _shown(every[wanted[place]])


@allocating
def train(
    words: Words,
    vectors: Vectors,
    data: Bytes,
    offsets: Integers,
    memory: Memory,
    order: Integers,
    labels: Int32s,
    rates: Floats,
) -> float:
    """Train on texts by fastText's gradients, and return the sum of their losses.

    ``order``, int64 [steps], is the text of each step, ``rates``, float32 [steps], its learning rate, and ``labels``,
    int32 [texts], the label of each text.
    """
    output, count = vectors.output, len(vectors.output)
    hidden, scratch = np.zeros(vectors.rows.shape[1], np.float32), make_scratch(words, offsets)
    gradient, scores = np.zeros_like(hidden), np.zeros(count, np.float32)
    loss = 0.0
    for step in range(len(order)):
        text, target = order[step], labels[order[step]]
        taken = data[offsets[text] : offsets[text + 1]]
        found = read_text(words, vectors.rows, taken, scratch, memory, hidden, True)
        if not found:
            continue
        set_outputs(vectors, hidden, scores)
        loss -= math.log(max(scores[target], 1e-38))
        gradient[:] = 0
        for label in range(count):
            wanted = np.float32(1) if label == target else np.float32(0)
            step_size = rates[step] * (wanted - scores[label])
            for place in range(len(hidden)):
                gradient[place] += output[label, place] * step_size
                output[label, place] += hidden[place] * step_size
        gradient *= np.float32(1.0 / found)
        visit(words, vectors.rows, taken, scratch, memory, gradient, True, True)
    return loss


@compiled
def set_first_rows(rows: Floats, seed: int) -> None:
    """Fill rows with random numbers between -1 / dimensions and 1 / dimensions, derived from position and seed."""
    dimensions = rows.shape[1]
    for row in range(len(rows)):
        for place in range(dimensions):
            number = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(row * dimensions + place)
            drawn = np.uint64(mixed(np.uint64(mixed(number * np.uint64(0xD1B54A32D192ED03))))) >> np.uint64(40)
            rows[row, place] = np.float32((np.float64(drawn) / 8388608.0 - 1.0) / dimensions)
