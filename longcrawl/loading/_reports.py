"""What a curriculum or a plan of steps comes to, to read before training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import ClassVar

from longcrawl.errors import LoaderError
from longcrawl.loading._shard_buckets import ShardBucket
from longcrawl.loading.composed_phases import BucketStock, ComposedPhase
from longcrawl.loading.curriculum import CurriculumPlan, Drained, MixBy, OnExhausted, Phase, plan_curriculum
from longcrawl.loading.step_plan import StepPlan, plan_phases
from longcrawl.printable import as_lines

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
        joined = ", and also without "
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


@dataclass(frozen=True)
class StepReport(CurriculumReport):
    """The answer of :func:`longcrawl.loading.validate` for a composed dataset; tokens are those of whole steps.

    Attributes:
        tokens_per_step: of all ranks, padding included.
        samples: that are delivered.

    """

    counted: ClassVar[str] = "steps"
    tokens_per_step: int = 0
    samples: int = 0

    def _total(self) -> str:
        tokens = len(self.plan) * self.tokens_per_step
        return (
            f"{len(self.plan):,} steps of {self.tokens_per_step:,} tokens, padding included: {self.samples:,} samples, "
            f"{tokens:,} tokens"
        )


def check_tokens_per_step(tokens_per_step: int, capacities: Sequence[int], world_size: int) -> None:
    """Refuse steps that cannot be shared evenly.

    Raises:
        LoaderError: with the values that can.

    """
    unit = lcm(*capacities)
    if tokens_per_step > 0 and tokens_per_step % (unit * world_size) == 0:
        return
    below = tokens_per_step // (unit * world_size)
    values = ", ".join(f"{unit * world_size * each:,}" for each in range(max(below - 1, 1), max(below, 1) + 3))
    said = (
        f"tokens_per_step is {tokens_per_step:,}, and on {world_size:,} ranks that is no whole number of samples of "
        f"{', '.join(f'{each:,}' for each in capacities)} tokens on each: give a multiple of {unit * world_size:,}, "
        f"such as {values}"
    )
    if tokens_per_step > 0 and tokens_per_step % unit == 0:
        steps = tokens_per_step // unit
        sizes = [each for each in range(1, steps + 1) if steps % each == 0]
        said += f"; or a world_size of {', '.join(f'{each:,}' for each in sizes)}"
    raise LoaderError(said)


def buckets_called(name: str | None, buckets: Sequence[BucketStock]) -> list[str]:
    """Return the names of the buckets that a bucket, a domain, a capacity or None, all of them, stands for."""
    for meant in (
        [each.name for each in buckets if each.name == name],
        [each.name for each in buckets if each.domain == name],
        [each.name for each in buckets if str(each.capacity) == name],
    ):
        if meant:
            return meant
    return [each.name for each in buckets] if name is None else []


def asked_phases(phases: Sequence[ComposedPhase], plan: StepPlan, buckets: Sequence[BucketStock]) -> tuple[Phase, ...]:
    """Return phases with weights of buckets; where none was asked for, one with all that there is."""
    if not phases:
        return (Phase(sum(each.samples * each.capacity for each in buckets), plan.asked[0]),)
    weights = [{name: weight for name, weight in asked.items() if weight} for asked in plan.asked]
    return tuple(Phase(each.duration_tokens, asked) for each, asked in zip(phases, weights, strict=True))


def left_out(plan: StepPlan, buckets: Sequence[BucketStock]) -> Mapping[int, int]:
    """Count the samples of each capacity that are delivered by no step, where there are some."""
    counts = plan.samples.counts(len(plan.samples)).tolist()
    left: dict[int, int] = {}
    for each, count in zip(buckets, counts, strict=False):
        left[each.capacity] = left.get(each.capacity, 0) + each.samples - count
    return {capacity: samples for capacity, samples in left.items() if samples}


def ranks_without_samples(tokens_per_step: int, world_size: int, buckets: Sequence[BucketStock]) -> list[str]:
    """Describe of each capacity whose last step, filled up, has fewer samples than there are ranks."""
    samples: dict[int, int] = {}
    for each in buckets:
        samples[each.capacity] = samples.get(each.capacity, 0) + each.samples
    said = (
        padded_ranks(count % (tokens_per_step // capacity), world_size, f"the last step of {capacity:,}", "last_step")
        for capacity, count in sorted(samples.items())
    )
    return [each for each in said if each]


def sufficient_epochs(
    phases: Sequence[Phase], buckets: Mapping[str, ShardBucket], seed: int, mix_by: MixBy
) -> dict[str, int]:
    """Return epochs of each bucket with which none runs dry: those that the shares ask for, and more where draws do."""
    asked = dict.fromkeys(buckets, 0.0)
    for phase in phases:
        for name, weight in phase.mix.items():
            asked[name] += phase.duration_tokens * weight / sum(phase.mix.values())
    epochs = {
        name: max(bucket.epochs, -int(-asked[name] // max(int(bucket.sample_tokens.sum()), 1)))
        for name, bucket in buckets.items()
    }
    if max(epochs.values()) > MOST_EPOCHS:
        return epochs
    while True:
        inventory = {name: replace(bucket, epochs=epochs[name]).tokens_by_place() for name, bucket in buckets.items()}
        plan = plan_curriculum(phases, inventory, seed=seed, mix_by=mix_by, on_exhausted="halt")
        dry = [each.bucket for each in plan.drained if each.bucket is not None]
        if not dry:
            return epochs
        for name in dry:
            epochs[name] += 1


def sufficient_step_epochs(
    phases: Sequence[ComposedPhase], buckets: Mapping[BucketStock, int], tokens_per_step: int, seed: int, plan: StepPlan
) -> dict[str, int]:
    """Return epochs of each bucket of a composed dataset with which no phase runs dry.

    Args:
        phases: of the curriculum.
        buckets: what one epoch of each has, and epochs that it has at least.
        tokens_per_step: of all ranks.
        seed: of the draws.
        plan: in which one runs dry.

    """
    asked = [(phase.duration_tokens, shares) for phase, shares in zip(phases, plan.asked, strict=True)]
    least = {each: sum(tokens * shares[each.name] for tokens, shares in asked) for each in buckets}
    epochs = {
        each.name: max(before, -int(-least[each] // (each.samples * each.capacity))) for each, before in buckets.items()
    }
    while max(epochs.values()) <= MOST_EPOCHS:
        stock = [each._replace(samples=each.samples * epochs[each.name]) for each in buckets]
        drained = plan_phases(phases, stock, tokens_per_step, seed, "halt").steps.drained
        if not drained:
            break
        for name in buckets_called(drained[0].bucket, stock):
            epochs[name] += 1 + epochs[name] // 8
    return epochs
