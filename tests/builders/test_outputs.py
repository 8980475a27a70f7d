"""Outputs that plain `datasets` loads by their folders."""

import datasets
import zarr

import longcrawl as lc


def test_an_output_of_a_crawl_loads_by_its_folder(tmp_path):
    tokens = lc.Crawl({"id": list("abc"), "text": ["river and sea " * 9] * 3}) | lc.tokens.Tokenize(
        "trained", vocabulary_size=270
    )
    (tokens | lc.tokens.Truncate(16)).to_rectangle(tmp_path / "made", heldout=0)
    loaded = datasets.load_dataset(str(tmp_path / "made"), split="train", cache_dir=str(tmp_path / "c"))
    assert loaded["input_ids"][:] == zarr.open_array(str(tmp_path / "made/train"), mode="r")[:].tolist()
    assert loaded["beginning"][0].startswith("river")
