"""No text leaves without a copy that stays: duplicates of whole runs end at a document that is in an output."""

import json
import random
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import RecipeError, StageError

WORDS = [f"word{number}" for number in range(900)]
FILES, CONTENTS, PAGES = 3, 14, 6
SMALL = {
    "urls": {},
    "min_hash": {"bands": 20, "rows": 4, "unit": "word"},
    "exact_substring": {"unit": "character", "min_tokens": 700},
}
"""The settings of the recipe's stages that need no tokenizer; mirrors share half a text at most to the letter."""


def write_crawl(folder: Path, seed: int) -> dict[str, int]:
    """Write files with mirrors of contents, and with URLs that come again, of the same or of another content.

    Returns:
        The content of each document.

    """
    folder.mkdir(parents=True)
    chance, contents = random.Random(seed), {}
    files = [[] for _ in range(FILES)]
    for content in range(7 * seed, 7 * seed + CONTENTS):  # half of them are those of the seed before
        words = random.Random(f"content {content}").choices(WORDS, k=120)
        for _ in range(chance.randint(1, 4)):
            name = f"{seed}-{chance.randrange(10**9)}"
            contents[name] = content
            mirror = [*words]
            mirror[60] = chance.choice(WORDS)
            page = f"page{chance.randrange(PAGES)}" if chance.random() < 0.7 else name
            line = {"id": name, "text": " ".join(mirror), "url": f"https://example.org/{page}"}
            chance.choice(files).append(line)
    for number, lines in enumerate(files):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return contents


def deduplication(source: Path, keep: str, *, is_reversed: bool = False) -> dict:
    """Return the recipe refinedweb from its deduplication on, in the order of its stages."""
    spec = lc.load_recipe("refinedweb").as_dict()
    names = [name for stage in spec["stages"] for name in stage if name in SMALL]
    assert sorted(names) == sorted(SMALL)
    stages = [{name: {**SMALL[name], **({"keep": keep} if name == "min_hash" else {})}} for name in names]
    source_of = {"builder": "text", "id_field": "id", "data_dir": str(source)}
    return spec | {"source": source_of, "stages": stages[::-1] if is_reversed else stages, "reference": None}


def write_recipe(path: Path, spec: dict) -> Path:
    path.write_text(yaml.safe_dump({name: value for name, value in spec.items() if value is not None}, sort_keys=False))
    return path


def kept_ids(run: Path) -> set[str]:
    return {name for file in (run / "parquet").glob("*.parquet") for name in pq.read_table(file)["id"].to_pylist()}


def unkept(run: Path, contents: dict[str, int], before: set[str]) -> list[str]:
    """List duplicates whose chain ends nowhere, and near-duplicates of which no copy stays."""
    kept = kept_ids(run)
    rows = {row["id"]: row for file in (run / "ledger").glob("*.parquet") for row in pq.read_table(file).to_pylist()}
    assert len(rows) + len(kept) == lc.funnel(run).documents
    stays = {contents[name] for name in kept | before}
    found = []
    for name, row in rows.items():
        step = row
        while step["rule"] in ("same_url", "near_duplicate") and step["kept_id"] in rows:
            step = rows[step["kept_id"]]
        ends = before if step["rule"].startswith(("seen_before", "near_duplicate_of_earlier")) else kept
        if step["kept_id"] is None or step["kept_id"] not in ends:
            found.append(f"{name} ends at {step}")
        if row["rule"].startswith("near_duplicate") and contents[name] not in stays:
            found.append(f"no copy of content {contents[name]} of {name} stays")
    return found


@pytest.mark.variants
@pytest.mark.parametrize(
    ("parts", "keep"),
    [(2, "random"), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, "first"), (3, "longest")))],
)
def test_every_duplicate_ends_at_a_document_that_stays(tmp_path, parts, keep):
    first = write_crawl(tmp_path / "first", 1)
    save = [f"stages.{stage}.index=save" for stage in ("urls", "min_hash")]
    recipe = write_recipe(tmp_path / "first.yaml", deduplication(tmp_path / "first", keep))
    lc.run(recipe, tmp_path / "one", overrides=[f"parts={parts}", *save])
    assert unkept(tmp_path / "one", first, set()) == []
    rules = {rule for row in lc.funnel(tmp_path / "one") for rule in row.rules}
    assert rules == {"same_url", "near_duplicate"}

    second = write_crawl(tmp_path / "second", 2)
    recipe = write_recipe(tmp_path / "second.yaml", deduplication(tmp_path / "second", keep))
    against = [f"stages.{stage}.against=[{tmp_path / 'one'}]" for stage in ("urls", "min_hash")]
    lc.run(recipe, tmp_path / "two", overrides=[f"parts={parts}", *against])
    assert unkept(tmp_path / "two", first | second, kept_ids(tmp_path / "one")) == []
    rules = {rule for row in lc.funnel(tmp_path / "two") for rule in row.rules}
    assert rules >= {"seen_before", "near_duplicate_of_earlier"}


@pytest.mark.slow
def test_runs_of_the_earlier_order_lost_copies_and_are_still_read(tmp_path, monkeypatch):
    contents = write_crawl(tmp_path / "crawl", 2)
    spec = deduplication(tmp_path / "crawl", "first", is_reversed=True)
    del spec["stages"][0]  # exact_substring
    recipe, out = write_recipe(tmp_path / "earlier.yaml", spec | {"parts": 2}), tmp_path / "out"
    fault = (
        r"recipe 'refinedweb': urls after min_hash would remove documents for which min_hash has removed all copies: "
        r"put urls before min_hash"
    )
    for call in (lambda: lc.run(recipe, out), lambda: lc.plan(recipe, parts=FILES)):
        with pytest.raises(RecipeError, match=fault):
            call()
    assert not out.exists()
    with monkeypatch.context() as earlier:
        earlier.setattr(sys.modules["longcrawl.run.job"], "check_order", bool)
        lc.run(recipe, out)
    assert any("no copy of content" in each for each in unkept(out, contents, set()))
    assert lc.run(recipe, out).funnel == lc.funnel(out)
    removed = lc.removed_documents(out, per_rule=100)
    chained = [each.reason for each in removed if each.reason.kept is not None]
    assert chained
    assert all(lc.why(out, reason.id) == reason for reason in chained)
    assert all(
        f", which was removed at urls, rule same_url: a duplicate of {one.kept.kept_id}" in str(one) for one in chained
    )


ORDERS = {
    "urls before min_hash": [lc.dedup.MinHash(unit="word"), lc.dedup.Urls()],
    "urls before exact_documents": [lc.dedup.ExactDocuments(), lc.text.MinWords(1), lc.dedup.Urls()],
    "listed_duplicates before exact_documents": [lc.dedup.ExactDocuments(), lc.dedup.ListedDuplicates()],
    "listed_duplicates before urls": [lc.dedup.Urls(), lc.dedup.ListedDuplicates()],
    "urls_2 before exact_documents": [lc.dedup.Urls(), lc.dedup.ExactDocuments(), lc.dedup.Urls(query="none")],
    "exact_documents before exact_substring": [
        lc.dedup.ExactSubstring(60, unit="character"),
        lc.dedup.ExactDocuments(),
    ],
    "urls before exact_substring": [lc.dedup.ExactSubstring(60, unit="character", policy="drop-any"), lc.dedup.Urls()],
}


@pytest.mark.variants
@pytest.mark.parametrize("advice", ORDERS)
def test_a_crawl_refuses_an_order_that_loses_copies(advice):
    texts = ["The tide was out.", "The tide was out.", "Bread needs flour."]
    urls = ["http://b.example/", "http://c.example/", "http://b.example/"]
    data = {"id": ["a", "b", "c"], "text": texts, "url": urls, "duplicate": [True, False, False]}
    crawl = lc.Crawl(Dataset.from_dict(data))
    *before, last = ORDERS[advice]
    for stage in before:
        crawl = crawl | stage
    with pytest.raises(StageError, match=rf"put {advice}$"):
        crawl | last


PIPELINES = {
    **ORDERS,
    "min_bytes.json_escaped is False and tokenize.json_escaped is True": [
        lc.text.MinBytes(1),
        lc.tokens.Tokenize("trained", json_escaped=True, vocabulary_size=300),
    ],
    "min_bytes_2.ensure_ascii is True and tokenize.ensure_ascii is False": [
        lc.text.MinBytes(1, json_escaped=True, ensure_ascii=False),
        lc.text.MinBytes(2, json_escaped=True, ensure_ascii=True),
        lc.tokens.Tokenize("trained", json_escaped=True, ensure_ascii=False, vocabulary_size=300),
    ],
    "lexical_dependency_2 would replace the column": [lc.long.LexicalDependency(), lc.long.LexicalDependency()],
    "shuffle would undo the order": [lc.long.Related(), lc.tokens.Shuffle(seed=1)],
}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("fault", "streaming"),
    [(fault, False) for fault in PIPELINES]
    + [pytest.param(fault, True, marks=pytest.mark.slow if number else ()) for number, fault in enumerate(PIPELINES)],
)
def test_a_crawl_rejects_the_stages_that_a_recipe_rejects(tmp_path, fault, streaming):
    stages = PIPELINES[fault]
    spec = {
        "longcrawl": 1,
        "name": "tides",
        "source": {"builder": "text", "data_dir": str(tmp_path)},
        "stages": [{stage.name: stage.settings()} for stage in stages],
        "outputs": {"parquet": {}},
    }
    with pytest.raises(RecipeError, match=fault) as of_recipe:
        lc.run(write_recipe(tmp_path / "tides.yaml", spec), tmp_path / "out")
    data = Dataset.from_dict({"id": ["a"], "text": ["The tide was out."]})
    crawl = lc.Crawl(data.to_iterable_dataset() if streaming else data)
    crawl.steps = tuple(stages[:-1])
    with pytest.raises(StageError, match=fault) as of_crawl:
        crawl | stages[-1]
    assert str(of_recipe.value) in (f"recipe 'tides': {of_crawl.value}", f"recipe 'tides': stages: {of_crawl.value}")


def test_whole_documents_may_be_compared_again_once_passages_are_cut():
    shared = "All rights reserved by the publisher, ask before you copy. "
    data = Dataset.from_dict(
        {"id": ["a", "b"], "text": [f"{shared}{name} The tide went out at noon." for name in ("1", "(1)")]}
    )
    cut = lc.Crawl(data) | lc.dedup.ExactDocuments() | lc.dedup.ExactSubstring(40, unit="character", text="raw")
    assert (cut | lc.dedup.ExactDocuments(text="normalised")).why("b").kept_id == "a"
