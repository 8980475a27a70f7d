"""Addresses, numbers of phones, cards and accounts in UTF-8, as numba kernels.

Sixty-four bytes are looked at at once for what all of them have: an ``@``, a digit, or a colon. Checks run only there,
and look at a bounded number of bytes around: time grows with the length of a text alone.
"""

# Checks of a few bytes after each other; a call for each would cost more than what it does:
# ruff: noqa: C901, PLR0911
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import find_ats, find_colons, find_digits, lowest_bit
from longcrawl.kernels.utf8 import copy, count_characters
from longcrawl.text.personal._number_kernels import (
    ALNUM,
    AT,
    CLOSE,
    CLOSE_BRACKET,
    COLON,
    DASH,
    DOMAIN,
    DOT,
    EMAIL,
    EVERY_IP,
    HEX,
    IDENTIFIER,
    IP,
    IPV6,
    LETTER,
    LOCAL,
    OPEN_BRACKET,
    PERCENT,
    SLASH,
    ZERO,
    Bytes,
    codes,
    ip,
    is_digit,
    is_one_of,
    number,
)

_U = np.uint64

MOST_LOCAL, MOST_DOMAIN, MOST_LABEL, MOST_TOP = 64, 253, 63, 24
"""Letters of the parts of an address: RFC 5321, and more than any top-level domain has."""

MOST_ZONE = 16
"""Characters of the name of an interface, its end excluded, and of the mark before it."""

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
def _ip_of_mail(data: Bytes, at: int, end: int) -> int:
    """Return where an address of IP ends that stands for a domain, in brackets or not; where it begins for none."""
    if at >= end or data[at] != OPEN_BRACKET:
        return ip(data, at, at, end, EVERY_IP)
    inside = at + 1
    stop = ip(data, inside, inside, end, EVERY_IP)
    if stop == inside and inside + 5 <= end and data[inside] | 0x20 == 0x69 and data[inside + 4] == COLON:
        inside += 5
        stop = _read_groups(data, inside, end).stop
    return stop + 1 if stop > inside and stop < end and data[stop] == CLOSE_BRACKET else at


@compiled
def email(data: Bytes, at: int, start: int, end: int) -> tuple[int, int]:
    """Return the address around an ``@``; the same place twice for none."""
    first, none = at, (at, at)
    while first > start and at - first <= MOST_LOCAL and LOCAL[data[first - 1]]:
        if data[first - 1] == DOT and data[first] == DOT:
            break
        first -= 1
    while first < at and not IDENTIFIER[data[first]]:
        first += 1
    if first == at or at - first > MOST_LOCAL or data[at - 1] == DOT:
        return none
    stop = _ip_of_mail(data, at + 1, end)
    if stop > at + 1:
        return first, stop
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


class Groups(NamedTuple):
    """An address of IPv6 as it is written."""

    stop: int
    """Where it ends; where it begins for something else."""
    count: int
    """Groups, of which an address of IPv4 at the end is two."""
    gap: int
    """How many groups are before ``::``, -1 without one."""
    head: int
    second: int
    """The first two groups; 0 for a second one behind the gap."""
    widest: int
    """The most digits of a group."""
    tail: int
    """Where an address of IPv4 begins that ends it, -1 for none."""


@compiled
def _read_groups(data: Bytes, at: int, end: int) -> Groups:
    """Read up to eight groups of up to four hexadecimal digits between colons, with at most one gap."""
    none = Groups(at, 0, -1, 0, 0, 0, -1)
    place, count, gap, head, second, widest = at, 0, np.int64(-1), np.int64(0), np.int64(0), 0
    while count <= 8:
        if place + 1 < end and data[place] == COLON and data[place + 1] == COLON:
            if gap >= 0:
                return none
            gap = np.int64(count)
            place += 2
            if place >= end or not HEX[data[place]]:
                break
        elif count:
            if place + 1 >= end or data[place] != COLON or not HEX[data[place + 1]]:
                break
            place += 1
        size, value = 0, np.int64(0)
        while place + size < end and size < 5 and HEX[data[place + size]]:
            byte = data[place + size]
            value = value << 4 | (byte - ZERO if byte < 0x3A else (byte | 0x20) - 87)
            size += 1
        if not 0 < size < 5:
            return none
        if place + size < end and data[place + size] == DOT and (count or gap == 0):
            stop = ip(data, place, place, end, EVERY_IP)
            if stop > place:
                return Groups(stop, count + 2, gap, head, second, 4, place)
        if count == 0:
            head = value
        elif count == 1 and gap != 1:
            second = value
        widest = max(widest, size)
        count += 1
        place += size
    return Groups(place, count, gap, head, second, widest, -1)


@compiled
def _is_alone(data: Bytes, first: int, stop: int, start: int, end: int) -> bool:
    """Whether no identifier, number or colon goes on at either side."""
    if first > start and (IDENTIFIER[data[first - 1]] or data[first - 1] in (COLON, DOT)):
        return False
    if stop >= end:
        return True
    if data[stop] == COLON:
        return not (stop + 1 < end and (IDENTIFIER[data[stop + 1]] or data[stop + 1] == COLON))
    return not (IDENTIFIER[data[stop]] or (data[stop] == DOT and is_digit(data, stop + 1, end)))


@compiled
def _is_slice(data: Bytes, first: int, stop: int, start: int, end: int) -> bool:
    """Whether digits around a gap are in brackets behind a name, or ``::1`` is the last in them: ``x[:, ::1]``."""
    for place in range(first, stop):
        if LETTER[data[place]]:
            return False
    if first == start or data[first - 1] != OPEN_BRACKET:
        return data[first] == COLON and stop < end and data[stop] == CLOSE_BRACKET
    return first - 1 > start and (IDENTIFIER[data[first - 2]] or data[first - 2] in (CLOSE, CLOSE_BRACKET))


@compiled
def _zone_end(data: Bytes, at: int, end: int) -> int:
    """Return where the zone of an address ends, such as ``%eth0``; where it would begin for none."""
    if at + 1 >= end or data[at] != PERCENT or not ALNUM[data[at + 1]]:
        return at
    stop = at + 2
    while stop < end and stop - at <= MOST_ZONE and (IDENTIFIER[data[stop]] or data[stop] == DOT or data[stop] == DASH):
        stop += 1
    while not ALNUM[data[stop - 1]]:
        stop -= 1
    return stop


@compiled
def ip_of_groups(data: Bytes, at: int, start: int, end: int, kinds: int) -> tuple[int, int]:
    """Return the address of IPv6 whose first colon is at a byte; the same place twice for none.

    With a gap, the first group tells an address from names and numbers around ``::``: it is one of a range that IANA
    has given out. Without, it is that some group has three digits or more: eight pairs are another kind of address.
    """
    none, first = (at, at), at
    while first > start and at - first <= 4 and HEX[data[first - 1]]:
        first -= 1
    if at - first > 4:
        return none
    groups = _read_groups(data, first, end)
    stop, count, head, second = groups.stop, groups.count, groups.head, groups.second
    if stop == first:
        return none
    is_local = 0xFE80 <= head < 0xFEC0 or head >= 0xFF00
    is_translated = head == 0x64 and second == 0xFF9B
    if groups.gap < 0:
        is_address = count == 8 and groups.widest >= 3
    elif groups.gap == 0:
        is_loopback = stop == first + 3 and head == 1
        is_address = is_loopback or groups.tail == first + 2 or (head == 0xFFFF and 2 <= count <= 4)
    else:
        is_network = stop < end and data[stop] == SLASH and is_digit(data, stop + 1, end)
        is_address = is_local or is_translated or 0x2000 <= head < 0x4000 or 0xFC00 <= head < 0xFE00
        is_address = is_address and count <= 7 and (count > 1 or is_network)
    if not is_address or (groups.gap >= 0 and count <= 2 and _is_slice(data, first, stop, start, end)):
        return none
    if is_local and groups.gap != 0:
        stop = _zone_end(data, stop, end)
    if not _is_alone(data, first, stop, start, end):
        return none
    if kinds & EVERY_IP:
        return first, stop
    if groups.tail >= 0 and (groups.gap == 0 or is_translated):
        return (first, stop) if ip(data, groups.tail, groups.tail, end, IP) > groups.tail else none
    reserved = head == 0x2002 or (head == 0x3FFF and second < 0x1000)
    reserved = reserved or (head == 0x2001 and (second < 0x200 or second == 0xDB8))
    return (first, stop) if 0x2000 <= head < 0x4000 and groups.gap != 0 and not reserved else none


@compiled
def _masks(data: Bytes, at: int, kinds: int) -> tuple[np.uint64, np.uint64]:
    """Return which of the 64 bytes from a place on are digits, and which other beginnings; zeros behind the data."""
    digits, others = _U(0), _U(0)
    if at + 64 <= len(data):
        address = np.int64(data.ctypes.data) + at
        digits = find_digits(address)
        if kinds & EMAIL:
            others |= find_ats(address)
        if kinds & IPV6:
            others |= find_colons(address)
        return digits, others
    for place in range(at, len(data)):
        bit = _U(1) << _U(place - at)
        if ZERO <= data[place] <= ZERO + 9:
            digits |= bit
        elif (data[place] == AT and kinds & EMAIL) or (data[place] == COLON and kinds & IPV6):
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
        documents: int64 [bytes / 3 + 1], written: the document of each span.
        spans: int64 [bytes / 3 + 1, 2], written: first byte and end among all bytes.
        found: uint8 [bytes / 3 + 1], written: the kind of each.
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
                    first, stop = ip_of_groups(data, place, start, end, kinds)
                    stop = stop if first >= reached else first
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
