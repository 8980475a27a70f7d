"""Counts the wordings that STYLE.md asks to avoid, in docstrings, comments, messages and documents.

``python -m tests.prose`` prints the count of each pattern and, with paths, where each occurrence is::

    python -m tests.prose longcrawl/io docs/feeds.md
    python -m tests.prose --commit 67ed2765

``tests/repository/test_prose.py`` holds each count to a bound. A pattern is a regular expression and finds some
sentences that are good English; the bounds allow for them.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BEFORE = "67ed2765"
"""The commit whose counts the goals refer to."""
PROSE = ("README.md", "CONTRIBUTING.md", "docs", "cards", "longcrawl", "builders", "notebooks")

_DOCUMENTS = (
    r"(?:documents?|pages?|rows?|records?|texts?|lines?|files?|paragraphs?|one|others|all|it|they|that|which|\d+)"
)
_MOVE = r"(?:leaves?|left|stays?|stayed|comes?|came|goes|go|went|(?:is|are|was|were) gone)"
_BEGIN = r"(?:\A|(?<=[.:;] )|(?<=\n\n))"
PATTERNS = {
    "headless 'What …' at the start of a docstring": r"\A(?:What|How|Which|Why|Who)\b(?![^.?]*\?)",
    "fronted 'Of / By / Whose …'": _BEGIN
    + r"(?:Of|By|Whose|From whom|To what|In what|With what)\b(?! (?:default|hand)\b)",
    "documents that leave, stay, come or are gone": rf"\b{_DOCUMENTS} {_MOVE}\b"
    r"|\bleft at\b|\bwhat (?:came|left|leaves|stays)\b|\bleaves? at\b",
    "'says', 'told', 'a sentence' for messages": r"\b(?:says?|said|saying|tells?|told|a sentence|one sentence)\b",
    "'lies', 'stands' for location": r"\b(?:lies?|lay|lying|stands?|stood)\b",
    "'as above', 'as below'": r"\bas (?:above|below|before|ever|always)\b|\bhere and below\b|\bsee above\b",
    "trailing ', too' and ', again'": r",? \btoo(?=[.;:)\n]|$)|, (?:as ever|again)(?=[.;:)\n]|$)",
    "'is to be', 'shall'": r"\b(?:is|are|was|were) to be\b|\bshall\b",
    "'Where' for 'if' or 'when'": r"(?:\A|(?<=[.;:] ))Where\b(?![^.?]*\?)",
}
FOUND = {name: re.compile(pattern, re.MULTILINE) for name, pattern in PATTERNS.items()}


class Passage(NamedTuple):
    """A docstring, comment, message or paragraph."""

    place: str
    text: str


def passages(root: Path, path: str) -> Iterator[Passage]:
    """Yield the prose of a file or of all files in a folder."""
    target = root / path
    files = sorted(target.rglob("*")) if target.is_dir() else [target] if target.is_file() else []
    for file in files:
        if "__pycache__" in file.parts:
            continue
        name = file.relative_to(root).as_posix()
        if file.suffix == ".py":
            yield from _of_python(name, file.read_text("utf-8"))
        elif file.suffix == ".md":
            yield from _of_markdown(name, file.read_text("utf-8"))
        elif file.suffix == ".ipynb":
            cells = [cell for cell in json.loads(file.read_text("utf-8"))["cells"] if cell["cell_type"] == "markdown"]
            yield from _of_markdown(name, "\n".join("".join(cell["source"]) for cell in cells))
        elif file.suffix in (".yaml", ".yml") and "recipes" in file.parts:
            comments = [line.partition("#")[2].strip() for line in file.read_text("utf-8").splitlines()]
            yield from (Passage(f"{name}:{number}", text) for number, text in enumerate(comments, 1) if text)


def _of_python(name: str, source: str) -> Iterator[Passage]:
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) in docstrings:
            yield Passage(f"{name}:{node.lineno}", re.sub(r"``[^`]*``", "X", node.value))
        elif node.value.count(" ") > 2 and node.value.isprintable():
            yield Passage(f"{name}:{node.lineno}", " " + node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(f"{name}:{token.start[0]}", token.string.lstrip("#: "))


def _of_markdown(name: str, source: str) -> Iterator[Passage]:
    lines = source.splitlines()
    in_code = False
    for number, line in enumerate(lines, 1):
        in_code ^= line.lstrip().startswith(("```", "~~~"))
        if not in_code and line.strip():
            yield Passage(f"{name}:{number}", " " + re.sub(r"`[^`]*`", "X", line))


def occurrences(root: Path, paths: tuple[str, ...] = PROSE) -> Iterator[tuple[str, str, str]]:
    """Yield each occurrence: the pattern, the place, and the words around it."""
    for path in paths:
        for place, text in passages(root, path):
            for name, pattern in FOUND.items():
                for match in pattern.finditer(text):
                    words = text[max(match.start() - 30, 0) : match.end() + 30]
                    yield name, place, " ".join(words.split())


def counts(root: Path, paths: tuple[str, ...] = PROSE) -> dict[str, int]:
    """Return how often each pattern occurs."""
    found = Counter(name for name, _, _ in occurrences(root, paths))
    return {name: found[name] for name in PATTERNS}


def counts_at(commit: str, paths: tuple[str, ...] = PROSE) -> dict[str, int]:
    """Return how often each pattern occurred at a commit of this repository."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return counts(Path(folder), paths)


def main() -> None:
    """Print counts, and the places if paths are given."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("paths", nargs="*", help="files or folders whose occurrences are listed")
    parser.add_argument("--commit", help="also count at this commit")
    given = parser.parse_args()
    paths = tuple(given.paths) or PROSE
    if given.paths:
        for name, place, words in occurrences(ROOT, paths):
            sys.stdout.write(f"{place}: {name}: {words}\n")
    now = counts(ROOT, paths)
    before = counts_at(given.commit, paths) if given.commit else {}
    for name, count in now.items():
        sys.stdout.write(f"{name:<55} {count:>5}" + (f"  was {before[name]:>5}" if before else "") + "\n")


if __name__ == "__main__":
    main()
