"""Kinds by name: how settings of recipes become fields, and which packages bring kinds."""

from dataclasses import fields

import pytest

import longcrawl as lc
from longcrawl.core.registry import build, fields_html, installed_versions
from longcrawl.errors import StageError
from longcrawl.io.structured import load_yaml
from longcrawl.sources.text import Text


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


@pytest.mark.parametrize(
    "made",
    [lc.text.MinChars(n=7), Text(data_dir="<b>", text_field="body"), lc.formats.RectangleOutput(heldout=7)],
    ids=["stage", "source", "output"],
)
def test_a_notebook_shows_a_configuration_as_a_table(made):
    page = made._repr_html_()
    assert page.startswith(f"<p>{type(made).__name__}: ")
    for field in (field for field in fields(made) if field.init and field.repr):
        assert f">{field.name}</td>" in page
    assert ">7</td>" in page or ">&#x27;body&#x27;</td>" in page
    assert "<b>" not in page


def test_a_notebook_shows_feeds_as_tables():
    feeds = (lc.loading.Jsonl, lc.loading.Packed, lc.loading.Rectangle, lc.loading.WindowMixture, lc.loading.Windows)
    assert {feed._repr_html_ for feed in feeds} == {fields_html}
