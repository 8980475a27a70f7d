"""Mistakes of a first hour: each is one sentence that says what to type."""

import json
import re
import sys
from pathlib import Path

import pytest
import tokenizers
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli import main
from longcrawl.cli.commands import app
from longcrawl.errors import LongCrawlError

RECIPE = """\
longcrawl: 1
name: mine
source: {builder: text, data_files: DATA}
stages:
  - STAGE
outputs:
  parquet: {}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.jsonl").write_text(json.dumps({"text": "Some words."}) + "\n")
    (tmp_path / "other.jsonl").write_text(json.dumps({"content": "Some words."}) + "\n")
    (tmp_path / "fake.jsonl.gz").write_bytes(b"no\x01 gzip")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "shards").mkdir()
    for name in ("gpt-simple.json", "00000.bin"):
        (tmp_path / "shards" / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ({}, None),
        ({"DATA": "other.jsonl"}, r"'text'; its fields: content; set text_field= to one of them \(--set .*=NAME\)$"),
        ({"DATA": "fake.jsonl.gz"}, r"is corrupt: no gzip data; to continue without it, set on_bad_files"),
        ({"DATA": "none.jsonl"}, r"none.jsonl: is missing"),
        ({"STAGE": "min_char: {n: 3}"}, r"'min_char' is unknown; did you mean 'min_chars', .*`longcrawl stages` lists"),
        ({"STAGE": "min_chars: {n: three}"}, r"MinChars.n takes a whole number, got 'three'$"),
        ({"STAGE": "gopher_quality: {min_word: 3}"}, r"no field 'min_word'; known: .*\. Did you mean 'min_words'\?$"),
        ({"STAGE": "min_hash: {preset: finewb}"}, r"unknown preset 'finewb'; known: .*\. Did you mean 'fineweb'\?$"),
        ({"STAGE": "min_tokens: {n: 3}"}, r"needs a column 'tokens'; .*\. Add the stage tokenize before it$"),
        ({"outputs:": "output:"}, r"unknown key 'output'; known: .*\. Did you mean 'outputs'\?$"),
        ({"parquet: {}": "parqet: {}"}, r"output 'parqet' is unknown; known: .*\. Did you mean 'parquet'\?$"),
        ({"name: mine": "name: mine\n source: x"}, r"is not YAML: .* at line 3, column 8: source: x \^$"),
    ],
)
def test_what_is_wrong_in_a_recipe(recipe, sentence, folder):
    text = RECIPE
    for word, other in ({"DATA": "ok.jsonl", "STAGE": "min_chars: {n: 3}"} | recipe).items():
        text = text.replace(word, other)
    (folder / "mine.yaml").write_text(text)
    if sentence is None:
        lc.run("mine.yaml", "out")
        return
    with pytest.raises(LongCrawlError, match=sentence):
        lc.run("mine.yaml", "out")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("run nosuch.yaml --out out", r"no recipe nosuch.yaml: check its path, or choose one from `longcrawl recipes`"),
        ("run quickstrat --out out", r"or the path of a .yaml file\. Did you mean 'quickstart'\?$"),
        ("run ok.jsonl --out out", r"ok.jsonl is not a recipe, .*: run `longcrawl init ok.jsonl` to write a recipe"),
        ("stages min_char", r"stage 'min_char' is unknown; did you mean 'min_chars', .*`longcrawl stages` lists"),
        (
            "verify ok.jsonl",
            r"ok.jsonl is not a token shard, whose name ends in .ds, .bin, .npy or .parquet: check the path",
        ),
        ("validate data --curriculum c.yaml", r"no file c.yaml: check the path of the curriculum"),
        ("tokenize ok.jsonl --output-dir out --format megatorn", r"no format 'megatorn'; .*Did you mean 'megatron'\?$"),
        (
            "inspect ok.jsonl",
            "ok.jsonl holds neither a run nor a known output: check the path, install the package",
        ),
        ("push ok.jsonl me/x --private", r"ok.jsonl is a file: name the folder of a run$"),
        ("fetch longcrawl64 --repo a/b --out ok.jsonl", r"ok.jsonl is not empty, .*: choose another folder$"),
        ("lists fetch ut1 --out ok.jsonl/bl --url ok.jsonl", r"ok.jsonl cannot be written .*: choose another --out$"),
        ("init fake.jsonl.gz", r"is corrupt: no gzip data; fix it, or choose other files$"),
        (
            "init shards",
            r"shards holds tokens, not texts: trainers read it directly; longcrawl verify shards checks it$",
        ),
        ("init ok.jsonl --out ok.jsonl/x.yaml", r"x.yaml cannot be written \(.*\): choose another name with --out$"),
        ("lines ok.jsonl --out ok.jsonl", r"ok.jsonl exists already: remove it, or choose another --out$"),
        ("compose empty.jsonl", r"empty.jsonl has no documents: choose others$"),
        ("run mine.yaml --out out --dry-run --plan ok.jsonl", r"ok.jsonl is not a plan .*: write it again with"),
        (
            "tokenize ok.jsonl --output-dir o --overlap-probability 2",
            r"needs overlapping windows: also set overlap_size",
        ),
        ("plan mine.yaml --save ok.jsonl", r"ok.jsonl exists already: it is not a plan, name another file$"),
        ("plan mine.yaml --cores 0", r"--files and --cores must be 1 or more, got --cores 0$"),
        ("validate . --curriculum .", r". cannot be read as YAML \(Is a directory\): write '- \{duration_tokens: "),
        ("init ok.jsonl --text-field body", r"no field 'body'; its fields: text; .* \(--text-field NAME\)$"),
        pytest.param(
            "train-classifier other.jsonl ok.jsonl --out m",
            r"no field 'text'; its fields: content; .* \(--text-field NAME\)$",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_wrong_in_a_command(command, sentence, folder):
    with pytest.raises(LongCrawlError, match=sentence):
        CliRunner().invoke(app, command.split(), catch_exceptions=False)


def test_a_wrong_word_of_an_option_names_the_option_and_the_known_words(folder):
    asked = CliRunner().invoke(app, ["validate", "shards", "--mix-by", "foo"])
    assert "Invalid value for '--mix-by': Value error, 'foo' is not one of 'tokens', 'samples'" in asked.output
    with pytest.raises(LongCrawlError, match=r"^Packed\.mix_by takes one of 'tokens', 'samples', got 'foo'$"):
        lc.loading.validate("shards", mix_by="foo")


def test_help_has_whole_summaries_of_all_commands():
    listed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    assert "validate " in listed
    assert "..." not in listed.partition("Commands:")[2]


@pytest.mark.parametrize("command", [[], ["lists"]])
def test_without_a_command_there_is_help_in_lines(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["longcrawl", *command])
    with pytest.raises(SystemExit):
        main()
    assert re.search(r"^  fetch +", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: lc.open(["ok.jsonl"]), r"lc\.open needs a name, got \['ok.jsonl'\]: .*lc.open\('text', data_files="),
        (
            lambda: lc.open(Path("ok.jsonl"), split="validation"),
            r'^Unknown split "validation"\. Should .* Set split to one',
        ),
        (lambda: lc.open("nosuch://b/x.jsonl"), r"cannot be reached .*Install the package of its protocol"),
        (lambda: lc.run({"longcrawl": 1}, "out"), "a recipe must be a name or a path, got a mapping: write it"),
        (lambda: lc.run("quickstart", "out", num_proc=0), "num_proc is 0: set it to 1 or more"),
        (lambda: lc.run("quickstart", "out", engine="spark"), "engine must be an object such as lc.engines.Spark"),
        (
            lambda: lc.loading.Packed("hf://datasets/a/b"),
            "Packed reads local folders: download it first",
        ),
        (lambda: lc.loading.ComposedBatches("s3://a/b", 64), "bucketed datasets are read from local folders"),
        (lambda: lc.loading.Packed("ok.jsonl"), "ok.jsonl is a file: choose its folder, or read texts with lc.loading"),
        (
            lambda: lc.Crawl([{"content": "x"}]) | lc.text.MinWords(1),
            r"Choose the one that holds the text: lc.Crawl\(data",
        ),
        (
            lambda: lc.Crawl([{"text": "x"}]) | lc.text.ExtractText(),
            "'html'; .*The source warc sets it; plain texts need no",
        ),
        (
            lambda: lc.Crawl(["a\ud800b"]),
            r"documents of list cannot be converted to a table \(.*surrogates.*\): give columns, each of one",
        ),
        (
            lambda: lc.Crawl([{"text": 1}]) | lc.text.MinChars(2),
            "min_chars needs a column 'text' of strings, but it is",
        ),
        (
            lambda: lc.Crawl([{"id": "a", "tokens": [1]}]) | lc.text.MinChars(2),
            r"the documents have: id, tokens\. Put the stage before tokenize, which replaces texts",
        ),
        (
            lambda: lc.text.Language(keep=(False, "en")),
            r"takes a list such as \[a, b\], got \(False, 'en'\); quote 'no', 'on' and the like, which YAML reads as",
        ),
        (lambda: lc.Crawl([{"text": "x"}]) | lc.text.MinWords, r"expected a stage such as lc.text.MinWords\(16_000\)"),
    ],
)
def test_what_is_wrong_in_a_call(mistake, sentence, folder):
    with pytest.raises(LongCrawlError, match=sentence):
        mistake()


def test_a_block_without_a_document_is_told_or_skipped(folder):
    known = {"w": 0, "Some": 1, "words.": 2}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="w"))  # noqa: S106
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<|endoftext|>"])
    words.save("tokenizer.json")
    for name in ("other.jsonl", "ok.jsonl"):
        (folder / "both" / name).parent.mkdir(exist_ok=True)
        (folder / "both" / name).write_text((folder / name).read_text())
    settings = {"max_length": 4, "tokenizer": "tokenizer.json", "last_batch": "fill"}
    with pytest.raises(LongCrawlError, match="line 1 has no field 'text'; its fields: content; set text_field= to one"):
        list(lc.loading.Jsonl("both", **settings))
    (batch,) = lc.loading.Jsonl("both", on_bad_files="skip", **settings)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 3]]
