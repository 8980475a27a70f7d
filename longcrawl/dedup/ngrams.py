"""What a document is compared by: the set of its n-grams, each a 32-bit number.

A unit is a word of the normal form or a token of it. Words stand between spaces; in scripts that are written without
spaces each character is a word. In numbers of 64 bits that wrap around, ``mix`` being MurmurHash3's finaliser:

* a token hashes to ``mix((id + 1) * 0x9E3779B97F4A7C15)``;
* a word hashes to ``mix(h ^ bytes)``, where ``h`` begins as 0xCBF29CE484222325 and takes in its UTF-8 eight bytes at a
  time, each group a little-endian number: ``h = (h ^ group) * 0xC2B2AE3D27D4EB4F``, then ``h ^= h >> 32``;
* an n-gram hashes to the upper 32 bits of ``mix(h)``, where ``h`` takes in its units one by one:
  ``h = h * 0x9FB21C651E98DF25 + unit``.

A document of fewer units than an n-gram has one n-gram, all of it; one without a unit has none.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.dedup.normalize import normal_bytes, normalize
from longcrawl.tokens.encoders import Encoder

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
WORD_SEED = 0xCBF29CE484222325
WORD_FACTOR = 0xC2B2AE3D27D4EB4F
NGRAM_FACTOR = 0x9FB21C651E98DF25
MIX_1 = 0xFF51AFD7ED558CCD
MIX_2 = 0xC4CEB9FE1A85EC53

WITHOUT_SPACES = (
    (0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),  # more kana
    (0x3400, 0x4DBF),  # Chinese characters, here and below
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),  # more Burmese
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),  # historic kana
    (0x20000, 0x3FFFF),
)
"""Ranges of code points whose characters are words by themselves."""

FIRST_WITHOUT_SPACES = 0xE0
"""No character of these ranges has a UTF-8 that begins with a smaller byte."""

_ALONE = "".join(f"{chr(first)}-{chr(last)}" for first, last in WITHOUT_SPACES)
_WORD = re.compile(f"[{_ALONE}]|[^ {_ALONE}]+")


def split_words(normal: str) -> list[str]:
    """Return the words of a normal form.

    >>> split_words("a tale of 双城记")
    ['a', 'tale', 'of', '双', '城', '记']
    """
    return _WORD.findall(normal)


def unique_ngrams(units: Sequence[str] | Sequence[int], n: int) -> list[tuple[str | int, ...]]:
    """Return every n-gram once, in the order in which they first come; all units where they are fewer than n.

    >>> unique_ngrams(["to", "be", "or", "not", "to", "be"], 2)
    [('to', 'be'), ('be', 'or'), ('or', 'not'), ('not', 'to')]
    """
    if not units:
        return []
    return list(dict.fromkeys(tuple(units[at : at + n]) for at in range(max(len(units) - n + 1, 1))))


def hash_units(texts: pa.Array, encoder: Encoder | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the hashes of the tokens of normal forms of large strings, or of their words where there is no encoder.

    Returns:
        uint64 [units], of all texts end to end, and int64 [texts + 1], where each text starts among them.
    """
    from longcrawl.dedup._minhash_kernels import hash_tokens, hash_words

    if encoder is not None:
        tokens, bounds = encoder.encode(normalize(texts))
        units = np.empty(len(tokens), np.uint64)
        hash_tokens(tokens, units)
        return units, bounds
    data, offsets = normal_bytes(pc.fill_null(texts, ""))
    units = np.empty(int(offsets[-1]) + 1, np.uint64)  # what is not written takes no memory
    bounds = np.empty(len(offsets), np.int64)
    hash_words(data, offsets, units, bounds)
    return units[: bounds[-1]], bounds


def ngram_hash(ngram: Sequence[str] | Sequence[int]) -> int:
    """Hash an n-gram of words or of token ids to 32 bits, as this module says: what a datasketch object takes.

    >>> from datasketch import MinHash
    >>> sketch = MinHash(num_perm=16, hashfunc=ngram_hash)
    >>> sketch.update(("to", "be", "or", "not", "to"))
    """
    hashed = 0
    for unit in ngram:
        hashed = (hashed * NGRAM_FACTOR + (_word(unit) if isinstance(unit, str) else _token(unit))) & MASK
    return _mix(hashed) >> 32


def _token(token: int) -> int:
    return _mix((token + 1) * GOLDEN & MASK)


def _word(word: str) -> int:
    data = word.encode()
    hashed = WORD_SEED
    for at in range(0, len(data), 8):
        hashed = (hashed ^ int.from_bytes(data[at : at + 8], "little")) * WORD_FACTOR & MASK
        hashed ^= hashed >> 32
    return _mix(hashed ^ len(data))


def _mix(number: int) -> int:
    number = (number ^ number >> 33) * MIX_1 & MASK
    number = (number ^ number >> 33) * MIX_2 & MASK
    return number ^ number >> 33
