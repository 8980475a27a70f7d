"""Words of a PDF page with their boxes, as PDFium reads them, and the kind of the page.

This is the only module that calls PDFium's C functions. It is imported in workers only, since a damaged file can crash
PDFium; it is not thread-safe.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium

from longcrawl.text.pdf.right_to_left import RIGHT_TO_LEFT

Kind = Literal["text", "scan", "garbled", "blank", "failed"]
"""Kind of a page: readable text; an image of text; text without a usable character map; no ink; not readable."""
Numbers = npt.NDArray[np.float32]

MOST_CHARACTERS = 2_000_000
"""Characters of a page above which it counts as failed: a page of a book has 3,000, the densest tables 50,000."""
_FEW = 10
"""Characters below which a page has no text of its own."""
_FEW_BESIDE_IMAGE = 100
"""Characters below which a page that is mostly image is a scan with a stamp or a page number."""
_MOST_OBJECTS = 400
"""Page objects that are searched for images. Scans have one, or a few hundred strips."""
_SAMPLES = 64
"""Characters of a page whose font is asked for a character map."""
_SPACES = np.array([*range(9, 14), 0x20, 0x85, 0xA0, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x3000], np.uint32)
HYPHEN_MARKS = (0x2, 0xFFFE)
"""Characters by which PDFium replaces a hyphen at the end of a line, together with the line break."""
_BAD_CHARACTERS = 0.05
_MAP_ERRORS = 0.3
_HIDDEN = 3
"""Render mode of text that is neither filled nor stroked, as OCR writes over a scan."""


class Words(NamedTuple):
    """Text of a page, and the words in it, in PDFium's content order."""

    text: str
    """Characters of the page; lines end with a carriage return and a line feed."""
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    boxes: Numbers
    """Left, bottom, right and top of each word in points, float32, ``(words, 4)``. Height is that of the font."""
    characters: Numbers | None
    """Boxes of all characters if the page has right-to-left text, and the left and right edge of their ink, float32,
    ``(characters, 6)``; those that PDFium has inserted are NaN."""

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


def bulk(function: Any) -> Any:
    """Return a C function ``(handle, index)`` or ``(handle, index, address)`` that is cheaper to call many times.

    ctypes converts plain integers faster than pointer objects, and keeps the interpreter lock for these short calls.
    """
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None  # for mypy: a function has an address
    extra = [ctypes.c_void_p] * (len(function.argtypes) - 2)
    returned = ctypes.c_void_p if function.restype not in (ctypes.c_int, ctypes.c_uint) else function.restype
    return ctypes.PYFUNCTYPE(returned, ctypes.c_void_p, ctypes.c_int, *extra)(address)


_loose_box = bulk(pdfium.FPDFText_GetLooseCharBox)
_ink_box = bulk(pdfium.FPDFText_GetCharBox)
_map_error = bulk(pdfium.FPDFText_HasUnicodeMapError)
_unicode = bulk(pdfium.FPDFText_GetUnicode)
_is_generated = bulk(pdfium.FPDFText_IsGenerated)
_text_object = bulk(pdfium.FPDFText_GetTextObject)


def read_page(document: Any, number: int, hidden_text: str, waiting: Callable[[], AbstractContextManager[Any]]) -> Page:
    """Read a page of an open document, counted from 0; ``waiting`` surrounds calls that may take long.

    With ``hidden_text`` "keep", text that is not painted makes a scanned page one of kind "text".
    """
    with waiting():
        page = pdfium.FPDF_LoadPage(document, number)
    if not page:
        return Page("failed", None)
    try:
        # PDFium's order of text follows the turned page.
        if pdfium.FPDFPage_GetRotation(page):
            pdfium.FPDFPage_SetRotation(page, 0)
        with waiting():
            characters = pdfium.FPDFText_LoadPage(page)
        if not characters:
            return Page("failed", None)
        try:
            return _read_characters(page, characters, hidden_text)
        finally:
            pdfium.FPDFText_ClosePage(characters)
    finally:
        pdfium.FPDF_ClosePage(page)


def _read_characters(page: Any, characters: Any, hidden_text: str) -> Page:
    count = pdfium.FPDFText_CountChars(characters)
    if count > MOST_CHARACTERS:
        return Page("failed", None)
    handle = ctypes.cast(characters, ctypes.c_void_p).value
    text, codes = _text(characters, handle, count) if count > 0 else ("", np.zeros(0, np.uint32))
    inked = ~np.isin(codes, _SPACES)
    ink = int(np.count_nonzero(inked))
    errors, hidden = _sampled(handle, np.flatnonzero(inked))
    if ink >= _FEW and (_bad_share(codes) > _BAD_CHARACTERS or errors > _MAP_ERRORS):
        return Page("garbled", None)
    is_hidden = hidden > 0.5 and hidden_text != "keep"
    if ink < _FEW_BESIDE_IMAGE or is_hidden:
        image = _image_share(page)
        if ink < _FEW:
            return Page("blank" if image < 0.05 else "scan", None)
        if image > 0.5 and (ink < _FEW_BESIDE_IMAGE or is_hidden):
            return Page("scan", None)
    return Page("text", _words(text, codes, inked, handle))


def _text(characters: Any, handle: int | None, count: int) -> tuple[str, npt.NDArray[np.uint32]]:
    """Return the characters of a page as a string and as code points, one for each of PDFium's indexes."""
    units = (ctypes.c_ushort * (count + 1))()
    written = pdfium.FPDFText_GetText(characters, 0, count, units) - 1
    codes = np.frombuffer(memoryview(units).cast("B"), np.uint16)[: max(written, 0)].astype(np.uint32)
    if len(codes) != count or bool(((codes >= 0xD800) & (codes < 0xE000)).any()):
        codes = np.fromiter(map(_unicode, repeat(handle, count), range(count)), np.uint32, count)
        codes[(codes >= 0x110000) | ((codes >= 0xD800) & (codes < 0xE000))] = 0xFFFD
    return codes.astype("<u4").tobytes().decode("utf-32-le"), codes


def _bad_share(codes: npt.NDArray[np.uint32]) -> float:
    """Return the share of control, private-use and replacement characters, which fonts without a map yield."""
    control = (codes < 9) & (codes != 2)
    private = (codes >= 0xE000) & (codes < 0xF900)
    return float(np.count_nonzero(control | private | (codes == 0xFFFD))) / max(len(codes), 1)


def _sampled(handle: int | None, places: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the shares of sampled characters without an entry in a character map, and of those not painted."""
    sample = places[:: max(1, len(places) // _SAMPLES)].tolist()
    if not sample:
        return 0.0, 0.0
    errors = sum(error == 1 for error in map(_map_error, repeat(handle), sample))
    objects = [each for each in map(_text_object, repeat(handle), sample[::4]) if each]
    modes = [pdfium.FPDFTextObj_GetTextRenderMode(ctypes.cast(each, pdfium.FPDF_PAGEOBJECT)) for each in objects]
    return errors / len(sample), sum(mode == _HIDDEN for mode in modes) / max(len(modes), 1)


def _image_share(page: Any) -> float:
    """Return the share of the page that images cover, each counted by its box."""
    width, height = pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page)
    left, bottom, right, top = bounds = [ctypes.c_float() for _ in range(4)]
    covered = 0.0
    for number in range(min(_MOST_OBJECTS, pdfium.FPDFPage_CountObjects(page))):
        each = pdfium.FPDFPage_GetObject(page, number)
        is_image = pdfium.FPDFPageObj_GetType(each) == pdfium.FPDF_PAGEOBJ_IMAGE
        if is_image and pdfium.FPDFPageObj_GetBounds(each, *bounds):
            wide = max(0.0, min(width, right.value) - max(0.0, left.value))
            covered += wide * max(0.0, min(height, top.value) - max(0.0, bottom.value))
    return float(min(1.0, covered / max(1.0, width * height)))


def _words(text: str, codes: npt.NDArray[np.uint32], inked: npt.NDArray[np.bool_], handle: int | None) -> Words:
    ends = ~inked | np.isin(codes, HYPHEN_MARKS)
    starts = np.flatnonzero(inked & np.append(True, ends[:-1]))
    stops = np.flatnonzero(inked & (ends | np.append(~inked[1:], True))) + 1
    both = np.concatenate([starts, stops - 1])
    corners = character_boxes(handle, both.tolist())
    first, last = corners[: len(starts)], corners[len(starts) :]
    boxes = np.concatenate([np.minimum(first, last)[:, :2], np.maximum(first, last)[:, 2:]], axis=1)
    characters = _all_boxes(handle, len(codes)) if RIGHT_TO_LEFT.search(text) else None
    return Words(text, starts, stops, boxes, characters)


def _all_boxes(handle: int | None, count: int) -> Numbers:
    boxes = np.empty((count, 6), np.float32)
    boxes[:, :4] = character_boxes(handle, range(count))
    ink = np.zeros((count, 4))
    deque(map(_ink_box, repeat(handle), range(count), *(_addresses(ink, edge) for edge in range(4))), maxlen=0)
    boxes[:, 4:] = ink[:, :2]
    generated = np.fromiter(map(_is_generated, repeat(handle, count), range(count)), np.int32, count)
    boxes[generated == 1] = np.nan
    return boxes


def _addresses(table: npt.NDArray[np.float64], place: int) -> range:
    """Return the addresses of a column's values."""
    start, step = table.ctypes.data + place * table.itemsize, table.strides[0]
    return range(start, start + step * len(table), step)


def character_boxes(handle: int | None, places: Sequence[int]) -> Numbers:
    """Return left, bottom, right and top of characters, float32, ``(places, 4)``; zeros where PDFium has no box."""
    found = np.zeros((len(places), 4), np.float32)
    address = found.ctypes.data
    deque(map(_loose_box, repeat(handle), places, range(address, address + 16 * len(places), 16)), maxlen=0)
    return found[:, [0, 3, 2, 1]]  # FS_RECTF is left, top, right, bottom
