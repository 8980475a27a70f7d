"""Encodings of texts: how bytes are decoded, and which encoding they seem to be in.

Guesses come from chardet. Of 26 texts of 100 characters in 18 languages (by hand), it decodes 26 right, chardetng 24,
resiliparse 23 and charset-normalizer 19, which takes EUC-JP for Korean. With the sampling below it decodes 550 of 552
texts of 10 to 40,000 characters: plain, in HTML, behind much English, cut, or with a malformed byte. A guess takes 2 to
10 ms, and is made only of bytes that are not UTF-8.
"""

import codecs
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from longcrawl.errors import SourceError

DETECT = "detect"
"""The setting that has the encoding of each file detected."""

GUESSED = ", guessed"
"""The end of what counts say of an encoding that nobody has named."""

MARK_BYTES = 4
"""Bytes of the longest byte order mark."""

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks; that of UTF-16 begins the one of UTF-32."""

SAMPLE_BYTES = 1 << 16
"""Bytes of a text that a guess uses, from the first byte beyond ASCII on."""

_MAGIC_BYTES = 512
"""Bytes at the beginning of a file that tell its kind."""

_BEFORE = 4_096
"""Bytes before that one that a guess also uses: they tell the language of a text with few bytes beyond ASCII."""

_SEARCHED_BYTES = 1 << 20
"""Bytes that are searched for the parts of a text that are not ASCII."""

FEW = 3
"""Least bytes beyond ASCII for a guess; texts with fewer are read as windows-1252, the most common one."""

_SEVERAL = 5
"""Least bytes beyond ASCII for a guess without the ASCII around them."""

_MANY, _UNSURE = 64, 0.2
"""Least bytes beyond ASCII, and confidence below which a guess is repeated on parts, and taken with twice as much.

One malformed byte excludes the encoding of a text, so that another one is named, with little confidence.
"""

_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_SINGLE = (*(f"cp{number}" for number in (874, *range(1250, 1259))), "koi8-r", "koi8-u")
_SINGLE += tuple(f"iso8859-{part}" for part in (1, 2, 5, 7, 9, 15))
_CANDIDATES = (*_SINGLE, *_WIDE, "gb18030", "big5hkscs", "euc_jis_2004", "cp932", "cp949", "ascii")
"""Encodings that texts are found in, without those of DOS, of the Macintosh and of mainframes; ASCII is
what nothing else fits.
"""

_LATIN = ("cp1250", "cp1252", "cp1254", "cp1257", "cp1258", *(f"iso8859-{part}" for part in (1, 2, 9, 15)), "ascii")
_APART = (*_LATIN, "cp932", "big5hkscs")
"""Encodings of texts whose bytes beyond ASCII mostly stand apart: Latin letters, signs, or characters of two bytes of
which the second may be ASCII. Words in other scripts have many such bytes in a row.
"""

_WESTERN, _AS_LIKELY = "cp1252", 0.9
"""The commonest encoding of Latin letters, which is taken if it is nearly as likely as the likeliest."""

_NO_TEXT = ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem")
"""Codecs of Python that no file is written in, or that not every system has."""

_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_ALONE = re.compile(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])")
_ENDS = re.compile(rb'[\n<>"]')
"""Bytes that no character of several bytes has in any of the encodings but the wide ones."""
LOOKED_AT = 8_000
"""Characters at the beginning of a text that tell whether it is binary."""
_CONTROLS = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f]")
_LOST = "longcrawl-lost"


def check_encoding(name: str) -> None:
    """Check that a name is ``detect`` or that of a codec of Python.

    Raises:
        SourceError: it is neither.
    """
    if name != DETECT:
        codec_name(name)


def codec_name(name: str) -> str:
    """Return Python's name of an encoding, "utf-8" also of UTF-8 with a byte order mark.

    >>> codec_name("Latin-1"), codec_name("UTF8")
    ('iso8859-1', 'utf-8')

    Raises:
        SourceError: there is no such encoding.
    """
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        codec = None
    if codec is None or codec.name.replace("-", "_") in _NO_TEXT or not getattr(codec, "_is_text_encoding", True):
        raise SourceError(
            f"encoding is {name!r}, which is not known: set it to 'utf-8', 'latin-1' or another name that Python's "
            f"codecs have, or to {DETECT!r}"
        )
    # Without a mark, UTF-16 and UTF-32 depend on the machine; files are little-endian nearly always.
    return {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(codec.name, codec.name)


def marked_encoding(begin: bytes) -> tuple[str, int] | None:
    """Return the encoding that a byte order mark names and how long the mark is; None if there is none."""
    return next(((name, len(mark)) for mark, name in _MARKS if begin.startswith(mark)), None)


def seems_binary(text: str) -> bool:
    """Return whether a text has the control characters of binary data: a zero, or more than one in fifty."""
    begin = text[:LOOKED_AT]
    return "\0" in begin or 50 * len(_CONTROLS.findall(begin)) > len(begin)


def is_wide(name: str) -> bool:
    """Return whether a line feed takes more than one byte in an encoding."""
    return name in _WIDE


def guess_encoding(text: bytes | memoryview) -> str | None:
    """Return the codec that a text which is not UTF-8 seems to be in; None if nothing is known of it.

    >>> guess_encoding("Добрый день, дорогие друзья".encode("koi8-r"))
    'koi8-r'
    """
    if 0 in bytes(text[:SAMPLE_BYTES]):
        return _detected(bytes(text[:SAMPLE_BYTES]))[0]
    if (first := _BEYOND_ASCII.search(text)) is None:
        return None
    most = bytes(text[max(first.start() - _BEFORE, 0) : first.start() + _SEARCHED_BYTES])
    # What has ASCII alone, such as markup, would be counted as a language.
    sample = b"\n".join(piece for piece in _ENDS.split(most) if not piece.isascii())[:SAMPLE_BYTES]
    if (count := _count_beyond_ascii(sample)) < FEW:
        return None
    if count < _SEVERAL:
        sample = most[:SAMPLE_BYTES]
    name, confidence = _detected(sample)
    if confidence < _UNSURE and count >= _MANY:
        again, how_sure = max((_detected(half) for half in _halves(sample)), key=lambda each: each[1])
        name = again if how_sure > 2 * confidence else name
    return name


def _count_beyond_ascii(text: bytes) -> int:
    return len(text) - len(text.decode("ascii", "ignore"))


def _detected(sample: bytes) -> tuple[str | None, float]:
    """Return an encoding and how sure it is; none of bytes that are binary."""
    import chardet

    apart = 2 * len(_ALONE.findall(sample)) > _count_beyond_ascii(sample) and b"\0" not in sample
    candidates = _APART if apart else _CANDIDATES
    # Without the threshold, encodings that are nearly as likely are among those found.
    every = chardet.detect_all(
        sample, ignore_threshold=True, include_encodings=candidates, compat_names=False, no_match_encoding="ascii"
    )
    found = {each["encoding"]: float(each["confidence"]) for each in every}
    name, confidence = max(found.items(), key=lambda each: each[1])
    if found.get(_WESTERN, 0.0) >= _AS_LIKELY * confidence:
        name = _WESTERN
    return (None, 0.0) if name in (None, "ascii", "utf-8") else (name, confidence)


def _halves(sample: bytes) -> Iterable[bytes]:
    """Yield the halves of a sample, and of each half its halves, cut where no character is cut."""
    parts = [sample]
    for _ in range(2):
        parts = [half for part in parts for half in _cut(part)]
        yield from parts


def _cut(text: bytes) -> tuple[bytes, bytes]:
    middle = len(text) // 2
    # No encoding with several bytes per character has these within one; those of UTF-16 have been detected by zeros.
    ends = [found for mark in (b"\n", b" ", b"<", b".") if (found := text.find(mark, middle)) >= 0]
    at = min(ends, default=middle)
    return text[:at], text[at:]


def detect_encoding(pieces: Iterable[bytes | memoryview]) -> str | None:
    """Return the encoding of a text that comes in pieces; None of one that is binary.

    It is UTF-8 if all of it is, or if the part that is looked at has no more malformed characters than well-formed ones
    beyond ASCII.
    """
    seen = _Seen()
    for piece in pieces:
        seen.add(bytes(piece))
        if seen.is_enough:
            break
    return seen.encoding()


class _Seen:
    """The beginning of a text, and its part from the first byte beyond ASCII on."""

    def __init__(self) -> None:
        self._decoder, self._is_utf8 = codecs.getincrementaldecoder("utf-8")("strict"), True
        self._begin, self._before, self._sample = b"", b"", b""

    @property
    def is_enough(self) -> bool:
        """Whether nothing that follows changes the encoding."""
        return not self._is_utf8 and len(self._sample) == SAMPLE_BYTES

    def add(self, piece: bytes, *, final: bool = False) -> None:
        """Look at what follows."""
        self._begin += piece[: SAMPLE_BYTES - len(self._begin)]
        if self._sample:
            self._sample += piece[: SAMPLE_BYTES - len(self._sample)]
        elif (first := _BEYOND_ASCII.search(piece)) is not None:
            start = len(self._before) + first.start() - _BEFORE
            self._sample = (self._before + piece)[max(start, 0) :][:SAMPLE_BYTES]
        else:
            self._before = (self._before + piece)[-_BEFORE:]
        if self._is_utf8:
            try:
                self._decoder.decode(piece, final)
            except UnicodeDecodeError:
                self._is_utf8 = False

    def encoding(self) -> str | None:
        """Return the encoding of all that was added."""
        self.add(b"", final=True)
        if (marked := marked_encoding(self._begin)) is not None:
            return marked[0]
        if 0 in self._begin:
            name = guess_encoding(self._begin)
            return name if name is not None and is_wide(name) else None
        if self._is_utf8 or _is_mostly_utf8(self._sample):
            return "utf-8"
        if _is_of_another_kind(self._begin):
            return None
        return guess_encoding(self._sample) or (_WESTERN if _count_beyond_ascii(self._sample) < FEW else None)


def _is_of_another_kind(begin: bytes) -> bool:
    """Return whether a file begins as one of images, PDF and the like does."""
    import chardet

    return chardet.detect(begin[:_MAGIC_BYTES])["encoding"] is None


def _is_mostly_utf8(sample: bytes) -> bool:
    text = sample.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    return len(text) - bad - len(text.encode("ascii", "ignore")) >= bad


@dataclass(frozen=True)
class Decoding:
    """The decoding of a file.

    Attributes:
        encoding: ``detect``, or the name of a codec; a byte order mark goes before either.
        note: called with the encoding of a file before its first text; ``GUESSED`` ends one that was detected.
    """

    encoding: str
    note: Callable[[str], None]


class ToUtf8:
    """Turns text that comes in pieces into UTF-8; what is malformed becomes bytes that are not UTF-8."""

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)(_LOST)

    def add(self, piece: bytes | memoryview, *, final: bool = False) -> bytes:
        """Return the characters that end in a piece."""
        return self._decoder.decode(bytes(piece), final).encode("utf-8", "surrogatepass")

    def restart(self) -> None:
        """Forget the beginning of a character."""
        self._decoder.reset()


def _lose(error: UnicodeError) -> tuple[str, int]:
    """Put a lone surrogate in the place of a malformed character, which no UTF-8 holds; a line feed is kept."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end if error.encoding.startswith("utf") else error.start + 1


codecs.register_error(_LOST, _lose)
