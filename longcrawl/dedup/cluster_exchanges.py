"""Near-duplicates among many tasks: what :mod:`longcrawl.dedup.clusters` decides with all sketches in one process.

Documents are numbers here, in groups (G of them) that are small enough for a task. Once keys have met, groups are
merged to sections of a million documents (S of them): pieces of rows are sent from each task to each partition, so that
small groups would send very many of very few rows.

========  ==========================  ===================================  ========================================
step      tasks > partitions          rows that meet                       a partition becomes
========  ==========================  ===================================  ========================================
link      G > bands x pieces, by key  16 bytes of each key of each group   edges between documents
                                      and band
clusters  1                           none: it reads all edges, and holds  the cluster of each document of a section
                                      5 bytes a document (9 beyond 2**32)  that is in one with others
choose    S > S, by cluster           id and rank of each such document    the documents that leave, each with the
                                                                           one that is kept
kept      S > S, by kept document     these pairs                          with id and sample of the kept document
near      S > S, by removed document  these                                removals of a section
compared  S > S, by cluster           the sketch of each such document     removals of some clusters, where pairs are
                                                                           compared: in place of choose and kept
========  ==========================  ===================================  ========================================

Documents of a group that share a key are linked before the key is sent, with the first of them alone: a key of a
million equal documents is as many rows as there are groups. The documents of one cluster are in memory together: about
70 bytes each in "choose", 250 in "kept", and their sketches in "compared". 1e8 copies of one page would be 25 GB.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sketched import DOCUMENT, Decided, Sketched, cut, key_ranges, no_rows
from longcrawl.dedup._cluster_kernels import Conditions, find_roots, link_edges
from longcrawl.dedup.clusters import (
    PREFERENCE,
    band_blocks,
    estimate_pairs,
    link_keys,
    near_duplicates,
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

COMPARED = pa.schema([*REMOVALS, *list(PAIRS)[1:]])
"""Removals with the number of the kept document, and the size of the cluster."""

PIECE = 1 << 24
"""Documents whose keys of one band are in one partition, 16 bytes each."""
SENT = 64 << 20
"""Bytes of sketches that are cut into partitions together."""
SECTION = 1 << 20
"""Documents of which a task holds those in clusters, and id and sample of all: up to 256 bytes each."""


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
    sections = sketched.merged(SECTION)
    every = range(sections.groups)
    clusters = Exchange(no_rows, _join, len(every), sketched.folder / "clusters")
    if clusters.waiting():
        links = _link(settings, earlier, sketched, engine)
        for _ in engine.tasks(partial(_find_clusters, links, clusters), [sections]):
            links.remove()
    compares = settings.verify is not None or settings.min_size_ratio is not None
    decide = _compare_members if compares else _choose
    pairs, near = decide(settings, sketched, sections, clusters, engine)
    report = _report_large(settings, pairs, near, engine)
    most = settings.max_cluster if report and settings.on_large_cluster == "keep" else None
    return Decided(partial(_read_removals, sketched, sections.starts, earlier, near, most), report)


def _choose(
    settings: Clustering, sketched: Sketched, sections: Sketched, clusters: Exchange, engine: Engine
) -> tuple[Exchange, Exchange]:
    """Keep one of each cluster; return the pairs cluster by cluster, and the removals by document."""
    every, count = range(sections.groups), sections.groups
    make, take = partial(_make_choices, settings, sections, clusters), partial(_take_choices, settings)
    choose = Exchange(make, take, count, sketched.folder / "choose")
    engine.exchange(choose, every)
    by_kept, take = partial(sections.split, choose, "kept"), partial(_take_kept, sections)
    kept = Exchange(by_kept, take, count, sketched.folder / "kept")
    engine.exchange(kept, every)
    by_document, take = partial(sections.split, kept, DOCUMENT), partial(_take_near, sections)
    near = Exchange(by_document, take, count, sketched.folder / "near")
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
    compared = Exchange(make, take, partitions, sketched.folder / "compared")
    engine.exchange(compared, range(sections.groups))
    by_document = partial(sections.split, compared, DOCUMENT)
    near = Exchange(by_document, _take_compared, sections.groups, sketched.folder / "near")
    engine.exchange(near, range(partitions))
    return compared, near


def _link(settings: Clustering, earlier: Exchange, sketched: Sketched, engine: Engine) -> Exchange:
    pieces = -(-int(sketched.starts[-1]) // PIECE) or 1
    make = partial(_make_links, settings, sketched, earlier, pieces)
    links = Exchange(make, _take_links, settings.bands * pieces, sketched.folder / "link")
    engine.exchange(links, range(sketched.groups))
    return links


def _make_links(settings: Clustering, sketched: Sketched, earlier: Exchange, pieces: int, group: int) -> Rows:
    """Send the keys of a group, each with the first document that has it, and which documents are linked there."""
    table = sketched.table(group)
    places = staying(table, "bands", group, sketched, earlier)
    documents, parents = sketched.starts[group] + places, np.arange(len(places), dtype=np.uint32)
    band = 0
    for block in band_blocks(table["bands"], places, settings.bands):
        for keys in block:
            order = link_keys(keys, Conditions(), parents)
            ordered = keys[order]
            first = _first_of_equal(ordered)
            once, having = ordered[first], documents[order[first]]
            ends = np.searchsorted(key_ranges(once, pieces), np.arange(pieces + 1))
            for piece in np.flatnonzero(np.diff(ends)).tolist():
                here = slice(ends[piece], ends[piece + 1])
                yield band * pieces + piece, pa.table({"key": once[here], DOCUMENT: having[here]})
            band += 1
    find_roots(parents)
    gone = np.flatnonzero(parents != np.arange(len(parents)))
    if len(gone):
        yield group % (settings.bands * pieces), pa.table([documents[gone], documents[parents[gone]]], schema=EDGES)


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


def _find_clusters(links: Exchange, clusters: Exchange, sketched: Sketched) -> None:
    """Join all edges, and write for each section which of its documents are in a cluster with others."""
    documents = int(sketched.starts[-1])
    parents: npt.NDArray[Any] = np.arange(documents, dtype=np.uint32 if documents < 1 << 32 else np.int64)
    for partition in range(links.partitions):
        edges = links.read(partition)
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


def _make_choices(settings: Clustering, sketched: Sketched, clusters: Exchange, group: int) -> Rows:
    """Send the documents of a group that are in clusters, with what says which one is kept, cluster by cluster."""
    members = clusters.read(group)
    if not members.num_rows:
        return
    table = sketched.table(group, ["id", "length"] if settings.keep == "longest" else ["id"])
    here = table.take(members[DOCUMENT].to_numpy() - sketched.starts[group])
    ranked = rank_documents(here, settings)
    ranked = ranked.append_column("cluster", members["cluster"]).append_column(DOCUMENT, members[DOCUMENT])
    yield from cut(ranked, members["cluster"].to_numpy() % sketched.groups)


def _take_choices(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    """Choose the document of each cluster that is kept (``PAIRS``)."""
    found = list(tables)
    if not found:
        return PAIRS.empty_table()
    ranked = pa.concat_tables(found).sort_by([("cluster", "ascending"), *PREFERENCE[settings.keep]])
    starts = np.flatnonzero(_first_of_equal(ranked["cluster"].to_numpy()))
    counts = np.diff(starts, append=ranked.num_rows)
    documents: Longs = ranked[DOCUMENT].to_numpy()
    kept = np.repeat(documents[starts], counts)
    gone = documents != kept
    return pa.table([documents[gone], kept[gone], np.repeat(counts, counts)[gone]], schema=PAIRS)


def _make_members(sections: Sketched, clusters: Exchange, partitions: int, section: int) -> Rows:
    """Send the sketches of documents that are in clusters, cluster by cluster."""
    members = clusters.read(section)
    numbers, start, waiting = members[DOCUMENT].to_numpy(), sections.starts[section], list[pa.Table]()
    for table in sections.read(section):
        here = slice(*np.searchsorted(numbers, [start, start + table.num_rows]))
        found = table.take(numbers[here] - start).append_column("cluster", members["cluster"][here])
        waiting.append(found.append_column(DOCUMENT, members[DOCUMENT][here]))
        start += table.num_rows
        if sum(each.nbytes for each in waiting) > SENT:
            yield from _cut_members(waiting, partitions)
            waiting.clear()
    if waiting:
        yield from _cut_members(waiting, partitions)


def _cut_members(found: Sequence[pa.Table], partitions: int) -> Rows:
    rows = pa.concat_tables(found)
    return cut(rows.drop_columns(["cluster"]), rows["cluster"].to_numpy() % partitions)


def _take_members(settings: Clustering, _: int, tables: Tables) -> pa.Table:
    """Decide about the documents of some clusters as with all of them in one process (``COMPARED``)."""
    found = list(tables)
    if not found:
        return COMPARED.empty_table()
    sketches = pa.concat_tables(found)
    removals = near_duplicates(sketches, settings._replace(max_cluster=None)).replace_schema_metadata(None)
    ids = pc.cast(sketches["id"], pa.string()).combine_chunks()
    gone, kept = (sketches[DOCUMENT].take(pc.index_in(removals[name], value_set=ids)) for name in ("id", "kept_id"))
    clusters, counts = np.unique(kept.to_numpy(), return_counts=True)
    members = counts[np.searchsorted(clusters, kept.to_numpy())] + 1
    columns = [gone, *removals.columns, kept, pa.array(members)]
    return pa.table(columns, schema=COMPARED).sort_by(DOCUMENT).combine_chunks()


def _take_compared(_: int, tables: Tables) -> pa.Table:
    return pa.concat_tables([COMPARED.empty_table(), *tables]).sort_by(DOCUMENT).combine_chunks()


def _take_kept(sketched: Sketched, group: int, tables: Tables) -> pa.Table:
    """Add id and sample of the kept documents, which are those of a group."""
    pairs = pa.concat_tables([PAIRS.empty_table(), *tables]).sort_by(DOCUMENT)
    table = sketched.table(group, ["id", "sample"])
    places = pairs["kept"].to_numpy() - sketched.starts[group]
    pairs = pairs.append_column("kept_id", table["id"].take(places))
    return pairs.append_column("sample", table["sample"].take(places)).combine_chunks()


def _take_near(sketched: Sketched, group: int, tables: Tables) -> pa.Table:
    """Return the removals of a section, with the kept document and the size of the cluster."""
    found = list(tables)
    if not found:
        return REMOVALS.append(pa.field("kept", pa.int64())).append(pa.field("members", pa.int64())).empty_table()
    table = sketched.table(group, ["id", "sample"])
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
