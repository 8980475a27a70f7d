"""PDF files made of a few lines each, as bytes."""

import zlib
from collections.abc import Callable, Mapping, Sequence

import pytest

CATALOG, PAGES, FONT, IMAGE = 1, 2, 3, 4
FIRST = 5
"""Number of the first page object; each page has a content stream behind it."""

Placed = tuple[float, float, str]
"""Left and baseline in points, and a text."""


def stream(data: bytes, entries: bytes = b"", *, packed: bool = True) -> bytes:
    content = zlib.compress(data) if packed else data
    filtered = b"/Filter /FlateDecode" if packed else b""
    return b"<< /Length %d %s %s >>\nstream\n" % (len(content), filtered, entries) + content + b"\nendstream"


def shown(lines: Sequence[Placed], size: float = 10.0, before: str = "", mode: int = 0) -> bytes:
    """Return the content of a page that shows lines."""
    escapes = str.maketrans({"(": r"\(", ")": r"\)", "\\": r"\\"})
    texts = "".join(f"1 0 0 1 {x} {y} Tm ({text.translate(escapes)}) Tj\n" for x, y, text in lines)
    return f"{before} BT /F {size} Tf {mode} Tr {texts} ET".encode("latin-1")


def assemble(objects: Mapping[int, bytes], trailer: bytes = b"") -> bytes:
    """Return a file of numbered objects with a cross-reference table."""
    made = bytearray(b"%PDF-1.7\n")
    offsets = {}
    for number, body in objects.items():
        offsets[number] = len(made)
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table, size = len(made), max(objects) + 1
    rows = (b"%010d 00000 n \n" % offsets[each] if each in offsets else b"%010d 65535 f \n" % 0 for each in range(size))
    made += b"xref\n0 %d\n" % size + b"".join(rows)
    made += b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, table)
    return bytes(made)


def document_objects(contents: Sequence[bytes], font: bytes = b"", page: bytes = b"") -> dict[int, bytes]:
    """Return the objects of a document with one page per content."""
    kids = b" ".join(b"%d 0 R" % (FIRST + 2 * number) for number in range(len(contents)))
    objects = {
        CATALOG: b"<< /Type /Catalog /Pages 2 0 R >>",
        PAGES: b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(contents), kids),
        FONT: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica %s >>" % font,
        IMAGE: stream(b"\x80", b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray"
                      b" /BitsPerComponent 8"),
    }  # fmt: skip
    for number, content in enumerate(contents):
        own = FIRST + 2 * number
        objects[own] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] %s /Contents %d 0 R"
            b" /Resources << /Font << /F 3 0 R >> /XObject << /I 4 0 R >> >> >>" % (page, own + 1)
        )
        objects[own + 1] = stream(content)
    return objects


@pytest.fixture(scope="session")
def make_pdf() -> Callable[..., bytes]:
    """Return a function that makes a file of pages, each a list of lines ``(left, baseline, text)`` or a content.

    ``more`` are contents of further streams by object number, and ``objects`` replace objects.
    """

    def make(
        *pages: Sequence[Placed] | bytes,
        font: bytes = b"",
        page: bytes = b"",
        more: Mapping[int, bytes] | None = None,
        objects: Mapping[int, bytes] | None = None,
        trailer: bytes = b"",
    ) -> bytes:
        contents = [each if isinstance(each, bytes) else shown(each) for each in pages]
        streams = {number: stream(data) for number, data in (more or {}).items()}
        return assemble(document_objects(contents, font, page) | streams | dict(objects or {}), trailer)

    return make


@pytest.fixture(scope="session")
def scan() -> bytes:
    """Return the content of a page that is an image."""
    return b"q 600 0 0 800 0 0 cm /I Do Q"


@pytest.fixture(scope="session")
def scan_with_hidden_text() -> bytes:
    """Return the content of a scanned page over which OCR has written."""
    lines = [(50, 700 - 12 * number, f"Line {number} of what a machine has read in the image.") for number in range(9)]
    return shown(lines, before="q 600 0 0 800 0 0 cm /I Do Q", mode=3)


@pytest.fixture(scope="session")
def paragraph() -> Callable[..., list[Placed]]:
    """Return a function that makes full lines of words without a meaning, from the top of a page."""

    def make(lines: int, left: float = 50, top: float = 700, name: str = "word") -> list[Placed]:
        words = " ".join(f"{name}{number:02}" for number in range(9))
        return [(left, top - 12 * number, words) for number in range(lines)]

    return make
