"""Logical order of lines of Arabic and Hebrew, from the places of their characters.

PDFium returns such lines in logical order, but turns Latin words inside them ("js.Node") and ligatures, orders words
around them wrongly, breaks lines at marks, and leaves out the zero-width non-joiners of Persian words.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isnan
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_PRESENTATION_FORMS = re.compile(r"[\ufb1d-\ufdff\ufe70-\ufefc]+")

SPACE_GAP = 0.15
"""Gap between characters, in line heights, that counts as a space even if the file has none."""
_NARROW_GAP = 0.03
"""The same if PDFium has a space: letters such as reh reach below the next word."""
_LONGEST_UNIT = 20
"""Maximum characters of a ligature, or of a letter with its marks: the longest ligature of Unicode has 18."""
_MOST_ROWS = 8
"""Maximum number of rows in one of PDFium's lines, such as columns, that are searched for the row of a character."""
_SAME_ROW = 0.55
"""Share of the height that characters of a line have in common."""

_JOINS_NEXT = re.compile(
    "[\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a\u066e\u066f\u0678-\u0687\u069a-\u06bf\u06c1\u06c2"
    "\u06cc\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff]"
)
"""Matches letters that join the letter after them (Joining_Type D in Unicode's ArabicShaping.txt)."""
_JOINS_LAST = re.compile("[\u0620\u0622-\u063f\u0641-\u064a\u066e\u066f\u0671-\u06d3\u06fa-\u06fc\u06ff]")
_NON_JOINER = "\u200c"
_FREE = 0.02
"""Space at the left of a letter, in line heights, that no initial or medial form has."""
_FREE_OF_INK = 0.03
"""The same between the ink of two letters, for a letter whose box is the box of its ink."""
_MOST_FREE = 0.3
"""Share of letters with free space that could join the next, above which a file has no initial and medial forms."""

_STOPS = ".,:;!?\u060c\u061b\u061f\u06d4"
"""Punctuation that follows a word."""
_BULLETS = "-*\u2013\u2014\u2022\u25aa\u25e6"
_TRAILING = "\u00ae\u2122%\u066a\u2030\u00b0"
"""Signs that follow a word or a number directly."""
_LEFT_TO_RIGHT_RUN = re.compile("(?:D[BDLNP]*)?L(?:[BDLNPS]*[DL])?|D(?:[BDNP]*D)?")
"""Matches a run that is read from left to right, in a line of classes, see :func:`_classes`."""
_RIGHT_TO_LEFT_RUN = re.compile("R(?:[BDNPRS]*R)?")
_FROM_LEFT, _FROM_RIGHT = re.compile("^(?:B|D+P)S+L|P$|LP+S+R"), re.compile("^P|S(?:B|PD+)$|RS+P+L")
"""Stops and list markers of a line that is read from the left as a whole, and of one that is read from the right."""
_BRACKETS = {"(": ")", "[": "]", "{": "}", "\u00ab": "\u00bb"}
_OPENING = {bracket: one for one, other in _BRACKETS.items() for bracket in (one, other)}
_BRACKET = re.compile(r"[()\[\]{}\u00ab\u00bb]")
_CLOSES = re.compile(rf"[{re.escape(_STOPS)}()\[\]{{}}\u00ab\u00bb]{{0,8}}(?:\s|$)")

Box = tuple[float, float, float, float]
"""Left, bottom, right and top in points."""


def compose_forms(text: str) -> str:
    r"""Replace presentation forms by letters; change nothing else.

    >>> compose_forms("\ufefb \ufb01").encode("unicode_escape")
    b'\\u0644\\u0627 \\ufb01'
    """
    return _PRESENTATION_FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


def right_to_left_lines(
    lines: Iterable[tuple[str, npt.NDArray[np.float32]]], gap: float, *, is_mostly: bool
) -> list[list[tuple[str, Box]]]:
    """Return the lines of a page in logical order: for each of PDFium's lines the parts of the lines that begin in it.

    Parts are separated by gaps wider than ``gap`` line heights, and have boxes; the rightmost part of a line is first.
    On a page that ``is_mostly`` right-to-left text, a line is read from the right even if it has more Latin letters.
    Characters have boxes as in :class:`longcrawl.text.pdf.words.Words`; those whose ink is NaN are not in the file.
    """
    rows = [[row.ordered() for row in begun] for begun in _rows(lines)]
    pairs = [pair for begun in rows for row in begun for pair in pairwise(row) if _may_join(*pair)]
    has_forms = sum(_has_free_end(*pair) for pair in pairs) <= _MOST_FREE * len(pairs)
    found = []
    for begun in rows:
        pieces = [piece for row in begun for piece in _pieces(row, gap, has_forms=has_forms)]
        found.append(
            [(_read(piece, is_mostly=is_mostly), _around(piece)) for piece in pieces if not all(map(_is_space, piece))]
        )
    return found


class _Unit(NamedTuple):
    """A letter with its marks, or a ligature."""

    text: str
    box: Box
    ink: tuple[float, float] = (0.0, 0.0)
    """Left and right edge of what is painted, without the marks."""
    word: int = 0
    """Number of spaces before it in PDFium's order."""

    @property
    def height(self) -> float:
        return max(4.0, self.box[3] - self.box[1])


class _Row:
    """Characters of a line, which PDFium may have broken or joined with others."""

    def __init__(self, box: Box) -> None:
        self.bottom, self.top = box[1], box[3]
        self._units: list[_Unit] = []
        self._marks: list[tuple[str, float]] = []
        """Marks, with the middle of each."""

    def holds(self, box: Box) -> bool:
        common = min(self.top, box[3]) - max(self.bottom, box[1])
        return common > _SAME_ROW * min(self.top - self.bottom, box[3] - box[1])

    def add(self, unit: _Unit) -> None:
        last = self._units[-1] if self._units else None
        if unicodedata.combining(unit.text):
            self._marks.append((unit.text, sum(unit.ink) / 2))
        elif last and last.box == unit.box and not unit.text.isspace() and len(last.text) < _LONGEST_UNIT:
            self._units[-1] = last._replace(text=_ligature(last.text, unit.text))
        else:
            self._units.append(unit)

    def ordered(self) -> list[_Unit]:
        """Return the units from right to left."""
        units = sorted(self._units, key=lambda unit: -unit.box[0])
        lefts = [-unit.box[0] for unit in units]
        for mark, middle in self._marks if units else ():
            after = bisect_left(lefts, -middle)
            near = range(max(after - 1, 0), min(after + 1, len(units)))
            place = min(near, key=lambda each: _distance(units[each].box, middle))
            if len(units[place].text) < _LONGEST_UNIT:
                units[place] = units[place]._replace(text=units[place].text + mark)
        return units


def _rows(lines: Iterable[tuple[str, npt.NDArray[np.float32]]]) -> list[list[_Row]]:
    """Return the rows that begin in each of PDFium's lines."""
    found: list[list[_Row]] = []
    near: list[_Row] = []
    word = 0
    for characters, boxes in lines:
        begun: list[_Row] = []
        row: _Row | None = None
        for character, (left, bottom, right, top, *ink) in zip(characters, boxes.tolist(), strict=True):
            # If a file moves the pen, PDFium inserts a space without width in addition to the gap.
            if isnan(ink[0]) or character in "\r\n" or (character.isspace() and right - left < 0.01):
                word += character == " "
                continue
            box = left, bottom, right, top
            # A mark may be above the line of its letter.
            if row is None or not (unicodedata.combining(character) or row.holds(box)):
                row = next((each for each in (*begun[: -_MOST_ROWS - 1 : -1], *near[::-1]) if each.holds(box)), None)
            if row is None:
                begun.append(row := _Row(box))
            row.add(_Unit(character, box, (ink[0], ink[1]), word))
        found.append(begun)
        # PDFium may put a mark on a line of its own, which does not begin a row.
        near = begun[-_MOST_ROWS:] or near
    return found


def _ligature(text: str, letter: str) -> str:
    """Append a letter, or put it in front if the letters only join the other way round, as lam before alef."""
    is_turned = _JOINS_NEXT.fullmatch(letter) and not _JOINS_NEXT.fullmatch(text[-1])
    return letter + text if is_turned else text + letter


def _pieces(units: list[_Unit], gap: float, *, has_forms: bool) -> list[list[_Unit]]:
    """Return a row cut at wide gaps, with the spaces and non-joiners that the file lacks."""
    pieces = [units[:1]]
    for last, unit in pairwise(units):
        free = last.box[0] - unit.box[2]
        between = (unit.box[2], unit.box[1], last.box[0], unit.box[3])
        if free > gap * unit.height:
            pieces.append([])
        elif free > (SPACE_GAP if last.word == unit.word else _NARROW_GAP) * unit.height and not (
            _is_space(last) or _is_space(unit)
        ):
            pieces[-1].append(_Unit(" ", between))
        elif has_forms and _may_join(last, unit) and _has_free_end(last, unit):
            pieces[-1].append(_Unit(_NON_JOINER, between))
        pieces[-1].append(unit)
    return pieces


def _is_space(unit: _Unit) -> bool:
    return unit.text.isspace()


def _may_join(unit: _Unit, after: _Unit) -> bool:
    """Return whether two units that touch are letters that join unless a non-joiner is between them."""
    last = next((letter for letter in reversed(unit.text) if not unicodedata.combining(letter)), " ")
    is_near = unit.box[0] - after.box[2] < SPACE_GAP * unit.height
    return bool(is_near and _JOINS_NEXT.match(last) and _JOINS_LAST.match(after.text))


def _has_free_end(unit: _Unit, after: _Unit) -> bool:
    """Return whether a letter ends before the next one, as only final and isolated forms do."""
    has_ink_box = unit.ink == (unit.box[0], unit.box[2])
    if has_ink_box:
        return unit.ink[0] - after.ink[1] > _FREE_OF_INK * unit.height
    return unit.ink[0] - unit.box[0] > _FREE * unit.height


def _read(units: Sequence[_Unit], *, is_mostly: bool) -> str:
    """Return units, given from right to left, in the order in which they are read."""
    texts = [unit.text for unit in reversed(units)]
    classes = _classes(texts)
    stops = len(_FROM_LEFT.findall(classes)) - len(_FROM_RIGHT.findall(classes))
    is_latin = not is_mostly and classes.count("L") > classes.count("R")
    if "L" in classes and (stops > 0 or (stops == 0 and is_latin)):
        read, end = [], 0
        for run in _RIGHT_TO_LEFT_RUN.finditer(classes):
            read += texts[end : run.start()] + _from_right(texts[run.start() : run.end()], run[0])
            end = run.end()
        read += texts[end:]
    else:
        read = _from_right(texts, classes)
    return _with_brackets(" ".join("".join(read).split()))


def _from_right(texts: list[str], classes: str) -> list[str]:
    """Return texts, given from left to right, in the order in which they are read from the right."""
    read: list[str] = []
    end = len(classes)
    for run in reversed(list(_LEFT_TO_RIGHT_RUN.finditer(classes))):
        stop = run.end() + _closing(texts[run.start() : run.end()], texts[run.end() : min(run.end() + 2, end)])
        read += texts[stop:end][::-1] + texts[run.start() : stop]
        end = run.start()
    return read + texts[:end][::-1]


def _closing(run: Sequence[str], behind: Sequence[str]) -> int:
    """Return how many of the brackets behind a run belong to it."""
    one, other = (_OPENING.get(each) for each in (*behind[:2], "", "")[:2])
    if sum(map(_OPENING.__contains__, run)) % 2:
        return int(one is not None)
    return 2 if one is not None and one == other and behind[0] != behind[1] else 0


def _classes(texts: list[str]) -> str:
    """Return a class per text.

    R is a right-to-left letter, L another, D a digit, S a space, P a stop, B a bullet, and N the rest.
    """
    classes = list(map(_class_of, texts))
    for place, text in enumerate(texts):
        if text in _TRAILING and place and classes[place - 1] in "LD":
            classes[place] = classes[place - 1]
    return "".join(classes)


def _class_of(text: str) -> str:
    first = text[0]
    if first in _STOPS or first in _BULLETS:
        return "P" if first in _STOPS else "B"
    if RIGHT_TO_LEFT.match(first) or first == "\u200f":
        return "D" if first.isdigit() else "R" if first.isalpha() or first == "\u200f" else "N"
    if first.isalpha() or first == "\u200e":
        return "L"
    return "D" if first.isdigit() else "S" if first.isspace() else "N"


def _with_brackets(text: str) -> str:
    """Turn mirrored brackets: a bracket behind a space opens, and a bracket before a space or a stop closes."""
    opened: Counter[str] = Counter()
    begins = 0

    def turned(found: re.Match[str]) -> str:
        nonlocal begins
        place, opening = found.start(), _OPENING[found[0]]
        is_begin = place == begins or text[place - 1].isspace()
        is_end = _CLOSES.match(text, place + 1) is not None and _OPENING.get(text[place + 1 : place + 2]) != opening
        is_same = place == begins > 0 and text[place - 1] == found[0]
        if is_same or (is_begin if is_begin != is_end else not opened[opening]):
            opened[opening] += 1
            begins = place + 1
            return opening
        opened[opening] = max(opened[opening] - 1, 0)
        return _BRACKETS[opening]

    return _BRACKET.sub(turned, text)


def _distance(box: Box, place: float) -> float:
    return max(box[0] - place, place - box[2], 0.0)


def _around(units: Sequence[_Unit]) -> Box:
    lefts, bottoms, rights, tops = zip(*(unit.box for unit in units if not _is_space(unit)), strict=True)
    return (min(lefts), min(bottoms), max(rights), max(tops))
