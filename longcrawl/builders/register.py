"""Registration of the builder for ``load_dataset("longcrawl", …)``.

This is the only file that uses private names of `datasets`, which has no public way to add a builder. It looks up names
in ``packaged_modules._PACKAGED_DATASETS_MODULES`` before folders and the Hub, so an entry there is enough. If no files
are named, ``PackagedDatasetModuleFactory.get_module`` would read those in the current directory, and it would turn a
URL in ``data_dir`` into a local path. It is therefore replaced for the name "longcrawl", and for no other.
``longcrawl.load`` works without these names.

"""

import functools
import inspect
from typing import Any

import datasets.load
from datasets import packaged_modules
from datasets.data_files import DataFilesDict, DataFilesList, sanitize_patterns

from longcrawl._version import code_hash
from longcrawl.errors import LongCrawlError
from longcrawl.sources.files import absolute

NAME = "longcrawl"
MODULE = "longcrawl.builders.longcrawl"
TOKENS = "tokens"


def register() -> None:
    """Register the builder with `datasets`; registering it twice changes nothing."""
    try:
        packaged_modules._PACKAGED_DATASETS_MODULES[NAME] = (MODULE, code_hash())  # noqa: SLF001  # there is no public registry
        factory = datasets.load.PackagedDatasetModuleFactory
        original = factory.get_module
    except AttributeError as error:
        raise LongCrawlError(
            f"datasets {datasets.__version__} has moved internals that load_dataset('longcrawl') needs ({error}); "
            "install datasets 5.2, or use longcrawl.builders.longcrawl.load"
        ) from error
    if hasattr(original, "_of_longcrawl"):
        return

    @functools.wraps(original)
    def get_module(self: Any) -> Any:
        return _our_module(self) if self.name == NAME else original(self)

    get_module._of_longcrawl = True  # type: ignore[attr-defined]  # noqa: SLF001  # the mark that makes registration idempotent
    factory.get_module = get_module
    _load_outputs()


def _load_outputs() -> None:
    """Make ``load_dataset(FOLDER)`` read the tokens of an output folder without token tables.

    `datasets` reads neither Zarr nor token shards, and would load the tables of document origins instead.
    """
    original = datasets.load.load_dataset_builder
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def load_dataset_builder(*given: Any, **named: Any) -> Any:
        asked = parameters.bind(*given, **named).arguments
        path, others = asked["path"], ("data_dir", "data_files", "features", "revision")
        known = path in packaged_modules._PACKAGED_DATASETS_MODULES  # noqa: SLF001  # there is no public registry
        if asked.get("name") not in (None, TOKENS) or known or any(asked.get(each) is not None for each in others):
            return original(*given, **named)
        from longcrawl.builders.outputs import OutputTokens, find_tokens

        found = find_tokens(path)
        if found is None:
            return original(*given, **named)
        return OutputTokens(
            found, cache_dir=asked.get("cache_dir"), dataset_name=NAME, **asked.get("config_kwargs", {})
        )

    datasets.load.load_dataset_builder = datasets.load_dataset_builder = load_dataset_builder


def unresolved(data_files: Any) -> DataFilesDict:
    """Return paths, URLs and globs by split without expanding them, as the source does.

    `datasets` would treat an outage as no match, and a name such as ``crawl[1].jsonl`` as a pattern.
    """
    named = {} if data_files is None else sanitize_patterns(data_files)
    return DataFilesDict({split: DataFilesList(list(map(str, files)), []) for split, files in named.items()})


def _our_module(factory: Any) -> Any:
    """Return the builder module for `datasets`, with ``data_files`` unexpanded for the source to resolve."""
    module_path, digest = packaged_modules._PACKAGED_DATASETS_MODULES[NAME]  # noqa: SLF001  # there is no public registry
    settings: dict[str, Any] = {"dataset_name": NAME, "data_files": unresolved(factory.data_files)}
    if factory.data_dir:
        settings["data_dir"] = absolute(factory.data_dir)
    return datasets.load.DatasetModule(module_path, digest, settings)
