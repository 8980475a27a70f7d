"""A valid PDF of one page, written by hand."""


def small_pdf(text: str, size: int = 0) -> bytes:
    """Return a PDF that shows ``text``, with an object of ``size`` bytes that no page uses."""
    shown = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode("latin-1")
    page = "/Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< {page} >>".encode(),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(shown), shown),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (size, b"\0" * size),
    ]
    made, places = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, len(made))
    return made + b"xref\n0 %d\n0000000000 65535 f \n%s%s" % (count, table, trailer)
