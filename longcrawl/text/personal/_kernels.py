"""Addresses, numbers of phones, cards and accounts in UTF-8, as numba kernels.

Sixty-four bytes are looked at at once for what all of them have: an ``@``, a digit, or a colon. Checks run only there,
and look at a bounded number of bytes around: time grows with the length of a text alone.
"""

# Checks of a few bytes after each other; a call for each would cost more than what it does:
# ruff: noqa: C901, PLR0911, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import find_ats, find_colons, find_digits, lowest_bit
from longcrawl.kernels.utf8 import copy, count_characters
from longcrawl.text.personal._number_kernels import (
    ALNUM,
    AT,
    COLON,
    DASH,
    DOMAIN,
    DOT,
    EMAIL,
    EVERY_IP,
    HEX,
    IP,
    LETTER,
    LOCAL,
    ZERO,
    Bytes,
    codes,
    is_one_of,
    number,
)

_U = np.uint64

MOST_LOCAL, MOST_DOMAIN, MOST_LABEL, MOST_TOP = 64, 253, 63, 24
"""Letters of the parts of an address: RFC 5321, and more than any top-level domain has."""

_FILES = codes("png jpg jpeg gif svg webp css js html htm php pdf zip avif bmp ico tif tiff")
"""Endings of names of files such as icon@2x.png."""


@compiled
def ends_domain(data: Bytes, at: int, stop: int) -> bool:
    """Whether bytes are a top-level domain, and not the ending of a file."""
    size = stop - at
    if not 2 <= size <= MOST_TOP:
        return False
    code = np.int64(0)
    for place in range(at, stop):
        if not LETTER[data[place]]:
            return False
        if size <= 4:
            code = code << 8 | data[place] | 0x20
    return not is_one_of(code, _FILES)


@compiled
def email(data: Bytes, at: int, start: int, end: int) -> tuple[int, int]:
    """Return the address around an ``@``; the same place twice for none."""
    first, none = at, (at, at)
    while first > start and at - first <= MOST_LOCAL and LOCAL[data[first - 1]]:
        if data[first - 1] == DOT and data[first] == DOT:
            break
        first -= 1
    while first < at and not ALNUM[data[first]]:
        first += 1
    if first == at or at - first > MOST_LOCAL or data[at - 1] == DOT:
        return none
    stop, limit, dots, label, top = at + 1, min(end, at + 2 + MOST_DOMAIN), 0, at + 1, 0
    while stop < limit and DOMAIN[data[stop]]:
        if data[stop] == DOT:
            if stop == label or data[stop - 1] == DASH or stop - label > MOST_LABEL:
                break
            if dots and ends_domain(data, label, stop):
                top = stop
            dots += 1
            label = stop + 1
        elif data[stop] == DASH and stop == label:
            break
        stop += 1
    while stop > label and data[stop - 1] == DASH:
        stop -= 1
    if dots and stop - label <= MOST_LABEL and ends_domain(data, label, stop):
        top = stop
    return (first, top) if 0 < top <= at + 1 + MOST_DOMAIN else none


@compiled
def ip_of_groups(data: Bytes, at: int, start: int, end: int, kinds: int) -> tuple[int, int]:
    """Return the address of IPv6 whose first colon is at a byte; the same place twice for none."""
    none, first = (at, at), at
    while first > start and at - first <= 4 and HEX[data[first - 1]]:
        first -= 1
    if at - first > 4 or (first > start and (ALNUM[data[first - 1]] or data[first - 1] in (COLON, DOT))):
        return none
    place, groups, size, gaps, head, two = first, 0, 0, 0, np.int64(0), np.int64(0)
    while place < end and place - first <= 39:
        byte = data[place]
        if HEX[byte]:
            size += 1
            if size > 4:
                return none
            digit = byte - ZERO if byte < 0x3A else (byte | 0x20) - 87
            if groups == 0:
                head = head << 4 | digit
            elif groups == 1:
                two = two << 4 | digit
            place += 1
        elif byte == COLON:
            if place + 1 < end and data[place + 1] == COLON:
                gaps += 1
                groups += (size > 0) or groups == 0
                size = 0
                place += 2
                if gaps > 1 or (place < end and data[place] == COLON):
                    return none
            elif size == 0 or place + 1 >= end or not HEX[data[place + 1]]:
                break
            else:
                groups += 1
                size = 0
                place += 1
        else:
            break
    if size:
        groups += 1
    elif gaps == 0:
        return none
    if place < end and (ALNUM[data[place]] or (data[place] == COLON and _after_is_hex(data, place, end))):
        return none
    if (gaps == 0 and groups != 8) or (gaps and groups > 7):
        return none
    if groups < 2 or (head == 0 and groups < 3):
        return none
    if kinds & EVERY_IP:
        return first, place
    reserved = head == 0x2002 or (head == 0x3FFF and two < 0x1000) or (head == 0x2001 and (two < 0x200 or two == 0xDB8))
    return (first, place) if 0x2000 <= head < 0x4000 and not reserved else none


@compiled
def _after_is_hex(data: Bytes, at: int, end: int) -> bool:
    return at + 1 < end and (HEX[data[at + 1]] or data[at + 1] == COLON)


@compiled
def _masks(data: Bytes, at: int, kinds: int) -> tuple[np.uint64, np.uint64]:
    """Return which of the 64 bytes from a place on are digits, and which other beginnings; zeros behind the data."""
    digits, others = _U(0), _U(0)
    if at + 64 <= len(data):
        address = np.int64(data.ctypes.data) + at
        digits = find_digits(address)
        if kinds & EMAIL:
            others |= find_ats(address)
        if kinds & IP:
            others |= find_colons(address)
        return digits, others
    for place in range(at, len(data)):
        bit = _U(1) << _U(place - at)
        if ZERO <= data[place] <= ZERO + 9:
            digits |= bit
        elif (data[place] == AT and kinds & EMAIL) or (data[place] == COLON and kinds & IP):
            others |= bit
    return digits, others


@compiled
def find_personal(data: Bytes, offsets: Any, kinds: int, sizes: Any, documents: Any, spans: Any, found: Bytes) -> int:
    """Write what is found, document by document; return how many there are.

    Args:
        data: valid UTF-8 of all documents.
        offsets: int64 [documents + 1].
        kinds: the constants of this module, or-ed.
        sizes: uint8 [676], the length of account numbers by the two letters of a country, 0 for none.
        documents: int64 [bytes / 5 + 1], written: the document of each span.
        spans: int64 [bytes / 5 + 1, 2], written: first byte and end among all bytes.
        found: uint8 [bytes / 5 + 1], written: the kind of each.
    """
    count = np.int64(0)
    for document in range(len(offsets) - 1):
        start, end = offsets[document], offsets[document + 1]
        at, reached, carry = start, start, _U(0)
        while at < end:
            digits, begins = _masks(data, at, kinds)
            if kinds != EMAIL:
                begins |= digits & ~(digits << _U(1) | carry)
            carry = digits >> _U(63)
            if end - at < 64:
                begins &= (_U(1) << _U(end - at)) - _U(1)
            while begins != _U(0):
                place = at + lowest_bit(begins)
                begins &= begins - _U(1)
                if place < reached:
                    continue
                byte = data[place]
                kind = EMAIL
                if byte == AT:
                    first, stop = email(data, place, reached, end)
                elif byte == COLON:
                    first, stop = ip_of_groups(data, place, reached, end, kinds)
                    kind = IP
                else:
                    first, stop, kind = number(data, place, reached, end, kinds, sizes)
                if stop > first:
                    documents[count], spans[count, 0], spans[count, 1], found[count] = document, first, stop, kind
                    count += 1
                    reached = stop
            at += 64
    return count


@compiled
def to_characters(data: Bytes, offsets: Any, documents: Any, spans: Any) -> None:
    """Replace spans of bytes, int64 [spans, 2], by their characters in their documents."""
    document, at, characters = -1, 0, 0
    for span in range(len(spans)):
        if documents[span] != document:
            document, characters = documents[span], 0
            at = offsets[document]
        for side in range(2):
            characters += count_characters(data, at, spans[span, side])
            at = spans[span, side]
            spans[span, side] = characters


@compiled
def replace_spans(
    data: Bytes,
    offsets: Any,
    documents: Any,
    spans: Any,
    words: Any,
    letters: Bytes,
    bounds: Any,
    out: Bytes,
    ends: Any,
) -> None:
    """Write all documents with other bytes in the place of spans.

    Args:
        data: bytes of all documents.
        offsets: int64 [documents + 1].
        documents: int64 [spans], the document of each.
        spans: int64 [spans, 2], bytes among all.
        words: int64 [spans], what each is replaced by.
        letters: uint8, the words one after the other.
        bounds: int64 [words + 1], where each begins.
        out: uint8, written.
        ends: int64 [documents + 1], written: where each document starts in ``out``, and where the last ends.
    """
    span, place = 0, np.int64(0)
    ends[0] = 0
    for document in range(len(offsets) - 1):
        at = offsets[document]
        while span < len(spans) and documents[span] == document:
            place = copy(data, at, spans[span, 0], out, place)
            place = copy(letters, bounds[words[span]], bounds[words[span] + 1], out, place)
            at = spans[span, 1]
            span += 1
        place = copy(data, at, offsets[document + 1], out, place)
        ends[document + 1] = place
