"""Tables of pages: rows as they come, made Arrow's columns."""

import hashlib
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

_ALGORITHM, _BASE32, _NO_DIGEST = "sha1:", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", bytes(20)
_DIGEST_CHARACTERS = len(_ALGORITHM) + len(_NO_DIGEST) * 8 // 5


class Page(NamedTuple):
    """The characters of a page."""

    utf8: bytes | memoryview
    as_it_came: bytes | memoryview
    """The same object where it came in UTF-8."""
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
        self._digests = list[bytes | None]()
        """Of pages in other characters than UTF-8; the others are hashed where they lie in their column."""
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
            self._digests.append(None if page.utf8 is page.as_it_came else _sha1(page.as_it_came))
        self._rows.append(row)
        self._bytes += size
        return True

    def table(self) -> pa.Table:
        """Return the rows, with the columns of the schema."""
        rows = len(self._rows)
        columns: dict[str, Any] = dict(zip(Row._fields, zip(*self._rows, strict=True), strict=True))
        columns["language"] = pa.nulls(rows, pa.string())
        taken = {name: texts.take(rows) for name, texts in self._texts.items()}
        columns |= {name: texts.column for name, texts in taken.items()}
        if self._digests:
            columns[DIGEST] = self._spell_digests(list(taken.values()))
        return pa.table(columns, schema=self._schema)

    def _spell_digests(self, columns: "list[_Taken]") -> pa.Array:
        """Spell the digest of every page as archives do: in base32 (RFC 4648)."""
        from longcrawl.sources.warc._kernels import hash_texts

        digests = np.frombuffer(b"".join([each or _NO_DIGEST for each in self._digests]), np.uint8)
        digests = digests.reshape(-1, len(_NO_DIGEST)).copy()
        missing = np.array([each is None for each in self._digests])
        for _, data, starts, lengths in columns:
            hashed = np.flatnonzero(missing & (lengths > 0))
            digests[hashed] = hash_texts(np.frombuffer(data, np.uint8), starts[hashed], lengths[hashed])
        fives = np.unpackbits(digests, axis=1).reshape(len(digests), -1, 5) @ np.array([16, 8, 4, 2, 1], np.uint8)
        letters = np.frombuffer(_BASE32, np.uint8)[fives].tobytes().decode()
        width = len(letters) // len(digests)
        return pa.array([_ALGORITHM + letters[at : at + width] for at in range(0, len(letters), width)], pa.string())


class _Taken(NamedTuple):
    """A column with its bytes, and where in them each text starts and how long it is."""

    column: pa.Array
    data: bytes | memoryview
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


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

    def take(self, rows: int) -> _Taken:
        """Return the column of so many rows, null where no text was set."""
        data = b"".join(self._few) if self._many is None else self._many.data[: self._bytes].toreadonly()
        lengths, given = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        lengths[self._rows], given[self._rows] = self._lengths, True
        offsets = np.append(0, np.cumsum(lengths))
        buffers = map(pa.py_buffer, (np.packbits(given, bitorder="little").tobytes(), offsets, data))
        column = pa.Array.from_buffers(pa.large_string(), rows, list(buffers))
        return _Taken(column, data, offsets[:-1], lengths)


def _sha1(page: bytes | memoryview) -> bytes:
    return hashlib.sha1(page).digest()  # noqa: S324  # the digest of the standard
