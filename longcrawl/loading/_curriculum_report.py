"""What a curriculum asks of its buckets, what they have, and what comes of it, to read before training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from longcrawl.loading._curriculum_planning import Drained
from longcrawl.loading.curriculum import CurriculumPlan, OnExhausted, Phase
from longcrawl.printable import as_lines

__all__ = [
    "MOST_EPOCHS",
    "TOLERANCE",
    "CurriculumReport",
    "Stock",
    "budget_problem",
    "exhaustion_problem",
    "padded_ranks",
]

MOST_EPOCHS = 1000
"""Of a bucket; more are no advice, and not planned to see whether they are enough."""

TOLERANCE = 0.05
"""From which share on budgets that differ, or data that are dropped, are not left to a note."""


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
        stock, demand = self.stock[name], _demand(self.phases).get(name, 0.0)
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


def padded_ranks(samples: int, world_size: int, of: str, setting: str) -> str:
    """Report that some ranks have no sample in a step that is filled; "" where all have, or there is no such step.

    Args:
        samples: of the step.
        world_size: ranks that share it.
        of: which step, in words.
        setting: that fills it.

    """
    if not 0 < samples < world_size:
        return ""
    return (
        f"{of} has samples for {samples:,} of {world_size:,} ranks and padding alone on the others, where a mean over "
        f"targets is NaN: divide by the targets of all ranks together, or say {setting}='drop'"
    )


def _demand(phases: Sequence[Phase]) -> dict[str, float]:
    demand: dict[str, float] = {}
    for phase in phases:
        total = sum(phase.mix.values())
        for name, weight in phase.mix.items():
            demand[name] = demand.get(name, 0.0) + phase.duration_tokens * weight / total
    return demand


def exhaustion_problem(
    plan: CurriculumPlan,
    phases: Sequence[Phase],
    stock: Mapping[str, Stock],
    on_exhausted: OnExhausted,
    counted: str = "sample",
    meant: Callable[[str | None], Sequence[str]] | None = None,
) -> str:
    """Describe where buckets run dry; "" where none does.

    Args:
        plan: where.
        phases: what was asked for.
        stock: what is there.
        on_exhausted: what becomes of it.
        counted: what the plan counts.
        meant: gives the buckets that the name of what ran dry stands for; None for those of that name.

    """
    if not plan.drained:
        return ""
    first = plan.drained[0]
    names = meant(first.bucket) if meant else [first.bucket] if first.bucket is not None else list(stock)
    demand = _demand(phases)
    what = "everything" if first.bucket is None else f"bucket {first.bucket!r}"
    said = (
        f"{what} runs dry at {counted} {first.sample:,}, in phase {first.phase + 1} of {len(phases)}: it has "
        f"{sum(stock[name].tokens for name in names):,} tokens, and the curriculum asks for "
        f"{sum(demand.get(name, 0.0) for name in names):,.0f}"
    )
    if on_exhausted == "renormalize":
        return said + _renormalised(plan.drained, len(phases), counted)
    if on_exhausted == "halt":
        untrained = range(first.phase + 2, len(phases) + 1)
        return f"{said}; the feed halts there{', and ' * bool(untrained)}{_not_trained(untrained)}"
    more = {each: held.enough for each, held in stock.items() if held.enough > 1}
    most = max(more.values(), default=0)
    if most > MOST_EPOCHS:
        lower = "the budgets" if first.bucket is None else "its weight or the budgets"
        return f"{said}, which would take {most:,} epochs or more: lower {lower}"
    if first.bucket is None:
        epochs: object = most if set(more.values()) == {most} and len(more) == len(stock) else more
        return f"{said}; lower the budgets, repeat it with epochs={epochs}, or say on_exhausted='halt' to stop there"
    if len({more.get(name) for name in names}) == 1:
        alike = {first.bucket: more.get(names[0], 1)}
        more = alike | {name: epochs for name, epochs in more.items() if name not in names}
    return (
        f"{said}; lower its weight or the budgets, repeat it with epochs={more}, or say "
        "on_exhausted='renormalize' to go on without it, or 'halt' to stop there"
    )


def _renormalised(drained: Sequence[Drained], phases: int, counted: str) -> str:
    """Describe how a plan goes on after its first bucket has run dry, and where its phases end for want of samples."""
    said, first = "", drained[0]
    others = [each for each in drained[1:] if each.bucket is not None]
    # A bucket that is the last of its mix leaves no weights to renormalise.
    if first.bucket is not None and not any(each.bucket is None and each.sample == first.sample for each in drained):
        said += "; from there on the other weights are renormalised"
        joined = ", and likewise without "
    else:
        joined = "; later on weights are renormalised without "
    said += joined * bool(others) + ", ".join(f"{each.bucket!r} at {counted} {each.sample:,}" for each in others)
    for each in drained:
        if each.bucket is None:
            said += f"; at {counted} {each.sample:,} nothing of the mix of phase {each.phase + 1} is left, and "
            last = each.phase + 1 == phases
            said += "the feed halts" if last else f"phase {each.phase + 2} begins"
    return said


def _not_trained(phases: range) -> str:
    if len(phases) < 2:
        return f"phase {phases[0]} is not trained" if phases else ""
    return f"phases {phases[0]} to {phases[-1]} are not trained"


def budget_problem(phases: Sequence[Phase], training_tokens: int | None) -> str:
    """Describe where the budgets are not what the training takes; "" where they are, by 5 %."""
    budget = sum(phase.duration_tokens for phase in phases)
    if training_tokens is None or abs(budget / max(training_tokens, 1) - 1) <= TOLERANCE:
        return ""
    return (
        f"the phases have budgets of {budget:,} tokens and the training takes {training_tokens:,}: change one of them, "
        "or say on_budget_mismatch='warn'"
    )
