"""From which documents a stage learns between two segments: from all, or from a sample that tasks draw.

Each input writes its documents of small hashes, a few more than the sample has. One process compares these hashes, 8
bytes each, and lets the stage learn from one input after the other. A task has the documents of its input in memory
that it writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from longcrawl.core.choice import HASH, LAST, filter_hashes, last_chosen, likely_last, up_to_hash
from longcrawl.core.sketched import no_rows, take_each
from longcrawl.core.stages import Rewrite
from longcrawl.engines.base import Engine, Exchange
from longcrawl.run.part import survivors


@dataclass(frozen=True)
class Sample:
    """Documents that tasks have drawn, of each input in a partition, and the largest hash of those that are chosen."""

    drawn: Exchange
    last: int

    def tables(self) -> Iterator[pa.Table]:
        """Return the chosen documents, one input after the other."""
        for number in range(self.drawn.partitions):
            yield filter_hashes(self.drawn.read(number), self.last).drop_columns([HASH])


def learn(
    work: Path, segment: int, inputs: int, stage: Rewrite, documents: int, engine: Engine
) -> tuple[Rewrite, list[str]]:
    """Let a stage learn from what a segment has kept; return what it has become, and a sentence about a sample.

    Args:
        work: the folder of the run's work.
        segment: number of the segment.
        inputs: how many there are.
        stage: which learns.
        documents: how many the segment has kept.
        engine: what draws the sample.
    """
    folder, count = str(work / f"fit-{segment}"), stage.train_documents
    every = partial(survivors, work, segment, range(inputs))
    if count is None:
        return stage.fit(every(), folder), []
    learns: Rewrite = replace(cast("Any", stage), train_documents=None)
    if count >= documents:
        return learns.fit(every(), folder), [f"it was trained on all {documents:,} documents"]
    sample = _draw(work, segment, inputs, f"{stage.name}.train_documents", count, documents, engine)
    trained = sum(table.num_rows for table in sample.tables())
    report = f"it was trained on {trained:,} of {documents:,} documents, those whose ids have the smallest keyed hashes"
    return learns.fit(sample.tables(), folder), [report]


def _draw(work: Path, segment: int, inputs: int, purpose: str, count: int, documents: int, engine: Engine) -> Sample:
    last, rows = likely_last(count, documents), 0
    while rows < count:
        take = partial(_take_drawn, work, segment, purpose, last)
        drawn = Exchange(no_rows, take, inputs, work / f"sample-{segment}" / f"{last:016x}")
        take_each(drawn, engine)
        rows = sum(map(drawn.rows, range(inputs)))
        last = min(LAST, 2 * last)
    return Sample(drawn, last_chosen(np.concatenate([drawn.read(number)[HASH] for number in range(inputs)]), count))


def _take_drawn(work: Path, segment: int, purpose: str, last: int, number: int, _: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables(up_to_hash(table, purpose, last) for table in survivors(work, segment, [number]))
