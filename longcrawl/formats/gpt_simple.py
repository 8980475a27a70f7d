"""GPT-Simple's pretokenised shards: ``.bin`` and ``.idx``.

Specification
-------------
``NAME.bin`` holds tokens, little-endian uint16 or uint32, no header. ``NAME.idx`` is little-endian, too:

===================== ==================================================================================
bytes                 what
===================== ==================================================================================
0                     ``GPTS``
4                     uint32 version, 1
8                     uint32 type of the tokens: 2 is uint16, 4 is uint32
12                    uint32 number of entries, *n*
16                    int64 x (*n* + 1): where each entry starts, counted in tokens, then the number of tokens
16 + 8 (*n* + 1)      uint16 x *n*: with how many tokens of the entry before it each begins; no loss is due on them
===================== ==================================================================================

An entry is a document or a window of a long one. A document's last token is the end-of-document token; of its windows
only the last one has it. The files do not say its id, nor the size of the vocabulary. GPT-Simple itself takes
uint16 for fewer than 65,536 ids.

Here an entry is a document of the shard, with its ``overlap``. An overlap of more than 65,535 tokens is refused;
GPT-Simple 0.1.2 writes it modulo 65,536.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats._token_shard_checks import (
    Check,
    Opened,
    block_problems,
    check_ids,
    check_size,
    check_word,
    checked,
    end_problems,
    file_bytes,
    first_checksums,
    id_problems,
    local_path,
    map_file,
    verification,
)
from longcrawl.formats._token_shard_writing import (
    DocumentBatch,
    DocumentStream,
    OnLoss,
    Terminate,
    TokenType,
    WrittenShard,
    append_spool,
    number_spool,
    report_losses,
    whole_shard,
    write_array,
    written_files,
)
from longcrawl.formats.token_shard import OVERLAP, Documents, TokenShard
from longcrawl.results import Verification

__all__ = ["NAME", "SUFFIX", "open", "shard_files", "verify", "write"]

NAME = "gpt-simple"
SUFFIX = ".bin"
OTHER_SUFFIXES = (".ds", ".index", ".parquet", ".zarr", ".npy", ".json", ".jsonl", ".txt", ".gz", ".zst")
"""Endings that say another format; others are part of a name, as in ``part-0.5``."""
MAGIC, VERSION = b"GPTS", 1
HEADER = struct.Struct("<4sIII")
MOST_ENTRIES = (1 << 32) - 1
MOST_OVERLAP = (1 << 16) - 1


def write(
    documents: Iterable[DocumentBatch] | DocumentBatch,
    path: "str | Path",
    *,
    dtype: TokenType = "auto",
    end_of_text: int | None = None,
    terminate: Terminate | None = None,
    vocabulary_size: int | None = None,
    on_loss: OnLoss = "error",
) -> WrittenShard:
    """Write a shard; documents are taken as they come, and memory holds one table of them at a time.

    Args:
        documents: tables, or one, with a column ``tokens`` and, if need be, ``overlap``; others are not written.
        path: of the ``.bin`` file, or of the ``.idx`` file, or either without its ending.
        dtype: what a token is stored as; "auto" goes by ``vocabulary_size``, and where that is not named by the
            first table.
        end_of_text: the id to end documents with; None leaves documents as they are.
        terminate: whether it is added where it is "missing", "always", or "never"; None for the first if it is named.
        vocabulary_size: an id that is not below it is an error.
        on_loss: what is done about a loss mask, which the format cannot hold.

    Raises:
        FormatError: tokens or overlaps cannot be stored, or a loss mask would be lost; no file is changed.
        StageError: no column ``tokens``.

    """
    files = shard_files(path)
    stream = DocumentStream(documents, dtype, end_of_text, terminate, vocabulary_size, frozenset([OVERLAP]))
    with number_spool(files[0]) as overlaps, whole_shard(*files) as (data, index):
        with data.open("wb") as tokens, index.open("wb") as idx:
            idx.write(bytes(HEADER.size))
            write_array(idx, np.zeros(1), np.int64)
            for batch in stream:
                write_array(tokens, batch.tokens, stream.token_type)
                write_array(idx, stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths), np.int64)
                write_array(overlaps, _overlaps(batch, stream.documents), np.uint16)
            append_spool(idx, overlaps)
            idx.seek(0)
            idx.write(_header(stream, files[0]))
        losses = report_losses(stream.losses(), on_loss, NAME)
    return WrittenShard(str(files[0]), written_files(*files), stream.documents, stream.tokens, losses)


def open(  # noqa: A001  # gpt_simple.open reads as it should; files are opened by Path.open here
    path: "str | Path",
    *,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
    check: Check = "everything",
) -> TokenShard:
    """Open a shard.

    Args:
        path: of the ``.bin`` file, or of the ``.idx`` file, or either without its ending.
        end_of_text: the id that documents end with, for whoever reads the shard.
        vocabulary_size: every id is compared with it under "everything".
        check: what is looked at: "sizes", also where documents "ends", or "everything".

    Raises:
        FormatError: there is no such file.
        CorruptionError: the files contradict each other or the settings; the message names file and byte.

    """
    return checked(_open(path, end_of_text, vocabulary_size, check))


def verify(path: "str | Path", *, end_of_text: int | None = None, vocabulary_size: int | None = None) -> Verification:
    """Look at everything, and say all that is wrong; see :func:`open`.

    Raises:
        FormatError: there is no such file.

    """
    return verification(path, lambda: _open(path, end_of_text, vocabulary_size, "everything"))


def shard_files(path: "str | Path") -> tuple[Path, Path]:
    """Name the two files of a shard by either of them, or by what both begin with.

    Raises:
        FormatError: the path ends as another format's files do.

    """
    file = local_path(path)
    if file.suffix in OTHER_SUFFIXES:
        raise FormatError(f"{path} is no name of a shard of .bin and .idx: it must end in {SUFFIX}, or in neither")
    stem = file.with_suffix("") if file.suffix in (".bin", ".idx") else file
    return stem.with_name(f"{stem.name}.bin"), stem.with_name(f"{stem.name}.idx")


def _open(path: "str | Path", end_of_text: int | None, vocabulary_size: int | None, check: Check) -> Opened:
    check_word("check", check, Check)
    check_ids(end_of_text, vocabulary_size)
    data, index = shard_files(path)
    checksums = first_checksums(data, index)
    width, entries = _read_header(index)
    offsets = map_file(index, "<i8", entries + 1, HEADER.size)
    if offsets[0] != 0:
        raise CorruptionError(
            f"{index} says at byte {HEADER.size} that the first document starts at token {int(offsets[0]):,}, not 0: "
            "fetch it again, or write the shard anew"
        )
    check_size(data, max(int(offsets[-1]), 0) * width, f"and {index.name}, with {width} bytes a token, asks for")
    settings = {"end_of_text": end_of_text, "vocabulary_size": vocabulary_size}
    shard = TokenShard(
        str(data),
        NAME,
        map_file(data, f"<u{width}", max(int(offsets[-1]), 0)),
        offsets[1:],
        overlaps=map_file(index, "<u2", entries, HEADER.size + 8 * (entries + 1)),
        end_of_text=end_of_text,
        vocabulary_size=vocabulary_size,
        opened_by=(open, settings),
        checksums=checksums,
    )
    return shard, _problems(shard, check)


def _problems(shard: TokenShard, check: Check) -> Iterator[str]:
    data, index = shard_files(shard.path)
    yield from block_problems(shard, check)
    if check == "sizes":
        return
    falling = list(end_problems(shard.ends, len(shard.tokens), index, lambda number: HEADER.size + 8 * (number + 1)))
    yield from falling
    if not falling and shard.overlaps is not None:
        first_overlap = HEADER.size + 8 * (len(shard.ends) + 1)
        too_long = np.flatnonzero(shard.overlaps > np.diff(shard.ends, prepend=0))
        for number in too_long[:1].tolist():
            yield (
                f"{index} gives at byte {first_overlap + 2 * number:,} document {number:,} an overlap of "
                f"{int(shard.overlaps[number]):,} tokens, more than it has: write the shard anew"
            )
    if check == "everything":
        yield from id_problems(shard, data)


def _read_header(index: Path) -> tuple[int, int]:
    """Give bytes of a token and number of entries, after the size of the index has been found to fit them."""
    file_bytes(index)
    with index.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or head[:4] != MAGIC:
        raise CorruptionError(
            f"{index} does not begin with {MAGIC.decode()} and 12 bytes more: it is no GPT-Simple index"
        )
    _, version, width, entries = HEADER.unpack(head)
    if version != VERSION:
        raise FormatError(
            f"{index} is of version {version:,} at byte 4, this longcrawl reads {VERSION}: upgrade longcrawl"
        )
    if width not in (2, 4):
        raise CorruptionError(f"{index} has the token type {width:,} at byte 8, where 2 or 4 must be: fetch it again")
    check_size(
        index, HEADER.size + 8 * (entries + 1) + 2 * entries, f"and its header, with {entries:,} entries, asks for"
    )
    return width, entries


def _header(stream: DocumentStream, data: Path) -> bytes:
    if stream.documents > MOST_ENTRIES:
        raise FormatError(f"{data} would have {stream.documents:,} documents, an index counts {MOST_ENTRIES:,}: cut it")
    if stream.documents and not stream.tokens:
        raise FormatError(f"{data} would have documents and no token, which GPT-Simple cannot map: leave it out")
    return HEADER.pack(MAGIC, VERSION, stream.token_type.itemsize, stream.documents)


def _overlaps(batch: Documents, documents: int) -> npt.NDArray[np.int64]:
    if batch.overlaps is None:
        return np.zeros(len(batch.lengths), np.int64)
    if len(batch.overlaps) and batch.overlaps.max() > MOST_OVERLAP:
        number = int(np.argmax(batch.overlaps > MOST_OVERLAP))
        raise FormatError(
            f"document {documents - len(batch.lengths) + number:,} has an overlap of {int(batch.overlaps[number]):,} "
            f"tokens, GPT-Simple's index holds {MOST_OVERLAP:,}: make overlap_size smaller"
        )
    return batch.overlaps
