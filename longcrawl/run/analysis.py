"""Statistics of a dataset: document lengths, domains and languages, as in Appendices C and D of the RefinedWeb paper.

They are counted from the columns ``text``, ``n_tokens``, ``url`` and ``language``; missing columns are skipped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from longcrawl.core.addresses import url_hosts
from longcrawl.core.display import Table, Tabular, progress_bar, share_table
from longcrawl.core.exchange import Engine
from longcrawl.errors import CorruptionError, unreadable
from longcrawl.io.stored_tables import DAMAGED, check_undamaged
from longcrawl.run.engines.local import Local

NO_LANGUAGE = ""
"""Key for documents without a language in the counts by language; JSON keys cannot be null."""
MOST_SHOWN = 20
"""Number of domains and of languages in the printed tables; :class:`Analysis` has more."""

MOST_DOMAINS = 1_000_000
LARGEST = 100


@dataclass(frozen=True)
class Lengths:
    """Histogram of lengths in powers of two: bin ``n`` counts 2**(n-1) <= length < 2**n, and bin 0 counts length 0."""

    unit: str
    documents: Mapping[int, int] = field(default_factory=dict)
    """Documents per bin; empty bins are omitted."""
    total: Mapping[int, int] = field(default_factory=dict)
    """Characters or tokens per bin, summed over its documents."""

    @classmethod
    def count(cls, unit: str, lengths: pa.ChunkedArray | pa.Array) -> "Lengths":
        """Count the lengths of documents; a null counts as 0."""
        known = np.asarray(pc.fill_null(pc.cast(lengths, pa.int64()), 0))
        bins = np.frexp(known.astype(np.float64))[1]
        documents, total = np.bincount(bins), np.bincount(bins, known)
        places = np.flatnonzero(documents).tolist()
        return cls(unit, *({place: int(row[place]) for place in places} for row in (documents, total)))

    def __add__(self, other: "Lengths") -> "Lengths":
        pairs = (self.documents, other.documents), (self.total, other.total)
        bins = sorted(self.documents.keys() | other.documents.keys())
        return Lengths(self.unit, *({each: one.get(each, 0) + two.get(each, 0) for each in bins} for one, two in pairs))

    @property
    def bins(self) -> range:
        """The range of bins from the shortest to the longest document, empty bins included."""
        return range(min(self.documents, default=0), max(self.documents, default=-1) + 1)

    @property
    def mean(self) -> float:
        """The mean length of a document."""
        return sum(self.total.values()) / max(sum(self.documents.values()), 1)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, which :meth:`from_dict` reads."""
        return {
            "unit": self.unit,
            "documents": {str(number): count for number, count in self.documents.items()},
            "total": {str(number): count for number, count in self.total.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Lengths":
        """Make a histogram from the values of :meth:`as_dict`."""
        names = ("documents", "total")
        return cls(values["unit"], *({int(bin_): count for bin_, count in values[name].items()} for name in names))


@dataclass(frozen=True, repr=False)
class Analysis(Tabular):
    """Statistics of a dataset, shown as text bars in a terminal, in colour in a notebook, and as tables on a card."""

    documents: int
    lengths: tuple[Lengths, ...] = ()
    """Histograms in characters of ``text`` and in ``n_tokens``, for the columns that exist."""
    domains: Mapping[str, int] = field(default_factory=dict)
    """Documents of the 100 largest hosts, without ``www.``, largest first; empty if there are no URLs."""
    distinct_domains: int = 0
    domains_error: int = 0
    """Largest possible undercount of a domain, in documents: 0 up to a million domains, see ``DomainCounts``."""
    without_url: int = 0
    languages: Mapping[str, int] = field(default_factory=dict)
    """Documents by language, largest first; the key "" is for no language. Empty without a language column."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, which :meth:`from_dict` reads."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"lengths": [each.as_dict() for each in self.lengths]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Analysis":
        """Make an analysis from the values of :meth:`as_dict`."""
        known = {each.name: values[each.name] for each in fields(cls)}
        return cls(**{**known, "lengths": tuple(map(Lengths.from_dict, values["lengths"]))})

    def tables(self) -> list[Table]:
        """Return the tables of lengths, domains and languages that this dataset has."""
        return [*(length_table(each) for each in self.lengths), *self.place_tables()]

    def place_tables(self) -> list[Table]:
        """Return the tables of domains and languages; languages are left out if no document names one."""
        tables = []
        if self.domains:
            rest = f"domains: {self.distinct_domains:,}; documents without a URL: {self.without_url:,}"
            if self.domains_error:
                rest += f"; rare domains were forgotten: a count may be {self.domains_error:,} too low"
            largest = list(self.domains.items())[:MOST_SHOWN]
            tables.append(share_table("domain", largest, self.documents, rest))
        if any(self.languages):
            largest = list(self.languages.items())[:MOST_SHOWN]
            rest = f"languages: {len(self.languages.keys() - {NO_LANGUAGE}):,}"
            tables.append(share_table("language", largest, self.documents, rest))
        return tables


def length_table(lengths: Lengths) -> Table:
    """Return a table with a row for each bin, from the shortest to the longest."""
    documents, total = max(sum(lengths.documents.values()), 1), max(sum(lengths.total.values()), 1)
    rows = [
        (bin_name(number), lengths.documents.get(number, 0), lengths.total.get(number, 0) / total)
        for number in lengths.bins
    ]
    rest = f"{lengths.mean:,.0f} {lengths.unit} on average, {sum(lengths.total.values()):,} in all"
    return share_table(lengths.unit, rows, documents, rest, f"of all {lengths.unit}")


def bin_name(number: int) -> str:
    """Return the range of lengths in a bin, for display.

    >>> bin_name(5)
    '16 to 31'
    """
    return f"{1 << number - 1:,} to {(1 << number) - 1:,}" if number > 1 else str(number)


class DomainCounts:
    """Counter of documents by domain, with bounded memory.

    Of more than two million domains, only the million with most documents are kept. ``error`` is the largest possible
    undercount of a domain, and ``distinct`` a lower bound once domains were dropped.
    """

    def __init__(self, most: int = MOST_DOMAINS) -> None:
        self.counts: Counter[str] = Counter()
        self.error = 0
        self.distinct = 0
        self._most = most

    def merge(self, other: "DomainCounts") -> None:
        """Add the counts of another counter; the errors add up, as both may have dropped the same domain."""
        self.error += other.error
        self.distinct = max(self.distinct, other.distinct)
        self.add(other.counts)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of one file, by domain."""
        self.counts.update(counts)
        self.distinct = max(self.distinct, len(self.counts))
        if len(self.counts) > 2 * self._most:
            ranked = _ranked(self.counts)
            self.counts = Counter(dict(ranked[: self._most]))
            self.error += ranked[self._most][1]

    def largest(self) -> list[tuple[str, int]]:
        """Return the 100 domains with most documents; ties are sorted by name."""
        return _ranked(self.counts)[:LARGEST]


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def analyse(documents: pads.FileSystemDataset, engine: Engine = Local()) -> Analysis:  # noqa: B008  # immutable
    """Compute the statistics of files with a row per document, one row group at a time, whatever the ``engine``.

    Raises:
        CorruptionError: a file cannot be read.
    """
    counts = _Counts()
    count = partial(_count, documents.files, documents.format)
    with progress_bar(total=len(documents.files), desc="analyse", unit=" files") as bar:
        waiting: dict[int, _Counts] = {}
        turn = 0
        for number, counted in engine.tasks(count, range(len(documents.files))):
            waiting[number] = counted
            while turn in waiting:  # in the order of files, so that the dropped domains do not depend on timing
                counts.add(waiting.pop(turn))
                turn += 1
                bar.update()
    return counts.analysis()


class _Counts:
    def __init__(self) -> None:
        self.documents = 0
        self.lengths: dict[str, Lengths] = {}
        """Histograms by unit."""
        self.domains = DomainCounts()
        self.without_url = 0
        self.languages: Counter[str] = Counter()

    def look_at(self, table: pa.Table) -> None:
        if "text" in table.column_names:
            self._add_lengths(Lengths.count("characters", pc.utf8_length(table["text"])))
        if "n_tokens" in table.column_names:
            self._add_lengths(Lengths.count("tokens", table["n_tokens"]))
        if "url" in table.column_names:
            hosts = url_hosts(table["url"])
            self.without_url += hosts.null_count
            self.domains.add(_value_counts(hosts.drop_null()))
        if "language" in table.column_names:
            found = pc.fill_null(pc.cast(table["language"], pa.large_string()), NO_LANGUAGE)
            self.languages.update(_value_counts(found))

    def _add_lengths(self, found: Lengths) -> None:
        self.lengths[found.unit] = self.lengths.get(found.unit, Lengths(found.unit)) + found

    def add(self, other: "_Counts") -> None:
        self.documents += other.documents
        for found in other.lengths.values():
            self._add_lengths(found)
        self.domains.merge(other.domains)
        self.without_url += other.without_url
        self.languages.update(other.languages)

    def analysis(self) -> Analysis:
        return Analysis(
            self.documents,
            tuple(self.lengths.values()),
            dict(self.domains.largest()),
            self.domains.distinct,
            self.domains.error,
            self.without_url,
            dict(_ranked(self.languages)),
        )


def _count(files: Sequence[str], form: pads.FileFormat, number: int) -> tuple[int, _Counts]:
    counts, file = _Counts(), Path(files[number])
    check_undamaged([file])
    with unreadable(file, CorruptionError, DAMAGED):
        if isinstance(form, pads.ParquetFileFormat):
            with pq.ParquetFile(file, page_checksum_verification=True) as opened:
                counts.documents = opened.metadata.num_rows
                columns = [column.name for column in opened.schema_arrow if _is_looked_at(column)]
                for group in range(opened.num_row_groups):
                    counts.look_at(opened.read_row_group(group, columns))
        else:
            found = pads.dataset(str(file), format=form)
            counts.documents = found.count_rows()
            counts.look_at(found.to_table(columns=[column.name for column in found.schema if _is_looked_at(column)]))
    return number, counts


def _is_looked_at(column: pa.Field) -> bool:
    if column.name == "n_tokens":
        return bool(pa.types.is_integer(column.type))
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.name in ("text", "url", "language") and is_text


def _value_counts(values: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(values)
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
