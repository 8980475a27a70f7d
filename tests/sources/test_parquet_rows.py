"""Row groups whose dictionaries are read once, and what they must not change: rows, tables, ids and what is lost."""

import random
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longcrawl.core.sources import BadFiles
from longcrawl.sources import parquet_rows
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
            without.setattr(parquet_rows, "_at_once", lambda *_: None)
            without.setattr(parquet_rows, "_longest_stored", fails)
            return read(path, **fields)

    return apart


def values(rows: int, seed: int) -> list[bytes | None]:
    """Return texts of which some are null, equal to others, or not UTF-8."""
    chosen = random.Random(seed)
    texts = ["é".encode() * chosen.randrange(60) + b"%d" % row for row in range(rows)]
    for row in range(0, rows, 17):
        texts[row] = chosen.choice([None, b"\xff", texts[row // 2], b""])
    return texts


@pytest.mark.parametrize(
    ("codec", "version"),
    [("none", "1.0"), ("snappy", "2.0"), ("gzip", "1.0"), ("brotli", "2.0"), ("zstd", "1.0"), ("lz4", "2.0")],
)
@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_dictionaries_that_are_read_once_change_nothing(tmp_path, monkeypatch, one_by_one, codec, version, limit):
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 1 << 16)
    asked, path = [], tmp_path / "a.parquet"
    monkeypatch.setattr(parquet_rows, "_at_once", noted(parquet_rows._at_once, asked))
    monkeypatch.setattr(parquet_rows, "_longest_stored", noted(parquet_rows._longest_stored, asked))
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
        found = parquet_rows.written_out(column)
        assert found.type == pa.large_string()
        assert found.to_pylist() == column.to_pylist()
        if places:
            assert (found.chunk(0).buffers()[2].address == values.buffers()[2].address) == shared


def test_rows_in_order_that_go_beyond_their_dictionary_are_not_cut():
    column = pa.chunked_array([pa.DictionaryArray.from_arrays([1, 2], ["one", "two"], safe=False)])
    with pytest.raises(pa.ArrowException, match="out of bounds"):
        parquet_rows.written_out(column)


def test_a_place_beyond_the_dictionary_is_damage(tmp_path, monkeypatch, one_by_one):
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 1 << 12)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["aaa", "bbb", "ccc"] * 10}), path, compression="none", data_page_version="1.0")
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        column = parquet_rows._column(file, next(column_chunks(file)), "text")
    content[column.pages[1].start + 9] = 0xFF
    path.write_bytes(content)
    found = read(path)
    assert found == ([], [("is corrupt after row 0: ArrowInvalid: Index not in dictionary bounds", None)])
    assert found == one_by_one(path)


@pytest.mark.parametrize("field", ["text", "url"])
@pytest.mark.parametrize("batch_bytes", [1 << 14, 40_000, 1 << 20])
def test_a_dictionary_that_repeats_a_value_is_read_as_texts(tmp_path, monkeypatch, field, batch_bytes):
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", batch_bytes)
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
    page = parquet_rows.Page("dictionary", len(content), len(sizes), 0, 0, len(content))
    column = parquet_rows._Column("text", parquet_rows.Chunk(6, 0, len(sizes), 0, 0), [page])
    with (tmp_path / "page").open("rb") as file:
        if cut and sizes:
            with pytest.raises(ValueError, match="cut"):
                parquet_rows._longest_stored(file, column)
        else:
            assert parquet_rows._longest_stored(file, column) == max(sizes, default=0)


def test_which_rows_are_short_enough():
    texts = pa.chunked_array([pa.array(["a", None, "ééé"]), pa.array(["bb"])])
    assert parquet_rows.up_to(texts, 1 << 20) is None
    assert np.array_equal(parquet_rows.up_to(texts, 2), [True, True, False, True])
