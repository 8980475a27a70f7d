"""Why each document was removed, and how many each stage kept.

The ledger is a side table, one row per removed document. Kept documents are never copied to decide about others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.display.numbers import figure
from longcrawl.display.table import BAR, Code, Column, Table
from longcrawl.errors import LedgerError, unreadable
from longcrawl.ledger.edits import EditCounts, TextEdit, describe_edits
from longcrawl.printable import as_lines
from longcrawl.storage.stored_tables import DAMAGED, scan_tables

__all__ = [
    "EARLIER",
    "LEDGER",
    "LEDGER_SCHEMA",
    "Funnel",
    "FunnelRow",
    "Reason",
    "add_values",
    "count_rules",
    "count_values",
    "entries",
    "find_reason",
    "follow",
    "number_rule",
    "open_ledger",
    "total",
]

LEDGER = "ledger"
"""The folder of a run that holds the ledger of removed documents."""

LEDGER_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("stage", pa.string()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("kept_id", pa.string()),
    ]
)
"""``value`` was measured by ``rule`` against ``threshold``; ``kept_id`` is the document that a duplicate duplicates."""

EARLIER = r"^(seen_before|near_duplicate_of_earlier)(_\d+)?$"
"""The rules whose ``kept_id`` is a document of an earlier dataset, which may have the id of one in this."""


@dataclass(frozen=True)
class Reason:
    """Why a document was removed, or that it was kept (``stage`` is None then)."""

    id: str
    stage: str | None = None
    rule: str | None = None
    value: float | None = None
    threshold: float | None = None
    kept_id: str | None = None
    edits: tuple[TextEdit, ...] = ()
    """What stages changed in the document, before it was removed or in what was kept of it."""
    kept: "Reason | None" = None
    """Why the document of ``kept_id`` was removed later, see :func:`follow`; None if it was kept or not looked up."""

    @property
    def leads_on(self) -> bool:
        """Whether it was removed as the duplicate of a document of the same dataset, itself perhaps removed later."""
        return self.kept_id is not None and re.match(EARLIER, self.rule or "") is None

    @property
    def fate(self) -> str:
        """What became of the document, without its id and its edits; ids stand as they were crawled."""
        return self._decision().removeprefix(f"{self.id}: ")

    def __str__(self) -> str:
        return as_lines([self._decision(), *describe_edits(self.edits)], "\n  ")

    def _decision(self) -> str:
        if self.stage is None:
            return f"{self.id}: kept"
        said = f"{self.id}: removed at {self.stage}, rule {self.rule}"
        if self.kept_id is not None:
            similarity = "" if self.value is None else f", similarity {self.value:.2f}"
            later = "" if self.kept is None else f", which was {self.kept.fate}"
            return f"{said}: a duplicate of {self.kept_id}{similarity}{later}"
        if self.threshold is None:
            return said
        return f"{said}: {figure(self.value)} against {figure(self.threshold)}"


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
    """What the stage changed in documents; None where it changed nothing, or an earlier longcrawl did not count."""

    @property
    def removed(self) -> int:
        """Documents that this stage removed."""
        return self.documents_in - self.documents_out


@dataclass(frozen=True)
class Funnel:
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
        rows = [
            {
                "stage": row.stage,
                "in": row.documents_in,
                "out": row.documents_out,
                "rules": dict(row.rules),
                "characters": row.characters,
                **({"values": {column: dict(counts) for column, counts in row.values.items()}} if row.values else {}),
                "edits": row.edits.as_dict() if row.edits else None,
            }
            for row in self.rows
        ]
        return {"source": self.source, "documents": self.documents, "characters": self.characters, "stages": rows}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Funnel":
        """Read what :meth:`as_dict` gave."""
        rows = tuple(
            FunnelRow(
                row["stage"],
                row["in"],
                row["out"],
                dict(row["rules"]),
                row.get("characters"),
                row.get("values", {}),
                EditCounts.from_dict(row["edits"]) if row.get("edits") else None,
            )
            for row in values["stages"]
        )
        return cls(values["source"], values["documents"], rows, values.get("characters"))

    def table(self) -> Table:
        """Return the funnel for a terminal, Markdown and a notebook."""
        columns = [Column("stage"), Column("kept", "count", 12), Column("removed", "count", 12)]
        counts = [(row.stage, row.documents_out, row.removed, _reasons(row)) for row in self.rows]
        rows = [
            [stage, documents, removed, min(documents / max(self.documents, 1), 1.0), reasons]
            for stage, documents, removed, reasons in [(self.source, self.documents, None, None), *counts]
        ]
        return Table([*columns, Column("", "bar", BAR), Column("rules")], rows)

    def __repr__(self) -> str:
        return str(self.table())

    def markdown(self) -> str:
        """Return the funnel as a Markdown table, as dataset cards hold it."""
        return self.table().markdown()

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def entries(ids: pa.Array, verdicts: pa.Table, stage: str) -> pa.Table:
    """Return the ledger rows of one judged batch: the documents whose verdict names a rule."""
    removed = pc.is_valid(verdicts["rule"])
    gone = verdicts.filter(removed)
    rows = gone.num_rows
    kept_ids = gone["kept_id"] if "kept_id" in gone.column_names else pa.nulls(rows, pa.string())
    arrays = [pc.cast(ids, pa.string()).filter(removed), pa.array([stage] * rows, pa.string())]
    arrays += [gone["rule"], gone["value"], gone["threshold"], kept_ids]
    return pa.table(arrays, schema=LEDGER_SCHEMA)


def count_rules(ledger: pa.Table) -> dict[str, int]:
    """Count ledger rows by rule, sorted by name."""
    return dict(sorted(Counter(ledger["rule"].to_pylist()).items()))


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


def find_reason(ledger: pads.Dataset, stages: Sequence[str], document: str) -> Reason | None:
    """Look one document up, and those that it leads on to; None when it was never removed.

    Raises:
        LedgerError: several documents of this id left.

    """
    found = ledger.to_table(filter=pc.field("id") == document).to_pylist()
    if len(found) > 1:
        raise LedgerError(f"{len(found)} documents are called {document!r}; ids must be unique to be explained")
    return follow(ledger, stages, [Reason(**found[0])])[0] if found else None


def follow(ledger: pads.Dataset, stages: Sequence[str], reasons: Sequence[Reason]) -> list[Reason]:
    """Return reasons with what became of the documents that they name, to the end of each chain.

    Args:
        ledger: rows of ``LEDGER_SCHEMA``.
        stages: the labels of all stages, in order; a kept document leaves at a later one.
        reasons: rows of the ledger.

    """
    named = sorted({reason.kept_id for reason in reasons if reason.kept_id is not None and reason.leads_on})
    if not named:
        return list(reasons)
    places = {stage: place for place, stage in enumerate(stages)}
    left_at = [places.get(reason.stage or "", -1) for reason in reasons]
    first = min(place for place, reason in zip(left_at, reasons, strict=True) if reason.leads_on)
    later = pc.field("id").isin(named) & pc.field("stage").isin(pa.array(stages[first + 1 :], pa.string()))
    found = follow(ledger, stages, [Reason(**row) for row in ledger.to_table(filter=later).to_pylist()])
    found.sort(key=lambda row: places[row.stage or ""])
    ends = []
    for place, reason in zip(left_at, reasons, strict=True):
        rows = [row for row in found if row.id == reason.kept_id and places[row.stage or ""] > place]
        ends.append(replace(reason, kept=rows[0]) if rows and reason.leads_on else reason)
    return ends


@contextmanager
def open_ledger(folder: Path, schema: pa.Schema = LEDGER_SCHEMA) -> Iterator[pads.Dataset]:
    """Open a ledger of a run: a folder of tables, none where nothing was removed, or edited.

    Raises:
        CorruptionError: a table is not as it was written.
        LedgerError: what is read of it is damaged.

    """
    with unreadable(f"the ledger {folder}", LedgerError, DAMAGED):
        yield scan_tables(sorted(folder.glob("*.parquet")), schema)


def number_rule(rule: str, number: int, of: int) -> str:
    """Name a rule by which a document leaves for one in an earlier dataset, the first, second, … of several."""
    return rule if of == 1 else f"{rule}_{number}"


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
