"""Writing documents as parquet files: MB/s of documents, and peak memory against their number.

Each size is written in a process of its own, through both passes (spill, order, files), by the writer that runs use, as
they come and shuffled. Beside it, pyarrow alone writes the same documents in the order in which they come, one batch
after the other: what a single pass costs that cannot order them. Memory is the process's own (RssAnon: without pages of
files, which the system takes back when it needs them), above that before the first document.

    python benchmarks/parquet_write.py            # 128 and 512 MB of documents, about a minute
    python benchmarks/parquet_write.py --quick    # 32 and 64 MB

The last three lines are the growth of peak memory from the smaller to the larger size, shuffled (1 is flat), how many
times the plain writer's time the build takes, and how many times that it takes shuffled.
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

BATCH = 200
CHARACTERS = 5_000
"""Mean characters in a document."""


def tables(documents: int) -> Iterator[pa.Table]:
    """Yield documents as a run's last stage hands them to the writer: words of a Zipf distribution, of many lengths."""
    from longcrawl.kernels.keyed_hash import keyed_hash

    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("etaoinshrdlu"), size)) for size in random.integers(2, 9, 20_000)]
    stream = " ".join(words[place] for place in random.zipf(1.2, 2_000_000) % len(words))
    for first in range(0, documents, BATCH):
        starts = random.integers(0, len(stream) - 100_000, BATCH)
        lengths = np.minimum(random.exponential(CHARACTERS, BATCH).astype(int) + 1, 100_000)
        texts = [stream[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        ids = [f"d{number}" for number in range(first, first + BATCH)]
        columns = {"id": ids, "text": pa.array(texts, pa.large_string()), "language": ["en", "de"] * (BATCH // 2)}
        yield pa.table(columns | {"sort_key": pa.array(keyed_hash(ids, "shuffle", 0), pa.uint64())})


def write(kind: str, documents: int, folder: Path) -> dict[str, float]:
    """Write one dataset in this process and say how long it took and what memory it had at most."""
    import pyarrow.parquet as pq

    import longcrawl as lc
    from longcrawl.formats.documents import ParquetOutput

    making = time.perf_counter()
    for _ in tables(documents):
        pass
    making = time.perf_counter() - making
    peak, started = Peak(), time.perf_counter()
    if kind == "plain":
        file = None
        for table in tables(documents):
            plain = table.drop_columns("sort_key")
            file = file or pq.ParquetWriter(folder / "a.parquet", plain.schema, compression="zstd", compression_level=3)
            file.write_table(plain)
        file.close()
    else:
        writer = ParquetOutput().writer([lc.tokens.Shuffle()] if kind == "shuffled" else [])
        spill, target = folder / "spill", folder / "made"
        writer.spill(tables(documents), spill, 0)
        written = [writer.write(spill, target, task) for task in writer.plan(spill, 1)]
        writer.finish(spill, target, written)
    # What it takes to make the documents is no part of it.
    return {"seconds": time.perf_counter() - started - making, "peak": peak.most - peak.before}


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
    sizes = [32, 64] if options.quick else [128, 512]
    print(f"{'MB':>5}  {'kind':<9}  {'MB/s':>6}  {'peak MB':>8}")
    found = {}
    for size in sizes:
        for kind in ("plain", "in order", "shuffled"):
            found[kind, size] = told = measured(kind, size * 10**6 // CHARACTERS // BATCH * BATCH)
            print(f"{size:>5}  {kind:<9}  {size / told['seconds']:>6.0f}  {told['peak'] / 1e6:>8.0f}")
    small, large = sizes
    plain = found["plain", large]["seconds"]
    print(f"parquet_write_memory ratio={found['shuffled', large]['peak'] / found['shuffled', small]['peak']:.3f}")
    print(f"parquet_write ratio={found['in order', large]['seconds'] / plain:.3f}")
    print(f"parquet_write_shuffled ratio={found['shuffled', large]['seconds'] / plain:.3f}")


if __name__ == "__main__":
    main()
