"""Counts the files entered on four walks through the code, traced by ``sys.setprofile``.

    python benchmarks/walks.py [--list]

A file counts once a function of it is called, in any thread; what importing runs does not count, and nothing that runs
inside a compiled kernel is seen. The walks are:

* ``rectangle``: a web archive to a rectangle, in one process, by a recipe of seven stages: text, length,
  Gopher's quality, exact duplicates, tokens, and rows of one length;
* ``load_dataset``: the first row of ``load_dataset("longcrawl", "warc")``;
* ``row``: ``Rectangle[0]`` of the rectangle's feed;
* ``why``: from a document's id to the rule that removed it, in the run's ledger.

``--list`` prints files in the order they are entered, with the first function. The last line is the sum of files over
the sum of those when this was written.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow.dataset as pads

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks" / "faults"))

from _inputs import train_tokenizer  # noqa: E402  # found by the path above

FOLDERS = (f"{ROOT / 'longcrawl'}{os.sep}", f"{ROOT / 'builders'}{os.sep}")
FIRST = {"rectangle": 122, "load_dataset": 27, "row": 15, "why": 16}
"""Files entered when this was written."""
RECIPE = """
longcrawl: 1
name: walk
source: {{builder: warc, data_files: ["{archive}/*.warc.gz"]}}
stages:
  - extract_text
  - min_chars: {{n: 100}}
  - gopher_quality
  - exact_documents
  - tokenize: {{tokenizer: "{tokenizer}"}}
  - min_tokens: {{n: 64}}
  - truncate: {{n: 64}}
outputs:
  rectangle: {{}}
"""


class Entered:
    """Notes files of ours as functions of theirs are called: {file: first function}."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._known: set[Any] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, as ``sys.setprofile`` passes it."""
        code = frame.f_code
        if event != "call" or code in self._known:
            return
        if not code.co_filename.startswith(FOLDERS):
            self._known.add(code)
        elif not is_importing(frame):
            self._known.add(code)
            self.files.setdefault(os.path.relpath(code.co_filename, ROOT), code.co_qualname)


def is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def walk_rectangle(folder: Path) -> None:
    import longcrawl as lc

    lc.run(folder / "walk.yaml", folder / "run", 1)


def walk_load_dataset(folder: Path) -> None:
    import datasets

    import longcrawl  # noqa: F401  # registers the builder

    found = datasets.load_dataset("longcrawl", "warc", data_files=str(folder / "archive" / "*.gz"), split="train")
    print(found[0]["url"])


def walk_row(folder: Path) -> None:
    from longcrawl.loading import Rectangle

    print(len(Rectangle(folder / "run" / "rectangle")[0]))


def walk_why(folder: Path) -> None:
    import longcrawl as lc

    removed = pads.dataset(folder / "run" / "ledger").head(1, columns=["id"])["id"][0].as_py()
    print(lc.why(folder / "run", removed))


WALKS: dict[str, Callable[[Path], None]] = {
    "rectangle": walk_rectangle,
    "load_dataset": walk_load_dataset,
    "row": walk_row,
    "why": walk_why,
}


def traced(walk: Callable[[Path], None], folder: Path) -> dict[str, str]:
    """Return the files that a walk enters, each with the first function entered."""
    entered = Entered()
    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        walk(folder)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered.files


def walk_apart(name: str, folder: Path) -> dict[str, str]:
    """Walk in a process of its own, where nothing is imported or remembered."""
    there = os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, "--here", name, str(folder)]
    done = subprocess.run(command, env=there, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="files in the order they are entered")
    parser.add_argument("--here", nargs=2, metavar=("WALK", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(traced(WALKS[options.here[0]], Path(options.here[1]))))
        return
    from longcrawl.run.samples import write_archive

    counts = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_archive(folder / "archive")
        (folder / "walk.yaml").write_text(
            RECIPE.format(archive=folder / "archive", tokenizer=train_tokenizer(folder / "tokenizer.json")), "utf-8"
        )
        walk_apart("rectangle", folder)  # compiles kernels, which calls more functions than a later run
        shutil.rmtree(folder / "run")
        for walk in WALKS:
            files = walk_apart(walk, folder)
            counts[walk] = len(files)
            print(f"{walk:14} {len(files):4} files")
            for number, (file, function) in enumerate(files.items() if options.list else (), 1):
                print(f"  {number:4} {file:48} {function}")
    print(f"walks ratio={sum(counts.values()) / sum(FIRST.values()):.2f}")


if __name__ == "__main__":
    main()
