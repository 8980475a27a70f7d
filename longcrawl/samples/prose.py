"""Generated prose, and pages as a crawl has them: good ones, copies, adverts, lists, other languages.

The same seed makes the same pages on every machine. All words and patterns are our own.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

_THINGS = (
    "harbour", "kitchen", "library", "garden", "mill", "road", "letter", "engine", "field", "school", "market",
    "bridge", "winter", "journal", "lamp", "orchard", "river", "station", "teacher", "sailor", "printer", "map",
    "clock", "barn", "valley", "theatre", "boat", "council", "museum", "bakery", "forest", "ledger", "window",
    "storm", "village", "choir",
)  # fmt: skip
_KINDS = (
    "old", "quiet", "narrow", "useful", "distant", "early", "familiar", "careful", "heavy", "bright", "ordinary",
    "slow", "broken", "public", "patient", "northern", "empty", "modest", "strange", "busy", "cold", "honest", "open",
    "small",
)  # fmt: skip
_DEEDS = (
    "described", "followed", "repaired", "remembered", "measured", "opened", "painted", "visited", "counted",
    "carried", "watched", "changed", "reached", "studied", "planned", "explained", "crossed", "finished", "recorded",
    "shared", "avoided", "improved", "noticed", "collected",
)  # fmt: skip
_PEOPLE = (
    "the teacher", "her brother", "a visitor", "the owner", "our neighbour", "the committee", "a young engineer",
    "they", "the harbour master", "my grandmother", "one of the clerks", "the editor", "two students", "a farmer",
    "the crew",
)  # fmt: skip
_TIMES = (
    "in the morning", "before the rain", "last year", "every other week", "after the meeting", "for a long time",
    "without any help", "at the end of the season", "during the repairs", "on most days", "since then", "by hand",
)  # fmt: skip
_JOINTS = ("and", "but", "because", "while", "although", "so")
_PATTERNS = (
    "{Who} {did} the {kind} {thing} {time}, {joint} {who} {did} the {thing}.",
    "The {thing} of the {kind} {thing} was {kind}, {joint} {who} {did} it {time}.",
    "{Time}, {who} {did} a {kind} {thing} that {who} had {did}.",
    "It is said that {who} {did} the {thing} with a {kind} {thing}, {joint} nobody {did} the {kind} {thing}.",
    "What {who} {did} {time} was to be the {kind} {thing} that we have {did} here.",
    "From the {thing} to the {thing} there are {number} steps, {joint} the {kind} one was {did} {time}.",
    "{Who} had no {kind} {thing} {time}; {who} {did} the {thing} of another {thing}.",
)
_DORF = (
    "Das {ding} war {art}, und {wer} ging {wann} zum {ding} zurück.",
    "Im {ding} fand {wer} {wann} ein {art}es {ding}, das niemand kannte.",
    "Wenn {wer} {wann} an das {ding} dachte, blieb es {art} und still.",
)
_GERMAN = {
    "ding": ("Boot", "Dorf", "Haus", "Feld", "Buch", "Fenster", "Museum", "Schiff", "Werkzeug", "Theater"),
    "art": ("alt", "klein", "leer", "ruhig", "schön", "schwer", "fremd", "schmal"),
    "wer": ("die Lehrerin", "der Nachbar", "ein Kind", "meine Schwester", "der Müller"),
    "wann": ("am Morgen", "im Winter", "nach dem Regen", "jeden Tag", "vor der Ernte"),
}


def sentence(chance: random.Random) -> str:
    """Return an English sentence of 12 to 25 words."""
    pattern = chance.choice(_PATTERNS)
    while "{" in pattern:
        name = pattern[pattern.index("{") + 1 : pattern.index("}")]
        lists = {"who": _PEOPLE, "did": _DEEDS, "kind": _KINDS, "thing": _THINGS, "time": _TIMES, "joint": _JOINTS}
        word = str(chance.randrange(3, 900)) if name == "number" else chance.choice(lists[name.lower()])
        pattern = pattern.replace(f"{{{name}}}", word[:1].upper() + word[1:] if name[0].isupper() else word, 1)
    return pattern


def prose(chance: random.Random, words: int) -> str:
    """Return paragraphs of at least so many words."""
    paragraphs = []
    while words > 0:
        paragraphs.append(" ".join(sentence(chance) for _ in range(chance.randrange(3, 8))))
        words -= paragraphs[-1].count(" ") + 1
    return "\n".join(paragraphs)


def german(chance: random.Random, sentences: int) -> str:
    """Return so many German sentences."""
    return " ".join(
        chance.choice(_DORF).format(**{name: chance.choice(words) for name, words in _GERMAN.items()})
        for _ in range(sentences)
    )


@dataclass(frozen=True)
class Page:
    """A page of a small crawl."""

    url: str
    text: str
    language: str = "en"


def pages(seed: int, good: int) -> Iterator[Page]:
    """Yield pages: ``good`` of plain prose, and for every ten of them about six that a filter should find."""
    chance = random.Random(seed)  # noqa: S311  # a seed makes the same pages everywhere
    kept = [
        Page(f"https://site{number % 9}.example/{number}", prose(chance, chance.randrange(90, 900)))
        for number in range(good)
    ]
    yield from kept
    for number, page in enumerate(kept[: good // 10]):
        yield Page(f"{page.url}?utm_source=mail", page.text)
        yield Page(f"https://mirror.example/{number}", page.text)
        yield Page(f"https://quotes.example/{number}", edited(chance, page.text, chance.uniform(0.005, 0.2)))
        yield Page(f"https://shop{number}.example/terms", _terms(f"Shop Number {chance.randrange(100, 1000)}"))
        yield Page(f"https://dorf.example/{number}", german(chance, 40), "de")
        yield Page(f"https://site{number % 9}.example/bad/{number}", _bad(chance, number))


def edited(chance: random.Random, text: str, share: float) -> str:
    """Return a text with a share of its words exchanged."""
    lines = [
        [chance.choice(_THINGS) if chance.random() < share else word for word in line.split(" ")]
        for line in text.split("\n")
    ]
    return "\n".join(" ".join(line) for line in lines)


def _terms(shop: str) -> str:
    clauses = [prose(random.Random(clause), 60) for clause in range(5)]  # noqa: S311  # the same in every shop
    return "\n".join(f"{clause} This is what {shop} asks of you." for clause in clauses)


def _bad(chance: random.Random, number: int) -> str:
    """Return a page that quality rules remove, of six kinds in turn."""
    line = sentence(chance)
    return (
        "\n".join([line] * 30),
        "\n".join(f"• {chance.choice(_KINDS)} {chance.choice(_THINGS)}" for _ in range(80)),
        " ".join(f"#{chance.choice(_THINGS)} {chance.choice(_KINDS)}" for _ in range(120)),
        "\n".join(f"{sentence(chance)[:40]}..." for _ in range(40)),
        f"Sign in\n{line}\n12 likes\nRead more...",
        "\n".join(sentence(chance).upper() for _ in range(12)),
    )[number % 6]
