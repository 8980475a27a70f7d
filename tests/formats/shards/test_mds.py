"""MosaicML's shards: the bytes that the specification says, read by a few lines of NumPy."""

import json
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError

mds = lc.formats.mds
END = 600
DOCUMENTS = [[1, 2], [3], [4, 5, 6]]


def naive(folder: Path) -> list[list[int]]:
    """Read the arrays of all shards that an index lists."""
    found = []
    for listed in json.loads((folder / "index.json").read_text())["shards"]:
        content = (folder / listed["raw_data"]["basename"]).read_bytes()
        assert len(content) == listed["raw_data"]["bytes"]
        kind = np.dtype(listed["column_encodings"][0].partition(":")[2])
        for number in range(listed["samples"]):
            start, end = struct.unpack_from("<2I", content, 4 + 4 * number)
            assert struct.unpack_from("<I", content, start) == (end - start - 4,)
            width = 1 << (content[start + 4] & 3)
            count = int.from_bytes(content[start + 5 : start + 5 + width], "little")
            found.append(np.frombuffer(content, kind, count, start + 5 + width).tolist())
            assert start + 5 + width + count * kind.itemsize == end
    return found


@pytest.fixture
def shard(token_table, tmp_path) -> Path:
    mds.write([token_table(DOCUMENTS)], tmp_path / "00000.mds", end_of_text=END)
    (tmp_path / "00000.mds.crc32c").unlink()
    return tmp_path / "00000.mds"


def test_the_bytes_are_those_of_the_specification(shard):
    settings = (
        b'{"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"], "column_sizes": [null], '
        b'"compression": null, "format": "mds", "hashes": [], "size_limit": null, "version": 2}'
    )
    first = 20 + len(settings)
    samples = struct.pack("<IBB3H", 8, 4, 3, 1, 2, END) + struct.pack("<IBB2H", 6, 4, 2, 3, END)
    samples += struct.pack("<IBB4H", 10, 4, 4, 4, 5, 6, END)
    starts = struct.pack("<5I", 3, first, first + 12, first + 22, first + 36)
    assert shard.read_bytes() == starts + settings + samples


@given(
    shards=st.lists(
        st.lists(st.lists(st.integers(0, END - 1), max_size=300), min_size=1, max_size=5), min_size=1, max_size=3
    ),
    wide=st.booleans(),
)
def test_a_naive_reader_finds_every_token_and_document(token_table, shards, wide):
    dtype = "uint32" if wide else "uint16"
    with tempfile.TemporaryDirectory() as folder:
        for number, documents in enumerate(shards):
            mds.write([token_table(documents, dtype)], f"{folder}/{number:05d}.mds", end_of_text=END)
        mds.write_index(folder)
        assert naive(Path(folder)) == [[*each, END] for one in shards for each in one]


def test_long_documents_have_wider_lengths(token_table, tmp_path, documents_in):
    documents = [[1] * length for length in (255, 256, 65_535, 65_536)]
    mds.write([token_table(documents)], tmp_path / "a.mds")
    mds.write_index(tmp_path)
    assert naive(tmp_path) == documents == documents_in(mds.open(tmp_path / "a.mds"))


def foreign(path: Path, encodings: dict[str, str], samples: list[list[bytes]]) -> None:
    """Write a shard as MDSWriter does: columns by name, of variable size, with all sizes before all columns."""
    settings = {"column_names": [*encodings], "column_encodings": [*encodings.values()]}
    packed = json.dumps(settings | {"column_sizes": [None] * len(encodings)}).encode()
    made = [b"".join([*(struct.pack("<I", len(each)) for each in sample), *sample]) for sample in samples]
    starts = 8 + 4 * len(made) + len(packed) + np.cumsum([0, *map(len, made)])
    path.write_bytes(struct.pack("<I", len(made)) + starts.astype("<u4").tobytes() + packed + b"".join(made))


def test_columns_of_bytes_and_of_fixed_shapes_are_read(tmp_path, documents_in, sentence_of):
    rows = [np.arange(5), np.arange(2)]
    foreign(tmp_path / "a.mds", {"id": "str", "x": "bytes"}, [[b"abc", each.astype("<i8").tobytes()] for each in rows])
    read = mds.open(tmp_path / "a.mds", column="x", encoding_type="int64")
    assert documents_in(read) == [[*range(5)], [0, 1]]
    assert read.left_out == ("the column id",)
    assert "set encoding_type, such as 'int64'" in sentence_of(FormatError, mds.open, tmp_path / "a.mds", column="x")
    assert "no column 'tokens', it has id, x" in sentence_of(FormatError, mds.open, tmp_path / "a.mds")
    assert "has str in its column 'id'" in sentence_of(FormatError, mds.open, tmp_path / "a.mds", column="id")
    reading = {"column": "x", "encoding_type": "int64"}
    told = lc.convert(tmp_path / "a.mds", tmp_path / "a.ds", on_loss="warn", reading=reading)
    assert told.losses == ("the column id",)
    shape = {"tokens": "ndarray:int32:3"}
    foreign(tmp_path / "b.mds", shape, [[np.arange(3, dtype="<i4").tobytes()]] * 2)
    assert documents_in(mds.open(tmp_path / "b.mds")) == [[0, 1, 2]] * 2


def test_damaged_and_impossible_shards_are_one_sentence(shard, token_table, tmp_path, sentence_of):
    whole = shard.read_bytes()
    for content, said in (
        (whole[:-1], "is cut: it ends at byte"),
        (whole[:10], "within the starts of documents"),
        (whole[:8] + b"\0\0\0\0" + whole[12:], "start before the ones before them"),
        (whole[:20] + b"!" + whole[21:], "cannot be read"),
        (whole[:-14] + b"\1" + whole[-13:], "whose tokens are not within it"),
    ):
        shard.write_bytes(content)
        assert said in sentence_of(CorruptionError, mds.open, shard)
        assert lc.verify(shard).problems
    assert "document 1 has no token" in sentence_of(
        FormatError, mds.write, [token_table([[1], []])], tmp_path / "b.mds"
    )


@pytest.mark.parametrize(("kind", "bad"), [("int64", (1 << 32) + 5), ("int64", -100), ("int32", -1)])
def test_an_id_that_no_token_has_is_named(tmp_path, sentence_of, kind, bad):
    samples = [
        struct.pack("<IBB", 2 + ids.nbytes, 4, len(ids)) + ids.tobytes()
        for ids in map(np.dtype(kind).type, ([1, 2], [bad, 3]))
    ]
    settings = {"compression": None, "format": "mds", "column_names": ["tokens"], "column_sizes": [None]}
    packed = json.dumps(settings | {"column_encodings": [f"ndarray:{kind}"]}).encode()
    starts = 20 - 4 + len(packed) + np.cumsum([0, *map(len, samples)])
    file = tmp_path / "shard.00000.mds"
    file.write_bytes(struct.pack("<4I", 2, *starts.tolist()) + packed + b"".join(samples))
    said = sentence_of(CorruptionError, mds.open, file)
    assert said.startswith(f"{file} has id {bad:,} in document 1, and ids are from 0 to 4,294,967,295")
    assert lc.verify(file).problems == (said,)
    assert said == sentence_of(CorruptionError, lc.convert, file, tmp_path / "a.ds")


def test_an_index_of_other_files_is_not_replaced(token_table, tmp_path, sentence_of):
    lc.formats.datatrove.write([token_table([[1]])], tmp_path / "a.ds")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/index.json").write_text("{}")
    for suffix, name in ((".mds", "mds"), (".bin", "litdata")):
        said = sentence_of(FormatError, lc.convert, tmp_path / "a.ds", tmp_path / f"out/a{suffix}", name)
        assert "lists other files than the shards" in said
