"""What characters the bytes of a web page are.

In this order:

1. A byte order mark of UTF-8 or UTF-16.
2. The charset of the HTTP header, then the one that the page itself names (``<meta charset>``, or an XML declaration)
   in its first 4 kB, if it decodes the page without an error. A charset of one byte per character decodes anything, so
   it gives way to UTF-8 where the page is not ASCII and valid UTF-8.
3. UTF-8, if it is valid.
4. The same charsets, with U+FFFD for what is malformed, if there is a well-formed character beyond ASCII for each
   malformed one in UTF-8, whose form is telling, or ten in others: a page that was cut or pasted together.
5. windows-1252, which decodes anything.

Names mean what they mean to browsers (https://encoding.spec.whatwg.org): ISO-8859-1 is windows-1252, GB 2312 is GB
18030, and a name that is not in that standard is no name. UTF-16 without a byte order mark counts only in the HTTP
header of a page with zero bytes. NUL characters are left out: browsers drop them in text, and parsers stop at them.
"""

import codecs
import re
from collections.abc import Iterable

__all__ = ["decode_page"]

PRESCAN_BYTES = 4_096
"""How much of a page is searched for a charset that it names."""

CHECKED_BYTES = 1 << 14
"""How much of a page is checked at a time."""

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
    "iso2022_jp": "iso-2022-jp",
    "shift_jis": "shift_jis",
    "cp932": "shift_jis",
    "euc_kr": "euc-kr",
    "cp949": "euc-kr",
}
_NAMES = _SINGLE | _MULTIPLE
"""The standard's name by Python's name."""

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


def decode_page(page: bytes, declared: str | None, *, markup: bool) -> tuple[bytes, str]:
    r"""Return a page in UTF-8, and the name of the charset that it was in.

    Args:
        page: its bytes.
        declared: the charset of the HTTP header.
        markup: whether the page may name a charset itself.

    >>> decode_page("naïve".encode("latin-1"), "utf-8", markup=True)
    (b'na\xc3\xafve', 'windows-1252')
    """
    for mark, name in _MARKS:
        if page.startswith(mark):
            return _utf8(page.removeprefix(mark).decode(name, "replace")), name
    http, own = _standard_name(declared), _own_name(page) if markup else None
    if http in ("utf-16le", "utf-16be") and b"\0" not in page:
        http = None
    named = list(dict.fromkeys(name for name in (http, own) if name))
    ascii_only = page.isascii()
    valid = ascii_only or _is_utf8(page)
    for name in named:
        if name in _SINGLE.values() and valid and not ascii_only:
            break
        if (text := _strictly(page, name, valid)) is not None:
            return text, name
    if valid:
        return page.replace(b"\0", b""), "utf-8"
    return _leniently(page, [*named, "utf-8"])


def _leniently(page: bytes, names: Iterable[str]) -> tuple[bytes, str]:
    for name in dict.fromkeys(names):
        if name == "windows-1252":
            continue
        text = page.decode(_CODECS.get(name, name), "replace")
        bad = text.count("\ufffd")
        enough = bad if name == "utf-8" else WELL_FORMED * bad
        if len(text) - bad - _ascii_characters(text) >= enough:
            return _utf8(text), name
    return _windows_1252(page), "windows-1252"


def _strictly(page: bytes, name: str, valid: bool) -> bytes | None:  # noqa: FBT001  # known, and costly to find out
    if name == "utf-8":
        return page.replace(b"\0", b"") if valid else None
    if name == "windows-1252":
        return _windows_1252(page)
    try:
        return _utf8(page.decode(_CODECS.get(name, name)))
    except UnicodeDecodeError:
        return None


def _windows_1252(page: bytes) -> bytes:
    if page.isascii():
        return page.replace(b"\0", b"")
    return _utf8(codecs.charmap_decode(page, "strict", _WINDOWS_1252)[0])


def _ascii_characters(text: str) -> int:
    return len(text.encode("ascii", "ignore"))


def _utf8(text: str) -> bytes:
    return text.replace("\0", "").encode("utf-8", "replace")


def _is_utf8(page: bytes) -> bool:
    """Return whether a page is UTF-8, a piece at a time: to build all of its text takes nearly twice as long."""
    view, place = memoryview(page), 0
    try:
        while place < len(page):
            end = place + CHECKED_BYTES
            place += codecs.utf_8_decode(view[place:end], "strict", end >= len(page))[1]
    except UnicodeDecodeError:
        return False
    return True


def _own_name(page: bytes) -> str | None:
    """Return the charset that a page names; since its name could be read, it is not UTF-16, whatever it says."""
    head = page[:PRESCAN_BYTES].lower()
    names = [found["name"] for found in _META.finditer(head) if found["name"]]
    if (xml := _XML.match(head)) is not None:
        names.insert(0, xml["name"])
    known = [name for name in (_standard_name(name.decode("ascii", "replace")) for name in names) if name]
    return next((name if not name.startswith("utf-16") else "utf-8" for name in known), None)


def _standard_name(label: str | None) -> str | None:
    """Return the standard's name for a label, None where it has none."""
    label = (label or "").strip(" \t\r\n\f\"'").lower()
    try:
        return _NAMES.get(codecs.lookup(_LABELS.get(label, label)).name) if label.isascii() and label else None
    except (LookupError, ValueError):
        return None
