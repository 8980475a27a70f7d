"""Running headers, footers and page numbers, found by their density among neighbouring pages, and dotted leaders."""

import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from longcrawl.text.pdf.lines import Line

_AROUND = 4
"""Pages before and after a page that are compared with it."""
_LEAST = 3
"""Pages among the nine that must have a line. Over a whole document, a register would lose its entries."""
_BAND = 0.14
"""Share of the height of the text in which running lines are, at the top and at the bottom."""
_OUTERMOST = 3
"""Heights from the top and from the bottom at which running lines are."""
_NEAR = 3
"""Points by which the height of a running line may differ."""
_LONGEST = 120
_FOLDED = re.compile(r"\d+|\b[ivxlc]+\b")
_NUMBER = re.compile(r"\W*(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:/|of|von|de|sur|из)\s*\d{1,4})?\W*", re.IGNORECASE)

_LEAST_LEADERS = 4
_LEADERS = ".·…"
_ENDS_ENTRY = frozenset("0123456789ivxlc.·…")
_LEAST_ENTRIES = 3
"""Entries with leaders on a page whose other page numbers also belong to a table of contents."""

Key = tuple[str, bool, int]
"""Text with folded numbers, whether it is in the upper half, and the height in units of :data:`_NEAR`."""


class _Seen(NamedTuple):
    """A page with the keys of its outermost lines."""

    lines: list[Line]
    keys: dict[int, Key]
    """Key by line number."""
    known: frozenset[Key]
    """Keys that lines of other pages may match."""


class Cleared(NamedTuple):
    """A page without its running lines or leaders."""

    lines: list[Line]
    removed: list[tuple[str, str]]
    """Rule and text of each line, or end of a line, that was removed."""


class RunningLines:
    """Window of nine pages: a page is returned without its running lines when the four pages after it were added."""

    def __init__(self, pages: int) -> None:
        self._least = _LEAST if pages > 2 else 2
        self._window: deque[_Seen] = deque()
        self._density: Counter[Key] = Counter()
        self._next = 0
        """Place in the window of the page to return next."""

    def add(self, lines: list[Line]) -> Iterator[Cleared]:
        """Add a page; yield the pages that are finished."""
        seen = _outermost(lines)
        self._window.append(seen)
        self._density.update(seen.known)
        if len(self._window) - self._next > _AROUND:
            yield self._finish()

    def end(self) -> Iterator[Cleared]:
        """Yield the remaining pages."""
        while self._next < len(self._window):
            yield self._finish()

    def _finish(self) -> Cleared:
        page = self._window[self._next]
        drop = {number: key for number, key in page.keys.items() if self._density[key] >= self._least}
        if self._next < _AROUND:
            self._next += 1
        else:
            self._density.subtract(self._window.popleft().known)
            if len(self._density) > 1000:
                self._density = +self._density
        cleared = without_leaders([line for number, line in enumerate(page.lines) if number not in drop])
        removed = [
            ("page_number" if key == ("0", key[1], 0) else "running_line", page.lines[number].text)
            for number, key in drop.items()
        ]
        return cleared._replace(removed=removed + cleared.removed)


def without_leaders(lines: list[Line]) -> Cleared:
    """Remove dotted leaders, and the page numbers that they lead to, from the entries of a table of contents."""
    entries = [_before_leaders(line.text) for line in lines]
    count = len(entries) - entries.count(None)
    if not count:
        return Cleared(lines, [])
    kept: list[Line] = []
    removed = []
    for line, entry in zip(lines, entries, strict=True):
        if entry is not None:
            # Without its right end, an entry is not taken for a full line of a paragraph.
            kept.append(Line(entry, line.left, line.bottom, line.left, line.top))
            removed.append(("leaders", line.text[len(entry) :]))
        elif count < _LEAST_ENTRIES or not _NUMBER.fullmatch(line.text):
            kept.append(line)
        else:
            removed.append(("leaders", line.text))
    return Cleared(kept, removed)


def _before_leaders(text: str) -> str | None:
    """Return the title of an entry in a table of contents, in front of dots and perhaps a page number."""
    if text[-1:] not in _ENDS_ENTRY or sum(map(text.count, _LEADERS)) < _LEAST_LEADERS:
        return None
    rest = text.rstrip("0123456789")
    most = 4
    if len(rest) == len(text):
        rest, most = text.rstrip("ivxlc"), 7
    dots = rest.rstrip()
    title = dots.rstrip(f"{_LEADERS} ")
    is_entry = len(text) - len(rest) <= most and dots[-1:] in _LEADERS
    return title if is_entry and sum(map(dots[len(title) :].count, _LEADERS)) >= _LEAST_LEADERS else None


def _outermost(lines: list[Line]) -> _Seen:
    if not lines:
        return _Seen(lines, {}, frozenset())
    top, bottom = max([line.top for line in lines]), min([line.bottom for line in lines])
    band, middle = _BAND * max(1.0, top - bottom), (top + bottom) / 2
    rounded = [round(line.bottom) for line in lines]
    heights = sorted(set(rounded))
    ends = {*heights[:_OUTERMOST], *heights[-_OUTERMOST:]}
    keys: dict[int, Key] = {}
    known: set[Key] = set()
    for number, height in enumerate(rounded):
        if height not in ends:
            continue
        line = lines[number]
        if not (line.bottom > top - band or line.top < bottom + band):
            continue
        is_upper = line.bottom > middle
        if _NUMBER.fullmatch(line.text):
            key = ("0", is_upper, 0)
        elif folded := _FOLDED.sub("0", line.text.lower()).replace(" ", "")[:_LONGEST]:
            key = (folded, is_upper, round(line.bottom / _NEAR))
            known.add((folded, is_upper, key[2] + 1))
        else:
            continue
        keys[number] = key
        known.add(key)
    return _Seen(lines, keys, frozenset(known))
