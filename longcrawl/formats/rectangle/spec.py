"""Is a rectangle whole? What does it hold?

Ours has a checksum for every file, so one flipped bit is found. The original LongCrawl64 layout has none: there every
chunk must be present and decode; a chunk that is absent would otherwise be read as zeros, "!" in GPT-2's vocabulary,
silently.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from longcrawl.core.results import Inspection, Verification
from longcrawl.errors import CorruptionError, FormatError, unreadable
from longcrawl.formats.rectangle._layout import ArrayLayout
from longcrawl.formats.rectangle.chunks import LOSS_MASK_SUFFIX, SplitArray, open_loss_mask, open_split
from longcrawl.formats.rectangle.write import DESCRIPTION, TOKENIZER, read_description
from longcrawl.printable import as_lines, printable
from longcrawl.storage.sealed import is_sealed, verify_files
from longcrawl.storage.stored_tables import read_table

__all__ = ["RectangleInspection", "inspect_rectangle", "verify_rectangle"]

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


def verify_rectangle(path: Path) -> Verification:
    """Check a rectangle of ours by its checksums, or one in the original layout chunk by chunk.

    Raises:
        FormatError: there is no rectangle at ``path``.

    """
    if (path / DESCRIPTION).exists():
        described = read_description(path)
        if not is_sealed(path / DESCRIPTION, described):
            problems = [f"{DESCRIPTION} has been changed: the SHA-256 that it gives of itself differs"]
        else:
            problems = [*verify_files(path, described["files"]), *_wrong_shapes(path, described)]
        return Verification(str(path), f"{len(described['files'])} files compared with their SHA-256", tuple(problems))
    arrays = _arrays(path)
    if not arrays:
        raise FormatError(f"{path} holds no rectangle: expected {DESCRIPTION}, or arrays such as train.zarr")
    problems = [*_lost_metadata(path), *(problem for array in arrays for problem in _bad_chunks(path, array))]
    names = ", ".join(arrays)
    return Verification(str(path), f"no checksums here: every chunk of {names} looked for and decoded", tuple(problems))


def inspect_rectangle(path: Path, split: str = "train", row: int = 0, characters: int = 600) -> RectangleInspection:
    """Describe a split and decode the start of one row.

    Raises:
        FormatError: no such split or row.

    """
    import zarr
    from zarr.codecs import Crc32cCodec

    name = next((name for name in (split, f"{split}.zarr") if name in _arrays(path)), None)
    if name is None:
        raise FormatError(f"{path} has no split {split!r}; there is: {', '.join(_arrays(path)) or 'nothing'}")
    opened = open_split(path, split)
    if not 0 <= row < opened.shape[0]:
        raise FormatError(f"{path} split {split!r} has rows 0 to {opened.shape[0] - 1:,}, not {row}")
    origin = _origin(path, split, row)
    tokens = np.roll(_row(opened, row), -(origin.get("roll") or 0))
    folder = path / name
    with unreadable(f"the Zarr metadata of {folder}", FormatError, "copy it again from where the array was made"):
        array = zarr.open_array(str(folder), mode="r")
    shard = f" in shards {array.shards}" if array.shards else ""
    return RectangleInspection(
        path=str(path),
        split=split,
        shape=(array.shape[0], array.shape[1]),
        dtype=str(array.dtype),
        chunks=f"{array.chunks}{shard}",
        codec=", ".join(_codec(codec) for codec in array.compressors if not isinstance(codec, Crc32cCodec)),
        checksum=opened.checksum,
        stored_bytes=sum(file.stat().st_size for file in _chunk_files(folder)),
        row=row,
        row_id=origin.get("id"),
        url=origin.get("url"),
        roll=origin.get("roll"),
        n_tokens=origin.get("n_tokens"),
        text=_decode(path, tokens, characters),
    )


def unescape(text: str) -> str:
    r"""Undo JSON escaping; an escape that truncation has cut at the end is dropped.

    >>> unescape('caf\\u00e9\\n\\u00')
    'café\n'
    """
    whole = re.sub(r"(?<!\\)((?:\\\\)*)\\(u[0-9a-fA-F]{0,3})?$", r"\1", text)
    unescaped = str(json.loads(f'"{whole}"', strict=False))
    # A pair of surrogates that is cut in the middle leaves its first half, which is no character.
    return re.sub("[\ud800-\udfff]", "\ufffd", re.sub("[\ud800-\udbff]$", "", unescaped))


def _lost_metadata(path: Path) -> Iterator[str]:
    """Find what has chunks and no metadata, and what was written here and has lost its description."""
    for folder in sorted(entry for entry in path.glob("*") if entry.is_dir() and entry.name not in _arrays(path)):
        if any(_chunk_files(folder)) and folder.name != "rows":
            yield f"{folder.name} has chunks and no .zarray or zarr.json: it cannot be opened"
    if (path / "rows").is_dir() or (path / TOKENIZER).exists():
        yield f"{DESCRIPTION} is missing: without it no checksum can be compared"


def _arrays(path: Path) -> list[str]:
    """Name the folders that hold an array."""
    return sorted(
        entry.name for entry in path.glob("*") if (entry / ".zarray").exists() or (entry / "zarr.json").exists()
    )


def _row(array: SplitArray, row: int) -> Any:
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
            array = open_split(path, split)
        except FormatError as broken:
            yield f"{split} cannot be opened: {broken}"
            continue
        if list(array.shape) != shape:
            yield f"{split} has shape {tuple(array.shape)}, expected {tuple(shape)}"
        if described.get("loss_mask"):
            yield from _wrong_loss_mask(path, array, described)


def _wrong_loss_mask(path: Path, tokens: SplitArray, described: dict[str, Any]) -> Iterator[str]:
    name = f"{tokens.name}{LOSS_MASK_SUFFIX}"
    extra = {file.relative_to(path).as_posix() for file in _chunk_files(path / name)} - described["files"].keys()
    yield from (f"{each} is not part of this rectangle" for each in sorted(extra))
    try:
        open_loss_mask(tokens)
    except FormatError as broken:
        yield f"{name} cannot be opened: {broken}"


def _bad_chunks(path: Path, folder: str) -> Iterator[str]:
    try:
        split = folder.removesuffix(".zarr").removesuffix(LOSS_MASK_SUFFIX)
        array = open_split(path, split)
        array = open_loss_mask(array) if folder.endswith(LOSS_MASK_SUFFIX) else array
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
    """Spell a compressor of Zarr v3 or v2 in a few words."""
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


def _decode(path: Path, tokens: Any, characters: int) -> str | None:
    if not (path / TOKENIZER).exists():
        return None
    from longcrawl.tokens.encoders import load_encoder

    # A token is at least a character in nearly all text, so this many tokens are enough.
    text = load_encoder(str(path / TOKENIZER)).decode(tokens[:characters])
    if (path / DESCRIPTION).exists() and read_description(path)["json_escaped"]:
        try:
            text = unescape(text)
        except ValueError as broken:
            raise CorruptionError(
                f"a row of {path} is not JSON-escaped from its start, so its rows table is not its own: {broken}; "
                f"type longcrawl verify {path}"
            ) from broken
    return text[:characters]
