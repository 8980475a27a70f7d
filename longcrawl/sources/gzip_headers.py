"""Headers of gzip members, read whole: ISA-L takes some that come in pieces for damaged."""

from typing import BinaryIO

GZIP = b"\x1f\x8b\x08"
MOST_HEADER_BYTES = 1 << 20
"""What a header may take with the file name and the comment in it, whose length nothing bounds."""

_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
"""Flags that say what a header holds behind its first ten bytes."""


def rest_of_header(file: BinaryIO, begun: bytes, read_bytes: int) -> bytes | None:
    """Read on until the header that was begun is whole, or the file ends; return what was read.

    Returns:
        No bytes where the header is whole, has no field, or is not one. None where it is too long.
    """
    if begun[3:4] == b"\0":  # nearly all: ISA-L takes ten bytes that no field follows as they come
        return b""
    content = begun
    while (size := header_bytes(content)) is None and len(content) <= MOST_HEADER_BYTES:
        if not (piece := file.read(max(read_bytes, len(content)))):
            break
        content += piece
    is_too_long = (len(content) if size is None else size) > MOST_HEADER_BYTES
    return None if is_too_long else content[len(begun) :]


def header_bytes(content: bytes) -> int | None:
    """Count the bytes of the header that begins some content (RFC 1952, 2.3): 0 if none does, None if it is cut."""
    if not GZIP.startswith(content[: len(GZIP)]):
        return 0
    end = 10
    if len(content) < end:
        return None
    flags = content[3]
    if flags & _EXTRA:
        end += 2 + int.from_bytes(content[end : end + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag and not (end := content.find(0, end) + 1):
            return None
    if flags & _CHECKSUM:
        end += 2
    return end if end <= len(content) else None
