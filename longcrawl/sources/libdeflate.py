"""Short gzip members, each decompressed by one call of libdeflate to memory that is used again.

The package ``deflate`` is libdeflate with functions for Python, which have to know where a member ends. Its extension
also has the functions of ``libdeflate.h``, which find that out, but for Windows.
"""

import ctypes
import weakref
from functools import cache
from io import BufferedIOBase
from typing import cast

import numpy as np

from longcrawl.sources.framing import GZIP

READ_BYTES = 1 << 18
"""How much of the file is read at a time."""

LEAST_BYTES = 1 << 17
"""How much of it is in memory at least when a member is decompressed: no member is cut off that is no longer."""

NOT_COMPARED = 0xE2
"""Flags of headers that are left to others: libdeflate does not compare their checksum; or they mean nothing."""


class ShortMembers:
    """A gzip file that gives bytes, and data of whole members: in memory that they share, until the next is read.

    >>> import gzip, io
    >>> file = ShortMembers(io.BytesIO(2 * gzip.compress(b"Hello", mtime=0) + b"..."), 1 << 20)
    >>> bytes(file.read_member()[0]), bytes(file.read_member()[0]), file.read_member(), file.read(9)
    (b'Hello', b'Hello', None, b'...')
    """

    def __init__(self, file: BufferedIOBase, most_bytes: int) -> None:
        library = cast("ctypes.CDLL", find_library())
        decompressor = library.libdeflate_alloc_decompressor()
        if not decompressor:
            raise MemoryError("libdeflate has no memory for a decompressor")
        weakref.finalize(self, library.libdeflate_free_decompressor, decompressor)
        self._decompress, self._decompressor = library.libdeflate_gzip_decompress_ex, decompressor
        source, memory = np.empty(READ_BYTES + LEAST_BYTES, np.uint8), np.empty(most_bytes, np.uint8)
        self._file, self._begin, self._end = file, 0, 0
        self._source, self._address, self._data = source.data, source.ctypes.data, memory.data.toreadonly()
        self._sizes = np.empty(2, np.uintp)
        sizes = self._sizes.ctypes.data
        self._results = memory.ctypes.data, most_bytes, sizes, sizes + self._sizes.itemsize

    def seek(self, offset: int) -> None:
        """Go to a place of the file."""
        self._file.seek(offset)
        self._begin = self._end = 0

    def read(self, size: int) -> bytes:
        """Return bytes that follow, so many at most."""
        if self._begin == self._end:
            self._begin = self._end = 0
            return self._file.read(size)
        begin, self._begin = self._begin, min(self._begin + size, self._end)
        return bytes(self._source[begin : self._begin])

    def go_back(self, last: bytes) -> bool:
        """Go back before the last bytes that were read; return False where they are too many."""
        if not self._end and len(last) <= len(self._source):
            self._source[: len(last)] = last
            self._begin = self._end = len(last)
        can = len(last) <= self._begin
        self._begin -= len(last) if can else 0
        return can

    def read_member(self) -> tuple[memoryview, int] | None:
        """Return the data of the member that follows, and how many bytes it has in the file.

        None at the end, and where it is not whole or sound, is longer than ``most_bytes``, or is left to others.
        """
        if self._end - self._begin < LEAST_BYTES:
            self._fill()
        begin, size = self._begin, self._end - self._begin
        if self._source[begin : begin + len(GZIP)] != GZIP or size < 10 or self._source[begin + 3] & NOT_COMPARED:
            return None
        if self._decompress(self._decompressor, self._address + begin, size, *self._results):
            return None
        packed, unpacked = self._sizes.tolist()
        self._begin += packed
        return self._data[:unpacked], packed

    def _fill(self) -> None:
        size = self._end - self._begin
        self._source[:size] = self._source[self._begin : self._end]
        self._begin, self._end = 0, size + self._file.readinto(self._source[size:])


@cache
def find_library() -> ctypes.CDLL | None:
    """Return libdeflate, its functions declared as in ``libdeflate.h``; None where ``deflate`` does not show them."""
    try:
        from deflate import _deflate

        library = ctypes.CDLL(_deflate.__file__)
        allocate, free = library.libdeflate_alloc_decompressor, library.libdeflate_free_decompressor
        decompress = library.libdeflate_gzip_decompress_ex
    except (ImportError, OSError, AttributeError):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    allocate.restype, free.argtypes, free.restype = pointer, [pointer], None
    # The decompressor, a source and its size, memory and its size, and where to write how much of both was used.
    decompress.argtypes = [pointer, pointer, size, pointer, size, pointer, pointer]
    return library
