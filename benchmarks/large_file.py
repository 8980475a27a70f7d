"""A run on one large file of JSON lines, as one part and divided into sections, with one process and with two.

    python benchmarks/large_file.py [--file texts.jsonl] [--megabytes 300] [--form jsonl]

Gopher's rules, FineWeb's repetition and exact duplicates, on made-up pages or on --file; --form also writes them as
jsonl.gz or parquet. The outputs are asserted equal. Wall seconds of each way; the last line is the time of two
processes with a single part over the time with sections.
"""

import argparse
import gzip
import json
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import longcrawl as lc
from longcrawl.run import divide
from longcrawl.run.manifest import read_manifest
from longcrawl.run.recipe import load_recipe

RECIPE = """
longcrawl: 1
name: large-file
about: One large file.
source: {{builder: text, data_files: {file}}}
stages:
  - gopher_repetition
  - gopher_quality
  - exact_documents
outputs:
  parquet: {{}}
"""
WAYS = {"one part": 1 << 60, "sections": divide.LARGE}


def make_file(folder: Path, given: str | None, megabytes: int, form: str) -> Path:
    base = Path(given or lc.samples.write_texts(folder / "base.jsonl", pages=2_000))
    lines = [json.loads(line) for line in base.read_text("utf-8").split("\n") if line]
    made = folder / "large.jsonl"
    with made.open("w", encoding="utf-8") as file:
        for copy in count():
            if file.tell() >= megabytes * 1_000_000:
                break
            file.writelines(json.dumps({"text": f"{line['text']} Copy {copy}."}) + "\n" for line in lines)
    if form == "jsonl":
        return made
    target = made.with_suffix(f".{form}")
    if form == "parquet":
        texts = [json.loads(line)["text"] for line in made.read_text("utf-8").split("\n") if line]
        pq.write_table(pa.table({"text": texts}), target, row_group_size=1_000)
    else:
        target = made.with_suffix(".jsonl.gz")
        with target.open("wb") as file:
            file.write(gzip.compress(made.read_bytes(), 6, mtime=0))
    return target


def timed(recipe: Path, out: Path, large: int, processes: int) -> tuple[float, Any]:
    divide.LARGE = large
    began = time.perf_counter()
    lc.run(load_recipe(recipe), out, num_proc=processes)
    took, manifest = time.perf_counter() - began, read_manifest(out)
    return took, {name: entry for name, entry in manifest["files"].items() if name.startswith("parquet/")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--form", choices=("jsonl", "jsonl.gz", "parquet"), default="jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        file = make_file(folder, options.file, options.megabytes, options.form)
        recipe = folder / "recipe.yaml"
        recipe.write_text(RECIPE.format(file=file), "utf-8")
        print(f"{file.name}: {file.stat().st_size / 1e6:,.0f} MB")
        found = {}
        for way, large in WAYS.items():
            for processes in (1, 2):
                found[way, processes] = timed(recipe, folder / f"{way}-{processes}", large, processes)
                print(f"{way:10} {processes} processes {found[way, processes][0]:8.1f} s", flush=True)
        assert len({json.dumps(written, sort_keys=True) for _, written in found.values()}) == 1
        print(f"large_file ratio={found['one part', 2][0] / found['sections', 2][0]:.2f}")


if __name__ == "__main__":
    main()
