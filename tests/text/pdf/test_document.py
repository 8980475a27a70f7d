"""Messages about a document: its pages in order, and a summary."""

import json
from contextlib import nullcontext

import pytest

from longcrawl.text.pdf.document import Document, Options

DEFAULTS = Options(100, 60.0, 1_000_000, "rescue", "queue", "remove", "join", "\n\n")


def messages(data: bytes, **options) -> tuple[list[list[str]], dict]:
    """Return the messages about pages and the summary; check that each has been sent by itself."""
    sent, ended = [], []
    Document(DEFAULTS._replace(**options), sent.append, ended.append).read(data, nullcontext)
    (end,) = ended
    return read_lines("".join(sent)), json.loads(end)


def read_lines(message: str) -> list:
    assert message.endswith("\n") or not message
    return [json.loads(line) for line in message.split("\n")[:-1]]


@pytest.fixture
def report(make_pdf, paragraph, scan) -> bytes:
    """Return a file of twelve pages with a header and a number, one of them a scan."""

    def page(number: int) -> list:
        lines = paragraph(3, name=f"page{chr(97 + number)}")
        return [(50, 780, "The Annual Report"), *lines, (300, 20, str(number))]

    return make_pdf(*(scan if number == 5 else page(number) for number in range(12)))


def test_pages_come_in_order_without_running_lines(report):
    pages, summary = messages(report)
    assert [kind for kind, *_ in pages] == ["text"] * 5 + ["scan"] + ["text"] * 6
    assert all(page[1].startswith(f"page{chr(97 + place)}00 ") for place, page in enumerate(pages) if place != 5)
    assert not any("Report" in text for _, text, *_ in pages)
    removed = [[["running_line", "The Annual Report"], ["page_number", str(number)]] for number in range(12)]
    assert [page[2] for page in pages if page[0] == "text"] == removed[:5] + removed[6:]
    assert pages[5] == ["scan", ""]
    facts = {"encrypted": False, "restricted": False, "producer": None}
    assert summary == {"pages": 12, "rescued": False, "stopped": None} | facts


def test_running_lines_are_kept_on_demand(report):
    pages, _ = messages(report, running="keep")
    assert sum("The Annual Report" in text for _, text in pages) == 11


def test_removed_hyphens_are_those_of_the_page_that_they_end(make_pdf):
    first = [(50, 700, "this line is long enough to be full and ends in a hy-"), (50, 688, "phen, another exam-")]
    pages, _ = messages(make_pdf([*first, (50, 676, "ple of a short hyphen at the end of this full page, a sec-")],
                                 [(50, 700, "ond page without any")], [(50, 700, "A last one")]))  # fmt: skip
    assert [page[2:] for page in pages] == [[[["hyphens", "---"]]], [], []]
    assert pages[0][1].endswith("a sec")
    assert pages[1][1].startswith("ond page")


def test_limits_end_the_reading_between_pages(report):
    pages, summary = messages(report, max_pages=3)
    assert (len(pages), summary["stopped"], summary["pages"]) == (3, "pages", 12)
    pages, summary = messages(report, max_characters=400)
    assert (0 < len(pages) < 12, summary["stopped"]) == (True, "characters")
    pages, summary = messages(report, max_seconds=0.0)
    assert (len(pages), summary["stopped"]) == (1, "time")


def test_a_file_without_its_end_is_rescued(report):
    cut = report[: report.index(b"xref")].replace(b"/Type /Catalog", b"/Type /Nothing")
    pages, summary = messages(cut)
    assert (len(pages), summary["rescued"]) == (12, True)
    assert messages(cut, cut_files="remove") == ([], {"failure": "unreadable"})


def test_a_page_count_that_lies_is_not_believed(make_pdf, paragraph):
    lying = make_pdf(paragraph(3)).replace(b"/Count 1 ", b"/Count 1000000 ")
    pages, summary = messages(lying, max_pages=1000)
    assert [kind for kind, *_ in pages] == ["text"] + 100 * ["failed"]
    assert (summary["pages"], summary["stopped"]) == (1_000_000, "failures")


def test_what_is_no_document_has_no_page(make_pdf):
    for file in (b"%PDF-1.4\n", make_pdf()):
        assert messages(file) == ([], {"failure": "unreadable"})


def test_stopping_in_the_middle_sends_the_pages_that_are_held(report):
    sent, ended = [], []
    document = Document(DEFAULTS, sent.append, ended.append)
    calls = iter(range(100))

    class Stopped(Exception):  # noqa: N818
        pass

    def waiting():
        if next(calls) == 4:  # opening is the first call, and each page takes one
            raise Stopped
        return nullcontext()

    with pytest.raises(Stopped):
        document.read(report, waiting)
    assert sent == []
    document.stop("memory")
    assert [kind for kind, *_ in read_lines("".join(sent))] == ["text"] * 3
    assert json.loads(ended[0])["stopped"] == "memory"
