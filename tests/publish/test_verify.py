"""Verification of outputs behind URLs."""

import fsspec
from fsspec.implementations.memory import MemoryFile

import longcrawl as lc
from longcrawl.io.structured import seal


def test_no_more_is_read_of_a_file_than_its_description_says(monkeypatch):
    read, taken = MemoryFile.read, []

    def counted(file, *most):
        taken.append(read(file, *most))
        return taken[-1]

    monkeypatch.setattr(MemoryFile, "read", counted, raising=False)
    files = fsspec.filesystem("memory")
    files.pipe_file("/huge/a", bytes(30 << 20))
    entry = {"bytes": 5, "sha256": "0" * 64}
    files.pipe_file("/huge/rectangle.json", seal({"files": {"a": entry}}).encode())
    try:
        assert lc.verify("memory://huge").problems == ("a has more bytes than the 5 expected",)
    finally:
        files.rm("/huge", recursive=True)
    assert sum(map(len, taken)) < 10 << 20
