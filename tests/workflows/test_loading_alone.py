"""Feeds read every format without the packages that only make data, and give the same batches."""

import contextlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import longcrawl as lc

ROOT = Path(__file__).parents[2]
FEEDS = """
import hashlib, json, os, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(json.loads(sys.argv[1])):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import longcrawl as lc

feeds = {"rectangle": lc.loading.Rectangle("rectangle", batch_size=2, context_length=16)}
feeds["composed"] = lc.loading.ComposedBatches("composed", tokens_per_step=64)
for packing in ("length-binned", "first-fit", "in-order", "separate"):
    feeds[packing] = lc.loading.Packed("gpt-simple", max_length=32, packing=packing)
for name in ("datatrove", "megatron", "nanogpt", "olmo-core"):
    windows = lc.loading.Windows(name, 16, shuffle="windows", format="nanogpt" if name == "nanogpt" else None)
    feeds[name] = windows.batches(4)
    feeds[f"{name}, mixed"] = lc.loading.WindowMixture({"a": windows}, {"a": 1.0}, batch_size=2)
if "numba" not in json.loads(sys.argv[1]):
    feeds["jsonl"] = lc.loading.Jsonl("rows.jsonl", tokenizer="gpt-simple/tokenizer.json", batch_size=2, max_length=32)
digests = {}
for name, feed in feeds.items():
    batch = next(iter(feed))
    arrays = {key: np.asarray(value) for key, value in batch.items() if not isinstance(value, (dict, list))}
    digests[name] = hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays))).hexdigest()
there = {name for name in json.loads(sys.argv[1]) if sys.modules.get(name)}
assert not there, there
print(json.dumps(digests))
"""


def named_in_docs() -> set[str]:
    """Return the packages that the guide installs for loading alone."""
    guide = (ROOT / "docs" / "feeds.md").read_text("utf-8")
    (line,) = re.findall(r"^pip install ((?:'[^']+' ?)+)$", guide, re.MULTILINE)
    return {Requirement(each).name for each in re.findall(r"'([^']+)'", line)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with an output of each format."""
    folder = tmp_path_factory.mktemp("outputs")
    rows = [{"id": str(number), "text": "The tide was out. " * (number % 9 + 2)} for number in range(60)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokens = lc.Crawl(rows) | lc.tokens.Tokenize("trained", vocabulary_size=300)
    for name in ("gpt_simple", "datatrove", "megatron", "nanogpt", "olmo_core"):
        getattr(tokens, f"to_{name}")(folder / name.replace("_", "-"))
    tokens.to_composed(folder / "composed", capacities=[16, 32])
    (tokens | lc.tokens.MinTokens(16) | lc.tokens.Truncate(16)).to_rectangle(folder / "rectangle")
    return folder


def load(folder: Path, script: str, missing: list[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "ignore", "-c", script, json.dumps(missing)]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def batches(folder: Path, missing: list[str]) -> dict[str, str]:
    done = load(folder, FEEDS, missing)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def everything(folder, python) -> dict[str, str]:
    """Return what feeds give where all packages are."""
    with contextlib.chdir(folder):
        done = python(FEEDS, "[]")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def left_out(*added: str) -> list[str]:
    """Return the modules that an installation for loading lacks, to which some packages were added."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = {Requirement(each).name for each in declared} - named_in_docs()
    assert {"numba", "llvmlite", "transformers", "datasets", "typer", "tokenizers"} <= names
    every = (names | {"pandas", "scipy", "datasketch", "torch"}) - {*added}
    return sorted(name.replace("-", "_") for name in every)


def test_every_format_is_read_without_the_packages_that_make_data(folder, everything):
    tokens = {name: batch for name, batch in everything.items() if name != "jsonl"}
    assert batches(folder, left_out()) == tokens


@pytest.mark.slow
def test_json_lines_are_read_with_the_packages_that_the_guide_adds(folder, everything):
    assert "`Jsonl` needs `numba` and `tokenizers`" in (ROOT / "docs" / "feeds.md").read_text("utf-8")
    assert batches(folder, left_out("numba", "llvmlite", "tokenizers")) == everything


@pytest.mark.slow
def test_the_packing_that_needs_numba_says_so(folder):
    script = FEEDS.replace('("length-binned", "first-fit", "in-order", "separate")', '("best-fit",)')
    assert "needs numba: pip install numba" in load(folder, script, ["numba", "llvmlite"]).stderr
