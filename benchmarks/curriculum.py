"""Plan a curriculum and resume in the middle of it.

    python benchmarks/curriculum.py [--tokens 4000000000] [--written 20000000] [--documents 1000000]

One core. The plan is of two phases over four buckets whose samples have 1,500 to 2,048 tokens. "one draw at a time" is
GPT-Simple 0.1.2's rule, a generator of Python's library seeded for each sample, written here again and timed on part of
the samples. Going on is ``load_state_dict`` and the first batch of eight, with shards that are written for it and lie
in the page cache, at the beginning and in the middle; the medians of some repetitions, in a feed that is open. What
comes before that in a new process is timed with so many documents of 40 tokens on average: making the feed, which packs
them, loading a state, the first batch with its kernels out of numba's cache; and how large the feed is when it is sent
to another process. The last line is how many times as long one draw at a time takes as the plan.
"""

import argparse
import multiprocessing
import pickle
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import longcrawl as lc
from longcrawl.loading import Packed, Phase, plan_curriculum

SAMPLES = {"web": 0.55, "code": 0.28, "math": 0.09, "wiki": 0.08}
MIXES = [
    {"web": 0.6, "code": 0.2, "math": 0.1, "wiki": 0.1},
    {"web": 0.3, "code": 0.3, "math": 0.2, "wiki": 0.2},
]
DRAWN = 50_000
REPETITIONS = 20


def two_phases(tokens: int) -> list[Phase]:
    return [Phase(tokens // 2, mix) for mix in MIXES]


def plan_seconds(tokens: int) -> tuple[float, int]:
    """Return seconds of the fastest of three plans, and their samples."""
    chance = np.random.default_rng(0)
    samples = int(tokens * 2.4 / 1774)
    inventory = {name: chance.integers(1500, 2049, int(samples * share)) for name, share in SAMPLES.items()}
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        plan = plan_curriculum(two_phases(tokens), inventory)
        seconds.append(time.perf_counter() - started)
    print(f"plan: {len(plan):,} samples, {plan.picks.nbytes:,} bytes, {min(seconds):.3f} s")
    for number, (phase, mix) in enumerate(zip(plan.phases, MIXES, strict=True), 1):
        total = sum(phase.tokens.values())
        most = max(abs(phase.tokens[name] / total - share) for name, share in mix.items())
        print(f"phase {number}: {total:,} tokens, no share further than {most:.5f} from what was asked")
    return min(seconds), len(plan)


def draw_seconds() -> float:
    """Return seconds of a draw by GPT-Simple's rule."""
    names, weights = zip(*MIXES[0].items(), strict=True)
    started = time.perf_counter()
    for number in range(DRAWN):
        key = (42 * 0x9E3779B97F4A7C15) ^ (number * 0x94D049BB133111EB)
        random.Random(key % 2**64).choices(names, weights)
    return (time.perf_counter() - started) / DRAWN


def write_buckets(folder: Path, tokens: int) -> None:
    chance = np.random.default_rng(0)
    for name, share in SAMPLES.items():
        lengths = chance.geometric(1 / 500, int(tokens * share / 500))
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids = chance.integers(0, 50_256, ends[-1], dtype=np.uint16)
        (folder / "train" / name).mkdir(parents=True)
        table = pa.table({"tokens": pa.ListArray.from_arrays(pa.array(ends), pa.array(ids))})
        lc.formats.gpt_simple.write([table], folder / "train" / name / "0.bin")


def going_on(folder: Path, tokens: int) -> None:
    """Distinguish what opening a feed takes, and going on at its first sample and in its middle."""
    started = time.perf_counter()
    feed = Packed(folder, two_phases(tokens), max_length=2048, batch_size=8)
    print(f"opening, packing and planning {tokens:,} of the written tokens: {time.perf_counter() - started:.3f} s")
    for where, sample in (("beginning", 0), ("middle", len(feed) // 2 * 8)):
        state = feed.state_dict() | {
            "position": sample,
            "curriculum up to here": feed.plan.fingerprint(sample),
        }
        seconds = []
        for _ in range(REPETITIONS):
            started = time.perf_counter()
            feed.load_state_dict(state)
            next(iter(feed))
            seconds.append(time.perf_counter() - started)
        print(f"going on at the {where}, sample {sample:,}: {statistics.median(seconds) * 1e3:.2f} ms")


def open_afresh(folder: Path, state: dict[str, Any] | None) -> tuple[dict[str, Any], list[float], int]:
    """Open a feed; give its state, the seconds of opening, loading and the first batch, and its bytes when pickled."""
    moments = [time.perf_counter()]
    feed = Packed(folder, max_length=2048, batch_size=8)
    moments.append(time.perf_counter())
    if state is not None:
        feed.load_state_dict(state)
    moments.append(time.perf_counter())
    next(iter(feed))
    moments.append(time.perf_counter())
    return feed.state_dict(), np.diff(moments).tolist(), len(pickle.dumps(feed))


def opening(folder: Path, documents: int) -> None:
    """Distinguish what a new process pays before its first batch."""
    chance = np.random.default_rng(0)
    ends = np.concatenate([[0], np.cumsum(chance.geometric(1 / 40, documents))]).astype(np.int32)
    ids = chance.integers(0, 50_256, ends[-1], dtype=np.uint16)
    folder.mkdir()
    table = pa.table({"tokens": pa.ListArray.from_arrays(pa.array(ends), pa.array(ids))})
    lc.formats.gpt_simple.write([table], folder / "0.bin")
    state, measured = None, []
    for _ in range(4):
        with multiprocessing.get_context("spawn").Pool(1) as processes:
            state, seconds, size = processes.apply(open_afresh, (folder, state))
        measured.append(seconds)
    opened, loaded, first = np.median(measured[1:], axis=0).tolist()
    print(
        f"a new process, {documents:,} documents: opening {opened:.3f} s, loading a state {loaded:.3f} s, first batch "
        f"{first:.3f} s; pickled {size / 1e6:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4_000_000_000)
    parser.add_argument("--written", type=int, default=20_000_000)
    parser.add_argument("--documents", type=int, default=1_000_000)
    options = parser.parse_args()
    seconds, samples = plan_seconds(options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        write_buckets(Path(folder), options.written)
        going_on(Path(folder), options.written // 3)
        opening(Path(folder) / "short", options.documents)
    one = draw_seconds()
    print(f"one draw at a time: {one * 1e6:.1f} us a sample, {one * samples:.1f} s for as many")
    print(f"curriculum ratio={one * samples / seconds:.0f}")


if __name__ == "__main__":
    main()
