"""Source of web archives (WARC and WET), with a row for each page, text or PDF.

Files are ``.warc`` and ``.wet``, plain or compressed (``.gz``, ``.zst``, with or without a dictionary); compression is
detected from the first bytes. Only a file with a compressed member per record gives the positions of its records.

Records that are not rows are counted in ``BadFiles.left_out`` and the log by the first matching of these rules:

==================================== ==================================================================================
rule                                 excluded
==================================== ==================================================================================
``request``, ``metadata``, …         records of a type that is not in ``record_types``, such as ``revisit`` (its page is
                                     where it was first seen), and ``other_type``
``crawl_log``                        records that the crawler itself wrote, by their URI (``metadata:``, ``urn:``)
``max_record_bytes``                 records and decoded pages of more bytes; neither is ever held in memory
``status_404``, …, ``no_status``     responses with a status that is not in ``statuses``, or without a readable one
``mime_image``, …                    pages with a type that is not in ``mimes``, by the first half of the type; also
                                     PDFs, which only ``binary`` accepts
``not_pdf``                          with ``binary``: pages declared as PDF that are neither PDF nor HTML
``content_encoding``                 bodies in an unknown coding, or damaged from the first byte
``truncated``                        cut pages, under ``truncated="skip"``
``empty_body``                       pages without a byte
``no_mime``                          pages without a type from the server or the archive that do not begin like HTML
==================================== ==================================================================================

The other records become rows as follows:

* Chunks (``Transfer-Encoding``) are joined, and up to three of gzip, deflate, br and zstd (``Content-Encoding``)
  undone. A body that is not encoded as its header declares, because the crawler decoded it, is kept unchanged.
* A cut page (``WARC-Truncated``, or its length, chunks or compressed data end early) gives its available part.
* The first 1,024 bytes show PDFs, which servers also send as HTML or without a type, and HTML that is sent as PDF, such
  as a login page; it is read as HTML. Other types are as declared.
* A page without a type is HTML if it begins like HTML, else of the type that the archive identified
  (``WARC-Identified-Payload-Type``).
* A record without an id gets ``FILE:NUMBER``. Digests in the archive are not compared: crawlers differ in their scope.

A list of paths, such as Common Crawl's ``warc.paths.gz``, names one file per line. Its lines are untrusted: each has to
name a file below the base. Parts are named after the lines, so documents are the same from a server and from a mirror.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core import sources
from longcrawl.core.batches import CONTENT
from longcrawl.core.display import counted
from longcrawl.core.sources import DIGEST, DOCUMENTS, BadFiles, Loss, Part, Section, digest_of
from longcrawl.errors import SourceError, one_line, quoted, warn_user
from longcrawl.sources.blocks import BLOCK_BYTES, read_blocks
from longcrawl.sources.encodings import GUESSED
from longcrawl.sources.files import DamagedFileError, DataFiles, absolute, has_ending, named_parts, opened, reading
from longcrawl.sources.warc import pages
from longcrawl.sources.warc.pages import LeftOutError
from longcrawl.sources.warc.records import Fields, Lost, Message, Record, divide_records, list_ids, read_records
from longcrawl.urls import is_url, join, path_of, without_secrets

MANY_BYTES = 1 << 20
"""Bytes of texts in a table from which on further texts are copied to one array as they are added."""
ROWS = 10_000
"""Maximum rows of a table."""
SCHEMA = pa.schema(
    [
        *DOCUMENTS,
        pa.field("html", pa.large_string()),
        pa.field("status", pa.int32()),
        *(pa.field(name, pa.string()) for name in ("mime", "charset", "language_hint", "truncated", "file")),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        DIGEST,
    ]
)

_OF_BINARIES = (pa.field("mime_declared", pa.string()), pa.field("bytes_announced", pa.int64()), CONTENT)
"""Columns of a source that has rows of binaries."""
_PAYLOADS = ("text", "html", CONTENT.name)

_DIGEST_CHARACTERS = len("sha1:") + 20 * 8 // 5


class Page(NamedTuple):
    """Decoded and original content of a page, and the column that it goes to."""

    value: bytes | memoryview
    """The page in UTF-8, or a binary unchanged."""
    as_it_came: bytes | memoryview
    column: Literal["text", "html", "content"]


class Block:
    """Rows of a table; each page is copied to its column while it is in a core's own cache."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._has_digests = schema, DIGEST.name in schema.names
        self.rows = list[dict[str, Any]]()
        self._payloads = {name: _Payloads(schema.field(name).type) for name in _PAYLOADS if name in schema.names}
        self._bytes = 0

    def add(self, row: dict[str, Any], page: Page) -> bool:
        """Add a row, and return True, or return False if the table is too full, with or without digests."""
        names = sum(len(value) for value in row.values() if isinstance(value, str))
        size = len(page.value) + names + _DIGEST_CHARACTERS
        if self.rows and (self._bytes + size > BLOCK_BYTES or len(self.rows) == ROWS):
            return False
        self._payloads[page.column].add(len(self.rows), page.value)
        self.rows.append(row | {DIGEST.name: digest_of(page.as_it_came)} if self._has_digests else row)
        self._bytes += size
        return True

    def table(self) -> pa.Table:
        """Return the rows as a table of the schema."""
        columns: dict[str, Any] = {name: [row[name] for row in self.rows] for name in self.rows[0]}
        columns["language"] = pa.nulls(len(self.rows), pa.string())
        columns |= {name: payloads.take(len(self.rows)) for name, payloads in self._payloads.items()}
        return pa.table(columns, schema=self._schema)


class _Payloads:
    """Column of binaries, or of texts that are known to be UTF-8, built without the check that Arrow would make."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._few = list[bytes | memoryview]()
        self._many: npt.NDArray[np.uint8] | None = None
        """Array for a block from Arrow's pool, whose memory from earlier tables needs no clearing."""
        self._rows, self._lengths, self._bytes = list[int](), list[int](), 0

    def add(self, row: int, text: bytes | memoryview) -> None:
        end = self._bytes + len(text)
        if self._many is None and (not self._bytes or end <= MANY_BYTES):
            self._few.append(bytes(text))  # a view would keep the whole record alive, with a header that may be longer
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
        """Return the column with ``rows`` rows, null if no text was set."""
        data = b"".join(self._few) if self._many is None else self._many.data[: self._bytes].toreadonly()
        lengths, given = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        lengths[self._rows], given[self._rows] = self._lengths, True
        offsets = np.append(0, np.cumsum(lengths))
        buffers = map(pa.py_buffer, (np.packbits(given, bitorder="little").tobytes(), offsets, data))
        return pa.Array.from_buffers(self._kind, rows, list(buffers))


COMMON_CRAWL = "https://data.commoncrawl.org/"
LONGEST_LINE = 4_096
"""Bytes per line; paths of Common Crawl have about 140."""
MOST_PATHS = 10_000_000
"""Limit for all lists of a source together, about the number of paths in all dumps of Common Crawl."""
_NO_STOP = MOST_PATHS + 1
_SLICE = re.compile(r"([0-9]{0,12}):([0-9]{0,12})(?::([0-9]{1,12}))?")
_NOT_BELOW = ("", ".", "..")
"""Path steps that may lead out of a folder; a URL scheme or an absolute path has an empty step."""


@dataclass(frozen=True)
class Listed:
    """Files named by lists of paths."""

    parts: tuple[Part, ...]
    """A part for each file, sorted, with the name in the list."""
    lists: Mapping[str, Mapping[str, Any]]
    """Size in bytes, SHA-256 and number of paths of each list, by its path or URL without secrets."""


def parse_slice(files: Any) -> range:
    """Parse a slice of paths, ``START:STOP:STEP`` counted from 0; each of the three may be left out.

    A SourceError is raised if the text is not a slice, or the slice is empty.

    >>> parse_slice("0:90000:90")
    range(0, 90000, 90)
    """
    if files is None:
        return range(_NO_STOP)
    found = _SLICE.fullmatch(files) if isinstance(files, str) else None
    if found is None:
        raise SourceError(
            f"files takes a slice in quotes, such as '0:1000' or '0:90000:90', got {quoted(files)}: YAML reads 10:20 "
            "without quotes as a number, so add --set 'source.files=\"10:20\"'"
        )
    start, stop, step = (int(each or default) for each, default in zip(found.groups(), (0, _NO_STOP, 1), strict=True))
    if start >= stop or not step:
        raise SourceError(
            f"files {files!r} selects no path: set it to START:STOP with START below STOP, such as '0:1000'"
        )
    return range(start, stop, step)


def read_lists(paths: Sequence[str], base_url: str, files: str | None) -> Listed:
    """Read lists of paths and select a slice of their lines.

    Args:
        paths: the lists, local files or URLs; gzip and zstd are decompressed.
        base_url: URL or folder that the listed paths are relative to.
        files: slice of the concatenated lists, see :func:`parse_slice`, or None for all paths.

    Raises:
        SourceError: a list is damaged or has fewer paths than the slice, or a selected line does not name a file below
            the base.
        NotYetError: a server does not answer now.
    """
    chosen, base = parse_slice(files), absolute(base_url)
    if not is_url(base) and not Path(base).is_dir():
        raise SourceError(f"{base} is not a folder: set base_url to the folder or URL that contains the paths")
    root = path_of(without_secrets(base)).rstrip("/") + "/"
    lists = dict[str, Mapping[str, Any]]()
    found = dict[str, Part]()
    count = repeated = 0
    for path in map(absolute, paths):
        name, before = without_secrets(path), count
        if name in lists:
            raise SourceError(f"paths names {name} twice: list each file once")
        with reading([path]) as read:
            for number, line in _list_lines(path):
                if count in chosen:
                    try:
                        below = _below_root(line, root)
                    except SourceError as wrong:
                        raise SourceError(f"{name}, line {number:,}: {wrong}") from None
                    repeated += below in found
                    found[below] = Part(below, (join(base, below),))
                count += 1
                if count > MOST_PATHS:
                    raise SourceError(f"{name} has more than {MOST_PATHS:,} paths: copy some to a new list")
        lists[name] = {"bytes": read[0].bytes, "sha256": read[0].sha256, "paths": count - before}
    _check_range(files, chosen, count, ", ".join(lists))
    if repeated:
        warn_user(f"{counted(repeated, 'line')} of {', '.join(lists)} repeat a path: each file is read once")
    return Listed(tuple(found[name] for name in sorted(found)), lists)


def _list_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that is not blank.

    Damage is a SourceError under any policy for broken files, because it is unknown which files the lost lines name.
    """
    name = without_secrets(path)

    def stop(loss: Loss) -> None:
        if loss.kind == "line":
            raise SourceError(f"{name}, line {loss.line:,} has more than {LONGEST_LINE:,} bytes: check paths")
        raise SourceError(f"{name} {loss.reason}: fetch it again")

    number = 0
    try:
        for block in read_blocks(path, most_bytes=LONGEST_LINE, on_loss=stop):
            for number, line in enumerate(bytes(block).splitlines(), number + 1):  # noqa: B020  # continues the numbers of the last block
                if text := line.strip():
                    yield number, text.decode("utf-8-sig")
    except DamagedFileError as damage:
        raise SourceError(f"the list {name} {damage}: check paths") from damage
    except UnicodeDecodeError as wrong:
        raise SourceError(f"{name}, line {number:,} is not UTF-8: check paths") from wrong


def _below_root(line: str, root: str) -> str:
    """Return the path in a line, relative to the root, or raise a SourceError if it may lead out of the root."""
    path = (line if is_url(root) else line.removeprefix("file://")).removeprefix(root)
    leaves = any(step in _NOT_BELOW for step in unquote(path).split("/"))
    # Two colons chain file systems of fsspec; a query or fragment is not part of a file name.
    if leaves or "::" in path or not path.isprintable() or any(sign in path for sign in "\\?#"):
        raise SourceError(
            f"{quoted(line)} is not a path below {root}: correct the line, or set base_url to the folder "
            "or URL that contains it"
        )
    if not has_ending(path, EXTENSIONS):
        raise SourceError(
            f"{quoted(line)} does not end in {', '.join(EXTENSIONS)}: set paths to a list of such files, or use "
            "data_files"
        )
    return path


def _check_range(files: str | None, chosen: range, count: int, names: str) -> None:
    there = f"{names} has {counted(count, 'path')}"
    if not count:
        raise SourceError(f"{there}: check paths")
    if chosen.start >= count or (chosen.stop > count and chosen.stop != _NO_STOP):
        raise SourceError(f"files is {files!r}, and {there}: set files to a slice of '0:{count}'")


logger = logging.getLogger("longcrawl")

EXTENSIONS = tuple(f".{kind}{packed}" for kind in ("warc", "wet", "arc") for packed in ("", ".gz", ".zst"))
DOCUMENT_TYPES = ("response", "resource", "conversion")
OTHER_TYPES = ("warcinfo", "request", "metadata", "revisit", "continuation")
_OF_LISTS = ("paths", "base_url", "files")

_OF_THE_CRAWLER = ("metadata:", "urn:", "warcinfo:")
_TOP_LEVEL = ("application", "audio", "font", "image", "message", "model", "multipart", "text", "video")


@sources.source("warc")
class Warc(sources.Source):
    """Pages of web archives, and PDFs on request.

    Every row has ``id`` (WARC-Record-ID, unchanged), ``text`` (conversion records and plain text; else null), ``url``,
    ``date`` (both unchanged), ``source`` (the file's name within the source), ``language`` (null), ``html`` (the
    decoded page; else null), ``status`` (int32; null without an HTTP response), ``mime`` (lower-cased, without
    parameters), ``charset`` (that the page was decoded from), ``language_hint`` (Content-Language, or the language in a
    WET file), ``truncated`` (null, WARC-Truncated, or "body", "chunks", "content_encoding"), ``file`` (same as
    ``source``), ``offset`` and ``length`` (int64: position of the record in its file as stored; null if it shares a
    compressed member), and, unless ``digests`` is false, ``digest`` ("sha1:" and base32, of the page without its
    transfer and content codings, in its own charset). ``mime`` is the type by content
    if that is another one than the server's.

    With ``binary``, every row also has ``mime_declared`` (the server's type, or null), ``bytes_announced`` (int64: the
    length of the file by X-Crawl-Content-Length or else Content-Length; null if it is that of a coded body) and
    ``content`` (large_binary: a PDF with its codings undone, for the stage ``extract_pdf``; else null). A PDF has no
    text, html or charset.

    Args:
        data_dir: a folder, read with all its subfolders, or the URL of one.
        data_files: a path, URL or glob, several of them, or a mapping from splits to them; relative to ``data_dir`` if
            set.
        paths: instead of both, lists of paths in Common Crawl's format, ``warc.paths.gz`` or ``wet.paths.gz``: a file
            or URL, or several, read one after the other.
        base_url: the URL that the listed paths are relative to, or a folder that mirrors it.
        files: slice of the listed paths, such as "0:1000", or "0:90000:90" for a sample across a dump; None for all.
        record_types: record types that become rows, any of response, resource and conversion.
        statuses: accepted HTTP statuses; empty for all.
        mimes: accepted media types. Those with "html" or "xml" in their name go to ``html``, others to ``text``. PDFs
            go to neither, see ``binary``. May be empty beside ``binary``; there is no column ``html`` then.
        binary: kinds of binaries that also become rows, whatever their declared type; "pdf" is the only one so far.
            To find them, the body of every response is decoded.
        truncated: whether to keep or skip a page that was cut.
        max_record_bytes: maximum bytes of a record, and of a page with its codings undone. Reading one takes several
            times as much memory, since it exists with its codings, without them, decoded, and in a table.
        digests: whether rows have the column ``digest``; a run that writes tokens leaves it out.
        on_bad_files: what to do about a missing, cut or corrupt file. Records before the damage are kept, and also
            those from the next readable record on.
        storage_options: fsspec options for the stores that ``base_url`` and other URLs name, such as ``{endpoint_url:
            …, anon: true}``. Keep credentials in the environment or a profile instead.
    """

    homepage: ClassVar[str] = "https://iipc.github.io/warc-specifications/"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("binary", "digests")

    data_dir: str | None = None
    data_files: DataFiles = None
    paths: str | tuple[str, ...] | None = None
    base_url: str = COMMON_CRAWL
    files: str | None = None
    record_types: tuple[str, ...] = DOCUMENT_TYPES
    statuses: tuple[int, ...] = (200,)
    mimes: tuple[str, ...] = ("text/html", "application/xhtml+xml", "text/plain")
    binary: tuple[Literal["pdf"], ...] = ()
    truncated: Literal["keep", "skip"] = "keep"
    max_record_bytes: int = 64 << 20
    digests: bool = True
    on_bad_files: sources.OnBadFiles = "error"
    storage_options: sources.StorageOptions = None

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
        if not self.record_types or not (self.mimes or self.binary):
            raise SourceError("source 'warc' needs at least one of record_types and of mimes; e.g. mimes=['text/html']")
        sources.check_record_bytes(self.max_record_bytes)

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values; those for lists only if there are lists."""
        unset = () if self.paths else _OF_LISTS
        return {name: value for name, value in super().settings().items() if name not in unset}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lists that were read, which tasks of a run do not need."""
        return {name: value for name, value in vars(self).items() if name != "_listed"}

    @cached_property
    def _listed(self) -> Listed:
        """Files named by the lists, read once so that a run records the digest of the lists that chose its files."""
        paths = (self.paths,) if isinstance(self.paths, str) else self.paths or ()
        return read_lists(self.located(paths), self.located(self.base_url), self.files)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""
        unset = (DIGEST.name,) * (not self.digests) + ("html",) * (not self.mimes)
        fields = [field for field in SCHEMA if field.name not in unset]
        return pa.schema([*fields, *(_OF_BINARIES if self.binary else ())])

    def for_tokens(self, signals: Sequence[str]) -> Self:  # noqa: ARG002  # pages have none
        """Return the source without digests, unless it has PDFs to compare by them, and with the lists already read."""
        source = replace(self, digests=self.digests and bool(self.binary))
        vars(source).update({name: value for name, value in vars(self).items() if name == "_listed"})
        return source

    def splits(self) -> dict[str, list[Part]]:
        """List the files of every split."""
        if not self.binary and (pdf := next((mime for mime in self.mimes if mime in pages.PDF_TYPES), None)):
            warn_user(f"source 'warc': mimes has {pdf!r}, but PDFs are skipped: set binary=['pdf'] to read them")
        if self.paths:
            return {"train": list(self._listed.parts)}
        data_dir, data_files = self.located((self.data_dir, self.data_files))
        return named_parts(self.name, data_dir, data_files, EXTENSIONS, "*.warc.gz")

    def lists(self) -> Mapping[str, Mapping[str, Any]]:
        """Return bytes, SHA-256 and number of paths of each list in ``paths``, by path or URL."""
        return self._listed.lists if self.paths else {}

    def divides(self, part: Part) -> bool:  # noqa: ARG002  # as every file may be
        """Return True, since every file can be read from any of its records on."""
        return True

    def divide(self, part: Part, size: int, folder: Path) -> Sequence[Section]:  # noqa: ARG002  # nothing is written
        """Divide a file between records; none if it is damaged."""
        (path,) = part.files
        try:
            with opened(path) as file:
                return divide_records(file, self.max_record_bytes, path, size)
        except DamagedFileError:  # the part that reads the file whole reports it
            return []

    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read the pages of one file or of a section of it."""
        block = Block(self.schema())
        for row, page in self._rows(part, bad_files):
            if not block.add(row, page):
                yield block.table()
                block = Block(self.schema())
                block.add(row, page)
        if block.rows:
            yield block.table()

    def list_ids(self, part: Part) -> Iterator[pa.ChunkedArray] | None:
        """List the ids in record headers, or return None for a remote file, which would be fetched twice."""
        return None if is_url(part.files[0]) else map(self._record_ids, [part])

    def _record_ids(self, part: Part) -> pa.ChunkedArray:
        (path,), ids = part.files, list[str]()
        with suppress(DamagedFileError), opened(path) as file:
            listed = list_ids(file, self.record_types) if part.section is None else None
            if listed is not None:
                return pa.chunked_array([pa.array(listed, pa.string())])
            records = read_records(file, 0, Lost(BadFiles("skip"), path), part.section)
            headers = (record.fields for record in records)
            wanted = (fields for fields in headers if fields.get("warc-type", "").lower() in self.record_types)
            ids.extend(fields["warc-record-id"] for fields in wanted if fields.get("warc-record-id"))
        return pa.chunked_array([pa.array(ids, pa.string())])

    def _rows(self, part: Part, bad_files: BadFiles) -> Iterator[tuple[dict[str, Any], Page]]:
        (path,) = part.files
        left_out, guessed = Counter[str](), Counter[str]()
        lost = Lost(bad_files, path)
        try:
            with opened(path) as file:
                for record in read_records(file, self.max_record_bytes, lost, part.section):
                    try:
                        yield self._row(part.name, record, guessed)
                    except LeftOutError as rule:
                        left_out[str(rule)] += 1
            lost.report()
        except DamagedFileError as damage:
            bad_files.report(path, str(damage))
        bad_files.left_out.update(left_out)
        bad_files.encodings.update({charset + GUESSED: count for charset, count in guessed.items()})
        rules = ", ".join(f"{rule} {count:,}" for rule, count in sorted(left_out.items())) or "none"
        message = "%s: %s records are not documents, by rule: %s; the charset of %s pages is guessed"
        logger.info(message, one_line(path), f"{left_out.total():,}", rules, f"{guessed.total():,}")

    def _row(self, name: str, record: Record, guessed: Counter[str]) -> tuple[dict[str, Any], Page]:
        """Make the row of a record, or raise a LeftOutError; ``guessed`` counts pages by guessed charset."""
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
        said = declared.mimes[-1] if declared.mimes else None
        payload, cut = self._payload(said, record.block, message)
        mime = said and self._accepted(self._type_of(kind, said, payload))
        truncated = fields.get("warc-truncated") or cut
        if truncated and self.truncated == "skip":
            raise LeftOutError("truncated")
        if not payload:
            raise LeftOutError("empty_body")
        mime = mime or self._accepted(self._found_out(kind, fields, payload))
        row = {
            "id": fields.get("warc-record-id") or f"{name}:{record.number}",
            "url": url,
            "date": fields.get("warc-date"),
            "source": name,
            "file": name,
            "status": message and message.status,
            "mime": mime,
            "charset": None,
            "language_hint": headers.get("content-language") or fields.get("warc-identified-content-language"),
            "truncated": truncated,
            "offset": record.offset,
            "length": record.length,
        }
        if self.binary:
            row |= {"mime_declared": said, "bytes_announced": message and pages.announced_bytes(message.fields)}
        if mime in pages.PDF_TYPES:
            return row | {"mime": pages.PDF}, Page(payload, payload, "content")
        is_markup = kind != "conversion" and ("html" in mime or "xml" in mime)
        page = pages.decode_page(payload, declared.charset, markup=is_markup)
        if page.is_guessed:
            guessed[page.charset] += 1
        return row | {"charset": page.charset}, Page(page.utf8, payload, "html" if is_markup else "text")

    def _payload(
        self, said: str | None, block: memoryview, message: Message | None
    ) -> tuple[bytes | memoryview, str | None]:
        """Return the body of a record and what it was cut by, or raise a LeftOutError for a type without interest."""
        if said is not None and not (self.binary or said in pages.PDF_TYPES):
            self._accepted(said)
        try:
            return (block, None) if message is None else pages.body_of(message, self.max_record_bytes)
        except LeftOutError:
            if said is not None:
                self._accepted(said)
            raise

    def _message(self, kind: str, record: Record, block: memoryview) -> Message | None:
        """Return the HTTP message in a record, or None if its block is not one."""
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

    def _type_of(self, kind: str, said: str | None, payload: bytes | memoryview) -> str | None:
        """Return the type of a page by its first bytes, or else what is declared; LeftOutError if it is no PDF."""
        is_said = said in pages.PDF_TYPES
        # Conversions to text are not as sent, and may begin like anything.
        if (kind != "conversion" or is_said) and pages.begins_like_pdf(payload, declared=is_said):
            return said if is_said else pages.PDF
        if (said is None or is_said) and pages.begins_like_html(payload):
            return "text/html"
        if is_said and pages.begins_like_xhtml(payload):
            return "text/html"
        if is_said and payload and self.binary:
            raise LeftOutError("not_pdf")
        return said

    def _found_out(self, kind: str, fields: Fields, payload: bytes | memoryview) -> str | None:
        """Return the type of a page for which the server names none, or None."""
        identified = next(iter(pages.content_type_of(fields.get("warc-identified-payload-type", "")).mimes[-1:]), None)
        mime = self._type_of(kind, identified if identified in pages.PDF_TYPES else None, payload)
        is_unnamed = identified is None and not self.binary
        return None if mime == pages.PDF and is_unnamed else mime or identified

    def _accepted(self, mime: str | None) -> str:
        """Return a type that becomes a row; LeftOutError for another one, or for None."""
        if mime is None:
            raise LeftOutError("no_mime")
        if not (self.binary if mime in pages.PDF_TYPES else mime in self.mimes):
            top = mime.partition("/")[0]
            raise LeftOutError(f"mime_{top if top in _TOP_LEVEL else 'other'}")
        return mime
