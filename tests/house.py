"""Figures of the house: modules, circles, imports in functions, walks; ``python -m tests.house`` prints them.

``test_layers.py`` holds them to bounds. Every import counts: at the top, in a function, or under TYPE_CHECKING. A
package's ``__init__`` that only passes names on has no arrows: an import from it is an arrow to the module that defines
the name.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in (ROOT / "longcrawl").glob("**/*.py")
}
MODULES = {module for module, file in FILES.items() if file.name not in ("__init__.py", "__main__.py")}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
COMPILERS = ("numba", "llvmlite")
GOALS = {
    "modules": 215,
    "lines": 74_000,
    "import circles": 0,
    "imports of our own modules in functions": 30,
    "private names of numba and llvmlite": 3,
    "places that patch numba or llvmlite": 0,
    "names at the top of longcrawl/": 17,  # ADR 2: a package for each step of a document
    "our modules loaded by the builder for warc": 50,
    "files entered, WARC to rectangle": 60,
    "files entered, first row of load_dataset": 14,
    "files entered, Rectangle[0]": 9,
}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text("utf-8"))


def named_modules(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names, a module inside a package by its own name."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    names = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if name in FILES else str(node.module) for name in names]


@cache
def statements(module: str) -> tuple[ast.AST, ...]:
    """Return the statements of a module at any depth, a twelfth of its nodes."""
    return tuple(_inside(tree(module)))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [node]
    while waiting:
        yield (each := waiting.pop())
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(each, inside, ())
            waiting += found if isinstance(found, list) else ()


@cache
def passed_on(package: str) -> dict[str, str]:
    """Return the module of each name that a package's ``__init__`` imports when it is asked for it."""
    if "lazy(__name__)" not in FILES[package].read_text("utf-8"):
        return {}
    return {
        alias.asname or alias.name: str(node.module)
        for node in statements(package)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def source_of(module: str, name: str) -> str:
    """Return the module that a name comes from, through packages that pass it on."""
    if f"{module}.{name}" in FILES:
        return f"{module}.{name}"
    names = passed_on(module) if module in FILES else {}
    return source_of(names[name], name) if names.get(name, module) != module else module


@cache
def arrows() -> dict[str, dict[str, list[int]]]:
    """Return for each module those it needs, with the lines of its imports."""
    found: dict[str, dict[str, list[int]]] = {}
    for module in FILES:
        lines = found[module] = defaultdict(list)
        for node in () if passed_on(module) else statements(module):
            if isinstance(node, ast.ImportFrom):
                needed = [source_of(str(node.module), alias.name) for alias in node.names]
            else:
                needed = named_modules(node)
            for each in needed:
                if each in FILES and each != module and node.lineno not in lines[each]:  # type: ignore[attr-defined]
                    lines[each].append(node.lineno)  # type: ignore[attr-defined]
    return found


def imported(module: str) -> frozenset[str]:
    """Return the modules of ours that a module imports, wherever it does so."""
    return frozenset(arrows()[module])


@cache
def circles() -> list[list[str]]:
    """Return the strongly connected components of more than one module."""
    graph = arrows()

    def reached(module: str) -> set[str]:
        seen, waiting = set(), [module]
        while waiting:
            new = [each for each in graph[waiting.pop()] if each not in seen]
            seen.update(new)
            waiting += new
        return seen

    reach = {module: reached(module) for module in graph}
    found = {tuple(sorted(each for each in reach[module] if module in reach[each])) for module in graph}
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


@cache
def late_imports() -> list[tuple[str, int, list[str]]]:
    """Return the imports of our own modules in functions: module, line, and modules imported."""
    found = set()
    for module in FILES:
        functions = (node for node in statements(module) if isinstance(node, FUNCTIONS))
        for node in (each for function in functions for each in _inside(function)):
            if names := tuple(sorted({name for name in named_modules(node) if name in FILES})):
                found.add((module, node.lineno, names))  # type: ignore[attr-defined]
    return [(module, line, list(names)) for module, line, names in sorted(found)]


def _compilers_names(module: str) -> dict[str, str]:
    """Return names in a module that are numba's or llvmlite's, with their full names."""
    found = {}
    for node in statements(module):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in COMPILERS:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                if top in COMPILERS:
                    found[alias.asname or top] = alias.name if alias.asname else top
    return found


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    """Return the full name of an attribute of numba's or llvmlite's, or nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    base = _dotted(node.value, names) if isinstance(node, ast.Attribute) else ""
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else ""


def _private_part(name: str) -> str:
    """Return the first part of a full name that no documentation has, or nothing; of ``numba.core`` the whole name."""
    if name.startswith(("numba.core.", "numba.np.")):
        return name
    parts = name.split(".")
    private = (count for count, part in enumerate(parts, 1) if part.startswith("_") and not part.startswith("__"))
    return ".".join(parts[: next(private, 0)])


@cache
def private_names() -> list[str]:
    """Return private names of numba and llvmlite: imported, used as attributes, and options and methods of numba's."""
    found = {""}
    for module in FILES:
        names = _compilers_names(module)
        found |= {_private_part(name) for name in names.values()}
        for node in ast.walk(tree(module)) if names else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                base, name = _dotted(node.value, names), _dotted(node, names)
                found.add("" if _private_part(base) else _private_part(name))
            elif isinstance(node, ast.keyword) and (node.arg or "").startswith("_"):
                found.add(f"{node.arg}=")
            elif isinstance(node, FUNCTIONS) and node.name.startswith("_numba"):
                found.add(node.name)
    return sorted(found - {""})


@cache
def patches() -> list[str]:
    """Return where modules that import numba or llvmlite replace a foreign name, or the class of an object."""
    found = []
    for module in FILES:
        names = _compilers_names(module)
        for node in ast.walk(tree(module)) if names else ():
            targets = node.targets if isinstance(node, ast.Assign) else []
            replaced = [each for each in targets if isinstance(each, ast.Attribute)]
            if any(_dotted(each, names) or each.attr == "__class__" for each in replaced):
                found.append(f"{module}:{node.lineno} {ast.unparse(node)}")  # type: ignore[attr-defined]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
                found.append(f"{module}:{node.lineno} {ast.unparse(node)}")
    return found


def top_names() -> list[str]:
    """Return public modules and packages at the top of longcrawl/; a folder without Python is data."""
    found = {name.split(".")[1] for name in FILES if name.count(".")}
    return sorted(name for name in found if not name.startswith("_"))


def figures() -> dict[str, int]:
    """Return what the source shows by itself."""
    return {
        "modules": len(FILES),
        "lines": sum(len(file.read_text("utf-8").splitlines()) for file in FILES.values()),
        "import circles": len(circles()),
        "imports of our own modules in functions": len(late_imports()),
        "private names of numba and llvmlite": len(private_names()),
        "places that patch numba or llvmlite": len(patches()),
        "names at the top of longcrawl/": len(top_names()),
    }


LOADED = """
import sys
import datasets
import longcrawl
datasets.load_dataset_builder("longcrawl", "warc", data_files=sys.argv[1])
print(sum(name.partition(".")[0] == "longcrawl" for name in sys.modules))
"""


def loaded_by_the_builder() -> int:
    """Return how many of our modules a process has loaded that opens a web archive by `datasets`."""
    from longcrawl.run.samples import write_archive

    with tempfile.TemporaryDirectory() as folder:
        archive = write_archive(Path(folder, "archive")) / "00000.warc.gz"
        there = os.environ | {"HF_HOME": folder, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", LOADED, archive], env=there, capture_output=True, text=True, check=True
        )
    return int(done.stdout.split()[-1])


WALKS = {
    "rectangle": "files entered, WARC to rectangle",
    "load_dataset": "files entered, first row of load_dataset",
    "row": "files entered, Rectangle[0]",
    "why": "files entered, rule to its row in the ledger",
}


def walked() -> dict[str, int]:
    """Return the files entered on each walk of ``benchmarks/walks.py``."""
    there = os.environ | {"PYTHONPATH": str(ROOT)}
    script = ROOT / "benchmarks" / "walks.py"
    done = subprocess.run([sys.executable, script], env=there, capture_output=True, text=True, check=True)
    counts = dict(re.findall(r"^(\w+) +(\d+) files", done.stdout, re.MULTILINE))
    return {WALKS[name]: int(count) for name, count in counts.items()}


def main() -> None:
    found = figures() | {"our modules loaded by the builder for warc": loaded_by_the_builder()} | walked()
    lines = [f"{name:56} {value:7,} {GOALS.get(name, ''):>7}\n" for name, value in found.items()]
    lines += [f"circle: {', '.join(circle)}\n" for circle in circles()]
    sys.stdout.writelines([f"{'measure':56} {'now':>7} {'goal':>7}\n", *lines])


if __name__ == "__main__":
    main()
