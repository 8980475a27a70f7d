"""Files without their end."""

import zlib

import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.pdf.rescue import rescue


def texts(data: bytes | None) -> list[str]:
    assert data is not None
    document = pypdfium2.PdfDocument(data)
    try:
        return [page.get_textpage().get_text_range() for page in document]
    finally:
        document.close()


def in_object_stream(data: bytes) -> bytes:
    """Return a cut file whose page objects are in an object stream, as PDF 1.5 has it."""
    pages = [data[data.index(b"%d 0 obj" % number) + 8 : data.index(b"endobj", data.index(b"%d 0 obj" % number))]
             for number in (5, 7)]  # fmt: skip
    first = b"5 0 7 %d " % len(pages[0])
    packed = zlib.compress(first + b"".join(pages))
    head = b"90 0 obj\n<< /Type /ObjStm /N 2 /First %d /Filter /FlateDecode /Length %d >>\nstream\n"
    stream = head % (len(first), len(packed)) + packed + b"\nendstream\nendobj\n"
    for number in (5, 7):
        start = data.index(b"%d 0 obj" % number)
        data = data[:start] + data[data.index(b"endobj", start) + 7 :]
    return data[: data.index(b"xref")] + stream


@pytest.fixture
def two_pages(make_pdf) -> bytes:
    return make_pdf([(50, 700, "The first page")], [(50, 700, "The second page")])


def test_pages_before_the_cut_are_read(two_pages):
    assert texts(rescue(two_pages[: two_pages.index(b"xref")])) == ["The first page", "The second page"]
    assert texts(rescue(two_pages[: two_pages.index(b"7 0 obj") + 30])) == ["The first page"]


def test_a_page_is_read_up_to_the_cut_in_its_content(make_pdf):
    lines = [(50, 700 - 12 * number, f"line {number}") for number in range(40)]
    whole = make_pdf(lines)
    (found,) = texts(rescue(whole[: whole.index(b"6 0 obj") + 280]))
    assert found.startswith("line 0\r\nline 1\r\n")
    assert "line 39" not in found


def test_pages_in_object_streams_are_read(two_pages):
    assert texts(rescue(in_object_stream(two_pages))) == ["The first page", "The second page"]


def test_a_later_object_replaces_an_earlier_one(two_pages):
    cut = two_pages[: two_pages.index(b"xref")]
    assert texts(rescue(cut + b"5 0 obj\n<< /Type /Font >>\nendobj\n")) == ["The second page"]


def test_nothing_is_made_of_files_without_pages_or_keys(two_pages):
    assert rescue(b"") is None
    assert rescue(b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n") is None
    assert rescue(two_pages.replace(b"/Type /Catalog", b"/Encrypt 9 0 R")) is None


@given(st.data())
def test_any_cut_and_any_damage_is_survived(make_pdf, data):
    whole = in_object_stream(make_pdf([(50, 700, "One")], [(50, 700, "Two")]))
    cut = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for place in data.draw(st.lists(st.integers(0, max(len(cut) - 1, 0)), max_size=20)) if cut else ():
        cut[place] = data.draw(st.integers(0, 255))
    saved = rescue(bytes(cut))
    assert saved is None or saved.endswith(b"%%EOF\n")
