"""What feeds share whose steps are planned up front: the report of the plan, and where in it a position is."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from longcrawl.errors import LoaderError, as_lines, listed, warn_user
from longcrawl.loading.curriculum import CurriculumPlan, Drained, OnExhausted, Phase
from longcrawl.loading.feed import Feed, Status

MOST_EPOCHS = 1000
"""Of a bucket; more are no advice, and not planned to see whether they are enough."""

TOLERANCE = 0.05
"""The share from which on budgets that differ, or data that are dropped, are more than a note."""


@dataclass(frozen=True)
class Stock:
    """What a bucket has, all its epochs, how often that is, and how often would be enough; 0 where nobody asked."""

    samples: int
    tokens: int
    epochs: int = 1
    enough: int = 0


@dataclass(frozen=True)
class CurriculumReport:
    """The answer of :func:`longcrawl.loading.validate`; ``print`` shows it.

    Attributes:
        plan: what would be delivered.
        phases: what was asked for.
        stock: of each bucket.
        max_length: tokens of a sample with its padding.
        problems: sentences that keep a feed from being made.
        warnings: sentences that do not, and that making one warns of.
        notes: what is left unused.
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
        """Whether a feed can be made."""
        return not self.problems

    def __str__(self) -> str:
        lines = [self._bucket(name) for name in self.stock]
        lines += [self._phase(number) for number in range(len(self.plan.phases))]
        lines.append(f"total    {self._total()}")
        lines += [f"note     {each}" for each in self.notes]
        lines += [f"WARNING  {each}" for each in self.warnings]
        lines += [f"ERROR    {each}" for each in self.problems]
        return as_lines(lines)

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
    """Return how many tokens the phases ask of each bucket."""
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
    """Return epochs with which no bucket runs dry: those that the shares ask for, and more where draws do.

    Args:
        phases: of the curriculum.
        epochs: of each bucket, as they are.
        tokens: of each bucket, in one epoch.
        plan_with: plans the phases with as many epochs, up to where a bucket runs dry.
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
    """Describe what follows the first dry bucket, and where phases end for want of samples."""
    first = drained[0]
    others = ", ".join(
        f"{each.bucket!r} at {counted} {each.sample:,}" for each in drained[1:] if each.bucket is not None
    )
    # A bucket that is the last of its mix leaves no weights to renormalise.
    if first.bucket is not None and not any(each.bucket is None and each.sample == first.sample for each in drained):
        then = "; from there on the other weights are renormalised" + ", and also without " * bool(others)
    else:
        then = "; later on weights are renormalised without " * bool(others)
    then += others
    for each in drained:
        if each.bucket is None:
            following = "the feed halts" if each.phase + 1 == phases else f"phase {each.phase + 2} begins"
            then += (
                f"; at {counted} {each.sample:,} nothing of the mix of phase {each.phase + 1} is left, and {following}"
            )
    return then


class PlannedFeed(Feed):
    """A feed whose every position has its bucket before the first step, from all samples or by a curriculum."""

    no_step: ClassVar[str]
    """Why a plan may have no step, and what to do; fields stand in braces."""

    on_exhausted: OnExhausted
    epochs: int | Mapping[str, int]
    training_tokens: int | None
    on_budget_mismatch: Literal["error", "warn"]

    curriculum: Sequence[Any] | Mapping[str, float]

    @property
    def ordered(self) -> bool:
        """Whether another order of batches would be other data, as of a curriculum."""
        return bool(self.curriculum)

    @property
    @abstractmethod
    def drawn(self) -> CurriculumPlan:
        """What every position draws from."""

    @property
    @abstractmethod
    def report(self) -> CurriculumReport:
        """What is asked for, what is there, and what comes of it."""

    def check_plan(self) -> None:
        """Reject a report with problems and a plan without steps, and warn of what the report warns of."""
        for problem in self.report.problems:
            raise LoaderError(problem)
        if not len(self):
            raise LoaderError(self.no_step.format(feed=self, positions=len(self.drawn)))
        for warning in self.report.warnings:
            warn_user(warning)

    def judge(self, phases: Sequence[Phase], stock: Mapping[str, Stock]) -> tuple[tuple[str, ...], list[str]]:
        """Return what keeps the feed from being made, and what it warns of: buckets that run dry, and budgets."""
        found = {
            self._exhaustion(phases, stock): self.on_exhausted == "error",
            self._mismatch(phases): self.on_budget_mismatch == "error",
        }
        found.pop("", None)
        return tuple(each for each in found if found[each]), [each for each in found if not found[each]]

    def called(self, name: str | None) -> Sequence[str]:
        """Return the names of the buckets that a name stands for, None for all of them."""
        return list(self.drawn.names) if name is None else [name]

    def _exhaustion(self, phases: Sequence[Phase], stock: Mapping[str, Stock]) -> str:
        """Describe where buckets run dry; "" where none does."""
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
        """Describe where the budgets are not what the training takes; "" where they are, by 5 %."""
        budget, taken = sum(phase.duration_tokens for phase in phases), self.training_tokens
        if taken is None or abs(budget / max(taken, 1) - 1) <= TOLERANCE:
            return ""
        return (
            f"the phases have budgets of {budget:,} tokens and the training takes {taken:,}: change one of them, or "
            "say on_budget_mismatch='warn'"
        )

    def padded_ranks(self, samples: int, of: str, setting: str) -> list[str]:
        """Warn where ``samples`` of a step, one that a ``setting`` fills, are too few for each rank to have one."""
        if not 0 < samples < self.world_size:
            return []
        warning = (
            f"{of} has samples for {samples:,} of {self.world_size:,} ranks and padding alone on the others, where a "
            f"mean over targets is NaN: divide by the targets of all ranks together, or say {setting}='drop'"
        )
        return [warning]

    def changed_buckets(self, was: Iterable[str], now: Iterable[str]) -> str:
        """Describe which buckets a state has, and which are here."""
        return f"buckets were {listed(map(repr, sorted(was)))} and are {listed(map(repr, sorted(now)))}"

    def epochs_by_name(self) -> Mapping[str | None, int]:
        """Return how often samples may be delivered, by the names that the user gave, None for all data."""
        given: dict[str | None, int] = (
            dict(self.epochs.items()) if isinstance(self.epochs, Mapping) else {None: self.epochs}
        )
        for name, epochs in given.items():
            if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
                raise LoaderError(f"epochs of {name or 'the data'!r} is {epochs!r}: give a whole number from 1 on")
        return given

    @property
    def status(self) -> Status:
        """Whether there is another step, the same on all ranks."""
        if self.stop(self.position) > self.position:
            return Status("running")
        if not self.drawn.halted:
            return Status("finished")
        last = self.drawn.drained[-1]
        what = "every bucket of the mix" if last.bucket is None else f"bucket {last.bucket!r}"
        counted = self.unit.removesuffix("s")
        return Status("halted", f"{what} is exhausted at {counted} {last.sample:,}, in phase {last.phase + 1}")

    @property
    def phase(self) -> int:
        """The phase of the next step, counted from 0."""
        return self.drawn.phase_of(self.position)

    @property
    def most(self) -> int:
        """The end of the plan."""
        return len(self.drawn)
