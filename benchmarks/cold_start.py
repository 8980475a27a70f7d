"""What a user waits for before the first result: imports, help, and kernels that are not compiled yet.

    python benchmarks/cold_start.py [--runs 5]

Each command is a process of its own; CPU time is that of the process and its children, the least of some runs. Kernels
are compiled into an empty folder, first for this CPU, then loaded from there, and then loaded from code for any CPU of
x86-64-v3, as a wheel carries it. The stages of ``inspect --text``, the three kinds of deduplication and GPT-Simple's
tokens are then compiled in one process, whose seconds are listed by module. The last line is the CPU time of a first
``longcrawl inspect --text`` without that code over the CPU time with it.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from longcrawl.kernels import compiling

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

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "longcrawl.cli"]


def spent(command: Sequence[str], **environment: str) -> float:
    """Return the CPU seconds of a process and of all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=os.environ | environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(command: Sequence[str], runs: int, **environment: str) -> float:
    return min(spent(command, **environment) for _ in range(runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    python = [sys.executable, "-c"]
    print(f"python                       {least([*python, 'pass'], runs):6.2f} CPU s")
    print(f"import longcrawl             {least([*python, 'import longcrawl'], runs):6.2f}")
    datasets = least([*python, "import datasets"], runs)
    every = "import datasets, longcrawl; [getattr(longcrawl, name) for name in longcrawl.__all__]"
    print(f"import datasets              {datasets:6.2f}")
    print(f"  and all of longcrawl       {least([*python, every], runs) - datasets:6.2f} more")
    print(f"longcrawl --help             {least([*COMMAND, '--help'], runs):6.2f}")
    print(f"longcrawl recipes            {least([*COMMAND, 'recipes'], runs):6.2f}")
    inspect = [*COMMAND, "inspect", "--text", str(ROOT / "README.md")]
    with tempfile.TemporaryDirectory() as folder:
        own = {"NUMBA_CACHE_DIR": f"{folder}/own"}
        first = spent(inspect, **own, **{compiling.COMPILE_HERE: "1"})
        again = least(inspect, runs, **own)
        print(f"longcrawl inspect --text     {first:6.2f} with nothing compiled, {again:.2f} after that")
        listed = subprocess.run(
            [*python, BY_MODULE],
            env=os.environ | {"NUMBA_CACHE_DIR": f"{folder}/usual", compiling.COMPILE_HERE: "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        print(listed.stdout, end="")
        warm = spent([*COMMAND, "warm"], NUMBA_CACHE_DIR=f"{folder}/warm")
        print(f"longcrawl warm               {warm:6.2f}")
        with_code = spent([*COMMAND, "warm", "--portable", f"{folder}/portable"])
        code = f"from longcrawl.kernels import compiling; compiling.PORTABLE = compiling.Path({f'{folder}/portable'!r})"
        run = f"{code}; import sys; sys.argv[1:] = {inspect[3:]!r}; from longcrawl.cli import main; main()"
        loaded = min(spent([*python, run], NUMBA_CACHE_DIR=f"{folder}/{number}") for number in range(runs))
        print(f"longcrawl inspect --text     {loaded:6.2f} with a wheel's code, made in {with_code:.0f}")
    print(f"cold_start ratio={first / loaded:.3f}")


if __name__ == "__main__":
    main()
