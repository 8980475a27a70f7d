"""Which format a shard is in, and which split of a folder."""

import json
from pathlib import Path

import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import FormatError
from longcrawl.formats.shards.base import Parsed, ShardFormat, shard_format
from longcrawl.formats.shards.spec import FORMATS, sort_into_splits

END = 600


def test_a_format_of_another_package_is_registered_and_used_as_ours(token_table, documents_in, tmp_path):
    class Lines(ShardFormat):
        suffix = ".tokens"

        @classmethod
        def shard_files(cls, path):
            return (Path(path),)

        @classmethod
        def encode(cls, stream, files):
            lines = [json.dumps(each) for batch in stream for each in batch.table()["tokens"].to_pylist()]
            files.beside(".tokens").write_text("\n".join(lines))

        @classmethod
        def decode(cls, opening):
            documents = [json.loads(line) for line in opening.files[0].read_text().splitlines()]
            ends = np.cumsum([len(each) for each in documents])
            return Parsed(np.array([token for each in documents for token in each], np.uint16), ends)

    shard_format("lines")(Lines)
    try:
        lc.formats.datatrove.write(token_table([[1, 2], [3]]), tmp_path / "a.ds", end_of_text=END)
        assert "shard of lines, 2 documents, 5 tokens" in str(lc.convert(tmp_path / "a.ds", tmp_path / "a.tokens"))
        assert documents_in(lc.formats.open_shard(tmp_path / "a.tokens")) == [[1, 2, END], [3, END]]
    finally:
        del FORMATS["lines"]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a/0.bin", "1.bin"], {"train": ["a/0.bin", "1.bin"]}),
        (["train/0.bin", "val/0.bin"], {"train": ["train/0.bin"], "val": ["val/0.bin"]}),
        (["web/train/0.bin", "web/test/0.bin"], {"train": ["web/train/0.bin"], "test": ["web/test/0.bin"]}),
        (
            ["heldout-00000-of-00001.parquet", "0.bin"],
            {"heldout": ["heldout-00000-of-00001.parquet"], "train": ["0.bin"]},
        ),
        (["0.bin", "val/0.bin"], None),
    ],
)
def test_shards_are_of_the_split_whose_folder_they_are_in(names, splits):
    if splits is not None:
        assert sort_into_splits(names) == splits
        return
    with pytest.raises(FormatError, match=r"0.bin is beside the folder val, so its split is unknown"):
        sort_into_splits(names)
