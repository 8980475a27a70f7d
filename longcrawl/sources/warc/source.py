"""Web archives (WARC and WET) as a source: a row for each page or text.

Files are ``.warc`` and ``.wet``, plain or compressed (``.gz``, ``.zst``, with or without a dictionary); their first
bytes say how, so ``data_files`` may have any name. ARC files, the form before WARC, are rejected with the command that
converts them. A file in one gzip member is read as one with a member per record; only the latter says where its records
lie.

Which records are rows. The others are counted by the rule that leaves them out (``Warc.count_records``,
``BadFiles.left_out``, and the log); the first rule in this order counts:

==================================== ==================================================================================
rule                                 what is left out
==================================== ==================================================================================
``request``, ``metadata``, …         records of a type that is not in ``record_types``: of ``warcinfo``, ``request``,
                                     ``metadata``, ``revisit`` (its page is where it was first seen), ``continuation``,
                                     ``other_type``, and those of response, resource, conversion that were not asked for
``crawl_log``                        records whose URI says that the crawler itself wrote them (``metadata:``, ``urn:``)
``max_record_bytes``                 records of more bytes, and pages that are larger once their codings are undone;
                                     neither is ever held in memory
``status_404``, …, ``no_status``     responses whose status is not in ``statuses``: redirects, errors, 304; or that have
                                     none that can be read
``mime_image``, …                    pages whose type is not in ``mimes``, by its first half
``content_encoding``                 bodies in a coding that is not known, or damaged from its first byte
``truncated``                        cut pages, under ``truncated="skip"``
``empty_body``                       pages without a byte
``no_mime``                          pages that the server names no type for, nor the archive, and that do not begin
                                     like HTML
==================================== ==================================================================================

What becomes of the rest:

* Chunks (``Transfer-Encoding``) are joined and gzip, deflate, br and zstd (``Content-Encoding``) undone, up to three
  over each other. A body that is not encoded as its header says, since the crawler had undone it, stands as it is.
* A page was cut where the archive says so (``WARC-Truncated``), where it is shorter than its Content-Length, or where
  its chunks or its compressed data end early. It is a row with what there is; the column ``truncated`` says why.
* A page without a type is HTML if it begins so, else what the archive found out (``WARC-Identified-Payload-Type``).
* Characters: ``longcrawl.sources.warc.pages`` says what becomes of wrong and unknown charsets, UTF-16 and zeros.
* A record without an id gets ``FILE:NUMBER``. Ids and URLs that occur twice are rows twice: what to do with them is for
  runs and stages to say, which reject duplicate ids unless a recipe sets ``on_duplicate_ids``.
* A digest that the archive gives is not compared: what it covers differs between crawlers.
"""

import hashlib
import logging
from base64 import b32encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.sources import (
    DOCUMENTS,
    BadFiles,
    OnBadFiles,
    Part,
    Source,
    StorageOptions,
    check_record_bytes,
    source,
)
from longcrawl.errors import SourceError, one_line
from longcrawl.sources.blocks import BLOCK_BYTES
from longcrawl.sources.encodings import GUESSED
from longcrawl.sources.files import DamagedFileError, DataFiles, named_parts, opened
from longcrawl.sources.path_lists import COMMON_CRAWL, Listed, parse_slice, read_lists
from longcrawl.sources.warc import pages
from longcrawl.sources.warc.pages import LeftOutError
from longcrawl.sources.warc.records import Fields, Lost, Message, Record, list_ids, read_records
from longcrawl.urls import is_url

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


logger = logging.getLogger("longcrawl")

EXTENSIONS = tuple(f".{kind}{packed}" for kind in ("warc", "wet", "arc") for packed in ("", ".gz", ".zst"))
DOCUMENT_TYPES = ("response", "resource", "conversion")
OTHER_TYPES = ("warcinfo", "request", "metadata", "revisit", "continuation")
_OF_LISTS = ("paths", "base_url", "files")

_OF_THE_CRAWLER = ("metadata:", "urn:", "warcinfo:")
_TOP_LEVEL = ("application", "audio", "font", "image", "message", "model", "multipart", "text", "video")


@source("warc")
class Warc(Source):
    """Pages of web archives.

    Every row has ``id`` (WARC-Record-ID as it stands), ``text`` (conversion records and plain text; else null),
    ``url``, ``date`` (as they stand), ``source`` (the file's name within the source), ``language`` (null), ``html``
    (the decoded page; else null), ``status`` (int32; null where there is no HTTP response), ``mime`` (lower-cased,
    without parameters), ``charset`` (what the page was decoded from), ``language_hint`` (Content-Language, or what a
    WET file says), ``truncated`` (null, WARC-Truncated, or "body", "chunks", "content_encoding"), ``file`` (as
    ``source``), ``offset`` and ``length`` (int64: the compressed record in its file; null where it is not a
    member of its own), and, unless ``digests`` is false, ``digest`` ("sha1:" and base32, of the page with its codings
    undone and its characters untouched).

    Args:
        data_dir: a folder, read with all folders in it, or its URL.
        data_files: a path, URL or glob, several, or a mapping from splits to them; relative to ``data_dir`` if set.
        paths: instead of both, lists of paths as Common Crawl publishes them, ``warc.paths.gz`` or ``wet.paths.gz``:
            a file or URL, or several, whose lines follow each other.
        base_url: what the paths in these lists are relative to: a URL, or a folder that mirrors it.
        files: which of these paths to read, such as "0:1000", or "0:90000:90" for a sample across a dump; None for all.
        record_types: of response, resource and conversion, what gives rows.
        statuses: the HTTP statuses of pages; empty for all.
        mimes: the types of pages. Those with "html" or "xml" in their name go to ``html``, others to ``text``.
        truncated: what a page does that was cut.
        max_record_bytes: how long a record, and a page with its codings undone, is at most. Reading one takes several
            times as much memory: it is there with its codings, without them, decoded, and in a table.
        digests: whether rows have the column ``digest``; a run that writes tokens leaves it out.
        on_bad_files: what a missing, cut or corrupt file does. Records before the damage are kept, and those after it
            from the next record on that can be found.
        storage_options: what fsspec takes to open the stores that ``base_url`` and other URLs name, such as
            ``{endpoint_url: …, anon: true}``. No credentials, which belong into the environment or a profile.
    """

    homepage: ClassVar[str] = "https://iipc.github.io/warc-specifications/"

    data_dir: str | None = None
    data_files: DataFiles = None
    paths: str | tuple[str, ...] | None = None
    base_url: str = COMMON_CRAWL
    files: str | None = None
    record_types: tuple[str, ...] = DOCUMENT_TYPES
    statuses: tuple[int, ...] = (200,)
    mimes: tuple[str, ...] = ("text/html", "application/xhtml+xml", "text/plain")
    truncated: Literal["keep", "skip"] = "keep"
    max_record_bytes: int = 64 << 20
    digests: bool = True
    on_bad_files: OnBadFiles = "error"
    storage_options: StorageOptions = None

    def __post_init__(self) -> None:
        if self.files is not None:
            parse_slice(self.files)
        super().__post_init__()
        if self.paths and (self.data_dir or self.data_files):
            raise SourceError("source 'warc' has paths beside data_dir or data_files: set only one of them")
        if not self.paths and (self.files is not None or self.base_url != COMMON_CRAWL):
            raise SourceError(
                "source 'warc' has files or base_url without paths: set paths to a list such as warc.paths.gz"
            )
        for kind in self.record_types:
            if kind not in DOCUMENT_TYPES:
                raise SourceError(f"record_types has {kind!r}; known: {', '.join(DOCUMENT_TYPES)}")
        if not self.record_types or not self.mimes:
            raise SourceError("source 'warc' needs at least one of record_types and of mimes; e.g. mimes=['text/html']")
        check_record_bytes(self.max_record_bytes)

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values; some only if they are not the default."""
        unset = ("digests",) * self.digests + _OF_LISTS * (not self.paths)
        return {name: value for name, value in super().settings().items() if name not in unset}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lists that were read: every task of a run carries its source, and needs none of them."""
        return {name: value for name, value in vars(self).items() if name != "_listed"}

    @cached_property
    def _listed(self) -> Listed:
        """What the lists name; they are read once, so that a run has the digest of what chose its files."""
        paths = (self.paths,) if isinstance(self.paths, str) else self.paths or ()
        return read_lists(self.located(paths), self.located(self.base_url), self.files, EXTENSIONS)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""
        return SCHEMA if self.digests else SCHEMA.remove(SCHEMA.get_field_index(DIGEST))

    def for_tokens(self, signals: Sequence[str]) -> Self:  # noqa: ARG002  # pages have none
        """Return the source without digests, and with the lists that it has read."""
        source = replace(self, digests=False)
        vars(source).update({name: value for name, value in vars(self).items() if name == "_listed"})
        return source

    def splits(self) -> dict[str, list[Part]]:
        """List the files of every split.

        Raises:
            SourceError: no file was named or found, or a list cannot be read.
            NotYetError: the server of a list does not give it now.
        """
        if self.paths:
            return {"train": list(self._listed.parts)}
        data_dir, data_files = self.located((self.data_dir, self.data_files))
        return named_parts(self.name, data_dir, data_files, EXTENSIONS, "*.warc.gz")

    def lists(self) -> Mapping[str, Mapping[str, Any]]:
        """Return bytes, SHA-256 and number of paths of each list in ``paths``, by path or URL."""
        return self._listed.lists if self.paths else {}

    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read the pages of one file."""
        block = Block(self.schema())
        for row, page in self._rows(part, bad_files):
            if not block.add(row, page):
                yield block.table()
                block = Block(self.schema())
                block.add(row, page)
        if block:
            yield block.table()

    def list_ids(self, part: Part) -> Iterator[pa.ChunkedArray] | None:
        """List the ids that headers of records have; None of a remote file, which would be fetched twice."""
        return None if is_url(part.files[0]) else map(self._record_ids, part.files)

    def _record_ids(self, path: str) -> pa.ChunkedArray:
        ids = list[str]()
        with suppress(DamagedFileError), opened(path) as file:
            if (listed := list_ids(file, self.record_types)) is not None:
                return pa.chunked_array([pa.array(listed, pa.string())])
            headers = (record.fields for record in read_records(file, 0, Lost(BadFiles("skip"), path)))
            wanted = (fields for fields in headers if fields.get("warc-type", "").lower() in self.record_types)
            ids.extend(fields["warc-record-id"] for fields in wanted if fields.get("warc-record-id"))
        return pa.chunked_array([pa.array(ids, pa.string())])

    def count_records(self) -> dict[str, int]:
        """Count the records of all files: "documents", and what is left out, by rule. It reads everything.

        Raises:
            SourceError: a file cannot be read whole, under ``on_bad_files="error"``.
        """
        bad_files = BadFiles(self.on_bad_files)
        parts = [part for parts in self.splits().values() for part in parts]
        documents = sum(1 for part in parts for _ in self._rows(part, bad_files))
        return {"documents": documents, **dict(sorted(bad_files.left_out.items()))}

    def _rows(self, part: Part, bad_files: BadFiles) -> Iterator[tuple[Row, Page]]:
        (path,) = part.files
        left_out, guessed = Counter[str](), Counter[str]()
        lost = Lost(bad_files, path)
        try:
            with opened(path) as file:
                for record in read_records(file, self.max_record_bytes, lost):
                    try:
                        yield self._row(part.name, record, guessed)
                    except LeftOutError as rule:
                        left_out[str(rule)] += 1
            lost.report()
        except DamagedFileError as damage:
            bad_files.report(path, str(damage))
        bad_files.left_out.update(left_out)
        bad_files.encodings.update({charset + GUESSED: count for charset, count in guessed.items()})
        counted = ", ".join(f"{rule} {count:,}" for rule, count in sorted(left_out.items()))
        logger.info(
            "%s: %s records are not documents, by rule: %s; the charset of %s pages is guessed",
            one_line(path),
            f"{left_out.total():,}",
            counted or "none",
            f"{guessed.total():,}",
        )

    def _row(self, name: str, record: Record, guessed: Counter[str]) -> tuple[Row, Page]:
        """Make the row of a record; ``guessed`` counts pages by the charset that is guessed of them.

        Raises:
            LeftOutError: naming the rule by which it is none.
        """
        fields = record.fields
        kind = fields.get("warc-type", "").lower()
        if kind not in self.record_types:
            raise LeftOutError(kind if kind in DOCUMENT_TYPES + OTHER_TYPES else "other_type")
        url = fields.get("warc-target-uri", "").removeprefix("<").removesuffix(">") or None
        if url and url.startswith(_OF_THE_CRAWLER):
            raise LeftOutError("crawl_log")
        if record.block is None:
            raise LeftOutError("max_record_bytes")
        message = self._message(kind, record, record.block)
        headers = fields if message is None else message.fields
        declared = pages.content_type_of(headers.get("content-type", ""))
        mime = self._allowed(declared.mimes)
        payload, cut = (record.block, None) if message is None else pages.body_of(message, self.max_record_bytes)
        truncated = fields.get("warc-truncated") or cut
        if truncated and self.truncated == "skip":
            raise LeftOutError("truncated")
        if not payload:
            raise LeftOutError("empty_body")
        mime = mime or self._found_out(fields, payload)
        is_markup = kind != "conversion" and ("html" in mime or "xml" in mime)
        page = pages.decode_page(payload, declared.charset, markup=is_markup)
        if page.is_guessed:
            guessed[page.charset] += 1
        row = Row(
            id=fields.get("warc-record-id") or f"{name}:{record.number}",
            url=url,
            date=fields.get("warc-date"),
            source=name,
            file=name,
            status=message and message.status,
            mime=mime,
            charset=page.charset,
            language_hint=headers.get("content-language") or fields.get("warc-identified-content-language"),
            truncated=truncated,
            offset=record.offset,
            length=record.length,
        )
        return row, Page(page.utf8, payload, is_markup)

    def _message(self, kind: str, record: Record, block: memoryview) -> Message | None:
        """Return the HTTP message that a record holds, None if it holds another block."""
        declared = record.fields.get("content-type", "").lower()
        is_http = declared.startswith("application/http") or bytes(block[:5]) == b"HTTP/"
        if kind != "response" or not (is_http or (not declared and pages.begins_like_response(block))):
            return None
        message = pages.parse_message(block)
        if message.status is None:
            raise LeftOutError("no_status")
        if self.statuses and message.status not in self.statuses:
            raise LeftOutError(f"status_{message.status}")
        return message

    def _allowed(self, named: tuple[str, ...]) -> str | None:
        """Return the last type that is named; None if none is."""
        if not named:
            return None
        mime = named[-1]
        if mime not in self.mimes:
            top = mime.partition("/")[0]
            raise LeftOutError(f"mime_{top if top in _TOP_LEVEL else 'other'}")
        return mime

    def _found_out(self, fields: Fields, payload: bytes | memoryview) -> str:
        """Return the type of a page that the server names none for."""
        identified = pages.content_type_of(fields.get("warc-identified-payload-type", "")).mimes
        mime = self._allowed(("text/html",) if pages.begins_like_html(payload) else identified)
        if mime is None:
            raise LeftOutError("no_mime")
        return mime
