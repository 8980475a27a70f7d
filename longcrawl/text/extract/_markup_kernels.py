"""The tokens of HTML: names of tags, attributes, character references, and what holds no mark-up (Standard, 13.2.5)."""

# Numba compiles plain loops, and takes arguments by position:
# ruff: noqa: FBT001
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import TESTED, find_byte, find_white, lowest_bit
from longcrawl.text.extract._markup import CUSTOM, HIDDEN, LETTERS, REFERENCE_BITS, Markup

Bytes = npt.NDArray[np.uint8]

LESS, MORE, AND, SLASH = (ord(each) for each in "<>&/")
HAS_TARGET = 1 << 62
"""What marks a link that leads somewhere, beside the groups of words."""

_SPACE, _EQUALS, _DASH, _EXCLAMATION, _SEMICOLON, _NUMBER = (ord(each) for each in " =-!;#")
_WIDE_SPACES = tuple(int.from_bytes(chr(each).encode()) for each in (*range(0x2000, 0x200B), 0x2028, 0x2029))
_MORE_SPACES = tuple(int.from_bytes(chr(each).encode()) for each in (0x202F, 0x205F, 0x3000))
_SHOWS_NOTHING = tuple(int.from_bytes(chr(each).encode()) for each in (0x180E, 0x200B, *range(0x2060, 0x2065), 0xFEFF))
_U = np.uint64


@compiled
def next_byte(page: Bytes, at: int, end: int, byte: int) -> int:
    """Return where a byte is next, ``end`` if nowhere."""
    address = np.int64(page.ctypes.data)
    while at + TESTED <= end:
        found = find_byte(address + at, byte)
        if found != _U(0):
            return at + lowest_bit(found)
        at += TESTED
    while at < end and page[at] != byte:
        at += 1
    return at


@compiled
def _name_end(page: Bytes, at: int, end: int) -> int:
    """Return where the name of an attribute ends."""
    address = np.int64(page.ctypes.data)
    while at + TESTED <= end:
        here = address + at
        found = find_white(here) | find_byte(here, _EQUALS) | find_byte(here, MORE) | find_byte(here, SLASH)
        if found != _U(0):
            return at + lowest_bit(found)
        at += TESTED
    while at < end and page[at] not in (MORE, SLASH, _EQUALS) and not is_space(page[at]):
        at += 1
    return at


@compiled
def is_space(byte: int) -> bool:
    return byte == _SPACE or 9 <= byte <= 13


@compiled
def wide_space(data: Bytes, at: int, end: int) -> int:
    """Return the size of the white space beyond ASCII at a byte, less than 0 for a mark that is not text, else 0.

    Such marks show nothing and mean nothing by themselves: soft hyphens, zero-width spaces, word joiners, invisible
    operators. U+200C and U+200D are text: they change the letters and emoji around them, as do variation selectors.
    """
    if data[at] == 0xC2:
        if at + 1 < end and data[at + 1] == 0xAD:
            return -2
        return 2 if at + 1 < end and data[at + 1] in (0x85, 0xA0) else 0
    if at + 2 >= end or data[at] < 0xE1:
        return 0
    point = np.int64(data[at]) << 16 | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2])
    if point in _SHOWS_NOTHING:
        return -3
    return 3 if point in _WIDE_SPACES or point in _MORE_SPACES else 0


@compiled
def is_letter(byte: int) -> bool:
    return 97 <= (byte | 32) <= 122


@compiled
def tag_code(page: Bytes, at: int, end: int, markup: Markup) -> tuple[int, int]:
    """Return the code of the tag whose name begins at a byte, and where the name ends."""
    key, begin, hyphen, known = _U(0), at, False, True
    while at < end:
        byte = page[at]
        if is_letter(byte):
            key = key << _U(5) | _U((byte | 32) - 96)
        elif 48 <= byte <= 54:
            key = key << _U(5) | _U(byte - 48 + 26)
        elif byte in (MORE, SLASH) or is_space(byte):
            break
        else:
            hyphen |= byte == _DASH
            known = False
        at += 1
    if hyphen:
        return CUSTOM, at
    if at - begin > LETTERS or not known:
        return 0, at
    slot = np.int64(key * _U(0x9E3779B97F4A7C15) >> _U(56))
    while markup.keys[slot] != key:
        if markup.keys[slot] == 0:
            return 0, at
        slot = slot + 1 & 255
    return np.int64(markup.codes[slot]), at


@compiled
def _find_words(page: Bytes, at: int, end: int, markup: Markup) -> int:
    """Return the groups of words in the value of an attribute; capitals begin words in it."""
    state, groups, lower = np.int64(markup.steps[0, 0]), np.int64(0), False
    while at < end:
        byte = np.int64(page[at])
        letter = byte | 32
        if 97 <= letter <= 122:
            if lower and byte < 97:
                state = np.int64(markup.steps[state, 0])
                groups |= markup.found[state]
            state = np.int64(markup.steps[state, letter - 96])
            lower = byte >= 97
        else:
            state = np.int64(markup.steps[state, 0])
            lower = False
        groups |= markup.found[state]
        at += 1
    return groups | markup.found[markup.steps[state, 0]]


@compiled
def _holds(page: Bytes, at: int, end: int, word: Any) -> bool:
    """Return whether bytes, in lower case and without spaces, hold a word."""
    matched = 0
    while at < end:
        byte = page[at]
        byte |= 32 * (65 <= byte <= 90)
        if byte == word[matched]:
            matched += 1
            if matched == len(word):
                return True
        elif not is_space(byte):
            matched = 1 * (byte == word[0])
        at += 1
    return False


_CLASS, _ID, _ROLE, _STYLE = (np.frombuffer(name, np.uint8) for name in (b"class", b"id", b"role", b"style"))
_HIDDEN, _ARIA = (np.frombuffer(name, np.uint8) for name in (b"hidden", b"aria-hidden"))
_HREF = np.frombuffer(b"href", np.uint8)
_TRUE, _NONE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"display:none", np.uint8)


@compiled
def _is_name(page: Bytes, at: int, end: int, name: Any) -> bool:
    if end - at != len(name):
        return False
    same = True
    for place in range(len(name)):
        same &= page[at + place] | 32 * (65 <= page[at + place] <= 90) == name[place]
    return same


@compiled
def _marks_of(page: Bytes, name: int, stop: int, value: int, value_stop: int, markup: Markup) -> int:
    """Return what an attribute says of its element."""
    if _is_name(page, name, stop, _CLASS) or _is_name(page, name, stop, _ID) or _is_name(page, name, stop, _ROLE):
        return _find_words(page, value, value_stop, markup)
    if _is_name(page, name, stop, _HREF):
        return HAS_TARGET
    hidden = _is_name(page, name, stop, _HIDDEN)
    hidden |= _is_name(page, name, stop, _ARIA) and _holds(page, value, value_stop, _TRUE)
    hidden |= _is_name(page, name, stop, _STYLE) and _holds(page, value, value_stop, _NONE)
    return np.int64(hidden) << HIDDEN


@compiled
def _read_value(page: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return where an attribute's value begins and ends, and the byte behind it; ``at`` is behind the ``=``."""
    while at < end and is_space(page[at]):
        at += 1
    quote = page[at] if at < end else 0
    if quote in (34, 39):
        begin, at = at + 1, next_byte(page, at + 1, end, quote)
        return begin, at, at + 1
    begin = at
    while at < end and page[at] != MORE and not is_space(page[at]):
        at += 1
    return begin, at, at


@compiled
def read_attributes(page: Bytes, at: int, end: int, markup: Markup, wanted: bool) -> tuple[int, int, bool]:
    """Return what the attributes of a tag say, the byte behind the tag, and whether it closes itself."""
    marks, closed = np.int64(0), False
    while at < end and page[at] != MORE:
        if page[at] == SLASH or is_space(page[at]):
            closed = page[at] == SLASH
            at += 1
            continue
        name, at, closed = at, _name_end(page, at + 1, end), False
        stop, value, value_stop, after = at, at, at, at
        while after < end and is_space(page[after]):
            after += 1
        if after < end and page[after] == _EQUALS:
            value, value_stop, at = _read_value(page, after + 1, end)
        if wanted:
            marks |= _marks_of(page, name, stop, value, value_stop, markup)
    return marks, min(at + 1, end), closed


@compiled
def skip_declaration(page: Bytes, at: int, end: int) -> int:
    """Return the byte behind a comment, a document type or a processing instruction that begins at ``<``."""
    if at + 3 < end and page[at + 1] == _EXCLAMATION and page[at + 2] == _DASH and page[at + 3] == _DASH:
        at += 4
        if at < end and page[at] == MORE:
            return at + 1
        at = next_byte(page, at, end, _DASH)
        while at + 2 < end:
            if page[at + 1] == _DASH:
                if page[at + 2] == MORE:
                    return at + 3
                if page[at + 2] == _EXCLAMATION and at + 3 < end and page[at + 3] == MORE:
                    return at + 4
            at = next_byte(page, at + 1, end, _DASH)
        return end
    return next_byte(page, at, end, MORE) + 1


@compiled
def skip_raw(page: Bytes, at: int, end: int, code: int, markup: Markup) -> int:
    """Return where the end tag of an element without mark-up begins."""
    at = next_byte(page, at, end, LESS)
    while at + 2 < end:
        if page[at + 1] == SLASH and tag_code(page, at + 2, end, markup)[0] == code:
            return at
        at = next_byte(page, at + 1, end, LESS)
    return end


@compiled
def _put_point(point: int, text: Bytes, place: int) -> int:
    """Write a code point as UTF-8, one that stands for none as U+FFFD; return where it ends."""
    if point < 0x80:
        text[place] = point
        return place + 1
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        point = 0xFFFD
    if point < 0x800:
        text[place], text[place + 1] = 0xC0 | point >> 6, 0x80 | point & 63
        return place + 2
    if point < 0x10000:
        text[place], text[place + 1], text[place + 2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 63, 0x80 | point & 63
        return place + 3
    text[place], text[place + 1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 63
    text[place + 2], text[place + 3] = 0x80 | point >> 6 & 63, 0x80 | point & 63
    return place + 4


_WINDOWS_1252 = np.array(
    [
        ord(bytes([byte]).decode("cp1252", "replace")) if byte not in b"\x81\x8d\x8f\x90\x9d" else byte
        for byte in range(128, 160)
    ],
    np.int64,
)


@compiled
def _put_number(page: Bytes, at: int, end: int, text: Bytes, place: int) -> tuple[int, int]:
    """Write what a numeric reference, whose digits begin at a byte, stands for; return both ends."""
    base = 10
    if at < end and page[at] | 32 == 120:
        base, at = 16, at + 1
    point, begin = 0, at
    while at < end:
        byte = np.int64(page[at])
        digit = byte - 48 if 48 <= byte <= 57 else (byte | 32) - 87 if base == 16 and 97 <= (byte | 32) <= 102 else 16
        if digit == 16:
            break
        point = min(point * base + digit, 0x110000)
        at += 1
    if at == begin:
        return begin, place
    at += at < end and page[at] == _SEMICOLON
    if 128 <= point < 160:
        point = _WINDOWS_1252[point - 128]
    return at, _put_point(0xFFFD if point == 0 else point, text, place)


@compiled
def put_reference(page: Bytes, at: int, end: int, text: Bytes, place: int, markup: Markup) -> tuple[int, int]:
    """Write what the character reference at ``&`` stands for, or ``&`` itself; return both ends."""
    if at + 1 < end and page[at + 1] == _NUMBER:
        after, stop = _put_number(page, at + 2, end, text, place)
        if stop > place:
            return after, stop
    key, after, found, behind = _U(0xCBF29CE484222325), at + 1, -1, 0
    while after < end and after - at < 34:
        byte = page[after]
        if not (is_letter(byte) or 48 <= byte <= 57 or byte == _SEMICOLON):
            break
        key = (key ^ _U(byte)) * _U(0x100000001B3)
        after += 1
        slot = np.int64(key >> _U(64 - REFERENCE_BITS))
        while markup.reference_keys[slot] != 0:
            if markup.reference_keys[slot] == key:
                found, behind = slot, after
                break
            slot = slot + 1 & (1 << REFERENCE_BITS) - 1
        if byte == _SEMICOLON:
            break
    if found < 0:
        text[place] = AND
        return at + 1, place + 1
    for each in range(markup.references[found, 0]):
        text[place + each] = markup.references[found, 1 + each]
    return behind, place + np.int64(markup.references[found, 0])
