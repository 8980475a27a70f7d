"""Long-range dependency from words alone: rare words that return after long gaps, more often than by chance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.choice import choose
from longcrawl.core.fields import Conditions
from longcrawl.core.places import no_places
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.dedup.ngrams import NGRAM_FACTOR, hash_units
from longcrawl.errors import StageError, unreadable
from longcrawl.kernels.texts import valid_texts
from longcrawl.printable import listed
from longcrawl.storage.files import reread_when_changed
from longcrawl.storage.sealed import SEAL
from longcrawl.storage.stored_tables import write_table

CRAWL = "crawl"
COLUMN = "long_range"
MEASURES = ("score", "far_words", "interleaving", "repetition")
FEWEST_WINDOWS = 12
"""Windows of a document that is measured: fewer have no far context to speak of."""
SHORTEST, LONGEST = 16, 16_384
"""Gaps, in words, that say whether two texts alternate."""
BINS = 40
PIECE = 2_000
"""Words of one document that chance is counted in, at most. Only of longer ones is known that they were learnt from."""
MOST_WORDS = 1 << 21
"""Words that are kept, those of most pieces; all others count as words that occur in none."""
SCHEMA = pa.schema([("word", pa.uint64()), ("pieces", pa.uint32())])
_PIECES, _WORDS, _DOCUMENTS, _DIGEST = b"pieces", b"words", b"documents", SEAL.encode()


@dataclass(frozen=True, eq=False)
class WordStatistics:
    """Words of a crawl, and in how many of its pieces each occurs."""

    words: npt.NDArray[np.uint64]
    """Hashes, in increasing order."""
    counts: npt.NDArray[np.uint32]
    """Pieces that have each, two at least."""
    pieces: int
    """How many there are."""
    length: float
    """Mean number of words of a piece."""
    documents: npt.NDArray[np.uint64]
    """Hashes of those that have several pieces, in increasing order; equal ones come as often as they came."""

    @property
    def digest(self) -> str:
        """A SHA-256 of all of it, which its file holds: the checksums of parquet leave out what is not in columns."""
        about = f"{self.pieces} {self.length!r} {len(self.words)} "
        columns = (self.words.astype("<u8"), self.counts.astype("<u4"), self.documents.astype("<u8"))
        return sha256(about.encode() + b"".join(each.tobytes() for each in columns)).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write a parquet file that ``LexicalDependency(statistics=path)`` reads."""
        about = {
            _PIECES: str(self.pieces),
            _WORDS: repr(self.length),
            _DOCUMENTS: self.documents.astype("<u8").tobytes(),
            _DIGEST: self.digest,
        }
        schema = SCHEMA.with_metadata(about)
        write_table(pa.table([self.words, self.counts], schema=schema), Path(path), compression="zstd")


def count_words(tables: Iterable[pa.Table], stage: str = "count_words") -> WordStatistics:
    """Count in how many pieces of documents each word occurs; their order changes nothing.

    >>> table = pa.table({"text": ["The whale, the whale!", "A whale and a ship."]})
    >>> found = count_words([table])
    >>> found.pieces, found.counts.tolist()
    (2, [2])

    Args:
        tables: documents, with the column ``text``.
        stage: for messages.

    Raises:
        StageError: there is no word in them.
    """
    words, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    pieces, total, documents = 0, 0, [np.zeros(0, np.uint64)]
    for table in tables:
        given = pa.table({"text": column(table, "text", stage)})
        for batch in given.to_batches(1_000):
            texts = valid_texts(column(pa.Table.from_batches([batch]), "text", stage), stage)
            units, bounds = hash_units(texts, None)
            numbers, found = _pieces_of(bounds)
            pieces, total = pieces + found, total + len(units)
            documents.append(_documents(units, bounds)[np.diff(bounds) > PIECE])
            # A word counts once in a piece.
            pairs = np.unique(np.stack([units, numbers], axis=1), axis=0)
            words, counts = _merged(words, counts, *np.unique(pairs[:, 0], return_counts=True))
    if not pieces:
        raise StageError(f"{stage} needs documents with words to learn from: check the stages before it")
    several = counts > 1
    words, counts = words[several], counts[several]
    if len(words) > MOST_WORDS:
        chosen = np.sort(np.lexsort((words, -counts))[:MOST_WORDS])
        words, counts = words[chosen], counts[chosen]
    return WordStatistics(words, counts.astype(np.uint32), pieces, total / pieces, np.sort(np.concatenate(documents)))


def read_statistics(path: str) -> WordStatistics:
    """Return statistics from the file that :meth:`WordStatistics.save` wrote.

    Raises:
        StageError: there is no such file, or it is not one of these.
    """
    fix = "write it again with lc.long.count_words([table]).save(path)"
    with unreadable(path, StageError, fix):
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
        table.validate(full=True)
    about = table.schema.metadata or {}
    if not table.schema.equals(SCHEMA) or not {_PIECES, _WORDS, _DOCUMENTS, _DIGEST} <= about.keys():
        raise StageError(f"{path} has no statistics of words, but columns {listed(table.column_names)}: {fix}")
    with unreadable(path, StageError, fix):
        words, counts = (table[name].to_numpy() for name in SCHEMA.names)
        documents = np.frombuffer(about[_DOCUMENTS], "<u8").astype(np.uint64)
        found = WordStatistics(words, counts, int(about[_PIECES]), float(about[_WORDS]), documents)
        whole = found.digest.encode() == about[_DIGEST]
    if not whole:
        raise StageError(f"{path} has been changed, its SHA-256 differs from the one in it: {fix}")
    return found


def _pieces_of(bounds: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint64], int]:
    """Return the piece of each unit, counted over all documents, and how many pieces there are."""
    sizes = np.diff(bounds)
    cut = -(-sizes // PIECE)
    first = np.cumsum(cut) - cut
    inside = np.arange(bounds[-1]) - np.repeat(bounds[:-1], sizes)
    return (np.repeat(first, sizes) + inside // PIECE).astype(np.uint64), int(cut.sum())


def _documents(units: npt.NDArray[np.uint64], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return a hash of each document: of its words, in whatever order, and how many they are."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(units, dtype=np.uint64)])
    found: npt.NDArray[np.uint64] = (sums[bounds[1:]] - sums[bounds[:-1]]) * np.uint64(NGRAM_FACTOR)
    return found + np.diff(bounds).astype(np.uint64)


def _merged(
    words: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    others: npt.NDArray[np.uint64],
    their_counts: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    merged, places = np.unique(np.concatenate([words, others]), return_inverse=True)
    sums = np.bincount(places, np.concatenate([counts, their_counts]), minlength=len(merged))
    return merged, sums.astype(np.int64)


def learn_statistics(tables: Iterable[pa.Table], documents: int | None, stage: str, directory: str) -> str:
    """Count the words of all documents, or of so many by hashes of their ids, and return the file of the counts.

    Raises:
        StageError: there is no word in them.
    """
    found = count_words(choose(tables, documents, f"{stage}.train_documents"), stage)
    path = Path(directory) / f"words-{found.digest[:16]}.parquet"
    found.save(path)
    return str(path)


@stage
class LexicalDependency(Edit):
    """How much of a document's vocabulary comes from far before, by words alone.

    A long document that is one text takes up names and terms again after thousands of words. Short texts that were
    joined do so as often as any texts of the crawl would: that much chance explains, and is subtracted. The column
    ``long_range`` has four numbers, null for documents of fewer than 12 windows:

    * ``far_words``: over windows of ``window`` words, of the rare words that the last ``near`` windows do not have, the
      share that came before those, each word weighted by -log p, minus the share expected if all that came before
      were other pieces of the crawl: 1 - (1 - p) ** (words / length), p being the share of pieces that have the word.
      Where the document is one of those that were counted, its own pieces are left out. About 0.06 for joined short
      texts, 0.14 to 0.29 for books, manuals and standards;
    * ``interleaving``: the largest logarithm of how much likelier a rare word returns after twice a gap than after the
      gap, for gaps of 32 to 8,192 words; about 0 for one text, 0.6 and more for two that alternate;
    * ``repetition``: the share of words in passages of five words or more that the document has had before;
    * ``score``: ``far_words * sqrt(1 - repetition) * exp(-3 * interleaving)``.

    Words of such passages count in no other measure, so that lists, templates and boilerplate gain nothing. On the
    third of our English documents that was held out, the score tells 77 long documents from joined short ones with AUC
    1.0, from two that alternate by paragraphs or pages with 0.99 to 1.0, and from templated pages with 0.96
    (``benchmarks/long_range.py``). It measures words, not arguments: a novel scores higher than a proof.

    Args:
        statistics: "crawl" learns how common words are from the documents that reach the stage; else the file that
            ``lc.long.count_words(tables).save(path)`` wrote.
        min_score: documents with a lower score leave, by the rule ``min_score``; None for none.
        short: what happens to documents that are too short to be measured; "drop" needs a ``min_score``.
        window: words of a window.
        near: how many windows before a window are not far.
        train_documents: how many documents the statistics are learnt from; None for all.
    """

    statistics: str = CRAWL
    min_score: float | None = None
    short: Literal["keep", "drop"] = "keep"
    window: int = 250
    near: int = 4
    train_documents: int | None = 20_000
    only_with: ClassVar[Conditions] = MappingProxyType({"short": {"min_score": None}})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("window", self.window), ("near", self.near), ("train_documents", self.train_documents)):
            if value is not None and value < 1:
                raise StageError(f"{self.name}.{name} is {value}: take 1 or more")

    @property
    def measures_in(self) -> tuple[str, ...]:
        """The column."""
        return (COLUMN,)

    @property
    def needs_fit(self) -> bool:
        """Whether it learns from the documents first."""
        return self.statistics == CRAWL

    def fit(self, tables: Iterable[pa.Table], directory: str) -> "LexicalDependency":
        """Count the words of documents, and return the stage that uses the counts.

        The file, in ``directory``, depends on which documents there are, not on their order.
        """
        if not self.needs_fit:
            return self
        return replace(self, statistics=learn_statistics(tables, self.train_documents, self.name, directory))

    def files(self) -> tuple[str, ...]:
        """Name the statistics."""
        return () if self.needs_fit else (self.statistics,)

    def prepare(self) -> None:
        """Read the statistics and compile the kernels.

        Raises:
            StageError: the file cannot be read.
        """
        if not self.needs_fit:
            self.measures(pa.array(["a text"], pa.large_string()))

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Add the column ``long_range``, and compare the score."""
        found = self.measures(valid_texts(column(table, "text", self.name), self.name))
        checks: list[Check] = []
        if self.min_score is not None:
            score = pc.struct_field(found, "score")
            passes = pc.fill_null(pc.greater_equal(score, self.min_score), self.short == "keep")
            checks.append(Check("min_score", score, passes, self.min_score, "at_least"))
        return with_column(table, COLUMN, found), checks

    def trace(self, table: pa.Table) -> Edited:
        """Add the column; no text changes."""
        return Edited(*self.edit(table), no_places())

    def measures(self, texts: pa.Array) -> pa.StructArray:
        """Return the measures of valid large strings.

        Raises:
            StageError: the statistics cannot be read, or are still to be learnt.
        """
        if self.needs_fit:
            raise StageError(
                f"{self.name} has no statistics yet: call stage.fit(tables, directory) first, or name a file"
            )
        from longcrawl.long._lexical_kernels import measure

        known = look_up(self.statistics)
        units, bounds = hash_units(texts, None)
        mine = _documents(units, bounds)
        times = np.searchsorted(known.documents, mine, "right") - np.searchsorted(known.documents, mine)
        out = np.empty((len(texts), 3), np.float64)
        counts = (known.keys, known.counts, known.pieces, known.length)
        measure(units, bounds, times, *counts, PIECE, self.window, self.near, *_bins(), out)
        far, interleaving, repetition = out.T
        score = far * np.sqrt(1 - repetition) * np.exp(-3 * interleaving)
        columns = [pa.array(np.ascontiguousarray(each)) for each in (score, far, interleaving, repetition)]
        short = pa.array(np.diff(bounds) < FEWEST_WINDOWS * self.window)
        return pa.StructArray.from_arrays(columns, list(MEASURES), mask=short)


class Lookup(NamedTuple):
    """Statistics as kernels look words up in them."""

    keys: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint32]
    pieces: int
    length: float
    documents: npt.NDArray[np.uint64]


@reread_when_changed(2)
def look_up(path: str) -> Lookup:
    """Return the statistics of a file.

    Raises:
        StageError: it cannot be read.
    """
    from longcrawl.long._lexical_kernels import fill_table

    found = read_statistics(path)
    slots = 1 << (2 * len(found.words)).bit_length()
    keys, counts = np.zeros(slots, np.uint64), np.zeros(slots, np.uint32)
    fill_table(found.words, found.counts, keys, counts)
    return Lookup(keys, counts, found.pieces, found.length, found.documents)


@cache
def _bins() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the bin of each gap, and widths and middles of the bins: four to each doubling."""
    edges = np.round(SHORTEST * 2.0 ** (np.arange(BINS + 1) / 4))
    assert edges[-1] == LONGEST
    bins: Any = np.searchsorted(edges, np.arange(LONGEST), side="right") - 1
    return bins.astype(np.int8), np.diff(edges), (edges[1:] + edges[:-1]) / 2
