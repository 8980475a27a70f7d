"""Exact duplicates."""

import random

import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc


@given(st.lists(st.sampled_from(["x", "y", "z", "", "é"]), min_size=0, max_size=30), st.randoms())
def test_one_of_each_text_is_kept_whatever_the_order(texts, shuffler):
    rows = [{"id": f"{i:02d}", "text": text} for i, text in enumerate(texts)]
    shuffler.shuffle(rows)
    table = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.string()), ("text", pa.large_string())]))
    stage = lc.dedup.ExactDocuments()
    removed = stage.resolve(stage.sketch(table))
    first = {text: min(row["id"] for row in rows if row["text"] == text) for text in set(texts)}
    expected = {row["id"]: first[row["text"]] for row in rows if row["id"] != first[row["text"]]}
    assert dict(zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist(), strict=True)) == expected


def test_random_keeps_another_one_but_the_same_in_any_order():
    rows = [{"id": f"{i:03d}", "text": f"t{i % 20}"} for i in range(200)]
    kept = []
    for order in range(3):
        random.Random(order).shuffle(rows)
        crawl = lc.Crawl(Dataset.from_list(rows)) | lc.dedup.ExactDocuments(keep="random", seed=1)
        kept.append(sorted(crawl.data["id"][:]))
    assert kept[0] == kept[1] == kept[2]
    assert len(kept[0]) == 20
    assert kept[0] != [f"{i:03d}" for i in range(20)]


def test_the_ledger_names_the_kept_twin():
    crawl = lc.Crawl(Dataset.from_dict({"id": ["b", "a"], "text": ["same", "same"]})) | lc.dedup.ExactDocuments()
    assert str(crawl.why("b")) == "b: left at exact_documents, rule same_text: a duplicate of a"
    assert str(crawl.why("a")) == "a: kept"


@pytest.mark.parametrize(("policy", "kept"), [("drop", ["a"]), ("keep", ["a", "c"])])
def test_listed_duplicates_leave_and_an_absent_list_is_a_choice(policy, kept):
    data = Dataset.from_dict({"id": ["a", "b", "c"], "duplicate": [False, True, None]})
    crawl = lc.Crawl(data) | lc.dedup.ListedDuplicates(on_missing=policy)
    assert crawl.data["id"][:] == kept
    assert crawl.why("b").rule == "listed_duplicate"
