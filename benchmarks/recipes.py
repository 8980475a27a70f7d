"""Cost of each shipped recipe: CPU seconds and MB/s of every step, cold and warm, by size of input and processes.

    python benchmarks/recipes.py [--data LONGCRAWL_DATA] [--recipes datatrove …] [--sizes 1 2 4] [--turns 2]
        [--set stages.extract_text.engine=blocks]

A run is a process of its own (``_recipe_run.py``). Input is real text, a release and archives of pages and of PDFs from
the folder that LONGCRAWL_DATA names, or made up where there is none. Twice and four times the input have copies with
other ids and URLs and every eighth word in another place, so that no deduplication takes them for copies. Copies of a
PDF have a comment at its end and the same text, so ``finepdfs`` extracts all of them and then removes them.
``quickstart`` reads what is installed and has one size. A copy of a release has shards of its own, of 70 to 440
documents, or --together copies share them, as files of RedPajama-V2 have some 20,000. Cold is the first run with an
empty folder for machine code, all others are warm. Best of --turns.

"fixed" is what a run of no input would take, by the first two sizes; "growth" the exponent by which the rest grows from
the first size to the last. A step's MB are those of the pages, texts or tokens that reach it, else those that are read.
"path" is the CPU time of the run's own process and, of tasks in workers, that of the busiest worker, or the share of a
core if that is more: the wall time on a quiet machine. Of threads beside each other the busiest counts. The speed-up is
the CPU time of one process over the path of two. The last line is the least speed-up on the largest input.
"""

import argparse
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

sys.path.append(str(Path(__file__).parent / "faults"))

import _recipes
from _inputs import train_tokenizer, write_archives, write_release, write_texts
from _recipe_run import HELD

SHOWN = 0.05
FILES = 2
"""Files of text for each time the input."""
_PROSE = re.compile(rb">([^<>{}]{60,})<")
_LENGTH = re.compile(rb"(?m)^(Content-Length: )(\d+)")
_URI, _DIGEST = re.compile(rb"(?m)^(WARC-Target-URI: \S+)"), re.compile(rb"(?m)^WARC-(Block|Payload)-Digest: .*\r\n")


def moved(text: str, copy: int) -> str:
    """Return a text of the same length with every eighth word of a line behind its neighbour."""
    if not copy:
        return text
    lines = [line.split(" ") for line in text.split("\n")]
    for words in lines:
        for place in range(2 * copy, len(words) - 1, 8):
            words[place : place + 2] = words[place + 1], words[place]
    return "\n".join(map(" ".join, lines))


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(lines, 5) if path.suffix == ".gz" else lines)


def copy_texts(data: Path, folder: Path, size: int) -> None:
    with zstandard.open(data / "short.jsonl.zst", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for copy in range(size):
        for number in range(FILES):
            of_file = [
                {"id": f"{row['id']}-{copy}", "text": moved(row["text"], copy), "url": row["url"]}
                for row in rows[number::FILES]
            ]
            write_lines(folder / f"{copy}-{number}.jsonl", of_file)


def copy_release(data: Path, folder: Path, size: int, together: int) -> None:
    """Copy documents, signals and duplicates of English; ``together`` copies follow each other in the same shards."""
    files = [file.relative_to(data / "rpv2") for file in sorted((data / "rpv2").glob("*/*/*/en_*"))]
    counts = {file.parts[1:]: len(rows_of(data / "rpv2" / file)) for file in files if file.parts[0] == "documents"}
    for first in range(0, size, together):
        for kind, snapshot, shard, name in (file.parts for file in files):
            rows = counts[snapshot, shard, f"{name.partition('.')[0]}.json.gz"]
            before, after = f"{snapshot}/{shard}/", f"{snapshot}/{int(shard) + 1000 * (first // together):04d}/"
            source, target = data / "rpv2" / kind / before / name, folder / kind / after / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copies = range(first, min(first + together, size))
            if kind == "duplicates":
                table = pq.read_table(source)
                moved_tables = [moved_ids(table, before, after, (copy - first) * rows) for copy in copies]
                pq.write_table(pa.concat_tables(moved_tables), target)
            elif kind in ("documents", "quality_signals"):
                read = rows_of(source)
                write_lines(
                    target, (copied(row, copy, before, after, (copy - first) * rows) for copy in copies for row in read)
                )


def rows_of(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def moved_id(name: str, before: str, after: str, by: int) -> str:
    """Return the id of the document that is in another shard, and so many rows behind."""
    file, _, row = name.replace(before, after).rpartition("/")
    return f"{file}/{int(row) + by}"


def moved_ids(table: pa.Table, before: str, after: str, by: int) -> pa.Table:
    shards = [shard.replace(before, after) for shard in table[0].to_pylist()]
    names = [moved_id(name, before, after, by) for name in table[1].to_pylist()]
    return pa.Table.from_arrays([shards, names, table[2]], names=table.column_names)


def copied(row: dict[str, Any], copy: int, before: str, after: str, by: int) -> dict[str, Any]:
    """Return a document, or its signals, as the row of a copy."""
    if "raw_content" not in row:
        return row | {"id": moved_id(row["id"], before, after, by)}
    return row | {
        "raw_content": moved(row["raw_content"], copy),
        "url": f"{row['url']}#{copy}",
        "digest": f"{row['digest']}{copy or ''}",
    }


def records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split a web archive into headers and blocks."""
    start = 0
    while (end := content.find(b"\r\n\r\n", start)) >= 0:
        head = content[start : end + 4]
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        yield head, content[end + 4 : end + 4 + length]
        start = end + 8 + length


def copied_record(head: bytes, block: bytes, copy: int) -> bytes:
    """Return a record with another id and URL, and words of its page in another order, or a comment after its PDF."""
    head = _URI.sub(rb"\1?copy=%d" % copy, _DIGEST.sub(b"", head)).replace(b"<urn:uuid:", b"<urn:uuid:%d" % copy)
    if b"%PDF-" in block:
        comment = b"\n%% copy %d\n" % copy
        head, block = (_LENGTH.sub(lambda found: longer(found, len(comment)), each, count=1) for each in (head, block))
        return head + block + comment
    return head + _PROSE.sub(
        lambda found: b">" + moved(found[1].decode("latin-1"), copy).encode("latin-1") + b"<", block
    )


def longer(found: re.Match[bytes], by: int) -> bytes:
    """Return a header of a length that is so many bytes longer."""
    return found[1] + b"%d" % (int(found[2]) + by)


def copy_archives(data: Path, folder: Path, size: int, files: str = "warc/pages-*.warc.gz") -> None:
    folder.mkdir(parents=True)
    for copy in range(size):
        for file in sorted(data.glob(files)):
            found = records(gzip.decompress(file.read_bytes()))
            whole = (copied_record(head, block, copy) if copy else head + block for head, block in found)
            members = (gzip.compress(record + b"\r\n\r\n", 5) for record in whole)
            (folder / f"{copy}-{file.name}").write_bytes(b"".join(members))


MADE: dict[str, Callable[[Path, int], Path]] = {
    "texts": lambda folder, size: write_texts(folder, FILES * size, 500, (100, 2000)),
    "release": lambda folder, size: write_release(folder, size, 100),
    "archives": lambda folder, size: write_archives(folder, FILES * size, 50),
}
MADE["pdfs"] = MADE["archives"]
"""Web pages, since no PDFs are made up: ``finepdfs`` then reads those."""
INPUTS = {
    "quickstart": "",
    "longcrawl64": "release",
    "longcrawl64-clean": "release",
    "longcrawl64-select": "release",
    "bucket-pretraining": "release",
    "gpt-simple": "texts",
    "datatrove": "texts",
    "refinedweb": "archives",
    "refinedweb-blocks": "archives",
    "refinedweb-multilingual": "archives",
    "longmino": "texts",
    "finepdfs": "pdfs",
}
"""Input of each recipe."""
TOKENIZERS = {"archives": ("min_hash", "exact_substring"), "texts": ("tokenize",), "release": ("tokenize",)}


class Inputs:
    """Inputs of each size, written when they are asked for, and the settings of recipes that read them."""

    def __init__(self, data: Path | None, folder: Path, together: int = 1, more: Sequence[str] = ()) -> None:
        self.data, self.folder, self.more = data, folder, more
        release = partial(copy_release, together=together)
        pdfs = partial(copy_archives, files="pdf/*.warc.gz")
        self.copies = {"texts": copy_texts, "release": release, "archives": copy_archives, "pdfs": pdfs}
        self.tokenizer = folder / "tokenizer.json" if data is None else data / "gpt2-tokenizer.json"
        if data is None:
            train_tokenizer(self.tokenizer)

    def settings(self, recipe: str, size: int) -> list[str]:
        """Return what a recipe is told to read its input of a size."""
        kind = INPUTS[recipe]
        if not kind:
            return [*self.more]
        place = self.folder / f"{kind}-{size}"
        if not place.exists():
            if self.data is None:
                MADE[kind](place, size)
            else:
                self.copies[kind](self.data, place, size)
        small = _recipes.SMALL.get("longcrawl64-clean" if recipe.startswith("longcrawl64") else recipe, ())
        own = [each for each in small if self.data is None and "TOKENIZER" not in each and "data_dir" not in each]
        reads = [
            f"source.data_dir={place}",
            *(f"stages.{name}.tokenizer={self.tokenizer}" for name in TOKENIZERS.get(kind, ())),
        ]
        return [*reads, *own, *self.more]


def run(
    recipe: str, settings: list[str], num_proc: int | str, machine_code: Path, held: int | None = None
) -> dict[str, Any]:
    """Run a recipe in a process of its own, by so many processes or a master of Spark.

    One process decides about up to ``held`` bytes of sketches.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).parent / "_recipe_run.py"
        command = [sys.executable, str(script), recipe, f"{folder}/run", str(num_proc), *settings]
        there = {"NUMBA_CACHE_DIR": str(machine_code), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": ""}
        there |= {HELD: str(held)} if held else {}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | there, check=False)
        if done.returncode:
            raise SystemExit(f"{recipe}: {done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])


def show_steps(first: dict[str, Any], last: dict[str, Any], times: int) -> None:
    """Print each step that is more than SHOWN of a run of the largest input, with its growth."""
    read = last["bytes"].get("reading", 0)
    for name, seconds in sorted(last["steps"].items(), key=lambda step: -step[1]):
        if seconds < SHOWN * last["cpu"]:
            continue
        before = first["steps"].get(name, 0.0)
        growth = math.log(seconds / before, times) if before > 0.01 and times > 1 else math.nan
        rate = last["bytes"].get(name, read) / seconds / 1e6
        print(f"  {name:28}{seconds:8.2f} s {seconds / last['cpu']:6.0%} {rate:9.0f} MB/s   growth {growth:5.2f}")


def measure(recipe: str, inputs: Inputs, sizes: list[int], turns: int) -> float:
    """Print what a recipe costs; return the speed-up of two processes on the largest input."""
    sizes = sizes if INPUTS[recipe] else [1]
    with tempfile.TemporaryDirectory() as folder:
        machine_code = Path(folder)
        cold = run(recipe, inputs.settings(recipe, sizes[0]), 1, machine_code)
        found: dict[tuple[int, int], list[dict[str, Any]]] = {(size, count): [] for size in sizes for count in (1, 2)}
        for _ in range(turns):
            for (size, count), runs in found.items():
                runs.append(run(recipe, inputs.settings(recipe, size), count, machine_code))
    best = {key: min(runs, key=lambda each: each["cpu"]) for key, runs in found.items()}
    one = [best[size, 1]["cpu"] for size in sizes]
    read = best[sizes[-1], 1]["bytes"].get("reading", 0) / 1e6
    print(f"{recipe}: cold {cold['cpu']:.1f} s, warm {', '.join(f'{each:.2f}' for each in one)} s of CPU", end="")
    if len(sizes) > 1:
        fixed = one[0] - (one[1] - one[0]) * sizes[0] / (sizes[1] - sizes[0])
        grown = math.log((one[-1] - fixed) / (one[0] - fixed), sizes[-1] / sizes[0]) if fixed < one[0] else math.nan
        print(f"; fixed {fixed:.2f}, growth {grown:.2f}, {read / (one[-1] - fixed):.1f} MB/s beyond", end="")
    print(f"; {read:.0f} MB")
    show_steps(best[sizes[0], 1], best[sizes[-1], 1], sizes[-1] // sizes[0])
    for size in sizes:
        alone, both = found[size, 1], found[size, 2]
        speed_up = min(each["cpu"] for each in alone) / min(sum(each["path"].values()) for each in both)
        walls = min(each["wall"] for each in alone), min(each["wall"] for each in both)
        print(
            f"  two processes, {size} times: {speed_up:.2f} by CPU time, {walls[0] / walls[1]:.2f} by wall", flush=True
        )
    return speed_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LONGCRAWL_DATA"))
    parser.add_argument("--recipes", nargs="+", choices=list(INPUTS), default=list(INPUTS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--together", type=int, choices=range(1, 257), metavar="N", default=1, help="copies that share their shards"
    )
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="a setting, as of `longcrawl run`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(options.data, Path(folder), options.together, options.settings)
        speed_ups = [measure(recipe, inputs, options.sizes, options.turns) for recipe in options.recipes]
    print(f"recipes ratio={min(speed_ups):.2f}")


if __name__ == "__main__":
    main()
