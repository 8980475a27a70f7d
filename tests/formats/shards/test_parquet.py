"""Tokens in parquet: columns, metadata, row groups, files of others, damage."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

token_parquet = lc.formats.token_parquet
END = 600


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    masks = [[True, False], [True], []]
    table = token_table([[1, 2], [3], []], overlap=[0, 1, 0], loss_mask=masks, id=["a", "b", "c"])
    token_parquet.write(
        [table.slice(0, 1), table.slice(1)], tmp_path / "a.parquet", vocabulary_size=END + 1, tokenizer="gpt2"
    )
    return tmp_path / "a.parquet"


def test_columns_types_and_metadata_are_those_of_the_specification(shard):
    table = pq.read_table(shard)
    assert table.to_pydict() == {
        "tokens": [[1, 2], [3], []],
        "n_tokens": [2, 1, 0],
        "overlap": [0, 1, 0],
        "loss_mask": [[True, False], [True], []],
        "id": ["a", "b", "c"],
    }
    assert table.schema.field("tokens").type.value_type == pa.uint16()
    assert json.loads(table.schema.metadata[b"longcrawl"]) == {"vocabulary_size": END + 1, "tokenizer": "gpt2"}


def test_a_shard_is_read_with_all_that_it_says(shard, documents_in):
    opened = token_parquet.open(shard)
    assert documents_in(opened) == [[1, 2], [3], []]
    assert opened.overlaps.tolist() == [0, 1, 0]
    assert opened.loss_mask.tolist() == [True, False, True]
    assert (opened.vocabulary_size, opened.tokenizer, opened.left_out) == (END + 1, "gpt2", ("the column id",))
    assert isinstance(opened.tokens, np.memmap)
    assert not token_parquet.verify(shard).problems


def test_a_file_of_nothing_but_tokens_and_their_mask_keeps_both(tmp_path):
    columns = {"tokens": [[1], [2, 3]], "loss_mask": [[True], [True, False]]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert token_parquet.open(tmp_path / "a.parquet").loss_mask.tolist() == [True, True, False]


def test_plain_datasets_reads_it(shard):
    data = load_dataset("parquet", data_files=str(shard), split="train")
    assert data["tokens"][:] == [[1, 2], [3], []]


def test_row_groups_have_bounded_tokens(token_table, tmp_path, monkeypatch):
    monkeypatch.setattr(token_parquet, "GROUP_TOKENS", 10)
    lengths = [4, 4, 4, 30, 1, 9, 1]
    token_parquet.write([token_table([[1] * length for length in lengths])], tmp_path / "a.parquet")
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [2, 1, 1, 2, 1]


def test_files_of_others_are_read_by_the_name_of_their_column(tmp_path, documents_in, sentence_of):
    path = tmp_path / "theirs.parquet"
    columns = {"input_ids": pa.array([[1, 2], [70_000]], pa.large_list(pa.int64())), "text": ["a", "b"]}
    pq.write_table(pa.table(columns), path)
    assert "has no column 'tokens'; it has input_ids, text" in sentence_of(FormatError, token_parquet.open, path)
    assert "name another as column" in sentence_of(FormatError, token_parquet.open, path, column="text")
    opened = token_parquet.open(path, column="input_ids")
    assert documents_in(opened) == [[1, 2], [70_000]]
    assert opened.tokens.dtype == np.uint32
    assert opened.left_out == ("the column text",)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"tokens": pa.array([[1], [-2]], pa.list_(pa.int32()))}, "cannot be read after row 0"),
        (
            {"tokens": pa.array([[1], None], pa.list_(pa.int32()))},
            "a.parquet contradicts itself: the column 'tokens' has nulls",
        ),
        ({"tokens": [[1], [2]], "n_tokens": [1, 2]}, "row 1 of these records that it has 2 tokens, it has 1"),
        (
            {"tokens": [[1], [2]], "loss_mask": [[True], [True, False]]},
            "2 values of 'loss_mask' for the 1 tokens of row 1",
        ),
    ],
)
def test_files_that_contradict_themselves_are_one_sentence(tmp_path, sentence_of, columns, said):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert said in sentence_of(FormatError, token_parquet.open, tmp_path / "a.parquet")


def test_settings_that_contradict_the_file_are_one_sentence(shard, sentence_of):
    said = sentence_of(FormatError, token_parquet.open, shard, vocabulary_size=700)
    assert "records that its vocabulary_size is 601, not 700: remove vocabulary_size" in said


def test_metadata_that_is_no_json_object_is_one_sentence(tmp_path, sentence_of):
    for text in (b"{", b"[1]"):
        table = pa.table({"tokens": [[1]]}).replace_schema_metadata({b"longcrawl": text})
        pq.write_table(table, tmp_path / "a.parquet")
        said = sentence_of(CorruptionError, token_parquet.open, tmp_path / "a.parquet")
        assert "has metadata under 'longcrawl' that is not a JSON object" in said


def test_metadata_of_other_types_are_one_sentence(tmp_path, sentence_of):
    table = pa.table({"tokens": [[1]]}).replace_schema_metadata({b"longcrawl": b'{"end_of_text": "<|endoftext|>"}'})
    pq.write_table(table, tmp_path / "a.parquet")
    said = sentence_of(CorruptionError, token_parquet.open, tmp_path / "a.parquet")
    assert "records under 'longcrawl' that its end_of_text is '<|endoftext|>'" in said


def test_tables_of_different_columns_are_one_sentence(token_table, tmp_path, sentence_of):
    tables = [token_table([[1]], id=["a"]), token_table([[2]])]
    assert "have different columns" in sentence_of(FormatError, token_parquet.write, tables, tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())
