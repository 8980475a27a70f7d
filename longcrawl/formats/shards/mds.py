"""Shards of MosaicML's streaming datasets: ``.mds``, and ``index.json`` in their folder.

Specification
-------------
A folder is a split that ``StreamingDataset`` reads (``streaming/base/format/mds``, ``MDSWriter``). Documents are
samples with a column ``tokens`` of the encoding ``ndarray:uint16`` or ``ndarray:int32``, as LLM Foundry reads it:

===================== ==================================================================================
bytes of NAME.mds     what (all numbers are little-endian)
===================== ==================================================================================
0                     uint32 number of documents, *n*
4                     uint32 x (*n* + 1): the byte where each document starts, then the size of the file
8 + 4 *n*             the settings of ``MDSWriter`` in JSON: names, encodings and sizes of columns …
first start           the documents
===================== ==================================================================================

A document is a uint32, the number of bytes that follow; a byte, 4 for one dimension plus 0, 1 or 2 for the number of
tokens as uint8, uint16 or uint32; that number; and its tokens.

* ``index.json``: ``version`` 2 and ``shards``, for each its number of ``samples``, ``raw_data`` with ``basename`` and
  ``bytes``, and the settings of the shard.

Shards of MDSWriter, which calls them ``shard.00000.mds``, are also read if they are not compressed: ``column`` is then
any column of ``ndarray`` with a fixed type of integers, or of ``bytes`` with ``encoding_type``. Tokens are not in one
piece, so opening a shard copies them to an unnamed temporary file, which is mapped. LLM Foundry takes a sample for a
sequence and cuts it to its sequence length: write windows of that length.

Ids from 2,147,483,648 on, documents without tokens and files of 4 GiB are refused.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, check_word, unreadable
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.base import Opening, Parsed, ShardFormat, shard_format
from longcrawl.formats.shards.shard import TOKENS, Documents
from longcrawl.formats.shards.writing import (
    MOST_UINT32,
    DocumentStream,
    NewFiles,
    append_spool,
    check_int32,
    type_without_uint32,
    write_array,
    write_starts,
)
from longcrawl.io.structured import load_json

NAME = "mds"
SUFFIX = ".mds"
INDEX = "index.json"
VERSION = 2
ARRAY = "ndarray"
TYPES = ("uint16", "int32", "uint32", "int64")
FETCH = "fetch it again, or write it again"
BLOCK = 1 << 12
"""Documents that are copied at a time."""


@shard_format(NAME)
class Mds(ShardFormat):
    """Shards of MosaicML's streaming datasets; a path ends in ``.mds``."""

    suffix = SUFFIX
    index = INDEX

    @classmethod
    def list_shards(cls, shards: Sequence[Path]) -> str:
        """Return ``index.json``."""
        listed = [_read_header(file) for file in shards]
        entries = [
            {
                **header.settings,
                "samples": header.documents,
                "raw_data": {"basename": file.name, "bytes": file.stat().st_size, "hashes": {}},
                "zip_data": None,
            }
            for file, header in zip(shards, listed, strict=True)
        ]
        return json.dumps({"version": VERSION, "shards": entries}, sort_keys=True)

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles) -> None:
        """Write the bytes where documents start, and then the documents, which wait in an unnamed file."""
        shards, samples = files.open(SUFFIX), files.spool()
        kind, sizes = type_without_uint32(stream.token_type), [np.zeros(1, np.int64)]
        for batch in stream:
            check_int32(batch, "MDS")
            _check_lengths(batch, stream.documents - len(batch.lengths))
            pieces = _samples(batch, kind)
            samples.write(b"".join(pieces))
            sizes.append(np.array([len(each) for each in pieces], np.int64))
        settings = json.dumps(_settings(kind.name), sort_keys=True).encode()
        starts = 8 + 4 * stream.documents + len(settings) + np.cumsum(np.concatenate(sizes))
        write_starts(shards, starts, files.path, "MDS")
        shards.write(settings)
        append_spool(shards, samples)

    @classmethod
    def decode(
        cls,
        opening: Opening,
        *,
        column: str = TOKENS,
        encoding_type: Literal["uint16", "int32", "uint32", "int64"] | None = None,
    ) -> Parsed:
        """Copy the tokens of ``column`` to a temporary file; ``encoding_type`` is that of a column of ``bytes``."""
        (file,) = opening.files
        opening.compare(0)
        header = _read_header(file)
        kind = _token_type(header, column, encoding_type, file)
        places = _places(header, column, kind, file)
        kept = np.dtype(np.uint16 if kind == np.uint16 else np.uint32)
        with tempfile.TemporaryFile() as copied:
            for first in range(0, header.documents, BLOCK):
                block = zip(*(each[first : first + BLOCK].tolist() for each in places), strict=True)
                joined = b"".join([header.content[start:stop].tobytes() for start, stop in block])
                ids = np.frombuffer(joined, kind)
                _check_ids(ids, places, first, file)
                write_array(copied, ids, kept)
            tokens = shard.map_opened(copied, kept)
        others = [name for name in header.settings["column_names"] if name != column]
        ends = np.cumsum((places[1] - places[0]) // kind.itemsize)
        settings = {"column": column, "encoding_type": encoding_type}
        return Parsed(tokens, ends, first_byte=None, left_out=shard.named_columns(others), settings=settings)


open, shard_files, verify, write = Mds.open, Mds.shard_files, Mds.verify, Mds.write  # noqa: A001  # public as mds.open
write_index = Mds.write_index


@dataclass(frozen=True, eq=False)
class _Header:
    """Settings of a shard, and where its documents start: int64 [documents + 1]."""

    content: npt.NDArray[np.uint8]
    settings: dict[str, Any]
    starts: npt.NDArray[np.int64]

    @property
    def documents(self) -> int:
        return len(self.starts) - 1


def _settings(kind: str) -> dict[str, Any]:
    return {
        "version": VERSION,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": [TOKENS],
        "column_encodings": [f"{ARRAY}:{kind}"],
        "column_sizes": [None],
    }


def _check_lengths(batch: Documents, first: int) -> None:
    empty = np.flatnonzero(batch.lengths == 0)
    if len(empty):
        raise FormatError(
            f"document {first + int(empty[0]):,} has no tokens, and MDS cannot store an empty array: exclude it"
        )


def _samples(batch: Documents, kind: "np.dtype[Any]") -> list[bytes]:
    content = np.ascontiguousarray(batch.tokens, kind.newbyteorder("<")).tobytes()
    ends = np.cumsum(batch.lengths) * kind.itemsize
    made = []
    for length, end in zip(batch.lengths.tolist(), ends.tolist(), strict=True):
        code = 0 if length < 1 << 8 else 1 if length < 1 << 16 else 2
        head = bytes([4 | code]) + length.to_bytes(1 << code, "little")
        size = length * kind.itemsize
        made.append((len(head) + size).to_bytes(4, "little") + head + content[end - size : end])
    return made


def _read_header(file: Path) -> _Header:
    size = shard.file_bytes(file)
    content = shard.map_file(file, np.uint8, size)
    count = int(content[:4].view("<u4")[0]) if size >= 4 else 0
    if size < 8 + 4 * count:
        raise CorruptionError(f"{file} is cut: it ends at byte {size:,}, within the starts of documents: {FETCH}")
    starts = content[4 : 8 + 4 * count].view("<u4").astype(np.int64)
    shard.check_size(file, int(starts[-1]), "and the starts of its documents ask for")
    if starts[0] < 8 + 4 * count or np.any(np.diff(starts) < 0):
        raise CorruptionError(f"{file} has documents that start before the ones before them: {FETCH}")
    with unreadable(str(file), CorruptionError, FETCH):
        settings = dict(load_json(content[8 + 4 * count : starts[0]].tobytes()))
        if not len(settings["column_names"]) == len(settings["column_encodings"]) == len(settings["column_sizes"]):
            raise ValueError("columns without a name, an encoding or a size")
    return _Header(content, settings, starts)


def _token_type(header: _Header, column: str, given: str | None, file: Path) -> "np.dtype[Any]":
    names, encodings = header.settings["column_names"], header.settings["column_encodings"]
    if column not in names:
        raise FormatError(f"{file} has no column {column!r}, it has {', '.join(map(str, names))}: name one as column")
    encoding = str(encodings[names.index(column)])
    name, _, rest = encoding.partition(":")
    kind = given if encoding == "bytes" else rest.partition(":")[0] if name == ARRAY else None
    check_word("encoding_type", given, (*TYPES, None), FormatError)
    if kind is None and encoding == "bytes":
        raise FormatError(
            f"{file} does not record the type of the tokens in {column!r}: set encoding_type, such as 'int64'"
        )
    if kind not in TYPES:
        raise FormatError(f"{file} has {encoding} in its column {column!r}, not integers: name another as column")
    return np.dtype(kind).newbyteorder("<")


def _places(
    header: _Header, column: str, kind: "np.dtype[Any]", file: Path
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes where the tokens of each document start and stop; CorruptionError if they leave the document."""
    names, sizes = header.settings["column_names"], header.settings["column_sizes"]
    starts, stops = header.starts[:-1], header.starts[1:]
    heads = starts + 4 * sum(size is None for size in sizes)
    begin, recorded = heads, 0
    for name, size in zip(names, sizes, strict=True):
        length = np.full(len(starts), size or 0, np.int64)
        if size is None:
            length = _numbers(header.content, starts + 4 * recorded, 4)
            recorded += 1
        if name == column:
            break
        begin = begin + length
    end = begin + length
    encoding = str(header.settings["column_encodings"][names.index(column)])
    if encoding.count(":") == 1:  # the number of tokens is before them
        code = _numbers(header.content, begin, 1)
        width = 1 << (code & 3)
        begin = begin + 1 + width
        if np.any(code >> 2 != 1):
            raise FormatError(
                f"{file} has arrays of several dimensions in its column {column!r}: name another as column"
            )
    if np.any(begin > end) or np.any(end > stops) or np.any((end - begin) % kind.itemsize):
        raise CorruptionError(f"{file} has a document whose tokens are not within it: {FETCH}")
    return begin, end


def _check_ids(
    ids: npt.NDArray[Any], places: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], first: int, file: Path
) -> None:
    """Raise CorruptionError if an id of the documents from ``first`` on is negative or has more than 32 bits."""
    if not len(ids) or (ids.min() >= 0 and ids.max() <= MOST_UINT32):
        return
    wrong = int(np.argmax((ids < 0) | (ids > MOST_UINT32)))
    ends = np.cumsum(places[1][first:] - places[0][first:]) // ids.itemsize
    number = first + int(np.searchsorted(ends, wrong, "right"))
    raise CorruptionError(
        f"{file} has id {int(ids[wrong]):,} in document {number:,}, and ids are from 0 to {MOST_UINT32:,}: fix the "
        "tokens, and write it again"
    )


def _numbers(content: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Return the little-endian numbers of ``width`` bytes at some places; 0 for a place after the end."""
    found = np.zeros(len(places), np.int64)
    for byte in range(width):
        at = np.minimum(places + byte, len(content) - 1)
        found |= content[at].astype(np.int64) << (8 * byte)
    return found
