"""Token shards for feeds: folders of buckets whose tokens all differ, so that each can be counted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import longcrawl as lc
from longcrawl.formats.shards.spec import FORMATS


@pytest.fixture(scope="session")
def write_shards() -> Callable[..., list[list[int]]]:
    """Return what writes documents of such lengths as shards, in some format, and returns their tokens."""

    def write(folder: Path, lengths: list[int], first: int = 1, shards: int = 2, name="gpt_simple", **columns):
        folder.mkdir(parents=True, exist_ok=True)
        ends = np.cumsum(lengths) + first
        documents = [list(range(end - length, end)) for end, length in zip(ends.tolist(), lengths, strict=True)]
        module = getattr(lc.formats, name)
        for number in range(shards):
            rows = range(number * len(lengths) // shards, (number + 1) * len(lengths) // shards)
            made = {"tokens": pa.array([documents[row] for row in rows], pa.list_(pa.uint32()))}
            made |= {each: pa.array([values[row] for row in rows]) for each, values in columns.items()}
            suffix = FORMATS[name.replace("_", "-")].suffix
            module.write([pa.table(made)], folder / f"{number}{suffix}")
        return documents

    return write


@pytest.fixture(scope="session")
def buckets(tmp_path_factory, write_shards) -> Path:
    """Return a folder with the buckets code, math and web, and a split val; token ids are below 20,000."""
    folder = tmp_path_factory.mktemp("buckets")
    chance = np.random.default_rng(0)
    first = 1
    for name, documents in {"code": 120, "math": 40, "web": 200}.items():
        lengths = chance.integers(0, 40, documents).tolist()
        write_shards(folder / "train" / name, lengths, first)
        first += sum(lengths)
    write_shards(folder / "val", [5, 9, 30], 15_000, 1)
    return folder


@pytest.fixture(scope="session")
def global_samples() -> Callable[..., list[tuple[list[int], list[int]]]]:
    """Return what puts the batches of all ranks at one step together: tokens and labels, in global order."""

    def order(batches: list[dict]) -> list[tuple[list[int], list[int]]]:
        rows = [
            (np.asarray(batch["input_ids"])[row].tolist(), np.asarray(batch["labels"])[row].tolist())
            for row in range(len(batches[0]["input_ids"]))
            for batch in batches
        ]
        return [row for row in rows if any(label != -100 for label in row[1]) or any(row[0])]

    return order
