"""Feed of a bucketed dataset: every step has the same number of tokens.

On all ranks, the samples of a step have one capacity. So the plan first chooses a capacity for each step, then a bucket
of this capacity for each of its samples, by a counter-based generator that is addressed by step and by sample.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.core.registry import check_fields
from longcrawl.errors import LoaderError, listed
from longcrawl.formats.buckets.spec import ComposedBucket, open_composed
from longcrawl.formats.shards.spec import named_split
from longcrawl.kernels.keyed_hash import uniform_numbers
from longcrawl.loading.curriculum import (
    MOST_BUCKETS,
    BucketStock,
    ComposedPhase,
    CurriculumPlan,
    Drained,
    OnExhausted,
    Phase,
    PhaseTotals,
    Picks,
    Weights,
    bucket_weights,
    buckets_called,
    first_dry,
    phases_of,
    picked,
)
from longcrawl.loading.feed import Batch, Origin, TokenFacts, changed_values
from longcrawl.loading.planned_feed import MOST_EPOCHS, TOLERANCE, CurriculumReport, PlannedFeed, Stock
from longcrawl.loading.samples import ComposedDataset, DeliveredBucket, Positions, Rows, assemble, origins_of
from longcrawl.tokens.plan import Longs

Schedule = Literal["mixed", "short-first", "long-first", "short-mixed-long", "grow-p2", "grow-linear"]
"""Order in which capacities are delivered."""
CycleSteps = Literal["all", "equal", "balanced"]
"""Steps in cycles: all of them, the same number of a capacity in each, or also the same number of every capacity."""
GROWING = ("grow-p2", "grow-linear")
CYCLES = 8
CHUNK_SAMPLES = 1 << 16
BLOCK_STEPS = 16
"""Steps in a block; within each block, capacities are spread according to their weights."""
PADDING = "(padding)"


@dataclass(frozen=True, eq=False)
class StepPlan:
    """One capacity per step, and one bucket per sample of each, "(padding)" for a sample of padding."""

    steps: CurriculumPlan
    """Capacity of each step; ``phases`` and ``drained`` count steps."""
    samples: CurriculumPlan
    samples_per_step: Longs
    """Samples per step of each capacity, on all ranks together: int64 [capacities]."""
    asked: tuple[Mapping[str, float], ...]
    """For each phase, the requested share of tokens of each bucket."""

    def __len__(self) -> int:
        """Count the steps."""
        return len(self.steps)

    @property
    def capacities(self) -> Longs:
        """Capacity of every step: int64 [steps]."""
        return np.array([int(name) for name in self.steps.names], np.int64)[self.steps.picks]

    def first_sample(self, step: int) -> int:
        """Count the samples before a step, including those of padding."""
        return int(self.steps.counts(step) @ self.samples_per_step)

    def step(self, step: int) -> tuple[int, Picks, Longs]:
        """Return the capacity of a step, the bucket of each sample, and each sample's place in its bucket's order."""
        first, capacity = self.first_sample(step), self.steps.picks[step]
        picks, places = self.samples.places(first, first + int(self.samples_per_step[capacity]))
        return int(self.steps.names[capacity]), picks, places

    def fingerprint(self, step: int) -> str:
        """Digest the buckets of all samples before a step."""
        return self.samples.fingerprint(self.first_sample(step))


def plan_schedule(
    buckets: Sequence[BucketStock],
    tokens_per_step: int,
    schedule: Schedule,
    last_step: str,
    seed: int,
    cycles: int = CYCLES,
    cycle_steps: CycleSteps = "all",
) -> StepPlan:
    """Plan the delivery of every sample: a pure function of its arguments.

    >>> plan = plan_schedule([BucketStock("", 8, 6), BucketStock("", 16, 4)], 32, "short-first", "fill", 0)
    >>> plan.capacities.tolist()
    [8, 8, 16, 16]

    ``tokens_per_step`` is of all ranks together, a multiple of each capacity. The other arguments are fields of
    :class:`ComposedBatches`.
    """
    planning = _Planning(tuple(buckets), tokens_per_step, seed)
    planning.deliver_all(schedule, cycles, cycle_steps, fill=last_step == "fill")
    return planning.plan()


def plan_phases(
    phases: Sequence[ComposedPhase],
    buckets: Sequence[BucketStock],
    tokens_per_step: int,
    seed: int = 0,
    on_exhausted: str = "error",
) -> StepPlan:
    """Plan phases: a pure function of its arguments, those of :func:`plan_schedule`.

    With ``on_exhausted="renormalize"``, a bucket is dropped from the first step for which it has too few samples, and
    the next phase begins if no bucket of the mix has any left; otherwise the plan ends there, see ``steps.drained``.

    Raises:
        LoaderError: a phase names an unknown bucket.
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
            raise LoaderError(f"{len(self.buckets):,} buckets exceed the limit of {MOST_BUCKETS - 1:,}: merge some")
        self.pick_type = np.min_scalar_type(len(self.buckets))  # the last number means padding
        capacities = np.array([each.capacity for each in self.buckets], np.int64)
        self.capacities, self.group = np.unique(capacities, return_inverse=True)
        self.per_step = self.tokens_per_step // self.capacities
        self.left = np.array([each.samples for each in self.buckets], np.int64)
        self.dry = np.zeros(len(self.buckets), np.bool_)

    def plan(self, *, halted: bool = False) -> StepPlan:
        names = tuple(str(each) for each in self.capacities)
        steps = np.concatenate([np.empty(0, np.min_scalar_type(len(names))), *self.step_picks])
        samples = np.concatenate([np.empty(0, self.pick_type), *self.sample_picks])
        return StepPlan(
            CurriculumPlan(names, steps, tuple(self.totals), tuple(self.drained), halted),
            CurriculumPlan((*(each.name for each in self.buckets), PADDING), samples, ()),
            self.per_step,
            tuple(self.asked),
        )

    def deliver_all(self, schedule: Schedule, cycles: int, cycle_steps: CycleSteps, *, fill: bool) -> None:
        self._note_asked(bucket_weights(ComposedPhase(1), 1, self.buckets, self.left))
        samples = self._by_capacity(self.left)
        steps = -(-samples // self.per_step) if fill else samples // self.per_step
        before = self.left.copy()
        if schedule in GROWING:
            order = _grown(_in_cycles(steps, cycles, cycle_steps), schedule, self.seed)
        else:
            order = _ordered(steps, schedule, self.seed)
        self._take_from(self._queues(0), order)
        self._note_totals(0, before)

    def run(self, phases: Sequence[ComposedPhase]) -> bool:
        """Plan all phases; return False if the plan ends before the budget of its last phase is used up."""
        budget, whole = 0, True
        for number, phase in enumerate(phases):
            budget += phase.duration_tokens
            weights = bucket_weights(phase, number + 1, self.buckets, self.left)
            self._note_asked(weights)
            if not (whole or self.renormalize):
                continue  # the report lists all phases
            first, before = self.steps, self.left.copy()
            whole = self._run_phase(number, phase, weights, -(-budget // self.tokens_per_step))
            self._note_totals(first, before)
            if not whole:
                budget = self.steps * self.tokens_per_step  # the rest of this phase's budget is not carried over
        return whole

    def _run_phase(self, number: int, phase: ComposedPhase, weights: Weights, stop: int) -> bool:
        if phase.mix:
            return self._by_weights(number, weights, None, stop)
        queues = self._queues(number)
        if phase.capacities:
            return self._by_weights(number, weights, queues, stop)
        steps = self._by_capacity(self.left) // self.per_step
        order = _ordered(steps, "mixed", self.seed, number)[: max(stop - self.steps, 0)]
        self._take_from(queues, order)
        if self.steps < stop:
            self.drained.append(Drained(self.steps, number, None))
        return self.steps >= stop

    def _queues(self, phase: int) -> list[Picks]:
        """Return the remaining samples of each capacity, shuffled across its buckets, which thus run dry together."""
        queues = []
        for group, capacity in enumerate(self.capacities):
            members = np.flatnonzero(self.group == group)
            queue = np.repeat(members.astype(self.pick_type), self.left[members])
            if len(members) > 1:
                queue = _shuffled(queue, self.seed, f"buckets of {capacity} in phase {phase}")
            queues.append(queue)
        return queues

    def _by_weights(self, number: int, weights: Weights, queues: list[Picks] | None, stop: int) -> bool:
        """Draw capacities by weight, and buckets by weight or from queues, until a bucket has too few samples."""
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
        """Draw buckets for these steps, up to the first exhausted bucket; return its name and its mask."""
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

    def _take_queued(self, order: Picks, queues: list[Picks]) -> tuple[str | None, npt.NDArray[np.bool_]]:
        """Take these steps from queues, up to the first exhausted capacity; return its name and its mask."""
        stop, dry = first_dry(order, np.array([len(queue) for queue in queues]) // self.per_step)
        self._take_from(queues, order[:stop])
        return None if dry is None else str(self.capacities[dry]), self.group == dry

    def _take_from(self, queues: list[Picks], order: Picks) -> None:
        """Take steps of these capacities, and their samples from the beginning of queues, or else padding."""
        groups = np.repeat(order, self.per_step[order])
        picks = np.full(len(groups), len(self.buckets), self.pick_type)
        for group, queue in enumerate(queues):
            where = np.flatnonzero(groups == group)[: len(queue)]
            picks[where], queues[group] = queue[: len(where)], queue[len(where) :]
        self._take(order, picks)

    def _take(self, order: Picks, picks: Picks) -> None:
        self.left -= np.bincount(picks, minlength=len(self.buckets))[: len(self.buckets)]
        self.step_picks.append(order)
        self.sample_picks.append(picks)
        self.steps += len(order)
        self.samples += len(picks)

    def _by_capacity(self, samples: Longs) -> Longs:
        return np.bincount(self.group, samples, len(self.capacities)).astype(np.int64)

    def _note_asked(self, weights: Weights) -> None:
        self.asked.append(dict(zip([each.name for each in self.buckets], weights.tolist(), strict=True)))

    def _note_totals(self, first: int, before: Longs) -> None:
        taken = (before - self.left).tolist()
        tokens = {each.name: each.capacity * count for each, count in zip(self.buckets, taken, strict=True)}
        self.totals.append(PhaseTotals(first, self.steps, tokens))


def _spread_numbers(seed: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each step; every ``BLOCK_STEPS`` steps have one from each of as many ranges."""
    start, stop = first // BLOCK_STEPS * BLOCK_STEPS, -(-(first + count) // BLOCK_STEPS) * BLOCK_STEPS
    order, within = (
        uniform_numbers(seed, purpose, start, stop - start).reshape(-1, BLOCK_STEPS)
        for purpose in ("order of capacities", "capacities")
    )
    ranges = np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(((ranges + within) / BLOCK_STEPS).ravel()[first - start : first - start + count])


def _shuffled(picks: Picks, seed: int, purpose: str) -> Picks:
    return picks[np.argsort(uniform_numbers(seed, purpose, 0, len(picks)), kind="stable")]


def _ordered(steps: Longs, schedule: Schedule, seed: int, phase: int = 0) -> Picks:
    """Return the given number of steps of each capacity, in the order of a schedule."""
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


def _in_cycles(steps: Longs, cycles: int, cycle_steps: CycleSteps) -> Longs:
    """Divide the steps of each capacity among cycles: int64 [cycles, capacities]."""
    if cycle_steps == "balanced":
        steps = np.full_like(steps, steps.min())
    if cycle_steps != "all":
        steps = steps // cycles * cycles
    return np.asarray(np.diff(steps * np.arange(cycles + 1)[:, None] // cycles, axis=0), np.int64)


def _grown(steps: Longs, schedule: Schedule, seed: int) -> Picks:
    """Order the steps of each cycle, int64 [cycles, capacities], by stretches in which the lengths grow."""
    parts, groups = _growth(steps, schedule), np.arange(steps.shape[1], dtype=np.min_scalar_type(steps.shape[1]))
    stretches = [
        _shuffled(np.repeat(groups, parts[cycle, :, stretch]), seed, f"stretch {stretch} of cycle {cycle}")
        for cycle in range(len(steps))
        for stretch in range(len(groups))
    ]
    return np.concatenate(stretches)


def _growth(steps: Longs, schedule: Schedule) -> Longs:
    """Divide the steps of a cycle among its stretches, one for each capacity.

    Capacity i of n has rank n - i + j in stretch j up to its own, the i-th, and rank n - j in those after it. Its
    weight is 2 ** rank, or with "grow-linear" the rank. Numbers of steps are rounded to the nearest, and the last
    stretch has the rest.

    >>> _growth(np.array([[7, 7, 7]]), "grow-p2").tolist()
    [[[4, 2, 1], [2, 4, 1], [1, 2, 4]]]

    Returns:
        int64 [cycles, capacities, stretches].
    """
    numbers = np.arange(steps.shape[1])
    own, stretch = numbers[:, None], numbers[None]
    ranks = len(numbers) - np.where(stretch <= own, own - stretch, stretch)
    weights = ranks if schedule == "grow-linear" else 2.0 ** (ranks - 1)
    shares = weights / weights.sum(axis=1, keepdims=True)
    rounded = np.rint(shares * steps[:, :, None]).astype(np.int64)
    ends = np.minimum(np.cumsum(rounded, axis=2), steps[:, :, None])
    ends[:, :, -1] = steps
    return np.asarray(np.diff(ends, axis=2, prepend=0), np.int64)


@dataclass(frozen=True)
class StepReport(CurriculumReport):
    """Result of :func:`longcrawl.loading.validate` for a composed dataset; counts tokens of whole steps."""

    counted: ClassVar[str] = "steps"
    tokens_per_step: int = 0
    samples: int = 0

    def _total(self) -> str:
        tokens = len(self.plan) * self.tokens_per_step
        return (
            f"{len(self.plan):,} steps of {self.tokens_per_step:,} tokens, padding included: {self.samples:,} samples, "
            f"{tokens:,} tokens"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ComposedBatches(PlannedFeed):
    """Batches for one rank of a trainer, from a composed dataset; rows of a batch have one length, batches may differ.

    >>> batches = ComposedBatches("out/composed", tokens_per_step=1_048_576, rank=0, world_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # (64, 2048) or (8, 16384), on all ranks the same
    ...     checkpoint["data"] = batches.state_dict()

    A batch has ``tokens_per_step / (capacity * world_size)`` rows of ``capacity`` tokens, and the fields of a batch of
    :class:`longcrawl.loading.Packed`. A piece that is joined to the one before it, as by the planner "interleaved",
    counts as part of that piece.

    Without a curriculum, every sample is delivered ``epochs`` times, in the order of capacities that ``schedule`` sets;
    the buckets of a capacity run dry together. For iterating and ``status``, see :class:`longcrawl.loading.Packed`.

    Attributes:
        path: folder of the composed dataset, or an open dataset.
        tokens_per_step: tokens of a step on all ranks together, including padding: a multiple of each capacity times
            ``world_size``.
        curriculum: phases, or mappings of the fields of :class:`ComposedPhase`; empty to deliver all samples.
        schedule: without a curriculum, "mixed", "short-first", "long-first", or "short-mixed-long": half of the steps
            of the smallest capacity, everything else mixed, half of the steps of the largest. In each cycle of
            "grow-p2" and "grow-linear", after Pouransari et al., "Dataset Decomposition" (2024), short steps are
            frequent first, and long ones last.
        cycles: cycles of a growing schedule, over all epochs together.
        cycle_steps: steps in the cycles: "all"; "equal", the same number of a capacity in each cycle; or "balanced",
            also the same number of every capacity. Steps that do not divide evenly are left out.
        split: "train", "val" or another usual name of the held-out split, or any other split of the dataset.
        rank, world_size, seed, positions, on_exhausted, training_tokens, on_budget_mismatch: see
            :class:`longcrawl.loading.Packed`.
        shuffle: "keyed" for a separate order for each bucket and epoch, or "none" for the dataset's order.
        epochs: how often samples may be delivered: one number, or a number per bucket, domain or capacity.
        last_step: without a curriculum, "drop" omits samples of a capacity that do not fill a step; "fill" fills the
            step with rows of padding, so a rank may have no target, see ``last_batch`` of ``Packed``.
        pad_token: id of the padding token, or None for that of the dataset.

    Raises:
        LoaderError: a field or the curriculum does not fit the data; the message names values that do.
    """

    kind: ClassVar[str] = "buckets"
    unit: ClassVar[str] = "steps"
    no_step: ClassVar[str] = (
        "the plan has no step: lower tokens_per_step or cycles, or set last_step='fill' and cycle_steps='all'"
    )

    path: str | os.PathLike[str] | ComposedDataset
    tokens_per_step: int
    curriculum: Sequence[ComposedPhase | Phase | Mapping[str, Any]] = ()
    schedule: Schedule = "mixed"
    split: str = "train"
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    shuffle: Literal["keyed", "none"] = "keyed"
    positions: Positions = "reset"
    on_exhausted: OnExhausted = "error"
    epochs: int | Mapping[str, int] = 1
    last_step: Literal["drop", "fill"] = "drop"
    cycles: int = CYCLES
    cycle_steps: CycleSteps = "all"
    training_tokens: int | None = None
    on_budget_mismatch: Literal["error", "warn"] = "error"
    pad_token: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "curriculum", phases_of(self.curriculum, ComposedPhase))
        check_fields(self, LoaderError)
        self.check_ranks()
        if self._phases and (self.schedule, self.last_step) != ("mixed", "drop"):
            raise LoaderError("schedule and last_step cannot be combined with a curriculum: remove one or the other")
        if self.schedule not in GROWING and (self.cycles, self.cycle_steps) != (CYCLES, "all"):
            raise LoaderError(
                f"cycles and cycle_steps need a growing schedule, got {self.schedule!r}: set schedule='grow-p2' or "
                "'grow-linear', or remove them"
            )
        if self.cycles < 1:
            raise LoaderError(f"cycles is {self.cycles:,}: set it to 1 or more")
        described = getattr(self._dataset, "described", {})  # a dataset in memory has neither value
        facts = TokenFacts(f"{self.source_name}/composed.json", vocabulary_size=described.get("vocabulary_size"))
        facts.check_padding(self.pad_token, None, [np.dtype(described.get("dtype", "uint32"))])
        self._check_steps()
        self.check_plan()

    def _check_steps(self) -> None:
        unit = lcm(*self._samples)
        step = unit * self.world_size
        if self.tokens_per_step > 0 and self.tokens_per_step % step == 0:
            return
        below = self.tokens_per_step // step
        values = ", ".join(f"{step * each:,}" for each in range(max(below - 1, 1), max(below, 1) + 3))
        wrong = (
            f"tokens_per_step is {self.tokens_per_step:,}, and on {self.world_size:,} ranks that is not a whole number "
            f"of samples of {', '.join(f'{each:,}' for each in self._samples)} tokens on each: give a multiple of "
            f"{step:,}, such as {values}"
        )
        if self.tokens_per_step > 0 and self.tokens_per_step % unit == 0:
            steps = self.tokens_per_step // unit
            sizes = [each for each in range(1, steps + 1) if steps % each == 0]
            wrong += f"; or a world_size of {', '.join(f'{each:,}' for each in sizes)}"
        raise LoaderError(wrong)

    @property
    def _phases(self) -> tuple[ComposedPhase, ...]:
        return phases_of(self.curriculum, ComposedPhase)

    @cached_property
    def _dataset(self) -> ComposedDataset:
        return open_composed(self.path) if isinstance(self.path, str | os.PathLike) else self.path

    @cached_property
    def _buckets(self) -> tuple[ComposedBucket, ...]:
        splits = {each.split for each in self._dataset.buckets}
        split = named_split(self.split, splits.__contains__)
        there = [each for each in self._dataset.buckets if each.split == split and len(each)]
        if not there:
            known = listed(map(repr, sorted(splits)))
            raise LoaderError(f"no samples in split {self.split!r} of {self.source_name}; splits: {known}")
        return tuple(sorted(there, key=lambda each: (each.domain, each.capacity)))

    @property
    def source_name(self) -> str:
        """Name of the data in messages."""
        return str(self.path) if isinstance(self.path, str | os.PathLike) else "the dataset"

    @cached_property
    def buckets(self) -> tuple[DeliveredBucket, ...]:
        """Buckets of the split in the order of delivery, by domain and capacity."""
        seed = self.seed if self.shuffle == "keyed" else None
        epochs = self._epochs()
        return tuple(DeliveredBucket(each, count, seed) for each, count in zip(self._buckets, epochs, strict=True))

    @cached_property
    def stock(self) -> tuple[BucketStock, ...]:
        """Samples available in each bucket, over all its epochs."""
        return tuple(each.stock for each in self.buckets)

    @cached_property
    def _samples(self) -> dict[int, int]:
        """Number of samples of each capacity over all epochs, in ascending order of capacity."""
        capacities = sorted({each.capacity for each in self.stock})
        return {each: sum(of.samples for of in self.stock if of.capacity == each) for each in capacities}

    def _epochs(self) -> list[int]:
        there = [BucketStock(each.domain, each.capacity, len(each)) for each in self._buckets]
        found: dict[str, int] = {}
        given = [(buckets_called(name, there), name, epochs) for name, epochs in self.epochs_by_name().items()]
        # A name of fewer buckets is set later, so it wins: "web/2048" overrides "web".
        for meant, name, epochs in sorted(given, key=lambda each: -len(each[0])):
            if not meant:
                known = listed(repr(each.name) for each in there)
                raise LoaderError(f"epochs names {name!r}, which does not exist; known: {known}")
            found |= dict.fromkeys(meant, epochs)
        return [found.get(each.name, 1) for each in there]

    @cached_property
    def plan(self) -> StepPlan:
        """Capacity of every step, and bucket of every sample."""
        given = (self.stock, self.tokens_per_step)
        if self._phases:
            return plan_phases(self._phases, *given, self.seed, self.on_exhausted)
        return plan_schedule(*given, self.schedule, self.last_step, self.seed, self.cycles, self.cycle_steps)

    @property
    def drawn(self) -> CurriculumPlan:
        """Capacity of every step."""
        return self.plan.steps

    def called(self, name: str | None) -> Sequence[str]:
        """Return the names of the buckets that a name refers to: a bucket, a domain, a capacity, or None for all."""
        return buckets_called(name, self.stock)

    @cached_property
    def report(self) -> StepReport:
        """Comparison of the requested mix with the available samples and the resulting plan."""
        enough = self._sufficient_epochs() if self.drawn.drained and self.on_exhausted == "error" else {}
        stock = {
            each.name: Stock(each.samples, each.samples * each.capacity, bucket.epochs, enough.get(each.name, 0))
            for each, bucket in zip(self.stock, self.buckets, strict=True)
        }
        # Without a curriculum, a single phase has all samples.
        budgets = [each.duration_tokens for each in self._phases] or [sum(each.tokens for each in stock.values())]
        phases = tuple(
            Phase(budget, {name: weight for name, weight in asked.items() if weight or not self._phases})
            for budget, asked in zip(budgets, self.plan.asked, strict=True)
        )
        problems, warned = self.judge(phases, stock)
        notes, unused = self._notes()
        head = (self.drawn, phases, stock, max(self._samples), problems, (*warned, *unused), notes)
        return StepReport(*head, self.tokens_per_step, sum(self._delivered))

    @cached_property
    def _delivered(self) -> list[int]:
        return [int(each) for each in self.plan.samples.counts(len(self.plan.samples))[: len(self.stock)]]

    def _notes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Describe unused samples, with a warning if they are many and there is no curriculum."""
        notes, warned = list[str](), list[str]()
        for capacity, there in self._samples.items():
            needed = self.tokens_per_step // capacity
            if self.last_step == "fill":
                warned += self.padded_ranks(there % needed, f"the last step of {capacity:,}", "last_step")
            counts = zip(self.stock, self._delivered, strict=True)
            left = there - sum(count for each, count in counts if each.capacity == capacity)
            unused = f"{left:,} of the samples of {capacity:,} tokens are in no step"
            if left and self._phases:
                notes.append(unused)
            elif left and self.cycle_steps != "all":
                unused += f", {left / there:.1%} of them: cycle_steps={self.cycle_steps!r} omits them, 'all' does not"
                (warned if left > TOLERANCE * there else notes).append(unused)
            elif 0 < left < there:
                unused += f", {left / there:.1%} of them: they do not fill one; last_step='fill' pads them"
                (warned if left > TOLERANCE * there else notes).append(unused)
            elif left:
                warned.append(f"{unused}, which takes {needed:,}: lower tokens_per_step, or set last_step='fill'")
        return tuple(notes), tuple(warned)

    def _sufficient_epochs(self) -> dict[str, int]:
        once = [each.stock._replace(samples=len(each.bucket)) for each in self.buckets]
        asked = [(phase.duration_tokens, shares) for phase, shares in zip(self._phases, self.plan.asked, strict=True)]
        epochs = {}
        for each, bucket in zip(once, self.buckets, strict=True):
            tokens = sum(tokens * shares[each.name] for tokens, shares in asked)
            epochs[each.name] = max(bucket.epochs, -int(-tokens // (each.samples * each.capacity)))
        while max(epochs.values()) <= MOST_EPOCHS:
            stock = [each._replace(samples=each.samples * epochs[each.name]) for each in once]
            drained = plan_phases(self._phases, stock, self.tokens_per_step, self.seed, "halt").steps.drained
            if not drained:
                break
            for name in buckets_called(drained[0].bucket, stock):
                epochs[name] += 1 + epochs[name] // 8
        return epochs

    @property
    def ordered(self) -> bool:
        """Whether the order of batches matters, as in a curriculum or a sorted schedule."""
        return super().ordered or self.schedule != "mixed"

    @property
    def most_rows(self) -> int:
        """Most rows in a batch: those of the smallest capacity."""
        return self.tokens_per_step // (min(self._samples) * self.world_size)

    @property
    def step_size(self) -> int:
        """Always 1: a position counts steps."""
        return 1

    def stop(self, position: int) -> int:
        """Return the end of the plan."""
        return max(position, len(self.plan))

    def read(self, step: int) -> Batch:
        """Return this rank's part of a step: every ``world_size``-th sample, starting with sample ``rank``."""
        capacity, picks, places = self._drawn_by_rank(step)
        rows = Rows(len(picks), capacity, self.positions)
        return assemble(dict(enumerate(self.buckets)), picks, places, self._padding, rows)

    def origins_at(self, position: int) -> list[Origin]:
        """Return the documents in this rank's samples of a step; columns are those of ``input_ids``."""
        _, picks, places = self._drawn_by_rank(position)
        return origins_of(dict(enumerate(self.buckets)), picks, places)

    def _drawn_by_rank(self, step: int) -> tuple[int, Picks, Longs]:
        capacity, picks, places = self.plan.step(step)
        return capacity, picks[self.rank :: self.world_size], places[self.rank :: self.world_size]

    @property
    def _padding(self) -> int:
        return self._buckets[0].padding if self.pad_token is None else self.pad_token

    def identity(self, position: int) -> dict[str, Any]:
        """Return the settings, the digest of each bucket, and that of the plan before a position."""
        return {
            **self.values_of("split", "tokens_per_step", "seed", "shuffle", "positions"),
            "pad_token": self._padding,
            "data": {stock.name: each.identity for stock, each in zip(self.stock, self._buckets, strict=True)},
            "plan up to here": self.plan.fingerprint(position),
        }

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed; the list is empty if they match."""
        now = self.identity(state["position"])
        changed = changed_values(state, now, apart=("data",))
        was, data = state["data"] if isinstance(state["data"], Mapping) else {}, now["data"]
        if set(was) != set(data):
            return [*changed, self.changed_buckets(was, data)]
        return changed + [f"data of {each}" for each in changed_values(was, data)]
