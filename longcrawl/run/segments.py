"""Segments of a run: their tasks, each done once and marked, and the fitting of stages between them.

RefinedWeb deduplicates in a hundred parts, as all documents at once are too many for one machine. A recipe's ``parts``
is their number. Input ``n`` belongs to part ``n % parts``, so that the files of one dump are spread over all parts. A
survey with ``within_parts`` sees one part at a time. A survey with ``after_parts`` also takes the parts in turn, and so
do the segments after it, up to the output or a stage that needs all parts together. Every other survey sees all
documents, with their part in the column ``part`` (int32).

A stage is fitted on all documents, or on a sample: each input writes a few more documents than needed, with their
hashes. One process compares these, 8 bytes each, and passes the chosen documents on, one input after the other.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.clock import CoreClock
from longcrawl.core.display import progress_bar
from longcrawl.core.exchange import Engine, Exchange, no_rows, take_each
from longcrawl.core.outputs import Writer, WriteTask
from longcrawl.core.progress import PROGRESS, leading, progress_file, read_progress
from longcrawl.core.stages import Stage
from longcrawl.errors import warn_user
from longcrawl.formats.order import PLANNED, sealed
from longcrawl.io.files import bring, file_entries, file_sizes, name_of, url_of, whole_files
from longcrawl.io.structured import DamagedWorkError, Marker, resolved, verify_files
from longcrawl.kernels.keyed_hash import HASH, LAST, filter_hashes, last_chosen, likely_last, up_to_hash
from longcrawl.run.inputs import still_open
from longcrawl.run.manifest import MANIFEST, PLAN, WORK
from longcrawl.run.part import SPILL, part_marker, spilled, survivors

HASHED = 128 << 20
"""Bytes of files whose SHA-256 one task computes, at about 2 GB per second."""

WRITTEN = "written"
"""Folder in ``work`` for the markers of an output's files."""


def group_inputs(inputs: int, parts: int) -> list[list[int]]:
    """Return the input numbers of every part; there are no more parts than inputs.

    >>> group_inputs(5, 2)
    [[0, 2, 4], [1, 3]]
    """
    count = min(inputs, parts)
    return [list(range(part, inputs, count)) for part in range(count)]


def do_once(
    folder: Path,
    function: Callable[[Any], dict[str, Any]],
    tasks: Sequence[Any],
    markers: Sequence[Path],
    engine: Engine,
    what: str,
    unit: str,
    *,
    sizes: Sequence[int | None] = (),
    progress: Literal["parts", "remote files, not divided", "bytes"] = "parts",
) -> list[dict[str, Any]]:
    """Do the tasks that have no marker yet; return the content of all markers in the order of the tasks.

    If ``sizes`` gives the amount of work in each task, the largest begin first, so that processes end together. The
    progress bar counts tasks, or "bytes" if no size is None and all are those of files, which tasks return as "bytes";
    a user who waits for remote files is told that a process reads each whole.
    It includes the part of running tasks that they report, see :mod:`longcrawl.core.progress`.

    Raises:
        DamagedWorkError: a marker was damaged after it was written.
        RunError: servers did not deliver the files of some parts.
    """
    places = [place for place, marker in enumerate(Marker.read_all(markers)) if marker is None]
    for path in (markers[place] for place in places if markers[place].exists()):
        warn_user(f"{name_of(path)} is not in the form that this version of longcrawl writes: its work is done again")
    if sizes:
        places.sort(key=lambda place: -(sizes[place] or 0))
    waiting = [tasks[place] for place in places]
    amount, not_yet = 0, list[str]()
    counts_bytes = progress == "bytes" and None not in sizes and any(sizes)
    unit_of_tasks = " parts" if progress == "bytes" else f" {progress}"
    scale: dict[str, Any] = {"unit": "B", "unit_scale": True} if counts_bytes else {"unit": unit_of_tasks}
    weights = [size or 0 for size in sizes] if counts_bytes else [1] * len(tasks)
    places_of = {progress_file(folder / WORK, markers[place]).name: place for place in places}
    total, reported = sum(weights), folder / WORK / PROGRESS
    done = total - sum(weights[place] for place in places)

    def look() -> None:
        shares = {places_of[name]: share for name, share in read_progress(reported).items() if name in places_of}
        running = sum(weights[place] * share for place, share in shares.items())
        now = min(round(done + running, 0 if counts_bytes else 2), total)
        if now > bar.n:
            bar.n = now
            bar.update(0)

    shutil.rmtree(reported, ignore_errors=True)
    reported.mkdir(parents=True)
    # The rate is an average, and each change may be shown: a table of a task is much at once.
    bar = progress_bar(total=total, initial=done, desc=what, smoothing=0, miniters=0, **scale)
    with bar, leading(look):
        started = time.monotonic()
        for result in engine.tasks(function, waiting):
            if "not_yet" in result:
                not_yet.append(result["not_yet"])
                continue
            amount += result.get("documents", 1) if unit == "documents" else 1
            rate = amount / max(time.monotonic() - started, 1e-9)
            bar.set_postfix_str(f"{amount:,} {unit}, {rate:,.0f}/s", refresh=False)
            done += (result["bytes"] or 0) if counts_bytes else 1  # a file may be gone by now
            look()
    shutil.rmtree(reported, ignore_errors=True)
    if not_yet:
        raise still_open(sorted(not_yet), len(tasks), folder)
    bring(*markers)
    return [Marker.open(marker).content for marker in markers]


def write_file(writer: Writer, spill: Path, target: Path, task: tuple[WriteTask, Path]) -> dict[str, Any]:
    """Do one task of an output's second pass and write its marker."""
    what, marker = task
    clock = CoreClock()
    with clock.measure("write"):
        written = writer.write(spill, target, what)
    places = (("files", target), ("spilled", spill))
    entries = ((folder / name, entry) for kind, folder in places for name, entry in written.get(kind, {}).items())
    files = {os.path.relpath(file, marker.parent): entry for file, entry in entries}
    Marker(marker, written | {"seconds": clock.seconds["write"]}, files).write()
    return written


def check_spill(work: Path, segment: int, writer: Writer, parts: int, engine: Engine) -> None:
    """Compare the files of an output's first pass with their markers, before the second pass reads them."""
    for _ in engine.tasks(partial(_check_part, work, segment, writer), range(parts)):
        pass


def _check_part(work: Path, segment: int, writer: Writer, number: int) -> None:
    files = spilled(work, writer, number)
    known = Marker.open(part_marker(work, segment, number), *files).resolved_files()
    if url_of(work) is not None:
        Marker(work / SPILL / sealed(number), {}, {file.name: known[resolved(file)] for file in files}).write()


def planned_files(work: Path, target: Path, markers: Iterable[Path]) -> dict[str, dict[str, int | str]]:
    """Return size and SHA-256 of the files that an output's plan wrote, by absolute path: those not in any marker."""
    known = _marked(markers)
    found = (resolved(file) for folder in (target, work / SPILL) for file in whole_files(folder))
    planned = file_entries(Path(), [file for file in found if file not in known and not file.endswith(PLANNED)])
    if url_of(work) is not None:
        marker = work / SPILL / PLANNED
        Marker(marker, {}, {os.path.relpath(file, marker.parent.resolve()): planned[file] for file in planned}).write()
    return planned


def check_plan(work: Path, planned: Mapping[str, Mapping[str, Any]], markers: Iterable[Path]) -> Path:
    """Check an output's planned files in ``spill`` after the second pass, and write the marker of the planned files.

    Planned files that have a marker by now are left to it.
    """
    known, marker = _marked(markers), work / "layout.json"
    left = {file: entry for file, entry in planned.items() if file not in known}
    spill = (work / SPILL).resolve()
    for problem in verify_files(Path(), {file: left[file] for file in left if Path(file).is_relative_to(spill)}):
        raise DamagedWorkError(problem, work / WRITTEN)
    Marker(marker, {}, {os.path.relpath(file, work.resolve()): entry for file, entry in left.items()}).write()
    return marker


def _marked(markers: Iterable[Path]) -> set[str]:
    return {file for marker in Marker.read_all(markers) if marker for file in marker.resolved_files()}


def check_results(
    folder: Path, markers: Iterable[Path], engine: Engine, within: str = ""
) -> dict[str, dict[str, int | str]]:
    """Return size and SHA-256 of the result files of a run, or of a folder in it, after comparing the markers."""
    sizes = {_name_in(str(folder), str(file)): size for file, size in file_sizes(folder / within).items()}
    tasks, room = list[list[str]](), 0
    for name, size in sizes.items():
        if not _is_passing(name):
            if room <= 0:
                tasks.append([])
                room = HASHED
            tasks[-1].append(name)
            room -= size
    found = {name: entry for each in engine.tasks(partial(file_entries, folder), tasks) for name, entry in each.items()}
    top = str(folder.resolve())
    for path in markers:
        for file, entry in Marker.open(path).resolved_files().items():
            name = _name_in(top, file)
            if not _is_passing(name) and name.startswith(f"{within}/" if within else "") and found.get(name) != entry:
                raise DamagedWorkError(f"{folder / name} is missing or has been changed: its SHA-256 differs", path)
    return found


def _name_in(folder: str, file: str) -> str:
    """Return the name of a file in a folder, with slashes; any other path is returned as it is."""
    return file.removeprefix(f"{folder}{os.sep}").replace(os.sep, "/")


def _is_passing(name: str) -> bool:
    return name.partition("/")[0] in (WORK, MANIFEST, PLAN)


def learn(
    work: Path, segment: int, inputs: int, stage: Stage, documents: int, engine: Engine
) -> tuple[Stage, list[str]]:
    """Fit a stage on the ``documents`` that a segment kept; return it and reports on the training sample."""
    folder, count = str(work / f"fit-{segment}"), stage.train_documents
    read: Callable[[int], Iterator[pa.Table]] = partial(_survivors, work, segment)
    report = list[str]()
    if count is not None:
        purpose = f"{stage.name}.train_documents"
        stage = cast("Stage", replace(cast("Any", stage), train_documents=None))
        report = [f"it was trained on all {documents:,} documents"]
        if count < documents:
            drawn, hashes = _draw(work, segment, inputs, purpose, count, documents, engine)
            last = last_chosen(hashes, count)
            read, trained = partial(_chosen, drawn, last), np.count_nonzero(hashes <= np.uint64(last))
            those = "those whose ids have the smallest keyed hashes"
            report = [f"it was trained on {trained:,} of {documents:,} documents, {those}"]
    if not stage.fits_measures:
        return _fit(stage, partial(_each, read, inputs), folder, engine), report
    measured = Exchange(no_rows, partial(_take_measured, read, stage), inputs, work / f"measures-{segment}")
    take_each(measured, engine)
    return stage.fit_measures(map(measured.read, range(inputs)), folder), report


def _survivors(work: Path, segment: int, number: int) -> Iterator[pa.Table]:
    return survivors(work, segment, [number])


def _each(read: Callable[[int], Iterator[pa.Table]], inputs: int) -> Iterator[pa.Table]:
    return chain.from_iterable(map(read, range(inputs)))


def _take_measured(
    read: Callable[[int], Iterator[pa.Table]], stage: Stage, number: int, _: Iterator[pa.Table]
) -> pa.Table:
    return pa.concat_tables(map(stage.measure_to_fit, read(number)))


def _fit(stage: Stage, tables: Callable[[], Iterator[pa.Table]], folder: str, engine: Engine) -> Stage:
    (learnt,) = engine.tasks(partial(_fit_on_gpu, tables, folder), [stage])
    return stage.fit(tables(), folder) if learnt is None else learnt


def _fit_on_gpu(tables: Callable[[], Iterator[pa.Table]], folder: str, stage: Stage) -> Stage | None:
    """Fit a stage in this worker if it uses a GPU; return None for other stages.

    ``uses_gpu`` must be asked in the worker: without an answer from the driver's library, asking initialises CUDA.
    """
    return stage.fit(tables(), folder) if stage.uses_gpu else None


def _draw(
    work: Path, segment: int, inputs: int, purpose: str, count: int, documents: int, engine: Engine
) -> tuple[Exchange, npt.NDArray[np.uint64]]:
    """Draw a few more documents than ``count``, a partition per input; return them and their hashes."""
    last, rows = likely_last(count, documents), 0
    while rows < count:
        take = partial(_take_drawn, work, segment, purpose, last)
        drawn = Exchange(no_rows, take, inputs, work / f"sample-{segment}" / f"{last:016x}")
        take_each(drawn, engine)
        rows = sum(map(drawn.rows, range(inputs)))
        last = min(LAST, 2 * last)
    return drawn, np.concatenate([drawn.read(number)[HASH] for number in range(inputs)])


def _chosen(drawn: Exchange, last: int, number: int) -> Iterator[pa.Table]:
    yield filter_hashes(drawn.read(number), last).drop_columns([HASH])


def _take_drawn(work: Path, segment: int, purpose: str, last: int, number: int, _: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables(up_to_hash(table, purpose, last) for table in survivors(work, segment, [number]))
