"""Whether every engine gives the same run: ``manifest.json`` of each recipe, on real data, byte for byte.

A manifest has the SHA-256 of every file of its run. Each engine runs in processes of its own; what may be decided by
exchanges is, however small the data: a group of documents is one input. "Killed" is a run by 2 processes that is killed
at random times by SIGKILL, before the shortest run of the others would have ended, and typed again. The recipe
``pdfs`` reads PDFs and pages of web archives. Run it as::

    python benchmarks/engines_agree.py --data ../shared/data

It prints a line for each recipe and, last, the share of runs that are equal to those of one process.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _needed import lacks, shared

import longcrawl as lc
from longcrawl.core.display import counted
from longcrawl.dedup import clusters, index, substring
from longcrawl.formats import order
from longcrawl.run import inputs, part
from longcrawl.run.engines import Engine, Local, Shared, Spark
from longcrawl.run.recipe import load_recipe, parse_recipe

ENGINES = ("1 process", "2 processes", "4 processes", "3 sharing", "Spark", "Killed")
KILLS, FIRST_SECONDS, LAST_SECONDS = 4, 3.0, 40.0
"""Number of kills of a run, and the seconds between which each comes, or the length of the shortest run before it."""
PDFS = {
    "longcrawl": 1,
    "name": "pdfs",
    "source": {"builder": "warc", "binary": ["pdf"]},
    "stages": [
        {"extract_pdf": {}},
        {"extract_text": {}},
        {"exact_documents": {}},
        {"min_hash": {"bands": 14, "rows": 8, "unit": "word"}},
    ],
    "outputs": {"parquet": {}},
}


def settings(data: Path) -> dict[str, list[str]]:
    """Return what each shipped recipe needs to run on the data that lies beside the project."""
    tokenizer = data / "gpt2-tokenizer.json"
    tokenize, release = f"stages.tokenize.tokenizer={tokenizer}", f"source.data_dir={data / 'rpv2'}"
    rows = ["stages.min_tokens.n=4096", "stages.truncate.n=4096", "outputs.rectangle.heldout=2"]
    short, pages = f"source.data_files={data / 'short.jsonl.zst'}", [f"pages-0000{number}" for number in range(3)]
    archives = [str(data / "warc" / f"{name}.warc.gz") for name in (*pages, "special-00000")]
    pdfs = [str(path) for path in sorted((data / "pdf").glob("*.warc.gz"))]
    # No page is near this limit but those of bombs, which exceed it first of all limits.
    bombs = "stages.extract_pdf.max_page_seconds=0.5"
    own = [f"stages.{stage}.tokenizer={tokenizer}" for stage in ("min_hash", "exact_substring")]
    return {
        "quickstart": [],
        "longcrawl64": [release, tokenize, *rows],
        "longcrawl64-clean": [release, tokenize, *rows],
        "longcrawl64-select": [release, tokenize, *rows],
        "bucket-pretraining": [release, tokenize],
        "gpt-simple": [short, tokenize],
        "datatrove": [short, tokenize],
        "refinedweb": [f"source.data_files={archives}", *own],
        "refinedweb-blocks": [f"source.data_files={archives}", *own],
        "refinedweb-multilingual": [f"source.data_files={archives}", *own],
        "pdfs": [f"source.data_files={pdfs + archives}", bombs],
        "finepdfs": [
            f"source.data_files={pdfs + archives}",
            "source.mimes=[application/pdf, text/html, application/xhtml+xml, text/plain]",
            bombs,
        ],
        "longmino": [
            f"source.data_files={[str(data / name) for name in ('short.jsonl.zst', 'long.jsonl.zst')]}",
            tokenize,
            "stages.length_mix.on_few_short=cut",
        ],
    }


def main() -> None:
    """Run each recipe by each engine, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=shared(""))
    parser.add_argument("--recipes", nargs="*", help="all by default")
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--seed", type=int, default=0, help="of the times of kills")
    parser.add_argument("--run", nargs=3, metavar=("ENGINE", "RECIPE", "OUT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if lacks("--data, the folder of real input", chosen.data / "short.jsonl.zst"):
        return
    if chosen.run:
        carry_out(*chosen.run, settings(chosen.data.resolve())[chosen.run[1]])
        return
    equal, runs, chance = 0, 0, random.Random(chosen.seed)
    for recipe in chosen.recipes or settings(chosen.data):
        with tempfile.TemporaryDirectory() as folder:
            digests, longest = {}, LAST_SECONDS
            for engine in chosen.engines:
                started = time.monotonic()
                waits = [chance.uniform(min(FIRST_SECONDS, longest / 2), longest) for _ in range(KILLS)]
                digests[engine] = digest_of(engine, recipe, Path(folder, engine), chosen.data.resolve(), waits)
                seconds = time.monotonic() - started
                longest = min(longest, seconds)
                print(f"{recipe:20} {engine:12} {digests[engine][:16]} {seconds:6.1f} s", flush=True)
            runs += len(digests)
            # A digest has no space, and an error does.
            equal += sum(digest == digests[chosen.engines[0]] and " " not in digest for digest in digests.values())
    print(f"engines_agree ratio={equal / runs:.3f}")


def digest_of(engine: str, recipe: str, out: Path, data: Path, waits: list[float]) -> str:
    """Run a recipe in processes of its own; return the SHA-256 of its manifest, or the error.

    ``waits`` are the seconds after which the engine "Killed" is killed.
    """
    words = [sys.executable, __file__, "--data", str(data), "--run", engine, recipe, str(out)]
    killed = sum([kill(words, seconds) for seconds in waits]) if engine == "Killed" else 0
    if killed:
        print(f"killed {counted(killed, 'time')}")
    count = 3 if engine == "3 sharing" else 1
    running = [
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for process in running:
        said = process.communicate()[1]
        if process.returncode:
            return said.strip().splitlines()[-1]
    digest = hashlib.sha256((out / "manifest.json").read_bytes()).hexdigest()
    shutil.rmtree(out)
    return digest


def kill(words: list[str], seconds: float) -> bool:
    """Start a run and kill it with all its processes, unless it ends before; return whether it was killed."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def carry_out(engine: str, recipe: str, out: str, overrides: list[str]) -> None:
    """Run a recipe with all that may be exchanged exchanged."""
    inputs.HELD, inputs.TASK, part.HELD, part.PIECE, order.HELD, order.PIECE = 0, 64 << 10, 0, 1000, 0, 1000
    clusters.SECTION, clusters.PIECE, clusters.TABLES = 100, 1000, 1000
    substring.PIECE, index.PIECE = 1 << 18, 1000
    made: dict[str, Engine] = {
        "3 sharing": Shared(),
        "Spark": Spark(master="local-cluster[2,1,1024]"),
        "Killed": Local(2),
    }
    chosen = parse_recipe(PDFS, overrides) if recipe == PDFS["name"] else load_recipe(recipe, overrides)
    lc.run(chosen, out, engine=made.get(engine) or Local(int(engine.split(maxsplit=1)[0])))


if __name__ == "__main__":
    main()
