"""Near-duplicates among many tasks: what :mod:`longcrawl.dedup.clusters` decides with all sketches in one process.

Documents are numbers here, in groups (G of them) that are small enough for a task.

========  ==========================  ===================================  ========================================
step      tasks > partitions          rows that meet                       a partition becomes
========  ==========================  ===================================  ========================================
link      G > bands x pieces, by key  16 bytes of each key of each group   edges between documents
                                      and band
clusters  1                           none: it reads all edges, and holds  the cluster of each document of a group
                                      4 bytes a document (8 beyond 2**32)  that is in one with others
choose    G > G, by cluster           id and rank of each such document    the documents that leave, each with the
                                                                           one that is kept
kept      G > G, by kept document     these pairs                          with id and sample of the kept document
near      G > G, by removed document  these                                removals of a group
========  ==========================  ===================================  ========================================

Equal keys of one group are linked before they are sent, and are one row. So a frequent key has one row of each group:
a million equal documents are as many rows as there are groups. A document that is linked in its group is sent as the
first of its cluster there.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sketched import DOCUMENT, Decided, Sketched, no_rows
from longcrawl.dedup._cluster_kernels import Conditions, find_roots, link_edges
from longcrawl.dedup.clusters import (
    PREFERENCE,
    band_blocks,
    estimate_pairs,
    link_documents,
    rank_documents,
    report_large,
    sample_bytes,
)
from longcrawl.dedup.index import REMOVALS, removal_table, staying
from longcrawl.dedup.signatures import Clustering
from longcrawl.engines.base import Engine, Exchange

Longs = npt.NDArray[np.int64]
Tables = Iterator[pa.Table]
Rows = Iterator[tuple[int, pa.Table]]

EDGES = pa.schema([("one", pa.int64()), ("other", pa.int64())])
CLUSTERS = pa.schema([(DOCUMENT, pa.int64()), ("cluster", pa.int64())])
PAIRS = pa.schema([(DOCUMENT, pa.int64()), ("kept", pa.int64()), ("members", pa.int64())])
"""A document that leaves, the one that is kept, and the size of their cluster."""

PIECE = 1 << 24
"""Documents whose keys of one band are in one partition, 16 bytes each."""


def remove_near_duplicates(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> Decided:
    """Keep one of all documents that bands link.

    Args:
        settings: what decides, with ``verify`` and ``min_size_ratio`` null.
        earlier: removals of documents that earlier datasets have, of each group.
        sketched: see :meth:`longcrawl.dedup.MinHash.sketch`.
        engine: what carries it out.

    Raises:
        StageError: a cluster is too large under ``on_large_cluster`` "error".
    """
    groups = range(sketched.groups)
    clusters = Exchange(no_rows, _join, len(groups), sketched.folder / "clusters")
    if clusters.waiting():
        links = _link(settings, earlier, sketched, engine)
        for _ in engine.tasks(partial(_find_clusters, links, clusters), [sketched]):
            links.remove()
    choose = Exchange(
        partial(_make_choices, settings, sketched, clusters),
        partial(_take_choices, settings),
        len(groups),
        sketched.folder / "choose",
    )
    engine.exchange(choose, groups)
    by_kept, take = partial(sketched.split, choose, "kept"), partial(_take_kept, sketched)
    kept = Exchange(by_kept, take, len(groups), sketched.folder / "kept")
    engine.exchange(kept, groups)
    by_document, take = partial(sketched.split, kept, DOCUMENT), partial(_take_near, sketched)
    near = Exchange(by_document, take, len(groups), sketched.folder / "near")
    engine.exchange(near, groups)
    report = _report_large(settings, choose, near, engine)
    most = settings.max_cluster if report and settings.on_large_cluster == "keep" else None
    return Decided(partial(_read_removals, earlier, near, most), report)


def _link(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> Exchange:
    pieces = -(-int(sketched.starts[-1]) // PIECE) or 1
    make = partial(_make_links, settings, sketched, earlier, pieces)
    links = Exchange(make, _take_links, settings.bands * pieces, sketched.folder / "link")
    engine.exchange(links, range(sketched.groups))
    return links


def _make_links(settings: Clustering, sketched: Sketched, earlier: Exchange, pieces: int, group: int) -> Rows:
    """Link the documents of a group, and send each key that they have with the first document of its cluster."""
    table = sketched.table(group)
    places = staying(table, "bands", group, sketched, earlier)
    roots = link_documents(table["bands"], places, settings, Conditions())
    documents = sketched.starts[group] + places
    gone = np.flatnonzero(roots != np.arange(len(roots)))
    if len(gone):
        yield group % (settings.bands * pieces), pa.table([documents[gone], documents[roots[gone]]], schema=EDGES)
    band = 0
    for block in band_blocks(table["bands"], places, settings.bands):
        for keys in block:
            once, first = np.unique(keys, return_index=True)
            ends = np.searchsorted((once >> np.uint64(32)) * np.uint64(pieces) >> np.uint64(32), np.arange(pieces + 1))
            for piece in np.flatnonzero(np.diff(ends)).tolist():
                here = slice(ends[piece], ends[piece + 1])
                rows = {"key": once[here], DOCUMENT: documents[roots[first[here]]]}
                yield band * pieces + piece, pa.table(rows)
            band += 1


def _take_links(_: int, tables: Tables) -> pa.Table:
    """Return an edge from each document to the first that has the same key, and the edges that came."""
    keys, documents, edges = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], [EDGES.empty_table()]
    for table in tables:
        if table.schema.equals(EDGES):
            edges.append(table)
        else:
            keys.append(table["key"].to_numpy())
            documents.append(table[DOCUMENT].to_numpy())
    every, numbers = np.concatenate(keys), np.concatenate(documents)
    order = np.argsort(every, kind="stable")
    every, numbers = every[order], numbers[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(every), 1), bool), every[1:] != every[:-1]]))
    if len(starts):
        first = np.repeat(np.minimum.reduceat(numbers, starts), np.diff(starts, append=len(every)))
        other = numbers != first
        edges.append(pa.table([numbers[other], first[other]], schema=EDGES))
    return pa.concat_tables(edges).sort_by([("one", "ascending"), ("other", "ascending")]).combine_chunks()


def _find_clusters(links: Exchange, clusters: Exchange, sketched: Sketched) -> None:
    """Join all edges, and write for each group which of its documents are in a cluster with others."""
    documents = int(sketched.starts[-1])
    parents = np.arange(documents, dtype=np.uint32 if documents < 1 << 32 else np.int64)
    for partition in range(links.partitions):
        edges = links.read(partition)
        link_edges(edges["one"].to_numpy(), edges["other"].to_numpy(), parents)
    find_roots(parents)
    inside = np.zeros(documents, bool)
    others = np.flatnonzero(parents != np.arange(documents))
    inside[others] = True
    inside[parents[others]] = True
    for group, (start, stop) in enumerate(zip(sketched.starts[:-1], sketched.starts[1:], strict=True)):
        here = start + np.flatnonzero(inside[start:stop])
        clusters.write(group, [pa.table([here, parents[here].astype(np.int64)], schema=CLUSTERS)])


def _join(_: int, tables: Tables) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _make_choices(settings: Clustering, sketched: Sketched, clusters: Exchange, group: int) -> Rows:
    """Send the documents of a group that are in clusters, with what says which one is kept, cluster by cluster."""
    members = clusters.read(group)
    if not members.num_rows:
        return
    columns = [name for name in ("id", "length") if name in (table := sketched.table(group)).column_names]
    here = table.select(columns).take(members[DOCUMENT].to_numpy() - sketched.starts[group])
    ranked = rank_documents(here, settings)
    ranked = ranked.append_column("cluster", members["cluster"]).append_column(DOCUMENT, members[DOCUMENT])
    partitions = members["cluster"].to_numpy() % sketched.groups
    for partition in np.unique(partitions).tolist():
        yield partition, ranked.filter(pa.array(partitions == partition))


def _take_choices(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    """Choose the document of each cluster that is kept (``PAIRS``)."""
    found = list(tables)
    if not found:
        return PAIRS.empty_table()
    ranked = pa.concat_tables(found).sort_by([("cluster", "ascending"), *PREFERENCE[settings.keep]])
    _, starts, counts = np.unique(ranked["cluster"].to_numpy(), return_index=True, return_counts=True)
    documents = ranked[DOCUMENT].to_numpy()
    kept = np.repeat(documents[starts], counts)
    gone = documents != kept
    return pa.table([documents[gone], kept[gone], np.repeat(counts, counts)[gone]], schema=PAIRS)


def _take_kept(sketched: Sketched, group: int, tables: Tables) -> pa.Table:
    """Add id and sample of the kept documents, which are those of a group."""
    pairs = pa.concat_tables([PAIRS.empty_table(), *tables]).sort_by(DOCUMENT)
    table = sketched.table(group)
    places = pairs["kept"].to_numpy() - sketched.starts[group]
    pairs = pairs.append_column("kept_id", table["id"].take(places))
    return pairs.append_column("sample", table["sample"].take(places)).combine_chunks()


def _take_near(sketched: Sketched, group: int, tables: Tables) -> pa.Table:
    """Return the removals of a group, with the kept document and the size of the cluster."""
    table = sketched.table(group)
    found = list(tables)
    if not found:
        return REMOVALS.append(pa.field("kept", pa.int64())).append(pa.field("members", pa.int64())).empty_table()
    pairs = pa.concat_tables(found).sort_by(DOCUMENT)
    places = pairs[DOCUMENT].to_numpy() - sketched.starts[group]
    values = estimate_pairs(table["sample"], places, lambda some: sample_bytes(pairs["sample"][some]))
    removals = removal_table(table["id"].take(places), "near_duplicate", pairs["kept_id"], values)
    removals = removals.add_column(0, DOCUMENT, pairs[DOCUMENT])
    return removals.append_column("kept", pairs["kept"]).append_column("members", pairs["members"]).combine_chunks()


def _report_large(settings: Clustering, choose: Exchange, near: Exchange, engine: Engine) -> tuple[str, ...]:
    """Report clusters that are too large; the largest is the first of its size by the number of the kept document."""
    if settings.max_cluster is None:
        return ()
    found = list(engine.tasks(partial(_largest, choose, settings.max_cluster), range(choose.partitions)))
    if not (clusters := sum(count for count, _, _ in found)):
        return ()
    _, members, kept = min(found, key=lambda one: (-one[1], one[2]))
    similar = list(engine.tasks(partial(_similar_to, near, kept), range(near.partitions)))
    name = next(name for name, _ in similar if name is not None)
    median = float(np.median(np.concatenate([values for _, values in similar])))
    return (report_large(clusters, members, name, median, settings),)


def _largest(choose: Exchange, most: int, partition: int) -> tuple[int, int, int]:
    """Return how many clusters have more than ``most`` documents, the size of the largest and its kept document."""
    pairs = choose.read(partition)
    pairs = pairs.filter(pc.greater(pairs["members"], most))
    if not pairs.num_rows:
        return 0, 0, 0
    largest = pairs.sort_by([("members", "descending"), ("kept", "ascending")])
    return pc.count_distinct(pairs["kept"]).as_py(), largest["members"][0].as_py(), largest["kept"][0].as_py()


def _similar_to(near: Exchange, kept: int, group: int) -> tuple[str | None, npt.NDArray[np.float64]]:
    """Return the id of a kept document, and how similar to it those are that leave a group for it."""
    removals = near.read(group)
    removals = removals.filter(pc.equal(removals["kept"], kept))
    return (removals["kept_id"][0].as_py() if removals.num_rows else None), removals["value"].to_numpy()


def _read_removals(earlier: Exchange, near: Exchange, most: int | None, group: int) -> pa.Table:
    """Return the removals of a group; with ``most``, clusters of more documents stay."""
    removals = near.read(group)
    if most is not None:
        removals = removals.filter(pc.less_equal(removals["members"], most))
    return pa.concat_tables([earlier.read(group), removals.select(REMOVALS.names)]).sort_by(DOCUMENT)
