"""The stages of a recipe over a sample in memory, with what each leaves, takes and would write."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import PART, Rewrite, Stage, document_ids
from longcrawl.core.surveys import WithSpans
from longcrawl.errors import RunError
from longcrawl.plan.costs import ROW, Costs
from longcrawl.plan.estimates import Doubles, Drawn, Thinning, Values
from longcrawl.plan.sample import Sample
from longcrawl.recipe import Recipe
from longcrawl.run.costs import CoreClock
from longcrawl.run.fused import characters
from longcrawl.run.surveys import group_inputs

__all__ = ["ROW", "Measured", "measure_stages", "quantity"]


QUICK, REPEATS = 0.5, 2
"""Seconds of a core below which a stage is measured again, and how often: caches are then as they are in a run."""
FIRST = 20
"""Documents of each part that a stage meets before it is measured: some that stay, and some that leave."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One stage over the sample."""

    label: str
    there: Values
    """1 for each document that it kept."""
    characters: Values | None
    seconds: Values
    """Of a core, that each document took."""
    disk: Values
    """Bytes of each document that a run would keep in its work folder until it is done."""
    start: float
    """Seconds of a core that the first documents took in this process, with imports and what was compiled."""
    thinning: tuple[Thinning, Thinning] | None = None
    """Of a survey: by documents, and by their sizes."""


def measure_stages(
    recipe: Recipe, sample: Sample, seed: int, folder: str
) -> tuple[list[Measured], list[pa.Table], list[Stage]]:
    """Take a sample through the stages, up to the first that leaves nothing of it.

    What stages learn, such as a tokenizer, is written to ``folder``, which the stages as applied read.

    Returns:
        What was measured; the documents that are left of each part; and the stages as they were applied.

    Raises:
        RunError: the sample has no documents.

    """
    tables = [part.table.append_column(ROW, pa.array(np.arange(part.table.num_rows))) for part in sample.read]
    if not sum(table.num_rows for table in tables):
        raise RunError(f"the {len(tables):,} part(s) of the sample have no documents: read more with --parts")
    walk = _Walk(sample, group_inputs(sample.parts, recipe.parts), seed, folder)
    measured: list[Measured] = []
    for label, stage in recipe.stages:
        one, tables = walk.through(label, stage, tables)
        measured.append(one)
        if not sum(table.num_rows for table in tables):
            break
    return measured, tables, walk.applied


def quantity(tables: Sequence[pa.Table], name: str, drawn: Drawn) -> Values | None:
    """Return ``n_tokens``, or the code points of ``text``, of each sampled document, where the documents have it."""
    if name not in tables[0].column_names or (name == "text" and characters(tables[0]) is None):
        return None
    return [_at(table, sizes, _numbers(table[name])) for table, sizes in zip(tables, drawn.document_sizes, strict=True)]


def _there(tables: Sequence[pa.Table], drawn: Drawn) -> Values:
    return [_at(table, sizes, 1.0) for table, sizes in zip(tables, drawn.document_sizes, strict=True)]


def _at(table: pa.Table, sizes: Doubles, values: Doubles | float) -> Doubles:
    found = np.zeros(len(sizes))
    found[table[ROW].to_numpy()] = values
    return found


def _numbers(values: pa.ChunkedArray) -> Doubles:
    lengths = values if pa.types.is_integer(values.type) else pc.utf8_length(values)
    found: Doubles = pc.cast(pc.fill_null(lengths, 0), pa.float64()).to_numpy()
    return found


class _Walk:
    """The stages one by one; tables are one per part that was read."""

    def __init__(self, sample: Sample, groups: Sequence[Sequence[int]], seed: int, folder: str) -> None:
        self.drawn, self.together, self.seed, self.folder = sample.drawn, sample.together, seed, folder
        self.applied: list[Stage] = []
        numbers = [part.number for part in sample.read]
        self.groups = [[place for place, number in enumerate(numbers) if number in group] for group in map(set, groups)]

    def through(self, label: str, stage: Any, tables: list[pa.Table]) -> tuple[Measured, list[pa.Table]]:
        """Measure one stage, warm; what a stage needs says which methods it has."""
        clock, cost = CoreClock(), self._costs()
        with clock.measure("start"):
            stage.prepare()
        if stage.needs in ("removals", "spans"):
            return self._surveyed(label, stage, tables, clock)
        if stage.needs == "fit":
            stage = self._fitted(label, stage, tables, cost)
        place = max(range(len(tables)), key=lambda each: tables[each].num_rows)
        with clock.measure("start"):
            self._costs().run(label, stage, place, tables[place].slice(0, FIRST))
        passed, left = self._passed(label, stage, tables)
        for _ in range(REPEATS):
            if passed.total_seconds() < QUICK:
                passed, left = self._passed(label, stage, tables)
        cost.add(passed)
        self.applied.append(stage)
        return self._measured(label, left, cost, clock), left

    def _passed(self, label: str, stage: Stage, tables: list[pa.Table]) -> tuple[Costs, list[pa.Table]]:
        """Take all documents through a stage once; give what that took, and what is left."""
        cost = self._costs()
        return cost, [cost.run(label, stage, place, table) for place, table in enumerate(tables)]

    def _costs(self) -> Costs:
        return Costs(self.drawn.document_sizes, self.together)

    def _fitted(self, label: str, stage: Rewrite, tables: list[pa.Table], cost: Costs) -> Stage:
        cost.keep(tables)
        target = Path(self.folder) / label
        with cost.shared(dict(enumerate(tables)), target, by_size=True):
            return stage.fit(iter(tables), str(target))

    def _surveyed(
        self, label: str, survey: Any, tables: list[pa.Table], clock: CoreClock
    ) -> tuple[Measured, list[pa.Table]]:
        with clock.measure("start"):
            self._decide(label, survey, [table.slice(0, FIRST) for table in tables], self._costs())
        cost = self._costs()
        cost.keep(tables)
        left = self._decide(label, survey, tables, cost)
        halves = [self._half(table, label) for table in tables]
        half_left = self._decide(label, survey, halves, self._costs())
        self.applied.append(survey)
        thinning = tuple(self._thinning(tables, left, halves, half_left, by_size=each) for each in (False, True))
        return self._measured(label, left, cost, clock, thinning), left

    def _measured(
        self, label: str, left: Sequence[pa.Table], cost: Costs, clock: CoreClock, thinning: Any = None
    ) -> Measured:
        there, letters = _there(left, self.drawn), quantity(left, "text", self.drawn)
        return Measured(label, there, letters, cost.seconds, cost.disk, clock.seconds["start"], thinning)

    def _thinning(
        self,
        tables: Sequence[pa.Table],
        left: Sequence[pa.Table],
        halves: Sequence[pa.Table],
        half_left: Sequence[pa.Table],
        *,
        by_size: bool,
    ) -> Thinning:
        """Compare what came with what stayed, each document counted as often as it stands for others."""
        amounts = []
        for each in (tables, left, halves, half_left):
            found = quantity(each, "text", self.drawn) if by_size else None
            amounts.append(np.concatenate(found or _there(each, self.drawn)))
        stands_for = 1 / np.concatenate(self.drawn.chances)
        came, half_came = float(amounts[0] @ stands_for), float(amounts[2] @ stands_for)
        gone, half_gone = amounts[0] - amounts[1], amounts[2] - amounts[3]
        removed = float(gone @ stands_for)
        # Of a pair both must be in the sample, so what is removed stands for more the rarer its like are drawn.
        seen = removed / float(gone @ stands_for**2) if removed else float(amounts[0].sum()) / max(came, 1)
        documents = float(sum(table.num_rows for table in tables))
        share, half_share = removed / max(came, 1e-9), float(half_gone @ stands_for) / max(half_came, 1e-9)
        return Thinning(documents, share, half_share, min(seen * self.drawn.looked_at, 1.0))

    def _decide(self, label: str, survey: Any, tables: Sequence[pa.Table], cost: Costs) -> list[pa.Table]:
        """Let a survey decide about all tables, as a run does; give what is left."""
        sketches = cost.sketch(survey, tables)
        left = list(tables)
        for group in self.groups if survey.within_parts else [list(range(len(tables)))]:
            together = {place: tables[place] for place in group}
            if survey.needs == "spans" and group:
                with tempfile.TemporaryDirectory() as folder:
                    with cost.shared(together, Path(folder), by_size=True):
                        edit = WithSpans(survey, survey.find([sketches[place] for place in group], folder))
                    left = [
                        cost.run(label, edit, place, each) if place in together else each
                        for place, each in enumerate(left)
                    ]
            elif group:
                within = survey.within_parts
                asked = [sketches[place] if within else self._with_part(sketches, place) for place in group]
                with cost.shared(together, by_size=False):
                    gone = pc.cast(survey.removals(pa.concat_tables(asked))["id"], pa.string()).combine_chunks()
                    for place in group:
                        here = pc.is_in(document_ids(tables[place], label), value_set=gone)
                        left[place] = tables[place].filter(pc.invert(here))
        return left

    def _with_part(self, sketches: Sequence[pa.Table], place: int) -> pa.Table:
        part = next(number for number, group in enumerate(self.groups) if place in group)
        return sketches[place].append_column(PART, pa.array(np.full(sketches[place].num_rows, part, np.int32)))

    def _half(self, table: pa.Table, label: str) -> pa.Table:
        keys = keyed_hash(document_ids(table, label).to_pylist(), "half of a plan", self.seed)
        return table.filter(pa.array(keys % 2 == 0))
