"""The hash of the source code."""

from longcrawl import _version
from longcrawl._version import code_hash


def test_the_code_hash_covers_every_module(tmp_path, monkeypatch):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/warc.py").write_text("VERSION = 1")
    monkeypatch.setattr(_version, "__file__", str(tmp_path / "__init__.py"))
    before = code_hash.__wrapped__()
    (tmp_path / "sources/warc.py").write_text("VERSION = 2")
    assert code_hash.__wrapped__() != before != code_hash()
