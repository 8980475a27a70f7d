"""Is a rectangle whole? What does it hold?

Ours has a checksum for every file, so one flipped bit is found. The original LongCrawl64 layout has none: there every
chunk must be present and decode; a chunk that is absent would otherwise be read as zeros, "!" in GPT-2's vocabulary,
silently.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.errors import FormatError
from longcrawl.files import checksum
from longcrawl.formats.rectangle import DESCRIPTION, TOKENIZER, read_description

__all__ = ["Inspection", "Verification", "inspect_rectangle", "verify_files", "verify_rectangle"]


@dataclass(frozen=True)
class Verification:
    """What a verification found; ``problems`` is empty when all is well."""

    path: str
    checked: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        if not self.problems:
            return f"{self.path}: whole; {self.checked}"
        return "\n".join(
            [f"{self.path}: {len(self.problems)} problem(s); {self.checked}", *(f"  {each}" for each in self.problems)]
        )


@dataclass(frozen=True)
class Inspection:
    """What one split of a rectangle holds, and one of its rows as text, rolled back."""

    path: str
    split: str
    shape: tuple[int, int]
    dtype: str
    chunks: str
    codec: str
    stored_bytes: int
    row: int
    row_id: str | None
    url: str | None
    roll: int | None
    n_tokens: int | None
    text: str | None

    @property
    def ratio(self) -> float:
        """How many times smaller than raw tokens the chunks are."""
        return float(np.prod(self.shape, dtype=np.float64)) * np.dtype(self.dtype).itemsize / max(self.stored_bytes, 1)

    def __str__(self) -> str:
        rows, length = self.shape
        lines = [
            f"{self.path}  split {self.split}: {rows:,} rows x {length:,} tokens, {self.dtype}",
            f"chunks {self.chunks}, {self.codec}",
            f"{self.stored_bytes:,} bytes stored, {self.ratio:.2f} times smaller than raw",
            f"row {self.row}: {self.row_id or 'of unknown origin'}  {self.url or ''}".rstrip(),
        ]
        if self.n_tokens is not None:
            lines.append(
                f"  {self.n_tokens:,} tokens before truncation, rolled by {self.roll or 0:,}; shown rolled back"
            )
        lines.append(
            self.text if self.text is not None else "  (no tokenizer.json beside the arrays: the row stays undecoded)"
        )
        return "\n".join(lines)


def verify_rectangle(path: Path) -> Verification:
    """Check a rectangle of ours by its checksums, or one in the original layout chunk by chunk.

    Raises:
        FormatError: there is no rectangle at ``path``.

    """
    if (path / DESCRIPTION).exists():
        described = read_description(path)
        problems = [*verify_files(path, described["files"]), *_wrong_shapes(path, described)]
        return Verification(str(path), f"{len(described['files'])} files compared with their SHA-256", tuple(problems))
    arrays = sorted(entry for entry in path.glob("*") if (entry / ".zarray").exists() or (entry / "zarr.json").exists())
    if not arrays:
        raise FormatError(f"{path} holds no rectangle: expected {DESCRIPTION}, or arrays such as train.zarr")
    problems = [problem for array in arrays for problem in _bad_chunks(array)]
    names = ", ".join(array.name for array in arrays)
    return Verification(str(path), f"no checksums here: every chunk of {names} looked for and decoded", tuple(problems))


def verify_files(folder: Path, files: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Compare files with the bytes and SHA-256 that a manifest gives; yields one sentence per problem."""
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            yield f"{name} is missing"
        elif file.stat().st_size != expected["bytes"]:
            yield f"{name} has {file.stat().st_size:,} bytes, expected {expected['bytes']:,}"
        elif checksum(file) != expected["sha256"]:
            yield f"{name} has been changed: its SHA-256 differs"


def inspect_rectangle(path: Path, split: str = "train", row: int = 0, characters: int = 600) -> Inspection:
    """Describe a split and decode the start of one row.

    Raises:
        FormatError: no such split or row.

    """
    import zarr

    folder = next((path / name for name in (split, f"{split}.zarr") if (path / name).is_dir()), None)
    if folder is None:
        there = sorted(entry.name for entry in path.glob("*") if entry.is_dir()) if path.is_dir() else []
        raise FormatError(f"{path} has no split {split!r}; there is: {', '.join(there) or 'nothing'}")
    array = zarr.open_array(str(folder), mode="r")
    if not 0 <= row < array.shape[0]:
        raise FormatError(f"{path} split {split!r} has rows 0 to {array.shape[0] - 1:,}, not {row}")
    origin = _origin(path, split, row)
    tokens = np.roll(np.asarray(array[row]), -(origin.get("roll") or 0))
    shard = f" in shards {array.shards}" if array.shards else ""
    return Inspection(
        path=str(path),
        split=split,
        shape=(array.shape[0], array.shape[1]),
        dtype=str(array.dtype),
        chunks=f"{array.chunks}{shard}",
        codec=", ".join(_codec(codec) for codec in array.compressors),
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
    return str(json.loads(f'"{whole}"', strict=False))


def _wrong_shapes(path: Path, described: dict[str, Any]) -> Iterator[str]:
    import zarr

    for split, shape in described["shapes"].items():
        if not (path / split).is_dir():
            yield f"split {split} is missing"
            continue
        array = zarr.open_array(str(path / split), mode="r")
        if list(array.shape) != shape:
            yield f"{split} has shape {tuple(array.shape)}, expected {tuple(shape)}"
        extra = {file.relative_to(path).as_posix() for file in _chunk_files(path / split)} - described["files"].keys()
        yield from (f"{name} is not part of this rectangle" for name in sorted(extra))


def _bad_chunks(folder: Path) -> Iterator[str]:
    import zarr

    array = zarr.open_array(str(folder), mode="r")
    grid = [range(-(-size // chunk)) for size, chunk in zip(array.shape, array.shards or array.chunks, strict=True)]
    expected = {array.metadata.encode_chunk_key(place): place for place in product(*grid)}
    present = {file.relative_to(folder).as_posix() for file in _chunk_files(folder)}
    for name in sorted(present - expected.keys()):
        yield f"{folder.name}/{name} lies outside the shape {tuple(array.shape)}: the shape is wrong"
    for name, place in expected.items():
        if name not in present:
            yield f"{folder.name}/{name} is missing and would be read as {array.fill_value}"
            continue
        try:
            array.blocks[place] if array.shards is None else array[_slices(array, place)]
        except (RuntimeError, ValueError) as broken:
            yield f"{folder.name}/{name} does not decode: {broken}"


def _codec(codec: Any) -> str:
    """Spell a compressor of Zarr v3 or v2 in a few words."""
    told = codec.to_dict().get("configuration", {}) if hasattr(codec, "to_dict") else codec.get_config()
    words = {name: getattr(value, "value", value) for name, value in told.items()}
    spelled: dict[Any, str] = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
    shuffle = spelled.get(words.get("shuffle"), words.get("shuffle"))
    return f"{type(codec).__name__} {words.get('cname', '')} level {words.get('clevel', words.get('level'))} {shuffle}"


def _slices(array: Any, place: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, array.shards, strict=True))


def _chunk_files(folder: Path) -> Iterator[Path]:
    return (
        file for file in folder.rglob("*") if file.is_file() and file.name not in ("zarr.json", ".zarray", ".zattrs")
    )


def _origin(path: Path, split: str, row: int) -> dict[str, Any]:
    rows = path / "rows" / f"{split}.parquet"
    if not rows.exists():
        return {}
    found = pq.read_table(rows, filters=pc.field("row") == row).to_pylist()
    return dict(found[0]) if found else {}


def _decode(path: Path, tokens: Any, characters: int) -> str | None:
    if not (path / TOKENIZER).exists():
        return None
    from longcrawl.tokens.encoders import load_encoder

    # A token is at least a character in nearly all text, so this many tokens are enough.
    text = load_encoder(str(path / TOKENIZER)).decode(tokens[:characters])
    if (path / DESCRIPTION).exists() and read_description(path)["json_escaped"]:
        text = unescape(text)
    return text[:characters]
