"""Are the blocks that docs/migrate.md names in the peers' releases, with those arguments?

    python -m venv peer && peer/bin/pip install "datatrove[processing]"
    pip download --no-deps -d wheels datatrove dolma nemo-curator gpt-simple-lm nanotron
    python benchmarks/peer_names.py --peers-python peer/bin/python wheels/*.whl

Every code span in the first column of a table is looked up in the peer's sources: a class or function with the
arguments in its call, an argument, or a text, such as an option or a tagger. Calls in text blocks are looked up, too.
With ``--peers-python``, datatrove's blocks are imported. The last line is the share of all names that are there.
"""

import argparse
import ast
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from _needed import lacks

PAGE = Path(__file__).parent.parent / "docs" / "migrate.md"
PEERS = {
    "datatrove": "datatrove",
    "dolma": "dolma",
    "nemo_curator": "NeMo Curator",
    "gpt_simple_lm": "GPT-Simple",
    "nanotron": "nanotron",
}
"""The package of a wheel, and its heading in the page."""

MODULES = (
    "datatrove.executor",
    "datatrove.utils.dataset",
    *(
        f"datatrove.pipeline.{name}"
        for name in ("decont", "dedup", "extractors", "filters", "readers", "tokens", "writers")
    ),
)
"""Modules from which datatrove's users import its blocks."""


@dataclass
class Sources:
    """The names in a package: arguments by class or function, and all texts."""

    arguments: dict[str, set[str]] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)

    def add(self, module: ast.Module) -> None:
        """Add what a module defines."""
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                self.bases.setdefault(node.name, []).extend(
                    base.id for base in node.bases if isinstance(base, ast.Name)
                )
                self.arguments.setdefault(node.name, set()).update(self._fields(node))
            elif isinstance(node, ast.FunctionDef):
                self.arguments.setdefault(node.name, set()).update(self._parameters(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.texts.add(node.value)

    def _fields(self, node: ast.ClassDef) -> Iterator[str]:
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                yield from self._parameters(part)
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield part.target.id

    def _parameters(self, node: ast.FunctionDef) -> list[str]:
        return [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]

    def takes(self, name: str, argument: str) -> bool:
        """Return whether a class, or one that it is derived from, takes an argument."""
        above = self.bases.get(name, [])
        return argument in self.arguments.get(name, ()) or any(self.takes(base, argument) for base in above)

    def has(self, word: str) -> bool:
        """Return whether a word is a class, a function, an argument, a text, or the end of one, as of a file's name."""
        known = word in self.arguments or any(word in names for names in self.arguments.values())
        ends = word.startswith((".", "*.")) and any(text.endswith(word.lstrip("*")) for text in self.texts)
        return known or ends or word in self.texts

    def missing(self, span: str) -> list[str]:
        """List what a code span names that is not there."""
        try:
            call = ast.parse(span.replace("…", "..."), mode="eval").body
        except SyntaxError:
            return [word for word in span.split() if not self.has(word) and not self.has(word.lstrip("-"))]
        if not isinstance(call, ast.Call):
            return [] if self.has(span) else [span]
        return self.missing_of_call(call)

    def missing_of_call(self, call: ast.Call) -> list[str]:
        """List the function of a call, or its arguments, where they are not there."""
        name = ast.unparse(call.func).rpartition(".")[2]
        if name not in self.arguments:
            return [name]
        return [f"{name}({each.arg}=)" for each in call.keywords if each.arg and not self.takes(name, each.arg)]


def read_wheel(path: Path) -> Sources:
    """Return the names in a wheel's modules."""
    found = Sources()
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".py"):
                found.add(ast.parse(wheel.read(name).decode()))
            found.texts.add(name)
    return found


def sections() -> dict[str, list[str]]:
    """Return the lines of each section of the page."""
    found: dict[str, list[str]] = {"": []}
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        list(found.values())[-1].append(line)
    return found


def spans(lines: list[str]) -> list[str]:
    """Return the code spans of the first columns of tables."""
    cells = [line.split("|")[1] for line in lines if line.startswith("|")]
    return [span for cell in cells for span in cell.split("`")[1::2]]


def calls(lines: list[str]) -> list[ast.Call]:
    """Return the calls in text blocks, which are the peer's."""
    blocks = [block.removeprefix("text\n") for block in "\n".join(lines).split("```")[1::2]]
    theirs = [block for block in blocks if not block.startswith(("python", "sh", "yaml"))]
    return [node for block in theirs for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]


def import_blocks(names: list[str]) -> None:
    """Import datatrove's blocks from where its users do; runs in its environment."""
    modules = [importlib.import_module(name) for name in MODULES]
    absent = [name for name in names if not any(hasattr(module, name) for module in modules)]
    print(f"{len(names) - len(absent)} of {len(names)} blocks imported, missing: {', '.join(absent) or 'none'}")
    sys.exit(bool(absent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, nargs="*")
    parser.add_argument("--peers-python", help="the Python of an environment with datatrove")
    parser.add_argument("--import-blocks", nargs="*", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if lacks("wheels of the peers", *(chosen.wheels or [None])):
        return
    if chosen.import_blocks is not None:
        import_blocks(chosen.import_blocks)
    page, looked, absent = sections(), 0, 0
    for wheel in chosen.wheels:
        package, version = wheel.name.split("-")[:2]
        sources, lines = read_wheel(wheel), page[PEERS[package]]
        named = [(span, sources.missing(span)) for span in spans(lines)]
        named += [(ast.unparse(call.func), sources.missing_of_call(call)) for call in calls(lines)]
        missing = [name for _, names in named for name in names]
        looked, absent = looked + len(named), absent + sum(bool(names) for _, names in named)
        print(f"{package} {version}: {len(named)} names, missing: {', '.join(missing) or 'none'}")
    if chosen.peers_python:
        names = [span.partition("(")[0] for span in spans(page["datatrove"]) if span[0].isupper()]
        subprocess.run([chosen.peers_python, __file__, *chosen.wheels, "--import-blocks", *names], check=True)
    print(f"peer_names ratio={1 - absent / max(looked, 1):.3f}")


if __name__ == "__main__":
    main()
