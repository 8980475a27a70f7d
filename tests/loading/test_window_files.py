"""Files of windows: which there are, and a list of them that is kept."""

import json
import multiprocessing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from window_shards import copy_to, write

from longcrawl.errors import CorruptionError, LoaderError
from longcrawl.loading import Windows


def test_a_paths_file_is_made_once_and_kept(tmp_path):
    for number in range(3):
        write(tmp_path / "data" / f"{number}.ds", [30], seed=number)
    paths_file = tmp_path / "paths" / "list.json"
    first = Windows(tmp_path / "data", 4, paths_file=paths_file)
    entries = json.loads(paths_file.read_text())
    assert entries == [{"path": f"{number}.ds", "size": 60, "tokens": 30} for number in range(3)]
    write(tmp_path / "data" / "3.ds", [30])
    made = paths_file.stat().st_mtime_ns
    assert len(Windows(tmp_path / "data", 4, paths_file=paths_file)) == len(first) == 18
    assert paths_file.stat().st_mtime_ns == made


def test_a_stale_paths_file_is_refreshed_or_refused(tmp_path):
    for number in range(2):
        write(tmp_path / "data" / f"{number}.ds", [30], seed=number)
    paths_file = tmp_path / "list.json"
    known = Windows(tmp_path / "data", 4, paths_file=paths_file, on_stale_paths="error")
    write(tmp_path / "data" / "1.ds", [60])
    with pytest.raises(LoaderError, match=r"list.json is stale, .*1\.ds had 60 bytes and has 120"):
        Windows(tmp_path / "data", 4, paths_file=paths_file, on_stale_paths="error")
    trusting = Windows(tmp_path / "data", 4, paths_file=paths_file, on_stale_paths="trust")
    assert len(trusting) == len(known)
    with pytest.raises(CorruptionError, match=r"1\.ds has 60 tokens, but had 30"):
        list(trusting)
    assert len(Windows(tmp_path / "data", 4, paths_file=paths_file)) == 18
    assert len(Windows(tmp_path / "data", 4, paths_file=paths_file, on_stale_paths="error")) == 18
    (tmp_path / "data" / "0.ds").unlink()
    with pytest.raises(LoaderError, match="not there any more"):
        Windows(tmp_path / "data", 4, paths_file=paths_file, on_stale_paths="error")
    assert len(Windows(tmp_path / "data", 4, paths_file=paths_file)) == 12


@pytest.mark.parametrize("content", ["{", '{"a": 1}', '[{"path": 3, "size": 4}]', '[{"size": 4}]', "[3]"])
def test_a_paths_file_that_is_none_is_an_error(tmp_path, content):
    write(tmp_path / "a.ds", [30])
    (tmp_path / "list.json").write_text(content)
    with pytest.raises(LoaderError, match="remove it to have it written again"):
        Windows(tmp_path, 4, paths_file=tmp_path / "list.json")


def test_datatroves_own_paths_file_is_taken_with_its_choice_of_files(tmp_path):
    for number in range(3):
        write(tmp_path / "data" / f"{number}.ds", [30], seed=number)
    (tmp_path / "list.json").write_text(json.dumps([{"path": "2.ds", "size": 60}, {"path": "0.ds", "size": 60}]))
    windows = Windows(tmp_path / "data", 4, paths_file=tmp_path / "list.json")
    assert [Path(file.path).name for file in windows.files] == ["2.ds", "0.ds"]
    assert [entry["tokens"] for entry in json.loads((tmp_path / "list.json").read_text())] == [30, 30]


def test_a_paths_file_gives_the_files_that_are_named(tmp_path):
    for number in range(2):
        write(tmp_path / "data" / f"{number}.ds", [30], seed=number)
        write(tmp_path / "other" / f"{number}.ds", [30], seed=number)
    one, other = str(tmp_path / "data" / "0.ds"), str(tmp_path / "data" / "1.ds")
    paths_file = tmp_path / "list.json"

    def names(paths, **options):
        return [file.path for file in Windows(paths, 4, paths_file=paths_file, **options).files]

    assert names((one,)) == [one]
    said = "list.json is stale, it is not a list of the 2 files that paths names, in their order"
    for words in ("error", "trust"):
        with pytest.raises(LoaderError, match=said):
            names((one, other), on_stale_paths=words)
    assert names((one, other)) == [one, other]
    assert names((other, one)) == [other, one]
    assert names(other) == names(other, on_stale_paths="error") == [other]
    assert names(tmp_path / "data", on_stale_paths="error") == [other]
    with pytest.raises(LoaderError, match=r"stale, .*data/1\.ds is not below .*other: remove it"):
        names(tmp_path / "other", on_stale_paths="error")
    assert names(f"{tmp_path}/other/*.ds") == [str(tmp_path / "other" / f"{number}.ds") for number in range(2)]


def test_a_paths_file_that_cannot_be_written_is_not_waited_for(tmp_path):
    write(tmp_path / "a.ds", [30])
    (tmp_path / "list.json.lock").mkdir()
    for place in (tmp_path / "a.ds" / "list.json", tmp_path / "list.json"):
        with pytest.raises(LoaderError, match=r"list\.json\.lock cannot be written \(.*\): name a paths_file in"):
            Windows(tmp_path, 4, paths_file=place)


@pytest.mark.parametrize("where", ["here", "memory://splits"])
def test_held_out_files_are_no_windows_to_train_on(tmp_path, where):
    for number, name in enumerate(("train/web/0", "train/code/0", "val/web/0")):
        write(tmp_path / "out" / f"{name}.ds", [30], seed=number)
    documents = tmp_path / "out" / "documents" / "train" / "0.parquet"
    documents.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["a"]}), documents)
    copy_to("memory://splits", tmp_path)
    folder = str(tmp_path) if where == "here" else where

    def names(paths, **options):
        return ["/".join(file.path.split("/")[-3:]) for file in Windows(paths, 4, **options).files]

    train, val = ["train/code/0.ds", "train/web/0.ds"], ["val/web/0.ds"]
    for paths in (folder, f"{folder}/out", f"{folder}/out/**/*.ds", f"{folder}/out/*/*/0.ds"):
        assert names(paths) == train
        assert names(paths, split="val") == val
        assert names(paths, split="all") == train + val
    assert names(f"{folder}/out/val") == val
    options = {"paths_file": tmp_path / "list.json", "on_stale_paths": "error"}
    assert names(folder, **options) == names(folder, **options) == train
    with pytest.raises(LoaderError, match="list.json is stale, it is of the split 'train'"):
        names(folder, split="val", **options)
    with pytest.raises(LoaderError, match="'val'"):
        names(f"{folder}/out/train", split="val")


def open_together(folder, paths_file, barrier, answers) -> None:
    barrier.wait()
    windows = Windows(folder, 4, paths_file=paths_file)
    answers.put((len(windows), [file.path for file in windows.files], int(windows[5]["input_ids"].sum())))


def test_many_workers_that_start_at_once_get_one_list(tmp_path):
    for number in range(20):
        write(tmp_path / "data" / f"{number:02d}.ds", [30], seed=number)
    paths_file = tmp_path / "list.json"
    spawn = multiprocessing.get_context("fork")
    barrier, answers = spawn.Barrier(6), spawn.Queue()
    workers = [
        spawn.Process(target=open_together, args=(tmp_path / "data", paths_file, barrier, answers)) for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert found == [found[0]] * 6
    assert len(json.loads(paths_file.read_text())) == 20
    assert not list(tmp_path.glob("*.partial-*"))
