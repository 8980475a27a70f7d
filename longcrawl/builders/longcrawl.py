"""The `datasets` builder: ``load_dataset("longcrawl", NAME, …)``, with one configuration per source.

A new source is a file in ``longcrawl/sources`` and a line in ``longcrawl/core/kinds.py``.
"""

import dataclasses
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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

    def set_defaults(self, kind: type[Source]) -> "LongCrawlConfig":
        """Set all settings of the source to their defaults; return the configuration."""
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # sources are dataclasses
            setattr(self, field.name, field.default)
        return self

    def source(self) -> Source:
        """Make the source, which checks the values; `datasets` sets them only after construction.

        Raises:
            SourceError: a value is wrong; the message names the setting and what it takes.
        """
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
    """Builder that reads every source of longcrawl, with one shard per part.

    Raises:
        SourceError: no source, an unknown source or an unknown setting is given.
    """

    BUILDER_CONFIG_CLASS = LongCrawlConfig
    BUILDER_CONFIGS = [LongCrawlConfig(name=name, version=VERSION) for name in SOURCES.loaded()]  # noqa: RUF012  # `datasets` reads it from the class

    def __init__(self, *, config_name: str | None = None, **settings: Any) -> None:
        if config_name is None:
            raise SourceError(
                f"'longcrawl' has no configuration None; known: {', '.join(SOURCES)}; "
                "e.g. load_dataset('longcrawl', 'installed')"
            )
        kind = SOURCES.find(config_name)
        self.builder_configs[kind.name] = LongCrawlConfig(name=kind.name, version=VERSION).set_defaults(kind)
        given = {name: value for name, value in settings.items() if name not in ("data_dir", "data_files") or value}
        known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]  # sources are dataclasses
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
        bad_files = BadFiles(source.on_bad_files)
        for shard, part in enumerate(parts):
            tables = check_fields_named(
                source, source.read(part, bad_files), bad_files, partial(_every_part, source), self._fields_seen
            )
            try:
                for number, table in enumerate(tables):
                    yield Key(shard, number), table
            except CorruptionError as changed:
                raise ChangedDataError(str(changed)) from changed
        if bad_files.found:
            names = as_lines((f"{bad.file}: {bad.reason}" for bad in bad_files.found[:MOST_NAMED]), "; ")
            logger.warning("%s input files could not be read whole: %s", len(bad_files.found), names)


def _every_part(source: Source) -> Iterator[Part]:
    return (part for parts in source.splits().values() for part in parts)


def about_source(source: Source) -> dict[str, str]:
    """Return description, citation, homepage and licence of a source, or of the run that wrote its data if known."""
    folder = getattr(source, "data_dir", None)
    if isinstance(folder, str) and not is_url(folder):
        from longcrawl.run.card.write import about_output  # only outputs of runs need manifest and card

        if (about := about_output(Path(folder))) is not None:
            return about | {"homepage": source.homepage}
    summary = inspect.cleandoc(type(source).__doc__ or source.name).partition("\n\nArgs:")[0]
    named = _files_of(source)
    works = citations({"source": {"builder": source.name}, "stages": [], "outputs": {}}, {"": named})
    common_crawl = names_common_crawl(named)
    return {
        "description": summary,
        "citation": "\n\n".join(each.bibtex for each in (*works, software(__version__))),
        "homepage": _homepage(source, common_crawl=common_crawl),
        "license": COMMON_CRAWL_LICENSE if common_crawl else source.license,
    }


def _homepage(source: Source, *, common_crawl: bool) -> str:
    if source.name == "hub":
        return f"https://huggingface.co/datasets/{getattr(source, 'path', '')}"
    return "https://commoncrawl.org" if common_crawl else source.homepage


def _files_of(source: Source) -> list[str]:
    """Return the paths, URLs and globs that a source names."""
    named = [getattr(source, "data_dir", None), getattr(source, "data_files", None), getattr(source, "base_url", None)]
    found = []
    while named:
        each = named.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, Mapping):
            named += each.values()
        elif isinstance(each, list | tuple):
            named += each
    return sorted(found)


@contextmanager
def first_cause() -> Iterator[None]:
    """Raise the longcrawl error behind a `DatasetGenerationError`, and name the splits if one is unknown.

    `datasets` reports only that an error occurred, with the longcrawl error as its cause.
    """
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
    """Load a source without the registry of `datasets`.

    It has the same rows as ``load_dataset("longcrawl", name, …)``.

    Args:
        name: the source, such as "redpajama-v2".
        split: the split to load, or None for a dictionary of all splits.
        streaming: whether to return an ``IterableDataset``, which reads as it is iterated.
        num_proc: number of processes that prepare the cache.
        cache_dir: directory of the cache, or None for the default of `datasets`.
        settings: the fields of the source.

    Raises:
        SourceError: the source or a setting is unknown, a value is wrong, or there is nothing to read.
    """
    if settings.get("data_files"):
        settings["data_files"] = unresolved(settings["data_files"])
    builder = LongCrawl(config_name=name, hash=code_hash(), cache_dir=cache_dir, **settings)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    with first_cause(), no_documents(name):
        builder.download_and_prepare(num_proc=num_proc)
        return builder.as_dataset(split=split)
