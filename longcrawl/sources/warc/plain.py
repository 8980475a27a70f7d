"""Plain records, as nearly all are: their headers are read, and the bytes of their pages looked at, by one kernel.

Plain is a header whose fields are each on one line and named once. All others are for ``parse_fields``.
"""

from typing import Literal, NamedTuple

import numpy as np

from longcrawl.sources.json_lines import is_utf8
from longcrawl.sources.warc.fields import NAMES, Fields, Message

MOST_BLANK = 1 << 10
"""How many line ends follow a record at most where a member is taken as one record."""


class Scanned(NamedTuple):
    """What is known of the bytes of a page."""

    page: bytes | memoryview
    is_utf8: bool
    has_zero: bool


Found = tuple[Fields, memoryview | None, Message | None, Scanned | None]
"""Fields, block, which is None where it is too long, the HTTP message that the block is, and its body scanned.

There is no message where the block is another one, which is scanned then, and where the message is not plain.
"""


class PlainReader:
    """Reads records one after the other, with memory for one."""

    def __init__(self) -> None:
        from longcrawl.sources.warc._kernels import read_record

        self._read_record = read_record
        self._places = np.empty((2, len(NAMES), 3), np.int64)
        self._found = np.empty(8, np.int64)

    def end_of(self, header: bytes | memoryview) -> int | None:
        """Return where the block ends of a record that begins with a header; None of one that is not plain."""
        self._read_record(np.frombuffer(header, np.uint8), 0, self._places, self._found)
        _, _, stop, *_ = self._found.tolist()
        return stop if stop > 0 else None

    def read(self, data: memoryview, most_bytes: int) -> Found | None:
        """Read data that is one record and line ends, and begins with its version; None of other data.

        There is no block of more than ``most_bytes``.
        """
        if not self._read_record(np.frombuffer(data, np.uint8), most_bytes, self._places, self._found):
            return None
        begin, body, stop, own, others, status, is_utf8, has_zero = self._found.tolist()
        header = bytes(data[:begin])
        fields = _values(header, self._places[0, :own].tolist(), encoding_of(header))
        block = data[begin:stop]
        if len(block) > most_bytes:
            return fields, None, None, None
        if body < 0:
            return fields, block, None, None
        if body == begin:
            return fields, block, None, Scanned(block, bool(is_utf8), bool(has_zero))
        of_message = _values(bytes(data[:body]), self._places[1, :others].tolist(), "latin-1")
        message = Message(status, of_message, block[body - begin :])
        return fields, block, message, Scanned(message.body, bool(is_utf8), bool(has_zero))


def encoding_of(header: bytes) -> Literal["utf-8", "latin-1"]:
    """Return how the header of a record is read: as UTF-8 where it is."""
    return "utf-8" if not header.isascii() and is_utf8(header) else "latin-1"


def _values(header: bytes, places: list[list[int]], encoding: Literal["utf-8", "latin-1"]) -> Fields:
    """Return the values of a header that are at some places, as ``parse_fields`` does."""
    if encoding == "utf-8":
        return {NAMES[name]: header[first:end].decode(encoding).strip() for name, first, end in places}
    text = header.decode(encoding)
    return {NAMES[name]: text[first:end].strip() for name, first, end in places}


def scan(page: bytes | memoryview) -> Scanned:
    r"""Look at the bytes of a page.

    >>> scan("naïve".encode("latin-1"))
    Scanned(page=b'na\xefve', is_utf8=False, has_zero=False)
    """
    from longcrawl.sources.warc._kernels import scan_bytes

    data = np.frombuffer(page, np.uint8)
    is_utf8, has_zero = scan_bytes(data, 0, len(data))
    return Scanned(page, is_utf8, has_zero)
