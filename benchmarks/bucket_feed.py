"""Tokens per second of the feed of composed samples, and what planning it takes.

    python benchmarks/bucket_feed.py [--tokens 20000000] [--samples 1000000]

One core, CPU time, files in the page cache, fresh int64 arrays for every batch. Documents have the lengths that
benchmarks/buckets.py fits to the paper, in two domains, and are composed into buckets of 2,048 to 16,384 tokens: an
array per bucket, or shards. The memory map gives tokens only, converted row by row, of the shards in their order. In
each repeat every feed has a turn; rates are medians, the spread is the largest over the smallest. "keyed" reads samples
in an order of its own, "none" in that of the dataset, which is shuffled when it is written.

Planning is of a feed that delivers everything, and of three phases; going on is ``load_state_dict`` and the first batch
in the middle of the written data. The last line is the memory map's rate over the feed's from shards, keyed.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from composed_write import lengths
from datasets import Dataset

import longcrawl as lc
from longcrawl.loading import ComposedBatches, ComposedPhase
from longcrawl.loading.buckets import StepPlan, plan_phases, plan_schedule
from longcrawl.loading.curriculum import BucketStock

CAPACITIES = (2048, 4096, 8192, 16384)
TOKENS_PER_STEP = 1 << 18
SHARES = {2048: 0.808, 4096: 0.1325, 8192: 0.0365, 16384: 0.023}
"""Samples of each capacity, by docs/composition.md."""

FORMATS = {"shards": "gpt-simple", "arrays": "zarr"}
STEPS_PLANNED = 1 << 21
REPETITIONS = 20


def write(folder: Path, tokens: int) -> None:
    chance = np.random.default_rng(0)
    ends = np.concatenate([[0], np.cumsum(lengths(tokens // 700, chance, 200_000))])
    ids = (1 + chance.zipf(1.2, ends[-1]) % 50_000).astype(np.uint16)  # compresses as tokens of texts do
    names = [str(number) for number in range(len(ends) - 1)]
    columns = {"id": names, "tokens": pa.LargeListArray.from_arrays(pa.array(ends), pa.array(ids))}
    columns["domain"] = ["code" if number % 3 == 0 else "web" for number in range(len(names))]
    crawl = lc.Crawl(Dataset(pa.table(columns)))
    for name, stored in FORMATS.items():
        crawl.write("composed", folder / name, end_of_text=0, domains="domain", capacities=CAPACITIES, format=stored)


def memmap_rows(folder: Path) -> Iterator[int]:
    """Read rows from memory-mapped files in the trainer's dtype, a lower bound for every feed."""
    for path in sorted(folder.glob("train/*/*/*.bin")):
        capacity = int(path.parent.name)
        tokens = np.memmap(path, np.uint16, "r")
        for start in range(0, len(tokens) - capacity + 1, capacity):
            yield tokens[start : start + capacity].astype(np.int64).size


def batches(feed: ComposedBatches) -> Iterator[int]:
    for step in range(len(feed)):
        yield feed[step]["input_ids"].size


def rate(turn: Iterator[int]) -> float:
    started = time.process_time()
    return sum(turn) / (time.process_time() - started)


def measure(folder: Path, repeats: int) -> dict[str, float]:
    feeds = {
        f"{name}, {shuffle}": ComposedBatches(folder / name, TOKENS_PER_STEP, shuffle=shuffle)
        for name in FORMATS
        for shuffle in ("keyed", "none")
    }
    rates: dict[str, list[float]] = {}
    for repeat in range(repeats + 1):
        turns = {"memory map": memmap_rows(folder / "shards")} | {name: batches(feed) for name, feed in feeds.items()}
        for name, turn in turns.items():
            found = rate(turn)
            if repeat:  # the first turn opens files and compiles kernels
                rates.setdefault(name, []).append(found)
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found) / 1e6:.0f} million tokens/s, spread {max(found) / min(found):.2f}")
    return {name: statistics.median(found) for name, found in rates.items()}


def planning(samples: int) -> None:
    stock = [
        BucketStock(domain, capacity, int(samples * share / 2))
        for domain in ("web", "code")
        for capacity, share in SHARES.items()
    ]
    tokens = sum(each.capacity * each.samples for each in stock)
    phases = [
        ComposedPhase(tokens // 8, {"web": 0.7, "code": 0.3}, {2048: 1}),
        ComposedPhase(tokens // 3, {"web": 0.6, "code": 0.4}),
        ComposedPhase(tokens // 3),
    ]
    plans = {
        "everything, mixed": lambda: plan_schedule(stock, STEPS_PLANNED, "mixed", "fill", 0),
        "three phases": lambda: plan_phases(phases, stock, STEPS_PLANNED),
    }
    for name, plan in plans.items():
        seconds, made = [], StepPlan
        for _ in range(3):
            started = time.process_time()
            made = plan()
            made.fingerprint(len(made))
            seconds.append(time.process_time() - started)
        print(f"planning {name}: {len(made.samples):,} samples in {len(made):,} steps, {min(seconds):.3f} s")


def going_on(folder: Path) -> None:
    feed = ComposedBatches(folder / "shards", TOKENS_PER_STEP)
    feed.hand_out(len(feed) // 2)
    state, seconds = feed.state_dict(), []
    for _ in range(REPETITIONS):
        started = time.process_time()
        feed.load_state_dict(state)
        next(iter(feed))
        seconds.append(time.process_time() - started)
    print(f"going on in the middle, step {len(feed) // 2:,}: {statistics.median(seconds) * 1e3:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    planning(options.samples)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.tokens)
        rates = measure(Path(folder), options.repeats)
        going_on(Path(folder))
    print(f"bucket_feed ratio={rates['memory map'] / rates['shards, keyed']:.1f}")


if __name__ == "__main__":
    main()
