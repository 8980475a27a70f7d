"""The helper that compiles beside a run."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longcrawl.kernels.compiling import compiled
from longcrawl.run import compile_ahead
from longcrawl.run.recipe import parse_recipe

STAGES = [{"min_words": {"n": 2}}]
RUN = """
import json, sys
import longcrawl as lc
from longcrawl.run import compile_ahead
from longcrawl.run.recipe import parse_recipe

compile_ahead.usable_cpus = lambda: 2
started, start = [], compile_ahead._start
compile_ahead._start = lambda *given: started.append(start(*given)) or started[-1]
lc.run(parse_recipe(json.loads(sys.argv[1])), sys.argv[2])
print(json.dumps([[each.pid, each.returncode] for each in started]))
"""


def recipe(folder: Path) -> dict[str, object]:
    (folder / "documents.txt").write_text("one two three\n")
    return {
        "longcrawl": 1,
        "name": "tiny",
        "source": {"builder": "text", "data_files": str(folder / "documents.txt")},
        "stages": STAGES,
        "outputs": {"parquet": {}},
    }


def run(folder: Path) -> list[list[int]]:
    """Run a recipe in a process of its own; return the process ids and exit codes of its helpers."""
    command = [sys.executable, "-c", RUN, json.dumps(recipe(folder.parent)), str(folder)]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder.parent / "kernels")}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@compiled
def _double(number):
    return 2 * number


def test_the_first_kernel_starts_a_helper_that_ends_with_the_run(tmp_path, monkeypatch):
    started, start = [], compile_ahead._start
    monkeypatch.setattr(compile_ahead, "usable_cpus", lambda: 2)
    monkeypatch.setattr(compile_ahead, "_start", lambda *given: started.append(start(*given)) or started[-1])
    with compile_ahead.compiling_ahead(parse_recipe(recipe(tmp_path)), tmp_path):
        assert started == []
        for number in (1, 1.0):
            _double.compile((number,))
        (helper,) = started
        assert helper.poll() is None
    assert helper.poll() is not None


@pytest.mark.slow
def test_a_run_that_compiles_starts_one_helper_and_ends_it(tmp_path):
    ((process, code),) = run(tmp_path / "helped")
    assert code is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert run(tmp_path / "compiled") == []
    assert contents(tmp_path / "helped") == contents(tmp_path / "compiled")


def help_with(stages: list[tuple[str, dict[str, object]]], folder: Path) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kernels")}
    command = [sys.executable, "-m", "longcrawl.run.compile_ahead"]
    helper = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
    helper.stdin.write(json.dumps({"folder": str(folder), "stages": stages}).encode() + b"\n")
    helper.stdin.flush()
    return helper


HELP = """
import os, runpy, sys
import numba
numba.config.CACHE_DIR = sys.argv[1]
read, write = os.pipe()
os.dup2(read, 0)
os.write(write, sys.argv[2].encode() + b"\\n")
runpy.run_module("longcrawl.run.compile_ahead", run_name="__main__")
"""
"""The helper in a process that has imported all, with the pipe of a run that goes on."""


def test_the_helper_compiles_and_skips_what_it_cannot_apply(tmp_path, python):
    stages = [("min_words", {"n": 2}), ("decontaminate", {"against": ["not-there.txt"]})]
    done = python(HELP, tmp_path / "kernels", json.dumps({"folder": str(tmp_path), "stages": stages}))
    assert done.returncode == 0, done.stderr
    assert [file.suffix for file in sorted((tmp_path / "kernels").rglob("*.nb?"))] == [".nbc", ".nbi"]


@pytest.mark.slow
def test_the_helper_ends_when_its_run_is_killed(tmp_path):
    helper = help_with([("gopher_repetition", {})], tmp_path)
    helper.stdin.close()
    started = time.monotonic()
    assert helper.wait() == 0
    assert time.monotonic() - started < 5
    assert list(tmp_path.rglob("*.nbi")) == []
