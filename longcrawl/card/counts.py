"""The sections of a dataset card that count: removed documents, lengths, domains and languages, duplicates."""

from collections.abc import Iterator, Sequence

from longcrawl.card.datasheet import NOT_LOOKED_FOR, looked_for
from longcrawl.card.head import spoken
from longcrawl.card.rules import language_codes
from longcrawl.card.source import CardSource, missing_sentence, paragraphs
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.display.markdown import code, plain, table
from longcrawl.display.numbers import percent
from longcrawl.ledger.analysis import Lengths, bin_name, length_table
from longcrawl.ledger.clusters import Cluster, find_clusters
from longcrawl.ledger.edits import EDITS, repeated_spans
from longcrawl.ledger.funnel import Funnel, RemovalRates, value_tables
from longcrawl.ledger.reasons import LEDGER, open_ledger
from longcrawl.manifest import MissingEntry

__all__ = ["duplicates", "edited", "funnel_and_rates", "lengths", "places", "ranked_rules", "reasons"]

PERCENT = "\u00a0%"
"""No line of a narrow cell begins with it."""
MOST_REASONS = 40
MOST_CLUSTERS = 10
MOST_NAMES = 20
MOST_SPANS = 10
MOST_DUPLICATES = 20_000_000
"""Duplicates whose clusters are looked for: their ids are held in memory."""
LISTED = "listed_duplicates"


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
    published = [rates.reference.name] if rates.reference.documents else []
    head = ["stage", "kept", "removed", "of all", "of the stage before"]
    head += ["characters", "of all characters"] if rates.has_characters else []
    rows = []
    for cells, left in zip(rates, ["", *(f"{row.removed:,}" for row in funnel)], strict=True):
        name, documents, of_all, of_before, *rest = cells
        row = [name, documents, left, of_all, of_before]
        row += rest[:2] if rates.has_characters else []
        rows.append([plain(cell).replace(" %", PERCENT) for cell in row + (rest[-1:] if published else [])])
    return table([*head, *map(plain, published)], rows, len(head) + len(published) - 1)


def reasons(card: CardSource) -> str:
    """Return the rules that removed most documents."""
    ranked = ranked_rules(card.funnel)
    if not ranked:
        return "No document was removed."
    removed = sum(count for _, _, count in ranked)
    rows = [
        [plain(stage), code(rule), f"{count:,}", _percent(count, card.funnel.documents), _percent(count, removed)]
        for stage, rule, count in ranked[:MOST_REASONS]
    ]
    more = f" The {MOST_REASONS} rules that removed most, of {len(ranked)}." if len(ranked) > MOST_REASONS else ""
    said = (
        f"{removed:,} of {card.funnel.documents:,} documents were removed, each by the first rule that it failed.{more}"
    )
    shown = table(["stage", "rule", "documents", "of all", "of all removed"], rows, 3)
    return paragraphs(*card.picture("reasons"), shown, said)


def edited(card: CardSource) -> str:
    """Return what stages changed in documents; "" where they changed nothing."""
    rows = [
        [plain(row.stage), code(rule), edits.unit, f"{counts.places:,}", f"{counts.touched:,}", f"{counts.removed:,}"]
        for row in card.funnel
        if (edits := row.edits) is not None
        for rule, counts in edits.rules.items()
    ]
    if not rows:
        return ""
    said = [f"{code(row.stage)} {row.edits.documents:,}" for row in card.funnel if row.edits is not None]
    return paragraphs(
        table(["stage", "rule", "unit", "places", "changed", "fewer now"], rows, 3),
        f"Documents changed, removed ones included: {', '.join(said)}. `edits/` holds every place, and for "
        "repeated text where else it stands; `longcrawl why RUN ID` shows those of one document.",
        *_repeated(card),
    )


def _repeated(card: CardSource) -> Iterator[str]:
    """Return the spans that occur most often."""
    with open_ledger(card.folder / EDITS, EDIT_SCHEMA) as edits:
        found = repeated_spans(edits, MOST_SPANS)
    if found:
        yield "What occurs most often, by the first place where it stands; how many other spans begin with the same:"
        rows = [
            [code(each.id, 80), "" if each.place is None else "{:,}-{:,}".format(*each.place), f"{each.others:,}"]
            for each in found
        ]
        yield table(["document", "characters", "other spans"], rows, 1)


def ranked_rules(funnel: Funnel) -> list[tuple[str, str, int]]:
    """Return stage, rule and removed documents by it, most first."""
    found = [(row.stage, rule, count) for row in funnel for rule, count in row.rules.items() if count]
    return sorted(found, key=lambda reason: (-reason[2], reason[0], reason[1]))


def lengths(card: CardSource) -> str:
    """Return how long texts were at the source, and how long what was kept is."""
    said: list[str] = []
    before = card.source_lengths
    try:
        after = list(card.analysis.lengths)
    except MissingEntry as missing:
        after = []
        said.append(missing_sentence(missing))
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
        yield f"The head of this card leaves out {_listed(unknown)}: no language's code of ISO 639."


def _listed(names: Sequence[str]) -> str:
    shown = [code(name, 80) for name in names[:MOST_NAMES]]
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
    shown = table(["kept", "others removed by", "documents in all"], [_cluster_row(each) for each in found], 1)
    said = f"{found.summary()[0].upper()}{found.summary()[1:]}."
    return paragraphs(
        said, shown, by_list if listed else "", "`longcrawl clusters RUN` shows how two documents of each differ."
    )


def _cluster_row(cluster: Cluster) -> list[str]:
    kept = code(cluster.kept.id, 80)
    if cluster.earlier:
        kept += " of an earlier dataset"
    elif cluster.kept.stage is not None:
        kept += f", which was removed at {plain(cluster.kept.stage)}"
    rules = ", ".join(f"{code(rule)} {count:,}" for rule, count in cluster.rules.items())
    return [kept, rules, f"{cluster.size:,}"]


def _percent(part: int, whole: int) -> str:
    return percent(part / max(whole, 1), PERCENT)
