"""datatrove's tokenized dataset loading, sentence by sentence.

Each test bears the sentence that it tests.
"""

import struct

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_dataset

import longcrawl as lc

END = 50_256


def documents(*lists, dtype=pa.uint16()):
    return pa.table({"tokens": pa.array(lists, pa.list_(dtype))})


# Files. What they are read as, windows and positions, follows where the loaders are.


@pytest.mark.parametrize(("vocabulary", "dtype", "size"), [(50_257, "uint16", 2), (1 << 16, "uint16", 2)])
def test_tokens_of_vocabularies_under_65k_have_two_bytes(tmp_path, vocabulary, dtype, size):
    """The binary format stores tokens as fixed-size integers (2 bytes for vocabularies under 65k …) in a flat file."""
    table = documents([0, vocabulary - 1], [7])
    lc.formats.datatrove.write([table], tmp_path / "a.ds", vocabulary_size=vocabulary)
    assert (tmp_path / "a.ds").read_bytes() == struct.pack("<3H", 0, vocabulary - 1, 7)
    assert (tmp_path / "a.ds").stat().st_size == 3 * size
    assert lc.formats.datatrove.open(tmp_path / "a.ds").tokens.dtype == dtype


def test_tokens_of_larger_vocabularies_have_four_bytes(tmp_path):
    """… (… and 4 bytes for larger ones) in a flat file."""
    table = documents([0, 128_255], [7], dtype=pa.uint32())
    lc.formats.datatrove.write([table], tmp_path / "a.ds", vocabulary_size=128_256)
    assert (tmp_path / "a.ds").read_bytes() == struct.pack("<3I", 0, 128_255, 7)


def test_files_contain_packed_token_sequences_read_without_tokenising(tmp_path):
    """Reading pre-processed binary files that contain packed token sequences, avoiding the overhead of tokenization."""
    lc.formats.datatrove.write([documents([1, 2], [3], [4, 5, 6])], tmp_path / "a.ds", end_of_text=END)
    opened = lc.formats.datatrove.open(tmp_path / "a.ds")
    assert isinstance(opened.tokens, np.memmap)
    assert opened.tokens.tolist() == [1, 2, END, 3, END, 4, 5, 6, END]


def test_a_companion_index_file_contains_document_ends(tmp_path):
    """Document boundaries can be determined from a companion .index file (containing document end … offsets).

    The text says byte offsets; datatrove's own files count tokens, uint64 each, and so do ours.
    """
    lc.formats.datatrove.write([documents([1, 2], [3], [4, 5, 6])], tmp_path / "a.ds", end_of_text=END)
    assert (tmp_path / "a.ds.index").read_bytes() == struct.pack("<3Q", 3, 5, 9)
    assert lc.formats.datatrove.open(tmp_path / "a.ds").ends.tolist() == [3, 5, 9]


def test_boundaries_can_be_found_by_end_of_sequence_tokens(tmp_path):
    """… or by detecting end-of-sequence tokens within the token stream."""
    lc.formats.datatrove.write([documents([1, 2], [3], [4, 5, 6])], tmp_path / "a.ds", end_of_text=END)
    (tmp_path / "a.ds.index").unlink()
    opened = lc.formats.datatrove.open(tmp_path / "a.ds", token_size=2, end_of_text=END)
    assert opened.ends.tolist() == [3, 5, 9]


def test_the_number_of_tokens_is_the_size_by_the_size_of_a_token(tmp_path):
    """The total number of windows is file_size / token_size / (seq_len + 1); the first two make the tokens."""
    for dtype, size in ((pa.uint16(), 2), (pa.uint32(), 4)):
        lc.formats.datatrove.write([documents(list(range(100)), dtype=dtype)], tmp_path / "a.ds")
        opened = lc.formats.datatrove.open(tmp_path / "a.ds")
        assert len(opened.tokens) == (tmp_path / "a.ds").stat().st_size // size == 100


def test_tokenised_data_are_a_dataset_of_several_files(tmp_path):
    """Tokenized Dataset Loading … with … multi-file aggregation."""
    for number in range(3):
        lc.formats.datatrove.write([documents([number], [number, 9])], tmp_path / f"{number:05d}_tokens.ds")
    data = load_dataset("longcrawl", "datatrove", data_files=str(tmp_path / "*.ds"), split="train")
    assert data["tokens"][:] == [[0], [0, 9], [1], [1, 9], [2], [2, 9]]
    assert data["id"][0] == "00000_tokens.ds:0"
