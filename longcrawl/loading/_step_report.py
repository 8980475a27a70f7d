"""What a plan of steps comes to, to read before training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import ClassVar

from longcrawl.errors import LoaderError
from longcrawl.loading._curriculum_report import CurriculumReport, padded_ranks
from longcrawl.loading.composed_phases import BucketStock, ComposedPhase
from longcrawl.loading.curriculum import Phase
from longcrawl.loading.step_plan import StepPlan

__all__ = [
    "StepReport",
    "asked_phases",
    "buckets_called",
    "check_tokens_per_step",
    "left_out",
    "ranks_without_samples",
]


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
