"""Text of a document from the lines of its pages: paragraphs joined over lines and pages, hyphens at line ends."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from itertools import filterfalse, pairwise

from longcrawl.text.pdf.lines import ITEM_MARKER, Line

_HYPHENS = "-\u00ad\u2010\u2011"
_VISIBLE_HYPHENS = "-\u2010\u2011"
"""Hyphens that may belong to the word; U+00AD is only at the end of a line."""
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
"""Matches a character of a script whose lines may end within words: Chinese, Japanese, Korean, Thai and others."""
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_NOT_IN_WORDS = {code: " " for code in range(128) if not chr(code).isalpha() and chr(code) != "-"}
_LAST_PART = re.compile(r"[^\W\d_]+$")
_FIRST_PART = re.compile(r"[^\W\d_]+")
_ITEM = re.compile(rf"(?:{ITEM_MARKER})\s")
"""Matches the marker of a list item, which begins a line of its own."""
_LONGEST_WORD = 100
_MOST_WORDS = 200_000
"""Maximum number of distinct words, and of pairs of Korean syllables, to count in a document; then only known words."""
_MOST_ON_DEMAND = 1_000_000
"""Characters that are held, or searched for single words, until all words of the pages so far are counted."""
_UNSEEN = 0.3
"""Assumed count of a syllable that was not seen at the beginning, at the end or inside a word."""
_SHARE = 0.3
"""Weight of the counts of two syllables relative to the count of their pair."""
_LEFT_EDGE = 40.0
"""Points within which lines share a left edge: lines of one column, indented or not."""


class _Syllables:
    """Counts of syllables in Korean lines, which decide whether a word ends with a line.

    Of the wrapped lines of eight texts, 97 % were joined correctly with the counts of all 7,000 characters, 94 % with
    those of the characters so far, and 77 % after 300 characters. 45 % of these lines ended with a word.
    """

    def __init__(self) -> None:
        self._single: Counter[str] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._total = 0

    def count(self, text: str) -> None:
        if _HANGUL.search(text) and len(self._pairs) < _MOST_WORDS:
            self._single.update(text)
            self._pairs.update(pairwise(text))
            self._total += len(text)

    def is_word(self, last: str, first: str) -> bool:
        """Return whether a word continues from the syllable ``last`` to ``first`` instead of ending between them.

        This depends on the counts of the pair and, if the pair is rare, of its two syllables.
        """
        ends, begins, spaces = self._pairs[last, " "], self._pairs[" ", first], self._single[" "]
        apart = (ends + _UNSEEN) * (begins + _UNSEEN) / (spaces + 1)
        inside = (self._single[last] - ends + _UNSEEN) * (self._single[first] - begins + _UNSEEN)
        inside /= max(self._total - 2 * spaces, 1)
        together = (self._pairs[last, first] + _SHARE * inside) / (1 + _SHARE)
        return not spaces or together > 2 * apart


class Paragraphs:
    """Joins the lines of pages that are added one by one.

    A page is returned when the text after it is known, since that text decides about its last word and the break after
    it. The pages together are the text of the document.
    """

    def __init__(self, hyphens: str, page_break: str) -> None:
        self._joins_hyphens = hyphens == "join"
        self._page_break = page_break
        self._vocabulary: Counter[str] = Counter()
        self._uncounted: list[str] = []
        """Lower-cased text of the pages whose words are not in the vocabulary."""
        self._on_demand = 0
        """Characters of these pages, and those that were searched."""
        self._syllables = _Syllables()
        self._compounds: set[str] = set()
        """Words with hyphens on these pages."""
        self._open: list[str] = []
        """Pieces of the last page that has text."""
        self._blank_after = 0
        """Pages without text after the open page."""
        self._last: Line | None = None
        self._is_full = False
        """Whether the last line ends at the right edge, so that its paragraph may continue."""
        self._hyphens: deque[int] = deque()
        """Hyphens removed from the last page that has text, and from the page that is added."""
        self.hyphens = 0
        """Hyphens removed from the page that was returned last."""

    def count_words(self, lines: list[Line]) -> None:
        """Count the words of a page, which decide about hyphens and Korean line ends of this and later pages."""
        texts = [line.text.lower() for line in lines]
        for text in filterfalse(str.isascii, texts):
            self._syllables.count(text)
        if not self._joins_hyphens:
            return
        hyphenated = [word for text in texts if "-" in text for word in text.split() if "-" in word]
        self._compounds.update(_WORD.findall(" ".join(hyphenated)))
        text = "\n".join(texts)
        self._uncounted.append(text)
        self._on_demand += len(text)
        if self._on_demand > _MOST_ON_DEMAND:
            self._fill_vocabulary()

    def _fill_vocabulary(self) -> None:
        for text in self._uncounted:
            words = _words(text)
            if len(self._vocabulary) > _MOST_WORDS:
                words = [word for word in words if word in self._vocabulary]
            self._vocabulary.update(words)
        self._uncounted, self._on_demand, self._compounds = [], 0, set()

    def _count(self, word: str) -> int:
        """Return how often a word occurs on the pages so far."""
        found = [text for text in self._uncounted if word in text]
        self._on_demand += sum(map(len, found))
        return self._vocabulary[word] + sum([_words(text).count(word) for text in found])

    def add(self, lines: list[Line]) -> Iterator[str]:
        """Add the lines of a page; yield the texts of the pages that are finished."""
        lines = [line for line in lines if line.text]
        if not lines:
            if self._last is None:
                yield ""
            else:
                self._blank_after += 1
            return
        columns = [round(line.left / _LEFT_EDGE) for line in lines]
        edges = _right_edges(lines, columns)
        if self._last is not None:
            self._open.append(self._between(self._last, lines[0], self._open, is_new_page=True))
        self._hyphens.append(0)
        pieces = [lines[0].text]
        self._is_full = _reaches(lines[0], edges[columns[0]])
        for last, line, column in zip(lines, lines[1:], columns[1:], strict=False):
            pieces.append(self._between(last, line, pieces, is_new_page=False))
            pieces.append(line.text)
            self._is_full = _reaches(line, edges[column])
        self._last = lines[-1]
        yield from self.end()
        self._open = pieces

    def end(self) -> Iterator[str]:
        """Yield the texts of the remaining pages."""
        if self._open:
            self.hyphens = self._hyphens.popleft()
            yield "".join(self._open)
            self.hyphens = 0
            yield from [""] * self._blank_after
        self._open, self._blank_after = [], 0

    def _between(self, last: Line, line: Line, before: list[str], *, is_new_page: bool) -> str:
        """Return what separates two lines; remove a hyphen between them from the end of ``before``."""
        if line.separator is not None:
            return self._page_break if is_new_page else line.separator
        height, other = last.top - last.bottom, line.top - line.bottom
        if not is_new_page and abs(last.bottom - line.bottom) < 0.3 * height:
            return " "
        # A line far above the last one begins the next column.
        is_near = is_new_page or -0.6 * height < last.bottom - line.top < 0.75 * height
        is_near = is_near or line.bottom > last.top + 3 * height
        if abs(height - other) < 0.15 * max(height, other):
            is_broken = self._joins_hyphens and last.text[-1] in _HYPHENS
            if is_broken and self._join_hyphen(last.text, line.text, before):
                return ""
            if is_near and self._is_full and not _ITEM.match(line.text):
                is_unspaced = _UNSPACED.match(last.text[-1]) and _UNSPACED.match(line.text)
                return "" if is_unspaced and self._continues(last.text[-1], line.text[0]) else " "
        if is_new_page:
            return self._page_break
        return "\n" if is_near else "\n\n"

    def _continues(self, last: str, first: str) -> bool:
        """Return whether no word ends between two characters of such scripts."""
        return not (_HANGUL.match(last) and _HANGUL.match(first)) or self._syllables.is_word(last, first)

    def _join_hyphen(self, last: str, text: str, before: list[str]) -> bool:
        """Return whether a word continues after a hyphen, which is removed unless it belongs to the word."""
        if len(last) < 2 or not last[-2].isalpha() or not text[0].isalpha():
            return False
        first, second = _LAST_PART.search(last[-_LONGEST_WORD:-1]), _FIRST_PART.match(text)
        if first is None or second is None:
            return False
        keeps = last[-1] in _VISIBLE_HYPHENS and (text[0].isupper() or self._is_compound(first[0], second[0]))
        before[-1] = before[-1][:-1] + ("-" if keeps else "")
        self._hyphens[-1] += not keeps
        return True

    def _is_compound(self, first: str, second: str) -> bool:
        """Return whether two parts of a word are written with a hyphen more often than without one."""
        compound = f"{first}-{second}".lower()
        # Few words are compounds, and only these are counted.
        is_known = compound in self._compounds or compound in self._vocabulary
        return is_known and self._count(compound) > self._count(compound.replace("-", ""))


def _words(text: str) -> list[str]:
    """Return the matches of ``_WORD`` in lower-cased text; in ASCII lines, this is several times as fast."""
    lines = text.split("\n")
    # Single hyphens between letters remain.
    spaced = f" {' '.join(filter(str.isascii, lines)).translate(_NOT_IN_WORDS)} "
    spaced = spaced.replace("--", "  ").replace(" -", "  ").replace("- ", "  ")
    return spaced.split() + _WORD.findall("\n".join(filterfalse(str.isascii, lines)))


def _right_edges(lines: list[Line], columns: list[int]) -> dict[int, float]:
    edges: dict[int, float] = defaultdict(float)
    for line, column in zip(lines, columns, strict=True):
        edges[column] = max(edges[column], line.right)
    return edges


def _reaches(line: Line, edge: float) -> bool:
    """Return whether a line is as long as lines of running text are."""
    height = line.top - line.bottom
    return line.right - line.left > 8 * height and line.right > edge - max(0.12 * (edge - line.left), 3 * height)
