"""A sample of what was removed from a run, with the places of each text that the rule that removed it is about."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.audit.finished import source_documents
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.pipeline import label_stages
from longcrawl.core.stages import Stage
from longcrawl.display.word_diff import diff_words
from longcrawl.errors import LedgerError, LongCrawlError
from longcrawl.ledger.funnel import Funnel
from longcrawl.ledger.reasons import DUPLICATE_IDS, LEDGER, LEDGER_SCHEMA, Reason, follow, open_ledger
from longcrawl.manifest import open_run, read_manifest
from longcrawl.recipe import load_recipe
from longcrawl.report.texts import Passage, Place, RemovedDocument, RemovedDocuments, opening, passages
from longcrawl.text import UrlFilter, explain
from longcrawl.text.explanation import Explanation, SeenText

Stages = Sequence[tuple[str, Stage]]
COLUMNS = ("url", "language", "signals", "duplicate")
"""What rules look at besides the text, where the source has it."""


def removed_documents(run: str | Path, per_rule: int = 5, most: int = 200) -> RemovedDocuments:
    """Choose some of the documents removed by each rule of each stage, and mark in their texts what it is about.

    Which ones depends on their ids alone. Texts are read again from the run's source; memory is that of the sample
    and of a batch of the ledger.

    Args:
        run: the folder of a finished run.
        per_rule: how many documents of each rule.
        most: how many documents altogether; where rules are many, fewer of each.

    Raises:
        RunError: the run is not finished.
        LedgerError: a number is less than 1, or the ledger is damaged, or of another run.
    """
    if min(per_rule, most) < 1:
        raise LedgerError(f"a sample of {per_rule} per rule and {most} in all is none; ask for 1 or more of each")
    with open_run(run, LEDGER) as folder:
        return _removed_documents(folder, per_rule, most)


def _removed_documents(folder: Path, per_rule: int, most: int) -> RemovedDocuments:
    manifest = read_manifest(folder)
    funnel = Funnel.from_dict(manifest["funnel"])
    left = funnel.documents - funnel.kept
    with open_ledger(folder / LEDGER) as ledger:
        labels = [row.stage for row in funnel]
        reasons = follow(ledger, labels, _choose(ledger, folder, labels, per_rule, most))
        rows = ledger.count_rows()
    wanted = {document for reason in reasons for document in (reason.id, reason.kept_id) if document is not None}
    found, missing = source_documents(manifest, wanted, COLUMNS) if wanted else ({}, None)
    stages, broken = _stages(folder)
    documents = [_document(reason, found, stages) for reason in reasons]
    notes = [] if rows == left else [_not_whole(rows, left)]
    notes += [f"Texts are missing: {missing}."] * bool(missing) + [f"No marks: {broken}."] * bool(broken)
    return RemovedDocuments(tuple(documents), max(rows, left), " ".join(notes) or None)


def _not_whole(rows: int, left: int) -> str:
    return (
        f"The ledger has {rows:,} rows, but the funnel counts {left:,} removed documents, so documents and "
        "duplicates shown are from these rows only: longcrawl verify RUN says which files are missing or changed."
    )


def _choose(ledger: pads.Dataset, run: Path, labels: Sequence[str], per_rule: int, most: int) -> list[Reason]:
    """Keep the rows of each stage and rule whose ids have the smallest hashes."""
    kept = LEDGER_SCHEMA.append(pa.field("hash", pa.uint64())).append(pa.field("rank", pa.int64())).empty_table()
    for batch in ledger.to_batches():
        rows = pa.table(batch)
        _check_rows(rows, run, labels)
        hashes = keyed_hash(rows["id"].to_pylist(), "report", 0)
        rows = rows.append_column("hash", pa.array(hashes))
        kept = _ranked(pa.concat_tables([kept.drop_columns("rank"), rows]))
        kept = kept.filter(pc.less(kept["rank"], per_rule))
    chosen = kept.sort_by([("rank", "ascending"), ("hash", "ascending"), ("id", "ascending")])[:most]
    rows = sorted(chosen.to_pylist(), key=lambda row: (labels.index(row["stage"]), row["rule"], row["rank"]))
    return [Reason(**{name: row[name] for name in LEDGER_SCHEMA.names}) for row in rows]


def _check_rows(rows: pa.Table, run: Path, labels: Sequence[str]) -> None:
    """Reject rows of a ledger that a run of these stages cannot have written."""
    if empty := [name for name in ("id", "stage", "rule") if rows[name].null_count]:
        raise LedgerError(f"the ledger of {run} has rows without {empty[0]}; longcrawl verify says what is wrong")
    unknown = sorted(set(pc.unique(rows["stage"]).to_pylist()) - set(labels))
    if unknown:
        raise LedgerError(
            f"the ledger of {run} has documents removed at {unknown[0]!r}, a stage that the funnel of its manifest "
            "does not have; longcrawl verify says what is wrong"
        )


def _ranked(rows: pa.Table) -> pa.Table:
    """Number the rows of each stage and rule by their hashes."""
    order = [(name, "ascending") for name in ("stage", "rule", "hash", "id")]
    ordered = rows.sort_by(order)
    groups = [ordered[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in ("stage", "rule")]
    begins = np.ones(len(ordered), bool)
    if len(ordered):
        begins[1:] = (np.diff(groups[0]) != 0) | (np.diff(groups[1]) != 0)
    places = np.arange(len(ordered))
    ranks = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ordered.append_column("rank", pa.array(ranks))


def _stages(folder: Path) -> tuple[Stages, str | None]:
    """Return the stages of a run, or say why they cannot be made any more."""
    try:
        return load_recipe(folder / "recipe.yaml").stages, None
    except (LongCrawlError, OSError) as gone:
        return (), str(gone)


def _document(reason: Reason, found: dict[str, dict[str, Any]], stages: Stages) -> RemovedDocument:
    source = found.get(reason.id)
    if reason.stage == DUPLICATE_IDS:
        return RemovedDocument(reason, note="Another document of this id came first.")
    if source is None:
        return RemovedDocument(reason)
    text, language = source["text"], source.get("language")
    if text is None:
        return RemovedDocument(reason, source.get("url"), language, note="The source has no text of it.")
    shown: tuple[Passage, ...]
    note: str | None
    if reason.kept_id is not None and not reason.leads_on:
        shown, note = tuple(passages(text)), f"It duplicates {reason.kept_id} of an earlier dataset."
    elif reason.kept_id is not None:
        kept = found.get(reason.kept_id)
        shown, note = _difference(text, None if kept is None else kept["text"], reason)
    else:
        shown, note = _marked(source, reason, stages)
    return RemovedDocument(reason, source.get("url"), language, opening(text), shown, note)


def _difference(text: str, kept: str | None, reason: Reason) -> tuple[tuple[Passage, ...], str]:
    if kept is None:
        return tuple(passages(text)), "The text of the document that it duplicates is not to be had."
    difference = diff_words(kept, text)
    fate = "was kept" if reason.kept is None else f"was {reason.kept.fate}"
    note = f"Compared with {reason.kept_id}, which {fate}: {difference.summary()}."
    pieces = tuple(Passage(piece.kind, piece.text) for piece in difference.pieces)
    return (pieces, note) if pieces else (tuple(passages(text)), note)


def _marked(source: Mapping[str, Any], reason: Reason, stages: Stages) -> tuple[tuple[Passage, ...], str | None]:
    """Mark what a rule is about in the text as its stage saw it."""
    text: str = source["text"]
    labels = [label for label, _ in stages]
    if reason.stage not in labels:
        return tuple(passages(text)), None
    place = labels.index(reason.stage)
    stage = stages[place][1]
    # What only judged the document before has changed nothing of it.
    seen = [each for _, each in stages[:place] if each.edits] + [stage]
    others = {name: source[name] for name in COLUMNS if name in source and name != "language"}
    try:
        if isinstance(stage, UrlFilter):
            return tuple(passages(text)), _of_url(stage, source.get("url"), reason.rule)
        explanation = explain(text, seen, source.get("language"), **others)
    except LongCrawlError as wrong:
        return tuple(passages(text)), f"Not marked: {wrong}"
    label = label_stages([each.name for each in seen])[-1]
    return _explained(explanation, label, reason.rule, text)


def _of_url(stage: UrlFilter, url: str | None, rule: str | None) -> str:
    """Describe what of a URL a rule is about."""
    matches = stage.matches(pa.table({"url": pa.array([url], pa.large_string())}))[0]
    found = next((each.matched for each in matches if each.rule == rule), None)
    return "The rule is about the URL." if not found else f"The rule is about the URL, which has: {found}."


def _explained(
    explanation: Explanation, label: str, rule: str | None, text: str
) -> tuple[tuple[Passage, ...], str | None]:
    seen = next((each for each in reversed(explanation.texts) if label in each.stages), None)
    if seen is None:
        why = next((each.reason for each in explanation.unexplained if each.stage == label), None)
        return tuple(passages(text)), None if why is None else f"Nothing is marked: {label} {why}."
    now = next((each for each in explanation.rules if (each.stage, each.rule) == (label, rule)), None)
    if now is None or now.verdict != "fails":
        return tuple(passages(seen.text)), "Nothing is marked: by its text as the source has it now, it would stay."
    places = _places(seen, label, rule)
    notes = ["As earlier stages had edited it."] if seen.text != text else []
    notes += [] if places else ["The rule is about the text as a whole."]
    return tuple(passages(seen.text, places)), " ".join(notes) or None


def _places(seen: SeenText, label: str, rule: str | None) -> list[Place]:
    marks = [Place(*span) for each, spans in seen.marks if each.rule == rule and each.stage == label for span in spans]
    if marks or seen.edited_by != label:
        return marks
    return [Place(*span, "removed", change.after) for span, change in seen.changed_places()]
