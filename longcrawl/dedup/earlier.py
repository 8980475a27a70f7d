"""Which documents of many tasks earlier datasets have: each group of documents looks them up by itself.

Indexes may be of hundreds of GB. If groups are tasks, a task for each of their files compares it with its SHA-256, and
the groups take its word for it: each worker would otherwise read all files whole before it looked anything up.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sketched import DOCUMENT, Sketched, no_rows, take_each
from longcrawl.dedup.index import REMOVALS, IndexedSurvey, Places
from longcrawl.engines.base import Engine, Exchange
from longcrawl.storage.files import described_content, remember_content
from longcrawl.storage.sealed import Marker


def search_earlier(survey: IndexedSurvey, sketched: Sketched, engine: Engine) -> Exchange:
    """Find the documents of each group that earlier datasets have (``REMOVALS``), each group by itself."""
    folder, compared = sketched.place("earlier"), sketched.place("indexes.json")
    step = Exchange(no_rows, partial(_take_earlier, survey, sketched, compared), sketched.groups, folder)
    if survey.against and compared and step.waiting() and Marker.read(compared) is None:
        files = [str(index.folder / name) for index in survey.open_indexes() for name in index.files]
        Marker(compared, {"files": sorted(engine.tasks(described_content, files))}, {}).write()
    take_each(step, engine)
    return step


def _take_earlier(
    survey: IndexedSurvey, sketched: Sketched, compared: Path | None, group: int, _: Iterator[pa.Table]
) -> pa.Table:
    if not survey.against:
        return REMOVALS.empty_table()
    if compared:
        remember_content(map(tuple, Marker.open(compared).content["files"]))
    table = sketched.table(group)
    removals = survey.find_earlier(table)
    places = pc.index_in(removals["id"], value_set=pc.cast(table["id"], pa.string()).combine_chunks())
    numbers = places.to_numpy().astype(np.int64) + sketched.starts[group]
    return pa.table([numbers, *removals.columns], schema=REMOVALS).sort_by(DOCUMENT).combine_chunks()


def staying(keys: pa.ChunkedArray, group: int, sketched: Sketched, earlier: Exchange) -> Places:
    """Return the places in a group of the documents that have a key, and that no earlier dataset has."""
    stays = pc.is_valid(keys).to_numpy().copy()
    stays[earlier.read(group)[DOCUMENT].to_numpy() - sketched.starts[group]] = False
    return np.flatnonzero(stays)
