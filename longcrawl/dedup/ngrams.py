"""N-grams of documents and their MinHash signatures, as kernels.

A unit is a word or a token of the normal form. Words are separated by spaces; in scripts that are written without
spaces each character is a word. The following are 64-bit numbers that wrap around, and ``mix`` is MurmurHash3's
finaliser:

* a token hashes to ``mix((id + 1) * 0x9E3779B97F4A7C15)``;
* a word hashes to ``mix(h ^ bytes)``, where ``bytes`` is its length. ``h`` begins as 0xCBF29CE484222325 and takes in
  its UTF-8 eight bytes at a time, each group a little-endian number: ``h = (h ^ group) * 0xC2B2AE3D27D4EB4F``, then
  ``h ^= h >> 32``;
* an n-gram hashes to the upper 32 bits of ``mix(h)``, where ``h`` takes in its units one by one:
  ``h = h * 0x9FB21C651E98DF25 + unit``.

A document with fewer units than an n-gram has one n-gram, all of it; one without a unit has none.

Signatures are those of datasketch's scheme "affine32": the hash of an n-gram is mixed once, then permuted by
``a * hash + b`` in 32 bits that wrap around, and the least value is kept.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.dedup.normalize import BLANK, normal_bytes, normalize
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.memory import eight_at, find_blanks, find_leads_of_three, lowest_bit
from longcrawl.kernels.texts import decode
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
    (0x3400, 0x4DBF),  # Chinese characters, as are 0x4E00, 0xF900 and 0x20000
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),  # more Burmese
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),  # historic kana
    (0x20000, 0x3FFFF),
)
"""Ranges of code points in which each character is a word."""

FIRST_WITHOUT_SPACES = 0xE0
"""Smallest first byte in UTF-8 of any character in these ranges."""

_ALONE = "".join(f"{chr(first)}-{chr(last)}" for first, last in WITHOUT_SPACES)
_WORD = re.compile(f"[{_ALONE}]|[^ {_ALONE}]+")


def split_words(normal: str) -> list[str]:
    """Return the words of a normal form.

    >>> split_words("a tale of 双城记")
    ['a', 'tale', 'of', '双', '城', '记']
    """
    return _WORD.findall(normal)


def unique_ngrams(units: Sequence[str] | Sequence[int], n: int) -> list[tuple[str | int, ...]]:
    """Return every n-gram once, in the order of first occurrence; if there are fewer than n units, one of all units.

    >>> unique_ngrams(["to", "be", "or", "not", "to", "be"], 2)
    [('to', 'be'), ('be', 'or'), ('or', 'not'), ('not', 'to')]
    """
    if not units:
        return []
    return list(dict.fromkeys(tuple(units[at : at + n]) for at in range(max(len(units) - n + 1, 1))))


def hash_units(texts: pa.Array, encoder: Encoder | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the hashes of the tokens or, without an encoder, the words in normal forms, and each text's offset."""
    if encoder is not None:
        tokens, bounds = encoder.encode(normalize(texts))
        units = np.empty(len(tokens), np.uint64)
        hash_tokens(tokens, units)
        return units, bounds
    data, offsets = normal_bytes(pc.fill_null(texts, ""))
    units = np.empty(int(offsets[-1]) + 1, np.uint64)  # untouched pages take no memory
    bounds = np.empty(len(offsets), np.int64)
    hash_words(data, offsets, units, bounds)
    return units[: bounds[-1]], bounds


def ngram_hash(ngram: Sequence[str] | Sequence[int]) -> int:
    """Hash an n-gram of words or token ids to 32 bits, for use as ``hashfunc`` of a datasketch object.

    >>> from datasketch import MinHash
    >>> sketch = MinHash(num_perm=16, hashfunc=ngram_hash)
    >>> sketch.update(("to", "be", "or", "not", "to"))
    """
    hashed = 0
    for unit in ngram:
        hashed_unit = _word(unit) if isinstance(unit, str) else _mix((unit + 1) * GOLDEN & MASK)
        hashed = (hashed * NGRAM_FACTOR + hashed_unit) & MASK
    return _mix(hashed) >> 32


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


Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]

_U = np.uint64
_ALL = _U(0xFFFFFFFFFFFFFFFF)
_W = np.uint32
_MIX_1, _MIX_2, _GOLDEN = _U(MIX_1), _U(MIX_2), _U(GOLDEN)
_WORD_SEED, _WORD_FACTOR, _NGRAM_FACTOR = _U(WORD_SEED), _U(WORD_FACTOR), _U(NGRAM_FACTOR)
_WITHOUT_SPACES = np.array(WITHOUT_SPACES, np.uint32)

NOTHING = _W(0xFFFFFFFF)

_LEAST_TABLE = 64
_PLACES_PER_NGRAM = 4
"""Hash table slots per n-gram; so many that few slots are taken, since a processor mispredicts collisions."""

AT_ONCE = 4
"""N-grams processed in one pass over all permutations, few enough to fit in registers."""


class Permutations(NamedTuple):
    """Factors, uint32 [permutations], odd, and addends of the permutations ``factor * hash + addend``."""

    factors: Words
    addends: Words


class Scratch(NamedTuple):
    """Memory for the longest document of a batch; ``hashes`` is padded to a multiple of ``AT_ONCE``."""

    table: Words
    hashes: Words
    signature: Words


def make_scratch(longest: int, permutations: int) -> Scratch:
    """Allocate memory for documents of up to ``longest`` units."""
    return Scratch(
        np.empty(max(1 << (_PLACES_PER_NGRAM * longest).bit_length(), _LEAST_TABLE), np.uint32),
        np.empty(longest + 1 + AT_ONCE, np.uint32),
        np.empty(permutations, np.uint32),
    )


@forced_inline
def mix(number: np.uint64) -> np.uint64:
    """Apply MurmurHash3's finaliser to a number."""
    number = (number ^ (number >> _U(33))) * _MIX_1
    number = (number ^ (number >> _U(33))) * _MIX_2
    return number ^ (number >> _U(33))


@forced_inline
def _mix_32(number: np.uint32) -> np.uint32:
    # A product of two uint32 is an uint64 to numba.
    number = _W((number ^ (number >> _W(16))) * _W(0x85EBCA6B))
    number = _W((number ^ (number >> _W(13))) * _W(0xC2B2AE35))
    return number ^ (number >> _W(16))


@compiled
def _stands_alone(data: Bytes, at: int) -> bool:
    point, _ = decode(data, at)
    for row in range(len(_WITHOUT_SPACES)):
        if point <= _WITHOUT_SPACES[row, 1]:
            return point >= _WITHOUT_SPACES[row, 0]
    return False


@forced_inline
def _hash_word(address: int, size: int) -> np.uint64:
    """Hash the word of ``size`` bytes at an address; eight bytes after it must be readable."""
    hashed, rest = _WORD_SEED, size
    while rest > 8:
        hashed = (hashed ^ eight_at(address)) * _WORD_FACTOR
        hashed ^= hashed >> _U(32)
        address += 8
        rest -= 8
    hashed = (hashed ^ (eight_at(address) & (_ALL >> _U(64 - 8 * rest)))) * _WORD_FACTOR
    hashed ^= hashed >> _U(32)
    return mix(hashed ^ _U(size))


@compiled
def _has_words_alone(data: Bytes, at: int, end: int) -> bool:
    place, last, found = np.int64(data.ctypes.data) + at, np.int64(data.ctypes.data) + end, _U(0)
    while last - place >= 64:
        found |= find_leads_of_three(place)
        place += 64
    for byte in data[end - (last - place) : end]:
        found |= _U(byte >= FIRST_WITHOUT_SPACES)
    return found != _U(0)


@compiled
def find_ends(data: Bytes, at: int, end: int, ends: Wide, count: int) -> int:
    """Write the end of each word of a normal form to ``ends`` from ``count`` on; return the new count.

    Without a branch, since processors mispredict ends of words more than anything else.
    """
    if _has_words_alone(data, at, end):
        return _find_ends_alone(data, at, end, ends, count)
    place, number = _U(at), _U(count)
    while place < _U(end):
        ends[number] = place
        number += _U(data[place] == BLANK)
        place += _U(1)
    ends[number] = end
    return np.int64(number) + (end > at)


@compiled
def _find_ends_alone(data: Bytes, at: int, end: int, ends: Wide, count: int) -> int:
    start = at
    while at < end:
        first = data[at]
        alone = first >= FIRST_WITHOUT_SPACES and _stands_alone(data, at)
        if at > start and (alone or first == BLANK):
            ends[count] = at
            count += 1
            start = at
        if alone:
            at += 3 + (first >= 0xF0)
            ends[count] = at
            count += 1
            start = at
        else:
            at += 1
        if first == BLANK:
            start = at
    ends[count] = end
    return count + (end > start)


@compiled
def hash_words(data: Bytes, offsets: Any, units: Wide, bounds: Any) -> None:
    """Hash the words of normal forms, with 64 bytes after the last; ``bounds`` gets those of each document."""
    count, address = np.int64(0), np.int64(data.ctypes.data)
    bounds[0] = 0
    for document in range(len(offsets) - 1):
        first, at, end = count, offsets[document], offsets[document + 1]
        if _has_words_alone(data, at, end):
            count = _find_ends_alone(data, at, end, units, count)
            for word in range(first, count):
                stop = np.int64(units[word])
                units[word] = _hash_word(address + at, stop - at)
                at = stop + (data[stop] == BLANK)
        else:
            count = _hash_words_between_blanks(address + at, address + end, units, count)
        bounds[document + 1] = count


@compiled
def _hash_words_between_blanks(at: int, end: int, units: Wide, count: int) -> int:
    number, start = _U(count), at
    while at < end:
        blanks = find_blanks(at)
        if end - at < 64:
            blanks &= (_U(1) << _U(end - at)) - _U(1)
        while blanks != _U(0):
            stop = at + lowest_bit(blanks)
            units[number] = _hash_word(start, stop - start)
            number += _U(1)
            start = stop + 1
            blanks &= blanks - _U(1)
        at += 64
    if end > start:
        units[number] = _hash_word(start, end - start)
        number += _U(1)
    return np.int64(number)


@compiled
def hash_tokens(tokens: Any, units: Wide) -> None:
    """Hash token ids: uint16 or uint32 [tokens] to uint64 [tokens]."""
    for at in range(len(tokens)):
        units[at] = mix((_U(tokens[at]) + _U(1)) * _GOLDEN)


@compiled
def _unique_ngrams(units: Wide, start: int, stop: int, n: int, scratch: Scratch) -> tuple[int, np.uint64]:
    """Write the hashes of a document's unique n-grams; return their number and all 64 bits of the first."""
    n = min(n, stop - start)
    if n == 0:
        return 0, _U(0)
    places = _LEAST_TABLE
    while places < _PLACES_PER_NGRAM * (stop - start - n + 1):
        places *= 2
    scratch.table[:places] = 0
    mask, one = _U(places - 1), _U(1)
    hashed, leaving = _U(0), one
    for at in range(start, start + n):
        hashed = hashed * _NGRAM_FACTOR + units[at]
        leaving *= _NGRAM_FACTOR
    first, found, had_zero, table, hashes = mix(hashed), 0, False, scratch.table, scratch.hashes
    for at in range(start + n, stop + 1):
        short = _W(mix(hashed) >> _U(32))
        place = _U(short) & mask
        while table[place] != 0 and table[place] != short:
            place = (place + one) & mask
        hashes[found] = short
        found += table[place] == 0
        table[place] = short
        if short == 0:  # 0 marks an empty slot, so it is remembered by ``had_zero``
            found -= had_zero
            had_zero = True
        if at < stop:
            hashed = hashed * _NGRAM_FACTOR + units[at] - leaving * units[at - n]
    return found, first


@compiled
def _sort(numbers: Words, count: int, spare: Words, places: Any) -> None:
    """Sort ``numbers[:count]`` by radix sort: numba's own sort takes 0.9 s to compile."""
    for shift in range(0, 32, 8):
        places[:] = 0
        for at in range(count):
            places[numbers[at] >> shift & 0xFF] += 1
        place = np.int64(0)
        for byte in range(256):
            same = places[byte]
            places[byte] = place
            place += same
        for at in range(count):
            byte = numbers[at] >> shift & 0xFF
            spare[places[byte]] = numbers[at]
            places[byte] += 1
        numbers, spare = spare, numbers


@compiled
def _sign(hashes: Words, count: int, permutations: Permutations, signature: Words) -> None:
    """Write the signature of ``hashes[:count]``, all 0xFFFFFFFF for none; ``hashes`` is overwritten."""
    factors, addends = permutations.factors, permutations.addends
    signature[:] = NOTHING
    if count == 0:
        return
    for at in range(count):
        hashes[at] = _mix_32(hashes[at])
    for at in range(count, count + AT_ONCE):
        hashes[at] = hashes[count - 1]  # repeating a number does not change the minimum
    for at in range(0, count, AT_ONCE):
        one, two, three, four = hashes[at], hashes[at + 1], hashes[at + 2], hashes[at + 3]
        for each in range(len(factors)):
            factor, addend = factors[each], addends[each]
            left = min(_W(factor * one + addend), _W(factor * two + addend))
            right = min(_W(factor * three + addend), _W(factor * four + addend))
            signature[each] = min(signature[each], left, right)


@allocating
def sign_all(units: Wide, bounds: Any, n: int, permutations: Permutations, scratch: Scratch, signatures: Words) -> None:
    """Write the signature of every document: uint32 [documents, permutations]; see :func:`sketch`."""
    for document in range(len(bounds) - 1):
        count, _ = _unique_ngrams(units, bounds[document], bounds[document + 1], n, scratch)
        _sign(scratch.hashes, count, permutations, signatures[document])


@compiled
def _write_band_keys(signature: Any, rows: int, keys: Wide) -> None:
    for band in range(len(keys)):
        key = _U(band + 1) * _GOLDEN
        for at in range(band * rows, (band + 1) * rows):
            key = (key ^ _U(signature[at])) * _MIX_1
            key ^= key >> _U(32)
        keys[band] = mix(key)


@allocating
def sketch(
    units: Wide,
    bounds: Any,
    n: int,
    rows: int,
    permutations: Permutations,
    scratch: Scratch,
    counts: Any,
    keys: Wide,
    samples: Bytes,
    kept: Words,
    kept_bounds: Any,
) -> None:
    """Compute number of n-grams, band keys, sample and, if wanted, n-grams of every document.

    Without n-grams, ``keys`` are 0. ``samples`` are the low bytes of the first hash values. ``kept``, unless empty,
    gets the sorted hashes of the unique n-grams, with ``kept_bounds``.
    """
    kept_bounds[0] = 0
    places = np.empty(256, np.int64)
    for document in range(len(bounds) - 1):
        count, first = _unique_ngrams(units, bounds[document], bounds[document + 1], n, scratch)
        counts[document] = count
        end = kept_bounds[document]
        if len(kept) > 0:
            _sort(scratch.hashes, count, scratch.table, places)
            for at in range(count):
                kept[end + at] = scratch.hashes[at]
            end += count
        kept_bounds[document + 1] = end
        _sign(scratch.hashes, count, permutations, scratch.signature)
        for at in range(samples.shape[1]):
            samples[document, at] = scratch.signature[at] & 0xFF
        if count > 1:
            _write_band_keys(scratch.signature, rows, keys[document])
        else:
            # Two of 65,536 documents with one n-gram each share its 32 bits by chance: all 64 are compared instead.
            for band in range(keys.shape[1]):
                keys[document, band] = mix(first + _U(band) * _GOLDEN) if count == 1 else _U(0)


@compiled
def hash_bands(values: Bytes, width: int, keys: Wide) -> None:
    """Write the band keys of published signatures, uint8 [documents, bands * width]."""
    for document in range(len(values)):
        _write_band_keys(values[document], width, keys[document])
