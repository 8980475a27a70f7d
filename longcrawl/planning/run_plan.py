"""``longcrawl plan``: documents, tokens, bytes and hours of every stage, before a run."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from longcrawl.errors import RunError
from longcrawl.files import write_text
from longcrawl.ledger import Funnel
from longcrawl.planning.estimates import Estimate, Values, estimate_parts, estimate_total, exact
from longcrawl.planning.output import measure_output
from longcrawl.planning.sample import Sample, draw_sample
from longcrawl.planning.walk import ROW, Measured, measure_stages, quantity
from longcrawl.recipe import Recipe, load_recipe
from longcrawl.run_inputs import train_parts

__all__ = ["Checked", "Plan", "PlanRow", "plan"]

VERSION = 1
ONE = exact(1.0)
CLOCK_NOISE = 0.15
"""Times of one machine differ by so much from one run to the next."""


@dataclass(frozen=True)
class PlanRow:
    """What one stage leaves, takes and keeps on disk until the run is done."""

    stage: str
    documents: Estimate
    characters: Estimate | None
    seconds: Estimate
    """Of one process on this machine, at work on nothing else."""
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

    def as_dict(self) -> dict[str, Any]:
        """Give JSON-ready values."""
        told = {"figure": self.figure, "planned": self.estimate.value, "low": self.estimate.low}
        return told | {"high": self.estimate.high, "became": self.truth}


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
        """Bytes that the run's folder has just before it is done: its work and its output."""
        work = sum((row.disk for row in self.rows[1:]), self.rows[0].disk)
        return work + self.written if self.written else work

    def against(self, manifest: Mapping[str, Any]) -> tuple[Checked, ...]:
        """Put the figures beside those of a finished run, as its manifest has them."""
        truths = {name: truth for name, truth in _truths(manifest).items() if truth is not None}
        return tuple(Checked(name, estimate, truths[name]) for name, estimate in self._figures() if name in truths)

    def as_dict(self) -> dict[str, Any]:
        """Give JSON-ready values; :meth:`from_dict` is the way back."""
        rows = [{"stage": row.stage, **{name: _told(getattr(row, name)) for name in _FIGURES}} for row in self.rows]
        return {
            "longcrawl_plan": VERSION,
            "recipe": self.recipe,
            "digest": self.digest,
            "sample": self.sample,
            "stages": rows,
            "tokens": _told(self.tokens),
            "written": _told(self.written),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Plan":
        """Read what :meth:`as_dict` gave."""
        rows = tuple(PlanRow(row["stage"], *(_estimate(row[name]) for name in _FIGURES)) for row in values["stages"])
        ends = (_estimate(values["tokens"]), _estimate(values["written"]))
        return cls(values["recipe"], values["digest"], values["sample"], rows, *ends)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, for ``longcrawl run --plan``."""
        write_text(Path(path), json.dumps(self.as_dict(), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read what :meth:`save` wrote.

        Raises:
            RunError: there is no plan at ``path``.

        """
        try:
            values = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as wrong:
            raise RunError(f"{path} is no plan ({wrong}): write one with longcrawl plan RECIPE --save FILE") from wrong
        if not isinstance(values, dict) or values.get("longcrawl_plan") != VERSION:
            raise RunError(f"{path} is no plan of version {VERSION}: write one with longcrawl plan RECIPE --save FILE")
        try:
            return cls.from_dict(values)
        except (KeyError, TypeError) as lacking:
            raise RunError(
                f"{path} is no whole plan ({lacking}): write it again with longcrawl plan --save"
            ) from lacking

    def __repr__(self) -> str:
        from longcrawl.planning.table import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from longcrawl.planning.table import plan_html

        return plan_html(self)

    def _figures(self) -> Iterator[tuple[str, Estimate]]:
        for row in self.rows[:-1]:
            yield f"{row.stage}: documents", row.documents
            if row.characters is not None:
                yield f"{row.stage}: characters", row.characters
        if self.tokens is not None:
            yield "tokens", self.tokens
        if self.written is not None:
            yield "bytes written", self.written


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
    :class:`longcrawl.planning.estimates.Thinning`. A tokenizer that a run trains is trained on the sample here.

    Args:
        recipe: as :func:`longcrawl.run` takes it.
        parts: how many parts of the source to read, 2 or more where it has several.
        documents: how many documents to draw from them; they are held in memory.
        seed: of the draws.
        overrides: as :func:`longcrawl.run` takes them.

    Raises:
        RunError: the sample has no documents, or too few parts were asked for.

    """
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
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
    told = f"{drawn:,} documents of {len(sample.read):,} of {sample.parts:,} parts"
    made = Plan(recipe.name, recipe.digest, told, tuple(rows), None, None)
    if not any(table.num_rows for table in left):
        return made
    tokens = quantity(left, "n_tokens", sample.drawn)
    amount = rows[-1].documents if tokens is None else scaled.total(tokens)
    cost = measure_output(recipe.output, applied, pa.concat_tables(left).drop_columns(ROW))
    seconds, spill = amount.scaled(cost.seconds).widened(CLOCK_NOISE), amount.scaled(cost.spilled)
    last = PlanRow(recipe.output.name, rows[-1].documents, None, seconds, spill)
    return replace(made, rows=(*rows, last), tokens=amount if tokens else None, written=cost.bytes_of(amount))


class _Scaled:
    """From the sample to all documents, stage by stage; what surveys would find more of is carried along."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.drawn = sample.drawn
        self.stays, self.sizes_stay = ONE, ONE
        """Which share of the documents that are left of the sample, and of their sizes, would be left of all."""
        self.there: Values = [np.ones(len(sizes)) for sizes in self.drawn.document_sizes]
        self.documents = estimate_parts(self.drawn.documents.tolist(), self.drawn)

    def source(self, name: str) -> PlanRow:
        """Give the row of the source, whose parts were read whole."""
        read = self.sample.read
        letters = [part.characters for part in read if part.characters is not None]
        characters = estimate_parts(letters, self.drawn) if len(letters) == len(read) else None
        seconds = estimate_parts([part.seconds for part in read], self.drawn)
        return PlanRow(name, self.documents, characters, seconds.widened(CLOCK_NOISE), exact(0.0))

    def stage(self, one: Measured) -> PlanRow:
        """Give the row of a stage."""
        per_size = self._came().scaled(1 / max(sum(float(np.sum(each)) for each in self._sizes_there()), 1.0))
        if one.thinning is not None:
            documents, sizes = one.thinning
            self.stays, self.sizes_stay = self.stays.scaled(documents.kept()), self.sizes_stay.scaled(sizes.kept())
        self.there = one.there
        self.documents = estimate_total(one.there, self.drawn, counts=True).scaled(self.stays).at_most(self.documents)
        characters = None if one.characters is None else self.total(one.characters)
        seconds, disk = (per_size.scaled(each).widened(CLOCK_NOISE) for each in (one.seconds, one.disk))
        return PlanRow(one.label, self.documents, characters, seconds, disk)

    def total(self, values: Values) -> Estimate:
        """Give the total of what grows with the size of a document."""
        return estimate_total(values, self.drawn).scaled(self.sizes_stay)

    def _came(self) -> Estimate:
        """Give the sizes of all documents that are there; time and bytes are taken to grow with them."""
        return self.total(self._sizes_there())

    def _sizes_there(self) -> Values:
        return [there * sizes for there, sizes in zip(self.there, self.drawn.document_sizes, strict=True)]


def _truths(manifest: Mapping[str, Any]) -> dict[str, float | None]:
    """Give the figures of a run by the names that a plan has for them."""
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
    within = manifest["output"]["format"] + "/"
    truths["bytes written"] = sum(
        entry["bytes"] for name, entry in manifest.get("files", {}).items() if name.startswith(within)
    )
    return truths


def _told(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else [estimate.value, estimate.low, estimate.high]


def _estimate(told: list[float] | None) -> Any:
    return None if told is None else Estimate(*told)
