"""OLMo-core's token files: the bytes that the specification says, read by a few lines of NumPy and csv."""

import csv
import gzip
import json
import struct
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards.spec import shards_in, verify_shards

olmo_core = lc.formats.olmo_core
END = 600
DOCUMENTS = [[1, 2], [3], [4, 5, 6]]
MASKS = [[True, False], [True], [False, False, True]]


def naive(path: Path, dtype: str) -> tuple[list[list[int]], list[list[str]]]:
    """Read the tokens of each row, and the rest of the row."""
    tokens = np.memmap(path, dtype, "r")
    with gzip.open(path.with_suffix(".csv.gz"), "rt", newline="") as lines:
        rows = list(csv.reader(lines))
    return [tokens[int(row[0]) : int(row[1])].tolist() for row in rows], [row[2:] for row in rows]


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    table = token_table(DOCUMENTS, loss_mask=MASKS, id=["a", 'b,"c"', ""])
    table = table.append_column("file", [["x.jsonl", "ü.jsonl", "x.jsonl"]]).append_column("offset", [[0, 70, 99]])
    olmo_core.write([table], tmp_path / "part-0.npy", end_of_text=END)
    (tmp_path / "part-0.npy.crc32c").unlink()
    return tmp_path / "part-0.npy"


def rows_of(shard: Path) -> Path:
    return shard.with_suffix(".csv.gz")


def test_the_bytes_are_those_of_the_specification(shard):
    assert shard.read_bytes() == struct.pack("<9H", 1, 2, END, 3, END, 4, 5, 6, END)
    assert Path(f"{shard}.loss").read_bytes() == bytes([1, 0, 1, 1, 1, 0, 0, 1, 1])
    packed = rows_of(shard).read_bytes()
    assert packed[:10] == b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"  # neither a name nor a time
    assert gzip.decompress(packed).decode() == ('0,3,a,x.jsonl,0\r\n3,5,"b,""c""",ü.jsonl,70\r\n5,9,,x.jsonl,99\r\n')
    assert len(list(shard.parent.iterdir())) == 3


def test_ends_and_mask_are_read_and_origins_named(shard, documents_in):
    opened = olmo_core.open(shard)
    assert documents_in(opened) == [[*one, END] for one in DOCUMENTS]
    assert opened.loss_mask.tolist() == [True, False, True, True, True, False, False, True, True]
    assert opened.left_out == ("the columns id, src, loc",)
    assert isinstance(opened.tokens, np.memmap)
    assert str(olmo_core.verify(shard, vocabulary_size=END + 1)) == (
        f"{shard}: whole; olmo-core, 3 documents, 9 tokens, uint16; every id compared with a vocabulary of 601"
    )


@given(
    documents=st.lists(
        st.tuples(st.lists(st.integers(0, END - 1), max_size=9), st.text(st.characters(exclude_characters="\r\n"))),
        min_size=1,
        max_size=12,
    ),
    wide=st.booleans(),
)
def test_a_naive_reader_finds_every_token_and_id(token_table, documents, wide):
    tokens, ids = zip(*documents, strict=True)
    dtype = "uint32" if wide else "uint16"
    ids = [each.encode("utf-8", "replace").decode() for each in ids]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.npy")
        olmo_core.write([token_table(tokens, dtype, id=ids)], path, end_of_text=END)
        found, others = naive(path, dtype)
        assert found == [[*each, END] for each in tokens]
        assert others == [[each, "", str(number)] for number, each in enumerate(ids)]
        read = next(iter(olmo_core.OlmoCore.reading(path, {}).documents)).table()
        assert read["id"].to_pylist() == ids
        assert read["tokens"].to_pylist() == found


def test_origins_go_to_parquet_and_come_back(shard, tmp_path, sentence_of):
    lc.convert(shard, tmp_path / "a.parquet", end_of_text=END)
    table = lc.formats.token_parquet.read(tmp_path / "a.parquet")
    assert next(table).select(["id", "src", "loc"]).to_pylist()[1] == {"id": 'b,"c"', "src": "ü.jsonl", "loc": 70}
    told = lc.convert(tmp_path / "a.parquet", tmp_path / "again" / "part-0.npy")
    assert told.losses == ()
    for file in shard.parent.glob("part-0*"):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    said = sentence_of(FormatError, lc.convert, shard, tmp_path / "b.ds")
    assert "datatrove cannot hold the columns id, src, loc" in said


def test_columns_that_rows_have_no_place_for_are_a_loss(token_table, tmp_path, sentence_of):
    table = token_table([[1], [2]], id=["a", "b"]).append_column("url", [["u", "v"]]).append_column("n", [[1, 2]])
    lc.formats.token_parquet.write([table], tmp_path / "a.parquet", end_of_text=END)
    said = sentence_of(FormatError, lc.convert, tmp_path / "a.parquet", tmp_path / "a.npy")
    assert "olmo-core cannot hold the column n" in said
    lc.formats.token_parquet.write([table.drop_columns("n")], tmp_path / "b.parquet", end_of_text=END)
    assert not lc.convert(tmp_path / "b.parquet", tmp_path / "b.npy").losses
    assert naive(tmp_path / "b.npy", "<u2")[1] == [["a", "u", "0"], ["b", "v", "1"]]


def test_documents_without_an_id_have_rows_of_two_numbers(token_table, tmp_path):
    olmo_core.write([token_table(DOCUMENTS)], tmp_path / "a.npy", end_of_text=END)
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == b"0,3\r\n3,5\r\n5,9\r\n"
    assert olmo_core.open(tmp_path / "a.npy").left_out == ()


def test_documents_that_the_end_of_text_does_not_separate_are_a_loss(token_table, documents_in, tmp_path, sentence_of):
    documents = [[1, END], [2], [3, END, 4, END], []]
    settings = {"end_of_text": END, "terminate": "never"}
    said = sentence_of(FormatError, olmo_core.write, [token_table(documents)], tmp_path / "a.npy", **settings)
    assert "the ends of 3 documents, which it finds by token 600 at the end alone" in said
    with pytest.warns(UserWarning, match="the ends of 3 documents"):
        olmo_core.write([token_table(documents)], tmp_path / "a.npy", **settings, on_loss="warn")
    assert documents_in(olmo_core.open(tmp_path / "a.npy")) == documents


def test_without_rows_documents_are_found_by_their_end(shard, documents_in, sentence_of):
    rows_of(shard).unlink()
    assert "part-0.csv.gz and nothing else records the width of" in sentence_of(FormatError, olmo_core.open, shard)
    assert "set end_of_text=ID" in sentence_of(FormatError, len, olmo_core.open(shard, token_size=2))
    opened = olmo_core.open(shard, token_size=2, end_of_text=END)
    assert documents_in(opened) == [[*one, END] for one in DOCUMENTS]


def test_rows_that_olmo_core_writes_are_read(shard, documents_in):
    with gzip.open(rows_of(shard), "wt") as lines:
        lines.write("0,3\n3,5\n5,9\n")
    assert documents_in(olmo_core.open(shard)) == [[*one, END] for one in DOCUMENTS]
    assert olmo_core.open(shard).left_out == ()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (b"0,3\n3,5\n5,8\n", "has 18 bytes, but its index ends at token 8, which is byte 16 or 32"),
        (b"0,3\n4,5\n5,9\n", "records on line 2 a document from token 4 to 5, after one that ends at 3"),
        (b"0,3\n3,2\n2,9\n", "records on line 2 a document from token 3 to 2"),
        (b"0,3\n3,5,a\n5,9\n", "is cut, or holds other rows than start,end,id,src,loc"),
        (b"start,end\n0,9\n", "is cut, or holds other rows than start,end,id,src,loc"),
        (b"0,\n3,9\n", "has rows without a start and an end"),
        (b"9\n", "has rows without a start and an end"),
        (b"", "has 18 bytes, but its index ends at token 0"),
    ],
)
def test_wrong_rows_are_one_sentence_and_a_problem_of_verify(shard, sentence_of, rows, said):
    rows_of(shard).write_bytes(gzip.compress(rows))
    assert said in sentence_of(CorruptionError, olmo_core.open, shard)
    assert any(said in problem for problem in lc.verify(shard).problems)


def test_damaged_files_are_one_sentence(shard, sentence_of):
    packed = rows_of(shard).read_bytes()
    rows_of(shard).write_bytes(packed[:-9])
    assert "part-0.csv.gz is cut, or holds other rows" in sentence_of(CorruptionError, olmo_core.open, shard)
    rows_of(shard).write_bytes(packed)
    Path(f"{shard}.loss").write_bytes(bytes([0, 0, 0, 2, 0, 0, 0, 0, 0]))
    assert "part-0.npy.loss has 2 at byte 3" in sentence_of(CorruptionError, olmo_core.open, shard)
    np.save(shard, np.zeros(9, np.uint16))
    assert "begins with numpy's header" in sentence_of(FormatError, olmo_core.open, shard)


def test_what_cannot_be_stored_is_one_sentence(token_table, tmp_path, sentence_of):
    path = tmp_path / "a.npy"
    for name in ("id", "file"):
        table = token_table([[1], [2]], id=["a", "b"]).append_column("file", [["a", "b"]])
        table = table.set_column(table.column_names.index(name), name, [["a", "b\nc"]])
        said = sentence_of(FormatError, olmo_core.write, [table], path, end_of_text=END)
        assert f"document 1 has a line break in its {name}, 'b\\nc'" in said
    for names, places in ((("src", "loc"), ["p. 1", "p. 2"]), (("file", "offset"), [1.0, 2.0])):
        table = token_table([[1], [2]], id=["a", "b"])
        table = table.append_column(names[0], [["a", "b"]]).append_column(names[1], [places])
        said = sentence_of(FormatError, olmo_core.write, [table], path, end_of_text=END)
        assert f"the column '{names[1]}' is " in said
        assert f"a place in '{names[0]}' is a whole number: rename or remove it" in said
    tables = [token_table([[1]], id=["a"]), token_table([[1]])]
    assert "give all the same" in sentence_of(FormatError, olmo_core.write, tables, path, end_of_text=END)
    assert "would have no tokens" in sentence_of(FormatError, olmo_core.write, [], path)
    assert "must end in .npy" in sentence_of(FormatError, olmo_core.write, [], tmp_path / "a")


def test_unknown_places_come_back_as_nulls(token_table, tmp_path):
    table = token_table([[1], [2]], id=["a", "b"]).append_column("src", [["x", "y"]])
    for number, places in enumerate(([7, None], [None, None])):
        olmo_core.write([table.append_column("loc", [places])], tmp_path / f"{number}.npy", end_of_text=END)
        lc.convert(tmp_path / f"{number}.npy", tmp_path / f"{number}.parquet", end_of_text=END)
        assert pq.read_table(tmp_path / f"{number}.parquet")["loc"].to_pylist() == places


def test_other_arrays_beside_shards_are_no_shards(shard, tmp_path):
    np.save(tmp_path / "embeddings.npy", np.zeros(3))
    assert shards_in(tmp_path) == [shard]
    assert [Path(file).name for file in shards_in(tmp_path, "olmo-core")] == ["embeddings.npy", "part-0.npy"]


@pytest.mark.parametrize("name", [None, "olmo-core"])
@pytest.mark.parametrize("others", [True, False])
def test_a_shard_that_has_lost_its_rows_is_not_passed_over(shard, tmp_path, sentence_of, name, others):
    folder = tmp_path / "fetched" / "deep"
    folder.mkdir(parents=True)
    for file in (shard, rows_of(shard)):
        (folder / file.name).write_bytes(file.read_bytes())
        (folder / file.name.replace("part-0", "part-1")).write_bytes(file.read_bytes())
    (folder / "part-1.csv.gz").unlink()
    if not others:
        (folder / "part-0.npy").unlink()
    lost = "part-1.npy has no part-1.csv.gz and nothing else records the width of its tokens: open it with token_size=2"
    for read in (
        lambda: lc.convert(tmp_path / "fetched", tmp_path / "made", "datatrove", source_format=name),
        lambda: lc.loading.Packed(tmp_path / "fetched", max_length=4, format=name),
        lambda: lc.loading.Windows(tmp_path / "fetched", seq_len=2, format=name),
        lambda: verify_shards(tmp_path / "fetched", name),
    ):
        assert lost in sentence_of(FormatError, read)
    told = {"reading": {"token_size": 2}, "end_of_text": END, "source_format": name}
    made = lc.convert(tmp_path / "fetched", tmp_path / "made", "token-parquet", **told)
    assert sum(each.documents for each in made.shards) == 3 * (1 + others)


def test_a_run_writes_where_its_documents_were_found(tmp_path, tokenizer):
    texts = [{"id": f"d{number}", "text": "abcd efgh " * (number + 1)} for number in range(5)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in texts))
    recipe = {
        "longcrawl": 1,
        "name": "olmo",
        "source": {
            "builder": "text",
            "data_files": str(tmp_path / "texts.jsonl"),
            "id_field": "id",
            "origins": "line",
        },
        "stages": [{"tokenize": {"tokenizer": tokenizer}}],
        "outputs": {"olmo-core": {}},
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    lc.run(tmp_path / "r.yaml", tmp_path / "run")
    tokens, others = naive(tmp_path / "run/olmo-core/train/00000.npy", "<u2")
    encoder = lc.tokens.Tokenize(tokenizer).encoder()
    assert tokens == [[*encoder.encode([each["text"]]).ids.tolist(), 0] for each in texts]
    lines = (tmp_path / "texts.jsonl").read_bytes()
    assert [each[:2] for each in others] == [[each["id"], "texts.jsonl"] for each in texts]
    assert [json.loads(lines[int(each[2]) :].splitlines()[0])["id"] for each in others] == [f"d{n}" for n in range(5)]
    assert not lc.verify(tmp_path / "run").problems
