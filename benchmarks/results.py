"""Run benchmark scripts and record their output in benchmarks/results/, one JSON file for each script.

    python benchmarks/results.py tokenization "recipes --recipes datatrove gpt-simple"

Each argument is a script of this folder without its ending, with the script's own options. A file has the date, the
machine, its load, the versions, the command and what the script printed. Nothing is written if a script fails or
measures nothing. Without arguments the recorded results are listed, with the last line of each.
"""

import argparse
import datetime as dt
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PACKAGES = ("numba", "numpy", "pyarrow", "datasets")


def processor() -> str:
    """Return the name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit of the checkout, with a mark if files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def without_folders(text: str) -> str:
    """Replace the names of this machine's folders."""
    known = {
        os.environ.get("LONGCRAWL_DATA", ""): "$LONGCRAWL_DATA",
        str(FOLDER.parent.resolve()): ".",
        str(Path.home()): "~",
    }
    for folder in sorted(filter(None, known), key=len, reverse=True):
        text = text.replace(folder, known[folder])
    return text.replace(tempfile.gettempdir(), "$TMPDIR")


def record(asked: str) -> Path:
    """Run a script, write its result and return the file."""
    name, *options = shlex.split(asked)
    load, started = os.getloadavg()[0], time.monotonic()
    words = [sys.executable, str(FOLDER / f"{name}.py"), *options]
    done = subprocess.run(words, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True, check=False)
    took = time.monotonic() - started
    if done.returncode or not done.stdout.strip() or done.stdout.startswith("nothing is measured"):
        sys.exit(f"{name} measured nothing: {done.stdout.strip() or f'exit status {done.returncode}'}")
    facts = {
        "script": f"benchmarks/{name}.py",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "command": f"python benchmarks/{without_folders(shlex.join([f'{name}.py', *options]))}",
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(took),
        "commit": commit(),
        "versions": {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}},
        "output": without_folders(done.stdout.rstrip()).splitlines(),
    }
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name.replace('/', '-')}.json"
    file.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="NAME", help="a script, quoted together with its options")
    for asked in parser.parse_args().scripts:
        print(f"wrote {record(asked).relative_to(FOLDER.parent)}", flush=True)
    found = sorted(RESULTS.glob("*.json"))
    for file in found:
        facts = json.loads(file.read_text("utf-8"))
        print(f"{facts['date']} {file.stem}: {facts['output'][-1]}")
    print(len(found))


if __name__ == "__main__":
    main()
