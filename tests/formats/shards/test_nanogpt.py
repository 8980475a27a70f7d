"""Flat files of tokens: with and without a header, and which documents can be told apart in them."""

import struct
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError, LongCrawlError
from longcrawl.formats.shards.convert import convert
from longcrawl.formats.shards.source import NanoGpt as TokenSource

nanogpt = lc.formats.nanogpt
END = 600


def header(magic: int, version: int, tokens: int) -> bytes:
    return struct.pack("<256i", magic, version, tokens, *[0] * 253)


def test_nanogpts_file_is_tokens_and_nothing_else(token_table, tmp_path, documents_in):
    nanogpt.write([token_table([[1, 2], [3]])], tmp_path / "train.bin", end_of_text=END)
    assert (tmp_path / "train.bin").read_bytes() == struct.pack("<5H", 1, 2, END, 3, END)
    assert documents_in(nanogpt.open(tmp_path / "train.bin", end_of_text=END)) == [[1, 2, END], [3, END]]


def test_a_flat_file_of_uint32_without_a_header_must_be_asked_for(token_table, tmp_path, sentence_of):
    path, table = tmp_path / "train.bin", token_table([[1, 2]], "int64")
    said = sentence_of(FormatError, nanogpt.write, table, path, end_of_text=END)
    assert "which nanoGPT reads as uint16: name a vocabulary_size of 65,536 or less, or set dtype to 'uint32'" in said
    assert said.endswith("(in longcrawl convert, --set writing.header=llm.c)")
    assert not path.exists()
    nanogpt.write(table, path, end_of_text=END, dtype="uint32")
    assert path.read_bytes() == struct.pack("<3I", 1, 2, END)
    nanogpt.write(table, path, end_of_text=END, vocabulary_size=END + 1)
    assert np.memmap(path, np.uint16, "r").tolist() == [1, 2, END]  # as nanoGPT reads it
    nanogpt.write(table, path, end_of_text=END, header="llm.c")
    assert nanogpt.open(path).tokens.dtype == np.uint32


@pytest.mark.parametrize(("dtype", "magic", "version"), [("uint16", 20240520, 1), ("uint32", 20240801, 7)])
def test_the_header_of_llm_c_and_its_end_of_text_at_the_start(
    token_table, tmp_path, documents_in, dtype, magic, version
):
    path = tmp_path / "val.bin"
    nanogpt.write([token_table([[1, 2], [3]], dtype)], path, end_of_text=END, header="llm.c")
    sign = "H" if dtype == "uint16" else "I"
    assert path.read_bytes() == header(magic, version, 5) + struct.pack(f"<5{sign}", END, 1, 2, END, 3)
    opened = nanogpt.open(path, end_of_text=END)
    assert documents_in(opened) == [[END, 1, 2], [END, 3]]
    assert opened.tokens.dtype == dtype
    assert isinstance(opened.tokens, np.memmap)
    assert nanogpt.open(path, header="llm.c").tokens.tolist() == opened.tokens.tolist()
    assert len(nanogpt.open(path, header="none", token_size=2).tokens) == path.stat().st_size // 2


def test_the_end_of_text_may_be_where_one_says(token_table, tmp_path, documents_in):
    path = tmp_path / "val.bin"
    nanogpt.write([token_table([[1, 2], [3]])], path, end_of_text=END, header="llm.c", place="end")
    assert documents_in(nanogpt.open(path, end_of_text=END, place="end")) == [[1, 2, END], [3, END]]
    assert documents_in(nanogpt.open(path, end_of_text=END)) == [[1, 2], [END, 3], [END]]


def test_without_an_end_of_text_documents_are_unknown_and_tokens_are_not(token_table, tmp_path, sentence_of):
    path = tmp_path / "train.bin"
    nanogpt.write([token_table([[1, 2], [3]])], path, end_of_text=END)
    opened = nanogpt.open(path)
    assert opened.tokens.tolist() == [1, 2, END, 3, END]
    assert "set end_of_text=ID" in sentence_of(FormatError, lambda: opened.ends)


@pytest.mark.parametrize("place", ["end", "start"])
@given(
    documents=st.lists(st.lists(st.sampled_from([1, 2, END]), max_size=4), max_size=6),
    cut=st.integers(0, 6),
    terminate=st.sampled_from(["missing", "never"]),
)
@settings(deadline=None)
def test_a_loss_is_named_if_documents_are_not_read_as_they_were(
    token_table, documents_in, place, documents, cut, terminate
):
    tables = [token_table(documents[:cut]), token_table(documents[cut:])]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "a.bin"
        written = nanogpt.write(tables, path, end_of_text=END, terminate=terminate, place=place, on_loss="warn")
        reference = Path(folder) / "a.ds"
        lc.formats.datatrove.write(tables, reference) if terminate == "never" else _terminated(
            token_table, documents, place, reference
        )
        expected = documents_in(lc.formats.datatrove.open(reference))
        same = documents_in(nanogpt.open(path, end_of_text=END, place=place)) == expected
        assert same == (not written.losses)


def _terminated(token_table, documents, place, path) -> None:
    added = []
    for one in documents:
        there = bool(one) and one[-1 if place == "end" else 0] == END
        added.append(one if there else [*one, END] if place == "end" else [END, *one])
    lc.formats.datatrove.write([token_table(added)], path)


def test_documents_that_cannot_be_told_apart_are_a_named_loss(token_table, tmp_path, sentence_of):
    path = tmp_path / "a.bin"
    table = token_table([[1, END, 2], [3], [4]])
    said = sentence_of(FormatError, nanogpt.write, [table], path, end_of_text=END)
    assert "cannot hold the ends of 1 documents, which do not have 600 at the end alone" in said
    assert "where 3 documents end, as no end_of_text was given" in sentence_of(
        FormatError, nanogpt.write, [table], path
    )
    assert not path.exists()


@pytest.mark.variants
@pytest.mark.parametrize(
    ("content", "opening", "said"),
    [
        (bytes(7), {}, "has 7 bytes, not a whole number of tokens of 2"),
        (bytes(6), {"token_size": 4}, "has 6 bytes, not a whole number of tokens of 4"),
        (header(20240520, 1, 3) + bytes(4), {}, "is cut: it ends at byte 1,028, and its header, with 3 tokens"),
        (header(20240520, 1, 3) + bytes(8), {}, "continues after byte 1,030"),
        (header(20240520, 1, -3), {}, "records at byte 8 that it has -3 tokens"),
        (header(20240801, 7, 3) + bytes(6), {}, "is cut: it ends at byte 1,030"),
        (header(3, 2, 3), {"header": "llm.c"}, "does not begin with the header of llm.c"),
        (header(20240520, 1, 3)[:900], {}, "is cut: it ends at byte 900"),
        (header(20240520, 1, 3)[:9], {"header": "llm.c"}, "does not begin with the header of llm.c"),
        (struct.pack("<3H", 1, 2, 700), {"vocabulary_size": 601}, "has id 700 at byte 4"),
        (header(20240520, 1, 1) + b"\xff\xff", {"vocabulary_size": 601}, "has id 65,535 at byte 1,024"),
    ],
)
def test_a_damaged_file_is_one_sentence_and_a_problem_of_verify(tmp_path, sentence_of, content, opening, said):
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert said in sentence_of(CorruptionError, nanogpt.open, path, **opening)
    assert any(said in problem for problem in nanogpt.verify(path, **opening).problems)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("fields", "owner"),
    [
        ((278895051, 1, 280, 2), "NVIDIA NeMo AutoModel"),
        ((278895051, 1, 280, 4), "NVIDIA NeMo AutoModel"),
        ((20240520, 3, 280), "llm.c"),
        ((20240520, 7, 280), "llm.c"),
        ((20240801, 1, 280), "llm.c"),
        ((20240520, 1, 280, 2), "llm.c"),
        ((20240801, 7, 280, *[0] * 200, 1), "llm.c"),
        ((987654321, 12, 280, 2, 50257), "an unknown project"),
        ((987654321, 0, 280), "an unknown project"),
    ],
)
@pytest.mark.parametrize("named", [None, "nanogpt"])
def test_a_header_that_is_not_read_is_an_error_for_every_reader(tmp_path, fields, owner, named):
    path = tmp_path / "train" / "a.bin"
    path.parent.mkdir()
    tokens = np.arange(1, 281, dtype=np.uint16)
    path.write_bytes(struct.pack("<256i", *fields, *[0] * (256 - len(fields))) + tokens.tobytes())
    said = rf"begins with a header of {owner} that is not read \(magic number {fields[0]}, version {fields[1]}\)"
    for read in (
        lambda: lc.formats.open_shard(path, format=named),
        lambda: lc.formats.verify_shard(path, format=named),
        lambda: lc.loading.Windows(path, seq_len=4, format=named),
        lambda: lc.loading.Windows(path.parent, seq_len=4, format=named),
        lambda: lc.loading.Packed(tmp_path, max_length=8, format=named),
        lambda: lc.loading.validate(tmp_path, format=named),
        lambda: convert(path, tmp_path / "b.ds", "datatrove", source_format=named),
        lambda: TokenSource(data_dir=str(path.parent), end_of_text=END).schema(),
    ):
        with pytest.raises(LongCrawlError, match=said):
            read()
    if named:
        assert lc.formats.open_shard(path, named, header="none").tokens[512:].tolist() == tokens.tolist()


@pytest.mark.parametrize(
    "tokens",
    [
        [*range(1, 30), *[0] * 600],
        [5, 17, 9, *[0] * 600],
        [55432, 308, 1, 1, 7, *range(1, 600)],
        [55432, 308],
        [0] * 600,
        [7, 7, 0, 0, 5, 0, 1, *range(1, 600)],
    ],
)
def test_tokens_that_begin_with_few_zeros_are_no_header(tmp_path, tokens):
    np.array(tokens, np.uint16).tofile(tmp_path / "a.bin")
    assert nanogpt.open(tmp_path / "a.bin").tokens.tolist() == tokens


def test_settings_that_contradict_the_file_or_do_not_exist_are_one_sentence(token_table, tmp_path, sentence_of):
    path = tmp_path / "a.bin"
    nanogpt.write([token_table([[1]])], path, end_of_text=END, header="llm.c")
    assert "records in its header that a token has 2 bytes, not 4" in sentence_of(
        FormatError, nanogpt.open, path, token_size=4
    )
    for wrong in ({"header": "yes"}, {"place": "middle"}, {"token_size": 3}):
        assert "takes one of" in sentence_of(FormatError, nanogpt.open, path, **wrong)
        if "token_size" not in wrong:
            assert "takes one of" in sentence_of(
                FormatError, nanogpt.write, [token_table([[1]])], path, end_of_text=END, **wrong
            )
