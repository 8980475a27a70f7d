"""Documents that share a band key, linked by union-find, as numba kernels.

Documents are numbered in the order of preference: of two, the smaller number is the one to keep. The root of a cluster
is its smallest number, so neither the order of bands nor that of links matters.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.text._lookup_kernels import compiled

__all__ = [
    "MOST_LEADERS",
    "Conditions",
    "Ngrams",
    "choose_kept",
    "find_roots",
    "gather_keys",
    "link_band",
    "measure_across",
    "measure_pairs",
    "pack_keys",
]

Wide = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_U = np.uint64

MOST_LEADERS = 64
"""With how many documents of one bucket or cluster another is compared at most."""


class Conditions(NamedTuple):
    """What two documents with a common band key must fulfil to be linked."""

    similarity: float
    """The least Jaccard similarity of their n-grams; 0 compares nothing."""
    size_ratio: float
    """The least ratio of their numbers of n-grams, smaller by greater; 0 compares nothing."""
    sizes: npt.NDArray[np.int32]
    """int32 [documents], numbers of n-grams; may be empty where ``size_ratio`` is 0."""
    hashes: Numbers
    """The sorted hashes of the n-grams of all documents; may be empty where ``similarity`` is 0."""
    starts: Longs
    """int64 [documents], where the hashes of each document start; may be empty where ``similarity`` is 0."""
    stops: Longs


class Ngrams(NamedTuple):
    """The n-grams of some documents."""

    hashes: Numbers
    """uint32, sorted within each document."""
    starts: Longs
    """int64 [documents], where the hashes of each document start."""
    stops: Longs


@compiled
def gather_keys(chunk: Wide, numbers: Any, first_band: int, keys: Wide) -> None:
    """Put some bands of some documents where they belong.

    Args:
        chunk: uint64 [documents of the chunk, bands].
        numbers: int64 [documents of the chunk], each document's number; -1 for one that is not compared.
        first_band: the band that ``keys[0]`` holds.
        keys: uint64 [some bands, all documents], written.

    """
    for row in range(len(chunk)):
        number = numbers[row]
        if number >= 0:
            for band in range(len(keys)):
                keys[band, number] = chunk[row, first_band + band]


@compiled
def pack_keys(keys: Wide, bits: int, packed: Wide) -> None:
    """Write the upper bits of each key above the number of its document, which takes ``bits``."""
    mask = (_U(1) << _U(bits)) - _U(1)
    for number in range(len(keys)):
        packed[number] = (keys[number] & ~mask) | _U(number)


@compiled
def _root(parents: Numbers, number: int) -> int:
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = np.int64(parents[number])
    return number


@compiled
def _link(parents: Numbers, one: int, other: int) -> None:
    one, other = _root(parents, one), _root(parents, other)
    if one < other:
        parents[other] = one
    elif other < one:
        parents[one] = other


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
def _jaccard(one: int, other: int, conditions: Conditions) -> float:
    """Give the Jaccard similarity of the n-grams of two documents that have some."""
    first = conditions.hashes[conditions.starts[one] : conditions.stops[one]]
    return _share(first, conditions.hashes[conditions.starts[other] : conditions.stops[other]])


@compiled
def _share(first: Numbers, second: Numbers) -> float:
    """Give how many of the numbers of two sorted arrays are in both."""
    common = _count_common(first, second)
    return common / (len(first) + len(second) - common)


@compiled
def _are_similar(one: int, other: int, conditions: Conditions) -> bool:
    """Whether two documents have the wanted similarity; where their sizes rule it out, n-grams are not looked at."""
    first, second = conditions.stops[one] - conditions.starts[one], conditions.stops[other] - conditions.starts[other]
    if min(first, second) < max(conditions.similarity, conditions.size_ratio) * max(first, second):
        return False
    return _jaccard(one, other, conditions) >= conditions.similarity


@compiled
def measure_pairs(ones: Longs, others: Longs, conditions: Conditions, similarities: Any) -> None:
    """Write the Jaccard similarity of every pair: float64 [pairs]."""
    for pair in range(len(ones)):
        similarities[pair] = _jaccard(ones[pair], others[pair], conditions)


@compiled
def measure_across(ones: Longs, others: Longs, here: Ngrams, there: Ngrams, size_ratio: float, found: Any) -> None:
    """Write the Jaccard similarity of documents of two datasets; -1 where their sizes are farther apart than a ratio.

    Args:
        ones: int64 [pairs], numbers of documents of ``here``.
        others: int64 [pairs], of documents of ``there``.
        here: their n-grams.
        there: theirs.
        size_ratio: the least ratio of their numbers of n-grams, smaller by greater.
        found: float64 [pairs], written.

    """
    for pair in range(len(ones)):
        first = here.hashes[here.starts[ones[pair]] : here.stops[ones[pair]]]
        second = there.hashes[there.starts[others[pair]] : there.stops[others[pair]]]
        if min(len(first), len(second)) < size_ratio * max(len(first), len(second)):
            found[pair] = -1.0
        else:
            found[pair] = _share(first, second)


@compiled
def _link_similar(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link each document to the first leader that it is similar to, or make it a leader; all share a band key."""
    leaders = np.empty(min(len(members), MOST_LEADERS), np.int64)
    count = 0
    for number in members:
        linked = False
        for leader in leaders[:count]:
            linked = _root(parents, leader) == _root(parents, number)
            if not linked and _are_similar(leader, number, conditions):
                _link(parents, leader, number)
                linked = True
            if linked:
                break
        if not linked and count < len(leaders):
            leaders[count] = number
            count += 1


@compiled
def _link_sizes(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link documents next to each other in size whose sizes are close enough; all share a band key."""
    order = np.argsort(conditions.sizes[members], kind="mergesort")
    for at in range(1, len(members)):
        smaller, greater = members[order[at - 1]], members[order[at]]
        if conditions.sizes[smaller] >= conditions.size_ratio * conditions.sizes[greater]:
            _link(parents, smaller, greater)


@compiled
def _link_bucket(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link the documents that share a band key."""
    if conditions.similarity > 0.0:
        _link_similar(members, conditions, parents)
    elif conditions.size_ratio > 0.0:
        _link_sizes(members, conditions, parents)
    else:
        for number in members[1:]:
            _link(parents, members[0], number)


@compiled
def _link_mixed(members: Longs, keys: Wide, conditions: Conditions, parents: Numbers) -> None:
    """Link documents whose keys have equal upper bits and are not all equal."""
    order = np.argsort(keys[members], kind="mergesort")
    first = 0
    for at in range(1, len(members) + 1):
        if at == len(members) or keys[members[order[at]]] != keys[members[order[first]]]:
            if at - first > 1:
                _link_bucket(members[order[first:at]], conditions, parents)
            first = at


@compiled
def link_band(packed: Wide, bits: int, keys: Wide, conditions: Conditions, parents: Numbers) -> int:
    """Link all documents that share a key of one band.

    Args:
        packed: uint64 [documents], see :func:`pack_keys`, sorted.
        bits: how many of them hold the document's number.
        keys: uint64 [documents], whole keys.
        conditions: what two documents must fulfil.
        parents: uint32 [documents], the forest that is linked.

    Returns:
        How many buckets of equal upper bits held different keys.

    """
    mask = (_U(1) << _U(bits)) - _U(1)
    mixed, first, documents = 0, 0, len(packed)
    while first < documents:
        stop = first + 1
        while stop < documents and (packed[stop] ^ packed[first]) & ~mask == 0:
            stop += 1
        if stop - first > 1:
            members = (packed[first:stop] & mask).astype(np.int64)
            equal = True
            for number in members:
                equal &= keys[number] == keys[members[0]]
            if equal:
                _link_bucket(members, conditions, parents)
            else:
                mixed += 1
                _link_mixed(members, keys, conditions, parents)
        first = stop
    return mixed


@compiled
def find_roots(parents: Numbers) -> None:
    """Let every document point at the root of its cluster."""
    for number in range(len(parents)):
        parents[number] = parents[parents[number]]  # roots are smaller, so they are final by now


@compiled
def choose_kept(members: Longs, starts: Longs, conditions: Conditions, kept: Longs) -> None:
    """Choose for each document of a cluster the first kept one that it is similar to; without one it is kept itself.

    Args:
        members: int64 [documents in clusters], cluster after cluster, ascending within each.
        starts: int64 [clusters + 1], where each cluster starts.
        conditions: the wanted similarity.
        kept: int64 [documents in clusters], written: the document kept in place of each, or itself.

    """
    leaders = np.empty(MOST_LEADERS, np.int64)
    for cluster in range(len(starts) - 1):
        count = 0
        for at in range(starts[cluster], starts[cluster + 1]):
            number = members[at]
            kept[at] = number
            for leader in leaders[:count]:
                if _are_similar(leader, number, conditions):
                    kept[at] = leader
                    break
            if kept[at] == number and count < MOST_LEADERS:
                leaders[count] = number
                count += 1
