"""Splits texts by the patterns of five tokenizers, with a scanner over UTF-8.

Most pieces are found 64 bytes at a time, by a bit for each byte that is a letter, a digit or white space of ASCII. What
these bits cannot tell is scanned by the character. Kernels of this package take addresses, which are plain integers.
Texts are valid UTF-8, and 64 bytes after their end can be read.
"""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"
# ruff: noqa: PLR1714, SIM109

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import shipped_arrays
from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.memory import (
    byte_at,
    eight_at,
    find_apostrophes,
    find_blanks,
    find_breaks,
    find_capitals,
    find_digits,
    find_high,
    find_others,
    find_slashes,
    find_white,
    highest_bit,
    lowest_bit,
    write_places,
)

GPT2, CL100K, LLAMA3, QWEN2, O200K = range(5)

UPPER, LOWER, EITHER_CASE, MARK, NUMBER, SPACE, OTHER = (1 << bit for bit in range(7))
"""Upper or title case, lower case, letters without case or that modify others, and what is no letter."""

SHIPPED = Path(__file__).with_name("classes.npz")

_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CAPITAL_CLASS, _SMALL_CLASS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
"""GPT-2's pre-tokenisation, in the possessive spelling that does not backtrack over long words."""
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""tiktoken's, but for `{1,3}+`, which keeps all digits together where `tokenizers` reads it."""
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL_CLASS}*{_SMALL_CLASS}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL_CLASS}+{_SMALL_CLASS}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _TAIL
)

PATTERNS: Mapping[str, int] = {
    GPT2_PATTERN: GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    CL100K_PATTERN: CL100K,
    CL100K_PATTERN.replace("{1,3}", "{1,3}+"): CL100K,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: LLAMA3,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: QWEN2,
    O200K_PATTERN: O200K,
}
"""What the scanner splits by, in the spellings that tokenizers have; any other pattern is left to its library."""


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """Return the class of every code point.

    They are those of the regular expressions of tiktoken, of which asking takes 0.3 s; a test asks, and writes them.
    """
    return shipped_arrays(SHIPPED, "tiktoken")["classes"]


Longs = npt.NDArray[np.int64]

AHEAD = 64
"""Bytes whose ends of pieces are found at once; as many can be read after the end of a text."""

_LETTER = UPPER | LOWER | EITHER_CASE
_NO_WORD = OTHER | MARK
_CAPITALS = UPPER | EITHER_CASE | MARK
_SMALL = LOWER | EITHER_CASE | MARK
_WORD = _LETTER | MARK

_A, _D, _E, _L, _M, _R, _S, _T, _V, _Z = b"adelmrstvz"
_U = np.uint64
_ONES = _U(0x0101010101010101)
_HIGH = _U(0x8080808080808080)
_CASE = _U(0x20) * _ONES
_FROM_A = _U(0x80 - _A) * _ONES
_AFTER_Z = _U(0x7F - _Z) * _ONES


@compiled
def _character(classes: int, at: int) -> tuple[int, int]:
    """Return the class of the character at an address and the address after it."""
    first = byte_at(at)
    if first < 0x80:
        return byte_at(classes + first), at + 1
    point, second = first & 0x1F, byte_at(at + 1) & 0x3F
    if first < 0xE0:
        return byte_at(classes + (point << 6 | second)), at + 2
    third = byte_at(at + 2) & 0x3F
    if first < 0xF0:
        return byte_at(classes + ((first & 0xF) << 12 | second << 6 | third)), at + 3
    point = (first & 7) << 18 | second << 12 | third << 6 | byte_at(at + 3) & 0x3F
    return byte_at(classes + point), at + 4


@compiled
def _run_end(classes: int, at: int, end: int, kinds: int) -> int:
    """Find the first character that is of none of ``kinds``."""
    while at < end:
        kind, after = _character(classes, at)
        if kind & kinds == 0:
            return at
        at = after
    return end


@forced_inline
def _letters_end(classes: int, at: int, end: int, case: np.uint64, kinds: int) -> int:
    """As :func:`_run_end`, ASCII letters eight at a time; ``case`` is what makes capitals small, 0 to stop at them."""
    while at < end:
        eight = eight_at(at)
        folded = (eight | case) & ~_HIGH
        others = (~(folded + _FROM_A) | (folded + _AFTER_Z) | eight) & _HIGH
        if others == _U(0):
            at += 8
            continue
        at += lowest_bit(others) >> 3
        if at >= end:
            return end
        if byte_at(at) < 0x80:
            return at
        while at < end and byte_at(at) >= 0x80:
            kind, after = _character(classes, at)
            if kind & kinds == 0:
                return at
            at = after
    return end


@compiled
def _contraction_end(at: int, end: int, folded: int) -> int:
    """Return the end of 's 'd 'm 't 'll 've 're at ``at``, or ``at``; 0x20 as ``folded`` takes capitals and U+017F."""
    if at + 1 >= end or byte_at(at) != 0x27:
        return at
    first = byte_at(at + 1)
    if folded and first == 0xC5 and byte_at(at + 2) == 0xBF:
        return at + 3
    first |= folded
    if first == _S or first == _D or first == _M or first == _T:
        return at + 2
    if at + 2 >= end:
        return at
    second = byte_at(at + 2) | folded
    if first == _L:
        return at + 3 if second == _L else at
    return at + 3 if second == _E and (first == _V or first == _R) else at


@compiled
def _breaks_line(at: int) -> bool:
    return byte_at(at) == 0x0A or byte_at(at) == 0x0D


@compiled
def _space_end(classes: int, at: int, end: int, lines: int, whole_tail: int) -> int:
    r"""Find the end of a piece of white space: ``\s*[\r\n]+`` where ``lines``, then ``\s+(?!\S)``, then ``\s``.

    With ``whole_tail`` white space at the end of a text is one piece, as ``\s++$`` before these has it.
    """
    stop, last, after_line = at, at, at
    while stop < end:
        kind, after = _character(classes, stop)
        if kind != SPACE:
            break
        if lines and _breaks_line(stop):
            after_line = after
        last, stop = stop, after
    if whole_tail and stop == end:
        return stop
    if after_line > at:
        return after_line
    return stop if stop == end or last == at else last


@forced_inline
def _gpt2_end(classes: int, at: int, end: int) -> int:
    start = at + 1 if byte_at(at) == 0x20 and at + 1 < end else at
    kind, after = _character(classes, start)
    if kind & _LETTER:
        return _letters_end(classes, after, end, _CASE, _LETTER)
    if kind == SPACE:
        return _space_end(classes, at, end, 0, 1)
    stop = _contraction_end(at, end, 0)
    if stop > at:
        return stop
    return _run_end(classes, after, end, NUMBER if kind == NUMBER else _NO_WORD)


@compiled
def _numbers_end(classes: int, at: int, end: int, most: int) -> int:
    for _ in range(most):
        if at < end:
            kind, after = _character(classes, at)
            if kind != NUMBER:
                return at
            at = after
    return at


@forced_inline
def _cl100k_end(pattern: int, classes: int, at: int, end: int) -> int:
    """Find the end of a piece of cl100k's pattern, or of Llama 3's or Qwen2's, which differ in tails and numbers."""
    kind, after = _character(classes, at)
    if kind & _LETTER:
        return _letters_end(classes, after, end, _CASE, _LETTER)
    if kind == NUMBER:
        return after if pattern == QWEN2 else _numbers_end(classes, after, end, 2)
    stop = _contraction_end(at, end, 0x20)
    if stop > at:
        return stop
    following, second = 0, after
    if after < end:
        following, second = _character(classes, after)
    if following & _LETTER and not _breaks_line(at):
        return _letters_end(classes, second, end, _CASE, _LETTER)
    if kind & _NO_WORD or (byte_at(at) == 0x20 and following & _NO_WORD):
        stop = _run_end(classes, after, end, _NO_WORD)
        while stop < end and _breaks_line(stop):
            stop += 1
        return stop
    return _space_end(classes, at, end, 1, 1 if pattern == CL100K else 0)


@compiled
def _cased_word_end(classes: int, at: int, end: int) -> int:
    """Find the end of capitals, then small letters, from ``at`` on; ``at`` itself where there are none.

    Both runs take marks and letters without case, and the second has one character at least if any can be given
    back: without a small letter after the capitals the word ends after the last character of both runs.
    """
    both = stop = at
    while stop < end:
        kind, after = _character(classes, stop)
        if kind & _CAPITALS == 0:
            if kind == LOWER:
                return _letters_end(classes, after, end, _U(0), _SMALL) if after < end else end
            break
        if kind & _SMALL:
            both = after
        stop = after
    return both if both > at else stop


@forced_inline
def _o200k_end(classes: int, at: int, end: int) -> int:
    kind, after = _character(classes, at)
    start = at
    if kind & _WORD == 0 and kind != NUMBER and not _breaks_line(at):
        start = after
    if start > at or kind & _WORD:
        stop = _cased_word_end(classes, start, end)
        if stop > start:
            return _contraction_end(stop, end, 0x20)
    if kind == NUMBER:
        return _numbers_end(classes, after, end, 2)
    following = 0
    if after < end:
        following, _ = _character(classes, after)
    if kind & _NO_WORD or (byte_at(at) == 0x20 and following & _NO_WORD):
        stop = _run_end(classes, after, end, _NO_WORD)
        while stop < end and (_breaks_line(stop) or byte_at(stop) == 0x2F):
            stop += 1
        return stop
    return _space_end(classes, at, end, 1, 0)


@forced_inline
def _piece_end(pattern: int, classes: int, at: int, end: int) -> int:
    """Return where the piece that starts at ``at`` ends."""
    if pattern == GPT2:
        return _gpt2_end(classes, at, end)
    if pattern == O200K:
        return _o200k_end(classes, at, end)
    return _cl100k_end(pattern, classes, at, end)


@forced_inline
def _up_to(bits: np.uint64) -> np.uint64:
    """Return the lowest bit and all below it; all where there is none."""
    return bits ^ (bits - _U(1))


@compiled
def _ends_ahead(pattern: int, at: int, end: int) -> np.uint64:
    """Return a bit for each of the ``AHEAD`` bytes from ``at`` on where a piece ends, as far as bits can tell.

    Pieces beyond the last bit, or all where there is none, are for :func:`_piece_end`: those with characters beyond
    ASCII, contractions, rare white space, and what is cut by the end of these bytes or of the text.
    """
    one = _U(1)
    beyond = find_high(at)
    if end - at < AHEAD:
        beyond |= one << _U(end - at)
    # Where a piece ends, the two bytes that follow it decide.
    known = ((beyond - one) & ~beyond) >> one
    letters, digits, white, blanks = ~find_others(at), find_digits(at), find_white(at), find_blanks(at)
    others, quotes = ~(letters | digits | white), find_apostrophes(at)
    first_letters, first_digits = letters & ~(letters << one), digits & ~(digits << one)
    first_others = others & ~(others << one)
    if pattern == GPT2:
        ends = (first_letters | first_digits | first_others) & ~(blanks << one)
        ends |= white & ~(white << one & white >> one)
        contracted = quotes & letters >> one & (ends | one)
        return ends & known & _up_to(contracted) & ~one
    breaks = find_breaks(at)
    within = white & ~breaks
    before_letters = within | first_others & ~(others >> one) & ~(blanks << one)
    ends = first_letters & ~(before_letters << one) | first_others & ~(blanks << one) | first_digits
    if pattern == QWEN2:
        ends |= digits
    else:
        threes = digits & digits << one & digits << _U(2)
        fourth = first_digits << _U(3) & threes
        while fourth != _U(0):
            ends |= fourth
            fourth = fourth << _U(3) & threes
    # A sum carries through a run of ones, from its first on: through line breaks that follow other characters.
    taken = breaks & ~(breaks + (breaks & others << one))
    indents = breaks << one & within
    ends |= white & ~(white << one) & ~taken | within & ~(white >> one) | indents
    # What follows a line break is no piece where another line break ends it.
    inside = within & known
    after_indents = inside + (indents & known) & ~inside
    if after_indents & (breaks | ~known) != _U(0):
        known &= _up_to(breaks)
    if pattern == O200K:
        capitals = find_capitals(at)
        ends |= capitals & (letters & ~capitals) << one
        known &= _up_to(quotes & letters << one & letters >> one) >> one
        known &= _up_to(taken & find_slashes(at) >> one)
    else:
        known &= _up_to(quotes & letters >> one & (ends | one))
    return ends & known & ~one


@compiled
def split(
    pattern: int, classes: int, at: int, end: int, starts: Longs, count: np.uint64, most: int
) -> tuple[int, np.uint64]:
    """Enter where pieces start, after ``count`` that are there, until there are ``most`` or a few more.

    Returns where the next one starts, and how many there are: fewer than ``most`` and ``AHEAD``, for which ``starts``
    has room, and so for what ``write_places`` writes too much: no more than 63 pieces end within ``AHEAD`` bytes.
    """
    while at < end and count < _U(most):
        starts[count] = at
        count += _U(1)
        ends = _ends_ahead(pattern, at, end) if eight_at(at) & _HIGH == _U(0) else _U(0)
        if ends == _U(0):
            at = _piece_end(pattern, classes, at, end)
            continue
        count = write_places(ends, at, starts, count) - _U(1)
        at += highest_bit(ends)
    return at, count
