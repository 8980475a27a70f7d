"""From a sample of parts and of documents to totals, with an interval for each.

Parts are drawn without replacement, then documents from each with chances that grow with their size (priority sampling:
N. Duffield, C. Lund, M. Thorup, "Priority sampling for estimation of arbitrary subset sums", 2007), because a few long
documents are most of the tokens. A part's total is its documents over their chances, in proportion to what is known of
the whole part: its documents, or their size. Parts are scaled in proportion to their bytes (Cochran, Sampling
Techniques, chapters 6 and 11). Where all parts were read their share of the variance is gone, and where all documents
were, a total is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2, sqrt

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

Values = Sequence[Doubles]
"""A quantity of every sampled document, 0 of those that have left: float64 [documents] for each part that was read."""

CONFIDENT = 1.96
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""The 97.5 % quantiles of Student's t with 1 to 10 degrees of freedom."""
UNSEEN_CASES = 2
"""Documents that an interval allows for and the sample does not have."""


@dataclass(frozen=True)
class Estimate:
    """A figure, and an interval that holds the truth about 19 times of 20."""

    value: float
    low: float
    high: float

    def __contains__(self, truth: float) -> bool:
        return self.low <= truth <= self.high

    def __add__(self, other: "Estimate") -> "Estimate":
        """Add figures of one run: their errors go together, so the ends are added."""
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def scaled(self, factor: "Estimate | float") -> "Estimate":
        """Multiply by a number, or by a factor that is itself only known to an interval; all are 0 or more."""
        by = exact(factor) if isinstance(factor, float) else factor
        return Estimate(self.value * by.value, self.low * by.low, self.high * by.high)

    def at_most(self, other: "Estimate") -> "Estimate":
        """Return the figure of what is a part of another one."""
        return Estimate(min(self.value, other.value), min(self.low, other.high), min(self.high, other.high))

    def within(self, factor: float, more: float = 0.0) -> "Estimate":
        """Return an interval that is this many times wider at both ends, and has so much more at its upper end."""
        return Estimate(self.value, self.low / factor, self.high * factor + more)

    def widened(self, share: float) -> "Estimate":
        """Return an interval that is this share wider at both ends."""
        return Estimate(self.value, self.low * (1 - share), self.high * (1 + share))


def exact(value: float) -> Estimate:
    """Return a figure that is known."""
    return Estimate(value, value, value)


@dataclass(frozen=True, eq=False)
class Drawn:
    """How a sample was drawn."""

    parts: int
    """Of the source."""
    size: float
    """Of all parts, in bytes or in parts."""
    part_sizes: Doubles
    """Of those that were read, in the same unit."""
    chances: Values
    """Of each sampled document to be in the sample."""
    document_sizes: Values
    """Of each sampled document, in characters, or 1."""
    documents: Doubles
    """In each part that was read."""
    totals: Doubles
    """The sizes of all its documents together."""

    @property
    def looked_at(self) -> float:
        """The share of the source that was read."""
        return float(self.part_sizes.sum()) / self.size


def estimate_total(values: Values, drawn: Drawn, *, counts: bool = False) -> Estimate:
    """Return the total of a quantity of the sampled documents over all documents of all parts.

    With ``counts`` a document has 0 or 1 of it; other quantities are taken to grow with its size.

    >>> one = (np.ones(100),)
    >>> drawn = Drawn(1, 1.0, np.ones(1), one, one, np.array([100.0]), np.array([100.0]))
    >>> estimate_total([np.arange(100) % 4 == 0], drawn, counts=True)
    Estimate(value=25.0, low=25.0, high=25.0)
    """
    totals, variances = np.zeros(len(values)), np.zeros(len(values))
    for place, (amounts, chances, sizes) in enumerate(zip(values, drawn.chances, drawn.document_sizes, strict=True)):
        known, known_total = (np.ones(len(amounts)), drawn.documents) if counts else (sizes, drawn.totals)
        reference = float((known / chances).sum())
        share = float((amounts / chances).sum()) / reference if reference else 0.0
        unlikely = (1 - chances) / chances**2
        totals[place] = share * known_total[place]
        variances[place] = float(((amounts - share * known) ** 2 * unlikely).sum())
        # An unseen case is any document, of a quantity one that has gone and is like those that stay.
        cases = np.ones(len(amounts)) if counts else amounts
        there = float(((cases > 0) / chances).sum())
        variances[place] += UNSEEN_CASES * float((cases**2 * unlikely / chances).sum()) / max(there, 1.0)
    seen = sum(float(np.sum(each)) for each in values)
    return _over_parts(totals, variances, drawn, seen)


def estimate_parts(totals: Sequence[float], drawn: Drawn) -> Estimate:
    """Return the total of what is known of every part that was read."""
    known = np.array(totals, np.float64)
    return _over_parts(known, np.zeros(len(known)), drawn, float(known.sum()))


def _over_parts(totals: Doubles, variances: Doubles, drawn: Drawn, seen: float) -> Estimate:
    value = float(totals.sum()) / drawn.looked_at
    between = _between(totals, drawn)
    within = sqrt(float(variances.sum()) / drawn.looked_at * drawn.parts / max(len(totals), 1))
    error = inf if between == inf else sqrt(between**2 + (CONFIDENT * within) ** 2)
    return Estimate(value, max(value - error, seen), max(value + error, seen))


def _between(totals: Doubles, drawn: Drawn) -> float:
    """Return half the interval that comes from having read some parts only."""
    read = len(totals)
    if read == drawn.parts:
        return 0.0
    if read < 2:
        return inf
    residuals = totals - drawn.part_sizes * (totals.sum() / drawn.part_sizes.sum())
    variance = drawn.parts**2 * (1 - read / drawn.parts) / read * float((residuals**2).sum()) / (read - 1)
    freedom = read - 1
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else CONFIDENT + 2.65 / freedom
    return quantile * sqrt(variance)


@dataclass(frozen=True)
class Thinning:
    """How much a survey removed from the sample, and from half of it: duplicates are rarer among few documents.

    In clusters of two the share removed grows in proportion to the share of documents that is looked at; in larger ones
    more slowly. So the share removed of all documents lies between that of the sample and that in proportion. The
    figure itself follows the growth from half of the sample to all of it.
    """

    documents: float
    """Sampled documents that came, which the noise comes from."""
    removed: float
    """The share of the sample that was removed, of documents or of their size."""
    half_removed: float
    """The share that was removed of half of the sample."""
    looked_at: float
    """The share of all documents that were in the sample, as seen by those that were removed."""

    def kept(self) -> Estimate:
        """Return the share that stays of all documents, over the share that stays of the sample.

        >>> round(Thinning(1000, 0.1, 0.05, 0.5).kept().value * 0.9, 6)
        0.8
        """
        if self.looked_at >= 1 or not self.documents:
            return exact(1.0)
        growth = min(max(log2(self.removed / self.half_removed), 0.0), 1.0) if self.half_removed > 0 else 1.0
        most = 1 - (1 - self.removed) * self.looked_at
        noise = CONFIDENT * sqrt((self.removed * (1 - self.removed) + 1 / self.documents) / self.documents)
        likely = min(self.removed * self.looked_at**-growth, most)
        highest = min((self.removed + noise) / self.looked_at, most)
        lowest = max(self.removed - noise, 0.0)
        stays = max(1 - self.removed, 1 / self.documents)
        return Estimate((1 - likely) / stays, (1 - highest) / stays, (1 - lowest) / stays)
