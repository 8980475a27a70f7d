"""What is planned of a composed dataset: the samples of each split and domain, and their measures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longcrawl.composition.buckets import Buckets
from longcrawl.composition.measures import Bucket, Composition, combine, measure
from longcrawl.composition.plan import Longs, Plan, Strategy
from longcrawl.formats.documents.spec import UNKNOWN
from longcrawl.storage.files import whole_file

PIECE = np.dtype([("document", "<i8"), ("start", "<i8"), ("size", "<i8")])
"""A piece of a plan in its file."""


@dataclass(frozen=True)
class PlannedBucket:
    """The samples of one capacity of one split and domain."""

    path: str
    """``train/2048``, or ``train/web/2048``."""
    capacity: int
    samples: int
    pieces: int
    documents: int
    """Whose first token is in one of them."""
    tokens: int
    """Of documents, without padding."""
    plan: int
    first: int
    """The first of its samples in the plan."""
    first_document: int


@dataclass(frozen=True)
class PlannedSplit:
    """The plan of one split, or of one domain of it."""

    split: str
    domain: str | None
    """The value; None where there are no domains, or for documents without one."""
    folder: str
    """Of the domain; empty where there are no domains."""
    plan: int
    first_document: int
    """Place of its first document in the order of all."""
    documents: int
    pieces: tuple[int, ...]
    """In each bucket."""
    composition: Composition

    @property
    def path(self) -> str:
        """Where its buckets are."""
        return f"{self.split}/{self.folder}" if self.folder else self.split

    @property
    def name(self) -> str:
        """What a mix calls the domain: its value; its folder where that is none, empty or called as none is."""
        return self.domain if self.domain and self.domain != UNKNOWN else self.folder

    def buckets(self) -> Iterator[PlannedBucket]:
        """Return the buckets that have samples, the smallest first."""
        first = 0
        for bucket, pieces in zip(self.composition.buckets, self.pieces, strict=True):
            path, place = f"{self.path}/{bucket.capacity}", (self.plan, first, self.first_document)
            if bucket.samples:
                counts = (bucket.samples, pieces, bucket.documents, bucket.tokens)
                yield PlannedBucket(path, bucket.capacity, *counts, *place)
            first += bucket.samples

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any]) -> "PlannedSplit":
        """Read what ``dataclasses.asdict`` made, and JSON of it."""
        known = {**numbers, "pieces": tuple(numbers["pieces"]), "composition": composition_of(numbers["composition"])}
        return cls(**known)


def composition_of(numbers: Mapping[str, Any]) -> Composition:
    """Read a composition from the numbers that :func:`composition_numbers` gives, or ``dataclasses.asdict``."""
    names = Composition.__dataclass_fields__
    known = {name: numbers[name] for name in names if name != "buckets"}
    return Composition(**known, buckets=tuple(Bucket(**each) for each in numbers["buckets"]))


def composition_numbers(composition: Composition) -> dict[str, Any]:
    """Return a composition for JSON: its counts, and the ratios that follow from them."""
    ratios = ("r_pad", "r_tru", "r_cat", "r_tru_tokens", "pieces_per_sample", "context_share", "dropped")
    return {**{name: getattr(composition, name) for name in ratios}, **asdict(composition)}


def plan_split(
    spill: Path, strategy: Strategy, seed: int, lengths: Longs, where: tuple[str, str | None, str, int, int]
) -> PlannedSplit:
    """Plan documents of these lengths, write the plan, and measure it.

    Args:
        spill: the folder to write to.
        strategy: its samples are shuffled within their buckets, whatever their order in its plan.
        seed: of the shuffle.
        lengths: int64 [documents], tokens of each.
        where: split, domain and its folder, number of the plan, place of the first document.

    """
    plan = strategy.plan(lengths)
    plan = plan if isinstance(strategy, Buckets) else plan.in_buckets(seed)
    _save_plan(spill, where[3], plan)
    counts = np.diff(plan.bounds)
    pieces = tuple(int(counts[plan.capacities == capacity].sum()) for capacity in strategy.capacities)
    measured = measure(plan, strategy.label, strategy.capacities)
    return PlannedSplit(*where, len(lengths), pieces, measured)


def by_split(plans: Sequence[PlannedSplit]) -> dict[str, Composition]:
    """Measure each split, over its domains."""
    splits = dict.fromkeys(each.split for each in plans)
    found = {}
    for split in splits:
        here = [each.composition for each in plans if each.split == split]
        found[split] = combine(here, here[0].label)
    return found


def _save_plan(spill: Path, number: int, plan: Plan) -> None:
    """Write a plan, so that the pieces of any samples can be read."""
    pieces = np.empty(len(plan.sizes), PIECE)
    pieces["document"], pieces["start"], pieces["size"] = plan.documents, plan.starts, plan.sizes
    for suffix, values in (("pieces", pieces), ("bounds", plan.bounds)):
        with whole_file(spill / f"plan-{number:05d}.{suffix}") as beside:
            values.tofile(beside)
