"""Building a rectangle: MB/s of raw tokens, and peak memory against the number of rows.

Each size is built in a process of its own, through both passes (spill, order, bands), by the writer that runs use.
Beside it, the same rows in memory are written by plain zarr with the same shards and codec: what the second pass could
cost at best where memory is no object. Memory is the process's peak resident set above that of an empty build.

    python benchmarks/rectangle_write.py            # 2,048 to 8,192 rows of 65,536, about 2.5 minutes
    python benchmarks/rectangle_write.py --quick    # 2,048 and 4,096 rows of 8,192

The last two lines are the growth of peak memory from the smallest to the largest size (1 is flat), and the speed of the
build at the largest size against plain zarr.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

BATCH = 64


def token_rows(first: int, count: int, length: int) -> np.ndarray:
    """Return rows of a Zipf-distributed stream with repeated phrases; it compresses about as web text does."""
    rows = np.empty((count, length), np.uint16)
    for row in range(count):
        random = np.random.default_rng(first + row)
        stream = (random.zipf(1.3, length) % 50_256).astype(np.uint16)
        for _ in range(length // 400):
            source, target = random.integers(0, length - 40, 2).tolist()
            size = int(random.integers(8, 40))
            stream[target : target + size] = stream[source : source + size]
        rows[row] = stream
    return rows


def tables(rows: int, length: int):
    """Yield the documents as a run's last stage hands them to the writer."""
    # Made once and re-labelled: the benchmark measures the writer, not the random generator.
    made = token_rows(0, BATCH, length)
    for first in range(0, rows, BATCH):
        rolled = np.roll(made, 131 * first, axis=1)
        flat = pa.array(rolled.reshape(-1))
        lists = pa.ListArray.from_arrays(pa.array(np.arange(BATCH + 1) * length, pa.int32()), flat)
        ids = [f"d{i}" for i in range(first, first + BATCH)]
        yield pa.table({"id": ids, "tokens": lists, "sort_key": pa.array(hash_ids(ids), pa.uint64())})


def hash_ids(ids: list[str]) -> np.ndarray:
    from longcrawl.kernels.keyed_hash import keyed_hash

    return keyed_hash(ids, "shuffle", 0)


def build(kind: str, rows: int, length: int, folder: Path) -> dict[str, float]:
    """Build one rectangle in this process and say how long it took and what memory it had at most."""
    from longcrawl.formats.rectangle.write import RectangleOutput
    from longcrawl.tokens import Shuffle

    started = time.perf_counter()
    if kind == "zarr":
        import zarr
        from zarr.codecs import BloscCodec

        whole = np.concatenate(
            [
                table["tokens"].combine_chunks().flatten().to_numpy().reshape(BATCH, length)
                for table in tables(rows, length)
            ]
        )
        started = time.perf_counter()
        array = zarr.create_array(
            str(folder / "plain"),
            shape=whole.shape,
            chunks=(64, min(2048, length)),
            shards=(2048, length),
            dtype="uint16",
            compressors=BloscCodec(cname="zstd", clevel=3, shuffle="noshuffle"),
        )
        array[:] = whole
    else:
        writer = RectangleOutput(context_length=length, end_of_text=50_256).writer([Shuffle()])
        spill, target = folder / "spill", folder / "rectangle"
        writer.spill(tables(rows, length), spill, 0)
        spilled = time.perf_counter() - started
        written = [writer.write(spill, target, task) for task in writer.plan(spill, 1)]
        writer.finish(spill, target, written)
        print(f"  spill {spilled:.1f} s of {time.perf_counter() - started:.1f} s", file=sys.stderr)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def measured(kind: str, rows: int, length: int) -> dict[str, float]:
    """Run :func:`build` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", kind, str(rows), str(length), folder]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=4, metavar=("KIND", "ROWS", "LENGTH", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, rows, length, folder = options.child
        print(json.dumps(build(kind, int(rows), int(length), Path(folder))))
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    length = 8_192 if options.quick else 65_536
    sizes = [2_048, 4_096] if options.quick else [2_048, 4_096, 8_192]
    empty = measured("longcrawl", BATCH, min(length, 2_048))["peak"]
    print(f"{'rows':>7}  {'raw MB':>8}  {'build MB/s':>10}  {'peak MB':>8}  {'zarr MB/s':>10}  {'zarr peak MB':>12}")
    peaks, speeds = [], []
    for rows in sizes:
        raw = rows * length * 2
        ours, plain = measured("longcrawl", rows, length), measured("zarr", rows, length)
        peaks.append(ours["peak"] - empty)
        speeds.append(plain["seconds"] / ours["seconds"])
        print(
            f"{rows:>7,}  {raw / 1e6:>8,.0f}  {raw / 1e6 / ours['seconds']:>10.1f}  {peaks[-1] / 1e6:>8,.0f}  "
            f"{raw / 1e6 / plain['seconds']:>10.1f}  {(plain['peak'] - empty) / 1e6:>12,.0f}"
        )
    print(f"rectangle_write_memory ratio={peaks[-1] / peaks[0]:.3f}")
    print(f"rectangle_write ratio={speeds[-1]:.3f}")


if __name__ == "__main__":
    main()
