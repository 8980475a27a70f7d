"""Questions to a run that need its recipe or source: clusters, contamination, texts, pages, hits of the URL filter."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl import dedup, text
from longcrawl.core.counts import EDITS, LEDGER
from longcrawl.core.funnel import Funnel
from longcrawl.core.ledger import (
    DUPLICATE_IDS,
    Clusters,
    Contamination,
    Reason,
    count_contamination,
    find_clusters,
    follow,
    open_ledger,
)
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.core.registry import build
from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.errors import (
    LedgerError,
    LongCrawlError,
    StageError,
)
from longcrawl.io.stored_tables import chosen_rows
from longcrawl.publish.questions import find_result
from longcrawl.run.manifest import (
    input_names,
    open_run,
    read_manifest,
)
from longcrawl.run.recipe import parse_recipe, recorded_source
from longcrawl.text.refinedweb.url_filter import count_hits
from longcrawl.urls import is_url

if TYPE_CHECKING:
    from longcrawl.text.extract.blocks import PageExplanation

HTML = "html"
EXTRACT = "extract_text"


def clusters(run: str | Path, stage: str | None = None, most: int = 10) -> Clusters:
    """Return the ``most`` largest clusters of duplicates of a run or one ``stage``, with a diff of two documents.

    If the kept document was removed later, the cluster belongs to the final survivor. Texts are read again from the
    run's source, as they were before its first stage. If the source is missing, ``note`` has the reason.

    Raises:
        LedgerError: the run has no such stage, or ``most`` is less than 1.
        CorruptionError: the ledger was changed.
    """
    with open_run(run, LEDGER) as folder:
        manifest = read_manifest(folder)
        stages = [row.stage for row in Funnel.from_dict(manifest["funnel"])]
        with open_ledger(folder / LEDGER) as ledger:
            found = find_clusters(ledger, stages, stage, most)
    documents, reason = source_documents(manifest, found.compared())
    texts = {document: values["text"] for document, values in documents.items() if values["text"] is not None}
    if reason is None and len(texts) < len(documents):
        reason = f"the source has no text of {min(documents.keys() - texts.keys())!r}"
    return found.with_texts(texts, None if reason is None else f"No diff where a text is missing: {reason}")


def contamination(run: str | Path) -> Contamination:
    """Return the contamination that the stage ``decontaminate`` of a run found; LedgerError if there is none."""
    with open_run(run, EDITS) as folder:
        manifest = read_manifest(folder)
        stages = parse_recipe(manifest["recipe"]).stages
        if not (labels := [label for label, stage in stages if isinstance(stage, dedup.Decontaminate)]):
            raise LedgerError(
                f"{folder} has no stage decontaminate; it has: {', '.join(label for label, _ in stages) or 'none'}"
            )
        with open_ledger(folder / EDITS, EDIT_SCHEMA) as edits:
            return count_contamination(edits, [each for label in labels for each in manifest["reports"].get(label, ())])


def run_url_hits(run: str | Path, min_documents: int = 1) -> "text.UrlHits":
    """Count the removals of a run's URL filter by domain and words, see :func:`longcrawl.text.url_hits`.

    URLs are read again from the run's source, and checked with the current lists. Matches that removed fewer than
    ``min_documents`` are omitted.

    Raises:
        LedgerError: the run has no URL filter, or its source no longer has all documents.
    """
    with open_run(run, LEDGER) as folder:
        manifest = read_manifest(folder)
        stages = parse_recipe(manifest["recipe"]).stages
        filters = [(label, stage) for label, stage in stages if isinstance(stage, text.UrlFilter)]
        if not filters:
            raise LedgerError(f"{folder} has no stage url_filter; it has: {', '.join(label for label, _ in stages)}")
        label, stage = filters[0]
        with open_ledger(folder / LEDGER) as ledger:
            gone = ledger.to_table(columns=["id"], filter=pc.field("stage") == label)["id"].combine_chunks()
        tables = _of(manifest, gone)
        if any(row.stage == DUPLICATE_IDS for row in Funnel.from_dict(manifest["funnel"])):
            rows = pa.concat_tables([pa.table({"id": gone.slice(0, 0), "url": pa.array([], pa.string())}), *tables])
            first = rows.group_by("id", use_threads=False).aggregate([("url", "first")])
            tables = iter([first.rename_columns(["id", "url"])])
        found = count_hits(tables, stage, min_documents)
        if found.documents != len(gone):
            raise LedgerError(
                f"{folder} removed {len(gone):,} documents by their URL, and its source now has {found.documents:,} of "
                "them: run the recipe again"
            )
        came = next(row.documents_in for row in Funnel.from_dict(manifest["funnel"]) if row.stage == label)
        return text.UrlHits(found.table, came, found.dropped)


def page_blocks(run: str | Path, document: str) -> "PageExplanation":
    """Show which blocks of a document's page a run kept, with the probability that each is content.

    The page is read again from the run's source. If that is not possible, ``note`` has the reason.

    Raises:
        LedgerError: the run does not extract texts by the engine "blocks".
        RunError: the run is not finished.
    """
    with open_run(run) as folder:
        manifest = read_manifest(folder)
    if (stage := _extraction(manifest)) is None:
        raise LedgerError(f"{run} does not extract text with the engine 'blocks', so its pages have no block scores")
    try:
        documents, damage = _read(manifest, {document}, ())
    except (LongCrawlError, OSError) as gone:
        documents, damage = {}, str(gone)
    if document not in documents:
        why_not = damage or "the source of the run does not have it any more"
        return text.PageExplanation((), f"the page cannot be read again: {why_not}")
    page = documents[document][HTML]
    return text.PageExplanation((), "the source has a text, and no page") if page is None else stage.explain_page(page)


def _extraction(manifest: Mapping[str, Any]) -> "text.ExtractText | None":
    """Return the stage that extracts texts by blocks, if a run has one and its source has pages."""
    settings: Mapping[str, Any] = next((each[EXTRACT] for each in manifest["recipe"]["stages"] if EXTRACT in each), {})
    if settings.get("engine") != "blocks" or HTML not in recorded_source(manifest["recipe"]).schema().names:
        return None
    return build(text.ExtractText, settings, f"stage {EXTRACT!r}", StageError)


class SamplePage(NamedTuple):
    """A kept or removed page, and its blocks."""

    reason: Reason
    url: str | None
    blocks: "PageExplanation"


SAMPLED, LARGEST_SAMPLE = 2, 1 << 20
"""Number of kept and of removed pages in a sample, and most characters of the HTML of each."""


def sample_pages(folder: Path) -> tuple[list[SamplePage], str | None]:
    """Explain the first pages that a run kept, and the first it removed, if it extracts texts by blocks.

    Only the beginning of the source's first part is read, up to 32 MB. Pages are missing if the output does not record
    ids of kept documents.

    Returns:
        The pages, and the reason why the source cannot be read, or None.
    """
    manifest, bad_files = read_manifest(folder), BadFiles("skip")
    try:
        if (stage := _extraction(manifest)) is None:
            return [], None
        source = recorded_source(manifest["recipe"])
        parts = _parts(source, manifest, set(), bad_files)
        tables = (table for part in parts for table in source.read(part, bad_files) if table.num_rows)
        rows = next(tables, source.schema().empty_table())
    except (LongCrawlError, OSError) as gone:
        return [], str(gone)
    rows = rows.filter(pc.less_equal(pc.utf8_length(rows[HTML]), LARGEST_SAMPLE))
    reasons = _reasons_of(folder, manifest, pc.cast(rows["id"], pa.string()))
    found, left = list[SamplePage](), {True: SAMPLED, False: SAMPLED}
    for number, name in enumerate(rows["id"].to_pylist()):
        reason = reasons.pop(name, None)  # a run keeps the first document of an id
        if reason is not None and left[reason.stage is None]:
            left[reason.stage is None] -= 1
            url = rows["url"][number].as_py() if "url" in rows.column_names else None
            found.append(SamplePage(reason, url, stage.explain_page(rows[HTML][number].as_py())))
    first = next(iter(bad_files.found), None)
    return found, None if first is None or found else f"{first.file} {first.reason}"


def _reasons_of(folder: Path, manifest: Mapping[str, Any], ids: pa.ChunkedArray) -> dict[str, Reason]:
    """Return why documents were removed or that they were kept; the result lacks those of which neither is known."""
    chosen = pc.field("id").cast(pa.string()).isin(ids.combine_chunks())
    result, output = find_result(folder)
    kept = result.ids(output) if result.records_ids and output.is_dir() else None
    known = chosen_rows(kept, chosen, ["id"])["id"].to_pylist() if kept is not None and kept.files else []
    reasons = {str(name): Reason(str(name)) for name in known}
    stages = [row.stage for row in Funnel.from_dict(manifest["funnel"])]
    with open_ledger(folder / LEDGER) as ledger:
        removed = chosen_rows(ledger, chosen & (pc.field("stage") != DUPLICATE_IDS)).to_pylist()
        named = follow(ledger, stages, [Reason(**row) for row in removed])
    return reasons | {reason.id: reason for reason in named}


def _of(manifest: dict[str, Any], ids: pa.Array) -> Iterator[pa.Table]:
    source, bad_files = recorded_source(manifest["recipe"]), BadFiles("skip")
    for part in source.splits()["train"] if len(ids) else ():
        if part.name in manifest["inputs"]:
            for table in source.read(part, bad_files):
                chosen = table.select(["id", "url"])
                yield chosen.filter(pc.is_in(pc.cast(chosen["id"], pa.string()), value_set=ids))


def source_documents(
    manifest: Mapping[str, Any], ids: Iterable[str], columns: Sequence[str] = ()
) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Read documents again from the source of a finished run, as they were before its first stage.

    The text of an HTML page is extracted as in the run, or None if the run has no such stage.

    Returns:
        ``text`` and other ``columns`` of each document by id, and the reason why some documents are missing, or None.
    """
    wanted = set(ids)
    try:
        documents, damage = _read(manifest, wanted, columns)
        _extract_texts(manifest, documents)
    except (LongCrawlError, OSError) as gone:
        return {}, str(gone)
    missing = sorted(wanted - documents.keys())
    if not missing:
        return documents, None
    return documents, damage or f"the source of the run does not have {missing[0]!r} any more"


def _read(
    manifest: Mapping[str, Any], wanted: set[str], columns: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], str | None]:
    source = recorded_source(manifest["recipe"])
    known = source.schema().names
    if "text" not in known:
        return {}, f"source {source.name!r} gives no texts"
    bad_files, documents = BadFiles("skip"), dict[str, dict[str, Any]]()
    names = ["id", "text", *(name for name in (*columns, HTML) if name in known)]
    ids = pa.array(sorted(wanted), pa.string())
    for part in _parts(source, manifest, wanted, bad_files):
        if documents.keys() == wanted:
            break
        for table in source.read(part, bad_files):
            found = table.select(names)
            found = found.filter(pc.is_in(found["id"], value_set=ids))
            for row in found.to_pylist():  # a run keeps the first document of an id
                documents.setdefault(row.pop("id"), row)
    first = next(iter(bad_files.found), None)
    return documents, None if first is None else f"{first.file} {first.reason}"


def _extract_texts(manifest: Mapping[str, Any], documents: Mapping[str, dict[str, Any]]) -> None:
    """Replace the HTML of pages with their text, if the run has a stage for that."""
    pages = {document: values.pop(HTML) for document, values in documents.items() if HTML in values}
    whole = {document: page for document, page in pages.items() if page is not None}
    settings = next((stage[EXTRACT] for stage in manifest["recipe"]["stages"] if EXTRACT in stage), None)
    if settings is None or not whole:
        return
    table = pa.table({"id": list(whole), HTML: pa.array(whole.values(), pa.large_string())})
    extracted, _ = build(text.ExtractText, settings, f"stage {EXTRACT!r}", StageError).edit(table)
    for document, found in zip(whole, extracted["text"].to_pylist(), strict=True):
        documents[document]["text"] = found


def _parts(source: Source, manifest: Mapping[str, Any], wanted: set[str], bad_files: BadFiles) -> list[Part]:
    """Return the parts that still exist, starting with those whose names begin an id, as by default."""
    inputs = input_names(manifest)
    named = set(inputs) if all(inputs.values()) else {part.name for part in source.splits()["train"]}
    there = []
    for name, files in inputs.items():
        gone = [file for file in files if not is_url(file) and not Path(file).exists()]
        if name in named and files and len(gone) == len(files):
            bad_files.report(files[0], "is gone")
        elif name in named:
            there.append(Part(name, tuple(files)))
        else:
            bad_files.report(name, "is gone")
    return sorted(there, key=lambda part: not any(document.startswith(part.name) for document in wanted))
