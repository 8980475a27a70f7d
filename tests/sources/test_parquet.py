"""Row groups whose dictionaries are read once, and what they must not change: rows, tables, ids and what is lost."""

import random
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longcrawl.core.sources import BadFiles
from longcrawl.sources import parquet
from longcrawl.sources.parquet import column_chunks
from longcrawl.sources.text import Text


def read(path, **fields):
    source, bad = Text(data_files=str(path), **fields), BadFiles("skip")
    tables = [table for part in source.splits()["train"] for table in source.read(part, bad)]
    for table in tables:
        table.validate(full=True)
    return [table.to_pydict() for table in tables], [(found.reason, found.records_lost) for found in bad.found]


@pytest.fixture
def one_by_one(monkeypatch):
    """Return what reads a file with no dictionary read once, and none by its page alone."""

    def fails(*_):
        raise ValueError

    def apart(path, **fields):
        with monkeypatch.context() as without:
            without.setattr(parquet, "_at_once", lambda *_: None)
            without.setattr(parquet, "_longest_stored", fails)
            return read(path, **fields)

    return apart


def values(rows: int, seed: int) -> list[bytes | None]:
    """Return texts of which some are null, equal to others, or not UTF-8."""
    chosen = random.Random(seed)
    texts = ["é".encode() * chosen.randrange(60) + b"%d" % row for row in range(rows)]
    for row in range(0, rows, 17):
        texts[row] = chosen.choice([None, b"\xff", texts[row // 2], b""])
    return texts


@pytest.mark.variants
@pytest.mark.parametrize(
    ("codec", "version"),
    [("none", "1.0"), ("snappy", "2.0"), ("gzip", "1.0"), ("brotli", "2.0"), ("zstd", "1.0"), ("lz4", "2.0")],
)
@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_dictionaries_that_are_read_once_change_nothing(tmp_path, monkeypatch, one_by_one, codec, version, limit):
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 16)
    asked, path = [], tmp_path / "a.parquet"
    monkeypatch.setattr(parquet, "_at_once", noted(parquet._at_once, asked))
    monkeypatch.setattr(parquet, "_longest_stored", noted(parquet._longest_stored, asked))
    text = pa.array(values(300, 1), pa.binary())
    columns = {
        "text": pa.Array.from_buffers(pa.string(), 300, text.buffers()),
        "url": pa.array(values(300, 2), pa.binary()),
        "date": [f"2026-01-{row % 9}" for row in range(300)],
        "number": range(300),
    }
    written = {"dictionary_pagesize_limit": limit, "write_batch_size": 64, "data_page_version": version}
    for size in (90, 300):
        pq.write_table(pa.table(columns), path, compression=codec, row_group_size=size, **written)
        found = read(path, fields=("number",))
        assert found == one_by_one(path, fields=("number",))
        assert len(found[1]) == 1
    # Groups of 90 rows that are all in the dictionary are read at once; of others its page is looked at.
    assert {type(each) for each in asked} >= ({pa.RecordBatch, int} if limit > 100 else {int})


def noted(function, answers):
    def noting(*arguments):
        answers.append(function(*arguments))
        return answers[-1]

    return noting


def test_rows_that_are_the_values_of_their_dictionary_in_order_are_not_copied():
    values = pa.array(["one", "two", "three", "four"])
    for places, shared in (([1, 2, 3], True), ([0], True), ([1, 1], False), ([2, None], False), ([], False)):
        column = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), values)])
        found = parquet.written_out(column)
        assert found.type == pa.large_string()
        assert found.to_pylist() == column.to_pylist()
        if places:
            assert (found.chunk(0).buffers()[2].address == values.buffers()[2].address) == shared


def test_rows_in_order_that_go_beyond_their_dictionary_are_not_cut():
    column = pa.chunked_array([pa.DictionaryArray.from_arrays([1, 2], ["one", "two"], safe=False)])
    with pytest.raises(pa.ArrowException, match="out of bounds"):
        parquet.written_out(column)


def test_a_place_beyond_the_dictionary_is_damage(tmp_path, monkeypatch, one_by_one):
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 12)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["aaa", "bbb", "ccc"] * 10}), path, compression="none", data_page_version="1.0")
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        column = parquet._column(file, next(column_chunks(file)), "text")
    content[column.pages[1].start + 9] = 0xFF
    path.write_bytes(content)
    found = read(path)
    assert found == ([], [("is corrupt after row 0: ArrowInvalid: Index not in dictionary bounds", None)])
    assert found == one_by_one(path)


@pytest.mark.parametrize("field", ["text", "url"])
@pytest.mark.parametrize("batch_bytes", [1 << 14, 40_000, 1 << 20])
def test_a_dictionary_that_repeats_a_value_is_read_as_texts(tmp_path, monkeypatch, field, batch_bytes):
    monkeypatch.setattr(parquet, "BATCH_BYTES", batch_bytes)
    path, values = tmp_path / "a.parquet", pa.array(["aaa", "bbb", "ccc", "of no row" * 3])
    table = pa.table({"text": ["long" * 9] * 3, "url": ["short"] * 3})
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    table = table.set_column(table.schema.get_field_index(field), field, column)
    pq.write_table(table, path, compression="none", write_statistics=False, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"bbb", b"aaa"))
    ((found,), lost) = read(path)
    assert (found[field], lost) == (["aaa", "aaa", "ccc"], [])


@pytest.mark.parametrize("sizes", [[3, 0, 9], []])
@pytest.mark.parametrize("cut", [0, 1])
def test_the_longest_value_is_found_in_the_page(tmp_path, sizes, cut):
    content = b"".join(struct.pack("<I", size) + bytes(size) for size in sizes)
    (tmp_path / "page").write_bytes(content[: len(content) - cut])
    page = parquet.Page("dictionary", len(content), len(sizes), 0, 0, len(content))
    column = parquet._Column("text", parquet.Chunk(6, 0, len(sizes), 0, 0), [page])
    with (tmp_path / "page").open("rb") as file:
        if cut and sizes:
            with pytest.raises(ValueError, match="cut"):
                parquet._longest_stored(file, column)
        else:
            assert parquet._longest_stored(file, column) == max(sizes, default=0)


def test_which_rows_are_short_enough():
    texts = pa.chunked_array([pa.array(["a", None, "ééé"]), pa.array(["bb"])])
    assert parquet.up_to(texts, 1 << 20) is None
    assert np.array_equal(parquet.up_to(texts, 2), [True, True, False, True])


KINDS = [pa.string_view(), pa.binary_view(), pa.binary(4), pa.json_(), pa.binary()]


def of_kind(kind: pa.DataType, given: list[bytes | None]) -> pa.Array:
    """Return values as a column of a type, of text that may not be UTF-8 as well."""
    column = pa.array(given, pa.binary())
    if kind in (pa.string_view(), pa.json_()):
        column = pa.Array.from_buffers(pa.string(), len(given), column.buffers())
    return column.cast(kind)


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("field", ["text", "id"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_rows_of_every_type_of_text_are_checked(tmp_path, monkeypatch, kind, field, dictionary):
    monkeypatch.setattr(parquet, "ROWS", 5)
    path = tmp_path / "a.parquet"
    columns = {name: pa.array([name] * 12) for name in ("text", "id")}
    columns[field] = of_kind(kind, [b"fine", None, b"\xff\xfe\xfd\xfc", b"also", None, "né!".encode()] * 2)
    pq.write_table(pa.table(columns), path, row_group_size=7, use_dictionary=dictionary)
    for batch_bytes in (16, 1 << 20):
        monkeypatch.setattr(parquet, "BATCH_BYTES", batch_bytes)
        found, lost = read(path, id_field="id")
        assert [text for table in found for text in table[field]] == ["fine", "also", "né!"] * 2
        assert sum(count for _, count in lost) == 6
    for row, reason in ((1, "has null"), (2, "is not UTF-8")):
        pq.write_table(pa.table(columns).slice(row, 1), path)
        assert read(path, id_field="id")[1] == [(f"row 0 {reason} in its field {field!r}", 1)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dictionary", [True, False])
def test_long_values_of_every_type_of_text_are_removed(tmp_path, kind, dictionary):
    short = b"four" if kind == pa.binary(4) else b"abc"
    columns = {"text": ["one", "two", "six"], "url": of_kind(kind, [b"four", None, short])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", use_dictionary=dictionary)
    ((found,), lost) = read(tmp_path / "a.parquet", max_record_bytes=3)
    assert found["url"] == ([None] if short == b"four" else [None, "abc"])
    assert sum(count for _, count in lost) == len(columns["text"]) - len(found["url"])


@pytest.mark.parametrize("kind", [pa.binary(1 << 10), pa.json_()], ids=str)
def test_values_that_arrow_keeps_in_no_dictionary_are_a_few_at_a_time(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 14)
    path, tables = tmp_path / "a.parquet", parquet.read_rows
    pq.write_table(pa.table({"text": ["short"] * 100, "url": of_kind(kind, [b"a" * (1 << 10)] * 100)}), path)
    sizes = []
    monkeypatch.setattr(
        "longcrawl.sources.text.read_rows",
        lambda *given: (sizes.append(table.nbytes) or (first, table) for first, table in tables(*given)),
    )
    _, lost = read(path, max_record_bytes=10)
    assert sum(count for _, count in lost) == 100
    assert len(sizes) > 4
    assert max(sizes) < 1 << 15


def test_columns_are_cast_where_their_type_asks_for_it():
    values = [b"fine", None, b"\xff\xfe\xfd\xfc", b"also"]
    for kind in KINDS[:-2]:
        for first, rows in ((0, 4), (1, 3), (2, 1), (4, 0)):
            found = parquet._any_length(of_kind(kind, values).slice(first, rows))
            found.validate(full=True)
            assert found.type == pa.large_binary()
            assert found.to_pylist() == values[first : first + rows]
    for column in (of_kind(pa.binary(), values), pa.array(["a"]).dictionary_encode(), pa.array([1])):
        assert parquet._any_length(column) is column


DELTA = ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]


@pytest.mark.parametrize("encoding", DELTA)
@pytest.mark.parametrize("field", ["text", "url"])
def test_a_dictionary_with_a_long_value_beside_a_column_of_another_encoding(tmp_path, encoding, field):
    """Arrow cannot make places in a dictionary of the other column's pages."""
    path, other = tmp_path / "a.parquet", "url" if field == "text" else "text"
    columns = {field: ["x" * 300_000, "short", "x" * 300_000] * 10, other: [f"{row}" for row in range(30)]}
    settings = {"use_dictionary": [field], "column_encoding": {other: encoding}}
    pq.write_table(pa.table(columns), path, row_group_size=20, **settings)
    found, lost = read(path, max_record_bytes=1 << 10)
    assert [text for table in found for text in table[other]] == columns[other][1::3]
    assert sum(count for _, count in lost) == 20


@pytest.fixture
def mixed(tmp_path):
    """Return a file and its texts: of its first page in a dictionary, of the second as DELTA_LENGTH_BYTE_ARRAY."""
    path, schema = tmp_path / "mixed.parquet", pa.schema([pa.field("text", pa.string(), nullable=False)])
    texts = ["long" * 100, "short"] * 16 + [f"{row:05}" for row in range(32)]
    settings = {"compression": "none", "write_batch_size": 32, "data_page_size": 1, "write_page_checksum": False}

    def pages(given: list[str], **encoding) -> tuple[bytes, list[parquet.Page]]:
        pq.write_table(pa.table({"text": given}, schema), path, **settings, **encoding)
        with path.open("rb") as file:
            return path.read_bytes(), parquet._column(file, next(column_chunks(file)), "text").pages

    content, (page,) = pages(texts[32:], use_dictionary=False, column_encoding={"text": DELTA[0]})
    body = content[page.start : page.start + page.stored]
    content, (_, first, second) = pages(texts, dictionary_pagesize_limit=300)
    assert (first.encoding, second.encoding, second.values) == (8, 0, 32)
    begin, end = first.start + first.stored, second.start + second.stored
    header = content[begin : second.start].replace(b"\x15\0\x15\6\x15\6", b"\x15\x0c\x15\6\x15\6")
    path.write_bytes(content[:begin] + header + body.ljust(second.stored, b"\0") + content[end:])
    assert pq.read_table(path)["text"].to_pylist() == texts
    return path, texts


@pytest.mark.parametrize("batch_bytes", [1 << 12, 1 << 13, 1 << 20])
def test_a_dictionary_before_pages_of_another_encoding(monkeypatch, mixed, one_by_one, batch_bytes):
    monkeypatch.setattr(parquet, "BATCH_BYTES", batch_bytes)
    path, texts = mixed
    found = read(path)
    assert [text for table in found[0] for text in table["text"]] == texts
    assert max(sum(map(len, table["text"])) for table in found[0]) <= max(batch_bytes, 400)
    assert found[1] == []
    found, lost = read(path, max_record_bytes=100)
    assert [text for table in found for text in table["text"]] == [text for text in texts if len(text) < 100]
    assert sum(count for _, count in lost) == 16
    assert [text for table in one_by_one(path)[0] for text in table["text"]] == texts
