"""The rectangle: one document per row, all rows of one length, as Zarr. Written in two passes with bounded memory.

Specification
-------------
``NAME/`` is a Zarr group with the arrays ``train`` and, when any rows are held out, ``heldout``: (rows,
context_length), little-endian uint16 or uint32, fill value = the end-of-text token. Zarr v3 (the default) has one
shard per band of 2,048 rows with inner chunks of 64 x 2,048 tokens, Blosc zstd level 3 *without* shuffle: on GPT-2
tokens of long documents that is 1.64 times smaller than raw, with shuffle 1.43, with bitshuffle 1.19
(benchmarks/codecs.py). Behind each inner chunk is its crc32c, Zarr's codec of this name, so that every reader notices
changed bytes. ``zarr_format=2`` gives the chunks of the original LongCrawl64, 2,048 x 2,048 (103,296 files for its 6.6
million rows where v3 has 3,228), with the same codec and no checksum in them: each is a file, whose SHA-256 is in
``rectangle.json``.

Beside the arrays lie

* ``train_loss_mask``, ``heldout_loss_mask``, only where the documents have a column ``loss_mask``: arrays of the shape,
  chunks and codec of the tokens, bool, fill value true; false where no loss is to be computed;
* ``rows/train.parquet``, ``rows/heldout.parquet``: ``row``, ``id``, ``url``, ``roll``, ``n_tokens`` (before
  truncation);
* ``tokenizer.json``, when the tokens were made here: what decodes a row;
* ``rectangle.json``: shapes, end of text, and bytes and SHA-256 of every file and, last, its own. It is written last:
  without it the rectangle is not finished.

The group's attributes hold ``end_of_text``, ``vocabulary_size``, ``tokenizer``, ``json_escaped`` and ``rolled``,
and ``loss_mask``, true, where there are loss masks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.core.outputs import OrderedWriter, Output, WriteTask, are_shuffled, output
from longcrawl.core.stages import Stage
from longcrawl.errors import FormatError, StageError
from longcrawl.formats.heldout import check_heldout, heldout_rows, split_rows
from longcrawl.formats.rectangle.build import BAND, Checksum, Layout, gather, lay_out, spill_rows, write_band
from longcrawl.formats.rectangle.chunks import LOSS_MASK_SUFFIX
from longcrawl.formats.shards.shard import TOKENS
from longcrawl.formats.spill import order_documents
from longcrawl.storage import sealed
from longcrawl.storage.files import file_entries, whole_file, write_text
from longcrawl.storage.stored_tables import read_table, table_writer, write_table
from longcrawl.tokens.loss_mask import LOSS_MASK
from longcrawl.tokens.tokenize import Tokenize

__all__ = ["DESCRIPTION", "RectangleOutput", "RectangleWriter", "read_description"]

DESCRIPTION = "rectangle.json"
TOKENIZER = "tokenizer.json"
VERSION = 1


@output("rectangle")
class RectangleOutput(Output):
    """Write a rectangle (see this module's docstring).

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

    heldout: float = 0
    zarr_format: Literal[2, 3] = 3
    codec: Literal["zstd", "lz4hc", "lz4"] = "zstd"
    checksum: Checksum = "crc32c"
    context_length: int | None = None
    end_of_text: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heldout(self.heldout, "rectangle")
        self.check_least(context_length=1, end_of_text=0)

    def writer(self, stages: Sequence[Stage]) -> "RectangleWriter":
        """Take length, end of text and tokenizer from ``truncate`` and ``tokenize``."""
        by_name = {stage.name: stage for stage in stages}
        length = (
            self.context_length or by_name["truncate"].settings()["n"] if "truncate" in by_name else self.context_length
        )
        if length is None:
            raise StageError(
                "a rectangle needs rows of one length: add truncate: {n: 65536}, or set rectangle.context_length"
            )
        cut = by_name["truncate"].settings()["n"] if "truncate" in by_name else length
        if cut != length:
            raise StageError(
                f"rectangle.context_length {length:,} and truncate.n {cut:,} differ: leave context_length out"
            )
        tokenize = by_name.get("tokenize")
        if not isinstance(tokenize, Tokenize) and self.end_of_text is None:
            raise StageError(
                "a rectangle needs an end-of-text token: add the stage tokenize, or set rectangle.end_of_text"
            )
        known = tokenize if isinstance(tokenize, Tokenize) else None
        return RectangleWriter(
            self, are_shuffled(stages), context_length=length, tokenize=known, rolled="roll" in by_name
        )

    def heldout_rows(self, rows: int) -> int:
        """Return how many of so many rows are held out: a fraction is rounded, but to no less than one row of two.

        Raises:
            FormatError: nothing would be left to train on.

        """
        return heldout_rows(self.heldout, rows)


@dataclass(frozen=True)
class RectangleWriter(OrderedWriter):
    """Writes one rectangle."""

    settings: RectangleOutput
    context_length: int = 0
    tokenize: Tokenize | None = None
    rolled: bool = False

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """First pass: keep the rows of one part and their origins."""
        spill_rows(tables, spill, part, self.context_length, shuffled=self.shuffled)

    def plan(self, spill: Path, parts: int, target: Path) -> list[WriteTask]:
        """Order all rows, cut off the held-out ones, lay out empty arrays and list the bands."""
        (ordered,), schema = order_documents(spill, parts, shuffled=self.shuffled, unique=True)
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
        lay_out(target, arrays, self._attributes(masked=masked))
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
        with whole_file(spill / rows) as beside:
            write_table(
                origins.add_column(0, "row", pa.array(range(first_row, first_row + stop - start), pa.int64())), beside
            )
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
        plain = [path for path in target.rglob("*") if path.is_file()]
        rest = [
            name for path in plain if (name := path.relative_to(target).as_posix()) not in files and name != DESCRIPTION
        ]
        files |= file_entries(target, rest)
        described = {
            "longcrawl_rectangle": VERSION,
            "zarr_format": self.settings.zarr_format,
            "dtype": written[0]["dtype"],
            "shapes": shapes,
            **self._attributes(masked=written[0]["masked"]),
            "files": dict(sorted(files.items())),
        }
        write_text(target / DESCRIPTION, sealed.seal(described))
        return described

    def _layouts(self, dtype: str, *, masked: bool) -> dict[str, Layout]:
        """Return the layouts of a split's arrays by what follows the split in their names."""
        settings = self.settings
        tokens = Layout(
            self.context_length,
            dtype,
            self._end_of_text(),
            settings.zarr_format,
            settings.codec,
            checksum=settings.checksum,
        )
        return {"": tokens} | ({LOSS_MASK_SUFFIX: replace(tokens, dtype="bool", fill_value=True)} if masked else {})

    def _end_of_text(self) -> int:
        if self.settings.end_of_text is not None:
            return self.settings.end_of_text
        if self.tokenize is None:
            raise StageError("a rectangle needs an end-of-text token: set rectangle.end_of_text")
        return self.tokenize.encoder().end_of_text

    def _attributes(self, *, masked: bool) -> dict[str, Any]:
        encoder = self.tokenize.encoder() if self.tokenize is not None else None
        return {
            "end_of_text": self._end_of_text(),
            "vocabulary_size": encoder.vocabulary_size if encoder else None,
            "tokenizer": encoder.fingerprint if encoder else None,
            "json_escaped": self.tokenize.json_escaped if self.tokenize else False,
            "rolled": self.rolled,
        } | ({"loss_mask": True} if masked else {})


def read_description(path: Path) -> dict[str, Any]:
    """Read ``rectangle.json``.

    Raises:
        FormatError: there is none, or it is of a version that this longcrawl does not know.

    """
    return sealed.read_description(path / DESCRIPTION, "rectangle", VERSION, ("shapes", "files", "json_escaped"))


def _join(pieces: Sequence[Path], path: Path) -> None:
    with whole_file(path) as beside, table_writer(beside, pq.read_schema(pieces[0])) as joined:
        for piece in pieces:
            joined.write_table(read_table(piece))
