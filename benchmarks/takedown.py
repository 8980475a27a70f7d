"""CPU seconds of a takedown by how many files hold the documents that go: of one file, of 4, of 16, of all.

Documents of a JSON-lines file are written to small parquet files, gpt-simple shards and the bands of a rectangle; then
one document of each of so many files is taken out, into a new folder each time.

    python benchmarks/takedown.py [DOCUMENTS.jsonl TOKENIZER] [--copies 4]

Seconds are of this process. The last line is what a further parquet file costs up to all of them, beside what it costs
up to 16: 1 is proportional to the files that are written.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from _needed import lacks, shared

import longcrawl as lc

LENGTH, BAND = 512, 2048
"""Tokens of a row of the rectangle, few so that it has many bands, and rows of a band."""
ROWS: Sequence[Any] = ({"min_tokens": {"n": LENGTH}}, {"truncate": {"n": LENGTH}}, "shuffle")
OUTPUTS: Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]] = {
    "parquet": ((), {"file_bytes": 1_000_000}),
    "gpt-simple": ((), {"shard_bytes": 500_000}),
    "rectangle": (ROWS, {}),
}


def write_run(documents: Path, tokenizer: str, output: str, copies: int, folder: Path) -> Path:
    """Run a recipe of this output on so many copies of the documents."""
    stages, settings = OUTPUTS[output]
    tokenize = [] if output == "parquet" else [{"tokenize": {"tokenizer": tokenizer}}]
    spec = {"longcrawl": 1, "name": output, "stages": [*tokenize, *stages], "outputs": {output: dict(settings)}}
    several = [folder / f"{copy}-{documents.name}" for copy in range(copies)]
    for file in several:
        file.unlink(missing_ok=True)
        file.symlink_to(documents.absolute())
    spec["source"] = {"builder": "text", "data_files": [str(file) for file in several], "id_field": None}
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / f"{output}.yaml", folder / output)
    return folder / output


def ids_by_file(run: Path, output: str) -> list[str]:
    """Return the id of one document of each file that an output has, of a rectangle of each band of rows."""
    if output == "rectangle":
        rows = pq.read_table(run / output / "rows/train.parquet")["id"].to_pylist()
        return [rows[row] for row in range(0, len(rows), BAND)]
    pattern = "*.parquet" if output == "parquet" else "documents/**/*.parquet"
    return [pq.read_table(file, columns=["id"])["id"][0].as_py() for file in sorted((run / output).glob(pattern))]


def measure(run: Path, output: str, target: Path) -> float:
    """Print the seconds for one file, 4, 16 and all; return what one more costs up to all beside up to 16."""
    names, taken = ids_by_file(run, output), {}
    lc.takedown(run, target, ids=names[:1])
    for count in sorted({1, min(4, len(names)), min(16, len(names)), len(names)}):
        chosen = np.linspace(0, len(names) - 1, count).astype(int)
        shutil.rmtree(target)
        started = time.process_time()
        done = lc.takedown(run, target, ids=[names[each] for each in chosen])
        taken[count] = time.process_time() - started
        written = sum((target / name).stat().st_size for name in done.changed)
        print(
            f"{output:12s} {count:>5} of {len(names):,} files: {taken[count]:6.2f} s, {written / 1e6:7.1f} MB in "
            f"{len(done.changed)} files written, {done.unchanged} as they were"
        )
    shutil.rmtree(target)
    counts = sorted(taken)
    costs = [(taken[count] - taken[1]) / (count - 1) for count in counts[-2:]]
    return costs[1] / costs[0]


def main() -> None:
    """Measure each output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", type=Path, nargs="?", default=shared("long.jsonl.zst"))
    parser.add_argument("tokenizer", nargs="?", default=str(shared("gpt2.tiktoken")))
    parser.add_argument("--copies", type=int, default=4)
    asked = parser.parse_args()
    if lacks("DOCUMENTS.jsonl and a tokenizer", asked.documents):
        return
    with tempfile.TemporaryDirectory() as name:
        ratios = {
            output: measure(
                write_run(asked.documents, asked.tokenizer, output, asked.copies, Path(name)),
                output,
                Path(name) / "without",
            )
            for output in OUTPUTS
        }
    print(f"takedown ratio={ratios['parquet']:.2f}")


if __name__ == "__main__":
    main()
