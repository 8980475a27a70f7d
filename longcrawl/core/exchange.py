"""Engines and exchanges: tasks, and the regrouping of rows between tasks.

A task reads files and writes whole files, its marker last. Tasks run in any order, at least once, and perhaps twice at
the same time. No file of a run depends on the engine or the number of processes, so another engine can finish the run.
Documents are numbered in the order of inputs and rows, so those of a group are consecutive.
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
"""Length in bytes of the CRC-32 before a packed table."""


@dataclass(frozen=True)
class Exchange:
    """A step that regroups the rows of many tasks by partition; both functions are pure and can be pickled."""

    make: Callable[[Any], Iterator[tuple[int, pa.Table]]]
    """Yields partition numbers and rows for them from one task; the partition of a row depends only on the row."""
    take: Callable[[int, Iterator[pa.Table]], pa.Table]
    """Turns all rows of one partition, in any order, into one table sorted by a total order, in memory."""
    partitions: int
    """Number of partitions. Derive it from the sizes of data, never from a number of workers."""
    folder: Path | None
    """Directory for the file ``NNNNN.arrow`` of each partition and its marker, or None to hold them in memory."""
    held: dict[int, pa.Table] = field(default_factory=dict, init=False, repr=False, compare=False)

    def waiting(self) -> list[int]:
        """Return the partitions that are not finished."""
        if self.folder is None:
            return [number for number in range(self.partitions) if number not in self.held]
        made = enumerate(Marker.read_all(self._file(number, "json") for number in range(self.partitions)))
        return [number for number, marker in made if not marker or marker.content["partitions"] != self.partitions]

    def read(self, partition: int) -> pa.Table:
        """Return the table of a finished partition, or raise DamagedWorkError if its file has changed."""
        if self.folder is None:
            return self.held[partition]
        file = self._file(partition, "arrow")
        Marker.open(file.with_suffix(".json"), file)
        with pa.memory_map(str(file)) as mapped:
            return pa.ipc.open_file(mapped).read_all()

    def write(self, partition: int, tables: Iterable[pa.Table]) -> int:
        """Finish a partition with ``take`` and return its number of rows."""
        table = self.take(partition, iter(tables))
        if self.folder is None:
            self.held[partition] = table
            return int(table.num_rows)
        file, marker = self._file(partition, "arrow"), self._file(partition, "json")
        with whole_file(file) as beside, pa.ipc.new_file(str(beside), table.schema) as writer:
            writer.write_table(table)
        counts = {"rows": table.num_rows, "partitions": self.partitions}
        Marker(marker, counts, Marker.entries(marker, [file])).write()
        return int(table.num_rows)

    def rows(self, partition: int) -> int:
        """Return the number of rows of a finished partition."""
        if self.folder is None:
            return int(self.held[partition].num_rows)
        return int(Marker.open(self._file(partition, "json")).content["rows"])

    def remove(self) -> None:
        """Remove the finished partitions, once nothing needs them any more."""
        self.held.clear()
        if self.folder is not None:
            remove(self.folder)

    @property
    def place(self) -> Path:
        """Directory of an exchange that is not in memory."""
        assert self.folder is not None
        return self.folder

    def _file(self, partition: int, ending: str) -> Path:
        return _numbered_file(self.place, partition, ending)


def _numbered_file(folder: Path, number: int, ending: str) -> Path:
    return folder / f"{number:05d}.{ending}"


class Engine(Protocol):
    """Interface of engines, which execute the tasks of a run on one machine or on many."""

    def hold(self, work: Path, is_finished: Callable[[], bool]) -> AbstractContextManager[Self | None]:
        """Lock the directory ``work`` of a run while the context is open; RunError if another run works in it.

        The context returns the engine that works in the directory, or None if another process has finished the run.
        """

    def check(self) -> None:
        """Raise RunError if another process has taken the lock; :meth:`tasks` also checks it first and last."""

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task and yield results as they complete; the first error stops new tasks."""

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Execute an exchange of the rows that ``step.make`` yields from each task."""


class InMemory:
    """An engine that executes exchanges in this process and writes nothing."""

    def hold(self, work: Path, is_finished: Callable[[], bool]) -> AbstractContextManager[Self | None]:  # noqa: ARG002
        """Return this engine without a lock: no other process can see its work."""
        return nullcontext(self)

    def check(self) -> None:
        """Do nothing: there is no lock."""

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task, in order."""
        return map(function, tasks)

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Execute an exchange with all rows in memory."""
        rows = defaultdict[int, list[pa.Table]](list)
        for task in tasks:
            for partition, table in step.make(task):
                rows[partition].append(table)
        for partition in step.waiting():
            step.write(partition, rows.pop(partition, ()))


def pack_table(table: pa.Table) -> bytes:
    """Serialize a table with a checksum, uncompressed: keys do not compress, and Spark compresses anyway."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return with_checksum(sink.getvalue())


def unpack_table(packed: bytes | memoryview, origin: str) -> pa.Table:
    """Deserialize a table of :func:`pack_table`; ``origin`` is for the message of :func:`without_checksum`."""
    with pa.ipc.open_stream(pa.py_buffer(without_checksum(packed, origin))) as stream:
        return stream.read_all()


def with_checksum(content: bytes | pa.Buffer) -> bytes:
    """Prepend the CRC-32 of bytes, little-endian."""
    return zlib.crc32(content).to_bytes(CHECKSUM, "little") + bytes(content)


def without_checksum(packed: bytes | memoryview, origin: str) -> memoryview:
    """Check and remove the CRC-32 of :func:`with_checksum`; CorruptionError with the origin if bytes have changed."""
    view = memoryview(packed)
    if len(view) < CHECKSUM or zlib.crc32(view[CHECKSUM:]) != int.from_bytes(view[:CHECKSUM], "little"):
        raise CorruptionError(f"data from {origin} has been changed: its checksum differs")
    return view[CHECKSUM:]


def exchange_files(engine: Engine, step: Exchange, tasks: Sequence[Any]) -> None:
    """Execute an exchange through files: one per task, with the rows of its partitions one after the other."""
    spill = scratch(step.place.with_name(f"{step.place.name}-rows"))
    if not (waiting := step.waiting()):
        remove(spill)  # a run may have been stopped just before it removed them
        return
    made = {"partitions": step.partitions, "tasks": len(tasks)}
    markers = (Marker.read(_numbered_file(spill, number, "json")) for number in range(len(tasks)))
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
    """Write the rows of a task and an index of their pieces: int64 [pieces, 3], partition, first and stop byte."""
    number, task, made = numbered
    places, first = [], 0
    rows, index, marker = (_numbered_file(spill, number, ending) for ending in ("rows", "places", "json"))
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
    """Yield the rows of a partition, checking each piece: checking whole files would read all of them per partition."""
    for number in range(tasks):
        file, index, marker = (_numbered_file(spill, number, ending) for ending in ("rows", "places", "json"))
        _check_places(str(index), str(marker))
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
    """Compare the index of a task's rows with its marker, once per process: every partition reads it."""
    Marker.open(Path(marker), Path(file))


Longs = npt.NDArray[np.int64]

_CELLS, _SPREAD = 8, np.uint64(0x9E3779B97F4A7C15)

DOCUMENT = "document"
"""Name of the int64 column with the number of the document in removals."""


@dataclass(frozen=True)
class Sketched:
    """Sketches of documents, in groups that are each small enough for a task."""

    folder: Path | None
    """Directory for the files of the decision, which are reused; or None to decide in memory."""
    rows: tuple[int, ...]
    """Number of documents in each group."""
    read: Callable[..., Iterator[pa.Table]]
    """Function of a group, and optionally columns, that yields its sketches table by table; it can be pickled."""

    def table(self, group: int) -> pa.Table:
        """Return the sketches of a group."""
        return pa.concat_tables(self.read(group))

    @classmethod
    def held(cls, sketches: pa.Table) -> "Sketched":
        """Wrap sketches in memory as a single group."""
        return cls(None, (sketches.num_rows,), partial(_read_held, sketches))

    def place(self, name: str) -> Path | None:
        """Return the directory of a step of the decision, or None in memory."""
        return None if self.folder is None else self.folder / name

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.rows)

    @property
    def starts(self) -> Longs:
        """Number of the first document of each group, followed by the count of all documents: int64 [groups + 1]."""
        return np.cumsum([0, *self.rows])

    def merged(self, most: int) -> "Sketched":
        """Merge consecutive groups that begin in the same block of ``most`` documents."""
        _, first = np.unique(self.starts[:-1] // most, return_index=True)
        rows = np.add.reduceat(np.array(self.rows, np.int64), first)
        bounds = (*first.tolist(), self.groups)
        return replace(self, rows=tuple(rows.tolist()), read=partial(_read_merged, self.read, bounds))

    def split(self, step: Exchange, column: str, partition: int) -> Iterator[tuple[int, pa.Table]]:
        """Split a finished partition into rows for another exchange, by the group of the documents in a column."""
        rows = step.read(partition)
        return cut(rows, np.searchsorted(self.starts[1:], rows[column].to_numpy(), "right"))


def key_ranges(keys: npt.NDArray[np.uint64], count: Any) -> Longs:
    """Assign each key to one of ``count`` equal ranges by its upper 32 bits; ``count`` may be one per key."""
    ranges: Longs = ((keys >> np.uint64(32)) * np.asarray(count, np.uint64) >> np.uint64(32)).astype(np.int64)
    return ranges


class KeyTable:
    """Lookup of keys in a sorted array, with a table of up to ``1 << most_bits`` cells that rules out most others."""

    def __init__(self, keys: npt.NDArray[np.uint64], most_bits: int = 64) -> None:
        self.keys = keys
        bits = min(max(_CELLS * len(keys), 2).bit_length(), most_bits)
        self._shift, self._cells = np.uint64(64 - bits), np.zeros(1 << bits, bool)
        self._cells[self._cell(keys)] = True

    def find(self, keys: npt.NDArray[np.uint64]) -> Longs:
        """Return the place of each key in the array, or -1 if it is not there."""
        near = np.flatnonzero(self._cells[self._cell(keys)])
        near = near[np.argsort(keys[near])]  # sorted, so that each search is near the previous one
        at = np.searchsorted(self.keys, keys[near])
        known = at < len(self.keys)
        known[known] = self.keys[at[known]] == keys[near[known]]
        found = np.full(len(keys), -1)
        found[near[known]] = at[known]
        return found

    def _cell(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        return keys * _SPREAD >> self._shift


def cut(rows: pa.Table, partitions: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, pa.Table]]:
    """Split rows by their partition and yield each partition number with its rows, in their order."""
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
    """Yield no rows: ``make`` for an exchange whose partitions need no rows of tasks."""
    return iter(())


def take_each(step: Exchange, engine: Engine) -> None:
    """Finish the partitions of an exchange that receive no rows."""
    for _ in engine.tasks(partial(step.write, tables=()), step.waiting()):
        pass


@dataclass(frozen=True)
class Decided:
    """Decision of a survey: the documents it removes, or the spans it finds, by group."""

    read: Callable[[int], pa.Table]
    """Picklable function of a group: its rows by document, ``document`` and ``REMOVAL_SCHEMA``, or ``SPAN_SCHEMA``."""
    report: tuple[str, ...] = ()
    """Remarks of the survey on its decision, see :func:`with_report`."""


_KEY = b"longcrawl report"
"""Key of the remarks in the schema metadata of a survey's answer."""


def with_report(removals: pa.Table, sentences: Sequence[str]) -> pa.Table:
    """Replace the remarks in the schema metadata of a survey's answer."""
    return removals.replace_schema_metadata({_KEY: json.dumps(list(sentences))} if sentences else None)


def report_of(removals: pa.Table) -> list[str]:
    """Return the remarks stored by :func:`with_report`."""
    sentences: list[str] = json.loads((removals.schema.metadata or {}).get(_KEY, b"[]"))
    return sentences
