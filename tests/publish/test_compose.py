"""The measures against counting token by token, floors that nothing goes below, and every way to read lengths."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from datasets import Dataset, DatasetDict
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.outputs import OUTPUTS
from longcrawl.errors import FormatError, LongCrawlError, RunError, SourceError, StageError
from longcrawl.publish.compose import read_lengths
from longcrawl.tokens import FixedLength, measure

ENDED = {"end_of_text": 0}


def test_compose_takes_lengths_tables_datasets_and_crawls():
    tokens = [[1] * 5, [], [1] * 9]
    data = Dataset.from_dict({"id": ["a", "b", "c"], "tokens": tokens})
    expected = lc.compose([5, 0, 9], capacities=[4, 8]).rows
    of_tokens = lc.compose(data, capacities=[4, 8], terminate="never").rows
    alone = [replace(row, compared_pairs=0, related=None, related_by_chance=None) for row in of_tokens]
    assert alone == list(expected)
    assert any(row.compared_pairs for row in of_tokens)
    for documents in (
        np.array([5, 0, 9]),
        pa.array([5, 0, 9]),
        data.add_column("n_tokens", [5, 0, 9])["n_tokens"],
        data.add_column("n_tokens", [5, 0, 9]).to_pandas()["n_tokens"],
        pa.table({"n_tokens": [5, 0, 9]}),
    ):
        assert lc.compose(documents, capacities=[4, 8], terminate="never").rows == expected
    for documents in (data, data.to_iterable_dataset(), lc.Crawl(data)):
        assert lc.compose(documents, capacities=[4, 8], terminate="never").rows == of_tokens
    assert lc.compose([5], strategies=[FixedLength(4)]).rows == (measure(FixedLength(4).plan([5]), "Fixed-4"),)
    with pytest.raises(StageError, match=r"choose one: documents\['train'\]"):
        lc.compose(DatasetDict({"train": data}))
    with pytest.raises(StageError, match="pass a path"):
        lc.compose(data, tokenizer="gpt2")
    with pytest.raises(SourceError, match="Dataset has neither n_tokens nor tokens, but text"):
        lc.compose(Dataset.from_dict({"text": ["a"]}))
    with pytest.raises(StageError, match=r"write \[2048, 4096\]"):
        lc.compose([5], capacities=[4096, 2048])


def test_an_end_of_text_token_is_counted_once_where_it_is_missing(tmp_path, longcrawl):
    lists = pa.table({"tokens": [[1, 2, 0], [3], [], [0]]})
    pq.write_table(lists, tmp_path / "a.parquet")
    lines = (json.dumps({"tokens": each}) + "\n" for each in lists["tokens"].to_pylist())
    (tmp_path / "a.jsonl").write_text("".join(lines))
    for words, lengths, said in (
        ({}, [4, 2, 0, 2], "an end-of-text token was added to each"),
        ({"end_of_text": 0}, [3, 2, 0, 1], "an end-of-text token was added to 1 of them"),
        ({"end_of_text": 0, "terminate": "always"}, [4, 2, 0, 2], "an end-of-text token was added to each"),
        ({"terminate": "never"}, [3, 1, 0, 1], "lengths as they are, no end-of-text token added"),
    ):
        for documents in (lists, tmp_path / "a.parquet", tmp_path / "a.jsonl"):
            found = lc.compose(documents, [4], **words)
            assert (found.lengths.tolist(), repr(found).splitlines()[0].rpartition("; ")[2]) == (lengths, said)
    assert lc.compose([3, 0], [4]).lengths.tolist() == [3, 0]
    assert lc.compose([3, 0], [4], terminate="always").lengths.tolist() == [4, 0]
    told = longcrawl("compose", tmp_path / "a.parquet", "--capacities", "4", "--terminate", "never")
    assert told.stdout.rstrip("\n") == repr(lc.compose(lists, [4], terminate="never"))
    with pytest.raises(FormatError, match="terminate takes one of 'missing', 'always', 'never', got 'added'"):
        lc.compose(lists, [4], terminate="added")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Return a tokenizer of single bytes."""
    import base64

    path = tmp_path_factory.mktemp("tokenizer") / "bytes.tiktoken"
    path.write_text("".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256)))
    return str(path)


ROWS = [{"text": "four", "n_tokens": 3, "tokens": [7, 8, 9]}, {"text": "fifteen letters", "n_tokens": 0, "tokens": []}]


def write(path, rows, fields):
    lines = "".join(json.dumps({name: row[name] for name in fields}) + "\n" for row in rows).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([{name: row[name] for name in fields} for row in rows]), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.compress(lines))
    else:
        path.write_bytes(lines)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.json.gz", "a.jsonl.zst", "a.parquet"])
def test_lengths_are_read_from_numbers_lists_and_texts(tmp_path, tokenizer, name):
    file = write(tmp_path / name, ROWS, ["text", "n_tokens"])
    assert read_lengths(file).tokens.tolist() == [3, 0]
    assert read_lengths(file, tokenizer).tokens.tolist() == [4, 15]
    assert read_lengths(write(tmp_path / name, ROWS, ["tokens"])).tokens.tolist() == [3, 0]
    renamed = write(tmp_path / name, [{"content": row["text"]} for row in ROWS], ["content"])
    assert read_lengths(renamed, tokenizer, text_field="content").tokens.tolist() == [4, 15]
    with pytest.raises(SourceError, match=rf"{name} has neither n_tokens nor tokens, but content: .*--tokenizer"):
        read_lengths(renamed)
    with pytest.raises(SourceError, match=r"no field 'text'"):
        read_lengths(renamed, tokenizer)


def test_lengths_of_folders_globs_and_text_files(tmp_path, tokenizer):
    write(tmp_path / "b.jsonl", ROWS, ["n_tokens"])
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "a.parquet", ROWS[:1], ["tokens"])
    (tmp_path / "README.md").write_text("not a document")
    assert read_lengths(tmp_path).tokens.tolist() == [3, 0, 3]
    assert read_lengths(f"{tmp_path}/*.jsonl").tokens.tolist() == [3, 0]
    (tmp_path / "page.txt").write_text("eight...")
    assert read_lengths(tmp_path / "page.txt", tokenizer).tokens.tolist() == [8]
    with pytest.raises(SourceError, match=r"page\.txt holds text: add a tokenizer"):
        read_lengths(tmp_path / "page.txt")


def test_lengths_of_csv_are_numbers_of_its_rows(tmp_path, tokenizer):
    file = tmp_path / "n.csv"
    for name, separator in (("n.csv", ","), ("n.tsv", "\t")):
        (tmp_path / name).write_text("id,n_tokens\na,3\n\nb,0\n".replace(",", separator))
        assert read_lengths(tmp_path / name).tokens.tolist() == [3, 0]
    (tmp_path / "n.csv.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert read_lengths(tmp_path / "n.csv.gz").tokens.tolist() == [3, 0]
    file.write_text("id,n_tokens\n")
    assert read_lengths(file).tokens.tolist() == []
    for rows, sentence in (
        ("id,n_tokens\na,3.5\n", "n_tokens is not a whole number in every row; name a --tokenizer"),
        ("id,n_tokens\na,3\nb\n", "row 1 has 1 field, but the first row has 2; fix it, or exclude the file"),
        ("id,text\na,x\n", r"n\.csv has no field 'n_tokens'; its fields: id, text; fix it, or add a tokenizer"),
    ):
        file.write_text(rows)
        with pytest.raises(SourceError, match=sentence):
            read_lengths(file)
    assert read_lengths(file, tokenizer).tokens.tolist() == [1]


@pytest.mark.variants
@pytest.mark.parametrize(
    "name",
    ["datatrove", "gpt_simple", "levanter", "litdata", "mds", "megatron", "nanogpt", "olmo_core", "token_parquet"],
)
def test_lengths_of_token_shards(tmp_path, tokenizer, name):
    module, lengths = getattr(lc.formats, name), [3, 1, 40, 7]
    table = pa.table({"tokens": pa.array([[*[5] * (length - 1), 0] for length in lengths], pa.list_(pa.uint16()))})
    for file in ("b", "a"):
        module.write([table.slice(0, 2 if file == "b" else 4)], tmp_path / f"{file}{module.SUFFIX}", end_of_text=0)
    given = {"end_of_text": 0} if name == "nanogpt" else {}
    (tmp_path / "tokenizer.json").write_text("{}" if name != "token_parquet" else '{"n_tokens": 9}')
    assert read_lengths(tmp_path, **given).tokens.tolist() == [*lengths, 3, 1, *[9] * (name == "token_parquet")]
    assert read_lengths(f"{tmp_path}/b*{module.SUFFIX}", **given).tokens.tolist() == [3, 1]
    compared = lc.compose(tmp_path / f"a{module.SUFFIX}", [64], **given).rows
    lengths_alone = (replace(row, compared_pairs=0, related=None, related_by_chance=None) for row in compared)
    assert tuple(lengths_alone) == lc.compose(lengths, [64]).rows
    if name == "nanogpt":
        with pytest.raises(SourceError, match=r"tokenizer\.json has neither n_tokens nor tokens"):
            read_lengths(tmp_path)
    elif name != "token_parquet":
        with pytest.raises(SourceError, match="holds tokens: remove --tokenizer"):
            read_lengths(tmp_path / f"a{module.SUFFIX}", tokenizer)


@pytest.mark.variants
@pytest.mark.parametrize("name", sorted({*OUTPUTS.loaded()} - {"composed"}))
def test_lengths_of_what_a_crawl_has_written(tmp_path, name):
    tokens = [[1] * 5, [2] * 90, [3] * 8]
    crawl = lc.Crawl(Dataset.from_dict({"id": ["a", "b", "c"], "tokens": tokens}))
    if name in ("datatrove", "gpt-simple", "megatron"):
        crawl = crawl | lc.tokens.Windows(16)
    settings = {
        "rectangle": {"context_length": 5, "end_of_text": 0},
        "parquet": {},
        "nanogpt": ENDED | {"dtype": "uint16"},
    }.get(name, ENDED)
    if name == "rectangle":
        rows = pa.array([each[:5] for each in tokens], pa.list_(pa.uint16()))
        crawl = lc.Crawl(Dataset(pa.table({"id": ["a", "b", "c"], "tokens": rows, "n_tokens": [5, 90, 8]})))
    crawl.write(name, tmp_path / "out", heldout=1, **settings)
    assert sorted(read_lengths(tmp_path / "out").tokens.tolist()) == [5, 8, 90]


def test_of_a_run_only_what_it_wrote_is_read(tmp_path, tokenizer):
    for name in ("parquet", "ledger"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.parquet", ROWS, ["text", "n_tokens"])
    recipe = {"name": "two", "about": "", "source": {"builder": "text"}, "stages": [], "outputs": {"parquet": {}}}
    manifest = {
        "longcrawl_run": 1,
        "recipe": recipe | {"card": {}, "reference": {}},
        "digest": "",
        "versions": {"longcrawl": "0"},
        "inputs": {},
        "bad_files": [],
        "left_out": {},
        "funnel": {"source": "text", "documents": 2, "characters": 9, "stages": []},
        "output": {"format": "parquet"},
        "analysis": {},
        "files": {},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert read_lengths(tmp_path).tokens.tolist() == [3, 0]
    assert read_lengths(tmp_path, tokenizer).tokens.tolist() == [4, 15]


def test_tokens_that_are_null_are_none(tmp_path):
    pq.write_table(pa.table({"tokens": pa.array([[1, 2], None], pa.list_(pa.uint16()))}), tmp_path / "a.parquet")
    assert read_lengths(tmp_path / "a.parquet").tokens.tolist() == [2, 0]
    (tmp_path / "a.jsonl").write_text('{"tokens": [1, 2]}\n\n{"tokens": null}\n')
    assert read_lengths(tmp_path / "a.jsonl").tokens.tolist() == [2, 0]


def test_many_blocks_are_read_line_by_line(tmp_path, monkeypatch):
    import longcrawl.publish.compose as module
    from longcrawl.sources.blocks import read_blocks

    monkeypatch.setattr(module, "read_blocks", lambda path: read_blocks(path, 50))
    for fields in (["n_tokens"], ["tokens"]):
        file = write(tmp_path / "a.jsonl", ROWS * 20, fields)
        assert read_lengths(file).tokens.tolist() == [3, 0] * 20
        file.write_bytes(file.read_bytes() + b"[1]\n")
        with pytest.raises(SourceError, match=r"a\.jsonl: line 41 "):
            read_lengths(file)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b'{"n_tokens": 1}\n{"n_tokens": null}\n', "line 2 "),
        ("a.jsonl", b'{"n_tokens": 1}\n{"n_tokens": "x"}\n', "line 2 "),
        ("a.jsonl", b'{"tokens": []}\n{}\n', "line 2 has no list"),
        ("a.jsonl", b'{"tokens": 5}\n', "no list in its field 'tokens'"),
        ("a.jsonl", b"nonsense\n", "line 1 is not JSON"),
        ("a.jsonl", b"[]\n", "line 1 is not a JSON object"),
        ("a.jsonl", b"\n\n", "but no fields"),
        ("a.jsonl.gz", b"no\0 gzip", r"a\.jsonl\.gz .*fix it"),
        ("a.parquet", b"no parquet", r"a\.parquet is corrupt"),
        ("a.npy", b"", r"a\.npy has no a\.csv\.gz"),
        ("a.npz", b"", "neither a run nor a file that can be read; known endings"),
        ("a.bin", b"", r"a\.bin does not record where its documents end: .*--end-of-text"),
        ("a.ds", b"123", r"a\.ds"),
    ],
)
def test_files_that_say_no_lengths(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=sentence):
        read_lengths(tmp_path / name)


def test_paths_of_nothing(tmp_path, tokenizer):
    with pytest.raises(SourceError, match="holds no documents; known endings"):
        read_lengths(tmp_path)
    with pytest.raises(SourceError, match=r"none\.jsonl is missing"):
        read_lengths(tmp_path / "none.jsonl")
    with pytest.raises(SourceError, match=r"none\.jsonl.* is missing"):
        read_lengths(tmp_path / "none.jsonl", tokenizer)
    with pytest.raises(SourceError, match="no file matches"):
        read_lengths(f"{tmp_path}/*.jsonl")
    pq.write_table(pa.table({"n_tokens": pa.array([1, None])}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="not a whole number in every row"):
        read_lengths(tmp_path / "a.parquet")
    (tmp_path / "recipe.yaml").write_text("")
    with pytest.raises(RunError, match="holds no run"):
        read_lengths(tmp_path)


def test_a_run_is_composed_by_the_command_line(tmp_path):
    lines = (json.dumps({"id": str(n), "text": "word " * (n + 12)}) for n in range(40))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    spec = f"""
longcrawl: 1
name: tiny
source: {{builder: text, data_files: {tmp_path / "a.jsonl"}, id_field: id}}
stages:
  - tokenize: {{tokenizer: trained, vocabulary_size: 300}}
  - truncate: {{n: 8}}
  - shuffle
outputs:
  rectangle: {{heldout: 0.1}}
"""
    (tmp_path / "tiny.yaml").write_text(spec)
    lc.run(tmp_path / "tiny.yaml", tmp_path / "run")
    lengths = read_lengths(tmp_path / "run").tokens
    assert len(lengths) == 40
    assert lengths.max() > 8
    assert sorted(read_lengths(tmp_path / "run" / "rectangle").tokens) == sorted(lengths)
    command = ["compose", str(tmp_path / "run"), "--capacities", "8,16"]
    told = CliRunner().invoke(app, [*command, "--plot", str(tmp_path / "plot.png")], catch_exceptions=False)
    assert told.stdout.rstrip("\n") == repr(lc.compose(tmp_path / "run", capacities=[8, 16]))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    fields = ("strategy=interleaved", "documents_per_sample=3", "chunks_per_document=2")
    sets = [word for field in fields for word in ("--set", field)]
    told = CliRunner().invoke(app, [*command, *sets, "--json"], catch_exceptions=False)
    *_, row = json.loads(told.stdout)["strategies"]
    (own,) = lc.compose(tmp_path / "run", strategies=[lc.tokens.Interleaved(16, 3, 2)]).rows
    assert (row["label"], row["samples"]) == (own.label, own.samples)
    for words, sentence in (
        (["--set", "heldout=3"], "--set heldout: compose does not plan with this setting"),
        (["--set", "schedule=grow-p2"], "changes no sample: set it in lc.loading.ComposedBatches"),
        (["--set", "strategy"], "--set takes FIELD=VALUE of the output composed"),
        (["--capacities", "8,x"], "LongCrawlError: --capacities takes whole numbers"),
        (["--capacities", "16,8"], "write [8, 16]"),
        (["--padding-threshold", "7"], "from 0 to 1, got 7"),
        (["--plot", tmp_path / "plot.nothing"], "name a .png, .svg or .pdf"),
    ):
        error = CliRunner().invoke(app, ["compose", *map(str, (tmp_path / "run", *words))]).exception
        assert sentence in f"{type(error).__name__}: {error}"


def test_what_another_process_may_not_have_cached_is_the_same():
    """The shuffled order of documents is remembered within a process; nothing may come of that."""
    first = FixedLength(8).plan([3, 9, 4, 1])
    FixedLength(8, seed=5).plan([1])
    assert FixedLength(8).plan([3, 9, 4, 1]).pieces.equals(first.pieces)


@pytest.mark.parametrize("capacities", [2048, "2048", ["8"], [2.5], [True], {8: 1}, None])
def test_capacities_are_a_list_of_whole_numbers(capacities):
    with pytest.raises(
        StageError, match="capacities of compose must be a list of whole numbers of tokens, got .* write "
    ):
        lc.compose([1, 2], capacities)
    assert lc.compose([1, 2], np.array([8])).rows == lc.compose([1, 2], range(8, 9)).rows


@pytest.mark.parametrize("documents", [[[1, 2], [3]], ["text"], [np.array([1])]])
def test_lists_of_tokens_are_no_lengths(documents):
    with pytest.raises(StageError, match=r"as the first: write \[len\(tokens\) for tokens in documents\]"):
        lc.compose(documents)


def test_every_error_is_one_of_ours(tmp_path):
    with pytest.raises(LongCrawlError, match="documents must be a datasets"):
        lc.compose(5)
    for tokens in (["one two"], [5]):
        pq.write_table(pa.table({"tokens": tokens}), tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=r"a\.parquet has no lists in its column 'tokens', but (string|int64)"):
            lc.compose(tmp_path / "a.parquet")
    data = Dataset.from_dict({"tokens": [[1]]})
    for saved in (data, DatasetDict({"train": data})):
        saved.save_to_disk(tmp_path / type(saved).__name__)
        with pytest.raises(SourceError, match=r"written by Dataset.save_to_disk: .*load_from_disk"):
            lc.compose(tmp_path / type(saved).__name__)


def test_a_run_that_only_knows_its_input_is_not_finished(tmp_path):
    (tmp_path / "run" / "work").mkdir(parents=True)
    (tmp_path / "run" / "work" / "inputs.json").write_text('{"n_tokens": 5}')
    for ask in (lc.compose, lc.verify):
        with pytest.raises(RunError, match="is not finished: run the same `longcrawl run` again"):
            ask(tmp_path / "run")


@pytest.mark.slow
def test_the_teams_own_documents(real_data):
    comparison = lc.compose(f"{real_data}/*.jsonl.zst")
    assert len(comparison.lengths) == 6153
    assert comparison["Buckets"].r_tru == comparison["Buckets"].r_tru_floor
    assert comparison["Buckets"].r_tru < comparison["Fixed-16384"].r_tru / 3
