"""Parts of a run: their ids, the tasks that process them, and their stored files.

A part is done when its marker exists, which is written last and covers all its files, see
:mod:`longcrawl.io.structured`. A segment without stages between two surveys stores no documents: they are those of the
segment before, minus the rows that its survey removed.

A source lists each file as a part. Consecutive small parts are merged into one part of the run, made of pieces: for
2,000 short texts, files and stage calls of each part took 18 of 19 CPU seconds (``benchmarks/small_files.py``).

Ids must be unique. Before hours of work, sources list ids without texts if that is much faster than reading
(:meth:`Source.list_ids`). Their hashes are compared, 8 bytes per document; only parts with equal hashes are then read
to compare the ids in full. ``on_duplicate_ids`` of a recipe's ``source`` is "error" or "keep_first", which keeps the
first document of each id, in the order of parts and rows, even if a later stage removes that one; funnel and ledger
count the others under ``duplicate_ids``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core import ledger
from longcrawl.core.batches import hold_texts, release_texts, text_lengths
from longcrawl.core.clock import CoreClock
from longcrawl.core.counts import EDITS, FROM_OCR, LEDGER, QUEUES
from longcrawl.core.display import counted
from longcrawl.core.exchange import Engine, Exchange, cut, key_ranges
from longcrawl.core.funnel import FunnelRow, count_values, total
from longcrawl.core.outputs import Writer, without_content
from longcrawl.core.places import EDIT_SCHEMA, edit_rows
from longcrawl.core.progress import following, note_read, progress_file, tell_progress
from longcrawl.core.queues import SCHEMA, count_queued
from longcrawl.core.sources import BadFiles, OnDuplicateIds, Part, Source
from longcrawl.core.stages import Outcome, Segment, Spans, Stage, WithSpans
from longcrawl.errors import NotYetError, RunError, warn_user
from longcrawl.io.files import bring, is_there, remove, whole_file, whole_files, write_values
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Marker, resolved
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.run.analysis import Lengths
from longcrawl.run.checkpoints import CHECKPOINTS, Checkpoints, Results
from longcrawl.run.divide import check_same, known_inputs
from longcrawl.run.manifest import INPUTS, WORK
from longcrawl.run.recipe import Recipe
from longcrawl.sources.files import InputFile, reading


def removed_rows(file: Path, marker: Path) -> npt.NDArray[np.int64]:
    """Return the removed rows of a part, sorted; none if its marker names no file of removed rows."""
    found = Marker.open(marker)
    if not found.names(file):
        return np.empty(0, np.int64)
    found.check(file)
    return np.asarray(read_table(file, ["row"])["row"], np.int64)


def mark_rows(tables: Iterable[pa.Table], rows: npt.NDArray[np.int64]) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield the tables of a part, each with a mask of the rows to keep; ``rows`` lists the removed ones, sorted."""
    start = 0
    for table in tables:
        first, last = np.searchsorted(rows, [start, start + table.num_rows])
        kept = np.ones(table.num_rows, bool)
        kept[rows[first:last] - start] = False
        start += table.num_rows
        yield table, pa.array(kept)


def removed_file(work: Path, segment: int, number: int) -> Path:
    """Return the path of the file of an input's rows that the survey at the end of a segment removed."""
    return work / f"removed-{segment}" / f"{number:05d}.parquet"


def input_marker(work: Path, segment: int, number: int) -> Path:
    """Return the path of the marker of an input's removed rows and their ledger; without removals it lists no file."""
    return removed_file(work, segment, number).with_suffix(".json")


def removed_marker(work: Path, segment: int, part: int = 0) -> Path:
    """Return the path of the marker of a survey's decision about a part or all parts, with its counts."""
    return work / (f"removed-{segment}-{part}.json" if part else f"removed-{segment}.json")


SPANS_MARKER = "spans.json"


def part_marker(work: Path, segment: int, number: int) -> Path:
    """Return the path of the marker of one part of one segment."""
    return part_file(work, segment, number, "json")


def survivors(work: Path, segment: int, numbers: Iterable[int]) -> Iterator[pa.Table]:
    """Yield the tables that a segment kept of these inputs."""
    for number in numbers:
        yield from _kept(work, segment, number)


def left_of(work: Path, segment: int, number: int) -> Iterator[pa.Table]:
    """Return the tables of an input that a segment kept, without the rows that its survey removed."""
    tables = _kept(work, segment, number)
    if is_there(removed_marker(work, segment)):
        rows = removed_rows(removed_file(work, segment, number), input_marker(work, segment, number))
        tables = (table.filter(stays) for table, stays in mark_rows(tables, rows))
    return tables


def _kept(work: Path, segment: int, number: int) -> Iterator[pa.Table]:
    file, marker = part_file(work, segment, number, "arrow"), Marker.open(part_marker(work, segment, number))
    if not marker.names(file):
        return left_of(work, segment - 1, number)
    marker.check(file)
    return tables_of(file)


def sketches(
    work: Path, segment: int, numbers: Iterable[int], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield a survey's sketches of these inputs, or some columns of them, after comparing files with their markers."""
    for number in numbers:
        file = part_file(work, segment, number, "sketches")
        Marker.open(part_marker(work, segment, number), file)
        yield from tables_of(file, columns)


def spans_kept(work: Path, segment: int, numbers: Sequence[int]) -> bool:
    """Return whether the spans of all these inputs are written."""
    return all(Marker.read_all(part_file(work, segment, number, SPANS_MARKER) for number in numbers))


def keep_spans(work: Path, segment: int, share: Any) -> None:
    """Write the spans of a :class:`longcrawl.run.inputs.Share`, a file with a marker for each input."""
    spans, start = share.read(), share.first
    documents = spans["document"].to_numpy()
    for number in share.batch.inputs:
        stop = start + stored_rows(work, segment, number)
        first, last = (int(place) for place in documents.searchsorted([start, stop]))
        file, marker = part_file(work, segment, number, "spans"), part_file(work, segment, number, SPANS_MARKER)
        write_table(spans.slice(first, last - first), file)
        Marker(marker, {}, Marker.entries(marker, [file])).write()
        start = stop


def sketch_bytes(work: Path, segment: int, number: int) -> int:
    """Return the size in bytes of a survey's sketches of one input on disk, from its marker."""
    files = Marker.open(part_marker(work, segment, number)).resolved_files()
    return int(files[resolved(part_file(work, segment, number, "sketches"))]["bytes"])


def stored_rows(work: Path, segment: int, number: int) -> int:
    """Return the number of documents that a segment kept of one input, from its marker."""
    return int(Marker.open(part_marker(work, segment, number)).content["kept"])


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Open an Arrow IPC file for writing tables; it is published whole or not at all."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with whole_file(path) as beside, pa.ipc.new_file(beside, schema, options=options) as writer:
        yield writer


def tables_of(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the tables of a file, or some columns of them; other columns are not decompressed."""
    with pa.memory_map(str(file)) as mapped:
        batches = pa.ipc.open_file(mapped)
        if columns is not None:
            places = sorted(map(batches.schema.get_field_index, columns))
            batches = pa.ipc.open_file(mapped, options=pa.ipc.IpcReadOptions(included_fields=places))
        if not batches.num_record_batches:
            yield batches.schema.empty_table()
        for number in range(batches.num_record_batches):
            note_read(number + 1, batches.num_record_batches)
            yield pa.Table.from_batches([batches.get_batch(number)])


def part_file(work: Path, segment: int, number: int, kind: str) -> Path:
    """Return the path of a file of one part of one segment."""
    return work / f"segment-{segment}" / f"{number:05d}.{kind}"


ALONE = 32
"""Largest number of parts that are never merged; of n times as many, up to n small ones are merged into one."""
SMALL = 4 << 20
"""Largest size of the files of a merged part, in bytes."""
TOGETHER = 16 << 20
"""Largest size of a table that is concatenated from several, in bytes."""
GATHERED = "gathered"
"""Key in the recorded inputs of a run for the number of source parts in each of its parts."""


def gather_small(parts: Sequence[Part], recipe: Recipe, folder: Path | None = None) -> list[Part]:
    """Return the parts that a run works on, with consecutive small local parts merged if there are many.

    A run that was begun in ``folder`` keeps its grouping. If the recipe sets ``parts``, nothing is merged, since the
    source's parts then decide which documents are compared.
    """
    begun = Marker.read(folder / WORK / INPUTS) if folder else None
    if recipe.parts > 1:
        counts = [1] * len(parts)
    elif begun is not None and list(begun.content["parts"]) == [part.name for part in parts]:
        counts = begun.content.get(GATHERED, [1] * len(parts))
    else:
        counts = _gathered(parts)
    left = iter(parts)
    groups = [tuple(islice(left, count)) for count in counts]
    return [
        some[0] if len(some) == 1 else Part(some[0].name, tuple(file for each in some for file in each.files), some)
        for some in groups
    ]


def _gathered(parts: Sequence[Part]) -> list[int]:
    most, counts, size = -(-len(parts) // ALONE), list[int](), 0
    for part in parts:
        own = part.local_bytes() if most > 1 else None
        if own is not None and counts and counts[-1] < most and size + own <= SMALL:
            counts[-1] += 1
            size += own
        else:
            counts.append(1)
            size = SMALL + 1 if own is None else own
    return counts


def read_gathered(
    source: Source, part: Part, bad_files: BadFiles, owners: list[str] | None = None
) -> Iterator[pa.Table]:
    """Read a part, concatenating small tables of merged parts; add the piece of each broken file to ``owners``."""
    owners = [] if owners is None else owners
    together, size = list[pa.Table](), 0
    for piece in part.each():
        for table in source.read(piece, bad_files):
            if not part.pieces:
                yield table
                continue
            if together and (size + table.nbytes > TOGETHER or table.schema != together[0].schema):
                yield pa.concat_tables(together).combine_chunks()
                together, size = [], 0
            together.append(table)
            size += table.nbytes
        owners += [piece.name] * (len(bad_files.found) - len(owners))
    if together:
        yield pa.concat_tables(together).combine_chunks()


Hashes = npt.NDArray[np.uint64]

HELD = 1 << 24
"""Largest number of documents whose id hashes, 8 bytes each, are sorted in one process; for more, see ``PIECE``."""
PIECE = 1 << 22
"""Approximate number of id hashes in each partition of the exchange that finds equal ones."""

SOON = 1 << 28
"""Largest single input, in bytes, whose ids are not listed first: listing would cost half as much as its stages."""

IDS = "ids"
"""Folder in ``work`` for the id hashes of each part and the rows removed by "keep_first"."""
ROWS = pa.schema([("part", pa.int64()), ("row", pa.int64()), ("id", pa.large_string())])
"""Schema of documents by the number of their part and their row among all rows that the source yields for it."""


@dataclass(frozen=True)
class IdTask:
    """Task of a worker process that lists the ids of one part."""

    work: Path
    number: int
    part: Part
    source: Source
    policy: OnDuplicateIds
    waits: bool = False
    """Whether its ids are hashed only when the first segment reads the part."""
    divided: Path | None = None
    """Marker of the division that made the part, if it is a section."""

    @property
    def marker(self) -> Path:
        """The path of the marker for this part's hashes; if they wait for the first segment, it is the segment's."""
        return part_marker(self.work, 0, self.number) if self.waits else _file(self.work, self.number, "json")


def id_tasks(
    work: Path, source: Source, parts: Sequence[Part], policy: OnDuplicateIds, divided: Sequence[Path | None] = ()
) -> list[IdTask]:
    """Return a task for each part; none if the source's ids are always unique.

    ``divided`` has the marker of the division that made each part, or None.
    """
    if source.unique_ids:
        return []
    sizes = [part.local_bytes() for part in parts] if len({part.files for part in parts}) == 1 else [None]
    soon = None not in sizes and sum(filter(None, sizes)) <= SOON

    def waits(part: Part) -> bool:
        return soon or any(source.list_ids(piece) is None for piece in part.each())

    return [
        IdTask(work, number, part, source, policy, policy == "error" and waits(part), marker)
        for number, (part, marker) in enumerate(zip(parts, divided or [None] * len(parts), strict=True))
    ]


def list_ids(task: IdTask) -> dict[str, Any]:
    """Write the id hashes of a part and return its counts, or the reason under "not_yet" as :func:`run_part` does."""
    try:
        known = known_inputs(task.divided, task.part)
        with reading(task.part.files if task.policy == "keep_first" else (), known) as inputs:
            hashes = [hash_ids(ids) for ids in _listed(task.source, task.part)]
    except NotYetError as reason:
        return {"not_yet": str(reason)}
    check_same(known, inputs, f"{task.work.parent} divided it")
    file = write_hashes(task.work, task.number, hashes)
    counts = {"documents": sum(map(len, hashes)), "inputs": [each.marked() for each in inputs]}
    Marker(task.marker, counts, Marker.entries(task.marker, [file])).write()
    return counts


def hash_ids(ids: pa.ChunkedArray) -> Hashes:
    """Return the hashes of the ids that are not null."""
    return keyed_hash(pc.drop_null(ids).cast(pa.large_string()).to_pylist(), "duplicate ids", 0)


def write_hashes(work: Path, number: int, hashes: Sequence[Hashes]) -> Path:
    """Write the id hashes of a part and return the file's path."""
    file = _file(work, number, "hashes")
    write_values(file, np.concatenate([np.empty(0, np.uint64), *hashes]))
    return file


def same_size(tasks: Sequence[IdTask]) -> list[IdTask]:
    """Return the tasks of parts with the same file sizes as another part, so that copies are found first."""
    sizes = [[Path(file).stat().st_size for file in task.part.files if Path(file).is_file()] for task in tasks]
    for size, section in zip(sizes, (task.part.section for task in tasks), strict=True):
        size.extend([section.start, section.stop] if section else ())
    counts = Counter(map(tuple, sizes))
    return [task for task, size in zip(tasks, sizes, strict=True) if size and counts[tuple(size)] > 1]


def find_duplicates(tasks: Sequence[IdTask], engine: Engine) -> pa.Table:
    """Return documents with duplicate ids, with schema ``ROWS``, by id, part and row; for "error" perhaps of one id."""
    if not tasks:
        return ROWS.empty_table()
    file = tasks[0].work / IDS / f"meeting-{len(tasks)}.keys"
    documents = sum(Marker.open(task.marker).content["documents"] for task in tasks)
    meeting = _shared_hashes(tasks, documents, file.with_name(f"meeting-{len(tasks)}"), engine)
    if not len(meeting):
        return ROWS.empty_table()
    write_values(file, meeting)
    numbers = set(engine.tasks(partial(_find_meeting, file), tasks))
    having = [task for task in tasks if task.number in numbers]
    groups = [having]
    if having[0].policy == "error":
        first = np.intersect1d(_stored(having[0]), meeting)[0]
        groups.insert(0, [task for task in having if (_stored(task) == first).any()])
    for group in groups:
        rows = pa.concat_tables(engine.tasks(partial(_read_meeting, file), group))
        rows = rows.sort_by([(name, "ascending") for name in ("id", "part", "row")]).combine_chunks()
        follows = _follows(rows["id"])
        if (same := follows | np.append(follows[1:], False)).any():
            return rows.filter(pa.array(same))
    return ROWS.empty_table()


def keep_first(work: Path, duplicates: pa.Table) -> None:
    """Write the rows of each part that "keep_first" removes, given the result of :func:`find_duplicates`."""
    gone = duplicates.filter(pa.array(_follows(duplicates["id"])))
    files = []
    for number in pc.unique(gone["part"]).to_pylist():
        files.append(_file(work, number, "parquet"))
        write_table(gone.filter(pc.equal(gone["part"], number)).sort_by("row"), files[-1])
    marker = kept_marker(work)
    Marker(marker, {"removed": gone.num_rows}, Marker.entries(marker, files)).write()


def kept_marker(work: Path) -> Path:
    """Return the path of the marker of the rows that "keep_first" removes."""
    return work / IDS / "kept.json"


def check_unchanged(work: Path, number: int, read: Sequence[InputFile]) -> None:
    """Raise a RunError if the files of a part have changed since "keep_first" listed their ids."""
    listed = Marker.read(_file(work, number, "json"))
    known = map(InputFile.from_mark, listed.content["inputs"] if listed else ())
    check_same([*known], read, f"{work.parent} listed its ids")


def duplicates_error(source: Source, parts: Sequence[Part], found: pa.Table, *, begun: bool) -> RunError:
    """Return the error for the first document with a duplicate id, ``found`` by :func:`find_duplicates`.

    ``begun`` is whether the first segment is done, so that a corrected run needs another folder.
    """
    first = found.sort_by([("part", "ascending"), ("row", "ascending")])["id"][0]
    numbers = pc.unique(found.filter(pc.equal(found["id"], first))["part"])
    having = [parts[number] for number in numbers.to_pylist()]
    # The pieces may have no such id: a file may have changed since.
    having = list(_having(source, having, first.as_py()) or having)
    names = list(dict.fromkeys(each.files[0] if each.files else each.name for each in having))
    takes_names = hasattr(source, "data_files") and not source.lists()
    by_naming = " by naming all others, --set 'source.data_files=[FILE, FILE]'" if takes_names else ""
    where, out = f"twice in {names[0]}", "that file, or its copies,"
    if len(names) > 1:
        where, out = f"in {names[0]} and in {names[1]}", "one of the two"
    return RunError(
        f"a run needs unique ids, but some occur more than once, such as {first.as_py()!r}, {where}: remove {out} "
        f"from the source{by_naming}, or keep the first document of each id, --set source.on_duplicate_ids=keep_first"
        f"{', and choose another folder' if begun else ''}"
    )


def _having(source: Source, parts: Sequence[Part], example: str) -> Sequence[Part]:
    """Return at most two parts of the source with an id; merged parts are searched piece by piece."""
    if not any(part.pieces for part in parts):
        return parts

    def has_it(piece: Part) -> bool:
        return any(pc.index(ids, pa.scalar(example, ids.type)).as_py() >= 0 for ids in _listed(source, piece))

    return list(islice(filter(has_it, (piece for part in parts for piece in part.each())), 2))


def _file(work: Path, number: int, kind: str) -> Path:
    return work / IDS / f"{number:05d}.{kind}"


def _listed(source: Source, part: Part) -> Iterator[pa.ChunkedArray]:
    for piece in part.each():
        listed = source.list_ids(piece)
        if listed is not None:
            yield from listed
        else:
            yield from (table["id"] for table in source.read(piece, BadFiles("skip")))


def _stored(task: IdTask) -> Hashes:
    file = _file(task.work, task.number, "hashes")
    Marker.open(task.marker, file)
    return np.fromfile(file, np.uint64)


def _shared_hashes(tasks: Sequence[IdTask], documents: int, folder: Path, engine: Engine) -> Hashes:
    if documents <= HELD:
        return _repeated(np.concatenate([np.empty(0, np.uint64), *map(_stored, tasks)]))
    pieces = -(-documents // PIECE)
    step = Exchange(partial(_make_hashes, pieces), _take_hashes, pieces, folder)
    engine.exchange(step, tasks)
    found: Hashes = np.concatenate([step.read(piece)["hash"].to_numpy() for piece in range(pieces)])
    step.remove()
    return found


def _repeated(hashes: Hashes) -> Hashes:
    """Sort hashes in place and return those that occur more than once, each once."""
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _make_hashes(pieces: int, task: IdTask) -> Iterator[tuple[int, pa.Table]]:
    """Yield the hashes of a task by key range; a hash that occurs several times is sent twice."""
    hashes, counts = np.unique(_stored(task), return_counts=True)
    hashes = np.repeat(hashes, np.minimum(counts, 2))
    yield from cut(pa.table({"hash": hashes}), key_ranges(hashes, pieces))


def _take_hashes(_: int, tables: Iterator[pa.Table]) -> pa.Table:
    return pa.table({"hash": _repeated(np.concatenate([np.empty(0, np.uint64), *(each["hash"] for each in tables)]))})


def _among(hashes: Hashes, some: Hashes) -> npt.NDArray[np.bool_]:
    """Return a mask of the hashes that are in ``some``, which is sorted and not empty."""
    return np.equal(some[np.minimum(np.searchsorted(some, hashes), len(some) - 1)], hashes)


def _find_meeting(meeting: Path, task: IdTask) -> int:
    """Return the number of a task's part if it has one of the hashes in a file, else -1."""
    bring(meeting)
    return task.number if _among(_stored(task), np.memmap(meeting, np.uint64, "r")).any() else -1


def _read_meeting(meeting: Path, task: IdTask) -> pa.Table:
    bring(meeting)
    known_inputs(task.divided, task.part)
    wanted, row, found = np.memmap(meeting, np.uint64, "r"), 0, [ROWS.empty_table()]
    for table in read_gathered(task.source, task.part, BadFiles("skip")):
        has_id = table["id"].is_valid().to_numpy()
        places = np.flatnonzero(has_id)[_among(hash_ids(table["id"]), wanted)]
        columns = [np.full(len(places), task.number), row + places, table["id"].take(places).cast(pa.large_string())]
        found.append(pa.table(columns, schema=ROWS))
        row += table.num_rows
    return pa.concat_tables(found)


def _follows(ids: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the sorted ids that equal the one before."""
    equal = np.zeros(len(ids), bool)
    equal[1:] = pc.equal(ids[1:], ids[:-1])
    return equal


SPILL = "spill"
"""Folder in ``work`` for the files of an output's first pass."""
_LENGTHS = "characters of the text"


@dataclass
class Tally:
    """Ledger entries and funnel rows of one part, by the labels of its stages."""

    ledger: list[pa.Table] = field(default_factory=list)
    rows: dict[str, FunnelRow] = field(default_factory=dict)
    keep_edits: Callable[[pa.Table], None] | None = None
    """Function that receives the edit ledger batch by batch, or None to drop it."""
    queued: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    """Rows of each queue."""
    clock: CoreClock = field(default_factory=CoreClock)

    def note(self, row: FunnelRow, gone: pa.Table) -> None:
        """Add a stage's counts for one batch and the ledger entries of the documents it removed."""
        self.rows[row.stage] = self.rows[row.stage] + row if row.stage in self.rows else row
        if gone.num_rows:
            self.ledger.append(gone)

    def add(self, results: Results) -> Sequence[pa.Table]:
        """Add the tally and edits of :meth:`results` for other documents, and return the other tables."""
        for values in results.counts["rows"]:
            self.note(FunnelRow.from_dict(values), ledger.LEDGER_SCHEMA.empty_table())
        for label, seconds in results.counts["seconds"].items():
            self.clock.seconds[label] += seconds
        tables = iter(results.tables)
        self.ledger += islice(tables, results.counts["ledger"])
        for edits in islice(tables, results.counts["edits"]):
            if self.keep_edits is not None:
                self.keep_edits(edits)
        for queue, count in results.counts["queued"].items():
            self.queued[queue] += islice(tables, count)
        return [*tables]

    def results(self, edits: Sequence[pa.Table], tables: Sequence[pa.Table]) -> Results:
        """Return this tally, the edits of its documents, and other tables as plain values and tables."""
        counts = {
            "rows": [row.as_dict() for row in self.rows.values()],
            "seconds": dict(self.clock.seconds),
            "ledger": len(self.ledger),
            "edits": len(edits),
            "queued": {queue: len(rows) for queue, rows in self.queued.items()},
        }
        return Results(
            counts, [*self.ledger, *edits, *(each for rows in self.queued.values() for each in rows), *tables]
        )

    def table(self) -> pa.Table:
        """Return all entries in the order in which documents were removed."""
        return pa.concat_tables(self.ledger) if self.ledger else ledger.LEDGER_SCHEMA.empty_table()


def run_fused(stages: Sequence[tuple[str, Stage]], tables: Iterable[pa.Table], tally: Tally) -> Iterator[pa.Table]:
    """Run labelled stages over the tables of one part; record removals and counts in ``tally``.

    Empty tables also pass through, so that a part without survivors still gets the schema of the last stage.
    """
    for table in tables:
        flowing, lengths = table, text_lengths(table)
        held, held_until = flowing, -1
        for place, (label, stage) in enumerate(stages):
            ahead = CoreClock()
            with ahead.measure(label):
                came, together = stage.measure_ahead(flowing, [after for _, after in stages[place + 1 :]])
            alike = [name for name, each in stages if any(each is one for one in together)] or [label]
            for name in alike:
                tally.clock.seconds[name] += ahead.seconds[label] / len(alike)
            with tally.clock.measure(label):
                if together:
                    came, held, held_until = hold_texts(came), came, place + len(together) - 1
                (flowing, removed, places, queued), lengths = _apply(stage, came, lengths)
                if place == held_until:
                    flowing = release_texts(flowing, held)
                gone, values = ledger.entries(removed["id"], removed, label), count_values(flowing, stage.counts)
                counts = (
                    came.num_rows,
                    flowing.num_rows,
                    ledger.count_rules(gone),
                    _sum(lengths),
                    values,
                    ledger.count_edits(places),
                    count_queued(queued),
                )
                tally.note(FunnelRow(label, *counts), gone)
                for name, rows in queued.items():
                    tally.queued[name].append(rows)
                if places.num_rows and tally.keep_edits is not None:
                    tally.keep_edits(edit_rows(came, places, label))
        yield flowing


def _apply(stage: Stage, table: pa.Table, lengths: pa.ChunkedArray | None) -> tuple[Outcome, pa.ChunkedArray | None]:
    """Apply a stage to documents; if it does not edit text, filter their known text lengths along with them."""
    if stage.edits or lengths is None:
        outcome = stage.apply(table)
        return outcome, text_lengths(outcome.documents)
    outcome = stage.apply(table.append_column(_LENGTHS, lengths))
    kept = outcome.documents
    return outcome._replace(documents=kept.drop_columns([_LENGTHS])), kept[_LENGTHS]


def characters(documents: pa.Table) -> int | None:
    """Return the number of characters (Unicode code points) in all texts.

    None if the documents have no text column, or their text is extracted later.
    """
    return _sum(text_lengths(documents))


def _sum(lengths: pa.ChunkedArray | None) -> int | None:
    return None if lengths is None else int(pc.sum(lengths).as_py() or 0)


@dataclass(frozen=True)
class PartTask:
    """Task of a worker process that runs one part of one segment."""

    folder: Path
    segment: Segment
    number: int
    part: Part
    source: Source
    writer: Writer | None
    keeps_first: bool = False
    """Whether to remove documents with the id of an earlier one before the first stage."""
    hashes_ids: bool = False
    """Whether to hash the ids, to be compared once all parts are read."""
    divided: Path | None = None
    """Marker of the division that made the part, if it is a section."""
    edits: pa.Schema = EDIT_SCHEMA
    """Schema of the edit ledger."""

    @property
    def marker(self) -> Path:
        """The path of the marker with this part's counts, written when it is done."""
        return part_marker(self.folder / WORK, self.segment.number, self.number)

    @property
    def checkpoints(self) -> Path:
        """The path of the folder of checkpoints of this part, removed when it is done."""
        return self.folder / WORK / CHECKPOINTS / f"{self.segment.number}-{self.number:05d}"


def run_part(task: PartTask) -> dict[str, Any]:
    """Run one part and return its counts: documents read, in and out of each stage, broken files, skipped records.

    If a server does not deliver the part's files now, the part stays open, and the result is only the reason, under
    "not_yet". Checksums of compressed files are compared after their data was used, as an unfinished part leaves
    nothing behind. An error before that may come from damaged data, so the part is run again, checksums first.
    """
    try:
        with following(progress_file(task.folder / WORK, task.marker)):
            return _run_in_one_pass(task)
    except NotYetError as reason:
        return {"not_yet": str(reason)}


def _run_in_one_pass(task: PartTask) -> dict[str, Any]:
    bad_files = BadFiles(task.source.on_bad_files, checksums="last")
    try:
        counts = _run_part(task, bad_files)
    except NotYetError:
        raise
    except Exception:
        if not bad_files.has_unchecked:
            bad_files.warn_late()
            raise
    else:
        bad_files.warn_late()
        return counts
    return _run_part(task, BadFiles(task.source.on_bad_files))


def mark_fitted(work: Path, segment: int) -> None:
    """Write the marker of the files that a stage fitted after a segment, such as a tokenizer."""
    marker = work / f"fit-{segment}.json"
    Marker(marker, {}, Marker.entries(marker, whole_files(marker.with_suffix("")))).write()


def _check_fitted(work: Path, segment: int) -> None:
    for marker in filter(is_there, (work / f"fit-{earlier}.json" for earlier in range(segment))):
        fitted = Marker.open(marker)
        fitted.check(*map(Path, fitted.resolved_files()))


def _run_part(task: PartTask, bad_files: BadFiles) -> dict[str, Any]:
    _check_fitted(task.folder / WORK, task.segment.number)
    work, tally = task.folder / WORK, Tally()
    name = f"{task.segment.number:02d}-{task.number:05d}.parquet"
    removals, edited = task.folder / LEDGER / name, task.folder / EDITS / name
    clock = CoreClock()
    owners: list[str] = []
    read = _Counted(_input(task, bad_files, owners), clock, task.hashes_ids)
    first = _first_of_ids(task, read, tally) if task.keeps_first else read
    checkpoints = Checkpoints(task.checkpoints)
    results = _run_stages(task, first, tally, checkpoints)
    rows = None
    with ExitStack() as input_files:
        known = [] if task.segment.number else known_inputs(task.divided, task.part)
        inputs = input_files.enter_context(reading(task.part.files if task.segment.number == 0 else (), known))
        with clock.measure("all"):
            with ledger.edit_writer(edited, task.edits) as add_edits:
                tally.keep_edits = add_edits
                if task.writer is not None:
                    (work / SPILL).mkdir(parents=True, exist_ok=True)
                    task.writer.spill(without_content(kept for kept, *_ in results), work / SPILL, task.number)
                else:
                    rows = _keep(results, task)
            _write_rows(tally.table(), removals)
            for queue in QUEUES:
                _write_rows(pa.concat_tables([SCHEMA.empty_table(), *tally.queued[queue]]), task.folder / queue / name)
            with clock.measure("read"):
                input_files.close()
            check_same(known, inputs, f"{task.folder} divided it")
            if task.keeps_first:
                check_unchanged(work, task.number, inputs)
            beside = (removals, edited, *(task.folder / queue / name for queue in QUEUES))
            written = [*_written(task), *(file for file in beside if file.exists())]
            if task.hashes_ids:
                written.append(write_hashes(work, task.number, read.hashes))
            marked = Marker.entries(task.marker, written)
    keep = clock.seconds["all"] - clock.seconds["read"] - sum(tally.clock.seconds.values())  # writing is the remainder
    counts = {
        "documents": read.documents,
        "kept": rows,
        "characters": read.characters,
        "stages": [row.as_dict() for row in tally.rows.values()],
        "bad_files": [{"part": name, **asdict(bad)} for name, bad in zip(owners, bad_files.found, strict=True)],
        "left_out": dict(bad_files.left_out),
        "encodings": dict(bad_files.encodings),
        "fields": bad_files.fields,
        FROM_OCR: [name for rows in tally.queued[FROM_OCR] for name in rows["id"].to_pylist()],
        "seconds": {"read": clock.seconds["read"], "stages": tally.clock.seconds, "keep": max(keep, 0.0)},
    }
    if task.segment.number == 0:
        counts |= {"inputs": [file.marked() for file in inputs], "bytes": task.part.local_bytes()}
        counts |= {} if read.characters is None else {"lengths": read.lengths.as_dict()}
    Marker(task.marker, counts, marked).write()
    checkpoints.remove()
    return counts


def _run_stages(
    task: PartTask, tables: Iterable[pa.Table], tally: Tally, checkpoints: Checkpoints
) -> Iterator[Sequence[pa.Table]]:
    """Yield the documents that the stages keep of each table, and their sketch if a survey follows."""
    stages, survey = [*_applied(task), *task.segment.stages], task.segment.survey
    if not stages and survey is None:
        yield from ([table] for table in tables)
        return
    for table in tables:
        if (results := checkpoints.find(table)) is None:
            edits = list[pa.Table]()
            own = Tally(keep_edits=edits.append)
            (kept,) = run_fused(stages, [table], own)
            sketches = [] if survey is None else [survey.sketch(kept)]
            results = own.results(edits, [*([kept] if stages else []), *sketches])
            checkpoints.add(table, results)
        made = tally.add(results)
        yield made if stages else [table, *made]


def _write_rows(rows: pa.Table, file: Path) -> None:
    if rows.num_rows:
        write_table(rows, file)
    else:  # a stopped attempt may have left one
        remove(file)


def amount_left(counts: Mapping[str, Any]) -> int:
    """Return the amount of work in a part for the next segment: characters, or documents if they have no text."""
    left = counts["stages"][-1] if counts["stages"] else {"out": counts["documents"], **counts}
    characters = left.get("characters")
    return int(left["out"] if characters is None else characters)


def _written(task: PartTask) -> list[Path]:
    work, segment = task.folder / WORK, task.segment
    if task.writer is not None:
        return spilled(work, task.writer, task.number)
    kinds = ["arrow"] * segment.keeps_documents + ["sketches"] * (segment.survey is not None)
    return [part_file(work, segment.number, task.number, kind) for kind in kinds]


def spilled(work: Path, writer: Writer, number: int) -> list[Path]:
    """List the files that an output's first pass wrote for one input."""
    return [work / SPILL / f"{number:05d}.{kind}" for kind in writer.spills]


@dataclass
class _Counted:
    """Tables of a part; while they are read, their documents and characters are counted, and ids hashed if asked."""

    tables: Iterator[pa.Table]
    clock: CoreClock
    hashes_ids: bool
    hashes: list[Hashes] = field(default_factory=list)
    documents: int = 0
    characters: int | None = 0
    lengths: Lengths = field(default_factory=partial(Lengths, "characters"))

    def __iter__(self) -> Iterator[pa.Table]:
        while True:
            tell_progress()
            with self.clock.measure("read"):
                if (table := next(self.tables, None)) is None:
                    return
                self.documents += table.num_rows
                if self.hashes_ids:
                    self.hashes.append(hash_ids(table["id"]))
                lengths = text_lengths(table)
                self.characters = total([self.characters, _sum(lengths)])
                if lengths is not None:
                    self.lengths += Lengths.count("characters", lengths)
            yield table


def _input(task: PartTask, bad_files: BadFiles, owners: list[str]) -> Iterator[pa.Table]:
    if task.segment.number:
        yield from left_of(task.folder / WORK, task.segment.number - 1, task.number)
        return
    found = False
    for table in read_gathered(task.source, task.part, bad_files, owners):
        if not found and task.number == 0:
            _warn_of_fields(task.source, bad_files, table)
        found = True
        yield table
    if not found:
        yield task.source.schema().empty_table()


def _warn_of_fields(source: Source, bad_files: BadFiles, table: pa.Table) -> None:
    """Warn early of a field that may be misspelled; the run can only reject it once all records are read."""
    missing = [name for name in source.named_fields() if name not in bad_files.fields]
    if missing and table.num_rows:
        warn_user(
            f"none of the first {counted(table.num_rows, 'record')} has the field {missing[0]!r} that "
            f"{source.named_fields()[missing[0]]} names; if no other one has it either, the run fails once all are read"
        )


def _first_of_ids(task: PartTask, tables: Iterable[pa.Table], tally: Tally) -> Iterator[pa.Table]:
    work = task.folder / WORK
    for table, stays in mark_rows(tables, removed_rows(_file(work, task.number, "parquet"), kept_marker(work))):
        kept, ids = table.filter(stays), table["id"].filter(pc.invert(stays)).cast(pa.string())
        values = {"id": ids, "stage": [ledger.DUPLICATE_IDS] * len(ids), "rule": ["duplicate_id"] * len(ids)}
        empty = {name: [None] * len(ids) for name in ledger.LEDGER_SCHEMA.names if name not in values}
        gone, counts = pa.table({**values, **empty}, schema=ledger.LEDGER_SCHEMA), (table.num_rows, kept.num_rows)
        tally.note(FunnelRow(ledger.DUPLICATE_IDS, *counts, ledger.count_rules(gone), characters(kept)), gone)
        yield kept


def _applied(task: PartTask) -> Sequence[tuple[str, Stage]]:
    if task.segment.begins_with is None:
        return []
    label, survey = task.segment.begins_with
    file = part_file(task.folder / WORK, task.segment.number - 1, task.number, "spans")
    Marker.open(file.with_suffix(f".{SPANS_MARKER}"), file)
    return [(label, WithSpans(survey, Spans(read_table(file))))]


def _keep(results: Iterable[Sequence[pa.Table]], task: PartTask) -> int:
    """Write survivors, unless they are stored already, and sketches for a following survey; return the row count."""
    rows = 0
    with ExitStack() as files:
        writers: list[Any] = []
        for kept, *sketch in results:
            tables = [kept, *sketch] if task.segment.keeps_documents else sketch
            if not writers:
                pairs = zip(_written(task), tables, strict=True)
                writers = [files.enter_context(table_writer(path, each.schema)) for path, each in pairs]
            for writer, each in zip(writers, tables, strict=True):
                writer.write_table(each)
            rows += kept.num_rows
    return rows
