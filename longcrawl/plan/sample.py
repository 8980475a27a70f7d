"""A sample of a source: some of its parts, read whole, and some documents of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.ledger.funnel import total
from longcrawl.plan.estimates import Doubles, Drawn
from longcrawl.run.costs import CoreClock
from longcrawl.run.part import characters

TYPICAL = 3000.0
"""Characters: documents below it are drawn almost alike, longer ones in proportion to their length."""


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
        next(iter(source.read(parts[order[0]], BadFiles("skip"))), None)
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
    tables = iter(source.read(part, BadFiles(source.on_bad_files)))
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
