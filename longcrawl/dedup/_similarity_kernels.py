"""Sets of n-grams: which are equal, and how similar two of them are, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.dedup import ngrams
from longcrawl.kernels.lookup import compiled

Wide = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_U = np.uint64
_FACTOR, _GOLDEN = _U(ngrams.MIX_1), _U(ngrams.GOLDEN)

MOST_LEADERS = 4096
"""With how many kept documents of its cluster and near its size a document is compared at most."""


class Ngrams(NamedTuple):
    """The n-grams of some documents."""

    hashes: Numbers
    """uint32, sorted within each document."""
    starts: Longs
    """int64 [documents], where the hashes of each document start."""
    stops: Longs


_NONE = np.zeros(0, np.int64)


class Conditions(NamedTuple):
    """What two documents with a common band key must fulfil to be linked; by default nothing is compared."""

    size_ratio: float = 0.0
    """The least ratio of their numbers of n-grams, smaller by greater; 0 compares nothing."""
    sizes: npt.NDArray[np.int32] = np.zeros(0, np.int32)
    """int32 [documents], numbers of n-grams; may be empty where ``size_ratio`` is 0."""
    similarity: float = 0.0
    """The least Jaccard similarity of their n-grams; 0 compares nothing, and what follows may then be empty."""
    ngrams: Ngrams = Ngrams(np.zeros(0, np.uint32), _NONE, _NONE)
    """Those of all documents."""
    ranks: Longs = _NONE
    """int64 [documents], by number of n-grams and then their hash; equal sets have one rank. See :func:`rank_sets`."""
    refused: Wide = np.zeros(0, np.uint64)
    """uint64 [a power of two], written: pairs of ranks that are not similar, each where its hash says."""


@compiled
def _of(ngrams: Ngrams, number: int) -> Numbers:
    return ngrams.hashes[ngrams.starts[number] : ngrams.stops[number]]


@compiled
def hash_sets(ngrams: Ngrams, found: Wide) -> None:
    """Write one 64-bit hash of the n-grams of each document."""
    for number in range(len(ngrams.starts)):
        hashed = _GOLDEN
        for gram in _of(ngrams, number):
            hashed = (hashed ^ _U(gram)) * _FACTOR
            hashed ^= hashed >> _U(32)
        found[number] = hashed


@compiled
def _are_equal(one: Numbers, other: Numbers) -> bool:
    if len(one) != len(other):
        return False
    at = 0
    while at < len(one) and one[at] == other[at]:
        at += 1
    return at == len(one)


@compiled
def rank_sets(order: Longs, hashed: Wide, conditions: Conditions) -> None:
    """Write the ranks of all documents, so that equal sets have one rank, and others have others.

    Args:
        order: int64 [documents], by size, then by hash.
        hashed: uint64 [documents], a hash of each set.
        conditions: the n-grams, and the ranks that are written.

    """
    ngrams, ranks, first = conditions.ngrams, conditions.ranks, 0
    for at in range(len(order)):
        number, before = order[at], order[max(at - 1, 0)]
        grams = _of(ngrams, number)
        if hashed[number] != hashed[before] or len(grams) != len(_of(ngrams, before)):
            first = at
        ranks[number] = at
        for other in order[first:at]:
            if _are_equal(_of(ngrams, other), grams):
                ranks[number] = ranks[other]
                break


@compiled
def _count_common(one: Numbers, other: Numbers) -> int:
    """Count the numbers that two sorted arrays of unique numbers share."""
    common, at, place = 0, 0, 0
    while at < len(one) and place < len(other):
        left, right = one[at], other[place]
        common += left == right
        at += left <= right
        place += right <= left
    return common


@compiled
def _count_until(one: Numbers, other: Numbers, wanted: int) -> int:
    """As ``_count_common``, but stop with 0 as soon as there cannot be ``wanted``."""
    common, at, place = 0, 0, 0
    spare, spare_there = len(one) - wanted, len(other) - wanted
    while at < len(one) and place < len(other):
        left, right = one[at], other[place]
        common += left == right
        at += left <= right
        place += right <= left
        if at - common > spare or place - common > spare_there:
            return 0
    return common


@compiled
def _share(first: Numbers, second: Numbers) -> float:
    """Return the Jaccard similarity of two sorted arrays of which one at least is not empty."""
    common = _count_common(first, second)
    return common / (len(first) + len(second) - common)


@compiled
def are_similar(one: int, other: int, conditions: Conditions) -> bool:
    """Whether two documents have the wanted similarity; where their sizes rule it out, n-grams are not looked at."""
    first, second = _of(conditions.ngrams, one), _of(conditions.ngrams, other)
    least = conditions.similarity
    # A quotient, as the similarity itself is one: a product would round pairs away that are exactly at the bound.
    if min(len(first), len(second)) / max(len(first), len(second)) < max(least, conditions.size_ratio):
        return False
    wanted = np.int64(least * (len(first) + len(second)) / (1.0 + least)) - 1
    common = _count_until(first, second, wanted)
    return common / (len(first) + len(second) - common) >= least


@compiled
def measure_pairs(ones: Longs, others: Longs, here: Ngrams, there: Ngrams, size_ratio: float, found: Any) -> None:
    """Write the Jaccard similarity of every pair; -1 where their sizes are farther apart than a ratio.

    Args:
        ones: int64 [pairs], numbers of documents of ``here``.
        others: int64 [pairs], of documents of ``there``.
        here: their n-grams.
        there: theirs.
        size_ratio: the least ratio of their numbers of n-grams, smaller by greater.
        found: float64 [pairs], written.

    """
    for pair in range(len(ones)):
        first, second = _of(here, ones[pair]), _of(there, others[pair])
        if min(len(first), len(second)) / max(len(first), len(second)) < size_ratio:
            found[pair] = -1.0
        else:
            found[pair] = _share(first, second)


@compiled
def choose_kept(members: Longs, starts: Longs, conditions: Conditions, kept: Longs) -> None:
    """Choose for each document of a cluster the first kept one that it is similar to; without one it is kept itself.

    Of documents with equal n-grams the first alone is compared: the others go where it goes, or leave for it.

    Args:
        members: int64 [documents in clusters], cluster after cluster, ascending within each.
        starts: int64 [clusters + 1], where each cluster starts.
        conditions: the wanted similarity.
        kept: int64 [documents in clusters], written: the document kept in place of each, or itself.

    """
    leaders = np.empty(len(members), np.int64)
    of_rank, seen_in = np.empty(len(conditions.ranks), np.int64), np.full(len(conditions.ranks), -1, np.int64)
    for cluster in range(len(starts) - 1):
        count = 0
        for at in range(starts[cluster], starts[cluster + 1]):
            number = members[at]
            rank = conditions.ranks[number]
            if seen_in[rank] == cluster:
                kept[at] = of_rank[rank]
                continue
            kept[at] = _first_similar(number, leaders[:count], conditions)
            seen_in[rank], of_rank[rank] = cluster, kept[at]
            if kept[at] == number:
                leaders[count] = number
                count += 1


@compiled
def _first_similar(number: int, leaders: Longs, conditions: Conditions) -> int:
    """Return the first of some documents that one is similar to, or itself."""
    compared, size = 0, len(_of(conditions.ngrams, number))
    least = max(conditions.similarity, conditions.size_ratio)
    for leader in leaders:
        other = len(_of(conditions.ngrams, leader))
        if min(size, other) / max(size, other) >= least:
            if are_similar(leader, number, conditions):
                return leader
            compared += 1
            if compared == MOST_LEADERS:
                break
    return number
