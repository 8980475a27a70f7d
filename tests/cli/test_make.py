"""Commands that write: where they write, and that they write over nothing."""

import json

from typer.testing import CliRunner

from longcrawl.cli.commands import app
from longcrawl.run.recipe import load_recipe


def test_init_writes_a_recipe_over_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(number), "text": "The tide was out. " * 20} for number in range(3)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = CliRunner().invoke(app, ["init", "texts.jsonl", "--out", "mine.yaml"])
    assert told.exit_code == 0, told.output
    assert "mine.yaml" in told.output
    assert load_recipe("mine.yaml").source.name == "text"
    written = (tmp_path / "mine.yaml").read_bytes()
    again = CliRunner().invoke(app, ["init", "texts.jsonl", "--out", "mine.yaml"])
    assert again.exit_code != 0
    assert (tmp_path / "mine.yaml").read_bytes() == written
