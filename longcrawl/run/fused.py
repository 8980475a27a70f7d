"""Stages that look at one document at a time, run one after the other on each table of a part.

Only survivors and ledger entries leave: what the first rule drops is never written anywhere.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import edit_rows
from longcrawl.core.stages import Stage
from longcrawl.ledger.edits import count_edits
from longcrawl.ledger.funnel import FunnelRow, count_values
from longcrawl.ledger.reasons import LEDGER_SCHEMA, count_rules, entries
from longcrawl.run.costs import CoreClock


@dataclass
class Tally:
    """What one part lost: ledger entries, and a row of the funnel for each stage, by the stages' labels."""

    ledger: list[pa.Table] = field(default_factory=list)
    rows: dict[str, FunnelRow] = field(default_factory=dict)
    keep_edits: Callable[[pa.Table], None] | None = None
    """What takes the edit ledger, batch by batch; nobody where it is None."""
    clock: CoreClock = field(default_factory=CoreClock)
    """What each stage took, by label."""

    def note(self, row: FunnelRow, gone: pa.Table) -> None:
        """Add what a stage did to one batch, and the ledger entries of what it removed."""
        self.rows[row.stage] = self.rows[row.stage] + row if row.stage in self.rows else row
        if gone.num_rows:
            self.ledger.append(gone)

    def table(self) -> pa.Table:
        """Return all entries in the order in which documents were removed."""
        return pa.concat_tables(self.ledger) if self.ledger else LEDGER_SCHEMA.empty_table()

    def counts(self) -> list[dict[str, Any]]:
        """Return the rows of the funnel as JSON-ready values."""
        return [row.as_dict() for row in self.rows.values()]


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
                if removed.num_rows or stage.edits:
                    amount = characters(flowing)
                gone, values = entries(removed["id"], removed, label), count_values(flowing, stage.counts)
                sizes = came.num_rows, flowing.num_rows
                tally.note(FunnelRow(label, *sizes, count_rules(gone), amount, values, count_edits(places)), gone)
                if places.num_rows and tally.keep_edits is not None:
                    tally.keep_edits(edit_rows(came, places, label))
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
