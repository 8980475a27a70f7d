"""Clusters of duplicates in the report: two documents side by side, or on a narrow screen in one."""

from collections.abc import Iterator, Sequence

from longcrawl.duplicates import Cluster, Clusters
from longcrawl.report.passages import Passage, as_html, escape, shortened

__all__ = ["cluster_list"]

MOST_CHARACTERS = 6_000
"""Of one difference between two texts, in all that is shown of both."""
LONGEST = 1_000
"""Of one stretch: a word without an end is one, too."""
LONGEST_FACT = 600


def cluster_list(clusters: Clusters) -> str:
    """Give the largest clusters, each with what is known of it and how two of its documents differ."""
    items = "".join(_cluster(number, cluster) for number, cluster in enumerate(clusters, 1))
    note = f'<p class="note">{escape(clusters.note)}.</p>' if clusters.note else ""
    return f'<p>{escape(clusters.summary())}.</p>{note}<div id="clusters-list">{items}</div>'


def _cluster(number: int, cluster: Cluster) -> str:
    first, *facts = [escape(shortened(fact, LONGEST_FACT)) for fact in cluster.facts()]
    said = "".join(f"<li>{fact}</li>" for fact in facts)
    opened = " open" if number == 1 and cluster.diff is not None else ""
    return f'<details class="cluster"{opened}><summary>{first}</summary><ul>{said}</ul>{_difference(cluster)}</details>'


def _difference(cluster: Cluster) -> str:
    if cluster.diff is None or cluster.pair is None:
        return '<p class="note">No texts to compare.</p>'
    heading = f"<p>{escape(shortened(cluster.diff_heading(), LONGEST_FACT))}</p>"
    pieces = list(_pieces(cluster))
    if not pieces:
        return heading
    sides = zip(cluster.pair, ("added", "removed"), strict=True)
    columns = "".join(
        f"<div><h4>{escape(shortened(name, 200))}</h4>{_text([each for each in pieces if each.kind != other])}</div>"
        for name, other in sides
    )
    return f'{heading}<div class="inline">{_text(pieces)}</div><div class="sides">{columns}</div>'


def _text(pieces: Sequence[Passage]) -> str:
    return f'<pre dir="auto" tabindex="0">{as_html(pieces)}</pre>'


def _pieces(cluster: Cluster) -> Iterator[Passage]:
    """Give the pieces of a difference up to a limit."""
    left = MOST_CHARACTERS
    for piece in cluster.diff.pieces if cluster.diff is not None else ():
        if left <= 0:
            yield Passage("left out", "more")
            return
        yield Passage(piece.kind, shortened(piece.text, min(LONGEST, max(left, 2))))
        left -= min(len(piece.text), LONGEST)
