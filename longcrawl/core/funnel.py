"""Funnels: counts of the documents and characters that each stage kept, also as percentages and by column values."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from longcrawl.core.counts import Counts, EditCounts, add_counts, add_edits, describe
from longcrawl.core.display import BAR, Cell, Code, Column, Table, Tabular, share_table
from longcrawl.core.registry import check_fields
from longcrawl.errors import RecipeError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_VALUES = 20
"""Maximum number of values listed in a table; the funnel has all."""
MOST_RULES = 6
"""Maximum number of rules of a stage listed in a table."""


@dataclass(frozen=True)
class FunnelRow:
    """Counts of one stage: documents in and out, and documents removed by each rule."""

    stage: str
    documents_in: int
    documents_out: int
    rules: Mapping[str, int] = field(default_factory=dict)
    characters: int | None = None
    """Code points of all remaining texts, or None if they were not counted or documents have no text at this stage."""
    values: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Remaining documents by the values of the stage's ``counts``, as ``{"language": {"en": 5}}``; "" counts nulls."""
    edits: EditCounts | None = None
    queued: Counts = field(default_factory=dict)
    """Documents, kept or removed, that the stage put into queues."""

    @property
    def removed(self) -> int:
        """Number of documents that this stage removed."""
        return self.documents_in - self.documents_out

    def __add__(self, other: "FunnelRow") -> "FunnelRow":
        """Add the counts of the same stage on other documents."""
        return FunnelRow(
            self.stage,
            self.documents_in + other.documents_in,
            self.documents_out + other.documents_out,
            dict(sorted((Counter(self.rules) + Counter(other.rules)).items())),
            total([self.characters, other.characters]),
            add_values([self.values, other.values]),
            add_edits([self.edits, other.edits]),
            add_counts([self.queued, other.queued]),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON-ready values, the inverse of :meth:`from_dict`."""
        values = {column: dict(counts) for column, counts in self.values.items()}
        return {
            "stage": self.stage,
            "in": self.documents_in,
            "out": self.documents_out,
            "rules": dict(self.rules),
            "characters": self.characters,
            **({"values": values} if values else {}),
            "edits": self.edits.as_dict() if self.edits else None,
            **({"queued": self.queued} if self.queued else {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "FunnelRow":
        """Restore a row from the values of :meth:`as_dict`."""
        return cls(
            values["stage"],
            values["in"],
            values["out"],
            dict(values["rules"]),
            values["characters"],
            values.get("values", {}),
            EditCounts.from_dict(values["edits"]) if values["edits"] else None,
            values.get("queued", {}),
        )


@dataclass(frozen=True, repr=False)
class Funnel(Tabular):
    """Counts of the documents that each stage kept: prints as a table, and with bars in a notebook."""

    source: str
    documents: int
    rows: tuple[FunnelRow, ...] = ()
    characters: int | None = None
    """Code points of all input texts, see :attr:`FunnelRow.characters`."""

    def __iter__(self) -> Iterator[FunnelRow]:
        return iter(self.rows)

    @property
    def kept(self) -> int:
        """Number of documents kept by all stages."""
        return self.rows[-1].documents_out if self.rows else self.documents

    def emptied_by(self) -> str | None:
        """Return the stage that removed the last documents, or None if some remain or there were none."""
        return next((row.stage for row in self.rows if row.documents_in and not row.documents_out), None)

    def then(self, row: FunnelRow) -> "Funnel":
        """Return the funnel with one more stage."""
        return replace(self, rows=(*self.rows, row))

    def counted(self, characters: int | None) -> "Funnel":
        """Set the characters remaining after the last stage, if they are not known yet."""
        if not self.rows or self.rows[-1].characters is not None:
            return self
        return replace(self, rows=(*self.rows[:-1], replace(self.rows[-1], characters=characters)))

    def as_dict(self) -> dict[str, Any]:
        """Return the funnel as JSON-ready values, the inverse of :meth:`from_dict`."""
        rows = [row.as_dict() for row in self.rows]
        return {"source": self.source, "documents": self.documents, "characters": self.characters, "stages": rows}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Funnel":
        """Restore a funnel from the values of :meth:`as_dict`."""
        rows = map(FunnelRow.from_dict, values["stages"])
        return cls(values["source"], values["documents"], tuple(rows), values["characters"])

    def tables(self) -> list[Table]:
        """Return a table with one row per stage."""
        columns = [Column("stage"), Column("kept", "count", 12), Column("removed", "count", 12)]
        counts = [(row.stage, row.documents_out, row.removed, _reasons(row)) for row in self.rows]
        rows = [
            [stage, documents, removed, min(documents / max(self.documents, 1), 1.0), reasons]
            for stage, documents, removed, reasons in [(self.source, self.documents, None, None), *counts]
        ]
        return [Table([*columns, Column("", "bar", BAR), Column("rules")], rows)]


@dataclass(frozen=True)
class Reference:
    """Published figures to compare a run with: the part of a recipe under ``reference``."""

    name: str = ""
    documents: Mapping[str, float] = field(default_factory=dict)
    """Share of all documents that remains after a stage, such as ``{language: 0.48}``."""

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)
        for stage, share in self.documents.items():
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
                raise RecipeError(f"documents.{stage} must be a share from 0 to 1, got {share!r}")
        if self.documents and not self.name:
            raise RecipeError("documents need a name: set name to the source of the figures")


@dataclass(frozen=True, repr=False)
class RemovalRates(Tabular):
    """A funnel in percentages: prints as a table in a terminal, in Markdown and in a notebook.

    >>> from longcrawl.core.funnel import FunnelRow
    >>> funnel = Funnel("warc", 200, (FunnelRow("language", 200, 100), FunnelRow("gopher_quality", 100, 25)))
    >>> print(RemovalRates(funnel, Reference("RefinedWeb", {"language": 0.48})))
    stage               kept    of all  of before  RefinedWeb
    warc                 200   100.0 %
    language             100    50.0 %     50.0 %      48.0 %
    gopher_quality        25    12.5 %     25.0 %
    """

    funnel: Funnel
    reference: Reference = field(default_factory=Reference)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "RemovalRates":
        """Read funnel and reference from the manifest of a run."""
        return cls(Funnel.from_dict(manifest["funnel"]), Reference(**manifest["recipe"]["reference"]))

    @property
    def columns(self) -> list[Column]:
        """Columns: the stage, documents, characters if they were counted, and the published share if there is one."""
        counts = [Column("kept", "count", 8), Column("of all", "share", 8), Column("of before", "share", 8)]
        columns = [Column("stage"), *counts]
        if self.has_characters:
            columns += [Column("characters", "count", 8), *counts[1:]]
        return columns + ([Column(self.reference.name, "share", 8)] if self.reference.documents else [])

    def __iter__(self) -> Iterator[list[Cell]]:
        """Yield the cells of each row, the input first: a name, counts and shares of 1; None if not counted."""
        funnel = self.funnel
        names = [funnel.source, *(row.stage for row in funnel)]
        documents = _rates([funnel.documents, *(row.documents_out for row in funnel)])
        characters = _rates([funnel.characters, *(row.characters for row in funnel)])
        for name, one, other in zip(names, documents, characters, strict=True):
            cells = [name, *one, *(other if self.has_characters else [])]
            yield cells + ([self.reference.documents.get(name)] if self.reference.documents else [])

    def tables(self) -> list[Table]:
        """Return a table with one row per stage."""
        return [Table(self.columns, list(self))]

    @property
    def has_characters(self) -> bool:
        """Whether any stage has counted characters, which adds columns for them."""
        return any(row.characters is not None for row in self.funnel)


def value_tables(funnel: Funnel) -> list[Table]:
    """Return a table for each column with values that a stage counted, such as languages in RefinedWeb's Appendix D.

    >>> from longcrawl.core.funnel import FunnelRow
    >>> row = FunnelRow("identify_language", 5, 4, values={"language": {"en": 3, "de": 1}})
    >>> print(value_tables(Funnel("warc", 5, (row,)))[0])
    language     documents    share
    en                   3   75.0 %  ████████████████████████
    de                   1   25.0 %  ████████
    after identify_language; values of language: 2
    """
    return [
        share_table(
            column,
            list(counts.items())[:MOST_VALUES],
            row.documents_out,
            f"after {row.stage}; values of {column}: {len(counts.keys() - {''}):,}",
        )
        for row in funnel
        for column, counts in row.values.items()
        if any(counts)
    ]


def count_values(documents: "pa.Table", column: str | None) -> dict[str, dict[str, int]]:
    """Count documents by the values of a column, see :attr:`FunnelRow.values`; return {} if ``column`` is None."""
    if column is None:
        return {}
    import pyarrow.compute as pc

    counts = pc.value_counts(documents[column]).to_pylist()
    return add_values([{column: {each["values"] or "": each["counts"]}} for each in counts] or [{column: {}}])


def add_values(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Add the counts of :func:`count_values` of several tables; sort them by descending count, then by name."""
    sums: dict[str, Counter[str]] = {}
    for part in parts:
        for column, counts in part.items():
            sums.setdefault(column, Counter()).update(counts)
    return {
        column: dict(sorted(counts.items(), key=lambda value: (-value[1], value[0]))) for column, counts in sums.items()
    }


def total(counts: Iterable[int | None]) -> int | None:
    """Add counts, or return None if one of them is None."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


def _reasons(row: FunnelRow) -> tuple[str, ...]:
    """Return the rules with their counts, and the edits, as words of a table cell."""
    ranked, words = largest_rules(row.rules, MOST_RULES), list[str]()
    more = [*([str(row.edits)] if row.edits else []), *describe(row.queued)]
    for place, (rule, count) in enumerate(ranked, 1):
        end = "," if place < len(ranked) else ";" if more else ""
        words += [Code(rule), f"{count:,}{end}"]
    return (*words, "; ".join(more)) if more else tuple(words)


def largest_rules(rules: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Return the rules that removed the most documents, with their counts, then "others"."""
    ranked = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ranked[most:])
    return [*ranked[:most], *([("others", rest)] if rest else [])]


def _rates(counts: list[int | None]) -> Iterator[list[Cell]]:
    """Yield each count with its share of the first known count and of the count before."""
    first = next((count for count in counts if count is not None), None)
    before: int | None = None
    for count in counts:
        yield [count, *(count / whole if count is not None and whole else None for whole in (first, before))]
        before = count
