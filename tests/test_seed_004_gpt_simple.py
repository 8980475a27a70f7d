"""GPT-Simple's data pipeline, sentence by sentence.

Each test bears the sentence that it tests.
"""

import struct

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_dataset

import longcrawl as lc
from longcrawl.errors import FormatError

END = 50_256


def documents(*lists, dtype=pa.uint16(), **columns):
    return pa.table({"tokens": pa.array(lists, pa.list_(dtype)), **columns})


# Binary format. Windowing, packing and curricula follow where they are made.


def test_a_shard_is_a_bin_and_an_idx(tmp_path):
    """Each output shard is a .bin + .idx pair."""
    written = lc.formats.gpt_simple.write([documents([1, 2])], tmp_path / "00000")
    assert written.files == (str(tmp_path / "00000.bin"), str(tmp_path / "00000.idx"))
    assert {file.name for file in tmp_path.iterdir()} == {"00000.bin", "00000.idx"}


def test_bin_is_a_flat_array_of_uint16_ids(tmp_path):
    """.bin: a flat array of token IDs (uint16, …)."""
    lc.formats.gpt_simple.write([documents([1, 2], [END])], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == struct.pack("<3H", 1, 2, END)


def test_bin_is_uint32_for_large_vocabularies(tmp_path):
    """… (… or uint32 for large vocabularies)."""
    lc.formats.gpt_simple.write([documents([1, 128_000], dtype=pa.uint32())], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == struct.pack("<2I", 1, 128_000)


def test_documents_are_back_to_back_each_terminated_with_eod(tmp_path):
    """Documents and windows are concatenated back-to-back, each terminated with an end-of-document (EOD) token."""
    lc.formats.gpt_simple.write([documents([1, 2], [3], [4, END])], tmp_path / "a.bin", end_of_text=END)
    tokens = lc.formats.gpt_simple.open(tmp_path / "a.bin").tokens.tolist()
    assert tokens == [1, 2, END, 3, END, 4, END]


def test_the_header_has_16_bytes_magic_version_type_and_count(tmp_path):
    """.idx: an index with a 16-byte header (magic GPTS, version, dtype code, document count)."""
    lc.formats.gpt_simple.write([documents([1], [2, 3])], tmp_path / "a.bin")
    assert (tmp_path / "a.idx").read_bytes()[:16] == b"GPTS" + struct.pack("<III", 1, 2, 2)


def test_an_int64_array_has_starts_and_a_final_sentinel(tmp_path):
    """An int64 offsets array (token-level start of each entry, plus a final total-count sentinel)."""
    lc.formats.gpt_simple.write([documents([1], [2, 3], [4])], tmp_path / "a.bin")
    offsets = np.frombuffer((tmp_path / "a.idx").read_bytes(), np.int64, 4, offset=16)
    assert offsets.tolist() == [0, 1, 3, 4]


def test_a_uint16_for_each_entry_is_its_overlap_prefix(tmp_path):
    """A per-entry uint16 overlap-prefix length (how many leading tokens are windowing overlap …)."""
    lc.formats.gpt_simple.write([documents([1, 2, 3], [2, 3, 4], overlap=[0, 2])], tmp_path / "a.bin")
    assert (tmp_path / "a.idx").read_bytes()[16 + 3 * 8 :] == struct.pack("<2H", 0, 2)
    assert lc.formats.gpt_simple.open(tmp_path / "a.bin").overlaps.tolist() == [0, 2]


def test_an_overlap_that_uint16_does_not_hold_is_an_error(tmp_path):
    """A per-entry uint16 overlap-prefix length: 70,000 is not 4,464."""
    table = documents([1] * 70_000, [1] * 70_000, overlap=[0, 70_000])
    with pytest.raises(FormatError, match="an overlap of 70,000 tokens, GPT-Simple's index holds 65,535"):
        lc.formats.gpt_simple.write([table], tmp_path / "a.bin")


def test_bin_is_memory_mapped(tmp_path):
    """The .bin is memory-mapped, so shards far larger than RAM stream with constant memory."""
    lc.formats.gpt_simple.write([documents(list(range(1000)))], tmp_path / "a.bin")
    opened = lc.formats.gpt_simple.open(tmp_path / "a.bin")
    assert isinstance(opened.tokens, np.memmap)
    assert isinstance(opened.document(0), np.memmap)
    data = load_dataset("longcrawl", "gpt-simple", data_files=str(tmp_path / "a.bin"), split="train", streaming=True)
    assert next(iter(data))["tokens"] == list(range(1000))
