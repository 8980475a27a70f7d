"""Packages that import a public name when it is asked for: which names they have, and what a typo is told."""

import importlib
import pickle
import re
import sys
from pathlib import Path

import pytest
from datasets.fingerprint import Hasher

import longcrawl as lc

ROOT = Path(__file__).parents[1]


def test_a_function_that_uses_the_package_can_be_hashed():
    def uses(each):
        return lc.urls, each

    assert pickle.loads(pickle.dumps(lc)) is lc
    assert Hasher.hash(uses) == Hasher.hash(uses)


PACKAGES = sorted(
    ".".join(file.relative_to(ROOT).parent.parts)
    for file in (ROOT / "longcrawl").rglob("__init__.py")
    if "lazy(__name__)" in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_shows_its_public_names_and_no_others(name):
    package = importlib.import_module(name)
    assert sorted(vars(package)["_homes"]) == sorted(package.__all__) == dir(package)


TYPOS = {
    "lc.dedupp": "did you mean 'dedup'? `dir(longcrawl)` lists all",
    "lc.text.GopherQualty": "did you mean 'GopherQuality'",
    "lc.engines.Sparc": "known: Engine, Exchange, Local, Shared, Spark. Did you mean 'Spark'?",
    "from longcrawl import lode": "did you mean 'load'",
    "from longcrawl.text import GopherQualty": "did you mean 'GopherQuality'",
}


@pytest.mark.parametrize("typo", TYPOS)
def test_a_typo_in_a_name_suggests_the_nearest(typo):
    with pytest.raises((AttributeError, ImportError), match=re.escape(TYPOS[typo])):
        exec(typo, {"lc": lc})  # noqa: S102  # its own


def test_modules_are_imported_from_a_package_of_public_names():
    from longcrawl.text import explain, filters

    assert (explain, filters) == (lc.text.explain, sys.modules["longcrawl.text.filters"])
    assert not hasattr(lc, "nothing")
