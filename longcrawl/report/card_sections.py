"""The sections of a dataset card, each out of the manifest and the ledger of a run."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import yaml

from longcrawl.duplicates import Cluster, find_clusters
from longcrawl.errors import RecipeError
from longcrawl.fields import build
from longcrawl.ledger import Funnel, open_ledger
from longcrawl.markdown import code, fenced, plain, table
from longcrawl.removal_rates import RemovalRates
from longcrawl.report.analysis import Analysis, Lengths, bin_name, length_table
from longcrawl.report.card_datasheet import NOT_LOOKED_FOR, datasheet, looked_for
from longcrawl.report.card_facts import facts_of
from longcrawl.report.card_head import spoken
from longcrawl.report.card_rules import language_codes
from longcrawl.report.citations import citations, software
from longcrawl.report.values import value_tables
from longcrawl.results import RESULTS, Result
from longcrawl.run_manifest import NotTold, writer_of
from longcrawl.text import SignalRules
from longcrawl.text.filters import WORD_COUNT

__all__ = ["PICTURES", "SECTIONS", "CardSource"]

DOCUMENT_COLUMNS = 4
"""Of a table of removal rates: the stage, documents, and their two shares."""
MOST_REASONS = 40
MOST_CLUSTERS = 10
MOST_NAMES = 20
MOST_BAD_FILES = 50
MOST_DUPLICATES = 20_000_000
"""Duplicates whose clusters are looked for: their ids are held in memory."""

PLACE = (
    "`user/name` stands for this repository on the Hub, `hf://datasets/user/name` for its files. The path of a local "
    "copy takes the place of both; `hf download user/name --repo-type dataset --local-dir FOLDER` makes one."
)
LEDGER = 'Why each of the other documents left, `load_dataset("user/name", "ledger", split="removed")` says.'
SOURCES_LIMIT = "The text is that of its sources, with their licences, errors and biases; nothing here has cleared it."
LISTED = "listed_duplicates"
NO_CONTACT = "No contact is recorded. Questions go to whoever publishes this dataset: see the repository it came from."
NO_OPT_OUT = (
    "No way to opt out is recorded. Whoever asks for a removal may name a URL or an id; "
    "the tables say which documents these are, and a recipe made again without them leaves them out."
)
PICTURES = {
    "funnel": "Documents that are left after each stage",
    "reasons": "Documents that left, by rule",
    "lengths": "Lengths of documents",
    "domains": "Domains with most documents",
    "languages": "Languages with most documents",
}
"""What each picture shows; they lie in ``card/NAME.svg``."""


@dataclass(frozen=True)
class Section:
    """A part of a card below a heading of its own."""

    title: str
    body: Callable[["CardSource"], str]

    def __call__(self, card: "CardSource") -> str:
        """Give it in Markdown; "" where there is nothing to tell.

        What a manifest of an earlier version does not hold is said in its place.
        """
        try:
            text = self.body(card)
        except NotTold as missing:
            text = _untold(missing)
        return _paragraphs(f"## {self.title}", text) if text else ""


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
        """What is told of outputs of this format."""
        return RESULTS[self.output["format"]]

    @cached_property
    def funnel(self) -> Funnel:
        """How many documents were left after each stage."""
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
        """Give the picture of this name, if it is drawn."""
        return [f"![{PICTURES[name]}](card/{name}.svg)"] if name in self.pictures else []


def _summary(card: CardSource) -> str:
    title = " ".join(str(card.facts["pretty_name"] or card.recipe["name"]).split())
    try:
        contents = card.result.contents(card.output)
    except NotTold as missing:
        contents = _untold(missing)
    return _paragraphs(f"# {title}", card.recipe.get("about", ""), contents)


def _load(card: CardSource) -> str:
    template = resources.files("longcrawl.cards").joinpath(f"{card.result.name}.md").read_text("utf-8")
    left = any((card.folder / "ledger").glob("*.parquet"))
    words = {"ledger": LEDGER if left else "", **card.result.card_words(card.output)}
    return _paragraphs(PLACE, re.sub("\n{3,}", "\n\n", Template(template).substitute(words)).rstrip())


def _made(card: CardSource) -> str:
    manifest, recipe = card.manifest, card.recipe
    digest = f", digest `{manifest['digest']}`" if "digest" in manifest else ""
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    elsewhere = " --set source.data_dir=FOLDER" if recipe["source"].get("data_dir") else ""
    moved = f"Where the input lies elsewhere, append `{elsewhere.strip()}`." if elsewhere else ""
    return _paragraphs(
        f"By longcrawl {writer_of(manifest)} and the recipe {code(recipe['name'])}{digest}, which lies beside this "
        "card. With the same versions and input, this makes the dataset again, byte for byte:",
        fenced("longcrawl run recipe.yaml --out NEW", "sh"),
        moved,
        "<details><summary>recipe.yaml, every field spelled out</summary>",
        fenced(yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=120).rstrip(), "yaml"),
        "</details>",
        f"Versions: {versions}.",
    )


def _funnel(card: CardSource) -> str:
    return _paragraphs(
        *card.picture("funnel"),
        _funnel_table(card.funnel, RemovalRates.from_manifest(card.manifest)),
        "`longcrawl why RUN ID` says why one document left; `ledger/` holds the reason for each."
        if card.funnel.kept < card.funnel.documents
        else "",
    )


def _funnel_table(funnel: Funnel, rates: RemovalRates) -> str:
    """Give documents, and characters where they were counted, after each stage, beside the figures of a reference."""
    published = [rates.reference.name] if rates.reference.documents else []
    has_characters = len(rates.head) - len(published) > DOCUMENT_COLUMNS
    head = ["stage", "documents", "left here", "of all", "of the stage before"]
    head += ["characters", "of all characters"] if has_characters else []
    rows = []
    for cells, left in zip(rates, ["", *(f"{row.removed:,}" for row in funnel)], strict=True):
        name, documents, of_all, of_before, *rest = cells
        row = [name, documents, left, of_all, of_before]
        row += rest[:2] if has_characters else []
        rows.append([plain(cell) for cell in row + (rest[-1:] if published else [])])
    return table([*head, *map(plain, published)], rows, len(head) + len(published) - 1)


def _reasons(card: CardSource) -> str:
    ranked = reasons(card.funnel)
    if not ranked:
        return "None left."
    removed = sum(count for _, _, count in ranked)
    rows = [
        [plain(stage), code(rule), f"{count:,}", _percent(count, card.funnel.documents), _percent(count, removed)]
        for stage, rule, count in ranked[:MOST_REASONS]
    ]
    more = f" The {MOST_REASONS} rules that removed most, of {len(ranked)}." if len(ranked) > MOST_REASONS else ""
    said = f"{removed:,} of {card.funnel.documents:,} documents left, each by the first rule that it failed.{more}"
    shown = table(["stage", "rule", "documents", "of all", "of those that left"], rows, 3)
    return _paragraphs(*card.picture("reasons"), shown, said)


def reasons(funnel: Funnel) -> list[tuple[str, str, int]]:
    """Give stage, rule and documents that left by it, most first."""
    found = [(row.stage, rule, count) for row in funnel for rule, count in row.rules.items() if count]
    return sorted(found, key=lambda reason: (-reason[2], reason[0], reason[1]))


def _lengths(card: CardSource) -> str:
    said: list[str] = []
    before = card.source_lengths
    try:
        after = list(card.analysis.lengths)
    except NotTold as missing:
        after = []
        said.append(_untold(missing))
    same = next((each for each in after if before is not None and each.unit == before.unit), None)
    if before is None:
        said.append("How long texts were at the source was not counted: it gave none, or pages to be extracted.")
    elif same is not None:
        after.remove(same)
        said.append(_before_and_after(before, same))
    else:
        said += [f"Before, at the source, in {before.unit}:", length_table(before).markdown()]
    for each in after:
        whole = ", whole documents before they were cut" if each.unit == "tokens" else ""
        said += [f"After, of what was kept, in {each.unit}{whole}:", length_table(each).markdown()]
    return _paragraphs(*card.picture("lengths"), *said)


def _before_and_after(before: Lengths, after: Lengths) -> str:
    bins = range(min(before.bins.start, after.bins.start), max(before.bins.stop, after.bins.stop))
    here, there = (max(sum(each.documents.values()), 1) for each in (before, after))
    rows = []
    for number in bins:
        came, kept = before.documents.get(number, 0), after.documents.get(number, 0)
        rows.append([bin_name(number), f"{came:,}", _percent(came, here), f"{kept:,}", _percent(kept, there)])
    unit = before.unit
    shown = table([unit, "at the source", "of all", "kept", "of what was kept"], rows, 5)
    total = [f"{sum(each.total.values()):,} in all and {each.mean:,.0f} on average" for each in (before, after)]
    return f"{shown}\n\nAt the source {total[0]}, of what was kept {total[1]}, in {unit}."


def _places(card: CardSource) -> str:
    tables = [each.markdown() for each in (*card.analysis.place_tables(), *value_tables(card.funnel))]
    none = "The documents have neither URLs nor languages."
    pictures = [*card.picture("domains"), *card.picture("languages")]
    return _paragraphs(*pictures, *(tables or [none]), *_languages(card))


def _languages(card: CardSource) -> Iterator[str]:
    """Say what languages a recipe has named where documents do not, and which names the head of a card cannot take."""
    names = spoken(card.manifest)
    if names and not card.analysis.languages:
        yield f"The documents name no language; by the recipe it is {_listed(names)}."
    if unknown := [name for name in names if name not in language_codes(names)]:
        yield f"The head of this card leaves out {_listed(unknown)}: no language's code of ISO 639."


def _listed(names: Sequence[str]) -> str:
    shown = [code(name, 80) for name in names[:MOST_NAMES]]
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


def _duplicates(card: CardSource) -> str:
    stages = [row.stage for row in card.funnel]
    # Rows of the ledger are at most so many; how many of them are duplicates only the ledger knows.
    if card.funnel.documents - card.funnel.kept > MOST_DUPLICATES:
        return "Too many documents left to look for clusters here; `longcrawl clusters RUN` does."
    with open_ledger(card.folder) as ledger:
        found = find_clusters(ledger, stages, most=MOST_CLUSTERS)
    listed = sum(row.removed for row in card.funnel if row.stage.startswith(LISTED))
    by_list = f"{listed:,} documents left by `{LISTED}`: a list that does not say of what each is a duplicate."
    if not found.count:
        none = "No document left as the duplicate of another one." if looked_for(card.recipe) else NOT_LOOKED_FOR
        return by_list if listed else none
    shown = table(["kept", "by", "documents"], [_cluster_row(each) for each in found], 1)
    said = f"{found.summary()[0].upper()}{found.summary()[1:]}."
    return _paragraphs(
        said, shown, by_list if listed else "", "`longcrawl clusters RUN` shows how two documents of each differ."
    )


def _cluster_row(cluster: Cluster) -> list[str]:
    kept = code(cluster.kept.id, 80)
    if cluster.earlier:
        kept += " of an earlier dataset"
    elif cluster.kept.stage is not None:
        kept += f", which left at {plain(cluster.kept.stage)}"
    rules = ", ".join(f"{code(rule)} {count:,}" for rule, count in cluster.rules.items())
    return [kept, rules, f"{cluster.size:,}"]


def _composition(card: CardSource) -> str:
    return card.result.composition(card.folder / card.result.name, card.output)


def _limits(card: CardSource) -> str:
    output = card.output
    reports = [
        f"`{label}`: {plain(each)}." for label, found in card.manifest.get("reports", {}).items() for each in found
    ]
    try:
        limits = card.result.limits(output)
    except NotTold as missing:
        limits = [_untold(missing)]
    told = [*limits, *_caps(card.recipe), *reports, SOURCES_LIMIT]
    return "\n".join(f"- {each}" for each in told)


def _caps(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Say of stages that remove documents for their length where the longest books are missing."""
    for stage in recipe["stages"]:
        ((name, settings),) = stage.items()
        caps = [settings.get("max_words")]
        if name == SignalRules.name:
            try:
                told = build(SignalRules, settings, name, RecipeError).rules()
            except RecipeError:
                yield f"`{name}` has settings of another longcrawl: whether it removes long documents is not told here."
                continue
            caps += [each.bound for each in told if (each.signal, each.comparison) == (WORD_COUNT, "at_most")]
        for cap in caps:
            if cap is not None:
                yield f"`{name}` removes documents of more than {int(cap):,} words: the longest books are missing."


def _broken(card: CardSource) -> str:
    found: Sequence[Mapping[str, Any]] = card.manifest["bad_files"]
    lines = ["None: every input file was read whole."]
    if found:
        lines = [f"{len(found)} input file(s) could not be read whole; `manifest.json` lists all."]
    for bad in found[:MOST_BAD_FILES]:
        lost = "the rest of the file" if bad["records_lost"] is None else f"{bad['records_lost']:,} record(s)"
        lines.append(f"- {code(bad['file'])}: {plain(bad['reason'])} (lost: {lost})")
    rules = card.manifest.get("left_out", {})
    told = ", ".join(f"{plain(rule)} {count:,}" for rule, count in rules.items())
    left_out = [f"Records of the source that are no documents, by its rules: {told}."] if rules else []
    return _paragraphs("\n".join(lines), *left_out)


def _contact(card: CardSource) -> str:
    contact, opt_out = card.facts["contact"], card.facts["opt_out"]
    return _paragraphs(
        f"Contact: {contact}" if contact else NO_CONTACT,
        f"Opt-out: {opt_out}" if opt_out else NO_OPT_OUT,
    )


def _citation(card: CardSource) -> str:
    works = citations(card.recipe, card.manifest.get("inputs", {}))
    made_by = software(writer_of(card.manifest))
    own = str(card.facts["citation"] or "").strip()
    said = [f"{code(each.key)} ({', '.join(map(code, each.used))})" for each in works]
    builds = f"It builds on {', '.join(said)}; `{made_by.key}` made it:" if said else f"`{made_by.key}` made it:"
    entries = fenced("\n\n".join(each.bibtex for each in (*works, made_by)), "bibtex")
    if own:
        return _paragraphs("Cite this dataset as:", fenced(own, "bibtex"), builds, entries)
    return _paragraphs(f"How to cite this dataset itself is not recorded. {builds}", entries)


def _datasheet(card: CardSource) -> str:
    try:
        instance = card.result.contents(card.output).splitlines()[-1]
    except NotTold as missing:
        instance = _untold(missing)
    return datasheet(card.manifest, card.facts, card.funnel, instance)


SECTIONS: dict[str, Callable[[CardSource], str]] = {
    "summary": _summary,
    "load": Section("Load it", _load),
    "limits": Section("What to know", _limits),
    "made": Section("How it was made", _made),
    "funnel": Section("What is left after each stage", _funnel),
    "reasons": Section("Why documents left", _reasons),
    "lengths": Section("Lengths", _lengths),
    "places": Section("Domains and languages", _places),
    "duplicates": Section("Duplicates", _duplicates),
    "composition": Section("Composition", _composition),
    "broken": Section("Broken input", _broken),
    "contact": Section("Opt-out and contact", _contact),
    "citation": Section("Citation", _citation),
    "datasheet": Section("Datasheet", _datasheet),
}
"""Every section by the name that its comments give it, in the order of the card; one that gives "" is left out."""


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _untold(missing: NotTold) -> str:
    return f"This cannot be told: {missing}."


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"
