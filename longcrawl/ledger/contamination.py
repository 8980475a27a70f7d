"""What a crawl had of evaluation sets, counted from its edit ledger: rows that name an item in place of a document."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.display.table import Column, Table, Tabular

CONTAMINATION_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("evaluation_set", pa.string()),
        ("item", pa.int64()),
        ("documents", pa.int64()),
        ("passages", pa.int64()),
        ("characters", pa.int64()),
    ]
)
"""One row per item that was found: the row of its evaluation set, from 0, and how much of documents was of it."""

_SHOWN = 10


@dataclass(frozen=True, repr=False)
class Contamination(Tabular):
    """What documents had of evaluation sets; prints as a table with a row for each of them."""

    table: pa.Table
    """``CONTAMINATION_SCHEMA``, sorted by stage, evaluation set and item."""
    documents: pa.Table
    """``stage``, ``evaluation_set`` and how many ``documents`` had one of its items or several."""
    looked_for: tuple[str, ...] = ()
    """A sentence for each evaluation set, also for those of which nothing was found: how many items it has."""

    def tables(self) -> tuple[Table, ...]:
        """Return the evaluation sets as a table, and the items that most documents have as another one."""
        if not self.table.num_rows:
            return (Table([Column("no document had an item of an evaluation set")], [], notes=self.looked_for),)
        keys = ["stage", "evaluation_set"]
        sums = self.table.group_by(keys, use_threads=False).aggregate(
            [("item", "count"), ("passages", "sum"), ("characters", "sum")]
        )
        joined = sums.join(self.documents, keys).sort_by([(key, "ascending") for key in keys])
        names = [*keys, "item_count", "documents", "passages_sum", "characters_sum"]
        titles = [Column("stage"), Column("evaluation set", "name")]
        titles += [Column(name, "count") for name in ("items found", "documents", "passages", "characters")]
        rows = [[row[name] for name in names] for row in joined.to_pylist()]
        return (Table(titles, rows, notes=self.looked_for), self._most())

    def _most(self) -> Table:
        order = [("documents", "descending"), ("evaluation_set", "ascending"), ("item", "ascending")]
        rows = [
            [f"{row['evaluation_set']}#{row['item']}", row["documents"], row["characters"]]
            for row in self.table.sort_by(order).slice(0, _SHOWN).to_pylist()
        ]
        more = self.table.num_rows - _SHOWN
        notes = [f"and {more:,} more, in .table"] if more > 0 else []
        return Table(
            [Column("item", "name"), Column("documents", "count"), Column("characters", "count")], rows, "", notes
        )


def count_contamination(edits: pads.Dataset, looked_for: Sequence[str] = ()) -> Contamination:
    """Count the passages of an edit ledger that are of items; sentences say what was looked for."""
    of_items = pc.field("also_id").is_valid() & pc.field("also_span").is_null()
    rows = edits.to_table(["stage", "id", "start", "end", "also_id"], filter=of_items)
    named = rows["also_id"].combine_chunks().dictionary_encode()
    parts = [name.rpartition("#") for name in named.dictionary.to_pylist()]
    sets, items = (
        pa.array([each[0] for each in parts], pa.string()),
        pa.array([int(each[2]) for each in parts], pa.int64()),
    )
    found = pa.table(
        {
            "stage": rows["stage"],
            "evaluation_set": sets.take(named.indices),
            "item": items.take(named.indices),
            "id": rows["id"],
            "characters": pc.subtract(rows["end"], rows["start"]),
        }
    )
    keys = ["stage", "evaluation_set", "item"]
    counts = found.group_by(keys, use_threads=False).aggregate(
        [("id", "count_distinct"), ([], "count_all"), ("characters", "sum")]
    )
    table = counts.select([*keys, "id_count_distinct", "count_all", "characters_sum"]).rename_columns(
        CONTAMINATION_SCHEMA.names
    )
    by_set = found.group_by(keys[:2], use_threads=False).aggregate([("id", "count_distinct")])
    return Contamination(
        table.cast(CONTAMINATION_SCHEMA).sort_by([(key, "ascending") for key in keys]),
        by_set.rename_columns([*keys[:2], "documents"]),
        tuple(looked_for),
    )


def contaminated_tables(edits: pads.Dataset) -> Iterator[Table]:
    """Return the evaluation sets that documents had items of, as a table; nothing where there is none."""
    found = count_contamination(edits)
    if found.table.num_rows:
        yield found.tables()[0]
