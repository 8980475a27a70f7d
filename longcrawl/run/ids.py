"""Documents of one id, found before the first stage of a run, or once its source has been read.

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

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import Engine, Exchange, cut, key_ranges
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.ledger import DUPLICATE_IDS, LEDGER_SCHEMA
from longcrawl.core.sources import BadFiles, OnDuplicateIds, Part, Source
from longcrawl.errors import NotYetError, RunError
from longcrawl.io.files import write_values
from longcrawl.io.place import bring
from longcrawl.io.stored_tables import write_table
from longcrawl.io.structured import Marker
from longcrawl.run.gathered_parts import read_gathered
from longcrawl.run.stored_parts import mark_rows, part_marker, removed_rows
from longcrawl.sources.files import InputFile, reading

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
