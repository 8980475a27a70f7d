"""Which source reads what a user names: a file, folder, URL or glob, or a dataset of the Hub."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longcrawl.core.outputs import OUTPUTS
from longcrawl.errors import SourceError, quoted
from longcrawl.formats.shards.base import FORMATS
from longcrawl.sources import text
from longcrawl.sources.files import absolute, list_tree
from longcrawl.sources.named_files import count_endings, has_ending, spell_endings
from longcrawl.sources.warc import source as warc
from longcrawl.urls import DATASETS, REPOSITORY, has_pattern, is_url, join, path_of

_RECTANGLE = re.compile(r"(train|heldout)(\.zarr)?/zarr\.json")
_DATASET = re.compile(rf"(?P<path>{REPOSITORY.pattern})(?:@(?P<revision>refs/[^/]+/[^/]+|[^/]+))?")
"""A dataset of the Hub, and the branch, tag or commit."""
_PAGE = re.compile(
    rf"https?://(?:huggingface\.co|hf\.co)/datasets/(?P<path>{REPOSITORY.pattern})"
    r"(?:/tree/(?P<revision>[^/]+)(?:/(?P<data_dir>[^/].*))?|/viewer.*)?/?"
)
"""The page of a dataset, of a folder of it, or of its viewer, as a browser shows the address."""
_RPV2 = re.compile(r"documents/[^/]+/[^/]+/[^/]+\.json\.gz")


def guess_source(name: str, *, any_ending: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the source that reads what is named so, and its settings; ``text`` for ``any_ending`` of a folder.

    What is here is read from here, also where the Hub has a dataset of that name; and a path whose folder is here is
    no dataset of the Hub.

    >>> guess_source("crawl/*.warc.gz"), guess_source("hf://datasets/org/name@v1")
    (('warc', {'data_files': 'crawl/*.warc.gz'}), ('hub', {'path': 'org/name', 'revision': 'v1'}))

    Raises:
        SourceError: nothing is there, or nothing that a source can be guessed for.
    """
    named = _DATASET.fullmatch(name.removeprefix(DATASETS)) if name.startswith(DATASETS) else None
    if (named := named or _PAGE.fullmatch(path_of(name))) is not None:
        return "hub", {key: value for key, value in named.groupdict().items() if value}
    is_here = not is_url(name) and os.path.exists(absolute(name))  # noqa: PTH110  # false of what is too long for a name
    is_pattern = has_pattern(name) and not is_here  # brackets may be part of a name
    is_there = is_url(name) or is_pattern or is_here
    if not is_there and REPOSITORY.fullmatch(name) and not Path(name).parent.is_dir():
        return "hub", {"path": name}
    if not is_there:
        raise SourceError(
            f"nothing is at {quoted(name)}: name a file, folder, URL or glob, a dataset of the Hub as ORG/NAME, or a "
            "source that `longcrawl sources` lists"
        )
    if is_url(name) or is_pattern or Path(absolute(name)).is_file():
        if (found := _of_files([path_of(name)])) is None and not is_pattern and is_url(name):
            return _of_folder(name, any_ending=any_ending)
        return found or "text", {"data_files": name}
    return _of_folder(name, any_ending=any_ending)


def _of_files(names: Iterable[str]) -> str | None:
    """Return the source that reads files of these names."""
    names = list(names)
    if any(has_ending(name, warc.EXTENSIONS) for name in names):
        return "warc"
    return "text" if any(has_ending(name, text.EXTENSIONS) for name in names) else None


def _of_folder(folder: str, *, any_ending: bool) -> tuple[str, dict[str, Any]]:
    if any_ending:
        return "text", {"data_dir": folder}
    names = list_tree(absolute(folder))
    if {"manifest.json", "recipe.yaml"} <= set(names):
        written = next((output for output in OUTPUTS if any(name.startswith(f"{output}/") for name in names)), "OUTPUT")
        raise SourceError(f"{quoted(folder)} is a run: name its output, {quoted(join(folder, written))}")
    endings = {Path(name).suffix for name in names}
    if "parquet.json" in names and ".parquet" in endings:  # an output, which the file describes: it has no documents
        return "text", {"data_dir": folder, "data_files": "**/*.parquet"}
    if "composed.json" in names:
        return "composed", {"data_dir": folder}
    for shards in FORMATS.loaded():
        if f"{shards}.json" in names and FORMATS[shards].suffix in endings:
            return shards, {"data_dir": folder}
    for source, pattern in (("rectangle", _RECTANGLE), ("redpajama-v2", _RPV2)):
        if any(map(pattern.fullmatch, names)):
            return source, {"data_dir": folder}
    if (found := _of_files(names)) is None:
        raise SourceError(
            f"{quoted(folder)} has no documents, by the names of its files: {count_endings(names)}. Known endings: "
            f"{spell_endings((*text.EXTENSIONS, *warc.EXTENSIONS))}{text.FORCE}. Or name a source of "
            "`longcrawl sources`, as lc.open('datatrove', data_dir=…)"
        )
    return found, {"data_dir": folder}
