"""Megatron's files: the bytes that the specification says, and what is wrong with others."""

import struct
from pathlib import Path

import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

megatron = lc.formats.megatron
END = 600


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    megatron.write([token_table([[1, 2, 3], [4]]), token_table([[5, 6]])], tmp_path / "a.bin")
    (tmp_path / "a.bin.crc32c").unlink()
    return tmp_path / "a.bin"


def index(lengths: list[int], pointers: list[int], documents: list[int], code: int = 8, version: int = 1) -> bytes:
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", version, code, len(lengths), len(documents))
    return head + struct.pack(f"<{len(lengths)}i{len(pointers)}q{len(documents)}q", *lengths, *pointers, *documents)


def test_the_bytes_are_those_of_the_specification(shard):
    assert shard.read_bytes() == struct.pack("<6H", 1, 2, 3, 4, 5, 6)
    assert shard.with_suffix(".idx").read_bytes() == index([3, 1, 2], [0, 6, 8], [0, 1, 2, 3])


def test_wide_tokens_are_int32_and_read_as_uint32(token_table, tmp_path):
    megatron.write([token_table([[70_000, 1], [(1 << 31) - 1]], "uint32")], tmp_path / "w")
    assert (tmp_path / "w.bin").read_bytes() == struct.pack("<3i", 70_000, 1, (1 << 31) - 1)
    assert (tmp_path / "w.idx").read_bytes() == index([2, 1], [0, 8], [0, 1, 2], code=4)
    opened = megatron.open(tmp_path / "w")
    assert opened.tokens.dtype == np.uint32
    assert opened.tokens.tolist() == [70_000, 1, (1 << 31) - 1]
    assert isinstance(opened.tokens, np.memmap)


def test_an_id_that_int32_does_not_have_is_refused(token_table, tmp_path, sentence_of):
    said = sentence_of(FormatError, megatron.write, [token_table([[1 << 31]], "uint32")], tmp_path / "w")
    assert "an id is 2,147,483,648, but Megatron's int32 holds up to 2,147,483,647" in said


def test_documents_of_several_sequences_are_one_run_and_that_is_said(shard, documents_in):
    shard.with_suffix(".idx").write_bytes(index([2, 1, 1, 0, 2], [0, 4, 6, 8, 8], [0, 2, 3, 5]))
    opened = megatron.open(shard)
    assert documents_in(opened) == [[1, 2, 3], [4], [5, 6]]
    assert opened.left_out == ("the ends of sequences inside of documents",)


def test_modes_of_a_multimodal_set_are_passed_over_and_that_is_said(shard, documents_in):
    shard.with_suffix(".idx").write_bytes(index([3, 1, 2], [0, 6, 8], [0, 1, 2, 3]) + bytes([0, 1, 0]))
    opened = megatron.open(shard)
    assert documents_in(opened) == [[1, 2, 3], [4], [5, 6]]
    assert opened.left_out == ("the modes of sequences",)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "content", "error", "said"),
    [
        (
            "a.bin",
            bytes(10),
            CorruptionError,
            "a.bin is cut: it ends at byte 10, and a.idx, with 2 bytes a token, asks",
        ),
        ("a.bin", bytes(14), CorruptionError, "a.bin continues after byte 12"),
        ("a.idx", b"MMIDIDX\x00", CorruptionError, "a.idx does not begin with MMIDIDX"),
        ("a.idx", b"GPTS" + bytes(60), CorruptionError, "a.idx does not begin with MMIDIDX"),
        ("a.idx", index([3, 1, 2], [0, 6, 8], [0, 1, 2, 3], version=2), FormatError, "has version 2 at byte 9"),
        ("a.idx", index([3, 1, 2], [0, 6, 8], [0, 1, 2, 3], code=5), FormatError, "has the token type 5 at byte 17"),
        ("a.idx", index([3, 1, 2], [0, 6, 8], [0, 1, 2, 3])[:-1], CorruptionError, "a.idx is cut: it ends at byte 101"),
        ("a.idx", index([3, 1, 2], [0, 6, 8], [0, 1, 2, 3]) + b"1", CorruptionError, "a.idx continues after byte 102"),
        (
            "a.idx",
            index([3, 1, 2], [0, 6, 10], [0, 1, 2, 3]),
            CorruptionError,
            "at byte 62 that sequence 2 starts at byte 10",
        ),
        (
            "a.idx",
            index([3, 1, 2], [2, 6, 8], [0, 1, 2, 3]),
            CorruptionError,
            "at byte 46 that sequence 0 starts at byte 2",
        ),
        (
            "a.idx",
            index([7, -3, 2], [0, 14, 8], [0, 1, 2, 3]),
            CorruptionError,
            "at byte 38: sequence 1 ends at token 4",
        ),
        ("a.idx", index([3, 1, 2], [0, 6, 8], [1, 1, 2, 3]), CorruptionError, "has no 0 at byte 70"),
        (
            "a.idx",
            index([3, 1, 2], [0, 6, 8], [0, 2, 1, 3]),
            CorruptionError,
            "at byte 86: document 1 ends at sequence 1",
        ),
        (
            "a.idx",
            index([3, 1, 2], [0, 6, 8], [0, 1, 2, 4]),
            CorruptionError,
            "at byte 94 that its last document ends at seq",
        ),
    ],
)
def test_a_damaged_file_is_one_sentence_and_a_problem_of_verify(shard, sentence_of, name, content, error, said):
    (shard.parent / name).write_bytes(content)
    assert said in sentence_of(error, megatron.open, shard)
    if error is CorruptionError:
        assert any(said in problem for problem in megatron.verify(shard).problems)


def test_lengths_of_less_than_nothing_are_found_beside_an_empty_file(shard, sentence_of):
    shard.write_bytes(b"")
    shard.with_suffix(".idx").write_bytes(index([-3], [0], [0, 1]))
    assert "at byte 34: sequence 0 ends at token -3" in sentence_of(CorruptionError, megatron.open, shard)


@pytest.mark.parametrize("documents", [[], [[], []]])
def test_a_shard_without_tokens_is_refused_since_megatron_cannot_map_it(token_table, tmp_path, sentence_of, documents):
    tables = [token_table(documents)]
    assert "exclude it" in sentence_of(FormatError, megatron.write, tables, tmp_path / "a.bin")
    assert not list(tmp_path.iterdir())
