"""Files of sources: which there are below a place, and how they are opened and fetched."""

import gzip
from pathlib import Path

import fsspec
import pytest

from longcrawl.core.sources import Part
from longcrawl.errors import NotYetError
from longcrawl.io import file_systems
from longcrawl.sources import blocks, files


def test_missing_empty_and_unreadable_files_say_so(tmp_path):
    with pytest.raises(files.DamagedFileError, match="is missing"):
        list(blocks.read_blocks(str(tmp_path / "no.gz")))
    (tmp_path / "empty.gz").write_bytes(b"")
    with pytest.raises(files.DamagedFileError, match="is cut"):
        list(blocks.read_blocks(str(tmp_path / "empty.gz")))
    with pytest.raises(files.DamagedFileError, match="cannot be read"):
        list(blocks.read_blocks(str(tmp_path)))


def test_list_tree_is_sorted_and_leaves_hidden_files_out(tmp_path):
    for name in ("b/c.txt", "a.txt", ".hidden", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert files.list_tree(str(tmp_path)) == ["a.txt", "b/c.txt"]
    memory = fsspec.filesystem("memory")
    memory.pipe("/tree/b/c.txt", b"")
    memory.pipe("/tree/a.txt", b"")
    assert files.list_tree("memory://tree") == ["a.txt", "b/c.txt"]
    assert files.list_tree("memory://nothing-here") == files.list_tree(str(tmp_path / "no")) == []


def test_a_remote_file_is_fetched_whole(tmp_path, web_server):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    url = web_server(tmp_path)
    assert list(blocks.read_blocks(f"{url}/a.gz")) == [b"one\ntwo\n"]
    with pytest.raises(files.DamagedFileError, match="is missing"):
        list(blocks.read_blocks(f"{url}/b.gz"))


def test_a_web_server_is_tried_again(tmp_path, web_server, monkeypatch):
    monkeypatch.setattr(file_systems, "PAUSE", 0.01)
    (tmp_path / "a").write_bytes(b"text")
    url = web_server(tmp_path, failures=2)
    assert blocks.read_bytes(f"{url}/a") == b"text"
    url = web_server(tmp_path, failures=2)
    assert files.fetch_texts([f"{url}/a", f"{url}/b"]) == {f"{url}/a": "text", f"{url}/b": None}
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.1)
    url = web_server(tmp_path, failures=99)
    with pytest.raises(
        NotYetError, match=r"/a: cannot be fetched now \(ClientResponseError: 503.*Run the same command"
    ):
        blocks.read_bytes(f"{url}/a")
    with pytest.raises(NotYetError, match="cannot be fetched now"):
        files.fetch_texts([f"{url}/a"])


def test_parts_are_plain_values():
    assert Part("a", ("b",)) == Part("a", ("b",))
    assert Path(files.absolute("~")) == Path.home()
    assert files.absolute("file:///tmp/x") == "/tmp/x"  # noqa: S108  # a path that is not opened
    assert files.absolute("http://host/x/") == "http://host/x"
