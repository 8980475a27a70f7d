"""What a run says of its input as a whole: that there is none, or that documents of it have one id."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.builders.sources import Part, Source
from longcrawl.errors import RunError
from longcrawl.part import surviving_ids

__all__ = ["no_documents", "refuse_twin_documents", "train_parts"]

MOST_RULES = 5


def train_parts(source: Source) -> list[Part]:
    """Give the parts of a source's split "train", which a run reads.

    Raises:
        RunError: it has no such split.

    """
    splits = source.splits()
    if "train" not in splits:
        raise RunError(f"source {source.name!r} has no split 'train', it has: {', '.join(splits)}")
    return splits["train"]


def no_documents(
    source: str, recipe: Path, bad_files: Sequence[Mapping[str, Any]], left_out: Mapping[str, int]
) -> RunError:
    """Give the error of a source that gave nothing, with the first broken file and the rules that left records out."""
    said = f"source {source!r} gave no documents at all: look at its settings in {recipe}"
    if bad_files:
        said += f"; {len(bad_files):,} input file(s) could not be read whole, the first: "
        said += f"{bad_files[0]['file']}: {bad_files[0]['reason']}"
    if left_out:
        largest = sorted(left_out.items(), key=lambda rule: (-rule[1], rule[0]))[:MOST_RULES]
        told = ", ".join(f"{rule} {count:,}" for rule, count in largest)
        said += f"; {sum(left_out.values()):,} record(s) are no documents by the source's rules: {told}"
    return RunError(said)


def refuse_twin_documents(source: Source, work: Path, parts: Sequence[Part]) -> None:
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
