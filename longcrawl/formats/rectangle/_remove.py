"""Rows taken out of a rectangle: the last rows of a split fill their places, so that few bands are written again."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.removal import TOKENS, Changes, Longs, Proof, Removal, filled_holes, rows_of_ids
from longcrawl.errors import FormatError
from longcrawl.formats.rectangle import spec
from longcrawl.formats.rectangle.build import BAND, Layout, lay_out, write_band
from longcrawl.storage.files import whole_file
from longcrawl.storage.stored_tables import read_table, table_writer

ATTRIBUTES = ("end_of_text", "vocabulary_size", "tokenizer", "json_escaped", "rolled", "loss_mask")
"""Of the group, in the order in which they are written."""


def without_documents(folder: Path, ids: pa.Array, layouts: dict[str, Layout]) -> Removal:
    """Write the bands that hold some rows, and the last ones, again; see :class:`longcrawl.core.results.Result`.

    Args:
        folder: of the rectangle.
        ids: of the documents, strings.
        layouts: of a split's arrays, by what follows the split in their names.
    """
    changes, proof, splits = Changes(folder, spec.read_description(folder)), Proof(TOKENS), list[_Split]()
    shapes = changes.described["shapes"]
    for name in list(shapes):
        table = read_table(folder / "rows" / f"{name}.parquet")
        if len(rows := rows_of_ids(table, ids)):
            splits.append(_Split(changes, name, table, rows))
            splits[-1].note(proof)
    for split in splits:
        _rewrite(split, layouts, proof)
        _write_rows(split)
        shapes[split.name] = [len(split.source), shapes[split.name][1]]
    gone = sum(len(split.gone) for split in splits)
    if gone:
        attributes = {name: changes.described[name] for name in ATTRIBUTES if name in changes.described}
        arrays = {
            f"{split}{suffix}": (layout, rows)
            for split, (rows, _) in shapes.items()
            for suffix, layout in layouts.items()
        }
        changes.changed += lay_out(folder, arrays, attributes)
    return changes.finish(spec.DESCRIPTION, gone, proof)


@dataclass(frozen=True)
class _Split:
    """A split whose rows are to move.

    Attributes:
        changes: of the rectangle.
        name: of the split.
        table: of all its rows.
        gone: int64, ascending, the rows that are to go.

    Raises:
        FormatError: none would be left.
    """

    changes: Changes
    name: str
    table: pa.Table
    gone: Longs

    def __post_init__(self) -> None:
        if len(self.gone) == self.table.num_rows:
            raise FormatError(f"all rows of the split {self.name!r} would be gone: run the recipe again without them")

    @cached_property
    def ids(self) -> list[Any]:
        """The ids of all rows."""
        return list(self.table["id"].to_pylist())

    @cached_property
    def source(self) -> Longs:
        """Which row is in each place when it is done."""
        return filled_holes(len(self.ids), self.gone)

    @cached_property
    def written(self) -> list[int]:
        """The bands that are written again, ascending; the last of them is the only one that rows come from."""
        moved = np.flatnonzero(self.source != np.arange(len(self.source)))
        partial = {len(self.source) // BAND} if len(self.source) % BAND else set()
        return sorted({*(moved // BAND).tolist(), *partial})

    @property
    def dropped(self) -> range:
        """The bands that are no more."""
        return range(-(-len(self.source) // BAND), -(-len(self.ids) // BAND))

    def rows(self, band: int) -> range:
        """Return the rows of a band as it was."""
        return range(band * BAND, min((band + 1) * BAND, len(self.ids)))

    def note(self, proof: Proof) -> None:
        """Note the rows of all bands that are not to stay as they are."""
        reader, removed = _Rows(spec.open_split(self.changes.folder, self.name)), set(self.gone.tolist())
        for row in (row for band in (*self.written, *self.dropped) for row in self.rows(band)):
            proof.before(self.id_of(row), reader.read(row), kept=row not in removed)

    def id_of(self, row: int) -> bytes:
        """Return an id for a digest."""
        return str(self.ids[row]).encode("utf-8", "surrogatepass")


def _rewrite(split: _Split, layouts: dict[str, Layout], proof: Proof) -> None:
    folder, tokens = split.changes.folder, spec.open_split(split.changes.folder, split.name)
    arrays = {"": tokens}
    if len(layouts) > 1:
        arrays[spec.LOSS_MASK_SUFFIX] = spec.open_loss_mask(tokens)
    for suffix, array in arrays.items():
        reader = _Rows(array)
        # Rows come from the last band that is written, and from those behind it.
        for band in split.written:
            source = split.source[band * BAND : (band + 1) * BAND].tolist()
            shape = layouts[suffix].whole_chunks(len(source)), array.shape[1]
            values = np.full(shape, layouts[suffix].fill_value, array.dtype)
            for place, row in enumerate(source):
                values[place] = reader.read(row)
            split.changes.changed += write_band(folder, f"{split.name}{suffix}", band, values, layouts[suffix])
            for place, row in enumerate(source if suffix == "" else ()):
                proof.after(split.id_of(row), values[place])
                proof.look([values[place]])
        _drop_bands(split, array)


def _drop_bands(split: _Split, array: spec.SplitArray) -> None:
    """Remove the files of the bands that are no more."""
    layout = array.layout
    for name in [name for name in split.changes.described["files"] if name.startswith(f"{array.name}/")]:
        corner = layout.chunk_of_file(name.removeprefix(f"{array.name}/"))
        if corner is not None and corner[0] * layout.chunks[0] // BAND in split.dropped:
            split.changes.drop(name)


def _write_rows(split: _Split) -> None:
    """Write the table of rows, a row group for each band, as the first time."""
    kept = split.table.take(pa.array(split.source))
    kept = kept.set_column(0, "row", pa.array(np.arange(kept.num_rows), pa.int64()))
    file = f"rows/{split.name}.parquet"
    with whole_file(split.changes.folder / file) as beside, table_writer(beside, kept.schema) as out:
        for first in range(0, kept.num_rows, BAND):
            out.write_table(kept.slice(first, BAND).combine_chunks())
    split.changes.changed.append(file)


class _Rows:
    """Rows of an array, of which the chunks of one row of them are kept."""

    def __init__(self, array: spec.SplitArray) -> None:
        self._array, self._block = array, -1
        self._rows: npt.NDArray[Any] = np.empty(0)

    def read(self, row: int) -> npt.NDArray[Any]:
        """Return one row."""
        height = self._array.layout.chunks[0]
        if row // height != self._block:
            self._block = row // height
            columns = range(self._array.layout.chunk_grid[1])
            self._rows = np.concatenate([self._array.read_chunk(self._block, each) for each in columns], axis=1)
        found: npt.NDArray[Any] = self._rows[row % height]
        return found
