"""datatrove's files: the bytes that the specification says, and what is wrong with others."""

import struct
from pathlib import Path

import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

datatrove = lc.formats.datatrove
END = 600
DOCUMENTS = [[1, 2], [3], [4, 5, 6]]


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    masks = [[True, False], [True], [False, False, True]]
    table = token_table(DOCUMENTS, loss_mask=masks)
    datatrove.write([table], tmp_path / "00000_mine.ds", end_of_text=END, tokenizer="gpt2")
    (tmp_path / "00000_mine.ds.crc32c").unlink()
    return tmp_path / "00000_mine.ds"


def test_the_bytes_are_those_of_the_specification(shard):
    assert shard.read_bytes() == struct.pack("<9H", 1, 2, END, 3, END, 4, 5, 6, END)
    assert Path(f"{shard}.index").read_bytes() == struct.pack("<3Q", 3, 5, 9)
    assert Path(f"{shard}.loss").read_bytes() == bytes([1, 0, 1, 1, 1, 0, 0, 1, 1])
    assert Path(f"{shard}.metadata").read_text() == "gpt2|2\n9\n9.00 T"
    assert len(list(shard.parent.iterdir())) == 4


def test_wide_tokens_have_four_bytes_and_the_metadata_say_so(token_table, tmp_path):
    written = datatrove.write([token_table([[1 << 31], [5]], "uint32")], tmp_path / "w.ds", tokenizer="wide")
    assert (tmp_path / "w.ds").read_bytes() == struct.pack("<2I", 1 << 31, 5)
    assert (tmp_path / "w.ds.metadata").read_text() == "wide|4\n2\n2.00 T"
    assert written.files == tuple(f"{tmp_path}/w.ds{suffix}" for suffix in ("", ".metadata", ".index", ".crc32c"))


def test_loss_mask_tokenizer_and_ends_are_read(shard, documents_in):
    opened = datatrove.open(shard)
    assert documents_in(opened) == [[*one, END] for one in DOCUMENTS]
    assert opened.loss_mask.tolist() == [True, False, True, True, True, False, False, True, True]
    assert opened.tokenizer == "gpt2"
    assert opened.documents(1, 3).table()["loss_mask"].to_pylist() == [[True, True], [False, False, True, True]]
    assert isinstance(opened.tokens, np.memmap)
    assert str(datatrove.verify(shard, vocabulary_size=END + 1)) == (
        f"{shard}: whole; datatrove, 3 documents, 9 tokens, uint16; every id compared with a vocabulary of 601"
    )


def test_a_mask_of_an_older_shard_does_not_stay(shard, token_table):
    datatrove.write([token_table([[7]])], shard)
    names = sorted(file.name for file in shard.parent.iterdir())
    assert names == ["00000_mine.ds", "00000_mine.ds.crc32c", "00000_mine.ds.index"]
    assert datatrove.open(shard).loss_mask is None


def test_the_width_of_a_token_follows_from_the_index(token_table, tmp_path, sentence_of):
    datatrove.write([token_table([[1, 2], [3, 4]])], tmp_path / "a.ds")
    assert datatrove.open(tmp_path / "a.ds").tokens.dtype == np.uint16
    said = sentence_of(CorruptionError, datatrove.open, tmp_path / "a.ds", token_size=4)
    assert "a.ds is cut: it ends at byte 8, and a.ds.index, with 4 bytes a token, asks for 16 bytes" in said
    for file in ("a.ds.index", "a.ds.crc32c"):
        (tmp_path / file).unlink()
    said = sentence_of(FormatError, datatrove.open, tmp_path / "a.ds")
    assert "open it with token_size=2 or token_size=4, or add --set reading.token_size=2" in said


def test_without_an_index_documents_are_found_by_their_end(shard, documents_in, sentence_of):
    Path(f"{shard}.index").unlink()
    unknown = datatrove.open(shard)
    assert len(unknown.tokens) == 9
    for ask in (lambda: len(unknown), lambda: unknown.ends, lambda: unknown.document(0)):
        assert "set end_of_text=ID" in sentence_of(FormatError, ask)
    assert documents_in(datatrove.open(shard, end_of_text=END)) == [[*one, END] for one in DOCUMENTS]
    assert "an unknown number of documents" in str(datatrove.verify(shard))


def test_metadata_of_an_unknown_tokenizer_and_of_older_releases_are_read(shard):
    metadata = Path(f"{shard}.metadata")
    for text, tokenizer in (("Unknown Tokenizer|2|2\n9\n9.00 T", None), ("gpt2\n9", "gpt2"), ("a|b|2\n9\n", "a|b")):
        metadata.write_text(text)
        assert datatrove.open(shard).tokenizer == tokenizer


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (".index", struct.pack("<3Q", 3, 5, 8), "has 18 bytes, but its index ends at token 8, which is byte 16 or 32"),
        (".index", struct.pack("<3Q", 5, 3, 9), ".index is damaged at byte 8: document 1 ends at token 3, before its"),
        (".index", struct.pack("<2Q", 3, 1 << 63), "its index ends at token -"),
        (".index", struct.pack("<3Q", 3, 1 << 63, 9), ".index is damaged at byte 8: document 1 ends at token -"),
        (".index", b"1234567", "is cut at byte 7, its entries have 8 bytes"),
        ("", bytes(17), "has 17 bytes, but its index ends at token 9"),
        (
            ".loss",
            bytes(8),
            ".loss is cut: it ends at byte 8, and 00000_mine.ds, with a byte for each token, asks for 9",
        ),
        (".loss", bytes(10), ".loss continues after byte 9"),
        (".loss", bytes([0, 0, 0, 2, 0, 0, 0, 0, 0]), ".loss has 2 at byte 3, where 0 or 1 must be"),
        (".metadata", b"gpt2|2\n8\n8 T", "records 8 tokens on line 2, 00000_mine.ds has 9"),
        (".metadata", b"gpt2|2\nmany\n", "on line 1, and the number of tokens on line 2"),
        (".metadata", b"gpt2|3\n9\n", "must have a tokenizer's name, | and 2 or 4 on line 1"),
        (".metadata", b"gpt2|4\n9\n", "is cut: it ends at byte 18"),
    ],
)
def test_a_damaged_file_is_one_sentence_and_a_problem_of_verify(shard, sentence_of, name, content, said):
    if name != ".metadata":
        Path(f"{shard}.metadata").unlink()
    Path(f"{shard}{name}").write_bytes(content)
    sentence = sentence_of(CorruptionError, datatrove.open, shard)
    assert said in sentence
    assert str(shard.parent) in sentence
    assert any(said in problem for problem in datatrove.verify(shard).problems)
    assert any(said in problem for problem in lc.verify(shard).problems)


def test_a_tokenizer_that_metadata_cannot_hold_is_refused(token_table, tmp_path, sentence_of):
    said = sentence_of(FormatError, datatrove.write, [token_table([[1]])], tmp_path / "a.ds", tokenizer="a|b")
    assert "remove | and line breaks" in said
