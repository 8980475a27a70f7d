"""Token shards as the end of runs and crawls: what is in them, against a naive oracle, and how killed runs end."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset, load_dataset

import longcrawl as lc
from longcrawl.core.sources import make_source
from longcrawl.errors import FormatError, RecipeError, SourceError, StageError
from longcrawl.formats.shards import write as shard_output
from longcrawl.formats.shards.spec import shards_in

SUFFIX = {
    "gpt-simple": ".bin",
    "datatrove": ".ds",
    "levanter": "/input_ids/data/c/0",
    "litdata": ".bin",
    "mds": ".mds",
    "megatron": ".bin",
    "nanogpt": ".bin",
    "olmo-core": ".npy",
}
NAMES = [*SUFFIX]
BESIDE = {
    "levanter": ("/input_ids/data/zarr.json", "/input_ids/offsets/c/0", "/input_ids/offsets/zarr.json"),
    "litdata": (".index.json",),
    "olmo-core": (".csv.gz",),
}
"""Suffixes of further files without which a shard is not found."""
PEERS = ("olmo_core.data", "levanter.store", "from streaming", "from litdata")
"""Imports of peers, which are not installed; see benchmarks/cross_reading.py."""
DOCUMENTS = 100
END = 0


def spec(
    source: Path, tokenizer: str, name: str = "gpt-simple", windows: tuple[int, int] | None = (64, 16), **settings
):
    stages = [{"tokenize": {"tokenizer": tokenizer}}, {"shuffle": {"seed": 1}}]
    if windows:
        stages.insert(1, {"windows": {"max_length": windows[0], "overlap_size": windows[1]}})
    return {
        "longcrawl": 1,
        "name": "shards",
        "about": "Made in a test.",
        "source": {"builder": "text", "data_dir": str(source), "id_field": "id"},
        "stages": stages,
        "outputs": {name: {"shard_bytes": 3_000, **settings}},
    }


def recipe_of(path: Path, *arguments, **settings) -> Path:
    path.write_text(yaml.safe_dump(spec(*arguments, **settings), sort_keys=False))
    return path


WINDOWS = dict.fromkeys(NAMES) | {"gpt-simple": (64, 16), "datatrove": (64, 16), "mds": (64, 0), "megatron": (64, 0)}


RUN = ("datatrove", "gpt-simple", "megatron")
"""Formats of which `make test` looks at a whole run; each has a test file of its own."""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name in RUN else pytest.mark.slow) for name in NAMES]
)
def run_folder(request, tmp_path_factory, source, tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("run")
    made = recipe_of(folder / "r.yaml", source, tokenizer, request.param, WINDOWS[request.param], heldout=0.1)
    lc.run(made, folder / "out")
    return folder / "out" / request.param


def opened(folder: Path, split: str = "train") -> list[lc.formats.TokenShard]:
    files = sorted((folder / split).rglob(f"*{SUFFIX[folder.name]}"))
    return [lc.formats.open_shard(file, folder.name, end_of_text=END) for file in files]


def held_out(folder: Path) -> str:
    return "validation" if folder.name == "levanter" else "val"


def texts_of(source: Path) -> dict[str, str]:
    lines = [line for file in sorted(source.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return {each["id"]: each["text"] for each in map(json.loads, lines)}


def naive_entries(tokens: list[int], windows: tuple[int, int] | None) -> list[tuple[list[int], int]]:
    tokens = [*tokens, END]
    most, overlap = windows or (len(tokens), 0)
    found, start = [], 0
    while True:
        found.append((tokens[start : start + most], overlap if start else 0))
        if start + most >= len(tokens):
            return found
        start += most - overlap


@pytest.mark.variants
def test_shards_hold_what_tokenising_and_cutting_by_hand_give(run_folder, source, tokenizer):
    encoder = lc.tokens.Tokenize(tokenizer).encoder()
    texts, seen = texts_of(source), []
    for split in ("train", held_out(run_folder)):
        for shard in opened(run_folder, split):
            stem = Path(shard.path.removesuffix(SUFFIX[run_folder.name])).name
            table = pq.read_table(run_folder / "documents" / split / f"{stem}.parquet")
            at = 0
            for row in table.to_pylist():
                assert row["shard"] == Path(shard.path).relative_to(run_folder).as_posix()
                wanted = naive_entries(encoder.encode([texts[row["id"]]]).ids.tolist(), WINDOWS[run_folder.name])
                assert (row["entry"], row["entries"]) == (at, len(wanted))
                for tokens, overlap in wanted:
                    assert shard.document(at).tolist() == tokens
                    if run_folder.name == "gpt-simple":
                        assert shard.overlaps[at] == overlap
                    if run_folder.name == "datatrove":
                        mask = shard.documents(at, at + 1).loss_mask
                        assert mask.tolist() == [place >= overlap for place in range(len(tokens))]
                    at += 1
                seen.append(row["id"])
            assert at == len(shard)
    assert sorted(seen) == sorted(texts)


@pytest.mark.variants
def test_documents_are_shuffled_and_the_first_are_held_out(run_folder, source):
    held = pq.read_table(run_folder / "documents" / held_out(run_folder))["id"].to_pylist()
    ordered = lc.Crawl(Dataset.from_dict({"id": list(texts_of(source))})) | lc.tokens.Shuffle(seed=1)
    assert held == ordered.data["id"][: round(0.1 * DOCUMENTS)]


@pytest.mark.variants
def test_held_out_shards_are_a_split_wherever_an_output_is_read(run_folder, tmp_path):
    name, suffix = run_folder.name, SUFFIX[run_folder.name]
    described = json.loads((run_folder / f"{name}.json").read_text())["splits"]
    for folder in (run_folder, run_folder.parent):  # the output, and the run
        data = load_dataset("longcrawl", name, data_dir=str(folder), end_of_text=END)
        assert {split: len(rows) for split, rows in data.items()} == {
            split: told["entries"] for split, told in described.items()
        }
        held = held_out(run_folder)
        for split in ("train", held):
            listed = shards_in(folder, None, split)
            assert listed == sorted((run_folder / split).rglob(f"*{suffix}")) == shards_in(folder, name, split)
        assert len(shards_in(folder, None, None)) == described["train"]["shards"] + described[held]["shards"]
    reading = {"source_format": name, "end_of_text": END}
    packed = lc.loading.Packed(run_folder.parent, max_length=64, format=name, end_of_text=END)
    assert [shard.path for shard in packed.buckets[""].shards] == [shard.path for shard in opened(run_folder)]
    told = lc.convert(run_folder.parent, tmp_path / "other", "token-parquet", **reading)
    assert sum(shard.documents for shard in told.shards) == sum(split["entries"] for split in described.values())
    assert (tmp_path / "other" / name / held / "00000.parquet").exists()


def test_only_shards_that_an_output_lists_are_its_own(run_folder, tmp_path, sentence_of):
    name, suffix = run_folder.name, SUFFIX[run_folder.name]
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    for ending in (suffix, *BESIDE.get(name, ())):
        for stale in (copy / f"train/stale{ending}", tmp_path / f"stale{ending}"):
            stale.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(copy / f"train/00000{ending}", stale)
    assert copy / f"train/stale{suffix}" not in shards_in(copy)
    (copy / f"{name}.json").unlink()
    assert copy / f"train/stale{suffix}" in shards_in(copy)
    assert not [file for file in shards_in(copy) if file.suffix == ".parquet"]  # documents/ is beside train/
    for file in tmp_path.glob("stale*"):
        shutil.move(file, copy)
    assert "stale" in sentence_of(FormatError, shards_in, copy, None, "train")
    assert "so its split is unknown: move it" in sentence_of(
        SourceError, make_source(name, {"data_dir": str(copy), "end_of_text": END}).splits
    )
    assert "no token shard of the split 'val'" in sentence_of(FormatError, shards_in, copy / "train", None, "val")


def test_shards_are_about_equal_and_no_larger_on_average(run_folder):
    sizes = [shard.tokens.nbytes for shard in opened(run_folder)]
    assert len(sizes) > 3
    assert sum(sizes) / len(sizes) <= 3_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-simple", "datatrove", "levanter", "litdata", "mds"])
def test_bytes_do_not_depend_on_workers(name, tmp_path, source, tokenizer, directory_digest):
    made = recipe_of(tmp_path / "r.yaml", source, tokenizer, name, WINDOWS[name], buckets="language", heldout=2)
    digests = set()
    for workers in (1, 2):
        lc.run(made, tmp_path / f"out{workers}", num_proc=workers)
        digests.add(directory_digest(tmp_path / f"out{workers}"))
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "gpt-simple/train/00002.idx",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                "work/spill/00002.index",
                "gpt-simple/gpt-simple.json",
                "levanter/train/00001/input_ids/offsets/c/0",
                "levanter/train/shard_ledger.json",
                "litdata/train/index.json",
                "mds/train/index.json",
            )
        ),
    ],
)
def test_a_killed_run_goes_on_to_the_same_bytes(place, tmp_path, source, tokenizer, python, directory_digest):
    name = place.partition("/")[0]
    known = name if name in NAMES else "gpt-simple"
    made = recipe_of(tmp_path / "r.yaml", source, tokenizer, known, WINDOWS[known])
    lc.run(made, tmp_path / "whole")
    program = f"""
import os, sys
from pathlib import Path
replace = Path.replace
def stop(self, target):
    if str(target).endswith({place!r}):
        os._exit(9)
    return replace(self, target)
Path.replace = stop
import longcrawl as lc
lc.run({str(made)!r}, {str(tmp_path / "out")!r})
"""
    killed = python(program)
    assert killed.returncode == 9, killed.stderr
    assert not (tmp_path / "out/manifest.json").exists()
    lc.run(made, tmp_path / "out")
    assert directory_digest(tmp_path / "out") == directory_digest(tmp_path / "whole")


@pytest.mark.slow
def test_buckets_are_folders_with_splits_of_their_own(tmp_path, source, tokenizer):
    out = tmp_path / "out"
    summary = lc.run(recipe_of(tmp_path / "r.yaml", source, tokenizer, buckets="language", heldout=3), out)
    folder = out / "gpt-simple"
    assert {path.name for path in (folder / "train").iterdir()} == {"de", "en"}
    for bucket, split in itertools.product(["de", "en"], ["train", "val"]):
        tables = pq.read_table(folder / "documents" / split / bucket)
        assert set(tables["language"].to_pylist()) == {bucket}
        assert split == "train" or tables.num_rows == 3
    assert [each["bucket"] for each in summary.written["buckets"]] == ["de", "en"]
    assert "2 buckets" in str(summary)
    card = (out / "README.md").read_text()
    assert "| train | `de` |" in card
    assert 'data_files="gpt-simple/train/*/*.bin"' in card
    rows = load_dataset(str(out), "documents", split="val")
    assert len(rows) == 6


def test_documents_without_a_bucket_are_in_unknown(tmp_path):
    data = Dataset.from_dict({"id": ["a", "b"], "tokens": [[1], [2]], "kind": ["x/y", None]})
    lc.Crawl(data).to_datatrove(tmp_path / "out", end_of_text=END, buckets="kind")
    assert {path.name for path in (tmp_path / "out/train").iterdir()} == {"x~2Fy", "unknown"}


@pytest.mark.variants
def test_a_run_is_verified_inspected_and_asked(run_folder):
    out = run_folder.parent
    assert str(lc.verify(out)).startswith(f"{out}: whole")
    assert lc.verify(run_folder).problems == ()
    told = lc.inspect(out, row=5)
    assert (
        told.text
        in texts_of(Path(yaml.safe_load((out / "recipe.yaml").read_text())["source"]["data_dir"]))[told.row_id]
    )
    assert told.row_id in str(told)
    assert "site" in str(told)
    assert lc.inspect(run_folder, held_out(run_folder), 9).row == 9
    assert str(lc.why(out, told.row_id)) == f"{told.row_id}: kept"
    assert lc.analysis(out) == lc.analysis(run_folder)
    assert lc.analysis(out).documents == DOCUMENTS


@pytest.mark.variants
def test_the_code_of_the_card_runs(run_folder, python, monkeypatch):
    card = (run_folder.parent / "README.md").read_text()
    code = card.split("## Load it")[1].split("## What is left")[0].split("```python\n")[1:]
    code = [block for block in code if not any(peer in block for peer in PEERS)]
    assert len(code) == 3
    program = "\n".join(block.split("```")[0] for block in code).replace('"user/name"', f'"{run_folder.parent}"')
    monkeypatch.chdir(run_folder.parent)
    ran = python(program)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.variants
def test_every_changed_missing_or_added_file_is_found(run_folder, tmp_path):
    import shutil

    for change, said in (("cut", "has"), ("unlink", "is missing"), ("change", "has been changed")):
        copy = tmp_path / change / run_folder.name
        shutil.copytree(run_folder, copy)
        shard = next((copy / "train").rglob(f"*{SUFFIX[run_folder.name]}"))
        content = shard.read_bytes()
        if change == "unlink":
            shard.unlink()
        else:
            shard.write_bytes(content[:-2] if change == "cut" else bytes([content[0] ^ 1]) + content[1:])
        (problem,) = lc.verify(copy).problems
        assert said in problem
    copy = tmp_path / "added" / run_folder.name
    shutil.copytree(run_folder, copy)
    added = copy / "train" / f"99999{SUFFIX[run_folder.name]}"
    added.parent.mkdir(parents=True, exist_ok=True)
    added.write_bytes(b"12")
    assert "is not part of this output" in lc.verify(copy).problems[0]


def test_what_is_not_there_is_said(run_folder):
    with pytest.raises(FormatError, match="has no split 'test'; known: train, val"):
        lc.inspect(run_folder, "test")
    with pytest.raises(FormatError, match=f"split '{held_out(run_folder)}' has documents 0 to 9, not 10"):
        lc.inspect(run_folder, held_out(run_folder), 10)


@pytest.mark.slow
def test_our_own_dataset_and_crawl_give_the_same_shards(tmp_path, source, tokenizer):
    data = load_dataset("longcrawl", "text", data_dir=str(source), id_field="id", split="train")
    crawl = lc.Crawl(data) | lc.tokens.Tokenize(tokenizer) | lc.tokens.Windows(64, 16) | lc.tokens.Shuffle(seed=1)
    crawl.to_gpt_simple(tmp_path / "crawl", shard_bytes=3_000)
    lc.run(recipe_of(tmp_path / "r.yaml", source, tokenizer), tmp_path / "run")
    for file in (tmp_path / "run/gpt-simple/train").iterdir():
        assert file.read_bytes() == (tmp_path / "crawl/train" / file.name).read_bytes()
    described, ran = (
        json.loads((tmp_path / made / "gpt-simple.json").read_text()) for made in ("crawl", "run/gpt-simple")
    )
    assert described["shuffled"] is ran["shuffled"] is True


def tokens_crawl(**columns) -> lc.Crawl:
    return lc.Crawl(Dataset.from_dict({"id": ["a", "b"], "tokens": [[1, 2, 3], [4]], **columns}))


def test_a_small_vocabulary_is_uint16_whatever_the_column(tmp_path):
    data = Dataset.from_dict({"id": [str(n) for n in range(100)], "tokens": [[n + 1, 1] for n in range(100)]})
    crawl = lc.Crawl(data)  # of int64
    with pytest.raises(FormatError, match="nanoGPT reads as uint16: name a vocabulary_size of 65,536 or less"):
        crawl.to_nanogpt(tmp_path / "refused", end_of_text=END)
    told = crawl.to_nanogpt(tmp_path / "out", end_of_text=END, vocabulary_size=50_257, shard_bytes=300)
    assert (told["dtype"], told["vocabulary_size"], told["splits"]["train"]["shards"]) == ("uint16", 50_257, 2)
    read = [np.memmap(file, np.uint16, "r").tolist() for file in sorted((tmp_path / "out/train").glob("*.bin"))]
    assert [*itertools.chain(*read)] == [token for n in range(100) for token in (n + 1, 1, END)]
    assert lc.inspect(tmp_path / "out", row=99).n_tokens == 2
    crawl.to_nanogpt(tmp_path / "wide", end_of_text=END, dtype="uint32")
    assert np.memmap(tmp_path / "wide/train/00000.bin", np.uint32, "r")[:3].tolist() == [1, 1, END]
    assert crawl.to_gpt_simple(tmp_path / "simple", end_of_text=END, vocabulary_size=50_257)["dtype"] == "uint16"


def test_what_is_written_at_a_time_changes_nothing(tmp_path, monkeypatch, directory_digest):
    data = Dataset.from_dict({"id": [str(n) for n in range(40)], "tokens": [[1] * (n % 9) for n in range(40)]})
    crawl = lc.Crawl(data) | lc.tokens.Windows(4, 2)
    crawl.to_datatrove(tmp_path / "one", end_of_text=END, shard_bytes=300)
    monkeypatch.setattr(shard_output, "GROUP_BYTES", 50)
    crawl.to_datatrove(tmp_path / "many", end_of_text=END, shard_bytes=300)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "many")


def test_an_end_of_text_that_is_there_is_not_added_again(tmp_path):
    data = lc.Crawl(Dataset.from_dict({"id": ["a", "b"], "tokens": [[1, 2, END], [END]]}))
    (data | lc.tokens.Windows(2, 1, end_of_text=END)).to_gpt_simple(tmp_path / "out", end_of_text=END)
    shard = lc.formats.open_shard(tmp_path / "out/train/00000.bin")
    assert [shard.document(number).tolist() for number in range(3)] == [[1, 2], [2, END], [END]]
    with pytest.raises(StageError, match="set windows.end_of_text if documents already end with it"):
        (data | lc.tokens.Windows(2, 1)).to_gpt_simple(tmp_path / "wrong", end_of_text=END)


def test_a_loss_mask_is_carried_by_datatrove_and_refused_by_others(tmp_path):
    crawl = tokens_crawl(loss_mask=[[True, False, True], [False]])
    (crawl | lc.tokens.Windows(3, 1)).to_datatrove(tmp_path / "out", end_of_text=END)
    shard = lc.formats.open_shard(tmp_path / "out/train/00000.ds")
    assert shard.tokens.tolist() == [1, 2, 3, 3, END, 4, END]
    assert shard.loss_mask.tolist() == [True, False, True, False, True, False, True]
    with pytest.raises(FormatError, match="gpt-simple cannot hold the loss mask, which is False for 2 tokens"):
        crawl.to_gpt_simple(tmp_path / "refused", end_of_text=END)
    with pytest.warns(UserWarning, match="megatron cannot hold the loss mask"):
        crawl.to_megatron(tmp_path / "warned", end_of_text=END, on_loss="warn")


def test_llm_c_has_the_end_of_text_at_the_start(tmp_path):
    tokens_crawl().to_nanogpt(tmp_path / "out", end_of_text=END, header="llm.c")
    shard = lc.formats.open_shard(tmp_path / "out/train/00000.bin", end_of_text=END)
    assert shard.tokens.tolist() == [END, 1, 2, 3, END, 4]
    assert lc.verify(tmp_path / "out").problems == ()
    assert lc.inspect(tmp_path / "out", row=1).entry == 1


def test_windows_of_another_shard_stay_windows(tmp_path):
    (tokens_crawl() | lc.tokens.Windows(3, 1)).to_gpt_simple(tmp_path / "one", end_of_text=END)
    file = str(tmp_path / "one/train/00000.bin")
    again = lc.Crawl(load_dataset("longcrawl", "gpt-simple", data_files=file, split="train"))
    again.to_gpt_simple(tmp_path / "two", end_of_text=END)
    for name in ("00000.bin", "00000.idx"):
        assert (tmp_path / "one/train" / name).read_bytes() == (tmp_path / "two/train" / name).read_bytes()
    with pytest.raises(StageError, match="they are windows already: remove the stage windows"):
        (again | lc.tokens.Windows(3, 1)).to_gpt_simple(tmp_path / "three", end_of_text=END)


@pytest.mark.parametrize(
    ("name", "windows", "said"),
    [
        ("megatron", (64, 16), "megatron cannot record that windows overlap, so their overlaps would count twice"),
        ("nanogpt", (64, 0), "nanogpt cannot tell windows apart, since they end without an end-of-text token"),
        ("levanter", (64, 0), "levanter cannot tell windows apart, since they end without an end-of-text token"),
        ("litdata", (64, 0), r"remove the stage windows \(--max-length of longcrawl tokenize\)"),
        ("litdata", (64, 0), "litdata cannot tell windows apart, since they end without an end-of-text token"),
        ("mds", (64, 16), "mds cannot record that windows overlap, so their overlaps would count twice"),
        ("olmo-core", (64, 0), "olmo-core cannot tell windows apart, since they end without an end-of-text token"),
        ("gpt-simple", (200_000, 70_000), "windows.overlap_size is 70,000, but the index of gpt-simple holds 65,535"),
    ],
)
def test_windows_that_a_format_cannot_hold_are_refused_before_anything_is_read(
    name, windows, said, tmp_path, source, tokenizer
):
    with pytest.raises(StageError, match=said):
        lc.run(recipe_of(tmp_path / "r.yaml", source, tokenizer, name, windows), tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"heldout": 1.5}, "gpt-simple.heldout must be a fraction below 1 or a whole number of rows, got 1.5"),
        ({"shard_bytes": 0}, "gpt-simple.shard_bytes is 0: set it to 1 or more"),
        ({"end_of_text": -1}, "gpt-simple.end_of_text is -1: set it to 0 or more"),
        ({"bucket": "x"}, "has no field 'bucket'; known: buckets, dtype, end_of_text, heldout, on_loss"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said, tmp_path, source, tokenizer):
    with pytest.raises(RecipeError, match=said):
        lc.load_recipe(recipe_of(tmp_path / "r.yaml", source, tokenizer, **settings))


def test_what_the_documents_lack_is_said(tmp_path):
    with pytest.raises(StageError, match="gpt-simple needs an end-of-text token: add the stage tokenize, or set"):
        tokens_crawl().to_gpt_simple(tmp_path / "out")
    with pytest.raises(StageError, match="gpt-simple.buckets needs a column 'source'; the documents have: id, tokens"):
        tokens_crawl().to_gpt_simple(tmp_path / "out", end_of_text=END, buckets="source")
    with pytest.raises(StageError, match="gpt-simple.buckets refers to column 'kind', which is int64: choose a text"):
        tokens_crawl(kind=[1, 2]).to_gpt_simple(tmp_path / "out", end_of_text=END, buckets="kind")
    narrow = lc.Crawl(Dataset(pa.table({"tokens": pa.array([[1]], pa.list_(pa.uint16()))})))
    with pytest.raises(FormatError, match="end_of_text 70,000 does not fit uint16: set dtype to 'uint32'"):
        narrow.to_gpt_simple(tmp_path / "out", end_of_text=70_000)
    assert not (tmp_path / "out").exists()


@pytest.mark.variants
@pytest.mark.parametrize("name", ["gpt-simple", "datatrove"])
def test_the_shipped_recipes_run(name, tmp_path, source, tokenizer):
    overrides = [f"source.data_dir={source}", f"stages.tokenize.tokenizer={tokenizer}"]
    summary = lc.run(name, tmp_path / "out", overrides=overrides)
    assert summary.written["splits"]["train"]["documents"] == DOCUMENTS
    shards = opened(tmp_path / "out" / name)
    assert sum(np.count_nonzero(shard.tokens == END) for shard in shards) == DOCUMENTS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "windows"),
    [
        ({"gpt-simple": {"shard_bytes": 3_000}}, (64, 16)),
        ({"composed": {"capacities": [64, 128], "heldout": 0.1}}, None),
    ],
)
def test_a_run_does_not_import_datasets(outputs, windows, source, tokenizer, tmp_path):
    # It takes half a second, and again in each worker.
    made = spec(source, tokenizer, windows=windows) | {"outputs": outputs}
    made["stages"][:0] = [
        "url_filter",
        {"gopher_repetition": {"max_top_2gram": None}},
        {"c4_quality": {"min_sentences": None, "terminal_punctuation": "ignored"}},
    ]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(made, sort_keys=False))
    code = f"""
import sys
import longcrawl as lc
lc.run({str(recipe)!r}, {str(tmp_path / "out")!r})
print("datasets" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("name", ["litdata", "mds"])
def test_files_of_4_gib_are_refused_before_anything_is_read(name, tmp_path, source, tokenizer):
    made = recipe_of(tmp_path / "r.yaml", source, tokenizer, name, None, shard_bytes=1 << 32)
    with pytest.raises(
        (RecipeError, StageError), match="but its files have less than 4 GiB: set it to at most 3,000,0"
    ):
        lc.run(made, tmp_path / "out")
