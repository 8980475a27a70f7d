"""What a run would give and take: figures with intervals, as a table, as JSON, and beside what became of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import floor, inf, isnan, log10
from pathlib import Path
from types import MappingProxyType
from typing import Any

from longcrawl.display.table import Column, Table, Tabular
from longcrawl.errors import RunError
from longcrawl.ledger.funnel import Funnel
from longcrawl.plan.estimates import Estimate
from longcrawl.printable import one_line
from longcrawl.run.costs import StageCost
from longcrawl.storage.files import check_target, write_text, writing
from longcrawl.storage.sealed import is_sealed, seal
from longcrawl.storage.structured import load_json

VERSION = 1
WRITE = "write it again with longcrawl plan RECIPE --save FILE"
FIGURES = ("documents", "characters", "seconds", "disk")
HEAD = ("stage", "documents", "characters", "time of a core", "disk meanwhile")
UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


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


def check_place(path: Path) -> None:
    """Raise RunError where a plan is not to be written, as something else is there."""
    check_target(path, RunError, "it is not a plan, name another file", example="plan.json", replaces=_is_plan_or_empty)


def _is_plan_or_empty(file: Path) -> bool:
    with suppress(OSError, TypeError, ValueError):
        content = file.read_bytes()
        return not content or "longcrawl_plan" in load_json(content)
    return False


@dataclass(frozen=True, repr=False)
class Plan(Tabular):
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
        """Put the figures beside those of a finished run; seconds and bytes of disk only with its ``costs``."""
        written = _written(manifest)
        truths = _truths(manifest) | {"bytes written": written} | (_costs(costs, written) if costs else {})
        figures = [(name, estimate, truths.get(name)) for name, estimate in self._figures()]
        return tuple(Checked(name, estimate, truth) for name, estimate, truth in figures if truth is not None)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; :meth:`from_dict` is the way back."""
        rows = [{"stage": row.stage, **{name: _as_list(getattr(row, name)) for name in FIGURES}} for row in self.rows]
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
            if lacking := [name for name in FIGURES if name != "characters" and row[name] is None]:
                raise ValueError(f"no {lacking[0]} of {row['stage']}")
        rows = tuple(PlanRow(row["stage"], *(_estimate(row[name]) for name in FIGURES)) for row in values["stages"])
        ends = (_estimate(values["tokens"]), _estimate(values["written"]))
        return cls(values["recipe"], values["digest"], values["sample"], rows, *ends)

    def save(self, path: str | Path, checked: Sequence[Checked] = ()) -> None:
        """Write the plan as JSON, for ``longcrawl run --plan``; and what became of it, where that is known.

        Raises:
            RunError: something else than a plan is there, or it cannot be written.
        """
        check_place(Path(path))
        became = {"became": [each.as_dict() for each in checked]} if checked else {}
        with writing(Path(path), RunError, "name another file for the plan"):
            write_text(Path(path), seal(self.as_dict() | became))

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read what :meth:`save` wrote.

        Raises:
            RunError: there is no plan at ``path``, or it was changed after it was written.
        """
        try:
            values = load_json(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as wrong:
            raise RunError(f"{path} is not a plan ({wrong}): {WRITE}") from wrong
        if not isinstance(values, dict) or values.get("longcrawl_plan") != VERSION:
            raise RunError(f"{path} is not a plan of version {VERSION}: {WRITE}")
        if not is_sealed(Path(path), values):
            raise RunError(f"{path} has been changed: its own SHA-256 differs; {WRITE}")
        try:
            return cls.from_dict(values)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as lacking:
            raise RunError(f"{path} is not a complete plan ({lacking}): {WRITE}") from lacking

    def tables(self) -> list[Table]:
        """Return the one table: a row for each stage, and what the plan comes to."""
        columns = [Column(name, "count" if place else "text") for place, name in enumerate(HEAD)]
        return [Table(columns, list(_cells(self)), notes=["", *_words(self)])]

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
    return float(sum(entry["bytes"] for name, entry in manifest["files"].items() if name.startswith(within)))


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


def amount(number: float) -> str:
    """Write a count with three digits that count.

    >>> amount(1234567), amount(87)
    ('1,230,000', '87')
    """
    if number == inf:
        return "?"
    digits = max(floor(log10(number)) - 2, 0) if number >= 1 else 0
    return f"{round(number / 10**digits) * 10**digits:,}"


def size(number: float) -> str:
    """Write bytes.

    >>> size(123_456_789)
    '123 MB'
    """
    if number == inf:
        return "?"
    unit = 0
    while number >= 1000 and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {UNITS[unit]}"


def duration(seconds: float) -> str:
    """Write seconds as hours, or as what is smaller.

    >>> duration(7200), duration(90), duration(2)
    ('2 h', '1.5 min', '2 s')
    """
    if seconds == inf:
        return "?"
    for name, unit in (("h", 3600), ("min", 60)):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s"


def _cells(plan: Plan) -> Iterator[list[str]]:
    for row in plan.rows:
        letters = "" if row.characters is None else interval(row.characters, amount)
        disk = interval(row.disk, size) if row.disk.high else ""
        yield [row.stage, interval(row.documents, amount), letters, interval(row.seconds, duration), disk]


def _words(plan: Plan) -> Iterator[str]:
    yield f"{plan.recipe} from {plan.sample}; intervals hold the truth about 19 times of 20"
    if plan.tokens is not None:
        yield f"tokens: {interval(plan.tokens, amount)}"
    if plan.written is None:
        last = plan.rows[-1]
        yield (
            f"no document of the sample remains after {last.stage!r}, so what comes later is not known: at most "
            f"{amount(last.documents.high)} documents; draw more with --documents and --parts"
        )
    else:
        yield f"output: {interval(plan.written, size)}"
    yield f"all stages: {interval(plan.seconds, duration)} of a core"
    yield f"disk at its fullest: {interval(plan.disk, size)}"


def interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    """Write a figure and the ends of its interval, where they differ."""
    low, value, high = show(estimate.low), show(estimate.value), show(estimate.high)
    return value if low == value == high else f"{value} ({low} to {high})"
