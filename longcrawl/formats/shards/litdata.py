"""Chunks of tokens of litdata: ``.bin``, with its part of the index beside it, and ``index.json`` in their folder.

Specification
-------------
A folder is a dataset that ``litdata.optimize`` makes for ``TokensLoader`` (``streaming/writer.py``, ``BinaryWriter``):

===================== ==================================================================================
bytes of NAME.bin     what
===================== ==================================================================================
0                     uint32 number of documents, *n*
4                     uint32 x (*n* + 1): the byte where each document starts, then the size of the file
8 + 4 *n*             tokens of all documents, little-endian uint16 or int32, end to end
===================== ==================================================================================

* ``NAME.index.json``: ``chunks``, a list with the ``filename``, ``chunk_bytes``, ``chunk_size`` (documents) and ``dim``
  (tokens) of the file, and ``config`` with the type of the tokens in ``data_format``: ``no_header_tensor:20`` for
  uint16, ``no_header_tensor:16`` for int32. Each of litdata's processes writes such a part;
* ``index.json``: the same for all files of the folder. It has no time, unlike litdata's.

Folders of litdata itself, where only ``index.json`` describes files such as ``chunk-0-0.bin``, are also read, if they
are not compressed. ``TokensLoader`` takes no notice of documents, and drops the last tokens of a file, fewer than a
block: write large files. Ids from 2,147,483,648 on, files of 4 GiB and files without tokens are refused.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
    write_starts,
)
from longcrawl.io.structured import load_json

NAME = "litdata"
SUFFIX = ".bin"
INDEX = "index.json"
PART = f".{INDEX}"
TYPES = {"uint16": "no_header_tensor:20", "int32": "no_header_tensor:16"}
WIDTHS = {TYPES["uint16"]: 2, TYPES["int32"]: 4, "no_header_tensor:15": 4, "no_header_numpy:5": 2}
"""Bytes of a token by litdata's name of its type; int32 is read as uint32."""
FETCH = "fetch it again, or write it again"


@shard_format(NAME)
class Litdata(ShardFormat):
    """Chunks of tokens of litdata; a path names the ``.bin`` file."""

    suffix = SUFFIX
    index = INDEX

    @classmethod
    def shard_files(cls, path: "str | Path") -> tuple[Path, ...]:
        """Return the file of tokens, and its part of the index, which files of litdata lack."""
        (file,) = super().shard_files(path)
        return file, file.with_name(file.stem + PART)

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Return whether an index describes a file."""
        return path.suffix == SUFFIX and _described(path) is not None

    @classmethod
    def shards_of(cls, folder: Path) -> list[Path]:
        """Return the files of tokens in a folder that have a part of the index, sorted."""
        return sorted(file.with_name(file.name.removesuffix(PART) + SUFFIX) for file in folder.glob(f"*{PART}"))

    @classmethod
    def list_shards(cls, shards: Sequence[Path]) -> str:
        """Return ``index.json``; raise FormatError for files whose tokens have different types."""
        parts = [_read_index(cls.shard_files(file)[1]) for file in shards]
        for file, part in zip(shards, parts, strict=True):
            if part["config"] != parts[0]["config"]:
                raise FormatError(
                    f"{file} and {shards[0]} have tokens of different types, but litdata reads one: set dtype"
                )
        return _index([chunk for part in parts for chunk in part["chunks"]], parts[0]["config"] if parts else {})

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles) -> None:
        """Write the byte where each document starts, and then all tokens, which wait in an unnamed file."""
        chunk, numbers = files.open(SUFFIX), files.spool()
        kind, lengths = type_without_uint32(stream.token_type), [np.zeros(1, np.int64)]
        for batch in stream:
            check_int32(batch, "litdata")
            write_array(numbers, batch.tokens, kind)
            lengths.append(batch.lengths)
        if not stream.tokens:
            raise FormatError(f"{files.path} would have no tokens, and litdata cannot map an empty file: exclude it")
        starts = _first_byte(stream.documents) + kind.itemsize * np.cumsum(np.concatenate(lengths))
        write_starts(chunk, starts, files.path, "litdata")
        append_spool(chunk, numbers)
        described = {
            "chunk_bytes": int(starts[-1]),
            "chunk_size": stream.documents,
            "dim": stream.tokens,
            "filename": files.path.name,
        }
        files.open(PART).write(_index([described], _config(TYPES[kind.name])).encode())

    @classmethod
    def decode(cls, opening: Opening) -> Parsed:
        """Memory-map tokens, and read the starts of documents."""
        file, part = opening.files
        if part.is_file():
            opening.compare(1)
        size = shard.file_bytes(file)
        found = _described(file)
        if found is None:
            raise FormatError(f"{file} has no {part.name} beside it, and is in no {INDEX}: fetch it again")
        with unreadable(f"the index of {file}", CorruptionError, FETCH):
            chunk, (kind,), compressed = found[0], found[1]["data_format"], found[1].get("compression")
            rows, count, expected = int(chunk["chunk_size"]), int(chunk["dim"]), int(chunk["chunk_bytes"])
        if compressed or kind not in WIDTHS:
            raise FormatError(f"{file} has {'compressed ' if compressed else ''}data of {kind}: only tokens are read")
        shard.check_size(file, expected, "and its index asks for")
        width, first = WIDTHS[kind], _first_byte(rows)
        if rows < 0 or size != first + width * count:
            raise CorruptionError(
                f"{file} has {size:,} bytes, not those of {rows:,} documents, {count:,} tokens: {FETCH}"
            )
        opening.compare(0, first)
        header = shard.map_file(file, "<u4", rows + 2)
        if int(header[0]) != rows or int(header[1]) != first:
            raise CorruptionError(f"{file} does not begin with {rows:,} documents, which its index records: {FETCH}")
        ends, odd = np.divmod(header[2:].astype(np.int64) - first, width)
        problems = shard.end_problems(ends, count, file, lambda number: 8 + 4 * number)
        if odd.any():
            raise CorruptionError(f"{file} has a document that ends within a token of {width} bytes: {FETCH}")
        return Parsed(
            shard.map_file(file, f"<u{width}", count, first),
            ends,
            first_byte=first,
            id_limit=MOST_INT32 + 1 if width == 4 else None,
            of_ends=problems,
        )


open, shard_files, verify, write = Litdata.open, Litdata.shard_files, Litdata.verify, Litdata.write  # noqa: A001  # public as litdata.open
write_index = Litdata.write_index


def _first_byte(documents: int) -> int:
    return 8 + 4 * documents


def _config(data_format: str) -> dict[str, Any]:
    """Return the settings that litdata's readers ask for; ``data_spec`` is its description of a single tensor."""
    return {
        "chunk_bytes": None,
        "chunk_size": None,
        "compression": None,
        "data_format": [data_format],
        "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
        "encryption": None,
        "item_loader": "TokensLoader",
    }


def _index(chunks: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    return json.dumps({"chunks": chunks, "config": config}, sort_keys=True)


def _read_index(file: Path) -> dict[str, Any]:
    shard.file_bytes(file)
    with unreadable(str(file), CorruptionError, FETCH):
        found = load_json(file.read_bytes())
        return {"chunks": list(found["chunks"]), "config": dict(found["config"])}


def _described(file: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return a file's entry in its part of the index, or in that of its folder, with the settings; None without one."""
    for index in (Litdata.shard_files(file)[1], file.with_name(INDEX)):
        if index.is_file():
            found = _read_index(index)
            for chunk in found["chunks"]:
                if isinstance(chunk, dict) and chunk.get("filename") == file.name:
                    return chunk, found["config"]
    return None
