"""Clusters of a PDF page: characters of Arabic, Thai or Indic scripts that are drawn by several glyphs, or by one.

Browsers and Typst give the text of a cluster beside its glyphs (ActualText: ISO 32000-1, 14.9.4). PDFium returns it
again for a glyph that another one separates from the first, breaks words and lines there, and gives it the box of the
ink instead of that of the font.
"""

import ctypes
from collections import deque
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pypdfium2.raw as pdfium

from longcrawl.text.pdf.calls import addresses, bulk
from longcrawl.text.pdf.right_to_left import SPACE_GAP

_RECENT = 8
"""Clusters before a new one that it may repeat."""
_COMMON = 0.5
"""Share of the narrower of two clusters that is common to both if one repeats the other."""
_ALL_COMMON = 0.9
"""The share for clusters without ActualText. A mark with the origin of the next letter overlaps the cluster before."""
_NARROW = 0.8
"""Share of the other one's width below which a cluster is the repetition, wherever it is; else the second one is."""
_APART = 4
"""Most places from a character of a cluster to the next one."""
_AM = "\u0e33\u0eb3"
"""Thai and Lao am, whose second glyph is not in an ink box."""
_AM_GAP = 0.5
"""Gap behind such an am, in line heights, that is a space."""
_SAME_LINE = 0.15
"""Difference of the baselines of a line's characters, in line heights."""

_origin = bulk(pdfium.FPDFText_GetCharOrigin, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 2)

Flags = npt.NDArray[np.bool_]
Boxes = npt.NDArray[np.float32]


class _Shown(NamedTuple):
    """Characters of a page."""

    text: str
    boxes: Boxes
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


def join_clusters(handle: Any, text: str, boxes: Boxes, heights: Boxes, generated: Flags) -> tuple[Flags, list[int]]:
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
    """Return the places of spaces inserted behind am where there is none; ``places`` are those of the characters."""
    if not any(am in shown.text for am in _AM):
        return []
    return [
        place
        for before, place, after in zip(places, places[1:], places[2:], strict=False)
        if inserted[place] and shown.text[before] in _AM and not shown.has_space(before, after)
    ]


def _set_heights(boxes: Boxes, baselines: Any, has_ink_box: Flags, plain: Flags) -> None:
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
