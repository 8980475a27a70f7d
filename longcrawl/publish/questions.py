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
    Reason,
    TextEdit,
    find_edits,
    find_reason,
    open_ledger,
)
from longcrawl.core.outputs import RESULTS, Inspection, Result
from longcrawl.core.places import PAGE_EDIT_SCHEMA
from longcrawl.core.queues import Queues, read_queues
from longcrawl.errors import (
    CorruptionError,
    FormatError,
    LedgerError,
    RunError,
    SourceError,
    listed,
    unreadable,
)
from longcrawl.io.files import bring, bring_folder, given_url, name_of
from longcrawl.io.stored_tables import DAMAGED, chosen_rows
from longcrawl.io.structured import check_unchanged
from longcrawl.publish.sizes import check_exists
from longcrawl.run.manifest import (
    MANIFEST,
    emptied_funnel,
    holds_run,
    lost_ledger,
    open_run,
    read_manifest,
)
from longcrawl.urls import is_url

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from longcrawl.run.analysis import Analysis


def find_result(folder: Path) -> tuple[Result, Path]:
    """Return the result type and folder of a finished run's output, or of a single output."""
    if holds_run(folder):
        name = read_manifest(folder)["output"]["format"]
        return RESULTS[name], folder / name
    known = [name for file, name in RESULTS.described().items() if (folder / file).exists()]
    run, name = folder.absolute().parent, folder.absolute().name
    if not known and (folder / f"{name}.json").exists() and holds_run(run) and (run / MANIFEST).exists():
        # Reading the manifest loads the package of the output.
        known = [name] if read_manifest(run)["output"]["format"] == name else []
    # A rectangle in the original layout has no description.
    return RESULTS[(known or ["rectangle"])[0]], folder


def holds_arrays(folder: Path) -> bool:
    """Return whether a folder may be a rectangle in the original layout, which consists of Zarr arrays."""
    if (folder / "shard_ledger.json").is_file():
        return False  # a cache of Levanter
    metadata = ("zarr.json", ".zgroup", ".zarray")
    return any(any(folder.glob(pattern)) for name in metadata for pattern in (name, f"*/{name}", f"*/*/{name}"))


def check_whole(output: Path, result: Result) -> None:
    """Raise FormatError if a folder is only part of an output, such as a split of a rectangle."""
    if not (output / result.description).exists() and holds_arrays(output) and (whole := RESULTS.around(output)):
        raise FormatError(f"{output} is a part of {whole[0]}: give that path")


def check_recorded(path: str | Path, end_of_text: int | None) -> None:
    """Raise SourceError if an end of text differs from that of the output at or around a path."""
    asked = end_of_text is not None and not is_url(str(path))
    whole = RESULTS.around(find_result(Path(path))[1]) if asked else None
    if whole is not None and whole[1].get("end_of_text", end_of_text) != end_of_text:
        raise SourceError(f"{whole[0]} records its end of text: remove end_of_text (--end-of-text)")


def whole_result(folder: Path) -> tuple[Result, Path]:
    """Find the output of a run or folder, and compare its description with the recorded SHA-256."""
    check_exists(folder)
    result, output = find_result(folder)
    if (output / result.description).exists():
        check_unchanged(output / result.description)
    check_whole(output, result)
    if not (output / result.description).exists() and not holds_arrays(output):
        raise FormatError(
            f"{folder} holds neither a run nor a known output: check the path, install the package of the "
            f"output, or look at token shards with longcrawl verify {folder}"
        )
    return result, output


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
                f"{folder} is missing {lost}, which may have the document: restore it, or run longcrawl verify {folder}"
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
            f"{output} records no ids of kept documents: implement ids() of {type(result).__name__}, or ask for a "
            "removed document"
        )
    bring_folder(output)
    ids = result.ids(output)
    if not ids.files:
        raise LedgerError(f"{output} is missing the tables of its documents; longcrawl verify lists them")
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
    with open_ledger(folder / EDITS, PAGE_EDIT_SCHEMA) as ledger:
        edits = find_edits(ledger, document)
    return None if reason is None else replace(reason, edits=edits), edits


def queue(run: str | Path) -> Queues:
    """Return the documents of a run with pages for OCR, and those to fetch again.

    Raises:
        RunError: the run is not finished.
        LedgerError: a file of a queue is missing or damaged.
    """
    with open_run(run, *QUEUES) as folder:
        # A crawl of scans alone has no result, and still has its queue.
        if emptied_funnel(folder) is None and (lost := lost_ledger(folder, read_manifest(folder), QUEUES)):
            raise LedgerError(f"{folder} is missing {lost}: restore it, or run longcrawl verify {folder}")
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
                raise RunError(f"{path}: {size:,} bytes would be downloaded for this: copy the run to a folder first")
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
