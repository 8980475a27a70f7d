"""The builder of `datasets`: what it says of a source, and when rows that it has cached are read again."""

import json

import datasets
import datasets.builder
import datasets.data_files
import datasets.load
import pytest
from datasets import load_dataset, packaged_modules

import longcrawl
from longcrawl._version import code_hash
from longcrawl.builders.longcrawl import LongCrawl, about_source
from longcrawl.core.sources import make_source


@pytest.mark.variants
@pytest.mark.parametrize("name", datasets.get_dataset_config_names("longcrawl"))
def test_every_configuration_says_what_it_is(name, tmp_path):
    (tmp_path / "crawl.jsonl").write_text('{"text": "One line."}')
    settings = {"data_files": str(tmp_path / "crawl.jsonl")} if name == "text" else {}
    settings = {"path": "me/pages"} if name == "hub" else settings
    source = make_source(name, settings)
    about = about_source(source)
    assert about.keys() == {"description", "citation", "homepage", "license"}
    assert all(about.values())
    if name in ("text", "installed"):
        info = datasets.load_dataset_builder("longcrawl", name, **settings).info
        assert {each: getattr(info, each) for each in about} == about


@pytest.mark.parametrize("named", ["data_files", "base_url"])
def test_archives_of_common_crawl_are_known_by_their_names(named):
    files = "https://e.org/CC-MAIN-2026-01/a.warc.gz"
    settings = {"data_files": files} if named == "data_files" else {"base_url": files, "paths": "warc.paths"}
    about = about_source(make_source("warc", settings))
    assert about["license"].startswith("common-crawl-terms-of-use")
    assert "Common Crawl" in about["citation"]


def test_an_output_of_a_run_says_what_its_recipe_says(tmp_path):
    rows = [{"id": str(number), "text": "word " * 40} for number in range(6)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"longcrawl": 1, "name": "tiny", "about": "Six documents."}
    spec |= {"source": {"builder": "text", "data_files": str(tmp_path / "a.jsonl"), "id_field": "id"}}
    spec |= {"stages": [{"tokenize": {"tokenizer": "trained", "vocabulary_size": 260}}, {"truncate": {"n": 8}}]}
    spec |= {
        "outputs": {"rectangle": {"heldout": 0}},
        "card": {"license": "odc-by", "citation": "@misc{tiny, year = 2026}"},
    }
    (tmp_path / "tiny.yaml").write_text(json.dumps(spec))
    longcrawl.run(tmp_path / "tiny.yaml", tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "run/rectangle"):
        about = about_source(make_source("rectangle", {"data_dir": str(folder)}))
        assert (about["description"], about["license"]) == ("Six documents.", "odc-by")
        assert about["citation"].startswith("@misc{tiny, year = 2026}")


def test_load_needs_no_registry(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    expected = load_dataset("longcrawl", "text", data_dir=str(tmp_path), split="train").to_list()
    monkeypatch.delitem(packaged_modules._PACKAGED_DATASETS_MODULES, "longcrawl")
    assert longcrawl.load("text", data_dir=str(tmp_path)).to_list() == expected
    assert list(longcrawl.load("text", data_dir=str(tmp_path), streaming=True)) == expected
    monkeypatch.chdir(tmp_path)
    assert longcrawl.load("text", data_files="*.jsonl").to_list() == expected
    splits = longcrawl.load("text", None, data_files={"train": "a.jsonl", "test": ["a.jsonl"]})
    assert {name: split.num_rows for name, split in splits.items()} == {"train": 2, "test": 2}


def test_the_cache_is_used_until_the_input_changes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n')
    first = LongCrawl(config_name="text", hash=code_hash(), data_dir=str(tmp_path))
    again = LongCrawl(config_name="text", hash=code_hash(), data_dir=str(tmp_path), text_field="text")
    assert first.cache_dir == again.cache_dir
    assert code_hash() in first.cache_dir
    path.write_text('{"text": "another"}\n')
    assert LongCrawl(config_name="text", hash=code_hash(), data_dir=str(tmp_path)).cache_dir != first.cache_dir
    assert longcrawl.load("text", data_dir=str(tmp_path))["text"] == ["another"]
