"""Documents that left, with the places in their texts for which they did."""

import json

import pytest
import yaml

import longcrawl as lc
from longcrawl.publish.report.removed_documents import SHOWN, Place, passages

WORDS = "the tide was out and the boats lay on the sand with their masts to the wall of that old harbour to be fixed "


def test_texts_of_pages_are_extracted_as_the_run_has_done_it(tmp_path):
    pytest.importorskip("resiliparse")
    archive = b""
    for number, text in enumerate([WORDS, WORDS.upper(), "short"]):
        page = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<main><p>{text}</p></main>"
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://a.example/{number}\r\n"
        archive += f"{head}Content-Length: {len(page)}\r\n\r\n{page}\r\n\r\n".encode()
    (tmp_path / "a.warc").write_bytes(archive)
    stages = [{"extract_text": {"engine": "resiliparse"}}, {"min_chars": {"n": 50}}]
    recipe = {
        "longcrawl": 1,
        "name": "pages",
        "source": {"builder": "warc", "data_files": [str(tmp_path / "a.warc")]},
        "stages": [*stages, {"exact_documents": {"text": "normalised"}}],
        "outputs": {"parquet": {}},
    }
    (tmp_path / "pages.yaml").write_text(yaml.safe_dump(recipe))
    lc.run(tmp_path / "pages.yaml", tmp_path / "run")
    short, copy = lc.removed_documents(tmp_path / "run")
    assert (short.opening, short.url) == ("short", "https://a.example/2")
    assert "".join(each.text for each in copy.passages if each.kind == "added").split() == WORDS.upper().split()
    assert not lc.clusters(tmp_path / "run")[0].diff.equal
    assert WORDS.upper().strip() in lc.write_report(tmp_path / "run").read_text()


def test_rules_about_urls_are_explained_by_them(tmp_path):
    urls = ["https://github.com/a", "https://b.example/Sex_and%20ESCORT", "https://c.example/", None]
    (tmp_path / "pages.jsonl").write_text(
        "\n".join(
            json.dumps({"id": str(number), "text": f"{number} {WORDS}", "url": url}) for number, url in enumerate(urls)
        )
    )
    recipe = {
        "longcrawl": 1,
        "name": "urls",
        "source": {"builder": "text", "data_files": [str(tmp_path / "pages.jsonl")], "id_field": "id"},
        "stages": ["url_filter"],
        "outputs": {"parquet": {}},
    }
    (tmp_path / "urls.yaml").write_text(yaml.safe_dump(recipe))
    lc.run(tmp_path / "urls.yaml", tmp_path / "run")
    curated, words = lc.removed_documents(tmp_path / "run")
    assert (curated.reason.rule, curated.note) == (
        "curated_source",
        "The rule checks the URL, and matched: github.com.",
    )
    assert (words.reason.rule, words.note) == ("max_soft_words", "The rule checks the URL, and matched: escort, sex.")
    assert [each.kind for each in words.passages] == ["same"]


def test_long_texts_are_shown_around_their_marks():
    text = "".join(f"{number:07} " for number in range(10_000))
    shown = list(passages(text, [Place(at, at + 7) for at in range(8_000, 80_000, 800)]))
    assert sum(len(each.text) for each in shown if each.kind != "left out") <= SHOWN
    assert next(each.text for each in shown if each.kind == "marked") == "0001000"
    left = sum(int(each.text.split()[0].replace(",", "")) for each in shown if each.kind == "left out")
    assert left + sum(len(each.text) for each in shown if each.kind != "left out") == len(text)
    rest = iter(text)
    assert all(letter in rest for each in shown if each.kind != "left out" for letter in each.text)
