"""Parquet files of some kB whose rows would fill the memory: read in bounded memory, or one sentence."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longcrawl.core.sources import BadFiles
from longcrawl.sources import parquet
from longcrawl.sources.parquet import column_chunks, column_pages
from longcrawl.sources.text import Text

LONG = 16 << 20
LIMIT = 1 << 20
CONFINED = """
import resource, sys
from pathlib import Path
from longcrawl.core.sources import BadFiles, make_source
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
source, bad = make_source("text", {"data_files": sys.argv[1], "max_record_bytes": int(sys.argv[2])}), BadFiles("skip")
print(sum(table.num_rows for part in source.splits()["train"] for table in source.read(part, bad)))
for found in bad.found:
    print(found.records_lost, found.reason)
"""


@pytest.fixture
def read_confined(python) -> Callable[..., list[str]]:
    """Return what returns rows and what was lost, of a process that may take 1 GB."""

    def read(path: Path, most: int = LIMIT) -> list[str]:
        assert path.stat().st_size < 500_000
        done = python(CONFINED, path, most)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return read


@pytest.mark.slow
@pytest.mark.parametrize("field", ["url", "date"])
def test_a_dictionary_of_another_column(tmp_path, read_confined, field):
    """One URL of 16 MB in 9,999 rows."""
    places = pa.array([0] + [1] * 9_999, pa.int32())
    values = pa.DictionaryArray.from_arrays(places, pa.array(["short", "a" * LONG]))
    table = pa.table({"text": [str(row) for row in range(10_000)], field: values})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", store_schema=False)
    rows, lost = read_confined(tmp_path / "a.parquet")
    assert rows == "1"
    assert lost.startswith(
        f"9999 row 1 has more than 1,048,576 bytes in its field {field!r}; to read it, raise max_rec"
    )


@pytest.mark.slow
def test_a_dictionary_behind_a_plain_page(tmp_path, read_confined):
    """A first page of plain texts hides the dictionary, which the pages behind it use."""
    path = tmp_path / "a.parquet"
    settings = {"dictionary_pagesize_limit": 100, "write_batch_size": 96, "data_page_size": 100}
    table = pa.table({"text": pa.concat_arrays([pa.repeat("a" * LONG, 96), pa.array(["plain"] * 96)])})
    pq.write_table(table, path, compression="zstd", **settings)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = path.read_bytes()
    with path.open("rb") as file:
        fields, used = parquet._header(file, chunk.data_page_offset)
    start, middle = chunk.dictionary_page_offset, chunk.data_page_offset + used + fields[3]
    end = start + chunk.total_compressed_size
    path.write_bytes(content[:start] + content[middle:end] + content[start:middle] + content[end:])
    with path.open("rb") as file:
        chunks = next(column_chunks(file))
        assert [page.kind for page in column_pages(file, chunks["text",])] == ["values", "dictionary", "values"]
        column = parquet._column(file, chunks, "text")
        assert parquet._longest(pytest.fail, file, 0, column) >= LONG
    source, bad = Text(data_files=str(path), max_record_bytes=LIMIT), BadFiles("skip")
    assert sum(table.num_rows for table in source.read(source.splits()["train"][0], bad)) == 96
    assert bad.found[0].reason.startswith("row 96 has more than 1,048,576 bytes")


@pytest.mark.slow
def test_values_that_share_their_prefix(tmp_path, read_confined):
    """400 texts of 4 MB, each but the first stored as the length that it shares with the one before."""
    table = pa.table({"text": pa.repeat("a" * (4 << 20), 400)})
    settings = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", **settings)
    assert read_confined(tmp_path / "a.parquet", 8 << 20) == ["400"]


@pytest.mark.slow
def test_pages_of_one_row_each(tmp_path, read_confined):
    """800 pages of 2 MB, each of some hundred bytes."""
    table = pa.table({"text": pa.repeat("a" * (2 << 20), 800)})
    settings = {"use_dictionary": False, "data_page_size": 1, "write_batch_size": 1}
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", **settings)
    assert read_confined(tmp_path / "a.parquet", 4 << 20) == ["800"]


def test_a_page_that_is_too_large_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "PAGES_BYTES", 1 << 20)
    settings = {"use_dictionary": False, "compression": "zstd"}
    pq.write_table(pa.table({"text": ["a" * (2 << 20)]}), tmp_path / "a.parquet", **settings)
    source, bad = Text(data_files=str(tmp_path / "a.parquet"), max_record_bytes=1 << 10), BadFiles("skip")
    assert list(source.read(source.splits()["train"][0], bad)) == []
    assert bad.found[0].reason.startswith("has pages of 2,097,1")
    assert "1,048,576 can be read at once; write it again with smaller pages" in bad.found[0].reason


def test_a_list_in_place_of_a_text_is_named(tmp_path):
    pq.write_table(pa.table({"text": ["one"], "url": [["x"]]}), tmp_path / "a.parquet")
    source, bad = Text(data_files=str(tmp_path / "a.parquet")), BadFiles("skip")
    assert list(source.read(source.splits()["train"][0], bad)) == []
    assert "has no text in its field 'url' but list<" in bad.found[0].reason


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_headers_of_pages_are_read_as_they_were_written(tmp_path, version, dictionary):
    table = pa.table({"text": ["abc" * row for row in range(3_000)], "url": [None, "x"] * 1_500})
    settings = {
        "data_page_version": version,
        "use_dictionary": dictionary,
        "data_page_size": 50_000,
        "write_statistics": False,
    }
    pq.write_table(table, tmp_path / "a.parquet", **settings)
    group = pq.read_metadata(tmp_path / "a.parquet").row_group(0)
    with (tmp_path / "a.parquet").open("rb") as file:
        for number, chunk in enumerate(next(column_chunks(file)).values()):
            pages = list(column_pages(file, chunk))
            assert sum(page.values for page in pages if page.kind == "values") == 3_000
            assert any(page.kind == "dictionary" for page in pages) == dictionary
            headers = group.column(number).total_uncompressed_size - sum(page.bytes for page in pages)
            assert 0 < headers < 3_000


def test_a_footer_whose_statistics_contradict_its_schema(tmp_path, read_confined):
    """One flipped bit makes a column required that has a histogram of nulls: pyarrow ended the process."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "url": ["x", None]}), path)
    content = path.read_bytes()
    optional, required = b"\x25\x02\x18\x03url", b"\x25\x00\x18\x03url"
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, required))
    assert read_confined(path) == [
        "0",
        "None is corrupt after row 0: OSError: Definition level histogram size mismatch, size: 2, expected: 1",
    ]


def test_a_column_with_a_dot_in_its_name(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"my.text": ["one", "two"]}), path)
    source = Text(data_files=str(path), text_field="my.text")
    tables = list(source.read(source.splits()["train"][0], BadFiles("error")))
    assert [text for table in tables for text in table["text"].to_pylist()] == ["one", "two"]


def test_a_footer_that_is_encrypted_or_none(tmp_path):
    for tail in (b"\4\0\0\0PARE", b"\xff\xff\xff\x7fPAR1"):
        (tmp_path / "a").write_bytes(bytes(9) + tail)
        with (tmp_path / "a").open("rb") as file, pytest.raises(ValueError, match="its footer is missing or encrypted"):
            list(column_chunks(file))
