"""Clusters of near-duplicates out of band keys, and which document of each is kept.

Band after band, keys are sorted and documents with an equal key are linked: all of them, or with ``verify`` those pairs
whose n-grams are similar. Pairs that are in one cluster already are not compared, and equal sets of n-grams only once.
In memory are a few bands at a time, and a few numbers per document.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import reject_duplicate_ids
from longcrawl.core.surveys import with_report
from longcrawl.dedup._cluster_kernels import find_roots, gather_keys, link_band, pack_keys
from longcrawl.dedup._similarity_kernels import Conditions, Ngrams, choose_kept, hash_sets, measure_pairs, rank_sets
from longcrawl.dedup.index import removal_table, take_ids
from longcrawl.dedup.signatures import Clustering
from longcrawl.errors import StageError, warn_user
from longcrawl.kernels.texts import fixed_rows

__all__ = ["PAIRS", "band_blocks", "estimate", "estimate_pairs", "near_duplicates", "ngrams_of", "sample_bytes"]

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

BLOCK = 1 << 28
"""Bytes of band keys that are looked at together."""

REFUSED = 1 << 22
"""How many pairs that were found unlike are remembered, 8 bytes each: those that share a band mostly share others."""

PAIRS = 1 << 16
"""Pairs whose similarity is estimated together."""


def near_duplicates(
    sketches: pa.Table, settings: Clustering, left_out: npt.NDArray[np.bool_] | None = None
) -> pa.Table:
    """Return a row of ``REMOVAL_SCHEMA`` per document that has a kept near-duplicate.

    ``value`` is the similarity to the kept document: of their n-grams where ``verify`` is set, else estimated from
    ``sample``. ``threshold`` is ``verify``. Clusters that are too large are reported, see
    :func:`longcrawl.core.surveys.report_of`.

    Args:
        sketches: ``id``; ``bands``, 8 bytes per band, null for a document that is not compared; ``sample``, one byte
            per hash value; ``length`` to keep the longest; ``n_ngrams`` for a size ratio; ``ngrams`` to verify.
        settings: what decides.
        left_out: bool [documents], which of them take no part, since they left already.

    Raises:
        StageError: two documents have the same id, or a cluster is too large under ``on_large_cluster`` "error".

    """
    reject_duplicate_ids(sketches["id"], settings.stage)
    order = _preference(sketches, settings)
    order = order[pc.is_valid(sketches["bands"]).to_numpy()[order]]
    if left_out is not None:
        order = order[~left_out[order]]
    roots = _link(sketches["bands"], order, settings, _conditions(sketches, order, settings))
    if settings.verify is None:
        gone = np.flatnonzero(roots != np.arange(len(roots)))
        removed, kept = order[gone], order[roots[gone]]
        samples = sketches["sample"]
        values = estimate_pairs(samples, removed, lambda some: sample_bytes(samples.take(kept[some])))
    else:
        removed, kept, values = _verified(sketches, order[_in_clusters(roots)], settings, settings.verify)
    removed_ids, kept_ids = take_ids(sketches["id"], removed), take_ids(sketches["id"], kept)
    stays, warnings = _check_sizes(kept, kept_ids, values, settings)
    removals = removal_table(removed_ids, "near_duplicate", kept_ids, values, settings.verify)
    return with_report(removals.filter(~stays), warnings)


def _preference(sketches: pa.Table, settings: Clustering) -> Longs:
    """Return the places of all documents, that to be kept before that to be removed; ids decide where all else ties."""
    ranked, keys = sketches.select(["id"]), [("id", "ascending")]
    if settings.keep == "random":
        ranks = keyed_hash(sketches["id"].to_pylist(), settings.stage, settings.seed)
        ranked, keys = ranked.append_column("rank", pa.array(ranks)), [("rank", "ascending"), *keys]
    elif settings.keep == "longest":
        ranked, keys = ranked.append_column("length", sketches["length"]), [("length", "descending"), *keys]
    found: Longs = pc.sort_indices(ranked, sort_keys=keys).to_numpy().astype(np.int64)
    return found


def _conditions(sketches: pa.Table, order: Longs, settings: Clustering) -> Conditions:
    """Return what holds before any n-grams are compared."""
    if settings.min_size_ratio is None:
        return Conditions()
    return Conditions(settings.min_size_ratio, sketches["n_ngrams"].to_numpy().astype(np.int32)[order])


def _with_similarity(sketches: pa.Table, order: Longs, conditions: Conditions, least: float) -> Conditions:
    """Add that n-grams must be similar."""
    ngrams = ngrams_of(sketches["ngrams"], order)
    hashed, ranks = np.empty(len(order), np.uint64), np.empty(len(order), np.int64)
    hash_sets(ngrams, hashed)
    refused = np.zeros(REFUSED, np.uint64)
    made = conditions._replace(similarity=least, ngrams=ngrams, ranks=ranks, refused=refused)
    rank_sets(np.lexsort((hashed, ngrams.stops - ngrams.starts)), hashed, made)
    return made


def _link(bands: pa.ChunkedArray, order: Longs, settings: Clustering, conditions: Conditions) -> Longs:
    """Link documents, numbered by their place in ``order``; return the number of the root of each."""
    bits = max(len(order) - 1, 1).bit_length()
    parents, packed = np.arange(len(order), dtype=np.uint32), np.empty(len(order), np.uint64)
    for keys in band_blocks(bands, order, settings.bands):
        for band in keys:
            pack_keys(band, bits, packed)
            packed.sort()
            link_band(packed, bits, band, conditions, parents)
    find_roots(parents)
    return parents.astype(np.int64)


def _in_clusters(roots: Longs) -> npt.NDArray[np.bool_]:
    """Describe which documents are not alone."""
    return np.bincount(roots, minlength=len(roots))[roots] > 1


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
            gather_keys(numbered, numbers[row : row + len(chunk)], first, keys)
            row += len(chunk)
        yield keys


def _verified(
    sketches: pa.Table, order: Longs, settings: Clustering, least: float
) -> tuple[Longs, Longs, npt.NDArray[np.float64]]:
    """Link documents that are similar; return those to remove, the kept one of each, and their similarity."""
    conditions = _with_similarity(sketches, order, _conditions(sketches, order, settings), least)
    kept = _link(sketches["bands"], order, settings, conditions)
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


def ngrams_of(column: pa.ChunkedArray, order: Longs) -> Ngrams:
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
) -> npt.NDArray[np.float64]:
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


def estimate(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Estimate the similarity of pairs from samples, uint8 [pairs, width]; 1 byte in 256 agrees by chance."""
    agree = np.count_nonzero(one == other, axis=1) / one.shape[1]
    similarities: npt.NDArray[np.float64] = np.maximum((agree - 1 / 256) / (1 - 1 / 256), 0.0)
    return similarities


def sample_bytes(samples: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    """Return samples as uint8 [documents, width]; without any, the width is 1."""
    if not len(samples):
        return np.zeros((0, 1), np.uint8)
    return np.concatenate([fixed_rows(chunk) for chunk in samples.chunks])


def _check_sizes(
    kept: Longs, ids: pa.ChunkedArray, values: npt.NDArray[np.float64], settings: Clustering
) -> tuple[npt.NDArray[np.bool_], list[str]]:
    """Warn of clusters that are too large: which removals are undone for it, bool [removals], and the warning.

    Raises:
        StageError: there is one, under the policy "error".

    """
    stays = np.zeros(len(kept), np.bool_)
    if settings.max_cluster is None or not len(kept):
        return stays, []
    _, clusters, counts = np.unique(kept, return_inverse=True, return_counts=True)
    large = counts + 1 > settings.max_cluster
    if not large.any():
        return stays, []
    largest = clusters == counts.argmax()
    message = (
        f"{settings.stage} found {large.sum():,} cluster(s) of more than max_cluster={settings.max_cluster:,} "
        f"documents; the largest has {counts.max() + 1:,} around {ids[int(largest.argmax())].as_py()!r}, "
        f"with a median similarity of {np.median(values[largest]):.2f} to it"
    )
    if settings.on_large_cluster == "error":
        raise StageError(f"{message}: compare with verify=0.8, or raise max_cluster, or set on_large_cluster to 'warn'")
    outcome = "they stay" if settings.on_large_cluster == "keep" else "all but one of each leave"
    warn_user(f"{message}; {outcome}")
    return large[clusters] if settings.on_large_cluster == "keep" else stays, [f"{message}; {outcome}"]
