"""The scripts of benchmarks/: what they ask for, where they are listed, and which commands they measure."""

import ast
import runpy
import sys
from pathlib import Path

import cold_start
import pytest
import typer

from longcrawl.cli.commands import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
FILES = [*FOLDER.glob("*.py"), *FOLDER.glob("faults/*.py")]
SCRIPTS = [file for file in FILES if not file.name.startswith("_")]
NEEDING = (
    *("classifiers", "engines_agree", "gopher_peers", "long_choices", "long_models", "long_range", "migration"),
    *("pdf", "peer_names", "plan", "pushed_tables", "related", "takedown", "train_extraction", "whole_job"),
)
"""Scripts that measure nothing without real input or a peer."""


def is_required(call: ast.Call) -> bool:
    """Return whether a call of ``add_argument`` adds one that has to be given."""
    settings = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg in ("required", "nargs")}
    name = ast.literal_eval(call.args[0])
    return settings.get("required", False) if name.startswith("-") else settings.get("nargs") not in ("*", "?")


def required_arguments(file: Path) -> list[str]:
    """Return the calls of a script that add an argument which has to be given."""
    text = file.read_text("utf-8")
    calls = [node for node in ast.walk(ast.parse(text if "add_argument" in text else "")) if isinstance(node, ast.Call)]
    added = [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "add_argument"]
    return [ast.unparse(call) for call in added if is_required(call)]


def test_no_script_asks_for_an_argument():
    """`make bench` runs each without one."""
    assert {file.name: asked for file in FILES if (asked := required_arguments(file))} == {}


@pytest.mark.parametrize("name", NEEDING)
def test_a_script_without_what_it_needs_says_so(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LONGCRAWL_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert said.startswith("nothing is measured without ")
    assert said.count("\n") == 1


def test_every_script_is_listed():
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    names = {file.relative_to(FOLDER).as_posix() for file in SCRIPTS}
    assert [name for name in sorted(names) if f"`{name}" not in page] == []


def test_every_verb_is_measured_or_has_a_reason():
    commands = typer.main.get_command(app).commands
    groups = {name: getattr(command, "commands", {}) for name, command in commands.items()}
    verbs = {f"{name} {each}".strip() for name, under in groups.items() for each in under or ("",)}
    measured = {name.partition(" --")[0] for name in cold_start.VERBS}
    assert measured | set(cold_start.UNMEASURED) == verbs
    assert not measured & set(cold_start.UNMEASURED)
