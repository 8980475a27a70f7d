"""Words of a PDF page with their boxes, as PDFium reads them, and the kind of the page.

A cluster is a group of characters of an Arabic, Thai or Indic script that one or several glyphs draw together.
Browsers and Typst store its text beside the glyphs (ActualText: ISO 32000-1, 14.9.4). PDFium returns this text again
for a glyph that another one separates from the first, breaks words and lines there, and uses the box of the ink instead
of that of the font; :func:`join_clusters` repairs this.

This module and :mod:`longcrawl.text.pdf.ink` call PDFium's C functions. They are imported in workers only, since a
damaged file can crash PDFium; it is not thread-safe.
"""

import ctypes
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain, compress, repeat, starmap
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium

from longcrawl.text.pdf.ink import find_ink
from longcrawl.text.pdf.right_to_left import RIGHT_TO_LEFT, SPACE_GAP

Kind = Literal["text", "scan", "garbled", "blank", "failed"]
"""Kind of a page: readable text; text as an image or as outlines; text without a usable character map; no ink; not
readable."""
Numbers = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

MOST_CHARACTERS = 2_000_000
"""Characters of a page above which it counts as failed: a page of a book has 3,000, the densest tables 50,000."""
_FEW = 10
"""Characters below which a page with an image or outlines is a scan with a page number."""
_FEW_BESIDE_IMAGE = 100
"""Characters below which a page that is mostly image is a scan with a stamp or a page number."""
_SAMPLES = 64
"""Number of characters of a page that are checked for a character map."""
_SPACES = (*range(9, 14), 0x20, 0x85, 0xA0, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x3000)
HYPHEN_MARKS = (0x2, 0xFFFE)
"""Characters by which PDFium replaces a hyphen at the end of a line, together with the line break."""
_LINE_FEED, _SPACE = -2, -1
"""Classes of white space, which are negative."""
_MARK, _BAD, _SURROGATE, _ACCENT, _COMBINING_MARK, _RIGHT_TO_LEFT = range(1, 7)
_COMBINING = dict(
    zip(
        "`\u00b4^\u02c6~\u02dc\u00af\u02d8\u02d9\u00a8\u02da\u02dd\u02c7\u00b8\u02db",
        "\u0300\u0301\u0302\u0302\u0303\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0328",
        strict=True,
    )
)
"""Combining forms of accents, which some fonts, such as TeX's older ones, draw over a letter."""
_WITH_DOT = {"\u0131": "i", "\u0237": "j"}
_LIGATURES = dict(
    zip(
        "\x02\x03\x0b\x0c\x0e\x0f\x1b\x1c\x1d\x1e\x1f",
        "\ufb01\ufb02\ufb00\ufb01\ufb03\ufb04\ufb00\ufb01\ufb02\ufb03\ufb04",
        strict=True,
    )
)
"""Ligatures by their codes in TeX's encodings 8r, OT1 and T1, which PDFium returns if a font has no map."""
_MAY_BE_LIGATURE = re.compile(f"[{''.join(_LIGATURES)}]")
_BAD_CHARACTERS = 0.05
_MAP_ERRORS = 0.3
_HIDDEN = 3
"""Render mode of text that is neither filled nor stroked, as OCR writes over a scan."""
_SLOTS = 4096
"""Boxes that are read at once."""

_RECENT = 8
"""Clusters before a new one that it may repeat."""
_COMMON = 0.5
"""Minimum share of the narrower of two clusters that overlaps with the other if one repeats the other."""
_ALL_COMMON = 0.9
"""The share for clusters without ActualText. A mark with the origin of the next letter overlaps the cluster before."""
_NARROW = 0.8
"""Share of the other cluster's width below which a cluster is the repetition; otherwise the second one is."""
_APART = 4
"""Maximum distance from a character of a cluster to the next one, in places."""
_AM = "\u0e33\u0eb3"
"""Thai and Lao am, whose second glyph is not in an ink box."""
_AM_GAP = 0.5
"""Gap behind such an am, in line heights, that counts as a space."""
_SAME_LINE = 0.15
"""Maximum difference of the baselines of a line's characters, in line heights."""


def _make_classes() -> Classes:
    """Return the class of each code point below U+10000."""
    classes = np.zeros(0x10000, np.int8)
    # Ideographs and syllables, which would take four times as long, hold no marks.
    codes = chain(range(0x3100), range(0xA000, 0xAC00), range(0xFB00, 0x10000))
    classes[[code for code in codes if unicodedata.category(chr(code)) in ("Mn", "Mc")]] = _COMBINING_MARK
    classes[[ord(found[0]) for found in RIGHT_TO_LEFT.finditer("".join(map(chr, range(0x10000))))]] = _RIGHT_TO_LEFT
    classes[0xD800:0xE000] = _SURROGATE
    # Control, private-use and replacement characters, which fonts without a map yield.
    classes[[*range(9), *range(0xE000, 0xF900), 0xFFFD]] = _BAD
    classes[list(HYPHEN_MARKS)] = _MARK
    classes[list(_SPACES)] = _SPACE
    classes[ord("\n")] = _LINE_FEED
    classes[list(map(ord, _COMBINING))] = _ACCENT
    return classes


_CLASSES = _make_classes()


class Words(NamedTuple):
    """Text of a page, and the words in it, in PDFium's content order."""

    text: str
    """Characters of the page; lines end with a carriage return and a line feed."""
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    """Number of the line of each word; a hyphen mark ends a line."""
    boxes: Numbers
    """Left, bottom, right and top of each word in points, float32, ``(words, 4)``. Height is that of the font."""
    climbs: npt.NDArray[np.bool_]
    """Whether the last character of a word is rather above or below the first one than beside it."""
    characters: Numbers | None
    """Boxes of all characters if the page has right-to-left text, and the left and right edge of their ink, float32,
    ``(characters, 6)``; the ink of characters that PDFium has inserted is NaN."""

    @property
    def is_right_to_left(self) -> bool:
        """Whether more than half of the letters are right-to-left ones."""
        if self.characters is None:
            return False
        return 2 * len(RIGHT_TO_LEFT.findall(self.text)) > sum(map(str.isalpha, self.text))


class Page(NamedTuple):
    """Words of a page and the page's kind."""

    kind: Kind
    words: Words | None
    """None unless the kind is "text"."""


def bulk(function: Any, returned: Any = None, *arguments: Any) -> Any:
    """Return a short C function that is cheaper to call many times.

    If ``arguments`` are not given, the function takes plain integers and results of :func:`pointer`, which ctypes does
    not convert. The calls keep the interpreter lock.
    """
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None  # for mypy: a function has an address
    return ctypes.PYFUNCTYPE(returned, *arguments)(address)


def pointer(handle: Any) -> Any:
    """Return a pointer, or the address of one, as an argument of a bulk function."""
    return ctypes.c_void_p.from_param(ctypes.cast(handle, ctypes.c_void_p).value)


def addresses(table: npt.NDArray[np.float64], place: int) -> range:
    """Return the addresses of a column's values."""
    start, step = table.ctypes.data + place * table.itemsize, table.strides[0]
    return range(start, start + step * len(table), step)


_get_text = bulk(pdfium.FPDFText_GetText, ctypes.c_int)
_loose_box = bulk(pdfium.FPDFText_GetLooseCharBox)
_ink_box = bulk(pdfium.FPDFText_GetCharBox, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 4)
_is_hyphen = bulk(pdfium.FPDFText_IsHyphen, ctypes.c_int)
_map_error = bulk(pdfium.FPDFText_HasUnicodeMapError, ctypes.c_int)
_unicode = bulk(pdfium.FPDFText_GetUnicode, ctypes.c_uint)
_is_generated = bulk(pdfium.FPDFText_IsGenerated, ctypes.c_int)
_text_object = bulk(pdfium.FPDFText_GetTextObject, pdfium.FPDF_PAGEOBJECT)
_render_mode = bulk(pdfium.FPDFTextObj_GetTextRenderMode, ctypes.c_int)
_origin = bulk(pdfium.FPDFText_GetCharOrigin, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 2)

_boxes = np.zeros((_SLOTS, 4), np.float32)
_slots = [ctypes.c_void_p.from_param(_boxes.ctypes.data + _boxes.strides[0] * slot) for slot in range(_SLOTS)]
"""Pointers to the rows of ``_boxes``."""


def read_page(document: Any, number: int, hidden_text: str, waiting: Callable[[], AbstractContextManager[Any]]) -> Page:
    """Read a page of an open document, counted from 0; ``waiting`` surrounds what may take long.

    If ``hidden_text`` is "keep", a scanned page with text that is not painted is of the kind "text".
    """
    page = characters = None
    try:
        with waiting():
            page = pdfium.FPDF_LoadPage(document, number)
            if page:
                # PDFium's order of text follows the turned page.
                if pdfium.FPDFPage_GetRotation(page):
                    pdfium.FPDFPage_SetRotation(page, 0)
                characters = pdfium.FPDFText_LoadPage(page)
        return _read_characters(page, characters, hidden_text) if characters else Page("failed", None)
    finally:
        if characters:
            pdfium.FPDFText_ClosePage(characters)
        if page:
            pdfium.FPDF_ClosePage(page)


def _read_characters(page: Any, characters: Any, hidden_text: str) -> Page:
    count = pdfium.FPDFText_CountChars(characters)
    if count > MOST_CHARACTERS:
        return Page("failed", None)
    handle = pointer(characters)
    text, classes = _text(handle, max(count, 0))
    text = _with_ligatures(text, classes, handle)
    inked = np.flatnonzero(classes >= 0)
    ink = len(inked)
    errors, hidden = _sampled(handle, inked)
    if np.count_nonzero(classes == _BAD) > _BAD_CHARACTERS * count or errors > _MAP_ERRORS:
        return Page("garbled", None)
    is_hidden = hidden > 0.5 and hidden_text != "keep"
    if ink < _FEW_BESIDE_IMAGE or is_hidden:
        others = find_ink(page)
        if ink < _FEW and (others.images >= 0.05 or others.has_outlines):
            return Page("scan", None)
        if not ink:
            return Page("blank", None)
        if others.images > 0.5 and (ink < _FEW_BESIDE_IMAGE or is_hidden):
            return Page("scan", None)
    return Page("text", _words(_with_accents(text, classes, handle), classes, handle))


def _text(handle: Any, count: int) -> tuple[str, Classes]:
    """Return the characters of a page as a string, and their classes, one for each of PDFium's indexes."""
    units = np.zeros(count + 1, np.uint16)
    written = _get_text(handle, 0, count, ctypes.c_void_p.from_param(units.ctypes.data)) - 1
    classes = _CLASSES.take(units[:count])
    if written == count and not (classes == _SURROGATE).any():
        return units[:count].astype("<u2", copy=False).tobytes().decode("utf-16-le"), classes
    codes = np.fromiter(map(_unicode, repeat(handle, count), range(count)), np.uint32, count)
    _join_surrogates(codes)
    codes[(codes >= 0x110000) | ((codes >= 0xD800) & (codes < 0xE000))] = 0xFFFD
    return codes.astype("<u4").tobytes().decode("utf-32-le"), _CLASSES[np.minimum(codes, 0xFFFF)]


def _join_surrogates(codes: npt.NDArray[np.uint32]) -> None:
    """Replace pairs, which PDFium counts as two characters, by the character and U+FFFF, which is no character."""
    first = np.flatnonzero((codes[:-1] >> 10 == 0xD800 >> 10) & (codes[1:] >> 10 == 0xDC00 >> 10))
    codes[first] = 0x10000 + ((codes[first] & 0x3FF) << 10) + (codes[first + 1] & 0x3FF)
    codes[first + 1] = 0xFFFF


def _with_ligatures(text: str, classes: Classes, handle: Any) -> str:
    """Replace the codes of ligatures; a hyphen mark that stands for neither is a bad character."""
    if not any(map(text.__contains__, _LIGATURES)):
        return text
    characters = list(text)
    for found in _MAY_BE_LIGATURE.finditer(text):
        place, code = found.start(), found[0]
        is_mark = classes[place] == _MARK
        if is_mark and _is_hyphen(handle, place) == 1:
            continue
        if text[place + 1 : place + 2].islower() and _map_error(handle, place) == 1:
            characters[place], classes[place] = _LIGATURES[code], 0
        elif is_mark:
            characters[place], classes[place] = "\0", _BAD
    return "".join(characters)


def _with_accents(text: str, classes: Classes, handle: Any) -> str:
    """Join accents to the letters that follow in the same place; U+FFFF is where the letter was."""
    accents = [place for place in np.flatnonzero(classes[:-1] == _ACCENT).tolist() if text[place + 1].isalpha()]
    if not accents:
        return text
    left, _, right, _ = character_boxes(handle, [*accents, *(place + 1 for place in accents)]).T.reshape(4, 2, -1)
    common, narrower = right.min(0) - left.max(0), (right - left).min(0)
    characters = list(text)
    for place in np.array(accents)[common > 0.5 * narrower].tolist():
        letter = _WITH_DOT.get(text[place + 1], text[place + 1])
        composed = unicodedata.normalize("NFC", letter + _COMBINING[text[place]])
        if len(composed) == 1:
            characters[place : place + 2] = composed, "\uffff"
    return "".join(characters)


def _sampled(handle: Any, places: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the shares of sampled characters without an entry in a character map, and of those not painted."""
    sample = places[:: max(1, len(places) // _SAMPLES)].tolist()
    if not sample:
        return 0.0, 0.0
    errors = list(map(_map_error, repeat(handle), sample)).count(1)
    objects = list(filter(None, map(_text_object, repeat(handle), sample[::4])))
    hidden = list(map(_render_mode, objects)).count(_HIDDEN)
    return errors / len(sample), hidden / max(len(objects), 1)


def _words(text: str, classes: Classes, handle: Any) -> Words:
    every = None
    # Combining marks and right-to-left letters, the last classes, may be in clusters.
    if classes.max(initial=0) >= _COMBINING_MARK:
        every, heights, generated = _all_boxes(handle, len(classes))
        kept, spaces = join_clusters(handle, text, every, heights, generated)
        every[generated, 4:] = np.nan
        letters = list(text)
        for place in spaces:
            letters[place], classes[place], every[place, 4:] = " ", _SPACE, np.nan
        text, classes, every = "".join(compress(letters, kept.tolist())), classes[kept], every[kept]
    inked = classes >= 0
    marks = classes == _MARK
    ends = ~inked | marks
    begins, closes = inked.copy(), inked.copy()
    begins[1:] &= ends[:-1]
    closes[:-1] &= marks[:-1] | ~inked[1:]
    starts, stops = np.flatnonzero(begins), np.flatnonzero(closes) + 1
    lines = np.cumsum(marks | (classes == _LINE_FEED))[starts]
    edges = np.concatenate([starts, stops - 1])
    corners = character_boxes(handle, edges.tolist()) if every is None else every[edges, :4]
    first, last = corners[: len(starts)], corners[len(starts) :]
    boxes = np.minimum(first, last)
    np.maximum(first[:, 2:], last[:, 2:], out=boxes[:, 2:])
    centers = corners[:, :2] + corners[:, 2:]
    steps = np.abs(centers[len(starts) :] - centers[: len(starts)])
    characters = every if (classes == _RIGHT_TO_LEFT).any() else None
    return Words(text, starts, stops, lines, boxes, steps[:, 1] > steps[:, 0], characters)


def _all_boxes(handle: Any, count: int) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Return boxes with the edges of the ink, bottoms and tops of the ink, and which characters PDFium has inserted."""
    boxes = np.empty((count, 6), np.float32)
    boxes[:, :4] = character_boxes(handle, range(count))
    ink = np.zeros((count, 4))
    deque(map(_ink_box, repeat(handle), range(count), *(addresses(ink, edge) for edge in range(4))), maxlen=0)
    boxes[:, 4:] = ink[:, :2]
    generated = np.fromiter(map(_is_generated, repeat(handle, count), range(count)), np.int32, count)
    return boxes, ink[:, 2:].astype(np.float32), generated == 1


def character_boxes(handle: Any, places: Sequence[int]) -> Numbers:
    """Return left, bottom, right and top of characters, float32, ``(places, 4)``; zeros where PDFium has no box."""
    found = np.zeros((len(places), 4), np.float32)
    for start in range(0, len(places), _SLOTS):
        some = places[start : start + _SLOTS]
        _boxes[: len(some)] = 0
        deque(starmap(_loose_box, zip(repeat(handle), some, _slots, strict=False)), maxlen=0)
        found[start : start + len(some)] = _boxes[: len(some), [0, 3, 2, 1]]  # FS_RECTF is left, top, right, bottom
    return found


class _Shown(NamedTuple):
    """Characters of a page."""

    text: str
    boxes: Numbers
    origins: npt.NDArray[np.float64]
    has_ink_box: Flags

    def has_space(self, before: int, after: int) -> bool:
        """Return whether the gap between two characters is as wide as a space."""
        one, other = self.boxes[before], self.boxes[after]
        least = _AM_GAP if self.text[before] in _AM and self.has_ink_box[before] else SPACE_GAP
        return bool(max(other[0] - one[2], one[0] - other[2]) > least * (one[3] - one[1]))


class _Cluster(NamedTuple):
    letters: list[str]
    """Characters in alphabetical order, since PDFium reverses those of some glyphs."""
    places: list[int]
    left: float
    right: float
    height: float
    baseline: float
    has_ink_box: bool


def join_clusters(
    handle: Any, text: str, boxes: Numbers, heights: Numbers, generated: Flags
) -> tuple[Flags, list[int]]:
    """Set one box, with the height of the line, for the characters of a cluster; find those that are repeated.

    Args:
        handle: argument for the page's text, see :func:`pointer`.
        text: characters of the page.
        boxes: left, bottom, right and top of each character, and the left and right edge of its ink, in points,
            float32, ``(characters, 6)``; changed in place.
        heights: bottom and top of the ink, float32, ``(characters, 2)``.
        generated: whether PDFium has inserted a character, such as a space.

    Returns:
        True for the characters to keep; False for repeated ones, and for spaces and line breaks inserted around them.
        And the places of repeated characters that stand for the space between two words.
    """
    origins = np.zeros((len(text), 2))
    deque(map(_origin, repeat(handle), range(len(text)), *(addresses(origins, axis) for axis in range(2))), maxlen=0)
    is_blank = np.array([each.isspace() for each in text], np.bool_)
    inserted = is_blank & generated
    has_ink_box = (boxes[:, [1, 3]] == heights).all(1) & ~is_blank
    _set_heights(boxes, origins[:, 1], has_ink_box, ~has_ink_box & (boxes[:, 3] > boxes[:, 1]))
    clusters = _clusters(origins, ~(is_blank | generated))
    for places in clusters:
        some = boxes[places]
        boxes[places] = np.where([True, True, False, False, True, False], some.min(0), some.max(0))
    kept = np.ones(len(text), np.bool_)
    shown = _Shown(text, boxes, origins, has_ink_box)
    kept[_repeated(shown, clusters)] = False
    spaces = _join_around(shown, kept, inserted)
    kept[_behind_am(shown, np.flatnonzero(kept).tolist(), inserted)] = False
    return kept, spaces


def _clusters(origins: Any, inked: Flags) -> list[list[int]]:
    """Return the places of the characters of each cluster, which have one origin."""
    shared = np.zeros(len(inked), np.bool_)
    for apart in range(1, min(_APART, len(inked) - 1) + 1):
        same = (origins[apart:] == origins[:-apart]).all(1) & inked[apart:] & inked[:-apart]
        shared[apart:] |= same
        shared[:-apart] |= same
    latest: dict[tuple[float, float], list[int]] = {}
    found = list[list[int]]()
    for place, origin in zip(np.flatnonzero(shared).tolist(), map(tuple, origins[shared].tolist()), strict=True):
        places = latest.get(origin)
        if places is None or place - places[-1] > _APART:
            latest[origin] = places = []
            found.append(places)
        places.append(place)
    return found


def _repeated(shown: _Shown, clusters: list[list[int]]) -> list[int]:
    """Return the places of clusters that repeat another one."""
    found = list[int]()
    recent: deque[_Cluster] = deque(maxlen=_RECENT)
    for places in clusters:
        _, bottom, _, top, left, right = shown.boxes[places[0]].tolist()
        letters = sorted(shown.text[place] for place in places)
        has_ink_box = bool(shown.has_ink_box[places].any())
        cluster = _Cluster(letters, places, left, right, top - bottom, shown.origins[places[0], 1], has_ink_box)
        same = next((each for each in recent if _repeats(each, cluster)), None)
        if same is None:
            recent.append(cluster)
        elif _width(same) < _NARROW * _width(cluster):
            found += same.places
            recent[recent.index(same)] = cluster
        else:
            found += places
    return found


def _repeats(one: _Cluster, other: _Cluster) -> bool:
    common = min(one.right, other.right) - max(one.left, other.left)
    least = _COMMON if one.has_ink_box or other.has_ink_box else _ALL_COMMON
    is_common = common > least * min(_width(one), _width(other))
    is_same_line = abs(one.baseline - other.baseline) < _SAME_LINE * max(one.height, other.height)
    return one.letters == other.letters and is_common and is_same_line


def _width(cluster: _Cluster) -> float:
    return cluster.right - cluster.left


def _behind_am(shown: _Shown, places: list[int], inserted: Flags) -> list[int]:
    """Return the places of spaces wrongly inserted behind am; ``places`` are the places of the characters."""
    if not any(am in shown.text for am in _AM):
        return []
    return [
        place
        for before, place, after in zip(places, places[1:], places[2:], strict=False)
        if inserted[place] and shown.text[before] in _AM and not shown.has_space(before, after)
    ]


def _set_heights(boxes: Numbers, baselines: Any, has_ink_box: Flags, plain: Flags) -> None:
    """Set the bottom and the top of characters to those of plain ones on their baseline, else of all."""
    lines, line_of = np.unique(np.round(baselines, 1), return_inverse=True)
    has_plain = np.bincount(line_of[plain], minlength=len(lines)) > 0
    used = plain | (has_ink_box & ~has_plain[line_of])
    bottoms, tops = np.full(len(lines), np.inf, np.float32), np.full(len(lines), -np.inf, np.float32)
    np.minimum.at(bottoms, line_of[used], boxes[used, 1])
    np.maximum.at(tops, line_of[used], boxes[used, 3])
    boxes[has_ink_box, 1], boxes[has_ink_box, 3] = bottoms[line_of[has_ink_box]], tops[line_of[has_ink_box]]


def _join_around(shown: _Shown, kept: Flags, inserted: Flags) -> list[int]:
    """Do not keep spaces and line breaks inserted around repeated characters; return places to keep as a space."""
    spaces = list[int]()
    done = 0
    for place in np.flatnonzero(~kept).tolist():
        if place < done:
            continue
        start = done = place
        while start > 0 and (inserted[start - 1] or not kept[start - 1]):
            start -= 1
        while done < len(shown.text) and (inserted[done] or not kept[done]):
            done += 1
        if start == 0 or done == len(shown.text):
            continue
        height = shown.boxes[done, 3] - shown.boxes[done, 1]
        if abs(shown.origins[start - 1, 1] - shown.origins[done, 1]) > _SAME_LINE * height:
            continue
        kept[start:done] = False
        if shown.has_space(start - 1, done):
            kept[place] = True
            spaces.append(place)
    return spaces
