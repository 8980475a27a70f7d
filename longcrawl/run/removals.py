"""Removals and spans that surveys decide between two segments, and indexes of datasets.

One process decides where it can hold the sketches. Beyond ``HELD`` bytes of them, inputs are taken in groups of
``TASK`` bytes, and a survey that can decides by exchanges between these; the answer is the same. A survey that cannot
needs all sketches in one process still, see :meth:`longcrawl.core.stages.Survey.exchange`.

For each survey with ``index="save"``, ``RUN/index/STAGE/`` holds what the run has kept in the end, see
:mod:`longcrawl.dedup.index`. A document that a later stage removed is not in it, so its duplicate in a later dataset
may stay, as in RefinedWeb. One process makes it where it can hold all sketches, else tasks do.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import DOCUMENT, Decided, Engine, Sketched, pack_table, report_of, unpack_table
from longcrawl.core.ledger import LEDGER, entries
from longcrawl.core.stages import PART, SpanSurvey, Stage, Survey
from longcrawl.dedup.index import DESCRIPTION, INDEX
from longcrawl.io.files import folder_bytes, remove
from longcrawl.io.place import is_there, names_in, scratch
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Marker
from longcrawl.run.manifest import WORK
from longcrawl.run.stored_parts import (
    input_marker,
    keep_spans,
    part_marker,
    removed_file,
    removed_marker,
    sketch_bytes,
    sketches,
    spans_kept,
    stored_rows,
)

R = TypeVar("R")

HELD = 512 << 20
"""Bytes of sketches on disk that one process holds to decide; it takes about three times as much memory."""
TASK = 128 << 20
"""Bytes of sketches on disk of the inputs that a task of an exchange takes; an input is never cut."""
WRITTEN = 32
"""Inputs of which a task writes ledger and removed rows, where one process has decided: three files of each."""


class Removed(NamedTuple):
    """What a survey has removed."""

    rules: dict[str, int]
    """How many documents, by rule."""
    report: list[str]
    """What it has to say about that, see :func:`longcrawl.core.exchange.report_of`."""


class Batch(NamedTuple):
    """Inputs whose documents are decided about together, or are one group of an exchange."""

    inputs: tuple[int, ...]
    rows: tuple[int, ...]


class Share(NamedTuple):
    """Inputs for which one task writes what is decided about them."""

    batch: Batch
    first: int
    """The number of their first document."""
    read: Callable[[], pa.Table]
    """Returns removals or spans, sorted by ``document``: those of all these inputs, and of no others."""


class Asked(NamedTuple):
    """The documents that a survey decides about at once: those of one part, or of all."""

    parts: Sequence[Sequence[int]]
    """The inputs of every part of the run."""
    part: int | None
    """None for all."""
    last: int = 0
    """The segment after which earlier parts are finished, for a survey that looks at what they kept."""

    @property
    def inputs(self) -> list[int]:
        """The inputs of these documents."""
        return (
            sorted(number for group in self.parts for number in group)
            if self.part is None
            else [*self.parts[self.part]]
        )

    @property
    def earlier(self) -> list[int]:
        """The inputs of all parts before this one."""
        return [number for group in self.parts[: self.part or 0] for number in group]


def resolve(folder: Path, segment: int, label: str, survey: Survey, asked: Asked, engine: Engine) -> Removed:
    """Let a survey decide; write the ledger of removed documents, and the rows removed from each input.

    Raises:
        StageError: the survey answers with an order or with spans.
    """
    work, inputs = folder / WORK, asked.inputs
    marker = removed_marker(work, segment, asked.part or 0)
    each = [input_marker(work, segment, number) for number in inputs]
    if (done := Marker.read(marker)) is None or None in Marker.read_all(each):
        read, earlier = partial(sketches, work, segment), list[int]()
        if not survey.within_parts:
            part_of = {number: part for part, group in enumerate(asked.parts) for number in group}
            earlier = asked.earlier if survey.after_parts else []
            read = partial(_read, folder, segment, part_of, survey, frozenset(earlier), asked.last)
        shares, report = _decide(work, segment, survey, [*earlier, *inputs], read, engine)
        wanted = frozenset(inputs)
        shares = [share for share in shares if wanted.intersection(share.batch.inputs)]
        writes = _each_share(partial(_write, folder, segment, label, wanted), shares, engine)
        rules = sum(map(Counter, writes), Counter[str]())
        engine.check()
        done = Marker(marker, {"rules": dict(sorted(rules.items())), "report": [*report]}, {})
        done.write()
        remove(_decisions(work, segment))
    return Removed(done.content["rules"], done.content["report"])


def find_spans(folder: Path, segment: int, survey: SpanSurvey, asked: Asked, engine: Engine) -> int:
    """Let a survey find spans; the next segment begins with applying them.

    Returns:
        The most bytes that the search had on disk, unless it was done before.
    """
    work, most = folder / WORK, 0
    search = work / f"search-{segment}-{asked.part or 0}"
    if not spans_kept(work, segment, asked.inputs):
        shares = _find(work, segment, survey, asked.inputs, search, engine)
        _each_share(partial(_write_spans, work, segment), shares, engine)
    engine.check()
    for place in {search, scratch(search)}:
        most = max(most, folder_bytes(place))
        remove(place)
    return most


def _find(
    work: Path, segment: int, survey: SpanSurvey, inputs: Sequence[int], search: Path, engine: Engine
) -> list[Share]:
    """Return the spans that a survey finds."""
    read, batches = partial(sketches, work, segment), group_inputs_by_size(work, segment, inputs)
    if len(batches) > 1:
        found = survey.exchange(grouped_sketches(search, batches, read), engine)
        if found is not None:
            return _shares_of_groups(batches, found)
    return _cut_shares(batches, survey.find(read(inputs), str(scratch(search))).table)


def _shares_of_groups(batches: Sequence[Batch], decided: Decided) -> list[Share]:
    """Return what is decided about each batch, which the task that writes it reads."""
    firsts = np.cumsum([0, *(sum(batch.rows) for batch in batches)]).tolist()
    places = enumerate(zip(batches, firsts, strict=False))
    return [Share(batch, first, partial(decided.read, group)) for group, (batch, first) in places]


def _cut_shares(batches: Sequence[Batch], decided: pa.Table) -> list[Share]:
    """Cut what one process has decided about all documents into shares of ``WRITTEN`` inputs, packed for a task."""
    inputs, rows = ([each for batch in batches for each in batch[column]] for column in (0, 1))
    bounds, shares = np.cumsum([0, *rows]), list[Share]()
    places = np.searchsorted(decided[DOCUMENT].to_numpy(), bounds)
    for start in range(0, len(inputs), WRITTEN):
        stop = min(start + WRITTEN, len(inputs))
        packed = pack_table(decided.slice(places[start], places[stop] - places[start]))
        batch = Batch(tuple(inputs[start:stop]), tuple(rows[start:stop]))
        shares.append(Share(batch, int(bounds[start]), partial(unpack_table, packed, "this task")))
    return shares


def _each_share(write: Callable[[Share], R], shares: Sequence[Share], engine: Engine) -> list[R]:
    """Write what is decided about the inputs of each share; one alone is written here."""
    engine.check()
    return list(engine.tasks(write, shares)) if len(shares) > 1 else [write(share) for share in shares]


def _decide(
    work: Path,
    segment: int,
    survey: Survey,
    inputs: Sequence[int],
    read: Callable[..., Iterator[pa.Table]],
    engine: Engine,
) -> tuple[list[Share], Sequence[str]]:
    """Return what a survey removes, and what it has to say about that."""
    batches = group_inputs_by_size(work, segment, inputs)
    if len(batches) > 1:
        decided = survey.exchange(grouped_sketches(_decisions(work, segment), batches, read), engine)
        if decided is not None:
            return _shares_of_groups(batches, decided), decided.report
    table = pa.concat_tables(read(inputs))
    removals = survey.removals(table)
    ids = pc.cast(table["id"], pa.large_string())
    found = pc.index_in(pc.cast(removals["id"], pa.large_string()), value_set=ids)
    numbered = removals.replace_schema_metadata(None).add_column(0, DOCUMENT, pc.cast(found, pa.int64()))
    return _cut_shares(batches, numbered.sort_by(DOCUMENT)), report_of(removals)


def group_inputs_by_size(work: Path, segment: int, inputs: Sequence[int]) -> list[Batch]:
    """Return all inputs as one batch where their sketches may be held together, else in batches for tasks."""
    sizes = [sketch_bytes(work, segment, number) for number in inputs]
    groups, size, most = [list[int]()], 0, TASK if sum(sizes) > HELD else sum(sizes)
    for number, more in zip(inputs, sizes, strict=True):
        if groups[-1] and size + more > most:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += more
    return [Batch(tuple(some), tuple(stored_rows(work, segment, each) for each in some)) for some in groups]


def grouped_sketches(folder: Path, batches: Sequence[Batch], read: Callable[..., Iterator[pa.Table]]) -> Sketched:
    """Return the sketches of batches, which ``read`` returns of inputs, for exchanges whose files lie in a folder."""
    bounds = hashlib.sha256(json.dumps([batch.inputs for batch in batches]).encode()).hexdigest()
    groups = partial(_read_batch, read, [batch.inputs for batch in batches])
    # Other groups must not find what these have left.
    return Sketched(folder / bounds[:16], tuple(sum(batch.rows) for batch in batches), groups)


def _read(
    folder: Path,
    segment: int,
    parts: Mapping[int, int],
    survey: Survey,
    earlier: frozenset[int],
    last: int,
    inputs: Sequence[int],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """Return the sketches of inputs with the number of their part, or some columns of them.

    Documents of ``earlier`` inputs that a segment up to ``last`` removed have no key.
    """
    for number in inputs:
        gone = removed_ids(folder, segment, last, number) if number in earlier else None
        for table in sketches(folder / WORK, segment, [number]):
            found = table.append_column(PART, pa.array(np.full(table.num_rows, parts[number], np.int32)))
            if gone is not None:
                found = _without_keys(found, survey.key, pc.is_in(pc.cast(table["id"], pa.string()), value_set=gone))
            yield found if columns is None else found.select(columns)


def _without_keys(sketched: pa.Table, key: str, gone: pa.ChunkedArray) -> pa.Table:
    kept = pc.if_else(gone, pa.scalar(None, sketched[key].type), sketched[key])
    return sketched.set_column(sketched.column_names.index(key), key, kept)


def removed_ids(folder: Path, segment: int, last: int, number: int) -> pa.ChunkedArray:
    """Return the ids of an input's documents that the survey of a segment saw and segment ``last`` did not keep."""
    work = folder / WORK
    markers = [part_marker(work, each, number) for each in range(segment + 1, last + 1)]
    # A segment that ends with spans removes no document, and has no marker of removals.
    markers += filter(is_there, (input_marker(work, each, number) for each in range(segment, last)))
    chunks = [pa.array([], pa.string())]
    for marker in markers:
        found = Marker.open(marker)
        ledgers = [folder / LEDGER / Path(name).name for name in found.files if Path(name).parent.name == LEDGER]
        found.check(*ledgers)
        chunks += [chunk for file in ledgers for chunk in read_table(file, ["id"])["id"].chunks]
    return pa.chunked_array(chunks)


def _read_batch(
    read: Callable[..., Iterator[pa.Table]],
    batches: Sequence[Sequence[int]],
    group: int,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    return read(batches[group], columns)


def _write(folder: Path, segment: int, label: str, wanted: frozenset[int], share: Share) -> dict[str, int]:
    """Write the ledger of each wanted input, and which of its rows leave; return how many do, by rule."""
    batch, first, read = share
    removals, work = read(), folder / WORK
    rules = Counter[str]()
    for number, rows in zip(batch.inputs, batch.rows, strict=True):
        if number not in wanted:
            first += rows
            continue
        files = list[Path]()
        start, stop = np.searchsorted(removals[DOCUMENT].to_numpy(), [first, first + rows]).tolist()
        if start < stop:  # `datasets` cannot load a parquet file without rows
            here = removals.slice(start, stop - start)
            files.append(removed_file(work, segment, number))
            write_table(pa.table({"row": here[DOCUMENT].to_numpy() - first}), files[-1])
            files.append(folder / LEDGER / f"{segment:02d}-{label}-{number:05d}.parquet")
            write_table(entries(here["id"], here, label), files[-1])
            counts = pc.value_counts(here["rule"].combine_chunks()).to_pylist()
            rules.update({each["values"]: each["counts"] for each in counts})
        marker = input_marker(work, segment, number)
        Marker(marker, {}, Marker.entries(marker, files)).write()
        first += rows
    return dict(rules)


def _write_spans(work: Path, segment: int, share: Share) -> None:
    keep_spans(work, segment, share.batch.inputs, share.read(), share.first)


def _decisions(work: Path, segment: int) -> Path:
    return work / f"decide-{segment}"


def indexes_used(stages: Sequence[tuple[str, Stage]]) -> dict[str, dict[str, str]]:
    """Return what each stage looks at of earlier datasets, see :meth:`longcrawl.core.stages.Stage.used_indexes`."""
    return {label: used for label, stage in stages if (used := stage.used_indexes())}


def save_index(folder: Path, segment: int, inputs: int, label: str, survey: Stage, engine: Engine) -> Path:
    """Write to ``index/LABEL`` what a run has kept of the documents that a survey saw at the end of a segment.

    Returns the marker of the files.
    """
    work, index = folder / WORK, folder / INDEX / label
    marker, decisions = work / f"index-{label}.json", work / f"index-{label}"
    if Marker.read(marker) is None:
        batches = group_inputs_by_size(work, segment, range(inputs))
        kept = partial(_kept, folder, segment, _later_ledgers(folder, segment, label))
        if len(batches) > 1:
            survey.exchange_index(grouped_sketches(decisions, batches, kept), index, engine)
        else:
            survey.save_index(pa.concat_tables(kept(batches[0].inputs)), index)
        files = json.loads((index / DESCRIPTION).read_text("utf-8"))["files"]
        entries = {os.path.relpath(index / name, marker.parent): entry for name, entry in files.items()}
        Marker(marker, {}, entries | Marker.entries(marker, [index / DESCRIPTION])).write()
    engine.check()
    remove(decisions)
    return marker


def _later_ledgers(folder: Path, segment: int, label: str) -> list[str]:
    """Return how the names begin of the ledgers of what a survey and the stages after it removed."""
    begins = {Path(name).stem.rpartition("-")[0] for name in names_in(folder / LEDGER) if name.endswith(".parquet")}
    split = {begin: begin.partition("-") for begin in begins}
    return sorted(
        begin for begin, (at, _, by) in split.items() if int(at) > segment or (int(at) == segment and by == label)
    )


def _kept(
    folder: Path, segment: int, ledgers: Sequence[str], inputs: Sequence[int], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Return the sketches of the documents of inputs that are in none of their ledgers, or some columns of them."""
    for number in inputs:
        files = (folder / LEDGER / f"{begin}-{number:05d}.parquet" for begin in ledgers)
        chunks = (chunk for file in files if is_there(file) for chunk in read_table(file, ["id"])["id"].chunks)
        gone = pa.chunked_array([pa.array([], pa.string()), *chunks])
        for table in sketches(folder / WORK, segment, [number], None if columns is None else ["id", *columns]):
            kept = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
            yield kept if columns is None else kept.select(columns)
