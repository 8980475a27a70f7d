"""Tokens per second of the feeds, against the peers' own and a raw memory map.

    python -m venv dm && dm/bin/pip install -r benchmarks/peers/datatrove_megatron.txt
    python benchmarks/feeds.py --datatrove dm/bin/python

One core, files in the page cache, fresh int64 arrays for every item or batch. In each repeat every feed has a turn of
at most ``--seconds``; rates are medians over the repeats, the spread is the largest over the smallest. A peer has a
turn in a process of its own on the same core; without an interpreter it is passed over, as is the ratio to it.
What it reads is compared, too: the first thousand windows must be ours, tokens and positions.

"item" is one window at a time, ``windows[i]``, as datatrove's dataset gives it; "batch" is ``windows.batches(8)``. The
memory map gives tokens only, one window at a time. The last lines are the smallest ratios.
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

import numpy as np
import pyarrow as pa

import longcrawl as lc

END = 50_256
MEAN = 500
FILES = 2
POSITIONS = ("none", "index", "eos")

Feed = Callable[[], Iterator[int]]
"""Makes an iterator that reads something, and gives how many tokens it was."""


def write_documents(folder: Path, tokens: int) -> None:
    """Write shards of documents whose lengths are geometric, each ending in END."""
    chance = np.random.default_rng(0)
    for number in range(FILES):
        ends = np.cumsum(chance.geometric(1 / MEAN, tokens // MEAN // FILES))
        ids = chance.integers(0, END, ends[-1]).astype(np.uint16)
        ids[ends - 1] = END
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        table = pa.table({"tokens": pa.ListArray.from_arrays(offsets, pa.array(ids))})
        lc.formats.datatrove.write([table], folder / f"{number:05d}.ds")


def memmap_items(folder: Path, seq_len: int) -> Iterator[int]:
    """What no feed can beat by much: files mapped into memory, converted as trainers need it, window by window."""
    length = seq_len + 1
    for path in sorted(folder.glob("*.ds")):
        tokens = np.memmap(path, np.uint16, "r")
        for start in range(0, len(tokens) - seq_len, length):
            yield tokens[start : start + length].astype(np.int64).size


def items(windows: lc.loading.Windows, order: list[int]) -> Iterator[int]:
    for at in order:
        yield windows[at]["input_ids"].size


def batches(windows: lc.loading.Windows) -> Iterator[int]:
    for batch in windows.batches(8):
        yield batch["input_ids"].size


def window_feeds(folder: Path, seq_len: int) -> dict[str, Feed]:
    """Give the feeds of windows by name."""
    feeds: dict[str, Feed] = {"memmap": lambda: memmap_items(folder, seq_len)}
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
    """Say what the first thousand windows are; the peer has the list of files that is written here."""
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
    """Give the rates of datatrove's dataset, after comparing what it reads."""
    script = Path(__file__).parent / "peers" / "feed_datatrove.py"
    command = [interpreter, script, folder, str(seq_len), str(END), str(seconds)]
    # What is installed there counts, not what this process was told to import.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ours = window_digests(folder, seq_len)
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    told = json.loads(answer.splitlines()[-1])
    if told["digests"] != ours:
        raise SystemExit("datatrove's windows are not ours")
    return {f"datatrove: {name}": rate for name, rate in told["rates"].items()}


def rate(feed: Iterator[int], seconds: float) -> float:
    """Give tokens per second, cut after ``seconds``."""
    tokens, start = 0, time.perf_counter()
    for size in feed:
        tokens += size
        if time.perf_counter() - start > seconds:
            break
    return tokens / (time.perf_counter() - start)


def measure(
    feeds: dict[str, Feed], peers: list[Callable[[], dict[str, float]]], given: argparse.Namespace
) -> dict[str, float]:
    """Give every feed and peer its turns, print what they read, and give the medians."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--datatrove", type=Path, help="an interpreter that has datatrove and torch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="longest turn of one feed in one repeat")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "shards"
        write_documents(folder, given.tokens)
        peers = []
        if given.datatrove:
            peers.append(lambda: datatrove_rates(given.datatrove, folder, given.seq_len, given.seconds))
        report_windows(measure(window_feeds(folder, given.seq_len), peers, given))


if __name__ == "__main__":
    main()
