"""The dataset card that a run writes beside its output, from its manifest and its ledger alone."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml

from longcrawl.card.citations import citations, software
from longcrawl.card.counts import duplicates, edited, funnel_and_rates, lengths, places, reasons
from longcrawl.card.datasheet import datasheet
from longcrawl.card.edits import Merged, card_text, merge, read_head
from longcrawl.card.head import head_of, yaml_head
from longcrawl.card.limits import known_limits
from longcrawl.card.paths import elsewhere
from longcrawl.card.rules import head_problems
from longcrawl.card.source import CardSource, Section, missing_sentence, paragraphs
from longcrawl.display.markdown import code, fenced, plain
from longcrawl.errors import FormatError
from longcrawl.manifest import MissingEntry, input_names, writer_of
from longcrawl.storage.files import write_text

__all__ = ["CARD", "SECTIONS", "card_problems", "front_matter", "merged_card", "new_card", "write_card"]

MOST_BAD_FILES = 50

PLACE = (
    "`user/name` stands for this repository on the Hub, `hf://datasets/user/name` for its files. The path of a local "
    "copy takes the place of both; `hf download user/name --repo-type dataset --local-dir FOLDER` makes one."
)
LEDGER = 'Why each other document was removed, `load_dataset("user/name", "ledger", split="removed")` says.'
NO_CONTACT = "No contact is recorded. Questions go to whoever publishes this dataset: see the repository it came from."
NO_OPT_OUT = (
    "No way to opt out is recorded. Whoever asks for a removal may name a URL or an id; "
    "the tables say which documents these are, and a recipe made again without them leaves them out."
)


def _summary(card: CardSource) -> str:
    title = " ".join(str(card.facts["pretty_name"] or card.recipe["name"]).split())
    try:
        contents = card.result.contents(card.output)
    except MissingEntry as missing:
        contents = missing_sentence(missing)
    return paragraphs(f"# {title}", card.recipe.get("about", ""), contents)


def _load(card: CardSource) -> str:
    left = any((card.folder / "ledger").glob("*.parquet"))
    words = {"ledger": LEDGER if left else "", **card.result.card_words(card.output)}
    text = Template(card.result.card_template()).substitute(words)
    return paragraphs(PLACE, re.sub("\n{3,}", "\n\n", text).rstrip())


def _made(card: CardSource) -> str:
    manifest, recipe = card.manifest, card.recipe
    digest = f", digest `{manifest['digest']}`" if "digest" in manifest else ""
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    paths = elsewhere(recipe)
    moved = ["It names paths of the machine that ran it. On another one, append:", fenced(paths, "sh")] if paths else []
    return paragraphs(
        f"Recipe {code(recipe['name'])}, `recipe.yaml` beside this card{digest}. "
        "With the same versions and input, this makes the dataset again, byte for byte:",
        fenced("longcrawl run recipe.yaml --out NEW", "sh"),
        *moved,
        "<details><summary>recipe.yaml, every field spelled out</summary>",
        fenced(yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=120).rstrip(), "yaml"),
        "</details>",
        f"Versions: {versions}.",
    )


def _composition(card: CardSource) -> str:
    return card.result.composition(card.folder / card.result.name, card.output)


def _limits(card: CardSource) -> str:
    described = [f"- {said}{plain(cited)}{'.' if cited else ''}" for said, cited in known_limits(card.manifest)]
    return "\n".join(described)


def _broken(card: CardSource) -> str:
    found: Sequence[Mapping[str, Any]] = card.manifest["bad_files"]
    lines = ["None: every input file was read whole."]
    if found:
        lines = [f"{len(found)} input file(s) could not be read whole; `manifest.json` lists all."]
    for bad in found[:MOST_BAD_FILES]:
        lost = "an unknown number of records" if bad["records_lost"] is None else f"{bad['records_lost']:,} record(s)"
        lines.append(f"- {code(bad['file'])}: {plain(bad['reason'])} (lost: {lost})")
    rules = card.manifest.get("left_out", {})
    described = ", ".join(f"{plain(rule)} {count:,}" for rule, count in rules.items())
    left_out = [f"Records of the source that are no documents, by its rules: {described}."] if rules else []
    return paragraphs("\n".join(lines), *left_out)


def _contact(card: CardSource) -> str:
    contact, opt_out = card.facts["contact"], card.facts["opt_out"]
    return paragraphs(
        f"Contact: {contact}" if contact else NO_CONTACT,
        f"Opt-out: {opt_out}" if opt_out else NO_OPT_OUT,
    )


def _citation(card: CardSource) -> str:
    works = citations(card.recipe, input_names(card.manifest))
    made_by = software(writer_of(card.manifest))
    own = str(card.facts["citation"] or "").strip()
    said = [f"{code(each.key)} ({', '.join(map(code, each.used))})" for each in works]
    builds = f"It builds on {', '.join(said)}; `{made_by.key}` made it:" if said else f"`{made_by.key}` made it:"
    entries = fenced("\n\n".join(each.bibtex for each in (*works, made_by)), "bibtex")
    if own:
        return paragraphs("Cite this dataset as:", fenced(own, "bibtex"), builds, entries)
    return paragraphs(f"How to cite this dataset itself is not recorded. {builds}", entries)


def _datasheet(card: CardSource) -> str:
    try:
        instance = card.result.contents(card.output).splitlines()[-1].partition(". ")[0].rstrip(".") + "."
    except MissingEntry as missing:
        instance = missing_sentence(missing)
    try:
        cut = card.result.cut(card.folder / card.result.name, card.output)
    except MissingEntry:  # What an instance is was not recorded either.
        cut = ""
    return datasheet(card.manifest, card.facts, card.funnel, instance, cut)


SECTIONS: dict[str, Callable[[CardSource], str]] = {
    "summary": _summary,
    "load": Section("Load it", _load),
    "limits": Section("What to know", _limits),
    "made": Section("How it was made", _made),
    "funnel": Section("Documents kept by each stage", funnel_and_rates),
    "reasons": Section("Why documents were removed", reasons),
    "edited": Section("What was changed in documents", edited),
    "lengths": Section("Lengths", lengths),
    "places": Section("Domains and languages", places),
    "duplicates": Section("Duplicates", duplicates),
    "composition": Section("Composition", _composition),
    "broken": Section("Broken input", _broken),
    "contact": Section("Opt-out and contact", _contact),
    "citation": Section("Citation", _citation),
    "datasheet": Section("Datasheet", _datasheet),
}
"""Every section by the name that its comments give it, in the order of the card; one that gives "" is left out."""


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
