"""Lines of a file, gzip and zstd decompressed, in blocks that always have the same ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from longcrawl.builders.files import DamagedFileError, local_copy

__all__ = ["BLOCK_BYTES", "read_blocks", "read_bytes"]

BLOCK_BYTES = 32_000_000
"""How much uncompressed text a table holds at most, unless one line is longer."""

READ_BYTES = 65_536
"""How much of a compressed file is decompressed at a time."""

CAREFUL_BYTES = 256
"""The same just before a damaged spot: what the spot can take with it."""


def read_bytes(path: str) -> bytes:
    """Read a file whole, decompressed by its ending.

    Raises:
        DamagedFileError: it is missing, cut or corrupt.

    """
    return b"".join(_pieces(path))


def read_blocks(path: str, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Read whole lines of a file, decompressed by its ending (``.gz``, ``.zst``), in blocks.

    A block ends at the last line end within ``block_bytes``, or at the first one after it where a line is longer, so
    blocks depend on the text only. Only the last block may lack the line end.

    Raises:
        DamagedFileError: after the last whole line before the damage has been yielded.

    """
    pending: list[bytes] = []
    size, has_end, damage = 0, False, None
    pieces = _pieces(path)
    while True:
        try:
            piece = next(pieces, None)
        except DamagedFileError as error:
            piece, damage = None, error
        if piece is None:
            break
        pending.append(piece)
        size += len(piece)
        has_end = has_end or b"\n" in piece
        while size > block_bytes and has_end:
            text = b"".join(pending)
            cut = (text.rfind(b"\n", 0, block_bytes) + 1) or (text.find(b"\n", block_bytes) + 1)
            yield text[:cut]
            pending, size, has_end = [text[cut:]], len(text) - cut, b"\n" in text[cut:]
    text = b"".join(pending)
    if damage is not None:
        text = text[: text.rfind(b"\n") + 1]
    if text:
        yield text
    if damage is not None:
        raise damage


def _pieces(path: str) -> Iterator[bytes]:
    with local_copy(path) as copy:
        try:
            with Path(copy).open("rb") as file:
                if path.endswith(".gz"):
                    # ISA-L inflates 2.1 times as fast as zlib, which bounds the reading of documents.
                    from isal import isal_zlib

                    errors: Any = (isal_zlib.error,)
                    yield from _inflate(file, lambda: isal_zlib.decompressobj(31), errors)
                elif path.endswith(".zst"):
                    import zstandard

                    yield from _inflate(file, zstandard.ZstdDecompressor().decompressobj, (zstandard.ZstdError,))
                else:
                    yield from iter(lambda: file.read(1 << 20), b"")
        except FileNotFoundError as error:
            raise DamagedFileError("is missing") from error
        except OSError as error:
            raise DamagedFileError(f"cannot be read: {error.strerror or error}") from error


def _inflate(file: BinaryIO, new_stream: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Iterator[bytes]:
    """Decompress a file up to the damage, if any: what a failed step loses is got again in small steps."""
    done = 0
    try:
        for text in _members(file, new_stream, READ_BYTES):
            yield text
            done += len(text)
    except errors:
        file.seek(0)
        try:
            for text in _members(file, new_stream, CAREFUL_BYTES):
                if done < len(text):
                    yield text[done:]
                done = max(done - len(text), 0)
        except errors as error:
            raise DamagedFileError(f"is corrupt: {error}") from error


def _members(file: BinaryIO, new_stream: Callable[[], Any], step: int) -> Iterator[bytes]:
    """Decompress one gzip member or zstd frame after the other; zeros that pad the end are no damage."""
    stream, started, any_read = new_stream(), False, False
    for piece in iter(lambda: file.read(step), b""):
        rest, any_read = piece, True
        while rest and (started or rest.strip(b"\0")):
            if text := stream.decompress(rest):
                yield text
            rest, started = stream.unused_data, True
            if stream.eof:
                stream, started = new_stream(), False
    if started or not any_read:
        raise DamagedFileError("is cut: it ends before its compressed data does")
