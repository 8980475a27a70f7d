"""Near-duplicates among many tasks: what :mod:`longcrawl.dedup.clusters` decides with all sketches in one process.

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

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sketched import DOCUMENT, Decided, Sketched, cut, key_ranges, no_rows, take_each
from longcrawl.dedup._cluster_kernels import Conditions, find_roots, link_edges
from longcrawl.dedup.clusters import (
    PREFERENCE,
    band_blocks,
    estimate_pairs,
    link_keys,
    near_duplicates,
    report_large,
    sample_bytes,
    with_rank,
)
from longcrawl.dedup.earlier import staying
from longcrawl.dedup.index import REMOVALS, removal_table, take_ids
from longcrawl.dedup.signatures import Clustering
from longcrawl.engines.base import Engine, Exchange
from longcrawl.kernels.texts import fixed_binary, fixed_rows

Longs = npt.NDArray[np.int64]
Tables = Iterator[pa.Table]
Rows = Iterator[tuple[int, pa.Table]]

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
