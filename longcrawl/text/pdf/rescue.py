"""Cross-reference table and page tree for a PDF whose end is missing, as crawlers cut files at 1 or 5 MiB.

PDFium does not open files without their trailer. The objects before it contain everything needed: this module scans for
them and appends a page tree, a catalog and a cross-reference stream (ISO 32000-1, 7.5.8). Existing bytes do not change.
"""

import re
import struct
import zlib
from collections.abc import Iterator

_OBJECT = re.compile(rb"(?<![0-9])(\d{1,7})[ \t\r\n]+\d{1,5}[ \t\r\n]+obj\b")
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_ENCRYPTED = re.compile(rb"/Encrypt\s*(?:<<|\d+\s+\d+\s+R)")
_STREAM = re.compile(rb"stream\r?\n")
_LENGTH = re.compile(rb"/Length\s+(\d{1,9})(?!\s+\d+\s+R)")
_COUNT = re.compile(rb"/N\s+(\d{1,6})")
_FIRST = re.compile(rb"/First\s+(\d{1,9})")
_NUMBERS = re.compile(rb"\d{1,9}")
_MOST_OBJECTS = 500_000
_HEAD = 1000
"""Bytes in which the dictionary of an object stream must end."""
_DICTIONARY = 4000
"""Bytes of an object that are searched for its type."""
_MOST_INFLATED = 1 << 26
_LETTER = b"[0 0 612 792]"
"""Page size, in points, for pages that inherited their size from a lost page tree."""


class _Objects:
    """Places of the objects of a file; a later object replaces an earlier one of the same number."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.compressed: dict[int, tuple[int, int]] = {}
        """Number of the object stream, and index in it."""
        self.pages: dict[int, None] = {}
        """Page objects in the order of the file."""

    def __len__(self) -> int:
        return len(self.offsets) + len(self.compressed)

    def add(self, number: int, offset: int, dictionary: bytes) -> None:
        self.compressed.pop(number, None)
        self.offsets[number] = offset
        self._note(number, dictionary)

    def add_compressed(self, number: int, stream: int, index: int, dictionary: bytes) -> None:
        self.offsets.pop(number, None)
        self.compressed[number] = stream, index
        self._note(number, dictionary)

    def _note(self, number: int, dictionary: bytes) -> None:
        if _PAGE.search(dictionary):
            self.pages[number] = None
        else:
            self.pages.pop(number, None)


def rescue(data: bytes) -> bytes | None:
    """Return a PDF that opens, or None if the data is encrypted or has no page object."""
    if b"endobj" not in data or _ENCRYPTED.search(data):
        return None
    data = _ended(data)
    objects = _Objects()
    for found in _OBJECT.finditer(data):
        if len(objects) > _MOST_OBJECTS:
            return None
        number, head = int(found[1]), data[found.end() : found.end() + _HEAD]
        if number > len(data):  # impossible in a file of this size: a table of all numbers would take too much memory
            continue
        if b"/ObjStm" in head.partition(b"stream")[0]:
            objects.add(number, found.start(), b"")
            for index, (inner, dictionary) in enumerate(_compressed_objects(data, found.end(), head)):
                if inner <= len(data):
                    objects.add_compressed(inner, number, index, dictionary)
        else:
            stop = data.find(b"endobj", found.end(), found.end() + _DICTIONARY)
            body = data[found.end() : stop if stop >= 0 else found.end() + _DICTIONARY]
            objects.add(number, found.start(), body.partition(b"stream")[0])
    return _with_page_tree(data, objects) if objects.pages else None


def _ended(data: bytes) -> bytes:
    """Return the data up to the end of an object; a truncated stream is ended, since its beginning can be read."""
    end = data.rfind(b"endobj") + len(b"endobj")
    last = _OBJECT.search(data, end)
    if last is None or _STREAM.search(data, last.end(), last.end() + _DICTIONARY) is None:
        return data[:end]
    return data + b"\nendstream\nendobj"


def _compressed_objects(data: bytes, at: int, head: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and text of each object in the object stream whose dictionary begins at an offset."""
    begins, count, first, length = (each.search(head) for each in (_STREAM, _COUNT, _FIRST, _LENGTH))
    if begins is None or count is None or first is None:
        return
    start = at + begins.end()
    stop = start + int(length[1]) if length else data.find(b"endstream", start)
    stop = stop if start <= stop <= len(data) else len(data)
    content = _inflate(data[start:stop]) if b"/FlateDecode" in head[: begins.start()] else data[start:stop]
    base = int(first[1])
    numbers = [int(each) for each in _NUMBERS.findall(content[:base])][: 2 * int(count[1])]
    offsets = [*numbers[1::2], len(content) - base]
    for number, offset, stop in zip(numbers[::2], offsets, offsets[1:], strict=False):
        yield number, content[base + offset : base + stop]


def _inflate(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, _MOST_INFLATED)
    except zlib.error:
        return b""


def _with_page_tree(data: bytes, objects: _Objects) -> bytes:
    pages = max(max(objects.offsets, default=0), max(objects.compressed, default=0)) + 1
    catalog, table = pages + 1, pages + 2
    made = bytearray(data + b"\n")
    kids = b" ".join(b"%d 0 R" % page for page in objects.pages)
    for number, body in (
        (pages, b"<< /Type /Pages /Count %d /MediaBox %s /Kids [%s] >>" % (len(objects.pages), _LETTER, kids)),
        (catalog, b"<< /Type /Catalog /Pages %d 0 R >>" % pages),
    ):
        objects.offsets[number] = len(made)
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    objects.offsets[table] = len(made)
    packed = zlib.compress(b"".join(_entries(objects, table + 1)), 1)
    entries = b"<< /Type /XRef /Size %d /W [1 4 2] /Root %d 0 R /Filter /FlateDecode /Length %d >>"
    made += b"%d 0 obj\n" % table + entries % (table + 1, catalog, len(packed))
    made += b"\nstream\n" + packed + b"\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n" % objects.offsets[table]
    return bytes(made)


def _entries(objects: _Objects, size: int) -> Iterator[bytes]:
    entry = struct.Struct(">BIH")
    for number in range(size):
        if number in objects.offsets:
            yield entry.pack(1, objects.offsets[number], 0)
        elif number in objects.compressed and objects.compressed[number][1] < 1 << 16:
            yield entry.pack(2, *objects.compressed[number])
        else:
            yield entry.pack(0, 0, 0)
