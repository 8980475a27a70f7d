"""The Zarr arrays of a rectangle: metadata, splits, chunks and codecs.

Specification
-------------
``NAME/`` is a Zarr group, whose folder docs/formats.md shows, with the arrays ``train`` and, if any rows are held out,
``heldout``: (rows, context_length), little-endian uint16 or uint32, fill value = the end-of-text token. Zarr v3 (the
default) has one shard per band of 2,048 rows with inner chunks of 64 x 2,048 tokens, each followed by its crc32c, Blosc
zstd level 3 *without* shuffle. On GPT-2 tokens of long documents that is 1.64 times smaller than raw, with shuffle
1.43, with bitshuffle 1.19 (benchmarks/codecs.py). ``zarr_format=2`` gives the chunks of the original LongCrawl64,
2,048 x 2,048, with the same codec: each chunk is a file, whose SHA-256 is in ``rectangle.json``.

``train_loss_mask`` and ``heldout_loss_mask``, only if the documents have a column ``loss_mask``, have the shape, chunks
and codec of the tokens, bool, fill value true; false at tokens without a loss. ``rectangle.json`` is written last, with
its own SHA-256 at its end: without it the rectangle is unfinished.

Reading
-------
Each split is in ``<folder>/<split>`` or, in the original LongCrawl64, ``<folder>/<split>.zarr``, local or behind a URL
of fsspec. Engine ``"direct"`` reads little-endian, row-major, blosc-compressed chunks, in shards or not, and fetches
only the bytes of requested chunks; ``"zarr"`` reads everything that zarr-python reads.

A missing file is a :class:`~longcrawl.errors.CorruptionError`; ``on_missing_chunks="skip"`` opens the bands of rows
whose files are all present (:attr:`SplitArray.bands`), and ``"fill"`` reads fill values, as plain Zarr does silently.
The crc32c of a chunk is compared whenever it is decoded, the SHA-256 of a file when it is first read. Metadata may be
hostile: every number is compared with a limit before anything is allocated by it. The reader holds no lock, so it
survives a fork in the middle of a read by another thread.
"""

import hashlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from pkgutil import resolve_name
from struct import Struct
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from longcrawl.core.outputs import RESULTS
from longcrawl.errors import CorruptionError, FormatError, NotYetError, unreadable
from longcrawl.io import structured
from longcrawl.io.file_systems import ask, exists, fetch, file_system_of, open_ranges
from longcrawl.io.files import list_files
from longcrawl.io.structured import load_json
from longcrawl.urls import is_url

Pair = tuple[int, int]
T = TypeVar("T")
MOST_ROWS = MOST_COLUMNS = 2**31
MOST_TOKENS = 2**48
MOST_FILES = 2**24
MOST_CHUNK_BYTES = 2**29
"""Most bytes of a decoded chunk, enough for a whole strip of the original: 2,048 x 65,536 tokens of uint32."""
MOST_CHUNKS_OF_FILE = 2**18
"""Most chunks in a shard; its index then has 4 MiB."""
CODECS = (
    "blosc", "zstd", "gzip", "lz4", "zlib", "bz2", "lzma", "pcodec", "bytes", "transpose", "delta", "shuffle",
    "crc32", "crc32c", "adler32", "fletcher32", "sharding_indexed",
)  # fmt: skip
"""Codecs that zarr-python may use. Others may run code from a store, as "pickle" does."""
DEEPEST = 4
"""Most levels of nested codecs; a shard of shards has three."""


@dataclass(frozen=True)
class ArrayLayout:
    """Grid, file names and codecs of a two-dimensional array of tokens, or of their loss mask.

    ``file_shape`` is that of one file (a shard or a chunk), ``chunks`` the shape that is decoded at once. ``indirect``
    names the feature that the direct engine cannot read, or is None.
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
    """Checksum after the stored bytes of each chunk."""
    compression: str = ""
    """The codecs that compress chunks and their settings, for a person."""

    @property
    def chunk_grid(self) -> Pair:
        """Numbers of chunks that cover the rows and the columns of the array."""
        return -(-self.shape[0] // self.chunks[0]), -(-self.shape[1] // self.chunks[1])

    @property
    def chunks_per_file(self) -> Pair:
        """Numbers of chunks in one file, along rows and columns."""
        return self.file_shape[0] // self.chunks[0], self.file_shape[1] // self.chunks[1]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return self.chunks[0] * self.chunks[1] * self.dtype.itemsize

    def file_name(self, row_chunk: int, column_chunk: int) -> str:
        """Return the path of the file with a chunk, relative to the array's folder."""
        rows, columns = self.chunks_per_file
        return f"{self.name_prefix}{row_chunk // rows}{self.name_separator}{column_chunk // columns}"

    def chunk_of_file(self, name: str) -> Pair | None:
        """Return the first chunk of the file with this name, or None if the array has no such file."""
        numbers = name.removeprefix(self.name_prefix).split(self.name_separator)
        if len(numbers) != 2 or not all(re.fullmatch(r"0|[1-9][0-9]{0,9}", number) for number in numbers):
            return None
        place = tuple(int(number) * many for number, many in zip(numbers, self.chunks_per_file, strict=True))
        inside = place[0] < self.chunk_grid[0] and place[1] < self.chunk_grid[1]
        return (place[0], place[1]) if inside and self.file_name(*place) == name else None

    @property
    def files(self) -> int:
        """Number of files that hold all chunks."""
        return math.prod(-(-size // part) for size, part in zip(self.shape, self.file_shape, strict=True))

    def clip(self, row_chunk: int, column_chunk: int) -> tuple[slice, slice]:
        """Return the slices of the array's rows and columns that a chunk covers."""
        top, left = row_chunk * self.chunks[0], column_chunk * self.chunks[1]
        return (
            slice(top, min(top + self.chunks[0], self.shape[0])),
            slice(left, min(left + self.chunks[1], self.shape[1])),
        )


def parse_layout(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    """Parse the array metadata of either Zarr format; raise FormatError unless it is of tokens or flags in 2-D."""
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
        compression=_compression(compressor["id"], compressor) if compressor else "",
    )


def _parse_v3(metadata: Mapping[str, Any], where: str) -> ArrayLayout:
    grid, naming, codecs = metadata["chunk_grid"], metadata["chunk_key_encoding"], metadata["codecs"]
    if grid["name"] != "regular":
        raise FormatError(f"{where}: a chunk grid {grid['name']!r} cannot be read; only 'regular' can")
    if naming["name"] not in ("default", "v2"):
        raise FormatError(f"{where}: chunk names {naming['name']!r} cannot be read; only 'default' and 'v2' can")
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
            raise FormatError(f"{where}: a shard index is at the start or end, not {index_at!r}; copy zarr.json again")
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
        compression=", ".join(
            _compression(codec["name"], codec.get("configuration") or {})
            for codec in codecs
            if codec["name"] not in ("bytes", "crc32c")
        ),
    )


_SHUFFLES: Mapping[Any, str] = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
"""Blosc's, by their numbers in Zarr v2."""


def _compression(name: str, settings: Mapping[str, Any]) -> str:
    """Return a codec and its settings in words, such as "blosc zstd level 3 noshuffle"."""
    level = settings.get("clevel", settings.get("level"))
    shuffle = settings.get("shuffle")
    words = [name, settings.get("cname"), None if level is None else f"level {level}", _SHUFFLES.get(shuffle, shuffle)]
    return " ".join(str(word) for word in words if word is not None)


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
    """Check names and numbers of all codecs, including those inside shards."""
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
            f"{where}: a rectangle is two-dimensional (documents, tokens), but this array has shape {tuple(numbers)}"
        )
    if not all(type(number) is int for number in numbers):
        raise _wrong(where, f"has {numbers!r} where two whole numbers are expected")
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
        raise FormatError(f"{where}: token ids must be uint16 or uint32, but this array has {dtype}")
    return dtype.newbyteorder("=")


@dataclass(frozen=True)
class Band:
    """Rows of an array that are stored in one row of files."""

    number: int
    """Index of the row of files, counted from 0."""
    rows: range
    """Row numbers as delivered to the reader."""
    stored: range
    """The same rows as numbered in the array."""


def whole_bands(layout: ArrayLayout, files: Iterable[str], columns: int | None = None) -> tuple[int, ...]:
    """Return the numbers of the bands whose files are all present, or those of the first ``columns`` of tokens."""
    rows, tokens = layout.chunks_per_file[0], layout.shape[1] if columns is None else columns
    needed = -(-tokens // layout.file_shape[1])
    counts = Counter[int]()
    for corner in filter(None, map(layout.chunk_of_file, set(files))):
        if corner[1] // layout.chunks_per_file[1] < needed:
            counts[corner[0] // rows] += 1
    return tuple(sorted(band for band, count in counts.items() if count == needed))


def bands_of(layout: ArrayLayout, numbers: Iterable[int]) -> tuple[Band, ...]:
    """Return bands by their numbers, delivered one after the other."""
    found, height, first = list[Band](), layout.file_shape[0], 0
    for number in numbers:
        stored = range(number * height, min((number + 1) * height, layout.shape[0]))
        found.append(Band(number, range(first, first + len(stored)), stored))
        first += len(stored)
    return tuple(found)


Tokens = npt.NDArray[np.unsignedinteger[Any]]
OnMissingChunks = Literal["error", "skip", "fill"]
"""Treatment of a missing chunk or shard file: raise an error, skip its band, or read it as the fill value."""
JOINED_GAP = 1 << 18
"""Most bytes between two chunks of a remote file that one request fetches together."""
JOINED_BYTES = 1 << 25
"""Most bytes of a request for several chunks."""
OPEN_SHARDS = 64
ABSENT = 2**64 - 1
BLOSC_HEADER = 16
HEADER_SIZES = Struct("<4xI4xI")
"""Layout of a blosc header: bytes when decoded, and bytes as stored."""
CHECKSUM_BYTES = 4


class Folder:
    """Directory containing a rectangle, local or behind a URL of fsspec."""

    def __init__(self, root: str) -> None:
        local = unquote(urlsplit(root).path) if root.startswith("file://") else root
        self.root = local.rstrip("/") or "/"

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it is missing."""
        try:
            return fetch(f"{self.root}/{name}") if is_url(self.root) else Path(self.root, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return exists(f"{self.root}/{name}") if is_url(self.root) else Path(self.root, name).is_file()

    def names(self) -> list[str] | None:
        """List the names in the directory, or return None if it is missing or cannot be listed."""
        if not is_url(self.root):
            return sorted(entry.name for entry in Path(self.root).iterdir()) if Path(self.root).is_dir() else None
        files, path = file_system_of(self.root)
        try:
            listed = ask(self.root, partial(files.ls, path, detail=False))
        except (FileNotFoundError, NotYetError):
            return None
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in listed)

    def files(self, name: str) -> set[str]:
        """List the files of an array by their paths in its folder; raise FormatError if the store cannot be listed."""
        where = f"{self.root}/{name}"
        if not is_url(self.root):
            return set(list_files(Path(where)))
        files, path = file_system_of(where)
        try:
            listed: Iterable[str] = ask(where, partial(files.find, path))
        except (FileNotFoundError, NotYetError) as unlisted:
            raise FormatError(f"{where} cannot be listed: copy it to this machine first") from unlisted
        return {file.removeprefix(path).lstrip("/") for file in listed}


@dataclass(eq=False)
class ChunkReader(ABC):
    """Base of the readers that decode the chunks of one array; attributes are those of :class:`SplitArray`."""

    root: str
    name: str
    layout: ArrayLayout
    file_checksums: Mapping[str, str]
    on_missing_chunks: OnMissingChunks

    @abstractmethod
    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode one chunk, clipped to the array's shape."""

    def read_file(self, places: Sequence[Pair]) -> list[Tokens]:
        """Decode several chunks of one file."""
        return [self.read(*place) for place in places]

    def file(self, place: Pair) -> str:
        """Return the path or URL of the file that holds a chunk."""
        return f"{self.root}/{self.name}/{self.layout.file_name(*place)}"

    def missing(self, place: Pair) -> CorruptionError:
        """Return the error for a missing chunk file, which plain Zarr would silently read as fill value."""
        return CorruptionError(
            f"{self.file(place)} is missing, which holds chunk {place}; fetch it, or take complete rows alone with "
            "on_missing_chunks='skip'"
        )

    def corrupt(self, place: Pair, why: str) -> CorruptionError:
        """Return the error for a chunk that differs from what was written."""
        rows = self.layout.clip(*place)[0]
        return CorruptionError(
            f"{self.file(place)}: chunk {place}, rows {rows.start:,} to {rows.stop - 1:,}, is corrupt ({why}): copy "
            f"this file again; longcrawl verify {self.root} lists all"
        )

    def check_file(self, place: Pair, content: bytes) -> None:
        """Raise CorruptionError if the file of an unsharded chunk differs from its recorded checksum."""
        expected = self.file_checksums.get(f"{self.name}/{self.layout.file_name(*place)}")
        if expected is not None and hashlib.sha256(content).hexdigest() != expected:
            raise self.corrupt(place, "it differs from its SHA-256")


@dataclass(eq=False)
class DirectReader(ChunkReader):
    """Reader of blosc chunks, sharded or not, without zarr-python; remote files are read by ranges of bytes."""

    def __post_init__(self) -> None:
        import numcodecs.blosc

        # Blosc has one thread pool per process behind one lock, which dies in a fork; zarr also switches it off.
        numcodecs.blosc.use_threads = False
        self._decompress: Callable[[npt.NDArray[np.uint8], Tokens], Any] = numcodecs.blosc.decompress
        self._open_shard = lru_cache(maxsize=OPEN_SHARDS)(partial(_Shard, self.layout))
        self._checked = set[Pair]()

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode one chunk, clipped to the array's shape."""
        place = row_chunk, column_chunk
        path = self.file(place)
        try:
            sharded = self.layout.index_at != "none"
            packed = self._open_shard(path).read(*place) if sharded else self._whole(path, place)
        except FileNotFoundError as missing:
            if self.on_missing_chunks == "error":
                raise self.missing(place) from missing
            packed = None
        return self.decode(packed, *place)

    def read_file(self, places: Sequence[Pair]) -> list[Tokens]:
        """Decode several chunks of one file; neighbours in a remote file are fetched together."""
        path = self.file(places[0])
        if self.layout.index_at == "none" or len(places) == 1 or not is_url(path):
            return super().read_file(places)
        try:
            packed = self._open_shard(path).read_joined(places)
        except FileNotFoundError as missing:
            if self.on_missing_chunks == "error":
                raise self.missing(places[0]) from missing
            packed = [None] * len(places)
        return [self.decode(each, *place) for each, place in zip(packed, places, strict=True)]

    def decode(self, packed: bytes | None, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode the stored bytes of a chunk, or None for one of fill values, clipped to the array's shape."""
        layout = self.layout
        # For a small chunk, slices and paths would take as long as decoding does.
        height = min(layout.chunks[0], layout.shape[0] - row_chunk * layout.chunks[0])
        width = min(layout.chunks[1], layout.shape[1] - column_chunk * layout.chunks[1])
        if packed is None:
            return np.full((height, width), layout.fill_value, layout.dtype)
        return self._decode(packed, (row_chunk, column_chunk))[:height, :width]

    def _whole(self, path: str, place: Pair) -> bytes:
        content = fetch(path) if is_url(path) else Path(path).read_bytes()
        if place not in self._checked:
            self.check_file(place, content)
            self._checked.add(place)
        return content

    def _decode(self, packed: bytes, place: Pair) -> Tokens:
        stored = np.frombuffer(packed, np.uint8)
        if self.layout.checksum == "crc32c":
            if len(stored) < CHECKSUM_BYTES or not _matches(stored):
                raise self.corrupt(place, "it differs from its crc32c")
            stored = stored[:-CHECKSUM_BYTES]
        if wrong := wrong_blosc_header(packed[:BLOSC_HEADER], len(stored), self.layout.chunk_bytes):
            raise self.corrupt(place, wrong)
        chunk: Tokens = np.empty(self.layout.chunks, self.layout.dtype)
        try:
            self._decompress(stored, chunk)
        except (RuntimeError, ValueError) as failed:
            raise self.corrupt(place, f"it does not decode: {failed}") from failed
        return chunk


def wrong_blosc_header(
    header: bytes, stored_bytes: int, decoded_bytes: int | None, most: int = MOST_CHUNK_BYTES
) -> str | None:
    """Return what is wrong with the sizes in a blosc header, which blosc trusts, or None.

    The chunk must decode to ``decoded_bytes`` or, if that is None, to at most ``most`` bytes.
    """
    decoded, stored = HEADER_SIZES.unpack_from(header) if len(header) >= BLOSC_HEADER else (0, 0)
    if stored == stored_bytes and (decoded == decoded_bytes or (decoded_bytes is None and decoded <= most)):
        return None
    wanted = f" instead of {decoded_bytes:,}" if decoded_bytes is not None else ""
    return f"{stored_bytes:,} bytes; its header records {stored:,}, decoding to {decoded:,}{wanted}"


class _Shard:
    """An open shard file with its index of (offset, bytes) per chunk, checked once against its checksum."""

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
        place = self._place(row_chunk, column_chunk)
        return None if place is None else self._file.read(*place)

    def read_joined(self, chunks: Sequence[tuple[int, int]]) -> list[bytes | None]:
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
    """Compare bytes with the crc32c that follows them."""
    import google_crc32c

    checksum: int = google_crc32c.value(stored[:-CHECKSUM_BYTES])
    return checksum.to_bytes(CHECKSUM_BYTES, "little") == stored[-CHECKSUM_BYTES:].tobytes()


Engine = Literal["auto", "direct", "zarr"]
"""Decoder of chunks: "direct" (blosc), "zarr" (zarr-python), or "auto" for direct if it can read the array."""
GPT2_END_OF_TEXT = 50256
"""Default end-of-text id, for rectangles that record none, such as the original LongCrawl64."""
DESCRIPTION = "rectangle.json"
VERSION = 1
DESCRIPTIONS = (DESCRIPTION, "composed.json")
"""Files with all checksums: of a rectangle, and of a composed dataset, whose splits are folders of arrays."""
LOSS_MASK_SUFFIX = "_loss_mask"
"""Suffix that turns the name of a split into that of its loss mask: ``train_loss_mask``."""


@dataclass(frozen=True)
class SplitArray:
    """One split of a rectangle, or its loss mask; picklable, usable from threads and after a fork.

    ``name`` is the array's folder in ``root``, ``train`` or ``train.zarr``. ``masked`` tells whether the rectangle
    records that its splits have loss masks, see :func:`open_loss_mask`; ``vocabulary_size`` (an exclusive upper bound
    of ids) and ``rolled`` are None if they are not recorded. ``file_checksums`` are the SHA-256 of unsharded chunks, by
    their files' paths in ``root``. If some bands are skipped, ``stored`` is the layout of all, and ``kept`` the numbers
    of the others.
    """

    root: str
    name: str
    layout: ArrayLayout
    end_of_text: int
    engine: Literal["direct", "zarr"]
    on_missing_chunks: OnMissingChunks = "error"
    masked: bool = False
    file_checksums: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    vocabulary_size: int | None = None
    rolled: bool | None = None
    stored: ArrayLayout | None = None
    kept: tuple[int, ...] = ()
    _reader: ChunkReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Found by name: zarr takes 0.1 s to import, and its reader needs this module.
        zarr = "longcrawl.formats.rectangle.zarr_reader:ZarrReader"
        reader: type[ChunkReader] = DirectReader if self.engine == "direct" else resolve_name(zarr)
        missing: OnMissingChunks = "fill" if self.on_missing_chunks == "fill" else "error"
        stored = self.stored or self.layout
        object.__setattr__(self, "_reader", reader(self.root, self.name, stored, self.file_checksums, missing))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_")]
        return SplitArray, tuple(getattr(self, name) for name in names)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of documents and of tokens per document."""
        return self.layout.shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Stored dtype in native byte order: uint16 or uint32, or bool for a loss mask."""
        return self.layout.dtype

    @property
    def checksum(self) -> Literal["crc32c", "sha256", "none"]:
        """Kind of checksum that the bytes of each chunk are compared with when read."""
        return "sha256" if self.layout.checksum == "none" and self.file_checksums else self.layout.checksum

    def read_chunk(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode one chunk to a new array, clipped at the array's last row and column."""
        if not (0 <= row_chunk < self.layout.chunk_grid[0] and 0 <= column_chunk < self.layout.chunk_grid[1]):
            raise IndexError(
                f"{self.root}/{self.name} has {self.layout.chunk_grid} chunks, none at {(row_chunk, column_chunk)}"
            )
        return self._reader.read(self._stored_chunk(row_chunk), column_chunk)

    def read_band(self, row_chunk: int, mapped: Callable[..., Iterable[Tokens]] = map) -> Tokens:
        """Decode the rows of one row of chunks; ``mapped`` calls a function for each chunk, as ``map`` does."""
        chunks = list(mapped(partial(self.read_chunk, row_chunk), range(self.layout.chunk_grid[1])))
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks, axis=1)

    def read_chunks(self, places: Sequence[tuple[int, int]]) -> list[Tokens]:
        """Decode several chunks of one file (:meth:`file_of`), and fetch neighbours in a remote file together."""
        return self._reader.read_file([(self._stored_chunk(row), column) for row, column in places])

    def decode(self, content: bytes, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode the bytes of an unsharded blosc chunk, as :meth:`read_chunk` does; FormatError for other arrays."""
        if not isinstance(self._reader, DirectReader) or self.layout.index_at != "none":
            raise FormatError(f"{self.root}/{self.name} has no chunks in files of their own: read them with read_chunk")
        return self._reader.decode(content, self._stored_chunk(row_chunk), column_chunk)

    def file_of(self, row_chunk: int, column_chunk: int) -> str:
        """Return the name of the file that holds a chunk."""
        return self.layout.file_name(self._stored_chunk(row_chunk), column_chunk)

    def _stored_chunk(self, row_chunk: int) -> int:
        """Return the row of chunks in the files that holds a delivered row of chunks."""
        if self.stored is None:
            return row_chunk
        band, within = divmod(row_chunk, self.layout.chunks_per_file[0])
        return self.kept[band] * self.layout.chunks_per_file[0] + within

    @property
    def bands(self) -> tuple[Band, ...]:
        """Bands of rows that are read, one row of files each."""
        stored = self.stored or self.layout
        return bands_of(stored, self.kept if self.stored else range(-(-stored.shape[0] // stored.file_shape[0])))

    def stored_rows(self, start: int, stop: int) -> list[range]:
        """Return the row numbers in the files of rows ``start:stop``, as consecutive ranges."""
        if self.stored is None:
            return [range(start, stop)]
        found, height = list[range](), self.layout.file_shape[0]
        for band in self.bands[start // height : -(-stop // height)]:
            first, last = max(start, band.rows.start), min(stop, band.rows.stop)
            shift = band.stored.start - band.rows.start
            found.append(range(first + shift, last + shift))
        return found


def open_split(
    path: str | os.PathLike[str],
    split: str = "train",
    engine: Engine = "auto",
    on_missing_chunks: OnMissingChunks = "error",
) -> SplitArray:
    """Open one split of the rectangle at ``path``, a local folder or an fsspec URL, or the array of a split itself.

    >>> array = open_split("mini64.zarr", "heldout")  # doctest: +SKIP
    >>> array.shape, array.dtype, array.layout.chunks  # doctest: +SKIP
    ((52131, 65536), dtype('uint16'), (64, 2048))
    """
    array = _open(os.fspath(path), split, engine, on_missing_chunks)
    if array.dtype == np.bool_:
        raise FormatError(
            f"{array.root}/{array.name}: token ids must be uint16 or uint32, but this array has {array.dtype}"
        )
    return _with_whole_bands(array) if on_missing_chunks == "skip" else array


def _with_whole_bands(array: SplitArray) -> SplitArray:
    folder, layout = Folder(array.root), array.layout
    there = folder.files(array.name)
    kept = set(whole_bands(layout, there))
    if array.masked:
        kept &= set(whole_bands(layout, folder.files(f"{array.name}{LOSS_MASK_SUFFIX}")))
    if not kept:
        raise FormatError(
            f"{array.root}/{array.name} has no complete rows: {len(there):,} of {layout.files:,} files are there, and "
            f"{-(-layout.shape[1] // layout.file_shape[1]):,} make one band of {layout.file_shape[0]:,} rows"
        )
    return take_bands(array, tuple(sorted(kept)))


def take_bands(array: SplitArray, kept: tuple[int, ...]) -> SplitArray:
    """Return an array of some bands in this order; a band that is shorter than the others must be the last."""
    bands = bands_of(array.layout, kept)
    if bands == array.bands:
        return array
    shape = bands[-1].rows.stop if bands else 0, array.layout.shape[1]
    return replace(array, layout=replace(array.layout, shape=shape), stored=array.layout, kept=kept)


def read_description(path: Path) -> dict[str, Any]:
    """Read ``rectangle.json``; errors are those of :func:`longcrawl.io.structured.read_description`."""
    return structured.read_description(path / DESCRIPTION, "rectangle", VERSION, ("shapes", "files", "json_escaped"))


def has_split(path: str | os.PathLike[str], split: str) -> bool:
    """Return whether the metadata of a split exists; it is not checked."""
    folder = Folder(os.fspath(path))
    return any(folder.exists(file) for file in _metadata_files(split))


def open_loss_mask(array: SplitArray) -> SplitArray:
    """Open the loss mask of a ``masked`` split; raise FormatError if it does not fit its tokens."""
    name = f"{array.name}{LOSS_MASK_SUFFIX}"
    mask = _open(array.root, name, "zarr" if array.engine == "zarr" else "auto", array.on_missing_chunks)
    mask = take_bands(mask, array.kept) if array.stored else mask
    if mask.dtype != np.bool_ or mask.shape != array.shape or mask.layout.chunks != array.layout.chunks:
        raise FormatError(
            f"{mask.root}/{mask.name} is {mask.dtype} {mask.shape} in chunks of {mask.layout.chunks}, a loss mask is "
            f"bool with the shape and chunks of its tokens, {array.shape} in chunks of {array.layout.chunks}; "
            "build the rectangle again"
        )
    return mask


def _open(path: str, split: str, engine: Engine, on_missing_chunks: OnMissingChunks) -> SplitArray:
    folder = Folder(path)
    description = DESCRIPTIONS["/" in split]
    text = folder.read(description)
    checksums = {} if text is None else structured.sealed_files(text, f"{folder.root}/{description}")
    found = _find_array(folder, split, checksums)
    if found is None:
        parent, _, name = folder.root.rpartition("/")
        parent = parent or ("/" if folder.root.startswith("/") else ".")
        if split not in ("train", name.removesuffix(".zarr")):
            raise FormatError(f"{path} is one array, not the one of {split!r}: open the folder {parent}")
        return _open(parent, name, engine, on_missing_chunks)
    name, metadata = found
    layout = parse_layout(metadata, f"{folder.root}/{name}")
    if engine == "direct" and layout.indirect:
        raise FormatError(f"{folder.root}/{name}: the direct engine does not read {layout.indirect}; use engine='auto'")
    chosen: Literal["direct", "zarr"] = "zarr" if engine == "zarr" or layout.indirect else "direct"
    attributes = (_read_json(folder, "zarr.json", checksums) or {}).get("attributes")
    attributes = attributes or _read_json(folder, ".zattrs", checksums) or {}
    if not isinstance(attributes, dict):
        raise FormatError(f"{folder.root}: the attributes in zarr.json are not an object; fetch this file again")
    return SplitArray(
        folder.root,
        name,
        layout,
        _count(folder.root, attributes, "end_of_text", GPT2_END_OF_TEXT, "a token id", 0),
        chosen,
        on_missing_chunks,
        attributes.get("loss_mask") is True,
        {file: each for file, each in checksums.items() if layout.index_at == "none" and file.startswith(f"{name}/")},
        _count(folder.root, attributes, "vocabulary_size", None, "a number of ids", 1),
        attributes["rolled"] if isinstance(attributes.get("rolled"), bool) else None,
    )


def _metadata_files(split: str) -> list[str]:
    return [f"{name}/{file}" for name in (split, f"{split}.zarr") for file in ("zarr.json", ".zarray")]


def _find_array(folder: Folder, split: str, checksums: Mapping[str, str]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the folder and metadata of a split's array, or None if ``folder`` is an array itself."""
    for file in _metadata_files(split):
        metadata = _read_json(folder, file, checksums)
        if metadata is not None and metadata.get("node_type", "array") == "array":
            return file.rpartition("/")[0], metadata
    if folder.exists(".zarray") or (_read_json(folder, "zarr.json", checksums) or {}).get("node_type") == "array":
        return None
    names = folder.names()
    if names is None:
        raise FormatError(f"no rectangle at {folder.root}: it does not exist or cannot be listed; check the path")
    found = ", ".join(repr(name) for name in names[:8]) or "nothing"
    if other := next(
        (name for name in RESULTS if f"{name}.json" in names and RESULTS[name].feed not in ("", "rectangle")), None
    ):
        feed = RESULTS[other].feed
        reads = {"buckets": "ComposedBatches"}.get(feed, feed.capitalize())
        raise FormatError(f"{folder.root} has format {other!r}, not rectangle: open it with lc.loading.{reads}")
    inside = f"; open the rectangle in it, {f'{folder.root}/rectangle'!r}" if "rectangle" in names else ""
    raise FormatError(f"{folder.root} has no split {split!r}; known: {found}{inside}")


def _count(root: str, attributes: Mapping[str, Any], name: str, default: T, kind: str, least: int) -> int | T:
    value = attributes.get(name, default)
    if value is default or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise FormatError(f"{root}: the attribute {name} must be {kind}, it is {value!r}")


def _read_json(folder: Folder, name: str, checksums: Mapping[str, str]) -> dict[str, Any] | None:
    text = folder.read(name)
    if text is None:
        if name in checksums:
            raise CorruptionError(f"{folder.root}/{name} is missing, which was written with this dataset; restore it")
        return None
    if name in checksums and hashlib.sha256(text).hexdigest() != checksums[name]:
        raise CorruptionError(
            f"{folder.root}/{name} has been changed: its SHA-256 differs from the one recorded; copy this file again"
        )
    with unreadable(f"{folder.root}/{name}", FormatError, "it must be JSON; fetch this file again"):
        value = load_json(text)
    if not isinstance(value, dict):
        raise FormatError(f"{folder.root}/{name} is not a JSON object; fetch this file again")
    return value
