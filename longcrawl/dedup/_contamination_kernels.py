"""N-grams of many texts looked up in a filter of those of evaluation sets, as numba kernels.

An n-gram hashes as ``ngrams.py`` says, to all 64 bits.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.dedup import ngrams
from longcrawl.dedup._minhash_kernels import find_ends, mix
from longcrawl.dedup._normalize_kernels import BLANK
from longcrawl.kernels.compiling import compiled, forced_inline

Wide = npt.NDArray[np.uint64]

_U = np.uint64
_NGRAM_FACTOR = _U(ngrams.NGRAM_FACTOR)


@forced_inline
def _bits(key: np.uint64) -> np.uint64:
    """Return the two bits that a key sets in its word of the filter."""
    return _U(1) << (key & _U(63)) | _U(1) << (key >> _U(6) & _U(63))


@compiled
def fill_filter(keys: Wide, words: Wide, shift: int) -> None:
    """Enter keys into a filter, uint64 [a power of two]; the bits of a key from ``shift`` on name its word."""
    for at in range(len(keys)):
        words[keys[at] >> _U(shift)] |= _bits(keys[at])


@compiled
def find_ngrams(
    units: Wide, bounds: Any, n: int, words: Wide, shift: int, documents: Any, places: Any, keys: Wide
) -> int:
    """Write the n-grams that a filter has, or all where it has no words; return how many there are.

    Args:
        units: uint64 [units], hashes of words or tokens.
        bounds: int64 [documents + 1], where each document starts.
        n: units in an n-gram; a document of fewer has none.
        words: the filter, see :func:`fill_filter`.
        shift: of the filter.
        documents: int64 [units], written: the document of each n-gram.
        places: int64 [units], written: the unit of its document at which it starts.
        keys: uint64 [units], written: its hash.
    """
    found, leaving, every = np.int64(0), _U(1), len(words) == 0
    for _ in range(n):
        leaving *= _NGRAM_FACTOR
    for document in range(len(bounds) - 1):
        start, stop = bounds[document], bounds[document + 1]
        if stop - start < n:
            continue
        hashed = _U(0)
        for at in range(start, start + n):
            hashed = hashed * _NGRAM_FACTOR + units[at]
        for at in range(start, stop - n + 1):
            key = mix(hashed)
            bits = _bits(key)
            if every or words[key >> _U(shift)] & bits == bits:
                documents[found], places[found], keys[found] = document, at - start, key
                found += 1
            if at + n < stop:
                hashed = hashed * _NGRAM_FACTOR + units[at + n] - leaving * units[at]
    return found


@compiled
def convert_words(data: Any, offsets: Any, ends: Wide, rows: Any, spans: Any) -> None:
    """Replace spans of words of normal forms by their bytes.

    Args:
        data: uint8 [bytes], the normal forms.
        offsets: int64 [texts + 1], where each starts.
        ends: uint64 [bytes of the longest + 1], memory.
        rows: int64 [spans], the text of each span, in increasing order.
        spans: int64 [spans, 2], start and stop, written.
    """
    row = -1
    for span in range(len(spans)):
        if rows[span] != row:
            row = rows[span]
            find_ends(data, offsets[row], offsets[row + 1], ends, 0)
        first, stop = spans[span, 0], spans[span, 1]
        begin = offsets[row]
        if first > 0:
            begin = np.int64(ends[first - 1])
            begin += data[begin] == BLANK
        spans[span, 0] = begin - offsets[row]
        spans[span, 1] = np.int64(ends[stop - 1]) - offsets[row]
