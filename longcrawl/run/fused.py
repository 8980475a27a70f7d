"""Stages that look at one document at a time, run one after the other on each table of a part.

Only survivors and ledger entries leave: what the first rule drops is never written anywhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import edit_rows
from longcrawl.core.stages import (
    Stage,
)
from longcrawl.ledger.edits import EditCounts, add_edits, count_edits
from longcrawl.ledger.funnel import LEDGER_SCHEMA, add_values, count_values, entries, total
from longcrawl.run.costs import CoreClock

__all__ = ["Tally", "characters", "run_fused", "text_lengths"]


@dataclass
class Tally:
    """What one part lost: ledger entries, and what came and stayed at each stage, by the stages' labels."""

    ledger: list[pa.Table] = field(default_factory=list)
    documents_in: Counter[str] = field(default_factory=Counter)
    rules: dict[str, Counter[str]] = field(default_factory=dict)
    characters: dict[str, int | None] = field(default_factory=dict)
    values: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """By label, documents that stayed by the values of a column, of stages that count one."""
    edits: dict[str, EditCounts] = field(default_factory=dict)
    """By label, what stages changed in documents."""
    keep_edits: Callable[[pa.Table], None] | None = None
    """What takes the edit ledger, batch by batch; nobody where it is None."""
    clock: CoreClock = field(default_factory=CoreClock)
    """What each stage took, by label."""

    def note(self, label: str, rows: int, gone: pa.Table, left: int | None) -> None:
        """Add one batch: documents that came, ledger entries of all removed, characters of those that stayed."""
        self.documents_in[label] += rows
        self.characters[label] = total([self.characters.get(label, 0), left])
        self.rules.setdefault(label, Counter()).update(gone["rule"].to_pylist())
        if gone.num_rows:
            self.ledger.append(gone)

    def note_edits(self, label: str, documents: pa.Table, places: pa.Table) -> None:
        """Add what a stage changed in the documents of one batch."""
        if places.num_rows:
            counted = add_edits([self.edits.get(label), count_edits(places)])
            assert counted is not None  # there are places
            self.edits[label] = counted
            if self.keep_edits is not None:
                self.keep_edits(edit_rows(documents, places, label))

    def note_values(self, label: str, documents: pa.Table, column: str | None) -> None:
        """Add the documents of one batch that stayed, by the values of a column."""
        self.values[label] = add_values([self.values.get(label, {}), count_values(documents, column)])

    def table(self) -> pa.Table:
        """Return all entries in the order in which documents were removed."""
        return pa.concat_tables(self.ledger) if self.ledger else LEDGER_SCHEMA.empty_table()

    def counts(self) -> list[dict[str, Any]]:
        """Return in, out, rules and values of each stage as JSON-ready values."""
        return [
            {
                "stage": label,
                "in": came,
                "out": came - self.rules[label].total(),
                "rules": dict(sorted(self.rules[label].items())),
                "characters": self.characters[label],
                **({"values": self.values[label]} if self.values[label] else {}),
                **({"edits": self.edits[label].as_dict()} if label in self.edits else {}),
            }
            for label, came in self.documents_in.items()
        ]


def run_fused(stages: Sequence[tuple[str, Stage]], tables: Iterable[pa.Table], tally: Tally) -> Iterator[pa.Table]:
    """Run labelled stages over the tables of one part; what leaves goes to ``tally``.

    Empty tables pass too, so that a part without survivors still has the schema of the last stage.

    Raises:
        StageError: a survey that removes documents is among the stages; those need all parts first.

    """
    for table in tables:
        flowing, amount = table, characters(table)
        for label, stage in stages:
            with tally.clock.measure(label):
                came = flowing
                flowing, removed, places = stage.apply(came)
                tally.note_edits(label, came, places)
                if removed.num_rows or stage.edits:
                    amount = characters(flowing)
                tally.note(label, came.num_rows, entries(removed["id"], removed, label), amount)
                tally.note_values(label, flowing, stage.counts)
        yield flowing


def characters(documents: pa.Table) -> int | None:
    """Count the code points of all texts; None where there is no text, or where it is still to be extracted."""
    lengths = text_lengths(documents)
    return None if lengths is None else int(pc.sum(lengths).as_py() or 0)


def text_lengths(documents: pa.Table) -> pa.ChunkedArray | None:
    """Return the code points of each text; None where there is no text, or where it is still to be extracted."""
    if "text" not in documents.column_names or "html" in documents.column_names:
        return None
    return pc.utf8_length(documents["text"])
