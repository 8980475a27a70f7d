"""Engines and exchanges: tasks, and rows that are regrouped between tasks.

A task reads files and writes whole files, its marker last. It is called in any order, at least once, and perhaps twice
at the same time. An exchange is for what needs the rows of several tasks: ``make`` cuts the rows of each task into
partitions, ``take`` gets all rows of one partition, and what it returns is a file.

Engines call the functions of stages, formats and runs, which import none of them. Rows are Arrow tables on each side
of an exchange and bytes with a checksum in between, whatever carries them. No file that an engine leaves behind has
its name, the number of its processes, or a host in it: a run that was begun by one is finished by another.

Documents are numbers: those of a group are consecutive, in the order of inputs and rows. A number takes 8 bytes where
rows meet; ids come along only where they decide, and in the ledger.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.errors import CorruptionError
from longcrawl.io.files import remove, reread_when_changed, scratch, whole_file, write_values
from longcrawl.io.structured import DamagedWorkError, Marker

T = TypeVar("T")
R = TypeVar("R")

CHECKSUM = 4
"""Bytes of the CRC-32 in front of a packed table."""


@dataclass(frozen=True)
class Exchange:
    """Rows of many tasks that meet by partition.

    Both functions are pure and can be pickled. The partition of a row follows from the row alone, and the table that
    ``take`` returns from the rows alone, so that files do not depend on the engine.

    Args:
        make: yields, of one task, a partition number and rows for it, in one piece or several. Where a key has one
            row of each task at most, the rows of a frequent key are bounded by the number of tasks.
        take: turns all rows of one partition, in any order, into one table, which it sorts by a total order. They are
            in memory together.
        partitions: how many; from the sizes of data, never from a number of workers.
        folder: for ``NNNNN.arrow`` of each partition, and its marker. A step whose partitions are all there is not
            done again. If None, this process holds the partitions in memory: see :class:`InMemory`.
    """

    make: Callable[[Any], Iterator[tuple[int, pa.Table]]]
    take: Callable[[int, Iterator[pa.Table]], pa.Table]
    partitions: int
    folder: Path | None
    held: dict[int, pa.Table] = field(default_factory=dict, init=False, repr=False, compare=False)

    def waiting(self) -> list[int]:
        """Return the partitions that are not finished."""
        if self.folder is None:
            return [number for number in range(self.partitions) if number not in self.held]
        made = enumerate(Marker.read_all(map(self._marker, range(self.partitions))))
        return [number for number, marker in made if not marker or marker.content["partitions"] != self.partitions]

    def read(self, partition: int) -> pa.Table:
        """Return what ``take`` made of a partition.

        Raises:
            DamagedWorkError: it is not as it was written.
        """
        if self.folder is None:
            return self.held[partition]
        Marker.open(self._marker(partition), self._file(partition))
        with pa.memory_map(str(self._file(partition))) as mapped:
            return pa.ipc.open_file(mapped).read_all()

    def write(self, partition: int, tables: Iterable[pa.Table]) -> int:
        """Let ``take`` finish a partition; return the number of rows that it made."""
        table = self.take(partition, iter(tables))
        if self.folder is None:
            self.held[partition] = table
            return int(table.num_rows)
        file, marker = self._file(partition), self._marker(partition)
        with whole_file(file) as beside, pa.ipc.new_file(str(beside), table.schema) as writer:
            writer.write_table(table)
        counts = {"rows": table.num_rows, "partitions": self.partitions}
        Marker(marker, counts, Marker.entries(marker, [file])).write()
        return int(table.num_rows)

    def rows(self, partition: int) -> int:
        """Return how many rows ``take`` made of a partition."""
        if self.folder is None:
            return int(self.held[partition].num_rows)
        return int(Marker.open(self._marker(partition)).content["rows"])

    def remove(self) -> None:
        """Remove its files, once nothing needs them any more."""
        self.held.clear()
        if self.folder is not None:
            remove(self.folder)

    @property
    def place(self) -> Path:
        """The folder of one that is not in memory."""
        assert self.folder is not None
        return self.folder

    def _file(self, partition: int) -> Path:
        return self.place / f"{partition:05d}.arrow"

    def _marker(self, partition: int) -> Path:
        return self.place / f"{partition:05d}.json"


class Engine(Protocol):
    """What carries out a run, on one machine or on many."""

    def hold(self, work: Path, is_finished: Callable[[], bool]) -> AbstractContextManager[Self | None]:
        """Hold the folder ``work`` of a run; None where another process has finished the run meanwhile.

        What is returned works there as long as this process holds the folder.

        Raises:
            RunError: another run is working there.
        """

    def check(self) -> None:
        """Check that this process still holds the folder, before it removes or publishes what others may look at.

        The first and the last result of :meth:`tasks` come behind such a check.

        Raises:
            RunError: another process has taken it.
        """

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task and yield the results as they come, in any order.

        The first error of a task ends the map, and no further task is begun.
        """

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Carry out an exchange between tasks, of which ``step.make`` makes rows."""


class InMemory:
    """Carries out exchanges in this process, for sketches that it holds; nothing is written."""

    def hold(self, work: Path, is_finished: Callable[[], bool]) -> AbstractContextManager[Self | None]:  # noqa: ARG002
        """Hold nothing: no other process sees what this one does."""
        return nullcontext(self)

    def check(self) -> None:
        """Check nothing."""

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task."""
        return map(function, tasks)

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Hand the rows of all tasks to their partitions."""
        rows = defaultdict[int, list[pa.Table]](list)
        for task in tasks:
            for partition, table in step.make(task):
                rows[partition].append(table)
        for partition in step.waiting():
            step.write(partition, rows.pop(partition, ()))


def pack_table(table: pa.Table) -> bytes:
    """Return a table as bytes with a checksum; not compressed: keys would not get smaller, and Spark does it anyway."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return with_checksum(sink.getvalue())


def unpack_table(packed: bytes | memoryview, origin: str) -> pa.Table:
    """Return the table of :func:`pack_table`.

    Raises:
        CorruptionError: the bytes are not as they were; the sentence names their origin.
    """
    with pa.ipc.open_stream(pa.py_buffer(without_checksum(packed, origin))) as stream:
        return stream.read_all()


def with_checksum(content: bytes | pa.Buffer) -> bytes:
    """Return bytes behind their CRC-32."""
    return zlib.crc32(content).to_bytes(CHECKSUM, "little") + bytes(content)


def without_checksum(packed: bytes | memoryview, origin: str) -> memoryview:
    """Return the bytes of :func:`with_checksum`.

    Raises:
        CorruptionError: they are not as they were; the sentence names their origin.
    """
    view = memoryview(packed)
    if len(view) < CHECKSUM or zlib.crc32(view[CHECKSUM:]) != int.from_bytes(view[:CHECKSUM], "little"):
        raise CorruptionError(f"what came from {origin} has been changed: its checksum differs")
    return view[CHECKSUM:]


def exchange_files(engine: Engine, step: Exchange, tasks: Sequence[Any]) -> None:
    """Carry out an exchange through files: a file of each task with the rows of its partitions, one after the other."""
    spill = scratch(step.place.with_name(f"{step.place.name}-rows"))
    if not (waiting := step.waiting()):
        remove(spill)  # of a run that was stopped just before it did so
        return
    made = {"partitions": step.partitions, "tasks": len(tasks)}
    markers = (Marker.read(_places_marker(spill, number)) for number in range(len(tasks)))
    numbered = [
        (number, task, made)
        for (number, task), marker in zip(enumerate(tasks), markers, strict=True)
        if marker is None or marker.content != made
    ]
    for _ in engine.tasks(partial(_make_rows, step, spill), numbered):
        pass
    for _ in engine.tasks(partial(_take_rows, step, spill, len(tasks)), waiting):
        pass
    engine.check()
    remove(spill)


def _make_rows(step: Exchange, spill: Path, numbered: tuple[int, Any, dict[str, int]]) -> None:
    """Write the rows of a task, and where those of each partition are: int64 [pieces, 3], partition, first, stop."""
    number, task, made = numbered
    places, first = [], 0
    rows, index, marker = _rows_file(spill, number), _places_file(spill, number), _places_marker(spill, number)
    with whole_file(rows) as beside, beside.open("wb") as file:
        for partition, table in step.make(task):
            packed = pack_table(table)
            file.write(packed)
            places.append((partition, first, first + len(packed)))
            first += len(packed)
    write_values(index, np.array(sorted(places), np.int64))
    Marker(marker, made, Marker.entries(marker, [index])).write()


def _take_rows(step: Exchange, spill: Path, tasks: int, partition: int) -> int:
    return step.write(partition, _rows_of(spill, tasks, partition))


def _rows_of(spill: Path, tasks: int, partition: int) -> Iterator[pa.Table]:
    """Return the rows of a partition, which are looked at when they are read: a file as a whole is read by all."""
    for number in range(tasks):
        file, marker = _rows_file(spill, number), _places_marker(spill, number)
        _check_places(str(index := _places_file(spill, number)), str(marker))
        places = np.memmap(index, np.int64, "r").reshape(-1, 3) if index.stat().st_size else np.empty((0, 3), np.int64)
        here = slice(*np.searchsorted(places[:, 0], [partition, partition + 1]))
        try:
            with file.open("rb") as opened:
                for _, first, stop in places[here].tolist():
                    opened.seek(first)
                    yield unpack_table(opened.read(stop - first), str(file))
        except (CorruptionError, FileNotFoundError) as damaged:
            raise DamagedWorkError(f"{file} is missing or has been changed", marker) from damaged


@reread_when_changed(size=1 << 18)
def _check_places(file: str, marker: str) -> None:
    """Compare what says where the rows of a task are with its marker, once in a process: all partitions read it."""
    Marker.open(Path(marker), Path(file))


def _rows_file(spill: Path, task: int) -> Path:
    return spill / f"{task:05d}.rows"


def _places_file(spill: Path, task: int) -> Path:
    return spill / f"{task:05d}.places"


def _places_marker(spill: Path, task: int) -> Path:
    return spill / f"{task:05d}.json"


Longs = npt.NDArray[np.int64]

DOCUMENT = "document"
"""The int64 column of removals that holds the number of the document."""


@dataclass(frozen=True)
class Sketched:
    """The sketches of documents in groups that are each small enough for a task."""

    folder: Path | None
    """For the files of the decision, which may be left there: they are found again, and not made again.

    If None, the decision is in memory, see :class:`longcrawl.core.exchange.InMemory`."""
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
