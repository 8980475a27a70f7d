"""Bulk calls of PDFium return what the calls of pypdfium2 return."""

import ctypes

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

from longcrawl.text.pdf.words import addresses, bulk, pointer


def test_bulk_calls_return_what_plain_calls_do(make_pdf, paragraph):
    document = pypdfium2.PdfDocument(make_pdf(paragraph(2)))
    page = document[0]
    characters = page.get_textpage()
    count, handle = characters.count_chars(), pointer(characters.raw)
    unicode = bulk(pdfium.FPDFText_GetUnicode, ctypes.c_uint)
    assert "".join(chr(unicode(handle, place)) for place in range(count)) == characters.get_text_range()
    origin = bulk(pdfium.FPDFText_GetCharOrigin, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * 2)
    origins = np.zeros((count, 2))
    for place, left, bottom in zip(range(count), addresses(origins, 0), addresses(origins, 1), strict=True):
        assert origin(handle, place, left, bottom) == 1
        one, other = ctypes.c_double(), ctypes.c_double()
        pdfium.FPDFText_GetCharOrigin(characters.raw, place, one, other)
        assert origins[place].tolist() == [one.value, other.value]
    characters.close()
    page.close()
    document.close()
