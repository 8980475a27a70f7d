"""Where the chunks of a Zarr array lie, parsed from its ``.zarray`` (format 2) or ``zarr.json`` (format 3); its bands.

Metadata may be damaged or hostile: every number is compared with a limit before anything is allocated or listed by it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from longcrawl.errors import FormatError, unreadable

Pair = tuple[int, int]

MOST_ROWS = MOST_COLUMNS = 2**31
MOST_TOKENS = 2**48
MOST_FILES = 2**24
MOST_CHUNK_BYTES = 2**29
"""Of one decoded chunk: a whole strip of the original, 2,048 x 65,536 tokens of uint32, has as many."""
MOST_CHUNKS_OF_FILE = 2**18
"""Chunks of a shard; its index then has 4 MiB."""

CODECS = (
    "blosc", "zstd", "gzip", "lz4", "zlib", "bz2", "lzma", "pcodec", "bytes", "transpose", "delta", "shuffle",
    "crc32", "crc32c", "adler32", "fletcher32", "sharding_indexed",
)  # fmt: skip
"""Codecs that zarr-python may be given. Others may run what a store holds, as "pickle" does."""
DEEPEST = 4
"""Codecs within codecs: a shard of shards is three levels deep."""


@dataclass(frozen=True)
class ArrayLayout:
    """The grid, names and codecs of a two-dimensional array of tokens, or of their loss mask.

    ``file_shape`` is what one file holds (a shard, or a chunk where there are no shards), ``chunks`` what is decoded
    at once. ``indirect`` is None where the direct engine can read the array, and otherwise names what it cannot read.
    """

    shape: Pair
    dtype: "np.dtype[Any]"
    chunks: Pair
    file_shape: Pair
    fill_value: int
    name_separator: str
    indirect: str | None
    name_prefix: str = ""
    index_at: Literal["none", "start", "end"] = "none"
    checksum: Literal["crc32c", "none"] = "none"
    """What is behind the stored bytes of each chunk."""

    @property
    def chunk_grid(self) -> Pair:
        """How many chunks cover the rows and the columns of the array."""
        return -(-self.shape[0] // self.chunks[0]), -(-self.shape[1] // self.chunks[1])

    @property
    def chunks_per_file(self) -> Pair:
        """How many chunks one file holds along rows and columns."""
        return self.file_shape[0] // self.chunks[0], self.file_shape[1] // self.chunks[1]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return self.chunks[0] * self.chunks[1] * self.dtype.itemsize

    def file_name(self, row_chunk: int, column_chunk: int) -> str:
        """Name the file, relative to the array's folder, that holds a chunk."""
        rows, columns = self.chunks_per_file
        return f"{self.name_prefix}{row_chunk // rows}{self.name_separator}{column_chunk // columns}"

    def chunk_of_file(self, name: str) -> Pair | None:
        """Return the first chunk that a file holds, by its name; None where no file of this array has that name."""
        numbers = name.removeprefix(self.name_prefix).split(self.name_separator)
        if len(numbers) != 2 or not all(re.fullmatch(r"0|[1-9][0-9]{0,9}", number) for number in numbers):
            return None
        place = tuple(int(number) * many for number, many in zip(numbers, self.chunks_per_file, strict=True))
        inside = place[0] < self.chunk_grid[0] and place[1] < self.chunk_grid[1]
        return (place[0], place[1]) if inside and self.file_name(*place) == name else None

    @property
    def files(self) -> int:
        """How many files hold all chunks."""
        return math.prod(-(-size // part) for size, part in zip(self.shape, self.file_shape, strict=True))

    def clip(self, row_chunk: int, column_chunk: int) -> tuple[slice, slice]:
        """Return the rows and columns of the array that a chunk covers."""
        top, left = row_chunk * self.chunks[0], column_chunk * self.chunks[1]
        return (
            slice(top, min(top + self.chunks[0], self.shape[0])),
            slice(left, min(left + self.chunks[1], self.shape[1])),
        )


def parse_layout(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    """Parse array metadata of either Zarr format; raise FormatError for what is not a grid of tokens or flags."""
    with unreadable(f"the Zarr metadata of {where}", FormatError, "copy it again from where the array was made"):
        layout = _parse_v2(metadata, where) if metadata["zarr_format"] == 2 else _parse_v3(metadata, where)
    _check_limits(layout, where)
    return layout


def _parse_v2(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    compressor, filters = metadata["compressor"] or {}, metadata.get("filters") or []
    for codec in (*filters, *([compressor] if compressor else [])):
        _check_codec(codec["id"], where)
    indirect = None
    if compressor.get("id") != "blosc" or filters:
        indirect = f"compressor {compressor.get('id')!r} with filters {metadata.get('filters')!r}"
    elif metadata["order"] != "C" or metadata["dtype"].startswith(">"):
        indirect = f"order {metadata['order']!r} with dtype {metadata['dtype']!r}"
    chunks = _pair(metadata["chunks"], where)
    dtype = _dtype(metadata["dtype"], where)
    return ArrayLayout(
        shape=_pair(metadata["shape"], where),
        dtype=dtype,
        chunks=chunks,
        file_shape=chunks,
        fill_value=_fill_value(metadata["fill_value"] or 0, dtype, where),
        name_separator=_separator(metadata.get("dimension_separator", "."), where),
        indirect=indirect,
    )


def _parse_v3(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    grid, naming, codecs = metadata["chunk_grid"], metadata["chunk_key_encoding"], metadata["codecs"]
    if grid["name"] != "regular":
        raise FormatError(f"{where}: a chunk grid {grid['name']!r} cannot be read, only 'regular'")
    if naming["name"] not in ("default", "v2"):
        raise FormatError(f"{where}: chunk names {naming['name']!r} are unknown, only 'default' and 'v2' can be read")
    separator = naming.get("configuration", {}).get("separator", "/" if naming["name"] == "default" else ".")
    file_shape = chunks = _pair(grid["configuration"]["chunk_shape"], where)
    indirect = "storage transformers" if metadata.get("storage_transformers") else None
    index_at: Literal["none", "start", "end"] = "none"
    _check_codecs(codecs, where)
    if [codec["name"] for codec in codecs] == ["sharding_indexed"]:
        sharding = codecs[0]["configuration"]
        chunks, codecs = _pair(sharding["chunk_shape"], where), sharding["codecs"]
        index_at = sharding.get("index_location", "end")
        if index_at not in ("start", "end"):
            raise FormatError(
                f"{where}: a shard index lies at the start or end, not {index_at!r}; copy zarr.json again"
            )
        if [codec["name"] for codec in sharding["index_codecs"]] != ["bytes", "crc32c"] or _big_endian(
            sharding["index_codecs"][0]
        ):
            indirect = "an unusual shard index"
    names = [codec["name"] for codec in codecs]
    if names not in (["bytes", "blosc"], ["bytes", "blosc", "crc32c"]) or _big_endian(codecs[0]):
        indirect = f"codecs {names}"
    dtype = _dtype(metadata["data_type"], where)
    return ArrayLayout(
        shape=_pair(metadata["shape"], where),
        dtype=dtype,
        chunks=chunks,
        file_shape=file_shape,
        fill_value=_fill_value(metadata["fill_value"], dtype, where),
        name_prefix="c" + _separator(separator, where) if naming["name"] == "default" else "",
        name_separator=_separator(separator, where),
        index_at=index_at,
        indirect=indirect,
        checksum="crc32c" if names[-1:] == ["crc32c"] else "none",
    )


def _check_limits(layout: ArrayLayout, where: str) -> None:
    shape, chunks, file_shape = layout.shape, layout.chunks, layout.file_shape
    if min(shape) < 0 or shape[1] < 1 or min(*chunks, *file_shape) < 1:
        raise _wrong(where, f"has shape {shape} in chunks of {chunks} and files of {file_shape}, some not positive")
    if any(size % part for size, part in zip(file_shape, chunks, strict=True)):
        raise _wrong(where, f"has shards of {file_shape} that are not whole chunks of {chunks}")
    if shape[0] > MOST_ROWS or shape[1] > MOST_COLUMNS or shape[0] * shape[1] > MOST_TOKENS:
        raise _wrong(where, f"claims {shape[0]:,} x {shape[1]:,} tokens, more than can be read")
    if layout.chunk_bytes > MOST_CHUNK_BYTES:
        raise _wrong(where, f"has chunks of {layout.chunk_bytes:,} bytes, {MOST_CHUNK_BYTES:,} can be decoded at once")
    if math.prod(layout.chunks_per_file) > MOST_CHUNKS_OF_FILE:
        raise _wrong(
            where, f"has {math.prod(layout.chunks_per_file):,} chunks in a shard, the most are {MOST_CHUNKS_OF_FILE:,}"
        )
    if layout.files > MOST_FILES:
        raise _wrong(where, f"claims {layout.files:,} files of chunks, more than the {MOST_FILES:,} that can be read")


def _wrong(where: str, what: str) -> FormatError:
    return FormatError(f"the Zarr metadata of {where} {what}; copy it again from where the array was made")


def _check_codecs(codecs: Any, where: str, depth: int = 0) -> None:
    """Check names and numbers of all codecs, those in shards included."""
    if depth > DEEPEST:
        raise _wrong(where, "has shards in shards in shards")
    for codec in codecs:
        _check_codec(codec["name"], where)
        if codec["name"] == "sharding_indexed":
            sharding = codec["configuration"]
            if min(_pair(sharding["chunk_shape"], where)) < 1:
                raise _wrong(where, f"has chunks of {sharding['chunk_shape']} in a shard")
            _check_codecs(sharding["codecs"], where, depth + 1)
            _check_codecs(sharding["index_codecs"], where, depth + 1)


def _check_codec(name: Any, where: str) -> None:
    if not isinstance(name, str) or name.removeprefix("numcodecs.") not in CODECS:
        raise FormatError(
            f"{where} is stored by the codec {name!r}, which is not read; use one of: {', '.join(CODECS)}"
        )


def _big_endian(codec: Mapping[str, Any]) -> bool:
    return bool(codec.get("configuration", {}).get("endian", "little") != "little")


def _pair(numbers: Any, where: str) -> Pair:
    if len(numbers) != 2:
        raise FormatError(
            f"{where}: a rectangle is two-dimensional (documents, tokens), this array has shape {tuple(numbers)}"
        )
    if not all(type(number) is int for number in numbers):
        raise _wrong(where, f"has {numbers!r} where two whole numbers are due")
    return numbers[0], numbers[1]


def _separator(name: Any, where: str) -> str:
    if name not in ("/", "."):
        raise _wrong(where, f"separates the names of chunks by {name!r}, not by '/' or '.'")
    return str(name)


def _fill_value(value: Any, dtype: "np.dtype[Any]", where: str) -> int:
    most = 1 if dtype == np.bool_ else np.iinfo(dtype).max
    if not isinstance(value, int) or not 0 <= value <= most:
        raise _wrong(where, f"has the fill value {value!r}, which {dtype} cannot hold")
    return int(value)


def _dtype(name: Any, where: str) -> "np.dtype[Any]":
    dtype: np.dtype[Any] = np.dtype(name)
    if dtype != np.bool_ and (dtype.kind != "u" or dtype.itemsize not in (2, 4)):
        raise FormatError(f"{where}: token ids are uint16 or uint32, this array has {dtype}")
    return dtype.newbyteorder("=")


@dataclass(frozen=True)
class Band:
    """The rows of one row of files.

    Attributes:
        number: of the row of files, counted from 0.
        rows: as they are delivered.
        stored: the same rows as the array counts them.
    """

    number: int
    rows: range
    stored: range


def whole_bands(layout: ArrayLayout, files: Iterable[str], columns: int | None = None) -> tuple[int, ...]:
    """Return the rows of files that are all there, or so many tokens of each row, by their numbers.

    Args:
        layout: of the array.
        files: names of those that are there; others are passed over.
        columns: of tokens, from the first on; None for all.
    """
    rows, tokens = layout.chunks_per_file[0], layout.shape[1] if columns is None else columns
    needed = -(-tokens // layout.file_shape[1])
    counts = Counter[int]()
    for corner in filter(None, map(layout.chunk_of_file, set(files))):
        if corner[1] // layout.chunks_per_file[1] < needed:
            counts[corner[0] // rows] += 1
    return tuple(sorted(band for band, count in counts.items() if count == needed))


def bands_of(layout: ArrayLayout, numbers: Iterable[int]) -> tuple[Band, ...]:
    """Return bands by their numbers, one after the other."""
    found, height, first = list[Band](), layout.file_shape[0], 0
    for number in numbers:
        stored = range(number * height, min((number + 1) * height, layout.shape[0]))
        found.append(Band(number, range(first, first + len(stored)), stored))
        first += len(stored)
    return tuple(found)


def dense_layout(layout: ArrayLayout, bands: tuple[Band, ...]) -> ArrayLayout:
    """Return the layout of an array that has these bands alone."""
    return replace(layout, shape=(bands[-1].rows.stop if bands else 0, layout.shape[1]))
