"""Kernels that are compiled ahead."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli import warm
from longcrawl.cli.commands import app
from longcrawl.core.outputs import OUTPUTS
from longcrawl.tokens.encoders import load_encoder


@pytest.mark.slow
def test_nothing_is_compiled_twice(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "longcrawl", "warm"]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert int(first.split()[0]) > 100
    assert second.startswith("0 kernels compiled in ")


def test_tasks_find_what_is_prepared_for_them(tmp_path):
    """The tasks themselves compile for minutes."""
    warm.prepare(tmp_path)
    read = lc.load("text", data_files=str(tmp_path / "documents.jsonl"))
    assert read["text"] == warm.documents()["text"].to_pylist()
    assert load_encoder(str(tmp_path / "tokenizer.json")).vocabulary_size <= 300
    assert [shape for shape, steps in warm.SHAPES.items() if set(steps[-1]) != {shape}] == []
    assert set(warm.SHAPES) <= set(OUTPUTS)


def test_the_answer_as_json(monkeypatch):
    monkeypatch.setattr(warm, "prepare", lambda _: None)
    monkeypatch.setattr(warm, "tasks", lambda: [str, str])
    shown = CliRunner().invoke(app, ["warm", "--num-proc", "1", "--json"])
    assert json.loads(shown.stdout) | {"kernels": 0, "processes": 1} == json.loads(shown.stdout)
