"""Transfer and content codings of HTTP bodies, undone up to the byte where a body is cut or damaged.

Libraries throw away what a step gave that failed. So the stream is decoded again up to that step, and that step byte
by byte: what comes before the damage is kept.
"""

import re
import zlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import zstandard
from isal import isal_zlib

from longcrawl.errors import SourceError
from longcrawl.sources.framing import GZIP, ZSTD, is_skippable

State = Literal["whole", "cut", "damaged"]

WINDOW_BYTES = 8 << 20
"""The window of zstd as a content coding is at most this (RFC 9659)."""

LEAST_BYTES = 64
"""How much of a body must decode to text where nothing at its beginning names its coding, and its end is not all."""

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]{0,4096}+|\r*+)\n")
_LINE_END = re.compile(rb"\r*\n")
_TRAILERS = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n)*[ \t\r\n]*\Z")
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters that no text has, UTF-16 aside."""


class _Stream(ABC):
    """A decoder of one stream."""

    step: ClassVar[int]
    """Bytes that are decoded at a time: as few as hold what they decode to."""
    errors: tuple[Any, ...]
    _stream: Any

    @abstractmethod
    def __init__(self, head: bytes, again: bool) -> None:  # noqa: FBT001  # of _decode alone
        """Begin with the first bytes of a stream; ``again`` where decoding it has failed before."""

    @staticmethod
    def is_named(head: bytes) -> bool:  # noqa: ARG004  # most look
        """Return whether bytes begin as every stream of this coding does; False where those begin with anything."""
        return False

    @staticmethod
    def follows(head: bytes) -> bool:  # noqa: ARG004  # most look
        """Return whether another stream begins behind the end of one."""
        return False

    @abstractmethod
    def decode(self, piece: bytes, most: int) -> bytes:
        """Return what follows, of which more than ``most`` may be left out."""

    @property
    def ended(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused(self) -> int:
        """Bytes of the last piece that are behind the end."""
        return len(self._stream.unused_data)


class _Deflate(_Stream):
    """gzip, and deflate with a header or, as servers are fond of too, without."""

    step = 1 << 16
    errors = (isal_zlib.error, zlib.error)

    def __init__(self, head: bytes, again: bool) -> None:  # noqa: FBT001  # of _decode alone
        bits = 31 if head.startswith(GZIP[:2]) else 15 if self.is_named(head) else -15
        # ISA-L fails at headers that come in pieces.
        self._stream = (zlib if again else isal_zlib).decompressobj(bits)

    @staticmethod
    def is_named(head: bytes) -> bool:
        is_zlib = len(head) > 1 and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        return is_zlib or head.startswith(GZIP[:2])

    @staticmethod
    def follows(head: bytes) -> bool:
        return head.startswith(GZIP)

    def decode(self, piece: bytes, most: int) -> bytes:
        data: bytes = self._stream.decompress(piece, most)
        return data


class _Zstd(_Stream):
    step = 512
    """Four bytes may become 128 kB, and all of a step comes at once."""
    errors = (zstandard.ZstdError,)

    def __init__(self, *_: object) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()

    @staticmethod
    def is_named(head: bytes) -> bool:
        return head[:4] == ZSTD or is_skippable(head[:4])

    follows = is_named

    def decode(self, piece: bytes, most: int) -> bytes:  # noqa: ARG002  # zstandard has no bound
        data: bytes = self._stream.decompress(piece)
        return data


class _Brotli(_Stream):
    step = 1 << 10
    unused = 0  # what follows the end is an error of the step

    def __init__(self, *_: object) -> None:
        try:
            import brotli
        except ImportError as error:
            raise SourceError(
                "a page is compressed with Brotli, which needs an extra; type pip install 'longcrawl[warc]'"
            ) from error
        self._stream, self.errors = brotli.Decompressor(), (brotli.error,)

    def decode(self, piece: bytes, most: int) -> bytes:
        data = bytearray(self._stream.process(piece, output_buffer_limit=most))
        while len(data) < most and not (self.ended or self._stream.can_accept_more_data()):
            data += self._stream.process(b"", output_buffer_limit=most - len(data))
        return bytes(data)

    @property
    def ended(self) -> bool:
        return bool(self._stream.is_finished())


_CODINGS: dict[str, type[_Stream]] = {"gzip": _Deflate, "deflate": _Deflate, "br": _Brotli, "zstd": _Zstd}


def undo(coding: str, body: bytes, most_bytes: int) -> tuple[bytes, State]:
    """Undo one content coding: return the data and how they end; more than ``most_bytes`` if there are more.

    Several gzip members or zstd frames are joined. Other bytes behind the end are ignored, unless nothing but they
    says that the body is encoded: text may begin with what Brotli takes for a whole stream.
    """
    kind = _CODINGS.get(coding)
    if kind is None:
        return b"", "damaged"
    data, place, view = bytearray(), 0, memoryview(body)
    state: State = "whole"
    while state == "whole" and len(data) <= most_bytes and (not place or kind.follows(body[place : place + 4])):
        piece, used, state = _decode(kind, view[place:], most_bytes - len(data))
        data += piece
        place += used
    is_sure = kind.is_named(body[:4]) or state == "cut" or (state == "whole" and place == len(body))
    if not is_sure and (len(data) < LEAST_BYTES or BINARY.search(data, 0, 1024)):
        return b"", "damaged"
    return bytes(data), state


def _decode(kind: type[_Stream], body: memoryview, most: int) -> tuple[bytearray, int, State]:
    """Decode one stream; return its data, how many bytes it has, and how it ends."""
    failed: int | None = None
    while True:
        stream: Any = kind(bytes(body[:4]), failed is not None)
        data, place, step = bytearray(), 0, 0
        try:
            while not stream.ended and place < len(body) and len(data) <= most:
                step = 1 if failed is not None and 0 <= place - failed < stream.step else stream.step
                data += stream.decode(bytes(body[place : place + step]), most + 1 - len(data))
                place += step
        except stream.errors:
            if step == 1:
                return data, place, "damaged"
            failed = place
            continue
        return data, min(place, len(body)) - stream.unused, "whole" if stream.ended else "cut"


def join_chunks(body: bytes | memoryview) -> tuple[bytes, str | None] | None:
    """Join the chunks of a body, and say whether it is cut; None where it has none, as of a crawler that joined them.

    Text may begin with a hexadecimal number, too: one such line counts as a size if it ends in CR LF, or if its chunk
    is the whole body.
    """
    joined, place, sizes, is_strict = bytearray(), 0, 0, True
    while (size := _CHUNK.match(body, place)) is not None:
        sizes += 1
        is_strict = is_strict and size[0].endswith(b"\r\n")
        length = int(size[1], 16)
        if length == 0:
            return (bytes(joined), None) if sizes > 1 or _TRAILERS.match(body, size.end()) else None
        data = body[size.end() : size.end() + length]
        joined += data
        place = size.end() + length
        if len(data) < length:
            break
        line = _LINE_END.match(body, place)
        place = line.end() if line else place
    return (bytes(joined), "chunks") if sizes > 1 or (sizes and is_strict) else None


def named_codings(field: str) -> list[str]:
    """Return what a field ``Content-Encoding`` names, in the order in which it was done."""
    codings = (coding.strip().lower() for coding in field.split(","))
    return [coding.removeprefix("x-") for coding in codings if coding not in ("", "identity", "none")]
