"""Sections of a dataset card and its datasheet, written from a run's folder and manifest.

The datasheet has the form of Gebru et al., "Datasheets for Datasets", 2018; its text is in cards/datasheet.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from longcrawl.core import ledger
from longcrawl.core.counts import EDITS, LEDGER, PURPOSE, QUEUES, known_pages
from longcrawl.core.display import Cell, Code, Column, Table, code, counted, percent, plain
from longcrawl.core.funnel import Funnel, RemovalRates, value_tables
from longcrawl.core.outputs import RESULTS, read_template
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
NOT_LOOKED_FOR = "Duplicates were not looked for: the recipe has no stage for deduplication."
LISTED = "listed_duplicates"
PERSONAL_DATA = "personal_data"
NAMES_NO_OTHER = (LISTED, "exact_substring")
"""Stages that look for duplicates but do not record which document a duplicate repeats."""
TAKES_OUT = {
    "extract_text": "everything but the main text of pages",
    "line_corrections": "lines",
    "c4_quality": "lines",
    "exact_substring": "passages that also occur elsewhere",
    "decontaminate": "passages of evaluation sets",
    "personal_data": "personal data (replaced by a word)",
    "truncate": "tokens beyond a limit",
}


def datasheet(
    manifest: Mapping[str, Any], facts: Mapping[str, Any], funnel: Funnel, instance: str, cut: str = ""
) -> str:
    """Return the datasheet's seven parts in Markdown.

    ``facts`` are the recipe's ``card`` fields, ``instance`` is a sentence that describes an instance, and ``cut`` one
    on the share of documents missing from the output, or "".
    """
    recipe, stages = manifest["recipe"], ", ".join(code(row.stage) for row in funnel)
    bad, found = len(manifest["bad_files"]), ", ".join(map(code, looked_for(recipe)))
    return Template(read_template("datasheet.md").rstrip("\n")).substitute(
        purpose=recipe.get("about") or NOT_RECORDED,
        instance=instance,
        instances=_instances(manifest),
        read=counted(funnel.documents, "document"),
        share=percent(funnel.kept / max(funnel.documents, 1)),
        columns=_columns(manifest),
        missing=_missing(manifest, funnel, cut),
        relations=_relations(manifest, funnel),
        splits=_splits(manifest["output"]),
        redundancy=f"Duplicates were looked for by {found}; kept documents may still be similar."
        if found
        else NOT_LOOKED_FOR,
        confidential=_confidential(recipe, funnel),
        damage=f"{counted(bad, 'input file')} could not be read whole." if bad else "All input was read whole.",
        source=_source(manifest),
        stages=f"{stages}, in this order, with the settings of the recipe above." if stages else "Nothing.",
        ledger=" The reason for each removed document is in `ledger/`." if funnel.kept < funnel.documents else "",
        version=manifest["versions"]["longcrawl"],
        licence=_licence(facts),
        contact=facts["contact"] or NOT_RECORDED,
        opt_out=facts["opt_out"] or NOT_RECORDED,
    )


def labelled(recipe: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Return label, name and settings of the stages of a recipe in a manifest."""
    named = [each for stage in recipe["stages"] for each in stage.items()]
    labels = label_stages([name for name, _ in named])
    return [(label, name, settings) for label, (name, settings) in zip(labels, named, strict=True)]


def looked_for(recipe: Mapping[str, Any]) -> list[str]:
    """Return the names of a recipe's stages that look for duplicates."""
    return [name for _, name, _ in labelled(recipe) if _deduplicates(name)]


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
    return f"{counted(count, one, what)} from {documents}."


def _columns(manifest: Mapping[str, Any]) -> str:
    columns = {"its URL": "domains", "its language": "languages"}
    known = [name for name, each in columns.items() if any(manifest["analysis"][each])]
    said = ", ".join(["its id", *known])
    return f"I{said[1:]}." if instances_of(manifest)[0] == "documents" else f"For each document {said}."


def _missing(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> str:
    analysis = manifest["analysis"]
    languages = analysis["languages"]
    counts = {
        "a URL": analysis["without_url"],
        # If no document names a language, languages are not recorded at all.
        "a language": languages.get("", 0) if any(languages) else 0,
    }
    known = [f"{counted(count, 'document')} without {what}" for what, count in counts.items() if count]
    said = [cut, *([f"{', '.join(known)}."] if known else []), *_taken_out(manifest, funnel, cut)]
    return " ".join(each for each in said if each) or "Nothing is known to be missing."


def _confidential(recipe: Mapping[str, Any], funnel: Funnel) -> str:
    edits = {row.stage: row.edits for row in funnel}
    said = []
    for label, name, each in labelled(recipe):
        if name == PERSONAL_DATA:
            changed = edits.get(label)
            places = sum(rule.places for rule in changed.rules.values()) if changed else 0
            done = {"mask": "replaced", "tag": "tagged", "drop": "found; documents over the limit were removed"}
            found = f"{counted(places, 'place')} {done[each['policy']]}"
            said.append(f"{code(label)} looked for {', '.join(each['kinds'])}: {found}.")
    if not said:
        return "Not recorded. No stage looked for personal data, names or addresses."
    return " ".join([*said, "Names and postal addresses were not looked for."])


def _taken_out(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> list[str]:
    edits = {row.stage: row.edits for row in funnel}
    said: dict[str, list[str]] = {"": [], "; the amount was not counted": []}
    for label, name, each in labelled(manifest["recipe"]):
        takes = "mask" if name == PERSONAL_DATA else "cut"
        if name not in TAKES_OUT or each.get("policy", takes) != takes or (cut and name == "truncate"):
            continue
        taken = f"{TAKES_OUT[name]} by {code(label)}"
        if name == "extract_text":
            said["; the amount was not counted"].append(taken)
        elif (found := edits.get(label)) is not None:
            said[""].append(f"{taken} ({found.removed:,} {found.unit} of {counted(found.documents, 'document')})")
    return [f"Removed from documents: {', '.join(each)}{how}." for how, each in said.items() if each]


def _relations(manifest: Mapping[str, Any], funnel: Funnel) -> str:
    recipe, removed = manifest["recipe"], {row.stage: row.removed for row in funnel}
    found = {name for label, name, _ in labelled(recipe) if removed.get(label)}.intersection(looked_for(recipe))
    if found.difference(NAMES_NO_OTHER):
        return "Only those of duplicates: `ledger/` names the document that each removed duplicate repeats."
    if LISTED in found:
        return f"No: {code(LISTED)} does not name the document that a duplicate repeats."
    return "No."


def _splits(output: Mapping[str, Any]) -> str:
    found = sorted(output.get("splits") or output.get("shapes") or {}, reverse=True)
    held_out = [f"`{name}`" for name in found if name != "train"]
    if not held_out:
        return "No: all data is in `train`."
    return f"`train` for training. Held out by one draw of documents: {', '.join(held_out)}."


def _source(manifest: Mapping[str, Any]) -> str:
    inputs = manifest["inputs"]
    files = sum(map(len, inputs.values()))
    counts = [counted(files, "file")] * bool(files) + [counted(len(inputs), "part")] * bool(inputs)
    read = f" from {' in '.join(counts)}, listed in `manifest.json`" if inputs else ""
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

TOKEN_COLUMNS = {
    "beginning": "the text of its first tokens",
    "text": "the text of `input_ids`; for a rolled row, from the beginning of its document",
    "roll": "number of tokens by which `input_ids` are rolled: a row may start in the middle of its document",
    "overlap": "number of tokens at the beginning that repeat the end of the window before; they have no loss",
    "capacity": "capacity of the sample's bucket",
    "seq_lengths": "tokens of each piece of a sample, with the pieces joined to it: attention and positions restart",
    "n_tokens": "number of tokens in `input_ids`",
    "loss_mask": "a value for each token: false means no loss",
}
"""Descriptions of the columns of token tables whose names are not enough."""


@dataclass
class CardSource:
    """Input of a card: the folder of a run, its manifest, and the pictures that exist."""

    folder: Path
    manifest: Mapping[str, Any]
    pictures: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.recipe: Mapping[str, Any] = self.manifest["recipe"]
        self.output: Mapping[str, Any] = self.manifest["output"]
        self.result, self.facts = RESULTS[self.output["format"]], facts_of(self.manifest)
        self.funnel = Funnel.from_dict(self.manifest["funnel"])
        self.analysis = Analysis.from_dict(self.manifest["analysis"])
        found = self.manifest.get("source_lengths")
        self.source_lengths = None if found is None else Lengths.from_dict(found)

    def picture(self, name: str) -> str:
        """Return Markdown for a picture, or "" if it is not drawn."""
        return f"![{PICTURES[name]}](card/{name}.svg)" if name in self.pictures else ""


def titled(title: str, body: Callable[[CardSource], str]) -> Callable[[CardSource], str]:
    """Return a function that writes a section under its own heading, or "" if it is empty."""
    return lambda card: paragraphs(f"## {title}", text) if (text := body(card)) else ""


def token_tables(card: CardSource) -> str:
    """Describe how to load the tables of tokens, their columns and sizes; "" if there are none."""
    tables = sorted((card.folder / TOKEN_TABLES).glob("*.parquet"))
    if not tables:
        return ""
    text = read_template("tokens.md").rstrip()
    columns = read_footers(tables[:1])[0].schema.to_arrow_schema().names
    about = [f"- `{name}`: {TOKEN_COLUMNS[name]}" for name in columns if name in TOKEN_COLUMNS]
    sizes, files = [], card.manifest.get("files", {})
    for folder in (TOKEN_TABLES, card.result.name):
        found = [each["bytes"] for name, each in files.items() if name.startswith(f"{folder}/")]
        sizes.append(f"`{folder}/` has {sum(found):,} bytes in {counted(len(found), 'file')}")
    return paragraphs(text, "\n".join(about), f"{'; '.join(sizes)}.")


def paragraphs(*texts: str) -> str:
    """Join paragraphs with empty lines; skip empty ones."""
    return "\n\n".join(text for text in texts if text)


_count, _share = partial(Column, kind="count"), partial(Column, kind="share")
PERCENT = "\u00a0%"
"""Percent sign with a no-break space, so that a narrow cell does not wrap before it."""
LONGEST_ID = 80
MOST_REASONS = 40
MOST_CLUSTERS = 10
MOST_NAMES = 20
MOST_SPANS = 10
MOST_DUPLICATES = 20_000_000
"""Largest number of removed documents for which clusters are searched; their ids are held in memory."""


def funnel_and_rates(card: CardSource) -> str:
    """Return the section on documents and characters after each stage."""
    return paragraphs(
        card.picture("funnel"),
        _funnel_table(card.funnel, RemovalRates.from_manifest(card.manifest)),
        "`longcrawl why RUN ID` shows why a document was removed; `ledger/` has the reason for each."
        if card.funnel.kept < card.funnel.documents
        else "",
    )


def _funnel_table(funnel: Funnel, rates: RemovalRates) -> str:
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
    """Return the section on the rules that removed most documents."""
    ranked, documents = ranked_rules(card.funnel), card.funnel.documents
    if not ranked:
        return "No document was removed."
    removed = sum(count for _, _, count in ranked)
    columns = [Column("stage"), Column("rule"), _count("documents"), _share("of all"), _share("of all removed")]
    rows: list[list[Cell]] = [
        [stage, Code(rule), count, count / max(documents, 1), count / removed]
        for stage, rule, count in ranked[:MOST_REASONS]
    ]
    more = f" The table has the first {MOST_REASONS} of {len(ranked)} rules." if len(ranked) > MOST_REASONS else ""
    said = f"{removed:,} of {documents:,} documents were removed, each by the first rule that it failed.{more}"
    return paragraphs(card.picture("reasons"), Table(columns, rows).markdown(PERCENT), said)


def edited(card: CardSource) -> str:
    """Return the section on changes that stages made to documents; "" if there are none."""
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
        f"Documents changed, removed ones included: {', '.join(said)}. `edits/` lists every change, and for "
        "repeated text its other place; `longcrawl why RUN ID` shows the changes in one document.",
        *_repeated(card),
    )


def queued(card: CardSource) -> str:
    """Return the section on documents for OCR and to fetch again; "" if there are none."""
    rows: list[list[Cell]] = [
        [row.stage, PURPOSE[name], Code(reason), count["documents"], known_pages(name, count)]
        for row in card.funnel
        for name, reasons in row.queued.items()
        for reason, count in reasons.items()
    ]
    if not rows:
        return ""
    columns = [*map(Column, ("stage", "queue", "reason")), *map(_count, ("documents", "pages"))]
    names = sorted({name for row in card.funnel for name in row.queued if name in QUEUES})
    return paragraphs(
        Table(columns, rows).markdown(),
        "These documents, kept or removed, have pages that only OCR can read, or lack a part of their file. "
        f"See {' and '.join(f'`{name}/`' for name in names)} for the place of each in the source."
        if names
        else "",
    )


def _repeated(card: CardSource) -> Iterator[str]:
    with ledger.open_ledger(card.folder / EDITS, EDIT_SCHEMA) as edits:
        found = ledger.repeated_spans(edits, MOST_SPANS)
        if (contaminated := ledger.count_contamination(edits)).table.num_rows:
            yield "Passages of evaluation sets in documents, removed documents included:"
            yield contaminated.tables()[0].markdown()
    if found:
        yield "The most frequent spans, by their first place, and how many other spans begin with the same text:"
        columns = [Column("document"), Column("characters"), _count("other spans")]
        spans = ["" if each.place is None else "{:,}-{:,}".format(*each.place) for each in found]
        rows: list[list[Cell]] = [[_id(each.id), span, each.others] for each, span in zip(found, spans, strict=True)]
        yield Table(columns, rows).markdown()


def ranked_rules(funnel: Funnel) -> list[tuple[str, str, int]]:
    """Return stage, rule and number of removed documents, largest number first."""
    found = [(row.stage, rule, count) for row in funnel for rule, count in row.rules.items() if count]
    return sorted(found, key=lambda reason: (-reason[2], reason[0], reason[1]))


def lengths(card: CardSource) -> str:
    """Return the section on the lengths of texts at the source and of kept documents."""
    before, after = card.source_lengths, list(card.analysis.lengths)
    same = next((each for each in after if before is not None and each.unit == before.unit), None)
    if before is None:
        said = ["The lengths of texts at the source were not counted: it has none, or pages to be extracted."]
    elif same is not None:
        after.remove(same)
        said = [_before_and_after(before, same)]
    else:
        said = [f"At the source, in {before.unit}:", length_table(before).markdown()]
    for each in after:
        whole = " of whole documents" if each.unit == "tokens" else ""
        said += [f"Kept documents, in {each.unit}{whole}:", length_table(each).markdown()]
    return paragraphs(card.picture("lengths"), *said)


def _before_and_after(before: Lengths, after: Lengths) -> str:
    counts, shares = (before.unit, "at the source", "kept"), ("of all", "of what was kept")
    columns = [_count(counts[0]), _count(counts[1]), _share(shares[0]), _count(counts[2]), _share(shares[1])]
    shown = Table(columns, compared_lengths(before, after)).markdown(PERCENT)
    total = [f"{sum(each.total.values()):,} in all and {each.mean:,.0f} on average" for each in (before, after)]
    return f"{shown}\n\nIn {before.unit}: {total[0]} at the source; {total[1]} in kept documents."


def compared_lengths(before: Lengths, after: Lengths) -> list[tuple[str, int, float, int, float]]:
    """Return rows of bin name, documents at the source and their share, kept documents and their share."""
    bins = range(min(before.bins.start, after.bins.start), max(before.bins.stop, after.bins.stop))
    came, kept = (max(sum(each.documents.values()), 1) for each in (before, after))
    counts = [(number, before.documents.get(number, 0), after.documents.get(number, 0)) for number in bins]
    return [(bin_name(number), one, one / came, other, other / kept) for number, one, other in counts]


def places(card: CardSource) -> str:
    """Return the section on domains and languages."""
    tables = [each.markdown() for each in (*card.analysis.place_tables(), *value_tables(card.funnel))]
    none = "The documents have neither URLs nor languages."
    return paragraphs(card.picture("domains"), card.picture("languages"), *(tables or [none]), *_languages(card))


def _languages(card: CardSource) -> Iterator[str]:
    names = spoken(card.manifest)
    if names and not any(card.analysis.languages):
        yield f"The documents name no language; according to the recipe it is {_listed(names)}."
    if unknown := [name for name in names if name not in language_codes(names)]:
        yield f"The front matter of this card omits {_listed(unknown)}, for which ISO 639 has no code."


def _listed(names: Sequence[str]) -> str:
    shown = [code(name, LONGEST_ID) for name in names[:MOST_NAMES]]
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


def duplicates(card: CardSource) -> str:
    """Return the section on the largest clusters of duplicates."""
    stages = [row.stage for row in card.funnel]
    # The removed documents are an upper limit of the duplicates; only the ledger has the exact number.
    if card.funnel.documents - card.funnel.kept > MOST_DUPLICATES:
        return "Too many documents were removed to list clusters here; use `longcrawl clusters RUN`."
    with ledger.open_ledger(card.folder / LEDGER) as removals:
        found = ledger.find_clusters(removals, stages, most=MOST_CLUSTERS)
    listed = sum(row.removed for row in card.funnel if row.stage.startswith(LISTED))
    by_list = f"{listed:,} documents were removed by `{LISTED}`, a list that does not name the documents they repeat."
    if not found.count:
        none = "No document was removed as the duplicate of another one." if looked_for(card.recipe) else NOT_LOOKED_FOR
        return by_list if listed else none
    columns = [Column("kept"), Column("others removed by"), _count("documents in all")]
    shown = Table(columns, [_cluster_row(each) for each in found]).markdown()
    said, more = found.summary(), "`longcrawl clusters RUN` shows how two documents of a cluster differ."
    return paragraphs(f"{said[0].upper()}{said[1:]}.", shown, by_list if listed else "", more)


def _id(document: str) -> Code:
    return Code(shortened(document, LONGEST_ID))


def _cluster_row(cluster: ledger.Cluster) -> list[Cell]:
    document = _id(cluster.kept.id)
    kept: Cell = document
    if cluster.earlier:
        kept = (document, "of an earlier dataset")
    elif cluster.kept.stage is not None:
        kept = (document, f"(removed at {cluster.kept.stage})")
    rules = [word for rule, count in cluster.rules.items() for word in (Code(rule), f"{count:,},")]
    return [kept, (*rules[:-1], rules[-1].removesuffix(",")), cluster.size]


def warnings(card: CardSource) -> Iterator[str]:
    """Yield the warnings of stages for readers of the card."""
    for label, found in card.manifest.get("warnings", {}).items():
        for sentence in found:
            yield f"> **Warning.** {code(label)}: {plain(sentence)}."


def materials(card: CardSource) -> Iterator[str]:
    """Yield the third-party materials used by stages, each with description, licence and SHA-256."""
    for label, used in card.manifest.get("materials", {}).items():
        for path, about in used.items():
            known = [str(about[name]) for name in ("about", "url") if name in about]
            said = plain("; ".join([*known, f"licence: {about.get('licence', 'not recorded')}"]))
            yield f"- {code(label)} used {code(path)}: {said}; SHA-256 `{about['sha256']}`"


SOURCES_LIMIT = "The text comes from its sources, with their licences, errors and biases, and has not been cleared."


class Limit(NamedTuple):
    """Sentence on a limit in Markdown, followed by cited plain text, which is escaped and gets a full stop."""

    said: str
    cited: str = ""


def known_limits(manifest: Mapping[str, Any]) -> list[Limit]:
    """Return the limits of the output, of stages that cap lengths, of reports, and of the source."""
    output = manifest["output"]
    reports = [Limit(f"`{label}`: ", each) for label, found in manifest.get("reports", {}).items() for each in found]
    found = [*RESULTS[output["format"]].limits(output), *_caps(manifest["recipe"])]
    return [*map(Limit, found), *reports, Limit(SOURCES_LIMIT)]


def _caps(recipe: Mapping[str, Any]) -> Iterator[str]:
    for stage in recipe["stages"]:
        ((name, settings),) = stage.items()
        caps = [settings.get("max_words")]
        if name == SignalRules.name:
            try:
                found = build(SignalRules, settings, name, RecipeError).rules()
            except RecipeError:
                yield f"`{name}` has settings of another longcrawl, so whether it removes long documents is unknown."
                continue
            caps += [each.bound for each in found if (each.signal, each.comparison) == (WORD_COUNT, "at_most")]
        for cap in caps:
            if cap is not None:
                yield f"`{name}` removes documents of more than {int(cap):,} words: the longest books are missing."


def takedowns(card: CardSource) -> str:
    """Return the section on documents removed on request, by date; "" if there are none."""
    records: Sequence[Mapping[str, Any]] = card.manifest.get("takedowns", [])
    if not records:
        return ""
    lines = [f"- {plain(str(each['asked']))}: {counted(each['documents'], 'document')}" for each in records]
    about = "Documents were removed on request. `takedown.json` lists the requests, the changed files and the proof."
    return paragraphs(about, "\n".join(lines))
