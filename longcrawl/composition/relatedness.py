"""How related documents are that follow each other in samples: the mean cosine of their TF-IDF weights.

Terms are token ids, so that every plan of tokens can be measured, however its documents were put in order. Measured are
the first ``DOCUMENTS`` documents of a plan by their first ``TOKENS`` tokens, against pairs of the same documents at
random. 5 MB of tokens take half a second.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.composition.plan import Longs, Plan
from longcrawl.core.keyed_hash import keyed_hash

if TYPE_CHECKING:
    from longcrawl.kernels.term_vectors import TermVectors

DOCUMENTS = 10_000
TOKENS = 512
DIGITS = 6
"""Of a logarithm: the last bits of one differ between machines."""
_LARGEST = (1 << 32) - 1


class Beginnings:
    """The first tokens of the first documents, as they are read."""

    def __init__(self) -> None:
        self.found: list[npt.NDArray[Any]] = []

    @property
    def wanted(self) -> bool:
        """Whether more documents are wanted."""
        return len(self.found) < DOCUMENTS

    def add(self, tokens: npt.NDArray[Any], ends: Longs) -> None:
        """Add documents whose tokens are end to end, those that are still wanted; what is not whole is no token."""
        whole = tokens if tokens.dtype.kind in "iu" else tokens[:0]
        for start, stop in pairwise([0, *ends[: DOCUMENTS - len(self.found)].tolist()]):
            self.found.append(np.array(whole[start : min(stop, start + TOKENS)]))

    def add_lists(self, lists: pa.ChunkedArray) -> None:
        """Add the lists of a column."""
        for chunk in lists.slice(0, DOCUMENTS - len(self.found)).chunks:
            lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False)
            self.add(chunk.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths))

    def add_one(self, tokens: Sequence[Any]) -> None:
        """Add a document of any values."""
        if self.wanted:
            self.found.append(
                np.array([each & _LARGEST for each in tokens[:TOKENS] if isinstance(each, int)], np.uint32)
            )


class Relatedness(NamedTuple):
    """What :func:`relate` finds."""

    compared_pairs: int
    """Pairs of documents that follow each other in a sample."""
    related: float | None
    """Their mean cosine, 0 to 1; None without a pair."""
    related_by_chance: float | None
    """Mean of as many random pairs of the same documents; None without a pair."""


def neighbours(plan: Plan, first: int = 0) -> Longs:
    """Return which documents follow each other in samples, of those that are measured: int64 [pairs, 2].

    Args:
        plan: of a pool, or of all documents.
        first: the number of its first document among all.
    """
    documents = plan.documents[: 0 if first >= DOCUMENTS else None] + first
    pairs = np.stack([documents[:-1], documents[1:]], axis=1)
    inside = np.ones(len(pairs), np.bool_)
    inside[plan.bounds[1:-1] - 1 if len(pairs) else ()] = False
    found: Longs = pairs[inside & (pairs[:, 0] != pairs[:, 1]) & (pairs < DOCUMENTS).all(axis=1)]
    return found


def relate(pairs: Longs, vectors: "TermVectors") -> Relatedness:
    """Compare the documents of each pair.

    >>> texts = [np.array(tokens) for tokens in ([1, 2, 3], [7, 8], [1, 2, 4], [7, 9])]
    >>> found = relate(np.array([[0, 2], [1, 3]]), weigh(texts))
    >>> found.compared_pairs, round(found.related, 2)
    (2, 0.27)

    Args:
        pairs: int64 [pairs, 2], numbers of documents.
        vectors: of the documents, see :func:`weigh`.
    """
    from longcrawl.kernels.term_vectors import NORM, multiply_pairs

    if not len(pairs):
        return Relatedness(0, None, None)
    filled = np.flatnonzero(np.diff(vectors.bounds))
    order = filled[np.argsort(keyed_hash(map(str, filled.tolist()), "pairs", 0))]
    means = []
    for some in (pairs, np.stack([order, np.roll(order, 1)], axis=1)):
        products = np.empty(len(some), np.int64)
        multiply_pairs(vectors, np.ascontiguousarray(some[:, 0]), np.ascontiguousarray(some[:, 1]), products)
        means.append(round(min(int(products.sum()) / NORM**2 / max(len(some), 1), 1.0), DIGITS))
    return Relatedness(len(pairs), *means)


def weigh(beginnings: Iterable[npt.NDArray[np.integer[Any]]]) -> "TermVectors":
    """Return vectors of documents by what they begin with, ``TOKENS`` tokens of each.

    A token weighs (1 + log(count)) * log(documents / those that have it).
    """
    from longcrawl.kernels.term_vectors import NORM, TermVectors

    texts = [each[:TOKENS] for each in beginnings]
    lengths = np.array([len(each) for each in texts], np.int64)
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)
    tokens = np.concatenate([np.zeros(0, np.uint32), *texts]).astype(np.uint64) & np.uint64(_LARGEST)
    keys, counts = np.unique(owners << np.uint64(32) | tokens, return_counts=True)
    terms, owners = keys.astype(np.uint32), (keys >> np.uint64(32)).astype(np.int64)
    _, numbers, having = np.unique(terms, return_inverse=True, return_counts=True)
    rarity = np.round(np.log(np.count_nonzero(lengths) / having), DIGITS)
    weights = (1 + np.round(np.log(counts), DIGITS)) * rarity[numbers]
    sizes = np.sqrt(np.bincount(owners, weights**2, minlength=len(texts)))
    whole = np.rint(NORM * weights / np.maximum(sizes[owners], 1e-9)).astype(np.uint16)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(texts)))])
    return TermVectors(bounds.astype(np.int64), terms, whole)
