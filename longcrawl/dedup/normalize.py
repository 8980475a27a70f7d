"""Text normalization of RefinedWeb, with a mapping back to the original text.

In this order: punctuation is removed, letters are lowered, NFD is applied, accents are removed and white space is
normalised. The paper (arXiv 2306.01116, G.3.1) leaves these choices open:

* punctuation is Unicode category P and all ASCII punctuation, including ``$+<=>^`|~``; it leaves no space;
* invisible characters (Default_Ignorable_Code_Point) are removed with it: soft hyphens, zero-width spaces and joiners,
  word joiners, variation selectors. Two texts that look alike then have one normal form;
* letters are lowered as ``str.lower`` does, with the final sigma decided after punctuation is removed;
* accents are nonspacing marks (category Mn). That includes vowel signs of Indic scripts;
* any run of white space becomes one space, and there is none at either end.
"""

import string
import unicodedata
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError
from longcrawl.kernels import code_points
from longcrawl.kernels.code_points import CAPITAL_SIGMA, CODE_POINTS, FINAL_SIGMA, cached_arrays, load_characters
from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.lookup import stable_order
from longcrawl.kernels.texts import decode, last_start, text_buffers, text_column

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

SPACE = 1 << 0
REMOVED = 1 << 1
"""Punctuation, an accent or a default ignorable: removed from the normal form."""
MAPPED = 1 << 2
"""Has its normal form in ``forms``; a character that is not MAPPED, REMOVED or SPACE is copied unchanged."""
CASED = 1 << 3
IGNORABLE = 1 << 4
"""Skipped by the rule of the final sigma: case-ignorable, or punctuation, which is removed first."""
MARKED = 1 << 5
"""Has a normal form with a combining class other than 0, so marks around it may need to be reordered."""
BREAKS = 1 << 6
"""Removed, but of combining class 0: marks before it are not reordered with those after it."""
ACCENT = 1 << 7
"""An accent or a default ignorable, so it belongs to the character before it."""


class NormalForms(NamedTuple):
    """Lookup tables with the normal form of every code point."""

    kinds: npt.NDArray[np.uint8]
    """Shape (0x110000,): the constants of this module, or-ed."""
    places: npt.NDArray[np.uint32]
    """Shape (0x110000,): start of a mapped character's form in ``forms``."""
    forms: npt.NDArray[np.uint8]
    """UTF-8 of all forms end to end, each after one byte with its length in bytes."""
    combining: npt.NDArray[np.uint8]
    """Canonical combining class."""


class Normalized(NamedTuple):
    """Normal forms of several texts, with the source position of each byte."""

    texts: pa.Array
    """Large strings, one per text, end to end in one buffer that starts at its byte 0."""
    sources: npt.NDArray[np.int32]
    """For each byte of that buffer, the offset in its original text of the character, or first space, it is from."""
    originals: pa.Array

    def source_spans(self, texts: Longs, spans: Longs) -> Longs:
        """Map spans of the normal forms back to spans of the original texts, int64 [spans, 2] in bytes.

        A returned span never begins or ends inside a character, nor with white space or punctuation; a span without one
        whole character gives [0, 0]. Accents and invisible characters go with the character before them, if there is
        one. ``texts``, int64 [spans], has the text of each span.
        """
        found = np.array(spans, np.int64).reshape(-1, 2)
        originals, kinds = text_buffers(self.originals), load_normal_forms().kinds
        sources_of_spans(*text_buffers(self.texts), self.sources, *originals, kinds, np.asarray(texts, np.int64), found)
        return found


def normalize(texts: pa.Array) -> pa.Array:
    r"""Return the normal form of every text as large strings; null becomes empty.

    >>> import pyarrow as pa
    >>> normalize(pa.array(["  The Café's\tCRÊPES -- ΟΔΟΣ, 5 €!  "]))[0].as_py()
    'the cafes crepes οδος 5 €'

    Args:
        texts: strings or large strings, valid UTF-8 (``longcrawl.kernels.texts`` ensures that).
    """
    originals = _filled(texts)
    return text_column(*normal_bytes(originals), originals, pa.large_string())


def normalize_with_sources(texts: pa.Array) -> Normalized:
    """Return the normal forms with the source position of each byte; StageError for a text of 2**31 bytes."""
    originals = _filled(texts)
    _, offsets = text_buffers(originals)
    if np.diff(offsets).max(initial=0) >= 1 << 31:
        raise StageError("a text of 2 GiB or more is too long to map spans to: cut it first")
    sources = np.empty(_room(offsets), np.int32)
    out, ends = normal_bytes(originals, sources)
    return Normalized(text_column(out, ends, originals, pa.large_string()), sources[: ends[-1]], originals)


def normal_bytes(originals: pa.Array, sources: npt.NDArray[np.int32] | None = None) -> tuple[Bytes, Longs]:
    """Return the normal forms of large strings without nulls as bytes, then 64 undefined ones, and their offsets."""
    data, offsets = text_buffers(originals)
    out = np.empty(_room(offsets), np.uint8)  # untouched pages take no memory
    ends = np.empty(len(originals) + 1, np.int64)
    normalize_all(data, offsets, load_normal_forms(), out, ends, sources)
    return out, ends


def _room(offsets: Longs) -> int:
    return MOST_PER_BYTE * int(offsets[-1] - offsets[0]) + 64


def _filled(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.cast(texts, pa.large_string()), "")


@lru_cache(maxsize=1)
def load_normal_forms() -> NormalForms:
    """Load the lookup tables for this Python's Unicode version."""
    return NormalForms(**cached_arrays("normal-2", lambda: _build()._asdict()))


def _build() -> NormalForms:
    characters = load_characters("re")
    kinds = np.zeros(CODE_POINTS, np.uint8)
    kinds[characters.flags & code_points.CASED != 0] = CASED
    kinds[characters.flags & code_points.IGNORABLE != 0] |= IGNORABLE
    places = np.zeros(CODE_POINTS, np.uint32)
    forms = bytearray()
    ignorable = np.zeros(CODE_POINTS, np.bool_)
    for first, last in code_points.DEFAULT_IGNORABLE:
        ignorable[first : last + 1] = True
    kinds[ignorable] = REMOVED | IGNORABLE | ACCENT
    for point in np.flatnonzero(~ignorable).tolist():
        character = chr(point)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs"):
            continue
        if character.isspace():
            kinds[point] |= SPACE
        elif category[0] == "P" or character in string.punctuation:
            kinds[point] |= REMOVED | IGNORABLE
        else:
            kept, form = _without_accents(character)
            kinds[point] |= kept
            if kept & MAPPED:
                places[point] = len(forms)
                forms += bytes([len(form)]) + form
    return NormalForms(kinds, places, np.frombuffer(bytes(forms), np.uint8), characters.combining)


def _without_accents(character: str) -> tuple[int, bytes]:
    decomposed = unicodedata.normalize("NFD", character.lower())
    kept = "".join(point for point in decomposed if unicodedata.category(point) != "Mn")
    if not kept:
        return REMOVED | ACCENT | (0 if all(map(unicodedata.combining, decomposed)) else BREAKS), b""
    marked = MARKED if any(map(unicodedata.combining, kept)) else 0
    return marked | (0 if kept == character else MAPPED), kept.encode()


MOST_PER_BYTE = 3
"""Greatest growth of a character's UTF-8, in bytes per byte: a Hangul syllable becomes three letters."""

BLANK = 0x20
_U = np.uint64
_LAST_OF_FINAL_SIGMA = chr(FINAL_SIGMA).encode()[-1]

_KEPT, _BLANK, _NOTHING = range(3)
_KIND = np.array(
    [_BLANK if chr(byte).isspace() else _NOTHING if chr(byte) in string.punctuation else _KEPT for byte in range(0x80)],
    np.uint8,
)
# The normal form of each ASCII character; not used for characters of the kind _NOTHING.
_ASCII = np.array([BLANK if kind == _BLANK else ord(chr(byte).lower()) for byte, kind in enumerate(_KIND)], np.uint8)


@compiled
def _is_final_sigma(data: Bytes, start: int, at: int, end: int, kinds: Bytes) -> bool:
    """Whether the capital sigma at ``at`` follows a cased character and precedes none, ignorable ones skipped."""
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
    """Put the marks of ``out[start:stop]`` into canonical order: by class, between two characters of class 0."""
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
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for place in range(size - 1, 0, -1):
        out[at + place] = 0x80 | point & 0x3F
        point >>= 6
    out[at] = (0xF00 >> size) & 0xFF | point
    return size


@compiled
def _ascii_run(data: Bytes, at: int, end: int, start: int, out: Bytes, first: int, n: int, sources: Any) -> Any:
    """Normalise ASCII up to the next other character; return the position of that character and the end of the form."""
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
        # Without a branch: processors mispredict the positions of punctuation and blanks.
        is_kept, is_blank = _U(_KIND[byte] == _KEPT), _U(_KIND[byte] == _BLANK)
        to += is_kept | (is_blank & ~blank)
        blank = (blank | is_blank) & ~is_kept
        place += _U(1)
    return np.int64(place), np.int64(to)


@compiled
def _write_form(data: Bytes, start: int, at: int, end: int, forms: NormalForms, out: Bytes, n: int) -> int:
    """Write the normal form of a character beyond ASCII that is neither removed nor space; return its end."""
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
    """Normalise every document of valid UTF-8 to ``out``, with MOST_PER_BYTE * bytes + 8, and write ``ends``."""
    ends[0] = 0
    for document in range(len(offsets) - 1):
        ends[document + 1] = _normalize(
            data, offsets[document], offsets[document + 1], forms, out, ends[document], sources
        )


@compiled
def _source_of_span(
    out: Bytes, sources: Any, bounds: tuple[int, int], span: tuple[int, int], original: Bytes, kinds: Bytes
) -> tuple[int, int]:
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
    """Return the start of marks before a character that follow white space or nothing, or else the character."""
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
    """Replace spans of normal forms, int64 [spans, 2], by the bytes of the original documents that they come from."""
    for row in range(len(documents)):
        document = documents[row]
        first, last = ends[document], ends[document + 1]
        span = (first + spans[row, 0], first + spans[row, 1])
        original = data[offsets[document] : offsets[document + 1]]
        spans[row, 0], spans[row, 1] = _source_of_span(out, sources, (first, last), span, original, kinds)


@compiled
def convert_spans(data: Bytes, offsets: Any, rows: Any, spans: Any, to_bytes: bool) -> None:  # noqa: FBT001  # numba
    """Convert spans of characters to bytes, or spans of bytes to the characters that are wholly inside them.

    ``rows`` is the text of each span, int64 [spans, 2]; those of one text follow one another and do not overlap. A span
    of bytes without a whole character becomes empty or negative.
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
                # A character cut by the start of the span is counted, to skip it; one cut by the end must not be.
                spans[span, side] = characters - (side == 1 and at < end and data[at] & 0xC0 == 0x80)
