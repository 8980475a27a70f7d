"""What one stage takes of a core and of the disk, document by document of a sample.

Documents of like size go through together and share what that took. They had like chances to be drawn, so a stage that
takes long of every short document is not taken for one that is fast because long ones were drawn more often.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.stages import Stage, Survey
from longcrawl.errors import RunError
from longcrawl.plan.estimates import Doubles, Values
from longcrawl.plan.sample import TYPICAL
from longcrawl.run.costs import CoreClock
from longcrawl.run.fused import Tally, run_fused
from longcrawl.storage.files import folder_bytes

__all__ = ["ROW", "Costs"]

Longs = npt.NDArray[np.int64]

BATCH = 200
"""Documents that are measured together."""

ROW = "row of the sample"
"""The column that says which sampled document a row is, whatever stages have made of it."""


class Costs:
    """Seconds of a core and bytes of disk of every sampled document: float64 [documents] for each part read."""

    def __init__(self, sizes: Values, together: float) -> None:
        self.sizes, self.together = sizes, together
        self.seconds: list[Doubles] = [np.zeros(len(each)) for each in sizes]
        self.disk: list[Doubles] = [np.zeros(len(each)) for each in sizes]

    def run(self, label: str, stage: Stage, place: int, table: pa.Table) -> pa.Table:
        """Return what a stage leaves of the documents of the part at ``place``.

        Raises:
            RunError: the stage drops columns that it does not know.

        """
        _, nothing = _timed(label, stage, table.slice(0, 0))
        each, left = nothing / self._kept_together(place, table), []
        for _, rows, batch in self._batches(place, table, BATCH):
            documents, seconds = _timed(label, stage, batch)
            left.append(documents)
            self._add(self.seconds, place, rows, max(seconds - nothing, 0.0))
            self.seconds[place][rows] += each
        documents = pa.concat_tables(left)
        if ROW not in documents.column_names:
            raise RunError(f"stage {label!r} drops columns that it does not know, so its documents cannot be planned")
        return documents.sort_by(ROW).combine_chunks()

    def total_seconds(self) -> float:
        """Return the seconds of all sampled documents."""
        return sum(float(each.sum()) for each in self.seconds)

    def add(self, other: "Costs") -> None:
        """Add what another step of the same stage took."""
        self.seconds = [mine + theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True)]
        self.disk = [mine + theirs for mine, theirs in zip(self.disk, other.disk, strict=True)]

    def keep(self, tables: Sequence[pa.Table]) -> None:
        """Write documents as a run keeps them until all parts are there, and read them back."""
        for place, table in enumerate(tables):
            self._store(place, table, self._batches(place, table, self._kept_together(place, table)))

    def sketch(self, survey: Survey, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Let a survey sketch documents; write the sketches and read them back."""
        return [self._sketched(survey, place, table) for place, table in enumerate(tables)]

    @contextmanager
    def shared(self, tables: Mapping[int, pa.Table], folder: Path | None = None, *, by_size: bool) -> Iterator[None]:
        """Share what the block takes, and what it leaves in ``folder``, among documents, by their sizes or alike."""
        clock = CoreClock()
        with clock.measure("block"):
            yield
        written = folder_bytes(folder) if folder else 0
        rows = {place: table[ROW].to_numpy() for place, table in tables.items()}
        weights = {place: self.sizes[place][each] if by_size else np.ones(len(each)) for place, each in rows.items()}
        everything = max(sum(float(each.sum()) for each in weights.values()), 1.0)
        for place, each in rows.items():
            self.seconds[place][each] += weights[place] * (clock.seconds["block"] / everything)
            self.disk[place][each] += weights[place] * (written / everything)

    def _sketched(self, survey: Survey, place: int, table: pa.Table) -> pa.Table:
        made = []
        for chosen, rows, batch in self._batches(place, table, self._kept_together(place, table)):
            clock = CoreClock()
            with clock.measure("sketch"):
                sketches = survey.sketch(batch)
            self._add(self.seconds, place, rows, clock.seconds["sketch"])
            made.append((chosen, rows, sketches))
        self._store(place, table, made)
        order = np.concatenate([chosen for chosen, _, _ in made])
        return pa.concat_tables(sketches for _, _, sketches in made).take(np.argsort(order))

    def _store(self, place: int, table: pa.Table, batches: Iterable[tuple[Longs, Longs, pa.Table]]) -> None:
        """Write batches of documents, or of what was made of them, and read them back."""
        sink, writer, written = io.BytesIO(), None, 0
        for _, rows, batch in batches:
            stored = batch.drop_columns([ROW]) if ROW in batch.column_names else batch
            if writer is None:
                writer = pa.ipc.new_file(sink, stored.schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
            clock = CoreClock()
            with clock.measure("write"):
                writer.write_table(stored)
            self._add(self.disk, place, rows, sink.tell() - written)
            written = sink.tell()
            self._add(self.seconds, place, rows, clock.seconds["write"])
        if writer is not None:
            writer.close()
            self._add(self.disk, place, table[ROW].to_numpy(), sink.tell() - written)
            with self.shared({place: table}, by_size=True):
                pa.ipc.open_file(pa.BufferReader(sink.getbuffer())).read_all()

    def _kept_together(self, place: int, table: pa.Table) -> int:
        """Describe how many documents are left of those that a source gave together; each table costs by itself."""
        share = float(table.num_rows) / max(len(self.sizes[place]), 1)
        return max(ceil(self.together * share), 1)

    def _batches(self, place: int, table: pa.Table, most: int) -> Iterator[tuple[Longs, Longs, pa.Table]]:
        """Return batches of documents of like size: where they are in the table, where in the sample, and they."""
        rows = table[ROW].to_numpy()
        order = np.argsort(self.sizes[place][rows], kind="stable")
        for first in range(0, max(len(order), 1), most):
            chosen = order[first : first + most]
            yield chosen, rows[chosen], table.take(chosen)

    def _add(self, values: list[Doubles], place: int, rows: Longs, amount: float) -> None:
        weights = self.sizes[place][rows] + TYPICAL
        values[place][rows] += weights * (amount / max(float(weights.sum()), 1.0))


def _timed(label: str, stage: Stage, batch: pa.Table) -> tuple[pa.Table, float]:
    """Return what a stage leaves of a batch, and the seconds of a core that it took."""
    tally = Tally()
    left = pa.concat_tables(run_fused([(label, stage)], iter([batch]), tally))
    return left, tally.clock.seconds[label]
