"""Documents of all kinds and places: tables, rows, files, folders, the Hub, and functions as stages."""

import json
import warnings

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset, IterableDataset
from datasets.table import InMemoryTable

import longcrawl as lc
from longcrawl.errors import LongCrawlError, SourceError, StageError
from longcrawl.run.first_recipe import guess_source

ROWS = [{"id": "a", "text": "one two three", "n": 1}, {"id": "b", "text": "one", "n": None}]


class Exported:
    """Has Arrow's stream interface and nothing else, as tables of other libraries do."""

    def __arrow_c_stream__(self, requested_schema=None):
        views = pa.table({"id": ["a", "b"], "text": pa.array(["one two three", "one"]).cast(pa.string_view())})
        return views.append_column("n", pa.array([1, None])).__arrow_c_stream__(requested_schema)


def generate():
    yield from ROWS


KINDS = {
    "dataset": Dataset.from_list(ROWS),
    "stream": lambda: Dataset.from_list(ROWS).to_iterable_dataset(),
    "pandas": pd.DataFrame(ROWS, index=[7, 9]),
    "pyarrow": pa.Table.from_pylist(ROWS),
    "batch": pa.RecordBatch.from_pylist(ROWS),
    "reader": lambda: pa.Table.from_pylist(ROWS).to_reader(),
    "exported": Exported(),
    "columns": {"id": ["a", "b"], "text": ["one two three", "one"], "n": [1, None]},
    "rows": ROWS,
    "generator": lambda: iter(ROWS),
    "function": generate,
}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_of_every_kind_are_a_crawl(kind):
    data = KINDS[kind]() if kind in ("stream", "reader", "generator") else KINDS[kind]
    crawl = lc.Crawl(data) | lc.text.MinWords(2)
    assert [(row["id"], row["text"], row["n"]) for row in crawl.data] == [("a", "one two three", 1)]
    if kind != "stream":
        assert str(crawl.why("b")) == "b: removed at min_words, rule min_words: 1 against 2"


def strings_as(kind, table):
    """Return a table whose strings, and lists of them, are of another type of Arrow."""
    for place, field in enumerate(table.schema):
        if kind == "dictionary" and pa.types.is_string(field.type):
            table = table.set_column(place, field.name, table[field.name].dictionary_encode())
        elif kind != "dictionary":
            string = {"large": pa.large_string(), "view": pa.string_view()}[kind]
            wanted = string if pa.types.is_string(field.type) else pa.list_(string)
            table = table.set_column(place, field.name, table[field.name].cast(wanted))
    return table


STRINGS = pa.table(
    {
        "name": ["a", "b", "c"],
        "body": ["The tide was out at noon.", "Ebb.", "The tide was out at noon."],
        "url": ["http://quay.example/", None, "http://pier.example/"],
        "language": ["en", "de", "en"],
        "tags": pa.array([["sea", None], None, []], pa.list_(pa.string())),
    }
)


@pytest.mark.variants
@pytest.mark.parametrize("kind", ["large", "view", "dictionary"])
@pytest.mark.parametrize("form", ["table", "dataset", "stream"])
def test_every_type_of_strings_is_text(kind, form, tmp_path):
    def passed(table):
        data = {"table": table}.get(form) or Dataset(InMemoryTable(table))
        data = data.to_iterable_dataset() if form == "stream" else data
        stages = [lc.text.MinChars(4), lc.text.Language(("en", "de")), lc.text.UrlFilter(), lc.text.PersonalData()]
        crawl = lc.Crawl(data, id="name", text="body")
        for stage in [*stages, *([lc.dedup.Urls(), lc.dedup.ExactDocuments()] if form != "stream" else [])]:
            crawl = crawl | stage
        return crawl

    wanted, crawl = passed(STRINGS), passed(strings_as(kind, STRINGS))
    assert list(crawl.data) == list(wanted.data)
    if form != "stream":
        assert len(crawl.data) == 2
        assert str(crawl.why("c")) == str(wanted.why("c"))
        crawl.to_parquet(tmp_path / "out", by="language")
        files = pads.dataset(sorted((tmp_path / "out").glob("**/*.parquet")))
        assert files.to_table(filter=pads.field("language") == "de")["text"].to_pylist() == ["Ebb."]


@pytest.mark.slow
@pytest.mark.parametrize("num_proc", [1, 2])
@pytest.mark.parametrize("kind", ["large", "view", "dictionary"])
def test_a_run_reads_every_type_of_strings_in_parquet_files(kind, num_proc, tmp_path):
    texts = []
    for name, table in (("plain", STRINGS), ("other", strings_as(kind, STRINGS.drop_columns("tags")))):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(2):
            ids = pc.binary_join_element_wise(STRINGS["name"], str(number), "-")
            pq.write_table(
                table.set_column(0, "name", ids.cast(table["name"].type) if kind != "dictionary" else ids),
                folder / f"{number}.parquet",
            )
        fields = {"id_field": "name", "text_field": "body", "url_field": "url", "language_field": "language"}
        spec = {
            "longcrawl": 1,
            "name": "tides",
            "source": {"builder": "text", "data_dir": str(folder), **fields},
            "stages": ["exact_documents", {"language": {"keep": ["en", "de"]}}, "personal_data"],
            "outputs": {"parquet": {}},
        }
        recipe = tmp_path / f"{name}.yaml"
        recipe.write_text(yaml.safe_dump(spec))
        out = tmp_path / f"out-{name}"
        lc.run(recipe, out, num_proc=num_proc if name == "other" else 1)
        texts.append(
            sorted(map(str, pads.dataset(sorted((out / "parquet").glob("**/*.parquet"))).to_table().to_pylist()))
        )
    assert texts[0] == texts[1]
    assert len(texts[0]) == 2


def test_a_stream_with_nulls_first_keeps_types_through_every_stage():
    rows = 450
    late = pa.array([None] * (rows - 1) + ["http://quay.example/"], pa.string())
    table = pa.table({"name": [f"{row}" for row in range(rows)], "body": ["The tide was out."] * rows, "url": late})
    crawl = lc.Crawl(Dataset(table).to_iterable_dataset(), id="name", text="body")
    for stage in (lc.text.MinChars(4), lc.text.PersonalData(), lc.text.UrlFilter(), lc.text.MinWords(2)):
        crawl = crawl | stage
    assert [row["url"] for row in crawl.data] == late.to_pylist()


def test_a_stream_of_rows_passes_many_stages():
    crawl = lc.Crawl(
        IterableDataset.from_generator(lambda: ({"id": f"{row}", "text": "The tide was out."} for row in range(450)))
    )
    for least in range(1, 6):
        crawl = crawl | lc.text.MinChars(least)
    assert sum(1 for _ in crawl.data) == 450


def test_tables_of_polars_are_a_crawl():
    polars = pytest.importorskip("polars")
    for table in (polars.DataFrame(ROWS), polars.LazyFrame(ROWS)):
        assert (lc.Crawl(table) | lc.text.MinWords(2)).data["id"][:] == ["a"]


def test_columns_are_named():
    crawl = lc.Crawl({"key": [1, 2], "content": ["one two", "one"]}, text="content", id="key") | lc.text.MinWords(2)
    assert crawl.data.column_names == ["id", "text"]
    assert str(crawl.why("2")) == "2: removed at min_words, rule min_words: 1 against 2"
    with pytest.raises(LongCrawlError, match="no column 'body'; they have: id, text, n. Set text= to one of them"):
        lc.Crawl(ROWS, text="body")
    with pytest.raises(
        LongCrawlError, match=r"both a column 'text' and 'other': remove the first, data\.remove_columns\('text'\)"
    ):
        lc.Crawl({"text": ["x"], "other": ["y"]}, text="other")
    with pytest.raises(
        StageError, match=r"have: id, content\. Choose the one that holds the text: lc\.Crawl\(data, text="
    ):
        lc.Crawl({"id": ["a"], "content": ["x"]}) | lc.text.MinWords(2)


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_without_ids_are_numbered_and_this_is_said(streaming):
    rows = [{"content": f"text {row}"} for row in range(2_500)]
    data = Dataset.from_list(rows)

    def read():
        crawl = lc.Crawl(data.to_iterable_dataset(3) if streaming else data, "pages", text="content")
        return [row["id"] for row in crawl.data]

    with pytest.warns(UserWarning, match=r"no column 'id': their ids are pages:ROW, counted from 0"):
        ids = read()
    assert ids == [f"pages:{row}" for row in range(2_500)]


def test_a_stream_that_does_not_know_its_columns_is_not_read_ahead():
    read = []

    def rows():
        for row in ROWS:
            read.append(row)
            yield {"id": row["id"], "text": row["text"]}

    crawl = lc.Crawl(IterableDataset.from_generator(rows)) | lc.text.MinWords(2)
    assert not read
    assert [row["id"] for row in crawl.data] == ["a"]


def test_rows_are_mappings_or_texts():
    with pytest.warns(UserWarning, match="documents:ROW"):
        assert lc.Crawl(["one", "two"]).data["text"][:] == ["one", "two"]
    assert lc.Crawl([{"id": "a", "text": "x"}, {"id": "b", "text": "y", "late": 2}]).data["late"][:] == [None, 2]
    with pytest.raises(LongCrawlError, match="a row of documents is a mapping or a text, got int"):
        lc.Crawl([1])


# -------------------- functions


def test_what_functions_drop_and_change_is_in_the_ledgers():
    crawl = lc.Crawl(ROWS)

    def only_long(row):
        return len(row["text"]) > 3

    def shouted(row):
        return {"text": row["text"].upper(), "length": len(row["text"])}

    after = crawl.map(shouted).filter(only_long) | lc.text.MinWords(1)
    assert after.data[:] == {"id": ["a"], "text": ["ONE TWO THREE"], "n": [1], "length": [13]}
    assert str(after.why("b")).startswith("b: removed at only_long, rule only_long")
    assert [row.stage for row in after.funnel] == ["shouted", "only_long", "min_words"]
    assert [(edit["id"], edit["stage"], edit["rule"]) for edit in after.edits.to_pylist()] == [
        ("a", "shouted", "changed"),
        ("b", "shouted", "changed"),
    ]
    assert crawl.map(lambda row: row["text"][:3], name="cut").data["text"][:] == ["one", "one"]
    again = crawl.filter(only_long).filter(only_long)
    assert [row.stage for row in again.funnel] == ["only_long", "only_long_2"]


def test_a_function_that_was_edited_is_called_again():
    crawl = lc.Crawl(ROWS)
    kept = [
        crawl.filter(lambda row, least=least: len(row["text"]) > least, name="long").data["id"][:] for least in (3, 1)
    ]
    assert kept == [["a"], ["a", "b"]]


def test_functions_on_a_stream():
    crawl = lc.Crawl(Dataset.from_list(ROWS).to_iterable_dataset())
    after = crawl.map(lambda row: row["text"].upper(), name="upper").filter(lambda row: row["n"], name="numbered")
    assert [row["text"] for row in after.data] == ["ONE TWO THREE"]


def test_what_no_ledger_could_say_is_refused():
    crawl = lc.Crawl(ROWS)
    with pytest.raises(LongCrawlError, match=r"documents without a reason in the ledger: write crawl\.filter"):
        crawl.data = crawl.data.select([0])
    with pytest.raises(StageError, match=r"the ledger needs a name for .*<lambda>.*: add one, name='only_poems'"):
        crawl.filter(lambda row: row)
    with pytest.raises(StageError, match="renamed changes the id 'a', which ledgers refer to"):
        crawl.map(lambda row: {"id": row["id"] + "!"}, name="renamed")
    with pytest.raises(StageError, match="odd returns int: return a text, or columns"):
        crawl.map(len, name="odd")
    many = lc.Crawl([{"id": str(row), "text": ""} for row in range(300)])
    for late in (3, "three"):
        values = {True: None, False: late}
        with pytest.raises(
            StageError,
            match=r"late returned values of several types .*: return one type, with a value other than None",
        ):
            many.map(lambda row, values=values: {"n": values[int(row["id"]) < 200]}, name="late")
    with pytest.raises(
        StageError, match=r"mixed returned values of several types in one column .Could not convert 'x'"
    ):
        many.map(lambda row: {"n": "x" if int(row["id"]) else 1}, name="mixed")
    with pytest.raises(TypeError, match="of the function"):
        many.map(wrong, name="wrong")


def wrong(row):
    raise TypeError("of the function")


def test_documents_of_another_crawl_are_noticed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crawl = lc.Crawl(Dataset.from_list(ROWS)) | lc.text.MinWords(1)
        lc.Crawl(Dataset.from_list(ROWS).filter(lambda row: row["id"] == "a"))
    for part in (crawl.data, crawl.data.filter(lambda row: row["id"] == "a"), crawl.data.select([0])):
        with pytest.warns(UserWarning, match=r"of another crawl \(documents \| min_words\), .* write crawl\.filter"):
            again = lc.Crawl(part, source="again")
        assert [row.stage for row in again.funnel] == []
    with pytest.warns(UserWarning, match=r"of another crawl \(again \| min_chars\)"):
        lc.Crawl((again | lc.text.MinChars(1)).data)


# -------------------- names


def test_a_source_is_guessed_by_the_names_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "texts/a.jsonl",
        "texts/b[1].jsonl",
        "old[2]/a.jsonl",
        "pages/deep/x.warc.gz",
        "release/documents/2023-06/0000/en_head.json.gz",
        "odd/a.docx",
        "reports/a.pdf",
        "notes/A.MD",
        "CRAWL/A.WARC.GZ",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    guessed = {
        "texts": ("text", {"data_dir": "texts"}),
        "texts/a.jsonl": ("text", {"data_files": "texts/a.jsonl"}),
        "texts/*.csv.gz": ("text", {"data_files": "texts/*.csv.gz"}),
        "pages": ("warc", {"data_dir": "pages"}),
        "notes": ("text", {"data_dir": "notes"}),
        "reports": ("text", {"format": "pdf", "data_dir": "reports"}),
        "CRAWL": ("warc", {"data_dir": "CRAWL"}),
        "https://host/CC-1.warc.gz?sig=x": ("warc", {"data_files": "https://host/CC-1.warc.gz?sig=x"}),
        "release": ("redpajama-v2", {"data_dir": "release"}),
        "org/name": ("hub", {"path": "org/name"}),
        "hf://datasets/org/name": ("hub", {"path": "org/name"}),
        "https://huggingface.co/datasets/org/name": ("hub", {"path": "org/name"}),
        "https://huggingface.co/datasets/org/name/viewer/default/train?row=3": ("hub", {"path": "org/name"}),
        "https://hf.co/datasets/org/name/tree/v1/a/b": (
            "hub",
            {"path": "org/name", "revision": "v1", "data_dir": "a/b"},
        ),
        "texts/b[1].jsonl": ("text", {"data_files": "texts/b[1].jsonl"}),
        "old[2]": ("text", {"data_dir": "old[2]"}),
        "hf://datasets/org/name/a.parquet": ("text", {"data_files": "hf://datasets/org/name/a.parquet"}),
    }
    assert {name: guess_source(name) for name in guessed} == guessed
    for name in ("nothing", "texts/b.jsonl", "a/b/c", "long" * 100):
        with pytest.raises(SourceError, match=rf"nothing found at '{name[:99]}.*: choose a file, folder, URL or glob"):
            guess_source(name)
    with pytest.raises(
        SourceError, match=r"'odd' has no documents, judging by its file names: \.docx 1\. Known endings: \.js"
    ):
        guess_source("odd")
    assert guess_source("odd", any_ending=True) == ("text", {"data_dir": "odd"})
    for name in ("run/manifest.json", "run/recipe.yaml", "run/ledger/a.parquet", "run/rectangle/train/zarr.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(SourceError, match="'run' is a run: name its output, 'run/rectangle'"):
        guess_source("run")
    assert guess_source("run/rectangle") == ("rectangle", {"data_dir": "run/rectangle"})
    for name in ("o/parquet.json", "o/en/a.parquet", "s/gpt-simple.json", "s/train/0.bin", "s/documents/0.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert guess_source("o") == ("text", {"data_dir": "o", "data_files": "**/*.parquet"})
    assert guess_source("s") == ("gpt-simple", {"data_dir": "s"})


@pytest.mark.parametrize("streaming", [False, True])
def test_a_field_that_no_record_has_is_an_error_before_the_first_document(tmp_path, streaming):
    for number, more in enumerate(({}, {"meta": {"url": "u"}})):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"id": str(number), "text": "x"} | more) + "\n")
    said = r"no record has the field 'meta.ulr' that url_field names; .*\(did you mean 'meta.url'\?\)"
    with pytest.raises(SourceError, match=said):
        next(iter(lc.open(str(tmp_path), streaming=streaming, url_field="meta.ulr").data))
    rows = lc.open(str(tmp_path), streaming=streaming, url_field="meta.url").data
    assert [row["url"] for row in rows] == [None, "u"]


def test_files_and_folders_are_opened_by_name(tmp_path):
    pq.write_table(pa.table({"content": ["one two", "one"]}), tmp_path / "a.parquet")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.csv").write_text('text\n"a, b"\n')
    crawl = lc.open(str(tmp_path / "a.parquet"), text_field="content") | lc.text.MinWords(2)
    assert crawl.data["id"][:] == ["a.parquet:0"]
    assert lc.open(str(tmp_path / "more")).data["text"][:] == ["a, b"]
    (tmp_path / "more").rename(tmp_path / "some[more]")
    assert lc.open(str(tmp_path / "some[more]" / "b.csv")).data["text"][:] == ["a, b"]
    assert lc.open(str(tmp_path / "some[more]")).data["text"][:] == ["a, b"]
    (tmp_path / "some[more]").rename(tmp_path / "more")
    assert [row["text"] for row in lc.open(str(tmp_path / "more" / "*.csv"), streaming=True).data] == ["a, b"]
    with pytest.raises(SourceError, match=r"a\.parquet: has no field 'text'; its fields: content; set text_field="):
        lc.open(str(tmp_path / "a.parquet"))


def test_a_folder_of_any_files_is_forced_to_a_format(tmp_path):
    (tmp_path / "a.page").write_text("one")
    (tmp_path / "b").write_text("two")
    with pytest.raises(SourceError, match=r"\.page 1, none 1\. .* lc\.open\(FOLDER, format='text'\)"):
        lc.open(str(tmp_path))
    for streaming in (False, True):
        crawl = lc.open(str(tmp_path), format="text", streaming=streaming)
        assert [row["text"] for row in crawl.data] == ["one", "two"]
