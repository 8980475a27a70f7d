"""Sections of a dataset card, and its datasheet.

They are written from the folder of a run and its manifest.

The form is that of Gebru et al., "Datasheets for Datasets", 2018: seven parts, questions and answers. They are in
cards/datasheet.md; this module fills in what a manifest knows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from longcrawl.core.display import Cell, Code, Column, Table, code, counted, percent, plain
from longcrawl.core.funnel import Funnel, RemovalRates, value_tables
from longcrawl.core.ledger import (
    EDITS,
    LEDGER,
    Cluster,
    contaminated_tables,
    find_clusters,
    open_ledger,
    repeated_spans,
)
from longcrawl.core.outputs import RESULTS, Result, read_template
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.core.registry import build
from longcrawl.core.stages import STAGES, Survey, label_stages
from longcrawl.errors import RecipeError, shortened
from longcrawl.io.stored_tables import read_footers
from longcrawl.run.analysis import Analysis, Lengths, bin_name, length_table
from longcrawl.run.card.front_matter import documents_of, facts_of, instances_of, language_codes, spoken
from longcrawl.run.manifest import TOKEN_TABLES
from longcrawl.text import SignalRules
from longcrawl.text.filters import WORD_COUNT

NOT_RECORDED = "Not recorded."
NOT_LOOKED_FOR = "Duplicates were not looked for: the recipe has no stage that does."
LISTED = "listed_duplicates"
PERSONAL_DATA = "personal_data"
NAMES_NO_OTHER = (LISTED, "exact_substring")
"""Stages that look for duplicates, and do not say of what a document is one."""
TAKES_OUT = {
    "extract_text": "all of a page but its main text",
    "line_corrections": "lines",
    "c4_quality": "lines",
    "exact_substring": "passages that occur elsewhere too",
    "decontaminate": "passages of evaluation sets",
    "personal_data": "personal data, for which a word stands",
    "truncate": "what follows after a number of tokens",
}
"""What stages take out of documents that stay."""


def datasheet(
    manifest: Mapping[str, Any], facts: Mapping[str, Any], funnel: Funnel, instance: str, cut: str = ""
) -> str:
    """Return the seven parts in Markdown.

    Args:
        manifest: that of a run.
        facts: what a person says of the dataset.
        funnel: that of the run.
        instance: what an instance is, a sentence.
        cut: how much of documents its output does not hold, a sentence; "" where that is not known or nothing.
    """
    recipe, stages = manifest["recipe"], ", ".join(code(row.stage) for row in funnel)
    template = read_template("datasheet.md")
    return Template(template.rstrip("\n")).substitute(
        purpose=recipe.get("about") or NOT_RECORDED,
        instance=instance,
        instances=_instances(manifest),
        read=counted(funnel.documents, "document"),
        share=percent(funnel.kept / max(funnel.documents, 1)),
        columns=_columns(manifest),
        missing=_missing(manifest, funnel, cut),
        relations=_relations(manifest, funnel),
        splits=_splits(manifest["output"]),
        redundancy=_redundancy(recipe),
        confidential=_confidential(recipe, funnel),
        damage=_damage(manifest),
        source=_source(manifest),
        stages=f"{stages}, in this order, with the settings of the recipe above." if stages else "Nothing.",
        ledger=" The reason for each removed document is in `ledger/`." if funnel.kept < funnel.documents else "",
        version=manifest["versions"]["longcrawl"],
        licence=_licence(facts),
        contact=facts["contact"] or NOT_RECORDED,
        opt_out=facts["opt_out"] or NOT_RECORDED,
    )


def looked_for(recipe: Mapping[str, Any]) -> list[str]:
    """Name the stages of a recipe that look for duplicates."""
    return [name for stage in recipe["stages"] for name in stage if _deduplicates(name)]


def _deduplicates(name: str) -> bool:
    stage = STAGES.find(name) if ":" in name else STAGES.get(name)
    if stage is not None and issubclass(stage, Survey):
        return not stage.orders
    return name == LISTED


def _instances(manifest: Mapping[str, Any]) -> str:
    what, count = instances_of(manifest)
    documents = counted(documents_of(manifest), "document")
    if what == "documents":
        return f"{documents}."
    one = {"entries": "entry", "samples": "sample"}[what]
    return f"{counted(count, one, what)}, of {documents}."


def _columns(manifest: Mapping[str, Any]) -> str:
    columns = {"its URL": "domains", "its language": "languages"}
    known = [name for name, each in columns.items() if any(manifest["analysis"][each])]
    said = ", ".join(["its id", *known])
    return f"I{said[1:]}." if instances_of(manifest)[0] == "documents" else f"Of each document {said}."


def _missing(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> str:
    analysis = manifest["analysis"]
    languages = analysis["languages"]
    counts = {
        "a URL": analysis["without_url"],
        # Where no document names one, languages are not recorded at all.
        "a language": languages.get("", 0) if any(languages) else 0,
    }
    known = [f"{counted(count, 'document')} without {what}" for what, count in counts.items() if count]
    said = [cut, *([f"{', '.join(known)}."] if known else []), *_taken_out(manifest, funnel, cut)]
    return " ".join(each for each in said if each) or "Nothing that is known of."


def _confidential(recipe: Mapping[str, Any], funnel: Funnel) -> str:
    """Describe which personal data were looked for, and what became of them."""
    names = [name for stage in recipe["stages"] for name in stage]
    settings = [each for stage in recipe["stages"] for each in stage.values()]
    edits = {row.stage: row.edits for row in funnel}
    said = []
    for label, name, each in zip(label_stages(names), names, settings, strict=True):
        if name == PERSONAL_DATA:
            changed = edits.get(label)
            places = sum(rule.places for rule in changed.rules.values()) if changed else 0
            done = {"mask": "were replaced", "tag": "are tagged", "drop": "made documents leave"}[each["policy"]]
            said.append(f"{code(label)} looked for {', '.join(each['kinds'])}: {counted(places, 'place')} {done}.")
    if not said:
        return "Not recorded. Nobody has looked for it, nor for names and addresses."
    return " ".join([*said, "Names and postal addresses were not looked for."])


def _taken_out(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> list[str]:
    """List what stages took out of documents, and how much."""
    names = [name for stage in manifest["recipe"]["stages"] for name in stage]
    settings = [each for stage in manifest["recipe"]["stages"] for each in stage.values()]
    edits = {row.stage: row.edits for row in funnel}
    said: dict[str, list[str]] = {"": [], "; how much is not counted": []}
    for label, name, each in zip(label_stages(names), names, settings, strict=True):
        takes = "mask" if name == PERSONAL_DATA else "cut"
        if name not in TAKES_OUT or each.get("policy", takes) != takes or (cut and name == "truncate"):
            continue
        taken = f"by {code(label)} {TAKES_OUT[name]}"
        if name == "extract_text":
            said["; how much is not counted"].append(taken)
        elif (found := edits.get(label)) is not None:
            said[""].append(f"{taken} ({found.removed:,} {found.unit} of {counted(found.documents, 'document')})")
    return [f"Stages took out of documents: {', '.join(each)}{how}." for how, each in said.items() if each]


def _relations(manifest: Mapping[str, Any], funnel: Funnel) -> str:
    """Return whether the ledger names for removed documents those that they duplicate."""
    recipe = manifest["recipe"]
    names = [name for stage in recipe["stages"] for name in stage]
    removed = {row.stage: row.removed for row in funnel}
    left = {name for label, name in zip(label_stages(names), names, strict=True) if removed.get(label)}
    found = left.intersection(looked_for(recipe))
    if found.difference(NAMES_NO_OTHER):
        return "Only which documents were removed as duplicates of which, in `ledger/`."
    if LISTED in found:
        return f"No: {code(LISTED)} does not say of which document one is a duplicate."
    return "No."


def _splits(output: Mapping[str, Any]) -> str:
    found = sorted(output.get("splits") or output.get("shapes") or {}, reverse=True)
    held_out = [f"`{name}`" for name in found if name != "train"]
    if not held_out:
        return "No: all is `train`."
    return f"`train` to train on, {', '.join(held_out)} held out by one draw of documents."


def _redundancy(recipe: Mapping[str, Any]) -> str:
    found = looked_for(recipe)
    if not found:
        return NOT_LOOKED_FOR
    return f"Duplicates were looked for by {', '.join(map(code, found))}; the kept documents may still be similar."


def _damage(manifest: Mapping[str, Any]) -> str:
    found = manifest["bad_files"]
    return f"{counted(len(found), 'input file')} could not be read whole." if found else "All input was read whole."


def _source(manifest: Mapping[str, Any]) -> str:
    inputs = manifest["inputs"]
    files = sum(map(len, inputs.values()))
    counts = [counted(files, "file")] * bool(files) + [counted(len(inputs), "part")] * bool(inputs)
    read = f", out of {' in '.join(counts)}, which `manifest.json` names" if inputs else ""
    return f"{code(manifest['recipe']['source']['builder'])}{read}"


def _licence(facts: Mapping[str, Any]) -> str:
    name = facts["license_name"] or facts["license"]
    link = f" (<{facts['license_link']}>)" if facts["license_link"] else ""
    return NOT_RECORDED if name == "other" else f"{plain(name)}{link}."


PICTURES = {
    "funnel": "Documents kept by each stage",
    "reasons": "Removed documents, by rule",
    "lengths": "Lengths of documents",
    "domains": "Domains with most documents",
    "languages": "Languages with most documents",
}
"""What each picture shows; they lie in ``card/NAME.svg``."""


TOKEN_COLUMNS = {
    "beginning": "the text of its first tokens",
    "text": "decoded from `input_ids`; of a rolled row from where its document begins",
    "roll": "by how many tokens `input_ids` are rolled: a row may start in the middle of its document",
    "overlap": "how many tokens a window begins with that the one before ended with; no loss is due on them",
    "capacity": "of its bucket",
    "seq_lengths": "tokens of each piece of a sample, with those joined to it: attention and positions begin again",
    "n_tokens": "of `input_ids`",
    "loss_mask": "for each token, false where no loss is due",
}
"""Columns of tables of tokens that need words."""


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
        """Return it in Markdown; "" where there is nothing to tell."""
        text = self.body(card)
        return paragraphs(f"## {self.title}", text) if text else ""


def token_tables(card: CardSource) -> str:
    """Describe how the tables of tokens load, their columns and how large they are; "" if there are none."""
    tables = sorted((card.folder / TOKEN_TABLES).glob("*.parquet"))
    if not tables:
        return ""
    text = read_template("tokens.md").rstrip()
    columns = read_footers(tables[:1])[0].schema.to_arrow_schema().names
    about = [f"- `{name}`: {TOKEN_COLUMNS[name]}" for name in columns if name in TOKEN_COLUMNS]
    return paragraphs(text, "\n".join(about), _sizes(card.manifest, TOKEN_TABLES, card.result.name))


def _sizes(manifest: Mapping[str, Any], *folders: str) -> str:
    sizes = [(folder, [entry["bytes"] for entry in _below(manifest, folder)]) for folder in folders]
    said = [f"`{folder}/` has {sum(found):,} bytes in {counted(len(found), 'file')}" for folder, found in sizes]
    return f"{'; '.join(said)}."


def _below(manifest: Mapping[str, Any], folder: str) -> list[Any]:
    return [entry for name, entry in manifest.get("files", {}).items() if name.startswith(f"{folder}/")]


def paragraphs(*texts: str) -> str:
    """Put an empty line between paragraphs; "" is none."""
    return "\n\n".join(text for text in texts if text)


_count, _share = partial(Column, kind="count"), partial(Column, kind="share")
PERCENT = "\u00a0%"
"""No line of a narrow cell begins with it."""
LONGEST_ID = 80
MOST_REASONS = 40
MOST_CLUSTERS = 10
MOST_NAMES = 20
MOST_SPANS = 10
MOST_DUPLICATES = 20_000_000
"""Duplicates whose clusters are looked for: their ids are held in memory."""


def funnel_and_rates(card: CardSource) -> str:
    """Return documents and characters after each stage."""
    return paragraphs(
        *card.picture("funnel"),
        _funnel_table(card.funnel, RemovalRates.from_manifest(card.manifest)),
        "`longcrawl why RUN ID` says why a document was removed; `ledger/` holds the reason for each."
        if card.funnel.kept < card.funnel.documents
        else "",
    )


def _funnel_table(funnel: Funnel, rates: RemovalRates) -> str:
    """Return documents, and characters where they were counted, after each stage, beside the figures of a reference."""
    stage, kept, of_all, of_before, *rest = rates.columns
    columns = [stage, kept, Column("removed", "count"), of_all, of_before._replace(title="of the stage before")]
    if rates.has_characters:
        characters, of_all_characters, _, *rest = rest
        columns += [characters, of_all_characters._replace(title="of all characters")]
    rows: list[list[Cell]] = []
    for (name, documents, *shares), removed in zip(rates, [None, *(row.removed for row in funnel)], strict=True):
        if rates.has_characters:
            del shares[4]
        rows.append([name, documents, removed, *shares])
    return Table([*columns, *rest], rows).markdown(PERCENT)


def reasons(card: CardSource) -> str:
    """Return the rules that removed most documents."""
    ranked, documents = ranked_rules(card.funnel), card.funnel.documents
    if not ranked:
        return "No document was removed."
    removed = sum(count for _, _, count in ranked)
    columns = [Column("stage"), Column("rule"), _count("documents"), _share("of all"), _share("of all removed")]
    rows: list[list[Cell]] = [
        [stage, Code(rule), count, count / max(documents, 1), count / removed]
        for stage, rule, count in ranked[:MOST_REASONS]
    ]
    more = f" The {MOST_REASONS} rules that removed most, of {len(ranked)}." if len(ranked) > MOST_REASONS else ""
    said = f"{removed:,} of {documents:,} documents were removed, each by the first rule that it failed.{more}"
    return paragraphs(*card.picture("reasons"), Table(columns, rows).markdown(PERCENT), said)


def edited(card: CardSource) -> str:
    """Return what stages changed in documents; "" where they changed nothing."""
    changed = [(row.stage, row.edits) for row in card.funnel if row.edits is not None]
    rows: list[list[Cell]] = [
        [stage, Code(rule), edits.unit, counts.places, counts.touched, counts.removed]
        for stage, edits in changed
        for rule, counts in edits.rules.items()
    ]
    if not rows:
        return ""
    columns = [*map(Column, ("stage", "rule", "unit")), *map(_count, ("places", "changed", "fewer now"))]
    said = [f"{code(stage)} {edits.documents:,}" for stage, edits in changed]
    return paragraphs(
        Table(columns, rows).markdown(),
        f"Documents changed, removed ones included: {', '.join(said)}. `edits/` holds every place, and for "
        "repeated text where else it stands; `longcrawl why RUN ID` shows those of one document.",
        *_repeated(card),
    )


def _repeated(card: CardSource) -> Iterator[str]:
    """Return the spans that occur most often."""
    with open_ledger(card.folder / EDITS, EDIT_SCHEMA) as edits:
        found = repeated_spans(edits, MOST_SPANS)
        for table in contaminated_tables(edits):
            yield "What documents had of evaluation sets, removed documents included:"
            yield table.markdown()
    if found:
        yield "What occurs most often, by the first place where it stands; how many other spans begin with the same:"
        columns = [Column("document"), Column("characters"), _count("other spans")]
        spans = ["" if each.place is None else "{:,}-{:,}".format(*each.place) for each in found]
        rows: list[list[Cell]] = [[_id(each.id), span, each.others] for each, span in zip(found, spans, strict=True)]
        yield Table(columns, rows).markdown()


def _id(document: str) -> Code:
    return Code(shortened(document, LONGEST_ID))


def ranked_rules(funnel: Funnel) -> list[tuple[str, str, int]]:
    """Return stage, rule and removed documents by it, most first."""
    found = [(row.stage, rule, count) for row in funnel for rule, count in row.rules.items() if count]
    return sorted(found, key=lambda reason: (-reason[2], reason[0], reason[1]))


def lengths(card: CardSource) -> str:
    """Return how long texts were at the source, and how long what was kept is."""
    said: list[str] = []
    before = card.source_lengths
    after = list(card.analysis.lengths)
    same = next((each for each in after if before is not None and each.unit == before.unit), None)
    if before is None:
        said.append("How long texts were at the source was not counted: it gave none, or pages to be extracted.")
    elif same is not None:
        after.remove(same)
        said.append(_before_and_after(before, same))
    else:
        said += [f"Before, at the source, in {before.unit}:", length_table(before).markdown()]
    for each in after:
        whole = " of whole documents" if each.unit == "tokens" else ""
        said += [f"After, of what was kept, in {each.unit}{whole}:", length_table(each).markdown()]
    return paragraphs(*card.picture("lengths"), *said)


def _before_and_after(before: Lengths, after: Lengths) -> str:
    columns = [
        _count(before.unit),
        _count("at the source"),
        _share("of all"),
        _count("kept"),
        _share("of what was kept"),
    ]
    shown = Table(columns, compared_lengths(before, after)).markdown(PERCENT)
    total = [f"{sum(each.total.values()):,} in all and {each.mean:,.0f} on average" for each in (before, after)]
    return f"{shown}\n\nAt the source {total[0]}, of what was kept {total[1]}, in {before.unit}."


def compared_lengths(before: Lengths, after: Lengths) -> list[tuple[str, int, float, int, float]]:
    """Return a row for each bin: its name, documents at the source and their share, kept documents and theirs."""
    bins = range(min(before.bins.start, after.bins.start), max(before.bins.stop, after.bins.stop))
    came, kept = (max(sum(each.documents.values()), 1) for each in (before, after))
    counts = [(number, before.documents.get(number, 0), after.documents.get(number, 0)) for number in bins]
    return [(bin_name(number), one, one / came, other, other / kept) for number, one, other in counts]


def places(card: CardSource) -> str:
    """Return domains and languages."""
    tables = [each.markdown() for each in (*card.analysis.place_tables(), *value_tables(card.funnel))]
    none = "The documents have neither URLs nor languages."
    pictures = [*card.picture("domains"), *card.picture("languages")]
    return paragraphs(*pictures, *(tables or [none]), *_languages(card))


def _languages(card: CardSource) -> Iterator[str]:
    """Describe the languages that a recipe names where documents do not, and names that front matter cannot take."""
    names = spoken(card.manifest)
    if names and not any(card.analysis.languages):
        yield f"The documents name no language; by the recipe it is {_listed(names)}."
    if unknown := [name for name in names if name not in language_codes(names)]:
        yield f"The front matter of this card leaves out {_listed(unknown)}, which ISO 639 has no code for."


def _listed(names: Sequence[str]) -> str:
    shown = [code(name, LONGEST_ID) for name in names[:MOST_NAMES]]
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


def duplicates(card: CardSource) -> str:
    """Return the largest clusters of duplicates."""
    stages = [row.stage for row in card.funnel]
    # Rows of the ledger are at most so many; how many of them are duplicates only the ledger knows.
    if card.funnel.documents - card.funnel.kept > MOST_DUPLICATES:
        return "Too many documents were removed to look for clusters here; `longcrawl clusters RUN` does."
    with open_ledger(card.folder / LEDGER) as ledger:
        found = find_clusters(ledger, stages, most=MOST_CLUSTERS)
    listed = sum(row.removed for row in card.funnel if row.stage.startswith(LISTED))
    by_list = f"{listed:,} documents were removed by `{LISTED}`: a list that does not say of what each is a duplicate."
    if not found.count:
        none = "No document was removed as the duplicate of another one." if looked_for(card.recipe) else NOT_LOOKED_FOR
        return by_list if listed else none
    columns = [Column("kept"), Column("others removed by"), _count("documents in all")]
    shown = Table(columns, [_cluster_row(each) for each in found]).markdown()
    said = f"{found.summary()[0].upper()}{found.summary()[1:]}."
    return paragraphs(
        said, shown, by_list if listed else "", "`longcrawl clusters RUN` shows how two documents of each differ."
    )


def _cluster_row(cluster: Cluster) -> list[Cell]:
    kept: Cell = _id(cluster.kept.id)
    if cluster.earlier:
        kept = (_id(cluster.kept.id), "of an earlier dataset")
    elif cluster.kept.stage is not None:
        kept = (_id(cluster.kept.id), f"(removed at {cluster.kept.stage})")
    rules = [word for rule, count in cluster.rules.items() for word in (Code(rule), f"{count:,},")]
    return [kept, (*rules[:-1], rules[-1].removesuffix(",")), cluster.size]


def warnings(card: CardSource) -> Iterator[str]:
    """Return what a reader must know first."""
    for label, found in card.manifest.get("warnings", {}).items():
        for sentence in found:
            yield f"> **Warning.** {code(label)}: {plain(sentence)}."


def materials(card: CardSource) -> Iterator[str]:
    """Return what of others stages worked with: what it is, its licence and SHA-256."""
    for label, used in card.manifest.get("materials", {}).items():
        for path, about in used.items():
            known = [str(about[name]) for name in ("about", "url") if name in about]
            said = plain("; ".join([*known, f"licence: {about.get('licence', 'not recorded')}"]))
            yield f"- {code(label)} used {code(path)}: {said}; SHA-256 `{about['sha256']}`"


SOURCES_LIMIT = "The text is that of its sources, with their licences, errors and biases; nothing here has cleared it."


class Limit(NamedTuple):
    """A sentence of ours, in which backticks mean code, and what is cited behind it, in which nothing means anything.

    What is cited has no full stop of its own.
    """

    said: str
    cited: str = ""


def known_limits(manifest: Mapping[str, Any]) -> list[Limit]:
    """Return the limits of the output, of what stages have removed and reported, and of the source.

    Args:
        manifest: that of a run.
    """
    output = manifest["output"]
    reports = [Limit(f"`{label}`: ", each) for label, found in manifest.get("reports", {}).items() for each in found]
    found = [*RESULTS[output["format"]].limits(output), *_caps(manifest["recipe"])]
    return [*map(Limit, found), *reports, Limit(SOURCES_LIMIT)]


def _caps(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Describe of stages that remove documents for their length where the longest books are missing."""
    for stage in recipe["stages"]:
        ((name, settings),) = stage.items()
        caps = [settings.get("max_words")]
        if name == SignalRules.name:
            try:
                found = build(SignalRules, settings, name, RecipeError).rules()
            except RecipeError:
                yield f"`{name}` has settings of another longcrawl: whether it removes long documents is unknown."
                continue
            caps += [each.bound for each in found if (each.signal, each.comparison) == (WORD_COUNT, "at_most")]
        for cap in caps:
            if cap is not None:
                yield f"`{name}` removes documents of more than {int(cap):,} words: the longest books are missing."


def takedowns(card: CardSource) -> str:
    """List what was taken out on request, by date; "" where nothing was."""
    records: Sequence[Mapping[str, Any]] = card.manifest.get("takedowns", [])
    if not records:
        return ""
    lines = [f"- {plain(str(each['asked']))}: {counted(each['documents'], 'document')}" for each in records]
    about = "Documents were taken out on request. `takedown.json` has the requests, the changed files and the proof."
    return paragraphs(about, "\n".join(lines))
