"""GPT-2's pre-tokenisation of UTF-8 and a table of the words seen, as numba kernels over bytes.

Only ASCII is classified here, where no Unicode version matters. A stretch with any other character is taken as one
"word" up to a place where GPT-2's pattern always cuts: an ASCII whitespace character after a character that is none.
Splitting such a stretch by itself gives the pieces that it has in the text, so whoever encodes words can be asked.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["LONGEST_WORD", "SEPARATOR", "Words", "emit", "split"]

LONGEST_WORD = 96
"""In bytes; longer pieces are too rare to remember."""

SEPARATOR = "<\n>"
"""Ends each word in the arena. No word contains it: a word never has ASCII whitespace after another ASCII character."""

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


class Words(NamedTuple):
    """An open-addressing table of words; word w and ``SEPARATOR`` are ``arena[bounds[w]:bounds[w + 1]]``."""

    table: npt.NDArray[np.uint64]
    """Shape (a power of two, 2): key and number of a word; key 0 is an empty place."""
    bounds: npt.NDArray[np.int64]
    arena: npt.NDArray[np.uint8]


@njit(cache=True, nogil=True, inline="always")
def _eight_bytes(wide, at):  # type: ignore[no-untyped-def]  # compiled for arrays
    """Load the eight bytes from ``at`` on as one little-endian number."""
    shift = _U(8 * (at & 7))
    low = wide[at >> 3] >> shift
    return low | ((wide[(at >> 3) + 1] << _U(1)) << (_U(63) - shift))


@njit(cache=True, nogil=True, inline="always")
def _letters_end(wide, at):  # type: ignore[no-untyped-def]  # as above
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


@njit(cache=True, nogil=True)
def _may_be_space(text, at):  # type: ignore[no-untyped-def]  # as above
    """Whether the character at ``at``, beyond ASCII, is whitespace or close to it."""
    first, second, third = text[at], text[at + 1], text[at + 2]
    if first == 0xC2:
        return second == 0x85 or second == 0xA0
    if first == 0xE1:
        return second == 0x9A or second == 0xA0
    if first == 0xE2:
        return (second == 0x80 and (third <= 0x8F or third >= 0xA8)) or second == 0x81
    return first == 0xE3 and second == 0x80 and third == 0x80


@njit(cache=True, nogil=True)
def _stretch_end(text, at, end):  # type: ignore[no-untyped-def]  # as above
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


@njit(cache=True, nogil=True, inline="always")
def _contraction(text, at, end):  # type: ignore[no-untyped-def]  # as above
    """Give the length of 's 'd 'm 't 'll 've 're at ``at``, or 0."""
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


@njit(cache=True, nogil=True)
def _piece_end(text, wide, at, end):  # type: ignore[no-untyped-def]  # as above
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


@njit(cache=True, nogil=True, inline="always")
def _key(wide, at, end):  # type: ignore[no-untyped-def]  # as above
    """Give the word itself and its length for up to seven bytes, else a hash with 0xFF in that place."""
    length = end - at
    if length < 8:
        bits = _U(8 * length)
        return (_eight_bytes(wide, at) & ((_U(1) << bits) - _U(1))) | (_U(length) << _U(56))
    key = _U(length)
    while at < end:
        eight = _eight_bytes(wide, at)
        if end - at < 8:
            eight &= (_U(1) << _U(8 * (end - at))) - _U(1)
        key = (key ^ eight) * _MIX
        key ^= key >> _U(29)
        at += 8
    return key | _U(0xFF00000000000000)


@njit(cache=True, nogil=True, inline="always")
def _number(text, wide, at, end, words, count):  # type: ignore[no-untyped-def]  # as above
    """Give the number of a word; a new one gets ``count`` and its bytes are kept."""
    table, bounds, arena = words
    key = _key(wide, at, end)
    mixed = (key ^ (key >> _U(32))) * _MIX
    mask = _U(table.shape[0] - 1)
    place = (mixed >> _U(32)) & mask
    while table[place, 0] != _U(0):
        if table[place, 0] == key:
            number = np.int64(table[place, 1])
            if end - at < 8 or _same(text, at, end, arena, bounds[number], bounds[number + 1]):
                return number
        place = (place + _U(1)) & mask
    table[place, 0] = key
    table[place, 1] = _U(count)
    start, length = bounds[count], end - at
    for i in range(length):
        arena[start + i] = text[at + i]
    for i in range(len(_SEPARATOR)):
        arena[start + length + i] = _SEPARATOR[i]
    bounds[count + 1] = start + length + len(_SEPARATOR)
    return count


@njit(cache=True, nogil=True)
def _same(text, at, end, arena, start, stop):  # type: ignore[no-untyped-def]  # as above
    if end - at != stop - start - len(_SEPARATOR):
        return False
    for i in range(end - at):  # noqa: SIM110  # numba compiles loops
        if text[at + i] != arena[start + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def split(text, wide, offsets, state, words, pieces, ends, loose):  # type: ignore[no-untyped-def]  # as above
    """Split texts from where ``state`` stands until they end or an array is full.

    ``state`` is [text, position, words]. ``pieces`` gets the number of each word, or -1 - i for the i-th of ``loose``,
    where too long pieces get their start and end. ``ends[t]`` gets how many pieces there were when text t ended.
    Returns how many ``pieces`` and how many ``loose`` there are.
    """
    number, at, count = state
    found = apart = 0
    room = words.arena.shape[0] - LONGEST_WORD - len(_SEPARATOR)
    while number < len(offsets) - 1:
        end = offsets[number + 1]
        while at < end:
            if found == len(pieces) or apart == len(loose) or count == len(words.bounds) - 1 or words.bounds[count] > room:
                state[:] = number, at, count
                return found, apart
            stop = _piece_end(text, wide, at, end)
            if stop - at > LONGEST_WORD:
                loose[apart, 0], loose[apart, 1] = at, stop
                apart += 1
                pieces[found] = -apart
            else:
                word = _number(text, wide, at, stop, words, count)
                count += word == count
                pieces[found] = word
            found += 1
            at = stop
        ends[number] = found
        number += 1
    state[:] = number, at, count
    return found, apart


@njit(cache=True, nogil=True)
def emit(pieces, ends, first, last, known, loose, ids, written, offsets):  # type: ignore[no-untyped-def]  # as above
    """Write the ids of ``pieces`` from ``ids[written]`` on, and the end of each text in [first, last).

    ``known`` and ``loose`` are (ids, start of each word, end of each word).
    """
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
