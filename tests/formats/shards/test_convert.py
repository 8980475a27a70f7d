"""Any format into any other: the same documents, token for token, or a named loss."""

import json
import tempfile
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards.spec import FORMATS, shards_in

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
CIRCLE = dict(zip(NAMES, [*NAMES][1:] + [*NAMES][:1], strict=True))
PAIRS = [
    pytest.param(one, other, marks=() if CIRCLE[one] == other else pytest.mark.slow) for one in NAMES for other in NAMES
]
"""Each format is once the source and once the target; the other pairs are slow."""


@pytest.mark.parametrize(("one", "other"), PAIRS)
@given(documents=st.lists(st.lists(st.integers(0, END - 1), max_size=9), min_size=1, max_size=12), wide=st.booleans())
def test_any_format_becomes_any_other_and_nothing_is_lost(token_table, documents_in, one, other, documents, wide):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        source, target = Path(folder, "one", NAMES[one]), Path(folder, "other", NAMES[other])
        dtype = "uint32" if wide else "uint16"
        asked = dtype if wide and "nanogpt" in (one, other) else "auto"
        FORMATS[one].write([token_table(documents, dtype)], source, end_of_text=END, dtype=asked)
        size = {"token_size": 4} if wide else {}
        told = lc.convert(
            source,
            target,
            other,
            source_format=one,
            end_of_text=END,
            dtype=asked,
            reading=size if one == "nanogpt" else {},
        )
        opened = FORMATS[other].open(target, end_of_text=END, **(size if other == "nanogpt" else {}))
        assert documents_in(opened) == [[*each, END] for each in documents]
        assert opened.tokens.dtype == dtype
        assert not told.losses
        assert [shard.tokens for shard in told.shards] == [len(opened.tokens)]


@pytest.mark.variants
@pytest.mark.parametrize("other", NAMES)
def test_what_a_format_cannot_hold_is_a_loss_by_name(token_table, tmp_path, sentence_of, other):
    source, target = tmp_path / "all.parquet", tmp_path / "other" / NAMES[other]
    table = token_table([[1, 2], [2, 3]], overlap=[0, 1], loss_mask=[[True, False], [True, True]], id=["a", "b"])
    lc.formats.token_parquet.write([table], source)
    lost = {
        "datatrove": ["the column id"],
        "gpt-simple": ["the column id", "the loss mask, which is False for 1 tokens"],
        "levanter": ["the column id", "the loss mask, which is False for 1 tokens", "the overlaps of 1 documents"],
        "litdata": ["the column id", "the loss mask, which is False for 1 tokens", "the overlaps of 1 documents"],
        "mds": ["the column id", "the loss mask, which is False for 1 tokens", "the overlaps of 1 documents"],
        "megatron": ["the column id", "the loss mask, which is False for 1 tokens", "the overlaps of 1 documents"],
        "nanogpt": [
            "the column id",
            "where 2 documents end",
            "the loss mask, which is False for 1 tokens",
            "the overlaps of 1 documents",
        ],
        "olmo-core": [],
        "token-parquet": [],
    }[other]
    if lost:
        assert f"{other} cannot hold {lost[0]}" in sentence_of(FormatError, lc.convert, source, target, other)
        assert not target.exists()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        told = lc.convert(source, target, other, on_loss="warn")
    assert len(told.losses) == len(lost)
    assert all(loss.startswith(start) for loss, start in zip(told.losses, lost, strict=True))
    assert [str(each.message) for each in warned] == [f"{other} cannot hold {loss}" for loss in told.losses]
    assert str(told).count("  lost: ") == len(lost)


def test_overlaps_become_the_loss_mask_that_tokenising_for_datatrove_writes(token_table, tmp_path, sentence_of):
    mask = [[True, True, False], [True, True], [True]]
    lc.formats.token_parquet.write(
        [token_table([[1, 2, 3], [3, 4], [5]], overlap=[0, 1, 0], loss_mask=mask)], tmp_path / "in" / "a.parquet"
    )
    lc.formats.gpt_simple.write([token_table([[1, 2], [2, 3]], overlap=[0, 2])], tmp_path / "in" / "b.bin")
    lc.formats.gpt_simple.write([token_table([[1, 2]])], tmp_path / "in" / "c.bin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = lc.convert(tmp_path / "in", tmp_path / "out", "datatrove")
    flags = {name: (tmp_path / "out" / f"{name}.ds.loss").read_bytes() for name in "abc"}
    assert flags == {"a": b"\1\1\0\0\1\1", "b": b"\1\1\0\0", "c": b"\1\1"}  # all have one, as feeds want
    assert (told.losses, told.kept) == ((), ("the overlaps of 2 documents, by the loss mask",))
    assert str(told).splitlines()[1:] == ["  kept: the overlaps of 2 documents, by the loss mask"]
    lc.convert(tmp_path / "in" / "c.bin", tmp_path / "alone.ds")
    assert not (tmp_path / "alone.ds.loss").exists()
    pq.write_table(token_table([[1]], overlap=[2]), tmp_path / "wrong.parquet")
    said = sentence_of(FormatError, lc.convert, tmp_path / "wrong.parquet", tmp_path / "wrong.ds")
    assert "document 0 has an overlap of 2 and 1 tokens" in said


def test_losses_of_a_folder_are_summed_and_warned_of_once(token_table, tmp_path):
    for name, count in (("a", 1), ("b", 2)):
        table = token_table([[1, 2]] * count, overlap=[1] * count, id=["x"] * count)
        lc.formats.token_parquet.write([table], tmp_path / "in" / f"{name}.parquet")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        told = lc.convert(tmp_path / "in", tmp_path / "out", "megatron", on_loss="warn")
    assert told.losses == ("the column id", "the overlaps of 3 documents, whose first tokens would count twice")
    assert [str(each.message) for each in warned] == [f"megatron cannot hold {loss}" for loss in told.losses]
    assert all(each.filename == __file__ for each in warned)


def test_what_is_known_and_not_recorded_is_told(token_table, tmp_path):
    source = tmp_path / "a.parquet"
    lc.formats.token_parquet.write([token_table([[1]])], source, end_of_text=END, vocabulary_size=601, tokenizer="gpt2")
    told = lc.convert(source, tmp_path / "a.ds")
    assert told.not_recorded == ("end_of_text 600", "vocabulary_size 601")
    assert lc.formats.datatrove.open(tmp_path / "a.ds").tokenizer == "gpt2"
    back = lc.convert(tmp_path / "a.ds", tmp_path / "b.parquet", end_of_text=END, vocabulary_size=601)
    assert back.not_recorded == ()
    assert pq.read_schema(tmp_path / "b.parquet").metadata == pq.read_schema(source).metadata
    assert str(told).splitlines() == [
        f"{tmp_path / 'a.ds'}: 1 shard of datatrove, 1 document, 2 tokens",
        "  datatrove does not record end_of_text 600, vocabulary_size 601: name them when you open it",
    ]


def test_what_a_file_says_of_itself_is_not_overruled(token_table, tmp_path, sentence_of):
    lc.formats.token_parquet.write([token_table([[1]])], tmp_path / "a.parquet", end_of_text=END)
    said = sentence_of(FormatError, lc.convert, tmp_path / "a.parquet", tmp_path / "a.ds", end_of_text=5)
    assert "records that its end_of_text is 600, not 5: remove end_of_text" in said


def test_the_end_of_text_that_an_output_records_is_used(token_table, tmp_path, sentence_of):
    documents = token_table([[1, 2, 3, 4, 5, END], [6, END]], id=["a", "b"])
    lc.Crawl(Dataset(documents)).to_gpt_simple(tmp_path / "whole", end_of_text=END)
    (lc.Crawl(Dataset(documents)) | lc.tokens.Windows(4, 0, end_of_text=END)).to_gpt_simple(
        tmp_path / "cut", end_of_text=END
    )
    lc.Crawl(Dataset(documents)).to_composed(
        tmp_path / "composed", capacities=[2, 4], end_of_text=END, format="gpt-simple"
    )
    for source, target, to in (
        ("cut", "a", "olmo-core"),
        ("cut", "b", "nanogpt"),
        ("cut/train/00000", "c.npy", "olmo-core"),
        ("composed", "d", "olmo-core"),
    ):
        said = sentence_of(FormatError, lc.convert, tmp_path / source, tmp_path / target, to)
        assert "the ends of 1 documents" in said
        assert f"{END} at the end alone" in said
    kept = lc.convert(tmp_path / "whole", tmp_path / "kept", "nanogpt")
    assert kept.not_recorded == (f"end_of_text {END}",)
    with pytest.warns(UserWarning, match="the ids of documents are in .*documents and were not converted"):
        lc.convert(tmp_path / "whole", tmp_path / "rows", "olmo-core")
    said = sentence_of(FormatError, lc.convert, tmp_path / "whole", tmp_path / "kept", "olmo-core", end_of_text=5)
    assert said == f"end_of_text is 5 and {tmp_path / 'whole'} records {END}: remove end_of_text (--end-of-text)"


@pytest.mark.parametrize("one", ["gpt-simple", "olmo-core", "mds", "levanter"])
@pytest.mark.parametrize(("size", "wide"), [(300, 2), (70_000, 4)])
def test_the_vocabulary_that_an_output_records_is_used(tmp_path, tokenizer, sentence_of, one, size, wide):
    crawl = lc.Crawl({"id": ["a", "b"], "text": ["the tide was out", "bread"]}) | lc.tokens.Tokenize(tokenizer)
    crawl.write(one, tmp_path / "run")
    recorded = json.loads((tmp_path / f"run/{one}.json").read_text())["vocabulary_size"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ids
        told = lc.convert(tmp_path / "run", tmp_path / "known", "megatron", on_loss="warn")
        given = lc.convert(tmp_path / "run", tmp_path / "given", "datatrove", on_loss="warn", vocabulary_size=size)
        lc.convert(tmp_path / "run", tmp_path / "kept", "token-parquet", on_loss="warn")
    assert told.not_recorded == ("end_of_text 0", f"vocabulary_size {recorded}")
    assert given.not_recorded == ("end_of_text 0", f"vocabulary_size {size}")
    (shard,) = shards_in(tmp_path / "given")
    assert lc.formats.open_shard(shard).tokens.itemsize == wide
    kept = pq.read_schema(tmp_path / "kept/train/00000.parquet").metadata[b"longcrawl"]
    assert json.loads(kept)["vocabulary_size"] == recorded
    said = sentence_of(
        FormatError, lc.convert, tmp_path / "run", tmp_path / "low", "datatrove", on_loss="warn", vocabulary_size=3
    )
    assert "the vocabulary has 3" in said


def test_a_folder_of_shards_becomes_a_folder(token_table, tmp_path, documents_in, sentence_of):
    for name, documents in (("a", [[1, 2]]), ("sub/b", [[3], []])):
        lc.formats.datatrove.write([token_table(documents)], tmp_path / "in" / f"{name}.ds", end_of_text=END)
    told = lc.convert(tmp_path / "in", tmp_path / "out", "gpt-simple")
    assert [shard.path for shard in told.shards] == [f"{tmp_path}/out/a.bin", f"{tmp_path}/out/sub/b.bin"]
    assert documents_in(lc.formats.open_shard(tmp_path / "out" / "sub" / "b.bin")) == [[3, END], [END]]
    assert str(told).startswith(f"{tmp_path / 'out'}: 2 shards of gpt-simple, 3 documents, 6 tokens")
    said = sentence_of(FormatError, lc.convert, tmp_path / "in", tmp_path / "out", "megatron", source_format="nanogpt")
    assert "holds no token shard: no file that ends in .bin" in said


def test_arrays_are_named_with_the_way_to_shards(token_table, tmp_path, sentence_of):
    documents = lc.Crawl(Dataset(token_table([[1, 2, 3, END]] * 4, id=list("abcd"))))
    documents.to_composed(tmp_path / "composed", capacities=[2, 4], end_of_text=END)
    documents.to_rectangle(tmp_path / "rectangle", context_length=4, end_of_text=END)
    for name, feed, way in (
        ("composed", "ComposedBatches", "--set outputs.composed.format=gpt-simple"),
        ("rectangle", "Rectangle", "an output such as gpt-simple"),
    ):
        said = sentence_of(FormatError, lc.convert, tmp_path / name, tmp_path / "out", "mds")
        assert f"lc.loading.{feed} reads: for token shards, write it again with {way}" in said


def test_an_end_of_text_is_added_on_request(token_table, tmp_path, documents_in):
    lc.formats.datatrove.write([token_table([[1], [2, END]])], tmp_path / "a.ds")
    lc.convert(tmp_path / "a.ds", tmp_path / "a.bin", "nanogpt", end_of_text=END, terminate="missing")
    assert documents_in(lc.formats.nanogpt.open(tmp_path / "a.bin", end_of_text=END)) == [[1, END], [2, END]]


def test_tokens_are_made_narrower_on_request_and_only_if_they_fit(token_table, tmp_path, sentence_of):
    lc.formats.datatrove.write([token_table([[1]], "uint32")], tmp_path / "a.ds")
    lc.convert(tmp_path / "a.ds", tmp_path / "a.bin", "megatron", dtype="uint16")
    assert (tmp_path / "a.bin").read_bytes() == b"\1\0"
    lc.formats.datatrove.write([token_table([[1 << 16]], "uint32")], tmp_path / "a.ds")
    said = sentence_of(FormatError, lc.convert, tmp_path / "a.ds", tmp_path / "b.bin", "megatron", dtype="uint16")
    assert "document 0 has the id 65,536, but a token is stored as uint16" in said


@pytest.mark.variants
@pytest.mark.parametrize(
    ("source", "target", "words", "said"),
    [
        ("a.ds", "b.bin", {}, "add --to FORMAT, with one of gpt-simple, litdata, megatron, nanogpt"),
        ("a.ds", "b", {}, "with one of datatrove, gpt-simple, levanter, litdata, mds, megatron, nanogpt, olmo-core"),
        ("a.ds", "b", {"to": "zarr"}, "format 'zarr' is unknown; known: datatrove"),
        ("a.ds", "a.ds", {}, "would overwrite the shard being read"),
        ("no.ds", "b.bin", {"to": "megatron"}, "no file"),
        ("no.bin", "b.ds", {}, "no token shard"),
        ("a.ds", "b.bin", {"to": "megatron", "writing": {"header": "llm.c"}}, "megatron.write has no setting 'header'"),
        ("a.ds", "b.bin", {"to": "megatron", "reading": {"place": "end"}}, "datatrove.open has no setting 'place'"),
        ("a.ds", "b.bin", {"to": "megatron", "on_loss": "skip"}, "on_loss takes one of 'error', 'warn', got 'skip'"),
        ("flat.bin", "b.ds", {"source_format": "nanogpt"}, "set end_of_text=ID, or add --end-of-text ID"),
        ("flat.bin", "b.ds", {}, "if it is a flat file of tokens, give its format, nanogpt, or add --from nanogpt"),
        ("a.ds", "b.bin", {"to": "megatron", "terminate": "missing"}, "set end_of_text=ID, or add --end-of-text ID"),
        ("a.ds", "b.ds", {"to": "gpt-simple"}, "b.ds is not a shard of .bin and .idx: its name must end in .bin"),
        ("a.ds", "b.parquet", {"to": "megatron"}, "b.parquet is not a shard of .bin and .idx"),
    ],
)
def test_what_cannot_be_converted_is_one_sentence(token_table, tmp_path, sentence_of, source, target, words, said):
    lc.formats.datatrove.write([token_table([[1, 2]])], tmp_path / "a.ds")
    lc.formats.nanogpt.write([token_table([[1, 2]])], tmp_path / "flat.bin", end_of_text=END)
    assert said in sentence_of(FormatError, lc.convert, tmp_path / source, tmp_path / target, **words)
    assert not (tmp_path / target).exists() or source == target


def test_a_damaged_shard_is_not_converted(token_table, tmp_path, sentence_of):
    lc.formats.gpt_simple.write([token_table([[1, 2]])], tmp_path / "a.bin")
    (tmp_path / "a.bin").write_bytes(b"1")
    assert "a.bin has 1 bytes, 4 were written" in sentence_of(
        CorruptionError, lc.convert, tmp_path / "a.bin", tmp_path / "b.ds"
    )


def test_a_target_that_cannot_be_written_is_named(token_table, tmp_path, sentence_of):
    lc.formats.nanogpt.write(token_table([[1, 2], [3]]), tmp_path / "a.bin", end_of_text=END)
    target = tmp_path / "a.bin" / "b.ds"
    said = sentence_of(FormatError, lc.convert, tmp_path / "a.bin", target, source_format="nanogpt", end_of_text=END)
    assert said.startswith(f"{target} cannot be written (")


def test_a_file_that_exists_is_not_replaced(token_table, tmp_path, sentence_of):
    for name in ("a", "sub/b"):
        lc.formats.datatrove.write([token_table([[1, 2]])], tmp_path / "in" / f"{name}.ds", end_of_text=END)
    mine = tmp_path / "out" / "sub" / "b.idx"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    fix = "exists already: remove it, or choose another shard or folder to write"
    assert sentence_of(FormatError, lc.convert, tmp_path / "in", tmp_path / "out", "megatron") == f"{mine} {fix}"
    shard = tmp_path / "in" / "sub" / "b.ds"
    assert fix in sentence_of(FormatError, lc.convert, shard, mine.with_suffix(".bin"), "gpt-simple")
    assert [file.read_text() for file in (tmp_path / "out").rglob("*.*")] == ["mine"]
    mine = mine.rename(mine.with_name("b.bin.crc32c"))
    assert sentence_of(FormatError, lc.convert, tmp_path / "in", tmp_path / "out", "megatron") == f"{mine} {fix}"
    mine.unlink()
    assert len(lc.convert(tmp_path / "in", tmp_path / "out", "megatron").shards) == 2


def test_a_flat_file_and_a_folder_of_shards_are_verified(token_table, tmp_path, sentence_of):
    for name in ("a", "sub/b"):
        lc.formats.nanogpt.write(token_table([[1, 2], [3]]), tmp_path / "in" / f"{name}.bin", end_of_text=END)
    assert "give its format, nanogpt, or add --from nanogpt" in sentence_of(FormatError, lc.verify, tmp_path / "in")
    one = lc.verify(tmp_path / "in" / "a.bin", "nanogpt", end_of_text=END, vocabulary_size=601)
    assert one.checked == "nanogpt, 2 documents, 5 tokens, uint16; every id compared with a vocabulary of 601"
    both = lc.verify(tmp_path / "in", "nanogpt", end_of_text=END, vocabulary_size=601)
    assert (both.checked, both.problems) == (f"2 shards, the first: {one.checked}", ())
    (tmp_path / "in/sub/b.bin.crc32c").unlink()
    (tmp_path / "in/sub/b.bin").write_bytes(b"\1\0\2\3")
    found = lc.verify(tmp_path / "in", "nanogpt", vocabulary_size=600)
    assert [problem.split(" at byte")[0] for problem in found.problems] == [
        f"{tmp_path}/in/a.bin has id 600",
        f"{tmp_path}/in/sub/b.bin has id 770",
    ]
    said = sentence_of(FormatError, lc.verify, tmp_path / "no.bin", "nanogpt")
    assert said == f"no file or folder {tmp_path / 'no.bin'}: check the path"
    crawl = lc.Crawl(Dataset.from_dict({"tokens": [[1]]}))
    crawl.to_gpt_simple(tmp_path / "output", end_of_text=END)
    assert "records its contents: remove vocabulary_size" in sentence_of(
        FormatError, lc.verify, tmp_path / "output", vocabulary_size=9
    )
    assert not lc.verify(tmp_path / "output").problems
    for shards in ("output/train", "output/train/00000.bin"):
        assert f"{tmp_path / 'output'} records its contents: remove end_of_text" in sentence_of(
            FormatError, lc.verify, tmp_path / shards, end_of_text=7
        )
        assert not lc.verify(tmp_path / shards).problems


def test_the_command_converts_and_says_what_is_lost(token_table, tmp_path, longcrawl):
    lc.formats.gpt_simple.write([token_table([[1, 2], [2, 3]], overlap=[0, 1])], tmp_path / "a.bin")
    refused = longcrawl("convert", tmp_path / "a.bin", tmp_path / "b.bin", "--to", "megatron")
    assert refused.returncode == 1
    assert refused.stderr == (
        "FormatError: megatron cannot hold the overlaps of 1 documents, whose first tokens would count twice; to "
        "continue, set on_loss='warn' or add --on-loss warn\n"
    )
    words = ["--to", "nanogpt", "--end-of-text", END, "--terminate", "missing", "--on-loss", "warn"]
    done = longcrawl("convert", tmp_path / "a.bin", tmp_path / "b.bin", *words, "--set", "writing.header=llm.c")
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "warning: nanogpt cannot hold the overlaps of 1 documents, whose first tokens would count twice\n"
    )
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'b.bin'}: 1 shard of nanogpt, 2 documents, 6 tokens",
        "  lost: the overlaps of 1 documents, whose first tokens would count twice",
        "  nanogpt does not record end_of_text 600: name them when you open it",
    ]
    assert lc.formats.nanogpt.open(tmp_path / "b.bin").tokens.tolist() == [END, 1, 2, END, 2, 3]
    wrong = longcrawl("convert", tmp_path / "a.bin", tmp_path / "c.bin", "--to", "nanogpt", "--set", "header=llm.c")
    assert "FormatError: --set needs reading.NAME=VALUE or writing.NAME=VALUE" in wrong.stderr
    (tmp_path / "flat.bin").write_bytes(b"\1\0\0\0\2\0\0\0")
    words = ("--from", "nanogpt", "--end-of-text", 1, "--vocabulary-size", 2, "--set", "reading.token_size=4")
    verified = longcrawl("verify", tmp_path / "flat.bin", *words)
    assert (verified.returncode, verified.stderr) == (1, "")
    assert "nanogpt, 2 documents, 2 tokens, uint32" in verified.stdout
    assert f"{tmp_path / 'flat.bin'} has id 2 at byte 4, the vocabulary has 2" in verified.stdout
    verified = longcrawl("verify", tmp_path / "a.bin")
    assert verified.stdout.startswith(f"{tmp_path / 'a.bin'}: whole; gpt-simple, 2 documents, 4 tokens, uint16")
