"""The `datasets` builder: ``load_dataset("longcrawl", NAME, …)``, with one configuration per source.

A new source is a file in ``longcrawl/sources`` and a line in ``longcrawl/core/kinds.py``.
"""

import dataclasses
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets.builder import Key

from longcrawl._version import __version__, code_hash
from longcrawl.builders.register import unresolved
from longcrawl.core.sources import SOURCES, BadFiles, Part, Source, check_fields_named, make_source
from longcrawl.errors import CorruptionError, LongCrawlError, SourceError, as_lines, known_names, no_documents, one_line
from longcrawl.run.card.front_matter import citations, names_common_crawl, software
from longcrawl.urls import is_url

logger = logging.getLogger("longcrawl")

VERSION = datasets.Version("1.0.0")
COMMON_CRAWL_LICENSE = "common-crawl-terms-of-use, https://commoncrawl.org/terms-of-use"
MOST_NAMED = 10
"""Broken files named in a warning, which counts all of them."""


class ChangedDataError(CorruptionError, datasets.exceptions.DatasetGenerationError):  # type: ignore[misc]  # not typed
    """A CorruptionError that `datasets` raises unchanged; it replaces other exceptions with its own."""


_OF_DATASETS = frozenset(inspect.signature(datasets.ArrowBasedBuilder.__init__).parameters) - {"data_dir", "data_files"}
"""Settings of the `datasets` builder itself, which are not settings of a source."""


@dataclass
class LongCrawlConfig(datasets.BuilderConfig):  # type: ignore[misc]  # `datasets` is not typed
    """Settings of one source under its field names, which a builder fills in."""

    def source(self) -> Source:
        """Make the source, which checks the values; `datasets` sets them only after construction."""
        names = [field.name for field in dataclasses.fields(SOURCES[self.name])]  # type: ignore[arg-type]  # sources are dataclasses
        settings = {name: getattr(self, name) for name in names}
        if isinstance(files := settings.get("data_files"), dict):
            settings["data_files"] = {str(split): list(paths) for split, paths in files.items()}
        return make_source(self.name, settings)

    def create_config_id(self, config_kwargs: dict[str, Any], custom_features: datasets.Features | None = None) -> str:  # noqa: ARG002  # the settings are read from self
        """Name the cache folder after the source and a fingerprint of its settings and input."""
        said = [self.source().fingerprint(), *SOURCES.implementation(SOURCES[self.name]).values()]
        said += [] if custom_features is None else [repr(custom_features)]
        return f"{self.name}-{datasets.fingerprint.Hasher.hash(said)}"


class LongCrawl(datasets.ArrowBasedBuilder):  # type: ignore[misc]  # `datasets` is not typed
    """Builder that reads every source of longcrawl, with one shard per part."""

    BUILDER_CONFIG_CLASS = LongCrawlConfig
    BUILDER_CONFIGS = [LongCrawlConfig(name=name, version=VERSION) for name in SOURCES.loaded()]  # noqa: RUF012  # `datasets` reads it from the class

    def __init__(self, *, config_name: str | None = None, **settings: Any) -> None:
        if config_name is None:
            raise SourceError(
                f"'longcrawl' has no configuration None; known: {', '.join(SOURCES)}; "
                "e.g. load_dataset('longcrawl', 'installed')"
            )
        kind = SOURCES.find(config_name)
        config = self.builder_configs[kind.name] = LongCrawlConfig(name=kind.name, version=VERSION)
        known = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # sources are dataclasses
        for name, default in known.items():
            setattr(config, name, default)
        given = {name: value for name, value in settings.items() if name not in ("data_dir", "data_files") or value}
        for name in given:
            if name not in _OF_DATASETS and name not in known:
                raise SourceError(f"source {config_name!r} has no setting {name!r}; {known_names(known, name)}")
        if given.get("storage_options"):
            raise SourceError(
                "storage_options of load_dataset are not passed to sources: set endpoint and credentials in the "
                "environment or ~/.config/fsspec, or storage_options in a recipe"
            )
        super().__init__(config_name=kind.name, **given)
        self._fields_seen = set[str]()

    def _info(self) -> datasets.DatasetInfo:
        source = self.config.source()
        features = datasets.Features.from_arrow_schema(source.schema())
        return datasets.DatasetInfo(features=features, **about_source(source))

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:  # noqa: ARG002  # sources fetch by themselves
        source = self.config.source()
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"parts": parts, "source": source})
            for split, parts in source.splits().items()
        ]

    def _generate_shards(self, parts: list[Part], source: Source) -> Iterator[str]:  # noqa: ARG002  # called with all gen_kwargs
        yield from (part.name for part in parts)

    def _generate_tables(self, parts: list[Part], source: Source) -> Iterator[tuple[Any, pa.Table]]:
        bad_files, every_part = BadFiles(source.on_bad_files), lambda: chain(*source.splits().values())
        for shard, part in enumerate(parts):
            found = source.read(part, bad_files)
            tables = check_fields_named(source, found, bad_files, every_part, self._fields_seen)
            try:
                for number, table in enumerate(tables):
                    yield Key(shard, number), table
            except CorruptionError as changed:
                raise ChangedDataError(str(changed)) from changed
        if bad_files.found:
            names = as_lines((f"{bad.file}: {bad.reason}" for bad in bad_files.found[:MOST_NAMED]), "; ")
            logger.warning("%s input files could not be read completely: %s", len(bad_files.found), names)


def about_source(source: Source) -> dict[str, str]:
    """Return description, citation, homepage and licence of a source, or of the run that wrote its data if known."""
    folder = getattr(source, "data_dir", None)
    if isinstance(folder, str) and not is_url(folder):
        from longcrawl.run.card.write import about_output  # only outputs of runs need manifest and card

        if (about := about_output(Path(folder))) is not None:
            return about | {"homepage": source.homepage}
    summary = inspect.cleandoc(type(source).__doc__ or source.name).partition("\n\nArgs:")[0]
    named = sorted(_files_of([getattr(source, name, None) for name in ("data_dir", "data_files", "base_url")]))
    works = citations({"source": {"builder": source.name}, "stages": [], "outputs": {}}, {"": named})
    common_crawl = names_common_crawl(named)
    homepage = "https://commoncrawl.org" if common_crawl else source.homepage
    if source.name == "hub":
        homepage = f"https://huggingface.co/datasets/{getattr(source, 'path', '')}"
    return {
        "description": summary,
        "citation": "\n\n".join(each.bibtex for each in (*works, software(__version__))),
        "homepage": homepage,
        "license": COMMON_CRAWL_LICENSE if common_crawl else source.license,
    }


def _files_of(named: Any) -> Iterator[str]:
    """Yield the strings in nested settings that name files."""
    if isinstance(named, str):
        yield named
    elif isinstance(named, Mapping | list | tuple):
        for each in named.values() if isinstance(named, Mapping) else named:
            yield from _files_of(each)


@contextmanager
def first_cause() -> Iterator[None]:
    """Raise the longcrawl error that caused a `DatasetGenerationError`, and name the splits if one is unknown."""
    try:
        yield
    except datasets.exceptions.DatasetGenerationError as failed:
        if isinstance(failed.__cause__, LongCrawlError):
            raise failed.__cause__ from failed
        raise
    except ValueError as failed:
        if str(failed).startswith("Unknown split"):
            raise SourceError(f"{one_line(failed)} Set split to one of them") from failed
        raise


def load(
    name: str,
    split: str | None = "train",
    *,
    streaming: bool = False,
    num_proc: int | None = None,
    cache_dir: str | None = None,
    **settings: Any,
) -> Any:
    """Load a source without the registry of `datasets`, with the same rows as ``load_dataset("longcrawl", name, …)``.

    Args:
        name: the source, such as "redpajama-v2".
        split: the split to load, or None for a dictionary of all splits.
        streaming: whether to return an ``IterableDataset``, which reads as it is iterated.
        num_proc: number of processes that prepare the cache.
        cache_dir: directory of the cache, or None for the default of `datasets`.
        settings: the fields of the source.
    """
    if settings.get("data_files"):
        settings["data_files"] = unresolved(settings["data_files"])
    builder = LongCrawl(config_name=name, hash=code_hash(), cache_dir=cache_dir, **settings)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    with first_cause(), no_documents(name):
        builder.download_and_prepare(num_proc=num_proc)
        return builder.as_dataset(split=split)
