"""The two engines that decode one chunk: bytes straight from files, or zarr-python for everything else.

Neither holds a lock, so both survive a fork in the middle of a read by another thread.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from struct import Struct
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, NotYetError, SourceError, reason_of
from longcrawl.formats.rectangle._layout import MOST_CHUNK_BYTES, ArrayLayout
from longcrawl.storage.file_systems import exists, fetch, file_system_of, open_ranges
from longcrawl.storage.listing import list_files
from longcrawl.storage.network import ask, verdict_of
from longcrawl.urls import is_url

Tokens = npt.NDArray[np.unsignedinteger[Any]]

OnMissingChunks = Literal["error", "skip", "fill"]
"""What a chunk or shard file that is not there does: stop; take the complete bands alone; or read as the fill value."""

JOINED_GAP = 1 << 18
"""Bytes between two chunks of a remote file up to which one request fetches both."""
JOINED_BYTES = 1 << 25
"""What one request fetches at most, unless one chunk has more."""

OPEN_SHARDS = 64
ABSENT = 2**64 - 1
BLOSC_HEADER = 16
HEADER_SIZES = Struct("<4xI4xI")
"""Bytes when decoded, and bytes as stored."""
CHECKSUM_BYTES = 4


class Folder:
    """The folder that a rectangle lies in, local or behind a URL of fsspec."""

    def __init__(self, root: str) -> None:
        local = unquote(urlsplit(root).path) if root.startswith("file://") else root
        self.root = local.rstrip("/") or "/"

    def read(self, name: str) -> bytes | None:
        try:
            return fetch(f"{self.root}/{name}") if is_url(self.root) else Path(self.root, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, name: str) -> bool:
        return exists(f"{self.root}/{name}") if is_url(self.root) else Path(self.root, name).is_file()

    def names(self) -> list[str] | None:
        """List what is in the folder; None if there is none, or it cannot be listed."""
        if not is_url(self.root):
            return sorted(entry.name for entry in Path(self.root).iterdir()) if Path(self.root).is_dir() else None
        files, path = file_system_of(self.root)
        try:
            listed = ask(self.root, partial(files.ls, path, detail=False))
        except (FileNotFoundError, NotYetError):
            return None
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in listed)

    def files(self, name: str) -> set[str]:
        """List the files of an array, relative to its folder.

        Raises:
            FormatError: the store cannot be listed.
        """
        where = f"{self.root}/{name}"
        if not is_url(self.root):
            return set(list_files(Path(where)))
        files, path = file_system_of(where)
        try:
            listed: Iterable[str] = ask(where, partial(files.find, path))
        except (FileNotFoundError, NotYetError) as unlisted:
            raise FormatError(f"{where} cannot be listed, to see what is there: copy it here first") from unlisted

        return {file.removeprefix(path).lstrip("/") for file in listed}


class ChunkReader(Protocol):
    """Decodes chunks of one array."""

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Return one chunk, clipped to the array's shape."""

    def read_file(self, places: Sequence[tuple[int, int]]) -> list[Tokens]:
        """Return chunks of one file."""


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies, and what is known of its files beside their metadata.

    Attributes:
        root: the folder or URL of the rectangle.
        name: of the array in it.
        layout: shape, chunks and codecs.
        file_checksums: SHA-256 of the array's files by their names in ``root``; of those of unsharded chunks alone,
            which are read whole.
    """

    root: str
    name: str
    layout: ArrayLayout
    file_checksums: Mapping[str, str]

    def corrupt(self, place: tuple[int, int], why: str) -> CorruptionError:
        """Return the error for a chunk that is not as it was written."""
        rows = self.layout.clip(*place)[0]
        return CorruptionError(
            f"{self.root}/{self.name}/{self.layout.file_name(*place)}: chunk {place}, rows {rows.start:,} to "
            f"{rows.stop - 1:,}, is corrupt ({why}): copy this file again; longcrawl verify {self.root} lists all"
        )

    def check_file(self, place: tuple[int, int], content: bytes) -> None:
        """Raise CorruptionError if a chunk that is a file of its own differs from its recorded checksum."""
        expected = self.file_checksums.get(f"{self.name}/{self.layout.file_name(*place)}")
        if expected is not None and hashlib.sha256(content).hexdigest() != expected:
            raise self.corrupt(place, "it differs from its SHA-256")


class DirectReader:
    """Reads blosc chunks, sharded or not, with no Zarr code on the way; of a remote file the bytes of a chunk alone."""

    def __init__(self, array: StoredArray, on_missing_chunks: OnMissingChunks) -> None:
        import numcodecs.blosc

        # Blosc's thread pool is one per process behind one lock, and dies in a fork; zarr also switches it off.
        numcodecs.blosc.use_threads = False
        self._decompress: Callable[[npt.NDArray[np.uint8], Tokens], Any] = numcodecs.blosc.decompress
        self._array, self._layout, self._on_missing_chunks = array, array.layout, on_missing_chunks
        self._folder = f"{array.root}/{array.name}"
        self._open_shard = lru_cache(maxsize=OPEN_SHARDS)(partial(_Shard, array.layout))
        self._checked = set[tuple[int, int]]()

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Return one chunk, clipped to the array's shape."""
        layout = self._layout
        path = f"{self._folder}/{layout.file_name(row_chunk, column_chunk)}"
        try:
            packed = (
                self._whole(path, (row_chunk, column_chunk))
                if layout.index_at == "none"
                else self._open_shard(path).read(row_chunk, column_chunk)
            )
        except FileNotFoundError as missing:
            if self._on_missing_chunks == "error":
                raise missing_chunk(path, row_chunk, column_chunk) from missing
            packed = None
        return self._clipped(packed, row_chunk, column_chunk)

    def read_file(self, places: Sequence[tuple[int, int]]) -> list[Tokens]:
        """Return chunks of one file; those that lie side by side in a remote one are fetched together."""
        layout = self._layout
        path = f"{self._folder}/{layout.file_name(*places[0])}"
        if layout.index_at == "none" or len(places) == 1 or not is_url(path):
            return [self.read(*place) for place in places]
        try:
            packed = self._open_shard(path).read_joined(places)
        except FileNotFoundError as missing:
            if self._on_missing_chunks == "error":
                raise missing_chunk(path, *places[0]) from missing
            packed = [None] * len(places)
        return [self._clipped(each, *place) for each, place in zip(packed, places, strict=True)]

    def decode(self, packed: bytes, place: tuple[int, int]) -> Tokens:
        """Return the chunk that these stored bytes are, clipped to the array's shape."""
        return self._clipped(packed, *place)

    def _clipped(self, packed: bytes | None, row_chunk: int, column_chunk: int) -> Tokens:
        layout = self._layout
        # Of a small chunk, slices and paths would take as long as decoding does.
        height = min(layout.chunks[0], layout.shape[0] - row_chunk * layout.chunks[0])
        width = min(layout.chunks[1], layout.shape[1] - column_chunk * layout.chunks[1])
        if packed is None:
            return np.full((height, width), layout.fill_value, layout.dtype)
        return self._decode(packed, (row_chunk, column_chunk))[:height, :width]

    def _whole(self, path: str, place: tuple[int, int]) -> bytes:
        if is_url(path):
            content = fetch(path)
        else:
            file = open_ranges(path)
            content = file.read(0, file.size)
        if place not in self._checked:
            self._array.check_file(place, content)
            self._checked.add(place)
        return content

    def _decode(self, packed: bytes, place: tuple[int, int]) -> Tokens:
        stored = np.frombuffer(packed, np.uint8)
        if self._layout.checksum == "crc32c":
            if len(stored) < CHECKSUM_BYTES or not _matches(stored):
                raise self._array.corrupt(place, "it differs from its crc32c")
            stored = stored[:-CHECKSUM_BYTES]
        wrong = wrong_blosc_header(packed[:BLOSC_HEADER], len(stored), self._layout.chunk_bytes)
        if wrong:
            raise self._array.corrupt(place, wrong)
        chunk: Tokens = np.empty(self._layout.chunks, self._layout.dtype)
        try:
            self._decompress(stored, chunk)
        except (RuntimeError, ValueError) as failed:
            raise self._array.corrupt(place, f"it does not decode: {failed}") from failed
        return chunk


def wrong_blosc_header(
    header: bytes, stored_bytes: int, decoded_bytes: int | None, most: int = MOST_CHUNK_BYTES
) -> str | None:
    """Return what is wrong with the sizes in a blosc header, which blosc trusts: it would read past a cut chunk's end.

    Args:
        header: the first 16 bytes of a chunk.
        stored_bytes: how many there are of it.
        decoded_bytes: how many it must decode to; None where a limit is all that is known.
        most: that limit.
    """
    decoded, stored = HEADER_SIZES.unpack_from(header) if len(header) >= BLOSC_HEADER else (0, 0)
    if stored == stored_bytes and (decoded == decoded_bytes or (decoded_bytes is None and decoded <= most)):
        return None
    wanted = f" instead of {decoded_bytes:,}" if decoded_bytes is not None else ""
    return f"{stored_bytes:,} bytes of which its header says {stored:,}, decoding to {decoded:,}{wanted}"


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
        stored = np.frombuffer(self._file.read(start, index_bytes), np.uint8)
        if len(stored) != index_bytes or not _matches(stored):
            raise CorruptionError(
                f"{path} is corrupt: its shard index does not match its checksum; fetch this file again"
            )
        self._index = stored[:-CHECKSUM_BYTES].view("<u8").reshape(*self._per_file, 2)

    def read(self, row_chunk: int, column_chunk: int) -> bytes | None:
        """Return the stored bytes of a chunk, or None where the index says that it is all fill value."""
        place = self._place(row_chunk, column_chunk)
        return None if place is None else self._file.read(*place)

    def read_joined(self, chunks: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return the stored bytes of several chunks, neighbours by one request."""
        places = [self._place(*chunk) for chunk in chunks]
        found: list[bytes | None] = [None] * len(chunks)
        waiting: list[tuple[int, int, int]] = []

        def read() -> None:
            first = waiting[0][0]
            content = self._file.read(first, max(offset + length for offset, length, _ in waiting) - first)
            for offset, length, number in waiting:
                found[number] = content[offset - first : offset - first + length]
            waiting.clear()

        for offset, length, number in sorted((*place, number) for number, place in enumerate(places) if place):
            if waiting:
                end = waiting[-1][0] + waiting[-1][1]
                if offset - end > JOINED_GAP or offset + length - waiting[0][0] > JOINED_BYTES:
                    read()
            waiting.append((offset, length, number))
        if waiting:
            read()
        return found

    def _place(self, row_chunk: int, column_chunk: int) -> tuple[int, int] | None:
        """Return the first byte of a chunk and how many it has; None where it is all fill value."""
        row, column = row_chunk % self._per_file[0], column_chunk % self._per_file[1]
        offset, length = self._index.item(row, column, 0), self._index.item(row, column, 1)
        if offset == ABSENT and length == ABSENT:
            return None
        if offset + length > self._file.size:
            raise CorruptionError(
                f"{self._path} is cut: chunk ({row_chunk}, {column_chunk}) would end at byte {offset + length} of "
                f"{self._file.size}; fetch it again"
            )
        return offset, length


def _matches(stored: npt.NDArray[np.uint8]) -> bool:
    """Compare bytes with the crc32c behind them."""
    import google_crc32c

    checksum: int = google_crc32c.value(stored[:-CHECKSUM_BYTES])
    return checksum.to_bytes(CHECKSUM_BYTES, "little") == stored[-CHECKSUM_BYTES:].tobytes()


class ZarrReader:
    """Reads chunks of any codec from any store through zarr-python."""

    def __init__(self, array: StoredArray, folder: Folder, on_missing_chunks: OnMissingChunks) -> None:
        self._stored, self._layout = array, array.layout
        self._folder, self._on_missing_chunks = folder, on_missing_chunks
        self._checked: set[str] = set()
        self._array: Any = None
        self._process = -1

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Return one chunk, clipped to the array's shape."""
        place = (row_chunk, column_chunk)
        file = self._layout.file_name(*place)
        if file not in self._checked:
            self._check_file(f"{self._stored.name}/{file}", place)
            self._checked.add(file)
        if is_url(self._stored.root):
            return self._asked(f"{self._stored.root}/{self._stored.name}/{file}", place)
        try:
            return self._decoded(place)
        except OSError as failed:
            raise SourceError(
                f"{self._stored.root}/{self._stored.name}/{file} cannot be read ({reason_of(failed)}): check the disk "
                "and go on from the last state"
            ) from failed

    def read_file(self, places: Sequence[tuple[int, int]]) -> list[Tokens]:
        """Return chunks of one file, one after the other."""
        return [self.read(*place) for place in places]

    def _asked(self, url: str, place: tuple[int, int]) -> Tokens:
        try:
            return ask(url, partial(self._decoded, place))
        except FileNotFoundError as missing:
            raise missing_chunk(url, *place) from missing

    def _decoded(self, place: tuple[int, int]) -> Tokens:
        try:
            chunk: Tokens = self._open()[self._layout.clip(*place)]
        except Exception as failed:  # the errors of zarr, its codecs and its stores have no common root
            if verdict_of(failed).kind != "unknown":
                raise
            raise self._stored.corrupt(place, f"it does not decode: {reason_of(failed)}") from failed
        return chunk

    def _check_file(self, file: str, place: tuple[int, int]) -> None:
        """Look for a file, and where it is one chunk compare it with its checksum, before zarr reads it."""
        content = self._folder.read(file) if self._layout.index_at == "none" else None
        if content is None and not self._folder.exists(file):
            if self._on_missing_chunks == "error":
                raise missing_chunk(f"{self._stored.root}/{file}", *place)
            return
        if content is not None:
            self._stored.check_file(place, content)

    def _open(self) -> Any:
        # An array opened before a fork waits for an event loop whose thread the child does not have.
        if self._process != os.getpid():
            import zarr

            from longcrawl.formats.rectangle._codecs import checked_codecs

            with checked_codecs():
                array = zarr.open_array(self._stored.root, path=self._stored.name, mode="r")
            self._array, self._process = array, os.getpid()
        return self._array


def missing_chunk(file: str, row_chunk: int, column_chunk: int) -> CorruptionError:
    """Make the error for a file that is not there; plain Zarr would read it as fill value without a word."""
    return CorruptionError(
        f"{file} is missing, which holds chunk ({row_chunk}, {column_chunk}); fetch it, or take complete rows alone "
        "with on_missing_chunks='skip'"
    )
