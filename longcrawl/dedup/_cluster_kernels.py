"""Documents that share a band key, linked by union-find, as numba kernels.

With a wanted similarity, the documents of a bucket (all that share a key) become the connected components of the pairs
there that have it. Which pairs are looked at does not depend on how documents are numbered.

Documents are numbered in the order of preference: of two, the smaller number is the one to keep. The root of a cluster
is its smallest number, so neither the order of bands nor that of links matters.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.dedup._similarity_kernels import Conditions, are_similar
from longcrawl.dedup.ngrams import GOLDEN
from longcrawl.kernels.lookup import compiled

Wide = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_U = np.uint64
_GOLDEN = _U(GOLDEN)

NEIGHBOURS = 1024
"""Of the different sets of n-grams in a bucket, each is compared with as many before it and after it in size."""


@compiled
def root(parents: Numbers, number: int) -> int:
    """Return the root of a document's cluster."""
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = np.int64(parents[number])
    return number


@compiled
def link(parents: Numbers, one: int, other: int) -> None:
    """Make one cluster of those of two documents."""
    one, other = root(parents, one), root(parents, other)
    if one < other:
        parents[other] = one
    elif other < one:
        parents[one] = other


@compiled
def find_roots(parents: Numbers) -> None:
    """Let every document point at the root of its cluster."""
    for number in range(len(parents)):
        parents[number] = parents[parents[number]]  # roots are smaller, so they are final by now


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
def _remember_similar(one: int, other: int, conditions: Conditions) -> bool:
    """As ``are_similar``, but do not look again at a pair that was unlike in another band."""
    if conditions.ranks[one] == conditions.ranks[other]:
        return True
    pair = (_U(conditions.ranks[one]) << _U(32)) | _U(conditions.ranks[other])
    place = np.int64((pair * _GOLDEN) >> _U(32)) & (len(conditions.refused) - 1)
    if conditions.refused[place] == pair:
        return False
    if are_similar(one, other, conditions):
        return True
    conditions.refused[place] = pair
    return False


@compiled
def _next(following: Longs, place: int) -> int:
    """Return the first place from ``place`` on that is not taken yet."""
    while following[place] != place:
        following[place] = following[following[place]]
        place = following[place]
    return place


@compiled
def _link_pairs(numbers: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link all pairs of documents that are similar, but compare none that are in one cluster already.

    From one cluster, go on to all that are like one of its documents until nothing outside is, then take the next.

    Args:
        numbers: int64 [documents], all of other sets of n-grams, by rank; all share a band key.
        conditions: the wanted similarity.
        parents: the forest that is linked.

    """
    count = len(numbers)
    roots, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    for at in range(count):
        roots[at] = root(parents, numbers[at])
        sizes[at] = conditions.ngrams.stops[numbers[at]] - conditions.ngrams.starts[numbers[at]]
    by_root = np.argsort(roots, kind="mergesort")
    in_group = np.empty(count, np.int64)
    in_group[by_root] = np.arange(count)
    least = max(conditions.similarity, conditions.size_ratio)
    following, waiting, lowest = np.arange(count + 1), np.empty(count, np.int64), np.zeros(count, np.int64)
    for at in range(1, count):
        low = max(lowest[at - 1], at - NEIGHBOURS)
        while sizes[low] / sizes[at] < least:
            low += 1
        lowest[at] = low
    for first in range(count):
        if following[first] != first:
            continue
        left = _take_group(first, roots, by_root, in_group, following, waiting, np.int64(0))
        while left > 0:
            left -= 1
            at = waiting[left]
            place = _next(following, lowest[at])
            while place < count and lowest[place] <= at:
                if _remember_similar(numbers[min(at, place)], numbers[max(at, place)], conditions):
                    link(parents, numbers[at], numbers[place])
                    left = _take_group(place, roots, by_root, in_group, following, waiting, left)
                place = _next(following, place + 1)


@compiled
def _take_group(
    place: int, roots: Longs, by_root: Longs, in_group: Longs, following: Longs, waiting: Longs, left: int
) -> int:
    """Let all documents of one's cluster wait for their comparisons, and give how many wait then."""
    at = in_group[place]
    while at > 0 and roots[by_root[at - 1]] == roots[place]:
        at -= 1
    while at < len(by_root) and roots[by_root[at]] == roots[place]:
        waiting[left] = by_root[at]
        following[by_root[at]] = by_root[at] + 1
        left += 1
        at += 1
    return left


@compiled
def _link_similar(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link documents with equal n-grams, then those that are similar; all share a band key."""
    apart, first = False, root(parents, members[0])
    for number in members:
        apart |= root(parents, number) != first
    if not apart:
        return
    if len(members) == 2:
        if _remember_similar(min(members), max(members), conditions):
            link(parents, members[0], members[1])
        return
    order = np.argsort(conditions.ranks[members], kind="mergesort")
    different, count = np.empty(len(members), np.int64), 0
    for at in order:
        number = members[at]
        if count > 0 and conditions.ranks[different[count - 1]] == conditions.ranks[number]:
            link(parents, different[count - 1], number)
        else:
            different[count] = number
            count += 1
    if count > 1:
        _link_pairs(different[:count], conditions, parents)


@compiled
def _link_sizes(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link documents next to each other in size whose sizes are close enough; all share a band key."""
    order = np.argsort(conditions.sizes[members], kind="mergesort")
    for at in range(1, len(members)):
        smaller, greater = members[order[at - 1]], members[order[at]]
        if conditions.sizes[smaller] / conditions.sizes[greater] >= conditions.size_ratio:
            link(parents, smaller, greater)


@compiled
def _link_bucket(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link the documents that share a band key."""
    if conditions.similarity > 0.0:
        _link_similar(members, conditions, parents)
    elif conditions.size_ratio > 0.0:
        _link_sizes(members, conditions, parents)
    else:
        for number in members[1:]:
            link(parents, members[0], number)


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
def link_band(packed: Wide, bits: int, keys: Wide, conditions: Conditions, parents: Numbers) -> None:
    """Link all documents that share a key of one band.

    Args:
        packed: uint64 [documents], see :func:`pack_keys`, sorted.
        bits: how many of them hold the document's number.
        keys: uint64 [documents], whole keys.
        conditions: what two documents must fulfil.
        parents: uint32 [documents], the forest that is linked.

    """
    mask = (_U(1) << _U(bits)) - _U(1)
    first, documents = 0, len(packed)
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
                _link_mixed(members, keys, conditions, parents)
        first = stop
