"""Base class of feeds with a plan made before training, and the report of such a plan."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from longcrawl.errors import LoaderError, as_lines, listed, warn_user
from longcrawl.loading.curriculum import CurriculumPlan, Drained, OnExhausted, Phase, phases_of
from longcrawl.loading.feed import Feed, Status

MOST_EPOCHS = 1000
"""Maximum number of epochs per bucket that planning tries and an error suggests."""
TOLERANCE = 0.05
"""Largest share by which budgets may differ, and of data that may be dropped, without an error or warning."""


@dataclass(frozen=True)
class Stock:
    """Contents of a bucket over all its epochs, its number of epochs, and the number needed, 0 if not computed."""

    samples: int
    tokens: int
    epochs: int = 1
    enough: int = 0


@dataclass(frozen=True)
class CurriculumReport:
    """Result of :func:`longcrawl.loading.validate`, printable as a table.

    Attributes:
        plan, phases, stock: resulting plan, requested phases, and contents of each bucket.
        max_length: tokens per sample, including padding.
        problems, warnings: errors that prevent opening a feed, and warnings that opening it prints.
        notes: remarks about unused data.
    """

    counted: ClassVar[str] = "samples"
    plan: CurriculumPlan
    phases: tuple[Phase, ...]
    stock: Mapping[str, Stock]
    max_length: int
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether a feed can be opened."""
        return not self.problems

    def __str__(self) -> str:
        lines = [self._bucket(name) for name in self.stock]
        lines += [self._phase(number) for number in range(len(self.plan.phases))]
        lines.append(f"total    {self._total()}")
        lines += [f"note     {each}" for each in self.notes]
        lines += [f"WARNING  {each}" for each in self.warnings]
        lines += [f"ERROR    {each}" for each in self.problems]
        return as_lines(lines)

    __repr__ = __str__

    def _total(self) -> str:
        tokens = sum(sum(each.tokens.values()) for each in self.plan.phases)
        padding = 1 - tokens / max(len(self.plan) * self.max_length, 1)
        return f"{len(self.plan):,} samples, {tokens:,} tokens, {padding:.2%} padding"

    def _bucket(self, name: str) -> str:
        stock, demand = self.stock[name], demand_of(self.phases).get(name, 0.0)
        used = sum(each.tokens.get(name, 0) for each in self.plan.phases)
        epochs = f" in {stock.epochs} epochs" if stock.epochs > 1 else ""
        return (
            f"bucket   {name or '(all)'}: {stock.samples:,} samples, {stock.tokens:,} tokens{epochs}; "
            f"asked for {demand:,.0f}, delivers {used:,}"
        )

    def _phase(self, number: int) -> str:
        totals, weights = self.plan.phases[number], self.phases[number].mix
        tokens, weight = sum(totals.tokens.values()), sum(weights.values())
        parts = ", ".join(
            f"{name or '(all)'} {totals.tokens.get(name, 0) / max(tokens, 1):.2%} (asked {wanted / weight:.2%})"
            for name, wanted in weights.items()
        )
        if totals.stop_sample == totals.first_sample:
            return f"phase {number + 1}  no {self.counted}: {parts}"
        where = f"{totals.first_sample:,} to {totals.stop_sample - 1:,}"
        return f"phase {number + 1}  {self.counted} {where}, {tokens:,} tokens: {parts}"


def demand_of(phases: Sequence[Phase]) -> dict[str, float]:
    """Return the number of tokens that the phases request from each bucket."""
    demand: dict[str, float] = {}
    for phase in phases:
        total = sum(phase.mix.values())
        for name, weight in phase.mix.items():
            demand[name] = demand.get(name, 0.0) + phase.duration_tokens * weight / total
    return demand


def sufficient_epochs(
    phases: Sequence[Phase],
    epochs: Mapping[str, int],
    tokens: Mapping[str, int],
    plan_with: Callable[[Mapping[str, int]], CurriculumPlan],
) -> dict[str, int]:
    """Return epochs with which no bucket runs dry: as many as the shares require, or more if random draws need them.

    ``tokens`` has the tokens of each bucket in one epoch; ``plan_with`` plans the phases until a bucket runs dry.
    """
    asked = demand_of(phases)
    enough = {name: max(epochs[name], -int(-asked[name] // max(tokens[name], 1))) for name in epochs}
    while max(enough.values()) <= MOST_EPOCHS:
        dry = [each.bucket for each in plan_with(enough).drained if each.bucket is not None]
        if not dry:
            break
        for name in dry:
            enough[name] += 1
    return enough


def _renormalised(drained: Sequence[Drained], phases: int, counted: str) -> str:
    """Describe the plan after the first exhausted bucket, and phases that end for lack of samples."""
    first, ended = drained[0], [each for each in drained if each.bucket is None]
    others = ", ".join(
        f"{each.bucket!r} at {counted} {each.sample:,}" for each in drained[1:] if each.bucket is not None
    )
    # After the last bucket of a mix, no weights remain to be renormalised.
    if any(each.sample == first.sample for each in ended):
        then = "; later on weights are renormalised without " * bool(others)
    else:
        then = "; from there on the other weights are renormalised" + ", and also without " * bool(others)
    then += others
    for each in ended:
        following = "the feed halts" if each.phase + 1 == phases else f"phase {each.phase + 2} begins"
        then += f"; at {counted} {each.sample:,} nothing of the mix of phase {each.phase + 1} is left, and {following}"
    return then


class PlannedFeed(Feed):
    """Feed that plans the bucket of every position before the first step, from all samples or by a curriculum."""

    no_step: ClassVar[str]
    """Error for a plan without steps, with fields in braces."""

    curriculum: Sequence[Any] | Mapping[str, float]
    on_exhausted: OnExhausted
    epochs: int | Mapping[str, int]
    training_tokens: int | None
    on_budget_mismatch: Literal["error", "warn"]

    @property
    def ordered(self) -> bool:
        """Whether the order of batches matters, as in a curriculum."""
        return bool(self.curriculum)

    @property
    @abstractmethod
    def drawn(self) -> CurriculumPlan:
        """Bucket or capacity of every position."""

    @property
    @abstractmethod
    def report(self) -> CurriculumReport:
        """Comparison of the requested mix with the available samples and the resulting plan."""

    def check_plan(self) -> None:
        """Raise an error if the report has problems or the plan has no steps, and print the report's warnings."""
        for problem in self.report.problems:
            raise LoaderError(problem)
        if not len(self):
            raise LoaderError(self.no_step.format(feed=self, positions=len(self.drawn)))
        for warning in self.report.warnings:
            warn_user(warning)

    def judge(self, phases: Sequence[Phase], stock: Mapping[str, Stock]) -> tuple[tuple[str, ...], list[str]]:
        """Return problems and warnings about exhausted buckets and budgets."""
        found = {
            self._exhaustion(phases, stock): self.on_exhausted == "error",
            self._mismatch(phases): self.on_budget_mismatch == "error",
        }
        found.pop("", None)
        return tuple(each for each in found if found[each]), [each for each in found if not found[each]]

    def called(self, name: str | None) -> Sequence[str]:
        """Return the names of the buckets that a name refers to; None refers to all."""
        return list(self.drawn.names) if name is None else [name]

    def _exhaustion(self, phases: Sequence[Phase], stock: Mapping[str, Stock]) -> str:
        if not self.drawn.drained:
            return ""
        first, counted, demand = self.drawn.drained[0], self.unit.removesuffix("s"), demand_of(phases)
        names = self.called(first.bucket)
        what = "everything" if first.bucket is None else f"bucket {first.bucket!r}"
        problem = (
            f"{what} runs dry at {counted} {first.sample:,}, in phase {first.phase + 1} of {len(phases)}: it has "
            f"{sum(stock[name].tokens for name in names):,} tokens, and the curriculum asks for "
            f"{sum(demand.get(name, 0.0) for name in names):,.0f}"
        )
        if self.on_exhausted == "renormalize":
            return problem + _renormalised(self.drawn.drained, len(phases), counted)
        if self.on_exhausted == "halt":
            last = len(phases)
            untrained = {0: "", 1: f", and phase {last} is not trained"}
            others = f", and phases {first.phase + 2} to {last} are not trained"
            return f"{problem}; the feed halts there{untrained.get(last - first.phase - 1, others)}"
        more = {each: held.enough for each, held in stock.items() if held.enough > 1}
        most = max(more.values(), default=0)
        if most > MOST_EPOCHS:
            lower = "the budgets" if first.bucket is None else "its weight or the budgets"
            return f"{problem}, which would take {most:,} epochs or more: lower {lower}"
        if first.bucket is None:
            epochs: object = most if set(more.values()) == {most} and len(more) == len(stock) else more
            return (
                f"{problem}; lower the budgets, repeat it with epochs={epochs}, or say on_exhausted='halt' to stop "
                "there"
            )
        if len({more.get(name) for name in names}) == 1:
            alike = {first.bucket: more.get(names[0], 1)}
            more = alike | {name: epochs for name, epochs in more.items() if name not in names}
        return (
            f"{problem}; lower its weight or the budgets, repeat it with epochs={more}, or say "
            "on_exhausted='renormalize' to continue without it, or 'halt' to stop there"
        )

    def _mismatch(self, phases: Sequence[Phase]) -> str:
        budget, taken = sum(phase.duration_tokens for phase in phases), self.training_tokens
        if taken is None or abs(budget / max(taken, 1) - 1) <= TOLERANCE:
            return ""
        return (
            f"the phases have budgets of {budget:,} tokens and the training takes {taken:,}: change one of them, or "
            "set on_budget_mismatch='warn'"
        )

    def padded_ranks(self, samples: int, of: str, setting: str) -> list[str]:
        """Warn if a step that ``setting`` fills has too few ``samples`` to give one to each rank."""
        if not 0 < samples < self.world_size:
            return []
        warning = (
            f"{of} has samples for {samples:,} of {self.world_size:,} ranks and padding alone on the others, where a "
            f"mean over targets is NaN: divide by the targets of all ranks together, or set {setting}='drop'"
        )
        return [warning]

    def changed_buckets(self, was: Iterable[str], now: Iterable[str]) -> str:
        """Describe the buckets of a state and those of this feed."""
        return f"buckets were {listed(map(repr, sorted(was)))} and are {listed(map(repr, sorted(now)))}"

    def epochs_by_name(self) -> Mapping[str | None, int]:
        """Return the epochs under the names that the user gave; None is the name of all data."""
        given: Mapping[Any, int] = self.epochs if isinstance(self.epochs, Mapping) else {None: self.epochs}
        for name, epochs in given.items():
            if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
                raise LoaderError(f"epochs of {name or 'the data'!r} is {epochs!r}: set a whole number of 1 or more")
        return given

    @property
    def status(self) -> Status:
        """Whether there is another step; the same on all ranks."""
        if self.stop(self.position) > self.position:
            return Status("running")
        if not self.drawn.halted:
            return Status("finished")
        last = self.drawn.drained[-1]
        what = "every bucket of the mix" if last.bucket is None else f"bucket {last.bucket!r}"
        return Status(
            "halted", f"{what} is exhausted at {self.unit.removesuffix('s')} {last.sample:,}, in phase {last.phase + 1}"
        )

    @property
    def phase(self) -> int:
        """Phase of the next step, counted from 0."""
        return self.drawn.phase_of(self.position)

    @property
    def most(self) -> int:
        """End of the plan."""
        return len(self.drawn)


class MixedFeed(PlannedFeed):
    """Planned feed of rows, each from one of several named buckets."""

    @property
    def _phases(self) -> tuple[Phase, ...]:
        return phases_of(self.curriculum, Phase)

    @property
    @abstractmethod
    def _stock(self) -> Mapping[str, Stock]:
        """Contents of each bucket in a single epoch, and its number of epochs."""

    @abstractmethod
    def _planned(
        self, epochs: Mapping[str, int], on_exhausted: OnExhausted, phases: Sequence[Phase] = ()
    ) -> CurriculumPlan:
        """Plan the curriculum, or other phases, with a number of epochs for each bucket."""

    @property
    def _epochs(self) -> dict[str, int]:
        return {name: stock.epochs for name, stock in self._stock.items()}

    def epochs_of(self, name: str) -> int:
        """Return the epochs of a bucket."""
        given = self.epochs_by_name()
        return given.get(name, given.get(None, 1))

    def check_epochs(self, known: Collection[str]) -> None:
        """Raise an error if ``epochs`` names an unknown bucket."""
        for name in self.epochs_by_name():
            if name is not None and name not in known:
                known_names = listed(map(repr, known))
                raise LoaderError(f"epochs names bucket {name!r}, which does not exist; known: {known_names}")

    @cached_property
    def plan(self) -> CurriculumPlan:
        """Bucket of every row of all ranks."""
        return self._planned(self._epochs, self.on_exhausted)

    @property
    def drawn(self) -> CurriculumPlan:
        """Bucket of every row of all ranks."""
        return self.plan

    def report_of(self, length: int, warnings: Sequence[str], notes: Sequence[str]) -> CurriculumReport:
        """Return the report of the plan for rows of ``length`` tokens, with further warnings and notes."""
        known = self._stock
        once = {name: known[name] for name in self.plan.names}
        enough: Mapping[str, int] = {}
        if self.plan.drained and self.on_exhausted == "error":
            epochs = {name: stock.epochs for name, stock in once.items()}
            tokens = {name: stock.tokens for name, stock in once.items()}
            enough = sufficient_epochs(self._phases, epochs, tokens, lambda more: self._planned(more, "halt"))
        stock = {
            name: Stock(each.epochs * each.samples, each.epochs * each.tokens, each.epochs, enough.get(name, 0))
            for name, each in once.items()
        }
        # Without a curriculum, a single phase has all rows.
        phases = self._phases or (Phase(max(stock[""].tokens, 1), {"": 1.0}),)
        problems, warned = self.judge(phases, stock)
        return CurriculumReport(self.plan, phases, stock, length, problems, (*warned, *warnings), tuple(notes))
