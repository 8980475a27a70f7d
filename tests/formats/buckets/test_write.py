"""Composed datasets: every token once and where its piece says, masks, measures as compared, and odd documents."""

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import zarr
from composed_crawls import END, compose, documents
from datasets import Dataset, load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.outputs import RESULTS
from longcrawl.errors import FormatError, StageError
from longcrawl.formats.buckets import write as composed_output
from longcrawl.formats.buckets.write import composition_of

FORMATS = ["zarr", "gpt-simple", "datatrove", "megatron", "token-parquet"]
STRATEGIES = {
    "buckets": [16, 32, 64],
    "fixed": [32],
    "multi-bucket": [16, 32, 64],
    "best-fit": [64],
    "first-fit": [64],
    "decomposition": [16, 32, 64],
    "padded": [64],
    "interleaved": [64],
}
LABELS = [
    "Buckets", "Fixed-32", "Multi-Bucket", "Best-fit-64", "First-fit-64, pools of 256", "Decomposition", "Padded-64",
    "Interleaved-64",
]  # fmt: skip
LOSSY = ("decomposition", "padded", "interleaved")

pytestmark = pytest.mark.usefixtures("small_files")


def rebuilt(composed: lc.formats.Composed) -> dict[str, tuple[list[int], list[bool]]]:
    """Put every document together again out of its pieces: its tokens, and whether their loss counts."""
    found: dict[str, dict[int, tuple]] = {}
    for bucket in composed.buckets:
        samples = bucket.read(np.arange(len(bucket)))
        assert samples.tokens.shape == samples.loss_mask.shape == (len(bucket), bucket.capacity)
        files = sorted((Path(composed.path) / "pieces" / bucket.path).glob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        sizes = {}
        for row in rows:
            place = sum(sizes.setdefault(row["sample"], []))
            sizes[row["sample"]].append(row["length"])
            here = (row["sample"], slice(place, place + row["length"]))
            pieces = found.setdefault(row["id"], {})
            assert row["start"] not in pieces
            pieces[row["start"]] = (samples.tokens[here].tolist(), samples.loss_mask[here].tolist(), row)
        assert [row["sample"] for row in rows] == sorted(row["sample"] for row in rows)
        assert [sizes[number] for number in range(len(bucket))] == [each.tolist() for each in samples.piece_sizes]
        for number, row in enumerate(samples.tokens):
            assert (row[sum(sizes[number]) :] == bucket.padding).all()
            assert not samples.loss_mask[number, sum(sizes[number]) :].any()
    whole = {}
    for name, pieces in found.items():
        starts = sorted(pieces)
        assert starts == [0, *itertools.accumulate(len(pieces[start][0]) for start in starts)][:-1]
        assert [pieces[start][2]["head"] for start in starts] == [start == 0 for start in starts]
        assert [pieces[start][2]["tail"] for start in starts] == [start == starts[-1] for start in starts]
        whole[name] = tuple([each for start in starts for each in pieces[start][side]] for side in (0, 1))
    return whole


def ended(crawl: lc.Crawl) -> dict[str, tuple[list[int], list[bool]]]:
    """Return what the documents must be rebuilt to."""
    rows = crawl.data.with_format(None)
    masks = rows["loss_mask"] if "loss_mask" in rows.column_names else [[True] * len(each) for each in rows["tokens"]]
    given = zip(rows["id"], rows["tokens"], masks, strict=True)
    return {name: ([*tokens, END], [*mask, True]) for name, tokens, mask in given if len(tokens)}


@pytest.mark.variants
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in ("datatrove", "megatron") else ()) for name in FORMATS],
)
@settings(max_examples=4, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=5, max_size=200),
    strategy=st.sampled_from([each for each in STRATEGIES if each not in LOSSY]),
    threshold=st.sampled_from([0, 0.05, 1]),
    with_domains=st.booleans(),
    held=st.integers(0, 2),
)
def test_documents_are_rebuilt_from_their_pieces(name, lengths, strategy, threshold, with_domains, held):
    masked = 0.2 if name in ("zarr", "datatrove", "token-parquet") else None
    lengths = [*lengths, 5]
    crawl = documents(lengths, masked, kind=["a" if row < len(lengths) - 3 else None for row in range(len(lengths))])
    with tempfile.TemporaryDirectory() as folder:
        composed = compose(
            crawl, Path(folder) / "out", STRATEGIES[strategy], strategy=strategy, padding_threshold=threshold,
            format=name, shard_bytes=500, heldout=held, domains="kind" if with_domains else None,
        )  # fmt: skip
        assert rebuilt(composed) == ended(crawl)
        assert lc.verify(composed.path).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "label"), list(zip(STRATEGIES, LABELS, strict=True)))
def test_the_measures_are_those_of_a_comparison(name, label, tmp_path):
    lengths = np.random.default_rng(1).geometric(0.03, 400)
    composed = compose(documents(lengths), tmp_path / "out", STRATEGIES[name], strategy=name)
    told = composition_of(composed.described["splits"]["train"])
    compared = lc.compose(documents(lengths), capacities=STRATEGIES[name])[label]
    assert compared == told
    assert (told.compared_pairs > 0) == (name not in ("decomposition", "padded"))
    of_lengths = lc.compose(lengths + 1, capacities=STRATEGIES[name])[label]
    assert of_lengths == replace(told, compared_pairs=0, related=None, related_by_chance=None)
    for same in everything_that_says_how_long(composed, documents(lengths), tmp_path):
        found = lc.compose(same, capacities=STRATEGIES[name])[label]
        assert replace(found, compared_pairs=0, related=None, related_by_chance=None) == of_lengths, same
    assert sum(map(len, composed.buckets)) == told.samples
    assert composed.described["splits"]["train"]["r_tru"] == told.r_tru


def everything_that_says_how_long(composed: lc.formats.Composed, crawl: lc.Crawl, folder: Path) -> list:
    """Return what a user may point ``lc.compose`` at: documents before they are written, and what holds them."""
    lists = crawl.data.with_format("arrow")[:]
    counted = pa.table({"n_tokens": pc.list_value_length(lists["tokens"])})
    pq.write_table(lists, folder / "lists.parquet")
    crawl.data.to_json(folder / "lists.jsonl")
    pq.write_table(counted, folder / "counted.parquet")
    lc.formats.token_parquet.write(lists, folder / "shard.parquet", end_of_text=END)
    lc.formats.megatron.write(lists, folder / "shard.bin", end_of_text=END)
    crawl.write("gpt-simple", folder / "shards", end_of_text=END)
    files = [folder / name for name in ("lists.parquet", "lists.jsonl", "counted.parquet", "shard.parquet")]
    tables = f"{composed.path}/documents/**/*.parquet"
    return [crawl, crawl.data, counted, *files, folder / "shard.bin", folder / "shards", composed.path, tables]


@pytest.mark.slow
def test_domains_are_composed_by_themselves_and_measured_together(tmp_path):
    lengths = np.random.default_rng(2).geometric(0.03, 300)
    kinds = [["web", "code", None][row % 3] for row in range(300)]
    composed = compose(documents(lengths, kind=kinds), tmp_path / "out", domains="kind", heldout=5)
    assert {each.domain for each in composed.buckets} == {"web", "code", "unknown"}
    for kind, bucket in itertools.product(["web", "code", "unknown"], composed.buckets):
        if bucket.domain == kind:
            table = pq.read_table(tmp_path / "out/pieces" / bucket.path)
            assert set(table["domain"].to_pylist()) == {None if kind == "unknown" else kind}
    parts = [composition_of(each) for each in composed.described["domains"] if each["split"] == "train"]
    whole = composition_of(composed.described["splits"]["train"])
    assert whole.documents == sum(each.documents for each in parts) == 285
    context = sum(each.context * each.placed_tokens for each in parts) / whole.placed_tokens
    assert whole.context == pytest.approx(context)
    assert [each.samples for each in whole.buckets] == [
        sum(each.buckets[place].samples for each in parts) for place in range(3)
    ]


def test_interleaved_documents_are_one_text_and_padded_domains_are_not(tmp_path):
    lengths = [70, 9, 20, 3, 40, 12] * 6
    kinds = [["web", "chat"][row % 2] for row in range(36)]
    crawl = documents(lengths, kind=kinds)
    fields = {"strategy": "interleaved", "domains": "kind", "padded_domains": ["chat"], "chunks_per_document": 3}
    composed = compose(crawl, tmp_path / "out", [64], **fields)
    texts, found = {name: tokens for name, (tokens, _) in ended(crawl).items()}, {}
    for bucket in composed.buckets:
        samples = bucket.read(np.arange(len(bucket)))
        pieces = pq.read_table(tmp_path / "out/pieces" / bucket.path).to_pylist()
        found[bucket.domain] = samples
        for number, row in enumerate(samples.tokens.tolist()):
            here = [each for each in pieces if each["sample"] == number]
            names = list(dict.fromkeys(each["id"] for each in here))
            if bucket.domain == "chat":
                (name,) = names
                assert row == [*texts[name], *[END] * 64][:64]
                continue
            bodies = [np.array_split([token for token in texts[name][:32] if token != END], 3) for name in names]
            tokens = [int(token) for chunk in range(3) for body in bodies for token in body[chunk]]
            assert row == [*tokens, *[END] * 64][:64]
            assert len(samples.piece_sizes[number]) == 1
    assert (len(found["web"].tokens), len(found["chat"].tokens)) == (9, 18)
    assert lc.verify(composed.path).problems == ()
    described = composed.described
    assert (described["padded_domains"], described["long_documents"], described["joined"]) == (["chat"], "truncate", 1)
    assert "whole" in str(lc.inspect(composed.path, row=12))
    assert "token 7 ends samples" in lc.formats.ComposedResult().limits(described)[0].replace(str(END), "7")


def test_settings_of_other_strategies_are_not_in_a_recipe(tmp_path):
    """So recipes keep their digests."""
    assert not lc.formats.ComposedOutput().settings().keys() & composed_output.OF_STRATEGY["interleaved"]
    described = compose(documents([9, 9]), tmp_path / "out", [64], strategy="padded").described
    assert described["long_documents"] == "truncate"
    assert "documents_per_sample" not in described


def test_samples_are_shuffled_in_buckets_whatever_the_strategy(tmp_path):
    lengths = np.random.default_rng(3).geometric(0.05, 150)
    for name in ("buckets", "best-fit"):
        taken = {}
        for seed in (0, 1):
            composed = compose(
                documents(lengths), tmp_path / f"{name}{seed}", STRATEGIES[name], strategy=name, seed=seed
            )
            bucket = composed.bucket(64)
            taken[seed] = [tuple(row) for row in bucket.read(range(len(bucket))).tokens.tolist()]
        assert taken[0] != taken[1]
        assert sorted(taken[0]) == sorted(taken[1])


@pytest.mark.variants
@pytest.mark.parametrize("name", FORMATS)
def test_a_mask_is_kept_where_there_is_something_to_mask(name, tmp_path):
    lengths = [30, 90, 5, 0, 12]
    nothing = compose(documents(lengths, 0), tmp_path / "nothing", format=name)
    assert not nothing.buckets[0].masked
    assert not list((tmp_path / "nothing").rglob("*loss*"))
    if name in ("gpt-simple", "megatron"):
        with pytest.raises(FormatError, match=f"{name} cannot hold the loss mask, which is False for"):
            compose(documents(lengths, 0.5), tmp_path / "refused", format=name)
        with pytest.warns(UserWarning, match="cannot hold the loss mask"):
            lost = compose(documents(lengths, 0.5), tmp_path / "lost", format=name, on_loss="warn")
        assert rebuilt(lost) == ended(documents(lengths))
        return
    kept = compose(documents(lengths, 0.5), tmp_path / "kept", format=name)
    assert rebuilt(kept) == ended(documents(lengths, 0.5))
    if name == "zarr":
        mask = zarr.open_group(str(tmp_path / "kept"), mode="r")[f"{kept.buckets[0].path}_loss_mask"]
        assert (mask[:] == kept.buckets[0].read(range(len(kept.buckets[0]))).loss_mask).all()


def test_no_loss_is_due_on_overlaps_of_rows_that_are_windows_already(tmp_path):
    table = pa.table({"id": ["a", "b"], "tokens": pa.array([[1, 2, 3], [3, 4, END]], pa.list_(pa.uint16()))})
    table = table.append_column("overlap", pa.array([0, 1], pa.uint32()))
    composed = compose(lc.Crawl(Dataset(table)), tmp_path / "out")
    assert rebuilt(composed) == {"a": ([1, 2, 3], [True] * 3), "b": ([3, 4, END], [False, True, True])}


def test_zarr_format_2_and_another_codec_hold_the_same(tmp_path):
    crawl = documents(np.full(300, 20), 0.1)
    composed = compose(crawl, tmp_path / "out", [64], zarr_format=2, codec="lz4")
    assert rebuilt(composed) == ended(crawl)
    assert zarr.open_group(str(tmp_path / "out"), mode="r", zarr_format=2)["train/64"].chunks == (64, 64)


@pytest.mark.variants
@pytest.mark.parametrize(("capacity", "rows"), [(16, 4), (48, 2), (128, 1)])
def test_a_chunk_is_whole_samples(capacity, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(composed_output, "CHUNK_TOKENS", 100)
    crawl = documents(np.full(70, capacity - 3), 0.1)
    composed = compose(crawl, tmp_path / "out", [capacity])
    assert rebuilt(composed) == ended(crawl)
    group = zarr.open_group(str(tmp_path / "out"), mode="r")
    arrays = [group[f"train/{capacity}{suffix}"] for suffix in ("", "_loss_mask")]
    assert [(each.chunks, each.shards) for each in arrays] == [((rows, capacity), (64, capacity))] * 2


def test_shards_are_read_by_whatever_reads_their_format(tmp_path):
    crawl = documents(np.full(60, 20))
    composed = compose(crawl, tmp_path / "out", [64], format="gpt-simple", shard_bytes=1000, heldout=3)
    files = sorted(map(str, (tmp_path / "out/train/64").glob("*.bin")))
    assert len(files) > 2
    entries = load_dataset("longcrawl", "gpt-simple", data_files=files, split="train")
    samples = composed.bucket(64).read(range(len(entries)))
    kept = [row[: sizes.sum()].tolist() for row, sizes in zip(samples.tokens, samples.piece_sizes, strict=True)]
    assert [each["tokens"] for each in entries] == kept
    assert {each.split for each in composed.buckets} == {"train", "val"}


# Odd documents.


@pytest.mark.slow
def test_a_document_a_thousand_times_longer_than_any_bucket(tmp_path):
    crawl = documents([64_000, 3, 0, 10])
    composed = compose(crawl, tmp_path / "out")
    assert rebuilt(composed) == ended(crawl)
    told = composed.described["splits"]["train"]
    assert (told["documents"], told["empty_documents"], told["cut_documents"]) == (3, 1, 1)
    assert pq.read_table(tmp_path / "out/documents")["n_tokens"].to_pylist() == [64_001, 4, 0, 11]


def test_one_document_is_one_sample(tmp_path):
    (bucket,) = compose(documents([5]), tmp_path / "out").buckets
    assert (bucket.capacity, len(bucket)) == (16, 1)
    assert bucket.read([0]).piece_sizes[0].tolist() == [6]


def test_a_document_that_ends_already_is_not_ended_again(tmp_path):
    table = pa.table({"tokens": pa.array([[1, END], [END]], pa.list_(pa.uint32()))})
    (bucket,) = compose(lc.Crawl(Dataset(table)), tmp_path / "out").buckets
    assert bucket.read([0]).tokens.tolist() == [[1, *[END] * 15]]
    assert bucket.read([0]).piece_sizes[0].tolist() == [2, 1]
    assert bucket.dtype == "uint32"


@pytest.mark.variants
@pytest.mark.parametrize("name", ["zarr", "megatron"])
@pytest.mark.parametrize(
    ("kind", "fields", "dtype"),
    [
        (pa.int64(), {}, "uint32"),
        (pa.int64(), {"vocabulary_size": 50_257}, "uint16"),
        (pa.int64(), {"vocabulary_size": 50_257, "dtype": "uint32"}, "uint32"),
        (pa.uint16(), {"vocabulary_size": 1 << 17}, "uint32"),
        (pa.int64(), {"dtype": "uint16"}, "uint16"),
    ],
)
def test_tokens_are_stored_as_the_vocabulary_says(name, kind, fields, dtype, tmp_path):
    table = pa.table({"id": ["a"], "tokens": pa.array([[1, 50_000]], pa.list_(kind))})
    composed = compose(lc.Crawl(Dataset(table)), tmp_path / "out", format=name, **fields)
    (bucket,) = composed.buckets
    assert (bucket.dtype, bucket.read([0]).tokens.dtype) == (dtype, dtype)
    assert bucket.read([0]).tokens[0, :3].tolist() == [1, 50_000, END]
    assert composed.described["vocabulary_size"] == fields.get("vocabulary_size")
    if name == "megatron":
        assert lc.formats.open_shard(next((tmp_path / "out").rglob("*.bin"))).tokens.dtype == dtype
    with pytest.raises(FormatError, match=r"document 0 has the id 50,000, but the vocabulary has 400"):
        compose(lc.Crawl(Dataset(table)), tmp_path / "wrong", format=name, vocabulary_size=400)


def test_a_domain_without_tokens_has_no_bucket(tmp_path):
    composed = compose(documents([0, 9, 0], kind=["a", "b", "a"]), tmp_path / "out", domains="kind")
    assert [each.path for each in composed.buckets] == ["train/b/16"]
    assert [(each["folder"], each["samples"]) for each in composed.described["domains"]] == [("a", 0), ("b", 1)]
    assert "`a` | 0 | 0 |" in RESULTS["composed"].composition(tmp_path / "out", composed.described)


@pytest.mark.parametrize(
    ("lengths", "fields", "said"),
    [
        ([], {}, "no documents to write"),
        ([0, 0], {}, "no tokens to write: every document is empty"),
        ([3, 3], {"strategy": "decomposition", "capacities": [16]}, "dropped as shorter than the smallest capacity"),
        ([3, 0], {"heldout": 1}, "no samples to train on"),
    ],
)
def test_documents_that_make_no_sample_are_refused(lengths, fields, said, tmp_path):
    with pytest.raises(FormatError, match=said):
        documents(lengths).to_composed(tmp_path / "out", end_of_text=END, **fields)
    assert not (tmp_path / "out").exists()


@pytest.mark.variants
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"capacities": [64, 16]}, r"capacities of buckets must ascend, .* got \[64, 16\]: write \[16, 64\]"),
        ({"capacities": []}, r"buckets needs a capacity: write \[2048, 4096, 8192, 16384\]"),
        ({"strategy": "fixed"}, r"'fixed' makes samples of one length, but got the capacities .* write \[16384\]"),
        ({"strategy": "best"}, "takes one of 'buckets', 'fixed', 'multi-bucket', 'best-fit', 'first-fit', 'decompos"),
        ({"strategy": "multi-bucket", "pool_size": 9}, "plans all documents together: remove pool_size"),
        ({"padding_threshold": 2}, "padding_threshold must be a share of a bucket, from 0 to 1, got 2"),
        ({"padded_domains": ["a"]}, "padded_domains needs strategy interleaved: set composed.strategy"),
        (
            {"strategy": "interleaved", "capacities": [64], "domains": "url", "padded_domains": ["a"]},
            "composed.padded_domains names 'a', which is not a url of the documents; known: '",
        ),
        ({"documents_per_sample": 3}, "'buckets' interleaves no documents"),
        ({"format": "nanogpt"}, "format takes one of 'zarr', 'gpt-simple', 'datatrove', 'megatron', 'token-parquet'"),
        ({"shard_bytes": 0}, "composed.shard_bytes is 0: set it to 1 or more"),
        ({"heldout": 1.5}, "composed.heldout must be a fraction below 1 or a whole number"),
        ({"domains": "kind"}, "composed.domains needs a column 'kind'; the documents have: id, url, tokens"),
        ({"domains": "tokens"}, "composed.domains refers to column 'tokens', which is list"),
        ({"end_of_text": None}, "composed needs an end-of-text token: add the stage tokenize, or set"),
        ({"end_of_text": 70_000}, "end_of_text 70,000 does not fit uint16"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, said, tmp_path):
    with pytest.raises((StageError, FormatError), match=said):
        documents([20, 3]).to_composed(tmp_path / "out", **({"end_of_text": END} | fields))
    assert not (tmp_path / "out").exists()


def test_what_would_be_lost_or_cut_twice_is_refused(tmp_path):
    crawl = documents([20, 3])
    with pytest.raises(StageError, match="composed cuts documents by its own plan: remove the stage windows"):
        compose(crawl | lc.tokens.Windows(8, 2), tmp_path / "out")
    cut = lc.Crawl((crawl | lc.tokens.Windows(8, 2)).data)
    with pytest.raises(StageError, match="remove the stage windows"):
        compose(cut, tmp_path / "out")
    masked = documents([3], masked_=[0]).data.rename_column("masked_", "masked")
    with pytest.raises(StageError, match="composed would lose column 'masked', which refers to the text"):
        compose(lc.Crawl(masked), tmp_path / "out")
