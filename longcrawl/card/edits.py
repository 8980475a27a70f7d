"""A card that is written again and keeps what a person has changed in it.

Each generated section stands between two comments, which no page shows::

    <!-- longcrawl:funnel 0f3a5d7c9b12 -->
    …
    <!-- /longcrawl:funnel -->

The number is the beginning of the SHA-256 of the text as it was generated: a text that has another one is a person's,
and so is all that stands outside of sections. A last comment does the same for the entries of the head, and names the
sections, so that one that a person has removed stays away. All of that is in the card itself: it survives a download,
an upgrade of longcrawl, and whoever edits the card on the Hub.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from longcrawl.card.head import yaml_head
from longcrawl.errors import FormatError
from longcrawl.storage.structured import load_json, load_yaml

__all__ = ["Merged", "card_text", "is_marked", "merge", "read_head"]

DIGITS = 12
_SECTION = re.compile(
    r"^<!-- longcrawl:(?P<name>[a-z]+) (?P<digest>[0-9a-f]{12}) -->\n(?P<text>.*?)^<!-- /longcrawl:(?P=name) -->$",
    re.MULTILINE | re.DOTALL,
)
_HEAD = re.compile(r"\A\s*---[ \t]*\n(?P<head>.*?)^---[ \t]*$\n?", re.MULTILINE | re.DOTALL)
"""As the Hub finds it: blank lines before it, and blanks behind the dashes, are allowed."""
_LAST = re.compile(r"^<!-- longcrawl (?P<recorded>\{.*\}) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Merged:
    """A card, and what in it is a person's."""

    text: str
    kept: tuple[str, ...]
    """Sections, and entries of the head as "head license", that were changed, added or removed by a person."""


def card_text(head: Mapping[str, Any], sections: Mapping[str, str]) -> str:
    """Return a card that nobody has edited; sections are Markdown by name."""
    return _join(head, [_marked(name, text) for name, text in sections.items()], head, list(sections))


def is_marked(card: str) -> bool:
    """Return whether a card has the comments by which edits are known."""
    return _LAST.search(card) is not None or _SECTION.search(card) is not None


def read_head(card: str, name: str = "README.md") -> dict[str, Any]:
    """Return the entries of the head of a card; none where it has no head. ``name`` is that of its file, for messages.

    Raises:
        FormatError: it is not YAML.

    """
    text = card.replace("\r\n", "\n")
    found = _HEAD.match(text)
    return _yaml(found["head"], name, text.count("\n", 0, found.start("head"))) if found else {}


def merge(card: str, head: Mapping[str, Any], sections: Mapping[str, str], file: str = "README.md") -> Merged:
    """Return a card with a new head and new sections, but for those that a person has edited.

    Args:
        card: as it is now.
        head: the entries of the generated head.
        sections: the generated sections, in order.
        file: the name of the card, for messages.

    Raises:
        FormatError: the head of the card is not YAML.

    """
    found = _HEAD.match(card.replace("\r\n", "\n"))
    body = card.replace("\r\n", "\n")[found.end() if found else 0 :]
    last = _LAST.search(body)
    recorded = _told(last["recorded"]) if last else {}
    body = _LAST.sub("", body)
    merged_head, kept = _merge_head(read_head(card, file), recorded.get("head", {}), head)
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
    return yaml_head(head) + "\n\n".join([*body, f"<!-- longcrawl {json.dumps(recorded)} -->"]) + "\n"


def _marked(name: str, text: str) -> str:
    # A recipe that talks about these comments must not end a section.
    safe = text.replace("<!-- longcrawl", "<!-- Longcrawl").replace("<!-- /longcrawl", "<!-- /Longcrawl").strip("\n")
    return f"<!-- longcrawl:{name} {_digest(safe)} -->\n{safe}\n<!-- /longcrawl:{name} -->"


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:DIGITS]


def _digest_of(value: Any) -> str:
    return _digest(json.dumps(value, sort_keys=True, default=str))


def _told(text: str) -> dict[str, Any]:
    """Read the last comment; one that somebody has broken says nothing, and all of the head is a person's then."""
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


def _yaml(text: str, file: str, above: int) -> dict[str, Any]:
    """Read a head with so many lines above it."""
    try:
        found = load_yaml(text)
    except yaml.YAMLError as broken:
        mark, said = getattr(broken, "problem_mark", None), getattr(broken, "problem", None)
        place = "" if mark is None else f", line {mark.line + above + 1}, column {mark.column + 1}"
        said = said or " ".join(str(broken).split())
        raise FormatError(f"{file}{place}: the head of the card is not YAML ({said}); fix it there") from broken
    if not isinstance(found, dict | None):
        raise FormatError(f"the head of {file} holds no entries: fix it between its lines of dashes")
    return {str(name): value for name, value in (found or {}).items()}
