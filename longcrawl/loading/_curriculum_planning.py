"""How a curriculum becomes one bucket for every global sample, and where a bucket runs dry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.uniform_numbers import uniform_numbers
from longcrawl.loading.packing_plan import Longs

if TYPE_CHECKING:
    from longcrawl.loading.curriculum import Phase

__all__ = ["Drained", "PhaseTotals", "Picks", "Planning", "picked"]

CHUNK = 1 << 16


@dataclass(frozen=True)
class Drained:
    """A draw that a bucket could not answer.

    Attributes:
        sample: its global index.
        phase: counted from 0.
        bucket: the name; None where no bucket of the phase has a sample left.

    """

    sample: int
    phase: int
    bucket: str | None


@dataclass(frozen=True)
class PhaseTotals:
    """What a phase has come to: its samples, and the tokens of each bucket."""

    first_sample: int
    stop_sample: int
    tokens: Mapping[str, int]


Picks = npt.NDArray[Any]
"""Numbers of buckets: uint8, or uint16 where there are more than 255."""


def picked(shares: npt.NDArray[np.float64], numbers: npt.NDArray[np.float64]) -> Picks:
    """Return what numbers in [0, 1) pick by these shares, of which one is positive: as many as numbers."""
    limits = np.cumsum(shares) / shares.sum()
    # No later than the last bucket of the mix: rounding may leave the last limit a little below 1.
    last = int(np.flatnonzero(np.diff(limits, prepend=0.0) > 0)[-1])
    return np.minimum(np.searchsorted(limits, numbers, "right"), last).astype(np.min_scalar_type(len(shares)))


@dataclass
class Planning:
    """Draws buckets, sample by sample, until the budgets are spent or a bucket that is drawn has nothing left.

    Attributes:
        inventory: for each bucket, in the order of their ids, the tokens of its samples in the order of delivery.
        shares: chances of the buckets in each phase.
        seed: of the draws.
        renormalize: whether to go on without a bucket that has run dry.

    """

    inventory: Mapping[str, Longs]
    shares: Sequence[npt.NDArray[np.float64]]
    seed: int
    renormalize: bool
    picks: list[Picks] = field(default_factory=list)
    drained: list[Drained] = field(default_factory=list)
    totals: list[PhaseTotals] = field(default_factory=list)
    samples: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.names = list(self.inventory)
        self.used = np.zeros(len(self.names), np.int64)
        self.dry = np.zeros(len(self.names), np.bool_)

    def run(self, phases: "Sequence[Phase]") -> bool:
        """Plan all phases; each ends with the sample that reaches the sum of the budgets up to it, or runs dry before.

        False where the plan ends before its last phase is spent.
        """
        budget, whole = 0, True
        for number, phase in enumerate(phases):
            budget += phase.duration_tokens
            first, used = self.samples, self.used.copy()
            whole = self._run_phase(number, budget)
            tokens = {
                name: int(self.inventory[name][used[each] : self.used[each]].sum())
                for each, name in enumerate(self.names)
            }
            self.totals.append(PhaseTotals(first, self.samples, tokens))
            if not whole:
                if not self.renormalize:
                    return False
                budget = self.tokens  # the next phase has its own, not what this one left over
        return whole

    def _run_phase(self, number: int, budget: int) -> bool:
        while self.tokens < budget:
            shares = np.where(self.dry, 0.0, self.shares[number])
            if not shares.sum() > 0:
                self.drained.append(Drained(self.samples, number, None))
                return False
            chunk, bucket = self._draw(shares, budget)
            self._take(chunk)
            if bucket is not None:
                self.drained.append(Drained(self.samples, number, self.names[bucket]))
                self.dry[bucket] = True
                if not self.renormalize:
                    return False
        return True

    def _draw(self, shares: npt.NDArray[np.float64], budget: int) -> tuple[Picks, int | None]:
        """Draw up to a chunk of buckets: as far as the budget reaches, or to the draw that a bucket cannot answer."""
        numbers = uniform_numbers(self.seed, "curriculum", self.samples, CHUNK)
        chunk = picked(shares, numbers)
        costs, stop, bucket = np.zeros(CHUNK, np.int64), CHUNK, None
        for each, name in enumerate(self.names):
            places = np.flatnonzero(chunk == each)
            left = self.inventory[name][self.used[each] : self.used[each] + len(places)]
            costs[places[: len(left)]] = left
            if len(places) > len(left) and places[len(left)] < stop:
                stop, bucket = int(places[len(left)]), each
        spent = self.tokens + np.cumsum(costs[:stop])
        reached = int(np.searchsorted(spent, budget)) + 1
        if reached <= stop:
            return chunk[:reached], None
        return chunk[:stop], bucket

    def _take(self, chunk: Picks) -> None:
        taken = np.bincount(chunk, minlength=len(self.names))
        for each, name in enumerate(self.names):
            self.tokens += int(self.inventory[name][self.used[each] : self.used[each] + taken[each]].sum())
        self.used += taken
        self.samples += len(chunk)
        self.picks.append(chunk)
