"""Parquet files of documents: what plain `datasets` reads back, in which order, and how runs that are killed end."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset, get_dataset_config_names, load_dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError, LedgerError, StageError
from longcrawl.formats import order
from longcrawl.formats.documents import ParquetOutput, folder_name
from longcrawl.formats.order import row_bytes

LANGUAGES = ["en", "en", "en", "de", "de", None]
STAGES = [{"min_chars": {"n": 40}}, "exact_documents"]
PARTS, DOCUMENTS = 4, 30


def write_documents(folder: Path, parts: int = PARTS, documents: int = DOCUMENTS) -> Path:
    chance = random.Random(3)
    folder.mkdir(parents=True)
    for part in range(parts):
        with (folder / f"{part:02d}.jsonl").open("w") as lines:
            for number in range(documents):
                text = " ".join("".join(chance.choices("abcdefgh", k=5)) for _ in range(chance.randint(2, 60)))
                document = {
                    "id": f"{part}-{number}",
                    "text": "the same text everywhere, in every part of the source" if number % 10 == 9 else text,
                    "url": f"https://www.site{number % 4}.org/{part}/{number}",
                    "language": chance.choice(LANGUAGES),
                }
                lines.write(json.dumps({name: value for name, value in document.items() if value}) + "\n")
    return folder


def write_recipe(path: Path, documents: Path, stages: list | None = None, **settings) -> Path:
    spec = {
        "longcrawl": 1,
        "name": "texts",
        "about": "Made in a test.",
        "source": {"builder": "text", "data_dir": str(documents), "id_field": "id", "language_field": "language"},
        "stages": STAGES if stages is None else stages,
        "outputs": {"parquet": {"file_bytes": 4_000, **settings}},
    }
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def names_in(folder: Path, split: str = "train") -> list[str]:
    files = sorted(folder.rglob(f"{split}-*.parquet"))
    return [name for file in files for name in pq.read_table(file)["id"].to_pylist()]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_documents(tmp_path_factory.mktemp("source") / "documents")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, source) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe") / "texts.yaml", source)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, recipe) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    lc.run(recipe, out)
    return out


@pytest.fixture(scope="module")
def by_language(tmp_path_factory, recipe) -> Path:
    out = tmp_path_factory.mktemp("languages") / "out"
    lc.run(recipe, out, overrides=["outputs.parquet.by=language", "outputs.parquet.heldout=0.1"])
    return out


@pytest.fixture
def documents() -> Dataset:
    rows = range(40)
    return Dataset.from_dict(
        {
            "id": [f"d{row}" for row in rows],
            "text": ["é" * (row * row) for row in rows],
            "language": [["en", "de", None, "en/US"][row % 4] for row in rows],
            "tags": [["a", "bc", None][: row % 4] for row in rows],
            "meta": [{"score": row / 7, "names": [{"first": "x" * row}]} if row % 5 else None for row in rows],
        }
    )


# -------------------- what is read back


def test_a_folder_of_the_same_name_loads_its_own_documents(tmp_path):
    found = []
    for run, letter in enumerate("ab"):
        crawl = lc.Crawl([{"id": "0", "text": letter * 9}])
        crawl.to_parquet(tmp_path / str(run) / "texts")
        loaded = load_dataset(str(tmp_path / str(run) / "texts"), split="train", cache_dir=str(tmp_path / "cache"))
        found.append(loaded["text"][0])
    assert found == ["a" * 9, "b" * 9]


def test_plain_datasets_reads_what_was_written(documents, tmp_path):
    described = lc.Crawl(documents).to_parquet(tmp_path / "made", file_bytes=20_000)
    files = described["splits"]["train"]["files"]
    assert files == 3
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == [
        "README.md", "parquet.json", *(f"train-{number:05d}-of-00003.parquet" for number in range(files)),
    ]  # fmt: skip
    loaded = load_dataset(str(tmp_path / "made"), split="train")
    assert loaded.to_list() == documents.to_list()
    assert loaded.features == documents.features
    streamed = load_dataset(str(tmp_path / "made"), split="train", streaming=True)
    assert list(streamed) == documents.to_list()


def test_types_stay_as_they_are(tmp_path):
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "text": pa.array(["x", None, "z"], pa.large_string()),
            "raw": pa.array([b"1", b"22", None], pa.large_binary()),
            "tokens": pa.array([[1, 2], [], [3]], pa.large_list(pa.uint16())),
            "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
            "when": pa.array([1, 2, None], pa.timestamp("us")),
            "yes": [True, False, None],
            "nothing": pa.nulls(3),
        }
    )
    lc.Crawl(Dataset(table)).to_parquet(tmp_path / "made")
    written = pq.read_table(tmp_path / "made" / "train-00000-of-00001.parquet")
    assert written.schema.remove_metadata() == table.schema
    assert written.to_pylist() == table.to_pylist()


def test_dictionaries_are_decoded(tmp_path):
    writer = ParquetOutput().writer([])
    for part, words in enumerate([["b", "a", "b"], ["a", "c", None]]):
        table = pa.table({"id": [f"{part}-{n}" for n in range(3)], "language": pa.array(words).dictionary_encode()})
        writer.spill([table.slice(0, 1), table.slice(1)], tmp_path / "spill", part)
    tasks = writer.plan(tmp_path / "spill", 2)
    writer.finish(tmp_path, tmp_path / "made", [writer.write(tmp_path / "spill", tmp_path / "made", t) for t in tasks])
    (file,) = (tmp_path / "made").glob("*.parquet")
    assert pq.read_schema(file).field("language").type == pa.string()
    assert pq.read_table(file)["language"].to_pylist() == ["b", "a", "b", "a", "c", None]


def test_files_hold_about_as_much_as_each_other(tmp_path):
    rows = Dataset.from_dict({"id": [str(row) for row in range(400)], "text": ["x" * 97] * 400})
    described = lc.Crawl(rows).to_parquet(tmp_path / "made", file_bytes=9_000)
    sizes = [pq.read_metadata(file).num_rows for file in sorted((tmp_path / "made").glob("*.parquet"))]
    assert described["splits"]["train"]["bytes"] == sum(97 + len(str(row)) for row in range(400))
    assert len(sizes) == 5
    assert max(sizes) - min(sizes) <= 2


def test_a_document_larger_than_a_file_has_one_of_its_own(tmp_path):
    texts = ["a", "b" * 10_000, "c", "d"]
    rows = Dataset.from_dict({"id": list("abcd"), "text": texts})
    lc.Crawl(rows).to_parquet(tmp_path / "made", file_bytes=100)
    assert load_dataset(str(tmp_path / "made"), split="train")["text"][:] == texts


def test_row_groups_are_bounded_and_change_nothing(documents, tmp_path, monkeypatch):
    lc.Crawl(documents).to_parquet(tmp_path / "one")
    monkeypatch.setattr(order, "ROW_GROUP", 8_000)
    lc.Crawl(documents).to_parquet(tmp_path / "many")
    (file,) = (tmp_path / "many").glob("*.parquet")
    assert pq.read_metadata(file).num_row_groups >= 5
    assert pq.read_table(file).equals(pq.read_table(tmp_path / "one" / file.name))
    shown = [lc.inspect(tmp_path / "many", row=row).row_id for row in (0, 17, 39)]
    assert shown == ["d0", "d17", "d39"]


# -------------------- languages


def test_one_folder_and_one_configuration_for_each_language(documents, tmp_path):
    lc.Crawl(documents).to_parquet(tmp_path / "made", by="language")
    folders = sorted(path.name for path in (tmp_path / "made").iterdir() if path.is_dir())
    assert folders == ["de", "en", "en~2FUS", "unknown"]
    assert get_dataset_config_names(str(tmp_path / "made")) == ["all", "de", "en", "en~2FUS", "unknown"]
    for name, language in {"de": "de", "en": "en", "en~2FUS": "en/US", "unknown": None}.items():
        loaded = load_dataset(str(tmp_path / "made"), name, split="train")
        assert loaded.to_list() == [row for row in documents if row["language"] == language]
    whole = load_dataset(str(tmp_path / "made"), split="train")
    assert sorted(whole["id"]) == sorted(documents["id"])


ODD = [
    "",
    " ",
    ".",
    "..",
    "a/b",
    "/a",
    "~",
    "~2F",
    "all",
    "ledger",
    "unknown",
    "_x",
    "__x",
    "x" * 99,
    "日本",
    "en\n",
    "*",
    "a b",
]


@pytest.mark.slow
def test_odd_languages_become_folders_that_datasets_reads(tmp_path):
    rows = Dataset.from_dict({"id": [str(row) for row in range(len(ODD))], "text": ODD, "language": ODD})
    described = lc.Crawl(rows).to_parquet(tmp_path / "made", by="language")
    assert len(list((tmp_path / "made").iterdir())) == len(ODD) + 2
    for told in described["languages"]:
        loaded = load_dataset(str(tmp_path / "made"), told["folder"], split="train")
        assert loaded["language"][:] == [told["language"]]
    assert load_dataset(str(tmp_path / "made"), split="train").num_rows == len(ODD)
    assert lc.verify(tmp_path / "made").problems == ()


@given(st.lists(st.text(st.sampled_from("aA~2F_-./%é0l7"), max_size=6), unique=True), st.booleans())
def test_no_two_languages_share_a_folder(languages, with_null):
    folders = [folder_name(each) for each in [*languages, *([None] if with_null else [])]]
    assert len(set(folders)) == len(folders)
    assert all(folder.isascii() and folder not in ("", ".", "..") and "/" not in folder for folder in folders)
    assert not any(folder in ("all", "ledger") or folder.startswith("_") for folder in folders)


def test_a_language_too_long_for_a_folder_is_one_sentence(tmp_path):
    rows = Dataset.from_dict({"id": ["a"], "language": ["x" * 101]})
    with pytest.raises(FormatError, match=r"the language 'x{40}'… is too long for a folder name: set parquet.by"):
        lc.Crawl(rows).to_parquet(tmp_path / "made", by="language")


@pytest.mark.parametrize("columns", [{}, {"language": [1]}, {"language": [["en"]]}])
def test_documents_without_a_language_are_one_sentence(tmp_path, columns):
    rows = Dataset.from_dict({"id": ["a"], "text": ["b"], **columns})
    with pytest.raises(
        FormatError, match="no column 'language' of text; they have: id, text.*; add the stage identify_language"
    ):
        lc.Crawl(rows).to_parquet(tmp_path / "made", by="language")
    assert not (tmp_path / "made").exists()
    lc.Crawl(rows).to_parquet(tmp_path / "made")


# -------------------- held out


@pytest.mark.variants
@pytest.mark.parametrize(("heldout", "rows"), [(0.1, 4), (7, 7), (0.001, 1)])
def test_held_out_documents_are_the_first(documents, tmp_path, heldout, rows):
    lc.Crawl(documents).to_parquet(tmp_path / "made", heldout=heldout)
    loaded = load_dataset(str(tmp_path / "made"))
    assert loaded["heldout"].to_list() + loaded["train"].to_list() == documents.to_list()
    assert loaded["heldout"].num_rows == rows


def test_each_language_is_held_out_from(documents, tmp_path):
    described = lc.Crawl(documents).to_parquet(tmp_path / "made", by="language", heldout=3)
    assert {told["splits"]["heldout"]["documents"] for told in described["languages"]} == {3}
    with pytest.raises(
        FormatError, match="heldout 10 takes 10 of 10 rows of language 'de' and leaves none to train on"
    ):
        lc.Crawl(documents).to_parquet(tmp_path / "more", by="language", heldout=10)


@pytest.mark.parametrize("settings", [{"heldout": -1}, {"heldout": 1.5}, {"file_bytes": 0}, {"by": "url"}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(StageError, match=next(iter(settings))):
        ParquetOutput(**settings)


# -------------------- order


@pytest.mark.slow
def test_documents_come_in_the_order_of_the_parts(run_folder):
    names = [tuple(map(int, name.split("-"))) for name in names_in(run_folder / "parquet")]
    assert names == sorted(names)
    assert len(names) == lc.funnel(run_folder).kept


@pytest.mark.slow
def test_a_shuffle_orders_files_and_leaves_no_column(source, tmp_path):
    recipe = write_recipe(tmp_path / "texts.yaml", source, [*STAGES, {"shuffle": {"seed": 5}}])
    lc.run(recipe, tmp_path / "out", 2)
    written = pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / "out/parquet").glob("*.parquet")))
    assert written.schema.names == ["id", "text", "url", "date", "source", "language"]
    keys = lc.tokens.Shuffle(seed=5).sketch(written)["sort_key"].to_numpy()
    assert np.all(np.diff(keys.astype(object)) > 0)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["output"]["shuffled"] is True


@pytest.mark.slow
def test_a_shuffle_orders_each_language(source, tmp_path):
    recipe = write_recipe(tmp_path / "texts.yaml", source, [*STAGES, "shuffle"], by="language")
    lc.run(recipe, tmp_path / "out")
    for folder in (tmp_path / "out" / "parquet").iterdir():
        if folder.is_dir():
            written = pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("*.parquet")))
            keys = lc.tokens.Shuffle().sketch(written)["sort_key"].to_pylist()
            assert keys == sorted(keys)


def test_a_crawl_and_a_run_write_the_same_files(source, tmp_path):
    recipe = write_recipe(tmp_path / "texts.yaml", source, [*STAGES, "shuffle"], by="language")
    lc.run(recipe, tmp_path / "out")
    crawl = lc.open("text", data_dir=str(source), id_field="id", language_field="language")
    for _, stage in lc.load_recipe(recipe).stages:
        crawl = crawl | stage
    crawl.to_parquet(tmp_path / "made", file_bytes=4_000, by="language")
    ours, theirs = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}
        for folder in (tmp_path / "made", tmp_path / "out" / "parquet")
    )
    assert ours == theirs


def test_a_column_of_the_documents_own_called_sort_key_is_written(tmp_path):
    rows = Dataset.from_dict({"id": ["a", "b", "c"], "sort_key": [3, 1, 2]})
    lc.Crawl(rows).to_parquet(tmp_path / "plain")
    assert load_dataset(str(tmp_path / "plain"), split="train").to_list() == rows.to_list()
    shuffled = lc.Crawl(rows) | lc.tokens.Shuffle()
    assert shuffled.to_parquet(tmp_path / "shuffled")["shuffled"] is True
    assert load_dataset(str(tmp_path / "shuffled"), split="train").to_list() == shuffled.data.to_list()


# -------------------- nothing else decides the bytes


def test_a_description_that_names_no_file_to_read_back_is_one_sentence(recipe, run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    file = tmp_path / "run/parquet/parquet.json"
    described = json.loads(file.read_text())
    file.write_text(json.dumps(described | {"files": {}}))
    with pytest.raises(CorruptionError, match="fewer documents than parquet.json records; longcrawl verify"):
        lc.run(recipe, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("num_proc", [2, 5])
def test_the_bytes_do_not_depend_on_the_number_of_processes(recipe, run_folder, tmp_path, num_proc, directory_digest):
    lc.run(recipe, tmp_path / "out", num_proc)
    assert directory_digest(tmp_path / "out") == directory_digest(run_folder)


@pytest.mark.variants
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_bytes_do_not_depend_on_the_size_of_batches(documents, tmp_path, size, shuffled, directory_digest):
    table = documents.with_format("arrow")[:]
    if shuffled:
        table = table.append_column("sort_key", lc.tokens.Shuffle().sketch(table)["sort_key"])
    stages = [lc.tokens.Shuffle()] if shuffled else []
    writer = ParquetOutput(file_bytes=10_000, by="language").writer(stages)
    digests = []
    for folder, rows in ((tmp_path / "one", size), (tmp_path / "other", 13)):
        writer.spill((table.slice(first, rows) for first in range(0, 40, rows)), folder / "spill", 0)
        tasks = writer.plan(folder / "spill", 1)
        writer.finish(folder, folder / "made", [writer.write(folder / "spill", folder / "made", t) for t in tasks])
        digests.append(directory_digest(folder / "made"))
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_killed_just_before_a_file_gets_its_name_a_run_ends_the_same(tmp_path, killed_before_renames):
    folder = write_documents(tmp_path / "documents", 2, 12)
    recipe = write_recipe(tmp_path / "texts.yaml", folder, [*STAGES, "shuffle"], by="language", file_bytes=1_000)
    told = killed_before_renames(recipe, tmp_path / "out", 15)
    assert len(told) >= 3
    assert {(status, digest) for _, _, status, digest in told.values()} == {(0, list(told.values())[-1][-1])}


@pytest.mark.slow
def test_what_only_the_second_pass_looks_at_may_change_while_a_run_is_stopped(source, tmp_path, directory_digest):
    recipe = write_recipe(tmp_path / "texts.yaml", source)
    with pytest.raises(FormatError, match="leaves none to train on"):
        lc.run(recipe, tmp_path / "out", overrides=["outputs.parquet.heldout=5000"])
    spilled = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out/work/spill").glob("*.arrow")}
    assert len(spilled) == PARTS
    lc.run(recipe, tmp_path / "out", overrides=["outputs.parquet.by=language"])
    lc.run(recipe, tmp_path / "unstopped", overrides=["outputs.parquet.by=language"])
    assert directory_digest(tmp_path / "out") == directory_digest(tmp_path / "unstopped")


# -------------------- what cannot be written


def test_nothing_left_is_one_sentence(documents, tmp_path):
    crawl = lc.Crawl(documents) | lc.text.MinChars(10**6)
    for empty in (crawl, lc.Crawl(Dataset.from_dict({"id": [], "text": []}))):
        with pytest.raises(FormatError, match="no documents to write: all were removed before the output"):
            empty.to_parquet(tmp_path / "made")
        assert not (tmp_path / "made").exists()


def test_parts_without_documents_are_no_obstacle(documents, tmp_path):
    table = documents.with_format("arrow")[:]
    writer = ParquetOutput().writer([])
    for part, tables in enumerate([[table.slice(0, 0)], [table.slice(0, 9), table.slice(9, 0)], [], [table.slice(9)]]):
        writer.spill(tables, tmp_path / "spill", part)
    (task,) = writer.plan(tmp_path / "spill", 4)
    writer.write(tmp_path / "spill", tmp_path / "made", task)
    assert names_in(tmp_path / "made") == documents["id"][:]


def test_two_columns_of_one_name_are_one_sentence(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], ["id", "text", "text"])
    with pytest.raises(StageError, match="the documents have two columns called 'text': rename or drop one of them"):
        ParquetOutput().writer([]).spill([table], tmp_path / "spill", 0)


def test_documents_that_change_their_columns_are_one_sentence(tmp_path):
    one, other = pa.table({"id": ["a"], "text": ["b"]}), pa.table({"id": ["a"], "text": [1]})
    writer = ParquetOutput().writer([])
    with pytest.raises(StageError, match="have different columns: here text string, there text int64"):
        writer.spill([one, other], tmp_path / "spill", 0)
    for part, table in enumerate([one, other]):
        writer.spill([table], tmp_path / "spill", part)
    with pytest.raises(
        FormatError, match="parts hold documents with different columns: here text string, there text int64"
    ):
        writer.plan(tmp_path / "spill", 2)


def test_a_type_that_datasets_cannot_read_is_one_sentence(tmp_path):
    table = pa.table({"id": ["a"], "odd": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))})
    with pytest.raises(StageError, match="parquet file cannot hold column 'odd' of type map<string, int32"):
        ParquetOutput().writer([]).spill([table], tmp_path / "spill", 0)


def test_a_spill_file_that_is_cut_is_one_sentence(documents, tmp_path):
    writer = ParquetOutput().writer([])
    writer.spill([documents.with_format("arrow")[:]], tmp_path / "spill", 0)
    (task,) = writer.plan(tmp_path / "spill", 1)
    file = tmp_path / "spill" / "00000.arrow"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(FormatError, match=r"00000.arrow is cut: remove the run's folder 'work' and run again"):
        writer.write(tmp_path / "spill", tmp_path / "made", task)


# -------------------- sizes


VALUES = st.recursive(
    st.one_of(
        st.tuples(st.just(pa.large_string()), st.text(max_size=4)),
        st.tuples(st.just(pa.int32()), st.integers(0, 9)),
        st.tuples(st.just(pa.bool_()), st.booleans()),
    ),
    lambda inner: inner.map(lambda pair: (pa.list_(pair[0]), [pair[1], None, pair[1]])),
    max_leaves=3,
)


def naive_bytes(value: object, kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(naive_bytes(None if value is None else value[field.name], field.type) for field in kind)
    if pa.types.is_list(kind):
        return sum(naive_bytes(each, kind.value_type) for each in value or [])
    if pa.types.is_large_string(kind):
        return len((value or "").encode())
    return 1 if pa.types.is_boolean(kind) else kind.bit_width // 8


@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(0, 3), st.integers(0, 6))
def test_sizes_are_those_of_the_values(kinds, first, rows):
    kind = pa.struct([(f"f{number}", each) for number, (each, _) in enumerate(kinds)])
    whole = {f"f{number}": value for number, (_, value) in enumerate(kinds)}
    values = [whole, None, dict.fromkeys(whole), whole, whole, None]
    array = pa.array(values, kind).slice(first, rows)
    assert row_bytes(array).tolist() == [naive_bytes(value, kind) for value in values[first : first + rows]]


# -------------------- what a run tells


def test_the_summary_says_what_was_written_and_reads_it_back(recipe, run_folder, by_language):
    summary = lc.run(recipe, run_folder)
    kept = lc.funnel(run_folder).kept
    assert f"texts is done in {summary.seconds:.1f} s: {run_folder} (train {kept} documents in " in str(summary)
    first = names_in(run_folder / "parquet")[0]
    assert "read back: documents of id string, text large_string, url string, " in str(summary)
    assert str(summary).endswith(f"; the first is {first}")
    overrides = ["outputs.parquet.by=language", "outputs.parquet.heldout=0.1"]
    again = str(lc.run(recipe, by_language, overrides=overrides))
    assert ", 3 folders)" in again
    assert ", heldout " in again


def test_why_knows_what_was_kept(run_folder):
    assert lc.why(run_folder, names_in(run_folder / "parquet")[5]).stage is None
    assert lc.why(run_folder, "1-9").kept_id in ("0-9", "0-19", "0-29")
    with pytest.raises(LedgerError, match=r"never had a document 'x'; ids look like '.*', as in .*\.parquet"):
        lc.why(run_folder, "x")


def test_why_finds_kept_documents_by_their_url(run_folder):
    kept = names_in(run_folder / "parquet")[5]
    part, number = kept.split("-")
    url = "https://www.site{}.org/{}/{}"
    assert lc.why(run_folder, url.format(int(number) % 4, part, number)).id == kept
    with pytest.raises(LedgerError, match="a URL only finds kept documents: take a removed one's id from the columns"):
        lc.why(run_folder, url.format(1, 1, 9))


def test_clusters_of_duplicates_are_shown_with_their_texts(run_folder):
    (cluster,) = lc.clusters(run_folder)
    assert cluster.kept.id.endswith("9")
    assert str(lc.clusters(run_folder)).endswith(": equal")


@pytest.mark.parametrize("fixture", ["run_folder", "by_language"])
def test_one_flipped_bit_and_a_file_too_many_are_found(request, fixture, tmp_path):
    folder = request.getfixturevalue(fixture) / "parquet"
    assert lc.verify(folder.parent).problems == ()
    for name in ("README.md", "parquet.json", *(path.relative_to(folder) for path in folder.rglob("*.parquet"))):
        file = folder / name
        content = file.read_bytes()
        file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
        assert lc.verify(folder.parent).problems
        file.write_bytes(content)
    extra = folder / "train-00009-of-00009.parquet"
    extra.write_bytes(b"")
    assert lc.verify(folder).problems == (f"{extra.name} is not part of this output",)
    extra.unlink()
    assert lc.verify(folder.parent).problems == ()


def test_inspect_shows_a_document(by_language):
    shown = lc.inspect(by_language, row=1)
    assert shown.text
    assert f"  language: de\n{shown.text}" in str(shown)
    assert "split train: " in str(shown)
    assert lc.inspect(by_language, "heldout").row_id == names_in(by_language / "parquet" / "de", "heldout")[0]
    with pytest.raises(FormatError, match="has no split 'test'; known: train, heldout"):
        lc.inspect(by_language, "test")
    with pytest.raises(FormatError, match=r"has documents 0 to \d+, not 5000"):
        lc.inspect(by_language, row=5000)


READ = """
import json, sys
from datasets import get_dataset_config_names, load_dataset

told = {}
for name in get_dataset_config_names(sys.argv[1]):
    for split, data in load_dataset(sys.argv[1], name, cache_dir=sys.argv[2]).items():
        told[f"{name}/{split}"] = data["id"][:]
assert not [name for name in sys.modules if name.startswith("longcrawl")]
print(json.dumps(told))
"""


@pytest.mark.slow
def test_plain_datasets_loads_every_configuration_of_a_run(by_language, tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", READ, by_language, tmp_path], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    told = json.loads(answer.stdout.splitlines()[-1])
    assert set(told) == {
        f"{name}/{split}" for name in ("all", "de", "en", "unknown") for split in ("train", "heldout")
    } | {"ledger/removed"}
    for name in ("de", "en", "unknown"):
        assert told[f"{name}/train"] == names_in(by_language / "parquet" / name)
    everything = Counter(told["all/train"] + told["all/heldout"] + told["ledger/removed"])
    assert everything == Counter(f"{part}-{number}" for part in range(PARTS) for number in range(DOCUMENTS))


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["run_folder", "by_language"])
def test_the_python_on_the_card_runs_in_the_folder(request, fixture, tmp_path):
    folder = request.getfixturevalue(fixture)
    text = (folder / "README.md").read_text()
    text = text.replace('"user/name"', f'"{folder}"')
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 3
    environment = {"HF_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(Path(lc.__file__).parent.parent)}
    # A stream over parquet that was left aborts a process which ends at once (apache/arrow#45214).
    ending = ["print(crawl.funnel.documents)", "import gc", "del stream", "gc.collect()"]
    code = "\n".join([*blocks, *ending])
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout.splitlines()[-1]) > 0


def test_the_card_says_what_there_is(by_language, run_folder):
    card, manifest = (by_language / "README.md").read_text(), json.loads((by_language / "manifest.json").read_text())
    told = manifest["output"]["splits"]["train"]
    assert f"| `all` | train | {told['documents']} | {told['bytes']:,} | {told['files']} |" in card
    assert "documents without one are in `unknown`" in card
    assert "The order is that of the source." in card
    assert yaml.safe_load(card.split("---")[1])["language"] == ["de", "en"]
    plain = (run_folder / "README.md").read_text()
    assert "| split | documents | bytes | files |\n| --- | ---: | ---: | ---: |\n| train | " in plain
    assert "`unknown`" not in plain
