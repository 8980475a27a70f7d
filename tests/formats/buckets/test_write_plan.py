"""The plan of a bucketed dataset, made pool by pool: that of all documents at once."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longcrawl.formats.buckets import write
from longcrawl.tokens import measures
from longcrawl.tokens.measures import measure, named_strategy
from longcrawl.tokens.strategies import Buckets

SEED = 3


def planned(strategy, lengths):
    """Return samples, pieces and measures of all documents, planned in memory."""
    plan = strategy.plan(lengths)
    plan = plan if isinstance(strategy, Buckets) else plan.in_buckets(SEED)
    pieces = np.stack([plan.documents, plan.starts, plan.sizes], axis=1).reshape(-1)
    counts = np.diff(plan.bounds)
    of_buckets = tuple(int(counts[plan.capacities == capacity].sum()) for capacity in strategy.capacities)
    return plan.bounds.tolist(), pieces.tolist(), of_buckets, measure(plan, strategy.label, strategy.capacities)


@pytest.mark.variants
@pytest.mark.parametrize(
    "strategy",
    [
        named_strategy("buckets", [4, 8, 16], seed=SEED, pool_size=3),
        named_strategy("buckets", [4, 8, 16], seed=SEED),
        named_strategy("first-fit", [8], seed=SEED, pool_size=2),
        named_strategy("best-fit", [8], seed=SEED),
        named_strategy("fixed", [8], seed=SEED),
        named_strategy("multi-bucket", [4, 8], seed=SEED),
        named_strategy("padded", [8], long_documents="fragment"),
        named_strategy("interleaved", [8], seed=SEED, pool_size=3),
    ],
    ids=lambda strategy: f"{strategy.label} {strategy.pool_size}",
)
@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=30), group=st.integers(1, 9))
@example(lengths=[0], group=1)
@settings(deadline=None)
def test_pools_make_the_plan_of_all_documents(strategy, lengths, group):
    sizes = np.zeros(len(lengths), [("part", "<u4"), ("bytes", "<u8")])  # as they are mapped
    sizes["bytes"] = lengths
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "GROUP_SAMPLES", group)
        found = write.plan_split(Path(folder), strategy, SEED, sizes["bytes"], ("train", None, "", 7, 100))
        bounds = np.fromfile(Path(folder, "plan-00007.bounds"), np.int64).tolist()
        pieces = np.fromfile(Path(folder, "plan-00007.pieces"), np.int64).tolist()
    assert (bounds, pieces, found.pieces, found.composition) == planned(strategy, np.array(lengths, np.int64))
    assert dataclasses.astuple(found)[:6] == ("train", None, "", 7, 100, len(lengths))


@pytest.mark.parametrize("count", [100, 1000, 1001, 2048, 54_321])
def test_blocks_change_no_bit_of_a_sum(count, monkeypatch):
    lengths = np.random.default_rng(count).integers(1, 1 << 40, count)  # whose squares are rounded
    sizes = lengths.astype(np.float64)
    monkeypatch.setattr(measures, "BLOCK", 200)
    assert measures._context(lengths) == float((sizes * (sizes - 1) / 2).sum())
