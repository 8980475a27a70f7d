"""From documents to a first recipe, and what a run of it would do."""

import re
import shlex
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import LongCrawlError, RecipeError, RunError, SourceError, StageError
from longcrawl.io.structured import load_yaml
from longcrawl.run.first_recipe import first_recipe
from longcrawl.run.preview import preview_run
from longcrawl.run.recipe import load_recipe, parse_recipe
from longcrawl.sources import files

TRAINED = ["stages.tokenize.tokenizer=trained", "stages.tokenize.vocabulary_size=300", "stages.min_tokens.n=1"]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "the",
        "and",
        "that",
        "with",
        "have",
        "to",
        "of",
        *(f"word{chr(97 + each % 26)}{chr(97 + each // 26)}" for each in range(300)),
    ]
    random = Random(0)
    rows = [". ".join(" ".join(random.choices(words, k=12)) for _ in range(20)) for _ in range(40)]
    pq.write_table(pa.table({"content": rows, "title": ["t"] * 40}), tmp_path / "texts.parquet")
    return "texts.parquet"


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
    with pytest.raises(SourceError, match=r"by the names of its files: \.page 1\. .* or --format text\."):
        first_recipe("mixed")
    assert yaml.safe_load(first_recipe("mixed", file_format="text"))["source"]["format"] == "text"


def test_a_file_without_documents_has_no_recipe(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(RecipeError, match=r"^empty\.jsonl has no documents to look at: name another file"):
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
    for out, sentence in (("there.yaml", "is there already"), ("recipe.txt", r"end it in \.yaml")):
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
        ("rectangle", [{"tokenize": {"tokenizer": "trained"}}], "a rectangle needs rows of one length"),
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


def test_version_and_completion():
    assert CliRunner().invoke(app, ["--version"]).stdout == f"longcrawl {lc._version.__version__}\n"
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
