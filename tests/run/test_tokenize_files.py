"""Text to shards in one call, in Python and as it is typed."""

import gzip
import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import RecipeError, RunError, SourceError
from longcrawl.run.tokenize_files import tokenize_recipe

WORDS = ["the", "tide", "was", "out", "and", "the", "boats", "lay", "on", "the", "sand"]


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    lines = [json.dumps({"text": " ".join(WORDS[: 1 + n % 11] * (1 + n % 17))}) + "\n" for n in range(60)]
    (folder / "a.jsonl").write_text("".join(lines[:30]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[30:]).encode()))
    return folder


def digests(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def typed(tmp_path_factory, raw, longcrawl) -> dict[str, tuple[Path, subprocess.CompletedProcess[str]]]:
    folder = tmp_path_factory.mktemp("typed")
    ours = ("--tokenizer", "trained", "--max-length", 32, "--overlap-size", 8, "--overlap-probability", 0.7)
    theirs = ("--tokenizer_path", "trained", "--max_length", 32, "--overlap_size", 8, "--num_workers", 2)
    theirs += ("--probabilistic_overlap",)
    other = ("--tokenizer", "trained", "--format", "datatrove", "--set", "outputs.datatrove.heldout=5")
    commands: dict[str, tuple[object, ...]] = {
        "ours": (raw, *ours, "--output-dir", folder / "ours"),
        "theirs": ("--input_dir", raw, *theirs, "--output_dir", folder / "theirs"),
        "datatrove": (raw / "b.jsonl.gz", *other, "--output-dir", folder / "datatrove"),
        "no input": ("--output-dir", folder / "none"),
        "two inputs": (raw, "--input_dir", raw, "--output-dir", folder / "none"),
        "overlap alone": (raw, "--overlap-size", 8, "--output-dir", folder / "none"),
    }
    return {name: (folder / name, longcrawl("tokenize", *words)) for name, words in commands.items()}


def test_flags_of_seed_004_give_the_same_bytes_with_two_workers(typed):
    for name in ("ours", "theirs"):
        assert typed[name][1].returncode == 0, typed[name][1].stderr
    assert digests(typed["ours"][0]) == digests(typed["theirs"][0])


def test_what_was_written_is_what_the_options_say(typed, raw):
    folder, said = typed["ours"]
    shards = [lc.formats.open_shard(file) for file in sorted((folder / "gpt-simple/train").glob("*.bin"))]
    assert max(np.diff(shard.ends, prepend=0).max() for shard in shards) == 32
    assert {int(each) for shard in shards for each in shard.overlaps} == {0, 8}
    assert "of 60 documents in 1 shard" in said.stdout
    assert "read back: train/00000.bin" in said.stdout


def test_other_formats_and_overrides(typed):
    folder, said = typed["datatrove"]
    assert said.returncode == 0, said.stderr
    assert sorted(path.name for path in (folder / "datatrove").iterdir() if path.is_dir()) == [
        "documents",
        "train",
        "val",
    ]
    assert len(lc.formats.open_shard(folder / "datatrove/val/00000.ds")) == 5


@pytest.mark.parametrize("name", ["no input", "two inputs"])
def test_input_and_output_are_needed_once(name, typed):
    said = typed[name][1]
    assert said.returncode == 1
    assert said.stderr == (
        "LongCrawlError: tokenize needs one INPUT and --output-dir, such as longcrawl tokenize raw --output-dir "
        "shards\n"
    )


def test_an_overlap_without_windows_is_refused(typed):
    said = typed["overlap alone"][1]
    assert (said.returncode, said.stderr) == (
        1,
        "RecipeError: overlap_size needs windows: also set max_length, or remove both\n",
    )


def test_the_same_command_gives_what_is_there(typed, raw):
    before = digests(typed["ours"][0])
    same = {"max_length": 32, "overlap_size": 8, "overlap_probability": 0.7}
    summary = lc.tokenize(raw, typed["ours"][0], "trained", **same)
    assert summary.written["splits"]["train"]["documents"] == 60
    assert digests(typed["ours"][0]) == before


def test_buckets_are_top_folders_of_the_input_or_values_of_a_field(tmp_path):
    for name in ("web", "code"):
        lines = [json.dumps({"text": " ".join(WORDS), "domain": f"{n % 3}.org"}) + "\n" for n in range(9)]
        (tmp_path / "raw" / name / "deep").mkdir(parents=True)
        (tmp_path / "raw" / name / "deep" / "a.jsonl").write_text("".join(lines))
    ways = {
        "folders": ("source.source_from=folder", "outputs.gpt-simple.buckets=source", "outputs.gpt-simple.heldout=2"),
        "domains": ("source.fields=[domain]", "outputs.gpt-simple.buckets=domain"),
    }
    for way, overrides in ways.items():
        lc.tokenize(tmp_path / "raw", tmp_path / way, "trained", overrides=overrides)
    found = {file.parent.relative_to(tmp_path).as_posix() for way in ways for file in (tmp_path / way).rglob("*.bin")}
    folders = {f"folders/gpt-simple/{split}/{name}" for split in ("train", "val") for name in ("web", "code")}
    assert found == folders | {f"domains/gpt-simple/train/{n}~2Eorg" for n in range(3)}
    packed = lc.loading.Packed(
        tmp_path / "folders/gpt-simple", [{"duration_tokens": 60, "mix": {"web": 1}}], max_length=30, batch_size=1
    )
    assert next(iter(packed))["input_ids"].shape == (1, 30)


def test_a_source_of_another_kind():
    recipe = tokenize_recipe("crawl/*.warc.gz", builder="warc", format="megatron")
    assert (recipe.source.name, recipe.output.name) == ("warc", "megatron")


@pytest.mark.variants
@pytest.mark.parametrize("name", ["a.warc.gz", ""])
def test_web_archives_with_html_are_refused(tmp_path, name):
    lc.samples.write_archive(tmp_path / "crawl")
    (tmp_path / "crawl" / "00000.warc.gz").rename(tmp_path / "crawl" / "a.warc.gz")
    with pytest.raises(SourceError, match=r"\.warc\.gz may have HTML, but tokenize reads text: extract it in a run"):
        lc.tokenize(tmp_path / "crawl" / name, tmp_path / "out", "trained")
    assert not (tmp_path / "out").exists()
    with pytest.raises(RunError, match="produced no documents"):
        lc.tokenize(tmp_path / "crawl", tmp_path / "out", "trained", overrides=["source.mimes=[text/plain]"])


def test_wet_files_are_tokenized(tmp_path):
    text = "A page of plain text, made for this test.\n" * 9
    head = "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://a.example/\r\nContent-Type: text/plain\r\n"
    record = f"{head}WARC-Record-ID: <urn:uuid:1>\r\nContent-Length: {len(text)}\r\n\r\n{text}\r\n\r\n"
    (tmp_path / "a.warc.wet").write_bytes(record.encode())
    summary = lc.tokenize(tmp_path / "a.warc.wet", tmp_path / "out", "trained")
    assert summary.written["splits"]["train"]["documents"] == 1


def test_what_is_no_format_is_refused():
    with pytest.raises(
        RecipeError,
        match="token shards have no format 'zarr'; known: gpt-simple, datatrove, megatron, nanogpt, olmo-core, "
        "levanter, mds, litdata",
    ):
        tokenize_recipe("raw", format="zarr")


def test_options_of_gpt_simple_s_command():
    recipe = tokenize_recipe("raw/*.jsonl", "gpt2", 64, 8, min_text_length=200, overlap_probability=0.5)
    assert recipe.as_dict()["stages"][0] == {"min_chars": {"n": 200}}
    assert recipe.as_dict()["stages"][2]["windows"]["overlap_probability"] == 0.5
    with pytest.raises(RecipeError, match="overlap_probability needs overlapping windows: also set overlap_size"):
        tokenize_recipe("raw/*.jsonl", "gpt2", 64, overlap_probability=0.5)
    done = CliRunner().invoke(app, ["tokenize", "--help"])
    assert "--min-text-length" in done.stdout
    assert "--overlap-probability" in done.stdout
