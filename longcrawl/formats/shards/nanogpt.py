"""Flat files of tokens: nanoGPT's ``.bin``, and the same with the header of llm.c, which modded-nanogpt reads.

Specification
-------------
``NAME.bin`` of nanoGPT is little-endian uint16 tokens and nothing else. With a header it is

========== ======================================================================================
bytes      what
========== ======================================================================================
0          int32 20240520 if tokens are uint16, 20240801 if they are uint32
4          int32 version, 1 or 7 in the same order
8          int32 number of tokens
12         zeros up to byte 1,024
1,024      tokens, little-endian
========== ======================================================================================

A file that begins with any other header of 1,024 bytes, such as that of NVIDIA NeMo AutoModel or of another version of
llm.c, is an error that names the header's first number, unless ``header="none"`` declares these bytes as tokens.

There is no index. The end-of-text token separates documents: nanoGPT has it at the end of each document, llm.c at the
start. So ends can be found only if its id is known, in one pass over the tokens. Documents that lack it there, or have
it also elsewhere, cannot be separated from their neighbours. Without a header, a cut file is not detected.
"""

import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, check_word
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.base import Opening, Parsed, ShardFormat, shard_format
from longcrawl.formats.shards.shard import Documents
from longcrawl.formats.shards.writing import DocumentStream, Loss, NewFiles, Place, TokenType, marks_of, write_array

NAME = "nanogpt"
SUFFIX = ".bin"
Header = Literal["none", "llm.c"]
HEADER = struct.Struct("<iii")
HEADER_BYTES = 1024
VERSIONS = {20240520: (1, 2), 20240801: (7, 4)}
"""Version and bytes of a token, by the first number of a header."""
FOREIGN = {278895051: "NVIDIA NeMo AutoModel"}
"""Projects whose headers are not supported, by the first number of their headers."""
LEAST_MAGIC = 1 << 20
MOST_VERSION = 1 << 16
MOST_FIELDS = 16
"""Most numbers of an unknown header before its zeros."""
MOST = (1 << 31) - 1


@shard_format(NAME)
class NanoGpt(ShardFormat):
    """Flat files of tokens; a path ends in ``.bin``."""

    suffix = SUFFIX

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Return whether a file without an index begins with the header of llm.c."""
        flat = path.suffix == SUFFIX and path.is_file() and not path.with_suffix(".idx").is_file()
        return flat and _read_header(path) is not None

    @classmethod
    def encode(
        cls, stream: DocumentStream, files: NewFiles, *, header: Header = "none", place: Place | None = None
    ) -> None:
        """Write tokens batch by batch, and count the documents whose ends could not be found again.

        Without a header, uint32 must be requested explicitly, as nanoGPT reads uint16. The end-of-text token is by
        default at the start of a document with the header of llm.c, and at its end without.
        """
        check_word("header", header, Header, FormatError)
        stream.place = ("start" if header == "llm.c" else "end") if place is None else place
        check_word("place", stream.place, Place, FormatError)
        marks = _Marks(stream.end_of_text, stream.place)
        tokens = files.open(SUFFIX)
        tokens.write(bytes(HEADER_BYTES if header == "llm.c" else 0))
        for batch in stream:
            check_width(stream.token_type, stream.dtype, header)
            marks.count(batch)
            write_array(tokens, batch.tokens, stream.token_type)
        if header == "llm.c":
            tokens.seek(0)
            tokens.write(_header(stream, files.path))
        stream.lost += marks.losses()

    @classmethod
    def decode(
        cls,
        opening: Opening,
        *,
        token_size: Literal[2, 4] | None = None,
        header: Header | Literal["auto"] = "auto",
        place: Place | None = None,
    ) -> Parsed:
        """Memory-map tokens, and find ends by the end-of-text token; without its id they are unknown.

        By default the width of a token is that in the header, or 2, the first two numbers tell whether there is a
        header, and the end-of-text token is at the place of llm.c or nanoGPT.
        """
        check_word("token_size", token_size, (2, 4, None), FormatError)
        check_word("header", header, ("auto", "none", "llm.c"), FormatError)
        check_word("place", place, ("end", "start", None), FormatError)
        (file,) = opening.files
        size = shard.file_bytes(file)
        # A changed header would be read as tokens. Finding the ends of documents reads all tokens.
        opening.compare(0, None if opening.end_of_text is not None else 1)
        found = None if header == "none" else _read_header(file)
        if found is None and header == "llm.c":
            raise CorruptionError(
                f"{file} does not begin with the header of llm.c: open it with header='none', or add --set "
                "reading.header=none"
            )
        width = found[0] if found else token_size or 2
        if token_size not in (None, width):
            raise FormatError(
                f"{file} records in its header that a token has {width} bytes, not {token_size}: remove token_size"
            )
        first_byte = HEADER_BYTES if found else 0
        if found:
            shard.check_size(file, first_byte + found[1] * width, f"and its header, with {found[1]:,} tokens, asks for")
        shard.check_whole(file, size - first_byte, width)
        tokens = shard.map_file(file, f"<u{width}", (size - first_byte) // width, first_byte)
        at_start = (place or ("start" if found else "end")) == "start"
        end = opening.end_of_text
        return Parsed(
            tokens,
            None if end is None else shard.find_ends(tokens, end, at_start=at_start),
            first_byte=first_byte,
            settings={"token_size": width, "header": "llm.c" if found else "none", "place": place},
        )


open, shard_files, verify, write = NanoGpt.open, NanoGpt.shard_files, NanoGpt.verify, NanoGpt.write  # noqa: A001  # public as nanogpt.open


def check_width(stored: "np.dtype[Any]", dtype: TokenType, header: Header) -> None:
    """Raise FormatError for uint32 that is neither recorded nor requested, since readers expect uint16."""
    if stored == np.uint32 and header == "none" and dtype == "auto":
        raise FormatError(
            "tokens would be uint32 in a flat file without a header, which nanoGPT reads as uint16: name a "
            "vocabulary_size of 65,536 or less, or set dtype to 'uint32', or header to 'llm.c' (in longcrawl convert, "
            "--set writing.header=llm.c)"
        )


class _Marks:
    """Counter of the documents that cannot be separated by their end-of-text tokens."""

    def __init__(self, end_of_text: int | None, place: Place) -> None:
        self._end_of_text, self._place = end_of_text, place
        self._documents = self._lost = 0
        self._last_is_open = False

    def count(self, batch: Documents) -> None:
        self._documents += len(batch.lengths)
        if not len(batch.lengths) or self._end_of_text is None:
            return
        found, at_place = marks_of(batch, self._end_of_text, self._place)
        lost = (found != 1) | ~at_place
        # Tokens after the last mark, or before the first, are read as one document.
        edge = self._edge(lost, (batch.lengths > 0) & (found == 0))
        self._lost += int(np.count_nonzero(lost)) + edge

    def losses(self) -> list[Loss]:
        if self._end_of_text is None:
            unknown = Loss("where {} documents end, as no end_of_text was given", self._documents)
            return [unknown] if self._documents else []
        what = f"the ends of {{}} documents, which do not have {self._end_of_text} at the {self._place} alone"
        return [Loss(what, self._lost)] if self._lost else []

    def _edge(self, lost: "npt.NDArray[np.bool_]", unmarked: "npt.NDArray[np.bool_]") -> int:
        """Count an unmarked document at the open edge as found; return 1 if the one before is lost after all."""
        if self._place == "start":
            if self._documents == len(lost) and unmarked[0]:
                lost[0] = False
            return 0
        earlier, self._last_is_open = self._last_is_open, bool(unmarked[-1])
        if self._last_is_open:
            lost[-1] = False
        return int(earlier)


def _read_header(file: Path) -> tuple[int, int] | None:
    """Return the bytes of a token and the number of tokens, or None if the file does not begin with a header."""
    with file.open("rb") as opened:
        head = opened.read(HEADER_BYTES)
    if len(head) < HEADER.size:
        return None
    magic, version, tokens = HEADER.unpack_from(head)
    if magic not in VERSIONS or version != VERSIONS[magic][0] or any(head[HEADER.size :]):
        _reject_unknown_header(file, head)
        return None
    if tokens < 0:
        raise CorruptionError(
            f"{file} records at byte 8 that it has {tokens:,} tokens: fetch it again, or write it again"
        )
    return VERSIONS[magic][1], tokens


def _reject_unknown_header(file: Path, head: bytes) -> None:
    """Raise FormatError if the first 1,024 bytes are an unsupported header.

    They are one if they begin with a known number and a version, or if only the first 16 numbers are not zero and the
    first three could be a magic number, a version and a count, which never holds for 500 tokens of text.
    """
    magic, version, count, *others = np.frombuffer(head, "<u4", len(head) // 4).tolist()
    named = magic in VERSIONS or magic in FOREIGN
    shaped = len(head) == HEADER_BYTES and magic >= LEAST_MAGIC and count and not any(others[MOST_FIELDS - 3 :])
    if version >= MOST_VERSION or not (named or shaped):
        return
    owner = "llm.c" if magic in VERSIONS else FOREIGN.get(magic, "an unknown project")
    raise FormatError(
        f"{file} begins with a header of {owner} that is not read (magic number {magic}, version {version}): write it "
        "again with the header of llm.c or without one, or set header='none' (--set reading.header=none) if these "
        "bytes are tokens"
    )


def _header(stream: DocumentStream, file: Path) -> bytes:
    if stream.tokens > MOST:
        raise FormatError(
            f"{file} would have {stream.tokens:,} tokens, but the header of llm.c counts up to {MOST:,}: split it"
        )
    magic = next(magic for magic, (_, width) in VERSIONS.items() if width == stream.token_type.itemsize)
    return HEADER.pack(magic, VERSIONS[magic][0], stream.tokens)
