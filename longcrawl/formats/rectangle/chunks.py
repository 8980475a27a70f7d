"""Layout of the chunks of a Zarr array, and the reader of chunks straight from files.

It holds no lock, so it survives a fork in the middle of a read by another thread.

Metadata may be damaged or hostile: every number is compared with a limit before anything is allocated or listed by it.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from struct import Struct
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, NotYetError, unreadable
from longcrawl.io.file_systems import ask, exists, fetch, file_system_of, open_ranges
from longcrawl.io.files import list_files
from longcrawl.urls import is_url

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
        """Return the content of a file; None if it is missing."""
        try:
            return fetch(f"{self.root}/{name}") if is_url(self.root) else Path(self.root, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
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


def missing_chunk(file: str, row_chunk: int, column_chunk: int) -> CorruptionError:
    """Make the error for a file that is not there; plain Zarr would read it as fill value without a word."""
    return CorruptionError(
        f"{file} is missing, which holds chunk ({row_chunk}, {column_chunk}); fetch it, or take complete rows alone "
        "with on_missing_chunks='skip'"
    )
