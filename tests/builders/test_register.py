"""Registration: every private name of `datasets` that we lean on, and what it must do for us.

If one of the first tests fails after an upgrade of `datasets`, change ``register.py``.
"""

import inspect
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
from longcrawl._version import code_hash
from longcrawl.builders import register
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
    with pytest.raises(LongCrawlError, match=r"datasets .* has moved internals that load_dataset\('longcrawl'\) needs"):
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
