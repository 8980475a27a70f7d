"""litdata's chunks of tokens: the bytes that the specification says, read by a few lines of NumPy."""

import json
import struct
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

litdata = lc.formats.litdata
END = 600
DOCUMENTS = [[1, 2], [3], [4, 5, 6]]
KINDS = {"no_header_tensor:20": "<u2", "no_header_tensor:16": "<i4"}


def naive(folder: Path) -> list[list[int]]:
    """Read the documents of all chunks that an index lists."""
    index, found = json.loads((folder / "index.json").read_text()), []
    (kind,) = index["config"]["data_format"]
    for chunk in index["chunks"]:
        content = (folder / chunk["filename"]).read_bytes()
        starts = np.frombuffer(content, "<u4", chunk["chunk_size"] + 1, 4).tolist()
        assert (len(content), starts[-1]) == (chunk["chunk_bytes"], chunk["chunk_bytes"])
        pieces = [content[start:end] for start, end in pairwise(starts)]
        found += [np.frombuffer(piece, KINDS[kind]).tolist() for piece in pieces]
        assert sum(map(len, pieces)) == chunk["dim"] * np.dtype(KINDS[kind]).itemsize
    return found


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    litdata.write([token_table(DOCUMENTS)], tmp_path / "00000.bin", end_of_text=END)
    (tmp_path / "00000.bin.crc32c").unlink()
    return tmp_path / "00000.bin"


def test_the_bytes_are_those_of_the_specification(shard):
    tokens = struct.pack("<9H", 1, 2, END, 3, END, 4, 5, 6, END)
    assert shard.read_bytes() == struct.pack("<5I", 3, 20, 26, 30, 38) + tokens
    part = json.loads((shard.parent / "00000.index.json").read_text())
    assert part["chunks"] == [{"chunk_bytes": 38, "chunk_size": 3, "dim": 9, "filename": "00000.bin"}]
    assert part["config"]["item_loader"] == "TokensLoader"
    assert "updated_at" not in part


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
            litdata.write([token_table(documents, dtype)], f"{folder}/{number:05d}.bin", end_of_text=END)
        litdata.write_index(folder)
        assert naive(Path(folder)) == [[*each, END] for one in shards for each in one]


def test_a_folder_of_litdata_is_read_by_its_index(shard, documents_in, sentence_of):
    litdata.write_index(shard.parent)
    (shard.parent / "00000.index.json").unlink()
    assert documents_in(lc.formats.open_shard(shard)) == [[*one, END] for one in DOCUMENTS]
    index = shard.parent / "index.json"
    whole = index.read_text()
    index.write_text(whole.replace('"compression": null', '"compression": "zstd"'))
    assert "has compressed data of" in sentence_of(FormatError, litdata.open, shard)
    index.write_text(whole.replace("no_header_tensor:20", "no_header_tensor:0"))
    assert "data of no_header_tensor:0: only tokens" in sentence_of(FormatError, litdata.open, shard)
    index.unlink()
    assert "and is in no index.json" in sentence_of(FormatError, litdata.open, shard)


def test_other_flat_files_are_not_taken_for_chunks(shard, token_table, tmp_path):
    lc.formats.megatron.write([token_table([[1, 2]])], tmp_path / "b.bin")
    lc.formats.nanogpt.write([token_table([[END, 1]])], tmp_path / "c.bin", end_of_text=END, header="llm.c")
    names = {file.name: lc.formats.open_shard(file).format for file in tmp_path.glob("*.bin")}
    assert names == {"00000.bin": "litdata", "b.bin": "megatron", "c.bin": "nanogpt"}


def test_tokens_of_two_types_in_a_folder_are_one_sentence(shard, token_table, sentence_of):
    litdata.write([token_table([[1]], "uint32")], shard.parent / "00001.bin")
    assert "have tokens of different types" in sentence_of(FormatError, litdata.write_index, shard.parent)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (struct.pack("<5I", 2, 20, 26, 30, 38), "does not begin with 3 documents"),
        (struct.pack("<5I", 3, 20, 26, 24, 38), "ends at token 2, before its start, 3"),
        (struct.pack("<5I", 3, 20, 26, 31, 38), "ends within a token"),
        (struct.pack("<5I", 3, 20, 26, 30, 36), "ends at token 8"),
    ],
)
def test_wrong_starts_are_one_sentence_and_a_problem_of_verify(shard, sentence_of, content, said):
    shard.write_bytes(content + shard.read_bytes()[20:])
    assert said in sentence_of(CorruptionError, litdata.open, shard)
    assert any(said in problem for problem in lc.verify(shard).problems)


def test_what_cannot_be_stored_is_one_sentence(token_table, tmp_path, sentence_of):
    assert "would have no tokens" in sentence_of(FormatError, litdata.write, [], tmp_path / "b.bin")
    wide = token_table([[1 << 31]], "uint32")
    assert "an id is 2,147,483,648" in sentence_of(FormatError, litdata.write, [wide], tmp_path / "b.bin")
