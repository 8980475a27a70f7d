"""Exact duplicates."""

import io
import json
import random

import pyarrow as pa
import pytest
import zstandard
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.normalize import normalize
from longcrawl.errors import FormatError, StageError


@given(st.lists(st.sampled_from(["x", "y", "z", "", "é"]), min_size=0, max_size=30), st.randoms())
def test_the_first_row_of_each_text_is_kept_whatever_its_id(texts, shuffler):
    rows = [{"id": f"{i:02d}", "text": text} for i, text in enumerate(texts)]
    shuffler.shuffle(rows)
    table = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.string()), ("text", pa.large_string())]))
    stage = lc.dedup.ExactDocuments()
    removed = stage.resolve(stage.sketch(table))
    first = {row["text"]: row["id"] for row in reversed(rows)}
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
    assert str(crawl.why("a")) == "a: removed at exact_documents, rule same_text: a duplicate of b"
    assert str(crawl.why("b")) == "b: kept"


@pytest.mark.parametrize(("policy", "kept"), [("drop", ["a"]), ("keep", ["a", "c"])])
def test_listed_duplicates_leave_and_an_absent_list_is_a_choice(policy, kept):
    data = Dataset.from_dict({"id": ["a", "b", "c"], "duplicate": [False, True, None]})
    crawl = lc.Crawl(data) | lc.dedup.ListedDuplicates(on_missing=policy)
    assert crawl.data["id"][:] == kept
    assert crawl.why("b").rule == "listed_duplicate"


PIECES = ["Café", "cafe\u0301", "CAFE", " ", "\n", "-", "?", "ΟΔΟΣ", "οδος", "x"]


@given(st.lists(st.none() | st.lists(st.sampled_from(PIECES), max_size=4).map("".join), max_size=20))
@settings(deadline=None)
def test_normalised_texts_are_the_same_where_their_normal_forms_are(texts):
    table = pa.table({"id": [f"{at:02d}" for at in range(len(texts))], "text": pa.array(texts, pa.string())})
    stage = lc.dedup.ExactDocuments(text="normalised")
    removed = stage.resolve(stage.sketch(table))
    forms = dict(zip(table["id"].to_pylist(), normalize(pa.array(texts, pa.large_string())).to_pylist(), strict=True))
    first = {form: min(each for each in forms if forms[each] == form) for form in forms.values()}
    expected = {each: first[form] for each, form in forms.items() if first[form] != each}
    assert dict(zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist(), strict=True)) == expected


def test_raw_texts_are_compared_byte_by_byte():
    table = pa.table({"id": ["a", "b", "c", "d"], "text": ["Same.", "same", "Same.", "café"]})
    raw, normalised = lc.dedup.ExactDocuments(), lc.dedup.ExactDocuments(text="normalised")
    assert raw.resolve(raw.sketch(table))["id"].to_pylist() == ["c"]
    assert normalised.resolve(normalised.sketch(table))["id"].to_pylist() == ["b", "c"]
    with pytest.raises(StageError, match="ExactDocuments.text takes one of 'raw', 'normalised', 'without-space'"):
        lc.dedup.ExactDocuments(text="NFC")


@given(st.lists(st.none() | st.text(alphabet="ab \n\t\u00a0\u3000\u200b", max_size=4), max_size=20))
def test_texts_without_space_are_equal_where_their_other_characters_are(texts):
    table = pa.table({"id": [f"{at:02d}" for at in range(len(texts))], "text": pa.array(texts, pa.string())})
    stage = lc.dedup.ExactDocuments(text="without-space")
    removed = stage.resolve(stage.sketch(table)).to_pylist()
    bare = ["".join(each for each in text or "" if not each.isspace()) for text in texts]
    expected = {f"{at:02d}": f"{bare.index(one):02d}" for at, one in enumerate(bare) if bare.index(one) != at}
    assert {row["id"]: row["kept_id"] for row in removed} == expected


def test_documents_are_compared_by_another_column_before_they_have_a_text():
    digests = ["sha1:A", "sha1:B", "sha1:A", None, None]
    crawl = lc.Crawl(Dataset.from_dict({"id": list("abcde"), "digest": digests})) | lc.dedup.ExactDocuments(
        column="digest"
    )
    assert crawl.data["id"][:] == ["a", "b", "d", "e"]
    assert str(crawl.why("c")) == "c: removed at exact_documents, rule same_digest: a duplicate of a"
    with pytest.raises(StageError, match="exact_documents needs a column 'checksum'"):
        lc.dedup.ExactDocuments(column="checksum").sketch(pa.table({"id": ["a"], "text": ["x"]}))


def test_the_column_is_a_setting_only_where_it_is_another():
    assert "column" not in lc.dedup.ExactDocuments().settings()
    assert lc.dedup.ExactDocuments().hashed() == {"text": "raw", "code_version": "2"}
    other = lc.dedup.ExactDocuments(column="digest")
    assert (other.settings()["column"], other.hashed()["column"]) == ("digest", "digest")


def test_an_index_of_raw_texts_is_not_one_of_normalised_ones(tmp_path):
    raw = lc.dedup.ExactDocuments(index="save")
    raw.save_index(raw.sketch(pa.table({"id": ["a"], "text": ["x"]})), tmp_path)
    with pytest.raises(FormatError, match="with .*'raw'.*, but this is exact_documents with .*'normalised'"):
        lc.dedup.ExactDocuments(text="normalised", against=[str(tmp_path)]).prepare()


@pytest.mark.slow
def test_groups_of_equal_texts_in_real_documents_are_found_whole(real_data):
    with (real_data / "short.jsonl.zst").open("rb") as packed:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), encoding="utf-8")
        documents = [json.loads(line) for line in lines]
    groups: dict[str, set[str]] = {}
    for document in documents:
        if document["exact_group"] is not None:
            groups.setdefault(document["exact_group"], set()).add(document["id"])
    table = pa.table({name: [document[name] for document in documents] for name in ("id", "text")})
    stage = lc.dedup.ExactDocuments()
    gone = dict(zip(*stage.resolve(stage.sketch(table)).select(["id", "kept_id"]).to_pydict().values(), strict=True))
    assert len(groups) == 166
    for members in groups.values():
        (kept,) = members - set(gone)
        assert {gone[name] for name in members if name in gone} == {kept}
