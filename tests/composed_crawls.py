"""Crawls of made-up tokens, composed into buckets: what the tests of bucketed datasets begin with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

import longcrawl as lc
from longcrawl.formats import Composed, open_composed

END = 7


def documents(lengths: Sequence[int], masked: float | None = None, **columns: Sequence[Any]) -> lc.Crawl:
    draw = np.random.default_rng(0)
    tokens = [draw.integers(8, 60_000, length).tolist() for length in lengths]
    made = {"id": pa.array([f"d{row}" for row in range(len(tokens))])}
    made["url"] = pa.array([f"https://www.site.org/{row}" for row in range(len(tokens))])
    made["tokens"] = pa.array(tokens, pa.list_(pa.uint16()))
    if masked is not None:
        flags = [(draw.random(length) >= masked).tolist() for length in lengths]
        made["loss_mask"] = pa.array(flags, pa.list_(pa.bool_()))
    return lc.Crawl(Dataset(pa.table(made | {name: pa.array(values) for name, values in columns.items()})))


def compose(crawl: lc.Crawl, path: Path, capacities: Sequence[int] = (16, 32, 64), **fields: Any) -> Composed:
    crawl.to_composed(path, capacities=list(capacities), end_of_text=END, **fields)
    return open_composed(path)
