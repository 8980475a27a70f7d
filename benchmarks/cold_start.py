"""Time before the first result: imports, help, and kernels that are not compiled yet.

    python benchmarks/cold_start.py [--runs 5] [--verbs run "inspect --text"]

Each command is a process of its own; CPU time is that of the process and its children, the least of some runs. First
come imports, help and the recipes, then every verb on 40 made-up documents or on their run: once with empty folders for
kernels and tables, and again with what that has left. The stages of ``inspect --text``, the three kinds of
deduplication and GPT-Simple's tokens are then compiled in one process, whose seconds are listed by module. Figures
above their goal are marked. The last line is the CPU time of a first ``longcrawl inspect --text`` over the next.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from longcrawl.cli import warm

BY_MODULE = """
import collections, os, sys, tempfile, time
from functools import partial
from pathlib import Path
from numba.core import event
from longcrawl.cli import warm

spent, functions, running = collections.Counter(), collections.Counter(), []

class Kernels(event.Listener):
    def on_start(self, _):
        running.append([time.process_time(), 0.0])

    def on_end(self, ended):
        if not ended.data["dispatcher"].nopython_signatures:  # its kernel first waits for its turn
            running.pop()
            return
        started, within = running.pop()
        seconds = time.process_time() - started
        if running:
            running[-1][1] += seconds
        module = ended.data["dispatcher"].py_func.__module__
        spent[module] += seconds - within
        functions[module] += 1

event.register("numba:compile", Kernels())
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    warm.prepare(Path(folder))
    for task in (warm.explain, warm.compare, partial(warm.write, "gpt-simple")):
        task(Path(folder))
print(f"{'usual stages':28} {sum(spent.values()):6.2f} to compile {sum(functions.values())} functions, of that")
for module, seconds in spent.most_common(12):
    print(f"  {module.removeprefix('longcrawl.'):26} {seconds:6.2f} {functions[module]:4}")
"""
"""Functions that others call are counted apart from these."""

VERBS = {
    "init": "documents.jsonl --out {out}.yaml",
    "plan": "recipe.yaml",
    "run": "recipe.yaml --out {out}",
    "tokenize": "documents.jsonl --tokenizer tokenizer.json --max-length 64 --output-dir {out}",
    "convert": "run/gpt-simple {out} --to megatron",
    "validate": "run/gpt-simple --max-length 64",
    "compose": "run --capacities 64,128",
    "trace": "run --step 0 --set max_length=64 --set batch_size=2",
    "funnel": "run --rates",
    "why": "run document-1",
    "clusters": "run",
    "contamination": "run",
    "queue": "run",
    "lists hits": "run",
    "inspect": "run",
    "inspect --text": "README.md",
    "verify": "run",
    "verify --quick": "run",
    "card": "run",
    "report": "run --out {out}.html",
    "takedown": "run --ids ids.txt --out {out}",
    "lines": "documents.jsonl --min-documents 2",
    "train-classifier": "documents.jsonl others.jsonl --out {out}.bin",
    "recipes": "",
    "stages": "gopher_quality",
    "sources": "text",
    "outputs": "rectangle",
    "tables": "run",
}
"""Every verb that needs no network, and what stands behind it in the folder of ``write_input``; ``{out}`` is new."""
GOALS = dict.fromkeys(("funnel", "why", "verify --quick", "inspect", "recipes", "stages"), 0.7)
"""CPU seconds that an answer may take once kernels are compiled."""
LOADING_GOAL = 0.5
"""CPU seconds to import all feeds, more than Python itself takes."""
UNMEASURED = {
    "fetch": "needs a network",
    "lists fetch": "needs a network",
    "push": "needs a network",
    "warm": "compiles all kernels, and has a line of its own",
}
STAGES = (
    "url_filter",
    "gopher_quality",
    "exact_documents",
    {"min_hash": {"unit": "word"}},
    {"decontaminate": {"against": ["exam.txt"], "ngram": 5}},
    {"tokenize": {"tokenizer": "tokenizer.json"}},
    {"windows": {"max_length": 64}},
)

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "longcrawl"]


def spent(command: Sequence[str], folder: Path | None = None, **environment: str) -> float:
    """Return the CPU seconds of a process and of all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # An installed package has bytecode, without which imports take half as long again.
    own = os.environ | {"PYTHONDONTWRITEBYTECODE": ""} | environment
    subprocess.run(command, cwd=folder, env=own, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(command: Sequence[str], runs: int, **environment: str) -> float:
    return min(spent(command, **environment) for _ in range(runs))


def above(goal: float | None, seconds: float) -> str:
    return "" if goal is None or seconds <= goal else f"  above {goal:.2f}"


def write_input(folder: Path) -> None:
    """Write documents, a tokenizer, a recipe and its run."""
    warm.prepare(folder)
    texts = [f"An exam about rivers, number {number}, asks what a bridge is for." for number in range(40)]
    (folder / "others.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "exam.txt").write_text("The question of an exam that no document has.\n")
    (folder / "ids.txt").write_text("document-1\n")
    (folder / "README.md").write_bytes((ROOT / "README.md").read_bytes())
    source = {"builder": "text", "id_field": "id", "data_files": "documents.jsonl"}
    recipe = {"longcrawl": 1, "name": "cold", "source": source, "stages": STAGES, "outputs": {"gpt-simple": {}}}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    subprocess.run([*COMMAND, "run", "recipe.yaml", "--out", "run"], cwd=folder, check=True, capture_output=True)


def measure_verbs(folder: Path, names: Sequence[str], runs: int) -> None:
    """Print CPU seconds of each verb, with nothing compiled and again."""
    write_input(folder)
    print(f"{'longcrawl':28} {'first':>6}  {'again':>6}")
    for name in names:
        own = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME"), f"{folder}/cache of {name}")
        own |= {"HF_HUB_OFFLINE": "1"}
        turns = [f"{name} {VERBS[name]}".format(out=f"{name}-{turn}").split() for turn in range(runs + 1)]
        first, *again = (spent([*COMMAND, *turn], folder, **own) for turn in turns)
        print(f"  {name:26} {first:6.2f}  {min(again):6.2f}{above(GOALS.get(name), min(again))}", flush=True)
    for name, reason in UNMEASURED.items():
        print(f"  {name:26} {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--verbs", nargs="*", choices=list(VERBS), default=list(VERBS), metavar="VERB")
    asked = parser.parse_args()
    runs = asked.runs
    python = [sys.executable, "-c"]
    print(f"python                       {least([*python, 'pass'], runs):6.2f} CPU s")
    print(f"import longcrawl             {least([*python, 'import longcrawl'], runs):6.2f}")
    feeds = "import sys, longcrawl.loading as feeds; [getattr(feeds, name) for name in feeds.__all__]"
    lean = f"{feeds}; assert not {{'pandas', 'numba', 'scipy', 'datasketch'}} & set(sys.modules)"
    loading = least([*python, lean], runs)
    print(f"all of longcrawl.loading     {loading:6.2f}{above(LOADING_GOAL, loading)}")
    datasets = least([*python, "import datasets"], runs)
    every = "import datasets, longcrawl; [getattr(longcrawl, name) for name in longcrawl.__all__]"
    print(f"import datasets              {datasets:6.2f}")
    print(f"  and all of longcrawl       {least([*python, every], runs) - datasets:6.2f} more")
    print(f"longcrawl --help             {least([*COMMAND, '--help'], runs):6.2f}")
    print(f"longcrawl recipes            {least([*COMMAND, 'recipes'], runs):6.2f}")
    with tempfile.TemporaryDirectory() as folder:
        measure_verbs(Path(folder), asked.verbs, runs)
    inspect = [*COMMAND, "inspect", "--text", str(ROOT / "README.md")]
    with tempfile.TemporaryDirectory() as folder:
        own = {"NUMBA_CACHE_DIR": f"{folder}/own"}
        first = spent(inspect, **own)
        again = least(inspect, runs, **own)
        print(f"longcrawl inspect --text     {first:6.2f} with nothing compiled, {again:.2f} after that")
        listed = subprocess.run(
            [*python, BY_MODULE],
            env=os.environ | {"NUMBA_CACHE_DIR": f"{folder}/usual"},
            check=True,
            capture_output=True,
            text=True,
        )
        print(listed.stdout, end="")
        ahead = spent([*COMMAND, "warm"], NUMBA_CACHE_DIR=f"{folder}/warm")
        print(f"longcrawl warm               {ahead:6.2f}")
    print(f"cold_start ratio={first / again:.3f}")


if __name__ == "__main__":
    main()
