"""Indexes of earlier datasets that a run looks at, and those that it saves.

For each survey with ``index="save"``, ``RUN/index/STAGE/`` holds what the run has kept in the end, see
:mod:`longcrawl.dedup.index`. A document that a later stage removed is not in it, so its duplicate in a later dataset
may stay, as in RefinedWeb. One process makes it where it can hold all sketches, else tasks do, as those of
:mod:`longcrawl.run.removals`.
"""

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Stage
from longcrawl.dedup.index import DESCRIPTION, INDEX
from longcrawl.engines.base import Engine
from longcrawl.ledger.reasons import LEDGER
from longcrawl.manifest import WORK
from longcrawl.run.removals import group_inputs_by_size, grouped_sketches
from longcrawl.run.stored_parts import sketches
from longcrawl.storage.files import remove
from longcrawl.storage.place import is_there, names_in
from longcrawl.storage.sealed import Marker
from longcrawl.storage.stored_tables import read_table


def indexes_used(stages: Sequence[tuple[str, Stage]]) -> dict[str, dict[str, str]]:
    """Return what each stage looks at of earlier datasets, see :meth:`longcrawl.core.stages.Stage.used_indexes`."""
    return {label: used for label, stage in stages if (used := stage.used_indexes())}


def save_index(folder: Path, segment: int, inputs: int, label: str, survey: Stage, engine: Engine) -> Path:
    """Write to ``index/LABEL`` what a run has kept of the documents that a survey saw at the end of a segment.

    Returns the marker of the files.
    """
    work, index = folder / WORK, folder / INDEX / label
    marker, decisions = work / f"index-{label}.json", work / f"index-{label}"
    if Marker.read(marker) is None:
        batches = group_inputs_by_size(work, segment, range(inputs))
        kept = partial(_kept, folder, segment, _later_ledgers(folder, segment, label))
        if len(batches) > 1:
            survey.exchange_index(grouped_sketches(decisions, batches, kept), index, engine)
        else:
            survey.save_index(pa.concat_tables(kept(batches[0].inputs)), index)
        files = json.loads((index / DESCRIPTION).read_text("utf-8"))["files"]
        entries = {os.path.relpath(index / name, marker.parent): entry for name, entry in files.items()}
        Marker(marker, {}, entries | Marker.entries(marker, [index / DESCRIPTION])).write()
    engine.check()
    remove(decisions)
    return marker


def _later_ledgers(folder: Path, segment: int, label: str) -> list[str]:
    """Return how the names begin of the ledgers of what a survey and the stages after it removed."""
    begins = {Path(name).stem.rpartition("-")[0] for name in names_in(folder / LEDGER) if name.endswith(".parquet")}
    split = {begin: begin.partition("-") for begin in begins}
    return sorted(
        begin for begin, (at, _, by) in split.items() if int(at) > segment or (int(at) == segment and by == label)
    )


def _kept(
    folder: Path, segment: int, ledgers: Sequence[str], inputs: Sequence[int], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Return the sketches of the documents of inputs that are in none of their ledgers, or some columns of them."""
    for number in inputs:
        files = (folder / LEDGER / f"{begin}-{number:05d}.parquet" for begin in ledgers)
        chunks = (chunk for file in files if is_there(file) for chunk in read_table(file, ["id"])["id"].chunks)
        gone = pa.chunked_array([pa.array([], pa.string()), *chunks])
        for table in sketches(folder / WORK, segment, [number], None if columns is None else ["id", *columns]):
            kept = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
            yield kept if columns is None else kept.select(columns)
