"""Kernels for documents as vectors of terms: similarities, nearest neighbours, and orders of related documents.

Weights are integers, so sums do not depend on their order. Documents are identified by their numbers in a pool. Of
equally similar documents, the one with the smaller number comes first.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NORM = 1 << 14
"""Euclidean length of each vector: the product of two vectors, divided by its square, is their cosine."""
WINDOW = 64
"""Number of documents compared on each side of a document, among those with a common term, sorted by its weight."""


class TermVectors(NamedTuple):
    """Sparse vectors of all documents, one after the other."""

    bounds: Longs
    """Start of each document's entries, and the end of the last, int64 [documents + 1]."""
    terms: npt.NDArray[np.uint32]
    """Term of each entry, ascending within a document."""
    weights: npt.NDArray[np.uint16]
    """Weight of each entry, at least 1. Each document's vector has length ``NORM``, up to rounding."""


class Postings(NamedTuple):
    """All entries of vectors, sorted by term and descending weight; ``places`` has the posting of each entry."""

    documents: npt.NDArray[np.int32]
    weights: npt.NDArray[np.uint16]
    places: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int32]
    stops: npt.NDArray[np.int32]
    """Index after the last posting with the same term, for each posting; ``firsts`` that of the first."""


def make_postings(vectors: TermVectors) -> Postings:
    """Sort the entries of vectors by term and descending weight; equal ones by document."""
    keys = vectors.terms.astype(np.uint64) << np.uint64(16)
    keys |= np.uint64((1 << 16) - 1) - vectors.weights.astype(np.uint64)
    order = np.argsort(keys, kind="stable")
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    documents = np.repeat(np.arange(len(vectors.bounds) - 1, dtype=np.int32), np.diff(vectors.bounds))
    ordered = vectors.terms[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] + np.uint32(1)))
    counts = np.diff(np.append(firsts, len(ordered)))
    ends = (np.repeat(each, counts).astype(np.int32) for each in (firsts, firsts + counts))
    return Postings(documents[order], vectors.weights[order], places, *ends)


@compiled
def _product(vectors: TermVectors, one: int, other: int) -> int:
    at, stop = vectors.bounds[one], vectors.bounds[one + 1]
    there, end = vectors.bounds[other], vectors.bounds[other + 1]
    found = np.int64(0)
    while at < stop and there < end:
        if vectors.terms[at] < vectors.terms[there]:
            at += 1
        elif vectors.terms[at] > vectors.terms[there]:
            there += 1
        else:
            found += np.int64(vectors.weights[at]) * np.int64(vectors.weights[there])
            at += 1
            there += 1
    return found


@compiled
def multiply_pairs(vectors: TermVectors, ones: Longs, others: Longs, out: Longs) -> None:
    """Write the dot product of the vectors of each pair of documents to ``out``, int64 [pairs]."""
    for pair in range(len(ones)):
        out[pair] = _product(vectors, ones[pair], others[pair])


@compiled
def _agreeing(samples: Bytes, one: int, other: int) -> int:
    found = 0
    for at in range(samples.shape[1]):
        found += samples[one, at] == samples[other, at]
    return found


@compiled
def _dense_product(dense: Any, one: int, other: int) -> int:
    found = np.int64(0)
    for at in range(dense.shape[1]):
        found += np.int64(dense[one, at]) * np.int64(dense[other, at])
    return found


@allocating
def find_neighbours(
    vectors: TermVectors, postings: Postings, dense: Any, samples: Bytes, near: int, found: Any, scores: Longs
) -> None:
    """Find the most similar documents of each document, among those that share a term with it.

    ``dense``, int16 [documents, dimensions], unless empty, has the vectors that are multiplied. Documents with ``near``
    or more equal bytes in ``samples``, uint8 [documents, width], are near duplicates, not neighbours. ``found``, int32
    [documents, most], gets the most similar documents first, then -1; ``scores`` their dot products.
    """
    sums, touched = np.zeros(len(found), np.int64), np.empty(len(found), np.int32)
    for document in range(len(found)):
        count = _add_up(vectors, postings, document, sums, touched)
        sums[document] = 0
        kept = 0
        for at in range(count):
            other = touched[at]
            score = sums[other]
            sums[other] = 0
            if score > 0 and dense.shape[1]:
                score = _dense_product(dense, document, other)
            if score <= 0:
                continue
            if kept == found.shape[1] and not _is_before(score, other, scores, found, document, kept - 1):
                continue
            if _agreeing(samples, document, other) < near:
                kept = min(kept + 1, found.shape[1])
                _insert(score, other, scores, found, document, kept)
        found[document, kept:], scores[document, kept:] = -1, 0
        for at in range(0 if dense.shape[1] else kept):  # sums over windows may lack terms
            scores[document, at] = _product(vectors, document, found[document, at])


@compiled
def _add_up(vectors: TermVectors, postings: Postings, document: int, sums: Longs, touched: Any) -> int:
    """Sum the products of shared terms for the documents in the windows around each term; return their number."""
    count = 0
    for entry in range(vectors.bounds[document], vectors.bounds[document + 1]):
        place = postings.places[entry]
        first = max(postings.firsts[place], place - WINDOW)
        for at in range(first, min(postings.stops[place], place + WINDOW + 1)):
            other = postings.documents[at]
            if sums[other] == 0:
                touched[count] = other
                count += 1
            sums[other] += np.int64(vectors.weights[entry]) * np.int64(postings.weights[at])
    return count


@compiled
def _is_before(score: int, other: int, scores: Longs, found: Any, document: int, at: int) -> bool:
    if score != scores[document, at]:
        return score > scores[document, at]
    return other < found[document, at]


@compiled
def _insert(score: int, other: int, scores: Longs, found: Any, document: int, kept: int) -> None:
    at = kept - 1
    while at > 0 and _is_before(score, other, scores, found, document, at - 1):
        scores[document, at], found[document, at] = scores[document, at - 1], found[document, at - 1]
        at -= 1
    scores[document, at], found[document, at] = score, other


class Graph(NamedTuple):
    """A graph of similar documents as adjacency lists."""

    bounds: Longs
    """Start of each document's edges, and the end of the last, int64 [documents + 1]."""
    others: npt.NDArray[np.int32]
    """Other document of each edge, the most similar first."""


def make_graph(vectors: TermVectors, dense: Any, samples: Bytes, near: int, most: int) -> Graph:
    """Return the graph with edges in both directions between each document and its ``most`` most similar ones."""
    documents = len(samples)
    found, scores = np.empty((documents, most), np.int32), np.empty((documents, most), np.int64)
    find_neighbours(vectors, make_postings(vectors), dense, samples, near, found, scores)
    there = found >= 0
    ones = np.repeat(np.arange(documents), there.sum(axis=1))
    one, other = np.concatenate([ones, found[there]]), np.concatenate([found[there], ones])
    order = np.lexsort((other, -np.tile(scores[there], 2), one))
    one, other = one[order], other[order]
    # An edge found from both ends appears twice.
    first = np.ones(len(order), np.bool_)
    first[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    counts = np.bincount(one[first], minlength=documents)
    return Graph(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), other[first].astype(np.int32))


@allocating
def walk(starts: Longs, bounds: Longs, others: Any, order: Longs, begins: Any) -> None:
    """Order documents along greedy paths, each of which continues to the best neighbour that is not in a path yet.

    Paths start in the order of ``starts``; ``begins``, bool [documents], gets whether one begins at each position.
    """
    passed = np.zeros(len(starts), np.bool_)
    at = 0
    for start in starts:
        here = start
        if passed[start]:
            continue
        begins[at] = True
        while here >= 0:
            passed[here], order[at] = True, here
            at += 1
            following = np.int64(-1)
            for edge in range(bounds[here], bounds[here + 1]):
                if not passed[others[edge]]:
                    following = np.int64(others[edge])
                    break
            here = following


@allocating
def grow(starts: Longs, bounds: Longs, others: Any, lengths: Longs, most: int, branches: int, order: Longs) -> None:
    """Order documents by trees, each grown breadth first from a document that is not in a tree yet.

    Trees start in the order of ``starts`` and are finished at a total of ``most`` of ``lengths``; a document adds up to
    ``branches``.
    """
    passed = np.zeros(len(starts), np.bool_)
    at = 0
    for start in starts:
        if passed[start]:
            continue
        passed[start], order[at] = True, start
        turn, at, length = at, at + 1, lengths[start]
        while turn < at and length < most:
            here = order[turn]
            turn += 1
            added = 0
            for edge in range(bounds[here], bounds[here + 1]):
                other = np.int64(others[edge])
                if added == branches or length >= most:
                    break
                if not passed[other]:
                    passed[other], order[at] = True, other
                    at += 1
                    added += 1
                    length += lengths[other]


@allocating
def keep_apart(order: Longs, samples: Bytes, near: int, out: Longs) -> int:
    """Reorder documents so that near duplicates, with ``near`` equal bytes, are apart; return how many are not."""
    first, waiting = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    count = stop = taken = 0
    for document in order:
        if count and _agreeing(samples, first[count - 1], document) >= near:
            waiting[stop] = document
            stop += 1
            continue
        first[count] = document
        count += 1
        while taken < stop and _agreeing(samples, first[count - 1], waiting[taken]) < near:
            first[count] = waiting[taken]
            count += 1
            taken += 1
    at = 0
    for place in range(count):
        out[at] = first[place]
        at += 1
        if taken == stop or _agreeing(samples, first[place], waiting[taken]) >= near:
            continue
        if place + 1 < count and _agreeing(samples, first[place + 1], waiting[taken]) >= near:
            continue
        out[at] = waiting[taken]
        at += 1
        taken += 1
    left = stop - taken
    for place in range(taken, stop):
        out[at] = waiting[place]
        at += 1
    return left
