"""Long-range lexical dependency: rare words that recur after long gaps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.registry import Conditions
from longcrawl.core.stages import Check, Edit, Stage, column, stage, with_column
from longcrawl.dedup.ngrams import NGRAM_FACTOR, hash_units
from longcrawl.errors import StageError, listed, unreadable
from longcrawl.io.files import reread_when_changed
from longcrawl.io.stored_tables import write_table
from longcrawl.io.structured import SEAL
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.keyed_hash import choose
from longcrawl.kernels.texts import valid_texts

Wide = npt.NDArray[np.uint64]

_U = np.uint64
GRAM = 5  # words of a passage that counts as repeated verbatim
COMMON, FREQUENT = 0.2, 0.1
"""Greatest shares of pieces with a word that counts: for distant context, and for interleaving."""
LAST = 8  # earlier occurrences of a word to which gaps are counted
LAG = 4  # bins from a gap to twice the gap
FIRST = 5  # windows of distant context that the first measured window has
FEWEST = 100  # least number of gaps in the bins that are compared
_FACTOR = _U(NGRAM_FACTOR)


@forced_inline
def _slots(words: int) -> int:
    """Return the number of slots of a table for these words: a power of two, at least twice as many."""
    slots = 16
    while slots < 2 * words:
        slots *= 2
    return slots


@forced_inline
def _slot(keys: Wide, key: np.uint64) -> int:
    """Return the slot of a key, or the free slot for it, in a table with a power of two of slots; 0 is no key."""
    last = _U(len(keys) - 1)
    at = key & last  # a hash already
    while keys[at] != _U(0) and keys[at] != key:
        at = (at + _U(1)) & last
    return np.int64(at)


@compiled
def fill_table(words: Wide, counts: Any, keys: Wide, values: Any) -> None:
    """Enter words and their counts, uint32, into a table with at least twice as many slots."""
    for number in range(len(words)):
        key = words[number] | _U(words[number] == _U(0))
        at = _slot(keys, key)
        keys[at], values[at] = key, counts[number]


@compiled
def _number_words(units: Wide, keys: Wide, numbers: Any, ids: Any, known: Wide, values: Any, counts: Any) -> int:
    """Number a document's distinct words in order of first occurrence, look up their counts, and count them."""
    count = 0
    for at in range(len(units)):
        key = units[at] | _U(units[at] == _U(0))
        slot = _slot(keys, key)
        if keys[slot] == _U(0):
            keys[slot], numbers[slot] = key, count
            found = _slot(known, key)
            counts[count] = values[found] if known[found] == key else 0
            count += 1
        ids[at] = numbers[slot]
    return count


@compiled
def _take_shares(ids: Any, times: int, size: int, pieces: int, words: int, last: Any, shares: Any) -> None:
    """Convert counts of pieces to shares of the pieces of other documents, which are a little above 0 for unseen words.

    The document itself was counted ``times`` times, in pieces of ``size`` words; ``last`` is scratch memory.
    """
    last[:words] = -1
    for at in range(len(ids) if times else 0):
        if last[ids[at]] != at // size:
            last[ids[at]] = at // size
            shares[ids[at]] -= times
    others = pieces - times * ((len(ids) + size - 1) // size)
    for word in range(words):
        shares[word] = (max(shares[word], 0.0) + 0.3) / (max(others, 0) + 1)


@compiled
def _mark_repeated(units: Wide, keys: Wide, repeated: Any) -> float:
    """Mark the words of passages that repeat an earlier one in the document; return their share."""
    repeated[:] = False
    for start in range(len(units) - GRAM + 1):
        hashed = _U(0)
        for at in range(start, start + GRAM):
            hashed = hashed * _FACTOR + units[at]
        hashed |= _U(hashed == _U(0))
        slot = _slot(keys, hashed)
        if keys[slot] == hashed:
            for at in range(start, start + GRAM):
                repeated[at] = True
        keys[slot] = hashed
    marked = 0
    for at in range(len(units)):
        marked += repeated[at]
    return marked / len(units)


@compiled
def _mark_first(units: Wide, ends: Any, keys: Wide, first: Any) -> None:
    """Mark the first occurrence of each word in its piece; ``ends`` has the end of each, ``keys`` is scratch memory."""
    start = 0
    for stop in ends:
        used, has_zero = keys[: _slots(stop - start)], False
        used[:] = 0
        for at in range(start, stop):
            key = units[at]
            if key == _U(0):
                first[at], has_zero = not has_zero, True
                continue
            slot = _slot(used, key)
            first[at] = used[slot] != key
            used[slot] = key
        start = stop


@allocating
def select_terms(
    units: Wide, bounds: Any, known: Wide, values: Any, pieces: int, common: float, least: float, norm: int,
    ends: Any, terms: Any, sizes: Any, keywords: Wide,
) -> None:  # fmt: skip
    """Write the words with the highest weight, (1 + log(count)) * -log(share), and a keyword of each document.

    Args:
        units: uint64 [words], hashes of the words of all documents.
        bounds: int64 [documents + 1], start of each document.
        known: uint64 [slots], the words of statistics, see :func:`fill_table`; no other word is a term.
        values: uint32 [slots], number of pieces with each word.
        pieces: number of all pieces.
        common: words with a larger share are no terms.
        least: the keyword is the heaviest term with at least this share, or else the most common term.
        norm: norm of a document's weights.
        ends: int64 [documents + 1], written: offsets of the terms of each document.
        terms: uint32 [documents * most], written: the upper halves of the hashes, ascending in each document.
        sizes: uint16 [documents * most], written: the weight of each term, 1 or more.
        keywords: uint64 [documents], written: the hash of the keyword, 0 for none.
    """
    most, longest = len(terms) // max(len(keywords), 1), 1
    for document in range(len(keywords)):
        longest = max(longest, bounds[document + 1] - bounds[document])
    slots = _slots(longest)
    keys, numbers, ids = np.empty(slots, np.uint64), np.empty(slots, np.int32), np.empty(longest, np.int32)
    shares, counts, words = np.empty(longest), np.empty(longest, np.int64), np.empty(longest, np.uint64)
    best, weights = np.empty(most, np.int64), np.empty(most)
    ends[0] = 0
    for document in range(len(keywords)):
        start, stop = bounds[document], bounds[document + 1]
        used = _slots(stop - start)
        keys[:used] = 0
        text = units[start:stop]
        distinct = _number_words(text, keys[:used], numbers, ids, known, values, shares)
        for word in range(distinct):
            shares[word] = (shares[word] + 0.3) / (pieces + 1) if shares[word] > 0.0 else 1.0
        counts[:distinct] = 0
        for at in range(len(text)):
            counts[ids[at]] += 1
            words[ids[at]] = text[at]
        kept = _choose_heaviest(distinct, counts, words, shares, common, best, weights)
        keywords[document] = _choose_keyword(best[:kept], words, shares, least)
        square = 0.0
        for at in range(kept):
            square += weights[at] * weights[at]
        first = ends[document]
        ends[document + 1] = first + kept
        for at in range(kept):
            term, place = np.uint32(words[best[at]] >> _U(32)), first + at
            while place > first and terms[place - 1] > term:
                terms[place], sizes[place] = terms[place - 1], sizes[place - 1]
                place -= 1
            terms[place] = term
            sizes[place] = max(np.int64(np.rint(weights[at] / np.sqrt(square) * norm)), 1)


@compiled
def _choose_heaviest(
    distinct: int, counts: Any, words: Wide, shares: Any, common: float, best: Any, weights: Any
) -> int:
    """Write the numbers and weights of the words with the highest weights, in descending order; return their number."""
    kept, most = 0, len(best)
    for word in range(distinct):
        if shares[word] > common:
            continue
        weight = (1.0 + np.log(np.float64(counts[word]))) * -np.log(shares[word])
        at = min(kept, most - 1)
        if kept == most and not _weighs_more(weight, words[word], weights[at], words[best[at]]):
            continue
        kept = min(kept + 1, most)
        while at > 0 and _weighs_more(weight, words[word], weights[at - 1], words[best[at - 1]]):
            best[at], weights[at] = best[at - 1], weights[at - 1]
            at -= 1
        best[at], weights[at] = word, weight
    return kept


@compiled
def _choose_keyword(best: Any, words: Wide, shares: Any, least: float) -> np.uint64:
    found, highest = _U(0), 0.0
    for word in best:
        if shares[word] > highest and highest < least:
            found, highest = words[word], shares[word]
    return found


@compiled
def _weighs_more(weight: float, word: np.uint64, other: float, than: np.uint64) -> bool:
    return weight > other or (weight == other and word < than)


@compiled
def _far_words(
    ids: Any, repeated: Any, weights: Any, absent: Any, words: int, window: int, near: int, length: float,
    seen: Any, stamp: Any,
) -> float:  # fmt: skip
    """Return the weighted share of rare words that occurred far before, minus the share expected by chance.

    ``weights`` of distinct words are written: -log(p) of a rare word, 0 of others. ``absent`` has their shares of
    pieces, overwritten with the logarithms of the shares without them. ``seen`` and ``stamp`` are scratch memory.
    """
    for word in range(words):
        seen[word], stamp[word] = -1, -1
        share = absent[word]
        weights[word] = -np.log(share) if share < COMMON else 0.0
        absent[word] = np.log1p(-share)
    found = every = 0.0
    for number in range(len(ids) // window):
        first = number * window
        pieces = (number - near) * window / length
        if number >= near + FIRST:
            for at in range(first, first + window):
                word = ids[at]
                if repeated[at] or stamp[word] == number:
                    continue
                stamp[word] = number
                if weights[word] > 0.0 and seen[word] < number - near:
                    chance = 1.0 - np.exp(pieces * absent[word])
                    found += weights[word] * ((seen[word] >= 0) - chance)
                    every += weights[word]
        for at in range(first, first + window):
            seen[ids[at]] = number
    return found / every if every > 0.0 else 0.0


@compiled
def _count_gaps(
    ids: Any, repeated: Any, shares: Any, words: int, bins: Any, rings: Any, filled: Any, gaps: Any
) -> None:
    """Count, by bin, the gaps between a rare word and its previous occurrences."""
    filled[:words] = 0
    gaps[:] = 0
    for at in range(len(ids)):
        word = ids[at]
        if repeated[at] or shares[word] > FREQUENT:
            continue
        for place in range(min(filled[word], LAST)):
            gap = at - rings[word, place]
            if gap < len(bins) and bins[gap] >= 0:
                gaps[bins[gap]] += 1
        rings[word, filled[word] % LAST] = at
        filled[word] += 1


@compiled
def _interleaving(gaps: Any, widths: Any, middles: Any, words: int, rates: Any) -> float:
    """Return the largest logarithm of how much likelier a word recurs after twice a gap than after it; at least 0."""
    last = 0
    while last < len(gaps) and middles[last] <= 0.6 * words:
        rates[last] = gaps[last] / widths[last] / max(words - middles[last], 1.0)
        last += 1
    most = 0.0
    for first in range(LAG + 2, last - LAG - 1):
        counted = 0
        for number in range(first, first + LAG + 1):
            counted += gaps[number]
        here = rates[first - 1] + rates[first] + rates[first + 1]
        there = rates[first + LAG - 1] + rates[first + LAG] + rates[first + LAG + 1]
        if counted >= FEWEST and here > 0.0 and there > 0.0:
            most = max(most, np.log(there / here))
    return most


@allocating
def measure(
    units: Wide, bounds: Any, times: Any, known: Wide, values: Any, pieces: int, length: float, size: int,
    window: int, near: int, bins: Any, widths: Any, middles: Any, out: Any,
) -> None:  # fmt: skip
    """Write far words, interleaving and repetition of each document into ``out``, float64 [documents, 3].

    ``times``, int64 [documents], is how often each document occurs among those from which the statistics were learnt,
    in pieces of at most ``size`` words, ``length`` in the mean. ``bins``, int8 [longest gap + 1], has the bin of each
    gap, or -1. The other arguments are those of :func:`select_terms` and :class:`LexicalDependency`.
    """
    longest = 1
    for document in range(len(bounds) - 1):
        longest = max(longest, bounds[document + 1] - bounds[document])
    slots = _slots(longest)
    keys, numbers = np.empty(slots, np.uint64), np.empty(slots, np.int32)
    ids, repeated = np.empty(longest, np.int32), np.empty(longest, np.bool_)
    weights = np.empty(longest, np.float64)
    shares, seen, stamp = np.empty(longest, np.float64), np.empty(longest, np.int32), np.empty(longest, np.int32)
    rings, gaps, rates = np.empty((longest, LAST), np.int32), np.empty(len(widths), np.int64), np.empty(len(widths))
    for document in range(len(bounds) - 1):
        start, stop = bounds[document], bounds[document + 1]
        out[document, 0] = out[document, 1] = out[document, 2] = 0.0
        if start == stop:
            continue
        used = _slots(stop - start)
        text, mine, marked = units[start:stop], ids[: stop - start], repeated[: stop - start]
        keys[:used] = 0
        words = _number_words(text, keys[:used], numbers, ids, known, values, shares)
        _take_shares(mine, times[document], size, pieces, words, seen, shares)
        keys[:used] = 0
        out[document, 2] = _mark_repeated(text, keys[:used], marked)
        _count_gaps(mine, marked, shares, words, bins, rings, stamp, gaps)
        out[document, 1] = _interleaving(gaps, widths, middles, stop - start, rates)
        out[document, 0] = _far_words(mine, marked, weights, shares, words, window, near, length, seen, stamp)


CRAWL = "crawl"
COLUMN = "long_range"
MEASURES = ("score", "far_words", "interleaving", "repetition")
FEWEST_WINDOWS = 12  # least number of windows in a measured document: shorter ones have hardly any distant context
SHORTEST, LONGEST = 16, 16_384  # range of gaps, in words, that are compared to detect two alternating texts
BINS = 40
PIECE = 2_000  # greatest number of words in a piece; only documents longer than this are remembered as learnt from
MOST_WORDS = 1 << 21  # number of words that are kept, those in most pieces; all others count as words that never occur
BATCH = 1_000  # documents that are measured together
SCHEMA = pa.schema([("word", pa.uint64()), ("pieces", pa.uint32())])
_WORDS, _COUNTS = pa.large_list(pa.uint64()), pa.large_list(pa.uint32())
MEASURED = pa.schema(
    [("words", _WORDS), ("counts", _COUNTS), ("pieces", pa.int64()), ("length", pa.int64()), ("documents", _WORDS)]
)
"""Words of a batch of documents, the pieces with each, the numbers of pieces and of words, and documents by hash."""
_ABOUT = (b"pieces", b"words", b"documents", SEAL.encode())


@dataclass(frozen=True, eq=False)
class WordStatistics:
    """Number of pieces of a crawl in which each word occurs."""

    words: Wide  # hashes, in increasing order
    counts: npt.NDArray[np.uint32]  # number of pieces with each word, at least two
    pieces: int
    length: float  # mean number of words of a piece
    documents: Wide  # hashes of documents with several pieces, in increasing order, with repetitions

    @property
    def digest(self) -> str:
        """SHA-256 of all data, stored in the file, since parquet's checksums only cover columns."""
        about = f"{self.pieces} {self.length!r} {len(self.words)} "
        columns = (self.words.astype("<u8"), self.counts.astype("<u4"), self.documents.astype("<u8"))
        return sha256(about.encode() + b"".join(each.tobytes() for each in columns)).hexdigest()

    @cached_property
    def table(self) -> tuple[Wide, npt.NDArray[np.uint32]]:
        """Hash table of the words for kernels: their keys, and their counts."""
        slots = 1 << (2 * len(self.words)).bit_length()
        keys, counts = np.zeros(slots, np.uint64), np.zeros(slots, np.uint32)
        fill_table(self.words, self.counts, keys, counts)
        return keys, counts

    def save(self, path: str | Path) -> None:
        """Write a parquet file for ``LexicalDependency(statistics=path)``."""
        documents = self.documents.astype("<u8").tobytes()
        about = (str(self.pieces), repr(self.length), documents, self.digest)
        schema = SCHEMA.with_metadata(dict(zip(_ABOUT, about, strict=True)))
        write_table(pa.table([self.words, self.counts], schema=schema), Path(path), compression="zstd")


def count_words(tables: Iterable[pa.Table], stage: str = "count_words") -> WordStatistics:
    """Count the pieces of documents in which each word occurs; the order of documents does not matter.

    >>> table = pa.table({"text": ["The whale, the whale!", "A whale and a ship."]})
    >>> found = count_words([table])
    >>> found.pieces, found.counts.tolist()
    (2, [2])

    Args:
        tables: documents, with the column ``text``.
        stage: name of the stage in messages.

    Raises:
        StageError: the documents have no words.
    """
    return _add_up((_measure_words(table, stage) for table in tables), stage)


def _measure_words(table: pa.Table, stage: str) -> pa.Table:
    """Return ``MEASURED`` of documents, a row per batch."""
    rows = list[dict[str, Any]]()
    for batch in pa.table({"text": column(table, "text", stage)}).to_batches(BATCH):
        texts = valid_texts(column(pa.Table.from_batches([batch]), "text", stage), stage)
        units, bounds = hash_units(texts, None)
        ends, first = _ends_of_pieces(bounds), np.empty(len(units), np.bool_)
        longest = int(np.diff(ends, prepend=0).max(initial=1))
        _mark_first(units, ends, np.empty(1 << max((2 * longest - 1).bit_length(), 4), np.uint64), first)
        words, counts = np.unique(units[first], return_counts=True)
        documents = _documents(units, bounds)[np.diff(bounds) > PIECE]
        values = (words, counts.astype(np.uint32), len(ends), len(units), documents)
        rows.append(dict(zip(MEASURED.names, values, strict=True)))
    return pa.Table.from_pylist(rows, MEASURED)


def _add_up(measured: Iterable[pa.Table], stage: str) -> WordStatistics:
    """Return the statistics of documents from ``MEASURED`` of their batches, in any order."""
    words, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    waiting, held, pieces, total, documents = list[tuple[Any, Any]](), 0, 0, 0, [np.zeros(0, np.uint64)]
    for row in (table.slice(at, 1) for table in measured for at in range(table.num_rows)):
        found = [row[name].combine_chunks() for name in MEASURED.names]
        pieces, total = pieces + found[2][0].as_py(), total + found[3][0].as_py()
        documents.append(found[4].flatten().to_numpy())
        waiting.append((found[0].flatten().to_numpy(), found[1].flatten().to_numpy().astype(np.int64)))
        held += len(waiting[-1][0])
        if held > max(len(words), MOST_WORDS):
            words, counts = _added([(words, counts), *waiting])
            waiting, held = [], 0
    words, counts = _added([(words, counts), *waiting])
    if not pieces:
        raise StageError(f"{stage} needs documents with words to learn from: check the stages before it")
    several = counts > 1
    words, counts = words[several], counts[several]
    if len(words) > MOST_WORDS:
        chosen = np.sort(np.lexsort((words, -counts))[:MOST_WORDS])
        words, counts = words[chosen], counts[chosen]
    return WordStatistics(words, counts.astype(np.uint32), pieces, total / pieces, np.sort(np.concatenate(documents)))


def _added(parts: Sequence[tuple[Any, Any]]) -> tuple[Wide, npt.NDArray[np.int64]]:
    """Return the distinct words of parts in increasing order, and the sums of their counts."""
    words = np.concatenate([each for each, _ in parts])
    order = np.argsort(words, kind="stable")
    words, counts = words[order], np.concatenate([each for _, each in parts])[order]
    starts = np.flatnonzero(np.diff(words, prepend=~words[:1]))
    return words[starts], np.add.reduceat(counts, starts) if len(starts) else counts


@reread_when_changed(2)
def read_statistics(path: str) -> WordStatistics:
    """Read statistics from a file written by :meth:`WordStatistics.save`, and check them."""
    fix = "write it again with lc.long.count_words([table]).save(path)"
    with unreadable(path, StageError, fix):
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
        table.validate(full=True)
    about = table.schema.metadata or {}
    if not table.schema.equals(SCHEMA) or not set(_ABOUT) <= about.keys():
        raise StageError(f"{path} has no word statistics, only the columns {listed(table.column_names)}: {fix}")
    with unreadable(path, StageError, fix):
        words, counts = (table[name].to_numpy() for name in SCHEMA.names)
        pieces, length, documents, digest = (about[name] for name in _ABOUT)
        hashes = np.frombuffer(documents, "<u8").astype(np.uint64)
        found = WordStatistics(words, counts, int(pieces), float(length), hashes)
        whole = found.digest.encode() == digest
    if not whole:
        raise StageError(f"{path} has been changed: its SHA-256 differs from the recorded one; {fix}")
    return found


def _ends_of_pieces(bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the end of each piece of documents; one without words has none."""
    sizes = np.diff(bounds)
    cut = -(-sizes // PIECE)
    inside = np.arange(cut.sum()) - np.repeat(np.cumsum(cut) - cut, cut)
    return np.minimum(np.repeat(bounds[:-1], cut) + (inside + 1) * PIECE, np.repeat(bounds[1:], cut))


def _documents(units: Wide, bounds: npt.NDArray[np.int64]) -> Wide:
    """Return a hash of each document, made from its words in any order and their number."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(units, dtype=np.uint64)])
    found: Wide = (sums[bounds[1:]] - sums[bounds[:-1]]) * _FACTOR
    return found + np.diff(bounds).astype(np.uint64)


class LearnsWords(Stage):
    """Base of stages that need word statistics, read from a file or learnt from the documents that reach the stage."""

    statistics: str
    train_documents: int | None
    fits_measures: ClassVar[bool] = True

    @property
    def needs_fit(self) -> bool:
        """Whether word statistics must first be learnt from the documents."""
        return self.statistics == CRAWL

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Self:
        """Count the words of documents, or of a sample by hashes of their ids, and return a stage with the counts."""
        if not self.needs_fit:
            return self
        chosen = choose(tables, self.train_documents, f"{self.name}.train_documents")
        return self.fit_measures(map(self.measure_to_fit, chosen), directory)

    def measure_to_fit(self, table: pa.Table) -> pa.Table:
        """Return ``MEASURED`` of the documents."""
        return _measure_words(table, self.name)

    def fit_measures(self, measures: Iterable[pa.Table], directory: str) -> Self:
        """Return the stage with statistics of the measured documents, written into ``directory``."""
        found = _add_up(measures, self.name)
        path = Path(directory) / f"words-{found.digest[:16]}.parquet"
        found.save(path)
        return replace(self, statistics=str(path))  # type: ignore[type-var]  # stages are dataclasses

    def files(self) -> tuple[str, ...]:
        """Return the path of the statistics, if they are read from a file."""
        return () if self.needs_fit else (self.statistics,)

    def check_fitted(self) -> None:
        """Raise StageError if the statistics must be learnt first."""
        if self.needs_fit:
            raise StageError(
                f"{self.name} has no statistics yet: call stage.fit(tables, directory) first, or choose a file"
            )


@stage
class LexicalDependency(LearnsWords, Edit):
    """Measure from words alone how much of a document's vocabulary recurs from far before.

    A long document that is a single text takes up names and terms again after thousands of words; concatenated short
    texts do so only by chance. The column ``long_range`` has four numbers, null for documents of fewer than 12 windows:

    * ``far_words``: in each window of ``window`` words, take the rare words that are missing from the last ``near``
      windows. The measure is the share of them, each word weighted by -log p, that occurred before those windows, minus
      the share expected if all earlier text were other pieces of the crawl: 1 - (1 - p) ** (words / length), with p the
      share of pieces that have the word. If the document was itself counted, its own pieces are left out. About 0.06
      for concatenated short texts, 0.14 to 0.29 for books, manuals and standards;
    * ``interleaving``: the largest logarithm of how much likelier a rare word recurs after twice a gap than after the
      gap, for gaps of 32 to 8,192 words; about 0 for one text, 0.6 and more for two that alternate;
    * ``repetition``: the share of words in passages of five words or more that repeat earlier ones in the document;
    * ``score``: ``far_words * sqrt(1 - repetition) * exp(-3 * interleaving)``.

    Words of repeated passages are ignored in all other measures, so that lists, templates and boilerplate gain nothing.
    On 77 long English documents, held out, the score separates them from concatenated short ones with AUC 1.0, from two
    that alternate with 0.99 to 1.0, and from templated pages with 0.96 (``benchmarks/long_range.py``).

    Args:
        statistics: "crawl" learns word frequencies from the documents that reach the stage; otherwise the path of a
            file written by ``lc.long.count_words(tables).save(path)``.
        min_score: documents with a lower score are removed, by the rule ``min_score``; None to remove none.
        short: what happens to documents that are too short to be measured; "drop" needs a ``min_score``.
        window: words in a window.
        near: number of preceding windows that are not far.
        train_documents: number of documents from which statistics are learnt; None for all.
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
        self.check_least(window=1, near=1, train_documents=1)

    @property
    def measures_in(self) -> tuple[str, ...]:
        """Columns with the measures: ``long_range``."""
        return (COLUMN,)

    def prepare(self) -> None:
        """Read the statistics and compile the kernels."""
        if not self.needs_fit:
            self.measures(pa.array(["a text"], pa.large_string()))

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Add the column ``long_range``, and compare the score with ``min_score``."""
        found = self.measures(valid_texts(column(table, "text", self.name), self.name))
        checks: list[Check] = []
        if self.min_score is not None:
            score = pc.struct_field(found, "score")
            passes = pc.fill_null(pc.greater_equal(score, self.min_score), self.short == "keep")
            checks.append(Check("min_score", score, passes, self.min_score, "at_least"))
        return with_column(table, COLUMN, found), checks

    def measures(self, texts: pa.Array) -> pa.StructArray:
        """Return the measures of valid large strings."""
        self.check_fitted()
        known = read_statistics(self.statistics)
        units, bounds = hash_units(texts, None)
        mine = _documents(units, bounds)
        times = np.searchsorted(known.documents, mine, "right") - np.searchsorted(known.documents, mine)
        out = np.empty((len(texts), 3), np.float64)
        counts = (*known.table, known.pieces, known.length)
        measure(units, bounds, times, *counts, PIECE, self.window, self.near, *_bins(), out)
        far, interleaving, repetition = out.T
        score = far * np.sqrt(1 - repetition) * np.exp(-3 * interleaving)
        columns = [pa.array(np.ascontiguousarray(each)) for each in (score, far, interleaving, repetition)]
        short = pa.array(np.diff(bounds) < FEWEST_WINDOWS * self.window)
        return pa.StructArray.from_arrays(columns, list(MEASURES), mask=short)


@cache
def _bins() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the bin of each gap, and widths and middles of the bins: four to each doubling."""
    edges = np.round(SHORTEST * 2.0 ** (np.arange(BINS + 1) / 4))
    assert edges[-1] == LONGEST
    bins: Any = np.searchsorted(edges, np.arange(LONGEST), side="right") - 1
    return bins.astype(np.int8), np.diff(edges), (edges[1:] + edges[:-1]) / 2
