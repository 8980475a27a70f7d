"""Transfer and content codings of HTTP bodies, undone up to the byte where a body is cut or damaged.

Libraries throw away what a step gave that failed. So the stream is decoded again up to that step, and from there byte
by byte: what comes before the damage is kept.
"""

import re
import zlib
from typing import Any, ClassVar, Literal, Protocol

import zstandard
from isal import isal_zlib

from longcrawl.errors import SourceError

State = Literal["whole", "cut", "damaged"]

WINDOW_BYTES = 8 << 20
"""The window of zstd as a content coding is at most this (RFC 9659)."""

LEAST_BYTES = 64
"""How much of a damaged body must decode where nothing at its beginning names its coding."""

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]{0,4096}+|\r*+)\n")
_LINE_END = re.compile(rb"\r*\n")
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters that no text has, UTF-16 aside."""


class _Stream(Protocol):
    """A decoder of one stream."""

    step: ClassVar[int]
    """Bytes that are decoded at a time: as few as hold what they decode to."""
    errors: tuple[Any, ...]

    def __init__(self, head: bytes, *, careful: bool) -> None: ...

    @staticmethod
    def begins(head: bytes) -> bool:
        """Return whether bytes begin as every stream of this coding does; False where those begin with anything."""

    def decode(self, piece: bytes, most: int) -> bytes:
        """Return what follows, of which more than ``most`` may be left out."""

    @property
    def ended(self) -> bool: ...

    @property
    def unused(self) -> int:
        """Bytes of the last piece that are behind the end."""


class _Deflate:
    """gzip, and deflate with a header or, as servers are fond of too, without."""

    step: ClassVar = 1 << 16
    errors: tuple[Any, ...] = (isal_zlib.error, zlib.error)

    def __init__(self, head: bytes, *, careful: bool) -> None:
        bits = 31 if head.startswith(b"\x1f\x8b") else 15 if self.begins(head) else -15
        # ISA-L fails at headers that come in pieces.
        library: Any = zlib if careful else isal_zlib
        self._stream = library.decompressobj(bits)

    @staticmethod
    def begins(head: bytes) -> bool:
        is_zlib = len(head) > 1 and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        return is_zlib or head.startswith(b"\x1f\x8b")

    def decode(self, piece: bytes, most: int) -> bytes:
        data: bytes = self._stream.decompress(piece, most)
        return data

    @property
    def ended(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused(self) -> int:
        return len(self._stream.unused_data)


class _Zstd:
    step: ClassVar = 512
    """Four bytes may become 128 kB, and all of a step comes at once."""
    errors: tuple[Any, ...] = (zstandard.ZstdError,)

    def __init__(self, head: bytes, *, careful: bool) -> None:  # noqa: ARG002  # alike for all
        self._stream = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()

    @staticmethod
    def begins(head: bytes) -> bool:
        return head[:4] == b"\x28\xb5\x2f\xfd" or head[1:4] == b"\x2a\x4d\x18"

    def decode(self, piece: bytes, most: int) -> bytes:  # noqa: ARG002  # alike for all
        return self._stream.decompress(piece)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def unused(self) -> int:
        return len(self._stream.unused_data)


class _Brotli:
    step: ClassVar = 1 << 10
    unused: ClassVar = 0
    """What follows a stream is an error of its last step."""

    def __init__(self, head: bytes, *, careful: bool) -> None:  # noqa: ARG002  # alike for all
        try:
            import brotli
        except ImportError as error:
            raise SourceError(
                "a page is compressed with Brotli, which needs an extra; type pip install 'longcrawl[warc]'"
            ) from error
        self._stream, self.errors = brotli.Decompressor(), (brotli.error,)

    @staticmethod
    def begins(head: bytes) -> bool:  # noqa: ARG004  # alike for all
        return False

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
    """Undo one content coding: return the data and how it ends; some more than ``most_bytes`` where there are more.

    Streams that follow each other are joined, and what follows a stream and is none is passed over.
    """
    kind = _CODINGS.get(coding)
    if kind is None:
        return b"", "damaged"
    data, place, view = bytearray(), 0, memoryview(body)
    state: State = "whole"
    while state == "whole" and len(data) <= most_bytes and (not place or kind.begins(body[place : place + 4])):
        piece, used, state = _decode(kind, view[place:], most_bytes - len(data))
        data += piece
        place += used
    is_named = kind.begins(body[:4])
    if state == "damaged" and not is_named and (len(data) < LEAST_BYTES or BINARY.search(data, 0, 1024)):
        return b"", state
    return bytes(data), state


def _decode(kind: type[_Stream], body: memoryview, most: int) -> tuple[bytearray, int, State]:
    """Decode one stream; return its data, how many bytes it has, and how it ends."""
    careful_from = len(body)
    while True:
        stream = kind(bytes(body[:4]), careful=careful_from < len(body))
        data, place, step = bytearray(), 0, 0
        try:
            while not stream.ended and place < len(body) and len(data) <= most:
                step = stream.step if place < careful_from else 1
                data += stream.decode(bytes(body[place : place + step]), most + 1 - len(data))
                place += step
        except stream.errors:
            if step == 1:
                return data, place, "damaged"
            careful_from = place
            continue
        return data, min(place, len(body)) - stream.unused, "whole" if stream.ended else "cut"


def join_chunks(body: bytes | memoryview) -> tuple[bytes, str | None] | None:
    """Join the chunks of a body, and say whether it is cut; None where it has none, as of a crawler that joined them.

    Text may begin with a hexadecimal number, too: lines that end in LF alone are sizes only where chunks are the whole
    body.
    """
    joined, place, is_strict = bytearray(), 0, True
    while (size := _CHUNK.match(body, place)) is not None:
        is_strict = is_strict and size[0].endswith(b"\r\n")
        length = int(size[1], 16)
        if length == 0:
            return (bytes(joined), None) if is_strict or not bytes(body[size.end() :]).strip() else None
        data = body[size.end() : size.end() + length]
        joined += data
        place = size.end() + length
        if len(data) < length:
            break
        line = _LINE_END.match(body, place)
        place = line.end() if line else place
    return (bytes(joined), "chunks") if place and is_strict else None


def named_codings(field: str) -> list[str]:
    """Return what a field ``Content-Encoding`` names, in the order in which it was done."""
    codings = (coding.strip().lower() for coding in field.split(","))
    return [coding.removeprefix("x-") for coding in codings if coding not in ("", "identity", "none")]
