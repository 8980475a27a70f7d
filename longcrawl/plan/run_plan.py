"""``longcrawl plan``: documents, tokens, bytes and hours of every stage, before a run.

What an output takes is measured by writing the documents left of a sample twice, all and half of them.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa

from longcrawl.core.clock import CoreClock
from longcrawl.core.outputs import Output
from longcrawl.core.stages import SORT_KEY, Stage
from longcrawl.errors import RunError
from longcrawl.plan.estimates import (
    Estimate,
    Sample,
    Thinning,
    Values,
    draw_sample,
    estimate_parts,
    estimate_total,
    exact,
)
from longcrawl.plan.measure import ROW, MeasuredStage, measure_stages, quantity
from longcrawl.plan.result import Plan, PlanRow
from longcrawl.recipe import Recipe, check_order, load_recipe
from longcrawl.run.gathered_parts import gather_small
from longcrawl.run.inputs import needed_source, train_parts
from longcrawl.storage.files import file_entries, folder_bytes, whole_files

Copies = Literal["grow", "as_sampled"]
"""Which share a survey removes of all documents: what the growth from half of the sample to all of it leads to, or that
of the sample. Followed over a million times more documents, the growth of a few pairs removes almost all."""

ONE = exact(1.0)
CLOCK_FACTOR = 1.5
"""The same work takes so many times more or less of a core from one run to the next, where cores are shared."""
START_FACTOR = 3.0
"""Two processes may start a run, and take 1.5 times what this one did."""
DESCRIBE_SECONDS = 2.0
"""What the analysis, the card and the manifest of a small run may take."""
PART_SECONDS = 0.02
"""What files and markers may take of each part, where all parts are waited for."""
TABLE_SECONDS = 0.0005
"""What a stage may take more of each table in a run, whose other stages have the caches in between."""
DISK_NOISE = 0.03
"""Documents are compressed as well together as their neighbours let them."""
LEAST_NOISE = 0.03
"""The least share by which a line of measured writes is taken to be off."""


def plan(
    recipe: str | Path | Recipe,
    *,
    parts: int = 8,
    documents: int = 4000,
    seed: int = 0,
    overrides: Iterable[str] = (),
) -> Plan:
    """Take a sample of a recipe's input through its stages, and say what a run would come to.

    Nothing is kept. Deduplication finds less among few documents; its intervals are wide for that reason, see
    :class:`longcrawl.plan.estimates.Thinning`. A tokenizer that a run trains is trained on the sample here.

    Args:
        recipe: as :func:`longcrawl.run` takes it.
        parts: how many parts of the source to read, 2 or more where it has several; more are read while they have fewer
            documents than are to be drawn.
        documents: how many documents to draw from them; they are held in memory.
        seed: of the draws.
        overrides: as :func:`longcrawl.run` takes them.

    Raises:
        RunError: the sample has no documents, or too few parts were asked for.
    """
    chosen, sample = sample_recipe(recipe, parts, documents, seed, overrides, unit="part")
    return scale_up(chosen, sample, seed).plan


def sample_recipe(
    recipe: str | Path | Recipe,
    parts: int,
    documents: int,
    seed: int,
    overrides: Iterable[str],
    unit: Literal["part", "file"],
) -> tuple[Recipe, Sample]:
    """Return a recipe and a sample of its input, as :func:`plan` draws it: of a run's parts, or of the source's files.

    Raises:
        RunError: too few parts or documents were asked for.
    """
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    check_order(chosen)
    there = train_parts(chosen.source)
    if parts < min(2, len(there)) or documents < 1:
        raise RunError(f"a plan samples --parts 2 or more and --documents 1 or more, got {parts} and {documents}")
    there = gather_small(there, chosen) if unit == "part" else there
    return chosen, draw_sample(needed_source(chosen), there, parts, documents, seed)


class ScaledUp(NamedTuple):
    """A plan, and what of it cannot be done part by part."""

    plan: Plan
    waited: Mapping[str, Estimate]
    """By the labels of stages, the seconds of a core, among those of its row, of what is done once for all parts."""


def scale_up(recipe: Recipe, sample: Sample, seed: int, *, copies: Copies = "grow") -> ScaledUp:
    """Take a sample through the stages of a recipe, and scale what was measured to all parts."""
    with tempfile.TemporaryDirectory() as folder:
        measured, left, applied = measure_stages(recipe, sample, seed, folder)
        scaled = _Scaled(sample, copies)
        plan = _planned(recipe, sample, scaled, measured, left, applied)
    return ScaledUp(plan, scaled.waited)


def _planned(
    recipe: Recipe,
    sample: Sample,
    scaled: "_Scaled",
    measured: Sequence[MeasuredStage],
    left: Sequence[pa.Table],
    applied: Sequence[Stage],
) -> Plan:
    rows = [scaled.source(recipe.source.name), *(scaled.stage(one) for one in measured)]
    drawn = sum(part.table.num_rows for part in sample.read)
    described = f"{drawn:,} documents of {len(sample.read):,} of {sample.parts:,} parts"
    for label, stage in recipe.stages:
        if stage.train_documents is not None:
            described += f"; a run trains {label} on at most {stage.train_documents:,} documents"
    made = Plan(recipe.name, recipe.digest, described, tuple(rows), None, None)
    if not any(table.num_rows for table in left):
        return made
    tokens = quantity(left, "n_tokens", sample.drawn)
    amount = rows[-1].documents if tokens is None else scaled.total(tokens)
    cost = measure_output(recipe.output, applied, pa.concat_tables(left).drop_columns(ROW))
    seconds = cost.seconds.at(amount).within(CLOCK_FACTOR, START_FACTOR * cost.start + DESCRIBE_SECONDS)
    spilled = cost.spilled.at(amount) + exact(cost.spilled.fixed * (sample.parts - 1))  # each part has files of its own
    last = PlanRow(recipe.output.name, rows[-1].documents, None, seconds, spilled)
    return replace(made, rows=(*rows, last), tokens=amount if tokens else None, written=cost.written.at(amount))


class _Scaled:
    """From the sample to all documents, stage by stage; what surveys would find more of is carried along."""

    def __init__(self, sample: Sample, copies: Copies) -> None:
        self.sample, self.copies = sample, copies
        self.waited: dict[str, Estimate] = {}
        self.drawn = sample.drawn
        self.stays, self.sizes_stay = ONE, ONE
        """Which share of the documents that are left of the sample, and of their sizes, would be left of all."""
        self.documents = estimate_parts(self.drawn.documents.tolist(), self.drawn)

    def source(self, name: str) -> PlanRow:
        """Return the row of the source, whose parts were read whole."""
        read = self.sample.read
        letters = [part.characters for part in read if part.characters is not None]
        characters = estimate_parts(letters, self.drawn) if len(letters) == len(read) else None
        seconds = estimate_parts([part.seconds for part in read], self.drawn)
        return PlanRow(name, self.documents, characters, self._seconds(seconds, self.sample.start), exact(0.0))

    def stage(self, one: MeasuredStage) -> PlanRow:
        """Return the row of a stage."""
        seconds, disk = self._seconds(self.total(one.seconds), one.start), self.total(one.disk).widened(DISK_NOISE)
        self.waited[one.label] = self.total(one.waited).within(CLOCK_FACTOR)
        if disk.value:
            seconds += exact(0.0).within(1.0, PART_SECONDS * self.drawn.parts)
        if one.thinning is not None:
            documents, sizes = (self._kept(each) for each in one.thinning)
            self.stays, self.sizes_stay = self.stays.scaled(documents), self.sizes_stay.scaled(sizes)
        self.documents = estimate_total(one.there, self.drawn, counts=True).scaled(self.stays).at_most(self.documents)
        characters = None if one.characters is None else self.total(one.characters)
        return PlanRow(one.label, self.documents, characters, seconds, disk)

    def _kept(self, thinning: Thinning) -> Estimate:
        kept = thinning.kept()
        return kept if self.copies == "grow" else replace(kept, value=1.0)

    def _seconds(self, measured: Estimate, start: float) -> Estimate:
        tables = float(self.drawn.documents.sum()) / self.drawn.looked_at / self.sample.together
        return measured.within(CLOCK_FACTOR, START_FACTOR * start + TABLE_SECONDS * tables)

    def total(self, values: Values) -> Estimate:
        """Return the total of what grows with the size of a document."""
        return estimate_total(values, self.drawn).scaled(self.sizes_stay)


class Point(NamedTuple):
    """What writing some documents took."""

    amount: float
    """Their tokens, or how many they are where they have none."""
    took: float


@dataclass(frozen=True)
class Line:
    """A straight line over tokens, or over documents where they have no tokens."""

    fixed: float
    """What is there whatever the documents, such as a tokenizer."""
    slope: float
    noise: float
    """By which share half of the documents lay off the line."""

    @classmethod
    def through(cls, one: Point, half: Point, whole: Point) -> "Line":
        """Return the line from one document, or none, to all of them; half of them say how far off it is."""
        slope = max((whole.took - one.took) / max(whole.amount - one.amount, 1.0), 0.0)
        fixed = max(one.took - slope * one.amount, 0.0)
        expected = fixed + slope * half.amount
        return cls(fixed, slope, abs(half.took - expected) / max(expected, 1e-9))

    def at(self, amount: Estimate) -> Estimate:
        """Return the figure for this many tokens or documents."""
        value, low, high = (self.fixed + self.slope * each for each in (amount.value, amount.low, amount.high))
        return Estimate(value, low, high).widened(min(max(self.noise, LEAST_NOISE), 1.0))


@dataclass(frozen=True)
class MeasuredOutput:
    """What writing takes, by the amount that is written."""

    written: Line
    """Bytes."""
    spilled: Line
    """Bytes of the first pass."""
    seconds: Line
    """Of a core."""
    start: float
    """Seconds of a core that writing one document took at first."""


def measure_output(output: Output, stages: Sequence[Stage], documents: pa.Table) -> MeasuredOutput:
    """Write one document, half of them and all, into a folder that is removed afterwards; none of them is held out."""
    if "heldout" in output.settings():
        output = replace(cast("Any", output), heldout=0)
    ordered = documents.sort_by(SORT_KEY) if SORT_KEY in documents.column_names else documents
    sizes = (1, (ordered.num_rows + 1) // 2, ordered.num_rows)
    with tempfile.TemporaryDirectory() as folder:
        output.writer(stages).spill([ordered.slice(0, 0)], Path(folder), 0)
        nothing = float(folder_bytes(Path(folder)))
    _, _, start = _write(output, stages, ordered.slice(0, 1))
    each = ordered["n_tokens"].to_numpy() if "n_tokens" in ordered.column_names else np.ones(ordered.num_rows)
    amounts = [float(each[:few].sum()) for few in sizes]
    took = [_write(output, stages, ordered.slice(0, few)) for few in sizes]
    written, spilled, seconds = ([*map(Point, amounts, values)] for values in zip(*took, strict=True))
    spilled[0] = Point(0.0, nothing)
    return MeasuredOutput(Line.through(*written), Line.through(*spilled), Line.through(*seconds), start)


def _write(output: Output, stages: Sequence[Stage], documents: pa.Table) -> tuple[float, float, float]:
    """Return bytes written, bytes spilled, and seconds."""
    clock = CoreClock()
    with tempfile.TemporaryDirectory() as folder:
        spill, made = Path(folder) / "spill", Path(folder) / "made"
        spill.mkdir()
        made.mkdir()
        with clock.measure("write"):
            writer = output.writer(stages)
            writer.spill([documents], spill, 0)
            writer.finish(spill, made, [writer.write(spill, made, task) for task in writer.plan(spill, 1, made)])
            file_entries(made, [path.relative_to(made).as_posix() for path in whole_files(made)])
        return float(folder_bytes(made)), float(folder_bytes(spill)), clock.seconds["write"]
