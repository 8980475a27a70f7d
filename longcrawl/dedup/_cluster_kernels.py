"""Sets of n-grams and how similar they are, and documents that share a band key linked by union-find: numba kernels.

With a wanted similarity, the documents of a bucket (all that share a key) become the connected components of the pairs
there that have it. Which pairs are looked at does not depend on how documents are numbered.

Documents are numbered in the order of preference: of two, the smaller number is the one to keep. The root of a cluster
is its smallest number, so neither the order of bands nor that of links matters.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.dedup.ngrams import GOLDEN, MIX_1
from longcrawl.kernels.compiling import allocating, compiled, inlined
from longcrawl.kernels.lookup import order_by, stable_order

Wide = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_U = np.uint64
_FACTOR, _GOLDEN = _U(MIX_1), _U(GOLDEN)

MOST_LEADERS = 4096
"""With how many kept documents of its cluster and near its size a document is compared at most."""

NEIGHBOURS = 1024
"""Of the different sets of n-grams in a bucket, each is compared with as many before it and after it in size."""


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


@inlined
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
    """Write ``conditions.ranks``, so that equal sets have one rank, and others have others.

    ``order`` is int64 [documents], by size, then by ``hashed``, uint64 [documents], a hash of each set.
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
def _count_common(one: Numbers, other: Numbers, wanted: int) -> int:
    """Count the numbers that two sorted arrays of unique numbers share; 0 as soon as there cannot be ``wanted``."""
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
    common = _count_common(first, second, 0)
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
    common = _count_common(first, second, wanted)
    return common / (len(first) + len(second) - common) >= least


@compiled
def measure_pairs(ones: Longs, others: Longs, here: Ngrams, there: Ngrams, size_ratio: float, found: Any) -> None:
    """Write the Jaccard similarity of every pair, float64 [pairs]; -1 where their sizes are farther apart than a ratio.

    ``ones`` and ``others`` are int64 [pairs], numbers of documents of ``here`` and of ``there``.
    """
    for pair in range(len(ones)):
        first, second = _of(here, ones[pair]), _of(there, others[pair])
        if min(len(first), len(second)) / max(len(first), len(second)) < size_ratio:
            found[pair] = -1.0
        else:
            found[pair] = _share(first, second)


@allocating
def choose_kept(members: Longs, starts: Longs, conditions: Conditions, kept: Longs) -> None:
    """Choose for each document of a cluster the first kept one that it is similar to; without one it is kept itself.

    Of documents with equal n-grams the first alone is compared: the others go where it goes, or leave for it.
    ``members``, int64 [documents], are cluster after cluster, ascending within each; ``starts``, int64 [clusters + 1],
    says where each starts, and ``kept``, int64 [documents], gets the document kept in place of each, or itself.
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
def link_edges(ones: Longs, others: Longs, parents: Any) -> None:
    """Make one cluster of those of the two documents of each edge; ``parents`` may be int64 too."""
    for edge in range(len(ones)):
        link(parents, ones[edge], others[edge])


@compiled
def find_roots(parents: Numbers) -> None:
    """Let every document point at the root of its cluster."""
    for number in range(len(parents)):
        parents[number] = parents[parents[number]]  # roots are smaller, so they are final by now


@compiled
def gather_keys(chunk: Wide, numbers: Any, first_band: int, keys: Wide) -> None:
    """Write some bands of a chunk, uint64 [documents of the chunk, bands], to ``keys``, [some bands, all documents].

    ``numbers``, int64 [documents of the chunk], is -1 for one that is not compared; ``keys[0]`` is ``first_band``.
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


@allocating
def _link_pairs(numbers: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link all pairs of documents that are similar, but compare none that are in one cluster already.

    A cluster takes all that are like one of its documents until nothing outside is, then comes the next. ``numbers``,
    int64 [documents], are all of other sets of n-grams, by rank, and share a band key.
    """
    count = len(numbers)
    roots, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    starts, stops = conditions.ngrams.starts, conditions.ngrams.stops
    for at in range(count):
        roots[at] = root(parents, numbers[at])
        sizes[at] = stops[numbers[at]] - starts[numbers[at]]
    by_root = stable_order(roots)
    in_group = np.empty(count, np.int64)
    for at in range(count):
        in_group[by_root[at]] = at
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
    """Let all documents of one's cluster wait for their comparisons; return how many wait then."""
    at = in_group[place]
    while at > 0 and roots[by_root[at - 1]] == roots[place]:
        at -= 1
    while at < len(by_root) and roots[by_root[at]] == roots[place]:
        waiting[left] = by_root[at]
        following[by_root[at]] = by_root[at] + 1
        left += 1
        at += 1
    return left


@allocating
def _link_similar(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link documents with equal n-grams, then those that are similar; all share a band key."""
    apart, first = False, root(parents, members[0])
    for number in members:
        apart |= root(parents, number) != first
    if not apart:
        return
    if len(members) == 2:
        one, other = members[0], members[1]
        if _remember_similar(min(one, other), max(one, other), conditions):
            link(parents, one, other)
        return
    order = order_by(conditions.ranks, members)
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


@allocating
def _link_sizes(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link documents next to each other in size whose sizes are close enough; all share a band key."""
    order = order_by(conditions.sizes, members)
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


@allocating
def _link_mixed(members: Longs, keys: Wide, conditions: Conditions, parents: Numbers) -> None:
    """Link documents whose keys have equal upper bits and are not all equal."""
    order = order_by(keys, members)
    first = 0
    for at in range(1, len(members) + 1):
        if at == len(members) or keys[members[order[at]]] != keys[members[order[first]]]:
            if at - first > 1:
                _link_bucket(members[order[first:at]], conditions, parents)
            first = at


@allocating
def link_band(packed: Wide, bits: int, keys: Wide, conditions: Conditions, parents: Numbers) -> None:
    """Link all documents that share a key of one band.

    ``packed``, uint64 [documents], is that of :func:`pack_keys`, sorted; ``keys``, uint64 [documents], are whole.
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
