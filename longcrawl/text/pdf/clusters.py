"""Clusters of a PDF page: characters of Arabic, Thai or Indic scripts that are drawn by several glyphs, or by one.

Browsers and Typst give the text of a cluster beside its glyphs (ActualText: ISO 32000-1, 14.9.4). PDFium returns it
again for a glyph that another one separates from the first, breaks words and lines there, and gives it the box of the
ink instead of that of the font.
"""

import ctypes
import re
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium

from longcrawl.text.pdf.calls import addresses, bulk
from longcrawl.text.pdf.right_to_left import SPACE_GAP

_NEAR = 8
"""Clusters of several characters among which a repeated one is searched."""
_COMMON = 0.5
"""Share of the narrower of two clusters that is common to both if one repeats the other."""
_NARROW = 0.8
"""Share of the other one's width below which a cluster is the repetition, wherever it is; else the second one is."""
_APART = 4
"""Characters between two of one cluster."""
_AM = re.compile("[\u0e33\u0eb3]")
_AM_GAP = 0.5
"""Width of the second glyph of am, in line heights."""
_SAME_LINE = 1.0
"""Points by which the baselines of characters in a line may differ."""

_origin = bulk(pdfium.FPDFText_GetCharOrigin, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 2)

Flags = npt.NDArray[np.bool_]
Boxes = npt.NDArray[np.float32]


class _Cluster(NamedTuple):
    letters: list[str]
    """Characters in alphabetical order, since PDFium turns those of some glyphs."""
    places: list[int]
    left: float
    right: float
    baseline: float


def join_clusters(handle: Any, text: str, boxes: Boxes, heights: Boxes, generated: Flags) -> Flags:
    """Set one box, with the height of the line, for the characters of a cluster; find those that are repeated.

    Args:
        handle: argument for the page's text, see :func:`longcrawl.text.pdf.calls.pointer`.
        text: characters of the page.
        boxes: left, bottom, right and top of each character, and the left and right edge of its ink, in points,
            float32, ``(characters, 6)``; changed in place.
        heights: bottom and top of the ink, float32, ``(characters, 2)``.
        generated: whether PDFium has inserted a character, such as a space.

    Returns:
        True for the characters to keep; False for repeated ones, and for spaces and line breaks inserted around them.
    """
    origins = np.zeros((len(text), 2))
    deque(map(_origin, repeat(handle), range(len(text)), *(addresses(origins, axis) for axis in range(2))), maxlen=0)
    is_blank = np.array([each.isspace() for each in text], np.bool_)
    inserted = is_blank & generated
    has_ink_box = (boxes[:, [1, 3]] == heights).all(1) & ~is_blank
    _set_heights(boxes, origins[:, 1], has_ink_box, ~has_ink_box & (boxes[:, 3] > boxes[:, 1]))
    kept = np.ones(len(text), np.bool_)
    near: deque[_Cluster] = deque(maxlen=_NEAR)
    for cluster in _clusters(text, boxes, origins, ~(is_blank | generated)):
        same = next((each for each in near if _repeats(each, cluster)), None)
        if same is None:
            near.append(cluster)
        elif _width(same) < _NARROW * _width(cluster):
            kept[same.places] = False
            near[near.index(same)] = cluster
        else:
            kept[cluster.places] = False
    _join_around(text, boxes, origins, kept, inserted)
    kept[_behind_am(text, boxes, inserted)] = False
    return kept


def _behind_am(text: str, boxes: Boxes, inserted: Flags) -> list[int]:
    """Return the places of spaces inserted behind Thai or Lao am, whose second glyph has no box."""
    places = [found.end() for found in _AM.finditer(text) if found.end() + 1 < len(text) and inserted[found.end()]]
    return [
        place
        for place in places
        if boxes[place + 1, 0] - boxes[place - 1, 2] < _AM_GAP * (boxes[place - 1, 3] - boxes[place - 1, 1])
    ]


def _clusters(text: str, boxes: Boxes, origins: Any, inked: Flags) -> Iterator[_Cluster]:
    """Yield the clusters of several characters, which have one origin, after giving these one box."""
    open_ones: dict[tuple[float, float], list[int]] = {}
    found = list[list[int]]()
    for place, origin in zip(np.flatnonzero(inked).tolist(), map(tuple, origins[inked].tolist()), strict=True):
        places = open_ones.get(origin)
        if places is None or place - places[-1] > _APART:
            open_ones[origin] = places = []
            found.append(places)
        places.append(place)
    for places in found:
        if len(places) > 1:
            some = boxes[places]
            left, bottom, ink_left = some[:, [0, 1, 4]].min(0)
            right, top, ink_right = some[:, [2, 3, 5]].max(0)
            boxes[places] = left, bottom, right, top, ink_left, ink_right
            letters = sorted(text[place] for place in places)
            yield _Cluster(letters, places, float(ink_left), float(ink_right), float(origins[places[0], 1]))


def _repeats(one: _Cluster, other: _Cluster) -> bool:
    common = min(one.right, other.right) - max(one.left, other.left)
    is_common = common > _COMMON * min(_width(one), _width(other))
    return one.letters == other.letters and is_common and abs(one.baseline - other.baseline) < 2 * _SAME_LINE


def _width(cluster: _Cluster) -> float:
    return cluster.right - cluster.left


def _set_heights(boxes: Boxes, baselines: Any, has_ink_box: Flags, plain: Flags) -> None:
    """Set the bottom and the top of characters to those of plain ones on their baseline, else of all."""
    lines, line_of = np.unique(np.round(baselines, 1), return_inverse=True)
    has_plain = np.bincount(line_of[plain], minlength=len(lines)) > 0
    used = plain | (has_ink_box & ~has_plain[line_of])
    bottoms, tops = np.full(len(lines), np.inf, np.float32), np.full(len(lines), -np.inf, np.float32)
    np.minimum.at(bottoms, line_of[used], boxes[used, 1])
    np.maximum.at(tops, line_of[used], boxes[used, 3])
    boxes[has_ink_box, 1], boxes[has_ink_box, 3] = bottoms[line_of[has_ink_box]], tops[line_of[has_ink_box]]


def _join_around(text: str, boxes: Boxes, origins: Any, kept: Flags, inserted: Flags) -> None:
    """Do not keep spaces and line breaks that were inserted around repeated characters within a word."""
    done = 0
    for place in np.flatnonzero(~kept).tolist():
        if place < done:
            continue
        start = done = place
        while start > 0 and (inserted[start - 1] or not kept[start - 1]):
            start -= 1
        while done < len(text) and (inserted[done] or not kept[done]):
            done += 1
        if start == 0 or done == len(text) or abs(origins[start - 1, 1] - origins[done, 1]) > _SAME_LINE:
            continue
        before, after = boxes[start - 1], boxes[done]
        spaces = [each for each in range(start, done) if kept[each] and text[each] == " "]
        kept[start:done] = False
        if max(after[0] - before[2], before[0] - after[2]) > SPACE_GAP * (before[3] - before[1]):
            kept[spaces[:1]] = True
