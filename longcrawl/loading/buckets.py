"""Training feed of a composed dataset: in a step all ranks draw from one capacity, and every step has as many tokens.

Which capacity a step has, and which bucket each of its samples, is planned up front as a function of global numbers. So
a position is one number, and ranks, workers and interruptions make no difference to what the global steps are.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from longcrawl.core.fields import check_fields
from longcrawl.errors import LoaderError, warn_user
from longcrawl.formats.shards.folders import named_split
from longcrawl.loading._data_identity import changed_values
from longcrawl.loading._reports import (
    TOLERANCE,
    StepReport,
    Stock,
    asked_phases,
    buckets_called,
    budget_problem,
    check_tokens_per_step,
    exhaustion_problem,
    left_out,
    ranks_without_samples,
    sufficient_step_epochs,
)
from longcrawl.loading._rows import Batch, ComposedDataset, DeliveredBucket, Positions, SampleBucket, assemble_step
from longcrawl.loading._token_facts import TokenFacts
from longcrawl.loading.composed_phases import BucketStock, ComposedPhase, composed_phases_of
from longcrawl.loading.curriculum import OnExhausted, Phase
from longcrawl.loading.feed import Feed, Status, plan_status
from longcrawl.loading.step_plan import Schedule, StepPlan, plan_phases, plan_schedule

__all__ = ["ComposedBatches"]


@dataclass(frozen=True, eq=False)
class ComposedBatches(Feed):
    """Batches for one rank of a trainer, from a composed dataset: rows of one length in each, of another in the next.

    >>> batches = ComposedBatches("out/composed", tokens_per_step=1_048_576, rank=0, world_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # (64, 2048) or (8, 16384), on all ranks the same
    ...     checkpoint["data"] = batches.state_dict()

    A batch has ``tokens_per_step / (capacity * world_size)`` rows, and is a dictionary as that of
    :class:`longcrawl.loading.Packed`: ``input_ids``, ``labels``, ``position_ids`` and ``doc_ids``, int64 [rows,
    capacity], ``n_tokens``, int64 [rows], and ``seq_lengths``, for each row an int64 array with the lengths of its
    pieces, the padding's as the last where there is some. Labels are not shifted; they are -100 where the loss mask of
    the dataset is false and on the first token of each piece.

    Without a curriculum every sample is delivered, ``epochs`` times, in an order of capacities that ``schedule`` says;
    the buckets of a capacity run dry together. Iterating goes on after the last step handed out, and ends with the
    plan, for good: ``status`` then says whether it is finished or halted. ``batches[i]`` is a pure function of ``i``.

    Attributes:
        path: folder of the composed dataset, or the dataset opened.
        tokens_per_step: tokens of a step on all ranks together, padding included: a multiple of each capacity times
            ``world_size``.
        curriculum: phases, or mappings of the fields of :class:`ComposedPhase`; none for all samples.
        schedule: without a curriculum, "mixed", "short-first", "long-first", or "short-mixed-long": half of the steps
            of the smallest capacity, everything else mixed, half of the steps of the largest.
        split: "train", "val", also by another usual name of what is held out, or another that is there.
        rank: which of the trainer's ``world_size`` processes this is.
        world_size: processes that share each step.
        seed: of the order of samples and steps and of the draws of a curriculum.
        shuffle: "keyed", for each bucket and epoch an order of its own, or "none" for that of the dataset.
        positions: "reset" counts ``position_ids`` from 0 in every piece, padding, too; "continuous" counts through the
            row, and has 0 in padding.
        on_exhausted: "error" refuses a curriculum in which a bucket runs dry, "halt" ends the feed there, and
            "renormalize" goes on without it, at one step on all ranks, and warns; where nothing of a phase's mix
            is left, the next phase begins, with its own budget.
        epochs: how often samples may be delivered: one number, or one by bucket, domain or capacity.
        last_step: without a curriculum, "drop" leaves out samples of a capacity that do not fill a step; "fill" makes
            a step of them and rows of padding. A rank may then have no target, and its mean over them is NaN: divide
            by the targets of all ranks.
        training_tokens: what the training takes; compared with the sum of the budgets.
        on_budget_mismatch: whether a difference of more than 5 % is an error or a warning.
        pad_token: id of padding; None for that of the dataset.

    Raises:
        LoaderError: a field or the curriculum does not fit the data; the message says what would.

    """

    kind: ClassVar[str] = "buckets"
    unit: ClassVar[str] = "steps"
    earlier_position: ClassVar[str] = "next_step"

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
    training_tokens: int | None = None
    on_budget_mismatch: Literal["error", "warn"] = "error"
    pad_token: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "curriculum", composed_phases_of(self.curriculum))
        check_fields(self, LoaderError)
        self.check_ranks()
        if self._phases and (self.schedule, self.last_step) != ("mixed", "drop"):
            raise LoaderError("schedule and last_step are of feeds without curriculum: leave one or the other out")
        self._check_padding()
        capacities = sorted({each.capacity for each in self.stock})
        check_tokens_per_step(self.tokens_per_step, capacities, self.world_size)
        self.check_plan()

    def _check_padding(self) -> None:
        described = getattr(self._dataset, "described", {})  # a dataset in memory says neither
        facts = TokenFacts(f"{self.source_name}/composed.json", vocabulary_size=described.get("vocabulary_size"))
        facts.check_padding(self.pad_token, None, [np.dtype(described.get("dtype", "uint32"))])

    def check_plan(self) -> None:
        """Refuse what the report has problems with."""
        for problem in self.report.problems:
            raise LoaderError(problem)
        if not len(self):
            raise LoaderError("the plan has no step: lower tokens_per_step, or say last_step='fill'")
        for warning in self.report.warnings:
            warn_user(warning)

    @property
    def _phases(self) -> tuple[ComposedPhase, ...]:
        return composed_phases_of(self.curriculum)

    @cached_property
    def _dataset(self) -> ComposedDataset:
        if isinstance(self.path, str | os.PathLike):
            from longcrawl.formats.buckets.spec import open_composed

            return open_composed(self.path)
        return self.path

    @cached_property
    def _buckets(self) -> tuple[SampleBucket, ...]:
        """The buckets of the split that have samples, by domain and capacity."""
        splits = {each.split for each in self._dataset.buckets}
        split = named_split(self.split, splits.__contains__)
        there = [each for each in self._dataset.buckets if each.split == split and len(each)]
        if not there:
            known = ", ".join(repr(each) for each in sorted(splits))
            raise LoaderError(
                f"there is no sample in split {self.split!r} of {self.source_name}; splits: {known or 'none'}"
            )
        return tuple(sorted(there, key=lambda each: (each.domain, each.capacity)))

    @property
    def source_name(self) -> str:
        """What messages call the data."""
        return str(self.path) if isinstance(self.path, str | os.PathLike) else "the dataset"

    @cached_property
    def buckets(self) -> tuple[DeliveredBucket, ...]:
        """The buckets of the split, by domain and capacity, as they are delivered."""
        seed = self.seed if self.shuffle == "keyed" else None
        epochs = self._epochs()
        return tuple(DeliveredBucket(each, count, seed) for each, count in zip(self._buckets, epochs, strict=True))

    @cached_property
    def stock(self) -> tuple[BucketStock, ...]:
        """What the buckets have to give, all epochs."""
        return tuple(each.stock for each in self.buckets)

    def _epochs(self) -> list[int]:
        given = self.epochs if isinstance(self.epochs, Mapping) else {None: self.epochs}
        there = [BucketStock(each.domain, each.capacity, len(each)) for each in self._buckets]
        found: dict[str, int] = {}
        # The fewer buckets a name stands for, the later it is set: "web/2048" goes before "web".
        for name, epochs in sorted(given.items(), key=lambda item: -len(buckets_called(item[0], there))):
            if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
                raise LoaderError(f"epochs of {name or 'the data'!r} is {epochs!r}: give a whole number from 1 on")
            meant = buckets_called(name, there)
            if not meant:
                known = ", ".join(repr(each.name) for each in there)
                raise LoaderError(f"epochs names {name!r}, which is not there; known: {known}")
            found |= dict.fromkeys(meant, epochs)
        return [found.get(each.name, 1) for each in there]

    @cached_property
    def plan(self) -> StepPlan:
        """The capacity of every step, and the bucket of every sample."""
        if self._phases:
            return plan_phases(self._phases, self.stock, self.tokens_per_step, self.seed, self.on_exhausted)
        return plan_schedule(self.stock, self.tokens_per_step, self.schedule, self.last_step, self.seed)

    @cached_property
    def report(self) -> StepReport:
        """What is asked for, what is there, and what comes of it."""
        enough = {}
        if self.plan.steps.drained and self.on_exhausted == "error":
            once = {each.stock._replace(samples=len(each.bucket)): each.epochs for each in self.buckets}
            enough = sufficient_step_epochs(self._phases, once, self.tokens_per_step, self.seed, self.plan)
        stock = {
            each.name: Stock(each.samples, each.samples * each.capacity, bucket.epochs, enough.get(each.name, 0))
            for each, bucket in zip(self.stock, self.buckets, strict=True)
        }
        phases = asked_phases(self._phases, self.plan, self.stock)
        dry = exhaustion_problem(
            self.plan.steps, phases, stock, self.on_exhausted, "step", lambda name: buckets_called(name, self.stock)
        )
        budget = budget_problem(phases, self.training_tokens)
        blocking = [dry] * (self.on_exhausted == "error") + [budget] * (self.on_budget_mismatch == "error")
        problems = tuple(each for each in blocking if each)
        other = tuple(each for each in (dry, budget) if each and each not in problems)
        notes, unheard = self._notes()
        samples = int(self.plan.samples.counts(len(self.plan.samples))[: len(self.stock)].sum())
        return StepReport(
            self.plan.steps, phases, stock, max(each.capacity for each in self.stock), problems, (*other, *unheard),
            notes, self.tokens_per_step, samples,
        )  # fmt: skip

    def _notes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Describe what is left unused, and warn where that is much, though all was to be delivered."""
        notes, warned = [], []
        if self.last_step == "fill":
            warned = ranks_without_samples(self.tokens_per_step, self.world_size, self.stock)
        for capacity, left in left_out(self.plan, self.stock).items():
            there = sum(each.samples for each in self.stock if each.capacity == capacity)
            needed = self.tokens_per_step // capacity
            said = f"{left:,} of the samples of {capacity:,} tokens are in no step"
            if self._phases:
                notes.append(said)
            elif left < there:
                said += f", {left / there:.1%} of them: they do not fill one; last_step='fill' pads them"
                (warned if left > TOLERANCE * there else notes).append(said)
            else:
                warned.append(f"{said}, which takes {needed:,}: lower tokens_per_step, or say last_step='fill'")
        return tuple(notes), tuple(warned)

    @property
    def status(self) -> Status:
        """Whether there is another step, the same on all ranks."""
        return plan_status(self.plan.steps, "step", running=self.position < len(self.plan))

    @property
    def phase(self) -> int:
        """The phase of the next step, counted from 0."""
        return self.plan.steps.phase_of(self.position)

    @property
    def most(self) -> int:
        """Steps of the plan."""
        return len(self.plan)

    @property
    def step_size(self) -> int:
        """Return 1: a position counts steps."""
        return 1

    def stop(self, position: int) -> int:
        """Return the end of the plan."""
        return max(position, len(self.plan))

    def read(self, step: int) -> Batch:
        """Return this rank's part of a step: every ``world_size``-th of its samples, from the ``rank``-th on."""
        capacity, picks, places = self.plan.step(step)
        mine = slice(self.rank, None, self.world_size)
        buckets = dict(enumerate(self.buckets))
        return assemble_step(buckets, picks[mine], places[mine], capacity, self._padding, self.positions)

    @property
    def _padding(self) -> int:
        return self._buckets[0].padding if self.pad_token is None else self.pad_token

    def identity(self, position: int) -> dict[str, Any]:
        """Return settings, the digest of each bucket, and the plan before a position."""
        return {**self._order, "plan up to here": self.plan.fingerprint(position)}

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed; empty where they match."""
        now = self.identity(state["position"])
        changed = changed_values(state, now, apart=("data",))
        was, data = state["data"] if isinstance(state["data"], Mapping) else {}, now["data"]
        if set(was) != set(data):
            before, after = (", ".join(map(repr, sorted(each))) or "none" for each in (was, data))
            return [*changed, f"buckets were {before} and are {after}"]
        return changed + [f"data of {each}" for each in changed_values(was, data)]

    @cached_property
    def _order(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "tokens_per_step": self.tokens_per_step,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "positions": self.positions,
            "pad_token": self._padding,
            "data": {stock.name: each.identity for stock, each in zip(self.stock, self._buckets, strict=True)},
        }
