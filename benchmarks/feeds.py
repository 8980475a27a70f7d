"""Tokens per second of the feeds, against the peers' own and a raw memory map.

    python -m venv dm && dm/bin/pip install -r benchmarks/peers/datatrove_megatron.txt
    python -m venv gs && gs/bin/pip install -r benchmarks/peers/gpt_simple.txt
    python benchmarks/feeds.py --datatrove dm/bin/python --gpt-simple gs/bin/python [--part packed]

One core, files in the page cache, fresh int64 arrays for every item or batch. Rates are tokens per second of CPU time,
which others on the machine change less than they do the time of a clock. In each repeat every feed has a turn of
at most ``--seconds``; rates are medians over the repeats, the spread is the largest over the smallest. A peer has a
turn in a process of its own on the same core; without an interpreter it is passed over, as is the ratio to it.
What it reads is compared, too: datatrove's first thousand windows must be ours, tokens and positions, and what
GPT-Simple delivers in a pass as many tokens of the same sum.

"item" is one window at a time, ``windows[i]``, as datatrove's dataset gives it; "batch" is ``windows.batches(8)``. The
memory map gives tokens only, one window at a time. "packed" is ``Packed`` with batches of 8 samples of ``--seq-len``
tokens, of documents of no more than that: tokens, labels, positions and document numbers; what is delivered has
padding, what is useful has none. GPT-Simple's loader packs 256 documents at a time while it reads; it is timed sample
by sample and through its own batches, with document numbers and without, and the ratio is to the fastest of these.
The time to the first batch is that of opening, planning and reading, with modules imported and kernels compiled. The
last lines are the smallest ratios.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pyarrow as pa

import longcrawl as lc
from longcrawl.tokens.packing import plan_packing

END = 50_256
MEAN = 500
FILES = 2
PLANNED = 1_000_000
POSITIONS = ("none", "index", "eos")

Feed = Callable[[], Iterator[int]]
"""Makes an iterator that reads something, and gives how many tokens it was."""


def write_documents(folder: Path, tokens: int, module: Any = lc.formats.datatrove, longest: int = 1 << 20) -> None:
    """Write shards of documents whose lengths are geometric, each ending in END."""
    chance = np.random.default_rng(0)
    for number in range(FILES):
        ends = np.cumsum(np.minimum(chance.geometric(1 / MEAN, tokens // MEAN // FILES), longest))
        ids = chance.integers(0, END, ends[-1]).astype(np.uint16)
        ids[ends - 1] = END
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        table = pa.table({"tokens": pa.ListArray.from_arrays(offsets, pa.array(ids))})
        module.write([table], folder / f"{number:05d}{module.SUFFIX}")


def memmap_items(folder: Path, length: int) -> Iterator[int]:
    """Read windows from memory-mapped files in the trainer's dtype, a lower bound for every feed."""
    for path in sorted([*folder.glob("*.ds"), *folder.glob("*.bin")]):
        tokens = np.memmap(path, np.uint16, "r")
        for start in range(0, len(tokens) - length + 1, length):
            yield tokens[start : start + length].astype(np.int64).size


def items(windows: lc.loading.Windows, order: list[int]) -> Iterator[int]:
    for at in order:
        yield windows[at]["input_ids"].size


def batches(windows: lc.loading.Windows) -> Iterator[int]:
    for batch in windows.batches(8):
        yield batch["input_ids"].size


def window_feeds(folder: Path, seq_len: int) -> dict[str, Feed]:
    """Return the feeds of windows by name."""
    feeds: dict[str, Feed] = {"memmap": lambda: memmap_items(folder, seq_len + 1)}
    for positions in POSITIONS:
        windows = lc.loading.Windows(folder, seq_len, positions, END)
        shuffled = lc.loading.Windows(folder, seq_len, positions, END, shuffle="windows")
        order = list(range(len(windows)))
        mixed = order.copy()
        random.Random(0).shuffle(mixed)
        feeds |= {
            f"{positions}, in order, item": lambda w=windows, o=order: items(w, o),
            f"{positions}, any order, item": lambda w=windows, o=mixed: items(w, o),
            f"{positions}, in order, batch": lambda w=windows: batches(w),
            f"{positions}, shuffled, batch": lambda w=shuffled: batches(w),
        }
    return feeds


def window_digests(folder: Path, seq_len: int) -> dict[str, str]:
    """Describe what the first thousand windows are; the peer has the list of files that is written here."""
    opened = {positions: lc.loading.Windows(folder, seq_len, positions, END) for positions in POSITIONS}
    shuffled = lc.loading.DatatroveFolderDataset(
        folder, seq_len, shuffle=True, seed=1, paths_file=folder / "paths.json"
    )
    digests = {}
    for name, windows in (opened | {"files shuffled, by our paths file": shuffled.windows}).items():
        digest = sha256()
        for at in range(min(len(windows), 1000)):
            window = windows[at]
            for column in sorted(window):
                digest.update(window[column].tobytes())
        digests[name] = digest.hexdigest()
    return digests


def datatrove_rates(interpreter: Path, folder: Path, seq_len: int, seconds: float) -> dict[str, float]:
    """Return the rates of datatrove's dataset, after comparing what it reads."""
    ours = window_digests(folder, seq_len)
    told = answer_of(interpreter, "feed_datatrove.py", folder, seq_len, seconds)
    if told["digests"] != ours:
        raise SystemExit("datatrove's windows are not ours")
    return {f"datatrove: {name}": rate for name, rate in told["rates"].items()}


def packed_batches(folder: Path, max_length: int, **settings: Any) -> Iterator[int]:
    for batch in lc.loading.Packed(folder, max_length=max_length, batch_size=8, **settings):
        yield batch["input_ids"].size


def packed_feeds(folder: Path, max_length: int) -> dict[str, Feed]:
    """Return the feeds of packed samples by name; each turn opens and plans again, which does not count."""
    feeds: dict[str, Feed] = {"memmap": lambda: memmap_items(folder, max_length)}
    for packing in ("length-binned", "in-order"):
        for shuffle in ("keyed", "none"):
            name = f"packed {packing}, {'keyed order' if shuffle == 'keyed' else 'as planned'}"
            feeds[name] = lambda p=packing, s=shuffle: packed_batches(folder, max_length, packing=p, shuffle=s)
    return feeds


def report_planning(max_length: int) -> None:
    """Print what planning a million documents takes."""
    lengths = np.minimum(np.random.default_rng(0).geometric(1 / MEAN, PLANNED), max_length)
    for packing in ("length-binned", "best-fit", "first-fit", "in-order"):
        plan_packing(lengths[:100], max_length, packing)
        before = getrusage(RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        plan = plan_packing(lengths, max_length, packing)
        seconds, more = time.process_time() - start, (getrusage(RUSAGE_SELF).ru_maxrss - before) / 1024
        padding = 1 - lengths.sum() / (max_length * (len(plan.bounds) - 1))
        print(
            f"{packing}: {PLANNED:,} documents in {seconds:.2f} s, {more:.0f} MiB more at most, {padding:.4%} padding"
        )


def packed_shares(folder: Path, max_length: int) -> dict[str, float]:
    """Return the share of tokens that are useful, and print what a pass and a first batch are."""
    shares = {}
    for packing in ("length-binned", "in-order"):
        feed = lc.loading.Packed(folder, max_length=max_length, batch_size=8, packing=packing)
        tokens = sum(int(bucket.sample_tokens.sum()) for bucket in feed.buckets.values())
        shares[packing] = tokens / (len(feed.plan) * max_length)
        print(f"packed {packing}: {1 - shares[packing]:.2%} padding, {len(feed.plan):,} samples")
    return shares


def gpt_simple_rates(interpreter: Path, folder: Path, max_length: int, seconds: float) -> dict[str, float]:
    """Return the rates of GPT-Simple's loader, after comparing what it delivers."""
    told = answer_of(interpreter, "feed_gpt_simple.py", folder, max_length, seconds)
    shards = [lc.formats.open_shard(path) for path in sorted(folder.glob("*.bin"))]
    ours = sum(len(shard.tokens) for shard in shards), sum(int(shard.tokens.sum(dtype=np.int64)) for shard in shards)
    if (told["useful"], told["sum"]) != ours:
        raise SystemExit(f"GPT-Simple delivers {told['useful']:,} tokens, {ours[0]:,} are written")
    share = told["useful"] / told["delivered"]
    return {f"GPT-Simple: {name}": rate for name, rate in told["rates"].items()} | {
        "GPT-Simple: useful": share,
        "GPT-Simple: first batch": told["first"],
    }


def first_batch_seconds(folder: Path, max_length: int) -> float:
    start = time.process_time()
    next(packed_batches(folder, max_length))
    return time.process_time() - start


def answer_of(interpreter: Path, script: str, folder: Path, seq_len: int, seconds: float) -> dict[str, Any]:
    """Run a peer's script where the peer lives."""
    path = Path(__file__).parent / "peers" / script
    command = [interpreter, path, folder, str(seq_len), str(END), str(seconds)]
    # What is installed there counts, not what this process was told to import.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return json.loads(answer.splitlines()[-1])


def rate(feed: Iterator[int], seconds: float) -> float:
    """Return tokens per second of CPU time, cut after ``seconds``; the first batch is opening, and does not count."""
    next(feed)
    tokens, start = 0, time.process_time()
    for size in feed:
        tokens += size
        if time.process_time() - start > seconds:
            break
    return tokens / (time.process_time() - start)


def measure(
    feeds: dict[str, Feed], peers: list[Callable[[], dict[str, float]]], given: argparse.Namespace
) -> dict[str, float]:
    """Return every feed and peer its turns, print what they read, and give the medians."""
    for feed in feeds.values():
        rate(feed(), 0.01)
    rates: dict[str, list[float]] = {}
    for _ in range(given.repeats):
        for name, feed in feeds.items():
            rates.setdefault(name, []).append(rate(feed(), given.seconds))
        for peer in peers:
            for name, found in peer().items():
                rates.setdefault(name, []).append(found)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, found in rates.items():
        if medians[name] < 1e3:
            print(f"{name:<32} {medians[name]:.4g}, spread {max(found) / min(found):4.2f}")
            continue
        print(
            f"{name:<32} {medians[name] / 1e6:8.1f} million tokens/s, spread {max(found) / min(found):4.2f}, "
            f"{medians['memmap'] / medians[name]:6.2f} times slower than memmap"
        )
    return medians


def report_windows(medians: dict[str, float]) -> None:
    """Print the smallest ratios of windows."""
    over_peer = {
        f"{positions}, {order}": medians[f"{positions}, {order}, item"] / medians[f"datatrove: {positions}, {order}"]
        for positions in POSITIONS
        for order in ("in order", "any order")
        if f"datatrove: {positions}, {order}" in medians
    }
    for name, ratio in over_peer.items():
        print(f"{name}: {ratio:.1f} times datatrove, item by item")
    slower = {name: medians["memmap"] / found for name, found in medians.items() if not name.startswith("datatrove")}
    for kind in ("item", "batch"):
        print(f"feeds_windows_memmap_{kind} ratio={max(v for name, v in slower.items() if name.endswith(kind)):.2f}")
    if over_peer:
        print(f"feeds_windows ratio={min(v for name, v in over_peer.items() if not name.startswith('none')):.1f}")


def report_packed(medians: dict[str, float], shares: dict[str, float], first: float) -> None:
    """Print the ratios of packed samples, of delivered and of useful tokens."""
    print(f"first batch: {first * 1e3:.1f} ms")
    ours = {name: found for name, found in medians.items() if name.startswith("packed length-binned")}
    print(f"feeds_packed_memmap ratio={medians['memmap'] / min(ours.values()):.2f}")
    peer = {
        name: found for name, found in medians.items() if name.startswith(("GPT-Simple: item", "GPT-Simple: batch"))
    }
    if not peer:
        return
    slowest, useful = min(ours.values()), shares["length-binned"] / medians["GPT-Simple: useful"]
    for name, found in peer.items():
        print(f"{slowest / found:.1f} times {name}, {slowest / found * useful:.1f} times as many useful tokens")
    print(f"feeds_packed_first_batch ratio={medians['GPT-Simple: first batch'] / first:.2f}")
    print(f"feeds_packed ratio={slowest / max(peer.values()):.1f}")


def windows_part(folder: Path, given: argparse.Namespace) -> None:
    write_documents(folder, given.tokens)
    peers = []
    if given.datatrove:
        peers.append(lambda: datatrove_rates(given.datatrove, folder, given.seq_len, given.seconds))
    report_windows(measure(window_feeds(folder, given.seq_len), peers, given))


def packed_part(folder: Path, given: argparse.Namespace) -> None:
    write_documents(folder, given.tokens, lc.formats.gpt_simple, given.seq_len)
    peers = [lambda: {"first batch, seconds": first_batch_seconds(folder, given.seq_len)}]
    if given.gpt_simple:
        peers.append(lambda: gpt_simple_rates(given.gpt_simple, folder, given.seq_len, given.seconds))
    report_planning(given.seq_len)
    shares = packed_shares(folder, given.seq_len)
    medians = measure(packed_feeds(folder, given.seq_len), peers, given)
    report_packed(medians, shares, medians["first batch, seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--datatrove", type=Path, help="an interpreter that has datatrove and torch")
    parser.add_argument("--gpt-simple", type=Path, help="an interpreter that has gpt-simple-lm")
    parser.add_argument("--part", choices=["windows", "packed", "both"], default="both")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="longest turn of one feed in one repeat")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        if given.part != "packed":
            windows_part(Path(name) / "shards", given)
        if given.part != "windows":
            packed_part(Path(name) / "packed", given)


if __name__ == "__main__":
    main()
