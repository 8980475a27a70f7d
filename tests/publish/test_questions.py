"""Questions to runs behind URLs: they are answered as those to the same run on disk."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import RunError
from longcrawl.io import files


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a finished run with a ledger, edits and clusters, in a folder where local copies of URLs would be seen."""
    monkeypatch.setenv(files.PLACES, str(tmp_path / "places"))
    monkeypatch.chdir(tmp_path)
    texts = [f"some words {row % 6} of a page that are long enough\n\n\nand a line" for row in range(12)]
    rows = [{"id": f"d{row}", "text": text, "url": f"https://example.org/{row}"} for row, text in enumerate(texts)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"builder": "text", "id_field": "id", "data_files": [str(tmp_path / "rows.jsonl")]}
    spec = {"longcrawl": 1, "name": "it", "source": source, "stages": ["exact_documents"], "outputs": {"parquet": {}}}
    Path("recipe.yaml").write_text(yaml.safe_dump(spec))
    lc.run("recipe.yaml", "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run over an archive of four pages, of which it kept two."""
    folder = tmp_path_factory.mktemp("pages")
    story = "".join(f"<p>On day {n} the boats came back to the harbour before noon, as always.</p>" for n in range(9))
    attack = "&lt;/pre&gt;&lt;script&gt;window.hacked = 1&lt;/script&gt;"
    content = [
        f"<nav><a href=/>Home</a></nav><article>{story}<p>{attack} {text}</p></article>" for text in ("", "an end")
    ]
    archive = b""
    for number, page in enumerate(["<p>short", content[0], "", content[1]]):
        body = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<!DOCTYPE html>{page}"
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
        head += f"WARC-Target-URI: https://a.example/{number}\r\nContent-Length: {len(body)}"
        archive += f"{head}\r\n\r\n{body}\r\n\r\n".encode()
    (folder / "a.warc").write_bytes(archive)
    source = {"builder": "warc", "data_files": [str(folder / "a.warc")]}
    stages = [{"extract_text": {"engine": "blocks"}}, {"min_chars": {"n": 50}}]
    spec = {"longcrawl": 1, "name": "it", "source": source, "stages": stages, "outputs": {"parquet": {}}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "recipe.yaml", folder / "run")
    return folder / "run"


def ask(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def put(store, run: Path) -> str:
    for file in (file for file in run.rglob("*") if file.is_file()):
        store.put(f"run/{file.relative_to(run).as_posix()}", file.read_bytes())
    return str(store.url("run"))


@pytest.mark.slow
def test_a_run_in_a_store_answers_as_one_on_disk(store, run):
    url = put(store, run)
    gone = pq.read_table(next((run / "ledger").iterdir()))["id"][0].as_py()
    for word, *others in (["funnel"], ["funnel", "--rates"], ["why", gone], ["why", "d0"], ["clusters"]):
        told = ask(word, url, *others)
        assert (told.exit_code, told.stdout) == (0, ask(word, run, *others).stdout)
    assert str(ask("why", url, "never").exception).startswith(f"{url} never had a document 'never'")
    assert list(run.with_name("places").iterdir()) == []


@pytest.mark.slow
def test_reports_and_cards_are_written_to_the_store(store, run):
    url = put(store, run)
    for most in (1, 5):  # a report replaces an earlier one
        assert ask("report", url, "--most", most).stdout.strip() == f"{url}/report.html"
        lc.write_report(run, most=most)
    edited = (run / "README.md").read_text() + "\nMine.\n"
    (run / "README.md").write_text(edited)
    store.put("run/README.md", edited.encode())
    assert ask("card", url).stdout.startswith(f"{url}/README.md is written; kept your edits in")
    lc.card(run)
    assert lc.verify(url).problems == ()
    in_store = store.files("run")
    put(store, run)
    assert in_store == store.files("run")


@pytest.mark.slow
def test_a_run_that_is_not_there_is_one_sentence(store, run):
    words = (["funnel"], ["report"], ["card"], ["why", "d0"], ["inspect"], ["compose"], ["push", "me/it", "--private"])
    for word in words:
        told = ask(word[0], store.url("none"), *word[1:])
        assert str(told.exception).startswith(f"no finished run at {store.url('none')}, which has no manifest")
    with pytest.raises(RunError, match=r"^a run cannot be read from https://example.org/run: choose a folder, s3://"):
        lc.funnel("https://example.org/run")


@pytest.mark.slow
def test_why_shows_the_blocks_of_a_page_that_can_be_read_again(pages, run):
    assert ask("why", pages, "<urn:uuid:1>").stdout == "<urn:uuid:1>: kept\n"
    first, empty, counted, *lines = ask("why", pages, "<urn:uuid:1>", "--page").stdout.splitlines()
    assert (first, empty, counted) == ("<urn:uuid:1>: kept", "", "10 of 11 blocks are kept")
    assert [line[0] for line in lines] == ["-", *"+" * 10]
    told = json.loads(ask("why", pages, "<urn:uuid:0>", "--page", "--json").stdout)
    assert (told["reason"]["rule"], told["page"]["blocks"][0]["text"]) == ("min_chars", "short")
    assert "does not extract text with the engine 'blocks'" in str(ask("why", run, "d0", "--page").exception)
    archive = pages.with_name("a.warc")
    archive.rename(pages.with_name("elsewhere"))
    try:
        told = ask("why", pages, "<urn:uuid:1>", "--page")
        assert told.stdout == f"<urn:uuid:1>: kept\n\nthe page cannot be read again: {archive} is gone\n"
        assert f"No pages: {archive} is gone." in lc.write_report(pages).read_text()
    finally:
        pages.with_name("elsewhere").rename(archive)


def test_a_report_shows_the_blocks_of_kept_and_removed_pages(pages):
    report = lc.write_report(pages).read_text()
    section = report.split('<section id="pages">')[1].split("</section>")[0]
    assert re.findall(r'<b>(\w+)</b> <span class="value">(?:<bdi dir="ltr">(\w+))?', section) == [
        ("removed", "min_"),
        ("kept", ""),
        ("removed", "no_"),
        ("kept", ""),
    ]
    assert section.count('<span class="block in" title="kept, ') == 21
    assert section.count('<span class="block" title="removed, ') == 2
    assert "&lt;/pre&gt;&lt;script&gt;window.hacked = 1" in section
    assert "<script" not in section
    assert lc.write_report(pages).read_text() == report
