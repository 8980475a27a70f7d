"""A stage gives the same documents over splits, in a crawl and on a stream; test_batches.py has every call."""

import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict, load_dataset

import longcrawl as lc
from longcrawl.errors import StageError

TOKENS = [[5, 6, 7, 8], [1], [2, 3, 4]]
TABLE = pa.table(
    {
        "id": ["a", "b", "c"],
        "text": pa.array(["one two three", "one", "one two"], pa.large_string()),
        "language": ["en", "de", "en"],
        "duplicate": [False, True, False],
        "url": ["http://a.example/", "http://b.example/porn", None],
        "tokens": pa.array(TOKENS, pa.list_(pa.uint16())),
    }
)


@pytest.fixture
def data():
    return Dataset(TABLE)


def rows(data, column="tokens"):
    found = data.with_format(None)
    return [list(row[column]) for row in found]


def test_a_dictionary_of_splits_is_filtered_and_mapped(data):
    splits = DatasetDict(train=data, test=data.select([0])).filter(lc.text.MinWords(2), batched=True)
    assert {name: split["id"][:] for name, split in splits.items()} == {"train": ["a", "c"], "test": ["a"]}
    assert rows(splits.map(lc.tokens.Truncate(2), batched=True)["train"]) == [[5, 6], [2, 3]]


def test_a_stream_passes_several_judges_and_rewrites_in_a_row(data):
    chain = [lc.text.MinWords(2), lc.text.Language(("en",)), lc.tokens.Truncate(3), lc.tokens.MinTokens(3)]
    streamed, whole = lc.Crawl(data.to_iterable_dataset()), lc.Crawl(data)
    for stage in [*chain, lc.tokens.Roll(seed=1)]:
        streamed, whole = streamed | stage, whole | stage
    assert rows(streamed.data) == rows(whole.data)
    assert len(rows(whole.data)) == 2


def test_a_release_streams_through_the_filter_of_longcrawl64(tmp_path, make_release):
    texts = ["word " * 20, " ".join(f"word{i}" for i in range(200)), " ".join(f"page{i}" for i in range(70))]
    root = make_release(tmp_path / "release", {"2023-06/0000/en_head": texts})
    data = load_dataset("longcrawl", "redpajama-v2", data_dir=str(root), split="train", streaming=True)
    crawl = lc.Crawl(data) | lc.text.SignalRules() | lc.dedup.ListedDuplicates() | lc.text.MinWords(100)
    assert [row["id"] for row in crawl.data] == ["2023-06/0000/en_head.json.gz/1"]


def test_pages_of_a_changed_text_are_forgotten():
    texts = ["Mail a@b.example. Page two.", "No address. Page two.", None]
    offsets = pa.array([[0, 18], [0, 12], None], pa.list_(pa.int64()))
    given = Dataset(pa.table({"id": ["a", "b", "c"], "text": texts, "page_offsets": offsets}))
    mask = lc.text.PersonalData()
    crawl = lc.Crawl(given) | mask
    assert crawl.data["page_offsets"][:] == [None, [0, 12], None]
    assert given.map(mask, batched=True)["page_offsets"][:] == [None, [0, 12], None]
    assert mask.apply(given.data.table).documents["page_offsets"].to_pylist() == [None, [0, 12], None]
    assert rows((lc.Crawl(given.to_iterable_dataset()) | mask).data, "id") == [["a"], ["b"], ["c"]]
    shouted = (
        lc.Crawl(given)
        .filter(lambda row: row["text"] is not None, name="has_text")
        .map(lambda row: row["text"].upper(), name="shout")
    )
    assert shouted.data["page_offsets"][:] == [None, None]
    assert (
        lc.Crawl(given).map(lambda row: {"name": row["id"]}, name="count").data["page_offsets"][:]
        == offsets.to_pylist()
    )


SURVEYS = [lc.dedup.ExactDocuments(), lc.dedup.MinHash(unit="word"), lc.tokens.Shuffle()]


@pytest.mark.parametrize("stage", SURVEYS, ids=lambda stage: stage.name)
def test_surveys_refuse_ids_that_occur_twice(stage):
    data = Dataset.from_dict({"id": ["b", "b", "a"], "text": ["same", "a unique text that must survive", "same"]})
    with pytest.raises(StageError, match="needs unique ids, but 'b' occurs twice: drop one of the two"):
        lc.Crawl(data) | stage


@pytest.mark.variants
@pytest.mark.parametrize("stage", [lc.text.MinWords(2), *SURVEYS, lc.tokens.Roll()], ids=lambda s: s.name)
def test_ids_may_be_numbers_and_must_be_there(stage):
    numbers = Dataset(TABLE.set_column(0, "id", pa.array([1, 2, 3])))
    assert len((lc.Crawl(numbers) | stage).data) >= 2
    nulls = Dataset(TABLE.set_column(0, "id", pa.array(["a", None, "c"])))
    with pytest.raises(StageError, match=f"{stage.name} needs an id for every document, but the id of row 1 is null"):
        lc.Crawl(nulls) | stage
