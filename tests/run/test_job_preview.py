"""The preview of a run: nothing is written, and missing packages and settings are listed."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import LongCrawlError, RunError, SourceError, StageError
from longcrawl.run.first_recipe import first_recipe
from longcrawl.run.job import preview_run
from longcrawl.run.recipe import parse_recipe

TRAINED = ["stages.tokenize.tokenizer=trained", "stages.tokenize.vocabulary_size=300", "stages.min_tokens.n=1"]


def test_a_dry_run_says_what_a_run_would_do_and_writes_nothing(texts, tmp_path):
    CliRunner().invoke(app, ["init", texts, "--out", "mine.yaml"])
    before = sorted(tmp_path.rglob("*"))
    settings = [word for each in TRAINED for word in ("--set", each)]
    done = CliRunner().invoke(app, ["run", "mine.yaml", "--out", "mine", "--dry-run", *settings])
    assert done.exit_code == 0, done.exception
    assert f"reads 1 part of source 'text', {(tmp_path / texts).stat().st_size:,} bytes of local files" in done.stdout
    assert re.search(r"^min_hash +all documents, to compare them$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("writes gpt-simple to mine\nnothing has been read or written\n")
    assert sorted(tmp_path.rglob("*")) == before
    lc.run("mine.yaml", "mine", overrides=TRAINED)
    assert "the run is done, and would only be read back" in str(preview_run("mine.yaml", "mine", TRAINED))
    with pytest.raises(RunError, match="mine holds the run of another recipe"):
        preview_run("mine.yaml", "mine", [*TRAINED, "stages.min_hash.bands=15"])


def test_a_dry_run_finds_what_a_run_would_miss(texts, tmp_path):
    CliRunner().invoke(app, ["init", texts, "--out", "mine.yaml"])
    with pytest.raises(LongCrawlError, match=r"no tokenizer at .*none\.json"):
        preview_run("mine.yaml", "mine", ["stages.tokenize.tokenizer=./none.json"])
    with pytest.raises(LongCrawlError, match="no file matches"):
        preview_run("mine.yaml", "mine", [*TRAINED, "source.data_files=none/*.jsonl"])


@pytest.mark.slow
def test_a_dry_run_misses_a_file_as_the_run_does(texts, tmp_path):
    CliRunner().invoke(app, ["init", texts, "--out", "mine.yaml"])
    link = tmp_path / "link.jsonl"
    link.symlink_to("nothing")
    for missing, reason in (("none.jsonl", "is missing"), (link.name, "is a link to nothing, which cannot be reached")):
        named = [*TRAINED, f"source.data_files=[{texts}, {missing}]"]
        said = []
        for begin in (preview_run, lc.run):
            with pytest.raises(SourceError, match=f"{missing}: {reason}; to continue without it, set on_bad") as raised:
                begin("mine.yaml", f"of-{missing}", overrides=named)
            said.append(str(raised.value))
        assert said[0] == said[1]
        with pytest.warns(UserWarning, match=reason):
            preview_run("mine.yaml", "other", [*named, "source.on_bad_files=warn"])
        assert len(preview_run("mine.yaml", "other", [*named, "source.on_bad_files=skip"]).parts) == 2


@pytest.mark.parametrize("out", ["/proc/none", "/proc/none/mine", "mine.yaml/mine"])
def test_a_dry_run_finds_that_the_folder_cannot_be_made(texts, out):
    CliRunner().invoke(app, ["init", texts, "--out", "mine.yaml"])
    with pytest.raises(RunError, match=r"(mine|none) cannot be written \(.*\): choose another --out folder"):
        preview_run("mine.yaml", out, TRAINED)


def test_a_dry_run_finds_a_column_that_a_stage_before_has_replaced(texts):
    source = {"builder": "text", "data_files": texts, "text_field": "content"}
    stages = [{"min_tokens": {"n": 3}}, {"tokenize": {"tokenizer": "trained"}}]
    spec = {"longcrawl": 1, "name": "x", "source": source, "stages": stages, "outputs": {"gpt-simple": {}}}
    with pytest.raises(StageError, match="min_tokens needs a column 'tokens'; the documents have: id, text"):
        preview_run(parse_recipe(spec), "mine")
    preview_run(parse_recipe({**spec, "stages": stages[::-1]}), "mine")


@pytest.mark.parametrize(
    ("output", "stages", "sentence"),
    [
        ("rectangle", [{"tokenize": {"tokenizer": "trained"}}], "a rectangle needs rows of equal length"),
        ("gpt-simple", [], "gpt-simple needs an end-of-text token: add the stage tokenize"),
    ],
)
def test_an_output_that_the_stages_cannot_feed_is_found_before_anything_is_made(texts, output, stages, sentence):
    source = {"builder": "text", "data_files": texts, "text_field": "content"}
    recipe = parse_recipe({"longcrawl": 1, "name": "x", "source": source, "stages": stages, "outputs": {output: {}}})
    for begin in (preview_run, lc.run):
        with pytest.raises(StageError, match=sentence):
            begin(recipe, "mine")
        assert not Path("mine").exists()


def test_a_dry_run_names_all_packages_that_are_missing(texts, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(first_recipe(texts))

    def missing(extra):
        def prepare(_):
            raise StageError(f"it needs a package: pip install 'longcrawl[{extra}]', or another setting")

        return prepare

    monkeypatch.setattr(lc.text.GopherQuality, "prepare", missing("segmentation"))
    with pytest.raises(StageError, match=r"^it needs a package: pip install 'longcrawl\[segmentation\]', or"):
        preview_run("mine.yaml", "out", TRAINED)
    monkeypatch.setattr(lc.text.GopherRepetition, "prepare", missing("language"))
    with pytest.raises(
        RunError,
        match=r"^packages are missing for gopher_quality \(it needs .*; gopher_repetition \(.*\)\. "
        r"Install all: pip install 'longcrawl\[language,segmentation\]'$",
    ):
        preview_run("mine.yaml", "out", TRAINED)
