"""What rules over raw text need to know of every code point, as an array that kernels index.

Asked of this Python's own ``str`` and ``unicodedata``: rules follow its Unicode version.
"""

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import cached_arrays

SPACE = 1 << 0
ALPHABETIC = 1 << 1
ALPHANUMERIC = 1 << 2
UNSPACED = 1 << 3
"""A letter or mark of a script that is written without spaces between words."""
MARK = 1 << 4
"""Belongs to the character before it."""
SYMBOL = 1 << 5
"""The number sign, the full stop and the ellipsis, which Gopher's symbol rules count."""
TERMINAL = 1 << 6
"""Ends a sentence in some script: Unicode's Sentence_Terminal."""
LINE_BREAK = 1 << 7
"""Where ``str.splitlines`` splits."""

BULLET = 1 << 8
MARKER = 1 << 9
"""Stands before an item of a list where white space follows."""

CODE_POINTS = 0x110000
_BULLETS = "•‣\N{HYPHEN BULLET}⁌⁍∙◘◦⦾⦿▪▫■□●○◆◇▶►◀"
_MARKERS = "-*+\N{EN DASH}"
_SYMBOLS = "#.…"
_UNTOUCHED = {"Cn", "Co", "Cs"}

_SCRIPTS = (
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x0F00, 0x0FFF),  # Tibetan, which separates syllables
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x3005, 0x3007),  # ideographic iteration mark and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3105, 0x312F),  # Bopomofo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA980, 0xA9DF),  # Javanese
    (0xA9E0, 0xA9FF),  # Myanmar Extended
    (0xAA60, 0xAADF),  # Myanmar Extended, Tai Viet
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF66, 0xFF9F),  # Katakana, half width
    (0x1B000, 0x1B16F),  # Kana Supplement and extensions
    (0x20000, 0x323AF),  # Han
)


@lru_cache(maxsize=1)
def load_page_characters() -> npt.NDArray[np.uint16]:
    """Return the flags of every code point, shape (0x110000,): from the cache folder, else built."""
    return cached_arrays("page-2", _build)["flags"]


def _build() -> dict[str, npt.NDArray[Any]]:
    assigned = [point for point in range(CODE_POINTS) if unicodedata.category(chr(point)) not in _UNTOUCHED]
    characters = list(map(chr, assigned))
    flags = np.zeros(CODE_POINTS, np.uint16)
    for flag, holds in _RULES.items():
        flags[assigned] |= np.fromiter(map(holds, characters), np.bool_, len(characters)) * np.uint16(flag)
    for first, last in code_point_ranges(_SENTENCE_TERMINAL):
        flags[first : last + 1] |= TERMINAL
    return {"flags": flags}


def code_point_ranges(listed: str) -> list[tuple[int, int]]:
    """Read code points as Unicode's files list them, ``0345 0363-036F``: the first and the last of each range."""
    ends = [each.split("-") for each in listed.split()]
    return [(int(first, 16), int((last or [first])[0], 16)) for first, *last in ends]


def _is_unspaced(character: str) -> bool:
    category = unicodedata.category(character)
    return (category[0] in "LM" or category == "Nl") and any(
        first <= ord(character) <= last for first, last in _SCRIPTS
    )


_SENTENCE_TERMINAL = """
0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B 1362 1367-1368 166E
1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F
2024 203C-203D 2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877
A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57
10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239
1123B-1123C 112A9 113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946
11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F
16E98 1BC9F 1DA88
"""
"""Unicode's property Sentence_Terminal, version 17, which Python does not know."""

_RULES: dict[int, Callable[[str], bool]] = {
    SPACE: str.isspace,
    ALPHABETIC: str.isalpha,
    ALPHANUMERIC: str.isalnum,
    UNSPACED: _is_unspaced,
    MARK: lambda character: unicodedata.category(character)[0] == "M",
    SYMBOL: _SYMBOLS.__contains__,
    BULLET: _BULLETS.__contains__,
    MARKER: _MARKERS.__contains__,
    LINE_BREAK: lambda character: len(f"a{character}b".splitlines()) > 1,
}
