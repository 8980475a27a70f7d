"""Decodes HTTP responses: status, headers, body and character set.

Archives keep messages as they came over the wire, or with the transfer and content encodings undone and the headers
left as they were, so a body that is not encoded as its header says stands as it is, unless it is binary.

The charset of a page is found in this order:

1. A byte order mark of UTF-8 or UTF-16.
2. The charset of the HTTP header, then the one that the page itself names (``<meta charset>``, or an XML declaration)
   in its first 4 kB, if it decodes the page without an error. A charset of one byte per character decodes anything, so
   it gives way to UTF-8 where the page is not ASCII and valid UTF-8.
3. UTF-8, if it is valid.
4. The same charsets, with U+FFFD for what is malformed, if there is a well-formed character beyond ASCII for each
   malformed one in UTF-8, whose form is telling, or ten in others: a page that was cut or pasted together.
5. The charset that the page seems to be in, see :mod:`longcrawl.sources.encodings`; it counts as guessed.
6. windows-1252, which decodes anything; it counts as guessed too.

Names mean what they mean to browsers (https://encoding.spec.whatwg.org): ISO-8859-1 is windows-1252, GB 2312 is GB
18030, and a name that is not in that standard is ignored. UTF-16 without a byte order mark counts only in the HTTP
header of a page with zero bytes. NUL characters are left out: browsers drop them in text, and parsers stop at them.

Libraries throw away what a step gave that failed. So the stream is decoded again up to that step, and that step byte
by byte: what comes before the damage is kept.
"""

import codecs
import itertools
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import zstandard
from isal import isal_zlib

from longcrawl.core.sources import is_utf8
from longcrawl.errors import SourceError
from longcrawl.sources.compressed import GZIP, ZSTD, is_skippable
from longcrawl.sources.encodings import guess_encoding
from longcrawl.sources.warc.records import HEADER_BYTES, Message, length_of, parse_fields

State = Literal["whole", "cut", "damaged"]

WINDOW_BYTES = 8 << 20
"""The window of zstd as a content coding is at most this (RFC 9659)."""

LEAST_BYTES = 64
"""How much of a body must decode to text where nothing at its beginning names its coding, and its end is not all."""

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]{0,4096}+|\r*+)\n")
_LINE_END = re.compile(rb"\r*\n")
_TRAILERS = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n)*[ \t\r\n]*\Z")
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Characters that no text has, UTF-16 aside."""


class _Stream(ABC):
    """A decoder of one stream."""

    step: ClassVar[int]
    """Bytes that are decoded at a time: as few as hold what they decode to."""
    errors: tuple[Any, ...]
    _stream: Any

    @abstractmethod
    def __init__(self, head: bytes, again: bool) -> None:  # noqa: FBT001  # of _decode alone
        """Begin with the first bytes of a stream; ``again`` where decoding it has failed before."""

    @staticmethod
    def is_named(head: bytes) -> bool:  # noqa: ARG004  # most look
        """Return whether bytes begin as every stream of this coding does; False where those begin with anything."""
        return False

    @staticmethod
    def follows(head: bytes) -> bool:  # noqa: ARG004  # most look
        """Return whether another stream begins behind the end of one."""
        return False

    @abstractmethod
    def decode(self, piece: bytes, most: int) -> bytes:
        """Return what follows, of which more than ``most`` may be left out."""

    @property
    def ended(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused(self) -> int:
        """Bytes of the last piece that are behind the end."""
        return len(self._stream.unused_data)


class _Deflate(_Stream):
    """gzip, and deflate with a header or, as servers are fond of too, without."""

    step = 1 << 16
    errors = (isal_zlib.error, zlib.error)

    def __init__(self, head: bytes, again: bool) -> None:  # noqa: FBT001  # of _decode alone
        bits = 31 if head.startswith(GZIP[:2]) else 15 if self.is_named(head) else -15
        # ISA-L fails at headers that come in pieces.
        self._stream = (zlib if again else isal_zlib).decompressobj(bits)

    @staticmethod
    def is_named(head: bytes) -> bool:
        is_zlib = len(head) > 1 and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        return is_zlib or head.startswith(GZIP[:2])

    @staticmethod
    def follows(head: bytes) -> bool:
        return head.startswith(GZIP)

    def decode(self, piece: bytes, most: int) -> bytes:
        data: bytes = self._stream.decompress(piece, most)
        return data


class _Zstd(_Stream):
    step = 512
    """Four bytes may become 128 kB, and all of a step comes at once."""
    errors = (zstandard.ZstdError,)

    def __init__(self, *_: object) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()

    @staticmethod
    def is_named(head: bytes) -> bool:
        return head[:4] == ZSTD or is_skippable(head[:4])

    follows = is_named

    def decode(self, piece: bytes, most: int) -> bytes:  # noqa: ARG002  # zstandard has no bound
        data: bytes = self._stream.decompress(piece)
        return data


class _Brotli(_Stream):
    step = 1 << 10
    unused = 0  # what follows the end is an error of the step

    def __init__(self, *_: object) -> None:
        try:
            import brotli
        except ImportError as error:
            raise SourceError(
                "a page is compressed with Brotli, which needs an extra; type pip install 'longcrawl[warc]'"
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


_CODINGS: dict[str, type[_Stream]] = {"gzip": _Deflate, "deflate": _Deflate, "br": _Brotli, "zstd": _Zstd}


def undo(coding: str, body: bytes, most_bytes: int) -> tuple[bytes, State]:
    """Undo one content coding: return the data and how they end; more than ``most_bytes`` if there are more.

    Several gzip members or zstd frames are joined. Other bytes behind the end are ignored, unless nothing but they
    says that the body is encoded: text may begin with what Brotli takes for a whole stream.
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


def _decode(kind: type[_Stream], body: memoryview, most: int) -> tuple[bytearray, int, State]:
    """Decode one stream; return its data, how many bytes it has, and how it ends."""
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
    """Join the chunks of a body, and say whether it is cut; None where it has none, as of a crawler that joined them.

    Text may begin with a hexadecimal number, too: one such line counts as a size if it ends in CR LF, or if its chunk
    is the whole body.
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


def named_codings(field: str) -> list[str]:
    """Return what a field ``Content-Encoding`` names, in the order in which it was done."""
    codings = (coding.strip().lower() for coding in field.split(","))
    return [coding.removeprefix("x-") for coding in codings if coding not in ("", "identity", "none")]


CODINGS = 3
"""How many content codings may lie over each other."""

_STATUS = re.compile(
    rb"(?:HTTP/\d+(?:\.\d+)?[ \t]+|HTTP/?[ \t]*\d{1,2}\.\d[ \t]*|(?:HTTP|ICY)/?[ \t]+|HTTP/)(\d{3})(?!\d)",
    re.IGNORECASE,
)
"""The status of a response, also behind a version that is missing, misspelled, or not parted from it."""
_HEADER_END = re.compile(rb"\n\r*\n")

_MIME = re.compile(r"(?<![\w!#$&^.+-])[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}")
# A quote that is never closed is a character like others.
_NAMED = re.compile(r'(?:"[^"]*"|[^,])+')
_CHARSET = re.compile(r"charset\s*=\s*(?:[\"']\s*)?([^\s\"';,]{1,40})", re.IGNORECASE)
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title"
    rb"|b|body|br|p)[\t\n\f\r >])",
    re.IGNORECASE,
)

PRESCAN_BYTES = 4_096
"""How much of a page is searched for a charset that it names."""

WELL_FORMED = 10
"""How many well-formed characters beyond ASCII make up for a malformed one, in other charsets than UTF-8."""

_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))

_META = re.compile(
    rb"<!--.*?(?:-->|\Z)|<meta\b[^>]{0,512}?\bcharset\s*=\s*(?:[\"']\s*)?(?P<name>[\w.:+-]{1,40})", re.DOTALL
)
_XML = re.compile(rb"\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"'](?P<name>[\w.:+-]{1,40})")

_SINGLE = {
    "cp866": "ibm866",
    "mac-roman": "macintosh",
    "mac-cyrillic": "x-mac-cyrillic",
    "iso8859-1": "windows-1252",
    "ascii": "windows-1252",
    "iso8859-9": "windows-1254",
    "iso8859-11": "windows-874",
    "tis-620": "windows-874",
    "cp874": "windows-874",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    **{f"iso8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"cp{number}": f"windows-{number}" for number in range(1250, 1259)},
}
_MULTIPLE = {
    "utf-8": "utf-8",
    "utf-8-sig": "utf-8",
    "utf-16": "utf-16le",
    "utf-16-le": "utf-16le",
    "utf-16-be": "utf-16be",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5",
    "big5hkscs": "big5",
    "euc_jp": "euc-jp",
    "euc_jis_2004": "euc-jp",
    "iso2022_jp": "iso-2022-jp",
    "shift_jis": "shift_jis",
    "cp932": "shift_jis",
    "euc_kr": "euc-kr",
    "cp949": "euc-kr",
}
_NAMES = _SINGLE | _MULTIPLE
"""The standard's name by Python's name."""

_SINGLES = frozenset(_SINGLE.values())

_LABELS = {
    "dos-874": "cp874",
    "windows-874": "cp874",
    "iso-8859-8-i": "iso8859-8",
    "logical": "iso8859-8",
    "unicode": "utf-16-le",
    "unicode-1-1-utf-8": "utf-8",
    "windows-31j": "cp932",
    "windows-949": "cp949",
    "x-cp1250": "cp1250",
    "x-cp1251": "cp1251",
    "x-cp1252": "cp1252",
    "x-euc-jp": "euc_jp",
    "x-gbk": "gbk",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic",
    "x-sjis": "shift_jis",
    "x-x-big5": "big5",
}
"""Labels of the standard that Python does not know."""

_CODECS = {"big5": "big5hkscs", "euc-kr": "cp949", "shift_jis": "cp932", "windows-874": "cp874", "ibm866": "cp866"}
_CODECS |= {"x-mac-cyrillic": "mac-cyrillic"}
"""Python's codec where it is not found by the standard's name, or is smaller than browsers' of this name."""

_WINDOWS_1252 = "".join(chr(byte) for byte in range(128)) + "".join(
    bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(128, 256)
)
"""As browsers have it: the five bytes that mean nothing are control characters."""


OFTEN_SAID = 200
"""Up to how many characters a Content-Type is remembered."""


class ContentType(NamedTuple):
    """The types that a header names, which may have come several times, and its first charset."""

    mimes: tuple[str, ...]
    charset: str | None


class Decoded(NamedTuple):
    """A page in UTF-8."""

    utf8: bytes | memoryview
    """The page itself where nothing changes."""
    charset: str
    """The name of the charset that it was in."""
    is_guessed: bool = False
    """Whether neither the header nor the page names this charset, and it is not UTF-8."""


class LeftOutError(Exception):
    """A record is not a document, by the rule that this names."""


def parse_message(block: bytes | memoryview) -> Message:
    """Parse the block of a response record; answers such as 100 Continue, which come before it, are passed over."""
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
    """Undo the transfer and content encodings of a body; say by what it was cut, if it was.

    Raises:
        LeftOutError: it is larger than ``most_bytes``, or encoded in a way that is not known.
    """
    fields, body, cut = message.fields, message.body, None
    chunked = "chunked" in fields.get("transfer-encoding", "").lower()
    if chunked and (found := join_chunks(body)) is not None:
        body, cut = found
    elif (length := length_of(fields)) is not None:
        cut = "body" if len(body) < length else None
    named = named_codings(coding) if (coding := fields.get("content-encoding")) else []
    if len(named) > CODINGS:
        raise LeftOutError("content_encoding")
    for coding in reversed(named) if body else ():
        body, whole = _undo(coding, bytes(body), most_bytes)
        cut = cut or (None if whole else "content_encoding")
    return body, cut


def _undo(coding: str, body: bytes, most_bytes: int) -> tuple[bytes, bool]:
    """Undo one coding: return the data, and whether it is all."""
    data, state = undo(coding, body, most_bytes)
    if len(data) > most_bytes:
        raise LeftOutError("max_record_bytes")
    if state == "whole" or (data and BINARY.search(body, 0, 1024)):
        return data, state == "whole"
    if BINARY.search(body, 0, 1024):
        raise LeftOutError("content_encoding")
    return body, True


def content_type_of(declared: str) -> ContentType:
    """Return what a header says; most servers say one of a few things.

    >>> content_type_of("text/plain; charset=x, text/HTML; charset='UTF-8'")
    ContentType(mimes=('text/plain', 'text/html'), charset='x')
    """
    parse = _parse_content_type if len(declared) <= OFTEN_SAID else _parse_content_type.__wrapped__
    return parse(declared)


@lru_cache(1_000)
def _parse_content_type(declared: str) -> ContentType:
    found = [_MIME.search(each.partition(";")[0]) for each in _NAMED.findall(declared)]
    charset = _CHARSET.search(declared)
    return ContentType(tuple(mime[0].lower() for mime in found if mime), charset and charset[1])


def begins_like_response(block: bytes | memoryview) -> bool:
    """Return whether a block begins with the status line of an HTTP response."""
    return _STATUS.match(block) is not None


def begins_like_html(payload: bytes | memoryview) -> bool:
    """Return whether a page begins as HTML does, by tags that browsers look for."""
    return _HTML.match(payload) is not None


def decode_page(page: bytes | memoryview, declared: str | None, *, markup: bool) -> Decoded:
    r"""Return a page in UTF-8, and the charset that it was in.

    ``declared`` is the charset of the HTTP header; ``markup`` says whether the page may name one itself.

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
    http = _standard_name(declared)
    if valid and http == "utf-8":
        return Decoded(_without_zeros(page) if has_zero else page, http)
    if http in ("utf-16le", "utf-16be") and not has_zero:
        http = None
    own = _own_name(bytes(page[:PRESCAN_BYTES])) if markup else None
    named = list(dict.fromkeys(name for name in (http, own) if name))
    for name in named:
        if valid and name in _SINGLES and not bytes(page).isascii():
            break
        if valid and name in ("utf-8", "windows-1252"):
            return Decoded(_without_zeros(page) if has_zero else page, name)
        if (text := _strictly(bytes(page), name)) is not None:
            return Decoded(text, name)
    if valid:
        return Decoded(_without_zeros(page) if has_zero else page, "utf-8")
    return _leniently(bytes(page), [*named, "utf-8"]) or _guess(bytes(page))


def _leniently(page: bytes, names: Iterable[str]) -> Decoded | None:
    """Return a page in the first charset that has enough well-formed characters of it."""
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
    """Return a page in the charset that it seems to be in."""
    codec = guess_encoding(page)
    name = codec and _standard_name(codec)
    if codec is None or name is None or name == "windows-1252":
        return Decoded(_windows_1252(page), "windows-1252", is_guessed=True)
    if (text := _strictly(page, name)) is None:
        text = _utf8(page.decode(codec, "replace"))
    return Decoded(text, name, is_guessed=True)


def _without_zeros(page: bytes | memoryview) -> bytes:
    return bytes(page).replace(b"\0", b"")


def _strictly(page: bytes, name: str) -> bytes | None:
    """Return a page that has no error in a charset; UTF-8 has been tried."""
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
    """Return the charset that a page names; since its name could be read, it is not UTF-16, whatever it says."""
    head = head.lower()
    xml = _XML.match(head)
    for found in itertools.chain([xml] if xml else [], _META.finditer(head)):
        if found["name"] and (name := _standard_name(found["name"].decode("ascii", "replace"))):
            return "utf-8" if name.startswith("utf-16") else name
    return None


@lru_cache(1_000)
def _standard_name(label: str | None) -> str | None:
    """Return the standard's name for a label, None where it has none."""
    label = (label or "").strip(" \t\r\n\f\"'").lower()
    try:
        return _NAMES.get(codecs.lookup(_LABELS.get(label, label)).name) if label.isascii() and label else None
    except (LookupError, ValueError):
        return None
