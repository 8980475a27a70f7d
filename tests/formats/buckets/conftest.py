"""Fixture for tests of bucketed datasets: files so small that some hundred documents fill several."""

import pytest

from longcrawl.formats.buckets import write
from longcrawl.formats.rectangle import write as rectangle


@pytest.fixture
def small_files(monkeypatch):
    """Make bands of 64 samples and groups of few tokens, so that some hundred documents fill several."""
    for module in (write, rectangle):
        monkeypatch.setattr(module, "BAND", 64)
    monkeypatch.setattr(write, "GROUP_TOKENS", 300)
    monkeypatch.setattr(write, "GROUP_DOCUMENTS", 20)
    monkeypatch.setattr(write, "FILE_DOCUMENTS", 50)
