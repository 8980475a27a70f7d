"""Near-duplicates of documents that earlier datasets have kept.

An index of MinHash (:mod:`longcrawl.dedup.index`) has, beside the keys of every band,

* ``sample.npy``, uint8 (documents, up to 128): what similarities are estimated from;
* ``n_ngrams.npy``, int32 (documents,): what sizes are compared by; published signatures do not say it;
* with ``verify``, ``ngrams.npy``, uint32, 4 bytes per n-gram, and ``ngram_ends.npy``, int64 (documents + 1,).

Bands are searched one by one in mapped files, so that memory does not grow with the index. A document leaves with the
first band in which an earlier one has its key and fulfils the conditions; of several there, the first is named. The
rule is ``near_duplicate_of_earlier``; with several indexes ``near_duplicate_of_earlier_2`` for one found in the second,
and so on.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.dedup._similarity_kernels import Ngrams, measure_pairs
from longcrawl.dedup.clusters import band_blocks, estimate_pairs, ngrams_of, sample_bytes
from longcrawl.dedup.index import Index, removal_table, take_ids, write_index
from longcrawl.dedup.signatures import Clustering
from longcrawl.errors import CorruptionError
from longcrawl.ledger.reasons import number_rule

__all__ = ["near_duplicates_of_earlier", "save_sketches"]

Longs = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]

MOST_MATCHES = 64
"""With how many earlier documents of one band key another is compared at most."""


def save_sketches(folder: Path, stage: str, settings: Mapping[str, Any], kept: pa.Table, bands: int) -> None:
    """Write an index of documents; those without n-grams are in no cluster, and not in the index.

    Args:
        folder: where.
        stage: name of the stage.
        settings: what the keys depend on.
        kept: sketches, see :meth:`longcrawl.dedup.MinHash.sketch`.
        bands: how many.

    """
    known = kept.filter(pc.is_valid(kept["bands"]))
    more: dict[str, npt.NDArray[Any]] = {"sample": sample_bytes(known["sample"])}
    if "n_ngrams" in known.column_names:
        more["n_ngrams"] = known["n_ngrams"].to_numpy().astype(np.int32)
    if "ngrams" in known.column_names:
        more["ngrams"], _, stops = ngrams_of(known["ngrams"], np.arange(len(known)))
        more["ngram_ends"] = np.concatenate([np.zeros(1, np.int64), stops])
    blocks = band_blocks(known["bands"], np.arange(len(known)), bands)
    write_index(folder, stage, settings, known["id"], (keys[:, None] for block in blocks for keys in block), more)


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
        here = ngrams_of(sketches["ngrams"], documents)
        measure_pairs(numbers, rows, here, earlier, max(settings.verify, ratio), found)
    elif ratio:
        one, other = sketches["n_ngrams"].to_numpy()[places], index.array("n_ngrams", np.int32, index.documents)[rows]
        found[np.minimum(one, other) / np.maximum(one, other) < ratio] = -1.0
    return found


def _estimate(samples: pa.ChunkedArray, places: Longs, index: Index, rows: Longs) -> Similarities:
    earlier = index.array("sample", np.uint8, index.documents, None)
    return estimate_pairs(samples, places, lambda some: earlier[rows[some]])
