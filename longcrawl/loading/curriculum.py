"""Curricula: phases with token budgets and mixes over buckets, planned up front.

Sample g of a plan comes from the bucket that number g of a counter-based generator (Philox) picks, so neither rank nor
worker nor what was drawn before takes part in the choice. From a bucket samples are taken in its own order, once each,
through all phases: a phase begins where the one before it stopped. What a bucket holds is known, so where it runs dry
is known, too, before a step is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
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
"""What the numbers of a mix are shares of."""

Mixing = Literal["random", "even"]
"""How samples draw their buckets: each by itself, so that shares differ from the weights as those of coins do, or in an
order in which the first n samples of a phase have the shares of the mix, to less than one sample, for every n."""

OnExhausted = Literal["error", "halt", "renormalize"]
"""What becomes of a plan in which a bucket runs dry: rejected, cut there, or continued without the bucket, and
with the next phase where nothing of a mix is left."""

BLOCK = 1 << 12
MOST_BUCKETS = 65_535


@dataclass(frozen=True)
class Phase:
    """A stretch of training on one mix.

    >>> Phase(5_000_000_000, {"web": 0.6, "code": 0.2, "math": 0.1, "wiki": 0.1})
    Phase(duration_tokens=5000000000, mix={'web': 0.6, 'code': 0.2, 'math': 0.1, 'wiki': 0.1})

    Attributes:
        duration_tokens: its budget. Tokens of samples are counted, padding is not.
        mix: weights of buckets, which need not sum to 1.

    Raises:
        LoaderError: the budget is below 1, or the weights are not numbers from 0 on of which one is positive.

    """

    duration_tokens: int
    mix: Mapping[str, float]

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        check_phase(self.duration_tokens, bucket=self.mix)
        if not sum(self.mix.values()) > 0:
            raise LoaderError(
                "a phase has no bucket with a weight: give one a positive weight, as mix={'web': 1.0} has"
            )


class ConfiguredPhases(tuple[Phase, ...]):  # noqa: SLOT001  # its attributes have defaults
    """Phases of a configuration of GPT-Simple, with what else it says of the samples of a feed.

    Attributes:
        max_length: tokens of a sample; None if the configuration does not say it.
        packed: whether documents share samples.
        uniform: whether there is no curriculum, so that all buckets are drawn alike.
        samples: that training takes on each rank; None if the configuration does not say it.

    """

    max_length: int | None = None
    packed: bool = True
    uniform: bool = False
    samples: int | None = None

    def __new__(cls, phases: Sequence[Phase] = (), **settings: Any) -> Self:
        """Take phases, and attributes by their names."""
        made = super().__new__(cls, phases)
        made.__dict__.update(settings)
        return made


Kind = TypeVar("Kind")


def check_phase(duration_tokens: int, **weights: Mapping[Any, Any]) -> None:
    """Check the budget of a phase, and that weights, by what they are of, are numbers from 0 on.

    Raises:
        LoaderError: naming the first that is not.

    """
    if duration_tokens < 1:
        raise LoaderError(f"duration_tokens is {duration_tokens:,}: give a phase 1 token or more")
    for of, given in weights.items():
        for name, weight in given.items():
            if not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
                raise LoaderError(f"the weight of {of} {name!r} is {quoted(weight)}: give a number from 0 on")


def phases_of(phases: Any, kind: type[Kind]) -> tuple[Kind, ...]:
    """Return phases as phases of one kind, also of mappings of their fields, as YAML has them, or of plain phases.

    Raises:
        LoaderError: there is one phase and no list, or a mapping has another field, or a wrong value.

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


def even_picks(
    shares: npt.NDArray[np.float64], before: Longs, numbers: npt.NDArray[np.float64]
) -> npt.NDArray[np.uint16]:
    """Return the next picks of a sequence in which no bucket is a whole sample away from its share.

    Of the first n samples, a bucket with the share p has less than p n + 1 and more than p n - 1 (Tijdeman, "The
    chairman assignment problem", 1980). Its sample j must come after the first (j - 1) / p samples and within the first
    j / p, rounded up; the sample that is due first comes first, which on one processor meets all deadlines that can be
    met.

    Args:
        shares: of the buckets; their sum is 1.
        before: int64 [buckets], the samples of each so far.
        numbers: in [0, 1), one for each pick; they choose among buckets with the same deadline. Buckets without a
            share make no difference.

    """
    picks, drawn = np.empty(len(numbers), np.uint16), np.flatnonzero(shares)
    _compiled_pick_evenly()(shares[drawn], before[drawn], numbers, picks)
    return drawn.astype(np.uint16)[picks]


@cache
def _compiled_pick_evenly() -> Any:
    return compiled(_pick_evenly)


def _pick_evenly(shares: Any, taken: Any, numbers: Any, picks: Any) -> None:
    buckets, sample = len(shares), taken.sum()
    for place in range(len(numbers)):
        sample += 1
        # A share times a sample, and its inverse, are rounded: a whole number stands for itself.
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
    """Return the first pick for which a bucket has nothing left, and that bucket; where all have, the end and None.

    Args:
        picks: numbers of buckets.
        left: int64 [buckets], what each has.

    """
    stop, dry = len(picks), None
    for bucket, room in enumerate(left.tolist()):
        places = np.flatnonzero(picks == bucket)
        if len(places) > room and places[room] < stop:
            stop, dry = int(places[room]), bucket
    return stop, dry


@dataclass(frozen=True, eq=False)
class CurriculumPlan:
    """One bucket per global sample, and what that comes to.

    Attributes:
        names: of the buckets.
        picks: uint8 [samples], or uint16 where there are more than 255 buckets: for each sample the place of its
            bucket in ``names``.
        phases: samples and tokens of each phase that was begun.
        drained: where buckets ran dry, in the order of samples.
        halted: whether the plan ends where one did, before its last phase is spent.

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
        """Return the phase, counted from 0, that a sample is in; the last one for what comes after the plan."""
        stops = [each.stop_sample for each in self.phases]
        return min(int(np.searchsorted(stops, sample, "right")), len(stops) - 1)

    def places(self, first: int, stop: int) -> tuple[Picks, Longs]:
        """Return the bucket of samples ``first`` to before ``stop``, and how many samples of it come before each."""
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
        blocks = [self.picks[first : first + BLOCK] for first in range(0, len(self) + 1, BLOCK)]
        counts = [np.bincount(block, minlength=len(self.names)) for block in blocks]
        return np.asarray(np.cumsum([np.zeros(len(self.names), np.int64), *counts[:-1]], axis=0))

    def fingerprint(self, samples: int) -> str:
        """Digest the buckets of the first ``samples`` samples; what comes after them may be planned again."""
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
        # Buckets by their names, not numbers: a phase with a new bucket renumbers the others.
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
        phases: in their order; each ends with the sample that reaches the sum of the budgets up to it.
        inventory: for each bucket the tokens of its samples, in the order in which they would be delivered.
        seed: of the draws.
        mix_by: "tokens" draws a bucket by its weight over the mean tokens of its samples; "samples" by its weight.
        on_exhausted: "renormalize" continues with the other buckets from the sample at which one runs dry; otherwise
            the plan ends there. Where nothing of a mix is left, its phase ends and the next one has its own budget.
            Nothing is raised for it: see ``drained``.
        mixing: "even" draws by :func:`even_picks`: of 196 samples at 70 to 30, 137 or 138 are of the first bucket;
            "random" gives 124 to 149 in 95 of 100 seeds.

    Raises:
        LoaderError: a phase names a bucket that is not in the inventory, or one without tokens.

    """
    wanted = phases_of(phases, Phase)
    if not wanted:
        raise LoaderError("a curriculum has no phase: add one or more")
    stock = {name: np.asarray(inventory[name], np.int64) for name in sorted(inventory)}
    if len(stock) > MOST_BUCKETS:
        raise LoaderError(f"{len(stock):,} buckets are more than {MOST_BUCKETS:,}: put some of them together")
    _check_buckets(wanted, stock)
    shares = [_shares(phase, stock, mix_by) for phase in wanted]
    planning = _Planning(stock, shares, seed, on_exhausted == "renormalize", mixing)
    whole = planning.run(wanted)
    return CurriculumPlan(
        tuple(stock), np.concatenate(planning.picks), tuple(planning.totals), tuple(planning.drained), not whole
    )


def _check_buckets(phases: Sequence[Phase], stock: Mapping[str, Longs]) -> None:
    for number, phase in enumerate(phases, 1):
        for bucket, weight in phase.mix.items():
            if bucket not in stock:
                known = listed(map(repr, stock))
                raise LoaderError(f"phase {number} draws from bucket {bucket!r}, which is not there; known: {known}")
            if weight > 0 and not stock[bucket].any():
                raise LoaderError(f"phase {number} draws from bucket {bucket!r}, which has no token: take it out")


def _shares(phase: Phase, stock: Mapping[str, Longs], mix_by: MixBy) -> npt.NDArray[np.float64]:
    weights = np.array([phase.mix.get(name, 0.0) for name in stock], np.float64)
    if mix_by == "tokens":
        weights /= [max(float(each.mean()), 1.0) if len(each) else 1.0 for each in stock.values()]
    return np.asarray(weights / weights.sum())


CHUNK = 1 << 16


@dataclass
class _Planning:
    """Draws buckets, sample by sample, until the budgets are spent or a bucket that is drawn has nothing left."""

    inventory: Mapping[str, Longs]
    shares: Sequence[npt.NDArray[np.float64]]
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
        """Plan all phases; False where the plan ends before its last phase is spent."""
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
                self.begun = self.used.copy()
                if not self.renormalize:
                    return False
        return True

    def _draw(self, shares: npt.NDArray[np.float64], budget: int) -> tuple[Picks, int | None]:
        """Draw up to a chunk of buckets: as far as the budget reaches, or to the draw that a bucket cannot answer."""
        numbers = uniform_numbers(self.seed, "curriculum", self.samples, CHUNK)
        if self.mixing == "even":
            # Shares hold from the beginning of a phase, and again from where a bucket runs dry.
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
            return chunk[:reached], None
        return chunk[:stop], bucket

    def _take(self, chunk: Picks) -> None:
        taken = np.bincount(chunk, minlength=len(self.names))
        for each, name in enumerate(self.names):
            self.tokens += int(self.inventory[name][self.used[each] : self.used[each] + taken[each]].sum())
        self.used += taken
        self.samples += len(chunk)
        self.picks.append(chunk)


Weights = npt.NDArray[np.float64]


class BucketStock(NamedTuple):
    """What a bucket of a composed dataset has to give, all its epochs."""

    domain: str
    capacity: int
    samples: int

    @property
    def name(self) -> str:
        """What a mix calls it: "web/2048", or "2048" where there are no domains."""
        return f"{self.domain}/{self.capacity}" if self.domain else str(self.capacity)


@dataclass(frozen=True)
class ComposedPhase:
    """A stretch of training on composed samples.

    >>> ComposedPhase(5_000_000_000, mix={"web": 0.7, "code": 0.3}, capacities={2048: 0.5, 16384: 0.5})
    ComposedPhase(duration_tokens=5000000000, mix={'web': 0.7, 'code': 0.3}, capacities={2048: 0.5, 16384: 0.5})

    What is given no weight is drawn from what is left, without replacement, so that nothing runs dry before the rest.
    All weights are shares of tokens; they need not sum to 1.

    Attributes:
        duration_tokens: its budget. Every token of a step counts, padding, too, so it is a number of steps; the phase
            ends with the step that reaches the sum of the budgets up to it.
        mix: weights of domains ("web"), of buckets ("web/2048"), or of some of both. A domain that stands in for its
            buckets keeps its own distribution of lengths, as far as it is left.
        capacities: weights of capacities. Together with a mix of domains, every domain has these shares of capacities.

    Raises:
        LoaderError: the budget is below 1, or the weights are not numbers from 0 on of which one is positive.

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
                raise LoaderError(f"{name} has no positive weight: give it one, or leave {name} out")


def _capacity(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, str) and given.isdecimal():
        return int(given)
    raise LoaderError(f"capacity {given!r} is not a number: give one of tokens, as capacities={{2048: 1.0}} has")


def bucket_weights(phase: ComposedPhase, number: int, buckets: Sequence[BucketStock], left: Longs) -> Weights:
    """Return the share of tokens that a phase asks of each bucket: float64 [buckets].

    Args:
        phase: what was asked for.
        number: of the phase, counted from 1.
        buckets: all that there are.
        left: int64 [buckets], samples that are left.

    Raises:
        LoaderError: it names a bucket or a capacity that is not there.

    """
    tokens = np.array([each.capacity for each in buckets], np.float64) * left
    if phase.mix and phase.capacities:
        weights = _crossed(phase, number, buckets)
    elif phase.mix:
        weights = _mixed(phase, number, buckets, tokens)
    elif phase.capacities:
        weights = np.zeros(len(buckets))
        for capacity, weight in phase.capacities.items():
            weights += weight * _shares_of_meant(_of_capacity(capacity, number, buckets), tokens)
    else:
        weights = _shares_of_meant(np.ones(len(buckets), np.bool_), tokens)
    return np.asarray(weights / weights.sum())


def _crossed(phase: ComposedPhase, number: int, buckets: Sequence[BucketStock]) -> Weights:
    places = {each.name: place for place, each in enumerate(buckets)}
    weights = np.zeros(len(buckets))
    for domain, share in phase.mix.items():
        if domain in places or not any(each.domain == domain for each in buckets):
            raise LoaderError(
                f"phase {number} has capacities, and {domain!r} in its mix is not a domain; known: "
                f"{listed(map(repr, _domains(buckets)))}"
            )
        for capacity, weight in phase.capacities.items():
            name = BucketStock(domain, capacity, 0).name
            if share * weight > 0:
                weights[places[name] if name in places else _missing(name, number, buckets)] += share * weight
    return weights


def _mixed(phase: ComposedPhase, number: int, buckets: Sequence[BucketStock], tokens: Weights) -> Weights:
    weights = np.zeros(len(buckets))
    for name, weight in phase.mix.items():
        meant = np.array([each.name == name for each in buckets])
        if not meant.any():
            meant = np.array([bool(each.domain) and each.domain == name for each in buckets])
        if not meant.any():
            _missing(name, number, buckets)
        weights += weight * _shares_of_meant(meant, tokens)
    return weights


def _of_capacity(capacity: int, number: int, buckets: Sequence[BucketStock]) -> npt.NDArray[np.bool_]:
    meant = np.array([each.capacity == capacity for each in buckets])
    if not meant.any():
        known = listed(str(each) for each in sorted({each.capacity for each in buckets}))
        raise LoaderError(f"phase {number} draws from capacity {capacity}, which is not there; known: {known}")
    return meant


def _missing(name: str, number: int, buckets: Sequence[BucketStock]) -> int:
    known = listed(map(repr, [*_domains(buckets), *(each.name for each in buckets)]))
    raise LoaderError(f"phase {number} draws from {name!r}, which is not there or has no sample; known: {known}")


def _shares_of_meant(meant: npt.NDArray[np.bool_], tokens: Weights) -> Weights:
    """Share 1 among the buckets that are meant, by what is left of them; evenly where nothing is."""
    weights = np.where(meant, tokens, 0.0)
    if not weights.sum() > 0:
        weights = meant.astype(np.float64)
    return np.asarray(weights / weights.sum())


def _domains(buckets: Sequence[BucketStock]) -> list[str]:
    return sorted({each.domain for each in buckets if each.domain})


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
