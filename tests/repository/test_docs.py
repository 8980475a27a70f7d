"""Documentation that runs: every code block of README.md and docs, every doctest, every verb of the CLI."""

import base64
import doctest
import gzip
import importlib.util
import itertools
import json
import operator
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import load_dataset
from typer.testing import CliRunner

import longcrawl
from longcrawl.cli.commands import app

ROOT = Path(__file__).parents[2]
SPARK = bool(importlib.util.find_spec("pyspark")) and shutil.which("java") is not None
TORCH = importlib.util.find_spec("torch")
TRAINER = TORCH and importlib.util.find_spec("accelerate")
NOT_HERE = ("pytest", "longcrawl push", "longcrawl fetch")
"""What stands in shell blocks of the README that another test runs."""
LONG = (
    "filters",
    "classifiers",
    "dedup",
    "refinedweb",
    "composition",
    "feeds",
    "living",
    "long",
    "origins",
    "plan",
    "migrate",
)
LONG += ("takedown",)
"""Pages whose blocks take seconds: .ci/run runs them beside the wheel."""
OF_TORCH = ("feeds", "origins")
"""Pages that feed a model of torch."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TINY = """
longcrawl: 1
name: tiny
about: Made in a test.
source: {builder: text, data_files: texts.jsonl}
stages: [{min_chars: {n: 99}}, {tokenize: {tokenizer: trained, vocabulary_size: 400}}, {truncate: {n: 1024}}]
outputs: {rectangle: {}}
"""
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(longcrawl.__path__, "longcrawl.")
    if not module.name.endswith("__main__")
)


def blocks(document: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / document).read_text("utf-8"))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Return a folder as a reader of the README has it: a rank file of single bytes and a small web archive."""
    folder = tmp_path_factory.mktemp("reader")
    ranks = (f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256))
    (folder / "gpt2.tiktoken").write_text("\n".join(ranks) + "\n")
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>A page</p>"
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://a/\r\nContent-Length: {len(page)}\r\n\r\n"
    (folder / "books").mkdir()
    (folder / "spam").mkdir()
    for number in range(3):
        (folder / f"books/{number}.txt").write_text(f"A text of somebody's own, the {number}th.")
        (folder / f"spam/{number}.txt").write_text(f"Win {number} prizes now.")
    (folder / "crawl").mkdir()
    (folder / "crawl/a.warc.gz").write_bytes(gzip.compress(head.encode() + page + b"\r\n\r\n"))
    return folder


@pytest.fixture(scope="module")
def release(workplace, make_release):
    words = " ".join(f"word{(7 * i) % 1009}" for i in range(20_000))
    make_release(workplace / "release", {"2023-06/0000/en_head": [f"{number} {words}" for number in range(12)]})


PAGE = """
import json, os, sys

os.chdir(sys.argv[1])

def run(texts, names, bare):
    for number, text in enumerate(texts):
        names.clear()
        names.update(bare)
        exec(compile(text, f"<block {number}>", "exec"), names)

run(json.loads(sys.argv[2]), globals(), {name: globals()[name] for name in ("__name__", "__builtins__")})
"""


@pytest.fixture(scope="module")
def blocks_of_python(python):
    """Return a function that runs blocks one after the other, none with names of another, in one process."""

    def run_blocks(texts: list[str], folder: Path) -> None:
        done = python(PAGE, folder, json.dumps(texts))
        assert done.returncode == 0, done.stderr[-2000:]

    return run_blocks


def shell(command: str, folder: Path) -> None:
    """Run what stands in a shell block with `longcrawl` of this environment; installing has been done."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"HF_DATASETS_CACHE": str(folder / ".cache"), "HF_HUB_OFFLINE": "1"}
    words = ["bash", "-euc", command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_every_block_of_the_readme_runs(workplace, release, longcrawl, blocks_of_python, monkeypatch):
    monkeypatch.chdir(workplace)
    ran = 0
    for language, group in itertools.groupby(blocks("README.md"), key=operator.itemgetter(0)):
        texts = [text for _, text in group if language == "python" or not any(word in text for word in NOT_HERE)]
        if language == "python":
            blocks_of_python(texts, workplace)
        for text in texts if language == "sh" else ():
            lines = text.splitlines()
            if all(line.startswith("longcrawl ") and not line.endswith("\\") for line in lines):
                for line in lines:
                    asked = longcrawl(*shlex.split(line, comments=True)[1:])
                    assert asked.returncode == 0, (line, asked.stderr[-2000:])
            else:
                shell(text.replace("pip install -e .\n", ""), workplace)
        ran += len(texts) if language in ("python", "sh") else 0
    assert ran >= 6
    assert (workplace / "quickstart" / "manifest.json").exists()
    assert json.loads((workplace / "mini64" / "manifest.json").read_text())["output"]["shapes"]["train"] == [11, 65536]


@pytest.mark.slow
def test_every_block_of_the_formats_runs(workplace, blocks_of_python):
    if not (workplace / "mini.zarr").exists():
        text = next(text for language, text in blocks("README.md") if language == "python")
        assert 'lc.open("installed")' in text
        lines = [" ".join(f"word{(number + 7 * i) % 1009}" for i in range(5000)) for number in range(13)]
        (workplace / "long.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        blocks_of_python([text.replace('"installed"', '"text", data_files="long.jsonl"')], workplace)
    texts = [text for language, text in blocks("docs/formats.md") if language == "python"]
    assert len(texts) == 8
    blocks_of_python(texts, workplace)


def test_every_block_of_publishing_runs(tmp_path, monkeypatch, hub):
    monkeypatch.chdir(tmp_path)
    texts = (" ".join(f"word{(number + 7 * i) % 1009}" for i in range(1500 if number else 3)) for number in range(13))
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    Path("tiny.yaml").write_text(TINY)
    longcrawl.run("tiny.yaml", "quickstart")
    ran = 0
    for language, text in blocks("docs/publish.md"):
        if language == "sh" and "longcrawl" in text:
            for line in text.splitlines():
                done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
                assert done.exit_code == 0, f"{line}: {done.exception}"
                ran += 1
        elif language == "python" and "quickstart" in text:
            exec(compile(text, "publish.md", "exec"), {})  # noqa: S102  # a page of our own
            ran += 1
    assert ran == 13
    assert hub.repositories["me/quickstart"].tags


@pytest.mark.slow
@pytest.mark.skipif(
    not SPARK, reason="Spark needs PySpark and Java: pip install -e '.[spark]', openjdk-17-jre-headless"
)
def test_every_block_for_a_cluster_runs_that_needs_none(tmp_path, blocks_of_python):
    blocks_of_python([text for language, text in blocks("docs/cluster.md") if language == "python"], tmp_path)
    assert (tmp_path / "quickstart-spark" / "manifest.json").exists()
    (command,) = (text for _, text in blocks("docs/cluster.md") if text.startswith("printf"))
    texts = (" ".join(f"word{(number + 7 * i) % 1009}" for i in range(1500)) for number in range(13))
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "my-recipe.yaml").write_text(TINY)
    shell(command, tmp_path)
    assert (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.parametrize("page", ["extend", *(pytest.param(page, marks=pytest.mark.slow) for page in LONG)])
def test_every_block_of_a_page_runs(page, tmp_path, blocks_of_python):
    if page in OF_TORCH and not TORCH:
        pytest.skip("feeding a model needs torch: pip install torch")
    texts = [text for language, text in blocks(f"docs/{page}.md") if language == "python"]
    if not TRAINER:
        texts = [text for text in texts if "import LlamaConfig" not in text]
    assert texts
    blocks_of_python(texts, tmp_path)


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs(tmp_path, longcrawl, blocks_of_python, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language, group in itertools.groupby(blocks("docs/tutorial.md"), key=operator.itemgetter(0)):
        texts = [text for _, text in group]
        if language == "python":
            blocks_of_python(texts, tmp_path)
        for line in "".join(texts).splitlines() if language == "sh" else ():
            asked = longcrawl(*shlex.split(line, comments=True)[1:])
            assert asked.returncode == 0, (line, asked.stderr[-2000:])
    assert (tmp_path / "pages" / "report.html").exists()


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="the site needs pip install -e '.[docs]'")
def test_the_site_builds_without_warnings(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "tutorial.html", "reference/stages.html", "notebooks/00_first_crawl.html"} <= pages
    for page in pages:
        text = (tmp_path / "site" / page).read_text("utf-8")
        fetched = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="?(?:https?:)?//[^">]*', text)
        assert [each for each in fetched if "canonical" not in each] == [], page
    stages = (tmp_path / "site/reference/stages.html").read_text("utf-8")
    assert "RedPajama-V2&rsquo;s sense" in stages or "RedPajama-V2's sense" in stages
    assert 'id="gopher_quality"' in stages


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files(page):
    """As GitHub resolves them; MkDocs checks pages and headings, where it can be installed."""
    prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text("utf-8")))
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation_of_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages |= {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {page for page in pages if f": {page}\n" not in navigation} == set()


def test_the_readme_holds_the_two_commands():
    commands = [text.strip() for language, text in blocks("README.md") if language == "sh"]
    assert "pip install -e .\nlongcrawl run quickstart --out quickstart" in commands
    assert 'pip install -e ".[test]" && pytest -n 2' in commands


def test_every_verb_is_in_the_readme_and_says_what_it_does():
    said = "\n".join(text for language, text in blocks("README.md") if language == "sh")
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert f"longcrawl {name}" in said
        assert command.callback.__doc__


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_links_and_pictures_of_the_readme_exist():
    prose = BLOCK.sub("", (ROOT / "README.md").read_text("utf-8"))
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_load_dataset_is_what_the_readme_says_it_is(workplace, release):
    data = load_dataset("longcrawl", "redpajama-v2", data_dir=str(workplace / "release"), split="train")
    assert len(data) == 12
