"""PDFs as files, and binary columns of parquet: their bytes are in the column ``content``."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Pdf, Value, load_dataset
from small_pdf import small_pdf

import longcrawl as lc
from longcrawl.core import kinds, stages
from longcrawl.core.batches import CONTENT
from longcrawl.core.sources import DIGEST, DOCUMENTS, BadFiles, digest_of
from longcrawl.errors import LongCrawlError, RecipeError, SourceError, StageError
from longcrawl.run.first_recipe import first_recipe, guess_source
from longcrawl.run.recipe import parse_recipe
from longcrawl.sources import parquet
from longcrawl.sources.text import Text

BODIES = [small_pdf(f"number {number}", number) for number in range(4)]
REPORT = small_pdf("A report of many words")


@pytest.fixture
def reports(tmp_path):
    """Return a folder of PDFs, one of them compressed, with a README and an image beside them."""
    folder = tmp_path / "reports"
    (folder / "2024").mkdir(parents=True)
    (folder / "2024" / "a.pdf").write_bytes(BODIES[0])
    (folder / "B.PDF").write_bytes(BODIES[1])
    (folder / "c.pdf.gz").write_bytes(gzip.compress(BODIES[2]))
    (folder / "README.md").write_text("reports of a year")
    (folder / "cover.jpg").write_bytes(b"\xff\xd8")
    return folder


def read(policy="error", **settings):
    source, bad_files = Text(**settings), BadFiles(policy)
    found = [table for part in source.splits()["train"] for table in source.read(part, bad_files)]
    for table in found:
        assert table.schema == source.schema()
        table.validate(full=True)
    return [row for table in found for row in table.to_pylist()], bad_files


def test_each_pdf_of_a_folder_is_a_document(reports):
    with pytest.warns(UserWarning, match=r"1 file of data_dir is not read, by ending: .jpg 1"):
        rows, _ = read(data_dir=str(reports), format="pdf")
    names = ["2024/a.pdf", "B.PDF", "c.pdf.gz"]
    assert [(row["id"], row["source"], row["content"]) for row in rows] == [
        (name, name, body) for name, body in zip(names, BODIES, strict=False)
    ]
    assert {(row["text"], row["url"], row["date"], row["language"]) for row in rows} == {(None,) * 4}
    assert [row["digest"] for row in rows] == [digest_of(body) for body in BODIES[:3]]
    assert Text(data_dir="x", format="pdf").schema() == pa.schema([*DOCUMENTS, DIGEST, CONTENT])
    own = Text(data_files="x", file_field="pdf", fields=("digest",)).schema()
    assert own.names == [*DOCUMENTS.names, "digest", "content"]
    rows, _ = read(data_dir=str(reports / "2024"), format="pdf", origins="line", language="de", source_from="folder")
    (row,) = rows
    assert (row["file"], row["offset"], row["language"], row["source"]) == ("a.pdf", None, "de", None)


def test_files_named_one_by_one_may_have_any_ending(reports):
    (reports / "download").write_bytes(BODIES[3])
    rows, _ = read(data_files=[str(reports / "download"), str(reports / "B.PDF")], format="pdf")
    assert {row["id"]: row["content"] for row in rows} == {"download": BODIES[3], "B.PDF": BODIES[1]}
    with pytest.raises(SourceError, match=r"B.PDF has an unsupported ending"):
        read(data_files=str(reports / "B.PDF"))
    (folder := reports / "others").mkdir()
    (reports / "download").rename(folder / "download")
    with pytest.raises(SourceError, match=r"no file that can be read; known endings: .pdf, .*set data_files"):
        read(data_dir=str(folder), format="pdf")


def test_pdfs_behind_urls(reports, web_server):
    url = f"{web_server(reports)}/2024/a.pdf"
    rows, _ = read(data_files=url, format="pdf")
    assert [(row["id"], row["url"], row["content"]) for row in rows] == [("a.pdf", url, BODIES[0])]
    assert lc.open(url).data["content"][:] == BODIES[:1]


def test_files_that_cannot_be_read_whole_are_reported(reports):
    (reports / "c.pdf.gz").write_bytes(gzip.compress(BODIES[2])[:-9])
    (reports / "cover.jpg").unlink()
    with pytest.raises(SourceError, match=r"c.pdf.gz: is cut"):
        read(data_dir=str(reports), format="pdf")
    rows, bad_files = read("skip", data_dir=str(reports), format="pdf", max_record_bytes=len(BODIES[0]))
    assert [row["id"] for row in rows] == ["2024/a.pdf"]
    assert [bad.records_lost for bad in bad_files.found] == [1, 1]
    assert "has more than" in bad_files.found[0].reason


def test_pdfs_are_found_by_their_endings(reports):
    glob = f"{reports}/**/*.pdf"
    assert guess_source(glob) == ("text", {"format": "pdf", "data_files": glob})
    assert guess_source(str(reports)) == ("text", {"format": "pdf", "data_dir": str(reports)})
    assert guess_source("https://example.org/a.PDF?x=1")[1]["format"] == "pdf"
    crawl = lc.open(f"{reports}/*/*.pdf")
    assert (crawl.data["id"][:], crawl.data["content"][:]) == (["a.pdf"], BODIES[:1])
    with pytest.warns(UserWarning, match="not read"):
        assert sorted(lc.open(reports).data["content"][:]) == sorted(BODIES[:3])
    (reports / "notes.txt").write_text("a text")
    assert guess_source(str(reports)) == ("text", {"data_dir": str(reports)})
    (reports / "README.md").unlink()
    (reports / "notes.txt").unlink()
    assert guess_source(str(reports))[1]["format"] == "pdf"
    assert guess_source(str(reports), any_ending=True) == ("text", {"data_dir": str(reports)})


def test_a_first_recipe_extracts_the_texts_of_pdfs(reports, monkeypatch):
    monkeypatch.setitem(kinds.STAGES, "extract_pdf", f"{__name__}:ExtractPdf")
    monkeypatch.setitem(stages.STAGES._kinds, "extract_pdf", ReadSizes)  # whether or not it is there
    (reports / "cover.jpg").unlink()
    recipe = first_recipe(f"{reports}/*.pdf")
    assert "format: pdf" in recipe
    assert recipe.index("- extract_pdf: {}") < recipe.index("- gopher_quality: {}")
    assert "- extract_pdf: {}" in first_recipe(str(reports), None, "pdf")


@pytest.mark.slow
def test_a_run_over_pdfs(reports, tmp_path):
    (reports / "cover.jpg").unlink()
    spec = {
        "longcrawl": 1,
        "name": "reports",
        "source": {"builder": "text", "data_dir": str(reports), "format": "pdf"},
        "stages": ["read_sizes"],
        "outputs": {"parquet": {}},
    }
    lc.run(parse_recipe(spec), tmp_path / "run")
    found = load_dataset(str(tmp_path / "run" / "parquet"), split="train")
    assert sorted(found["text"][:]) == sorted(f"{len(body)} bytes" for body in BODIES[:3])
    assert "content" not in found.column_names
    with pytest.raises(RecipeError, match="no output writes: add the stage extract_pdf"):
        lc.run(parse_recipe(spec | {"stages": []}), tmp_path / "other")
    assert lc.plan(parse_recipe(spec), parts=2).rows


BATCHES = []


class ReadSizes(stages.Rewrite):
    """A stage that replaces binaries by their sizes."""

    looks_at = "content"

    def rewrite(self, table):
        """Replace the column."""
        BATCHES.append(table.num_rows)
        sizes = [f"{len(each)} bytes" for each in table["content"].to_pylist()]
        return stages.with_column(table.drop_columns("content"), "text", pa.array(sizes, pa.large_string()))


@pytest.fixture(autouse=True)
def registered():
    """Register the stage while a test runs: other tests list all stages when they are collected."""
    if "read_sizes" not in stages.STAGES._kinds:
        assert stages.stage(ReadSizes) is ReadSizes


KINDS = {
    "binary": lambda column: column,
    "large": lambda column: column.cast(pa.large_binary()),
    "dictionary": lambda column: column.dictionary_encode(),
    "view": lambda column: column.cast(pa.binary_view()),
    "struct": lambda column: pa.StructArray.from_arrays(
        [column, pa.nulls(len(column), pa.string())], ["bytes", "path"]
    ),
}
KINDS["nested"] = KINDS["struct"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_binary_column_of_parquet(tmp_path, kind):
    table = {"pdf": KINDS[kind](pa.array(BODIES)), "key": list("abcd"), "text": ["caption"] * 4}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    field = "pdf.bytes" if kind == "nested" else "pdf"
    path = str(tmp_path / "a.parquet")
    rows, bad_files = read(data_files=path, file_field=field, id_field="key", fields=("key",))
    assert [row["content"] for row in rows] == BODIES
    assert [row["id"] for row in rows] == [row["key"] for row in rows] == list("abcd")
    assert {row["text"] for row in rows} == {None}
    assert bad_files.fields == {field: 4, "key": 4}
    source = Text(data_files=path, file_field=field, id_field="key")
    (ids,) = source.list_ids(source.splits()["train"][0])
    assert ids.to_pylist() == list("abcd")
    assert [row["id"] for row in read(data_files=path, file_field=field)[0]] == [f"a.parquet:{n}" for n in range(4)]
    loaded = load_dataset("longcrawl", "text", data_files=path, file_field=field, split="train")
    assert loaded["content"][:] == BODIES


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_a_file_is_removed_by_a_rule(tmp_path, kind):
    bodies = pa.array([BODIES[0], None, BODIES[2]])
    pq.write_table(pa.table({"pdf": KINDS[kind](bodies), "key": list("abc")}), tmp_path / "a.parquet")
    rows, _ = read(data_files=str(tmp_path / "a.parquet"), file_field="pdf.bytes" if kind == "nested" else "pdf")
    assert [(row["content"], row["digest"]) for row in rows] == [
        (BODIES[0], digest_of(BODIES[0])), (None, None), (BODIES[2], digest_of(BODIES[2]))
    ]  # fmt: skip


def test_a_run_lists_rows_without_a_file(tmp_path):
    files = pa.array([{"bytes": REPORT, "path": "a"}, None, {"bytes": None, "path": None}])
    pq.write_table(pa.table({"pdf": files}), tmp_path / "a.parquet")
    spec = {
        "longcrawl": 1,
        "name": "reports",
        "source": {"builder": "text", "data_files": str(tmp_path / "a.parquet"), "file_field": "pdf"},
        "stages": [{"exact_documents": {"column": "digest"}}, "extract_pdf"],
        "outputs": {"parquet": {}},
    }
    lc.run(parse_recipe(spec), tmp_path / "run")
    for name in ("a.parquet:1", "a.parquet:2"):
        assert str(lc.why(tmp_path / "run", name)).startswith(f"{name}: removed at extract_pdf, rule no_text")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_crawl_removes_rows_without_a_file(streaming):
    for files in (
        pa.array([None, REPORT], pa.binary()),
        pa.array([None, {"bytes": REPORT, "path": "a"}]),
        pa.array([{"bytes": None, "path": None}, {"bytes": REPORT, "path": None}]),
    ):
        data = Dataset(pa.table({"id": ["a", "b"], "pdf": files}))
        crawl = lc.Crawl(data.to_iterable_dataset() if streaming else data, content="pdf") | lc.text.ExtractPdf()
        assert [(row["id"], row["text"]) for row in crawl.data] == [("b", "A report of many words")]
        if not streaming:
            assert str(crawl.why("a")) == "a: removed at extract_pdf, rule no_text: 0 against 1"


def test_a_parquet_file_that_only_names_files_is_explained(tmp_path):
    files = pa.array([{"bytes": BODIES[0], "path": "a.pdf"}, {"bytes": None, "path": "b.pdf"}, None])
    pq.write_table(pa.table({"pdf": files}), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"row 1 only names a file in its field 'pdf': lc\.Crawl\(data, cont"):
        read(data_files=path, file_field="pdf")
    rows, bad_files = read("skip", data_files=path, file_field="pdf")
    assert ([row["content"] for row in rows], bad_files.found[0].records_lost) == ([BODIES[0], None], 1)


def test_tables_of_a_binary_column_are_cut_by_bytes(tmp_path, monkeypatch):
    bodies = [small_pdf(f"number {number}", 40_000) for number in range(12)]
    writer = pa.table({"pdf": pa.array(bodies)})
    pq.write_table(writer, tmp_path / "a.parquet", use_dictionary=False, data_page_size=1_000, write_batch_size=1)
    monkeypatch.setattr(parquet, "BATCH_BYTES", 200_000)
    source = Text(data_files=str(tmp_path / "a.parquet"), file_field="pdf")
    found = list(source.read(source.splits()["train"][0], BadFiles()))
    assert max(table.num_rows for table in found) < 6
    assert [content for table in found for content in table["content"].to_pylist()] == bodies


def test_mistakes_with_binary_columns_are_explained(tmp_path):
    columns = {
        "pdf": [BODIES[0], None],
        "struct": [{"data": b"x"}] * 2,
        "title": ["a", "b"],
        "long": [b"x" * 99, b"x"],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"pdf": "x"}\n')
    path = str(tmp_path / "a.parquet")
    for field, message in (
        ("title", "has no bytes in its field 'title' but string; choose another field"),
        ("struct", "has no bytes in its field 'struct' but struct<data: binary>; choose another field"),
        ("pfd", r"has no field 'pfd'; its fields: .*'pdf'.*; set file_field= to one of them"),
    ):
        with pytest.raises(SourceError, match=message):
            read(data_files=path, file_field=field)
    with pytest.raises(SourceError, match="row 0 has more than 50 bytes"):
        read(data_files=path, file_field="long", max_record_bytes=50)
    with pytest.raises(SourceError, match=r"b.jsonl is not parquet, the only format with fields of bytes"):
        read(data_files=str(tmp_path / "b.jsonl"), file_field="pdf")
    with pytest.raises(SourceError, match=r"and text_field is 'title': remove one of them"):
        Text(data_files=path, file_field="pdf", text_field="title")
    with pytest.raises(SourceError, match=r"and format is 'pdf': remove one of them"):
        Text(data_files=path, file_field="pdf", format="pdf")
    with pytest.raises(SourceError, match=r"text.fields names 'content', the column of the bytes"):
        Text(data_files=path, file_field="pdf", fields=("content",))


def test_settings_of_recipes_stay_the_same():
    assert not {"file_field", "format"} & Text(data_files="x").settings().keys()
    assert Text(data_files="x", file_field="pdf").settings()["file_field"] == "pdf"
    assert Text(data_files="x", fields=("content",)).schema() == pa.schema([*DOCUMENTS, ("content", pa.string())])


def test_a_binary_column_of_the_hub(hub, tmp_path):
    from huggingface_hub import HfApi

    HfApi().create_repo("me/reports", repo_type="dataset")
    pq.write_table(pa.table({"pdf": pa.array(BODIES)}), tmp_path / "a.parquet")
    HfApi().upload_file(
        path_or_fileobj=tmp_path / "a.parquet", path_in_repo="a.parquet", repo_id="me/reports", repo_type="dataset"
    )
    assert lc.open("me/reports", file_field="pdf").data["content"][:] == BODIES


def test_a_crawl_of_a_dataset_with_a_binary_column(tmp_path):
    rows = [{"id": f"{number}", "pdf": {"bytes": body, "path": None}} for number, body in enumerate(BODIES)]
    plain = [{"id": row["id"], "pdf": row["pdf"]["bytes"]} for row in rows]
    for number, (data, name) in enumerate([(rows, "pdf.bytes"), (rows, "pdf"), (plain, "pdf")]):
        crawl = lc.Crawl(data, content=name)
        assert crawl.data["content"][:] == BODIES
        with pytest.raises(StageError, match="no output writes: add the stage extract_pdf"):
            crawl.to_parquet(tmp_path / "parquet")
        (crawl | ReadSizes()).to_parquet(tmp_path / f"{number}")
        found = load_dataset(str(tmp_path / f"{number}"), split="train")
        assert found["text"][:] == [f"{len(body)} bytes" for body in BODIES]
    with pytest.raises(LongCrawlError, match="column 'id' holds string, not bytes"):
        lc.Crawl(rows, content="id")
    with pytest.raises(LongCrawlError, match=r"no column 'pfd'; they have: .*Set content= to one of them"):
        lc.Crawl(rows, content="pfd")


@pytest.mark.parametrize("form", ["table", "dataset", "feature", "stream"])
def test_a_crawl_of_files_that_are_only_named(tmp_path, form):
    for number, body in enumerate(BODIES):
        (tmp_path / f"{number}.pdf").write_bytes(body)

    def crawl(*files):
        structs = pa.array([file if isinstance(file, dict) else {"bytes": None, "path": file} for file in files])
        table = pa.table({"id": list("abcd")[: len(files)], "pdf": structs})
        if form == "table":
            return lc.Crawl(table, content="pdf")
        data = Dataset(table) if form == "dataset" else Dataset(table).cast_column("pdf", Pdf())
        return lc.Crawl(data.to_iterable_dataset() if form == "stream" else data, content="pdf")

    whole = {"bytes": BODIES[3], "path": "elsewhere.pdf"}
    made = crawl(*(str(tmp_path / f"{number}.pdf") for number in range(3)), whole)
    assert [(row["id"], row["content"]) for row in made.data] == list(zip("abcd", BODIES, strict=True))
    assert made.data.features["content"] == Value("large_binary")
    with pytest.raises(LongCrawlError, match=r"document 'b' names the file '.*9\.pdf', which cannot be read \(File"):
        list(crawl(whole, str(tmp_path / "9.pdf")).data)


def test_few_files_are_in_memory_at_a_time():
    rows = [{"id": f"{number}", "content": BODIES[0]} for number in range(40)]
    BATCHES.clear()
    crawl = lc.Crawl(rows) | ReadSizes()
    assert len(crawl.data) == sum(BATCHES) == 40
    assert max(BATCHES) == 16
