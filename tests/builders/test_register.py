"""Registration: every private name of `datasets` that we lean on, and what it must do for us.

If one of the first tests fails after an upgrade of `datasets`, change ``register.py``.
"""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import datasets
import datasets.builder
import datasets.data_files
import datasets.load
import pytest
from datasets import load_dataset, packaged_modules

import longcrawl
from longcrawl import _version
from longcrawl._version import code_hash
from longcrawl.builders import register
from longcrawl.builders.longcrawl import LongCrawl, about_source
from longcrawl.core.sources import make_source
from longcrawl.errors import LongCrawlError, SourceError


def test_private_name_packaged_datasets_modules():
    registry = packaged_modules._PACKAGED_DATASETS_MODULES
    assert registry["longcrawl"] == (register.MODULE, code_hash())
    assert datasets.load._PACKAGED_DATASETS_MODULES is registry
    module, digest = registry["json"]
    assert module.startswith("datasets.packaged_modules")
    assert isinstance(digest, str)


def test_private_name_packaged_dataset_module_factory(tmp_path):
    factory = datasets.load.PackagedDatasetModuleFactory(
        "json", data_dir=str(tmp_path), data_files="a", download_config=None
    )
    assert (factory.name, factory.data_files, factory.data_dir) == ("json", "a", str(tmp_path))
    assert factory.download_config is None
    assert factory.get_module.__func__._of_longcrawl


def test_private_name_dataset_module():
    module = datasets.load.DatasetModule("module.path", "digest", {"data_files": None})
    assert (module.module_path, module.hash, module.builder_kwargs) == ("module.path", "digest", {"data_files": None})


def test_private_name_data_files_dict(tmp_path):
    (tmp_path / "a.txt").touch()
    found = datasets.data_files.DataFilesDict.from_patterns(
        datasets.data_files.sanitize_patterns("*.txt"), base_path=str(tmp_path), download_config=None
    )
    assert {str(split): list(files) for split, files in found.items()} == {"train": [str(tmp_path / "a.txt")]}
    assert not datasets.data_files.DataFilesDict()


def test_private_name_sanitize_patterns():
    sanitize = datasets.data_files.sanitize_patterns
    assert {str(split): files for split, files in sanitize(["a", "b"]).items()} == {"train": ["a", "b"]}
    assert {str(split): files for split, files in sanitize({"test": "a"}).items()} == {"test": ["a"]}


def test_private_name_key():
    assert str(datasets.builder.Key(3, 4)) == "(3, 4)"


def test_names_of_the_builder_that_we_override():
    parameters = inspect.signature(datasets.ArrowBasedBuilder.__init__).parameters
    assert {"config_name", "data_dir", "data_files", "hash", "cache_dir", "base_path", "storage_options"} <= set(
        parameters
    )
    for name in ("_info", "_split_generators", "_generate_tables"):
        assert hasattr(datasets.ArrowBasedBuilder, name)
    assert list(inspect.signature(datasets.BuilderConfig.create_config_id).parameters) == [
        "self",
        "config_kwargs",
        "custom_features",
    ]


def test_a_release_that_moved_the_registry_gets_one_sentence(monkeypatch):
    monkeypatch.delattr(packaged_modules, "_PACKAGED_DATASETS_MODULES")
    with pytest.raises(LongCrawlError, match=r"datasets .* has moved what load_dataset\('longcrawl'\) needs"):
        register.register()


def test_registering_twice_changes_nothing():
    before = datasets.load.PackagedDatasetModuleFactory.get_module
    register.register()
    register.register()
    assert datasets.load.PackagedDatasetModuleFactory.get_module is before


def test_other_builders_are_left_alone(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    assert load_dataset("json", data_files=str(tmp_path / "a.json"), split="train")["a"] == [1]


def test_every_configuration_is_listed():
    assert {"installed", "redpajama-v2", "text"} <= set(datasets.get_dataset_config_names("longcrawl"))


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


def test_no_or_an_unknown_configuration_lists_the_known_ones():
    with pytest.raises(SourceError, match=r"no configuration None; known: composed, datatrove, .*installed, .*red"):
        load_dataset("longcrawl")
    with pytest.raises(SourceError, match=r"source 'rpv2' is unknown; known: composed, datatrove"):
        load_dataset("longcrawl", "rpv2")


def test_unknown_settings_list_the_known_ones():
    with pytest.raises(
        SourceError, match=r"source 'installed' has no setting 'package'; known: packages, on_bad_files"
    ):
        load_dataset("longcrawl", "installed", package="numpy")
    with pytest.raises(SourceError, match="source 'installed' has no setting 'data_dir'"):
        load_dataset("longcrawl", "installed", data_dir="here")
    with pytest.raises(SourceError, match="credentials in the environment"):
        load_dataset("longcrawl", "installed", storage_options={"key": "x"})


def test_wrong_values_are_refused():
    with pytest.raises(SourceError, match="packages takes"):
        load_dataset("longcrawl", "installed", packages="numpy")
    with pytest.raises(SourceError, match="on_bad_files takes one of"):
        load_dataset("longcrawl", "installed", on_bad_files="ignore")


def test_the_current_directory_is_never_read(tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_text("a secret")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="has nothing to read"):
        load_dataset("longcrawl", "text")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert load_dataset("longcrawl", "installed", packages=["python"], split="train").num_rows > 50


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


def test_the_code_hash_covers_every_module(tmp_path, monkeypatch):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/warc.py").write_text("VERSION = 1")
    monkeypatch.setattr(_version, "__file__", str(tmp_path / "__init__.py"))
    before = code_hash.__wrapped__()
    (tmp_path / "sources/warc.py").write_text("VERSION = 2")
    assert code_hash.__wrapped__() != before != code_hash()


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_repository_root_works_without_installation():
    root = Path(longcrawl.__file__).resolve().parent.parent
    if not (root / "cards").is_dir():
        pytest.skip("longcrawl is installed, there is no checkout beside it")
    code = "import longcrawl.builders; print(longcrawl.builders.__file__)\n"
    code += "import longcrawl.core.sources as s, pickle; print(pickle.loads(pickle.dumps(s.Part('a'))).name)"
    assert run_python(code, root).splitlines() == [str(root / "longcrawl/builders/__init__.py"), "a"]
