"""``longcrawl plan``: documents, tokens, bytes and hours of every stage, before a run."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from longcrawl.display.table import Table
from longcrawl.errors import RunError
from longcrawl.ledger.funnel import Funnel
from longcrawl.plan.costs import ROW
from longcrawl.plan.estimates import Estimate, Values, estimate_parts, estimate_total, exact
from longcrawl.plan.output import measure_output
from longcrawl.plan.sample import Sample, draw_sample
from longcrawl.plan.walk import Measured, measure_stages, quantity
from longcrawl.printable import one_line
from longcrawl.recipe import Recipe, load_recipe, refuse_order
from longcrawl.run.costs import StageCost
from longcrawl.run.inputs import train_parts
from longcrawl.storage.files import write_text
from longcrawl.storage.sealed import SEAL, is_sealed, seal
from longcrawl.storage.structured import load_json

__all__ = ["Checked", "Plan", "PlanRow", "plan"]

VERSION = 1
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


@dataclass(frozen=True)
class PlanRow:
    """What one stage leaves, takes and keeps on disk until the run is done."""

    stage: str
    documents: Estimate
    characters: Estimate | None
    seconds: Estimate
    """Of a core of this machine."""
    disk: Estimate
    """In bytes."""


@dataclass(frozen=True)
class Checked:
    """One figure of a plan beside what became of it."""

    figure: str
    estimate: Estimate
    truth: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds the truth."""
        return self.truth in self.estimate

    def __str__(self) -> str:
        low, high = self.estimate.low, self.estimate.high
        return one_line(
            f"{self.figure} became {self.truth:.4g}, planned were {self.estimate.value:.4g} ({low:.4g} to {high:.4g})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        described = {"figure": self.figure, "planned": self.estimate.value, "low": self.estimate.low}
        return described | {"high": self.estimate.high, "became": self.truth}


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run of a recipe would give and take; ``str`` and notebooks show the table."""

    recipe: str
    digest: str
    sample: str
    """What was read, in words."""
    rows: tuple[PlanRow, ...]
    """The source first, the output last."""
    tokens: Estimate | None
    written: Estimate | None
    """Bytes of the output; None where the sample did not reach it."""

    @property
    def seconds(self) -> Estimate:
        """Of all stages together."""
        return sum((row.seconds for row in self.rows[1:]), self.rows[0].seconds)

    @property
    def disk(self) -> Estimate:
        """Bytes that stages need until the run is done, and its output; ledger and saved indexes come on top."""
        work = sum((row.disk for row in self.rows[1:]), self.rows[0].disk)
        return work + self.written if self.written else work

    def against(
        self, manifest: Mapping[str, Any], costs: Mapping[str, StageCost] = MappingProxyType({})
    ) -> tuple[Checked, ...]:
        """Put the figures beside those of a finished run.

        Args:
            manifest: of the run.
            costs: what its stages took, as :class:`longcrawl.RunSummary` has it; without, seconds and bytes of disk are
                not compared.

        """
        written = _written(manifest)
        truths = _truths(manifest) | {"bytes written": written} | (_costs(costs, written) if costs else {})
        figures = [(name, estimate, truths.get(name)) for name, estimate in self._figures()]
        return tuple(Checked(name, estimate, truth) for name, estimate, truth in figures if truth is not None)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; :meth:`from_dict` is the way back."""
        rows = [{"stage": row.stage, **{name: _as_list(getattr(row, name)) for name in _FIGURES}} for row in self.rows]
        return {
            "longcrawl_plan": VERSION,
            "recipe": self.recipe,
            "digest": self.digest,
            "sample": self.sample,
            "stages": rows,
            "tokens": _as_list(self.tokens),
            "written": _as_list(self.written),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Plan":
        """Read what :meth:`as_dict` gave.

        Raises:
            KeyError: something is missing.
            TypeError: something is of another type.
            ValueError: there are no rows, or the ends of an interval are in the wrong order.

        """
        if not values["stages"]:
            raise ValueError("no stages")
        named = [values[name] for name in ("recipe", "digest", "sample")] + [row["stage"] for row in values["stages"]]
        if not all(isinstance(each, str) for each in named):
            raise TypeError("a name that is not a text")
        for row in values["stages"]:
            if lacking := [name for name in _FIGURES if name != "characters" and row[name] is None]:
                raise ValueError(f"no {lacking[0]} of {row['stage']}")
        rows = tuple(PlanRow(row["stage"], *(_estimate(row[name]) for name in _FIGURES)) for row in values["stages"])
        ends = (_estimate(values["tokens"]), _estimate(values["written"]))
        return cls(values["recipe"], values["digest"], values["sample"], rows, *ends)

    def save(self, path: str | Path, checked: Sequence[Checked] = ()) -> None:
        """Write the plan as JSON, for ``longcrawl run --plan``; and what became of it, where that is known.

        Raises:
            RunError: it cannot be written there.

        """
        became = {"became": [each.as_dict() for each in checked]} if checked else {}
        try:
            write_text(Path(path), seal(self.as_dict() | became))
        except OSError as failed:
            raise RunError(
                f"a plan cannot be written to {path} ({failed.strerror or failed}): name another file"
            ) from failed

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read what :meth:`save` wrote.

        Raises:
            RunError: there is no plan at ``path``, or it was changed after it was written.

        """
        try:
            values = load_json(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as wrong:
            raise RunError(f"{path} is no plan ({wrong}): write one with longcrawl plan RECIPE --save FILE") from wrong
        if not isinstance(values, dict) or values.get("longcrawl_plan") != VERSION:
            raise RunError(f"{path} is no plan of version {VERSION}: write one with longcrawl plan RECIPE --save FILE")
        if SEAL in values and not is_sealed(Path(path), values):  # earlier versions did not seal it
            raise RunError(
                f"{path} has been changed: the SHA-256 that it gives of itself differs; write it again with longcrawl "
                "plan RECIPE --save FILE"
            )
        try:
            return cls.from_dict(values)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as lacking:
            raise RunError(
                f"{path} is no whole plan ({lacking}): write it again with longcrawl plan --save"
            ) from lacking

    def __repr__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def _table(self) -> Table:
        from longcrawl.plan.table import plan_table

        return plan_table(self)

    def _figures(self) -> Iterator[tuple[str, Estimate]]:
        for row in self.rows[:-1]:
            yield f"{row.stage}: documents", row.documents
            if row.characters is not None:
                yield f"{row.stage}: characters", row.characters
        if self.tokens is not None:
            yield "tokens", self.tokens
        for row in self.rows:
            yield f"{row.stage}: seconds", row.seconds
            if row.disk.high:
                yield f"{row.stage}: disk", row.disk
        if self.written is not None:
            yield "bytes written", self.written
            yield "seconds", self.seconds
            yield "disk", self.disk


_FIGURES = ("documents", "characters", "seconds", "disk")


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
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    refuse_order(chosen)
    there = train_parts(chosen.source)
    if parts < min(2, len(there)) or documents < 1:
        raise RunError(f"a plan reads 2 parts or more and draws 1 document or more, got {parts} and {documents}")
    sample = draw_sample(chosen.source, there, parts, documents, seed)
    with tempfile.TemporaryDirectory() as folder:
        return _planned(chosen, sample, seed, folder)


def _planned(recipe: Recipe, sample: Sample, seed: int, folder: str) -> Plan:
    measured, left, applied = measure_stages(recipe, sample, seed, folder)
    scaled = _Scaled(sample)
    rows = [scaled.source(recipe.source.name), *(scaled.stage(one) for one in measured)]
    drawn = sum(part.table.num_rows for part in sample.read)
    described = f"{drawn:,} documents of {len(sample.read):,} of {sample.parts:,} parts"
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

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
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

    def stage(self, one: Measured) -> PlanRow:
        """Return the row of a stage."""
        seconds, disk = self._seconds(self.total(one.seconds), one.start), self.total(one.disk).widened(DISK_NOISE)
        if disk.value:
            seconds += exact(0.0).within(1.0, PART_SECONDS * self.drawn.parts)
        if one.thinning is not None:
            documents, sizes = one.thinning
            self.stays, self.sizes_stay = self.stays.scaled(documents.kept()), self.sizes_stay.scaled(sizes.kept())
        self.documents = estimate_total(one.there, self.drawn, counts=True).scaled(self.stays).at_most(self.documents)
        characters = None if one.characters is None else self.total(one.characters)
        return PlanRow(one.label, self.documents, characters, seconds, disk)

    def _seconds(self, measured: Estimate, start: float) -> Estimate:
        tables = float(self.drawn.documents.sum()) / self.drawn.looked_at / self.sample.together
        return measured.within(CLOCK_FACTOR, START_FACTOR * start + TABLE_SECONDS * tables)

    def total(self, values: Values) -> Estimate:
        """Return the total of what grows with the size of a document."""
        return estimate_total(values, self.drawn).scaled(self.sizes_stay)


def _truths(manifest: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of a run by the names that a plan has for them."""
    funnel = Funnel.from_dict(manifest["funnel"])
    truths: dict[str, float | None] = {
        f"{funnel.source}: documents": funnel.documents,
        f"{funnel.source}: characters": funnel.characters,
    }
    for row in funnel:
        truths |= {f"{row.stage}: documents": row.documents_out, f"{row.stage}: characters": row.characters}
    for lengths in manifest["analysis"]["lengths"]:
        if lengths["unit"] == "tokens":
            truths["tokens"] = sum(lengths["total"].values())
    return truths


def _written(manifest: Mapping[str, Any]) -> float:
    within = manifest["output"]["format"] + "/"
    files = manifest.get("files", {})
    return float(sum(entry["bytes"] for name, entry in files.items() if name.startswith(within)))


def _costs(costs: Mapping[str, StageCost], written: float) -> dict[str, float]:
    """Return what stages took by the names that a plan has for it."""
    seconds = {f"{label}: seconds": cost.seconds for label, cost in costs.items()}
    disk = {f"{label}: disk": float(cost.disk) for label, cost in costs.items()}
    return seconds | disk | {"seconds": sum(seconds.values()), "disk": sum(disk.values()) + written}


def _as_list(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else [estimate.value, estimate.low, estimate.high]


def _estimate(described: Any) -> Any:
    if described is None:
        return None
    value, low, high = map(float, described)
    if isnan(value) or not low <= high:
        raise ValueError(f"an interval from {low} to {high}")
    return Estimate(value, low, high)
