"""Clusters out of band keys: against connected components, with forced collisions, and with very many pairs."""

import itertools
import random
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longcrawl.core.exchange import Exchange, InMemory, Sketched, no_rows, report_of, take_each, with_report
from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.dedup import MinHash, clusters
from longcrawl.dedup.clusters import Clustering, remove_near_duplicates
from longcrawl.dedup.index import REMOVALS
from longcrawl.errors import StageError
from longcrawl.kernels.texts import fixed_binary


def settings_for(bands, **changes):
    wanted = {"stage": "min_hash", "bands": bands, "keep": "first", "seed": 0, "verify": None, "linkage": "single"}
    wanted |= {"min_size_ratio": None, "max_cluster": None, "on_large_cluster": "warn"}
    return Clustering(**(wanted | changes))


def sketches_of(keys, valid=None, ngrams=None, ids=None, **columns):
    keys = np.asarray(keys, np.uint64)
    documents = len(keys)
    table = {
        "id": pa.array(ids or [f"{number:07d}" for number in range(documents)], pa.string()),
        "bands": fixed_binary(np.ascontiguousarray(keys).view(np.uint8), valid),
        "sample": fixed_binary(np.zeros((documents, 16), np.uint8)),
    }
    if ngrams is not None:
        table["ngrams"] = pa.array([sorted(each) for each in ngrams], pa.large_list(pa.uint32()))
        table["n_ngrams"] = pa.array([len(each) for each in ngrams], pa.int32())
    return pa.table(table | columns)


def pairs(removals):
    return dict(zip(removals["id"].to_pylist(), removals["kept_id"].to_pylist(), strict=True))


def components(documents, edges):
    """Return the kept document of every removed one: the smallest of its connected component, by scipy."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones, others = np.array(list(edges), np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(ones)), (ones, others)), shape=(documents, documents))
    labels = connected_components(graph, directed=False)[1]
    first = {label: int(np.flatnonzero(labels == label)[0]) for label in set(labels.tolist())}
    return {
        f"{number:07d}": f"{first[label]:07d}" for number, label in enumerate(labels.tolist()) if first[label] != number
    }


def edges_of(keys, valid):
    at = [(number, row) for number, (row, there) in enumerate(zip(keys, valid, strict=True)) if there]
    return [
        (one, other)
        for one, row in at
        for other, another in at
        if one < other and any(a == b for a, b in zip(row, another, strict=True))
    ]


def near_duplicates(sketches, settings):
    """Return the removals of documents that are held as one group, and of which earlier datasets have none."""
    earlier = Exchange(no_rows, lambda *_: REMOVALS.empty_table(), 1, None)
    take_each(earlier, InMemory())
    decided = remove_near_duplicates(settings, earlier, Sketched.held(sketches), InMemory())
    return with_report(decided.read(0).select(REMOVAL_SCHEMA.names), decided.report)


rows_of_keys = st.integers(1, 4).flatmap(
    lambda bands: st.lists(
        st.tuples(
            st.lists(
                st.sampled_from([0, 1, 2, 3, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]), min_size=bands, max_size=bands
            ),
            st.booleans(),
        ),
        min_size=1,
        max_size=40,
    )
)


@given(rows_of_keys)
@example([([0], True)])
@example([([0], False), ([0], False)])
@settings(max_examples=settings.default.max_examples)
def test_clusters_are_connected_components(rows):
    keys, valid = [row for row, _ in rows], np.array([there for _, there in rows])
    found = near_duplicates(sketches_of(keys, valid), settings_for(len(keys[0])))
    assert pairs(found) == components(len(keys), edges_of(keys, valid))


@pytest.mark.variants
@pytest.mark.parametrize("block", [1, 1 << 12, 1 << 30])
def test_a_few_bands_at_a_time_give_what_all_bands_give(monkeypatch, block):
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 3000, (2000, 7))
    monkeypatch.setattr(clusters, "BLOCK", block)
    found = near_duplicates(sketches_of(keys), settings_for(7))
    edges = [
        (int(group[0]), int(other))
        for band in keys.T
        for key in np.unique(band)
        for group in [np.flatnonzero(band == key)]
        for other in group[1:]
    ]
    assert pairs(found) == components(2000, edges)


def test_neither_order_nor_chunks_nor_plain_types_matter():
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 400, (500, 3))
    names = [f"document {number}" for number in range(500)]
    sizes = pa.array(rng.integers(0, 5, 500))
    for keep in ("first", "random", "longest"):
        wanted = None
        for seed in range(3):
            order = [*range(500)] if keep == "first" else random.Random(seed).sample(range(500), 500)
            table = sketches_of(keys, ids=names, length=sizes).take(order)
            table = pa.concat_tables([table[:100], table[100:103], table[103:]])
            if seed == 2:  # what a plain batch of `datasets` leaves of the types
                at = table.column_names.index("bands")
                table = table.set_column(at, "bands", table["bands"].cast(pa.binary()))
            found = pairs(near_duplicates(table, settings_for(3, keep=keep, seed=7)))
            wanted = wanted or found
            assert found == wanted
    assert len(wanted) > 100


def test_what_is_kept():
    same = sketches_of([[1]] * 50, ids=[f"{number:02d}" for number in range(50)], length=pa.array([*range(25)] * 2))
    assert set(pairs(near_duplicates(same, settings_for(1))).values()) == {"00"}
    assert set(pairs(near_duplicates(same.take([*range(2, 50), 0, 1]), settings_for(1))).values()) == {"02"}
    assert set(pairs(near_duplicates(same, settings_for(1, keep="longest"))).values()) == {"24"}
    kept = {seed: pairs(near_duplicates(same, settings_for(1, keep="random", seed=seed))) for seed in range(8)}
    assert len({each.get("49", "49") for each in kept.values()}) > 3


def test_keys_that_differ_only_where_the_number_of_the_document_is_packed():
    """Four documents leave 62 bits of a key beside their number; eight keys here agree in those."""
    from longcrawl.dedup.clusters import Conditions, link_band, pack_keys

    keys = np.array([8, 9, 10, 8, 11, 10, 8 << 1, 9], np.uint64)
    packed = np.empty(8, np.uint64)
    pack_keys(keys, 3, packed)
    packed.sort()
    parents = np.arange(8, dtype=np.uint32)
    link_band(packed, 3, keys, Conditions(), parents)
    assert parents.tolist() == [0, 1, 2, 0, 4, 2, 6, 1]


def test_a_collision_of_band_keys_is_caught_by_verification():
    ngrams = [{1, 2, 3, 4}, {5, 6, 7, 8}, {1, 2, 3, 4, 9}, {5, 6, 7}, {10}]
    table = sketches_of([[42, 7]] * 5, ngrams=ngrams)
    assert len(near_duplicates(table, settings_for(2))) == 4
    found = near_duplicates(table, settings_for(2, verify=0.7))
    assert found.to_pylist() == [
        {"id": "0000002", "rule": "near_duplicate", "value": 0.8, "threshold": 0.7, "kept_id": "0000000"},
        {"id": "0000003", "rule": "near_duplicate", "value": 0.75, "threshold": 0.7, "kept_id": "0000001"},
    ]


def jaccard(one, other):
    return len(one & other) / len(one | other)


sets_with_keys = st.lists(
    st.tuples(st.sets(st.integers(0, 12), min_size=1), st.lists(st.integers(0, 2), min_size=2, max_size=2)),
    min_size=1,
    max_size=12,
)


def similar_components(ngrams, keys, least, ratio=0.0):
    """Return the clusters of all pairs that share a band key and are similar enough."""
    edges = [
        (one, other)
        for one, other in edges_of(keys, [True] * len(keys))
        if jaccard(ngrams[one], ngrams[other]) >= least
        and min(len(ngrams[one]), len(ngrams[other])) / max(len(ngrams[one]), len(ngrams[other])) >= ratio
    ]
    return components(len(keys), edges)


@given(sets_with_keys, st.sampled_from([0.2, 0.5, 0.8, 1.0]), st.sampled_from([None, 0.3, 0.9]))
@settings(max_examples=settings.default.max_examples)
def test_verified_clusters_are_connected_components_whatever_is_kept(rows, least, ratio):
    ngrams, keys = [ngrams for ngrams, _ in rows], [keys for _, keys in rows]
    table = sketches_of(keys, ngrams=ngrams)
    found = near_duplicates(table, settings_for(2, verify=least, min_size_ratio=ratio))
    assert pairs(found) == similar_components(ngrams, keys, least, ratio or 0.0)
    for row in found.to_pylist():
        assert row["value"] == jaccard(ngrams[int(row["id"])], ngrams[int(row["kept_id"])])
    for seed in range(3):
        other = near_duplicates(table, settings_for(2, verify=least, min_size_ratio=ratio, keep="random", seed=seed))
        assert other.num_rows == found.num_rows
    star = near_duplicates(table, settings_for(2, verify=least, min_size_ratio=ratio, linkage="star"))
    gone = set(star["id"].to_pylist())
    assert all(row["value"] >= least and row["kept_id"] not in gone for row in star.to_pylist())
    assert gone <= set(found["id"].to_pylist())


def test_verified_clusters_of_one_bucket_do_not_depend_on_the_order():
    """A and B are alike, and B and C, but not A and C."""
    a, b, c = (set(range(start, start + 100)) for start in (0, 15, 30))
    for ngrams in itertools.permutations([a, b, c]):
        found = near_duplicates(sketches_of([[7]] * 3, ngrams=ngrams), settings_for(1, verify=0.7))
        assert pairs(found) == {"0000001": "0000000", "0000002": "0000000"}


@pytest.mark.slow
def test_large_buckets_of_many_clusters_are_connected_components():
    chance = random.Random(0)
    starts = [1000 * family + chance.randrange(40) for family in range(30) for _ in range(20)]
    ngrams = [set(range(start, start + chance.randint(40, 60))) for start in starts]
    keys = [[chance.randrange(2), number % 3] for number in range(len(ngrams))]
    table = sketches_of(keys, ngrams=ngrams)
    for least in (0.4, 0.7, 0.95):
        found = near_duplicates(table, settings_for(2, verify=least))
        assert pairs(found) == similar_components(ngrams, keys, least)


@pytest.mark.parametrize(("sizes", "least"), [((11, 20), 0.55), ((14, 25), 0.56), ((8, 25), 0.32)])
def test_a_pair_exactly_at_the_bound_is_found(sizes, least):
    """0.55 * 20 is above 11 in floating-point numbers, and 11 / 20 is 0.55."""
    ngrams = [set(range(size)) for size in sizes]
    table = sketches_of([[1]] * 2, ngrams=ngrams)
    for changes in ({"verify": least}, {"verify": least, "linkage": "star"}, {"min_size_ratio": least}):
        assert near_duplicates(table, settings_for(1, **changes)).num_rows == 1


def test_different_sets_with_one_hash_are_told_apart():
    from longcrawl.dedup.clusters import Conditions, Ngrams, rank_sets

    sets = [[1, 2], [3, 4], [1, 2], [3, 5], [3, 4], [1, 2, 3], [3, 5]]
    stops = np.cumsum([len(each) for each in sets])
    hashes = np.array([gram for each in sets for gram in each], np.uint32)
    ngrams = Ngrams(hashes, stops - [len(each) for each in sets], stops)
    conditions = Conditions(ngrams=ngrams, ranks=np.empty(7, np.int64))
    rank_sets(np.array([0, 1, 2, 3, 4, 6, 5]), np.zeros(7, np.uint64), conditions)
    ranks = conditions.ranks.tolist()
    equal = {(one, other): ranks[one] == ranks[other] for one in range(7) for other in range(7)}
    assert equal == {(one, other): sets[one] == sets[other] for one in range(7) for other in range(7)}


def test_a_chain_is_one_cluster_or_a_star():
    ngrams = [set(range(start, start + 100)) for start in range(0, 200, 5)]
    # Neighbours are 0.905 similar, those five apart 0.6.
    chained = sketches_of([[number // 2, (number + 1) // 2] for number in range(40)], ngrams=ngrams)
    assert len(near_duplicates(chained, settings_for(2, verify=0.9))) == 39
    star = near_duplicates(chained, settings_for(2, verify=0.6, linkage="star"))
    assert set(star["kept_id"].to_pylist()) == {f"{number:07d}" for number in range(0, 40, 6)}
    assert min(star["value"].to_pylist()) >= 0.6
    bucket = sketches_of([[1]] * 40, ngrams=ngrams)
    assert len(near_duplicates(bucket, settings_for(1, verify=0.6))) == 39


def test_a_star_leaves_no_exact_copies_however_many_documents_are_kept():
    ngrams = [set(range(30 * number, 30 * number + 200)) for number in range(150) for _ in range(2)]
    table = sketches_of([[number // 4, (number + 2) // 4] for number in range(300)], ngrams=ngrams)
    for least in (0.73, 0.6):
        assert near_duplicates(table, settings_for(2, verify=least)).num_rows == 299
        found = near_duplicates(table, settings_for(2, verify=least, linkage="star"))
        gone = {int(name) for name in found["id"].to_pylist()}
        kept = [number for number in range(300) if number not in gone]
        assert all(jaccard(ngrams[one], ngrams[other]) < least for one, other in itertools.combinations(kept, 2))
        assert all(row["value"] >= least for row in found.to_pylist())


def test_in_a_very_large_bucket_documents_are_compared_with_those_near_them_in_size():
    from longcrawl.dedup.clusters import NEIGHBOURS

    shared = set(range(1000))
    ngrams = [{10 * number + 10_000, 10 * number + 10_001} for number in range(NEIGHBOURS + 400)]
    ngrams += [shared, {*shared, 1000}]
    found = near_duplicates(sketches_of([[1]] * len(ngrams), ngrams=ngrams), settings_for(1, verify=0.5))
    assert pairs(found) == {f"{NEIGHBOURS + 401:07d}": f"{NEIGHBOURS + 400:07d}"}
    alike = [{*range(50), 100 + number} for number in range(2 * NEIGHBOURS + 50)]
    found = near_duplicates(sketches_of([[1]] * len(alike), ngrams=alike), settings_for(1, verify=0.9))
    assert set(pairs(found).values()) == {"0000000"}
    assert found.num_rows == len(alike) - 1


def test_documents_of_unlike_size_are_not_linked():
    sizes = [10, 1000, 11, 1010, 105, 110]
    ngrams = [set(range(size)) for size in sizes]
    table = sketches_of([[5]] * 6, ngrams=ngrams)
    found = near_duplicates(table, settings_for(1, min_size_ratio=0.9))
    assert pairs(found) == {"0000002": "0000000", "0000003": "0000001", "0000005": "0000004"}
    both = near_duplicates(table, settings_for(1, min_size_ratio=0.97, verify=0.5))
    assert pairs(both) == {"0000003": "0000001"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verify", "linkage", "different"),
    [
        (None, "single", False),
        *(
            pytest.param(0.8, *each, marks=pytest.mark.slow)
            for each in (("single", False), ("single", True), ("star", False), ("star", True))
        ),
    ],
)
def test_half_a_million_documents_that_are_all_alike(verify, linkage, different):
    """There are 1e11 pairs, so this does not end if any step looks at pairs."""
    documents = 500_000
    keys = np.full((documents, 2), 7, np.uint64)
    table = sketches_of(keys)
    if verify is not None:
        grams = np.tile(np.arange(12, dtype=np.uint32), (documents, 1))
        if different:
            grams[:, 11] = 11 + np.arange(documents)
        lists = pa.LargeListArray.from_arrays(pa.array(np.arange(documents + 1) * 12), pa.array(grams.ravel()))
        table = table.append_column("ngrams", lists)
    found = near_duplicates(table, settings_for(2, verify=verify, linkage=linkage))
    assert found.num_rows == documents - 1
    assert set(found["kept_id"].unique().to_pylist()) == {"0000000"}


def test_the_alarm_for_large_clusters():
    table = sketches_of([[1]] * 10 + [[2]] * 4 + [[3]])
    with pytest.warns(UserWarning, match=r"1 cluster\(s\) of more than max_cluster=5 documents; the largest has 10 "):
        found = near_duplicates(table, settings_for(1, max_cluster=5))
    assert found.num_rows == 9 + 3
    with pytest.warns(UserWarning, match="around '0000000', with a median similarity of 1.00 to it; all are kept"):
        found = near_duplicates(table, settings_for(1, max_cluster=5, on_large_cluster="keep"))
    assert found["id"].to_pylist() == ["0000011", "0000012", "0000013"]
    with pytest.raises(StageError, match="compare with verify=0.8, or raise max_cluster"):
        near_duplicates(table, settings_for(1, max_cluster=5, on_large_cluster="error"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near_duplicates(table, settings_for(1, max_cluster=10))


def test_similarity_is_estimated_from_the_sample():
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (2, 12800), dtype=np.uint8)
    samples[1, : 12800 * 7 // 10] = samples[0, : 12800 * 7 // 10]
    table = sketches_of([[1], [1]]).set_column(2, "sample", fixed_binary(samples))
    (value,) = near_duplicates(table, settings_for(1))["value"].to_pylist()
    assert value == pytest.approx(0.7, abs=0.01)


def test_nothing_and_one():
    for documents in (0, 1):
        table = sketches_of(np.zeros((documents, 3)))
        for changes in ({}, {"keep": "random"}):
            assert near_duplicates(table, settings_for(3, **changes)).num_rows == 0


def test_ids_that_occur_twice_are_refused():
    with pytest.raises(StageError, match="min_hash needs unique ids, but 'a' occurs twice"):
        MinHash(bands=1, unit="word").resolve(sketches_of([[1]] * 3, ids=["a", "b", "a"]))
    with pytest.raises(StageError, match="2 occur more than once, such as 'a' and 'b': keep one of each"):
        MinHash(bands=1, unit="word").resolve(sketches_of([[1]] * 5, ids=["a", "b", "a", "b", "c"]))


def test_large_clusters_are_reported_beside_the_answer():
    table = sketches_of([[1]] * 10 + [[2]])
    with pytest.warns(UserWarning, match="max_cluster=5") as caught:
        found = near_duplicates(table, settings_for(1, max_cluster=5))
    assert caught[0].filename == __file__
    assert report_of(found) == [str(caught[0].message)]
    assert report_of(near_duplicates(table, settings_for(1, max_cluster=10))) == []


def test_size_ratios_hold_for_each_link():
    ngrams = [set(range(size)) for size in (400, 220, 120, 66)]
    table = sketches_of([[1]] * 4, ngrams=ngrams)
    assert near_duplicates(table, settings_for(1, min_size_ratio=0.5)).num_rows == 3
    star = near_duplicates(table, settings_for(1, min_size_ratio=0.5, verify=0.1, linkage="star"))
    assert pairs(star) == {"0000001": "0000000", "0000003": "0000002"}
