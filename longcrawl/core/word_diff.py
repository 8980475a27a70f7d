"""Word diffs of two texts: runs of words that occur once in each are matched first, as in patience diff.

``difflib`` compares only the words between two such runs: on its own it would take hours for two books.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal, NamedTuple

from longcrawl.core.display import counted
from longcrawl.errors import one_line

AROUND, LONGEST, SHOWN = 12, 60, 10
"""Maximum number of words shown around a difference, of words shown of it, and of differences shown."""
COMPARED = 1_000_000
"""Characters compared of each text."""

_ANCHOR = 6
_GAP = 1_000
"""Words between two anchors above which they count as a single difference."""

_ALONE = (
    "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\ua9e0-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff"
)
# Scripts that are written without spaces: each of their characters is a word.
_WORD = re.compile(rf"\s*(?:[{_ALONE}]|[^\s{_ALONE}]+)")
_BREAKS = re.compile(r"\s+")
_MARKS = {"same": "{}", "removed": "[-{}-]", "added": "{{+{}+}}", "left out": "[… {} …]"}
_ADDED = "background:#e6f7ea;color:#00602b;text-decoration:none;border-bottom:2px solid #00602b"
_HTML = {
    "same": "{}",
    "removed": "<del style='background:#ffe9e9;color:#b00020;text-decoration:line-through'>{}</del>",
    "added": f"<ins style='{_ADDED}'>{{}}</ins>",
    "left out": "<em style='color:#888'> [… {} …] </em>",
}

Span = tuple[int, int, int, int]
"""Start and end of a difference, in words of the first and then of the second text."""


class DiffPiece(NamedTuple):
    """A stretch of a text that is the same, marked, removed or added; or the number of words or characters left out."""

    kind: Literal["same", "marked", "removed", "added", "left out"]
    text: str


@dataclass(frozen=True)
class WordDiff:
    """The first differences between two texts with the words around them; white space is ignored."""

    pieces: tuple[DiffPiece, ...]
    differences: int
    equal: bool
    """Whether the texts are the same, white space included."""
    cut: bool = False
    """Whether a text is longer than ``COMPARED`` characters."""

    def summary(self) -> str:
        """Describe the number of differences, and how many of them are shown."""
        compared = f"the first {COMPARED:,} characters of each are " if self.cut else ""
        if not self.differences:
            return f"{compared}equal" if self.equal or self.cut else "equal but for white space"
        count = counted(self.differences, "difference")
        if self.differences > SHOWN:
            count += f", the first {SHOWN} shown"
        left_out = ", only their surroundings shown" if any(piece.kind == "left out" for piece in self.pieces) else ""
        return count + left_out + (f", {compared}compared" if self.cut else "")

    def __str__(self) -> str:
        return " ".join(_MARKS[each.kind].format(one_line(_BREAKS.sub(" ", each.text).strip())) for each in self.pieces)

    def _repr_html_(self) -> str:
        return "".join(_HTML[piece.kind].format(html.escape(piece.text)) for piece in self.pieces)


def diff_words(before: str, after: str) -> WordDiff:
    """Compare two texts word by word.

    >>> print(diff_words("It was the best of times.", "It was the worst of times."))
    It was the [-best-] {+worst+} of times.
    """
    if before == after:
        return WordDiff((), 0, equal=True)
    # Trailing white space belongs to no word, and the pattern would scan it once from each of its characters.
    texts = _WORD.findall(before[:COMPARED].rstrip()), _WORD.findall(after[:COMPARED].rstrip())
    keys = [word.lstrip() for word in texts[0]], [word.lstrip() for word in texts[1]]
    spans = list(_differences(*keys))
    cut = max(len(before), len(after)) > COMPARED
    return WordDiff(tuple(_pieces(*texts, spans)), len(spans), equal=False, cut=cut)


def _differences(one: Sequence[str], other: Sequence[str]) -> Iterator[Span]:
    anchors = [(-1, -1), *_anchors(one, other), (len(one), len(other))]
    for (a, b), (a_end, b_end) in pairwise(anchors):
        begin, other_begin = a + 1, b + 1
        if begin == a_end and other_begin == b_end:
            continue
        yield from _in_gap(one[begin:a_end], other[other_begin:b_end], begin, other_begin)


def _anchors(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Return matching starts of runs that occur once in each text: the longest sequence without crossings."""
    here, there = _once(one), _once(other)
    pairs = [(place, there[run]) for run, place in here.items() if run in there]
    tails: list[int] = []
    tops: list[int] = []
    below: list[int] = []
    for number, (_, place) in enumerate(pairs):
        height = bisect_left(tails, place)
        below.append(tops[height - 1] if height else -1)
        if height == len(tails):
            tails.append(place)
            tops.append(number)
        else:
            tails[height], tops[height] = place, number
    chain, number = [], tops[-1] if tops else -1
    while number >= 0:
        chain.append(pairs[number])
        number = below[number]
    return chain[::-1]


def _once(words: Sequence[str]) -> dict[tuple[str, ...], int]:
    places: dict[tuple[str, ...], int] = {}
    for place, run in enumerate(zip(*(words[shift:] for shift in range(_ANCHOR)), strict=False)):
        places[run] = -1 if run in places else place
    return {run: place for run, place in places.items() if place >= 0}


def _in_gap(one: Sequence[str], other: Sequence[str], begin: int, other_begin: int) -> Iterator[Span]:
    first = _shared(one, other)
    last = _shared(one[first:][::-1], other[first:][::-1])
    one, other = one[first : len(one) - last], other[first : len(other) - last]
    begin, other_begin = begin + first, other_begin + first
    if not one and not other:
        return
    if max(len(one), len(other)) > _GAP:
        yield begin, begin + len(one), other_begin, other_begin + len(other)
        return
    for kind, a, a_end, b, b_end in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind != "equal":
            yield begin + a, begin + a_end, other_begin + b, other_begin + b_end


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (word, other_word) in pairs if word != other_word), min(len(one), len(other)))


def _pieces(one: Sequence[str], other: Sequence[str], spans: Sequence[Span]) -> Iterator[DiffPiece]:
    """Yield the first differences with the words around them."""
    reached = 0
    for number, (a, a_end, b, b_end) in enumerate(spans[:SHOWN]):
        yield from _same(one[reached:a], AROUND if number else 0, AROUND)
        for kind, words in (("removed", one[a:a_end]), ("added", other[b:b_end])):
            yield from _shortened(kind, words)  # type: ignore[arg-type]  # the two literals above
        reached = a_end
    if spans:
        stop = spans[SHOWN][0] if len(spans) > SHOWN else len(one)
        yield from _same(one[reached:stop], AROUND, 0)


def _same(words: Sequence[str], first: int, last: int) -> Iterator[DiffPiece]:
    if len(words) <= first + last + 1:
        if words:
            yield DiffPiece("same", "".join(words))
        return
    if first:
        yield DiffPiece("same", "".join(words[:first]))
    yield DiffPiece("left out", f"{len(words) - first - last:,} words")
    if last:
        yield DiffPiece("same", "".join(words[-last:]))


def _shortened(kind: Literal["removed", "added"], words: Sequence[str]) -> Iterator[DiffPiece]:
    if words:
        yield DiffPiece(kind, "".join(words[:LONGEST]))
    if len(words) > LONGEST:
        yield DiffPiece("left out", f"{len(words) - LONGEST:,} words {kind}")
