"""Queues of runs over web archives: what is in them, where it is shown, and how the results of OCR come back."""

import base64
import gzip
import hashlib
import json
import shutil

import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset

import longcrawl as lc
from longcrawl.core.counts import OCR, REFETCH
from longcrawl.errors import LedgerError, RunError, StageError
from longcrawl.publish.hub import push

FIRST = 5
"""Number of the first page object in the files of ``make_pdf``; each page has two."""

LENGTH = 3_000_000
"""Bytes that the server announced of the file that was cut."""


@pytest.fixture(scope="module")
def files(make_pdf, paragraph, scan):
    """Return PDFs by name."""

    def text(number):
        return paragraph(3, name="page" + chr(97 + number))

    cut = make_pdf(text(4), text(5))
    return {
        "scanned": make_pdf(text(0), scan, scan, scan),
        "whole": make_pdf(text(1)),
        "mixed": make_pdf(text(2), scan, text(3)),
        "cut": cut[: cut.index(b"xref")],
        "stub": b"%PDF-1.4\n",
        "repaired": cut[: cut.index(b"xref")],
        "torn": make_pdf(text(6), text(7), text(8), objects={FIRST + 2: b"null"}),
    }


def record(name, body):
    is_cut = name in ("cut", "stub")
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\nContent-Length: {LENGTH if is_cut else len(body)}\r\n\r\n"
    )
    fields = {
        "WARC-Type": "response",
        "WARC-Record-ID": f"<urn:uuid:{name}>",
        "WARC-Target-URI": f"https://example.org/{name}",
        "Content-Type": "application/http; msgtype=response",
        **({"WARC-Truncated": "length"} if is_cut else {}),
        "Content-Length": len(head) + len(body),
    }
    lines = "".join(f"{field}: {value}\r\n" for field, value in fields.items())
    return gzip.compress(f"WARC/1.0\r\n{lines}\r\n{head}".encode() + body + b"\r\n\r\n")


def write_recipe(folder, *stages):
    source = {"builder": "warc", "data_dir": str(folder / "crawl"), "binary": ["pdf"]}
    spec = {"longcrawl": 1, "name": "reports", "source": source, "stages": list(stages), "outputs": {"parquet": {}}}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture(scope="module")
def work(files, tmp_path_factory):
    """Return a folder with two web archives and a run over them."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "crawl").mkdir()
    for archive, names in {"a": ["whole", "scanned"], "b": ["mixed", "cut", "stub", "repaired", "torn"]}.items():
        content = b"".join(record(name, files[name]) for name in names)
        (folder / "crawl" / f"{archive}.warc.gz").write_bytes(content)
    lc.run(write_recipe(folder, "extract_pdf"), folder / "run")
    return folder


@pytest.fixture(scope="module")
def joined(work):
    """Return a run with the results of OCR, and the file that has these."""
    results = work / "results.jsonl"
    lines = [{"id": row["id"], "page": page, "text": f"Read page {page}. " + "word " * 99} for row in
             lc.queue(work / "run").ocr.to_pylist() for page in row["page_numbers"]]  # fmt: skip
    results.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    lc.run(write_recipe(work, {"extract_pdf": {"join": [str(results)]}}), work / "joined")
    return work / "joined", results


def by_name(table):
    return {row["id"].removeprefix("<urn:uuid:").removesuffix(">"): row for row in table.to_pylist()}


def kept(run):
    return [name[10:-1] for name in load_dataset(str(run / "parquet"), split="train")["id"]]


def test_documents_with_work_for_others_are_in_the_queues(work, files):
    queues = lc.queue(work / "run")
    assert kept(work / "run") == ["whole", "mixed", "cut", "repaired", "torn"]
    about = ("reason", "page_numbers", "pages", "pages_read", "bytes", "bytes_announced", "truncated")
    found = {
        name: {who: tuple(map(row.get, about)) for who, row in by_name(table).items()}
        for name, table in ((OCR, queues.ocr), (REFETCH, queues.refetch))
    }
    sizes = {name: len(file) for name, file in files.items()}
    assert found == {
        OCR: {
            "scanned": ("pdf_scanned", [2, 3, 4], 4, 4, sizes["scanned"], sizes["scanned"], None),
            "mixed": ("pages", [2], 3, 3, sizes["mixed"], sizes["mixed"], None),
            "torn": ("unreadable_pages", [2], 3, 2, sizes["torn"], sizes["torn"], None),
        },
        REFETCH: {
            "cut": ("cut", None, 2, 2, sizes["cut"], LENGTH, "length"),
            "stub": ("pdf_unreadable", None, None, None, sizes["stub"], LENGTH, "length"),
        },
    }


def test_the_place_of_a_row_is_that_of_its_record(work, files, tmp_path):
    queues = lc.queue(work / "run")
    for name, row in (by_name(queues.ocr) | by_name(queues.refetch)).items():
        assert row["url"] == f"https://example.org/{name}"
        with (work / "crawl" / row["file"]).open("rb") as archive:
            archive.seek(row["offset"])
            stored = archive.read(row["length"])
        head, _, body = gzip.decompress(stored).split(b"\r\n\r\n", 2)
        assert f"WARC-Record-ID: {row['id']}\r\n".encode() in head
        assert body == files[name] + b"\r\n\r\n"
        assert row["digest"] == "sha1:" + base64.b32encode(hashlib.sha1(files[name]).digest()).decode()  # noqa: S324
        (tmp_path / "one.warc.gz").write_bytes(stored)
        (read,) = lc.open(str(tmp_path / "one.warc.gz"), binary=["pdf"]).data
        assert (read["id"], read["content"]) == (row["id"], files[name])


@pytest.mark.slow
def test_counts_of_the_queues_are_in_everything_about_a_run(work, longcrawl):
    run = work / "run"
    queued = {
        OCR: {
            "pages": {"documents": 1, "pages": 1},
            "pdf_scanned": {"documents": 1, "pages": 3},
            "unreadable_pages": {"documents": 1, "pages": 1},
        },
        REFETCH: {"cut": {"documents": 1, "pages": 0}, "pdf_unreadable": {"documents": 1, "pages": 0}},
    }
    told = ("3 documents (5 pages) for OCR", "2 documents to fetch again")
    (row,) = lc.funnel(run).rows
    assert row.queued == queued
    assert all(words in str(lc.funnel(run)) for words in told)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["funnel"]["stages"][0]["queued"] == queued
    card = (run / "README.md").read_text()
    assert "| extract_pdf | for OCR | `pdf_scanned` | 1 | 3 |" in card
    assert "| extract_pdf | for OCR | `unreadable_pages` | 1 | 1 |" in card
    assert "| extract_pdf | to fetch again | `cut` | 1 |  |" in card
    configs = yaml.safe_load(card.split("---")[1])["configs"]
    assert {name: each["data_files"] for each in configs if (name := each["config_name"]).endswith("_queue")} == {
        name: [{"split": "queued", "path": f"{name}/*.parquet"}] for name in (OCR, REFETCH)
    }
    assert load_dataset(str(run), OCR, split="queued")["page_numbers"][:] == [[2, 3, 4], [2], [2]]
    lc.write_report(run, work / "report.html")
    page = (work / "report.html").read_text()
    assert 'extract_<wbr>pdf</bdi> <span class="value">for OCR</span>' in page
    assert "unreadable_<wbr>pages" in page
    assert 'extract_<wbr>pdf</bdi> <span class="value">to fetch again</span>' in page
    assert longcrawl("queue", run).stdout == f"{lc.queue(run)}\n"
    facts = json.loads(longcrawl("queue", run, "--json").stdout)
    assert facts == {
        "run": str(run),
        "ocr": lc.queue(run).ocr.to_pylist(),
        "refetch": lc.queue(run).refetch.to_pylist(),
    }
    assert lc.verify(run).problems == ()


def test_results_of_ocr_empty_the_queue(joined):
    run, _ = joined
    assert kept(run) == ["whole", "scanned", "mixed", "cut", "repaired", "torn"]
    queues = lc.queue(run)
    assert (queues.ocr.num_rows, queues.refetch.num_rows) == (0, 2)
    assert "3 documents (5 pages) with text from OCR" in str(lc.funnel(run))
    assert "| extract_pdf | with text from OCR | `pages` | 3 | 5 |" in (run / "README.md").read_text()
    assert "for OCR" not in str(lc.funnel(run))
    texts = load_dataset(str(run / "parquet"), split="train")
    (scanned,) = (row for row in texts if row["id"] == "<urn:uuid:scanned>")
    starts = [*scanned["page_offsets"], len(scanned["text"])]
    assert [scanned["text"][start : start + 12] for start in starts[1:4]] == [f"Read page {n}." for n in (2, 3, 4)]
    assert (scanned["ocr_pages"], scanned["pages_joined"]) == ([], 3)
    assert lc.verify(run).problems == ()


def test_results_that_match_no_document_are_an_error(work, tmp_path):
    (tmp_path / "crawl").symlink_to(work / "crawl")
    (tmp_path / "other.jsonl").write_text('{"id": "elsewhere", "page": 1, "text": "unused"}\n')
    recipe = write_recipe(tmp_path, {"extract_pdf": {"join": [str(tmp_path / "other.jsonl")]}})
    with pytest.raises(StageError, match=r"extract_pdf\.join: no document has an id in .*other\.jsonl: join results"):
        lc.run(recipe, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_results_that_match_no_document_are_counted_and_named(work, joined, tmp_path, processes):
    (tmp_path / "crawl").symlink_to(work / "crawl")
    results = tmp_path / "results.jsonl"
    others = [{"id": f"elsewhere-{number}", "page": 1, "text": "unused"} for number in (7, *range(7), 8)]
    results.write_text("".join(f"{json.dumps(line)}\n" for line in others) + joined[1].read_text())
    recipe = write_recipe(tmp_path, {"extract_pdf": {"join": [str(results)]}})
    made = lc.run(recipe, tmp_path / "run", num_proc=processes)
    ids = ", ".join(f"'elsewhere-{number}'" for number in (7, 0, 1, 2, 3))
    warning = (
        f"join has texts of 12 documents, and 9 of these are not here, the first: {ids}: join results with the source"
    )
    assert f"WARNING: extract_pdf: {warning}" in str(made)
    (found,) = json.loads((tmp_path / "run" / "manifest.json").read_text())["warnings"]["extract_pdf"]
    assert found.startswith(warning)
    assert "9 of these are not here" in (tmp_path / "run" / "README.md").read_text()
    assert "3 documents (5 pages) with text from OCR" in str(lc.funnel(tmp_path / "run"))
    report = lc.write_report(tmp_path / "run", tmp_path / "report.html").read_text()
    assert "9 of these are not here" in report[report.index('id="warnings"') : report.index('id="funnel"')]


def test_a_crawl_checks_the_ids_of_results(files, tmp_path):
    results, names = tmp_path / "results.jsonl", ("whole", "mixed", "scanned")
    documents = {"id": names, "content": [files[name] for name in names]}
    lines = [{"id": name, "page": page, "text": "Read. " * 99} for name, page in (("mixed", 2), ("elsewhere", 1))]
    results.write_text(json.dumps(lines[0]) + "\n" + json.dumps(lines[1]))
    with pytest.warns(UserWarning, match=r"extract_pdf: join has texts of 2 documents, but 1 of these .* 'elsewhere'"):
        crawl = lc.Crawl(documents) | lc.text.ExtractPdf(join=(str(results),))
    assert "mixed" in crawl.data["id"][:]
    results.write_text(json.dumps(lines[1]))
    with pytest.raises(StageError, match=r"extract_pdf\.join: no document has an id in"):
        lc.Crawl(documents) | lc.text.ExtractPdf(join=(str(results),))


@pytest.mark.slow
def test_results_that_change_end_a_resumed_run(work, joined, tmp_path):
    _, results = joined
    (tmp_path / "crawl").symlink_to(work / "crawl")
    own = tmp_path / "results.jsonl"
    own.write_bytes(results.read_bytes())
    recipe = write_recipe(tmp_path, {"extract_pdf": {"join": [str(own)]}}, {"min_chars": {"n": 10**6}})
    with pytest.raises(RunError, match="no document remains"):
        lc.run(recipe, tmp_path / "run")
    own.write_text(own.read_text().replace("Read page 2", "Read page two"))
    with pytest.raises(RunError, match="the input of .*run has changed since the run began"):
        lc.run(recipe, tmp_path / "run")


def test_a_run_without_a_result_has_its_queue(work, tmp_path, longcrawl):
    (tmp_path / "crawl").mkdir()
    shutil.copy(work / "crawl" / "a.warc.gz", tmp_path / "crawl")
    recipe = write_recipe(tmp_path, "extract_pdf", {"min_chars": {"n": 1_000_000}})
    with pytest.raises(RunError, match="no document remains"):
        lc.run(recipe, tmp_path / "run")
    assert [*by_name(lc.queue(tmp_path / "run").ocr)] == ["scanned"]
    with pytest.raises(RunError, match="^no folder .*/elsewhere: name that of a run"):
        lc.queue(tmp_path / "elsewhere")


@pytest.mark.slow
def test_processes_do_not_change_the_queues(work, tmp_path, directory_digest):
    lc.run(write_recipe(work, "extract_pdf"), tmp_path / "run", num_proc=2)
    assert directory_digest(tmp_path / "run") == directory_digest(work / "run")


@pytest.mark.variants
@pytest.mark.parametrize("key", ["ids", "urls"])
def test_a_takedown_removes_the_rows_of_its_documents(work, tmp_path, key):
    ids = ["<urn:uuid:scanned>", "<urn:uuid:cut>"]
    urls = ["https://example.org/scanned", "https://example.org/cut"]
    made = lc.takedown(work / "run", tmp_path / "less", **{key: {"ids": ids, "urls": urls}[key]})
    assert (made.documents, made.unmatched) == (1, ())
    assert lc.why(tmp_path / "less", "<urn:uuid:stub>").rule == "pdf_unreadable"
    with pytest.raises(LedgerError, match="never had a document '<urn:uuid:scanned>'"):
        lc.why(tmp_path / "less", ids[0])
    queues = lc.queue(tmp_path / "less")
    assert [*by_name(queues.ocr), *by_name(queues.refetch)] == ["mixed", "torn", "stub"]
    assert kept(tmp_path / "less") == ["whole", "mixed", "repaired", "torn"]
    assert lc.verify(tmp_path / "less").problems == ()
    files = [file for file in (tmp_path / "less").rglob("*.parquet") if {"ocr_queue", "refetch_queue"} & {*file.parts}]
    assert len(files) == 2
    assert not any(name in str(pq.read_table(file).to_pylist()) for file in files for name in ids)


@pytest.mark.slow
def test_a_push_merges_the_files_of_a_queue(work, tmp_path):
    run = shutil.copytree(work / "run", tmp_path / "run")
    before = lc.queue(run)
    assert len([*(run / OCR).iterdir()]) == 2
    push.prepare(run)
    assert len([*(run / OCR).iterdir()]) == 1
    assert lc.queue(run).ocr.equals(before.ocr)
    assert lc.verify(run).problems == ()


def test_a_lost_file_of_a_queue_is_an_error(work, tmp_path):
    run = shutil.copytree(work / "run", tmp_path / "run")
    next((run / OCR).iterdir()).unlink()
    with pytest.raises(
        LedgerError,
        match=r"is missing ocr_queue/00-0000\d\.parquet: restore it, or run longcrawl",
    ):
        lc.queue(run)
