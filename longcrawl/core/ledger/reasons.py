"""Why each document was removed: the ledger, and what became of the documents that it names.

The ledger is a side table, one row per removed document. Kept documents are never copied to decide about others.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.core.display import counted, figure
from longcrawl.core.ledger.edits import TextEdit, describe_edits
from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.errors import LedgerError, as_lines, unreadable
from longcrawl.io.stored_tables import DAMAGED, scan_tables

LEDGER = "ledger"
"""The folder of a run that holds the ledger of removed documents."""

LEDGER_SCHEMA = REMOVAL_SCHEMA.insert(1, pa.field("stage", pa.string()))
"""``value`` was measured by ``rule`` against ``threshold``; ``kept_id`` is the document that a duplicate duplicates."""

DUPLICATE_IDS = "duplicate_ids"
"""Where documents leave a run whose id another one has, see :mod:`longcrawl.run.ids`."""

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
    copies: int = 0
    """How many further documents of this id a run left out, as it came first."""

    @property
    def leads_on(self) -> bool:
        """Whether it was removed as the duplicate of a document of the same dataset, itself perhaps removed later."""
        return self.kept_id is not None and re.match(EARLIER, self.rule or "") is None

    @property
    def fate(self) -> str:
        """What became of the document, without its id and its edits; ids stand as they were crawled."""
        return self._decision().removeprefix(f"{self.id}: ")

    def __str__(self) -> str:
        others = f"{counted(self.copies, 'further document')} of this id left out at {DUPLICATE_IDS}"
        return as_lines([self._decision(), *[others] * bool(self.copies), *describe_edits(self.edits)], "\n  ")

    def _decision(self) -> str:
        if self.stage is None:
            return f"{self.id}: kept"
        decision = f"{self.id}: removed at {self.stage}, rule {self.rule}"
        if self.kept_id is not None:
            similarity = "" if self.value is None else f", similarity {self.value:.2f}"
            later = "" if self.kept is None else f", which was {self.kept.fate}"
            return f"{decision}: a duplicate of {self.kept_id}{similarity}{later}"
        if self.threshold is None:
            return decision
        return f"{decision}: {figure(self.value)} against {figure(self.threshold)}"


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


def find_reason(ledger: pads.Dataset, stages: Sequence[str], document: str) -> Reason | None:
    """Look one document up, and those that it leads on to; None when it was never removed.

    Of documents whose further ones were left out for their id, it is the first.

    Raises:
        LedgerError: several documents of this id left.
    """
    rows = ledger.to_table(filter=pc.field("id") == document).to_pylist()
    found = [row for row in rows if row["stage"] != DUPLICATE_IDS]
    copies = len(rows) - len(found)
    if len(found) > 1:
        raise LedgerError(f"{len(found)} documents are called {document!r}; ids must be unique to be explained")
    if not found:
        return Reason(document, copies=copies) if copies else None
    return follow(ledger, stages, [Reason(**found[0], copies=copies)])[0]


def follow(ledger: pads.Dataset, stages: Sequence[str], reasons: Sequence[Reason]) -> list[Reason]:
    """Return reasons with what became of the documents that they name, to the end of each chain.

    ``stages`` are the labels of all stages, in order: a kept document leaves at a later one.
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
