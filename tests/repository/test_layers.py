"""The order of packages, and figures of all code, which ``pytest -s tests/repository/test_layers.py`` prints.

A package imports only from packages to its left. Inside a package, anything goes but a circle.
"""

import ast
import gc
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import house
import pytest
from house import FILES, MODULES, ROOT, imported, statements, tree

ORDER = (
    "errors",
    "io",
    "core",
    "kernels",
    "sources",
    "text",
    "tokens",
    "dedup",
    "long",
    "formats",
    "run",
    "loading",
    "publish",
    "builders",
    "crawl",
    "cli",
)
ALONE = dict.fromkeys(("_lazy", "_version", "urls"), "errors") | {"__main__": "cli"}
"""Modules at the top, and the package with which they stand; every package may import those beside errors."""

pytestmark = pytest.mark.slow
"""Reads all modules for seconds; `make lint` runs it."""


@pytest.fixture(scope="module", autouse=True)
def without_collections() -> Iterator[None]:
    """Keep trees of all modules out of the garbage collector, which took twice as long as parsing them."""
    gc.disable()
    yield
    tree.cache_clear()
    statements.cache_clear()
    gc.enable()


def place(module: str) -> int:
    name = module.split(".")[1]
    return ORDER.index(ALONE.get(name, name))


INSIDE = sorted(set(FILES) - {"longcrawl"})


def test_a_package_imports_only_from_packages_to_its_left():
    imports = ((module, name) for module in INSIDE for name in imported(module) - {"longcrawl"})
    assert [f"{module} imports {name}, to its right" for module, name in imports if place(name) > place(module)] == []


def test_no_import_is_relative():
    relative = ((module, node) for module in FILES for node in statements(module))
    assert [module for module, node in relative if isinstance(node, ast.ImportFrom) and node.level] == []


def is_list_of_names(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def listed(module: str) -> set[str]:
    """Return the names in a module's ``__all__`` that it imports."""
    lists = [node for node in tree(module).body if is_list_of_names(node)]
    names = {name for node in lists for name in ast.literal_eval(node.value)}  # type: ignore[attr-defined]
    imports = [node for node in tree(module).body if isinstance(node, ast.ImportFrom)]
    return names & {alias.name for node in imports for alias in node.names}


def test_modules_list_names_only_where_they_pass_some_on():
    """In all other modules every name without an underscore is public; ``__init__`` lists those of a package."""
    listing = [module for module in sorted(MODULES) if any(map(is_list_of_names, tree(module).body))]
    assert listing == [module for module in listing if listed(module)]


@cache
def code_lines(module: str) -> frozenset[int]:
    """Return the lines of a module that hold neither comments nor docstrings alone."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(FILES[module].read_text("utf-8")).readline):
        if token.type not in nothing:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in statements(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, node.end_lineno + 1))
    return frozenset(found)


def import_lines(module: str) -> set[int]:
    """Return the lines of a module that hold imports and ``__all__``."""
    named = [node for node in tree(module).body if is_list_of_names(node)]
    named += [node for node in statements(module) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {line for node in named for line in range(node.lineno, node.end_lineno + 1)} & code_lines(module)


def private_imports() -> list[str]:
    """Return who imports a private module from outside its folder."""
    imports = ((module, name) for module in INSIDE for name in imported(module) if "._" in name)
    return [f"{by} imports {name}" for by, name in imports if not by.startswith(f"{name[: name.index('._')]}.")]


def docstrings(begin: str) -> list[str]:
    """Return the functions whose docstring begins with a word."""
    functions = (
        (module, node)
        for module in FILES
        for node in statements(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [
        f"{module}.{each.name}" for module, each in functions if re.match(rf"{begin}\b", ast.get_docstring(each) or "")
    ]


def repeated_places(most: int = 5) -> list[tuple[str, int]]:
    """Return where more code lines than ``most`` in a row are those of another place: module and line."""
    where: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for module, file in FILES.items():
        lines = file.read_text("utf-8").splitlines()
        code = [lines[line - 1].strip() for line in sorted(code_lines(module) - import_lines(module))]
        for place in range(len(code) - most):
            where.setdefault(tuple(code[place : place + most + 1]), []).append((module, place))
    found = {place for places in where.values() if len(places) > 1 for place in places}
    return [(module, place) for module, place in sorted(found) if (module, place - 1) not in found]


def test_the_guide_lists_the_packages_in_their_order():
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = guide.partition("## Where things are")[2].partition("At the top of the repository")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == ORDER


TESTS = ROOT / "tests"
WHOLE_RUNS = ("workflows", "repository")
"""Folders of tests that are of no module."""


def modules_by_folder() -> dict[Path, set[str]]:
    """Return the names of the modules in each folder of longcrawl/, as tests spell them."""
    found: dict[Path, set[str]] = {}
    for file in (ROOT / "longcrawl").glob("**/*.py"):
        names = found.setdefault(file.parent.relative_to(ROOT / "longcrawl"), set())
        names.update({file.stem.strip("_")} - {"init"})
    return found


def is_test_of(file: Path, module: str) -> bool:
    return f"{file.stem}_".startswith(f"test_{module}_")


def test_every_module_has_a_test_of_its_name():
    missing = [
        (folder / module).as_posix()
        for folder, modules in modules_by_folder().items()
        for module in modules
        if not any(is_test_of(file, module) for file in (TESTS / folder).glob("test_*.py"))
    ]
    assert sorted(missing) == []


def test_every_test_has_the_name_of_a_module_of_its_folder():
    files = {file.relative_to(TESTS): file for file in TESTS.glob("**/test_*.py") if "test_seed_" not in file.name}
    modules = modules_by_folder()
    strange = [
        path.as_posix()
        for path, file in files.items()
        if path.parts[0] not in WHOLE_RUNS
        and not any(is_test_of(file, module) for module in modules.get(path.parent, ()))
    ]
    assert sorted(strange) == []


@cache
def figures() -> dict[str, float]:
    return house.figures() | {
        "modules at the top": len([*(ROOT / "longcrawl").glob("*.py")]),
        "private imports across packages": len(private_imports()),
        'function docstrings that begin with "Give"': len(docstrings("Give")),
        "repeated places": len(repeated_places()),
    }


MOST = {
    "import circles": 0,
    "imports of our own modules in functions": 34,
    "private names of numba and llvmlite": 2,
    "places that patch numba or llvmlite": 0,
    "names at the top of longcrawl/": 17,
    "modules at the top": 7,
    "private imports across packages": 0,
    'function docstrings that begin with "Give"': 0,
    "repeated places": 13,
}
WALKED = {
    "files entered, WARC to rectangle": 66,
    "files entered, first row of load_dataset": 15,
    "files entered, Rectangle[0]": 9,
    "files entered, rule to its row in the ledger": 12,
    "our modules loaded by the builder for warc": 47,
}
"""As MOST, of figures that take a run."""


@pytest.mark.parametrize("figure", MOST)
def test_no_figure_of_the_house_grows(figure):
    for name, value in figures().items():
        print(f"{value:10,.1f}  {name}")  # noqa: T201  # read with -s
    assert figures()[figure] <= MOST[figure], private_imports() + docstrings("Give") + house.circles()


@pytest.mark.slow
def test_no_walk_through_the_house_grows():
    found = {"our modules loaded by the builder for warc": house.loaded_by_the_builder()} | house.walked()
    assert {name: value for name, value in found.items() if value > WALKED[name]} == {}
