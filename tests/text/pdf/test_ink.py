"""Kinds of pages whose ink is not text: images and outlines, on the page and inside forms."""

from contextlib import nullcontext

import pypdfium2
import pytest

from longcrawl.text.pdf import ink as module
from longcrawl.text.pdf.ink import find_ink
from longcrawl.text.pdf.words import read_page

LETTER = "2 0 m 2 4 4 8 6 8 c 6 8 8 4 8 0 c 7 0 l 5 3 l 3 0 l h "
"""Path with the points of a letter, 10 points wide."""


def letters(count: int, end: str = "f") -> bytes:
    """Return a content with letters as outlines, each a path of its own, 50 in a line."""
    return "".join(
        f"q 1 0 0 1 {40 + 10 * (n % 50)} {700 - 12 * (n // 50)} cm {LETTER}{end} Q\n" for n in range(count)
    ).encode()


def form(content: bytes, matrix: str = "1 0 0 1 0 0") -> bytes:
    entries = f"/Type /XObject /Subtype /Form /BBox [-999 -999 999 999] /Matrix [{matrix}]"
    resources = b"/Resources << /XObject << /I 4 0 R /J 91 0 R >> >>"
    return b"<< %s %s /Length %d >>\nstream\n%s\nendstream" % (entries.encode(), resources, len(content), content)


def with_form(make_pdf, content: bytes, *forms: bytes) -> bytes:
    """Return a file of one page, whose name /I is the first form; /J inside of it is the second one."""
    objects = {90 + number: each for number, each in enumerate(forms)}
    made: bytes = make_pdf(content, objects=objects)
    return made.replace(b"/XObject << /I 4 0 R >> >> >>", b"/XObject << /I 90 0 R >> >>>>")


def ink_of(data: bytes) -> module.Ink:
    document = pypdfium2.PdfDocument(data)
    page = document[0]
    try:
        return find_ink(page.raw)
    finally:
        page.close()
        document.close()


def kind_of(data: bytes) -> str:
    document = pypdfium2.PdfDocument(data)
    try:
        return read_page(document.raw, 0, "queue", nullcontext).kind
    finally:
        document.close()


@pytest.mark.parametrize(
    ("outer", "own", "inner", "share"),
    [
        ("600 0 0 800 0 0", "1 0 0 1 0 0", "1 0 0 1 0 0", 1.0),
        ("1 0 0 1 0 0", "300 0 0 800 0 0", "1 0 0 1 0 0", 0.5),
        ("2 0 0 2 100 0", "1 0 0 1 0 0", "0 100 -100 0 150 50", 4 * 100 * 100 / 480_000),
        ("1 0 0 1 590 0", "1 0 0 1 0 0", "400 0 0 800 0 0", 10 * 800 / 480_000),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
def test_images_inside_forms_are_where_they_are_painted(make_pdf, outer, own, inner, share, depth):
    image = form(f"q {inner} cm /I Do Q".encode(), own)
    forms = [image] if depth == 1 else [form(b"q 1 0 0 1 0 0 cm /J Do Q"), image]
    data = with_form(make_pdf, f"q {outer} cm /I Do Q".encode(), *forms)
    assert ink_of(data).images == pytest.approx(share, abs=1e-4)
    assert kind_of(data) == ("scan" if share >= 0.05 else "blank")


def test_the_box_of_a_page_need_not_begin_at_zero(make_pdf):
    content = b"q 600 0 0 800 -300 -400 cm /I Do Q"
    data = make_pdf(content).replace(b"[0 0 600 800]", b"[-300 -400 300 400]")
    assert ink_of(data).images == pytest.approx(1.0)


def test_text_drawn_as_outlines_is_for_ocr(make_pdf, scan):
    one_path = f"{LETTER * 200} f".encode()
    in_form = with_form(make_pdf, b"/I Do", form(letters(200)))
    for data in (make_pdf(letters(200)), make_pdf(one_path), make_pdf(letters(200, "S")), in_form):
        assert ink_of(data) == (0.0, True)
        assert kind_of(data) == "scan"


def test_text_that_a_shading_fills_is_for_ocr(make_pdf):
    shading = b"<< /ShadingType 2 /ColorSpace /DeviceGray /Coords [0 0 600 0] /Function 92 0 R >>"
    function = b"<< /FunctionType 2 /Domain [0 1] /N 1 /C0 [0] /C1 [0.5] >>"

    def shaded(content: bytes) -> bytes:
        data: bytes = make_pdf(content, objects={91: shading, 92: function})
        return data.replace(b"/XObject << /I 4 0 R >>", b"/Shading << /S 91 0 R >>")

    filled = b"".join(b"q 1 0 0 1 %d 500 cm %s W n /S sh Q\n" % (each, LETTER.encode()) for each in range(200))
    assert kind_of(shaded(filled)) == "scan"
    assert kind_of(shaded(b"/S sh")) == "blank"  # a background
    assert kind_of(shaded(b"q 50 50 500 700 re W n /S sh Q")) == "blank"


def test_rules_boxes_and_a_small_logo_are_no_text(make_pdf):
    rules = b"".join(b"50 %d m 550 %d l S " % (y, y) for y in range(50, 750, 5))
    grid = b"".join(b"%d %d 20 10 re S " % (x, y) for x in range(50, 550, 20) for y in range(50, 750, 10))
    one_grid = grid.replace(b"S ", b"") + b"S"
    for content in (b"", rules, grid, one_grid, letters(20), b"0 0 600 800 re f"):
        assert ink_of(make_pdf(content)) == (0.0, False)
        assert kind_of(make_pdf(content)) == "blank"


def test_the_search_ends(make_pdf, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 30)
    assert ink_of(make_pdf(letters(200))) == (0.0, False)
    half = b"q 600 0 0 8 0 0 cm /I Do Q "
    assert ink_of(make_pdf(half * 60)).images == pytest.approx(0.3)
    assert ink_of(with_form(make_pdf, b"/I Do " * 15, form(half * 9))).images == pytest.approx(0.15)
