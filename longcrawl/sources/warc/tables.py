"""Tables of pages: rows as they come, made Arrow's columns."""

import hashlib
from base64 import b32encode
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.sources import DOCUMENTS
from longcrawl.sources.blocks import BLOCK_BYTES

MANY_BYTES = 1 << 20
"""From how many on the texts of a table are copied to one array as they come."""

ROWS = 10_000
"""Rows of a table at most."""

DIGEST = "digest"
SCHEMA = pa.schema(
    [
        *DOCUMENTS,
        pa.field("html", pa.large_string()),
        pa.field("status", pa.int32()),
        *(pa.field(name, pa.string()) for name in ("mime", "charset", "language_hint", "truncated", "file")),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field(DIGEST, pa.string()),
    ]
)

_DIGEST_CHARACTERS = len("sha1:") + 20 * 8 // 5


class Page(NamedTuple):
    """The characters of a page."""

    utf8: bytes | memoryview
    as_it_came: bytes | memoryview
    is_markup: bool


class Row(NamedTuple):
    """What a table has of a page beside its characters and their digest."""

    id: str
    url: str | None
    date: str | None
    source: str
    file: str
    status: int | None
    mime: str
    charset: str
    language_hint: str | None
    truncated: str | None
    offset: int | None
    length: int | None


class Block:
    """The rows of a table; a page is copied to its column while it is in a core's own cache."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._has_digests = schema, DIGEST in schema.names
        self._rows = list[Row]()
        self._digests = list[str]()
        self._texts = {name: _Texts() for name in ("text", "html")}
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._rows)

    def add(self, row: Row, page: Page) -> bool:
        """Add a row, unless the table has none too many for it; return whether it was added.

        How large a table is depends on its rows alone, and not on whether digests are computed.
        """
        values = (row.id, row.url, row.date, row.source, row.file, row.mime, row.charset)
        size = sum(map(len, filter(None, (*values, row.language_hint, row.truncated, page.utf8)))) + _DIGEST_CHARACTERS
        if self._rows and (self._bytes + size > BLOCK_BYTES or len(self._rows) == ROWS):
            return False
        self._texts["html" if page.is_markup else "text"].add(len(self._rows), page.utf8)
        if self._has_digests:
            self._digests.append(_digest(page.as_it_came))
        self._rows.append(row)
        self._bytes += size
        return True

    def table(self) -> pa.Table:
        """Return the rows, with the columns of the schema."""
        rows = len(self._rows)
        columns: dict[str, Any] = dict(zip(Row._fields, zip(*self._rows, strict=True), strict=True))
        columns["language"] = pa.nulls(rows, pa.string())
        columns |= {name: texts.take(rows) for name, texts in self._texts.items()}
        if self._has_digests:
            columns[DIGEST] = self._digests
        return pa.table(columns, schema=self._schema)


class _Texts:
    """A column of texts that are known to be UTF-8, which Arrow would check."""

    def __init__(self) -> None:
        self._few = list[bytes | memoryview]()
        self._many: npt.NDArray[np.uint8] | None = None
        """Room for a block, from Arrow's pool: memory that earlier tables had need not be cleared again."""
        self._rows, self._lengths, self._bytes = list[int](), list[int](), 0

    def add(self, row: int, text: bytes | memoryview) -> None:
        """Set the text of a row behind those that are set."""
        end = self._bytes + len(text)
        if self._many is None and (not self._bytes or end <= MANY_BYTES):
            self._few.append(bytes(text))  # a view would keep its record, whose header may be longer
        else:
            if self._many is None:
                self._many = np.frombuffer(pa.allocate_buffer(BLOCK_BYTES), np.uint8)
                self._many.data[: self._bytes] = b"".join(self._few)
                self._few = []
            self._many.data[self._bytes : end] = text
        self._rows.append(row)
        self._lengths.append(len(text))
        self._bytes = end

    def take(self, rows: int) -> pa.Array:
        """Return the column of so many rows, null where no text was set."""
        data = b"".join(self._few) if self._many is None else self._many.data[: self._bytes].toreadonly()
        lengths, given = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        lengths[self._rows], given[self._rows] = self._lengths, True
        offsets = np.append(0, np.cumsum(lengths))
        buffers = map(pa.py_buffer, (np.packbits(given, bitorder="little").tobytes(), offsets, data))
        return pa.Array.from_buffers(pa.large_string(), rows, list(buffers))


def _digest(page: bytes | memoryview) -> str:
    """Return the digest of a page as archives spell it: in base32 (RFC 4648)."""
    return "sha1:" + b32encode(hashlib.sha1(page).digest()).decode()  # noqa: S324  # the digest of the standard
