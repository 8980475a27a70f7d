"""Phases of training on a composed dataset: a budget each, with weights of domains, of capacities, or of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.composition.plan import Longs
from longcrawl.core.fields import check_fields
from longcrawl.errors import LoaderError
from longcrawl.loading.curriculum import check_phase
from longcrawl.printable import listed

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
            weights += weight * _shares(_of_capacity(capacity, number, buckets), tokens)
    else:
        weights = _shares(np.ones(len(buckets), np.bool_), tokens)
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
        weights += weight * _shares(meant, tokens)
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


def _shares(meant: npt.NDArray[np.bool_], tokens: Weights) -> Weights:
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
