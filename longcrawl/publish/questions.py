"""Questions to a run on disk: its funnel, why a document was removed, what it holds.

Texts of documents that the run has not written are read again from its source.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.core.display import Table
from longcrawl.core.funnel import Funnel, RemovalRates, value_tables
from longcrawl.core.ledger import (
    DUPLICATE_IDS,
    EDITS,
    LEDGER,
    Clusters,
    Contamination,
    Reason,
    TextEdit,
    count_contamination,
    find_clusters,
    find_edits,
    find_reason,
    open_ledger,
)
from longcrawl.core.outputs import RESULTS, Inspection, Result
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.core.registry import build
from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.dedup import Decontaminate
from longcrawl.errors import (
    CorruptionError,
    FormatError,
    LedgerError,
    LongCrawlError,
    RunError,
    SourceError,
    StageError,
    listed,
    unreadable,
)
from longcrawl.io.files import bring, bring_folder, given_url, name_of
from longcrawl.io.stored_tables import DAMAGED
from longcrawl.io.structured import check_unchanged
from longcrawl.run.analysis import Analysis, analyse
from longcrawl.run.manifest import (
    MANIFEST,
    emptied_funnel,
    holds_run,
    input_names,
    lost_ledger,
    open_run,
    read_manifest,
)
from longcrawl.run.recipe import parse_recipe, recorded_source
from longcrawl.text import ExtractText, UrlFilter, UrlHits
from longcrawl.text.refinedweb.url_filter import count_hits
from longcrawl.urls import is_url


def find_result(folder: Path) -> tuple[Result, Path]:
    """Return the facts of a finished run's output, or of an output by itself, and its folder."""
    if holds_run(folder):
        name = read_manifest(folder)["output"]["format"]
        return RESULTS[name], folder / name
    known = [name for file, name in RESULTS.described().items() if (folder / file).exists()]
    run, name = folder.absolute().parent, folder.absolute().name
    if not known and (folder / f"{name}.json").exists() and holds_run(run) and (run / MANIFEST).exists():
        known = [name] if read_manifest(run)["output"]["format"] == name else []  # which loads its package
    # A rectangle in the original layout has no description.
    return RESULTS[(known or ["rectangle"])[0]], folder


def holds_arrays(folder: Path) -> bool:
    """Return whether a folder may be a rectangle in the original layout, which is Zarr arrays."""
    metadata = ("zarr.json", ".zgroup", ".zarray")
    return any(any(folder.glob(pattern)) for name in metadata for pattern in (name, f"*/{name}", f"*/*/{name}"))


def check_exists(path: Path) -> None:
    """Raise FormatError where there is nothing at a path."""
    if not path.exists():
        raise FormatError(f"there is no file or folder {path}: check the path")


def check_whole(output: Path, result: Result) -> None:
    """Raise FormatError where a folder is a part of an output, such as a split of a rectangle."""
    if not (output / result.description).exists() and holds_arrays(output) and (whole := RESULTS.around(output)):
        raise FormatError(f"{output} is a part of {whole[0]}: name that")


def check_recorded(path: str | Path, end_of_text: int | None) -> None:
    """Raise SourceError for an end of text other than the one that the output at a path, or around it, records."""
    asked = end_of_text is not None and not is_url(str(path))
    whole = RESULTS.around(find_result(Path(path))[1]) if asked else None
    if whole is not None and whole[1].get("end_of_text", end_of_text) != end_of_text:
        raise SourceError(f"{whole[0]} records its end of text: leave end_of_text out (--end-of-text)")


def whole_result(folder: Path) -> tuple[Result, Path]:
    """Return the same, after comparing the description of the output with its own SHA-256."""
    check_exists(folder)
    result, output = find_result(folder)
    if (output / result.description).exists():
        check_unchanged(output / result.description)
    check_whole(output, result)
    if not (output / result.description).exists() and not holds_arrays(output):
        raise FormatError(
            f"{folder} holds neither a run nor an output that is known: check the path, install the package of the "
            f"output, or look at token shards with longcrawl verify {folder}"
        )
    return result, output


HTML = "html"
EXTRACT = ExtractText.name
FETCHED = 4 << 30
"""Bytes of a run behind a URL that one question fetches, at most."""


def funnel(run: str | Path) -> Funnel:
    """Return how many documents each stage kept, for a run; also for one that no document remained of."""
    with open_run(run) as folder:
        emptied = emptied_funnel(folder)
        return Funnel.from_dict(read_manifest(folder)["funnel"]) if emptied is None else emptied


def removal_rates(run: str | Path) -> RemovalRates:
    """Return the percentage that each stage of a run kept, beside the figures that its recipe refers to."""
    with open_run(run) as folder:
        return RemovalRates.from_manifest(read_manifest(folder))


def why(run: str | Path, document: str) -> Reason:
    """Describe why a document was removed from a run, or that it was kept, and what was changed in it.

    Of a run behind a URL the ledger is fetched and, for a document that is not in it, the tables of those kept.

    Raises:
        LedgerError: the run never had a document of this id, or has lost a file that may say so.
        CorruptionError: a file that may say so is not as it was written.
    """
    with open_run(run, LEDGER, EDITS) as folder:
        return _why(folder, document)


def _why(folder: Path, document: str) -> Reason:
    if (emptied := emptied_funnel(folder)) is not None:
        if (reason := _removal(folder, emptied, document)[0]) is not None:
            return reason
        with open_ledger(folder / LEDGER) as ledger:
            named = ledger.head(1, columns=["id"])["id"].to_pylist()
        like = f"ids look like {named[0]!r}" if named else "its ledger is lost, run the recipe again"
        raise LedgerError(f"{folder} never had a document {document!r}; {like}")
    manifest = read_manifest(folder)
    if lost := lost_ledger(folder, manifest):
        raise LedgerError(
            f"{folder} has lost {lost}, which may say what became of the document: copy it back, or type "
            f"longcrawl verify {folder}"
        )
    reason, edits = _removal(folder, Funnel.from_dict(manifest["funnel"]), document)
    if reason is not None:
        return reason
    result, output = find_result(folder)
    if not result.records_ids:
        raise LedgerError(
            f"{output} records no ids of kept documents: write ids() of {type(result).__name__}, or ask for a removed "
            "document"
        )
    bring_folder(output)
    ids = result.ids(output)
    if not ids.files:
        raise LedgerError(f"{output} has lost the tables of its documents; longcrawl verify says what is missing")
    if _is_among(ids, document, type(result).__name__):
        return Reason(document, edits=edits)
    named = ids.head(1, columns=["id"])["id"].to_pylist()
    like = f"ids look like {named[0]!r}, as in {ids.files[-1]}" if named else "it has no documents"
    if rules := manifest["left_out"]:
        like += "; its source left out, by rule: " + ", ".join(f"{rule} {count:,}" for rule, count in rules.items())
    raise LedgerError(f"{folder} never had a document {document!r}; {like}")


def _removal(folder: Path, funnel: Funnel, document: str) -> tuple[Reason | None, tuple[TextEdit, ...]]:
    """Return why a document was removed, None if it was not, and what was changed in it."""
    with open_ledger(folder / LEDGER) as ledger:
        reason = find_reason(ledger, [row.stage for row in funnel], document)
    with open_ledger(folder / EDITS, EDIT_SCHEMA) as ledger:
        edits = find_edits(ledger, document)
    return None if reason is None else replace(reason, edits=edits), edits


def clusters(run: str | Path, stage: str | None = None, most: int = 10) -> Clusters:
    """Return the largest clusters of duplicates of a run, each with a diff of two of its documents.

    Chains are followed: if the kept document was removed later, the cluster belongs to the final survivor. Texts are
    read again from the run's source, as they were before its first stage; where that is gone, ``note`` says so.

    Args:
        run: the folder of a finished run.
        stage: look at what this stage removed only.
        most: how many clusters to return.

    Raises:
        LedgerError: the run has no such stage, or ``most`` is less than 1.
        CorruptionError: the ledger is not as it was written.
    """
    with open_run(run, LEDGER) as folder:
        manifest = read_manifest(folder)
        stages = [row.stage for row in Funnel.from_dict(manifest["funnel"])]
        with open_ledger(folder / LEDGER) as ledger:
            found = find_clusters(ledger, stages, stage, most)
    return found.with_texts(*source_texts(manifest, found.compared()))


def contamination(run: str | Path) -> Contamination:
    """Return what the stage ``decontaminate`` of a run found of evaluation sets, by evaluation set and item.

    Raises:
        LedgerError: the run has no such stage.
        CorruptionError: the ledger is not as it was written.
    """
    with open_run(run, EDITS) as folder:
        manifest = read_manifest(folder)
        stages = parse_recipe(manifest["recipe"]).stages
        if not (labels := [label for label, stage in stages if isinstance(stage, Decontaminate)]):
            raise LedgerError(
                f"{folder} has no stage decontaminate; it has: {', '.join(label for label, _ in stages) or 'none'}"
            )
        with open_ledger(folder / EDITS, EDIT_SCHEMA) as edits:
            return count_contamination(edits, [each for label in labels for each in manifest["reports"].get(label, ())])


def inspect(path: str | Path, split: str = "train", row: int = 0) -> Inspection:
    """Return what a split of a run's output, or of an output by itself, holds, and one of its rows as text.

    Of a run behind a URL the output is fetched, if it has at most ``FETCHED`` bytes.

    Raises:
        FormatError: no such output, split or row at ``path``.
        RunError: the run is not finished, or is too large to be fetched.
    """
    with open_output(path) as folder:
        result, output = whole_result(folder)
        found = result.inspect(output, split, row)
        return replace(found, path=name_of(Path(found.path)))


def analysis(path: str | Path) -> Analysis:
    """Return how long documents are, which sites they come from and which languages they are in.

    A run has counted that already, of an output alone it is counted now; an original LongCrawl64 does not say.

    Raises:
        RunError: the run is not finished.
        CorruptionError: a file cannot be read.
    """
    if given_url(path) is not None:
        with open_run(path) as folder:
            return Analysis.from_dict(read_manifest(folder)["analysis"])
    folder = Path(path)
    result, output = whole_result(folder)
    return analyse(result.ids(output)) if output == folder else Analysis.from_dict(read_manifest(folder)["analysis"])


def counted(path: str | Path) -> list[Table]:
    """Return what the stages of a run count by a column, such as the languages of its whole source; [] of an output.

    Raises:
        RunError: the run is not finished.
    """
    of_run = given_url(path) is not None or find_result(Path(path))[1] != Path(path)
    return value_tables(funnel(path)) if of_run else []


@contextmanager
def open_output(path: str | Path, *, tables_of_lengths: bool = False) -> Iterator[Path]:
    """Return the folder of a run, or of an output by itself; of a run behind a URL, a place with its output.

    Args:
        path: a folder or a URL, as :func:`longcrawl.run.manifest.open_run` takes them.
        tables_of_lengths: of an output that has tables with lengths of documents, fetch no other files.

    Raises:
        RunError: there is no finished run at this URL, or more than ``FETCHED`` bytes would be fetched.
    """
    with open_run(path) as folder:
        if given_url(path) is not None:
            manifest = read_manifest(folder)
            result = RESULTS[manifest["output"]["format"]]
            tables = result.lengths.partition("/")[0] if tables_of_lengths else ""
            part = folder / result.name / tables
            size = sum(
                each["bytes"] for name, each in manifest["files"].items() if (folder / name).is_relative_to(part)
            )
            if size > FETCHED:
                raise RunError(
                    f"{path}: {size:,} bytes would be fetched for this: copy the run to a folder, and name that"
                )
            bring(folder / result.name / result.description)
            bring_folder(part)
        yield folder


def _is_among(ids: pads.FileSystemDataset, document: str, made_by: str) -> bool:
    """Return whether a document of this id is in tables."""
    with unreadable(Path(ids.files[0]).parent, CorruptionError, DAMAGED):
        if "id" not in ids.schema.names:
            raise LedgerError(
                f"ids() of {made_by} has no column 'id' but {listed(ids.schema.names)}: let it return the ids of "
                "documents, or ask for a removed document"
            )
        return bool(ids.count_rows(filter=pc.field("id").cast(pa.large_string()) == document))


def run_url_hits(run: str | Path, min_documents: int = 1) -> UrlHits:
    """Count what the URL filter of a run removed by domain and words, see :func:`longcrawl.text.url_hits`.

    The ledger names the removed documents, their URLs are read again from the run's source, and the filter of the run
    judges them, with its lists as they are now.

    Args:
        run: the folder of a finished run.
        min_documents: leave out what removed fewer.

    Raises:
        LedgerError: the run has no URL filter, or its source does not have all documents any more.
    """
    with open_run(run, LEDGER) as folder:
        return _run_url_hits(folder, min_documents)


def _run_url_hits(folder: Path, min_documents: int) -> UrlHits:
    manifest = read_manifest(folder)
    stages = parse_recipe(manifest["recipe"]).stages
    filters = [(label, stage) for label, stage in stages if isinstance(stage, UrlFilter)]
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
            f"{folder} removed {len(gone):,} documents by their URL, its source has {found.documents:,} of them now: "
            "run the recipe again"
        )
    came = next(row.documents_in for row in Funnel.from_dict(manifest["funnel"]) if row.stage == label)
    return UrlHits(found.table, came, found.dropped)


def _of(manifest: dict[str, Any], ids: pa.Array) -> Iterator[pa.Table]:
    """Read the URLs of some documents from the source of a run."""
    source, bad_files = recorded_source(manifest["recipe"]), BadFiles("skip")
    for part in source.splits()["train"] if len(ids) else ():
        if part.name in manifest["inputs"]:
            for table in source.read(part, bad_files):
                chosen = table.select(["id", "url"])
                yield chosen.filter(pc.is_in(pc.cast(chosen["id"], pa.string()), value_set=ids))


def source_texts(manifest: Mapping[str, Any], ids: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """Return the texts alone of what :func:`source_documents` reads.

    Returns:
        The texts by id, and one sentence that says why some are not there, or None.
    """
    found, reason = source_documents(manifest, ids)
    texts = {document: values["text"] for document, values in found.items() if values["text"] is not None}
    if reason is None and len(texts) < len(found):
        reason = f"the source has no text of {min(found.keys() - texts.keys())!r}"
    return texts, None if reason is None else f"No diff where a text is missing: {reason}"


def source_documents(
    manifest: Mapping[str, Any], ids: Iterable[str], columns: Sequence[str] = ()
) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Read documents again from the source of a finished run, as they were before its first stage.

    The text of a page of HTML is extracted as the run has done it, and None where it has not. Parts whose name an id
    begins with are read first, and reading ends with the last document: sources name documents after their part unless
    set otherwise.

    Args:
        manifest: that of the run.
        ids: the documents.
        columns: what to give besides ``text``, as far as the source has it.

    Returns:
        The columns of each document by id, and why some documents are not there, or None.
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
            for row in found.to_pylist():  # of several documents of one id, a run keeps the first
                documents.setdefault(row.pop("id"), row)
    first = next(iter(bad_files.found), None)
    return documents, None if first is None else f"{first.file} {first.reason}"


def _extract_texts(manifest: Mapping[str, Any], documents: Mapping[str, dict[str, Any]]) -> None:
    """Put the texts of pages in the place of their HTML, where the run has a stage for that."""
    pages = {document: values.pop(HTML) for document, values in documents.items() if HTML in values}
    whole = {document: page for document, page in pages.items() if page is not None}
    settings = next((stage[EXTRACT] for stage in manifest["recipe"]["stages"] if EXTRACT in stage), None)
    if settings is None or not whole:
        return
    table = pa.table({"id": list(whole), HTML: pa.array(whole.values(), pa.large_string())})
    extracted, _ = build(ExtractText, settings, f"stage {EXTRACT!r}", StageError).edit(table)
    for document, text in zip(whole, extracted["text"].to_pylist(), strict=True):
        documents[document]["text"] = text


def _parts(source: Source, manifest: Mapping[str, Any], wanted: set[str], bad_files: BadFiles) -> list[Part]:
    """Return the parts that are still there, those that name a document first."""
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
