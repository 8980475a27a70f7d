"""Extraction: what stays of a page, pages that do harm, workers that die, and the same results whoever extracts."""

import gzip
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from datasets import Dataset

import longcrawl as lc
from longcrawl.core.stages import STAGES, Rewrite, column, first_failure, stage, with_column
from longcrawl.errors import StageError
from longcrawl.text.extract import pool as _extraction_pool

pytestmark = pytest.mark.usefixtures("own_workers", "no_workers_left")

ROOT = Path(__file__).parents[3]
ENGINES = ("trafilatura", "resiliparse", "blocks")
TRAFILATURA_TOO = pytest.param("trafilatura", marks=pytest.mark.slow)
STORY = (
    "The river rose in the night, and by the morning the lower streets of the town stood under water.",
    "Boats were brought from the coast; nobody had used them in a generation, and half of them leaked.",
    "It took three days until the water went back, and the cellars were pumped dry for weeks after.",
)


@stage
class TextAsHtml(Rewrite):
    """A page for a source that has texts only: what recipes of these tests begin with."""

    def rewrite(self, table):
        made = with_column(table, "html", column(table, "text", self.name).cast(pa.large_string()))
        return with_column(made, "text", pa.nulls(table.num_rows, pa.large_string()))


del STAGES[TextAsHtml.name]  # what other tests list as known


def page(*paragraphs: str, extra: str = "") -> str:
    story = "".join(f"<p>{each}</p>" for each in paragraphs)
    return (
        "<!DOCTYPE html><html><head><title>The flood</title><style>p {color: red}</style></head><body>"
        '<header><nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav></header>'
        f"<main><article><h1>The flood</h1>{story}{extra}</article></main>"
        '<aside class="ad">Buy boots today</aside><script>var hidden = 1;</script>'
        '<footer>Copyright notice <a href="/imprint">Imprint</a></footer></body></html>'
    )


def table(*pages: str | None, **columns) -> pa.Table:
    ids = [str(number) for number in range(len(pages))]
    return pa.table({"id": ids, "html": pa.array(pages, pa.large_string()), **columns})


def outcomes(documents: pa.Table, extraction: lc.text.ExtractText) -> list[str | None]:
    """Return the text of each document that stays, and the rule of each one that leaves with a colon before it."""
    made, checks = extraction.edit(documents)
    rules = first_failure(made.num_rows, checks)["rule"].to_pylist()
    return [text if rule is None else f":{rule}" for text, rule in zip(made["text"].to_pylist(), rules, strict=True)]


def test_texts_of_pdfs_are_not_changed():
    """Their page offsets count characters."""
    given = table(None, None, text=["One.\n\n\n\nTwo. ", "One.\n\n\n\nTwo. "], pages_read=[2, None])
    assert outcomes(given, lc.text.ExtractText(engine="blocks")) == ["One.\n\n\n\nTwo. ", "One.\n\nTwo."]


def running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def workers() -> list[int]:
    pool = _extraction_pool._here.pool
    return [each.process.pid for each in pool.processes] if pool else []


# What stays of a page.


@pytest.mark.variants
@pytest.mark.parametrize("name", ENGINES, scope="module")
def test_the_main_content_stays_and_what_is_around_it_goes(name):
    documents = table(page(*STORY), text=pa.nulls(1, pa.large_string()), url=["https://example.org/"])
    made = lc.text.ExtractText(engine=name)(documents)
    assert made.column_names == ["id", "text", "url"]
    text = made["text"][0].as_py()
    assert all(sentence in text for sentence in STORY)
    for other in ("Home", "About us", "Buy boots", "hidden", "Copyright", "Imprint", "color"):
        assert other not in text
    assert documents.column_names == ["id", "html", "text", "url"]


@pytest.mark.variants
@pytest.mark.parametrize("name", ENGINES, scope="module")
def test_readers_comments_go(name):
    comments = '<div id="comments" class="comments"><p>First! What a pointless story this is, honestly.</p></div>'
    assert (
        "pointless" not in outcomes(table(page(*STORY).replace("</main>", "</main>" + comments)), extraction(name))[0]
    )


def extraction(name: str, **fields) -> lc.text.ExtractText:
    return lc.text.ExtractText(engine=name, **fields)


@pytest.mark.parametrize("name", ENGINES, scope="module")
def test_the_text_is_formatted(name):
    source = page(*STORY, "See https://example.org/a?b=c for the pictures.", "<br><br><br>", "The end.")
    text = outcomes(table(source), extraction(name))[0]
    assert "See for the pictures." in text
    assert "\n\n\n" not in text
    assert "https://example.org/a?b=c" in outcomes(table(source), extraction(name, urls="keep"))[0]
    assert "\n\n" not in outcomes(table(source), extraction(name, max_newlines=1))[0]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_without_a_page_are_formatted_and_kept(kind):
    texts = pa.array([None, "One.\n\n\n\nTwo http://a.b/ three.\n", " \n", None], kind)
    made = lc.text.ExtractText(engine="resiliparse").edit(table(page(*STORY), None, None, None, text=texts))[0]
    assert made["text"].type == kind
    assert made["text"].to_pylist()[1:] == ["One.\n\nTwo three.", "", None]
    assert outcomes(table(None, None, text=texts[1:3]), lc.text.ExtractText())[1] == ":no_text"
    assert outcomes(table(None), lc.text.ExtractText()) == [":no_text"]
    assert workers() == []


def test_a_page_wins_over_a_text_that_is_there():
    assert outcomes(table(page(*STORY), text=["old"]), extraction("resiliparse"))[0].startswith("The flood")


@pytest.mark.parametrize("name", ENGINES, scope="module")
def test_every_language_and_any_character_comes_through(name):
    said = ["Über Öl, naïve Ἀθῆναι, слово, מילה, कथा, 物語の長い文がここにあります。 \U0001f600 " * 3, *STORY]
    assert said[0].strip() in outcomes(table(page(*said)), extraction(name))[0]


@pytest.mark.variants
@pytest.mark.parametrize("name", ENGINES, scope="module")
@pytest.mark.parametrize("source", ["", " ", "<html><body></body></html>", "<html><body><script>x = 1</script>"])
def test_an_empty_extraction_is_in_the_ledger(name, source):
    data = Dataset.from_dict({"id": ["full", "empty"], "html": [page(*STORY), source]})
    crawl = lc.Crawl(data) | extraction(name)
    assert crawl.data["id"][:] == ["full"]
    assert str(crawl.why("empty")) == "empty: removed at extract_text, rule no_text: 0 against 1"


@pytest.mark.slow
def test_favor_balanced_keeps_more_than_precision():
    teaser = (
        '<div class="teaser"><p>Read also what the mayor said about the bridge that was lost in the flood.</p></div>'
    )
    found = {
        favor: outcomes(table(page(*STORY, extra=teaser)), lc.text.ExtractText(favor=favor))[0]
        for favor in ("precision", "balanced", "recall")
    }
    assert "mayor" not in found["precision"]
    assert "mayor" in found["recall"]
    assert all(STORY[0] in text for text in found.values())


# Limits, and pages that do harm.


def test_a_page_over_the_size_limit_is_not_looked_at():
    source = page(*STORY, "é")
    size = len(source.encode())
    assert STORY[0] in outcomes(table(source), extraction("resiliparse", max_bytes=size))[0]
    stage = extraction("resiliparse", max_bytes=size - 1)
    crawl = lc.Crawl(Dataset(table(source))) | stage
    assert str(crawl.why("0")) == f"0: removed at extract_text, rule extraction_bytes: {size:,} against {size - 1:,}"


P = "".join(f"<p>{sentence}</p>" for sentence in STORY)
HOSTILE = {
    "nested": f"<html><body>{'<div>' * 100_000}{P}{'</div>' * 100_000}</body></html>",
    "unclosed": f"<html><body>{P}{'<b><i><a>' * 20_000}{P}",
    "long attribute": f"<html><body><article class='{'a ' * 250_000}'>{P}</article></body></html>",
    "many attributes": f"<html><body><div {' '.join(f'a{n}=b' for n in range(60_000))}>{P}</div></body></html>",
    "comment": f"<html><body><article>{P}{'<!--' * 100_000}{P}",
    "entities": f"<html><body><article>{P}<p>{'&amp;' * 200_000}</p>",
    "nul": f"<html><body><article>{P}{chr(0) * 100_000}</article>",
    "one word": f"<html><body><article>{P}<p>{'a' * 1_000_000}</p></article>",
    "encoding": f"<?xml version='1.0' encoding='utf-16'?><html><meta charset='utf-16'><body>{P}</body></html>",
    "entity bomb": f"<!DOCTYPE html [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><html><body>{P}<p>&b;</p>",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trafilatura", "resiliparse"], scope="module")
def test_a_hostile_page_costs_one_page(name):
    stage = extraction(name, max_seconds=0.5)
    sound = [page(*STORY, f"Page {number}.") for number in range(len(HOSTILE) + 1)]
    alone = outcomes(table(*sound), stage)
    mixed = [*(each for pair in zip(sound, HOSTILE.values(), strict=False) for each in pair), sound[-1]]
    found = outcomes(table(*mixed), stage)
    assert found[::2] == alone
    for kind, text in zip(HOSTILE, found[1::2], strict=True):
        assert text in (":extraction_time", ":no_text") or any(sentence in text for sentence in STORY), kind
    assert found[1::2][list(HOSTILE).index("many attributes")] == ":extraction_time"


def test_no_page_is_hostile_to_blocks():
    """Its time is linear in the bytes of a page, so every page has its text, and no limit is needed."""
    found = outcomes(table(*HOSTILE.values()), extraction("blocks"))
    for kind, text in zip(HOSTILE, found, strict=True):
        assert all(sentence in text for sentence in STORY), kind
    assert workers() == []


@pytest.mark.slow
def test_the_limit_of_time_is_cpu_time():
    """It would take resiliparse minutes; the reason names the limit, since no time was measured."""
    crawl = lc.Crawl(Dataset(table(HOSTILE["nested"]))) | extraction("resiliparse", max_seconds=0.5)
    assert str(crawl.why("0")) == "0: removed at extract_text, rule extraction_time: 0.5 against 0.5"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space")
@pytest.mark.parametrize("name", ["resiliparse", TRAFILATURA_TOO], scope="module")
def test_a_page_beyond_its_memory_leaves(name):
    big = f"<html><body><article>{P}{'<p>x<b>y</b>' * 200_000}</article></body></html>"
    found = outcomes(table(page(*STORY), big, page(*STORY)), extraction(name, max_memory=10_000_000, max_seconds=60.0))
    assert found[1] in (":extraction_memory", ":extraction_crash")
    assert found[0] == found[2]
    assert STORY[0] in found[0]


@pytest.mark.slow
def test_a_page_of_a_killed_worker_is_tried_again():
    stage, documents = extraction("resiliparse"), table(*(page(*STORY, f"Page {number}.") for number in range(300)))
    expected = outcomes(documents, stage)
    (first,) = workers()
    os.kill(first, signal.SIGKILL)
    assert outcomes(documents, stage) == expected
    (second,) = workers()
    os.kill(second, signal.SIGSTOP)
    timer = threading.Timer(0.3, os.kill, (second, signal.SIGKILL))
    timer.start()
    assert outcomes(documents, stage) == expected
    assert workers() not in ([first], [second])


def test_workers_stay_for_the_next_batch_and_end_when_others_are_wanted():
    outcomes(table(page(*STORY)), extraction("resiliparse"))
    (first,) = workers()
    outcomes(table(page(*STORY)), extraction("resiliparse", urls="keep"))
    assert workers() == [first]
    outcomes(table(page(*STORY)), extraction("resiliparse", max_seconds=3.0))
    assert workers() != [first]
    assert not running(first)


# The same whoever extracts.


@pytest.mark.parametrize("name", ["resiliparse", TRAFILATURA_TOO], scope="module")
def test_batches_workers_and_order_change_nothing(name):
    repeated = [
        "A paragraph that many pages share, and one of them many times, as footers and cookie notices are. " * 2
    ] * 5
    sources = [page(*STORY[number % 3 :], *repeated[: number % 6], f"Page {number}.") for number in range(24)]
    documents = table(*sources)
    whole = outcomes(documents, extraction(name))
    assert len(set(whole)) > 12
    for size, count in ((1, 1), (5, 2), (24, 3)):
        stage = extraction(name, workers=count)
        parts = [outcomes(documents[start : start + size], stage) for start in range(0, 24, size)]
        assert list(itertools.chain(*parts)) == whole
    assert outcomes(documents.take(list(range(24))[::-1]), extraction(name))[::-1] == whole


def texts_of(source: str) -> list[str | None]:
    return outcomes(table(source), extraction("resiliparse"))


@pytest.mark.slow
def test_it_works_in_daemonic_and_in_forked_workers_of_a_pool():
    sources = [page(*STORY, f"Page {number}.") for number in range(6)]
    expected = [texts_of(each) for each in sources]
    before = workers()
    fork = multiprocessing.get_context("fork")
    with fork.Pool(2) as pool:
        assert pool.map(texts_of, sources, chunksize=1) == expected
    with ProcessPoolExecutor(2, fork) as pool:
        assert list(pool.map(texts_of, sources)) == expected
    assert workers() == before
    assert [texts_of(each) for each in sources] == expected


def test_threads_share_the_workers():
    sources = [page(*STORY, f"Page {number}.") for number in range(8)]
    expected = [texts_of(each) for each in sources]
    found = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: texts_of(sources[n])})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(8)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resiliparse", TRAFILATURA_TOO], scope="module")
def test_map_a_crawl_a_stream_and_fused_stages_agree(name):
    sources = [page(*STORY, f"Page {number}.") for number in range(10)]
    sources[4], sources[7] = "", "<html><body></body></html>"
    data, stage = Dataset(table(*sources, text=pa.nulls(10, pa.large_string()))), extraction(name)
    crawl = lc.Crawl(data) | stage
    expected = crawl.data.to_list()
    assert [row["id"] for row in expected] == ["0", "1", "2", "3", "5", "6", "8", "9"]
    assert set(expected[0]) == {"id", "text"}
    for count in (None, 2):
        mapped = data.with_format("arrow").map(stage, batched=True, batch_size=3, num_proc=count).with_format(None)
        assert mapped.to_list() == expected
    plain = data.map(stage, batched=True, batch_size=4, remove_columns=["html"])
    assert plain.to_list() == expected
    alone = data.map(stage, batched=True, batch_size=4, remove_columns=data.column_names)
    assert alone.to_list() == [{"text": row["text"]} for row in expected]
    stream = (lc.Crawl(data.to_iterable_dataset()) | stage).data
    assert [{name: row[name] for name in ("id", "text")} for row in stream] == expected


@pytest.mark.slow
@pytest.mark.parametrize("num_proc", [1, 2])
def test_a_run_extracts_as_a_crawl_does(tmp_path, monkeypatch, num_proc):
    monkeypatch.setitem(STAGES, TextAsHtml.name, TextAsHtml)
    (tmp_path / "pages").mkdir()
    rows = [{"id": f"p{n}", "text": page(*STORY, f"Page {n}. " * 30) if n % 5 else "<html></html>"} for n in range(20)]
    for part in range(4):
        lines = "".join(json.dumps(row) + "\n" for row in rows[5 * part : 5 * part + 5])
        (tmp_path / f"pages/{part}.jsonl").write_text(lines)
    stages = [
        "text_as_html",
        {"extract_text": {"engine": "resiliparse"}},
        {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}},
        {"truncate": {"n": 64}},
    ]
    spec = {
        "longcrawl": 1, "name": "pages", "about": "Made in a test.",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(tmp_path / "pages")},
        "stages": stages, "outputs": {"rectangle": {"heldout": 0.1}},
    }  # fmt: skip
    (tmp_path / "pages.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    lc.run(tmp_path / "pages.yaml", out=tmp_path / "out", num_proc=num_proc)
    crawl = lc.Crawl(Dataset.from_list(rows)) | TextAsHtml() | extraction("resiliparse")
    (row,) = [row for row in lc.funnel(tmp_path / "out") if row.stage == "extract_text"]
    assert (row.documents_in, row.documents_out, dict(row.rules)) == (20, 16, {"no_text": 4})
    assert str(lc.why(tmp_path / "out", "p5")) == str(crawl.why("p5"))
    assert len(crawl.data) == 16


# What is wrong, in a sentence.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"engine": "readability"},
            "ExtractText.engine takes one of 'trafilatura', 'resiliparse', 'blocks', got 'readability'",
        ),
        ({"max_seconds": 0.0}, "extract_text.max_seconds must be between 0.001 and 86,400, got 0.0"),
        ({"max_seconds": 1e9}, "extract_text.max_seconds must be between 0.001 and 86,400, got 1000000000.0"),
        ({"max_bytes": 0}, "extract_text.max_bytes is 0: set it to 1 or more"),
        ({"max_memory": 1000}, "extract_text.max_memory is 1,000: set it to 4,000,000 or more"),
        ({"max_newlines": 0}, "extract_text.max_newlines is 0: set it to 1 or more"),
        ({"workers": 0}, "extract_text.workers is 0: set it to 1 or more"),
    ],
)
def test_wrong_settings(fields, message):
    with pytest.raises(StageError, match=message):
        lc.text.ExtractText(**fields)


def test_wrong_tables():
    stage = lc.text.ExtractText()
    with pytest.raises(StageError, match="extract_text needs a column 'html'; the documents have: id, text"):
        stage.edit(pa.table({"id": ["a"], "text": ["b"]}))
    with pytest.raises(StageError, match="extract_text needs a column 'html' of strings, but it is binary; cast it"):
        stage.edit(pa.table({"html": [b"<p>"]}))
    assert workers() == []


def test_no_pages_need_no_worker():
    made, checks = lc.text.ExtractText().edit(table())
    assert (made.num_rows, made.column_names) == (0, ["id", "text"])
    assert [check.rule for check in checks] == [
        "extraction_bytes", "extraction_time", "extraction_memory", "extraction_crash", "no_text",
    ]  # fmt: skip
    assert workers() == []


def test_limits_as_large_as_they_come():
    stage = lc.text.ExtractText(
        engine="resiliparse", max_seconds=86_400, max_bytes=1 << 62, max_memory=1 << 70, max_newlines=1 << 20
    )
    assert STORY[0] in outcomes(table(page(*STORY)), stage)[0]


def test_prepare_starts_a_worker():
    lc.text.ExtractText(engine="resiliparse").prepare()
    assert len(workers()) == 1


@pytest.mark.slow
def test_this_process_imports_no_engine(python):
    code = f"""
import sys, pyarrow as pa, longcrawl as lc
made = lc.text.ExtractText()(pa.table({{"html": [{page(*STORY)!r}]}}))
print(made.num_rows, [name for name in ("trafilatura", "resiliparse", "lxml") if name in sys.modules])
"""
    done = python(code)
    assert (done.stdout, done.stderr) == ("1 []\n", "")


def test_explain_says_that_it_works_on_html():
    said = lc.text.explain("Some text.", lc.text.ExtractText())
    assert [each.reason for each in said.unexplained] == ["works on html, not on text"]


# Real pages, and any page.


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "wanted", "unwanted"),
    [
        pytest.param("trafilatura", 0.88, 0.1, marks=pytest.mark.slow),
        pytest.param("resiliparse", 0.9, 0.28, marks=pytest.mark.slow),
        ("blocks", 0.88, 0.12),
    ],
)
def test_real_pages_give_what_they_must_and_little_that_they_must_not(real_data, name, wanted, unwanted):
    import _annotated as benchmark

    pages = benchmark.read_pages(real_data / "warc")[::2]
    with gzip.open(real_data / "warc" / "groundtruth.jsonl.gz", "rt", encoding="utf-8") as lines:
        truth = {row["url"]: row for row in map(json.loads, lines) if row["kind"] == "segments"}
    found = {"must_contain": [], "must_not_contain": []}
    for source, text in zip(pages, outcomes(table(*(each.html for each in pages)), extraction(name)), strict=True):
        for kind, known in found.items():
            known += [piece in text for piece in truth.get(source.url, {kind: ()})[kind]]
    assert sum(found["must_contain"]) / len(found["must_contain"]) > wanted
    assert sum(found["must_not_contain"]) / len(found["must_not_contain"]) < unwanted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_pages_that_nobody_would_write(seed):
    import fuzz_html as fuzz

    chance = random.Random(seed)
    pages = [fuzz.hostile_page(chance, [page(*STORY)], 3000) for _ in range(20)]
    assert fuzz.check_batch(pages, {"max_seconds": 2.0}).total() == len(ENGINES) * 21
