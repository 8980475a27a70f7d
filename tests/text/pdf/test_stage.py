"""The stage: columns, rules, limits, and what a bad file costs others."""

import gzip
import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.counts import OCR, REFETCH
from longcrawl.core.places import replay
from longcrawl.core.sources import BadFiles
from longcrawl.core.stages import STAGES
from longcrawl.errors import StageError
from longcrawl.sources.warc.source import Warc
from longcrawl.text.extract.pool import Extracted
from longcrawl.text.pdf import stage as module
from longcrawl.text.pdf.stage import ExtractPdf, read_answer

PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


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
    "Documentation/essay.hu.pdf": (0.965, 0.93),
    "Documentation/usage.hu.pdf": (0.97, 0.915),
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


@pytest.fixture(autouse=True, scope="module")
def no_workers_left():
    yield
    module._workers.close()


def table(*files: bytes | None, **columns: list) -> pa.Table:
    ids = [str(number) for number in range(len(files))]
    return pa.table({"id": ids, "content": pa.array(files, pa.large_binary()), **columns})


def rules(*files: bytes | None, columns: Mapping[str, list] | None = None, **fields) -> list[str | None]:
    """Return the rule that removes each document, or None."""
    removed = ExtractPdf(**fields).apply(table(*files, **(columns or {}))).removed.to_pylist()
    found = {row["id"]: row["rule"] for row in removed}
    return [found.get(str(number)) for number in range(len(files))]


def read(data: bytes, **fields) -> dict:
    made, _ = ExtractPdf(**fields).edit(table(data))
    return made.to_pylist()[0]


@pytest.fixture(scope="module")
def book(make_pdf, paragraph, scan):
    """Return a function that makes a file of pages with text, and other pages behind."""

    def make(pages: int, *others: bytes, name: str = "page") -> bytes:
        return make_pdf(*(paragraph(3, name=name + chr(97 + number)) for number in range(pages)), *others)

    return make


def test_a_file_becomes_text_with_columns(book, scan):
    row = read(book(3, scan, b""))
    assert "content" not in row
    starts = row["page_offsets"]
    assert [row["text"][start : start + 7] for start in starts[:3]] == ["pagea00", "pageb00", "pagec00"]
    assert starts[3:] == [len(row["text"])] * 2
    counts = {name: row[name] for name in ("pages", "pages_read", "pages_scanned", "pages_garbled", "pages_blank")}
    assert list(counts.values()) == [5, 5, 1, 0, 1]
    assert (row["ocr_pages"], row["pdf_partial"], row["pdf_producer"]) == ([4], None, None)
    assert (row["pdf_encrypted"], row["pdf_restricted"]) == (False, False)


def test_schema_of_the_added_columns(book):
    made = ExtractPdf()(table(book(1)))
    assert made.schema.field("page_offsets").type == pa.list_(pa.int64())
    assert made.schema.field("pages").type == pa.int32()
    assert made.schema.field("ocr_pages").type == pa.list_(pa.int32())
    assert made.schema.field("text").type == pa.large_string()


def test_rows_without_a_file_keep_their_text(book):
    made, _ = ExtractPdf().edit(table(None, book(1), text=pa.array(["given", None], pa.string())))
    first, second = made.to_pylist()
    assert (first["text"], first["pages"], first["pdf_partial"]) == ("given", None, None)
    assert second["text"].startswith("pagea00")
    assert rules(None, columns={"text": ["given"]}) == [None]
    assert rules(None) == ["no_text"]
    assert rules(None, None, columns={"html": ["<p>a page</p>", None]}) == [None, "no_text"]


def test_each_rule_has_its_documents(make_pdf, book, scan):
    garbled = make_pdf([(50, 700, "abcdefgh " * 8)], font=b"/ToUnicode 90 0 R", more={90: private_use()})
    files = {
        "pdf_bytes": book(1) + b" " * 10_000,
        "not_pdf": b"<html>",
        "pdf_encrypted": encrypted(make_pdf, "secret"),
        "pdf_unreadable": b"%PDF-1.4\n",
        "pdf_blank": make_pdf(b"", b""),
        "pdf_garbled": garbled,
        "pdf_scanned": book(1, scan, scan),
        "pdf_few_characters": book(1, b"", b"", b"", b"", b""),
        None: book(2, scan),
    }
    assert rules(*files.values(), max_bytes=10_000) == list(files)


def test_a_short_document_is_kept(make_pdf):
    short = make_pdf([(50, 700, "A certificate of few words")])
    assert rules(short, make_pdf([(50, 700, "A certificate of few words")], b"", b"")) == [None, "pdf_few_characters"]


def test_the_header_may_be_anywhere_in_the_first_kilobyte(book):
    assert rules(b"junk\n" * 100 + book(1), b"junk\n" * 300 + book(1)) == [None, "not_pdf"]
    assert rules(b"<!doctype html><title>%PDF-1.4 and later</title>") == ["not_pdf"]


def test_scans_can_be_kept_or_dropped(make_pdf, book, scan, scan_with_hidden_text):
    file = book(1, scan, scan)
    font = {"font": b"/ToUnicode 90 0 R", "more": {90: private_use()}}
    garbled = make_pdf([(50, 700, "abcdefgh " * 8)], **font)
    assert rules(file, garbled, min_characters_per_page=0) == ["pdf_scanned", "pdf_garbled"]
    assert rules(file, garbled, on_scanned="keep", min_characters_per_page=0) == [None, "no_text"]
    assert rules(file, min_text_pages=0.2, min_characters_per_page=0) == [None]
    assert rules(file, on_scanned="drop") == ["pdf_scanned"]
    for choice in ("queue", "keep", "drop"):
        stage = ExtractPdf(on_scanned=choice)
        documents = stage.apply(table(book(2, scan), file, garbled))
        assert documents.documents["ocr_pages"].to_pylist()[0] == [3]
        rows = documents.queued[OCR].to_pylist() if OCR in documents.queued else []
        assert [row["page_numbers"] for row in rows] == ([] if choice == "drop" else [[3], [2, 3], [1]])
    hidden = book(0, scan_with_hidden_text)
    assert rules(hidden) == ["pdf_scanned"]
    assert "a machine has read" in read(hidden, hidden_text="keep")["text"]


def test_pages_that_cannot_be_read_are_for_ocr(book, scan):
    def torn(pages: int, *others: bytes) -> bytes:
        return book(pages, *others).replace(b"/Kids [5 0 R", b"/Kids [1 0 R")

    for file, pages, rule, reason in (
        (torn(3), [1], None, "unreadable_pages"),
        (torn(3, scan), [1, 4], None, "pages"),
        (torn(1), [1], "pdf_unreadable", "pdf_unreadable"),
    ):
        outcome = ExtractPdf().apply(table(file))
        assert [row["rule"] for row in outcome.removed.to_pylist()] == [rule] * (rule is not None)
        assert [*outcome.queued] == [OCR]
        (row,) = outcome.queued[OCR].to_pylist()
        assert (row["page_numbers"], row["reason"]) == (pages, reason)
    assert read(torn(3))["pdf_partial"] == "failures"
    assert ExtractPdf().apply(table(torn(1).replace(b"/Count 1", b"/Count 999"))).queued == {}
    outcome = ExtractPdf().apply(table(book(1).replace(b"/Count 1", b"/Count 999")))
    (row,) = outcome.documents.to_pylist()
    assert (row["ocr_pages"], row["pages"], row["pdf_partial"], outcome.queued) == ([], 999, "failures", {})
    assert row["text"] == read(book(1))["text"]
    assert row["page_offsets"] == [0]


def test_unreadable_pages_of_a_cut_file_are_to_be_fetched_again(book):
    file = book(3).replace(b"/Kids [5 0 R", b"/Kids [1 0 R")
    outcome = ExtractPdf().apply(table(file, truncated=["length"]))
    assert [*outcome.queued] == [REFETCH]
    assert outcome.documents["ocr_pages"].to_pylist() == [[]]


def test_a_repaired_file_is_fetched_again_unless_it_is_whole(book):
    cut = book(2)[: book(2).index(b"xref")]
    announced = pa.array([len(cut), len(cut) + 1, None, len(cut)], pa.int64())
    truncated = pa.array([None, None, None, "length"], pa.string())
    outcome = ExtractPdf().apply(
        table(*[cut] * 4).append_column("bytes_announced", announced).append_column("truncated", truncated)
    )
    assert outcome.documents["pdf_partial"].to_pylist() == ["rescued", "rescued", "rescued", "cut"]
    assert outcome.queued[REFETCH]["id"].to_pylist() == ["1", "2", "3"]


def test_encryption_without_a_password_is_noted(make_pdf):
    row = read(encrypted(make_pdf, ""))
    assert (row["text"], row["pdf_encrypted"]) == ("A secret that anyone may read", True)


def test_files_whose_owner_forbids_extraction_can_be_dropped(make_pdf, book):
    files = [encrypted(make_pdf, "", permissions) for permissions in (-4, -4 & ~(1 << 4))]
    assert [read(file)["pdf_restricted"] for file in (*files, book(1))] == [False, True, False]
    short = {"min_characters_per_page": 0}
    assert rules(None, *files, b"no file", columns={"text": ["given"] * 4}, **short) == [None, None, None, "not_pdf"]
    dropped = rules(None, *files, b"no file", columns={"text": ["given"] * 4}, restricted="drop", **short)
    assert dropped == [None, None, "pdf_restricted", "not_pdf"]


def test_cut_files_are_marked(book):
    cut = book(2)[: book(2).index(b"xref")].replace(b"/Type /Catalog", b"/Type /Nothing")
    assert read(cut)["pdf_partial"] == "rescued"
    assert rules(cut, cut_files="remove") == ["pdf_unreadable"]
    made, _ = ExtractPdf().edit(table(book(1), book(1), truncated=["length", None]))
    assert made["pdf_partial"].to_pylist() == ["cut", None]


def test_limits_keep_the_pages_before(book):
    row = read(book(5), max_pages=2)
    assert (row["pages"], row["pages_read"], row["pdf_partial"]) == (5, 2, "pages")
    assert "pageb00" in row["text"]
    assert "pagec00" not in row["text"]


def test_a_bomb_costs_itself(book, make_pdf):
    bomb = make_pdf(b"BT /F 1 Tf 20 20 Td " + b"(aaaaaaaa bbbbbbbb cccccccc dddddddd) Tj 0 -1 Td " * 200_000 + b"ET")
    outcome = ExtractPdf(max_page_seconds=0.3).apply(table(book(1), bomb, book(2)))
    assert outcome.removed.to_pylist() == [{"id": "1", "rule": "pdf_time", "value": 0.3, "threshold": 0.3}]


def test_batches_and_workers_do_not_change_texts(book, scan):
    files = [book(count, scan, name=f"file{count}") for count in range(1, 7)]
    whole = ExtractPdf()(table(*files))
    assert ExtractPdf(workers=2)(table(*files)).equals(whole)
    parts = [ExtractPdf()(table(*files).slice(start, 2)) for start in (0, 2, 4)]
    assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()
    assert ExtractPdf()(table()).num_rows == 0


def test_a_worker_that_dies_keeps_the_pages_that_it_sent():
    found = read_answer(Extracted('["text", "one"]\n["scan", ""]\n', "crash"))
    assert (found.text, found.kinds, found.pages, found.stopped) == ("one", ("text", "scan"), None, "crash")
    assert read_answer(Extracted(None, "crash")).failure == "crash"
    assert read_answer(Extracted('{"pages": 3, "rescued": false, "stopped": "time"}', None)).failure == "time"
    assert read_answer(Extracted('["failed", ""]\n{"pages": 1, "stopped": null}', None)).failure == "unreadable"


@given(st.data())
def test_damaged_files_are_read_or_removed(book, data):
    """No damage ends the run: each file has a text or a rule, and the file behind it is read."""
    whole = book(2)
    broken = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    for place in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=30)):
        broken[place] = data.draw(st.integers(0, 255))
    stage = ExtractPdf(max_page_seconds=2.0)
    made, _ = stage.edit(table(bytes(broken), whole))
    assert made["text"][1].as_py().startswith("pagea00")
    outcome = stage.apply(table(bytes(broken), whole))
    assert outcome.documents.num_rows + outcome.removed.num_rows == 2


@pytest.mark.slow
def test_it_works_in_a_crawl(book, scan):
    crawl = lc.Crawl(table(book(2), book(1, scan, scan))) | ExtractPdf()
    assert str(crawl.why("1")) == "1: removed at extract_pdf, rule pdf_scanned: 0.666667 against 0.5"


def test_what_is_not_in_the_text_is_in_the_ledger_of_edits(make_pdf, paragraph, scan):
    contents = [
        [(50, 780, "Report"), (50, 700, f"Chapter {word} ......... 5"), (50, 20, str(page))]
        for page, word in enumerate("abc", 7)
    ]
    files = table(make_pdf(*contents, *[paragraph(4, name=name * 4) for name in "pqr"], scan))
    crawl = lc.Crawl(files) | ExtractPdf(on_scanned="drop") | lc.text.MinChars(n=1)
    rows = [(row["page"], row["rule"], row["text"], row["start"], row["end"]) for row in crawl.edits.to_pylist()]
    expected = [
        (page, *each)
        for page in (1, 2, 3)
        for each in [
            ("running_line", "Report", 0, 6),
            ("page_number", str(page + 6), 0, 1),
            ("leaders", " ......... 5", 0, 12),
        ]
    ]
    assert rows == [*expected, (7, "scanned_page", None, 0, 0)]
    assert str(crawl.why("0")).startswith(
        "0: kept\n  extract_pdf changed 10 places, 57 characters cut: running_line on page 1 'Report'; "
    )
    assert str(crawl.why("0")).endswith("; scanned_page on page 7")
    assert replay(crawl.data[0]["text"], crawl.edits) == crawl.data[0]["text"]
    assert (lc.Crawl(files) | ExtractPdf(running="keep")).edits.num_rows == 0


def test_a_recipe_names_it():
    assert STAGES.make("extract_pdf", {"hyphens": "keep"}) == ExtractPdf(hyphens="keep")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_bytes": 0}, "extract_pdf.max_bytes is 0: set it to 1 or more"),
        ({"max_memory": 1000}, "extract_pdf.max_memory is 1,000: set it to 4,000,000 or more"),
        ({"max_page_seconds": 0.0}, "extract_pdf.max_page_seconds must be between 0.001 and 86,400, got 0.0"),
        ({"max_seconds": 1e9}, "extract_pdf.max_seconds must be between 0.001 and 86,400, got 1000000000.0"),
        ({"min_text_pages": 2.0}, "extract_pdf.min_text_pages must be between 0 and 1, got 2.0"),
        ({"on_scanned": "ocr"}, "ExtractPdf.on_scanned takes one of 'queue', 'drop', 'keep', got 'ocr'"),
    ],
)
def test_fields_that_make_no_sense(fields, message):
    with pytest.raises(StageError, match=message):
        ExtractPdf(**fields)


def test_columns_that_are_missing_or_taken(book):
    with pytest.raises(StageError, match="extract_pdf needs a column 'content'; the documents have: id"):
        ExtractPdf().edit(pa.table({"id": ["a"]}))
    with pytest.raises(StageError, match="needs a column 'content' of binary values, but it is string: give"):
        ExtractPdf().edit(pa.table({"id": ["a"], "content": ["text"]}))
    with pytest.raises(StageError, match="extract_pdf adds a column 'pages', which the documents already have"):
        ExtractPdf().edit(table(book(1), pages=[1]))


def test_a_missing_library_is_named(tmp_path, monkeypatch, book):
    (tmp_path / "pypdfium2.py").write_text("raise ModuleNotFoundError(\"No module named 'pypdfium2'\")")
    monkeypatch.syspath_prepend(str(tmp_path))
    module._workers.close()
    with pytest.raises(StageError, match=r"extract_pdf lacks a library \(No module named 'pypdfium2'\): pip install"):
        ExtractPdf().prepare()


@pytest.fixture(scope="module")
def rows(real_data):
    """Return the rows of the source by URL."""
    source, bad_files = Warc(data_files=str(real_data / "pdf" / "*.warc.gz"), binary=("pdf",)), BadFiles()
    tables = [table for part in source.splits()["train"] for table in source.read(part, bad_files)]
    return {row["url"]: row for table in tables for row in table.to_pylist()}, bad_files.left_out


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


def some(ends: Iterable[str]) -> list[Any]:
    """Return the ends of URLs as cases, three quarters of them and all bombs slow."""
    return [
        pytest.param(end, marks=[pytest.mark.slow] if number % 4 or "bomb" in end else [])
        for number, end in enumerate(sorted(ends))
    ]


@pytest.mark.variants
@pytest.mark.parametrize("end", some(REMOVED))
def test_files_without_usable_text_are_removed(rows, end):
    found, left_out = rows
    if any(url.endswith(end) for url in found):
        assert extract(found, end)[1] in REMOVED[end]
    else:
        assert REMOVED[end] <= left_out.keys()


@pytest.mark.variants
@pytest.mark.parametrize("end", some(READ))
def test_files_with_text_are_read(rows, truths, end):
    import pdf as benchmark

    text, rule = extract(rows[0], end)
    (truth,) = (truth for url, truth in truths.items() if url.endswith(end))
    assert rule is None
    words, five = benchmark.scores(text, truth)
    assert words >= READ[end][0]
    assert five >= READ[end][1]


@pytest.mark.variants
@pytest.mark.parametrize("end", SAME)
def test_the_encoding_of_a_file_does_not_change_its_text(rows, end):
    text, rule = extract(rows[0], end)
    assert rule is None
    assert text == extract(rows[0], "made/header-footer.pdf")[0]


def test_every_file_is_expected(truths):
    known = [*REMOVED, *READ, *SAME, "fullrefman.pdf", "truncated/refman.pdf", ".html"]
    assert [url for url in truths if sum(url.endswith(end) for end in known) != 1] == []


def private_use() -> bytes:
    return (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /x def /CMapType 2 def "
        b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfrange <00> <FF> <F000> endbfrange endcmap "
        b"CMapName currentdict /CMap defineresource pop end end"
    )


def rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def encrypted(make_pdf, password: str, allowed: int = -4) -> bytes:
    """Return a file encrypted with 40 bits (ISO 32000-1, 7.6.3, revision 2), with permissions."""
    padded, identity, permissions = (password.encode() + PADDING)[:32], b"0123456789abcdef", struct.pack("<i", allowed)
    owner = rc4(hashlib.md5(padded).digest()[:5], padded)  # noqa: S324  # the format's own
    key = hashlib.md5(padded + owner + permissions + identity).digest()[:5]  # noqa: S324
    user = rc4(key, PADDING)
    text = zlib.compress(b"BT /F 10 Tf 50 700 Td (A secret that anyone may read) Tj ET")
    packed = rc4(hashlib.md5(key + b"\x06\0\0" + b"\0\0").digest()[:10], text)  # noqa: S324
    content = b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(packed) + packed + b"\nendstream"
    entries = f"<< /Filter /Standard /V 1 /R 2 /P {allowed} /O <{owner.hex()}> /U <{user.hex()}> >>"
    ends = f"/Encrypt 99 0 R /ID [<{identity.hex()}> <{identity.hex()}>]"
    return make_pdf(b"", objects={6: content, 99: entries.encode()}, trailer=ends.encode())


def test_results_of_ocr_take_the_places_of_the_pages(book, scan, tmp_path):
    file = book(2, scan, scan, scan)
    assert rules(file) == ["pdf_scanned"]
    for name, lines in {
        "a.jsonl": '{"id": "0", "pages": [3, 5], "texts": ["Third page. ' + 200 * "x" + '", "Fifth page.\\n"]}',
        "b.jsonl": '{"id": "0", "page": 4, "text": " "}\n{"id": "elsewhere", "page": 1, "text": "unused"}\n',
    }.items():
        (tmp_path / name).write_text(lines)
    join = (str(tmp_path / "*.jsonl"),)
    assert rules(file, join=join) == [None]
    row = read(file, join=join)
    assert row["text"].startswith(read(file)["text"] + "\n\nThird page.")
    ends = [*row["page_offsets"][1:], len(row["text"])]
    pages = [row["text"][start:end] for start, end in zip(row["page_offsets"], ends, strict=True)]
    assert [page[:11] for page in pages[2:]] == ["Third page.", "", "Fifth page."]
    assert (row["ocr_pages"], row["pages_scanned"], row["pages_blank"], row["pages_joined"]) == ([], 0, 1, 3)
    assert ExtractPdf(join=join).files() == (str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))


def test_a_result_for_a_page_with_text_is_an_error(book, scan, tmp_path):
    results = tmp_path / "a.jsonl"
    results.write_text('{"id": "0", "page": 1, "text": "other"}')
    with pytest.raises(StageError, match="page 1 of document '0', which is not among its pages for OCR"):
        read(book(2, scan), join=(str(results),))
