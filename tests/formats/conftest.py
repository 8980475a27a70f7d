"""What the tests of token shards share: tables of documents, and documents out of shards."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import longcrawl as lc


@pytest.fixture(scope="session")
def token_table() -> Callable[..., pa.Table]:
    """Give a maker of tables: documents as lists of ids, and further columns as lists."""

    def make(documents: Sequence[Sequence[int]], dtype: str = "uint16", **columns: Sequence[Any]) -> pa.Table:
        kinds = {"overlap": pa.uint32(), "loss_mask": pa.list_(pa.bool_()), "id": pa.string()}
        made = {"tokens": pa.array(documents, pa.list_(pa.from_numpy_dtype(np.dtype(dtype))))}
        return pa.table(made | {name: pa.array(values, kinds[name]) for name, values in columns.items()})

    return make


@pytest.fixture(scope="session")
def documents_in() -> Callable[[lc.formats.TokenShard], list[list[int]]]:
    """Give what reads a shard document by document."""
    return lambda shard: [shard.document(number).tolist() for number in range(len(shard))]


@pytest.fixture(scope="session")
def sentence_of() -> Callable[..., str]:
    """Give what calls a function and returns the one sentence with which it refuses."""

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
