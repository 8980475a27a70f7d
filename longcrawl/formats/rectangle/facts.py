"""Summary, card, verification, inspection and removal for rectangles.

Ours has a checksum for every file, so one flipped bit is found. The original LongCrawl64 layout has none: there every
chunk must be present and decode; a chunk that is absent would otherwise be read as zeros, "!" in GPT-2's vocabulary,
silently.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Column, Table, table
from longcrawl.core.outputs import Inspection, Output, Result, TokenRows, Verification, result
from longcrawl.core.removal import PROOF_TOKENS, Changes, Longs, Proof, Removal, filled_holes, rows_of_ids
from longcrawl.errors import CorruptionError, FormatError, TokenizerError, as_lines, printable, unreadable
from longcrawl.formats.rectangle import spec
from longcrawl.formats.rectangle.chunks import ArrayLayout
from longcrawl.formats.rectangle.write import BAND, Layout, RectangleOutput, lay_out, write_band
from longcrawl.formats.token_output import TOKENIZER, decode_beginning
from longcrawl.formats.token_rows import token_table
from longcrawl.io.files import whole_file
from longcrawl.io.stored_tables import read_table, table_writer
from longcrawl.io.structured import is_sealed, verify_files

ATTRIBUTES = ("end_of_text", "vocabulary_size", "tokenizer", "json_escaped", "rolled", "loss_mask")
"""Of the group, in the order in which they are written."""


def without_documents(folder: Path, ids: pa.Array, layouts: dict[str, Layout]) -> Removal:
    """Write the bands that hold some rows, and the last ones, again; see :class:`longcrawl.core.outputs.Result`.

    Args:
        folder: of the rectangle.
        ids: of the documents, strings.
        layouts: of a split's arrays, by what follows the split in their names.
    """
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


MOST_NAMED = 1000
"""Missing files of an array that are named; the others are counted."""

CHECKED = {
    "crc32c": "a crc32c behind each chunk",
    "sha256": "a SHA-256 of each chunk in rectangle.json",
    "none": "no checksum of chunks",
}
"""What readers compare."""


@dataclass(frozen=True, kw_only=True)
class RectangleInspection(Inspection):
    """What one split of a rectangle holds, and one of its rows as text, rolled back."""

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
        """How many times smaller than raw tokens the chunks are."""
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


@dataclass(frozen=True)
class RectangleRows(TokenRows):
    """The rows of one split; memory holds those that share chunks, 64 rows of Zarr v3 or 2,048 of v2."""

    folder: Path
    split: str
    rows: int
    tokens: int
    rolled: bool

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield the rows that share chunks: ``id``, ``url``, where rows are rolled ``roll``, and tokens."""
        array = spec.open_split(self.folder, self.split)
        mask = spec.open_loss_mask(array) if array.masked else None
        names = ["id", "url", *["roll"] * self.rolled]
        origins = read_table(self.folder / "rows" / f"{self.split}.parquet", names)
        height, length = array.layout.chunks[0], array.shape[1]
        for band in range(start // height, -(-stop // height)):
            first, last = max(start, band * height), min(stop, (band + 1) * height)
            here = slice(first - band * height, last - band * height)
            flags = None if mask is None else _read_band(mask, band)[here].reshape(-1)
            lengths = np.full(last - first, length, np.int64)
            yield token_table(
                origins.slice(first, last - first), _read_band(array, band)[here].reshape(-1), lengths, flags
            )


@result
class RectangleResult(Result):
    """A rectangle: rows of tokens for a loader, and tables that say where they came from for everybody."""

    name: ClassVar[str] = "rectangle"
    description: ClassVar[str] = spec.DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("pretokenized", "long-context")
    fewer_files: ClassVar[str] = "rectangle.zarr_format=3, which makes one file of 2,048 rows"
    smaller_files: ClassVar[str] = "a smaller truncate.n, or its first parts alone"
    feed: ClassVar[str] = "rectangle"
    lengths: ClassVar[str] = "rows/*.parquet"

    def documents(self, described: Mapping[str, Any]) -> int:
        """Count the rows."""
        return sum(rows for rows, _ in described["shapes"].values())

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the shape of every split."""
        return ", ".join(f"{split} {rows:,} x {length:,}" for split, (rows, length) in described["shapes"].items())

    def read_back(self, folder: Path) -> str:
        """Read the first chunk of tokens, and of their loss mask where there is one, and describe it."""
        split = spec.open_split(folder)
        arrays = {"tokens": split, **({"loss_mask": spec.open_loss_mask(split)} if split.masked else {})}
        chunks = {name: array.read_chunk(0, 0) for name, array in arrays.items()}
        read = ", ".join(f"{name} {chunk.dtype} {chunk.shape}" for name, chunk in chunks.items())
        rows, length = split.shape
        return f"{read}, the first chunk of {rows:,} x {length:,}"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables of where rows came from: plain `datasets` reads no Zarr."""
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
        """Describe how many documents were cut to a row, and how much of the rows is filled up."""
        rows = []
        for split, (count, length) in sorted(described["shapes"].items(), reverse=True):
            tokens = _tokens_of(folder / "rows" / f"{split}.parquet")
            if tokens is None:
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
        """Describe how many documents are longer than a row, and how many of all tokens that costs."""
        cut = documents = kept = tokens = 0
        for split, (_, length) in described["shapes"].items():
            found = _tokens_of(folder / "rows" / f"{split}.parquet")
            if found is None:
                return ""
            cut, documents = cut + int((found > length).sum()), documents + len(found)
            kept, tokens = kept + int(np.minimum(found, length).sum()), tokens + int(found.sum())
        if not cut:
            return ""
        share = 100 * (1 - kept / tokens)
        return f"{cut:,} of {documents:,} documents are longer than a row: {share:.1f} % of all tokens are cut off."

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the shape of the rows to train on, and a context length that fits them."""
        rows, length = described["shapes"]["train"]
        return {"rows": str(rows), "row_length": str(length), "context_length": str(min(length, 4096))}

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe what tokens are, and how far they are from the text."""
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
        """Check a rectangle of ours by its checksums, or one in the original layout chunk by chunk."""
        if (folder / spec.DESCRIPTION).exists():
            described = spec.read_description(folder)
            if not is_sealed(folder / spec.DESCRIPTION, described):
                problems = [f"{spec.DESCRIPTION} has been changed: the SHA-256 that it gives of itself differs"]
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
        """Return shape, codec and ratio, and one row as text, rolled back."""
        import zarr
        from zarr.codecs import Crc32cCodec

        name = next((name for name in (split, f"{split}.zarr") if name in _arrays(folder)), None)
        if name is None:
            raise FormatError(f"{folder} has no split {split!r}; there is: {', '.join(_arrays(folder)) or 'nothing'}")
        opened = spec.open_split(folder, split)
        if not 0 <= row < opened.shape[0]:
            raise FormatError(f"{folder} split {split!r} has rows 0 to {opened.shape[0] - 1:,}, not {row}")
        origin = _origin(folder, split, row)
        tokens = np.roll(_row(opened, row), -(origin.get("roll") or 0))
        array_folder = folder / name
        with unreadable(
            f"the Zarr metadata of {array_folder}", FormatError, "copy it again from where the array was made"
        ):
            array = zarr.open_array(str(array_folder), mode="r")
        shard = f" in shards {array.shards}" if array.shards else ""
        return RectangleInspection(
            path=str(folder),
            split=split,
            shape=(array.shape[0], array.shape[1]),
            dtype=str(array.dtype),
            chunks=f"{array.chunks}{shard}",
            codec=", ".join(_codec(codec) for codec in array.compressors if not isinstance(codec, Crc32cCodec)),
            checksum=opened.checksum,
            stored_bytes=sum(file.stat().st_size for file in _chunk_files(array_folder)),
            row=row,
            row_id=origin.get("id"),
            url=origin.get("url"),
            roll=origin.get("roll"),
            n_tokens=origin.get("n_tokens"),
            text=_decode(folder, tokens),
        )

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:
        """Write the bands that hold some rows again; see :class:`longcrawl.core.outputs.Result`."""
        described = spec.read_description(folder)
        if not isinstance(settings, RectangleOutput):
            raise FormatError(f"{folder} is not a rectangle of longcrawl: run its recipe again without the documents")
        length = next(iter(described["shapes"].values()))[1]
        layouts = settings.layouts(length, described["dtype"], described["end_of_text"])
        return without_documents(folder, ids, layouts if described.get("loss_mask") else {"": layouts[""]})

    def token_rows(self, folder: Path) -> dict[str, RectangleRows]:
        """Return the rows of every split."""
        described = spec.read_description(folder)
        shapes = sorted(described["shapes"].items(), reverse=True)
        rolled = described.get("rolled", False)
        return {split: RectangleRows(folder, split, rows, rows * length, rolled) for split, (rows, length) in shapes}


def _tokens_of(rows: Path) -> npt.NDArray[np.int64] | None:
    """Return the tokens of each document before it was cut; None where the table is not there."""
    if not rows.exists():
        return None
    return np.asarray(pc.fill_null(read_table(rows, ["n_tokens"])["n_tokens"], 0), np.int64)


def _lost_metadata(path: Path) -> Iterator[str]:
    """Find what has chunks and no metadata, and what was written here and has lost its description."""
    for folder in sorted(entry for entry in path.glob("*") if entry.is_dir() and entry.name not in _arrays(path)):
        if any(_chunk_files(folder)) and folder.name != "rows":
            yield f"{folder.name} has chunks and no .zarray or zarr.json: it cannot be opened"
    if (path / "rows").is_dir() or (path / TOKENIZER).exists():
        yield f"{spec.DESCRIPTION} is missing: without it no checksum can be compared"


def _arrays(path: Path) -> list[str]:
    return sorted(
        entry.name for entry in path.glob("*") if (entry / ".zarray").exists() or (entry / "zarr.json").exists()
    )


def _row(array: spec.SplitArray, row: int) -> Any:
    rows = array.layout.chunks[0]
    columns = range(array.layout.chunk_grid[1])
    return np.concatenate([array.read_chunk(row // rows, column)[row % rows] for column in columns])


def _wrong_shapes(path: Path, described: dict[str, Any]) -> Iterator[str]:
    for split, shape in described["shapes"].items():
        if not (path / split).is_dir():
            yield f"split {split} is missing"
            continue
        extra = {file.relative_to(path).as_posix() for file in _chunk_files(path / split)} - described["files"].keys()
        yield from (f"{name} is not part of this rectangle" for name in sorted(extra))
        try:
            array = spec.open_split(path, split)
        except FormatError as broken:
            yield f"{split} cannot be opened: {broken}"
            continue
        if list(array.shape) != shape:
            yield f"{split} has shape {tuple(array.shape)}, expected {tuple(shape)}"
        if described.get("loss_mask"):
            yield from _wrong_loss_mask(path, array, described)


def _wrong_loss_mask(path: Path, tokens: spec.SplitArray, described: dict[str, Any]) -> Iterator[str]:
    name = f"{tokens.name}{spec.LOSS_MASK_SUFFIX}"
    extra = {file.relative_to(path).as_posix() for file in _chunk_files(path / name)} - described["files"].keys()
    yield from (f"{each} is not part of this rectangle" for each in sorted(extra))
    try:
        spec.open_loss_mask(tokens)
    except FormatError as broken:
        yield f"{name} cannot be opened: {broken}"


def _bad_chunks(path: Path, folder: str) -> Iterator[str]:
    try:
        split = folder.removesuffix(".zarr").removesuffix(spec.LOSS_MASK_SUFFIX)
        array = spec.open_split(path, split)
        array = spec.open_loss_mask(array) if folder.endswith(spec.LOSS_MASK_SUFFIX) else array
    except FormatError as broken:
        yield f"{folder} cannot be opened: {broken}"
        return
    layout, grid = array.layout, array.layout.chunk_grid
    down, across = layout.chunks_per_file
    names = sorted(file.relative_to(path / folder).as_posix() for file in _chunk_files(path / folder))
    present = {name: layout.chunk_of_file(name) for name in names}
    for name, corner in present.items():
        if corner is None:
            yield f"{folder}/{name} lies outside the shape {array.shape}: the shape is wrong"
            continue
        rows, columns = (
            range(first, min(first + many, most))
            for first, many, most in zip(corner, (down, across), grid, strict=True)
        )
        try:
            for chunk in product(rows, columns):
                array.read_chunk(*chunk)
        except CorruptionError as broken:
            yield f"{folder}/{name} does not decode: {broken}"
    yield from _missing_files(folder, layout, {corner for corner in present.values() if corner is not None})


def _missing_files(folder: str, layout: ArrayLayout, there: set[tuple[int, int]]) -> Iterator[str]:
    """Name the first files that are not there, and count the others: of wrong shapes there may be millions."""
    (rows, columns), (down, across) = layout.chunk_grid, layout.chunks_per_file
    corners = ((row, column) for row in range(0, rows, down) for column in range(0, columns, across))
    for corner in islice((corner for corner in corners if corner not in there), MOST_NAMED):
        yield f"{folder}/{layout.file_name(*corner)} is missing and would be read as {layout.fill_value}"
    if layout.files - len(there) > MOST_NAMED:
        yield f"{folder} lacks {layout.files - len(there) - MOST_NAMED:,} more files"


def _codec(codec: Any) -> str:
    recorded = codec.to_dict().get("configuration", {}) if hasattr(codec, "to_dict") else codec.get_config()
    words = {name: getattr(value, "value", value) for name, value in recorded.items()}
    spelled: dict[Any, str] = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
    shuffle = spelled.get(words.get("shuffle"), words.get("shuffle"))
    return f"{type(codec).__name__} {words.get('cname', '')} level {words.get('clevel', words.get('level'))} {shuffle}"


def _chunk_files(folder: Path) -> Iterator[Path]:
    return (
        file for file in folder.rglob("*") if file.is_file() and file.name not in ("zarr.json", ".zarray", ".zattrs")
    )


def _origin(path: Path, split: str, row: int) -> dict[str, Any]:
    rows = path / "rows" / f"{split}.parquet"
    if not rows.exists():
        return {}
    found = read_table(rows, condition=pc.field("row") == row).to_pylist()
    return dict(found[0]) if found else {}


def _decode(folder: Path, tokens: Any) -> str | None:
    described = (folder / spec.DESCRIPTION).exists() and (folder / TOKENIZER).exists() and spec.read_description(folder)
    try:
        return decode_beginning(folder, tokens, json_escaped=bool(described and described["json_escaped"]))
    except TokenizerError:
        raise
    except ValueError as broken:
        raise CorruptionError(
            f"a row of {folder} is not JSON-escaped from its start, so its rows table is not its own: {broken}; "
            f"type longcrawl verify {folder}"
        ) from broken


def _read_band(array: spec.SplitArray, band: int) -> npt.NDArray[Any]:
    return np.concatenate([array.read_chunk(band, column) for column in range(array.layout.chunk_grid[1])], axis=1)
