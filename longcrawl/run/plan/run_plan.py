"""``longcrawl plan``: estimates documents, tokens, bytes and hours of each stage before a run.

The cost of an output is measured by writing one of the sample's remaining documents, half of them and all of them.
Documents are measured in batches of similar size, which had similar probabilities to be drawn, so the cost of short
documents is weighted correctly though long documents are drawn more often.
"""

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.clock import CoreClock
from longcrawl.core.display import counted
from longcrawl.core.outputs import Output
from longcrawl.core.stages import PART, SORT_KEY, Stage, Survey, WithSpans, document_ids
from longcrawl.errors import RunError
from longcrawl.io.files import file_entries, folder_bytes, whole_files
from longcrawl.kernels.compiling import count_compiled
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.run.inputs import needed_source, train_parts
from longcrawl.run.part import Tally, characters, gather_small, run_fused
from longcrawl.run.plan.estimates import (
    TYPICAL,
    Doubles,
    Drawn,
    Estimate,
    Plan,
    PlanRow,
    Sample,
    Thinning,
    draw_sample,
    estimate_parts,
    estimate_total,
    exact,
)
from longcrawl.run.recipe import Recipe, check_order, load_recipe

Longs = npt.NDArray[np.int64]

BATCH = 200

ROW = "row of the sample"
"""Column with the number of the sampled document that a row was made from."""
QUICK = 0.5
"""Core seconds below which a stage is measured again, with warm caches."""
FIRST = 20
"""Documents of each part used to warm a stage up before it is measured; usually some are kept and some removed."""


class Costs:
    """Core seconds and disk bytes of every sampled document: float64 [documents]."""

    def __init__(self, sample: Sample) -> None:
        self.sizes, self.together = np.concatenate(sample.drawn.document_sizes), sample.together
        self.read = [max(part.table.num_rows, 1) for part in sample.read]
        self._starts = np.cumsum([0, *(part.table.num_rows for part in sample.read)])
        """Row of the first document of each part, and the number of all."""
        self.seconds, self.disk, self.waited = np.zeros((3, len(self.sizes)))
        """``waited`` is the share of ``seconds`` for work that is done once for all parts, while they wait."""
        self._nothing: float | None = None
        """Core seconds of the stage for a table without documents."""

    def run(self, label: str, stage: Stage, tables: Mapping[int, pa.Table]) -> dict[int, pa.Table]:
        """Run a stage on the documents of parts, by place, measure it and return the kept documents of each.

        Documents of different parts go through the stage in one call, which would otherwise cost more than small parts.
        """
        if self._nothing is None:
            _, self._nothing = _timed(label, stage, next(iter(tables.values())).slice(0, 0))
        for place, table in tables.items():
            self.seconds[table[ROW].to_numpy()] += self._nothing / self._kept_together(place, table)
        left = []
        for _, rows, batch in self._batches(pa.concat_tables(tables.values()), BATCH):
            documents, seconds = _timed(label, stage, batch)
            left.append(documents)
            self._add(self.seconds, rows, max(seconds - self._nothing, 0.0))
        documents = pa.concat_tables(left)
        if ROW not in documents.column_names:
            raise RunError(f"stage {label!r} drops columns that it does not know, so its documents cannot be planned")
        documents = documents.sort_by(ROW).combine_chunks()
        bounds = np.searchsorted(documents[ROW].to_numpy(), self._starts).tolist()
        return {place: documents.slice(bounds[place], bounds[place + 1] - bounds[place]) for place in tables}

    def add(self, other: "Costs") -> None:
        """Add the costs of another step of the same stage."""
        self.seconds += other.seconds
        self.disk += other.disk
        self.waited += other.waited

    def keep(self, tables: Sequence[pa.Table], *, is_new: bool) -> None:
        """Measure how a run stores documents until all parts are done: writing them and reading them back.

        Documents that are not new are stored already and only cost reading.
        """
        for place, table in enumerate(tables):
            self._store(table, self._batches(table, self._kept_together(place, table)), is_new=is_new)

    @contextmanager
    def shared(
        self,
        tables: Sequence[pa.Table],
        folder: Path | None = None,
        *,
        by_size: bool,
        waits: bool = True,
        share: float = 1.0,
    ) -> Iterator[None]:
        """Divide the time of a block and the size of its files in ``folder`` among documents, by size or equally.

        ``waits`` is whether all parts wait for the block, and ``share`` the share of the block's time to count.
        """
        clock = CoreClock()
        with clock.measure("block"):
            yield
        rows = np.concatenate([table[ROW].to_numpy() for table in tables])
        weights = self.sizes[rows] if by_size else np.ones(len(rows))
        weights = weights / max(float(weights.sum()), 1.0)
        took = weights * (clock.seconds["block"] * share)
        self.seconds[rows] += took
        self.waited[rows] += took * waits
        self.disk[rows] += weights * (folder_bytes(folder) if folder else 0)

    def sketch(self, survey: Survey, place: int, table: pa.Table) -> pa.Table:
        """Measure a survey's sketching of documents, and writing and reading the sketches; return the sketches."""
        made = []
        for chosen, rows, batch in self._batches(table, self._kept_together(place, table)):
            clock = CoreClock()
            with clock.measure("sketch"):
                sketches = survey.sketch(batch)
            self._add(self.seconds, rows, clock.seconds["sketch"])
            made.append((chosen, rows, sketches))
        self._store(table, made)
        order = np.concatenate([chosen for chosen, _, _ in made])
        return pa.concat_tables(sketches for _, _, sketches in made).take(np.argsort(order))

    def _store(self, table: pa.Table, batches: Iterable[tuple[Longs, Longs, pa.Table]], *, is_new: bool = True) -> None:
        """Write batches of documents or sketches and read them back; writing only counts if they are new."""
        sink, writer, written = io.BytesIO(), None, 0
        for _, rows, batch in batches:
            stored = batch.drop_columns([ROW]) if ROW in batch.column_names else batch
            if writer is None:
                writer = pa.ipc.new_file(sink, stored.schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
            clock = CoreClock()
            with clock.measure("write"):
                writer.write_table(stored)
            self._add(self.disk, rows, (sink.tell() - written) * is_new)
            written = sink.tell()
            self._add(self.seconds, rows, clock.seconds["write"] * is_new)
        if writer is not None:
            writer.close()
            self._add(self.disk, table[ROW].to_numpy(), (sink.tell() - written) * is_new)
            with self.shared([table], by_size=True, waits=False):
                pa.ipc.open_file(pa.BufferReader(sink.getbuffer())).read_all()

    def _kept_together(self, place: int, table: pa.Table) -> int:
        """Return the expected number of documents left of one table of the source, for which a run pays one call."""
        share: float = table.num_rows / self.read[place]
        return max(ceil(self.together * share), 1)

    def _batches(self, table: pa.Table, most: int) -> Iterator[tuple[Longs, Longs, pa.Table]]:
        """Yield batches of documents of similar size: rows in the table, rows in the sample, and the documents."""
        rows = table[ROW].to_numpy()
        order = np.argsort(self.sizes[rows], kind="stable")
        for first in range(0, max(len(order), 1), most):
            chosen = order[first : first + most]
            yield chosen, rows[chosen], table.take(chosen)

    def _add(self, values: Doubles, rows: Longs, amount: float) -> None:
        weights = self.sizes[rows] + TYPICAL
        values[rows] += weights * (amount / max(float(weights.sum()), 1.0))


def _timed(label: str, stage: Stage, batch: pa.Table) -> tuple[pa.Table, float]:
    tally = Tally()
    left = pa.concat_tables(run_fused([(label, stage)], iter([batch]), tally))
    return left, tally.clock.seconds[label]


@dataclass(frozen=True, eq=False)
class MeasuredStage:
    """Measurements of one stage on the sample."""

    label: str
    there: Doubles
    """1 for each kept document, 0 for the others."""
    characters: Doubles | None
    cost: Costs
    start: float
    """Core seconds of the first documents in this process, with imports and compilation."""
    thinning: tuple[Thinning, Thinning] | None = None
    """Removed shares of a survey, by documents and by their sizes; None for other stages."""


def measure_stages(
    recipe: Recipe, sample: Sample, seed: int, folder: str
) -> tuple[list[MeasuredStage], list[pa.Table], list[Stage]]:
    """Run and measure the stages on a sample, up to the first that removes all of it.

    Fitted files, such as a tokenizer, are written to ``folder``, from which the fitted stages read them.

    Returns:
        The measurements; the remaining documents of each part; and the stages as applied, fitted if need be.
    """
    starts = np.cumsum([0, *(part.table.num_rows for part in sample.read)])
    numbers = [np.arange(*ends) for ends in pairwise(starts)]
    tables = [part.table.append_column(ROW, pa.array(each)) for part, each in zip(sample.read, numbers, strict=True)]
    if not sum(table.num_rows for table in tables):
        if len(tables) == sample.parts:
            raise RunError(f"source {recipe.source.name!r} has no documents to plan for: check its settings")
        parts = f"{counted(len(tables), 'part')} of {sample.parts:,}"
        raise RunError(f"the sample, {parts}, has no documents: read more with --parts")
    if recipe.on_duplicate_ids == "keep_first":
        tables = _first_of_ids(tables)
    walk = _Walk(sample, min(sample.parts, recipe.parts), seed, folder)
    measured: list[MeasuredStage] = []
    for label, stage in recipe.stages:
        one, tables = walk.through(label, stage, tables)
        measured.append(one)
        if not sum(table.num_rows for table in tables):
            break
    return measured, tables, walk.applied


def _first_of_ids(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Remove documents with the id of an earlier one in the sample; ids of parts that were not read are unknown."""
    ids = pa.chunked_array([chunk for table in tables for chunk in table["id"].chunks], pa.string())
    first = pa.table({"id": ids, "place": np.arange(len(ids))}).group_by("id").aggregate([("place", "min")])
    rows = first["place_min"].combine_chunks()
    return [table.filter(pc.is_in(table[ROW], value_set=rows)) for table in tables]


def quantity(tables: Sequence[pa.Table], name: str, drawn: Drawn) -> Doubles | None:
    """Return a column's ``n_tokens`` or code points of ``text`` for each sampled document; None without the column."""
    if name not in tables[0].column_names or (name == "text" and characters(tables[0]) is None):
        return None
    columns = [table[name] for table in tables]
    lengths = [each if pa.types.is_integer(each.type) else pc.utf8_length(each) for each in columns]
    numbers = [pc.cast(pc.fill_null(each, 0), pa.float64()).to_numpy() for each in lengths]
    return _at(tables, drawn, np.concatenate(numbers))


def _at(tables: Sequence[pa.Table], drawn: Drawn, values: Doubles | float = 1.0) -> Doubles:
    """Return the values of the documents in ``tables`` at their rows of the sample, and 0 for all others."""
    found = np.zeros(sum(map(len, drawn.chances)))
    found[np.concatenate([table[ROW].to_numpy() for table in tables])] = values
    return found


class _Walk:
    def __init__(self, sample: Sample, groups: int, seed: int, folder: str) -> None:
        self.sample, self.drawn, self.seed, self.folder = sample, sample.drawn, seed, folder
        self.applied: list[Stage] = []
        # The same groups as in longcrawl.run.segments.group_inputs, without listing millions of inputs.
        self.group_of = [part.number % groups for part in sample.read]

    def through(self, label: str, stage: Any, tables: list[pa.Table]) -> tuple[MeasuredStage, list[pa.Table]]:
        clock, cost, thinning = CoreClock(), Costs(self.sample), None
        with clock.measure("start"):
            stage.prepare()
        if stage.needs == "fit":
            stage = self._fitted(label, stage, tables, cost)
        if stage.needs in ("removals", "spans"):
            with clock.measure("start"):
                self._decide(label, stage, [table.slice(0, FIRST) for table in tables], Costs(self.sample))

            def survey(cost: Costs) -> list[pa.Table]:
                cost.keep(tables, is_new=not self._are_kept())
                return self._decide(label, stage, tables, cost)

            passed, left = self._warm(survey)
            halves = [self._half(table, label) for table in tables]
            half_left = self._decide(label, stage, halves, Costs(self.sample))
            shares = [self._thinning(tables, left, halves, half_left, by_size=each) for each in (False, True)]
            thinning = shares[0], shares[1]
        else:
            place = max(range(len(tables)), key=lambda each: tables[each].num_rows)
            with clock.measure("start"):
                Costs(self.sample).run(label, stage, {place: tables[place].slice(0, FIRST)})
            passed, left = self._warm(lambda cost: list(cost.run(label, stage, dict(enumerate(tables))).values()))
        cost.add(passed)
        self.applied.append(stage)
        there, letters = _at(left, self.drawn), quantity(left, "text", self.drawn)
        return MeasuredStage(label, there, letters, cost, clock.seconds["start"], thinning), left

    def _warm(self, through: Callable[[Costs], list[pa.Table]]) -> tuple[Costs, list[pa.Table]]:
        """Run a stage on all documents, and again if it was quick or compiled kernels, which happens once in a run.

        Return the costs of the last time, and the kept documents.
        """
        cost, before = Costs(self.sample), count_compiled()
        left = through(cost)
        if count_compiled() > before or cost.seconds.sum() < QUICK:
            cost = Costs(self.sample)
            left = through(cost)
        return cost, left

    def _fitted(self, label: str, stage: Stage, tables: list[pa.Table], cost: Costs) -> Stage:
        cost.keep(tables, is_new=not self._are_kept())
        target, count = Path(self.folder) / label, stage.train_documents
        come = estimate_total(_at(tables, self.drawn), self.drawn, counts=True).value
        # The stage is fitted on up to ``count`` documents here and in the run, which has more to choose from.
        share = 1.0 if count is None else min(count / come, 1.0) / min(count / sum(map(len, tables)), 1.0)
        with cost.shared(tables, target, by_size=True, share=share):
            return stage.fit(iter(tables), str(target))

    def _are_kept(self) -> bool:
        """Return whether the last stage was a survey that removes documents, so that a run has stored them already."""
        return bool(self.applied) and self.applied[-1].needs == "removals"

    def _thinning(
        self,
        tables: Sequence[pa.Table],
        left: Sequence[pa.Table],
        halves: Sequence[pa.Table],
        half_left: Sequence[pa.Table],
        *,
        by_size: bool,
    ) -> Thinning:
        """Return the removed shares of the sample and of half of it, with documents weighted by inverse probability."""
        amounts = []
        for each in (tables, left, halves, half_left):
            found = quantity(each, "text", self.drawn) if by_size else None
            amounts.append(_at(each, self.drawn) if found is None else found)
        stands_for = 1 / np.concatenate(self.drawn.chances)
        came, half_came = float(amounts[0] @ stands_for), float(amounts[2] @ stands_for)
        gone, half_gone = amounts[0] - amounts[1], amounts[2] - amounts[3]
        removed = float(gone @ stands_for)
        # Both documents of a pair must be in the sample, so a removed one counts for more the rarer its like are drawn.
        seen = removed / float(gone @ stands_for**2) if removed else float(amounts[0].sum()) / max(came, 1)
        documents = float(sum(table.num_rows for table in tables))
        share, half_share = removed / max(came, 1e-9), float(half_gone @ stands_for) / max(half_came, 1e-9)
        return Thinning(documents, share, half_share, min(seen * self.drawn.looked_at, 1.0))

    def _decide(self, label: str, survey: Any, tables: Sequence[pa.Table], cost: Costs) -> list[pa.Table]:
        sketches, left = [cost.sketch(survey, *each) for each in enumerate(tables)], list(tables)
        groups = [list(range(len(tables)))]
        if survey.within_parts:
            groups = [np.flatnonzero(np.equal(self.group_of, each)).tolist() for each in sorted(set(self.group_of))]
        for group in groups:
            together = [tables[place] for place in group]
            if survey.needs == "spans":
                with tempfile.TemporaryDirectory() as folder:
                    with cost.shared(together, Path(folder), by_size=True):
                        edit = WithSpans(survey, survey.find([sketches[place] for place in group], folder))
                    for place, documents in cost.run(label, edit, dict(zip(group, together, strict=True))).items():
                        left[place] = documents
            else:
                within = survey.within_parts
                asked = [sketches[place] if within else self._with_part(sketches[place], place) for place in group]
                with cost.shared(together, by_size=False):
                    gone = pc.cast(survey.removals(pa.concat_tables(asked))["id"], pa.string()).combine_chunks()
                    for place in group:
                        here = pc.is_in(document_ids(tables[place], label), value_set=gone)
                        left[place] = tables[place].filter(pc.invert(here))
        return left

    def _with_part(self, sketches: pa.Table, place: int) -> pa.Table:
        return sketches.append_column(PART, pa.array(np.full(sketches.num_rows, self.group_of[place], np.int32)))

    def _half(self, table: pa.Table, label: str) -> pa.Table:
        keys = keyed_hash(document_ids(table, label).to_pylist(), "half of a plan", self.seed)
        return table.filter(pa.array(keys % 2 == 0))


Copies = Literal["grow", "as_sampled"]
"""Method to estimate the share that a survey removes of all documents: "grow" follows the growth from half of the
sample to all of it; "as_sampled" takes the share of the sample, as "grow" would remove almost all of a million times
more documents after a few pairs in the sample.
"""

ONE = exact(1.0)
CLOCK_FACTOR = 1.5
"""Ratio by which the core time of the same work may vary between runs if cores are shared."""
START_FACTOR = 3.0
"""Upper limit of a run's start-up time, as a multiple of this process's: two processes, each 1.5 times as slow."""
DESCRIBE_SECONDS = 2.0
"""Upper limit of core seconds for the analysis, card and manifest of a small run."""
PART_SECONDS = 0.02
"""Upper limit of core seconds per part for files and markers, after stages that need all parts."""
TABLE_SECONDS = 0.0005
"""Upper limit of extra core seconds per table and stage in a run, as other stages evict its caches in between."""
DISK_NOISE = 0.03
"""Relative error of disk space, as compression depends on neighbouring documents."""
LEAST_NOISE = 0.03
"""Smallest relative error assumed for a line through measured writes."""


PARTS, DOCUMENTS = 8, 4000
"""Size of the sample of a plan that is given the one and not the other, and of the last of its growing samples."""
FIRST_PARTS, FIRST_DOCUMENTS, GROWTH = 2, 250, 4
"""Size of the first sample of a plan, and the factor by which the next has more documents, and half as many parts."""
WORTH = 0.1
"""Share of the estimated core seconds of a run that samples may cost."""
NARROW = 0.05
"""Half the width of an interval, as a share of its value, that a larger sample need not narrow."""


def plan(
    recipe: str | Path | Recipe,
    *,
    parts: int | None = None,
    documents: int | None = None,
    seed: int = 0,
    overrides: Iterable[str] = (),
) -> Plan:
    """Run a recipe's stages on a sample of its input and estimate the results and costs of a run.

    Without ``parts`` and ``documents``, samples grow to 4,000 documents of 8 parts, until the intervals of documents,
    tokens and bytes written are within 5 % of their values, or the next sample would bring their cost above a tenth of
    the run's. The first sample, imports and compilation do not count. No files are kept. Deduplication finds fewer
    duplicates among few documents, so its intervals are wide, see :class:`longcrawl.run.plan.estimates.Thinning`. A
    tokenizer that a run would train is trained on the sample.

    Args:
        recipe: a recipe in any form that :func:`longcrawl.run` takes.
        parts: number of parts of the source to read, at least 2 if it has several; more are read if they have fewer
            than ``documents``; 8 if only the other is given.
        documents: number of documents to draw from them; they are held in memory; 4,000 if only the other is given.
        seed: seed of the draws.
        overrides: ``PATH=VALUE`` as for :func:`longcrawl.run`.

    Raises:
        RunError: the sample has no documents, or ``parts`` or ``documents`` is too small.
    """
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    if parts is not None or documents is not None:
        least, most = PARTS if parts is None else parts, DOCUMENTS if documents is None else documents
        chosen, sample = sample_recipe(chosen, least, most, seed, (), unit="part")
        return scale_up(chosen, sample, seed).plan
    least, most, spent = FIRST_PARTS, FIRST_DOCUMENTS, 0.0
    while True:
        clock = CoreClock()
        with clock.measure("sample"):
            _, sample = sample_recipe(chosen, least, min(most, DOCUMENTS), seed, (), unit="part")
            made, _, start = scale_up(chosen, sample, seed)
        took = max(clock.seconds["sample"] - start, 0.0)
        spent += took
        is_whole = len(sample.read) == sample.parts and sum(part.documents for part in sample.read) <= most
        if is_whole or most >= DOCUMENTS or _is_narrow(made) or spent + GROWTH * took > WORTH * made.seconds.value:
            return made
        least, most = least * GROWTH // 2, most * GROWTH


def _is_narrow(made: Plan) -> bool:
    """Return whether no result of a plan has an interval that a larger sample should narrow."""
    if made.written is None:
        return False
    figures = [row.documents for row in made.rows] + [each for each in (made.tokens, made.written) if each is not None]
    return all(each.high - each.low <= 2 * NARROW * each.value for each in figures)


def sample_recipe(
    recipe: str | Path | Recipe,
    parts: int,
    documents: int,
    seed: int,
    overrides: Iterable[str],
    unit: Literal["part", "file"],
) -> tuple[Recipe, Sample]:
    """Return a recipe and a sample of its input, drawn by the run's parts or by the source's files (``unit``)."""
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    check_order(chosen)
    there = train_parts(chosen.source)
    if parts < min(2, len(there)) or documents < 1:
        raise RunError(f"a plan needs --parts of 2 or more and --documents of 1 or more, got {parts} and {documents}")
    there = gather_small(there, chosen) if unit == "part" else there
    large: Literal["whole", "sections"] = "sections" if unit == "part" and chosen.parts == 1 else "whole"
    return chosen, draw_sample(needed_source(chosen), there, parts, documents, seed, large)


def _described(sample: Sample, parts: str) -> str:
    """Describe a sample of some ``parts`` in words, with a remark if a run cannot divide some of its input."""
    drawn = counted(sum(part.table.num_rows for part in sample.read), "document")
    whole = counted(sample.undivided, "large or remote file")
    remark = f"; a run does not divide {whole}, each read by one process" if sample.undivided else ""
    return f"{drawn} of {parts}{remark}"


class ScaledUp(NamedTuple):
    """Plan with the share of its work that cannot be done part by part."""

    plan: Plan
    waited: Mapping[str, Estimate]
    """Core seconds of each stage's row, by label, that are spent on work done once for all parts."""
    start: float
    """Core seconds of imports, compilation and first documents, which a larger sample does not spend again."""


def scale_up(
    recipe: Recipe, sample: Sample, seed: int, *, copies: Copies = "grow", parts: str | None = None
) -> ScaledUp:
    """Run a recipe's stages on a sample of some ``parts``, in words, and scale the measurements to all parts."""
    scaled, started = _Scaled(sample, copies), sample.start
    with tempfile.TemporaryDirectory() as folder:
        measured, left, applied = measure_stages(recipe, sample, seed, folder)
        rows = [scaled.source(recipe.source.name), *(scaled.stage(one) for one in measured)]
        started += sum(one.start for one in measured)
        about = _described(sample, parts or f"{len(sample.read):,} of {counted(sample.parts, 'part')}")
        for label, stage in recipe.stages:
            if stage.train_documents is not None:
                about += f"; a run trains {label} on at most {stage.train_documents:,} documents"
        made = Plan(recipe.name, recipe.digest, about, tuple(rows), None, None)
        if any(table.num_rows for table in left):
            tokens = quantity(left, "n_tokens", sample.drawn)
            amount = rows[-1].documents if tokens is None else scaled.total(tokens)
            documents = pa.concat_tables(left).drop_columns(ROW)
            written, spill, took, start = measure_output(recipe.output, applied, documents)
            started += start
            seconds = took.at(amount).within(CLOCK_FACTOR, START_FACTOR * start + DESCRIBE_SECONDS)
            spilled = spill.at(amount) + exact(spill.fixed * (sample.parts - 1))  # each part has its own files
            rows.append(PlanRow(recipe.output.name, rows[-1].documents, None, seconds, spilled))
            numbered = None if tokens is None else amount
            made = replace(made, rows=tuple(rows), tokens=numbered, written=written.at(amount))
    return ScaledUp(made, scaled.waited, started)


class _Scaled:
    """Scaling from the sample to all documents, stage by stage; it tracks the duplicates missing from the sample."""

    def __init__(self, sample: Sample, copies: Copies) -> None:
        self.sample, self.copies = sample, copies
        self.waited: dict[str, Estimate] = {}
        self.drawn = sample.drawn
        self.stays, self.sizes_stay = ONE, ONE
        """Kept shares of all documents, divided by those of the sample: by number and by size."""
        self.documents = estimate_parts(self.drawn.documents.tolist(), self.drawn)

    def source(self, name: str) -> PlanRow:
        read = self.sample.read
        letters = [part.characters for part in read if part.characters is not None]
        characters = estimate_parts(letters, self.drawn) if len(letters) == len(read) else None
        seconds = estimate_parts([part.seconds for part in read], self.drawn)
        took = self._seconds(seconds, self.sample.start)
        return PlanRow(name, self.documents, characters, took, self.sample.unpacked)

    def stage(self, one: MeasuredStage) -> PlanRow:
        seconds = self._seconds(self.total(one.cost.seconds), one.start)
        disk = self.total(one.cost.disk).widened(DISK_NOISE)
        self.waited[one.label] = self.total(one.cost.waited).within(CLOCK_FACTOR)
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

    def total(self, values: Doubles) -> Estimate:
        return estimate_total(values, self.drawn).scaled(self.sizes_stay)


Point = tuple[float, float]
"""Number of tokens (of documents if they have no tokens), and the bytes or core seconds to write them."""


@dataclass(frozen=True)
class Line:
    """Cost of writing as a linear function of tokens, or of documents if they have no tokens."""

    fixed: float
    """Cost that does not depend on the documents, such as that of a tokenizer's file."""
    slope: float
    noise: float
    """Relative distance from the line when half of the documents were written."""
    least: float = inf
    """Lowest cost of any number of documents if the fixed part is not known."""

    @classmethod
    def through(cls, one: Point, half: Point, whole: Point) -> "Line":
        """Return the line through the points of one document, or none, and of all; ``half`` determines the noise.

        The cost of a single document may be fixed or not: the line then is the highest, with no fixed part.
        """
        if whole[0] <= one[0]:
            return cls(0.0, whole[1] / max(whole[0], 1.0), 0.0, whole[1])
        slope = max((whole[1] - one[1]) / max(whole[0] - one[0], 1.0), 0.0)
        fixed = max(one[1] - slope * one[0], 0.0)
        expected = fixed + slope * half[0]
        return cls(fixed, slope, abs(half[1] - expected) / max(expected, 1e-9))

    def at(self, amount: Estimate) -> Estimate:
        """Return the cost for a number of tokens or documents."""
        value, low, high = (self.fixed + self.slope * each for each in (amount.value, amount.low, amount.high))
        return Estimate(value, min(low, self.least), high).widened(min(max(self.noise, LEAST_NOISE), 1.0))


def measure_output(output: Output, stages: Sequence[Stage], documents: pa.Table) -> tuple[Line, Line, Line, float]:
    """Measure an output by writing one, half and all of the documents to a temporary folder; none is held out.

    Return bytes written, bytes of the first pass and core seconds, by amount, and the core seconds of the first write.
    """
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
    written, spilled, seconds = ([*zip(amounts, values, strict=True)] for values in zip(*took, strict=True))
    spilled[0] = (0.0, nothing)
    return Line.through(*written), Line.through(*spilled), Line.through(*seconds), start


def _write(output: Output, stages: Sequence[Stage], documents: pa.Table) -> tuple[float, float, float]:
    clock = CoreClock()
    with tempfile.TemporaryDirectory() as folder:
        spill, made = Path(folder) / "spill", Path(folder) / "made"
        spill.mkdir()
        made.mkdir()
        with clock.measure("write"):
            writer = output.writer(stages)
            writer.spill([documents], spill, 0)
            writer.finish(spill, made, [writer.write(spill, made, task) for task in writer.plan(spill, 1)])
            file_entries(made, [path.relative_to(made).as_posix() for path in whole_files(made)])
        return float(folder_bytes(made)), float(folder_bytes(spill)), clock.seconds["write"]
