"""Clusters by the signatures that RedPajama-V2 publishes, against a dictionary of bands, without a look at text."""

import re
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup import MinHash, MinHashSignatures
from longcrawl.dedup.signatures import RPV2_BANDS
from longcrawl.errors import FormatError, StageError


def signature(values, column="signature_sim0.8"):
    """Return the bands of a signature of 128 hash values as the release writes them."""
    bands, rows = RPV2_BANDS[column]
    assert len(values) == 128
    return [struct.pack(f">{rows}I", *values[band * rows : (band + 1) * rows]) for band in range(bands)]


def table_of(signatures, column="signature_sim0.8"):
    ids = [f"{number:04d}" for number in range(len(signatures))]
    return pa.table({"id": ids, column: pa.array(signatures, pa.list_(pa.binary()))})


def plain_clusters(table, column):
    """Return the kept document of every removed one, by a dictionary of bands, smallest ids first."""
    ids, first, root = table["id"].to_pylist(), {}, {}

    def find(name):
        while root[name] != name:
            name = root[name]
        return name

    for name, bands in sorted(zip(ids, table[column].to_pylist(), strict=True)):
        root[name] = name
        for band in enumerate(bands or []):
            ends = sorted([find(first.setdefault(band, name)), find(name)])
            root[ends[1]] = ends[0]
    return {name: find(name) for name in ids if find(name) != name}


def removals(stage, table):
    found = stage.resolve(stage.sketch(table))
    return dict(zip(found["id"].to_pylist(), found["kept_id"].to_pylist(), strict=True))


@given(
    st.lists(st.none() | st.lists(st.integers(0, 1).map(lambda bit: 7 << bit), min_size=16, max_size=16), max_size=25),
    st.sampled_from(sorted(RPV2_BANDS)),
)
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_clusters_are_those_of_a_dictionary_of_bands(seeds, column):
    signatures = [None if seed is None else signature(np.repeat(seed, 8).tolist(), column) for seed in seeds]
    table = table_of(signatures, column)
    assert removals(MinHash.from_signatures(column, keep="first"), table) == plain_clusters(table, column)


def test_documents_without_a_signature_are_kept_and_the_rest_is_estimated():
    one = list(range(0, 1280, 10))
    other = [*one[:100], *range(5000, 5028)]
    crawl = lc.Crawl(Dataset(table_of([None, signature(one), None, signature(other)])))
    crawl |= lc.dedup.MinHash.from_signatures(keep="first")
    assert crawl.data["id"][:] == ["0000", "0001", "0002"]
    reason = crawl.why("0003")
    assert (reason.stage, reason.kept_id) == ("min_hash_signatures", "0001")
    assert reason.value == pytest.approx(100 / 117, abs=0.01)


def test_a_column_of_nulls_and_no_documents():
    stage = MinHashSignatures()
    assert removals(stage, pa.table({"id": ["a", "b"], "signature_sim0.8": pa.nulls(2)})) == {}
    assert removals(stage, table_of([])) == {}


def test_slices_and_large_types():
    rng = np.random.default_rng(0)
    signatures = [signature(rng.integers(0, 3, 128).tolist()) for _ in range(5)] * 3
    table = table_of(signatures)
    large = table.cast(pa.schema([("id", pa.large_string()), ("signature_sim0.8", pa.large_list(pa.large_binary()))]))
    stage = MinHashSignatures(keep="first")
    assert removals(stage, large[4:12]) == removals(stage, table[4:12]) == plain_clusters(table[4:12], stage.column)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            pa.table({"id": ["a"]}),
            "needs a column 'signature_sim0.8': open redpajama-v2 with minhash=True; the",
        ),
        (
            pa.table({"id": ["a"], "signature_sim0.8": ["x"]}),
            "needs lists of binary in 'signature_sim0.8', but it",
        ),
        (table_of([[b"x" * 52] * 8]), "a signature in 'signature_sim0.8' has 8 bands, not 9"),
        (table_of([[b"x" * 52] * 8 + [b"y" * 51]]), "the bands in 'signature_sim0.8' have 52, 51 bytes, not 52"),
        (table_of([[b"x" * 52] * 8 + [None]]), "the bands in 'signature_sim0.8' have 52, None bytes, not 52"),
    ],
)
def test_other_signatures_are_one_sentence(table, said):
    with pytest.raises(StageError, match=re.escape(said)):
        MinHashSignatures().sketch(table)


def test_other_columns_are_one_sentence():
    with pytest.raises(
        StageError, match=r"\.column is 'signature': set it to one of signature_sim1.0, signature_sim0.9"
    ):
        MinHash.from_signatures("signature")


def test_curves_are_those_of_the_release():
    halves = {column: round(MinHashSignatures(column).curve.half, 2) for column in RPV2_BANDS}
    assert halves == {
        "signature_sim1.0": 0.99, "signature_sim0.9": 0.92, "signature_sim0.8": 0.82, "signature_sim0.7": 0.71,
    }  # fmt: skip


@pytest.mark.slow
def test_a_release_is_clustered_from_its_minhash_files_alone(real_data, tmp_path):
    release = real_data / "rpv2"
    files = sorted(map(str, release.glob("minhash/**/*.parquet")))
    data = load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    table = data.with_format("arrow")[:]
    sizes = {}
    for column in RPV2_BANDS:
        crawl = lc.Crawl(data) | MinHash.from_signatures(column, keep="first")
        found = dict(zip(crawl.ledger["id"].to_pylist(), crawl.ledger["kept_id"].to_pylist(), strict=True))
        assert found == plain_clusters(table, column)
        sizes[column] = len(found)
    assert list(sizes.values()) == sorted(sizes.values())
    whole = lc.open("redpajama-v2", data_dir=str(release), languages=["de", "en", "es", "fr", "it"], minhash=True)
    crawl = whole | MinHash.from_signatures("signature_sim0.7", keep="first")
    assert len(crawl.ledger) == sizes["signature_sim0.7"] > 300
    assert crawl.funnel.documents == sum(pq.read_metadata(file).num_rows for file in files)


def test_dump_after_dump_is_compared_by_its_signatures(tmp_path):
    first, second = MinHashSignatures(keep="first"), list(range(0, 1280, 10))
    one, other = list(range(128)), [*second[:100], *range(5000, 5028)]
    before = table_of([signature(one), signature(second), None])
    kept = first.sketch(before)
    first.save_index(kept, tmp_path)
    after = table_of([signature(other), signature(list(range(7000, 7128))), None, signature(list(range(7000, 7128)))])
    later = MinHashSignatures(keep="first", against=[str(tmp_path)])
    later.prepare()
    rows = {row["id"]: row for row in later.resolve(later.sketch(after)).to_pylist()}
    assert {name: (row["rule"], row["kept_id"]) for name, row in rows.items()} == {
        "0000": ("near_duplicate_of_earlier", "0001"),
        "0003": ("near_duplicate", "0001"),
    }
    assert rows["0000"]["value"] == pytest.approx(100 / 117, abs=0.01)
    with pytest.raises(FormatError, match=r"has column signature_sim0\.8, here signature_sim0\.7"):
        MinHashSignatures("signature_sim0.7", against=[str(tmp_path)]).prepare()


def test_a_bound_below_one_is_refused():
    for make in (MinHashSignatures, MinHash):
        for bound in (0, -1):
            with pytest.raises(StageError, match=f"max_cluster is {bound}: set it to 1 or more, or null for no limit"):
                make(max_cluster=bound)
