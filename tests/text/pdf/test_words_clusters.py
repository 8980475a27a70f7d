"""Clusters of PDF pages are read once, within their words, whatever glyphs draw them."""

from contextlib import nullcontext

import pypdfium2
import pytest

from longcrawl.text.pdf.lines import page_lines
from longcrawl.text.pdf.words import read_page

BELOW = "1 0 0 1 50 650 Tm (A line below.) Tj"
THAI, LAM_ALEF = "\u0e22\u0e37", "\u0644\u0627"


def span(text, *glyphs):
    """Return content that shows glyphs by their matrices, with a text that replaces them."""
    shown = " ".join(f"{matrix} Tm ({glyph}) Tj" for matrix, glyph in glyphs)
    return f"/Span << /ActualText <FEFF{text.encode('utf-16-be').hex()}> >> BDC {shown} EMC"


def cluster(left, text=THAI):
    """Return a letter and its mark, which begins where the next letter does and is painted to its left."""
    return span(text, (f"1 0 0 1 {left} 700", "w"), (f"-1 0 0 1 {left + 8.7} 700", "i"))


@pytest.fixture
def lines(make_pdf):
    def read(*parts, size=12, below=BELOW, **made):
        content = " ".join(parts)
        document = pypdfium2.PdfDocument(make_pdf(f"BT /F {size} Tf {content} {below} ET".encode(), **made))
        try:
            page = read_page(document.raw, 0, "queue", nullcontext)
        finally:
            document.close()
        assert page.words is not None
        return page_lines(page.words)

    return read


def test_a_mark_behind_the_next_letter_repeats_no_cluster(lines):
    word, below = lines(cluster(50), "1 0 0 1 58.67 700 Tm (n) Tj", cluster(65.4), "1 0 0 1 74.07 700 Tm (o) Tj")
    assert word.text == f"{THAI}n{THAI}o"
    # The height is that of the font, not of the ink.
    assert abs(word.height - below.height) < 0.5


def test_equal_clusters_side_by_side_are_two(lines):
    assert lines(cluster(50), cluster(59), "1 0 0 1 68 700 Tm (n) Tj")[0].text == f"{THAI}{THAI}n"


def test_a_space_beside_a_repeated_cluster_remains(lines):
    words = lines(cluster(50), "1 0 0 1 58.67 700 Tm (n) Tj", "1 0 0 1 75 700 Tm (of) Tj")
    assert words[0].text == f"{THAI}n of"


def test_letters_of_a_ligature_are_one_unit(lines):
    text = lines(span(LAM_ALEF, ("1 0 0 1 58.7 700", "w")), span("\u0645", ("1 0 0 1 53 700", "n")))[0].text
    assert text == f"{LAM_ALEF}\u0645"


def font(letters):
    """Return settings of a file whose font has small letters, and others for some capital ones."""
    letters = {chr(code): chr(code) for code in range(ord("a"), ord("z") + 1)} | letters
    pairs = " ".join(f"<{ord(code):02x}> <{text.encode('utf-16-be').hex()}>" for code, text in letters.items())
    begin = "12 dict begin begincmap /CMapName /X def 1 begincodespacerange <00> <FF> endcodespacerange"
    characters = f"{begin} {len(letters)} beginbfchar {pairs} endbfchar endcmap end end"
    return {"font": b"/ToUnicode 90 0 R", "more": {90: characters.encode()}}


def test_equal_ligatures_in_lines_of_small_type_are_all_read(lines):
    shown = (f"1 0 0 1 50 {700 - 1.8 * number} Tm (Ar) Tj" for number in range(3))
    # Clusters are looked for on pages with a combining accent.
    found = lines(*shown, "1 0 0 1 50 680 Tm (eB) Tj", size=1.5, **font({"A": "fi", "B": "\u0301"}))
    assert [line.text for line in found[:3]] == ["fir"] * 3


@pytest.mark.parametrize(("gap", "between"), [(5, ""), (9, " ")])
def test_the_second_glyph_of_am_is_no_space(lines, gap, between):
    """PDFium's box of a text beside the glyphs has the first glyph alone."""
    am = "\u0e19\u0e33"
    # Clusters are looked for on pages with a mark.
    mark = span(THAI, ("1 0 0 1 50 680", "w"))
    found = lines(span(am, ("1 0 0 1 50 700", "w")), f"1 0 0 1 {50 + 8.67 + gap} 700 Tm (o) Tj", mark)
    assert found[0].text == f"{am}{between}o"


def test_a_page_of_a_mark_alone_has_no_lines(lines):
    assert [line.text for line in lines("1 0 0 1 50 700 Tm (A) Tj", below="", **font({"A": "\u064e"}))] == []
