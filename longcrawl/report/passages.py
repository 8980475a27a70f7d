"""Stretches of a text with what matters in it marked, as HTML that cannot do anything, whatever the text is."""

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from longcrawl.printable import shortened

__all__ = ["Passage", "Place", "as_html", "clean", "escape", "opening", "passages"]

SHOWN = 2_400
"""Characters that are shown of one text."""
OPENING = 300
"""Of these, how many from its beginning."""
AROUND = 160
"""Characters on either side of a place."""
LONGEST = 800
"""Characters of one place."""
MOST_PLACES = 300

_TAGS = {"same": "", "marked": "mark", "removed": "del", "added": "ins"}
_REPLACEMENT = 0xFFFD
_HARMLESS = {
    **dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF], _REPLACEMENT),
    **{control: 0x2400 + control for control in range(32) if control not in b"\t\n"},
    0x7F: 0x2421,
}


class Passage(NamedTuple):
    """A stretch of a text; or how many characters or words are not shown."""

    kind: Literal["same", "marked", "removed", "added", "left out"]
    text: str


class Place(NamedTuple):
    """What a rule is about, or what an edit has taken out, and what it has put there."""

    begin: int
    end: int
    kind: Literal["marked", "removed"] = "marked"
    added: str | None = None


def passages(text: str, places: Iterable[Place] = ()) -> Iterator[Passage]:
    """Return a short text as a whole, of a long one the beginning and what stands around its first places.

    >>> [passage.text for passage in passages("Buy now! Buy now!", [Place(0, 8), Place(9, 17)])]
    ['Buy now!', ' ', 'Buy now!']
    """
    chosen = sorted(place for place in places if place.begin < place.end)[:MOST_PLACES]
    reached = 0
    for begin, end in _windows(len(text), chosen):
        if begin > reached:
            yield Passage("left out", f"{begin - reached:,} characters")
        yield from _inside(text, begin, end, chosen)
        reached = end
    if reached < len(text):
        yield Passage("left out", f"{len(text) - reached:,} characters")


def _windows(length: int, places: Sequence[Place]) -> list[tuple[int, int]]:
    if length <= SHOWN:
        return [(0, length)]
    windows = [(0, OPENING if places else SHOWN)]
    left = SHOWN - windows[0][1]
    for place in places:
        begin, end = max(0, place.begin - AROUND), min(length, place.end + AROUND, place.begin + LONGEST)
        first, last = windows[-1]
        begin = max(begin, last)
        if left <= 0 or begin >= end:
            continue
        end = min(end, begin + left)
        left -= end - begin
        windows[-1:] = [(first, end)] if begin == last else [(first, last), (begin, end)]
    return windows


def _inside(text: str, begin: int, end: int, places: Sequence[Place]) -> Iterator[Passage]:
    at = begin
    for place in places:
        first, last = max(place.begin, at), min(place.end, end)
        if first >= last:
            continue
        if first > at:
            yield Passage("same", text[at:first])
        yield Passage(place.kind, text[first:last])
        if place.added is not None and last == place.end:
            yield Passage("added", shortened(place.added, LONGEST))
        at = last
    if at < end:
        yield Passage("same", text[at:end])


def as_html(pieces: Iterable[Passage]) -> str:
    """Mark passages by ``mark``, ``del`` and ``ins``, without any attribute."""
    return "".join(map(_piece, pieces))


def _piece(piece: Passage) -> str:
    said = escape(piece.text)
    if piece.kind == "left out":
        return f"<em> [… {said} …] </em>"
    tag = _TAGS[piece.kind]
    return f"<{tag}>{said}</{tag}>" if tag else said


def clean(text: str) -> str:
    r"""Replace what HTML cannot hold, or UTF-8, or what a reader would not see.

    >>> clean("a\x00b\ud800")
    'a␀b\ufffd'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_HARMLESS)


def escape(text: object) -> str:
    """Return what stands between two tags, or in an attribute between double quotes, exactly as it is spelled."""
    return html.escape(clean(str(text)))


def opening(text: str, most: int = 90) -> str:
    """Return the first words on one line."""
    return shortened(" ".join(clean(text[: 10 * most]).split()), most)
