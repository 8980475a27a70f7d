"""Caches of tokens of Levanter and Marin: a folder of Zarr arrays for each shard, and a ledger.

Specification
-------------
A split is a cache of the layout "sharded" (``levanter/store/cache.py``, ``CacheLedger``; ``store/jagged_array.py``,
``JaggedArrayStore``):

* ``shard_ledger.json``: ``finished_shards``, the names of the shards in order, ``shard_rows`` and
  ``field_counts_by_shard``, the documents and tokens of each, ``total_num_rows``, ``field_counts``, ``is_finished``,
  ``layout`` and ``metadata``.
* ``NAME/shard_ledger.json``: the ledger of one shard, of the layout "consolidated", which makes it a cache of its own.
* ``NAME/input_ids/data``: a Zarr v3 array of all tokens, uint16 or int32 [tokens].
* ``NAME/input_ids/offsets``: int64 [documents + 1]. The first is the number of documents, each other one the end of a
  document in ``data``.

Levanter reads arrays of any codec and length. Its own are 2^54 long, in shards of 512 chunks of 262,144 numbers, with
blosc. The arrays here are as long as their content, and have one file ``c/0``: the numbers, little-endian, in chunks of
262,144, the last one filled up with zeros, then the index of Zarr's sharding codec, for each chunk its first byte and
its number of bytes, uint64, and the crc32c of the index. Levanter fetches chunks one by one, and the numbers are in one
piece that can be memory-mapped. Other arrays are decoded into an unnamed temporary file, which is mapped.

Levanter's tokens are int32, so ids from 2,147,483,648 on are refused, and so is a shard without tokens. When Levanter
trains on text, it separates documents by the end-of-text token of its tokenizer, not by ``offsets``.
"""

import json
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, unreadable
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.base import Opening, Parsed, ShardFormat, shard_format
from longcrawl.formats.shards.writing import (
    MOST_INT32,
    DocumentStream,
    NewFiles,
    append_spool,
    check_int32,
    type_without_uint32,
    write_array,
)
from longcrawl.io.structured import load_json

NAME = "levanter"
FIELD = "input_ids"
DATA, OFFSETS = f"/{FIELD}/data", f"/{FIELD}/offsets"
CHUNK, METADATA = "/c/0", "/zarr.json"
SUFFIX = DATA + CHUNK
LEDGER = "shard_ledger.json"
OTHER_FILES = (OFFSETS + CHUNK, DATA + METADATA, OFFSETS + METADATA, f"/{LEDGER}")
CHUNK_NUMBERS = 1 << 18
BLOCK = 1 << 22
FETCH = "fetch it again, or write the shard again"
DTYPES = {"uint16": "<u2", "int32": "<u4", "uint32": "<u4", "int64": "<i8"}
"""Types in memory by their names in Zarr; int32 is read as uint32, which is equal for all non-negative ids."""


@shard_format(NAME)
class Levanter(ShardFormat):
    """Caches of Levanter; a path names the folder of a shard, its ledger or its file of tokens."""

    suffix = SUFFIX
    index = LEDGER
    heldout = "validation"

    @classmethod
    def shard_files(cls, path: "str | Path") -> tuple[Path, ...]:
        """Return the files of a shard: tokens, offsets, their metadata, and the ledger."""
        file = shard.local_path(path)
        stem = file.parent if file.name == LEDGER else Path(shard.stem_of(file, SUFFIX))
        return tuple(Path(f"{stem}{name}") for name in (SUFFIX, *OTHER_FILES))

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Return whether a path names a shard's folder, ledger or file of tokens."""
        return cls.shard_files(path)[2].is_file()

    @classmethod
    def shards_of(cls, folder: Path) -> list[Path]:
        """Return the files of tokens of the shards in a folder, sorted."""
        return sorted(folder.glob(f"*{SUFFIX}"))

    @classmethod
    def list_shards(cls, shards: Sequence[Path]) -> str:
        """Return the ledger of a split, made from the ledgers of its shards."""
        ledgers = [(Path(shard.stem_of(file, SUFFIX)).name, _read_json(cls.shard_files(file)[-1])) for file in shards]
        rows = {name: int(ledger["total_num_rows"]) for name, ledger in ledgers}
        counts = {name: {FIELD: int(ledger["field_counts"][FIELD])} for name, ledger in ledgers}
        return _ledger(rows, sum(each[FIELD] for each in counts.values()), counts, "sharded")

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles) -> None:
        """Write tokens and offsets batch by batch, then the index of their chunks, their metadata, and the ledger."""
        tokens, offsets, ends = files.open(SUFFIX), files.open(OFFSETS + CHUNK), files.spool()
        kind = type_without_uint32(stream.token_type)
        for batch in stream:
            check_int32(batch, "Levanter")
            write_array(tokens, batch.tokens, kind)
            write_array(ends, stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths), np.int64)
        if not stream.tokens:
            raise FormatError(f"{files.path} would have no tokens, which Levanter cannot read: exclude it")
        write_array(offsets, np.array([stream.documents]), np.int64)
        append_spool(offsets, ends)
        for file, count, each, name in (
            (tokens, stream.tokens, kind, DATA),
            (offsets, stream.documents + 1, np.dtype(np.int64), OFFSETS),
        ):
            _finish_chunks(file, count, each.itemsize)
            files.open(name + METADATA).write(_metadata(count, each.name).encode())
        rows = {Path(shard.stem_of(files.path, SUFFIX)).name: stream.documents}
        files.open(f"/{LEDGER}").write(_ledger(rows, stream.tokens, {}, "consolidated").encode())

    @classmethod
    def decode(cls, opening: Opening) -> Parsed:
        """Memory-map tokens and offsets; arrays of another layout are decoded."""
        data, places, *described, ledger = opening.files
        for number in range(1, len(opening.files)):
            opening.compare(number)
        offsets = _Numbers(places, described[1], ("int64",))
        ends = offsets.ends()
        numbers = _Numbers(data, described[0], ("uint16", "int32", "uint32"))
        count = int(ends[-1]) if len(ends) else 0
        if count > numbers.length or count < 0:
            raise CorruptionError(
                f"{data} has {numbers.length:,} tokens, but {places} records that its last document ends at token "
                f"{count:,}: fetch both again, or write the shard again"
            )
        if numbers.mapped is not None and numbers.length != count:
            raise CorruptionError(
                f"{data} has {numbers.length:,} tokens, {places} ends at token {count:,}: write it again"
            )
        problems = shard.end_problems(ends, count, places, lambda number: 8 * (number + 1))
        return Parsed(
            numbers.tokens(count),
            ends,
            first_byte=None if numbers.mapped is None else 0,
            id_limit=MOST_INT32 + 1 if numbers.type == "int32" else None,
            left_out=_left_out(ledger),
            of_sizes=chain(numbers.problems(), offsets.problems()),
            of_ends=problems,
        )


open, shard_files, verify, write = Levanter.open, Levanter.shard_files, Levanter.verify, Levanter.write  # noqa: A001  # public as levanter.open
write_index = Levanter.write_index


class _Numbers:
    """A Zarr array of one dimension: ``mapped`` if it has the layout of this module, else decoded by zarr-python."""

    def __init__(self, chunk: Path, metadata: Path, types: Sequence[str]) -> None:
        self.path, self._chunk = metadata.parent, chunk
        found = _read_json(metadata)
        with unreadable(str(metadata), CorruptionError, FETCH):
            (self.length,), self.type = map(int, found["shape"]), str(found["data_type"])
        if self.type not in types:
            raise FormatError(f"{metadata} is of {self.type}, only {' and '.join(types)} are read: write it again")
        self.mapped: npt.NDArray[Any] | None = None
        if found == json.loads(_metadata(self.length, self.type)):
            dtype = np.dtype(DTYPES[self.type])
            size = _chunk_bytes(self.length, dtype.itemsize)
            index_bytes = 16 * (size // (_chunk_numbers(self.length) * dtype.itemsize)) + 4
            shard.check_size(chunk, size + index_bytes, f"and {metadata} asks for")
            self.mapped = shard.map_file(chunk, dtype, self.length)

    def problems(self) -> Iterator[str]:
        """Yield the problem of an index of chunks that is not the one of this module."""
        if self.mapped is not None:
            width = self.mapped.itemsize
            index = _chunk_index(self.length, width)
            if shard.map_file(self._chunk, np.uint8, len(index), _chunk_bytes(self.length, width)).tobytes() != index:
                yield f"{self._chunk} has another index of its chunks than was written: {FETCH}"

    def read(self, first: int, stop: int) -> npt.NDArray[Any]:
        """Return the numbers ``first:stop``."""
        if self.mapped is not None:
            return self.mapped[first:stop]
        import zarr  # only for caches of others

        with unreadable(str(self.path), CorruptionError, FETCH):
            return np.asarray(zarr.open_array(str(self.path), mode="r")[first:stop]).astype(DTYPES[self.type])

    def ends(self) -> npt.NDArray[np.int64]:
        """Return all numbers but the first, which is their count."""
        count = int(self.read(0, 1)[0]) if self.length else -1
        if not 0 <= count < self.length or (self.mapped is not None and count != self.length - 1):
            raise CorruptionError(f"{self.path} records {count:,} documents and has {self.length:,} numbers: {FETCH}")
        return self.read(1, count + 1)

    def tokens(self, count: int) -> npt.NDArray[Any]:
        """Return the first ``count`` numbers, mapped to memory."""
        if self.mapped is not None:
            return self.mapped
        dtype = DTYPES[self.type]
        with tempfile.TemporaryFile() as decoded:
            for first in range(0, count, BLOCK):
                write_array(decoded, self.read(first, min(first + BLOCK, count)), dtype)
            return shard.map_opened(decoded, dtype)


def _chunk_numbers(count: int) -> int:
    return min(CHUNK_NUMBERS, max(count, 1))


def _chunk_bytes(count: int, width: int) -> int:
    """Return the bytes of all chunks of an array, including the zeros after its last number."""
    chunk = _chunk_numbers(count)
    return -(-count // chunk) * chunk * width


def _chunk_index(count: int, width: int) -> bytes:
    """Return the index of the sharding codec for chunks that are in order and without gaps."""
    chunk = _chunk_numbers(count) * width
    starts = np.arange(0, _chunk_bytes(count, width), chunk)
    entries = np.stack([starts, np.full(len(starts), chunk)], 1).astype("<u8").tobytes()
    return entries + struct.pack("<I", google_crc32c.value(entries))


def _finish_chunks(file: IO[bytes], count: int, width: int) -> None:
    file.write(bytes(_chunk_bytes(count, width) - count * width))
    file.write(_chunk_index(count, width))


def _metadata(count: int, dtype: str) -> str:
    chunk = _chunk_numbers(count)
    numbers = {"name": "bytes", "configuration": {"endian": "little"}}
    sharding = {
        "chunk_shape": [chunk],
        "codecs": [numbers],
        "index_codecs": [numbers, {"name": "crc32c"}],
        "index_location": "end",
    }
    array = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [count],
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [-(-count // chunk) * chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": {},
    }
    return json.dumps(array, indent=2)


def _ledger(rows: Mapping[str, int], tokens: int, counts: Mapping[str, Mapping[str, int]], layout: str) -> str:
    ledger = {
        "total_num_rows": sum(rows.values()),
        "shard_rows": rows,
        "is_finished": True,
        "finished_shards": [*rows],
        "field_counts": {FIELD: tokens},
        "field_counts_by_shard": counts,
        "layout": layout,
        "metadata": {"preprocessor_metadata": {}},
    }
    return json.dumps(ledger, indent=2)


def _left_out(ledger: Path) -> tuple[str, ...]:
    """Describe the other fields of documents that a cache has."""
    with unreadable(str(ledger), CorruptionError, FETCH):
        fields = _read_json(ledger).get("field_counts", {}) if ledger.is_file() else {}
        return shard.named_columns([name for name in fields if name != FIELD])


def _read_json(file: Path) -> dict[str, Any]:
    shard.file_bytes(file)
    with unreadable(str(file), CorruptionError, FETCH):
        return dict(load_json(file.read_bytes()))
