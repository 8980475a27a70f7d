"""Tables of runs and outputs are compared with what was recorded of them, footers included."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

import longcrawl as lc
from longcrawl.core.outputs import RESULTS
from longcrawl.errors import CorruptionError
from longcrawl.io import stored_tables
from longcrawl.io.stored_tables import check_undamaged, chosen_rows, read_footers, read_row, read_table, scan_tables


@pytest.fixture
def output(tmp_path) -> Path:
    rows = Dataset.from_dict({"id": ["a", "b"], "text": ["one text", "another"], "url": ["u", "v"]})
    lc.Crawl(rows).to_parquet(tmp_path / "made")
    return tmp_path / "made"


def footer_of(content: bytes) -> int:
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def test_every_description_of_tables_is_known():
    assert {"manifest.json", *(told.description for told in RESULTS.values())} == set(stored_tables.DESCRIPTIONS)


READERS = {
    "table": lambda file: read_table(file).to_pylist(),
    "footers": lambda file: [footer.schema.names for footer in read_footers([file])],
    "row": lambda file: read_row([file], 1),
    "scan": lambda file: scan_tables([file]).to_table().to_pylist(),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_flipped_bit_of_a_footer_is_read(output, reader):
    (file,) = output.glob("*.parquet")
    whole, chance = file.read_bytes(), random.Random(5)
    expected = READERS[reader](file)
    assert expected
    for _ in range(40):
        content = bytearray(whole)
        place = chance.randrange(8 * footer_of(whole), 8 * len(whole))
        content[place // 8] ^= 1 << place % 8
        file.write_bytes(content)
        with pytest.raises(CorruptionError, match=r"parquet has been changed: its SHA-256 differs; longcrawl verify"):
            READERS[reader](file)
    file.write_bytes(whole)
    assert READERS[reader](file) == expected


@pytest.mark.parametrize("wanted", [["b3"], ["a0", "c9"], ["none"], []])
@pytest.mark.parametrize("files", [3, 0])
def test_chosen_rows_are_those_of_a_scan(tmp_path, files, wanted):
    for name in "abc"[:files]:
        rows = pa.table({"id": [f"{name}{row}" for row in range(10)], "row": range(10)})
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=4)
    schema = pa.schema({"id": pa.string(), "row": pa.int64()})
    tables = scan_tables(sorted(tmp_path.glob("*.parquet")), schema)
    condition = pc.field("id").isin(pa.array(wanted, pa.string()))
    assert chosen_rows(tables, condition).equals(tables.to_table(filter=condition))
    assert len(chosen_rows(tables, condition, ["row"])) == (len(wanted) if files and wanted != ["none"] else 0)


def test_inspect_and_why_compare_the_tables_that_they_read(output):
    (file,) = output.glob("*.parquet")
    content = file.read_bytes()
    start = footer_of(content)
    file.write_bytes(content[:start] + content[start:].replace(b"text", b"tfxt", 1))
    with pytest.raises(CorruptionError, match="has been changed"):
        lc.inspect(output)
    with pytest.raises(CorruptionError, match="has been changed"):
        lc.analysis(output)


def test_of_large_tables_the_names_of_columns_are_compared(output, monkeypatch):
    (file,) = output.glob("*.parquet")
    content = file.read_bytes()
    start = footer_of(content)
    monkeypatch.setattr(stored_tables, "MOST_COMPARED", len(content) - 1)
    file.write_bytes(content[:start] + content[start:].replace(b"text", b"tfxt", 1))
    for reader in READERS.values():
        with pytest.raises(
            CorruptionError, match=r"a column is named 'tfxt' and, in the schema of Arrow, 'text'; long"
        ):
            reader(file)


def test_tables_that_no_description_names_are_read(tmp_path):
    for number, description in enumerate(("[1]", '{"files": {"a.parquet": 3}}', "{", '{"files": {"b.parquet": {}}}')):
        (tmp_path / "manifest.json").write_text(description)
        pq.write_table(pa.table({"id": [number]}), tmp_path / "a.parquet")
        assert read_table(tmp_path / "a.parquet").to_pylist() == [{"id": number}]


def test_a_missing_table_is_one_sentence(output):
    (file,) = output.glob("*.parquet")
    file.unlink()
    with pytest.raises(CorruptionError, match=r"parquet is missing; longcrawl verify shows"):
        check_undamaged([file])


def test_a_file_is_read_once_for_that(output, monkeypatch):
    (file,) = output.glob("*.parquet")
    read_table(file)
    description = output / "parquet.json"
    assert json.loads(description.read_text())["files"]
    monkeypatch.setattr("longcrawl.io.files.checksum", lambda path: pytest.fail(f"{path} is read again"))
    check_undamaged([file])
