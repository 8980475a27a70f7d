"""The dataset card that a run writes beside its output, from its manifest and its ledger alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longcrawl.card.edits import Merged, card_text, merge, read_head
from longcrawl.card.head import head_of, yaml_head
from longcrawl.card.rules import head_problems
from longcrawl.card.sections import SECTIONS
from longcrawl.card.source import CardSource
from longcrawl.errors import FormatError
from longcrawl.storage.files import write_text

__all__ = ["CARD", "card_problems", "front_matter", "merged_card", "new_card", "write_card"]

CARD = "README.md"


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write ``README.md`` for a run."""
    write_text(folder / CARD, new_card(folder, manifest))


def new_card(folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """Return the card of a run that nobody has edited."""
    return card_text(head_of(folder, manifest), _sections(folder, manifest, pictures))


def merged_card(card: str, folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str]) -> Merged:
    """Return the card of a run, written again but for what a person has changed in ``card``.

    Raises:
        FormatError: its head is not YAML.

    """
    return merge(card, head_of(folder, manifest), _sections(folder, manifest, pictures), str(folder / CARD))


def card_problems(card: str) -> list[str]:
    """Describe what the Hub would refuse in the head of a card, a sentence each, without asking it."""
    try:
        return head_problems(read_head(card))
    except FormatError as broken:
        return [str(broken)]


def front_matter(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Return the YAML head that the Hub reads; its ``configs`` name only files that plain `datasets` loads."""
    return yaml_head(head_of(folder, manifest))


def _sections(folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str]) -> dict[str, str]:
    source = CardSource(folder, manifest, pictures)
    return {name: text for name, section in SECTIONS.items() if (text := section(source))}
