"""fastText's classifiers as arrays: what a model file of fastText holds, read for the kernels."""

import mmap
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.kernels.texts import read_only
from longcrawl.printable import quoted
from longcrawl.storage.files import reread_when_changed, whole_file

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]

_MAGIC, _VERSION = 793712314, 12
_SUPERVISED = 3
_TREE, _SAMPLED, _SOFTMAX, _SEPARATE = 1, 2, 3, 4
"""Losses: a tree of labels (hs), sigmoids (ns and ova), and softmax."""
_LABEL = b"__label__"
_CENTROIDS = 256
_ENTRY = 10
"""Bytes of an entry without its word: an end, a count and a kind."""
_LONGEST = 64
_MOST_BUCKETS = 10**8
"""More than any model has: characters or words of its n-grams, and buckets."""


class Words(NamedTuple):
    """The words that have vectors of their own, and where n-grams find theirs."""

    data: Bytes
    bounds: npt.NDArray[np.int64]
    """int64 [words + 1]: where in ``data`` each word starts."""
    table: npt.NDArray[np.uint64]
    """Open addressing by the hash of a word: the hash, and in the lower 32 bits its number + 1; 0 where there is none.

    A power of two of places.
    """
    kept: npt.NDArray[np.uint64]
    """A bit for each bucket, lowest first: whether it has a row. Empty where all have one."""
    before: Integers
    """How many buckets have a row before those of each number in ``kept``."""
    buckets: int
    shortest: int
    longest: int
    """Characters of the n-grams inside words."""
    word_ngrams: int
    """Words of the longest n-grams of words; 1 for none."""


class Entries(NamedTuple):
    """Words and labels of a file."""

    places: npt.NDArray[np.int64]
    """int64 [entries, 2]: where each begins and ends in the file."""
    counts: npt.NDArray[np.int64]
    """int64 [entries]: how often each was seen."""
    kinds: npt.NDArray[np.uint8]
    """uint8 [entries]: 1 for labels."""


class Vectors(NamedTuple):
    """What is added up over a text, and what the mean is compared with."""

    rows: Floats
    """float32 [words and buckets, dimensions]: words by number, then buckets by number, those that were kept."""
    output: Floats
    """float32 [labels, dimensions]: one for each label, or for each inner node of the tree."""
    scales: Floats
    """float32 [labels]: what a product with a row of ``output`` is multiplied by; 1 where that is not quantised."""
    children: Integers
    """int32 [2 * labels - 1, 2]: the nodes below each node of the tree, -1 for a label. Empty without a tree."""
    parents: Integers
    """int32 [2 * labels - 1]: the node above each. Empty without a tree."""
    separate: bool
    """Whether each label has a probability of its own, a sigmoid; else all make 1."""


class Model(NamedTuple):
    """A classifier, and its labels without their prefix."""

    labels: tuple[str, ...]
    words: Words
    vectors: Vectors
    memories: threading.local
    """What each thread remembers of words."""

    def memory(self) -> Any:
        """Return the memory of this thread, as threads run at the same time; a warm one is faster, and no different."""
        from longcrawl.text._fasttext_memory import make_memory

        if not hasattr(self.memories, "words"):
            self.memories.words = make_memory()
        return self.memories.words


@reread_when_changed(2)
def read_model(path: str) -> Model:
    """Read a ``.bin`` or ``.ftz`` that fastText wrote.

    Raises:
        StageError: there is no such file, it is not fastText's or damaged, or the model does not
            classify texts by their words and parts of words.
    """
    if Path(path).is_dir():
        raise StageError(f"{path} is a folder; give the path of the fastText model in it (.bin or .ftz)")
    if not Path(path).is_file():
        raise StageError(f"{path} does not exist; give the path of a fastText model (.bin or .ftz)")
    try:
        with Path(path).open("rb") as file:
            reader = _Reader(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), path)
            return _read_model(reader)
    except (OSError, ValueError, IndexError) as error:
        raise StageError(f"{path} cannot be read as a fastText model: {error}; get it again") from error


class _Reader:
    """Reads numbers and words of a file one after the other; what fastText writes is little endian."""

    def __init__(self, data: mmap.mmap, path: str) -> None:
        self.path = path
        self._data = data
        self._at = 0

    def array(self, kind: str, count: int) -> Any:
        """Return a copy, since numbers do not stand at multiples of their size."""
        size = np.dtype(kind).itemsize * count
        if count < 0 or self._at + size > len(self._data):
            raise ValueError("it ends too early")
        self._at += size
        return np.frombuffer(self._data, kind, count, self._at - size).copy() if count else np.zeros(0, kind)

    def check_end(self) -> None:
        """Refuse a file that goes on behind what belongs to it."""
        if self._at < len(self._data):
            raise ValueError(f"{len(self._data) - self._at:,} bytes follow its last vector")

    def number(self, kind: str) -> int:
        return int(self.array(kind, 1)[0])

    def entries(self, count: int) -> tuple[Bytes, Entries]:
        """Return the bytes of the file, and the next entries in it."""
        from longcrawl.text._fasttext_kernels import read_entries

        if count < 0 or self._at + _ENTRY * count > len(self._data):
            raise ValueError("it ends too early")
        data = read_only(np.frombuffer(self._data, np.uint8))
        found = Entries(np.empty((count, 2), np.int64), np.empty(count, np.int64), np.empty(count, np.uint8))
        self._at = read_entries(data, self._at, *found)
        if self._at < 0:
            raise ValueError("it ends too early")
        return data, found


def _read_model(reader: _Reader) -> Model:
    if reader.number("<i4") != _MAGIC:
        raise ValueError("it does not begin as one")
    if (version := reader.number("<i4")) != _VERSION:
        raise ValueError(f"its format has version {version}, this longcrawl reads {_VERSION}")
    word_ngrams, loss, kind, buckets, shortest, longest = reader.array("<i4", 12).tolist()[5:11]
    reader.array("<f8", 1)  # the sampling threshold, of interest in training alone
    if longest > _LONGEST or not (longest > 0) <= buckets <= _MOST_BUCKETS:
        raise ValueError(f"it has n-grams of {longest} characters in {buckets} buckets")
    if word_ngrams > _LONGEST or (word_ngrams > 1 and not buckets):
        raise ValueError(f"it has n-grams of {word_ngrams} words in {buckets} buckets")
    if kind != _SUPERVISED or loss not in (_TREE, _SAMPLED, _SOFTMAX, _SEPARATE):
        raise StageError(
            f"{reader.path} has word vectors, but no labels: take a model that fastText trained supervised"
        )
    data, entries, word_count, kept = _read_entries(reader)
    quantised = bool(reader.number("u1"))
    rows, norms = _read_vectors(reader, quantised=quantised)
    rows = rows * norms[:, None] if quantised else rows
    output, scales = _read_vectors(reader, quantised=bool(reader.number("u1")) and quantised)
    reader.check_end()
    if kept is not None:
        rows = _sort_rows(rows, kept, word_count, buckets)
    _check(rows, output, word_count, buckets if kept is None else len(kept), len(entries.counts) - word_count)
    words = make_words(
        *_joined(data, entries.places[:word_count]), kept, buckets, (shortest, longest), max(word_ngrams, 1)
    )
    labels = _read_labels(data, entries.places[word_count:])
    children, parents = _make_tree(entries.counts[word_count:].tolist()) if loss == _TREE else _NO_TREE
    vectors = Vectors(rows, output, scales, children, parents, loss in (_SAMPLED, _SEPARATE))
    return Model(labels, words, vectors, threading.local())


def _read_labels(data: Bytes, places: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """Return labels without their prefix."""
    try:
        labels = tuple(bytes(data[slice(*place)]).removeprefix(_LABEL).decode() for place in places.tolist())
    except UnicodeDecodeError as odd:
        raise ValueError("one of its labels is not UTF-8") from odd
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise ValueError(f"it has the label {quoted(twice[0])} more than once")
    return labels


def _joined(data: Bytes, places: npt.NDArray[np.int64]) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Return words one after the other, and where each begins and the last ends."""
    from longcrawl.text._fasttext_kernels import join_words

    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(places[:, 1] - places[:, 0])])
    joined = np.zeros(bounds[-1] + 1, np.uint8)
    join_words(data, places, bounds, joined)
    return joined, bounds


def write_model(path: Path, model: Model, word_counts: Sequence[int], label_counts: Sequence[int], epochs: int) -> None:
    """Write a ``.bin`` of a softmax that fastText reads, whole or not at all.

    Args:
        path: what lies there is replaced.
        model: whole, neither pruned nor quantised.
        word_counts: how often each word was seen.
        label_counts: how many texts have each label, the most frequent first.
        epochs: how often each text was seen.
    """
    words, rows, output = model.words, model.vectors.rows, model.vectors.output
    listed = [bytes(words.data[slice(*pair)]) for pair in pairwise(words.bounds.tolist())]
    entries = [*zip(listed, word_counts, strict=True)]
    entries += [(_LABEL + name.encode(), count) for name, count in zip(model.labels, label_counts, strict=True)]
    # As fastText's own defaults: window, least count, negatives, and how often its rate is updated.
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


def _read_entries(reader: _Reader) -> tuple[Bytes, Entries, int, Integers | None]:
    """Return the file, its words and then labels, how many are words, and int32 [kept, 2], buckets and their rows.

    The last is None where no bucket was pruned.
    """
    size, word_count, label_count = reader.array("<i4", 3).tolist()
    _, kept = reader.array("<i8", 2).tolist()  # the first are the tokens seen in training
    if word_count < 0 or label_count < 1 or word_count + label_count != size:
        raise ValueError("its words and labels do not add up")
    data, entries = reader.entries(size)
    if entries.kinds[:word_count].any() or not entries.kinds[word_count:].all():
        raise ValueError("a label stands among its words")
    return data, entries, word_count, reader.array("<i4", 2 * kept).reshape(-1, 2) if kept >= 0 else None


def _read_vectors(reader: _Reader, *, quantised: bool) -> tuple[Floats, Floats]:
    """Return float32 [rows, dimensions], decoded where they are codes of a product quantiser, and a norm of each."""
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
    """Return float32 [256, width] for each part of the dimensions."""
    known, parts, width, last = reader.array("<i4", 4).tolist()
    if known != dimensions or parts < 1 or width < 1 or last < 1 or (parts - 1) * width + last != dimensions:
        raise ValueError("the parts of its vectors do not add up")
    ends = [_CENTROIDS * width * part for part in range(1, parts)]
    split = np.split(reader.array("<f4", dimensions * _CENTROIDS), ends)
    return [each.reshape(_CENTROIDS, -1) for each in split]


def make_words(
    data: Bytes,
    bounds: npt.NDArray[np.int64],
    kept: Integers | None,
    buckets: int,
    characters: tuple[int, int],
    word_ngrams: int,
) -> Words:
    """Return words by number, with the shortest and the longest n-grams inside them."""
    from longcrawl.text._fasttext_kernels import enter_words

    table = np.zeros(1 << (2 * len(bounds)).bit_length(), np.uint64)
    enter_words(data, bounds, table)
    bits = np.zeros(0 if kept is None else -(-buckets // 64) * 64, np.uint8)
    if kept is not None:
        bits[kept[:, 0]] = 1
    numbers = np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)
    before = (np.cumsum(bits) - bits)[::64].astype(np.int32)
    return Words(data, bounds, table, numbers, before, buckets, *characters, word_ngrams)


def _sort_rows(rows: Floats, kept: Integers, word_count: int, buckets: int) -> Floats:
    """Put the rows of the buckets that were kept into the order of their numbers, so that a count finds them."""
    numbers, places = kept[np.argsort(kept[:, 0])].T
    if len(kept) and (numbers[0] < 0 or numbers[-1] >= buckets or (np.diff(numbers) == 0).any()):
        raise ValueError("its buckets are not distinct")
    if len(kept) and (places.min() < 0 or places.max() >= len(rows) - word_count):
        raise ValueError("some of its words have no vectors")
    return np.concatenate([rows[:word_count], rows[word_count:][places]])


_NO_TREE = np.zeros((0, 2), np.int32), np.zeros(0, np.int32)


def _make_tree(counts: Sequence[int]) -> tuple[Integers, Integers]:
    """Return the two nodes below each node of fastText's Huffman tree, and the one above.

    Labels come first, by falling count, the root last.
    """
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


def _check(rows: Floats, output: Floats, words: int, buckets: int, labels: int) -> None:
    """Refuse what would have a kernel read where nothing is."""
    if len(rows) < words + buckets:
        raise ValueError("some of its words have no vectors")
    if len(output) != labels or rows.shape[1] != output.shape[1]:
        raise ValueError("its vectors are not those of its labels")
