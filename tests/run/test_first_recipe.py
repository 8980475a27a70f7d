"""From documents to a first recipe, and what a run of it would do."""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import LongCrawlError, RecipeError, SourceError
from longcrawl.io.structured import load_yaml
from longcrawl.run.first_recipe import first_recipe
from longcrawl.run.recipe import load_recipe
from longcrawl.sources import files

TRAINED = ["stages.tokenize.tokenizer=trained", "stages.tokenize.vocabulary_size=300", "stages.min_tokens.n=1"]


def test_a_first_recipe_runs_as_it_is(texts, tmp_path):
    done = CliRunner().invoke(app, ["init", texts, "--out", "mine.yaml"])
    assert done.exit_code == 0, done.exception
    assert done.stdout.splitlines()[-1] == "longcrawl run mine.yaml --out mine"
    written = (tmp_path / "mine.yaml").read_text()
    assert yaml.safe_load(written)["source"] == {"builder": "text", "data_files": texts, "text_field": "content"}
    stages = [label for label, _ in load_recipe("mine.yaml").stages]
    assert len(re.findall(r"^  # .+\n  - ", written, re.MULTILINE)) == len(stages)  # a comment above each
    assert "``" not in written
    summary = lc.run("mine.yaml", "mine", overrides=TRAINED)
    assert summary.funnel.documents == 40
    assert [row.stage for row in summary.funnel] == stages


def test_folders_of_any_texts_have_a_first_recipe(texts, tmp_path):
    folder = tmp_path / "mixed"
    (folder / "src").mkdir(parents=True)
    (folder / "a.MD").write_text("# One")
    (folder / "src" / "b.py").write_text("print('two')")
    (folder / "c.jsonl").write_text('{"content": "three"}\n')
    assert yaml.safe_load(first_recipe("mixed"))["source"] == {
        "builder": "text",
        "data_dir": "mixed",
        "text_field": "content",  # of the records, though the first file has no fields
    }
    (folder / "c.jsonl").unlink()
    (folder / "a.MD").write_bytes("Größe, süß".encode("latin-1"))
    with pytest.raises(SourceError, match=r"a\.MD: is not UTF-8 .* seems to be cp1252: .*\(--encoding cp1252\)"):
        first_recipe("mixed")
    done = CliRunner().invoke(app, ["init", "mixed", "--out", "m.yaml", "--encoding", "detect"])
    assert done.exit_code == 0, done.exception
    assert yaml.safe_load((tmp_path / "m.yaml").read_text())["source"]["encoding"] == "detect"
    (folder / "src" / "b.py").rename(folder / "b.page")
    (folder / "a.MD").unlink()
    with pytest.raises(SourceError, match=r"judging by its file names: \.page 1\. .* or --format text\."):
        first_recipe("mixed")
    assert yaml.safe_load(first_recipe("mixed", file_format="text"))["source"]["format"] == "text"


def test_a_file_without_documents_has_no_recipe(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(RecipeError, match=r"^empty\.jsonl has no documents: choose another file"):
        first_recipe(str(tmp_path / "empty.jsonl"))
    (tmp_path / "a\nevil: 1").mkdir()
    (tmp_path / "a\nevil: 1/texts.jsonl").write_text('{"text": "a page"}\n')
    assert "evil" not in load_yaml(first_recipe(str(tmp_path / "a\nevil: 1")))
    with pytest.raises(SourceError, match=r"has no field 'nowhere'"):
        first_recipe(str(tmp_path / "a\nevil: 1"), "nowhere")


@pytest.mark.parametrize("kind", ["warc", "redpajama-v2"])
def test_crawls_begin_with_a_shipped_recipe(kind, tmp_path):
    name = {"warc": "a.warc.gz", "redpajama-v2": "documents/2023-06/0000/en_head.json.gz"}[kind]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    made = yaml.safe_load(first_recipe(str(tmp_path)))
    shipped = load_recipe({"warc": "refinedweb", "redpajama-v2": "longcrawl64-clean"}[kind])
    assert made["source"]["builder"] == kind
    assert made["source"]["data_dir"] == str(tmp_path)
    assert [name for stage in made["stages"] for name in stage] == [label for label, _ in shipped.stages]


def test_a_remote_file_is_asked_for_its_fields_once(texts, tmp_path, web_server, monkeypatch):
    fetched, fetch = [], files._fetch
    monkeypatch.setattr(files, "_fetch", lambda path, copy: fetched.append(path) or fetch(path, copy))
    pq.write_table(pa.table({"text": [["no text"]], "markdown": ["# One"]}), tmp_path / "late.parquet")
    made = yaml.safe_load(first_recipe(f"{web_server(tmp_path)}/late.parquet"))
    assert made["source"]["text_field"] == "markdown"
    assert len(fetched) <= 1


def test_what_has_no_texts_is_one_sentence(texts, tmp_path):
    pq.write_table(pa.table({"main": ["x"]}), tmp_path / "odd.parquet")
    with pytest.raises(LongCrawlError, match="has no field 'text'; its fields: main"):
        first_recipe("odd.parquet")
    assert yaml.safe_load(first_recipe("odd.parquet", "main"))["source"]["text_field"] == "main"
    (tmp_path / "there.yaml").write_text("mine")
    for out, sentence in (("there.yaml", "already exists"), ("recipe.txt", r"must end in \.yaml")):
        with pytest.raises(RecipeError, match=sentence):
            CliRunner().invoke(app, ["init", texts, "--out", out], catch_exceptions=False)
    assert (tmp_path / "there.yaml").read_text() == "mine"


def test_names_with_spaces_can_be_typed_again(texts, tmp_path):
    folder = tmp_path / "my texts"
    folder.mkdir()
    Path(texts).rename(folder / texts)
    done = CliRunner().invoke(app, ["init", "my texts", "--out", "my recipe.yaml"])
    check, run = done.stdout.splitlines()[1:]
    assert run == "longcrawl run 'my recipe.yaml' --out 'my recipe'"
    words = [word for each in TRAINED for word in ("--set", each)]
    assert CliRunner().invoke(app, [*shlex.split(check, comments=True)[1:], *words]).exit_code == 0


def test_version_and_completion():
    assert CliRunner().invoke(app, ["--version"]).stdout == f"longcrawl {lc._version.__version__}\n"
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout


def test_a_recipe_says_what_to_set_where_a_tokenizer_cannot_be_fetched(texts):
    lines = first_recipe(texts).splitlines()
    stage = lines.index("  - tokenize: {tokenizer: gpt2}")
    assert lines[stage - 2].startswith("  # gpt2 is fetched from the Hub. Without a network, ")
    assert lines[stage - 1] == "  # or `trained`, which learns a tokenizer from these documents."
