"""Token shards as datasets: rows, ids, types, splits, remote files, damage."""

from pathlib import Path

import pyarrow as pa
import pytest
from datasets import load_dataset
from datasets.exceptions import DatasetGenerationError

import longcrawl as lc
from longcrawl.core.sources import BadFiles, make_source
from longcrawl.errors import SourceError
from longcrawl.formats.shards.spec import FORMATS

END = 600
NAMES = {
    "datatrove": ".ds",
    "gpt-simple": ".bin",
    "levanter": "/input_ids/data/c/0",
    "litdata": ".bin",
    "mds": ".mds",
    "megatron": ".bin",
    "nanogpt": ".bin",
    "olmo-core": ".npy",
}
EVERY = pytest.mark.parametrize("name", NAMES)


def table(documents, dtype=None, **columns):
    return pa.table({"tokens": pa.array(documents, pa.list_(dtype or pa.uint16())), **columns})


def settings(name):
    return {"end_of_text": END} if name == "nanogpt" else {}


@pytest.fixture
def shards(tmp_path, request):
    """Write two shards of a format, one of them in a folder of its own."""

    def write(name, **columns):
        suffix = NAMES[name]
        FORMATS[name].write([table([[1, 2], [3]], **columns)], tmp_path / f"a{suffix}", end_of_text=END)
        FORMATS[name].write([table([[4], [5, 6]], **columns)], tmp_path / "sub" / f"b{suffix}", end_of_text=END)
        return tmp_path

    return write


@pytest.mark.variants
@EVERY
@pytest.mark.parametrize("streaming", [False, True])
def test_a_row_is_a_document_and_its_id_is_file_and_number(shards, name, streaming):
    folder, suffix = shards(name), NAMES[name]
    data = load_dataset("longcrawl", name, data_dir=str(folder), split="train", streaming=streaming, **settings(name))
    rows = list(data)
    assert [row["id"] for row in rows] == [f"a{suffix}:0", f"a{suffix}:1", f"sub/b{suffix}:0", f"sub/b{suffix}:1"]
    assert [row["tokens"] for row in rows] == [[1, 2, END], [3, END], [4, END], [5, 6, END]]
    assert [row["n_tokens"] for row in rows] == [3, 2, 2, 3]
    assert data.features["tokens"].feature.dtype == "uint16"
    assert data.features["n_tokens"].dtype == "int64"


@pytest.mark.variants
@EVERY
def test_data_files_name_shards_by_pattern_and_split(shards, name):
    folder, suffix = shards(name), NAMES[name]
    pattern = f"*{suffix}" if name == "levanter" else "*.*"
    data = load_dataset(
        "longcrawl",
        name,
        data_files={"train": f"{folder}/{pattern}", "validation": str(folder / "sub" / f"b{suffix}")},
        **settings(name),
    )
    assert data["train"]["tokens"][:] == [[1, 2, END], [3, END]]
    assert data["validation"]["id"][:] == [f"sub/b{suffix}:0", f"sub/b{suffix}:1"]


def test_wide_tokens_stay_wide(tmp_path):
    lc.formats.megatron.write([table([[1 << 20]], pa.uint32())], tmp_path / "w")
    data = load_dataset("longcrawl", "megatron", data_files=str(tmp_path / "w.bin"), split="train")
    assert data.features["tokens"].feature.dtype == "uint32"
    assert data["tokens"][:] == [[1 << 20]]


def test_overlaps_and_loss_masks_are_columns(shards, tmp_path):
    masks = pa.array([[True, False, True][:2], [True]], pa.list_(pa.bool_()))
    lc.formats.datatrove.write([table([[1, 2], [3]], loss_mask=masks)], tmp_path / "m" / "a.ds")
    data = load_dataset("longcrawl", "datatrove", data_dir=str(tmp_path / "m"), split="train")
    assert data["loss_mask"][:] == [[True, False], [True]]
    lc.formats.gpt_simple.write([table([[1, 2], [2, 3]], overlap=[0, 1])], tmp_path / "g" / "a.bin")
    data = load_dataset("longcrawl", "gpt-simple", data_dir=str(tmp_path / "g"), split="train")
    assert data["overlap"][:] == [0, 1]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mds"])
def test_tokens_are_not_copied_on_their_way_out_of_a_file(shards, name):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only Linux says which file an address is mapped from")
    source = make_source(name, {"data_dir": str(shards(name)), **settings(name)})
    part = source.splits()["train"][0]
    (read,) = source.read(part, BadFiles())
    address = read["tokens"].chunk(0).values.buffers()[1].address
    mapped = [line.split() for line in maps.read_text().splitlines() if line.endswith(part.files[0])]
    ranges = [[int(end, 16) for end in fields[0].split("-")] for fields in mapped]
    assert any(start <= address < stop for start, stop in ranges)


@pytest.mark.variants
@EVERY
def test_shards_are_read_over_http(shards, web_server, name):
    folder, suffix = shards(name), NAMES[name]
    url = web_server(folder)
    data = load_dataset(
        "longcrawl", name, data_files=f"{url}/a{suffix}", split="train", streaming=True, **settings(name)
    )
    file = f"a{suffix}".rpartition("/")[2]
    assert [(row["id"], row["tokens"]) for row in data] == [(f"{file}:0", [1, 2, END]), (f"{file}:1", [3, END])]


@pytest.mark.variants
@EVERY
def test_a_damaged_shard_stops_or_is_left_out_as_the_policy_says(shards, name):
    folder, suffix = shards(name), NAMES[name]
    damaged = folder / "sub" / f"b{suffix}"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    words = {"data_dir": str(folder), "split": "train", **settings(name)}
    with pytest.raises(DatasetGenerationError) as raised:
        load_dataset("longcrawl", name, **words)
    assert isinstance(raised.value.__cause__, SourceError)
    assert str(raised.value.__cause__).startswith(f"{damaged}: ")
    assert "to continue without it, set on_bad_files to 'warn' or 'skip'" in str(raised.value.__cause__)
    kept = load_dataset("longcrawl", name, on_bad_files="skip", **words)
    assert kept["tokens"][:] == [[1, 2, END], [3, END]]


@pytest.mark.variants
@EVERY
def test_a_damaged_first_shard_does_not_hide_what_the_others_are(shards, name):
    folder, suffix = shards(name), NAMES[name]
    damaged = folder / f"a{suffix}"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    words = {"data_dir": str(folder), "split": "train", **settings(name)}
    kept = load_dataset("longcrawl", name, on_bad_files="skip", **words)
    assert kept["tokens"][:] == [[4, END], [5, 6, END]]


def test_shards_that_do_not_fit_the_first_are_bad_files(tmp_path):
    lc.formats.datatrove.write([table([[1]])], tmp_path / "a.ds")
    lc.formats.datatrove.write([table([[1 << 20]], pa.uint32())], tmp_path / "b.ds")
    words = {"data_dir": str(tmp_path), "split": "train"}
    with pytest.raises(DatasetGenerationError) as raised:
        load_dataset("longcrawl", "datatrove", **words)
    assert "has tokens of uint32, but others have uint16: set dtype='uint32'" in str(raised.value.__cause__)
    wide = load_dataset("longcrawl", "datatrove", dtype="uint32", **words)
    assert wide["tokens"][:] == [[1], [1 << 20]]
    masks = pa.array([[True]], pa.list_(pa.bool_()))
    lc.formats.datatrove.write([table([[1]], loss_mask=masks)], tmp_path / "b.ds")
    with pytest.raises(DatasetGenerationError) as raised:
        load_dataset("longcrawl", "datatrove", **words)
    assert "only some shards have a loss_mask" in str(raised.value.__cause__)


def test_a_vocabulary_bounds_the_ids(shards):
    words = {"data_dir": str(shards("megatron")), "split": "train"}
    with pytest.raises(DatasetGenerationError) as raised:
        load_dataset("longcrawl", "megatron", vocabulary_size=END, **words)
    assert "has id 600 at byte 4, the vocabulary has 600" in str(raised.value.__cause__)
    assert len(load_dataset("longcrawl", "megatron", vocabulary_size=END + 1, **words)) == 4


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("datatrove", {}, "has nothing to read"),
        ("datatrove", {"data_dir": "nowhere"}, "nowhere is not a folder"),
        ("nanogpt", {"data_dir": "nowhere"}, "set end_of_text=ID"),
        ("megatron", {"data_files": "*.idx"}, "matches no file that ends in .bin"),
        ("megatron", {"data_files": "*.txt"}, "not a shard of megatron; their names end in .bin"),
        ("datatrove", {"data_files": "cut.ds"}, "the token type is unknown, since no shard can be opened"),
        ("datatrove", {"data_files": "cut.ds", "token_size": 3}, "token_size takes"),
        ("gpt-simple", {"data_files": "a.bin", "end_of_text": -1}, "end_of_text -1 is not an id"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path, monkeypatch, name, words, said):
    monkeypatch.chdir(tmp_path)
    lc.formats.gpt_simple.write([table([[1]])], tmp_path / "a.bin")
    (tmp_path / "a.txt").touch()
    (tmp_path / "cut.ds").write_bytes(b"1")
    with pytest.raises(SourceError, match=said):
        load_dataset("longcrawl", name, **words)


@pytest.mark.variants
@EVERY
def test_a_changed_shard_is_read_anew(shards, name):
    folder, suffix = shards(name), NAMES[name]
    words = {"data_dir": str(folder), "split": "train", **settings(name)}
    assert len(load_dataset("longcrawl", name, **words)) == 4
    FORMATS[name].write([table([[9]])], folder / f"a{suffix}", end_of_text=END)
    assert load_dataset("longcrawl", name, **words)["tokens"][:] == [[9, END], [4, END], [5, 6, END]]
