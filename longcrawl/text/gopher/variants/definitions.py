"""How others in the field read Gopher's rules: for each project what its kernels count, and what is divided by what."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.text.gopher import page_columns as page
from longcrawl.text.gopher._page_characters import ALPHABETIC, ALPHANUMERIC_FIRST, BULLETS, LETTER, MARKERS, TEXTUAL

Definitions = Literal["paper", "datatrove", "dclm", "dolma", "nemo-curator"]
"""Whose reading of Gopher's rules is taken."""

Share = tuple[int, int | None]
"""The column that is counted, and the one by which it is divided."""

ALL_WORDS = 0
"""Which words count: all, or those with the flag ``TEXTUAL`` or ``ALPHANUMERIC_FIRST``."""

MEAN, MEDIAN = range(2)
"""How the length of words is summed up."""

APART, TOGETHER, WORDS_WITH, WORDS_OF = range(4)
"""Number signs and ellipses: counted apart; in one, ``. . .`` too; words with one; words that are little else."""

DISTINCT, OCCURRENCES = range(2)
AS_LISTED, LOWERED = range(2)
"""Stop words: different ones or all of them; as they stand or lowered."""

UNICODE_LINES, STRIPPED_LINES, FILLED_LINES, NEWLINE_RUNS = range(4)
"""Lines: of ``str.splitlines``; between newlines and not blank, without the white space around them or with it; between
runs of newlines, empty ones at the ends too."""

BLANK_LINES, BLANK_APART, PAIRS_APART, PAIRS_APART_STRIPPED, NO_PARAGRAPHS = range(4, 9)
"""Paragraphs: between blank lines, without the white space around them; between two or more newlines of the stripped
text; between pairs of newlines; those that are not blank of them, without the white space around them; none."""

FIRST, LONGEST = range(2)
REPEATED_ONLY, ONCE_TOO = range(2)
IN_WORDS, WITH_SPACES, FOUND_IN_TEXT = range(3)
"""The most frequent n-gram: which of equally frequent ones; whether one that comes once counts; whether its words'
characters are counted, its spaces too, or every place at which its words stand in the text with one space between."""

UNION, SKIP, SUM, LATER = range(4)
"""Repeated n-grams: each word that one covers, once; those but the first, skipping what they cover, spelled without
spaces; all of them, overlaps too; each word and space that one but the first covers."""

NOTHING, EVERYTHING = range(2)
"""What the share of n-grams is in a text of fewer than n words."""


BULLET_BYTE, ENDING_BYTE, BEFORE_ENDING_BYTE = 1, 2, 4


WHAT, SHORT_LINE = range(2)
LINES, COUNTED, LENGTHS, SYMBOLS, ALPHABETIC_WORDS, STOP_WORDS, STOP_WORD_CASE = range(2, 9)
SEGMENTS, PARAGRAPHS, GRAM_WORDS, TOP, TOP_ONCE, TOP_SIZE, REPEATED, FEW_WORDS = range(9, 17)
"""The columns of ``Readings.choices``."""


class Reading(NamedTuple):
    """One project's choices."""

    bullets: str
    endings: tuple[str, ...]
    """What a line's end is compared with once it is lowered."""
    segments: int
    paragraphs: int
    repeated: int
    markers: str = ""
    """Bullets that are a word by themselves."""
    lines: int = STRIPPED_LINES
    counted: int = ALL_WORDS
    lengths: int = MEAN
    symbols: int = APART
    alphabetic: int = ALPHABETIC
    """The flag that one character of an alphabetic word has."""
    stop_words: int = OCCURRENCES
    stop_word_case: int = AS_LISTED
    gram_words: int = ALL_WORDS
    top: int = FIRST
    top_once: int = ONCE_TOO
    top_size: int = IN_WORDS
    few_words: int = NOTHING


class Readings(NamedTuple):
    """Some readings in the form that kernels take, a row each."""

    choices: npt.NDArray[np.int64]
    """Shape (readings, 17): what is counted, and how."""
    bullets: npt.NDArray[np.uint32]
    markers: npt.NDArray[np.uint32]
    """Shape (readings, most): code points, filled up with what is none."""
    endings: npt.NDArray[np.uint8]
    """Shape (readings, most, bytes of the longest)."""
    ending_sizes: npt.NDArray[np.int64]
    """Shape (readings, most): 0 where there is none."""
    edges: npt.NDArray[np.uint8]
    """Shape (readings + 1, 256): ``BULLET_BYTE`` of the first bytes of bullets, ``ENDING_BYTE`` of the last of endings,
    ``BEFORE_ENDING_BYTE`` of those before; the last row is that of all readings."""


_NO_POINT = 0x110000


def make_readings(asked: Sequence[tuple[Definitions, int, int]]) -> Readings:
    """Return how definitions are read, what is counted for each, and of how many characters a line is short."""
    known = [READINGS[definitions] for definitions, _, _ in asked]
    choices = [
        (what, short_line, *_choices(reading)) for (_, what, short_line), reading in zip(asked, known, strict=True)
    ]
    most = max(len(reading.endings) for reading in known)
    longest = max(len(ending.encode()) for reading in known for ending in reading.endings)
    endings, sizes = np.zeros((len(known), most, longest), np.uint8), np.zeros((len(known), most), np.int64)
    edges = np.zeros((len(known) + 1, 256), np.uint8)
    for row, reading in enumerate(known):
        edges[row, [mark.encode()[0] for mark in reading.bullets + reading.markers]] |= BULLET_BYTE
        cases = [each.encode() for ending in reading.endings for each in (ending, ending.upper())]
        edges[row, [ending[-1] for ending in cases]] |= ENDING_BYTE
        edges[row, [ending[-2] for ending in cases]] |= BEFORE_ENDING_BYTE
        edges[-1] |= edges[row]
        for place, ending in enumerate(reading.endings):
            spelled = np.frombuffer(ending.encode(), np.uint8)
            endings[row, place, : len(spelled)], sizes[row, place] = spelled, len(spelled)
    bullets = _points([reading.bullets for reading in known])
    markers = _points([reading.markers for reading in known])
    return Readings(np.array(choices, np.int64), bullets, markers, endings, sizes, edges)


def _choices(reading: Reading) -> tuple[int, ...]:
    quality = (reading.lines, reading.counted, reading.lengths, reading.symbols, reading.alphabetic)
    stop_words = (reading.stop_words, reading.stop_word_case)
    repetition = (reading.segments, reading.paragraphs, reading.gram_words)
    top = (reading.top, reading.top_once, reading.top_size)
    return (*quality, *stop_words, *repetition, *top, reading.repeated, reading.few_words)


def _points(characters: Sequence[str]) -> npt.NDArray[np.uint32]:
    points = np.full((len(characters), max(map(len, characters))), _NO_POINT, np.uint32)
    for row, each in zip(points, characters, strict=True):
        row[: len(each)] = list(map(ord, each))
    return points


READINGS: Mapping[Definitions, Reading] = {
    "paper": Reading(
        BULLETS,
        ("...", "…"),
        markers=MARKERS,
        stop_words=DISTINCT,
        segments=STRIPPED_LINES,
        paragraphs=BLANK_LINES,
        top_once=REPEATED_ONLY,
        repeated=UNION,
    ),
    "datatrove": Reading(
        "•-",
        ("...", "…"),
        counted=TEXTUAL,
        stop_words=DISTINCT,
        lines=UNICODE_LINES,
        segments=NEWLINE_RUNS,
        paragraphs=BLANK_APART,
        top_size=WITH_SPACES,
        repeated=SKIP,
    ),
    "dclm": Reading(
        "●•*-",
        ("...", ". . .", "…"),
        counted=ALPHANUMERIC_FIRST,
        symbols=TOGETHER,
        stop_word_case=LOWERED,
        segments=STRIPPED_LINES,
        paragraphs=PAIRS_APART_STRIPPED,
        gram_words=ALPHANUMERIC_FIRST,
        top=LONGEST,
        top_once=REPEATED_ONLY,
        repeated=UNION,
    ),
    "dolma": Reading(
        "*-",
        ("…",),
        lengths=MEDIAN,
        symbols=WORDS_WITH,
        lines=NEWLINE_RUNS,
        segments=NEWLINE_RUNS,
        paragraphs=NO_PARAGRAPHS,
        repeated=SUM,
    ),
    "nemo-curator": Reading(
        "•‣\N{HYPHEN BULLET}⁌⁍∙○●◘◦⦾⦿",
        ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more"),
        symbols=WORDS_OF,
        alphabetic=LETTER,
        segments=FILLED_LINES,
        paragraphs=PAIRS_APART,
        top_size=FOUND_IN_TEXT,
        repeated=LATER,
        few_words=EVERYTHING,
    ),
}


def quality_shares(definitions: Definitions) -> dict[str, Share]:
    """Return of each of Gopher's rules for quality what is counted and what that is divided by."""
    counted = definitions in ("datatrove", "dclm")
    words = page.COUNTED_WORDS if counted else page.WORDS
    length: Share = (page.WORD_CHARACTERS, page.WORDS)
    if definitions == "datatrove":
        length = (page.COUNTED_CHARACTERS, page.COUNTED_WORDS)
    elif definitions == "dolma":
        length = (page.MEDIAN_LENGTH, None)
    apart = definitions in ("paper", "datatrove")
    return {
        "min_words": (words, None),
        "max_words": (words, None),
        "min_mean_word_length": length,
        "max_mean_word_length": length,
        "max_hash_ratio": (page.HASHES if apart else page.SYMBOLS, page.WORDS),
        "max_ellipsis_ratio": (page.ELLIPSES if apart else page.SYMBOLS, page.WORDS),
        "max_bullet_lines": (page.BULLET_LINES, page.LINES),
        "max_ellipsis_lines": (page.ELLIPSIS_LINES, page.LINES),
        "min_alphabetic_words": (page.ALPHABETIC_WORDS, page.WORDS),
        "min_stop_words": (page.STOP_WORDS, None),
    }


def repetition_shares(definitions: Definitions) -> dict[str, Share]:
    """Return of each of Gopher's rules for repetition what is counted and what that is divided by."""
    return dict([*_segment_shares(definitions), *_gram_shares(definitions)])


def _segment_shares(definitions: Definitions) -> Iterator[tuple[str, Share]]:
    later = definitions in ("datatrove", "nemo-curator")
    segments, characters = (
        (page.LATER_DUPLICATES, page.LATER_CHARACTERS) if later else (page.DUPLICATES, page.DUPLICATE_CHARACTERS)
    )
    named = {"line": page.LINE_SEGMENTS, "paragraph": page.PARAGRAPH_SEGMENTS}
    if definitions == "dolma":
        del named["paragraph"]
    # datatrove asks paragraphs first, and the rule that speaks first is the one in the ledger.
    for name, first in reversed(named.items()) if definitions == "datatrove" else named.items():
        of = {"datatrove": page.CHARACTERS, "dolma": page.WORD_CHARACTERS}
        yield f"max_duplicate_{name}s", (first + segments, first + page.SEGMENTS)
        yield (
            f"max_duplicate_{name}_characters",
            (first + characters, of.get(definitions, first + page.SEGMENT_CHARACTERS)),
        )


def _gram_shares(definitions: Definitions) -> Iterator[tuple[str, Share]]:
    of = {"datatrove": page.CHARACTERS, "nemo-curator": page.CHARACTERS, "dclm": page.COUNTED_CHARACTERS}
    all_words = of.get(definitions, page.WORD_CHARACTERS)
    for n in range(2, 5):
        yield f"max_top_{n}gram", (page.TOP_2_GRAM + n - 2, all_words)
    for n in range(5, 11):
        grams = page.GRAM_CHARACTERS + n - 5 if definitions == "dolma" else all_words
        yield f"max_duplicate_{n}grams", (page.DUPLICATE_5_GRAMS + n - 5, grams)
