"""Contract of every token-shard format: documents are read as written, and content it cannot hold is an error."""

import pickle
import re
import struct
import tempfile
import warnings
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError, StageError
from longcrawl.formats.shards.spec import FORMATS

END = 600
NAMES = {
    "datatrove": "shard.ds",
    "gpt-simple": "shard.bin",
    "levanter": "shard/input_ids/data/c/0",
    "litdata": "shard.bin",
    "mds": "shard.mds",
    "megatron": "shard.bin",
    "nanogpt": "shard.bin",
    "olmo-core": "shard.npy",
    "token-parquet": "shard.parquet",
}
INT32 = ("levanter", "litdata", "mds", "megatron")
EVERY = pytest.mark.parametrize("name", NAMES)
SHARED = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if place else ()) for place, name in enumerate(NAMES)]
)
"""Every format, for what all of them inherit: one is enough in `make test`."""
DOCUMENTS = st.lists(st.lists(st.integers(0, END - 1), max_size=9), min_size=1, max_size=12)


def files_in(folder: "str | Path") -> list[Path]:
    return sorted(file for file in Path(folder).rglob("*") if file.is_file())


def in_tables(table: pa.Table, cuts: list[int]) -> list[pa.Table]:
    """Divide a table at some of its rows."""
    places = sorted({0, table.num_rows, *(cut % (table.num_rows + 1) for cut in cuts)})
    return [table.slice(start, stop - start) for start, stop in pairwise(places)]


def reading(name: str) -> dict[str, int]:
    return {"end_of_text": END} if name == "nanogpt" else {}


@EVERY
@given(documents=DOCUMENTS, cuts=st.lists(st.integers(0, 20), max_size=3), wide=st.booleans())
@settings(deadline=None)
def test_what_is_written_is_what_is_read(token_table, documents_in, name, documents, cuts, wide):
    dtype = "uint32" if wide else "uint16"
    ids = [[each * 7_000_000 if wide and name not in INT32 else each for each in one] for one in documents]
    ids = [[each for each in one if each != END] for one in ids]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAMES[name]
        tables = in_tables(token_table(ids, dtype), cuts)
        written = FORMATS[name].write(tables, path, end_of_text=END, dtype=dtype if name == "nanogpt" else "auto")
        shard = FORMATS[name].open(path, **reading(name) | ({"token_size": 4} if wide and name == "nanogpt" else {}))
        assert documents_in(shard) == [[*one, END] for one in ids]
        assert (written.documents, written.tokens) == (len(ids), len(shard.tokens))
        assert set(written.files) == {str(file) for file in files_in(folder)}
        assert shard.tokens.dtype == dtype
        assert shard.ends.dtype == np.int64


@pytest.mark.variants
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mds", "nanogpt")])
@given(documents=DOCUMENTS.filter(any))
@settings(deadline=None)
def test_documents_without_an_end_of_text_and_empty_ones_keep_their_ends(token_table, documents_in, name, documents):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAMES[name]
        FORMATS[name].write([token_table(documents)], path)
        shard = FORMATS[name].open(path)
        assert documents_in(shard) == documents
        assert [shard.start(number) for number in range(len(shard))] == [0, *shard.ends[:-1].tolist()]


@pytest.mark.variants
@EVERY
@given(documents=DOCUMENTS.filter(any), cuts=st.lists(st.integers(0, 20), max_size=5))
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_bytes_do_not_depend_on_how_documents_are_divided_into_tables(token_table, name, documents, cuts):
    table = token_table(documents)
    with tempfile.TemporaryDirectory() as folder:
        for number, tables in enumerate(([table], in_tables(table, cuts))):
            FORMATS[name].write(tables, Path(folder, str(number), NAMES[name]), end_of_text=END)
        one, other = (files_in(Path(folder, number)) for number in "01")
        assert [file.read_bytes() for file in one] == [file.read_bytes() for file in other]


@pytest.mark.variants
@EVERY
@pytest.mark.parametrize("beside", ["with checksums", "without checksums"])
@given(data=st.data())
@settings(deadline=None)
def test_any_cut_and_any_growth_of_any_file_is_found(token_table, name, beside, data):
    documents = data.draw(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=5).filter(any))
    masks = {"loss_mask": [[True] * len(one) for one in documents]} if "loss_mask" in FORMATS[name].holds else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAMES[name]
        FORMATS[name].write([token_table(documents, **masks)], path, end_of_text=END)
        if beside == "without checksums":
            path.with_name(f"{path.name}.crc32c").unlink()
        file = data.draw(st.sampled_from(files_in(folder)))
        content = file.read_bytes()
        size = data.draw(st.integers(0, 2 * len(content) + 8).filter(lambda size: size != len(content)))
        if beside == "without checksums" and not says_its_size(name, file, len(content), size, len(documents)):
            return
        file.write_bytes((content + bytes(size))[:size])
        with pytest.raises(CorruptionError, match=re.escape(str(path).removesuffix(FORMATS[name].suffix))):
            FORMATS[name].open(path)
        assert FORMATS[name].verify(path).problems


def says_its_size(name: str, file: Path, before: int, size: int, documents: int) -> bool:
    """Return whether the files themselves say that one of another size is damaged."""
    if name == "datatrove":  # twice as many bytes are as many tokens of twice the width
        return file.suffix != ".ds" or size != 2 * before
    if name == "olmo-core":  # gzip ends where its size and checksum are, whatever follows
        return size != 2 * before if file.suffix == ".npy" else file.suffix != ".gz" or size < before
    if name == "megatron":  # a byte for each sequence is its mode in a multimodal set
        return file.suffix != ".idx" or size != before + documents
    if name == "token-parquet":  # a reader of parquet looks for its end
        return size < before
    if name in ("levanter", "litdata") and file.suffix == ".json":
        return size < before  # JSON ends where its object does, whatever white space follows
    return name != "nanogpt"


@pytest.mark.variants
@EVERY
@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("loss_mask", [[True, False], [True, True]], "the loss mask, which is False for 1 tokens"),
        ("overlap", [0, 1], "the overlaps of 1 documents, whose first tokens would count twice"),
    ],
)
def test_what_a_format_does_not_hold_is_a_named_loss(token_table, sentence_of, tmp_path, name, column, values, said):
    path, format_ = tmp_path / NAMES[name], FORMATS[name]
    table = token_table([[1, 2], [2, 3]], **{column: values})
    if column in format_.holds:
        format_.write([table], path, terminate="never")
        assert format_.open(path).documents().table()[column].to_pylist() == values
        return
    assert f"{name} cannot hold {said}" in sentence_of(FormatError, format_.write, [table], path, end_of_text=END)
    assert not list(tmp_path.iterdir())
    with pytest.warns(UserWarning, match=f"{name} cannot hold {said}"):
        written = format_.write([table], path, end_of_text=END, on_loss="warn")
    assert tuple(map(str, written.losses)) == (said,)
    wrong = sentence_of(FormatError, format_.write, [table], path, end_of_text=END, on_loss="no")
    assert "on_loss takes one of" in wrong


@pytest.mark.variants
@EVERY
def test_a_mask_and_overlaps_that_change_nothing_are_no_loss(token_table, tmp_path, name):
    table = token_table([[1, 2], [3]], loss_mask=[[True, True], [True]], overlap=[0, 0])
    assert FORMATS[name].write([table], tmp_path / NAMES[name], end_of_text=END).losses == ()


def test_all_losses_are_in_one_sentence(token_table, sentence_of, tmp_path):
    table = token_table([[1, 2], [2, 3]], loss_mask=[[True, False], [True, True]], overlap=[0, 1])
    said = sentence_of(FormatError, FORMATS["megatron"].write, [table], tmp_path / "a.bin")
    assert "megatron cannot hold the loss mask, which is False for 1 tokens; nor the overlaps of 1 documents" in said


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("levanter", "litdata", "megatron", "olmo-core")]
)
def test_no_documents_are_an_empty_shard(tmp_path, name):
    assert FORMATS[name].write([], tmp_path / NAMES[name]).documents == 0
    shard = FORMATS[name].open(tmp_path / NAMES[name], **reading(name))
    assert len(shard) == 0
    assert list(shard.blocks()) == []


@pytest.mark.variants
@EVERY
def test_tokens_are_mapped_to_memory(token_table, tmp_path, name):
    FORMATS[name].write([token_table([[1, 2]])], tmp_path / NAMES[name], end_of_text=END)
    assert isinstance(FORMATS[name].open(tmp_path / NAMES[name]).tokens, np.memmap)


@SHARED
@pytest.mark.parametrize("verb", ["open", "verify", "write"])
def test_a_setting_that_there_is_not_is_one_sentence(token_table, sentence_of, tmp_path, name, verb):
    given_ones = [[token_table([[1]])], tmp_path / NAMES[name]] if verb == "write" else [tmp_path / NAMES[name]]
    said = sentence_of(FormatError, getattr(FORMATS[name], verb), *given_ones, compress=True)
    assert f"{name}.{verb} has no setting 'compress'; known: " in said
    assert "end_of_text, " in said


@pytest.mark.variants
@EVERY
def test_a_shard_whose_tokens_are_missing_beside_their_checksums_is_one_sentence(
    token_table, sentence_of, tmp_path, name
):
    path = tmp_path / NAMES[name]
    FORMATS[name].write([token_table([[1, 2]])], path, end_of_text=END)
    path.unlink()
    assert f"{path} is missing" in sentence_of(CorruptionError, FORMATS[name].open, path)
    assert "is missing" in str(FORMATS[name].verify(path))


@pytest.mark.variants
@EVERY
def test_a_shard_is_pickled_without_its_tokens(token_table, documents_in, tmp_path, name):
    path = tmp_path / NAMES[name]
    FORMATS[name].write([token_table([list(range(500))] * 200)], path, end_of_text=END)
    shard = FORMATS[name].open(path, end_of_text=END, vocabulary_size=END + 1)
    pickled = pickle.dumps(shard)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert documents_in(again) == documents_in(shard)
    assert (again.end_of_text, again.vocabulary_size) == (END, END + 1)


@pytest.mark.variants
@EVERY
def test_blocks_are_whole_documents_and_tables_do_not_copy_them(token_table, tmp_path, name):
    path = tmp_path / NAMES[name]
    documents = [[1] * length for length in (3, 1, 8, 2, 2, 2, 30, 1)]
    FORMATS[name].write([token_table(documents)], path, end_of_text=END)
    shard = FORMATS[name].open(path, **reading(name))
    blocks = list(shard.blocks(block_tokens=9))
    assert [block.lengths.tolist() for block in blocks] == [[4, 2], [9], [3, 3, 3], [31], [2]]
    table = shard.documents(2, 5).table()
    assert table["tokens"].to_pylist() == [[1] * length + [END] for length in (8, 2, 2)]
    assert table["n_tokens"].to_pylist() == [9, 3, 3]
    values = table["tokens"].chunk(0).values.buffers()[1]
    assert values.address == shard.tokens.ctypes.data + 6 * shard.tokens.itemsize


@pytest.mark.variants
@EVERY
def test_a_document_that_is_not_there_is_an_index_error(token_table, tmp_path, name):
    path = tmp_path / NAMES[name]
    FORMATS[name].write([token_table([[1], [2]])], path, end_of_text=END)
    shard = FORMATS[name].open(path, **reading(name))
    for number in (-1, 2):
        with pytest.raises(IndexError, match="has documents 0 to 1"):
            shard.document(number)


@pytest.mark.variants
@EVERY
@pytest.mark.usefixtures("no_partial_files")
def test_documents_that_stop_in_the_middle_leave_the_old_shard(token_table, tmp_path, name):
    path = tmp_path / NAMES[name]
    FORMATS[name].write([token_table([[1, 2]])], path, end_of_text=END)
    before = {file: file.read_bytes() for file in files_in(tmp_path)}

    def broken():
        yield token_table([[3, 4, 5]])
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        FORMATS[name].write(broken(), path, end_of_text=END)
    assert {file: file.read_bytes() for file in files_in(tmp_path)} == before


@SHARED
@pytest.mark.usefixtures("no_partial_files")
def test_a_shard_is_written_over_an_older_one(token_table, documents_in, tmp_path, name):
    path = tmp_path / NAMES[name]
    for documents in ([[1, 2], [3]], [[7]]):
        FORMATS[name].write([token_table(documents)], path, end_of_text=END)
    assert documents_in(FORMATS[name].open(path, **reading(name))) == [[7, END]]


@pytest.mark.variants
@SHARED
@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ([pa.table({"tokens": ["text"]})], "the column 'tokens' is string"),
        ([pa.table({"tokens": pa.array([[1], None], pa.list_(pa.uint16()))})], "has nulls"),
        ([pa.table({"tokens": pa.array([[1, None]], pa.list_(pa.uint16()))})], "has nulls"),
        (
            [pa.table({"tokens": pa.array([[1], [2, -3]], pa.list_(pa.int64()))})],
            "document 1 has the id -3, but ids begin with 0: fix",
        ),
        ([pa.table({"tokens": pa.array([[1 << 32]], pa.list_(pa.int64()))})], "no format has ids of more than 32 bits"),
        ([pa.table({"tokens": pa.array([[1], [2, 700]], pa.list_(pa.uint16()))})], "document 1 has the id 700"),
        (
            [
                pa.table({"tokens": pa.array([[1], []], pa.list_(pa.uint16()))}),
                pa.table({"tokens": pa.array([[2], [1 << 17]], pa.list_(pa.uint32()))}),
            ],
            "document 3 has the id 131,072",
        ),
        (
            [
                pa.table({"tokens": pa.array([[1]], pa.list_(pa.uint16()))}),
                pa.table({"tokens": pa.array([[2]], pa.list_(pa.uint16())), "overlap": [0]}),
            ],
            "only some documents have overlap",
        ),
        (
            [pa.table({"tokens": pa.array([[1]], pa.list_(pa.uint16())), "overlap": [2]})],
            "an overlap of 2 and 1 tokens",
        ),
    ],
)
def test_what_cannot_be_stored_is_one_sentence(sentence_of, tmp_path, name, tables, said):
    vocabulary = 601 if said.endswith("700") else None
    assert said in sentence_of(
        FormatError, FORMATS[name].write, tables, tmp_path / NAMES[name], end_of_text=END, vocabulary_size=vocabulary
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.variants
@EVERY
def test_a_table_without_tokens_is_one_sentence(sentence_of, tmp_path, name):
    path = tmp_path / NAMES[name]
    assert "tokens" in sentence_of(StageError, FORMATS[name].write, [pa.table({"text": ["a"]})], path, end_of_text=END)


@SHARED
def test_one_table_is_taken_and_rows_are_refused(token_table, documents_in, sentence_of, tmp_path, name):
    path = tmp_path / NAMES[name]
    FORMATS[name].write(token_table([[1], [2]]), path, end_of_text=END)
    assert documents_in(FORMATS[name].open(path, **reading(name))) == [[1, END], [2, END]]
    said = sentence_of(FormatError, FORMATS[name].write, [{"tokens": [1]}], path, end_of_text=END)
    assert "documents must be Arrow tables, not a dict: pass data.with_format('arrow').iter(1000)" in said


@SHARED
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dtype": "uint8"}, "dtype takes one of 'auto', 'uint16', 'uint32', got 'uint8'"),
        ({"terminate": True}, "terminate takes one of"),
        ({"terminate": "missing", "end_of_text": None}, "but none is set: set end_of_text=ID, or add --end-of-text"),
        ({"terminate": "always", "end_of_text": None}, "but none is set: set end_of_text=ID, or add --end-of-text"),
        ({"end_of_text": -1}, "end_of_text -1 is not an id"),
        ({"end_of_text": 70_000}, "set dtype to 'uint32'"),
        ({"end_of_text": END, "vocabulary_size": END}, "end_of_text 600 is not an id"),
        ({"vocabulary_size": 0}, "vocabulary_size is 0"),
    ],
)
def test_wrong_settings_are_one_sentence(token_table, sentence_of, tmp_path, name, wrong, said):
    path = tmp_path / NAMES[name]
    given_ones = {"end_of_text": END} | wrong
    assert said in sentence_of(FormatError, FORMATS[name].write, [token_table([[1]])], path, **given_ones)


@pytest.mark.variants
@EVERY
def test_tokens_of_other_kinds_of_lists_are_taken(documents_in, tmp_path, name):
    kinds = [pa.large_list(pa.int64()), pa.list_(pa.int32(), 2), pa.list_(pa.uint8())]
    for number, kind in enumerate(kinds):
        path = tmp_path / str(number) / NAMES[name]
        wide = {"dtype": "uint32"} if name == "nanogpt" else {}
        FORMATS[name].write([pa.table({"tokens": pa.array([[1, 2], [3, 4]], kind)})], path, end_of_text=END, **wide)
        shard = FORMATS[name].open(path, **reading(name) | ({"token_size": 4} if name == "nanogpt" else {}))
        assert documents_in(shard) == [[1, 2, END], [3, 4, END]]
        assert shard.tokens.dtype == np.uint32


@pytest.mark.variants
@SHARED
@pytest.mark.parametrize(("vocabulary", "dtype"), [(END + 1, "uint16"), (1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
@pytest.mark.parametrize("kind", ["uint16", "int32", "int64"])
def test_the_vocabulary_says_how_wide_a_token_is_whatever_the_column(
    token_table, tmp_path, name, vocabulary, dtype, kind
):
    path = tmp_path / NAMES[name]
    asked = "uint32" if name == "nanogpt" and dtype == "uint32" else "auto"
    size = {"token_size": np.dtype(dtype).itemsize} if name == "nanogpt" else {}
    table = token_table([[1, 2], [3]], kind)
    FORMATS[name].write(table, path, end_of_text=END, vocabulary_size=vocabulary, dtype=asked)
    shard = FORMATS[name].open(path, end_of_text=END, **size)
    assert shard.tokens.dtype == dtype
    assert shard.tokens.tolist() == [1, 2, END, 3, END]


@SHARED
@pytest.mark.parametrize("check", ["everything", "ends", "sizes"])
def test_ids_are_bounded_by_a_vocabulary_that_is_named(token_table, sentence_of, tmp_path, name, check):
    path = tmp_path / NAMES[name]
    FORMATS[name].write([token_table([[1, 2, END], [END - 1, END]])], path, **reading(name))
    where = {"litdata": "at byte 20", "mds": "in row 0", "token-parquet": "in row 0"}.get(name, "at byte 4")
    if check == "everything":
        said = sentence_of(CorruptionError, FORMATS[name].open, path, vocabulary_size=300, check=check)
        assert f"{path} has id 600 {where}, the vocabulary has 300" in said
    else:
        assert FORMATS[name].open(path, vocabulary_size=300, check=check).vocabulary_size == 300
    assert f"has id 600 {where}" in str(FORMATS[name].verify(path, vocabulary_size=300))
    assert not FORMATS[name].verify(path, vocabulary_size=END + 1).problems
    assert "vocabulary of 601" in str(FORMATS[name].verify(path, vocabulary_size=END + 1))


@pytest.mark.parametrize("name", INT32)
def test_a_negative_id_is_named(token_table, sentence_of, tmp_path, name):
    path = tmp_path / NAMES[name]
    FORMATS[name].write([token_table([[1], [2, 77_000]], "uint32")], path)
    file, checksums = FORMATS[name].shard_files(path)[0], path.with_name(f"{path.name}.crc32c")
    file.write_bytes(file.read_bytes().replace(struct.pack("<i", 77_000), struct.pack("<i", -100)))
    checksums.unlink()
    said = sentence_of(CorruptionError, FORMATS[name].open, path)
    assert f"{file} has id -100 " in said
    assert FORMATS[name].verify(path, vocabulary_size=END).problems == (said,)


@pytest.mark.variants
@EVERY
@given(data=st.data())
@settings(deadline=None)
def test_a_file_of_changed_bytes_is_read_or_refused_in_one_sentence(token_table, documents_in, sentence_of, name, data):
    table = token_table([[1, 2], [3], [4, 5, 6]], loss_mask=[[True] * length for length in (2, 1, 3)])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / NAMES[name]
        also = {"datatrove": {"tokenizer": "gpt2"}, "nanogpt": {"header": "llm.c"}}.get(name, {})
        FORMATS[name].write([table], path, end_of_text=END, on_loss="warn", **also)
        file = data.draw(st.sampled_from(files_in(folder)))
        content = file.read_bytes()
        first = data.draw(st.integers(0, len(content)))
        taken, given_ones = data.draw(st.integers(0, 9)), data.draw(st.binary(max_size=9))
        file.write_bytes(content[:first] + given_ones + content[first + taken :])
        try:
            shard = FORMATS[name].open(path, end_of_text=END, vocabulary_size=END + 1)
        except FormatError:
            sentence_of(FormatError, FORMATS[name].open, path, end_of_text=END, vocabulary_size=END + 1)
        else:
            assert list(chain.from_iterable(documents_in(shard))) == shard.tokens.tolist()
            assert shard.tokens.max(initial=0) <= END


@pytest.mark.variants
@EVERY
def test_opening_what_is_not_there_or_not_here_is_one_sentence(sentence_of, tmp_path, name):
    format_ = FORMATS[name]
    assert "no file" in sentence_of(FormatError, format_.open, tmp_path / NAMES[name])
    assert "copy it to this machine first" in sentence_of(
        FormatError, format_.open, f"hf://datasets/me/mine/{NAMES[name]}"
    )
    assert "check takes one of" in sentence_of(FormatError, format_.open, tmp_path / NAMES[name], check="all")


@pytest.mark.parametrize("name", ["datatrove", "nanogpt", "token-parquet"])
def test_a_name_without_the_ending_is_one_sentence(token_table, sentence_of, tmp_path, name):
    assert "must end in ." in sentence_of(FormatError, FORMATS[name].write, [token_table([[1]])], tmp_path / "shard")


def test_the_format_is_found_by_the_files(token_table, sentence_of, tmp_path):
    for name, file in NAMES.items():
        settings_ = {"header": "llm.c"} if name == "nanogpt" else {}
        FORMATS[name].write([token_table([[1, 2]])], tmp_path / name / file, end_of_text=END, **settings_)
        assert lc.formats.open_shard(tmp_path / name / file).format == name
        assert not lc.verify(tmp_path / name / file).problems
    bare = tmp_path / "bare.bin"
    lc.formats.nanogpt.write([token_table([[1, 2]])], bare, end_of_text=END)
    assert "give its format" in sentence_of(FormatError, lc.formats.open_shard, bare)
    assert lc.formats.open_shard(bare, "nanogpt").tokens.tolist() == [1, 2, END]
    bare.with_suffix(".idx").write_bytes(b"something else")
    assert "does not begin like an index" in sentence_of(CorruptionError, lc.formats.open_shard, bare)
    assert "does not begin like an index" in str(lc.formats.verify_shard(bare))
    assert "no token shard" in sentence_of(FormatError, lc.formats.open_shard, tmp_path / "nothing.bin")
    assert "known: datatrove" in sentence_of(FormatError, lc.formats.open_shard, bare, "zarr")
    assert "known: check, end_of_text" in sentence_of(
        FormatError, lc.formats.open_shard, tmp_path / "megatron" / "shard.bin", token_size=2
    )
