"""Files that a push makes first: tables that plain `datasets` loads, and one ledger file instead of many."""

import importlib.util
import json
import os
import random
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zarr
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import HubError, LoaderError, RunError
from longcrawl.formats.shards.spec import FORMATS, shards_in
from longcrawl.publish.hub import push
from longcrawl.run.engines.hold import hold_alone

LENGTH, DOCUMENTS = 32, 60
TOKENIZE = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}
WINDOWS = {"windows": {"max_length": 24, "overlap_size": 4}}
ROWS = [{"min_tokens": {"n": LENGTH}}, {"truncate": {"n": LENGTH}}, "shuffle", "roll"]
STAGES = {
    "rectangle": [TOKENIZE, *ROWS],
    "gpt-simple": [TOKENIZE, WINDOWS],
    "datatrove": [TOKENIZE, WINDOWS],
    "megatron": [TOKENIZE, "shuffle"],
    "nanogpt": [TOKENIZE],
    "olmo-core": [TOKENIZE],
    "levanter": [TOKENIZE],
    "litdata": [TOKENIZE],
    "mds": [TOKENIZE],
    "composed": [TOKENIZE],
    "parquet": [],
}
SETTINGS = {name: {"shard_bytes": 1500} for name in STAGES if name not in ("composed", "parquet", "rectangle")}
SETTINGS |= {"composed": {"capacities": [32, 64]}}


def write_run(folder: Path, output: str) -> Path:
    chance = random.Random(3)
    folder.mkdir()
    for part in range(3):
        rows = []
        for number in range(part, DOCUMENTS, 3):
            words = chance.choices(["öffnen", "river", '"quoted"', "sea", "a\nline"], k=chance.randint(2, 60))
            rows.append({"id": str(number), "url": f"https://e.org/{number}", "text": " ".join(words)})
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"longcrawl": 1, "name": "tiny", "about": "Made in a test."}
    spec |= {"source": {"builder": "text", "id_field": "id", "data_dir": str(folder)}}
    spec |= {"stages": [{"min_chars": {"n": 40}}, *STAGES[output]]}
    spec |= {"outputs": {output: {"heldout": 5} | SETTINGS.get(output, {})}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "tiny.yaml", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    class Runs(dict):
        def __missing__(self, name):
            self[name] = write_run(folder / name, name)
            return self[name]

    return Runs()


@pytest.fixture
def run(runs, tmp_path):
    return shutil.copytree(runs["rectangle"], tmp_path / "run")


def stored(run: Path, output: str) -> dict[str, list]:
    """Return what an output holds by split, as its own readers read it."""
    folder = run / output
    if output == "rectangle":
        group = zarr.open_group(str(folder), mode="r")
        return {split: group[split][:].tolist() for split in ("train", "heldout")}
    if output == "parquet":
        return {split: pq.read_table(sorted(folder.glob(f"{split}-*")))["text"].to_pylist() for split in SPLITS}
    found = {}
    if output == "composed":
        for bucket in lc.formats.open_composed(folder).buckets:
            read = bucket.read(np.arange(len(bucket)))
            rows = [row[: sum(sizes)].tolist() for row, sizes in zip(read.tokens, read.piece_sizes, strict=True)]
            found.setdefault(bucket.split, []).extend(rows)
        return found
    described = json.loads((folder / f"{output}.json").read_text())
    settings = {"token_size": 2} if output == "nanogpt" else {}
    for split in described["splits"]:
        shards = sorted((folder / split).glob(f"*{FORMATS[output].suffix}"))
        assert len(shards) > (split == "train")
        opened = [
            lc.formats.open_shard(each, output, end_of_text=described["end_of_text"], **settings) for each in shards
        ]
        found[split] = [each.document(number).tolist() for each in opened for number in range(len(each))]
    return found


SPLITS = ("train", "heldout")
PLAIN = """
import importlib.util, json, sys
assert importlib.util.find_spec("longcrawl") is None
from datasets import load_dataset

found = {}
for name in sys.argv[1:]:
    data = load_dataset(f"me/content-{name}")
    found[name] = {split: {each: rows[each][:] for each in rows.column_names} for split, rows in data.items()}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_pushed_dataset_has_its_content_without_longcrawl(hub, runs, tmp_path):
    source = runs["rectangle"].parent
    runs = {name: Path(shutil.copytree(runs[name], tmp_path / name)) for name in STAGES}
    for name, run in runs.items():
        lc.push(run, f"me/content-{name}", "private")
        assert lc.verify(run).problems == ()
        assert lc.verify(f"hf://datasets/me/content-{name}").problems == ()
    place = Path(__file__).parents[2] / "second_environment.py"
    spec = importlib.util.spec_from_file_location(place.stem, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    python = module.environment_without("longcrawl", tmp_path / "environment")
    environment = os.environ | hub.environment | {"HF_HOME": str(tmp_path / "home"), "USE_TORCH": "NO"}
    command = [python, "-I", "-c", PLAIN, *runs]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = json.loads(done.stdout)
    for name, run in runs.items():
        column = "text" if name == "parquet" else "input_ids"
        assert {split: rows[column] for split, rows in loaded[name].items()} == stored(run, name)
    train = loaded["rectangle"]["train"]
    origins = pq.read_table(runs["rectangle"] / "rectangle/rows/train.parquet").to_pydict()
    assert {name: train[name] for name in ("id", "url", "roll")} == {
        name: origins[name] for name in ("id", "url", "roll")
    }
    texts = {row["id"]: row["text"] for file in source.glob("*.jsonl") for row in map(json.loads, file.open())}
    for name in ("rectangle", "nanogpt", "megatron"):
        rows = loaded[name]["train"]
        for number, beginning in zip(rows["id"], rows["beginning"], strict=True):
            assert len(beginning) > 20
            assert texts[number].startswith(beginning.removesuffix("<|endoftext|>").rstrip("\ufffd"))
    windows, masked = (loaded[name]["train"] for name in ("gpt-simple", "datatrove"))
    assert max(windows["n_tokens"]) == 24
    assert set(windows["overlap"]) == {0, 4}
    assert [row.index(True) for row in masked["loss_mask"]] == windows["overlap"]
    packed = loaded["composed"]["train"]
    assert [sum(sizes) for sizes in packed["seq_lengths"]] == packed["n_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("output", ["rectangle", pytest.param("nanogpt", marks=pytest.mark.slow)])
def test_texts_are_pushed_where_they_are_asked_for(runs, tmp_path, output):
    run = shutil.copytree(runs[output], tmp_path / "run")
    push.prepare(run)
    begun = {file.name: pq.read_table(file) for file in (run / "tokens").iterdir()}
    push.prepare(run, "text")
    assert lc.verify(run).problems == ()
    lines = [json.loads(line) for file in runs[output].parent.glob("*.jsonl") for line in file.open()]
    texts = {line["id"]: line["text"] for line in lines}
    for file in (run / "tokens").iterdir():
        table, before = pq.read_table(file), begun[file.name]
        assert table.drop_columns("text").equals(before.drop_columns("beginning"))
        for row, beginning in zip(table.to_pylist(), before["beginning"].to_pylist(), strict=True):
            text, whole = row["text"], texts[row["id"]]
            assert text == whole if output == "nanogpt" else whole.startswith(text.rstrip("\ufffd"))
            assert (text + "<|endoftext|>").startswith(beginning.rstrip("\ufffd"))
    before = (run / "manifest.json").read_bytes()
    push.prepare(run, "text")
    assert (run / "manifest.json").read_bytes() == before
    push.prepare(run)  # a later push without texts has none of this one
    assert {file.name: pq.read_table(file) for file in (run / "tokens").iterdir()} == begun
    assert lc.verify(run).problems == ()


@pytest.mark.slow
def test_texts_without_a_tokenizer_are_one_sentence(runs, tmp_path):
    run = shutil.copytree(runs["nanogpt"], tmp_path / "run")
    (run / "nanogpt/tokenizer.json").unlink()
    with pytest.raises(RunError, match=r"has no tokenizer\.json to decode its tokens: use --tables tokens"):
        push.prepare(run, "text")


def count_windows(run: Path, output: str) -> int:
    """Count what a trainer reads of the folder of a run, where it can: tables of a push are no shards."""
    return len(lc.loading.Windows(run, 16)) if output in FORMATS else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "output", ["rectangle", *(pytest.param(each, marks=pytest.mark.slow) for each in ("datatrove", "composed"))]
)
def test_tables_are_the_same_in_many_files_by_any_number_of_processes(runs, tmp_path, monkeypatch, output):
    monkeypatch.setattr(push, "FILE_TOKENS", 300)
    copies = [shutil.copytree(runs[output], tmp_path / str(number)) for number in (1, 2)]
    made, windows = [], count_windows(runs[output], output)
    for number, run in enumerate(copies, 1):
        push.prepare(run, num_proc=number)
        made.append({file.name: file.read_bytes() for file in (run / "tokens").iterdir()})
        assert (run / "manifest.json").read_bytes() == (copies[0] / "manifest.json").read_bytes()
    assert made[0] == made[1]
    assert count_windows(copies[0], output) == windows
    assert len([name for name in made[0] if name.startswith("train-")]) > 2
    rows = datasets.load_dataset("parquet", data_files=str(copies[0] / "tokens/train-*"), cache_dir=str(tmp_path / "c"))
    assert rows["train"]["input_ids"][:] == stored(copies[0], output)["train"]


@pytest.mark.slow
def test_a_stopped_push_keeps_the_tables_that_it_has_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(push, "FILE_TOKENS", 300)
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    push.prepare(whole)
    write, written = push._write_table, []

    def write_two(task):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(task.file.name)
        return write(task)

    before = (run / "manifest.json").read_bytes()
    monkeypatch.setattr(push, "_write_table", write_two)
    with pytest.raises(KeyboardInterrupt):
        push.prepare(run)
    assert (run / "manifest.json").read_bytes() == before
    assert lc.verify(run).problems == ()
    monkeypatch.setattr(push, "_write_table", lambda task: written.append(task.file.name) or write(task))
    push.prepare(run)
    assert len(written) == len(set(written)) == len(list((run / "tokens").iterdir()))
    for file in (whole / "tokens").iterdir():
        assert (run / "tokens" / file.name).read_bytes() == file.read_bytes()


def test_a_ledger_is_one_file_with_the_rows_of_all(run):
    parts = sorted((run / "ledger").glob("*.parquet"))
    before = pa.concat_tables([pq.read_table(file) for file in parts])
    gone = before["id"][0].as_py()
    told = str(lc.why(run, gone))
    push.prepare(run)
    (merged,) = (run / "ledger").glob("*.parquet")
    assert len(parts) > 1
    assert pq.read_table(merged).equals(before)
    assert str(lc.why(run, gone)) == told
    assert lc.verify(run).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("stops_at", ["remove", "publish", "card"])
def test_a_push_that_stops_between_moves_is_finished_by_the_next(hub, run, monkeypatch, stops_at):

    def stop(*_given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(push, stops_at, stop)
        with pytest.raises(KeyboardInterrupt):
            lc.push(run, "me/stops", "private")
    sent = lc.push(run, f"me/stops-{stops_at}", "private")
    assert lc.verify(run).problems == ()
    assert not (run / ".push").exists()
    assert {"tokens/train-00000-of-00001.parquet", "README.md"} <= sent.send.keys()
    head = yaml.safe_load((run / "README.md").read_text().split("---\n")[1])
    assert [each["config_name"] for each in head["configs"] if each.get("default")] == ["tokens"]


@pytest.mark.slow
def test_tables_of_runs_are_no_shards(runs):
    for name, feed in {"rectangle": "Rectangle", "composed": "ComposedBatches"}.items():
        for folder in (runs[name], runs[name] / name):
            with pytest.raises(LoaderError, match=f"whose arrays lc.loading.{feed} reads"):
                lc.loading.Windows(folder, 16)
    assert shards_in(runs["parquet"], None, None) == sorted((runs["parquet"] / "parquet").glob("*.parquet"))


def test_held_out_parquet_is_not_trained_on(tmp_path):
    made = lc.Crawl({"id": list("abcdef"), "tokens": [[number] * 8 for number in range(6)]})
    made.to_parquet(tmp_path / "made", heldout=2)
    splits = [
        {int(window["input_ids"][0]) for window in lc.loading.Windows(tmp_path / "made", 7, split=split)}
        for split in ("train", "val")
    ]
    assert [len(split) for split in splits] == [4, 2]
    assert splits[0] | splits[1] == set(range(6))


@pytest.mark.slow
@pytest.mark.parametrize(
    "output", ["rectangle", *(pytest.param(each, marks=pytest.mark.slow) for each in STAGES if each != "rectangle")]
)
def test_runs_and_crawls_do_not_share_a_repository(hub, runs, output, tmp_path):
    run, repo = Path(shutil.copytree(runs[output], tmp_path / "run")), f"me/shared-{output}"
    crawl = lc.Crawl({"id": ["a", "bcd"], "text": ["short", "a longer text"]}) | lc.text.MinChars(6)
    for first, second, said in (
        (lambda name: crawl.push_to_hub(name, "private"), lambda name: lc.push(run, name, "private"), "by a run of"),
        (
            lambda name: lc.push(run, name, "private"),
            lambda name: crawl.push_to_hub(name, "private"),
            "holds a run, or",
        ),
    ):
        repo += "-x"
        first(repo)
        before, loaded = hub.repositories[repo].files(), datasets.load_dataset(repo)["train"][0]
        with pytest.raises(HubError, match=said):
            second(repo)
        assert hub.repositories[repo].files() == before
        assert datasets.load_dataset(repo)["train"][0] == loaded


@pytest.mark.slow
def test_two_pushes_do_not_prepare_a_run_at_once(hub, run):
    (run / ".push").mkdir()
    with hold_alone(run / ".push", "push"), pytest.raises(RunError, match="another push is working in .*: wait for it"):
        lc.push(run, "me/twice", "private")
    assert lc.verify(run).problems == ()
    lc.push(run, "me/twice", "private")
    assert (run / "tokens").is_dir()
    assert not (run / ".push").exists()


@pytest.mark.slow
def test_a_push_that_waited_for_another_writes_nothing_again(run, tmp_path, monkeypatch):
    alone = push._alone

    @contextmanager
    def behind_another(folder):
        with monkeypatch.context() as patch:
            patch.setattr(push, "_alone", alone)
            push.prepare(folder)
        written.update({file: file.stat().st_ino for file in run.rglob("*") if file.is_file()})
        with alone(folder) as beside:
            yield beside

    written = {}
    monkeypatch.setattr(push, "_alone", behind_another)
    push.prepare(run)
    assert {file: file.stat().st_ino for file in run.rglob("*") if file.is_file()} == written


@pytest.mark.slow
def test_a_dry_run_names_tables_and_none_leaves_the_run_as_it_is(hub, run):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    shown = str(lc.push(run, "me/dry", "private", dry_run=True))
    assert "made first  tokens/train-00000-of-00001.parquet" in shown
    assert "tag known once its tables are written" in shown
    assert before == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with pytest.raises(RunError, match="tables takes one of 'tokens', 'text', 'none', got 'all'"):
        lc.push(run, "me/dry", "private", tables="all")
    lc.push(run, "me/dry", "private", tables="none")
    assert before == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    made = lc.push(run, "me/dry", "private")
    assert "ledger/00-00000.parquet" in made.delete
    assert lc.verify("hf://datasets/me/dry").problems == ()
    shown = lc.push(run, "me/dry", "private", tables="none", dry_run=True)
    assert shown.dropped == shown.delete == tuple(name for name in made.send if name.startswith("tokens/"))
    assert "removed first  tokens/train-00000-of-00001.parquet" in str(shown)
    gone = lc.push(run, "me/dry", "private", tables="none")
    assert gone.delete == shown.delete
    assert not (run / "tokens").exists()
    assert lc.verify(run).problems == lc.verify("hf://datasets/me/dry").problems == ()
    assert "input_ids" not in datasets.load_dataset("me/dry")["train"].column_names


@pytest.mark.slow
@pytest.mark.parametrize(
    "output", ["rectangle", *(pytest.param(each, marks=pytest.mark.slow) for each in STAGES if each != "rectangle")]
)
def test_a_folder_loads_what_its_tables_will_have(runs, output, tmp_path):
    run, cache = Path(shutil.copytree(runs[output], tmp_path / "run")), str(tmp_path / "cache")
    column = "text" if output == "parquet" else "input_ids"
    loaded = [datasets.load_dataset(str(place), cache_dir=cache) for place in (run, run / output)]
    stream = datasets.load_dataset(str(run), split="train", streaming=True)
    assert list(stream) == loaded[0]["train"].to_list()
    assert {split: rows[column][:] for split, rows in loaded[1].items()} == stored(run, output)
    shown = CliRunner().invoke(app, ["tables", str(run)])
    assert shown.exit_code == 0, shown.output
    assert lc.verify(run).problems == ()
    assert (run / "tokens").exists() == (output != "parquet")
    loaded.append(datasets.load_dataset(str(run), cache_dir=cache))
    for each in loaded if output != "parquet" else ():
        assert {split: rows.to_list() for split, rows in each.items()} == {
            split: rows.to_list() for split, rows in loaded[-1].items()
        }
        assert each["train"].features == loaded[-1]["train"].features
    files = {name: [file for file in (run / name).rglob("*") if file.is_file()] for name in (output, "tokens")}
    sizes = {name: sum(file.stat().st_size for file in found) for name, found in files.items()}
    card = (run / "README.md").read_text()
    assert output == "parquet" or all(f"`{name}/` has {size:,} bytes" in card for name, size in sizes.items())
    assert datasets.load_dataset(str(run), "ledger", cache_dir=cache)["removed"].column_names[0] == "id"


def test_another_default_of_a_person_loads(run, tmp_path):
    head = {"configs": [{"config_name": "mine", "data_files": "ledger/*.parquet", "default": True}]}
    (run / "README.md").write_text(f"---\n{yaml.safe_dump(head)}---\n# Mine\n")
    assert "rule" in datasets.load_dataset(str(run), cache_dir=str(tmp_path / "c"))["train"].column_names


def test_a_card_of_a_person_gets_no_tables(hub, run):
    (run / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    with pytest.warns(UserWarning, match="has none of longcrawl's comments, so token tables"):
        sent = lc.push(run, "me/mine", "private")
    assert not [name for name in sent.send if name.startswith("tokens/")]
