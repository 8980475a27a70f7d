"""Sketches that are too many for one task, and what a survey decides about their documents by exchanges.

Documents are numbers: those of a group are consecutive, in the order of inputs and rows. A number takes 8 bytes where
rows meet; ids come along only where they decide, and in the ledger.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.engines.base import Engine, Exchange

Longs = npt.NDArray[np.int64]

DOCUMENT = "document"
"""The int64 column of removals that holds the number of the document."""


@dataclass(frozen=True)
class Sketched:
    """The sketches of documents in groups that are each small enough for a task."""

    folder: Path | None
    """For the files of the decision, which may be left there: they are found again, and not made again.

    If None, the decision is in memory, see :class:`longcrawl.engines.base.InMemory`."""
    rows: tuple[int, ...]
    """How many documents each group has."""
    read: Callable[..., Iterator[pa.Table]]
    """Returns the sketches of a group, table by table; all columns, or those named behind it. It can be pickled."""

    def table(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the sketches of a group, or some columns of them."""
        return pa.concat_tables(self.read(group, columns))

    @classmethod
    def held(cls, sketches: pa.Table) -> "Sketched":
        """Return sketches that this process holds as one group, to decide in memory."""
        return cls(None, (sketches.num_rows,), partial(_read_held, sketches))

    def place(self, name: str) -> Path | None:
        """Return the folder of a step of the decision."""
        return None if self.folder is None else self.folder / name

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.rows)

    @property
    def starts(self) -> Longs:
        """The number of the first document of each group and, last, that of all documents: int64 [groups + 1]."""
        return np.cumsum([0, *self.rows])

    def merged(self, most: int) -> "Sketched":
        """Return the same documents in fewer groups, of consecutive ones that begin within ``most`` documents."""
        _, first = np.unique(self.starts[:-1] // most, return_index=True)
        rows = np.add.reduceat(np.array(self.rows, np.int64), first)
        bounds = (*first.tolist(), self.groups)
        return replace(self, rows=tuple(rows.tolist()), read=partial(_read_merged, self.read, bounds))

    def split(self, step: Exchange, column: str, partition: int) -> Iterator[tuple[int, pa.Table]]:
        """Make, of a finished partition, the rows of another exchange: by the group of the document in a column."""
        rows = step.read(partition)
        return cut(rows, np.searchsorted(self.starts[1:], rows[column].to_numpy(), "right"))


def key_ranges(keys: npt.NDArray[np.uint64], count: Any) -> Longs:
    """Return to which of ``count`` ranges of equal width keys belong, by their upper 32 bits; of each key if an array.

    Sorted keys have sorted ranges.
    """
    ranges: Longs = ((keys >> np.uint64(32)) * np.asarray(count, np.uint64) >> np.uint64(32)).astype(np.int64)
    return ranges


def cut(rows: pa.Table, partitions: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, pa.Table]]:
    """Make the rows of an exchange: those of each partition, by the partition of each row."""
    order = np.argsort(partitions, kind="stable")
    ordered = rows.take(order)
    numbers, starts = np.unique(partitions[order], return_index=True)
    for number, start, count in zip(numbers.tolist(), starts, np.diff(starts, append=len(order)), strict=True):
        yield number, ordered.slice(start, count)


def _read_merged(
    read: Callable[..., Iterator[pa.Table]], bounds: Sequence[int], group: int, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    for each in range(bounds[group], bounds[group + 1]):
        yield from read(each, columns)


def _read_held(sketches: pa.Table, _: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    yield sketches if columns is None else sketches.select(columns)


def no_rows(_: object) -> Iterator[tuple[int, pa.Table]]:
    """Make no rows, for a step whose partitions are made by tasks alone."""
    return iter(())


def take_each(step: Exchange, engine: Engine) -> None:
    """Make the partitions of a step to which no rows are sent."""
    for _ in engine.tasks(partial(step.write, tables=()), step.waiting()):
        pass


@dataclass(frozen=True)
class Decided:
    """Which documents a survey removes, or which spans it finds, group by group."""

    read: Callable[[int], pa.Table]
    """Returns ``document`` and the columns of ``REMOVAL_SCHEMA``, or ``SPAN_SCHEMA`` where a survey finds spans.

    Rows are those of one group, sorted by document. It is pickled.
    """
    report: tuple[str, ...] = ()
    """What the survey has to say about what it did, see :func:`with_report`."""


_KEY = b"longcrawl report"
"""The key of the answer's schema metadata that holds the sentences."""


def with_report(removals: pa.Table, sentences: Sequence[str]) -> pa.Table:
    """Return the answer of a survey with sentences beside it, in the place of those it had."""
    return removals.replace_schema_metadata({_KEY: json.dumps(list(sentences))} if sentences else None)


def report_of(removals: pa.Table) -> list[str]:
    """Return what :func:`with_report` put beside an answer."""
    sentences: list[str] = json.loads((removals.schema.metadata or {}).get(_KEY, b"[]"))
    return sentences
