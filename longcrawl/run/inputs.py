"""What a run knows of its whole input: which files it read, that they are still the same, and that ids are unique."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sources import Part, Source
from longcrawl.errors import RunError
from longcrawl.ledger.analysis import LengthCounts, Lengths
from longcrawl.manifest.folder import INPUTS, WORK
from longcrawl.recipe import Recipe
from longcrawl.run.part import part_marker, surviving_ids
from longcrawl.run.target import any_done, first_pass
from longcrawl.sources.identity import InputFile, changed_files
from longcrawl.storage.sealed import Marker
from longcrawl.urls import without_secrets

__all__ = [
    "check_files",
    "check_stages",
    "described",
    "files_read",
    "no_documents",
    "pin_inputs",
    "reject_duplicate_documents",
    "source_lengths",
    "still_open",
    "train_parts",
]

MOST_RULES = 5
AGAIN = "Restore it and type the same command again, or type it with another --out folder"


def pin_inputs(
    folder: Path, recipe: Recipe, parts: Sequence[Part], stages: Mapping[str, str], indexes: Mapping[str, Any]
) -> None:
    """Record what a run begins with; check on resume that input, indexes, data files, tokenizer and code are the same.

    Raises:
        RunError: something has changed; the message names an input file.

    """
    content = hashlib.sha256(recipe.source.content().encode()).hexdigest()
    listing = {part.name: [without_secrets(file) for file in part.files] for part in parts}
    found = {"content": content, "parts": listing, "indexes": indexes, "stages": stages}
    pinned = folder / WORK / INPUTS
    if any_done(folder) and (pinned.exists() or any((folder / WORK).glob("segment-*/*.json"))):
        before = _pinned(folder)
        _check_listing(folder, before.get("parts", {}), listing)
        if any(before.get(name) != value for name, value in found.items()):
            raise _changed(folder)
        _check_finished_parts(folder, parts)
    Marker(pinned, found | {"recipe": first_pass(recipe)}, {}).write()


def check_stages(folder: Path, stages: Mapping[str, str]) -> None:
    """Check that no data file of a stage has changed under the run.

    Raises:
        RunError: one has, and a part of the result was made with what it held before.

    """
    if _pinned(folder)["stages"] != stages:
        raise _changed(folder)


def _pinned(folder: Path) -> Mapping[str, Any]:
    """Return what a run began with.

    Raises:
        RunError: it is lost. Unlike other work it is not made again, since whatever is there now would be taken for it.

    """
    marker = Marker.read(folder / WORK / INPUTS)
    if marker is None:
        raise RunError(
            f"{folder / WORK / INPUTS} is missing or damaged, and nothing else records what {folder} was made of. "
            f"Remove {folder}, and type the same command again"
        )
    return marker.content


def _changed(folder: Path) -> RunError:
    return RunError(
        f"the input of {folder} has changed since the run began: choose another folder, or remove that folder"
    )


def _check_listing(folder: Path, before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> None:
    old, new = ({file for files in listing.values() for file in files} for listing in (before, now))
    changes = [f"{file} is new" for file in sorted(new - old)] + [f"{file} is gone" for file in sorted(old - new)]
    if changes:
        raise RunError(
            f"the input of {folder} has changed since the run began ({changes[0]}). Undo that and type the same "
            "command again, or type it with another --out folder"
        )


def files_read(results: Sequence[Mapping[str, Any]]) -> list[list[InputFile]]:
    """Return the files that were read for each part, of what the markers of the first segment hold."""
    return [[InputFile.from_mark(values) for values in each.get("inputs", [])] for each in results]


def check_files(folder: Path, parts: Sequence[Part], read: Sequence[Sequence[InputFile]]) -> None:
    """Check that the files which were read are still the same.

    Raises:
        RunError: one is not, so that the manifest would name bytes which are not there any more.

    """
    known = [pair for part, files in zip(parts, read, strict=True) for pair in zip(part.files, files, strict=False)]
    for file, difference in changed_files(known):
        raise RunError(f"{file} has changed since {folder} read it: {difference}. {AGAIN}")


def _check_finished_parts(folder: Path, parts: Sequence[Part]) -> None:
    markers = [Marker.read(part_marker(folder / WORK, 0, number)) for number in range(len(parts))]
    done = [(part, marker.content) for part, marker in zip(parts, markers, strict=True) if marker is not None]
    check_files(folder, [part for part, _ in done], files_read([content for _, content in done]))


def described(parts: Sequence[Part], read: Sequence[Sequence[InputFile]]) -> dict[str, list[dict[str, Any]]]:
    """Return what a manifest says of the files that were read, by part."""
    return {part.name: [file.as_dict() for file in files] for part, files in zip(parts, read, strict=True)}


def still_open(reasons: Sequence[str], parts: int, folder: Path) -> RunError:
    """Return the error of a run whose parts are not all read since servers did not give their files."""
    return RunError(
        f"{len(reasons):,} of {parts:,} parts of {folder} are still open, the first: {reasons[0].rstrip('.')}. "
        "What is finished is kept: the same command asks for these parts again"
    )


def train_parts(source: Source) -> list[Part]:
    """Return the parts of a source's split "train", which a run reads.

    Raises:
        RunError: it has no such split.

    """
    splits = source.splits()
    if "train" not in splits:
        raise RunError(f"source {source.name!r} has no split 'train', it has: {', '.join(splits)}")
    return splits["train"]


def source_lengths(results: Sequence[dict[str, Any]]) -> Lengths | None:
    """Return the lengths of the texts of all parts; None where one of them does not know."""
    if any("lengths" not in each for each in results):
        return None
    counts = LengthCounts("characters")
    for each in results:
        counts.add_lengths(Lengths.from_dict(each["lengths"]))
    return counts.lengths()


def no_documents(
    source: str, recipe: Path, bad_files: Sequence[Mapping[str, Any]], left_out: Mapping[str, int]
) -> RunError:
    """Return the error of a source that gave nothing, with the first broken file and rules that excluded records."""
    said = f"source {source!r} gave no documents at all: look at its settings in {recipe}"
    if bad_files:
        said += f"; {len(bad_files):,} input file(s) could not be read whole, the first: "
        said += f"{bad_files[0]['file']}: {bad_files[0]['reason']}"
    if left_out:
        largest = sorted(left_out.items(), key=lambda rule: (-rule[1], rule[0]))[:MOST_RULES]
        counted = ", ".join(f"{rule} {count:,}" for rule, count in largest)
        said += f"; {sum(left_out.values()):,} record(s) are no documents by the source's rules: {counted}"
    return RunError(said)


def reject_duplicate_documents(source: Source, work: Path, parts: Sequence[Part]) -> None:
    """Refuse documents of one id among those that the first segment kept, before surveys spend hours on them.

    Raises:
        RunError: naming one such id, and the input files that have it.

    """
    ids = [surviving_ids(work, 0, number) for number in range(len(parts))]
    counts = pc.value_counts(pa.chunked_array(ids, pa.large_string()))
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if not len(twice):
        return
    names = [_file_of(part) for part, here in zip(parts, ids, strict=True) if pc.index(here, twice[0]).as_py() >= 0]
    by_naming = " by naming all others, --set 'source.data_files=[FILE, FILE]'" if hasattr(source, "data_files") else ""
    where, out = f"twice in {names[0]}", "that file, or its copies,"
    if len(names) > 1:
        where, out = f"in {names[0]} and in {names[1]}", "one of the two"
    raise RunError(
        f"deduplication needs unique ids, {len(twice):,} occur more than once, such as {twice[0].as_py()!r}, {where}: "
        f"leave {out} out of the source{by_naming}, and choose another folder"
    )


def _file_of(part: Part) -> str:
    return part.files[0] if part.files else part.name
