"""Rule or quality of each file of the real input: manuals, and generated files of which each has a trap."""

import gzip
import json

import pyarrow as pa
import pytest

from longcrawl.core.sources import BadFiles
from longcrawl.sources.warc.source import Warc
from longcrawl.text.pdf import stage as module
from longcrawl.text.pdf.stage import ExtractPdf

REMOVED = {
    "debian.example/truncated/debian-reference.pdf": {"pdf_unreadable"},
    "made/bit-rot.pdf": {"pdf_blank"},
    "made/bomb-flate.pdf": {"pdf_memory", "pdf_time"},
    "made/bomb-forms.pdf": {"pdf_memory", "pdf_time"},
    "made/bomb-text.pdf": {"pdf_memory", "pdf_time"},
    "made/empty-10000.pdf": {"pdf_blank"},
    "made/encrypted-user-rc4.pdf": {"pdf_encrypted"},
    "made/encrypted-user.pdf": {"pdf_encrypted"},
    "made/header-only.pdf": {"pdf_unreadable"},
    "made/mixed-scan.pdf": {"pdf_scanned"},
    "made/no-tounicode.pdf": {"pdf_garbled"},
    "made/page-tree-loop.pdf": {"pdf_unreadable"},
    "made/pua-tounicode.pdf": {"pdf_garbled"},
    "made/random-bytes.pdf": {"not_pdf"},
    "made/scanned-bad-ocr.pdf": {"pdf_scanned"},
    "made/scanned-good-ocr.pdf": {"pdf_scanned"},
    "made/scanned.pdf": {"pdf_scanned"},
    "made/zero-bytes.pdf": {"empty_body"},
    "pdf/live-manual.en.pdf": {"pdf_few_characters"},
    "serve/login.pdf": {"no_text"},
    "serve/not-found.pdf": {"status_404"},
    "serve/report-disconnect.pdf": {"pdf_blank"},
}
"""Rules of the source or of the stage, by the end of the URL."""
READ = {
    "FHS_3.0/fhs-3.0.pdf": (0.965, 0.93),
    "camlidl/camlidl-1.04.doc.pdf": (0.99, 0.98),
    "de/ubuntu-packaging-guide.pdf": (0.99, 0.95),
    "debian-policy/policy.pdf": (0.99, 0.96),
    "debian-reference/debian-reference.en.pdf": (0.97, 0.92),
    "debmake-doc/debmake-doc.en.pdf": (0.94, 0.885),
    "debmake-doc/debmake-doc.ja.pdf": (0.94, 0.885),
    "debmake-doc/debmake-doc.zh-cn.pdf": (0.95, 0.905),
    "Documentation/essay.hu.pdf": (0.835, 0.725),
    "Documentation/usage.hu.pdf": (0.845, 0.705),
    "en/ubuntu-packaging-guide.pdf": (0.99, 0.955),
    "fr/ubuntu-packaging-guide.pdf": (0.99, 0.955),
    "manuals/R-FAQ.pdf": (0.97, 0.94),
    "manuals/R-intro.pdf": (0.965, 0.92),
    "manuals/R-ints.pdf": (0.985, 0.95),
    "manuals/R-lang.pdf": (0.97, 0.94),
    "ru/ubuntu-packaging-guide.pdf": (0.99, 0.95),
    "made/acroform.pdf": (0.995, 0.99),
    "made/cid-not-embedded.pdf": (0.995, 0.99),
    "made/fake-bold.pdf": (0.995, 0.99),
    "made/hard-hyphens.pdf": (0.995, 0.99),
    "made/header-footer.pdf": (0.995, 0.99),
    "made/incremental-update.pdf": (0.995, 0.99),
    "made/letterspaced.pdf": (0.995, 0.99),
    "made/many-pages.pdf": (0.995, 0.99),
    "made/no-tounicode-simple.pdf": (0.995, 0.99),
    "made/rotate-90.pdf": (0.995, 0.99),
    "made/rotated-text.pdf": (0.995, 0.99),
    "made/rtl-shaped-ar0.pdf": (0.99, 0.88),
    "made/rtl-shaped-ar1.pdf": (0.985, 0.92),
    "made/rtl-visual-ar0.pdf": (0.955, 0.755),
    "made/rtl-visual-ar1.pdf": (0.96, 0.83),
    "made/table.pdf": (0.995, 0.99),
    "made/three-column.pdf": (0.995, 0.985),
    "made/two-column-hyphenated.pdf": (0.995, 0.99),
    "made/two-column-interleaved.pdf": (0.995, 0.99),
    "made/two-column.pdf": (0.995, 0.99),
    "serve/unlabelled-cut.pdf": (0.5, 0.485),
}
"""Least F1 of words and of their 5-grams. The truth of manuals is their HTML, which lacks what only a PDF has."""
SAME = (
    "made/bad-startxref.pdf",
    "made/encrypted-empty-user.pdf",
    "made/junk-before-header.pdf",
    "made/linearized.pdf",
    "made/no-trailer.pdf",
    "made/object-streams.pdf",
    "made/open-action-js.pdf",
    "made/owner-restricted.pdf",
    "made/pdf-2.0.pdf",
    "serve/copy/REPORT.PDF",
    "serve/download?id=17",
    "serve/report-chunked.pdf",
    "serve/report-gzip.pdf",
    "serve/viewer/report",
)
"""Other encodings of made/header-footer.pdf."""


@pytest.fixture(scope="module")
def rows(real_data):
    """Return the rows of the source by URL."""
    source, bad_files = Warc(data_files=str(real_data / "pdf" / "*.warc.gz"), binary=("pdf",)), BadFiles()
    tables = [table for part in source.splits()["train"] for table in source.read(part, bad_files)]
    yield {row["url"]: row for table in tables for row in table.to_pylist()}, bad_files.left_out
    module._workers.close()


@pytest.fixture(scope="module")
def truths(real_data):
    with gzip.open(real_data / "pdf" / "groundtruth.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {row["url"]: row["text"] for row in map(json.loads, lines)}


def extract(rows: dict, end: str) -> tuple[str, str | None]:
    """Return the text of the row with the end of a URL, and the rule that removes it."""
    (row,) = (row for url, row in rows.items() if url.endswith(end))
    table = pa.table({
        "id": ["0"],
        "text": pa.array([row["text"]], pa.large_string()),
        "content": pa.array([row["content"]], pa.large_binary()),
    })  # fmt: skip
    documents, checks, _ = ExtractPdf().trace(table)
    rule = next((check.rule for check in checks if not check.passes[0].as_py()), None)
    return documents["text"][0].as_py() or "", rule


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=pytest.mark.slow) if "bomb" in end else end for end in sorted(REMOVED)]
)
def test_files_without_usable_text_are_removed(rows, end):
    found, left_out = rows
    if any(url.endswith(end) for url in found):
        assert extract(found, end)[1] in REMOVED[end]
    else:
        assert REMOVED[end] <= left_out.keys()


@pytest.mark.parametrize("end", sorted(READ))
def test_files_with_text_are_read(rows, truths, end):
    import pdf as benchmark

    text, rule = extract(rows[0], end)
    (truth,) = (truth for url, truth in truths.items() if url.endswith(end))
    assert rule is None
    words, five = benchmark.scores(text, truth)
    assert words >= READ[end][0]
    assert five >= READ[end][1]


@pytest.mark.parametrize("end", SAME)
def test_the_encoding_of_a_file_does_not_change_its_text(rows, end):
    text, rule = extract(rows[0], end)
    assert rule is None
    assert text == extract(rows[0], "made/header-footer.pdf")[0]


def test_every_file_is_expected(truths):
    known = [*REMOVED, *READ, *SAME, "fullrefman.pdf", "truncated/refman.pdf", ".html"]
    assert [url for url in truths if sum(url.endswith(end) for end in known) != 1] == []
