"""Decoding of HTTP responses: status, headers, body and charset.

Archives store messages as sent, or with encodings undone and the headers unchanged. A body that is not encoded as its
header declares is therefore kept unchanged, unless it is binary.

The charset of a page is found in this order:

1. A byte order mark of UTF-8 or UTF-16.
2. The charset of the HTTP header, then the one that the page itself names in its first 4 kB (``<meta charset>``, or an
   XML declaration), if it decodes the page without an error. A charset of one byte per character decodes anything, so
   UTF-8 takes precedence over it if the page is valid UTF-8 and not ASCII.
3. UTF-8, if it is valid.
4. The same charsets, with U+FFFD for malformed characters, if there are enough well-formed ones beyond ASCII: one per
   malformed character in UTF-8, which has a distinctive form, or ten in others.
5. The charset that the page seems to be in, see :mod:`longcrawl.sources.encodings`, or else windows-1252, which decodes
   anything; both count as guessed.

Names mean what they do in browsers (https://encoding.spec.whatwg.org). UTF-16 without a byte order mark counts only in
the HTTP header of a page with zero bytes. NUL characters are removed.
"""

import codecs
import itertools
import re
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import zstandard
from isal import isal_zlib

from longcrawl.core.sources import is_utf8
from longcrawl.errors import SourceError
from longcrawl.sources.compressed import GZIP, ZSTD, is_skippable
from longcrawl.sources.encodings import guess_encoding
from longcrawl.sources.warc.records import HEADER_BYTES, Fields, Message, length_of, parse_fields

State = Literal["whole", "cut", "damaged"]

WINDOW_BYTES = 8 << 20
"""Maximum window of zstd as a content coding in bytes (RFC 9659)."""
LEAST_BYTES = 64
"""Bytes of text that a body must decode to if it has no signature of its coding and was not decoded to its end."""
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]{0,4096}+|\r*+)\n")
_LINE_END = re.compile(rb"\r*\n")
_TRAILERS = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n)*[ \t\r\n]*\Z")
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters that do not occur in text, except in UTF-16."""


class _Stream:
    """Decoder of one compressed stream, made of its first bytes and whether decoding it has failed before."""

    step: ClassVar[int]
    """Bytes decoded at a time, few enough to bound their output."""
    errors: tuple[Any, ...]
    _stream: Any

    @staticmethod
    def is_named(head: bytes) -> bool:  # noqa: ARG004  # subclasses use it
        """Return whether bytes have the signature of this coding; False for a coding without one."""
        return False

    @staticmethod
    def follows(head: bytes) -> bool:  # noqa: ARG004  # subclasses use it
        """Return whether another stream begins after the end of one."""
        return False

    def decode(self, piece: bytes, most: int) -> bytes:  # noqa: ARG002  # zstandard cannot bound its output
        """Return the decoded data of a piece; data beyond ``most`` bytes may be left out."""
        return bytes(self._stream.decompress(piece))

    @property
    def ended(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused(self) -> int:
        """Number of bytes of the last piece after the end of the stream."""
        return len(self._stream.unused_data)


class _Deflate(_Stream):
    """Decoder of gzip, and of deflate with a header or, as many servers send it, without."""

    step = 1 << 16
    errors = (isal_zlib.error, zlib.error)

    def __init__(self, head: bytes, again: bool) -> None:  # noqa: FBT001  # only _decode calls it
        bits = 31 if head.startswith(GZIP[:2]) else 15 if self.is_named(head) else -15
        # ISA-L fails at headers that arrive in pieces.
        self._stream = (zlib if again else isal_zlib).decompressobj(bits)

    @staticmethod
    def is_named(head: bytes) -> bool:
        is_zlib = len(head) > 1 and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        return is_zlib or head.startswith(GZIP[:2])

    @staticmethod
    def follows(head: bytes) -> bool:
        return head.startswith(GZIP)

    def decode(self, piece: bytes, most: int) -> bytes:
        return bytes(self._stream.decompress(piece, most))


class _Zstd(_Stream):
    step = 512
    """Bytes decoded at a time; four bytes may become 128 kB, and the output of a step cannot be bounded."""
    errors = (zstandard.ZstdError,)

    def __init__(self, *_: object) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()

    @staticmethod
    def is_named(head: bytes) -> bool:
        return head[:4] == ZSTD or is_skippable(head[:4])

    follows = is_named


class _Brotli(_Stream):
    step = 1 << 10
    unused = 0  # bytes after the end make the step fail

    def __init__(self, *_: object) -> None:
        try:
            import brotli
        except ImportError as error:
            raise SourceError(
                "a page is compressed with Brotli, which needs another package: pip install 'longcrawl[warc]'"
            ) from error
        self._stream, self.errors = brotli.Decompressor(), (brotli.error,)

    def decode(self, piece: bytes, most: int) -> bytes:
        data = bytearray(self._stream.process(piece, output_buffer_limit=most))
        while len(data) < most and not (self.ended or self._stream.can_accept_more_data()):
            data += self._stream.process(b"", output_buffer_limit=most - len(data))
        return bytes(data)

    @property
    def ended(self) -> bool:
        return bool(self._stream.is_finished())


_CODINGS: dict[str, type[_Deflate | _Brotli | _Zstd]] = {
    "gzip": _Deflate,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


def undo(coding: str, body: bytes, most_bytes: int) -> tuple[bytes, State]:
    """Undo one content coding, and return the data and how they end.

    If the data exceed ``most_bytes``, their beginning is returned, which then also exceeds it. Gzip members and zstd
    frames are concatenated. Other bytes after the end are ignored if the body has the signature of its coding;
    otherwise the body may be text that begins like a whole Brotli stream.
    """
    kind = _CODINGS.get(coding)
    if kind is None:
        return b"", "damaged"
    data, place, view = bytearray(), 0, memoryview(body)
    state: State = "whole"
    while state == "whole" and len(data) <= most_bytes and (not place or kind.follows(body[place : place + 4])):
        piece, used, state = _decode(kind, view[place:], most_bytes - len(data))
        data += piece
        place += used
    is_sure = kind.is_named(body[:4]) or state == "cut" or (state == "whole" and place == len(body))
    if not is_sure and (len(data) < LEAST_BYTES or BINARY.search(data, 0, 1024)):
        return b"", "damaged"
    return bytes(data), state


def _decode(kind: type[_Deflate | _Brotli | _Zstd], body: memoryview, most: int) -> tuple[bytearray, int, State]:
    """Decode one stream, and return its data, its length in bytes, and how it ends.

    A failed step discards its output, so the stream is decoded again up to that step, and the step byte by byte.
    """
    failed: int | None = None
    while True:
        stream: Any = kind(bytes(body[:4]), failed is not None)
        data, place, step = bytearray(), 0, 0
        try:
            while not stream.ended and place < len(body) and len(data) <= most:
                step = 1 if failed is not None and 0 <= place - failed < stream.step else stream.step
                data += stream.decode(bytes(body[place : place + step]), most + 1 - len(data))
                place += step
        except stream.errors:
            if step == 1:
                return data, place, "damaged"
            failed = place
            continue
        return data, min(place, len(body)) - stream.unused, "whole" if stream.ended else "cut"


def join_chunks(body: bytes | memoryview) -> tuple[bytes, str | None] | None:
    """Join the chunks of a body, or return None if it has none, as after a crawler has joined them.

    With the body, "chunks" is returned if it is cut, else None. Text may also begin with a hexadecimal number, so a
    single such line counts as a size only if it ends in CR LF, or if it is 0 and only trailers follow.
    """
    joined, place, sizes, is_strict = bytearray(), 0, 0, True
    while (size := _CHUNK.match(body, place)) is not None:
        sizes += 1
        is_strict = is_strict and size[0].endswith(b"\r\n")
        length = int(size[1], 16)
        if length == 0:
            return (bytes(joined), None) if sizes > 1 or _TRAILERS.match(body, size.end()) else None
        data = body[size.end() : size.end() + length]
        joined += data
        place = size.end() + length
        if len(data) < length:
            break
        line = _LINE_END.match(body, place)
        place = line.end() if line else place
    return (bytes(joined), "chunks") if sizes > 1 or (sizes and is_strict) else None


CODINGS = 3
"""Maximum number of content codings applied to one body."""
_STATUS = re.compile(
    rb"(?:HTTP/\d+(?:\.\d+)?[ \t]+|HTTP/?[ \t]*\d{1,2}\.\d[ \t]*|(?:HTTP|ICY)/?[ \t]+|HTTP/)(\d{3})(?!\d)",
    re.IGNORECASE,
)
"""Pattern of a response's status, which accepts a missing, misspelled or unseparated HTTP version."""
_HEADER_END = re.compile(rb"\n\r*\n")

_MIME = re.compile(r"(?<![\w!#$&^.+-])[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}")
# A quote that is never closed is an ordinary character.
_NAMED = re.compile(r'(?:"[^"]*"|[^,])+')
_CHARSET = re.compile(r"charset\s*=\s*(?:[\"']\s*)?([^\s\"';,]{1,40})", re.IGNORECASE)
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title"
    rb"|b|body|br|p)[\t\n\f\r >])",
    re.IGNORECASE,
)
_XHTML = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<\?xml\b[^>]{0,200}>[\t\n\f\r ]*<(?:!doctype html|html)[\t\n\f\r >]", re.IGNORECASE
)

PDF = "application/pdf"
PDF_TYPES = (PDF, "application/x-pdf", "application/acrobat", "applications/vnd.pdf", "text/pdf")
"""Types by which servers declare a PDF."""
SNIFFED_BYTES = 1_024
"""Bytes of a body in which its type is looked for: a PDF may begin after as much junk (ISO 32000-1, annex H.3.4.1)."""
_PDF = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\f\r\0 ]*%PDF-")
_PDF_LINE = re.compile(rb"%PDF-[12]\.\d[ \t]*[\r\n]")

PRESCAN_BYTES = 4_096
"""Bytes of a page searched for the charset that it names."""
WELL_FORMED = 10
"""Well-formed characters beyond ASCII required per malformed one, in charsets other than UTF-8."""
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))

_META = re.compile(
    rb"<!--.*?(?:-->|\Z)|<meta\b[^>]{0,512}?\bcharset\s*=\s*(?:[\"']\s*)?(?P<name>[\w.:+-]{1,40})", re.DOTALL
)
_XML = re.compile(rb"\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"'](?P<name>[\w.:+-]{1,40})")

_SINGLE = {
    "cp866": "ibm866", "mac-roman": "macintosh", "mac-cyrillic": "x-mac-cyrillic",
    "iso8859-1": "windows-1252", "ascii": "windows-1252", "iso8859-9": "windows-1254",
    **dict.fromkeys(("iso8859-11", "tis-620", "cp874"), "windows-874"),
    "koi8-r": "koi8-r", "koi8-u": "koi8-u",
    **{f"iso8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"cp{number}": f"windows-{number}" for number in range(1250, 1259)},
}  # fmt: skip
_MULTIPLE = {
    "utf-8": "utf-8", "utf-8-sig": "utf-8",
    "utf-16": "utf-16le", "utf-16-le": "utf-16le", "utf-16-be": "utf-16be",
    **dict.fromkeys(("gb2312", "gbk", "gb18030"), "gb18030"),
    "big5": "big5", "big5hkscs": "big5", "euc_kr": "euc-kr", "cp949": "euc-kr",
    "euc_jp": "euc-jp", "euc_jis_2004": "euc-jp", "iso2022_jp": "iso-2022-jp",
    "shift_jis": "shift_jis", "cp932": "shift_jis",
}  # fmt: skip
_NAMES = _SINGLE | _MULTIPLE
"""Names of charsets in the standard, by Python's name."""
_SINGLES = frozenset(_SINGLE.values())

_LABELS = {
    **dict.fromkeys(("dos-874", "windows-874"), "cp874"),
    **dict.fromkeys(("iso-8859-8-i", "logical"), "iso8859-8"),
    "unicode": "utf-16-le", "unicode-1-1-utf-8": "utf-8", "windows-31j": "cp932", "windows-949": "cp949",
    "x-cp1250": "cp1250", "x-cp1251": "cp1251", "x-cp1252": "cp1252", "x-euc-jp": "euc_jp", "x-gbk": "gbk",
    **dict.fromkeys(("x-mac-cyrillic", "x-mac-ukrainian"), "mac-cyrillic"),
    "x-sjis": "shift_jis", "x-x-big5": "big5",
}  # fmt: skip
"""Labels of the standard that Python does not know."""
_CODECS = {"big5": "big5hkscs", "euc-kr": "cp949", "shift_jis": "cp932", "windows-874": "cp874", "ibm866": "cp866"}
_CODECS |= {"x-mac-cyrillic": "mac-cyrillic"}
"""Python codecs for names of the standard that Python lacks, or with fewer characters than in browsers."""

_WINDOWS_1252 = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
"""Characters of windows-1252 as in browsers: its five undefined bytes are control characters."""


class ContentType(NamedTuple):
    """The media types in a header, which may occur several times, and its first charset."""

    mimes: tuple[str, ...]
    charset: str | None


class Decoded(NamedTuple):
    """A page in UTF-8."""

    utf8: bytes | memoryview
    """The page itself if nothing changes."""
    charset: str
    is_guessed: bool = False
    """Whether the charset is neither UTF-8 nor named by the header or the page."""


class LeftOutError(Exception):
    """Raised for a record that is not a document, with the name of the rule that excludes it."""


def parse_message(block: bytes | memoryview) -> Message:
    """Parse the block of a response record, skipping interim responses such as 100 Continue."""
    start = 0
    while True:
        status = _STATUS.match(block, start)
        end = _HEADER_END.search(block, start, start + HEADER_BYTES)
        if not (status and end and status[1].startswith(b"1") and _STATUS.match(block, end.end())):
            break
        start = end.end()
    if end is None:
        return Message(int(status[1]) if status else None, {}, b"")
    head, body = bytes(block[start : end.start()]), memoryview(block)[end.end() :]
    return Message(int(status[1]) if status else None, parse_fields(head), body)


def body_of(message: Message, most_bytes: int) -> tuple[bytes | memoryview, str | None]:
    """Undo the transfer and content encodings of a body, and return it with what it was cut by, or None.

    A LeftOutError is raised if it is larger than ``most_bytes`` or has an unknown encoding.
    """
    fields, body, cut = message.fields, message.body, None
    chunked = "chunked" in fields.get("transfer-encoding", "").lower()
    if chunked and (found := join_chunks(body)) is not None:
        body, cut = found
    elif (length := length_of(fields)) is not None:
        cut = "body" if len(body) < length else None
    codings = (coding.strip().lower() for coding in fields.get("content-encoding", "").split(","))
    named = [coding.removeprefix("x-") for coding in codings if coding not in ("", "identity", "none")]
    if len(named) > CODINGS:
        raise LeftOutError("content_encoding")
    for coding in reversed(named) if body else ():
        body, whole = _undo(coding, bytes(body), most_bytes)
        cut = cut or (None if whole else "content_encoding")
    return body, cut


def _undo(coding: str, body: bytes, most_bytes: int) -> tuple[bytes, bool]:
    data, state = undo(coding, body, most_bytes)
    if len(data) > most_bytes:
        raise LeftOutError("max_record_bytes")
    if state == "whole" or (data and BINARY.search(body, 0, 1024)):
        return data, state == "whole"
    if BINARY.search(body, 0, 1024):
        raise LeftOutError("content_encoding")
    return body, True


def announced_bytes(fields: Fields) -> int | None:
    """Return the length of a file that its server announced, or None if unknown.

    Common Crawl moves the server's length and coding to headers of its own when it changes a body. The length of a
    compressed body says nothing about the file, and one beside chunks is void (RFC 9112, section 6.3).

    >>> announced_bytes({"content-length": "1048576", "x-crawl-content-length": "6512345"})
    6512345
    """
    codings = (fields.get("content-encoding", ""), fields.get("x-crawl-content-encoding", ""))
    if any(coding.strip().lower() not in ("", "identity", "none") for coding in codings):
        return None
    length = length_of({"content-length": fields.get("x-crawl-content-length", "")})
    if length is None and "chunked" not in fields.get("transfer-encoding", "").lower():
        return length_of(fields)
    return length


def content_type_of(declared: str) -> ContentType:
    """Parse the header Content-Type.

    >>> content_type_of("text/plain; charset=x, text/HTML; charset='UTF-8'")
    ContentType(mimes=('text/plain', 'text/html'), charset='x')
    """
    found = [_MIME.search(each.partition(";")[0]) for each in _NAMED.findall(declared)]
    charset = _CHARSET.search(declared)
    return ContentType(tuple(mime[0].lower() for mime in found if mime), charset and charset[1])


def begins_like_response(block: bytes | memoryview) -> bool:
    """Return whether a block begins with the status line of an HTTP response."""
    return _STATUS.match(block) is not None


def begins_like_html(payload: bytes | memoryview) -> bool:
    """Return whether a page begins like HTML, with one of the tags that browsers look for."""
    return _HTML.match(payload) is not None


def begins_like_xhtml(payload: bytes | memoryview) -> bool:
    """Return whether a page begins with an XML declaration and then like HTML."""
    return _XHTML.match(payload) is not None


def begins_like_pdf(payload: bytes | memoryview, *, declared: bool) -> bool:
    """Return whether a body is a PDF by its first ``SNIFFED_BYTES`` bytes.

    A page may mention the header of a PDF. So a body that does not begin with it is a PDF if the header is on a line of
    its own and the body has characters that do not occur in text, or the end of a PDF. One that is ``declared`` as PDF
    is any body with the header that does not begin like HTML.
    """
    head = bytes(payload[:SNIFFED_BYTES])
    if b"%PDF-" not in head:
        return False
    if _PDF.match(head) or (declared and not begins_like_html(head) and not begins_like_xhtml(head)):
        return True
    ends = bytes(payload[-SNIFFED_BYTES:]).rstrip(b"\t\n\f\r\0 ").endswith(b"%%EOF")
    return _PDF_LINE.search(head) is not None and (ends or BINARY.search(payload) is not None)


def decode_page(page: bytes | memoryview, declared: str | None, *, markup: bool) -> Decoded:
    r"""Return a page in UTF-8 with the name of its original charset.

    ``declared`` is the charset in the HTTP header, and ``markup`` is whether the page may name one itself.

    >>> decode_page("naïve".encode("latin-1"), "latin-1", markup=True)
    Decoded(utf8=b'na\xc3\xafve', charset='windows-1252', is_guessed=False)
    """
    first = bytes(page[:3])
    for mark, name in _MARKS:
        if first.startswith(mark):
            return Decoded(_utf8(str(page[len(mark) :], name, "replace")), name)
    return _decode_unmarked(page, declared, markup=markup)


def _decode_unmarked(page: bytes | memoryview, declared: str | None, *, markup: bool) -> Decoded:
    valid, has_zero = is_utf8(page), b"\0" in bytes(page)
    unchanged = bytes(page).replace(b"\0", b"") if valid and has_zero else page
    http = _standard_name(declared)
    if valid and http == "utf-8":
        return Decoded(unchanged, http)
    if http in ("utf-16le", "utf-16be") and not has_zero:
        http = None
    own = _own_name(bytes(page[:PRESCAN_BYTES])) if markup else None
    named = list(dict.fromkeys(name for name in (http, own) if name))
    for name in named:
        if valid and name in _SINGLES and not bytes(page).isascii():
            break
        if valid and name in ("utf-8", "windows-1252"):
            return Decoded(unchanged, name)
        if (text := _strictly(bytes(page), name)) is not None:
            return Decoded(text, name)
    if valid:
        return Decoded(unchanged, "utf-8")
    return _leniently(bytes(page), [*named, "utf-8"]) or _guess(bytes(page))


def _leniently(page: bytes, names: Iterable[str]) -> Decoded | None:
    """Decode a page with the first charset in which it has enough well-formed characters."""
    for name in dict.fromkeys(names):
        if name == "windows-1252":
            continue
        text = page.decode(_CODECS.get(name, name), "replace")
        bad = text.count("\ufffd")
        enough = bad if name == "utf-8" else WELL_FORMED * bad
        ascii_characters = len(text.encode("ascii", "ignore"))
        if len(text) - bad - ascii_characters >= enough:
            return Decoded(_utf8(text), name)
    return None


def _guess(page: bytes) -> Decoded:
    codec = guess_encoding(page)
    name = codec and _standard_name(codec)
    if codec is None or name is None or name == "windows-1252":
        return Decoded(_windows_1252(page), "windows-1252", is_guessed=True)
    if (text := _strictly(page, name)) is None:
        text = _utf8(page.decode(codec, "replace"))
    return Decoded(text, name, is_guessed=True)


def _strictly(page: bytes, name: str) -> bytes | None:
    """Decode a page that has no error in a charset, else return None; UTF-8 has already been tried."""
    if name == "windows-1252":
        return _windows_1252(page)
    try:
        return None if name == "utf-8" else _utf8(page.decode(_CODECS.get(name, name)))
    except UnicodeDecodeError:
        return None


def _windows_1252(page: bytes) -> bytes:
    return _utf8(codecs.charmap_decode(page, "strict", _WINDOWS_1252)[0])


def _utf8(text: str) -> bytes:
    return text.replace("\0", "").encode("utf-8", "replace")


def _own_name(head: bytes) -> str | None:
    """Return the charset that a page names; UTF-16 means UTF-8, since the name could be read as ASCII."""
    head = head.lower()
    xml = _XML.match(head)
    for found in itertools.chain([xml] if xml else [], _META.finditer(head)):
        if found["name"] and (name := _standard_name(found["name"].decode("ascii", "replace"))):
            return "utf-8" if name.startswith("utf-16") else name
    return None


@lru_cache(1_000)
def _standard_name(label: str | None) -> str | None:
    """Return the standard's name for a label, or None if it has none."""
    label = (label or "").strip(" \t\r\n\f\"'").lower()
    try:
        return _NAMES.get(codecs.lookup(_LABELS.get(label, label)).name) if label.isascii() and label else None
    except (LookupError, ValueError):
        return None
