"""Writing composed datasets: documents and MB of tokens a second, peak memory against their number, and reading.

Documents have lengths like those of the paper (the fit of benchmarks/buckets.py) and tokens of a Zipf distribution.
Each size is written in a process of its own on one core, shuffled, through both passes, by the writer that runs use: as
Zarr, as GPT-Simple's shards, and, beside it, as the same shards by the output ``gpt-simple``, which moves the same
tokens and composes nothing. Times are of the passes: what is spilled, what is planned, what is written. Memory is the
process's own (RssAnon), above that before the first document, and of all but the making of documents. In the end the
samples of 2,048 tokens are read, 32 at a time: from the first on, in random order, and in random order once more, when
the tables of pieces have been read.

    python benchmarks/composed_write.py            # 25,000 and 100,000 documents, about two minutes
    python benchmarks/composed_write.py --quick    # 10,000 and 20,000

The last two lines are the growth of peak memory from the smaller to the larger number of documents (1 is flat), and how
many times the time of the plain shards composing and writing the same shards takes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from _measures import Peak

BATCH = 500
END = 0


def lengths(documents: int, chance: np.random.Generator | None = None, most: int = 2_000_000) -> np.ndarray:
    """Draw lengths in tokens: lognormal up to 935, a Pareto tail from there on, cut at ``most``."""
    chance = chance or np.random.default_rng(0)
    drawn = np.exp(chance.normal(5.8584, 1.3956, documents))
    beyond = drawn > 935
    drawn[beyond] = 935 * chance.random(beyond.sum()) ** (-1 / 1.8419)
    return np.clip(drawn, 1, most).astype(np.int64)


def tables(documents: int) -> Iterator[pa.Table]:
    """Yield documents as a run's last stage hands them to the writer."""
    from longcrawl.kernels.keyed_hash import keyed_hash

    chance = np.random.default_rng(1)
    stream = (1 + chance.zipf(1.2, 4_000_000) % 50_000).astype(np.uint16)
    sizes = lengths(documents)
    for first in range(0, documents, BATCH):
        here = sizes[first : first + BATCH]
        starts = chance.integers(0, len(stream) - here)
        tokens = np.concatenate([stream[start : start + size] for start, size in zip(starts, here, strict=True)])
        offsets = pa.array(np.concatenate([[0], np.cumsum(here)]), pa.int32())
        ids = [f"d{number}" for number in range(first, first + len(here))]
        columns = {"id": ids, "url": [f"https://www.site{number % 97}.org/{number}" for number in range(len(ids))]}
        columns["tokens"] = pa.ListArray.from_arrays(offsets, pa.array(tokens))
        yield pa.table(columns | {"sort_key": pa.array(keyed_hash(ids, "shuffle", 0), pa.uint64())})


def write(kind: str, documents: int, folder: Path) -> dict[str, float]:
    """Write one dataset in this process and say how long it took and what memory it had at most."""
    import longcrawl as lc
    from longcrawl.core.outputs import OUTPUTS

    settings = {} if kind == "plain" else {"format": kind}
    output = OUTPUTS["gpt-simple" if kind == "plain" else "composed"](end_of_text=END, **settings)
    lc.tokens.Buckets().plan([5_000, 900, 300])  # compiles, or loads what was compiled
    writer = output.writer([lc.tokens.Shuffle()])
    making = time.process_time()
    for _ in tables(documents):
        pass
    making = time.process_time() - making
    spill, target = folder / "spill", folder / "made"
    peak, clock = Peak(), [time.process_time()]
    writer.spill(tables(documents), spill, 0)
    clock.append(time.process_time())
    tasks = writer.plan(spill, 1)
    clock.append(time.process_time())
    writer.finish(spill, target, [writer.write(spill, target, task) for task in tasks])
    clock.append(time.process_time())
    spilled, planned, written = np.diff(clock).tolist()
    # What it takes to make the documents is no part of it.
    told = {"spill": spilled - making, "plan": planned, "write": written, "peak": peak.most - peak.before}
    return told | (read(target) if kind != "plain" else {})


def read(target: Path) -> dict[str, float]:
    """Return MB of tokens read a second, from samples one after the other and in random order."""
    import longcrawl as lc

    told = {}
    for order in ("in order", "random", "random again"):
        if order != "random again":
            bucket = lc.formats.open_composed(target).bucket(2048)
        numbers = np.arange(len(bucket))
        if order != "in order":
            np.random.default_rng(len(order)).shuffle(numbers)
        numbers = numbers[: 32 * 100]
        started = time.process_time()
        for first in range(0, len(numbers), 32):
            bucket.read(numbers[first : first + 32])
        told[order] = len(numbers) * 2048 * 2 / 1e6 / (time.process_time() - started)
    return told


def measured(kind: str, documents: int) -> dict[str, float]:
    """Run :func:`write` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", kind, str(documents), folder]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("KIND", "DOCUMENTS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, documents, folder = options.child
        print(json.dumps(write(kind, int(documents), Path(folder))))
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sizes = [10_000, 20_000] if options.quick else [25_000, 100_000]
    print("documents  kind          MB  spill s  plan s  write s  documents/s  MB/s  peak MB")
    found = {}
    for size in sizes:
        for kind in ("zarr", "gpt-simple", "plain"):
            found[kind, size] = told = measured(kind, size)
            megabytes = 2 * (lengths(size).sum() + size) / 1e6
            told["seconds"] = told["spill"] + told["plan"] + told["write"]
            print(
                f"{size:>9,}  {kind:<10}  {megabytes:>4.0f}  {told['spill']:>7.2f}  {told['plan']:>6.2f}  "
                f"{told['write']:>7.2f}  {size / told['seconds']:>11,.0f}  {megabytes / told['seconds']:>4.0f}  "
                f"{told['peak'] / 1e6:>7.0f}"
            )
    for kind in ("zarr", "gpt-simple"):
        told = found[kind, sizes[1]]
        speeds = ", ".join(f"{order} {told[order]:,.0f} MB/s" for order in ("in order", "random", "random again"))
        print(f"samples of 2,048 tokens read from {kind}: {speeds}")
    small, large = sizes
    print(f"composed_write_memory ratio={found['zarr', large]['peak'] / found['zarr', small]['peak']:.3f}")
    ratio = found["gpt-simple", large]["seconds"] / found["plain", large]["seconds"]
    print(f"composed_write ratio={ratio:.3f}")


if __name__ == "__main__":
    main()
