"""The capacity of every step and the bucket of every sample, planned up front.

A step has samples of one capacity, on all ranks; so the capacity is chosen first, for the step, and then a bucket of
this capacity for each of its samples. Both choices are numbers of a counter-based generator, addressed by step and by
sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from longcrawl.composition.plan import Longs
from longcrawl.errors import LoaderError
from longcrawl.kernels.keyed_order import uniform_numbers
from longcrawl.loading.composed_phases import BucketStock, ComposedPhase, Weights, bucket_weights
from longcrawl.loading.curriculum import MOST_BUCKETS, CurriculumPlan, Drained, PhaseTotals, Picks, first_dry, picked

Schedule = Literal["mixed", "short-first", "long-first", "short-mixed-long"]
"""In which order of capacities everything is delivered."""

CHUNK_SAMPLES = 1 << 16
BLOCK_STEPS = 16
"""Steps whose capacities are spread over the weights."""

PADDING = "(padding)"


@dataclass(frozen=True, eq=False)
class StepPlan:
    """One capacity per step, and one bucket per sample of each.

    Attributes:
        steps: for each step its capacity; ``phases`` and ``drained`` count steps.
        samples: for each sample its bucket, "(padding)" for one that is not there.
        samples_per_step: int64 [capacities], how many of each capacity are a step, on all ranks together.
        asked: for each phase, the share of tokens that it asks of each bucket.
    """

    steps: CurriculumPlan
    samples: CurriculumPlan
    samples_per_step: Longs
    asked: tuple[Mapping[str, float], ...]

    def __len__(self) -> int:
        """Count the steps."""
        return len(self.steps)

    @property
    def capacities(self) -> Longs:
        """The capacity of every step: int64 [steps]."""
        return np.array([int(name) for name in self.steps.names], np.int64)[self.steps.picks]

    def first_sample(self, step: int) -> int:
        """Count the samples before a step, those that are not there, too."""
        return int(self.steps.counts(step) @ self.samples_per_step)

    def step(self, step: int) -> tuple[int, Picks, Longs]:
        """Return the capacity of a step, and for each of its samples the bucket and how many of that came before."""
        first, capacity = self.first_sample(step), self.steps.picks[step]
        picks, places = self.samples.places(first, first + int(self.samples_per_step[capacity]))
        return int(self.steps.names[capacity]), picks, places

    def fingerprint(self, step: int) -> str:
        """Digest the buckets of all samples before a step."""
        return self.samples.fingerprint(self.first_sample(step))


def plan_schedule(
    buckets: Sequence[BucketStock], tokens_per_step: int, schedule: Schedule, last_step: str, seed: int
) -> StepPlan:
    """Plan the delivery of every sample: a pure function of its arguments.

    >>> plan = plan_schedule([BucketStock("", 8, 6), BucketStock("", 16, 4)], 32, "short-first", "fill", 0)
    >>> plan.capacities.tolist()
    [8, 8, 16, 16]

    Args:
        buckets: what there is.
        tokens_per_step: of all ranks; a multiple of each capacity.
        schedule: "mixed" shuffles the steps; "short-first" and "long-first" sort them by capacity; "short-mixed-long"
            begins with half of the steps of the smallest capacity and ends with half of those of the largest.
        last_step: "drop" leaves out what is left of a capacity and fills no step; "fill" makes a step of it.
        seed: of the order.
    """
    planning = _Planning(tuple(buckets), tokens_per_step, seed)
    planning.deliver_all(schedule, fill=last_step == "fill")
    return planning.plan(halted=False)


def plan_phases(
    phases: Sequence[ComposedPhase],
    buckets: Sequence[BucketStock],
    tokens_per_step: int,
    seed: int = 0,
    on_exhausted: str = "error",
) -> StepPlan:
    """Plan phases: a pure function of its arguments.

    Args:
        phases: in their order.
        buckets: what there is.
        tokens_per_step: of all ranks; a multiple of each capacity.
        seed: of the draws.
        on_exhausted: "renormalize" continues from the step that a bucket cannot answer without that bucket, and with
            the next phase where nothing of a mix is left; otherwise the plan ends there. Nothing is raised for it: see
            ``steps.drained``.

    Raises:
        LoaderError: a phase names a bucket that is not there.
    """
    planning = _Planning(tuple(buckets), tokens_per_step, seed, on_exhausted == "renormalize")
    return planning.plan(halted=not planning.run(phases))


@dataclass
class _Planning:
    buckets: tuple[BucketStock, ...]
    tokens_per_step: int
    seed: int
    renormalize: bool = False
    step_picks: list[Picks] = field(default_factory=list)
    sample_picks: list[Picks] = field(default_factory=list)
    drained: list[Drained] = field(default_factory=list)
    totals: list[PhaseTotals] = field(default_factory=list)
    asked: list[Mapping[str, float]] = field(default_factory=list)
    steps: int = 0
    samples: int = 0

    def __post_init__(self) -> None:
        if len(self.buckets) >= MOST_BUCKETS:
            raise LoaderError(f"{len(self.buckets):,} buckets are more than {MOST_BUCKETS - 1:,}: put some together")
        self.pick_type = np.min_scalar_type(len(self.buckets))  # the last is of padding
        capacities = np.array([each.capacity for each in self.buckets], np.int64)
        self.capacities, self.group = np.unique(capacities, return_inverse=True)
        self.per_step = self.tokens_per_step // self.capacities
        self.left = np.array([each.samples for each in self.buckets], np.int64)
        self.dry = np.zeros(len(self.buckets), np.bool_)

    def plan(self, *, halted: bool) -> StepPlan:
        names = tuple(str(each) for each in self.capacities)
        steps = np.concatenate([np.empty(0, np.min_scalar_type(len(names))), *self.step_picks])
        samples = np.concatenate([np.empty(0, self.pick_type), *self.sample_picks])
        return StepPlan(
            CurriculumPlan(names, steps, tuple(self.totals), tuple(self.drained), halted),
            CurriculumPlan((*(each.name for each in self.buckets), PADDING), samples, ()),
            self.per_step,
            tuple(self.asked),
        )

    def deliver_all(self, schedule: Schedule, *, fill: bool) -> None:
        everything = ComposedPhase(1)
        self._note_asked(bucket_weights(everything, 1, self.buckets, self.left))
        samples = self._by_capacity(self.left)
        steps = -(-samples // self.per_step) if fill else samples // self.per_step
        queues = _Queues(self, 0)
        queues.fill(steps * self.per_step)
        before = self.left.copy()
        self._take(*queues.take(_ordered(steps, schedule, self.seed)))
        self._note_totals(0, before)

    def run(self, phases: Sequence[ComposedPhase]) -> bool:
        """Plan all phases; False where the plan ends before its last phase is spent."""
        budget, whole = 0, True
        for number, phase in enumerate(phases):
            budget += phase.duration_tokens
            weights = bucket_weights(phase, number + 1, self.buckets, self.left)
            self._note_asked(weights)
            if not (whole or self.renormalize):
                continue  # all phases are reported
            first, before = self.steps, self.left.copy()
            whole = self._run_phase(number, phase, weights, -(-budget // self.tokens_per_step))
            self._note_totals(first, before)
            if not whole:
                budget = self.steps * self.tokens_per_step  # the next phase has its own, not what this one left over
        return whole

    def _run_phase(self, number: int, phase: ComposedPhase, weights: Weights, stop: int) -> bool:
        if phase.mix:
            return self._by_weights(number, weights, None, stop)
        queues = _Queues(self, number)
        if phase.capacities:
            return self._by_weights(number, weights, queues, stop)
        steps = self._by_capacity(self.left) // self.per_step
        order = _ordered(steps, "mixed", self.seed, number)[: max(stop - self.steps, 0)]
        self._take(*queues.take(order))
        if self.steps < stop:
            self.drained.append(Drained(self.steps, number, None))
        return self.steps >= stop

    def _by_weights(self, number: int, weights: Weights, queues: "_Queues | None", stop: int) -> bool:
        """Draw capacities by weights, and buckets by weights or from queues, until a step cannot be answered."""
        while self.steps < stop:
            shares = np.where(self.dry, 0.0, weights)
            if not shares.sum() > 0:
                self.drained.append(Drained(self.steps, number, None))
                return False
            count = min(max(CHUNK_SAMPLES // int(self.per_step.max()), 1), stop - self.steps)
            numbers = _spread_numbers(self.seed, self.steps, count)
            order = picked(np.bincount(self.group, shares, len(self.capacities)).astype(np.float64), numbers)
            name, dry = self._take_answered(order, shares) if queues is None else self._take_queued(order, queues)
            if name is not None:
                self.drained.append(Drained(self.steps, number, name))
                self.dry |= dry
                if not self.renormalize:
                    return False
        return True

    def _take_answered(self, order: Picks, shares: Weights) -> tuple[str | None, npt.NDArray[np.bool_]]:
        """Draw buckets for these steps, up to the first with a sample that its bucket does not have; name that."""
        groups = np.repeat(order, self.per_step[order])
        numbers = uniform_numbers(self.seed, "buckets", self.samples, len(groups))
        picks = np.empty(len(groups), self.pick_type)
        for group in np.unique(order):
            where, members = groups == group, np.flatnonzero(self.group == group)
            picks[where] = members[picked(shares[members], numbers[where])]
        stop, dry = first_dry(picks, self.left)
        steps = int(np.searchsorted(np.cumsum(self.per_step[order]), stop, "right"))
        self._take(order[:steps], picks[: self.per_step[order[:steps]].sum()])
        name = None if dry is None else self.buckets[dry].name
        return name, np.arange(len(self.buckets)) == dry

    def _take_queued(self, order: Picks, queues: "_Queues") -> tuple[str | None, npt.NDArray[np.bool_]]:
        """Take these steps from queues, up to the first whose capacity has too few samples left; name that."""
        stop, dry = first_dry(order, queues.left // self.per_step)
        self._take(*queues.take(order[:stop]))
        return None if dry is None else str(self.capacities[dry]), self.group == dry

    def _take(self, order: Picks, picks: Picks) -> None:
        self.left -= np.bincount(picks, minlength=len(self.buckets))[: len(self.buckets)]
        self.step_picks.append(order)
        self.sample_picks.append(picks)
        self.steps += len(order)
        self.samples += len(picks)

    def _by_capacity(self, samples: Longs) -> Longs:
        return np.bincount(self.group, samples, len(self.capacities)).astype(np.int64)

    def _note_asked(self, weights: Weights) -> None:
        self.asked.append({each.name: float(weight) for each, weight in zip(self.buckets, weights, strict=True)})

    def _note_totals(self, first: int, before: Longs) -> None:
        taken = (before - self.left).tolist()
        tokens = {each.name: each.capacity * count for each, count in zip(self.buckets, taken, strict=True)}
        self.totals.append(PhaseTotals(first, self.steps, tokens))


class _Queues:
    """All that is left of each capacity, its buckets shuffled: they are drawn in proportion and run dry together."""

    def __init__(self, planning: _Planning, phase: int) -> None:
        self._per_step, self._padding = planning.per_step, len(planning.buckets)
        self._pick_type = planning.pick_type
        self._queues: list[Picks] = []
        for group, capacity in enumerate(planning.capacities):
            members = np.flatnonzero(planning.group == group)
            queue = np.repeat(members.astype(self._pick_type), planning.left[members])
            if len(members) > 1:
                queue = _shuffled(queue, planning.seed, f"buckets of {capacity} in phase {phase}")
            self._queues.append(queue)
        self._taken = np.zeros(len(self._queues), np.int64)

    @property
    def left(self) -> Longs:
        return np.array([len(queue) for queue in self._queues], np.int64) - self._taken

    def fill(self, lengths: Longs) -> None:
        """Add padding to queues that are shorter than this."""
        for group, (queue, length) in enumerate(zip(self._queues, lengths.tolist(), strict=True)):
            self._queues[group] = np.append(queue, np.full(max(length - len(queue), 0), self._padding, self._pick_type))

    def take(self, order: Picks) -> tuple[Picks, Picks]:
        """Return steps of these capacities, and the buckets of their samples."""
        groups = np.repeat(order, self._per_step[order])
        picks = np.empty(len(groups), self._pick_type)
        for group, taken in enumerate(self._taken.tolist()):
            where = np.flatnonzero(groups == group)
            picks[where] = self._queues[group][taken : taken + len(where)]
            self._taken[group] += len(where)
        return order, picks


def _spread_numbers(seed: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each step, and in every block of steps one from each of as many equal ranges.

    So capacities come close to their weights within a few steps, where independent numbers need hundreds.
    """
    start, stop = first // BLOCK_STEPS * BLOCK_STEPS, -(-(first + count) // BLOCK_STEPS) * BLOCK_STEPS
    order, within = (
        uniform_numbers(seed, purpose, start, stop - start).reshape(-1, BLOCK_STEPS)
        for purpose in ("order of capacities", "capacities")
    )
    ranges = np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(((ranges + within) / BLOCK_STEPS).ravel()[first - start : first - start + count])


def _shuffled(picks: Picks, seed: int, purpose: str) -> Picks:
    """Put picks into an order of their own: all are there as often as before."""
    return picks[np.argsort(uniform_numbers(seed, purpose, 0, len(picks)), kind="stable")]


def _ordered(steps: Longs, schedule: Schedule, seed: int, phase: int = 0) -> Picks:
    """Return as many steps of each capacity in the order of a schedule."""
    groups = np.arange(len(steps), dtype=np.min_scalar_type(len(steps)))
    if schedule == "short-first":
        return np.repeat(groups, steps)
    if schedule == "long-first":
        return np.repeat(groups, steps)[::-1].copy()
    ends = np.zeros((2, len(steps)), np.int64)
    if schedule == "short-mixed-long" and len(steps) > 1:
        ends[0, 0], ends[1, -1] = steps[0] // 2, steps[-1] // 2
    mixed = _shuffled(np.repeat(groups, steps - ends.sum(axis=0)), seed, f"steps in phase {phase}")
    return np.concatenate([np.repeat(groups, ends[0]), mixed, np.repeat(groups, ends[1])])
