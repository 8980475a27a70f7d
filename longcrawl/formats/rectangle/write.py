"""Writes, verifies, inspects and edits rectangles.

Pass one spills the tokens and the origin of every document (:mod:`longcrawl.formats.order`). Pass two gathers one band
of rows at a time and writes it whole: each shard has one writer, so nothing is ever read back and rewritten.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core import outputs
from longcrawl.core.display import Column, Table, table
from longcrawl.core.exchange import Engine
from longcrawl.core.removal import PROOF_TOKENS, Changes, Longs, Proof, Removal, filled_holes, rows_of_ids
from longcrawl.core.stages import SORT_KEY, Stage, column
from longcrawl.errors import CorruptionError, FormatError, StageError, TokenizerError, as_lines, printable
from longcrawl.formats import order
from longcrawl.formats.rectangle import spec
from longcrawl.formats.rectangle.spec import DESCRIPTION, LOSS_MASK_SUFFIX, VERSION
from longcrawl.formats.shards.shard import FOUND, TOKENS, token_table
from longcrawl.formats.token_output import TOKENIZER, TokenOutput, TokenWriter, check_masked, decode_beginning
from longcrawl.io import structured
from longcrawl.io.files import file_entries, partial_path, publish, whole_file, whole_files, write_text
from longcrawl.io.stored_tables import read_table, table_writer, write_table
from longcrawl.io.structured import Verification, is_sealed, verify_files
from longcrawl.tokens.loss_mask import LOSS_MASK, loss_mask_of_tokens

Checksum = Literal["crc32c", "none"]
"""Checksum that each chunk carries, so that readers detect changed bytes."""
BAND = 2048
"""Rows per shard (v3) and per chunk (v2)."""
INNER_ROWS, CHUNK_COLUMNS = 64, 2048
ARRAYS = "arrays"
"""Name of the task that writes the metadata of the arrays."""
ORIGINS = pa.schema([("id", pa.string()), ("url", pa.string()), ("roll", pa.int64()), ("n_tokens", pa.int64())])


@dataclass(frozen=True)
class Layout:
    """Settings that determine the bytes of an array of tokens or of their loss mask."""

    context_length: int
    dtype: str
    fill_value: int
    """The end-of-text id, or true for a loss mask."""
    zarr_format: Literal[2, 3]
    codec: Literal["zstd", "lz4hc", "lz4"]
    inner_chunk: tuple[int, int] = (INNER_ROWS, CHUNK_COLUMNS)
    """Rows and columns that are decoded at once (v3); rows divide ``BAND``."""
    checksum: Checksum = "crc32c"
    """Checksum after each inner chunk (v3)."""

    def with_mask(self, *, masked: bool) -> dict[str, "Layout"]:
        """Return this layout of tokens and, if ``masked``, that of their loss mask, by the suffix of its name."""
        mask = {LOSS_MASK_SUFFIX: replace(self, dtype="bool", fill_value=True)}
        return {"": self} | (mask if masked else {})

    def whole_chunks(self, rows: int) -> int:
        """Round the rows of a band up to whole chunks; chunks beyond them are not stored."""
        step = self.inner_chunk[0] if self.zarr_format == 3 else BAND  # the Zarr version
        return -(-rows // step) * step

    def create(self, store: Path, rows: int, *, write_empty_chunks: bool = False) -> Any:
        """Create an empty array with this number of rows at ``store``."""
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
    """Write the metadata of a group with empty arrays, and return the paths of its files in the group.

    ``arrays`` has the layout and rows of each array by its path in the group; all have one Zarr format.
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


def write_band(target: Path, name: str, number: int, tokens: npt.NDArray[Any], layout: Layout) -> list[str]:
    """Write one band, whole chunks of at most ``BAND`` rows, of an array, and return the names of its files."""
    import numcodecs.blosc

    beside = partial_path(target)
    sharded = layout.zarr_format == 3  # the Zarr version
    threads = numcodecs.blosc.use_threads
    # Blosc's threads write blocks in the order in which they finish, which would make the bytes nondeterministic.
    numcodecs.blosc.use_threads = False
    try:
        # Without a stored chunk, the shard's file would not exist.
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
    """Return the columns to spill for documents that are rows: tokens, packed loss mask if any, and origins."""
    tokens = column(table, TOKENS, "a rectangle")
    if getattr(tokens.type, "value_type", None) not in (pa.uint16(), pa.uint32()):
        raise StageError(
            f"a rectangle needs uint16 or uint32 tokens, got {tokens.type}: cast the column, or use tokenize"
        )
    lengths = pc.fill_null(pc.list_value_length(tokens), 0)
    wrong = pc.index(pc.not_equal(lengths, context_length), True).as_py()
    if wrong >= 0:
        name = table["id"][wrong].as_py() if "id" in table.column_names else f"document {wrong}"
        raise FormatError(
            f"{name} has {lengths[wrong].as_py():,} tokens, but a row holds {context_length:,}: "
            f"put min_tokens: {{n: {context_length}}} and truncate: {{n: {context_length}}} before the rectangle"
        )
    columns = {TOKENS: tokens}
    check_masked(table, "a rectangle")
    if LOSS_MASK in table.column_names:
        sizes = np.full(table.num_rows, context_length, np.int64)
        flat = loss_mask_of_tokens(table, sizes, "a rectangle").flatten().to_numpy(zero_copy_only=False)
        flags = np.packbits(flat.reshape(table.num_rows, context_length), axis=1)
        bits = [None, pa.py_buffer(np.ascontiguousarray(flags))]
        columns[LOSS_MASK] = pa.Array.from_buffers(pa.binary(flags.shape[1]), table.num_rows, bits)
    if shuffled:
        columns[SORT_KEY] = table[SORT_KEY]
    for field in ORIGINS:
        there = field.name in table.column_names
        columns[field.name] = table[field.name].cast(field.type) if there else pa.nulls(table.num_rows, field.type)
    return pa.table(columns | {name: table[name] for name in FOUND if name in table.column_names})


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of each row's tokens."""
    width = batch.schema.field(TOKENS).type.value_type.bit_width // 8
    lengths: npt.NDArray[np.int64] = pc.list_value_length(batch.column(TOKENS)).to_numpy().astype(np.int64) * width
    return lengths


@outputs.output("rectangle")
class RectangleOutput(TokenOutput):
    """Write a rectangle in the format of :mod:`longcrawl.formats.rectangle.spec`.

    Peak memory is 2.2 times that of one band of 2,048 rows, whatever the number of rows. Ordering needs some 50 bytes
    per row.

    Args:
        heldout: rows to hold out, as a fraction below 1 or a whole number. They are the first of the order that
            ``shuffle`` gave.
        zarr_format: 3, or 2 for files like those of the original LongCrawl64.
        codec: on GPT-2 tokens of 264 long documents "zstd" (level 3) is 1.64 times smaller than raw; "lz4hc" (level 5)
            1.43 times and decodes 3.6 times as fast; "lz4" (level 5) 1.14 times and 6 times as fast
            (benchmarks/codecs.py).
        checksum: "crc32c" adds four bytes to each chunk of Zarr v3; "none" omits them, as in rectangles that longcrawl
            did not write, and then only ``longcrawl verify`` detects a changed byte.
        context_length: tokens per row; by default that of the stage ``truncate``.
        end_of_text: the id that ends a document; by default that of the stage ``tokenize``.
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

    def layouts(self, context_length: int, dtype: str, end_of_text: int, *, masked: bool) -> dict[str, Layout]:
        """Return the layouts of tokens and loss mask, keyed by the suffix that their arrays add to a split's name."""
        given = (self.zarr_format, self.codec)
        return Layout(context_length, dtype, end_of_text, *given, checksum=self.checksum).with_mask(masked=masked)

    def writer(self, stages: Sequence[Stage]) -> "RectangleWriter":
        """Return a writer with row length, end of text and tokenizer taken from ``truncate`` and ``tokenize``."""
        by_name = {stage.name: stage for stage in stages}
        cut = by_name["truncate"].settings()["n"] if "truncate" in by_name else None
        length = self.context_length or cut
        if length is None:
            raise StageError(
                "a rectangle needs rows of equal length: add truncate: {n: 65536}, or set rectangle.context_length"
            )
        if cut not in (None, length):
            raise StageError(
                f"rectangle.context_length {length:,} and truncate.n {cut:,} differ: remove context_length"
            )
        tokenize = self.find_tokenize(stages)
        return RectangleWriter(
            self, outputs.are_shuffled(stages), tokenize=tokenize, context_length=length, rolled="roll" in by_name
        )


@dataclass(frozen=True)
class RectangleWriter(TokenWriter):
    """Writer of one rectangle."""

    settings: RectangleOutput
    context_length: int = 0
    rolled: bool = False

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """Spill the rows of one part with their origins (first pass)."""
        rows = (row_table(table, self.context_length, shuffled=self.shuffled) for table in tables)
        order.spill_documents(rows, spill, part, shuffled=self.shuffled, sizes=row_bytes)

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Order the documents by an exchange if there are too many for one process."""
        order.exchange_order(spill, parts, engine, shuffled=self.shuffled)

    def plan(self, spill: Path, parts: int) -> list[outputs.WriteTask]:
        """Order all rows, split off the held-out ones, and list the bands to write and the arrays to create."""
        (ordered,), schema = order.order_documents(spill, parts, shuffled=self.shuffled)
        rows, masked = len(ordered.sizes), LOSS_MASK in schema.names
        dtype = str(schema.field(TOKENS).type.value_type)
        if self._end_of_text() > np.iinfo(dtype).max:
            raise FormatError(
                f"end of text is {self._end_of_text():,}, which {dtype} tokens cannot hold: lower "
                "rectangle.end_of_text, or set tokenize.dtype to uint32"
            )
        splits = order.split_rows(self.settings.heldout, rows)
        rows_of = {split: stop - start for split, (start, stop) in splits.items()}
        bands = [
            outputs.WriteTask(f"{split}-{number:05d}", (split, number, first, min(first + BAND, stop), dtype, masked))
            for split, (start, stop) in splits.items()
            for number, first in enumerate(range(start, stop, BAND))
        ]
        return [*bands, outputs.WriteTask(ARRAYS, (rows_of, dtype, masked))]

    def write(self, spill: Path, target: Path, task: outputs.WriteTask) -> dict[str, Any]:
        """Write the rows of one band, or all arrays' metadata, to files that no other task writes (second pass)."""
        if task.name == ARRAYS:
            rows_of, dtype, masked = task.details
            arrays = _arrays_of(rows_of, self._layouts(dtype, masked=masked))
            names = lay_out(target, arrays, self._group_attributes(masked=masked))
            return {"files": file_entries(target, names)}
        split, number, start, stop, dtype, masked = task.details
        layouts = self._layouts(dtype, masked=masked)
        layout, places = layouts[""], order.read_order(spill, start, stop)
        height, length = layout.whole_chunks(len(places)), self.context_length
        tokens = np.full((height, length), layout.fill_value, np.dtype(dtype).newbyteorder("<"))
        # Eight flags per byte.
        flags = np.full((height, -(-length // 8) if masked else 0), 0xFF, np.uint8)
        for chosen, batch, rows_of_batch in order.read_batches(spill, places):
            stored = batch.column(TOKENS).flatten().to_numpy().reshape(batch.num_rows, length)
            for place, row in zip(chosen.tolist(), rows_of_batch.tolist(), strict=True):
                tokens[place] = stored[row]
            if masked:
                bits = np.frombuffer(batch.column(LOSS_MASK).buffers()[1], np.uint8, batch.num_rows * flags.shape[1])
                flags[chosen] = bits.reshape(batch.num_rows, -1)[rows_of_batch]
        origins, rows = order.read_places(spill, places, [*ORIGINS.names, *FOUND]), f"rows-{task.name}.parquet"
        numbers = pa.array(np.arange(stop - start) + number * BAND, pa.int64())
        write_table(origins.add_column(0, "row", numbers), spill / rows)
        names = write_band(target, split, number, tokens, layout)
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
        """Join the tables of rows, add the tokenizer, and describe every file in ``rectangle.json``."""
        *of_bands, of_arrays = written
        files: dict[str, Any] = {**of_arrays["files"]}
        shapes: dict[str, list[int]] = {}
        for split in sorted({each["split"] for each in of_bands}):
            bands = [each for each in of_bands if each["split"] == split]
            tables = [spill / f"rows-{each['task']}.parquet" for each in bands]
            path = target / "rows" / f"{split}.parquet"
            with whole_file(path) as beside, table_writer(beside, pq.read_schema(tables[0])) as joined:
                for table_of_band in tables:
                    joined.write_table(read_table(table_of_band))
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
        return self.settings.layouts(self.context_length, dtype, self._end_of_text(), masked=masked)

    def _group_attributes(self, *, masked: bool) -> dict[str, Any]:
        return self._attributes() | {"rolled": self.rolled} | ({"loss_mask": True} if masked else {})


def _arrays_of(rows: Mapping[str, int], layouts: Mapping[str, Layout]) -> dict[str, tuple[Layout, int]]:
    return {f"{split}{suffix}": (layout, rows[split]) for split in rows for suffix, layout in layouts.items()}


ATTRIBUTES = ("end_of_text", "vocabulary_size", "tokenizer", "json_escaped", "rolled", "loss_mask")
"""Names of the group's attributes, in the order in which they are written."""


def without_documents(folder: Path, ids: pa.Array, layouts: dict[str, Layout]) -> Removal:
    """Rewrite the changed bands of a rectangle; ``layouts`` are of a split's arrays, by suffix of their names."""
    changes, proof, splits = Changes(folder, spec.read_description(folder)), Proof(PROOF_TOKENS), list[_Split]()
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
        arrays = _arrays_of({split: rows for split, (rows, _) in shapes.items()}, layouts)
        changes.changed += lay_out(folder, arrays, attributes)
    return changes.finish(spec.DESCRIPTION, gone, proof)


class _Split:
    """A split with rows to remove; their places are filled with rows from its end."""

    def __init__(self, changes: Changes, name: str, table: pa.Table, gone: Longs) -> None:
        if len(gone) == table.num_rows:
            raise FormatError(f"no rows of the split {name!r} would remain: run the recipe again without them")
        self.changes, self.name, self.table, self.gone = changes, name, table, gone
        self.ids = [str(each).encode("utf-8", "surrogatepass") for each in table["id"].to_pylist()]
        self.source = filled_holes(len(self.ids), gone)  # the old number of each new row
        moved = np.flatnonzero(self.source != np.arange(len(self.source)))
        partial = {len(self.source) // BAND} if len(self.source) % BAND else set()
        # Only the last of the rewritten bands and the dropped ones supply rows to other bands.
        self.written = sorted({*(moved // BAND).tolist(), *partial})
        self.dropped = range(-(-len(self.source) // BAND), -(-len(self.ids) // BAND))

    def note(self, proof: Proof) -> None:
        read, removed = _row_reader(spec.open_split(self.changes.folder, self.name)), set(self.gone.tolist())
        for band in (*self.written, *self.dropped):
            for row in range(band * BAND, min((band + 1) * BAND, len(self.ids))):
                proof.before(self.ids[row], read(row), kept=row not in removed)


def _rewrite(split: _Split, layouts: dict[str, Layout], proof: Proof) -> None:
    folder, tokens = split.changes.folder, spec.open_split(split.changes.folder, split.name)
    arrays = {"": tokens}
    if len(layouts) > 1:
        arrays[LOSS_MASK_SUFFIX] = spec.open_loss_mask(tokens)
    for suffix, array in arrays.items():
        read = _row_reader(array)
        # Only the last rewritten band and those after it supply rows, so bands are read before they are replaced.
        for band in split.written:
            source = split.source[band * BAND : (band + 1) * BAND].tolist()
            shape = layouts[suffix].whole_chunks(len(source)), array.shape[1]
            values = np.full(shape, layouts[suffix].fill_value, array.dtype)
            for place, row in enumerate(source):
                values[place] = read(row)
            split.changes.changed += write_band(folder, f"{split.name}{suffix}", band, values, layouts[suffix])
            for place, row in enumerate(source if suffix == "" else ()):
                proof.after(split.ids[row], values[place])
                proof.look([values[place]])
        for name in [name for name in split.changes.described["files"] if name.startswith(f"{array.name}/")]:
            corner = array.layout.chunk_of_file(name.removeprefix(f"{array.name}/"))
            if corner is not None and corner[0] * array.layout.chunks[0] // BAND in split.dropped:
                split.changes.drop(name)


def _write_rows(split: _Split) -> None:
    kept = split.table.take(pa.array(split.source))
    kept = kept.set_column(0, "row", pa.array(np.arange(kept.num_rows), pa.int64()))
    file = f"rows/{split.name}.parquet"
    with whole_file(split.changes.folder / file) as beside, table_writer(beside, kept.schema) as out:
        for first in range(0, kept.num_rows, BAND):
            out.write_table(kept.slice(first, BAND).combine_chunks())
    split.changes.changed.append(file)


def _row_reader(array: spec.SplitArray) -> Callable[[int], npt.NDArray[Any]]:
    """Return a function that reads a row, and keeps the last decoded row of chunks."""
    height, read = array.layout.chunks[0], lru_cache(maxsize=1)(array.read_band)
    return lambda row: read(row // height)[row % height]


MOST_NAMED = 1000
"""Most missing files of an array to name; the rest are counted."""
CHECKED = {
    "crc32c": "a crc32c behind each chunk",
    "sha256": "a SHA-256 of each chunk in rectangle.json",
    "none": "no checksum of chunks",
}
"""Description of each kind of checksum, for ``longcrawl inspect``."""


@dataclass(frozen=True, kw_only=True)
class RectangleInspection(outputs.Inspection):
    """Description of one split of a rectangle, with one of its rows as text, rolled back."""

    shape: tuple[int, int]
    dtype: str
    chunks: str
    codec: str
    checksum: Literal["crc32c", "sha256", "none"]
    stored_bytes: int
    roll: int | None
    n_tokens: int | None

    @property
    def ratio(self) -> float:
        """Ratio of the raw tokens' bytes to the stored bytes."""
        return float(np.prod(self.shape, dtype=np.float64)) * np.dtype(self.dtype).itemsize / max(self.stored_bytes, 1)

    def __str__(self) -> str:
        rows, length = self.shape
        lines = [
            f"{self.path}  split {self.split}: {rows:,} rows x {length:,} tokens, {self.dtype}",
            f"chunks {self.chunks}, {self.codec}, {CHECKED[self.checksum]}",
            f"{self.stored_bytes:,} bytes stored, {self.ratio:.2f} times smaller than raw",
            f"row {self.row}: {self.row_id or 'of unknown origin'}  {self.url or ''}".rstrip(),
        ]
        if self.n_tokens is not None:
            lines.append(
                f"  {self.n_tokens:,} tokens before truncation, rolled by {self.roll or 0:,}; shown rolled back"
            )
        undecoded = "  (no tokenizer.json beside the arrays: the row stays undecoded)"
        return f"{as_lines(lines)}\n{undecoded if self.text is None else printable(self.text)}"

    __repr__ = __str__


@dataclass(frozen=True)
class RectangleRows(outputs.TokenRows):
    """Rows of one split, read by rows that share chunks: 64 rows of Zarr v3 or 2,048 of v2 are in memory at a time."""

    folder: Path
    split: str
    rows: int
    tokens: int
    rolled: bool

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield a table per row of chunks: ``id``, ``url``, ``roll`` if rows are rolled, and tokens."""
        array = spec.open_split(self.folder, self.split)
        mask = spec.open_loss_mask(array) if array.masked else None
        names = ["id", "url", *["roll"] * self.rolled]
        origins = read_table(self.folder / "rows" / f"{self.split}.parquet", names)
        height, length = array.layout.chunks[0], array.shape[1]
        for band in range(start // height, -(-stop // height)):
            first, last = max(start, band * height), min(stop, (band + 1) * height)
            here = slice(first - band * height, last - band * height)
            flags: Any = None if mask is None else mask.read_band(band)[here].reshape(-1)
            lengths = np.full(last - first, length, np.int64)
            yield token_table(
                origins.slice(first, last - first), array.read_band(band)[here].reshape(-1), lengths, flags
            )


@outputs.result
class RectangleResult(outputs.Result):
    """Rows of tokens of one length for a loader, with plain tables of their origins."""

    name: ClassVar[str] = "rectangle"
    description: ClassVar[str] = spec.DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("pretokenized", "long-context")
    fewer_files: ClassVar[str] = "rectangle.zarr_format=3, which makes one file of 2,048 rows"
    smaller_files: ClassVar[str] = "a smaller truncate.n, or its first parts alone"
    feed: ClassVar[str] = "rectangle"
    lengths: ClassVar[str] = "rows/*.parquet"

    def documents(self, described: Mapping[str, Any]) -> int:
        """Return the number of rows."""
        return sum(rows for rows, _ in described["shapes"].values())

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the shape of each split."""
        return ", ".join(f"{split} {rows:,} x {length:,}" for split, (rows, length) in described["shapes"].items())

    def read_back(self, folder: Path) -> str:
        """Read the first chunk of tokens, and of their loss mask if there is one, and describe it."""
        split = spec.open_split(folder)
        arrays = {"tokens": split, **({"loss_mask": spec.open_loss_mask(split)} if split.masked else {})}
        chunks = {name: array.read_chunk(0, 0) for name, array in arrays.items()}
        read = ", ".join(f"{name} {chunk.dtype} {chunk.shape}" for name, chunk in chunks.items())
        rows, length = split.shape
        return f"{read}, the first chunk of {rows:,} x {length:,}"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables of row origins, since plain `datasets` reads no Zarr."""
        splits = sorted(described["shapes"], reverse=True)
        files = [{"split": split, "path": f"rectangle/rows/{split}.parquet"} for split in splits]
        return [{"config_name": "rows", "data_files": files, "default": True}]

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of the shapes."""
        shapes = sorted(described["shapes"].items(), reverse=True)
        rows = [[split, count, length, count * length] for split, (count, length) in shapes]
        columns = [Column("split"), *(Column(name, "count") for name in ("rows", "tokens a row", "tokens"))]
        length = next(iter(described["shapes"].values()))[1]
        rolled = ", rolled by an amount of its own" if described["rolled"] else ""
        about = f"Every row is one document: its first {length:,} tokens{rolled}."
        return f"{Table(columns, rows).markdown()}\n\n{about}"

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:
        """Describe the truncated documents, the padding and the documents per row as a table."""
        rows = []
        for split, (count, length) in sorted(described["shapes"].items(), reverse=True):
            if (tokens := _tokens_of(folder, split)) is None:
                return ""
            cut, whole = int((tokens > length).sum()), int(np.minimum(tokens, length).sum())
            shares = [1 - whole / max(count * length, 1), cut / max(count, 1), 1 - whole / max(int(tokens.sum()), 1)]
            rows.append([split, f"{count:,}", f"{cut:,}", *(f"{100 * share:.2f}" for share in shares), "1.00"])
        head = ["split", "documents", "cut", "r_pad %", "r_tru %", "tokens cut off %", "r_cat"]
        about = (
            "r_pad: filling, of all tokens of rows. r_tru: documents that are longer than a row, of all. r_cat: "
            "documents per row."
        )
        return f"{table(head, rows, 6)}\n\n{about} `longcrawl compose RUN` compares with other ways of making samples."

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:
        """Describe the number of documents longer than a row, and the share of tokens that is cut off."""
        cut = documents = kept = tokens = 0
        for split, (_, length) in described["shapes"].items():
            if (found := _tokens_of(folder, split)) is None:
                return ""
            cut, documents = cut + int((found > length).sum()), documents + len(found)
            kept, tokens = kept + int(np.minimum(found, length).sum()), tokens + int(found.sum())
        if not cut:
            return ""
        share = 100 * (1 - kept / tokens)
        return f"{cut:,} of {documents:,} documents are longer than a row: {share:.1f} % of all tokens are cut off."

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the shape of the training rows, and a context length that fits them."""
        rows, length = described["shapes"]["train"]
        return {"rows": str(rows), "row_length": str(length), "context_length": str(min(length, 4096))}

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe the token type, and how tokens differ from the text."""
        limits = [
            f"Tokens are {described['dtype']}; token {described['end_of_text']} ends a text and fills what is absent."
        ]
        if described["json_escaped"]:
            limits.append(
                "Tokens are those of JSON-escaped text, as in the original LongCrawl64: "
                "a newline is a backslash and an n."
            )
        if described["rolled"]:
            limits.append(
                "Rows are rolled: a row may start in the middle of its document; `rows/*.parquet` says by how much."
            )
        return limits

    def verify(self, folder: Path) -> Verification:
        """Check a rectangle of longcrawl by its checksums, or one in the original layout chunk by chunk."""
        if (folder / spec.DESCRIPTION).exists():
            described = spec.read_description(folder)
            if not is_sealed(folder / spec.DESCRIPTION, described):
                problems = [f"{spec.DESCRIPTION} has been changed: the SHA-256 that it records differs"]
            else:
                problems = [*verify_files(folder, described["files"]), *_wrong_shapes(folder, described)]
            return Verification(
                str(folder), f"{len(described['files'])} files compared with their SHA-256", tuple(problems)
            )
        arrays = _arrays(folder)
        if not arrays:
            raise FormatError(f"{folder} holds no rectangle: expected {spec.DESCRIPTION}, or arrays such as train.zarr")
        problems = [*_lost_metadata(folder), *(problem for array in arrays for problem in _bad_chunks(folder, array))]
        names = ", ".join(arrays)
        return Verification(
            str(folder), f"no checksums here: every chunk of {names} looked for and decoded", tuple(problems)
        )

    def inspect(self, folder: Path, split: str, row: int) -> RectangleInspection:
        """Return shape, codec and compression ratio, and one row as text, rolled back."""
        name = next((name for name in (split, f"{split}.zarr") if name in _arrays(folder)), None)
        if name is None:
            raise FormatError(f"{folder} has no split {split!r}; known: {', '.join(_arrays(folder)) or 'nothing'}")
        opened = spec.open_split(folder, split)
        if not 0 <= row < opened.shape[0]:
            raise FormatError(f"{folder} split {split!r} has rows 0 to {opened.shape[0] - 1:,}, not {row}")
        rows = folder / "rows" / f"{split}.parquet"
        found = read_table(rows, condition=pc.field("row") == row).to_pylist() if rows.exists() else []
        origin = found[0] if found else {}
        tokens = np.roll(_row_reader(opened)(row), -(origin.get("roll") or 0))
        layout = opened.layout
        shard = f" in shards {layout.file_shape}" if layout.index_at != "none" else ""
        return RectangleInspection(
            path=str(folder),
            split=split,
            shape=layout.shape,
            dtype=str(layout.dtype),
            chunks=f"{layout.chunks}{shard}",
            codec=layout.compression,
            checksum=opened.checksum,
            stored_bytes=sum(file.stat().st_size for file in _chunk_files(folder / name)),
            row=row,
            row_id=origin.get("id"),
            url=origin.get("url"),
            roll=origin.get("roll"),
            n_tokens=origin.get("n_tokens"),
            text=_decode(folder, tokens),
        )

    def without(self, folder: Path, ids: pa.Array, settings: outputs.Output) -> Removal:
        """Rewrite the changed bands without some documents; see :class:`longcrawl.core.outputs.Result`."""
        described = spec.read_description(folder)
        if not isinstance(settings, RectangleOutput):
            raise FormatError(f"{folder} is not a rectangle of longcrawl: run its recipe again without the documents")
        about = next(iter(described["shapes"].values()))[1], described["dtype"], described["end_of_text"]
        return without_documents(folder, ids, settings.layouts(*about, masked=bool(described.get("loss_mask"))))

    def token_rows(self, folder: Path) -> dict[str, RectangleRows]:
        """Return the rows of each split."""
        described = spec.read_description(folder)
        shapes = sorted(described["shapes"].items(), reverse=True)
        rolled = described.get("rolled", False)
        return {split: RectangleRows(folder, split, rows, rows * length, rolled) for split, (rows, length) in shapes}


def _tokens_of(folder: Path, split: str) -> npt.NDArray[np.int64] | None:
    """Return the tokens of each document before truncation, or None if there is no table."""
    rows = folder / "rows" / f"{split}.parquet"
    return np.asarray(pc.fill_null(read_table(rows, ["n_tokens"])["n_tokens"], 0), np.int64) if rows.exists() else None


def _lost_metadata(path: Path) -> Iterator[str]:
    """Report folders of chunks without metadata, and a missing description beside other files of longcrawl."""
    for folder in sorted(entry for entry in path.glob("*") if entry.is_dir() and entry.name not in _arrays(path)):
        if any(_chunk_files(folder)) and folder.name != "rows":
            yield f"{folder.name} has chunks and no .zarray or zarr.json: it cannot be opened"
    if (path / "rows").is_dir() or (path / TOKENIZER).exists():
        yield f"{spec.DESCRIPTION} is missing: without it no checksum can be compared"


def _arrays(path: Path) -> list[str]:
    return sorted(
        entry.name for entry in path.glob("*") if (entry / ".zarray").exists() or (entry / "zarr.json").exists()
    )


def _open_array(path: Path, name: str) -> spec.SplitArray:
    array = spec.open_split(path, name.removesuffix(".zarr").removesuffix(LOSS_MASK_SUFFIX))
    return spec.open_loss_mask(array) if name.endswith(LOSS_MASK_SUFFIX) else array


def _wrong_shapes(path: Path, described: dict[str, Any]) -> Iterator[str]:
    for split, shape in described["shapes"].items():
        if not (path / split).is_dir():
            yield f"split {split} is missing"
            continue
        for name in (split, split + LOSS_MASK_SUFFIX) if described.get("loss_mask") else (split,):
            there = {file.relative_to(path).as_posix() for file in _chunk_files(path / name)}
            yield from (f"{each} is not part of this rectangle" for each in sorted(there - described["files"].keys()))
            try:
                array = _open_array(path, name)
            except FormatError as broken:
                yield f"{name} cannot be opened: {broken}"
                break
            if name == split and list(array.shape) != shape:
                yield f"{split} has shape {tuple(array.shape)}, expected {tuple(shape)}"


def _bad_chunks(path: Path, folder: str) -> Iterator[str]:
    try:
        array = _open_array(path, folder)
    except FormatError as broken:
        yield f"{folder} cannot be opened: {broken}"
        return
    layout, (rows, columns), (down, across) = array.layout, array.layout.chunk_grid, array.layout.chunks_per_file
    names = sorted(file.relative_to(path / folder).as_posix() for file in _chunk_files(path / folder))
    present = {name: layout.chunk_of_file(name) for name in names}
    for name, corner in present.items():
        if corner is None:
            yield f"{folder}/{name} is outside the shape {array.shape}: the shape is wrong"
            continue
        top, left = corner
        try:
            for chunk in product(range(top, min(top + down, rows)), range(left, min(left + across, columns))):
                array.read_chunk(*chunk)
        except CorruptionError as broken:
            yield f"{folder}/{name} does not decode: {broken}"
    there = set(present.values())
    # With a wrong shape, millions of files may be missing.
    corners = ((row, column) for row in range(0, rows, down) for column in range(0, columns, across))
    for corner in islice((corner for corner in corners if corner not in there), MOST_NAMED):
        yield f"{folder}/{layout.file_name(*corner)} is missing and would be read as {layout.fill_value}"
    lacking = layout.files - len(there - {None})
    if lacking > MOST_NAMED:
        yield f"{folder} lacks {lacking - MOST_NAMED:,} more files"


def _chunk_files(folder: Path) -> Iterator[Path]:
    return (
        file for file in folder.rglob("*") if file.is_file() and file.name not in ("zarr.json", ".zarray", ".zattrs")
    )


def _decode(folder: Path, tokens: Any) -> str | None:
    described = (folder / spec.DESCRIPTION).exists() and (folder / TOKENIZER).exists() and spec.read_description(folder)
    try:
        return decode_beginning(folder, tokens, json_escaped=bool(described and described["json_escaped"]))
    except TokenizerError:
        raise
    except ValueError as broken:
        raise CorruptionError(
            f"a row of {folder} is not JSON-escaped from its start, so its rows table is not its own: {broken}; "
            f"run longcrawl verify {folder}"
        ) from broken
