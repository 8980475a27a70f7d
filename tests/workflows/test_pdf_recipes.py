"""The recipes finepdfs and longmino from PDFs and pages to samples."""

import gzip
import json
import random

import pyarrow.parquet as pq
import pytest
from small_pdf import small_pdf

import longcrawl as lc

TALES = """\
The boat came back at noon and everybody in the old town was waiting at the harbour for the {} people on board. Nobody \
had seen a storm like this one since the year in which the bridge over the river was taken by the water.
In the winter the {} children of the hill went down to the school by the river, and their teacher read to them from a \
book about bread, bells and fishermen, until the evening came and the windows of the street were dark.
""".splitlines()
PAGE = f"<!doctype html><title>Harbour</title><main><p>{TALES[0].format('hundred')}</p><p>{TALES[1]}</p></main>"


def record(number, body, mime="application/pdf"):
    block = f"HTTP/1.1 200 OK\r\nContent-Type: {mime}\r\n\r\n".encode() + body
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
    head += f"WARC-Target-URI: https://example.org/{number}\r\nContent-Type: application/http\r\n"
    return gzip.compress(head.encode() + f"Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n")


@pytest.fixture
def crawl(tmp_path):
    """Write a file, its copy, its text in another file and with other spaces, another text, noise, and pages."""
    first, second = (tale.format(name) for tale, name in zip(TALES, ("three", "seven"), strict=True))
    bodies = [small_pdf(first), small_pdf(first), small_pdf(first, 500), small_pdf(first.replace(". ", ".  "))]
    records = [record(number, body) for number, body in enumerate([*bodies, small_pdf(second), b"no file at all"])]
    records += [record(6, PAGE.encode(), "text/html"), record(7, b"", "text/html")]
    folder = tmp_path / "crawl"
    folder.mkdir()
    (folder / "0.warc.gz").write_bytes(b"".join(records[:2]))
    (folder / "1.warc.gz").write_bytes(b"".join(records[2:]))
    return folder


def kept(folder):
    return {row["url"][-1]: row for row in pq.read_table(sorted((folder / "parquet").glob("*.parquet"))).to_pylist()}


def test_finepdfs_keeps_one_of_equal_files_and_of_equal_texts(crawl, tmp_path, directory_digest):
    settings = [f"source.data_dir={crawl}"]
    lc.run("finepdfs", tmp_path / "one", 1, settings)
    lc.run("finepdfs", tmp_path / "two", 2, settings)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "two")
    rows = kept(tmp_path / "one")
    assert set(rows) == {"0", "4"}
    assert {row["language"] for row in rows.values()} == {"en"}
    assert rows["0"]["page_offsets"] == [0]
    rules = {row.stage: dict(row.rules) for row in lc.funnel(tmp_path / "one")}
    assert rules["exact_documents"] == {"same_digest": 1}
    assert rules["extract_pdf"] == {}
    assert rules["exact_documents_2"] == {"same_text": 2}


@pytest.mark.slow
def test_finepdfs_also_takes_pages(crawl, tmp_path):
    mimes = "source.mimes=[application/pdf, text/html]"
    lc.run("finepdfs", tmp_path / "out", 1, [f"source.data_dir={crawl}", mimes])
    rows = kept(tmp_path / "out")
    assert set(rows) == {"0", "4", "6"}
    assert rows["6"]["mime"] == "text/html"
    assert (rows["6"]["pages"], rows["0"]["pages"]) == (None, 1)


@pytest.mark.slow
def test_the_classifier_of_finepdfs_is_named_in_its_recipe(crawl, tmp_path, tiny_models, longcrawl):
    for each in tiny_models.tiny("classifier", pad_token_id=0, num_labels=1, problem_type="regression"):
        each.save_pretrained(tmp_path / "model")
    shipped = longcrawl("recipes", "finepdfs").stdout
    assert shipped.count("  # - ") == 2
    (tmp_path / "recipe.yaml").write_text(shipped.replace("  # - ", "  - "))
    mine = {"model": tmp_path / "model", "at_least": -1000, "max_length": 40, "device": "cpu"}
    settings = [f"stages.sequence_classifier.{name}={value}" for name, value in mine.items()]
    lc.run(tmp_path / "recipe.yaml", tmp_path / "out", 1, [f"source.data_dir={crawl}", *settings])
    rows = kept(tmp_path / "out")
    assert set(rows) == {"0", "4"}
    assert all(isinstance(row["edu"], float) for row in rows.values())


@pytest.mark.slow
def test_texts_are_repaired_before_they_are_compared(tmp_path):
    tale = TALES[0].format("three")
    bodies = [small_pdf(f"{tale} Bread &amp; bells."), small_pdf(f"{tale} Bread & bells.")]
    (tmp_path / "crawl.warc.gz").write_bytes(b"".join(record(number, body) for number, body in enumerate(bodies)))
    lc.run("finepdfs", tmp_path / "out", 1, [f"source.data_files={tmp_path}/crawl.warc.gz"])
    (row,) = kept(tmp_path / "out").values()
    assert row["text"].endswith("Bread & bells.")
    rules = {each.stage: dict(each.rules) for each in lc.funnel(tmp_path / "out")}
    assert rules["exact_documents_2"] == {"same_text": 1}


@pytest.mark.slow
def test_longmino_mixes_the_texts_of_other_runs(crawl, tmp_path, directory_digest):
    lc.run("finepdfs", tmp_path / "pdfs", 1, [f"source.data_dir={crawl}"])
    chance = random.Random(0)
    words = " ".join(TALES).split()
    lengths = [*range(1_200, 3_000, 150), *range(20, 300)]
    texts = [{"text": " ".join(chance.choices(words, k=length))} for length in lengths]
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    settings = [
        f"source.data_files=['{tmp_path}/pdfs/parquet/**/*.parquet', '{tmp_path}/others.jsonl']",
        "stages.gzip_ratio.min_bytes=4096",
        "stages.gzip_ratio.min_documents=5",
        "stages.tokenize.tokenizer=trained",
        "stages.tokenize.vocabulary_size=400",
        "stages.length_mix.long_tokens=1024",
        "outputs.composed.capacities=[512, 1024, 2048, 4096]",
        "outputs.composed.heldout=0",
    ]
    lc.run("longmino", tmp_path / "one", 1, settings)
    lc.run("longmino", tmp_path / "two", 2, settings)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "two")
    lengths = pq.read_table(tmp_path / "one/composed/documents")["n_tokens"].to_numpy()
    long = lengths[lengths >= 1_024].sum()
    assert abs(lengths.sum() - long - long * 66 / 34) <= 512
    rules = {row.stage: dict(row.rules) for row in lc.funnel(tmp_path / "one")}
    assert set(rules["gzip_ratio"]) == {"gzip_ratio_low", "gzip_ratio_high"}
    assert set(rules["length_mix"]) == {"surplus_short"}
