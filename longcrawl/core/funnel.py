"""How many documents and characters each stage kept: in numbers, in percent, and by the values of a column.

A recipe may name the figures of the work that it follows under ``reference``; they stand beside those of the run, as
in RefinedWeb's Figure 2.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import BAR, Cell, Code, Column, ShareRow, Table, Tabular, share_table
from longcrawl.core.ledger import EditCounts, add_edits
from longcrawl.core.registry import check_fields
from longcrawl.errors import RecipeError

MOST_VALUES = 20
"""Values that a table names; the funnel has all."""


@dataclass(frozen=True)
class FunnelRow:
    """One stage: documents in and out, and how many each rule removed."""

    stage: str
    documents_in: int
    documents_out: int
    rules: Mapping[str, int] = field(default_factory=dict)
    characters: int | None = None
    """Code points of all remaining texts; None where there are no texts yet or any more, or nobody counted."""
    values: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Remaining documents by the values of a column, most documents first, as ``{"language": {"en": 5}}``.

    ``counts`` of a stage names the column; "" stands for a null.
    """
    edits: EditCounts | None = None
    """What the stage changed in documents; None where it changed nothing."""

    @property
    def removed(self) -> int:
        """Documents that this stage removed."""
        return self.documents_in - self.documents_out

    def __add__(self, other: "FunnelRow") -> "FunnelRow":
        """Add what the same stage did to other documents."""
        return FunnelRow(
            self.stage,
            self.documents_in + other.documents_in,
            self.documents_out + other.documents_out,
            dict(sorted((Counter(self.rules) + Counter(other.rules)).items())),
            total([self.characters, other.characters]),
            add_values([self.values, other.values]),
            add_edits([self.edits, other.edits]),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON-ready values; :meth:`from_dict` is the way back."""
        values = {column: dict(counts) for column, counts in self.values.items()}
        return {
            "stage": self.stage,
            "in": self.documents_in,
            "out": self.documents_out,
            "rules": dict(self.rules),
            "characters": self.characters,
            **({"values": values} if values else {}),
            "edits": self.edits.as_dict() if self.edits else None,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "FunnelRow":
        """Read what :meth:`as_dict` gave."""
        return cls(
            values["stage"],
            values["in"],
            values["out"],
            dict(values["rules"]),
            values["characters"],
            values.get("values", {}),
            EditCounts.from_dict(values["edits"]) if values["edits"] else None,
        )


@dataclass(frozen=True, repr=False)
class Funnel(Tabular):
    """How many documents each stage kept: a table in a terminal, bars in a notebook."""

    source: str
    documents: int
    rows: tuple[FunnelRow, ...] = ()
    characters: int | None = None
    """Code points of all texts that came, see :class:`FunnelRow`."""

    def __iter__(self) -> Iterator[FunnelRow]:
        return iter(self.rows)

    @property
    def kept(self) -> int:
        """How many documents were kept in the end."""
        return self.rows[-1].documents_out if self.rows else self.documents

    def emptied_by(self) -> str | None:
        """Name the stage that removed the last documents; None while some remain or none ever came."""
        return next((row.stage for row in self.rows if row.documents_in and not row.documents_out), None)

    def then(self, row: FunnelRow) -> "Funnel":
        """Return the funnel with one more stage."""
        return replace(self, rows=(*self.rows, row))

    def counted(self, characters: int | None) -> "Funnel":
        """Return the funnel with the characters remaining after its last stage, where they were not known before."""
        if not self.rows or self.rows[-1].characters is not None:
            return self
        return replace(self, rows=(*self.rows[:-1], replace(self.rows[-1], characters=characters)))

    def as_dict(self) -> dict[str, Any]:
        """Return the funnel as JSON-ready values; :meth:`from_dict` is the way back."""
        rows = [row.as_dict() for row in self.rows]
        return {"source": self.source, "documents": self.documents, "characters": self.characters, "stages": rows}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Funnel":
        """Read what :meth:`as_dict` gave."""
        rows = map(FunnelRow.from_dict, values["stages"])
        return cls(values["source"], values["documents"], tuple(rows), values["characters"])

    def tables(self) -> list[Table]:
        """Return the one table."""
        columns = [Column("stage"), Column("kept", "count", 12), Column("removed", "count", 12)]
        counts = [(row.stage, row.documents_out, row.removed, _reasons(row)) for row in self.rows]
        rows = [
            [stage, documents, removed, min(documents / max(self.documents, 1), 1.0), reasons]
            for stage, documents, removed, reasons in [(self.source, self.documents, None, None), *counts]
        ]
        return [Table([*columns, Column("", "bar", BAR), Column("rules")], rows)]


@dataclass(frozen=True)
class Reference:
    """Figures that somebody has published: the part of a recipe under ``reference``.

    ``documents`` gives the share of all documents that is left after a stage, such as ``{language: 0.48}``.
    """

    name: str = ""
    documents: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)
        for stage, share in self.documents.items():
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
                raise RecipeError(f"documents.{stage} takes a share from 0 to 1, got {share!r}")
        if self.documents and not self.name:
            raise RecipeError("documents need a name: say whose figures they are")


@dataclass(frozen=True, repr=False)
class RemovalRates(Tabular):
    """A funnel in percent: a table in a terminal, in Markdown and in a notebook.

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
        """Take both from the manifest of a run."""
        return cls(Funnel.from_dict(manifest["funnel"]), Reference(**manifest["recipe"]["reference"]))

    @property
    def columns(self) -> list[Column]:
        """What the cells of a row are: the stage, documents, characters where counted, and the published share."""
        counts = [Column("kept", "count", 8), Column("of all", "share", 8), Column("of before", "share", 8)]
        columns = [Column("stage"), *counts]
        if self.has_characters:
            columns += [Column("characters", "count", 8), *counts[1:]]
        return columns + ([Column(self.reference.name, "share", 8)] if self.reference.documents else [])

    @property
    def head(self) -> list[str]:
        """What the columns are called."""
        return [column.title for column in self.columns]

    def __iter__(self) -> Iterator[list[Cell]]:
        """Return the cells of each row, the input first: a name, counts and shares of 1; None where not counted."""
        funnel = self.funnel
        names = [funnel.source, *(row.stage for row in funnel)]
        documents = _rates([funnel.documents, *(row.documents_out for row in funnel)])
        characters = _rates([funnel.characters, *(row.characters for row in funnel)])
        for name, one, other in zip(names, documents, characters, strict=True):
            cells = [name, *one, *(other if self.has_characters else [])]
            yield cells + ([self.reference.documents.get(name)] if self.reference.documents else [])

    def tables(self) -> list[Table]:
        """Return the one table."""
        return [Table(self.columns, list(self))]

    @property
    def has_characters(self) -> bool:
        """Whether there are columns of characters: some stage has counted them."""
        return any(row.characters is not None for row in self.funnel)


def value_tables(funnel: Funnel) -> list[Table]:
    """Return a table for each column that a stage has counted: RefinedWeb's Appendix D, for languages.

    A column in which no document has a value has none.

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
            [
                ShareRow(name or "none", count, count / row.documents_out)
                for name, count in list(counts.items())[:MOST_VALUES]
            ],
            f"after {row.stage}; values of {column}: {len(counts.keys() - {''}):,}",
        )
        for row in funnel
        for column, counts in row.values.items()
        if any(counts)
    ]


def count_values(documents: pa.Table, column: str | None) -> dict[str, dict[str, int]]:
    """Count documents by the values of a column, as :attr:`FunnelRow.values` has them; nothing for no column."""
    if column is None:
        return {}
    counts = pc.value_counts(documents[column]).to_pylist()
    return add_values([{column: {each["values"] or "": each["counts"]}} for each in counts] or [{column: {}}])


def add_values(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Add up what :func:`count_values` gave of several tables, the largest first, equal ones by name."""
    sums: dict[str, Counter[str]] = {}
    for part in parts:
        for column, counts in part.items():
            sums.setdefault(column, Counter()).update(counts)
    return {
        column: dict(sorted(counts.items(), key=lambda value: (-value[1], value[0]))) for column, counts in sums.items()
    }


def total(counts: Iterable[int | None]) -> int | None:
    """Add counts; None where one of them is not known."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)


def _reasons(row: FunnelRow) -> tuple[str, ...]:
    """Return which rules removed documents, and how many of the others were edited."""
    ranked, words = list(_largest(row.rules)), []
    for place, (rule, count) in enumerate(ranked, 1):
        end = "," if place < len(ranked) else ";" if row.edits else ""
        words += [Code(rule), f"{count:,}{end}"]
    return (*words, *([str(row.edits)] if row.edits else []))


def _largest(rules: Mapping[str, int], most: int = 6) -> Iterable[tuple[str, int]]:
    ranked = sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ranked[most:])
    return [*ranked[:most], *([("others", rest)] if rest else [])]


def _rates(counts: list[int | None]) -> Iterator[list[Cell]]:
    """Return count, share of the first known one and share of the one before."""
    first = next((count for count in counts if count is not None), None)
    before: int | None = None
    for count in counts:
        yield [count, *(count / whole if count is not None and whole else None for whole in (first, before))]
        before = count
