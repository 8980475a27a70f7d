"""Parts of a run: their ids, the tasks that write them, and what is stored of each.

Stages that look at one document at a time run one after the other on each table. Only survivors and ledger entries
leave: what the first rule drops is never written anywhere.

A part is done when its marker is there, which is written last and stands for all files of the part, see
:mod:`longcrawl.io.structured`. Whatever is read of them is compared with the marker first.

Whatever is read is compared with the marker first; see :mod:`longcrawl.run.part`. A segment between two surveys, in
which no stage is, keeps no documents of its own: they are those of the segment before without what its survey removes.

Removed rows have a file for each input, which would otherwise read the ids of all removed documents and look its own up
among them.

A source lists each file as a part. A run writes and syncs some files for every part, and calls stages for its tables:
for 2,000 short texts this was 18 of 19 CPU seconds (``benchmarks/small_files.py``). So small parts that
follow each other are one part of the run, made of pieces. Documents keep their order and ids, and the manifest and
errors name the pieces.

The ledger, takedowns and every stage that removes documents know a document by its id. A file that was downloaded twice
would stop a run after hours, so sources list ids without texts where that is much faster than reading
(:meth:`Source.list_ids`): in a WARC file 0.05 of the 2 ms that a page takes with the fastest extraction. The hashes of
all ids are compared, 8 bytes a document. Where two are equal, and only there, the parts are read, without any stage,
and ids are compared in full.

``on_duplicate_ids``, a field of a recipe's ``source``, says what follows. "error", the default, stops a run. Ids that a
source cannot list, those of remote files among them, are hashed while the first segment reads them, and so are those of
a small file that is alone (:func:`is_soon_read`). "keep_first" reads what cannot be listed an extra time. It leaves all
but the first document of each id, in the order of parts and rows, whatever later becomes of that one; funnel and ledger
have the others under ``duplicate_ids``.
"""

import os
from collections import Counter
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

from longcrawl.core.batches import hold_texts, release_texts, text_lengths
from longcrawl.core.display import counted
from longcrawl.core.exchange import Engine, Exchange, cut, key_ranges
from longcrawl.core.funnel import FunnelRow, count_values, total
from longcrawl.core.ledger import (
    DUPLICATE_IDS,
    EDITS,
    LEDGER,
    LEDGER_SCHEMA,
    count_edits,
    count_rules,
    edit_writer,
    entries,
)
from longcrawl.core.outputs import Writer
from longcrawl.core.places import edit_rows
from longcrawl.core.sources import BadFiles, OnDuplicateIds, Part, Source
from longcrawl.core.stages import CoreClock, Outcome, Segment, Spans, Stage, WithSpans
from longcrawl.errors import NotYetError, RunError, warn_user
from longcrawl.io.files import bring, is_there, remove, whole_file, whole_files, write_values
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Marker
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.run.analysis import Lengths
from longcrawl.run.manifest import INPUTS, WORK
from longcrawl.run.recipe import Recipe
from longcrawl.sources.files import InputFile, reading


def removed_rows(file: Path, marker: Path) -> npt.NDArray[np.int64]:
    """Return the rows of a part that leave it, in order; where its marker names no such file, none do.

    Raises:
        DamagedWorkError: they are not as they were written.
    """
    found = Marker.open(marker)
    if not found.names(file):
        return np.empty(0, np.int64)
    found.check(file)
    rows: npt.NDArray[np.int64] = read_table(file, ["row"])["row"].to_numpy()
    return rows


def mark_rows(tables: Iterable[pa.Table], rows: npt.NDArray[np.int64]) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Return the tables of a part, and which of their rows stay: those that are not among ``rows``, in order."""
    start = 0
    for table in tables:
        first, last = np.searchsorted(rows, [start, start + table.num_rows])
        kept = np.ones(table.num_rows, bool)
        kept[rows[first:last] - start] = False
        start += table.num_rows
        yield table, pa.array(kept)


def removed_file(work: Path, segment: int, number: int) -> Path:
    """Name the file of the rows of an input that the survey at the end of a segment removes."""
    return work / f"removed-{segment}" / f"{number:05d}.parquet"


def input_marker(work: Path, segment: int, number: int) -> Path:
    """Name the marker of this file, if any row leaves, and of the ledger of these rows."""
    return removed_file(work, segment, number).with_suffix(".json")


def removed_marker(work: Path, segment: int, part: int = 0) -> Path:
    """Name the marker of a survey that has decided about a part or all of them, with counts of what it removes."""
    return work / (f"removed-{segment}-{part}.json" if part else f"removed-{segment}.json")


SPANS_MARKER = "spans.json"


def part_marker(work: Path, segment: int, number: int) -> Path:
    """Name the marker of one part of one segment."""
    return part_file(work, segment, number, "json")


def survivors(work: Path, segment: int, numbers: Iterable[int]) -> Iterator[pa.Table]:
    """Return the tables that a segment kept of these inputs, one after the other."""
    for number in numbers:
        yield from _kept(work, segment, number)


def left_of(work: Path, segment: int, number: int) -> Iterator[pa.Table]:
    """Return the tables of an input that a segment kept, without rows that its survey removes."""
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
    """Return what a survey sketched of these inputs, or some columns of it, one after the other."""
    for number in numbers:
        yield from tables_of(stored(work, segment, number, "sketches"), columns)


def spans_kept(work: Path, segment: int, numbers: Sequence[int]) -> bool:
    """Return whether the spans of these inputs are written."""
    return all(Marker.read_all(part_file(work, segment, number, SPANS_MARKER) for number in numbers))


def keep_spans(work: Path, segment: int, numbers: Sequence[int], spans: pa.Table, start: int = 0) -> None:
    """Write spans that were found in these inputs, of each in a file of its own with a marker.

    ``start`` is the number of their first document among those in which spans were found.
    """
    documents = spans["document"].to_numpy()
    for number in numbers:
        stop = start + stored_rows(work, segment, number)
        first, last = (int(place) for place in documents.searchsorted([start, stop]))
        file, marker = part_file(work, segment, number, "spans"), part_file(work, segment, number, SPANS_MARKER)
        write_table(spans.slice(first, last - first), file)
        Marker(marker, {}, Marker.entries(marker, [file])).write()
        start = stop


def sketch_bytes(work: Path, segment: int, number: int) -> int:
    """Return the bytes that a survey's sketches of one input take on disk, as its marker has them."""
    marker = part_marker(work, segment, number)
    return int(
        Marker.open(marker).resolved_files()[str(part_file(work, segment, number, "sketches").resolve())]["bytes"]
    )


def stored_rows(work: Path, segment: int, number: int) -> int:
    """Return how many documents a segment kept of one input, as its marker has it."""
    return int(Marker.open(part_marker(work, segment, number)).content["kept"])


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Open a file of tables, which is there whole or not at all."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with whole_file(path) as beside, pa.ipc.new_file(beside, schema, options=options) as writer:
        yield writer


def tables_of(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Return the tables of a file, or some columns of them: no other one is decompressed."""
    with pa.memory_map(str(file)) as mapped:
        batches = pa.ipc.open_file(mapped)
        if columns is not None:
            places = sorted(map(batches.schema.get_field_index, columns))
            batches = pa.ipc.open_file(mapped, options=pa.ipc.IpcReadOptions(included_fields=places))
        if not batches.num_record_batches:
            yield batches.schema.empty_table()
        for number in range(batches.num_record_batches):
            yield pa.Table.from_batches([batches.get_batch(number)])


def stored(work: Path, segment: int, number: int, kind: str) -> Path:
    """Name a file that a part has written, which is as it was written.

    Raises:
        DamagedWorkError: it is not.
    """
    file = part_file(work, segment, number, kind)
    Marker.open(part_marker(work, segment, number), file)
    return file


def part_file(work: Path, segment: int, number: int, kind: str) -> Path:
    """Name a file of one part of one segment."""
    return work / f"segment-{segment}" / f"{number:05d}.{kind}"


ALONE = 32
"""So many parts of an input are worked on one by one; of n times as many, up to n are one."""
SMALL = 4 << 20
"""Bytes of the files of several parts that are one, at most."""
TOGETHER = 16 << 20
"""Bytes of a table that is made of several, at most."""
GATHERED = "gathered"
"""Where a run records how many parts of its input are one, for each of its own."""


def gather_small(parts: Sequence[Part], recipe: Recipe, folder: Path | None = None) -> list[Part]:
    """Return the parts that a run works on: of many, small local ones that follow each other are one.

    A run that was begun in ``folder`` goes on with the parts that it has recorded. With ``parts`` in the recipe they
    are the input's, since those decide which documents are compared.
    """
    begun = Marker.read(folder / WORK / INPUTS) if folder else None
    if recipe.parts > 1:
        counts = [1] * len(parts)
    elif begun is not None and list(begun.content["parts"]) == [part.name for part in parts]:
        counts = begun.content.get(GATHERED, [1] * len(parts))
    else:
        counts = _gathered(parts)
    left = iter(parts)
    return [_as_one(tuple(islice(left, count))) for count in counts]


def _gathered(parts: Sequence[Part]) -> list[int]:
    """Return how many parts become one, of those that follow each other."""
    most, counts, size = -(-len(parts) // ALONE), list[int](), 0
    for part in parts:
        own = local_bytes(part) if most > 1 else None
        if own is not None and counts and counts[-1] < most and size + own <= SMALL:
            counts[-1] += 1
            size += own
        else:
            counts.append(1)
            size = SMALL + 1 if own is None else own
    return counts


def local_bytes(part: Part) -> int | None:
    """Return the bytes of the files of a part; None where one is not here."""
    try:
        return sum(os.stat(file).st_size for file in part.files) if part.files else None  # noqa: PTH116  # 100,000 files
    except OSError:
        return None


def _as_one(pieces: tuple[Part, ...]) -> Part:
    if len(pieces) == 1:
        return pieces[0]
    return Part(pieces[0].name, tuple(file for piece in pieces for file in piece.files), pieces)


def read_gathered(
    source: Source, part: Part, bad_files: BadFiles, owners: list[str] | None = None
) -> Iterator[pa.Table]:
    """Read a part of a run in tables of many rows; ``owners`` takes the name of the piece of each broken file."""
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
"""Documents whose hashes one process sorts, 8 bytes each; those of more meet by an exchange."""
PIECE = 1 << 22
"""Documents whose hashes are in one partition of it, about."""

SOON = 1 << 28
"""Bytes of a file whose ids are not listed where it is alone: that would take as long as half of its stages."""

IDS = "ids"
"""The folder in ``work`` of the hashes of each part, and of the rows that "keep_first" leaves out."""
ROWS = pa.schema([("part", pa.int64()), ("row", pa.int64()), ("id", pa.large_string())])
"""Documents by the number of their part, and their place among all rows that the source gives of it."""


@dataclass(frozen=True)
class IdTask:
    """What a worker process needs to list the ids of one part."""

    work: Path
    number: int
    part: Part
    source: Source
    policy: OnDuplicateIds
    waits: bool = False
    """Whether its ids are hashed only when the first segment reads the part."""

    @property
    def marker(self) -> Path:
        """The marker of the hashes of this part, which is that of the first segment if they wait for it."""
        return part_marker(self.work, 0, self.number) if self.waits else _file(self.work, self.number, "json")


def id_tasks(work: Path, source: Source, parts: Sequence[Part], policy: OnDuplicateIds) -> list[IdTask]:
    """Return a task for each part; none if no two documents of the source can have one id."""
    if source.unique_ids:
        return []
    soon = is_soon_read(parts)
    waits = [policy == "error" and (soon or not _can_list(source, part)) for part in parts]
    return [IdTask(work, number, part, source, policy, waits[number]) for number, part in enumerate(parts)]


def _can_list(source: Source, part: Part) -> bool:
    return all(source.list_ids(piece) is not None for piece in part.each())


def list_ids(task: IdTask) -> dict[str, Any]:
    """Write the hashes of the ids of a part; the answer is as that of :func:`longcrawl.run.part.run_part`."""
    try:
        with reading(task.part.files if task.policy == "keep_first" else ()) as inputs:
            hashes = [hash_ids(ids) for ids in _listed(task.source, task.part)]
    except NotYetError as reason:
        return {"not_yet": str(reason)}
    file = write_hashes(task.work, task.number, hashes)
    counts = {"documents": sum(map(len, hashes)), "inputs": [each.marked() for each in inputs]}
    Marker(task.marker, counts, Marker.entries(task.marker, [file])).write()
    return counts


def hash_ids(ids: pa.ChunkedArray) -> Hashes:
    """Return the hashes of ids, without those that are null."""
    return keyed_hash(pc.drop_null(ids).cast(pa.large_string()).to_pylist(), "duplicate ids", 0)


def write_hashes(work: Path, number: int, hashes: Sequence[Hashes]) -> Path:
    """Write the hashes of the ids of a part; return the file."""
    file = _file(work, number, "hashes")
    write_values(file, np.concatenate([np.empty(0, np.uint64), *hashes]))
    return file


def is_soon_read(parts: Sequence[Part]) -> bool:
    """Return whether the ids of parts can be compared once they are read: there is one, and it is small."""
    files = [Path(file) for part in parts for file in part.files]
    there = files and all(map(Path.is_file, files))
    return bool(len(parts) == 1 and there and sum(file.stat().st_size for file in files) <= SOON)


def same_size(tasks: Sequence[IdTask]) -> list[IdTask]:
    """Return the tasks of parts whose files have as many bytes as those of another: copies are among them."""
    sizes = [[Path(file).stat().st_size for file in task.part.files if Path(file).is_file()] for task in tasks]
    counts = Counter(map(tuple, sizes))
    return [task for task, size in zip(tasks, sizes, strict=True) if size and counts[tuple(size)] > 1]


def find_duplicates(tasks: Sequence[IdTask], engine: Engine) -> pa.Table:
    """Return the documents whose id another one has too (``ROWS``), sorted by id, part and row.

    Under "error" those of the first parts that have one are enough.
    """
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
    """Write which rows of each part are left out, of what :func:`find_duplicates` has returned."""
    gone = duplicates.filter(pa.array(_follows(duplicates["id"])))
    files = []
    for number in pc.unique(gone["part"]).to_pylist():
        files.append(_file(work, number, "parquet"))
        write_table(gone.filter(pc.equal(gone["part"], number)).sort_by("row"), files[-1])
    marker = kept_marker(work)
    Marker(marker, {"removed": gone.num_rows}, Marker.entries(marker, files)).write()


def kept_marker(work: Path) -> Path:
    """Name the marker of what "keep_first" leaves out."""
    return work / IDS / "kept.json"


def first_of_ids(work: Path, number: int, tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Return the tables of a part without the rows that "keep_first" leaves out, and the ledger entries of these."""
    for table, stays in mark_rows(tables, removed_rows(_file(work, number, "parquet"), kept_marker(work))):
        ids = table["id"].filter(pc.invert(stays)).cast(pa.string())
        values = {"id": ids, "stage": [DUPLICATE_IDS] * len(ids), "rule": ["duplicate_id"] * len(ids)}
        empty = {name: [None] * len(ids) for name in LEDGER_SCHEMA.names if name not in values}
        yield table.filter(stays), pa.table({**values, **empty}, schema=LEDGER_SCHEMA)


def check_unchanged(work: Path, number: int, read: Sequence[InputFile]) -> None:
    """Check that the files of a part are those whose ids were listed, where "keep_first" has listed them.

    Raises:
        RunError: one is not, so that other rows might have to be left out.
    """
    listed = Marker.read(_file(work, number, "json"))
    for before, now in zip(listed.content["inputs"] if listed else (), read, strict=False):
        if InputFile.from_mark(before).as_dict() != now.as_dict():
            raise RunError(
                f"{now.file} has changed since {work.parent} listed its ids. Restore it and type the same command "
                "again, or type it with another --out folder"
            )


def duplicates_error(source: Source, parts: Sequence[Part], found: pa.Table, *, begun: bool) -> RunError:
    """Return the error of a run for the first document that has another one of its id.

    Args:
        source: of the run.
        parts: of the source.
        found: see :func:`find_duplicates`.
        begun: whether the first segment is done, so that the folder is of this source for good.
    """
    first = found.sort_by([("part", "ascending"), ("row", "ascending")])["id"][0]
    numbers = pc.unique(found.filter(pc.equal(found["id"], first))["part"])
    having = [parts[number] for number in numbers.to_pylist()]
    pieces = _having(source, having, first.as_py()) or having  # a file may have changed since
    names = [piece.files[0] if piece.files else piece.name for piece in pieces]
    takes_names = hasattr(source, "data_files") and not source.lists()
    by_naming = " by naming all others, --set 'source.data_files=[FILE, FILE]'" if takes_names else ""
    where, out = f"twice in {names[0]}", "that file, or its copies,"
    if len(names) > 1:
        where, out = f"in {names[0]} and in {names[1]}", "one of the two"
    return RunError(
        f"a run needs unique ids, some occur more than once, such as {first.as_py()!r}, {where}: leave {out} out of "
        f"the source{by_naming}, or keep the first document of each id, --set source.on_duplicate_ids=keep_first"
        f"{', and choose another folder' if begun else ''}"
    )


def _having(source: Source, parts: Sequence[Part], example: str) -> Sequence[Part]:
    """Return two parts of the source that have an id, or the one; what was read as one part is listed again for it."""
    if not any(part.pieces for part in parts):
        return parts
    pieces = (piece for part in parts for piece in part.each())
    return list(islice((piece for piece in pieces if _has(source, piece, example)), 2))


def _has(source: Source, piece: Part, example: str) -> bool:
    return any(pc.index(ids, pa.scalar(example, ids.type)).as_py() >= 0 for ids in _listed(source, piece))


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
    """Return, sorted, the hashes that several documents have: of all tasks together, each of which has some."""
    if documents <= HELD:
        return _repeated(np.concatenate([np.empty(0, np.uint64), *map(_stored, tasks)]))
    pieces = -(-documents // PIECE)
    step = Exchange(partial(_make_hashes, pieces), _take_hashes, pieces, folder)
    engine.exchange(step, tasks)
    found: Hashes = np.concatenate([step.read(piece)["hash"].to_numpy() for piece in range(pieces)])
    step.remove()
    return found


def _repeated(hashes: Hashes) -> Hashes:
    """Return, sorted, which hashes occur more than once."""
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _make_hashes(pieces: int, task: IdTask) -> Iterator[tuple[int, pa.Table]]:
    """Send each hash of a task once, and one that it has several times twice, by ranges."""
    hashes, counts = np.unique(_stored(task), return_counts=True)
    hashes = np.repeat(hashes, np.minimum(counts, 2))
    yield from cut(pa.table({"hash": hashes}), key_ranges(hashes, pieces))


def _take_hashes(_: int, tables: Iterator[pa.Table]) -> pa.Table:
    return pa.table({"hash": _repeated(np.concatenate([np.empty(0, np.uint64), *(each["hash"] for each in tables)]))})


def _among(hashes: Hashes, some: Hashes) -> npt.NDArray[np.bool_]:
    """Return which hashes are among some that are sorted; there is at least one of these."""
    found: npt.NDArray[np.bool_] = some[np.minimum(np.searchsorted(some, hashes), len(some) - 1)] == hashes
    return found


def _find_meeting(meeting: Path, task: IdTask) -> int:
    """Return the number of a part that has one of the hashes of a file, else -1."""
    bring(meeting)
    return task.number if _among(_stored(task), np.memmap(meeting, np.uint64, "r")).any() else -1


def _read_meeting(meeting: Path, task: IdTask) -> pa.Table:
    """Read a part without any stage; return its documents whose hashes are among those of a file."""
    bring(meeting)
    wanted, row, found = np.memmap(meeting, np.uint64, "r"), 0, [ROWS.empty_table()]
    for table in read_gathered(task.source, task.part, BadFiles("skip")):
        has_id = table["id"].is_valid().to_numpy()
        places = np.flatnonzero(has_id)[_among(hash_ids(table["id"]), wanted)]
        columns = [np.full(len(places), task.number), row + places, table["id"].take(places).cast(pa.large_string())]
        found.append(pa.table(columns, schema=ROWS))
        row += table.num_rows
    return pa.concat_tables(found)


def _follows(ids: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return of sorted ids which are equal to the one before."""
    equal = pc.equal(ids[1:], ids[:-1]).to_numpy() if len(ids) else ()
    return np.concatenate([np.zeros(min(len(ids), 1), bool), np.asarray(equal, bool)])


SPILL = "spill"
"""The folder in ``work`` that holds what outputs write in their first pass."""
_LENGTHS = "characters of the text"


@dataclass
class Tally:
    """What one part lost: ledger entries, and a row of the funnel for each stage, by the stages' labels."""

    ledger: list[pa.Table] = field(default_factory=list)
    rows: dict[str, FunnelRow] = field(default_factory=dict)
    keep_edits: Callable[[pa.Table], None] | None = None
    """What takes the edit ledger, batch by batch; nobody where it is None."""
    clock: CoreClock = field(default_factory=CoreClock)
    """What each stage took, by label."""

    def note(self, row: FunnelRow, gone: pa.Table) -> None:
        """Add what a stage did to one batch, and the ledger entries of what it removed."""
        self.rows[row.stage] = self.rows[row.stage] + row if row.stage in self.rows else row
        if gone.num_rows:
            self.ledger.append(gone)

    def table(self) -> pa.Table:
        """Return all entries in the order in which documents were removed."""
        return pa.concat_tables(self.ledger) if self.ledger else LEDGER_SCHEMA.empty_table()

    def counts(self) -> list[dict[str, Any]]:
        """Return the rows of the funnel as JSON-ready values."""
        return [row.as_dict() for row in self.rows.values()]


def run_fused(stages: Sequence[tuple[str, Stage]], tables: Iterable[pa.Table], tally: Tally) -> Iterator[pa.Table]:
    """Run labelled stages over the tables of one part; what leaves goes to ``tally``.

    Empty tables pass too, so that a part without survivors still has the schema of the last stage.

    Raises:
        StageError: a survey that removes documents is among the stages; those need all parts first.
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
                (flowing, removed, places), lengths = _apply(stage, came, lengths)
                if place == held_until:
                    flowing = release_texts(flowing, held)
                gone, values = entries(removed["id"], removed, label), count_values(flowing, stage.counts)
                counts = came.num_rows, flowing.num_rows, count_rules(gone), _sum(lengths), values, count_edits(places)
                tally.note(FunnelRow(label, *counts), gone)
                if places.num_rows and tally.keep_edits is not None:
                    tally.keep_edits(edit_rows(came, places, label))
        yield flowing


def _apply(stage: Stage, table: pa.Table, lengths: pa.ChunkedArray | None) -> tuple[Outcome, pa.ChunkedArray | None]:
    """Apply a stage to documents and, where it changes no text, to the lengths of their texts."""
    if stage.edits or lengths is None:
        outcome = stage.apply(table)
        return outcome, text_lengths(outcome.documents)
    outcome = stage.apply(table.append_column(_LENGTHS, lengths))
    kept = outcome.documents
    return outcome._replace(documents=kept.drop_columns([_LENGTHS])), kept[_LENGTHS]


def characters(documents: pa.Table) -> int | None:
    """Count the code points of all texts; None where there is no text, or where it is still to be extracted."""
    return _sum(text_lengths(documents))


def _sum(lengths: pa.ChunkedArray | None) -> int | None:
    return None if lengths is None else int(pc.sum(lengths).as_py() or 0)


@dataclass(frozen=True)
class PartTask:
    """What a worker process needs to run one part of one segment."""

    folder: Path
    segment: Segment
    number: int
    part: Part
    source: Source
    writer: Writer | None
    keeps_first: bool = False
    """Whether documents of an id that came before are left out of the first segment."""
    hashes_ids: bool = False
    """Whether the ids that are read are hashed, to be compared once all parts are read."""

    @property
    def marker(self) -> Path:
        """Where the counts of this part are written when it is done."""
        return part_marker(self.folder / WORK, self.segment.number, self.number)


def run_part(task: PartTask) -> dict[str, Any]:
    """Run one part and return its counts: documents read, in and out of each stage, broken files, records left out.

    A part whose files a server does not give now stays open: the answer is the reason alone, under "not_yet".

    Checksums of compressed files are compared behind their data, as nothing stays of a part that is not finished. What
    fails before, whatever says so, fails on data that may be wrong: the part is run again, on data that has been
    compared.
    """
    try:
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
    """Write the marker of what a stage learned between two segments, such as a tokenizer."""
    marker = _fit_marker(work, segment)
    Marker(marker, {}, Marker.entries(marker, whole_files(work / f"fit-{segment}"))).write()


def _check_fitted(work: Path, segment: int) -> None:
    """Compare what stages learned before a segment with its markers.

    Raises:
        DamagedWorkError: a file is not as it was written.
    """
    for earlier in range(segment):
        if is_there(marker := _fit_marker(work, earlier)):
            fitted = Marker.open(marker)
            fitted.check(*map(Path, fitted.resolved_files()))


def _fit_marker(work: Path, segment: int) -> Path:
    return work / f"fit-{segment}.json"


def _run_part(task: PartTask, bad_files: BadFiles) -> dict[str, Any]:
    _check_fitted(task.folder / WORK, task.segment.number)
    work, tally = task.folder / WORK, Tally()
    name = f"{task.segment.number:02d}-{task.number:05d}.parquet"
    ledger, edited = task.folder / LEDGER / name, task.folder / EDITS / name
    clock = CoreClock()
    owners: list[str] = []
    read = _Counted(_input(task, bad_files, owners), clock, hashes_ids=task.hashes_ids)
    kept = run_fused([*_applied(task), *task.segment.stages], _first_of_ids(task, read, tally), tally)
    rows = None
    with ExitStack() as input_files:
        inputs = input_files.enter_context(reading(task.part.files if task.segment.number == 0 else ()))
        with clock.measure("all"):
            with edit_writer(edited) as edits:
                tally.keep_edits = edits.add
                if task.writer is not None:
                    (work / SPILL).mkdir(parents=True, exist_ok=True)
                    task.writer.spill(kept, work / SPILL, task.number)
                else:
                    rows = _keep(kept, task)
            gone = tally.table()
            if gone.num_rows:
                write_table(gone, ledger)
            else:  # what a stopped attempt left, perhaps
                remove(ledger)
            with clock.measure("read"):
                input_files.close()
            if task.keeps_first:
                check_unchanged(work, task.number, inputs)
            written = [*_written(task), *(file for file in (ledger, edited) if file.exists())]
            if task.hashes_ids:
                written.append(write_hashes(work, task.number, read.hashes))
            entries = Marker.entries(task.marker, written)
    counts = {
        "documents": read.documents,
        "kept": rows,
        "characters": read.characters,
        "stages": tally.counts(),
        "bad_files": [{"part": name, **asdict(bad)} for name, bad in zip(owners, bad_files.found, strict=True)],
        "left_out": dict(bad_files.left_out),
        "encodings": dict(bad_files.encodings),
        "fields": bad_files.fields,
        "seconds": _seconds(clock, tally),
    }
    if task.segment.number == 0:
        counts["inputs"] = [file.marked() for file in inputs]
    if task.segment.number == 0 and read.characters is not None:
        counts["lengths"] = read.lengths.as_dict()
    Marker(task.marker, counts, entries).write()
    return counts


def amount_left(counts: Mapping[str, Any]) -> int:
    """Return how much work a part is for the next segment: its characters or, where there are none, its documents."""
    left = counts["stages"][-1] if counts["stages"] else {"out": counts["documents"], **counts}
    characters = left.get("characters")
    return int(left["out"] if characters is None else characters)


def _seconds(clock: CoreClock, tally: Tally) -> dict[str, Any]:
    """Return what reading took, what each stage, and what writing, which is the rest."""
    stages = tally.clock.seconds
    keep = clock.seconds["all"] - clock.seconds["read"] - sum(stages.values())
    return {"read": clock.seconds["read"], "stages": stages, "keep": max(keep, 0.0)}


def _written(task: PartTask) -> list[Path]:
    """List what :func:`run_part` wrote to the folder ``work``."""
    if task.writer is None:
        kept = {"arrow": task.segment.keeps_documents, "sketches": task.segment.survey is not None}
        kinds = [kind for kind, is_kept in kept.items() if is_kept]
        return [part_file(task.folder / WORK, task.segment.number, task.number, kind) for kind in kinds]
    return spilled(task.folder / WORK, task.writer, task.number)


def spilled(work: Path, writer: Writer, number: int) -> list[Path]:
    """List what the first pass of an output wrote of one input."""
    return [work / SPILL / f"{number:05d}.{kind}" for kind in writer.spills]


class _Counted:
    """Tables that pass, counted."""

    def __init__(self, tables: Iterable[pa.Table], clock: CoreClock, *, hashes_ids: bool) -> None:
        self.tables = iter(tables)
        self.clock = clock
        self.hashes_ids = hashes_ids
        self.hashes: list[Hashes] = []
        self.documents = 0
        self.characters: int | None = 0
        self.lengths = Lengths("characters")

    def __iter__(self) -> Iterator[pa.Table]:
        while True:
            with self.clock.measure("read"):
                table = next(self.tables, None)
                if table is None:
                    return
                self._count(table)
            yield table

    def _count(self, table: pa.Table) -> None:
        self.documents += table.num_rows
        if self.hashes_ids:
            self.hashes.append(hash_ids(table["id"]))
        lengths = text_lengths(table)
        self.characters = total([self.characters, _sum(lengths)])
        if lengths is not None:
            self.lengths += Lengths.count("characters", lengths)


def _input(task: PartTask, bad_files: BadFiles, owners: list[str]) -> Iterator[pa.Table]:
    if task.segment.number == 0:
        found = False
        for table in read_gathered(task.source, task.part, bad_files, owners):
            if not found and task.number == 0:
                _warn_of_fields(task.source, bad_files, table)
            found = True
            yield table
        if not found:
            yield task.source.schema().empty_table()
        return
    yield from left_of(task.folder / WORK, task.segment.number - 1, task.number)


def _warn_of_fields(source: Source, bad_files: BadFiles, table: pa.Table) -> None:
    """Warn early of a field that may be misspelled: whether no record has it is known once all are read."""
    missing = [name for name in source.named_fields() if name not in bad_files.fields]
    if missing and table.num_rows:
        warn_user(
            f"none of the first {counted(table.num_rows, 'record')} has the field {missing[0]!r} that "
            f"{source.named_fields()[missing[0]]} names; if no other one has it either, the run fails once all are read"
        )


def _first_of_ids(task: PartTask, tables: Iterable[pa.Table], tally: Tally) -> Iterator[pa.Table]:
    """Leave out documents whose id came before, where the recipe says so."""
    if not task.keeps_first:
        yield from tables
        return
    for kept, gone in first_of_ids(task.folder / WORK, task.number, tables):
        came = kept.num_rows + gone.num_rows
        tally.note(FunnelRow(DUPLICATE_IDS, came, kept.num_rows, count_rules(gone), characters(kept)), gone)
        yield kept


def _applied(task: PartTask) -> Sequence[tuple[str, Stage]]:
    if task.segment.begins_with is None:
        return []
    label, survey = task.segment.begins_with
    work, segment = task.folder / WORK, task.segment.number - 1
    file = part_file(work, segment, task.number, "spans")
    Marker.open(part_file(work, segment, task.number, SPANS_MARKER), file)
    spans = Spans(read_table(file))
    return [(label, WithSpans(survey, spans))]


def _keep(kept: Iterable[pa.Table], task: PartTask) -> int:
    """Write survivors, unless they are kept already, and sketches where a survey follows; return the number of rows.

    There is at least one table, perhaps an empty one.
    """
    rows, survey = 0, task.segment.survey
    with ExitStack() as files:
        writers: list[Any] = []
        for table in kept:
            tables = [table] if task.segment.keeps_documents else []
            tables += [] if survey is None else [survey.sketch(table)]
            if not writers:
                pairs = zip(_written(task), tables, strict=True)
                writers = [files.enter_context(table_writer(path, each.schema)) for path, each in pairs]
            for writer, each in zip(writers, tables, strict=True):
                writer.write_table(each)
            rows += table.num_rows
    return rows
