"""What fastText's classifiers see of a text, and the sum of it: words, n-grams inside them, and n-grams of words.

Rows are added in fastText's order and precision, and without the interpreter lock.
"""

# numba takes arguments by position alone:
# ruff: noqa: FBT001
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.memory import eight_at, lowest_bit, put_eight
from longcrawl.text._fasttext_memory import (
    LANES,
    LONGEST,
    REMEMBERED,
    STRETCH,
    Memory,
    Scratch,
    cut_words,
    find_places,
    remember,
)
from longcrawl.text._fasttext_model import Words

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.uint64]

_U = np.uint64
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
    """Take one more byte into fastText's hash: FNV-1a of 32 bits, of bytes with a sign."""
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
    """Read entries of a model file from a byte on: words that end at a zero, counts of 8 bytes, and kinds.

    Return where they end, -1 where the file ends before.
    """
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
def join_words(data: Bytes, places: Integers, bounds: Integers, joined: Bytes) -> None:
    """Copy words to where each is to begin."""
    for word in range(len(places)):
        for at in range(places[word, 1] - places[word, 0]):
            joined[bounds[word] + at] = data[places[word, 0] + at]


@compiled
def enter_words(data: Bytes, bounds: Integers, table: Hashes) -> None:
    """Enter words into a table of zeros."""
    mask = len(table) - 1
    for word in range(len(bounds) - 1):
        hashed = _hash(data, bounds[word], bounds[word + 1])
        place = np.int64(hashed) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = hashed << _U(32) | _U(word + 1)


@compiled
def _find(words: Words, data: Bytes, start: int, stop: int, hashed: np.uint64) -> int:
    """Return the number of the word ``data[start:stop]``, -1 where it has none."""
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
def _spend(rows: Floats, listed: Numbers, count: int, vector: Floats, trains: bool) -> None:
    """Add the listed rows to a vector, in their order; or, where it trains, the vector to each of them.

    Four at a time, as the vector need not be read and written for each; sums are the same.
    """
    if trains:
        for at in range(count):
            for place in range(len(vector)):
                rows[listed[at], place] += vector[place]
        return
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
    """Return ``value % count`` by way of a product, since a division costs more than all the rest."""
    number = np.int64(value)
    left = number - np.int64(number * inverse) * count
    if left < 0:
        left += count
    elif left >= count:
        left -= count
    return left


@forced_inline
def _wide_remainder(value: np.uint64, count: int, inverse: float) -> int:
    """Return as much for a value of 64 bits; products of few buckets may round by more than they are."""
    if count < _FEW:
        return np.int64(value % _U(count))
    left = np.int64(value - _U(np.float64(value) * inverse) * _U(count))
    while left < 0:
        left += count
    while left >= count:
        left -= count
    return left


@forced_inline
def _count_bits(bits: np.uint64) -> np.int64:
    bits -= bits >> _U(1) & _U(0x5555555555555555)
    bits = (bits & _U(0x3333333333333333)) + (bits >> _U(2) & _U(0x3333333333333333))
    bits = bits + (bits >> _U(4)) & _U(0x0F0F0F0F0F0F0F0F)
    return np.int64(bits * _U(0x0101010101010101) >> _U(56))


@forced_inline
def _row_of(words: Words, bucket: int) -> int:
    """Return the row of a bucket, -1 where it was pruned."""
    if len(words.kept):
        bits, place = words.kept[bucket >> 6], _U(bucket & 63)
        if bits >> place & _U(1) == 0:
            return -1
        bucket = words.before[bucket >> 6] + _count_bits(bits & ((_U(1) << place) - _U(1)))
    return len(words.bounds) - 1 + bucket


@forced_inline
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
def _list_ascii(words: Words, bracketed: Bytes, size: int, buckets: Numbers, listed: Numbers, found: int) -> int:
    """List the rows of all n-grams of a word in ASCII behind those found; return how many there are then.

    Those that begin at 16 bytes in a row are hashed side by side; of those that go beyond the word nothing is kept.
    """
    shortest = max(words.shortest, 1)
    for first in range(0, size, LANES):
        starts = _U(0)
        buckets[0, :] = _OFFSET_32
        for length in range(1, words.longest + 1):
            _hash_side_by_side(words, bracketed, first + length - 1, buckets[0], buckets[length])
            having = _U(0)
            if length >= shortest:
                having = _having_rows(words, buckets[length], size - length + 1 - first)
                if length == 1:  # the brackets alone are none
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
def _hash_side_by_side(words: Words, bracketed: Bytes, at: int, hashes: Numbers, buckets: Numbers) -> None:
    """Take 16 bytes from a place on into a hash each, and write the buckets of these."""
    count, inverse = np.int64(words.buckets), 1.0 / words.buckets
    behind = bracketed[at : at + LANES]
    for lane in range(LANES):
        value = np.uint32((np.uint32(hashes[lane]) ^ np.uint32(behind[lane])) * _PRIME_32)
        hashes[lane] = np.int32(value)
        left = np.int64(value) - np.int64(np.float64(value) * inverse) * count
        left += count if left < 0 else 0  # it never is, but the code that LLVM makes is 1.1 times as fast with this
        buckets[lane] = np.int32(left - (count if left >= count else 0))


@compiled
def _having_rows(words: Words, buckets: Numbers, places: int) -> np.uint64:
    """Return a bit for each of the first buckets, of 16 at most, that has a row."""
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
    """List the rows of a word, which stands between < and >: its own, then those of its n-grams.

    Return how many are listed then, and how many were added meanwhile, as there was no more room.
    """
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
    """Add what is listed and the rows of the n-grams of words: all that begin at the first word, then at the next.

    Return how many there were.
    """
    listed, hashes = scratch.listed, scratch.hashes
    added, inverse = 0, 1.0 / max(words.buckets, 1)
    for first in range(count):
        # fastText keeps hashes of 32 bits with a sign, which is spread over all 64.
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
def visit(  # noqa: C901, PLR0912, PLR0915  # words are read here, as calls with so many arrays cost more than reading
    words: Words, rows: Floats, text: Bytes, scratch: Scratch, memory: Memory, vector: Floats, stops: bool, trains: bool
) -> int:
    """Add the rows of a text to a vector or, where it ``trains``, the vector to each of its rows.

    These are the rows of its words and their n-grams, of the end of the line, and of n-grams of words. Where it
    ``stops``, a word ``</s>`` ends the text; else it is passed over. Return how many rows there are.
    """
    bracketed, listed, hashes, edges, keys, _ = scratch
    has_pairs, has_ngrams = words.word_ngrams > 1, words.longest > 0
    room = np.int64(listed.ctypes.data)
    found, added, tokens, at, begun = 0, 0, 0, 0, _U(0)
    while at < len(text):
        begun, ended = cut_words(text, at, edges, begun)
        at += STRETCH
        if has_ngrams:  # without them there is but one row to find, at no more cost than in the memory
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
    """Set ``hidden`` to the mean of the rows of a text; return how many there are, see :func:`visit`."""
    hidden[:] = 0
    found = visit(words, rows, text, scratch, memory, hidden, stops, False)
    if found:
        hidden *= np.float32(1.0 / found)
    return found
