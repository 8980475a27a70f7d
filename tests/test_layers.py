"""A package imports only from packages to its left. Inside a package, anything goes but a circle."""

import ast
import functools
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
ORDER = [
    "errors",
    "storage",
    "engines",
    "core",
    "kernels",
    "display",
    "ledger",
    "text",
    "composition",
    "tokens",
    "dedup",
    "formats",
    "sources",
    "loading",
    "manifest",
    "card",
    "recipe",
    "run",
    "plan",
    "hub",
    "crawl",
    "audit",
    "report",
    "builders",
    "cli",
]
ALONE = {"_version": "errors", "printable": "errors", "urls": "errors", "user_warnings": "errors"}
"""Modules at the top that every package may import, as it may import errors."""
ALONE |= {"crawl_batches": "crawl", "_adopt_builders": "builders", "_moved": "builders"}
MOST_AT_THE_TOP = 12
FILES = {
    ".".join(("longcrawl", *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): file
    for folder, found in ((ROOT / "longcrawl", "**/*.py"), (ROOT, "builders/*.py"))
    for file in folder.glob(found)
}


def package_of(module: str) -> str:
    name = module.split(".")[1]
    return ALONE.get(name, name)


@functools.cache
def imported(module: str) -> frozenset[str]:
    """Return the modules of ours that a module imports, wherever it does so."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide packages"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in FILES else node.module for name in names]
        found |= {name for name in names if name in FILES and name != module}
    return frozenset(found)


INSIDE = sorted(set(FILES) - {"longcrawl"})


def place(module: str) -> int:
    return ORDER.index(package_of(module))


def test_a_package_imports_only_from_packages_to_its_left():
    imports = ((module, name) for module in INSIDE for name in imported(module) - {"longcrawl"})
    assert [f"{module} imports {name}, to its right" for module, name in imports if place(name) > place(module)] == []


def test_a_private_module_is_imported_only_inside_its_folder():
    imports = ((module, name) for module in INSIDE for name in imported(module) if "._" in name)
    assert [each for each in imports if not each[0].startswith(f"{each[1][: each[1].index('._')]}.")] == []


def test_inside_a_package_modules_form_no_circle():
    at_import = {module: _imported_at_import(module) for module in INSIDE}
    tuple(TopologicalSorter(at_import).static_order())  # raises CycleError, which names the circle


def _imported_at_import(module: str) -> set[str]:
    """Return what importing a module imports; a package's own folder lists its modules, which may import each other."""
    body = [node for node in ast.parse(FILES[module].read_text("utf-8")).body if isinstance(node, ast.ImportFrom)]
    names = [
        f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in FILES else node.module
        for node in body
        for alias in node.names
    ]
    return {name for name in names if name in FILES and name != module and FILES[name].name != "__init__.py"}


def test_few_modules_lie_at_the_top():
    assert len([*(ROOT / "longcrawl").glob("*.py")]) <= MOST_AT_THE_TOP


def test_files_stay_small():
    lines = {module: len(file.read_text("utf-8").splitlines()) for module, file in FILES.items()}
    assert {module: count for module, count in lines.items() if count > 420} == {}
