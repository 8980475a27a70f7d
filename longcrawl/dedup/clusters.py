"""Clusters of near-duplicates: documents that share band keys, linked by union-find.

Band by band, documents with an equal key are linked: all of them or, with ``verify``, the connected components of pairs
with similar n-grams. Memory holds a few bands at a time, and a few numbers per document.

An index of MinHash (:mod:`longcrawl.dedup.index`) has these arrays in addition to the keys of every band:

* ``sample.npy``, uint8 (documents, up to 128), to estimate similarities;
* ``n_ngrams.npy``, int32 (documents,), to compare sizes, except for published signatures;
* with ``verify``, ``ngrams.npy``, uint32, 4 bytes per n-gram, and ``ngram_ends.npy``, int64 (documents + 1,).

A document is removed at the first band in which an earlier document has the same key and fulfils the conditions; if
there are several, the ledger names the first. The rule is ``near_duplicate_of_earlier``; with several indexes it is
``near_duplicate_of_earlier_2`` for a document found in the second, and so on.

Documents are numbered in order of preference, and the root of a cluster is its smallest number. In an exchange, each of
G groups is small enough for a task, and each of S sections consists of groups with two million documents together.

========  =====================  =========================================  ======================================
step      tasks > partitions     rows that meet                             a partition becomes
========  =====================  =========================================  ======================================
link      G > bands x pieces,    16 bytes of each key of each task and      edges between documents
          by key                 band
clusters  1                      none: it reads all edges, and holds        the cluster of each document of a
                                 5 bytes a document (9 beyond 2**32)        section that is in one with others
choose    S > S, by cluster      one row of each cluster and section: the   for each of these rows, the document
                                 document to keep of its documents there,   of all sections that is kept
                                 with id and sample, and their number
near      S > S, by section      these                                      removals of a section
compared  S > G, by cluster      the sketch of each document in a cluster,  removals of some clusters
                                 if pairs are compared: instead of choose
========  =====================  =========================================  ======================================

With ``verify`` or ``min_size_ratio``, the sketches of all documents that bands link to one cluster are in memory
together.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import DOCUMENT, Decided, Engine, Exchange, Sketched, cut, key_ranges, no_rows
from longcrawl.core.ledger import number_rule
from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.dedup.index import REMOVALS, Arrays, Index, batches, first_of_equal, removal_table, staying, take_ids
from longcrawl.dedup.ngrams import GOLDEN, MIX_1
from longcrawl.errors import CorruptionError, StageError, warn_user
from longcrawl.kernels.compiling import allocating, compiled, inlined
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.lookup import order_by, stable_order
from longcrawl.kernels.texts import fixed_binary, fixed_rows

Keep = Literal["random", "longest", "first"]
Linkage = Literal["single", "star"]
OnLargeCluster = Literal["warn", "error", "keep"]


class Clustering(NamedTuple):
    """Settings that decide about documents that share a band key; see :class:`longcrawl.dedup.MinHash`."""

    stage: str
    bands: int
    keep: Keep
    seed: int
    verify: float | None
    linkage: Linkage
    min_size_ratio: float | None
    max_cluster: int | None
    on_large_cluster: OnLargeCluster


Wide = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

_U = np.uint64
_FACTOR, _GOLDEN = _U(MIX_1), _U(GOLDEN)

MOST_LEADERS = 4096
"""Maximum number of kept documents of similar size in its cluster with which a document is compared."""

NEIGHBOURS = 1024
"""Number of sets of n-grams on either side, in order of size, with which each distinct set in a bucket is compared."""


class Ngrams(NamedTuple):
    """The n-grams of some documents."""

    hashes: Numbers
    """uint32, sorted within each document, from ``starts`` to ``stops``, int64 [documents]."""
    starts: Longs
    stops: Longs


_NONE = np.zeros(0, np.int64)


class Conditions(NamedTuple):
    """Conditions under which two documents with a common band key are linked; the defaults compare nothing."""

    size_ratio: float = 0.0
    """Minimum ratio of their numbers of n-grams, smaller to larger; 0 for no bound."""
    sizes: npt.NDArray[np.int32] = np.zeros(0, np.int32)
    """int32 [documents], numbers of n-grams; may be empty if ``size_ratio`` is 0."""
    similarity: float = 0.0
    """Minimum Jaccard similarity of their n-grams. With 0 nothing is compared, and the other fields may be empty."""
    ngrams: Ngrams = Ngrams(np.zeros(0, np.uint32), _NONE, _NONE)
    ranks: Longs = _NONE
    """int64 [documents], by number of n-grams and then their hash; equal sets have one rank. See :func:`rank_sets`."""
    refused: Wide = np.zeros(0, np.uint64)
    """uint64 [a power of two], written: hash table of pairs of ranks known to be dissimilar."""


@inlined
def _of(ngrams: Ngrams, number: int) -> Numbers:
    return ngrams.hashes[ngrams.starts[number] : ngrams.stops[number]]


@compiled
def hash_sets(ngrams: Ngrams, found: Wide) -> None:
    """Write a 64-bit hash of the set of n-grams of each document."""
    for number in range(len(ngrams.starts)):
        hashed = _GOLDEN
        for gram in _of(ngrams, number):
            hashed = (hashed ^ _U(gram)) * _FACTOR
            hashed ^= hashed >> _U(32)
        found[number] = hashed


@compiled
def _are_equal(one: Numbers, other: Numbers) -> bool:
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    return at == len(one) == len(other)


@compiled
def rank_sets(order: Longs, hashed: Wide, conditions: Conditions) -> None:
    """Write ``conditions.ranks``, equal for equal sets; ``order`` is by size, then by ``hashed``, a hash of each."""
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
    """Count the numbers shared by two sorted arrays of unique numbers; 0 as soon as ``wanted`` is out of reach."""
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
def are_similar(one: int, other: int, conditions: Conditions) -> bool:
    """Return whether two documents are similar enough; n-grams are not read if their numbers rule it out."""
    first, second = _of(conditions.ngrams, one), _of(conditions.ngrams, other)
    least = conditions.similarity
    # Divide, as for the similarity itself: after a multiplication, rounding would reject pairs exactly at the bound.
    if min(len(first), len(second)) / max(len(first), len(second)) < max(least, conditions.size_ratio):
        return False
    wanted = np.int64(least * (len(first) + len(second)) / (1.0 + least)) - 1
    common = _count_common(first, second, wanted)
    return common / (len(first) + len(second) - common) >= least


@compiled
def measure_pairs(ones: Longs, others: Longs, here: Ngrams, there: Ngrams, size_ratio: float, found: Any) -> None:
    """Write the Jaccard similarity of every pair, float64 [pairs]; -1 if the ratio of sizes is below ``size_ratio``."""
    for pair in range(len(ones)):
        first, second = _of(here, ones[pair]), _of(there, others[pair])
        if min(len(first), len(second)) / max(len(first), len(second)) < size_ratio:
            found[pair] = -1.0
        else:
            common = _count_common(first, second, 0)
            found[pair] = common / (len(first) + len(second) - common)


@allocating
def choose_kept(members: Longs, starts: Longs, conditions: Conditions, kept: Longs) -> None:
    """Choose for each document of a cluster, in ascending order, the first kept document similar to it, or itself."""
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
    """Merge the clusters of two documents."""
    one, other = root(parents, one), root(parents, other)
    if one < other:
        parents[other] = one
    elif other < one:
        parents[one] = other


@compiled
def link_edges(ones: Longs, others: Longs, parents: Any) -> None:
    """Merge the clusters of the two documents of each edge; ``parents`` may also be int64."""
    for edge in range(len(ones)):
        link(parents, ones[edge], others[edge])


@compiled
def find_roots(parents: Numbers) -> None:
    """Point every document at the root of its cluster."""
    for number in range(len(parents)):
        parents[number] = parents[parents[number]]  # roots have smaller numbers, so they are final by now


@compiled
def gather_keys(chunk: Wide, numbers: Any, first_band: int, keys: Wide) -> None:
    """Copy some bands of a chunk to ``keys``, uint64 [some bands, all documents]; a number of -1 is not compared."""
    for row in range(len(chunk)):
        number = numbers[row]
        if number >= 0:
            for band in range(len(keys)):
                keys[band, number] = chunk[row, first_band + band]


@compiled
def pack_keys(keys: Wide, bits: int, packed: Wide) -> None:
    """Pack the upper bits of each key with the number of its document in the lower ``bits``."""
    mask = (_U(1) << _U(bits)) - _U(1)
    for number in range(len(keys)):
        packed[number] = (keys[number] & ~mask) | _U(number)


@compiled
def _remember_similar(one: int, other: int, conditions: Conditions) -> bool:
    """Return whether two documents are similar, without comparing pairs that were dissimilar in another band."""
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
    while following[place] != place:
        following[place] = following[following[place]]
        place = following[place]
    return place


@allocating
def _link_pairs(numbers: Longs, conditions: Conditions, parents: Numbers) -> None:
    """Link all pairs of similar documents, in order of rank, without comparing any that are already in one cluster."""
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
    """Link documents that are adjacent in order of size if their sizes are close enough; all share a band key."""
    order = order_by(conditions.sizes, members)
    for at in range(1, len(members)):
        smaller, greater = members[order[at - 1]], members[order[at]]
        if conditions.sizes[smaller] / conditions.sizes[greater] >= conditions.size_ratio:
            link(parents, smaller, greater)


@compiled
def _link_bucket(members: Longs, conditions: Conditions, parents: Numbers) -> None:
    if conditions.similarity > 0.0:
        _link_similar(members, conditions, parents)
    elif conditions.size_ratio > 0.0:
        _link_sizes(members, conditions, parents)
    else:
        for number in members[1:]:
            link(parents, members[0], number)


@allocating
def _link_mixed(members: Longs, keys: Wide, conditions: Conditions, parents: Numbers) -> None:
    order = order_by(keys, members)
    first = 0
    for at in range(1, len(members) + 1):
        if at == len(members) or keys[members[order[at]]] != keys[members[order[first]]]:
            if at - first > 1:
                _link_bucket(members[order[first:at]], conditions, parents)
            first = at


@allocating
def link_band(packed: Wide, bits: int, keys: Wide, conditions: Conditions, parents: Numbers) -> None:
    """Link all documents that share one of ``keys``; ``packed`` is the sorted output of :func:`pack_keys`."""
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


Tables = Iterator[pa.Table]
Rows = Iterator[tuple[int, pa.Table]]
Similarities = npt.NDArray[np.float64]

BLOCK = 1 << 28
"""Bytes of band keys that are processed together."""

REFUSED = 1 << 22
"""Number of dissimilar pairs that are remembered, 8 bytes each: pairs that share one band mostly share others."""

PAIRS = 1 << 16

MOST_MATCHES = 64
"""Maximum number of earlier documents with the same band key with which a document is compared."""


def near_duplicates(sketches: pa.Table, settings: Clustering) -> tuple[Longs, Longs, Similarities]:
    """Compare documents; return the positions of documents to remove, the kept document of each, and their similarity.

    The similarity is computed from n-grams if ``verify`` is set, and otherwise estimated from ``sample``. Null
    ``bands`` are not compared.
    """
    numbered = sketches.select(["id"] + ["length"] * (settings.keep == "longest"))
    ranked = with_rank(numbered.append_column(DOCUMENT, pa.array(np.arange(len(sketches)))), settings)
    order = pc.sort_indices(ranked, sort_keys=PREFERENCE[settings.keep]).to_numpy().astype(np.int64)
    order = order[pc.is_valid(sketches["bands"]).to_numpy()[order]]
    roots = link_documents(sketches["bands"], order, settings, _conditions(sketches, order, settings))
    if settings.verify is not None:
        in_clusters = np.bincount(roots, minlength=len(roots))[roots] > 1
        return _verified(sketches, order[in_clusters], settings, settings.verify)
    gone = np.flatnonzero(roots != np.arange(len(roots)))
    removed, kept = order[gone], order[roots[gone]]
    return removed, kept, estimate_pairs(sketches["sample"], removed, sketches["sample"], kept)


PREFERENCE = {
    "random": [("rank", "ascending"), ("id", "ascending")],
    "longest": [("length", "descending"), ("id", "ascending")],
    "first": [(DOCUMENT, "ascending")],
}
"""Sort keys that put the document to keep first; ids break ties, since only "first" depends on the order."""


def with_rank(documents: pa.Table, settings: Clustering) -> pa.Table:
    """Add the column ``rank`` that ``PREFERENCE`` needs to keep documents at random."""
    if settings.keep != "random":
        return documents
    ranks = keyed_hash(documents["id"].to_pylist(), settings.stage, settings.seed)
    return documents.append_column("rank", pa.array(ranks))


def _conditions(sketches: pa.Table, order: Longs, settings: Clustering, similarity: float = 0.0) -> Conditions:
    made = Conditions()
    if settings.min_size_ratio is not None:
        made = Conditions(settings.min_size_ratio, sketches["n_ngrams"].to_numpy().astype(np.int32)[order])
    if not similarity:
        return made
    ngrams = _ngrams_of(sketches["ngrams"], order)
    hashed, ranks = np.empty(len(order), np.uint64), np.empty(len(order), np.int64)
    hash_sets(ngrams, hashed)
    refused = np.zeros(REFUSED, np.uint64)
    made = made._replace(similarity=similarity, ngrams=ngrams, ranks=ranks, refused=refused)
    rank_sets(np.lexsort((hashed, ngrams.stops - ngrams.starts)), hashed, made)
    return made


def link_documents(bands: pa.ChunkedArray, order: Longs, settings: Clustering, conditions: Conditions) -> Longs:
    """Link documents, numbered by their position in ``order``; return the root of each."""
    parents = np.arange(len(order), dtype=np.uint32)
    for keys in band_blocks(bands, order, settings.bands):
        for band in keys:
            link_keys(band, conditions, parents)
    find_roots(parents)
    return parents.astype(np.int64)


def link_keys(keys: Wide, conditions: Conditions, parents: Numbers) -> Longs:
    """Link the documents that share a key of a band; return them sorted by the upper 32 bits or more of their keys."""
    bits = max(len(keys) - 1, 1).bit_length()
    packed = np.empty(len(keys), np.uint64)
    pack_keys(keys, bits, packed)
    packed.sort()
    link_band(packed, bits, keys, conditions, parents)
    packed &= np.uint64((1 << bits) - 1)
    return packed.view(np.int64)


def band_blocks(bands: pa.ChunkedArray, order: Longs, count: int) -> Iterator[Wide]:
    """Yield the keys of all bands, some bands at a time: uint64 [bands, documents]."""
    numbers = np.full(len(bands), -1, np.int64)
    numbers[order] = np.arange(len(order))
    at_once = min(count, max(1, BLOCK // max(8 * len(order), 1)))
    block = np.empty((at_once, len(order)), np.uint64)
    for first in range(0, count, at_once):
        keys = block[: min(at_once, count - first)]
        row = 0
        for chunk in bands.chunks:
            numbered = fixed_rows(pc.cast(chunk, pa.binary(8 * count))).view(np.uint64)
            gather_keys(numbered, numbers[row : row + len(chunk)], first, keys)
            row += len(chunk)
        yield keys


def _verified(
    sketches: pa.Table, order: Longs, settings: Clustering, least: float
) -> tuple[Longs, Longs, Similarities]:
    conditions = _conditions(sketches, order, settings, least)
    kept = link_documents(sketches["bands"], order, settings, conditions)
    if settings.linkage == "star":
        members = np.argsort(kept, kind="stable")
        edges = np.flatnonzero(np.diff(kept[members], prepend=-1, append=-1))
        chosen = np.empty_like(members)
        choose_kept(members, edges, conditions, chosen)
        kept[members] = chosen
    gone = np.flatnonzero(kept != np.arange(len(kept)))
    similarities = np.empty(len(gone))
    measure_pairs(gone, kept[gone], conditions.ngrams, conditions.ngrams, 0.0, similarities)
    return order[gone], order[kept[gone]], similarities


def _ngrams_of(column: pa.ChunkedArray, order: Longs) -> Ngrams:
    places = np.sort(order)
    found, sizes, first = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)], 0
    for chunk in column.chunks:
        here = places[np.searchsorted(places, first) : np.searchsorted(places, first + len(chunk))] - first
        taken = chunk.take(pa.array(here))
        found.append(taken.flatten().to_numpy())
        sizes.append(pc.list_value_length(taken).to_numpy())
        first += len(chunk)
    stops = np.cumsum(np.concatenate(sizes))
    starts = np.concatenate([[0], stops[:-1]])
    numbers = np.searchsorted(places, order)
    return Ngrams(np.concatenate(found), starts[numbers], stops[numbers])


def estimate_pairs(samples: pa.ChunkedArray, places: Longs, others: pa.ChunkedArray, kept: Longs) -> Similarities:
    """Estimate the similarity of the documents at ``places`` among samples and those at ``kept`` among others."""
    found = np.empty(len(places))
    for first in range(0, len(places), PAIRS):
        some = slice(first, first + PAIRS)
        found[some] = estimate(*(sample_bytes(each.take(at[some])) for each, at in ((samples, places), (others, kept))))
    return found


def estimate(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> Similarities:
    """Estimate the similarity of pairs from samples, uint8 [pairs, width]; 1 byte in 256 agrees by chance."""
    agree = np.count_nonzero(one == other, axis=1) / one.shape[1]
    similarities: Similarities = np.maximum((agree - 1 / 256) / (1 - 1 / 256), 0.0)
    return similarities


def sample_bytes(samples: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """Return samples as uint8 [documents, width]; the width is 1 if there are none."""
    if not len(samples):
        return np.zeros((0, 1), np.uint8)
    return np.concatenate([fixed_rows(chunk) for chunk in samples.chunks])


def index_arrays(known: pa.Table) -> Arrays:
    """Return the arrays that an index stores of documents in addition to keys, from their sketches."""
    whole: dict[str, npt.NDArray[Any]] = {"sample": sample_bytes(known["sample"])}
    lengths = dict[str, Longs]()
    if "n_ngrams" in known.column_names:
        whole["n_ngrams"] = known["n_ngrams"].to_numpy().astype(np.int32)
    if "ngrams" in known.column_names:
        whole["ngrams"], starts, stops = _ngrams_of(known["ngrams"], np.arange(len(known)))
        lengths["ngram_ends"] = stops - starts
    return Arrays(whole, lengths)


def near_duplicates_of_earlier(
    sketches: pa.Table, indexes: Sequence[Index], settings: Clustering
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Return the removals of documents with a near-duplicate in an index, naming the first, and a mask of them."""
    left = np.flatnonzero(pc.is_valid(sketches["bands"]).to_numpy())
    removals, gone = [REMOVAL_SCHEMA.empty_table()], np.zeros(len(sketches), np.bool_)
    for number, index in enumerate(indexes, 1):
        rows, values = _search(sketches, left, index, settings)
        found = np.flatnonzero(rows >= 0)
        removed, kept, similarities = left[found], rows[found], values[found]
        if settings.verify is None:
            samples = pa.chunked_array([fixed_binary(index.array("sample", np.uint8, index.documents, None))])
            similarities = estimate_pairs(sketches["sample"], removed, samples, kept)
        rule = number_rule("near_duplicate_of_earlier", number, len(indexes))
        ids = take_ids(sketches["id"], removed)
        removals.append(removal_table(ids, rule, index.ids(kept), similarities, settings.verify))
        gone[removed] = True
        left = left[rows < 0]
    return pa.concat_tables(removals), gone


def _search(sketches: pa.Table, left: Longs, index: Index, settings: Clustering) -> tuple[Longs, Similarities]:
    """Return the earlier document that each document duplicates, or -1, and their similarity if measured."""
    rows, values = np.full(len(left), -1, np.int64), np.full(len(left), np.nan)
    most = 1 if settings.verify is None and settings.min_size_ratio is None else MOST_MATCHES
    band, open_ones = 0, np.arange(len(left))
    for block in band_blocks(sketches["bands"], left, settings.bands):
        for keys in block:
            asked, candidates = index.matches(band, keys[open_ones], most)
            asked = open_ones[asked]
            similarities = _similar(sketches, left[asked], index, candidates, settings)
            passes = np.flatnonzero(similarities >= (settings.verify or 0.0))
            found, first = np.unique(asked[passes], return_index=True)
            rows[found], values[found] = candidates[passes[first]], similarities[passes[first]]
            open_ones = open_ones[rows[open_ones] < 0]
            band += 1
    return rows, values


def _similar(sketches: pa.Table, places: Longs, index: Index, rows: Longs, settings: Clustering) -> Similarities:
    """Return the similarity of pairs that share a band key, 1 if it is not compared, and -1 if sizes rule it out."""
    ratio = settings.min_size_ratio or 0.0
    found = np.ones(len(places))
    if settings.verify is not None and len(places):
        documents, numbers = np.unique(places, return_inverse=True)
        ends = index.array("ngram_ends", np.int64, index.documents + 1)
        ngrams = index.array("ngrams", np.uint32, None)
        if not np.all((ends[rows] >= 0) & (ends[rows] <= ends[rows + 1]) & (ends[rows + 1] <= len(ngrams))):
            raise CorruptionError(f"{index.folder} refers to n-grams that it does not contain: build the index again")
        earlier = Ngrams(ngrams, ends[:-1], ends[1:])
        here = _ngrams_of(sketches["ngrams"], documents)
        measure_pairs(numbers, rows, here, earlier, max(settings.verify, ratio), found)
    elif ratio:
        one, other = sketches["n_ngrams"].to_numpy()[places], index.array("n_ngrams", np.int32, index.documents)[rows]
        found[np.minimum(one, other) / np.maximum(one, other) < ratio] = -1.0
    return found


EDGES = pa.schema([("one", pa.int64()), ("other", pa.int64())])
CLUSTERS = pa.schema([(DOCUMENT, pa.int64()), ("cluster", pa.int64())])
CHOSEN = pa.schema(
    {"section": pa.int64(), "cluster": pa.int64(), "kept": pa.int64(), "members": pa.int64(), "kept_id": pa.string()}
)

NEAR = pa.schema([*REMOVALS, *list(CHOSEN)[2:4]])
"""Schema of removals with the number of the kept document and the size of the cluster."""

PIECE = 1 << 24
"""Documents with their keys of one band in one partition, 16 bytes each."""
SECTION = 1 << 21
"""Documents of a section; a task holds id and sample of each that is in a cluster, about 200 bytes."""
TABLES = 1 << 24
"""Maximum number of pieces of rows in which the keys of all bands are sent at once."""
BANDS = 45


def remove_near_duplicates(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> Decided:
    """Keep one document of each cluster; ``earlier`` has the removals of each group by earlier datasets."""
    sections = sketched.merged(SECTION)
    every = range(sections.groups)
    clusters = Exchange(no_rows, _join, len(every), sketched.place("clusters"))
    if clusters.waiting():
        links = _link(settings, earlier, sketched, engine)
        for _ in engine.tasks(partial(_find_clusters, links, clusters), [sections]):
            for each in links:
                each.remove()
    compares = settings.verify is not None or settings.min_size_ratio is not None
    decide = _compare_members if compares else _choose
    decided, near = decide(settings, sketched, sections, clusters, engine)
    report = _report_large(settings, decided, near, engine)
    most = settings.max_cluster if report and settings.on_large_cluster == "keep" else None
    return Decided(partial(_read_removals, sketched, sections.starts, earlier, near, most), report)


def _choose(
    settings: Clustering, sketched: Sketched, sections: Sketched, clusters: Exchange, engine: Engine
) -> tuple[Exchange, Exchange]:
    every, count = range(sections.groups), sections.groups
    make, take = partial(_make_choices, settings, sections, clusters), partial(_take_choices, settings)
    choose = Exchange(make, take, count, sketched.place("choose"))
    engine.exchange(choose, every)
    make, take = partial(_split_choices, choose), partial(_take_near, sections, clusters)
    near = Exchange(make, take, count, sketched.place("near"))
    engine.exchange(near, every)
    return choose, near


def _compare_members(
    settings: Clustering, sketched: Sketched, sections: Sketched, clusters: Exchange, engine: Engine
) -> tuple[Exchange, Exchange]:
    partitions = sketched.groups
    make, take = partial(_make_members, sections, clusters, partitions), partial(_take_members, settings)
    compared = Exchange(make, take, partitions, sketched.place("compared"))
    engine.exchange(compared, range(sections.groups))
    by_document = partial(sections.split, compared, DOCUMENT)
    near = Exchange(by_document, _take_compared, sections.groups, sketched.place("near"))
    engine.exchange(near, range(partitions))
    return compared, near


def _link(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> list[Exchange]:
    groups, bands = sketched.groups, settings.bands
    pieces = -(-int(sketched.starts[-1]) // PIECE) or 1
    at_once = BANDS if groups * bands * pieces > TABLES else bands
    passes = [range(first, min(first + at_once, bands)) for first in range(0, bands, at_once)]
    tasks = [range(first, min(first + len(passes), groups)) for first in range(0, groups, len(passes))]
    links = []
    for some in passes:
        make = partial(_make_links, settings, sketched, earlier, pieces, some)
        links.append(Exchange(make, _take_links, len(some) * pieces, sketched.place(f"link-{some.start}")))
        engine.exchange(links[-1], tasks)
    return links


def _make_links(
    settings: Clustering, sketched: Sketched, earlier: Exchange, pieces: int, bands: range, groups: range
) -> Rows:
    """Send the distinct keys of some groups, each with its first document, and the links found among these groups."""
    chunks, found, row = list[pa.Array](), list[Longs](), 0
    for group in groups:
        keys = _keys_of(sketched.read(group, ["bands"]), settings.bands, bands)
        found.append(row + staying(keys, group, sketched, earlier))
        chunks += keys.chunks
        row += len(keys)
    places = np.concatenate(found)
    documents, parents = sketched.starts[groups.start] + places, np.arange(len(places), dtype=np.uint32)
    first_partition = 0
    for block in band_blocks(pa.chunked_array(chunks, pa.binary(8 * len(bands))), places, len(bands)):
        for keys in block:
            order = link_keys(keys, Conditions(), parents)
            if len(groups) == sketched.groups:
                continue  # the only task need not send keys
            ordered = keys[order]
            first = first_of_equal(ordered)
            once, having = ordered[first], documents[order[first]]
            ends = np.searchsorted(key_ranges(once, pieces), np.arange(pieces + 1))
            for piece in np.flatnonzero(np.diff(ends)).tolist():
                here = slice(ends[piece], ends[piece + 1])
                yield first_partition + piece, pa.table({"key": once[here], DOCUMENT: having[here]})
            first_partition += pieces
    find_roots(parents)
    gone = np.flatnonzero(parents != np.arange(len(parents)))
    if len(gone):
        yield groups.start % (len(bands) * pieces), pa.table([documents[gone], documents[parents[gone]]], schema=EDGES)


def _keys_of(tables: Tables, count: int, bands: range) -> pa.ChunkedArray:
    found = []
    for chunk in (chunk for table in tables for chunk in table["bands"].chunks):
        keys = fixed_rows(pc.cast(chunk, pa.binary(8 * count)))[:, 8 * bands.start : 8 * bands.stop]
        found.append(fixed_binary(np.ascontiguousarray(keys), pc.is_valid(chunk).to_numpy(zero_copy_only=False)))
    return pa.chunked_array(found, pa.binary(8 * len(bands)))


def _take_links(_: int, tables: Tables) -> pa.Table:
    """Return an edge from each document to the first with the same key, and the edges that were sent."""
    found = sorted(tables, key=lambda table: table[0 if table.schema.equals(EDGES) else 1][0].as_py())
    edges = [EDGES.empty_table(), *(table for table in found if table.schema.equals(EDGES))]
    # Tables are sorted by group, and documents are numbered by group: equal keys are in the order of their documents.
    sent = [table for table in found if not table.schema.equals(EDGES)]
    keys = np.concatenate([np.empty(0, np.uint64), *(table["key"].to_numpy() for table in sent)])
    documents = np.concatenate([np.empty(0, np.int64), *(table[DOCUMENT].to_numpy() for table in sent)])
    parents = np.arange(len(keys), dtype=np.uint32)
    link_keys(keys, Conditions(), parents)
    other = np.flatnonzero(documents != documents[parents])
    edges.append(pa.table([documents[other], documents[parents[other]]], schema=EDGES))
    return pa.concat_tables(edges).combine_chunks()


def _find_clusters(links: Sequence[Exchange], clusters: Exchange, sketched: Sketched) -> None:
    documents = int(sketched.starts[-1])
    parents: npt.NDArray[Any] = np.arange(documents, dtype=np.uint32 if documents < 1 << 32 else np.int64)
    for edges in (each.read(partition) for each in links for partition in range(each.partitions)):
        link_edges(edges["one"].to_numpy(), edges["other"].to_numpy(), parents)
    find_roots(parents)
    inside, sections = np.zeros(documents, bool), [*zip(sketched.starts[:-1], sketched.starts[1:], strict=True)]
    for start, stop in sections:
        others = start + np.flatnonzero(parents[start:stop] != np.arange(start, stop))
        inside[others] = inside[parents[others]] = True
    for section, (start, stop) in enumerate(sections):
        here = start + np.flatnonzero(inside[start:stop])
        clusters.write(section, [pa.table([here, parents[here].astype(np.int64)], schema=CLUSTERS)])


def _join(_: int, tables: Tables) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _make_choices(settings: Clustering, sections: Sketched, clusters: Exchange, section: int) -> Rows:
    members = clusters.read(section)
    columns = ["id", "sample", *(["length"] if settings.keep == "longest" else [])]
    waiting = list(_members_of(sections, members, section, columns))
    if not waiting:
        return
    here = pa.concat_tables(waiting)
    best, counts = _best_of_clusters(with_rank(here, settings), settings)
    best = best.append_column("members", pa.array(counts)).append_column("section", pa.repeat(section, len(best)))
    yield from cut(best, best["cluster"].to_numpy() % sections.groups)


def _members_of(sections: Sketched, members: pa.Table, section: int, columns: Sequence[str] | None) -> Tables:
    """Yield the sketches of a section's documents that are in clusters (``CLUSTERS``), with these columns."""
    numbers, start = members[DOCUMENT].to_numpy(), sections.starts[section]
    for table in sections.read(section, columns) if len(numbers) else ():
        here = slice(*np.searchsorted(numbers, [start, start + table.num_rows]))
        if here.start < here.stop:
            found = table.take(numbers[here] - start).append_column("cluster", members["cluster"][here])
            yield found.append_column(DOCUMENT, members[DOCUMENT][here])
        start += table.num_rows


def _best_of_clusters(ranked: pa.Table, settings: Clustering) -> tuple[pa.Table, Longs]:
    order = pc.sort_indices(ranked, sort_keys=[("cluster", "ascending"), *PREFERENCE[settings.keep]]).to_numpy()
    starts = np.flatnonzero(first_of_equal(ranked["cluster"].to_numpy()[order]))
    return ranked.take(order[starts]), np.diff(starts, append=len(order))


def _take_choices(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    found = list(tables)
    if not found:
        return CHOSEN.empty_table()
    sent = pa.concat_tables(found)
    best = _best_of_clusters(sent, settings)[0]
    clusters, counts = sent["cluster"].to_numpy(), sent["members"].to_numpy()
    places = np.searchsorted(best["cluster"].to_numpy(), clusters)
    members = np.bincount(places, counts, len(best)).astype(np.int64)[places]
    kept = best[DOCUMENT].take(places)
    # If the kept document is a section's only one of its cluster, nothing is removed there.
    leave = np.flatnonzero((counts > 1) | (sent[DOCUMENT].to_numpy() != kept.to_numpy()))
    columns = [sent["section"], clusters, kept, members, best["id"].take(places)]
    chosen = pa.table(columns, schema=CHOSEN).append_column("sample", best["sample"].take(places)).take(leave)
    return chosen.sort_by([("section", "ascending"), ("cluster", "ascending")]).combine_chunks()


def _split_choices(choose: Exchange, partition: int) -> Rows:
    rows = choose.read(partition)
    return cut(rows, rows["section"].to_numpy())


def _make_members(sections: Sketched, clusters: Exchange, partitions: int, section: int) -> Rows:
    for rows in batches(_members_of(sections, clusters.read(section), section, None)):
        yield from cut(rows.drop_columns(["cluster"]), rows["cluster"].to_numpy() % partitions)


def _take_members(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    # Each table has documents of one section, in reading order.
    found = sorted(tables, key=lambda table: table[DOCUMENT][0].as_py())
    if not found:
        return NEAR.empty_table()
    sketches = pa.concat_tables(found)
    removed, kept, values = near_duplicates(sketches, settings)
    _, clusters, counts = np.unique(kept, return_inverse=True, return_counts=True)
    ids, documents = sketches["id"], sketches[DOCUMENT]
    removals = removal_table(take_ids(ids, removed), "near_duplicate", take_ids(ids, kept), values, settings.verify)
    columns = [documents.take(removed), *removals.columns, documents.take(kept), pa.array(counts[clusters] + 1)]
    return pa.table(columns, schema=NEAR).sort_by(DOCUMENT).combine_chunks()


def _take_compared(_: int, tables: Tables) -> pa.Table:
    return pa.concat_tables([NEAR.empty_table(), *tables]).sort_by(DOCUMENT).combine_chunks()


def _take_near(sections: Sketched, clusters: Exchange, section: int, tables: Tables) -> pa.Table:
    found = list(tables)
    if not found:
        return NEAR.empty_table()
    chosen = pa.concat_tables(found).sort_by("cluster")
    here = pa.concat_tables(_members_of(sections, clusters.read(section), section, ["id", "sample"]))
    known, wanted = chosen["cluster"].to_numpy(), here["cluster"].to_numpy()
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    leave = np.flatnonzero((known[places] == wanted) & (here[DOCUMENT].to_numpy() != chosen["kept"].to_numpy()[places]))
    places = places[leave]
    values = estimate_pairs(here["sample"], leave, chosen["sample"], places)
    removals = removal_table(here["id"].take(leave), "near_duplicate", chosen["kept_id"].take(places), values)
    about = [chosen[name].take(places) for name in ("kept", "members")]
    return pa.table([here[DOCUMENT].take(leave), *removals.columns, *about], schema=NEAR).combine_chunks()


def _report_large(settings: Clustering, decided: Exchange, near: Exchange, engine: Engine) -> tuple[str, ...]:
    """Warn of large clusters, or raise StageError; of several largest ones, the first is named."""
    if settings.max_cluster is None:
        return ()
    found = list(engine.tasks(partial(_largest, decided, settings.max_cluster), range(decided.partitions)))
    if not (clusters := sum(count for count, _, _ in found)):
        return ()
    _, members, kept = min(found, key=lambda one: (-one[1], one[2]))
    similar = list(engine.tasks(partial(_similar_to, near, kept), range(near.partitions)))
    name = next(name for name, _ in similar if name is not None)
    median = np.median(np.concatenate([values for _, values in similar]))
    message = (
        f"{settings.stage} found {clusters:,} cluster(s) of more than max_cluster={settings.max_cluster:,} "
        f"documents; the largest has {members:,} around {name!r}, with a median similarity of {median:.2f} to it"
    )
    if settings.on_large_cluster == "error":
        raise StageError(f"{message}: compare with verify=0.8, or raise max_cluster, or set on_large_cluster to 'warn'")
    outcome = "all are kept" if settings.on_large_cluster == "keep" else "all but one of each are removed"
    warn_user(f"{message}; {outcome}")
    return (f"{message}; {outcome}",)


def _largest(decided: Exchange, most: int, partition: int) -> tuple[int, int, int]:
    """Return the number of clusters with more than ``most`` documents, and size and kept document of the largest."""
    rows = decided.read(partition)
    rows = rows.filter(pc.greater(rows["members"], most))
    if not rows.num_rows:
        return 0, 0, 0
    largest = rows.sort_by([("members", "descending"), ("kept", "ascending")])
    return pc.count_distinct(rows["kept"]).as_py(), largest["members"][0].as_py(), largest["kept"][0].as_py()


def _similar_to(near: Exchange, kept: int, group: int) -> tuple[str | None, npt.NDArray[np.float64]]:
    removals = near.read(group)
    removals = removals.filter(pc.equal(removals["kept"], kept))
    return (removals["kept_id"][0].as_py() if removals.num_rows else None), removals["value"].to_numpy()


def _read_removals(
    sketched: Sketched, sections: Longs, earlier: Exchange, near: Exchange, most: int | None, group: int
) -> pa.Table:
    """Return the removals of a group, which is in one section; with ``most``, larger clusters are kept whole."""
    start, stop = sketched.starts[group : group + 2]
    if start == stop:
        return REMOVALS.empty_table()
    removals = near.read(int(np.searchsorted(sections, start, "right")) - 1)
    first, last = np.searchsorted(removals[DOCUMENT].to_numpy(), [start, stop])
    removals = removals.slice(first, last - first)
    if most is not None:
        removals = removals.filter(pc.less_equal(removals["members"], most))
    return pa.concat_tables([earlier.read(group), removals.select(REMOVALS.names)]).sort_by(DOCUMENT)
