"""Tables of the properties of all code points for kernels, shipped with the package or cached on disk.

All properties are those of the running Python's ``str`` and ``unicodedata``; RedPajama-V2 was made with Unicode 14.0,
of Python 3.11. The arrays take more than a second to build, and are shipped for Python 3.11 to 3.14.
"""

import hashlib
import io
import os
import string
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.io.files import whole_file

Arrays = dict[str, npt.NDArray[Any]]


def kept_arrays(name: str, stamp: str, build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that ``build`` makes, cached on disk for the same stamp.

    The file begins with a SHA-256 of stamp and arrays; a damaged one is built again. New arrays are also read back from
    the packed bytes: kernels are compiled separately for writable and read-only arrays.
    """
    path = cache_folder() / f"{name}.arrays"
    with suppress(OSError):
        kept = path.read_bytes()
        if kept[:32] == _digest(stamp, kept[32:]):
            return _unpack(kept[32:])
    packed = io.BytesIO()
    np.savez(packed, **build())  # type: ignore[arg-type]  # its stubs take the arrays for allow_pickle
    with suppress(OSError), whole_file(path) as beside:
        beside.write_bytes(_digest(stamp, packed.getvalue()) + packed.getvalue())
    return _unpack(packed.getvalue())


def shipped_arrays(file: Path, name: str) -> Arrays:
    """Return the arrays of a table in a file, which ``tests/shipped_tables.py`` writes, or {} if there are none."""
    with suppress(FileNotFoundError), np.load(file) as shipped:
        found = [each for each in shipped.files if each.startswith(f"{name}/")]
        return {each.removeprefix(f"{name}/"): _expand(shipped[each]) for each in found}
    return {}


def _expand(runs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array of runs of equal steps between elements, or one that is not encoded as it is."""
    if runs.dtype.names is None:
        return runs
    steps = np.repeat(runs["step"], runs["count"])
    return np.cumsum(steps, dtype=steps.dtype, out=steps)


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/longcrawl``, or ``~/.cache/longcrawl``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "longcrawl"


def _unpack(content: bytes) -> Arrays:
    return dict(np.load(io.BytesIO(content)))


def _digest(stamp: str, content: bytes) -> bytes:
    return hashlib.sha256(stamp.encode() + b"\0" + content).digest()


SPACE = 1 << 0
WORD = 1 << 1
"""Flag of ``\\w``: alphanumeric, or the underscore."""
UPPER = 1 << 2
LOWER = 1 << 3
"""Flag of lower and title case; a word with such a character is not all upper case."""
ASCII_LETTER = 1 << 4
NUMERIC = 1 << 5
"""Flag of characters with a normal form of one numeric character."""
CASED = 1 << 6
"""Flag of cased characters that are not case-ignorable, as in the rule of the final sigma."""
IGNORABLE = 1 << 7
"""Flag of case-ignorable characters, and of ASCII punctuation, which is removed before lowercasing."""
BULLET = 1 << 8
PUNCTUATION = 1 << 9
TERMINAL = 1 << 10
SENTENCE_END = 1 << 11
SYMBOL = 1 << 12
PLAIN = 1 << 13
"""Flag of characters whose normal form is one character of combining class 0 in any context."""
RAW_WORD = 1 << 14
RAW_SPACE = 1 << 15
"""Flags of ``\\w`` and ``\\s`` in the tokenizer of raw words."""

RawWords = Literal["re", "regex"]
Rules = dict[int, Callable[[str], bool]]

BULLETS = "•‣▶◀◦■□▪▫\N{EN DASH}"
TERMINAL_MARKS = ".!?”"
SENTENCE_ENDS = ".!?"
SYMBOLS = SENTENCE_ENDS + "#{}…"
CAPITAL_SIGMA = 0x3A3
FINAL_SIGMA = 0x3C2
CODE_POINTS = 0x110000

DEFAULT_IGNORABLE = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),  # fillers of Hangul
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),  # zero-width space, joiners, directions
    (0x202A, 0x202E),
    (0x2060, 0x206F),  # word joiner, invisible operators, directions
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),  # tags, more variation selectors
)
"""Ranges of invisible code points: Default_Ignorable_Code_Point of Unicode 14.0 to 16.0."""

SHIPPED = Path(__file__).parent
"""Directory of the shipped arrays, which ``tests/kernels/test_code_points.py`` writes and compares."""

_UNTOUCHED = {"Cn", "Co", "Cs"}
"""Categories of unassigned, private and surrogate code points: without properties, and their own normal form."""


class Characters(NamedTuple):
    """Properties and normal form of every code point: lower case, then NFD, or empty for ASCII punctuation."""

    flags: npt.NDArray[np.uint16]
    """Flags, shape (0x110000,): constants of this module combined by bitwise or."""
    mapped: npt.NDArray[np.uint32]
    """Normal form of a plain character, or the start of that of others in ``sequences``, shape (0x110000,)."""
    sequences: npt.NDArray[np.uint32]
    """Normal forms one after the other: length, number of numeric characters, then code points."""
    combining: npt.NDArray[np.uint8]
    """Canonical combining class, shape (0x110000,)."""


@lru_cache(maxsize=2)
def load_characters(raw_words: RawWords) -> Characters:
    r"""Return the properties of all code points in this Python's Unicode version.

    ``raw_words`` selects the ``\w`` and ``\s`` of raw words: those of Python's ``re`` or of the package ``regex``.
    """
    arrays = cached_arrays("characters-2", _build)
    return Characters(arrays[raw_words], arrays["mapped"], arrays["sequences"], arrays["combining"])


def cached_arrays(name: str, build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that ``build`` makes for this Unicode version; change the name if ``build`` changes."""
    version = unicodedata.unidata_version
    shipped = shipped_arrays(SHIPPED / f"unicode-{version}.npz", name)
    return shipped or kept_arrays(f"unicode-{version}-{name}", "", build)


def _assigned() -> list[int]:
    return [point for point in range(CODE_POINTS) if unicodedata.category(chr(point)) not in _UNTOUCHED]


def flags_of_code_points(rules: Rules) -> npt.NDArray[np.uint16]:
    """Return the flags of every code point: those of all rules that hold, combined by bitwise or; shape (0x110000,)."""
    assigned = _assigned()
    characters = list(map(chr, assigned))
    flags = np.zeros(CODE_POINTS, np.uint16)
    for flag, holds in rules.items():
        flags[assigned] |= np.fromiter(map(holds, characters), np.bool_, len(characters)) * np.uint16(flag)
    return flags


def _build() -> Arrays:
    """Build the arrays of :class:`Characters`, with one array of flags per tokenizer of raw words, by its name."""
    flags = flags_of_code_points(_RULES) | np.uint16(PLAIN)
    mapped = np.arange(CODE_POINTS, dtype=np.uint32)
    combining = np.zeros(CODE_POINTS, np.uint8)
    sequences: list[int] = []
    for point in _assigned():
        character = chr(point)
        combining[point] = unicodedata.combining(character)
        normal = "" if character in string.punctuation else unicodedata.normalize("NFD", character.lower())
        if character.isspace() or (normal == character and not combining[point]):
            flags[point] |= NUMERIC * character.isnumeric()
        elif len(normal) == 1 and not unicodedata.combining(normal) and point != CAPITAL_SIGMA:
            mapped[point] = ord(normal)
            flags[point] |= NUMERIC * normal.isnumeric()
        else:
            flags[point] &= ~PLAIN & 0xFFFF
            mapped[point] = len(sequences)
            sequences += [len(normal), sum(map(str.isnumeric, normal)), *map(ord, normal)]
    by_raw_words: Arrays = {name: flags | flags_of_code_points(rules) for name, rules in _RAW_RULES.items()}
    return by_raw_words | {"mapped": mapped, "sequences": np.array(sequences, np.uint32), "combining": combining}


def _is_cased(before: str) -> bool:
    return (before + chr(CAPITAL_SIGMA)).lower()[-1] == chr(FINAL_SIGMA)


def _is_ignorable(character: str) -> bool:
    return (_is_cased("a" + character) and not _is_cased(character)) or character in string.punctuation


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_word_to_regex(character: str) -> bool:
    """Return whether a character is Alphabetic, M, Nd, Pc or Join_Control, as in UTS #18."""
    category = unicodedata.category(character)
    joins_or_is_alphabetic = any(first <= ord(character) <= last for first, last in _OTHER_WORDS)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or joins_or_is_alphabetic


_OTHER_WORDS = ((0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
"""Ranges of the joiners, and of circled and squared letters, which are alphabetic although their category is So."""

_RULES: Rules = {
    SPACE: str.isspace,
    WORD: _is_word,
    UPPER: str.isupper,
    LOWER: lambda character: character.islower() or (character.istitle() and not character.isupper()),
    ASCII_LETTER: string.ascii_letters.__contains__,
    CASED: _is_cased,
    IGNORABLE: _is_ignorable,
    BULLET: BULLETS.__contains__,
    PUNCTUATION: string.punctuation.__contains__,
    TERMINAL: TERMINAL_MARKS.__contains__,
    SENTENCE_END: SENTENCE_ENDS.__contains__,
    SYMBOL: SYMBOLS.__contains__,
}

_RAW_RULES: dict[RawWords, Rules] = {
    "re": {RAW_WORD: _is_word, RAW_SPACE: str.isspace},
    "regex": {
        RAW_WORD: _is_word_to_regex,
        RAW_SPACE: lambda character: character.isspace() and character not in "\x1c\x1d\x1e\x1f",
    },
}
