"""Commands that write: where they write, and that they write over nothing."""

import json

from small_pdf import small_pdf
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


def test_init_does_not_propose_the_folder_of_the_documents_for_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "a.pdf").write_bytes(small_pdf("A short report"))
    told = CliRunner().invoke(app, ["init", "reports", "--out", "reports.yaml"])
    assert told.output.endswith("longcrawl run reports.yaml --out reports-run\n")
    other = CliRunner().invoke(app, ["init", "reports", "--out", "recipe.yaml"])
    assert other.output.endswith("longcrawl run recipe.yaml --out recipe\n")


def test_lines_are_proposed_for_pdfs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        shown = f"page {number} begins here, with a sentence that is long enough for the stage to keep the document"
        (tmp_path / f"{number}.pdf").write_bytes(small_pdf(f"{shown}) Tj 0 -40 Td (Cookie notice"))
    told = CliRunner().invoke(app, ["lines", "*.pdf", "--json", "--min-documents", "3"])
    assert told.exit_code == 0, told.output
    assert "cookie notice" in told.output.lower()
