"""Rectangles as the end of a crawl or a run, see :mod:`longcrawl.formats.rectangle.spec`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.core.outputs import WriteTask, are_shuffled, output
from longcrawl.core.stages import Stage
from longcrawl.engines.base import Engine
from longcrawl.errors import FormatError, StageError
from longcrawl.formats.order import exchange_order, order_documents
from longcrawl.formats.rectangle.build import BAND, Checksum, Layout, gather, lay_out, row_bytes, row_table, write_band
from longcrawl.formats.rectangle.spec import DESCRIPTION, LOSS_MASK_SUFFIX, VERSION
from longcrawl.formats.shards.shard import TOKENS
from longcrawl.formats.spill import spill_documents
from longcrawl.formats.splits import split_rows
from longcrawl.formats.token_output import TokenOutput, TokenWriter
from longcrawl.storage import sealed
from longcrawl.storage.files import file_entries, whole_file, whole_files, write_text
from longcrawl.storage.stored_tables import read_table, table_writer, write_table
from longcrawl.tokens.loss_mask import LOSS_MASK


@output("rectangle")
class RectangleOutput(TokenOutput):
    """Write a rectangle, see :mod:`longcrawl.formats.rectangle.spec`.

    ``heldout`` is a fraction below 1 of all rows, or a whole number of rows; they are the first rows of the order that
    ``shuffle`` gave. ``context_length`` and ``end_of_text`` are taken from the stages ``truncate`` and ``tokenize``
    where they are left out.

    ``codec``: on GPT-2 tokens of 264 long documents "zstd" (level 3) is 1.64 times smaller than raw; "lz4hc" (level 5)
    1.43 times and decodes 3.6 times as fast; "lz4" (level 5) 1.14 times and 6 times as fast (benchmarks/codecs.py).

    ``checksum``: "crc32c" puts four bytes behind each chunk of Zarr v3; "none" leaves them out, as rectangles before
    longcrawl had them, and then only ``longcrawl verify`` notices a changed byte.

    Peak memory is that of one band of 2,048 rows, 2.2 times over, whatever the number of rows; ordering the rows
    takes some 50 bytes for each.
    """

    second_pass = ("heldout", "zarr_format", "codec", "checksum")
    vocabulary_size = None
    dtype = "auto"

    heldout: float = 0
    zarr_format: Literal[2, 3] = 3
    codec: Literal["zstd", "lz4hc", "lz4"] = "zstd"
    checksum: Checksum = "crc32c"
    context_length: int | None = None
    end_of_text: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(context_length=1)

    def layouts(self, context_length: int, dtype: str, end_of_text: int) -> dict[str, Layout]:
        """Return the layouts of tokens and loss mask, by what follows a split in the names of its arrays."""
        given = (self.zarr_format, self.codec)
        tokens = Layout(context_length, dtype, end_of_text, *given, checksum=self.checksum)
        return {"": tokens, LOSS_MASK_SUFFIX: replace(tokens, dtype="bool", fill_value=True)}

    def writer(self, stages: Sequence[Stage]) -> "RectangleWriter":
        """Take length, end of text and tokenizer from ``truncate`` and ``tokenize``."""
        by_name = {stage.name: stage for stage in stages}
        cut = by_name["truncate"].settings()["n"] if "truncate" in by_name else None
        length = self.context_length or cut
        if length is None:
            raise StageError(
                "a rectangle needs rows of one length: add truncate: {n: 65536}, or set rectangle.context_length"
            )
        if cut not in (None, length):
            raise StageError(
                f"rectangle.context_length {length:,} and truncate.n {cut:,} differ: leave context_length out"
            )
        tokenize = self.find_tokenize(stages)
        return RectangleWriter(
            self, are_shuffled(stages), tokenize=tokenize, context_length=length, rolled="roll" in by_name
        )


@dataclass(frozen=True)
class RectangleWriter(TokenWriter):
    """Writes one rectangle."""

    settings: RectangleOutput
    context_length: int = 0
    rolled: bool = False

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """First pass: keep the rows of one part and their origins."""
        rows = (row_table(table, self.context_length, shuffled=self.shuffled) for table in tables)
        spill_documents(rows, spill, part, shuffled=self.shuffled, sizes=row_bytes)

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Put documents in order by an exchange, where they are too many for one process."""
        exchange_order(spill, parts, engine, shuffled=self.shuffled)

    def plan(self, spill: Path, parts: int, target: Path) -> list[WriteTask]:
        """Order all rows, cut off the held-out ones, lay out empty arrays and list the bands."""
        (ordered,), schema = order_documents(spill, parts, shuffled=self.shuffled)
        rows, masked = len(ordered.sizes), LOSS_MASK in schema.names
        dtype = str(schema.field(TOKENS).type.value_type)
        if self._end_of_text() > np.iinfo(dtype).max:
            raise FormatError(
                f"end of text is {self._end_of_text():,}, which the tokens, {dtype}, cannot hold: "
                "set rectangle.end_of_text lower, or tokenize.dtype to uint32"
            )
        layouts = self._layouts(dtype, masked=masked)
        splits = split_rows(self.settings.heldout, rows)
        arrays = {
            f"{split}{suffix}": (layout, stop - start)
            for split, (start, stop) in splits.items()
            for suffix, layout in layouts.items()
        }
        lay_out(target, arrays, self._group_attributes(masked=masked))
        return [
            WriteTask(f"{split}-{number:05d}", (split, number, first, min(first + BAND, stop), dtype, masked))
            for split, (start, stop) in splits.items()
            for number, first in enumerate(range(start, stop, BAND))
        ]

    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Second pass: gather the rows of one band and write them; nobody else writes these files."""
        split, number, start, stop, dtype, masked = task.details
        layouts = self._layouts(dtype, masked=masked)
        tokens, flags, origins = gather(spill, start, stop, layouts[""], masked=masked)
        first_row = number * BAND
        rows = f"rows-{task.name}.parquet"
        numbers = pa.array(range(first_row, first_row + stop - start), pa.int64())
        write_table(origins.add_column(0, "row", numbers), spill / rows)
        names = write_band(target, split, number, tokens, layouts[""])
        del tokens
        if masked:
            unpacked = np.unpackbits(flags, axis=1, count=self.context_length).view(np.bool_)
            names += write_band(target, split + LOSS_MASK_SUFFIX, number, unpacked, layouts[LOSS_MASK_SUFFIX])
        return {
            "split": split,
            "rows": stop - start,
            "task": task.name,
            "dtype": dtype,
            "masked": masked,
            "files": file_entries(target, names),
            "spilled": file_entries(spill, [rows]),
        }

    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Join the rows tables, add the tokenizer, and describe every file in ``rectangle.json``."""
        files: dict[str, Any] = {}
        shapes: dict[str, list[int]] = {}
        for split in sorted({each["split"] for each in written}):
            bands = [each for each in written if each["split"] == split]
            _join([spill / f"rows-{each['task']}.parquet" for each in bands], target / "rows" / f"{split}.parquet")
            shapes[split] = [sum(each["rows"] for each in bands), self.context_length]
            for each in bands:
                files |= each["files"]
        if self.tokenize is not None:
            self.tokenize.encoder().save(str(target))
        there = {path.relative_to(target).as_posix() for path in whole_files(target)}
        files |= file_entries(target, sorted(there - files.keys() - {DESCRIPTION}))
        described = {
            "longcrawl_rectangle": VERSION,
            "zarr_format": self.settings.zarr_format,
            "dtype": written[0]["dtype"],
            "shapes": shapes,
            **self._group_attributes(masked=written[0]["masked"]),
            "files": dict(sorted(files.items())),
        }
        write_text(target / DESCRIPTION, sealed.seal(described))
        return described

    def _layouts(self, dtype: str, *, masked: bool) -> dict[str, Layout]:
        """Return the layouts of a split's arrays by what follows the split in their names."""
        layouts = self.settings.layouts(self.context_length, dtype, self._end_of_text())
        return layouts if masked else {"": layouts[""]}

    def _group_attributes(self, *, masked: bool) -> dict[str, Any]:
        return self._attributes() | {"rolled": self.rolled} | ({"loss_mask": True} if masked else {})


def _join(pieces: Sequence[Path], path: Path) -> None:
    with whole_file(path) as beside, table_writer(beside, pq.read_schema(pieces[0])) as joined:
        for piece in pieces:
            joined.write_table(read_table(piece))
