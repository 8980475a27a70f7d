"""Queries of a run on disk: the removal of a document, clusters, queues, the contents of its output."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.counts import EDITS, LEDGER, QUEUES
from longcrawl.core.display import Table
from longcrawl.core.funnel import Funnel, value_tables
from longcrawl.core.ledger import (
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
from longcrawl.core.outputs import RESULTS, Inspection
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.core.queues import Queues, read_queues
from longcrawl.errors import (
    CorruptionError,
    LedgerError,
    RunError,
    listed,
    unreadable,
)
from longcrawl.io.files import bring, bring_folder, given_url, name_of
from longcrawl.io.stored_tables import DAMAGED, chosen_rows
from longcrawl.run.manifest import (
    emptied_funnel,
    lost_ledger,
    open_run,
    read_manifest,
)
from longcrawl.run.results import find_result, whole_result
from longcrawl.urls import is_url

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from longcrawl.run.analysis import Analysis


FETCHED = 4 << 30
"""Most bytes of a remote run that one query fetches."""


def why(run: str | Path, document: str) -> Reason:
    """Describe why a document was removed from a run, or that it was kept, and the changes to its text.

    A kept document is also found by its URL, if its output records URLs.

    Raises:
        LedgerError: the run never had a document with this id, or has lost a file that may have it.
        CorruptionError: a file that may have it was changed.
    """
    with open_run(run, LEDGER, EDITS) as folder:
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
                f"{folder} has lost {lost}, which may have the document: copy it back, or type longcrawl verify "
                f"{folder}"
            )
        reason, edits = _removal(folder, Funnel.from_dict(manifest["funnel"]), document)
        if reason is not None:
            return reason
        return _kept(folder, document, edits)


def _kept(folder: Path, document: str, edits: tuple[TextEdit, ...]) -> Reason:
    """Return that a run kept a document, found by its id or URL; LedgerError if it did not."""
    result, output = find_result(folder)
    if not result.records_ids:
        raise LedgerError(
            f"{output} records no ids of kept documents: write ids() of {type(result).__name__}, or ask for a "
            "removed document"
        )
    bring_folder(output)
    ids = result.ids(output)
    if not ids.files:
        raise LedgerError(f"{output} has lost the tables of its documents; longcrawl verify lists what is missing")
    if _is_among(ids, document, type(result).__name__):
        return Reason(document, edits=edits)
    named = ids.head(1, columns=["id"])["id"].to_pylist()
    like = f"ids look like {named[0]!r}, as in {ids.files[-1]}" if named else "it has no documents"
    if is_url(document) and "url" in ids.schema.names:
        called = chosen_rows(ids, pc.field("url").cast(pa.large_string()) == document, ["id"])["id"].to_pylist()
        if len(called) == 1:
            return why(folder, called[0])
        if called:
            raise LedgerError(f"{len(called)} documents have the URL {document}: ask for one id of {listed(called)}")
        like += "; a URL only finds kept documents: take a removed one's id from the columns id and url of its source"
    if rules := read_manifest(folder)["left_out"]:
        like += "; its source left out, by rule: " + ", ".join(f"{rule} {count:,}" for rule, count in rules.items())
    raise LedgerError(f"{folder} never had a document {document!r}; {like}")


def _removal(folder: Path, funnel: Funnel, document: str) -> tuple[Reason | None, tuple[TextEdit, ...]]:
    with open_ledger(folder / LEDGER) as ledger:
        reason = find_reason(ledger, [row.stage for row in funnel], document)
    with open_ledger(folder / EDITS, EDIT_SCHEMA) as ledger:
        edits = find_edits(ledger, document)
    return None if reason is None else replace(reason, edits=edits), edits


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
    from longcrawl.publish.reread import source_documents

    documents, reason = source_documents(manifest, found.compared())
    texts = {document: values["text"] for document, values in documents.items() if values["text"] is not None}
    if reason is None and len(texts) < len(documents):
        reason = f"the source has no text of {min(documents.keys() - texts.keys())!r}"
    return found.with_texts(texts, None if reason is None else f"No diff where a text is missing: {reason}")


def contamination(run: str | Path) -> Contamination:
    """Return the contamination that the stage ``decontaminate`` of a run found; LedgerError if there is none."""
    from longcrawl.dedup import Decontaminate
    from longcrawl.run.recipe import parse_recipe

    with open_run(run, EDITS) as folder:
        manifest = read_manifest(folder)
        stages = parse_recipe(manifest["recipe"]).stages
        if not (labels := [label for label, stage in stages if isinstance(stage, Decontaminate)]):
            raise LedgerError(
                f"{folder} has no stage decontaminate; it has: {', '.join(label for label, _ in stages) or 'none'}"
            )
        with open_ledger(folder / EDITS, EDIT_SCHEMA) as edits:
            return count_contamination(edits, [each for label in labels for each in manifest["reports"].get(label, ())])


def queue(run: str | Path) -> Queues:
    """Return the documents of a run with pages for OCR, and those to fetch again.

    Raises:
        RunError: the run is not finished.
        LedgerError: a file of a queue is missing or damaged.
    """
    with open_run(run, *QUEUES) as folder:
        # A crawl of scans alone has no result, and still has its queue.
        if emptied_funnel(folder) is None and (lost := lost_ledger(folder, read_manifest(folder), QUEUES)):
            raise LedgerError(f"{folder} has lost {lost}: copy it back, or type longcrawl verify {folder}")
        return read_queues(folder, str(run))


def inspect(path: str | Path, split: str = "train", row: int = 0) -> Inspection:
    """Return the contents of a split of a run's output or of a single output, and one of its rows as text.

    Raises:
        FormatError: ``path`` has no such output, split or row.
        RunError: the run is not finished, or is too large to be fetched.
    """
    with open_output(path) as folder:
        result, output = whole_result(folder)
        found = result.inspect(output, split, row)
        return replace(found, path=name_of(Path(found.path)))


def analysis(path: str | Path) -> "Analysis":
    """Return the lengths, domains and languages of documents of a run, or count them in a single output."""
    if given_url(path) is None:
        result, output = whole_result(Path(path))
        if output == Path(path):
            return _analysis(result.ids(output))
    with open_run(path) as folder:
        return _analysis(read_manifest(folder)["analysis"])


def _analysis(counted: "Mapping[str, Any] | pads.FileSystemDataset") -> "Analysis":
    from longcrawl.run.analysis import Analysis, analyse

    return Analysis.from_dict(counted) if isinstance(counted, Mapping) else analyse(counted)


def overview(path: str | Path) -> "tuple[Inspection, Analysis, list[Table]]":
    """Return the first row, the analysis, and for a run the tables of columns that its stages count."""
    with open_output(path) as folder:
        result, output = whole_result(folder)
        found = result.inspect(output, "train", 0)
        found = replace(found, path=name_of(Path(found.path)))
        if output == folder:
            return found, _analysis(result.ids(output)), []
        manifest = read_manifest(folder)
        return found, _analysis(manifest["analysis"]), value_tables(Funnel.from_dict(manifest["funnel"]))


@contextmanager
def open_output(path: str | Path, *, tables_of_lengths: bool = False) -> Iterator[Path]:
    """Yield the folder of a run or of a single output; for a run behind a URL, a local copy with its output.

    With ``tables_of_lengths``, only the tables with lengths of documents are fetched, if the output has any. RunError
    if more than ``FETCHED`` bytes would be fetched.
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


def _is_among(ids: "pads.FileSystemDataset", document: str, made_by: str) -> bool:
    with unreadable(Path(ids.files[0]).parent, CorruptionError, DAMAGED):
        if "id" not in ids.schema.names:
            raise LedgerError(
                f"ids() of {made_by} has no column 'id' but {listed(ids.schema.names)}: let it return the ids of "
                "documents, or ask for a removed document"
            )
        return bool(ids.count_rows(filter=pc.field("id").cast(pa.large_string()) == document))
