"""What an HTTP response holds: its status, its headers and its body as the server meant it.

Archives keep messages as they came over the wire, or with the transfer and content encodings undone and the headers
left as they were, so a body that is not encoded as its header says stands as it is, unless it is binary.
"""

import re
from dataclasses import dataclass
from typing import Any

import zstandard
from isal import isal_zlib

from longcrawl.errors import SourceError
from longcrawl.sources.warc.records import HEADER_BYTES, Fields, parse_fields

__all__ = ["LeftOutError", "Message", "body_of", "parse_message"]

CODINGS = 3
"""How many content codings may lie over each other."""

WINDOW_BYTES = 8 << 20
"""The window of zstd as a content coding is at most this (RFC 9659)."""

_STATUS = re.compile(rb"HTTP/\d+(?:\.\d+)?[ \t]+(\d{3})(?!\d)")
_HEADER_END = re.compile(rb"\n\r*\n")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]{0,4096}+|\r*+)\n")
_LINE_END = re.compile(rb"\r*\n")
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_LENGTH = re.compile(r"\d{1,18}")


class LeftOutError(Exception):
    """A record is no document, by the rule that this names."""


@dataclass(frozen=True)
class Message:
    """An HTTP response: ``status`` is None where it has none that can be read."""

    status: int | None
    fields: Fields
    body: bytes


def parse_message(block: bytes) -> Message:
    """Parse the block of a response record; answers such as 100 Continue, which come before it, are passed over."""
    start = 0
    while True:
        status = _STATUS.match(block, start)
        end = _HEADER_END.search(block, start, start + HEADER_BYTES)
        if not (status and end and status[1].startswith(b"1") and _STATUS.match(block, end.end())):
            break
        start = end.end()
    head, body = (block[start : end.start()], block[end.end() :]) if end else (b"", b"")
    return Message(int(status[1]) if status else None, parse_fields(head), body)


def body_of(message: Message, most_bytes: int) -> tuple[bytes, str | None]:
    """Undo the transfer and content encodings of a body; say by what it was cut, if it was.

    Raises:
        LeftOutError: it is larger than ``most_bytes``, or encoded in a way that is not known.

    """
    fields, body, cut = message.fields, message.body, None
    chunked = "chunked" in fields.get("transfer-encoding", "").lower()
    if chunked and (found := _dechunk(body)) is not None:
        body, cut = found
    elif (length := fields.get("content-length", "").split(",")[0].strip()) and _LENGTH.fullmatch(length):
        cut = "body" if len(body) < int(length) else None
    codings = [coding.strip().lower() for coding in fields.get("content-encoding", "").split(",")]
    codings = [coding.removeprefix("x-") for coding in codings if coding not in ("", "identity", "none")]
    if len(codings) > CODINGS:
        raise LeftOutError("content_encoding")
    for coding in reversed(codings) if body else ():
        body, whole = _undo(coding, body, most_bytes)
        cut = cut or (None if whole else "content_encoding")
    return body, cut


def _undo(coding: str, body: bytes, most_bytes: int) -> tuple[bytes, bool]:
    """Undo one coding: give the data, and whether it is all."""
    undo = {"gzip": _inflate, "deflate": _inflate, "br": _unbrotli, "zstd": _unzstd}.get(coding)
    data, whole = undo(body, most_bytes) if undo else (b"", False)
    if len(data) > most_bytes:
        raise LeftOutError("max_record_bytes")
    if whole or (data and _BINARY.search(body, 0, 1024)):
        return data, whole
    if _BINARY.search(body, 0, 1024):
        raise LeftOutError("content_encoding")
    return body, True


def _dechunk(body: bytes) -> tuple[bytes, str | None] | None:
    """Join the chunks of a body; None if it does not begin with one."""
    joined, place = bytearray(), 0
    while (size := _CHUNK.match(body, place)) is not None:
        length = int(size[1], 16)
        if length == 0:
            return bytes(joined), None
        data = body[size.end() : size.end() + length]
        joined += data
        if len(data) < length:
            return bytes(joined), "chunks"
        place = size.end() + length
        line = _LINE_END.match(body, place)
        place = line.end() if line else place
    return (bytes(joined), "chunks") if place else None


def _inflate(body: bytes, most_bytes: int) -> tuple[bytes, bool]:
    """Undo gzip and deflate by what the body begins with; of deflate without a header, servers are fond too."""
    errors: Any = isal_zlib.error
    gzip = body.startswith(b"\x1f\x8b")
    zlib = len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0
    data, place, more = bytearray(), 0, True
    while more:
        stream, rest = isal_zlib.decompressobj(31 if gzip else 15 if zlib else -15), b""
        while not stream.eof:
            rest = rest or body[place : place + (1 << 16)]
            place += 0 if stream.unconsumed_tail else len(rest)
            try:
                piece = stream.decompress(rest, most_bytes + 1 - len(data))
            except errors:
                return bytes(data), False
            data += piece
            if len(data) > most_bytes or not (rest or piece):
                return bytes(data), False
            rest = stream.unconsumed_tail
        place -= len(stream.unused_data)
        more = gzip and body.startswith(b"\x1f\x8b", place)
    return bytes(data), True


def _unbrotli(body: bytes, most_bytes: int) -> tuple[bytes, bool]:
    try:
        import brotli
    except ImportError as error:
        raise SourceError(
            "a page is compressed with Brotli, which needs an extra; type pip install 'longcrawl[warc]'"
        ) from error
    stream, data = brotli.Decompressor(), bytearray()
    try:
        data += stream.process(body, output_buffer_limit=most_bytes + 1)
        while len(data) <= most_bytes and not stream.is_finished() and not stream.can_accept_more_data():
            data += stream.process(b"", output_buffer_limit=most_bytes + 1)
    except brotli.error:
        return bytes(data), False
    return bytes(data), stream.is_finished()


def _unzstd(body: bytes, most_bytes: int) -> tuple[bytes, bool]:
    data = bytearray()
    with zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(
        body, read_across_frames=True
    ) as reader:
        try:
            while len(data) <= most_bytes and (piece := reader.read(1 << 20)):
                data += piece
        except zstandard.ZstdError:
            return bytes(data), False
    return bytes(data), True
