"""What normalisation does with every code point, as arrays that kernels index.

Built once per Unicode version and kept as the tables of ``longcrawl.kernels.code_points`` are.
"""

import string
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels import code_points as _unicode
from longcrawl.kernels.code_points import CODE_POINTS, cached_arrays, load_characters

SPACE = 1 << 0
REMOVED = 1 << 1
"""Punctuation or an accent: nothing is written."""
MAPPED = 1 << 2
"""What is written is in ``forms``; a character without this and the two above is written as it is."""
CASED = 1 << 3
IGNORABLE = 1 << 4
"""Passed over by the rule of the final sigma: case-ignorable, or punctuation, which is gone by then."""
MARKED = 1 << 5
"""What is written has a combining class other than 0 somewhere, so its neighbours may have to change places with it."""
BREAKS = 1 << 6
"""Removed, but of combining class 0: the marks before it do not change places with those after it."""
ACCENT = 1 << 7
"""Removed as an accent, so it belongs to the character before it."""


class NormalForms(NamedTuple):
    """What is written for every code point."""

    kinds: npt.NDArray[np.uint8]
    """Shape (0x110000,): the constants of this module, or-ed."""
    places: npt.NDArray[np.uint32]
    """Shape (0x110000,): where the form of a mapped character starts in ``forms``."""
    forms: npt.NDArray[np.uint8]
    """UTF-8 of one form after the other, each after one byte that says how many bytes it has."""
    combining: npt.NDArray[np.uint8]
    """Shape (0x110000,): canonical combining class."""


@lru_cache(maxsize=1)
def load_normal_forms() -> NormalForms:
    """Return the arrays of this Python's Unicode version."""
    return NormalForms(**cached_arrays("normal-1", lambda: _build()._asdict()))


def _build() -> NormalForms:
    characters = load_characters("re")
    kinds = np.zeros(CODE_POINTS, np.uint8)
    kinds[characters.flags & _unicode.CASED != 0] = CASED
    kinds[characters.flags & _unicode.IGNORABLE != 0] |= IGNORABLE
    places = np.zeros(CODE_POINTS, np.uint32)
    forms = bytearray()
    for point in range(CODE_POINTS):
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
    """Return the kind of a character that is neither space nor punctuation, and its normal form."""
    decomposed = unicodedata.normalize("NFD", character.lower())
    kept = "".join(point for point in decomposed if unicodedata.category(point) != "Mn")
    if not kept:
        return REMOVED | ACCENT | (0 if all(map(unicodedata.combining, decomposed)) else BREAKS), b""
    marked = MARKED if any(map(unicodedata.combining, kept)) else 0
    return marked | (0 if kept == character else MAPPED), kept.encode()
