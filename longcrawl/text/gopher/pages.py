"""Counts of words, lines, paragraphs and n-grams in raw text: what Gopher's and FineWeb's rules are about."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.kernels.texts import text_buffers
from longcrawl.text.gopher._page_characters import ALPHABETIC, load_page_characters
from longcrawl.text.gopher.page_columns import AT_BREAKS, COLUMNS, EACH_CHARACTER, READING_COLUMNS, WHOLE_RUNS
from longcrawl.text.gopher.segmentation import word_breaks
from longcrawl.text.gopher.variants.definitions import READINGS, Definitions

__all__ = ["Counts", "Words", "count_pages", "distinct_words", "ratio"]

Doubles = npt.NDArray[np.float64]
Words = Literal["whitespace", "characters", "icu"]
"""What a word is in scripts that are written without spaces: the whole run, each character, or as ICU segments them."""


@dataclass(frozen=True)
class Counts:
    """What was counted in each document: float64, shape (documents, columns)."""

    rows: Doubles

    def __getitem__(self, column: int) -> Doubles:
        counted: Doubles = self.rows[:, column]
        return counted


def count_pages(
    texts: pa.Array,
    what: int,
    stop_words: Sequence[tuple[str, ...]] = (),
    languages: npt.NDArray[np.int32] | None = None,
    words: Words = "whitespace",
    short_line: int = 0,
    definitions: Definitions = "paper",
) -> Counts:
    """Count in valid texts; a null one is counted as if it were empty.

    Args:
        texts: large strings.
        what: QUALITY, REPETITION and LINE_RULES of ``_page_columns``, or-ed.
        stop_words: lists of them.
        languages: which list each document is searched for, -1 for none; None is none for all.
        words: what a word is in scripts that are written without spaces.
        short_line: a line of up to so many characters is short.
        definitions: whose reading of Gopher's rules is taken; others than the paper's have no LINE_RULES.

    """
    from longcrawl.text.gopher._page_kernels import make_page
    from longcrawl.text.gopher._page_measures import measure_pages

    data, offsets = text_buffers(texts)
    flags = load_page_characters()
    mode, breaks = _cuts(words, data, offsets, flags)
    chosen = np.full(len(texts), -1, np.int32) if languages is None else languages
    size = _size(data, offsets)
    if definitions == "paper":
        rows = np.zeros((len(texts), COLUMNS))
        listed = _stop_words(tuple(stop_words), "any case")
        page = make_page(*size, flags)
        measure_pages(data, offsets, chosen, listed, flags, mode, breaks, what, short_line, page, rows)
        return Counts(rows)
    rows = np.zeros((len(texts), READING_COLUMNS))
    listed = _stop_words(tuple(stop_words), "as listed")
    _read(data, offsets, chosen, listed, mode, breaks, what, definitions, size, rows)
    return Counts(rows)


def _read(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    languages: npt.NDArray[np.int32],
    stop_words: Any,
    mode: int,
    breaks: npt.NDArray[np.int64],
    what: int,
    definitions: Definitions,
    size: tuple[int, int],
    rows: Doubles,
) -> None:
    """Count by a reading other than the paper's."""
    from longcrawl.text.gopher._page_kernels import make_page
    from longcrawl.text.gopher.variants.characters import load_lower_case, load_reading_characters
    from longcrawl.text.gopher.variants.measures import measure_readings
    from longcrawl.text.gopher.variants.ngrams import make_spelling

    flags = load_reading_characters()
    measure_readings(
        data,
        offsets,
        languages,
        stop_words,
        flags,
        load_lower_case(),
        mode,
        breaks,
        what,
        READINGS[definitions],
        make_page(*size, flags),
        make_spelling(size[0]),
        rows,
    )


def distinct_words(texts: pa.Array, words: Words = "whitespace") -> Iterator[dict[str, int]]:
    """Return how often each word that has a letter stands in each valid text, in lower case."""
    from longcrawl.text.gopher._page_kernels import make_page, number_words, split_page

    data, offsets = text_buffers(texts)
    flags = load_page_characters()
    mode, breaks = _cuts(words, data, offsets, flags)
    page = make_page(*_size(data, offsets), flags)
    next_break = 0
    for begin, end in pairwise(offsets):
        split, _, _, next_break = split_page(data, begin, end, flags, mode, breaks, next_break, page)
        unique = number_words(data, page, split) if split else 0
        counted: Counter[str] = Counter()
        for first, count in zip(page.firsts[:unique].tolist(), page.counts[:unique].tolist(), strict=True):
            if page.word_flags[first] & ALPHABETIC:
                counted[bytes(data[page.word_begins[first] : page.word_ends[first]]).decode().lower()] += count
        yield counted


def ratio(count: Doubles, of: Doubles) -> Doubles:
    """Divide; of nothing the share is 0."""
    divided: Doubles = np.divide(count, of, out=np.zeros_like(count), where=of > 0)
    return divided


def _size(data: Any, offsets: Any) -> tuple[int, int]:
    """Return the bytes of the longest document, and how many newlines there are in all."""
    newlines = np.count_nonzero(data[offsets[0] : offsets[-1]] == ord("\n"))
    return int(np.diff(offsets).max(initial=0)), int(newlines)


def _cuts(words: Words, data: Any, offsets: Any, flags: Any) -> tuple[int, npt.NDArray[np.int64]]:
    """Return how runs of a script without spaces are cut, and at which bytes ICU cuts them."""
    mode = {"whitespace": WHOLE_RUNS, "characters": EACH_CHARACTER, "icu": AT_BREAKS}[words]
    return mode, word_breaks(data, offsets, flags) if words == "icu" else np.zeros(0, np.int64)


@lru_cache(maxsize=8)
def _stop_words(lists: tuple[tuple[str, ...], ...], spelled: Literal["any case", "as listed"]) -> Any:
    from longcrawl.text.gopher._stop_words import make_stop_words

    return make_stop_words(lists, spelled)
