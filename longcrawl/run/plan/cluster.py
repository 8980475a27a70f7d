"""``longcrawl plan --files --cores``: estimates the cost of a run over many files on a cluster.

The cost of stages that work on batches is measured on the sample and scaled to all files. Surveys are assumed to
exchange a few bytes of each document between tasks, by ``CONSTANTS``. Work in a single task, such as the union-find of
MinHash, and the longest part are added to the wall hours, whatever the number of cores.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from operator import itemgetter
from pathlib import Path

from longcrawl.core.display import Column, Table, Tabular, counted, percent
from longcrawl.core.kinds import EngineName
from longcrawl.core.outputs import Output, are_shuffled
from longcrawl.core.stages import SpanSurvey, Stage
from longcrawl.dedup.exact import EqualHashes
from longcrawl.dedup.signatures import NearDuplicates
from longcrawl.errors import RunError, check_word
from longcrawl.run.plan.estimates import (
    LARGER,
    Estimate,
    Plan,
    PlanRow,
    amount,
    duration,
    exact,
    interval,
    size,
    what_narrows,
)
from longcrawl.run.plan.run_plan import DOCUMENTS, PARTS, ScaledUp, sample_recipe, scale_up
from longcrawl.run.recipe import Recipe

CONSTANTS = {
    "local_task_seconds": 0.000_25,
    "shared_task_seconds": 0.002,
    "spark_task_seconds": 0.049,
    "task_memory": float(2 << 30),
    "partition_bytes": float(256 << 20),
    "row_seconds": 5e-6,  # an id, a hash or an order
    "row_bytes": 16.0,
    "hash_bytes": 76.0,  # a row of exact texts or URLs
    "band_seconds": 0.5e-6,  # a document and band of MinHash
    "band_bytes": 16.0,
    "choice_seconds": 5e-6,  # a document after MinHash
    "choice_bytes": 250.0,  # a removed document
    "edge_seconds": 66e-9,
    "edges": 0.18,  # of a document and band of MinHash
    "label_bytes": 5.0,  # a document in the union-find
    "passage_factor": 4.0,
    "passage_bytes": 1.0,  # a character
    "related_bytes": 350.0,
    "layout_bytes": 10.0,  # a document
    "file_requests": 29.0,  # of a file and segment, to an object store
}
"""Costs of an engine's tasks and exchanges, which a plan cannot measure; docs/plan.md has them with their sources."""

HEAD = ("stage", "documents", "core-hours", "in one task", "shuffled", "memory of a task")
ENGINE = "engine"
FEW_LABELS = 1 << 32
"""Number of documents from which the union-find needs numbers of more than four bytes."""
NOTHING = exact(0.0)
TASK = exact(CONSTANTS["task_memory"])


@dataclass(frozen=True)
class ClusterRow:
    """Cost of one stage on a cluster."""

    stage: str
    documents: Estimate | None
    seconds: Estimate
    """Core seconds of all tasks that run in parallel."""
    alone: Estimate = NOTHING
    """Core seconds in one task that all others wait for."""
    shuffled: Estimate = NOTHING
    """Bytes sent between tasks."""
    memory: Estimate = TASK
    """Bytes of memory in its largest task."""


@dataclass(frozen=True, repr=False)
class ClusterPlan(Tabular):
    """Estimated cost of a run over ``files`` files of documents on ``cores`` cores."""

    recipe: str
    sample: str
    files: int
    cores: int
    engine: EngineName
    rows: tuple[ClusterRow, ...]
    """Rows of the plan, with the source first and the engine's own tasks last."""
    longest: Estimate
    """Core seconds of the longest file or section over all stages."""
    written: Estimate | None
    """Size of the output in bytes, or None if no document of the sample reached it."""
    disk: Estimate
    """Bytes of the run's folder at its fullest, with the output, without ledger and saved indexes."""
    read: Estimate | None = None
    """Bytes of the input's files, or None if they are not known."""
    input_files: int = 0
    """Number of the input's files, three or more for each file of documents of RedPajama-V2; 0 if none are listed."""
    segments: int = 1
    """Number of times that tasks go over all files: once, and once more after each stage that needs all of them."""
    tasks: int = 0
    """Number of tasks that go over all files: one for each file, or for each section of a large one."""
    larger: str = LARGER
    """Change that makes the sample larger."""

    @property
    def requests(self) -> float:
        """The requests to an object store that holds the run's folder, without those of its output."""
        return self.tasks * self.segments * CONSTANTS["file_requests"]

    @property
    def core_hours(self) -> Estimate:
        """The core hours of all tasks."""
        return (_sum(row.seconds for row in self.rows) + self.alone).scaled(1 / 3600)

    @property
    def alone(self) -> Estimate:
        """The seconds of work in single tasks, during which all other cores wait."""
        return _sum(row.alone for row in self.rows)

    @property
    def busy(self) -> int:
        """The number of cores that have a file or section to work on."""
        return min(self.cores, self.tasks)

    @property
    def spread(self) -> Estimate:
        """The wall time in seconds of the work that is spread over all busy cores."""
        return _sum(row.seconds for row in self.rows).scaled(1 / self.busy)

    @property
    def wall_hours(self) -> Estimate:
        """The wall time in hours: the spread work, then work in single tasks, and the longest part if it comes last."""
        return (self.spread + self.alone + self.longest).scaled(1 / 3600)

    @property
    def shuffled(self) -> Estimate:
        """The bytes sent between tasks."""
        return _sum(row.shuffled for row in self.rows)

    @property
    def largest(self) -> ClusterRow:
        """The stage with the task that needs most memory."""
        return max(self.rows, key=lambda row: row.memory.value)

    @property
    def decides(self) -> tuple[str, float]:
        """The step that takes most of the wall time, and its share of it."""
        parts = {row.stage: row.seconds.value / self.busy for row in self.rows}
        parts |= {f"{row.stage}, in one task": row.alone.value for row in self.rows}
        parts |= {"the longest part": self.longest.value}
        name, most = max(parts.items(), key=itemgetter(1))
        return name, most / max(sum(parts.values()), 1e-9)

    def tables(self) -> list[Table]:
        """Return one table, with a row for each stage and the totals as notes."""
        columns = [Column(name, "count" if place else "text") for place, name in enumerate(HEAD)]
        return [Table(columns, list(map(_cells, self.rows)), notes=["", *self._words()])]

    def _words(self) -> Iterator[str]:
        name, share = self.decides
        sections = "" if self.tasks <= self.files else f" in {self.tasks:,} parts"
        yield (
            f"{self.recipe} over {counted(self.files, 'file')}{sections} on {counted(self.cores, 'core')} with the "
            f"engine {self.engine}, estimated from {self.sample}; exchanges by the constants in docs/plan.md"
        )
        if self.read is not None:
            among = f" in {counted(self.input_files, 'file')}" if self.input_files else ""
            yield f"input: {interval(self.read, size)}{among}"
        yield f"core-hours: {interval(self.core_hours, _few)}"
        waiting = [("in one task", self.alone), ("the longest part", self.longest)]
        parts = [("all cores", self.spread), *((what, took) for what, took in waiting if took.high)]
        sums = " + ".join(f"{what} {duration(took.value)}" for what, took in parts)
        yield f"wall: {interval(self.wall_hours.scaled(3600.0), duration)} = {sums}"
        if self.busy < self.cores:
            idle = self.cores - self.busy
            fewer = "1 core" if self.tasks == 1 else f"{self.tasks:,} cores or fewer"
            yield f"{idle:,} of {self.cores:,} cores have nothing to read: use {fewer}"
        yield f"shuffled: {interval(self.shuffled, _whole)}"
        stage = self.largest.stage if self.largest.memory.high > TASK.high else "every stage"
        yield f"peak memory of a task: {interval(self.largest.memory, size)}, {stage}"
        if self.written is None:
            yield (
                f"no document of the sample remains after {self.rows[-2].stage!r}, so later stages are missing: "
                "sample more with --documents and --parts"
            )
        else:
            yield f"output: {interval(self.written, size)}"
        yield f"disk at its fullest: {interval(self.disk, size)}; in an object store {amount(self.requests)} requests"
        figures = {"core-hours": self.core_hours, "shuffled": self.shuffled, "output": self.written, "disk": self.disk}
        yield from what_narrows(figures, [row.documents for row in self.rows if row.documents is not None], self.larger)
        yield f"decides: {name}, {percent(share)} of the wall hours"


def plan_cluster(
    recipe: str | Path | Recipe,
    *,
    cores: int,
    files: int | None = None,
    engine: EngineName = "shared",
    parts: int = PARTS,
    documents: int = DOCUMENTS,
    seed: int = 0,
    overrides: Iterable[str] = (),
) -> ClusterPlan:
    """Estimate the cost of a run over many files on a cluster, from a sample of the files that are here.

    Surveys are assumed to remove the same share of all documents as of the sample, which is a cautious figure for the
    cost of later stages. The lower ends of intervals allow for all the copies that more files may have, see
    :class:`longcrawl.run.plan.estimates.Thinning`.

    Args:
        recipe: a recipe in any form that :func:`longcrawl.run` takes.
        cores: number of cores of the cluster, each as fast as one of this machine.
        files: number of input files of the run, similar to those of the source; None for the files of the source.
        engine: engine of the run: "local" (one machine), "shared" or "spark".
        parts: number of files to sample; this and all others as for :func:`longcrawl.plan`.
        documents: number of documents to draw from them.
        seed: seed of the draws.
        overrides: ``PATH=VALUE``.

    Raises:
        RunError: ``cores`` or ``files`` is too small, the engine is unknown, or the sample has no documents.
    """
    check_word("engine", engine, EngineName, RunError)
    if cores < 1 or (files is not None and files < 1):
        given = f"--cores {cores}" if files is None else f"--files {files} and --cores {cores}"
        raise RunError(f"--files and --cores must be 1 or more, got {given}")
    chosen, sample = sample_recipe(recipe, parts, documents, seed, overrides, unit="file" if files else "part")
    among = sample.among(files or sample.parts)
    drawn = counted(len(sample.read), "file" if files else "part")
    scaled = scale_up(chosen, among, seed, copies="as_sampled", parts=drawn)
    there = {"files": among.files, "cores": cores, "tasks": among.tasks}
    made = extrapolate(scaled, chosen, **there, engine=engine, longest=among.longest)
    larger = LARGER
    if files and len(sample.read) == sample.parts:
        larger = f"more --documents, and a source of more than {counted(sample.parts, 'file')}"
    return replace(made, read=among.input_bytes, input_files=among.input_files, larger=larger)


def extrapolate(
    scaled: ScaledUp,
    recipe: Recipe,
    *,
    files: int,
    cores: int,
    engine: EngineName = "shared",
    tasks: int | None = None,
    longest: float = 1.0,
) -> ClusterPlan:
    """Convert a plan of ``files`` files, each a task by default, to one for ``cores`` cores.

    The longest task takes ``longest`` times as long as the mean.
    """
    tasks = tasks or files
    plan = scaled.plan
    stages = [stage for _, stage in recipe.stages]
    measured = plan.rows[1 : 1 + len(stages)]
    first = plan.rows[0]
    took, sent = (NOTHING, NOTHING) if recipe.source.unique_ids else _rows(first.documents)  # to compare ids
    rows = [ClusterRow(first.stage, first.documents, first.seconds + took, shuffled=sent)]
    for stage, before, row in zip(stages, plan.rows, measured, strict=False):
        rows.append(_stage_row(stage, before, row, scaled.waited[row.stage], min(recipe.parts, files)))
    if plan.written is not None:
        rows.append(_output_row(plan, recipe.output, shuffled=are_shuffled(stages)))
    each = _sum(row.seconds for row in rows).scaled(longest / tasks)
    segments = 1 + sum(stage.needs in ("fit", "removals", "spans") for stage in stages[: len(measured)])
    rows.append(_engine_row(rows, segments, tasks, engine))
    totals = each, plan.written, plan.disk
    return ClusterPlan(
        plan.recipe, plan.sample, files, cores, engine, tuple(rows), *totals, segments=segments, tasks=tasks
    )


def _stage_row(stage: Stage, before: PlanRow, row: PlanRow, waited: Estimate, parts: int) -> ClusterRow:
    """Return a stage's cost, replacing the work done once for all parts by the exchanges it is assumed to make."""
    left = ((row.seconds.value, waited.value), (row.seconds.low, waited.low), (row.seconds.high, waited.high))
    spread, (took, sent) = _around(*(max(one - other, 0.0) for one, other in left)), _rows(before.documents)
    plain = ClusterRow(row.stage, row.documents, spread)
    if isinstance(stage, NearDuplicates):
        return _near_duplicates(plain, stage.curve.bands, before.documents, parts)
    if isinstance(stage, EqualHashes):
        return replace(plain, seconds=spread + took, shuffled=_times(before.documents, "hash_bytes"))
    if isinstance(stage, SpanSurvey) and stage.orders:
        sent += _times(before.documents, "related_bytes")
        return replace(plain, seconds=spread + waited + took, shuffled=sent)
    if isinstance(stage, SpanSurvey):
        sent = _times(before.characters or NOTHING, "passage_bytes")
        return replace(plain, seconds=spread + _times(waited, "passage_factor"), shuffled=sent)
    if stage.needs == "removals":  # from another package, with unknown memory use
        return replace(plain, alone=waited, memory=exact(inf))
    return replace(plain, alone=waited)


def _near_duplicates(row: ClusterRow, bands: int, came: Estimate, parts: int) -> ClusterRow:
    """Add the exchange of bands, the reasons, and a union-find for each part of the recipe, all at the same time."""
    left = row.documents or NOTHING
    removed = Estimate(came.value - left.value, max(came.low - left.high, 0.0), came.high - left.low)
    keys = came.scaled(float(bands))
    took = _times(keys, "band_seconds") + _times(came, "choice_seconds")
    sent = _times(keys, "band_bytes") + _times(removed, "choice_bytes")
    edges = _around(keys.value * CONSTANTS["edges"], removed.low, keys.high)
    forest, label = came.scaled(1 / parts), CONSTANTS["label_bytes"]
    ends = forest.value, forest.low, forest.high
    labels = Estimate(*(each * label * (1 if each < FEW_LABELS else 2) for each in ends))
    alone = edges.scaled(CONSTANTS["edge_seconds"] / parts)
    return replace(row, seconds=row.seconds + took, alone=alone, shuffled=sent, memory=_at_least_a_task(labels))


def _output_row(plan: Plan, output: Output, *, shuffled: bool) -> ClusterRow:
    """Return the cost of writing; documents that are sorted are sent once to the task that writes them."""
    last = plan.rows[-1]
    row = ClusterRow(last.stage, last.documents, last.seconds)
    if shuffled:
        took, sent = _rows(last.documents)
        row = replace(row, seconds=last.seconds + took + took, shuffled=last.disk + sent)  # counted first, then sorted
    if output.plans_documents:
        row = replace(row, memory=_at_least_a_task(_times(last.documents, "layout_bytes")))
    return row


def _engine_row(rows: Sequence[ClusterRow], segments: int, parts: int, engine: EngineName) -> ClusterRow:
    """Return the overhead of starting tasks: one for each part and segment, and those of exchanges."""
    sent = [row.shuffled for row in rows if row.shuffled.value]
    partition = CONSTANTS["partition_bytes"]
    counts = [
        parts * (segments + len(sent)) + sum(ceil(each / partition) for each in ends)
        for ends in zip(*((each.value, each.low, each.high) for each in sent), strict=True)
    ]
    tasks = Estimate(*counts) if counts else exact(float(parts * segments))
    return ClusterRow(ENGINE, None, _times(tasks, f"{engine}_task_seconds"))


def _rows(documents: Estimate) -> tuple[Estimate, Estimate]:
    return _times(documents, "row_seconds"), _times(documents, "row_bytes")


def _times(amount: Estimate, constant: str) -> Estimate:
    return amount.scaled(CONSTANTS[constant])


def _around(value: float, low: float, high: float) -> Estimate:
    """Return an estimate whose ends are computed apart, and moved to the value if they are on its other side."""
    return Estimate(value, min(low, value), max(high, value))


def _sum(estimates: Iterable[Estimate]) -> Estimate:
    return sum(estimates, NOTHING)


def _at_least_a_task(memory: Estimate) -> Estimate:
    return Estimate(*(max(each, TASK.value) for each in (memory.value, memory.low, memory.high)))


def _few(number: float) -> str:
    """Format hours with three significant digits, or two below a hundred, and at most two decimals."""
    return amount(number) if number >= 100 else f"{float(f'{number:.2g}'):.2f}".rstrip("0").rstrip(".")


def _whole(number: float) -> str:
    return size(number if number >= 1 else 0)


def _cells(row: ClusterRow) -> list[str]:
    documents = "" if row.documents is None else amount(row.documents.value)
    hours = interval(row.seconds.scaled(1 / 3600), _few)
    alone = interval(row.alone, duration) if row.alone.high else ""
    sent = interval(row.shuffled, _whole) if row.shuffled.high else ""
    return [row.stage, documents, hours, alone, sent, interval(row.memory, size)]
