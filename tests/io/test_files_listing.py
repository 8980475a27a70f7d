"""Local files: links are followed once, and what cannot be read is named and never passed over."""

import gzip
import json
import os
import sys
import warnings
from pathlib import Path

import fsspec
import pytest

import longcrawl as lc
from longcrawl.core.sources import BadFiles, make_source
from longcrawl.errors import LongCrawlError, SourceError
from longcrawl.io.files import list_files, match_files
from longcrawl.publish.compose import read_lengths
from longcrawl.sources.files import list_tree
from longcrawl.sources.redpajama_v2 import RedPajamaV2
from longcrawl.sources.text import Text


def write(file: Path, *texts: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": text, "n_tokens": 3}) + "\n" for text in texts))
    return file


@pytest.fixture
def tree(tmp_path) -> Path:
    """Return a folder with a file, a linked folder, links in circles, a link to a file beside it, and a hidden file."""
    write(tmp_path / "elsewhere/deep/b.jsonl", "two")
    write(tmp_path / "tree/a.jsonl", "one")
    write(tmp_path / "tree/.hidden/x.jsonl", "never")
    write(tmp_path / "tree/z/c.jsonl", "three")
    (tmp_path / "tree/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree/again").symlink_to(tmp_path / "tree/z")
    (tmp_path / "elsewhere/circle").symlink_to(tmp_path / "tree")
    (tmp_path / "tree/z/itself").symlink_to(".")
    (tmp_path / "tree/copy.jsonl").symlink_to("a.jsonl")
    return tmp_path / "tree"


def read(policy: str, **settings: object) -> tuple[list[str], list[tuple[str, str]]]:
    source, bad_files = make_source("text", {"on_bad_files": policy, **settings}), BadFiles(policy)  # type: ignore[arg-type]  # one of the words
    parts = source.splits()["train"]
    rows = [text for part in parts for table in source.read(part, bad_files) for text in table["text"].to_pylist()]
    return rows, [(bad.file, bad.reason) for bad in bad_files.found]


def test_links_are_followed_once_and_circles_end(tree):
    assert list_tree(str(tree)) == ["a.jsonl", "copy.jsonl", "linked/deep/b.jsonl", "z/c.jsonl"]
    assert list_tree(str(tree / "missing")) == []
    assert read("error", data_dir=str(tree)) == (["one", "two", "three"], [])


def test_globs_follow_links_too(tree):
    assert match_files(f"{tree}/**/*.jsonl") == [
        f"{tree}/{name}" for name in ("a.jsonl", "again/c.jsonl", "copy.jsonl", "linked/deep/b.jsonl", "z/c.jsonl")
    ]
    assert read("error", data_files=f"{tree}/**/*.jsonl") == (["one", "two", "three"], [])
    assert read("error", data_files=f"{tree}/ag*/**/*.jsonl") == (["three"], [])
    assert match_files(f"{tree}/*/c.jsonl") == [f"{tree}/again/c.jsonl", f"{tree}/z/c.jsonl"]
    assert match_files(f"{tree}/[ab].jsonl") == match_files(f"{tree}/?.jsonl") == [f"{tree}/a.jsonl"]
    assert match_files(f"{tree}/nowhere/*") == []
    assert read("error", data_files=f"{tree}/*/*/*.jsonl")[0] == ["two"]
    with pytest.raises(SourceError, match="is not a valid pattern"):
        read("error", data_files=f"{tree}/a**/x.jsonl")


def test_a_glob_of_one_step_does_not_walk_the_folders_below(tree, monkeypatch):
    listed, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert match_files(f"{tree}/*.jsonl") == [f"{tree}/a.jsonl", f"{tree}/copy.jsonl"]
    assert len(listed) == 1


def broken(tree: Path) -> dict[str, str]:
    """Add what cannot be read to a folder, and return the reason by path."""
    (tree / "gone.jsonl").symlink_to("/nowhere/x.jsonl")
    (tree / "shards").symlink_to("/nowhere/shards")
    os.mkfifo(tree / "pipe.jsonl")
    return {
        f"{tree}/gone.jsonl": "is a link to /nowhere/x.jsonl, which cannot be reached",
        f"{tree}/pipe.jsonl": "is a named pipe or a device, not a file",
        f"{tree}/shards": "is a link to /nowhere/shards, which cannot be reached",
    }


def test_links_to_nothing_and_pipes_are_named_by_every_policy(tree):
    reasons = broken(tree)
    with pytest.raises(SourceError, match=r"gone.jsonl: is a link to /nowhere/x.jsonl.*set on_bad_files"):
        read("error", data_dir=str(tree))
    assert read("skip", data_dir=str(tree)) == (["one", "two", "three"], sorted(reasons.items()))
    with pytest.warns(UserWarning, match="shards: is a link to /nowhere/shards, which cannot be reached") as warned:
        assert len(read("warn", data_dir=str(tree))[0]) == 3
    assert len(warned) == 3
    assert read("skip", data_files=f"{tree}/*.jsonl")[1] == sorted(reasons.items())[:2]


@pytest.mark.parametrize("name", ["warc", "datatrove", "megatron", "gpt-simple"])
def test_other_sources_name_them_too(tmp_path, name):
    (tmp_path / "shards").symlink_to("/nowhere/shards")
    source, bad_files = make_source(name, {"data_dir": str(tmp_path), "on_bad_files": "skip"}), BadFiles("skip")
    (part,) = source.splits()["train"]
    if name == "warc":
        assert list(source.read(part, bad_files)) == []
        assert [bad.file for bad in bad_files.found] == [f"{tmp_path}/shards"]
    else:
        with pytest.raises(SourceError, match="is a link to /nowhere/shards, which cannot be reached"):
            source.schema()


def test_a_release_with_a_linked_shard_and_a_link_to_nothing(tmp_path, make_release):
    release = make_release(tmp_path / "release", {"2023-06/0000/en_head": ["one"]}, listings=False)
    other = make_release(tmp_path / "other", {"2023-06/0001/en_head": ["two"]}, listings=False)
    for kind in ("documents", "quality_signals", "duplicates", "minhash"):
        (release / kind / "2023-06/0001").symlink_to(other / kind / "2023-06/0001")
    (release / "documents/2023-06/0002").symlink_to("/nowhere")
    source, bad_files = RedPajamaV2(data_dir=str(release)), BadFiles("skip")
    texts = [row["text"] for part in source.splits()["train"] for table in source.read(part, bad_files)
             for row in table.to_pylist()]  # fmt: skip
    assert texts == ["one", "two"]
    assert [(bad.file, bad.reason) for bad in bad_files.found] == [
        (f"{release}/documents/2023-06/0002", "is a link to /nowhere, which cannot be reached")
    ]


def test_lengths_follow_links_and_name_what_cannot_be_read(tree):
    assert len(read_lengths(tree).tokens) == 4
    (tree / "shards").symlink_to("/nowhere/shards")
    with pytest.raises(SourceError, match=r"shards is a link to /nowhere/shards.*Remove it"):
        read_lengths(tree)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may list any folder")
def test_a_folder_that_may_not_be_listed_is_named(tree):
    (tree / "z").chmod(0)
    try:
        assert "z" in list_files(tree)
        assert (f"{tree}/z", "is a folder that cannot be listed") in read("skip", data_dir=str(tree))[1]
    finally:
        (tree / "z").chmod(0o755)


def test_a_run_records_what_it_could_not_read(tree, tmp_path):
    broken(tree)
    (tree / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "four"}\n'))
    recipe = tmp_path / "r.yaml"
    settings = {"builder": "text", "data_dir": str(tree), "on_bad_files": "skip"}
    recipe.write_text(
        json.dumps({"longcrawl": 1, "name": "r", "source": settings, "stages": [], "outputs": {"parquet": {}}})
    )
    summary = lc.run(recipe, tmp_path / "out")
    assert (summary.funnel.documents, summary.bad_files) == (4, 3)
    with pytest.raises(LongCrawlError, match="is a link to"):
        lc.run(recipe, tmp_path / "strict", overrides=["source.on_bad_files=error"])


LEFT = ("_SUCCESS", "_temporary/0/a.jsonl", "deep/_temporary/a.jsonl", "a.jsonl.crc", ".a.jsonl.crc", "_metadata",
        "_committed_17", "_delta_log/0.json", "b.jsonl._COPYING_")  # fmt: skip
DATA = ("_own.jsonl", "a.jsonl", "deep/__init__.py")


@pytest.mark.parametrize("where", ["local", "memory"])
def test_what_jobs_leave_beside_data_is_not_data(tmp_path, where):
    if where == "local":
        place = str(tmp_path)
        for name in (*LEFT, *DATA):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text('{"text": "a"}')
    else:
        place = f"memory://{tmp_path.name}"
        for name in (*LEFT, *DATA):
            fsspec.filesystem("memory").pipe(f"/{tmp_path.name}/{name}", b'{"text": "a"}')
    with warnings.catch_warnings(action="error"):
        assert [part.name for part in Text(data_dir=place).splits()["train"]] == list(DATA)
        for streaming in (False, True):
            assert [row["source"] for row in lc.open(place, streaming=streaming).data] == list(DATA)
    named = Text(data_dir=place, data_files="**/*.jsonl").splits()["train"]
    assert [part.name for part in named] == ["_own.jsonl", "a.jsonl"]
