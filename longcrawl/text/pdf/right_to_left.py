"""Logical order of lines of Arabic and Hebrew, from the places of their characters.

PDFium returns such lines in logical order, but turns Latin words inside them ("js.Node"), orders words around them
wrongly, and puts a character of a neighbouring run in front of them.
"""

import re
import unicodedata
from collections.abc import Sequence

RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_PRESENTATION_FORMS = re.compile(r"[\ufb1d-\ufdff\ufe70-\ufefc]+")
_LEFT_TO_RIGHT_RUN = re.compile("(?:D[DLN]*)?L(?:[DLNS]*[DL])?|D(?:[DN]*D)?")
"""Matches a run that is read from left to right, in a line of classes, see :func:`_class_of`."""
_SPACE_GAP = 0.25
"""Gap between characters, in line heights, that is a space even without one in the file."""

Box = Sequence[float]
"""Left, bottom, right and top in points."""


def compose_forms(text: str) -> str:
    r"""Replace presentation forms by letters, and nothing else.

    >>> compose_forms("\ufefb \ufb01").encode("unicode_escape")
    b'\\u0644\\u0627 \\ufb01'
    """
    return _PRESENTATION_FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)


def logical_pieces(characters: str, boxes: Sequence[Box], gap: float) -> list[tuple[str, Box]]:
    """Return the parts of a line of right-to-left text, the rightmost first, each with its box.

    Parts are separated by gaps wider than ``gap`` line heights. Boxes with NaN belong to characters that are not in the
    file.
    """
    units = _units(characters, boxes)
    pieces: list[list[tuple[str, Box]]] = []
    for unit in sorted(units, key=lambda unit: -(unit[1][0] + unit[1][2])):
        before = pieces[-1][-1] if pieces else None
        if before is None:
            pieces.append([unit])
            continue
        height = max(4.0, unit[1][3] - unit[1][1])
        free = before[1][0] - unit[1][2]
        if free > gap * height:
            pieces.append([unit])
            continue
        if free > _SPACE_GAP * height and not before[0].isspace() and not unit[0].isspace():
            pieces[-1].append((" ", (unit[1][2], unit[1][1], before[1][0], unit[1][3])))
        pieces[-1].append(unit)
    found = ((_read(piece), _around([box for text, box in piece if not text.isspace()])) for piece in pieces)
    return [(text, box) for text, box in found if text]


def _units(characters: str, boxes: Sequence[Box]) -> list[tuple[str, Box]]:
    """Return characters with boxes; ligatures, and letters with their marks, are one unit."""
    units: list[tuple[str, Box]] = []
    for character, box in zip(characters, boxes, strict=True):
        if box[0] != box[0] or character in "\r\n":
            continue
        ends = units[-1] if units else None
        if ends and not character.isspace() and (unicodedata.combining(character) or tuple(box) == tuple(ends[1])):
            units[-1] = (ends[0] + character, ends[1])
        else:
            units.append((character, box))
    return units


def _read(units: Sequence[tuple[str, Box]]) -> str:
    """Return units, given from right to left, in the order in which they are read."""
    left_to_right = [text for text, _ in units][::-1]
    classes = "".join(map(_class_of, left_to_right))
    read: list[str] = []
    end = len(classes)
    for run in reversed(list(_LEFT_TO_RIGHT_RUN.finditer(classes))):
        read += left_to_right[run.end() : end][::-1] + left_to_right[run.start() : run.end()]
        end = run.start()
    read += left_to_right[:end][::-1]
    return " ".join("".join(read).split())


def _class_of(text: str) -> str:
    """Return R for a right-to-left letter, L for another letter, D for a digit, S for a space, N for the rest."""
    first = text[0]
    if RIGHT_TO_LEFT.match(first):
        return "D" if first.isdigit() else "R" if first.isalpha() else "N"
    return "L" if first.isalpha() else "D" if first.isdigit() else "S" if first.isspace() else "N"


def _around(boxes: Sequence[Box]) -> Box:
    if not boxes:
        return (0.0, 0.0, 0.0, 0.0)
    lefts, bottoms, rights, tops = zip(*boxes, strict=True)
    return (min(lefts), min(bottoms), max(rights), max(tops))
