"""Clusters of duplicates in the report: two documents side by side, or on a narrow screen in one."""

from collections.abc import Iterator, Sequence

from longcrawl.display.numbers import counted
from longcrawl.ledger.clusters import Cluster, Clusters
from longcrawl.printable import shortened
from longcrawl.report.passages import Passage, as_html, escape
from longcrawl.report.sections import facts_list

__all__ = ["cluster_list"]

MOST_CHARACTERS = 6_000
"""Of one difference between two texts, in all that is shown of both."""
LONGEST = 1_000
"""Of one stretch: a word without an end is one, too."""
LONGEST_FACT = 600
LONGEST_NAME = 200


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
        f'<span class="opening">kept <bdi>{escape(shortened(cluster.kept.id, LONGEST_NAME))}</bdi></span>'
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
        f"<div><h4>{name} <bdi>{escape(shortened(document, LONGEST_NAME))}</bdi></h4>"
        f"{_text([each for each in pieces if each.kind != other], name)}</div>"
        for name, document, other in sides
    )
    said = f'<p class="note">Compared word by word: {escape(cluster.diff.summary())}.</p>'
    return f'{said}<div class="inline">{_text(pieces, "both")}</div><div class="sides">{columns}</div>'


def _text(pieces: Sequence[Passage], name: str) -> str:
    return f'<pre dir="auto" tabindex="0" role="group" aria-label="{name}">{as_html(pieces)}</pre>'


def _pieces(cluster: Cluster) -> Iterator[Passage]:
    """Return the pieces of a difference up to a limit."""
    left = MOST_CHARACTERS
    for piece in cluster.diff.pieces if cluster.diff is not None else ():
        if left <= 0:
            yield Passage("left out", "more")
            return
        yield Passage(piece.kind, shortened(piece.text, min(LONGEST, max(left, 2))))
        left -= min(len(piece.text), LONGEST)
