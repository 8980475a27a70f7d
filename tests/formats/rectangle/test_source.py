"""The rectangle as a dataset: rows and windows, ours and the original layout."""

import numcodecs
import numpy as np
import pyarrow as pa
import pytest
import zarr
from datasets import Dataset, load_dataset

import longcrawl as lc
from longcrawl.errors import CorruptionError, SourceError

ROWS, LENGTH = 9, 40


@pytest.fixture
def ours(tmp_path):
    tokens = np.arange(ROWS * LENGTH, dtype=np.uint16).reshape(ROWS, LENGTH)
    table = pa.table({"id": [f"d{i}" for i in range(ROWS)], "tokens": pa.array(list(tokens), pa.list_(pa.uint16()))})
    crawl = lc.Crawl(Dataset(table))
    crawl.to_rectangle(tmp_path / "ours", context_length=LENGTH, end_of_text=0, heldout=2)
    return tmp_path / "ours", tokens


def read(data, column="tokens"):
    values = data.with_format("arrow")[:][column].combine_chunks()
    return values.flatten().to_numpy().reshape(len(data), -1) if column == "tokens" else values.to_pylist()


def test_rows_come_whole_with_their_ids_and_type(ours):
    path, tokens = ours
    data = load_dataset("longcrawl", "rectangle", data_dir=str(path))
    assert (read(data["heldout"]) == tokens[:2]).all()
    assert (read(data["train"]) == tokens[2:]).all()
    assert read(data["train"], "id") == [f"d{i}" for i in range(2, ROWS)]
    assert data["train"].features["tokens"].feature.dtype == "uint16"
    assert data["train"].features["tokens"].length == LENGTH


@pytest.mark.parametrize("streaming", [False, True])
def test_windows_of_any_length_come_row_after_row(ours, streaming):
    path, tokens = ours
    data = load_dataset(
        "longcrawl", "rectangle", data_dir=str(path), context_length=12, split="train", streaming=streaming
    )
    rows = list(data)
    assert [(row["row"], row["start"]) for row in rows[:4]] == [(0, 0), (0, 12), (0, 24), (1, 0)]
    assert len(rows) == 7 * 3
    for row in rows:
        assert row["tokens"] == tokens[2 + row["row"], row["start"] : row["start"] + 12].tolist()


def test_parts_split_over_processes_and_equal_the_loader(tmp_path):
    tokens = np.arange(5000 * 3, dtype=np.uint16).reshape(5000, 3)
    table = pa.table({"id": [f"d{i}" for i in range(5000)], "tokens": pa.array(list(tokens), pa.list_(pa.uint16()))})
    lc.Crawl(Dataset(table)).to_rectangle(tmp_path / "many", context_length=3, end_of_text=0)
    data = load_dataset("longcrawl", "rectangle", data_dir=str(tmp_path / "many"), split="train", num_proc=2)
    assert (read(data) == tokens).all()
    assert read(data, "id") == [f"d{i}" for i in range(5000)]


def test_the_original_layout_is_read_and_a_missing_chunk_is_not_zeros(tmp_path):
    folder = tmp_path / "original"
    tokens = np.random.default_rng(0).integers(1, 50_000, (10, 30)).astype(np.uint16)
    blosc = numcodecs.Blosc("lz4", 5, 1)
    for split in ("train", "heldout"):
        array = zarr.create_array(
            str(folder / f"{split}.zarr"), shape=(10, 30), chunks=(4, 16), dtype="u2", zarr_format=2, compressors=blosc
        )
        array[:] = tokens
    data = load_dataset("longcrawl", "rectangle", data_dir=str(folder))
    assert (read(data["train"]) == tokens).all()
    assert read(data["heldout"], "id") == [None] * 10

    (folder / "train.zarr" / "1.0").unlink()
    with pytest.raises(CorruptionError, match=r"train\.zarr/1\.0 is missing"):
        load_dataset("longcrawl", "rectangle", data_dir=str(folder), split="train", context_length=15)
    kept = load_dataset("longcrawl", "rectangle", data_dir=str(folder), split="train", on_bad_files="skip")
    assert (read(kept) == tokens[[0, 1, 2, 3, 8, 9]]).all()


@pytest.mark.variants
@pytest.mark.parametrize("way", ["load_dataset", "two processes", "streaming", "open"])
def test_a_changed_chunk_is_a_corruption_error_that_does_not_advise_to_skip(ours, way, tmp_path):
    folder, _ = ours
    chunk = folder / "train" / "c" / "0" / "0"
    chunk.write_bytes(bytes(byte ^ 0xFF for byte in chunk.read_bytes()))

    def rows():
        settings = {"data_dir": str(folder), "split": "train", "cache_dir": str(tmp_path / "cache")}
        if way == "open":
            return len(lc.open("rectangle", **settings).data)
        settings |= {"streaming": True} if way == "streaming" else {}
        settings |= {"num_proc": 2} if way == "two processes" else {}
        return len(list(load_dataset("longcrawl", "rectangle", **settings)))

    with pytest.raises(CorruptionError, match="c/0/0 is corrupt") as raised:
        rows()
    assert "on_bad_files" not in str(raised.value)


@pytest.mark.slow
def test_a_rectangle_is_read_over_http(ours, web_server):
    path, tokens = ours
    data = load_dataset("longcrawl", "rectangle", data_dir=web_server(path), split="train", streaming=True)
    assert [row["tokens"] for row in data] == tokens[2:].tolist()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"context_length": 41}, "context_length must be 1 to 40"),
        ({"data_dir": "nowhere"}, "nowhere"),
        ({"data_dir": None}, "needs data_dir"),
    ],
)
def test_wrong_settings_are_one_sentence(ours, settings, sentence):
    with pytest.raises(SourceError, match=sentence):
        load_dataset("longcrawl", "rectangle", **{"data_dir": str(ours[0])} | settings)
