"""Fixture for tests of evaluation sets: the folder of indexes."""

import pytest

from longcrawl.dedup import decontaminate


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """Keep indexes of evaluation sets in a folder of the test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(decontaminate, "cache_folder", lambda: folder)
    return folder / "evaluation"
