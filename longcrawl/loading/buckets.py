"""Training feed of a composed dataset: in a step all ranks draw from one capacity, and every step has as many tokens.

Which capacity a step has, and which bucket each of its samples, is planned up front as a function of global numbers. So
a position is one number, and ranks, workers and interruptions make no difference to what the global steps are.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import Any, ClassVar, Literal

import numpy as np

from longcrawl.core.fields import check_fields
from longcrawl.errors import LoaderError
from longcrawl.formats.buckets.spec import ComposedBucket, open_composed
from longcrawl.formats.shards.spec import named_split
from longcrawl.loading._data_identity import changed_values
from longcrawl.loading._planned_feed import MOST_EPOCHS, TOLERANCE, CurriculumReport, PlannedFeed, Stock
from longcrawl.loading._samples import ComposedDataset, DeliveredBucket, Positions, Rows, assemble, origins_of
from longcrawl.loading._token_facts import TokenFacts
from longcrawl.loading.composed_phases import BucketStock, ComposedPhase, buckets_called
from longcrawl.loading.curriculum import CurriculumPlan, OnExhausted, Phase, phases_of
from longcrawl.loading.feed import Batch
from longcrawl.loading.origins import Origin
from longcrawl.loading.step_plan import Schedule, StepPlan, plan_phases, plan_schedule
from longcrawl.printable import listed


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


@dataclass(frozen=True, eq=False)
class ComposedBatches(PlannedFeed):
    """Batches for one rank of a trainer, from a composed dataset: rows of one length in each, of another in the next.

    >>> batches = ComposedBatches("out/composed", tokens_per_step=1_048_576, rank=0, world_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # (64, 2048) or (8, 16384), on all ranks the same
    ...     checkpoint["data"] = batches.state_dict()

    A batch has ``tokens_per_step / (capacity * world_size)`` rows, and is a dictionary as that of
    :class:`longcrawl.loading.Packed`: ``input_ids``, ``labels``, ``position_ids`` and ``doc_ids``, int64 [rows,
    capacity], ``n_tokens``, int64 [rows], and ``seq_lengths``, for each row an int64 array with the lengths of its
    pieces, the padding's as the last where there is some. Labels are not shifted; they are -100 where the loss mask of
    the dataset is false and on the first token of each piece. Pieces that are joined to the one before, as those of the
    planner "interleaved" are, count as one with it.

    Without a curriculum every sample is delivered, ``epochs`` times, in an order of capacities that ``schedule`` says;
    the buckets of a capacity run dry together. Iterating resumes after the last step handed out, and ends with the
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
            "renormalize" continues without it, at one step on all ranks, and warns; where nothing of a phase's mix
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
    or_its_own: ClassVar[str] = ""
    no_step: ClassVar[str] = "the plan has no step: lower tokens_per_step, or say last_step='fill'"

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
        object.__setattr__(self, "curriculum", phases_of(self.curriculum, ComposedPhase))
        check_fields(self, LoaderError)
        self.check_ranks()
        if self._phases and (self.schedule, self.last_step) != ("mixed", "drop"):
            raise LoaderError("schedule and last_step are of feeds without curriculum: leave one or the other out")
        self._check_padding()
        self._check_steps()
        self.check_plan()

    def _check_padding(self) -> None:
        described = getattr(self._dataset, "described", {})  # a dataset in memory says neither
        facts = TokenFacts(f"{self.source_name}/composed.json", vocabulary_size=described.get("vocabulary_size"))
        facts.check_padding(self.pad_token, None, [np.dtype(described.get("dtype", "uint32"))])

    def _check_steps(self) -> None:
        unit = lcm(*self._samples)
        if self.tokens_per_step > 0 and self.tokens_per_step % (unit * self.world_size) == 0:
            return
        step = unit * self.world_size
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
        if isinstance(self.path, str | os.PathLike):
            return open_composed(self.path)
        return self.path

    @cached_property
    def _buckets(self) -> tuple[ComposedBucket, ...]:
        """The buckets of the split that have samples, by domain and capacity."""
        splits = {each.split for each in self._dataset.buckets}
        split = named_split(self.split, splits.__contains__)
        there = [each for each in self._dataset.buckets if each.split == split and len(each)]
        if not there:
            known = listed(map(repr, sorted(splits)))
            raise LoaderError(f"there is no sample in split {self.split!r} of {self.source_name}; splits: {known}")
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

    @cached_property
    def _samples(self) -> dict[int, int]:
        """How many samples there are of each capacity, all epochs; ascending."""
        capacities = sorted({each.capacity for each in self.stock})
        return {each: sum(of.samples for of in self.stock if of.capacity == each) for each in capacities}

    def _epochs(self) -> list[int]:
        there = [BucketStock(each.domain, each.capacity, len(each)) for each in self._buckets]
        found: dict[str, int] = {}
        # The fewer buckets a name stands for, the later it is set: "web/2048" goes before "web".
        meant_by = {name: buckets_called(name, there) for name in self.epochs_by_name()}
        for name, meant in sorted(meant_by.items(), key=lambda item: -len(item[1])):
            if not meant:
                known = listed(repr(each.name) for each in there)
                raise LoaderError(f"epochs names {name!r}, which is not there; known: {known}")
            found |= dict.fromkeys(meant, self.epochs_by_name()[name])
        return [found.get(each.name, 1) for each in there]

    @cached_property
    def plan(self) -> StepPlan:
        """The capacity of every step, and the bucket of every sample."""
        if self._phases:
            return plan_phases(self._phases, self.stock, self.tokens_per_step, self.seed, self.on_exhausted)
        return plan_schedule(self.stock, self.tokens_per_step, self.schedule, self.last_step, self.seed)

    @property
    def drawn(self) -> CurriculumPlan:
        """The capacity of every step."""
        return self.plan.steps

    def called(self, name: str | None) -> Sequence[str]:
        """Return the names of the buckets that a bucket, a domain, a capacity or None, all of them, stands for."""
        return buckets_called(name, self.stock)

    @cached_property
    def report(self) -> StepReport:
        """What is asked for, what is there, and what comes of it."""
        enough = self._sufficient_epochs() if self.drawn.drained and self.on_exhausted == "error" else {}
        stock = {
            each.name: Stock(each.samples, each.samples * each.capacity, bucket.epochs, enough.get(each.name, 0))
            for each, bucket in zip(self.stock, self.buckets, strict=True)
        }
        # Without a curriculum, one phase has all that there is.
        budgets = [each.duration_tokens for each in self._phases] or [sum(each.tokens for each in stock.values())]
        phases = tuple(
            Phase(budget, {name: weight for name, weight in asked.items() if weight or not self._phases})
            for budget, asked in zip(budgets, self.plan.asked, strict=True)
        )
        problems, warned = self.judge(phases, stock)
        notes, unused = self._notes()
        return StepReport(
            self.drawn,
            phases,
            stock,
            max(self._samples),
            problems,
            (*warned, *unused),
            notes,
            self.tokens_per_step,
            int(self.plan.samples.counts(len(self.plan.samples))[: len(self.stock)].sum()),
        )

    def _notes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Describe what is left unused, and warn where that is much, though all was to be delivered."""
        notes, warned = list[str](), list[str]()
        delivered = self.plan.samples.counts(len(self.plan.samples)).tolist()
        for capacity, there in self._samples.items():
            needed = self.tokens_per_step // capacity
            if self.last_step == "fill":
                warned += self.padded_ranks(there % needed, f"the last step of {capacity:,}", "last_step")
            left = there - sum(
                count for each, count in zip(self.stock, delivered, strict=False) if each.capacity == capacity
            )
            unused = f"{left:,} of the samples of {capacity:,} tokens are in no step"
            if left and self._phases:
                notes.append(unused)
            elif 0 < left < there:
                unused += f", {left / there:.1%} of them: they do not fill one; last_step='fill' pads them"
                (warned if left > TOLERANCE * there else notes).append(unused)
            elif left:
                warned.append(f"{unused}, which takes {needed:,}: lower tokens_per_step, or say last_step='fill'")
        return tuple(notes), tuple(warned)

    def _sufficient_epochs(self) -> dict[str, int]:
        """Return epochs of each bucket with which no phase runs dry."""
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
        """Whether another order of batches would be other data, as of a curriculum or a sorted schedule."""
        return super().ordered or self.schedule != "mixed"

    @property
    def most_rows(self) -> int:
        """The most rows that a batch has: those of the smallest capacity."""
        return self.tokens_per_step // (min(self._samples) * self.world_size)

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
        rows = Rows(len(picks[mine]), capacity, self.positions)
        return assemble(dict(enumerate(self.buckets)), picks[mine], places[mine], self._padding, rows)

    def origins_at(self, position: int) -> list[Origin]:
        """Return which documents are in this rank's samples of the step there; columns are those of ``input_ids``."""
        _, picks, places = self.plan.step(position)
        mine = slice(self.rank, None, self.world_size)
        return origins_of(dict(enumerate(self.buckets)), picks[mine], places[mine])

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
            return [*changed, self.changed_buckets(was, data)]
        return changed + [f"data of {each}" for each in changed_values(was, data)]

    @cached_property
    def _order(self) -> dict[str, Any]:
        return {
            **self.values_of("split", "tokens_per_step", "seed", "shuffle", "positions"),
            "pad_token": self._padding,
            "data": {stock.name: each.identity for stock, each in zip(self.stock, self._buckets, strict=True)},
        }
