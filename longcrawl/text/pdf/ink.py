"""Ink of a PDF page that is not text: images, and text drawn as outlines."""

import ctypes
from collections import deque
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium

_MOST = 20_000
"""Maximum number of objects of a page, and of their points, to examine. A scan has an image or hundreds of strips."""
_OUTLINES = 1000
"""Points of curves and slanted lines above which text is drawn as outlines: the number in about 50 letters."""
_SHAPES = (pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_SHADING)

Matrix = npt.NDArray[np.float64]
"""Map from the space of an object to that of the page, ``(3, 3)``, for rows of x, y and 1."""


class Ink(NamedTuple):
    """Ink of a page that is not text, also inside forms."""

    images: float
    """Share of the page that images cover, each counted by its box."""
    has_outlines: bool
    """Whether shapes have enough curves and slanted lines to be letters; rules and boxes have none."""


def find_ink(page: Any) -> Ink:
    """Examine the objects of an open page and of its forms."""
    box = pdfium.FS_RECTF()
    pdfium.FPDF_GetPageBoundingBox(page, box)
    visible = np.array([[box.left, box.bottom], [box.right, box.top]])
    covered, points, left = 0.0, 0, _MOST
    holders = deque([(page, pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject, np.eye(3))])
    while holders:
        holder, count, get, to_page = holders.popleft()
        for number in range(min(left, count(holder))):
            each = get(holder, number)
            kind = pdfium.FPDFPageObj_GetType(each)
            left -= 1
            if kind == pdfium.FPDF_PAGEOBJ_FORM:
                inside = _matrix(each) @ to_page
                holders.append((each, pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject, inside))
            elif kind == pdfium.FPDF_PAGEOBJ_IMAGE:
                covered += _visible_area(each, to_page, visible)
            elif kind in _SHAPES and points < _OUTLINES:
                looked, found = _count_points(each, kind, left)
                left, points = left - looked, points + found
    area = max(1.0, float((visible[1] - visible[0]).prod()))
    return Ink(min(1.0, covered / area), points >= _OUTLINES)


def _matrix(form: Any) -> Matrix:
    found = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(form, found)
    return np.array([[found.a, found.b, 0], [found.c, found.d, 0], [found.e, found.f, 1]])


def _visible_area(each: Any, to_page: Matrix, visible: npt.NDArray[np.float64]) -> float:
    """Return the area of an object's box on the page, in square points; ``visible`` is the page's box, ``(2, 2)``."""
    left, bottom, right, top = bounds = [ctypes.c_float() for _ in range(4)]
    if not pdfium.FPDFPageObj_GetBounds(each, *bounds):
        return 0.0
    corners = np.array([(x.value, y.value, 1) for x in (left, right) for y in (bottom, top)]) @ to_page
    begin, end = np.clip([corners.min(0)[:2], corners.max(0)[:2]], *visible)
    return float((end - begin).prod())


def _count_points(each: Any, kind: int, most: int) -> tuple[int, int]:
    """Return the number of examined points of a shape, and how many of them belong to curves or slanted lines.

    The shape of a shading is the path that clips it.
    """
    if kind == pdfium.FPDF_PAGEOBJ_PATH:
        paths = [(pdfium.FPDFPath_CountSegments(each), partial(pdfium.FPDFPath_GetPathSegment, each))]
    else:
        clip = pdfium.FPDFPageObj_GetClipPath(each)
        paths = [
            (pdfium.FPDFClipPath_CountPathSegments(clip, path), partial(pdfium.FPDFClipPath_GetPathSegment, clip, path))
            for path in range(min(most, pdfium.FPDFClipPath_CountPaths(clip)))
        ]
    looked = found = 0
    x, y = place = ctypes.c_float(), ctypes.c_float()
    for count, segment_of in paths:
        for number in range(min(count, most - looked)):
            segment, before = segment_of(number), (x.value, y.value)
            pdfium.FPDFPathSegment_GetPoint(segment, *place)
            sort = pdfium.FPDFPathSegment_GetType(segment)
            is_slanted = x.value != before[0] and y.value != before[1]
            found += sort == pdfium.FPDF_SEGMENT_BEZIERTO or (sort == pdfium.FPDF_SEGMENT_LINETO and is_slanted)
            looked += 1
    return looked, found
