"""Fields of documents: dotted names reach into objects, and values of all types have one spelling."""

import pyarrow as pa
import pytest
from datasets import Dataset

import longcrawl as lc
from longcrawl.core.fields import MISSING, find_value
from longcrawl.errors import LongCrawlError


def test_a_field_with_dots_in_its_own_name_comes_first():
    assert find_value({"a": {"b": 1}, "a.b": 2}, "a.b") == 2
    assert find_value({"a": [{"b": 1}]}, "a.b") is find_value({"a": None}, "a.b") is MISSING


@pytest.mark.parametrize("kind", ["rows", "dataset", "stream"])
def test_fields_of_structs_are_named_with_dots(kind):
    rows = [{"doc": {"text": text}, "id": {"key": key}} for key, text in ((1.0, "one two"), (2.5, "one"))]
    made = {"rows": lambda: rows, "dataset": lambda: Dataset.from_list(rows)}
    data = made.get(kind, lambda: Dataset.from_list(rows).to_iterable_dataset())()
    crawl = lc.Crawl(data, text="doc.text", id="id.key") | lc.text.MinWords(2)
    assert [(row["id"], row["text"], row["doc"]) for row in crawl.data] == [("1.0", "one two", {"text": "one two"})]
    with pytest.raises(LongCrawlError, match=r"they have: doc.text, id.key \(did you mean 'doc.text'\?\). Set text="):
        lc.Crawl(data, text="doc.txt")


def test_a_field_of_a_struct_of_no_documents_is_a_column():
    empty = pa.table({"doc": pa.array([], pa.struct([("text", pa.string())])), "id": pa.array([], pa.string())})
    assert lc.Crawl(empty, text="doc.text").data.column_names == ["doc", "id", "text"]


def test_float_ids_are_those_of_sources():
    crawl = lc.Crawl({"id": [1.0, 2.5, 1e20], "text": ["one", "one two", "one"]}) | lc.text.MinWords(2)
    assert crawl.data["id"][:] == ["2.5"]
    assert crawl.why("1.0").rule == crawl.why("1e+20").rule == "min_words"
