"""Levanter's caches: the bytes that the specification says, read by a few lines of NumPy and by zarr-python."""

import json
import struct
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

levanter = lc.formats.levanter
END = 600
DOCUMENTS = [[1, 2], [3], [4, 5, 6]]
SUFFIX = "input_ids/data/c/0"


def naive(cache: Path, dtype: str) -> list[list[int]]:
    """Read the documents of all shards that a ledger lists."""
    ledger, found = json.loads((cache / "shard_ledger.json").read_text()), []
    for name in ledger["finished_shards"]:
        offsets = np.fromfile(cache / name / "input_ids/offsets/c/0", "<i8", ledger["shard_rows"][name] + 1)
        assert offsets[0] == len(offsets) - 1
        tokens = np.fromfile(cache / name / SUFFIX, dtype, ledger["field_counts_by_shard"][name]["input_ids"])
        ends = [0, *offsets[1:].tolist()]
        found += [tokens[start:end].tolist() for start, end in pairwise(ends)]
    return found


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    levanter.write([token_table(DOCUMENTS)], tmp_path / "00000" / SUFFIX, end_of_text=END)
    (tmp_path / "00000" / f"{SUFFIX}.crc32c").unlink()
    return tmp_path / "00000"


def test_the_bytes_are_those_of_the_specification(shard):
    data = (shard / SUFFIX).read_bytes()
    assert data[:18] == struct.pack("<9H", 1, 2, END, 3, END, 4, 5, 6, END)
    assert data[18:34] == struct.pack("<QQ", 0, 18)  # the only chunk, before the crc32c of these numbers
    assert len(data) == 38
    offsets = (shard / "input_ids/offsets/c/0").read_bytes()
    assert offsets[:32] == struct.pack("<4q", 3, 3, 5, 9)
    ledger = json.loads((shard / "shard_ledger.json").read_text())
    assert (ledger["total_num_rows"], ledger["field_counts"], ledger["layout"]) == (3, {"input_ids": 9}, "consolidated")
    assert len([file for file in shard.rglob("*") if file.is_file()]) == 5


@given(
    shards=st.lists(
        st.lists(st.lists(st.integers(0, END - 1), max_size=9), min_size=1, max_size=12), min_size=1, max_size=3
    ),
    wide=st.booleans(),
)
def test_a_naive_reader_finds_every_token_and_document(token_table, shards, wide):
    dtype = "uint32" if wide else "uint16"
    with tempfile.TemporaryDirectory() as folder:
        for number, documents in enumerate(shards):
            levanter.write([token_table(documents, dtype)], f"{folder}/{number:05d}/{SUFFIX}", end_of_text=END)
        levanter.write_index(folder)
        assert naive(Path(folder), "<i4" if wide else "<u2") == [[*each, END] for one in shards for each in one]
        assert lc.verify(folder).problems == ()


def test_zarr_reads_arrays_of_several_chunks(token_table, tmp_path):
    tokens = np.arange(600_000) % END
    levanter.write([token_table([tokens.tolist()], "uint32")], tmp_path / "a" / SUFFIX)
    array = zarr.open_array(tmp_path / "a/input_ids/data", mode="r")
    assert (array.dtype, array.shape, array.chunks, array.shards) == (np.int32, (600_000,), (262_144,), (786_432,))
    assert np.array_equal(array[:], tokens)
    assert zarr.open_array(tmp_path / "a/input_ids/offsets", mode="r")[:].tolist() == [1, 600_000]


@pytest.mark.parametrize("place", ["", "shard_ledger.json", SUFFIX])
def test_folder_ledger_and_tokens_name_a_shard(shard, documents_in, place):
    assert documents_in(lc.formats.open_shard(shard / place)) == [[*one, END] for one in DOCUMENTS]
    assert isinstance(lc.formats.open_shard(shard / place).tokens, np.memmap)
    assert lc.verify(shard / place).problems == ()


def test_a_cache_of_levanter_is_read(tmp_path, documents_in):
    codec = zarr.codecs.BloscCodec(cname="zstd", clevel=1)
    for name, values, kind in (("data", range(100), "int32"), ("offsets", [3, 40, 40, 100], "int64")):
        array = zarr.create_array(
            tmp_path / "cache/input_ids" / name, shape=(1 << 54,), shards=(128,), chunks=(32,), dtype=kind,
            compressors=codec,
        )  # fmt: skip
        array[: len(values)] = np.array(values, kind)
    ledger = {"total_num_rows": 3, "field_counts": {"input_ids": 100, "loss_weights": 100}}
    (tmp_path / "cache/shard_ledger.json").write_text(json.dumps(ledger))
    shard = levanter.open(tmp_path / "cache", vocabulary_size=100)
    assert documents_in(shard) == [[*range(40)], [], [*range(40, 100)]]
    assert (shard.tokens.dtype, shard.left_out) == (np.uint32, ("the column loss_weights",))
    told = lc.convert(tmp_path / "cache", tmp_path / "a.ds", on_loss="warn")
    assert documents_in(lc.formats.open_shard(tmp_path / "a.ds")) == documents_in(shard)
    assert told.losses == ("the column loss_weights",)


def test_converted_folders_have_a_ledger(shard, token_table, tmp_path, documents_in):
    lc.formats.datatrove.write([token_table([[7, 8]])], tmp_path / "in/a.ds")
    lc.formats.datatrove.write([token_table([[9]])], tmp_path / "in/b.ds")
    lc.convert(tmp_path / "in", tmp_path / "out", "levanter")
    assert naive(tmp_path / "out", "<u2") == [[7, 8], [9]]
    lc.convert(tmp_path / "in/b.ds", tmp_path / "out/c" / SUFFIX)
    assert naive(tmp_path / "out", "<u2") == [[7, 8], [9], [9]]
    lc.convert(tmp_path / "out", tmp_path / "back", "datatrove")
    assert documents_in(lc.formats.open_shard(tmp_path / "back/a.ds")) == [[7, 8]]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("input_ids/offsets/c/0", struct.pack("<4q", 2, 3, 5, 9), "records 2 documents and has 4 numbers"),
        ("input_ids/offsets/c/0", struct.pack("<4q", 3, 3, 2, 9), "ends at token 2, before its start, 3"),
        ("input_ids/offsets/c/0", struct.pack("<4q", 3, 3, 5, 8), "ends at token 8"),
        ("input_ids/data/c/0", bytes(18) + struct.pack("<QQ", 0, 17), "has another index of its chunks"),
    ],
)
def test_wrong_numbers_are_one_sentence_and_a_problem_of_verify(shard, sentence_of, file, content, said):
    whole = (shard / file).read_bytes()
    (shard / file).write_bytes(content + whole[len(content) :])
    assert said in sentence_of(CorruptionError, levanter.open, shard)
    assert any(said in problem for problem in lc.verify(shard).problems)


def test_other_types_and_what_cannot_be_stored_are_one_sentence(shard, token_table, tmp_path, sentence_of):
    metadata = shard / "input_ids/data/zarr.json"
    metadata.write_text(metadata.read_text().replace("uint16", "float32"))
    assert "is of float32, only uint16 and int32 and uint32" in sentence_of(FormatError, levanter.open, shard)
    metadata.write_text("{")
    assert "zarr.json cannot be read" in sentence_of(CorruptionError, levanter.open, shard)
    assert "would have no tokens" in sentence_of(FormatError, levanter.write, [], tmp_path / "b" / SUFFIX)
    wide = token_table([[1 << 31]], "uint32")
    assert "an id is 2,147,483,648" in sentence_of(FormatError, levanter.write, [wide], tmp_path / "b" / SUFFIX)
    assert not (tmp_path / "b").exists()
