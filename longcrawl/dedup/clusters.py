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

Documents are numbers here, in groups (G of them) that are small enough for a task. Once keys have met, groups are
merged to sections of two million documents (S of them): pieces of rows are sent from each task to each partition, so
that small groups would send very many of very few rows.

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
                                 where pairs are compared: in place of
                                 choose
========  =====================  =========================================  ======================================

Documents of a task that share a key are linked before the key is sent, with the first of them alone: a key, or a
cluster, of a million equal documents is as many rows as there are tasks. With ``verify`` or ``min_size_ratio`` alone,
the sketches of all documents that bands link to one cluster are in memory together.

Many bands of many documents would be too many pieces of too few rows. Beyond ``TABLES`` of them, ``BANDS`` bands at a
time meet in a pass, of so many groups that a task holds as many keys as with all bands of one group.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.sketched import DOCUMENT, Decided, Sketched, cut, key_ranges, no_rows, take_each
from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.dedup import _cluster_kernels as kernels
from longcrawl.dedup._cluster_kernels import Conditions, Ngrams, find_roots, link_edges
from longcrawl.dedup.clustering import Clustering
from longcrawl.dedup.earlier import staying
from longcrawl.dedup.index import REMOVALS, Arrays, Index, removal_table, take_ids
from longcrawl.engines.base import Engine, Exchange
from longcrawl.errors import CorruptionError, StageError, warn_user
from longcrawl.kernels.texts import fixed_binary, fixed_rows
from longcrawl.ledger.reasons import number_rule

Longs = npt.NDArray[np.int64]
Tables = Iterator[pa.Table]
Rows = Iterator[tuple[int, pa.Table]]
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
    find_roots(parents)
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


EDGES = pa.schema([("one", pa.int64()), ("other", pa.int64())])
CLUSTERS = pa.schema([(DOCUMENT, pa.int64()), ("cluster", pa.int64())])
CHOSEN = pa.schema(
    {"section": pa.int64(), "cluster": pa.int64(), "kept": pa.int64(), "members": pa.int64(), "kept_id": pa.string()}
)
"""The document that is kept of a cluster, which has so many members, some of them in a section; and its sample."""

NEAR = pa.schema([*REMOVALS, *list(CHOSEN)[2:4]])
"""Removals with the number of the kept document, and the size of the cluster."""

PIECE = 1 << 24
"""Documents whose keys of one band are in one partition, 16 bytes each."""
SENT = 64 << 20
"""Bytes of sketches that are cut into partitions together."""
SECTION = 1 << 21
"""Documents of which a task holds id and sample of those in clusters: some 200 bytes each."""
TABLES = 1 << 24
"""Pieces of rows that the keys of all bands may be sent in."""
BANDS = 45
"""How many meet in one pass where that would be more pieces."""


def remove_near_duplicates(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> Decided:
    """Keep one of all documents that bands link.

    Args:
        settings: what decides.
        earlier: removals of documents that earlier datasets have, of each group.
        sketched: see :meth:`longcrawl.dedup.MinHash.sketch`.
        engine: what carries it out.

    Raises:
        StageError: a cluster is too large under ``on_large_cluster`` "error".
    """
    compares = settings.verify is not None or settings.min_size_ratio is not None
    if compares and sketched.groups == 1:
        alone = Exchange(no_rows, partial(_compare_alone, settings, sketched, earlier), 1, sketched.place("compared"))
        take_each(alone, engine)
        return _decided(settings, sketched, sketched, earlier, (alone, alone), engine)
    sections = sketched.merged(SECTION)
    every = range(sections.groups)
    clusters = Exchange(no_rows, _join, len(every), sketched.place("clusters"))
    if clusters.waiting():
        links = _link(settings, earlier, sketched, engine)
        for _ in engine.tasks(partial(_find_clusters, links, clusters), [sections]):
            for each in links:
                each.remove()
    decide = _compare_members if compares else _choose
    decided = decide(settings, sketched, sections, clusters, engine)
    return _decided(settings, sketched, sections, earlier, decided, engine)


def _decided(
    settings: Clustering,
    sketched: Sketched,
    sections: Sketched,
    earlier: Exchange,
    steps: tuple[Exchange, Exchange],
    engine: Engine,
) -> Decided:
    """Report large clusters, and return removals by group; ``steps`` have them by cluster and by section."""
    decided, near = steps
    report = _report_large(settings, decided, near, engine)
    most = settings.max_cluster if report and settings.on_large_cluster == "keep" else None
    return Decided(partial(_read_removals, sketched, sections.starts, earlier, near, most), report)


def _choose(
    settings: Clustering, sketched: Sketched, sections: Sketched, clusters: Exchange, engine: Engine
) -> tuple[Exchange, Exchange]:
    """Keep one of each cluster; return which, cluster by cluster, and the removals by document."""
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
    """Compare the documents of each cluster by their sketches; return the removals cluster by cluster, and by document.

    Documents that ``verify`` or ``min_size_ratio`` link share a band key, so they are in one cluster of those that
    bands alone link. All sketches of such a cluster are in memory together.
    """
    partitions = sketched.groups
    make, take = partial(_make_members, sections, clusters, partitions), partial(_take_members, settings)
    compared = Exchange(make, take, partitions, sketched.place("compared"))
    engine.exchange(compared, range(sections.groups))
    by_document = partial(sections.split, compared, DOCUMENT)
    near = Exchange(by_document, _take_compared, sections.groups, sketched.place("near"))
    engine.exchange(near, range(partitions))
    return compared, near


def _link(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> list[Exchange]:
    """Link documents that share a key, in one pass or, where there are very many keys, in several."""
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
    """Send the keys of some groups, each with the first document that has it, and which documents are linked there."""
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
                continue  # no other task has keys that these could meet
            ordered = keys[order]
            first = _first_of_equal(ordered)
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
    """Return the keys that documents have of some of all bands: binary of 8 bytes each."""
    found = []
    for chunk in (chunk for table in tables for chunk in table["bands"].chunks):
        keys = fixed_rows(pc.cast(chunk, pa.binary(8 * count)))[:, 8 * bands.start : 8 * bands.stop]
        found.append(fixed_binary(np.ascontiguousarray(keys), pc.is_valid(chunk).to_numpy(zero_copy_only=False)))
    return pa.chunked_array(found, pa.binary(8 * len(bands)))


def _first_of_equal(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values differ from the one before them."""
    differ = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=differ[1:])
    return differ


def _take_links(_: int, tables: Tables) -> pa.Table:
    """Return an edge from each document to the first that has the same key, and the edges that came."""
    found = sorted(tables, key=lambda table: table[0 if table.schema.equals(EDGES) else 1][0].as_py())
    edges = [EDGES.empty_table(), *(table for table in found if table.schema.equals(EDGES))]
    # By their groups, in the order of which documents are numbered: equal keys are in the order of their documents.
    sent = [table for table in found if not table.schema.equals(EDGES)]
    keys = np.concatenate([np.empty(0, np.uint64), *(table["key"].to_numpy() for table in sent)])
    documents = np.concatenate([np.empty(0, np.int64), *(table[DOCUMENT].to_numpy() for table in sent)])
    parents = np.arange(len(keys), dtype=np.uint32)
    link_keys(keys, Conditions(), parents)
    other = np.flatnonzero(documents != documents[parents])
    edges.append(pa.table([documents[other], documents[parents[other]]], schema=EDGES))
    return pa.concat_tables(edges).combine_chunks()


def _find_clusters(links: Sequence[Exchange], clusters: Exchange, sketched: Sketched) -> None:
    """Join all edges, and write for each section which of its documents are in a cluster with others."""
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
    """Send of each cluster the document that would be kept of those in a section, and their number."""
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
    """Return the sketches of the documents of a section that are in clusters (``CLUSTERS``), with these columns."""
    numbers, start = members[DOCUMENT].to_numpy(), sections.starts[section]
    for table in sections.read(section, columns) if len(numbers) else ():
        here = slice(*np.searchsorted(numbers, [start, start + table.num_rows]))
        if here.start < here.stop:
            found = table.take(numbers[here] - start).append_column("cluster", members["cluster"][here])
            yield found.append_column(DOCUMENT, members[DOCUMENT][here])
        start += table.num_rows


def _best_of_clusters(ranked: pa.Table, settings: Clustering) -> tuple[pa.Table, Longs]:
    """Return the row of each cluster that is to be kept before the others, and how many rows the cluster has."""
    order = pc.sort_indices(ranked, sort_keys=[("cluster", "ascending"), *PREFERENCE[settings.keep]]).to_numpy()
    starts = np.flatnonzero(_first_of_equal(ranked["cluster"].to_numpy()[order]))
    return ranked.take(order[starts]), np.diff(starts, append=len(order))


def _take_choices(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    """Choose the document of each cluster that is kept (``CHOSEN``), section by section."""
    found = list(tables)
    if not found:
        return CHOSEN.empty_table()
    sent = pa.concat_tables(found)
    best = _best_of_clusters(sent, settings)[0]
    clusters, counts = sent["cluster"].to_numpy(), sent["members"].to_numpy()
    places = np.searchsorted(best["cluster"].to_numpy(), clusters)
    members = np.bincount(places, counts, len(best)).astype(np.int64)[places]
    kept = best[DOCUMENT].take(places)
    # Where a section has no other document of a cluster than the one that is kept, none leaves.
    leave = np.flatnonzero((counts > 1) | (sent[DOCUMENT].to_numpy() != kept.to_numpy()))
    columns = [sent["section"], clusters, kept, members, best["id"].take(places)]
    chosen = pa.table(columns, schema=CHOSEN).append_column("sample", best["sample"].take(places)).take(leave)
    return chosen.sort_by([("section", "ascending"), ("cluster", "ascending")]).combine_chunks()


def _split_choices(choose: Exchange, partition: int) -> Rows:
    rows = choose.read(partition)
    return cut(rows, rows["section"].to_numpy())


def _make_members(sections: Sketched, clusters: Exchange, partitions: int, section: int) -> Rows:
    """Send the sketches of documents that are in clusters, cluster by cluster."""
    waiting = list[pa.Table]()
    for found in _members_of(sections, clusters.read(section), section, None):
        waiting.append(found)
        if sum(each.nbytes for each in waiting) > SENT:
            yield from _cut_members(waiting, partitions)
            waiting.clear()
    if waiting:
        yield from _cut_members(waiting, partitions)


def _cut_members(found: Sequence[pa.Table], partitions: int) -> Rows:
    rows = pa.concat_tables(found)
    return cut(rows.drop_columns(["cluster"]), rows["cluster"].to_numpy() % partitions)


def _compare_alone(settings: Clustering, sketched: Sketched, earlier: Exchange, group: int, _: Tables) -> pa.Table:
    """Decide about the only group, whose sketches are in memory together anyway (``NEAR``)."""
    sketches = sketched.table(group)
    left_out = np.ones(len(sketches), np.bool_)
    left_out[staying(sketches["bands"], group, sketched, earlier)] = False
    return _compare(sketches.append_column(DOCUMENT, pa.array(np.arange(len(sketches)))), settings, left_out)


def _take_members(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    """Decide about the documents of some clusters as with all of them in one process (``COMPARED``)."""
    # Each table has documents of one section, in reading order.
    found = sorted(tables, key=lambda table: table[DOCUMENT][0].as_py())
    if not found:
        return NEAR.empty_table()
    return _compare(pa.concat_tables(found), settings)


def _compare(sketches: pa.Table, settings: Clustering, left_out: npt.NDArray[np.bool_] | None = None) -> pa.Table:
    removed, kept, values = near_duplicates(sketches, settings, left_out)
    _, clusters, counts = np.unique(kept, return_inverse=True, return_counts=True)
    ids, documents = sketches["id"], sketches[DOCUMENT]
    removals = removal_table(take_ids(ids, removed), "near_duplicate", take_ids(ids, kept), values, settings.verify)
    columns = [documents.take(removed), *removals.columns, documents.take(kept), pa.array(counts[clusters] + 1)]
    return pa.table(columns, schema=NEAR).sort_by(DOCUMENT).combine_chunks()


def _take_compared(_: int, tables: Tables) -> pa.Table:
    return pa.concat_tables([NEAR.empty_table(), *tables]).sort_by(DOCUMENT).combine_chunks()


def _take_near(sections: Sketched, clusters: Exchange, section: int, tables: Tables) -> pa.Table:
    """Return the removals of a section (``NEAR``)."""
    found = list(tables)
    if not found:
        return NEAR.empty_table()
    chosen = pa.concat_tables(found).sort_by("cluster")
    here = pa.concat_tables(_members_of(sections, clusters.read(section), section, ["id", "sample"]))
    known, wanted = chosen["cluster"].to_numpy(), here["cluster"].to_numpy()
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    leave = np.flatnonzero((known[places] == wanted) & (here[DOCUMENT].to_numpy() != chosen["kept"].to_numpy()[places]))
    places = places[leave]
    values = estimate_pairs(here["sample"], leave, lambda some: sample_bytes(chosen["sample"].take(places[some])))
    removals = removal_table(here["id"].take(leave), "near_duplicate", chosen["kept_id"].take(places), values)
    about = [chosen[name].take(places) for name in ("kept", "members")]
    return pa.table([here[DOCUMENT].take(leave), *removals.columns, *about], schema=NEAR).combine_chunks()


def _report_large(settings: Clustering, decided: Exchange, near: Exchange, engine: Engine) -> tuple[str, ...]:
    """Report clusters that are too large; the largest is the first of its size by the number of the kept document."""
    if settings.max_cluster is None:
        return ()
    found = list(engine.tasks(partial(_largest, decided, settings.max_cluster), range(decided.partitions)))
    if not (clusters := sum(count for count, _, _ in found)):
        return ()
    _, members, kept = min(found, key=lambda one: (-one[1], one[2]))
    similar = list(engine.tasks(partial(_similar_to, near, kept), range(near.partitions)))
    name = next(name for name, _ in similar if name is not None)
    median = float(np.median(np.concatenate([values for _, values in similar])))
    return (report_large(clusters, members, name, median, settings),)


def _largest(decided: Exchange, most: int, partition: int) -> tuple[int, int, int]:
    """Return how many clusters have more than ``most`` documents, the size of the largest and its kept document."""
    rows = decided.read(partition)
    rows = rows.filter(pc.greater(rows["members"], most))
    if not rows.num_rows:
        return 0, 0, 0
    largest = rows.sort_by([("members", "descending"), ("kept", "ascending")])
    return pc.count_distinct(rows["kept"]).as_py(), largest["members"][0].as_py(), largest["kept"][0].as_py()


def _similar_to(near: Exchange, kept: int, group: int) -> tuple[str | None, npt.NDArray[np.float64]]:
    """Return the id of a kept document, and how similar to it those are that leave a group for it."""
    removals = near.read(group)
    removals = removals.filter(pc.equal(removals["kept"], kept))
    return (removals["kept_id"][0].as_py() if removals.num_rows else None), removals["value"].to_numpy()


def _read_removals(
    sketched: Sketched, sections: Longs, earlier: Exchange, near: Exchange, most: int | None, group: int
) -> pa.Table:
    """Return the removals of a group, which is in one section; with ``most``, clusters of more documents stay."""
    start, stop = sketched.starts[group : group + 2]
    if start == stop:
        return REMOVALS.empty_table()
    removals = near.read(int(np.searchsorted(sections, start, "right")) - 1)
    first, last = np.searchsorted(removals[DOCUMENT].to_numpy(), [start, stop])
    removals = removals.slice(first, last - first)
    if most is not None:
        removals = removals.filter(pc.less_equal(removals["members"], most))
    return pa.concat_tables([earlier.read(group), removals.select(REMOVALS.names)]).sort_by(DOCUMENT)
