"""Flat files of tokens: nanoGPT's ``.bin``, and the same with the header of llm.c, which modded-nanogpt reads.

Specification
-------------
``NAME.bin`` of nanoGPT is little-endian uint16 tokens and nothing else. With a header it is

========== ======================================================================================
bytes      what
========== ======================================================================================
0          int32 20240520 where tokens are uint16, 20240801 where they are uint32
4          int32 version, 1 or 7 in the same order
8          int32 number of tokens
12         zeros up to byte 1,024
1,024      tokens, little-endian
========== ======================================================================================

There is no index. What separates documents is the end-of-text token: nanoGPT has it at the end of each document, llm.c
at the start. So ends can be found only by whoever knows its id, in one pass over the tokens; and documents that do not
have it there, or have it elsewhere, too, cannot be told apart from their neighbours. A file does not say its id, nor
the size of the vocabulary, nor, without a header, how wide a token is or how many there are: that such a file is cut is
not noticed.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

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
    file_bytes,
    find_ends,
    first_checksums,
    id_problems,
    local_path,
    map_file,
    verification,
)
from longcrawl.formats._token_shard_writing import (
    DocumentBatch,
    DocumentStream,
    Loss,
    OnLoss,
    Place,
    Terminate,
    TokenType,
    WrittenShard,
    report_losses,
    whole_shard,
    write_array,
    written_files,
)
from longcrawl.formats.token_shard import Documents, TokenShard
from longcrawl.results import Verification

__all__ = ["NAME", "SUFFIX", "Header", "has_header", "open", "refuse_wide", "shard_files", "verify", "write"]

NAME = "nanogpt"
SUFFIX = ".bin"
Header = Literal["none", "llm.c"]
HEADER = struct.Struct("<iii")
HEADER_BYTES = 1024
VERSIONS = {20240520: (1, 2), 20240801: (7, 4)}
"""The version, and the bytes of a token, by the number that a header begins with."""
MOST = (1 << 31) - 1


def write(
    documents: Iterable[DocumentBatch] | DocumentBatch,
    path: "str | Path",
    *,
    dtype: TokenType = "auto",
    end_of_text: int | None = None,
    terminate: Terminate | None = None,
    vocabulary_size: int | None = None,
    header: Header = "none",
    place: Place | None = None,
    on_loss: OnLoss = "error",
) -> WrittenShard:
    """Write a shard; documents are taken as they come, and memory holds one table of them at a time.

    Args:
        documents: tables, or one, with a column ``tokens``; other columns are not written.
        path: ends in ``.bin``.
        dtype: what a token is stored as; "auto" goes by ``vocabulary_size``, and where that is not named by the
            first table. nanoGPT itself reads uint16, so that without a header uint32 must be asked for.
        end_of_text: the id that separates documents.
        terminate: whether it is added where it is "missing", "always", or "never"; None for the first if it is named.
        vocabulary_size: an id that is not below it is an error.
        header: "llm.c" for its header, "none" for nanoGPT.
        place: whether the end-of-text token is at the "end" or the "start" of a document; None for what nanoGPT and
            llm.c do.
        on_loss: what is done about overlaps, a loss mask, and documents whose ends could not be found again.

    Raises:
        FormatError: tokens cannot be stored, or something would be lost; no file is changed.
        StageError: no column ``tokens``.

    """
    (file,) = shard_files(path)
    check_word("header", header, Header)
    where: Place = place or ("start" if header == "llm.c" else "end")
    stream = DocumentStream(documents, dtype, end_of_text, terminate, vocabulary_size, place=where)
    marks = _Marks(end_of_text, where)
    with whole_shard(file) as (beside,):
        with beside.open("wb") as tokens:
            tokens.write(bytes(HEADER_BYTES if header == "llm.c" else 0))
            for batch in stream:
                refuse_wide(stream.token_type, dtype, header)
                marks.count(batch)
                write_array(tokens, batch.tokens, stream.token_type)
            if header == "llm.c":
                tokens.seek(0)
                tokens.write(_header(stream, file))
        losses = report_losses([*marks.losses(), *stream.losses()], on_loss, NAME)
    return WrittenShard(str(file), written_files(file), stream.documents, stream.tokens, losses)


def open(  # noqa: A001  # nanogpt.open reads as it should; files are opened by Path.open here
    path: "str | Path",
    *,
    token_size: Literal[2, 4] | None = None,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
    header: Header | Literal["auto"] = "auto",
    place: Place | None = None,
    check: Check = "everything",
) -> TokenShard:
    """Open a shard.

    Args:
        path: ends in ``.bin``.
        token_size: bytes of a token; None for what the header says, and 2 where there is none.
        end_of_text: the id that separates documents; None leaves unknown where they end.
        vocabulary_size: every id is compared with it under "everything".
        header: whether there is one; "auto" looks for its first two numbers.
        place: where in a document the end-of-text token is; None for what nanoGPT and llm.c do.
        check: what is looked at; without an index there is nothing between "sizes" and "everything".

    Raises:
        FormatError: there is no such file.
        CorruptionError: it is cut or has grown, or contradicts the settings; the message names file and byte.

    """
    return checked(_open(path, token_size, end_of_text, vocabulary_size, header, place, check))


def verify(
    path: "str | Path",
    *,
    token_size: Literal[2, 4] | None = None,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
    header: Header | Literal["auto"] = "auto",
    place: Place | None = None,
) -> Verification:
    """Look at everything, and say all that is wrong; see :func:`open`.

    Raises:
        FormatError: there is no such file.

    """
    return verification(
        path, lambda: _open(path, token_size, end_of_text, vocabulary_size, header, place, "everything")
    )


def shard_files(path: "str | Path") -> tuple[Path]:
    """Name the file of a shard.

    Raises:
        FormatError: the path does not end in ``.bin``.

    """
    file = local_path(path)
    if file.suffix != SUFFIX:
        raise FormatError(f"{path} is no name of a flat file of tokens: it must end in {SUFFIX}")
    return (file,)


def has_header(file: Path) -> bool:
    """Say whether a file begins with the header of llm.c."""
    return _read_header(file) is not None


def refuse_wide(stored: "np.dtype[Any]", dtype: TokenType, header: Header) -> None:
    """Refuse uint32 where nothing in the file says so and nobody has asked for it, as readers take uint16.

    Raises:
        FormatError: saying what to type.

    """
    if stored == np.uint32 and header == "none" and dtype == "auto":
        raise FormatError(
            "tokens would be uint32 in a flat file without a header, which nanoGPT reads as uint16: name a "
            "vocabulary_size of 65,536 or less, or set dtype to 'uint32', or header to 'llm.c'"
        )


class _Marks:
    """Counts the documents that cannot be told apart by their end-of-text tokens."""

    def __init__(self, end_of_text: int | None, place: Place) -> None:
        self._end_of_text, self._place = end_of_text, place
        self._documents = self._lost = 0
        self._last_is_open = False

    def count(self, batch: Documents) -> None:
        """Look at the next documents."""
        if not len(batch.lengths):
            return
        self._documents += len(batch.lengths)
        ends = np.cumsum(batch.lengths)
        marks = np.flatnonzero(batch.tokens == self._end_of_text)
        found = np.searchsorted(marks, ends) - np.searchsorted(marks, ends - batch.lengths)
        some = batch.lengths > 0
        at_place = np.zeros(len(ends), bool)
        looked_at = (ends - 1 if self._place == "end" else ends - batch.lengths)[some]
        at_place[some] = batch.tokens[looked_at] == self._end_of_text
        lost = (found != 1) | ~at_place
        # What follows the last mark, or comes before the first, is a document of its own.
        edge = self._edge(lost, some & (found == 0))
        self._lost += int(np.count_nonzero(lost)) + edge

    def losses(self) -> list[Loss]:
        """Say which ends of the documents so far are lost."""
        if self._end_of_text is None:
            said = Loss("where {} documents end, as no end_of_text was given", self._documents)
            return [said] if self._documents else []
        what = f"the ends of {{}} documents, which do not have {self._end_of_text} at the {self._place} alone"
        return [Loss(what, self._lost)] if self._lost else []

    def _edge(self, lost: "npt.NDArray[np.bool_]", unmarked: "npt.NDArray[np.bool_]") -> int:
        """Clear the document at the open edge; give 1 if an earlier batch's turns out to have one after it."""
        if self._place == "start":
            if self._documents == len(lost) and unmarked[0]:
                lost[0] = False
            return 0
        earlier, self._last_is_open = self._last_is_open, bool(unmarked[-1])
        if self._last_is_open:
            lost[-1] = False
        return int(earlier)


def _open(
    path: "str | Path",
    token_size: Literal[2, 4] | None,
    end_of_text: int | None,
    vocabulary_size: int | None,
    header: Header | Literal["auto"],
    place: Place | None,
    check: Check,
) -> Opened:
    check_word("check", check, Check)
    check_word("token_size", token_size, (2, 4, None))
    check_word("header", header, ("auto", "none", "llm.c"))
    check_word("place", place, ("end", "start", None))
    check_ids(end_of_text, vocabulary_size)
    (file,) = shard_files(path)
    size = file_bytes(file)
    checksums = first_checksums(file)
    if checksums is not None:
        # A changed header would be read as tokens; all tokens are looked at for the ends of documents.
        checksums.files[SUFFIX].check(0, None if end_of_text is not None else 1)
    told = None if header == "none" else _read_header(file)
    if told is None and header == "llm.c":
        raise CorruptionError(f"{file} does not begin with the header of llm.c: open it with header='none'")
    width = told[0] if told else token_size or 2
    if token_size not in (None, width):
        raise FormatError(
            f"{file} says in its header that a token has {width} bytes, not {token_size}: leave token_size out"
        )
    first_byte = HEADER_BYTES if told else 0
    if told:
        check_size(file, HEADER_BYTES + told[1] * width, f"and its header, with {told[1]:,} tokens, asks for")
    elif size % width:
        raise CorruptionError(
            f"{file} has {size:,} bytes, which are no whole tokens of {width}: it is cut at byte {size:,}, or "
            "token_size is wrong"
        )
    tokens = map_file(file, f"<u{width}", (size - first_byte) // width, first_byte)
    at_start = (place or ("start" if told else "end")) == "start"
    settings = {"token_size": width, "end_of_text": end_of_text, "vocabulary_size": vocabulary_size}
    shard = TokenShard(
        str(file),
        NAME,
        tokens,
        None if end_of_text is None else find_ends(tokens, end_of_text, at_start=at_start),
        end_of_text=end_of_text,
        vocabulary_size=vocabulary_size,
        opened_by=(open, settings | {"header": "llm.c" if told else "none", "place": place}),
        checksums=checksums,
        first_byte=first_byte,
    )
    return shard, _problems(shard, file, check)


def _problems(shard: TokenShard, file: Path, check: Check) -> Iterator[str]:
    yield from block_problems(shard, check)
    if check == "everything":
        yield from id_problems(shard, file, shard.first_byte)


def _read_header(file: Path) -> tuple[Literal[2, 4], int] | None:
    """Give bytes of a token and number of tokens, None where the file does not begin as one with a header."""
    with file.open("rb") as opened:
        head = opened.read(HEADER_BYTES)
    if len(head) < HEADER.size:
        return None
    magic, version, tokens = HEADER.unpack_from(head)
    if magic not in VERSIONS or version != VERSIONS[magic][0] or any(head[HEADER.size :]):
        return None
    if tokens < 0:
        raise CorruptionError(f"{file} says at byte 8 that it has {tokens:,} tokens: fetch it again, or write it anew")
    return (2 if VERSIONS[magic][1] == 2 else 4), tokens


def _header(stream: DocumentStream, file: Path) -> bytes:
    if stream.tokens > MOST:
        raise FormatError(f"{file} would have {stream.tokens:,} tokens, the header of llm.c counts {MOST:,}: cut it")
    magic = next(magic for magic, (_, width) in VERSIONS.items() if width == stream.token_type.itemsize)
    return HEADER.pack(magic, VERSIONS[magic][0], stream.tokens)
