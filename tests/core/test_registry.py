"""Kinds by name: how settings of recipes become fields, and which packages bring kinds."""

import pytest

import longcrawl as lc
from longcrawl.core.registry import build, installed_versions
from longcrawl.errors import StageError
from longcrawl.io.structured import load_yaml


def test_a_number_may_have_an_exponent():
    assert load_yaml("[5e9, -1.5E-3, 1e, e9, 5e9x, '5e9']") == [5e9, -0.0015, "1e", "e9", "5e9x", "5e9"]
    made = build(lc.tokens.MinTokens, load_yaml("{n: 5e4}"), "stage", StageError)
    assert (made.n, type(made.n)) == (50_000, int)
    with pytest.raises(StageError, match=r"MinTokens.n takes a whole number, got 1\.5"):
        build(lc.tokens.MinTokens, load_yaml("{n: 15e-1}"), "stage", StageError)


def test_versions_are_also_those_of_packages_with_stages(tmp_path, monkeypatch):
    about = tmp_path / "my_stages-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-stages\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text("[longcrawl.stages]\nonly_poems = my_stages:OnlyPoems\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installed_versions.__wrapped__()["my-stages"] == "1.2"
