"""Words with boxes and kinds of pages, read by PDFium."""

from contextlib import nullcontext

import numpy as np
import pypdfium2
import pytest

from longcrawl.text.pdf import words as module
from longcrawl.text.pdf.lines import page_lines
from longcrawl.text.pdf.words import Page, read_page

TO_PRIVATE_USE = b"""/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /x def /CMapType 2 def
1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfrange <00> <FF> <F000> endbfrange endcmap
CMapName currentdict /CMap defineresource pop end end"""


def read(data: bytes, hidden_text: str = "queue", number: int = 0) -> Page:
    document = pypdfium2.PdfDocument(data)
    try:
        return read_page(document.raw, number, hidden_text, nullcontext)
    finally:
        document.close()


def test_each_word_has_the_box_of_its_first_and_last_character(make_pdf):
    words = read(make_pdf([(100, 700, "Wide words"), (100, 650, "below")])).words
    assert words is not None
    assert [words.text[a:b] for a, b in zip(words.starts, words.stops, strict=True)] == ["Wide", "words", "below"]
    left, bottom, right, top = words.boxes.T
    assert np.all(left < right)
    assert np.all(bottom < top)
    assert abs(left[0] - 100) < 1
    assert right[0] < left[1] < 140
    assert top[2] < bottom[0]
    assert words.characters is None


def test_boxes_are_those_of_the_public_function(make_pdf, paragraph):
    document = pypdfium2.PdfDocument(make_pdf(paragraph(3)))
    page = document[0]
    words, textpage = read(make_pdf(paragraph(3))).words, page.get_textpage()
    assert words is not None
    for start, stop, box in zip(words.starts, words.stops, words.boxes, strict=True):
        first, last = (textpage.get_charbox(int(place), loose=True) for place in (start, stop - 1))
        assert np.allclose(box, [first[0], first[1], last[2], last[3]], atol=1e-3)
    textpage.close()
    page.close()
    document.close()


def test_boxes_do_not_depend_on_how_many_are_asked_for_at_once(make_pdf, paragraph, monkeypatch):
    data = make_pdf(paragraph(3))
    expected = read(data).words
    monkeypatch.setattr(module, "_SLOTS", 7)
    found = read(data).words
    assert expected is not None
    assert found is not None
    assert np.array_equal(found.boxes, expected.boxes)


def test_characters_beyond_the_basic_plane_are_one_each(make_pdf, paragraph):
    mapping = TO_PRIVATE_USE.replace(
        b"1 beginbfrange <00> <FF> <F000>", b"1 beginbfchar <77> <D835DD68> endbfchar 1 beginbfrange <20> <76> <0020>"
    )
    words = read(make_pdf(paragraph(3), font=b"/ToUnicode 90 0 R", more={90: mapping})).words
    assert words is not None
    assert page_lines(words)[0].text.startswith("\U0001d568ord00 \U0001d568ord01 ")


def test_a_hyphen_at_the_end_of_a_line_ends_a_word_and_the_line(make_pdf):
    words = read(make_pdf([(50, 700, "a long exam-"), (50, 688, "ple of it")])).words
    assert words is not None
    found = [words.text[a:b] for a, b in zip(words.starts, words.stops, strict=True)]
    assert [found[2][:4], found[3]] == ["exam", "ple"]
    assert words.lines.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # An accent of Helvetica is 3.33 points wide at size 10; Td moves back to its beginning.
        (rb"(Haszn) Tj 27.8 0 Td (\264) Tj 0 0 Td (alat) Tj", "Haszn\u00e1lat"),
        (rb"(\250) Tj 0 0 Td (Uber und `quoted` code) Tj", "\u00dcber und `quoted` code"),
        (rb"(it\264s and don\264t) Tj", "it\u00b4s and don\u00b4t"),  # an apostrophe
        (rb"(\264) Tj 0 0 Td (q is no letter) Tj", "\u00b4q is no letter"),
    ],
)
def test_accents_drawn_over_a_letter_are_joined_to_it(make_pdf, content, expected):
    data = make_pdf(b"BT /F 10 Tf 50 700 Td %s ET" % content, font=b"/Encoding /WinAnsiEncoding")
    words = read(data).words
    assert words is not None
    assert len(words.starts) == len(expected.split())
    assert page_lines(words)[0].text == expected


def test_a_turned_page_is_read_as_it_was_written(make_pdf, paragraph):
    plain, turned = make_pdf(paragraph(3)), make_pdf(paragraph(3), page=b"/Rotate 90")
    assert read(turned).words.text == read(plain).words.text


@pytest.mark.parametrize(("turn", "step"), [("0 1 -1 0", (12, 0)), ("0 -1 1 0", (-12, 0)), ("-1 0 0 -1", (0, 12))])
def test_text_of_another_direction_is_read_as_upright_text(make_pdf, turn, step):
    texts = [f"several words in line {number} of eight" for number in range(8)]
    places = [(300 + step[0] * number, 400 + step[1] * number) for number in range(8)]
    shown = " ".join(f"{turn} {x} {y} Tm ({text}) Tj" for (x, y), text in zip(places, texts, strict=True))
    page = read(make_pdf(f"BT /F 10 Tf {shown} ET".encode()))
    assert page.words is not None
    assert [line.text for line in page_lines(page.words)] == texts


def test_kinds_of_pages(make_pdf, scan, scan_with_hidden_text, paragraph):
    data = make_pdf(paragraph(3), [], scan, scan_with_hidden_text)
    assert [read(data, number=number).kind for number in range(4)] == ["text", "blank", "scan", "scan"]
    assert read(data, "keep", 3).kind == "text"
    assert read(data, "keep", 2).kind == "scan"


def test_a_font_that_maps_to_private_use_is_garbled(make_pdf, paragraph):
    data = make_pdf(paragraph(3), font=b"/ToUnicode 90 0 R", more={90: TO_PRIVATE_USE})
    assert read(data) == Page("garbled", None)


def test_a_page_of_too_many_characters_fails(make_pdf, paragraph, monkeypatch):
    monkeypatch.setattr(module, "MOST_CHARACTERS", 50)
    assert read(make_pdf(paragraph(3))) == Page("failed", None)
    assert read(make_pdf([(50, 700, "Just a short line.")])).kind == "text"


def test_a_page_of_a_few_characters_is_text_unless_it_has_an_image(make_pdf, scan):
    title = b"BT /F 10 Tf 50 700 Td (Part II) Tj ET"
    data = make_pdf(title, scan + b" " + title, b"0 0 m 9 9 l S")
    assert [read(data, number=number).kind for number in range(3)] == ["text", "scan", "blank"]


def test_codes_of_ligatures_are_no_hyphens(make_pdf):
    """Fonts of a cut file may lack a map; U+0002 is also what PDFium writes for a hyphen at the end of a line."""
    words = read(make_pdf([(50, 700, "modi\x02ed and \x03at exam-"), (50, 688, "ples are de\x0cned")])).words
    assert words is not None
    assert [line.text for line in page_lines(words)] == ["modified and flat exam-", "ples are defined"]


@pytest.mark.parametrize("number", [1, 99])
def test_a_page_that_does_not_exist_fails(make_pdf, number):
    assert read(make_pdf([(50, 700, "The only page.")]), number=number) == Page("failed", None)
