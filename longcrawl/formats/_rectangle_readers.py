"""The two engines that decode one chunk: bytes straight from files, or zarr-python for everything else.

Neither holds a lock, so both survive a fork in the middle of a read by another thread.
"""

import os
import zlib
from collections.abc import Callable
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError
from longcrawl.formats._byte_ranges import open_ranges
from longcrawl.formats._rectangle_layout import ArrayLayout

__all__ = ["ChunkReader", "DirectReader", "OnMissingChunks", "Tokens", "ZarrReader"]

Tokens = npt.NDArray[np.unsignedinteger[Any]]

OnMissingChunks = Literal["error", "fill"]
"""What a chunk or shard file that is not there does: stop, or read as the fill value as plain Zarr does."""

OPEN_SHARDS = 64
ABSENT = 2**64 - 1
BLOSC_HEADER = 16
HEADER_SIZES = Struct("<4xI4xI")
"""Bytes when decoded, and bytes as stored."""
CHECKSUM_BYTES = 4


class ChunkReader(Protocol):
    """Decodes chunks of one array."""

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Give one chunk, clipped to the array's shape."""


class DirectReader:
    """Reads blosc chunks, sharded or not, with no Zarr code on the way; of a remote file the bytes of a chunk alone."""

    def __init__(self, folder: str, layout: ArrayLayout, on_missing_chunks: OnMissingChunks) -> None:
        import numcodecs.blosc

        # Blosc's thread pool is one per process behind one lock, and dies in a fork; zarr also switches it off.
        numcodecs.blosc.use_threads = False
        self._decompress: Callable[[bytes, Tokens], Any] = numcodecs.blosc.decompress
        self._folder, self._layout, self._on_missing_chunks = folder, layout, on_missing_chunks
        self._open_shard = lru_cache(maxsize=OPEN_SHARDS)(partial(_Shard, layout))

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Give one chunk, clipped to the array's shape."""
        layout = self._layout
        path = f"{self._folder}/{layout.file_name(row_chunk, column_chunk)}"
        try:
            packed = _whole(path) if layout.index_at == "none" else self._open_shard(path).read(row_chunk, column_chunk)
        except FileNotFoundError as missing:
            if self._on_missing_chunks == "error":
                raise missing_chunk(path, row_chunk, column_chunk) from missing
            packed = None
        # Of a small chunk, slices and paths would take as long as decoding does.
        height = min(layout.chunks[0], layout.shape[0] - row_chunk * layout.chunks[0])
        width = min(layout.chunks[1], layout.shape[1] - column_chunk * layout.chunks[1])
        if packed is None:
            return np.full((height, width), layout.fill_value, layout.dtype)
        return self._decode(packed, path, (row_chunk, column_chunk))[:height, :width]

    def _decode(self, packed: bytes, path: str, place: tuple[int, int]) -> Tokens:
        # Blosc trusts the sizes in its header, so a cut chunk would be read past its end.
        decoded, stored = HEADER_SIZES.unpack_from(packed) if len(packed) >= BLOSC_HEADER else (0, 0)
        if decoded != self._layout.chunk_bytes or stored != len(packed):
            raise CorruptionError(
                f"{path}: chunk {place} is corrupt: {len(packed)} bytes of which the header says {stored}, decoding to "
                f"{decoded} instead of {self._layout.chunk_bytes}; fetch this file again"
            )
        chunk: Tokens = np.empty(self._layout.chunks, self._layout.dtype)
        try:
            self._decompress(packed, chunk)
        except (RuntimeError, ValueError) as wrong:
            raise CorruptionError(f"{path}: chunk {place} is corrupt ({wrong}); fetch this file again") from wrong
        return chunk


class _Shard:
    """One open shard file and its index: (offset, bytes) per chunk, checked against its checksum once."""

    def __init__(self, layout: ArrayLayout, path: str) -> None:
        self._path, self._per_file = path, layout.chunks_per_file
        self._file = open_ranges(path)
        entries = self._per_file[0] * self._per_file[1]
        index_bytes = 16 * entries + CHECKSUM_BYTES
        if self._file.size < index_bytes:
            raise CorruptionError(
                f"{path} is cut: it has {self._file.size} bytes, its index alone {index_bytes}; fetch it again"
            )
        start = 0 if layout.index_at == "start" else self._file.size - index_bytes
        stored = _without_checksum(self._file.read(start, index_bytes), path)
        self._index = np.frombuffer(stored, "<u8").reshape(*self._per_file, 2)

    def read(self, row_chunk: int, column_chunk: int) -> bytes | None:
        """Give the stored bytes of a chunk, or None where the index says that it is all fill value."""
        row, column = row_chunk % self._per_file[0], column_chunk % self._per_file[1]
        offset, length = self._index.item(row, column, 0), self._index.item(row, column, 1)
        if offset == ABSENT and length == ABSENT:
            return None
        if offset + length > self._file.size:
            raise CorruptionError(
                f"{self._path} is cut: chunk ({row_chunk}, {column_chunk}) would end at byte {offset + length} of "
                f"{self._file.size}; fetch it again"
            )
        return self._file.read(offset, length)


def _whole(path: str) -> bytes:
    file = open_ranges(path)
    return file.read(0, file.size)


def _without_checksum(stored: bytes, path: str) -> bytes:
    import google_crc32c

    index, checksum = stored[:-CHECKSUM_BYTES], stored[-CHECKSUM_BYTES:]
    if google_crc32c.value(index) != int.from_bytes(checksum, "little"):
        raise CorruptionError(f"{path} is corrupt: its shard index does not match its checksum; fetch this file again")
    return index


class ZarrReader:
    """Reads chunks of any codec from any store through zarr-python."""

    def __init__(
        self,
        root: str,
        name: str,
        layout: ArrayLayout,
        exists: Callable[[str], bool],
        on_missing_chunks: OnMissingChunks,
    ) -> None:
        self._root, self._name, self._layout = root, name, layout
        self._exists, self._on_missing_chunks = exists, on_missing_chunks
        self._seen: set[str] = set()
        self._array: Any = None
        self._process = -1

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Give one chunk, clipped to the array's shape."""
        file = self._layout.file_name(row_chunk, column_chunk)
        if self._on_missing_chunks == "error" and file not in self._seen:
            if not self._exists(f"{self._name}/{file}"):
                raise missing_chunk(f"{self._root}/{self._name}/{file}", row_chunk, column_chunk)
            self._seen.add(file)
        try:
            chunk: Tokens = self._open()[self._layout.clip(row_chunk, column_chunk)]
        except (RuntimeError, ValueError, EOFError, zlib.error) as wrong:
            raise CorruptionError(
                f"{self._root}/{self._name}/{file}: chunk ({row_chunk}, {column_chunk}) is corrupt ({wrong}); "
                "fetch this file again"
            ) from wrong
        return chunk

    def _open(self) -> Any:
        # An array opened before a fork waits for an event loop whose thread the child does not have.
        if self._process != os.getpid():
            import zarr

            self._array, self._process = zarr.open_array(self._root, path=self._name, mode="r"), os.getpid()
        return self._array


def missing_chunk(file: str, row_chunk: int, column_chunk: int) -> CorruptionError:
    """Make the error for a file that is not there; plain Zarr would read it as fill value without a word."""
    return CorruptionError(
        f"{file} is missing, which holds chunk ({row_chunk}, {column_chunk}); fetch it, or read it as fill value with "
        "on_missing_chunks='fill'"
    )
