"""Queues of a run: rows, counts, and how they print."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.counts import FROM_OCR, OCR, REFETCH, add_counts
from longcrawl.core.queues import SCHEMA, Queues, count_queued, queue_rows, read_queues
from longcrawl.errors import CorruptionError, LedgerError

NOBODY = SCHEMA.empty_table()


def rows(*given):
    return pa.Table.from_pylist(list(given), SCHEMA)


def for_ocr(name, pages=(1,), reason="pdf_scanned", **others):
    return {"id": name, "reason": reason, "page_numbers": list(pages), "pages": 9} | others


def cut(name, **others):
    return {"id": name, "reason": "cut", "bytes": 1_048_576} | others


def test_rows_have_the_columns_of_documents_and_null_for_those_that_they_lack():
    documents = pa.table({
        "id": pa.array(["a", "b"], pa.large_string()),
        "offset": pa.array([7, 8], pa.int32()),
        "text": ["one", "two"],
    })  # fmt: skip
    columns = {"reason": pa.array([None, "cut"]), "pages": pa.array([1, 2])}
    found = queue_rows(documents, pa.array([False, True]), columns)
    assert found.schema == SCHEMA
    assert {name: value for name, value in found.to_pylist()[0].items() if value is not None} == {
        "id": "b", "offset": 8, "reason": "cut", "pages": 2
    }  # fmt: skip


counts = st.dictionaries(
    st.sampled_from([OCR, REFETCH, FROM_OCR]),
    st.lists(st.tuples(st.sampled_from(["pages", "pdf_scanned"]), st.none() | st.lists(st.integers(1, 9)))),
)


@given(counts, counts)
def test_counts_are_sums_by_queue_and_reason(first, second):
    tables = [
        {
            name: rows(*({"reason": why, "page_numbers": some, "pages": 9, "pages_read": 7} for why, some in each))
            for name, each in part.items()
        }
        for part in (first, second)
    ]
    naive = {}
    for part in (first, second):
        for name, each in part.items():
            for why, pages in each:
                count = naive.setdefault(name, {}).setdefault(why, {"documents": 0, "pages": 0})
                count["documents"] += 1
                count["pages"] += 2 if pages is None else len(pages)
    found = add_counts(map(count_queued, tables))
    assert found == naive
    assert list(found) == sorted(found)
    assert [list(each) for each in found.values()] == [sorted(each) for each in found.values()]


def test_empty_queues_print_as_titles():
    assert str(Queues("run", NOBODY, NOBODY)) == (
        "ocr_queue: 0 documents for OCR\n\nrefetch_queue: 0 documents to fetch again"
    )


def test_queues_print_counts_and_documents():
    scans = rows(
        for_ocr("a", [2, 3], url="https://example.org/a"), for_ocr("b", [1], "pages", source="b.pdf"), for_ocr("c")
    )
    files = rows(
        cut("d", bytes_announced=3_000_000, url="https://example.org/d", pages=9, pages_read=7),
        cut("e", pages=3, pages_read=3),
        cut("f", reason="pdf_unreadable"),
    )
    lines = [line.rstrip() for line in str(Queues("run", scans, files)).splitlines()]
    assert lines == [
        "ocr_queue: 3 documents for OCR",
        "reason       documents  pages",
        "pages                1      1",
        "pdf_scanned          2      3",
        "",
        "id  from                   missing",
        "a   https://example.org/a  2 of 9 pages",
        "b   b.pdf                  1 of 9 pages",
        "c                          1 of 9 pages",
        "",
        "",
        "refetch_queue: 3 documents to fetch again",
        "reason          documents  pages",
        "cut                     2      2",
        "pdf_unreadable          1",
        "",
        "id  from                   missing",
        "d   https://example.org/d  1,951,424 of 3,000,000 bytes, 2 of 9 pages",
        "e                          bytes after 1,048,576",
        "f                          bytes after 1,048,576",
    ]


def test_the_first_of_many_documents_are_printed():
    shown = str(Queues("run", rows(*(for_ocr(f"d{number}") for number in range(1_100))), NOBODY))
    assert "\nd19 " in shown
    assert "\nd20 " not in shown
    assert "and 1,080 more in ocr_queue/ of the run" in shown


def test_text_of_a_crawl_is_escaped():
    shown = Queues("run", rows(for_ocr("<b>\x1b[31m", url="https://example.org/\n<i>")), NOBODY)
    assert "\x1b" not in str(shown)
    assert "<b>" not in shown._repr_html_()
    assert "<i>" not in shown.markdown()


def test_queues_are_read_in_the_order_of_files(tmp_path):
    for number, name in enumerate(["b", "a"]):
        (tmp_path / OCR).mkdir(exist_ok=True)
        pq.write_table(rows(for_ocr(name)), tmp_path / OCR / f"00-0000{number}.parquet")
    found = read_queues(tmp_path, "run")
    assert found.ocr["id"].to_pylist() == ["b", "a"]
    assert found.refetch.equals(NOBODY)
    (tmp_path / OCR / "00-00001.parquet").write_bytes(b"damaged")
    with pytest.raises((LedgerError, CorruptionError), match="00-00001.parquet"):
        read_queues(tmp_path, "run")
