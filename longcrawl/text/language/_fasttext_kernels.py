"""What fastText's classifiers compute, on the bytes of many texts at once and without the interpreter lock.

Sums are taken in fastText's order and in its precision, so that scores are equal in every bit.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, inlined
from longcrawl.kernels.lookup import mixed
from longcrawl.text.language._fasttext_model import Vectors, Words

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_U = np.uint64
_OFFSET, _PRIME, _32_BITS = _U(2166136261), _U(16777619), _U(0xFFFFFFFF)
_SIGN = _U(0xFFFFFF00)
_SPREAD = _U(0x9E3779B97F4A7C15)
_SPACES = np.isin(np.arange(256), [0, 9, 10, 11, 12, 13, 32])
_BEGIN, _STOP = 60, 62
_LABEL = np.frombuffer(b"__label__", np.uint8)
_END = np.frombuffer(b"</s>", np.uint8)
_LOWEST = np.float32(math.log(1e-5))
_SLOTS, _REMEMBERED = 1 << 16, 14
_LISTED = 4096


class Memory(NamedTuple):
    """The rows of words of up to 16 bytes that were met before; a later word of the same slot replaces one."""

    keys: npt.NDArray[np.uint64]
    """uint64 [slots, 2]: the bytes of a word."""
    words: Numbers
    """int32 [slots, 16]: bytes, rows, and the rows themselves."""


def make_memory() -> Memory:
    """Return a memory of nothing."""
    return Memory(np.zeros((_SLOTS, 2), np.uint64), np.zeros((_SLOTS, 2 + _REMEMBERED), np.int32))


@inlined
def _hashed(value: np.uint64, byte: np.uint8) -> np.uint64:
    """Take one more byte into fastText's hash: FNV-1a of 32 bits, of bytes with a sign."""
    taken = _U(byte) | (_SIGN if byte >= 128 else _U(0))
    return ((value ^ taken) * _PRIME) & _32_BITS


@compiled
def _hash(data: Bytes, start: int, stop: int) -> np.int64:
    value = _OFFSET
    for at in range(start, stop):
        value = _hashed(value, data[at])
    return np.int64(value)


@compiled
def _equal(data: Bytes, start: int, wanted: Bytes, first: int, size: int) -> bool:
    for at in range(size):  # noqa: SIM110  # numba has no generators
        if data[start + at] != wanted[first + at]:
            return False
    return True


@compiled
def enter_words(data: Bytes, bounds: Integers, table: Numbers) -> None:
    """Enter words into a table of zeros."""
    mask = len(table) - 1
    for word in range(len(bounds) - 1):
        place = _hash(data, bounds[word], bounds[word + 1]) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = word + 1


@compiled
def _find(words: Words, data: Bytes, start: int, stop: int) -> int:
    """Return the number of the word ``data[start:stop]``, -1 where it has none."""
    mask = len(words.table) - 1
    place = _hash(data, start, stop) & mask
    while words.table[place] != 0:
        word = words.table[place] - 1
        first, size = words.bounds[word], words.bounds[word + 1] - words.bounds[word]
        if size == stop - start and _equal(data, start, words.data, first, size):
            return word
        place = (place + 1) & mask
    return -1


@inlined
def _add(hidden: Floats, rows: Floats, row: int) -> None:
    for at in range(len(hidden)):
        hidden[at] += rows[row, at]


@compiled
def _add_all(hidden: Floats, rows: Floats, listed: Numbers, count: int) -> None:
    for at in range(count):
        _add(hidden, rows, listed[at])


@inlined
def _remainder(value: np.uint64, count: int, inverse: float) -> int:
    """Return ``value % count`` by way of a product, since a division costs more than all the rest."""
    number = np.int64(value)
    left = number - np.int64(number * inverse) * count
    if left < 0:
        left += count
    elif left >= count:
        left -= count
    return left


@inlined
def _count_bits(bits: np.uint64) -> np.int64:
    bits -= bits >> _U(1) & _U(0x5555555555555555)
    bits = (bits & _U(0x3333333333333333)) + (bits >> _U(2) & _U(0x3333333333333333))
    bits = bits + (bits >> _U(4)) & _U(0x0F0F0F0F0F0F0F0F)
    return np.int64(bits * _U(0x0101010101010101) >> _U(56))


@inlined
def _list_ngrams(words: Words, bracketed: Bytes, size: int, start: int, listed: Numbers, found: int) -> int:
    """List the rows of the n-grams that begin at a byte behind those found; return how many there are then."""
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
        bucket = _remainder(value, words.buckets, inverse)
        if len(words.kept):
            bits, place = words.kept[bucket >> 6], _U(bucket & 63)
            if bits >> place & _U(1) == 0:
                continue
            bucket = words.before[bucket >> 6] + _count_bits(bits & ((_U(1) << place) - _U(1)))
        listed[found] = len(words.bounds) - 1 + bucket
        found += 1
    return found


@compiled
def _add_word(
    words: Words, rows: Floats, bracketed: Bytes, size: int, listed: Numbers, hidden: Floats
) -> tuple[int, int]:
    """Add the rows of a word, which stands between < and >: its own, then those of its n-grams.

    Return how many there were, and how many of them, the last ones, are listed: all but those of a giant word.
    """
    inside = size - 2
    if inside >= len(_LABEL) and _equal(bracketed, 1, _LABEL, 0, len(_LABEL)):
        return 0, 0
    if inside == len(_END) and _equal(bracketed, 1, _END, 0, len(_END)):
        return 0, 0
    added, found = 0, 0
    word = _find(words, bracketed, 1, size - 1)
    if word >= 0:
        listed[0] = word
        found = 1
    for start in range(size if words.longest > 0 else 0):
        if bracketed[start] & 0xC0 == 0x80:
            continue
        if found + words.longest > len(listed):
            _add_all(hidden, rows, listed, found)
            added += found
            found = 0
        found = _list_ngrams(words, bracketed, size, start, listed, found)
    _add_all(hidden, rows, listed, found)
    return added + found, found


@compiled
def _remember(
    memory: Memory, slot: int, low: np.uint64, high: np.uint64, size: int, listed: Numbers, count: int
) -> None:
    memory.keys[slot, 0], memory.keys[slot, 1] = low, high
    memory.words[slot, 0], memory.words[slot, 1] = size, count
    for at in range(count):
        memory.words[slot, 2 + at] = listed[at]


@compiled
def _read_text(
    words: Words, rows: Floats, text: Bytes, bracketed: Bytes, listed: Numbers, memory: Memory, hidden: Floats
) -> None:
    """Set ``hidden`` to the mean of the vectors of a text: of its words, their n-grams, and the end of the line."""
    hidden[:] = 0
    found, at = 0, 0
    while at < len(text):
        if _SPACES[text[at]]:
            at += 1
            continue
        first, low, high = at, _U(0), _U(0)
        while at < len(text) and not _SPACES[text[at]]:
            low, high = (low << _U(8)) | _U(text[at]), (high << _U(8)) | (low >> _U(56))
            at += 1
        size = at - first
        slot = mixed((low + _U(size)) * _SPREAD ^ high) & (_SLOTS - 1)
        if memory.words[slot, 0] == size and memory.keys[slot, 0] == low and memory.keys[slot, 1] == high:
            count = memory.words[slot, 1]
            for each in range(count):
                _add(hidden, rows, memory.words[slot, 2 + each])
            found += count
            continue
        for place in range(size):
            bracketed[1 + place] = text[first + place]
        bracketed[1 + size] = _STOP
        count, in_list = _add_word(words, rows, bracketed, size + 2, listed, hidden)
        found += count
        if size <= 16 and count == in_list and count <= _REMEMBERED:
            _remember(memory, slot, low, high, size, listed, count)
    end = _find(words, _END, 0, len(_END))
    if end >= 0:
        _add(hidden, rows, end)
        found += 1
    if found:
        hidden *= np.float32(1.0 / found)


@inlined
def _product(output: Floats, row: int, hidden: Floats) -> np.float32:
    total = np.float32(0)
    for at in range(len(hidden)):
        total += output[row, at] * hidden[at]
    return total


@inlined
def _log(value: np.float32) -> np.float32:
    return np.float32(math.log(value + 1e-5))


@compiled
def _best_of_tree(vectors: Vectors, hidden: Floats, nodes: Numbers, scores: Floats) -> tuple[int, np.float32]:
    """Walk down the tree, left first, past everything that cannot be better than what was found."""
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
        product = _product(vectors.output, node - labels, hidden)
        right = np.float32(1.0 / (np.float32(1) + np.float32(math.exp(-product))))
        nodes[waiting], scores[waiting] = vectors.children[node, 1], score + _log(right)
        nodes[waiting + 1] = vectors.children[node, 0]
        scores[waiting + 1] = score + _log(np.float32(1.0 - right))
        waiting += 2
    return best, np.float32(math.exp(best_score))


@compiled
def _best_of_all(vectors: Vectors, hidden: Floats, scores: Floats) -> tuple[int, np.float32]:
    labels = len(vectors.output)
    highest = np.float32(-np.inf)
    for label in range(labels):
        scores[label] = _product(vectors.output, label, hidden)
        highest = max(highest, scores[label])
    total = np.float32(0)
    for label in range(labels):
        scores[label] = np.float32(math.exp(scores[label] - highest))
        total += scores[label]
    best = np.argmax(scores[:labels])
    return best, np.float32(math.exp(_log(scores[best] / total)))


@allocating
def classify(
    words: Words, vectors: Vectors, data: Bytes, offsets: Integers, memory: Memory, labels: Numbers, scores: Floats
) -> None:
    """Write the best label of every text, int32, -1 where none has a score, and its probability, float32.

    ``words``, ``vectors`` and ``memory`` are of one model; what is in the memory makes no difference but to speed. Each
    line end counts as a space, and a word ``</s>`` as none.
    """
    hidden = np.zeros(vectors.rows.shape[1], np.float32)
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    bracketed = np.full(longest + 2, _BEGIN, np.uint8)
    listed = np.zeros(_LISTED, np.int32)
    nodes = np.zeros(len(vectors.output) + 2, np.int32)
    waiting = np.zeros(len(vectors.output) + 2, np.float32)
    for text in range(len(offsets) - 1):
        _read_text(words, vectors.rows, data[offsets[text] : offsets[text + 1]], bracketed, listed, memory, hidden)
        if len(vectors.children):
            labels[text], scores[text] = _best_of_tree(vectors, hidden, nodes, waiting)
        else:
            labels[text], scores[text] = _best_of_all(vectors, hidden, waiting)
