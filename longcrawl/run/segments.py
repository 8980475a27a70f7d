"""What happens between two segments of a run: surveys decide about the documents of all its inputs.

RefinedWeb deduplicates a hundred parts one by one, since all at once is too much for a machine; each has a hundredth of
every dump. A recipe's ``parts`` is their number. Input number ``n`` belongs to part ``n % parts``, so that the files of
one dump, which have neighbouring names, are spread over all. A survey with ``within_parts`` sees one part at a time,
and takes the memory of one; every other survey sees all documents, with their part in the column ``part`` (int32).

For each survey with ``index="save"``, ``RUN/index/STAGE/`` holds what the run has kept in the end, see
:mod:`longcrawl.dedup.index`. A document that a later stage removed is not in it, so its duplicate in a later dataset
may stay, as in RefinedWeb.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import PART, Stage, Survey
from longcrawl.core.surveys import SpanSurvey, report_of, with_report
from longcrawl.dedup.index import DESCRIPTION, INDEX
from longcrawl.ledger.reasons import LEDGER, entries
from longcrawl.manifest import WORK
from longcrawl.run.part import keep_spans, removed_file, removed_marker, sketches, spans_kept
from longcrawl.storage.files import folder_bytes
from longcrawl.storage.sealed import Marker
from longcrawl.storage.stored_tables import read_table, write_table


def group_inputs(inputs: int, parts: int) -> list[list[int]]:
    """Return the numbers of the inputs of every part; there are no more parts than inputs.

    >>> group_inputs(5, 2)
    [[0, 2, 4], [1, 3]]
    """
    count = min(inputs, parts)
    return [list(range(part, inputs, count)) for part in range(count)]


def resolve(folder: Path, segment: int, label: str, survey: Survey, groups: Sequence[Sequence[int]]) -> pa.Table:
    """Let a survey decide; write and return the ledger of what it removes, which the next segment leaves out.

    What the survey has to report stands beside it, see :func:`longcrawl.core.surveys.report_of`.

    Raises:
        StageError: the survey answers with an order or with spans.
    """
    work = folder / WORK
    if survey.within_parts:
        answers = [survey.removals(_sketches(work, segment, group)) for group in groups]
    else:
        tables = [_with_part(_sketches(work, segment, group), part) for part, group in enumerate(groups)]
        answers = [survey.removals(pa.concat_tables(tables))]
    removals = pa.concat_tables(answers)
    gone = entries(removals["id"], removals, label).sort_by("id")
    removed = removed_file(work, segment)
    files = [removed]
    if gone.num_rows:  # `datasets` cannot load a parquet file without rows
        files.append(folder / LEDGER / f"{segment:02d}-{label}.parquet")
        write_table(gone, files[-1])
    write_table(gone.select(["id"]), removed)
    marker = removed_marker(work, segment)
    Marker(marker, {}, Marker.entries(marker, files)).write()
    return with_report(gone, [sentence for answer in answers for sentence in report_of(answer)])


def find_spans(folder: Path, segment: int, survey: SpanSurvey, groups: Sequence[Sequence[int]]) -> int:
    """Let a survey find spans, part after part and pass by pass; the next segment begins with applying them.

    Returns:
        The most bytes that a search had on disk, of those that were not done before.
    """
    work, most = folder / WORK, 0
    for part, group in enumerate(groups):
        search = work / f"search-{segment}-{part}"
        if not spans_kept(work, segment, group):
            spans = survey.find(sketches(work, segment, group), str(search))
            keep_spans(work, segment, group, spans)
        most = max(most, folder_bytes(search))
        shutil.rmtree(search, ignore_errors=True)
    return most


def _sketches(work: Path, segment: int, group: Sequence[int]) -> pa.Table:
    return pa.concat_tables(sketches(work, segment, group))


def _with_part(sketched: pa.Table, part: int) -> pa.Table:
    return sketched.append_column(PART, pa.array(np.full(sketched.num_rows, part, np.int32)))


def indexes_used(stages: Sequence[tuple[str, Stage]]) -> dict[str, dict[str, str]]:
    """Return what each stage looks at of earlier datasets, see :meth:`longcrawl.core.stages.Stage.used_indexes`."""
    return {label: used for label, stage in stages if (used := stage.used_indexes())}


def save_index(folder: Path, segment: int, inputs: int, label: str, survey: Stage) -> Path:
    """Write to ``index/LABEL`` what a run has kept of the documents that a survey saw at the end of a segment.

    Returns the marker of the files.
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
