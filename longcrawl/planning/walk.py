"""The stages of a recipe over a sample in memory, with what each leaves, takes and would write."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import RunError
from longcrawl.fused import Tally, characters, run_fused
from longcrawl.keyed_hash import keyed_hash
from longcrawl.planning.estimates import Doubles, Drawn, Thinning, Values
from longcrawl.planning.sample import Sample
from longcrawl.recipe import Recipe
from longcrawl.run_surveys import group_inputs
from longcrawl.spans import SpanSurvey, WithSpans
from longcrawl.stages import PART, Order, Rewrite, Spans, Stage, Survey, document_ids

__all__ = ["ROW", "Measured", "measure_stages", "quantity"]

BATCH = 200
"""Documents per batch, as a crawl has them."""


ROW = "row of the sample"
"""The column that says which sampled document a row is, whatever stages have made of it."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One stage over the sample."""

    label: str
    there: Values
    """1 for each document that it left."""
    characters: Values | None
    seconds: float
    disk: float
    """Bytes that a run would keep in its work folder until it is done."""
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
    numbers = [part.number for part in sample.read]
    walk = _Walk(sample.drawn, numbers, group_inputs(sample.parts, recipe.parts), seed, folder)
    measured: list[Measured] = []
    for label, stage in recipe.stages:
        one, tables = walk.through(label, stage, tables)
        measured.append(one)
        if not sum(table.num_rows for table in tables):
            break
    return measured, tables, walk.applied


def quantity(tables: Sequence[pa.Table], name: str, drawn: Drawn) -> Values | None:
    """Give ``n_tokens``, or the code points of ``text``, of each sampled document, where the documents have it."""
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

    def __init__(
        self, drawn: Drawn, numbers: Sequence[int], groups: Sequence[Sequence[int]], seed: int, folder: str
    ) -> None:
        self.drawn, self.seed, self.folder = drawn, seed, folder
        self.applied: list[Stage] = []
        self.groups = [[place for place, number in enumerate(numbers) if number in group] for group in map(set, groups)]

    def through(self, label: str, stage: Stage, tables: list[pa.Table]) -> tuple[Measured, list[pa.Table]]:
        """Measure one stage, warm."""
        stage.prepare()
        if isinstance(stage, Survey) and not stage.orders:
            return self._surveyed(label, stage, tables)
        disk, started = 0.0, time.perf_counter()
        if isinstance(stage, Rewrite) and stage.needs_fit:
            disk = _stored(tables)
            fitted = stage.fit(iter(tables), f"{self.folder}/{label}")
            return self._fused(label, fitted, tables, disk, started)
        _one(
            label, stage, max(tables, key=lambda table: table.num_rows).slice(0, 1)
        )  # compiles what there is to compile
        return self._fused(label, stage, tables, disk, time.perf_counter())

    def _fused(
        self, label: str, stage: Stage, tables: list[pa.Table], disk: float, started: float
    ) -> tuple[Measured, list[pa.Table]]:
        left = [_one(label, stage, table) for table in tables]
        seconds = time.perf_counter() - started
        self.applied.append(stage)
        return self._measured(label, left, seconds, disk), left

    def _surveyed(self, label: str, survey: Survey, tables: list[pa.Table]) -> tuple[Measured, list[pa.Table]]:
        self._decide(label, survey, [table.slice(0, 1) for table in tables])  # compiles what there is to compile
        started = time.perf_counter()
        left, sketches = self._decide(label, survey, tables)
        seconds = time.perf_counter() - started
        halves = [self._half(table, label) for table in tables]
        half_left, _ = self._decide(label, survey, halves)
        self.applied.append(survey)
        thinning = tuple(self._thinning(tables, left, halves, half_left, by_size=each) for each in (False, True))
        return self._measured(label, left, seconds, _stored(tables) + _stored(sketches), thinning), left

    def _measured(
        self, label: str, left: Sequence[pa.Table], seconds: float, disk: float, thinning: Any = None
    ) -> Measured:
        there, letters = _there(left, self.drawn), quantity(left, "text", self.drawn)
        return Measured(label, there, letters, seconds, disk, thinning)

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

    def _decide(self, label: str, survey: Survey, tables: Sequence[pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
        """Let a survey decide about all tables, as a run does; give what is left, and the sketches."""
        sketches = [_sketched(survey, table) for table in tables]
        left = list(tables)
        for group in self.groups if survey.within_parts else [list(range(len(tables)))]:
            if not group:
                continue
            if isinstance(survey, SpanSurvey):
                with tempfile.TemporaryDirectory() as folder:
                    edit = WithSpans(survey, survey.find([sketches[place] for place in group], folder))
                    for place in group:
                        left[place] = _one(label, edit, tables[place])
            else:
                told = [sketches[place] if survey.within_parts else self._with_part(sketches, place) for place in group]
                gone = _removed(survey, pa.concat_tables(told), label)
                for place in group:
                    here = pc.is_in(document_ids(tables[place], label), value_set=gone)
                    left[place] = tables[place].filter(pc.invert(here))
        return left, sketches

    def _with_part(self, sketches: Sequence[pa.Table], place: int) -> pa.Table:
        part = next(number for number, group in enumerate(self.groups) if place in group)
        return sketches[place].append_column(PART, pa.array(np.full(sketches[place].num_rows, part, np.int32)))

    def _half(self, table: pa.Table, label: str) -> pa.Table:
        keys = keyed_hash(document_ids(table, label).to_pylist(), "half of a plan", self.seed)
        return table.filter(pa.array(keys % 2 == 0))


def _one(label: str, stage: Stage, table: pa.Table) -> pa.Table:
    left = pa.concat_tables(run_fused([(label, stage)], _batches(table), Tally())).combine_chunks()
    if ROW not in left.column_names:
        raise RunError(f"stage {label!r} drops columns that it does not know, so its documents cannot be planned")
    return left


def _batches(table: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, max(table.num_rows, 1), BATCH):
        yield table.slice(first, BATCH)


def _sketched(survey: Survey, table: pa.Table) -> pa.Table:
    return pa.concat_tables([survey.sketch(batch) for batch in _batches(table)])


def _removed(survey: Survey, sketches: pa.Table, label: str) -> pa.Array:
    answer = survey.resolve(sketches)
    if isinstance(answer, Order | Spans):
        raise RunError(f"stage {label!r} answers with neither removals nor an order: it cannot be planned")
    return pc.cast(answer["id"], pa.string()).combine_chunks()


def _stored(tables: Sequence[pa.Table]) -> float:
    """Give the bytes that tables take as a run keeps them."""
    return float(sum(_bytes(table) for table in tables))


def _bytes(table: pa.Table) -> int:
    sink = pa.MockOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return int(sink.size())
