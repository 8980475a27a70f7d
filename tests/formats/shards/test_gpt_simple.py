"""GPT-Simple's files: the bytes that the specification says, and what is wrong with others."""

import struct
from pathlib import Path

import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

gpt_simple = lc.formats.gpt_simple
END = 600


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    table = token_table([[1, 2, 3], [2, 3, 4], [5]], overlap=[0, 2, 0])
    gpt_simple.write([table.slice(0, 1), table.slice(1)], tmp_path / "a.bin")
    (tmp_path / "a.bin.crc32c").unlink()
    return tmp_path / "a.bin"


def test_the_bytes_are_those_of_the_specification(shard):
    assert shard.read_bytes() == struct.pack("<7H", 1, 2, 3, 2, 3, 4, 5)
    header = b"GPTS" + struct.pack("<III", 1, 2, 3)
    assert shard.with_suffix(".idx").read_bytes() == header + struct.pack("<4q3H", 0, 3, 6, 7, 0, 2, 0)


def test_wide_tokens_have_type_4(token_table, tmp_path):
    gpt_simple.write([token_table([[1 << 20]], "uint32")], tmp_path / "w")
    assert (tmp_path / "w.bin").read_bytes() == struct.pack("<I", 1 << 20)
    assert (tmp_path / "w.idx").read_bytes() == b"GPTS" + struct.pack("<III2qH", 1, 4, 1, 0, 1, 0)


@pytest.mark.parametrize("name", ["a", "a.bin", "a.idx"])
def test_a_shard_is_named_by_either_file_or_by_neither(shard, documents_in, name):
    opened = gpt_simple.open(shard.parent / name)
    assert documents_in(opened) == [[1, 2, 3], [2, 3, 4], [5]]
    assert opened.overlaps.tolist() == [0, 2, 0]
    assert opened.documents(1, 3).table()["overlap"].to_pylist() == [2, 0]
    assert opened.path == str(shard)
    assert isinstance(opened.tokens, np.memmap)


def test_an_overlap_of_more_than_16_bits_is_an_error(token_table, tmp_path, sentence_of):
    """The peer writes 70,000 as 4,464."""
    table = token_table([[1] * 70_000] * 2, overlap=[0, 70_000])
    said = sentence_of(FormatError, gpt_simple.write, [table], tmp_path / "a.bin")
    assert "document 1 has an overlap of 70,000 tokens, but GPT-Simple's index holds 65,535" in said
    gpt_simple.write([token_table([[1] * 70_000] * 2, overlap=[0, 65_535])], tmp_path / "a.bin")
    assert gpt_simple.open(tmp_path / "a.bin").overlaps.tolist() == [0, 65_535]


def index(entries: int, offsets: list[int], overlaps: list[int], version: int = 1, width: int = 2) -> bytes:
    numbers = struct.pack(f"<{len(offsets)}q{len(overlaps)}H", *offsets, *overlaps)
    return b"GPTS" + struct.pack("<III", version, width, entries) + numbers


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "content", "error", "said"),
    [
        (
            "a.bin",
            bytes(12),
            CorruptionError,
            "a.bin is cut: it ends at byte 12, and a.idx, with 2 bytes a token, asks",
        ),
        ("a.bin", bytes(16), CorruptionError, "a.bin continues after byte 14"),
        ("a.idx", b"GPTX" + bytes(60), CorruptionError, "a.idx does not begin with GPTS"),
        ("a.idx", b"GPTS", CorruptionError, "a.idx does not begin with GPTS"),
        ("a.idx", index(3, [0, 3, 6, 7], [0] * 3, version=2), FormatError, "has version 2 at byte 4"),
        ("a.idx", index(3, [0, 3, 6, 7], [0] * 3, width=3), CorruptionError, "has the token type 3 at byte 8"),
        ("a.idx", index(4, [0, 3, 6, 7], [0] * 3), CorruptionError, "a.idx is cut: it ends at byte 54, and its header"),
        ("a.idx", index(2, [0, 3, 6, 7], [0] * 3), CorruptionError, "a.idx continues after byte 44"),
        (
            "a.idx",
            index(3, [1, 3, 6, 7], [0] * 3),
            CorruptionError,
            "at byte 16 that the first document starts at token 1",
        ),
        ("a.idx", index(3, [0, 6, 3, 7], [0] * 3), CorruptionError, "at byte 32: document 1 ends at token 3"),
        ("a.idx", index(3, [0, 3, 6, 8], [0] * 3), CorruptionError, "a.bin is cut"),
        ("a.idx", index(3, [0, 3, 6, -7], [0] * 3), CorruptionError, "a.bin continues after byte 0"),
        ("a.idx", index(3, [0, 3, 6, 7], [0, 4, 0]), CorruptionError, "at byte 50 document 1 an overlap of 4 tokens"),
    ],
)
def test_a_damaged_file_is_one_sentence_and_a_problem_of_verify(shard, sentence_of, name, content, error, said):
    (shard.parent / name).write_bytes(content)
    assert said in sentence_of(error, gpt_simple.open, shard)
    if error is CorruptionError:
        assert any(said in problem for problem in gpt_simple.verify(shard).problems)


def test_a_last_end_that_is_negative_is_found_beside_an_empty_file(shard, sentence_of):
    shard.write_bytes(b"")
    shard.with_suffix(".idx").write_bytes(index(1, [0, -7], [0]))
    assert "at byte 24: document 0 ends at token -7" in sentence_of(CorruptionError, gpt_simple.open, shard)


def test_an_index_without_its_file_and_the_other_way_round_are_one_sentence(shard, sentence_of):
    shard.rename(shard.with_name("b.bin"))
    assert "no file" in sentence_of(FormatError, gpt_simple.open, shard)
    assert "b.idx" in sentence_of(FormatError, gpt_simple.open, shard.with_name("b.bin"))


def test_documents_of_no_token_at_all_are_refused(token_table, tmp_path, sentence_of):
    """An empty file cannot be mapped to memory; GPT-Simple passes over a shard only if it has no entries."""
    said = sentence_of(FormatError, gpt_simple.write, [token_table([[], []])], tmp_path / "a.bin")
    assert "exclude it" in said
