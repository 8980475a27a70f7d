"""Types of pages by their first bytes, and PDFs as rows."""

import base64
import gzip
import hashlib
import json
import tracemalloc
from collections import Counter

import pyarrow as pa
import pytest
from datasets import load_dataset
from hypothesis import given
from hypothesis import strategies as st
from small_pdf import small_pdf

import longcrawl as lc
from longcrawl.core import stages
from longcrawl.core.sources import BadFiles
from longcrawl.errors import RecipeError, SourceError, StageError
from longcrawl.run.recipe import parse_recipe
from longcrawl.sources.warc import source as tables
from longcrawl.sources.warc.pages import PDF_TYPES, SNIFFED_BYTES
from longcrawl.sources.warc.source import SCHEMA, Warc

PDF = small_pdf("A report")
HTML = b"<!doctype html><title>Log in</title><p>before you read the report"
XHTML = b'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x">\n'
WARNING = b"<br />\n<b>Warning</b>: headers already sent in report.php on line 3<br />\n"


def record(body, mime="application/pdf", kind="response", status="200 OK", http="", **fields):
    head = f"HTTP/1.1 {status}\r\n" + (f"Content-Type: {mime}\r\n" if mime else "") + http + "\r\n"
    block = head.encode() + body if kind == "response" else body
    types = "application/http; msgtype=response" if kind == "response" else mime
    given = {"WARC-Type": kind, "WARC-Target-URI": "https://example.org/report", "Content-Type": types} | fields
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"WARC/1.0\r\n{lines}Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n"


def read_tables(tmp_path, records, **settings):
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(map(gzip.compress, records)))
    source, bad_files = Warc(data_files=str(path), **settings), BadFiles()
    (part,) = source.splits()["train"]
    found = list(source.read(part, bad_files))
    for table in found:
        assert table.schema == source.schema()
        table.validate(full=True)
    return found, bad_files.left_out


def read(tmp_path, records, **settings):
    found, left_out = read_tables(tmp_path, records, **settings)
    return [row for table in found for row in table.to_pylist()], left_out


def test_a_pdf_is_a_row_with_its_bytes(tmp_path):
    one = record(PDF, "Application/PDF; charset=binary", http="Content-Language: de\r\n", WARC_Record_ID="<urn:uuid:1>")
    (row,), left_out = read(tmp_path, [one], binary=("pdf",))
    assert left_out == Counter()
    assert row.pop("length") > 0
    assert row == {
        "id": "<urn:uuid:1>",
        "text": None,
        "url": "https://example.org/report",
        "date": None,
        "source": "a.warc.gz",
        "language": None,
        "html": None,
        "status": 200,
        "mime": "application/pdf",
        "charset": None,
        "language_hint": "de",
        "truncated": None,
        "file": "a.warc.gz",
        "offset": 0,
        "digest": "sha1:" + base64.b32encode(hashlib.sha1(PDF).digest()).decode(),  # noqa: S324  # the standard's
        "mime_declared": "application/pdf",
        "bytes_announced": None,
        "content": PDF,
    }


@pytest.mark.variants
@pytest.mark.parametrize("mime", [*PDF_TYPES, "application/octet-stream", "text/html", "text/plain", "image/png", None])
def test_a_pdf_is_known_by_its_bytes_whatever_its_type(tmp_path, mime):
    junk = b"x" * 600 + b"\n"
    for body in (
        PDF,
        b"\xef\xbb\xbf\n" + PDF,
        junk + PDF[:-7] + b"\0" * 9,
        WARNING + PDF,
        junk + PDF,
        WARNING + PDF + b"\0",
    ):
        (row,), _ = read(tmp_path, [record(body, mime)], binary=("pdf",))
        assert (row["mime"], row["mime_declared"]) == ("application/pdf", mime)
        assert (row["content"], row["text"], row["html"], row["charset"]) == (body, None, None, None)


@pytest.mark.parametrize("kind", ["resource", "conversion"])
def test_pdfs_without_a_response(tmp_path, kind):
    (row,), _ = read(tmp_path, [record(PDF, kind=kind)], binary=("pdf",))
    assert (row["content"], row["status"], row["mime_declared"]) == (PDF, None, "application/pdf")
    assert read(tmp_path, [record(PDF, kind=kind)]) == ([], Counter(mime_application=1))


@pytest.mark.parametrize("mime", ["text/html", "application/xhtml+xml", "text/plain"])
def test_a_pdf_is_never_read_as_a_page(tmp_path, mime):
    records = [record(body, mime) for body in (PDF, b"\n" + PDF, WARNING + PDF + b"\0", b"%PDF-")]
    assert read(tmp_path, records) == ([], Counter(mime_application=4))


@pytest.mark.parametrize("mime", PDF_TYPES)
def test_mimes_put_no_pdf_into_text(tmp_path, mime):
    kinds = [record(body, mime, kind) for kind in ("response", "conversion") for body in (PDF, b"random", b"")]
    with pytest.warns(UserWarning, match=r"mimes has 'application/pdf', but PDFs are skipped: set binary=\['pdf'\]"):
        rows, left_out = read(tmp_path, kinds, mimes=PDF_TYPES)
    top = mime.partition("/")[0] if mime in ("application/pdf", "text/pdf", "application/x-pdf") else None
    assert (rows, left_out.total()) == ([], 6)
    assert top is None or left_out == {f"mime_{top}": 6}


def test_html_sent_as_a_pdf_is_read_as_html(tmp_path):
    for mime in PDF_TYPES:
        (row,), _ = read(tmp_path, [record(HTML, mime)])
        assert (row["mime"], row["html"], row["text"]) == ("text/html", HTML.decode(), None)
        assert set(row) == set(SCHEMA.names)
        (with_declared,), _ = read(tmp_path, [record(HTML, mime)], binary=("pdf",))
        assert with_declared == row | {"mime_declared": mime, "bytes_announced": None, "content": None}
    assert read(tmp_path, [record(HTML)], mimes=("text/plain",)) == ([], Counter(mime_text=1))
    (row,), _ = read(tmp_path, [record(HTML, None, WARC_Identified_Payload_Type="application/pdf")], binary=("pdf",))
    assert (row["mime"], row["mime_declared"]) == ("text/html", None)


def test_xhtml_sent_as_a_pdf_is_read_as_html(tmp_path):
    page = XHTML + HTML
    for binary in ((), ("pdf",)):
        (row,), _ = read(
            tmp_path, [record(page), record(b'<?xml version="1.0"?><rss>'), record(page, None)], binary=binary
        )
        assert (row["mime"], row["html"]) == ("text/html", page.decode())


def test_what_is_declared_as_a_pdf_and_is_none(tmp_path):
    junk = b"x" * (SNIFFED_BYTES - 4) + PDF
    records = [record(b"\x93random"), record(junk), record(b"random", "text/pdf"), record(b"{}", "application/json")]
    records.append(record(b"random", None, WARC_Identified_Payload_Type="application/pdf"))
    assert read(tmp_path, records, binary=("pdf",)) == ([], Counter(not_pdf=4, mime_application=1))
    assert read(tmp_path, records) == ([], Counter(mime_application=4, mime_text=1))
    (row,), _ = read(tmp_path, [record(junk[1:])], binary=("pdf",))
    assert row["content"] == junk[1:]


def test_pages_about_pdfs_are_pages(tmp_path):
    bodies = [
        (b"<!doctype html><title>%PDF-1.4</title><p>A PDF begins so.", "text/html"),
        (b"<pre>\n%PDF-1.4\n1 0 obj\n</pre>", "text/html"),
        (b"The header:\n%PDF-1.4\nand then objects \xe2\x80\x93 many.", "text/plain"),
        (b"<p>Ein Kn\xf6del, %PDF-1.4", "text/html"),
    ]
    expected, _ = read(tmp_path, [record(body, mime) for body, mime in bodies])
    found, left_out = read(tmp_path, [record(body, mime) for body, mime in bodies], binary=("pdf",))
    assert left_out == Counter()
    assert [row["mime"] for row in found] == [mime for _, mime in bodies]
    assert [{name: row[name] for name in SCHEMA.names} for row in found] == expected
    for page in (bodies[0][0], XHTML + b"%PDF-1.4\n"):
        for binary in ((), ("pdf",)):
            (row,), _ = read(tmp_path, [record(page, "application/pdf")], binary=binary)
            assert (row["mime"], row["html"]) == (expected[0]["mime"], page.decode())
    (text,), _ = read(tmp_path, [record(b"%PDF- is how the converted text begins", "text/plain", "conversion")])
    assert text["text"] == "%PDF- is how the converted text begins"


def test_a_pdf_without_any_type_has_the_rule_that_it_had(tmp_path):
    html = record(PDF, None, WARC_Identified_Payload_Type="text/html")
    assert read(tmp_path, [record(PDF, None), html]) == ([], Counter(no_mime=1, mime_application=1))


def test_other_rules_come_first(tmp_path):
    cut = record(PDF[:300], http=f"Content-Length: {len(PDF)}\r\n")
    records = [
        record(PDF, status="404 Not Found"),
        record(b""),
        cut,
        record(PDF, WARC_Truncated="length"),
        record(b"\x93\0broken", http="Content-Encoding: lzma\r\n"),
        record(b"\x93\0broken", "image/png", http="Content-Encoding: lzma\r\n"),
    ]
    rows, left_out = read(tmp_path, records, binary=("pdf",))
    assert [(row["truncated"], row["content"]) for row in rows] == [("body", PDF[:300]), ("length", PDF)]
    assert left_out == Counter(status_404=1, empty_body=1, content_encoding=1, mime_image=1)
    rows, left_out = read(tmp_path, records, binary=("pdf",), truncated="skip")
    assert (rows, left_out["truncated"]) == ([], 2)
    assert read(tmp_path, records)[1] == Counter(status_404=1, mime_application=4, mime_image=1)
    assert read(tmp_path, [record(PDF)], binary=("pdf",), max_record_bytes=300)[1] == Counter(max_record_bytes=1)


def test_codings_are_undone_before_the_type_is_looked_for(tmp_path):
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(PDF), PDF)
    for body, http in ((gzip.compress(PDF), "Content-Encoding: gzip"), (chunks, "Transfer-Encoding: chunked")):
        (row,), _ = read(tmp_path, [record(body, "text/html", http=f"{http}\r\n")], binary=("pdf",))
        assert row["content"] == PDF
        assert read(tmp_path, [record(body, "text/html", http=f"{http}\r\n")])[0] == []


@given(body=st.binary(max_size=60) | st.builds(bytes.__add__, st.binary(max_size=40), st.just(PDF)))
def test_with_binaries_the_pages_stay_the_same(tmp_path_factory, body):
    tmp_path = tmp_path_factory.mktemp("same")
    records = [record(body, mime) for mime in ("text/html", "text/plain", "application/pdf", "image/png", None)]
    expected, _ = read(tmp_path, records)
    found, _ = read(tmp_path, records, binary=("pdf",))
    found = [row for row in found if row["content"] is None]
    assert [{name: row[name] for name in SCHEMA.names} for row in found] == expected
    assert all(b"%PDF-" in body for _ in range(len(expected), len(found)))


def test_pdfs_alone(tmp_path):
    records = [record(PDF), record(HTML, "text/html"), record(HTML)]
    rows, left_out = read(tmp_path, records, binary=("pdf",), mimes=())
    assert [row["content"] for row in rows] == [PDF]
    assert left_out == Counter(mime_text=2)
    assert "html" not in rows[0]
    with pytest.raises(SourceError, match=r"Warc.binary takes a list with any of 'pdf', got \('docx',\)"):
        Warc(data_files="x", binary=("docx",))


def test_tables_are_cut_by_the_bytes_of_pdfs(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100_000)
    bodies = [small_pdf(f"number {number}", size) for number, size in enumerate((10, 60_000, 30_000, 250_000, 10, 40))]
    found, _ = read_tables(tmp_path, [record(body) for body in bodies], binary=("pdf",))
    assert [table.num_rows for table in found] == [3, 1, 2]
    assert [content for table in found for content in table["content"].to_pylist()] == bodies


@pytest.mark.slow
def test_large_pdfs_are_held_one_at_a_time(tmp_path):
    path = tmp_path / "a.warc"
    size = 24 << 20
    with path.open("wb") as file:
        for number in range(6):
            file.write(record(small_pdf(f"number {number}", size)))
    source = Warc(data_files=str(path), binary=("pdf",))
    (part,) = source.splits()["train"]
    pool = pa.default_memory_pool()
    before, most, rows = pool.bytes_allocated(), 0, 0
    tracemalloc.start()
    for table in source.read(part, BadFiles()):
        rows += table.num_rows
        most = max(most, pool.bytes_allocated() - before)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == 6
    assert peak + most < 4 * size


def test_settings_of_recipes_stay_the_same(tmp_path):
    assert "binary" not in Warc(data_files="x").settings()
    source = Warc(data_files="x", binary=["pdf"])
    assert source.settings()["binary"] == ["pdf"]
    assert Warc(data_files="x").schema() == SCHEMA
    assert source.for_tokens([]).schema() == source.schema()
    assert Warc(data_files="x").for_tokens([]).schema() == SCHEMA.remove(SCHEMA.get_field_index("digest"))
    (tmp_path / "a.warc").write_bytes(record(PDF))
    loaded = load_dataset("longcrawl", "warc", data_files=str(tmp_path / "a.warc"), binary=["pdf"], split="train")
    assert loaded["content"][:] == [PDF]
    assert loaded.features["content"].dtype == "large_binary"


def recipe(path, *steps):
    return {
        "longcrawl": 1,
        "name": "reports",
        "source": {"builder": "warc", "data_files": str(path), "binary": ["pdf"]},
        "stages": list(steps),
        "outputs": {"parquet": {}},
    }


def test_no_output_writes_pdfs(tmp_path):
    path = tmp_path / "a.warc"
    path.write_bytes(record(PDF, WARC_Record_ID="<urn:uuid:1>"))
    message = "have PDFs or other files in the column 'content', which no output writes: add the stage extract_pdf"
    with pytest.raises(RecipeError, match=f"recipe 'reports': documents of its source {message}"):
        lc.run(parse_recipe(recipe(path)), tmp_path / "run")
    assert not list(tmp_path.glob("run/parquet*"))
    crawl = lc.open(str(path), binary=["pdf"])
    with pytest.raises(StageError, match=f"the documents {message}"):
        crawl.to_parquet(tmp_path / "parquet")
    with pytest.raises(StageError, match=message):
        lc.open(str(path), binary=["pdf"], streaming=True).to_parquet(tmp_path / "parquet")
    assert not (tmp_path / "parquet").exists()
    read_out = crawl.map(lambda row: {"text": f"{len(row['content'])} bytes", "content": None}, "read_out")
    with pytest.raises(StageError, match=message):  # a stage has to remove the column
        read_out.to_parquet(tmp_path / "parquet")


@pytest.mark.slow
def test_no_stage_reads_texts_of_files_that_have_none(tmp_path):
    files = pa.array([PDF, None, PDF], pa.large_binary())
    message = (
        r"needs texts, but the documents have PDFs or other files in the column 'content': before it, add the stage e"
    )
    for texts in ([None] * 3, ["one", "two", None], None):
        columns = {} if texts is None else {"text": pa.array(texts, pa.string())}
        crawl = lc.Crawl(pa.table({"id": ["a", "b", "c"], "content": files, **columns}))
        for stage in (
            lc.text.MinChars(1),
            lc.text.ExtractText(engine="blocks"),
            lc.tokens.Tokenize("trained"),
            lc.dedup.ExactDocuments(),
        ):
            with pytest.raises(StageError, match=f"{stage.name} {message}"):
                crawl | stage
    with_texts = lc.Crawl(pa.table({"id": ["a", "b", "c"], "content": files, "text": ["one", "two", "three"]}))
    assert len((with_texts | lc.text.MinChars(1)).data) == 3
    path = tmp_path / "a.warc"
    path.write_bytes(record(PDF, WARC_Record_ID="<urn:uuid:1>"))
    path.write_bytes(record(HTML, "text/html", WARC_Record_ID="<urn:uuid:2>") + path.read_bytes())
    for stage in ("gopher_quality", "extract_text"):
        with pytest.raises(StageError, match=f"{stage} {message}"):
            lc.run(parse_recipe(recipe(path, stage, "extract_pdf")), tmp_path / "run")


class CountBytes(stages.Rewrite):
    """A stage that replaces binaries by their sizes."""

    looks_at = "content"

    def rewrite(self, table):
        """Replace the column."""
        sizes = [f"a PDF of {len(each)} bytes" for each in table["content"].to_pylist()]
        return stages.with_column(table.drop_columns("content"), "text", pa.array(sizes, pa.large_string()))


@pytest.fixture(autouse=True)
def registered():
    """Register the stage while a test runs: other tests list all stages when they are collected."""
    if "count_bytes" not in stages.STAGES._kinds:
        assert stages.stage(CountBytes) is CountBytes


def test_a_run_writes_the_texts_of_a_stage_that_reads_pdfs(tmp_path):
    path = tmp_path / "crawl" / "a.warc.gz"
    path.parent.mkdir()
    bodies = [small_pdf(f"number {number}", number) for number in range(5)]
    ids = [f"<urn:uuid:{number}>" for number in range(6)]
    fields = [{"WARC-Record-ID": name, "WARC-Target-URI": f"https://example.org/{name[10:-1]}"} for name in ids]
    records = [record(body, **each) for body, each in zip([*bodies, b"random"], fields, strict=True)]
    path.write_bytes(b"".join(map(gzip.compress, records)))
    made = parse_recipe(recipe(path, "urls", "count_bytes", {"min_chars": {"n": 4}}))
    lc.run(made, tmp_path / "run")
    found = load_dataset(str(tmp_path / "run" / "parquet"), split="train")
    assert found["text"][:] == [f"a PDF of {len(body)} bytes" for body in bodies]
    assert "content" not in found.column_names
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["left_out"] == {"not_pdf": 1}


def test_real_and_made_pdfs_come_as_they_were_sent(real_data):
    if not (folder := real_data / "pdf").is_dir():
        pytest.skip("the real input has no PDFs")
    lines = gzip.decompress((folder / "groundtruth.jsonl.gz").read_bytes()).splitlines()
    known = {known["url"]: known for known in map(json.loads, lines)}
    source, bad_files = Warc(data_files=str(folder / "*.warc.gz"), binary=("pdf",)), BadFiles()
    found = [table for part in source.splits()["train"] for table in source.read(part, bad_files)]
    rows = {row["url"]: row for table in found for row in table.to_pylist()}
    kinds = {"html": "text/html", "notpdf": "text/html"}
    assert {url: row["mime"] for url, row in rows.items()} == {
        url: kinds.get(known[url]["kind"], "application/pdf") for url in rows
    }
    contents = {url: row["content"] for url, row in rows.items() if row["content"] is not None}
    assert {url: hashlib.sha256(each).hexdigest() for url, each in contents.items()} == {
        url: known[url]["sha256"] for url in contents
    }
    assert {known[url]["kind"] for url in known.keys() - rows.keys()} == {"broken"}
    left_out = {"not_pdf": 1, "empty_body": 1, "status_404": 1}
    assert {rule: bad_files.left_out[rule] for rule in left_out} == left_out


@pytest.mark.parametrize(
    ("http", "expected"),
    [
        ("Content-Length: 900\r\n", 900),
        ("Content-Length: 40\r\nX-Crawl-Content-Length: 900\r\n", 900),
        ("Content-Length: 40\r\nX-Crawl-Content-Encoding: gzip\r\nX-Crawl-Content-Length: 30\r\n", None),
        ("Content-Length: many\r\n", None),
        ("Content-Length: 99999999999999999999\r\n", None),
        ("Content-Length: 40\r\nTransfer-Encoding: chunked\r\n", None),
        ("Content-Length: 40\r\nContent-Encoding: gzip\r\n", None),
        ("", None),
    ],
)
def test_the_length_of_a_file_is_the_one_that_its_server_announced(tmp_path, http, expected):
    (row,), _ = read(tmp_path, [record(PDF, http=http)], binary=("pdf",))
    assert (row["content"], row["bytes_announced"]) == (PDF, expected)
