"""Texts of documents that a run has read and not written, read once more from its source."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.builders.sources import BadFiles, Part, Source, make_source
from longcrawl.errors import LongCrawlError

__all__ = ["source_texts"]


def source_texts(manifest: Mapping[str, Any], ids: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """Read documents again from the source of a finished run, as they were before its first stage.

    Parts whose name an id begins with are read first, and reading ends with the last document: sources name documents
    after their part unless they are told otherwise.

    Args:
        manifest: that of the run.
        ids: the documents.

    Returns:
        The texts by id, and one sentence that says why some are not there, or None.

    """
    wanted = set(ids)
    try:
        texts, damage = _read(manifest, wanted)
    except (LongCrawlError, OSError) as gone:
        return {}, f"No diff where a text is missing: {gone}"
    missing = sorted(wanted - texts.keys())
    if not missing:
        return texts, None
    reason = damage or f"the source of the run does not have {missing[0]!r} any more"
    return texts, f"No diff where a text is missing: {reason}"


def _read(manifest: Mapping[str, Any], wanted: set[str]) -> tuple[dict[str, str], str | None]:
    settings = dict(manifest["recipe"]["source"])
    source = make_source(settings.pop("builder"), settings)
    if "text" not in source.schema().names:
        return {}, f"source {source.name!r} gives no texts"
    bad_files, texts = BadFiles("skip"), dict[str, str]()
    for part in _parts(source, manifest, wanted, bad_files):
        if texts.keys() == wanted:
            break
        for table in source.read(part, bad_files):
            found = table.select(["id", "text"])
            found = found.filter(pc.is_in(found["id"], value_set=pa.array(sorted(wanted), pa.string())))
            texts.update(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))
    first = next(iter(bad_files.found), None)
    return texts, None if first is None else f"{first.file} {first.reason}"


def _parts(source: Source, manifest: Mapping[str, Any], wanted: set[str], bad_files: BadFiles) -> list[Part]:
    """Give the parts that are still there, those that name a document first."""
    inputs: dict[str, list[str]] = manifest["inputs"]
    named = set(inputs) if all(inputs.values()) else {part.name for part in source.splits()["train"]}
    there = []
    for name, files in inputs.items():
        gone = [file for file in files if "://" not in file and not Path(file).exists()]
        if name in named and files and len(gone) == len(files):
            bad_files.report(files[0], "is gone")
        elif name in named:
            there.append(Part(name, tuple(files)))
        else:
            bad_files.report(name, "is gone")
    return sorted(there, key=lambda part: not any(document.startswith(part.name) for document in wanted))
