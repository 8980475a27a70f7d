"""Estimates of a run from a sample: totals with intervals, as tables and JSON.

Parts are drawn without replacement. Documents are then drawn from each part with probabilities that grow with their
size, because a few long documents have most of the tokens (priority sampling: N. Duffield, C. Lund, M. Thorup,
"Priority sampling for estimation of arbitrary subset sums", 2007). The total of a part is a ratio estimate: documents
are weighted by inverse probability and scaled to a known total of the part, its number of documents or their size.
Parts are scaled in proportion to their bytes (Cochran, Sampling Techniques, chapters 6 and 11).
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, inf, isnan, log2, log10, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import CONTENT, has_content
from longcrawl.core.clock import CoreClock
from longcrawl.core.display import Column, Table, Tabular
from longcrawl.core.funnel import Funnel, total
from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.errors import RunError, one_line
from longcrawl.io.files import check_target, write_text, writing
from longcrawl.io.structured import is_sealed, load_json, seal
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.run.divide import COMPRESSED, LARGE, MOST, SECTION, expected_sections, is_large
from longcrawl.run.manifest import StageCost
from longcrawl.run.part import characters, read_gathered
from longcrawl.sources.files import reading
from longcrawl.sources.sections import write_beginning
from longcrawl.urls import is_url

Doubles = npt.NDArray[np.float64]

Values = Sequence[Doubles]
"""Quantity of every sampled document: float64 [documents] for each part that was read."""

CONFIDENT = 1.96
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""The 97.5 % quantiles of Student's t with 1 to 10 degrees of freedom."""
UNSEEN_CASES = 2
"""Number of unseen cases per estimate that an interval allows for."""
UNSEEN_PARTS = 3
"""Number of parts like the largest that an interval allows for among as many unread parts as were read.

By the rule of three, a kind of part that is not in a sample of n is fewer than 3 in n, with 95 % confidence.
"""
UNPACKED_NOISE = 0.5
"""Relative error of the space of lines that a run has compressed itself, which is taken to be that of the files."""
_WIDE = 4.0
"""Ratio of the ends of an interval from which a plan advises a larger sample."""
LARGER = "more --parts and --documents"
"""Change that makes a sample larger, unless it has all files of the source."""
TYPICAL = 3000.0
"""Length in characters below which documents are almost equally likely to be drawn; above, it is about proportional."""
OUTSIZED = 2.0
"""Multiple of the largest part that was read; unread parts beyond it may have documents of another kind."""
BEGINNING = 8 << 20
"""Bytes that are read of a large compressed file."""
FILES = 200
"""Maximum number of sampled documents with files in ``content``, which are in memory; a PDF has about 1 MB."""


@dataclass(frozen=True)
class Estimate:
    """Figure with an interval that holds the true value about 19 times of 20."""

    value: float
    low: float
    high: float

    def __contains__(self, truth: float) -> bool:
        return self.low <= truth <= self.high

    def __add__(self, other: "Estimate") -> "Estimate":
        """Add figures of the same run; their errors are correlated, so the ends are added."""
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def scaled(self, factor: "Estimate | float") -> "Estimate":
        """Multiply by a number or by another estimate; all values must be 0 or more."""
        by = exact(factor) if isinstance(factor, float) else factor
        return Estimate(self.value * by.value, self.low * by.low, self.high * by.high)

    def at_most(self, other: "Estimate") -> "Estimate":
        """Limit the figure and its interval to those of a whole of which it is a part."""
        return Estimate(min(self.value, other.value), min(self.low, other.high), min(self.high, other.high))

    def within(self, factor: float, more: float = 0.0) -> "Estimate":
        """Divide the lower end by ``factor``, multiply the upper end by it and add ``more`` to that."""
        return Estimate(self.value, self.low / factor, self.high * factor + more)

    def widened(self, share: float) -> "Estimate":
        """Widen both ends by a share of their values."""
        return Estimate(self.value, self.low * (1 - share), self.high * (1 + share))


def exact(value: float) -> Estimate:
    """Return an estimate of a known value."""
    return Estimate(value, value, value)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Design of a sample: sizes of parts and documents, and the probabilities of the documents."""

    parts: int
    size: float
    """Size of all parts in bytes, or their number if bytes are unknown."""
    part_sizes: Doubles
    """Sizes of the parts that were read, in the same unit: float64 [parts]."""
    chances: Values
    """Probability of each sampled document to be drawn."""
    document_sizes: Values
    """Size of each sampled document in characters, or 1."""
    documents: Doubles
    """Number of documents in each part that was read: float64 [parts]."""
    totals: Doubles
    """Sum of the document sizes in each part that was read: float64 [parts]."""
    squares: float
    """Sum of the squares of the sizes of all parts."""
    outsized: float = 0.0
    """Size of the unread parts that are more than ``OUTSIZED`` times as large as the largest that was read."""

    @property
    def looked_at(self) -> float:
        """The share of the source's size that was read."""
        return float(self.part_sizes.sum()) / self.size


def estimate_total(values: Doubles, drawn: Drawn, *, counts: bool = False) -> Estimate:
    """Estimate the total of a quantity over all documents of all parts from its value in each sampled document.

    With ``counts`` the quantity of a document is 0 or 1; otherwise it is assumed to grow with the document's size.

    >>> one = (np.ones(100),)
    >>> drawn = Drawn(1, 1.0, np.ones(1), one, one, np.array([100.0]), np.array([100.0]), 1.0)
    >>> estimate_total(np.arange(100) % 4 == 0, drawn, counts=True)
    Estimate(value=25.0, low=25.0, high=25.0)
    """
    by_part = np.split(values, np.cumsum([len(each) for each in drawn.chances])[:-1])
    totals, variances = np.zeros((2, len(by_part)))
    for place, (amounts, chances, sizes) in enumerate(zip(by_part, drawn.chances, drawn.document_sizes, strict=True)):
        known, known_total = (np.ones(len(amounts)), drawn.documents) if counts else (sizes, drawn.totals)
        reference = float((known / chances).sum())
        share = float((amounts / chances).sum()) / reference if reference else 0.0
        unlikely = (1 - chances) / chances**2
        totals[place] = share * known_total[place]
        variances[place] = float(((amounts - share * known) ** 2 * unlikely).sum())
        # An unseen case is any document for counts; for other quantities, a removed document similar to the kept ones.
        cases = np.ones(len(amounts)) if counts else amounts
        there = float(((cases > 0) / chances).sum())
        variances[place] += UNSEEN_CASES * float((cases**2 * unlikely / chances).sum()) / max(there, 1.0)
    return _over_parts(totals, variances, drawn, seen=sum(float(np.sum(each)) for each in by_part))


def estimate_parts(totals: Sequence[float], drawn: Drawn) -> Estimate:
    """Estimate the total of a quantity over all parts that is known exactly for each part that was read."""
    known = np.array(totals, np.float64)
    return _over_parts(known, np.zeros(len(known)), drawn, float(known.sum()))


def _over_parts(totals: Doubles, variances: Doubles, drawn: Drawn, seen: float) -> Estimate:
    value = float(totals.sum()) / drawn.looked_at
    between, unseen = _between(totals, drawn)
    within = sqrt(float(variances.sum()) / drawn.looked_at * drawn.parts / max(len(totals), 1))
    error = inf if between == inf else sqrt(between**2 + (CONFIDENT * within) ** 2)
    unlike = value * drawn.outsized / drawn.size
    return Estimate(value, max(value - error - unlike, seen), max(value + error + max(unseen, unlike), seen))


def _between(totals: Doubles, drawn: Drawn) -> tuple[float, float]:
    """Return half the width of the interval due to reading only some parts, and what its upper end adds for the rest.

    The second allows for a few parts with most of the total, all or most of which may be among the others.
    """
    read = len(totals)
    if read == drawn.parts:
        return 0.0, 0.0
    if read < 2:
        return inf, 0.0
    expected = drawn.part_sizes * (totals.sum() / drawn.part_sizes.sum())
    residuals = totals - expected
    variance = drawn.parts**2 * (1 - read / drawn.parts) / read * float((residuals**2).sum()) / (read - 1)
    # Larger parts than those that were read may depart from the total per byte by as large a share of their own size.
    shares = residuals / np.maximum(expected, 1e-9)
    unread = max(drawn.squares - float((drawn.part_sizes**2).sum()), 0.0)
    by_size = (totals.sum() / drawn.part_sizes.sum()) ** 2 * float((shares**2).sum()) / (read - 1) * unread
    variance = max(variance, float(by_size))
    freedom = read - 1
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else CONFIDENT + 2.65 / freedom
    unseen = (drawn.parts - read) * min(UNSEEN_PARTS / read, 1.0) * max(float(residuals.max()), 0.0)
    return quantile * sqrt(variance), unseen


@dataclass(frozen=True)
class Thinning:
    """Shares that a survey removed from the sample and from half of it, to extrapolate to all documents.

    For clusters of two, the removed share grows in proportion to the sampled share of documents; for larger clusters it
    grows more slowly. The estimate follows the growth from half of the sample to all of it.
    """

    documents: float
    """Number of sampled documents before the survey, which determines the noise."""
    removed: float
    """Removed share of the sample, by documents or by their size."""
    half_removed: float
    """Removed share of half of the sample."""
    looked_at: float
    """Share of all documents in the sample, weighted by the removed documents."""

    def kept(self) -> Estimate:
        """Return the share kept of all documents, divided by the share kept of the sample.

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
    """Part that was read whole, with the documents drawn from it."""

    number: int
    size: float
    """Size of its files in bytes, or 1 if the files of a part are not known."""
    documents: int
    characters: int | None
    """Characters in the texts of the whole part, or None if it has no texts."""
    document_size: float
    """Sum of the sizes of all documents of the whole part, in the unit of ``sizes``."""
    tables: int
    seconds: float
    """Core seconds to read the whole part."""
    table: pa.Table
    chances: Doubles
    """Probability of each document in the table to be drawn: float64 [documents]."""
    sizes: Doubles
    """Size of each document in bytes of ``content``, characters of ``text`` or ``html``, or 1: float64 [documents]."""
    bytes: int | None = None
    """Bytes of its files, also of remote ones that were read whole; None if not known."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Documents sampled from a source."""

    parts: int
    size: float
    read: tuple[SampledPart, ...]
    start: float
    """Core seconds before the first documents arrived, for imports and compilation."""
    squares: float
    """Sum of the squares of the sizes of all parts."""
    outsized: float
    """Size of the unread parts that are more than ``OUTSIZED`` times as large as the largest that was read."""
    source: Source
    whole: tuple[tuple[Part, int], ...]
    """Each part of the source before large files are divided, and its size."""
    times: float = 1.0
    """Number of times that a run has as many parts as the source."""

    @property
    def together(self) -> float:
        """The mean number of documents per table of the source."""
        return max(sum(part.documents for part in self.read) / max(sum(part.tables for part in self.read), 1), 1.0)

    def among(self, files: int) -> "Sample":
        """Return the sample as if drawn from ``files`` parts, of which the source's parts are a random draw.

        Raises:
            RunError: more than ``files`` parts were read, or only one, which does not show how much parts differ.
        """
        read = len(self.read)
        if files < read:
            raise RunError(
                f"--files {files} is less than the {read} files that were sampled: sample fewer with --parts"
            )
        if read < 2 and files > read:
            raise RunError(
                f"--files {files} needs a sample of 2 files, but the source has {self.parts}: add more files"
            )
        share = files / self.parts
        size, squares, outsized = self.size * share, self.squares * share, self.outsized * share
        return replace(self, parts=files, size=size, squares=squares, outsized=outsized, times=share)

    @property
    def input_bytes(self) -> Estimate | None:
        """The bytes of all files, or None if those of a part are not known."""
        known = [part.bytes for part in self.read if part.bytes is not None]
        return estimate_parts(known, self.drawn) if len(known) == len(self.read) else None

    @property
    def files(self) -> int:
        """The number of files of documents."""
        return round(self.times * sum(len(part.each()) for part, _ in self.whole))

    @property
    def input_files(self) -> int:
        """The number of files of all parts; those of RedPajama-V2 have three or more for each file of documents."""
        return round(self.times * sum(len(part.files) for part, _ in self.whole))

    @property
    def tasks(self) -> int:
        """The number of parts of a run, with the sections that it is expected to make of large files."""
        return round(self.times * sum(self._sections))

    @property
    def longest(self) -> float:
        """The size of the largest part of a run, as a multiple of their mean."""
        sizes = np.array([size for _, size in self.whole], np.float64)
        if sizes.max() == 1:  # not known
            return float(self.drawn.totals.max() / max(self.drawn.totals.mean(), 1.0))
        sections = np.array(self._sections)
        return float((sizes / sections).max() * sections.sum() / sizes.sum())

    @property
    def undivided(self) -> int:
        """The number of parts that one process reads each, though they are large or remote files."""
        given = zip(self.whole, self._sections, strict=True)
        return sum(
            sections == 1 and (size >= LARGE or any(map(is_url, part.files))) for (part, size), sections in given
        )

    @property
    def unpacked(self) -> Estimate:
        """The bytes in ``work`` for the lines of compressed files that a run divides, about those of the files."""
        given = zip(self.whole, self._sections, strict=True)
        packed = [size for (part, size), many in given if many > 1 and part.name.endswith(COMPRESSED)]
        return exact(self.times * sum(packed) * self.source.unpacks).widened(UNPACKED_NOISE)

    @cached_property
    def _sections(self) -> list[int]:
        parts, sizes = zip(*self.whole, strict=True)
        stored = sum(part.size for part in self.read)
        unpacked = max(sum(part.document_size for part in self.read) / max(stored, 1.0), 1.0)
        return expected_sections(self.source, parts, sizes, unpacked, self.times)

    @property
    def drawn(self) -> Drawn:
        """The design of the sample, as arrays for estimates."""
        read = self.read
        return Drawn(
            self.parts,
            self.size,
            np.array([part.size for part in read]),
            [part.chances for part in read],
            [part.sizes for part in read],
            np.array([part.documents for part in read], np.float64),
            np.array([part.document_size for part in read], np.float64),
            self.squares,
            self.outsized,
        )


def draw_sample(
    source: Source,
    parts: Sequence[Part],
    least_parts: int,
    most_documents: int,
    seed: int,
    large: Literal["whole", "sections"] = "whole",
) -> Sample:
    """Read some parts whole and draw documents from each; the draw depends only on names, places and the seed.

    Twice as many parts as before are read while they have fewer than ``most_documents`` documents. Their number must
    not depend on the last part, or samples that end with a large part would overestimate. The sample may have a few
    documents more if parts are small. ``large`` files are read whole, or by "sections": sections are drawn from a plain
    file, and the first ``BEGINNING`` bytes are read of each compressed one, if there are several.
    """
    choices = _Choices(source, parts, large)
    order = np.argsort(keyed_hash(choices.names(), "parts of a plan", seed), kind="stable")
    most_documents = min(most_documents, FILES) if has_content(source.schema()) else most_documents
    share = -(-most_documents // max(min(least_parts, len(order)), 1))
    clock = CoreClock()
    with clock.measure("start"):
        next(iter(source.read(choices.part(order[0]).each()[0], BadFiles("skip"))), None)
    read: list[SampledPart] = []
    for number in order.tolist():
        if len(read) >= least_parts:
            if sum(part.documents for part in read) >= most_documents:
                break
            least_parts *= 2
        if not choices.is_read(number):
            read.append(_read(source, choices, number, share, seed))
    read.sort(key=lambda part: part.number)
    outsized = choices.larger_than(OUTSIZED * max(part.size for part in read))
    totals = choices.count, choices.bytes, tuple(read), clock.seconds["start"], choices.squares, outsized
    return Sample(*totals, source, tuple(zip(parts, choices.sizes, strict=True)))


class _Choices:
    """Parts from which a sample is drawn: those of the source, or sections of a large file.

    Only a plain file from which a section is drawn is divided; the number of sections of the others is taken from their
    size. Of a compressed file, the first section alone can be drawn.
    """

    def __init__(self, source: Source, parts: Sequence[Part], large: str) -> None:
        self._source = source
        known = [source.part_bytes(part) for part in parts]
        self.sizes = known if all(known) else [1] * len(parts)
        """Bytes of each part, or 1 if those of some are unknown."""
        self._places: list[tuple[Part, int, int | None]] = []
        """Each choice: its part, the bytes of that, and the number of a section."""
        self._beginnings = dict[str, float]()
        """Bytes that were read of compressed files, by name of their parts; 0 until then."""
        self._out_of_reach = 0
        """Number of sections of compressed files after the first."""
        self._pieces: list[tuple[int, int]] = []
        """Bytes of each part, and the number of choices in it, with those out of reach."""
        for part, size in zip(parts, self.sizes, strict=True):
            numbers: Sequence[int | None] = [None]
            if large == "sections" and is_large(source, part, size):
                if not part.name.endswith(COMPRESSED):
                    numbers = range(ceil(size / SECTION))
                elif len(parts) > 1:
                    numbers, self._beginnings[part.name] = [0], 0.0
                    self._out_of_reach += ceil(size / BEGINNING) - 1
            self._pieces.append((size, ceil(size / BEGINNING) if part.name in self._beginnings else len(numbers)))
            self._places += [(part, size, number) for number in numbers]
        self._divided: dict[str, list[Part]] = {}
        self._folder = tempfile.TemporaryDirectory()

    @property
    def bytes(self) -> float:
        """The bytes of all parts, or their number if bytes are unknown."""
        return float(sum(self.sizes))

    @property
    def squares(self) -> float:
        """Sum of the squares of the bytes of all choices and of what is out of reach."""
        return sum(size**2 / count for size, count in self._pieces)

    def larger_than(self, most: float) -> float:
        """Return the bytes of the parts whose choices have more than ``most`` bytes each."""
        return float(sum(size for size, count in self._pieces if size / count > most))

    @property
    def count(self) -> int:
        """The number of parts, with the sections of files that are known by now."""
        guessed = sum(number is not None for part, _, number in self._places if part.name in self._divided)
        return len(self._places) - guessed + sum(map(len, self._divided.values())) + self._out_of_reach

    def names(self) -> list[str]:
        """Return a name for each choice."""
        return [part.name if number is None else f"{part.name}:{number}" for part, _, number in self._places]

    def part(self, choice: int) -> Part:
        """Return the part of a choice, dividing its file if need be."""
        part, size, number = self._places[choice]
        if number is None:
            return part
        if part.name not in self._divided and part.name in self._beginnings:
            file, self._beginnings[part.name] = write_beginning(part.files[0], BEGINNING, Path(self._folder.name))
            self._divided[part.name] = [replace(part, files=(str(file),))]
        elif part.name not in self._divided:
            with tempfile.TemporaryDirectory() as folder:
                sections = self._source.divide(part, max(SECTION, size // MOST), Path(folder))
            self._divided[part.name] = [replace(part, section=each) for each in sections] or [part]
        return self._divided[part.name][min(number, len(self._divided[part.name]) - 1)]

    def size(self, choice: int) -> float:
        """Return the bytes of a choice."""
        part = self.part(choice)
        if part.section is not None:
            return float(part.section.bytes)
        return self._beginnings.get(part.name, float(self._places[choice][1]))

    def bad_files(self, choice: int) -> BadFiles:
        """Return a policy for damage: a beginning may end in the middle of a record."""
        return BadFiles("skip" if self._places[choice][0].name in self._beginnings else self._source.on_bad_files)

    def is_read(self, choice: int) -> bool:
        """Return whether a choice is beyond the sections of its file, whose number was taken from its size."""
        part, _, number = self._places[choice]
        if number is None:
            return False
        self.part(choice)
        return number >= len(self._divided[part.name])


def _read(source: Source, choices: _Choices, number: int, most: int, seed: int) -> SampledPart:
    part, size = choices.part(number), choices.size(number)
    name = part.name if part.section is None else f"{part.name}:{part.section.start}"
    chosen = keyed_hash([name], "documents of a plan", seed)
    drawing = _Drawing(source.schema().empty_table(), most, np.random.default_rng(chosen))
    letters, count, clock = total([0]), 0, CoreClock()
    tables = read_gathered(source, part, choices.bad_files(number))
    with reading([file for file in part.files if is_url(file)]) as fetched:
        while True:
            with clock.measure("read"):
                table = next(tables, None)
            if table is None:
                break
            drawing.add(table)
            count += 1
            letters = total([letters, characters(table)])
    totals = drawing.documents, letters, drawing.size, count, clock.seconds["read"]
    stored = total(each.bytes for each in fetched) if fetched else round(size) if size > 1 else part.local_bytes()
    return SampledPart(number, size, *totals, *drawing.finish(), stored)


class _Drawing:
    """Priority sampling of a stream: keeps the ``most`` documents with the smallest keys, and one more."""

    def __init__(self, empty: pa.Table, most: int, chance: np.random.Generator) -> None:
        self.kept, self.most, self.chance = empty, most, chance
        self.keys, self.sizes = np.empty(0), np.empty(0)
        self.documents, self.size = 0, 0.0

    def add(self, table: pa.Table) -> None:
        sizes = _sizes(table)
        self.kept = pa.concat_tables([self.kept, table]) if self.documents else table
        self.documents, self.size = self.documents + table.num_rows, self.size + float(sizes.sum())
        self.keys = np.concatenate([self.keys, self.chance.random(table.num_rows) / (sizes + TYPICAL)])
        self.sizes = np.concatenate([self.sizes, sizes])
        if len(self.keys) > 2 * (self.most + 1):
            self._thin(self.most + 1)

    def finish(self) -> tuple[pa.Table, Doubles, Doubles]:
        """Return the sampled documents in their order, their probabilities and their sizes."""
        chances = np.ones(len(self.keys))
        if self.documents > self.most:
            self._thin(self.most + 1)
            limit = self.keys.max()
            self._thin(self.most)
            chances = np.minimum((self.sizes + TYPICAL) * limit, 1.0)
        return self.kept.combine_chunks(), chances, self.sizes

    def _thin(self, most: int) -> None:
        smallest = np.sort(np.argsort(self.keys, kind="stable")[:most])
        self.kept, self.keys, self.sizes = self.kept.take(smallest), self.keys[smallest], self.sizes[smallest]


def _sizes(table: pa.Table) -> Doubles:
    measures = {CONTENT.name: pc.binary_length} if has_content(table.schema) else {}
    for name, measure in (measures | {"text": pc.utf8_length, "html": pc.utf8_length}).items():
        if name in table.column_names:
            lengths = pc.cast(pc.fill_null(measure(table[name]), 0), pa.float64()).to_numpy()
            return np.asarray(np.maximum(lengths, 1.0))
    return np.ones(table.num_rows)


VERSION = 1
WRITE = "write it again with longcrawl plan RECIPE --save FILE"
FIGURES = ("documents", "characters", "seconds", "disk")
HEAD = ("stage", "documents", "characters", "time of a core", "disk meanwhile")
UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True)
class PlanRow:
    """Estimates for one stage: kept documents, time, and disk space until the run is done."""

    stage: str
    documents: Estimate
    characters: Estimate | None
    seconds: Estimate
    """Seconds on a core of this machine."""
    disk: Estimate


@dataclass(frozen=True)
class Checked:
    """One figure of a plan beside the actual figure of the run."""

    figure: str
    estimate: Estimate
    truth: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds the actual figure."""
        return self.truth in self.estimate

    def __str__(self) -> str:
        low, high = self.estimate.low, self.estimate.high
        return one_line(f"{self.figure}: {self.truth:.4g}, planned {self.estimate.value:.4g} ({low:.4g} to {high:.4g})")

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        low, high = self.estimate.low, self.estimate.high
        return {"figure": self.figure, "planned": self.estimate.value, "low": low, "high": high, "became": self.truth}


def check_place(path: Path) -> None:
    """Raise a RunError if a folder, or a file that is not a plan, is at a path."""
    check_target(path, RunError, "it is not a plan, name another file", example="plan.json", replaces=_is_plan_or_empty)


def _is_plan_or_empty(file: Path) -> bool:
    with suppress(OSError, TypeError, ValueError):
        content = file.read_bytes()
        return not content or "longcrawl_plan" in load_json(content)
    return False


@dataclass(frozen=True, repr=False)
class Plan(Tabular):
    """Estimates of a run's results and costs; ``str`` and notebooks show them as a table."""

    recipe: str
    digest: str
    sample: str
    rows: tuple[PlanRow, ...]
    """Rows of the plan, with the source first and the output last."""
    tokens: Estimate | None
    written: Estimate | None
    """Size of the output in bytes, or None if no document of the sample reached it."""

    @property
    def seconds(self) -> Estimate:
        """The core seconds of all stages."""
        return sum((row.seconds for row in self.rows[1:]), self.rows[0].seconds)

    @property
    def disk(self) -> Estimate:
        """The bytes of disk space for stages until the run is done and for its output, without ledger and indexes."""
        work = sum((row.disk for row in self.rows[1:]), self.rows[0].disk)
        return work + self.written if self.written else work

    def against(
        self, manifest: Mapping[str, Any], costs: Mapping[str, StageCost] = MappingProxyType({})
    ) -> tuple[Checked, ...]:
        """Compare the figures with those of a finished run; seconds and disk space only if its ``costs`` are given."""
        within = manifest["output"]["format"] + "/"
        files = manifest["files"].items()
        written = float(sum(entry["bytes"] for name, entry in files if name.startswith(within)))
        truths = _truths(manifest) | {"bytes written": written}
        if costs:
            seconds = {f"{label}: seconds": cost.seconds for label, cost in costs.items()}
            disk = {f"{label}: disk": float(cost.disk) for label, cost in costs.items()}
            truths |= seconds | disk | {"seconds": sum(seconds.values()), "disk": sum(disk.values()) + written}
        figures = [(name, estimate, truths.get(name)) for name, estimate in self._figures()]
        return tuple(Checked(name, estimate, truth) for name, estimate, truth in figures if truth is not None)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, which :meth:`from_dict` reads."""
        rows = [{"stage": row.stage, **{name: _as_list(getattr(row, name)) for name in FIGURES}} for row in self.rows]
        return {
            "longcrawl_plan": VERSION,
            "recipe": self.recipe,
            "digest": self.digest,
            "sample": self.sample,
            "stages": rows,
            "tokens": _as_list(self.tokens),
            "written": _as_list(self.written),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Plan":
        """Make a plan from the values of :meth:`as_dict`; KeyError, TypeError or ValueError if they are damaged."""
        if not values["stages"]:
            raise ValueError("no stages")
        named = [values[name] for name in ("recipe", "digest", "sample")] + [row["stage"] for row in values["stages"]]
        if not all(isinstance(each, str) for each in named):
            raise TypeError("a name that is not a text")
        for row in values["stages"]:
            if lacking := [name for name in FIGURES if name != "characters" and row[name] is None]:
                raise ValueError(f"no {lacking[0]} of {row['stage']}")
        rows = tuple(PlanRow(row["stage"], *(_estimate(row[name]) for name in FIGURES)) for row in values["stages"])
        ends = (_estimate(values["tokens"]), _estimate(values["written"]))
        return cls(values["recipe"], values["digest"], values["sample"], rows, *ends)

    def save(self, path: str | Path, checked: Sequence[Checked] = ()) -> None:
        """Write the plan as JSON, for ``longcrawl run --plan``, with the ``checked`` figures if there are any.

        Raises:
            RunError: the path has something other than a plan, or cannot be written.
        """
        check_place(Path(path))
        became = {"became": [each.as_dict() for each in checked]} if checked else {}
        with writing(Path(path), RunError, "name another file for the plan"):
            write_text(Path(path), seal(self.as_dict() | became))

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read a plan written by :meth:`save`.

        Raises:
            RunError: there is no plan at ``path``, or it was changed after it was written.
        """
        try:
            values = load_json(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as wrong:
            raise RunError(f"{path} is not a plan ({wrong}): {WRITE}") from wrong
        if not isinstance(values, dict) or values.get("longcrawl_plan") != VERSION:
            raise RunError(f"{path} is not a plan of version {VERSION}: {WRITE}")
        if not is_sealed(Path(path), values):
            raise RunError(f"{path} has been changed: its own SHA-256 differs; {WRITE}")
        try:
            return cls.from_dict(values)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as lacking:
            raise RunError(f"{path} is not a complete plan ({lacking}): {WRITE}") from lacking

    def tables(self) -> list[Table]:
        """Return one table, with a row for each stage and the totals as notes."""
        columns = [Column(name, "count" if place else "text") for place, name in enumerate(HEAD)]
        return [Table(columns, list(_cells(self)), notes=["", *_words(self)])]

    def _figures(self) -> Iterator[tuple[str, Estimate]]:
        for row in self.rows[:-1]:
            yield f"{row.stage}: documents", row.documents
            if row.characters is not None:
                yield f"{row.stage}: characters", row.characters
        if self.tokens is not None:
            yield "tokens", self.tokens
        for row in self.rows:
            yield f"{row.stage}: seconds", row.seconds
            if row.disk.high:
                yield f"{row.stage}: disk", row.disk
        if self.written is not None:
            yield "bytes written", self.written
            yield "seconds", self.seconds
            yield "disk", self.disk


def _truths(manifest: Mapping[str, Any]) -> dict[str, float | None]:
    funnel = Funnel.from_dict(manifest["funnel"])
    truths: dict[str, float | None] = {
        f"{funnel.source}: documents": funnel.documents,
        f"{funnel.source}: characters": funnel.characters,
    }
    for row in funnel:
        truths |= {f"{row.stage}: documents": row.documents_out, f"{row.stage}: characters": row.characters}
    for lengths in manifest["analysis"]["lengths"]:
        if lengths["unit"] == "tokens":
            truths["tokens"] = sum(lengths["total"].values())
    return truths


def _as_list(estimate: Estimate | None) -> list[float] | None:
    return None if estimate is None else [estimate.value, estimate.low, estimate.high]


def _estimate(described: Any) -> Any:
    if described is None:
        return None
    value, low, high = map(float, described)
    if isnan(value) or not low <= high:
        raise ValueError(f"an interval from {low} to {high}")
    return Estimate(value, low, high)


def amount(number: float) -> str:
    """Format a count with three significant digits.

    >>> amount(1234567), amount(87)
    ('1,230,000', '87')
    """
    if number == inf:
        return "?"
    digits = max(floor(log10(number)) - 2, 0) if number >= 1 else 0
    return f"{round(number / 10**digits) * 10**digits:,}"


def size(number: float) -> str:
    """Format a number of bytes with a decimal unit.

    >>> size(123_456_789)
    '123 MB'
    """
    if number == inf:
        return "?"
    unit = 0
    while number >= 1000 and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {UNITS[unit]}"


def duration(seconds: float) -> str:
    """Format seconds as hours, minutes or seconds.

    >>> duration(7200), duration(90), duration(2)
    ('2 h', '1.5 min', '2 s')
    """
    if seconds == inf:
        return "?"
    for name, unit in (("h", 3600), ("min", 60)):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s"


def _cells(plan: Plan) -> Iterator[list[str]]:
    for row in plan.rows:
        letters = "" if row.characters is None else interval(row.characters, amount)
        disk = interval(row.disk, size) if row.disk.high else ""
        yield [row.stage, interval(row.documents, amount), letters, interval(row.seconds, duration), disk]


def _words(plan: Plan) -> Iterator[str]:
    yield f"{plan.recipe} from {plan.sample}; intervals hold the truth about 19 times of 20"
    if plan.tokens is not None:
        yield f"tokens: {interval(plan.tokens, amount)}"
    if plan.written is None:
        last = plan.rows[-1]
        yield (
            f"no document of the sample remains after {last.stage!r}, so later stages are unknown: at most "
            f"{amount(last.documents.high)} documents; draw more with --documents and --parts"
        )
    else:
        yield f"output: {interval(plan.written, size)}"
    yield f"all stages: {interval(plan.seconds, duration)} of a core"
    yield f"disk at its fullest: {interval(plan.disk, size)}"
    figures = {"tokens": plan.tokens, "output": plan.written, "time": plan.seconds, "disk": plan.disk}
    yield from what_narrows(figures, [row.documents for row in plan.rows])


def what_narrows(
    figures: Mapping[str, Estimate | None], documents: Iterable[Estimate], larger: str = LARGER
) -> Iterator[str]:
    """Yield advice about figures with wide intervals, unless the numbers of ``documents`` are all exact."""
    wide = [name for name, each in figures.items() if each is not None and each.high > _WIDE * max(each.low, 1e-9)]
    if wide and any(each.low < each.high for each in documents):
        yield f"a larger sample narrows the wide intervals ({', '.join(wide)}): {larger}"


def interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    """Format a figure, with the ends of its interval if they differ."""
    low, value, high = show(estimate.low), show(estimate.value), show(estimate.high)
    return value if low == value == high else f"{value} ({low} to {high})"
