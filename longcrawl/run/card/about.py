"""Description, citation and licence of a run, as `datasets` shows them in the ``info`` of a dataset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longcrawl.errors import RunError
from longcrawl.run.card.citations import citations, software
from longcrawl.run.card.front_matter import facts_of
from longcrawl.run.manifest import MANIFEST, input_names, read_manifest


def about_run(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return description, citation and licence as the recipe of a run has them."""
    recipe, facts = manifest["recipe"], facts_of(manifest)
    works = [*citations(recipe, input_names(manifest)), software(manifest["versions"]["longcrawl"])]
    name = facts["pretty_name"] or recipe["name"]
    license_of = (facts["license_name"] or facts["license"], facts["license_link"])
    return {
        "description": recipe.get("about") or f"{name}, made by a recipe of longcrawl.",
        "citation": "\n\n".join([*filter(None, [facts["citation"]]), *(each.bibtex for each in works)]),
        "license": ", ".join(filter(None, license_of)),
    }


def about_output(folder: Path) -> dict[str, str] | None:
    """Return them of the run whose folder or output this is; None if there is no manifest that can be read."""
    for place in (folder, folder.absolute().parent):
        if (place / MANIFEST).is_file():
            try:
                return about_run(read_manifest(place))
            except RunError:  # The output is read without it, and verify reports it.
                return None
    return None
