"""Sketches that are too many for one task, and what a survey decides about their documents by exchanges.

Documents are numbers: those of a group are consecutive, in the order of inputs and rows. A number takes 8 bytes where
rows meet; ids come along only where they decide, and in the ledger.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.engines.base import Exchange

Longs = npt.NDArray[np.int64]

DOCUMENT = "document"
"""The int64 column of removals that holds the number of the document."""


@dataclass(frozen=True)
class Sketched:
    """The sketches of documents in groups that are each small enough for a task."""

    folder: Path
    """For the files of the decision, which may be left there: they are found again, and not made again."""
    rows: tuple[int, ...]
    """How many documents each group has."""
    read: Callable[[int], Iterator[pa.Table]]
    """Returns the sketches of a group, table by table; can be pickled."""

    def table(self, group: int) -> pa.Table:
        """Return the sketches of a group."""
        return pa.concat_tables(self.read(group))

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.rows)

    @property
    def starts(self) -> Longs:
        """The number of the first document of each group and, last, that of all documents: int64 [groups + 1]."""
        return np.cumsum([0, *self.rows])

    def split(self, step: Exchange, column: str, partition: int) -> Iterator[tuple[int, pa.Table]]:
        """Make, of a finished partition, the rows of another exchange: by the group of the document in a column."""
        rows = step.read(partition)
        groups = np.searchsorted(self.starts[1:], rows[column].to_numpy(), "right")
        order = np.argsort(groups, kind="stable")
        ends = np.cumsum(np.bincount(groups, minlength=self.groups))
        for group in np.unique(groups).tolist():
            start = ends[group - 1] if group else 0
            yield group, rows.take(order[start : ends[group]])


def no_rows(_: object) -> Iterator[tuple[int, pa.Table]]:
    """Make no rows, for a step whose partitions are made by tasks alone."""
    return iter(())


@dataclass(frozen=True)
class Decided:
    """Which documents a survey removes, group by group."""

    read: Callable[[int], pa.Table]
    """Returns ``document`` and the columns of ``REMOVAL_SCHEMA``, of one group and sorted by document; is pickled."""
    report: tuple[str, ...] = ()
    """What the survey has to say about what it did, see :func:`longcrawl.core.surveys.with_report`."""
