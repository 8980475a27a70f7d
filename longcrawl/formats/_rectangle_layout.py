"""Where the chunks of a Zarr array lie, parsed from its ``.zarray`` (format 2) or ``zarr.json`` (format 3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from longcrawl.errors import FormatError

__all__ = ["ArrayLayout", "parse_layout"]

Pair = tuple[int, int]


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
    name_prefix: str
    name_separator: str
    index_at: Literal["none", "start", "end"]
    indirect: str | None

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

    def clip(self, row_chunk: int, column_chunk: int) -> tuple[slice, slice]:
        """Give the rows and columns of the array that a chunk covers."""
        top, left = row_chunk * self.chunks[0], column_chunk * self.chunks[1]
        return (
            slice(top, min(top + self.chunks[0], self.shape[0])),
            slice(left, min(left + self.chunks[1], self.shape[1])),
        )


def parse_layout(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    """Parse array metadata of either Zarr format.

    Raises:
        FormatError: not a two-dimensional array of uint16, uint32 or bool on a regular grid.

    """
    try:
        return _parse_v2(metadata, where) if metadata["zarr_format"] == 2 else _parse_v3(metadata, where)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as wrong:
        raise FormatError(f"{where}: the Zarr metadata of this array cannot be understood ({wrong!r})") from wrong


def _parse_v2(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    compressor = metadata["compressor"] or {}
    indirect = None
    if compressor.get("id") != "blosc" or metadata.get("filters"):
        indirect = f"compressor {compressor.get('id')!r} with filters {metadata.get('filters')!r}"
    elif metadata["order"] != "C" or metadata["dtype"].startswith(">"):
        indirect = f"order {metadata['order']!r} with dtype {metadata['dtype']!r}"
    chunks = _pair(metadata["chunks"], where)
    return ArrayLayout(
        shape=_pair(metadata["shape"], where),
        dtype=_dtype(metadata["dtype"], where),
        chunks=chunks,
        file_shape=chunks,
        fill_value=int(metadata["fill_value"] or 0),
        name_prefix="",
        name_separator=metadata.get("dimension_separator", "."),
        index_at="none",
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
    if [codec["name"] for codec in codecs] == ["sharding_indexed"]:
        sharding = codecs[0]["configuration"]
        chunks, codecs = _pair(sharding["chunk_shape"], where), sharding["codecs"]
        index_at = sharding.get("index_location", "end")
        if [codec["name"] for codec in sharding["index_codecs"]] != ["bytes", "crc32c"] or _big_endian(
            sharding["index_codecs"][0]
        ):
            indirect = "an unusual shard index"
    if [codec["name"] for codec in codecs] != ["bytes", "blosc"] or _big_endian(codecs[0]):
        indirect = f"codecs {[codec['name'] for codec in codecs]}"
    return ArrayLayout(
        shape=_pair(metadata["shape"], where),
        dtype=_dtype(metadata["data_type"], where),
        chunks=chunks,
        file_shape=file_shape,
        fill_value=int(metadata["fill_value"]),
        name_prefix="c" + separator if naming["name"] == "default" else "",
        name_separator=separator,
        index_at=index_at,
        indirect=indirect,
    )


def _big_endian(codec: Mapping[str, Any]) -> bool:
    return bool(codec.get("configuration", {}).get("endian", "little") != "little")


def _pair(numbers: Any, where: str) -> Pair:
    if len(numbers) != 2:
        raise FormatError(
            f"{where}: a rectangle is two-dimensional (documents, tokens), this array has shape {tuple(numbers)}"
        )
    return int(numbers[0]), int(numbers[1])


def _dtype(name: Any, where: str) -> "np.dtype[Any]":
    dtype: np.dtype[Any] = np.dtype(name)
    if dtype != np.bool_ and (dtype.kind != "u" or dtype.itemsize not in (2, 4)):
        raise FormatError(f"{where}: token ids are uint16 or uint32, this array has {dtype}")
    return dtype.newbyteorder("=")
