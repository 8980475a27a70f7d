"""Which places of a text the rules over raw text are about: one document at a time, in plain Python.

Words, lines and what counts are those of the kernels in ``_page_kernels`` and ``_page_measures``, read once more for a
single text, where being easy to follow matters and speed does not.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from operator import itemgetter

import numpy as np

from longcrawl.text.gopher._page_characters import (
    ALPHANUMERIC,
    BULLET,
    MARK,
    MARKER,
    TERMINAL,
    UNSPACED,
    load_page_characters,
)
from longcrawl.text.gopher.pages import Words
from longcrawl.text.gopher.segmentation import word_breaks

__all__ = ["find_marks"]

Span = tuple[int, int]
Finder = Callable[["_Text"], Iterable[Span]]


def find_marks(text: str, rule: str, words: Words = "whitespace", short_line: int = 0) -> list[Span]:
    """Return the places that a rule is about, as offsets in characters: sorted, none overlapping.

    A rule that asks for at least so much is about what lacks it: lines without a terminal mark, words without a letter.
    A rule that is about no places, such as a count of all words, has none.

    >>> find_marks("One # and ## more.", "max_hash_ratio")
    [(4, 5), (10, 11), (11, 12)]
    """
    find = _FINDERS.get(rule)
    return [] if find is None else list(find(_Text(text, words, short_line)))


@dataclass(frozen=True)
class _Text:
    text: str
    mode: Words
    short_line: int

    @cached_property
    def flags(self) -> list[int]:
        """What rules need to know of each character."""
        points = np.frombuffer(self.text.encode("utf-32-le"), np.uint32)
        flags: list[int] = load_page_characters()[points].tolist()
        return flags

    @cached_property
    def words(self) -> list[Span]:
        """What stands between white space; in scripts without spaces cut as ``mode`` says."""
        cuts = sorted({at for run in re.finditer(r"\S+", self.text) for at in run.span()} | set(self._cuts()))
        return [(begin, end) for begin, end in pairwise(cuts) if not self.text[begin].isspace()]

    @cached_property
    def spelled(self) -> list[str]:
        return [self.text[begin:end] for begin, end in self.words]

    @cached_property
    def raw_lines(self) -> list[Span]:
        """Lines that are not blank, with the white space around them, without their newline."""
        ends = [match.start() for match in re.finditer(r"\n|\Z", self.text)]
        begins = [0, *(end + 1 for end in ends)]
        return [(begin, end) for begin, end in zip(begins, ends, strict=False) if self.text[begin:end].strip()]

    @cached_property
    def lines(self) -> list[Span]:
        """Lines that are not blank, without the white space around them."""
        return [self._stripped(line) for line in self.raw_lines]

    @cached_property
    def paragraphs(self) -> list[Span]:
        """What stands between blank lines."""
        found: list[Span] = []
        last = None
        for begin, end in self.raw_lines:
            # The newline of the line before is all that stands between two lines of a paragraph.
            first = found.pop()[0] if last is not None and begin == last + 1 else begin
            found.append((first, end))
            last = end
        return [self._stripped(paragraph) for paragraph in found]

    def _stripped(self, span: Span) -> Span:
        inside = self.text[slice(*span)]
        begin = span[0] + len(inside) - len(inside.lstrip())
        return begin, begin + len(inside.strip())

    def _cuts(self) -> Iterator[int]:
        """Return where words begin inside of what stands between white space."""
        if self.mode == "whitespace":
            return
        breaks = self._breaks() if self.mode == "icu" else set()
        for at in range(1, len(self.text)):
            before, flag = self.flags[at - 1 : at + 1]
            if flag & UNSPACED or (before & UNSPACED and flag & ALPHANUMERIC):
                inside = not self.text[at - 1].isspace()
                if inside and (at in breaks if self.mode == "icu" else not flag & MARK):
                    yield at

    def _breaks(self) -> set[int]:
        """Return where ICU begins words."""
        data = np.frombuffer(self.text.encode() or b"\0", np.uint8)
        breaks = word_breaks(data, np.array([0, len(self.text.encode())]), load_page_characters())
        characters = np.flatnonzero(data & 0xC0 != 0x80)
        return set(np.searchsorted(characters, breaks).tolist())


def _hash_signs(page: _Text) -> Iterator[Span]:
    return (match.span() for match in re.finditer("#", page.text))


def _ellipses(page: _Text) -> Iterator[Span]:
    return (match.span() for match in re.finditer(r"\.\.\.|…", page.text))


def _unspaced_letters(page: _Text) -> Iterator[Span]:
    unspaced = "".join("x" if flag & UNSPACED else " " for flag in page.flags)
    return (match.span() for match in re.finditer("x+", unspaced))


def _bullet_lines(page: _Text) -> Iterator[Span]:
    ends = dict(page.words)
    for begin, end in page.lines:
        alone = ends[begin] == begin + 1
        if page.flags[begin] & BULLET or (alone and page.flags[begin] & MARKER):
            yield begin, end


def _ellipsis_lines(page: _Text) -> Iterator[Span]:
    return ((begin, end) for begin, end in page.lines if page.text[begin:end].endswith(("...", "…")))


def _words_without_letters(page: _Text) -> Iterator[Span]:
    return ((begin, end) for begin, end in page.words if not any(map(str.isalpha, page.text[begin:end])))


def _lines_without_terminal(page: _Text) -> Iterator[Span]:
    return ((begin, end) for begin, end in page.raw_lines if not page.flags[end - 1] & TERMINAL)


def _short_lines(page: _Text) -> Iterator[Span]:
    return ((begin, end) for begin, end in page.raw_lines if end - begin <= page.short_line)


def _later_lines(page: _Text) -> Iterator[Span]:
    """Return the lines that stood before already."""
    seen = set()
    for begin, end in page.raw_lines:
        line = page.text[begin:end]
        if line in seen:
            yield begin, end
        seen.add(line)


def _duplicate_lines(page: _Text) -> list[Span]:
    return _duplicates(page.text, page.lines)


def _duplicate_paragraphs(page: _Text) -> list[Span]:
    return _duplicates(page.text, page.paragraphs)


def _duplicates(text: str, spans: list[Span]) -> list[Span]:
    times = Counter(text[begin:end] for begin, end in spans)
    return [(begin, end) for begin, end in spans if times[text[begin:end]] > 1]


def _top_ngram(page: _Text, n: int) -> list[Span]:
    """Return all occurrences of the most frequent n-gram, the first of those as frequent; none where none repeats."""
    grams = _ngrams(page, n)
    # Counters keep the order in which n-grams first came, and max gives the first of several.
    top, times = max(Counter(grams).items(), key=itemgetter(1), default=((), 0))
    return _places(page, n, [gram == top for gram in grams]) if times > 1 else []


def _duplicate_ngrams(page: _Text, n: int) -> list[Span]:
    """Return the words that any repeated n-gram covers."""
    grams = _ngrams(page, n)
    times = Counter(grams)
    return _places(page, n, [times[gram] > 1 for gram in grams])


def _ngrams(page: _Text, n: int) -> list[tuple[str, ...]]:
    return [tuple(page.spelled[at : at + n]) for at in range(len(page.words) - n + 1)]


def _places(page: _Text, n: int, chosen: list[bool]) -> list[Span]:
    """Return the spans of the chosen n-grams; those that share words become one."""
    found: list[Span] = []
    for at in (at for at, one in enumerate(chosen) if one):
        begin, end = page.words[at][0], page.words[at + n - 1][1]
        if found and begin < found[-1][1]:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


_FINDERS: dict[str, Finder] = {
    "max_unspaced_letters": _unspaced_letters,
    "max_hash_ratio": _hash_signs,
    "max_ellipsis_ratio": _ellipses,
    "max_bullet_lines": _bullet_lines,
    "max_ellipsis_lines": _ellipsis_lines,
    "min_alphabetic_words": _words_without_letters,
    "max_duplicate_lines": _duplicate_lines,
    "max_duplicate_line_characters": _duplicate_lines,
    "max_duplicate_paragraphs": _duplicate_paragraphs,
    "max_duplicate_paragraph_characters": _duplicate_paragraphs,
    "min_terminal_lines": _lines_without_terminal,
    "max_short_lines": _short_lines,
    "max_later_line_characters": _later_lines,
}
_FINDERS |= {f"max_top_{n}gram": partial(_top_ngram, n=n) for n in range(2, 5)}
_FINDERS |= {f"max_duplicate_{n}grams": partial(_duplicate_ngrams, n=n) for n in range(5, 11)}
