"""Fixtures for tests of formats: documents and a tokenizer for runs, tables of documents, documents of shards."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import longcrawl as lc


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """Return a folder with four files of 25 documents each, of 1 to 90 words, in two languages, from three hosts."""
    chance = random.Random(3)
    folder = tmp_path_factory.mktemp("source")
    for part in range(4):
        with (folder / f"{part:02d}.jsonl").open("w") as lines:
            for number in range(25):
                words = ["".join(chance.choices("abcdefgh", k=4)) for _ in range(chance.choice([1, 9, 40, 90]))]
                document = {"id": f"{part}-{number}", "text": " ".join(words), "language": chance.choice(["en", "de"])}
                document["url"] = f"https://www.site{number % 3}.org/{part}/{number}"
                lines.write(json.dumps(document) + "\n")
    return folder


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> str:
    """Return a tokenizer of the letters of :func:`source`."""
    table = pa.table({"text": ["abcdefgh " * 10]})
    folder = tmp_path_factory.mktemp("tokenizer")
    return lc.tokens.Tokenize("trained", vocabulary_size=300).fit([table], str(folder)).tokenizer


@pytest.fixture(scope="session")
def token_table() -> Callable[..., pa.Table]:
    """Return a maker of tables: documents as lists of ids, and further columns as lists."""

    def make(documents: Sequence[Sequence[int]], dtype: str = "uint16", **columns: Sequence[Any]) -> pa.Table:
        kinds = {"overlap": pa.uint32(), "loss_mask": pa.list_(pa.bool_()), "id": pa.string()}
        made = {"tokens": pa.array(documents, pa.list_(pa.from_numpy_dtype(np.dtype(dtype))))}
        return pa.table(made | {name: pa.array(values, kinds[name]) for name, values in columns.items()})

    return make


@pytest.fixture(scope="session")
def documents_in() -> Callable[[lc.formats.TokenShard], list[list[int]]]:
    """Return what reads a shard document by document."""
    return lambda shard: [shard.document(number).tolist() for number in range(len(shard))]


@pytest.fixture(scope="session")
def sentence_of() -> Callable[..., str]:
    """Return what calls a function and returns the one sentence with which it refuses."""

    def refused(error: type[Exception], call: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
        with pytest.raises(error) as raised:
            call(*arguments, **settings)
        said = str(raised.value)
        assert "\n" not in said
        assert not said.endswith(".")
        return said

    return refused


@pytest.fixture
def no_partial_files(tmp_path) -> Iterator[None]:
    """Check that nothing unfinished is left behind."""
    yield
    assert not [file for file in tmp_path.rglob("*") if ".partial" in file.name or file.name.startswith(".")]
