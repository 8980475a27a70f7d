"""Samples of bucketed datasets as rows: what `datasets` loads of them, and what cannot be loaded."""

import numpy as np
import pytest
from composed_crawls import compose, documents
from datasets import load_dataset

import longcrawl as lc
from longcrawl.errors import FormatError, SourceError

pytestmark = pytest.mark.usefixtures("small_files")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("stored_as", "masked", "domains"),
    [("zarr", None, None), ("gpt-simple", None, "source"), ("zarr", 0.3, "source"), ("datatrove", 0.3, None)],
)
def test_load_dataset_gives_samples_without_their_padding(tmp_path, stored_as, masked, domains):
    lengths = [3 + 7 * number % 50 for number in range(60)]
    crawl = documents(lengths, masked, source=["web", "code"] * 30)
    composed = compose(crawl, tmp_path / "run" / "composed", heldout=0.2, format=stored_as, domains=domains)
    asked = {"data_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
    loaded = load_dataset("longcrawl", "composed", **asked)
    assert set(loaded) == {each.split for each in composed.buckets}
    for split, rows in loaded.items():
        buckets = [each for each in composed.buckets if each.split == split and len(each)]
        number = 0
        for bucket in buckets:
            samples = bucket.read(np.arange(len(bucket)))
            for sample, (tokens, flags, sizes) in enumerate(
                zip(samples.tokens, samples.loss_mask, samples.piece_sizes, strict=True)
            ):
                row, count = rows[number], int(sizes.sum())
                assert row["id"] == f"{bucket.path}:{sample}"
                assert (row["capacity"], row.get("domain", "")) == (bucket.capacity, bucket.domain)
                assert (row["tokens"], row["n_tokens"]) == (tokens[:count].tolist(), count)
                assert row["seq_lengths"] == sizes.tolist()
                assert row.get("loss_mask", [True] * count) == flags[:count].tolist()
                number += 1
        assert number == len(rows)
        assert len(set(rows["id"])) == number
        streamed = load_dataset("longcrawl", "composed", split=split, streaming=True, **asked)
        assert list(streamed) == rows.to_list()
    chosen = load_dataset(
        "longcrawl", "composed", capacity=32, domain="web" if domains else None, split="train", **asked
    )
    assert set(chosen["capacity"]) == {32}
    assert lc.open(str(tmp_path / "run" / "composed")).data[:] == loaded["train"][:]


def test_what_cannot_be_loaded_of_a_composed_dataset_is_an_error(tmp_path):
    composed = compose(documents([20] * 40), tmp_path / "composed")
    for asked, sentence in (
        ({}, "source 'composed' needs data_dir"),
        ({"data_dir": str(tmp_path)[:-1] + "nowhere"}, "composed.json"),
        ({"data_dir": composed.path, "capacity": 24}, "no samples with capacity 24 and domain None; .*train/32"),
    ):
        with pytest.raises(SourceError, match=sentence):
            load_dataset("longcrawl", "composed", cache_dir=str(tmp_path / "cache"), **asked)
    with pytest.raises(FormatError, match="open it with lc.loading.ComposedBatches") as raised:
        lc.loading.Rectangle(composed.path)
    assert hasattr(lc.loading, str(raised.value).rpartition(".")[2])
