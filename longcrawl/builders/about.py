"""Description, citation, homepage and licence of a source, as `datasets` shows them in its ``info``."""

import inspect
from collections.abc import Mapping
from pathlib import Path

from longcrawl._version import __version__
from longcrawl.card.citations import citations, names_common_crawl, software
from longcrawl.core.sources import Source
from longcrawl.urls import is_url

COMMON_CRAWL_LICENSE = "common-crawl-terms-of-use, https://commoncrawl.org/terms-of-use"


def about_source(source: Source) -> dict[str, str]:
    """Return the metadata of a source, from the manifest of the run that wrote it if there is one."""
    folder = getattr(source, "data_dir", None)
    if isinstance(folder, str) and not is_url(folder):
        from longcrawl.card.about import about_output  # only outputs of runs need manifest and card

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
