"""What a run writes for later ones: for each survey with ``index="save"``, what the run has kept in the end.

``RUN/index/STAGE/`` holds it, see :mod:`longcrawl.dedup.index`. A document that a later stage removed is not in it, so
its duplicate in a later dataset may stay, as in RefinedWeb.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Stage
from longcrawl.dedup.index import DESCRIPTION, INDEX
from longcrawl.manifest.folder import WORK
from longcrawl.run.part import sketches
from longcrawl.storage.sealed import Marker
from longcrawl.storage.stored_tables import read_table

__all__ = ["indexes_used", "save_index"]


def indexes_used(stages: Sequence[tuple[str, Stage]]) -> dict[str, dict[str, str]]:
    """Return what each stage looks at of earlier datasets, see :meth:`longcrawl.core.stages.Stage.used_indexes`."""
    return {label: used for label, stage in stages if (used := stage.used_indexes())}


def save_index(folder: Path, segment: int, inputs: int, label: str, survey: Stage) -> Path:
    """Write what a run has kept of the documents that a survey saw at the end of a segment, and return its marker.

    Args:
        folder: the run's.
        segment: number of the segment.
        inputs: how many the run has.
        label: of the survey; the index goes to ``index/LABEL``.
        survey: the survey.

    """
    gone = _gone(folder, segment, label)
    kept = [
        table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
        for table in sketches(folder / WORK, segment, range(inputs))
    ]
    index, marker = folder / INDEX / label, folder / WORK / f"index-{label}.json"
    survey.save_index(pa.concat_tables(kept), index)
    files = json.loads((index / DESCRIPTION).read_text("utf-8"))["files"]
    entries = {os.path.relpath(index / name, marker.parent): entry for name, entry in files.items()}
    Marker(marker, {}, entries | Marker.entries(marker, [index / DESCRIPTION])).write()
    return marker


def _gone(folder: Path, segment: int, label: str) -> pa.Array:
    """Return the ids of removed documents after a survey saw them: by its own ledger and those of later segments."""
    found = [pa.array([], pa.string())]
    for path in sorted((folder / "ledger").glob("*.parquet")):
        number, _, rest = path.stem.partition("-")
        if int(number) > segment or (int(number) == segment and rest == label):
            found += read_table(path, ["id"])["id"].chunks
    return pa.concat_arrays(found)
