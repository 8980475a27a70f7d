"""Shards of made-up documents, as the tests of windows write them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import longcrawl as lc

END = 7


def table(documents: Sequence[Any], dtype: npt.DTypeLike = np.uint16, **columns: Any) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in documents])]).astype(np.int32)
    tokens = np.concatenate([np.empty(0), *documents]).astype(dtype)
    return pa.table({"tokens": pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens)), **columns})


def write(path: Path, lengths: Sequence[int], dtype: npt.DTypeLike = np.uint16, seed: int = 0) -> npt.NDArray[np.int64]:
    """Write a shard of documents of these lengths, each with its end of text if it has a token; give its tokens."""
    chance = np.random.default_rng([seed, *lengths])
    documents = [np.append(chance.integers(8, 60_000, length - 1), END) if length else [] for length in lengths]
    lc.formats.datatrove.write([table(documents, dtype)], path)
    return np.concatenate([np.empty(0), *documents]).astype(np.int64)


def copy_to(url: str, folder: Path) -> None:
    files, root = fsspec.core.url_to_fs(url)
    for file in folder.rglob("*"):
        if file.is_file():
            files.pipe_file(f"{root}/{file.relative_to(folder).as_posix()}", file.read_bytes())
