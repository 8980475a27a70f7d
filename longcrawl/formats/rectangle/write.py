"""Writes rectangles in two passes.

Pass one keeps every document's tokens and where it came from (:mod:`longcrawl.formats.spill`), since the
number of rows is known only at the end. Then one sort of some 70 bytes per row gives the order. Pass two gathers one
band of rows by its places and writes it whole: one writer per shard, so nothing is ever read back and rewritten.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.exchange import Engine
from longcrawl.core.outputs import WriteTask, are_shuffled, output
from longcrawl.core.stages import SORT_KEY, Stage, column
from longcrawl.errors import FormatError, StageError
from longcrawl.formats.order import exchange_order, order_documents, split_rows
from longcrawl.formats.rectangle.spec import DESCRIPTION, LOSS_MASK_SUFFIX, VERSION
from longcrawl.formats.shards.shard import TOKENS
from longcrawl.formats.spill import read_batches, read_order, read_places, spill_documents
from longcrawl.formats.token_output import TokenOutput, TokenWriter
from longcrawl.formats.token_rows import FOUND
from longcrawl.io import structured
from longcrawl.io.files import file_entries, partial_path, publish, whole_file, whole_files, write_text
from longcrawl.io.stored_tables import read_table, table_writer, write_table
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED, loss_mask_of_tokens

Checksum = Literal["crc32c", "none"]
"""What each chunk carries, so that readers notice changed bytes."""

BAND = 2048
"""Rows per shard (v3) and per chunk (v2)."""
INNER_ROWS = 64
CHUNK_COLUMNS = 2048
ORIGINS = pa.schema([("id", pa.string()), ("url", pa.string()), ("roll", pa.int64()), ("n_tokens", pa.int64())])


@dataclass(frozen=True)
class Layout:
    """What decides the bytes of a band."""

    context_length: int
    dtype: str
    fill_value: int
    """End of text; true of a loss mask."""
    zarr_format: Literal[2, 3]
    codec: Literal["zstd", "lz4hc", "lz4"]
    inner_chunk: tuple[int, int] = (INNER_ROWS, CHUNK_COLUMNS)
    """Rows, of which a band has a whole number of times as many, and columns that are decoded at once (v3)."""
    checksum: Checksum = "crc32c"
    """Behind each chunk that is decoded at once (v3)."""

    def whole_chunks(self, rows: int) -> int:
        """Return rows of a band and those behind them in their chunks: all else of a short band is not stored."""
        step = self.inner_chunk[0] if self.zarr_format == 3 else BAND  # the Zarr version
        return -(-rows // step) * step

    def create(self, store: Path, rows: int, *, write_empty_chunks: bool = False) -> Any:
        """Create an empty array of so many rows at ``store``."""
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec

        shared: dict[str, Any] = {
            "shape": (rows, self.context_length),
            "dtype": self.dtype,
            "fill_value": self.fill_value,
            "zarr_format": self.zarr_format,
            "config": {"write_empty_chunks": write_empty_chunks},
        }
        level = {"zstd": 3, "lz4hc": 5, "lz4": 5}[self.codec]
        if self.zarr_format == 2:
            from numcodecs import Blosc

            blosc = Blosc(cname=self.codec, clevel=level, shuffle=Blosc.NOSHUFFLE)
            chunks = (BAND, min(CHUNK_COLUMNS, self.context_length))
            return zarr.create_array(str(store), chunks=chunks, compressors=blosc, **shared)
        blosc_codec = BloscCodec(cname=self.codec, clevel=level, shuffle="noshuffle")
        codecs = [blosc_codec, Crc32cCodec()] if self.checksum == "crc32c" else [blosc_codec]
        rows_of_chunk, columns = self.inner_chunk[0], min(self.inner_chunk[1], self.context_length)
        shard_columns = -(-self.context_length // columns) * columns
        return zarr.create_array(
            str(store), chunks=(rows_of_chunk, columns), shards=(BAND, shard_columns), compressors=codecs, **shared
        )


def lay_out(target: Path, arrays: Mapping[str, tuple[Layout, int]], attributes: dict[str, Any]) -> list[str]:
    """Write the metadata of a group and of empty arrays, and return the names of the files, in the group.

    Done again after a crash, it gives the same files.

    Args:
        target: the group.
        arrays: by name, which may be a path in the group: layout and rows. All have one Zarr format.
        attributes: of the group.
    """
    import zarr

    beside = partial_path(target)
    formats: list[Literal[2, 3]] = [layout.zarr_format for layout, _ in arrays.values()]
    zarr.create_group(str(beside), zarr_format=formats[0], attributes=attributes)
    for name, (layout, rows) in arrays.items():
        layout.create(beside / name, rows)
    files = sorted(file.relative_to(beside) for file in beside.rglob("*") if file.is_file())
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        publish(beside / file, target / file)
    shutil.rmtree(beside)
    return [file.as_posix() for file in files]


def gather(
    spill: Path, start: int, stop: int, layout: Layout, *, masked: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8], pa.Table]:
    """Return rows ``start`` to ``stop`` of the order: tokens, loss mask and origins.

    Tokens are (rows, context_length), the last chunks filled up; the loss mask also, eight in a byte, or of no width.

    Raises:
        FormatError: a spill file is cut.
    """
    places = read_order(spill, start, stop)
    height = layout.whole_chunks(len(places))
    tokens = np.full((height, layout.context_length), layout.fill_value, np.dtype(layout.dtype).newbyteorder("<"))
    flags = np.full((height, -(-layout.context_length // 8) if masked else 0), 0xFF, np.uint8)
    for chosen, batch, rows in read_batches(spill, places):
        stored = batch.column(TOKENS).flatten().to_numpy().reshape(batch.num_rows, layout.context_length)
        for place, row in zip(chosen.tolist(), rows.tolist(), strict=True):
            tokens[place] = stored[row]
        if masked:
            bits = np.frombuffer(batch.column(LOSS_MASK).buffers()[1], np.uint8, batch.num_rows * flags.shape[1])
            flags[chosen] = bits.reshape(batch.num_rows, -1)[rows]
    return tokens, flags, read_places(spill, places, [*ORIGINS.names, *FOUND])


def write_band(target: Path, name: str, number: int, tokens: npt.NDArray[Any], layout: Layout) -> list[str]:
    """Write one band of an array into one of its own beside the target, then move its files; return their names.

    ``tokens`` has whole chunks of rows, at most BAND.
    """
    import numcodecs.blosc

    beside = partial_path(target)
    sharded = layout.zarr_format == 3  # the Zarr version
    threads = numcodecs.blosc.use_threads
    # Blosc's threads write blocks in the order in which they finish, which would make the bytes depend on chance.
    numcodecs.blosc.use_threads = False
    try:
        # A shard that stores no chunk would not be there.
        blank = bool(np.all(tokens == layout.fill_value))
        array = layout.create(beside, BAND, write_empty_chunks=blank or not sharded)
        if blank:
            array[:] = layout.fill_value
        else:
            array[: len(tokens)] = tokens
    finally:
        numcodecs.blosc.use_threads = threads
    names = []
    for made in sorted((beside / "c" / "0").iterdir() if sharded else beside.glob("0.*")):
        place = f"{name}/c/{number}/{made.name}" if sharded else f"{name}/{number}.{made.name[2:]}"
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        publish(made, target / place)
        names.append(place)
    shutil.rmtree(beside)
    return names


def row_table(table: pa.Table, context_length: int, *, shuffled: bool) -> pa.Table:
    """Return what is spilled of documents that are rows: tokens, loss mask in bits, if any, and origin of each."""
    tokens = column(table, TOKENS, "a rectangle")
    _check_type(tokens.type)
    _check_lengths(table, tokens, context_length)
    columns = {TOKENS: tokens}
    flags = _packed_mask(table, context_length)
    if flags is not None:
        bits = [None, pa.py_buffer(np.ascontiguousarray(flags))]
        columns[LOSS_MASK] = pa.Array.from_buffers(pa.binary(flags.shape[1]), table.num_rows, bits)
    if shuffled:
        columns[SORT_KEY] = table[SORT_KEY]
    for field in ORIGINS:
        there = field.name in table.column_names
        columns[field.name] = table[field.name].cast(field.type) if there else pa.nulls(table.num_rows, field.type)
    return pa.table(columns | {name: table[name] for name in FOUND if name in table.column_names})


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of the tokens of each row."""
    width = batch.schema.field(TOKENS).type.value_type.bit_width // 8
    lengths: npt.NDArray[np.int64] = pc.list_value_length(batch.column(TOKENS)).to_numpy().astype(np.int64) * width
    return lengths


def _check_type(tokens: pa.DataType) -> None:
    value = getattr(tokens, "value_type", None)
    if value not in (pa.uint16(), pa.uint32()):
        raise StageError(
            f"a rectangle takes tokens of type uint16 or uint32, these are {tokens}: cast the column, or use tokenize"
        )


def _check_lengths(table: pa.Table, tokens: pa.Array, context_length: int) -> None:
    lengths = pc.fill_null(pc.list_value_length(tokens), 0)
    wrong = pc.index(pc.not_equal(lengths, context_length), True).as_py()
    if wrong >= 0:
        name = table["id"][wrong].as_py() if "id" in table.column_names else f"document {wrong}"
        raise FormatError(
            f"{name} has {lengths[wrong].as_py():,} tokens, a row holds {context_length:,}: "
            f"put min_tokens: {{n: {context_length}}} and truncate: {{n: {context_length}}} before the rectangle"
        )


def _packed_mask(table: pa.Table, context_length: int) -> npt.NDArray[np.uint8] | None:
    """Return the loss mask of rows that are all ``context_length`` long, eight in a byte: (rows, bytes)."""
    if LOSS_MASK not in table.column_names:
        if MASKED in table.column_names:
            raise StageError(
                f"a rectangle would lose the column {MASKED!r}, which is of the text: make tokens with the stage "
                f"tokenize, which gives {LOSS_MASK!r} too, or drop the column"
            )
        return None
    lengths = np.full(table.num_rows, context_length, np.int64)
    flags = loss_mask_of_tokens(table, lengths, "a rectangle").flatten().to_numpy(zero_copy_only=False)
    return np.packbits(flags.reshape(table.num_rows, context_length), axis=1)


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
        write_text(target / DESCRIPTION, structured.seal(described))
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
