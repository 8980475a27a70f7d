"""Plain records, as nearly all are: their headers are read, and the bytes of their pages looked at, by one kernel.

Plain is a header whose fields are each on one line, named once, and in ASCII. All others are for ``parse_fields``.
"""

from typing import NamedTuple

import numpy as np

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

    def end_of(self, header: bytes) -> int | None:
        """Return where the block ends of a record that begins with a header; None of one that is not plain."""
        self._read_record(np.frombuffer(header, np.uint8), 0, self._places, self._found)
        stop = int(self._found[2])
        return stop if stop > 0 else None

    def read(self, data: memoryview, most_bytes: int) -> Found | None:
        """Read data that is one record and line ends, and begins with its version; None of other data.

        There is no block of more than ``most_bytes``.
        """
        if not self._read_record(np.frombuffer(data, np.uint8), most_bytes, self._places, self._found):
            return None
        begin, body, stop, own, others, status, is_utf8, has_zero = self._found.tolist()
        heads = str(data[: max(begin, body)], "latin-1")  # the first line of a message may hold any byte
        fields = {NAMES[name]: heads[first:end] for name, first, end in self._places[0, :own].tolist()}
        block = data[begin:stop]
        if len(block) > most_bytes:
            return fields, None, None, None
        if body < 0:
            return fields, block, None, None
        if body == begin:
            return fields, block, None, Scanned(block, bool(is_utf8), bool(has_zero))
        of_message = {NAMES[name]: heads[first:end] for name, first, end in self._places[1, :others].tolist()}
        message = Message(status, of_message, block[body - begin :])
        return fields, block, message, Scanned(message.body, bool(is_utf8), bool(has_zero))


def scan(page: bytes | memoryview) -> Scanned:
    r"""Look at the bytes of a page.

    >>> scan("naïve".encode("latin-1"))
    Scanned(page=b'na\xefve', is_utf8=False, has_zero=False)
    """
    from longcrawl.sources.warc._kernels import scan_bytes

    data = np.frombuffer(page, np.uint8)
    is_utf8, has_zero = scan_bytes(data, 0, len(data))
    return Scanned(page, is_utf8, has_zero)
