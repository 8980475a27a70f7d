"""Texts of documents that a run has read and not written, read again from its source."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.fields import build
from longcrawl.core.sources import BadFiles, Part, Source, make_source
from longcrawl.errors import LongCrawlError, StageError
from longcrawl.manifest import input_names
from longcrawl.text import ExtractText
from longcrawl.urls import is_url

HTML = "html"
EXTRACT = ExtractText.name


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
    settings = dict(manifest["recipe"]["source"])
    source = make_source(settings.pop("builder"), settings)
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
            documents.update((row.pop("id"), row) for row in found.to_pylist())
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
    inputs = input_names({"inputs": manifest["inputs"]})
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
