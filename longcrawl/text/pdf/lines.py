"""Lines of a page in reading order, from words with boxes."""

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from longcrawl.text.pdf.right_to_left import RIGHT_TO_LEFT, compose_forms, right_to_left_lines
from longcrawl.text.pdf.words import HYPHEN_MARKS, Numbers, Words

_COLUMN_GAP = 1.4
"""Gap between two words, in line heights, at which a line is cut: the next word may be in another column."""
_LEAST_HEIGHT = 4.0
"""Minimum line height in points, for gaps."""
_GUTTER = 0.8
"""Width of the space between columns, in line heights."""
_COLUMN_WIDTH = 6.0
"""Minimum width of a column, in line heights: labels and numbers beside a text are narrower."""
_COLUMN_LINES = 3
_LONG = 15
"""Characters of a line above which it may be part of a column."""
ITEM_MARKER = r"[•◦▪–*·]|\(?\d{1,3}[.)]|\(?[a-zA-Z]\)"  # noqa: RUF001  # these begin list items
"""Pattern of the marker of a list item before its text, where "A." may also be an initial."""
_MARKER = re.compile(r"[•◦▪]|(?:\d{1,3}|[a-zA-Z])[.)]")
"""Matches a marker that is drawn apart from its item. Dashes, stars and numbers in brackets may be cells, points of a
plot, or equations."""
_MOST_MARKERS = 200
"""Number of such markers on a page above which they are not a list."""
_MARKER_GAP = 3.0
"""Space between a marker and its item, in line heights."""
_MOST_CUTS = 12
_SHORT = 5
"""Maximum characters of a word that does not show the direction of the text."""

_SPELLED = str.maketrans(
    {
        "\ufb00": "ff",
        "\ufb01": "fi",
        "\ufb02": "fl",
        "\ufb03": "ffi",
        "\ufb04": "ffl",
        "\ufb05": "st",
        "\ufb06": "st",
        "\u00a0": " ",
        "\u200b": None,
        "\ufeff": None,
        "\uffff": None,
        "\x7f": None,
    }
    | dict.fromkeys(map(chr, range(0xE000, 0xF900)))
    | dict.fromkeys("\uf0a7\uf0b7", "\u2022")
    | {chr(code): None for code in range(32) if chr(code) not in "\t\n"}
    | dict.fromkeys(map(chr, HYPHEN_MARKS), "-")
)
"""Ligatures spelled out, hyphens and Word's bullets restored, and characters without a meaning removed."""
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_LINE = re.compile(r"[^\n]+")


@dataclass(slots=True)
class Line:
    """A line, or the part of one that is in a column, with its box in points."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    separator: str | None = None
    """Text before this line, if it is known to be a cell."""

    @property
    def height(self) -> float:
        """Height of the font in points."""
        return self.top - self.bottom


def page_lines(words: Words) -> list[Line]:
    """Return the lines of a page in reading order."""
    if not len(words.starts):
        return []
    lines = list(_segments(_upright(words)))
    if words.is_right_to_left:
        # Mirror the page, so that the first column and the beginning of a line are on the left.
        lines = [Line(line.text, -line.right, line.bottom, -line.left, line.top) for line in lines]
    return reading_order(_with_markers(lines)) if lines else []


def _with_markers(lines: list[Line]) -> list[Line]:
    """Return the lines with list markers before their items, where a file draws several markers one after another."""
    marked = [
        _MARKER.fullmatch(line.text) is not None and not _begins(line, after)
        for line, after in zip(lines, [*lines[1:], None], strict=True)
    ]
    alone = [
        place
        for place in compress(range(len(lines)), marked)
        if any(marked[max(place - 1, 0) : place]) or any(marked[place + 1 : place + 2])
    ]
    if not 0 < len(alone) <= _MOST_MARKERS:
        return lines
    upwards = sorted((line.bottom, place) for place, line in enumerate(lines) if not marked[place])
    markers: dict[int, list[int]] = defaultdict(list)
    for place in alone:
        marker = lines[place]
        start, stop = (bisect_left(upwards, (marker.bottom + part * marker.height,)) for part in (-0.5, 0.5))
        items = [item for _, item in upwards[start:stop] if _begins(marker, lines[item])]
        if items:
            markers[min(items, key=lambda item: lines[item].left)].append(place)
    moved = set(chain.from_iterable(markers.values()))
    order = chain.from_iterable((*markers.get(place, ()), place) for place in range(len(lines)) if place not in moved)
    return [lines[place] for place in order]


def _begins(marker: Line, line: Line | None) -> bool:
    """Return whether a marker is directly to the left of a line."""
    if line is None or abs(line.bottom - marker.bottom) > 0.5 * marker.height:
        return False
    return 0 <= line.left - marker.right < _MARKER_GAP * marker.height


def _upright(words: Words) -> Words:
    """Turn a page whose text runs upwards, downwards or upside down, by the places of its words' characters."""
    left, bottom, _, _ = words.boxes.T
    is_long = words.stops - words.starts > _SHORT
    if 2 * np.count_nonzero(words.climbs[is_long]) > np.count_nonzero(is_long):
        turn = _turn_left if _decrease(bottom, left) else _turn_right
    elif words.characters is None and _decrease(left, bottom):
        return words._replace(boxes=-words.boxes[:, [2, 3, 0, 1]])
    else:
        return words
    characters = words.characters
    if characters is not None:
        boxes = turn(characters[:, :4])
        characters = np.concatenate([boxes, boxes[:, [0, 2]]], axis=1)
    return words._replace(boxes=turn(words.boxes), characters=characters)


def _decrease(places: Numbers, across: Numbers) -> bool:
    """Return whether the places of most words in a line are before that of the last word."""
    steps = np.diff(places)[np.abs(np.diff(across)) < _LEAST_HEIGHT]
    return bool(2 * np.count_nonzero(steps < 0) > len(steps))


def _turn_left(boxes: Numbers) -> Numbers:
    left, bottom, right, top = boxes.T
    return np.stack([-top, left, -bottom, right], axis=1)


def _turn_right(boxes: Numbers) -> Numbers:
    left, bottom, right, top = boxes.T
    return np.stack([bottom, -right, top, -left], axis=1)


def _segments(words: Words) -> Iterator[Line]:
    """Yield the lines in the order of the file, cut at wide gaps."""
    text, starts, stops, line_of = words.text, words.starts, words.stops, words.lines
    left, bottom, right, top = words.boxes.T
    gap = np.minimum(np.abs(left[1:] - right[:-1]), np.abs(left[:-1] - right[1:]))
    cuts = gap > _COLUMN_GAP * np.maximum(_LEAST_HEIGHT, (top - bottom)[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(cuts | (line_of[1:] > line_of[:-1])) + 1])
    lasts = np.append(firsts[1:], len(starts)) - 1
    boxes = zip(
        np.minimum.reduceat(left, firsts).tolist(),
        np.minimum.reduceat(bottom, firsts).tolist(),
        np.maximum.reduceat(right, firsts).tolist(),
        np.maximum.reduceat(top, firsts).tolist(),
        strict=True,
    )
    spans = zip(starts[firsts].tolist(), stops[lasts].tolist(), boxes, strict=True)
    if words.characters is None:
        for start, stop, box in spans:
            yield Line(spelled(text[start:stop]), *box)
        return
    lines = [found.span() for found in _LINE.finditer(text) if RIGHT_TO_LEFT.search(found[0])]
    boxed = [(text[begin:end], words.characters[begin:end]) for begin, end in lines]
    found = deque(zip(lines, right_to_left_lines(boxed, _COLUMN_GAP, is_mostly=words.is_right_to_left), strict=True))
    done = 0
    for start, stop, box in spans:
        while found and found[0][0][0] <= start:
            (_, done), pieces = found.popleft()
            for piece, around in pieces:
                yield Line(compose_forms(spelled(piece)), *around)
        if start >= done:
            yield Line(spelled(text[start:stop]), *box)


def spelled(text: str) -> str:
    r"""Spell out ligatures, remove control characters, and separate words by single spaces.

    >>> spelled("of\ufb01ce  \x00hours")
    'office hours'
    """
    if text.isprintable() and "  " not in text and (text.isascii() or not _LIGATURE.search(text)):
        return text
    text = text.translate(_SPELLED)
    return " ".join(text.split()) if "  " in text or "\t" in text or not text.isascii() else text


def reading_order(lines: list[Line]) -> list[Line]:
    """Return lines in the order of the file, unless they jump between columns, jump upwards often, or rise."""
    if len(lines) < 6:
        return lines
    # A page has about 40 lines, for which plain numbers are faster than arrays.
    height = median([line.top - line.bottom for line in lines])
    gutter, step = _GUTTER * height, 1.5 * height
    beside = upwards = rising = 0
    for line, after in pairwise(lines):
        rise = after.bottom - line.bottom
        rising += rise > 0.5 * height
        if rise > step:
            upwards += 1
        elif abs(rise) < step and (after.left - line.right > gutter or line.left - after.right > gutter):
            beside += len(line.text) > _LONG and len(after.text) > _LONG
    if beside > 0.25 * len(lines) or upwards > 4 + 0.12 * len(lines) or rising > 0.5 * len(lines):
        return _cut(lines, 0)
    return lines


def _cut(lines: list[Line], depth: int) -> list[Line]:
    """Order lines by columns first, then by horizontal gaps, then from top to bottom (recursive X-Y cut)."""
    if len(lines) < 4 or depth > _MOST_CUTS:
        return _from_top(lines)
    height = median(line.height for line in lines)
    gutter = _widest_gap([(line.left, line.right) for line in lines], _GUTTER * height)
    if gutter is not None:
        one = [line for line in lines if line.right <= gutter + 0.01]
        other = [line for line in lines if line.right > gutter + 0.01]
        if _is_column(one, height) and _is_column(other, height):
            return _cut(one, depth + 1) + _cut(other, depth + 1)
    for least in (1.2 * height, 0.35 * height):
        between = _widest_gap([(line.bottom, line.top) for line in lines], least)
        if between is not None:
            upper = [line for line in lines if line.bottom >= between]
            lower = [line for line in lines if line.bottom < between]
            if upper and lower:
                return _cut(upper, depth + 1) + _cut(lower, depth + 1)
    return _from_top(lines)


def _is_column(lines: Sequence[Line], height: float) -> bool:
    wide = _COLUMN_WIDTH * height
    return len(lines) >= _COLUMN_LINES and median(line.right - line.left for line in lines) > wide


def _from_top(lines: list[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (-round(line.top / 2), line.left))


def _widest_gap(intervals: list[tuple[float, float]], least: float) -> float | None:
    """Return the middle of the widest gap that no interval covers, or None if none is wider than ``least``."""
    ordered: npt.NDArray[np.float64] = np.array(sorted(intervals))
    reach = np.maximum.accumulate(ordered[:, 1])[:-1]
    gaps = ordered[1:, 0] - reach
    widest = int(np.argmax(gaps))
    return float(reach[widest] + gaps[widest] / 2) if gaps[widest] > least else None
