"""Pages that a run's URL filter dropped."""

import json
import sys

import pytest
import yaml

import longcrawl as lc
from longcrawl.errors import LedgerError
from longcrawl.publish.reread import run_url_hits

URLS = ["http://bad.example/1", "http://a.bad.example/2", "http://x.example/porn", None, "http://arxiv.org/abs/1"]


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "ut1" / "adult").mkdir(parents=True)
    (tmp_path / "ut1" / "adult" / "domains").write_text("bad.example\n")
    (tmp_path / "documents").mkdir()
    for part in range(2):
        lines = [
            {"text": f"{part} {number} " + "some words " * 40, "url": f"http://good.example/{number}"}
            for number in range(20)
        ]
        lines += [{"text": "long enough " * 20, "url": url} for url in URLS] + [{"text": "short", "url": URLS[0]}]
        (tmp_path / "documents" / f"{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    spec = {
        "longcrawl": 1,
        "name": "urls",
        "source": {"builder": "text", "data_dir": str(tmp_path / "documents")},
        "stages": [
            {"min_chars": {"n": 20}},
            {"url_filter": {"lists": str(tmp_path / "ut1"), "categories": ["adult"]}},
            {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}},
            {"truncate": {"n": 16}},
            "shuffle",
            "roll",
        ],
        "outputs": {"rectangle": {"heldout": 0.1}},
    }
    (tmp_path / "urls.yaml").write_text(yaml.safe_dump(spec))
    return tmp_path / "urls.yaml"


def test_the_hits_of_a_run_are_those_of_its_ledger(tmp_path, recipe, longcrawl):
    summary = lc.run(recipe, tmp_path / "run")
    assert dict(summary.funnel.rows[1].rules) == {"blocked_domain": 4, "curated_source": 2, "hard_word": 2}
    hits = run_url_hits(tmp_path / "run")
    assert (hits.documents, hits.dropped) == (50, 8)
    assert hits.table.select(["matched", "documents", "categories"]).to_pylist() == [
        {"matched": "bad.example", "documents": 4, "categories": ["adult"]},
        {"matched": "arxiv.org", "documents": 2, "categories": []},
        {"matched": "porn", "documents": 2, "categories": []},
    ]
    assert run_url_hits(tmp_path / "run", min_documents=3).table.num_rows == 1
    said = longcrawl("lists", "hits", tmp_path / "run", "--min-documents", "3").stdout.splitlines()
    assert said[0] == "8 of 50 documents removed"
    assert said[2].split() == ["4", "blocked_domain", "bad.example", "bad.example", "adult", "http://bad.example/1"]
    (tmp_path / "documents" / "1.jsonl").unlink()
    with pytest.raises(LedgerError, match="removed 8 documents by their URL, and its source now has 4 of them"):
        run_url_hits(tmp_path / "run")


@pytest.mark.slow
def test_a_run_without_a_url_filter_says_so(tmp_path, recipe):
    spec = yaml.safe_load(recipe.read_text())
    del spec["stages"][1]
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "run")
    with pytest.raises(LedgerError, match="has no stage url_filter; it has: min_chars, tokenize"):
        run_url_hits(tmp_path / "run")


def test_a_run_refuses_to_go_on_with_an_edited_list(tmp_path, recipe, monkeypatch):
    monkeypatch.setattr(sys.modules["longcrawl.run.job"]._Job, "_write_output", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lc.run(recipe, tmp_path / "run")
    (tmp_path / "ut1" / "adult" / "domains").write_text("bad.example\nother.example\n")
    with pytest.raises(lc.LongCrawlError, match="has changed since the run began"):
        lc.run(recipe, tmp_path / "run")
