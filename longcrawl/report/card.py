"""The dataset card that a run writes beside its output, from its manifest and its ledger alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longcrawl.errors import RecipeError
from longcrawl.fields import check_fields
from longcrawl.files import write_text
from longcrawl.report.card_edits import Merged, card_text, merge
from longcrawl.report.card_head import head_of, head_problems, language_codes, yaml_head
from longcrawl.report.card_sections import SECTIONS, CardSource

__all__ = ["CARD", "CardFacts", "front_matter", "merged_card", "write_card"]

CARD = "README.md"


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

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)
        told = {"license": self.license, "source_datasets": self.source_datasets}
        told |= {"language": language_codes(self.languages)}
        if problems := head_problems(told):
            raise RecipeError(problems[0])


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write ``README.md`` for a run."""
    write_text(folder / CARD, card_text(head_of(folder, manifest), _sections(folder, manifest, ())))


def merged_card(card: str, folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str]) -> Merged:
    """Give the card of a run, written anew but for what a person has changed in ``card``.

    Raises:
        FormatError: its head is not YAML.

    """
    return merge(card, head_of(folder, manifest), _sections(folder, manifest, pictures))


def front_matter(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Give the YAML head that the Hub reads; its ``configs`` name only files that plain `datasets` loads."""
    return yaml_head(head_of(folder, manifest))


def _sections(folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str]) -> dict[str, str]:
    source = CardSource(folder, manifest, pictures)
    return {name: text for name, section in SECTIONS.items() if (text := section(source))}
