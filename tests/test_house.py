"""Figures of the code as a whole; ``python -m pytest tests/test_house.py -s`` prints them."""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = {
    ".".join(("longcrawl", *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): file
    for folder, found in ((ROOT / "longcrawl", "**/*.py"), (ROOT, "builders/*.py"))
    for file in folder.glob(found)
}
MODULES = {module for module, file in FILES.items() if file.name not in ("__init__.py", "__main__.py")}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text("utf-8"))


@cache
def code_lines(module: str) -> frozenset[int]:
    """Return the lines of a module that hold neither comments nor docstrings alone."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(FILES[module].read_text("utf-8")).readline):
        if token.type not in nothing:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, node.end_lineno + 1))
    return frozenset(found)


def is_list_of_names(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def import_lines(module: str) -> set[int]:
    """Return the lines of a module that hold imports and ``__all__``."""
    nodes = [node for node in tree(module).body if is_list_of_names(node)]
    nodes += [node for node in ast.walk(tree(module)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)} & code_lines(module)


def importers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {module: set() for module in MODULES}
    for module in FILES:
        for node in ast.walk(tree(module)):
            names: Iterator[str] = iter(())
            if isinstance(node, ast.ImportFrom):
                each = (f"{node.module}.{alias.name}" for alias in node.names)
                names = (name if name in FILES else str(node.module) for name in each)
            elif isinstance(node, ast.Import):
                names = (alias.name for alias in node.names)
            for name in names:
                if name in found and name != module:
                    found[name].add(module)
    return found


def private_imports() -> list[str]:
    return [
        f"{by} imports {module}"
        for module, users in importers().items()
        for by in users
        if "._" in module and not by.startswith(f"{module[: module.index('._')]}.") and by != "longcrawl"
    ]


def figures() -> dict[str, float]:
    used = importers()
    lists = {module for module, file in FILES.items() if file.name == "__init__.py"}
    once = [module for module, users in used.items() if len(users) == 1 and not users & lists]
    return {
        "modules": len(MODULES),
        "modules at the top": len([*(ROOT / "longcrawl").glob("*.py")]),
        "private imports across packages": len(private_imports()),
        "% of modules that one other module imports": 100 * len(once) / len(MODULES),
        "% of code lines that are imports": 100
        * sum(len(import_lines(module)) for module in FILES)
        / sum(len(code_lines(module)) for module in FILES),
        "lines": sum(len(file.read_text("utf-8").splitlines()) for file in FILES.values()),
    }


# A package's list of public names is no importer. Kernels are apart: numba is imported only where they run. Both
# shares are to fall, to 15 and 8: a module goes into its only user where both fit in 400 lines.
MOST = {
    "modules at the top": 12,
    "private imports across packages": 0,
    "% of modules that one other module imports": 19,
    "% of code lines that are imports": 12.5,
}


@pytest.mark.parametrize("figure", MOST)
def test_no_figure_of_the_house_grows(figure):
    for name, value in figures().items():
        print(f"{value:10,.1f}  {name}")  # noqa: T201  # read with -s
    assert figures()[figure] <= MOST[figure]


def test_private_modules_list_no_names():
    """``__all__`` says what other packages may import, which is nothing."""
    assert [module for module in MODULES if "._" in module and any(map(is_list_of_names, tree(module).body))] == []
