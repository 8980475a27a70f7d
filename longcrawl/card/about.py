"""Description, citation, homepage and licence of a dataset, as `datasets` shows them in its ``info``."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longcrawl._version import __version__
from longcrawl.card.citations import citations, names_common_crawl, software
from longcrawl.card.front_matter import facts_of
from longcrawl.core.sources import Source
from longcrawl.errors import RunError
from longcrawl.manifest import MANIFEST, input_names, read_manifest, writer_of
from longcrawl.urls import is_url

COMMON_CRAWL_LICENSE = "common-crawl-terms-of-use, https://commoncrawl.org/terms-of-use"


def about_source(source: Source) -> dict[str, str]:
    """Return the metadata of a source, from the manifest of the run that wrote it if there is one."""
    if (manifest := _manifest_of(source)) is not None:
        return about_run(manifest) | {"homepage": source.homepage}
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


def about_run(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return description, citation and licence as the recipe of a run has them."""
    recipe, facts = manifest["recipe"], facts_of(manifest)
    works = [*citations(recipe, input_names(manifest)), software(writer_of(manifest))]
    name = facts["pretty_name"] or recipe["name"]
    license_of = (facts["license_name"] or facts["license"], facts["license_link"])
    return {
        "description": recipe.get("about") or f"{name}, made by a recipe of longcrawl.",
        "citation": "\n\n".join([*filter(None, [facts["citation"]]), *(each.bibtex for each in works)]),
        "license": ", ".join(filter(None, license_of)),
    }


def _homepage(source: Source, *, common_crawl: bool) -> str:
    if source.name == "hub":
        return f"https://huggingface.co/datasets/{getattr(source, 'path', '')}"
    return "https://commoncrawl.org" if common_crawl else source.homepage


def _manifest_of(source: Source) -> Mapping[str, Any] | None:
    """Return the manifest beside or above the folder that a source reads; None if there is none that can be read."""
    folder = getattr(source, "data_dir", None)
    if not isinstance(folder, str) or is_url(folder):
        return None
    for place in (Path(folder), Path(folder).absolute().parent):
        if (place / MANIFEST).is_file():
            try:
                return read_manifest(place)
            except RunError:  # The output is read without it, and verify reports it.
                return None
    return None


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
