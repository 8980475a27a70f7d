"""Near-duplicates out of band keys: those of documents that earlier datasets have kept, and clusters among the rest.

Band after band, keys are sorted and documents with an equal key are linked: all of them, or with ``verify`` those pairs
whose n-grams are similar. Pairs that are in one cluster already are not compared, and equal sets of n-grams only once.
In memory are a few bands at a time, and a few numbers per document.

An index of MinHash (:mod:`longcrawl.dedup.index`) has, beside the keys of every band,

* ``sample.npy``, uint8 (documents, up to 128): what similarities are estimated from;
* ``n_ngrams.npy``, int32 (documents,): what sizes are compared by; published signatures do not say it;
* with ``verify``, ``ngrams.npy``, uint32, 4 bytes per n-gram, and ``ngram_ends.npy``, int64 (documents + 1,).

Bands are searched one by one in mapped files, so that memory does not grow with the index. A document leaves with the
first band in which an earlier one has its key and fulfils the conditions; of several there, the first is named. The
rule is ``near_duplicate_of_earlier``; with several indexes ``near_duplicate_of_earlier_2`` for one found in the second,
and so on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.sketched import DOCUMENT
from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.dedup import _cluster_kernels as kernels
from longcrawl.dedup._cluster_kernels import Conditions, Ngrams
from longcrawl.dedup.index import Arrays, Index, removal_table, take_ids
from longcrawl.dedup.signatures import Clustering
from longcrawl.errors import CorruptionError, StageError, warn_user
from longcrawl.kernels.texts import fixed_rows
from longcrawl.ledger.reasons import number_rule

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Similarities = npt.NDArray[np.float64]

BLOCK = 1 << 28
"""Bytes of band keys that are looked at together."""

REFUSED = 1 << 22
"""How many pairs that were found unlike are remembered, 8 bytes each: those that share a band mostly share others."""

PAIRS = 1 << 16
"""Pairs whose similarity is estimated together."""

MOST_MATCHES = 64
"""With how many earlier documents of one band key another is compared at most."""


def near_duplicates(
    sketches: pa.Table, settings: Clustering, left_out: npt.NDArray[np.bool_] | None = None
) -> tuple[Longs, Longs, Similarities]:
    """Compare pairs of documents; return the places of those to remove, the kept one of each, and their similarity.

    The similarity is that of their n-grams if ``verify`` is set, else estimated from ``sample``.

    Args:
        sketches: in reading order, ``id``; ``bands``, 8 bytes per band, null for a document that is not compared;
            ``sample``, one byte per hash value; ``length`` to keep the longest; ``n_ngrams`` for a size ratio;
            ``ngrams`` to verify.
        settings: what decides.
        left_out: bool [documents], which of them take no part, since they are removed already.
    """
    order = _preference(sketches, settings)
    order = order[pc.is_valid(sketches["bands"]).to_numpy()[order]]
    if left_out is not None:
        order = order[~left_out[order]]
    roots = link_documents(sketches["bands"], order, settings, _conditions(sketches, order, settings))
    if settings.verify is not None:
        in_clusters = np.bincount(roots, minlength=len(roots))[roots] > 1
        return _verified(sketches, order[in_clusters], settings, settings.verify)
    gone = np.flatnonzero(roots != np.arange(len(roots)))
    removed, kept = order[gone], order[roots[gone]]
    samples = sketches["sample"]
    return removed, kept, estimate_pairs(samples, removed, lambda some: sample_bytes(samples.take(kept[some])))


def _preference(sketches: pa.Table, settings: Clustering) -> Longs:
    """Return the places of all documents, that to be kept before that to be removed."""
    numbered = sketches.select(["id"] + ["length"] * (settings.keep == "longest"))
    ranked = with_rank(numbered.append_column(DOCUMENT, pa.array(np.arange(len(sketches)))), settings)
    found: Longs = pc.sort_indices(ranked, sort_keys=PREFERENCE[settings.keep]).to_numpy().astype(np.int64)
    return found


PREFERENCE = {
    "random": [("rank", "ascending"), ("id", "ascending")],
    "longest": [("length", "descending"), ("id", "ascending")],
    "first": [(DOCUMENT, "ascending")],
}
"""Sort keys that put the document to keep first; ids decide ties, since only "first" depends on the order."""


def with_rank(documents: pa.Table, settings: Clustering) -> pa.Table:
    """Add the column ``rank`` of ``PREFERENCE`` if documents are kept at random."""
    if settings.keep != "random":
        return documents
    ranks = keyed_hash(documents["id"].to_pylist(), settings.stage, settings.seed)
    return documents.append_column("rank", pa.array(ranks))


def _conditions(sketches: pa.Table, order: Longs, settings: Clustering) -> Conditions:
    """Return what holds before any n-grams are compared."""
    if settings.min_size_ratio is None:
        return Conditions()
    return Conditions(settings.min_size_ratio, sketches["n_ngrams"].to_numpy().astype(np.int32)[order])


def _with_similarity(sketches: pa.Table, order: Longs, conditions: Conditions, least: float) -> Conditions:
    """Add that n-grams must be similar."""
    ngrams = _ngrams_of(sketches["ngrams"], order)
    hashed, ranks = np.empty(len(order), np.uint64), np.empty(len(order), np.int64)
    kernels.hash_sets(ngrams, hashed)
    refused = np.zeros(REFUSED, np.uint64)
    made = conditions._replace(similarity=least, ngrams=ngrams, ranks=ranks, refused=refused)
    kernels.rank_sets(np.lexsort((hashed, ngrams.stops - ngrams.starts)), hashed, made)
    return made


def link_documents(bands: pa.ChunkedArray, order: Longs, settings: Clustering, conditions: Conditions) -> Longs:
    """Link documents, numbered by their place in ``order``; return the number of the root of each."""
    parents = np.arange(len(order), dtype=np.uint32)
    for keys in band_blocks(bands, order, settings.bands):
        for band in keys:
            link_keys(band, conditions, parents)
    kernels.find_roots(parents)
    return parents.astype(np.int64)


def link_keys(keys: Wide, conditions: Conditions, parents: Numbers) -> Longs:
    """Link the documents that share a key of a band; return them in the order of their keys' upper 32 bits or more.

    Documents with equal keys are in the order of their numbers. Other keys with the same upper bits may be among them.
    """
    bits = max(len(keys) - 1, 1).bit_length()
    packed = np.empty(len(keys), np.uint64)
    kernels.pack_keys(keys, bits, packed)
    packed.sort()
    kernels.link_band(packed, bits, keys, conditions, parents)
    packed &= np.uint64((1 << bits) - 1)
    return packed.view(np.int64)


def band_blocks(bands: pa.ChunkedArray, order: Longs, count: int) -> Iterator[Wide]:
    """Return the keys of all bands, some bands at a time: uint64 [bands, documents]."""
    numbers = np.full(len(bands), -1, np.int64)
    numbers[order] = np.arange(len(order))
    at_once = min(count, max(1, BLOCK // max(8 * len(order), 1)))
    block = np.empty((at_once, len(order)), np.uint64)
    for first in range(0, count, at_once):
        keys = block[: min(at_once, count - first)]
        row = 0
        for chunk in bands.chunks:
            numbered = fixed_rows(pc.cast(chunk, pa.binary(8 * count))).view(np.uint64)
            kernels.gather_keys(numbered, numbers[row : row + len(chunk)], first, keys)
            row += len(chunk)
        yield keys


def _verified(
    sketches: pa.Table, order: Longs, settings: Clustering, least: float
) -> tuple[Longs, Longs, Similarities]:
    """Link documents that are similar; return those to remove, the kept one of each, and their similarity."""
    conditions = _with_similarity(sketches, order, _conditions(sketches, order, settings), least)
    kept = link_documents(sketches["bands"], order, settings, conditions)
    if settings.linkage == "star":
        members = np.argsort(kept, kind="stable")
        edges = np.flatnonzero(np.diff(kept[members], prepend=-1, append=-1))
        chosen = np.empty_like(members)
        kernels.choose_kept(members, edges, conditions, chosen)
        kept[members] = chosen
    gone = np.flatnonzero(kept != np.arange(len(kept)))
    similarities = np.empty(len(gone))
    kernels.measure_pairs(gone, kept[gone], conditions.ngrams, conditions.ngrams, 0.0, similarities)
    return order[gone], order[kept[gone]], similarities


def _ngrams_of(column: pa.ChunkedArray, order: Longs) -> Ngrams:
    """Return the n-grams of some documents, numbered by ``order``."""
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


def estimate_pairs(
    samples: pa.ChunkedArray, places: Longs, others: Callable[[slice], npt.NDArray[np.uint8]]
) -> Similarities:
    """Estimate the similarity of the documents at some places, each to another one, some pairs at a time.

    Args:
        samples: one per document.
        places: int64 [pairs], the document of each pair.
        others: returns the samples of the other documents of some of the pairs, uint8 [pairs, width].
    """
    found = np.empty(len(places))
    for first in range(0, len(places), PAIRS):
        some = slice(first, first + PAIRS)
        found[some] = estimate(sample_bytes(samples.take(places[some])), others(some))
    return found


def estimate(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> Similarities:
    """Estimate the similarity of pairs from samples, uint8 [pairs, width]; 1 byte in 256 agrees by chance."""
    agree = np.count_nonzero(one == other, axis=1) / one.shape[1]
    similarities: Similarities = np.maximum((agree - 1 / 256) / (1 - 1 / 256), 0.0)
    return similarities


def sample_bytes(samples: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """Return samples as uint8 [documents, width]; without any, the width is 1."""
    if not len(samples):
        return np.zeros((0, 1), np.uint8)
    return np.concatenate([fixed_rows(chunk) for chunk in samples.chunks])


def report_large(clusters: int, members: int, name: str, similarity: float, settings: Clustering) -> str:
    """Warn of clusters that are too large, and return the warning.

    Raises:
        StageError: the policy is "error".
    """
    message = (
        f"{settings.stage} found {clusters:,} cluster(s) of more than max_cluster={settings.max_cluster:,} "
        f"documents; the largest has {members:,} around {name!r}, with a median similarity of {similarity:.2f} to it"
    )
    if settings.on_large_cluster == "error":
        raise StageError(f"{message}: compare with verify=0.8, or raise max_cluster, or set on_large_cluster to 'warn'")
    outcome = "they stay" if settings.on_large_cluster == "keep" else "all but one of each leave"
    warn_user(f"{message}; {outcome}")
    return f"{message}; {outcome}"


def index_arrays(known: pa.Table) -> Arrays:
    """Return what an index holds of documents, whose sketches are given, beside their keys."""
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
    """Return a row of ``REMOVAL_SCHEMA`` per document that an index has a near-duplicate of.

    Args:
        sketches: see :meth:`longcrawl.dedup.MinHash.sketch`.
        indexes: of the earlier datasets; the first that has one names it.
        settings: what decides.

    Returns:
        The removals, and which documents they are: bool [documents].
    """
    left = np.flatnonzero(pc.is_valid(sketches["bands"]).to_numpy())
    removals, gone = [REMOVAL_SCHEMA.empty_table()], np.zeros(len(sketches), np.bool_)
    for number, index in enumerate(indexes, 1):
        rows, values = _search(sketches, left, index, settings)
        found = np.flatnonzero(rows >= 0)
        removed, kept, similarities = left[found], rows[found], values[found]
        if settings.verify is None:
            similarities = _estimate(sketches["sample"], removed, index, kept)
        rule = number_rule("near_duplicate_of_earlier", number, len(indexes))
        ids = take_ids(sketches["id"], removed)
        removals.append(removal_table(ids, rule, index.ids(kept), similarities, settings.verify))
        gone[removed] = True
        left = left[rows < 0]
    return pa.concat_tables(removals), gone


def _search(sketches: pa.Table, left: Longs, index: Index, settings: Clustering) -> tuple[Longs, Similarities]:
    """Return for each document the earlier one that it duplicates, -1 for none, and where measured their similarity."""
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
    """Return the similarity of pairs that share a band key, or 1 if none is asked for; -1 if sizes rule it out."""
    ratio = settings.min_size_ratio or 0.0
    found = np.ones(len(places))
    if settings.verify is not None and len(places):
        documents, numbers = np.unique(places, return_inverse=True)
        ends = index.array("ngram_ends", np.int64, index.documents + 1)
        ngrams = index.array("ngrams", np.uint32, None)
        if not np.all((ends[rows] >= 0) & (ends[rows] <= ends[rows + 1]) & (ends[rows + 1] <= len(ngrams))):
            raise CorruptionError(f"{index.folder} names n-grams that it does not have; make the index again")
        earlier = Ngrams(ngrams, ends[:-1], ends[1:])
        here = _ngrams_of(sketches["ngrams"], documents)
        kernels.measure_pairs(numbers, rows, here, earlier, max(settings.verify, ratio), found)
    elif ratio:
        one, other = sketches["n_ngrams"].to_numpy()[places], index.array("n_ngrams", np.int32, index.documents)[rows]
        found[np.minimum(one, other) / np.maximum(one, other) < ratio] = -1.0
    return found


def _estimate(samples: pa.ChunkedArray, places: Longs, index: Index, rows: Longs) -> Similarities:
    earlier = index.array("sample", np.uint8, index.documents, None)
    return estimate_pairs(samples, places, lambda some: earlier[rows[some]])
