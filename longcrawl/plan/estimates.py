"""From a sample of a source, some parts read whole and some documents of each, to totals with an interval for each.

Parts are drawn without replacement, then documents from each with chances that grow with their size (priority sampling:
N. Duffield, C. Lund, M. Thorup, "Priority sampling for estimation of arbitrary subset sums", 2007), because a few long
documents are most of the tokens. A part's total is its documents over their chances, in proportion to what is known of
the whole part: its documents, or their size. Parts are scaled in proportion to their bytes (Cochran, Sampling
Techniques, chapters 6 and 11). Where all parts were read their share of the variance is gone, and where all documents
were, a total is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log2, sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.clock import CoreClock
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.errors import RunError
from longcrawl.ledger.funnel import total
from longcrawl.run.gathered_parts import read_gathered
from longcrawl.run.part import characters

Doubles = npt.NDArray[np.float64]

Values = Sequence[Doubles]
"""A quantity of every sampled document, 0 of those that have left: float64 [documents] for each part that was read."""

CONFIDENT = 1.96
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""The 97.5 % quantiles of Student's t with 1 to 10 degrees of freedom."""
UNSEEN_CASES = 2
"""Documents that an interval allows for and the sample does not have."""
TYPICAL = 3000.0
"""Characters: documents below it are drawn almost alike, longer ones in proportion to their length."""


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


@dataclass(frozen=True, eq=False)
class SampledPart:
    """One part that was read, and the documents that were drawn from it."""

    number: int
    """Of the part among all parts of the source."""
    size: float
    """Bytes of its files, or 1 where the files of a part are not known."""
    documents: int
    """In the whole part."""
    characters: int | None
    """In the texts of the whole part, where it has texts."""
    document_size: float
    """The sizes of all its documents together, as ``sizes`` has them."""
    tables: int
    """In which the source gave them."""
    seconds: float
    """Of a core, that reading the whole part took."""
    table: pa.Table
    chances: Doubles
    """Of each document of the table to be there: float64 [documents]."""
    sizes: Doubles
    """Characters of each, in ``text`` or ``html``, or 1."""


@dataclass(frozen=True, eq=False)
class Sample:
    """What was read of a source."""

    parts: int
    """Of the source."""
    size: float
    """The sizes of all parts together."""
    read: tuple[SampledPart, ...]
    start: float
    """Seconds of a core before the first documents came: imports, and what is compiled."""

    @property
    def together(self) -> float:
        """How many documents the source gave together, on average."""
        return max(sum(part.documents for part in self.read) / max(sum(part.tables for part in self.read), 1), 1.0)

    def among(self, files: int) -> "Sample":
        """Return the sample as one of so many parts, of which those of the source are as good as any other draw.

        Raises:
            RunError: fewer than that were read, or only one, which does not say how parts differ.
        """
        read = len(self.read)
        if files < read:
            raise RunError(
                f"--files {files} is less than the {read} files that were sampled: sample fewer with --parts"
            )
        if read < 2 and files > read:
            raise RunError(
                f"--files {files} needs a sample of 2 files, and the source has {self.parts}: add others to it"
            )
        return replace(self, parts=files, size=self.size * files / self.parts)

    @property
    def drawn(self) -> Drawn:
        """How the documents were drawn."""
        read = self.read
        return Drawn(
            self.parts,
            self.size,
            np.array([part.size for part in read]),
            [part.chances for part in read],
            [part.sizes for part in read],
            np.array([part.documents for part in read], np.float64),
            np.array([part.document_size for part in read], np.float64),
        )


def draw_sample(source: Source, parts: Sequence[Part], least_parts: int, most_documents: int, seed: int) -> Sample:
    """Read some parts whole, and draw documents from each; who is drawn depends on names, places and the seed alone.

    Where ``least_parts`` have fewer than ``most_documents``, more are read; small parts may give a few documents more.

    Raises:
        SourceError: a part cannot be read, and the source's policy is "error".
    """
    sizes = _part_sizes(parts)
    order = np.argsort(keyed_hash((part.name for part in parts), "parts of a plan", seed), kind="stable")
    share = -(-most_documents // max(min(least_parts, len(parts)), 1))
    clock = CoreClock()
    with clock.measure("start"):
        next(iter(source.read(parts[order[0]].each()[0], BadFiles("skip"))), None)
    read: list[SampledPart] = []
    for number in order.tolist():
        if len(read) >= least_parts and sum(part.documents for part in read) >= most_documents:
            break
        read.append(_read(source, parts[number], number, sizes[number], share, seed))
    read.sort(key=lambda part: part.number)
    return Sample(len(parts), float(sizes.sum()), tuple(read), clock.seconds["start"])


def _part_sizes(parts: Sequence[Part]) -> Doubles:
    """Return the bytes of the files of each part; 1 for each if there is one that has no local files."""
    sizes = [sum(Path(file).stat().st_size for file in part.files if Path(file).is_file()) for part in parts]
    return np.array(sizes if all(sizes) else [1] * len(parts), np.float64)


def _read(source: Source, part: Part, number: int, size: float, most: int, seed: int) -> SampledPart:
    chosen = keyed_hash([part.name], "documents of a plan", seed)
    drawing = _Drawing(source.schema().empty_table(), most, np.random.default_rng(chosen))
    letters, count, clock = total([0]), 0, CoreClock()
    tables = read_gathered(source, part, BadFiles(source.on_bad_files))
    while True:
        with clock.measure("read"):
            table = next(tables, None)
        if table is None:
            break
        drawing.add(table)
        count += 1
        letters = total([letters, characters(table)])
    kept, chances, sizes = drawing.finish()
    return SampledPart(
        number, size, drawing.documents, letters, drawing.size, count, clock.seconds["read"], kept, chances, sizes
    )


class _Drawing:
    """Priority sampling of a stream of documents: the ``most`` of the smallest keys stay, and one more."""

    def __init__(self, empty: pa.Table, most: int, chance: np.random.Generator) -> None:
        self.kept, self.most, self.chance = empty, most, chance
        self.keys, self.sizes = np.empty(0), np.empty(0)
        self.documents, self.size = 0, 0.0

    def add(self, table: pa.Table) -> None:
        sizes = _sizes(table)
        self.kept = pa.concat_tables([self.kept, table]) if self.documents else table
        self.documents, self.size = self.documents + table.num_rows, self.size + float(sizes.sum())
        self.keys = np.concatenate([self.keys, self.chance.random(table.num_rows) / _weights(sizes)])
        self.sizes = np.concatenate([self.sizes, sizes])
        if len(self.keys) > 2 * (self.most + 1):
            self._thin(self.most + 1)

    def finish(self) -> tuple[pa.Table, Doubles, Doubles]:
        """Return the sampled documents in their order, their chances and their sizes."""
        chances = np.ones(len(self.keys))
        if self.documents > self.most:
            self._thin(self.most + 1)
            limit = self.keys.max()
            self._thin(self.most)
            chances = np.minimum(_weights(self.sizes) * limit, 1.0)
        return self.kept.combine_chunks(), chances, self.sizes

    def _thin(self, most: int) -> None:
        smallest = np.sort(np.argsort(self.keys, kind="stable")[:most])
        self.kept, self.keys, self.sizes = self.kept.take(smallest), self.keys[smallest], self.sizes[smallest]


def _weights(sizes: Doubles) -> Doubles:
    return sizes + TYPICAL


def _sizes(table: pa.Table) -> Doubles:
    for name in ("text", "html"):
        if name in table.column_names:
            lengths = pc.cast(pc.fill_null(pc.utf8_length(table[name]), 0), pa.float64()).to_numpy()
            return np.asarray(np.maximum(lengths, 1.0))
    return np.ones(table.num_rows)
