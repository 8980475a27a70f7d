"""Write, open, check and convert token shards, against copying the file.

    python benchmarks/token_shards.py [--tokens 100000000]

One core, files in the page cache, each piece of work in a process of its own. "memory" is what that has allocated at
most beyond what it had at first; mapped files do not count, as the system takes their pages back when it needs them.
Copying is ``shutil.copyfile`` and ``fsync``, which conversions do, too. The last line is how many times as long as that
the conversion of a datatrove shard to GPT-Simple's takes.
"""

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from _measures import Peak

import longcrawl as lc
from longcrawl.formats.shards.spec import FORMATS

END = 50_256
MEAN = 500


def documents(tokens: int):
    """Return tables of a thousand documents, lengths geometric, until there are so many tokens."""
    chance = np.random.default_rng(0)
    made = 0
    while made < tokens:
        ends = np.concatenate([[0], np.cumsum(chance.geometric(1 / MEAN, 1000))])
        ids = chance.zipf(1.3, ends[-1]) % END
        made += len(ids)
        yield pa.table(
            {"tokens": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(ids.astype(np.uint16)))}
        )


def work(what: str, source: Path, target: Path) -> None:
    """Copy, convert to a format, or open with some check."""
    if what == "copy":
        shutil.copyfile(source, target)
        with target.open("rb+") as copy:
            os.fsync(copy.fileno())
    elif what in FORMATS:
        lc.convert(source, target, what, end_of_text=END)
    else:
        FORMATS[target.parent.name].open(target, check=what, vocabulary_size=END + 1)


def watched(what: str, source: Path, target: Path, answer: "multiprocessing.Queue[tuple[float, int]]") -> None:
    """Distinguish seconds, and the most that was allocated beyond the start."""
    peak, started = Peak(), time.perf_counter()
    work(what, source, target)
    answer.put((time.perf_counter() - started, peak.most - peak.before))


def measure(what: str, source: Path, target: Path) -> tuple[float, int]:
    spawn = multiprocessing.get_context("spawn")
    answer = spawn.Queue()
    process = spawn.Process(target=watched, args=(what, source, target, answer))
    process.start()
    seconds, memory = answer.get()
    process.join()
    print(f"{target.parent.name + ': ' + what:<28} {seconds:7.3f} s {memory / 1e6:8.0f} MB of memory", flush=True)
    return seconds, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=100_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source" / "shard.ds"
        written = lc.formats.datatrove.write(documents(options.tokens), source, end_of_text=END)
        print(f"{written.documents:,} documents, {written.tokens:,} tokens, {source.stat().st_size:,} bytes")
        took = {"copy": measure("copy", source, source.with_name("copy.ds"))[0]}
        for kind, known in FORMATS.items():
            target = Path(name) / kind / f"shard{known.suffix}"
            for what in (kind, "sizes", "ends", "everything"):
                seconds, _ = measure(what, source, target)
                took.setdefault(what, seconds)
        print(f"token_shards ratio={took['gpt-simple'] / took['copy']:.2f}")


if __name__ == "__main__":
    main()
