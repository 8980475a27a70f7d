"""Near-duplicates of earlier datasets: what is kept is what plain Python keeps, with every guard."""

import json

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup import MinHash
from longcrawl.dedup.clusters import PAIRS, Clustering, estimate, near_duplicates_of_earlier
from longcrawl.dedup.index import open_index
from longcrawl.errors import CorruptionError, FormatError, StageError
from longcrawl.kernels.texts import fixed_binary

WORDS = ["to", "be", "or", "not", "that", "is"]
TWO_BANDS = MinHash(bands=2, rows=1, unit="word")
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=8)
SMALL = {"bands": 3, "rows": 2, "ngram": 2, "unit": "word", "keep": "first"}


def table_of(prefix, documents):
    ids = [f"{prefix}{number}" for number in range(len(documents))]
    return pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(documents, pa.large_string())})


def keys_of(stage, table):
    """Return the band keys of each document that has n-grams, by id."""
    sketches = stage.sketch(table).to_pylist()
    return {
        row["id"]: [row["bands"][8 * band : 8 * band + 8] for band in range(stage.bands)]
        for row in sketches
        if row["bands"] is not None
    }


def share(one, other):
    return any(left == right for left, right in zip(one, other, strict=True))


def leaders(keys, names):
    """Return the first document of each cluster of documents that share bands, directly or through others."""
    found, left = [], sorted(names)
    while left:
        cluster, waiting = {left[0]}, [left[0]]
        while waiting:
            here = waiting.pop()
            near = {name for name in left if name not in cluster and share(keys[here], keys[name])}
            cluster |= near
            waiting += near
        found.append(left[0])
        left = [name for name in left if name not in cluster]
    return found


def removals(stage, table):
    return {row["id"]: row for row in stage.resolve(stage.sketch(table)).to_pylist()}


def save(stage, table, folder):
    """Deduplicate documents and save the index of those that are kept; give their ids."""
    sketches = stage.sketch(table)
    gone = set(stage.resolve(sketches)["id"].to_pylist())
    kept = [name not in gone for name in table["id"].to_pylist()]
    stage.save_index(sketches.filter(pa.array(kept, pa.bool_())), folder)
    return [name for name in table["id"].to_pylist() if name not in gone]


@given(texts, texts, texts)
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_a_later_part_keeps_what_plain_python_keeps(tmp_path_factory, first, second, third):
    root = tmp_path_factory.mktemp("parts")
    parts = [table_of(prefix, documents) for prefix, documents in zip("abc", (first, second, third), strict=True)]
    keys, earlier, folders = {}, [], []
    for number, table in enumerate(parts):
        stage = MinHash(**SMALL, against=folders)
        keys |= keys_of(stage, table)
        found = removals(stage, table)
        seen = {
            name
            for name in table["id"].to_pylist()
            if name in keys and any(share(keys[name], keys[e]) for e in earlier)
        }
        open_ones = [name for name in table["id"].to_pylist() if name in keys and name not in seen]
        chosen = leaders(keys, open_ones)
        assert set(found) == seen | (set(open_ones) - set(chosen))
        for name, row in found.items():
            which = f"_{'ab'.find(row['kept_id'][0]) + 1}" if number > 1 else ""
            assert row["rule"] == (f"near_duplicate_of_earlier{which}" if name in seen else "near_duplicate")
            assert row["kept_id"] in (earlier if name in seen else chosen)
            assert name not in seen or share(keys[name], keys[row["kept_id"]])
        folders.append(str(root / str(number)))
        kept = save(stage, table, root / str(number))
        assert set(kept) - set(chosen) == {name for name in kept if name not in keys}
        earlier += chosen


def sketches_of(prefix, documents):
    """Return sketches of documents, each a pair of band keys and a set of n-grams."""
    keys = np.array([keys for keys, _ in documents], np.uint64).reshape(-1, 2)
    ngrams = [sorted(grams) for _, grams in documents]
    made = {
        "id": pa.array([f"{prefix}{number}" for number in range(len(documents))], pa.string()),
        "bands": fixed_binary(keys.view(np.uint8).reshape(-1, 16)),
        "sample": fixed_binary(np.zeros((len(documents), 4), np.uint8)),
        "n_ngrams": pa.array([len(grams) for grams in ngrams], pa.int32()),
        "ngrams": pa.array(ngrams, pa.large_list(pa.uint32())),
    }
    table = pa.table(made)
    half = len(documents) // 2
    return pa.concat_tables([table.slice(0, half), table.slice(half)])


sketched = st.lists(st.tuples(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sets(st.integers(0, 6), min_size=1)))


@given(sketched, sketched, st.sampled_from([None, 0.3, 0.6, 1.0]), st.sampled_from([None, 0.5, 0.9]))
@settings(max_examples=settings.default.max_examples // 2)
def test_the_guards_hold_against_an_index(tmp_path_factory, first, second, verify, ratio):
    folder = tmp_path_factory.mktemp("index")
    TWO_BANDS.save_index(sketches_of("a", first), folder)
    index = open_index(str(folder), "min_hash", TWO_BANDS.hashed())
    chosen = Clustering("min_hash", 2, "first", 1, verify, "single", ratio, None, "warn")
    found, gone = near_duplicates_of_earlier(sketches_of("b", second), [index], chosen)
    expected = {}
    for number, (keys, grams) in enumerate(second):
        for band in range(2):
            passing = [
                (f"a{at}", similarity)
                for at, (others, other) in enumerate(first)
                for similarity in [len(grams & other) / len(grams | other)]
                if others[band] == keys[band]
                and similarity >= (verify or 0)
                and min(len(grams), len(other)) >= (ratio or 0) * max(len(grams), len(other))
            ]
            if passing:
                expected.setdefault(f"b{number}", passing[0])
    assert {row["id"]: row["kept_id"] for row in found.to_pylist()} == {
        name: kept for name, (kept, _) in expected.items()
    }
    assert [f"b{number}" for number in np.flatnonzero(gone)] == list(expected)
    for row in found.to_pylist():
        assert row["threshold"] == verify
        assert row["value"] == (1.0 if verify is None else pytest.approx(expected[row["id"]][1]))


def test_the_value_is_the_similarity_estimated_or_measured(tmp_path):
    words = [f"w{number}" for number in range(400)]
    before = table_of("a", ["other words entirely", " ".join(words)])
    after = table_of(
        "b", [" ".join([*words[:380], *(f"x{number}" for number in range(20))]), "new words here and there"]
    )
    guess, sure = MinHash.preset("fineweb"), MinHash.preset("fineweb", verify=0.8)
    save(sure, before, tmp_path / "index")
    true = len(set(sure.ngrams(after["text"][0].as_py())) & set(sure.ngrams(before["text"][1].as_py())))
    true /= len(set(sure.ngrams(after["text"][0].as_py())) | set(sure.ngrams(before["text"][1].as_py())))
    against = {"against": [str(tmp_path / "index")]}
    (verified,) = removals(MinHash.preset("fineweb", verify=0.8, **against), after).values()
    assert verified == {
        "id": "b0",
        "rule": "near_duplicate_of_earlier",
        "value": pytest.approx(true),
        "threshold": 0.8,
        "kept_id": "a1",
    }
    (estimated,) = removals(MinHash.preset("fineweb", **against), after).values()
    one, other = guess.signatures([before["text"][1].as_py(), after["text"][0].as_py()]).astype(np.uint8)
    assert estimated["value"] == estimate(one[None], other[None])[0] == pytest.approx(true, abs=0.12)
    assert estimated["threshold"] is None
    crawl = lc.Crawl(Dataset(after)) | MinHash.preset("fineweb", **against)
    assert str(crawl.why("b0")).startswith(
        "b0: removed at min_hash, rule near_duplicate_of_earlier: a duplicate of a1, sim"
    )


def test_an_index_of_other_parameters_is_refused_and_both_are_named(tmp_path):
    stage = MinHash(**SMALL)
    save(stage, table_of("a", ["to be or not"]), tmp_path)
    for changes in ({"bands": 4}, {"rows": 3}, {"ngram": 3}, {"seed": 2}):
        (name, value), path = next(iter(changes.items())), [str(tmp_path)]
        with pytest.raises(
            FormatError,
            match=f"has {name} {SMALL.get(name, 1)}, here {value}; it was made by min_hash with .*'{name}': "
            f"{SMALL.get(name, 1)},.*, but this is .*'{name}': {value},",
        ):
            MinHash(**{**SMALL, **changes}, against=path).prepare()
    with pytest.raises(
        FormatError, match="saved with verify=null and has no n-grams, but this min_hash has verify=0.8"
    ):
        MinHash(**SMALL, verify=0.8, against=[str(tmp_path)]).prepare()
    with pytest.raises(StageError, match="MinHash.index takes one of 'none', 'save'"):
        MinHash(index="yes")
    MinHash(**{**SMALL, "keep": "longest"}, min_size_ratio=0.5, against=[str(tmp_path)]).prepare()


def test_an_index_has_a_file_of_sorted_keys_for_each_band(tmp_path):
    stage = MinHash(**SMALL)
    documents = table_of("a", [" ".join(WORDS[at:] + WORDS[:at]) for at in range(6)] + ["", "!"])
    stage.save_index(stage.sketch(documents), tmp_path)
    about = json.loads((tmp_path / "index.json").read_text())
    assert (about["documents"], about["bands"]) == (6, 3)
    for band in range(3):
        keys = np.load(tmp_path / f"keys-{band:03d}.npy")
        assert (keys.shape, keys.dtype) == ((6, 1), np.uint64)
        assert (np.diff(keys[:, 0].astype(object)) >= 0).all()
    assert np.load(tmp_path / "sample.npy").shape == (6, 6)
    assert not (tmp_path / "ngrams.npy").exists()
    (tmp_path / "sample.npy").unlink()
    later = MinHash(**SMALL, against=[str(tmp_path)])
    with pytest.raises(CorruptionError, match=r"sample.npy is missing, though index.json .* build the index again"):
        later.resolve(later.sketch(table_of("b", [" ".join(WORDS)])))


def test_more_documents_than_are_estimated_together(tmp_path):
    count = PAIRS + 10
    keys = np.arange(2 * count, dtype=np.uint64).reshape(-1, 2)
    sketches = pa.table(
        {
            "id": pa.array(np.arange(count)).cast(pa.string()),
            "bands": fixed_binary(keys.view(np.uint8).reshape(-1, 16)),
            "sample": fixed_binary(keys[:, :1].copy().view(np.uint8)),
            "n_ngrams": pa.array(np.ones(count, np.int32)),
        }
    )
    TWO_BANDS.save_index(sketches, tmp_path)
    chosen = Clustering("min_hash", 2, "first", 1, None, "single", None, None, "warn")
    index = open_index(str(tmp_path), "min_hash", TWO_BANDS.hashed())
    found, gone = near_duplicates_of_earlier(sketches, [index], chosen)
    assert gone.all()
    assert found["id"].equals(found["kept_id"])
    assert set(found["value"].to_pylist()) == {1.0}


def test_a_key_of_many_documents_is_compared_with_64_of_them(tmp_path):
    many = [((5, at), {10 * at, 10 * at + 1}) for at in range(100)]
    TWO_BANDS.save_index(sketches_of("a", many), tmp_path)
    chosen = Clustering("min_hash", 2, "first", 1, 0.5, "single", None, None, "warn")
    asked = sketches_of("b", [((5, 1000), many[63][1]), ((5, 1000), many[64][1])])
    found, _ = near_duplicates_of_earlier(asked, [open_index(str(tmp_path), "min_hash", TWO_BANDS.hashed())], chosen)
    assert found.select(["id", "kept_id"]).to_pylist() == [{"id": "b0", "kept_id": "a63"}]


def test_ngrams_that_are_gone_are_not_taken_for_ngrams_that_never_were(tmp_path):
    stage, table = MinHash(**SMALL, verify=0.5), table_of("a", ["to be or not"])
    save(stage, table, tmp_path)
    (tmp_path / "ngrams.npy").unlink()
    later = MinHash(**SMALL, verify=0.5, against=[str(tmp_path)])
    with pytest.raises(CorruptionError, match="ngrams.npy is missing, though index.json beside it lists it"):
        later.resolve(later.sketch(table_of("b", ["to be or not"])))


def test_of_several_indexes_the_rule_says_which(tmp_path):
    stage = MinHash(**SMALL)
    save(stage, table_of("a", ["to be or not"]), tmp_path / "first")
    save(stage, table_of("a", ["that is that or not that"]), tmp_path / "second")
    later = MinHash(**SMALL, against=[str(tmp_path / "first"), str(tmp_path / "second")])
    table = table_of("b", ["that is that or not that", "to be or not", "to be or not"])
    found = {name: (row["rule"], row["kept_id"]) for name, row in removals(later, table).items()}
    assert found == {
        "b0": ("near_duplicate_of_earlier_2", "a0"),
        "b1": ("near_duplicate_of_earlier_1", "a0"),
        "b2": ("near_duplicate_of_earlier_1", "a0"),
    }
    crawl = lc.Crawl(Dataset(table)) | later
    assert [(each.kept.id, each.size, each.earlier) for each in crawl.clusters()] == [("a0", 4, True)]


def test_an_index_made_with_another_unicode_is_refused(tmp_path, monkeypatch):
    stage = MinHash(**SMALL)
    save(stage, table_of("a", ["to be or not"]), tmp_path)
    monkeypatch.setattr("unicodedata.unidata_version", "99.0.0")
    with pytest.raises(FormatError, match=r"has unicode [0-9.]+, here 99\.0\.0; it was made by min_hash"):
        MinHash(**SMALL, against=[str(tmp_path)]).prepare()


def test_a_pair_exactly_at_the_bound_is_found_in_an_index(tmp_path):
    TWO_BANDS.save_index(sketches_of("a", [((5, 6), set(range(20)))]), tmp_path)
    index = open_index(str(tmp_path), "min_hash", TWO_BANDS.hashed())
    for verify, ratio in ((0.55, None), (None, 0.55)):
        chosen = Clustering("min_hash", 2, "first", 1, verify, "single", ratio, None, "warn")
        assert near_duplicates_of_earlier(sketches_of("b", [((5, 7), set(range(11)))]), [index], chosen)[1].all()
