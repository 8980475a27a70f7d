"""A million documents end to end: seconds, and the peak memory of each process, for a quarter of them and for all.

    python benchmarks/million.py [--documents 250000 1000000] [--num-proc 2] [--exchange]

Writes JSON lines, 25,000 short texts in a file, of which 15 % are copies of a text of an earlier file and 15 % are such
copies with one word changed. A recipe removes exact documents and near-duplicates (MinHash, 14 bands of 8 over words),
tokenises with the tokenizer of --tokenizer, shuffles and writes token shards, in a process of its own with its workers.
Of each process in that tree the most that was ever resident (VmHWM, which has mapped files in it) is read ten times a
second; CPU time is that of the whole tree. With --exchange, surveys decide by exchanges between tasks of 16 MiB of
sketches, as they do beyond 512 MiB; by default these many are decided about in one process.

Goals: no process above 2 GB; and, from the first of --documents to the last, time that grows as they do. The last line
is the CPU time of a document of the last over one of the first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _measures import Tree
from _needed import gpt2

IN_FILE = 25_000
COPIES = 0.15
GOAL = 2e9


def write_texts(folder: Path, documents: int) -> None:
    """Write files of JSON lines; copies are of documents of the file before."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwyp"))
    words = np.array(["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(20_000)])
    before = list[list[str]]()
    for number, first in enumerate(range(0, documents, IN_FILE)):
        texts = [words[rng.integers(0, len(words), size)].tolist() for size in rng.integers(40, 80, IN_FILE)]
        texts = texts[: documents - first]
        copies = rng.random(len(texts))
        for place in np.flatnonzero(copies < 2 * COPIES) if before else ():
            texts[place] = list(before[rng.integers(len(before))])
            if copies[place] < COPIES:
                texts[place][rng.integers(len(texts[place]))] = "changed"
        with (folder / f"{number:05d}.jsonl").open("w", encoding="utf-8") as lines:
            for place, text in enumerate(texts, first):
                lines.write(json.dumps({"id": f"d{place:011d}", "text": " ".join(text)}) + "\n")
        before = texts


def recipe(folder: Path, tokenizer: str) -> dict[str, object]:
    files = [str(file) for file in sorted(folder.glob("*.jsonl"))]
    return {
        "longcrawl": 1,
        "name": "million",
        "source": {"builder": "text", "id_field": "id", "data_files": files},
        "stages": [
            "exact_documents",
            {"min_hash": {"bands": 14, "rows": 8, "unit": "word", "ngram": 5}},
            {"tokenize": {"tokenizer": tokenizer}},
            "shuffle",
        ],
        "outputs": {"datatrove": {}},
    }


def run(folder: Path, num_proc: int, *, exchange: bool) -> None:
    """Carry out the recipe in this process and its workers."""
    import longcrawl as lc
    from longcrawl.run import inputs
    from longcrawl.run.recipe import parse_recipe

    if exchange:
        inputs.HELD, inputs.TASK = 0, 16 << 20
    done = lc.run(parse_recipe(json.loads((folder / "recipe.json").read_text())), folder / "out", num_proc=num_proc)
    print(done)


def measure(documents: int, options: argparse.Namespace) -> float:
    """Print what a run takes; return CPU seconds of a document."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder, documents)
        (folder / "recipe.json").write_text(json.dumps(recipe(folder, options.tokenizer)))
        order = [sys.executable, __file__, "--run", name, "--num-proc", str(options.num_proc)]
        started, before = time.monotonic(), _children()
        with subprocess.Popen([*order, *(["--exchange"] if options.exchange else [])]) as running:
            tree = Tree(running.pid)
            while running.poll() is None:
                tree.look()
                time.sleep(0.1)
        wall, spent = time.monotonic() - started, _children() - before
        if running.returncode:
            raise SystemExit(running.returncode)
    first, *workers = tree.peaks()
    print(
        f"{documents:,} documents: {wall:.0f} s, {spent:.0f} CPU s ({1e6 * spent / documents:.0f} us a document); peak "
        f"memory {first / 1e9:.2f} GB in the run's process, at most {max(workers, default=0) / 1e9:.2f} GB in "
        f"{len(workers)} workers: {'below' if max(first, *workers, 0) < GOAL else 'ABOVE'} {GOAL / 1e9:.0f} GB each",
        flush=True,
    )
    return spent / documents


def _children() -> float:
    ended = os.times()
    return ended.children_user + ended.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[250_000, 1_000_000])
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--tokenizer", default=gpt2())
    parser.add_argument("--exchange", action="store_true")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run, options.num_proc, exchange=options.exchange)
        return
    taken = [measure(documents, options) for documents in options.documents]
    print(f"million ratio={taken[-1] / taken[0]:.3f}")


if __name__ == "__main__":
    main()
