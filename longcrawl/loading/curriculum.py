"""Curricula: phases with token budgets and bucket mixes, planned before training starts.

Number g of a counter-based generator (Philox) picks the bucket of sample g. Across all phases, each sample of a bucket
is taken once, in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from longcrawl.core.registry import build, check_fields
from longcrawl.errors import LoaderError, listed, quoted
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.keyed_hash import keyed_hash, uniform_numbers
from longcrawl.tokens.plan import Longs

MixBy = Literal["tokens", "samples"]
"""Unit of the shares of a mix."""
Mixing = Literal["random", "even"]
"""Whether each sample draws its bucket independently, or every stretch of a phase has the shares of the mix."""
OnExhausted = Literal["error", "halt", "renormalize"]
"""Policy for a plan in which a bucket runs dry: reject it, cut it there, or continue without the bucket."""
BLOCK = 1 << 12
MOST_BUCKETS = 65_535


@dataclass(frozen=True)
class Phase:
    """A stretch of training on one mix.

    >>> Phase(5_000_000_000, {"web": 0.6, "code": 0.2, "math": 0.1, "wiki": 0.1})
    Phase(duration_tokens=5000000000, mix={'web': 0.6, 'code': 0.2, 'math': 0.1, 'wiki': 0.1})

    Attributes:
        duration_tokens: token budget; padding does not count.
        mix: weights of buckets, which need not sum to 1.

    Raises:
        LoaderError: the budget is below 1, a weight is negative or not a finite number, or no weight is positive.
    """

    duration_tokens: int
    mix: Mapping[str, float]

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        check_phase(self.duration_tokens, bucket=self.mix)
        if not sum(self.mix.values()) > 0:
            raise LoaderError("a phase has no weighted bucket: give one a positive weight, as in mix={'web': 1.0}")


class ConfiguredPhases(tuple[Phase, ...]):  # noqa: SLOT001  # its attributes have defaults
    """Phases of a GPT-Simple configuration, with its other settings for the samples of a feed.

    Attributes:
        max_length: tokens per sample, or None if the configuration does not set it.
        packed: whether documents share samples.
        uniform: whether there is no curriculum, so that all buckets have equal weight.
        samples: samples that training takes on each rank, or None if the configuration does not set it.
    """

    max_length: int | None = None
    packed: bool = True
    uniform: bool = False
    samples: int | None = None

    def __new__(cls, phases: Sequence[Phase] = (), **settings: Any) -> Self:
        """Make a tuple of phases, with attributes given by name."""
        made = super().__new__(cls, phases)
        made.__dict__.update(settings)
        return made


Kind = TypeVar("Kind")


def check_phase(duration_tokens: int, **weights: Mapping[Any, Any]) -> None:
    """Check that a phase has a positive budget and weights that are finite numbers; messages name their keyword."""
    if duration_tokens < 1:
        raise LoaderError(f"duration_tokens is {duration_tokens:,}: set it to 1 or more")
    for of, given in weights.items():
        for name, weight in given.items():
            if not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
                raise LoaderError(f"the weight of {of} {name!r} is {quoted(weight)}: set it to 0 or more")


def phases_of(phases: Any, kind: type[Kind]) -> tuple[Kind, ...]:
    """Convert plain phases, and mappings of fields as YAML has them, to phases of one kind.

    Raises:
        LoaderError: there is one phase instead of a list, or a mapping has an unknown field or a wrong value.
    """
    if not isinstance(phases, Sequence) or isinstance(phases, str):
        raise LoaderError(
            f"a curriculum is a list of phases, got {phases!r}: write [{{'duration_tokens': ..., 'mix': {{...}}}}]"
        )
    made = []
    for number, each in enumerate(phases, 1):
        if isinstance(each, kind):
            made.append(each)
        elif isinstance(each, Mapping | Phase):
            given = vars(each) if isinstance(each, Phase) else each
            made.append(build(kind, given, f"phase {number}", LoaderError))
        else:
            raise LoaderError(f"phase {number} is {each!r}: give its duration_tokens and mix, as a mapping has them")
    return tuple(made)


@dataclass(frozen=True)
class Drained:
    """A draw from a bucket without samples left; the bucket is None if no bucket of the phase has any."""

    sample: int
    phase: int
    bucket: str | None


@dataclass(frozen=True)
class PhaseTotals:
    """Range of samples of a planned phase, and its tokens from each bucket."""

    first_sample: int
    stop_sample: int
    tokens: Mapping[str, int]


Weights = npt.NDArray[np.float64]
"""Weights or shares of buckets."""
Picks = npt.NDArray[Any]
"""Bucket numbers: uint8, or uint16 for more than 255 buckets."""


def picked(shares: Weights, numbers: npt.NDArray[np.float64]) -> Picks:
    """Map numbers in [0, 1) to buckets by their shares, at least one of which is positive."""
    limits = np.cumsum(shares) / shares.sum()
    # Capped at the last bucket of the mix: by rounding, the last limit may be a little below 1.
    last = int(np.flatnonzero(np.diff(limits, prepend=0.0) > 0)[-1])
    return np.minimum(np.searchsorted(limits, numbers, "right"), last).astype(np.min_scalar_type(len(shares)))


def even_picks(shares: Weights, before: Longs, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
    """Return the next picks of a sequence in which every bucket is less than one sample away from its share.

    Among the first n samples, a bucket with share p has fewer than p n + 1 and more than p n - 1 (Tijdeman, "The
    chairman assignment problem", 1980). Its sample j must come after the first (j - 1) / p samples and within the first
    j / p, rounded up. The sample with the earliest deadline is taken first.

    Args:
        shares: shares of the buckets, with sum 1.
        before: int64 [buckets], samples already drawn from each.
        numbers: a number in [0, 1) for each pick, which chooses among buckets with the same deadline. Buckets with a
            share of 0 have no influence.
    """
    picks, drawn = np.empty(len(numbers), np.uint16), np.flatnonzero(shares)
    _pick_evenly(shares[drawn], before[drawn], numbers, picks)
    return drawn.astype(np.uint16)[picks]


@compiled
def _pick_evenly(shares: Any, taken: Any, numbers: Any, picks: Any) -> None:
    buckets, sample = len(shares), taken.sum()
    for place in range(len(numbers)):
        sample += 1
        # Floating-point products and quotients of shares may miss a whole number by rounding.
        rounding = min(1e-9 * sample, 0.25 / buckets)
        best, due = -1, np.int64(0)
        start = int(numbers[place] * buckets)
        for turn in range(buckets):
            bucket = (start + turn) % buckets
            share = shares[bucket]
            if share * sample - taken[bucket] <= rounding:
                continue
            deadline = np.int64(np.ceil((taken[bucket] + 1) / share - rounding))
            if best < 0 or deadline < due:
                best, due = bucket, deadline
        picks[place] = best
        taken[best] += 1


def first_dry(picks: Picks, left: Longs) -> tuple[int, int | None]:
    """Return the index of the first pick from a bucket without samples left, and the bucket; or the end and None."""
    stop, dry = len(picks), None
    for bucket, room in enumerate(left.tolist()):
        places = np.flatnonzero(picks == bucket)
        if len(places) > room and places[room] < stop:
            stop, dry = int(places[room]), bucket
    return stop, dry


@dataclass(frozen=True, eq=False)
class CurriculumPlan:
    """Bucket of every global sample, with the resulting totals.

    Attributes:
        names: names of the buckets.
        picks: uint8 [samples], or uint16 for more than 255 buckets: for each sample, the index of its bucket in
            ``names``.
        phases: samples and tokens of each phase that was begun.
        drained: draws at which buckets ran dry, in the order of samples.
        halted: whether the plan ends at such a draw, before the budget of its last phase is used up.
    """

    names: tuple[str, ...]
    picks: Picks
    phases: tuple[PhaseTotals, ...]
    drained: tuple[Drained, ...] = ()
    halted: bool = False

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.picks)

    def phase_of(self, sample: int) -> int:
        """Return the phase of a sample, counted from 0; samples after the end of the plan are in the last phase."""
        stops = [each.stop_sample for each in self.phases]
        return min(int(np.searchsorted(stops, sample, "right")), len(stops) - 1)

    def places(self, first: int, stop: int) -> tuple[Picks, Longs]:
        """Return the buckets of samples ``first`` to before ``stop``, and each sample's place in its bucket's order."""
        picks = self.picks[first:stop]
        if len(self.names) == 1:
            return picks, np.arange(first, first + len(picks))
        before = self.counts(first)
        places = np.empty(len(picks), np.int64)
        for bucket in set(picks.tolist()):
            where = np.flatnonzero(picks == bucket)
            places[where] = before[bucket] + np.arange(len(where))
        return picks, places

    def counts(self, sample: int) -> Longs:
        """Count the samples of each bucket before a sample: int64 [buckets]."""
        block = sample // BLOCK
        between = np.bincount(self.picks[block * BLOCK : sample], minlength=len(self.names))
        return np.asarray(self._before[block] + between)

    @cached_property
    def _before(self) -> Longs:
        """Samples of each bucket before each block: int64 [blocks, buckets]."""
        blocks = [self.picks[:0], *(self.picks[first : first + BLOCK] for first in range(0, len(self), BLOCK))]
        counts = [np.bincount(block, minlength=len(self.names)) for block in blocks]
        return np.asarray(np.cumsum(counts, axis=0))

    def fingerprint(self, samples: int) -> str:
        """Digest the buckets of the first ``samples`` samples; later ones may be planned anew."""
        block = min(samples, len(self)) // BLOCK
        rest = self._digest(self._digests[block], self.picks[block * BLOCK : samples])
        return blake2b(rest, digest_size=8).hexdigest()

    @cached_property
    def _digests(self) -> list[bytes]:
        chain = [b""]
        for first in range(0, len(self) - BLOCK + 1, BLOCK):
            chain.append(self._digest(chain[-1], self.picks[first : first + BLOCK]))
        return chain

    def _digest(self, before: bytes, picks: Picks) -> bytes:
        # Names instead of numbers: a phase with a new bucket renumbers the others.
        names = keyed_hash(self.names, "bucket", 0).astype("<u8")
        return blake2b(before + names[picks].tobytes(), digest_size=16).digest()


def plan_curriculum(
    phases: Sequence[Phase | Mapping[str, Any]],
    inventory: Mapping[str, npt.ArrayLike],
    *,
    seed: int = 0,
    mix_by: MixBy = "tokens",
    on_exhausted: OnExhausted = "error",
    mixing: Mixing = "random",
) -> CurriculumPlan:
    """Plan a curriculum: a pure function of its arguments.

    >>> plan = plan_curriculum([Phase(40, {"web": 3, "code": 1})], {"web": [8] * 9, "code": [8] * 9})
    >>> len(plan), dict(plan.phases[0].tokens)
    (5, {'code': 16, 'web': 24})

    Args:
        phases: phases in their order; each ends with the sample that reaches the sum of the budgets up to it.
        inventory: for each bucket, the token counts of its samples in their order of delivery.
        seed: seed of the draws.
        mix_by: "tokens" draws a bucket by its weight divided by the mean tokens of its samples, "samples" by its
            weight.
        on_exhausted: "renormalize" continues with the other buckets from the sample at which one runs dry; otherwise
            the plan ends there, without an error: see ``drained``. If no bucket of a mix has samples left, the next
            phase begins, with its own budget.
        mixing: "even" draws by :func:`even_picks`: of 196 samples at 70 to 30, 137 or 138 are from the first bucket;
            "random" takes 124 to 149 for 95 of 100 seeds.

    Raises:
        LoaderError: a phase names a bucket that is not in the inventory, or one without tokens.
    """
    wanted = phases_of(phases, Phase)
    if not wanted:
        raise LoaderError("a curriculum has no phases: add one or more")
    stock = {name: np.asarray(inventory[name], np.int64) for name in sorted(inventory)}
    if len(stock) > MOST_BUCKETS:
        raise LoaderError(f"{len(stock):,} buckets exceed the limit of {MOST_BUCKETS:,}: merge some")
    for number, phase in enumerate(wanted, 1):
        for bucket, weight in phase.mix.items():
            if bucket not in stock:
                known = listed(map(repr, stock))
                raise LoaderError(f"phase {number} draws from bucket {bucket!r}, which does not exist; known: {known}")
            if weight > 0 and not stock[bucket].any():
                raise LoaderError(f"phase {number} draws from bucket {bucket!r}, which has no tokens: remove it")
    shares = [_shares(phase, stock, mix_by) for phase in wanted]
    planning = _Planning(stock, shares, seed, on_exhausted == "renormalize", mixing)
    whole = planning.run(wanted)
    return CurriculumPlan(
        tuple(stock), np.concatenate(planning.picks), tuple(planning.totals), tuple(planning.drained), not whole
    )


def _shares(phase: Phase, stock: Mapping[str, Longs], mix_by: MixBy) -> Weights:
    weights = np.array([phase.mix.get(name, 0.0) for name in stock], np.float64)
    if mix_by == "tokens":
        weights /= [max(float(each.mean()), 1.0) if len(each) else 1.0 for each in stock.values()]
    return np.asarray(weights / weights.sum())


CHUNK = 1 << 16


@dataclass
class _Planning:
    """Planner that draws buckets, sample by sample, until the budgets are used up or a drawn bucket is exhausted."""

    inventory: Mapping[str, Longs]
    shares: Sequence[Weights]
    seed: int
    renormalize: bool
    mixing: Mixing
    picks: list[Picks] = field(default_factory=list)
    drained: list[Drained] = field(default_factory=list)
    totals: list[PhaseTotals] = field(default_factory=list)
    samples: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.names = list(self.inventory)
        self.used = np.zeros(len(self.names), np.int64)
        self.begun = self.used.copy()
        self.dry = np.zeros(len(self.names), np.bool_)

    def run(self, phases: Sequence[Phase]) -> bool:
        """Plan all phases; return False if the plan ends before the budget of its last phase is used up."""
        budget, whole = 0, True
        for number, phase in enumerate(phases):
            budget += phase.duration_tokens
            first, used = self.samples, self.used.copy()
            self.begun = used
            whole = self._run_phase(number, budget)
            tokens = {
                name: int(self.inventory[name][used[each] : self.used[each]].sum())
                for each, name in enumerate(self.names)
            }
            self.totals.append(PhaseTotals(first, self.samples, tokens))
            if not whole:
                if not self.renormalize:
                    return False
                budget = self.tokens  # the rest of this phase's budget is not carried over
        return whole

    def _run_phase(self, number: int, budget: int) -> bool:
        while self.tokens < budget:
            shares = np.where(self.dry, 0.0, self.shares[number])
            if not shares.sum() > 0:
                self.drained.append(Drained(self.samples, number, None))
                return False
            bucket = self._draw(shares, budget)
            if bucket is not None:
                self.drained.append(Drained(self.samples, number, self.names[bucket]))
                self.dry[bucket] = True
                self.begun = self.used.copy()
                if not self.renormalize:
                    return False
        return True

    def _draw(self, shares: Weights, budget: int) -> int | None:
        """Draw at most a chunk of samples, up to the budget or an exhausted bucket; return that bucket."""
        numbers = uniform_numbers(self.seed, "curriculum", self.samples, CHUNK)
        if self.mixing == "even":
            # Shares count from the beginning of a phase, or from the sample at which a bucket ran dry.
            chunk = even_picks(shares / shares.sum(), self.used - self.begun, numbers)
            chunk = chunk.astype(np.min_scalar_type(len(shares)))
        else:
            chunk = picked(shares, numbers)
        stop, bucket = first_dry(chunk, [len(each) for each in self.inventory.values()] - self.used)
        costs = np.zeros(stop, np.int64)
        for each, name in enumerate(self.names):
            places = np.flatnonzero(chunk[:stop] == each)
            costs[places] = self.inventory[name][self.used[each] : self.used[each] + len(places)]
        reached = int(np.searchsorted(self.tokens + np.cumsum(costs), budget)) + 1
        if reached <= stop:
            stop, bucket = reached, None
        self.tokens += int(costs[:stop].sum())
        self.used += np.bincount(chunk[:stop], minlength=len(self.names))
        self.samples += stop
        self.picks.append(chunk[:stop])
        return bucket


class BucketStock(NamedTuple):
    """Samples available in a bucket of a composed dataset, over all its epochs."""

    domain: str
    capacity: int
    samples: int

    @property
    def name(self) -> str:
        """Name of the bucket in a mix: "web/2048", or "2048" in a dataset without domains."""
        return f"{self.domain}/{self.capacity}" if self.domain else str(self.capacity)


@dataclass(frozen=True)
class ComposedPhase:
    """A stretch of training on composed samples.

    >>> ComposedPhase(5_000_000_000, mix={"web": 0.7, "code": 0.3}, capacities={2048: 0.5, 16384: 0.5})
    ComposedPhase(duration_tokens=5000000000, mix={'web': 0.7, 'code': 0.3}, capacities={2048: 0.5, 16384: 0.5})

    Without a mix, buckets are drawn in proportion to their remaining samples, so that they run dry together; with
    ``capacities``, this holds within each capacity. All weights are shares of tokens; they need not sum to 1.

    Attributes:
        duration_tokens: token budget, including padding. The phase ends with the step that reaches the sum of the
            budgets up to it.
        mix: weights of domains ("web"), of buckets ("web/2048"), or of both. The weight of a domain is split among its
            buckets in proportion to their remaining tokens, which keeps the domain's distribution of lengths.
        capacities: weights of capacities. With a mix of domains, every domain has these shares of capacities.

    Raises:
        LoaderError: the budget is below 1, a weight is negative or not a finite number, or no given weight is positive.
    """

    duration_tokens: int
    mix: Mapping[str, float] = field(default_factory=dict)
    capacities: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        check_phase(self.duration_tokens, bucket=self.mix, capacity=self.capacities)
        object.__setattr__(self, "capacities", {_capacity(each): self.capacities[each] for each in self.capacities})
        for name, weights in (("mix", self.mix), ("capacities", self.capacities)):
            if weights and not sum(weights.values()) > 0:
                raise LoaderError(f"{name} has no positive weight: set one, or remove {name}")


def _capacity(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, str) and given.isdecimal():
        return int(given)
    raise LoaderError(f"capacity {given!r} is not a number: give a number of tokens, as in capacities={{2048: 1.0}}")


def bucket_weights(phase: ComposedPhase, number: int, buckets: Sequence[BucketStock], left: Longs) -> Weights:
    """Return the share of tokens that a phase requests from each bucket: float64 [buckets].

    ``number`` counts phases from 1, for messages; ``left`` has the remaining samples of each bucket, int64 [buckets].

    Raises:
        LoaderError: the phase names an unknown bucket or capacity.
    """
    weights = np.zeros(len(buckets))
    tokens = np.array([each.capacity for each in buckets], np.float64) * left
    if phase.mix and phase.capacities:
        _cross(phase, number, buckets, weights)
    else:
        for name, weight in (phase.mix or phase.capacities or {None: 1.0}).items():
            weights += weight * _shares_of_meant(_meant(name, number, buckets), tokens)
    return np.asarray(weights / weights.sum())


def _cross(phase: ComposedPhase, number: int, buckets: Sequence[BucketStock], weights: Weights) -> None:
    places = {each.name: place for place, each in enumerate(buckets)}
    for domain, share in phase.mix.items():
        if domain in places or domain not in {each.domain for each in buckets}:
            raise LoaderError(
                f"phase {number} has capacities, and {domain!r} in its mix is not a domain; known: "
                f"{listed(map(repr, _domains(buckets)))}"
            )
        for capacity, weight in phase.capacities.items():
            name = BucketStock(domain, capacity, 0).name
            if share * weight > 0 and name not in places:
                raise _missing(name, number, buckets)
            if share * weight > 0:
                weights[places[name]] += share * weight


def _meant(name: str | int | None, number: int, buckets: Sequence[BucketStock]) -> npt.NDArray[np.bool_]:
    """Mark the buckets of a capacity, of this name, or of a domain; None marks all."""
    for kind in ("capacity", "name", "domain"):
        # A dataset without domains has the domain "", which no name refers to.
        meant = np.array([name is None or (name != "" and name == getattr(each, kind)) for each in buckets])
        if meant.any():
            return meant
    raise _missing(name, number, buckets)


def _missing(name: str | int | None, number: int, buckets: Sequence[BucketStock]) -> LoaderError:
    if isinstance(name, int):
        known = listed(map(str, sorted({each.capacity for each in buckets})))
        return LoaderError(f"phase {number} draws from capacity {name}, which does not exist; known: {known}")
    known = listed(map(repr, [*_domains(buckets), *(each.name for each in buckets)]))
    return LoaderError(f"phase {number} draws from {name!r}, which is not there or has no sample; known: {known}")


def _shares_of_meant(meant: npt.NDArray[np.bool_], tokens: Weights) -> Weights:
    """Split a share of 1 among the marked buckets by their remaining tokens, or evenly if they have none left."""
    weights = np.where(meant, tokens, 0.0)
    if not weights.sum() > 0:
        weights = meant.astype(np.float64)
    return np.asarray(weights / weights.sum())


def _domains(buckets: Sequence[BucketStock]) -> list[str]:
    return sorted({each.domain for each in buckets if each.domain})


def buckets_called(name: str | None, buckets: Sequence[BucketStock]) -> list[str]:
    """Return the names of the buckets that a name refers to: a bucket, a domain, a capacity, or None for all."""
    for called in (lambda each: each.name, lambda each: each.domain, lambda each: str(each.capacity)):
        if meant := [each.name for each in buckets if name in (called(each), None)]:
            return meant
    return []
