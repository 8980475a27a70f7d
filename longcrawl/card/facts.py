"""What only a person can say of a dataset: the part of a recipe under ``card``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longcrawl.card.citations import bibtex_problem
from longcrawl.card.rules import head_problems, language_codes
from longcrawl.core.fields import check_fields, plain_settings
from longcrawl.core.results import RESULTS
from longcrawl.errors import RecipeError
from longcrawl.ledger.funnel import Funnel
from longcrawl.manifest import MissingEntry

__all__ = ["CardFacts", "documents_of", "facts_of", "instances_of"]


@dataclass(frozen=True)
class CardFacts:
    """What only a person can say of a dataset: the part of a recipe under ``card``."""

    pretty_name: str | None = None
    license: str = "other"
    """As the Hub calls it; ``other`` with a name and a link of its own."""
    license_name: str | None = None
    license_link: str | None = None
    languages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source_datasets: tuple[str, ...] = ()
    """Datasets of the Hub that this one comes from, or "original"."""
    contact: str | None = None
    """Whom to ask, in Markdown."""
    opt_out: str | None = None
    """How somebody has a document taken out, in Markdown."""
    citation: str | None = None
    """How the dataset is cited: one or several entries of BibTeX."""

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)
        codes = language_codes(self.languages)
        languages = [codes.get(name, name) for name in self.languages]
        recorded = {"license": self.license, "source_datasets": self.source_datasets, "language": languages}
        if problems := head_problems(recorded):
            raise RecipeError(problems[0])
        if self.citation is not None and (problem := bibtex_problem(self.citation)):
            raise RecipeError(f"citation {problem}")


def facts_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run's recipe under ``card``; those unknown to an earlier longcrawl are empty."""
    return {**plain_settings(CardFacts()), **manifest["recipe"].get("card", {})}


def documents_of(manifest: Mapping[str, Any]) -> int:
    """Count the documents of a run's output; by its funnel where an earlier longcrawl described outputs otherwise."""
    output = manifest["output"]
    try:
        return RESULTS[output["format"]].documents(output)
    except MissingEntry:
        return Funnel.from_dict(manifest["funnel"]).kept


def instances_of(manifest: Mapping[str, Any]) -> tuple[str, int]:
    """Describe what the rows of a run's output are, and how many: documents, or entries or samples made of them."""
    splits = manifest["output"].get("splits")
    for what in ("entries", "samples"):
        if isinstance(splits, Mapping) and splits and all(what in recorded for recorded in splits.values()):
            return what, sum(recorded[what] for recorded in splits.values())
    return "documents", documents_of(manifest)
