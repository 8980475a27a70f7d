"""GPT-Simple's pretokenised shards: ``.bin`` and ``.idx``.

Specification
-------------
``NAME.bin`` holds tokens, little-endian uint16 or uint32, no header. ``NAME.idx`` is also little-endian:

===================== ==================================================================================
bytes                 what
===================== ==================================================================================
0                     ``GPTS``
4                     uint32 version, 1
8                     uint32 type of the tokens: 2 is uint16, 4 is uint32
12                    uint32 number of entries, *n*
16                    int64 x (*n* + 1): where each entry starts, counted in tokens, then the number of tokens
16 + 8 (*n* + 1)      uint16 x *n*: how many tokens each entry repeats from the one before; no loss is due on them
===================== ==================================================================================

An entry is a document or a window of a long one. A document's last token is the end-of-document token; of its windows
only the last one has it. The files record neither its id nor the size of the vocabulary. GPT-Simple itself takes
uint16 for fewer than 65,536 ids.

Here an entry is a document of the shard, with its ``overlap``. An overlap of more than 65,535 tokens is refused;
GPT-Simple 0.1.2 writes it modulo 65,536.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.base import Opening, Parsed, ShardFormat, shard_format
from longcrawl.formats.shards.shard import OVERLAP, Documents, check_size, file_bytes, map_file
from longcrawl.formats.shards.writing import DocumentStream, NewFiles, append_spool, write_array

NAME = "gpt-simple"
SUFFIX = ".bin"
OTHER_SUFFIXES = (".ds", ".index", ".parquet", ".zarr", ".npy", ".json", ".jsonl", ".txt", ".gz", ".zst")
"""Suffixes of other formats; any other suffix is part of a name, as in ``part-0.5``."""
MAGIC, VERSION = b"GPTS", 1
HEADER = struct.Struct("<4sIII")
MOST_ENTRIES = (1 << 32) - 1
MOST_OVERLAP = (1 << 16) - 1


class BinAndIdx(ShardFormat):
    """Base of formats of two files; a path names the ``.bin`` file, the ``.idx`` file, or either without its suffix."""

    suffix = SUFFIX
    magic: ClassVar[bytes]
    """First bytes of an index."""

    @classmethod
    def shard_files(cls, path: "str | Path") -> tuple[Path, Path]:
        """Return the two files of a shard; raise FormatError for the suffix of another format."""
        file = shard.local_path(path)
        if file.suffix in OTHER_SUFFIXES:
            raise FormatError(
                f"{path} is not a shard of .bin and .idx: its name must end in {SUFFIX} or .idx, or in neither"
            )
        stem = file.with_suffix("") if file.suffix in (".bin", ".idx") else file
        return stem.with_name(f"{stem.name}.bin"), stem.with_name(f"{stem.name}.idx")

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Return whether the index beside the tokens is of this format."""
        index = None if path.suffix in OTHER_SUFFIXES else cls.shard_files(path)[1]
        if index is None or not index.is_file():
            return False
        with index.open("rb") as file:
            return file.read(len(cls.magic)) == cls.magic


@shard_format(NAME)
class GptSimple(BinAndIdx):
    """Shards of GPT-Simple."""

    magic = MAGIC
    holds = frozenset([OVERLAP])

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles) -> None:
        """Write tokens batch by batch, and the index with the overlaps at its end."""
        tokens, index, overlaps = files.open(".bin"), files.open(".idx"), files.spool()
        index.write(bytes(HEADER.size))
        write_array(index, np.zeros(1), np.int64)
        for batch in stream:
            write_array(tokens, batch.tokens, stream.token_type)
            write_array(index, stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths), np.int64)
            write_array(overlaps, _overlaps(batch, stream.documents), np.uint16)
        append_spool(index, overlaps)
        index.seek(0)
        index.write(_header(stream, files.path))

    @classmethod
    def decode(cls, opening: Opening) -> Parsed:
        """Memory-map tokens, offsets and overlaps."""
        data, index = opening.files
        width, entries = _read_header(index)
        offsets = map_file(index, "<i8", entries + 1, HEADER.size)
        if offsets[0] != 0:
            raise CorruptionError(
                f"{index} records at byte {HEADER.size} that the first document starts at token {int(offsets[0]):,}, "
                "not 0: fetch it again, or write the shard again"
            )
        count = max(int(offsets[-1]), 0)
        check_size(data, count * width, f"and {index.name}, with {width} bytes a token, asks for")
        overlaps = map_file(index, "<u2", entries, HEADER.size + 8 * (entries + 1))
        problems = _index_problems(index, offsets[1:], overlaps, count)
        return Parsed(map_file(data, f"<u{width}", count), offsets[1:], overlaps=overlaps, of_ends=problems)


open, shard_files, verify, write = GptSimple.open, GptSimple.shard_files, GptSimple.verify, GptSimple.write  # noqa: A001  # public as gpt_simple.open


def read_index_header(index: Path, header: struct.Struct, magic: bytes, at: int, project: str) -> tuple[Any, ...]:
    """Return the numbers of a header after its magic bytes and version, which is 1 and begins at byte ``at``."""
    file_bytes(index)
    with index.open("rb") as file:
        head = file.read(header.size)
    if len(head) < header.size or not head.startswith(magic):
        name = magic.rstrip(b"\0").decode()
        raise CorruptionError(
            f"{index} does not begin with {name} and {header.size - len(name)} bytes more: it is not an index of "
            f"{project}"
        )
    _, version, *numbers = header.unpack(head)
    if version != VERSION:
        raise FormatError(
            f"{index} has version {version:,} at byte {at}, but this longcrawl reads {VERSION}: upgrade longcrawl"
        )
    return tuple(numbers)


def _index_problems(
    index: Path, ends: npt.NDArray[np.int64], overlaps: npt.NDArray[np.uint16], tokens: int
) -> Iterator[str]:
    falling = list(shard.end_problems(ends, tokens, index, lambda number: HEADER.size + 8 * (number + 1)))
    yield from falling
    too_long = np.flatnonzero(overlaps > np.diff(ends, prepend=0))
    for number in [] if falling else too_long[:1].tolist():
        yield (
            f"{index} gives at byte {HEADER.size + 8 * (len(ends) + 1) + 2 * number:,} document {number:,} an overlap "
            f"of {int(overlaps[number]):,} tokens, more than it has: write the shard again"
        )


def _read_header(index: Path) -> tuple[int, int]:
    """Return the bytes of a token and the number of entries, after checking that the size of the index fits them."""
    width, entries = read_index_header(index, HEADER, MAGIC, 4, "GPT-Simple")
    if width not in (2, 4):
        raise CorruptionError(f"{index} has the token type {width:,} at byte 8, where 2 or 4 must be: fetch it again")
    check_size(
        index, HEADER.size + 8 * (entries + 1) + 2 * entries, f"and its header, with {entries:,} entries, asks for"
    )
    return width, entries


def _header(stream: DocumentStream, data: Path) -> bytes:
    if stream.documents > MOST_ENTRIES:
        raise FormatError(
            f"{data} would have {stream.documents:,} documents, but an index holds {MOST_ENTRIES:,}: split it"
        )
    if stream.documents and not stream.tokens:
        raise FormatError(f"{data} would have documents without tokens, which GPT-Simple cannot map: exclude it")
    return HEADER.pack(MAGIC, VERSION, stream.token_type.itemsize, stream.documents)


def _overlaps(batch: Documents, documents: int) -> npt.NDArray[np.int64]:
    if batch.overlaps is None:
        return np.zeros(len(batch.lengths), np.int64)
    if len(batch.overlaps) and batch.overlaps.max() > MOST_OVERLAP:
        number = int(np.argmax(batch.overlaps > MOST_OVERLAP))
        raise FormatError(
            f"document {documents - len(batch.lengths) + number:,} has an overlap of {int(batch.overlaps[number]):,} "
            f"tokens, but GPT-Simple's index holds {MOST_OVERLAP:,}: lower overlap_size"
        )
    return batch.overlaps
