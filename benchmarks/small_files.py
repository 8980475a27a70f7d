"""A run on a folder of many small files, against the same run with each file a part of its own.

    python benchmarks/small_files.py [--files 2000] [--repeats 1]

Exact and near duplicates, a trained tokenizer and GPT-Simple's shards, on made-up text files of 2 kB, each way in turn;
the shards and the manifests' inputs are asserted equal. CPU seconds and wall seconds of one process, the least of
--repeats; how long a sync takes decides the latter. The last line is the CPU time with each file a part over the time
with a few parts of many files.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from longcrawl.run import part
from longcrawl.run.job import run
from longcrawl.run.manifest import read_manifest
from longcrawl.run.recipe import load_recipe

RECIPE = """
longcrawl: 1
name: small-files
about: Many small files.
source: {{builder: text, data_dir: {folder}}}
stages:
  - exact_documents
  - min_hash: {{bands: 14, rows: 8, unit: word}}
  - tokenize: {{tokenizer: trained, vocabulary_size: 512}}
outputs:
  gpt-simple: {{heldout: 0.01}}
"""
FEW = part.ALONE
WAYS = {"each file a part": 10**9, "a few parts of many files": FEW}


def make_files(folder: Path, files: int) -> None:
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(5_000)]
    folder.mkdir()
    for number in range(files):
        (folder / f"{number:06}.txt").write_text(" ".join(chance.choices(words, k=320)), "utf-8")


def timed(recipe: Path, out: Path, alone: int) -> tuple[float, float, Any]:
    part.ALONE = alone
    cpu, wall = time.process_time(), time.perf_counter()
    run(load_recipe(recipe), out)
    spent = time.process_time() - cpu, time.perf_counter() - wall
    manifest = read_manifest(out)
    return *spent, (manifest["inputs"], {k: v for k, v in manifest["files"].items() if k.startswith("gpt-simple/")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make_files(folder / "input", options.files)
        recipe = folder / "recipe.yaml"
        recipe.write_text(RECIPE.format(folder=folder / "input"), "utf-8")
        timed(recipe, folder / "first", FEW)
        found: dict[str, list[tuple[float, float, Any]]] = {way: [] for way in WAYS}
        for repeat in range(options.repeats):
            for number, (way, alone) in enumerate(WAYS.items()):
                found[way].append(timed(recipe, folder / f"{repeat}-{number}", alone))
        written = [each[2] for runs in found.values() for each in runs]
        assert written[0][1]
        assert all(each == written[0] for each in written)
        cpu = {way: min(each[0] for each in runs) for way, runs in found.items()}
        for way, runs in found.items():
            print(f"{way:28} {cpu[way]:7.2f} s of CPU {min(each[1] for each in runs):8.2f} s")
        alone_seconds, together = cpu.values()
        print(f"small_files ratio={alone_seconds / together:.2f}")


if __name__ == "__main__":
    main()
