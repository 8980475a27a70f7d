"""Texts of the report: removed documents with what a rule is about marked, duplicates with their differences.

They become HTML that cannot do anything, whatever the text is.
"""

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from longcrawl.display.numbers import counted
from longcrawl.ledger.clusters import Cluster, Clusters
from longcrawl.ledger.reasons import Reason
from longcrawl.printable import as_lines, one_line, shortened

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


def facts_list(facts: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """Return names and values, as ``facts`` in lines or as ``tiles``."""
    said = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="{kind}">{said}</dl>'


def opening(text: str) -> str:
    """Return the first words, up to 90 characters, on one line."""
    return shortened(" ".join(clean(text[:900]).split()), 90)


LONGEST_NAME = 300

_WORDS = "overflow-wrap:anywhere"
_PAGE = f"white-space:pre-wrap;{_WORDS};max-height:20em;overflow:auto;border:1px solid #999;padding:.6em"


@dataclass(frozen=True)
class RemovedDocument:
    """One removed document."""

    reason: Reason
    url: str | None = None
    language: str | None = None
    opening: str = ""
    """Its first words, on one line."""
    passages: tuple[Passage, ...] = ()
    """Its text as the stage saw it, long ones in part; of a duplicate, how it differs from what was kept."""
    note: str | None = None
    """What the marks are, or why there are none."""

    def facts(self) -> list[tuple[str, str]]:
        """Return what is known of it, name and value."""
        known = [
            ("id", self.reason.id),
            ("stage", self.reason.stage),
            ("rule", self.reason.rule),
            ("value", measured(self.reason)),
            ("URL", self.url),
            ("language", self.language),
        ]
        return [(name, shortened(value, LONGEST_NAME)) for name, value in known if value]

    def __str__(self) -> str:
        return as_lines([self.reason, f"  {self.opening}"])

    def _repr_html_(self) -> str:
        facts = "<br>".join(f"{name}: {escape(value)}" for name, value in self.facts())
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        text = f"<pre dir='auto' style='{_PAGE}'>{as_html(self.passages)}</pre>" if self.passages else ""
        return f"<details><summary>{escape(self.reason)}</summary><p style='{_WORDS}'>{facts}</p>{note}{text}</details>"


@dataclass(frozen=True)
class RemovedDocuments:
    """A sample of the removed documents, some of each rule: a list in a terminal, texts with marks in a notebook."""

    documents: tuple[RemovedDocument, ...]
    """In the order of stages, then by rule."""
    removed: int
    """How many documents were removed in all."""
    note: str | None = None
    """Why texts are missing."""

    def __iter__(self) -> Iterator[RemovedDocument]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> RemovedDocument:
        return self.documents[number]

    def summary(self) -> str:
        """Describe how many there are, and how they were chosen."""
        if not self.removed:
            return "no document was removed"
        if len(self) == self.removed:
            return "1 document removed" if self.removed == 1 else f"all {self.removed:,} removed documents"
        return f"{len(self):,} of the {self.removed:,} removed documents, some of each rule, chosen by a hash of the id"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *map(str, self), *([one_line(self.note)] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{escape(self.summary())}</b></p>{note}" + "".join(each._repr_html_() for each in self)


def measured(reason: Reason) -> str:
    """Return value against threshold, or of what it is a duplicate; "" where nothing was measured.

    >>> measured(Reason("a", "min_words", "min_words", 12.0, 50.0))
    '12 against 50'
    """
    said = str(reason).removeprefix(one_line(f"{reason.id}: removed at {reason.stage}, rule {reason.rule}"))
    return said.removeprefix(": ")


def brief(reason: Reason) -> str:
    """Return the same in a few letters: of a duplicate, how similar it is, but not to what.

    >>> brief(Reason("a", "min_hash", "near_duplicate", 0.91234, None, "b"))
    'similarity 0.91'
    >>> brief(Reason("a", "gopher_quality", "max_bullet_lines", 0.912345, 0.9))
    '0.9123 against 0.9'
    """
    if reason.kept_id is not None:
        return "duplicate" if reason.value is None else f"similarity {reason.value:.2f}"
    if reason.threshold is None:
        return ""
    value = "unknown" if reason.value is None else _short(reason.value)
    return f"{value} against {_short(reason.threshold)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:.4g}"


MOST_CHARACTERS = 6_000
"""Of one difference between two texts, in all that is shown of both."""
LONGEST_STRETCH = 1_000
"""Characters of one stretch: a word without an end is one, too."""
LONGEST_FACT = 600
LONGEST_CLUSTER_NAME = 200


def cluster_list(clusters: Clusters) -> str:
    """Return the largest clusters, each with what is known of it and how two of its documents differ."""
    first = next((number for number, cluster in enumerate(clusters) if cluster.diff and cluster.diff.pieces), None)
    items = "".join(_cluster(cluster, is_open=number == first) for number, cluster in enumerate(clusters))
    note = f'<p class="note">{escape(clusters.note)}.</p>' if clusters.note else ""
    return f'<p>{escape(clusters.summary())}.</p>{note}<div id="clusters-list">{items}</div>'


def _cluster(cluster: Cluster, *, is_open: bool) -> str:
    size, by, left = cluster.facts()
    facts = [("kept", size.partition(", kept ")[2]), ("removed", left.removeprefix("removed: ")), ("by", by[3:])]
    said = facts_list((name, shortened(fact, LONGEST_FACT)) for name, fact in facts)
    heading = (
        f'<b>{cluster.size:,} documents</b> <span class="value">{escape(_how_alike(cluster))}</span> '
        f'<span class="opening">kept <bdi>{escape(shortened(cluster.kept.id, LONGEST_CLUSTER_NAME))}</bdi></span>'
    )
    opened = " open" if is_open else ""
    return f'<details class="cluster"{opened}><summary>{heading}</summary>{said}{_difference(cluster)}</details>'


def _how_alike(cluster: Cluster) -> str:
    if cluster.diff is not None and not cluster.diff.pieces:
        return cluster.diff.summary()
    if cluster.diff is not None:
        return counted(cluster.diff.differences, "difference")
    return "" if cluster.similarity is None else f"similarity {cluster.similarity[0]:.2f}"


def _difference(cluster: Cluster) -> str:
    if cluster.diff is None or cluster.pair is None:
        return '<p class="note">No texts to compare.</p>'
    pieces = list(_pieces(cluster))
    if not pieces:
        return f'<p class="note">{escape(shortened(cluster.diff_heading(), LONGEST_FACT))}.</p>'
    names = ["removed" if cluster.earlier else "kept", "removed"]
    sides = zip(names, cluster.pair, ("added", "removed"), strict=True)
    columns = "".join(
        f"<div><h4>{name} <bdi>{escape(shortened(document, LONGEST_CLUSTER_NAME))}</bdi></h4>"
        f"{text_block([each for each in pieces if each.kind != other], name)}</div>"
        for name, document, other in sides
    )
    said = f'<p class="note">Compared word by word: {escape(cluster.diff.summary())}.</p>'
    return f'{said}<div class="inline">{text_block(pieces, "both")}</div><div class="sides">{columns}</div>'


def text_block(pieces: Sequence[Passage], name: str) -> str:
    """Return passages as a block that a keyboard reaches and a screen reader names."""
    return f'<pre dir="auto" tabindex="0" role="group" aria-label="{name}">{as_html(pieces)}</pre>'


def _pieces(cluster: Cluster) -> Iterator[Passage]:
    """Return the pieces of a difference up to a limit."""
    left = MOST_CHARACTERS
    for piece in cluster.diff.pieces if cluster.diff is not None else ():
        if left <= 0:
            yield Passage("left out", "more")
            return
        yield Passage(piece.kind, shortened(piece.text, min(LONGEST_STRETCH, max(left, 2))))
        left -= min(len(piece.text), LONGEST_STRETCH)
