"""Version, files of a release, and workflows agree with each other."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from longcrawl import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def loaded(path: Path) -> dict:
    return yaml.safe_load(path.read_text("utf-8"))


def pythons() -> list[str]:
    """Return the versions of Python in the classifiers."""
    return [found[1] for each in PROJECT["classifiers"] if (found := re.fullmatch(r".*Python :: (3\.\d+)", each))]


def test_the_version_has_one_source():
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT


def test_the_citation_is_valid_and_of_this_version():
    citation = loaded(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["cff-version"], citation["version"], citation["license"]) == (
        "1.2.0",
        __version__,
        PROJECT["license"],
    )
    assert f"{citation['date-released']:%Y-%m-%d}" in text("CITATION.cff")


def test_the_changelog_has_this_version():
    changelog = text("CHANGELOG.md")
    releases = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    date = loaded(ROOT / "CITATION.cff")["date-released"]
    assert releases[:2] == ["Unreleased", f"{__version__} - {date:%Y-%m-%d}"]


def test_the_security_policy_names_this_minor_release():
    assert f"({__version__.rpartition('.')[0]})" in text("SECURITY.md")


def test_the_command_imports_no_module_of_the_working_directory(tmp_path):
    """As SECURITY.md has it: a recipe that somebody else wrote may name one beside it."""
    (tmp_path / "beside.py").write_text("open('imported', 'w')")
    command = [Path(sys.executable).with_name("longcrawl"), "stages", "beside:Stage"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'beside'" in done.stdout + done.stderr
    assert not (tmp_path / "imported").exists()


def test_the_changelog_names_the_pythons():
    assert f"Python {pythons()[0]} to {pythons()[-1]}" in text("CHANGELOG.md")
    assert PROJECT["requires-python"] == f">={pythons()[0]}"


def test_no_docstring_holds_what_is_not_text():
    """Python 3.13 and later cannot compile a docstring with half of a surrogate pair."""
    sources = {path: path.read_text("utf-8") for path in (ROOT / "longcrawl").rglob("*.py")}
    trees = {path: ast.parse(source) for path, source in sources.items() if re.search(r"\\u[dD][89a-fA-F]", source)}
    constants = (
        (path, node.value.value)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    assert [str(path) for path, docstring in constants if re.search("[\ud800-\udfff]", docstring)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_calls_what_is_there(path):
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    targets = re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE)
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 90
        for command in (step["run"] for step in job["steps"] if "run" in step):
            called, *rest = command.split()
            assert called in ("pip", "make") or (ROOT / called).stat().st_mode & 0o111
            assert called != "make" or set(rest) <= set(targets)


def test_the_tests_run_on_every_python_of_the_classifiers():
    jobs = loaded(ROOT / ".github/workflows/tests.yml")["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == pythons()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_needs(path):
    form = loaded(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
