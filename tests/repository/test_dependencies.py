"""Imports are declared, declared packages are pinned in constraints.txt, and packaged modules can be imported."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CONSTRAINTS = ROOT / "constraints.txt"
FOLDERS = {"longcrawl": "longcrawl", "cards": "longcrawl/cards"}
NOT_HERE = {"py3langid": "py3langid", "gcsfs": "gcsfs"}
"""The import and the distribution of what CI does not install."""
NOT_DECLARED = {"longcrawl", "scipy", *sys.stdlib_module_names}
"""Modules that need no declaration; SciPy is only looked for, as numba does."""
IN_WORKERS = {"pypdfium2"}
"""Distributions of modules that only a worker process imports."""
BESIDE = ("accelerate", "grain", "torchdata", "boto3", "flask", "flask-cors", "moto[s3]")
"""Packages that .ci/run installs for the tests in addition to the extras."""


def requirements() -> dict[str, list[Requirement]]:
    """The declared requirements: those that are always installed under "", the others under their extra."""
    declared = {"": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}
    return {extra: [Requirement(each) for each in listed] for extra, listed in declared.items() if extra != "dev"}


def called(function: ast.expr) -> str:
    """Return the last name of a function that is called."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """The packages that a file imports, and whether it does so wherever it is imported itself."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        elif isinstance(node, ast.Call) and called(node.func) in ("find_spec", "import_module"):
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
        for package in {name.split(".")[0] for name in names} - NOT_DECLARED:
            yield package, node in tree.body


@functools.cache
def imported_distributions() -> dict[str, bool]:
    """The distributions that the package imports, and whether any module does so outside of functions."""
    known = {name: owners[0] for name, owners in metadata.packages_distributions().items()} | NOT_HERE
    found: dict[str, bool] = {}
    for file in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for package, always in imports(file):
            name = canonicalize_name(known.get(package, package))  # of an extra that is not installed
            found[name] = found.get(name, False) or always
    return found


def pins() -> dict[str, Version]:
    found = {}
    for line in CONSTRAINTS.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, version = re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)", line).groups()
            assert name not in found, f"{name} is pinned twice"
            found[name] = Version(version)
    return found


def needed() -> dict[str, str]:
    """Every distribution that the tests install, with what it needs itself, and the version that is here."""
    open_requirements = [each for listed in requirements().values() for each in listed] + [*map(Requirement, BESIDE)]
    found: dict[str, str] = {}
    walked: set[tuple[str, frozenset[str]]] = set()
    while open_requirements:
        each = open_requirements.pop()
        name, extras = canonicalize_name(each.name), frozenset(each.extras)
        if (name, extras) in walked or name in NOT_HERE.values():
            continue
        walked.add((name, extras))
        try:
            found[name] = Version(metadata.version(name)).public
        except metadata.PackageNotFoundError:  # of an extra, which a developer need not have: CI installs them
            continue
        for inner in map(Requirement, metadata.requires(name) or ()):
            environments = [{"extra": extra} for extra in ("", *extras)]
            if inner.marker is None or any(map(inner.marker.evaluate, environments)):
                open_requirements.append(inner)
    return found


@pytest.mark.slow
def test_what_is_imported_is_declared_and_nothing_else():
    declared = requirements()
    always = {canonicalize_name(each.name) for each in declared[""]}
    optional = {canonicalize_name(each.name) for extra in declared if extra != "test" for each in declared[extra]}
    imported = imported_distributions()
    assert sorted(set(imported) - always - optional) == []
    assert sorted(always - set(imported)) == []


@pytest.mark.slow
def test_optional_packages_are_imported_in_functions():
    always = {canonicalize_name(each.name) for each in requirements()[""]}
    assert {name for name, outside in imported_distributions().items() if outside} - always == IN_WORKERS


def unpickling(file: Path) -> bool:
    """Return whether a module may load pickled objects: with pickle or torch, or with a setting that allows them."""
    source = file.read_text("utf-8")
    if not re.search("pickle|dill|joblib|torch|weights_only|trust_remote_code", source):
        return False
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = {ast.unparse(call.func) for call in calls}
    settings = {(each.arg, ast.unparse(each.value)) for call in calls for each in call.keywords}
    loads = {f"{module}.{load}" for module in ("pickle", "cloudpickle", "dill", "joblib") for load in ("load", "loads")}
    trusting = {("allow_pickle", "True"), ("weights_only", "False"), ("trust_remote_code", "True")}
    return bool(named & (loads | {"torch.load", "pickle.Unpickler"}) or settings & trusting)


def test_only_processes_of_a_run_unpickle():
    """SECURITY.md promises that no dataset, state, index or model is unpickled."""
    engines = ROOT / "longcrawl" / "run" / "engines"
    assert {file.parent for file in (ROOT / "longcrawl").rglob("*.py") if unpickling(file)} == {engines}


COMPILER = ("llvmlite", "numba")
"""Bounded above, as kernels name private parts of numba; ``.ci/newest-numba`` tries the newest."""


def test_every_requirement_has_a_lower_bound_that_constraints_fulfil():
    pinned = pins()
    for extra, listed in requirements().items():
        for each in listed:
            name = canonicalize_name(each.name)
            bounds = {">=", "<"} if name in COMPILER else {">="}
            assert {one.operator for one in each.specifier} == bounds, f"{each} in {extra or 'dependencies'}"
            assert name in NOT_HERE.values() or each.specifier.contains(pinned[name]), f"{each} against {pinned[name]}"


def test_the_guide_has_a_purpose_for_each_package_and_extra():
    guide = (ROOT / "docs" / "feeds.md").read_text("utf-8")
    _, tables = guide.split("| package | for | loading |")
    rows = re.findall(r"^\| (.*?) \|", tables.partition("## ")[0], re.MULTILINE)
    always = {each.name for each in requirements()[""]}
    assert {name for row in rows if "`" not in row for name in row.split(", ")} >= always
    extras = requirements().keys() - {"", "test", "docs"}
    assert {name for row in rows for name in re.findall("`(.*?)`", row)} == extras
    assert all(each.name in tables for extra in extras for each in requirements()[extra])


def test_constraints_pin_everything_that_is_installed():
    """``LONGCRAWL_GOLDEN=write`` writes what is installed here into the file."""
    if os.environ.get("LONGCRAWL_GOLDEN") == "write":
        first = [line for line in CONSTRAINTS.read_text("utf-8").splitlines() if line.startswith("#")]
        CONSTRAINTS.write_text("\n".join([*first, *(f"{name}=={at}" for name, at in sorted(needed().items()))]) + "\n")
    assert sorted(needed().keys() - pins().keys()) == []
    assert list(pins()) == sorted(pins())


def test_readme_and_ci_install_with_the_constraints():
    assert "pip install -c constraints.txt -e ." in (ROOT / "README.md").read_text("utf-8")
    assert "constraints.txt" in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.slow
def test_a_wheel_built_from_a_source_distribution_holds_every_file(tmp_path):
    """longcrawl.run.plan was once missing from a list of packages, so that no installed longcrawl could be imported."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)

    def build(made: str, folder: Path) -> Path:
        program = f"from setuptools import build_meta; print(build_meta.build_{made}('.'))"
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return folder / done.stdout.splitlines()[-1]

    shutil.unpack_archive(build("sdist", tmp_path), tmp_path / "unpacked")
    wheel = build("wheel", next((tmp_path / "unpacked").iterdir()))
    expected = {
        f"{installed}/{path.relative_to(tmp_path / folder).as_posix()}"
        for folder, installed in FOLDERS.items()
        for path in (tmp_path / folder).rglob("*")
        if path.is_file()
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected
