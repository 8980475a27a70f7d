"""Reader of archive records that reports damaged stretches.

A record counts only if its block is followed by the next record, the end of its compressed member, or the end of the
file, so a wrong length or a damaged member is noticed. Unreadable data is reported as one stretch of bytes. Reading
resumes in the next member that can be decompressed, at the first line that begins with ``WARC/``.
"""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import BinaryIO, Literal, NamedTuple, get_args

from longcrawl.core.progress import note_read, tell_progress
from longcrawl.core.sources import BadFiles, Section, is_utf8
from longcrawl.sources import compressed
from longcrawl.sources.compressed import BrokenMemberError, Members, Window, compression_of, file_bytes

HEADER_BYTES = 1 << 20
"""Maximum bytes of the header of a record or an HTTP message."""
Name = Literal[
    "content-encoding", "content-language", "content-length", "content-type", "transfer-encoding", "warc-date",
    "warc-identified-content-language", "warc-identified-payload-type", "warc-record-id", "warc-target-uri",
    "warc-truncated", "warc-type", "x-crawl-content-encoding", "x-crawl-content-length",
]  # fmt: skip
NAMES: tuple[Name, ...] = get_args(Name)
"""Names of the fields that are read, in lower case for comparison."""
Fields = Mapping[Name, str]
"""Field values by name; the values of a repeated field are joined by a comma."""
_LENGTH = re.compile(r"\d{1,18}")


class Message(NamedTuple):
    """An HTTP response; ``status`` is None if it has none that can be read."""

    status: int | None
    fields: Fields
    body: bytes | memoryview


def parse_fields(header: bytes, encoding: str = "latin-1") -> Fields:
    """Parse a header; indented lines continue the line before, and lines without a colon are skipped."""
    values: dict[str, list[str]] = {}
    name = ""
    for line in header.decode(encoding, "replace").split("\n"):
        if line[:1] in (" ", "\t") and name:
            values[name].append(" " + line.strip())
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower() if colon else ""
        if name in values:
            values[name].append(", " + value.strip())
        elif name:
            values[name] = [value.strip()]
    return {name: "".join(values[name]) for name in NAMES if name in values}


def length_of(fields: Fields) -> int | None:
    """Return the Content-Length, the first one if it is repeated, or None if it is not a number."""
    length = fields.get("content-length", "").split(",")[0].strip()
    return int(length) if _LENGTH.fullmatch(length) else None


MOST_NAMED = 10
"""Maximum number of lost stretches named per file; all are counted."""
MOST_REASONS = 3
"""Maximum number of reasons named per stretch."""
ARC_FILE = (
    "this is an ARC file, the format before WARC; convert it, e.g. with `warcio recompress FILE.arc FILE.warc.gz`"
)


@dataclass
class Lost:
    """Collector of the unreadable stretches of one file; the policy "error" stops at the first."""

    bad_files: BadFiles
    file: str
    _named: list[str] = field(default_factory=list)
    _stretches: int = 0
    _reasons: list[str] = field(default_factory=list)
    _begin: int | None = None
    _records: int | None = 0

    def open(self, offset: int, reason: str, *, records: int | None = 1) -> None:
        """Begin a stretch that cannot be read, up to ``close``; ``records`` is the number lost, or None if unknown."""
        if self._begin is None:
            self._begin = offset
        if reason not in self._reasons and (len(self._reasons) < MOST_REASONS or reason == ARC_FILE):
            self._reasons.append(reason)
        self._records = None if self._records is None or records is None else self._records + records
        if self.bad_files.policy == "error":
            self.bad_files.report(self.file, f"at byte {offset:,}: {reason}")

    @property
    def is_open(self) -> bool:
        """Whether a stretch is open, so that nothing has been readable since the last ``open``."""
        return self._begin is not None

    def close(self, offset: int | None) -> None:
        """End the stretch at ``offset``, where reading resumes, or at the end of the file if it is None."""
        if self._begin is not None:
            end = "to its end" if offset is None else f"to {offset:,}"
            # For an ARC file, other reasons add nothing.
            reasons = [ARC_FILE] if ARC_FILE in self._reasons else self._reasons
            self._stretches += 1
            if self._stretches <= MOST_NAMED:
                self._named.append(f"from byte {self._begin:,} {end}: {', then '.join(reasons)}")
            self._begin, self._reasons = None, []
            if offset is None:
                self._records = None

    def report(self) -> None:
        """Report all lost stretches in one entry, if there are any."""
        if self._stretches:
            more = self._stretches - MOST_NAMED
            named = self._named + [f"and {more} more stretches"] * (more > 0)
            self.bad_files.report(self.file, f"cannot be read {'; '.join(named)}", self._records)


MAGIC = b"WARC/"
"""First bytes of a record."""


class _Edges:
    """Edges of members as increasing positions with their offsets in the file, found by bisection."""

    def __init__(self) -> None:
        self._edges, self._first = list[tuple[int, int]](), 0
        """The edges, and the number of dropped ones that are still in the list."""

    def add(self, position: int, offset: int) -> None:
        self._edges.append((position, offset))

    def ends_at(self, position: int) -> bool:
        return len(self._edges) > self._first and self._edges[-1][0] == position

    def replace_last(self, position: int, offset: int) -> None:
        self._edges[-1] = position, offset

    def drop_before(self, position: int) -> int | None:
        """Drop the edges before a position, and return the offset of the last one dropped, or None."""
        first = bisect_left(self._edges, (position,), self._first)
        dropped = self._edges[first - 1][1] if first > self._first else None
        self._first = first
        if 2 * first > len(self._edges):
            del self._edges[:first]
            self._first = 0
        return dropped

    def first_within(self, first: int, last: int) -> tuple[int, int] | tuple[None, None]:
        found = bisect_left(self._edges, (first,), self._first)
        return self._edges[found] if found < len(self._edges) and self._edges[found][0] <= last else (None, None)


class Stream:
    """Decompressed bytes of a file from the beginning of a member up to damage, with the edges of members."""

    def __init__(self, members: Members, offset: int) -> None:
        self.members, self.compression = members, members.compression
        self.damage: BrokenMemberError | None = None
        self.open(offset)

    def open(self, offset: int) -> None:
        """Continue at an offset of the file; positions in an uncompressed file equal offsets."""
        self._events = self.members.events(offset)
        self.position = offset if self.compression == "none" else 0
        self._window = Window()
        self._begins, self._ends, self._records = _Edges(), _Edges(), _Edges()
        self._unread = deque[tuple[int, int]]()
        """Beginnings of members that have not yet been checked for a record."""
        self._member = offset
        self.ended = False

    @property
    def buffer(self) -> memoryview:
        """Decompressed bytes from the current position on, valid until more are decompressed."""
        return self._window.view()

    def fill(self, size: int, *, within_member: bool = False) -> bool:
        """Fill the buffer with ``size`` bytes, or up to the end of a member, and return whether there are that many."""
        while len(self._window) < size and not self.ended:
            if within_member and self._ends.ends_at(self.position + len(self._window)):
                break
            self._pull()
        return len(self._window) >= size

    def drop(self, size: int) -> None:
        """Skip ``size`` bytes of the buffer."""
        self._window.take(size)
        self.position += size
        dropped = self._begins.drop_before(self.position)
        self._member = self._member if dropped is None else dropped
        self._ends.drop_before(self.position)
        self._records.drop_before(self.position)

    def place(self) -> int:
        """Return the file offset of the current position, or of the member that contains it."""
        return self._member if (begin := self.begin()) is None else begin

    def begin(self) -> int | None:
        """Return the offset of the member that begins at the current position, or None."""
        here = self.position
        return here if self.compression == "none" else self._begins.first_within(here, here)[1]

    def end_within(self, first: int, last: int) -> int | None:
        """Return the offset of the first end of a member between two positions, or None."""
        return self._ends.first_within(first, last)[1]

    def record_within(self, first: int, last: int) -> int | None:
        """Return the first position between two, both excluded, at which a member begins with a record."""
        while self._unread and self._unread[0][0] + len(MAGIC) <= self.position + len(self._window):
            begin, offset = self._unread.popleft()
            if begin >= self.position and begins_with(self.buffer, MAGIC, begin - self.position):
                self._records.add(begin, offset)
        return self._records.first_within(first + 1, last - 1)[0]

    def _pull(self) -> None:
        try:
            event = next(self._events, None)
        except BrokenMemberError as damage:
            self.damage, event = damage, None
        self.ended = event is None
        for part in event.parts() if event is not None else ():
            here = self.position + len(self._window)
            if part.kind == "data":
                self._window.add(part.data)
            elif part.kind == "begin":
                # Members may be empty; of those that begin at one position, the last contains the data.
                if self._begins.ends_at(here):
                    self._begins.replace_last(here, part.offset)
                else:
                    self._begins.add(here, part.offset)
                    self._unread.append((here, part.offset))
            elif not self._ends.ends_at(here):
                self._ends.add(here, part.offset)


def begins_with(buffer: memoryview, what: bytes, start: int = 0) -> bool:
    """Return whether some bytes are at a position of a buffer."""
    return buffer[start : start + len(what)] == what


STEP_BYTES = 1 << 16
"""Bytes held at a time of a record that is too long."""
FIRST_BYTES = (1 << 10, 1 << 14)
"""Bytes of a member that usually hold its record's header, and bytes to try if the header is long."""
FIRST_DATA_BYTES = 1 << 16
"""Maximum bytes that the beginning of a member is decompressed to."""
FALSE_BEGINNINGS = 16
"""Number of false beginnings of members allowed in a file, in addition to one per record."""
_CUT = "the file ends within a record"
_MISPLACED = "a record's Content-Length does not lead to the next record"
_VERSION = re.compile(rb"WARC/\d+\.\d+[ \t]*\r*\n")
_NEXT_LINE = re.compile(rb"\nWARC/\d")
_LINE_BEGINS = b"\nWARC/1"
_HEADER_END = re.compile(rb"\n(?:\r*(?P<empty>\n)|WARC/\d)")
_RECORD_END = b"\r\n\r\n"
_NEWLINES = re.compile(rb"[\r\n]*")


class Record(NamedTuple):
    """One record; ``offset`` and ``length`` are None if it shares a compressed member with others."""

    number: int
    offset: int | None
    length: int | None
    fields: Fields
    block: memoryview | None
    """The record's content, valid until the next record, or None if it is too long."""


def read_records(file: BinaryIO, most_bytes: int, lost: Lost, section: Section | None = None) -> Iterator[Record]:
    """Yield the records of an archive file, each valid until the next; blocks over ``most_bytes`` are skipped.

    Of a section, made by :func:`divide_records`, only its records are read.
    """
    if section is not None:
        start, stop, first, count = section.start, section.stop, section.first, section.count
    else:
        start, stop, first, count = 0, file_bytes(file), 0, None
    for record in islice(_read_from(file, most_bytes, lost, start, first), count):
        note_read(file.tell() - start, stop - start)
        yield record


def divide_records(file: BinaryIO, most_bytes: int, path: str, size: int) -> list[Section]:
    """Divide an archive file into sections of at least ``size`` bytes of content, except for the last one.

    A section begins with a member that holds one record, or a record of an uncompressed file. There is none if the file
    is read whole, because it is damaged.
    """
    lost, bounds, filled, count = Lost(BadFiles("skip"), path), list[tuple[int, int]](), size, 0
    for record in read_records(file, most_bytes, lost):
        if filled >= size and (record.offset is not None or not bounds):
            bounds.append((record.offset or 0, record.number))
            filled = 0
        filled += len(record.block or b"")
        count += 1
        tell_progress()
    lost.report()
    if lost.bad_files.found:
        return []
    bounds[0] = (0, 0)
    bounds.append((file_bytes(file), count))
    return [
        Section(start, stop, first, last - first, stop - start) for (start, first), (stop, last) in pairwise(bounds)
    ]


def _read_from(file: BinaryIO, most_bytes: int, lost: Lost, start: int, number: int) -> Iterator[Record]:
    members = Members(file, compression_of(file), lost.bad_files.when_to_check(lost.file), short_whole=True)
    offset: int | None = start
    while offset is not None:
        stream = Stream(members, offset)
        reader = _Reader(stream, most_bytes, lost, number)
        yield from reader.records()
        number, offset = reader.number, None
        if (damage := stream.damage) is not None:
            begun = _Beginnings()
            end, offset = members.recover(damage, begun.add)
            # Bytes that are not a member may be one whose first bytes are damaged.
            records = (begun.count or int(not reader.noted_damage)) if damage.is_member else None
            lost.open(damage.offset, str(damage), records=records)
            if offset is None and end == file_bytes(file):
                lost.close(end)
    if number == 0:
        lost.open(0, "contains no web archive records", records=0)
    lost.close(None)


def list_ids(file: BinaryIO, record_types: Collection[str]) -> list[str] | None:
    """Return the ids of records of some types from the beginnings of gzip members, or None if these do not suffice.

    They suffice if each member holds one record. Damage after a header is not noticed.
    """
    ids, length, members, others = list[str](), 0, 0, 0
    for before, first in _beginnings(file):
        fields, following = _read_first(first)
        is_edge = (int.from_bytes(before, "little") - length) % (1 << 32) <= len(_RECORD_END) if members else not before
        if first and not fields and not is_edge:
            others += 1
        elif not is_edge or (first and not fields):
            return None
        if others > members + FALSE_BEGINNINGS:
            return None
        if fields:
            members, length = members + 1, following
            if (name := fields.get("warc-record-id")) and fields.get("warc-type", "").lower() in record_types:
                ids.append(name)
    return ids if members else None


def _beginnings(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the four bytes before each possible beginning of a gzip member, and the bytes from it, or none."""
    file.seek(0)
    if file.read(len(compressed.GZIP)) != compressed.GZIP:
        return
    for offset in compressed.occurrences(file, compressed.GZIP, 0):
        place, before = file.tell(), min(offset, 4)
        file.seek(offset - before)
        found = file.read(before + FIRST_BYTES[-1])
        file.seek(place)
        yield found[:before], found[before:]
    file.seek(max(file.tell() - 4, 0))
    yield file.read(), b""


def _read_first(first: bytes) -> tuple[Fields, int]:
    """Return the fields and length of the record at the beginning of a member, or no fields and 0."""
    for size in FIRST_BYTES:
        data = compressed.decompress_beginning(first[:size], FIRST_DATA_BYTES)
        if not _VERSION.match(data):
            break
        end = _HEADER_END.search(data, 0, HEADER_BYTES)
        if end is not None and end["empty"]:
            fields, length = _parse_head(data[: end.end()])
            return ({}, 0) if length is None else (fields, end.end() + length)
    return {}, 0


def _parse_head(header: bytes) -> tuple[Fields, int | None]:
    """Parse the header of a record, in UTF-8 or Latin-1, and return its fields and Content-Length or None."""
    fields = parse_fields(header, "utf-8" if not header.isascii() and is_utf8(header) else "latin-1")
    return fields, length_of(fields)


class _Reader:
    def __init__(self, stream: Stream, most_bytes: int, lost: Lost, number: int) -> None:
        self._stream, self._most_bytes, self._lost = stream, most_bytes, lost
        self.number = number
        self.noted_damage = False
        """Whether the record lost to the stream's damage has been counted."""

    def records(self) -> Iterator[Record]:
        stream = self._stream
        while self._at_bytes():
            if not (stream.fill(len(MAGIC)) and begins_with(stream.buffer, MAGIC)):
                is_arc = begins_with(stream.buffer, b"filedesc:")
                self._note(ARC_FILE if is_arc else "no record begins here", records=0)
                self._scan(0)
            elif (record := self._record()) is not None:
                if self._lost.is_open:
                    record = self._close_lost(record)
                self.number += 1
                yield record

    def _close_lost(self, record: Record) -> Record:
        """Note that reading resumes at a record, or after it if it has no offset."""
        if record.offset is not None:
            self._lost.close(record.offset)
            return record
        # The buffer moves on.
        kept = record._replace(block=record.block and memoryview(bytes(record.block)))
        self._at_bytes()
        self._lost.close(self._stream.place())
        return kept

    def _at_bytes(self) -> bool:
        stream = self._stream
        while stream.fill(1):
            stream.drop(_blank(stream.buffer, 0))
            if stream.buffer:
                return True
        return False

    def _record(self) -> Record | None:
        """Read the record that begins here, or note why it cannot be read and skip it."""
        stream = self._stream
        head = self._head_bytes()
        if head is None or not _VERSION.match(stream.buffer):
            self._reject("a record's header has no end, or does not begin with a version")
            return None
        fields, length = _parse_head(bytes(stream.buffer[:head]))
        if length is None:
            self._reject("a record's header has no Content-Length")
            return None
        if length > self._most_bytes:
            return self._pass_over(fields, head, length)
        return self._take(fields, head, head + length)

    def _take(self, fields: Fields, head: int, end: int) -> Record | None:
        """Return the record with a block up to ``end``, or note why it is not valid."""
        stream = self._stream
        whole = stream.fill(end)
        begin = stream.position
        if stream.record_within(begin, begin + end) is not None:
            reason = "a record is shorter than its Content-Length"
        elif not whole:
            reason = self._why(_CUT)
        else:
            after, well = self._after(end)
            reason = "" if well else self._why(_MISPLACED)
        if reason:
            self._reject(reason)
            return None
        return self._finish(fields, stream.buffer[head:end], end, after, stream.begin())

    def _pass_over(self, fields: Fields, head: int, length: int) -> Record | None:
        """Skip a record that is too long without ever holding it."""
        stream = self._stream
        begin, end = stream.position, stream.position + head + length
        offset, records = stream.begin(), 1
        if stream.compression == "none":
            if end > file_bytes(stream.members.file):
                self._reject(self._why(_CUT))
                return None
            stream.open(end)
        else:
            records = self._drop_until(begin, end)
        after, well = self._after(0) if stream.position == end else (0, False)
        if not well:
            self._note(self._why(_MISPLACED), offset, records=records)
            if stream.compression == "none":
                stream.open(begin + head)
            return None
        return self._finish(fields, None, 0, after, offset)

    def _drop_until(self, begin: int, end: int) -> int:
        """Drop the bytes up to a position, or to a member before it with a record; count records that begin in them."""
        stream, dropped = self._stream, _Beginnings()
        while stream.position < end:
            step = min(end - stream.position, STEP_BYTES)
            stream.fill(step + len(MAGIC))
            cut = stream.record_within(begin, stream.position + step)
            size = min(step, len(stream.buffer)) if cut is None else cut - stream.position
            dropped.add(bytes(stream.buffer[:size]))
            stream.drop(size)
            if cut is not None or not stream.buffer:
                break
        dropped.add(bytes(stream.buffer[: len(MAGIC)]))  # may complete a beginning that was partly dropped
        return dropped.count

    def _finish(self, fields: Fields, block: memoryview | None, end: int, after: int, offset: int | None) -> Record:
        """Make the record with a block up to ``end`` of the buffer, and continue after the line ends that follow."""
        stream = self._stream
        stop = stream.position + after
        last = stop if stream.compression == "none" else stream.end_within(stream.position + end, stop)
        length = None if offset is None or last is None else last - offset
        record = Record(self.number, None if length is None else offset, length, fields, block)
        stream.drop(after)
        return record

    def _after(self, end: int) -> tuple[int, bool]:
        """Return the end of the line ends after a block, and whether what follows shows that the block is whole."""
        stream, after = self._stream, end
        while after - end < HEADER_BYTES and stream.fill(after + 1, within_member=True):
            after += _blank(stream.buffer, after)
            if after < len(stream.buffer):
                break
        is_packed, here = stream.compression != "none", stream.position
        if is_packed and stream.end_within(here + end, here + after) is not None:
            return after, True
        if after == len(stream.buffer):
            return after, not is_packed and stream.damage is None
        stream.fill(after + len(MAGIC))
        follows = begins_with(stream.buffer, MAGIC, after) or stream.buffer[end:after] == _RECORD_END
        return after, follows

    def _head_bytes(self) -> int | None:
        """Return the length of the header with its empty line, or None if another record begins first."""
        stream, size = self._stream, 1 << 10
        while True:
            more = stream.fill(size)
            if (found := _HEADER_END.search(stream.buffer, 0, HEADER_BYTES)) is not None:
                return found.end() if found["empty"] else None
            if not more or size >= HEADER_BYTES:
                return None
            size *= 4

    def _why(self, reason: str) -> str:
        if self._stream.damage is None:
            return reason
        self.noted_damage = True
        return str(self._stream.damage)

    def _note(self, reason: str, offset: int | None = None, *, records: int = 1) -> None:
        self._lost.open(self._stream.place() if offset is None else offset, reason, records=records)

    def _reject(self, reason: str) -> None:
        self._note(reason)
        self._scan(1)

    def _scan(self, start: int) -> None:
        """Skip to the next line or member that begins with ``WARC/``, or to the end."""
        stream = self._stream
        while True:
            found = _NEXT_LINE.search(stream.buffer, start)
            line = len(stream.buffer) if found is None else found.start() + 1
            member = stream.record_within(stream.position + max(start - 1, 0), stream.position + line)
            if member is not None or line < len(stream.buffer):
                stream.drop(line if member is None else member - stream.position)
                return
            stream.drop(max(len(stream.buffer) - len(MAGIC) - 1, 0))
            start = 0
            if not stream.fill(len(stream.buffer) + 1):
                stream.drop(len(stream.buffer))
                return


class _Beginnings:
    """Counter of the records that seem to begin in lost bytes."""

    def __init__(self) -> None:
        self.count = 0
        self._tail = b"\n"

    def add(self, data: bytes) -> None:
        text = self._tail + data
        self.count += len(_NEXT_LINE.findall(text))
        self._tail = text[1 - len(_LINE_BEGINS) :]


def _blank(buffer: memoryview, start: int) -> int:
    found = _NEWLINES.match(buffer, start)
    return 0 if found is None else found.end() - start
