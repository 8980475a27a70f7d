"""One part of a run: read it, run fused stages over it, keep survivors, sketches and ledger.

Stages that look at one document at a time run one after the other on each table. Only survivors and ledger entries
leave: what the first rule drops is never written anywhere.

A part is done when its marker is there, which is written last and stands for all files of the part, see
:mod:`longcrawl.io.structured`. Whatever is read of them is compared with the marker first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import hold_texts, release_texts, text_lengths
from longcrawl.core.clock import CoreClock
from longcrawl.core.display import counted
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
from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.core.stages import Outcome, Segment, Spans, Stage, WithSpans
from longcrawl.errors import NotYetError, warn_user
from longcrawl.io.files import remove, whole_files
from longcrawl.io.place import is_there
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Marker
from longcrawl.run import ids
from longcrawl.run.analysis import Lengths
from longcrawl.run.gathered_parts import read_gathered
from longcrawl.run.manifest import WORK
from longcrawl.run.stored_parts import SPANS_MARKER, left_of, part_file, part_marker, table_writer
from longcrawl.sources.files import reading

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
                ids.check_unchanged(work, task.number, inputs)
            written = [*_written(task), *(file for file in (ledger, edited) if file.exists())]
            if task.hashes_ids:
                written.append(ids.write_hashes(work, task.number, read.hashes))
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
        self.hashes: list[ids.Hashes] = []
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
            self.hashes.append(ids.hash_ids(table["id"]))
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
    for kept, gone in ids.first_of_ids(task.folder / WORK, task.number, tables):
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
