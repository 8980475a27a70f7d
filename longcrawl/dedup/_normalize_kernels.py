"""Normalisation of UTF-8 as numba kernels: bytes in, bytes out, and on request where each byte came from."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import string
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.dedup.normalize import ACCENT, BREAKS, CASED, IGNORABLE, MAPPED, MARKED, REMOVED, SPACE, NormalForms
from longcrawl.kernels.code_points import CAPITAL_SIGMA, FINAL_SIGMA
from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.lookup import stable_order
from longcrawl.kernels.utf8 import decode, last_start

Bytes = npt.NDArray[np.uint8]

MOST_PER_BYTE = 3
"""No character's normal form has more bytes per byte of its UTF-8: Hangul syllables become three letters."""

BLANK = 0x20
_U = np.uint64
_LAST_OF_FINAL_SIGMA = chr(FINAL_SIGMA).encode()[-1]

_KEPT, _BLANK, _NOTHING = range(3)
_KIND = np.array(
    [_BLANK if chr(byte).isspace() else _NOTHING if chr(byte) in string.punctuation else _KEPT for byte in range(0x80)],
    np.uint8,
)
_ASCII = np.array(
    [BLANK if kind == _BLANK else ord(chr(byte).lower()) for byte, kind in enumerate(_KIND)],
    np.uint8,
)
"""What each ASCII character becomes, and what is written unless that is nothing."""


@compiled
def _is_final_sigma(data: Bytes, start: int, at: int, end: int, kinds: Bytes) -> bool:
    """Whether the capital sigma at ``at`` comes after a cased character and before none, ignorable ones passed over."""
    cased = False
    before = at
    while before > start:
        before = last_start(data, before)
        point, _ = decode(data, before)
        if not kinds[point] & IGNORABLE:
            cased = kinds[point] & CASED != 0
            break
    if not cased:
        return False
    after = at + 2
    while after < end:
        point, after = decode(data, after)
        if not kinds[point] & IGNORABLE:
            return kinds[point] & CASED == 0
    return True


@allocating
def _order_marks(out: Bytes, start: int, stop: int, combining: Bytes, sources: Any) -> None:
    """Bring the marks of ``out[start:stop]`` into canonical order: by class between two characters of class 0."""
    points = np.empty(stop - start, np.uint32)
    origins = np.zeros(stop - start, np.int32)
    keys = np.empty(stop - start, np.int64)
    count, starters, at = 0, 0, start
    while at < stop:
        point, after = decode(out, at)
        starters += combining[point] == 0
        points[count] = point
        keys[count] = starters << 8 | combining[point]
        if sources is not None:
            origins[count] = sources[at]
        count += 1
        at = after
    at = start
    for place in stable_order(keys[:count]):
        size = _write_point(out, at, points[place])
        if sources is not None:
            sources[at : at + size] = origins[place]
        at += size


@compiled
def _write_point(out: Bytes, at: int, point: int) -> int:
    """Write a code point beyond ASCII as UTF-8; return how many bytes it takes."""
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for place in range(size - 1, 0, -1):
        out[at + place] = 0x80 | point & 0x3F
        point >>= 6
    out[at] = (0xF00 >> size) & 0xFF | point
    return size


@compiled
def _ascii_run(data: Bytes, at: int, end: int, start: int, out: Bytes, first: int, n: int, sources: Any) -> Any:
    """Write the normal form of ASCII up to another character: where that is, and where the form ends."""
    place, stop, to = _U(at), _U(end), _U(n)
    blank = _U(n == first or out[n - 1] == BLANK)
    while place < stop:
        byte = data[place]
        if byte >= 0x80:
            break
        written = _ASCII[byte]
        out[to] = written
        if sources is not None:
            sources[to] = place - _U(start)
        # Without a branch: a processor guesses wrong where punctuation and blanks stand.
        is_kept, is_blank = _U(_KIND[byte] == _KEPT), _U(_KIND[byte] == _BLANK)
        to += is_kept | (is_blank & ~blank)
        blank = (blank | is_blank) & ~is_kept
        place += _U(1)
    return np.int64(place), np.int64(to)


@compiled
def _write_form(data: Bytes, start: int, at: int, end: int, forms: NormalForms, out: Bytes, n: int) -> int:
    """Write the normal form of one character beyond ASCII that is neither removed nor space; return where it ends."""
    point, after = decode(data, at)
    if not forms.kinds[point] & MAPPED:
        for step in range(after - at):
            out[n + step] = data[at + step]
        return n + after - at
    place = np.int64(forms.places[point])
    length = np.int64(forms.forms[place])
    for step in range(length):
        out[n + step] = forms.forms[place + 1 + step]
    if point == CAPITAL_SIGMA and _is_final_sigma(data, start, at, end, forms.kinds):
        out[n + 1] = _LAST_OF_FINAL_SIGMA
    return n + length


@compiled
def _normalize(data: Bytes, start: int, end: int, forms: NormalForms, out: Bytes, first: int, sources: Any) -> int:
    """Write the normal form of the document ``data[start:end]`` from ``out[first]`` on; return where it ends."""
    at, n, row, marks = start, first, first, 0
    while at < end:
        before, marked = n, False
        if data[at] < 0x80:
            at, n = _ascii_run(data, at, end, start, out, first, n, sources)
            row_ends = n > before
        else:
            point, after = decode(data, at)
            kind = forms.kinds[point]
            marked = kind & MARKED != 0
            row_ends = not marked and (not kind & REMOVED or kind & BREAKS)
            if kind & SPACE:
                out[n] = BLANK
                n += n > first and out[n - 1] != BLANK
            elif not kind & REMOVED:
                n = _write_form(data, start, at, end, forms, out, n)
            if sources is not None:
                sources[before:n] = at - start
            at = after
        if marked:
            row = row if marks > 0 else before
            marks += 1
        elif row_ends:
            if marks > 1:
                _order_marks(out, row, before, forms.combining, sources)
            marks = 0
    if marks > 1:
        _order_marks(out, row, n, forms.combining, sources)
    return n - 1 if n > first and out[n - 1] == BLANK else n


@compiled
def normalize_all(data: Bytes, offsets: Any, forms: NormalForms, out: Bytes, ends: Any, sources: Any) -> None:
    """Normalise every document, valid UTF-8.

    Args:
        data: uint8 [bytes].
        offsets: int64 [documents + 1], where each document starts.
        forms: what is written for every code point.
        out: uint8 [MOST_PER_BYTE * bytes + 8 or more], written: the normal forms one after the other.
        ends: int64 [documents + 1], written: where each starts in ``out``, and where the last ends.
        sources: int32 as long as ``out``, written: the byte of its document at which the character starts that each
            byte comes from; or None.
    """
    ends[0] = 0
    for document in range(len(offsets) - 1):
        ends[document + 1] = _normalize(
            data, offsets[document], offsets[document + 1], forms, out, ends[document], sources
        )


@compiled
def _source_of_span(
    out: Bytes, sources: Any, bounds: tuple[int, int], span: tuple[int, int], original: Bytes, kinds: Bytes
) -> tuple[int, int]:
    """Return the bytes of ``original`` that ``out[start:stop]`` comes from, whole characters only."""
    start, stop = span
    while start < stop and start > bounds[0] and sources[start] == sources[start - 1]:
        start += 1
    while stop > start and stop < bounds[1] and sources[stop] == sources[stop - 1]:
        stop -= 1
    while start < stop and out[start] == BLANK:
        start += 1
    while stop > start and out[stop - 1] == BLANK:
        stop -= 1
    if start == stop:
        return 0, 0
    last = np.int64(sources[stop - 1])
    last = decode(original, last)[1]
    while last < len(original):
        point, after = decode(original, last)
        if not kinds[point] & ACCENT:
            break
        last = after
    first = np.int64(sources[start])
    return _first_of_marks(original, first, kinds), max(last, first)


@compiled
def _first_of_marks(original: Bytes, first: int, kinds: Bytes) -> int:
    """Return where the marks before a character begin that follow white space or nothing, else the character."""
    at = first
    while at > 0:
        before = last_start(original, at)
        kind = kinds[decode(original, before)[0]]
        if not kind & ACCENT:
            return at if kind & SPACE else first
        at = before
    return at


@compiled
def sources_of_spans(
    out: Bytes, ends: Any, sources: Any, data: Bytes, offsets: Any, kinds: Bytes, documents: Any, spans: Any
) -> None:
    """Replace spans of normal forms, int64 [spans, 2], by the bytes of the original documents that they come from.

    ``out``, ``ends`` and ``sources`` are what :func:`normalize_all` made of ``data`` and ``offsets``; ``kinds`` is of
    the normal forms, and ``documents``, int64 [spans], has the document of each span.
    """
    for row in range(len(documents)):
        document = documents[row]
        first, last = ends[document], ends[document + 1]
        span = (first + spans[row, 0], first + spans[row, 1])
        original = data[offsets[document] : offsets[document + 1]]
        spans[row, 0], spans[row, 1] = _source_of_span(out, sources, (first, last), span, original, kinds)


@compiled
def convert_spans(data: Bytes, offsets: Any, rows: Any, spans: Any, to_bytes: bool) -> None:  # noqa: FBT001  # numba
    """Replace spans of characters by their bytes, or spans of bytes by the characters that lie in them whole.

    Args:
        data: valid UTF-8.
        offsets: where each text starts and the last one ends.
        rows: int64 [spans], the text of each span.
        spans: int64 [spans, 2], start and stop in the text; those of one text follow one another and do not overlap.
            A span of bytes without a whole character becomes empty or negative.
        to_bytes: what they become.
    """
    row, at, characters = -1, 0, 0
    for span in range(len(spans)):
        if rows[span] != row:
            row, characters = rows[span], 0
            at = offsets[row]
        end = offsets[row + 1]
        for side in range(2):
            wanted = spans[span, side]
            if to_bytes:
                while characters < wanted or (at < end and data[at] & 0xC0 == 0x80):
                    characters += data[at] & 0xC0 != 0x80
                    at += 1
                spans[span, side] = at - offsets[row]
            else:
                while at < offsets[row] + wanted:
                    characters += data[at] & 0xC0 != 0x80
                    at += 1
                # A character that the span begins within was counted, as it must; one that it ends within must not be.
                spans[span, side] = characters - (side == 1 and at < end and data[at] & 0xC0 == 0x80)
