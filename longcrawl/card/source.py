"""What a dataset card is written from: the folder of a run and its manifest, which may be of an earlier longcrawl."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from longcrawl.card.facts import facts_of
from longcrawl.core.results import RESULTS, Result
from longcrawl.ledger.analysis import Analysis, Lengths
from longcrawl.ledger.funnel import Funnel
from longcrawl.manifest import MissingEntry

__all__ = ["PICTURES", "CardSource", "Section", "missing_sentence", "paragraphs"]

PICTURES = {
    "funnel": "Documents kept by each stage",
    "reasons": "Removed documents, by rule",
    "lengths": "Lengths of documents",
    "domains": "Domains with most documents",
    "languages": "Languages with most documents",
}
"""What each picture shows; they lie in ``card/NAME.svg``."""


@dataclass(frozen=True)
class CardSource:
    """What a card is written from."""

    folder: Path
    manifest: Mapping[str, Any]
    pictures: Sequence[str] = ()
    """The names of those that are drawn."""

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Every field of the recipe, spelled out."""
        found: Mapping[str, Any] = self.manifest["recipe"]
        return found

    @property
    def output(self) -> Mapping[str, Any]:
        """What the writer says of its output."""
        found: Mapping[str, Any] = self.manifest["output"]
        return found

    @property
    def result(self) -> Result:
        """The facts of outputs of this format."""
        return RESULTS[self.output["format"]]

    @cached_property
    def funnel(self) -> Funnel:
        """How many documents each stage kept."""
        return Funnel.from_dict(self.manifest["funnel"])

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What a person says of the dataset."""
        return facts_of(self.manifest)

    @cached_property
    def analysis(self) -> Analysis:
        """What is in the output."""
        return Analysis.from_dict(self.manifest["analysis"])

    @property
    def source_lengths(self) -> Lengths | None:
        """Lengths of the texts as the source gave them."""
        found = self.manifest.get("source_lengths")
        return None if found is None else Lengths.from_dict(found)

    def picture(self, name: str) -> list[str]:
        """Return the picture of this name, if it is drawn."""
        return [f"![{PICTURES[name]}](card/{name}.svg)"] if name in self.pictures else []


@dataclass(frozen=True)
class Section:
    """A part of a card below a heading of its own."""

    title: str
    body: Callable[[CardSource], str]

    def __call__(self, card: CardSource) -> str:
        """Return it in Markdown; "" where there is nothing to tell.

        What a manifest of an earlier version does not hold is said in its place.
        """
        try:
            text = self.body(card)
        except MissingEntry as missing:
            text = missing_sentence(missing)
        return paragraphs(f"## {self.title}", text) if text else ""


def paragraphs(*texts: str) -> str:
    """Put an empty line between paragraphs; "" is none."""
    return "\n\n".join(text for text in texts if text)


def missing_sentence(missing: MissingEntry) -> str:
    """Report that a manifest does not hold what belongs in this place."""
    return f"Not recorded: {missing}."
