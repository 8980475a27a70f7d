"""Text sets: every kind of file, ids, splits, fields, damage, URLs."""

import bz2
import gzip
import json
import lzma
import warnings
from dataclasses import replace
from datetime import date
from decimal import Decimal

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from datasets import load_dataset

import longcrawl
from longcrawl.core.sources import BadFiles, check_fields_named
from longcrawl.errors import SourceError
from longcrawl.sources import blocks, json_lines
from longcrawl.sources.parquet import ROWS
from longcrawl.sources.text import Text

RECORDS = [
    {"text": "one", "url": "https://a", "date": "2024-01-01", "language": "en", "key": "k1", "extra": {"deep": [1]}},
    {"text": "two\nlines", "key": "k2"},
    {"text": "drei 😀", "language": "de", "key": 3},
]
JSONL = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()


def read(source, policy="error"):
    bad_files = BadFiles(policy)
    tables = [table for parts in source.splits().values() for part in parts for table in source.read(part, bad_files)]
    assert all(table.schema == source.schema() for table in tables)
    return [row for table in tables for row in table.to_pylist()], bad_files.found


def write(path, data=JSONL):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.json.gz", "a.jsonl.zst", "a.json.zst"])
def test_json_lines(tmp_path, name):
    write(tmp_path / "deep" / name)
    rows, bad = read(Text(data_dir=str(tmp_path)))
    assert bad == []
    assert rows[0] == {
        "id": f"deep/{name}:0",
        "text": "one",
        "url": "https://a",
        "date": "2024-01-01",
        "source": f"deep/{name}",
        "language": "en",
    }
    assert [row["text"] for row in rows] == ["one", "two\nlines", "drei 😀"]
    assert [row["id"] for row in rows] == [f"deep/{name}:{line}" for line in range(3)]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl"])
def test_an_array_of_objects_has_the_documents_of_its_lines(tmp_path, name, indent):
    write(tmp_path / name, b"\xef\xbb\xbf \r\n" + json.dumps(RECORDS, indent=indent).encode() + b"\n")
    write(tmp_path / "lines" / name)
    assert read(Text(data_files=str(tmp_path / name))) == read(Text(data_files=str(tmp_path / "lines" / name)))


def test_an_array_is_what_datasets_reads_of_it(tmp_path):
    file = write(tmp_path / "a.json", json.dumps(RECORDS[:2], indent=1).encode())
    texts = load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))["text"]
    assert [row["text"] for row in read(Text(data_files=str(file)))[0]] == list(texts)


@pytest.mark.parametrize("array", ["[]", " [\n]\n", '[{"text": "a", "n": ' + "1" * 5_000 + "}]"])
def test_an_array_without_objects_and_one_of_long_numbers(tmp_path, array):
    file = write(tmp_path / "a.json", array.encode())
    rows, bad = read(Text(data_files=str(file), fields=("n",)))
    assert not bad
    assert [(row["text"], len(row["n"])) for row in rows] == ([("a", 5_000)] if "a" in array else [])


ARRAY = b'[{"text": "one", "n": 1.50}, 7,\n {"text": "two\\n"},\n{"text": "three"}]'


@pytest.mark.variants
@pytest.mark.parametrize("block_bytes", [1, 40, blocks.BLOCK_BYTES])
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ARRAY[:-3], "is not JSON (Unterminated string starting at"),
        (ARRAY[:-1], "is not JSON (Expecting ',' delimiter at character"),
        (ARRAY + b" {}", "is not JSON (Extra data at character"),
        (ARRAY[:-1] + b",]", "is not JSON (Expecting value at character"),
        (ARRAY.replace(b"three", b"\xff"), "is not UTF-8"),
        (ARRAY[:-1] + b"," + b"[" * 200_000, "is nested too deeply"),
    ],
)
def test_of_a_damaged_array_what_comes_before_is_read(tmp_path, monkeypatch, end, reason, block_bytes):
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", block_bytes)
    file = str(write(tmp_path / "a.json", end))
    rows, (lost,) = read(Text(data_files=file, fields=("n",)), "skip")
    assert reason in lost.reason
    if "UTF-8" not in reason:
        assert [(row["id"], row["text"]) for row in rows[:2]] == [("a.json:0", "one"), ("a.json:2", "two\n")]
        assert rows[0]["n"] == "1.50"
        assert "object 2 holds" in lost.reason
    with pytest.raises(SourceError, match=r"a\.json: (object 2 holds|is not UTF-8)"):
        read(Text(data_files=file))


@pytest.mark.parametrize("how", ["long", "cut"])
def test_nobody_knows_how_many_objects_a_lost_array_has(tmp_path, how):
    file = write(tmp_path / "a.json.gz", b"[" + b",\n".join([b'{"text": "abc"}'] * 1_000) + b"]")
    if how == "cut":
        file.write_bytes(file.read_bytes() + gzip.compress(b"\n")[:-9])
    rows, (lost,) = read(Text(data_files=str(file), max_record_bytes=2_000 if how == "long" else 1 << 20), "skip")
    assert rows == []
    assert ("has more than 2,000 bytes" if how == "long" else "is cut") in lost.reason
    assert lost.records_lost is None


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_further_fields_are_columns_and_a_source_of_ones_own_is_one_of_them(tmp_path, kind):
    records = [{"text": "one", "domain": "a.org", "source": "mine", "stars": 3, "file": "f"}, {"text": "two"}]
    if kind == "jsonl":
        write(tmp_path / "deep" / "a.jsonl", "".join(json.dumps(each) + "\n" for each in records).encode())
    else:
        (tmp_path / "deep").mkdir()
        pq.write_table(pa.Table.from_pylist(records), tmp_path / "deep" / "a.parquet")
    rows, bad = read(
        Text(data_dir=str(tmp_path), fields=["domain", "stars", "source", "file", "nowhere"], origins="line")
    )
    assert bad == []
    columns = ("source", "domain", "stars", "file", "nowhere")
    assert [tuple(row[name] for name in columns) for row in rows] == [("mine", "a.org", "3", "f", None), (None,) * 5]
    assert {row["source"] for row in read(Text(data_dir=str(tmp_path)))[0]} == {f"deep/a.{kind}"}
    assert {row["source"] for row in read(Text(data_dir=str(tmp_path), source_from="folder"))[0]} == {"deep"}
    assert {row["source"] for row in read(Text(data_dir=str(tmp_path / "deep"), source_from="folder"))[0]} == {None}


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "array"])
def test_dotted_names_reach_into_objects(tmp_path, kind):
    records = [
        {"doc": {"text": "one"}, "meta": {"id": 1, "web": {"url": "u", "seen": None}}},
        {"doc": {"text": "two"}, "meta": {"id": 2, "web": None}, "meta.web.url": None},
        {"doc": {"text": "three"}, "meta": {"id": 3, "web": {"url": "w"}}},
    ]
    if kind == "parquet":
        del records[1]["meta.web.url"]
        pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet", row_group_size=2)
    else:
        text = json.dumps(records) if kind == "array" else "".join(json.dumps(each) + "\n" for each in records)
        (tmp_path / "a.jsonl").write_text(text)
    names = {"text_field": "doc.text", "id_field": "meta.id", "url_field": "meta.web.url", "fields": ["meta.web.seen"]}
    source = Text(data_dir=str(tmp_path), **names)
    rows, bad = read(source)
    assert not bad
    assert [(row["id"], row["text"], row["url"], row["meta.web.seen"]) for row in rows] == [
        ("1", "one", "u", None),
        ("2", "two", None, None),
        ("3", "three", "w", None),
    ]
    (part,) = source.splits()["train"]
    assert pa.chunked_array([c for ids in source.list_ids(part) for c in ids.chunks]).to_pylist() == ["1", "2", "3"]
    missing = replace(source, text_field="doc.txt")
    with pytest.raises(SourceError, match=r"has no field 'doc.txt'; its fields: doc.text, .*\(did you mean 'doc.text'"):
        read(missing)
    with pytest.raises(SourceError, match=r"in its field 'meta.web'"):
        read(replace(source, url_field="meta.web"))


def test_a_field_whose_name_has_the_dots_comes_first(tmp_path):
    table = pa.table({"text": ["x"], "m.url": ["dotted"], "m": [{"url": "nested"}]})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("text,m.url\nx,dotted\n")
    (tmp_path / "c.jsonl").write_text(json.dumps(table.to_pylist()[0]))
    rows, _ = read(Text(data_dir=str(tmp_path), url_field="m.url"))
    assert [row["url"] for row in rows] == ["dotted"] * 3


@pytest.mark.parametrize(
    ("values", "spelled"),
    [
        ([1.0, 2.5, 1e20, 1e-7, -0.0, 1e16, 123456789012345.0], None),
        ([float("nan"), float("inf"), float("-inf")], ["NaN", "Infinity", "-Infinity"]),
        ([2**53 + 1, -(2**63), 7], None),
        ([True, False, None], ["true", "false", None]),
        (pa.array([0.1, 3.0], pa.float32()), ["0.1", "3.0"]),
        ([Decimal("1.50"), Decimal("0.01")], ["1.50", "0.01"]),
        (pa.array([Decimal("1E-12")], pa.decimal128(38, 12)), ["0.000000000001"]),
        ([date(2024, 1, 2)], ["2024-01-02"]),
        (
            pa.array([0, 1_250_000, 100_000], pa.timestamp("us")),
            [f"1970-01-01 00:00:0{s}" for s in ("0", "1.25", "0.1")],
        ),
        (pa.array([0, 1_000], pa.timestamp("ms", "UTC")), ["1970-01-01 00:00:00Z", "1970-01-01 00:00:01Z"]),
    ],
)
def test_a_value_is_spelled_alike_in_all_formats(tmp_path, values, spelled):
    pq.write_table(pa.table({"text": ["x"] * len(values), "value": values}), tmp_path / "a.parquet")
    plain = values if isinstance(values, list) else spelled
    words = spelled or [json.dumps(value) for value in values]
    if all(isinstance(value, bool | int | float | None) for value in plain):
        lines = [json.dumps({"text": "x", "value": value}) for value in plain]
    else:
        lines = [json.dumps({"text": "x", "value": word}) for word in words]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    (tmp_path / "c.csv").write_text("".join(f"{row}\n" for row in ("text,value", *(f"x,{w or ''}" for w in words))))
    for name in ("a.parquet", "b.jsonl", "c.csv"):
        rows, _ = read(Text(data_files=str(tmp_path / name), fields=["value"]))
        assert [row["value"] for row in rows] == words
        if None not in words:
            rows, _ = read(Text(data_files=str(tmp_path / name), id_field="value"))
            assert [row["id"] for row in rows] == words


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url_field": "meta.ulr"}, r"'meta.ulr' that url_field names; .*did you mean 'meta.url'\?\); set url_field="),
        ({"date_field": "day"}, "'day' that date_field names; fields of records: text, id, meta.url, late; set date_"),
        ({"fields": ["lat"]}, r"'lat' that fields names; .*did you mean 'late'\?\); remove it from fields"),
    ],
)
def test_a_setting_that_names_a_field_of_no_record_is_an_error(tmp_path, settings, said):
    for number, more in enumerate(({}, {"meta": {"url": "u"}}, {"late": None})):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": "x", "id": str(number)} | more))
    files = {"data_files": str(tmp_path / "*.jsonl")}
    for part in (None, "0", "2"):
        source = Text(**files, **settings)
        parts = source.splits()["train"]
        chosen = [each for each in parts if part is None or each.name.startswith(part)]
        with pytest.raises(SourceError, match=said):
            _first_checked(source, chosen[0], parts)
    source = Text(**files, url_field="meta.url", fields=["late"])
    for each in parts:
        _first_checked(source, each, parts)


def _first_checked(source, part, parts):
    noted = BadFiles()
    return next(check_fields_named(source, source.read(part, noted), noted, lambda: parts, set()))


def test_text_files_have_no_fields(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    source = Text(data_dir=str(tmp_path), text_field="content")
    (part,) = source.splits()["train"]
    with pytest.raises(SourceError, match="'content' that text_field names; fields of records: none; remove it from"):
        _first_checked(source, part, [part])


def test_fields_that_cannot_be_columns_are_refused(tmp_path):
    for fields, said in (
        (["url"], "names 'url', which is always a column: set url_field instead"),
        (["a", "a"], "names 'a' twice"),
    ):
        with pytest.raises(SourceError, match=said):
            Text(data_dir=str(tmp_path), fields=fields)
    with pytest.raises(SourceError, match="source_from is 'folder': remove one of them"):
        Text(data_dir=str(tmp_path), fields=["source"], source_from="folder")
    pq.write_table(pa.table({"text": ["one"], "tags": [["x"]]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"has no text in its field 'tags' but list<.*>; remove it from fields"):
        read(Text(data_dir=str(tmp_path), fields=["tags"]))


def test_parquet_in_row_groups(tmp_path):
    table = pa.table(
        {"body": [f"text {row}" for row in range(5_000)], "key": list(range(5_000)), "other": [None] * 5_000}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    rows, _ = read(Text(data_dir=str(tmp_path), text_field="body"))
    assert [row["text"] for row in rows] == table["body"].to_pylist()
    assert [row["id"] for row in rows] == [f"a.parquet:{row}" for row in range(5_000)]
    rows, _ = read(Text(data_dir=str(tmp_path), text_field="body", id_field="key", language="en"))
    assert [row["id"] for row in rows] == [str(row) for row in range(5_000)]
    assert {row["language"] for row in rows} == {"en"}
    source = Text(data_dir=str(tmp_path), text_field="body")
    (part,) = source.splits()["train"]
    assert max(one.num_rows for one in source.read(part, BadFiles())) <= ROWS


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_text_files_are_one_document_or_one_per_line(tmp_path, name):
    write(tmp_path / name, "\ufefferste Zeile\r\n\n  \nvierte ".encode())
    rows, _ = read(Text(data_dir=str(tmp_path), language="de"))
    assert rows == [
        {
            "id": name,
            "text": "erste Zeile\r\n\n  \nvierte ",
            "url": None,
            "date": None,
            "source": name,
            "language": "de",
        }
    ]
    rows, _ = read(Text(data_dir=str(tmp_path), unit="line"))
    assert [(row["id"], row["text"]) for row in rows] == [(f"{name}:0", "erste Zeile"), (f"{name}:3", "vierte ")]


@pytest.mark.variants
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.txt"])
def test_offsets_are_those_of_lines_in_the_decompressed_file(tmp_path, monkeypatch, mark, name):
    monkeypatch.setattr(blocks.read_steps, "__defaults__", (64,))
    lines = [json.dumps({"id": str(at), "text": "é" * at}).encode() for at in range(1, 40)]
    data = mark + b"\n\n".join([*lines[:20], b'{"id": "x", "\\u0074ext": "late"}', *lines[20:]])
    write(tmp_path / name, data)
    rows, _ = read(
        Text(data_dir=str(tmp_path), id_field=None if name == "a.txt" else "id", unit="line", origins="line")
    )
    assert len(rows) == 40
    for row in rows:
        line = data[row["offset"] :].partition(b"\n")[0].decode()
        assert row["text"] == (line if name == "a.txt" else json.loads(line)["text"])


def test_offsets_are_null_behind_a_line_that_is_lost(tmp_path):
    write(tmp_path / "a.jsonl", b'{"text": "a"}\n{"text": "b"}\n' + b'{"text": "' + b"c" * 99 + b'"}\n{"text": "d"}\n')
    rows, bad = read(Text(data_dir=str(tmp_path), max_record_bytes=50, origins="line"), "skip")
    assert [(row["text"], row["offset"]) for row in rows] == [("a", 0), ("b", 14), ("d", None)]
    assert len(bad) == 1


def test_a_byte_order_mark_before_json_is_no_damage(tmp_path):
    write(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + JSONL)
    assert len(read(Text(data_dir=str(tmp_path)))[0]) == 3


def test_fields_are_configurable(tmp_path):
    line = {"body": "text", "key": 7, "link": "u", "when": 2024, "lang": None}
    write(tmp_path / "a.jsonl", json.dumps(line).encode())
    settings = {
        "text_field": "body",
        "id_field": "key",
        "url_field": "link",
        "date_field": "when",
        "language_field": "lang",
    }
    rows, _ = read(Text(data_dir=str(tmp_path), language="en", **settings))
    assert rows == [{"id": "7", "text": "text", "url": "u", "date": "2024", "source": "a.jsonl", "language": "en"}]
    assert read(Text(data_dir=str(tmp_path), text_field="body", url_field="body"))[0][0]["url"] == "text"


def test_a_missing_text_field_says_what_to_type(tmp_path):
    write(tmp_path / "a.jsonl", b'{"body": "x", "key": 1}\n')
    with pytest.raises(
        SourceError, match=r"a.jsonl: line 1 has no field 'text'; its fields: body, key; set text_field= to"
    ):
        read(Text(data_dir=str(tmp_path)))
    write(tmp_path / "a.jsonl")
    with pytest.raises(
        SourceError, match=r"line 1 has no field 'name'; its fields: text, .*; set id_field= to one of them"
    ):
        read(Text(data_dir=str(tmp_path), id_field="name"))
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b.parquet: has no field 'text'; its fields: body; set text_field="):
        read(Text(data_files=str(tmp_path / "b.parquet")))


def test_all_rows_of_a_parquet_file_without_its_columns_are_lost(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["a", "b"])] * 3, ["text", "url", "url"])
    nested = pa.table({"text": ["a", "b"], "url": [["u"], ["v"]]})
    for number, table in enumerate((twice, nested, pa.table({"body": ["a", "b"]}))):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    bad = BadFiles("skip")
    source = Text(data_dir=str(tmp_path))
    assert [table for part in source.splits()["train"] for table in source.read(part, bad)] == []
    assert [found.records_lost for found in bad.found] == [2, 2, 2]
    assert bad.found[0].reason.startswith("has 2 columns named 'url': rename one, or choose another field")
    assert len(read(Text(data_files=str(tmp_path / "0.parquet"), url_field="link"))[0]) == 2


def test_names_are_the_same_however_files_are_named(tmp_path, monkeypatch):
    for name in ("a/x.jsonl", "a/b/y.jsonl", "z.txt"):
        write(tmp_path / "data" / name)
    by_folder = {row["id"] for row in read(Text(data_dir=str(tmp_path / "data")))[0]}
    assert {"a/x.jsonl:0", "a/b/y.jsonl:2", "z.txt"} <= by_folder
    by_glob = read(Text(data_files=str(tmp_path / "data/**/*.jsonl")))[0]
    assert {row["id"] for row in by_glob} == {
        f"{name}:{line}" for name in ("x.jsonl", "b/y.jsonl") for line in range(3)
    }
    monkeypatch.chdir(tmp_path)
    assert read(Text(data_files="data/**/*.jsonl"))[0] == by_glob
    assert read(Text(data_files=("data/a/x.jsonl", "data/a/b/y.jsonl")))[0] == by_glob
    assert load_dataset("longcrawl", "text", data_files="data/**/*.jsonl", split="train").to_list() == by_glob
    below = read(Text(data_dir="data", data_files="a/*.jsonl"))[0]
    assert {row["source"] for row in below} == {"a/x.jsonl"}
    assert load_dataset("longcrawl", "text", data_dir="data", data_files="a/*.jsonl", split="train").to_list() == below


def test_splits(tmp_path):
    for name in ("train-0.jsonl", "train-1.jsonl", "test.jsonl"):
        write(tmp_path / name)
    files = {"train": str(tmp_path / "train-*.jsonl"), "test": [str(tmp_path / "test.jsonl")]}
    splits = Text(data_files=files).splits()
    assert {name: [part.name for part in parts] for name, parts in splits.items()} == {
        "train": ["train-0.jsonl", "train-1.jsonl"],
        "test": ["test.jsonl"],
    }
    loaded = load_dataset("longcrawl", "text", data_files=files)
    assert loaded.num_rows == {"train": 6, "test": 3}
    assert loaded["test"][0]["id"] == "test.jsonl:0"


def test_nothing_to_read_is_refused(tmp_path):
    with pytest.raises(SourceError, match="has nothing to read; set data_dir="):
        Text().splits()
    with pytest.raises(SourceError, match="is not a folder"):
        Text(data_dir=str(tmp_path / "missing")).splits()
    for found in ("no files", r"\.doc 1, none 1\. To read files regardless .* lc\.open\(FOLDER, format='text'\)"):
        with pytest.raises(
            SourceError, match=rf"holds no file that can be read; known endings: \.jsonl, .*found: {found}"
        ):
            Text(data_dir=str(tmp_path)).splits()
        write(tmp_path / "a.doc")
        write(tmp_path / "deep" / "b")
    assert [part.name for part in Text(data_dir=str(tmp_path), format="json").splits()["train"]] == ["a.doc", "deep/b"]
    assert len(read(Text(data_dir=str(tmp_path), format="json"))[0]) == 6
    with pytest.raises(SourceError, match="no file matches"):
        Text(data_files=str(tmp_path / "*.jsonl")).splits()
    write(tmp_path / "a.pdf")
    with pytest.raises(SourceError, match=r"a.pdf has an unsupported ending; known: \.jsonl.*format: pdf$"):
        Text(data_files=str(tmp_path / "a.pdf")).splits()


WHOLE_FILES = (
    "a.md",
    "b.MARKDOWN",
    "c.rst",
    "d.tex",
    "e.py",
    "src/f.C",
    "src/__init__.py",
    "g.Txt",
    "h.md.gz",
    "i.rs.zst",
)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_folder_of_texts_and_code_has_a_document_per_file(tmp_path, streaming):
    for name in WHOLE_FILES:
        write(tmp_path / name, f"all of {name}\n\nin one".encode())
    expected = [(name, f"all of {name}\n\nin one") for name in sorted(WHOLE_FILES)]
    crawl = longcrawl.open(str(tmp_path), streaming=streaming)
    assert [(row["id"], row["text"]) for row in crawl.data] == expected
    write(tmp_path / "README.md", b"about them")
    assert ("README.md", "about them") in [(row["id"], row["text"]) for row in read(Text(data_dir=str(tmp_path)))[0]]
    write(tmp_path / "j.jsonl")
    names = {row["source"] for row in read(Text(data_dir=str(tmp_path)))[0]}
    assert names == {*WHOLE_FILES, "j.jsonl"}  # beside records, a README is about them
    lines = read(Text(data_files=str(tmp_path / "a.md"), unit="line"))[0]
    assert [row["id"] for row in lines] == ["a.md:0", "a.md:2"]


PACKING = {"gzip": gzip.compress, "zstd": zstandard.compress, "none": bytes}
CONTENT = {
    "jsonl": JSONL,
    "json": json.dumps(RECORDS).encode(),
    "csv": b"text\none\n",
    "txt": b"one text",
    "md": "é".encode("utf-16"),
}


@pytest.mark.variants
@pytest.mark.parametrize("remote", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "ending", ["", ".zst", *(pytest.param(each, marks=pytest.mark.slow) for each in (".gz", ".GZ"))]
)
@pytest.mark.parametrize("packing", PACKING)
@pytest.mark.parametrize("kind", CONTENT)
def test_compression_is_found_by_the_first_bytes(tmp_path, kind, packing, ending, remote):
    data = PACKING[packing](CONTENT[kind])
    plain = read(Text(data_files=str(write(tmp_path / "plain" / f"a.{kind}", CONTENT[kind]))))[0]
    name = f"a.{kind}{ending}"
    if remote:
        place = f"memory://{tmp_path.name}"
        fsspec.filesystem("memory").pipe(f"/{tmp_path.name}/{name}", data)
    else:
        place = str(tmp_path)
        (tmp_path / name).write_bytes(data)
    rows, bad = read(Text(data_dir=place) if remote else Text(data_files=f"{place}/{name}"))
    assert bad == []
    assert [row["text"] for row in rows] == [row["text"] for row in plain]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("xz", lzma.compress(JSONL)),
        ("bzip2", bz2.compress(JSONL)),
        ("lz4", b"\x04\x22\x4d\x18x"),
        ("zip", b"PK\x03\x04x"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv.gz", "a.md"])
def test_other_compression_is_named(tmp_path, name, kind, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(
        SourceError, match=f"is compressed with {kind}, which is not supported: decompress it, or use gzip or zstd"
    ):
        read(Text(data_dir=str(tmp_path)))


def test_other_files_in_a_folder_are_counted_by_ending(tmp_path):
    for name in ("README.md", "LICENSE", "a.jsonl", ".cache/b.pdf"):
        write(tmp_path / name)
    with warnings.catch_warnings(action="error"):
        assert [part.name for part in Text(data_dir=str(tmp_path)).splits()["train"]] == ["a.jsonl"]
    for name in ("b.doc", "deep/c.PDF", "deep/d.doc", "e.xml.gz", "f", "g\x1b[2J"):
        write(tmp_path / name)
    with pytest.warns(UserWarning, match=r"source 'text': 6 files of data_dir are not read") as warned:
        assert [part.name for part in Text(data_dir=str(tmp_path)).splits()["train"]] == ["a.jsonl"]
    assert ".PDF 1, .doc 2, .xml.gz 1, none 2. Convert or rename" in str(warned[0].message)
    assert str(warned[0].message).endswith(
        "or move them away. To read PDFs, and only those, use the source text with format: pdf"
    )
    with warnings.catch_warnings(action="error"):
        Text(data_dir=str(tmp_path), data_files="*.jsonl").splits()


@pytest.mark.parametrize("below", ["", "texts", "texts/parquet"])
def test_the_description_of_an_output_is_no_document(tmp_path, below):
    longcrawl.Crawl([{"id": "0", "text": "one"}]).to_parquet(tmp_path / "read" / below)
    assert [row["text"] for row in read(Text(data_dir=str(tmp_path / "read")))[0]] == ["one"]
    (tmp_path / "read" / "other").mkdir()
    (tmp_path / "read" / "other" / "parquet.json").write_bytes(JSONL)
    assert len(read(Text(data_dir=str(tmp_path / "read")))[0]) == 4


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    write(tmp_path / "a[1].jsonl")
    assert len(read(Text(data_files=str(tmp_path / "a[1].jsonl")))[0]) == 3


BROKEN = {
    "line.jsonl": (JSONL + b"{broken\n" + JSONL, 6, 1),
    "blank.jsonl": (JSONL + b"\n\n" + JSONL, 6, 0),
    "utf8.jsonl": (JSONL + b'{"text": "\xff"}\n', 3, 1),
    "null.jsonl": (JSONL + b'{"text": null}\n', 3, 1),
    "list.json": (b"[1, 2]\n", 0, 1),
    "utf8.txt": (b"a\n\xff\n", 0, 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_records_follow_the_policy(tmp_path, name):
    data, left, lost = BROKEN[name]
    path = write(tmp_path / name, data)
    source = Text(data_files=str(path))
    rows, bad = read(source, "skip")
    assert len(rows) == left
    assert [found.records_lost for found in bad] == ([] if lost == 0 else [lost])
    if lost != 0:
        with pytest.raises(SourceError, match=name):
            read(source)
        with pytest.warns(UserWarning, match=name):
            read(source, "warn")


def test_a_line_of_text_that_is_not_utf8_is_lost_alone(tmp_path):
    path = write(tmp_path / "a.txt", b"a\n\xff\nc\n")
    rows, bad = read(Text(data_files=str(path), unit="line"), "skip")
    assert [row["id"] for row in rows] == ["a.txt:0", "a.txt:2"]
    assert [found.records_lost for found in bad] == [1]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.txt.gz", "a.parquet"])
@pytest.mark.parametrize("how", ["cut", "missing", "garbage"])
def test_damaged_files_follow_the_policy(tmp_path, name, how):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": ["a"] * 100}), path)
    else:
        write(path)
    source = Text(data_files=str(path))
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-9] if how == "cut" else b"\0garbage" * 9)
    rows, bad = read(source, "skip")
    assert len(rows) <= 3
    assert [found.file for found in bad] == [str(path)]
    assert how not in ("missing", "cut") or how in bad[0].reason or name == "a.parquet"
    with pytest.raises(SourceError, match="on_bad_files"):
        read(source)


def test_null_texts_and_ids_in_parquet_are_lost(tmp_path):
    pq.write_table(pa.table({"text": ["a", None, "c", "d"], "key": ["1", "2", None, "4"]}), tmp_path / "a.parquet")
    rows, bad = read(Text(data_dir=str(tmp_path)), "skip")
    assert [row["id"] for row in rows] == ["a.parquet:0", "a.parquet:2", "a.parquet:3"]
    assert [(found.reason, found.records_lost) for found in bad] == [("row 1 has null in its field 'text'", 1)]
    rows, bad = read(Text(data_dir=str(tmp_path), id_field="key"), "skip")
    assert [row["id"] for row in rows] == ["1", "4"]
    assert [found.records_lost for found in bad] == [2]


def test_rows_of_parquet_that_are_not_utf8_are_lost_alone(tmp_path):
    values = pa.array([b"a", b"\xff", b"c", None], pa.binary())
    hidden = pa.Array.from_buffers(pa.string(), 4, values.buffers())
    for text, kind in ((hidden, "string"), (values, "binary")):
        pq.write_table(pa.table({"text": text, "url": ["u", "v", "w", "x"]}), tmp_path / "a.parquet")
        rows, bad = read(Text(data_dir=str(tmp_path)), "skip")
        assert [(row["id"], row["text"]) for row in rows] == [("a.parquet:0", "a"), ("a.parquet:2", "c")], kind
        assert bad[0].reason == "row 1 is not UTF-8 in its field 'text' (and 1 more like it)"
        assert bad[0].records_lost == 2
    with pytest.raises(SourceError, match="row 1 is not UTF-8 in its field 'text'; to continue"):
        read(Text(data_dir=str(tmp_path)))


def test_damaged_pages_and_footers_of_parquet_are_reported(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["one page"], "url": ["https://a.org"]})
    pq.write_table(
        table, path, compression="none", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    whole = path.read_bytes()
    footer = whole[-int.from_bytes(whole[-8:-4], "little") - 8 :]
    for wrong, reason in (
        (whole.replace(b"one page", b"One page", 1), "CRC"),
        (whole[: -len(footer)] + footer.replace(b"url", b"urm", 1), "is corrupt: a column is named 'urm' and, in the"),
        (whole[: -len(footer)] + footer.replace(b"url", b"\xffrl", 1), "is corrupt"),
    ):
        path.write_bytes(wrong)
        rows, bad = read(Text(data_dir=str(tmp_path)), "skip")
        assert not rows
        assert reason in bad[0].reason


def test_load_dataset_streaming_and_processes_agree(tmp_path):
    for number in range(4):
        write(tmp_path / "data" / f"{number}.jsonl.gz")
    settings = {"data_dir": str(tmp_path / "data"), "split": "train"}
    expected, _ = read(Text(data_dir=str(tmp_path / "data")))
    assert load_dataset("longcrawl", "text", **settings).to_list() == expected
    assert list(load_dataset("longcrawl", "text", streaming=True, **settings)) == expected
    parallel = load_dataset("longcrawl", "text", num_proc=2, cache_dir=str(tmp_path / "cache"), **settings)
    assert parallel.to_list() == expected
    assert longcrawl.load("text", data_dir=str(tmp_path / "data")).to_list() == expected


def test_web_servers_and_other_file_systems(tmp_path, web_server):
    write(tmp_path / "a/x.jsonl.gz")
    pq.write_table(pa.table({"text": ["p"]}), tmp_path / "a/y.parquet")
    expected, _ = read(Text(data_dir=str(tmp_path / "a")))
    url = web_server(tmp_path)
    assert read(Text(data_dir=f"{url}/a"))[0] == expected
    assert read(Text(data_files=(f"{url}/a/x.jsonl.gz", f"{url}/a/y.parquet")))[0] == expected
    files = [f"{url}/a/x.jsonl.gz", f"{url}/a/y.parquet"]
    assert load_dataset("longcrawl", "text", data_files=files, split="train").to_list() == expected
    fsspec.filesystem("memory").put(str(tmp_path / "a"), "/texts", recursive=True)
    assert read(Text(data_dir="memory://texts"))[0] == expected
    assert read(Text(data_files="memory://texts/*"))[0] == expected
    assert read(Text(data_dir="memory://texts", data_files="*.parquet"))[0] == expected[3:]
    streamed = load_dataset("longcrawl", "text", data_dir="memory://texts", streaming=True, split="train")
    assert list(streamed) == expected
    assert read(Text(data_dir=f"file://{tmp_path}/a"))[0] == expected


@pytest.mark.slow
def test_real_long_documents(real_data):
    rows, bad = read(Text(data_files=str(real_data / "long.jsonl.zst"), id_field="id", language_field="lang"))
    assert bad == []
    with zstandard.open(real_data / "long.jsonl.zst", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    assert [(row["id"], row["text"], row["url"]) for row in rows] == [
        (record["id"], record["text"], record["url"]) for record in records
    ]
    assert len(rows) == 307


def test_a_source_whose_only_member_is_damaged_is_one_sentence(tmp_path):
    damaged = bytearray(gzip.compress(b'{"text": "The tide was out."}\n' * 50))
    damaged[-6] ^= 1
    (tmp_path / "a.jsonl.gz").write_bytes(damaged)
    with pytest.raises(SourceError, match="source 'text' produced no documents.*on_bad_files='error'"):
        longcrawl.open("text", data_dir=str(tmp_path), on_bad_files="skip")


def test_a_sentence_names_no_more_fields_than_can_be_read(tmp_path):
    """The advice follows the names."""
    fields = {f"field {number}": ["a"] for number in range(5_000)}
    pq.write_table(pa.table(fields), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text(json.dumps(fields))
    source, bad = Text(data_dir=str(tmp_path)), BadFiles("skip")
    assert [table for part in source.splits()["train"] for table in source.read(part, bad)] == []
    for found in bad.found:
        assert "has no field 'text'; its fields: field 0, field 1" in found.reason
        assert found.reason.endswith("…; set text_field= to one of them (--set source.text_field=NAME)")
        assert len(found.reason) < 400
