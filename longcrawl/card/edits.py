"""A card that is written again and keeps what a person has changed in it.

Each generated section stands between two comments, which no page shows::

    <!-- longcrawl:funnel 0f3a5d7c9b12 -->
    …
    <!-- /longcrawl:funnel -->

The number is the beginning of the SHA-256 of the text as it was generated: a text that has another one is a person's,
and so is all that stands outside of sections. A last comment does the same for the entries of the front matter, and
names the sections, so that one that a person has removed stays away. All of that is in the card itself: it survives a
download, an upgrade of longcrawl, and whoever edits the card on the Hub.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longcrawl.card.front_matter import FRONT_MATTER, read_front_matter, yaml_block
from longcrawl.storage.structured import load_json

DIGITS = 12
_SECTION = re.compile(
    r"^<!-- longcrawl:(?P<name>[a-z]+) (?P<digest>[0-9a-f]{12}) -->\n(?P<text>.*?)^<!-- /longcrawl:(?P=name) -->$",
    re.MULTILINE | re.DOTALL,
)
_LAST = re.compile(r"^<!-- longcrawl (?P<recorded>\{.*\}) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Merged:
    """A card, and what in it is a person's."""

    text: str
    kept: tuple[str, ...]
    """Sections, and entries of the front matter as "head license", that were changed, added or removed by a person."""


def card_text(head: Mapping[str, Any], sections: Mapping[str, str]) -> str:
    """Return a card that nobody has edited; sections are Markdown by name."""
    return _join(head, [_marked(name, text) for name, text in sections.items()], head, list(sections))


def is_marked(card: str) -> bool:
    """Return whether a card has the comments by which edits are known."""
    return _LAST.search(card) is not None or _SECTION.search(card) is not None


def merge(card: str, head: Mapping[str, Any], sections: Mapping[str, str], file: str = "README.md") -> Merged:
    """Return a card with new front matter and new sections, but for what a person has edited.

    Args:
        card: as it is now.
        head: the generated front matter.
        sections: the generated sections, in order.
        file: the name of the card, for messages.

    Raises:
        FormatError: the front matter of the card is not YAML.
    """
    text = card.replace("\r\n", "\n")
    found = FRONT_MATTER.match(text)
    body = text[found.end() if found else 0 :]
    last = _LAST.search(body)
    recorded = _recorded(last["recorded"]) if last else {}
    body = _LAST.sub("", body)
    merged_head, kept = _merge_head(read_front_matter(card, file), recorded.get("head", {}), head)
    pieces: list[tuple[str | None, str]] = []
    place = 0
    for section in _SECTION.finditer(body):
        pieces.append((None, body[place : section.start()]))
        name, text, place = section["name"], section["text"], section.end()
        if _digest(text) != section["digest"]:
            pieces.append((name, section[0]))
            kept.append(name)
        elif name in sections:
            pieces.append((name, _marked(name, sections[name])))
    pieces.append((None, body[place:]))
    there = {name for name, _ in pieces if name}
    removed = [name for name in recorded.get("sections", []) if name in sections and name not in there]
    names = list(sections)
    for number, name in enumerate(names):
        if name not in there and name not in removed:
            before = [place for place, (other, _) in enumerate(pieces) if other in names[:number]]
            pieces.insert(before[-1] + 1 if before else 0, (name, _marked(name, sections[name])))
    if any(name is None and text.strip() for name, text in pieces):
        kept.append("text between sections")
    kept += [f"{name} (removed)" for name in removed]
    return Merged(_join(merged_head, [text for _, text in pieces], head, names), tuple(kept))


def _merge_head(
    now: Mapping[str, Any], digests: Mapping[str, str], head: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the entries of both, and name those that are a person's."""
    merged, kept = dict(head), []
    for name, value in now.items():
        if digests.get(name) != _digest_of(value) and head.get(name) != value:
            merged[name] = value
            kept.append(f"head {name}")
    for name in digests.keys() & head.keys() - now.keys():
        del merged[name]
        kept.append(f"head {name} (removed)")
    return merged, sorted(kept)


def _join(head: Mapping[str, Any], pieces: list[str], generated: Mapping[str, Any], names: list[str]) -> str:
    recorded = {"head": {name: _digest_of(value) for name, value in generated.items()}, "sections": names}
    body = [text for piece in pieces if (text := piece.strip("\n"))]
    return yaml_block(head) + "\n\n".join([*body, f"<!-- longcrawl {json.dumps(recorded)} -->"]) + "\n"


def _marked(name: str, text: str) -> str:
    # A recipe that talks about these comments must not end a section.
    safe = text.replace("<!-- longcrawl", "<!-- Longcrawl").replace("<!-- /longcrawl", "<!-- /Longcrawl").strip("\n")
    return f"<!-- longcrawl:{name} {_digest(safe)} -->\n{safe}\n<!-- /longcrawl:{name} -->"


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:DIGITS]


def _digest_of(value: Any) -> str:
    return _digest(json.dumps(value, sort_keys=True, default=str))


def _recorded(text: str) -> dict[str, Any]:
    """Read the last comment; where somebody has broken it, all of the front matter is a person's."""
    try:
        recorded = load_json(text)
    except ValueError:
        return {}
    if not isinstance(recorded, dict):
        return {}
    head, sections = recorded.get("head"), recorded.get("sections")
    known: dict[str, Any] = {"head": head if isinstance(head, dict) else {}, "sections": []}
    if isinstance(sections, list) and all(isinstance(each, str) for each in sections):
        known["sections"] = sections
    return known
