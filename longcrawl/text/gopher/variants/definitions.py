"""How others in the field read Gopher's rules: for each project what its kernels count, and what is divided by what."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.text.gopher import page_columns as page
from longcrawl.text.gopher._page_characters import ALPHABETIC, ALPHANUMERIC_FIRST, LETTER, TEXTUAL

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

NO_PARAGRAPHS, BLANK_APART, PAIRS_APART, PAIRS_APART_STRIPPED = range(4)
"""Paragraphs: none; between two or more newlines of the stripped text; between pairs of newlines; those that are not
blank of them, without the white space around them."""

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


BULLET_BYTE, ENDING_BYTE = 1, 2


class Reading(NamedTuple):
    """One project's choices, in the form that kernels take."""

    bullets: npt.NDArray[np.uint32]
    endings: npt.NDArray[np.uint8]
    """Shape (endings, bytes of the longest): what a line's end is compared with once it is lowered."""
    ending_sizes: npt.NDArray[np.int64]
    edges: npt.NDArray[np.uint8]
    """Shape (256,): ``BULLET_BYTE`` of the first bytes of bullets, ``ENDING_BYTE`` of the last ones of endings."""
    segments: int
    paragraphs: int
    repeated: int
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


def _reading(bullets: str, endings: tuple[str, ...], **chosen: int) -> Reading:
    spelled = [np.frombuffer(ending.encode(), np.uint8) for ending in endings]
    sizes = np.array(list(map(len, spelled)), np.int64)
    table = np.zeros((len(spelled), sizes.max()), np.uint8)
    for row, ending in zip(table, spelled, strict=True):
        row[: len(ending)] = ending
    edges = np.zeros(256, np.uint8)
    edges[[bullet.encode()[0] for bullet in bullets]] |= BULLET_BYTE
    edges[[spelled.encode()[-1] for ending in endings for spelled in (ending, ending.upper())]] |= ENDING_BYTE
    return Reading(np.array(list(map(ord, bullets)), np.uint32), table, sizes, edges, **chosen)


READINGS: Mapping[str, Reading] = {
    "datatrove": _reading(
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
    "dclm": _reading(
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
    "dolma": _reading(
        "*-",
        ("…",),
        lengths=MEDIAN,
        symbols=WORDS_WITH,
        lines=NEWLINE_RUNS,
        segments=NEWLINE_RUNS,
        paragraphs=NO_PARAGRAPHS,
        repeated=SUM,
    ),
    "nemo-curator": _reading(
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
