"""Mixture of windows from several folders, with weights, epochs and phases, as in nanotron's Nanoset.

All windows have the same number of tokens, so weights are shares of both windows and tokens. The bucket of every window
is planned before the first step. A window of a bucket repeats only after all others of that bucket, in another order.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from longcrawl.core.registry import check_fields
from longcrawl.errors import LoaderError
from longcrawl.loading.curriculum import CurriculumPlan, Mixing, OnExhausted, Phase, phases_of, plan_curriculum
from longcrawl.loading.feed import Batch, Origin, changed_values, data_changes, data_identity
from longcrawl.loading.planned_feed import CurriculumReport, MixedFeed, Stock
from longcrawl.loading.windows import Windows, order_identity
from longcrawl.tokens.plan import Longs

BY_BUCKET = ("order", "data")
"""State fields with one entry per bucket."""
_ALIKE = ("seq_len", "positions", "masked", "window_dtype")
"""Fields in which all windows of a batch must agree."""


@dataclass(frozen=True, eq=False, repr=False)
class WindowMixture(MixedFeed):
    """Batches of windows from several folders for one rank of a trainer, with exact resume.

    >>> windows = {name: Windows(f"{name}/", 2048, shuffle="windows") for name in ("web", "code")}  # doctest: +SKIP
    >>> phases = [Phase(5_000_000_000, {"web": 0.9, "code": 0.1}), Phase(500_000_000, {"code": 1})]  # doctest: +SKIP
    >>> for batch in WindowMixture(windows, phases, batch_size=8, epochs={"code": 2}):  # doctest: +SKIP
    ...     step(batch["input_ids"])  # (8, 2049) int64

    A batch has the fields of :meth:`Windows.batches`. Rank ``r`` gets the windows of a step from number
    ``r * batch_size`` on. Windows at the end that do not fill a step are dropped.

    Attributes:
        windows: windows of each bucket, by its name. All need the same ``seq_len``, positions, loss mask and dtype.
        curriculum: phases, or one mapping of weights. Weights draw windows until the first bucket has been delivered as
            often as ``epochs`` allows, by default once. A window counts as ``seq_len`` tokens, the number that a model
            predicts.
        batch_size: windows per batch.
        seed: seed of the draws; the order of windows has its own seed.
        mixing: "even" to keep the shares of the mix in every stretch, or "random" to draw each window's bucket
            independently.
        rank, world_size, epochs, on_exhausted, training_tokens, on_budget_mismatch: see
            :class:`longcrawl.loading.Packed`.

    Raises:
        LoaderError: windows differ in a field, or the curriculum does not fit them; the message names values that do.
    """

    kind: ClassVar[str] = "mixture"
    unit: ClassVar[str] = "windows"
    no_step: ClassVar[str] = (
        "the plan has {positions:,} windows, not one for each row of {feed.world_size} batches of {feed.batch_size}; "
        "lower batch_size, or raise duration_tokens"
    )

    windows: Mapping[str, Windows]
    curriculum: Sequence[Phase | Mapping[str, Any]] | Mapping[str, float]
    batch_size: int = 1
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    epochs: int | Mapping[str, int] = 1
    mixing: Mixing = "even"
    on_exhausted: OnExhausted = "error"
    training_tokens: int | None = None
    on_budget_mismatch: Literal["error", "warn"] = "error"

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        self.check_ranks(batch_size=1)
        self._check_alike()
        self.check_epochs(self.windows)
        if isinstance(self.curriculum, Mapping):
            object.__setattr__(self, "curriculum", (self._one_epoch(self.curriculum),))
        object.__setattr__(self, "curriculum", phases_of(self.curriculum, Phase))
        self.check_plan()

    def _check_alike(self) -> None:
        for name, windows in self.windows.items():
            if not isinstance(windows, Windows):
                raise LoaderError(f"bucket {name!r} is {type(windows).__name__}: make it Windows(FOLDER, seq_len)")
        if not self.windows:
            raise LoaderError("a mixture has no windows: add one bucket or more, {'web': Windows(FOLDER, seq_len)}")
        (first, one), *others = self.windows.items()
        for field, (name, other) in itertools.product(_ALIKE, others):
            if getattr(other, field) != getattr(one, field):
                raise LoaderError(
                    f"windows of {first!r} have {field} {getattr(one, field)}, those of {name!r} "
                    f"{getattr(other, field)}: open all with the same"
                )

    def _one_epoch(self, weights: Mapping[str, float]) -> Phase:
        """Return the phase that ends when the first bucket has been delivered as often as ``epochs`` allows."""
        Phase(1, weights)  # checks the weights
        stock = self._epochs
        unknown = [name for name in weights if name not in self.windows]
        if unknown:
            raise LoaderError(f"weights name {unknown[0]!r}, which does not exist; known: {', '.join(self.windows)}")
        # Exact decimals: 0.7 of ten windows is seven.
        exact = {name: Fraction(str(float(each))) for name, each in weights.items() if each > 0}
        most = int(min(stock[name] * len(self.windows[name]) * sum(exact.values()) / exact[name] for name in exact))
        phase = Phase(most * self.seq_len, weights)
        if self.mixing == "random":
            # A bucket may be drawn more often than its share.
            phase = replace(phase, duration_tokens=len(self._planned(stock, "halt", (phase,))) * self.seq_len)
        return phase

    @property
    def seq_len(self) -> int:
        """Context length of a model; a window has one more token."""
        return next(iter(self.windows.values())).seq_len

    @property
    def _stock(self) -> dict[str, Stock]:
        return {
            name: Stock(len(windows), len(windows) * self.seq_len, self.epochs_of(name))
            for name, windows in self.windows.items()
        }

    def _planned(
        self, epochs: Mapping[str, int], on_exhausted: OnExhausted, phases: Sequence[Phase] = ()
    ) -> CurriculumPlan:
        phases = phases or self._phases
        drawn = {name for phase in phases for name in phase.mix}
        # All windows have the same number of tokens, so one value is broadcast.
        inventory = {
            name: np.broadcast_to(np.int64(self.seq_len), epochs[name] * len(windows))
            for name, windows in self.windows.items()
            if name in drawn
        }
        return plan_curriculum(
            phases, inventory, seed=self.seed, mix_by="samples", on_exhausted=on_exhausted, mixing=self.mixing
        )

    @cached_property
    def report(self) -> CurriculumReport:
        """Comparison of the requested mix with the available windows and the resulting plan."""
        unused = [f"no phase draws from {name!r}" for name in self.windows if name not in self.plan.names]
        return self.report_of(self.seq_len, (), unused)

    def stop(self, position: int) -> int:
        """Return the window at which steps from a position on stop, a multiple of a step after it."""
        return position + max(len(self.plan) - position, 0) // self.step_size * self.step_size

    def read(self, step: int) -> Batch:
        """Return this rank's windows of the step that begins at window ``step`` of the plan."""
        batch: Batch = {}
        count = min(self.batch_size, len(self.plan) - step - self.rank * self.batch_size)
        for windows, number, rows, places in self._parts(step):
            for name, values in windows.read(places, number).items():
                whole = batch.setdefault(name, np.empty((count, values.shape[1]), values.dtype))
                whole[rows] = values
        return batch

    def origins_at(self, position: int) -> list[Origin]:
        """Return the documents in this rank's windows of a step; columns are those of ``input_ids``."""
        found = []
        for windows, number, rows, places in self._parts(position):
            found += [replace(each, row=int(rows[each.row])) for each in windows.origins(places, number)]
        return sorted(found, key=lambda each: (each.row, each.start))

    def _parts(self, step: int) -> Iterator[tuple[Windows, int, Longs, Longs]]:
        """Yield this rank's part of a step per bucket and pass: windows, pass, batch rows, and places in the pass."""
        first = step + self.rank * self.batch_size
        picks, places = self.plan.places(first, first + self.batch_size)
        for pick in np.unique(picks).tolist():
            windows, mine = self.windows[self.plan.names[pick]], np.flatnonzero(picks == pick)
            passes, within = np.divmod(places[mine], len(windows))
            for number in np.unique(passes).tolist():
                yield windows, number, mine[passes == number], within[passes == number]

    def identity(self, position: int) -> dict[str, Any]:
        """Return order and data of each bucket, and the digest of the draws before a position."""
        return {**self._buckets, "curriculum up to here": self.plan.fingerprint(position)}

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed, ignoring buckets without delivered windows."""
        position = state["position"]
        drawn = {self.plan.names[pick] for pick in np.unique(self.plan.picks[:position]).tolist()}
        drawn = drawn or set(self.plan.names)
        changed = changed_values(state, self.identity(position), apart=BY_BUCKET)
        orders, data = (state[name] if isinstance(state[name], Mapping) else {} for name in BY_BUCKET)
        if not drawn <= set(data) & set(orders):
            return [*changed, self.changed_buckets(data, self._buckets["data"])]
        for name in sorted(drawn):
            now = self._buckets["order"][name]
            differences = changed_values(orders[name], now)
            differences += data_changes(data[name], self._buckets["data"][name], self.windows[name].files)
            changed += [f"{each} of bucket {name!r}" for each in differences]
        return changed

    @cached_property
    def _buckets(self) -> dict[str, dict[str, Any]]:
        drawn = {name: self.windows[name] for name in self.plan.names}
        return {
            "order": {name: order_identity(windows) for name, windows in drawn.items()},
            "data": {name: data_identity(windows.files) for name, windows in drawn.items()},
        }
