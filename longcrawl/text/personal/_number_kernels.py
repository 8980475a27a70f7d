"""Addresses of IPv4, and numbers of cards, accounts and phones, as numba kernels."""

# Checks of a few bytes after each other; a call for each would cost more than what it does:
# ruff: noqa: C901, PLR0911
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import string
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline

Bytes = npt.NDArray[np.uint8]

EMAIL, PHONE, IP, CARD, IBAN, EVERY_IP, IPV6, AMERICAN = (1 << bit for bit in range(8))
"""Kinds to search for: ``IP`` is addresses of IPv4, ``EVERY_IP`` those outside of public ranges as well, and with
``AMERICAN`` phones are numbers of three, three and four digits alone."""

AT, COLON, DOT, DASH, SPACE, PLUS, OPEN, CLOSE, NEWLINE = (ord(each) for each in "@:.- +()\n")
OPEN_BRACKET, CLOSE_BRACKET, PERCENT, SLASH = (ord(each) for each in "[]%/")
ZERO, ONE = ord("0"), ord("1")


def one_of(characters: str) -> npt.NDArray[np.bool_]:
    """Return for every byte whether it is one of these characters."""
    return np.array([chr(byte) in characters for byte in range(256)], np.bool_)


UPPER, LETTER = one_of(string.ascii_uppercase), one_of(string.ascii_letters)
ALNUM = one_of(string.ascii_letters + string.digits)
IDENTIFIER = one_of(string.ascii_letters + string.digits + "_")
HEX = one_of(string.hexdigits)
LOCAL = one_of(string.ascii_letters + string.digits + "._%+'-")
DOMAIN = one_of(string.ascii_letters + string.digits + ".-")
PHONE_MARK, NUMBER_MARK, NO_PHONE_BEFORE = map(one_of, (" -./()", ".,-", "$#/"))


def codes(words: str) -> npt.NDArray[np.int64]:
    return np.array([int.from_bytes(word.encode(), "big") for word in words.split()], np.int64)


@compiled
def is_one_of(code: int, codes: Any) -> bool:
    for each in codes:  # noqa: SIM110  # numba knows no generators
        if each == code:
            return True
    return False


@forced_inline
def is_digit(data: Bytes, at: int, end: int) -> bool:
    return at < end and ZERO <= data[at] <= ZERO + 9


@compiled
def mark_at(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return an ASCII byte, or space or hyphen for a typographic one, and how many bytes it has; 0, 0 for others.

    Spaces are U+00A0, U+2007, U+2009, U+200A and U+202F, hyphens those from U+2010 to the dash U+2013.
    """
    if at >= end:
        return 0, 0
    if data[at] < 0x80:
        return np.int64(data[at]), 1
    if data[at] == 0xC2 and at + 1 < end and data[at + 1] == 0xA0:
        return SPACE, 2
    if data[at] != 0xE2 or at + 2 >= end or data[at + 1] != 0x80:
        return 0, 0
    if 0x90 <= data[at + 2] <= 0x93:
        return DASH, 3
    return (SPACE, 3) if data[at + 2] in (0x87, 0x89, 0x8A, 0xAF) else (0, 0)


@compiled
def _goes_on(data: Bytes, at: int, end: int) -> bool:
    """Whether a typographic hyphen and a digit follow."""
    mark, size = mark_at(data, at, end)
    return mark == DASH and size > 1 and is_digit(data, at + size, end)


@compiled
def _has_begun(data: Bytes, at: int, start: int) -> bool:
    """Whether a digit and a typographic hyphen stand before a byte."""
    return at - 4 >= start and mark_at(data, at - 3, at) == (DASH, 3) and is_digit(data, at - 4, at)


@compiled
def word_after(data: Bytes, at: int, end: int) -> bool:
    """Whether a letter or a digit stands there, or a mark and a digit: a number that ends before goes on."""
    if at >= end:
        return False
    if ALNUM[data[at]]:
        return True
    return NUMBER_MARK[data[at]] and is_digit(data, at + 1, end)


@compiled
def word_before(data: Bytes, at: int, start: int) -> bool:
    """Whether a letter or a digit stands before a byte, or a digit and a mark: a number that begins there goes on."""
    if at <= start:
        return False
    if ALNUM[data[at - 1]]:
        return True
    return NUMBER_MARK[data[at - 1]] and at - 1 > start and is_digit(data, at - 2, at)


MOST_PHONE = 15
"""Digits of a number in E.164."""
KEYWORD_REACH = 20
"""Characters before a number in which a word says that it is one of a phone."""

_KEYWORDS = codes("tel fon pho fax mob cel cal")
"""The first three letters of words before numbers of phones: telephone, fon, phone, fax, mobile, cell, call."""
_NUMBERED = codes("version section chapter release")
"""What is before numbers with dots that are no addresses."""


@compiled
def _is_private(one: int, two: int, three: int) -> bool:
    """Whether an address of IPv4 is in no public range of the registry of IANA, or names a group."""
    if one in (0, 10, 127) or one >= 224:
        return True
    if one == 100:
        return 64 <= two < 128
    if one == 169:
        return two == 254
    if one == 172:
        return 16 <= two < 32
    if one == 192:
        return two == 168 or (two == 0 and three in (0, 2))
    if one == 198:
        return two in (18, 19) or (two == 51 and three == 100)
    return one == 203 and two == 0 and three == 113


@compiled
def _is_numbered(data: Bytes, at: int, start: int) -> bool:
    """Whether a word says that numbers with dots are those of a version or a section."""
    if at - 8 < start:
        return False
    size = 1 if data[at - 1] < 0x80 else 2 + (data[at - 2] != 0xC2)
    first, code = at - 7 - size, np.int64(0)
    if first < start or mark_at(data, at - size, at) != (SPACE, size):
        return False
    for place in range(first, first + 7):
        code = code << 8 | data[place] | 0x20
    return is_one_of(code, _NUMBERED)


@allocating
def ip(data: Bytes, at: int, start: int, end: int, kinds: int) -> int:
    """Return where an address of IPv4 ends that begins at a digit, or where it begins for none."""
    if word_before(data, at, start) or _is_numbered(data, at, start):
        return at
    place, value, first = at, np.zeros(4, np.int64), at
    for octet in range(4):
        first = place
        while place < end and place - first < 4 and is_digit(data, place, end):
            value[octet] = 10 * value[octet] + data[place] - ZERO
            place += 1
        size = place - first
        if not 1 <= size <= 3 or value[octet] > 255 or (size > 1 and data[first] == ZERO):
            return at
        if octet < 3:
            if place >= end or data[place] != DOT:
                return at
            place += 1
    if word_after(data, place, end):
        return at
    return place if kinds & EVERY_IP or not _is_private(value[0], value[1], value[2]) else at


@compiled
def _grouped_card(data: Bytes, at: int, end: int, sizes: tuple[int, int, int, int, int]) -> int:
    """Return where groups of digits of these sizes end, all behind the same mark; where they begin for others."""
    place, mark = at, np.int64(0)
    for group in range(5):
        if sizes[group] == 0:
            break
        if group:
            found, size = mark_at(data, place, end)
            if found not in (SPACE, DASH) or (mark and found != mark):
                return at
            mark = found
            place += size
        for _ in range(sizes[group]):
            if not is_digit(data, place, end):
                return at
            place += 1
    return at if is_digit(data, place, end) else place


@compiled
def _is_of_brand(prefix: int, size: int) -> bool:
    """Whether numbers of cards that begin with four digits have so many."""
    one, two, three = prefix // 1000, prefix // 100, prefix // 10
    if one == 4:
        return size in (13, 16, 19)
    if 51 <= two <= 55 or 2221 <= prefix <= 2720:
        return size == 16
    if two in (34, 37):
        return size == 15
    if prefix == 6011 or two == 65 or 644 <= three <= 649:
        return 16 <= size <= 19
    if 3528 <= prefix <= 3589:
        return 16 <= size <= 19
    if two in (36, 38) or 300 <= three <= 305:
        return 14 <= size <= 19
    return two == 62 and 16 <= size <= 19


@compiled
def card(data: Bytes, at: int, run: int, start: int, end: int) -> int:
    """Return where a card's number ends that begins with ``run`` digits, or where it begins for none."""
    if word_before(data, at, start) or _has_begun(data, at, start):
        return at
    stop = at
    if 13 <= run <= 19:
        stop = at + run
    elif run == 4:
        stop = _grouped_card(data, at, end, (4, 4, 4, 4, 3))
        if stop == at:
            stop = _grouped_card(data, at, end, (4, 4, 4, 4, 0))
        if stop == at:
            stop = _grouped_card(data, at, end, (4, 6, 5, 0, 0))
        if stop == at:
            stop = _grouped_card(data, at, end, (4, 6, 4, 0, 0))
    if stop == at or word_after(data, stop, end) or _goes_on(data, stop, end):
        return at
    total, prefix, size, even = 0, 0, 0, False
    for place in range(at, stop):
        if is_digit(data, place, end):
            size += 1
            if size <= 4:
                prefix = 10 * prefix + data[place] - ZERO
    for back in range(stop - at):
        byte = np.int64(data[stop - 1 - back]) - ZERO
        if 0 <= byte <= 9:
            double = 2 * byte if even else byte
            total += double - 9 if double > 9 else double
            even = not even
    return stop if total % 10 == 0 and _is_of_brand(prefix, size) else at


@compiled
def iban(data: Bytes, at: int, start: int, end: int, sizes: Any) -> int:
    """Return where an account number ends whose first digit is at a byte, two letters before it; ``at`` for none."""
    if at - 2 < start or not (UPPER[data[at - 1]] and UPPER[data[at - 2]]) or not is_digit(data, at + 1, end):
        return at
    if at - 2 > start and ALNUM[data[at - 3]]:
        return at
    size = np.int64(sizes[(data[at - 2] - 0x41) * 26 + data[at - 1] - 0x41])
    place, seen, remainder, spaced = at + 2, 4, 0, False
    while place < end and seen < size:
        byte = data[place]
        if seen % 4 == 0 and not spaced and not ALNUM[byte]:
            mark, width = mark_at(data, place, end)
            spaced = mark == SPACE
            if not spaced:
                return at
            place += width
            continue
        spaced = False
        if UPPER[byte]:
            remainder = (100 * remainder + byte - 55) % 97
        elif is_digit(data, place, end):
            remainder = (10 * remainder + byte - ZERO) % 97
        else:
            return at
        seen += 1
        place += 1
    if size == 0 or seen < size or (place < end and ALNUM[data[place]]):
        return at
    for letter in range(at - 2, at):
        remainder = (100 * remainder + data[letter] - 55) % 97
    for digit in range(at, at + 2):
        remainder = (10 * remainder + data[digit] - ZERO) % 97
    return place if remainder == 1 else at


@compiled
def _names_phone(data: Bytes, at: int, start: int) -> bool:
    """Whether a word before a number, on its line, says that it is one of a phone."""
    code, reach, place = np.int64(0), KEYWORD_REACH, at
    while place > start and reach > 0:
        place -= 1
        if data[place] == NEWLINE:
            return False
        reach -= (data[place] & 0xC0) != 0x80
        code = code >> 8 | np.int64(data[place] | 0x20) << 16
        if at - place >= 3 and (place == start or not LETTER[data[place - 1]]) and is_one_of(code, _KEYWORDS):
            return True
    return False


@compiled
def _dialled(data: Bytes, at: int, end: int, least: int, most: int) -> int:
    """Return where digits end between which at most two marks stand, so many in all; ``at`` for others."""
    place, stop, digits, marks = at, at, 0, 0
    while place < end:
        if is_digit(data, place, end):
            digits += 1
            marks = 0
            place += 1
            stop = place
            if digits > most:
                return at
            continue
        mark, size = mark_at(data, place, end)
        if marks == 2 or not PHONE_MARK[mark]:
            break
        marks += 1
        place += size
    return stop if digits >= least and not word_after(data, stop, end) else at


@compiled
def _closes(data: Bytes, at: int, end: int) -> bool:
    """Whether the first bracket closes one that has been opened before."""
    for place in range(at, end):
        if data[place] in (OPEN, CLOSE):
            return data[place] == CLOSE
    return False


@compiled
def _american(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Return where a North American number ends whose area code is at a byte, and whether its marks are spaces."""
    none = (at, False)
    if at + 12 > end + 1 or data[at] < ZERO + 2 or (data[at + 1] == ONE and data[at + 2] == ONE):
        return none
    for place in range(at, at + 3):
        if not is_digit(data, place, end):
            return none
    mark, size = mark_at(data, at + 3, end)
    place = at + 3 + size
    if mark == CLOSE:
        behind, size = mark_at(data, place, end)
        place += size if behind in (SPACE, DASH, DOT) else 0
    elif mark not in (SPACE, DASH, DOT):
        return none
    if place + 8 > end or data[place] < ZERO + 2:
        return none
    second, size = mark_at(data, place + 3, end)
    stop = place + 7 + size
    for each in range(place, stop):
        if not (place + 3 <= each < place + 3 + size or is_digit(data, each, end)):
            return none
    if second not in (SPACE, DASH, DOT):
        return none
    if mark != CLOSE and second != mark:  # noqa: PLR1714  # numba knows no tuple of both
        return none
    return none if word_after(data, stop, end) or _goes_on(data, stop, end) else (stop, mark == SPACE)


@compiled
def phone(data: Bytes, at: int, run: int, start: int, end: int) -> tuple[int, int]:
    """Return the number of a phone whose first digit is at a byte; the same place twice for none."""
    none, first = (at, at), at
    before = np.int64(data[at - 1]) if at > start else -1
    if before == PLUS:
        if data[at] == ZERO or (at - 1 > start and (ALNUM[data[at - 2]] or data[at - 2] == PLUS)):
            return none
        stop = _dialled(data, at, end, 8, MOST_PHONE)
        first = at - 2 if at - 1 > start and data[at - 2] == OPEN and _closes(data, at, stop) else at - 1
        return (first, stop) if stop > at else none
    if before == OPEN:
        first = at - 1
    if (
        word_before(data, first, start)
        or _has_begun(data, first, start)
        or (first > start and NO_PHONE_BEFORE[data[first - 1]])
    ):
        return none
    area = at
    if run == 1 and data[at] == ONE and before != OPEN:
        mark, size = mark_at(data, at + 1, end)
        if mark in (SPACE, DASH, DOT) and at + 1 + size < end:
            area = at + 1 + size + (data[at + 1 + size] == OPEN)
    if run == 3 or area > at:
        stop, spaced = _american(data, area, end)
        closed = stop > area and data[area + 3] == CLOSE
        opened = area > start and data[area - 1] == OPEN
        if stop > area and closed == opened and (not spaced or _names_phone(data, first, start)):
            return first, stop
    if data[at] == ZERO and _names_phone(data, first, start):
        abroad = is_digit(data, at + 1, end) and data[at + 1] == ZERO
        stop = _dialled(data, at, end, 7, MOST_PHONE + 2 if abroad else 12)
        if stop > at:
            return first, stop
    return none


@compiled
def _three_three_four(data: Bytes, at: int, start: int, end: int) -> tuple[int, int]:
    """Return the number of three, three and four digits at a byte that follows white space or nothing.

    There may be marks between the digits, and a parenthesis around the first three, as in the pattern of Dolma.
    """
    none, first = (at, at), at
    if first > start and data[first - 1] == OPEN:
        first -= 1
    if first > start and data[first - 1] > SPACE:
        size = 2 if data[first - 1] == 0xA0 else 3
        if first - size < start or mark_at(data, first - size, first) != (SPACE, size):
            return none
    place = at
    for group in range(3):
        for _ in range(3 + (group == 2)):
            if not is_digit(data, place, end):
                return none
            place += 1
        if group == 0 and place < end and data[place] == CLOSE:
            place += 1
        mark, size = mark_at(data, place, end)
        while group < 2 and mark in (SPACE, DASH, DOT):
            place += size
            mark, size = mark_at(data, place, end)
            if group == 1:
                break
    return none if is_digit(data, place, end) else (first, place)


@compiled
def number(data: Bytes, at: int, start: int, end: int, kinds: int, sizes: Any) -> tuple[int, int, int]:
    """Return what begins with the digits at a byte: start, end and kind; the same place twice for nothing."""
    if kinds & IBAN and at > start and UPPER[data[at - 1]]:
        stop = iban(data, at, start, end, sizes)
        if stop > at:
            return at - 2, stop, IBAN
    run = 1
    while run < 20 and is_digit(data, at + run, end):
        run += 1
    following = np.int64(data[at + run]) if at + run < end else -1
    if kinds & CARD and (run >= 13 or (run == 4 and mark_at(data, at + run, end)[0] in (SPACE, DASH))):
        stop = card(data, at, run, start, end)
        if stop > at:
            return at, stop, CARD
    if kinds & IP and run <= 3 and following == DOT:
        stop = ip(data, at, start, end, kinds)
        if stop > at:
            return at, stop, IP
    if kinds & PHONE and kinds & AMERICAN:
        first, stop = _three_three_four(data, at, start, end) if run in (3, 6, 10) else (at, at)
        if stop > at:
            return first, stop, PHONE
    elif kinds & PHONE:
        before = np.int64(data[at - 1]) if at > start else -1
        if before == PLUS or data[at] == ZERO or (run == 3 and following > 0) or (run == 1 and data[at] == ONE):
            first, stop = phone(data, at, run, start, end)
            if stop > at:
                return first, stop, PHONE
    return at, at, 0
