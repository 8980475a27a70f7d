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
from deflate import _deflate

HEADER = b"\x1f\x8b\x08\x00"
"""What a member begins with whose header has no field; the checksum that others may have is not compared."""

READ_BYTES = 1 << 19
"""How much of a file is read at a time."""

LEAST_BYTES = 1 << 17
"""How much of a file is there at least when a member is decompressed, so that few are cut off."""


class ShortMembers:
    """Decompresses the members of a file to memory that they share: data is there until the next member is read.

    >>> import gzip, io
    >>> members = ShortMembers(io.BytesIO(2 * gzip.compress(b"Hello", mtime=0)), 1 << 20)
    >>> bytes(members.read()[0]), bytes(members.read()[0]), members.read()
    (b'Hello', b'Hello', None)
    """

    def __init__(self, file: BufferedIOBase, most_bytes: int) -> None:
        library = cast("ctypes.CDLL", find_library())
        decompressor = library.libdeflate_alloc_decompressor()
        if not decompressor:
            raise MemoryError("libdeflate has no memory for a decompressor")
        weakref.finalize(self, library.libdeflate_free_decompressor, decompressor)
        self._decompress, self._decompressor = library.libdeflate_gzip_decompress_ex, decompressor
        self._file = file
        self._allocate(READ_BYTES + LEAST_BYTES)
        self._begin = self._end = 0
        memory, self._sizes = np.empty(most_bytes, np.uint8), np.empty(2, np.uintp)
        self._data, sizes = memory.data.toreadonly(), self._sizes.ctypes.data
        self._results = memory.ctypes.data, most_bytes, sizes, sizes + self._sizes.itemsize

    def read(self) -> tuple[memoryview, int] | None:
        """Return the data of the next member, and how many bytes of the file it has.

        None at the end, and of one that is not whole or sound, or is longer than ``most_bytes``, or has fields in its
        header.
        """
        if self._end - self._begin < LEAST_BYTES:
            self._fill()
        begin, size = self._begin, self._end - self._begin
        if self._source[begin : begin + len(HEADER)] != HEADER:
            return None
        if self._decompress(self._decompressor, self._address + begin, size, *self._results):
            return None
        packed, unpacked = self._sizes.tolist()
        self._begin += packed
        return self._data[:unpacked], packed

    def put(self, content: bytes) -> None:
        """Set what has been read of the file, and what members are read of first."""
        if len(content) > len(self._source):
            self._allocate(len(content))
        self._begin, self._end = 0, len(content)
        self._source[: self._end] = content

    def take(self) -> bytes:
        """Return what has been read of the file, and no member of it."""
        begin, self._begin = self._begin, self._end
        return bytes(self._source[begin : self._end])

    def _allocate(self, size: int) -> None:
        source = np.empty(size, np.uint8)
        self._source, self._address = source.data, source.ctypes.data

    def _fill(self) -> None:
        rest = bytes(self._source[self._begin : self._end])
        self._source[: len(rest)] = rest
        self._begin, self._end = 0, len(rest) + self._file.readinto(self._source[len(rest) :])


@cache
def find_library() -> ctypes.CDLL | None:
    """Return libdeflate, its functions declared as in ``libdeflate.h``; None where the extension does not show them."""
    library, pointer, size = ctypes.CDLL(_deflate.__file__), ctypes.c_void_p, ctypes.c_size_t
    if not hasattr(library, "libdeflate_gzip_decompress_ex"):
        return None
    library.libdeflate_alloc_decompressor.restype = pointer
    library.libdeflate_free_decompressor.argtypes, library.libdeflate_free_decompressor.restype = [pointer], None
    # The decompressor, a source and its size, memory and its size, and where to write how much of both was used.
    library.libdeflate_gzip_decompress_ex.argtypes = [pointer, pointer, size, pointer, size, pointer, pointer]
    return library
